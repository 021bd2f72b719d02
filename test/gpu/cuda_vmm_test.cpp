// The cuda_vmm provider and the sleep of its pools: lessons from other allocators, rule by rule.

#include <algorithm>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "fakes/calls.h"
#include "fakes/content.h"
#include "fakes/log_file.h"
#include "fakes/scale.h"
#include "gpu.h"

#include <umf.h>
#include <umf/ipc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/queue.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr size_t MiB = size_t{1} << 20;

class CudaVmm : public Gpu {
  protected:
    umf_cuda_vmm_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        Gpu::SetUp();
        ASSERT_EQ(umfCUDAVmmMemoryProviderParamsCreate(0, &params), OK);
        ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetContext(params, context), OK);
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        umfCUDAVmmMemoryProviderParamsDestroy(params);
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
            EXPECT_EQ(driver().control()->dead_uses, 0);
        }
        Gpu::TearDown();
    }

    umf_result_t create() {
        return umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &provider);
    }
    void create_pool() {
        ASSERT_EQ(create(), OK);
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
    }
    // A block of a new pool, all of it `value`.
    // Suspends keep the content on device 1 from now on, where the first one has been already.
    void keep_on_peer() {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = UMF_SUSPEND_KEEP_PEER;
        policy.device = 1;
        ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr),
                  OK); // makes objects that the library keeps
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    }
    void *create_filled(unsigned char value, size_t size) {
        create_pool();
        void *ptr = umfPoolMalloc(pool, size);
        EXPECT_NE(ptr, nullptr);
        if (ptr) {
            fill(ptr, value, size);
        }
        return ptr;
    }
    // A block of a new pool in a new context, which is not the current one.
    void *create_in(CUcontext *doomed, size_t size) {
        EXPECT_EQ(driver().cuCtxCreate(doomed, 0, 0), CUDA_SUCCESS);
        EXPECT_EQ(umfCUDAVmmMemoryProviderParamsSetContext(params, *doomed), OK);
        create_pool();
        EXPECT_EQ(driver().cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
        void *ptr = umfPoolMalloc(pool, size);
        EXPECT_NE(ptr, nullptr);
        return ptr;
    }
    void destroy() {
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        provider = nullptr;
    }

    static size_t held() {
        size_t free = 0, total = 0;
        EXPECT_EQ(driver().cuMemGetInfo(&free, &total), CUDA_SUCCESS);
        return total - free;
    }
    // The real driver may have taken a little for itself since.
    static testing::AssertionResult holds(size_t expected) {
        size_t now = held(), slack = driver().is_real ? 4 * MiB : 0;
        bool is_right = now <= expected + slack && now + slack >= expected;
        return (is_right ? testing::AssertionSuccess() : testing::AssertionFailure())
               << now << " bytes are held, " << expected << " were expected";
    }
    static umf_residency_t residency(umf_memory_pool_handle_t of) {
        umf_residency_t now = UMF_RESIDENCY_INIT;
        EXPECT_EQ(umfPoolGetResidency(of, &now), OK);
        return now;
    }
    static void fill(void *ptr, unsigned char value, size_t size) {
        CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(ptr), value, size));
        CU(cuCtxSynchronize());
    }
    static bool is_all(const void *ptr, char value, size_t size) {
        std::vector<char> now(size);
        EXPECT_EQ(driver().cuMemcpyDtoH(now.data(), reinterpret_cast<CUdeviceptr>(ptr), size),
                  CUDA_SUCCESS);
        return are_all(now.data(), now.size(), value);
    }
    static std::string native(int32_t *code) {
        return native_error(umfCUDAVmmMemoryProviderOps(), code);
    }
};

long calls(int function) {
    return driver().control()->calls[function];
}

} // namespace

// --- bad input -----------------------------------------------------------------------------------

TEST_F(CudaVmm, AWrongDevice) {
    umf_cuda_vmm_memory_provider_params_handle_t wrong = nullptr;
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsCreate(4711, &wrong), OK);
    LogFile log(3);
    EXPECT_EQ(umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), wrong, &provider),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(provider, nullptr);
    EXPECT_EQ(log.count("there is no device 4711 among the"), 1u) << log.text();
    int32_t code = 0;
    EXPECT_EQ(native(&code), "CUDA_ERROR_INVALID_DEVICE - invalid device ordinal");
    umfCUDAVmmMemoryProviderParamsDestroy(wrong);
    EXPECT_EQ(current(), context);
}

