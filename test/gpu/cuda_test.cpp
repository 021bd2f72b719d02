// The CUDA provider, statement by statement.

#include <atomic>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "fakes/calls.h"
#include "fakes/log_file.h"
#include "fakes/properties.h"
#include "fakes/threads.h"
#include "gpu.h"

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/ipc.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_cuda.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;

class Cuda : public Gpu {
  protected:
    umf_cuda_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;

    void SetUp() override {
        Gpu::SetUp();
        ASSERT_EQ(umfCUDAMemoryProviderParamsCreate(&params), OK);
        ASSERT_EQ(umfCUDAMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE), OK);
    }

    void TearDown() override {
        if (provider) {
            umfMemoryProviderDestroy(provider);
        }
        umfCUDAMemoryProviderParamsDestroy(params);
        Gpu::TearDown();
    }

    umf_result_t create() {
        return umfMemoryProviderCreate(umfCUDAMemoryProviderOps(), params, &provider);
    }

    void create_of(umf_usm_memory_type_t type) {
        ASSERT_EQ(umfCUDAMemoryProviderParamsSetMemoryType(params, type), OK);
        ASSERT_EQ(create(), OK);
    }

    size_t allocated() {
        return allocated_of(provider);
    }

    std::string native(int32_t *code) {
        return native_error(umfCUDAMemoryProviderOps(), code);
    }
};

const umf_usm_memory_type_t types[] = {UMF_MEMORY_TYPE_HOST, UMF_MEMORY_TYPE_DEVICE,
                                       UMF_MEMORY_TYPE_SHARED};

} // namespace

TEST_F(Cuda, ParametersAreChecked) {
    EXPECT_EQ(umfCUDAMemoryProviderParamsCreate(nullptr), BAD);
    EXPECT_EQ(umfCUDAMemoryProviderParamsSetContext(nullptr, context), BAD);
    EXPECT_EQ(umfCUDAMemoryProviderParamsSetDevice(nullptr, 0), BAD);
    EXPECT_EQ(umfCUDAMemoryProviderParamsSetMemoryType(nullptr, UMF_MEMORY_TYPE_HOST), BAD);
    EXPECT_EQ(umfCUDAMemoryProviderParamsSetAllocFlags(nullptr, 0), BAD);
    EXPECT_EQ(umfCUDAMemoryProviderParamsSetName(nullptr, "x"), BAD);
    EXPECT_EQ(umfCUDAMemoryProviderParamsSetName(params, nullptr), BAD);
    EXPECT_EQ(umfCUDAMemoryProviderParamsDestroy(nullptr), OK);
}

TEST_F(Cuda, DefaultsAreTheCurrentContextAndItsDevice) {
    ASSERT_EQ(create(), OK);
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
    const char *name = nullptr;
    ASSERT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    EXPECT_STREQ(name, "CUDA");
}

TEST_F(Cuda, WithoutAContextTheDeviceIsToBeNamed) {
    ASSERT_EQ(driver().cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    umf_cuda_memory_provider_params_handle_t none = nullptr;
    ASSERT_EQ(umfCUDAMemoryProviderParamsCreate(&none), OK);
    umfCUDAMemoryProviderParamsSetMemoryType(none, UMF_MEMORY_TYPE_DEVICE);
    EXPECT_EQ(umfMemoryProviderCreate(umfCUDAMemoryProviderOps(), none, &provider), BAD);

    // Then its primary context is held as long as the provider lives.
    umfCUDAMemoryProviderParamsSetDevice(none, 0);
    ASSERT_EQ(umfMemoryProviderCreate(umfCUDAMemoryProviderOps(), none, &provider), OK);
    umfCUDAMemoryProviderParamsDestroy(none);
    unsigned flags;
    int active = 0;
    CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT_EQ(active, 1);
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 1 << 20, 0, &ptr), OK);
    EXPECT_EQ(current(), nullptr);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 1 << 20), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    provider = nullptr;
    CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT_EQ(active, 0);
    EXPECT_EQ(current(), nullptr);
}

