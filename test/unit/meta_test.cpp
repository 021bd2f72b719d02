#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "base/meta.h"
#include "system/annotate.h"
#include "system/os.h"
}

namespace {

size_t alignment_of(size_t size) {
    return size >= umf_os_page_size() ? umf_os_page_size() : size >= 64 ? 64 : 16;
}

// At once: an emulator and a sanitizer look at each access of a loop.
bool is_all(const unsigned char *bytes, size_t size, unsigned char value) {
    return size == 0 || (bytes[0] == value && std::memcmp(bytes, bytes + 1, size - 1) == 0);
}

bool is_zero(const void *ptr, size_t size) {
    return is_all(static_cast<const unsigned char *>(ptr), size, 0);
}

int fail_map(const char *call) {
    return std::strcmp(call, "map") == 0 ? ENOMEM : 0;
}

struct block_t {
    unsigned char *ptr;
    size_t size;
    unsigned char fill;
};

bool is_intact(const block_t &block) {
    return is_all(block.ptr, block.size, block.fill);
}

void churn(unsigned seed, int rounds) {
    std::mt19937 random(seed);
    std::vector<block_t> live;
    for (int i = 0; i < rounds; i++) {
        if (live.size() < 64 || random() % 2) {
            size_t size = random() % 100 ? 1 + random() % 6000 : 30000 + random() % 80000;
            auto ptr = static_cast<unsigned char *>(umf_meta_alloc(size));
            ASSERT_NE(ptr, nullptr);
            ASSERT_EQ(reinterpret_cast<uintptr_t>(ptr) % alignment_of(size), 0u) << size;
            ASSERT_TRUE(is_zero(ptr, size)) << size;
            auto fill = static_cast<unsigned char>(1 + random() % 255);
            std::memset(ptr, fill, size);
            live.push_back({ptr, size, fill});
        } else {
            std::swap(live[random() % live.size()], live.back());
            ASSERT_TRUE(is_intact(live.back()));
            umf_meta_free(live.back().ptr, live.back().size);
            live.pop_back();
        }
    }
    for (const block_t &block : live) {
        ASSERT_TRUE(is_intact(block));
        umf_meta_free(block.ptr, block.size);
    }
}

} // namespace

TEST(meta, blocks_are_zero_and_aligned_for_every_size) {
    for (size_t size = 0; size <= 40000; size += size < 300 ? 1 : 97) {
        void *ptr = umf_meta_alloc(size);
        ASSERT_NE(ptr, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % alignment_of(size), 0u) << size;
        EXPECT_TRUE(is_zero(ptr, size)) << size;
        std::memset(ptr, 0xff, size);
        umf_meta_free(ptr, size);
    }
}

TEST(meta, a_freed_block_is_used_again_and_zero) {
    void *first = umf_meta_alloc(1000);
    std::memset(first, 0xff, 1000);
    umf_meta_free(first, 1000);
    void *second = umf_meta_alloc(1000);
    EXPECT_EQ(first, second);
    EXPECT_TRUE(is_zero(second, 1000));
    umf_meta_free(second, 1000);
}

TEST(meta, used_counts_what_callers_hold) {
    size_t before = umf_meta_used();
    void *small = umf_meta_alloc(100);
    void *large = umf_meta_alloc(1000000);
    EXPECT_EQ(umf_meta_used(), before + 1000100);
    umf_meta_free(small, 100);
    EXPECT_EQ(umf_meta_used(), before + 1000000);
    umf_meta_free(large, 1000000);
    EXPECT_EQ(umf_meta_used(), before);
}

TEST(meta, large_blocks_go_back_to_the_system) {
    size_t page = umf_os_page_size();
    size_t before = umf_meta_mapped();
    void *ptr = umf_meta_alloc(100 * page - 1);
    ASSERT_NE(ptr, nullptr);
    EXPECT_EQ(umf_meta_mapped(), before + 100 * page);
    umf_meta_free(ptr, 100 * page - 1);
    EXPECT_EQ(umf_meta_mapped(), before);
    EXPECT_EQ(madvise(ptr, 100 * page, MADV_NORMAL), -1);
    EXPECT_EQ(errno, ENOMEM);
}

