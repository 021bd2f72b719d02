#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/fake_provider.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "base/meta.h"
#include "pools/disjoint/slab.h"
#include "system/annotate.h"
#include "system/os.h"
}

#if UMF_TEST_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace {

struct Bin {
    umf_slab_owner_t owner;
    umf_quota_t limits;
    umf_bin_t *bin;
};

// One bin over a provider; `limit` SIZE_MAX: none.
Bin *create_bin(umf_memory_provider_handle_t provider, size_t size, size_t slab_size,
                size_t max_kept, size_t limit) {
    auto bin = new Bin{};
    if (umf_tracked_acquire(provider, &bin->owner.tracked) != UMF_RESULT_SUCCESS) {
        delete bin;
        return nullptr;
    }
    bin->limits.max = limit;
    bin->owner.limits = limit == SIZE_MAX ? nullptr : &bin->limits;
    bin->bin = umf_bin_create(&bin->owner, 0, size, slab_size, 0, 0, max_kept);
    return bin;
}

void destroy_bin(Bin *bin) {
    umf_bin_destroy(bin->bin);
    umf_tracked_release(bin->owner.tracked);
    delete bin;
}

size_t take_chunks(Bin *bin, void **chunks, size_t n) {
    std::vector<umf_item_t> items(n + 1);
    size_t taken = umf_bin_take(bin->bin, items.data(), n);
    for (size_t i = 0; i < taken; i++) {
        chunks[i] = items[i].object;
        UMF_UNPOISON(chunks[i], bin->bin->size);
    }
    return taken;
}

void put_chunks(Bin *bin, void **chunks, size_t n) {
    std::vector<umf_item_t> items(n + 1);
    for (size_t i = 0; i < n; i++) {
        items[i].object = chunks[i];
    }
    umf_bin_put(bin->bin, items.data(), n);
}

umf_slab_t *slab_of(Bin *bin, void *ptr) {
    return static_cast<umf_slab_t *>(umf_tracked_find(bin->owner.tracked, ptr)->cookie);
}

umf_result_t put_ptr(Bin *bin, void *chunk, void *ptr) {
    return umf_slab_put_ptr(slab_of(bin, chunk), reinterpret_cast<uintptr_t>(ptr));
}

umf_result_t usable_size(Bin *bin, void *chunk, void *ptr, size_t *size) {
    return umf_slab_usable_size(slab_of(bin, chunk), reinterpret_cast<uintptr_t>(ptr), size);
}

umf_result_t set_offset(Bin *bin, void *ptr) {
    return umf_slab_set_offset(slab_of(bin, ptr), reinterpret_cast<uintptr_t>(ptr));
}

size_t trim(Bin *bin, size_t keep) { // the rest of `keep`
    umf_bin_trim(bin->bin, &keep);
    return keep;
}

// Chunks are poisoned until the pool hands them out.
void fill(void *chunk, int value, size_t size) {
#if UMF_TEST_ASAN
    __asan_unpoison_memory_region(chunk, size);
#endif
    memset(chunk, value, size);
}

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

class Slab : public testing::Test {
  protected:
    FakeProvider fake;
    umf_memory_provider_handle_t provider = fake.create();
    Bin *bin = nullptr;

    void create(size_t size, size_t slab_size, size_t max_kept = 1, size_t limit = SIZE_MAX) {
        bin = create_bin(provider, size, slab_size, max_kept, limit);
        ASSERT_NE(bin, nullptr);
    }
    void TearDown() override {
        umf_os_set_fault(nullptr);
        if (bin) {
            destroy_bin(bin);
        }
        EXPECT_EQ(fake.live(), 0u);
        EXPECT_EQ(fake.mistakes, 0u);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
    }
    std::vector<void *> take(size_t n) {
        std::vector<void *> list(n);
        size_t got = 0;
        while (got < n) {
            size_t more = take_chunks(bin, &list[got], n - got);
            EXPECT_GT(more, 0u);
            got += more;
        }
        return list;
    }
    void put(std::vector<void *> list) {
        put_chunks(bin, list.data(), list.size());
    }
    bool look() {
        size_t left = SIZE_MAX;
        return umf_bin_decay(bin->bin, 4096, true, &left);
    }
};

