#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/scale.h"

extern "C" {
#include "base/meta.h"
#include "system/os.h"
#include "track/map_run.h"
}

namespace {

umf_map_t *create_map(bool is_reserved) { // a private one; with a flat table?
    auto map = new umf_map_t{};
    if (umf_map_init(map) != UMF_RESULT_SUCCESS) {
        delete map;
        return nullptr;
    }
    if (is_reserved) {
        umf_map_reserve(map);
    }
    return map;
}

void destroy_map(umf_map_t *map) {
    umf_map_fini(map);
    delete map;
}

// Some words leave out the short way that spans try first.
bool is_near(uintptr_t base, size_t size, uint64_t word) {
    return umf_map_entry_span(word) % 2 && umf_map_is_near(base, size);
}

umf_result_t map_insert(umf_map_t *map, uintptr_t base, size_t size, uint64_t under,
                        uint64_t word) {
    return !under && is_near(base, size, word) && umf_map_insert_near(map, base, size, word)
               ? UMF_RESULT_SUCCESS
               : umf_map_insert(map, base, size, under, word);
}

void map_remove(umf_map_t *map, uintptr_t base, size_t size, uint64_t word, uint64_t under) {
    if (!is_near(base, size, word) || !umf_map_remove_near(map, base, size, word, under)) {
        umf_map_remove(map, base, size, word, under);
    }
}

bool is_fast(umf_map_t *map, uintptr_t addr) { // does the short walk find something?
    umf_map_entry_t word;
    return umf_map_find_fast(map, addr, &word) && word != 0;
}

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t GiB = size_t{1} << 30, TiB = size_t{1} << 40;
constexpr size_t slot_sizes[] = {4096, 65536, size_t{2} << 20};

// With the tables of 2 MiB slots side by side, and wherever they lie.
class Map : public testing::TestWithParam<bool> {
  protected:
    size_t used = umf_meta_used();
    umf_map_t *map = create_map(GetParam());

