// Threads that stop in the middle of something long: others go on, the child of a fork has all its
// memory, and signals change nothing.

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <pthread.h>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/experimental/ctl.h>
#include <umf/memory_pool_ops.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/queue.h>
#include <umf/reclaim.h>
#include <umf/record.h>

#include "fakes/child.h"
#include "fakes/decay_period.h"
#include "fakes/far_provider.h"
#include "fakes/storm.h"
#include "fakes/threads.h"
#include "fakes/waiting_provider.h"

extern "C" void umf_reclaim_each(bool (*one)(umf_memory_pool_handle_t, void *), void *); // core/

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t SIZE = 8192;
char first, second; // queues

bool background() {
    bool value = false;
    EXPECT_EQ(umfCtlGet("umf.reclaim.background", &value, sizeof(value)), OK);
    return value;
}

void set_background(bool value) {
    EXPECT_EQ(umfCtlSet("umf.reclaim.background", &value, sizeof(value)), OK);
}

// A test that may hang, or that starts threads beside forks, has a process of its own.
template <typename F> void alone(const F &test) {
    EXPECT_EQ(exit_of_child([&] {
                  alarm(100); // instead of a wait for ever
                  test();
                  return testing::Test::HasFailure() ? 1 : 0;
              }),
              0);
}

class Blocked : public testing::Test {
  public:
    WaitingProvider source;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void begin() {
        provider = source.create();
        ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &pool), OK);
    }
    void end() {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    // A process can use the pool, whatever its parent was doing.
    void use_and_end() {
        for (size_t size = 64; size <= size_t{1} << 20; size *= 4) {
            void *plain = umfPoolMalloc(pool, size);
            void *queued = umfPoolMallocOn(pool, size, 0, &first);
            EXPECT_TRUE(plain && queued);
            EXPECT_EQ(umfUseOn(queued, &second), OK);
            EXPECT_EQ(umfFreeOn(queued, &first), OK);
            EXPECT_EQ(umfFree(plain), OK);
        }
        EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(umfReclaim(nullptr, SIZE_MAX, nullptr), OK);
        EXPECT_EQ(umfQueueEnds(&first), OK);
        end();
    }
    // A thread is in `state` and stops at the gate; another one forks. The child runs `last` at its
    // end.
    void fork_beside(
        Gate &gate, const std::function<void()> &state, const std::function<void()> &last = [] {}) {
        gate.is_closed = true;
        std::thread inside(state);
        gate.wait_for(1);
        expect_in_child([&] {
            alarm(50); // before that of the parent
            gate.is_closed = false;
            source.on_pending = nullptr;
            use_and_end();
            last();
        });
        gate.is_closed = false;
        inside.join();
    }
};

// --- many threads that reclaim

umf_memory_pool_ops_t trimming_table() {
    umf_memory_pool_ops_t ops = {};
    ops.version = UMF_POOL_OPS_VERSION_CURRENT;
    ops.initialize = [](umf_memory_provider_handle_t, const void *params, void **self) {
        *self = const_cast<void *>(params);
        return OK;
    };
    ops.finalize = [](void *) { return OK; };
    ops.malloc = [](void *, size_t) -> void * { return nullptr; };
    ops.calloc = ops.aligned_malloc = [](void *, size_t, size_t) -> void * { return nullptr; };
    ops.realloc = [](void *, void *, size_t) -> void * { return nullptr; };
    ops.malloc_usable_size = [](void *, const void *, size_t *size) {
        *size = 0;
        return OK;
    };
    ops.free = [](void *, void *) { return OK; };
    ops.get_last_allocation_error = [](void *) { return OK; };
    ops.get_name = [](void *, const char **name) {
        *name = "trimming";
        return OK;
    };
    ops.ext_trim_memory = [](void *self, size_t) {
        static_cast<Gate *>(self)->pass();
        return OK;
    };
    return ops;
}

// A pool whose trim stops at a gate.
class SlowPool {
  public:
    Gate gate;
    umf_memory_pool_handle_t pool = nullptr;

