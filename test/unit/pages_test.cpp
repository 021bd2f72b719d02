#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "fakes/child.h"
#include "fakes/fake_provider.h"
#include "fakes/scale.h"
#include "fakes/threads.h"
#include "fault.h"

extern "C" {
#include "base/lock.h"
#include "base/meta.h"
#include "pools/jemalloc/pages_shards.h"
}

static constexpr size_t KiB = 1024, MiB = 1024 * KiB, PAGE = 4 * KiB;

/* A page cache on a provider, with a record of one number for each page. */
struct PageCache : umf_pages_t {
    umf_tracked_provider_t *tracked;
};

/* NULL: no view could be made. */
static PageCache *create_cache(umf_memory_provider_handle_t provider, size_t granule) {
    auto cache = static_cast<PageCache *>(umf_meta_alloc(sizeof(PageCache)));
    if (!cache || umf_tracked_acquire(provider, &cache->tracked) != UMF_RESULT_SUCCESS) {
        return nullptr;
    }
    umf_pages_init(cache, cache->tracked, granule, sizeof(uint64_t), nullptr);
    return cache;
}

static umf_result_t destroy_cache(PageCache *cache) {
    umf_result_t result = umf_pages_fini(cache);
    umf_tracked_release(cache->tracked);
    umf_meta_free(cache, sizeof(*cache));
    return result;
}

/* The shard that holds `ptr`. */
static size_t shard_of(PageCache *cache, const void *ptr) {
    size_t index = 0;
    while (cache->shards[index] != umf_pages_shard_of(cache, ptr)) {
        index++;
    }
    return index;
}

/* Holds the lock of the first shard, as a thread that takes from there. */
static void lock_first(PageCache *cache) {
    umf_lock(&cache->first.lock);
    __atomic_store_n(&cache->first.is_taking, true, __ATOMIC_RELAXED);
}

static void unlock_first(PageCache *cache) {
    __atomic_store_n(&cache->first.is_taking, false, __ATOMIC_RELAXED);
    umf_unlock(&cache->first.lock);
}

static bool is_awaited(PageCache *cache) {
    return __atomic_load_n(&cache->first.lock.state, __ATOMIC_RELAXED) == UMF_LOCK_AWAITED;
}

/* The record of the page that holds `ptr`, NULL if it is in no span. */
static uint64_t *record_of(PageCache *cache, const void *ptr) {
    const umf_pages_span_t *span = umf_pages_find(cache, ptr);
    size_t page = span ? ((uintptr_t)ptr - span->base) >> UMF_PAGE_SHIFT : 0;
    return span ? (uint64_t *)(uintptr_t)span->records + page : nullptr;
}

/* A cache on a provider whose memory the CPU cannot touch. */
class PagesTest : public ::testing::Test {
  protected:
    FakeProvider memory;
    umf_memory_provider_handle_t provider = nullptr;
    PageCache *pages = nullptr;

    void SetUp() override {
        memory.protection = PROT_NONE;
        provider = memory.create();
        ASSERT_NE(provider, nullptr);
        open(PAGE);
    }
    void TearDown() override {
        if (pages) {
            EXPECT_EQ(destroy_cache(pages), UMF_RESULT_SUCCESS);
        }
        EXPECT_EQ(memory.live(), 0u);
        EXPECT_EQ(memory.mistakes, 0u);
        umfMemoryProviderDestroy(provider);
    }
    void open(size_t granule) {
        if (pages) {
            EXPECT_EQ(destroy_cache(pages), UMF_RESULT_SUCCESS);
        }
        pages = create_cache(provider, granule);
        ASSERT_NE(pages, nullptr);
    }
    char *alloc(size_t size, size_t alignment = PAGE) {
        auto *ptr = (char *)umf_pages_alloc(pages, size, alignment);
        EXPECT_NE(ptr, nullptr) << size;
        EXPECT_EQ((uintptr_t)ptr % alignment, 0u);
        return ptr;
    }
    /* Another thread meets this one at the lock of the first shard. */
    void meet() {
        lock_first(pages);
        std::thread other([&] { alloc(PAGE); });
        while (!is_awaited(pages)) {
            std::this_thread::yield();
        }
        unlock_first(pages);
        other.join();
    }
};

TEST_F(PagesTest, TakesNothingBeforeItIsUsed) {
    EXPECT_EQ(memory.allocs, 0u);
    EXPECT_EQ(umf_pages_take(pages, PAGE, PAGE), nullptr);
    EXPECT_EQ(memory.allocs, 0u);
    umf_pages_settle(pages);
    umf_pages_trim(pages);
}