TEST_F(Cuda, CreationRefuses) {
    auto refused = [this](umf_result_t expected) {
        EXPECT_EQ(create(), expected);
        EXPECT_EQ(provider, nullptr);
    };
    EXPECT_EQ(umfMemoryProviderCreate(umfCUDAMemoryProviderOps(), nullptr, &provider), BAD);
    umfCUDAMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_UNKNOWN);
    refused(BAD);
    // In C++ an enum cannot hold it, so it goes by an int as a caller in C would have it.
    auto set = reinterpret_cast<umf_result_t (*)(umf_cuda_memory_provider_params_handle_t, int)>(
        umfCUDAMemoryProviderParamsSetMemoryType);
    EXPECT_EQ(set(params, UMF_MEMORY_TYPE_SHARED + 1), OK);
    refused(BAD);
    umfCUDAMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE);
    umfCUDAMemoryProviderParamsSetDevice(params, -1);
    refused(BAD);
    umfCUDAMemoryProviderParamsSetDevice(params, 0);
    umfCUDAMemoryProviderParamsSetContext(params, nullptr);
    refused(BAD);
    umfCUDAMemoryProviderParamsSetContext(params, context);
    umfCUDAMemoryProviderParamsSetDevice(params, 1 << 20); // no such GPU
    {
        LogFile log(3);
        refused(UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(log.count("there is no device 1048576 among the"), 1u) << log.text();
    }
    int32_t code = 0;
    native(&code);
    EXPECT_EQ(code, CUDA_ERROR_INVALID_DEVICE);
    umfCUDAMemoryProviderParamsSetDevice(params, 0);
    EXPECT_EQ(create(), OK);
}

// Out of device memory is reported as such, with the driver's own words.
TEST_F(Cuda, NotEnoughMemory) {
    ASSERT_EQ(create(), OK);
    size_t free = 0, total = 0;
    CU(cuMemGetInfo(&free, &total));
    void *ptr = &ptr;
    LogFile log(3);
    EXPECT_EQ(umfMemoryProviderAlloc(provider, total + (2 << 20), 0, &ptr),
              UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(ptr, &ptr);
    EXPECT_EQ(log.count("allocating memory failed: CUDA_ERROR_OUT_OF_MEMORY - out of memory"), 1u)
        << log.text();
    int32_t code = 0;
    EXPECT_EQ(native(&code), "CUDA_ERROR_OUT_OF_MEMORY - out of memory");
    EXPECT_EQ(code, CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Cuda, EachTypeOfMemory) {
    for (umf_usm_memory_type_t type : types) {
        create_of(type);
        void *ptr = nullptr;
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 100000, 0, &ptr), OK) << type;
        EXPECT_EQ(allocated(), 100000u);
        std::vector<char> in(100000, 'x'), out(100000);
        CU(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(ptr), in.data(), in.size()));
        CU(cuMemcpyDtoH(out.data(), reinterpret_cast<CUdeviceptr>(ptr), out.size()));
        EXPECT_EQ(in, out);
        unsigned kind = 0;
        CU(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 reinterpret_cast<CUdeviceptr>(ptr)));
        EXPECT_EQ(kind, type == UMF_MEMORY_TYPE_HOST ? unsigned{CU_MEMORYTYPE_HOST}
                                                     : unsigned{CU_MEMORYTYPE_DEVICE});
        unsigned managed = 9;
        CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 reinterpret_cast<CUdeviceptr>(ptr)));
        EXPECT_EQ(managed, type == UMF_MEMORY_TYPE_SHARED ? 1u : 0u);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 0), OK); // the size is known
        EXPECT_EQ(allocated(), 0u);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        provider = nullptr;
    }
}

// Whatever is current in the caller's thread is current afterwards, also when a call fails.
TEST_F(Cuda, TheCallersContextIsLeftAlone) {
    ASSERT_EQ(create(), OK);
    CUcontext other = nullptr, popped = nullptr;
    CU(cuCtxCreate(&other, 0, 0));
    auto check = [&](CUcontext expected) {
        void *ptr = nullptr;
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
        EXPECT_EQ(current(), expected);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
        EXPECT_EQ(current(), expected);
        EXPECT_NE(umfMemoryProviderAlloc(provider, SIZE_MAX, 0, &ptr), OK);
        EXPECT_EQ(current(), expected);
        char garbage[64] = {};
        EXPECT_NE(umfMemoryProviderOpenIPCHandle(provider, garbage, &ptr), OK);
        EXPECT_EQ(current(), expected);
        EXPECT_NE(umfMemoryProviderCloseIPCHandle(provider, garbage, 64), OK);
        EXPECT_EQ(current(), expected);
    };
    check(other);
    CU(cuCtxPopCurrent(&popped));
    check(context);
    CU(cuCtxPopCurrent(&popped));
    check(nullptr);
    CU(cuCtxPushCurrent(context));
    EXPECT_EQ(driver().cuCtxDestroy(other), CUDA_SUCCESS);
}

