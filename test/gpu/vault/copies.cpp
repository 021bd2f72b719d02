// Memory of GPUs that is evicted and made again.
#include "gpu/vault/copies.h"

namespace {

TEST_F(VaultGpuCopies, AnEvictedGenerationComesBackAtTheNextAttach) {
    long before = objects();
    write(false, true);
    {
        Vault vault;
        umf_vault_stat_t stat = vault.stat();
        EXPECT_EQ(stat.copy_bytes, stat.device_bytes);
        EXPECT_EQ(stat.evicted, 0u);
        EXPECT_EQ(umfVaultSnapshot(vault.handle, 1, nullptr), OK); // all have one
        EXPECT_EQ(vault.stat().bytes, stat.bytes);
        EXPECT_EQ(umfVaultEvict(vault.handle, 1), OK);
        EXPECT_EQ(umfVaultEvict(vault.handle, 1), OK);
        EXPECT_EQ(vault.stat().evicted, 1u);
        EXPECT_EQ(vault.stat().devices, 0u);
        EXPECT_EQ(vault.stat().bytes, stat.bytes - stat.device_bytes);
        EXPECT_EQ(GpuView(vault, nullptr).attached, UMF_RESULT_ERROR_NOT_SUPPORTED);
        EXPECT_NE(std::string(umfLastErrorText()).find("evicted"), std::string::npos);
        {
            GpuView view(vault);
            ASSERT_EQ(view.attached, OK) << umfLastErrorText();
            EXPECT_EQ(view.wrong(count, 1), 0u);
            EXPECT_TRUE(has(view.find("own").ptr, pattern(1, 9)));
            EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK);
            EXPECT_EQ(GpuView(vault).wrong(count, 1), 0u);
        }
        EXPECT_EQ(vault.stat().evicted, 0u);
        EXPECT_EQ(vault.stat().device_bytes, stat.device_bytes);
        std::vector<int> types = events(vault);
        EXPECT_EQ(std::count(types.begin(), types.end(), UMF_VAULT_EVENT_EVICTED), 1);
        EXPECT_EQ(std::count(types.begin(), types.end(), UMF_VAULT_EVENT_REFILLED), 1);
    }
    EXPECT_EQ(objects(), before);
}

TEST_F(VaultGpuCopies, SumsOfEvictedContentThatIsKept) {
    Vault vault;
    umf_vault_draft_params_t from = UMF_VAULT_DRAFT_PARAMS_INIT;
    umf_vault_commit_params_t params = UMF_VAULT_COMMIT_PARAMS_INIT;
    params.digest = 1;
    {
        Vault writer;
        from.from = write_on_gpu(writer, count, 1);
        ASSERT_EQ(umfVaultSnapshot(writer.handle, 0, nullptr), OK);
        ASSERT_EQ(umfVaultEvict(writer.handle, 0), OK);
    }
    Draft draft(vault, &from, on_gpu);
    ASSERT_EQ(umfVaultKeep(draft.handle, ""), OK);
    ASSERT_EQ(draft.commit(nullptr, &params), OK) << umfLastErrorText();
    EXPECT_EQ(vault.stat().evicted, 0u);
    GpuView view(vault);
    EXPECT_EQ(view.wrong(count, 1), 0u);
    for (size_t i = 0; i < count; i++) {
        EXPECT_EQ(umfVaultVerify(view.handle, key_of(i).c_str()), OK);
    }
}

TEST_F(VaultGpuCopies, TheDeviceHasItsMemoryBack) {
    NEEDS_FAKE()
    write(false);
    Vault vault;
    kill(daemon(), SIGKILL);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), OK);
    EXPECT_EQ(driver().control()->used[0], 0u);
    expect_whole();
    EXPECT_EQ(driver().control()->used[0], 0u);
}