    void TearDown() override {
        umf_os_set_fault(nullptr);
        destroy_map(map);
        EXPECT_EQ(umf_meta_used(), used) << "tables were left";
    }
    uint64_t find(uintptr_t addr) {
        return umf_map_find(map, addr);
    }
    void random_against_a_model(const struct Shape &shape);
};

INSTANTIATE_TEST_SUITE_P(Tables, Map, testing::Values(true, false), [](const auto &reserved) {
    return std::string(reserved.param ? "Flat" : "Anywhere");
});

uint64_t word(uint32_t n) {
    return umf_map_entry_make(static_cast<uint16_t>(n * 4), n, n);
}

TEST_P(Map, WordsCarryTheirParts) {
    const uint32_t class_offsets[] = {0, 4, 0xfffc}, pools[] = {0, 1, (1u << 20) - 1},
                   spans[] = {0, 1, (1u << 26) - 1};
    for (uint32_t class_offset : class_offsets) {
        for (uint32_t pool : pools) {
            for (uint32_t span : spans) {
                uint64_t w = umf_map_entry_make(static_cast<uint16_t>(class_offset), pool, span);
                EXPECT_EQ(umf_map_entry_class_offset(w), class_offset);
                EXPECT_EQ(umf_map_entry_pool(w), pool);
                EXPECT_EQ(umf_map_entry_span(w), span);
                EXPECT_EQ(w & 3, 2u) << "a leaf";
            }
        }
    }
}

TEST_P(Map, EmptyFindsNothing) {
    for (uintptr_t addr :
         {uintptr_t{0}, uintptr_t{1}, uintptr_t{1} << 47, uintptr_t{1} << 48, UINTPTR_MAX}) {
        EXPECT_EQ(find(addr), 0u);
    }
}

TEST_P(Map, BordersOfEveryLevel) {
    const uintptr_t base = 5 * TiB;
    for (size_t size : {size_t{1}, size_t{17}, size_t{4095}, size_t{4096}, size_t{4097},
                        size_t{65536}, size_t{65537}, size_t{2} << 20, (size_t{2} << 20) + 1, GiB,
                        GiB + 4096, 3 * GiB + 12345}) {
        for (uintptr_t start : {base, base + 1, base + 4096, base + 65536 - 3, base + GiB - 1}) {
            ASSERT_EQ(map_insert(map, start, size, 0, word(1)), OK);
            EXPECT_EQ(find(start), word(1));
            EXPECT_EQ(find(start + size / 2), word(1));
            EXPECT_EQ(find(start + size - 1), word(1));
            EXPECT_EQ(find(start - 1), 0u) << size << " at " << start - base;
            EXPECT_EQ(find(start + size), 0u) << size << " at " << start - base;
            EXPECT_TRUE(umf_map_is_uniform(map, start, size, word(1)));
            map_remove(map, start, size, word(1), 0);
            EXPECT_EQ(find(start), 0u);
            EXPECT_EQ(find(start + size - 1), 0u);
        }
    }
}

TEST_P(Map, EightyGiBWithSomethingInside) {
    const uintptr_t base = 7 * TiB + 4096;
    ASSERT_EQ(map_insert(map, base, 80 * GiB, 0, word(1)), OK);
    ASSERT_EQ(map_insert(map, base + 33 * GiB + 100, 50, word(1), word(2)), OK);
    ASSERT_EQ(map_insert(map, base + 40 * GiB, 3 * GiB, word(1), word(3)), OK);
    EXPECT_EQ(find(base + 33 * GiB + 99), word(1));
    EXPECT_EQ(find(base + 33 * GiB + 100), word(2));
    EXPECT_EQ(find(base + 33 * GiB + 150), word(1));
    EXPECT_EQ(find(base + 42 * GiB), word(3));
    EXPECT_EQ(find(base + 80 * GiB - 1), word(1));
    EXPECT_EQ(find(base + 80 * GiB), 0u);
    map_remove(map, base + 40 * GiB, 3 * GiB, word(3), word(1));
    EXPECT_EQ(find(base + 42 * GiB), word(1));
    // The outer one first: inner spans stay.
    map_remove(map, base, 80 * GiB, word(1), 0);
    EXPECT_EQ(find(base + 33 * GiB + 120), word(2));
    EXPECT_EQ(find(base + 33 * GiB + 99), 0u);
    map_remove(map, base + 33 * GiB + 100, 50, word(2), 0);
    EXPECT_EQ(find(base + 33 * GiB + 120), 0u);
}

TEST_P(Map, EndsOfTheAddressSpace) {
    const uintptr_t last48 = (uintptr_t{1} << 48) - 1;
    ASSERT_EQ(map_insert(map, last48 - 4095, 4096, 0, word(1)), OK);
    EXPECT_EQ(find(last48), word(1));
    EXPECT_EQ(find(last48 + 1), 0u);
    map_remove(map, last48 - 4095, 4096, word(1), 0);
    ASSERT_EQ(map_insert(map, last48 - 9, 10, 0, word(1)), OK);
    EXPECT_EQ(find(last48 - 10), 0u);
    EXPECT_EQ(find(last48), word(1));
    EXPECT_EQ(map_insert(map, last48 - 4095, 4097, 0, word(2)), BAD) << "crosses 48 bits";
    EXPECT_EQ(map_insert(map, UINTPTR_MAX - 100, 101, 0, word(2)), BAD) << "wraps";
    EXPECT_EQ(map_insert(map, UINTPTR_MAX - 100, 200, 0, word(2)), BAD) << "wraps";
    EXPECT_EQ(map_insert(map, 4096, 0, 0, word(2)), BAD) << "nothing";
    ASSERT_EQ(map_insert(map, 1, 4095, 0, word(3)), OK);
    EXPECT_EQ(find(0), 0u);
    EXPECT_EQ(find(1), word(3));
    EXPECT_EQ(find(4096), 0u);
}

/* A list of spans would take minutes. */
TEST_P(Map, ManySpansAbove48Bits) {
    ONE_THREAD_ONLY()
    constexpr uint32_t COUNT = 100000;
    auto base = [](uint32_t i) {
        return (uintptr_t{1 + i % 3} << 48) + uintptr_t{i} * 0x20000 + (i % 5) * 100;
    };
    auto size = [](uint32_t i) { return size_t{0x10000} - (i % 7) * 64; };
    for (uint32_t i = 0; i < COUNT; i++) {
        ASSERT_EQ(map_insert(map, base(i), size(i), 0, word(i + 1)), OK);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        ASSERT_EQ(find(base(i)), word(i + 1));
        ASSERT_EQ(find(base(i) + size(i) - 1), word(i + 1));
        ASSERT_EQ(find(base(i) + size(i)), 0u);
        ASSERT_EQ(find(base(i) - 1), 0u);
    }
    EXPECT_EQ(find(base(0) & ((uintptr_t{1} << 48) - 1)), 0u) << "other bits above";
    EXPECT_EQ(find(base(0) + (uintptr_t{8} << 48)), 0u);
    for (uint32_t i = 0; i < COUNT; i++) {
        map_remove(map, base(i), size(i), word(i + 1), 0);
        ASSERT_EQ(find(base(i)), 0u);
    }
}

TEST_P(Map, AddressesAbove48Bits) {
    const uintptr_t base = uintptr_t{0x1234} << 48;
    for (uint32_t i = 0; i < 100; i++) {
        ASSERT_EQ(map_insert(map, base + i * 10000, 5000, 0, word(i + 1)), OK);
    }
    ASSERT_EQ(map_insert(map, base + 1000, 100, word(1), word(500)), OK);
    EXPECT_EQ(find(base + 1050), word(500)) << "the innermost";
    EXPECT_EQ(find(base + 1100), word(1));
    EXPECT_EQ(find(base + 990000 + 4999), word(100));
    EXPECT_EQ(find(base + 990000 + 5000), 0u);
    ASSERT_EQ(umf_map_split(map, base + 20000, 5000, 1000, word(3), word(600), 0), OK);
    EXPECT_EQ(find(base + 20999), word(3));
    EXPECT_EQ(find(base + 21000), word(600));
    EXPECT_TRUE(umf_map_is_uniform(map, base + 21000, 4000, word(600)));
    EXPECT_FALSE(umf_map_is_uniform(map, base + 20000, 5000, word(3)));
    umf_map_rename(map, base + 21000, 4000, word(600), word(3));
    EXPECT_TRUE(umf_map_is_uniform(map, base + 20000, 5000, word(3)));
    ASSERT_EQ(umf_map_split(map, base + 20000, 5000, 3000, word(3), word(601), 0), OK);
    EXPECT_EQ(find(base + 22999), word(3));
    EXPECT_EQ(find(base + 23000), word(601));
    EXPECT_EQ(map_insert(map, base + 40500, 10000, word(5), word(700)), BAD);
    EXPECT_EQ(map_insert(map, base + 39000, 2000, 0, word(700)), BAD) << "ends inside";
    EXPECT_EQ(map_insert(map, base + 39000, 9000, 0, word(700)), BAD) << "holds one whole";
    EXPECT_EQ(map_insert(map, base + 39000, 1001, 0, word(700)), BAD) << "one byte";
    EXPECT_EQ(map_insert(map, base + 44999, 1001, 0, word(700)), BAD) << "the last byte";
    EXPECT_EQ(map_insert(map, base + 44999, 2, word(5), word(700)), BAD);
    EXPECT_FALSE(umf_map_is_uniform(map, base, 5000, word(1)));
    map_remove(map, base + 1000, 100, word(500), word(1));
    EXPECT_EQ(find(base + 1050), word(1));
    map_remove(map, base, 5000, word(1), 0);
    EXPECT_EQ(find(base), 0u);
    EXPECT_EQ(find(base + 10000), word(2));
}

TEST_P(Map, OverlapIsRefusedAndChangesNothing) {
    const uintptr_t base = 9 * TiB;
    ASSERT_EQ(map_insert(map, base + 1000, 100000, 0, word(1)), OK);
    struct {
        size_t offset, size;
        uint64_t under;
    } const wrong[] = {
        {0, 1001, 0},     {0, 200000, 0},         {100999, 2, 0},     {100999, 2, word(1)},
        {5000, 100, 0},   {5000, 100, word(2)},   {0, 1001, word(1)}, {1000, 100001, word(1)},
        {999, 100002, 0}, {999, 100002, word(1)},
    };
    for (const auto &w : wrong) {
        EXPECT_EQ(map_insert(map, base + w.offset, w.size, w.under, word(3)), BAD)
            << w.offset << " " << w.size;
    }
    EXPECT_TRUE(umf_map_is_uniform(map, base + 1000, 100000, word(1)));
    EXPECT_EQ(find(base + 999), 0u);
    EXPECT_EQ(find(base + 101000), 0u);
}

// Of several slots only the last is taken: near ranges and those of several tables.
TEST_P(Map, InsertThatMeetsSomethingIsTakenBack) {
    const uintptr_t base = 10 * TiB;
    const size_t page = 4096, table = 65536, slot = size_t{2} << 20;
    struct {
        uintptr_t base;
        size_t size, last;
    } const ranges[] = {
        {base + page, 3 * page, page},
        {base + table, 5 * table, table},
        {base + slot, 4 * slot, slot},
        {base + GiB - 3 * slot, 3 * slot, slot},
        {base + table - page, 3 * page, page},
        {base + slot - table - page, slot + 2 * table + 2 * page, page},
        {base + GiB - slot - page, GiB + 2 * slot + page, slot},
        {base + GiB - table, 2 * GiB + table, GiB},
    };
    for (const auto &range : ranges) {
        const uintptr_t last = range.base + range.size - range.last;
        // Makes the tables of both ends.
        ASSERT_EQ(map_insert(map, range.base, page, 0, word(9)), OK);
        map_remove(map, range.base, page, word(9), 0);
        ASSERT_EQ(map_insert(map, range.base, range.size, 0, word(9)), OK);
        map_remove(map, range.base, range.size, word(9), 0);
        for (uint32_t n : {2u, 3u}) {
            ASSERT_EQ(map_insert(map, last, range.last, 0, word(1)), OK);
            EXPECT_FALSE(umf_map_insert_near(map, range.base, range.size, word(n)));
            EXPECT_TRUE(umf_map_is_uniform(map, range.base, range.size - range.last, 0));
            EXPECT_EQ(map_insert(map, range.base, range.size, 0, word(n)), BAD);
            EXPECT_TRUE(umf_map_is_uniform(map, range.base, range.size - range.last, 0));
            EXPECT_TRUE(umf_map_is_uniform(map, last, range.last, word(1)));
            map_remove(map, last, range.last, word(1), 0);
            ASSERT_EQ(map_insert(map, range.base, range.size, 0, word(n)), OK);
            EXPECT_TRUE(umf_map_is_uniform(map, range.base, range.size, word(n)));
            map_remove(map, range.base, range.size, word(n), 0);
            EXPECT_TRUE(umf_map_is_uniform(map, range.base, range.size, 0));
        }
    }
}

// In the first, a middle or the last slot: it stays when the span around it is removed.
TEST_P(Map, RemoveLeavesWhatIsInside) {
    const uintptr_t base = 10 * TiB;
    for (size_t size : slot_sizes) {
        for (uintptr_t outer : {base + size, base + GiB - 2 * size}) { // also over a GiB's end
            for (uint32_t n : {2u, 3u}) {
                for (uintptr_t inner : {outer, outer + 2 * size, outer + 3 * size}) {
                    for (size_t part : {size, size_t{100}}) {
                        ASSERT_EQ(map_insert(map, outer, 4 * size, 0, word(n)), OK);
                        ASSERT_EQ(map_insert(map, inner, part, word(n), word(1)), OK);
                        map_remove(map, outer, 4 * size, word(n), 0);
                        EXPECT_TRUE(umf_map_is_uniform(map, inner, part, word(1)));
                        map_remove(map, inner, part, word(1), 0);
                        EXPECT_TRUE(umf_map_is_uniform(map, outer, 4 * size, 0));
                    }
                }
            }
        }
    }
}

// Also a whole page that has a list, because of something else inside of it.
TEST_P(Map, RemoveLeavesAWholePageWithAList) {
    const uintptr_t outer = 10 * TiB, inner = outer + 2 * 4096, least = inner + 100;
    ASSERT_EQ(map_insert(map, outer, 8 * 4096 + 50, 0, word(1)), OK);
    ASSERT_EQ(map_insert(map, inner, 4096, word(1), word(2)), OK);
    ASSERT_EQ(map_insert(map, least, 10, word(2), word(3)), OK);
    map_remove(map, outer, 8 * 4096 + 50, word(1), 0);
    EXPECT_EQ(find(inner), word(2));
    EXPECT_EQ(find(least), word(3));
    EXPECT_EQ(find(inner + 4095), word(2));
    EXPECT_EQ(find(inner - 1), 0u);
    map_remove(map, least, 10, word(3), word(2));
    map_remove(map, inner, 4096, word(2), 0);
    EXPECT_TRUE(umf_map_is_uniform(map, outer, 8 * 4096 + 50, 0));
}

// A thread that a fork has lost was about to insert it: its pages may have no tables yet.
TEST_P(Map, RemoveAndRenameOfWhatIsNotThereChangeNothing) {
    const uintptr_t base = 10 * TiB, inside = base + 100;
    for (size_t size : {size_t{64}, size_t{4096}, size_t{70000}, size_t{3} << 20, 2 * GiB}) {
        map_remove(map, inside, size, word(2), 0);
        umf_map_rename(map, inside, size, word(2), word(3));
        EXPECT_TRUE(umf_map_is_uniform(map, base, 3 * GiB, 0)) << size;
    }
    ASSERT_EQ(map_insert(map, base, 3 * GiB, 0, word(1)), OK);
    for (size_t size : {size_t{64}, size_t{4096}, size_t{70000}, size_t{3} << 20, 2 * GiB}) {
        map_remove(map, inside, size, word(2), word(1));
        umf_map_rename(map, inside, size, word(2), word(3));
        EXPECT_TRUE(umf_map_is_uniform(map, base, 3 * GiB, word(1))) << size;
    }
    map_remove(map, base, 3 * GiB, word(1), 0);
}

TEST_P(Map, ManySpansInOnePage) {
    const uintptr_t base = 11 * TiB;
    for (uint32_t i = 0; i < 256; i++) {
        ASSERT_EQ(map_insert(map, base + i * 16, 16, 0, word(i + 1)), OK);
    }
    for (uint32_t i = 0; i < 256; i++) {
        EXPECT_EQ(find(base + i * 16), word(i + 1));
        EXPECT_EQ(find(base + i * 16 + 15), word(i + 1));
    }
    for (uint32_t i = 0; i < 256; i += 2) {
        map_remove(map, base + i * 16, 16, word(i + 1), 0);
    }
    for (uint32_t i = 0; i < 256; i++) {
        EXPECT_EQ(find(base + i * 16 + 7), i % 2 ? word(i + 1) : 0u);
    }
}

// Earlier spans of a page do not slow down later ones.
TEST_P(Map, PageWithoutEdgesIsPlainAgain) {
    const uintptr_t base = 12 * TiB;
    const bool is_reserved = (map->flat != nullptr);
    for (uint32_t i = 0; i < 8; i++) {
        ASSERT_EQ(map_insert(map, base + i * 512, 64, 0, word(i + 1)), OK);
    }
    EXPECT_FALSE(is_fast(map, base));
    for (uint32_t i = 0; i < 8; i++) {
        map_remove(map, base + i * 512, 64, word(i + 1), 0);
    }
    ASSERT_EQ(map_insert(map, base, 65536, 0, word(9)), OK);
    EXPECT_EQ(is_fast(map, base), is_reserved);
    EXPECT_EQ(find(base + 4095), word(9));

    // So with spans inside another one, and with parts that are joined.
    ASSERT_EQ(map_insert(map, base + 4096 + 100, 10, word(9), word(10)), OK);
    EXPECT_FALSE(is_fast(map, base + 4096));
    map_remove(map, base + 4096 + 100, 10, word(10), word(9));
    EXPECT_EQ(is_fast(map, base + 4096), is_reserved);
    ASSERT_EQ(umf_map_split(map, base, 65536, 8192 + 100, word(9), word(11), 0), OK);
    EXPECT_FALSE(is_fast(map, base + 8192));
    umf_map_rename(map, base + 8192 + 100, 65536 - 8192 - 100, word(11), word(9));
    EXPECT_EQ(is_fast(map, base + 8192), is_reserved);
    EXPECT_TRUE(umf_map_is_uniform(map, base, 65536, word(9)));
}

TEST_P(Map, PagesShareLists) {
    const uintptr_t base = 12 * TiB;
    const uint32_t pages = 16;
    // Tables are kept, lists are not allocated again.
    size_t first = 0;
    for (uint32_t page = 0; page < pages; page++) {
        for (uint32_t i = 0; i < 20; i++) {
            ASSERT_EQ(map_insert(map, base + page * 4096 + i * 16, 8, 0, word(i + 1)), OK);
        }
        first = page == 0 ? umf_meta_used() : first;
        for (uint32_t i = 0; i < 20; i++) {
            map_remove(map, base + page * 4096 + i * 16, 8, word(i + 1), 0);
        }
    }
    EXPECT_EQ(umf_meta_used(), first);
}

// So do pages in which a range ends that begins with one.
TEST_P(Map, TailsGiveTheirListsBack) {
    const uintptr_t base = 12 * TiB, end = base + 2000 * 4096;
    for (uintptr_t page = base; page < end; page += 4096) { // makes the tables
        ASSERT_EQ(map_insert(map, page, 100, 0, word(1)), OK);
        map_remove(map, page, 100, word(1), 0);
    }
    const size_t before = umf_meta_used();
    for (size_t size : {size_t{100}, size_t{2} * 4096 + 100}) {
        for (uintptr_t at = base; at + size <= end; at += 3 * 4096) {
            ASSERT_EQ(map_insert(map, at, size, 0, word(2)), OK);
            EXPECT_EQ(find(at + size - 1), word(2));
            EXPECT_EQ(find(at + size), 0u);
            map_remove(map, at, size, word(2), 0);
            EXPECT_TRUE(umf_map_is_uniform(map, at, size, 0));
        }
    }
    EXPECT_EQ(umf_meta_used(), before);
}

TEST_P(Map, SplitAndJoinInsideOfAPage) {
    const uintptr_t base = 13 * TiB;
    const size_t size = 20000;
    ASSERT_EQ(map_insert(map, base, size, 0, word(1)), OK);
    for (int round = 0; round < 40; round++) {
        size_t first = 100 + static_cast<size_t>(round) * 487;
        ASSERT_EQ(umf_map_split(map, base, size, first, word(1), word(2), 0), OK);
        EXPECT_EQ(find(base + first - 1), word(1));
        EXPECT_EQ(find(base + first), word(2));
        EXPECT_EQ(find(base + size - 1), word(2));
        EXPECT_EQ(find(base + size), 0u);
        EXPECT_TRUE(umf_map_is_uniform(map, base, first, word(1)));
        EXPECT_TRUE(umf_map_is_uniform(map, base + first, size - first, word(2)));
        umf_map_rename(map, base + first, size - first, word(2), word(1));
        ASSERT_TRUE(umf_map_is_uniform(map, base, size, word(1))) << "joined at " << first;
        // Something nested may lie across the former border.
        ASSERT_EQ(map_insert(map, base + first - 50, 100, word(1), word(3)), OK);
        EXPECT_EQ(find(base + first), word(3));
        map_remove(map, base + first - 50, 100, word(3), word(1));
        EXPECT_EQ(find(base + first), word(1));
        // Also a whole page.
        uintptr_t page = (base + first) & ~uintptr_t{4095};
        if (page + 4096 <= base + size) {
            ASSERT_EQ(map_insert(map, page, 4096, word(1), word(4)), OK);
            EXPECT_EQ(find(page), word(4));
            EXPECT_EQ(find(page + 4095), word(4));
            map_remove(map, page, 4096, word(4), word(1));
            EXPECT_EQ(find(page), word(1));
        }
    }
}

TEST_P(Map, FailedInsertChangesNothingAnyoneSees) {
    static std::atomic<int> left;
    const uintptr_t base = 17 * TiB + 100;
    for (int n = 0; n < 10; n++) {
        left = n;
        umf_os_set_fault([](const char *call) {
            return std::strcmp(call, "meta_alloc") == 0 && left-- == 0 ? ENOMEM : 0;
        });
        umf_result_t result = map_insert(map, base, GiB, 0, word(1));
        umf_os_set_fault(nullptr);
        if (result == OK) {
            EXPECT_GT(n, 2) << "two ends need tables";
            map_remove(map, base, GiB, word(1), 0);
            return;
        }
        EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        EXPECT_EQ(find(base), 0u);
        EXPECT_EQ(find(base + GiB - 1), 0u);
    }
    FAIL() << "never succeeded";
}

// Random nested spans against the obvious model: a list of intervals.
class Model {
  public:
    struct Item {
        uintptr_t base;
        size_t size;
        uint64_t word, under;
        std::vector<Item *> inside;
        Item *outer = nullptr;
    };
    std::vector<std::unique_ptr<Item>> items;

