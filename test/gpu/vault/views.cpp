// Views of memory of GPUs that change, and copies of it elsewhere.
#include "gpu/vault/vault.h"

namespace {

// --- views that change ---------------------------------------------------------------------------

TEST_F(VaultGpu, AViewIsSuspendedAndResumed) {
    Vault vault;
    write_on_gpu(vault, 4, 1);
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK);
    const void *ptr = view.find(key_of(1)).ptr;
    CUstream stream;
    CU(cuStreamCreate(&stream, 0));
    CUdeviceptr to;
    CU(cuMemAlloc(&to, bytes_of_entry));
    CU(cuMemcpyAsync(to, at(ptr), bytes_of_entry, stream)); // still runs
    void *queues[] = {stream};
    umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
    params.queues = queues;
    params.num_queues = 1;
    EXPECT_EQ(umfVaultSuspend(view.handle, &params), OK);
    CUmemLocation location = on_device(0);
    unsigned long long flags = 0;
    EXPECT_TRUE(driver().cuMemGetAccess(&flags, &location, at(ptr)) != CUDA_SUCCESS ||
                flags == CU_MEM_ACCESS_FLAGS_PROT_NONE); // not mapped
    EXPECT_TRUE(has(reinterpret_cast<void *>(to), pattern(1, 1)));
    EXPECT_EQ(umfVaultResume(view.handle), OK);
    EXPECT_EQ(view.wrong(4, 1), 0u);
    EXPECT_EQ(access_of(ptr), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READ});
    CU(cuMemcpyAsync(to, at(view.find(key_of(2)).ptr), bytes_of_entry, stream));
    EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), OK); // waits for all
    EXPECT_TRUE(has(reinterpret_cast<void *>(to), pattern(1, 2)));
    CU(cuMemFree(to));
    CU(cuStreamDestroy(stream));
}

TEST_F(VaultGpu, AViewMovesToAnotherGenerationAtItsAddresses) {
    Vault vault("model", 0, 5);
    for (uint64_t seed = 1; seed < 3; seed++) {
        Draft draft(vault, nullptr, on_gpu);
        umf_memory_pool_handle_t own;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &own), OK);
        put(draft.handle, draft.pool, key_of(0), pattern(seed, 0));
        put(draft.handle, draft.pool, key_of(1), pattern(seed, 1));
        put(draft.handle, own, "own", pattern(seed, 2), UMF_VAULT_PRIVATE);
        ASSERT_EQ(draft.commit(), OK);
    }
    GpuView view(vault, "cuda_vmm", 1);
    ASSERT_EQ(view.wrong(2, 1), 0u);
    void *ptr = view.find(key_of(1)).ptr, *own = view.find("own").ptr;
    ASSERT_EQ(umfVaultMove(view.handle, 0, nullptr), OK);
    EXPECT_EQ(view.find(key_of(1)).ptr, ptr);
    EXPECT_EQ(view.find("own").ptr, own);
    EXPECT_EQ(view.wrong(2, 2), 0u);
    EXPECT_TRUE(has(own, pattern(2, 2)));
    EXPECT_EQ(write_on_gpu(vault, 3, 3), 3u);
    EXPECT_EQ(umfVaultMove(view.handle, 3, nullptr), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_IDENTITY);
    EXPECT_EQ(view.wrong(2, 2), 0u);
    if (!driver().is_real) { // a failure in the middle
        long before = objects(), files = open_files();
        for (int function : needing) {
            for (long n = 1, is_reached = 1; is_reached; n++) {
                uint64_t former = 0, number = 0;
                umfVaultViewGeneration(view.handle, &former);
                fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
                bool fails = umfVaultMove(view.handle, 3 - former, nullptr) != OK;
                is_reached = driver().control()->fail_at == 0;
                driver().control()->fail_at = 0;
                umfVaultViewGeneration(view.handle, &number);
                EXPECT_EQ(number, fails ? former : 3 - former);
                ASSERT_EQ(umfVaultResume(view.handle), OK) << function << " " << n;
                EXPECT_EQ(view.wrong(2, number), 0u) << function << " " << n;
                EXPECT_EQ(objects(), before) << function << " " << n;
                EXPECT_EQ(open_files(), files) << function << " " << n;
                ASSERT_LT(n, 200);
            }
        }
    }
}