TEST_F(Cuda, Alignment) {
    ASSERT_EQ(create(), OK);
    size_t granularity = 0;
    ASSERT_EQ(umfMemoryProviderGetMinPageSize(provider, nullptr, &granularity), OK);
    void *ptr = nullptr;
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, granularity * 2, &ptr), NONE);
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 256, &ptr), OK);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % 256, 0u);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
}

TEST_F(Cuda, AResultThatMissesTheAlignmentIsFreed) {
    NEEDS_FAKE();
    ASSERT_EQ(create(), OK);
    driver().control()->misalign = 64;
    void *ptr = nullptr;
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 256, &ptr),
              UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    EXPECT_EQ(ptr, nullptr);
    EXPECT_EQ(driver().control()->used[0], 0u);
    EXPECT_EQ(allocated(), 0u);
    driver().control()->misalign = 0;
}

TEST_F(Cuda, WhatIsNotOffered) {
    ASSERT_EQ(create(), OK);
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4 << 20, 0, &ptr), OK);
    EXPECT_EQ(umfMemoryProviderPurgeLazy(provider, ptr, 4096), NONE);
    EXPECT_EQ(umfMemoryProviderPurgeForce(provider, ptr, 4096), NONE);
    EXPECT_EQ(umfMemoryProviderAllocationSplit(provider, ptr, 4 << 20, 2 << 20), NONE);
    EXPECT_EQ(
        umfMemoryProviderAllocationMerge(provider, ptr, static_cast<char *>(ptr) + 4096, 4 << 20),
        NONE);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4 << 20), OK);
}

TEST_F(Cuda, FreeOfWhatIsNotThere) {
    ASSERT_EQ(create(), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, nullptr, 0), OK);
    int local = 0;
    EXPECT_EQ(umfMemoryProviderFree(provider, &local, sizeof(local)), BAD);
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, static_cast<char *>(ptr) + 256, 0), BAD);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), BAD);
}

TEST_F(Cuda, PageSizesAreTheDriversGranularity) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    size_t min = 0, recommended = 0, value = 0;
    CU(cuMemGetAllocationGranularity(&min, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CU(cuMemGetAllocationGranularity(&recommended, &properties,
                                     CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    for (umf_usm_memory_type_t type : types) {
        create_of(type);
        EXPECT_EQ(umfMemoryProviderGetMinPageSize(provider, nullptr, &value), OK);
        EXPECT_EQ(value, min);
        EXPECT_EQ(umfMemoryProviderGetRecommendedPageSize(provider, 1, &value), OK);
        EXPECT_EQ(value, recommended);
        EXPECT_EQ(umfMemoryProviderGetCacheLineSize(provider, &value), OK);
        EXPECT_EQ(value, 128u);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        provider = nullptr;
    }
}

TEST_F(Cuda, ImpossibleSizes) {
    ASSERT_EQ(create(), OK);
    void *ptr = &ptr;
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 0, 0, &ptr), BAD);
    int32_t code = 0;
    EXPECT_EQ(native(&code), "CUDA_ERROR_INVALID_VALUE - invalid argument");
    EXPECT_EQ(code, CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(umfMemoryProviderAlloc(provider, SIZE_MAX, 0, &ptr),
              UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(native(&code), "CUDA_ERROR_OUT_OF_MEMORY - out of memory");
    EXPECT_EQ(code, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(ptr, &ptr);
    EXPECT_EQ(allocated(), 0u);
}

TEST_F(Cuda, ResultsOfTheDriver) {
    NEEDS_FAKE();
    ASSERT_EQ(create(), OK);
    const struct {
        CUresult from;
        umf_result_t to;
    } map[] = {
        {CUDA_ERROR_OUT_OF_MEMORY, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY},
        {CUDA_ERROR_INVALID_VALUE, BAD},
        {CUDA_ERROR_INVALID_HANDLE, BAD},
        {CUDA_ERROR_DEINITIALIZED, UMF_RESULT_ERROR_OUT_OF_RESOURCES},
        {CUDA_ERROR_UNKNOWN, UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC},
        {CUDA_ERROR_NOT_PERMITTED, UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC},
    };
    for (const auto &each : map) {
        void *ptr = nullptr;
        fail(FAKE_cuMemAlloc, each.from);
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), each.to) << each.from;
        int32_t code = 0;
        native(&code);
        EXPECT_EQ(code, each.from);

        // A failed free leaves the memory allocated, unless it went with its context.
        bool is_gone =
            each.from == CUDA_ERROR_DEINITIALIZED || each.from == CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if (is_gone) {
            continue;
        }
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
        fail(FAKE_cuMemFree, each.from);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), each.to) << each.from;
        EXPECT_EQ(allocated(), 4096u);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
    }
}

