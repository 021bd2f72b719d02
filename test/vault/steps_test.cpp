// At each step of the protocol in turn a process is killed: the daemon, its keeper, both, the
// writer, the reader; or a writer or reader is stopped (stops_test.cpp: daemon and keeper). What
// was committed is there and right, nothing else stays, and the next writer gets in. If it was the
// daemon or the keeper, each call succeeds as if nothing had happened.
#include <umf.h>

#include "fakes/scale.h"
#include "vault/steps.h"

namespace {

class VaultEachStep : public VaultSteps {
  public:
    void each_step(const char *who, int number, unsigned stride) {
        unsigned step = 1;
        stride = does_all() ? 1 : stride;
        bool goes_on = true;
        while (goes_on && !HasFailure()) {
            SCOPED_TRACE(std::string(who) + " at step " + std::to_string(step));
            {
                Vault keeps_it("model"); // so that the service is there before the order
                order_fault(who, number, step);
                life();
                goes_on = was_reached();
                check();
            }
            end_service();
            step += stride;
        }
        EXPECT_GT(step, 100u);
    }

    // The same of a process with one part of the life, which does not look at results.
    void each_step_of_client(void (*part)(), int number, bool is_both, unsigned stride) {
        unsigned step = 1;
        stride = does_all() ? 1 : stride;
        bool goes_on = true;
        while (goes_on && !HasFailure()) {
            SCOPED_TRACE("step " + std::to_string(step));
            {
                Vault keeps_it("model");
                commit_with_sums(keeps_it, 1);
                View before(keeps_it);
                int go[2];
                ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
                pid_t child = fork();
                if (child == 0) {
                    char byte;
                    close(go[1]);
                    while (::read(go[0], &byte, 1) == -1 && errno == EINTR) {
                    }
                    part();
                    _exit(0);
                }
                close(go[0]);
                order_fault(is_both ? "both" : std::to_string(child), number, step);
                close(go[1]);
                int status = 0;
                ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
                if (WIFSTOPPED(status)) {
                    expect_no_obstacle(keeps_it);
                    kill(child, SIGCONT);
                    ASSERT_EQ(waitpid(child, &status, 0), child);
                }
                EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : status == 0);
                goes_on = was_reached();
                EXPECT_EQ(umfVaultVerify(before.handle, nullptr), UMF_RESULT_SUCCESS);
                EXPECT_EQ(before.wrong(3, 1), 0u);
                check();
            }
            end_service();
            step += stride;
        }
        EXPECT_GT(step, 20u);
    }

    // Beside a client that is stopped: its draft is ended, its claim is overtaken.
    static void expect_no_obstacle(const Vault &vault) {
        EXPECT_EQ(umfVaultDropDraft(vault.handle), UMF_RESULT_SUCCESS);
        commit_with_sums(vault, 5);
        EXPECT_EQ(View(vault).wrong(3, 5), 0u);
        umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
        umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
        params.size = 4096;
        params.fence = UMF_VAULT_FENCE_EPOCH;
        EXPECT_EQ(umfVaultClaim(vault.handle, "kv", &params, &claim), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfVaultClaimNote(vault.handle, "kv", claim.epoch, "stopped", 7),
                  UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), UMF_RESULT_SUCCESS);
    }
};

bool fill(umf_vault_draft_handle_t draft, uint64_t seed) {
    umf_memory_pool_handle_t pool;
    if (umfVaultDraftPool(draft, "coalescing over linux_vmm:piece_size=256K", &pool) !=
        UMF_RESULT_SUCCESS) {
        return false;
    }
    for (size_t i = 0; i < 3; i++) {
        auto *memory = static_cast<unsigned char *>(umfPoolMalloc(pool, entry_size));
        for (size_t at = 0; at < entry_size; at++) {
            memory[at] = byte_of(seed, i, at);
        }
        umfVaultPut(draft, key_of(i).c_str(), memory, entry_size, nullptr, 0, 0);
    }
    return true;
}

// A generation, one with a part of it, one of a group of one, a draft that is given up, and a
// claim.
void writes() {
    umf_vault_handle_t vault;
    umf_vault_draft_handle_t draft;
    umf_vault_commit_params_t sums = UMF_VAULT_COMMIT_PARAMS_INIT;
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    sums.digest = 1;
    if (umfVaultOpen("model", nullptr, &vault) != UMF_RESULT_SUCCESS) {
        return;
    }
    for (uint64_t i = 0; i < 4; i++) {
        if (umfVaultBegin(vault, &params, &draft) != UMF_RESULT_SUCCESS) {
            continue;
        }
        uint64_t generation = 0;
        fill(draft, 10 + i);
        if (params.from) {
            umfVaultKeep(draft, "");
        }
        sums.group = i == 2 ? "group" : nullptr;
        sums.group_count = 1;
        if (i == 3 || umfVaultCommit(draft, &sums, &generation) != UMF_RESULT_SUCCESS) {
            umfVaultAbort(draft);
        }
        params.from = generation;
    }
    umf_vault_claim_params_t alone = UMF_VAULT_CLAIM_PARAMS_INIT;
    umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
    alone.size = 4096;
    if (umfVaultClaim(vault, "kv", &alone, &claim) == UMF_RESULT_SUCCESS) {
        *static_cast<unsigned *>(claim.ptr) = 1;
        umfVaultClaimNote(vault, "kv", claim.epoch, "one", 3);
        umfVaultUnclaim(vault, "kv");
        umfVaultClaim(vault, "kv", &alone, &claim); // held at the end
    }
    _exit(0);
}

