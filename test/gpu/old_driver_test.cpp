// A driver that is too old for a function: the feature that needs it is unavailable and says so,
// and nothing else is. Each driver is looked at in a process of its own, because the library looks
// for the driver once.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include <gtest/gtest.h>

#include "fakes/cuda/fake_cuda.h"
#include "fakes/cuda/path.h"

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_cuda.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr umf_result_t MISSING = UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
constexpr size_t MiB = size_t{1} << 20;

// Mistakes that the child finds, and the log of the library.
struct Outcome {
    std::string wrong, log;
};

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(wrong, "%d: %s\n", __LINE__, #condition);                                      \
        }                                                                                          \
    } while (0)

std::string read_all(FILE *file) {
    std::string text;
    char part[4096];
    rewind(file);
    while (size_t n = fread(part, 1, sizeof(part), file)) {
        text.append(part, n);
    }
    fclose(file);
    return text;
}

// `body` runs on a software driver without the functions `hidden`.
Outcome on_driver_without(const char *hidden, const std::function<void(int wrong)> &body) {
    FILE *wrong = tmpfile(), *log = tmpfile();
    pid_t child = fork();
    if (child == 0) {
        dup2(fileno(log), 2);
        setenv("UMF_FAKE_CUDA_HIDE", hidden, 1);
        umfCtlSet("umf.logger.output", const_cast<char *>("stderr"), 7);
        if (!dlopen(fake_cuda_path(), RTLD_NOW | RTLD_GLOBAL)) {
            dprintf(fileno(wrong), "%s\n", dlerror());
        }
        body(fileno(wrong));
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    Outcome outcome{read_all(wrong), read_all(log)};
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        outcome.wrong += "the child ended with status " + std::to_string(status) + "\n";
    }
    return outcome;
}

template <class Function> void find(const char *symbol, Function *function) {
    void *address = dlsym(RTLD_DEFAULT, symbol);
    memcpy(function, &address, sizeof(address));
}

umf_result_t make_cuda(umf_memory_provider_handle_t *provider, void *context = nullptr) {
    umf_cuda_memory_provider_params_handle_t params = nullptr;
    umf_result_t result = umfCUDAMemoryProviderParamsCreate(&params);
    if (result != OK) {
        return result;
    }
    umfCUDAMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE);
    umfCUDAMemoryProviderParamsSetDevice(params, 0);
    if (context) {
        umfCUDAMemoryProviderParamsSetContext(params, context);
    }
    result = umfMemoryProviderCreate(umfCUDAMemoryProviderOps(), params, provider);
    umfCUDAMemoryProviderParamsDestroy(params);
    return result;
}

umf_result_t make_vmm(umf_memory_provider_handle_t *provider,
                      umf_cuda_vmm_share_t share = UMF_CUDA_VMM_SHARE_NONE, void *context = nullptr,
                      int per_thread = 0) {
    umf_cuda_vmm_memory_provider_params_handle_t params = nullptr;
    umfCUDAVmmMemoryProviderParamsCreate(0, &params);
    umfCUDAVmmMemoryProviderParamsSetShare(params, share);
    umfCUDAVmmMemoryProviderParamsSetContext(params, context);
    umfCUDAVmmMemoryProviderParamsSetPerThreadStream(params, per_thread);
    umf_result_t result = umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, provider);
    umfCUDAVmmMemoryProviderParamsDestroy(params);
    return result;
}

umf_result_t use(umf_memory_provider_handle_t provider) {
    void *ptr = nullptr;
    umf_result_t result = umfMemoryProviderAlloc(provider, 4 * MiB, 0, &ptr);
    return result != OK ? result : umfMemoryProviderFree(provider, ptr, 4 * MiB);
}