TEST_F(CudaVmm, NotEnoughMemory) {
    ASSERT_EQ(create(), OK);
    size_t free = 0, total = 0, before = held();
    CU(cuMemGetInfo(&free, &total));
    void *ptr = &ptr;
    LogFile log(3);
    EXPECT_EQ(umfMemoryProviderAlloc(provider, total + 2 * MiB, 0, &ptr),
              UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(ptr, &ptr);
    EXPECT_EQ(log.count("making physical memory failed: CUDA_ERROR_OUT_OF_MEMORY - out of memory"),
              1u)
        << log.text();
    int32_t code = 0;
    EXPECT_EQ(native(&code), "CUDA_ERROR_OUT_OF_MEMORY - out of memory");
    EXPECT_EQ(code, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TRUE(holds(before));
}

TEST_F(CudaVmm, AChildOfForkIsTold) {
    ASSERT_EQ(create(), OK);
    LogFile log(3);
    pid_t child = fork();
    if (child == 0) {
        void *ptr = nullptr;
        _exit(umfMemoryProviderAlloc(provider, 2 * MiB, 0, &ptr) == OK ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_GE(log.count("CUDA cannot be used in a process forked after it was initialised"), 1u)
        << log.text();
}

// --- contexts that are destroyed and drivers that shut down --------------------------------------

// Memory that is mapped outlives its context, so it is given back when it is freed.
TEST_F(CudaVmm, AfterTheContextIsDestroyed) {
    CUcontext doomed = nullptr;
    CU(cuCtxCreate(&doomed, 0, 0)); // once before, so that the driver has what it keeps
    CU(cuCtxDestroy(doomed));
    size_t before = held();
    void *ptr = create_in(&doomed, 8 * MiB), *more = nullptr;
    ASSERT_NE(ptr, nullptr);
    CU(cuCtxDestroy(doomed));
    {
        LogFile log(1);
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 64 * MiB, 0, &more),
                  UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        int32_t code = 0;
        EXPECT_EQ(native(&code), "CUDA_ERROR_CONTEXT_IS_DESTROYED - context is destroyed");
        EXPECT_NE(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        pool = nullptr;
        destroy();
        EXPECT_EQ(log.count("ERROR"), 0u) << log.text();
    }
    EXPECT_TRUE(holds(before));
    EXPECT_EQ(current(), context);
}

TEST_F(CudaVmm, SuspendedWhenTheContextIsDestroyed) {
    CUcontext doomed = nullptr;
    CU(cuCtxCreate(&doomed, 0, 0)); // once before, so that the driver has what it keeps
    CU(cuCtxDestroy(doomed));
    size_t before = held();
    void *ptr = create_in(&doomed, 8 * MiB);
    ASSERT_NE(ptr, nullptr);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    CU(cuCtxDestroy(doomed));
    EXPECT_NE(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    destroy();
    EXPECT_TRUE(holds(before));
}

TEST_F(CudaVmm, AfterTheDriverHasShutDown) {
    NEEDS_FAKE();
    for (bool suspended : {false, true}) {
        create_pool();
        void *ptr = umfPoolMalloc(pool, 8 * MiB), *more = nullptr;
        ASSERT_NE(ptr, nullptr);
        if (suspended) {
            ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        }
        driver().control()->gone = 1;
        {
            LogFile log(1);
            EXPECT_EQ(umfMemoryProviderAlloc(provider, 64 * MiB, 0, &more),
                      UMF_RESULT_ERROR_OUT_OF_RESOURCES);
            EXPECT_EQ(umfPoolFree(pool, ptr), OK);
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            pool = nullptr;
            destroy();
            EXPECT_EQ(log.text(), "");
        }
        driver().control()->gone = 0;
    }
}

// --- states, and errors that are reported once ---------------------------------------------------

TEST_F(CudaVmm, AnErrorIsToldOnce) {
    NEEDS_FAKE();
    void *ptr = create_filled(7, 8 * MiB);
    for (int function : {FAKE_cuCtxSynchronize, FAKE_cuMemcpyAsync, FAKE_cuMemUnmap}) {
        fail(function, CUDA_ERROR_UNKNOWN);
        EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr),
                  UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_RESIDENT);
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        fail(FAKE_cuMemMap, CUDA_ERROR_UNKNOWN);
        EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr),
                  UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_SUSPENDED);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        EXPECT_TRUE(is_all(ptr, 7, 8 * MiB));
    }
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

TEST_F(CudaVmm, NothingIsReleasedTwice) {
    create_pool();
    size_t before = held();
    void *a = umfPoolMalloc(pool, 8 * MiB), *b = umfPoolMalloc(pool, 8 * MiB);
    ASSERT_TRUE(a && b);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(holds(before));
    EXPECT_EQ(umfPoolFree(pool, a), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, a, 8 * MiB), BAD);
    EXPECT_TRUE(holds(before));
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(holds(before + 8 * MiB));
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(holds(before + 8 * MiB));
    EXPECT_EQ(umfPoolFree(pool, b), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, b, 8 * MiB), BAD);
    EXPECT_TRUE(holds(before));
}

// --- a resume creates all physical memory before it maps any -------------------------------------

TEST_F(CudaVmm, AWakeWithoutMemoryChangesNothing) {
    NEEDS_FAKE();
    create_pool();
    umf_memory_provider_handle_t second = nullptr;
    umf_memory_pool_handle_t pools[2] = {pool, nullptr};
    ASSERT_EQ(umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &second), OK);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), second, nullptr, 0, &pools[1]), OK);
    void *a = umfPoolMalloc(pools[0], 8 * MiB), *b = umfPoolMalloc(pools[1], 16 * MiB),
         *c = umfPoolMalloc(pools[1], 4 * MiB);
    ASSERT_TRUE(a && b && c);
    fill(a, 1, 8 * MiB);
    fill(b, 2, 16 * MiB);
    fill(c, 3, 4 * MiB);
    ASSERT_EQ(umfPoolsSuspend(pools, 2, nullptr, nullptr), OK);
    size_t suspended = held();
    long objects = driver().control()->objects;
    driver().control()->device_memory[0] = suspended + 8 * MiB + 2 * MiB;
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    long maps = calls(FAKE_cuMemMap);
    {
        LogFile log(3);
        EXPECT_EQ(umfPoolsResume(pools, 2, nullptr, &report), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        EXPECT_EQ(log.count("20971520 bytes of memory are missing; the pools stay suspended"), 1u)
            << log.text();
    }
    EXPECT_EQ(report.missing, 20 * MiB);
    EXPECT_EQ(calls(FAKE_cuMemMap), maps);
    EXPECT_TRUE(holds(suspended));
    EXPECT_EQ(driver().control()->objects, objects);
    EXPECT_EQ(residency(pools[0]).state, UMF_SUSPEND_STATE_SUSPENDED);
    EXPECT_EQ(residency(pools[1]).state, UMF_SUSPEND_STATE_SUSPENDED);
    driver().control()->device_memory[0] = size_t{1} << 30;
    ASSERT_EQ(umfPoolsResume(pools, 2, nullptr, &report), OK);
    EXPECT_TRUE(is_all(a, 1, 8 * MiB) && is_all(b, 2, 16 * MiB) && is_all(c, 3, 4 * MiB));
    EXPECT_EQ(umfPoolFree(pools[0], a), OK);
    EXPECT_EQ(umfPoolFree(pools[1], b), OK);
    EXPECT_EQ(umfPoolFree(pools[1], c), OK);
    EXPECT_EQ(umfPoolDestroy(pools[1]), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(second), OK);
}

// --- a suspend waits for queued work -------------------------------------------------------------