TEST(meta, lasting_blocks_stay_mapped_and_are_used_again) {
    for (size_t size : {size_t{1}, size_t{32768}, size_t{32769}, size_t{65536}, size_t{1} << 20}) {
        auto ptr = static_cast<char *>(umf_meta_alloc_lasting(size));
        ASSERT_NE(ptr, nullptr);
        std::memset(ptr, 0x5a, size);
        size_t used = umf_meta_used(), mapped = umf_meta_mapped();
        umf_meta_free_lasting(ptr, size);
        EXPECT_EQ(umf_meta_used(), used - size);
        EXPECT_EQ(umf_meta_mapped(), mapped);
        if (size > 65536) { // large, and more than a page
            size_t page = umf_os_page_size();
            EXPECT_EQ(ptr[16], 0x5a);
            EXPECT_EQ(ptr[page - 1], 0x5a);
            EXPECT_TRUE(is_zero(ptr + page, size - page));
        }
        auto again = static_cast<char *>(umf_meta_alloc_lasting(size));
        EXPECT_EQ(again, ptr);
        EXPECT_TRUE(is_zero(again, size)) << size;
        umf_meta_free_lasting(again, size);
    }
    umf_meta_free_lasting(nullptr, 100);
    umf_meta_free_lasting(nullptr, 100000);
    EXPECT_EQ(umf_meta_alloc_lasting(SIZE_MAX), nullptr);
}

// Those of similar sizes serve each other; memory used by the first one is 0.
TEST(meta, lasting_blocks_that_are_locked_are_zero_again) {
    auto ptr = static_cast<char *>(umf_meta_alloc_lasting(40000));
    ASSERT_NE(ptr, nullptr);
    std::memset(ptr, 0x5a, 40000);
    umf_os_set_fault([](const char *call) { return std::strcmp(call, "advise") ? 0 : EINVAL; });
    umf_meta_free_lasting(ptr, 40000);
    umf_os_set_fault(nullptr);
    auto larger = static_cast<char *>(umf_meta_alloc_lasting(60000));
    EXPECT_EQ(larger, ptr);
    EXPECT_TRUE(is_zero(larger, 60000));
    umf_meta_free_lasting(larger, 60000);
}

TEST(meta, null_is_ignored) {
    size_t before = umf_meta_used();
    umf_meta_free(nullptr, 100);
    EXPECT_EQ(umf_meta_used(), before);
}

TEST(meta, size_that_cannot_be_rounded_gives_null) {
    EXPECT_EQ(umf_meta_alloc(SIZE_MAX), nullptr);
    EXPECT_EQ(umf_meta_alloc(SIZE_MAX - 4096), nullptr);
    EXPECT_EQ(umf_meta_alloc(SIZE_MAX / 2), nullptr);
}

TEST(meta, out_of_memory_gives_null_and_the_arena_lives_on) {
    size_t used = umf_meta_used();
    std::vector<void *> blocks;
    umf_os_set_fault(fail_map);
    EXPECT_EQ(umf_meta_alloc(1 << 20), nullptr);
    for (void *ptr = umf_meta_alloc(32768); ptr; ptr = umf_meta_alloc(32768)) {
        blocks.push_back(ptr);
        ASSERT_LT(blocks.size(), 100u);
    }
    umf_os_set_fault(nullptr);
    EXPECT_EQ(umf_meta_used(), used + blocks.size() * 32768);
    void *ptr = umf_meta_alloc(32768);
    EXPECT_NE(ptr, nullptr);
    umf_meta_free(ptr, 32768);
    for (void *block : blocks) {
        umf_meta_free(block, 32768);
    }
    EXPECT_EQ(umf_meta_used(), used);
}

