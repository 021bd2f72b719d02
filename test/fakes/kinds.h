/*
 * The kinds of the two lists, src/providers/providers.def and src/pools/pools.def, and how to make
 * one of each: a line added there needs an entry here and gets all conformance tests.
 */
#ifndef UMF_TEST_FAKES_KINDS_H
#define UMF_TEST_FAKES_KINDS_H

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/providers/provider_devdax_memory.h>
#include <umf/providers/provider_file_memory.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/providers/provider_level_zero.h>
#include <umf/providers/provider_level_zero_vmm.h>
#include <umf/providers/provider_linux_vmm.h>
#include <umf/providers/provider_os_memory.h>
#include <umf/text.h>

#include "fakes/calls.h"
#include "fakes/fake_provider.h"
#include "fakes/one_tbb.h"
#if UMF_WITH_CUDA
#include "gpu/gpu.h"
#endif
#if UMF_WITH_LEVEL_ZERO
#include "level_zero/level_zero.h"
#endif

struct Listed {
    const char *id, *name;
    bool available;
};

inline const std::vector<Listed> &listed_providers() {
    static const std::vector<Listed> list = {
#define UMF_PROVIDER(id, name, feature) {#id, name, UMF_WITH_##feature != 0},
#include "../../src/providers/providers.def"
#undef UMF_PROVIDER
    };
    return list;
}

inline const std::vector<Listed> &listed_pools() {
    static const std::vector<Listed> list = {
#define UMF_POOL(id, name, feature) {#id, name, UMF_WITH_##feature != 0},
#include "../../src/pools/pools.def"
#undef UMF_POOL
    };
    return list;
}

// A provider with what it stands on.
struct Source {
    umf_memory_provider_handle_t handle = nullptr;
    std::unique_ptr<FakeProvider> fake; // NULL unless it is one
    void *region = nullptr;             // of a fixed provider
    size_t region_size = 0;
    std::string path; // of a file provider; removed with it

    Source() = default;
    Source(const Source &) = delete;
    Source &operator=(const Source &) = delete;
    ~Source() {
        if (handle) {
            umfMemoryProviderDestroy(handle);
        }
        if (region) {
            munmap(region, region_size);
        }
        if (!path.empty()) {
            unlink(path.c_str());
        }
    }
    // Bytes that were taken and not given back.
    size_t live_bytes() {
        return fake ? fake->live_bytes() : allocated_of(handle);
    }
};

inline std::unique_ptr<Source> make_os(umf_memory_visibility_t visibility) {
    auto source = std::make_unique<Source>();
    umf_os_memory_provider_params_handle_t params = nullptr;
    umfOsMemoryProviderParamsCreate(&params);
    umfOsMemoryProviderParamsSetVisibility(params, visibility);
    umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &source->handle);
    umfOsMemoryProviderParamsDestroy(params);
    return source;
}

inline std::unique_ptr<Source> make_fixed(size_t size) {
    auto source = std::make_unique<Source>();
    source->region_size = size;
    source->region = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    umfFixedMemoryProviderParamsCreate(source->region, size, &params);
    umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &source->handle);
    umfFixedMemoryProviderParamsDestroy(params);
    return source;
}

// Not in /tmp, which may lie in memory.
inline std::string fresh_path() {
    static std::atomic<int> serial{0};
    const char *folder = getenv("TMPDIR");
    return std::string(folder ? folder : "/var/tmp") + "/umf_test_" + std::to_string(getpid()) +
           "_" + std::to_string(serial++);
}

inline std::unique_ptr<Source> make_file(umf_memory_visibility_t visibility) {
    auto source = std::make_unique<Source>();
    source->path = fresh_path();
    umf_file_memory_provider_params_handle_t params = nullptr;
    umfFileMemoryProviderParamsCreate(source->path.c_str(), &params);
    umfFileMemoryProviderParamsSetVisibility(params, visibility);
    umfMemoryProviderCreate(umfFileMemoryProviderOps(), params, &source->handle);
    umfFileMemoryProviderParamsDestroy(params);
    return source;
}

// Settings of a device to be tested, such as "path=/dev/dax0.0,size=1G"; NULL: there is none. What
// it holds is overwritten. unit.provider_devdax_kind sets it to a file in the place of a device.
inline const char *devdax_settings() {
    return getenv("UMF_TEST_DEVDAX");
}

