// Single operations of the library that are not a plain allocation, next to their parts.
#include "bench.h"

#include <umf/copy.h>
#include <umf/experimental/memory_properties.h>
#include <umf/ipc.h>
#include <umf/record.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <sched.h>
#include <sys/mman.h>

namespace bench {

namespace {

constexpr size_t MIB = size_t{1} << 20;
constexpr size_t GIB = size_t{1} << 30;

// A pool with one live allocation; empty if either cannot be had.
struct Live {
    Pool pool;
    void *ptr = nullptr;
    Live(const char *kind, const char *provider, size_t size) : pool(kind, provider) {
        ptr = pool.handle ? umfPoolMalloc(pool.handle, size) : nullptr;
    }
    ~Live() {
        if (ptr) {
            umfPoolFree(pool.handle, ptr);
        }
    }
    Live(const Live &) = delete;
    Live &operator=(const Live &) = delete;
};

// The job, if `ready`; otherwise the reason.
template <class F>
std::unique_ptr<Job> job_if(bool ready, const std::string &error, std::string &why, F f) {
    if (ready) {
        return make_fn_job(std::move(f));
    }
    why = error.empty() ? "its set-up failed" : error;
    return nullptr;
}

std::unique_ptr<Job> make_loop(std::string &) {
    return make_fn_job([](uint64_t i) {
        asm volatile("" : : "r"(i) : "memory");
        return true;
    });
}

// --- lookup
// -------------------------------------------------------------------------------------------

std::unique_ptr<Job> make_by_ptr(const char *pool, const char *provider, size_t size,
                                 std::string &why) {
    auto live = std::make_unique<Live>(pool, provider, size);
    const bool ready = live->ptr != nullptr;
    const std::string error = live->pool.error;
    return job_if(ready, error, why, [l = std::move(live)](uint64_t) {
        umf_memory_pool_handle_t found;
        return umfPoolByPtr(l->ptr, &found) == UMF_RESULT_SUCCESS;
    });
}

std::unique_ptr<Job> make_by_ptr_slab(std::string &why) {
    return make_by_ptr("disjoint", "os", 64, why);
}

std::unique_ptr<Job> make_by_ptr_whole(std::string &why) {
    return make_by_ptr("proxy", "null", 2 * MIB, why);
}

std::unique_ptr<Job> make_usable_size(const char *pool, std::string &why) {
    auto live = std::make_unique<Live>(pool, "os", 64);
    const bool ready = live->ptr != nullptr;
    const std::string error = live->pool.error;
    return job_if(ready, error, why, [l = std::move(live)](uint64_t) {
        size_t size;
        return umfPoolMallocUsableSize(l->pool.handle, l->ptr, &size) == UMF_RESULT_SUCCESS;
    });
}

std::unique_ptr<Job> make_usable_size_disjoint(std::string &why) {
    return make_usable_size("disjoint", why);
}

std::unique_ptr<Job> make_usable_size_jemalloc(std::string &why) {
    return make_usable_size("jemalloc", why);
}

std::unique_ptr<Job> make_properties(std::string &why) {
    auto live = std::make_unique<Live>("disjoint", "os", 64);
    const bool ready = live->ptr != nullptr;
    const std::string error = live->pool.error;
    return job_if(ready, error, why, [l = std::move(live)](uint64_t) {
        umf_memory_properties_handle_t properties;
        return umfGetMemoryPropertiesHandle(l->ptr, &properties) == UMF_RESULT_SUCCESS;
    });
}

// --- the framework around a user's pool
// ---------------------------------------------------------------

std::unique_ptr<Job> make_empty_pool_pair(std::string &why) {
    auto pool = std::make_unique<Pool>(empty_pool_ops(), "reserve");
    const bool ready = pool->handle != nullptr;
    const std::string error = pool->error;
    return job_if(ready, error, why, [p = std::move(pool)](uint64_t) {
        void *ptr = umfPoolMalloc(p->handle, 64);
        return umfFree(ptr) == UMF_RESULT_SUCCESS;
    });
}

struct BareEmptyPool {
    Provider provider{"reserve"};
    const umf_memory_pool_ops_t *volatile ops = empty_pool_ops();
    void *pool = nullptr;
    BareEmptyPool() {
        if (provider.handle) {
            ops->initialize(provider.handle, nullptr, &pool);
        }
    }
    ~BareEmptyPool() {
        if (pool) {
            ops->finalize(pool);
        }
    }
    BareEmptyPool(const BareEmptyPool &) = delete;
    BareEmptyPool &operator=(const BareEmptyPool &) = delete;
};

std::unique_ptr<Job> make_empty_callbacks(std::string &why) {
    auto bare = std::make_unique<BareEmptyPool>();
    const bool ready = bare->pool != nullptr;
    const std::string error = bare->provider.error;
    return job_if(ready, error, why, [b = std::move(bare)](uint64_t) {
        const umf_memory_pool_ops_t *ops = b->ops;
        void *ptr = ops->malloc(b->pool, 64);
        return ops->free(b->pool, ptr) == UMF_RESULT_SUCCESS;
    });
}

// --- providers and spans
// ------------------------------------------------------------------------------

std::unique_ptr<Job> make_raw_mmap(std::string &) {
    return make_fn_job([](uint64_t) {
        void *map =
            mmap(nullptr, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return map != MAP_FAILED && munmap(map, 2 * MIB) == 0;
    });
}

std::unique_ptr<Job> make_provider_pair(const char *kind, std::string &why) {
    auto provider = std::make_unique<Provider>(kind);
    const bool ready = provider->handle != nullptr;
    const std::string error = provider->error;
    return job_if(ready, error, why, [p = std::move(provider)](uint64_t) {
        void *ptr = nullptr;
        return umfMemoryProviderAlloc(p->handle, 2 * MIB, 0, &ptr) == UMF_RESULT_SUCCESS &&
               umfMemoryProviderFree(p->handle, ptr, 2 * MIB) == UMF_RESULT_SUCCESS;
    });
}

std::unique_ptr<Job> make_os_provider(std::string &why) {
    return make_provider_pair("os", why);
}

// A thousand pages taken, then given back in that order, none of them touched.
constexpr size_t PAGE = 4096, PAGES = 1000;

std::unique_ptr<Job> make_raw_pages(std::string &) {
    return make_fn_job([pages = std::vector<void *>(PAGES)](uint64_t) mutable {
        bool fine = true;
        for (void *&page : pages) {
            page = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            fine = fine && page != MAP_FAILED;
        }
        for (void *page : pages) {
            fine = munmap(page, PAGE) == 0 && fine;
        }
        return fine;
    });
}

std::unique_ptr<Job> make_os_pages(std::string &why) {
    auto provider = std::make_unique<Provider>("os");
    const bool ready = provider->handle != nullptr;
    const std::string error = provider->error;
    return job_if(
        ready, error, why,
        [p = std::move(provider), pages = std::vector<void *>(PAGES)](uint64_t) mutable {
            bool fine = true;
            for (void *&page : pages) {
                fine =
                    umfMemoryProviderAlloc(p->handle, PAGE, 0, &page) == UMF_RESULT_SUCCESS && fine;
            }
            for (void *page : pages) {
                fine = umfMemoryProviderFree(p->handle, page, PAGE) == UMF_RESULT_SUCCESS && fine;
            }
            return fine;
        });
}

std::unique_ptr<Job> make_file_provider(std::string &why) {
    return make_provider_pair("file", why);
}

std::unique_ptr<Job> make_file_shared_provider(std::string &why) {
    return make_provider_pair("file shared", why);
}

std::unique_ptr<Job> make_proxy_pair(const char *provider, size_t size, std::string &why) {
    auto pool = std::make_unique<Pool>("proxy", provider);
    const bool ready = pool->handle != nullptr;
    const std::string error = pool->error;
    return job_if(ready, error, why, [p = std::move(pool), size](uint64_t) {
        void *ptr = umfPoolMalloc(p->handle, size);
        return umfPoolFree(p->handle, ptr) == UMF_RESULT_SUCCESS && ptr;
    });
}

std::unique_ptr<Job> make_proxy_over_os(std::string &why) {
    return make_proxy_pair("os", 2 * MIB, why);
}

std::unique_ptr<Job> make_span_2m(std::string &why) {
    return make_proxy_pair("null", 2 * MIB, why);
}

std::unique_ptr<Job> make_span_80g(std::string &why) {
    return make_proxy_pair("reserve", 80 * GIB, why);
}

// --- creation
// -----------------------------------------------------------------------------------------

std::unique_ptr<Job> make_create(const char *kind, bool used, std::string &why) {
    const umf_memory_pool_ops_t *ops = pool_ops(kind);
    auto probe = std::make_unique<Pool>(kind, "os");
    const bool ready = probe->handle != nullptr;
    const std::string error = probe->error;
    probe.reset();
    auto provider = std::make_unique<Provider>("os");
    return job_if(ready, error, why, [p = std::move(provider), ops, used](uint64_t) {
        umf_memory_pool_handle_t pool = nullptr;
        bool good = umfPoolCreate(ops, p->handle, nullptr, 0, &pool) == UMF_RESULT_SUCCESS;
        if (good && used) {
            good = umfPoolFree(pool, umfPoolMalloc(pool, 64)) == UMF_RESULT_SUCCESS;
        }
        return umfPoolDestroy(pool) == UMF_RESULT_SUCCESS && good;
    });
}

std::unique_ptr<Job> make_create_proxy(std::string &why) {
    return make_create("proxy", false, why);
}

std::unique_ptr<Job> make_create_disjoint(std::string &why) {
    return make_create("disjoint", false, why);
}

std::unique_ptr<Job> make_create_jemalloc(std::string &why) {
    return make_create("jemalloc", false, why);
}

std::unique_ptr<Job> make_create_scalable(std::string &why) {
    return make_create("scalable", false, why);
}

std::unique_ptr<Job> make_create_use_disjoint(std::string &why) {
    return make_create("disjoint", true, why);
}

std::unique_ptr<Job> make_create_use_jemalloc(std::string &why) {
    return make_create("jemalloc", true, why);
}

std::unique_ptr<Job> make_create_mimalloc(std::string &why) {
    why = "library not found";
    return peer_create_job("mimalloc heap");
}

std::unique_ptr<Job> make_create_tbb(std::string &why) {
    why = "library not found";
    return peer_create_job("TBB pool");
}

// --- sharing
// ------------------------------------------------------------------------------------------

std::unique_ptr<Job> make_get_again(std::string &why) {
    auto live = std::make_unique<Live>("proxy", "os shared", 65536);
    const bool ready = live->ptr != nullptr;
    const std::string error = live->pool.error;
    return job_if(ready, error, why, [l = std::move(live)](uint64_t) {
        umf_ipc_handle_t handle = nullptr;
        size_t size;
        return umfGetIPCHandle(l->ptr, &handle, &size) == UMF_RESULT_SUCCESS &&
               umfPutIPCHandle(handle) == UMF_RESULT_SUCCESS;
    });
}

struct Opened {
    Live live{"proxy", "os shared", 65536};
    umf_ipc_handle_t handle = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    umf_result_t result = UMF_RESULT_ERROR_UNKNOWN;
    Opened() {
        size_t size;
        if (live.ptr) {
            result = umfGetIPCHandle(live.ptr, &handle, &size);
        }
        if (result == UMF_RESULT_SUCCESS) {
            result = umfPoolGetIPCHandler(live.pool.handle, &handler);
        }
    }
    ~Opened() {
        umfPutIPCHandle(handle);
    }
    Opened(const Opened &) = delete;
    Opened &operator=(const Opened &) = delete;
};

std::unique_ptr<Job> make_open_cached(std::string &why) {
    auto opened = std::make_unique<Opened>();
    const bool ready = opened->result == UMF_RESULT_SUCCESS;
    const std::string error = result_text(opened->result);
    return job_if(ready, error, why, [o = std::move(opened)](uint64_t) {
        void *ptr = nullptr;
        return umfOpenIPCHandle(o->handler, o->handle, &ptr) == UMF_RESULT_SUCCESS &&
               umfCloseIPCHandle(ptr) == UMF_RESULT_SUCCESS;
    });
}

// --- copies
// -------------------------------------------------------------------------------------------

// Two blocks of a pool over the OS, written. Each is an allocation of the provider in whole pages.
struct Blocks {
    Pool pool{"proxy", "os"};
    size_t size;
    char *to = nullptr, *from = nullptr;

    explicit Blocks(size_t bytes) : size(bytes) {
        to = pool.handle ? static_cast<char *>(umfPoolMalloc(pool.handle, room())) : nullptr;
        from = to ? static_cast<char *>(umfPoolMalloc(pool.handle, room())) : nullptr;
        if (from) {
            memset(to, 1, size);
            memset(from, 2, size);
        }
    }
    size_t room() const {
        return (size + 4095) / 4096 * 4096;
    }
    ~Blocks() {
        for (char *ptr : {to, from}) {
            if (ptr) {
                umfPoolFree(pool.handle, ptr);
            }
        }
    }
    Blocks(const Blocks &) = delete;
    Blocks &operator=(const Blocks &) = delete;
};

// The same for a row and its peer: which pages they are makes a difference.
template <size_t SIZE> std::shared_ptr<Blocks> blocks_of() {
    static std::weak_ptr<Blocks> known;
    std::shared_ptr<Blocks> blocks = known.lock();
    if (!blocks) {
        blocks = std::make_shared<Blocks>(SIZE);
        known = blocks;
    }
    return blocks;
}

// false, with the reason: another libumf with the same API does not have them.
bool has_copies(std::string &why) {
    const bool has = UMF_BENCH_OPTIONAL(umfCopy) && UMF_BENCH_OPTIONAL(umfFill);
    why = has ? why : "this libumf has no umfCopy";
    return has;
}

// Threads that a copy starts run where this one may.
struct Unpinned final : Job {
    std::shared_ptr<Blocks> blocks = blocks_of<256 * MIB>();
    decltype(&umfCopy) copy = UMF_BENCH_OPTIONAL(umfCopy);
    bool by_umf;
    explicit Unpinned(bool umf) : by_umf(umf) {}
    void prepare(int) override {
        cpu_set_t all;
        memset(&all, 0xFF, sizeof(all));
        sched_setaffinity(0, sizeof(all), &all);
    }
    void run(int) override {
        for (uint64_t i = 0; i < ops; ++i) {
            if (!by_umf) {
                memcpy(blocks->to, blocks->from, blocks->size);
                asm volatile("" : : "r"(blocks->to) : "memory");
            } else if (copy(blocks->to, blocks->from, blocks->size, nullptr)) {
                failed++;
            }
        }
    }
};

template <size_t SIZE, bool BY_UMF> std::unique_ptr<Job> make_copy(std::string &why) {
    if (BY_UMF && !has_copies(why)) {
        return nullptr;
    }
    const auto copy = UMF_BENCH_OPTIONAL(umfCopy);
    auto blocks = blocks_of<SIZE>();
    const bool ready = blocks->from != nullptr;
    const std::string error = blocks->pool.error;
    return job_if(ready, error, why, [copy, b = std::move(blocks)](uint64_t) {
        if (BY_UMF) {
            return copy(b->to, b->from, SIZE, nullptr) == UMF_RESULT_SUCCESS;
        }
        memcpy(b->to, b->from, SIZE);
        asm volatile("" : : "r"(b->to) : "memory");
        return true;
    });
}

template <size_t SIZE, bool BY_UMF> std::unique_ptr<Job> make_fill(std::string &why) {
    if (BY_UMF && !has_copies(why)) {
        return nullptr;
    }
    const auto fill = UMF_BENCH_OPTIONAL(umfFill);
    auto blocks = blocks_of<SIZE>();
    const bool ready = blocks->from != nullptr;
    const std::string error = blocks->pool.error;
    return job_if(ready, error, why, [fill, b = std::move(blocks)](uint64_t) {
        if (BY_UMF) {
            return fill(b->to, "f", 1, SIZE, nullptr) == UMF_RESULT_SUCCESS;
        }
        memset(b->to, 'f', SIZE);
        asm volatile("" : : "r"(b->to) : "memory");
        return true;
    });
}

template <bool BY_UMF> std::unique_ptr<Job> make_large_copy(std::string &why) {
    if (BY_UMF && !has_copies(why)) {
        return nullptr;
    }
    auto job = std::make_unique<Unpinned>(BY_UMF);
    why = "no memory";
    return job->blocks->from ? std::move(job) : nullptr;
}

// --- recording
// -----------------------------------------------------------------------------------------------

// Calls of a pool that are recorded or not, from so many frames. The recording is in memory and
// small, so that its pages are there after a part of a round.
struct Calls final : Job {
    Pool pool{"disjoint", "os"};
    decltype(&umfRecordStart) start = UMF_BENCH_OPTIONAL(umfRecordStart);
    decltype(&umfRecordStop) stop = UMF_BENCH_OPTIONAL(umfRecordStop);
    bool is_recorded;
    unsigned frames;
    void *block = nullptr;
    Calls(bool recorded, unsigned depth) : is_recorded(recorded), frames(depth) {}
    ~Calls() override {
        if (block) {
            umfFree(block);
        }
    }
    void prepare(int) override {
        umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
        params.size = 2 * MIB;
        params.stack_depth = frames;
        failed += is_recorded && start(&params) != UMF_RESULT_SUCCESS;
        call(200000);
    }
    void finish(int) override {
        failed += is_recorded && stop() != UMF_RESULT_SUCCESS;
    }
    void run(int) override {
        below(frames, ops);
    }
    __attribute__((noinline)) void below(unsigned depth, uint64_t count) {
        if (depth > 0) {
            below(depth - 1, count);
        } else {
            call(count);
        }
        asm volatile("" : : : "memory"); /* a frame of its own */
    }
    void call(uint64_t count) {
        for (uint64_t i = 0; i < count; i++) {
            if (block) {
                umfFree(block);
                block = nullptr;
            } else {
                block = umfPoolMalloc(pool.handle, 64);
                failed += block == nullptr;
            }
        }
    }
};

template <bool RECORDED, unsigned FRAMES> std::unique_ptr<Job> make_calls(std::string &why) {
    auto job = std::make_unique<Calls>(RECORDED, FRAMES);
    if (!job->pool.handle || !job->start || !job->stop) {
        why = job->pool.handle ? "this libumf has no umfRecordStart" : job->pool.error;
        return nullptr;
    }
    return job;
}

} // namespace

// The first row is the loop itself; it is subtracted from the others.
const Micro micros[] = {
    {"", "(the loop itself, subtracted below)", make_loop, 20000},
    {"lookup", "umfPoolByPtr, object in a slab", make_by_ptr_slab, 20000},
    {"lookup", "umfPoolByPtr, whole 2 MiB", make_by_ptr_whole, 20000},
    {"lookup", "usable size, disjoint", make_usable_size_disjoint, 20000},
    {"lookup", "usable size, jemalloc", make_usable_size_jemalloc, 20000},
    {"lookup", "properties handle", make_properties, 20000},
    {"framework", "pair through an empty pool", make_empty_pool_pair, 20000},
    {"framework", "its callbacks alone", make_empty_callbacks, 20000},
    {"provider", "mmap + munmap 2 MiB", make_raw_mmap, 1000},
    {"provider", "OS provider 2 MiB", make_os_provider, 1000},
    {"provider", "mmap + munmap of 1,000 pages", make_raw_pages, 0},
    {"provider", "OS provider, 1,000 pages", make_os_pages, 0},
    {"provider", "proxy over OS 2 MiB", make_proxy_over_os, 1000},
    {"provider", "file provider 2 MiB", make_file_provider, 1000},
    {"provider", "file provider 2 MiB, shared", make_file_shared_provider, 1000},
    {"span", "2 MiB, insert + remove", make_span_2m, 10000},
    {"span", "80 GiB, insert + remove", make_span_80g, 0},
    {"pool", "create proxy", make_create_proxy, 100},
    {"pool", "create disjoint", make_create_disjoint, 100},
    {"pool", "create jemalloc", make_create_jemalloc, 100},
    {"pool", "create scalable", make_create_scalable, 100},
    {"pool", "create, use once, disjoint", make_create_use_disjoint, 100},
    {"pool", "create, use once, jemalloc", make_create_use_jemalloc, 100},
    {"pool", "create mimalloc heap", make_create_mimalloc, 100},
    {"pool", "create TBB pool", make_create_tbb, 100},
    {"ipc", "get again + put", make_get_again, 10000},
    {"ipc", "open cached + close", make_open_cached, 10000},
    {"copy", "memcpy 64 B", make_copy<64, false>, 20000},
    {"copy", "umfCopy 64 B", make_copy<64, true>, 20000},
    {"copy", "memcpy 4 KiB", make_copy<4096, false>, 2000},
    {"copy", "umfCopy 4 KiB", make_copy<4096, true>, 2000},
    {"copy", "memcpy 1 MiB", make_copy<MIB, false>, 0},
    {"copy", "umfCopy 1 MiB", make_copy<MIB, true>, 0},
    {"copy", "memcpy 16 MiB", make_copy<16 * MIB, false>, 0},
    {"copy", "umfCopy 16 MiB", make_copy<16 * MIB, true>, 0},
    {"copy", "memset 1 MiB", make_fill<MIB, false>, 0},
    {"copy", "umfFill 1 MiB", make_fill<MIB, true>, 0},
    {"copy", "memcpy 256 MiB", make_large_copy<false>, 0},
    {"copy", "umfCopy 256 MiB", make_large_copy<true>, 0},
    {"record", "a call that is not recorded", make_calls<false, 0>, 20000},
    {"record", "a recorded call", make_calls<true, 0>, 20000},
    {"record", "a recorded call with a stack of 16 frames", make_calls<true, 16>, 20000},
};
const size_t micro_count = sizeof(micros) / sizeof(micros[0]);

// --- timed mode
// ---------------------------------------------------------------------------------------

namespace {

struct Entry {
    const Micro *micro;
    std::unique_ptr<Job> job;
    std::string why;
    Samples samples;
};

void run_group(const std::string &group) {
    std::vector<Entry> entries;
    for (size_t i = 0; i < micro_count; ++i) {
        if (i == 0 || group == micros[i].group) {
            Entry e = {&micros[i], nullptr, "", {}};
            e.job = micros[i].make(e.why);
            if (e.job) {
                calibrate(*e.job, 1);
            }
            entries.push_back(std::move(e));
        }
    }
    for (unsigned round = 0; round < options.rounds; ++round) {
        for (Entry &e : entries) {
            if (e.job) {
                e.samples.add(run_round(*e.job, 1));
            }
        }
    }
    for (size_t i = 1; i < entries.size(); ++i) {
        entries[i].samples.subtract(entries[0].samples);
    }
    print_title(group + ": ns per operation, best and median");
    for (Entry &e : entries) {
        const std::string key = group + "/" + e.micro->name;
        if (e.job && e.job->failed) {
            e.why = "the operation returned an error";
            e.job.reset();
        }
        if (e.job) {
            report.add(key, "ns", e.samples);
            print_row(e.micro->name, e.samples, "ns");
        } else {
            report.absent(key, e.why);
            print_absent(e.micro->name, e.why);
        }
    }
    report.print_new_targets();
}

} // namespace

void run_micro_cases() {
    for (size_t i = 1; i < micro_count; ++i) {
        const bool first = strcmp(micros[i].group, micros[i - 1].group) != 0;
        if (first && wanted(micros[i].group)) {
            run_group(micros[i].group);
        }
    }
}

} // namespace bench
