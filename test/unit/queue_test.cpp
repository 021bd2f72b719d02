// Pools over a provider of the user's that has queues (umf/plugin.h): who gets freed memory when,
// from many threads, with queues that come and go.

#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/decay_period.h"
#include "fakes/log_file.h"
#include "fakes/scale.h"
#include "queue_device.h"

#include <umf.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/queue.h>
#include <umf/reclaim.h>

using namespace queues;

namespace {

INSTANTIATE_TEST_SUITE_P(All, QueuePool,
                         testing::Values(umfProxyPoolOps, umfDisjointPoolOps,
                                         umfCoalescingPoolOps));

// All kinds of pools; those that are not built are left out.
std::vector<const umf_memory_pool_ops_t *(*)()> all_pools() {
    std::vector<const umf_memory_pool_ops_t *(*)()> list;
    for (auto ops : {umfProxyPoolOps, umfDisjointPoolOps, umfCoalescingPoolOps, umfScalablePoolOps,
                     umfJemallocPoolOps}) {
        if (ops()) {
            list.push_back(ops);
        }
    }
    return list;
}

class EveryPool : public QueuePool {};

INSTANTIATE_TEST_SUITE_P(All, EveryPool, testing::ValuesIn(all_pools()));

} // namespace

TEST_P(EveryPool, RefusesOnAQueueWhatWasFreedWithoutOne) {
    for (size_t size = 16; size <= 4 * MiB; size *= 4) {
        void *ptr = umfPoolMalloc(pool, size), *kept = umfPoolMalloc(pool, size);
        ASSERT_NE(kept, nullptr) << size;
        EXPECT_EQ(umfFree(ptr), OK) << size;
        EXPECT_EQ(umfFreeOn(ptr, first), UMF_RESULT_ERROR_INVALID_ARGUMENT) << size;
        EXPECT_EQ(umfUseOn(ptr, first), UMF_RESULT_ERROR_INVALID_ARGUMENT) << size;
        void *one = umfPoolMalloc(pool, size), *two = umfPoolMallocOn(pool, size, 0, first);
        EXPECT_NE(one, two) << size << ": a block is handed out twice";
        for (void *each : {kept, one, two}) {
            EXPECT_EQ(umfFreeOn(each, first), OK) << size;
        }
    }
}

TEST_P(QueuePool, IsNotCreatedIfItOverwritesMemoryOfADevice) {
    umf_disjoint_pool_params_handle_t params = nullptr;
    umf_memory_pool_handle_t other = nullptr;
    ASSERT_EQ(umfDisjointPoolParamsCreate(&params), OK);
    EXPECT_EQ(umfDisjointPoolParamsSetZeroOnFree(params, 1), OK);
    EXPECT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, params, 0, &other),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfDisjointPoolParamsDestroy(params), OK);
}

TEST_P(EveryPool, AsksOnceAThreadWhichQueueItFreesOn) {
    auto free_some = [&] {
        long before = device.queue_queries;
        for (int i = 0; i < 20; i++) {
            void *ptr = umfPoolMalloc(pool, 100 + 5000 * i);
            EXPECT_EQ(umfUseOn(ptr, first), OK);
            EXPECT_EQ(umfFreeOn(ptr, first), OK);
        }
        return device.queue_queries - before;
    };
    EXPECT_EQ(free_some(), 1) << "the queue is new";
    EXPECT_EQ(free_some(), 0);
    long of_other = 0;
    std::thread([&] { of_other = free_some(); }).join();
    EXPECT_EQ(of_other, 1);
    EXPECT_EQ(umfQueueEnds(first), OK);
    EXPECT_EQ(free_some(), 1) << "the handle may be that of another queue now";
}

