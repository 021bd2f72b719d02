#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>

#include "fakes/other_thread.h"
#include "fakes/scale.h"

extern "C" {
#include "base/meta.h"
#include "system/os.h"
#include "track/span.h"
}

namespace {

umf_map_t *create_map(bool is_global) {
    if (is_global) {
        return &umf_map_global;
    }
    auto map = new umf_map_t{};
    EXPECT_EQ(umf_map_init(map), UMF_RESULT_SUCCESS);
    return map;
}

void destroy_map(umf_map_t *map) {
    if (map != &umf_map_global) {
        umf_map_fini(map);
        delete map;
    }
}

bool is_shard_of(const umf_map_t *map, uint32_t i, uintptr_t a, uintptr_t b) {
    return &map->shards[i] == umf_map_shard_of(map, a) ||
           &map->shards[i] == umf_map_shard_of(map, b);
}

// Holds the locks of all pages but those that share one with the page of `a` or `b`.
void lock_others(umf_map_t *map, uintptr_t a, uintptr_t b) {
    for (uint32_t i = 0; i <= map->shard_mask; i++) {
        if (!is_shard_of(map, i, a, b)) {
            umf_lock(&map->shards[i].lock);
        }
    }
}

void unlock_others(umf_map_t *map, uintptr_t a, uintptr_t b) {
    for (uint32_t i = map->shard_mask + 1; i-- > 0;) {
        if (!is_shard_of(map, i, a, b)) {
            umf_unlock(&map->shards[i].lock);
        }
    }
}

umf_span_set_t *create_set(umf_map_t *map, uint32_t pool) {
    auto set = new umf_span_set_t{};
    umf_span_set_init(set, map, pool);
    return set;
}

void destroy_set(umf_span_set_t *set) {
    umf_span_set_fini(set);
    delete set;
}

size_t visit(umf_span_set_t *set) {
    size_t count = 0;
    auto count_one = [](umf_span_t *, void *sum) { return ++*static_cast<size_t *>(sum) != 0; };
    umf_span_each(set, count_one, &count);
    return count;
}

size_t drain(umf_span_set_t *set) {
    size_t count = 0;
    auto count_one = [](umf_span_t *, void *sum) { ++*static_cast<size_t *>(sum); };
    umf_span_set_drain(set, count_one, &count);
    return count;
}

umf_result_t add_span(umf_span_set_t *set, uintptr_t base, size_t size, void *cookie,
                      uint16_t class_offset, umf_span_t **span) {
    return umf_span_add(set, base, size, UMF_SPAN_POOL, cookie, class_offset, span);
}

// The state of a thread just before it inserts the span into the map. nullptr: out of memory.
umf_span_t *add_unpublished(umf_span_set_t *set, uintptr_t base, size_t size) {
    const uintptr_t elsewhere = base + (uintptr_t{1} << 40); // not there, for it makes tables
    umf_span_t *span = nullptr;
    if (add_span(set, elsewhere, 1, nullptr, 0, &span) == UMF_RESULT_SUCCESS) {
        umf_map_remove(set->map, elsewhere, 1, umf_span_map_entry(set, span), 0);
        span->base = base;
        span->size = size;
    }
    return span;
}

uint32_t pool_at(umf_map_t *map, uintptr_t addr) {
    umf_map_entry_t word = 0;
    umf_span_find(map, addr, &word);
    return umf_map_entry_pool(word);
}

uint32_t class_offset_at(umf_map_t *map, uintptr_t addr) {
    umf_map_entry_t word = 0;
    umf_span_find(map, addr, &word);
    return static_cast<uint32_t>(umf_map_entry_class_offset(word));
}

umf_result_t begin_dormancy(umf_span_set_t *set, umf_span_t *span) {
    umf_result_t result = umf_span_withdraw(set, span, span->base);
    if (result == UMF_RESULT_SUCCESS) {
        umf_span_begin_dormancy(span);
    }
    return result;
}

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr size_t MiB = size_t{1} << 20, GiB = size_t{1} << 30, TiB = size_t{1} << 40;

// Two threads do the same steps at once, as far as both have a processor.
template <class Steps> void both(size_t count, const Steps &steps) {
    std::atomic<size_t> at[2] = {};
    auto run = [&](uint32_t me) {
        for (size_t i = 0; i < count; i++) {
            at[me] = i + 1;
            for (int n = 0; n < 1000 && at[1 - me] <= i; n++) {
            }
            steps(me, i);
        }
        at[me] = SIZE_MAX;
    };
    std::thread other(run, 1);
    run(0);
    other.join();
}

// On a private map (tracking disabled) and on the one of the process.
class Span : public testing::TestWithParam<bool> {
  protected:
    umf_map_t *map = create_map(GetParam());
    std::vector<umf_span_set_t *> sets;

