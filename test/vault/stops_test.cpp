// The daemon, its keeper or both are stopped (SIGSTOP) at each step of the protocol, and go on
// before anyone notices, while they are replaced, or never. Each call of their clients succeeds
// within a second, or soon after the time at which both go on; content is right, and nothing stays.
#include <atomic>
#include <memory>
#include <random>

#include <spawn.h>
#include <sys/syscall.h>

#include <umf.h>
#include <umf/reason.h>

#include "fakes/scale.h"
#include "vault/steps.h"

namespace {

uint64_t now_ms() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000 + uint64_t(now.tv_nsec) / 1000000;
}

void nap(unsigned ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// How long a process takes here from its start to its end: a busy machine is no fault of the
// service.
class Busyness {
  public:
    Busyness() : thread([this] { look(); }) {}
    ~Busyness() {
        is_over = true;
        thread.join();
    }
    Busyness(const Busyness &) = delete;
    Busyness &operator=(const Busyness &) = delete;
    uint64_t most() const {
        return longest;
    }

  private:
    void look() {
        char name[] = "true";
        char *words[] = {name, nullptr};
        while (!is_over) {
            pid_t child;
            int status;
            uint64_t start = now_ms();
            if (posix_spawnp(&child, name, nullptr, nullptr, words, environ) == 0) {
                waitpid(child, &status, 0);
            }
            nap(5);
            longest = std::max<uint64_t>(longest, now_ms() - start - 5);
        }
    }
    std::atomic<bool> is_over{false};
    std::atomic<uint64_t> longest{0};
    std::thread thread;
};

// Another user of the service: it has a vault of its own, and attaches all the time from the moment
// on at which a process is stopped.
class Neighbour {
  public:
    explicit Neighbour(std::vector<pid_t> processes)
        : vault("beside"), seen(write(vault)), watched(std::move(processes)),
          thread([this] { attach_on(); }) {}
    ~Neighbour() {
        is_over = true;
        thread.join();
        EXPECT_EQ(seen.wrong(3, 8), 0u);
        EXPECT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_SUCCESS);
    }
    Neighbour(const Neighbour &) = delete;
    Neighbour &operator=(const Neighbour &) = delete;
    uint64_t longest() const {
        return most;
    }

  private:
    static const Vault &write(const Vault &vault) {
        write_generation(vault, 3, 8);
        return vault;
    }
    void attach_on() {
        for (pid_t pid : watched) {
            while (!is_over && Vaults::state_of(pid) != 'T') {
                nap(1);
            }
        }
        while (!is_over) {
            uint64_t start = now_ms();
            View view(vault);
            most = std::max<uint64_t>(most, now_ms() - start);
            EXPECT_EQ(view.attached, UMF_RESULT_SUCCESS);
            EXPECT_EQ(view.wrong(3, 8), 0u);
            nap(3);
        }
    }
    Vault vault;
    View seen;
    std::vector<pid_t> watched;
    std::atomic<bool> is_over{false};
    std::atomic<uint64_t> most{0};
    std::thread thread;
};

// A process that goes on some time after it was stopped.
class Continued {
  public:
    Continued(std::vector<pid_t> processes, unsigned ms) : all(std::move(processes)), after(ms) {
        for (pid_t pid : all) {
            handles.push_back(int(syscall(SYS_pidfd_open, pid, 0)));
        }
        thread = std::thread([this] { go_on(); });
    }
    ~Continued() {
        is_over = true;
        thread.join();
        for (int handle : handles) {
            close(handle);
        }
    }
    Continued(const Continued &) = delete;
    Continued &operator=(const Continued &) = delete;

  private:
    void go_on() {
        for (pid_t pid : all) {
            while (!is_over && Vaults::state_of(pid) != 'T') {
                nap(1);
            }
        }
        for (uint64_t start = now_ms(); !is_over && now_ms() - start < after;) {
            nap(1);
        }
        for (int handle : handles) {
            syscall(SYS_pidfd_send_signal, handle, SIGCONT, nullptr, 0);
        }
    }
    std::vector<pid_t> all;
    unsigned after;
    std::vector<int> handles;
    std::atomic<bool> is_over{false};
    std::thread thread;
};