// Of the pages that these blocks lie in.
static size_t resident_pages(const std::vector<unsigned char *> &blocks, size_t size) {
    std::set<uintptr_t> pages, resident;
    const uintptr_t page = umf_os_page_size();
    for (const unsigned char *block : blocks) {
        for (uintptr_t at = reinterpret_cast<uintptr_t>(block) / page * page;
             at < reinterpret_cast<uintptr_t>(block) + size; at += page) {
            pages.insert(at);
        }
    }
    for (uintptr_t at : pages) {
        std::vector<unsigned char> state(page / 4096); // an emulator's kernel has smaller pages
        EXPECT_EQ(mincore(reinterpret_cast<void *>(at), page, state.data()), 0);
        if (std::any_of(state.begin(), state.end(), [](unsigned char c) { return c & 1; })) {
            resident.insert(at);
        }
    }
    return resident.size();
}

// A stretch keeps the pages of its first and last block. One ends with each chunk, which has 1 MiB:
// only with large pages are these many.
static size_t pages_at_ends(size_t bytes) {
    return umf_os_page_size() > 4096 ? 2 * (bytes >> 20) : 0;
}

TEST(meta, a_trim_drops_the_pages_of_freed_blocks) {
    for (size_t size : {16, 100, 1200, 20000}) {
        SCOPED_TRACE(size);
        const size_t count = (UMF_TEST_TSAN ? 2 : 8) * (size_t{1} << 20) / size, kept = count / 8;
        std::vector<unsigned char *> blocks(count);
        for (unsigned char *&block : blocks) {
            block = static_cast<unsigned char *>(umf_meta_alloc(size));
            ASSERT_NE(block, nullptr);
            std::memset(block, 0x77, size);
        }
        std::shuffle(blocks.begin() + static_cast<ptrdiff_t>(kept), blocks.end(), std::mt19937(1));
        const size_t full = resident_pages(blocks, size);
        for (size_t i = kept; i < count; i++) {
            umf_meta_free(blocks[i], size);
        }
        umf_meta_trim();
        EXPECT_LT(resident_pages(blocks, size), full / 4 + pages_at_ends(count * size));
        for (size_t i = 0; i < count; i++) {
            if (i >= kept) {
                blocks[i] = static_cast<unsigned char *>(umf_meta_alloc(size));
                ASSERT_TRUE(is_zero(blocks[i], size));
                std::memset(blocks[i], 0x77, size);
            }
        }
        EXPECT_EQ(std::set<unsigned char *>(blocks.begin(), blocks.end()).size(), count);
        for (unsigned char *block : blocks) {
            ASSERT_TRUE(is_intact({block, size, 0x77}));
            umf_meta_free(block, size);
        }
    }
}

TEST(meta, trims_beside_threads) {
    size_t used = umf_meta_used();
    run_threads<unsigned>(4, [](unsigned i) {
        if (i) {
            churn(200 + i, 5000);
        }
        for (int round = 0; i == 0 && round < 200; round++) {
            umf_meta_trim();
        }
    });
    EXPECT_EQ(umf_meta_used(), used);
}

TEST(meta, blocks_do_not_overlap) {
    churn(1, 20000);
}

TEST(meta, blocks_of_many_threads_do_not_overlap) {
    size_t used = umf_meta_used();
    run_threads<unsigned>(4, [](unsigned i) { churn(100 + i, 5000); });
    EXPECT_EQ(umf_meta_used(), used);
}

#if UMF_IS_ASAN
TEST(meta_death, access_outside_a_block_is_reported) {
    auto freed = static_cast<volatile char *>(umf_meta_alloc(200));
    umf_meta_free(const_cast<char *>(freed), 200);
    EXPECT_DEATH(freed[100] = 1, "use-after-poison");

    auto block = static_cast<volatile char *>(umf_meta_alloc(200));
    EXPECT_DEATH(block[200] = 1, "use-after-poison");
    umf_meta_free(const_cast<char *>(block), 200);
}
#endif
