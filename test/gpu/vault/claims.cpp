// Claims of memory of GPUs.
#include "gpu/vault/vault.h"

namespace {

class VaultGpuClaims : public VaultGpu {
  protected:
    struct Claim {
        umf_vault_claim_t made = UMF_VAULT_CLAIM_INIT;
        umf_result_t result;

        Claim(const Vault &vault, const char *key, size_t size = 0,
              umf_vault_fence_t fence = UMF_VAULT_FENCE_WAIT, const char *devices = "cuda_vmm") {
            umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
            params.size = size;
            params.fence = fence;
            params.devices = devices;
            result = umfVaultClaim(vault.handle, key, &params, &made);
        }
        // Whether all bytes are this one.
        bool is(unsigned char byte) const {
            std::vector<unsigned char> seen(made.size);
            return driver().cuMemcpyDtoH(seen.data(), at(made.ptr), seen.size()) == CUDA_SUCCESS &&
                   !seen.empty() && std::count(seen.begin(), seen.end(), byte) == long(made.size);
        }
    };
};

TEST_F(VaultGpuClaims, TheMemoryOutlivesItsHolder) {
    long before = objects();
    {
        Vault vault;
        size_t size = 0;
        {
            Claim claim(vault, "kv", 3 * MiB);
            ASSERT_EQ(claim.result, OK) << umfLastErrorText();
            size = claim.made.size;
            EXPECT_EQ(size, 4 * MiB);
            EXPECT_EQ(claim.made.device, 0);
            EXPECT_EQ(claim.made.epoch, 1u);
            EXPECT_EQ(*claim.made.now, 1u);
            EXPECT_TRUE(claim.made.is_new);
            EXPECT_TRUE(claim.is(0));
            EXPECT_EQ(access_of(claim.made.ptr), unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
            EXPECT_EQ(driver().cuMemsetD8(at(claim.made.ptr), 7, size), CUDA_SUCCESS);
            EXPECT_EQ(umfVaultClaimNote(vault.handle, "kv", 1, "half", 4), OK);
            Claim again(vault, "kv"); // without effect
            EXPECT_EQ(again.made.ptr, claim.made.ptr);
            EXPECT_EQ(again.made.epoch, 1u);
            umf_vault_stat_t stat = vault.stat();
            EXPECT_EQ(stat.claims, 1u);
            EXPECT_EQ(stat.devices, 1u);
            EXPECT_EQ(stat.device_bytes, size);
            auto look = [](const umf_vault_claim_stat_t *of, void *) {
                EXPECT_STREQ(of->key, "kv");
                EXPECT_EQ(of->size, 4 * MiB);
                EXPECT_EQ(strncmp(of->device, "GPU-", 4), 0);
                return 0;
            };
            EXPECT_EQ(umfVaultEachClaim(vault.handle, look, nullptr), OK);
            EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), OK);
            EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), BAD);
        }
        kill(daemon(), SIGKILL);
        {
            Vault next;
            Claim claim(next, "kv", size);
            ASSERT_EQ(claim.result, OK) << umfLastErrorText();
            EXPECT_EQ(claim.made.epoch, 2u);
            EXPECT_FALSE(claim.made.is_new);
            EXPECT_TRUE(claim.is(7));
            EXPECT_EQ(std::string(static_cast<const char *>(claim.made.note), claim.made.note_size),
                      "half");
            kill(keeper(), SIGKILL);
            EXPECT_EQ(umfVaultClaimNote(next.handle, "kv", 2, nullptr, 0), OK);
            EXPECT_EQ(Claim(vault, "kv").result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
            EXPECT_EQ(umfLastReason(), UMF_REASON_BUSY);
        }
        EXPECT_EQ(umfVaultForget(vault.handle, "kv"), OK);
        EXPECT_EQ(vault.stat().bytes, 0u);
    }
    EXPECT_EQ(objects(), before);
}

