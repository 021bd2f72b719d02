// Snapshots of memory of GPUs in a folder.
#include "gpu/vault/copies.h"

namespace {

TEST_F(VaultGpuFiles, AnEvictedGenerationComesBack) {
    long before = objects();
    write(true, true, 1, folder.c_str());
    kill(daemon(), SIGKILL);
    {
        Vault vault;
        EXPECT_EQ(vault.stat().evicted, 1u);
        EXPECT_EQ(vault.stat().copy_bytes, 0u); // of the host nothing is taken
        EXPECT_EQ(vault.stat().device_bytes, 0u);
        GpuView view(vault);
        ASSERT_EQ(view.attached, OK) << umfLastErrorText();
        EXPECT_EQ(view.wrong(count, 1), 0u);
        EXPECT_TRUE(has(view.find("own").ptr, pattern(1, 9)));
        EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK);
        EXPECT_EQ(vault.stat().evicted, 0u);
    }
    expect_whole();
    EXPECT_EQ(objects(), before);
}

// It can be read without the service, beyond a boot.
TEST_F(VaultGpuFiles, TheFileIsAGenerationOfAFolder) {
    {
        Vault vault;
        Draft draft(vault, nullptr, pieces);
        umf_memory_pool_handle_t host, own;
        ASSERT_EQ(umfVaultDraftPool(draft.handle, "proxy over linux_vmm", &host), OK);
        ASSERT_EQ(umfVaultDraftPool(draft.handle, "proxy over linux_vmm", &own), OK);
        put(draft.handle, draft.pool, key_of(0), pattern(1, 0));
        void *memory = umfPoolMalloc(host, bytes_of_entry);
        memcpy(memory, pattern(1, 1).data(), bytes_of_entry);
        ASSERT_EQ(umfVaultPut(draft.handle, key_of(1).c_str(), memory, bytes_of_entry, "n", 2, 0),
                  OK);
        memory = umfPoolMalloc(own, 4096);
        ASSERT_EQ(umfVaultPut(draft.handle, "zero", memory, 4096, nullptr, 0, UMF_VAULT_ZERO), OK);
        ASSERT_EQ(draft.commit(), OK) << umfLastErrorText(); // without sums
        ASSERT_EQ(store(vault, folder), OK) << umfLastErrorText();
        ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
        {
            GpuView again(vault);
            ASSERT_EQ(again.attached, OK) << umfLastErrorText();
            EXPECT_TRUE(has(again.find(key_of(0)).ptr, pattern(1, 0)));
            const void *of_host = again.find(key_of(1)).ptr;
            EXPECT_EQ(memcmp(of_host, pattern(1, 1).data(), bytes_of_entry), 0);
        }
        umfVaultDrop(vault.handle, 0);
    }
    Vault stored(("file:" + folder).c_str());
    View view(stored);
    ASSERT_EQ(view.attached, OK) << umfLastErrorText();
    for (size_t i = 0; i < count; i++) {
        umf_vault_entry_t entry = view.find(key_of(i));
        ASSERT_EQ(entry.size, bytes_of_entry);
        EXPECT_EQ(memcmp(entry.ptr, pattern(1, i).data(), bytes_of_entry), 0);
    }
    EXPECT_STREQ(static_cast<const char *>(view.find(key_of(1)).note), "n");
    EXPECT_EQ(view.find("zero").size, 4096u);
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK); // it has sums
}

TEST_F(VaultGpuFiles, AGenerationOfTheHost) {
    Vault vault, stored(("file:" + folder).c_str());
    write_generation(vault, 3, 4);
    for (uint64_t n = 1; n <= 2; n++) {
        ASSERT_EQ(store(vault, folder, 1), OK) << umfLastErrorText();
        EXPECT_EQ(stored.stat().current, n);
    }
    View view(stored);
    ASSERT_EQ(view.attached, OK);
    EXPECT_EQ(umfVaultVerify(view.handle, nullptr), OK);
    EXPECT_EQ(view.wrong(3, 4), 0u);
    EXPECT_EQ(umfVaultEvict(vault.handle, 0), BAD);
    EXPECT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), OK); // nobody fills
}

