// A second free of a large block that has found the span before the first one is done, and goes on
// when the memory is back at the provider.

#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <umf.h>
#include <umf/pools/pool_scalable.h>
#include <umf/text.h>

#include "fakes/fake_provider.h"

extern "C" {
#include "base/meta.h"
#include "object/object.h"
#include "object/provider/tracked_provider.h"
}

namespace {

uint64_t entry_of(const void *ptr) {
    return umf_map_find(&umf_map_global, reinterpret_cast<uintptr_t>(ptr));
}

// The free of a thread that has found `entry` before another one has freed `ptr`.
umf_result_t free_at(umf_memory_pool_handle_t pool, void *ptr, uint64_t entry) {
    return pool->fast->free_at(pool->self, ptr, entry);
}

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t MiB = size_t{1} << 20;

class LateFree : public testing::TestWithParam<const char *> {
  protected:
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        ASSERT_EQ(umfPoolCreateFromText(GetParam(), &pool), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
    }
    void *alloc(size_t size, size_t alignment) {
        void *p = umfPoolAlignedMalloc(pool, size, alignment);
        EXPECT_NE(p, nullptr);
        return p;
    }
    // Frees the block and returns the map entry of before.
    uint64_t freed(void *p) {
        uint64_t entry = entry_of(p);
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        umfPoolTrimMemory(pool, 0);
        return entry;
    }
};

TEST_P(LateFree, OfALargeBlockIsRefused) {
    for (size_t size : {size_t{200000}, 3 * MiB, 40 * MiB, 100 * MiB}) {
        for (size_t alignment : {size_t{0}, size_t{64}, size_t{8192}}) {
            void *p = alloc(size, alignment);
            uint64_t entry = freed(p);
            EXPECT_EQ(entry_of(p), 0u) << "it is at the provider";
            EXPECT_EQ(free_at(pool, p, entry), BAD) << size << " at " << alignment;
            EXPECT_EQ(umf_pool_free_at(pool, p), BAD) << size << " at " << alignment;
        }
    }
}

// A jemalloc pool does not check that a block is within its span: two instructions of every free.
class LateFreeBesideNext : public LateFree {};

// Memory of the first free is used again, for a block at another place.
TEST_P(LateFreeBesideNext, LeavesItAlone) {
    for (size_t size : {size_t{200000}, 3 * MiB, 40 * MiB, 100 * MiB}) {
        void *p = alloc(size, 0), *fence = alloc(size, 0);
        uint64_t entry = freed(p);
        void *next = alloc(size + 5000, 0);
        if (next != p) {
            EXPECT_EQ(free_at(pool, p, entry), BAD) << size;
        }
        EXPECT_EQ(umfPoolFree(pool, next), OK) << size;
        EXPECT_EQ(umfPoolFree(pool, fence), OK) << size;
    }
}

INSTANTIATE_TEST_SUITE_P(Pools, LateFree,
                         testing::Values("proxy over os", "disjoint over os", "coalescing over os",
                                         "jemalloc over os"));
INSTANTIATE_TEST_SUITE_P(Pools, LateFreeBesideNext,
                         testing::Values("proxy over os", "disjoint over os",
                                         "coalescing over os"));

// A pool keeps some descriptors for a late free, not all that it ever had.
TEST(LateFreeDisjoint, DescriptorsOfManyBlocksGoBack) {
    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("disjoint over os", &pool), OK);
    size_t used = umf_meta_used();
    std::vector<void *> blocks;
    for (size_t i = 0; i < 10000; i++) {
        blocks.push_back(umfPoolMalloc(pool, 200000));
        ASSERT_NE(blocks.back(), nullptr);
    }
    size_t live = umf_meta_used() - used;
    for (void *block : blocks) {
        EXPECT_EQ(umfPoolFree(pool, block), OK);
    }
    umfPoolTrimMemory(pool, 0);
    EXPECT_LT(umf_meta_used() - used, live / 2);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

// --- scalable: blocks that go back to the provider when they are freed ---

class LateFreeScalable : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        umf_result_t result = umfPoolCreate(umfScalablePoolOps(), provider, nullptr, 0, &pool);
        if (result == UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE) {
            GTEST_SKIP() << "libtbbmalloc.so.2 is not installed";
        }
        ASSERT_EQ(result, OK);
    }
    void TearDown() override {
        EXPECT_TRUE(!pool || umfPoolDestroy(pool) == OK);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    struct Freed {
        char *p;
        uint64_t entry; // as it was before
    };
    Freed freed(size_t size, size_t alignment) {
        auto p = static_cast<char *>(umfPoolAlignedMalloc(pool, size, alignment));
        EXPECT_NE(p, nullptr);
        Freed result = {p, entry_of(p)};
        EXPECT_EQ(umfPoolFree(pool, p), OK);
        EXPECT_EQ(entry_of(p), 0u) << "it is at the provider";
        return result;
    }
};

// Memory next to the block has another use by then.
TEST_F(LateFreeScalable, OfADirectBlock) {
    Freed block = freed(64 * MiB, 0);
    std::vector<void *> others;
    for (size_t i = 0; i < 100; i++) {
        others.push_back(umf_meta_alloc(48));
        memset(others.back(), 0x5a, 48);
    }
    EXPECT_EQ(free_at(pool, block.p, block.entry), BAD);
    for (void *other : others) {
        umf_meta_free(other, 48);
    }
    EXPECT_EQ(fake.frees, 1u);
}

// By a block that is as a rule below, then by one above: where there is room.
TEST_F(LateFreeScalable, OfADirectBlockWhoseDescriptorIsInUse) {
    for (bool is_above : {false, true}) {
        auto map = [](void *at, int flags) {
            return mmap(at, 65 * MiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
        };
        void *room = is_above ? map(nullptr, 0) : nullptr;
        Freed block = freed(64 * MiB, 0);
        void *taken = is_above ? room : map(block.p, 0);
        ASSERT_NE(taken, MAP_FAILED);
        EXPECT_TRUE(!is_above || munmap(room, 65 * MiB) == 0);
        void *other = umfPoolMalloc(pool, 64 * MiB);
        if (other != block.p) {
            ASSERT_EQ(entry_of(other), block.entry);
            EXPECT_EQ(free_at(pool, block.p, block.entry), BAD);
        }
        EXPECT_EQ(umfPoolFree(pool, other), OK);
        EXPECT_TRUE(is_above || munmap(taken, 65 * MiB) == 0);
    }
}

// The record of its span is so large that it would be unmapped when it is freed.
TEST_F(LateFreeScalable, OfALargeBlockOfOneTbb) {
    for (size_t alignment : {size_t{64}, 2 * MiB}) {
        for (size_t size : {64 * MiB, 100 * MiB, 200 * MiB}) {
            Freed block = freed(size, alignment);
            EXPECT_EQ(free_at(pool, block.p, block.entry), BAD) << size;
            EXPECT_EQ(free_at(pool, block.p + MiB, block.entry), BAD) << size;
        }
    }
}

TEST_F(LateFreeScalable, RecordsOfLargeBlocksAreUsedAgain) {
    freed(100 * MiB, 64);
    size_t used = umf_meta_used();
    for (size_t i = 0; i < 20; i++) {
        freed((100 - i) * MiB, 64);
    }
    EXPECT_LT(umf_meta_used() - used, 64u << 10) << "a record has 512 KiB";
}

} // namespace