TEST_F(Slab, ChunksAreEqualAndApart) {
    for (size_t size : {8, 24, 96, 1000, 4096, 24576, 65536, 70000}) {
        create(size, 65536);
        size_t chunks = std::max<size_t>(65536 / size, 1);
        auto list = take(2 * chunks);
        EXPECT_EQ(bin->bin->slabs, 2u) << size;
        EXPECT_EQ(bin->bin->used, 2 * chunks);
        EXPECT_EQ(fake.last_size, std::max<size_t>(size, 65536));
        std::sort(list.begin(), list.end());
        for (size_t i = 1; i < list.size(); i++) {
            EXPECT_GE(static_cast<char *>(list[i]) - static_cast<char *>(list[i - 1]),
                      static_cast<ptrdiff_t>(size));
        }
        put(list);
        EXPECT_EQ(bin->bin->used, 0u);
        EXPECT_EQ(bin->bin->slabs, 1u) << "one is kept";
        destroy_bin(bin);
        bin = nullptr;
        EXPECT_EQ(fake.live(), 0u);
    }
}

TEST_F(Slab, ANewSlabOnlyWhenNothingIsFree) {
    create(1024, 65536);
    auto list = take(60);
    void *more[64];
    EXPECT_EQ(take_chunks(bin, more, 64), 4u) << "free chunks, no new slab for the rest";
    EXPECT_EQ(fake.allocs, 1u);
    EXPECT_EQ(take_chunks(bin, more + 4, 60), 60u);
    EXPECT_EQ(fake.allocs, 2u);
}

TEST_F(Slab, KeepsUpToTheMaximum) {
    create(65536, 65536, 3);
    auto list = take(6);
    put(list);
    EXPECT_EQ(bin->bin->empty_count, 3u);
    EXPECT_EQ(fake.live(), 3u);
    take(2);
    EXPECT_EQ(bin->bin->empty_count, 1u);
    EXPECT_EQ(fake.allocs, 6u);
}

TEST_F(Slab, TrimCounts) {
    create(65536, 65536, 10);
    put(take(5));
    EXPECT_EQ(trim(bin, 3 * 65536 + 1), 0u);
    EXPECT_EQ(bin->bin->empty_count, 4u);
    EXPECT_EQ(trim(bin, 10 * 65536), 6u * 65536) << "the rest for the next bin";
    EXPECT_EQ(trim(bin, 0), 0u);
    EXPECT_EQ(fake.live(), 0u);
}

TEST_F(Slab, LimitIsAccountedFor) {
    create(65536, 65536, 10, 2 * 65536);
    auto list = take(5);
    EXPECT_EQ(bin->limits.used, 0u);
    put(list);
    EXPECT_EQ(bin->bin->empty_count, 2u);
    EXPECT_EQ(bin->limits.used, 2u * 65536);
    list = take(1);
    EXPECT_EQ(bin->limits.used, 65536u);
    put(list);
    trim(bin, 0);
    EXPECT_EQ(bin->limits.used, 0u);
}

TEST_F(Slab, LimitAfterAProviderThatRefused) {
    create(65536, 65536, 10, 2 * 65536);
    auto list = take(5);
    fake.free_fails = true;
    put(list);
    EXPECT_EQ(bin->bin->empty_count, 5u) << "they have to stay";
    EXPECT_EQ(bin->bin->slabs, 5u);
    EXPECT_EQ(bin->limits.used, 5u * 65536);
    trim(bin, 0);
    EXPECT_EQ(bin->bin->slabs, 5u);
    EXPECT_EQ(bin->limits.used, 5u * 65536);
    fake.free_fails = false;
    list = take(5);
    EXPECT_EQ(fake.allocs, 5u) << "and are used";
    EXPECT_EQ(bin->limits.used, 0u);
    put(list);
    EXPECT_EQ(bin->limits.used, 2u * 65536);
}

TEST_F(Slab, DestroyOverAProviderThatRefuses) {
    create(4096, 65536, 1, 65536);
    take(20);
    fake.free_fails = true;
    size_t used = umf_meta_used();
    destroy_bin(bin);
    bin = nullptr;
    EXPECT_LT(umf_meta_used(), used);
    fake.free_fails = false;
    EXPECT_EQ(fake.live(), 2u) << "the provider has them still";
    while (fake.live()) {
        ASSERT_EQ(umfMemoryProviderFree(provider, fake.any(), 0), OK);
    }
}