    SlowPool() {
        static const umf_memory_pool_ops_t ops = trimming_table();
        EXPECT_EQ(umfPoolCreate(&ops, provider, &gate, 0, &pool), OK);
    }
    void end() {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }

  private:
    WaitingProvider source;
    umf_memory_provider_handle_t provider = source.create();
};

// Pools that are not ending.
size_t count_visited() {
    size_t visited = 0;
    umf_reclaim_each(
        [](umf_memory_pool_handle_t, void *count) {
            ++*static_cast<size_t *>(count);
            return true;
        },
        &visited);
    return visited;
}

TEST_F(Blocked, EveryPoolIsVisitedBesideManyThreadsThatReclaim) {
    begin();
    SlowPool slow;
    slow.gate.is_closed = true;
    std::vector<std::thread> reclaiming;
    for (int i = 0; i < 12; i++) {
        reclaiming.emplace_back([&] { EXPECT_EQ(umfReclaim(nullptr, SIZE_MAX, nullptr), OK); });
    }
    slow.gate.wait_for(12);
    EXPECT_EQ(count_visited(), 2u);
    slow.gate.is_closed = false;
    for (std::thread &each : reclaiming) {
        each.join();
    }
    slow.end();
    end();
}

// A pool ends when its visitors have gone, and not before.
TEST_F(Blocked, APoolThatEndsWaitsForItsVisitor) {
    begin();
    SlowPool slow;
    slow.gate.is_closed = true;
    std::atomic<bool> has_ended{false};
    std::thread visitor([&] { EXPECT_EQ(umfReclaim(nullptr, SIZE_MAX, nullptr), OK); });
    slow.gate.wait_for(1);
    std::thread ending([&] {
        slow.end();
        has_ended = true;
    });
    wait_until([] { return count_visited() == 1; }); // it is ending
    for (int i = 0; i < 50 && !has_ended; i++) {
        nap();
    }
    EXPECT_FALSE(has_ended);
    slow.gate.is_closed = false;
    visitor.join();
    ending.join();
    end();
}

// --- the background thread

// In the background thread until the setting is off, then until the test says so.
TEST_F(Blocked, TheBackgroundThreadReadsItsSettingWhileItIsTurnedOff) {
    alone([&] {
        DecayPeriod none(DecayPeriod::NONE);
        begin();
        Gate in_thread;
        std::atomic<bool> was_off{false};
        const std::thread::id own = std::this_thread::get_id();
        std::atomic<int> calls{0};
        source.on_pending = [&] {
            if (std::this_thread::get_id() == own || calls++ > 0) {
                return;
            }
            in_thread.inside++;
            wait_until([] { return !background(); });
            was_off = true;
            wait_until([&] { return !in_thread.is_closed; });
        };
        in_thread.is_closed = true;
        set_background(true);
        in_thread.wait_for(1);
        std::thread turns_off([] { set_background(false); });
        std::thread turns_off_too([] { set_background(false); });
        wait_until([&] { return was_off.load(); });
        expect_in_child([&] { // the fork blocks on no thread
            source.on_pending = nullptr;
            EXPECT_FALSE(background());
            set_background(true);
            EXPECT_TRUE(background());
            set_background(false);
            use_and_end();
        });
        in_thread.is_closed = false;
        turns_off.join();
        turns_off_too.join();
        EXPECT_FALSE(background());
        source.on_pending = nullptr;
        end();
    });
}

TEST_F(Blocked, TheBackgroundThreadTurnsItselfOffAndOn) {
    alone([&] {
        DecayPeriod none(DecayPeriod::NONE);
        begin();
        const std::thread::id own = std::this_thread::get_id();
        std::atomic<int> calls{0};
        source.on_pending = [&] {
            if (std::this_thread::get_id() != own && calls++ == 0) {
                set_background(false);
                set_background(true);
            }
        };
        set_background(true);
        wait_until([&] { return calls > 2; }); // the second thread ticks, too
        EXPECT_TRUE(background());
        set_background(false);
        EXPECT_FALSE(background());
        source.on_pending = nullptr;
        end();
    });
}

