#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
}

namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

struct lock_t {
    explicit lock_t(umf_lock_rank_t rank) {
        umf_lock_init(&lock, rank);
    }
    ~lock_t() {
        umf_lock_destroy(&lock);
    }
    lock_t(const lock_t &) = delete;
    lock_t &operator=(const lock_t &) = delete;
    umf_lock_t lock;
};

/* Exit status of a child, or -1 if it had to be killed. */
int wait_for(pid_t child) {
    auto end = steady_clock::now() + seconds(120);
    int status = -1;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (steady_clock::now() > end) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return -1;
        }
        usleep(200);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The threads of the fork tests contend for locks of both halves, in the order they are taken.
 */
struct locks_t {
    lock_t depot{UMF_RANK_DEPOT}, bin{UMF_RANK_BIN}, pages{UMF_RANK_PAGES}, map{UMF_RANK_MAP};
    int value = 0; /* Sync: all of the locks */
};

void lock_all(locks_t &locks) {
    umf_lock(&locks.depot.lock);
    umf_lock(&locks.bin.lock);
    umf_lock(&locks.pages.lock);
    umf_lock(&locks.map.lock);
}

void unlock_all(locks_t &locks) {
    umf_unlock(&locks.map.lock);
    umf_unlock(&locks.pages.lock);
    umf_unlock(&locks.bin.lock);
    umf_unlock(&locks.depot.lock);
}

/* Locks come and go while others are held: an outer one under an outer one, inner ones under both.
 */
void hammer(locks_t &locks, std::atomic<bool> &stop) {
    while (!stop) {
        lock_all(locks);
        locks.value++;
        {
            lock_t inner(UMF_RANK_VIEW);
            locks.value++;
        }
        unlock_all(locks);

        umf_lock(&locks.bin.lock);
        {
            lock_t outer(UMF_RANK_ARENA);
            umf_lock(&outer.lock);
            umf_unlock(&outer.lock);
        }
        umf_unlock(&locks.bin.lock);

        lock_t alone(UMF_RANK_DEPOT);
        umf_lock(&alone.lock);
        umf_meta_free(umf_meta_alloc(100), 100);
        umf_unlock(&alone.lock);
    }
}

bool is_free(umf_lock_t *lock) {
    if (!umf_lock_try_bare(lock)) {
        return false;
    }
    umf_lock_release_bare(lock);
    return true;
}

/* Fork runs the handlers that were registered first at last: this one sees the locks of the
 * library. It is linked before the library, whose constructor has the same priority. */
std::vector<umf_lock_t *> watched;
std::string found_free;

void watch_fork() {
    for (umf_lock_t *lock : watched) {
        found_free += is_free(lock) ? " " + std::to_string(lock->rank) : "";
    }
}

__attribute__((constructor(101))) void watch_forks() {
    pthread_atfork(watch_fork, nullptr, nullptr);
}

/* false: not within a minute. */
template <class Condition> bool comes_true(const Condition &condition) {
    for (auto end = steady_clock::now() + seconds(60); !condition();) {
        if (steady_clock::now() > end) {
            return false;
        }
        std::this_thread::yield();
    }
    return true;
}

/* Everything must be free, whole and usable in the child. */
int child_main(locks_t &locks, unsigned forks) {
    alarm(60);
    lock_all(locks);
    bool is_whole = locks.value % 2 == 0;
    unlock_all(locks);
    for (int i = 0; i < 100; i++) {
        lock_t outer(UMF_RANK_BIN), inner(UMF_RANK_MAP);
        umf_lock(&outer.lock);
        umf_lock(&inner.lock);
        umf_unlock(&inner.lock);
        umf_unlock(&outer.lock);
    }
    umf_meta_free(umf_meta_alloc(100), 100);
    return !is_whole ? 1 : umf_fork_count() != forks + 1 ? 2 : 0;
}

} // namespace

TEST(lock, excludes) {
    lock_t a(UMF_RANK_BIN);
    int value = 0;
    run_threads(4, [&](int) {
        for (int j = 0; j < 20000; j++) {
            umf_lock(&a.lock);
            value++;
            umf_unlock(&a.lock);
        }
    });
    EXPECT_EQ(value, 80000);
}

TEST(lock, who_waits_long_sleeps_and_keeps_errno) {
    lock_t a(UMF_RANK_BIN);
    std::atomic<int> got{0};
    umf_lock(&a.lock);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            errno = 4711;
            umf_lock(&a.lock);
            got++;
            umf_unlock(&a.lock);
            EXPECT_EQ(errno, 4711);
        });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(got, 0);
    umf_unlock(&a.lock);
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(got, 4);
    EXPECT_TRUE(umf_trylock(&a.lock));
    umf_unlock(&a.lock);
}

