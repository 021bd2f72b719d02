/*
 * Who waits for another thread without a lock to sleep on (system/pause.h) lets threads of lower
 * priority run after a bounded number of looks. Each test lets a thread wait for one that does not
 * go on before the waiting one sleeps; where the system permits it, the one that waits is of the
 * class SCHED_FIFO and both share a CPU, so that nothing else could help.
 */
#include <atomic>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <umf.h>
#include <umf/text.h>

extern "C" {
#include "base/lock.h"
#include "object/names.h"
#include "system/pause.h"
#include "track/map_list.h"
}

namespace {
thread_local bool is_waiter;
std::atomic<unsigned> yields, naps; // of the thread that waits
} // namespace

// In place of the C library's.
extern "C" int sched_yield(void) noexcept {
    yields += is_waiter && naps == 0;
    return static_cast<int>(syscall(SYS_sched_yield));
}
extern "C" int nanosleep(const timespec *time, timespec *left) {
    naps += is_waiter;
    return static_cast<int>(syscall(SYS_nanosleep, time, left));
}

namespace {

/* Both on one CPU, the waiting thread before all others. false: not permitted. */
bool make_real_time(pthread_t thread) {
    sched_param first = {};
    first.sched_priority = 1;
    return pthread_setschedparam(thread, SCHED_FIFO, &first) == 0;
}

class Pause : public testing::Test {
  protected:
    cpu_set_t before;

    void SetUp() override {
        cpu_set_t one;
        ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0); // for the threads to come, too
        yields = naps = 0;
    }
    void TearDown() override {
        sched_setaffinity(0, sizeof(before), &before);
    }

    /* `wait` is over only after `release`, which is done when the waiting thread has slept. The
     * deadline is for a library that never sleeps: a failed test, not one that hangs. */
    static void expect_sleep(const std::function<void()> &wait,
                             const std::function<void()> &release) {
        std::thread waiter([&] {
            if (!make_real_time(pthread_self())) {
                RecordProperty("class", "SCHED_OTHER, as SCHED_FIFO is not permitted here");
            }
            is_waiter = true;
            wait();
            is_waiter = false;
        });
        time_t deadline = time(nullptr) + 20;
        while (naps == 0 && time(nullptr) < deadline) {
            sched_yield();
        }
        EXPECT_GT(naps, 0u) << "it spins all along";
        release();
        waiter.join();
        EXPECT_LE(yields, 64u) << "before it slept";
    }
};

TEST_F(Pause, SleepsAfterABoundedNumberOfLooks) {
    std::atomic<bool> done{false};
    expect_sleep(
        [&] {
            for (unsigned round = 0; !done; round++) {
                umf_pause(round);
            }
        },
        [&] { done = true; });
}

// A page of the pointer map whose list is being changed, as a writer leaves it that cannot run.
umf_map_shard_t shard;
std::atomic<umf_map_entry_t> slot;
umf_map_list_t *list;

// Begins a change, or ends it: the sequence number is the list's first member.
void change_list() {
    ++*reinterpret_cast<std::atomic<uint32_t> *>(list);
}

TEST_F(Pause, ALookupBesideAWriterThatCannotRun) {
    list = umf_map_list_make_room(&shard, &slot, umf_map_load(&slot));
    ASSERT_NE(list, nullptr);
    change_list();
    expect_sleep([] { umf_map_list_find(&slot, 0x1000); }, change_list);
}

TEST_F(Pause, AForkBesideTheHolderOfALock) {
    umf_fork_register_inner();
    umf_lock_t lock;
    umf_lock_init(&lock, UMF_RANK_PROVIDER);
    umf_lock(&lock);
    expect_sleep(
        [] {
            pid_t pid = fork();
            if (pid == 0) {
                _exit(0);
            }
            int status = 0;
            EXPECT_EQ(waitpid(pid, &status, 0), pid);
        },
        [&] { umf_unlock(&lock); });
    umf_lock_destroy(&lock);
}

TEST_F(Pause, TheEndOfAPoolThatIsRead) {
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("disjoint:name=read over os", &pool), UMF_RESULT_SUCCESS);
    umf_memory_pool_handle_t pinned = umf_names_get("read", 0);
    ASSERT_EQ(pinned, pool);
    expect_sleep([&] { EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS); },
                 [&] { umf_names_put(pinned); });
}

} // namespace