// The copy itself is never pinned, whose pages are small: that took longer than the transfer.
TEST_F(VaultGpuCopies, CopiesPassPinnedBuffers) {
    NEEDS_FAKE()
    constexpr size_t size = 256 * MiB;
    const fake_cuda_t *control = driver().control();
    umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
    params.digest = 1;
    Vault vault;
    {
        Draft draft(vault, nullptr, pieces);
        std::vector<char> bytes(size, 'x');
        bytes[size - 1] = 'y';
        char *block = static_cast<char *>(umfPoolMalloc(draft.pool, size));
        ASSERT_NE(block, nullptr);
        ASSERT_EQ(driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(block), bytes.data(), size),
                  CUDA_SUCCESS);
        ASSERT_EQ(umfVaultPut(draft.handle, "large", block, size, nullptr, 0, 0), OK);
        ASSERT_EQ(draft.commit(), OK);
    }
    ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, &params), OK);
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    long copies = control->calls[FAKE_cuMemcpyAsync];
    {
        GpuView view(vault);
        ASSERT_EQ(view.attached, OK);
        EXPECT_EQ(control->calls[FAKE_cuMemcpyAsync] - copies, long{size / (8 * MiB)});
        EXPECT_GT(control->registered, 0u);
        EXPECT_LT(control->registered, size);
        char last[2] = {};
        auto from = reinterpret_cast<CUdeviceptr>(view.find("large").ptr) + size - 2;
        ASSERT_EQ(driver().cuMemcpyDtoH(last, from, 2), CUDA_SUCCESS);
        EXPECT_EQ(last[0], 'x');
        EXPECT_EQ(last[1], 'y');
    }
    umfVaultClose(vault.handle);
    vault.handle = nullptr;
    EXPECT_EQ(control->registered, 0u);
}

TEST_F(VaultGpuCopies, AViewIsResumedAfterItsMemoryWasEvicted) {
    write(false, true);
    Vault vault;
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK);
    void *ptr = view.find(key_of(1)).ptr, *own = view.find("own").ptr;
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    EXPECT_EQ(view.wrong(count, 1), 0u); // who has it keeps it
    ASSERT_EQ(umfVaultSuspend(view.handle, nullptr), OK);
    ASSERT_EQ(umfVaultResume(view.handle), OK) << umfLastErrorText();
    EXPECT_EQ(view.find(key_of(1)).ptr, ptr);
    EXPECT_EQ(view.wrong(count, 1), 0u);
    EXPECT_TRUE(has(own, pattern(1, 9)));
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    ASSERT_EQ(umfVaultMove(view.handle, 0, nullptr), OK) << umfLastErrorText();
    EXPECT_EQ(view.wrong(count, 1), 0u);
}

TEST_F(VaultGpuCopies, TwoProcessesThatNeedItAtOnce) {
    write(true);
    Process one("reader", "0 2 1"), other("reader", "0 2 1");
    for (Process *process : {&one, &other}) { // a wait leaves a reason behind
        const std::string said = process->socket.receive();
        EXPECT_EQ(said.substr(0, 2) + said.substr(said.rfind(' ') + 1), "0 0") << said;
    }
    Vault vault;
    std::vector<int> types = events(vault);
    EXPECT_EQ(std::count(types.begin(), types.end(), UMF_VAULT_EVENT_REFILLED), 1);
}

TEST_F(VaultGpuCopies, ThreadsThatNeedItAtOnce) {
    write(true);
    Vault vault;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&] {
            start_cuda();
            GpuView view(vault);
            EXPECT_EQ(view.attached, OK) << umfLastErrorText();
            driver().cuDevicePrimaryCtxRelease(0);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    std::vector<int> types = events(vault);
    EXPECT_EQ(std::count(types.begin(), types.end(), UMF_VAULT_EVENT_REFILLED), 1);
}