TEST_F(Slab, WhatIsNotInUseIsIgnored) {
    create(64, 65536);
    auto list = take(10);
    char *first = static_cast<char *>(*std::min_element(list.begin(), list.end()));
    put({list[3]});
    put({list[3]});
    EXPECT_EQ(bin->bin->used, 9u);
    put({first + 1, first + 63, first + 60000});
    EXPECT_EQ(bin->bin->used, 9u);
    EXPECT_EQ(put_ptr(bin, first, first + 1), BAD);
    EXPECT_EQ(put_ptr(bin, first, list[3]), BAD);
    EXPECT_EQ(put_ptr(bin, first, list[4]), OK);
    EXPECT_EQ(put_ptr(bin, first, list[4]), BAD);
    EXPECT_EQ(bin->bin->used, 8u);
}

// 682 chunks of 96 bytes leave 64 of the slab, where a 683rd would begin.
TEST_F(Slab, WhatLiesBehindTheLastChunkIsIgnored) {
    create(96, 65536);
    auto list = take(682);
    ASSERT_EQ(bin->bin->slabs, 1u);
    void *first = *std::min_element(list.begin(), list.end());
    put({static_cast<char *>(first) + 682 * 96});
    EXPECT_EQ(bin->bin->used, 682u);
    put(list);
    EXPECT_EQ(bin->bin->used, 0u);
    EXPECT_EQ(bin->bin->empty_count, 1u);
}

TEST_F(Slab, Offsets) {
    create(4096, 65536);
    auto list = take(4);
    auto chunk = static_cast<char *>(list[1]);
    size_t size = 0;
    EXPECT_EQ(usable_size(bin, chunk, chunk, &size), OK);
    EXPECT_EQ(size, 4096u);
    ASSERT_EQ(set_offset(bin, chunk + 512), OK);
    EXPECT_EQ(usable_size(bin, chunk, chunk, &size), BAD) << "not the user's block";
    EXPECT_EQ(usable_size(bin, chunk, chunk + 512, &size), OK);
    EXPECT_EQ(size, 4096u - 512);
    EXPECT_EQ(put_ptr(bin, chunk, chunk), BAD);
    EXPECT_EQ(put_ptr(bin, chunk, chunk + 512), OK);
    auto again = take(1);
    EXPECT_EQ(usable_size(bin, again[0], again[0], &size), OK) << "the offset is forgotten";
    EXPECT_EQ(size, 4096u);
}

TEST_F(Slab, PurgeDropsFreePagesOnly) {
    create(1024, 65536);
    auto list = take(64);
    for (void *p : list) {
        fill(p, 0x5c, 1024);
    }
    std::sort(list.begin(), list.end());
    std::vector<void *> freed(list.begin() + 1, list.begin() + 20);
    freed.push_back(list[40]);
    put(freed);
    EXPECT_TRUE(umf_bin_purge(bin->bin, 4096));
    EXPECT_GT(fake.purges, 0u);
    for (size_t i : {0, 20, 39, 41, 63}) {
        auto p = static_cast<char *>(list[i]);
        EXPECT_TRUE(std::all_of(p, p + 1024, [](char c) { return c == 0x5c; })) << i;
    }
    EXPECT_EQ(static_cast<char *>(list[8])[0], 0) << "a whole free page was dropped";
    size_t purges = fake.purges;
    EXPECT_TRUE(umf_bin_purge(bin->bin, 4096));
    EXPECT_EQ(fake.purges, purges) << "nothing was freed since";
    EXPECT_EQ(take(20).size(), 20u) << "the chunks are free as before";
    EXPECT_EQ(fake.allocs, 1u);
}

TEST_F(Slab, ProviderThatCannotPurge) {
    fake.can_purge = false;
    create(1024, 65536);
    auto list = take(64);
    put({list[0], list[1], list[2], list[3], list[4], list[5], list[6], list[7]});
    EXPECT_FALSE(umf_bin_purge(bin->bin, 4096));
    take(8);
}

