/*
 * Programs made by chance that use pools and streams as a right program does: each piece of work on
 * a block comes after the one before it. So whatever the oracle of the software driver finds, and
 * each word that a kernel finds changed, is a fault of the library.
 *
 * A block has a *home*, the stream that used it last; it moves to another one by an event. Other
 * streams may read it meanwhile, which umfUseOn reports to the library.
 */
#ifndef UMF_TEST_GPU_PROGRAM_H
#define UMF_TEST_GPU_PROGRAM_H

#include <algorithm>
#include <deque>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

#include "kernels.h"

#include <umf/capture.h>
#include <umf/ipc.h>
#include <umf/queue.h>
#include <umf/registration.h>
#include <umf/suspend.h>
#include <umf/text.h>

struct Program {
    static constexpr size_t cells = 4096; // for what kernels find, one for each stream
    static constexpr size_t max_live = 96;
    static constexpr size_t none = SIZE_MAX;

    struct Queue {
        CUstream stream;
        CUdeviceptr bad; // a word that only this stream counts in
        bool is_own;     // may be destroyed and captured
        bool is_blocking;
    };
    struct Block {
        char *ptr;
        size_t size;
        size_t home; // none: the host has waited, or it was not used
        std::set<size_t> readers;
        uint32_t value; // of its words; 0: not known
        long graphs;    // that use it
        bool is_old;    // a stream that was destroyed reads it: it may only be read and freed
    };
    // Work of a graph on blocks of the pool and with a pool of its own.
    struct Graph {
        CUgraphExec ready;
        umf_memory_pool_handle_t pool;
        size_t queue;    // where it was captured, or launched last
        CUdeviceptr bad; // its own word, as it may be launched anywhere
        std::vector<std::pair<Block *, uint32_t>> blocks;
        std::vector<void *> kept; // of its own pool
    };

    std::string text; // of the pool
    umf_memory_pool_handle_t pool;
    const Kernels &kernels;
    std::minstd_rand random;
    bool is_alone; // no other thread has work: may fail calls, capture and suspend
    std::vector<Queue> queues{};
    std::deque<Block *> blocks{};
    std::vector<Graph> graphs{};
    size_t captured = none; // the queue
    Graph capture{};
    uint32_t value = 0;
    CUdeviceptr words = 0;
    size_t used_cells = 0;
    size_t sleeps = 0; // suspends that succeeded
    size_t shared = 0; // blocks that were opened
    std::deque<std::string> trace{};
    // Of a pool with callbacks: may they refuse memory from now on; and a look at a new block.
    std::function<void(bool)> refuses = [](bool) {};
    std::function<void(const void *, size_t)> looks = [](const void *, size_t) {};

    Program(std::string pool_text, umf_memory_pool_handle_t of, const Kernels &kernel_list,
            unsigned seed, bool alone)
        : text(std::move(pool_text)), pool(of), kernels(kernel_list), random(seed),
          is_alone(alone) {}

    // --- chance ----------------------------------------------------------------------------------

    size_t below(size_t limit) {
        return random() % limit;
    }
    // From 1 MiB on the library lets a stream wait for another one, if that has freed such a size,
    // rather than take new memory.
    size_t some_size() {
        if (below(20) == 0) {
            return (1 + below(3)) << 20;
        }
        const size_t top = below(4) == 0 ? 18 : 13;
        return 4 + below(size_t{1} << below(top)) / 4 * 4;
    }
    size_t some_queue() {
        size_t queue;
        do {
            queue = below(queues.size());
        } while (queue == captured);
        return queue;
    }
    bool is_of_capture(const Block *block) const {
        return captured != none && (block->home == captured || block->readers.count(captured));
    }
    // A block that may be used outside of the capture; NULL: none was met.
    Block *some_block() {
        for (int i = 0; i < 8 && !blocks.empty(); i++) {
            Block *block = blocks[below(blocks.size())];
            if (!is_of_capture(block)) {
                return block;
            }
        }
        return nullptr;
    }

    // --- streams ---------------------------------------------------------------------------------

    CUdeviceptr new_cell() {
        return words + 4 * used_cells++;
    }
    void add_queue(CUstream stream, bool is_own) {
        queues.push_back({stream, new_cell(), is_own, !is_own});
    }
    static CUstream create(unsigned flags) {
        CUstream stream = nullptr;
        EXPECT_EQ(driver().cuStreamCreate(&stream, flags), CUDA_SUCCESS);
        return stream;
    }
    void start() {
        CU(cuMemAlloc(&words, 4 * cells));
        CU(cuMemsetD8(words, 0, 4 * cells));
        kernels.fill(words, 1, 0, 0, nullptr); // a driver loads kernels when they are first used,
        kernels.check(words, 1, 0, words, nullptr); // which a capture does not outlive
        CU(cuStreamSynchronize(nullptr));
        if (is_alone) {
            add_queue(nullptr, false);
        }
        add_queue(CU_STREAM_PER_THREAD, false);
        add_queue(create(CU_STREAM_DEFAULT), false);
        for (int i = 0; i < 4; i++) {
            add_queue(create(CU_STREAM_NON_BLOCKING), true);
        }
    }
    // The legacy default stream and those that block it are in order without an event.
    bool are_in_order(size_t first, size_t second) const {
        bool has_default = !queues[first].stream || !queues[second].stream;
        return has_default && queues[first].is_blocking && queues[second].is_blocking;
    }
    void order(size_t first, size_t second) {
        CUevent event = nullptr;
        if (first == second || first == none || (are_in_order(first, second) && below(2))) {
            return;
        }
        CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CU(cuEventRecord(event, queues[first].stream));
        CU(cuStreamWaitEvent(queues[second].stream, event, 0));
        CU(cuEventDestroy(event));
    }
    void move(Block *block, size_t to) {
        order(block->home, to);
        block->home = to;
    }
    // Nobody else reads it any more.
    void join_readers(Block *block) {
        for (size_t reader : block->readers) {
            order(reader, block->home);
        }
        block->readers.clear();
    }
    // The order of the default stream is one of work: a wait for a blocking stream that has had
    // none since does not wait for it. An event is such work.
    void wait_for(Block *block) {
        CUevent event = nullptr;
        if (block->home != none) {
            join_readers(block);
            CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
            CU(cuEventRecord(event, queues[block->home].stream));
            CU(cuEventSynchronize(event));
            CU(cuEventDestroy(event));
        }
    }