TEST_F(VaultGpuCopies, AnotherGenerationSharesAPiece) {
    write(false);
    Vault vault;
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.from = 1;
    {
        Draft draft(vault, &params, pieces);
        put(draft.handle, draft.pool, key_of(1), pattern(2, 1));
        ASSERT_EQ(umfVaultKeep(draft.handle, ""), OK);
        ASSERT_EQ(draft.commit(), OK);
    }
    GpuView holds(vault, "cuda_vmm", 1); // so that generation 1 stays
    uint64_t bytes = vault.stat().device_bytes;
    EXPECT_EQ(umfVaultEvict(vault.handle, 2), BAD); // its new piece has no copy
    EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
    EXPECT_EQ(umfVaultEvict(vault.handle, 1), OK);
    EXPECT_EQ(vault.stat().device_bytes, bytes - 2 * MiB); // the second one has the others
    ASSERT_EQ(umfVaultSnapshot(vault.handle, 2, nullptr), OK);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), OK);
    EXPECT_EQ(vault.stat().evicted, 2u);
    EXPECT_EQ(vault.stat().device_bytes, 0u);
    // A draft that keeps evicted memory does not need it.
    params.from = 2;
    {
        Draft draft(vault, &params, pieces);
        ASSERT_EQ(draft.begun, OK) << umfLastErrorText();
        ASSERT_EQ(umfVaultKeep(draft.handle, ""), OK);
        ASSERT_EQ(draft.commit(), OK) << umfLastErrorText();
    }
    EXPECT_EQ(vault.stat().evicted, 3u);
    expect_whole(1);
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK) << umfLastErrorText();
    EXPECT_TRUE(has(view.find(key_of(1)).ptr, pattern(2, 1)));
    EXPECT_TRUE(has(view.find(key_of(0)).ptr, pattern(1, 0)));
}

TEST_F(VaultGpuCopies, WhatIsRefused) {
    Vault vault, folder(("file:" + place + "/folder").c_str());
    umf_vault_snapshot_params_t params = UMF_VAULT_SNAPSHOT_PARAMS_INIT;
    params.struct_size = 1;
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, &params), BAD);
    EXPECT_EQ(umfVaultSnapshot(nullptr, 0, nullptr), BAD);
    EXPECT_EQ(umfVaultEvict(nullptr, 0), BAD);
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), BAD); // no generation
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
    EXPECT_EQ(umfVaultSnapshot(folder.handle, 0, nullptr), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfVaultEvict(folder.handle, 0), UMF_RESULT_ERROR_NOT_SUPPORTED);
    write_generation(vault, 2, 1); // of the host
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), OK);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
    write_on_gpu(vault, 2, 1);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), BAD); // without a copy
    EXPECT_EQ(GpuView(vault).wrong(2, 1), 0u);
}

TEST_F(VaultGpuCopies, TheLimitOfTheVault) {
    Vault vault("small", 24 * MiB);
    write_on_gpu(vault, 4, 1);
    uint64_t bytes = vault.stat().bytes;
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_LIMIT);
    EXPECT_EQ(vault.stat().bytes, bytes);
    EXPECT_EQ(vault.stat().copy_bytes, 0u);
}

TEST_F(VaultGpuCopies, ADaemonThatIsKilledBetween) {
    write(true);
    kill(daemon(), SIGKILL);
    expect_whole();
    {
        Vault vault;
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    }
    kill(keeper(), SIGKILL);
    expect_whole();
}

TEST_F(VaultGpuCopies, EachCallOfTheDriverMayFailInARefill) {
    calls_fail_in_a_refill(nullptr);
}

TEST_F(VaultGpuCopies, EachCallOfTheDriverMayFailInARefillFromAFolder) {
    calls_fail_in_a_refill((place + "/folder").c_str());
}

TEST_F(VaultGpuCopies, EachCallOfTheDriverMayFailInASnapshot) {
    calls_fail_in_a_snapshot(nullptr);
}

TEST_F(VaultGpuCopies, EachCallOfTheDriverMayFailInASnapshotInAFolder) {
    calls_fail_in_a_snapshot((place + "/folder").c_str());
}

// The daemon, or its keeper, is killed at each step of a snapshot, an eviction and a refill.
TEST_F(VaultGpuCopies, TheServiceEndsAtEachStep) {
    service_ends_at_each_step(nullptr);
}

TEST_F(VaultGpuCopies, TheServiceEndsAtEachStepOfASnapshotInAFolder) {
    service_ends_at_each_step((place + "/folder").c_str());
}

} // namespace