TEST_F(CudaVmm, QueuedWorkIsWaitedFor) {
    create_pool();
    void *ptr = umfPoolMalloc(pool, 16 * MiB);
    ASSERT_NE(ptr, nullptr);
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    umf_suspend_params_t all = UMF_SUSPEND_PARAMS_INIT, queue = all, of_event = all;
    void *queues[] = {stream}, *events[] = {event};
    queue.queues = queues;
    queue.num_queues = 1;
    of_event.events = events;
    of_event.num_events = 1;
    unsigned char value = 0;
    for (const umf_suspend_params_t *wait : {&all, &queue, &of_event}) {
        for (bool in_background : {false, true}) {
            value++;
            for (int i = 0; i < 8; i++) { // only the last counts
                CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr),
                                   static_cast<unsigned char>(i < 7 ? 0xEE : value), 16 * MiB,
                                   stream));
            }
            CU(cuEventRecord(event, stream));
            if (in_background) {
                umf_suspend_job_handle_t job = nullptr;
                ASSERT_EQ(umfPoolsSuspendAsync(&pool, 1, wait, &job), OK);
                ASSERT_EQ(umfSuspendJobWait(job, nullptr), OK);
            } else {
                ASSERT_EQ(umfPoolsSuspend(&pool, 1, wait, nullptr), OK);
            }
            ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
            EXPECT_TRUE(is_all(ptr, static_cast<char>(value), 16 * MiB));
        }
    }
    if (!driver().is_real) {
        EXPECT_EQ(driver().control()->unordered_unmaps, 0);
    }
    EXPECT_EQ(driver().cuEventDestroy(event), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

// So it is for a resume; a failure leaves the pool suspended.
TEST_F(CudaVmm, AResumeWaitsForWhatItIsTold) {
    NEEDS_FAKE();
    void *ptr = create_filled(7, 8 * MiB);
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    umf_suspend_params_t of_queue = UMF_SUSPEND_PARAMS_INIT, of_event = of_queue;
    void *queues[] = {stream}, *events[] = {event};
    of_queue.queues = queues;
    of_queue.num_queues = 1;
    of_event.events = events;
    of_event.num_events = 1;
    for (const umf_suspend_params_t *wait : {&of_queue, &of_event}) {
        const int function = wait == &of_queue ? FAKE_cuStreamSynchronize : FAKE_cuEventSynchronize;
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        static bool is_done;
        is_done = false;
        std::promise<void> may_begin;
        CU(cuLaunchHostFunc(
            stream,
            [](void *gate) {
                static_cast<std::promise<void> *>(gate)->get_future().wait();
                is_done = true;
            },
            &may_begin));
        CU(cuEventRecord(event, stream));
        const long created = calls(FAKE_cuMemCreate);
        fail(function, CUDA_ERROR_UNKNOWN);
        EXPECT_EQ(umfPoolsResume(&pool, 1, wait, nullptr),
                  UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(driver().control()->fail_at, 0) << "it waited otherwise";
        driver().control()->fail_at = 0;
        EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_SUSPENDED);
        EXPECT_EQ(calls(FAKE_cuMemCreate), created) << "nothing is made before the end of the wait";
        EXPECT_FALSE(is_done);
        may_begin.set_value();
        ASSERT_EQ(umfPoolsResume(&pool, 1, wait, nullptr), OK);
        EXPECT_TRUE(is_done);
        EXPECT_TRUE(is_all(ptr, 7, 8 * MiB));
    }
    EXPECT_EQ(driver().cuEventDestroy(event), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

// Wherever it is queued that can be found: in the primary context beside the provider's own, and in
// that of a device that was given access.
TEST_F(CudaVmm, WorkInOtherContextsIsWaitedFor) {
    int count = 0;
    CU(cuDeviceGetCount(&count));
    const int peers[] = {1};
    if (count > 1) {
        ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetPeers(params, peers, 1), OK);
    }
    create_pool();
    for (int device = 0; device < count && device < 2; device++) {
        CUcontext other = nullptr;
        CUstream stream = nullptr;
        CU(cuDevicePrimaryCtxRetain(&other, device));
        CU(cuCtxPushCurrent(other));
        CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        void *slept = umfPoolMalloc(pool, 8 * MiB), *freed = umfPoolMalloc(pool, 8 * MiB);
        ASSERT_TRUE(slept && freed);
        CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(slept), 0x5C, 8 * MiB, stream));
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(freed), 0x5D, 8 * MiB, stream));
        EXPECT_EQ(umfPoolFree(pool, freed), OK);
        CU(cuStreamSynchronize(stream));
        CU(cuStreamDestroy(stream));
        CU(cuCtxPopCurrent(nullptr));
        EXPECT_TRUE(is_all(slept, 0x5C, 8 * MiB)) << device;
        EXPECT_EQ(umfPoolFree(pool, slept), OK);
        CU(cuDevicePrimaryCtxRelease(device));
    }
}

// No context is made for it.
TEST_F(CudaVmm, PrimaryContextsThatNobodyUsesAreNotMade) {
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2) {
        GTEST_SKIP() << "needs two GPUs";
    }
    const int peers[] = {1};
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetPeers(params, peers, 1), OK);
    unsigned flags = 0;
    int was_active = 0, is_active = 0;
    CU(cuDevicePrimaryCtxGetState(1, &flags, &was_active));
    create_pool();
    void *ptr = umfPoolMalloc(pool, 8 * MiB);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    CU(cuDevicePrimaryCtxGetState(1, &flags, &is_active));
    EXPECT_EQ(is_active, was_active);
}

// --- giving back ---------------------------------------------------------------------------------

// Memory goes behind a mark of all work; no thread waits for the device. A caller that has waited
// spares the mark.
TEST_F(CudaVmm, AFreeMarksUnlessTheCallerHasWaited) {
    NEEDS_FAKE();
    EXPECT_EQ(umfCUDAVmmMemoryProviderParamsSetFreePolicy(nullptr, UMF_CUDA_VMM_FREE_POLICY_WAIT),
              BAD);
    for (auto policy : {UMF_CUDA_VMM_FREE_POLICY_WAIT, UMF_CUDA_VMM_FREE_POLICY_IMMEDIATE}) {
        ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetFreePolicy(params, policy), OK);
        ASSERT_EQ(create(), OK);
        void *ptr = nullptr;
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr), OK);
        const long before = calls(FAKE_cuCtxSynchronize), marks = calls(FAKE_cuCtxRecordEvent);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
        EXPECT_EQ(calls(FAKE_cuCtxRecordEvent) - marks,
                  policy == UMF_CUDA_VMM_FREE_POLICY_WAIT ? 1 : 0);
        EXPECT_EQ(calls(FAKE_cuCtxSynchronize), before);
        EXPECT_EQ(driver().control()->used[0], 0u);
        destroy();
    }
    ASSERT_EQ(umfMemoryProviderCreateFromText("cuda_vmm:free_policy=immediate", &provider), OK)
        << umfTextError();
    destroy();
    EXPECT_EQ(umfMemoryProviderCreateFromText("cuda_vmm:free_policy=never", &provider), BAD);
}

// Until its work has passed memory stays mapped, and no thread waits for that.
TEST_F(CudaVmm, AFreeLeavesMappedWhatWorkUses) {
    ONE_THREAD_ONLY()
    NEEDS_FAKE();
    create_pool();
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr), OK);
    CU(cuLaunchHostFunc(
        stream, [](void *) {}, nullptr));
    for (int i = 0; i < 100000; i++) { // more pieces of work than a look for a moment lets pass
        CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr), 1, 1, stream));
    }
    const size_t used = driver().control()->used[0];
    const long before = calls(FAKE_cuCtxSynchronize) + calls(FAKE_cuEventSynchronize);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
    EXPECT_EQ(driver().control()->used[0], used);
    size_t bytes = 0;
    EXPECT_EQ(umfPoolWaitPending(pool, 0, &bytes), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(bytes, 8 * MiB);
    EXPECT_EQ(calls(FAKE_cuCtxSynchronize) + calls(FAKE_cuEventSynchronize), before);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, &bytes), OK);
    EXPECT_EQ(bytes, 0u);
    EXPECT_EQ(driver().control()->used[0], 0u);
    EXPECT_EQ(driver().control()->unordered_unmaps, 0);
    CU(cuStreamDestroy(stream));
}

