/*
 * Pools of libumf as the allocator of all of PyTorch. Each device has an arena for all its streams;
 * or, without arenas, each stream has a pool of its own, so that freed memory is used again in the
 * order of its stream. All pools of a device share a provider, and give free memory to each other
 * before a request fails. A graph gets pools of its own, which live as long as torch keeps the
 * graph: a replay finds its memory unchanged.
 */
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include <sys/types.h>

#include <umf.h>
#include <umf/capture.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/queue.h>
#include <umf/reclaim.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "cuda.h"
#include "torch_counts.hpp"
#include "torch_error.hpp"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using graph_t = std::pair<unsigned long long, unsigned long long>; /* c10::cuda::MempoolId_t */
using filter_t = std::function<bool(CUstream)>;
using key_t = std::tuple<int, graph_t, void *>; /* device, graph or {0, 0}, stream */

struct capture_t {
    int device;
    graph_t graph;
    filter_t has_stream;
};

struct device_t {
    umf_memory_provider_handle_t provider = nullptr;
    umf_pool_group_handle_t group = nullptr;
};

/* Not destroyed: torch frees until the very end. */
struct process_t {
    std::mutex mutex;
    std::string provider; /* text, without the device */
    umf_suspend_keep_t keep = UMF_SUSPEND_KEEP_PINNED;
    bool can_suspend = true;
    bool has_arenas = false;
    std::map<int, device_t> devices;
    std::map<key_t, umf_memory_pool_handle_t> pools;
    std::vector<std::pair<int, umf_memory_pool_handle_t>> retired; /* of graphs that are gone */
    std::map<std::pair<int, graph_t>, size_t> users;
    std::vector<capture_t> captures;
    std::unordered_set<void *> recorded; /* memory that other streams use, too */
};

process_t &process = *new process_t;
std::atomic<size_t> capture_count{0}, recorded_count{0};
std::atomic<bool> has_pending{false}; /* frees may wait for other streams */

constexpr size_t EXABYTE = size_t{1} << 60;
std::atomic<umf_memory_pool_handle_t> arenas[MAX_DEVICES]; /* never destroyed */

/* The pool of this thread's last allocation, outside of captures. Such pools are never destroyed.
 */
struct last_t {
    int device = -1;
    void *stream = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
};
thread_local last_t last;

/* --- devices and pools ------------------------------------------------------------------------ */

std::string provider_text(int device) {
    bool has_settings = process.provider.find(':') != std::string::npos;
    return process.provider + (has_settings ? "," : ":") + "device=" + std::to_string(device);
}

device_t &device_locked(int number) {
    device_t &device = process.devices[number];
    if (!device.provider) {
        std::string text = provider_text(number);
        umf_result_t result = umfMemoryProviderCreateFromText(text.c_str(), &device.provider);
        if (result != UMF_RESULT_SUCCESS) {
            device.provider = nullptr;
            std::string why = umfTextError();
            throw_error("umf: provider " + text +
                        " cannot be made: " + (why.empty() ? umfResultText(result) : why));
        }
        if (umfPoolGroupCreate(SIZE_MAX, &device.group) != UMF_RESULT_SUCCESS) {
            device.group = nullptr;
        }
    }
    return device;
}

umf_result_t coalescing_create(umf_memory_provider_handle_t provider, bool is_arena,
                               umf_memory_pool_handle_t *pool) {
    umf_coalescing_pool_params_handle_t params = nullptr;
    umf_result_t result = umfCoalescingPoolParamsCreate(&params);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfCoalescingPoolParamsSetArena(params, is_arena);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umfCoalescingPoolParamsSetGranule(params, TORCH_GRANULE);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umfPoolCreate(umfCoalescingPoolOps(), provider, params, UMF_POOL_CREATE_FLAG_NONE,
                               pool);
    }
    umfCoalescingPoolParamsDestroy(params);
    return result;
}

umf_memory_pool_handle_t pool_create_locked(int number, bool is_arena) {
    device_t &device = device_locked(number);
    umf_memory_pool_handle_t pool = nullptr;
    umf_result_t result = coalescing_create(device.provider, is_arena, &pool);
    if (result != UMF_RESULT_SUCCESS) {
        throw_error(std::string("umf: a pool cannot be made: ") + umfResultText(result));
    }
    if (device.group) {
        umfPoolGroupAdd(device.group, pool);
    }
    if (process.can_suspend) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = process.keep;
        process.can_suspend = umfPoolSetSuspendPolicy(pool, &policy) == UMF_RESULT_SUCCESS;
    }
    return pool;
}