TEST_F(PagesTest, ManyPiecesFromOneSpan) {
    for (int i = 0; i < 512; i++) {
        alloc(PAGE);
    }
    EXPECT_EQ(memory.allocs, 1u);
    EXPECT_EQ(umf_pages_total(pages), 2 * MiB);
    EXPECT_EQ(umf_pages_used(pages), 2 * MiB);
    EXPECT_EQ(umf_pages_take(pages, PAGE, PAGE), nullptr) << "take never calls the provider";
    EXPECT_EQ(memory.allocs, 1u);
}

TEST_F(PagesTest, SpansGrowWithWhatIsHeld) {
    size_t largest = 0;
    for (size_t total = 0; total < 512 * MiB; total += MiB) {
        alloc(MiB);
        largest = std::max(largest, memory.last_size);
    }
    EXPECT_EQ(largest, 64 * MiB);
    EXPECT_LT(memory.allocs, 30u) << "256 without growth";
    EXPECT_LE(umf_pages_total(pages), 512 * MiB + 64 * MiB);
}

/* Resident memory grows by used bytes, not by free pieces that are too small. */
TEST_F(PagesTest, GrowthPurgesWhatIsTooSmall) {
    memory.protection = PROT_READ | PROT_WRITE;
    char *pieces[5];
    for (size_t i = 0; i < std::size(pieces); i++) {
        size_t size = i % 2 ? PAGE : (i == 4 ? 2 : 128) * PAGE;
        pieces[i] = alloc(size);
        memset(pieces[i], 1, size);
    }
    char *last = alloc(PAGE);
    umf_pages_put(pages, pieces[0], 128 * PAGE);
    umf_pages_put(pages, pieces[2], 128 * PAGE);
    umf_pages_put(pages, pieces[4], 2 * PAGE);
    EXPECT_EQ(memory.purges, 0u);
    alloc(400 * PAGE);
    EXPECT_EQ(memory.purges, 2u) << "nothing small, and nothing that was never used";
    EXPECT_EQ(pieces[0][0], 0);
    EXPECT_EQ(pieces[2][128 * PAGE - 1], 0);
    EXPECT_EQ(pieces[4][0], 1);
    EXPECT_EQ(pieces[1][0], 1);
    (void)last;
}

TEST_F(PagesTest, LargeRequestGetsItsOwnSpan) {
    char *ptr = alloc(100 * MiB);
    EXPECT_EQ(memory.last_size, 100 * MiB);
    umf_pages_put(pages, ptr, 100 * MiB);
    umf_pages_settle(pages);
    EXPECT_EQ(memory.live(), 0u) << "too large to be kept";
}

TEST_F(PagesTest, ProviderWithLittleMemory) {
    memory.limit = 300 * KiB;
    std::vector<char *> pieces;
    while (auto *ptr = (char *)umf_pages_alloc(pages, 20 * KiB, PAGE)) {
        pieces.push_back(ptr);
    }
    EXPECT_GE(pieces.size(), 13u) << "of 15 that fit";
    for (char *piece : pieces) {
        umf_pages_put(pages, piece, 20 * KiB);
    }
    EXPECT_NE(umf_pages_alloc(pages, 256 * KiB, PAGE), nullptr) << "free spans make room";
}

TEST_F(PagesTest, GrowFailsWithTheProvidersResult) {
    memory.alloc_fails = true;
    memory.failure = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    EXPECT_EQ(umf_pages_grow(pages, PAGE, PAGE), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umf_pages_alloc(pages, PAGE, PAGE), nullptr);
    memory.alloc_fails = false;
    EXPECT_EQ(umf_pages_grow(pages, PAGE, PAGE), UMF_RESULT_SUCCESS);
    EXPECT_NE(umf_pages_take(pages, PAGE, PAGE), nullptr);
}

TEST_F(PagesTest, AbsurdSizes) {
    for (size_t size :
         {SIZE_MAX & ~(PAGE - 1), SIZE_MAX / 2 & ~(PAGE - 1), SIZE_MAX / 8 & ~(PAGE - 1)}) {
        EXPECT_EQ(umf_pages_alloc(pages, size, PAGE), nullptr);
        EXPECT_EQ(umf_pages_alloc(pages, size, MiB), nullptr);
    }
    EXPECT_EQ(umf_pages_alloc(pages, PAGE, (SIZE_MAX >> 1) + 1), nullptr);
}

TEST_F(PagesTest, Alignments) {
    for (size_t alignment = 1; alignment <= 32 * MiB; alignment *= 2) {
        alloc(PAGE, alignment);
        alloc(3 * PAGE, alignment);
    }
}