    uint64_t find(uintptr_t addr) const {
        const Item *item = deepest(addr);
        return item ? item->word : 0;
    }
    Item *deepest(uintptr_t addr) const {
        Item *best = nullptr;
        for (auto &item : items) {
            if (addr >= item->base && addr - item->base < item->size &&
                (!best || item->size < best->size ||
                 (item->size == best->size && item->word > best->word))) {
                best = item.get();
            }
        }
        return best;
    }
    // Does [base, base + size) lie in one place only?
    bool fits(uintptr_t base, size_t size, Item *within) const {
        if (within && base + size > within->base + within->size) {
            return false;
        }
        for (auto &item : items) {
            bool meets = item->base < base + size && base < item->base + item->size;
            bool contains = item->base <= base && base + size <= item->base + item->size;
            if (meets && !contains) {
                return false;
            }
        }
        return true;
    }
    void erase(Item *item) {
        for (size_t i = 0; i < items.size(); i++) {
            if (items[i].get() == item) {
                items.erase(items.begin() + static_cast<long>(i));
                return;
            }
        }
    }
    bool has_inside(const Item *item) const {
        for (auto &other : items) {
            if (other->outer == item) {
                return true;
            }
        }
        return false;
    }
};

// Where random spans lie, and how large they are: some in bytes, some in pages or slots.
struct Shape {
    uintptr_t area;
    size_t room;
    size_t unit; // of all sizes
    void pick(std::mt19937 &random, uintptr_t *base, size_t *size) const {
        size_t align = unit;
        *base = area + random() % room;
        *size = 1 + random() % (random() % 3 ? 300 * unit : room / 4);
        if (random() % 3 == 0) {
            align = slot_sizes[unit == 1 ? 0 : random() % 3];
        }
        *base = *base / align * align;
        *size = (*size + align - 1) / align * align;
    }
};

void Map::random_against_a_model(const Shape &shape) {
    const auto [area, room, unit] = shape;
    for (unsigned seed = 1; seed <= scaled(6); seed++) {
        std::mt19937 random(seed);
        Model model;
        uint32_t words = 0;
        for (int round = 0; round < 3000; round++) {
            auto what = random() % 10;
            if (what < 5) {
                uintptr_t base;
                size_t size;
                shape.pick(random, &base, &size);
                Model::Item *outer = model.deepest(base);
                uint64_t under = outer ? outer->word : 0, w = word(++words);
                bool fits = model.fits(base, size, outer);
                ASSERT_EQ(map_insert(map, base, size, under, w), fits ? OK : BAD)
                    << "seed " << seed << " round " << round;
                if (fits) {
                    auto item = std::make_unique<Model::Item>();
                    item->base = base;
                    item->size = size;
                    item->word = w;
                    item->under = under;
                    item->outer = outer;
                    model.items.push_back(std::move(item));
                }
            } else if (!model.items.empty()) {
                Model::Item *item = model.items[random() % model.items.size()].get();
                if (model.has_inside(item)) {
                    continue;
                }
                if (what < 8) {
                    map_remove(map, item->base, item->size, item->word, item->under);
                    model.erase(item);
                } else if (item->size > unit) {
                    size_t size = item->size, first = unit * (1 + random() % (size / unit - 1));
                    uint64_t high = word(++words);
                    ASSERT_EQ(
                        umf_map_split(map, item->base, size, first, item->word, high, item->under),
                        OK);
                    EXPECT_EQ(find(item->base + first - 1), item->word);
                    EXPECT_EQ(find(item->base + first), high);
                    EXPECT_EQ(find(item->base + size - 1), high);
                    if (what == 8) {
                        umf_map_rename(map, item->base + first, size - first, high, item->word);
                        ASSERT_TRUE(umf_map_is_uniform(map, item->base, size, item->word));
                    } else {
                        auto part = std::make_unique<Model::Item>(*item);
                        part->base += first;
                        part->size -= first;
                        part->word = high;
                        item->size = first;
                        model.items.push_back(std::move(part));
                    }
                }
            }
            for (int probe = 0; probe < 10; probe++) {
                uintptr_t addr = area + random() % (room + 20000);
                ASSERT_EQ(find(addr), model.find(addr))
                    << "seed " << seed << " round " << round << " at " << addr - area;
            }
        }
        // The inner ones first.
        while (!model.items.empty()) {
            for (size_t i = model.items.size(); i-- > 0;) {
                Model::Item *item = model.items[i].get();
                if (!model.has_inside(item)) {
                    map_remove(map, item->base, item->size, item->word, item->under);
                    model.erase(item);
                }
            }
        }
        for (uintptr_t addr = area; addr < area + room + 20000; addr += 97) {
            ASSERT_EQ(find(addr), 0u);
        }
    }
}

// A shard and a table end inside.
TEST_P(Map, RandomAgainstAModel) {
    ONE_THREAD_ONLY()
    random_against_a_model({19 * TiB + GiB - 40000, 80000, 1});
}

// The same with whole pages, which need no lists: slots of all sizes that are divided, and one
// again.
TEST_P(Map, RandomPagesAgainstAModel) {
    random_against_a_model({19 * TiB + GiB - (size_t{4} << 20), size_t{8} << 20, 4096});
}

// Readers without a lock see the old or the new entry, never anything else.
TEST_P(Map, ReadersWhileWritersWork) {
    const uintptr_t area = 23 * TiB;
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    // Span 1 stays and goes, 2 and 3 share its pages; the address belongs to one of them or to
    // none.
    std::thread writer([&] {
        for (size_t i = 0; i < scaled(20000); i++) {
            map_insert(map, area + 100, 9000, 0, word(1));
            map_insert(map, area + 5000, 300, word(1), word(2));
            map_insert(map, area + 5300, 10, word(1), word(3));
            umf_map_split(map, area + 5000, 300, 150, word(2), word(4), word(1));
            umf_map_rename(map, area + 5150, 150, word(4), word(2));
            map_remove(map, area + 5300, 10, word(3), word(1));
            map_remove(map, area + 5000, 300, word(2), word(1));
            map_remove(map, area + 100, 9000, word(1), 0);
        }
        stop = true;
    });
    std::vector<std::thread> readers;
    for (int t = 0; t < 2; t++) {
        readers.emplace_back([&] {
            while (!stop) {
                uint64_t a = find(area + 200), b = find(area + 5100), c = find(area + 5305),
                         d = find(area + 5200), e = find(area + 50);
                wrong += a != 0 && a != word(1);
                wrong += b != 0 && b != word(1) && b != word(2);
                wrong += c != 0 && c != word(1) && c != word(3);
                wrong += d != 0 && d != word(1) && d != word(2) && d != word(4);
                wrong += e != 0;
            }
        });
    }
    writer.join();
    for (auto &reader : readers) {
        reader.join();
    }
    EXPECT_EQ(wrong, 0);
}

// A list goes from page to page while both are read: each sees its own span only.
TEST_P(Map, ReadersWhilePagesShareAList) {
    const uintptr_t pages[] = {23 * TiB, 23 * TiB + 4096};
    for (uint32_t i = 0; i < 2; i++) {
        ASSERT_EQ(map_insert(map, pages[i], 4096, 0, word(i + 1)), OK);
    }
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (uint32_t i = 0; i < 2; i++) {
        readers.emplace_back([&, i] {
            while (!stop) {
                const uint64_t nested = find(pages[i] + 200);
                wrong += find(pages[i] + 50) != word(i + 1);
                wrong += nested != word(i + 1) && nested != word(i + 11);
            }
        });
    }
    for (size_t n = 0; n < scaled(50000); n++) {
        const uint32_t i = n % 7 < 3 ? 0 : 1; // also to the same page again
        map_insert(map, pages[i] + 100, 200, word(i + 1), word(i + 11));
        map_remove(map, pages[i] + 100, 200, word(i + 11), word(i + 1));
    }
    stop = true;
    for (auto &reader : readers) {
        reader.join();
    }
    EXPECT_EQ(wrong, 0);
}

// Pages that were divided and are whole again are written as one; not where a list is.
TEST_P(Map, PagesThatWereDivided) {
    const uintptr_t area = 41 * TiB;
    for (size_t size : {size_t{65536}, size_t{2} << 20, (size_t{6} << 20) + 65536}) {
        for (uintptr_t base : {area, area + size - 4096}) {
            ASSERT_EQ(map_insert(map, base, 4096, 0, word(1)), OK);
            EXPECT_EQ(map_insert(map, area, size, 0, word(3)), BAD) << "it is there";
            EXPECT_TRUE(umf_map_is_uniform(map, base, 4096, word(1)));
            map_remove(map, base, 4096, word(1), 0);
            EXPECT_TRUE(umf_map_is_uniform(map, area, size, 0));
        }
        ASSERT_EQ(map_insert(map, area, size, 0, word(3)), OK);
        EXPECT_TRUE(umf_map_is_uniform(map, area, size, word(3)));
        map_remove(map, area, size, word(3), 0);
        EXPECT_TRUE(umf_map_is_uniform(map, area, size, 0));
        ASSERT_EQ(map_insert(map, area + 4096, 100, 0, word(1)), OK);
        EXPECT_EQ(map_insert(map, area, size, 0, word(3)), BAD) << "a list";
        EXPECT_EQ(map_insert(map, area, size - 1, 0, word(3)), BAD) << "a list, and an edge";
        EXPECT_EQ(find(area), 0u);
        EXPECT_EQ(find(area + size - 2), 0u);
        EXPECT_EQ(find(area + 4096 + 99), word(1));
        map_remove(map, area + 4096, 100, word(1), 0);
        EXPECT_EQ(map_insert(map, area, 0, 0, word(3)), BAD);
        EXPECT_TRUE(umf_map_is_uniform(map, area, size, 0));
    }
}

// An outer span goes before those inside of it: their words stay, whole slots and pages.
TEST_P(Map, WhatIsInsideStaysWhenTheOuterGoes) {
    const uintptr_t area = 43 * TiB;
    const size_t size = size_t{2} << 20;
    for (bool has_list : {false, true}) {
        for (uint32_t outer : {3u, 4u, 5u}) { // each in another way
            ASSERT_EQ(map_insert(map, area, size, 0, word(outer)), OK);
            ASSERT_EQ(map_insert(map, area + 65536, 65536, word(outer), word(7)), OK);
            ASSERT_EQ(map_insert(map, area + 8192, 4096, word(outer), word(8)), OK);
            if (has_list) {
                ASSERT_EQ(map_insert(map, area + 3 * 65536 + 100, 8, word(outer), word(10)), OK);
            }
            map_remove(map, area, size, word(outer), 0);
            for (uintptr_t addr = area; addr < area + size; addr += 4096) {
                const size_t at = addr - area;
                EXPECT_EQ(find(addr), at == 8192                      ? word(8)
                                      : at >= 65536 && at < 2 * 65536 ? word(7)
                                                                      : 0u)
                    << at;
            }
            EXPECT_EQ(find(area + 3 * 65536 + 104), has_list ? word(10) : 0u);
            EXPECT_EQ(find(area + 3 * 65536 + 108), 0u);
            map_remove(map, area + 65536, 65536, word(7), 0);
            map_remove(map, area + 8192, 4096, word(8), 0);
            if (has_list) {
                map_remove(map, area + 3 * 65536 + 100, 8, word(10), 0);
            }
            EXPECT_TRUE(umf_map_is_uniform(map, area, size, 0));
        }
    }
}

// A refused span divides nothing, and leaves no table.
TEST_P(Map, RefusedPagesTakeNoTables) {
    const uintptr_t area = 45 * TiB;
    ASSERT_EQ(map_insert(map, area, size_t{4} << 20, 0, word(1)), OK);
    const size_t before = umf_meta_used();
    EXPECT_EQ(map_insert(map, area - 65536, 65536 + 4096, 0, word(2)), BAD);
    EXPECT_EQ(map_insert(map, area + (size_t{4} << 20) - 4096, 8192, 0, word(2)), BAD);
    EXPECT_EQ(map_insert(map, 0 - uintptr_t{4096}, 8192, 0, word(2)), BAD) << "wraps";
    EXPECT_EQ(map_insert(map, area + 4096, 0, 0, word(2)), BAD);
    EXPECT_EQ(umf_meta_used(), before);
    map_remove(map, area, size_t{4} << 20, word(1), 0);
}

// A GiB that was one word becomes a table: at no time may it look empty.
TEST_P(Map, ReadersWhileAGiBIsDivided) {
    const uintptr_t area = 29 * TiB;
    std::atomic<uintptr_t> current{0}; // a GiB that is in the map
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 2; t++) {
        readers.emplace_back([&] {
            while (!stop) {
                uintptr_t base = current;
                uint64_t there = base ? find(base + GiB / 2) : word(1);
                wrong += there != word(1) && current == base;
            }
        });
    }
    for (size_t i = 1; i <= scaled(2000); i++) {
        uintptr_t base = area + i * GiB;
        map_insert(map, base, GiB, 0, word(1));
        current = base;
        map_insert(map, base + 4096, 4096, word(1), word(2));
        map_remove(map, base + 4096, 4096, word(2), word(1));
        current = 0;
        map_remove(map, base, GiB, word(1), 0);
    }
    stop = true;
    for (auto &reader : readers) {
        reader.join();
    }
    EXPECT_EQ(wrong, 0);
}

