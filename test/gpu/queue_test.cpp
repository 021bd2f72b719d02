// Allocating and freeing in the order of streams: memory is used again at once where the stream
// orders it, and not before the work has passed anywhere else.

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fakes/content.h"
#include "fakes/log_file.h"
#include "fakes/vmm_kinds.h"
#include "gpu.h"

#include <umf/capture.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/queue.h>
#include <umf/reclaim.h>
#include <umf/suspend.h>
#include <umf/text.h>

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t WRONG = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t BUSY = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr size_t KiB = 1024, MiB = KiB * KiB;
constexpr size_t SMALL = 64 * KiB, LARGE = 2 * MiB;

class Queues : public testing::Test {
  protected:
    umf_memory_pool_handle_t pool = nullptr;
    CUstream first = nullptr, second = nullptr;
    size_t held = 0;

    void SetUp() override {
        start_cuda_vmm();
        for (CUstream *stream : {&first, &second}) {
            CU(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
        }
        held = held_cuda();
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(held_cuda(), held) << "the pool has given all back";
        for (CUstream stream : {first, second}) {
            driver().cuStreamDestroy(stream);
        }
        if (!driver().is_real) {
            EXPECT_EQ(driver().control()->illegal_accesses, 0);
            EXPECT_EQ(driver().control()->dead_uses, 0);
            EXPECT_STREQ(driver().faults(), "");
        }
        stop_cuda_vmm();
    }
    void make(const std::string &text) {
        ASSERT_EQ(umfPoolCreateFromText(text.c_str(), &pool), OK) << umfTextError();
    }
    // Queues work on the memory, which has not completed until a thread waits for it: each time the
    // software driver is queried, one piece of it completes. The first piece uses all bytes.
    static void work(void *ptr, unsigned char value, size_t size, CUstream stream) {
        for (int i = 0; i < 20; i++) {
            CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr), value,
                               i ? std::min(size, SMALL) : size, stream));
        }
    }
    static bool is_all(const void *ptr, char value, size_t size) {
        std::vector<char> now(size);
        read_cuda(now.data(), ptr, size);
        return are_all(now.data(), now.size(), value);
    }
    void *make_busy(size_t size, CUstream stream) {
        void *ptr = umfPoolMallocOn(pool, size, 0, stream);
        EXPECT_NE(ptr, nullptr);
        work(ptr, 1, size, stream);
        return ptr;
    }
    // Each stream works on a half.
    void *make_busy_on_both() {
        char *ptr = static_cast<char *>(umfPoolMallocOn(pool, SMALL, 0, first));
        EXPECT_NE(ptr, nullptr);
        work(ptr, 1, SMALL / 2, first);
        work(ptr + SMALL / 2, 2, SMALL / 2, second);
        return ptr;
    }
    // Whatever the second queue gets; the oracle of the software driver looks at it.
    void is_handed_out_in_order() {
        pass(first);
        for (int i = 0; i < 4; i++) {
            umfPoolWaitPending(pool, 0, nullptr);
            void *other = umfPoolMallocOn(pool, SMALL, 0, second);
            ASSERT_NE(other, nullptr);
            if (!driver().is_real) {
                driver().handed_out(other, SMALL, second);
                driver().given_back(other, SMALL);
            }
            EXPECT_EQ(umfFree(other), OK);
        }
    }
    static void pass(CUstream stream) {
        CU(cuStreamSynchronize(stream));
    }
    static long calls() {
        long sum = 0;
        for (long each : driver().control()->calls) {
            sum += each;
        }
        return sum;
    }
};

struct Text {
    const char *pool;
};

std::ostream &operator<<(std::ostream &out, const Text &text) {
    return out << text.pool;
}

class Queue : public Queues, public testing::WithParamInterface<Text> {
  protected:
    void SetUp() override {
        Queues::SetUp();
        make(GetParam().pool);
    }
    // It keeps no records of blocks that are freed on queues: they are free.
    static bool is_arena() {
        return std::string(GetParam().pool).find("arena") != std::string::npos;
    }
};

std::vector<Text> texts() {
    std::vector<Text> list = {{"coalescing:arena=yes over cuda_vmm:device=0"},
                              {"coalescing over cuda_vmm:device=0"},
                              {"disjoint over cuda_vmm:device=0"},
                              {"proxy over cuda_vmm:device=0"},
                              {"coalescing over cuda:device=0"},
                              {"disjoint over cuda:device=0"},
                              {"proxy over cuda:device=0"}};
#if UMF_WITH_JEMALLOC
    list.push_back({"jemalloc over cuda_vmm:device=0"});
#endif
    return list;
}

} // namespace

