// Vaults, drafts and views that end with their scope.
#ifndef UMF_TEST_VAULT_OBJECTS_H
#define UMF_TEST_VAULT_OBJECTS_H

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <umf/memory_pool.h>
#include <umf/vault.h>

// Until `done` says so; false: it did not within 20 seconds.
inline bool until(const std::function<bool()> &done) {
    for (int i = 0; i < 20000; i++) {
        if (done()) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

// A vault that is closed at the end.
struct Vault {
    umf_vault_handle_t handle = nullptr;

    explicit Vault(const char *name = "model", uint64_t limit = 0, uint32_t keep = 0) {
        umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
        params.limit = limit;
        params.keep = keep;
        EXPECT_EQ(umfVaultOpen(name, &params, &handle), UMF_RESULT_SUCCESS);
    }
    ~Vault() {
        if (handle) {
            umfVaultClose(handle);
        }
    }
    Vault(const Vault &) = delete;
    Vault &operator=(const Vault &) = delete;

    umf_vault_stat_t stat() const {
        umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
        EXPECT_EQ(umfVaultStat(handle, &stat), UMF_RESULT_SUCCESS);
        return stat;
    }
};

// Content that encodes its generation and place.
inline unsigned char byte_of(uint64_t generation, size_t entry, size_t at) {
    return static_cast<unsigned char>(generation * 31 + entry * 7 + at / 251 + at);
}

inline std::string key_of(size_t i) {
    char key[32];
    snprintf(key, sizeof(key), "layers.%zu.weight", i);
    return key;
}

constexpr size_t entry_size = 40000;

// A draft with `count` entries of entry_size bytes.
struct Draft {
    umf_vault_draft_handle_t handle = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    umf_result_t begun;

    explicit Draft(const Vault &vault, const umf_vault_draft_params_t *params = nullptr,
                   const char *text = "coalescing over linux_vmm:piece_size=256K") {
        begun = umfVaultBegin(vault.handle, params, &handle);
        if (begun == UMF_RESULT_SUCCESS) {
            EXPECT_EQ(umfVaultDraftPool(handle, text, &pool), UMF_RESULT_SUCCESS);
        }
    }
    ~Draft() {
        if (handle) {
            umfVaultAbort(handle);
        }
    }
    Draft(const Draft &) = delete;
    Draft &operator=(const Draft &) = delete;

    unsigned char *put(const std::string &key, size_t size = entry_size, unsigned flags = 0) {
        auto *memory = static_cast<unsigned char *>(umfPoolMalloc(pool, size));
        EXPECT_NE(memory, nullptr);
        EXPECT_EQ(umfVaultPut(handle, key.c_str(), memory, size, key.data(), 3, flags),
                  UMF_RESULT_SUCCESS);
        return memory;
    }
    void fill(size_t count, uint64_t generation) {
        for (size_t i = 0; i < count; i++) {
            unsigned char *memory = put(key_of(i));
            for (size_t at = 0; at < entry_size; at++) {
                memory[at] = byte_of(generation, i, at);
            }
        }
    }
    umf_result_t commit(uint64_t *generation = nullptr,
                        const umf_vault_commit_params_t *params = nullptr) {
        umf_result_t result = umfVaultCommit(handle, params, generation);
        if (result == UMF_RESULT_SUCCESS) {
            handle = nullptr;
        }
        return result;
    }
};

inline uint64_t write_generation(const Vault &vault, size_t count, uint64_t seed) {
    Draft draft(vault);
    EXPECT_EQ(draft.begun, UMF_RESULT_SUCCESS);
    uint64_t generation = 0;
    draft.fill(count, seed);
    EXPECT_EQ(draft.commit(&generation), UMF_RESULT_SUCCESS);
    return generation;
}

struct View {
    umf_vault_view_handle_t handle = nullptr;
    umf_result_t attached;

    explicit View(const Vault &vault, uint64_t generation = 0, uint64_t timeout_ms = 0) {
        umf_vault_attach_params_t params = UMF_VAULT_ATTACH_PARAMS_INIT;
        params.generation = generation;
        params.timeout_ms = timeout_ms;
        attached = umfVaultAttach(vault.handle, &params, &handle);
    }
    ~View() {
        if (handle) {
            umfVaultDetach(handle);
        }
    }
    View(const View &) = delete;
    View &operator=(const View &) = delete;

    umf_vault_entry_t find(const std::string &key) const {
        umf_vault_entry_t entry = UMF_VAULT_ENTRY_INIT;
        umfVaultFind(handle, key.c_str(), &entry);
        return entry;
    }
    // How many bytes differ from those of a seed.
    size_t wrong(size_t count, uint64_t seed) const {
        size_t differ = 0;
        for (size_t i = 0; i < count; i++) {
            umf_vault_entry_t entry = find(key_of(i));
            if (entry.size != entry_size) {
                return SIZE_MAX;
            }
            const auto *memory = static_cast<const unsigned char *>(entry.ptr);
            for (size_t at = 0; at < entry_size; at++) {
                differ += memory[at] != byte_of(seed, i, at);
            }
        }
        return differ;
    }
};

#endif
