/* ds/hash: against std::map, and without memory. */
#include <map>
#include <random>

#include <gtest/gtest.h>

extern "C" {
#include "base/meta.h"
#include "ds/hash.h"
}

#include "fault.h"

static void *value_of(uint64_t v) {
    return reinterpret_cast<void *>(static_cast<uintptr_t>(v));
}

TEST(hash, EmptyTable) {
    umf_hash_t hash = {};
    EXPECT_EQ(umf_hash_get(&hash, 1), nullptr);
    EXPECT_EQ(umf_hash_remove(&hash, 1), nullptr);
    umf_hash_fini(&hash);
}

TEST(hash, PutReplacesAndRemoveReturns) {
    umf_hash_t hash = {};
    ASSERT_TRUE(umf_hash_put(&hash, 7, value_of(1)));
    ASSERT_TRUE(umf_hash_put(&hash, 7, value_of(2)));
    EXPECT_EQ(hash.count, 1u);
    EXPECT_EQ(umf_hash_get(&hash, 7), value_of(2));
    EXPECT_EQ(umf_hash_remove(&hash, 7), value_of(2));
    EXPECT_EQ(umf_hash_remove(&hash, 7), nullptr);
    EXPECT_EQ(umf_hash_get(&hash, 7), nullptr);
    umf_hash_fini(&hash);
}

/* Few distinct keys, so that runs of neighbours form and are torn. */
TEST(hash, BehavesLikeAMap) {
    for (unsigned seed = 0; seed < 20; seed++) {
        std::mt19937_64 random(seed);
        std::map<uint64_t, void *> model;
        umf_hash_t hash = {};
        uint64_t step = seed % 2 ? 4096 : 1;
        for (int i = 0; i < 20000; i++) {
            uint64_t key = (random() % 300 + 1) * step;
            if (random() % 2) {
                void *value = value_of(random());
                model[key] = value;
                ASSERT_TRUE(umf_hash_put(&hash, key, value));
            } else {
                auto it = model.find(key);
                ASSERT_EQ(umf_hash_remove(&hash, key), it == model.end() ? nullptr : it->second);
                model.erase(key);
            }
            ASSERT_EQ(hash.count, model.size());
        }
        for (uint64_t k = 1; k <= 300; k++) {
            auto it = model.find(k * step);
            ASSERT_EQ(umf_hash_get(&hash, k * step), it == model.end() ? nullptr : it->second);
        }
        size_t visited = 0;
        umf_hash_each(
            &hash, [](uint64_t, void *, void *arg) { ++*static_cast<size_t *>(arg); }, &visited);
        EXPECT_EQ(visited, model.size());
        umf_hash_fini(&hash);
    }
}

/* Slots that a search reads, in a table that is as full as it gets. */
static double probes_of_steps(size_t slots, uint64_t step) {
    umf_hash_t hash = {};
    const uint64_t first = 0x7f1234560000;
    const size_t count = slots / 4 * 3;
    EXPECT_TRUE(umf_hash_reserve(&hash, count));
    EXPECT_EQ(hash.mask + 1, slots);
    for (size_t i = 0; i < count; i++) {
        EXPECT_TRUE(umf_hash_put(&hash, first + i * step, value_of(i + 1)));
    }
    size_t probes = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t key = first + i * step;
        const auto slot = static_cast<size_t>(umf_hash_slot(&hash, key) - hash.slots);
        probes += ((slot - umf_hash_index(&hash, key)) & hash.mask) + 1;
    }
    umf_hash_fini(&hash);
    return static_cast<double>(probes) / static_cast<double>(count);
}

/* Keys in random places take 2.5. */
TEST(hash, AddressesInEqualStepsAreScattered) {
    for (size_t slots : {8, 32, 256, 1024}) {
        for (uint64_t step = 16; step <= 64 << 20; step *= 2) {
            EXPECT_LE(probes_of_steps(slots, step), 5) << slots << " slots, steps of " << step;
        }
    }
}

TEST(hash, ReservedPutsCannotFail) {
    umf_hash_t hash = {};
    ASSERT_TRUE(umf_hash_reserve(&hash, 1000));
    fault::Nth nth("meta_alloc");
    nth.next();
    for (uint64_t key = 1; key <= 1000; key++) {
        ASSERT_TRUE(umf_hash_put(&hash, key, value_of(key)));
    }
    EXPECT_FALSE(nth.hit());
    nth.off();
    umf_hash_fini(&hash);
}

TEST(hash, WithoutMemoryNothingChanges) {
    size_t before = umf_meta_used();
    for (fault::Nth nth("meta_alloc"); nth.next();) {
        umf_hash_t hash = {};
        uint64_t stored = 0;
        for (uint64_t key = 1; key <= 200; key++) {
            if (!umf_hash_put(&hash, key, value_of(key))) {
                ASSERT_EQ(hash.count, stored);
                ASSERT_EQ(umf_hash_get(&hash, key), nullptr);
                break;
            }
            stored = key;
        }
        ASSERT_EQ(stored == 200, !nth.hit());
        for (uint64_t key = 1; key <= stored; key++) {
            ASSERT_EQ(umf_hash_get(&hash, key), value_of(key));
        }
        umf_hash_fini(&hash);
    }
    EXPECT_EQ(umf_meta_used(), before);
    umf_hash_t hash = {};
    EXPECT_FALSE(umf_hash_reserve(&hash, SIZE_MAX));
    umf_hash_fini(&hash);
}