    // Links what makes the maps ready before main.
    static void SetUpTestSuite() {
        ASSERT_EQ(umfInit(), OK);
    }
    static void TearDownTestSuite() {
        ASSERT_EQ(umfTearDown(), OK);
    }
    umf_span_set_t *set(uint32_t pool = 77) {
        sets.push_back(create_set(map, pool));
        return sets.back();
    }
    void TearDown() override {
        umf_os_set_fault(nullptr);
        for (umf_span_set_t *one : sets) {
            drain(one);
            EXPECT_EQ(one->count, 0u);
            destroy_set(one);
        }
        destroy_map(map);
    }
    umf_span_t *add(umf_span_set_t *to, uintptr_t base, size_t size) {
        umf_span_t *span = nullptr;
        EXPECT_EQ(add_span(to, base, size, nullptr, 0, &span), OK);
        return span;
    }
    void remove(umf_span_set_t *from, umf_span_t *span) {
        ASSERT_EQ(umf_span_withdraw(from, span, span->base), OK);
        umf_span_release(span->set, span);
    }
    umf_span_t *find(uintptr_t addr) {
        return umf_span_find(map, addr, nullptr);
    }
};

TEST_P(Span, FoundByAnyAddressInside) {
    umf_span_set_t *s = set(5);
    int cookie;
    umf_span_t *span = nullptr;
    const uintptr_t base = 3 * TiB + 123;
    ASSERT_EQ(add_span(s, base, 1000, &cookie, 12, &span), OK);
    EXPECT_EQ(find(base), span);
    EXPECT_EQ(find(base + 999), span);
    EXPECT_EQ(find(base + 1000), nullptr);
    EXPECT_EQ(find(base - 1), nullptr);
    EXPECT_EQ(pool_at(map, base + 5), 5u);
    EXPECT_EQ(class_offset_at(map, base + 5), 12u);
    EXPECT_EQ(span->cookie, &cookie);
    EXPECT_EQ(span->set, s);
    EXPECT_EQ(span->depth, 1u);
    EXPECT_EQ(s->count, 1u);
    remove(s, span);
    EXPECT_EQ(find(base), nullptr);
}

TEST_P(Span, SizeZeroIsKnownByItsAddress) {
    umf_span_set_t *s = set();
    umf_span_t *span = add(s, 3 * TiB, 0);
    EXPECT_EQ(find(3 * TiB), span);
    EXPECT_EQ(find(3 * TiB + 1), nullptr);
    EXPECT_EQ(span->size, 0u);
    remove(s, span);
}

TEST_P(Span, IdsGrow) {
    umf_span_set_t *s = set();
    umf_span_t *a = add(s, 3 * TiB, 100);
    uint64_t id = a->id;
    remove(s, a);
    a = add(s, 3 * TiB, 100);
    EXPECT_GT(a->id, id) << "the same address again, another piece";
    remove(s, a);
}

TEST_P(Span, WithdrawnOnce) {
    umf_span_set_t *s = set(), *other = set(78);
    const uintptr_t base = 3 * TiB;
    umf_span_t *span = add(s, base, 5000);
    EXPECT_EQ(umf_span_withdraw(other, span, base), BAD) << "of another owner";
    EXPECT_EQ(umf_span_withdraw(s, span, base + 1), BAD);
    ASSERT_EQ(umf_span_withdraw(s, span, base), OK);
    EXPECT_EQ(umf_span_withdraw(s, span, base), BAD) << "another thread came too late";
    EXPECT_EQ(visit(s), 0u);
    ASSERT_EQ(umf_span_restore(s, span), OK);
    EXPECT_EQ(find(base + 4999), span);
    EXPECT_EQ(s->count, 1u);
    remove(s, span);
}

TEST_P(Span, NestedUpToEight) {
    std::vector<std::pair<umf_span_set_t *, umf_span_t *>> levels;
    const uintptr_t base = 3 * TiB + 500;
    for (uint32_t level = 1; level <= 8; level++) {
        umf_span_set_t *s = set(level);
        umf_span_t *span = add(s, base + level * 10, 100000 - level * 20);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(span->depth, level);
        levels.emplace_back(s, span);
    }
    umf_span_t *ninth = nullptr;
    umf_span_set_t *s9 = set(9);
    EXPECT_EQ(add_span(s9, base + 500, 10, nullptr, 0, &ninth), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(ninth, nullptr);
    EXPECT_EQ(s9->count, 0u);
    for (uint32_t level = 8; level >= 1; level--) {
        EXPECT_EQ(find(base + 500), levels[level - 1].second);
        EXPECT_EQ(pool_at(map, base + 500), level);
        remove(levels[level - 1].first, levels[level - 1].second);
    }
    EXPECT_EQ(find(base + 500), nullptr);
}

TEST_P(Span, HintsCanBeDropped) {
    umf_span_set_t *s = set(5), *inside = set(6);
    const uintptr_t bases[] = {3 * TiB, 3 * TiB + 64 * 1024, 4 * TiB + 100};
    const size_t sizes[] = {64 * 1024, 4 * MiB, 10000};
    for (int i = 0; i < 3; i++) {
        uintptr_t base = bases[i], last = base + sizes[i] - 1;
        umf_span_t *outer = nullptr, *inner = nullptr;
        ASSERT_EQ(add_span(s, base, sizes[i], nullptr, 12, &outer), OK);
        ASSERT_EQ(add_span(inside, base + 5000, 3000, nullptr, 8, &inner), OK);
        umf_span_drop_class_offset(outer);
        umf_span_drop_class_offset(outer);
        for (uintptr_t addr : {base, base + 4999, base + 8000, last}) {
            EXPECT_EQ(find(addr), outer);
            EXPECT_EQ(class_offset_at(map, addr), 0u);
            EXPECT_EQ(pool_at(map, addr), 5u);
        }
        EXPECT_EQ(find(base + 6000), inner);
        EXPECT_EQ(class_offset_at(map, base + 6000), 8u);
        remove(inside, inner);
        EXPECT_EQ(find(base + 6000), outer);
        EXPECT_EQ(class_offset_at(map, base + 6000), 0u);
        remove(s, outer);
        for (uintptr_t addr : {base, base + 6000, last}) {
            EXPECT_EQ(find(addr), nullptr);
        }
    }
}

TEST_P(Span, EqualRangesNest) {
    umf_span_set_t *a = set(1), *b = set(2);
    for (auto [base, size] : {std::pair<uintptr_t, size_t>{3 * TiB, 8192},
                              {3 * TiB + 100, 200},
                              {3 * TiB + 4000, 5000}}) {
        umf_span_t *outer = add(a, base, size), *inner = add(b, base, size);
        EXPECT_EQ(find(base), inner);
        EXPECT_EQ(find(base + size - 1), inner);
        remove(b, inner);
        EXPECT_EQ(find(base), outer);
        EXPECT_EQ(find(base + size - 1), outer);
        remove(a, outer);
        EXPECT_EQ(find(base), nullptr);
    }
}

TEST_P(Span, CrossingIsRefused) {
    umf_span_set_t *a = set(1), *b = set(2);
    const uintptr_t base = 3 * TiB + 1000;
    umf_span_t *span = add(a, base, 10000), *none = nullptr;
    EXPECT_EQ(add_span(b, base + 9000, 1001, nullptr, 0, &none), BAD);
    EXPECT_EQ(add_span(b, base - 10, 11, nullptr, 0, &none), BAD);
    EXPECT_EQ(add_span(b, base - 10, 20000, nullptr, 0, &none), BAD);
    EXPECT_EQ(add_span(b, UINTPTR_MAX - 10, 12, nullptr, 0, &none), BAD);
    EXPECT_EQ(none, nullptr);
    EXPECT_EQ(b->count, 0u);
    remove(b, add(b, base + 9000, 1000));
    remove(b, add(b, base - 10, 10));
    remove(a, span);
}

// The contract calls it undefined; it must not crash, and the child can still be freed.
TEST_P(Span, ParentFreedBeforeChild) {
    umf_span_set_t *a = set(1), *b = set(2), *c = set(3);
    for (size_t size : {size_t{500}, size_t{20000}, 3 * GiB}) {
        const uintptr_t base = 3 * TiB + 1000;
        umf_span_t *parent = add(a, base, size), *child = add(b, base + 100, size / 2);
        remove(a, parent);
        EXPECT_EQ(find(base), nullptr);
        EXPECT_EQ(find(base + 100), child);
        // Its descriptor is reused by another span, which must not become the child's parent.
        umf_span_t *reused = add(c, 5 * TiB, 100);
        remove(b, child);
        ASSERT_EQ(find(base + 100), nullptr);
        ASSERT_EQ(find(base + size / 2), nullptr);
        remove(c, reused);
    }
}

// Its descriptor serves a span elsewhere, or one of another map, which is not the child's parent.
TEST_P(Span, ParentFreedBeforeChildAndUsedAgain) {
    const uintptr_t base = 3 * TiB + 1000, elsewhere = 5 * TiB;
    const size_t size = 20000;
    umf_map_t *other = create_map(!GetParam());
    OtherThread early; // its ids are smaller than the child's
    umf_span_set_t *its = set(9);
    early([&] { remove(its, add(its, 7 * TiB, 1)); });
    struct {
        umf_map_t *map;
        uintptr_t base;
        bool is_early;
    } const uses[] = {{map, elsewhere, false}, {map, elsewhere, true}, {other, base, false}};
    for (const auto &use : uses) {
        umf_span_set_t *a = create_set(map, 1), *b = set(2), *c = create_set(use.map, 3);
        umf_span_t *parent = add(a, base, size), *child = nullptr, *reused = nullptr;
        std::thread([&] { child = add(b, base + 100, size / 2); }).join();
        remove(a, parent);
        destroy_set(a); // gives up the descriptors that it kept
        auto reuse = [&] { reused = add(c, use.base, size); };
        use.is_early ? early(reuse) : std::thread(reuse).join();
        EXPECT_EQ(reused, parent);
        EXPECT_EQ(reused->id < child->id, use.is_early);
        remove(b, child);
        ASSERT_EQ(find(base + 100), nullptr);
        ASSERT_EQ(find(base + size / 2), nullptr);
        remove(c, reused);
        destroy_set(c);
    }
    destroy_map(other);
}

TEST_P(Span, GrandchildWithoutParent) {
    umf_span_set_t *a = set(1), *b = set(2), *c = set(3);
    const uintptr_t base = 3 * TiB;
    umf_span_t *outer = add(a, base, 100000), *middle = add(b, base + 1000, 50000),
               *inner = add(c, base + 2000, 10000);
    remove(b, middle);
    EXPECT_EQ(find(base + 1500), outer);
    EXPECT_EQ(find(base + 2500), inner);
    remove(c, inner);
    umf_span_t *seen = find(base + 2500);
    EXPECT_TRUE(seen == nullptr || seen == outer) << "never the middle one";
    remove(a, outer);
    EXPECT_EQ(find(base + 1500), nullptr);
}

TEST_P(Span, SplitAndMerge) {
    umf_span_set_t *s = set(1), *other = set(2);
    const uintptr_t base = 3 * TiB + 77;
    umf_span_t *low = add(s, base, 30000);
    uint64_t id = low->id;
    EXPECT_EQ(umf_span_split(s, low, 0), BAD);
    EXPECT_EQ(umf_span_split(s, low, 30000), BAD);
    EXPECT_EQ(umf_span_split(s, low, 40000), BAD);
    for (size_t first : {size_t{1}, size_t{3000}, size_t{4019}, size_t{8115}, size_t{29999}}) {
        ASSERT_EQ(umf_span_split(s, low, first), OK) << first;
        EXPECT_EQ(s->count, 2u);
        umf_span_t *high = find(base + first);
        ASSERT_NE(high, low);
        EXPECT_EQ(find(base + first - 1), low);
        EXPECT_EQ(high->base, base + first);
        EXPECT_EQ(low->size, first);
        EXPECT_EQ(high->size, 30000 - first);
        EXPECT_GT(high->id, id);
        EXPECT_EQ(umf_span_merge(s, high, low), BAD) << "order";
        EXPECT_EQ(umf_span_merge(other, low, high), BAD) << "another owner";
        ASSERT_EQ(umf_span_merge(s, low, high), OK) << first;
        EXPECT_EQ(low->size, 30000u);
        EXPECT_EQ(find(base + 29999), low);
        EXPECT_EQ(s->count, 1u);
        EXPECT_EQ(visit(s), 1u);
    }
    umf_span_t *child = add(other, base + 10000, 10);
    EXPECT_EQ(umf_span_split(s, low, 5000), BAD) << "something is nested inside";
    remove(other, child);
    ASSERT_EQ(umf_span_split(s, low, 5000), OK);
    umf_span_t *high = find(base + 5000);
    child = add(other, base + 10000, 10);
    EXPECT_EQ(umf_span_merge(s, low, high), BAD);
    remove(other, child);
    umf_span_t *apart = add(s, base + 40000, 10);
    EXPECT_EQ(umf_span_merge(s, low, apart), BAD) << "not adjacent";
    remove(s, low);
    EXPECT_EQ(find(base + 4999), nullptr);
    EXPECT_EQ(find(base + 5000), high);
}

TEST_P(Span, PartsKeepTheHint) {
    umf_span_set_t *s = set(5);
    int cookie;
    umf_span_t *low = nullptr;
    const uintptr_t base = 3 * TiB;
    for (size_t first : {size_t{4096}, size_t{5000}}) {
        ASSERT_EQ(add_span(s, base, 30000, &cookie, 12, &low), OK);
        ASSERT_EQ(umf_span_split(s, low, first), OK);
        umf_span_t *high = find(base + first);
        for (uintptr_t at : {base, base + first - 1, base + first, base + 29999}) {
            EXPECT_EQ(class_offset_at(map, at), 12u);
            EXPECT_EQ(pool_at(map, at), 5u);
        }
        EXPECT_EQ(high->cookie, &cookie);
        remove(s, high);
        remove(s, low);
    }
}

TEST_P(Span, PartsOfDifferentOuterOnesStayApart) {
    umf_span_set_t *a = set(1), *b = set(2);
    const uintptr_t base = 3 * TiB;
    for (size_t size : {size_t{8192}, size_t{1000}, 2 * MiB}) {
        umf_span_t *left = add(a, base, size), *right = add(a, base + size, size);
        umf_span_t *low = add(b, base + size / 2, size / 2), *high = add(b, base + size, size / 2);
        EXPECT_EQ(umf_span_merge(b, low, high), BAD);
        remove(b, low);
        remove(b, high);
        EXPECT_EQ(find(base + size - 1), left);
        EXPECT_EQ(find(base + size), right);
        remove(a, left);
        remove(a, right);
    }
}

TEST_P(Span, ARefusedSplitTakesNoDescriptor) {
    umf_span_set_t *s = set();
    umf_span_t *span = add(s, 3 * TiB, 30000), *before = add(s, 4 * TiB, 100);
    remove(s, before);
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(umf_span_split(s, span, 0), BAD);
    }
    umf_span_t *after = add(s, 4 * TiB, 100);
    EXPECT_EQ(after, before) << "the one that was unused is used";
    remove(s, after);
    remove(s, span);
}

TEST_P(Span, ARefusedOneIsNotLive) {
    umf_span_set_t *s = set(1), *other = set(2);
    const uintptr_t base = 3 * TiB;
    umf_span_t *in_the_way = add(other, base + 2 * 4096, 4096);
    for (size_t size : {size_t{3} * 4096, size_t{3} * 4096 + 100}) {
        umf_span_t *unused = add(s, 4 * TiB, 100), *none = nullptr;
        remove(s, unused);
        EXPECT_EQ(add_span(s, base, size, nullptr, 0, &none), BAD);
        EXPECT_FALSE(umf_span_is_live(unused)) << "the descriptor that was tried";
        EXPECT_EQ(umf_span_withdraw(s, unused, base), BAD);
    }
    remove(other, in_the_way);
}

TEST_P(Span, BeyondAGiBAndBeyond48Bits) {
    umf_span_set_t *s = set(1), *t = set(2);
    umf_span_t *huge = add(s, 3 * TiB + 5, 80 * GiB);
    umf_span_t *child = add(t, 3 * TiB + 40 * GiB - 100, 200);
    EXPECT_EQ(find(3 * TiB + 40 * GiB), child);
    EXPECT_EQ(find(3 * TiB + 40 * GiB + 100), huge);
    EXPECT_EQ(umf_span_split(s, huge, 10 * GiB), BAD);
    remove(t, child);
    ASSERT_EQ(umf_span_split(s, huge, 10 * GiB), OK);
    EXPECT_NE(find(3 * TiB + 79 * GiB), huge);
    const uintptr_t high = (uintptr_t{0xabc} << 48) + 1000;
    umf_span_t *a = add(s, high, 9 * GiB), *b = add(t, high + GiB, GiB);
    EXPECT_EQ(find(high), a);
    EXPECT_EQ(find(high + GiB), b);
    EXPECT_EQ(find(high + 2 * GiB), a);
    umf_span_t *none = nullptr;
    EXPECT_EQ(add_span(t, high + 8 * GiB, 2 * GiB, nullptr, 0, &none), BAD);
    remove(t, b);
    EXPECT_EQ(find(high + GiB), a);
    remove(s, a);
    EXPECT_EQ(find(high + GiB), nullptr);
}

TEST_P(Span, DrainSeesEverySpan) {
    umf_span_set_t *s = set(1);
    for (uintptr_t i = 0; i < 3000; i++) {
        add(s, 3 * TiB + i * 5000, 4096 + i % 100);
    }
    EXPECT_EQ(visit(s), 3000u);
    EXPECT_EQ(drain(s), 3000u);
    EXPECT_EQ(s->count, 0u);
    for (uintptr_t i = 0; i < 3000; i++) {
        EXPECT_EQ(find(3 * TiB + i * 5000), nullptr);
    }
}

// A descriptor that a set keeps for itself is everybody's when the set ends.
TEST_P(Span, DescriptorsAreNotLostWithTheirSet) {
    constexpr uintptr_t count = 100;
    std::set<umf_span_t *> seen;
    for (uint32_t round = 0; round < 20; round++) {
        umf_span_set_t *s = create_set(map, 1);
        std::vector<umf_span_t *> spans;
        for (uintptr_t i = 0; i < count; i++) {
            spans.push_back(add(s, 3 * TiB + i * 65536, 65536));
            seen.insert(spans.back());
        }
        for (umf_span_t *span : spans) {
            remove(s, span);
        }
        destroy_set(s);
    }
    EXPECT_EQ(seen.size(), count) << "used again by each set";
}

// Leaves of each size, alone and over several tables; a second span in the way is reported.
TEST_P(Span, WholeLeavesOfEverySize) {
    for (size_t size : {size_t{4096}, size_t{65536}, 2 * MiB, 10 * MiB, GiB, 3 * GiB,
                        2 * GiB + 4 * MiB + 65536 + 4096}) {
        const uintptr_t base = 3 * TiB + GiB - size % GiB;
        for (uintptr_t at : {base, base + 4096, base + 65536, base + 2 * MiB}) {
            umf_span_set_t *s = set(1), *t = set(2);
            for (int round = 0; round < 3; round++) {
                umf_span_t *span = add(s, at, size), *none = nullptr;
                EXPECT_EQ(find(at), span);
                EXPECT_EQ(find(at + size - 1), span);
                EXPECT_EQ(find(at - 1), nullptr);
                EXPECT_EQ(find(at + size), nullptr);
                EXPECT_EQ(add_span(t, at - 4096, size + 4096, nullptr, 0, &none), BAD);
                EXPECT_EQ(find(at - 1), nullptr) << "a failed one leaves nothing";
                remove(s, span);
                EXPECT_EQ(find(at), nullptr);
                EXPECT_EQ(find(at + size - 1), nullptr);
            }
        }
    }
}

TEST_P(Span, EveryNthFailureOfAdd) {
    static std::atomic<int> left;
    umf_span_set_t *s = set(1);
    const uintptr_t base = 90 * TiB + 12345;
    for (int n = 0;; n++) {
        ASSERT_LT(n, 20);
        size_t used = umf_meta_used();
        left = n;
        umf_os_set_fault([](const char *) { return left-- == 0 ? 12 : 0; });
        umf_span_t *span = nullptr;
        umf_result_t result = add_span(s, base, 5 * GiB, nullptr, 0, &span);
        umf_os_set_fault(nullptr);
        if (result == OK) {
            remove(s, span);
            break;
        }
        EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        EXPECT_EQ(span, nullptr);
        EXPECT_EQ(s->count, 0u);
        EXPECT_EQ(find(base), nullptr);
        EXPECT_EQ(find(base + 5 * GiB - 1), nullptr);
        // Tables and descriptors that were made stay, for the next time; nothing else.
        EXPECT_LT(umf_meta_used() - used, 100u << 10);
    }
}

TEST_P(Span, RestsAndWakes) {
    umf_span_set_t *s = set(5), *other = set(6);
    for (size_t size : {size_t{4096}, size_t{100}, size_t{10000}, size_t{256} << 10}) {
        const uintptr_t base = 3 * TiB + GiB - 8192;
        umf_span_t *span = add(s, base, size);
        uint64_t id = span->id;
        for (size_t next : {size - 1, size, size - 50, size}) {
            ASSERT_EQ(begin_dormancy(s, span), OK);
            EXPECT_FALSE(umf_span_is_live(span));
            EXPECT_EQ(find(base), nullptr);
            EXPECT_EQ(find(base + size / 2), nullptr);
            EXPECT_EQ(s->count, 1u);
            EXPECT_EQ(visit(s), 1u);
            EXPECT_EQ(begin_dormancy(s, span), BAD) << "it rests";
            EXPECT_EQ(umf_span_withdraw(s, span, base), BAD);
            EXPECT_EQ(umf_span_split(s, span, 10), BAD);
            EXPECT_FALSE(umf_span_is_live(span));
            // Its place has no owner.
            umf_span_t *between = add(other, base, 50);
            remove(other, between);
            ASSERT_TRUE(umf_span_wake(s, span, next));
            EXPECT_TRUE(umf_span_is_live(span));
            EXPECT_EQ(span->size, next);
            EXPECT_EQ(span->base, base);
            EXPECT_GT(span->id, id);
            id = span->id;
            EXPECT_EQ(find(base), span);
            EXPECT_EQ(find(base + next - 1), span);
            EXPECT_EQ(find(base + next), nullptr);
            EXPECT_EQ(pool_at(map, base), 5u);
            EXPECT_EQ(s->count, 1u);
        }
        ASSERT_EQ(begin_dormancy(s, span), OK);
        umf_span_end_dormancy(span);
        EXPECT_EQ(visit(s), 0u);
        umf_span_release(span->set, span);
        EXPECT_EQ(s->count, 0u);
    }
}

// A free that fails after all makes it live again.
TEST_P(Span, RestingOnesCanBeRestored) {
    umf_span_set_t *s = set();
    umf_span_t *span = add(s, 3 * TiB, 5000);
    ASSERT_EQ(begin_dormancy(s, span), OK);
    umf_span_end_dormancy(span);
    EXPECT_EQ(umf_span_withdraw(s, span, 3 * TiB), BAD);
    ASSERT_EQ(umf_span_restore(s, span), OK);
    EXPECT_EQ(find(3 * TiB + 4999), span);
    EXPECT_EQ(s->count, 1u);
    remove(s, span);
}

TEST_P(Span, DrainTakesWhatRestsToo) {
    umf_span_set_t *s = set();
    std::vector<umf_span_t *> spans;
    for (uintptr_t i = 0; i < 100; i++) {
        spans.push_back(add(s, 3 * TiB + i * 4096, 4096));
        if (i % 3) {
            ASSERT_EQ(begin_dormancy(s, spans.back()), OK);
        }
    }
    EXPECT_EQ(s->count, 100u);
    EXPECT_EQ(drain(s), 34u) << "only live ones are shown";
    for (umf_span_t *span : spans) {
        EXPECT_EQ(umf_span_kind(span), 0u) << "it serves others next";
    }
    EXPECT_EQ(s->count, 0u);
}

// A thread that a fork has lost was freeing one of them.
TEST_P(Span, DrainGoesOnBehindOneThatIsBeingFreed) {
    umf_span_set_t *s = set();
    const uintptr_t base = 95 * TiB;
    umf_span_t *spans[3];
    for (uintptr_t i = 0; i < 3; i++) {
        spans[i] = add(s, base + i * 8192, 8192);
    }
    ASSERT_EQ(umf_span_withdraw(s, spans[1], base + 8192), OK);
    EXPECT_EQ(drain(s), 2u);
    EXPECT_EQ(find(base), nullptr);
    EXPECT_EQ(find(base + 2 * 8192), nullptr);
    EXPECT_EQ(s->count, 1u);
    umf_span_release(spans[1]->set, spans[1]);
}

// A thread that a fork has lost had begun to publish it: the map does not lead to it yet, and has
// no tables for its ends.
TEST_P(Span, DrainTakesOneThatWasBeingPublished) {
    umf_span_set_t *s = set();
    const uintptr_t base = 96 * TiB;
    umf_span_t *span = add_unpublished(s, base + 100, 5000);
    ASSERT_NE(span, nullptr);
    EXPECT_EQ(find(base + 100), nullptr);
    EXPECT_EQ(visit(s), 1u);
    EXPECT_EQ(drain(s), 1u);
    EXPECT_EQ(s->count, 0u);
    remove(s, add(s, base + 100, 5000));
}

TEST_P(Span, WokenWithoutMemoryItStillRests) {
    umf_span_set_t *s = set();
    const uintptr_t base = 93 * TiB;
    std::vector<umf_span_t *> spans, suspended;
    for (uintptr_t i = 0; i < 20000; i++) {
        spans.push_back(add(s, base + i * 8192, 8192));
        ASSERT_EQ(begin_dormancy(s, spans.back()), OK);
    }
    umf_os_set_fault([](const char *) { return 12; });
    for (umf_span_t *span : spans) { // each needs a list for its last page
        if (!umf_span_wake(s, span, 5000)) {
            suspended.push_back(span);
        }
    }
    umf_os_set_fault(nullptr);
    ASSERT_FALSE(suspended.empty());
    for (umf_span_t *span : suspended) {
        EXPECT_FALSE(umf_span_is_live(span));
        EXPECT_EQ(find(span->base), nullptr);
        EXPECT_EQ(find(span->base + 4999), nullptr);
        EXPECT_EQ(umf_span_withdraw(s, span, span->base), BAD);
        if (span != suspended.back()) {
            ASSERT_TRUE(umf_span_wake(s, span, 5000));
            EXPECT_EQ(find(span->base + 4999), span);
        }
    }
    EXPECT_EQ(s->count, spans.size());
    EXPECT_EQ(drain(s), spans.size() - 1) << "the last one rests";
}

// Threads have ids of their own, which may be smaller than that of the span around.
TEST_P(Span, NestedOnesHaveLargerIds) {
    umf_span_set_t *a = set(1), *b = set(2);
    const uintptr_t base = 3 * TiB;
    for (size_t size : {size_t{4096}, size_t{100}, size_t{10000}}) {
        for (bool rests : {false, true}) {
            umf_span_t *inner = nullptr;
            if (rests) {
                inner = add(b, base + 8192, size);
                ASSERT_EQ(begin_dormancy(b, inner), OK);
            }
            umf_span_t *early = nullptr, *outer = nullptr;
            for (early = add(a, base + 5 * GiB, 1); (early->id - 1) % 64 > 50;) {
                remove(a, early); // until this thread has more ids
                early = add(a, base + 5 * GiB, 1);
            }
            std::thread([&] { outer = add(a, base, GiB); }).join();
            ASSERT_GT(outer->id, early->id + 10);
            if (rests) {
                ASSERT_TRUE(umf_span_wake(b, inner, size));
            } else {
                inner = add(b, base + 8192, size);
            }
            EXPECT_GT(inner->id, outer->id);
            EXPECT_EQ(inner->depth, 2u);
            EXPECT_EQ(find(base + 8192), inner);
            ASSERT_EQ(begin_dormancy(b, inner), OK);
            EXPECT_EQ(find(base + 8192), outer);
            EXPECT_EQ(find(base + 8192 + size - 1), outer);
            ASSERT_TRUE(umf_span_wake(b, inner, size));
            remove(b, inner);
            EXPECT_EQ(find(base + 8192), outer);
            EXPECT_EQ(find(base + 8192 + size - 1), outer);
            remove(a, outer);
            remove(a, early);
        }
    }
}

// So have the parts of any split.
TEST_P(Span, PartsOfNestedOnesHaveLargerIds) {
    umf_span_set_t *a = set(1), *b = set(2);
    const uintptr_t base = 3 * TiB;
    OtherThread early;
    early([&] { remove(a, add(a, base + 5 * GiB, 1)); });
    umf_span_t *outer = nullptr, *low = nullptr;
    std::thread([&] {
        low = add(b, base, 10000), remove(b, low), outer = add(a, base, GiB);
    }).join();
    low = add(b, base + 8192, 10000);
    early([&] { EXPECT_EQ(umf_span_split(b, low, 4096), OK); });
    umf_span_t *high = find(base + 8192 + 4096);
    EXPECT_GT(high->id, outer->id);
    remove(b, high);
    EXPECT_EQ(find(base + 8192 + 4096), outer);
    EXPECT_EQ(find(base + 8192), low);
    remove(b, low);
    EXPECT_EQ(find(base + 8192), outer);
    remove(a, outer);
}

TEST_P(Span, IdsOfThreadsAreUnique) {
    constexpr size_t COUNT = 500;
    std::vector<std::thread> threads;
    std::vector<uint64_t> ids[4];
    for (uint32_t t = 0; t < 4; t++) {
        umf_span_set_t *s = set(t + 1);
        threads.emplace_back([&, t, s] {
            for (size_t i = 0; i < COUNT; i++) {
                umf_span_t *span = add(s, 3 * TiB + t * GiB, 4096);
                ids[t].push_back(span->id);
                begin_dormancy(s, span);
                umf_span_wake(s, span, 4096);
                ids[t].push_back(span->id);
                remove(s, span);
            }
        });
    }
    std::set<uint64_t> all;
    for (uint32_t t = 0; t < 4; t++) {
        threads[t].join();
        all.insert(ids[t].begin(), ids[t].end());
    }
    EXPECT_EQ(all.size(), 8 * COUNT);
    EXPECT_EQ(all.count(0), 0u);
}

// Threads add and remove spans in shared pages while others look them up.
TEST_P(Span, ConcurrentOwnersAndReaders) {
    const uintptr_t base = 3 * TiB + GiB - 8192; // a shard ends inside
    const size_t rounds = scaled(3000);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; t++) {
        umf_span_set_t *s = set(t + 1);
        threads.emplace_back([&, t, s] {
            std::mt19937 random(t);
            for (size_t i = 0; i < rounds; i++) {
                uintptr_t at = base + t * 1000 + (random() % 16) * 3000 + random() % 100;
                size_t size = 1 + random() % 800;
                umf_span_t *span = nullptr;
                if (add_span(s, at, size, s, static_cast<uint16_t>(t), &span) != OK) {
                    wrong++;
                    continue;
                }
                wrong += umf_span_find(map, at, nullptr) != span;
                wrong += pool_at(map, at + size - 1) != t + 1;
                if (size > 10 && umf_span_split(s, span, size / 2) == OK) {
                    umf_span_t *high = umf_span_find(map, at + size / 2, nullptr);
                    wrong += high->base != at + size / 2;
                    wrong += umf_span_merge(s, span, high) != OK;
                }
                wrong += umf_span_withdraw(s, span, at) != OK;
                umf_span_release(span->set, span);
            }
        });
    }
    threads.emplace_back([&] {
        std::mt19937 random(99);
        while (!stop) {
            uintptr_t at = base + random() % 50000;
            uint32_t pool = pool_at(map, at);
            uint32_t expected = static_cast<uint32_t>((at - base) % 3000 / 1000 + 1);
            wrong += pool != 0 && pool != expected;
        }
    });
    for (size_t t = 0; t < 3; t++) {
        threads[t].join();
    }
    stop = true;
    threads[3].join();
    EXPECT_EQ(wrong, 0);
}