TEST_F(VaultGpu, AMoveOfASuspendedViewWaitsForWorkOnItsPrivateMemory) {
    Vault vault("model", 0, 5);
    for (uint64_t seed = 1; seed < 3; seed++) {
        Draft draft(vault, nullptr, on_gpu);
        put(draft.handle, draft.pool, "own", pattern(seed, 0), UMF_VAULT_PRIVATE);
        ASSERT_EQ(draft.commit(), OK);
    }
    GpuView view(vault, "cuda_vmm", 1);
    void *own = view.find("own").ptr;
    CUstream stream;
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(umfVaultSuspend(view.handle, nullptr), OK);
    CU(cuMemsetD8Async(at(own), 5, bytes_of_entry, stream));
    EXPECT_EQ(umfVaultMove(view.handle, 2, nullptr), OK);
    EXPECT_TRUE(has(own, pattern(2, 0)));
    CU(cuStreamDestroy(stream));
}

// --- copies in memory of the host ----------------------------------------------------------------

TEST_F(VaultGpu, AGenerationIsStoredInAFolderAndComesBack) {
    const std::string stored = place + "/folder";
    Vault vault, folder(("file:" + stored).c_str());
    {
        Draft draft(vault, nullptr, on_gpu);
        umf_memory_pool_handle_t own;
        umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
        params.digest = 1;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, on_gpu, &own), OK);
        put(draft.handle, draft.pool, key_of(0), pattern(1, 0));
        put(draft.handle, draft.pool, key_of(1), pattern(1, 1));
        put(draft.handle, own, "own", pattern(1, 2), UMF_VAULT_PRIVATE);
        ASSERT_EQ(draft.commit(nullptr, &params), OK);
        GpuView view(vault);
        umf_vault_draft_handle_t copy;
        ASSERT_EQ(umfVaultBegin(folder.handle, nullptr, &copy), OK);
        ASSERT_EQ(umfVaultCopy(copy, view.handle, nullptr), OK) << umfLastErrorText();
        ASSERT_EQ(umfVaultCommit(copy, nullptr, nullptr), OK);
    }
    ASSERT_EQ(umfVaultDrop(vault.handle, 0), OK); // the device has it no more
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.copy_pool = "proxy over cuda_vmm:device=0";
    {
        View view(folder);
        ASSERT_EQ(view.attached, OK);
        umf_vault_entry_t entry = view.find(key_of(1));
        EXPECT_EQ(entry.device, -1);
        EXPECT_EQ(memcmp(entry.ptr, pattern(1, 1).data(), bytes_of_entry), 0);
        umf_vault_draft_handle_t copy;
        umf_vault_commit_params_t commit = UMF_VAULT_COMMIT_PARAMS_INIT;
        commit.digest = 1;
        ASSERT_EQ(umfVaultBegin(vault.handle, &params, &copy), OK);
        ASSERT_EQ(umfVaultCopy(copy, view.handle, nullptr), OK) << umfLastErrorText();
        ASSERT_EQ(umfVaultCommit(copy, &commit, nullptr), OK);
        GpuView back(vault);
        EXPECT_EQ(back.find("own").device, 0);
        EXPECT_EQ(back.wrong(2, 1), 0u);
        EXPECT_TRUE(has(back.find("own").ptr, pattern(1, 2)));
        EXPECT_EQ(umfVaultVerify(back.handle, nullptr), OK);
    }
    // A folder that was damaged does not come back.
    const std::string path = stored + "/1.vault";
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat about;
    ASSERT_EQ(fstat(fd, &about), 0);
    size_t first = 0; // where the content begins
    std::vector<unsigned char> all(static_cast<size_t>(about.st_size)), want = pattern(1, 0);
    ASSERT_EQ(pread(fd, all.data(), all.size(), 0), about.st_size);
    first = static_cast<size_t>(
        std::search(all.begin(), all.end(), want.begin(), want.begin() + 4096) - all.begin());
    ASSERT_LT(first, all.size());
    ASSERT_EQ(pwrite(fd, "!", 1, static_cast<off_t>(first + 5)), 1);
    close(fd);
    View view(folder);
    umf_vault_draft_handle_t copy;
    ASSERT_EQ(umfVaultBegin(vault.handle, &params, &copy), OK);
    EXPECT_EQ(umfVaultCopy(copy, view.handle, nullptr), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
    EXPECT_EQ(umfVaultAbort(copy), OK);
}

} // namespace