// Sleeps and wakes.
umf_result_t use_suspended(umf_memory_provider_handle_t provider,
                           const umf_suspend_policy_t *policy) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_result_t result = umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool);
    if (result != OK) {
        return result;
    }
    void *ptr = umfPoolMalloc(pool, 4 * MiB);
    if (policy) {
        result = umfPoolSetSuspendPolicy(pool, policy);
    }
    if (result == OK) {
        result = umfPoolsSuspend(&pool, 1, nullptr, nullptr);
    }
    if (result == OK) {
        result = umfPoolsResume(&pool, 1, nullptr, nullptr);
    }
    umfPoolFree(pool, ptr);
    umfPoolDestroy(pool);
    return result;
}

// All that a new driver can.
void use_all(int wrong) {
    umf_memory_provider_handle_t provider = nullptr;
    MUST(make_cuda(&provider) == OK);
    MUST(use(provider) == OK);
    MUST(umfMemoryProviderDestroy(provider) == OK);
    MUST(make_vmm(&provider, UMF_CUDA_VMM_SHARE_FD) == OK);
    MUST(use(provider) == OK);
    MUST(use_suspended(provider, nullptr) == OK);
    MUST(umfMemoryProviderDestroy(provider) == OK);
}

void *make_context() {
    PFN_cuInit_v2000 start;
    PFN_cuCtxCreate_v3020 create;
    CUcontext context = nullptr;
    find("cuInit", &start);
    find("cuCtxCreate_v2", &create);
    return start && create && start(0) == 0 && create(&context, 0, 0) == 0 ? context : nullptr;
}

class OldDriver : public testing::Test {
  protected:
    void SetUp() override {
        const char *wish = getenv("UMF_TEST_GPU");
        if (wish && strcmp(wish, "real") == 0) {
            GTEST_SKIP() << "an older driver is a matter for the software driver";
        }
    }
};

#define EXPECT_GOOD(outcome) EXPECT_EQ((outcome).wrong, "") << (outcome).log
#define EXPECT_LOG(outcome, what)                                                                  \
    EXPECT_NE((outcome).log.find(what), std::string::npos) << (outcome).log

} // namespace

TEST_F(OldDriver, NothingIsMissing) {
    Outcome outcome = on_driver_without("", use_all);
    EXPECT_GOOD(outcome);
    EXPECT_EQ(outcome.log, "");
}

// Before 11.3 all symbols come from the library itself.
TEST_F(OldDriver, NoProcAddress) {
    Outcome outcome = on_driver_without("cuGetProcAddress", [](int wrong) {
        use_all(wrong);
        // The forms for the default stream of the thread, too.
        umf_memory_provider_handle_t provider = nullptr;
        MUST(make_vmm(&provider, UMF_CUDA_VMM_SHARE_NONE, nullptr, 1) == OK);
        MUST(use_suspended(provider, nullptr) == OK);
        MUST(umfMemoryProviderDestroy(provider) == OK);
    });
    EXPECT_GOOD(outcome);
    EXPECT_EQ(outcome.log, "");
}

TEST_F(OldDriver, WhatTheProviderCannotDoWithout) {
    for (const char *function :
         {"cuMemAlloc", "cuMemHostAlloc", "cuMemAllocManaged", "cuMemFree", "cuMemFreeHost",
          "cuCtxSetCurrent", "cuIpcOpenMemHandle", "cuMemGetAllocationGranularity"}) {
        Outcome outcome = on_driver_without(function, [](int wrong) {
            umf_memory_provider_handle_t provider = nullptr;
            umf_cuda_memory_provider_params_handle_t params = nullptr;
            MUST(umfCUDAMemoryProviderParamsCreate(&params) == MISSING);
            MUST(make_vmm(&provider) == MISSING);
            MUST(umfMemoryProviderCreateFromText("cuda", &provider) == MISSING);
        });
        EXPECT_GOOD(outcome) << function;
        EXPECT_LOG(outcome, std::string("libcuda.so.1 has no function ") + function +
                                ": install a newer NVIDIA driver");
    }
}

