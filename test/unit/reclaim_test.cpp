// Unused memory serves every request, from any thread and with any size.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/reclaim.h>
#include <umf/text.h>

#include "fakes/child.h"
#include "fakes/decay_period.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "system/os.h"
}

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB, SIZE = 16 * MiB;
constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

#define NEEDS_FENCES()                                                                             \
    if (!umf_os_fence_all()) {                                                                     \
        GTEST_SKIP() << "the kernel has no membarrier: the stacks of other threads stay";          \
    }

bool reserve(std::atomic<size_t> &live, size_t most) {
    const bool is_done = live.fetch_add(1) < most;
    live -= !is_done;
    return is_done;
}

class Reclaim : public testing::Test {
  protected:
    std::unique_ptr<char[]> memory{new char[SIZE + MiB]};
    umf_memory_provider_handle_t provider = nullptr;
    std::vector<umf_memory_pool_handle_t> pools;

    void SetUp() override {
        umf_fixed_memory_provider_params_handle_t params = nullptr;
        uintptr_t base = (reinterpret_cast<uintptr_t>(memory.get()) + MiB - 1) & ~(MiB - 1);
        ASSERT_EQ(umfFixedMemoryProviderParamsCreate(reinterpret_cast<void *>(base), SIZE, &params),
                  OK);
        ASSERT_EQ(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &provider), OK);
        umfFixedMemoryProviderParamsDestroy(params);
    }
    void TearDown() override {
        for (umf_memory_pool_handle_t pool : pools) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    umf_memory_pool_handle_t create(const umf_memory_pool_ops_t *ops = umfDisjointPoolOps()) {
        umf_memory_pool_handle_t pool = nullptr;
        EXPECT_EQ(umfPoolCreate(ops, provider, nullptr, 0, &pool), OK);
        pools.push_back(pool);
        return pool;
    }
    static const char *name_of(umf_memory_pool_handle_t pool) {
        const char *name = "?";
        EXPECT_EQ(umfPoolGetName(pool, &name), OK);
        return name;
    }
    // All that the pool gives in blocks of this size.
    static std::vector<void *> take_all(umf_memory_pool_handle_t pool, size_t size) {
        std::vector<void *> blocks;
        while (void *ptr = umfPoolMalloc(pool, size)) {
            blocks.push_back(ptr);
        }
        return blocks;
    }
    static std::vector<void *> take_some(umf_memory_pool_handle_t pool, size_t size, size_t bytes) {
        std::vector<void *> blocks;
        while (blocks.size() * size < bytes) {
            blocks.push_back(umfPoolMalloc(pool, size));
            EXPECT_NE(blocks.back(), nullptr);
        }
        return blocks;
    }
    // What pools have from the provider.
    size_t held() const {
        size_t bytes = 0;
        EXPECT_EQ(umfCtlGet("umf.provider.by_handle.{}.stats.allocated_memory", &bytes,
                            sizeof(bytes), provider),
                  OK);
        return bytes;
    }
    static size_t thread_cache(umf_memory_pool_handle_t pool) {
        size_t bytes = SIZE_MAX;
        EXPECT_EQ(
            umfCtlGet("umf.pool.by_handle.{}.stats.thread_cache", &bytes, sizeof(bytes), pool), OK);
        return bytes;
    }
    static bool background() {
        bool value = false;
        EXPECT_EQ(umfCtlGet("umf.reclaim.background", &value, sizeof(value)), OK);
        return value;
    }
    static void set_background(bool value) {
        EXPECT_EQ(umfCtlSet("umf.reclaim.background", &value, sizeof(value)), OK);
    }
    static void free_all(std::vector<void *> &blocks) {
        std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
        for (void *block : blocks) {
            ASSERT_EQ(umfFree(block), OK);
        }
        blocks.clear();
    }
};