TEST_P(Queue, UsesAgainAtOnceWhatWasFreedOnIt) {
    NEEDS_FAKE()
    if (is_arena()) {
        GTEST_SKIP() << "an arena queries the driver for the queue";
    }
    for (size_t size : {SMALL, LARGE}) {
        void *ptr = make_busy(size, first);
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        long before = calls();
        void *again = umfPoolMallocOn(pool, size, 0, first);
        EXPECT_EQ(again, ptr);
        EXPECT_EQ(umfFreeOn(again, first), OK);
        EXPECT_EQ(calls(), before) << "no call of the driver";
    }
}

TEST_P(Queue, UsesOfAnotherWhatHasPassed) {
    void *ptr = make_busy(SMALL, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    pass(first);
    void *other = umfPoolMallocOn(pool, SMALL, 0, second);
    EXPECT_EQ(other, ptr);
    EXPECT_EQ(umfFreeOn(other, second), OK);
}

TEST_P(Queue, UsesNothingSmallOfAnotherThatHasNotPassed) {
    void *ptr = make_busy(SMALL, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    void *other = umfPoolMallocOn(pool, SMALL, 0, second);
    if (!driver().is_real) {
        EXPECT_NE(other, ptr);
    }
    work(other, 2, SMALL, second);
    pass(second);
    pass(first);
    EXPECT_TRUE(is_all(other, 2, SMALL));
    EXPECT_EQ(umfFreeOn(other, second), OK);
}

TEST_P(Queue, LargeMemoryOfAnotherIsWaitedForOnTheDevice) {
    NEEDS_FAKE()
    void *ptr = make_busy(LARGE, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    void *other = umfPoolMallocOn(pool, LARGE, 0, second);
    EXPECT_EQ(other, ptr);
    EXPECT_EQ(driver().control()->calls[FAKE_cuStreamWaitEvent], 1);
    EXPECT_EQ(driver().control()->calls[FAKE_cuEventSynchronize], 0) << "the host does not wait";
    EXPECT_EQ(umfFreeOn(other, second), OK);
}

TEST_P(Queue, MemoryIsWaitedForByTheHostBeforeNone) {
    NEEDS_FAKE()
    driver().control()->device_memory[0] = held + 16 * MiB;
    std::vector<void *> all;
    while (void *ptr = umfPoolMallocOn(pool, MiB / 2, 0, first)) {
        work(ptr, 1, MiB / 2, first);
        all.push_back(ptr);
    }
    ASSERT_GE(all.size(), 4u);
    for (void *ptr : all) {
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
    }
    void *other = umfPoolMallocOn(pool, 4 * MiB, 0, second); // no block is as large
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(umfFreeOn(other, second), OK);
}

TEST_P(Queue, MemoryUsedOnAnotherQueueWaitsForBoth) {
    NEEDS_FAKE()
    if (is_arena()) {
        GTEST_SKIP() << "an arena promises no address";
    }
    void *ptr = make_busy_on_both();
    EXPECT_EQ(umfUseOn(ptr, second), OK);
    EXPECT_EQ(umfUseOn(ptr, second), OK) << "twice is as once";
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    void *other = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_NE(other, ptr) << "the second queue still uses it";
    pass(second);
    void *again = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_EQ(again, ptr);
    EXPECT_EQ(umfFreeOn(other, first), OK);
    EXPECT_EQ(umfFreeOn(again, first), OK);
}

TEST_P(Queue, BothWaysOfFreeingMix) {
    void *ptr = umfPoolMalloc(pool, SMALL);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    pass(first);
    void *again = umfPoolMallocOn(pool, SMALL, 0, first);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(umfFree(again), OK);
    void *third = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_EQ(umfPoolFree(pool, third), OK);
}

TEST_P(Queue, ASecondFreeIsRefused) {
    LogFile log;
    void *ptr = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    EXPECT_EQ(umfFreeOn(ptr, first), WRONG);
    EXPECT_EQ(umfFreeOn(ptr, second), WRONG);
    EXPECT_EQ(umfUseOn(ptr, second), WRONG);
    EXPECT_EQ(umfFree(ptr), WRONG);
    EXPECT_EQ(umfPoolFree(pool, ptr), WRONG);
    EXPECT_EQ(log.count("was freed before, on queue"), is_arena() ? 0u : 5u) << log.text();
    void *one = umfPoolMallocOn(pool, SMALL, 0, first);
    void *two = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_NE(one, two);
    EXPECT_EQ(umfFreeOn(one, first), OK);
    EXPECT_EQ(umfFreeOn(two, first), OK);
}

TEST_P(Queue, ABlockThatWasFreedWithoutAQueueIsRefused) {
    for (size_t size : {size_t{64}, 4 * KiB, SMALL, 100 * KiB, MiB, LARGE}) {
        void *ptr = umfPoolMalloc(pool, size), *kept = umfPoolMalloc(pool, size);
        ASSERT_NE(kept, nullptr) << size;
        EXPECT_EQ(umfFree(ptr), OK) << size;
        EXPECT_EQ(umfFreeOn(ptr, first), WRONG) << size;
        EXPECT_EQ(umfUseOn(ptr, first), WRONG) << size;
        void *one = umfPoolMalloc(pool, size), *two = umfPoolMallocOn(pool, size, 0, first);
        EXPECT_NE(one, two) << size << ": a block is handed out twice";
        for (void *each : {kept, one, two}) {
            EXPECT_EQ(umfFreeOn(each, first), OK) << size;
        }
    }
}

TEST_P(Queue, AnAddressInsideOfABlockIsRefused) {
    char *ptr = static_cast<char *>(umfPoolMallocOn(pool, SMALL, 0, first));
    EXPECT_EQ(umfFreeOn(ptr + 4096, first), WRONG);
    EXPECT_EQ(umfUseOn(ptr + 4096, first), WRONG);
    int local = 0;
    EXPECT_EQ(umfFreeOn(&local, first), WRONG);
    EXPECT_EQ(umfFreeOn(nullptr, first), OK);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
}

TEST_P(Queue, AQueueOfAnotherContextIsRefused) {
    NEEDS_FAKE()
    CUcontext other = nullptr;
    CUstream foreign = nullptr;
    CU(cuCtxCreate(&other, 0, 1));
    CU(cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING));
    CU(cuCtxSetCurrent(cuda_vmm_context()));
    LogFile log;
    void *ptr = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_EQ(umfPoolMallocOn(pool, SMALL, 0, foreign), nullptr);
    EXPECT_EQ(umfFreeOn(ptr, foreign), WRONG);
    EXPECT_EQ(umfUseOn(ptr, foreign), WRONG);
    EXPECT_EQ(umfPoolTrimOn(pool, 0, foreign), WRONG);
    EXPECT_EQ(log.count("is a stream of context"), 4u) << log.text();
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    CU(cuCtxSetCurrent(other));
    CU(cuStreamDestroy(foreign));
    CU(cuCtxDestroy(other));
    CU(cuCtxSetCurrent(cuda_vmm_context()));
}

TEST_P(Queue, TheEndOfAQueueLetsItsMemoryGo) {
    CUstream doomed = nullptr;
    CU(cuStreamCreate(&doomed, CU_STREAM_NON_BLOCKING));
    void *ptr = make_busy(SMALL, doomed), *live = make_busy(SMALL, doomed);
    EXPECT_EQ(umfFreeOn(ptr, doomed), OK);
    EXPECT_EQ(umfQueueEnds(doomed), OK);
    EXPECT_EQ(umfQueueEnds(doomed), OK) << "it is unknown now";
    CU(cuStreamDestroy(doomed));
    pass(first);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    void *again = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_EQ(again, ptr);
    EXPECT_EQ(umfFreeOn(again, first), OK);
    EXPECT_EQ(umfFreeOn(live, first), OK);
}

// Many programs destroy their streams first, and the driver may end a process that queries
// one.
TEST_P(Queue, APoolEndsAfterItsQueues) {
    CUstream doomed = nullptr;
    CU(cuStreamCreate(&doomed, CU_STREAM_NON_BLOCKING));
    void *ptr = make_busy(SMALL, doomed);
    EXPECT_EQ(umfFreeOn(ptr, doomed), OK);
    char *other = static_cast<char *>(make_busy(SMALL, first));
    EXPECT_EQ(umfUseOn(other, doomed), OK);
    EXPECT_EQ(umfFreeOn(other, first), OK);
    CU(cuStreamDestroy(doomed));
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    if (!driver().is_real) {
        EXPECT_EQ(driver().control()->dead_uses, 0);
        EXPECT_STREQ(driver().faults(), "") << "the destroyed stream was waited for";
    }
    make(GetParam().pool);
}

// Nothing else was freed on that queue, so its end has to mark the work of what still waits.
TEST_P(Queue, AQueueEndsWhileItsMemoryWaitsForAnother) {
    CUstream doomed = nullptr;
    CU(cuStreamCreate(&doomed, CU_STREAM_NON_BLOCKING));
    char *ptr = static_cast<char *>(make_busy(SMALL, doomed));
    EXPECT_EQ(umfUseOn(ptr, first), OK);
    EXPECT_EQ(umfFreeOn(ptr, doomed), OK);
    EXPECT_EQ(umfQueueEnds(doomed), OK);
    CU(cuStreamDestroy(doomed));
    is_handed_out_in_order();
}

TEST_P(Queue, MemoryThatAnEndedQueueUsesWaitsForIt) {
    CUstream doomed = nullptr;
    CU(cuStreamCreate(&doomed, CU_STREAM_NON_BLOCKING));
    char *ptr = static_cast<char *>(umfPoolMallocOn(pool, SMALL, 0, first));
    work(ptr, 1, SMALL, doomed);
    EXPECT_EQ(umfUseOn(ptr, doomed), OK);
    EXPECT_EQ(umfQueueEnds(doomed), OK);
    CU(cuStreamDestroy(doomed));
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    is_handed_out_in_order();
}

// The end of a queue cannot be marked then, so that only a wait for the device helps.
TEST_P(Queue, AQueueEndsWithoutAMark) {
    NEEDS_FAKE()
    for (int function : {FAKE_cuEventCreate, FAKE_cuEventRecord}) {
        CUstream doomed = nullptr;
        CU(cuStreamCreate(&doomed, CU_STREAM_NON_BLOCKING));
        EXPECT_EQ(umfFreeOn(make_busy(SMALL, doomed), doomed), OK);
        fail_call(driver().control(), function, CUDA_ERROR_OUT_OF_MEMORY, 1);
        EXPECT_EQ(umfQueueEnds(doomed), OK);
        EXPECT_EQ(driver().control()->fail_at, 0);
        CU(cuStreamDestroy(doomed));
        is_handed_out_in_order();
    }
}

TEST_P(Queue, WorkOfAContextThatCannotBeEnteredHasNotPassed) {
    NEEDS_FAKE()
    void *ptr = make_busy(SMALL, first);
    for (int i = 0; i < 100; i++) { // a query lets one piece of it pass
        work(ptr, 1, SMALL, first);
    }
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    CU(cuCtxSetCurrent(nullptr)); // so that each call has to push it
    for (long n = 1; n < 12; n++) {
        fail_call(driver().control(), FAKE_cuCtxPushCurrent, CUDA_ERROR_OUT_OF_MEMORY, n);
        void *other = umfPoolMallocOn(pool, SMALL, 0, second);
        driver().control()->fail_at = 0;
        CU(cuCtxSetCurrent(cuda_vmm_context()));
        if (other) {
            driver().handed_out(other, SMALL, second);
            driver().given_back(other, SMALL);
            EXPECT_EQ(umfFree(other), OK);
        }
        CU(cuCtxSetCurrent(nullptr));
    }
    CU(cuCtxSetCurrent(cuda_vmm_context()));
}

TEST_P(Queue, AHandleThatIsUsedAgainIsAnotherQueue) {
    CUstream doomed = nullptr, next = nullptr;
    CU(cuStreamCreate(&doomed, CU_STREAM_NON_BLOCKING));
    void *ptr = make_busy(SMALL, doomed);
    EXPECT_EQ(umfFreeOn(ptr, doomed), OK);
    EXPECT_EQ(umfQueueEnds(doomed), OK);
    CU(cuStreamDestroy(doomed));
    CU(cuStreamCreate(&next, CU_STREAM_NON_BLOCKING)); // often the same handle
    void *other = umfPoolMallocOn(pool, SMALL, 0, next);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(umfFreeOn(other, next), OK);
    EXPECT_EQ(umfQueueEnds(next), OK);
    CU(cuStreamDestroy(next));
}

TEST_P(Queue, WhatWaitsCanBeWaitedFor) {
    NEEDS_FAKE()
    size_t bytes = 1;
    EXPECT_EQ(umfPoolWaitPending(pool, 0, &bytes), OK);
    EXPECT_EQ(bytes, 0u);
    void *ptr = make_busy(SMALL, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    EXPECT_EQ(umfPoolWaitPending(pool, 0, &bytes), BUSY);
    EXPECT_GE(bytes, SMALL);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, &bytes), OK);
    EXPECT_EQ(bytes, 0u);
    void *other = umfPoolMallocOn(pool, SMALL, 0, second);
    EXPECT_EQ(other, ptr) << "it is free for every queue";
    work(other, 1, SMALL, second);
    EXPECT_EQ(umfFreeOn(other, second), OK);
    EXPECT_EQ(umfPoolWaitPending(pool, uint64_t{1} << 40, &bytes), OK) << "within some time";
}

TEST_P(Queue, ATrimGivesBackWhatHasPassed) {
    std::vector<void *> all;
    for (int i = 0; i < 4; i++) {
        all.push_back(make_busy(LARGE, first));
    }
    for (void *ptr : all) {
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
    }
    EXPECT_GE(held_cuda(), held + 4 * LARGE);
    pass(first);
    umfPoolTrimOn(pool, 0, first);
    if (!driver().is_real) {
        EXPECT_EQ(held_cuda(), held);
    }
}

TEST_P(Queue, ATrimDoesNotWait) {
    NEEDS_FAKE()
    void *ptr = make_busy(LARGE, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    umfPoolTrimOn(pool, 0, first);
    EXPECT_GE(held_cuda(), held + LARGE) << "it is in use";
    EXPECT_EQ(driver().control()->calls[FAKE_cuEventSynchronize], 0);
    pass(first);
    umfPoolTrimMemory(pool, 0);
    EXPECT_EQ(held_cuda(), held);
}

TEST_P(Queue, ThePoolWaitsForItsQueuesAtItsEnd) {
    NEEDS_FAKE()
    for (CUstream stream : {first, second}) {
        void *ptr = make_busy(LARGE, stream);
        EXPECT_EQ(umfFreeOn(ptr, stream), OK);
    }
    void *both = make_busy_on_both();
    EXPECT_EQ(umfUseOn(both, second), OK);
    EXPECT_EQ(umfFreeOn(both, first), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(driver().control()->unordered_unmaps, 0);
    make(GetParam().pool);
}

// Its record names both queues, of which the first is forgotten first.
TEST_P(Queue, APoolEndsWithMemoryThatTwoQueuesUse) {
    void *ptr = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_EQ(umfUseOn(ptr, first), OK);
    EXPECT_EQ(umfUseOn(ptr, second), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    make(GetParam().pool);
}

TEST_P(Queue, TheDefaultQueueIsAQueue) {
    if (is_arena()) {
        GTEST_SKIP() << "an arena promises no address";
    }
    for (CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
        void *ptr = umfPoolMallocOn(pool, SMALL, 0, stream);
        ASSERT_NE(ptr, nullptr);
        EXPECT_EQ(umfFreeOn(ptr, stream), OK);
        EXPECT_EQ(umfPoolMallocOn(pool, SMALL, 0, stream), ptr);
        EXPECT_EQ(umfFreeOn(ptr, stream), OK);
    }
}

// The driver puts work on the legacy default stream and work on blocking streams in order. What is
// freed on one may be used by the other, also if the one itself has nothing to do.
TEST_P(Queue, TheDefaultQueueStandsBehindBlockingOnes) {
    CUstream blocking = nullptr;
    CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    for (CUstream user : {blocking, CU_STREAM_PER_THREAD, CUstream{nullptr}}) {
        CUstream freer = user ? nullptr : blocking;
        void *ptr = umfPoolMallocOn(pool, SMALL, 0, user);
        work(ptr, 1, SMALL, user);
        EXPECT_EQ(umfFreeOn(ptr, freer), OK);
        is_handed_out_in_order();
    }
    EXPECT_EQ(umfQueueEnds(blocking), OK);
    CU(cuStreamDestroy(blocking));
}

TEST_P(Queue, TheQueueOfAThreadIsNotThatOfAnother) {
    NEEDS_FAKE()
    if (is_arena()) {
        GTEST_SKIP() << "an arena promises no address";
    }
    void *ptr = make_busy(SMALL, CU_STREAM_PER_THREAD), *other = nullptr;
    EXPECT_EQ(umfFreeOn(ptr, CU_STREAM_PER_THREAD), OK);
    std::thread([&] {
        CU(cuCtxSetCurrent(cuda_vmm_context()));
        other = umfPoolMallocOn(pool, SMALL, 0, CU_STREAM_PER_THREAD);
        CU(cuCtxSetCurrent(nullptr));
    }).join();
    EXPECT_NE(other, ptr);
    EXPECT_EQ(umfPoolMallocOn(pool, SMALL, 0, CU_STREAM_PER_THREAD), ptr);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfFree(other), OK);
}

TEST_P(Queue, AlignmentIsKept) {
    for (size_t alignment = 1; alignment <= 4 * KiB; alignment *= 2) {
        for (int i = 0; i < 2; i++) {
            void *ptr = umfPoolMallocOn(pool, 1000, alignment, first);
            ASSERT_NE(ptr, nullptr) << alignment;
            EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % alignment, 0u);
            EXPECT_EQ(umfFreeOn(ptr, first), OK);
        }
    }
    EXPECT_EQ(umfPoolMallocOn(pool, 1000, 3, first), nullptr);
}

TEST_P(Queue, EverySizeIsServed) {
    std::vector<void *> all;
    for (size_t size = 1; size < 20 * MiB; size += 1 + size / 7) {
        void *ptr = umfPoolMallocOn(pool, size, 0, first);
        ASSERT_NE(ptr, nullptr) << size;
        size_t usable = 0;
        if (umfPoolMallocUsableSize(pool, ptr, &usable) == OK) {
            EXPECT_GE(usable, size);
        }
        work(ptr, 1, size, first);
        all.push_back(ptr);
    }
    for (void *ptr : all) {
        EXPECT_EQ(umfFreeOn(ptr, second), OK);
    }
    pass(first);
}

TEST_P(Queue, AResizedBlockIsAnOrdinaryOne) {
    void *ptr = umfPoolMallocOn(pool, SMALL, 0, first);
    void *moved = umfPoolRealloc(pool, ptr, 2 * SMALL);
    if (!moved) { // a proxy pool cannot
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        return;
    }
    EXPECT_EQ(umfFreeOn(moved, first), OK);
    EXPECT_EQ(umfPoolRealloc(pool, moved, SMALL), nullptr) << "it was freed";
    void *again = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_EQ(umfPoolRealloc(pool, again, 0), nullptr);
    EXPECT_EQ(umfFreeOn(again, first), WRONG);
}

TEST_P(Queue, MemoryWithAnIpcHandleIsNotHandedOutAgain) {
    void *ptr = umfPoolMallocOn(pool, SMALL, 0, first);
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    if (umfGetIPCHandle(ptr, &handle, &size) != OK) {
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        GTEST_SKIP() << "no IPC here";
    }
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    void *other = umfPoolMallocOn(pool, SMALL, 0, first);
    EXPECT_NE(other, ptr);
    EXPECT_EQ(umfFreeOn(ptr, first), WRONG);
    EXPECT_EQ(umfFreeOn(other, first), OK);
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
}

namespace {

// Blocks that a queue has used and that an IPC handle names. A proxy pool is not among the pools:
// its blocks go back to the provider when they are freed, and their handles end.
std::vector<Text> texts_of_shared() {
    std::vector<Text> list = {{"coalescing over cuda_vmm:device=0,share=fd"},
                              {"disjoint over cuda_vmm:device=0,share=fd"},
                              {"coalescing over cuda:device=0"},
                              {"disjoint over cuda:device=0"}};
#if UMF_WITH_JEMALLOC
    list.push_back({"jemalloc over cuda_vmm:device=0,share=fd"});
#endif
    return list;
}

class QueueAndHandle : public Queue {
  protected:
    void *ptr = nullptr;
    umf_ipc_handle_t handle = nullptr;

    bool make_exported() {
        size_t size = 0;
        ptr = make_busy(SMALL, first);
        if (umfGetIPCHandle(ptr, &handle, &size) == OK) {
            return true;
        }
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        return false;
    }
    void is_refused() {
        EXPECT_EQ(umfFree(ptr), WRONG);
        EXPECT_EQ(umfPoolFree(pool, ptr), WRONG);
        EXPECT_EQ(umfFreeOn(ptr, first), WRONG);
        EXPECT_EQ(umfFreeOn(ptr, second), WRONG);
        EXPECT_EQ(umfUseOn(ptr, second), WRONG);
    }
    void is_not_handed_out() {
        void *on = umfPoolMallocOn(pool, SMALL, 0, first), *plain = umfPoolMalloc(pool, SMALL);
        EXPECT_NE(on, ptr);
        EXPECT_NE(plain, ptr);
        EXPECT_EQ(umfFreeOn(on, first), OK);
        EXPECT_EQ(umfFree(plain), OK);
    }
};

} // namespace

TEST_P(QueueAndHandle, AnOrdinaryFreeEndsTheRecordAtOnce) {
    if (!make_exported()) {
        GTEST_SKIP() << "no IPC here";
    }
    pass(first);
    EXPECT_EQ(umfFree(ptr), OK);
    is_refused();
    is_not_handed_out();
    umfPoolTrimMemory(pool, 0);
    is_refused();
    EXPECT_EQ(umfQueueEnds(first), OK); // has nothing of the block any more
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
    is_refused();
    size_t bytes = 1;
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, &bytes), OK);
    EXPECT_EQ(bytes, 0u);
}