/* Some providers refuse alignments above their page: then a larger span holds an aligned piece. */
TEST_F(PagesTest, ProviderThatCannotAlign) {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.alloc = [](void *self, size_t size, size_t alignment, void **ptr) {
        return alignment > PAGE ? UMF_RESULT_ERROR_NOT_SUPPORTED
                                : FakeProvider::table().alloc(self, size, alignment, ptr);
    };
    umf_memory_provider_handle_t plain = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &memory, &plain), UMF_RESULT_SUCCESS);
    PageCache *cache = create_cache(plain, PAGE);
    for (size_t alignment = PAGE; alignment <= 16 * MiB; alignment *= 2) {
        void *ptr = umf_pages_alloc(cache, 5 * PAGE, alignment);
        EXPECT_NE(ptr, nullptr) << alignment;
        EXPECT_EQ((uintptr_t)ptr % alignment, 0u);
    }
    EXPECT_EQ(destroy_cache(cache), UMF_RESULT_SUCCESS);
    umfMemoryProviderDestroy(plain);
}

TEST_F(PagesTest, MisplacedMemoryIsRefused) {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    ops.alloc = [](void *self, size_t size, size_t, void **ptr) {
        auto *fake = static_cast<FakeProvider *>(self);
        fake->stingy = 64;
        return FakeProvider::table().alloc(self, size, 0, ptr);
    };
    umf_memory_provider_handle_t crooked = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &memory, &crooked), UMF_RESULT_SUCCESS);
    PageCache *cache = create_cache(crooked, PAGE);
    EXPECT_EQ(umf_pages_grow(cache, PAGE, PAGE), UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    EXPECT_EQ(umf_pages_alloc(cache, PAGE, PAGE), nullptr);
    EXPECT_EQ(memory.live(), 0u);
    EXPECT_EQ(destroy_cache(cache), UMF_RESULT_SUCCESS);
    umfMemoryProviderDestroy(crooked);
    memory.stingy = 0;
}

TEST_F(PagesTest, RequestsAreMultiplesOfTheProvidersPage) {
    for (size_t granule : {2 * MiB, 3 * MiB, 64 * KiB, (size_t)6000, (size_t)1}) {
        open(granule);
        for (size_t size : {PAGE, 100 * KiB, 5 * MiB}) {
            alloc(size);
            EXPECT_EQ(memory.last_size % granule, 0u) << granule << " " << size;
        }
    }
}

TEST_F(PagesTest, OneFreeSpanIsKept) {
    char *a = alloc(2 * MiB), *b = alloc(2 * MiB), *c = alloc(2 * MiB);
    EXPECT_EQ(memory.live(), 3u);
    umf_pages_put(pages, a, 2 * MiB);
    umf_pages_settle(pages);
    EXPECT_EQ(memory.live(), 3u);
    umf_pages_put(pages, b, 2 * MiB);
    EXPECT_EQ(memory.live(), 3u) << "put never calls the provider";
    umf_pages_settle(pages);
    EXPECT_EQ(memory.live(), 2u);
    umf_pages_put(pages, c, 2 * MiB);
    umf_pages_settle(pages);
    EXPECT_EQ(memory.live(), 1u);
    size_t allocs = memory.allocs;
    alloc(2 * MiB);
    EXPECT_EQ(memory.allocs, allocs) << "the kept one is used again";
}

TEST_F(PagesTest, VeryLargeSpanIsNotKept) {
    umf_pages_put(pages, alloc(65 * MiB), 65 * MiB);
    umf_pages_settle(pages);
    EXPECT_EQ(memory.live(), 0u);
}

class PagesRounds : public PagesTest {
  protected:
    std::vector<char *> pieces;

    /* Allocates all, and frees all. */
    void round(size_t size, size_t n) {
        pieces.clear();
        while (pieces.size() < n) {
            pieces.push_back(alloc(size));
        }
        for (char *piece : pieces) {
            umf_pages_put(pages, piece, size);
        }
        umf_pages_settle(pages);
    }
};

/* Programs that free all they have and take it again do not go to the provider for it. */
TEST_F(PagesRounds, WhatWasGivenBackTooEarlyIsKept) {
    for (size_t size : {MiB, 40 * MiB}) {
        for (int i = 0; i < 6; i++) {
            round(size, 100);
        }
        size_t allocs = memory.allocs;
        round(size, 100);
        round(size, 100);
        EXPECT_EQ(memory.allocs, allocs);
        umf_pages_trim(pages);
        EXPECT_EQ(memory.live(), 0u);
    }
}

