// Events of a recorded pool: every allocation and every free once, whichever function makes it,
// and nothing else; and nothing any more when the record ends.

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/memory_pool_ext.h>
#include <umf/plugin.h>
#include <umf/queue.h>
#include <umf/record_format.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/current_free.h"
#include "fakes/fake_provider.h"
#include "fakes/kinds.h"

extern "C" {
#include "object/event.h"
#include "object/recorded.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

// The events, as a reader would replay them.
struct Story {
    std::mutex mutex;
    std::map<uint64_t, uint64_t> live; // address to size
    size_t events = 0, allocs = 0, frees = 0, refused = 0, odd = 0;
    std::map<uint64_t, uint64_t> last; // by address: the size that the last free took away
    std::map<int, size_t> kinds;

    void add(const umf_event_t &seen) {
        std::lock_guard<std::mutex> guard(mutex);
        events++;
        kinds[seen.kind]++;
        if (seen.kind == UMF_RECORD_ALLOC) {
            allocs++;
            odd += !live.emplace(seen.address, seen.size).second;
        } else if (seen.kind == UMF_RECORD_FREE) {
            frees++;
            auto at = live.find(seen.address);
            if (at != live.end()) {
                last[seen.address] = at->second;
                live.erase(at);
            } else {
                last.erase(seen.address);
                odd++;
            }
        } else if (seen.kind == UMF_RECORD_FREE_REFUSED) {
            auto at = last.find(seen.address);
            if (at != last.end()) {
                live[seen.address] = at->second;
            } else {
                odd--; // there was none
            }
        } else if (seen.kind == UMF_RECORD_REFUSED) {
            refused++;
        }
    }
};

Story *story;

void note_event(const umf_event_t *seen) {
    if (seen->pool && seen->kind != UMF_RECORD_PROVIDER_ALLOC &&
        seen->kind != UMF_RECORD_PROVIDER_FREE) {
        story->add(*seen);
    }
}

class Recorded : public testing::TestWithParam<PoolKind> {
  protected:
    Story seen;
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        story = &seen;
        static const umf_memory_provider_ops_t ops = FakeProvider::table();
        ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    }
    void TearDown() override {
        umf_event_listen(nullptr);
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.live(), 0u);
    }
    void make(umf_pool_create_flags_t flags = 0) {
        ASSERT_EQ(umfPoolCreate(GetParam().ops(), provider, nullptr, flags, &pool), OK);
    }
    void begin() {
        umf_event_listen(note_event);
        umf_recorded_begin(pool);
    }
    // Fills the caches of the thread, and empties none of them.
    void warm_up() {
        std::vector<void *> live;
        for (size_t size : {8, 64, 1000, 20000}) {
            for (int i = 0; i < 200; i++) {
                live.push_back(umfPoolMalloc(pool, size));
            }
        }
        for (void *ptr : live) {
            ASSERT_EQ(umfFree(ptr), OK);
        }
    }
};

constexpr size_t SIZES[] = {8, 64, 1000, 20000, size_t(3) << 20};

TEST_P(Recorded, TellsEachAllocationAndFreeOnce) {
    make();
    warm_up();
    begin();
    size_t n = 0;
    for (size_t size : SIZES) {
        for (int i = 0; i < 300; i++, n++) {
            void *ptr = umfPoolMalloc(pool, size);
            ASSERT_NE(ptr, nullptr);
            ASSERT_EQ(seen.allocs, n + 1) << size;
            ASSERT_EQ(seen.live.at(uint64_t(ptr)), size);
            ASSERT_EQ(i % 2 ? umfFree(ptr) : umfPoolFree(pool, ptr), OK);
            ASSERT_EQ(seen.frees, n + 1) << size;
        }
    }
    EXPECT_TRUE(seen.live.empty());
    EXPECT_EQ(seen.odd, 0u);
}