// Virtual memory came with 10.2: cuda works without.
TEST_F(OldDriver, NoVirtualMemory) {
    for (const char *function :
         {"cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemMap",
          "cuMemUnmap", "cuMemSetAccess", "cuMemcpyAsync", "cuMemsetD8Async", "cuStreamCreate",
          "cuStreamDestroy", "cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize",
          "cuDeviceGetAttribute"}) {
        Outcome outcome = on_driver_without(function, [](int wrong) {
            umf_memory_provider_handle_t provider = nullptr;
            MUST(make_vmm(&provider) == MISSING);
            MUST(make_cuda(&provider) == OK);
            MUST(use(provider) == OK);
            MUST(umfMemoryProviderDestroy(provider) == OK);
        });
        EXPECT_GOOD(outcome) << function;
        EXPECT_LOG(outcome, std::string("too old for virtual memory, it has no ") + function +
                                ": install a newer one, or use the provider \"cuda\"");
    }
}

TEST_F(OldDriver, NoSharingOfVirtualMemory) {
    for (const char *function :
         {"cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"}) {
        Outcome outcome = on_driver_without(function, [](int wrong) {
            umf_memory_provider_handle_t provider = nullptr;
            MUST(make_vmm(&provider, UMF_CUDA_VMM_SHARE_FD) == NONE);
            MUST(make_vmm(&provider, UMF_CUDA_VMM_SHARE_FABRIC) == NONE);
            MUST(make_vmm(&provider) == OK);
            MUST(use(provider) == OK);
            MUST(use_suspended(provider, nullptr) == OK);
            MUST(umfMemoryProviderDestroy(provider) == OK);
        });
        EXPECT_GOOD(outcome) << function;
        EXPECT_LOG(outcome, std::string("too old to share memory, it has no ") + function);
    }
}

