// A hostile writer, who speaks to the service himself.
#include "gpu/vault/hostile.h"

namespace {

class VaultGpuHostile : public VaultGpu {
  protected:
    // What a reader gets of a slab that says this and is that.
    void expect_broken(const umf_vault_slab_t &said, int fd) {
        Vault vault;
        {
            Hostile hostile(place);
            ASSERT_EQ(hostile.give(said, fd), uint32_t{UMF_VAULT_OK});
            hostile.commit(said);
        }
        long before = objects();
        Vault reader;
        GpuView view(reader);
        EXPECT_EQ(view.attached, BAD);
        EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
        EXPECT_EQ(umfVaultClose(reader.handle), OK);
        reader.handle = nullptr;
        EXPECT_EQ(objects(), before);
    }
};

// Memory of a claim that is not what it is said to be.
TEST_F(VaultGpuHostile, ClaimsOfWrongMemory) {
    Vault vault;
    Exported small(0, 2 * MiB);
    int file = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(file, 4 * MiB), 0);
    const long page = sysconf(_SC_PAGESIZE);
    for (int fd : {small.fd, file}) {
        Hostile hostile(place, false);
        std::string body("kv", 3);
        umf_vault_slab_t said = slab_of(0, 4 * MiB);
        body.append(reinterpret_cast<const char *>(said.device), sizeof(said.device));
        int word = memfd_create("word", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ASSERT_EQ(ftruncate(word, page), 0);
        auto ask = [&](std::vector<int> fds, const std::string &with) {
            return hostile.call(UMF_VAULT_CLAIM,
                                {4 * MiB, 0, 0, UMF_VAULT_KIND_DEVICE, uint64_t(page)}, with.data(),
                                with.size(), fds);
        };
        EXPECT_EQ(ask({word}, body), uint32_t{UMF_VAULT_INVALID});
        EXPECT_EQ(ask({word, fd}, "kv"), uint32_t{UMF_VAULT_INVALID});
        EXPECT_EQ(ask({word, fd}, body + "x"), uint32_t{UMF_VAULT_INVALID});
        EXPECT_EQ(ask({word, hostile.socket}, body), uint32_t{UMF_VAULT_FOREIGN});
        EXPECT_EQ(vault.stat().claims, 0u);
        EXPECT_EQ(vault.stat().bytes, 0u); // the file with the epoch is gone, too
        ASSERT_EQ(ask({word, fd}, body), uint32_t{UMF_VAULT_OK});
        EXPECT_EQ(hostile.call(UMF_VAULT_UNCLAIM, {}, "kv", 2), uint32_t{UMF_VAULT_OK});
        close(word);
        umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
        umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
        params.devices = "cuda_vmm";
        EXPECT_EQ(umfVaultClaim(vault.handle, "kv", &params, &claim), BAD);
        EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
        EXPECT_EQ(claim.ptr, nullptr);
        EXPECT_EQ(umfVaultForget(vault.handle, "kv"), OK); // nobody holds it
    }
    close(file);
}

TEST_F(VaultGpuHostile, AMemoryFileIsNoMemoryOfADevice) {
    int fd = memfd_create("forged", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, 4 * MiB), 0);
    expect_broken(slab_of(0, 4 * MiB), fd);
    close(fd);
}

TEST_F(VaultGpuHostile, MemoryOfAnotherSize) {
    Exported memory(0, 4 * MiB);
    expect_broken(slab_of(0, 8 * MiB), memory.fd);
    expect_broken(slab_of(0, 2 * MiB), memory.fd);
    expect_broken(slab_of(0, 4 * MiB - 4096), memory.fd);
    expect_broken(slab_of(0, size_t{1} << 50), memory.fd);
}

TEST_F(VaultGpuHostile, MemoryOfAnotherDevice) {
    int count = 0;
    CU(cuDeviceGetCount(&count));
    if (count < 2) {
        GTEST_SKIP() << "needs two devices";
    }
    Exported memory(1, 4 * MiB);
    expect_broken(slab_of(0, 4 * MiB), memory.fd);
}

TEST_F(VaultGpuHostile, TheServiceKeepsFilesOnly) {
    Vault vault;
    Hostile hostile(place);
    int ends[2], file = memfd_create("file", MFD_CLOEXEC);
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(hostile.give(slab_of(0, MiB), ends[0]), uint32_t{UMF_VAULT_FOREIGN});
    EXPECT_EQ(hostile.give(slab_of(0, MiB), hostile.socket), uint32_t{UMF_VAULT_FOREIGN});
    umf_vault_slab_t slab = slab_of(0, MiB);
    slab.kind = 3;
    EXPECT_EQ(hostile.give(slab, file), uint32_t{UMF_VAULT_INVALID});
    slab.kind = UMF_VAULT_KIND_HOST; // of a device
    EXPECT_EQ(hostile.give(slab, file), uint32_t{UMF_VAULT_INVALID});
    slab = slab_of(0, MiB);
    memset(slab.device, 0, sizeof(slab.device));
    EXPECT_EQ(hostile.give(slab, file), uint32_t{UMF_VAULT_INVALID});
    slab = slab_of(0, MiB);
    slab.role = UMF_VAULT_CLASS_TABLE;
    EXPECT_EQ(hostile.give(slab, file), uint32_t{UMF_VAULT_INVALID});
    for (int fd : {ends[0], ends[1], file}) {
        close(fd);
    }
}

} // namespace
