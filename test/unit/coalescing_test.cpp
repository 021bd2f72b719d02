/*
 * The coalescing pool: against a shadow model, and how it takes and gives back memory. What holds
 * for every pool is in conformance/pool_test.cpp, calloc and realloc out of the CPU's reach in
 * content_test.cpp.
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/text.h>

#include "fakes/decay_period.h"
#include "fakes/fake_provider.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fakes/threads.h"
#include "fault.h"

extern "C" {
#include "base/meta.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t KiB = 1024, MiB = 1024 * KiB;

struct Settings {
    size_t granule = 0, span_size = 0, retain = SIZE_MAX;
};

class Coalescing : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void create(const Settings &settings = {},
                umf_pool_create_flags_t flags = UMF_POOL_CREATE_FLAG_NONE) {
        if (!provider) {
            provider = fake.create();
        }
        umf_coalescing_pool_params_handle_t params = nullptr;
        ASSERT_EQ(umfCoalescingPoolParamsCreate(&params), OK);
        EXPECT_EQ(umfCoalescingPoolParamsSetGranule(params, settings.granule), OK);
        EXPECT_EQ(umfCoalescingPoolParamsSetSpanSize(params, settings.span_size), OK);
        EXPECT_EQ(umfCoalescingPoolParamsSetRetain(params, settings.retain), OK);
        EXPECT_EQ(umfPoolCreate(umfCoalescingPoolOps(), provider, params, flags, &pool), OK);
        EXPECT_EQ(umfCoalescingPoolParamsDestroy(params), OK);
    }
    umf_result_t destroy() {
        umf_result_t result = umfPoolDestroy(pool);
        pool = nullptr;
        return result;
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(destroy(), OK);
        }
        umfMemoryProviderDestroy(provider);
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(fake.mistakes, 0u);
    }
    size_t stat(const std::string &name) {
        size_t value = SIZE_MAX;
        EXPECT_EQ(
            umfCtlGet(("umf.pool.by_handle.{}.stats." + name).c_str(), &value, sizeof(value), pool),
            OK);
        return value;
    }
    char *alloc(size_t size) {
        char *p = static_cast<char *>(umfPoolMalloc(pool, size));
        EXPECT_NE(p, nullptr) << size;
        return p;
    }
    void free(void *p) {
        EXPECT_EQ(umfPoolFree(pool, p), OK);
    }
    umf_result_t last_error() {
        return umfPoolGetLastAllocationError(pool);
    }
};

// Live blocks by address, filled with a byte of their own.
class Shadow {
  public:
    struct Block {
        size_t size;
        char mark;
    };
    std::map<char *, Block> blocks;

    void add(char *p, size_t size, char mark) {
        auto after = blocks.lower_bound(p);
        ASSERT_TRUE(after == blocks.end() || p + size <= after->first) << "overlaps";
        if (after != blocks.begin()) {
            auto before = std::prev(after);
            ASSERT_LE(before->first + before->second.size, p) << "overlaps";
        }
        memset(p, mark, size);
        blocks[p] = {size, mark};
    }
    static bool holds(const char *p, size_t size, char mark) {
        return p[0] == mark && p[size / 2] == mark && p[size - 1] == mark;
    }
};

} // namespace

TEST_F(Coalescing, AgainstAShadow) {
    for (size_t granule : {size_t{8}, size_t{0}, 64 * KiB}) {
        create({granule});
        size_t step = granule ? granule : 512;
        std::mt19937_64 random(granule);
        Shadow shadow;
        char mark = 0;
        for (size_t round = 0; round < scaled(20000); round++) {
            size_t size = 1 + random() % (size_t{1} << random() % 19);
            unsigned what = random() % 8;
            if (what < 4 || shadow.blocks.empty()) {
                size_t alignment = what == 0 ? size_t{1} << random() % 17 : 1;
                char *p =
                    static_cast<char *>(what == 1 ? umfPoolCalloc(pool, 1, size)
                                                  : umfPoolAlignedMalloc(pool, size, alignment));
                ASSERT_NE(p, nullptr);
                ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
                ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % step, 0u);
                ASSERT_TRUE(what != 1 || Shadow::holds(p, size, 0));
                size_t usable = 0;
                ASSERT_EQ(umfPoolMallocUsableSize(pool, p, &usable), OK);
                ASSERT_EQ(usable, (size + step - 1) / step * step);
                shadow.add(p, size, ++mark);
                continue;
            }
            auto block = shadow.blocks.begin();
            std::advance(block, random() % shadow.blocks.size() % 64);
            char *p = block->first;
            Shadow::Block old = block->second;
            ASSERT_TRUE(Shadow::holds(p, old.size, old.mark));
            shadow.blocks.erase(block);
            if (what == 4) {
                char *moved = static_cast<char *>(umfPoolRealloc(pool, p, size));
                ASSERT_NE(moved, nullptr);
                ASSERT_TRUE(Shadow::holds(moved, std::min(size, old.size), old.mark));
                shadow.add(moved, size, ++mark);
            } else {
                free(p);
            }
            if (shadow.blocks.size() > 500) {
                while (shadow.blocks.size() > 100) {
                    free(shadow.blocks.begin()->first);
                    shadow.blocks.erase(shadow.blocks.begin());
                }
            }
        }
        for (auto &block : shadow.blocks) {
            free(block.first);
        }
        // Each span is one free piece again, so trimming leaves nothing.
        EXPECT_EQ(stat("used_memory"), 0u);
        EXPECT_EQ(stat("reserved_memory"), fake.live_bytes());
        EXPECT_EQ(stat("spans"), fake.live());
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(stat("reserved_memory"), 0u);
        EXPECT_EQ(destroy(), OK);
    }
}

TEST_F(Coalescing, NeighboursJoinInEveryOrder) {
    create();
    for (int order = 0; order < 6; order++) {
        const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
        char *blocks[] = {alloc(100 * KiB), alloc(200 * KiB), alloc(300 * KiB)};
        EXPECT_EQ(stat("largest_free"), 2 * MiB - 600 * KiB);
        for (int i : orders[order]) {
            free(blocks[i]);
        }
        EXPECT_EQ(stat("largest_free"), 2 * MiB);
        EXPECT_EQ(stat("spans"), 1u);
    }
}

TEST_F(Coalescing, TheSmallestPieceThatFitsIsSplit) {
    create();
    char *large = alloc(400 * KiB), *a = alloc(1 * KiB), *small = alloc(100 * KiB), *b = alloc(1);
    free(large);
    free(small);
    char *fits = alloc(90 * KiB);
    EXPECT_EQ(fits, small);
    EXPECT_EQ(alloc(10 * KiB), small + 90 * KiB) << "the rest is used";
    (void)a, (void)b;
}

// Bookkeeping never touches the memory of a pool: the memory here has no access.
TEST_F(Coalescing, NeverTouchesTheMemory) {
    fake.protection = PROT_NONE;
    create({0, 0, 4 * MiB});
    std::vector<void *> live;
    for (size_t i = 1; i < 2000; i++) {
        live.push_back(i % 5 ? umfPoolMalloc(pool, i * 37) : umfPoolAlignedMalloc(pool, i, 8192));
        ASSERT_NE(live.back(), nullptr);
        if (i % 3 == 0) {
            free(live[i / 2]);
            live[i / 2] = nullptr;
        }
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
}

TEST_F(Coalescing, WrongPointersAreRefused) {
    for (umf_pool_create_flags_t flags :
         {UMF_POOL_CREATE_FLAG_NONE, UMF_POOL_CREATE_FLAG_DISABLE_TRACKING}) {
        create({}, flags);
        char *p = alloc(10000), *q = alloc(10000);
        size_t size;
        for (char *wrong : {p + 1, p + 512, p + 9999, reinterpret_cast<char *>(&p),
                            reinterpret_cast<char *>(8)}) {
            EXPECT_EQ(umfPoolFree(pool, wrong), BAD);
            EXPECT_EQ(umfPoolMallocUsableSize(pool, wrong, &size), BAD);
            EXPECT_EQ(umfPoolRealloc(pool, wrong, 100), nullptr);
            EXPECT_EQ(umfPoolRealloc(pool, wrong, 0), nullptr);
            EXPECT_EQ(last_error(), BAD);
        }
        free(p);
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(umfPoolFree(pool, p), BAD) << "freed already";
        }
        EXPECT_EQ(umfPoolFree(pool, q + 512), BAD);
        free(q);
        EXPECT_EQ(umfPoolFree(pool, q), BAD);
        EXPECT_EQ(umfPoolFree(pool, nullptr), OK);
        EXPECT_EQ(umfPoolMallocUsableSize(pool, nullptr, nullptr), BAD);
        EXPECT_EQ(destroy(), OK);
    }
}

TEST_F(Coalescing, MemoryAtHandNeedsNoCall) {
    create();
    free(alloc(64 * MiB));
    size_t calls = fake.allocs + fake.frees;
    for (size_t size : {1 * KiB, 1 * MiB, 64 * MiB}) {
        free(alloc(size));
    }
    EXPECT_EQ(fake.allocs + fake.frees, calls);
}

TEST_F(Coalescing, SpansGrowWithThePool) {
    create({0, 1 * MiB});
    alloc(1);
    EXPECT_EQ(fake.last_size, 1 * MiB);
    EXPECT_EQ(fake.last_alignment, 512u);
    alloc(100 * MiB);
    EXPECT_EQ(fake.last_size, 100 * MiB) << "no rest";
    alloc(2 * MiB);
    EXPECT_EQ(fake.last_size, 6 * MiB) << "a sixteenth, in whole blocks";
    alloc(5 * MiB + 1);
    EXPECT_EQ(fake.last_size, 5 * MiB + 4 * KiB) << "whole pages";
}

TEST_F(Coalescing, ASpanMakesRoomForALargerOne) {
    create();
    for (size_t size = 4 * MiB; size < 512 * MiB; size += size / 2) {
        free(alloc(size));
        EXPECT_LE(fake.live_bytes(), size + 4 * MiB) << "the region that was too small is released";
    }
}

TEST_F(Coalescing, FreeSpansGoBeforeMemoryIsOut) {
    fake.limit = 12 * MiB;
    create({0, 4 * MiB});
    char *a = alloc(3 * MiB), *b = alloc(3 * MiB);
    EXPECT_EQ(fake.live_bytes(), 8 * MiB);
    EXPECT_EQ(umfPoolMalloc(pool, 5 * MiB), nullptr);
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    free(a);
    char *c = alloc(7 * MiB);
    EXPECT_EQ(fake.live_bytes(), 11 * MiB);
    EXPECT_EQ(umfPoolFree(pool, b), OK);
    char *e = alloc(4 * MiB + 512 * KiB);
    EXPECT_LE(fake.live_bytes(), 12 * MiB) << "just what it needs";
    free(c);
    free(e);
}

TEST_F(Coalescing, AtTheLimitJustWhatIsNeeded) {
    fake.limit = 5 * MiB;
    create({0, 4 * MiB});
    alloc(3 * MiB);
    char *p = alloc(1 * MiB);
    EXPECT_NE(p, nullptr);
    char *q = alloc(1 * MiB - 1);
    EXPECT_NE(q, nullptr);
    EXPECT_EQ(fake.live_bytes(), 5 * MiB);
    EXPECT_EQ(umfPoolMalloc(pool, 1), nullptr);
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
}

TEST_F(Coalescing, Retain) {
    create({0, 2 * MiB, 0});
    char *p = alloc(5 * MiB), *q = alloc(3 * MiB);
    free(p);
    EXPECT_EQ(stat("spans"), 1u) << "goes at once";
    free(q);
    EXPECT_EQ(fake.live(), 0u);
    EXPECT_EQ(destroy(), OK);
    create({0, 2 * MiB, 6 * MiB});
    p = alloc(5 * MiB);
    q = alloc(3 * MiB);
    free(p);
    EXPECT_EQ(fake.live_bytes(), 8 * MiB) << "may be kept";
    free(q);
    EXPECT_LE(fake.live_bytes(), 6 * MiB);
    EXPECT_GE(fake.live_bytes(), 3 * MiB);
}

TEST_F(Coalescing, TrimKeepsWhatItIsTold) {
    create();
    std::vector<char *> blocks;
    for (size_t i = 1; i <= 8; i++) {
        blocks.push_back(alloc(i * 2 * MiB));
    }
    size_t held = fake.live_bytes();
    for (char *p : blocks) {
        free(p);
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, SIZE_MAX), OK);
    EXPECT_EQ(fake.live_bytes(), held);
    EXPECT_EQ(umfPoolTrimMemory(pool, 20 * MiB), OK);
    EXPECT_GE(fake.live_bytes(), 20 * MiB);
    EXPECT_LT(fake.live_bytes(), 36 * MiB);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// Free memory between blocks in use is purged as far as the provider can; the blocks stay.
TEST_F(Coalescing, TrimPurgesFreePages) {
    create();
    std::vector<char *> blocks;
    for (int i = 0; i < 200; i++) {
        blocks.push_back(alloc(10000));
        memset(blocks.back(), 0x77, 10000);
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        if (i % 10) {
            free(blocks[i]);
        }
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, SIZE_MAX), OK);
    EXPECT_EQ(fake.purges, 0u);
    size_t used = stat("used_memory"), largest = stat("largest_free");
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_GE(fake.purges, 20u);
    EXPECT_EQ(stat("used_memory"), used);
    EXPECT_EQ(stat("largest_free"), largest);
    EXPECT_EQ(blocks[1][8000], 0) << "dropped";
    for (size_t i = 0; i < blocks.size(); i += 10) {
        EXPECT_TRUE(Shadow::holds(blocks[i], 10000, 0x77));
        EXPECT_EQ(umfPoolFree(pool, blocks[i + 1]), BAD);
        free(blocks[i]);
    }
    fake.can_purge = false;
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// The same without a trim, for pages that were free at two decay passes. Hits are the clock.
TEST_F(Coalescing, FreePagesDecay) {
    DecayPeriod none(DecayPeriod::NONE);
    create();
    auto hit = [&](int n) {
        for (int i = 0; i < n; i++) {
            free(alloc(10000));
        }
    };
    std::vector<char *> blocks;
    for (int i = 0; i < 200; i++) {
        blocks.push_back(alloc(10000));
        memset(blocks.back(), 0x77, 10000);
    }
    OtherThread other;
    other([&] { // reserved, by a thread that does nothing afterwards
        free(blocks[5]);
        blocks[5] = alloc(10000);
        free(blocks[5]);
    });
    for (size_t i = 0; i < blocks.size(); i++) {
        if (i % 10 && i != 5) {
            free(blocks[i]);
        }
    }
    hit(4 * 4096);
    EXPECT_GE(fake.purges, 20u);
    EXPECT_EQ(blocks[5][8000], 0) << "dropped";
    EXPECT_EQ(blocks[15][8000], 0) << "dropped";
    for (size_t i = 0; i < blocks.size(); i += 10) {
        EXPECT_TRUE(Shadow::holds(blocks[i], 10000, 0x77));
    }
    size_t purges = fake.purges;
    hit(4 * 4096);
    EXPECT_LE(fake.purges, purges + 8) << "purged memory is not purged again";
    fake.can_purge = false;
    hit(4 * 4096);
}

TEST_F(Coalescing, BookkeepingDecays) {
    DecayPeriod none(DecayPeriod::NONE);
    create();
    const size_t before = umf_meta_used();
    std::vector<char *> blocks(50000);
    for (char *&block : blocks) {
        block = alloc(64);
    }
    const size_t full = umf_meta_used() - before;
    for (char *block : blocks) {
        free(block);
    }
    for (int i = 0; i < 4 * 4096; i++) {
        free(alloc(64));
    }
    EXPECT_LT(umf_meta_used() - before, full / 3);
}

TEST_F(Coalescing, TrimFreesBookkeeping) {
    create();
    size_t before = umf_meta_used();
    std::vector<char *> blocks(50000);
    for (char *&block : blocks) {
        block = alloc(64);
    }
    size_t full = umf_meta_used() - before;
    for (char *block : blocks) {
        free(block);
    }
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_LT(umf_meta_used() - before, full / 10);
    free(alloc(64));
}

static decltype(umf_memory_provider_ops_t::alloc) fake_alloc;
static decltype(umf_memory_provider_ops_t::ext_purge_force) fake_purge;

// Calls of the provider continue while another thread frees a block.
class CoalescingMeanwhile : public Coalescing {
  protected:
    static inline umf_memory_pool_handle_t in_use;
    static inline void *to_free;

    static void free_meanwhile() {
        if (to_free) {
            EXPECT_EQ(umfPoolFree(in_use, std::exchange(to_free, nullptr)), OK);
        }
    }
    void SetUp() override {
        umf_memory_provider_ops_t ops = FakeProvider::table();
        fake_alloc = ops.alloc;
        fake_purge = ops.ext_purge_force;
        ops.alloc = [](void *self, size_t size, size_t alignment, void **ptr) {
            free_meanwhile();
            return fake_alloc(self, size, alignment, ptr);
        };
        ops.ext_purge_force = [](void *self, void *ptr, size_t size) {
            free_meanwhile();
            return fake_purge(self, ptr, size);
        };
        ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
        create({0, 0, 0});
        in_use = pool;
    }
};

TEST_F(CoalescingMeanwhile, TrimEndsWithWhatIsFreeByThen) {
    to_free = alloc(100 * KiB);
    EXPECT_EQ(umfPoolTrimMemory(pool, 64 * MiB), OK);
    EXPECT_EQ(to_free, nullptr);
    EXPECT_EQ(fake.live(), 0u) << "nothing is retained";
}

TEST_F(CoalescingMeanwhile, ANewSpanGoesIfItIsNotNeeded) {
    char *large = alloc(1536 * KiB), *small = alloc(300 * KiB);
    to_free = large;
    EXPECT_EQ(alloc(1 * MiB), large) << "fits better";
    EXPECT_EQ(fake.live(), 1u);
    free(large);
    free(small);
}

// A fork while a trim has pieces in hand: the thread that would put them back did not come along.
TEST_F(Coalescing, AChildGetsBackWhatATrimHadInHand) {
    static umf_memory_pool_handle_t trimmed;
    static char *used;
    static pid_t child;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    fake_purge = ops.ext_purge_force;
    child = -1;
    ops.ext_purge_force = [](void *self, void *ptr, size_t size) {
        if (child == -1 && (child = fork()) == 0) {
            alarm(60);
            bool is_good = umfPoolFree(trimmed, used) == OK && umfPoolTrimMemory(trimmed, 0) == OK;
            _exit(is_good && static_cast<FakeProvider *>(self)->live() == 0 ? 0 : 1);
        }
        return fake_purge(self, ptr, size);
    };
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    create();
    trimmed = pool;
    char *unused = alloc(100 * KiB);
    used = alloc(100 * KiB);
    free(unused);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    free(used);
}

TEST_F(Coalescing, ASpanTheProviderDoesNotTakeIsUsedOn) {
    create({0, 0, 0});
    char *p = alloc(5 * MiB);
    fake.free_fails = true;
    fake.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    free(p);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(stat("reserved_memory"), 5 * MiB);
    EXPECT_EQ(umfPoolFree(pool, p), BAD);
    EXPECT_EQ(alloc(5 * MiB), p);
    EXPECT_EQ(fake.allocs, 1u);
    free(p);
    EXPECT_EQ(destroy(), UMF_RESULT_ERROR_USER_SPECIFIC);
    fake.free_fails = false;
    EXPECT_EQ(umfMemoryProviderFree(provider, p, 5 * MiB), OK);
}

TEST_F(Coalescing, ShrinkingFreesTheTail) {
    create();
    char *p = alloc(1 * MiB);
    memset(p, 0x11, 1 * MiB);
    EXPECT_EQ(umfPoolRealloc(pool, p, 100 * KiB), p);
    EXPECT_EQ(stat("used_memory"), 100 * KiB);
    EXPECT_EQ(alloc(900 * KiB), p + 100 * KiB);
    char *moved = static_cast<char *>(umfPoolRealloc(pool, p, 200 * KiB));
    ASSERT_NE(moved, nullptr);
    EXPECT_NE(moved, p);
    EXPECT_EQ(moved[100 * KiB - 1], 0x11);
}

// As drivers of GPUs do.
TEST_F(Coalescing, AProviderThatAlignsToItsPageOnly) {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    fake_alloc = ops.alloc;
    ops.alloc = [](void *self, size_t size, size_t alignment, void **ptr) {
        return alignment > 4096 ? UMF_RESULT_ERROR_NOT_SUPPORTED
                                : fake_alloc(self, size, alignment, ptr);
    };
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    create();
    for (size_t alignment = 8; alignment <= 64 * MiB; alignment *= 2) {
        void *p = umfPoolAlignedMalloc(pool, 3 * MiB, alignment);
        ASSERT_NE(p, nullptr) << alignment;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
        free(p);
    }
}

TEST_F(Coalescing, SizesOutOfThisWorld) {
    create();
    for (size_t size : {SIZE_MAX, SIZE_MAX - 511, SIZE_MAX - 4096, SIZE_MAX / 2}) {
        EXPECT_EQ(umfPoolMalloc(pool, size), nullptr);
        EXPECT_EQ(last_error(), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        EXPECT_EQ(umfPoolAlignedMalloc(pool, size, size_t{1} << 40), nullptr);
    }
    EXPECT_EQ(umfPoolCalloc(pool, SIZE_MAX / 2, 3), nullptr);
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 1, size_t{1} << 63), nullptr);
    EXPECT_EQ(umfPoolAlignedMalloc(pool, 100, 48), nullptr);
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    void *p = umfPoolMalloc(pool, 0), *q = umfPoolMalloc(pool, 0);
    EXPECT_NE(p, nullptr);
    EXPECT_NE(p, q);
    free(p);
    free(q);
}

TEST_F(Coalescing, GranuleFollowsTheProvider) {
    fake.cache_line = 4096;
    create();
    alloc(1);
    EXPECT_EQ(stat("used_memory"), 4096u);
    size_t granule = 0;
    EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.params.granule", &granule, sizeof(granule), pool),
              OK);
    EXPECT_EQ(granule, 4096u);
}

TEST_F(Coalescing, Settings) {
    umf_coalescing_pool_params_handle_t params = nullptr;
    EXPECT_EQ(umfCoalescingPoolParamsCreate(nullptr), BAD);
    EXPECT_EQ(umfCoalescingPoolParamsSetGranule(nullptr, 512), BAD);
    EXPECT_EQ(umfCoalescingPoolParamsSetSpanSize(nullptr, 1), BAD);
    EXPECT_EQ(umfCoalescingPoolParamsSetRetain(nullptr, 1), BAD);
    EXPECT_EQ(umfCoalescingPoolParamsSetName(nullptr, "x"), BAD);
    EXPECT_EQ(umfCoalescingPoolParamsDestroy(nullptr), OK);
    ASSERT_EQ(umfCoalescingPoolParamsCreate(&params), OK);
    EXPECT_EQ(umfCoalescingPoolParamsSetName(params, nullptr), BAD);
    for (size_t granule : {size_t{1}, size_t{4}, size_t{24}, size_t{2} << 30}) {
        EXPECT_EQ(umfCoalescingPoolParamsSetGranule(params, granule), BAD);
    }
    EXPECT_EQ(umfCoalescingPoolParamsDestroy(params), OK);

    ASSERT_EQ(umfPoolCreateFromText(
                  "coalescing:granule=64,span_size=3M,retain=1M,name=large over os", &pool),
              OK);
    const char *name = nullptr;
    EXPECT_EQ(umfPoolGetName(pool, &name), OK);
    EXPECT_STREQ(name, "large");
    free(alloc(1));
    EXPECT_EQ(stat("reserved_memory"), 0u) << "above the retained size";
    alloc(1);
    EXPECT_EQ(stat("used_memory"), 64u);
    EXPECT_EQ(stat("reserved_memory"), 3 * MiB);
    size_t late = 128;
    EXPECT_EQ(umfCtlSet("umf.pool.by_handle.{}.params.granule", &late, sizeof(late), pool),
              UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(destroy(), OK);
    EXPECT_EQ(umfPoolCreateFromText("coalescing:granule=100 over os", &pool), BAD);
    pool = nullptr;

    // A name of its own: later pools have it too.
    size_t span = 8 * MiB;
    ASSERT_EQ(umfCtlSet("umf.pool.default.settings.params.span_size", &span, sizeof(span)), OK);
    ASSERT_EQ(umfPoolCreateFromText("coalescing:name=settings over os", &pool), OK);
    alloc(1);
    EXPECT_EQ(stat("reserved_memory"), span);
}

// Whichever call of the system fails, nothing is lost.
TEST_F(Coalescing, EveryFailureOfTheSystem) {
    provider = fake.create();
    for (fault::Nth nth; nth.next();) {
        if (umfPoolCreate(umfCoalescingPoolOps(), provider, nullptr, 0, &pool) != OK) {
            continue;
        }
        std::vector<void *> live;
        for (size_t i = 0; i < 3000; i++) {
            void *p = umfPoolMalloc(pool, i % 100 == 0 ? 3 * MiB : 1 + i);
            if (p) {
                live.push_back(p);
            }
        }
        EXPECT_GT(live.size(), 2900u);
        for (void *p : live) {
            free(p);
        }
        EXPECT_EQ(stat("used_memory"), 0u);
        nth.off();
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(fake.live(), 0u) << "the span of a failed request";
        EXPECT_EQ(destroy(), OK);
        ASSERT_EQ(fake.live(), 0u);
    }
}

TEST_F(Coalescing, EveryFailureOfTheProvider) {
    for (long n = 0; n < 40; n++) {
        create({0, 1 * MiB, 0});
        fake.allocs_until_failure = n;
        std::vector<void *> live;
        for (size_t i = 1; i < 60; i++) {
            void *p = umfPoolMalloc(pool, i * 50 * KiB);
            if (p) {
                live.push_back(p);
            }
        }
        EXPECT_EQ(live.size(), 59u) << "a second, smaller request";
        for (void *p : live) {
            free(p);
        }
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(destroy(), OK);
    }
}

TEST_F(Coalescing, Threads) {
    create({0, 2 * MiB, 4 * MiB});
    run_threads<unsigned>(4, [this](unsigned t) {
        std::mt19937 random(t);
        std::vector<std::pair<char *, size_t>> live;
        for (size_t i = 0; i < scaled(5000); i++) {
            if (live.size() < 20 && random() % 2) {
                size_t size = 1 + random() % (400 * KiB);
                live.push_back({alloc(size), size});
                memset(live.back().first, static_cast<int>(t), std::min(size, 100 * KiB));
            } else if (!live.empty()) {
                auto &at = live[random() % live.size()];
                ASSERT_EQ(at.first[0], static_cast<char>(t));
                free(at.first);
                at = live.back();
                live.pop_back();
            }
            if (i % 500 == 0) {
                umfPoolTrimMemory(pool, 0);
            }
        }
        for (auto &at : live) {
            free(at.first);
        }
    });
    EXPECT_EQ(stat("used_memory"), 0u);
    EXPECT_LE(fake.live_bytes(), 4 * MiB);
}

// A thread that takes and frees one size again and again gets its block without the lock. Nobody
// can distinguish that from a free block.
class CoalescingHot : public Coalescing {
  protected:
    static constexpr size_t SIZE = 300 * KiB;

    // Freed, but waiting for this thread.
    char *parked(size_t size = SIZE) {
        char *p = alloc(size);
        for (int i = 0; i < 5; i++) {
            free(p);
            EXPECT_EQ(alloc(size), p);
        }
        free(p);
        return p;
    }
};

TEST_F(CoalescingHot, IsRefusedWhenFreedAgain) {
    create();
    char *other = alloc(SIZE);
    char *p = parked();
    size_t size;
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(umfPoolFree(pool, p), BAD);
        EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &size), BAD);
        EXPECT_EQ(umfPoolRealloc(pool, p, 100), nullptr);
        std::thread([&] { EXPECT_EQ(umfPoolFree(pool, p), BAD); }).join();
    }
    EXPECT_EQ(alloc(SIZE), p);
    EXPECT_NE(alloc(SIZE), p);
    free(p);
    free(other);
}

TEST_F(CoalescingHot, CountsAsFree) {
    create();
    for (int i = 0; i < 3; i++) {
        parked();
        EXPECT_EQ(stat("used_memory"), 0u);
        parked();
        EXPECT_EQ(stat("largest_free"), 2 * MiB);
        parked();
        size_t count = SIZE_MAX;
        EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool),
                  OK);
        EXPECT_EQ(count, 0u);
    }
    parked();
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_F(CoalescingHot, ServesOthersBeforeTheProviderIsAsked) {
    create();
    char *p = parked(1500 * KiB);
    EXPECT_EQ(fake.allocs, 1u);
    std::thread([&] {
        char *all = alloc(2 * MiB);
        EXPECT_EQ(all, p);
        EXPECT_EQ(fake.allocs, 1u);
        free(all);
    }).join();
    EXPECT_EQ(alloc(1500 * KiB), p) << "without its ticket";
    free(p);
}

TEST_F(CoalescingHot, MayBeFreedByAnother) {
    create();
    char *p = parked();
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(alloc(SIZE), p);
        std::thread([&] {
            free(p);
            EXPECT_EQ(umfPoolFree(pool, p), BAD);
        }).join();
        EXPECT_EQ(umfPoolFree(pool, p), BAD);
    }
    // The address begins something else now.
    char *small = alloc(1 * KiB);
    ASSERT_EQ(small, p);
    free(small);
    EXPECT_EQ(alloc(SIZE), p);
    EXPECT_EQ(stat("used_memory"), SIZE);
    free(p);
}

TEST_F(CoalescingHot, GoesWithItsThread) {
    create();
    std::thread([&] { parked(); }).join();
    EXPECT_EQ(umfPoolTrimMemory(pool, SIZE_MAX), OK);
    char *all = alloc(2 * MiB);
    EXPECT_EQ(fake.allocs, 1u);
    free(all);
    std::thread([&] { parked(); }).join();
    EXPECT_EQ(destroy(), OK);
}

// A shrunk block is another one.
TEST_F(CoalescingHot, MayShrink) {
    create();
    char *p = parked();
    EXPECT_EQ(alloc(SIZE), p);
    EXPECT_EQ(umfPoolRealloc(pool, p, 4 * KiB), p);
    free(p);
    EXPECT_EQ(stat("used_memory"), 0u);
    EXPECT_EQ(stat("largest_free"), 2 * MiB);
    char *a = alloc(SIZE), *b = alloc(4 * KiB);
    EXPECT_EQ(stat("used_memory"), SIZE + 4 * KiB);
    free(a);
    free(b);
}

TEST_F(CoalescingHot, MoreBlocksThanAreRemembered) {
    create();
    std::vector<char *> blocks(20);
    for (size_t round = 0; round < 20; round++) {
        for (size_t i = 0; i < blocks.size(); i++) {
            blocks[i] = alloc((i % 7 + 1) * 4 * KiB);
            memset(blocks[i], static_cast<int>(i), 4 * KiB);
        }
        for (size_t i = 0; i < blocks.size(); i++) {
            size_t at = round % 2 ? i : blocks.size() - 1 - i;
            EXPECT_EQ(blocks[at][4095], static_cast<char>(at));
            free(blocks[at]);
            parked(64 * KiB);
        }
    }
    EXPECT_EQ(stat("used_memory"), 0u);
    EXPECT_EQ(stat("largest_free"), 2 * MiB);
}

TEST_F(CoalescingHot, NotWhereSpansGoBack) {
    create({0, 2 * MiB, 0});
    for (int i = 0; i < 6; i++) {
        free(alloc(SIZE));
        EXPECT_EQ(fake.live(), 0u);
    }
}

// Each thread has its block; one takes all there is again and again.
TEST_F(CoalescingHot, Threads) {
    fake.limit = 8 * MiB;
    create();
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; t++) {
        threads.emplace_back([&, t] {
            for (size_t i = 0; i < scaled(20000); i++) {
                char *p = static_cast<char *>(umfPoolMalloc(pool, SIZE));
                if (p) {
                    p[0] = p[SIZE - 1] = static_cast<char>(t);
                    ASSERT_EQ(p[0], static_cast<char>(t));
                    ASSERT_EQ(p[SIZE - 1], static_cast<char>(t));
                    free(p);
                }
            }
            is_over = true;
        });
    }
    while (!is_over) {
        char *p = static_cast<char *>(umfPoolMalloc(pool, 6 * MiB));
        if (p) {
            p[0] = p[6 * MiB - 1] = 9;
            ASSERT_EQ(p[6 * MiB - 1], 9);
            free(p);
        }
        stat("largest_free");
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(stat("used_memory"), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// Two threads free one block: one of them gets an error.
TEST_F(CoalescingHot, FreedTwiceAtOnce) {
    create();
    for (size_t round = 0; round < scaled(2000); round++) {
        parked();
        char *p = alloc(SIZE);
        std::atomic<int> ready{0}, freed{0};
        auto work = [&] {
            for (ready++; ready < 2;) {
            }
            freed += umfPoolFree(pool, p) == OK;
        };
        std::thread other(work);
        work();
        other.join();
        ASSERT_EQ(freed, 1);
        ASSERT_EQ(stat("used_memory"), 0u);
    }
}

// A thread that frees many small blocks keeps them. Nobody can distinguish that from free blocks.
class CoalescingKept : public Coalescing {
  protected:
    static constexpr size_t SIZE = 64, COUNT = 600;

    std::vector<char *> take(size_t count = COUNT, size_t size = SIZE) {
        std::vector<char *> blocks(count);
        for (char *&block : blocks) {
            block = alloc(size);
        }
        return blocks;
    }
    // In an order of their own: neighbours do not follow each other.
    void give(std::vector<char *> blocks) {
        std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
        for (char *block : blocks) {
            free(block);
        }
    }
    // From now on this thread keeps small blocks.
    void begin() {
        give(take());
    }
    // Two free neighbours are one segment, of which the lower part is used first; of two kept
    // blocks the last is taken.
    bool keeps() {
        char *a = alloc(SIZE), *b = alloc(SIZE);
        if (a > b) {
            std::swap(a, b);
        }
        free(a);
        free(b);
        char *first = alloc(SIZE), *second = alloc(SIZE);
        bool is_kept = first == b && second == a;
        free(first);
        free(second);
        return is_kept;
    }
    size_t count() {
        size_t count = SIZE_MAX;
        EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool),
                  OK);
        return count;
    }
};

TEST_F(CoalescingKept, OnlyAfterManyFrees) {
    create();
    EXPECT_FALSE(keeps());
    begin();
    EXPECT_TRUE(keeps());
    EXPECT_EQ(stat("used_memory"), 0u);
}

TEST_F(CoalescingKept, AreRefusedWhenFreedAgain) {
    create();
    begin();
    std::vector<char *> blocks = take();
    give(blocks);
    size_t size;
    for (char *block : blocks) {
        ASSERT_EQ(umfPoolFree(pool, block), BAD);
        ASSERT_EQ(umfPoolFree(pool, block + 8), BAD);
        ASSERT_EQ(umfPoolMallocUsableSize(pool, block, &size), BAD);
    }
    EXPECT_EQ(umfPoolRealloc(pool, blocks[0], 100), nullptr);
    std::thread([&] {
        for (char *block : blocks) {
            ASSERT_EQ(umfPoolFree(pool, block), BAD);
        }
    }).join();
    EXPECT_EQ(count(), 0u);
    give(take());
    EXPECT_EQ(count(), 0u);
}

// While a trim purges a free block, it is neither free nor used.
TEST_F(CoalescingKept, AreRefusedWhenFreedAgainInATrim) {
    static umf_memory_pool_handle_t trimmed;
    static size_t freed, refused;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    fake_purge = ops.ext_purge_force;
    ops.ext_purge_force = [](void *self, void *ptr, size_t size) {
        (umfPoolFree(trimmed, ptr) == OK ? freed : refused)++;
        return fake_purge(self, ptr, size);
    };
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    create();
    trimmed = pool;
    freed = refused = 0;
    give(take(100, 4 * KiB)); // from now on this thread keeps blocks of this size
    std::vector<char *> blocks = take(100, 4 * KiB), odd;
    std::sort(blocks.begin(), blocks.end());
    for (size_t i = 1; i < blocks.size(); i += 2) {
        odd.push_back(blocks[i]);
    }
    give(odd);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_GE(refused, odd.size());
    EXPECT_EQ(freed, 0u);
    for (size_t i = 0; i < blocks.size(); i += 2) {
        free(blocks[i]);
    }
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// A request that is about to fail searches after the threads have freed what they keep. What a
// thread frees in between must not be hidden from the search.
TEST_F(CoalescingKept, AreNotMissedByARequestThatFails) {
    static std::function<void()> free_hook;
    static decltype(umf_memory_provider_ops_t::free) fake_free;
    umf_memory_provider_ops_t ops = FakeProvider::table();
    fake_free = ops.free;
    ops.free = [](void *self, void *ptr, size_t size) {
        if (free_hook) {
            free_hook();
        }
        return fake_free(self, ptr, size);
    };
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &fake, &provider), OK);
    create({0, 8 * KiB});
    const size_t alignment = 16 * size_t(sysconf(_SC_PAGESIZE));
    void *wanted = nullptr, *neighbour = nullptr;
    OtherThread other;
    other([&] {
        give(take(COUNT, 4 * KiB)); // from now on it keeps blocks of this size
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        wanted = umfPoolAlignedMalloc(pool, 4 * KiB, alignment);
        neighbour = alloc(4 * KiB); // the rest of the span
    });
    // The first two that go back are of no use to the request.
    std::vector<char *> spans = take(8, 8 * KiB), aligned;
    for (char *span : spans) {
        uintptr_t after_gap = (reinterpret_cast<uintptr_t>(span) + 4 * KiB) % alignment;
        after_gap <= 4 * KiB ? aligned.push_back(span) : free(span);
    }
    size_t before = fake.frees;
    fake.alloc_fails = true;
    free_hook = [&] { // the second is in the final retry
        if (fake.frees - before == 1) {
            other([&] { free(wanted); });
        }
    };
    void *got = umfPoolAlignedMalloc(pool, 4 * KiB, alignment);
    free_hook = nullptr;
    EXPECT_GE(fake.frees - before, 2u);
    EXPECT_EQ(got, wanted);
    for (char *block : aligned) {
        free(block);
    }
    free(neighbour);
    EXPECT_EQ(umfPoolFree(pool, got), OK);
}

TEST_F(CoalescingKept, CountAsFree) {
    create();
    begin();
    for (int i = 0; i < 3; i++) {
        begin();
        EXPECT_EQ(stat("used_memory"), 0u);
        begin();
        EXPECT_EQ(stat("largest_free"), 2 * MiB);
        std::vector<char *> blocks = take();
        EXPECT_EQ(count(), COUNT);
        give(blocks);
        EXPECT_EQ(count(), 0u);
    }
    begin();
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// Every byte of the span was in small blocks.
TEST_F(CoalescingKept, ServeOthersBeforeTheProviderIsAsked) {
    create();
    for (int i = 0; i < 3; i++) {
        give(take(4096, 512));
        EXPECT_EQ(fake.allocs, 1u);
        std::thread([&] { free(alloc(2 * MiB)); }).join();
        EXPECT_EQ(fake.allocs, 1u);
    }
    give(take(4096, 512));
    give(take(1800, 1024)); // of this thread's own, in another size
    EXPECT_EQ(fake.allocs, 1u);
}

// Blocks that went while they were kept begin something else now.
TEST_F(CoalescingKept, ComeBackWithAnotherSize) {
    create();
    Shadow live;
    for (size_t round = 0; round < 12; round++) {
        size_t size = (round % 4 + 1) * 512;
        std::vector<char *> blocks = take(COUNT, size);
        for (char *block : blocks) {
            live.add(block, size, static_cast<char>(round));
        }
        live.blocks.clear();
        give(blocks);
        if (round % 3 == 0) {
            EXPECT_EQ(stat("used_memory"), 0u);
        }
    }
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(stat("largest_free"), 2 * MiB);
}

TEST_F(CoalescingKept, MayBeFreedByAnother) {
    create();
    begin();
    std::vector<char *> blocks = take();
    std::thread([&] {
        give(blocks);
        for (char *block : blocks) {
            ASSERT_EQ(umfPoolFree(pool, block), BAD);
        }
    }).join();
    for (char *block : blocks) {
        ASSERT_EQ(umfPoolFree(pool, block), BAD);
    }
    EXPECT_EQ(count(), 0u);
}

TEST_F(CoalescingKept, GoWithTheirThread) {
    create();
    std::vector<char *> used;
    std::thread([&] {
        begin();
        used = take(100);
        begin();
    }).join();
    EXPECT_EQ(stat("used_memory"), 100u * 512);
    give(used);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
    size_t before = umf_meta_used();
    std::thread([&] { begin(); }).join();
    EXPECT_LT(umf_meta_used(), before + 48 * KiB) << "the table of the thread is freed";
    begin();
    EXPECT_EQ(destroy(), OK) << "while this thread keeps blocks";
}

// A shrunk block is another one.
TEST_F(CoalescingKept, MayShrink) {
    create();
    give(take(COUNT, 2048));
    char *p = alloc(2048);
    EXPECT_EQ(umfPoolRealloc(pool, p, 512), p);
    size_t size = 0;
    EXPECT_EQ(umfPoolMallocUsableSize(pool, p, &size), OK);
    EXPECT_EQ(size, 512u);
    free(p);
    EXPECT_EQ(stat("used_memory"), 0u);
}

// 64 blocks of 32 KiB fit in the span only if nothing is between them.
TEST_F(CoalescingKept, JoinForALargerRequest) {
    create();
    for (size_t size : {512, 2048, 4096}) {
        give(take(2 * MiB / size, size));
        EXPECT_TRUE(keeps());
        std::vector<char *> blocks = take(64, 32 * KiB);
        EXPECT_EQ(fake.allocs, 1u);
        give(blocks);
    }
}

// A block that alone is freed and allocated again goes to the reuse slot: a trim finds it free.
TEST_F(CoalescingKept, GoToTheSlot) {
    create();
    begin();
    char *p = alloc(SIZE);
    for (int i = 0; i < 10; i++) {
        free(p);
        ASSERT_EQ(umfPoolFree(pool, p), BAD);
        ASSERT_EQ(alloc(SIZE), p);
    }
    free(p);
    EXPECT_EQ(umfPoolFree(pool, p), BAD);
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_F(CoalescingKept, MoreBlocksThanAreRemembered) {
    create();
    begin();
    std::vector<char *> blocks = take(10000);
    std::mt19937 random(3);
    for (size_t i = 0; i < 30000; i++) {
        char *&block = blocks[random() % blocks.size()];
        free(block);
        block = alloc(SIZE);
    }
    EXPECT_EQ(count(), blocks.size());
    std::sort(blocks.begin(), blocks.end());
    EXPECT_EQ(std::adjacent_find(blocks.begin(), blocks.end()), blocks.end());
    give(blocks);
    EXPECT_EQ(stat("used_memory"), 0u);
}

TEST_F(CoalescingKept, NotWhereSpansGoBack) {
    create({0, 2 * MiB, 0});
    begin();
    EXPECT_EQ(fake.live(), 0u);
    EXPECT_FALSE(keeps());
}

// A thread that only frees keeps no more and more: what it frees is for the threads that allocate.
TEST_F(CoalescingKept, NotByAThreadThatTakesNone) {
    create();
    std::vector<char *> blocks = take(4000);
    std::thread([&] {
        give(blocks);
        // From this thread's part: nothing is reclaimed for it.
        umfPoolTrimMemory(pool, SIZE_MAX);
        blocks = take(10);
    }).join();
    give(blocks);
    EXPECT_EQ(stat("used_memory"), 0u);
}

// Two threads keep blocks of one part. They come to contend for it, and then to parts of their own.
TEST_F(CoalescingKept, AreNotKeptByThreadsThatContend) {
    if (std::thread::hardware_concurrency() < 2) {
        GTEST_SKIP() << "one CPU: a pool has one part";
    }
    create();
    begin();
    std::atomic<bool> is_kept{false};
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    auto contend = [&] {
        while (stat("shards") < 2 && std::chrono::steady_clock::now() < end) {
            begin();
        }
    };
    std::thread other([&] {
        begin();
        is_kept = true;
        contend();
    });
    while (!is_kept) {
        std::this_thread::yield();
    }
    EXPECT_EQ(stat("shards"), 1u);
    contend();
    other.join();
    EXPECT_EQ(stat("shards"), 2u);
    EXPECT_EQ(count(), 0u);
}

TEST_F(CoalescingKept, InAChildOfFork) {
    create();
    begin();
    std::atomic<bool> is_kept{false}, is_over{false};
    std::thread other([&] {
        begin();
        for (is_kept = true; !is_over;) {
            std::this_thread::yield();
        }
    });
    while (!is_kept) {
        std::this_thread::yield();
    }
    pid_t child = fork();
    if (child == 0) {
        begin();
        bool is_right = stat("used_memory") == 0 && umfPoolTrimMemory(pool, 0) == OK;
        _exit(is_right && fake.live() == 0 ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    is_over = true;
    other.join();
}

// Threads that hand blocks to each other, while one takes all there is and another trims.
TEST_F(CoalescingKept, Threads) {
    fake.limit = 16 * MiB;
    create();
    struct Block {
        char *at;
        size_t size;
        char mark;
    };
    std::mutex mutex;
    std::vector<Block> shared;
    std::atomic<unsigned> left{4};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            std::vector<Block> own;
            auto release = [&] {
                std::swap(own[random() % own.size()], own.back());
                const Block block = own.back();
                own.pop_back();
                ASSERT_TRUE(Shadow::holds(block.at, block.size, block.mark));
                free(block.at);
            };
            for (size_t i = 0; i < scaled(30000); i++) {
                if (own.size() < 500 && random() % 2) {
                    size_t size = 1 + random() % 2048;
                    char mark = static_cast<char>(random());
                    char *p = static_cast<char *>(umfPoolMalloc(pool, size));
                    if (p) {
                        memset(p, mark, size);
                        own.push_back({p, size, mark});
                    }
                } else if (!own.empty()) {
                    release();
                }
                if (i % 64 == 0) {
                    std::lock_guard<std::mutex> guard(mutex);
                    std::swap(shared, own);
                }
            }
            while (!own.empty()) {
                release();
            }
            left--;
        });
    }
    while (left) {
        char *p = static_cast<char *>(umfPoolMalloc(pool, 12 * MiB));
        if (p) {
            p[0] = p[12 * MiB - 1] = 9;
            free(p);
        }
        stat("largest_free");
        umfPoolTrimMemory(pool, 0);
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (const Block &block : shared) {
        EXPECT_TRUE(Shadow::holds(block.at, block.size, block.mark));
        free(block.at);
    }
    EXPECT_EQ(stat("used_memory"), 0u);
    EXPECT_EQ(count(), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

// Two threads free one block: one of them gets an error.
TEST_F(CoalescingKept, FreedTwiceAtOnce) {
    create();
    begin();
    const std::vector<char *> blocks = take();
    std::atomic<int> freed{0};
    std::atomic<int> ready{0};
    auto work = [&] {
        for (ready++; ready < 2;) {
            std::this_thread::yield();
        }
        for (char *block : blocks) {
            freed += umfPoolFree(pool, block) == OK;
        }
    };
    std::thread other(work);
    work();
    other.join();
    EXPECT_EQ(freed, static_cast<int>(blocks.size()));
    EXPECT_EQ(stat("used_memory"), 0u);
    EXPECT_EQ(count(), 0u);
}

// Threads that contend get parts of the pool for themselves. Results are the same.
class CoalescingParts : public Coalescing {
  protected:
    std::mutex mutex;
    Shadow shadow; // blocks left by the threads

    // Threads that use the pool until two have met; each leaves some blocks of both sizes.
    void meet(unsigned count = 4, size_t leave = 100) {
        std::atomic<unsigned> started{0};
        std::vector<std::thread> threads;
        auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        for (unsigned t = 0; t < count; t++) {
            threads.emplace_back([&, t] {
                std::vector<char *> blocks(50);
                for (started++; started < count;) {
                }
                do {
                    for (char *&block : blocks) {
                        block = alloc(SMALL);
                    }
                    for (char *block : blocks) {
                        free(block);
                    }
                } while (stat("shards") < 2 && std::chrono::steady_clock::now() < end);
                for (size_t i = 0; i < leave; i++) {
                    size_t size = i % 4 ? SMALL : 1 * KiB;
                    char *block = alloc(size);
                    std::lock_guard<std::mutex> guard(mutex);
                    shadow.add(block, size, static_cast<char>(t + 1));
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
    }
    void free_all() {
        for (auto &at : shadow.blocks) {
            EXPECT_TRUE(Shadow::holds(at.first, at.second.size, at.second.mark));
            free(at.first);
        }
    }

    static void *span_of(const void *block) {
        umf_memory_properties_handle_t properties = nullptr;
        void *base = nullptr;
        EXPECT_EQ(umfGetMemoryPropertiesHandle(block, &properties), OK);
        EXPECT_EQ(
            umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_BASE_ADDRESS, &base, sizeof(base)),
            OK);
        return base;
    }

    static constexpr size_t SMALL = 48 * KiB;

    void SetUp() override {
        if (std::thread::hardware_concurrency() < 2) {
            GTEST_SKIP() << "one CPU: a pool has one part";
        }
    }
};

TEST_F(CoalescingParts, OneForOneThread) {
    create();
    for (size_t i = 0; i < 100; i++) {
        alloc(i * 5000);
    }
    EXPECT_EQ(stat("shards"), 1u);
}

TEST_F(CoalescingParts, BlocksAreFreedByOthers) {
    for (umf_pool_create_flags_t flags :
         {UMF_POOL_CREATE_FLAG_NONE, UMF_POOL_CREATE_FLAG_DISABLE_TRACKING}) {
        create({}, flags);
        meet();
        ASSERT_GE(stat("shards"), 2u);
        size_t count = 0, used = 0, size;
        EXPECT_EQ(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool),
                  OK);
        EXPECT_EQ(count, shadow.blocks.size());
        for (auto &at : shadow.blocks) {
            EXPECT_EQ(umfPoolMallocUsableSize(pool, at.first, &size), OK);
            EXPECT_EQ(size, at.second.size);
            EXPECT_EQ(umfPoolFree(pool, at.first + 512), BAD);
            used += size;
        }
        EXPECT_EQ(stat("used_memory"), used);
        EXPECT_EQ(stat("reserved_memory"), fake.live_bytes());
        EXPECT_EQ(stat("spans"), fake.live());
        // Grown in another part, shrunk in its own.
        auto &first = *shadow.blocks.begin();
        char *moved = static_cast<char *>(umfPoolRealloc(pool, first.first, 1 * MiB));
        ASSERT_NE(moved, nullptr);
        EXPECT_TRUE(Shadow::holds(moved, first.second.size, first.second.mark));
        free(moved);
        shadow.blocks.erase(first.first);
        char *last = shadow.blocks.rbegin()->first;
        EXPECT_EQ(umfPoolRealloc(pool, last, 512), last);
        shadow.blocks.rbegin()->second.size = 512;
        free_all();
        for (auto &at : shadow.blocks) {
            EXPECT_EQ(umfPoolFree(pool, at.first), BAD) << "freed already";
        }
        shadow.blocks.clear();
        EXPECT_EQ(stat("used_memory"), 0u);
        EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(destroy(), OK);
    }
}

TEST_F(CoalescingParts, EachServesAllBeforeTheProvider) {
    create();
    meet();
    free_all();
    size_t spans = stat("spans"), calls = fake.allocs;
    ASSERT_GE(spans, 2u);
    for (size_t size : {64 * KiB, 1 * MiB}) {
        std::vector<char *> blocks;
        for (size_t i = 0; i < spans * (2 * MiB / size); i++) {
            blocks.push_back(alloc(size));
        }
        EXPECT_EQ(fake.allocs, calls) << "spans of 2 MiB, all of them full";
        for (char *block : blocks) {
            free(block);
        }
    }
}

// Each thread takes blocks from its own part, up to a limit of memory.
TEST_F(CoalescingParts, ThreadsDoNotHoldFarMoreThanTheyUse) {
    create();
    constexpr size_t THREADS = 4, BLOCKS = 100;
    std::vector<std::thread> threads;
    for (size_t t = 0; t < THREADS; t++) {
        threads.emplace_back([&] {
            std::vector<char *> blocks(BLOCKS);
            for (size_t round = 0; round < scaled(200); round++) {
                for (char *&block : blocks) {
                    block = alloc(SMALL);
                }
                for (char *block : blocks) {
                    free(block);
                }
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_LE(stat("reserved_memory"), 3 * THREADS * BLOCKS * SMALL + THREADS * 2 * MiB);
}

TEST_F(CoalescingParts, AllGoBeforeMemoryIsOut) {
    create();
    meet();
    fake.limit = fake.live_bytes();
    ASSERT_GE(fake.live(), 2u);
    EXPECT_EQ(umfPoolMalloc(pool, fake.limit), nullptr);
    EXPECT_EQ(last_error(), UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    free_all();
    char *all = alloc(fake.limit);
    EXPECT_EQ(fake.live(), 1u);
    free(all);
}

TEST_F(CoalescingParts, ALimitForFreeSpansIsOneForAll) {
    create({0, 2 * MiB, 3 * MiB});
    meet();
    ASSERT_GE(stat("shards"), 2u);
    ASSERT_GE(fake.live(), 2u);
    free_all();
    EXPECT_EQ(fake.live(), 1u);
}

TEST_F(CoalescingParts, TrimPurgesAllOfThem) {
    create();
    meet();
    ASSERT_GE(stat("shards"), 2u);
    size_t i = 0;
    for (auto at = shadow.blocks.begin(); at != shadow.blocks.end(); i++) {
        if (i % 2) {
            free(at->first);
        }
        at = i % 2 ? shadow.blocks.erase(at) : std::next(at);
    }
    size_t used = stat("used_memory");
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_GE(fake.purges, 100u);
    EXPECT_EQ(stat("used_memory"), used);
    free_all();
}

// In a pool that has parts, threads begin apart and need not meet first. One after the other they
// use the same memory.
TEST_F(CoalescingParts, NewThreadsBeginApart) {
    create();
    meet();
    free_all();
    ASSERT_GE(fake.live(), 2u);
    char *first = nullptr;
    for (int round = 0; round < 3; round++) {
        char *one = nullptr, *other = nullptr;
        std::thread([&] {
            one = alloc(SMALL);
            std::thread([&] { other = alloc(SMALL); }).join();
        }).join();
        EXPECT_NE(span_of(one), span_of(other));
        EXPECT_EQ(one, first ? first : one);
        first = one;
        free(one);
        free(other);
    }
}

// Who lives on the span of another part gets one before a third of that is in use, but one only.
TEST_F(CoalescingParts, EachMayHaveASpan) {
    create();
    meet();
    free_all();
    shadow.blocks.clear();
    ASSERT_EQ(umfPoolTrimMemory(pool, 0), OK);
    ASSERT_EQ(fake.live(), 0u);
    std::vector<char *> blocks;
    std::thread([&] {
        blocks.push_back(alloc(SMALL));
        std::thread([&] {
            for (size_t i = 0; i < 100; i++) {
                blocks.push_back(alloc(1 * KiB));
            }
        }).join();
    }).join();
    EXPECT_EQ(span_of(blocks[1]), span_of(blocks[0]));
    EXPECT_NE(span_of(blocks.back()), span_of(blocks[0]));
    EXPECT_EQ(fake.live(), 2u);
    for (char *block : blocks) {
        free(block);
    }
}

// Blocks reserved for a thread in one part are released when the thread ends.
TEST_F(CoalescingParts, HotBlocksOfSeveral) {
    create();
    meet();
    for (int round = 0; round < 4; round++) {
        std::thread([&] {
            for (size_t i = 0; i < 40; i++) {
                size_t size = (i % 10 + 1) * 100 * KiB;
                char *block = alloc(size);
                for (int k = 0; k < 3; k++) {
                    free(block);
                    block = alloc(size);
                }
                free(block);
                EXPECT_EQ(umfPoolFree(pool, block), BAD);
            }
        }).join();
    }
    free_all();
    EXPECT_EQ(stat("used_memory"), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_F(CoalescingParts, InAChildOfFork) {
    create();
    meet();
    ASSERT_GE(stat("shards"), 2u);
    pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        alarm(60);
        free_all();
        meet(2, 0);
        bool is_good = stat("used_memory") == 0 && umfPoolTrimMemory(pool, 0) == OK &&
                       fake.live() == 0 && !HasFailure();
        _exit(is_good ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    free_all();
}

// Blocks go from one thread to another, while a third counts and trims.
TEST_F(CoalescingParts, HandedOver) {
    create();
    constexpr size_t SLOTS = 64;
    std::atomic<char *> slots[SLOTS] = {};
    std::atomic<unsigned> at_work{2};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(t);
            for (size_t i = 0; i < scaled(20000); i++) {
                char *p = alloc(1 + random() % (100 * KiB));
                *p = static_cast<char>(i);
                p = slots[random() % SLOTS].exchange(p);
                if (p) {
                    free(p);
                }
            }
            at_work--;
        });
    }
    for (size_t i = 0; at_work; i++) {
        std::atomic<char *> &slot = slots[i % SLOTS];
        if (char *p = slot.exchange(nullptr)) {
            free(p);
        }
        if (i % 1000 == 0) {
            EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
        }
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (auto &slot : slots) {
        EXPECT_EQ(umfPoolFree(pool, slot), OK);
    }
    EXPECT_EQ(stat("used_memory"), 0u);
    EXPECT_EQ(umfPoolTrimMemory(pool, 0), OK);
    EXPECT_EQ(fake.live(), 0u);
}
