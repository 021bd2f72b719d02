// One allocation and its free, again and again: pools against the driver's own.
#include "gpu.h"

#include <umf.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_cuda.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/queue.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <thread>

namespace gpu {
namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

struct MemAlloc : Subject {
    bool pair(size_t size, CUstream) override {
        CUdeviceptr ptr;
        return driver.cuMemAlloc(&ptr, size) == CUDA_SUCCESS &&
               driver.cuMemFree(ptr) == CUDA_SUCCESS;
    }
};

struct MemAllocAsync : Subject {
    CUmemoryPool pool = nullptr;
    MemAllocAsync() {
        cuuint64_t all = UINT64_MAX;
        GPU_CALL(cuDeviceGetDefaultMemPool(&pool, 0));
        GPU_CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    }
    ~MemAllocAsync() override {
        GPU_CALL(cuCtxSynchronize());
        GPU_CALL(cuMemPoolTrimTo(pool, 0));
    }
    bool pair(size_t size, CUstream stream) override {
        CUdeviceptr ptr;
        return driver.cuMemAllocAsync(&ptr, size, stream) == CUDA_SUCCESS &&
               driver.cuMemFreeAsync(ptr, stream) == CUDA_SUCCESS;
    }
};

umf_memory_provider_handle_t make_cuda() {
    umf_cuda_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umfCUDAMemoryProviderParamsCreate(&params);
    umfCUDAMemoryProviderParamsSetContext(params, context());
    umfCUDAMemoryProviderParamsSetDevice(params, 0);
    umfCUDAMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE);
    umfMemoryProviderCreate(umfCUDAMemoryProviderOps(), params, &provider);
    umfCUDAMemoryProviderParamsDestroy(params);
    return provider;
}

umf_memory_provider_handle_t make_cuda_vmm() {
    umf_cuda_vmm_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umfCUDAVmmMemoryProviderParamsCreate(0, &params);
    umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &provider);
    umfCUDAVmmMemoryProviderParamsDestroy(params);
    return provider;
}

struct Pool : Subject {
    umf_memory_pool_handle_t pool = nullptr;
    Pool(const umf_memory_pool_ops_t *ops, const void *params,
         umf_memory_provider_handle_t provider) {
        if (provider) {
            umfPoolCreate(ops, provider, params, UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool);
        }
    }
    ~Pool() override {
        if (pool) {
            umfPoolDestroy(pool);
        }
    }
    bool pair(size_t size, CUstream) override {
        void *ptr = pool ? umfPoolMalloc(pool, size) : nullptr;
        return ptr && umfFree(ptr) == UMF_RESULT_SUCCESS;
    }
};

// With slabs of the driver's granularity, and all sizes pooled.
std::unique_ptr<Pool> make_disjoint(umf_memory_provider_handle_t provider) {
    umf_disjoint_pool_params_handle_t params = nullptr;
    umfDisjointPoolParamsCreate(&params);
    umfDisjointPoolParamsSetSlabMinSize(params, 2 * MiB);
    umfDisjointPoolParamsSetMaxPoolableSize(params, GiB);
    umfDisjointPoolParamsSetCapacity(params, 16);
    auto pool = std::make_unique<Pool>(umfDisjointPoolOps(), params, provider);
    umfDisjointPoolParamsDestroy(params);
    return pool;
}

std::unique_ptr<Pool> make_coalescing(umf_memory_provider_handle_t provider) {
    return std::make_unique<Pool>(umfCoalescingPoolOps(), nullptr, provider);
}

std::unique_ptr<Pool> make_arena(umf_memory_provider_handle_t provider) {
    umf_coalescing_pool_params_handle_t params = nullptr;
    umfCoalescingPoolParamsCreate(&params);
    umfCoalescingPoolParamsSetArena(params, true);
    auto pool = std::make_unique<Pool>(umfCoalescingPoolOps(), params, provider);
    umfCoalescingPoolParamsDestroy(params);
    return pool;
}

struct Kind {
    const char *name;
    bool is_pool;                                   // one that a user would choose
    std::function<std::unique_ptr<Subject>()> make; // gives nothing if the driver cannot
};

const Kind kinds[] = {
    {"coalescing over cuda_vmm", true, [] { return make_coalescing(make_cuda_vmm()); }},
    {"arena over cuda_vmm", true, [] { return make_arena(make_cuda_vmm()); }},
    {"coalescing over cuda", true, [] { return make_coalescing(make_cuda()); }},
    {"disjoint over cuda_vmm", true, [] { return make_disjoint(make_cuda_vmm()); }},
    {"disjoint over cuda", true, [] { return make_disjoint(make_cuda()); }},
    {"proxy over cuda", false,
     [] { return std::make_unique<Pool>(umfProxyPoolOps(), nullptr, make_cuda()); }},
    {"cuMemAlloc", false, [] { return std::make_unique<MemAlloc>(); }},
    {"cuMemAllocAsync", false, make_async},
};

using Key = std::pair<size_t, unsigned>; // size, threads