// Whichever call of the driver fails: an error, nothing held, the caller's context as before.
TEST_F(Cuda, EveryCallMayFail) {
    NEEDS_FAKE();
    for (bool primary : {false, true}) {
        if (primary) {
            umfCUDAMemoryProviderParamsDestroy(params);
            CU(cuCtxSetCurrent(nullptr));
            ASSERT_EQ(umfCUDAMemoryProviderParamsCreate(&params), OK);
            umfCUDAMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE);
            umfCUDAMemoryProviderParamsSetDevice(params, 0);
        }
        CUcontext before = current();
        bool all_made = false;
        for (long n = 1; !all_made; n++) {
            fail(FAKE_CUDA_ANY, CUDA_ERROR_UNKNOWN, n);
            void *ptr = nullptr;
            bool passed = create() == OK && umfMemoryProviderAlloc(provider, 4096, 0, &ptr) == OK &&
                          umfMemoryProviderFree(provider, ptr, 4096) == OK;
            all_made = driver().control()->fail_at > 0;
            driver().control()->fail_at = 0;
            if (provider) {
                if (!passed && ptr) {
                    umfMemoryProviderFree(provider, ptr, 4096);
                }
                EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
                provider = nullptr;
            }
            EXPECT_TRUE(passed || !all_made) << n;
            EXPECT_EQ(driver().control()->used[0], 0u) << n;
            EXPECT_EQ(current(), before) << n;
            ASSERT_LT(n, 100);
        }
    }
}

// The driver says that such a call may return errors of earlier work: the call has had its effect.
TEST_F(Cuda, AFailureToRestoreTheContextIsNoFailureOfTheCall) {
    NEEDS_FAKE();
    CUcontext before = current();
    ASSERT_EQ(create(), OK);
    CUcontext other = nullptr;
    CU(cuCtxCreate(&other, 0, 0));
    void *ptr = nullptr;
    LogFile log(2);
    fail(FAKE_cuCtxPopCurrent, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
    EXPECT_EQ(driver().control()->fail_at, 0) << "it was called";
    EXPECT_EQ(current(), other);
    fail(FAKE_cuCtxPopCurrent, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
    EXPECT_EQ(current(), other);
    EXPECT_EQ(driver().control()->used[0], 0u);
    EXPECT_NE(log.text().find("restoring the caller's context failed"), std::string::npos);
    CU(cuCtxDestroy(other));
    EXPECT_EQ(current(), before);
}

// After the driver has shut down, its calls fail quietly. What went with the driver counts as
// freed.
TEST_F(Cuda, AfterTheDriverHasShutDown) {
    NEEDS_FAKE();
    ASSERT_EQ(create(), OK);
    void *ptr = nullptr, *more = nullptr;
    CUipcMemHandle handle;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
    driver().control()->gone = 1;
    {
        LogFile log(1);
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &more),
                  UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 4096, &handle),
                  UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
        EXPECT_EQ(allocated(), 0u);
        int32_t code = 0;
        EXPECT_EQ(native(&code), "CUDA_ERROR_DEINITIALIZED - driver shutting down");
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        provider = nullptr;
        EXPECT_EQ(log.text(), "");
    }
    driver().control()->gone = 0;
}