TEST(lock, trylock_tells_whether_it_is_free) {
    lock_t a(UMF_RANK_BIN);
    ASSERT_TRUE(umf_trylock(&a.lock));
    umf_assert_locked(&a.lock);
    std::thread([&] { EXPECT_FALSE(umf_trylock(&a.lock)); }).join();
    umf_unlock(&a.lock);
    std::thread([&] {
        EXPECT_TRUE(umf_trylock(&a.lock));
        umf_unlock(&a.lock);
    }).join();
}

TEST(lock, may_be_initialised_again_after_destroy) {
    umf_lock_t lock;
    for (int i = 0; i < 3; i++) {
        umf_lock_init(&lock, i % 2 ? UMF_RANK_MAP : UMF_RANK_BIN);
        umf_lock(&lock);
        umf_unlock(&lock);
        umf_lock_destroy(&lock);
    }
}

TEST(lock, ascending_ranks_and_order_within_a_rank_are_fine) {
    lock_t bin(UMF_RANK_BIN), map0(UMF_RANK_MAP), map1(UMF_RANK_MAP), map2(UMF_RANK_MAP);
    umf_lock(&bin.lock);
    umf_lock(&map0.lock);
    umf_lock(&map2.lock);
    umf_unlock(&map0.lock);
    umf_unlock(&bin.lock);
    umf_unlock(&map2.lock);
    umf_lock(&map1.lock);
    umf_unlock(&map1.lock);
}

#ifndef NDEBUG

TEST(lock_death, lower_rank_after_higher) {
    lock_t low(UMF_RANK_BIN), high(UMF_RANK_MAP);
    umf_lock(&high.lock);
    EXPECT_DEATH(umf_lock(&low.lock), "taken too late");
    umf_unlock(&high.lock);
}

TEST(lock_death, same_rank_against_the_order_of_initialisation) {
    lock_t first(UMF_RANK_MAP), second(UMF_RANK_MAP);
    umf_lock(&second.lock);
    EXPECT_DEATH(umf_lock(&first.lock), "taken too late");
    umf_unlock(&second.lock);
}

TEST(lock_death, twice) {
    lock_t a(UMF_RANK_MAP);
    umf_lock(&a.lock);
    EXPECT_DEATH(umf_lock(&a.lock), "taken too late");
    umf_unlock(&a.lock);
}

TEST(lock_death, higher_rank_taken_with_trylock_counts) {
    lock_t low(UMF_RANK_BIN), high(UMF_RANK_MAP), middle(UMF_RANK_PAGES);
    umf_lock(&high.lock);
    ASSERT_TRUE(umf_trylock(&low.lock)) << "trylock may go against the order";
    EXPECT_DEATH(umf_lock(&middle.lock), "taken too late");
    umf_unlock(&low.lock);
    umf_unlock(&high.lock);
}

TEST(lock_death, assert_locked_and_unlock_of_a_free_lock) {
    lock_t a(UMF_RANK_MAP);
    EXPECT_DEATH(umf_assert_locked(&a.lock), "not held");
    EXPECT_DEATH(umf_unlock(&a.lock), "released but not held");
}

TEST(lock_death, assert_locked_when_another_thread_holds_it) {
    lock_t a(UMF_RANK_MAP);
    std::promise<void> taken, done;
    std::thread holder([&] {
        umf_lock(&a.lock);
        taken.set_value();
        done.get_future().wait();
        umf_unlock(&a.lock);
    });
    taken.get_future().wait();
    EXPECT_DEATH(umf_assert_locked(&a.lock), "not held");
    done.set_value();
    holder.join();
}

TEST(lock_death, outer_lock_registered_under_an_inner_one) {
    lock_t inner(UMF_RANK_PAGES);
    umf_lock(&inner.lock);
    EXPECT_DEATH(lock_t{UMF_RANK_BIN}, "outer lock registered");
    umf_unlock(&inner.lock);
}

TEST(lock_death, destroyed_while_held) {
    umf_lock_t lock;
    umf_lock_init(&lock, UMF_RANK_BIN);
    umf_lock(&lock);
    EXPECT_DEATH(umf_lock_destroy(&lock), "destroyed while held");
    umf_unlock(&lock);
    umf_lock_destroy(&lock);
}

