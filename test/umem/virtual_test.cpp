// Contexts without operations, and a program's own.

#include "own_context.h"
#include "umem_test.h"

extern "C" int umem_test_context_in_c(const char *filename); // 0, or a line of virtual_shim.c

namespace {

class Virtual : public Umem {
  protected:
    Made<Own> own{own_ctor};
};

} // namespace

TEST_F(Virtual, WithoutOperationsEverythingIsNotImplemented) {
    Made<umemVirtual> base(umemVirtual_ctor, nullptr), other(umemVirtual_ctor, nullptr);
    EXPECT_EQ(base->type, umemVirtualDevice);
    EXPECT_EQ(base->host_ctx, nullptr);
    EXPECT_STREQ(umem_get_device_name(&base), "Virtual");
    EXPECT_EQ(umem_fundamental_align(&base), 1u);
    char data[64];
    const std::function<void()> uses[] = {
        [&] { EXPECT_EQ(umem_alloc(&base, 8), 0u); },
        [&] { EXPECT_EQ(umem_calloc(&base, 8, 8), 0u); },
        [&] { EXPECT_EQ(umem_aligned_alloc(&base, 8, 8), 0u); },
        [&] { EXPECT_EQ(umem_aligned_origin(&base, 64), 0u); },
        [&] { umem_free(&base, 64); },
        [&] { umem_aligned_free(&base, 64); },
        [&] { umem_set(&base, 64, 0, 8); },
        [&] { umem_copy_to(&base, 64, &host, adr(data), 8); },
        [&] { umem_copy_from(&base, 64, &host, adr(data), 8); },
        [&] { umem_copy_to(&host, adr(data), &base, 64, 8); },
        [&] { umem_copy_from(&host, adr(data), &base, 64, 8); },
        [&] { EXPECT_EQ(umem_connect(&host, adr(data), 8, &base, 0), 0u); },
    };
    for (const auto &use : uses) {
        use();
        EXPECT_STATUS(&base, umemNotImplementedError);
        EXPECT_OK(&host);
        umem_clear_status(&base);
    }
    EXPECT_FALSE(umem_is_accessible_from(&base, &other));
    EXPECT_TRUE(umem_is_accessible_from(&base, &base));
    EXPECT_FALSE(umem_is_same_device(&base, &other));
    EXPECT_OK(&base);
}

TEST_F(Virtual, TheDestructorEndsTheHost) {
    umemHost other;
    umemVirtual base;
    umemHost_ctor(&other);
    umemVirtual_ctor(&base, &other);
    EXPECT_EQ(base.host, &other);
    umem_set_status(&other, umemIOError, "text");
    umem_set_status(&base, umemIOError, "text");
    umem_dtor(&base);
    EXPECT_OK(&base);
    EXPECT_OK(&other);
}

TEST_F(Virtual, CallocIsAllocAndSet) {
    uintptr_t block = umem_calloc(&own, 10, 10);
    EXPECT_EQ(block, OWN_BASE);
    EXPECT_SAME(content(&own, block, 101), std::string(100, 0) + "\xee");
    EXPECT_EQ(umem_calloc(&own, 0, 10), 0u);
    EXPECT_EQ(umem_calloc(&own, 10, 0), 0u);
    EXPECT_OK(&own);
    EXPECT_EQ(umem_calloc(&own, SIZE_MAX, 2), 0u);
    EXPECT_STATUS(&own, umemMemoryError);
    umem_clear_status(&own);
    EXPECT_EQ(umem_calloc(&own, 1, 1 << 20), 0u);
    EXPECT_STATUS(&own, umemMemoryError);
    EXPECT_STREQ(umem_get_message(&own), "full");
    EXPECT_EQ(own->blocks, 1);
}

TEST_F(Virtual, AlignedAddressesHaveTheirStartBefore) {
    for (size_t alignment : {1, 2, 8, 32, 4096}) {
        uintptr_t expected = OWN_BASE + own->next;
        uintptr_t block = umem_aligned_alloc(&own, alignment, alignment * 2), word = 0;
        ASSERT_NE(block, 0u) << umem_get_message(&own);
        EXPECT_EQ(block % alignment, 0u);
        EXPECT_SAME(content(&own, block, alignment * 2 + 8), std::string(alignment * 2 + 8, 0));
        memcpy(&word, own_at(&own->super, block - sizeof(word)), sizeof(word));
        EXPECT_EQ(word, expected);
        EXPECT_EQ(umem_aligned_origin(&own, block), expected);
        EXPECT_EQ(own->blocks, 1);
        umem_aligned_free(&own, block);
        EXPECT_EQ(own->blocks, 0);
    }
    umem_aligned_free(&own, 0);
    EXPECT_EQ(umem_aligned_origin(&own, 0), 0u);
    EXPECT_OK(&own);
    EXPECT_EQ(umem_aligned_alloc(&own, 12, 12), 0u);
    EXPECT_STREQ(umem_get_message(&own), "umem_aligned_alloc: alignment 12 must be power of 2");
    umem_clear_status(&own);
    EXPECT_EQ(umem_aligned_alloc(&own, 8, 12), 0u);
    EXPECT_STREQ(umem_get_message(&own),
                 "umem_aligned_alloc: size 12 must be multiple of alignment 8");
    umem_clear_status(&own);
    EXPECT_EQ(umem_aligned_alloc(&own, 8, SIZE_MAX - 7), 0u);
    EXPECT_STATUS(&own, umemMemoryError);
}