TEST_P(QueuePool, WaitsOnTheDeviceForLargeMemoryOfAnother) {
    void *ptr = make(4 * MiB, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    EXPECT_EQ(make(4 * MiB, second), ptr);
    EXPECT_EQ(device.blocking_waits, 0);
    EXPECT_GT(device.follows.exchange(0), 0);
    EXPECT_EQ(umfFreeOn(ptr, second), OK);
}

TEST_P(QueuePool, WaitsOnTheHostWhereTheDeviceCannotOrMayNot) {
    for (bool is_captured : {false, true}) {
        device.can_follow = is_captured;
        device.capture(second, is_captured);
        void *ptr = make(4 * MiB, first);
        source.limit = source.live_bytes();
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        device.blocking_waits = 0;
        void *other = make(4 * MiB, second);
        EXPECT_GT(device.blocking_waits, 0);
        source.limit = SIZE_MAX;
        EXPECT_EQ(umfFreeOn(other, second), OK);
        device.capture(second, false);
        device.can_follow = true;
        EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
        umfPoolTrimMemory(pool, 0);
    }
}

TEST_P(QueuePool, GivesToThePoolWhatWasFreeForTwoPeriods) {
    DecayPeriod period(DecayPeriod::NONE);
    void *ptr = make(4 * MiB, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    device.pass(first, 1);
    std::vector<void *> small(5000);
    for (int round = 0; round < 3; round++) { // every few thousandth free of a thread is a tick
        for (void *&each : small) {
            each = umfPoolMalloc(pool, 100);
        }
        for (void *each : small) {
            EXPECT_EQ(umfFree(each), OK);
        }
    }
    void *again = umfPoolMalloc(pool, 4 * MiB); // the pool has it, or has given it back
    EXPECT_NE(again, nullptr);
    EXPECT_EQ(umfFree(again), OK);
    EXPECT_NE(umfFreeOn(ptr, first), OK) << "it is free";
}

TEST_P(QueuePool, ServesRequestsWithoutQueuesBeforeTheyFail) {
    void *ptr = make(4 * MiB, first);
    source.limit = source.live_bytes();
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    void *plain = umfPoolMalloc(pool, 4 * MiB);
    EXPECT_NE(plain, nullptr);
    EXPECT_FALSE(device.is_used(ptr)) << "the host has waited";
    source.limit = SIZE_MAX;
    EXPECT_EQ(umfFree(plain), OK);
}

TEST_P(QueuePool, GivesToOtherPoolsOfItsGroup) {
    umf_pool_group_handle_t group = nullptr;
    umf_memory_pool_handle_t other = nullptr;
    FakeProvider source_of_other;
    umf_memory_provider_handle_t provider_of_other = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&queue_ops(), &source_of_other, &provider_of_other), OK);
    ASSERT_EQ(umfPoolCreate(GetParam()(), provider_of_other, nullptr, 0, &other), OK);
    ASSERT_EQ(umfPoolGroupCreate(10 * MiB, &group), OK);
    ASSERT_EQ(umfPoolGroupAdd(group, pool), OK);
    ASSERT_EQ(umfPoolGroupAdd(group, other), OK);
    void *ptr = make(6 * MiB, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    void *wanted = umfPoolMallocOn(other, 6 * MiB, 0, second);
    EXPECT_NE(wanted, nullptr);
    EXPECT_FALSE(device.is_used(ptr)) << "it was waited for";
    EXPECT_EQ(umfFreeOn(wanted, second), OK);
    EXPECT_EQ(umfPoolDestroy(other), OK);
    EXPECT_EQ(umfPoolGroupRemove(group, pool), OK);
    EXPECT_EQ(umfPoolGroupDestroy(group), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider_of_other), OK);
}

TEST_P(QueuePool, AFreedBlockServesNoAlignmentThatItHasNot) {
    void *ptr = make(1000, first);
    uintptr_t alignment = (reinterpret_cast<uintptr_t>(ptr) & -reinterpret_cast<uintptr_t>(ptr));
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    void *other = umfPoolMallocOn(pool, 1000, 2 * alignment, first);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(other) % (2 * alignment), 0u);
    EXPECT_EQ(umfPoolMallocOn(pool, 1000, alignment, first), ptr);
    EXPECT_EQ(umfFreeOn(other, first), OK);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
}