// The memory of a context ends with it. The driver must not get the handle of that context again.
TEST_F(Cuda, AfterTheContextIsDestroyed) {
    for (umf_usm_memory_type_t type : types) {
        CUcontext doomed = nullptr;
        CU(cuCtxCreate(&doomed, 0, 0));
        umfCUDAMemoryProviderParamsSetContext(params, doomed);
        create_of(type);
        CU(cuCtxPopCurrent(nullptr));
        void *ptr = nullptr, *more = nullptr;
        CUipcMemHandle handle;
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
        CU(cuCtxDestroy(doomed));
        {
            LogFile log(1);
            EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &more),
                      UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
            int32_t code = 0;
            EXPECT_EQ(native(&code), "CUDA_ERROR_CONTEXT_IS_DESTROYED - context is destroyed");
            EXPECT_EQ(code, CUDA_ERROR_CONTEXT_IS_DESTROYED);
            EXPECT_NE(umfMemoryProviderGetIPCHandle(provider, ptr, 4096, &handle), OK);
            EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
            EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), BAD);
            EXPECT_EQ(allocated(), 0u);
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
            provider = nullptr;
            EXPECT_EQ(log.count("ERROR"), 1u) << log.text(); // the second free
        }
        EXPECT_EQ(current(), context);
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->dead_uses, 0);
        }
    }
}

// The driver reuses the addresses of a destroyed context for the next one.
TEST_F(Cuda, WhatHasTheAddressNowIsNotFreed) {
    for (umf_usm_memory_type_t type : types) {
        CUcontext doomed = nullptr, next = nullptr;
        CU(cuCtxCreate(&doomed, 0, 0));
        umfCUDAMemoryProviderParamsSetContext(params, doomed);
        create_of(type);
        void *ptr = nullptr;
        CUdeviceptr others = 0;
        ASSERT_EQ(umfMemoryProviderAlloc(provider, 4 << 20, 0, &ptr), OK);
        CU(cuCtxDestroy(doomed));
        CU(cuCtxCreate(&next, 0, 0));
        void *witness = nullptr; // has the address of the provider's, most likely
        CU(cuMemHostAlloc(&witness, 1, 0));
        CU(cuMemAlloc(&others, 4 << 20));
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4 << 20), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        provider = nullptr;
        EXPECT_EQ(driver().cuMemFree(others), CUDA_SUCCESS);
        EXPECT_EQ(driver().cuMemFreeHost(witness), CUDA_SUCCESS);
        CU(cuCtxDestroy(next));
        EXPECT_EQ(current(), context);
    }
}

// Any other part of the program can reset a primary context.
TEST_F(Cuda, AfterThePrimaryContextIsReset) {
    CU(cuCtxSetCurrent(nullptr));
    umf_cuda_memory_provider_params_handle_t of_device = nullptr;
    ASSERT_EQ(umfCUDAMemoryProviderParamsCreate(&of_device), OK);
    umfCUDAMemoryProviderParamsSetMemoryType(of_device, UMF_MEMORY_TYPE_DEVICE);
    umfCUDAMemoryProviderParamsSetDevice(of_device, 0);
    ASSERT_EQ(umfMemoryProviderCreate(umfCUDAMemoryProviderOps(), of_device, &provider), OK);
    umfCUDAMemoryProviderParamsDestroy(of_device);
    void *ptr = nullptr, *more = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4 << 20, 0, &ptr), OK);
    CU(cuDevicePrimaryCtxReset(0));
    EXPECT_NE(umfMemoryProviderAlloc(provider, 4 << 20, 0, &more), OK);

    // Somebody else begins anew, at the same handle.
    CUcontext again = nullptr;
    CUdeviceptr others = 0;
    CU(cuDevicePrimaryCtxRetain(&again, 0));
    CU(cuCtxSetCurrent(again));
    CU(cuMemAlloc(&others, 4 << 20));
    EXPECT_NE(umfMemoryProviderAlloc(provider, 4 << 20, 0, &more), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4 << 20), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    provider = nullptr;
    EXPECT_EQ(driver().cuMemFree(others), CUDA_SUCCESS);
    CU(cuCtxSetCurrent(nullptr));
    CU(cuDevicePrimaryCtxRelease(0));
    unsigned flags;
    int active = 1;
    CU(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT_EQ(active, 0);
    if (!driver().is_real) {
        EXPECT_EQ(driver().control()->dead_uses, 0);
    }
    CU(cuCtxPushCurrent(context));
}

