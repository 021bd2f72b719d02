// Processes of a vault are killed or stopped: no committed byte is lost, no process waits for long.
#include <atomic>
#include <random>

#include <umf.h>

#include "fakes/scale.h"
#include "vault/service.h"

namespace {

uint64_t now_ms() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000 + uint64_t(now.tv_nsec) / 1000000;
}

class VaultKills : public Vaults {
  public:
    // A new one took the place of a process.
    void expect_another(pid_t before, bool is_daemon) {
        EXPECT_TRUE(until([&] {
            pid_t pid = is_daemon ? daemon() : keeper();
            return pid != 0 && pid != before;
        }));
    }
};

TEST_F(VaultKills, TheDaemonIsKilledAndNothingIsLost) {
    Vault vault;
    write_generation(vault, 10, 3);
    uint64_t restarts = vault.stat().restarts;
    View before(vault);
    pid_t first = daemon();
    ASSERT_NE(first, 0);
    ASSERT_EQ(kill(first, SIGKILL), 0);
    View after(vault); // the same connection
    EXPECT_EQ(after.attached, UMF_RESULT_SUCCESS);
    EXPECT_EQ(before.wrong(10, 3), 0u);
    EXPECT_EQ(after.wrong(10, 3), 0u);
    EXPECT_EQ(vault.stat().restarts, restarts + 1);
    expect_another(first, true);
    EXPECT_EQ(write_generation(vault, 4, 4), 2u);
    EXPECT_EQ(View(vault).wrong(4, 4), 0u);
}

TEST_F(VaultKills, TheKeeperIsKilledAndNothingIsLost) {
    Vault vault;
    write_generation(vault, 10, 3);
    pid_t first = keeper(), serving = daemon();
    ASSERT_NE(first, 0);
    ASSERT_EQ(kill(first, SIGKILL), 0);
    View view(vault);
    EXPECT_EQ(view.wrong(10, 3), 0u);
    expect_another(first, false);
    EXPECT_EQ(daemon(), serving);
    EXPECT_EQ(vault.stat().current, 1u); // answered when the new keeper has everything
    // The new keeper has everything: now the daemon may go.
    ASSERT_EQ(kill(serving, SIGKILL), 0);
    EXPECT_EQ(View(vault).wrong(10, 3), 0u);
    Vault another; // the place has one service still
    EXPECT_EQ(View(another).wrong(10, 3), 0u);
}

TEST_F(VaultKills, ADraftGoesOnBeyondTheDaemon) {
    Vault vault;
    Draft draft(vault);
    draft.fill(5, 1);
    ASSERT_EQ(kill(daemon(), SIGKILL), 0);
    EXPECT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(View(vault).wrong(5, 1), 0u);
}

TEST_F(VaultKills, AStoppedDaemonIsReplaced) {
    Vault vault;
    write_generation(vault, 2, 3);
    pid_t first = daemon();
    ASSERT_EQ(kill(first, SIGSTOP), 0);
    EXPECT_EQ(View(vault).wrong(2, 3), 0u);
    expect_another(first, true);
}

TEST_F(VaultKills, AStoppedKeeperIsReplaced) {
    Vault vault;
    write_generation(vault, 2, 3);
    pid_t first = keeper();
    ASSERT_EQ(kill(first, SIGSTOP), 0);
    EXPECT_EQ(write_generation(vault, 2, 4), 2u);
    EXPECT_EQ(View(vault).wrong(2, 4), 0u);
    expect_another(first, false);
}

