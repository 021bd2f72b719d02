// How much memory pools hold for allocation sequences of large language models: the peak of what
// they took from the provider, divided by the peak of live bytes. No memory is touched and no
// time is measured, so one run is enough and the result is the same on any machine.
//
// The sequences are made here after what training and inference do: sizes come from the dimensions
// of a model, the order from how a step runs. Beside our pools stands a small model of the scheme
// of PyTorch's caching allocator.
#include "bench.h"

#include <cstdio>
#include <map>
#include <set>

#include <sys/mman.h>

namespace bench {
namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;

// --- sequences
// -----------------------------------------------------------------------------------

struct Event {
    size_t id;
    size_t size; // 0: free
};

struct Sequence {
    std::vector<Event> events;
    size_t ids = 0;
    Rng rng{0x9e3779b97f4a7c15};

    size_t alloc(size_t size) {
        events.push_back({ids, size});
        return ids++;
    }
    void free(size_t id) {
        events.push_back({id, 0});
    }
    void free_all(std::vector<size_t> &list) { // the last one first
        for (; !list.empty(); list.pop_back()) {
            free(list.back());
        }
    }
    size_t between(size_t low, size_t high) {
        return low + rng.next() % (high - low + 1);
    }
};

// A decoder of about 7e9 parameters in 2-byte numbers, cut to fewer layers.
struct Model {
    size_t layers = 16, hidden = 4096, inner = 11008, words = 32000, heads = 32;
    size_t act(size_t tokens) const {
        return tokens * hidden * 2;
    }
    size_t mlp(size_t tokens) const {
        return tokens * inner * 2;
    }
};

void add_weights(Sequence &s, const Model &m, size_t copies) {
    for (size_t copy = 0; copy < copies; ++copy) {
        s.alloc(m.words * m.hidden * 2);
        for (size_t i = 0; i < m.layers; ++i) {
            for (int matrix = 0; matrix < 4; ++matrix) {
                s.alloc(m.hidden * m.hidden * 2);
            }
            for (int matrix = 0; matrix < 3; ++matrix) {
                s.alloc(m.hidden * m.inner * 2);
            }
            s.alloc(m.hidden * 2);
            s.alloc(m.hidden * 2);
        }
    }
}

// Tensors that a layer keeps for the way back.
void forward_layer(Sequence &s, const Model &m, size_t tokens, std::vector<size_t> &kept) {
    for (int i = 0; i < 5; ++i) { // norm, q, k, v, output of attention
        kept.push_back(s.alloc(m.act(tokens)));
    }
    kept.push_back(s.alloc(tokens * m.heads * 4)); // sums of the softmax
    const size_t mixed = s.alloc(m.act(tokens));
    kept.push_back(s.alloc(m.act(tokens)));
    s.free(mixed);
    const size_t gate = s.alloc(m.mlp(tokens));
    const size_t up = s.alloc(m.mlp(tokens));
    kept.push_back(gate);
    kept.push_back(up);
    kept.push_back(s.alloc(m.mlp(tokens)));
    kept.push_back(s.alloc(m.act(tokens)));
}

void backward_layer(Sequence &s, const Model &m, size_t tokens, std::vector<size_t> &kept) {
    const size_t grad = s.alloc(m.act(tokens));
    const size_t inner = s.alloc(m.mlp(tokens));
    const size_t other = s.alloc(m.mlp(tokens));
    s.free(inner);
    const size_t weight = s.alloc(m.hidden * m.inner * 2);
    s.free(other);
    s.free(weight);
    const size_t attention = s.alloc(m.act(tokens) * 3);
    s.free_all(kept);
    s.free(attention);
    s.free(grad);
}

void loss(Sequence &s, const Model &m, size_t tokens) {
    const size_t logits = s.alloc(tokens * m.words * 2);
    const size_t wide = s.alloc(tokens * m.words * 4);
    const size_t grad = s.alloc(tokens * m.words * 4);
    s.free(wide);
    s.free(logits);
    s.free(grad);
}

void training_step(Sequence &s, const Model &m, size_t tokens) {
    std::vector<std::vector<size_t>> kept(m.layers);
    for (auto &layer : kept) {
        forward_layer(s, m, tokens, layer);
    }
    loss(s, m, tokens);
    for (size_t i = m.layers; i-- > 0;) {
        backward_layer(s, m, tokens, kept[i]);
    }
}

Sequence training_fixed() {
    Sequence s;
    const Model m;
    add_weights(s, m, 4);
    for (int step = 0; step < 10; ++step) {
        training_step(s, m, 4096);
    }
    return s;
}

Sequence training_variable() {
    Sequence s;
    const Model m;
    add_weights(s, m, 4);
    for (int step = 0; step < 60; ++step) {
        training_step(s, m, s.between(500, 4096));
    }
    return s;
}

// Only the input of a layer is kept; the rest is computed again on the way back.
Sequence training_checkpointed() {
    Sequence s;
    const Model m;
    add_weights(s, m, 4);
    for (int step = 0; step < 60; ++step) {
        const size_t tokens = s.between(2000, 16384);
        std::vector<size_t> inputs, kept;
        for (size_t i = 0; i < m.layers; ++i) {
            inputs.push_back(s.alloc(m.act(tokens)));
            forward_layer(s, m, tokens, kept);
            s.free_all(kept);
        }
        loss(s, m, tokens);
        for (size_t i = m.layers; i-- > 0;) {
            forward_layer(s, m, tokens, kept);
            backward_layer(s, m, tokens, kept);
            s.free(inputs.back());
            inputs.pop_back();
        }
    }
    return s;
}

void inference_layer(Sequence &s, const Model &m, size_t tokens) {
    const size_t qkv = s.alloc(m.act(tokens) * 3);
    const size_t out = s.alloc(m.act(tokens));
    s.free(qkv);
    const size_t gate = s.alloc(m.mlp(tokens) * 2);
    const size_t act = s.alloc(m.mlp(tokens));
    s.free(gate);
    s.free(out);
    s.free(act);
}

// Keys and values of each request and layer grow by concatenation: a new tensor, then the old one
// goes. Requests come and go.
Sequence inference_concatenated() {
    struct Request {
        size_t length, end;
        std::vector<size_t> caches;
    };
    Sequence s;
    const Model m;
    add_weights(s, m, 1);
    std::vector<Request> running;
    for (int step = 0; step < 1500; ++step) {
        if (running.size() < 16 && step % 8 == 0) {
            const size_t prompt = s.between(100, 3000);
            Request r{prompt, prompt + s.between(20, 400), {}};
            for (size_t i = 0; i < m.layers; ++i) {
                inference_layer(s, m, prompt);
                r.caches.push_back(s.alloc(m.act(prompt)));
                r.caches.push_back(s.alloc(m.act(prompt)));
            }
            running.push_back(r);
        }
        for (size_t n = 0; n < running.size();) {
            Request &r = running[n];
            ++r.length;
            for (size_t &cache : r.caches) {
                const size_t longer = s.alloc(m.act(r.length));
                s.free(cache);
                cache = longer;
            }
            if (r.length < r.end) {
                ++n;
                continue;
            }
            s.free_all(r.caches);
            running.erase(running.begin() + static_cast<long>(n));
        }
    }
    return s;
}

// Keys and values live in pages that are allocated once; only results of a step come and go.
Sequence inference_paged() {
    Sequence s;
    const Model m;
    add_weights(s, m, 1);
    for (size_t i = 0; i < m.layers * 2; ++i) {
        s.alloc(256 * MiB);
    }
    for (int step = 0; step < 600; ++step) {
        const size_t tokens = step % 10 == 0 ? s.between(512, 8192) : s.between(1, 256);
        const size_t in = s.alloc(m.act(tokens));
        const size_t tables = s.alloc(s.between(1, 64) * 4 * KiB);
        for (size_t i = 0; i < m.layers; ++i) {
            inference_layer(s, m, tokens);
        }
        const size_t logits = s.alloc(s.between(1, 256) * m.words * 4);
        s.free(tables);
        s.free(in);
        s.free(logits);
    }
    return s;
}

// --- who serves them
// ------------------------------------------------------------------------------------------

// A provider of addresses in pages of 2 MiB, as the drivers of GPUs have them.
class Addresses {
  public:
    static constexpr size_t PAGE = 2 * MiB, ROOM = size_t{1} << 43;
    umf_memory_provider_handle_t handle = nullptr;
    size_t held = 0, peak = 0, calls = 0;

