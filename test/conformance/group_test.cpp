// Groups: pools that share one limit on the bytes that they hold. The statements of umf/reclaim.h,
// for every kind of pool.

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <umf/reclaim.h>

#include "fakes/kinds.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB, LIMIT = 32 * MiB, BLOCK = 256 * KiB;
// In blocks, at least: oneTBB takes 1 MiB and more at once, of which a scalable pool serves few.
constexpr size_t USABLE = LIMIT / 3;
constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t INVALID = UMF_RESULT_ERROR_INVALID_ARGUMENT;

class Groups {
  protected:
    std::vector<std::unique_ptr<Source>> sources;
    std::vector<umf_memory_pool_handle_t> pools;
    umf_pool_group_handle_t group = nullptr;

    void open(size_t limit = LIMIT) {
        ASSERT_EQ(umfPoolGroupCreate(limit, &group), OK);
    }
    void close() {
        for (umf_memory_pool_handle_t pool : pools) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        EXPECT_EQ(stats().held, 0u);
        EXPECT_EQ(stats().pools, 0u);
        EXPECT_EQ(umfPoolGroupDestroy(group), OK);
    }
    umf_pool_group_stats_t stats() {
        umf_pool_group_stats_t now = UMF_POOL_GROUP_STATS_INIT;
        EXPECT_EQ(umfPoolGroupGetStats(group, &now), OK);
        return now;
    }
    // Over a provider of its own.
    umf_memory_pool_handle_t create(const umf_memory_pool_ops_t *ops,
                                    umf_pool_create_flags_t flags = 0) {
        return create(ops, flags, make_os(UMF_MEM_MAP_PRIVATE));
    }
    umf_memory_pool_handle_t create(const umf_memory_pool_ops_t *ops, umf_pool_create_flags_t flags,
                                    std::unique_ptr<Source> source) {
        sources.push_back(std::move(source));
        umf_memory_pool_handle_t pool = nullptr;
        EXPECT_EQ(umfPoolCreate(ops, sources.back()->handle, nullptr, flags, &pool), OK);
        pools.push_back(pool);
        return pool;
    }
    umf_memory_pool_handle_t create_in_group(const umf_memory_pool_ops_t *ops) {
        return create_in_group(ops, make_os(UMF_MEM_MAP_PRIVATE));
    }
    umf_memory_pool_handle_t create_in_group(const umf_memory_pool_ops_t *ops,
                                             std::unique_ptr<Source> source) {
        umf_memory_pool_handle_t pool = create(ops, 0, std::move(source));
        EXPECT_EQ(umfPoolGroupAdd(group, pool), OK);
        return pool;
    }
    std::vector<void *> take_all(umf_memory_pool_handle_t pool, size_t size) {
        std::vector<void *> blocks;
        while (void *ptr = umfPoolMalloc(pool, size)) {
            blocks.push_back(ptr);
            if (blocks.size() > 2 * LIMIT / size) {
                ADD_FAILURE() << "no limit";
                break;
            }
        }
        return blocks;
    }
    static void free_all(std::vector<void *> &blocks) {
        for (void *ptr : blocks) {
            EXPECT_EQ(umfFree(ptr), OK);
        }
        blocks.clear();
    }
    static size_t setting(umf_memory_pool_handle_t pool, const std::string &name) {
        size_t value = SIZE_MAX;
        EXPECT_EQ(
            umfCtlGet(("umf.pool.by_handle.{}.group." + name).c_str(), &value, sizeof(value), pool),
            OK);
        return value;
    }
};

class Group : public testing::TestWithParam<PoolKind>, protected Groups {
  protected:
    void SetUp() override {
        open();
    }
    void TearDown() override {
        close();
    }
};