// The context is destroyed while it is current in the thread.
TEST_F(Cuda, ADestroyedContextStaysCurrent) {
    ASSERT_EQ(create(), OK);
    CUcontext doomed = nullptr;
    CU(cuCtxCreate(&doomed, 0, 0));
    CU(cuCtxPopCurrent(nullptr));
    std::atomic<int> step{0};
    std::thread thread([&] {
        EXPECT_EQ(driver().cuCtxSetCurrent(doomed), CUDA_SUCCESS);
        step = 1;
        while (step != 2) {
            std::this_thread::yield();
        }
        void *ptr = nullptr;
        EXPECT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
        EXPECT_EQ(current(), doomed);
        EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
        EXPECT_EQ(current(), doomed);
    });
    while (step != 1) {
        std::this_thread::yield();
    }
    CU(cuCtxDestroy(doomed));
    step = 2;
    thread.join();
    if (!driver().is_real) {
        EXPECT_EQ(driver().control()->dead_uses, 0);
    }
}

TEST_F(Cuda, AChildOfForkIsTold) {
    ASSERT_EQ(create(), OK);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        umfCtlSet("umf.logger.output", const_cast<char *>("stderr"), 7);
        void *ptr = nullptr;
        _exit(umfMemoryProviderAlloc(provider, 4096, 0, &ptr) == OK ? 1 : 0);
    }
    close(ends[1]);
    std::string text;
    char part[512];
    for (ssize_t n; (n = read(ends[0], part, sizeof(part))) > 0;) {
        text.append(part, static_cast<size_t>(n));
    }
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_NE(text.find("forked after it was initialised"), std::string::npos) << text;
}

TEST_F(Cuda, Properties) {
    for (umf_usm_memory_type_t type : types) {
        create_of(type);
        umf_memory_pool_handle_t pool = proxy_over(provider);
        void *ptr = umfPoolMalloc(pool, 4096);
        ASSERT_NE(ptr, nullptr);
        EXPECT_EQ(property<umf_usm_memory_type_t>(ptr, UMF_MEMORY_PROPERTY_POINTER_TYPE), type);
        EXPECT_EQ(property<CUcontext>(ptr, UMF_MEMORY_PROPERTY_CONTEXT), context);
        EXPECT_EQ(property<CUdevice>(ptr, UMF_MEMORY_PROPERTY_DEVICE), 0);
        umf_memory_properties_handle_t properties = properties_of(ptr);
        size_t size = 0;
        EXPECT_EQ(umfGetMemoryPropertySize(properties, UMF_MEMORY_PROPERTY_DEVICE, &size), OK);
        EXPECT_EQ(size, sizeof(CUdevice));
        EXPECT_EQ(
            umfGetMemoryPropertySize(properties, static_cast<umf_memory_property_id_t>(23), &size),
            BAD);
        EXPECT_EQ(umfFree(ptr), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        provider = nullptr;
    }
}

// The driver refuses that, so it is the very memory, which lives as long as it is open.
TEST_F(Cuda, OpensItsOwnHandlesInPlace) {
    ASSERT_EQ(create(), OK);
    void *ptr = nullptr, *first = nullptr, *second = nullptr;
    CUipcMemHandle handle;
    size_t before = 0, after = 0, total = 0;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4 << 20, 0, &ptr), OK);
    CU(cuMemGetInfo(&before, &total));
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 4 << 20, &handle), OK);
    ASSERT_EQ(umfMemoryProviderOpenIPCHandle(provider, &handle, &first), OK);
    ASSERT_EQ(umfMemoryProviderOpenIPCHandle(provider, &handle, &second), OK);
    EXPECT_EQ(first, ptr);
    EXPECT_EQ(second, ptr);
    CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(ptr), 7, 4 << 20));
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, first, 4 << 20), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4 << 20), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4 << 20), BAD);
    EXPECT_NE(umfMemoryProviderOpenIPCHandle(provider, &handle, &first), OK);
    EXPECT_EQ(allocated(), 0u);
    CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(second), 8, 4 << 20));
    CU(cuMemGetInfo(&after, &total));
    EXPECT_EQ(after, before);
    EXPECT_EQ(umfMemoryProviderCloseIPCHandle(provider, second, 4 << 20), OK);
    CU(cuMemGetInfo(&after, &total));
    EXPECT_GT(after, before);
    EXPECT_NE(umfMemoryProviderCloseIPCHandle(provider, second, 4 << 20), OK);
}