// A span waits for no page but the two that it covers in part. It would wait for ever here, so the
// locks are given back after a minute.
TEST_P(Span, UnalignedEndsWaitForTheirOwnPagesOnly) {
    umf_span_set_t *s = set();
    const uintptr_t begin = 3 * TiB + 100;
    for (size_t size : {size_t{50}, size_t{8192}, 3 * MiB, 2 * GiB}) {
        const uintptr_t last = begin + size - 1;
        lock_others(map, begin, last);
        auto done = std::async(std::launch::async, [&] {
            umf_span_t *span = add(s, begin, size);
            EXPECT_EQ(find(begin), span);
            EXPECT_EQ(find(last), span);
            EXPECT_NE(find(begin - 1), span);
            EXPECT_NE(find(last + 1), span);
            remove(s, span);
            EXPECT_EQ(find(begin), nullptr);
            EXPECT_EQ(find(last), nullptr);
        });
        EXPECT_EQ(done.wait_for(std::chrono::minutes(1)), std::future_status::ready) << size;
        unlock_others(map, begin, last);
        done.wait();
    }
}

// Threads divide slots that whole spans came and went in, and put spans next to each other's.
TEST_P(Span, ConcurrentWhereSlotsAreDivided) {
    const uintptr_t base = 13 * TiB, moving = base + GiB - 64 * MiB;
    const size_t slots = std::min(scaled(400), size_t{400}), page = 4096, table = 65536;
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    auto come = [&](umf_span_set_t *s, uintptr_t at, size_t size) {
        umf_span_t *span = nullptr;
        wrong += add_span(s, at, size, nullptr, 0, &span) != OK;
        wrong += find(at) != span || find(at + size - 1) != span;
        return span;
    };
    auto go = [&](umf_span_set_t *s, umf_span_t *span) {
        if (!span) {
            return;
        }
        const uintptr_t at = span->base, last = at + span->size - 1;
        wrong += find(at) != span || find(last) != span;
        wrong += umf_span_withdraw(s, span, at) != OK;
        wrong += find(at) != nullptr || find(last) != nullptr;
        umf_span_release(span->set, span);
    };
    umf_span_set_t *own[] = {set(1), set(2), set(3)};
    std::thread near([&] {
        const size_t sizes[] = {page, 3 * page, table, 4 * table, 2 * MiB, 6 * MiB};
        for (size_t n = 0; !stop; n++) {
            go(own[2], come(own[2], moving + n % 5 * 8 * MiB, sizes[n % 6]));
        }
    });
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < slots; i++) {
            const uintptr_t slot = base + i * 2 * MiB;
            go(own[0], come(own[0], slot, 2 * MiB));
            go(own[1], come(own[1], slot + 4 * table, 28 * table));
        }
        // Of each pair the second is a multiple of a slot, and the other thread has the next place.
        both(slots, [&](uint32_t me, size_t i) {
            umf_span_set_t *s = own[me];
            const uintptr_t slot = base + i * 2 * MiB;
            umf_span_t *spans[] = {
                come(s, slot + me * page, page),
                come(s, slot + (me + 1) * 2 * table, 2 * table),
                come(s, slot + 2 * page + me * 1000, 900),
                come(s, slot + (me + 3) * 2 * page, 2 * page),
                come(s, slot + (me + 9) * table + 100, table - 100),
                come(s, slot + (me + 6) * 2 * table, 2 * table),
            };
            for (umf_span_t *span : spans) {
                go(s, span);
            }
        });
    }
    stop = true;
    near.join();
    EXPECT_EQ(wrong, 0);
    for (umf_span_set_t *s : own) {
        EXPECT_EQ(s->count, 0u);
        EXPECT_EQ(visit(s), 0u);
    }
    // One span for all of it: nothing is left in its way.
    umf_span_t *all = add(own[0], base, GiB);
    EXPECT_EQ(find(base + slots * 2 * MiB), all);
    remove(own[0], all);
}