TEST_F(VaultGpuClaims, HoldersOfOtherProcesses) {
    Vault vault;
    Process first("claimer", "kv 2097152 0 5");
    ASSERT_EQ(first.socket.receive(), "0 1");
    EXPECT_EQ(Claim(vault, "kv").result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    { // with a fence by epoch both have it mapped
        Claim claim(vault, "kv", 0, UMF_VAULT_FENCE_EPOCH);
        ASSERT_EQ(claim.result, OK) << umfLastErrorText();
        EXPECT_EQ(claim.made.epoch, 2u);
        EXPECT_TRUE(claim.is(5));
        EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), OK);
    }
    EXPECT_EQ(Claim(vault, "kv").result, UMF_RESULT_ERROR_OUT_OF_RESOURCES); // it may still write
    first.kill();
    EXPECT_TRUE(until([&] { return Claim(vault, "kv").result == OK; }));
    EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), OK);
    Process second("claimer", "kv 0 0 6");
    ASSERT_EQ(second.socket.receive().substr(0, 2), "0 ");
    Process third("claimer", "kv 0 2 8"); // ends the second
    ASSERT_EQ(third.socket.receive().substr(0, 2), "0 ");
    Claim claim(vault, "kv", 0, UMF_VAULT_FENCE_KILL);
    ASSERT_EQ(claim.result, OK) << umfLastErrorText();
    EXPECT_TRUE(claim.is(8));
    EXPECT_EQ(claim.made.note_size, 7u);
}

TEST_F(VaultGpuClaims, OneThatWasFenced) {
    Vault one, other;
    Claim first(one, "kv", MiB);
    ASSERT_EQ(first.result, OK);
    Claim second(other, "kv", 0, UMF_VAULT_FENCE_EPOCH);
    ASSERT_EQ(second.result, OK) << umfLastErrorText();
    EXPECT_NE(second.made.ptr, first.made.ptr);
    EXPECT_NE(*first.made.now, first.made.epoch);
    EXPECT_EQ(umfVaultClaimNote(one.handle, "kv", first.made.epoch, "a", 1), BAD);
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
    Claim again(one, "kv", 0, UMF_VAULT_FENCE_EPOCH, nullptr); // the handle knows where it is
    ASSERT_EQ(again.result, OK) << umfLastErrorText();
    EXPECT_EQ(again.made.ptr, first.made.ptr);
    EXPECT_EQ(again.made.epoch, 3u);
}

// While a claim waits, another thread gives back what the handle holds: it no longer knows where
// the memory is.
TEST_F(VaultGpuClaims, OneThatIsGivenBackWhileAnotherWaits) {
    Vault one, other;
    ASSERT_EQ(Claim(one, "kv", MiB).result, OK);
    ASSERT_EQ(Claim(other, "kv", 0, UMF_VAULT_FENCE_EPOCH).result, OK) << umfLastErrorText();
    std::thread waits([&] {
        umf_vault_claim_t made = UMF_VAULT_CLAIM_INIT;
        umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
        params.timeout_ms = 60000;
        EXPECT_EQ(umfVaultClaim(one.handle, "kv", &params, &made), BAD);
        EXPECT_EQ(umfLastReason(), UMF_REASON_IDENTITY) << umfLastErrorText();
    });
    usleep(50000);
    EXPECT_EQ(umfVaultUnclaim(one.handle, "kv"), OK);
    EXPECT_EQ(umfVaultUnclaim(other.handle, "kv"), OK);
    waits.join();
}