TEST_F(PagesRounds, GrowthDoesNotPurgeWhatIsKept) {
    for (int i = 0; i < 4; i++) {
        round(MiB, 1100);
    }
    size_t live = memory.live(), purges = memory.purges, bytes = memory.purged_bytes;
    alloc(65 * MiB);
    umf_pages_settle(pages);
    EXPECT_EQ(memory.purges, purges);
    EXPECT_EQ(memory.live(), live + 1);
    alloc(100 * MiB);
    EXPECT_GT(memory.purged_bytes, bytes + 50 * MiB) << "too much beside the peak of 1100 MiB";
}

TEST_F(PagesRounds, WhatIsKeptDecays) {
    for (bool can_purge : {true, false}) {
        memory.can_purge = can_purge;
        round(MiB, 100);
        round(MiB, 100);
        umf_pages_decay(pages, true);
        EXPECT_GT(memory.live(), 5u) << "a look alone does nothing";
        while (umf_pages_decay(pages, true)) {
        }
        EXPECT_EQ(memory.live(), 0u) << "it was free at two looks";
        round(MiB, 100);
        EXPECT_EQ(memory.live(), 1u) << "what decayed is no longer kept";
        umf_pages_trim(pages);
    }
}

TEST_F(PagesTest, TrimGivesAllFreeSpansBack) {
    std::vector<char *> pieces;
    for (int i = 0; i < 10; i++) {
        pieces.push_back(alloc(1 * MiB));
    }
    for (char *piece : pieces) {
        umf_pages_put(pages, piece, 1 * MiB);
    }
    umf_pages_trim(pages);
    EXPECT_EQ(memory.live(), 0u);
    EXPECT_EQ(umf_pages_total(pages), 0u);
    alloc(PAGE);
}

TEST_F(PagesTest, SpanInUseAgainIsNotGivenBack) {
    umf_pages_put(pages, alloc(65 * MiB), 65 * MiB); /* is surplus now */
    ASSERT_NE(umf_pages_take(pages, 65 * MiB, PAGE), nullptr);
    umf_pages_settle(pages);
    EXPECT_EQ(memory.live(), 1u);
}

TEST_F(PagesTest, RefusedFreeLosesNothing) {
    char *a = alloc(2 * MiB), *b = alloc(2 * MiB);
    umf_pages_put(pages, a, 2 * MiB);
    umf_pages_put(pages, b, 2 * MiB);
    memory.free_fails = true;
    umf_pages_trim(pages);
    EXPECT_EQ(memory.live(), 2u);
    EXPECT_EQ(umf_pages_total(pages), 4 * MiB) << "still usable";
    EXPECT_NE(umf_pages_take(pages, 2 * MiB, PAGE), nullptr);
    memory.free_fails = false;
}

TEST_F(PagesTest, FailingFreeAtTheEndIsReported) {
    alloc(PAGE);
    memory.free_fails = true;
    memory.failure = UMF_RESULT_ERROR_USER_SPECIFIC;
    EXPECT_EQ(destroy_cache(pages), UMF_RESULT_ERROR_USER_SPECIFIC);
    pages = nullptr;
    memory.free_fails = false;
    EXPECT_EQ(memory.live(), 1u);
    FakeProvider::table().free(&memory, memory.last_free_ptr, 0);
}