TEST_P(Span, ConcurrentWithdrawalsOfOneSpan) {
    const uintptr_t base = 17 * TiB;
    const size_t count = 256, sizes[] = {4096, 65536, 2 * MiB, 100};
    umf_span_set_t *s = set(1);
    for (size_t round = 0; round < scaled(400); round++) {
        std::vector<umf_span_t *> spans(count);
        std::vector<umf_result_t> results[2] = {std::vector<umf_result_t>(count),
                                                std::vector<umf_result_t>(count)};
        for (size_t i = 0; i < count; i++) {
            spans[i] = add(s, base + i * 2 * MiB, sizes[i % 4]);
        }
        both(count, [&](uint32_t me, size_t i) {
            results[me][i] = umf_span_withdraw(s, spans[i], base + i * 2 * MiB);
        });
        ASSERT_EQ(visit(s), 0u);
        for (size_t i = 0; i < count; i++) {
            ASSERT_EQ(results[0][i], results[1][i] == OK ? BAD : OK);
            ASSERT_EQ(find(base + i * 2 * MiB), nullptr);
            umf_span_release(spans[i]->set, spans[i]);
        }
    }
}

// Descriptors serve other spans at once, of the same set or another one: those stay.
TEST_P(Span, ConcurrentWithdrawalsWhileDescriptorsAreReused) {
    const uintptr_t base = 23 * TiB, elsewhere = 24 * TiB;
    const size_t count = 256, sizes[] = {4096, 65536, 2 * MiB, 100};
    umf_span_set_t *from = set(1), *to[] = {set(2), from};
    for (size_t round = 0; round < scaled(40); round++) {
        std::vector<umf_span_t *> spans(count), others[2];
        std::atomic<size_t> withdrawn{0};
        for (size_t i = 0; i < count; i++) {
            spans[i] = add(from, base + i * 2 * MiB, sizes[i % 4]);
        }
        both(count, [&](uint32_t me, size_t i) {
            if (umf_span_withdraw(from, spans[i], base + i * 2 * MiB) != OK) {
                return;
            }
            withdrawn++;
            umf_span_release(spans[i]->set, spans[i]);
            umf_span_t *other = nullptr;
            add_span(to[round % 2], elsewhere + i * 2 * MiB, sizes[i % 3], nullptr, 0, &other);
            others[me].push_back(other);
        });
        ASSERT_EQ(withdrawn, count);
        ASSERT_EQ(from->count + to[0]->count, count);
        for (size_t i = 0; i < count; i++) {
            ASSERT_EQ(find(base + i * 2 * MiB), nullptr);
            ASSERT_NE(find(elsewhere + i * 2 * MiB), nullptr);
        }
        for (auto &some : others) {
            for (umf_span_t *other : some) {
                ASSERT_EQ(find(other->base + other->size - 1), other);
                remove(to[round % 2], other);
            }
        }
        ASSERT_EQ(visit(from) + visit(to[0]), 0u);
    }
}

