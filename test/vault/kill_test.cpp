// Processes of a vault are killed or stopped: no committed byte is lost, no process waits for long,
// and claims pass from holder to holder.
#include <atomic>
#include <memory>
#include <random>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <umf.h>
#include <umf/reason.h>

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
    // The daemon has noticed that its keeper was killed, and has handed everything over to another
    // one. Until then the content is in one process.
    void expect_complete_keeper(const Vault &vault, pid_t before) {
        expect_another(before, false);
        vault.stat(); // answered after that
    }
};

TEST_F(VaultKills, TheDaemonIsKilledAndNothingIsLost) {
    Vault vault;
    write_generation(vault, 10, 3);
    uint64_t restarts = vault.stat().restarts;
    View before(vault);
    pid_t first = daemon();
    ASSERT_NE(first, 0);
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
    View after(vault); // the same connection
    EXPECT_EQ(after.attached, UMF_RESULT_SUCCESS);
    EXPECT_EQ(before.wrong(10, 3), 0u);
    EXPECT_EQ(after.wrong(10, 3), 0u);
    EXPECT_GT(vault.stat().restarts, restarts);
    expect_another(first, true);
    EXPECT_GT(write_generation(vault, 4, 4), 1u); // numbers may have gaps
    EXPECT_EQ(View(vault).wrong(4, 4), 0u);
}

TEST_F(VaultKills, TheKeeperIsKilledAndNothingIsLost) {
    Vault vault;
    write_generation(vault, 10, 3);
    pid_t first = keeper();
    ASSERT_NE(first, 0);
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
    View view(vault);
    EXPECT_EQ(view.wrong(10, 3), 0u);
    expect_another(first, false);
    EXPECT_EQ(vault.stat().current, 1u); // answered when the new keeper has everything
    // The new keeper has everything: now the daemon may go.
    ASSERT_NO_FATAL_FAILURE(hit(daemon(), SIGKILL));
    EXPECT_EQ(View(vault).wrong(10, 3), 0u);
    Vault another; // the place has one service still
    EXPECT_EQ(View(another).wrong(10, 3), 0u);
}

TEST_F(VaultKills, ADraftGoesOnBeyondTheDaemon) {
    Vault vault;
    Draft draft(vault);
    draft.fill(5, 1);
    ASSERT_NO_FATAL_FAILURE(hit(daemon(), SIGKILL));
    EXPECT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(View(vault).wrong(5, 1), 0u);
}

TEST_F(VaultKills, AStoppedDaemonIsReplaced) {
    Vault vault;
    write_generation(vault, 2, 3);
    pid_t first = daemon();
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGSTOP));
    EXPECT_EQ(View(vault).wrong(2, 3), 0u);
    expect_another(first, true);
}

TEST_F(VaultKills, AStoppedKeeperIsReplaced) {
    Vault vault;
    write_generation(vault, 2, 3);
    pid_t first = keeper();
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGSTOP));
    EXPECT_GT(write_generation(vault, 2, 4), 1u);
    EXPECT_EQ(View(vault).wrong(2, 4), 0u);
    expect_another(first, false);
}

// The daemon finds the end of a client and that of its keeper at once, and starts another keeper
// for the first one already.
TEST_F(VaultKills, AKeeperThatEndsBesideAClientIsReplacedOnce) {
    Vault vault;
    write_generation(vault, 2, 3);
    auto client = std::make_unique<Vault>();
    pid_t first = keeper(), waits = daemon();
    ASSERT_NO_FATAL_FAILURE(hit(waits, SIGSTOP));
    ASSERT_TRUE(until([&] { return state_of(waits) == 'T'; }));
    client.reset();
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
    ASSERT_EQ(kill(waits, SIGCONT), 0);
    expect_another(first, false);
    pid_t second = keeper();
    usleep(1200 * 1000); // longer than the daemon waits for an answer
    EXPECT_EQ(keeper(), second);
    EXPECT_EQ(daemon(), waits);
    EXPECT_EQ(View(vault).wrong(2, 3), 0u);
}

// It reads none of the messages about slabs that are closed, and there is room for some hundreds.
TEST_F(VaultKills, AStoppedKeeperIsReplacedWhenManySlabsGo) {
    Vault vault;
    {
        Vault writer;
        Draft draft(writer, nullptr, "proxy over linux_vmm:piece_size=4K");
        for (size_t i = 0; i < 1000; i++) {
            draft.put(key_of(i), 4096);
        }
        ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    }
    pid_t first = keeper();
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGSTOP));
    EXPECT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_SUCCESS);
    expect_another(first, false);
    EXPECT_EQ(vault.stat().bytes, 0u);
    write_generation(vault, 2, 4);
    EXPECT_EQ(View(vault).wrong(2, 4), 0u);
}

