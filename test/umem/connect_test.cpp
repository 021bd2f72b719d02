// Connections, and who reaches whose memory on the host.

#include "own_context.h"
#include "umem_test.h"

namespace {

class Connect : public Umem {
  protected:
    Made<umemHost> other{umemHost_ctor};
    Made<Own> own{own_ctor};
    uintptr_t block = umem_calloc(&host, 1024, 1);

    void TearDown() override {
        umem_free(&host, block);
        EXPECT_OK(&host);
        Umem::TearDown();
    }
};

} // namespace

TEST_F(Connect, LinkedContextsShareTheRange) {
    EXPECT_EQ(umem_connect(&host, block, 1024, &other, 0), block);
    EXPECT_EQ(umem_connect(&host, block, 1024, &other, 16), block);
    EXPECT_EQ(umem_connect(&host, block, 1024, &host, 8), block);
    umem_sync_to(&host, block, &other, block, SIZE_MAX);
    umem_sync_from(&host, block, &other, block, SIZE_MAX);
    umem_sync_to_safe(&host, block, 10, &other, block, 10, 1024);
    umem_sync_from_safe(&host, block, 10, &other, block, 10, 1024);
    umem_disconnect(&host, block, &other, block, 0);
    umem_disconnect(&host, block, &other, block, 16);
    EXPECT_OK(&host);
    EXPECT_OK(&other);
    umem_set(&host, block, 'x', 1024); // it is still there
}

// Programs look for the first power of two that does not divide an address.
TEST_F(Connect, AnAlignmentThatTheRangeLacksMakesACopy) {
    size_t alignment = 1;
    while (block % alignment == 0) {
        alignment *= 2;
    }
    EXPECT_EQ(alignment, 32u);
    umem_set(&host, block, 'x', 1000);
    uintptr_t copy = umem_connect(&host, block, 1000, &other, alignment);
    ASSERT_NE(copy, 0u) << umem_get_message(&other);
    EXPECT_NE(copy, block);
    EXPECT_EQ(copy % alignment, 0u);
    EXPECT_SAME(content(&host, copy, 1000), std::string(1000, 'x'));
    umem_set(&host, block, 'y', 1000);
    umem_sync_to(&host, block, &other, copy, 500);
    EXPECT_SAME(content(&host, copy, 1000), std::string(500, 'y') + std::string(500, 'x'));
    umem_set(&host, copy, 'z', 1000);
    umem_sync_from(&host, block, &other, copy, 1);
    EXPECT_SAME(content(&host, block, 2), "zy");
    umem_sync_to_safe(&host, block, 10, &other, copy, 10, 11);
    EXPECT_STATUS(&host, umemIndexError);
    umem_clear_status(&host);
    umem_disconnect(&host, block, &other, copy, alignment);
    EXPECT_OK(&other);
}

TEST_F(Connect, OthersGetACopy) {
    umem_set(&host, block, 'x', 1024);
    for (size_t alignment : {0, 8, 64}) {
        uintptr_t copy = umem_connect(&host, block, 1000, &own, alignment);
        ASSERT_NE(copy, 0u);
        EXPECT_EQ(own->blocks, 1);
        EXPECT_SAME(content(&own, copy, 1000), std::string(1000, 'x'));
        umem_disconnect(&host, block, &own, copy, alignment);
        EXPECT_EQ(own->blocks, 0);
    }
    EXPECT_OK(&own);
}

TEST_F(Connect, FailuresFreeTheCopy) {
    EXPECT_EQ(umem_connect(&host, block, 1 << 20, &own, 0), 0u);
    EXPECT_STATUS(&own, umemMemoryError);
    EXPECT_EQ(umem_connect(&host, block, 10, &own, 12), 0u);
    EXPECT_STATUS(&own, umemValueError);
    EXPECT_EQ(umem_connect(&host, block, SIZE_MAX, &other, 64), 0u);
    EXPECT_STATUS(&other, umemMemoryError);
    own->fails_copies = true;
    umem_clear_status(&own);
    EXPECT_EQ(umem_connect(&host, block, 10, &own, 0), 0u);
    EXPECT_STATUS(&own, umemIOError);
    EXPECT_EQ(own->blocks, 0);
    Made<Own> third(own_ctor);
    umem_clear_status(&own);
    EXPECT_EQ(umem_connect(&own, OWN_BASE, 10, &third, 0), 0u);
    EXPECT_STATUS(&own, umemIOError);
    EXPECT_OK(&third);
    EXPECT_EQ(third->blocks, 0);
}

TEST_F(Connect, OneContextWithItself) {
    umem_set(&own, OWN_BASE, 'x', 10);
    own->next = 16;
    EXPECT_EQ(umem_connect(&own, OWN_BASE, 10, &own, 0), OWN_BASE);
    uintptr_t copy = umem_connect(&own, OWN_BASE + 1, 9, &own, 8);
    EXPECT_SAME(content(&own, copy, 9), std::string(9, 'x'));
    umem_disconnect(&own, OWN_BASE + 1, &own, copy, 8);
    EXPECT_EQ(own->blocks, 0);
    EXPECT_OK(&own);
}

TEST_F(Connect, AFileIsConnected) {
    std::string name = folder.file("file");
    Made<umemFile> file(umemFile_ctor, name.c_str(), "w+b");
    umem_set(&host, block, 'x', 1024);
    EXPECT_EQ(umem_connect(&host, block, 1024, &file, 0), 0u); // the first offset
    EXPECT_OK(&file);
    umem_set(&host, block, 'y', 1024);
    umem_sync_to(&host, block, &file, 0, 10);
    EXPECT_SAME(content(&file, 0, 1024), std::string(10, 'y') + std::string(1014, 'x'));
    uintptr_t back = umem_connect(&file, 0, 1024, &other, 0);
    EXPECT_SAME(content(&other, back, 11), std::string(10, 'y') + "x");
    umem_disconnect(&file, 0, &other, back, 0);
    umem_disconnect(&host, block, &file, 0, 0);
    EXPECT_EQ(file->fp, 0u);
    EXPECT_EQ(read_file(name).size(), 1024u);
}

TEST_F(Connect, SameDevices) {
    EXPECT_TRUE(umem_is_same_device(&host, &other));
    EXPECT_FALSE(umem_is_same_device(&host, &own));
    EXPECT_TRUE(umem_is_same_device(&own, &own));
    EXPECT_TRUE(umem_is_accessible_from(&host, &other));
    EXPECT_FALSE(umem_is_accessible_from(&host, &own));
    EXPECT_FALSE(umem_is_accessible_from(&own, &host));
}

TEST_F(Connect, NamesOfTheDocumentation) {
    umem_free_aligned(&host, umem_aligned_alloc(&host, 32, 32));
    umem_set_status(&host, umemIOError, "text");
    umem_clean_status(&host);
    EXPECT_OK(&host);
}
