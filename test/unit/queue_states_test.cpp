// Queues that are captured, fail, find no memory, end or were lost: what becomes of the memory that
// was freed on them.

#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/capture.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/queue.h>
#include <umf/reason.h>
#include <umf/text.h>

#include "queue_device.h"

using namespace queues;

namespace {

INSTANTIATE_TEST_SUITE_P(All, QueuePool,
                         testing::Values(umfProxyPoolOps, umfDisjointPoolOps,
                                         umfCoalescingPoolOps));

} // namespace

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

TEST_P(QueuePool, AnAllocationThatFailsInACaptureLeavesNoCaptureAnnounced) {
    device.capture(first, true);
    source.alloc_fails = true;
    EXPECT_EQ(umfPoolMallocOn(pool, 4 * MiB, 0, first), nullptr);
    source.alloc_fails = false;
    EXPECT_EQ(umfCaptureEnds(first), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    device.capture(first, false);
}

// A request that finds no memory waits for both queues, one behind the other.
TEST_P(QueuePool, ABlockThatWaitsForAnotherQueueServesARequestThatFindsNoMemory) {
    void *ptr = make(4 * MiB, first);
    device.pass(first, 1);
    EXPECT_EQ(umfUseOn(ptr, second), OK);
    device.work(second, ptr);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    source.limit = source.live_bytes();
    void *other = umfPoolMalloc(pool, 4 * MiB);
    EXPECT_NE(other, nullptr);
    EXPECT_FALSE(device.is_used(ptr));
    source.limit = SIZE_MAX;
    EXPECT_EQ(umfPoolFree(pool, other), OK);
}

// A pool can always be destroyed. Where no wait succeeds, that is said.
TEST_P(QueuePool, WorkThatCannotBeWaitedForIsNamedAtItsEnd) {
    for (bool is_captured : {true, false}) {
        void *ptr = make(MiB, first);
        device.capture(first, is_captured);
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        device.can_settle = device.can_wait = false;
        umf_memory_pool_handle_t none = nullptr;
        EXPECT_NE(umfPoolCreateFromText("", &none), OK) << "which leaves its own text";
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        const std::string said = umfLastErrorText();
        EXPECT_EQ(said.find("may still run") == std::string::npos, is_captured) << said;
        device.can_settle = device.can_wait = true;
        device.capture(first, false);
        device.wait_for_all();
        device.forget_marks();
        ASSERT_EQ(umfPoolCreate(GetParam()(), provider, nullptr, 0, &pool), OK);
    }
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

// Its stream cache has nothing of its own, but a block names it.
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
