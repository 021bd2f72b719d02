// Memory of the host.

#include <thread>

#include "umem_test.h"

namespace {

class Host : public Umem {
  protected:
    char *at(uintptr_t address) {
        return reinterpret_cast<char *>(address);
    }
};

} // namespace

TEST_F(Host, Context) {
    EXPECT_EQ(host->super.type, umemHostDevice);
    EXPECT_EQ(host->super.host_ctx, &host);
    EXPECT_EQ(host->super.host, &host);
    EXPECT_EQ(umem_fundamental_align(&host), alignof(max_align_t));
}

TEST_F(Host, SizeZeroIsAddressZero) {
    EXPECT_EQ(umem_alloc(&host, 0), 0u);
    EXPECT_EQ(umem_calloc(&host, 0, 5), 0u);
    EXPECT_EQ(umem_calloc(&host, 5, 0), 0u);
    umem_free(&host, 0);
    umem_aligned_free(&host, 0);
    umem_free_aligned(&host, 0);
    EXPECT_EQ(umem_aligned_origin(&host, 0), 0u);
    EXPECT_OK(&host);
}

TEST_F(Host, BlocksHaveClearSlackAndAnOffset) {
    for (size_t size : {1, 2, 7, 8, 9, 31, 64, 100, 1024, 4096, 5000, 1 << 20, 9 << 20}) {
        std::vector<uintptr_t> blocks;
        for (int i = 0; i < 20; i++) {
            uintptr_t block = umem_alloc(&host, size);
            ASSERT_NE(block, 0u);
            EXPECT_EQ(block % 32, 16u);
            for (size_t slack = 0; slack < 8; slack++) {
                EXPECT_EQ(at(block)[size + slack], 0);
            }
            memset(at(block), 0xee, size + 8);
            blocks.push_back(block);
        }
        for (uintptr_t block : blocks) {
            umem_free(&host, block);
        }
    }
    EXPECT_OK(&host);
}

TEST_F(Host, CallocIsClear) {
    for (int round = 0; round < 10; round++) {
        uintptr_t block = umem_calloc(&host, 100, 3);
        ASSERT_NE(block, 0u);
        EXPECT_SAME(content(&host, block, 308), std::string(308, 0));
        memset(at(block), 0xee, 308);
        umem_free(&host, block);
    }
}

TEST_F(Host, TooMuchIsAMemoryError) {
    EXPECT_EQ(umem_calloc(&host, SIZE_MAX / 2, 3), 0u);
    EXPECT_STATUS(&host, umemMemoryError);
    for (size_t size : {SIZE_MAX, SIZE_MAX - 8, SIZE_MAX - 100, SIZE_MAX / 2}) {
        umem_clear_status(&host);
        EXPECT_EQ(umem_alloc(&host, size), 0u);
        EXPECT_STATUS(&host, umemMemoryError);
    }
    umem_clear_status(&host);
    EXPECT_EQ(umem_aligned_alloc(&host, 16, SIZE_MAX - 15), 0u);
    EXPECT_STATUS(&host, umemMemoryError);
}

TEST_F(Host, AlignedBlocks) {
    for (size_t alignment = 1; alignment <= 1 << 21; alignment *= 2) {
        for (size_t count : {0, 1, 3}) {
            uintptr_t block = umem_aligned_alloc(&host, alignment, alignment * count);
            ASSERT_NE(block, 0u);
            EXPECT_EQ(block % alignment, 0u);
            EXPECT_EQ(block % alignof(max_align_t), 0u);
            EXPECT_SAME(content(&host, block, alignment * count + 8),
                        std::string(alignment * count + 8, 0));
            memset(at(block), 0xee, alignment * count + 8);
            uintptr_t origin = umem_aligned_origin(&host, block);
            EXPECT_NE(origin, 0u);
            EXPECT_LE(origin, block);
            if (count == 1) {
                umem_free(&host, origin);
            } else {
                umem_aligned_free(&host, block);
            }
        }
    }
    EXPECT_OK(&host);
}