TEST_F(OldDriver, NoPrimaryContexts) {
    for (const char *function : {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease"}) {
        Outcome outcome = on_driver_without(function, [](int wrong) {
            umf_memory_provider_handle_t provider = nullptr;
            MUST(make_cuda(&provider) == MISSING);
            MUST(make_vmm(&provider) == MISSING);
            void *context = make_context();
            MUST(make_cuda(&provider, context) == OK);
            MUST(use(provider) == OK);
            MUST(umfMemoryProviderDestroy(provider) == OK);
            MUST(make_vmm(&provider, UMF_CUDA_VMM_SHARE_NONE, context) == OK);
            MUST(use(provider) == OK);
            MUST(use_suspended(provider, nullptr) == OK);
            MUST(umfMemoryProviderDestroy(provider) == OK);
        });
        EXPECT_GOOD(outcome) << function;
        EXPECT_LOG(outcome, "too old for primary contexts: give the provider a context");
    }
}

// Content is kept in memory that is not pinned.
TEST_F(OldDriver, NoPinningOfHostMemory) {
    for (const char *function : {"cuMemHostRegister", "cuMemHostUnregister"}) {
        Outcome outcome = on_driver_without(function, use_all);
        EXPECT_GOOD(outcome) << function;
    }
}

TEST_F(OldDriver, NoPeerAccess) {
    Outcome outcome = on_driver_without("cuDeviceCanAccessPeer", [](int wrong) {
        umf_memory_provider_handle_t provider = nullptr;
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = UMF_SUSPEND_KEEP_PEER;
        policy.device = 1;
        MUST(make_vmm(&provider) == OK);
        MUST(use_suspended(provider, &policy) == NONE);
        MUST(use_suspended(provider, nullptr) == OK);
        MUST(umfMemoryProviderDestroy(provider) == OK);
    });
    EXPECT_GOOD(outcome);
    EXPECT_LOG(outcome, "device 0 cannot reach device 1");
}

// The provider cuda allocates; calloc of a pool, which fills the memory, names the missing
// function.
TEST_F(OldDriver, NoCopies) {
    for (const char *function : {"cuStreamCreate", "cuStreamDestroy", "cuStreamSynchronize",
                                 "cuMemcpyAsync", "cuMemsetD8Async"}) {
        Outcome outcome = on_driver_without(function, [](int wrong) {
            umf_memory_provider_handle_t provider = nullptr;
            umf_memory_pool_handle_t pool = nullptr;
            MUST(make_cuda(&provider) == OK);
            MUST(umfPoolCreateFromText("coalescing over cuda", &pool) == OK);
            void *ptr = umfPoolMalloc(pool, 1000);
            MUST(ptr != nullptr);
            MUST(umfPoolCalloc(pool, 10, 100) == nullptr);
            MUST(umfPoolFree(pool, ptr) == OK);
            MUST(umfPoolDestroy(pool) == OK);
            MUST(umfMemoryProviderDestroy(provider) == OK);
        });
        EXPECT_GOOD(outcome) << function;
        EXPECT_LOG(outcome, "this CUDA driver is too old to copy memory for the provider");
    }
}

// Without a stack of contexts they are set and set back; without numbers of memory a context is
// taken to live.
TEST_F(OldDriver, NoStackOfContexts) {
    for (const char *function :
         {"cuCtxPushCurrent", "cuCtxPopCurrent", "cuPointerGetAttribute", "cuDeviceGetCount"}) {
        Outcome outcome = on_driver_without(function, [](int wrong) {
            void *context = make_context();
            CUcontext now = nullptr;
            PFN_cuCtxGetCurrent_v4000 get_current;
            find("cuCtxGetCurrent", &get_current);
            use_all(wrong);
            MUST(get_current(&now) == 0 && now == context && now != nullptr);
        });
        EXPECT_GOOD(outcome) << function;
    }
}

// The library loads the driver's library alone, and nothing of the CUDA runtime.
TEST_F(OldDriver, NoRuntimeIsLoaded) {
    Outcome outcome = on_driver_without("", [](int wrong) {
        use_all(wrong);
        std::ifstream maps("/proc/self/maps");
        std::stringstream all;
        all << maps.rdbuf();
        MUST(all.str().find("libcuda.so.1") != std::string::npos);
        MUST(all.str().find("libcudart") == std::string::npos);
        MUST(all.str().find("libnvidia") == std::string::npos);
    });
    EXPECT_GOOD(outcome);
}

// At the end of a process the driver shuts down before the program has destroyed its pools and
// providers.
TEST_F(OldDriver, EndsBeforeTheProgramDoes) {
    static umf_memory_provider_handle_t providers[3];
    static umf_memory_pool_handle_t pools[3];
    Outcome outcome = on_driver_without("", [](int wrong) {
        fake_cuda_t *(*control)() = nullptr;
        find("fake_cuda", &control);
        MUST(make_cuda(&providers[0]) == OK);
        MUST(make_vmm(&providers[1]) == OK);
        MUST(make_vmm(&providers[2]) == OK);
        for (int i = 0; i < 3; i++) {
            umfPoolCreate(i == 0 ? umfDisjointPoolOps() : umfProxyPoolOps(), providers[i], nullptr,
                          0, &pools[i]);
            MUST(umfPoolMalloc(pools[i], 4 * MiB) != nullptr);
        }
        MUST(umfPoolsSuspend(&pools[2], 1, nullptr, nullptr) == OK);
        static int errors = wrong;
        atexit([] {
            void *ptr = umfPoolMalloc(pools[0], 100 * MiB);
            if (ptr) {
                dprintf(errors, "memory of a driver that is gone\n");
            }
            for (int i = 0; i < 3; i++) {
                if (umfPoolDestroy(pools[i]) != OK ||
                    umfMemoryProviderDestroy(providers[i]) != OK) {
                    dprintf(errors, "%d is not destroyed\n", i);
                }
            }
        });
        control()->gone = 1;
        exit(0);
    });
    EXPECT_GOOD(outcome);
    EXPECT_EQ(outcome.log, "");
}