    // --- work ------------------------------------------------------------------------------------

    // Large blocks at both ends.
    template <typename F> static void each_part(const void *ptr, size_t size, F &&does) {
        const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(ptr);
        const size_t part = std::min<size_t>(size, 16384);
        does(at, part / 4);
        if (size > 2 * part) {
            does(at + size / 4 * 4 - part, part / 4);
        }
    }
    void fill(const void *ptr, size_t size, uint32_t with, size_t queue) {
        const uint32_t delay = below(8) == 0 ? 300 : 0;
        each_part(ptr, size, [&](CUdeviceptr at, uint64_t count) {
            kernels.fill(at, count, with, delay, queues[queue].stream);
        });
    }
    void check(const void *ptr, size_t size, uint32_t with, size_t queue) {
        const CUdeviceptr bad = queue == captured ? capture.bad : queues[queue].bad;
        each_part(ptr, size, [&](CUdeviceptr at, uint64_t count) {
            kernels.check(at, count, with, bad, queues[queue].stream);
        });
    }
    void write(Block *block) {
        if (block->home == none) {
            block->home = some_queue();
        }
        join_readers(block);
        block->value = ++value;
        fill(block->ptr, block->size, block->value, block->home);
    }
    void read(Block *block, size_t queue) {
        if (block->value) {
            check(block->ptr, block->size, block->value, queue);
        }
    }

    // --- blocks ----------------------------------------------------------------------------------

    static void handed_out(void *ptr, size_t size, CUstream stream) {
        if (!driver().is_real) {
            driver().handed_out(ptr, size, stream);
        }
    }
    static void given_back(void *ptr, size_t size) {
        if (!driver().is_real) {
            driver().given_back(ptr, size);
        }
    }
    static void takes_away(bool yes) {
        if (!driver().is_real) {
            driver().takes_away(yes);
        }
    }
    void take_on(size_t queue) {
        const size_t size = some_size(), alignment = below(4) ? 0 : size_t{1} << below(13);
        void *ptr = umfPoolMallocOn(pool, size, alignment, queues[queue].stream);
        if (ptr) {
            looks(ptr, size);
            handed_out(ptr, size, queues[queue].stream);
            blocks.push_back(new Block{static_cast<char *>(ptr), size, queue, {}, 0, 0, false});
            if (queue != captured && below(2)) {
                write(blocks.back());
            }
        }
    }
    void take() {
        const size_t size = some_size();
        void *ptr = umfPoolMalloc(pool, size);
        if (ptr) {
            looks(ptr, size);
            if (!driver().is_real) {
                driver().handed_out_to_all(ptr, size);
            }
            blocks.push_back(new Block{static_cast<char *>(ptr), size, none, {}, 0, 0, false});
        }
    }
    void forget(Block *block) {
        blocks.erase(std::find(blocks.begin(), blocks.end(), block));
        delete block;
    }
    // With a failure of the driver the block may stay.
    void free_on(Block *block, size_t queue, bool may_fail) {
        void *ptr = block->ptr;
        const size_t size = block->size;
        if (!may_fail) { // then another thread may get it before the call returns
            given_back(ptr, size);
        }
        const umf_result_t result = umfFreeOn(ptr, queues[queue].stream);
        if (result != UMF_RESULT_SUCCESS) {
            EXPECT_TRUE(may_fail) << "umfFreeOn gave " << result;
            return;
        }
        if (may_fail) {
            given_back(ptr, size);
        }
        forget(block);
        if (is_alone && !may_fail && below(8) == 0) {
            EXPECT_NE(umfFreeOn(ptr, queues[queue].stream), UMF_RESULT_SUCCESS) << "freed twice";
        }
    }

    int run(size_t steps);
    bool step();
    void use();
    void register_block();
    void use_elsewhere();
    void copy();
    void free_some(bool may_fail);
    void free_waited(Block *block);
    void ask();
    void wait_somewhere();
    void renew_queue();
    void sleep();
    // Memory by descriptors, which the process opens itself.
    bool shares() const {
        return is_alone && text.find("share=fd") != std::string::npos;
    }
    void share_block(bool may_fail);
    void with_a_failure();
    void begin_capture();
    void work_in_capture();
    void end_capture();
    void launch();
    void end_graph(size_t i);
    void end();
    uint32_t changed_words();
};

#include "program_steps.h"

#endif
