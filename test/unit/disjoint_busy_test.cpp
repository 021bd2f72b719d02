/* Bins of the disjoint pool that give back many slabs: these wait in magazines, if the provider
 * would keep them anyway. */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/plugin.h>
#include <umf/pools/pool_disjoint.h>

#include "fakes/blocks.h"
#include "fakes/decay_period.h"
#include "fakes/fake_provider.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fault.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t KiB = 1024, MiB = KiB * KiB;
constexpr size_t SLAB = 64 * KiB;
constexpr size_t CAPACITY = 4; // of a pool by default
constexpr size_t BUSY = 64;    // slabs given back, until others wait
constexpr size_t STACK = 4;    // of those that wait, a thread has so many at hand

// A fake provider that accepts memory for reuse, and keeps none.
class Reusing : public FakeProvider {
  public:
    std::atomic<size_t> reuse_allocs{0}, reuse_frees{0};

    umf_memory_provider_handle_t create() {
        static const umf_result_t registered = umfRegisterProvider(&kind());
        EXPECT_EQ(registered, OK);
        umf_memory_provider_handle_t provider = nullptr;
        FakeProvider *fake = this;
        EXPECT_EQ(umfMemoryProviderCreate(kind().ops, fake, &provider), OK);
        return provider;
    }

  private:
    static Reusing *self(void *provider) {
        return static_cast<Reusing *>(static_cast<FakeProvider *>(provider));
    }
    static umf_result_t reuse_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
        self(provider)->reuse_allocs++;
        return kind().ops->alloc(provider, size, alignment, ptr);
    }
    static umf_result_t reuse_free(void *provider, void *ptr, size_t size) {
        self(provider)->reuse_frees++;
        return kind().ops->free(provider, ptr, size);
    }
    static umf_result_t reuse_drop(void *, int) {
        return OK;
    }
    static const umf_memory_provider_descriptor_t &kind() {
        static const umf_memory_provider_ops_t ops = table();
        static const umf_memory_provider_ext_ops_t ext = [] {
            umf_memory_provider_ext_ops_t made = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
            made.reuse_alloc = reuse_alloc;
            made.reuse_free = reuse_free;
            made.reuse_drop = reuse_drop;
            return made;
        }();
        static const umf_memory_provider_descriptor_t descriptor =
            plain_kind("disjoint_busy_test", &ops, &ext);
        return descriptor;
    }
};

class Busy : public testing::Test {
  protected:
    DecayPeriod endless{DecayPeriod::ENDLESS};
    Reusing fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_disjoint_pool_params_handle_t params = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        ASSERT_EQ(umfDisjointPoolParamsCreate(&params), OK);
    }
    void create(bool can_reuse = true) {
        provider = can_reuse ? fake.create() : fake.FakeProvider::create();
        ASSERT_EQ(umfPoolCreate(umfDisjointPoolOps(), provider, params, 0, &pool), OK);
    }
    void destroy() {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        pool = nullptr;
        provider = nullptr;
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    void TearDown() override {
        destroy();
        EXPECT_EQ(umfDisjointPoolParamsDestroy(params), OK);
    }
    std::vector<void *> alloc(size_t n, size_t size = SLAB) {
        return alloc_blocks(pool, n, size);
    }
    void free(const std::vector<void *> &list) {
        free_blocks(pool, list);
    }
    void alloc_and_free(size_t n, size_t size = SLAB) {
        free(alloc(n, size));
    }
    // Slabs the provider gets back when so many are freed at once.
    size_t frees_of(size_t n, size_t size = SLAB) {
        auto list = alloc(n, size);
        size_t before = fake.frees;
        free(list);
        return fake.frees - before;
    }
    // After this slabs of that size wait, but none does so far.
    void make_busy(size_t size = SLAB) {
        alloc_and_free(CAPACITY + BUSY, size);
        EXPECT_EQ(fake.live(), CAPACITY);
    }
    // As many as the provider has memory for.
    std::vector<void *> alloc_all(size_t size) {
        std::vector<void *> list;
        while (void *p = umfPoolMalloc(pool, size)) {
            list.push_back(p);
        }
        return list;
    }
    size_t read(const char *path) {
        size_t value = SIZE_MAX;
        std::string full = std::string("umf.pool.by_handle.{}.stats.") + path;
        EXPECT_EQ(umfCtlGet(full.c_str(), &value, sizeof(value), pool), OK) << path;
        return value;
    }
};