// --- forks

TEST_F(Blocked, AForkBesideAWaitForAQueue) {
    alone([&] {
        begin();
        EXPECT_EQ(umfFreeOn(umfPoolMallocOn(pool, SIZE, 0, &first), &first), OK);
        fork_beside(source.waits,
                    [&] { EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK); });
        end();
    });
}

TEST_F(Blocked, AForkBesideAVisit) {
    alone([&] {
        begin();
        SlowPool slow;
        fork_beside(
            slow.gate, [&] { umfReclaim(nullptr, SIZE_MAX, nullptr); }, [&] { slow.end(); });
        slow.end();
        end();
    });
}

// Also by the visitor itself.
TEST_F(Blocked, AForkInsideOfAVisit) {
    begin();
    umf_reclaim_each(
        [](umf_memory_pool_handle_t, void *test) {
            expect_in_child([&] { static_cast<Blocked *>(test)->use_and_end(); });
            return true;
        },
        this);
    end();
}

Gate in_callback;

bool stop_in_callback(umf_memory_pool_handle_t, size_t, unsigned, void *) {
    in_callback.pass();
    return false;
}

TEST_F(Blocked, AForkBesideAReclaimCallback) {
    alone([&] {
        begin();
        umf_pool_group_handle_t group = nullptr;
        ASSERT_EQ(umfPoolGroupCreate(size_t{16} << 20, &group), OK);
        ASSERT_EQ(umfPoolGroupAdd(group, pool), OK);
        ASSERT_EQ(umfAddReclaimCallback(stop_in_callback, nullptr), OK);
        fork_beside(in_callback,
                    [&] { EXPECT_EQ(umfPoolMalloc(pool, size_t{64} << 20), nullptr); });
        EXPECT_EQ(umfRemoveReclaimCallback(stop_in_callback, nullptr), OK);
        EXPECT_EQ(umfPoolGroupRemove(group, pool), OK);
        EXPECT_EQ(umfPoolGroupDestroy(group), OK);
        end();
    });
}

TEST_F(Blocked, AForkBesideAPassOfTheBackgroundThread) {
    alone([&] {
        DecayPeriod none(DecayPeriod::NONE);
        begin();
        Gate gate;
        const std::thread::id own = std::this_thread::get_id();
        source.on_pending = [&] {
            if (std::this_thread::get_id() != own) {
                gate.pass();
            }
        };
        set_background(true);
        fork_beside(gate, [] {});
        set_background(false);
        source.on_pending = nullptr;
        end();
    });
}

TEST_F(Blocked, AForkBesideThePullOfAMirror) {
    alone([&] {
        begin();
        FarProvider far;
        Gate gate;
        umf_memory_provider_handle_t far_below = far.create();
        umf_memory_pool_handle_t far_pool = nullptr;
        umf_mirror_handle_t mirror = nullptr;
        ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), far_below, nullptr, 0, &far_pool), OK);
        void *of = umfPoolMalloc(far_pool, SIZE);
        ASSERT_EQ(umfMirrorCreate(of, SIZE, pool, &mirror), OK);
        far.during_copy = [&] { gate.pass(); };
        fork_beside(gate, [&] { EXPECT_EQ(umfMirrorPull(mirror, 0, SIZE, nullptr), OK); });
        EXPECT_EQ(umfMirrorDestroy(mirror), OK);
        EXPECT_EQ(umfFree(of), OK);
        EXPECT_EQ(umfPoolDestroy(far_pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(far_below), OK);
        end();
    });
}

// One block of a far provider, and copies to it.
struct FarBlock {
    FarProvider far;
    umf_memory_provider_handle_t below = far.create();
    umf_memory_pool_handle_t pool = nullptr;
    void *block = nullptr;
    char source[SIZE] = {};