inline std::unique_ptr<Source> make_devdax() {
    auto source = std::make_unique<Source>();
    umfMemoryProviderCreateFromText((std::string("devdax:") + devdax_settings()).c_str(),
                                    &source->handle);
    return source;
}

inline std::unique_ptr<Source> make_linux_vmm() {
    auto source = std::make_unique<Source>();
    umfMemoryProviderCreate(umfLinuxVmmMemoryProviderOps(), nullptr, &source->handle);
    return source;
}

#if UMF_WITH_CUDA
// On the software driver, whose memory the CPU can read and write, in the pages of this machine.
inline std::unique_ptr<Source> make_cuda_vmm() {
    static bool started = [] {
        driver().control()->granularity = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        driver().control()->device_memory[0] = size_t{1} << 36;
        return driver().cuInit(0) == CUDA_SUCCESS;
    }();
    auto source = std::make_unique<Source>();
    umf_cuda_vmm_memory_provider_params_handle_t params = nullptr;
    umfCUDAVmmMemoryProviderParamsCreate(0, &params);
    umfCUDAVmmMemoryProviderParamsSetPieceSize(params, 16u << 20);
    if (started) {
        umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &source->handle);
    }
    umfCUDAVmmMemoryProviderParamsDestroy(params);
    return source;
}
#endif

#if UMF_WITH_LEVEL_ZERO
// The same on the software Level Zero driver, behind the real loader.
inline std::unique_ptr<Source> make_level_zero(const char *text) {
    fake_ze_t *control = ze().control();
    control->touchable = 1;
    control->page_size = control->granularity = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    control->device_memory[0] = control->host_memory = size_t{1} << 36;
    auto source = std::make_unique<Source>();
    umfMemoryProviderCreateFromText(text, &source->handle);
    return source;
}
#endif

inline std::unique_ptr<Source> make_fake() {
    auto source = std::make_unique<Source>();
    source->fake = std::make_unique<FakeProvider>();
    source->fake->page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    source->handle = source->fake->create();
    return source;
}

// Why a kind in the list has no entry below, or NULL: such a kind has tests of its own.
inline const char *not_here(const std::string &id) {
    if (id == "devdax" && !devdax_settings()) {
        return "this machine has no such device";
    }
    if (id == "cuda" || id == "cuda_vmm") {
        return "the driver decides about alignments and sizes, the GPU writes: test/gpu";
    }
    return nullptr;
}

struct SourceKind {
    const char *label;
    const char *id; // in providers.def; "" for the user-written one
    const umf_memory_provider_ops_t *(*ops)();
    std::function<std::unique_ptr<Source>()> make;
    bool needs_params; // NULL parameters are refused
    bool is_coarse;    // cuts allocations out of a larger range
    bool can_split;
    bool purges_lazily, purges;
    umf_result_t ipc; // what its IPC operations answer to nonsense
    int32_t first_native_error;
    bool shares; // other processes can open the memory
};

inline std::ostream &operator<<(std::ostream &out, const SourceKind &kind) {
    return out << kind.label;
}

inline const umf_memory_provider_ops_t *fake_ops() {
    static const umf_memory_provider_ops_t ops = FakeProvider::table();
    return &ops;
}

