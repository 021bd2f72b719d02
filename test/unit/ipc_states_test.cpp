// A thread is in a state of IPC. The child of a fork that happens meanwhile does all that a process
// can, and signals change nothing: no call ends early, or is made twice.
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf/experimental/ctl.h>
#include <umf/ipc_ext.h>
#include <umf/text.h>

#include "fakes/child.h"
#include "fakes/fork_at_rest.h"
#include "fakes/ipc_fixture.h"
#include "fakes/scale.h"
#include "fakes/storm.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

// --- inside of the library

struct Life {
    FakePool p, other;
    char *ptr = p.alloc();
    Bytes handle;
    umf_ipc_handler_handle_t handler = p.handler();

    void share() {
        handle = handle_of(ptr);
    }
    void open_and_close(size_t times = 1) {
        for (size_t i = 0; i < times; i++) {
            void *opened = nullptr;
            EXPECT_EQ(umfOpenIPCHandle(handler, as_handle(handle), &opened), OK);
            EXPECT_EQ(umfCloseIPCHandle(opened), OK);
        }
    }
    // A process can use a pool, whatever its parent was doing.
    static void use_and_end(FakePool &pool) {
        char *mine = pool.alloc();
        Bytes own = handle_of(mine);
        void *opened = nullptr;
        EXPECT_EQ(umfOpenIPCHandle(pool.handler(), as_handle(own), &opened), OK);
        EXPECT_EQ(umfCloseIPCHandle(opened), OK);
        EXPECT_EQ(umfIPCEvict(0, nullptr), OK);
        pool.free(mine);
        pool.destroy_pool();
    }
    void let_go() {
        p.fake.hold = p.fake.hold_end = false;
    }
};

struct State {
    const char *name;
    size_t threads; // in `call`; all but the first wait for the first
    void (*before)(Life &life);
    void (*call)(Life &life);
    std::atomic<int> FakeIpc::*reached; // of the provider: the operation that waits
    bool ends_pool = false;
};

void nothing(Life &) {}
void share(Life &life) {
    life.share();
}
void get(Life &life) {
    EXPECT_EQ(decoded(handle_of(life.ptr)).pid, static_cast<uint32_t>(getpid()));
}
void open(Life &life) {
    life.open_and_close();
}
void share_and_open(Life &life) {
    life.share();
    life.open_and_close();
}

void share_open_and_free(Life &life) {
    share_and_open(life);
    life.p.free(life.ptr);
}
void end_pool(Life &life) {
    life.p.destroy_pool();
}

const State states[] = {
    {"get", 1, nothing, get, &FakeIpc::gets},
    {"get_behind_another", 3, nothing, get, &FakeIpc::gets},
    {"put", 1, share, [](Life &life) { life.p.free(life.ptr); }, &FakeIpc::puts},
    {"open", 1, share, open, &FakeIpc::opens},
    {"open_behind_another", 3, share, open, &FakeIpc::opens},
    {"evict", 1, share_and_open, [](Life &) { EXPECT_EQ(umfIPCEvict(0, nullptr), OK); },
     &FakeIpc::closes},
    {"end_of_pool_put", 1, share_and_open, end_pool, &FakeIpc::puts, true},
    {"end_of_pool_close", 1, share_open_and_free, end_pool, &FakeIpc::closes, true},
};

class IpcState : public testing::TestWithParam<State> {
  public:
    // Threads are in the state while `meanwhile` runs.
    static void run(const std::function<void(Life &, const std::vector<pthread_t> &)> &meanwhile) {
        const State &state = GetParam();
        Life life;
        state.before(life);
        life.p.fake.hold = life.p.fake.hold_end = true;
        std::atomic<size_t> returned{0};
        std::vector<std::thread> threads;
        std::vector<pthread_t> handles;
        for (size_t i = 0; i < state.threads; i++) {
            threads.emplace_back([&] {
                state.call(life);
                returned++;
            });
            handles.push_back(threads.back().native_handle());
            wait_until([&] { return life.p.fake.*state.reached > 0; });
        }
        meanwhile(life, handles);
        EXPECT_EQ(returned, 0u);
        life.let_go();
        for (std::thread &each : threads) {
            each.join();
        }
        EXPECT_EQ(life.p.fake.*state.reached, 1);
        Life::use_and_end(life.other);
    }
};

TEST_P(IpcState, LeavesTheChildOfAForkFree) {
    run([](Life &life, const std::vector<pthread_t> &) {
        const auto child = [&] {
            life.let_go();
            Life::use_and_end(life.other);
            if (!GetParam().ends_pool) {
                Life::use_and_end(life.p);
            }
            return HasFailure() ? 1 : 0;
        };
        EXPECT_EQ(exit_of_child(child, fork_at_rest), 0);
    });
}

TEST_P(IpcState, IsNotEndedBySignals) {
    if (UMF_TEST_TSAN) {
        GTEST_SKIP() << "a child of a fork that starts threads may hang under the sanitizer";
    }
    expect_in_child([] { // the handler stays
        run([](Life &, const std::vector<pthread_t> &threads) { storm(threads); });
    });
}

INSTANTIATE_TEST_SUITE_P(Each, IpcState, testing::ValuesIn(states),
                         [](const auto &param) { return std::string(param.param.name); });

// --- between processes

constexpr char content[] = "of the producer";

umf_memory_pool_handle_t shared_pool() {
    umf_memory_pool_handle_t pool = nullptr;
    EXPECT_EQ(umfPoolCreateFromText("disjoint over os:visibility=shared", &pool), OK);
    return pool;
}

