/* Memory that the jemalloc pool releases: decayed memory (cache/decay.h), tails, and all at its
 * end. */
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/memory_pool_ext.h>
#include <umf/pools/pool_jemalloc.h>

#include "fakes/decay_period.h"
#include "fakes/other_thread.h"
#include "fakes/pool_on_fake.h"
#include "fakes/scale.h"

// jemalloc's own, under the name that it has in the library.
extern "C" int umf_je_mallctl(const char *name, void *old, size_t *old_size, void *value,
                              size_t size) __attribute__((weak));

namespace {

constexpr size_t K = 1024;

// Of the arenas that there are.
std::set<void *> hooks_of_arenas() {
    std::set<void *> all;
    unsigned count = 0;
    size_t size = sizeof(count);
    EXPECT_EQ(umf_je_mallctl("arenas.narenas", &count, &size, nullptr, 0), 0);
    for (unsigned i = 0; i < count; i++) {
        const std::string name = "arena." + std::to_string(i) + ".extent_hooks";
        void *hooks = nullptr;
        size = sizeof(hooks);
        if (umf_je_mallctl(name.c_str(), &hooks, &size, nullptr, 0) == 0) {
            all.insert(hooks);
        }
    }
    return all;
}

class Jemalloc : public testing::Test, protected PoolOnFake {
  protected:
    void SetUp() override {
        if (!umfJemallocPoolOps()) {
            GTEST_SKIP() << "built without the jemalloc pool";
        }
        open(umfJemallocPoolOps());
    }
    void TearDown() override {
        close();
    }
    // More than the caches of a thread hold.
    void use_lightly() {
        std::vector<void *> list(4096);
        for (int i = 0; i < 4; i++) {
            for (void *&p : list) {
                p = alloc(64);
            }
            std::for_each(list.begin(), list.end(), [this](void *p) { free(p); });
        }
    }
};

TEST_F(Jemalloc, MemoryFollowsWhatIsLive) {
    DecayPeriod none(DecayPeriod::NONE);
    for (size_t size : {16 * K, 64 * K, 200 * K}) {
        std::vector<void *> list(500);
        for (size_t i = 0; i < list.size(); i++) {
            list[i] = alloc(size);
            memset(list[i], static_cast<int>(i % 256), size);
        }
        size_t before = fake.purged_bytes;
        for (size_t i = 0; i < list.size(); i++) {
            if (i % 10) {
                free(list[i]);
            }
        }
        use_lightly();
        EXPECT_GE(fake.purged_bytes - before, (450 - 16) * size) << "all but a stack";
        for (size_t i = 0; i < list.size(); i += 10) {
            auto p = static_cast<unsigned char *>(list[i]);
            ASSERT_TRUE(std::all_of(p, p + size, [=](unsigned char c) { return c == i % 256; }));
            free(p);
        }
    }
    EXPECT_EQ(count(), 0u);
}

TEST_F(Jemalloc, ParkedBlocksDecay) {
    DecayPeriod none(DecayPeriod::NONE);
    OtherThread other;
    void *kept = alloc(400 * K), *p = alloc(300 * K), *q = alloc(1000 * K);
    memset(p, 1, 300 * K);
    memset(q, 1, 1000 * K);
    memset(kept, 1, 400 * K);
    other([&] { free(p); });
    free(q);
    use_lightly();
    EXPECT_GE(fake.purged_bytes, 1300 * K);
    EXPECT_EQ(static_cast<char *>(kept)[400 * K - 1], 1);
    free(kept);
}

TEST_F(Jemalloc, TailsOfShrunkBlocksAreUsedAgain) {
    size_t most = 0;
    for (int i = 0; i < 200; i++) {
        void *p = alloc(1024 * K);
        ASSERT_EQ(umfPoolRealloc(pool, p, 512 * K), p);
        free(p);
        most = i == 10 ? fake.live_bytes() : most;
    }
    EXPECT_EQ(fake.live_bytes(), most);
}

// Before a pool takes more memory it uses what it caches for other sizes.
TEST_F(Jemalloc, APoolDoesNotGrowBesideWhatItCaches) {
    std::vector<void *> list;
    for (size_t bytes = 0; bytes < 1536 * K; bytes += 64 * K) {
        list.push_back(alloc(64 * K));
    }
    for (void *object : list) {
        free(object);
    }
    size_t allocs = fake.allocs;
    free(alloc(1024 * K));
    EXPECT_EQ(fake.allocs, allocs);
}

// Each step of a growing block would leave a hole that is too small for the next one.
TEST_F(Jemalloc, ABlockGrowsInPlace) {
    void *block = alloc(256 * K);
    memset(block, 0x5A, 256 * K);
    for (size_t size = 512 * K; size <= 1024 * K; size *= 2) {
        size_t usable = 0;
        ASSERT_EQ(umfPoolRealloc(pool, block, size), block);
        ASSERT_EQ(umfPoolMallocUsableSize(pool, block, &usable), UMF_RESULT_SUCCESS);
        EXPECT_EQ(usable, size);
    }
    void *behind = alloc(256 * K);
    ASSERT_EQ(behind, static_cast<char *>(block) + 1024 * K);
    void *moved = umfPoolRealloc(pool, block, 1024 * K + 1);
    ASSERT_NE(moved, nullptr);
    EXPECT_NE(moved, block) << "another block follows";
    EXPECT_EQ(static_cast<unsigned char *>(moved)[256 * K - 1], 0x5A);
    free(moved);
    free(behind);
    EXPECT_EQ(count(), 0u);
}

// A thread keeps two free blocks of a usual size. They count as free, and a trim returns them.
TEST_F(Jemalloc, AThreadKeepsFreeBlocks) {
    for (size_t size : {160 * K, 256 * K, 512 * K, 896 * K, 1024 * K}) {
        std::vector<void *> list;
        for (int i = 0; i < 5; i++) {
            list.push_back(alloc(size));
        }
        EXPECT_EQ(count(), 5u);
        for (void *p : list) {
            free(p);
            EXPECT_EQ(umfPoolFree(pool, p), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "a second free";
            EXPECT_EQ(umfPoolFree(pool, static_cast<char *>(p) + 4096),
                      UMF_RESULT_ERROR_INVALID_ARGUMENT);
        }
        EXPECT_EQ(count(), 0u);
        EXPECT_EQ(umfPoolTryMalloc(pool, size), nullptr);
        void *p = alloc(size), *q = alloc(size);
        EXPECT_EQ(p, list[1]) << "the thread has kept it";
        EXPECT_EQ(q, list[0]);
        EXPECT_EQ(count(), 2u);
        void *grown = umfPoolRealloc(pool, p, size + 64 * K);
        ASSERT_NE(grown, nullptr);
        free(grown);
        free(q);
        EXPECT_EQ(count(), 0u);
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(fake.live(), 0u) << "kept blocks were returned";
    OtherThread other;
    void *p = alloc(1024 * K);
    other([&] { free(p); });
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(fake.live(), 0u) << "those of other threads, too";
}

// Its neighbours can merge with them, and any thread gets them.
TEST_F(Jemalloc, BlocksOfAThreadThatEndsGoBack) {
    size_t allocs = 0;
    for (int round = 0; round < 4; round++) { // the first finds all that depots have, too
        void *p = nullptr, *q = nullptr;
        std::thread([&] {
            p = alloc(1024 * K);
            q = alloc(1024 * K);
            free(p);
            free(q);
        }).join();
        EXPECT_EQ(count(), 0u);
        void *both = alloc(2048 * K);
        EXPECT_EQ(both, std::min(p, q)) << round;
        free(both);
        allocs = round == 0 ? fake.allocs.load() : allocs;
    }
    EXPECT_EQ(fake.allocs, allocs);
}

TEST_F(Jemalloc, AFreeSpanIsKeptForTheNextTime) {
    size_t allocs = 0;
    for (int i = 0; i < 10; i++) {
        free(alloc(3 * 1024 * K));
        allocs = i == 0 ? fake.allocs.load() : allocs;
    }
    EXPECT_EQ(fake.allocs, allocs);
    EXPECT_EQ(fake.frees, 0u);
}

// Arenas are kept for later pools, and call nothing of the pool that had them.
TEST_F(Jemalloc, ArenasForgetTheHooksOfTheirPool) {
    if (!umf_je_mallctl) {
        GTEST_SKIP() << "jemalloc is not in this program";
    }
    const auto before = hooks_of_arenas();
    free(alloc(64));
    const auto during = hooks_of_arenas();
    std::set<void *> own;
    std::set_difference(during.begin(), during.end(), before.begin(), before.end(),
                        std::inserter(own, own.end()));
    close();
    pool = nullptr, provider = nullptr;
    for (void *hooks : hooks_of_arenas()) {
        EXPECT_EQ(own.count(hooks), 0u) << "they were in memory of the pool";
    }
    EXPECT_FALSE(own.empty());
}

TEST_F(Jemalloc, AProviderThatCannotPurgeIsAskedOnce) {
    DecayPeriod none(DecayPeriod::NONE);
    fake.can_purge = false;
    std::vector<void *> list(500);
    for (void *&p : list) {
        p = alloc(16 * K);
    }
    for (size_t i = 0; i < list.size(); i += 2) {
        free(list[i]);
    }
    use_lightly();
    EXPECT_EQ(fake.purges, 2u) << "with force, and without";
}

} // namespace