TEST_F(Virtual, AWordThatCannotBeKeptIsAnError) {
    own->fails_copies = true;
    EXPECT_EQ(umem_aligned_alloc(&own, 8, 8), 0u);
    EXPECT_STATUS(&own, umemIOError);
    EXPECT_EQ(own->blocks, 0);
    EXPECT_EQ(umem_aligned_origin(&own, OWN_BASE + 100), 0u);
    own->blocks = 1;
    umem_aligned_free(&own, OWN_BASE + 100);
    EXPECT_EQ(own->blocks, 1);
}

// What failed before does not stand in the way.
TEST_F(Virtual, AnOldErrorChangesNothing) {
    umem_set_status(&own, umemIOError, "old");
    uintptr_t block = umem_aligned_alloc(&own, 8, 8);
    EXPECT_NE(block, 0u);
    EXPECT_NE(umem_aligned_origin(&own, block), 0u);
    umem_aligned_free(&own, block);
    EXPECT_EQ(own->blocks, 0);
    uintptr_t cleared = umem_calloc(&own, 1, 1);
    EXPECT_NE(cleared, 0u);
    EXPECT_EQ(umem_connect(&host, umem_connect(&own, cleared, 1, &host, 0), 1, &own, 0) != 0, true);
    EXPECT_STREQ(umem_get_message(&own), "old");
}

TEST_F(Virtual, CopiesOfHostMemoryAreItsOwn) {
    char data[] = "data", back[5] = "";
    umem_copy_to(&host, adr(data), &own, OWN_BASE, 5);
    EXPECT_EQ(own->from, 1);
    umem_copy_from(&host, adr(back), &own, OWN_BASE, 5);
    EXPECT_EQ(own->to, 1);
    EXPECT_STREQ(back, "data");
    own->fails_copies = true;
    umem_copy_to(&host, adr(data), &own, OWN_BASE, 5);
    EXPECT_STREQ(umem_get_message(&own), "no copy from");
    EXPECT_OK(&host);
}

// Each half of a copy by way of the host is a copy of its own context; after one that failed there
// is no other.
TEST_F(Virtual, CopiesOfTwo) {
    Made<Own> other(own_ctor);
    umem_set(&own, OWN_BASE, 'a', 1000);
    umem_copy_to(&own, OWN_BASE, &other, OWN_BASE + 10, 1000);
    EXPECT_SAME(content(&other, OWN_BASE + 10, 1000), std::string(1000, 'a'));
    umem_set(&own, OWN_BASE, 'b', 1000);
    umem_copy_from(&other, OWN_BASE + 10, &own, OWN_BASE, 1000);
    EXPECT_SAME(content(&other, OWN_BASE + 10, 1000), std::string(1000, 'b'));
    umem_copy_to(&own, OWN_BASE, &own, OWN_BASE + 2000, 1000);
    EXPECT_SAME(content(&own, OWN_BASE + 2000, 1000), std::string(1000, 'b'));
    EXPECT_OK(&own);
    EXPECT_OK(&other);
    other->fails_copies = true;
    umem_copy_to_via_host(&own, OWN_BASE, &other, OWN_BASE, 10);
    EXPECT_OK(&own);
    EXPECT_STREQ(umem_get_message(&other), "no copy from");
    umem_clear_status(&other);
    own->fails_copies = true;
    int before = other->from;
    umem_copy_to_via_host(&own, OWN_BASE, &other, OWN_BASE, 10);
    EXPECT_STREQ(umem_get_message(&own), "no copy to");
    EXPECT_OK(&other);
    EXPECT_EQ(other->from, before);
    umem_clear_status(&own);
    umem_copy_from_via_host(&other, OWN_BASE, &own, OWN_BASE, SIZE_MAX / 2);
    EXPECT_OK(&other);
    EXPECT_FALSE(umem_is_ok(&own));
}

TEST_F(Virtual, WrittenInC) {
    EXPECT_EQ(umem_test_context_in_c(folder.file("file").c_str()), 0);
}
