// Generations whose memory of devices has copies, in memory of the host or in a folder.
#ifndef UMF_TEST_GPU_VAULT_COPIES_H
#define UMF_TEST_GPU_VAULT_COPIES_H

#include "gpu/vault/vault.h"

constexpr const char *pieces = "proxy over cuda_vmm:device=0,piece_size=2M"; // one an entry

class VaultGpuCopies : public VaultGpu {
  protected:
    // A generation of `count` pieces with copies, whose writer has closed its vault.
    static void write(bool is_evicted, bool has_private = false, int digest = 1,
                      const char *folder = nullptr) {
        Vault vault("model", 0, 5);
        {
            Draft draft(vault, nullptr, pieces);
            umf_memory_pool_handle_t own;
            EXPECT_EQ(umfVaultDraftPool(draft.handle, pieces, &own), OK);
            for (size_t i = 0; i < count; i++) {
                put(draft.handle, draft.pool, key_of(i), pattern(1, i));
            }
            if (has_private) {
                put(draft.handle, own, "own", pattern(1, 9), UMF_VAULT_PRIVATE);
            }
            umf_vault_commit_params_t commit = UMF_VAULT_COMMIT_PARAMS_INIT;
            commit.digest = 1;
            EXPECT_EQ(draft.commit(nullptr, &commit), OK);
        }
        umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
        params.digest = digest;
        params.folder = folder;
        EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK) << umfLastErrorText();
        if (is_evicted) {
            EXPECT_EQ(umfVaultEvict(vault.handle, 0), OK) << umfLastErrorText();
        }
    }
    static void expect_whole(uint64_t number = 0) {
        Vault vault;
        GpuView view(vault, "cuda_vmm", number);
        ASSERT_EQ(view.attached, OK) << umfLastErrorText();
        EXPECT_EQ(view.wrong(count, 1), 0u);
        EXPECT_EQ(access_of(view.find(key_of(0)).ptr), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
    }
    static std::vector<int> events(const Vault &vault) {
        std::vector<int> types;
        umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
        while (umfVaultWait(vault.handle, event.number, 0, &event) == OK) {
            types.push_back(event.type);
        }
        return types;
    }
    // Generations of a vault in a folder; nullptr: none.
    static uint64_t files_in(const char *folder) {
        return folder ? Vault(("file:" + std::string(folder)).c_str()).stat().generations : 0;
    }
    void calls_fail_in_a_refill(const char *folder) {
        NEEDS_FAKE()
        ONE_THREAD_ONLY()
        write(true, false, 1, folder);
        Vault vault;
        GpuView(vault).wrong(1, 1); // the providers are there
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
        long before = objects(), files = open_files();
        for (int function : {FAKE_cuMemExportToShareableHandle, FAKE_cuMemCreate,
                             FAKE_cuMemAddressReserve, FAKE_cuMemMap, FAKE_cuMemSetAccess,
                             FAKE_cuStreamCreate, FAKE_cuMemcpyAsync, FAKE_cuStreamSynchronize}) {
            for (long n = 1, is_reached = 1; is_reached; n++) {
                fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
                {
                    GpuView view(vault);
                    is_reached = driver().control()->fail_at == 0;
                    driver().control()->fail_at = 0;
                    if (view.attached == OK) {
                        EXPECT_EQ(view.wrong(count, 1), 0u) << function << " " << n;
                    } else { // nothing half made
                        uint64_t bytes = vault.stat().device_bytes;
                        EXPECT_TRUE(bytes == 0 || bytes == count * 2 * MiB) << function << " " << n;
                    }
                }
                EXPECT_EQ(GpuView(vault).wrong(count, 1), 0u) << function << " " << n;
                ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK) << umfLastErrorText();
                EXPECT_EQ(objects(), before) << function << " " << n;
                EXPECT_EQ(open_files(), files) << function << " " << n;
                EXPECT_EQ(driver().control()->registered, 0u) << function << " " << n;
                ASSERT_LT(n, 100);
            }
        }
    }
    void calls_fail_in_a_snapshot(const char *folder) {
        NEEDS_FAKE()
        ONE_THREAD_ONLY()
        Vault vault;
        umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
        params.folder = folder;
        const auto write_two = [] {
            Vault writer;
            Draft draft(writer, nullptr, pieces);
            put(draft.handle, draft.pool, key_of(0), pattern(1, 0));
            put(draft.handle, draft.pool, key_of(1), pattern(1, 1));
            ASSERT_EQ(draft.commit(), OK);
        };
        write_two();
        ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK); // keeps its queues
        ASSERT_EQ(umfVaultDrop(vault.handle, 0), OK);
        std::filesystem::remove_all(folder ? folder : place + "/none");
        long files = open_files(), before = objects();
        for (int function : {FAKE_cuMemImportFromShareableHandle, FAKE_cuMemAddressReserve,
                             FAKE_cuMemMap, FAKE_cuMemSetAccess, FAKE_cuStreamCreate,
                             FAKE_cuMemcpyAsync, FAKE_cuStreamSynchronize}) {
            for (long n = 1, is_reached = 1; is_reached; n++) {
                write_two();
                fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
                umf_result_t result = umfVaultSnapshot(vault.handle, 0, &params);
                is_reached = driver().control()->fail_at == 0;
                driver().control()->fail_at = 0;
                umf_vault_stat_t stat = vault.stat();
                EXPECT_EQ(stat.copy_bytes, result == OK && !folder ? stat.device_bytes : 0u)
                    << function << " " << n;
                EXPECT_EQ(files_in(folder), result == OK && folder ? 1u : 0u)
                    << function << " " << n;
                EXPECT_EQ(umfVaultEvict(vault.handle, 0), result == OK ? OK : BAD);
                EXPECT_EQ(objects(), before) << function << " " << n;
                EXPECT_EQ(open_files(), files) << function << " " << n;
                ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK) << umfLastErrorText();
                ASSERT_EQ(umfVaultDrop(vault.handle, 0), OK);
                std::filesystem::remove_all(folder ? folder : place + "/none");
                ASSERT_LT(n, 100);
            }
        }
    }
    void service_ends_at_each_step(const char *folder) {
        NEEDS_FAKE()
        ONE_THREAD_ONLY()
        setenv("UMF_UMFD", UMF_TEST_UMFD_STEPS, 1);
        unsigned stride = does_all() ? 1 : 19;
        umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
        params.folder = folder;
        for (const char *who : {"daemon", "keeper"}) {
            bool was_reached = true;
            for (unsigned step = 1; was_reached; step += stride) {
                SCOPED_TRACE(std::string(who) + " at step " + std::to_string(step));
                {
                    Vault vault;
                    {
                        Vault writer;
                        write_on_gpu(writer, count, 1);
                    }
                    std::ofstream(place + "/die.new")
                        << who << " " << SIGKILL << " " << step << "\n";
                    ASSERT_EQ(rename((place + "/die.new").c_str(), (place + "/die").c_str()), 0);
                    // With a folder copies in memory are replaced.
                    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), OK) << umfLastErrorText();
                    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK) << umfLastErrorText();
                    EXPECT_EQ(vault.stat().copy_bytes, folder ? 0 : vault.stat().device_bytes);
                    EXPECT_EQ(umfVaultEvict(vault.handle, 0), OK) << umfLastErrorText();
                    EXPECT_EQ(vault.stat().device_bytes, 0u);
                    EXPECT_EQ(GpuView(vault).wrong(count, 1), 0u);
                    EXPECT_EQ(umfVaultDrop(vault.handle, 0), OK);
                    EXPECT_EQ(vault.stat().bytes, 0u);
                    was_reached = unlink((place + "/die").c_str()) != 0;
                }
                EXPECT_TRUE(was_reached || step > 20);
                ASSERT_FALSE(HasFailure());
                ASSERT_LT(step, 1000u);
                umfVaultStop(nullptr, 1); // the next order is for another daemon
                ASSERT_TRUE(until([&] { return has_ended(); }));
            }
        }
    }
    static constexpr size_t count = 2;
};

