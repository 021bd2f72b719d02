/* Blocks above the bins of a pool: once freed they serve every thread and every size. */
#include <algorithm>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_scalable.h>

#include "fakes/blocks.h"
#include "fakes/one_tbb.h"
#include "fakes/other_thread.h"
#include "fakes/pool_on_fake.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t K = 1024;

struct Kind {
    const char *name;
    const umf_memory_pool_ops_t *(*ops)(void);
    size_t limit; // of the provider, with room for two blocks of 1 MiB
};

class LargeBlock : public testing::TestWithParam<Kind>, protected PoolOnFake {
  protected:
    void SetUp() override {
        const umf_memory_pool_ops_t *ops = GetParam().ops();
        if (!ops) {
            GTEST_SKIP() << "built without the " << GetParam().name << " pool";
        }
        if (ops == umfScalablePoolOps() && !has_one_tbb()) {
            GTEST_SKIP() << "libtbbmalloc.so.2 is not installed";
        }
        open(ops);
    }
    void TearDown() override {
        close();
    }
    // As many as the provider has memory for.
    std::vector<void *> alloc_all(size_t size) {
        std::vector<void *> list;
        while (void *got = umfPoolMalloc(pool, size)) {
            list.push_back(got);
        }
        return list;
    }
    size_t alloc_and_free_all(size_t size) {
        std::vector<void *> list = alloc_all(size);
        for (void *got : list) {
            free(got);
        }
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        return list.size();
    }
    size_t room(void *p) {
        size_t size = 0;
        EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &size), OK);
        return size;
    }
};

INSTANTIATE_TEST_SUITE_P(Pools, LargeBlock,
                         testing::Values(Kind{"jemalloc", umfJemallocPoolOps, 2048 * K},
                                         Kind{"scalable", umfScalablePoolOps, 6144 * K}),
                         [](const auto &kind) { return kind.param.name; });

TEST_P(LargeBlock, ABlockIsAsLargeAsItWas) {
    for (size_t size : {132 * K, 192 * K, 196 * K, 256 * K, 1000 * K, 2048 * K}) {
        void *p = alloc(size), *between = alloc(size);
        size_t first = room(p);
        // A bin of the scalable pool has whole steps of 8 KiB, with the header.
        const bool has_bin =
            GetParam().ops == umfScalablePoolOps && size >= 192 * K && size <= 256 * K;
        EXPECT_EQ(first, has_bin ? (size + 256 + 8 * K - 1) / (8 * K) * (8 * K) - 256 : size);
        free(p);
        EXPECT_EQ(count(), 1u);
        p = alloc(size);
        EXPECT_EQ(room(p), first);
        EXPECT_EQ(count(), 2u);
        free(between);
        free(p);
    }
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// Sizes that share a place take it from each other.
TEST_P(LargeBlock, OnlyTheSameSizeIsServed) {
    void *p = alloc(200 * K);
    free(p);
    void *q = alloc(204 * K);
    EXPECT_EQ(room(q), 204 * K);
    free(q);
    void *r = alloc(200 * K);
    EXPECT_EQ(room(r), 200 * K);
    free(r);
    void *aligned = umfPoolAlignedMalloc(pool, 200 * K, 1 << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % (1 << 20), 0u);
    free(aligned);
    EXPECT_EQ(count(), 0u);
}

TEST_P(LargeBlock, BlocksAreFree) {
    OtherThread other;
    void *list[] = {alloc(300 * K), alloc(300 * K)};
    free(list[0]);
    other([&] { free(list[1]); });
    for (void *p : list) {
        size_t size = 0;
        EXPECT_EQ(umfPoolFree(pool, p), BAD);
        other([&] { EXPECT_EQ(umfFree(p), BAD); });
        EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &size), BAD);
        EXPECT_EQ(umfPoolRealloc(pool, p, 400 * K), nullptr);
    }
    EXPECT_EQ(count(), 0u);
}

// Before the provider is called, parked blocks serve all threads, in any size.
TEST_P(LargeBlock, BlocksAreNotMissing) {
    fake.limit = GetParam().limit;
    OtherThread first, second;
    for (size_t wanted : {2048 * K, 16 * K, K}) {
        size_t all = alloc_and_free_all(wanted);
        EXPECT_GT(all, 0u);
        void *p = alloc(1024 * K), *q = alloc(1024 * K);
        first([&] { free(p); });
        second([&] { free(q); });
        // oneTBB cuts small objects from the regions of both blocks then. These end in less than a
        // slab of 16 KiB.
        const size_t lost = GetParam().ops == umfScalablePoolOps && wanted == K ? 2 * 16 : 0;
        EXPECT_GE(alloc_and_free_all(wanted), all - lost) << wanted;
    }
}

// Neither are smaller blocks, which are cached in magazines.
TEST_P(LargeBlock, ObjectsInMagazinesAreNotMissing) {
    fake.limit = 32 * 1024 * K;
    for (size_t wanted : {2048 * K, 1024 * K, 132 * K, 64 * K, 16 * K, K}) {
        size_t all = alloc_and_free_all(wanted);
        std::vector<void *> list = alloc_all(100 * K);
        EXPECT_GT(list.size(), 100u);
        std::for_each(list.begin(), list.end(), [this](void *p) { free(p); });
        EXPECT_EQ(count(), 0u);
        list = alloc_all(wanted);
        EXPECT_GE(list.size(), all - all / 16 - 1) << wanted;
        std::for_each(list.begin(), list.end(), [this](void *p) { free(p); });
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(fake.live(), 0u);
    }
}

TEST_P(LargeBlock, AnEndedThreadLeavesItsBlocks) {
    std::vector<void *> list;
    for (size_t size = 150 * K; size < 2048 * K; size += 100 * K) {
        list.push_back(alloc(size));
    }
    std::thread([&] { std::for_each(list.begin(), list.end(), [&](void *p) { free(p); }); }).join();
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_P(LargeBlock, TrimTakesFromAllThreads) {
    OtherThread other;
    void *p = alloc(300 * K), *q = alloc(400 * K);
    other([&] { free(p); });
    free(q);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_P(LargeBlock, ThreadsExchangeBlocks) {
    std::vector<void *> left =
        exchange_blocks(pool, [](unsigned random) { return 100 * K + random % 4 * 100 * K; });
    EXPECT_EQ(count(), left.size());
    free_blocks(pool, left);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

} // namespace