// Pages that are free at two looks are purged, once.
TEST_F(Slab, WhatStaysFreeDecays) {
    create(4096, 65536);
    auto list = take(16);
    std::sort(list.begin(), list.end());
    for (void *p : list) {
        fill(p, 0x5c, 4096);
    }
    put({list[1], list[2], list[8]});
    EXPECT_TRUE(look());
    EXPECT_EQ(fake.purges, 0u) << "a look alone does nothing";
    EXPECT_TRUE(look());
    EXPECT_EQ(fake.purges, 2u) << "two runs of pages";
    for (size_t i = 0; i < list.size(); i++) {
        bool is_free = i == 1 || i == 2 || i == 8;
        auto p = static_cast<char *>(list[i]);
        EXPECT_TRUE(std::all_of(p, p + 4096, [=](char c) { return c == (is_free ? 0 : 0x5c); }))
            << i;
    }
    EXPECT_TRUE(look() && look() && look());
    EXPECT_EQ(fake.purges, 2u) << "nothing was freed since";
    put({list[4]});
    EXPECT_TRUE(look() && look() && look());
    EXPECT_EQ(fake.purges, 5u) << "three runs";
    EXPECT_EQ(static_cast<char *>(list[4])[0], 0);
    EXPECT_EQ(bin->bin->used, 12u);
    EXPECT_EQ(take(4).size(), 4u) << "the chunks are free as before";
    EXPECT_EQ(fake.allocs, 1u);
}

// A scan purges so much; the rest serves meanwhile.
TEST_F(Slab, DecayGoesOnWhereItStopped) {
    create(4096, 65536);
    auto list = take(16 * 16);
    for (size_t i = 0; i < list.size(); i += 16) {
        put({list[i], list[i + 5]});
    }
    size_t left = 0;
    EXPECT_TRUE(umf_bin_decay(bin->bin, 4096, true, &left) &&
                umf_bin_decay(bin->bin, 4096, true, &left));
    EXPECT_EQ(fake.purges, 0u);
    left = 3 * 65536;
    EXPECT_TRUE(umf_bin_decay(bin->bin, 4096, false, &left));
    EXPECT_EQ(left, 0u);
    EXPECT_EQ(fake.purges, 3u * 2);
    auto more = take(32);
    EXPECT_EQ(fake.allocs, 16u) << "idle slabs, and slabs that were";
    put(more);
    left = SIZE_MAX;
    EXPECT_TRUE(umf_bin_decay(bin->bin, 4096, false, &left));
    EXPECT_EQ(left, SIZE_MAX) << "all have been full since";
    EXPECT_TRUE(look() && look());
    EXPECT_EQ(fake.purges, 3u * 2 + 16u * 2);
    EXPECT_EQ(bin->bin->used, 14u * 16);
}

// A pass that goes on takes the empty slabs that the new pass found aged, and ages none.
TEST_F(Slab, DecayOfEmptySlabsGoesOn) {
    create(4096, 65536, 16);
    auto list = take(16 * 16);
    put(list);
    ASSERT_EQ(fake.frees, 0u) << "all are kept";
    EXPECT_TRUE(look());
    size_t left = 3 * 65536;
    EXPECT_TRUE(umf_bin_decay(bin->bin, 4096, true, &left));
    EXPECT_EQ(left, 0u);
    EXPECT_EQ(fake.purges, 3u);
    put(take(16));
    for (size_t purges : {7u, 11u, 15u}) {
        left = 4 * 65536;
        EXPECT_TRUE(umf_bin_decay(bin->bin, 4096, false, &left));
        EXPECT_EQ(fake.purges, purges);
    }
    left = SIZE_MAX;
    EXPECT_TRUE(umf_bin_decay(bin->bin, 4096, false, &left));
    EXPECT_EQ(fake.purges, 15u) << "the one that was in use";
}

TEST_F(Slab, EmptySlabsDecayAndAreKept) {
    for (size_t size : {1024, 65536}) {
        create(size, 65536, 3, 3 * 65536);
        size_t before = fake.purges;
        auto list = take(3 * (65536 / size));
        for (void *p : list) {
            fill(p, 0x5c, size);
        }
        put(list);
        EXPECT_EQ(bin->bin->empty_count, 3u);
        EXPECT_TRUE(look());
        take(1);
        EXPECT_TRUE(look());
        size_t rest = size == 1024; // of the slab in use, in whole pages
        EXPECT_EQ(fake.purges, before + 2 + rest);
        EXPECT_TRUE(look() && look() && look());
        EXPECT_EQ(bin->bin->empty_count, 2u);
        EXPECT_EQ(bin->limits.used, 2u * 65536);
        size_t dropped = 0;
        for (void *p : list) {
            dropped += static_cast<char *>(p)[0] == 0;
        }
        EXPECT_EQ(dropped, 2 * (65536 / size) + 60 * rest);
        size_t allocs = fake.allocs;
        take(list.size() - 1);
        EXPECT_EQ(fake.allocs, allocs);
        destroy_bin(bin);
        bin = nullptr;
    }
}