TEST_F(Busy, TheFirstOnesGoBackAtOnce) {
    for (size_t n : {CAPACITY, CAPACITY + 1, CAPACITY + BUSY - 1, CAPACITY + BUSY}) {
        create();
        EXPECT_EQ(frees_of(n), n - CAPACITY);
        EXPECT_EQ(fake.live(), CAPACITY);
        EXPECT_EQ(fake.reuse_allocs, fake.allocs);
        EXPECT_EQ(fake.reuse_frees, fake.frees);
        destroy();
    }
}

TEST_F(Busy, TheOthersWait) {
    create();
    EXPECT_EQ(frees_of(200), BUSY);
    EXPECT_EQ(frees_of(200), 0u);
    size_t allocs = fake.allocs, frees = fake.frees;
    for (size_t i = 0; i < 20; i++) {
        alloc_and_free(200);
    }
    EXPECT_EQ(fake.allocs, allocs);
    EXPECT_EQ(fake.frees, frees);
    EXPECT_EQ(fake.live(), 200u);
}

TEST_F(Busy, EachSizeIsBusyByItself) {
    create();
    for (size_t size : {48 * KiB, 96 * KiB, 512 * KiB, MiB}) {
        size_t before = fake.live();
        EXPECT_EQ(frees_of(100, size), BUSY) << size;
        EXPECT_EQ(fake.live() - before, 100 - BUSY);
    }
    size_t before = fake.frees;
    alloc_and_free(1, 3 * MiB);
    EXPECT_EQ(fake.frees, before + 1) << "a provider allocation of its own";
}

TEST_F(Busy, WaitingSlabsAreFree) {
    create();
    make_busy();
    OtherThread other;
    auto list = alloc(40), live = alloc(3);
    EXPECT_EQ(read("alloc_count"), 43u);
    std::vector<void *> half(list.begin(), list.begin() + 20);
    free(half);
    other([&] { free({list.begin() + 20, list.end()}); });
    EXPECT_EQ(fake.live(), 43u);
    EXPECT_EQ(read("alloc_count"), 3u);
    EXPECT_EQ(read("used_memory"), 3 * SLAB);
    for (void *p : list) {
        size_t size = 1;
        EXPECT_EQ(umfPoolFree(pool, p), BAD);
        other([&] { EXPECT_EQ(umfFree(p), BAD); });
        EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &size), BAD);
        EXPECT_EQ(umfPoolFree(pool, static_cast<char *>(p) + 64), BAD);
    }
    EXPECT_EQ(umfPoolFree(pool, static_cast<char *>(live[0]) + 64), BAD);
    free(live);
    EXPECT_EQ(read("alloc_count"), 0u);
    EXPECT_EQ(read("used_memory"), 0u);
    EXPECT_EQ(fake.live(), 43u);
    EXPECT_LE(read("reserved_memory"), (CAPACITY + STACK) * SLAB) << "all that can be settled";
}

TEST_F(Busy, WhatWaitsIsHandedOutOnce) {
    create();
    make_busy();
    OtherThread other;
    auto list = alloc(200);
    std::vector<void *> some(list.begin() + 100, list.end());
    list.resize(100);
    free(list);
    other([&] { free(some); });
    list.insert(list.end(), some.begin(), some.end());
    size_t allocs = fake.allocs;
    auto again = alloc(100);
    other([&] { some = alloc(90); });
    again.insert(again.end(), some.begin(), some.end());
    std::sort(list.begin(), list.end());
    std::sort(again.begin(), again.end());
    EXPECT_EQ(std::unique(again.begin(), again.end()), again.end());
    EXPECT_TRUE(std::includes(list.begin(), list.end(), again.begin(), again.end()));
    EXPECT_EQ(fake.allocs, allocs);
    free(again);
}