TEST_P(Recorded, TellsOfEveryEntrance) {
    size_t not_moved = 0;
    make();
    warm_up();
    begin();
    for (size_t size : SIZES) {
        void *aligned = umfPoolAlignedMalloc(pool, size, 64);
        if (aligned) {
            EXPECT_EQ(seen.live.at(uint64_t(aligned)), size);
            EXPECT_EQ(umfFree(aligned), OK);
        }
        void *zero = umfPoolCalloc(pool, 2, size);
        if (zero) {
            EXPECT_EQ(seen.live.at(uint64_t(zero)), 2 * size);
            void *moved = umfPoolRealloc(pool, zero, 5 * size);
            if (moved) {
                EXPECT_EQ(seen.live.at(uint64_t(moved)), 5 * size);
                EXPECT_EQ(seen.live.size(), 1u);
                EXPECT_EQ(umfPoolRealloc(pool, moved, 0), nullptr);
            } else {
                not_moved++;
                EXPECT_EQ(seen.live.at(uint64_t(zero)), 2 * size) << "it is still there";
                EXPECT_EQ(umfFree(zero), OK);
            }
        }
        void *ptr = umfPoolMalloc(pool, size);
        ASSERT_NE(ptr, nullptr);
        if (!umfPoolTryFree(pool, ptr)) {
            EXPECT_EQ(seen.live.at(uint64_t(ptr)), size);
            EXPECT_EQ(umfFree(ptr), OK);
        }
        ptr = umfPoolMalloc(pool, size);
        ASSERT_NE(ptr, nullptr);
        EXPECT_TRUE(current_free(pool, ptr) || umfFree(ptr) == OK);
        EXPECT_TRUE(seen.live.empty()) << size;
    }
    EXPECT_EQ(seen.kinds[UMF_RECORD_FREE_REFUSED], not_moved) << "a try is no wrong free";
    EXPECT_EQ(seen.odd, 0u);
}

TEST_P(Recorded, TellsOfFreesOfWhatWasAllocatedBefore) {
    make();
    std::vector<void *> live;
    for (size_t size : SIZES) {
        for (int i = 0; i < 20; i++) {
            live.push_back(umfPoolMalloc(pool, size));
        }
    }
    warm_up();
    begin();
    for (void *ptr : live) {
        ASSERT_EQ(umfFree(ptr), OK);
    }
    EXPECT_EQ(seen.frees, live.size());
    EXPECT_EQ(seen.odd, live.size()) << "their allocations were not recorded";
}

TEST_P(Recorded, TellsOfRefusals) {
    make();
    begin();
    size_t size = size_t(5) << 20;
    fake.limit = 0;
    EXPECT_EQ(umfPoolMalloc(pool, size), nullptr);
    EXPECT_EQ(seen.refused, 1u);
    EXPECT_GE(seen.kinds[UMF_RECORD_PROVIDER_REFUSED], 1u);
    fake.limit = SIZE_MAX;
    EXPECT_EQ(umfPoolFree(pool, &fake), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(seen.live.empty());
    EXPECT_EQ(seen.odd, 0u);
}

TEST_P(Recorded, FreesThatAreRefusedAreTakenBack) {
    make();
    begin();
    void *ptr = umfPoolMalloc(pool, 100);
    ASSERT_NE(ptr, nullptr);
    if (!GetParam().is_built_on) { // which do not check
        EXPECT_NE(umfFree(static_cast<char *>(ptr) + 3), OK);
        EXPECT_EQ(seen.live.count(uint64_t(ptr)), 1u);
    }
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_TRUE(seen.live.empty());
    EXPECT_EQ(seen.odd, 0u);
}

TEST_P(Recorded, TellsNothingAfterTheEnd) {
    make();
    warm_up();
    begin();
    warm_up();
    size_t events = seen.events;
    EXPECT_GT(events, 0u);
    umf_recorded_end(pool);
    warm_up();
    EXPECT_EQ(seen.events, events);
    begin();
    warm_up();
    EXPECT_EQ(seen.events, 2 * events);
}

TEST_P(Recorded, ThreadsWithFullCachesTellToo) {
    make();
    std::atomic<int> ready{0};
    std::atomic<bool> is_begun{false};
    std::vector<std::thread> threads;
    constexpr int COUNT = 4, ROUNDS = 2000;
    for (int t = 0; t < COUNT; t++) {
        threads.emplace_back([&] {
            warm_up();
            ready++;
            while (!is_begun) {
                std::this_thread::yield();
            }
            for (int i = 0; i < ROUNDS; i++) {
                void *ptr = umfPoolMalloc(pool, SIZES[i % 3]);
                EXPECT_EQ(umfFree(ptr), OK);
            }
        });
    }
    while (ready < COUNT) {
        std::this_thread::yield();
    }
    begin();
    is_begun = true;
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(seen.allocs, size_t(COUNT) * ROUNDS);
    EXPECT_EQ(seen.frees, size_t(COUNT) * ROUNDS);
    EXPECT_TRUE(seen.live.empty());
    EXPECT_EQ(seen.odd, 0u);
}

TEST_P(Recorded, BeginsAndEndsBesideThreads) {
    make();
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++) {
        threads.emplace_back([&, t] {
            std::vector<void *> live(200);
            for (int i = 0; !is_over; i++) {
                void *&at = live[size_t(i) * 7 % live.size()];
                if (at) {
                    EXPECT_EQ(umfFree(at), OK);
                }
                at = umfPoolMalloc(pool, SIZES[size_t(i + t) % 4]);
                EXPECT_NE(at, nullptr);
            }
            for (void *ptr : live) {
                if (ptr) {
                    EXPECT_EQ(umfFree(ptr), OK);
                }
            }
        });
    }
    umf_event_listen(note_event);
    for (int round = 0; round < 200; round++) {
        umf_recorded_begin(pool);
        umf_recorded_end(pool);
    }
    is_over = true;
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(alloc_count(pool), 0u);
}

