/*
 * The allocations of a training, without the training: made by a generator that has the features on
 * which the peak of an allocator depends.
 *
 * Parameters and the states of an optimizer live from the start. In each step the forward pass of
 * each layer makes activations, whose sizes are multiples of the length of this step's sequences,
 * and short-lived ones beside them; the backward pass frees them in the opposite order, beside
 * gradients. VARIABLE: another length in each step. CHECKPOINTED: only the input of a layer is
 * kept, and the backward pass makes the layer's activations again. FIXED: one length.
 *
 * Sizes are a hundredth of those of a model of 16 layers on a GPU: the pages of the allocator have
 * to be as much smaller.
 */
#ifndef UMF_TEST_FAKES_TRAINING_H
#define UMF_TEST_FAKES_TRAINING_H

#include <functional>
#include <random>
#include <vector>

class Training {
  public:
    enum Kind { VARIABLE, CHECKPOINTED, FIXED };
    using Take = std::function<void *(size_t)>;
    using Drop = std::function<void(void *)>;

    explicit Training(Kind of) : kind(of) {}

    // false: an allocation has failed.
    bool run(const Take &take_block, const Drop &drop_block) {
        take = take_block;
        drop = drop_block;
        start();
        for (int step = 0; step < 12 && is_served; step++) {
            length = kind == FIXED ? 900 : 300 + random() % 700;
            for (size_t layer = 0; layer < LAYERS; layer++) {
                forward(layer);
            }
            loss();
            for (size_t layer = LAYERS; layer-- > 0;) {
                backward(layer);
            }
        }
        free_all(lasting);
        return is_served;
    }

  private:
    static constexpr size_t LAYERS = 16;
    Kind kind;
    Take take;
    Drop drop;
    std::minstd_rand random{7};
    size_t length = 0;
    bool is_served = true;
    std::vector<void *> lasting;
    std::vector<void *> kept[LAYERS];

    void *make(size_t size) {
        void *ptr = take(size);
        is_served &= ptr != nullptr;
        return ptr;
    }
    void free(void *ptr) {
        if (ptr) {
            drop(ptr);
        }
    }
    void free_all(std::vector<void *> &list) {
        for (; !list.empty(); list.pop_back()) {
            free(list.back());
        }
    }
    void start() {
        for (size_t layer = 0; layer < LAYERS; layer++) {
            for (size_t size : {500000, 170000, 80, 80, 670000, 670000, 80}) {
                for (int copy = 0; copy < 3; copy++) { // of the optimizer
                    lasting.push_back(make(size));
                }
            }
        }
    }
    // Memory of the backward pass of a layer.
    void activations(size_t layer) {
        for (size_t factor : {700, 1900, 700, 1400, 4, 700, 2600, 2600, 700}) {
            kept[layer].push_back(make(length * factor));
            void *beside = make(length * factor / 3);
            void *small = make(200 + length % 90);
            free(beside);
            free(small);
        }
    }
    void forward(size_t layer) {
        void *input = make(length * 640);
        activations(layer);
        if (kind == CHECKPOINTED) {
            free_all(kept[layer]);
        }
        kept[layer].insert(kept[layer].begin(), input);
    }
    void loss() {
        void *logits = make(length * 21000);
        void *gradient = make(length * 21000);
        free(logits);
        free(gradient);
    }
    void backward(size_t layer) {
        if (kind == CHECKPOINTED) {
            activations(layer);
        }
        void *gradient = make(length * 700);
        while (!kept[layer].empty()) {
            void *next = make(length * (700 + 190 * (kept[layer].size() % 7)));
            free(gradient);
            gradient = next;
            free(kept[layer].back());
            kept[layer].pop_back();
        }
        free(gradient);
    }
};

#endif
