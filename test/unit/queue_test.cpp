// Pools over a provider of the user's that has queues (umf/plugin.h): who gets freed memory when,
// from many threads, with queues that come and go.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/decay_period.h"
#include "fakes/fake_provider.h"
#include "fakes/log_file.h"
#include "fakes/scale.h"

#include <umf.h>
#include <umf/plugin.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/queue.h>
#include <umf/reclaim.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MiB = size_t{1} << 20;

// A queue of the device: work is a count, and passes when a test or a wait says so.
struct DeviceQueue {
    uint64_t id = 0;
    uint64_t queued = 0, passed = 0;
    bool is_captured = false;
    std::map<uint64_t, uint64_t> follows; // how far others have passed when the next work runs
};

struct Mark {
    uint64_t id, queued;
};

// The device of all providers here. It checks uses: work on memory that other work uses,
// without an order between the two, is a fault.
class Device {
  public:
    std::atomic<long> faults{0}, marks{0}, blocking_waits{0}, follows{0}, marks_made{0};
    std::atomic<long> ticks{0}, queue_queries{0}; // which queue is it?
    std::atomic<bool> can_follow{true}, can_settle{true};
    std::atomic<umf_result_t> mark_result{OK};

    DeviceQueue *open() {
        std::lock_guard<std::mutex> guard(mutex);
        queues[++ids] = std::make_unique<DeviceQueue>();
        queues[ids]->id = ids;
        return queues[ids].get();
    }
    // Work on [ptr, ptr + size), behind all that the queue has.
    void work(DeviceQueue *queue, void *ptr) {
        std::lock_guard<std::mutex> guard(mutex);
        auto at = users.find(ptr);
        if (at != users.end() && !is_behind(*queue, at->second)) {
            faults++;
        }
        users[ptr] = {queue->id, ++queue->queued};
    }
    void pass(DeviceQueue *queue, uint64_t count) {
        std::lock_guard<std::mutex> guard(mutex);
        queue->passed = std::min(queue->queued, queue->passed + count);
    }
    void capture(DeviceQueue *queue, bool is_captured) {
        std::lock_guard<std::mutex> guard(mutex);
        queue->is_captured = is_captured;
    }
    void forget() {
        std::lock_guard<std::mutex> guard(mutex);
        users.clear();
    }
    bool is_captured(DeviceQueue *queue) {
        std::lock_guard<std::mutex> guard(mutex);
        return queue->is_captured;
    }
    bool is_used(void *ptr) {
        std::lock_guard<std::mutex> guard(mutex);
        auto at = users.find(ptr);
        return at != users.end() && queues[at->second.id]->passed < at->second.queued;
    }

    umf_result_t mark(DeviceQueue *queue, void **out) {
        std::lock_guard<std::mutex> guard(mutex);
        if (mark_result != OK) {
            return mark_result;
        }
        *out = queue->is_captured ? nullptr : new Mark{queue->id, queue->queued};
        marks += !queue->is_captured;
        marks_made++;
        return OK;
    }
    int wait(Mark *mark, bool may_block) {
        std::lock_guard<std::mutex> guard(mutex);
        DeviceQueue &queue = *queues[mark->id];
        blocking_waits += may_block;
        queue.passed = may_block ? std::max(queue.passed, mark->queued) : queue.passed;
        bool has_completed = queue.passed >= mark->queued;
        if (has_completed) {
            marks--;
            delete mark;
        }
        return has_completed;
    }
    umf_result_t follow(DeviceQueue *queue, Mark *mark) {
        std::lock_guard<std::mutex> guard(mutex);
        if (!can_follow || queue->is_captured) {
            return UMF_RESULT_ERROR_NOT_SUPPORTED;
        }
        uint64_t &far = queue->follows[mark->id];
        far = std::max(far, mark->queued);
        follows++;
        return OK;
    }
    void wait_for_all() {
        std::lock_guard<std::mutex> guard(mutex);
        for (auto &each : queues) {
            each.second->passed = each.second->queued;
        }
    }