// Memory that waits is waited for before there is none.
TEST_F(CudaVmm, MemoryThatWorkUsesIsWaitedForBeforeNone) {
    ONE_THREAD_ONLY()
    NEEDS_FAKE();
    ASSERT_EQ(create(), OK);
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    driver().control()->device_memory[0] = 16 * MiB;
    for (int i = 0; i < 8; i++) {
        void *ptr = nullptr;
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 12 * MiB, 0, &ptr), OK) << i;
        for (int n = 0; n < 20000; n++) {
            CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr), 1, 1, stream));
        }
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 12 * MiB), OK);
    }
    EXPECT_EQ(driver().control()->unordered_unmaps, 0);
    CU(cuStreamDestroy(stream));
}

// A driver that cannot mark a context is waited for, as one without the function.
TEST_F(CudaVmm, AFreeWaitsWhereNothingCanBeMarked) {
    NEEDS_FAKE();
    ASSERT_EQ(create(), OK);
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr), OK);
    CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr), 1, 8 * MiB, nullptr));
    const long before = calls(FAKE_cuCtxSynchronize);
    fail(FAKE_cuCtxRecordEvent, CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
    EXPECT_EQ(calls(FAKE_cuCtxSynchronize), before + 1);
    EXPECT_EQ(driver().control()->used[0], 0u);
    EXPECT_EQ(driver().control()->unordered_unmaps, 0);
}

// Memory opened from another process is unmapped after work that uses it, too.
TEST_F(CudaVmm, ACloseWaitsForQueuedWork) {
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetShare(params, UMF_CUDA_VMM_SHARE_FD), OK);
    ASSERT_EQ(create(), OK);
    alignas(16) char data[4096] = {};
    void *ptr = nullptr, *opened = nullptr;
    CUstream stream = nullptr;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr), OK);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 8 * MiB, data), OK);
    ASSERT_EQ(umfMemoryProviderOpenIPCHandle(provider, data, &opened), OK);
    CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(opened), 0x3D, 8 * MiB, stream));
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, opened, 8 * MiB), OK);
    EXPECT_TRUE(is_all(ptr, 0x3D, 8 * MiB));
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, data), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
    CU(cuStreamDestroy(stream));
}

// Nothing that is freed while its pool sleeps is mapped, so nothing is waited for.
TEST_F(CudaVmm, AFreeOfSleepingMemoryDoesNotWait) {
    NEEDS_FAKE();
    create_pool();
    void *ptr = umfPoolMalloc(pool, 8 * MiB);
    ASSERT_NE(ptr, nullptr);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    const long before = calls(FAKE_cuCtxSynchronize);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    pool = nullptr;
    destroy();
    EXPECT_EQ(calls(FAKE_cuCtxSynchronize), before);
}

// Memory that is to read as zero may not do so when the wait for that fails.
TEST_F(CudaVmm, AResumeWaitsForItsZeroes) {
    NEEDS_FAKE();
    void *ptr = create_filled(7, 8 * MiB);
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    policy.keep = UMF_SUSPEND_ZERO;
    ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    fail(FAKE_cuStreamSynchronize, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr),
              UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
    EXPECT_EQ(driver().control()->fail_at, 0) << "it waited otherwise";
    driver().control()->fail_at = 0;
    EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_SUSPENDED);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(is_all(ptr, 0, 8 * MiB));
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

// --- counters agree with the driver --------------------------------------------------------------

TEST_F(CudaVmm, CountersAreWhatTheDriverSays) {
    create_pool();
    const size_t before = held();
    void *a = umfPoolMalloc(pool, 8 * MiB), *b = umfPoolMalloc(pool, 24 * MiB);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(residency(pool).reserved, 32 * MiB);
    EXPECT_EQ(residency(pool).resident, 32 * MiB);
    EXPECT_TRUE(holds(before + residency(pool).resident));
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, &report), OK);
    EXPECT_EQ(report.bytes, 32 * MiB);
    EXPECT_EQ(report.kept, 32 * MiB);
    EXPECT_TRUE(holds(before));
    EXPECT_EQ(residency(pool).reserved, 32 * MiB);
    EXPECT_EQ(residency(pool).resident, 0u);
    EXPECT_EQ(residency(pool).pinned, 32 * MiB);
    EXPECT_EQ(umfPoolFree(pool, a), OK);
    EXPECT_EQ(residency(pool).reserved, 24 * MiB);
    EXPECT_EQ(residency(pool).pinned, 24 * MiB);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, &report), OK);
    EXPECT_EQ(report.bytes, 24 * MiB);
    EXPECT_EQ(residency(pool).resident, 24 * MiB);
    EXPECT_EQ(residency(pool).pinned, 0u);
    EXPECT_TRUE(holds(before + 24 * MiB));
    EXPECT_EQ(umfPoolFree(pool, b), OK);
    EXPECT_EQ(residency(pool).reserved, 0u);
    EXPECT_TRUE(holds(before));
}

// --- granularity, and few costly calls -----------------------------------------------------------

TEST_F(CudaVmm, SmallOnesSharePieces) {
    NEEDS_FAKE(); // counts calls; it also refuses offsets and odd sizes, as the real one does
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetPieceSize(params, 32 * MiB), OK);
    ASSERT_EQ(create(), OK);
    const long created = calls(FAKE_cuMemCreate), access = calls(FAKE_cuMemSetAccess);
    void *blocks[16] = {};
    for (void *&block : blocks) {
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 1, 0, &block), OK);
    }
    EXPECT_EQ(calls(FAKE_cuMemCreate), created + 1);
    EXPECT_EQ(calls(FAKE_cuMemSetAccess), access + 1);
    EXPECT_EQ(driver().control()->used[0], 32 * MiB);
    for (void *block : blocks) {
        EXPECT_EQ(umfMemoryProviderFree(provider, block, 1), OK);
    }
    // A large one is one handle, whatever its size.
    void *large = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 500 * MiB + 1, 0, &large), OK);
    EXPECT_EQ(calls(FAKE_cuMemCreate), created + 2);
    EXPECT_EQ(calls(FAKE_cuMemSetAccess), access + 2);
    EXPECT_EQ(driver().control()->used[0], 502 * MiB);
    EXPECT_EQ(umfMemoryProviderFree(provider, large, 500 * MiB + 1), OK);
    EXPECT_EQ(driver().control()->used[0], 0u);
}

TEST_F(CudaVmm, AWakeSetsAccessOnceForEachRun) {
    NEEDS_FAKE();
    create_pool();
    std::vector<char *> blocks;
    for (int i = 0; i < 8; i++) {
        blocks.push_back(static_cast<char *>(umfPoolMalloc(pool, 8 * MiB)));
        ASSERT_NE(blocks.back(), nullptr);
    }
    std::sort(blocks.begin(), blocks.end());
    long runs = 1;
    for (size_t i = 1; i < blocks.size(); i++) {
        runs += blocks[i] != blocks[i - 1] + 8 * MiB;
    }
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    const long created = calls(FAKE_cuMemCreate), access = calls(FAKE_cuMemSetAccess);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(calls(FAKE_cuMemCreate), created + 8);
    EXPECT_EQ(calls(FAKE_cuMemSetAccess), access + runs);
    for (char *block : blocks) {
        EXPECT_EQ(umfPoolFree(pool, block), OK);
    }
}