// One that was used between two looks is as good as new.
TEST_F(Slab, EmptySlabsInUseDoNotDecay) {
    create(65536, 65536, 2);
    for (int i = 0; i < 10; i++) {
        put(take(1));
        EXPECT_TRUE(look());
    }
    EXPECT_EQ(fake.purges, 0u);
}

TEST_F(Slab, DecayOverAProviderThatRefuses) {
    create(4096, 65536, 2);
    auto list = take(3 * 16);
    fake.purge_fails = true;
    put({list[0], list[1]});
    EXPECT_TRUE(look() && look() && look() && look());
    EXPECT_EQ(fake.purges, 2u) << "a purge that failed is made again when the slab has aged again";
    fake.purge_fails = false;
    EXPECT_TRUE(look() && look() && look() && look());
    EXPECT_EQ(fake.purges, 3u);
    EXPECT_EQ(fake.purged_bytes, 8192u);
    fake.can_purge = false;
    put({list[20]});
    EXPECT_TRUE(look());
    EXPECT_FALSE(look());
    EXPECT_EQ(bin->bin->used, 3u * 16 - 3);
    put({list.begin() + 32, list.end()});
    EXPECT_EQ(bin->bin->empty_count, 1u);
    EXPECT_TRUE(look());
    EXPECT_FALSE(look());
    EXPECT_EQ(bin->bin->empty_count, 1u) << "it stays with the bin";
    take(19);
    EXPECT_EQ(fake.allocs, 3u);
}

TEST_F(Slab, NoMemory) {
    create(64, 65536);
    void *chunk = nullptr;
    fake.alloc_fails = true;
    EXPECT_EQ(take_chunks(bin, &chunk, 1), 0u);
    fake.alloc_fails = false;
    umf_os_set_fault([](const char *) { return 12; });
    EXPECT_EQ(take_chunks(bin, &chunk, 1), 0u);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(bin->bin->slabs, 0u);
    EXPECT_EQ(fake.live(), 0u);
    take(1);
}

TEST_F(Slab, RandomAgainstAModel) {
    for (size_t size : {64, 1536, 32768}) {
        create(size, 65536, 2);
        std::mt19937 random(11);
        std::set<void *> live;
        for (size_t i = 0; i < scaled(5000); i++) {
            if (random() % 2 || live.empty()) {
                void *chunks[16];
                size_t got = take_chunks(bin, chunks, 1 + random() % 16);
                for (size_t k = 0; k < got; k++) {
                    ASSERT_TRUE(live.insert(chunks[k]).second) << "handed out twice";
                }
            } else {
                std::vector<void *> some;
                for (auto at = live.begin(); at != live.end() && some.size() < 20;) {
                    if (random() % 4 == 0) {
                        some.push_back(*at);
                        at = live.erase(at);
                    } else {
                        ++at;
                    }
                }
                if (!some.empty()) {
                    put(some);
                }
            }
            ASSERT_EQ(bin->bin->used, live.size());
        }
        destroy_bin(bin);
        bin = nullptr;
    }
}

TEST_F(Slab, Threads) {
    create(512, 65536, 1);
    run_threads(4, [&](int) {
        for (size_t i = 0; i < scaled(3000); i++) {
            void *chunks[8];
            size_t got = take_chunks(bin, chunks, 8);
            for (size_t k = 0; k < got; k++) {
                fill(chunks[k], static_cast<int>(i), 512);
            }
            put_chunks(bin, chunks, got);
            if (i % 100 == 0) {
                umf_bin_purge(bin->bin, 4096);
                trim(bin, 0);
            }
            if (i % 30 == 0) {
                look();
            }
        }
    });
    EXPECT_EQ(bin->bin->used, 0u);
}

} // namespace