TEST_F(Reclaim, APoolOfNoGroupKeepsItsFreeMemoryWhenAGroupIsFull) {
    DecayPeriod period(DecayPeriod::ENDLESS);
    umf_memory_pool_handle_t outside = create(), inside = nullptr;
    umf_pool_group_handle_t group = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("disjoint over os", &inside), OK);
    ASSERT_EQ(umfPoolGroupCreate(4 * MiB, &group), OK);
    ASSERT_EQ(umfPoolGroupAdd(group, inside), OK);
    std::vector<void *> blocks = take_some(outside, 4 * KiB, MiB);
    free_all(blocks);
    size_t before = held();
    EXPECT_GT(before, 0u);
    blocks = take_all(inside, 64 * KiB);
    EXPECT_EQ(held(), before);
    free_all(blocks);
    EXPECT_EQ(umfPoolDestroy(inside), OK);
    EXPECT_EQ(umfPoolGroupDestroy(group), OK);
}

TEST_F(Reclaim, FreeMemoryOfOneSizeServesEveryOther) {
    umf_memory_pool_handle_t pool = create();
    for (size_t size : {64 * KiB, size_t{64}, 4 * KiB, size_t{256}, 1 * MiB, size_t{128}}) {
        std::vector<void *> blocks = take_all(pool, size);
        EXPECT_GE(blocks.size() * size, SIZE / 100 * 95) << "blocks of " << size;
        free_all(blocks);
    }
}

TEST_F(Reclaim, WhatOtherThreadsHaveFreedServesEveryThread) {
    NEEDS_FENCES();
    umf_memory_pool_handle_t pool = create();
    OtherThread first, second;
    std::vector<void *> small;
    first([&] {
        small = take_all(pool, 64);
        EXPECT_GE(small.size() * 64, SIZE / 100 * 95);
    });
    std::vector<void *> half(small.begin() + static_cast<long>(small.size() / 2), small.end());
    small.resize(small.size() / 2);
    first([&] { free_all(small); });
    second([&] { free_all(half); });
    std::vector<void *> blocks = take_all(pool, 4 * KiB);
    EXPECT_GE(blocks.size() * 4 * KiB, SIZE / 100 * 99);
    free_all(blocks);
}

// Of all sizes and threads together.
TEST_F(Reclaim, WhatThreadsCacheIsBounded) {
    const size_t bound = 256 * KiB;
    for (const char *kind : {"disjoint", "jemalloc", "scalable"}) {
        SCOPED_TRACE(kind);
        umf_memory_pool_handle_t pool = nullptr, usual = nullptr;
        const std::string text = std::string(kind) + ":thread_cache=256K over os";
        umf_result_t result = umfPoolCreateFromText(text.c_str(), &pool);
        if (result == UMF_RESULT_ERROR_NOT_SUPPORTED ||
            result == UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE) {
            continue; // the build, or the machine, has no such pool
        }
        ASSERT_EQ(result, OK) << umfTextError();
        ASSERT_EQ(umfPoolCreateFromText((std::string(kind) + " over os").c_str(), &usual), OK);
        pools.insert(pools.end(), {pool, usual});
        const auto use_all_sizes = [&](umf_memory_pool_handle_t from) {
            for (size_t size = 16; size <= 32 * KiB; size += size / 2) {
                EXPECT_EQ(umfFree(umfPoolMalloc(from, size)), OK);
                EXPECT_TRUE(from == usual || thread_cache(from) <= bound) << size;
            }
        };
        OtherThread other;
        for (umf_memory_pool_handle_t from : {pool, usual}) {
            EXPECT_EQ(thread_cache(from), 0u);
            use_all_sizes(from);
            other([&] { use_all_sizes(from); });
        }
        EXPECT_GT(thread_cache(pool), bound / 2);
        EXPECT_GT(thread_cache(usual), bound);
    }
}

TEST_F(Reclaim, AnotherPoolOnTheProviderGivesWhatItKeeps) {
    NEEDS_FENCES();
    for (auto kind : {umfDisjointPoolOps, umfProxyPoolOps, umfJemallocPoolOps}) {
        if (!kind()) {
            continue; // not built
        }
        umf_memory_pool_handle_t keeper = create(kind()), taker = create();
        OtherThread other;
        other([&] {
            std::vector<void *> blocks = take_all(keeper, 16 * KiB);
            free_all(blocks);
        });
        std::vector<void *> blocks = take_all(taker, 4 * KiB);
        EXPECT_GE(blocks.size() * 4 * KiB, SIZE / 100 * 95) << name_of(keeper);
        free_all(blocks);
    }
}