TEST_P(QueueAndHandle, AFreeOnAQueueWaitsForTheQueueAndThenForTheHandle) {
    if (!make_exported()) {
        GTEST_SKIP() << "no IPC here";
    }
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    is_refused();
    is_not_handed_out();
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    is_refused();
    umfPoolTrimMemory(pool, 0);
    is_refused();
    is_not_handed_out();
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
    umfPoolTrimMemory(pool, 0);
    is_refused();
}

TEST_P(QueueAndHandle, AResizeMovesTheBlockAndKeepsTheOldOne) {
    if (!make_exported()) {
        GTEST_SKIP() << "no IPC here";
    }
    pass(first);
    void *moved = umfPoolRealloc(pool, ptr, 4 * SMALL);
    if (moved) {
        EXPECT_NE(moved, ptr);
        EXPECT_TRUE(is_all(moved, 1, SMALL));
        is_refused();
        is_not_handed_out();
        EXPECT_EQ(umfFreeOn(moved, first), OK);
    } else { // the pool cannot: nothing has changed
        EXPECT_EQ(umfUseOn(ptr, second), OK);
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
    }
    is_refused();
    EXPECT_EQ(umfPutIPCHandle(handle), OK);
}

namespace {

// A capture of the first stream in each mode, around the calls of the test. The graph is run if it
// came to one.
class QueueOfGraph : public Queue {
  protected:
    void captured(CUstreamCaptureMode mode, const std::function<void()> &body) {
        CUgraph graph = nullptr;
        CUgraphExec ready = nullptr;
        ASSERT_EQ(driver().cuStreamBeginCapture(first, mode), CUDA_SUCCESS);
        body();
        ASSERT_EQ(driver().cuStreamEndCapture(first, &graph), CUDA_SUCCESS) << "mode " << mode;
        CU(cuGraphInstantiateWithFlags(&ready, graph, 0));
        CU(cuGraphLaunch(ready, first));
        CU(cuStreamSynchronize(first));
        CU(cuGraphExecDestroy(ready));
        CU(cuGraphDestroy(graph));
    }
    void in_each_mode(const std::function<void()> &body) {
        for (CUstreamCaptureMode mode :
             {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
              CU_STREAM_CAPTURE_MODE_RELAXED}) {
            captured(mode, body);
        }
    }
    static void set(void *ptr, size_t size, CUstream stream) {
        CU(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(ptr), 1, size, stream));
    }
};

} // namespace

