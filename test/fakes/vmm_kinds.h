/*
 * Providers of virtual memory for the tests of suspend and resume: how to make one, how to look at
 * its memory, how much of it there is.
 */
#ifndef UMF_TEST_FAKES_VMM_KINDS_H
#define UMF_TEST_FAKES_VMM_KINDS_H

#include <cstdio>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <dirent.h>
#include <unistd.h>

#include <umf/memory_provider.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/providers/provider_level_zero_vmm.h>
#include <umf/providers/provider_linux_vmm.h>

#if UMF_WITH_CUDA
#include "gpu/gpu.h"
#endif
#if UMF_WITH_LEVEL_ZERO
#include "level_zero/level_zero.h"
#endif

struct VmmKind {
    const char *name;
    bool has_peer;                      // memory of another device can keep content
    std::function<std::string()> start; // "" or why it cannot be tested here
    std::function<void()> stop;
    std::function<umf_memory_provider_handle_t(size_t piece_size)> create; // 0: the default
    std::function<void(void *to, const void *from, size_t size)> write;
    std::function<void(void *to, const void *from, size_t size)> read;
    std::function<size_t()> held;   // physical memory of providers, in any unit
    std::function<size_t()> pinned; // bytes of the host
    // The n-th next call of the driver fails; 0: none does. Tells whether the last one was reached.
    std::function<bool(long n)> fail;
    std::function<bool(long n)> fail_from;   // and all after it, until there is none
    std::function<void(size_t bytes)> limit; // of the device's memory
    std::function<void()> enter = [] {};     // by each other thread that writes and reads
};

inline std::ostream &operator<<(std::ostream &out, const VmmKind *kind) {
    return out << kind->name;
}

// Each piece with memory is one memory file.
inline size_t count_memory_files() {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (dirent *entry = folder ? readdir(folder) : nullptr) {
        char target[256] = "";
        std::string path = std::string("/proc/self/fd/") + entry->d_name;
        ssize_t length = readlink(path.c_str(), target, sizeof(target) - 1);
        count += length > 0 && strstr(target, "umf_vmm") != nullptr;
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

inline umf_memory_provider_handle_t create_linux_vmm(size_t piece_size) {
    umf_linux_vmm_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umfLinuxVmmMemoryProviderParamsCreate(&params);
    if (piece_size) {
        umfLinuxVmmMemoryProviderParamsSetPieceSize(params, piece_size);
    }
    umfMemoryProviderCreate(umfLinuxVmmMemoryProviderOps(), params, &provider);
    umfLinuxVmmMemoryProviderParamsDestroy(params);
    return provider;
}

#if UMF_WITH_CUDA

inline CUcontext &cuda_vmm_context() {
    static CUcontext context;
    return context;
}

// The driver keeps what it once took for streams: it takes it before memory is compared.
inline void warm_cuda_streams() {
    CUstream streams[16] = {};
    for (CUstream &stream : streams) {
        driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    }
    for (CUstream &stream : streams) {
        driver().cuStreamDestroy(stream);
    }
}

// A context of device 0, which the provider shares with the test.
inline std::string start_cuda_vmm() {
    if (!driver().is_real) {
        driver().reset();
        driver().control()->granularity = 64 << 10; // so that tests need not use much memory
    }
    driver().cuInit(0);
    driver().cuDevicePrimaryCtxRetain(&cuda_vmm_context(), 0);
    driver().cuCtxSetCurrent(cuda_vmm_context());
    warm_cuda_streams();
    return "";
}

inline void stop_cuda_vmm() {
    if (!driver().is_real) {
        EXPECT_STREQ(driver().faults(), "");
        EXPECT_EQ(driver().control()->unordered_unmaps, 0);
    }
    driver().cuCtxSetCurrent(nullptr);
    driver().cuDevicePrimaryCtxRelease(0);
}

inline umf_memory_provider_handle_t create_cuda_vmm(size_t piece_size) {
    umf_cuda_vmm_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umfCUDAVmmMemoryProviderParamsCreate(0, &params);
    if (piece_size) {
        umfCUDAVmmMemoryProviderParamsSetPieceSize(params, piece_size);
    }
    umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &provider);
    umfCUDAVmmMemoryProviderParamsDestroy(params);
    return provider;
}

inline void write_cuda(void *to, const void *from, size_t size) {
    if (driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(to), from, size) != CUDA_SUCCESS) {
        ADD_FAILURE() << "writing " << size << " bytes";
    }
}

inline void read_cuda(void *to, const void *from, size_t size) {
    if (driver().cuMemcpyDtoH(to, reinterpret_cast<CUdeviceptr>(from), size) != CUDA_SUCCESS) {
        ADD_FAILURE() << "reading " << size << " bytes";
    }
}

inline size_t held_cuda() {
    size_t free = 0, total = 0;
    driver().cuMemGetInfo(&free, &total);
    return total - free;
}

inline size_t pinned_cuda() {
    return driver().is_real ? 0 : driver().control()->registered;
}

inline bool fail_cuda(long n) {
    return fail_calls(driver().control(), CUDA_ERROR_UNKNOWN, n, false);
}

inline bool fail_from_cuda(long n) {
    return fail_calls(driver().control(), CUDA_ERROR_UNKNOWN, n, true);
}

inline void limit_cuda(size_t bytes) {
    driver().control()->device_memory[0] = bytes == SIZE_MAX ? size_t{1} << 30 : bytes;
}

inline bool has_second_gpu() {
    int count = 0, can = 0;
    driver().cuInit(0);
    driver().cuDeviceGetCount(&count);
    return count > 1 && driver().cuDeviceCanAccessPeer(&can, 0, 1) == CUDA_SUCCESS && can;
}

