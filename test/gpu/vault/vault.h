// Memory of GPUs in vaults: content, views, and the fixture of the tests.
#ifndef UMF_TEST_GPU_VAULT_VAULT_H
#define UMF_TEST_GPU_VAULT_VAULT_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gpu.h"

#include <umf.h>
#include <umf/reason.h>
#include <umf/text.h>
#include <umf/umf.hpp>

#include "fakes/role.h"
#include "fakes/scale.h"
#include "fakes/sum.h"
#include "vault/service.h"

#include "ext/vault/table.h"

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t MiB = size_t{1} << 20;
constexpr size_t bytes_of_entry = (700 << 10) + 8;
constexpr const char *on_gpu = "coalescing over cuda_vmm:device=0";

// Calls that fail where a driver has no memory or no addresses left.
constexpr int needing[] = {FAKE_cuMemExportToShareableHandle,
                           FAKE_cuMemImportFromShareableHandle,
                           FAKE_cuMemAddressReserve,
                           FAKE_cuMemCreate,
                           FAKE_cuMemMap,
                           FAKE_cuMemSetAccess};

inline long open_files() {
    std::filesystem::directory_iterator first("/proc/self/fd"), end;
    return std::distance(first, end);
}

inline void start_cuda(int device = 0) {
    CUcontext context;
    driver().cuInit(0);
    driver().cuDevicePrimaryCtxRetain(&context, device);
    driver().cuCtxSetCurrent(context);
}

inline CUdeviceptr at(const void *ptr) {
    return reinterpret_cast<CUdeviceptr>(ptr);
}

// Made once: bytes cost much under sanitizers.
inline const std::vector<unsigned char> &pattern(uint64_t seed, size_t entry) {
    static std::map<std::pair<uint64_t, size_t>, std::vector<unsigned char>> made;
    std::vector<unsigned char> &content = made[{seed, entry}];
    while (content.size() < bytes_of_entry) {
        content.push_back(byte_of(seed, entry, content.size()));
    }
    return content;
}

inline bool has(const void *ptr, const std::vector<unsigned char> &content) {
    std::vector<unsigned char> seen(content.size());
    return ptr && driver().cuMemcpyDtoH(seen.data(), at(ptr), seen.size()) == CUDA_SUCCESS &&
           seen == content;
}

inline void *put(umf_vault_draft_handle_t draft, umf_memory_pool_handle_t pool,
                 const std::string &key, const std::vector<unsigned char> &content,
                 unsigned flags = 0) {
    void *memory = umfPoolMalloc(pool, content.size());
    EXPECT_NE(memory, nullptr);
    EXPECT_EQ(driver().cuMemcpyHtoD(at(memory), content.data(), content.size()), CUDA_SUCCESS);
    EXPECT_EQ(umfVaultPut(draft, key.c_str(), memory, content.size(), "f16", 3, flags), OK);
    return memory;
}

inline uint64_t write_on_gpu(const Vault &vault, size_t count, uint64_t seed,
                             const umf_vault_commit_params_t *params = nullptr) {
    Draft draft(vault, nullptr, on_gpu);
    uint64_t generation = 0;
    for (size_t i = 0; i < count; i++) {
        put(draft.handle, draft.pool, key_of(i), pattern(seed, i));
    }
    EXPECT_EQ(draft.commit(&generation, params), OK);
    return generation;
}

struct GpuView {
    umf_vault_view_handle_t handle = nullptr;
    umf_result_t attached;

    explicit GpuView(const Vault &vault, const char *devices = "cuda_vmm", uint64_t number = 0) {
        umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
        params.devices = devices;
        params.generation = number;
        attached = umfVaultAttach(vault.handle, &params, &handle);
    }
    ~GpuView() {
        if (handle) {
            EXPECT_EQ(umfVaultDetach(handle), OK);
        }
    }
    GpuView(const GpuView &) = delete;
    GpuView &operator=(const GpuView &) = delete;

    umf_vault_entry_t find(const std::string &key) const {
        umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
        umfVaultFind(handle, key.c_str(), &entry);
        return entry;
    }
    size_t wrong(size_t count, uint64_t seed) const {
        size_t differ = 0;
        for (size_t i = 0; i < count; i++) {
            differ += !has(find(key_of(i)).ptr, pattern(seed, i));
        }
        return differ;
    }
};

inline CUmemLocation on_device(int device) {
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    return location;
}

inline unsigned long long access_of(const void *ptr, int device = 0) {
    CUmemLocation location = on_device(device);
    unsigned long long flags = 99;
    EXPECT_EQ(driver().cuMemGetAccess(&flags, &location, at(ptr)), CUDA_SUCCESS);
    return flags;
}

inline std::string answer(umf_result_t result, umf_reason_t reason, size_t wrong) {
    return std::to_string(result) + " " + std::to_string(reason) + " " + std::to_string(wrong);
}

class VaultGpu : public Vaults {
  protected:
    void SetUp() override {
        Vaults::SetUp();
        if (!driver().is_real) {
            driver().reset();
        }
        start_cuda();
    }
    void TearDown() override {
        if (!driver().is_real) {
            EXPECT_STREQ(driver().faults(), "");
            EXPECT_EQ(driver().control()->unordered_unmaps, 0);
        }
        driver().cuDevicePrimaryCtxRelease(0);
        Vaults::TearDown();
    }
    static long objects() {
        return driver().is_real ? 0 : driver().control()->objects;
    }
};

#endif