// Their slabs remember where the allocation begins; they wait like the others when they are used
// without.
TEST_F(Busy, AlignedOnes) {
    constexpr size_t SIZE = 192 * KiB; // 64 KiB at multiples of 128 KiB need as much
    create();
    make_busy(SIZE);
    for (size_t i = 0; i < 3; i++) {
        auto list = alloc(30, SIZE);
        for (size_t n = 0; n < 30; n++) {
            list.push_back(umfPoolAlignedMalloc(pool, 64 * KiB, 128 * KiB));
            ASSERT_NE(list.back(), nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(list.back()) % (128 * KiB), 0u);
        }
        EXPECT_EQ(read("alloc_count"), 60u);
        free(list);
        for (void *p : list) {
            EXPECT_EQ(umfPoolFree(pool, p), BAD);
        }
        EXPECT_EQ(read("alloc_count"), 0u);
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_F(Busy, WithoutMetadataNothingIsLost) {
    for (fault::Nth nth("meta_alloc"); nth.next();) {
        nth.off();
        create();
        make_busy();
        umf_os_set_fault(fault::hook);
        std::vector<void *> list;
        for (size_t i = 0; i < 40; i++) {
            list.push_back(umfPoolMalloc(pool, SLAB));
        }
        OtherThread()([&] { free({list.begin(), list.begin() + 3}); });
        OtherThread()([&] { free({list.begin() + 3, list.end()}); });
        nth.off();
        EXPECT_EQ(read("used_memory"), 0u);
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(fake.live(), 0u);
        destroy();
    }
}

// --- between threads ---

TEST_F(Busy, WhatOneFreesAnotherAllocates) {
    create();
    OtherThread other;
    auto round = [&] {
        auto list = alloc(100);
        other([&] { free(list); });
    };
    for (size_t i = 0; i < 5; i++) {
        round();
    }
    size_t allocs = fake.allocs, frees = fake.frees;
    for (size_t i = 0; i < 50; i++) {
        round();
    }
    EXPECT_EQ(fake.allocs, allocs);
    EXPECT_EQ(fake.frees, frees);
}

TEST_F(Busy, AnEndedThreadLeavesItsSlabs) {
    create();
    std::thread([&] {
        make_busy();
        alloc_and_free(150);
    }).join();
    EXPECT_EQ(fake.live(), 150u);
    EXPECT_EQ(read("used_memory"), 0u);
    size_t allocs = fake.allocs;
    alloc_and_free(150);
    EXPECT_EQ(fake.allocs, allocs);
}

// --- going back ---

TEST_F(Busy, TrimGivesAllBack) {
    create();
    OtherThread other;
    make_busy();
    auto list = alloc(200);
    free(list);
    EXPECT_EQ(fake.live(), 200u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
    EXPECT_EQ(frees_of(10), 10 - CAPACITY) << "not busy any more";
    alloc_and_free(CAPACITY + BUSY);
    EXPECT_EQ(frees_of(100), 0u) << "busy again";
    list = alloc(100);
    other([&] { free(list); });
    EXPECT_EQ(umfPoolTrimMemory(pool, 20 * SLAB), OK);
    EXPECT_LE(fake.live(), CAPACITY + STACK) << "and what lies in the stack of another thread";
}

// A thread whose stack was not reached gives it back when it uses the pool again.
TEST_F(Busy, TrimIsFollowedByOtherThreads) {
    create();
    OtherThread other;
    other([&] { make_busy(); });
    other([&] { alloc_and_free(100); });
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_LE(fake.live(), STACK + 1) << "and one is parked";
    other([&] { alloc_and_free(1, 64); });
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_LE(fake.live(), 1u) << "the slab of small chunks";
}

TEST_F(Busy, DestroyGivesAllBack) {
    create();
    OtherThread other;
    make_busy();
    auto list = alloc(100);
    other([&] { free(list); });
    alloc_and_free(100);
    alloc_and_free(100, MiB);
    EXPECT_GT(fake.live(), 100u);
    destroy();
}

TEST_F(Busy, WaitingSlabsGoBeforeAnAllocationFails) {
    fake.limit = 20 * MiB;
    for (size_t waiting : {SLAB, MiB}) {
        for (size_t wanted : {size_t{64}, 48 * KiB, 64 * KiB, 96 * KiB, 256 * KiB, MiB, 3 * MiB}) {
            create();
            size_t all = alloc_all(wanted).size();
            destroy();
            create();
            for (size_t i = 0; i < BUSY; i += 8) {
                alloc_and_free(CAPACITY + 8, waiting);
            }
            auto list = alloc(fake.limit / waiting, waiting);
            free(list);
            EXPECT_GT(fake.live_bytes(), fake.limit / 2) << "they wait";
            size_t kept = CAPACITY * waiting;
            list = alloc_all(wanted);
            EXPECT_GE(list.size(), (fake.limit - kept) / std::max(wanted, SLAB));
            EXPECT_LE(list.size(), all);
            free(list);
            destroy();
        }
    }
}

TEST_F(Busy, ManyThatWaitGoBeforeMoreIsTaken) {
    constexpr size_t MOST = 64 * MiB; // of all sizes together
    create();
    make_busy();
    alloc_and_free(MOST / SLAB / 2);
    size_t before = fake.frees;
    auto few = alloc(2, 128 * KiB);
    EXPECT_EQ(fake.frees, before) << "they are not so many";
    for (size_t wanted : {128 * KiB, 3 * MiB, 1000 * KiB}) {
        alloc_and_free(MOST / SLAB + 100);
        EXPECT_GT(fake.live_bytes(), MOST);
        before = fake.live_bytes();
        auto list = alloc(1, wanted);
        EXPECT_LE(fake.live_bytes(), 2 * CAPACITY * MiB) << wanted;
        EXPECT_GT(before, fake.live_bytes());
        free(list);
    }
    free(few);
}

TEST_F(Busy, SizesThatWaitAddUp) {
    create();
    make_busy(64 * KiB);
    EXPECT_EQ(frees_of(CAPACITY + BUSY, 128 * KiB), BUSY);
    alloc_and_free(700, 64 * KiB);
    alloc_and_free(350, 128 * KiB);
    EXPECT_GT(fake.live_bytes(), 64 * MiB) << "neither is more than 64 MiB";
    alloc_and_free(1, MiB);
    EXPECT_LT(fake.live_bytes(), 4 * MiB);
}

// Also together with the one that is parked.
TEST_F(Busy, WhatWaitsNoMoreIsKeptUpToTheCapacity) {
    create();
    make_busy();
    alloc_and_free(20);
    EXPECT_EQ(read("reserved_memory"), CAPACITY * SLAB);
    EXPECT_EQ(fake.live(), CAPACITY);
}

TEST_F(Busy, WaitingSlabsDecay) {
    DecayPeriod short_one(100 * UINT64_C(1000000));
    create();
    alloc_and_free(CAPACITY + BUSY);
    auto live = alloc(1);
    alloc_and_free(400);
    constexpr size_t KEPT = 1 + CAPACITY + STACK, SMALL = 8;
    for (int i = 0; i < 1000 && fake.live() > KEPT + SMALL; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        alloc_and_free(2048, 64);
    }
    EXPECT_LE(fake.live(), KEPT + SMALL);
    free(live);
}

// --- who is never busy ---

class NeverBusy : public Busy {
  protected:
    // Beyond `kept` slabs all go back, however many they are.
    void expect_exact(size_t kept) {
        for (size_t i = 0; i < 3; i++) {
            EXPECT_EQ(frees_of(200), 200 - kept);
            EXPECT_EQ(fake.live(), kept);
        }
    }
};

TEST_F(NeverBusy, WhereTheProviderKeepsNothing) {
    create(false);
    expect_exact(CAPACITY);
    EXPECT_EQ(fake.reuse_frees, 0u);
}

TEST_F(NeverBusy, WhereNothingIsToBeKept) {
    ASSERT_EQ(umfDisjointPoolParamsSetCapacity(params, 0), OK);
    create();
    expect_exact(0);
}

TEST_F(NeverBusy, WhereTheLimitIsShared) {
    umf_disjoint_pool_shared_limits_handle_t limits = nullptr;
    ASSERT_EQ(umfDisjointPoolSharedLimitsCreate(3 * SLAB, &limits), OK);
    ASSERT_EQ(umfDisjointPoolParamsSetSharedLimits(params, limits), OK);
    create();
    expect_exact(3);
    destroy();
    EXPECT_EQ(umfDisjointPoolSharedLimitsDestroy(limits), OK);
}

TEST_F(NeverBusy, WhereCountsAreExact) {
    for (int trace : {1, 2, 3}) {
        ASSERT_EQ(umfDisjointPoolParamsSetTrace(params, trace), OK);
        create();
        expect_exact(CAPACITY);
        destroy();
    }
}

TEST_F(NeverBusy, WhereSlabsHaveManyChunks) {
    ASSERT_EQ(umfDisjointPoolParamsSetSlabMinSize(params, MiB), OK);
    create();
    for (size_t i = 0; i < 3; i++) {
        EXPECT_EQ(frees_of(16 * 100, SLAB), 99u);
        EXPECT_EQ(fake.live(), 1u);
    }
}

// --- threads ---

TEST_F(Busy, ThreadsLeaveNothingBehind) {
    constexpr size_t PAIRS = 3;
    struct Box {
        std::mutex lock;
        std::vector<void *> blocks;
        bool is_closed = false;
    };
    create();
    Box boxes[PAIRS];
    std::atomic<size_t> mistakes{0};
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < PAIRS; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            for (size_t i = 0; i < scaled(20000); i++) {
                // Sizes that differ a lot are rarer: bins become busy between two trims.
                size_t size = SLAB << (random() % 4 ? 0 : random() % 5);
                auto p = static_cast<void **>(umfPoolMalloc(pool, size));
                if (!p) {
                    mistakes++;
                    continue;
                }
                p[0] = p[size / sizeof(void *) - 1] = &boxes[t];
                std::lock_guard<std::mutex> guard(boxes[t].lock);
                boxes[t].blocks.push_back(p);
                if (random() % 2) {
                    std::swap(boxes[t].blocks[random() % boxes[t].blocks.size()],
                              boxes[t].blocks.back());
                }
            }
            std::lock_guard<std::mutex> guard(boxes[t].lock);
            boxes[t].is_closed = true;
        });
        threads.emplace_back([&, t] {
            for (bool is_closed = false; !is_closed;) {
                std::vector<void *> list;
                {
                    std::lock_guard<std::mutex> guard(boxes[t].lock);
                    is_closed = boxes[t].is_closed;
                    if (boxes[t].blocks.size() > 100 || is_closed) {
                        list.swap(boxes[t].blocks);
                    }
                }
                for (void *p : list) {
                    size_t size = 0;
                    mistakes += umfPoolMallocUsableSize(pool, p, &size) != OK;
                    auto words = static_cast<void **>(p);
                    mistakes += words[0] != &boxes[t];
                    words[0] = nullptr;
                    mistakes += umfPoolFree(pool, p) != OK;
                }
                std::this_thread::yield();
            }
        });
    }
    std::thread trimmer([&] {
        while (!is_over) {
            mistakes += umfPoolTrimMemory(pool, 0) != OK;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    });
    for (auto &thread : threads) {
        thread.join();
    }
    is_over = true;
    trimmer.join();
    EXPECT_EQ(mistakes, 0u) << "one block was given to two";
    EXPECT_EQ(read("alloc_count"), 0u);
    EXPECT_EQ(read("used_memory"), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

} // namespace