// A child that has exported a block, and sleeps.
class Producer {
    int pipes[2];

    void run() {
        void *block = umfPoolMalloc(shared_pool(), sizeof(content));
        umf_ipc_handle_t own = nullptr;
        size_t size = 0;
        if (block && umfGetIPCHandle(block, &own, &size) == OK) {
            memcpy(block, content, sizeof(content));
            if (write(pipes[1], own, size) != static_cast<ssize_t>(size)) {
                _exit(1);
            }
        }
        pause();
        _exit(0);
    }

  public:
    pid_t pid;
    Bytes handle = Bytes(4096);

    Producer() {
        EXPECT_EQ(pipe2(pipes, O_CLOEXEC), 0);
        pid = fork_at_rest();
        if (pid == 0) {
            run();
        }
        close(pipes[1]);
        ssize_t size = read(pipes[0], handle.data(), handle.size());
        EXPECT_GT(size, 0);
        handle.resize(static_cast<size_t>(size > 0 ? size : 0));
        close(pipes[0]);
    }
    ~Producer() {
        ::kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    void stop() const {
        ::kill(pid, SIGSTOP);
        waitpid(pid, nullptr, WUNTRACED);
    }
    void go_on() const {
        ::kill(pid, SIGCONT);
    }
};

void use_transport(std::string name) {
    EXPECT_EQ(umfCtlSet("umf.ipc.transports", name.data(), name.size() + 1), OK);
}

void wait_at_most(unsigned milliseconds) {
    EXPECT_EQ(umfCtlSet("umf.ipc.timeout", &milliseconds, sizeof(milliseconds)), OK);
}

umf_result_t open_and_close(umf_memory_pool_handle_t pool, const Producer &producer) {
    umf_ipc_handler_handle_t handler = nullptr;
    EXPECT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
    void *opened = nullptr;
    umf_result_t result =
        umfOpenIPCHandleSized(handler, producer.handle.data(), producer.handle.size(), &opened);
    if (result == OK) {
        EXPECT_STREQ(static_cast<char *>(opened), content);
        EXPECT_EQ(umfCloseIPCHandle(opened), OK);
        EXPECT_EQ(umfIPCEvict(0, nullptr), OK);
    }
    return result;
}

// Signals arrive all the time, until the thread of the test has had enough of them.
TEST(IpcSignals, EndNoOpenByAnyTransport) {
    if (UMF_TEST_TSAN) {
        GTEST_SKIP() << "a child of a fork that starts threads may hang under the sanitizer";
    }
    Producer producer;
    for (const char *transport : {"proc", "pidfd", "broker"}) {
        SCOPED_TRACE(transport);
        expect_in_child([&] {
            umf_memory_pool_handle_t pool = shared_pool();
            use_transport(transport);
            wait_at_most(100000);
            if (open_and_close(pool, producer) != OK) {
                fprintf(stderr, "%s cannot be used here: skipped\n", transport);
                return;
            }
            count_signals();
            std::atomic<bool> is_enough{false};
            std::thread sender([&, first = pthread_self()] {
                wait_until([&] {
                    pthread_kill(first, SIGUSR1);
                    return is_enough.load();
                });
            });
            for (int i = 0; i < 100 || signals < 100; i++) {
                EXPECT_EQ(open_and_close(pool, producer), OK);
            }
            is_enough = true;
            sender.join();
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        });
    }
}

// A wait for a producer that does not answer.
TEST(IpcSignals, NeitherEndNorLengthenAWaitForABroker) {
    if (UMF_TEST_TSAN) {
        GTEST_SKIP() << "a child of a fork that starts threads may hang under the sanitizer";
    }
    Producer producer;
    producer.stop();
    expect_in_child([&] {
        umf_memory_pool_handle_t pool = shared_pool();
        use_transport("broker");
        wait_at_most(200);
        count_signals();
        std::atomic<bool> has_returned{false};
        std::thread waits([&] {
            EXPECT_NE(open_and_close(pool, producer), OK);
            has_returned = true;
        });
        wait_until([&] { // each signal would begin the wait anew
            pthread_kill(waits.native_handle(), SIGUSR1);
            return has_returned.load();
        });
        waits.join();
        wait_at_most(100000);
        std::thread is_served([&] { EXPECT_EQ(open_and_close(pool, producer), OK); });
        storm({is_served.native_handle()});
        producer.go_on();
        is_served.join();
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    });
}

// The child requests from another producer, and from the same one when it answers again.
TEST(IpcFork, BesideAWaitForABroker) {
    if (UMF_TEST_TSAN) {
        GTEST_SKIP() << "a child of a fork that starts threads may hang under the sanitizer";
    }
    Producer stopped, running;
    stopped.stop();
    expect_in_child([&] {
        umf_memory_pool_handle_t pool = shared_pool();
        use_transport("broker");
        wait_at_most(100000);
        std::thread waits([&] { EXPECT_EQ(open_and_close(pool, stopped), OK); });
        const auto child = [&] {
            EXPECT_EQ(open_and_close(pool, running), OK);
            stopped.go_on();
            EXPECT_EQ(open_and_close(pool, stopped), OK);
            EXPECT_EQ(umfPoolDestroy(pool), OK);
            return testing::Test::HasFailure() ? 1 : 0;
        };
        EXPECT_EQ(exit_of_child(child, fork_at_rest), 0);
        waits.join();
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    });
}

} // namespace