TEST_F(PagesTest, SplitMakesTwoPieces) {
    char *ptr = alloc(8 * PAGE);
    EXPECT_EQ(umf_pages_split(pages, ptr, 8 * PAGE, 3 * PAGE), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_pages_split(pages, ptr, 8 * PAGE, 3 * PAGE), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umf_pages_put(pages, ptr + 3 * PAGE, 5 * PAGE);
    EXPECT_EQ(umf_pages_used(pages), 3 * PAGE);
    umf_pages_put(pages, ptr, 3 * PAGE);
    EXPECT_EQ(umf_pages_used(pages), 0u);
}

TEST_F(PagesTest, TrimPurgesFreePiecesOnly) {
    memory.protection = PROT_READ | PROT_WRITE;
    std::vector<char *> pieces;
    for (int i = 0; i < 200; i++) {
        pieces.push_back(alloc(2 * PAGE));
        memset(pieces.back(), i + 1, 2 * PAGE);
    }
    for (size_t i = 0; i < pieces.size(); i += 2) {
        umf_pages_put(pages, pieces[i], 2 * PAGE);
    }
    umf_pages_trim(pages);
    EXPECT_GE(memory.purges, 100u);
    for (size_t i = 0; i < pieces.size(); i++) {
        EXPECT_EQ(pieces[i][0], i % 2 ? (char)(i + 1) : 0);
        EXPECT_EQ(pieces[i][2 * PAGE - 1], i % 2 ? (char)(i + 1) : 0);
    }
    EXPECT_EQ(umf_pages_used(pages), 100 * 2 * PAGE);
}

/* A segment whose purge failed is as dirty as before. */
TEST_F(PagesTest, APurgeThatFailedIsMadeAgain) {
    memory.protection = PROT_READ | PROT_WRITE;
    char *idle = alloc(2 * PAGE);
    alloc(PAGE);
    memset(idle, 1, 2 * PAGE);
    umf_pages_put(pages, idle, 2 * PAGE);
    memory.purge_fails = true;
    umf_pages_decay(pages, true);
    umf_pages_decay(pages, true);
    EXPECT_EQ(memory.purges, 2u) << "it, and the rest of the span";
    memory.purge_fails = false;
    umf_pages_decay(pages, true);
    umf_pages_decay(pages, true);
    EXPECT_EQ(memory.purges, 4u);
    EXPECT_EQ(idle[0], 0);
    umf_pages_decay(pages, true);
    umf_pages_decay(pages, true);
    EXPECT_EQ(memory.purges, 4u) << "nothing is left to purge";
}

/* Pieces that are free at two looks are purged, once. */
TEST_F(PagesTest, WhatStaysFreeDecays) {
    memory.protection = PROT_READ | PROT_WRITE;
    char *idle = alloc(2 * PAGE), *first = alloc(PAGE), *busy = alloc(2 * PAGE);
    char *second = alloc(PAGE);
    memset(idle, 1, 2 * PAGE);
    memset(busy, 2, 2 * PAGE);
    umf_pages_put(pages, idle, 2 * PAGE);
    umf_pages_decay(pages, true);
    EXPECT_EQ(memory.purges, 0u) << "a look alone does nothing";
    EXPECT_EQ(idle[0], 1);
    umf_pages_put(pages, busy, 2 * PAGE);
    umf_pages_decay(pages, true);
    EXPECT_EQ(memory.purges, 2u) << "it, and the rest of the span";
    EXPECT_EQ(idle[0], 0);
    EXPECT_EQ(idle[2 * PAGE - 1], 0);
    EXPECT_EQ(busy[0], 2) << "free since the last look only";
    umf_pages_decay(pages, true);
    EXPECT_EQ(memory.purges, 3u);
    EXPECT_EQ(busy[0], 0);
    umf_pages_decay(pages, true);
    umf_pages_decay(pages, true);
    EXPECT_EQ(memory.purges, 3u) << "nothing is left to purge";
    EXPECT_EQ(umf_pages_used(pages), 2 * PAGE);
    (void)first, (void)second;
}

/* A cut or a join does not make an idle piece young again. */
TEST_F(PagesTest, APieceThatIsMostlyNewDoesNotDecay) {
    memory.protection = PROT_READ | PROT_WRITE;
    char *idle = alloc(4 * PAGE), *busy = alloc(60 * PAGE);
    ASSERT_EQ(idle + 4 * PAGE, busy);
    alloc(PAGE);
    memset(idle, 1, 64 * PAGE);
    umf_pages_put(pages, idle, 4 * PAGE);
    umf_pages_decay(pages, true);
    umf_pages_put(pages, busy, 60 * PAGE);
    umf_pages_decay(pages, true);
    EXPECT_EQ(busy[0], 1) << "free since the last look only";
    umf_pages_decay(pages, true);
    EXPECT_EQ(busy[0], 0);
    EXPECT_EQ(idle[0], 0);
}

TEST_F(PagesTest, APieceInUseAtItsEdgesDecaysToo) {
    memory.protection = PROT_READ | PROT_WRITE;
    char *large = alloc(64 * PAGE);
    alloc(PAGE);
    memset(large, 1, 64 * PAGE);
    umf_pages_put(pages, large, 64 * PAGE);
    umf_pages_decay(pages, true);
    char *cut = (char *)umf_pages_take(pages, PAGE, PAGE);
    EXPECT_EQ(cut, large);
    umf_pages_put(pages, cut, PAGE);
    umf_pages_decay(pages, true);
    EXPECT_EQ(large[0], 0);
    EXPECT_EQ(large[64 * PAGE - 1], 0);
    cut = (char *)umf_pages_take(pages, PAGE, PAGE);
    cut[0] = 3;
    umf_pages_put(pages, cut, PAGE);
    umf_pages_decay(pages, true);
    EXPECT_EQ(cut[0], 0);
}

/* A look gives back so much, the next goes on below it. */
TEST_F(PagesTest, DecayGoesOnWhereItStopped) {
    std::vector<char *> pieces;
    for (int i = 0; i < 80; i++) {
        pieces.push_back(alloc(8 * MiB));
    }
    for (size_t i = 0; i < pieces.size(); i += 2) {
        umf_pages_put(pages, pieces[i], 8 * MiB);
    }
    umf_pages_decay(pages, true);
    EXPECT_EQ(memory.purges, 0u);
    umf_pages_decay(pages, true);
    size_t purges = memory.purges;
    EXPECT_GE(purges, 8u);
    EXPECT_LT(purges, 40u);
    for (int i = 0; i < 10; i++) {
        umf_pages_decay(pages, true);
    }
    EXPECT_GE(memory.purges, 40u);
    purges = memory.purges;
    umf_pages_decay(pages, true);
    EXPECT_EQ(memory.purges, purges);
}

TEST_F(PagesTest, PurgeKeepsToTheProvidersPages) {
    memory.page_size = 64 * KiB;
    open(64 * KiB);
    char *a = alloc(20 * KiB), *b = alloc(200 * KiB), *c = alloc(20 * KiB);
    umf_pages_put(pages, b, 200 * KiB);
    umf_pages_trim(pages);
    EXPECT_GE(memory.purges, 2u); /* inside b, and the rest of the span */
    EXPECT_EQ(memory.mistakes, 0u);
    (void)a, (void)c;
}

TEST_F(PagesTest, ProviderWithoutPurgeIsAskedOnce) {
    memory.can_purge = false;
    char *a = alloc(2 * PAGE);
    alloc(2 * PAGE);
    umf_pages_put(pages, a, 2 * PAGE);
    umf_pages_trim(pages);
    EXPECT_EQ(memory.purges, 2u) << "once each way";
    umf_pages_trim(pages);
    EXPECT_EQ(memory.purges, 2u);
    EXPECT_EQ(umf_pages_used(pages), 2 * PAGE);
}

TEST_F(PagesTest, RecordsAreFoundFromEveryAddress) {
    char *small = alloc(PAGE), *large = alloc(10 * MiB);
    for (size_t at = 0; at < 10 * MiB; at += PAGE) {
        uint64_t *record = record_of(pages, large + at + at % 4095);
        ASSERT_NE(record, nullptr);
        ASSERT_EQ(*record, 0u);
        *record = at + 1;
    }
    for (size_t at = 0; at < 10 * MiB; at += PAGE) {
        ASSERT_EQ(*record_of(pages, large + at + PAGE - 1), at + 1);
    }
    ASSERT_NE(record_of(pages, small), nullptr);
    EXPECT_EQ(record_of(pages, &small), nullptr);
}

/* Against a model: pieces never overlap and lie in memory the provider gave. */
TEST_F(PagesTest, RandomWork) {
    std::minstd_rand random(11);
    std::map<uintptr_t, size_t> live;
    size_t used = 0;
    for (size_t round = 0; round < scaled(20000); round++) {
        memory.alloc_fails = random() % 20 == 0;
        if (live.size() < 300 && random() % 2) {
            size_t size = (1 + random() % (random() % 8 ? 16 : 1024)) * PAGE;
            size_t alignment = PAGE << random() % 8;
            auto ptr = (uintptr_t)umf_pages_alloc(pages, size, alignment);
            if (!ptr) {
                continue;
            }
            ASSERT_EQ(ptr % alignment, 0u);
            auto above = live.lower_bound(ptr);
            ASSERT_TRUE(above == live.end() || ptr + size <= above->first);
            ASSERT_TRUE(above == live.begin() ||
                        std::prev(above)->first + std::prev(above)->second <= ptr);
            ASSERT_NE(record_of(pages, (void *)(ptr + size - 1)), nullptr);
            live[ptr] = size;
            used += size;
        } else if (!live.empty()) {
            auto it = live.lower_bound((uintptr_t)random() << 20);
            it = it == live.end() ? live.begin() : it;
            size_t pages_of = it->second / PAGE;
            if (random() % 4 == 0 && pages_of > 1) {
                size_t first = (1 + random() % (pages_of - 1)) * PAGE;
                ASSERT_EQ(umf_pages_split(pages, (void *)it->first, it->second, first),
                          UMF_RESULT_SUCCESS);
                live[it->first + first] = it->second - first;
                it->second = first;
                continue;
            }
            umf_pages_put(pages, (void *)it->first, it->second);
            used -= it->second;
            live.erase(it);
        }
        if (random() % 16 == 0) {
            umf_pages_settle(pages);
        }
        if (random() % 500 == 0) {
            umf_pages_trim(pages);
        }
        ASSERT_EQ(umf_pages_used(pages), used);
        ASSERT_LE(umf_pages_total(pages), memory.live_bytes());
    }
    for (auto &piece : live) {
        umf_pages_put(pages, (void *)piece.first, piece.second);
    }
    umf_pages_trim(pages);
    EXPECT_EQ(memory.live(), 0u);
}

/* A purge has free pieces in transit: that must not look like the end of memory. */
TEST_F(PagesTest, TrimBesideAllocation) {
    umf_memory_provider_ops_t ops = FakeProvider::table();
    static std::atomic<int> purges;
    purges = 0;
    ops.ext_purge_force = [](void *, void *, size_t) {
        purges++;
        std::this_thread::sleep_for(std::chrono::microseconds(500));
        return UMF_RESULT_SUCCESS;
    };
    umf_memory_provider_handle_t slow = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &memory, &slow), UMF_RESULT_SUCCESS);
    PageCache *cache = create_cache(slow, PAGE);
    memory.limit = 2 * MiB;
    std::atomic<bool> stop{false};
    EXPECT_NE(umf_pages_alloc(cache, PAGE, PAGE), nullptr);
    std::thread trimmer([&] {
        while (!stop) {
            umf_pages_trim(cache);
        }
    });
    for (size_t i = 0; i < scaled(300) || purges < 20; i++) {
        void *ptr = umf_pages_alloc(cache, 1 * MiB, PAGE);
        EXPECT_NE(ptr, nullptr) << i;
        if (!ptr) {
            break;
        }
        umf_pages_put(cache, ptr, 1 * MiB);
    }
    stop = true;
    trimmer.join();
    EXPECT_EQ(destroy_cache(cache), UMF_RESULT_SUCCESS);
    umfMemoryProviderDestroy(slow);
}