// Who is too late does not keep the descriptor's next span from its owner.
TEST_P(Span, ConcurrentWithdrawalTooLate) {
    const uintptr_t base = 25 * TiB;
    umf_span_set_t *s = set(1), *other = set(2);
    umf_span_t *old = add(s, base, 4096);
    remove(s, old);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::thread late([&] {
        while (!stop) {
            wrong += umf_span_withdraw(s, old, base) != BAD;
            wrong += umf_span_withdraw(other, old, base) != BAD;
        }
    });
    for (size_t i = 0; i < scaled(20000); i++) {
        umf_span_t *span = add(s, base + 65536, 4096);
        const umf_result_t result = umf_span_withdraw(s, span, base + 65536);
        wrong += result != OK;
        for (int n = 0; result != OK && n < 1000000; n++) {
            if (umf_span_withdraw(s, span, base + 65536) == OK) {
                break;
            }
        }
        umf_span_release(span->set, span);
    }
    stop = true;
    late.join();
    EXPECT_EQ(wrong, 0);
}

// The first spans of a GiB, of 2 MiB, of 64 KiB: two threads make its table at once.
TEST_P(Span, ConcurrentFirstSpans) {
    const uintptr_t base = 31 * TiB;
    const size_t steps[] = {GiB, 2 * MiB, 65536};
    umf_span_set_t *s = set(1);
    for (size_t step : steps) {
        const size_t count = scaled(step == GiB ? 200 : 4000);
        std::vector<umf_span_t *> spans[2] = {std::vector<umf_span_t *>(count),
                                              std::vector<umf_span_t *>(count)};
        auto at = [&](uint32_t me, size_t i) { return base + i * step + (5 * me + 1) * 4096; };
        both(count,
             [&](uint32_t me, size_t i) { spans[me][i] = add(s, at(me, i), i % 2 ? 4096 : 100); });
        for (size_t i = 0; i < count; i++) {
            for (uint32_t me : {0, 1}) {
                ASSERT_EQ(find(at(me, i)), spans[me][i]) << i;
                remove(s, spans[me][i]);
            }
        }
    }
}