inline const std::vector<SourceKind> &source_kinds() {
    constexpr size_t room = size_t{1} << 30;
    static const std::vector<SourceKind> kinds = [] {
        std::vector<SourceKind> list = {
            {"os", "os", umfOsMemoryProviderOps, [] { return make_os(UMF_MEM_MAP_PRIVATE); }, true,
             false, true, true, true, UMF_RESULT_ERROR_INVALID_ARGUMENT, UMF_OS_RESULTS_START_FROM,
             false},
            {"os_shared", "os", umfOsMemoryProviderOps, [] { return make_os(UMF_MEM_MAP_SHARED); },
             true, false, true, true, true, UMF_RESULT_ERROR_INVALID_ARGUMENT,
             UMF_OS_RESULTS_START_FROM, true},
            {"fixed", "fixed", umfFixedMemoryProviderOps, [] { return make_fixed(room); }, true,
             true, true, false, true, UMF_RESULT_ERROR_NOT_SUPPORTED, UMF_FIXED_RESULTS_START_FROM,
             false},
            {"file", "file", umfFileMemoryProviderOps,
             [] { return make_file(UMF_MEM_MAP_PRIVATE); }, true, true, true, false, true,
             UMF_RESULT_ERROR_INVALID_ARGUMENT, UMF_FILE_RESULTS_START_FROM, false},
            {"file_shared", "file", umfFileMemoryProviderOps,
             [] { return make_file(UMF_MEM_MAP_SHARED); }, true, true, true, false, true,
             UMF_RESULT_ERROR_INVALID_ARGUMENT, UMF_FILE_RESULTS_START_FROM, true},
            {"linux_vmm", "linux_vmm", umfLinuxVmmMemoryProviderOps,
             [] { return make_linux_vmm(); }, false, true, true, false, false,
             UMF_RESULT_ERROR_INVALID_ARGUMENT, 0, true},
            {"user", "", fake_ops, [] { return make_fake(); }, false, false, true, true, true,
             UMF_RESULT_ERROR_NOT_SUPPORTED, 4711, false},
        };
#if UMF_WITH_CUDA
        if (!driver().is_real) {
            list.push_back({"cuda_vmm", "cuda_vmm", umfCUDAVmmMemoryProviderOps,
                            [] { return make_cuda_vmm(); }, true, true, true, false, false,
                            UMF_RESULT_ERROR_INVALID_ARGUMENT, 0, false});
        }
#endif
#if UMF_WITH_LEVEL_ZERO
        if (!ze().is_real) {
            list.push_back({"level_zero", "level_zero", umfLevelZeroMemoryProviderOps,
                            [] { return make_level_zero("level_zero:memory_type=device"); }, true,
                            false, false, false, false, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                            ZE_RESULT_NOT_READY, true});
            list.push_back({"level_zero_shared", "level_zero", umfLevelZeroMemoryProviderOps,
                            [] { return make_level_zero("level_zero:memory_type=shared"); }, true,
                            false, false, false, false, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                            ZE_RESULT_NOT_READY, true});
            list.push_back({"level_zero_vmm", "level_zero_vmm", umfLevelZeroVmmMemoryProviderOps,
                            [] { return make_level_zero("level_zero_vmm:piece_size=16M"); }, true,
                            true, true, false, false, UMF_RESULT_ERROR_NOT_SUPPORTED,
                            ZE_RESULT_NOT_READY, false});
        }
#endif
        if (devdax_settings()) {
            list.push_back({"devdax", "devdax", umfDevDaxMemoryProviderOps,
                            [] { return make_devdax(); }, true, true, true, false, true,
                            UMF_RESULT_ERROR_INVALID_ARGUMENT, UMF_DEVDAX_RESULTS_START_FROM,
                            true});
        }
        return list;
    }();
    return kinds;
}

struct PoolKind {
    const char *id;
    const umf_memory_pool_ops_t *(*ops)();
    bool callocs, reallocs, tells_size, trims;
    bool is_built_on;    // another allocator with its own sizes, and with its own ideas about when
                         // memory goes back to the provider
    bool touches_memory; // the provider's, for its own data
    size_t most = SIZE_MAX; // so many pools can exist at least
};

// A jemalloc pool needs a provider that can split.
inline bool fits(const PoolKind &pool, const SourceKind &source) {
    return source.can_split || std::string(pool.id) != "jemalloc";
}
#define NEEDS_TO_FIT(pool, source)                                                                 \
    if (!fits(pool, source)) {                                                                     \
        GTEST_SKIP() << "a jemalloc pool needs a provider that can split allocations";             \
    }

inline std::ostream &operator<<(std::ostream &out, const PoolKind &kind) {
    return out << kind.id;
}

inline const std::vector<PoolKind> &pool_kinds() {
    static const std::vector<PoolKind> kinds = [] {
        std::vector<PoolKind> list = {
            {"proxy", umfProxyPoolOps, false, false, false, false, false, false},
            {"disjoint", umfDisjointPoolOps, false, false, true, true, false, false},
            {"coalescing", umfCoalescingPoolOps, true, true, true, true, true, false},
        };
        if (has_one_tbb()) {
            list.push_back(
                {"scalable", umfScalablePoolOps, true, true, true, true, true, true, 900});
        }
        if (UMF_WITH_JEMALLOC) {
            list.push_back({"jemalloc", umfJemallocPoolOps, true, true, true, true, true, false});
        }
        return list;
    }();
    return kinds;
}

inline size_t alloc_count(umf_memory_pool_handle_t pool) {
    size_t count = SIZE_MAX;
    umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool);
    return count;
}

#endif