TEST_F(VaultKills, WithoutBothTheContentIsGoneAndReadersGoOn) {
    Vault vault;
    write_generation(vault, 2, 3);
    write_generation(vault, 2, 3);
    View view(vault);
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    while (umfVaultWait(vault.handle, event.number, 0, &event) == UMF_RESULT_SUCCESS) {
    }
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
    ASSERT_GT(event.number, vault.stat().event);
    EXPECT_EQ(umfVaultWait(vault.handle, event.number, 0, &event), UMF_RESULT_SUCCESS);
    EXPECT_EQ(event.number, 1u); // those of the new service
    EXPECT_EQ(event.type, UMF_VAULT_EVENT_COMMITTED);
    EXPECT_EQ(event.generation, 1u);
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
        if (kind == 0) {
            expect_complete_keeper(vault, victim);
        }
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

// --- claims ---

constexpr size_t words = 8192; // 64 KiB

struct Claim {
    umf_vault_claim_t made = UMF_VAULT_CLAIM_INIT;
    umf_result_t result;
    umf_reason_t reason;

    explicit Claim(const Vault &vault, umf_vault_fence_t fence = UMF_VAULT_FENCE_WAIT,
                   uint64_t timeout_ms = 0, size_t size = words * 8, int shared = 0,
                   const char *key = "kv") {
        umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
        params.size = size;
        params.shared = shared;
        params.fence = fence;
        params.timeout_ms = timeout_ms;
        result = umfVaultClaim(vault.handle, key, &params, &made);
        reason = umfLastReason();
    }
    bool is_right() const {
        return result == UMF_RESULT_SUCCESS;
    }
    volatile uint64_t *at() const {
        return static_cast<volatile uint64_t *>(made.ptr);
    }
    std::string note() const {
        return std::string(static_cast<const char *>(made.note), made.note_size);
    }
};

umf_result_t note(const Vault &vault, uint64_t epoch, const std::string &text) {
    return umfVaultClaimNote(vault.handle, "kv", epoch, text.data(), text.size());
}

// A process that claims, and then does what it is told: a byte is a step, the end of the pipe is
// its end. It answers each step.
class Holder {
  public:
    explicit Holder(const std::function<bool(char)> &step) {
        int orders[2], answers[2];
        EXPECT_EQ(pipe2(orders, O_CLOEXEC), 0);
        EXPECT_EQ(pipe2(answers, O_CLOEXEC), 0);
        pid = fork();
        if (pid == 0) {
            close(orders[1]);
            close(answers[0]);
            char order;
            while (read(orders[0], &order, 1) == 1) {
                char answer = step(order) ? 'y' : 'n';
                if (write(answers[1], &answer, 1) != 1) {
                    break;
                }
            }
            _exit(0);
        }
        close(orders[0]);
        close(answers[1]);
        to = orders[1];
        from = answers[0];
    }
    ~Holder() {
        if (pid > 0) {
            end();
        }
        close(to);
        close(from);
    }
    Holder(const Holder &) = delete;
    Holder &operator=(const Holder &) = delete;

    bool does(char order) const {
        char answer = 0;
        EXPECT_EQ(write(to, &order, 1), 1);
        EXPECT_EQ(read(from, &answer, 1), 1);
        return answer == 'y';
    }
    void send(int number) const {
        EXPECT_EQ(kill(pid, number), 0);
    }
    // How it ended, by SIGKILL if not by itself.
    int end() {
        int status = 0;
        kill(pid, SIGKILL);
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        pid = 0;
        return status;
    }
    void wait_stopped() const {
        int status = 0;
        EXPECT_EQ(waitpid(pid, &status, WUNTRACED), pid);
        EXPECT_TRUE(WIFSTOPPED(status));
    }

    pid_t pid;

  private:
    int to, from;
};

// 'c' claims and writes 7 into the first word, 'n' notes, 'w' writes 9 there, 'l' asks whether it
// is still the holder, 'x' closes all descriptors but those of the test, 'u' gives it back.
std::function<bool(char)> steps_of_holder() {
    return [vault = std::make_shared<std::unique_ptr<Vault>>(),
            claim = std::make_shared<std::unique_ptr<Claim>>()](char order) mutable {
        switch (order) {
        case 'c':
            *vault = std::make_unique<Vault>();
            *claim = std::make_unique<Claim>(**vault);
            if ((*claim)->is_right()) {
                (*claim)->at()[0] = 7;
            }
            return (*claim)->is_right();
        case 'n':
            return note(**vault, (*claim)->made.epoch, "first") == UMF_RESULT_SUCCESS;
        case 'w':
            (*claim)->at()[0] = 9;
            return true;
        case 'l':
            return *(*claim)->made.now == (*claim)->made.epoch;
        case 'x':
            for (int fd = 3; fd < 256; fd++) {
                struct stat about;
                if (fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode)) {
                    close(fd);
                }
            }
            return true;
        default:
            return umfVaultUnclaim((*vault)->handle, "kv") == UMF_RESULT_SUCCESS;
        }
    };
}

class VaultClaims : public VaultKills {};

