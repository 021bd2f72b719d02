/* ds/range: against a model of every byte's state by segment, and without memory. */
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "base/meta.h"
#include "ds/range.h"
}

#include "fault.h"

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;

/* Regions and their used segments. Other bytes are free, and free neighbours are one segment.
 */
class Model {
  public:
    struct Span {
        uintptr_t end;
        std::map<uintptr_t, size_t> used;
    };
    std::map<uintptr_t, Span> regions;

    Span *region_of(uintptr_t addr) {
        auto it = regions.upper_bound(addr);
        if (it == regions.begin()) {
            return nullptr;
        }
        --it;
        return addr < it->second.end ? &it->second : nullptr;
    }
    uintptr_t base_of(const Span *region) const {
        for (auto &[base, s] : regions) {
            if (&s == region) {
                return base;
            }
        }
        return 0;
    }
    bool overlaps(uintptr_t base, uintptr_t end) const {
        for (auto &[start, region] : regions) {
            if (base < region.end && start < end) {
                return true;
            }
        }
        return false;
    }
    /* The free segment around a free address of a region. */
    std::pair<uintptr_t, size_t> free_around(const Span *region, uintptr_t addr) const {
        uintptr_t low = base_of(region), high = region->end;
        for (auto &[base, size] : region->used) {
            if (base + size <= addr) {
                low = base + size;
            } else if (base >= addr) {
                high = base;
                break;
            }
        }
        return {low, high - low};
    }
    template <class Visit> void each_free(Visit visit) const {
        for (auto &[start, region] : regions) {
            uintptr_t at = start;
            for (auto &[base, size] : region.used) {
                if (base > at) {
                    visit(at, base - at);
                }
                at = base + size;
            }
            if (region.end > at) {
                visit(at, region.end - at);
            }
        }
    }
    size_t used_bytes() const {
        size_t sum = 0;
        for (auto &[start, region] : regions) {
            for (auto &[base, size] : region.used) {
                sum += size;
            }
        }
        return sum;
    }
    bool fits(size_t size, size_t alignment) const {
        bool found = false;
        each_free([&](uintptr_t base, size_t length) {
            uintptr_t start = (base + alignment - 1) / alignment * alignment;
            found = found || (start + size <= base + length);
        });
        return found;
    }
};

class Checked {
  public:
    Model model;
    umf_range_t *range = umf_range_create();
    std::mt19937_64 random;

    explicit Checked(unsigned seed) : random(seed) {}
    ~Checked() {
        umf_range_destroy(range);
    }

    size_t pick(size_t n) {
        return random() % n;
    }

    size_t pick_size() {
        static const size_t limits[] = {16, 512, 8 * KiB, 256 * KiB, 4 * MiB};
        return pick(limits[pick(std::size(limits))]) + 1;
    }
    size_t pick_alignment() {
        static const size_t odd[] = {3, 7, 12, 24, 3 * 4096, 5 * 4096, 1000};
        return pick(4) ? size_t{1} << pick(21) : odd[pick(std::size(odd))];
    }