class VaultStops : public VaultSteps {
  public:
    // A second, on an idle machine. `together`: how long both were stopped.
    static uint64_t bound(const Busyness &busyness, unsigned together) {
        // Sanitizers make each message slow; the other builds have the bound itself.
        return (UMF_TEST_TSAN || UMF_TEST_ASAN ? 2300 : 1300) + together + 10 * busyness.most();
    }

    // One fault. `after`: when it goes on, 0: never.
    void stop_at(const char *who, unsigned step, unsigned after, bool keeper_first,
                 bool has_neighbour, bool *reached) {
        {
            Vault keeps_it("model");
            bool is_both = strcmp(who, "both") == 0;
            std::vector<pid_t> stopped;
            if (is_both || strcmp(who, "daemon") == 0) {
                stopped.push_back(daemon());
            }
            if (is_both || strcmp(who, "keeper") == 0) {
                stopped.insert(keeper_first ? stopped.begin() : stopped.end(), keeper());
            }
            uint64_t start = now_ms();
            life();
            uint64_t usual = now_ms() - start;
            Busyness busyness;
            {
                std::unique_ptr<Neighbour> neighbour;
                std::unique_ptr<Continued> continued;
                if (has_neighbour) {
                    neighbour = std::make_unique<Neighbour>(stopped);
                }
                if (after) {
                    continued = std::make_unique<Continued>(stopped, after);
                }
                order_fault(who, SIGSTOP, step);
                start = now_ms();
                life();
                uint64_t passed = now_ms() - start;
                *reached = was_reached();
                nap(5); // the neighbour is served after it
                uint64_t most = bound(busyness, is_both ? after : 0);
                EXPECT_LE(passed, 2 * usual + most);
                EXPECT_LE(neighbour ? neighbour->longest() : 0, most);
            }
            check();
        }
        end_service();
    }

    // In some processes beside each other, because they wait most of the time.
    void stops_at_each(const char *who, unsigned stride) {
        constexpr unsigned workers = 4;
        stride = does_all() ? 1 : stride;
        pid_t children[workers];
        for (unsigned i = 0; i < workers; i++) {
            children[i] = fork();
            if (children[i] == 0) {
                SetUp(); // a place of its own
                _exit(stops_of_one(who, 1 + i * stride, workers * stride) ? 0 : 1);
            }
        }
        for (pid_t child : children) {
            int status = 0;
            EXPECT_EQ(waitpid(child, &status, 0), child);
            EXPECT_EQ(status, 0);
        }
    }
    bool stops_of_one(const char *who, unsigned first, unsigned stride) {
        unsigned step = first;
        for (bool goes_on = true; goes_on && !HasFailure(); step += stride) {
            std::mt19937 random(step);
            bool is_both = strcmp(who, "both") == 0;
            const unsigned times[] = {is_both ? 50u : 0u, 300, 600 + unsigned(random() % 600),
                                      1500};
            unsigned after = times[random() % 4];
            SCOPED_TRACE(std::string(who) + " at step " + std::to_string(step) +
                         ", goes on after " + std::to_string(after) + " ms");
            stop_at(who, step, after, random() % 2, random() % 2, &goes_on);
        }
        EXPECT_GT(step, 100u);
        TearDown();
        return !HasFailure();
    }
};

TEST_F(VaultStops, TheDaemonAtEach) {
    stops_at_each("daemon", 10);
}

TEST_F(VaultStops, TheKeeperAtEach) {
    stops_at_each("keeper", 10);
}

TEST_F(VaultStops, BothAtEach) {
    stops_at_each("both", 10);
}