#endif

#if UMF_WITH_LEVEL_ZERO

struct LevelZeroPlace {
    ze_driver_handle_t driver = nullptr;
    ze_device_handle_t device = nullptr;
    ze_context_handle_t context = nullptr;
    ze_command_list_handle_t list = nullptr; // for reads of the test
};

inline LevelZeroPlace &level_zero_vmm_place() {
    static LevelZeroPlace place;
    return place;
}

inline std::string start_level_zero_vmm() {
    static const std::string missing = ze_is_missing();
    if (!missing.empty()) {
        return missing;
    }
    if (ze().is_real) {
        return "only the software driver reports the memory held";
    }
    LevelZeroPlace &place = level_zero_vmm_place();
    ze().reset();
    ze().control()->granularity = 64 << 10; // so that tests need not use much memory
    uint32_t one = 1;
    ze_context_desc_t for_context = {};
    for_context.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC;
    ze_command_queue_desc_t for_list = {};
    for_list.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    for_list.mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    bool is_started =
        ze().zeDriverGet(&one, &place.driver) == ZE_RESULT_SUCCESS &&
        ze().zeDeviceGet(place.driver, &one, &place.device) == ZE_RESULT_SUCCESS &&
        ze().zeContextCreate(place.driver, &for_context, &place.context) == ZE_RESULT_SUCCESS &&
        ze().zeCommandListCreateImmediate(place.context, place.device, &for_list, &place.list) ==
            ZE_RESULT_SUCCESS;
    return is_started ? "" : "Level Zero does not start";
}

// Memory whose release failed may be there still, and then its context, too; nothing else.
inline void stop_level_zero_vmm() {
    long refused = ze().control()->refused;
    EXPECT_EQ(ze().zeCommandListDestroy(level_zero_vmm_place().list), ZE_RESULT_SUCCESS);
    if (ze().zeContextDestroy(level_zero_vmm_place().context) != ZE_RESULT_SUCCESS) {
        EXPECT_GT(refused, 0);
        EXPECT_LE(ze().alive(), refused + 1);
    } else {
        EXPECT_EQ(ze().alive(), 0);
    }
    EXPECT_EQ(ze().control()->unordered_frees, 0);
    EXPECT_EQ(ze().control()->illegal_accesses, 0);
    ze().reset();
}

inline umf_memory_provider_handle_t create_level_zero_vmm(size_t piece_size) {
    umf_level_zero_vmm_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umfLevelZeroVmmMemoryProviderParamsCreate(&params);
    umfLevelZeroVmmMemoryProviderParamsSetContext(params, level_zero_vmm_place().context,
                                                  level_zero_vmm_place().device);
    if (piece_size) {
        umfLevelZeroVmmMemoryProviderParamsSetPieceSize(params, piece_size);
    }
    umfMemoryProviderCreate(umfLevelZeroVmmMemoryProviderOps(), params, &provider);
    umfLevelZeroVmmMemoryProviderParamsDestroy(params);
    return provider;
}

inline void copy_level_zero(void *to, const void *from, size_t size) {
    if (ze().zeCommandListAppendMemoryCopy(level_zero_vmm_place().list, to, from, size, nullptr, 0,
                                           nullptr) != ZE_RESULT_SUCCESS) {
        ADD_FAILURE() << "copying " << size << " bytes";
    }
}

inline size_t held_level_zero() {
    return ze().control()->used[0];
}

inline bool fail_level_zero(long n) {
    return fail_calls(ze().control(), ZE_RESULT_ERROR_UNKNOWN, n, false);
}

inline bool fail_from_level_zero(long n) {
    return fail_calls(ze().control(), ZE_RESULT_ERROR_UNKNOWN, n, true);
}

inline void limit_level_zero(size_t bytes) {
    ze().control()->device_memory[0] = bytes == SIZE_MAX ? size_t{1} << 30 : bytes;
}

#endif

inline std::vector<const VmmKind *> vmm_kinds() {
    std::vector<const VmmKind *> kinds;
    static const VmmKind linux_vmm = {
        "linux_vmm",
        false,
        [] { return std::string(); },
        [] {},
        create_linux_vmm,
        memcpy,
        memcpy,
        count_memory_files,
        [] { return size_t{0}; },
        nullptr,
        nullptr,
        nullptr,
    };
    kinds.push_back(&linux_vmm);
#if UMF_WITH_CUDA
    static const VmmKind cuda_vmm = {
        "cuda_vmm",
        has_second_gpu(),
        start_cuda_vmm,
        stop_cuda_vmm,
        create_cuda_vmm,
        write_cuda,
        read_cuda,
        held_cuda,
        pinned_cuda,
        driver().is_real ? std::function<bool(long)>() : fail_cuda,
        driver().is_real ? std::function<bool(long)>() : fail_from_cuda,
        driver().is_real ? std::function<void(size_t)>() : limit_cuda,
        [] { driver().cuCtxSetCurrent(cuda_vmm_context()); },
    };
    kinds.push_back(&cuda_vmm);
#endif
#if UMF_WITH_LEVEL_ZERO
    static const VmmKind level_zero_vmm = {
        "level_zero_vmm",         true,
        start_level_zero_vmm,     stop_level_zero_vmm,
        create_level_zero_vmm,    copy_level_zero,
        copy_level_zero,          held_level_zero,
        [] { return size_t{0}; }, fail_level_zero,
        fail_from_level_zero,     limit_level_zero,
    };
    kinds.push_back(&level_zero_vmm);
#endif
    return kinds;
}

#endif
