// Vaults of a service that is hit at a step of its protocol: all that a client does with them, and
// what must be right afterwards.
#ifndef UMF_TEST_VAULT_STEPS_H
#define UMF_TEST_VAULT_STEPS_H

#include <umf.h>

#include "vault/service.h"

// The same service, with a process that is hit at a step of the protocol (steps.c).
class VaultSteps : public Vaults {
  public:
    void SetUp() override {
        Vaults::SetUp();
        setenv("UMF_UMFD", UMF_TEST_UMFD_STEPS, 1);
    }
    std::string order() const {
        return place + "/die";
    }

    // Made, noted, given back, taken by a fence, ended with its connection, forgotten.
    static void pass_on_a_claim(const Vault &vault, const Vault &other) {
        umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
        umf_vault_claim_t one = UMF_VAULT_CLAIM_INIT, two = UMF_VAULT_CLAIM_INIT;
        params.size = 4096;
        params.timeout_ms = 60000;
        EXPECT_EQ(umfVaultClaim(vault.handle, "kv", &params, &one), UMF_RESULT_SUCCESS);
        EXPECT_EQ(one.epoch, 1u);
        EXPECT_EQ(one.is_new, 1);
        *static_cast<unsigned *>(one.ptr) = 7;
        EXPECT_EQ(umfVaultClaimNote(vault.handle, "kv", 1, "seven", 5), UMF_RESULT_SUCCESS);
        {
            Vault next("model");
            params.fence = UMF_VAULT_FENCE_EPOCH;
            EXPECT_EQ(umfVaultClaim(next.handle, "kv", &params, &two), UMF_RESULT_SUCCESS);
            EXPECT_GT(two.epoch, one.epoch); // numbers may have gaps
            EXPECT_EQ(*static_cast<unsigned *>(two.ptr), 7u);
            EXPECT_EQ(std::string(static_cast<const char *>(two.note), two.note_size), "seven");
            EXPECT_EQ(umfVaultClaimNote(vault.handle, "kv", 1, "stale", 5),
                      UMF_RESULT_ERROR_INVALID_ARGUMENT);
            EXPECT_EQ(umfVaultClaimNote(next.handle, "kv", two.epoch, "last", 4),
                      UMF_RESULT_SUCCESS);
        }
        EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), UMF_RESULT_SUCCESS);
        params.fence = UMF_VAULT_FENCE_WAIT;
        EXPECT_EQ(umfVaultClaim(vault.handle, "kv", &params, &one), UMF_RESULT_SUCCESS);
        EXPECT_EQ(std::string(static_cast<const char *>(one.note), one.note_size), "last");
        EXPECT_EQ(umfVaultForget(vault.handle, "kv"), UMF_RESULT_SUCCESS);
        EXPECT_EQ(vault.stat().claims, 0u);
        EXPECT_EQ(umfVaultClaim(other.handle, "kv", &params, &one), UMF_RESULT_SUCCESS);
    }

    void life() {
        Vault vault("model", 0, 1), other("other");
        uint64_t one = write_generation(vault, 3, 1);
        {
            View view(vault);
            EXPECT_EQ(view.wrong(3, 1), 0u);
        }
        umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
        params.from = one;
        {
            Draft draft(vault, &params);
            draft.put(key_of(9))[0] = 1;
            EXPECT_EQ(umfVaultKeep(draft.handle, ""), UMF_RESULT_SUCCESS);
            uint64_t generation = 0;
            EXPECT_EQ(draft.commit(&generation), UMF_RESULT_SUCCESS);
            EXPECT_GT(generation, one); // numbers may have gaps
        }
        EXPECT_EQ(View(vault).wrong(3, 1), 0u);
        { Draft aborted(vault); }
        umf_vault_commit_params_t group = UMF_VAULT_COMMIT_PARAMS_INIT;
        group.group = "all";
        group.group_count = 2;
        group.timeout_ms = 60000;
        {
            Draft first(vault), second(other);
            first.fill(2, 4);
            second.fill(2, 5);
            std::thread waits(
                [&] { EXPECT_EQ(first.commit(nullptr, &group), UMF_RESULT_SUCCESS); });
            EXPECT_EQ(second.commit(nullptr, &group), UMF_RESULT_SUCCESS);
            waits.join();
        }
        EXPECT_EQ(View(vault).wrong(2, 4), 0u);
        EXPECT_EQ(View(other).wrong(2, 5), 0u);
        {
            Vault reader("other");
            EXPECT_EQ(View(reader).wrong(2, 5), 0u);
        }
        pass_on_a_claim(vault, other);
        EXPECT_EQ(umfVaultDrop(other.handle, 0), UMF_RESULT_SUCCESS);
        EXPECT_EQ(View(vault).wrong(2, 4), 0u);
        EXPECT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_SUCCESS);
        EXPECT_EQ(vault.stat().generations, 0u);
        EXPECT_EQ(vault.stat().bytes, 0u);
    }

    // An order is there for the next steps: "" removes one that was not reached.
    void order_fault(const std::string &who, int number, unsigned step) const {
        std::ofstream(order() + ".new") << who << " " << number << " " << step << "\n";
        ASSERT_EQ(rename((order() + ".new").c_str(), order().c_str()), 0);
    }
    bool was_reached() const {
        return unlink(order().c_str()) != 0;
    }

    // Descriptors of the service; 0: this process may not see them.
    static size_t descriptors(pid_t pid) {
        size_t count = 0;
        DIR *open = opendir(("/proc/" + std::to_string(pid) + "/fd").c_str());
        while (open && readdir(open)) {
            count++;
        }
        if (open) {
            closedir(open);
        }
        return count;
    }

    // Whatever happened before: the current generation is whole, another writer gets in, the claim
    // has one holder, and when all is dropped nothing stays.
    void check() {
        {
            Vault vault("model"), other("other");
            expect_whole(vault);
            expect_whole(other);
            umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
            params.timeout_ms = 60000;
            {
                Draft draft(vault, &params);
                ASSERT_EQ(draft.begun, UMF_RESULT_SUCCESS);
                draft.fill(2, 77);
                EXPECT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
            }
            EXPECT_EQ(View(vault).wrong(2, 77), 0u);
            umf_vault_claim_params_t alone = UMF_VAULT_CLAIM_PARAMS_INIT;
            umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
            alone.size = 4096;
            alone.timeout_ms = 60000;
            EXPECT_EQ(umfVaultClaim(vault.handle, "kv", &alone, &claim), UMF_RESULT_SUCCESS);
            EXPECT_EQ(*claim.now, claim.epoch);
            EXPECT_EQ(umfVaultClaimNote(vault.handle, "kv", claim.epoch, "x", 1),
                      UMF_RESULT_SUCCESS);
            EXPECT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_SUCCESS);
            EXPECT_EQ(umfVaultDrop(other.handle, 0), UMF_RESULT_SUCCESS);
            EXPECT_EQ(vault.stat().bytes, 0u);
            EXPECT_EQ(vault.stat().claims, 0u);
            EXPECT_EQ(other.stat().bytes, 0u);
        }
        // Of an empty service without clients but those of the test.
        EXPECT_TRUE(until([&] {
            size_t most = std::max(descriptors(daemon()), descriptors(keeper()));
            return most <= 20;
        })) << descriptors(daemon())
            << " and " << descriptors(keeper());
    }
    static void expect_whole(const Vault &vault) {
        if (vault.stat().current == 0) {
            return;
        }
        View view(vault);
        ASSERT_EQ(view.attached, UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfVaultVerify(view.handle, nullptr), UMF_RESULT_SUCCESS);
    }

    void end_service() {
        umfVaultStop(nullptr, 1);
        ASSERT_TRUE(until([&] { return has_ended(); }));
    }

    static void commit_with_sums(const Vault &vault, uint64_t seed) {
        umf_vault_commit_params_t sums = UMF_VAULT_COMMIT_PARAMS_INIT;
        sums.digest = 1;
        Draft draft(vault);
        draft.fill(3, seed);
        EXPECT_EQ(draft.commit(nullptr, &sums), UMF_RESULT_SUCCESS);
    }
};

#endif