struct Named {
    std::string name;
    double ns = 0;
    void keep_less(const std::string &other, double other_ns) {
        if (other_ns > 0 && (ns == 0 || other_ns < ns)) {
            name = other;
            ns = other_ns;
        }
    }
};

// The best of our pools against the best of those that keep memory.
void print_targets(const Key &key, std::map<std::string, double> &times, double torch) {
    Named pool, peer;
    for (const Kind &kind : kinds) {
        if (kind.is_pool) {
            pool.keep_less(kind.name, times[kind.name]);
        }
    }
    peer.keep_less("cuMemAllocAsync", times["cuMemAllocAsync"]);
    peer.keep_less("PyTorch", torch);
    if (pool.ns > 0 && peer.ns > 0) {
        const std::string threads =
            std::to_string(key.second) + (key.second > 1 ? " threads" : " thread");
        print_target(text(key.first) + ", " + threads + ": " + pool.name + " / " + peer.name,
                     pool.ns / peer.ns, key.first <= 64 * KiB ? 0.08 : 0.15);
    }
}

std::string measure_text(const Kind &kind, const Key &key, double &ns) {
    // Each thread has one, and a cache may keep more.
    if (key.first * key.second > free_bytes() / 3) {
        return "no room";
    }
    std::unique_ptr<Subject> subject = kind.make();
    if (!subject) {
        return "not here";
    }
    ns = time_pairs(*subject, key.first, key.second);
    char number[32];
    snprintf(number, sizeof(number), "%.1f", ns);
    return ns > 0 ? number : "failed";
}

} // namespace

std::unique_ptr<Subject> make_async() {
    const bool has_it = driver.cuMemAllocAsync && driver.cuMemFreeAsync &&
                        driver.cuDeviceGetDefaultMemPool && driver.cuMemPoolSetAttribute &&
                        driver.cuMemPoolTrimTo;
    return has_it ? std::make_unique<MemAllocAsync>() : nullptr;
}

double time_pairs(Subject &subject, size_t size, unsigned threads) {
    const double round = options.quick ? 0.002 : 0.01;
    std::atomic<unsigned> ready{0}, failed{0};
    std::vector<double> best(threads, 1e18);
    auto work = [&](unsigned index) {
        CUstream stream;
        GPU_CALL(cuCtxSetCurrent(context()));
        GPU_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        failed += !subject.pair(size, stream); // the first makes objects, and is not measured
        for (unsigned count = 1, rounds = 0; rounds < 3 && !failed;) {
            const Stopwatch watch;
            for (unsigned i = 0; i < count; i++) {
                failed += !subject.pair(size, stream);
            }
            const double seconds = watch.seconds();
            if (seconds < round) {
                count *= 2;
                continue;
            }
            if (rounds++ == 0) { // all threads are at work from here on
                ready++;
                while (ready < threads && !failed) {
                    std::this_thread::yield();
                }
                continue;
            }
            best[index] = std::min(best[index], seconds / count * 1e9);
        }
        ready = threads;
        GPU_CALL(cuStreamSynchronize(stream));
        umfQueueEnds(stream); // a measured pool may have a stream cache of it
        GPU_CALL(cuStreamDestroy(stream));
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; i++) {
        others.emplace_back(work, i);
    }
    work(0);
    for (std::thread &other : others) {
        other.join();
    }
    double sum = 0;
    for (double one : best) {
        sum += one;
    }
    return failed ? 0 : sum / threads;
}

// Lines of "<size> <threads> <ns>", from torch_peer.py.
std::map<std::pair<size_t, unsigned>, double> read_torch() {
    std::map<std::pair<size_t, unsigned>, double> times;
    std::ifstream file(options.torch);
    size_t size;
    unsigned threads;
    double ns;
    while (file >> size >> threads >> ns) {
        times[{size, threads}] = ns;
    }
    if (!options.torch.empty() && times.empty()) {
        fprintf(stderr, "umf-bench-gpu: %s has no figures\n", options.torch.c_str());
    }
    return times;
}

void run_pairs() {
    std::vector<size_t> sizes = {512, 4 * KiB, 64 * KiB, MiB, 16 * MiB, 128 * MiB, GiB};
    if (options.quick) {
        sizes = {512, 64 * KiB, 16 * MiB};
    }
    std::map<Key, double> torch = read_torch();
    printf("\nAllocate and free, ns per pair and thread\n%-8s %-8s", "size", "threads");
    for (const Kind &kind : kinds) {
        printf(" %24s", kind.name);
    }
    printf(" %12s\n", "PyTorch");
    std::map<Key, std::map<std::string, double>> all;
    for (size_t size : sizes) {
        for (unsigned threads : {1u, 16u}) {
            const Key key = {size, threads};
            printf("%-8s %-8u", text(size).c_str(), threads);
            for (const Kind &kind : kinds) {
                printf(" %24s", measure_text(kind, key, all[key][kind.name]).c_str());
            }
            torch[key] > 0 ? printf(" %12.1f\n", torch[key]) : printf(" %12s\n", "-");
        }
    }
    for (auto &[key, times] : all) {
        print_targets(key, times, torch[key]);
    }
}

} // namespace gpu