TEST_F(VaultClaims, TheNextHolderGoesOn) {
    Vault one, two;
    EXPECT_EQ(Claim(one, UMF_VAULT_FENCE_WAIT, 0, 0).reason, UMF_REASON_ABSENT);
    EXPECT_EQ(one.stat().claims, 0u);
    Claim first(one, UMF_VAULT_FENCE_WAIT, 0, 1000);
    ASSERT_TRUE(first.is_right());
    EXPECT_EQ(first.made.size, size_t(sysconf(_SC_PAGESIZE)));
    EXPECT_EQ(first.made.epoch, 1u);
    EXPECT_EQ(first.made.is_new, 1);
    EXPECT_EQ(first.made.note, nullptr);
    EXPECT_EQ(first.at()[3], 0u);
    first.at()[3] = 42;
    EXPECT_EQ(note(one, 1, "up to 4"), UMF_RESULT_SUCCESS);
    Claim again(one, UMF_VAULT_FENCE_WAIT, 0, 1000); // without effect
    EXPECT_EQ(again.made.ptr, first.made.ptr);
    EXPECT_EQ(again.made.epoch, 1u);
    EXPECT_EQ(again.made.is_new, 0);

    Claim refused(two, UMF_VAULT_FENCE_WAIT, 0, 1000);
    EXPECT_EQ(refused.result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(refused.reason, UMF_REASON_BUSY);
    EXPECT_NE(strstr(umfLastErrorText(), std::to_string(getpid()).c_str()), nullptr);
    EXPECT_EQ(umfVaultForget(two.handle, "kv"), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(note(two, 1, "mine"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ASSERT_EQ(umfVaultUnclaim(one.handle, "kv"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultUnclaim(one.handle, "kv"), UMF_RESULT_ERROR_INVALID_ARGUMENT);

    EXPECT_EQ(Claim(two, UMF_VAULT_FENCE_WAIT, 0, 100000).reason, UMF_REASON_IDENTITY);
    Claim second(two, UMF_VAULT_FENCE_WAIT, 0, 0);
    ASSERT_TRUE(second.is_right());
    EXPECT_EQ(second.made.size, first.made.size);
    EXPECT_EQ(second.made.epoch, 2u);
    EXPECT_EQ(*second.made.now, 2u);
    EXPECT_EQ(second.made.is_new, 0);
    EXPECT_EQ(second.note(), "up to 4");
    EXPECT_EQ(second.at()[3], 42u);
    EXPECT_EQ(two.stat().claims, 1u);
    EXPECT_EQ(umfVaultForget(two.handle, "kv"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultForget(two.handle, "kv"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(two.stat().claims, 0u);
    EXPECT_EQ(Claim(one, UMF_VAULT_FENCE_WAIT, 0, 0).reason, UMF_REASON_ABSENT);
}

TEST_F(VaultClaims, TheyAreListedAndStayBesideGenerations) {
    Vault vault, other("other");
    write_generation(vault, 1, 1);
    Claim a(vault, UMF_VAULT_FENCE_WAIT, 0, 4096, 0, "a"),
        b(vault, UMF_VAULT_FENCE_WAIT, 0, 4096, 1, "b");
    ASSERT_TRUE(Claim(other).is_right());
    ASSERT_EQ(umfVaultUnclaim(vault.handle, "b"), UMF_RESULT_SUCCESS);
    std::string seen;
    auto visit = [](const umf_vault_claim_stat_t *stat, void *arg) {
        auto *text = static_cast<std::string *>(arg);
        *text += std::string(stat->key) + " " + std::to_string(stat->holders) + " " +
                 std::to_string(stat->epoch) + (stat->shared ? " shared; " : "; ");
        EXPECT_EQ(stat->process, stat->holders ? uint32_t(getpid()) : 0u);
        EXPECT_GE(stat->size, 4096u);
        return 0;
    };
    EXPECT_EQ(umfVaultEachClaim(vault.handle, visit, &seen), UMF_RESULT_SUCCESS);
    EXPECT_EQ(seen, "a 1 1; b 0 1 shared; ");
    auto stop = [](const umf_vault_claim_stat_t *, void *) { return 1; };
    EXPECT_EQ(umfVaultEachClaim(vault.handle, stop, nullptr), UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(umfVaultEachClaim(vault.handle, nullptr, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);

    EXPECT_EQ(umfVaultDrop(vault.handle, 1), UMF_RESULT_SUCCESS);
    EXPECT_EQ(vault.stat().claims, 2u); // the vault stays for them
    EXPECT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(vault.stat().claims, 0u);
    EXPECT_EQ(vault.stat().bytes, 0u);
    a.at()[0] = 1; // what is mapped stays
    EXPECT_EQ(umfVaultClaimNote(vault.handle, "a", 1, nullptr, 0),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
    EXPECT_EQ(other.stat().claims, 1u);
}

// The handle has memory of the key that is not that of the others any more.
TEST_F(VaultClaims, OneThatWasDroppedIsNotTakenForANewOne) {
    Vault vault, other;
    Claim dropped(vault);
    ASSERT_TRUE(dropped.is_right());
    dropped.at()[0] = 1;
    EXPECT_EQ(umfVaultDrop(other.handle, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(Claim(vault).reason, UMF_REASON_STALE);
    Claim made(other);
    ASSERT_TRUE(made.is_right());
    made.at()[0] = 2;
    EXPECT_EQ(umfVaultUnclaim(other.handle, "kv"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(Claim(vault).reason, UMF_REASON_STALE);
    EXPECT_TRUE(Claim(other).is_right()); // nobody holds it
    EXPECT_EQ(umfVaultUnclaim(other.handle, "kv"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(dropped.at()[0], 1u);
    EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), UMF_RESULT_SUCCESS);
    Claim next(vault);
    ASSERT_TRUE(next.is_right());
    EXPECT_EQ(next.at()[0], 2u);
}

// The answer has a descriptor for which this process has no room.
TEST_F(VaultClaims, OneThatFailsHereIsNotHeld) {
    Vault one, two;
    ASSERT_TRUE(Claim(one).is_right());
    ASSERT_EQ(umfVaultUnclaim(one.handle, "kv"), UMF_RESULT_SUCCESS);
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ASSERT_NE(lowest, -1);
    close(lowest);
    rlimit none = {rlim_t(lowest), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    umf_reason_t reason = Claim(two).reason;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(reason, UMF_REASON_EXHAUSTED);
    EXPECT_TRUE(Claim(one).is_right());
}

TEST_F(VaultClaims, SomeShareIt) {
    Vault one, two, three;
    Claim first(one, UMF_VAULT_FENCE_WAIT, 0, words * 8, 1);
    Claim second(two, UMF_VAULT_FENCE_WAIT, 0, words * 8, 1);
    ASSERT_TRUE(first.is_right() && second.is_right());
    EXPECT_EQ(second.made.epoch, first.made.epoch);
    first.at()[5] = 11;
    EXPECT_EQ(second.at()[5], 11u);
    EXPECT_EQ(note(two, second.made.epoch, "two"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(Claim(three).reason, UMF_REASON_BUSY);
    EXPECT_EQ(Claim(one).result, UMF_RESULT_ERROR_INVALID_ARGUMENT); // it holds it shared
    EXPECT_EQ(umfVaultForget(one.handle, "kv"), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfVaultUnclaim(one.handle, "kv"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(Claim(three).reason, UMF_REASON_BUSY);
    EXPECT_EQ(umfVaultUnclaim(two.handle, "kv"), UMF_RESULT_SUCCESS);
    Claim alone(three);
    ASSERT_TRUE(alone.is_right());
    EXPECT_EQ(alone.made.epoch, first.made.epoch + 1);
    EXPECT_EQ(Claim(one, UMF_VAULT_FENCE_WAIT, 0, 0, 1).reason, UMF_REASON_BUSY);
}

// A client that shares a claim is not in the way of others that share it. One that was fenced is.
TEST_F(VaultClaims, AFenceSparesThoseThatShare) {
    constexpr auto by_epoch = UMF_VAULT_FENCE_EPOCH;
    {
        Vault one, two, three;
        Claim alone(one), first(two, by_epoch, 0, words * 8, 1);
        ASSERT_TRUE(alone.is_right() && first.is_right());
        EXPECT_EQ(Claim(three, UMF_VAULT_FENCE_WAIT, 0, words * 8, 1).reason, UMF_REASON_BUSY);
        Claim second(three, by_epoch, 0, words * 8, 1);
        ASSERT_TRUE(second.is_right());
        EXPECT_EQ(second.made.epoch, first.made.epoch);
        EXPECT_EQ(note(two, first.made.epoch, "first"), UMF_RESULT_SUCCESS);
    }
    Holder holder(steps_of_holder());
    Holder sharer([vault = std::make_shared<std::unique_ptr<Vault>>()](char) {
        *vault = std::make_unique<Vault>();
        return Claim(**vault, by_epoch, 0, words * 8, 1).is_right();
    });
    ASSERT_TRUE(holder.does('c'));
    ASSERT_TRUE(sharer.does('c'));
    Vault vault;
    EXPECT_TRUE(Claim(vault, UMF_VAULT_FENCE_KILL, 60000, words * 8, 1).is_right());
    int status;
    EXPECT_EQ(waitpid(sharer.pid, &status, WNOHANG), 0); // it lives
}

TEST_F(VaultClaims, AClaimThatIsFreedIsGivenToTheOneThatWaits) {
    Vault one, two;
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    ASSERT_TRUE(Claim(one).is_right());
    event.number = one.stat().event;
    std::thread waits([&] { EXPECT_TRUE(Claim(two, UMF_VAULT_FENCE_WAIT, 60000).is_right()); });
    EXPECT_EQ(umfVaultUnclaim(one.handle, "kv"), UMF_RESULT_SUCCESS);
    waits.join();
    EXPECT_EQ(umfVaultWait(one.handle, event.number, 60000, &event), UMF_RESULT_SUCCESS);
    EXPECT_EQ(event.type, UMF_VAULT_EVENT_UNCLAIMED);
    EXPECT_EQ(event.generation, 1u);
}

TEST_F(VaultClaims, AFencedClientThatLeavesIsAnEvent) {
    Vault one, two;
    umf_vault_event_t event = UMF_VAULT_EVENT_INIT;
    ASSERT_TRUE(Claim(one).is_right());
    ASSERT_TRUE(Claim(two, UMF_VAULT_FENCE_EPOCH).is_right());
    event.number = two.stat().event;
    EXPECT_EQ(umfVaultUnclaim(one.handle, "kv"), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfVaultWait(two.handle, event.number, 20000, &event), UMF_RESULT_SUCCESS);
    EXPECT_EQ(event.type, UMF_VAULT_EVENT_UNCLAIMED);
    EXPECT_EQ(event.generation, 0u);
}

TEST_F(VaultClaims, AHolderThatIsKilledLeavesItsMemory) {
    Vault vault;
    Holder holder(steps_of_holder());
    ASSERT_TRUE(holder.does('c'));
    ASSERT_TRUE(holder.does('n'));
    holder.end();
    Claim next(vault, UMF_VAULT_FENCE_WAIT, 60000);
    ASSERT_TRUE(next.is_right());
    EXPECT_EQ(next.at()[0], 7u);
    EXPECT_EQ(next.made.epoch, 2u);
    EXPECT_EQ(next.note(), "first");
}

TEST_F(VaultClaims, AStoppedHolderIsFencedByItsEpoch) {
    Vault vault, third;
    Holder holder(steps_of_holder());
    ASSERT_TRUE(holder.does('c'));
    holder.send(SIGSTOP);
    holder.wait_stopped();
    EXPECT_EQ(Claim(vault).reason, UMF_REASON_BUSY);
    Claim next(vault, UMF_VAULT_FENCE_EPOCH);
    ASSERT_TRUE(next.is_right());
    EXPECT_EQ(next.made.epoch, 2u);
    EXPECT_EQ(note(vault, 1, "stale"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
    EXPECT_EQ(note(vault, 2, "second"), UMF_RESULT_SUCCESS);
    holder.send(SIGCONT);
    EXPECT_FALSE(holder.does('l'));
    EXPECT_FALSE(holder.does('n')); // the service refuses it
    // The kernel does not: the former holder still has its mapping.
    EXPECT_TRUE(holder.does('w'));
    EXPECT_EQ(next.at()[0], 9u);
    // So another one that wants to be alone waits for that process, too.
    EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(Claim(third).reason, UMF_REASON_BUSY);
    EXPECT_TRUE(holder.does('u'));
    Claim last(third);
    ASSERT_TRUE(last.is_right());
    EXPECT_EQ(last.made.epoch, 3u);
    EXPECT_EQ(last.note(), "second");
}

TEST_F(VaultClaims, AFencedHolderClaimsAnew) {
    Vault one, two;
    Claim first(one), second(two, UMF_VAULT_FENCE_EPOCH);
    ASSERT_TRUE(first.is_right() && second.is_right());
    EXPECT_NE(*first.made.now, first.made.epoch);
    EXPECT_EQ(Claim(one).reason, UMF_REASON_BUSY);
    EXPECT_EQ(umfVaultUnclaim(two.handle, "kv"), UMF_RESULT_SUCCESS);
    Claim again(one);
    ASSERT_TRUE(again.is_right());
    EXPECT_EQ(again.made.ptr, first.made.ptr);
    EXPECT_EQ(again.made.epoch, 3u);
    EXPECT_EQ(*first.made.now, 3u);
    EXPECT_EQ(note(one, 3, "again"), UMF_RESULT_SUCCESS);
}

TEST_F(VaultClaims, AStoppedHolderIsKilled) {
    Vault vault, own;
    Holder holder(steps_of_holder());
    ASSERT_TRUE(holder.does('c'));
    holder.send(SIGSTOP);
    holder.wait_stopped();
    Claim next(vault, UMF_VAULT_FENCE_KILL, 60000);
    ASSERT_TRUE(next.is_right());
    EXPECT_EQ(next.at()[0], 7u);
    int status = 0;
    EXPECT_EQ(waitpid(holder.pid, &status, WNOHANG), holder.pid); // it has ended before
    holder.pid = 0;
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    // This process is never killed.
    std::thread waits([&] { EXPECT_TRUE(Claim(own, UMF_VAULT_FENCE_KILL, 60000).is_right()); });
    EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), UMF_RESULT_SUCCESS);
    waits.join();
}

TEST_F(VaultClaims, TheServiceIsKilledUnderAHolder) {
    Vault vault, other;
    Claim claim(vault);
    ASSERT_TRUE(claim.is_right());
    claim.at()[1] = 5;
    ASSERT_NO_FATAL_FAILURE(hit(daemon(), SIGKILL));
    EXPECT_EQ(note(vault, 1, "after"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(Claim(other).reason, UMF_REASON_BUSY);
    pid_t before = keeper();
    ASSERT_NO_FATAL_FAILURE(hit(before, SIGKILL));
    EXPECT_TRUE(until([&] { return keeper() != 0 && keeper() != before; }));
    EXPECT_EQ(vault.stat().claims, 1u); // answered when the new keeper has everything
    ASSERT_NO_FATAL_FAILURE(hit(daemon(), SIGKILL));
    EXPECT_EQ(Claim(other).reason, UMF_REASON_BUSY);
    claim.at()[2] = 6;
    EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), UMF_RESULT_SUCCESS);
    Claim next(other);
    ASSERT_TRUE(next.is_right());
    EXPECT_EQ(next.note(), "after");
    EXPECT_EQ(next.at()[1], 5u);
    EXPECT_EQ(next.at()[2], 6u);
}

// The end of a connection is not the end of its process, which has the memory mapped. The keeper
// has the process, too.
TEST_F(VaultClaims, AProcessWithoutItsConnectionIsWaitedFor) {
    Vault vault;
    Holder holder(steps_of_holder());
    ASSERT_TRUE(holder.does('c'));
    uint64_t event = vault.stat().event;
    ASSERT_TRUE(holder.does('x'));
    EXPECT_EQ(Claim(vault).reason, UMF_REASON_BUSY);
    ASSERT_NO_FATAL_FAILURE(hit(daemon(), SIGKILL));
    EXPECT_EQ(Claim(vault).reason, UMF_REASON_BUSY);
    EXPECT_TRUE(holder.does('w'));
    holder.end();
    Claim next(vault, UMF_VAULT_FENCE_WAIT, 60000);
    ASSERT_TRUE(next.is_right());
    EXPECT_EQ(next.at()[0], 9u);
    EXPECT_GT(vault.stat().event, event);
}

TEST_F(VaultClaims, WithoutBothTheClaimIsLostAndItsMemoryStaysHere) {
    Vault vault;
    Claim claim(vault);
    ASSERT_TRUE(claim.is_right());
    claim.at()[0] = 3;
    for (pid_t pid : processes()) {
        kill(pid, SIGSTOP);
    }
    for (pid_t pid : processes()) {
        kill(pid, SIGKILL);
    }
    EXPECT_NE(note(vault, 1, "lost"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(vault.stat().claims, 0u); // of a new service
    EXPECT_EQ(note(vault, 1, "lost"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE);
    EXPECT_EQ(Claim(vault).reason, UMF_REASON_STALE);
    EXPECT_EQ(claim.at()[0], 3u);
    EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), UMF_RESULT_SUCCESS);
    Claim next(vault);
    ASSERT_TRUE(next.is_right());
    EXPECT_EQ(next.made.is_new, 1);
    EXPECT_EQ(next.at()[0], 0u);
}

TEST_F(VaultClaims, AChildHasNoMemoryOfIt) {
    Vault vault;
    Claim claim(vault);
    ASSERT_TRUE(claim.is_right());
    pid_t child = fork();
    if (child == 0) {
        int ends[2];
        bool is_gone =
            pipe(ends) == 0 && write(ends[1], claim.made.ptr, 1) == -1 && errno == EFAULT;
        is_gone = is_gone && *claim.made.now == 0;
        is_gone = is_gone && Claim(vault).result == UMF_RESULT_ERROR_INVALID_ARGUMENT &&
                  umfVaultUnclaim(vault.handle, "kv") == UMF_RESULT_ERROR_INVALID_ARGUMENT;
        _exit(is_gone ? 0 : 1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(*claim.made.now, claim.made.epoch);
    EXPECT_EQ(note(vault, 1, "here"), UMF_RESULT_SUCCESS);
}

TEST_F(VaultClaims, WhatIsNotValidIsRefused) {
    Vault vault, small("small", 100000);
    umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
    umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
    params.size = 4096;
    auto expect_bad = [&](const char *key) {
        EXPECT_EQ(umfVaultClaim(vault.handle, key, &params, &claim),
                  UMF_RESULT_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(claim.ptr, nullptr);
    };
    expect_bad(nullptr);
    expect_bad("");
    expect_bad(std::string(256, 'k').c_str());
    params.fence = umf_vault_fence_t(3);
    expect_bad("kv");
    params.fence = UMF_VAULT_FENCE_WAIT;
    params.struct_size = 8;
    expect_bad("kv");
    params.struct_size = sizeof(params);
    params.size = SIZE_MAX;
    expect_bad("kv");
    params.size = 4096;
    claim.struct_size = 8;
    expect_bad("kv");
    EXPECT_EQ(umfVaultClaim(vault.handle, "kv", &params, nullptr),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(note(vault, 1, "x"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultForget(vault.handle, ""), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(vault.stat().claims, 0u);

    Claim limited(small, UMF_VAULT_FENCE_WAIT, 0, 200000);
    EXPECT_EQ(limited.result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(limited.reason, UMF_REASON_LIMIT);
    EXPECT_EQ(small.stat().bytes, 0u);
    Claim longest(vault, UMF_VAULT_FENCE_WAIT, 0, 4096, 0, std::string(255, 'k').c_str());
    ASSERT_TRUE(longest.is_right());
    Claim held(vault);
    ASSERT_TRUE(held.is_right());
    EXPECT_EQ(note(vault, 1, std::string(256, 'n')), UMF_RESULT_SUCCESS);
    EXPECT_EQ(note(vault, 1, std::string(257, 'n')), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfVaultClaimNote(vault.handle, "kv", 1, nullptr, 1),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(Claim(vault).note(), std::string(256, 'n'));

    umf_vault_handle_t folder;
    ASSERT_EQ(umfVaultOpen(("file:" + place + "/folder").c_str(), nullptr, &folder),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfVaultClaim(folder, "kv", &params, &claim), UMF_RESULT_ERROR_NOT_SUPPORTED);
    auto none = [](const umf_vault_claim_stat_t *, void *) { return 1; };
    EXPECT_EQ(umfVaultEachClaim(folder, none, nullptr), UMF_RESULT_SUCCESS);
    umfVaultClose(folder);
}

// A client that speaks the protocol itself.
class Raw {
  public:
    explicit Raw(const std::string &place) : fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
        sockaddr_un address = {};
        address.sun_family = AF_UNIX;
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/vault", place.c_str());
        EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);
        EXPECT_EQ(ask(1, "model"), 0u);
    }
    ~Raw() {
        close(fd);
    }
    Raw(const Raw &) = delete;
    Raw &operator=(const Raw &) = delete;

    // The answer to a request.
    uint32_t ask(uint16_t op, const std::string &body, std::vector<uint64_t> numbers = {},
                 const std::vector<int> &files = {}) {
        unsigned char answer[40000];
        send(op, body, std::move(numbers), files);
        EXPECT_GE(recv(fd, answer, sizeof(answer), 0), 128);
        uint32_t what;
        memcpy(&what, answer + 16, 4);
        return what;
    }
    void send(uint16_t op, const std::string &body, std::vector<uint64_t> numbers = {},
              const std::vector<int> &files = {}) {
        unsigned char head[128] = {};
        uint32_t magic = 0x56464d55, size = uint32_t(body.size());
        uint16_t version = 3;
        sequence++;
        memcpy(head, &magic, 4);
        memcpy(head + 4, &version, 2);
        memcpy(head + 6, &op, 2);
        memcpy(head + 8, &sequence, 8);
        memcpy(head + 20, &size, 4);
        memcpy(head + 40, numbers.data(), numbers.size() * 8);
        iovec parts[] = {{head, sizeof(head)}, {const_cast<char *>(body.data()), body.size()}};
        alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
        msghdr message = {};
        message.msg_iov = parts;
        message.msg_iovlen = 2;
        if (!files.empty()) {
            message.msg_control = control;
            message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
            cmsghdr *rights = CMSG_FIRSTHDR(&message);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
            memcpy(CMSG_DATA(rights), files.data(), files.size() * sizeof(int));
        }
        EXPECT_EQ(sendmsg(fd, &message, MSG_NOSIGNAL), ssize_t(sizeof(head) + body.size()));
    }

    // An answer is there, and stays unread.
    bool is_answered() const {
        char first;
        return recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    }

    // The next request has the number of the last one.
    void repeat() {
        sequence--;
    }

  private:
    int fd;
    uint64_t sequence = 0;
};

// A client that closes its connection with an answer unread: what it has asked for is done.
TEST_F(VaultClaims, RequestsBeforeAnUnreadAnswerAreServed) {
    enum { claim = 18, unclaim = 20 };
    Vault vault;
    int file = memfd_create("claim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    auto size = uint64_t(2 * sysconf(_SC_PAGESIZE));
    ASSERT_EQ(ftruncate(file, off_t(size)), 0);
    {
        Raw raw(place);
        ASSERT_EQ(raw.ask(claim, "kv", {size, 0, 0}, {file}), 0u);
        raw.send(unclaim, "another", {});
        ASSERT_TRUE(until([&] { return raw.is_answered(); }));
        ASSERT_NO_FATAL_FAILURE(hit(daemon(), SIGSTOP));
        ASSERT_TRUE(until([&] { return state_of(daemon()) == 'T'; }));
        raw.send(unclaim, "kv", {});
    }
    ASSERT_EQ(kill(daemon(), SIGCONT), 0);
    EXPECT_TRUE(until([&] { return Claim(vault, UMF_VAULT_FENCE_WAIT, 0, 0).is_right(); }))
        << umfLastErrorText();
    close(file);
}

// A client sends a request again that is not answered soon; others may be served in between.
TEST_F(VaultClaims, ARepeatedRequestTakesNothingBack) {
    enum { claim = 18, set_note = 19 };
    Vault vault;
    Raw raw(place);
    int file = memfd_create("claim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    auto size = uint64_t(2 * sysconf(_SC_PAGESIZE));
    ASSERT_EQ(ftruncate(file, off_t(size)), 0);
    EXPECT_EQ(raw.ask(claim, "kv", {size, 0, 1}, {file}), 0u);
    Claim next(vault, UMF_VAULT_FENCE_EPOCH, 0, 0);
    ASSERT_TRUE(next.is_right());
    EXPECT_EQ(next.made.epoch, 2u);
    raw.repeat();
    EXPECT_EQ(raw.ask(claim, "kv", {size, 0, 1}, {file}), 0u);
    EXPECT_EQ(note(vault, 2, "next"), UMF_RESULT_SUCCESS); // it is the holder still
    EXPECT_EQ(umfVaultUnclaim(vault.handle, "kv"), UMF_RESULT_SUCCESS);

    Claim shared(vault, UMF_VAULT_FENCE_EPOCH, 0, 0, 1);
    ASSERT_TRUE(shared.is_right());
    EXPECT_EQ(raw.ask(claim, "kv", {size, 1, 1}, {file}), 0u);
    uint64_t epoch = Claim(vault, UMF_VAULT_FENCE_EPOCH, 0, 0, 1).made.epoch;
    EXPECT_EQ(raw.ask(set_note, std::string("kv\0first", 8), {epoch}), 0u);
    EXPECT_EQ(note(vault, epoch, "second"), UMF_RESULT_SUCCESS);
    raw.repeat();
    EXPECT_EQ(raw.ask(set_note, std::string("kv\0first", 8), {epoch}), 0u);
    EXPECT_EQ(Claim(vault, UMF_VAULT_FENCE_EPOCH, 0, 0, 1).note(), "second");
    close(file);
}

TEST_F(VaultClaims, HostileRequestsAreRefused) {
    enum { invalid = 1, none = 2, busy = 3, unsealed = 6, stale = 17 };
    enum { begin = 2, give = 3, keep = 4, claim = 18, set_note = 19, unclaim = 20, forget = 21 };
    Vault vault;
    Claim held(vault);
    ASSERT_TRUE(held.is_right());
    Raw raw(place);
    auto file = [](int seals, size_t size) {
        int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        EXPECT_EQ(ftruncate(fd, off_t(size)), 0);
        if (seals) {
            EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
        }
        return fd;
    };
    int good = file(0, 8192), sealed = file(F_SEAL_WRITE, 8192), fixed = file(F_SEAL_SEAL, 8192);
    std::string path = "/proc/self/fd/" + std::to_string(good);
    int reader = open(path.c_str(), O_RDONLY | O_CLOEXEC), null = open("/dev/null", O_RDWR);
    for (int fd : {sealed, fixed, reader, null}) {
        EXPECT_EQ(raw.ask(claim, "x", {8192, 0, 0}, {fd}), unsealed);
    }
    EXPECT_EQ(raw.ask(claim, "x", {4096, 0, 0}, {good}), unsealed); // another size
    EXPECT_EQ(raw.ask(claim, "x", {8192, 0, 0}), none);
    EXPECT_EQ(raw.ask(claim, "x", {8192, 2, 0}, {good}), invalid);
    EXPECT_EQ(raw.ask(claim, "x", {8192, 0, 3}, {good}), invalid);
    EXPECT_EQ(raw.ask(claim, "x", {8192, 0, 0}, {good, good}), invalid);
    EXPECT_EQ(raw.ask(claim, "", {8192, 0, 0}, {good}), invalid);
    EXPECT_EQ(raw.ask(claim, std::string("a\0b", 3), {8192, 0, 0}, {good}), invalid);
    EXPECT_EQ(raw.ask(claim, std::string(256, 'k'), {8192, 0, 0}, {good}), invalid);
    EXPECT_EQ(raw.ask(claim, "kv", {}), busy);
    for (const std::string &body : {std::string("kv"), std::string(), std::string(1, '\0')}) {
        EXPECT_EQ(raw.ask(set_note, body, {1}), invalid);
    }
    EXPECT_EQ(raw.ask(set_note, std::string("kv\0", 3) + std::string(257, 'n'), {1}), invalid);
    EXPECT_EQ(raw.ask(set_note, std::string("kv\0mine", 7), {1}), stale);
    EXPECT_EQ(raw.ask(set_note, std::string("no\0mine", 7), {0}), stale);
    EXPECT_EQ(raw.ask(unclaim, "kv", {}), 0u); // it holds none: without effect
    EXPECT_EQ(raw.ask(forget, "kv", {}), busy);
    // The memory of a claim is none of a generation's.
    struct {
        uint64_t serial = 0, size = 8192;
        uint32_t role = 5, kind = 1;
        unsigned char device[16] = {};
    } slab;
    ASSERT_EQ(raw.ask(begin, "", {0, 0}), 0u);
    EXPECT_EQ(
        raw.ask(give, std::string(reinterpret_cast<char *>(&slab), sizeof(slab)), {1, 0}, {good}),
        invalid);
    for (uint64_t serial = 0; serial < 20; serial++) {
        EXPECT_EQ(raw.ask(keep, std::string(reinterpret_cast<char *>(&serial), 8), {1}), invalid);
    }
    EXPECT_EQ(raw.ask(claim, "x", {8192, 0, 0}, {good}), 0u);
    EXPECT_NE(fcntl(good, F_ADD_SEALS, F_SEAL_WRITE), 0); // nobody makes it read-only
    for (int fd : {good, sealed, fixed, reader, null}) {
        close(fd);
    }
    held.at()[0] = 1;
    EXPECT_EQ(note(vault, 1, "mine"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(vault.stat().claims, 2u);
}

// Holders are killed while they write, and so are the processes of the service. Each next holder is
// alone with the memory: it finds whole words of former epochs, and none changes under it.
TEST_F(VaultClaims, AtRandom) {
    std::mt19937 random(20261129);
    Vault vault;
    uint64_t last = 0;
    for (size_t round = 0, rounds = scaled(200); round < rounds && !HasFailure(); round++) {
        SCOPED_TRACE(round);
        unsigned kind = unsigned(random() % 4);
        // A request of a holder that was killed may be served later, and must not kill this
        // process.
        auto fence = kind < 2 && random() % 2 ? UMF_VAULT_FENCE_KILL : UMF_VAULT_FENCE_WAIT;
        auto delay = useconds_t(random() % 3000);
        pid_t victim = kind == 0 ? keeper() : kind == 1 ? daemon() : 0;
        pid_t child = fork();
        if (child == 0) {
            Vault own;
            Claim claim(own, fence, 60000);
            if (!claim.is_right()) {
                _exit(2);
            }
            for (unsigned pass = 0; pass < 100; pass++) {
                for (size_t i = 0; i < words; i++) {
                    claim.at()[i] = claim.made.epoch;
                }
            }
            _exit(note(own, claim.made.epoch, "whole") == UMF_RESULT_SUCCESS ? 0 : 3);
        }
        usleep(delay);
        if (kind >= 2) {
            kill(child, SIGKILL);
        } else if (victim > 0) {
            kill(victim, SIGKILL);
        }
        if (kind < 2) { /* it ends by itself, whatever happened to the service */
            int status = 0;
            EXPECT_EQ(waitpid(child, &status, 0), child);
            EXPECT_EQ(status, 0);
        }
        if (kind == 0) {
            expect_complete_keeper(vault, victim);
        }
        Claim claim(vault, UMF_VAULT_FENCE_WAIT, 60000);
        ASSERT_TRUE(claim.is_right());
        ASSERT_GT(claim.made.epoch, last);
        last = claim.made.epoch;
        std::vector<uint64_t> before(claim.at(), claim.at() + words);
        for (size_t i = 0; i < words; i++) {
            ASSERT_LT(before[i], last);
        }
        for (size_t i = 0; i < words; i++) {
            ASSERT_EQ(claim.at()[i], before[i]);
        }
        ASSERT_EQ(umfVaultUnclaim(vault.handle, "kv"), UMF_RESULT_SUCCESS);
        if (kind >= 2) {
            int status = 0;
            ASSERT_EQ(waitpid(child, &status, 0), child);
        }
    }
}

} // namespace
