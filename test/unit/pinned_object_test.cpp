// Unused memory that pools hold: every kind of pool over memory of the host, of a limited range,
// of virtual memory and of a GPU. A group counts the bytes of a pool, and limits them.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <umf/reclaim.h>

#include "fakes/decay_period.h"
#include "fakes/kinds.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "system/os.h"
}

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;
constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
const size_t PAGE = umf_os_page_size();

#define NEEDS_FENCES()                                                                             \
    if (!umf_os_fence_all()) {                                                                     \
        GTEST_SKIP() << "the kernel has no membarrier: the stacks of other threads stay";          \
    }

std::vector<SourceKind> memories() {
    std::vector<SourceKind> chosen;
    for (const SourceKind &kind : source_kinds()) {
        const std::string label = kind.label;
        if (label == "os" || label == "fixed" || label == "linux_vmm" || label == "cuda_vmm") {
            chosen.push_back(kind);
        }
    }
    return chosen;
}

bool reserve(std::atomic<size_t> &live, size_t most) {
    const bool is_done = live.fetch_add(1) < most;
    live -= !is_done;
    return is_done;
}

class Held : public testing::TestWithParam<std::tuple<PoolKind, SourceKind>> {
  protected:
    std::unique_ptr<Source> source;
    umf_memory_pool_handle_t pool = nullptr;
    umf_pool_group_handle_t group = nullptr;

    static const PoolKind &kind() {
        return std::get<0>(GetParam());
    }
    static bool is(const char *id) {
        return std::string(kind().id) == id;
    }
    // The smallest object, and the sizes of a mixed load.
    static size_t smallest() {
        return is("proxy") ? PAGE : is("coalescing") ? 512 : 64;
    }
    static const std::vector<size_t> &sizes() {
        static const std::vector<size_t> list = {64,       200,      1000,      5000,
                                                 30 * KiB, 64 * KiB, 300 * KiB, MiB};
        return list;
    }
    // oneTBB takes 1 MiB and more at once and cannot give back a part of it, so a scalable pool
    // needs more room, of which it serves less.
    static size_t limit() {
        return is("scalable") ? 64 * MiB : 16 * MiB;
    }
    static size_t usable() {
        return is("scalable") ? limit() / 4 : limit() * 7 / 8;
    }
    void SetUp() override {
        source = std::get<1>(GetParam()).make();
        ASSERT_NE(source->handle, nullptr);
        ASSERT_EQ(umfPoolGroupCreate(limit(), &group), OK);
        ASSERT_EQ(umfPoolCreate(kind().ops(), source->handle, nullptr, 0, &pool), OK);
        ASSERT_EQ(umfPoolGroupAdd(group, pool), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(umfPoolGroupDestroy(group), OK);
    }
    size_t held() const {
        umf_pool_group_stats_t now = UMF_POOL_GROUP_STATS_INIT;
        EXPECT_EQ(umfPoolGroupGetStats(group, &now), OK);
        return now.held;
    }
    std::vector<void *> take_all(size_t size) const {
        std::vector<void *> blocks;
        while (void *ptr = umfPoolMalloc(pool, size)) {
            blocks.push_back(ptr);
        }
        return blocks;
    }
    static void free_all(std::vector<void *> &blocks) {
        std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
        for (void *ptr : blocks) {
            ASSERT_EQ(umfFree(ptr), OK);
        }
        blocks.clear();
    }
    // Every size, up to some bytes of each.
    void use_all_sizes() const {
        std::vector<void *> blocks;
        for (size_t size : sizes()) {
            for (size_t bytes = 0; bytes < MiB; bytes += std::max(size, 2 * KiB)) {
                blocks.push_back(umfPoolMalloc(pool, size));
            }
        }
        free_all(blocks);
    }
    void trim() const {
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), kind().trims ? OK : UMF_RESULT_ERROR_NOT_SUPPORTED);
    }
};

TEST_P(Held, FreeMemoryOfOneSizeServesTheFirstRequestOfAnother) {
    ONE_THREAD_ONLY()
    NEEDS_TO_FIT(kind(), std::get<1>(GetParam()));
    std::vector<void *> blocks = take_all(smallest());
    free_all(blocks);
    void *large = umfPoolMalloc(pool, limit() / 2);
    EXPECT_NE(large, nullptr);
    EXPECT_EQ(umfFree(large), OK);
    for (size_t size : {64 * KiB, PAGE}) {
        blocks = take_all(size);
        EXPECT_GE(blocks.size() * size, usable()) << size;
        free_all(blocks);
    }
}

TEST_P(Held, NothingIsHeldAfterATrim) {
    NEEDS_TO_FIT(kind(), std::get<1>(GetParam()));
    use_all_sizes();
    trim();
    EXPECT_EQ(held(), 0u);
}

TEST_P(Held, AnotherThreadsTrimReachesIdleThreads) {
    NEEDS_TO_FIT(kind(), std::get<1>(GetParam()));
    NEEDS_FENCES();
    constexpr size_t count = 4;
    OtherThread idle[count];
    for (OtherThread &thread : idle) {
        thread([&] { use_all_sizes(); });
    }
    trim();
    EXPECT_LE(held(), count * 64 * KiB);
}

TEST_P(Held, WhatNobodyUsesDecaysWhileOtherSizesHit) {
    NEEDS_TO_FIT(kind(), std::get<1>(GetParam()));
    NEEDS_FENCES();
    if (is("coalescing") || kind().is_built_on) {
        GTEST_SKIP() << "a span with one block in use stays, only its free pages are purged";
    }
    DecayPeriod none(DecayPeriod::NONE);
    std::vector<void *> live(64);
    for (void *&ptr : live) {
        ptr = umfPoolMalloc(pool, 16 * KiB);
    }
    OtherThread idle;
    idle([&] { use_all_sizes(); });
    use_all_sizes();
    for (int i = 0; i < 20 * 4096; i++) {
        umfFree(umfPoolMalloc(pool, 64));
    }
    EXPECT_LE(held(), live.size() * 16 * KiB * 11 / 10 + 4 * MiB);
    free_all(live);
}

// The threads have at most half of the memory that the pool can serve.
TEST_P(Held, NoRequestFailsBesideTrimsWhileMemoryIsFree) {
    NEEDS_TO_FIT(kind(), std::get<1>(GetParam()));
    const size_t block = 256 * KiB, most = usable() / block / 2;
    std::atomic<size_t> live{0}, failures{0};
    std::atomic<int> running{3};
    run_threads<unsigned>(4, [&](unsigned t) {
        while (t == 3 && running) {
            trim();
        }
        std::mt19937 random(t);
        std::vector<void *> mine;
        for (size_t i = 0; t < 3 && i < scaled(10000); i++) {
            if (random() % 2 && reserve(live, most)) {
                void *ptr = umfPoolMalloc(pool, block);
                failures += ptr == nullptr;
                ptr ? mine.push_back(ptr) : (void)live.fetch_sub(1);
            } else if (!mine.empty()) {
                EXPECT_EQ(umfFree(mine.back()), OK);
                mine.pop_back();
                live--;
            }
        }
        free_all(mine);
        running -= t < 3;
    });
    EXPECT_EQ(failures, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    all, Held, testing::Combine(testing::ValuesIn(pool_kinds()), testing::ValuesIn(memories())),
    [](const auto &test) {
        return std::string(std::get<0>(test.param).id) + "_over_" + std::get<1>(test.param).label;
    });

} // namespace