/* A fork while a trim has pieces isolated: the child is not short of them. */
TEST_F(PagesTest, AChildInheritsWhatATrimHadIsolated) {
    umf_fork_register_inner();
    umf_fork_register_outer();
    umf_memory_provider_ops_t ops = FakeProvider::table();
    static PageCache *cache;
    static bool is_good;
    is_good = false;
    ops.ext_purge_force = [](void *, void *, size_t) {
        if (!is_good) {
            is_good = in_child([] {
                void *ptr = nullptr;
                std::thread([&] { ptr = umf_pages_alloc(cache, 1 * MiB, PAGE); }).join();
                return ptr != nullptr;
            });
        }
        return UMF_RESULT_SUCCESS;
    };
    umf_memory_provider_handle_t forking = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&ops, &memory, &forking), UMF_RESULT_SUCCESS);
    cache = create_cache(forking, PAGE);
    memory.limit = 2 * MiB;
    EXPECT_NE(umf_pages_alloc(cache, PAGE, PAGE), nullptr);
    umf_pages_trim(cache);
    EXPECT_TRUE(is_good);
    EXPECT_EQ(destroy_cache(cache), UMF_RESULT_SUCCESS);
    umfMemoryProviderDestroy(forking);
}

/* --- shards --- */

#define NEEDS_CPUS()                                                                               \
    if (std::thread::hardware_concurrency() < 2) {                                                 \
        GTEST_SKIP() << "one CPU: there is one shard";                                             \
    }