TEST_P(Recorded, WithoutTracking) {
    make(UMF_POOL_CREATE_FLAG_DISABLE_TRACKING);
    begin();
    for (size_t size : SIZES) {
        void *ptr = umfPoolMalloc(pool, size);
        ASSERT_NE(ptr, nullptr);
        EXPECT_EQ(seen.live.at(uint64_t(ptr)), size);
        EXPECT_EQ(umfPoolFree(pool, ptr), OK);
    }
    EXPECT_TRUE(seen.live.empty());
    EXPECT_EQ(seen.odd, 0u);
}

TEST_P(Recorded, ATrimIsToldWithWhatItHeld) {
    make();
    warm_up();
    begin();
    umfPoolTrimMemory(pool, 0);
    EXPECT_EQ(seen.kinds[UMF_RECORD_TRIM], 1u);
    EXPECT_EQ(seen.allocs + seen.frees, 0u);
}

INSTANTIATE_TEST_SUITE_P(Each, Recorded, testing::ValuesIn(pool_kinds()),
                         [](const auto &param) { return std::string(param.param.id); });

// --- beside what else diverts a pool ---

void make_over(const char *text, umf_memory_provider_handle_t *provider,
               umf_memory_pool_handle_t *pool) {
    ASSERT_EQ(umfMemoryProviderCreateFromText(text, provider), OK);
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), *provider, nullptr, 0, pool), OK);
}

struct RecordedBeside : testing::Test {
    Story seen;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        story = &seen;
    }
    void TearDown() override {
        umf_event_listen(nullptr);
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(seen.odd, 0u);
    }
};

TEST_F(RecordedBeside, AHoldThatBeginsAndEndsWhileItIsRecorded) {
    make_over("os:visibility=shared", &provider, &pool);
    umf_event_listen(note_event);
    for (bool first : {true, false}) { // the record begins before the hold, and after it
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        if (first) {
            umf_recorded_begin(pool);
        }
        void *ptr = umfPoolMalloc(pool, 100);
        ASSERT_EQ(umfGetIPCHandle(ptr, &handle, &size), OK);
        umf_recorded_begin(pool);
        size_t frees = seen.frees;
        EXPECT_EQ(umfFree(ptr), OK) << "it is set aside";
        EXPECT_EQ(seen.frees, frees + 1) << "of the free of the user";
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
        EXPECT_LE(seen.frees, frees + 1) << "the put is none";
        void *other = umfPoolMalloc(pool, 100);
        frees = seen.frees;
        EXPECT_EQ(umfFree(other), OK);
        EXPECT_EQ(seen.frees, frees + 1);
        umf_recorded_end(pool);
    }
    seen.odd = 0;
}