class VaultGpuFiles : public VaultGpuCopies {
  protected:
    void SetUp() override {
        VaultGpuCopies::SetUp();
        folder = place + "/folder";
        file = folder + "/1.vault";
    }
    static umf_result_t store(const Vault &vault, const std::string &in, uint64_t number = 0) {
        umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
        params.folder = in.c_str();
        return umfVaultSnapshot(vault.handle, number, &params);
    }
    // The begin of an entry in a file.
    static off_t place_of(const std::string &path, size_t entry) {
        std::ifstream in(path, std::ios::binary);
        std::string all{std::istreambuf_iterator<char>(in), {}};
        const std::vector<unsigned char> &want = pattern(1, entry);
        auto at = std::search(all.begin(), all.end(), want.begin(), want.begin() + 4096,
                              [](char a, unsigned char b) { return (unsigned char)a == b; });
        EXPECT_NE(at, all.end());
        return at - all.begin();
    }
    void expect_broken() {
        Vault vault;
        for (int i = 0; i < 2; i++) {
            GpuView view(vault);
            EXPECT_EQ(view.attached, BAD);
            EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
            EXPECT_EQ(vault.stat().evicted, 1u);
            EXPECT_EQ(vault.stat().device_bytes, 0u);
        }
    }
    std::string folder, file;
};

#endif