TEST_P(QueuePool, ABlockOfAnySizeServesNoLargerRequest) {
    for (size_t size : {9000, 70000, 300000}) {
        void *ptr = umfPoolMalloc(pool, size);
        size_t usable = size;
        umfPoolMallocUsableSize(pool, ptr,
                                &usable); // the proxy pool has no more than the request
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        for (size_t larger = usable + 1; larger < usable + usable / 8; larger += usable / 40) {
            void *other = umfPoolMallocOn(pool, larger, 0, first);
            EXPECT_NE(other, ptr) << larger << " bytes in a block of " << usable;
            EXPECT_EQ(umfFree(other), OK);
        }
    }
}

TEST_P(QueuePool, ALargeBlockServesRequestsThatAreAnEighthSmaller) {
    void *ptr = make(9 * MiB, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    EXPECT_EQ(umfPoolMallocOn(pool, 8 * MiB, 0, first), ptr);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
}

// No block is as large, but together they are.
TEST_P(QueuePool, WaitsForMuchThatWasFreedBeforeItGrows) {
    std::vector<void *> blocks;
    for (int i = 0; i < 8; i++) {
        blocks.push_back(make(4 * MiB, first));
    }
    for (void *ptr : blocks) {
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
    }
    void *large = make(16 * MiB, second);
    for (void *ptr : blocks) {
        EXPECT_TRUE(ptr == large || !device.is_used(ptr)) << "it was waited for";
    }
    EXPECT_EQ(umfFreeOn(large, second), OK);
}

// At the first tick, and not after two periods as without the trim.
TEST_P(QueuePool, ATrimGivesBackLaterWhatTheQueueStillUses) {
    DecayPeriod period(DecayPeriod::NONE);
    void *ptr = make(4 * MiB, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    umfPoolTrimOn(pool, 0, first); // the proxy pool itself keeps nothing that it could trim
    device.pass(first, 1);
    long before = device.ticks;
    for (int i = 0; i < 100000 && device.ticks == before; i++) {
        EXPECT_EQ(umfFree(umfPoolMalloc(pool, 100)), OK);
    }
    EXPECT_EQ(device.ticks, before + 1);
    LogFile log;
    EXPECT_NE(umfFreeOn(ptr, first), OK);
    EXPECT_EQ(log.count("on queue"), 0u) << "the queue has it no longer: " << log.text();
}

// Threads with queues of their own and one that all share, blocks that pass from queue to queue.
TEST_P(QueuePool, NeverGivesMemoryThatOtherWorkUses) {
    constexpr int threads = 4;
    std::vector<std::thread> all;
    DeviceQueue *shared = device.open();
    std::mutex shared_turn; // the order of calls on one queue is its users' to make
    for (int number = 0; number < threads; number++) {
        all.emplace_back([&, number] {
            std::mt19937 random(static_cast<unsigned>(number));
            DeviceQueue *own = device.open();
            std::vector<std::pair<void *, DeviceQueue *>> blocks;
            for (size_t step = 0; step < scaled(40000); step++) {
                unsigned what = random() % 16;
                bool is_shared = random() % 4 == 0;
                DeviceQueue *queue = is_shared ? shared : own;
                std::unique_lock<std::mutex> turn(shared_turn, std::defer_lock);
                if (is_shared) {
                    turn.lock();
                }
                if (what < 7) {
                    size_t size = size_t{64} << random() % 16;
                    if (void *ptr = umfPoolMallocOn(pool, size, 0, queue)) {
                        device.work(queue, ptr);
                        blocks.emplace_back(ptr, queue);
                    }
                } else if (what < 13 && !blocks.empty()) {
                    auto block = blocks.back();
                    blocks.pop_back();
                    if (block.second != queue) { // no event between them
                        EXPECT_EQ(umfUseOn(block.first, block.second), OK);
                    }
                    EXPECT_EQ(umfFreeOn(block.first, queue), OK);
                } else if (what == 13) {
                    device.pass(queue, random() % 20);
                } else if (what == 14 && random() % 8 == 0 && !is_shared && blocks.empty()) {
                    EXPECT_EQ(umfQueueEnds(own), OK);
                    own = device.open();
                } else if (what == 15 && random() % 16 == 0) {
                    umfPoolTrimOn(pool, 0, queue);
                }
            }
            for (auto &block : blocks) {
                EXPECT_EQ(umfFreeOn(block.first, block.second), OK);
            }
        });
    }
    for (std::thread &each : all) {
        each.join();
    }
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
}