TEST_P(QueueOfGraph, UsesAgainInTheCaptureWhatWasFreedInIt) {
    in_each_mode([&] {
        for (size_t size : {SMALL, LARGE}) {
            void *ptr = umfPoolMallocOn(pool, size, 0, first);
            ASSERT_NE(ptr, nullptr);
            set(ptr, size, first);
            EXPECT_EQ(umfFreeOn(ptr, first), OK);
            EXPECT_EQ(umfPoolMallocOn(pool, size, 0, first), ptr);
            set(ptr, size, first);
            EXPECT_EQ(umfFreeOn(ptr, first), OK);
        }
    });
}

// The pool grows and gives back for the captured stream, which was not announced.
TEST_P(QueueOfGraph, GrowsAndTrimsInTheCapture) {
    in_each_mode([&] {
        std::vector<void *> all;
        for (size_t size = 100; size <= 16 * MiB; size *= 4) {
            all.push_back(umfPoolMallocOn(pool, size, 0, first));
            ASSERT_NE(all.back(), nullptr);
            set(all.back(), size, first);
        }
        for (void *ptr : all) {
            EXPECT_EQ(umfFreeOn(ptr, first), OK);
        }
        EXPECT_NE(umfPoolTrimOn(pool, 0, first), BUSY);
        EXPECT_EQ(umfPoolWaitPending(pool, 0, nullptr), BUSY) << "its work has not run";
    });
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
}