graph_t graph_of_locked(int device, void *stream) {
    for (const capture_t &capture : process.captures) {
        if (capture.device == device && capture.has_stream(static_cast<CUstream>(stream))) {
            return capture.graph;
        }
    }
    return {0, 0};
}

umf_memory_pool_handle_t pool_of(int device, void *stream) {
    if (last.pool && last.device == device && last.stream == stream && capture_count == 0) {
        return last.pool;
    }
    if (capture_count == 0 && device >= 0 && device < MAX_DEVICES && arenas[device]) {
        return arenas[device]; /* of all streams */
    }
    std::lock_guard<std::mutex> lock(process.mutex);
    graph_t graph = graph_of_locked(device, stream);
    bool is_arena = process.has_arenas && graph == graph_t{0, 0} && device < MAX_DEVICES;
    umf_memory_pool_handle_t &pool = process.pools[{device, graph, is_arena ? nullptr : stream}];
    if (!pool) {
        pool = pool_create_locked(device, is_arena);
        if (is_arena) {
            arenas[device] = pool;
        }
    }
    if (graph == graph_t{0, 0}) {
        last = {device, stream, pool};
    }
    return pool;
}

bool is_arena_of(umf_memory_pool_handle_t pool, int device) {
    return pool && device >= 0 && device < MAX_DEVICES && arenas[device] == pool;
}

/* Whether the arena of the device has the memory. */
bool is_in_arena(const void *ptr, int device) {
    umf_memory_pool_handle_t pool = nullptr;
    return device >= 0 && device < MAX_DEVICES && arenas[device] &&
           umfPoolByPtr(ptr, &pool) == UMF_RESULT_SUCCESS && pool == arenas[device];
}

bool is_in_any_arena(const void *ptr) {
    umf_memory_pool_handle_t pool = nullptr;
    bool is_found = false;
    if (process.has_arenas && umfPoolByPtr(ptr, &pool) == UMF_RESULT_SUCCESS) {
        for (const auto &arena : arenas) {
            is_found = is_found || (pool && arena == pool);
        }
    }
    return is_found;
}

/* Memory of an arena is of all streams, in their order. */
void *malloc_on(umf_memory_pool_handle_t pool, size_t size, int device, void *stream) {
    return is_arena_of(pool, device) ? umfPoolMallocOn(pool, size, 0, stream)
                                     : umfPoolMalloc(pool, size);
}

/* Destroys pools of graphs that are gone as soon as no tensor is in them. */
void sweep_locked() {
    for (size_t at = process.retired.size(); at-- > 0;) {
        size_t left = 1;
        umf_memory_pool_handle_t pool = process.retired[at].second;
        if (umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &left, sizeof(left), pool) ==
                UMF_RESULT_SUCCESS &&
            left == 0) {
            umfPoolDestroy(pool);
            process.retired.erase(process.retired.begin() + static_cast<std::ptrdiff_t>(at));
        }
    }
}

/* Frees that wait for other streams: those that are done, or all, except in captures. Completed
 * ones stay in the cache of a stream, which allocations without a queue do not use. */
void settle_locked(uint64_t timeout) {
    size_t left = 0;
    for (const auto &[key, pool] : process.pools) {
        size_t bytes = 0;
        umfPoolWaitPending(pool, timeout, &bytes);
        if (capture_count == 0 && !is_arena_of(pool, std::get<0>(key))) {
            umfPoolTrimOn(pool, SIZE_MAX, std::get<2>(key));
        }
        left += bytes;
    }
    for (const auto &[device, pool] : process.retired) {
        umfPoolWaitPending(pool, timeout, nullptr);
        umfPoolTrimMemory(pool, 0);
    }
    has_pending = left > 0;
    sweep_locked();
}

/* Looks now and then: it is on the way of an allocation. */
void poll() {
    static thread_local unsigned calls;
    if (has_pending && ++calls % 16 == 0) {
        std::unique_lock<std::mutex> lock(process.mutex, std::try_to_lock);
        if (lock) {
            settle_locked(0);
        }
    }
}

void give_back_all() {
    std::unique_lock<std::mutex> lock(process.mutex);
    settle_locked(UINT64_MAX);
    lock.unlock();
    umfReclaim(nullptr, SIZE_MAX, nullptr);
}