TEST_F(Host, AlignmentsAreChecked) {
    EXPECT_EQ(umem_aligned_alloc(&host, 24, 48), 0u);
    EXPECT_STATUS(&host, umemValueError);
    EXPECT_STREQ(umem_get_message(&host), "umem_aligned_alloc: alignment 24 must be power of 2");
    umem_clear_status(&host);
    EXPECT_EQ(umem_aligned_alloc(&host, 0, 0), 0u);
    EXPECT_STREQ(umem_get_message(&host), "umem_aligned_alloc: alignment 0 must be power of 2");
    umem_clear_status(&host);
    EXPECT_EQ(umem_aligned_alloc(&host, 128, 80), 0u);
    EXPECT_STATUS(&host, umemValueError);
    EXPECT_STREQ(umem_get_message(&host),
                 "umem_aligned_alloc: size 80 must be multiple of alignment 128");
    umem_clear_status(&host);
    EXPECT_EQ(umem_aligned_alloc(&host, 3, 4), 0u); // the alignment comes first
    EXPECT_STREQ(umem_get_message(&host), "umem_aligned_alloc: alignment 3 must be power of 2");
}

TEST_F(Host, AnyContextFrees) {
    uintptr_t block;
    {
        Made<umemHost> other(umemHost_ctor);
        block = umem_alloc(&other, 100);
    }
    at(block)[99] = 'x';
    umem_free(&host, block);
    EXPECT_OK(&host);
}

TEST_F(Host, WhatIsNoBlockIsAValueError) {
    uintptr_t block = umem_alloc(&host, 1000);
    int own = 0;
    for (uintptr_t wrong : {block + 1, block + 16, block + 32, adr(&own)}) {
        umem_free(&host, wrong);
        EXPECT_STATUS(&host, umemValueError);
        umem_clear_status(&host);
    }
    umem_free(&host, block);
    EXPECT_OK(&host);
    umem_free(&host, block);
    EXPECT_STATUS(&host, umemValueError);
}

TEST_F(Host, SetsAndCopies) {
    uintptr_t one = umem_alloc(&host, 100), other = umem_alloc(&host, 100);
    umem_set(&host, one, 'a', 100);
    umem_set(&host, one, 256 + 'b', 1);
    umem_set(&host, one, 'c', 0);
    umem_copy_to(&host, one, &host, other, 50);
    umem_copy_from(&host, other + 50, &host, one, 50);
    umem_copy_to(&host, one, &host, other, 0);
    EXPECT_SAME(content(&host, other, 100),
                "b" + std::string(49, 'a') + "b" + std::string(49, 'a'));
    umem_free(&host, one);
    umem_free(&host, other);
    EXPECT_OK(&host);
}

TEST_F(Host, RangesAreChecked) {
    Made<umemHost> other(umemHost_ctor);
    char from[8] = "1234567", to[8] = "";
    auto expect = [&](umemStatusType of_src, umemStatusType of_dest) {
        EXPECT_STATUS(&host, of_src);
        EXPECT_STATUS(&other, of_dest);
        umem_clear_status(&host);
        umem_clear_status(&other);
    };
    umem_copy_to_safe(&host, adr(from), 8, &other, adr(to), 4, 8);
    expect(umemOK, umemIndexError);
    umem_copy_to_safe(&host, adr(from), 4, &other, adr(to), 4, 8);
    expect(umemIndexError, umemOK);
    umem_copy_from_safe(&other, adr(to), 4, &host, adr(from), 8, 8);
    expect(umemOK, umemIndexError);
    umem_copy_from_safe(&other, adr(to), 4, &host, adr(from), 4, 8);
    expect(umemIndexError, umemOK);
    umem_sync_to_safe(&host, adr(from), 4, &other, adr(to), 4, 8);
    expect(umemIndexError, umemOK);
    umem_sync_from_safe(&other, adr(to), 4, &host, adr(from), 8, 8);
    expect(umemOK, umemIndexError);
    umem_set_safe(&host, adr(to), 4, 'x', 5);
    expect(umemIndexError, umemOK);
    EXPECT_EQ(std::string(to, 8), std::string(8, 0));
    umem_copy_to_safe(&host, adr(from), 8, &other, adr(to), 8, 8);
    umem_set_safe(&host, adr(to), 4, 'x', 4);
    expect(umemOK, umemOK);
    EXPECT_STREQ(to, "xxxx567");
}

TEST_F(Host, ThreadsHaveContextsOfTheirOwn) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([] {
            Made<umemHost> own(umemHost_ctor);
            for (size_t size = 1; size < 2000; size++) {
                umem_free(&own, umem_calloc(&own, size, 3));
            }
            EXPECT_OK(&own);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}
