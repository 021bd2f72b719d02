// Memory in files: addresses are pointers.

#include "umem_test.h"

#include <atomic>
#include <thread>

namespace {

class MMap : public Umem {
  protected:
    std::string name = folder.file("file");

    Made<umemMMap> make(const char *mode) {
        return {umemMMap_ctor, name.c_str(), mode};
    }
};

} // namespace

TEST_F(MMap, IsMemoryOfTheFile) {
    Made<umemMMap> map = make("w+b");
    EXPECT_EQ(map->super.type, umemMMapDevice);
    EXPECT_EQ(map->super.host_ctx, &map->host);
    EXPECT_EQ(map->fp, 0u);
    EXPECT_STREQ(map->filename, name.c_str());
    EXPECT_STREQ(map->mode, "w+b");
    uintptr_t block = umem_alloc(&map, 100);
    ASSERT_NE(block, 0u) << umem_get_message(&map);
    strcpy(reinterpret_cast<char *>(block), "in the file");
    EXPECT_EQ(read_file(name).substr(0, 11), "in the file");
    umem_set(&map, block, 'x', 2);
    EXPECT_EQ(read_file(name).substr(0, 11), "xx the file");
    umem_free(&map, block);
    EXPECT_OK(&map);
    EXPECT_STREQ(umem_get_device_name(&map), "MMAP");
    EXPECT_EQ(umem_fundamental_align(&map), 1u);
}

TEST_F(MMap, ContentStaysAfterTheEnd) {
    uintptr_t block;
    {
        Made<umemMMap> map = make("wb");
        block = umem_calloc(&map, 10, 10);
        ASSERT_NE(block, 0u);
        umem_set(&map, block, 'a', 100);
    }
    EXPECT_EQ(reinterpret_cast<char *>(block)[99], 'a'); // destroying frees nothing
    EXPECT_EQ(read_file(name).substr(0, 101), std::string(100, 'a') + std::string(1, 0));
    {
        Made<umemMMap> other = make("r+b");
        umem_free(&other, block);
        EXPECT_OK(&other);
        umem_free(&other, block);
        EXPECT_STATUS(&other, umemValueError);
    }
    {
        Made<umemMMap> again = make("r+b"); // begins at the start of the file
        block = umem_alloc(&again, 100);
        EXPECT_SAME(content(&again, block, 100), std::string(100, 'a'));
        umem_free(&again, block);
    }
    Made<umemMMap> emptied = make("wb");
    block = umem_alloc(&emptied, 100);
    EXPECT_SAME(content(&emptied, block, 100), std::string(100, 0));
    umem_free(&emptied, block);
}

TEST_F(MMap, TwoContextsOfOneFileShareItsBlocks) {
    Made<umemMMap> one = make("w+b"), same = make("w+b"),
                   by_another_name(umemMMap_ctor, (folder.file("") + "./file").c_str(), "w+b");
    uintptr_t first = umem_alloc(&one, 1000), second = umem_alloc(&same, 1000),
              third = umem_alloc(&by_another_name, 1000);
    umem_set(&one, first, '1', 1008);
    umem_set(&one, second, '2', 1008);
    umem_set(&one, third, '3', 1008);
    EXPECT_SAME(content(&same, first, 1008), std::string(1008, '1'));
    EXPECT_SAME(content(&one, second, 1008), std::string(1008, '2'));
    EXPECT_TRUE(umem_is_accessible_from(&one, &same));
    EXPECT_FALSE(umem_is_accessible_from(&one, &by_another_name));
    EXPECT_TRUE(umem_is_accessible_from(&one, &host));
    EXPECT_FALSE(umem_is_accessible_from(&host, &one));
    for (uintptr_t block : {first, second, third}) {
        umem_free(&same, block);
    }
    EXPECT_OK(&same);
}

// The file is open as long as one context uses it, however many threads used it first.
TEST_F(MMap, ThreadsThatUseAContextFirst) {
    auto is_mapped = [this] {
        return read_file("/proc/self/maps").find(name) != std::string::npos;
    };
    for (int round = 0; round < 100; round++) {
        Made<umemMMap> map = make("w+b");
        std::atomic<int> ready{0};
        auto use = [&] {
            for (ready++; ready < 2;) {
                std::this_thread::yield();
            }
            umem_free(&map, umem_alloc(&map, 100));
        };
        std::thread other(use);
        use();
        other.join();
        EXPECT_OK(&map);
        EXPECT_TRUE(is_mapped());
    }
    EXPECT_FALSE(is_mapped());
}

TEST_F(MMap, ReadersChangeNothing) {
    write_file(name, "0123456789");
    Made<umemMMap> map = make("rb");
    uintptr_t block = umem_alloc(&map, 10);
    ASSERT_NE(block, 0u) << umem_get_message(&map);
    EXPECT_SAME(content(&map, block, 10), "0123456789");
    umem_set(&map, block, 'x', 10);
    EXPECT_SAME(content(&map, block, 10), "xxxxxxxxxx");
    EXPECT_EQ(read_file(name).substr(0, 10), "0123456789");
    umem_free(&map, block);
    EXPECT_OK(&map);
}

TEST_F(MMap, SizesAndAlignments) {
    Made<umemMMap> map = make("w+b");
    EXPECT_EQ(umem_alloc(&map, 0), 0u);
    EXPECT_EQ(umem_calloc(&map, 0, 1), 0u);
    umem_free(&map, 0);
    EXPECT_OK(&map);
    for (size_t alignment = 1; alignment <= 8192; alignment *= 2) {
        uintptr_t block = umem_aligned_alloc(&map, alignment, alignment);
        ASSERT_NE(block, 0u);
        EXPECT_EQ(block % alignment, 0u);
        EXPECT_SAME(content(&map, block, alignment), std::string(alignment, 0));
        umem_set(&map, block, 'x', alignment + 8);
        umem_free(&map, umem_aligned_origin(&map, block));
    }
    EXPECT_OK(&map);
    EXPECT_EQ(umem_alloc(&map, SIZE_MAX), 0u);
    EXPECT_STATUS(&map, umemMemoryError);
}

TEST_F(MMap, WhatCannotBeOpenedIsAnIOError) {
    for (const char *mode : {"rb", "r+", "nonsense"}) {
        Made<umemMMap> map = make(mode);
        EXPECT_EQ(umem_alloc(&map, 10), 0u);
        EXPECT_STATUS(&map, umemIOError);
        int own;
        umem_clear_status(&map);
        umem_free(&map, adr(&own));
        EXPECT_STATUS(&map, umemValueError);
    }
    Made<umemMMap> nameless(umemMMap_ctor, "", "wb");
    EXPECT_STREQ(umem_get_message(&nameless), "invalid 0-length filename");
    umem_clear_status(&nameless);
    EXPECT_EQ(umem_alloc(&nameless, 1), 0u);
    EXPECT_STATUS(&nameless, umemIOError);
    Made<umemMMap> in_no_folder(umemMMap_ctor, "/no/such/folder/file", "wb");
    EXPECT_EQ(umem_alloc(&in_no_folder, 1), 0u);
    EXPECT_STATUS(&in_no_folder, umemIOError);
}