#endif

/* From here on every fork of this process takes all locks. */
TEST(lock_fork, children_find_every_lock_free) {
    umf_fork_register_inner();
    umf_fork_register_outer();
    umf_fork_register_inner(); /* once is enough */
    locks_t locks;
    std::atomic<bool> stop(false);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] { hammer(locks, stop); });
    }
    unsigned forks = umf_fork_count();
    alarm(250); /* fork itself may hang */
    for (size_t i = 0; i < scaled(300); i++) {
        pid_t child = fork();
        ASSERT_NE(child, -1);
        if (child == 0) {
            _exit(child_main(locks, forks));
        }
        ASSERT_EQ(wait_for(child), 0) << "fork " << i;
    }
    alarm(0);
    stop = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(umf_fork_count(), forks);
}

TEST(lock_fork, children_of_children) {
    umf_fork_register_inner();
    umf_fork_register_outer();
    unsigned forks = umf_fork_count();
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            lock_t a(UMF_RANK_BIN);
            umf_lock(&a.lock);
            umf_unlock(&a.lock);
            _exit(umf_fork_count() == forks + 2 ? 0 : 1);
        }
        _exit(wait_for(grandchild));
    }
    EXPECT_EQ(wait_for(child), 0);
}

TEST(lock_fork, a_hundred_thousand_locks) {
    umf_fork_register_inner();
    umf_fork_register_outer();
    std::vector<std::unique_ptr<lock_t>> many;
    for (int i = 0; i < 100000; i++) {
        many.push_back(std::make_unique<lock_t>(UMF_RANK_BIN));
    }
    pid_t child = fork();
    if (child == 0) {
        umf_lock(&many.back()->lock);
        umf_unlock(&many.back()->lock);
        _exit(0);
    }
    EXPECT_EQ(wait_for(child), 0);
}

TEST(lock_fork, takes_locks_of_every_rank) {
    umf_fork_register_inner();
    umf_fork_register_outer();
    std::vector<std::unique_ptr<lock_t>> locks;
    for (int rank = 0; rank < UMF_RANK_COUNT; rank++) {
        if (rank != UMF_RANK_JEMALLOC) {
            locks.push_back(std::make_unique<lock_t>(static_cast<umf_lock_rank_t>(rank)));
            watched.push_back(&locks.back()->lock);
        }
    }
    found_free.clear();
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    watched.clear();
    EXPECT_EQ(wait_for(child), 0);
    EXPECT_EQ(found_free, "") << "ranks of locks that were free when memory was copied";
}

/* A registration of a lock makes fork give up for a moment; locks held by others stay held. */
TEST(lock_fork, gives_back_only_what_it_took) {
    umf_fork_register_inner();
    umf_fork_register_outer();
    lock_t taken(UMF_RANK_PAGES), held(UMF_RANK_MAP);
    umf_lock(&held.lock);
    std::thread forking([] {
        pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        EXPECT_EQ(wait_for(child), 0);
    });
    EXPECT_TRUE(comes_true([&] { return !is_free(&taken.lock); })) << "no fork begins";
    for (int i = 0; i < 10; i++) {
        lock_t another(UMF_RANK_VIEW);
        EXPECT_FALSE(is_free(&held.lock)) << "released by who did not get it";
    }
    umf_unlock(&held.lock);
    forking.join();
}

/* An allocator below takes its locks after our outer and before our inner ones. */
namespace {

umf_lock_t *outer_lock, *inner_lock;
std::string below_calls;
int below_errors;

void below(const char *call) {
    below_calls += call;
    below_errors += is_free(outer_lock) || !is_free(inner_lock);
}

} // namespace

TEST(lock_fork, handlers_from_below_run_between_the_halves) {
    umf_fork_register_inner();
    umf_fork_register_outer();
    lock_t outer(UMF_RANK_BIN), inner(UMF_RANK_MAP);
    outer_lock = &outer.lock;
    inner_lock = &inner.lock;
    ASSERT_EQ(
        umf_fork_below([] { below("prepare"); }, [] { below(" parent"); }, [] { below(" child"); }),
        0);
    pid_t child = fork();
    if (child == 0) {
        _exit(below_calls == "prepare child" && below_errors == 0 && is_free(outer_lock) ? 0 : 1);
    }
    EXPECT_EQ(wait_for(child), 0);
    EXPECT_EQ(below_calls, "prepare parent");
    EXPECT_EQ(below_errors, 0);
    umf_fork_below([] {}, [] {}, [] {});
}