// --- others can allocate released memory ---------------------------------------------------------

TEST_F(CudaVmm, MemoryReallyComesBack) {
    create_pool();
    const size_t before = held();
    for (int cycle = 0; cycle < 3; cycle++) {
        void *ptr = umfPoolMalloc(pool, 64 * MiB);
        ASSERT_NE(ptr, nullptr);
        EXPECT_TRUE(holds(before + 64 * MiB));
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        EXPECT_TRUE(holds(before));
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        EXPECT_TRUE(holds(before + 64 * MiB));
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
        EXPECT_TRUE(holds(before));
    }
}

// --- pinned memory is allocated in chunks, and no larger than the content ------------------------

TEST_F(CudaVmm, PinnedMemoryIsNotRoundedToPowersOfTwo) {
    ONE_THREAD_ONLY() // in unit.store threads meet over pinned memory
    NEEDS_FAKE();
    create_pool();
    constexpr size_t size = 264 * MiB;
    void *ptr = umfPoolMalloc(pool, size);
    ASSERT_NE(ptr, nullptr);
    umfSuspendTrim();
    ASSERT_EQ(driver().control()->registered, 0u);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_GE(driver().control()->registered, size);
    EXPECT_LE(driver().control()->registered, size + 32 * MiB);
    const long pins = calls(FAKE_cuMemHostRegister);
    EXPECT_GT(pins, 1) << "in chunks";
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(calls(FAKE_cuMemHostRegister), pins) << "used again";
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfSuspendTrim(), OK);
    EXPECT_EQ(driver().control()->registered, 0u);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

TEST_F(CudaVmm, ThereAreOtherWaysWhereNothingCanBePinned) {
    NEEDS_FAKE();
    void *ptr = create_filled(5, 64 * MiB);
    umfSuspendTrim();
    {
        LogFile log(3);
        fail(FAKE_cuMemHostRegister, CUDA_ERROR_OUT_OF_MEMORY);
        EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        EXPECT_EQ(log.count("cannot be pinned; another way to keep content needs less of it"), 1u)
            << log.text();
    }
    EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_RESIDENT);
    EXPECT_EQ(driver().control()->registered, 0u);
    EXPECT_TRUE(is_all(ptr, 5, 64 * MiB));
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    policy.folder = "/tmp";
    for (umf_suspend_keep_t keep : {UMF_SUSPEND_KEEP_HOST, UMF_SUSPEND_KEEP_FILE}) {
        policy.keep = keep;
        ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        EXPECT_EQ(residency(pool).pinned, 0u);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        EXPECT_TRUE(is_all(ptr, 5, 64 * MiB));
    }
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

// --- content is lost only where the user chose to discard it -------------------------------------

TEST_F(CudaVmm, TheDefaultKeepsAllContent) {
    create_pool();
    std::vector<void *> blocks;
    for (unsigned char i = 1; i <= 8; i++) {
        blocks.push_back(umfPoolMalloc(pool, i * 2 * MiB));
        ASSERT_NE(blocks.back(), nullptr);
        fill(blocks.back(), i, i * 2 * MiB);
    }
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    for (size_t i = 0; i < blocks.size(); i++) {
        EXPECT_TRUE(is_all(blocks[i], static_cast<char>(i + 1), (i + 1) * 2 * MiB));
        EXPECT_EQ(umfPoolFree(pool, blocks[i]), OK);
    }
}

// --- devices are kept apart ----------------------------------------------------------------------

TEST_F(CudaVmm, PoolsOfTwoDevicesSleepInOneCall) {
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2) {
        GTEST_SKIP() << "needs two GPUs";
    }
    umf_memory_provider_handle_t providers[2] = {};
    umf_memory_pool_handle_t pools[2] = {};
    CUcontext contexts[2] = {};
    void *blocks[2] = {};
    size_t awake[2], suspended[2];
    const size_t slack = driver().is_real ? 4 * MiB : 0;
    auto look = [&](size_t *into) {
        for (int i = 0; i < 2; i++) {
            CU(cuCtxPushCurrent(contexts[i]));
            into[i] = held();
            CU(cuCtxPopCurrent(nullptr));
        }
    };
    for (int i = 0; i < 2; i++) {
        std::string text = "cuda_vmm:device=" + std::to_string(i);
        CU(cuDevicePrimaryCtxRetain(&contexts[i], i));
        ASSERT_EQ(umfMemoryProviderCreateFromText(text.c_str(), &providers[i]), OK);
        ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), providers[i], nullptr, 0, &pools[i]), OK);
        blocks[i] = umfPoolMalloc(pools[i], (i + 1) * 8 * MiB);
        ASSERT_NE(blocks[i], nullptr);
        int device = -1;
        CU(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 reinterpret_cast<CUdeviceptr>(blocks[i])));
        EXPECT_EQ(device, i);
        CU(cuCtxPushCurrent(contexts[i]));
        fill(blocks[i], static_cast<unsigned char>(i + 1), (i + 1) * 8 * MiB);
        CU(cuCtxPopCurrent(nullptr));
    }
    look(awake);
    for (int cycle = 0; cycle < 2; cycle++) {
        ASSERT_EQ(umfPoolsSuspend(pools, 2, nullptr, nullptr), OK);
        look(suspended);
        EXPECT_LE(suspended[0], awake[0] - 8 * MiB + slack);
        EXPECT_LE(suspended[1], awake[1] - 16 * MiB + slack);
        ASSERT_EQ(umfPoolsResume(pools, 2, nullptr, nullptr), OK);
        size_t again[2];
        look(again);
        EXPECT_GE(again[0], awake[0]);
        EXPECT_LE(again[0], awake[0] + slack);
        EXPECT_GE(again[1], awake[1]);
        EXPECT_LE(again[1], awake[1] + slack);
    }
    for (int i = 0; i < 2; i++) {
        CU(cuCtxPushCurrent(contexts[i]));
        EXPECT_TRUE(is_all(blocks[i], static_cast<char>(i + 1), (i + 1) * 8 * MiB));
        CU(cuCtxPopCurrent(nullptr));
        EXPECT_EQ(umfPoolFree(pools[i], blocks[i]), OK);
        EXPECT_EQ(umfPoolDestroy(pools[i]), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(providers[i]), OK);
        CU(cuDevicePrimaryCtxRelease(i));
    }
}

// --- other devices -------------------------------------------------------------------------------