TEST_P(QueueOfGraph, KeepsWhatWasFreedInTheCaptureUntilItsEnd) {
    in_each_mode([&] {
        void *ptr = umfPoolMallocOn(pool, LARGE, 0, first);
        set(ptr, LARGE, first);
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        void *other = umfPoolMallocOn(pool, LARGE, 0, second);
        EXPECT_NE(other, ptr) << "nothing is stolen from it";
        EXPECT_EQ(umfFreeOn(other, second), OK);
    });
}

TEST_P(QueueOfGraph, GetsInTheCaptureOnlyWhatNeedsNoWait) {
    NEEDS_FAKE()
    in_each_mode([&] {
        void *busy = make_busy(LARGE, second);
        EXPECT_EQ(umfFreeOn(busy, second), OK);
        void *ptr = umfPoolMallocOn(pool, LARGE, 0, first);
        EXPECT_EQ(driver().control()->calls[FAKE_cuStreamWaitEvent], 0) << "in the graph";
        set(ptr, LARGE, first);
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
    });
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
}

// Each graph has a pool, which lives as long.
TEST_P(QueueOfGraph, HasAPoolOfItsOwn) {
    umf_memory_pool_handle_t of_graph = nullptr;
    ASSERT_EQ(umfPoolCreateFromText(GetParam().pool, &of_graph), OK);
    CUgraph graph = nullptr;
    CUgraphExec ready = nullptr;
    CU(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    void *ptr = umfPoolMallocOn(of_graph, SMALL, 0, first);
    set(ptr, SMALL, first);
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    CU(cuStreamEndCapture(first, &graph));
    CU(cuGraphInstantiateWithFlags(&ready, graph, 0));
    for (int i = 0; i < 3; i++) {
        CU(cuGraphLaunch(ready, first));
        void *other = make_busy(SMALL, first);
        EXPECT_NE(other, ptr) << "another pool's memory";
        EXPECT_EQ(umfFreeOn(other, first), OK);
    }
    CU(cuStreamSynchronize(first));
    CU(cuGraphExecDestroy(ready));
    CU(cuGraphDestroy(graph));
    EXPECT_EQ(umfPoolDestroy(of_graph), OK);
}

TEST_P(Queue, ASuspendedPoolTakesFrees) {
    void *ptr = make_busy(SMALL, first), *kept = make_busy(SMALL, first);
    pass(first);
    if (umfPoolsSuspend(&pool, 1, nullptr, nullptr) != OK) {
        EXPECT_EQ(umfFreeOn(ptr, first), OK);
        EXPECT_EQ(umfFreeOn(kept, first), OK);
        GTEST_SKIP() << "no suspend here";
    }
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    EXPECT_EQ(umfPoolMallocOn(pool, SMALL, 0, first), nullptr);
    EXPECT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfPoolMallocOn(pool, SMALL, 0, first), ptr);
    EXPECT_TRUE(is_all(kept, 1, SMALL));
    EXPECT_EQ(umfFreeOn(ptr, first), OK);
    EXPECT_EQ(umfFreeOn(kept, first), OK);
}