    Addresses() {
        range = static_cast<char *>(
            mmap(nullptr, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        umf_memory_provider_ops_t ops = {};
        ops.version = UMF_PROVIDER_OPS_VERSION_CURRENT;
        ops.initialize = [](const void *params, void **provider) {
            *provider = const_cast<void *>(params);
            return UMF_RESULT_SUCCESS;
        };
        ops.finalize = [](void *) { return UMF_RESULT_SUCCESS; };
        ops.alloc = alloc;
        ops.free = free;
        ops.get_last_native_error = [](void *, const char **, int32_t *) {
            return UMF_RESULT_ERROR_NOT_SUPPORTED;
        };
        ops.get_recommended_page_size = [](void *, size_t, size_t *size) {
            *size = PAGE;
            return UMF_RESULT_SUCCESS;
        };
        ops.get_min_page_size = [](void *, const void *, size_t *size) {
            *size = PAGE;
            return UMF_RESULT_SUCCESS;
        };
        ops.get_cache_line_size = [](void *, size_t *size) {
            *size = 128;
            return UMF_RESULT_SUCCESS;
        };
        ops.get_name = [](void *, const char **name) {
            *name = "addresses";
            return UMF_RESULT_SUCCESS;
        };
        if (range != MAP_FAILED) {
            umfMemoryProviderCreate(&ops, this, &handle);
        }
    }
    ~Addresses() {
        umfMemoryProviderDestroy(handle);
        if (range != MAP_FAILED) {
            munmap(range, ROOM);
        }
    }
    Addresses(const Addresses &) = delete;
    Addresses &operator=(const Addresses &) = delete;

  private:
    char *range;
    size_t used = 0;
    std::multimap<size_t, void *> spare;

    static size_t rounded(size_t size) {
        return (size + PAGE - 1) / PAGE * PAGE;
    }
    static umf_result_t alloc(void *self, size_t size, size_t, void **ptr) {
        Addresses &a = *static_cast<Addresses *>(self);
        size = rounded(size);
        const auto found = a.spare.find(size);
        if (found != a.spare.end()) {
            *ptr = found->second;
            a.spare.erase(found);
        } else if (size > ROOM - a.used) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        } else {
            *ptr = a.range + a.used;
            a.used += size;
        }
        a.calls++;
        a.held += size;
        a.peak = a.held > a.peak ? a.held : a.peak;
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t free(void *self, void *ptr, size_t size) {
        Addresses &a = *static_cast<Addresses *>(self);
        a.held -= rounded(size);
        a.calls++;
        a.spare.emplace(rounded(size), ptr);
        return UMF_RESULT_SUCCESS;
    }
};

struct Held {
    size_t peak = 0, calls = 0;
    bool failed = false;
};

Held replay_in_pool(const Sequence &s, const char *kind) {
    Held result;
    Addresses addresses;
    umf_memory_pool_handle_t pool = nullptr;
    if (!addresses.handle ||
        umfPoolCreate(pool_ops(kind), addresses.handle, nullptr, 0, &pool) != UMF_RESULT_SUCCESS) {
        result.failed = true;
        return result;
    }
    std::vector<void *> live(s.ids);
    for (const Event &e : s.events) {
        if (!e.size) {
            umfPoolFree(pool, live[e.id]);
        } else if (!(live[e.id] = umfPoolMalloc(pool, e.size))) {
            result.failed = true;
        }
    }
    result.peak = addresses.peak;
    result.calls = addresses.calls;
    umfPoolDestroy(pool);
    return result;
}

// PyTorch's scheme (c10/cuda/CUDACachingAllocator, default settings): sizes are multiples of 512;
// up to 1 MiB comes from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, more from
// segments of its own size in multiples of 2 MiB. Best fit among blocks of the same of the two
// pools; a rest is split off if it has 512 bytes (small), or more than 1 MiB (large). Neighbours
// coalesce; segments are kept.
class CachingModel {
  public:
    size_t held = 0, calls = 0;

    size_t alloc(size_t size) {
        size = (size + 511) / 512 * 512;
        const bool small = size <= MiB;
        std::set<std::pair<size_t, size_t>> &free = pools[small];
        auto found = free.lower_bound({size, 0});
        if (found == free.end()) {
            const size_t segment = small             ? 2 * MiB
                                   : size < 10 * MiB ? 20 * MiB
                                                     : (size + 2 * MiB - 1) / (2 * MiB) * 2 * MiB;
            held += segment;
            calls++;
            blocks[end] = {segment, false, small, true};
            found = free.emplace(segment, end).first;
            end += segment;
        }
        const size_t at = found->second;
        free.erase(found);
        Block &block = blocks[at];
        block.used = true;
        const size_t rest = block.size - size;
        if (small ? rest >= 512 : rest > MiB) {
            block.size = size;
            blocks[at + size] = {rest, false, small, false};
            free.emplace(rest, at + size);
        }
        return at;
    }
    void free(size_t at) {
        auto block = blocks.find(at);
        std::set<std::pair<size_t, size_t>> &free = pools[block->second.small];
        block->second.used = false;
        const auto next = std::next(block);
        if (next != blocks.end() && !next->second.first && !next->second.used) {
            free.erase({next->second.size, next->first});
            block->second.size += next->second.size;
            blocks.erase(next);
        }
        if (!block->second.first && !std::prev(block)->second.used) {
            const auto low = std::prev(block);
            free.erase({low->second.size, low->first});
            low->second.size += block->second.size;
            blocks.erase(block);
            block = low;
        }
        free.emplace(block->second.size, block->first);
    }

  private:
    struct Block {
        size_t size;
        bool used, small, first; // first of its segment
    };
    std::map<size_t, Block> blocks; // by address
    std::set<std::pair<size_t, size_t>> pools[2];
    size_t end = 0;
};

Held replay_in_model(const Sequence &s) {
    CachingModel model;
    std::vector<size_t> live(s.ids);
    for (const Event &e : s.events) {
        if (e.size) {
            live[e.id] = model.alloc(e.size);
        } else {
            model.free(live[e.id]);
        }
    }
    return {model.held, model.calls, false};
}

size_t peak_live(const Sequence &s) {
    std::vector<size_t> sizes(s.ids);
    size_t live = 0, peak = 0;
    for (const Event &e : s.events) {
        live += e.size;
        live -= e.size ? 0 : sizes[e.id];
        sizes[e.id] = e.size ? e.size : sizes[e.id];
        peak = live > peak ? live : peak;
    }
    return peak;
}

void print_held(const std::string &key, const Held &held, size_t live) {
    if (held.failed) {
        report.absent(key, "an allocation failed");
        print_absent(key, "an allocation failed");
        return;
    }
    Samples samples;
    samples.add(static_cast<double>(held.peak) / static_cast<double>(live));
    report.add(key, "x", samples);
    print_row(key, samples, "x", std::to_string(held.calls) + " provider calls");
}

} // namespace

void run_sequences() {
    const struct {
        const char *name;
        Sequence (*make)();
    } sequences[] = {
        {"training, fixed length", training_fixed},
        {"training, variable length", training_variable},
        {"training, checkpointed", training_checkpointed},
        {"inference, concatenated", inference_concatenated},
        {"inference, paged", inference_paged},
    };
    for (const auto &sequence : sequences) {
        const std::string block = std::string("sequence/") + sequence.name;
        if (!wanted(block)) {
            continue;
        }
        const Sequence s = sequence.make();
        const size_t live = peak_live(s);
        print_title(block + ": peak held / peak live, " + std::to_string(s.events.size()) +
                    " events, " + std::to_string(live / MiB) + " MiB live");
        for (const char *kind : {"coalescing", "disjoint"}) {
            if (!pool_ops(kind)) {
                report.absent(block + "/" + kind, not_built_in);
                continue;
            }
            print_held(block + "/" + kind, replay_in_pool(s, kind), live);
        }
        print_held(block + "/PyTorch's scheme", replay_in_model(s), live);
        report.print_new_targets();
    }
}

} // namespace bench