// Also after a sleep, which maps the memory anew.
TEST_F(CudaVmm, PeersMayReadAndWrite) {
    int devices = 0, can = 0;
    CU(cuDeviceGetCount(&devices));
    if (devices < 2 || driver().cuDeviceCanAccessPeer(&can, 1, 0) != CUDA_SUCCESS || !can) {
        GTEST_SKIP() << "needs two GPUs that reach each other";
    }
    const int peer = 1;
    CUcontext second = nullptr;
    CU(cuCtxCreate(&second, 0, peer));
    CU(cuCtxPopCurrent(nullptr));
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetPeers(params, &peer, 1), OK);
    create_pool();
    void *ptr = umfPoolMalloc(pool, 8 * MiB);
    ASSERT_NE(ptr, nullptr);
    for (unsigned char round = 1; round < 5; round = static_cast<unsigned char>(round + 2)) {
        fill(ptr, round, 8 * MiB);
        CU(cuCtxPushCurrent(second));
        EXPECT_TRUE(is_all(ptr, static_cast<char>(round), 8 * MiB));
        fill(ptr, static_cast<unsigned char>(round + 1), 8 * MiB);
        CU(cuCtxPopCurrent(nullptr));
        EXPECT_TRUE(is_all(ptr, static_cast<char>(round + 1), 8 * MiB));
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    }
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    EXPECT_EQ(driver().cuCtxDestroy(second), CUDA_SUCCESS);
}

TEST_F(CudaVmm, AFailureToKeepContentOnAPeerLeavesNothingThere) {
    NEEDS_FAKE();
    void *ptr = create_filled(5, 8 * MiB);
    ASSERT_NO_FATAL_FAILURE(keep_on_peer());
    const long objects = driver().control()->objects;
    const size_t used = driver().control()->used[1];
    for (int function :
         {FAKE_cuMemCreate, FAKE_cuMemAddressReserve, FAKE_cuMemMap, FAKE_cuMemSetAccess}) {
        fail(function, CUDA_ERROR_UNKNOWN);
        EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr),
                  UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(driver().control()->fail_at, 0) << "it was called";
        EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_RESIDENT);
        EXPECT_EQ(driver().control()->objects, objects) << function;
        EXPECT_EQ(driver().control()->used[1], used) << function;
        EXPECT_TRUE(is_all(ptr, 5, 8 * MiB));
    }
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

// A chunk of a peer belongs to no context, so it is released also when none can be entered.
TEST_F(CudaVmm, AContextThatCannotBeEnteredLeavesNothingOnAPeer) {
    NEEDS_FAKE();
    void *ptr = create_filled(5, 8 * MiB);
    ASSERT_NO_FATAL_FAILURE(keep_on_peer());
    const size_t used = driver().control()->used[1];
    long refused = 0;
    bool reached = true;
    for (long n = 1; reached; n++) {
        fail(FAKE_cuCtxGetCurrent, CUDA_ERROR_UNKNOWN, n);
        const bool done = umfPoolsSuspend(&pool, 1, nullptr, nullptr) == OK;
        reached = driver().control()->fail_at == 0;
        driver().control()->fail_at = 0;
        refused += !done;
        if (done) {
            ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        }
        EXPECT_EQ(residency(pool).state, UMF_SUSPEND_STATE_RESIDENT);
        EXPECT_EQ(driver().control()->used[1], used) << "the call " << n << " failed";
        EXPECT_TRUE(is_all(ptr, 5, 8 * MiB));
    }
    EXPECT_GT(refused, 0);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

// Memory that one provider has pinned is not pinned for the context of another.
TEST_F(CudaVmm, PinnedMemoryHeldReadyIsOfOneProvider) {
    NEEDS_FAKE();
    create_pool();
    umf_memory_provider_handle_t second = nullptr;
    umf_memory_pool_handle_t pools[2] = {pool, nullptr};
    ASSERT_EQ(umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &second), OK);
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), second, nullptr, 0, &pools[1]), OK);
    void *blocks[2];
    size_t of_one = 0;
    for (size_t i = 0; i < 2; i++) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = UMF_SUSPEND_KEEP_PINNED;
        ASSERT_EQ(umfPoolSetSuspendPolicy(pools[i], &policy), OK);
        blocks[i] = umfPoolMalloc(pools[i], 8 * MiB);
        ASSERT_NE(blocks[i], nullptr);
        ASSERT_EQ(umfPoolsSuspend(&pools[i], 1, nullptr, nullptr), OK);
        of_one = i == 0 ? driver().control()->registered : of_one;
        EXPECT_GE(of_one, 8 * MiB);
        EXPECT_EQ(driver().control()->registered, (i + 1) * of_one);
        ASSERT_EQ(umfPoolsResume(&pools[i], 1, nullptr, nullptr), OK);
    }
    ASSERT_EQ(umfPoolsSuspend(pools, 2, nullptr, nullptr), OK);
    EXPECT_EQ(driver().control()->registered, 2 * of_one) << "each uses its own again";
    ASSERT_EQ(umfPoolsResume(pools, 2, nullptr, nullptr), OK);
    EXPECT_EQ(umfPoolFree(pools[0], blocks[0]), OK);
    EXPECT_EQ(umfPoolFree(pools[1], blocks[1]), OK);
    EXPECT_EQ(umfPoolDestroy(pools[1]), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(second), OK);
}

// --- no multicast objects: a process that holds one cannot be checkpointed -----------------------

// The driver refuses to pin addresses that are pinned, so they must not come back as other memory.
TEST_F(CudaVmm, PinnedMemoryThatCannotBeUnpinnedStays) {
    NEEDS_FAKE();
    void *ptr = create_filled(3, 8 * MiB);
    for (int round = 0; round < 3; round++) {
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK) << round;
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK) << round;
        EXPECT_TRUE(is_all(ptr, 3, 8 * MiB));
        fail(FAKE_cuMemHostUnregister, CUDA_ERROR_UNKNOWN);
        EXPECT_EQ(umfSuspendTrim(), OK);
        EXPECT_EQ(driver().control()->fail_at, 0) << "it was called";
        EXPECT_EQ(driver().control()->registered, 32 * MiB) << "it is used again";
    }
    EXPECT_EQ(umfSuspendTrim(), OK);
    EXPECT_EQ(driver().control()->registered, 0u);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    fail(FAKE_cuMemHostUnregister, CUDA_ERROR_UNKNOWN);
    destroy();
    driver().control()->fail_at = 0;
    ptr = create_filled(4, 8 * MiB); // at other addresses
    EXPECT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(is_all(ptr, 4, 8 * MiB));
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

// --- copies that cannot be waited for ------------------------------------------------------------