// Views, one after the other and beside each other, and looks.
void reads() {
    umf_vault_stat_t stat = UMF_VAULT_STAT_INIT;
    for (int i = 0; i < 3; i++) {
        umf_vault_handle_t vault;
        umf_vault_view_handle_t views[2] = {};
        if (umfVaultOpen("model", nullptr, &vault) != UMF_RESULT_SUCCESS) {
            continue;
        }
        for (umf_vault_view_handle_t &view : views) {
            if (umfVaultAttach(vault, nullptr, &view) == UMF_RESULT_SUCCESS &&
                umfVaultVerify(view, nullptr) != UMF_RESULT_SUCCESS) {
                _exit(1);
            }
        }
        umfVaultStat(vault, &stat);
        if (views[0]) {
            umfVaultDetach(views[0]);
        }
        umfVaultClose(vault);
    }
}

TEST_F(VaultEachStep, TheDaemonEndsAtEach) {
    each_step("daemon", SIGKILL, 31);
}

TEST_F(VaultEachStep, TheKeeperEndsAtEach) {
    each_step("keeper", SIGKILL, 31);
}

// A keeper that was just started cannot replace a daemon before it has everything. Behind the last
// descriptor, the second one, the daemon answers what was asked before.
TEST_F(VaultEachStep, ANewKeeperWaitsForItsDaemon) {
    for (unsigned step : {1u, 2u}) {
        {
            Vault vault("model");
            commit_with_sums(vault, 1);
            pid_t serving = daemon();
            order_fault("daemon", SIGSTOP, step);
            ASSERT_NO_FATAL_FAILURE(hit(keeper(), SIGKILL));
            ASSERT_TRUE(until([&] { return state_of(serving) == 'T'; }));
            std::thread client([] {
                Vault other("model");
                EXPECT_EQ(View(other).wrong(3, 1), 0u);
            });
            usleep(1500000); // twice as long as a request waits for a daemon otherwise
            EXPECT_EQ(kill(serving, SIGCONT), 0);
            client.join();
            EXPECT_EQ(View(vault).wrong(3, 1), 0u);
            EXPECT_EQ(daemon(), serving) << "at step " << step;
        }
        end_service();
    }
}

// Between the descriptors and the state of a new daemon.
TEST_F(VaultEachStep, TheKeeperEndsBesideADaemonThatStarts) {
    Vault vault("model");
    commit_with_sums(vault, 1);
    pid_t first = daemon();
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGSTOP)); // so that no step of it is meant
    ASSERT_TRUE(until([&] { return state_of(first) == 'T'; }));
    order_fault("keeper", SIGKILL, 2); // the first one is before the descriptors
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
    EXPECT_EQ(View(vault).wrong(3, 1), 0u);
    EXPECT_TRUE(was_reached());
}

// The keeper asks whether it is there before it has asked for the descriptors. This test may be too
// late with SIGCONT: then the keeper replaces it with reason.
TEST_F(VaultEachStep, ADaemonThatIsSlowToStartStays) {
    bool stays = false;
    for (int tries = 0; tries < 5 && !stays; tries++) {
        Vault vault("model");
        commit_with_sums(vault, 1);
        pid_t first = daemon();
        ASSERT_NO_FATAL_FAILURE(hit(first, SIGSTOP)); // so that no step of it is meant
        ASSERT_TRUE(until([&] { return state_of(first) == 'T'; }));
        order_fault("daemon", SIGSTOP, 1);
        ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
        pid_t slow = 0;
        ASSERT_TRUE(until([&] {
            slow = daemon();
            return slow != 0 && slow != first && state_of(slow) == 'T';
        }));
        std::thread client([&] { EXPECT_EQ(View(vault).wrong(3, 1), 0u); });
        usleep(400000); // it is asked 100 ms after its start, and replaced 700 ms later
        kill(slow, SIGCONT);
        client.join();
        usleep(1000000);
        EXPECT_EQ(View(vault).wrong(3, 1), 0u);
        stays = daemon() == slow;
    }
    EXPECT_TRUE(stays);
}

// SIGTERM comes after the keeper has looked whether there was one, and nothing else comes.
TEST_F(VaultEachStep, ASignalJustBeforeTheKeeperWaitsEndsTheService) {
    Vault vault("model");
    std::ofstream(place + "/term").close();
    vault.stat(); // the keeper watches whether it is answered, and waits again
    EXPECT_TRUE(until([&] { return has_ended(); }));
    EXPECT_NE(access((place + "/term").c_str(), F_OK), 0);
}

TEST_F(VaultEachStep, TheWriterEndsAtEach) {
    each_step_of_client(writes, SIGKILL, false, 41);
}

TEST_F(VaultEachStep, TheWriterStopsAtEach) {
    each_step_of_client(writes, SIGSTOP, false, 41);
}

TEST_F(VaultEachStep, TheReaderEndsAtEach) {
    each_step_of_client(reads, SIGKILL, false, 19);
}

TEST_F(VaultEachStep, TheReaderStopsAtEach) {
    each_step_of_client(reads, SIGSTOP, false, 19);
}

TEST_F(VaultEachStep, BothEndAtEachOfAWriter) {
    each_step_of_client(writes, SIGKILL, true, 41);
}

TEST_F(VaultEachStep, BothEndAtEachOfAReader) {
    each_step_of_client(reads, SIGKILL, true, 19);
}

} // namespace