  private:
    std::mutex mutex;
    uint64_t ids = 0;
    std::map<uint64_t, std::unique_ptr<DeviceQueue>> queues;
    std::map<void *, Mark> users;

    bool is_behind(const DeviceQueue &queue, const Mark &user) {
        auto followed = queue.follows.find(user.id);
        return user.id == queue.id || queues[user.id]->passed >= user.queued ||
               (followed != queue.follows.end() && followed->second >= user.queued);
    }
};

Device device;

umf_memory_provider_ext_ops_t queue_ext() {
    umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
    ext.queue_mark = [](void *, void *queue, void **mark) {
        return device.mark(static_cast<DeviceQueue *>(queue), mark);
    };
    ext.mark_wait = [](void *, void *mark, int may_block) {
        return device.wait(static_cast<Mark *>(mark), may_block != 0);
    };
    ext.queue_id = [](void *, void *queue, uint64_t *id, int *is_of_thread, int *is_captured) {
        device.queue_queries++;
        *id = static_cast<DeviceQueue *>(queue)->id;
        *is_of_thread = 0;
        *is_captured = device.is_captured(static_cast<DeviceQueue *>(queue));
        return OK;
    };
    ext.queue_follow = [](void *, void *queue, void *mark) {
        return device.follow(static_cast<DeviceQueue *>(queue), static_cast<Mark *>(mark));
    };
    ext.wait = [](void *, void *const *, size_t, void *const *, size_t) {
        device.wait_for_all();
        return OK;
    };
    ext.free_pending = [](void *, int, size_t *left) {
        device.ticks++;
        *left = 0;
        return OK;
    };
    ext.settle = [](void *) {
        if (!device.can_settle) {
            return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
        }
        device.wait_for_all();
        return OK;
    };
    return ext;
}

const umf_memory_provider_ops_t &queue_ops() {
    static const umf_memory_provider_ops_t ops = FakeProvider::table();
    static const umf_memory_provider_ext_ops_t ext = queue_ext();
    static const umf_memory_provider_descriptor_t kind = {sizeof(kind), "with_queues", &ops,   &ext,
                                                          nullptr,      nullptr,       nullptr};
    static const umf_result_t registered = umfRegisterProvider(&kind);
    EXPECT_EQ(registered, OK);
    return ops;
}

class QueuePool : public testing::TestWithParam<const umf_memory_pool_ops_t *(*)()> {
  protected:
    FakeProvider source;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    DeviceQueue *first = device.open(), *second = device.open();

    void SetUp() override {
        device.forget();
        device.blocking_waits = 0;
        device.can_settle = true;
        ASSERT_EQ(umfMemoryProviderCreate(&queue_ops(), &source, &provider), OK);
        umf_result_t result = umfPoolCreate(GetParam()(), provider, nullptr, 0, &pool);
        if (result == UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE) {
            GTEST_SKIP() << "the library that the pool needs is not here";
        }
        ASSERT_EQ(result, OK);
    }
    void TearDown() override {
        EXPECT_EQ(pool ? umfPoolDestroy(pool) : OK, OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(device.faults, 0);
        EXPECT_EQ(device.marks, 0) << "each mark was ended";
        EXPECT_EQ(source.mistakes, 0u);
        EXPECT_EQ(source.live(), 0u);
    }
    void *make(size_t size, DeviceQueue *queue) {
        void *ptr = umfPoolMallocOn(pool, size, 0, queue);
        EXPECT_NE(ptr, nullptr);
        device.work(queue, ptr);
        return ptr;
    }
};

INSTANTIATE_TEST_SUITE_P(All, QueuePool,
                         testing::Values(umfProxyPoolOps, umfDisjointPoolOps,
                                         umfCoalescingPoolOps));

} // namespace

namespace {

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

TEST_P(QueuePool, LeavesWhatACapturedQueueHasFreed) {
    void *ptr = make(4 * MiB, first);
    device.capture(first, true);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    EXPECT_NE(make(4 * MiB, second), ptr);
    umfPoolTrimMemory(pool, 0);
    size_t bytes = 0;
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, &bytes), BUSY);
    EXPECT_GE(bytes, 4 * MiB);
    EXPECT_EQ(umfPoolMallocOn(pool, 4 * MiB, 0, first), ptr) << "it stays the queue's";
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    device.capture(first, false);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, &bytes), OK);
}