TEST_F(VaultKills, WithoutBothTheContentIsGoneAndReadersGoOn) {
    Vault vault;
    write_generation(vault, 2, 3);
    View view(vault);
    std::vector<pid_t> all = processes();
    ASSERT_EQ(all.size(), 2u);
    kill(all[0], SIGSTOP); // so that none is started again
    kill(all[1], SIGKILL);
    kill(all[0], SIGKILL);
    EXPECT_EQ(view.wrong(2, 3), 0u);
    EXPECT_EQ(vault.stat().current, 0u); // of a new service
    EXPECT_EQ(View(vault).attached, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(write_generation(vault, 2, 5), 1u);
    EXPECT_EQ(View(vault).wrong(2, 5), 0u);
}

TEST_F(VaultKills, ADraftIsLostWithBoth) {
    Vault vault;
    Draft draft(vault);
    draft.fill(1, 1);
    for (pid_t pid : processes()) {
        kill(pid, SIGSTOP);
    }
    for (pid_t pid : processes()) {
        kill(pid, SIGKILL);
    }
    EXPECT_NE(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(vault.stat().current, 0u);
    EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultAbort(draft.handle), UMF_RESULT_SUCCESS);
    draft.handle = nullptr;
    write_generation(vault, 1, 2);
}

TEST_F(VaultKills, AWriterThatDiesLeavesTheFormerGeneration) {
    Vault vault;
    write_generation(vault, 2, 1);
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        Vault own;
        Draft draft(own);
        draft.fill(3, 9);
        _exit(write(ready[1], "x", 1) == 1 && pause() == 0);
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_EQ(Draft(vault).begun, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
    params.timeout_ms = 60000;
    EXPECT_EQ(Draft(vault, &params).begun, UMF_RESULT_SUCCESS);
    EXPECT_EQ(View(vault).wrong(2, 1), 0u);
    close(ready[0]);
    close(ready[1]);
}

TEST_F(VaultKills, AReaderThatDiesReleasesItsGeneration) {
    Vault vault;
    {
        Vault writer;
        write_generation(writer, 2, 1);
    }
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        Vault own;
        View view(own);
        _exit(write(ready[1], "x", 1) == 1 && pause() == 0);
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    {
        Vault writer;
        write_generation(writer, 2, 2);
    }
    EXPECT_EQ(vault.stat().generations, 2u);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(until([&] { return vault.stat().generations == 1; }));
    close(ready[0]);
    close(ready[1]);
}

TEST_F(VaultKills, AStoppedWriterIsNoObstacle) {
    Vault vault;
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        Vault own;
        Draft draft(own);
        _exit(write(ready[1], "x", 1) == 1 && pause() == 0);
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    kill(child, SIGSTOP);
    EXPECT_EQ(umfVaultDropDraft(vault.handle), UMF_RESULT_SUCCESS);
    write_generation(vault, 2, 1);
    EXPECT_EQ(View(vault).wrong(2, 1), 0u);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
}

// A writer and a reader work on while daemon, keeper and writers are killed at random moments. What
// was committed is read complete after each round.
TEST_F(VaultKills, AtRandom) {
    std::mt19937 random(20261128);
    Vault vault("model", 0, 1);
    write_generation(vault, 3, 1);
    uint64_t last = 1, longest = 0;
    for (size_t round = 0, rounds = scaled(500); round < rounds; round++) {
        SCOPED_TRACE(round);
        auto kind = unsigned(random() % 4);
        auto delay = useconds_t(random() % 3000);
        pid_t victim = kind == 0 ? keeper() : kind <= 2 ? daemon() : 0;
        pid_t writer = fork();
        if (writer == 0) {
            Vault own("model", 0, 1);
            umf_vault_draft_params_t params = UMF_VAULT_DRAFT_PARAMS_INIT;
            params.timeout_ms = 20000;
            Draft draft(own, &params);
            if (draft.begun != UMF_RESULT_SUCCESS) {
                _exit(2);
            }
            umf_vault_stat_t stat = own.stat();
            draft.fill(3, stat.current + 1);
            uint64_t generation;
            _exit(draft.commit(&generation) == UMF_RESULT_SUCCESS ? 0 : 3);
        }
        usleep(delay);
        if (kind == 3) {
            kill(writer, SIGKILL);
        } else if (victim > 0) {
            kill(victim, SIGKILL);
        }
        uint64_t start = now_ms();
        View view(vault);
        longest = std::max(longest, now_ms() - start);
        ASSERT_EQ(view.attached, UMF_RESULT_SUCCESS);
        int status;
        ASSERT_EQ(waitpid(writer, &status, 0), writer);
        if (kind != 3) {
            ASSERT_EQ(status, 0);
        }
        umf_vault_stat_t stat = vault.stat();
        ASSERT_GE(stat.current, last);
        last = stat.current;
        View now(vault);
        ASSERT_EQ(now.attached, UMF_RESULT_SUCCESS);
        // The seed is the number of the generation that was current, plus 1.
        umf_vault_entry_t entry = now.find(key_of(0));
        ASSERT_EQ(entry.size, entry_size);
        uint64_t seed = 0;
        while (seed <= last && now.wrong(3, seed) != 0) {
            seed++;
        }
        ASSERT_LE(seed, last) << "no generation has this content";
    }
    RecordProperty("longest_ms", std::to_string(longest));
}

} // namespace