/* Pieces of a page that a new thread gets. */
static std::vector<char *> from_thread(PageCache *pages, size_t count) {
    std::vector<char *> pieces;
    std::thread([&] {
        while (count--) {
            pieces.push_back((char *)umf_pages_alloc(pages, PAGE, PAGE));
        }
    }).join();
    return pieces;
}

TEST_F(PagesTest, ThreadsThatMeetMakeParts) {
    NEEDS_CPUS();
    from_thread(pages, 10);
    from_thread(pages, 10);
    EXPECT_EQ(umf_pages_shard_count(pages), 1u) << "they did not meet";
    meet();
    EXPECT_EQ(umf_pages_shard_count(pages), 2u);
    EXPECT_EQ(memory.allocs, 1u) << "free memory is used up first";
}

/* Two threads that come one after the other are apart. */
TEST_F(PagesTest, ThreadsDoNotLiveOnOthersParts) {
    NEEDS_CPUS();
    meet();
    std::vector<char *> pieces = from_thread(pages, 100);
    std::vector<char *> more = from_thread(pages, 100);
    EXPECT_EQ(memory.allocs, 2u);
    EXPECT_NE(shard_of(pages, pieces.back()), shard_of(pages, more.back()));
    pieces.insert(pieces.end(), more.begin(), more.end());
    for (char *piece : pieces) {
        umf_pages_put(pages, piece, PAGE);
    }
    EXPECT_EQ(umf_pages_used(pages), PAGE) << "each went back to its shard";
    EXPECT_EQ(umf_pages_total(pages), 4 * MiB);
    umf_pages_trim(pages);
    EXPECT_EQ(memory.live(), 1u);
}