// Without memory at the table's own place it lies elsewhere, and is found from the root.
TEST_P(Map, TableThatHasNoMemoryInItsPlace) {
    const uintptr_t base = 31 * TiB + 3 * GiB;
    umf_os_set_fault([](const char *call) { return std::strcmp(call, "protect") ? 0 : ENOMEM; });
    ASSERT_EQ(map_insert(map, base, 4096, 0, word(1)), OK);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(find(base), word(1));
    EXPECT_EQ(find(base + 4096), 0u);
    ASSERT_EQ(map_insert(map, base + GiB, 4096, 0, word(2)), OK) << "the next has its place";
    EXPECT_EQ(find(base + GiB), word(2));
    map_remove(map, base, 4096, word(1), 0);
    EXPECT_EQ(find(base), 0u);
    EXPECT_EQ(find(base + GiB), word(2));
}

class MapLimit : public testing::Test {
  protected:
    rlimit before = [] {
        rlimit limit;
        getrlimit(RLIMIT_AS, &limit);
        return limit;
    }();

    void TearDown() override {
        setrlimit(RLIMIT_AS, &before);
    }
    void limit(rlim_t bytes) {
        rlimit limited = {bytes, before.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
    }
};

TEST_F(MapLimit, AddressesAreReservedOnlyWhereTheyAreNotLimited) {
    if (before.rlim_cur != RLIM_INFINITY) {
        GTEST_SKIP() << "the address space of this process is limited";
    }
    umf_map_t *free = create_map(true);
    EXPECT_TRUE((free->flat != nullptr));
    limit(rlim_t{1} << 62);
    umf_map_t *limited = create_map(true);
    EXPECT_FALSE((limited->flat != nullptr));
    ASSERT_EQ(map_insert(limited, 5 * TiB, GiB, 0, word(1)), OK);
    EXPECT_EQ(umf_map_find(limited, 5 * TiB), word(1));
    destroy_map(limited);
    destroy_map(free);
}

// Before Linux 6.7 a large mapping begins at any page; what lies beside it is not the map's.
TEST(MapWindows, StayInATableThatBeginsAtAnyPage) {
    umf_map_t *map = create_map(true);
    if (!map->flat) {
        destroy_map(map);
        GTEST_SKIP() << "the address space of this process is limited";
    }
    const size_t size = map->flat_slots * sizeof(umf_map_entry_t), beside = size_t{4} << 20;
    ASSERT_EQ(umf_os_unmap(reinterpret_cast<void *>(map->flat), size), 0);
    void *around = nullptr;
    ASSERT_EQ(umf_os_map(&around, size + beside, PROT_READ,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
              0);
    char *const begin = static_cast<char *>(around);
    char *const flat = begin + umf_align_up(reinterpret_cast<uintptr_t>(begin), beside / 2) -
                       reinterpret_cast<uintptr_t>(begin) + 4096;
    char *const end = flat + size;
    map->flat = reinterpret_cast<decltype(map->flat)>(flat);

    const uintptr_t top = (map->flat_slots << 21) - 4096;
    ASSERT_EQ(map_insert(map, 4096, 4096, 0, word(1)), OK);
    ASSERT_EQ(map_insert(map, top, 4096, 0, word(2)), OK);
    EXPECT_TRUE(is_fast(map, 4096));
    EXPECT_TRUE(is_fast(map, top));
    EXPECT_EQ(umf_os_probe_write(flat - 4096), EFAULT);
    EXPECT_EQ(umf_os_probe_write(end), EFAULT);

    destroy_map(map);
    EXPECT_EQ(umf_os_unmap(around, static_cast<size_t>(flat - begin)), 0);
    EXPECT_EQ(umf_os_unmap(end, static_cast<size_t>(begin + size + beside - end)), 0);
}

} // namespace