TEST_F(Cuda, IpcHandlesAreTheDrivers) {
    ASSERT_EQ(create(), OK);
    size_t size = 0;
    EXPECT_EQ(umfMemoryProviderGetIPCHandleSize(provider, &size), OK);
    EXPECT_EQ(size, sizeof(CUipcMemHandle));
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 2 << 20, 0, &ptr), OK);
    CUipcMemHandle handle, same;
    ASSERT_EQ(umfMemoryProviderGetIPCHandle(provider, ptr, 2 << 20, &handle), OK);
    CU(cuIpcGetMemHandle(&same, reinterpret_cast<CUdeviceptr>(ptr)));
    EXPECT_EQ(memcmp(&handle, &same, sizeof(handle)), 0);
    EXPECT_EQ(umfMemoryProviderPutIPCHandle(provider, &handle), OK);
    int local;
    EXPECT_NE(umfMemoryProviderGetIPCHandle(provider, &local, sizeof(local), &handle), OK);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 2 << 20), OK);
}

TEST_F(Cuda, FromText) {
    ASSERT_EQ(
        umfMemoryProviderCreateFromText("cuda:device=0,memory_type=host,name=pinned", &provider),
        OK)
        << umfTextError();
    const char *name = nullptr;
    ASSERT_EQ(umfMemoryProviderGetName(provider, &name), OK);
    EXPECT_STREQ(name, "pinned");
    void *ptr = nullptr;
    ASSERT_EQ(umfMemoryProviderAlloc(provider, 4096, 0, &ptr), OK);
    memset(ptr, 1, 4096);
    EXPECT_EQ(umfMemoryProviderFree(provider, ptr, 4096), OK);
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("disjoint over cuda", &pool), OK) << umfTextError();
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfPoolCreateFromText("disjoint over cuda:memory_type=fast", &pool), BAD);
}

// Metadata stays out of memory that the CPU cannot touch.
TEST_F(Cuda, ADisjointPoolOnDeviceMemory) {
    ASSERT_EQ(create(), OK);
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &pool), OK);
    std::vector<void *> blocks;
    for (size_t i = 0; i < 2000; i++) {
        void *ptr = umfPoolMalloc(pool, 64 << i % 12);
        ASSERT_NE(ptr, nullptr);
        CU(cuMemsetD8(reinterpret_cast<CUdeviceptr>(ptr), static_cast<unsigned char>(i), 64));
        blocks.push_back(ptr);
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        unsigned char value = 0;
        CU(cuMemcpyDtoH(&value, reinterpret_cast<CUdeviceptr>(blocks[i]) + 63, 1));
        EXPECT_EQ(value, static_cast<unsigned char>(i));
        umf_memory_pool_handle_t found = nullptr;
        EXPECT_EQ(umfPoolByPtr(blocks[i], &found), OK);
        EXPECT_EQ(found, pool);
        EXPECT_EQ(umfFree(blocks[i]), OK);
    }
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(allocated(), 0u);
}

TEST_F(Cuda, Threads) {
    ASSERT_EQ(create(), OK);
    std::atomic<int> failures{0};
    run_threads(4, [&](int) {
        for (int i = 0; i < 50; i++) {
            void *ptr = nullptr;
            failures += umfMemoryProviderAlloc(provider, 65536, 0, &ptr) != OK;
            failures += umfMemoryProviderFree(provider, ptr, 65536) != OK;
            failures += current() != nullptr;
        }
    });
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(allocated(), 0u);
}