// They go on: what they read and write stays until a wait succeeds.
TEST_F(CudaVmm, CopiesThatCannotBeWaitedForKeepWhatTheyUse) {
    NEEDS_FAKE();
    void *ptr = create_filled(5, 8 * MiB);
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    policy.folder = "/tmp";
    policy.device = 1;
    for (umf_suspend_keep_t keep : {UMF_SUSPEND_KEEP_PEER, UMF_SUSPEND_KEEP_PINNED,
                                    UMF_SUSPEND_KEEP_HOST, UMF_SUSPEND_KEEP_FILE}) {
        policy.keep = keep;
        ASSERT_EQ(umfPoolSetSuspendPolicy(pool, &policy), OK);
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK); // makes objects that are kept
        ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
        long alive = driver().control()->objects;
        for (bool is_resume : {false, true}) {
            if (is_resume) {
                ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
            }
            driver().control()->fail_on = 1;
            fail(FAKE_cuStreamSynchronize, CUDA_ERROR_INVALID_VALUE);
            EXPECT_NE(is_resume ? umfPoolsResume(&pool, 1, nullptr, nullptr)
                                : umfPoolsSuspend(&pool, 1, nullptr, nullptr),
                      OK)
                << keep;
            EXPECT_EQ(umfSuspendTrim(), OK);
            EXPECT_STREQ(driver().faults(), "") << keep;
            EXPECT_EQ(residency(pool).state,
                      is_resume ? UMF_SUSPEND_STATE_SUSPENDED : UMF_SUSPEND_STATE_RESIDENT);
            driver().control()->fail_on = 0;
            driver().control()->fail_at = 0;
            if (!is_resume) {
                EXPECT_TRUE(is_all(ptr, 5, 8 * MiB)) << keep;
                ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
            }
            ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK) << keep;
            EXPECT_TRUE(is_all(ptr, 5, 8 * MiB)) << keep;
        }
        EXPECT_EQ(umfSuspendTrim(), OK);
        EXPECT_LE(driver().control()->objects, alive + 2) << "queues that are kept, " << keep;
        EXPECT_EQ(driver().control()->used[1], 0u);
        EXPECT_EQ(driver().control()->registered, 0u);
    }
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

TEST_F(CudaVmm, MakesNoMulticastObjects) {
    const char *const functions[] = {
#define UMF_CUDA(function, version, symbol, optional) symbol,
#include "../../src/providers/cuda/driver.def"
#undef UMF_CUDA
    };
    for (const char *function : functions) {
        EXPECT_EQ(strstr(function, "Multicast"), nullptr) << function;
    }
}

// --- the default stream of the thread ------------------------------------------------------------

TEST_F(CudaVmm, TheNullStreamIsThatOfTheThreadOnRequest) {
    EXPECT_EQ(umfCUDAVmmMemoryProviderParamsSetPerThreadStream(nullptr, 1), BAD);
    for (int per_thread : {0, 1}) {
        ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetPerThreadStream(params, per_thread), OK);
        create_pool();
        void *ptr = umfPoolMalloc(pool, 8 * MiB);
        ASSERT_NE(ptr, nullptr);
        const long before = driver().is_real ? 0 : driver().control()->per_thread_calls;
        void *queues[] = {nullptr};
        umf_suspend_params_t wait = UMF_SUSPEND_PARAMS_INIT;
        wait.queues = queues;
        wait.num_queues = 1;
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, &wait, nullptr), OK);
        ASSERT_EQ(umfPoolsResume(&pool, 1, &wait, nullptr), OK);
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->per_thread_calls > before, per_thread == 1);
        }
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        pool = nullptr;
        destroy();
    }
    ASSERT_EQ(umfMemoryProviderCreateFromText("cuda_vmm:per_thread_stream=true", &provider), OK)
        << umfTextError();
}

// Work that the thread has queued there is waited for.
TEST_F(CudaVmm, WaitsForTheStreamOfTheThread) {
    NEEDS_FAKE(); // the real one orders the two default streams itself
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetPerThreadStream(params, 1), OK);
    create_pool();
    void *ptr = umfPoolMalloc(pool, 8 * MiB);
    ASSERT_NE(ptr, nullptr);
    void *found = nullptr;
    PFN_cuMemsetD8Async_v7000_ptsz set;
    found = dlsym(RTLD_DEFAULT, "cuMemsetD8Async_ptsz");
    ASSERT_NE(found, nullptr);
    memcpy(&set, &found, sizeof(set));
    ASSERT_EQ(set(reinterpret_cast<CUdeviceptr>(ptr), 9, 8 * MiB, nullptr), CUDA_SUCCESS);
    void *queues[] = {nullptr};
    umf_suspend_params_t wait = UMF_SUSPEND_PARAMS_INIT;
    wait.queues = queues;
    wait.num_queues = 1;
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, &wait, nullptr), OK);
    EXPECT_EQ(driver().control()->unordered_unmaps, 0);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_TRUE(is_all(ptr, 9, 8 * MiB));
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}

// --- GPUDirect RDMA ------------------------------------------------------------------------------

// Where the device has it, unless it is not wanted or asking fails.
TEST_F(CudaVmm, MemoryIsMadeForRdmaWhereTheDeviceHasIt) {
    NEEDS_FAKE();
    EXPECT_EQ(umfCUDAVmmMemoryProviderParamsSetGPUDirectRDMA(nullptr, 1), BAD);
    fake_cuda_t *control = driver().control();
    for (int has : {0, 1}) {
        for (int wanted : {0, 1}) {
            for (bool asking_fails : {false, true}) {
                control->has_rdma = has;
                ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetGPUDirectRDMA(params, wanted), OK);
                if (asking_fails && wanted) {
                    fail(FAKE_cuDeviceGetAttribute, CUDA_ERROR_INVALID_VALUE, 2);
                }
                ASSERT_EQ(create(), OK);
                EXPECT_EQ(control->fail_at, 0);
                const long made = control->rdma_made;
                void *ptr = nullptr;
                ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr), OK);
                EXPECT_EQ(control->rdma_made - made, has && wanted && !asking_fails ? 1 : 0);
                EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
                destroy();
            }
        }
    }
    umfCUDAVmmMemoryProviderParamsDestroy(params);
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsCreate(0, &params), OK);
    ASSERT_EQ(create(), OK) << "the default";
    void *ptr = nullptr;
    const long made = control->rdma_made;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr), OK);
    EXPECT_EQ(control->rdma_made, made + 1);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
    destroy();
    ASSERT_EQ(umfMemoryProviderCreateFromText("cuda_vmm:gpudirect_rdma=no", &provider), OK)
        << umfTextError();
}

// A device that has it and refuses it gives plain memory; a full one is called once.
TEST_F(CudaVmm, MemoryThatIsRefusedForRdmaIsMadeWithout) {
    NEEDS_FAKE();
    fake_cuda_t *control = driver().control();
    control->has_rdma = control->refuses_rdma = 1;
    ASSERT_EQ(create(), OK);
    void *ptr = nullptr;
    {
        LogFile log(2);
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr), OK);
        EXPECT_EQ(log.text(), "");
    }
    EXPECT_EQ(control->rdma_made, 0);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
    control->refuses_rdma = 0;
    const long before = calls(FAKE_cuMemCreate);
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 2048 * MiB, 0, &ptr),
              UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(calls(FAKE_cuMemCreate), before + 1);
}

// --- fabric handles ------------------------------------------------------------------------------

