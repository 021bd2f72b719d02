// What readers and writers of memory of GPUs are refused, and drivers that fail.
#include "gpu/vault/vault.h"

namespace {

TEST_F(VaultGpu, NobodyGetsItWithoutAskingForDevices) {
    Vault vault;
    write_on_gpu(vault, 1, 1);
    GpuView view(vault, nullptr);
    EXPECT_EQ(view.attached, UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("GPU-"), std::string::npos);
    EXPECT_EQ(GpuView(vault, "linux_vmm").attached, BAD); // it has no such setting
    EXPECT_EQ(vault.stat().readers, 1u);                  // the writer
}

TEST_F(VaultGpu, NamesAreReadWithoutADriver) {
    Vault vault;
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.digest = 1;
    write_on_gpu(vault, 2, 1, &params);
    if (!driver().is_real) {
        driver().control()->gone = 1; // no call of it succeeds
    }
    {
        GpuView view(vault, "none");
        ASSERT_EQ(view.attached, OK);
        umf_vault_entry_t entry = view.find(key_of(1));
        EXPECT_EQ(entry.ptr, nullptr);
        EXPECT_EQ(entry.size, bytes_of_entry);
        EXPECT_EQ(std::string(static_cast<const char *>(entry.note), entry.note_size), "f16");
        EXPECT_EQ(entry.device, -1);
        EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
        Draft draft(vault);
        EXPECT_EQ(umfVaultCopy(draft.handle, view.handle, nullptr), UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), OK);
        EXPECT_EQ(umfVaultResume(view.handle), OK);
    }
    if (!driver().is_real) {
        driver().control()->gone = 0;
    }
}

TEST_F(VaultGpu, OtherProvidersAreRefused) {
    Vault vault;
    umf_vault_draft_handle_t draft;
    umf_memory_pool_handle_t pool;
    ASSERT_EQ(umfVaultBegin(vault.handle, nullptr, &draft), OK);
    EXPECT_EQ(umfVaultDraftPool(draft, "proxy over cuda:memory_type=device", &pool),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("cuda_vmm"), std::string::npos);
    EXPECT_EQ(umfVaultDraftPool(draft, "proxy over cuda_vmm:share=none", &pool),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfVaultAbort(draft), OK);
    Vault folder(("file:" + place + "/folder").c_str());
    ASSERT_EQ(umfVaultBegin(folder.handle, nullptr, &draft), OK);
    EXPECT_EQ(umfVaultDraftPool(draft, on_gpu, &pool), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfVaultAbort(draft), OK);
}

TEST_F(VaultGpu, AProcessThatDoesNotSeeTheDevice) {
    NEEDS_FAKE()
    Vault vault;
    write_on_gpu(vault, 2, 1);
    Process process("reader", "50 2 1");
    EXPECT_EQ(process.socket.receive(), answer(BAD, UMF_REASON_ABSENT, 0));
    EXPECT_EQ(vault.stat().readers, 1u);
}

TEST_F(VaultGpu, AnotherDeviceThatReachesIt) {
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2) {
        GTEST_SKIP() << "needs two devices";
    }
    Vault vault;
    {
        Draft draft(vault, nullptr, on_gpu);
        umf_memory_pool_handle_t copied;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &copied), OK);
        put(draft.handle, draft.pool, key_of(0), pattern(1, 0));
        put(draft.handle, copied, key_of(1), pattern(1, 1), UMF_VAULT_PRIVATE);
        ASSERT_EQ(draft.commit(), OK);
    }
    GpuView view(vault, "cuda_vmm:device=1");
    ASSERT_EQ(view.attached, OK);
    EXPECT_EQ(view.find(key_of(0)).device, 1);
    EXPECT_EQ(access_of(view.find(key_of(0)).ptr, 1), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
    // A copy of its own, on its device.
    const umf_vault_entry_t own = view.find(key_of(1));
    EXPECT_EQ(own.device, 1);
    EXPECT_EQ(access_of(own.ptr, 1), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    start_cuda(1);
    CU(cuMemsetD8(at(own.ptr), 7, own.size));
    CU(cuDevicePrimaryCtxRelease(1));
    start_cuda();
    CU(cuDevicePrimaryCtxRelease(0));
    Process other("reader", "0 2 1 cuda_vmm:device=1");
    EXPECT_EQ(other.socket.receive(), answer(OK, UMF_REASON_NONE, 0));
    EXPECT_EQ(vault.stat().readers, 2u);
}

TEST_F(VaultGpu, EachCallOfTheDriverMayFailInACommit) {
    NEEDS_FAKE()
    long before = objects();
    for (int function : needing) {
        for (long n = 1, is_reached = 1; is_reached; n++) {
            for (bool again : {true, false}) {
                Vault vault;
                Draft draft(vault, nullptr, on_gpu);
                void *memory = put(draft.handle, draft.pool, "a", pattern(1, 1));
                fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
                umf_result_t result = draft.commit();
                is_reached = driver().control()->fail_at == 0;
                driver().control()->fail_at = 0;
                EXPECT_TRUE(has(memory, pattern(1, 1))) << function << " " << n;
                if (result != OK && again) {
                    ASSERT_EQ(draft.commit(), OK) << function << " " << n;
                    EXPECT_TRUE(has(memory, pattern(1, 1))) << function << " " << n;
                    EXPECT_EQ(access_of(memory), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
                }
                EXPECT_EQ(umfVaultDrop(vault.handle, 0), OK);
            }
            ASSERT_LT(n, 200);
        }
    }
    EXPECT_EQ(objects(), before);
}

TEST_F(VaultGpu, MemoryThatIsUnmappedBeforeACommitFailsComesBack) {
    NEEDS_FAKE()
    Vault vault;
    Draft draft(vault, nullptr, on_gpu);
    void *memory = put(draft.handle, draft.pool, "a", pattern(1, 1));
    fail_call(driver().control(), FAKE_cuMemRelease, CUDA_ERROR_UNKNOWN, 1);
    EXPECT_NE(draft.commit(), OK);
    EXPECT_TRUE(has(memory, pattern(1, 1)));
    EXPECT_EQ(draft.commit(), OK);
    EXPECT_TRUE(has(memory, pattern(1, 1)));
}

TEST_F(VaultGpu, EachCallOfTheDriverMayFailInAnAttach) {
    NEEDS_FAKE()
    Vault vault;
    Draft draft(vault, nullptr, on_gpu);
    umf_memory_pool_handle_t own;
    ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &own), OK);
    put(draft.handle, draft.pool, "a", pattern(1, 1));
    put(draft.handle, own, "own", pattern(1, 2), UMF_VAULT_PRIVATE);
    ASSERT_EQ(draft.commit(), OK);
    long before = objects(), files = open_files();
    for (int function : needing) {
        for (long n = 1, is_reached = 1; is_reached; n++) {
            fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
            {
                GpuView view(vault);
                is_reached = driver().control()->fail_at == 0;
                driver().control()->fail_at = 0;
                if (view.attached == OK) {
                    EXPECT_TRUE(has(view.find("own").ptr, pattern(1, 2)));
                }
            }
            EXPECT_EQ(objects(), before) << function << " " << n;
            EXPECT_EQ(open_files(), files) << function << " " << n;
            ASSERT_LT(n, 200);
        }
    }
}

} // namespace
