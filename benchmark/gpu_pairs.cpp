// One allocation and its free, again and again: pools against the driver's own.
#include "gpu.h"

#include <umf.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_cuda.h>
#include <umf/providers/provider_cuda_vmm.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <thread>

namespace gpu {
namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

struct Subject {
    virtual ~Subject() = default;
    virtual bool pair(size_t size, CUstream stream) = 0;
};

struct MemAlloc : Subject {
    bool pair(size_t size, CUstream) override {
        CUdeviceptr ptr;
        return driver.cuMemAlloc(&ptr, size) == CUDA_SUCCESS &&
               driver.cuMemFree(ptr) == CUDA_SUCCESS;
    }
};

// The stream ordered allocator, told to keep what it has.
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
    Pool(umf_memory_provider_handle_t provider, bool is_disjoint) {
        umf_disjoint_pool_params_handle_t params = nullptr;
        umfDisjointPoolParamsCreate(&params);
        umfDisjointPoolParamsSetSlabMinSize(params, 2 * MiB);
        umfDisjointPoolParamsSetMaxPoolableSize(params, GiB);
        umfDisjointPoolParamsSetCapacity(params, 16);
        if (provider) {
            umfPoolCreate(is_disjoint ? umfDisjointPoolOps() : umfProxyPoolOps(), provider,
                          is_disjoint ? params : nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool);
        }
        umfDisjointPoolParamsDestroy(params);
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

struct Kind {
    const char *name;
    std::function<std::unique_ptr<Subject>()> make; // gives nothing if the driver cannot
};

const Kind kinds[] = {
    {"disjoint over cuda", [] { return std::make_unique<Pool>(make_cuda(), true); }},
    {"disjoint over cuda_vmm", [] { return std::make_unique<Pool>(make_cuda_vmm(), true); }},
    {"proxy over cuda", [] { return std::make_unique<Pool>(make_cuda(), false); }},
    {"cuMemAlloc", [] { return std::make_unique<MemAlloc>(); }},
    {"cuMemAllocAsync",
     []() -> std::unique_ptr<Subject> {
         const bool has_it = driver.cuMemAllocAsync && driver.cuMemFreeAsync &&
                             driver.cuDeviceGetDefaultMemPool && driver.cuMemPoolSetAttribute &&
                             driver.cuMemPoolTrimTo;
         return has_it ? std::make_unique<MemAllocAsync>() : nullptr;
     }},
};

// Nanoseconds per pair and thread, 0 if one failed: the best of the rounds.
double measure(Subject &subject, size_t size, unsigned threads) {
    const double round = options.quick ? 0.002 : 0.01;
    std::atomic<unsigned> ready{0}, failed{0};
    std::vector<double> best(threads, 1e18);
    auto work = [&](unsigned index) {
        CUstream stream;
        GPU_CALL(cuCtxSetCurrent(context()));
        GPU_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        failed += !subject.pair(size, stream); // not measured: what is made by the first
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

void print_targets(size_t size, unsigned threads, std::map<std::string, double> &times) {
    const double peer = times["cuMemAllocAsync"];
    for (const char *name : {"disjoint over cuda", "disjoint over cuda_vmm"}) {
        if (peer > 0 && times[name] > 0) {
            print_target("pair " + text(size) + ", " + std::to_string(threads) + " threads, " +
                             name + " / cuMemAllocAsync",
                         times[name] / peer, size <= 64 * KiB ? 0.08 : 0.15);
        }
    }
}

} // namespace

void run_pairs() {
    std::vector<size_t> sizes = {512, 4 * KiB, 64 * KiB, MiB, 16 * MiB, 128 * MiB, GiB};
    if (options.quick) {
        sizes = {512, 64 * KiB, 16 * MiB};
    }
    printf("\nAllocate and free, ns per pair and thread\n%-8s %-8s", "size", "threads");
    for (const Kind &kind : kinds) {
        printf(" %24s", kind.name);
    }
    printf("\n");
    std::map<std::pair<size_t, unsigned>, std::map<std::string, double>> all;
    for (size_t size : sizes) {
        for (unsigned threads : {1u, 16u}) {
            printf("%-8s %-8u", text(size).c_str(), threads);
            // Each thread has one, and a cache may keep more.
            const bool fits = size * threads <= free_bytes() / 3;
            for (const Kind &kind : kinds) {
                std::unique_ptr<Subject> subject = fits ? kind.make() : nullptr;
                const double ns = subject ? measure(*subject, size, threads) : 0;
                all[{size, threads}][kind.name] = ns;
                if (ns > 0) {
                    printf(" %24.1f", ns);
                } else {
                    printf(" %24s", !fits ? "no room" : subject ? "failed" : "not here");
                }
            }
            printf("\n");
        }
    }
    for (auto &[key, times] : all) {
        print_targets(key.first, key.second, times);
    }
}

} // namespace gpu