TEST_F(VaultGpuClaims, WhatIsRefused) {
    Vault vault, folder(("file:" + place + "/folder").c_str());
    EXPECT_EQ(Claim(folder, "kv", MiB).result, UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(Claim(vault, "kv").result, BAD); // there is none
    EXPECT_EQ(umfLastReason(), UMF_REASON_ABSENT);
    EXPECT_EQ(Claim(vault, "kv", MiB, UMF_VAULT_FENCE_WAIT, "linux_vmm").result, BAD);
    EXPECT_EQ(Claim(vault, "kv", MiB, UMF_VAULT_FENCE_WAIT, "none").result, BAD);
    EXPECT_EQ(vault.stat().claims, 0u);
    Vault holder;
    ASSERT_EQ(Claim(holder, "kv", 2 * MiB).result, OK);
    ASSERT_EQ(Claim(holder, "host", 4096, UMF_VAULT_FENCE_WAIT, nullptr).result, OK);
    // Of another kind or size, also with a fence: the holder loses nothing.
    for (umf_vault_fence_t fence : {UMF_VAULT_FENCE_WAIT, UMF_VAULT_FENCE_EPOCH}) {
        for (auto [key, size, devices] :
             {std::tuple<const char *, size_t, const char *>{"kv", 0, nullptr},
              {"kv", 4096, nullptr},
              {"kv", 4 * MiB, "cuda_vmm"},
              {"host", 0, "cuda_vmm"},
              {"host", 4096, "cuda_vmm"}}) {
            EXPECT_EQ(Claim(vault, key, size, fence, devices).result, BAD) << key << " " << size;
            EXPECT_EQ(umfLastReason(), UMF_REASON_IDENTITY) << umfLastErrorText();
        }
    }
    EXPECT_EQ(umfVaultClaimNote(holder.handle, "kv", 1, "a", 1), OK);
    EXPECT_EQ(umfVaultForget(vault.handle, "kv"), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    Vault small("small", MiB);
    EXPECT_EQ(Claim(small, "kv", 4 * MiB).result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_LIMIT);
    EXPECT_EQ(small.stat().bytes, 0u);
}

TEST_F(VaultGpuClaims, InCpp) {
    umf::vault one("model"), other("model");
    umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
    params.size = MiB;
    params.devices = "cuda_vmm";
    umf::result<umf::vault_claim> claimed = one.claim("kv", params);
    ASSERT_TRUE(claimed) << umfLastErrorText();
    umf::vault_claim first = std::move(claimed).value();
    EXPECT_EQ(first.device(), 0);
    EXPECT_EQ(driver().cuMemsetD8(at(first.data()), 4, first.size()), CUDA_SUCCESS);
    EXPECT_TRUE(first.commit("four"));
    params.size = 0;
    params.fence = UMF_VAULT_FENCE_EPOCH;
    {
        umf::vault_claim second = other.claim("kv", params).value();
        EXPECT_TRUE(first.is_fenced());
        EXPECT_EQ(second.note(), "four");
        unsigned char seen = 0;
        EXPECT_EQ(driver().cuMemcpyDtoH(&seen, at(second.data()), 1), CUDA_SUCCESS);
        EXPECT_EQ(seen, 4);
    }
    EXPECT_TRUE(first.renew()); // the handle knows that it is of a device
    EXPECT_FALSE(first.is_fenced());
    EXPECT_TRUE(first.unclaim());
    EXPECT_EQ(first.device(), -1);
    EXPECT_TRUE(one.forget("kv"));
}

TEST_F(VaultGpuClaims, EachCallOfTheDriverMayFail) {
    NEEDS_FAKE()
    Vault vault;
    ASSERT_EQ(Claim(vault, "first", MiB).result, OK); // the provider is there
    ASSERT_EQ(umfVaultForget(vault.handle, "first"), OK);
    long before = objects(), files = open_files();
    for (int function : {FAKE_cuMemExportToShareableHandle, FAKE_cuMemImportFromShareableHandle,
                         FAKE_cuMemAddressReserve, FAKE_cuMemCreate, FAKE_cuMemMap,
                         FAKE_cuMemSetAccess, FAKE_cuStreamCreate, FAKE_cuStreamSynchronize}) {
        for (long n = 1, is_reached = 1; is_reached; n++) {
            fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, n);
            Claim claim(vault, "kv", MiB);
            is_reached = driver().control()->fail_at == 0;
            driver().control()->fail_at = 0;
            if (claim.result == OK) {
                EXPECT_TRUE(claim.is(0)) << function << " " << n;
                EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), OK);
            } else {
                EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), BAD);
            }
            EXPECT_EQ(umfVaultForget(vault.handle, "kv"), OK);
            EXPECT_TRUE(until([&] { return objects() == before; })) << function << " " << n;
            EXPECT_EQ(open_files(), files) << function << " " << n;
            ASSERT_LT(n, 100);
        }
    }
}

} // namespace