TEST_P(QueuePool, GivesBackWhatACapturedQueueFreedAtItsEnd) {
    void *ptr = make(MiB, first);
    device.capture(first, true);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
}

// A queue may have been destroyed by then, so that no mark can be made.
TEST_P(QueuePool, AsksNoQueueAtItsEndUnlessItMust) {
    for (bool can_settle : {true, false}) {
        device.can_settle = can_settle;
        void *ptr = make(MiB, first);
        EXPECT_EQ(umfUseOn(ptr, second), OK);
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        device.marks_made = 0;
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(device.marks_made == 0, can_settle);
        EXPECT_FALSE(device.is_used(ptr)) << "the work on freed blocks has completed";
        ASSERT_EQ(umfPoolCreate(GetParam()(), provider, nullptr, 0, &pool), OK);
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

TEST_P(QueuePool, AQueueThatFailsIsWaitedForWithAllOthers) {
    DeviceQueue *doomed = device.open();
    void *ptr = make(4 * MiB, doomed);
    EXPECT_EQ(umfFreeOn(ptr, doomed), OK);
    uint64_t id = doomed->id;
    doomed->id = device.open()->id; // the handle is another queue's now
    void *other = umfPoolMallocOn(pool, 1000, 0, doomed);
    EXPECT_NE(other, ptr);
    doomed->id = id;
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    EXPECT_FALSE(device.is_used(ptr));
    EXPECT_EQ(umfFree(other), OK);
}

TEST_P(QueuePool, AQueueThatFindsNoMemoryForAMarkKeepsItsBlocks) {
    for (umf_result_t result : {UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, BUSY}) {
        void *ptr = make(1000, first);
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        device.mark_result = result;
        EXPECT_EQ(umfPoolWaitPending(pool, 0, nullptr), BUSY);
        device.mark_result = OK;
        EXPECT_EQ(umfPoolMallocOn(pool, 1000, 0, first), ptr);
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    }
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

// Its lane has nothing of its own, but a block names it.
TEST_P(QueuePool, ABlockWaitsForAQueueThatWasLostAlthoughOthersBegin) {
    DeviceQueue *doomed = device.open(), *next = device.open();
    void *ptr = make(1000, first);
    EXPECT_EQ(umfUseOn(ptr, doomed), OK);
    device.pass(first, 1);
    device.work(doomed, ptr);
    device.mark_result = BUSY;
    EXPECT_EQ(umfQueueEnds(doomed), OK);
    device.mark_result = OK;
    void *other = make(500, next);
    EXPECT_EQ(umfFreeOn(other, next), OK);
    device.pass(next, 1);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    EXPECT_EQ(umfPoolWaitPending(pool, 0, nullptr), BUSY);
    void *third = make(1000, first);
    EXPECT_NE(third, ptr);
    EXPECT_EQ(umfFreeOn(third, first), OK);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    EXPECT_FALSE(device.is_used(ptr));
}

// The frees of the queue that was lost are none of its own.
TEST_P(QueuePool, AQueueThatHasFreedNothingIsNotWaitedFor) {
    DeviceQueue *doomed = device.open(), *next = device.open();
    void *ptr = make(1000, doomed);
    EXPECT_EQ(umfFreeOn(ptr, doomed), OK);
    EXPECT_EQ(make(1000, doomed), ptr);
    EXPECT_EQ(umfFree(ptr), OK);
    device.mark_result = BUSY;
    EXPECT_EQ(umfQueueEnds(doomed), OK);
    device.mark_result = OK;
    device.wait_for_all();
    void *other = make(2000, next);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    EXPECT_EQ(device.blocking_waits, 0);
    EXPECT_TRUE(device.is_used(other));
    EXPECT_EQ(umfFreeOn(other, next), OK);
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