    FarBlock() {
        EXPECT_EQ(umfPoolCreate(umfDisjointPoolOps(), below, nullptr, 0, &pool), OK);
        block = umfPoolMalloc(pool, SIZE);
        EXPECT_NE(block, nullptr);
    }
    umf_result_t copy() {
        return umfCopy(block, source, SIZE, nullptr);
    }
    // A copy whose wait fails.
    void leave_undone() {
        far.fails_wait = true;
        EXPECT_NE(copy(), OK);
        far.fails_wait = false;
    }
    void end() {
        EXPECT_EQ(umfFree(block), OK);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(below), OK);
        EXPECT_EQ(far.queues, 0);
    }
};

// Work that could not be waited for is waited for again by the next copy of its provider. Copies of
// other providers go on meanwhile, also where they have such work themselves.
TEST_F(Blocked, AWaitForAnUndoneQueueStopsNoOtherProvider) {
    alone([] {
        FarBlock slow, quick;
        Gate gate;
        gate.is_closed = true;
        slow.leave_undone();
        quick.leave_undone();
        slow.far.during_wait = [&] { gate.pass(); };
        std::thread waits([&] { EXPECT_EQ(slow.copy(), OK); });
        gate.wait_for(1);
        EXPECT_EQ(quick.copy(), OK);
        quick.leave_undone();
        quick.end();
        gate.is_closed = false;
        waits.join();
        slow.end();
    });
}

TEST_F(Blocked, ForksBesideRecordingsThatStartAndStop) {
    alone([&] {
        begin();
        std::atomic<bool> is_over{false};
        std::thread records([&] {
            while (!is_over) {
                umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
                params.leaks = 1;
                EXPECT_EQ(umfRecordStart(&params), OK);
                EXPECT_EQ(umfFree(umfPoolMalloc(pool, 64)), OK);
                EXPECT_EQ(umfRecordStop(), OK);
            }
        });
        for (int i = 0; i < 30; i++) {
            expect_in_child([&] { use_and_end(); });
        }
        is_over = true;
        records.join();
        end();
    });
}

// --- signals

// Threads that wait in `calls` go on only when the gate opens.
void expect_to_stay(Gate &gate, const std::vector<std::function<void()>> &calls) {
    std::atomic<int> returned{0};
    std::vector<std::thread> threads;
    std::vector<pthread_t> handles;
    for (const auto &call : calls) {
        threads.emplace_back([&] {
            call();
            returned++;
        });
        handles.push_back(threads.back().native_handle());
    }
    gate.wait_for(1);
    storm(handles);
    EXPECT_EQ(returned, 0);
    gate.is_closed = false;
    for (std::thread &each : threads) {
        each.join();
    }
}

TEST_F(Blocked, SignalsEndNoWaitForAQueue) {
    alone([&] {
        begin();
        EXPECT_EQ(umfFreeOn(umfPoolMallocOn(pool, SIZE, 0, &first), &first), OK);
        source.waits.is_closed = true;
        const auto wait = [&] { EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK); };
        const auto poll = [&] { EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX - 1, nullptr), OK); };
        expect_to_stay(source.waits, {wait, wait, wait, poll});
        end();
    });
}

TEST_F(Blocked, SignalsEndNoWaitForTheBackgroundThread) {
    alone([&] {
        DecayPeriod none(DecayPeriod::NONE);
        begin();
        Gate gate;
        const std::thread::id own = std::this_thread::get_id();
        std::atomic<int> calls{0};
        source.on_pending = [&] {
            if (std::this_thread::get_id() != own && calls++ == 0) {
                gate.pass();
            }
        };
        gate.is_closed = true;
        set_background(true);
        gate.wait_for(1);
        expect_to_stay(gate, {[] { set_background(false); }, [] { set_background(false); }});
        EXPECT_FALSE(background());
        source.on_pending = nullptr;
        end();
    });
}

TEST_F(Blocked, SignalsEndNoVisitAndNoWaitForOne) {
    alone([&] {
        begin();
        SlowPool slow;
        slow.gate.is_closed = true;
        std::thread visitor([&] { EXPECT_EQ(umfReclaim(nullptr, SIZE_MAX, nullptr), OK); });
        slow.gate.wait_for(1);
        expect_to_stay(slow.gate, {[&] { slow.end(); }});
        visitor.join();
        end();
    });
}

} // namespace