TEST_F(VaultGpuFiles, ItReplacesCopiesInMemory) {
    write(true);
    Vault vault;
    uint64_t copies = vault.stat().copy_bytes;
    EXPECT_GT(copies, 0u);
    ASSERT_EQ(store(vault, folder), OK) << umfLastErrorText(); // evicted as it is
    EXPECT_EQ(vault.stat().evicted, 1u);
    EXPECT_EQ(vault.stat().copy_bytes, 0u);
    ASSERT_EQ(umfVaultSnapshot(vault.handle, 0, nullptr), OK); // all have one
    EXPECT_EQ(vault.stat().copy_bytes, 0u);
    ASSERT_EQ(store(vault, place + "/other"), OK) << umfLastErrorText(); // from the first
    std::filesystem::remove_all(folder);
    expect_whole();
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    expect_whole();
}

TEST_F(VaultGpuFiles, TheLimitIsThatOfMemory) {
    Vault vault("small", 24 * MiB);
    write_on_gpu(vault, 4, 1);
    uint64_t bytes = vault.stat().bytes;
    EXPECT_EQ(store(vault, folder), OK) << umfLastErrorText();
    EXPECT_EQ(vault.stat().bytes, bytes);
}

TEST_F(VaultGpuFiles, MorePiecesThanAMessageHas) {
    constexpr size_t many = 260;
    Vault vault;
    {
        Vault writer;
        Draft draft(writer, nullptr, "proxy over cuda_vmm:device=0,piece_size=2M");
        for (size_t i = 0; i < many; i++) {
            put(draft.handle, draft.pool, key_of(i), {static_cast<unsigned char>(i), 2, 3});
        }
        ASSERT_EQ(draft.commit(), OK);
    }
    ASSERT_EQ(store(vault, folder), OK) << umfLastErrorText();
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    GpuView view(vault);
    ASSERT_EQ(view.attached, OK) << umfLastErrorText();
    for (size_t i = 0; i < many; i++) {
        EXPECT_TRUE(has(view.find(key_of(i)).ptr, {static_cast<unsigned char>(i), 2, 3}));
    }
}

// What happens to names does not matter: the service has the file.
TEST_F(VaultGpuFiles, AFileThatIsRemovedOrReplaced) {
    write(true, false, 1, folder.c_str());
    const std::string other = place + "/other";
    std::ofstream(other) << "secret";
    ASSERT_EQ(unlink(file.c_str()), 0);
    ASSERT_EQ(symlink(other.c_str(), file.c_str()), 0);
    expect_whole();
    Vault vault;
    ASSERT_EQ(umfVaultEvict(vault.handle, 0), OK);
    ASSERT_EQ(rename(folder.c_str(), (place + "/moved").c_str()), 0);
    ASSERT_EQ(symlink("/proc", folder.c_str()), 0);
    expect_whole();
}

TEST_F(VaultGpuFiles, AFileThatWasChanged) {
    write(true, false, 0, folder.c_str());
    off_t at = place_of(file, 1);
    ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;
    ASSERT_EQ(pread(fd, &byte, 1, at + 5), 1);
    ASSERT_EQ(pwrite(fd, "!", 1, at + 5), 1);
    expect_broken();
    ASSERT_EQ(pwrite(fd, &byte, 1, at + 5), 1);
    close(fd);
    expect_whole(); // as it was
}

TEST_F(VaultGpuFiles, AFileThatWasCut) {
    write(true, false, 1, folder.c_str());
    ASSERT_EQ(truncate(file.c_str(), place_of(file, 1) + 4096), 0);
    expect_broken();
    ASSERT_EQ(truncate(file.c_str(), 0), 0);
    expect_broken();
}

TEST_F(VaultGpuFiles, AFolderThatCannotBeWritten) {
    Vault vault;
    write_on_gpu(vault, 1, 1);
    std::ofstream(folder) << "a file";
    EXPECT_EQ(store(vault, folder), BAD);
    EXPECT_EQ(store(vault, ""), BAD);
    EXPECT_EQ(store(vault, std::string(600, 'x')), BAD);
    ASSERT_EQ(unlink(folder.c_str()), 0);
    // Another one writes there.
    Vault stored(("file:" + folder).c_str());
    umf_vault_draft_handle_t draft;
    ASSERT_EQ(umfVaultBegin(stored.handle, nullptr, &draft), OK);
    EXPECT_EQ(store(vault, folder), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BUSY);
    EXPECT_EQ(umfVaultAbort(draft), OK);
    EXPECT_EQ(store(vault, folder), OK) << umfLastErrorText();
    EXPECT_EQ(stored.stat().generations, 1u);
}

} // namespace