TEST_P(Group, LimitHolds) {
    umf_memory_pool_handle_t pool = create_in_group(GetParam().ops());
    std::vector<void *> blocks = take_all(pool, BLOCK);
    umf_pool_group_stats_t now = stats();
    EXPECT_GE(blocks.size() * BLOCK, USABLE);
    EXPECT_EQ(now.limit, LIMIT);
    EXPECT_LE(now.held, LIMIT);
    EXPECT_GE(now.held, blocks.size() * BLOCK);
    EXPECT_GE(now.peak, now.held);
    EXPECT_LE(now.peak, LIMIT);
    EXPECT_EQ(now.pools, 1u);
    EXPECT_EQ(setting(pool, "limit"), LIMIT);
    EXPECT_EQ(setting(pool, "held"), now.held);
    EXPECT_EQ(setting(pool, "peak"), now.peak);
    free_all(blocks);
}

// A full group refuses with the result of a provider that has no memory.
TEST_P(Group, RefusalIsOutOfMemory) {
    umf_memory_pool_handle_t pool = create_in_group(GetParam().ops());
    EXPECT_EQ(umfPoolMalloc(pool, 2 * LIMIT), nullptr);
    EXPECT_EQ(umfPoolGetLastAllocationError(pool), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
}

TEST_P(Group, AddCountsWhatIsHeldAndRemoveEndsThat) {
    umf_memory_pool_handle_t pool = create(GetParam().ops());
    std::vector<void *> blocks = {umfPoolMalloc(pool, BLOCK), umfPoolMalloc(pool, 64),
                                  umfPoolMalloc(pool, 5000)};
    EXPECT_EQ(umfFree(blocks.back()), OK); // a proxy pool keeps it as a dormant span
    blocks.pop_back();
    EXPECT_EQ(setting(pool, "limit"), 0u);
    ASSERT_EQ(umfPoolGroupAdd(group, pool), OK);
    EXPECT_GE(stats().held, BLOCK);
    size_t held = stats().held;
    void *more = umfPoolMalloc(pool, 8 * MiB);
    EXPECT_GE(stats().held, held + 4 * MiB);
    EXPECT_EQ(umfPoolGroupRemove(group, pool), OK);
    EXPECT_EQ(stats().held, 0u);
    EXPECT_EQ(stats().pools, 0u);
    EXPECT_EQ(umfFree(more), OK);
    size_t given = 0; // it gives to others as before
    EXPECT_EQ(umfReclaim(sources.back()->handle, SIZE_MAX, &given), OK);
    bool keeps = GetParam().id != std::string("proxy") && GetParam().id != std::string("scalable");
    EXPECT_TRUE(given > 0 || !keeps);
    void *beyond = umfPoolMalloc(pool, 2 * LIMIT);
    EXPECT_NE(beyond, nullptr);
    EXPECT_EQ(umfFree(beyond), OK);
    EXPECT_EQ(stats().held, 0u);
    EXPECT_EQ(umfPoolGroupAdd(group, pool), OK);
    free_all(blocks);
}

// A dormant span of a proxy pool wakes with another size of as many pages.
TEST_P(Group, EverySizeIsUncountedAsItWasCounted) {
    umf_memory_pool_handle_t pool = create_in_group(GetParam().ops());
    for (size_t i = 0; i < 300; i++) { // a proxy pool begins to keep spans after 64 frees
        const size_t size = 4097 + i * 37 % 4096;
        void *ptr = umfPoolMalloc(pool, size);
        ASSERT_NE(ptr, nullptr);
        EXPECT_EQ(umfFree(ptr), OK);
    }
    umfPoolTrimMemory(pool, 0);
    void *ptr = umfPoolRealloc(pool, nullptr, 3 * MiB);
    EXPECT_EQ(umfFree(ptr ? ptr : umfPoolMalloc(pool, 3 * MiB)), OK);
}

// Each kind as the one that keeps, and as the one that is short.
TEST_P(Group, OneTakesWhatAnotherHoldsFree) {
    for (const PoolKind &keeps : pool_kinds()) {
        SCOPED_TRACE(keeps.id);
        umf_memory_pool_handle_t keeper = create_in_group(keeps.ops());
        umf_memory_pool_handle_t taker = create_in_group(GetParam().ops());
        std::vector<void *> blocks = take_all(keeper, BLOCK);
        EXPECT_EQ(umfPoolMalloc(taker, 8 * MiB), nullptr) << "all is in use";
        free_all(blocks);
        blocks = take_all(taker, BLOCK);
        EXPECT_GE(blocks.size() * BLOCK, USABLE);
        EXPECT_LE(stats().peak, LIMIT);
        free_all(blocks);
        for (umf_memory_pool_handle_t pool : pools) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        pools.clear();
        EXPECT_EQ(stats().held, 0u);
    }
}

// Two providers of one kind, so of one device.
TEST_P(Group, OneTakesWhatAnotherHoldsFreeOnEveryProvider) {
    for (const SourceKind &kind : source_kinds()) {
        SCOPED_TRACE(kind.label);
        if (!fits(GetParam(), kind)) {
            continue;
        }
        umf_memory_pool_handle_t keeper = create_in_group(GetParam().ops(), kind.make());
        umf_memory_pool_handle_t taker = create_in_group(GetParam().ops(), kind.make());
        std::vector<void *> blocks = take_all(keeper, BLOCK);
        EXPECT_GE(blocks.size() * BLOCK, USABLE);
        EXPECT_EQ(umfPoolMalloc(taker, 8 * MiB), nullptr) << "all is in use";
        free_all(blocks);
        blocks = take_all(taker, BLOCK);
        EXPECT_GE(blocks.size() * BLOCK, USABLE);
        EXPECT_LE(stats().peak, LIMIT);
        free_all(blocks);
        EXPECT_EQ(umfPoolDestroy(keeper), OK);
        EXPECT_EQ(umfPoolDestroy(taker), OK);
        pools.clear();
        EXPECT_EQ(stats().held, 0u);
    }
}

TEST_P(Group, LowerLimitTakesWhatIsFree) {
    umf_memory_pool_handle_t pool = create_in_group(GetParam().ops());
    std::vector<void *> blocks = take_all(pool, BLOCK);
    void *kept = blocks.back();
    blocks.pop_back();
    EXPECT_EQ(umfPoolGroupSetLimit(group, 1), OK);
    EXPECT_GE(stats().held, BLOCK * blocks.size()) << "blocks in use stay";
    EXPECT_EQ(umfPoolMalloc(pool, 16 * MiB), nullptr);
    free_all(blocks);
    EXPECT_EQ(umfPoolGroupSetLimit(group, 2), OK);
    EXPECT_LE(stats().held, LIMIT / 2);
    EXPECT_EQ(umfPoolGroupSetLimit(group, 2 * LIMIT), OK);
    void *ptr = umfPoolMalloc(pool, LIMIT);
    EXPECT_NE(ptr, nullptr);
    EXPECT_EQ(umfFree(ptr), OK);
    EXPECT_EQ(umfFree(kept), OK);
}

// A kind of the user's own that passes everything on to one of the library.
TEST_P(Group, PoolOfAnotherKindOnTopCounts) {
    umf_memory_pool_ops_t ops = *GetParam().ops();
    umf_memory_pool_handle_t pool = create(&ops);
    void *early = umfPoolMalloc(pool, BLOCK);
    ASSERT_NE(early, nullptr);
    ASSERT_EQ(umfPoolGroupAdd(group, pool), OK);
    EXPECT_GE(stats().held, BLOCK);
    std::vector<void *> blocks = take_all(pool, BLOCK);
    EXPECT_GE(blocks.size() * BLOCK, USABLE);
    EXPECT_LE(stats().held, LIMIT);
    free_all(blocks);
    EXPECT_EQ(umfFree(early), OK);
}

// Four threads in two pools, which are short at every moment, and one that reclaims.
TEST_P(Group, LimitHoldsWithThreads) {
    umf_memory_pool_handle_t both[] = {create_in_group(GetParam().ops()),
                                       create_in_group(umfDisjointPoolOps())};
    std::atomic<int> running{4};
    run_threads<unsigned>(5, [&](unsigned t) {
        while (t == 4 && running) {
            umfReclaim(nullptr, MiB, nullptr);
            EXPECT_LE(stats().held, LIMIT + 64 * KiB);
        }
        std::mt19937 random(t);
        std::vector<void *> mine;
        for (size_t i = 0; t < 4 && i < scaled(10000); i++) {
            void *ptr = random() % 2 ? umfPoolMalloc(both[t % 2], 1 + random() % MiB) : nullptr;
            if (ptr) {
                mine.push_back(ptr);
            } else if (!mine.empty()) {
                EXPECT_EQ(umfFree(mine.back()), OK);
                mine.pop_back();
            }
        }
        free_all(mine);
        running -= t < 4;
    });
    EXPECT_LE(stats().peak, LIMIT + 64 * KiB);
}

INSTANTIATE_TEST_SUITE_P(pools, Group, testing::ValuesIn(pool_kinds()),
                         [](const auto &test) { return std::string(test.param.id); });

class GroupArguments : public testing::Test, protected Groups {
  protected:
    void SetUp() override {
        open();
    }
    void TearDown() override {
        close();
    }
};

TEST_F(GroupArguments, AreChecked) {
    int here = 0;
    auto nothing = reinterpret_cast<umf_pool_group_handle_t>(&here);
    umf_pool_group_stats_t now = UMF_POOL_GROUP_STATS_INIT;
    umf_memory_pool_handle_t pool = create(umfDisjointPoolOps());
    EXPECT_EQ(umfPoolGroupCreate(1, nullptr), INVALID);
    EXPECT_EQ(umfPoolGroupDestroy(nullptr), OK);
    EXPECT_EQ(umfPoolGroupDestroy(nothing), INVALID);
    EXPECT_EQ(umfPoolGroupAdd(nothing, pool), INVALID);
    EXPECT_EQ(umfPoolGroupAdd(group, nullptr), INVALID);
    EXPECT_EQ(umfPoolGroupRemove(nothing, pool), INVALID);
    EXPECT_EQ(umfPoolGroupRemove(group, nullptr), INVALID);
    EXPECT_EQ(umfPoolGroupRemove(group, pool), INVALID) << "it is not in it";
    EXPECT_EQ(umfPoolGroupSetLimit(nothing, 1), INVALID);
    EXPECT_EQ(umfPoolGroupGetStats(nothing, &now), INVALID);
    EXPECT_EQ(umfPoolGroupGetStats(group, nullptr), INVALID);
    now.struct_size--;
    EXPECT_EQ(umfPoolGroupGetStats(group, &now), INVALID);
}

TEST_F(GroupArguments, APoolIsInOneGroup) {
    umf_memory_pool_handle_t pool = create_in_group(umfProxyPoolOps());
    umf_pool_group_handle_t other = nullptr;
    ASSERT_EQ(umfPoolGroupCreate(1, &other), OK);
    EXPECT_EQ(umfPoolGroupAdd(group, pool), INVALID);
    EXPECT_EQ(umfPoolGroupAdd(other, pool), INVALID);
    EXPECT_EQ(umfPoolGroupRemove(other, pool), INVALID);
    EXPECT_EQ(umfPoolGroupDestroy(other), OK);
    EXPECT_EQ(umfPoolGroupDestroy(group), INVALID) << "it has a pool";
}

TEST_F(GroupArguments, APoolWithoutTrackingCannotBeCounted) {
    umf_memory_pool_handle_t pool =
        create(umfDisjointPoolOps(), UMF_POOL_CREATE_FLAG_DISABLE_TRACKING);
    EXPECT_EQ(umfPoolGroupAdd(group, pool), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(setting(pool, "limit"), 0u);
}

} // namespace
