// The daemon, or its keeper, is killed at each step of the protocol in turn while a program writes,
// reads, updates, commits a group and drops. Each call succeeds as if nothing had happened.
#include <umf.h>

#include "fakes/scale.h"
#include "vault/service.h"

namespace {

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

    void each_step(const char *who) {
        unsigned stride = does_all() ? 1 : 7, step = 1;
        bool was_reached = true;
        while (was_reached && !HasFailure()) {
            SCOPED_TRACE(std::string(who) + " at step " + std::to_string(step));
            {
                Vault keeps_it("model"); // so that the service is there before the order
                std::ofstream(order() + ".new") << who << " " << step << "\n";
                ASSERT_EQ(rename((order() + ".new").c_str(), order().c_str()), 0);
                life();
                was_reached = unlink(order().c_str()) != 0;
            }
            umfVaultStop(nullptr, 1);
            ASSERT_TRUE(until([&] { return processes().empty(); }));
            step += stride;
        }
        EXPECT_GT(step, 100u);
    }
};

TEST_F(VaultSteps, TheDaemonEndsAtEach) {
    each_step("daemon");
}

TEST_F(VaultSteps, TheKeeperEndsAtEach) {
    each_step("keeper");
}

} // namespace