TEST_F(CudaVmm, FabricIsRefusedWithTheReason) {
    NEEDS_FAKE();
    const size_t before = held();
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetShare(params, UMF_CUDA_VMM_SHARE_FABRIC), OK);
    {
        LogFile log(3);
        EXPECT_EQ(create(), NONE);
        EXPECT_EQ(log.count("device 0 cannot share memory by fabric handles"), 1u) << log.text();
    }
    driver().control()->fabric = FAKE_CUDA_FABRIC_FORBIDDEN;
    {
        LogFile log(3);
        EXPECT_EQ(create(), NONE);
        EXPECT_EQ(log.count("trying fabric handles failed: CUDA_ERROR_NOT_PERMITTED - operation "
                            "not permitted"),
                  1u)
            << log.text();
        EXPECT_EQ(log.count("is not set up for them (IMEX channels)"), 1u) << log.text();
    }
    int32_t code = 0;
    native(&code);
    EXPECT_EQ(code, CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(provider, nullptr);
    EXPECT_TRUE(holds(before));
}

// On any machine: it works, or the creation reports the reason.
TEST_F(CudaVmm, FabricHandlesTravelInsteadOfDescriptors) {
    if (!driver().is_real) {
        driver().control()->fabric = FAKE_CUDA_FABRIC_PERMITTED;
    }
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetShare(params, UMF_CUDA_VMM_SHARE_FABRIC), OK);
    LogFile log(3);
    if (umf_result_t result = create(); result != OK) {
        ASSERT_TRUE(driver().is_real);
        EXPECT_EQ(result, NONE);
        GTEST_SKIP() << log.text();
    }
    const size_t before = held();
    umf_memory_provider_handle_t consumer = nullptr, by_fd = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &consumer), OK);
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetShare(params, UMF_CUDA_VMM_SHARE_FD), OK);
    ASSERT_EQ(umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &by_fd), OK);
    alignas(16) char data[4096] = {}, again[4096] = {};
    size_t bytes = 0;
    ASSERT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &bytes), OK);
    ASSERT_LE(bytes, sizeof(data));
    void *ptr = nullptr, *opened = nullptr, *half = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr), OK);
    const long exports =
        driver().is_real ? 0 : driver().control()->calls[FAKE_cuMemExportToShareableHandle];
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 8 * MiB, data), OK);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 8 * MiB, again), OK);
    EXPECT_EQ(memcmp(data, again, bytes), 0);
    if (!driver().is_real) {
        EXPECT_EQ(calls(FAKE_cuMemExportToShareableHandle), exports + 1);
    }
    ASSERT_EQ(umfMemoryProviderOpenIPCHandle(consumer, data, &opened), OK);
    EXPECT_NE(opened, ptr);
    fill(ptr, 0x6B, 8 * MiB);
    EXPECT_TRUE(is_all(opened, 0x6B, 8 * MiB));
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(by_fd, data, &half), BAD) << "they share differently";
    // Each side keeps the physical memory.
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, data), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
    EXPECT_TRUE(is_all(opened, 0x6B, 8 * MiB));
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(consumer, data, &half), BAD) << "it is freed";
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(consumer, opened, 8 * MiB), OK);
    EXPECT_TRUE(holds(before));
    // A byte of the fabric handle that is not right is noticed.
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr), OK);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 8 * MiB, data), OK);
    data[bytes - 3] = static_cast<char>(data[bytes - 3] + 1);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(consumer, data, &half), BAD);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(by_fd), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(consumer), OK);
}

// Whichever call fails that does not give something back: nothing is left.
TEST_F(CudaVmm, FabricWithFailures) {
    NEEDS_FAKE();
    driver().control()->fabric = FAKE_CUDA_FABRIC_PERMITTED;
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetShare(params, UMF_CUDA_VMM_SHARE_FABRIC), OK);
    const size_t before = held();
    const long objects = driver().control()->objects;
    alignas(16) char data[4096] = {};
    for (int function :
         {FAKE_cuDeviceGetCount, FAKE_cuMemHostAlloc, FAKE_cuPointerGetAttribute,
          FAKE_cuDeviceGetAttribute, FAKE_cuMemGetAllocationGranularity, FAKE_cuMemCreate,
          FAKE_cuMemExportToShareableHandle, FAKE_cuMemImportFromShareableHandle,
          FAKE_cuMemAddressReserve, FAKE_cuMemMap, FAKE_cuMemSetAccess}) {
        bool reached = true;
        for (long n = 1; reached; n++) {
            void *ptr = nullptr, *opened = nullptr;
            fail(function, CUDA_ERROR_UNKNOWN, n);
            bool passed = create() == OK &&
                          umfMemoryProviderAlloc(provider, 8 * MiB, 0, &ptr) == OK &&
                          umfMemoryProviderGetIPCHandle(provider, ptr, 8 * MiB, data) == OK &&
                          umfMemoryProviderOpenIPCHandle(provider, data, &opened) == OK;
            reached = driver().control()->fail_at == 0;
            driver().control()->fail_at = 0;
            EXPECT_TRUE(passed || reached) << function << " " << n;
            if (opened) {
                EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, opened, 8 * MiB), OK);
            }
            if (ptr) {
                EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 8 * MiB), OK);
            }
            if (provider) {
                destroy();
            }
            EXPECT_TRUE(holds(before)) << function << " " << n;
            EXPECT_EQ(driver().control()->objects, objects) << function << " " << n;
            EXPECT_EQ(current(), context);
            ASSERT_LT(n, 100);
        }
    }
}

TEST_F(CudaVmm, SuspendedFabricMemoryIsSharedAnew) {
    if (!driver().is_real) {
        driver().control()->fabric = FAKE_CUDA_FABRIC_PERMITTED;
    }
    ASSERT_EQ(umfCUDAVmmMemoryProviderParamsSetShare(params, UMF_CUDA_VMM_SHARE_FABRIC), OK);
    LogFile log(3);
    if (create() != OK) {
        ASSERT_TRUE(driver().is_real);
        GTEST_SKIP() << log.text();
    }
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), OK);
    void *ptr = umfPoolMalloc(pool, 8 * MiB);
    ASSERT_NE(ptr, nullptr);
    alignas(16) char old[4096] = {}, data[4096] = {};
    void *opened = nullptr;
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 8 * MiB, old), OK);
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, old, &opened), BAD);
    EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 8 * MiB, data),
              UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfMemoryProviderOpenIPCHandle(provider, old, &opened), BAD);
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 8 * MiB, data), OK);
    ASSERT_EQ(umfMemoryProviderOpenIPCHandle(provider, data, &opened), OK);
    fill(ptr, 0x3A, 8 * MiB);
    EXPECT_TRUE(is_all(opened, 0x3A, 8 * MiB));
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, opened, 8 * MiB), OK);
    EXPECT_EQ(umfPoolFree(pool, ptr), OK);
}