    void add() {
        uintptr_t base = 0x10000 + pick(64) * MiB + pick(5) * 100;
        size_t size = pick_size();
        bool ok = !model.overlaps(base, base + size);
        ASSERT_EQ(umf_range_add(range, base, size),
                  ok ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT);
        if (ok) {
            model.regions[base] = {base + size, {}};
        }
    }
    void trim() {
        umf_range_trim(range);
    }
    void grow() {
        if (model.regions.empty()) {
            return;
        }
        auto it = std::next(model.regions.begin(), static_cast<long>(pick(model.regions.size())));
        uintptr_t end = it->second.end;
        size_t more = pick_size();
        auto after = std::next(it);
        bool ok = after == model.regions.end() || after->first >= end + more;
        ASSERT_EQ(umf_range_grow(range, end, more),
                  ok ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT);
        if (ok) {
            it->second.end += more;
        }
    }
    void remove() {
        if (model.regions.empty()) {
            return;
        }
        auto it = std::next(model.regions.begin(), static_cast<long>(pick(model.regions.size())));
        bool ok = it->second.used.empty();
        ASSERT_EQ(umf_range_remove(range, it->first),
                  ok ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT);
        if (ok) {
            model.regions.erase(it);
        }
    }
    void alloc() {
        size_t size = pick_size(), alignment = pick_alignment();
        uintptr_t base = 0;
        umf_result_t result = umf_range_alloc(range, size, alignment, &base);
        if (!model.fits(size, alignment)) {
            ASSERT_EQ(result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
            return;
        }
        ASSERT_EQ(result, UMF_RESULT_SUCCESS) << size << " aligned to " << alignment;
        ASSERT_EQ(base % alignment, 0u);
        Model::Span *region = model.region_of(base);
        ASSERT_NE(region, nullptr);
        auto [low, length] = model.free_around(region, base);
        ASSERT_LE(low, base);
        ASSERT_LE(base + size, low + length) << "overlaps a used segment";
        region->used[base] = size;
    }
    /* A random used segment: its region, or nullptr. */
    Model::Span *pick_used(uintptr_t *base) {
        std::vector<std::pair<Model::Span *, uintptr_t>> all;
        for (auto &[start, region] : model.regions) {
            for (auto &[segment, size] : region.used) {
                all.push_back({&region, segment});
            }
        }
        if (all.empty()) {
            return nullptr;
        }
        auto [region, segment] = all[pick(all.size())];
        *base = segment;
        return region;
    }
    void free() {
        uintptr_t base;
        Model::Span *region = pick_used(&base);
        if (!region) {
            return;
        }
        size_t size = region->used[base];
        ASSERT_EQ(umf_range_free(range, base, size + 1, nullptr),
                  UMF_RESULT_ERROR_INVALID_ARGUMENT);
        umf_range_freed_t freed;
        ASSERT_EQ(umf_range_free(range, base, pick(2) ? size : 0, &freed), UMF_RESULT_SUCCESS);
        region->used.erase(base);
        auto [low, length] = model.free_around(region, base);
        ASSERT_EQ(freed.free_base, low) << "not joined with the segment before";
        ASSERT_EQ(freed.free_size, length) << "not joined with the segment behind";
        ASSERT_EQ(freed.whole_region, region->used.empty());
        ASSERT_EQ(umf_range_free(range, base, 0, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    void split() {
        uintptr_t base;
        Model::Span *region = pick_used(&base);
        if (!region || region->used[base] < 2) {
            return;
        }
        size_t size = region->used[base], first = pick(size - 1) + 1;
        ASSERT_EQ(umf_range_split(range, base, size, size), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        ASSERT_EQ(umf_range_split(range, base, size + 1, first), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        ASSERT_EQ(umf_range_split(range, base, size, first), UMF_RESULT_SUCCESS);
        region->used[base] = first;
        region->used[base + first] = size - first;
    }
    void merge() {
        uintptr_t low;
        Model::Span *region = pick_used(&low);
        if (!region) {
            return;
        }
        size_t size = region->used[low];
        auto high = region->used.find(low + size);
        if (high == region->used.end()) {
            ASSERT_EQ(umf_range_merge(range, low, low + size, size + 1),
                      UMF_RESULT_ERROR_INVALID_ARGUMENT);
            return;
        }
        size_t total = size + high->second;
        ASSERT_EQ(umf_range_merge(range, low, low + size, total + 1),
                  UMF_RESULT_ERROR_INVALID_ARGUMENT);
        ASSERT_EQ(umf_range_merge(range, low, low + size, total), UMF_RESULT_SUCCESS);
        region->used.erase(high);
        region->used[low] = total;
    }
    void extend() {
        uintptr_t base;
        Model::Span *region = pick_used(&base);
        if (!region) {
            return;
        }
        auto segment = region->used.find(base), next = std::next(segment);
        size_t size = segment->second, more = pick_size();
        size_t end = next == region->used.end() ? region->end : next->first;
        bool ok = more <= end - (base + size);
        ASSERT_EQ(umf_range_extend(range, base, size + 1, size + 1 + more),
                  UMF_RESULT_ERROR_INVALID_ARGUMENT);
        ASSERT_EQ(umf_range_extend(range, base, size, size), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        ASSERT_EQ(umf_range_extend(range, base, size, size + more),
                  ok ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        segment->second += ok ? more : 0;
    }
    void step() {
        static const struct {
            void (Checked::*run)();
            unsigned weight;
        } steps[] = {{&Checked::alloc, 39}, {&Checked::free, 34}, {&Checked::split, 8},
                     {&Checked::merge, 8},  {&Checked::add, 5},   {&Checked::grow, 3},
                     {&Checked::remove, 2}, {&Checked::trim, 1},  {&Checked::extend, 8}};
        size_t at = pick(108);
        for (auto &s : steps) {
            if (at < s.weight) {
                (this->*s.run)();
                return;
            }
            at -= s.weight;
        }
    }
    void compare() {
        ASSERT_TRUE(umf_range_is_valid(range));
        ASSERT_EQ(umf_range_used_bytes(range), model.used_bytes());
        size_t total = 0, whole = 0;
        for (auto &[base, region] : model.regions) {
            total += region.end - base;
            whole += region.used.empty();
            for (auto &[segment, size] : region.used) {
                ASSERT_EQ(umf_range_used_size(range, segment), size);
            }
            uintptr_t last = base;
            if (!region.used.empty()) {
                auto segment = std::prev(region.used.end());
                last = segment->first + segment->second;
            }
            ASSERT_EQ(umf_range_free_tail(range, region.end), region.end - last);
            ASSERT_EQ(umf_range_free_tail(range, region.end - 1), 0u);
        }
        ASSERT_EQ(umf_range_total_bytes(range), total);
        size_t free_region_bytes = 0;
        auto add = [](uintptr_t, size_t size, void *sum) { *static_cast<size_t *>(sum) += size; };
        umf_range_free_regions(range, add, &free_region_bytes);
        ASSERT_EQ(umf_range_free_region_bytes(range), free_region_bytes);
        ASSERT_EQ(umf_range_free_regions(range, nullptr, nullptr), whole);
        std::map<uintptr_t, size_t> expected, found;
        model.each_free([&](uintptr_t base, size_t size) { expected[base] = size; });
        umf_range_free_segments(
            range,
            [](uintptr_t base, size_t size, void *arg) {
                (*static_cast<std::map<uintptr_t, size_t> *>(arg))[base] = size;
            },
            &found);
        ASSERT_EQ(found, expected);
    }
};

// Bookkeeping that nothing needs goes back; that of a lease in use does not.
TEST(range, TrimFreesBookkeeping) {
    umf_range_t *range = umf_range_create();
    const size_t count = 100000, size = 64;
    size_t before = umf_meta_used();
    ASSERT_EQ(umf_range_add(range, MiB, count * size), UMF_RESULT_SUCCESS);
    std::vector<uintptr_t> all(count);
    for (uintptr_t &base : all) {
        ASSERT_EQ(umf_range_alloc(range, size, 1, &base), UMF_RESULT_SUCCESS);
    }
    size_t full = umf_meta_used() - before;
    umf_range_lease_t lease = umf_range_lease(range, all[count / 2]);
    umf_range_trim(range);
    EXPECT_EQ(umf_meta_used() - before, full) << "all of it is needed";
    for (size_t i = 1; i < count; i++) {
        ASSERT_EQ(umf_range_free(range, all[i], size, nullptr), UMF_RESULT_SUCCESS);
    }
    umf_range_keep_lease(range, lease.generation);
    umf_range_trim(range);
    EXPECT_TRUE(umf_range_is_valid(range));
    EXPECT_LT(umf_meta_used() - before, full / 20);
    EXPECT_FALSE(umf_range_reserve(&lease)) << "it is void, but can be read";
    size_t held = umf_meta_used();
    umf_range_trim(range);
    EXPECT_LT(umf_meta_used(), held) << "now the lease has ended";
    EXPECT_EQ(umf_range_used_size(range, all[0]), size);
    for (size_t i = 1; i < count; i++) { // and it can be used again
        ASSERT_EQ(umf_range_alloc(range, size, 1, &all[i]), UMF_RESULT_SUCCESS);
    }
    EXPECT_TRUE(umf_range_is_valid(range));
    umf_range_destroy(range);
}

} // namespace

TEST(range, BehavesLikeTheModel) {
    size_t before = umf_meta_used();
    for (unsigned seed = 0; seed < 12; seed++) {
        SCOPED_TRACE(seed);
        Checked checked(seed);
        for (int i = 0; i < 3000; i++) {
            checked.step();
            if (i % 20 == 0) {
                checked.compare();
            }
            if (testing::Test::HasFatalFailure()) {
                return;
            }
        }
    }
    EXPECT_EQ(umf_meta_used(), before);
}

TEST(range, FreshSpanIsServedUpwards) {
    umf_range_t *range = umf_range_create();
    ASSERT_EQ(umf_range_add(range, 0, MiB), UMF_RESULT_SUCCESS);
    for (uintptr_t expected = 0; expected < MiB; expected += 4096) {
        uintptr_t base = 1;
        ASSERT_EQ(umf_range_alloc(range, 4096, 4096, &base), UMF_RESULT_SUCCESS);
        ASSERT_EQ(base, expected);
    }
    uintptr_t base;
    EXPECT_EQ(umf_range_alloc(range, 1, 1, &base), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    umf_range_destroy(range);
}

/* More segments in one bin than are looked at first, and only the last of them fits. */
TEST(range, FindsTheOnlyFit) {
    umf_range_t *range = umf_range_create();
    for (uintptr_t i = 0; i < 100; i++) {
        ASSERT_EQ(umf_range_add(range, (i + 1) * MiB, 64 * KiB + (i == 0 ? 512 : i)),
                  UMF_RESULT_SUCCESS);
    }
    uintptr_t base = 0;
    ASSERT_EQ(umf_range_alloc(range, 64 * KiB + 512, 1, &base), UMF_RESULT_SUCCESS);
    EXPECT_EQ(base, MiB);
    umf_range_destroy(range);
}

TEST(range, TakesTheBestOfSimilarPieces) {
    umf_range_t *range = umf_range_create();
    ASSERT_EQ(umf_range_add(range, 1 * MiB, 70000), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_range_add(range, 2 * MiB, 66000), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_range_add(range, 3 * MiB, 68000), UMF_RESULT_SUCCESS);
    uintptr_t base = 0;
    ASSERT_EQ(umf_range_alloc(range, 65900, 1, &base), UMF_RESULT_SUCCESS);
    EXPECT_EQ(base, 2 * MiB);
    umf_range_destroy(range);
}

TEST(range, AdjacentSpansStayApart) {
    umf_range_t *range = umf_range_create();
    ASSERT_EQ(umf_range_add(range, MiB, MiB), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_range_add(range, 2 * MiB, MiB), UMF_RESULT_SUCCESS);
    uintptr_t base, low, high;
    EXPECT_EQ(umf_range_alloc(range, 2 * MiB, 1, &base), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    ASSERT_EQ(umf_range_alloc(range, MiB, 1, &low), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_range_alloc(range, MiB, 1, &high), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_range_merge(range, MiB, 2 * MiB, 2 * MiB), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_grow(range, 2 * MiB, 1), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umf_range_freed_t freed;
    ASSERT_EQ(umf_range_free(range, MiB, 0, &freed), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(freed.whole_region);
    EXPECT_EQ(freed.free_size, MiB);
    EXPECT_EQ(umf_range_remove(range, MiB), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_range_remove(range, 2 * MiB), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umf_range_destroy(range);
}

TEST(range, ImpossibleRequests) {
    umf_range_t *range = umf_range_create();
    uintptr_t base;
    EXPECT_EQ(umf_range_add(range, 1, 0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_add(range, 2, SIZE_MAX), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_alloc(range, 1, 1, &base), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    ASSERT_EQ(umf_range_add(range, 4096, SIZE_MAX - 4096), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_range_grow(range, SIZE_MAX, 1), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_alloc(range, 0, 1, &base), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_alloc(range, 1, 0, &base), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_alloc(range, SIZE_MAX, 1, &base), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umf_range_alloc(range, SIZE_MAX - 4096, size_t{1} << 63, &base),
              UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umf_range_free(range, 4096, 0, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_used_size(range, 4096), 0u);
    umf_range_destroy(range);
}

TEST(range, TakesTheFreeSegmentsOfOneRegion) {
    umf_range_t *range = umf_range_create();
    for (uintptr_t base : {1 * MiB, 2 * MiB, 3 * MiB}) {
        ASSERT_EQ(umf_range_add(range, base, 64 * KiB), UMF_RESULT_SUCCESS);
    }
    std::vector<uintptr_t> used;
    for (uintptr_t base; umf_range_alloc(range, 8 * KiB, 1, &base) == UMF_RESULT_SUCCESS;) {
        used.push_back(base);
    }
    for (uintptr_t base : used) {
        if ((base / (8 * KiB)) % 2) {
            ASSERT_EQ(umf_range_free(range, base, 0, nullptr), UMF_RESULT_SUCCESS);
        }
    }
    for (size_t room : {1, 3, 4, 64}) {
        umf_range_segment_t taken[64];
        uintptr_t cursor = UINTPTR_MAX, below = 2 * MiB + 64 * KiB;
        size_t count = 0;
        while (size_t n = umf_range_take_region(range, 2 * MiB, &cursor, taken, room)) {
            for (size_t i = 0; i < n; i++, count++) {
                EXPECT_LT(taken[i].base, below);
                EXPECT_GE(taken[i].base, 2 * MiB);
                EXPECT_EQ(taken[i].size, 8 * KiB);
                below = taken[i].base;
                EXPECT_EQ(umf_range_used_size(range, below), 8 * KiB);
            }
            EXPECT_TRUE(umf_range_is_valid(range));
        }
        EXPECT_EQ(count, 4u);
        for (size_t i = 1; i < 8; i += 2) {
            EXPECT_EQ(umf_range_free(range, 2 * MiB + i * 8 * KiB, 0, nullptr), UMF_RESULT_SUCCESS);
        }
    }
    uintptr_t cursor = UINTPTR_MAX;
    umf_range_segment_t taken;
    EXPECT_EQ(umf_range_take_region(range, 2 * MiB + 1, &cursor, &taken, 1), 0u);
    EXPECT_EQ(umf_range_take_region(range, 4 * MiB, &cursor, &taken, 1), 0u);
    umf_range_destroy(range);
}

TEST(range, AParkedPieceIsNobodys) {
    umf_range_t *range = umf_range_create();
    uintptr_t a, b, c;
    ASSERT_EQ(umf_range_add(range, 1 * MiB, 64 * KiB), UMF_RESULT_SUCCESS);
    for (uintptr_t *base : {&a, &b, &c}) {
        ASSERT_EQ(umf_range_alloc(range, 8 * KiB, 1, base), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(umf_range_lease(range, a + 1).generation, nullptr);
    umf_range_lease_t lease = umf_range_lease(range, b);
    ASSERT_NE(lease.generation, nullptr);
    EXPECT_FALSE(umf_range_take_back(&lease));
    EXPECT_TRUE(umf_range_reserve(&lease));
    EXPECT_FALSE(umf_range_reserve(&lease));
    EXPECT_EQ(umf_range_used_size(range, b), 0u);
    EXPECT_EQ(umf_range_free(range, b, 0, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_split(range, b, 8 * KiB, 1 * KiB), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_merge(range, a, b, 16 * KiB), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_merge(range, b, c, 16 * KiB), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_extend(range, b, 8 * KiB, 16 * KiB), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umf_range_lease(range, b).generation, nullptr);
    EXPECT_TRUE(umf_range_take_back(&lease));
    EXPECT_EQ(umf_range_used_size(range, b), 8 * KiB);
    EXPECT_EQ(umf_range_reclaim(range), 0u);

    EXPECT_TRUE(umf_range_reserve(&lease));
    EXPECT_EQ(umf_range_used_bytes(range), 24 * KiB);
    EXPECT_EQ(umf_range_reclaim(range), 1u);
    EXPECT_EQ(umf_range_used_bytes(range), 16 * KiB);
    EXPECT_FALSE(umf_range_take_back(&lease));
    EXPECT_TRUE(umf_range_is_valid(range));
    umf_range_destroy(range);
}

/* The neighbour of a reserved segment is not added to it: its size is unknown. */
TEST(range, AReservedSegmentDoesNotGrow) {
    umf_range_t *range = umf_range_create();
    uintptr_t base;
    ASSERT_EQ(umf_range_add(range, 1 * MiB, 64 * KiB), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_range_alloc(range, 8 * KiB, 1, &base), UMF_RESULT_SUCCESS);
    umf_range_lease_t lease = umf_range_lease(range, base);
    ASSERT_TRUE(umf_range_reserve(&lease));
    EXPECT_EQ(umf_range_extend(range, base, 8 * KiB, 16 * KiB), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ASSERT_TRUE(umf_range_take_back(&lease));
    EXPECT_EQ(umf_range_extend(range, base, 8 * KiB, 16 * KiB), UMF_RESULT_SUCCESS);
    EXPECT_FALSE(umf_range_reserve(&lease)) << "the lease is of 8 KiB";
    EXPECT_EQ(umf_range_used_bytes(range), 16 * KiB);
    EXPECT_TRUE(umf_range_is_valid(range));
    umf_range_destroy(range);
}

/* A lease is void once its segment has changed, also when the same segment is used again. */
TEST(range, TicketsEnd) {
    umf_range_t *range = umf_range_create();
    uintptr_t a, b, again;
    ASSERT_EQ(umf_range_add(range, 1 * MiB, 64 * KiB), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_range_alloc(range, 8 * KiB, 1, &a), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_range_alloc(range, 8 * KiB, 1, &b), UMF_RESULT_SUCCESS);
    std::vector<umf_range_lease_t> old;
    for (int how = 0; how < 5; how++) {
        old.push_back(umf_range_lease(range, a));
        umf_range_lease_t &last = old.back();
        if (how == 0) {
            ASSERT_EQ(umf_range_free(range, a, 0, nullptr), UMF_RESULT_SUCCESS);
        } else if (how == 1) {
            ASSERT_EQ(umf_range_split(range, a, 8 * KiB, 4 * KiB), UMF_RESULT_SUCCESS);
            EXPECT_FALSE(umf_range_reserve(&last));
            old.push_back(umf_range_lease(range, a));
            old.push_back(umf_range_lease(range, a + 4 * KiB));
            ASSERT_EQ(umf_range_merge(range, a, a + 4 * KiB, 8 * KiB), UMF_RESULT_SUCCESS);
        } else if (how == 2) {
            EXPECT_FALSE(umf_range_lease_end(range, &last)) << "used";
        } else if (how == 3) {
            EXPECT_TRUE(umf_range_reserve(&last));
            EXPECT_TRUE(umf_range_lease_end(range, &last));
            EXPECT_FALSE(umf_range_lease_end(range, &last));
        } else {
            old.push_back(umf_range_lease(range, a)); /* makes the first void */
            ASSERT_EQ(umf_range_free(range, a, 0, nullptr), UMF_RESULT_SUCCESS);
        }
        if (umf_range_used_size(range, a) == 0) {
            ASSERT_EQ(umf_range_alloc(range, 8 * KiB, 1, &again), UMF_RESULT_SUCCESS);
            ASSERT_EQ(again, a);
        }
        for (umf_range_lease_t &lease : old) {
            EXPECT_FALSE(umf_range_reserve(&lease));
            EXPECT_FALSE(umf_range_take_back(&lease));
        }
        ASSERT_TRUE(umf_range_is_valid(range));
    }
    EXPECT_EQ(umf_range_reclaim(range), 0u);
    umf_range_destroy(range);
}

TEST(range, AKeptPieceIsNobodysUntilItIsTaken) {
    umf_range_t *range = umf_range_create();
    uintptr_t a, b, c;
    ASSERT_EQ(umf_range_add(range, 1 * MiB, 64 * KiB), UMF_RESULT_SUCCESS);
    for (uintptr_t *base : {&a, &b, &c}) {
        ASSERT_EQ(umf_range_alloc(range, 8 * KiB, 1, base), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(umf_range_keep(range, a + 1, SIZE_MAX).word, nullptr);
    EXPECT_EQ(umf_range_keep(range, b, 8 * KiB - 1).word, nullptr);
    umf_range_lease_t lease = umf_range_lease(range, b);
    umf_range_kept_t kept = umf_range_keep(range, b, 8 * KiB);
    ASSERT_NE(kept.word, nullptr);
    EXPECT_EQ(kept.size, 8 * KiB);
    EXPECT_FALSE(umf_range_reserve(&lease)) << "it is void";
    EXPECT_EQ(umf_range_keep(range, b, SIZE_MAX).word, nullptr);
    EXPECT_EQ(umf_range_used_size(range, b), 0u);
    EXPECT_EQ(umf_range_free(range, b, 0, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_split(range, b, 8 * KiB, 1 * KiB), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_merge(range, a, b, 16 * KiB), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_merge(range, b, c, 16 * KiB), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_range_lease(range, b).generation, nullptr);
    EXPECT_EQ(umf_range_reclaim(range), 0u) << "it is the keeper's";
    umf_range_piece_t pieces[3];
    bool is_last;
    ASSERT_EQ(umf_range_pieces(range, 1 * MiB, c, pieces, 3, &is_last), 2u);
    EXPECT_EQ(pieces[0].use, UMF_RANGE_IS_RESERVED);
    EXPECT_EQ(pieces[1].use, UMF_RANGE_IS_USED);

    umf_range_take_kept(kept.word);
    EXPECT_EQ(umf_range_used_size(range, b), 8 * KiB);
    EXPECT_FALSE(umf_range_reserve(&lease)) << "it stays void";
    lease = umf_range_lease(range, b);
    EXPECT_TRUE(umf_range_reserve(&lease));
    EXPECT_EQ(umf_range_keep(range, b, SIZE_MAX).word, nullptr);
    EXPECT_TRUE(umf_range_take_back(&lease));
    EXPECT_EQ(umf_range_keep(range, b, SIZE_MAX).word, kept.word);
    umf_range_take_kept(kept.word);
    EXPECT_EQ(umf_range_free(range, b, 0, nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_range_used_bytes(range), 16 * KiB);
    EXPECT_TRUE(umf_range_is_valid(range));
    umf_range_destroy(range);
}

/* Whatever fails for want of memory leaves the set as it was. */
TEST(range, WithoutMemoryNothingChanges) {
    size_t before = umf_meta_used();
    int runs = 0;
    for (fault::Nth nth("meta_alloc"); nth.next(); runs++) {
        umf_range_t *range = umf_range_create();
        if (!range) {
            ASSERT_TRUE(nth.hit());
            continue;
        }
        size_t used = 0, total = 0;
        std::vector<uintptr_t> segments;
        for (uintptr_t i = 1; i <= 40; i++) {
            umf_result_t result = umf_range_add(range, i * MiB, 64 * KiB);
            ASSERT_TRUE(result == UMF_RESULT_SUCCESS ||
                        (result == UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY && nth.hit()));
            total += result == UMF_RESULT_SUCCESS ? 64 * KiB : 0;
            result = umf_range_grow(range, i * MiB + 64 * KiB, 64 * KiB);
            total += result == UMF_RESULT_SUCCESS ? 64 * KiB : 0;
            for (int j = 0; j < 8; j++) {
                uintptr_t base;
                result = umf_range_alloc(range, 3000, 4096, &base);
                ASSERT_TRUE(result == UMF_RESULT_SUCCESS || nth.hit());
                if (result == UMF_RESULT_SUCCESS) {
                    used += 3000;
                    segments.push_back(base);
                    result = umf_range_split(range, base, 3000, 1000);
                    ASSERT_TRUE(result == UMF_RESULT_SUCCESS || nth.hit());
                    if (result == UMF_RESULT_SUCCESS) {
                        ASSERT_EQ(umf_range_free(range, base + 1000, 2000, nullptr),
                                  UMF_RESULT_SUCCESS);
                        used -= 2000;
                    }
                }
            }
            ASSERT_EQ(umf_range_used_bytes(range), used);
            ASSERT_EQ(umf_range_total_bytes(range), total);
            ASSERT_TRUE(umf_range_is_valid(range));
        }
        for (uintptr_t base : segments) {
            ASSERT_EQ(umf_range_free(range, base, 0, nullptr), UMF_RESULT_SUCCESS);
        }
        ASSERT_EQ(umf_range_used_bytes(range), 0u);
        umf_range_destroy(range);
    }
    EXPECT_GT(runs, 5);
    EXPECT_EQ(umf_meta_used(), before);
}