namespace {

std::string name_of(const testing::TestParamInfo<Text> &each) {
    std::string name = each.param.pool;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
    return name;
}

} // namespace

INSTANTIATE_TEST_SUITE_P(All, Queue, testing::ValuesIn(texts()), name_of);
INSTANTIATE_TEST_SUITE_P(All, QueueAndHandle, testing::ValuesIn(texts_of_shared()), name_of);
INSTANTIATE_TEST_SUITE_P(All, QueueOfGraph, testing::ValuesIn(texts()), name_of);

TEST_F(Queues, ASuspendKeepsNothingThatWasFreed) {
    make("proxy over cuda_vmm:device=0");
    void *freed = umfPoolMallocOn(pool, LARGE, 0, first);
    void *kept = umfPoolMallocOn(pool, LARGE, 0, first);
    EXPECT_EQ(umfFreeOn(freed, first), OK);
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    ASSERT_EQ(umfPoolsSuspend(&pool, 1, nullptr, &report), OK);
    EXPECT_EQ(report.kept, LARGE);
    ASSERT_EQ(umfPoolsResume(&pool, 1, nullptr, nullptr), OK);
    EXPECT_EQ(umfFreeOn(kept, first), OK);
}

TEST_F(Queues, AreNotLookedAtByOrdinaryMemory) {
    make("disjoint over os");
    LogFile log;
    void *ptr = umfPoolMallocOn(pool, 1000, 64, nullptr);
    ASSERT_NE(ptr, nullptr);
    EXPECT_EQ(umfUseOn(ptr, nullptr), OK);
    EXPECT_EQ(umfFreeOn(ptr, first), NONE);
    EXPECT_EQ(umfUseOn(ptr, first), NONE);
    EXPECT_EQ(umfPoolMallocOn(pool, 1000, 0, first), nullptr);
    EXPECT_EQ(umfPoolTrimOn(pool, 0, first), NONE);
    EXPECT_EQ(log.count("its provider has no queues"), 4u) << log.text();
    EXPECT_EQ(umfPoolTrimOn(pool, 0, nullptr), OK);
    EXPECT_EQ(umfPoolWaitPending(pool, UINT64_MAX, nullptr), OK);
    EXPECT_EQ(umfFreeOn(ptr, nullptr), OK);
}

TEST_F(Queues, RefuseWhatIsNoPool) {
    make("disjoint over os");
    EXPECT_EQ(umfPoolMallocOn(nullptr, 1, 0, first), nullptr);
    EXPECT_EQ(umfPoolTrimOn(nullptr, 0, first), WRONG);
    EXPECT_EQ(umfPoolWaitPending(nullptr, 0, nullptr), WRONG);
}