/* Whether other streams use it; forgets that. */
bool take_recorded(void *ptr) {
    if (recorded_count == 0) {
        return false;
    }
    std::lock_guard<std::mutex> lock(process.mutex);
    bool is_recorded = process.recorded.erase(ptr) > 0;
    recorded_count = process.recorded.size();
    return is_recorded;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* As torch writes sizes. */
std::string text_of(size_t size) {
    const char *units[] = {"bytes", "KiB", "MiB", "GiB"};
    size_t unit = 0;
    while (unit < 3 && size > size_t{1} << (10 * (unit + 1))) {
        unit++;
    }
    char text[40];
    snprintf(text, sizeof(text), unit ? "%.2f %s" : "%.0f %s",
             static_cast<double>(size) / static_cast<double>(size_t{1} << (10 * unit)),
             units[unit]);
    return text;
}

/* Begins as torch's own message: programs search it. */
[[noreturn]] void fail(umf_memory_pool_handle_t pool, size_t size, int device) {
    size_t available = 0, total = 0;
    umf_result_t result = umfPoolGetLastAllocationError(pool);
    count_out_of_memory(device);
    if (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
        throw_out_of_memory("umf: memory of GPU " + std::to_string(device) +
                            " is suspended: resume it before anything is allocated");
    }
    if (size > EXABYTE) {
        throw_out_of_memory("CUDA out of memory. Tried to allocate more than 1EB memory.");
    }
    if (cuda_enter(device) == CUDA_SUCCESS) {
        cuda()->memory(&available, &total);
        cuda_leave();
    }
    throw_out_of_memory("CUDA out of memory. Tried to allocate " + text_of(size) + ". GPU " +
                        std::to_string(device) + " has a total capacity of " + text_of(total) +
                        " of which " + text_of(available) + " is free. (" + std::to_string(size) +
                        " bytes from libumf: " + umfResultText(result) + ")");
}

/* Other pools on the provider have released memory already. */
void *malloc_again(umf_memory_pool_handle_t pool, size_t size, int device, void *stream) {
    count_retry(device);
    give_back_all();
    void *ptr = malloc_on(pool, size, device, stream);
    return ptr ? ptr : (fail(pool, size, device), nullptr);
}

} // namespace

EXPORTED void *umf_torch_process_malloc(ssize_t size, int device, void *stream) {
    if (size <= 0) {
        return nullptr;
    }
    poll();
    umf_memory_pool_handle_t pool = pool_of(device, stream);
    void *ptr = malloc_on(pool, static_cast<size_t>(size), device, stream);
    ptr = ptr ? ptr : malloc_again(pool, static_cast<size_t>(size), device, stream);
    count_alloc(device, static_cast<size_t>(size));
    return ptr;
}

EXPORTED void umf_torch_process_free(void *ptr, ssize_t size, int device, void *stream) {
    if (!ptr) {
        return;
    }
    count_free(device, static_cast<size_t>(size));
    if (is_in_arena(ptr, device)) {
        if (take_recorded(ptr) || umfFreeOn(ptr, stream) != UMF_RESULT_SUCCESS) {
            cuda_drain(device);
            umfFree(ptr);
        }
        return;
    }
    if (!take_recorded(ptr)) {
        umfFree(ptr);
        return;
    }
    umf_memory_pool_handle_t pool = nullptr;
    std::lock_guard<std::mutex> lock(process.mutex); /* keeps the pool alive */
    umfPoolByPtr(ptr, &pool);
    has_pending = true;
    if (umfFreeOn(ptr, stream) != UMF_RESULT_SUCCESS) {
        cuda_drain(device);
        umfFree(ptr);
    } else {
        umfPoolTrimOn(pool, SIZE_MAX, stream); /* to the pool, whose stream needs no queue */
    }
}

/* --- functions that torch sets by set_*_fn
 * -------------------------------------------------------------- */

EXPORTED void umf_torch_process_record_stream(void *ptr, void *stream) {
    /* An arena adds the stream to those behind which the memory is used again. */
    if (ptr && (umfUseOn(ptr, stream) != UMF_RESULT_SUCCESS || !is_in_any_arena(ptr))) {
        /* where it failed, the free waits for the device */
        std::lock_guard<std::mutex> lock(process.mutex);
        process.recorded.insert(ptr);
        recorded_count = process.recorded.size();
    }
}