/* While most of the memory is free, no shard needs more of its own. */
TEST_F(PagesTest, ThreadsUseThePlentyOfOtherParts) {
    NEEDS_CPUS();
    meet();
    std::vector<char *> pieces = from_thread(pages, 5000), left;
    for (size_t i = 0; i < pieces.size(); i++) {
        if (i % 300 == 0) {
            left.push_back(pieces[i]); /* its span stays */
        } else {
            umf_pages_put(pages, pieces[i], PAGE);
        }
    }
    const size_t allocs = memory.allocs;
    for (int i = 0; i < 2; i++) { /* one of the two is of another shard, which has 2 MiB */
        std::vector<char *> more = from_thread(pages, 1200);
        EXPECT_EQ(memory.allocs, allocs) << i;
        left.insert(left.end(), more.begin(), more.end());
    }
    for (char *piece : left) {
        umf_pages_put(pages, piece, PAGE);
    }
    umf_pages_trim(pages);
    EXPECT_EQ(memory.live(), 1u);
}

/* Memory in other shards is no reason to say that there is none. */
TEST_F(PagesTest, AFullProviderIsSharedByAllParts) {
    NEEDS_CPUS();
    memory.limit = 2 * MiB;
    meet();
    std::vector<char *> pieces = from_thread(pages, 511);
    EXPECT_EQ(std::count(pieces.begin(), pieces.end(), nullptr), 0);
    EXPECT_EQ(from_thread(pages, 1).front(), nullptr);
    for (int i = 0; i < 2; i++) {
        for (char *piece : pieces) {
            umf_pages_put(pages, piece, PAGE);
        }
        size_t allocs = memory.allocs;
        pieces = from_thread(pages, 511);
        EXPECT_EQ(std::count(pieces.begin(), pieces.end(), nullptr), 0);
        EXPECT_EQ(memory.allocs, allocs) << "the pool has noted that the provider has no more";
    }
}

TEST_F(PagesTest, TrimAndDecayReachAllParts) {
    NEEDS_CPUS();
    memory.protection = PROT_READ | PROT_WRITE;
    meet();
    for (bool is_trim : {false, true}) {
        std::vector<char *> all;
        for (int i = 0; i < 2; i++) {
            std::vector<char *> pieces = from_thread(pages, 200);
            all.insert(all.end(), pieces.begin(), pieces.end());
        }
        for (size_t i = 0; i < all.size(); i++) {
            all[i][0] = 1;
            if (i % 2) {
                umf_pages_put(pages, all[i], PAGE);
            }
        }
        if (is_trim) {
            umf_pages_trim(pages);
        } else {
            umf_pages_decay(pages, true);
            umf_pages_decay(pages, true);
        }
        for (size_t i = 0; i < all.size(); i++) {
            ASSERT_EQ(all[i][0], i % 2 ? 0 : 1) << i;
        }
    }
}

TEST_F(PagesTest, WithoutMemoryForPartsThreadsShare) {
    NEEDS_CPUS();
    alloc(PAGE);
    {
        fault::Nth nth("meta_alloc");
        ASSERT_TRUE(nth.next());
        meet();
        EXPECT_EQ(umf_pages_shard_count(pages), 1u);
    }
    meet();
    EXPECT_EQ(umf_pages_shard_count(pages), 2u);
}

/* Threads take and exchange pieces, so that each returns pieces that others took. */
TEST_F(PagesTest, PiecesGoFromThreadToThread) {
    if (std::thread::hardware_concurrency() > 1) {
        meet();
    }
    size_t left = umf_pages_used(pages);
    static constexpr size_t SLOTS = 64;
    std::atomic<char *> slots[SLOTS] = {};
    run_threads<unsigned>(4, [&](unsigned t) {
        std::minstd_rand random(t + 1);
        for (size_t i = 0; i < scaled(20000); i++) {
            size_t slot = random() % SLOTS, size = (1 + slot % 20) * PAGE;
            char *old = slots[slot].exchange(alloc(size));
            if (old) {
                umf_pages_put(pages, old, size);
            }
            if (i % 1000 == 0) {
                umf_pages_settle(pages);
                t == 0 ? umf_pages_trim(pages) : (void)umf_pages_decay(pages, true);
            }
        }
    });
    for (size_t slot = 0; slot < SLOTS; slot++) {
        if (slots[slot]) {
            umf_pages_put(pages, slots[slot], (1 + slot % 20) * PAGE);
        }
    }
    EXPECT_EQ(umf_pages_used(pages), left);
    umf_pages_trim(pages);
    EXPECT_LE(memory.live(), 1u);
}