// At any moment, not only at steps: a writer and a reader work on meanwhile.
TEST_F(VaultStops, AtRandom) {
    std::mt19937 random(20261129);
    Vault vault("model", 0, 1);
    write_generation(vault, 3, 1);
    for (unsigned round = 2, rounds = unsigned(scaled(200)); round < 2 + rounds; round++) {
        SCOPED_TRACE(round);
        vault.stat(); // a new keeper has everything then
        unsigned kind = unsigned(random() % 3), after = unsigned(random() % 1200);
        std::vector<pid_t> stopped;
        if (kind != 1) {
            stopped.push_back(daemon());
        }
        if (kind != 0) {
            stopped.insert(random() % 2 ? stopped.begin() : stopped.end(), keeper());
        }
        Busyness busyness;
        Continued continued(stopped, after);
        std::thread writer([&] {
            Vault own("model", 0, 1);
            EXPECT_GT(write_generation(own, 3, round), 1u);
        });
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        for (pid_t pid : stopped) {
            hit(pid, SIGSTOP);
        }
        uint64_t start = now_ms();
        {
            View view(vault);
            EXPECT_LE(now_ms() - start, bound(busyness, kind == 2 ? after : 0));
            EXPECT_TRUE(view.wrong(3, round - 1) == 0 || view.wrong(3, round) == 0);
        }
        writer.join();
        ASSERT_EQ(View(vault).wrong(3, round), 0u);
    }
}

// Messages to the keeper that need no answer fill the socket.
TEST_F(VaultStops, TheKeeperWhileManySlabsAreForgotten) {
    Vault vault, other("other");
    {
        Vault writer;
        Draft draft(writer, nullptr, "proxy over linux_vmm:piece_size=4K");
        for (size_t i = 0; i < 1200; i++) {
            draft.put(key_of(i), 4096);
        }
        ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    }
    write_generation(other, 3, 2);
    pid_t first = keeper();
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGSTOP));
    Busyness busyness;
    uint64_t start = now_ms();
    EXPECT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(until([&] { return vault.stat().bytes == 0; }));
    for (int i = 0; i < 50; i++) {
        EXPECT_EQ(View(other).wrong(3, 2), 0u);
        nap(10);
    }
    EXPECT_LE(now_ms() - start, 2500 + 10 * busyness.most());
    EXPECT_TRUE(until([&] { return keeper() != first && keeper() != 0; }));
    ASSERT_NO_FATAL_FAILURE(hit(daemon(), SIGKILL));
    EXPECT_EQ(View(other).wrong(3, 2), 0u);
}