// Either the parts are one, or the high one is gone: never both.
TEST_P(Span, ConcurrentMergeAndWithdrawal) {
    const uintptr_t base = 19 * TiB;
    const size_t count = 128;
    umf_span_set_t *s = set(1);
    for (size_t round = 0; round < scaled(400); round++) {
        const size_t half = round % 3 == 0 ? 4096 : round % 3 == 1 ? 65536 : 1000;
        std::vector<umf_span_t *> low(count), high(count);
        std::vector<umf_result_t> results[2] = {std::vector<umf_result_t>(count),
                                                std::vector<umf_result_t>(count)};
        for (size_t i = 0; i < count; i++) {
            low[i] = add(s, base + i * MiB, 2 * half);
            ASSERT_EQ(umf_span_split(s, low[i], half), OK);
            high[i] = find(base + i * MiB + half);
        }
        both(count, [&](uint32_t me, size_t i) {
            results[me][i] = me ? umf_span_withdraw(s, high[i], base + i * MiB + half)
                                : umf_span_merge(s, low[i], high[i]);
        });
        ASSERT_EQ(visit(s), count);
        for (size_t i = 0; i < count; i++) {
            const bool is_merged = results[0][i] == OK;
            ASSERT_EQ(results[is_merged][i], BAD);
            ASSERT_EQ(results[!is_merged][i], OK);
            EXPECT_EQ(low[i]->size, is_merged ? 2 * half : half);
            EXPECT_EQ(find(base + i * MiB + half - 1), low[i]);
            EXPECT_EQ(find(base + i * MiB + half), is_merged ? low[i] : nullptr);
            EXPECT_EQ(find(base + i * MiB + 2 * half - 1), is_merged ? low[i] : nullptr);
            if (!is_merged) {
                umf_span_release(high[i]->set, high[i]);
            }
            remove(s, low[i]);
            EXPECT_EQ(find(base + i * MiB + half), nullptr);
        }
        ASSERT_EQ(s->count, 0u);
    }
}