// A program that never misses still makes pools give back what they do not use.
TEST_F(Reclaim, HitsAreTheClockOfEveryPool) {
    NEEDS_FENCES();
    DecayPeriod none(DecayPeriod::NONE);
    umf_memory_pool_handle_t idle = create(), busy = create();
    OtherThread other;
    other([&] {
        std::vector<void *> blocks = take_some(idle, 64, 8 * MiB);
        free_all(blocks);
    });
    for (int i = 0; i < 100000; i++) {
        umfFree(umfPoolMalloc(busy, 64));
    }
    EXPECT_LE(held(), 512 * KiB) << "slabs in use, and four empty ones";
}

TEST_F(Reclaim, TheBackgroundThreadIsTheClockOfAProgramThatStops) {
    NEEDS_FENCES();
    DecayPeriod short_one(5 * 1000 * 1000);
    umf_memory_pool_handle_t idle = create();
    std::vector<void *> blocks = take_some(idle, 64, 8 * MiB);
    free_all(blocks);
    EXPECT_GT(held(), 4 * MiB);
    set_background(true);
    while (held() > 512 * KiB) {
        std::this_thread::yield();
    }
    set_background(false);
}

TEST_F(Reclaim, TheBackgroundThreadStopsAndStarts) {
    const std::vector<int> blocked = blocked_signals();
    EXPECT_FALSE(background());
    for (int i = 0; i < 3; i++) {
        set_background(true);
        set_background(true);
        EXPECT_EQ(blocked_signals(), blocked);
        EXPECT_TRUE(background());
        EXPECT_TRUE(in_child([] { return !background(); })) << "until the next request";
        EXPECT_TRUE(in_child([] {
            set_background(true);
            const bool was = background();
            set_background(false);
            return was && !background();
        }));
        EXPECT_TRUE(background());
        set_background(false);
        set_background(false);
        EXPECT_FALSE(background());
    }
    set_background(true);
    ASSERT_EQ(umfInit(), OK);
    ASSERT_EQ(umfTearDown(), OK);
    EXPECT_TRUE(background()) << "the library was started more often";
    set_background(false);
}

// Together the threads have at most 90 percent of the memory, of sizes that need whole slabs alike.
TEST_F(Reclaim, NoRequestFailsBesideTrimsWhileMemoryIsFree) {
    umf_memory_pool_handle_t pool = create();
    constexpr size_t block = 64 * KiB, most = SIZE / block * 9 / 10;
    std::atomic<size_t> live{0}, failures{0};
    std::atomic<int> running{3};
    run_threads<unsigned>(4, [&](unsigned t) {
        while (t == 3 && running) {
            umfPoolTrimMemory(pool, 0);
        }
        std::mt19937 random(t);
        std::vector<void *> mine;
        for (size_t i = 0; t < 3 && i < scaled(100000); i++) {
            if (random() % 2 && reserve(live, most)) {
                void *ptr = umfPoolMalloc(pool, block);
                failures += ptr == nullptr;
                ptr ? mine.push_back(ptr) : (void)live.fetch_sub(1);
            } else if (!mine.empty()) {
                umfFree(mine.back());
                mine.pop_back();
                live--;
            }
        }
        for (void *ptr : mine) {
            umfFree(ptr);
        }
        running -= t < 3;
    });
    EXPECT_EQ(failures, 0u);
}

// One thread makes and ends pools while the others look for memory in all of them.
TEST_F(Reclaim, PoolsBeginAndEndWhileOthersReclaim) {
    umf_memory_pool_handle_t pool = create();
    std::vector<void *> all = take_all(pool, 64 * KiB);
    std::atomic<bool> is_over{false};
    run_threads<unsigned>(3, [&](unsigned t) {
        for (size_t i = 0; t == 0 && i < scaled(3000); i++) {
            umf_memory_pool_handle_t other = nullptr;
            ASSERT_EQ(umfPoolCreate(i % 2 ? umfProxyPoolOps() : umfDisjointPoolOps(), provider,
                                    nullptr, 0, &other),
                      OK);
            ASSERT_EQ(umfPoolDestroy(other), OK);
        }
        if (t == 0) {
            is_over = true;
        }
        while (!is_over) {
            EXPECT_EQ(umfPoolMalloc(pool, 64 * KiB), nullptr);
        }
    });
    free_all(all);
}

} // namespace