TEST_F(VaultStops, TheKeeperWhileTheServiceEnds) {
    Vault vault;
    write_generation(vault, 1, 1);
    order_fault("keeper", SIGSTOP, 3); // the connection of the next request is accepted
    Busyness busyness;
    uint64_t start = now_ms();
    EXPECT_EQ(umfVaultStop(nullptr, 1), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(was_reached());
    EXPECT_TRUE(until([&] { return has_ended(); }));
    EXPECT_EQ(vault.stat().current, 0u); // of another service
    EXPECT_LE(now_ms() - start, 1500 + 10 * busyness.most());
}

// One has ended and the other is stopped: nothing is lost, and the calls of clients end in time.
TEST_F(VaultStops, OneBesideTheEndOfTheOther) {
    for (bool daemon_stops : {true, false}) {
        Vault vault;
        commit_with_sums(vault, 1);
        View before(vault);
        umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
        umf_vault_handle_t hasty;
        params.timeout_ms = 300;
        ASSERT_EQ(umfVaultOpen("model", &params, &hasty), UMF_RESULT_SUCCESS);
        pid_t stopped = daemon_stops ? daemon() : keeper();
        pid_t ended = daemon_stops ? keeper() : daemon();
        ASSERT_NO_FATAL_FAILURE(hit(stopped, SIGSTOP));
        ASSERT_TRUE(until([&] { return state_of(stopped) == 'T'; }));
        ASSERT_NO_FATAL_FAILURE(hit(ended, SIGKILL));
        Busyness busyness;
        uint64_t start = now_ms();
        umf_vault_view_handle_t view;
        EXPECT_EQ(umfVaultAttach(hasty, nullptr, &view), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(umfLastReason(), UMF_REASON_TIMEOUT);
        umf_vault_handle_t late;
        EXPECT_EQ(umfVaultOpen("model", &params, &late), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(umfLastReason(), UMF_REASON_TIMEOUT);
        EXPECT_LE(now_ms() - start, 1000 + 10 * busyness.most());
        EXPECT_EQ(before.wrong(3, 1), 0u);
        std::thread waits([&] { EXPECT_EQ(View(vault).wrong(3, 1), 0u); });
        nap(1000);
        EXPECT_EQ(kill(stopped, SIGCONT), 0);
        waits.join();
        EXPECT_EQ(umfVaultClose(hasty), UMF_RESULT_SUCCESS);
        EXPECT_EQ(before.wrong(3, 1), 0u);
        check();
    }
}

// A client that had no answer in time has no draft that others would wait for.
TEST_F(VaultStops, BothWhileADraftBegins) {
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    umf_vault_handle_t hasty;
    umf_vault_draft_handle_t draft;
    Vault vault;
    commit_with_sums(vault, 1);
    params.timeout_ms = 100;
    ASSERT_EQ(umfVaultOpen("model", &params, &hasty), UMF_RESULT_SUCCESS);
    pid_t stopped[] = {keeper(), daemon()};
    for (pid_t pid : stopped) {
        ASSERT_NO_FATAL_FAILURE(hit(pid, SIGSTOP));
        ASSERT_TRUE(until([&] { return state_of(pid) == 'T'; }));
    }
    EXPECT_EQ(umfVaultBegin(hasty, nullptr, &draft), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_TIMEOUT) << umfLastErrorText();
    for (pid_t pid : stopped) {
        EXPECT_EQ(kill(pid, SIGCONT), 0);
    }
    EXPECT_TRUE(until([&] { return Draft(vault).begun == UMF_RESULT_SUCCESS; }));
    EXPECT_EQ(umfVaultClose(hasty), UMF_RESULT_SUCCESS);
    check();
}

// The end of all that a vault has takes no longer than that of one, and the service gets it later.
TEST_F(VaultStops, BothWhileAVaultWithClaimsIsClosed) {
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    umf_vault_claim_params_t of_page = UMF_VAULT_CLAIM_PARAMS_INIT;
    umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
    umf_vault_handle_t hasty;
    Vault vault;
    params.timeout_ms = 400;
    of_page.size = 1;
    ASSERT_EQ(umfVaultOpen("model", &params, &hasty), UMF_RESULT_SUCCESS);
    for (size_t i = 0; i < 20; i++) {
        ASSERT_EQ(umfVaultClaim(hasty, key_of(i).c_str(), &of_page, &claim), UMF_RESULT_SUCCESS);
    }
    pid_t stopped[] = {keeper(), daemon()};
    for (pid_t pid : stopped) {
        ASSERT_NO_FATAL_FAILURE(hit(pid, SIGSTOP));
        ASSERT_TRUE(until([&] { return state_of(pid) == 'T'; }));
    }
    Busyness busyness;
    uint64_t start = now_ms();
    EXPECT_EQ(umfVaultClose(hasty), UMF_RESULT_SUCCESS);
    EXPECT_LE(now_ms() - start, 10 * params.timeout_ms + 10 * busyness.most());
    for (pid_t pid : stopped) {
        EXPECT_EQ(kill(pid, SIGCONT), 0);
    }
    for (size_t i = 0; i < 20; i++) {
        EXPECT_TRUE(until([&] {
            return umfVaultClaim(vault.handle, key_of(i).c_str(), nullptr, &claim) ==
                   UMF_RESULT_SUCCESS;
        })) << i
            << ": " << umfLastErrorText();
    }
}

} // namespace