// The low part is divided and one again while the high part goes.
TEST_P(Span, ConcurrentSplitAndWithdrawal) {
    const uintptr_t base = 21 * TiB;
    const size_t count = 128;
    umf_span_set_t *s = set(1);
    for (size_t round = 0; round < scaled(60); round++) {
        const size_t half = round % 3 == 0 ? 8192 : round % 3 == 1 ? 2 * 65536 : 1000;
        std::vector<umf_span_t *> low(count), high(count);
        std::atomic<int> wrong{0};
        for (size_t i = 0; i < count; i++) {
            low[i] = add(s, base + i * MiB, 2 * half);
            ASSERT_EQ(umf_span_split(s, low[i], half), OK);
            high[i] = find(base + i * MiB + half);
        }
        both(count, [&](uint32_t me, size_t i) {
            const uintptr_t at = base + i * MiB;
            if (me) {
                wrong += umf_span_withdraw(s, high[i], at + half) != OK;
                wrong += find(at + half) != nullptr || find(at + 2 * half - 1) != nullptr;
                umf_span_release(high[i]->set, high[i]);
            } else {
                wrong += umf_span_split(s, low[i], half / 2) != OK;
                umf_span_t *middle = find(at + half / 2);
                wrong += middle == low[i] || find(at + half - 1) != middle;
                if (i % 2) {
                    wrong += umf_span_merge(s, low[i], middle) != OK;
                    wrong += find(at + half - 1) != low[i];
                }
            }
        });
        EXPECT_EQ(wrong, 0);
        EXPECT_EQ(s->count, count + count / 2);
        ASSERT_EQ(visit(s), count + count / 2);
        ASSERT_EQ(drain(s), count + count / 2);
        for (size_t i = 0; i < count; i++) {
            EXPECT_EQ(find(base + i * MiB), nullptr);
            EXPECT_EQ(find(base + i * MiB + half - 1), nullptr);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(On, Span, testing::Bool(), [](const auto &test) {
    return test.param ? "the_map_of_the_process" : "a_private_map";
});

} // namespace