/* torch.cuda.empty_cache() */
EXPORTED void umf_torch_process_reset(void) {
    give_back_all();
}

/* torch.cuda.set_per_process_memory_fraction() */
EXPORTED void umf_torch_process_set_fraction(double fraction, int number) {
    size_t available = 0, total = 0;
    if (cuda_enter(number) != CUDA_SUCCESS) {
        return;
    }
    cuda()->memory(&available, &total);
    cuda_leave();
    std::lock_guard<std::mutex> lock(process.mutex);
    device_t &device = device_locked(number);
    if (device.group) {
        umfPoolGroupSetLimit(device.group,
                             static_cast<size_t>(fraction * static_cast<double>(total)));
    }
}

/* Before a stream is captured. The provider is made now: a capture would not survive that. */
EXPORTED void umf_torch_process_begin(int device, graph_t graph, filter_t has_stream) {
    {
        std::lock_guard<std::mutex> lock(process.mutex);
        device_locked(device);
    }
    umfCaptureBegins(nullptr);
    std::lock_guard<std::mutex> lock(process.mutex);
    process.users[{device, graph}]++;
    process.captures.push_back({device, graph, std::move(has_stream)});
    capture_count = process.captures.size();
}

EXPORTED void umf_torch_process_end(int device, graph_t graph) {
    {
        std::lock_guard<std::mutex> lock(process.mutex);
        std::vector<capture_t> &all = process.captures;
        for (size_t at = all.size(); at-- > 0;) {
            if (all[at].device == device && all[at].graph == graph) {
                all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
                break;
            }
        }
        capture_count = all.size();
    }
    umfCaptureEnds(nullptr);
}

/* A graph is gone. Its pools go with the last of them that uses the id, and with their tensors. */
EXPORTED void umf_torch_process_release(int device, graph_t graph) {
    std::lock_guard<std::mutex> lock(process.mutex);
    auto used = process.users.find({device, graph});
    if (used == process.users.end() || --used->second > 0) {
        return;
    }
    process.users.erase(used);
    for (auto at = process.pools.begin(); at != process.pools.end();) {
        bool is_of_graph = std::get<0>(at->first) == device && std::get<1>(at->first) == graph;
        if (is_of_graph) {
            process.retired.emplace_back(device, at->second);
        }
        at = is_of_graph ? process.pools.erase(at) : std::next(at);
    }
    sweep_locked();
}

/* --- for umf.torch ---------------------------------------------------------------------------- */

/* Before the first allocation. `keep` below 0: the pools are not suspended. */
EXPORTED void umf_torch_process_configure(const char *provider, int keep, bool has_arenas) {
    std::lock_guard<std::mutex> lock(process.mutex);
    process.provider = provider;
    process.has_arenas = has_arenas;
    process.can_suspend = keep >= 0;
    process.keep = static_cast<umf_suspend_keep_t>(keep < 0 ? 0 : keep);
}

/* A pool, for Python. */
struct umf_torch_pool_t {
    void *handle;
    int device, is_arena;
    graph_t graph; /* {0, 0}: of none */
    void *stream;  /* of the key, so NULL of an arena */
};

/* Writes up to `room` pools of a device, or of all for -1, and returns how many there are.
 * `settles`: those that waited for other streams and need not are gone. */
EXPORTED size_t umf_torch_process_pools(int device, bool settles, umf_torch_pool_t *pools,
                                        size_t room) {
    std::lock_guard<std::mutex> lock(process.mutex);
    if (settles) {
        settle_locked(0);
    }
    size_t count = 0;
    auto add = [&](const umf_torch_pool_t &pool) {
        if (device >= 0 && pool.device != device) {
            return;
        }
        if (count < room) {
            pools[count] = pool;
        }
        count++;
    };
    for (const auto &[key, pool] : process.pools) {
        const auto &[of, graph, stream] = key;
        add({pool, of, is_arena_of(pool, of), graph, stream});
    }
    for (const auto &[of, pool] : process.retired) {
        add({pool, of, 0, {0, 0}, nullptr});
    }
    return count;
}

/* Of all memory of a device; NULL before its first allocation. */
EXPORTED void *umf_torch_process_provider(int device) {
    std::lock_guard<std::mutex> lock(process.mutex);
    auto found = process.devices.find(device);
    return found == process.devices.end() ? nullptr : found->second.provider;
}