TEST_F(RecordedBeside, ASuspend) {
    make_over("linux_vmm", &provider, &pool);
    void *before = umfPoolMalloc(pool, 100);
    umf_suspend_params_t params = UMF_SUSPEND_PARAMS_INIT;
    for (bool sleeps_first : {true, false}) {
        umf_event_listen(note_event);
        if (!sleeps_first) {
            umf_recorded_begin(pool);
        }
        ASSERT_EQ(umfPoolsSuspend(&pool, 1, &params, nullptr), OK);
        umf_recorded_begin(pool);
        EXPECT_EQ(umfPoolMalloc(pool, 100), nullptr);
        ASSERT_EQ(umfPoolsResume(&pool, 1, &params, nullptr), OK);
        void *ptr = umfPoolMalloc(pool, 100);
        ASSERT_NE(ptr, nullptr);
        EXPECT_EQ(seen.live.count(uint64_t(ptr)), 1u);
        EXPECT_EQ(umfFree(ptr), OK);
        EXPECT_TRUE(seen.live.empty());
        umf_recorded_end(pool);
        size_t events = seen.events;
        EXPECT_EQ(umfFree(umfPoolMalloc(pool, 100)), OK);
        EXPECT_EQ(seen.events, events);
    }
    EXPECT_EQ(seen.kinds[UMF_RECORD_SUSPEND], 2u);
    EXPECT_EQ(seen.kinds[UMF_RECORD_RESUME], 2u);
    EXPECT_EQ(umfFree(before), OK);
}

// --- queues ---

const umf_memory_provider_ops_t &queue_ops() {
    static const umf_memory_provider_ops_t ops = FakeProvider::table();
    static const umf_memory_provider_ext_ops_t ext = [] {
        umf_memory_provider_ext_ops_t made = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
        made.queue_mark = [](void *, void *, void **mark) {
            *mark = nullptr; // all has passed
            return OK;
        };
        made.mark_wait = [](void *, void *, int) { return 1; };
        return made;
    }();
    static const umf_memory_provider_descriptor_t kind = {
        sizeof(kind), "with_quick_queues", &ops, &ext, nullptr, nullptr, nullptr};
    static const umf_result_t registered = umfRegisterProvider(&kind);
    EXPECT_EQ(registered, OK);
    return ops;
}

TEST(RecordedQueue, TellsOfCallsOnQueuesOnce) {
    FakeProvider fake;
    Story seen;
    story = &seen;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    int first, second;
    ASSERT_EQ(umfMemoryProviderCreate(&queue_ops(), &fake, &provider), OK);
    ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, nullptr, 0, &pool), OK);
    umf_event_listen(note_event);
    for (bool again : {false, true}) {
        umf_recorded_begin(pool);
        for (size_t size : SIZES) {
            for (int i = 0; i < 50; i++) {
                void *ptr = umfPoolMallocOn(pool, size, 0, &first);
                ASSERT_NE(ptr, nullptr);
                ASSERT_EQ(seen.live.at(uint64_t(ptr)), size);
                ASSERT_EQ(umfFreeOn(ptr, i % 2 ? &first : &second), OK);
                ASSERT_TRUE(seen.live.empty());
            }
        }
        void *ptr = umfPoolMallocOn(pool, 100, 0, &first);
        EXPECT_EQ(umfFree(ptr), OK);
        umfPoolWaitPending(pool, UINT64_MAX, nullptr);
        umfPoolTrimMemory(pool, 0);
        EXPECT_TRUE(seen.live.empty());
        EXPECT_EQ(seen.allocs, seen.frees) << again;
        umf_recorded_end(pool);
    }
    EXPECT_EQ(seen.odd, 0u);
    umf_event_listen(nullptr);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    EXPECT_EQ(fake.mistakes, 0u);
}

} // namespace
