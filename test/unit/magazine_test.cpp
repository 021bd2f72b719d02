#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/decay_period.h"
#include "fakes/other_thread.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "base/meta.h"
#include "cache/magazine.h"
#include "system/os.h"
}

namespace {

typedef size_t (*refill_t)(void *pool, uint32_t bin, void **objects, size_t n);
typedef void (*flush_t)(void *pool, uint32_t bin, void **objects, size_t n);
typedef bool (*look_t)(void *pool, bool is_new);

// Magazines whose pool sees objects without their states.
struct Tested : umf_magazines_t {
    umf_magazine_ops_t own_ops;
    umf_magazine_capacity_t capacities[UMF_MAGAZINE_MAX_BINS];
    void *tested;
    refill_t refill;
    flush_t flush;
    look_t look;
};

size_t refill_items(void *pool, uint32_t bin, umf_item_t *items, size_t n) {
    auto m = static_cast<Tested *>(pool);
    std::vector<void *> objects(n);
    size_t got = m->refill(m->tested, bin, objects.data(), n);
    for (size_t i = 0; i < got; i++) {
        items[i] = {objects[i], 0};
    }
    return got;
}

void flush_items(void *pool, uint32_t bin, umf_item_t *items, size_t n) {
    auto m = static_cast<Tested *>(pool);
    m->flush(m->tested, bin, nullptr, 0); // the test may free here, before the items are read
    std::vector<void *> objects(n);
    for (size_t i = 0; i < n; i++) {
        objects[i] = items[i].object;
    }
    m->flush(m->tested, bin, objects.data(), n);
}

Tested *create_magazines(void *pool, refill_t refill, flush_t flush, const uint16_t *capacity,
                         const uint16_t *contended, uint32_t bins, uint32_t depot_batches) {
    auto m = new Tested{};
    m->tested = pool;
    m->refill = refill;
    m->flush = flush;
    m->own_ops.refill = refill ? refill_items : nullptr;
    m->own_ops.flush = flush_items;
    for (uint32_t bin = 0; bin < bins; bin++) {
        m->capacities[bin].usual = capacity[bin];
        m->capacities[bin].contended = contended[bin];
        m->capacities[bin].size = 64;
    }
    if (umf_magazines_init(m, 0, m, &m->own_ops, m->capacities, bins, depot_batches) !=
        UMF_RESULT_SUCCESS) {
        delete m;
        return nullptr;
    }
    return m;
}

void destroy_magazines(Tested *m) {
    umf_magazines_fini(m);
    delete m;
}

bool look_of_test(void *pool, bool is_new) {
    auto m = static_cast<Tested *>(pool);
    return m->look(m->tested, is_new);
}

void set_look(Tested *m, look_t look) {
    m->look = look;
    m->own_ops.decay_pass = look ? look_of_test : nullptr;
}

void set_large(Tested *m, uint32_t bin, uint32_t bytes) {
    m->capacities[bin].is_large = true;
    m->capacities[bin].size = bytes;
}

size_t capacity_of(Tested *m, uint32_t bin) { // of the calling thread's stack
    const umf_magazine_t *mag = umf_magazine_of(m, bin);
    return static_cast<size_t>(mag->limit - mag->base);
}

#define NEEDS_FENCES()                                                                             \
    if (!umf_os_fence_all()) {                                                                     \
        GTEST_SKIP() << "the kernel has no membarrier: the stacks of other threads stay";          \
    }

// A pool of numbers: no number is handed out twice before it was returned.
class Magazines : public testing::Test {
  protected:
    std::mutex mutex;
    std::set<void *> out[4];
    std::vector<void *> spare[4];
    uintptr_t made = 0;
    size_t refills = 0, flushes = 0, mistakes = 0, limit = SIZE_MAX, last_asked = 0;
    std::function<void()> inside_refill, inside_flush;
    Tested *m = nullptr;
    const uint16_t capacity[4] = {8, 4, 64, 256}, contended[4] = {8, 32, 64, 256};

    void create(uint32_t depot_batches = 0) {
        m = create_magazines(this, refill, flush, capacity, contended, 4, depot_batches);
        ASSERT_NE(m, nullptr);
    }
    void TearDown() override {
        umf_os_set_fault(nullptr);
        if (m) {
            destroy_magazines(m);
        }
        EXPECT_EQ(mistakes, 0u);
    }
    static size_t refill(void *pool, uint32_t bin, void **objects, size_t n) {
        auto self = static_cast<Magazines *>(pool);
        if (self->inside_refill) {
            self->inside_refill();
        }
        std::lock_guard<std::mutex> guard(self->mutex);
        self->refills++;
        self->last_asked = n;
        size_t i = 0;
        for (; i < n && self->out[bin].size() < self->limit; i++) {
            if (self->spare[bin].empty()) {
                self->spare[bin].push_back(reinterpret_cast<void *>(++self->made * 64));
            }
            objects[i] = self->spare[bin].back();
            self->spare[bin].pop_back();
            self->mistakes += !self->out[bin].insert(objects[i]).second;
        }
        return i;
    }
    static void flush(void *pool, uint32_t bin, void **objects, size_t n) {
        auto self = static_cast<Magazines *>(pool);
        if (n == 0) {
            if (self->inside_flush) {
                self->inside_flush();
            }
            return;
        }
        std::lock_guard<std::mutex> guard(self->mutex);
        self->flushes++;
        for (size_t i = 0; i < n; i++) {
            self->mistakes += self->out[bin].erase(objects[i]) != 1;
            self->spare[bin].push_back(objects[i]);
        }
    }
};

TEST_F(Magazines, MissesMoveHalfAStack) {
    create();
    std::vector<void *> live;
    for (int i = 0; i < 9; i++) {
        live.push_back(umf_magazine_pop_stateless(m, 0));
        ASSERT_NE(live.back(), nullptr);
    }
    EXPECT_EQ(last_asked, 4u);
    EXPECT_EQ(refills, 3u);
    EXPECT_EQ(umf_magazines_live(m), 9u);
    EXPECT_EQ(umf_magazines_cached(m, 0), 3u);
    EXPECT_EQ(umf_magazines_cached(m, 1), 0u);
    EXPECT_EQ(std::set<void *>(live.begin(), live.end()).size(), 9u);
    for (void *object : live) {
        umf_magazine_push(m, 0, {object, nullptr});
    }
    EXPECT_EQ(flushes, 1u);
    EXPECT_EQ(umf_magazines_live(m), 0u);
    EXPECT_LE(umf_magazines_cached(m, 0), 8u);
}

// The provider's operation frees into the stack that is being refilled.
TEST_F(Magazines, ObjectsThatARefillFreesAreKept) {
    create();
    std::vector<void *> live;
    for (int i = 0; i < 4; i++) { // all of the first refill
        live.push_back(umf_magazine_pop_stateless(m, 0));
    }
    inside_refill = [&] {
        for (void *object : live) {
            umf_magazine_push(m, 0, {object, nullptr});
        }
        live.clear();
    };
    void *object = umf_magazine_pop_stateless(m, 0);
    EXPECT_EQ(refills, 2u);
    EXPECT_EQ(umf_magazines_live(m), 1u);
    umf_magazines_trim(m);
    EXPECT_EQ(out[0], std::set<void *>{object}) << "a freed object is neither free nor cached";
    umf_magazine_push(m, 0, {object, nullptr});
}

// The pool gives back to its provider, whose operation frees and allocates: in the stack that is
// being flushed. `leave` makes the flush.
static void push_during_a_flush(Tested *m, std::function<void()> &inside_flush,
                                const std::set<void *> &out, const std::function<void()> &leave) {
    std::vector<void *> live, more;
    for (int i = 0; i < 16; i++) {
        (i % 2 ? live : more).push_back(umf_magazine_pop_stateless(m, 0));
    }
    for (void *object : live) { // fills the stack
        umf_magazine_push(m, 0, {object, nullptr});
    }
    bool is_inside = false;
    inside_flush = [&] {
        if (is_inside) {
            return;
        }
        is_inside = true;
        for (void *object : more) {
            umf_magazine_push(m, 0, {object, nullptr});
        }
        void *object = umf_magazine_pop_stateless(m, 0);
        umf_magazine_push(m, 0, {object, nullptr});
    };
    leave();
    inside_flush = nullptr;
    umf_magazines_trim(m);
    EXPECT_TRUE(out.empty()) << out.size() << " freed objects are neither free nor cached";
}

TEST_F(Magazines, ObjectsThatAFlushOfHalfFreesAreKept) {
    create();
    void *others[4]; // all of a refill
    for (void *&object : others) {
        object = umf_magazine_pop_stateless(m, 0);
    }
    push_during_a_flush(m, inside_flush, out[0], [&] {
        for (void *object : others) {
            umf_magazine_push(m, 0, {object, nullptr});
        }
    });
}

TEST_F(Magazines, ObjectsThatAFlushOfAllFreesAreKept) {
    create();
    push_during_a_flush(m, inside_flush, out[0], [&] { umf_magazines_flush(m); });
}

// --- the bound of what threads cache

TEST_F(Magazines, StacksOfAllThreadsShareOneBound) {
    create(2);
    const size_t object = 64, bound = (8 + 4 + 16) * object;
    m->bytes_max = bound;
    auto use = [&](uint32_t bin) {
        umf_magazine_push(m, bin, {umf_magazine_pop_stateless(m, bin), nullptr});
    };
    use(0);
    EXPECT_EQ(umf_magazines_bytes(m), 8 * object);
    use(1);
    EXPECT_EQ(umf_magazines_bytes(m), (8 + 4) * object);
    use(2); // would have 64
    EXPECT_EQ(capacity_of(m, 2), 16u) << "the largest half of halves that fits";
    EXPECT_EQ(umf_magazines_bytes(m), bound);
    OtherThread other;
    other([&] {
        use(0); // without a stack
        EXPECT_EQ(umf_magazines_bytes(m), bound);
        EXPECT_EQ(umf_magazines_cached(m, 3), 0u);
        use(3);
    });
    EXPECT_EQ(umf_magazines_bytes(m), bound);
    EXPECT_EQ(umf_magazines_live(m), 0u);
}

TEST_F(Magazines, AStackAtTheBoundDoesNotGrow) {
    create();
    m->bytes_max = 6 * 64;
    std::vector<void *> live(64);
    for (int round = 0; round < 10; round++) {
        for (void *&ptr : live) {
            ptr = umf_magazine_pop_stateless(m, 1);
        }
        umf_magazine_of(m, 1)->user.is_contended = true;
        for (void *ptr : live) {
            umf_magazine_push(m, 1, {ptr, nullptr});
        }
    }
    EXPECT_EQ(capacity_of(m, 1), 4u);
    m->bytes_max = SIZE_MAX;
    umf_magazine_of(m, 1)->user.is_contended = true;
    for (void *&ptr : live) {
        ptr = umf_magazine_pop_stateless(m, 1);
    }
    EXPECT_GT(capacity_of(m, 1), 4u);
    for (void *ptr : live) {
        umf_magazine_push(m, 1, {ptr, nullptr});
    }
}

TEST_F(Magazines, NoStacksAtAll) {
    create(2);
    m->bytes_max = 0;
    std::vector<void *> live(100);
    for (void *&ptr : live) {
        ptr = umf_magazine_pop_stateless(m, 2);
        ASSERT_NE(ptr, nullptr);
    }
    for (void *ptr : live) {
        umf_magazine_push(m, 2, {ptr, nullptr});
    }
    EXPECT_EQ(umf_magazines_bytes(m), 0u);
    EXPECT_EQ(umf_magazines_live(m), 0u);
}

TEST_F(Magazines, ThreadsThatEndOrStopGiveUpTheirShareOfTheBound) {
    NEEDS_FENCES();
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create();
    auto use = [&](uint32_t bin) {
        umf_magazine_push(m, bin, {umf_magazine_pop_stateless(m, bin), nullptr});
    };
    std::thread([&] { use(0); }).join();
    EXPECT_EQ(umf_magazines_bytes(m), 0u) << "it has ended";
    OtherThread other;
    other([&] { use(0); });
    EXPECT_EQ(umf_magazines_bytes(m), 8 * 64u);
    umf_magazines_decay_now(m);
    umf_magazines_decay_now(m);
    EXPECT_EQ(umf_magazines_bytes(m), 0u) << "it had no miss";
    use(0);
    use(1);
    for (int i = 0; i < 3; i++) { // found unused and emptied, found empty, freed
        umf_magazines_decay_now(m);
        void *some[8];
        for (void *&ptr : some) { // misses
            ptr = umf_magazine_pop_stateless(m, 0);
        }
        for (void *ptr : some) {
            umf_magazine_push(m, 0, {ptr, nullptr});
        }
    }
    EXPECT_EQ(umf_magazines_bytes(m), 8 * 64u) << "the stack of the other size is empty for long";
    umf_magazines_trim(m);
}

TEST_F(Magazines, ThreadsNeverExceedTheBound) {
    create(2);
    const size_t bound = 20 * 64;
    m->bytes_max = bound;
    run_threads<uint32_t>(4, [&](uint32_t number) {
        for (uint32_t i = 0; i < 2000; i++) {
            const uint32_t bin = (i + number) % 4;
            void *a = umf_magazine_pop_stateless(m, bin), *b = umf_magazine_pop_stateless(m, bin);
            umf_magazine_push(m, bin, {a, nullptr});
            umf_magazine_push(m, bin, {b, nullptr});
            EXPECT_LE(umf_magazines_bytes(m), bound);
        }
    });
    EXPECT_EQ(umf_magazines_bytes(m), 0u);
}

TEST_F(Magazines, LastInFirstOut) {
    create();
    void *a = umf_magazine_pop_stateless(m, 2), *b = umf_magazine_pop_stateless(m, 2);
    umf_magazine_push(m, 2, {a, nullptr});
    umf_magazine_push(m, 2, {b, nullptr});
    EXPECT_EQ(umf_magazine_pop_stateless(m, 2), b);
    EXPECT_EQ(umf_magazine_pop_stateless(m, 2), a);
    EXPECT_EQ(refills, 1u);
    umf_magazine_push(m, 2, {a, nullptr});
    umf_magazine_push(m, 2, {b, nullptr});
}

TEST_F(Magazines, TheOlderHalfGoesFirst) {
    create();
    std::vector<void *> live;
    for (int i = 0; i < 12; i++) {
        live.push_back(umf_magazine_pop_stateless(m, 0));
    }
    umf_magazines_flush(m);
    for (size_t i = 0; i < 9; i++) {
        umf_magazine_push(m, 0, {live[i], nullptr});
    }
    EXPECT_EQ(out[0].count(live[0]), 0u) << "back in the pool";
    EXPECT_EQ(out[0].count(live[8]), 1u) << "kept";
    for (size_t i = 9; i < 12; i++) {
        umf_magazine_push(m, 0, {live[i], nullptr});
    }
}

TEST_F(Magazines, FlushGivesEverythingBack) {
    create();
    for (uint32_t bin = 0; bin < 3; bin++) {
        umf_magazine_push(m, bin, {umf_magazine_pop_stateless(m, bin), nullptr});
    }
    EXPECT_FALSE(out[0].empty());
    umf_magazines_flush(m);
    EXPECT_TRUE(out[0].empty() && out[1].empty() && out[2].empty());
    EXPECT_EQ(umf_magazines_cached(m, 0), 0u);
}

TEST_F(Magazines, AThreadsEndGivesItsStacksBack) {
    create();
    void *kept = nullptr;
    std::thread([&] {
        kept = umf_magazine_pop_stateless(m, 0);
        umf_magazine_push(m, 0, {umf_magazine_pop_stateless(m, 0), nullptr});
        umf_magazine_push(m, 1, {umf_magazine_pop_stateless(m, 1), nullptr});
    }).join();
    EXPECT_EQ(out[0].size(), 1u);
    EXPECT_TRUE(out[1].empty());
    EXPECT_EQ(umf_magazines_live(m), 1u);
    umf_magazine_push(m, 0, {kept, nullptr});
}

/* Each thread counts for itself what it got from the pool and gave back. */
TEST_F(Magazines, LiveIsWhatAllThreadsHave) {
    create();
    std::vector<void *> objects;
    std::promise<void> popped, counted;
    std::thread other([&] {
        for (int i = 0; i < 100; i++) {
            objects.push_back(umf_magazine_pop_stateless(m, 0));
        }
        popped.set_value();
        counted.get_future().wait();
    });
    popped.get_future().wait();
    EXPECT_EQ(umf_magazines_live(m), 100u);
    for (; objects.size() > 30; objects.pop_back()) {
        umf_magazine_push(m, 0, {objects.back(), nullptr});
    }
    EXPECT_EQ(umf_magazines_live(m), 30u);
    counted.set_value();
    other.join();
    EXPECT_EQ(umf_magazines_live(m), 30u) << "the thread has ended";
    for (void *object : objects) {
        umf_magazine_push(m, 0, {object, nullptr});
    }
    EXPECT_EQ(umf_magazines_live(m), 0u);
}

TEST_F(Magazines, ATrimTakesTheStacksOfOtherThreads) {
    NEEDS_FENCES();
    create();
    OtherThread other;
    void *kept = nullptr;
    other([&] {
        kept = umf_magazine_pop_stateless(m, 0);
        umf_magazine_push(m, 1, {umf_magazine_pop_stateless(m, 1), nullptr});
    });
    EXPECT_EQ(umf_magazines_cached(m, 0), 3u);
    umf_magazines_trim(m);
    EXPECT_EQ(umf_magazines_cached(m, 0), 0u);
    EXPECT_TRUE(out[1].empty());
    EXPECT_EQ(umf_magazines_live(m), 1u);
    other([&] {
        umf_magazine_push(m, 0, {kept, nullptr});
        umf_magazine_push(m, 1, {umf_magazine_pop_stateless(m, 1), nullptr});
    });
    EXPECT_EQ(umf_magazines_live(m), 0u);
    EXPECT_EQ(umf_magazines_cached(m, 0), 1u) << "it has a stack again";
}

// Its caller can try again soon.
TEST_F(Magazines, ATrimTellsWhatIsInUse) {
    NEEDS_FENCES();
    create();
    auto beside = [this](const std::function<void()> &flushes_once) {
        std::atomic<bool> is_inside{false}, may_go{false};
        inside_flush = [&] {
            for (bool is_first = !is_inside.exchange(true); is_first && !may_go;) {
                std::this_thread::yield();
            }
        };
        std::thread other(flushes_once);
        while (!is_inside) {
            std::this_thread::yield();
        }
        EXPECT_FALSE(umf_magazines_trim(m));
        may_go = true;
        other.join();
        inside_flush = nullptr;
        EXPECT_TRUE(umf_magazines_trim(m));
        EXPECT_TRUE(out[0].empty());
    };
    beside([this] {
        umf_magazine_push(m, 0, {umf_magazine_pop_stateless(m, 0), nullptr});
        umf_magazines_flush(m); // its own stacks
    });
    beside([this] { // at its end
        umf_magazine_push(m, 0, {umf_magazine_pop_stateless(m, 0), nullptr});
    });
    std::promise<void> kept, trimmed;
    std::thread owner([&] {
        umf_magazine_push(m, 0, {umf_magazine_pop_stateless(m, 0), nullptr});
        kept.set_value();
        trimmed.get_future().wait();
    });
    kept.get_future().wait();
    beside([this] { umf_magazines_trim(m); }); // those of another thread
    trimmed.set_value();
    owner.join();
}

// A thread that trims meets threads between any two of their instructions.
TEST_F(Magazines, TrimsBesideThreadsThatHit) {
    create(3);
    std::atomic<int> running{4};
    run_threads<unsigned>(5, [&](unsigned t) {
        while (t == 4 && running) {
            umf_magazines_trim(m);
        }
        std::mt19937 random(t);
        std::vector<void *> live;
        for (size_t i = 0; t < 4 && i < scaled(400000); i++) {
            if (live.size() < 6 && (live.empty() || random() % 2)) {
                live.push_back(umf_magazine_pop_stateless(m, t % 2));
            } else {
                umf_magazine_push(m, t % 2, {live.back(), nullptr});
                live.pop_back();
            }
        }
        for (void *object : live) {
            umf_magazine_push(m, t % 2, {object, nullptr});
        }
        running -= t < 4;
    });
    EXPECT_EQ(umf_magazines_live(m), 0u);
    umf_magazines_trim(m);
    EXPECT_TRUE(out[0].empty());
    EXPECT_TRUE(out[1].empty());
}

// The kernel may refuse the call that reaches other threads.
TEST_F(Magazines, WithoutFencesATrimReachesOtherThreadsAtTheirNextMiss) {
    umf_os_set_fault([](const char *call) { return strcmp(call, "membarrier") == 0 ? ENOSYS : 0; });
    create();
    std::atomic<int> step{0};
    size_t after_miss = 0;
    std::thread other([&] {
        void *p = umf_magazine_pop_stateless(m, 0);
        umf_magazine_push(m, 0, {p, nullptr});
        umf_magazine_push(m, 1, {umf_magazine_pop_stateless(m, 1), nullptr});
        step = 1;
        while (step != 2) {
            std::this_thread::yield();
        }
        std::vector<void *> live;
        for (int i = 0; i < 5; i++) { // one more than it holds: a miss
            live.push_back(umf_magazine_pop_stateless(m, 0));
        }
        after_miss = flushes;
        for (void *q : live) {
            umf_magazine_push(m, 0, {q, nullptr});
        }
        step = 3;
        while (step != 4) {
            std::this_thread::yield();
        }
    });
    while (step != 1) {
        std::this_thread::yield();
    }
    umf_magazines_trim(m);
    EXPECT_EQ(umf_magazines_cached(m, 0), 4u) << "not ours to touch";
    EXPECT_FALSE(out[1].empty());
    size_t before = flushes;
    step = 2;
    while (step != 3) {
        std::this_thread::yield();
    }
    EXPECT_GT(after_miss, before);
    EXPECT_TRUE(out[1].empty()) << "also what it had of other sizes";
    step = 4;
    other.join();
    EXPECT_TRUE(out[0].empty());
}

TEST_F(Magazines, AStackThatGrewIsGivenBackAsAWhole) {
    size_t used = 0;
    for (int round = 0; round < 10; round++) {
        create(2);
        for (int i = 0; i < 6; i++) {
            std::vector<void *> live;
            for (int k = 0; k < 250; k++) {
                live.push_back(umf_magazine_pop_stateless(m, 3));
            }
            for (void *object : live) {
                umf_magazine_push(m, 3, {object, nullptr});
            }
        }
        EXPECT_EQ(capacity_of(m, 3), 256u);
        destroy_magazines(m);
        m = nullptr;
        out[3].clear();
        used = used ? used : umf_meta_used();
    }
    EXPECT_EQ(umf_meta_used(), used);
}

// Bin 3 may hold 256; a stack begins with 128.
TEST_F(Magazines, AStackThatIsFilledAndEmptiedInTurnGrows) {
    create();
    for (int round = 0; round < 6; round++) {
        std::vector<void *> live;
        for (int i = 0; i < 250; i++) {
            live.push_back(umf_magazine_pop_stateless(m, 3));
        }
        EXPECT_EQ(std::set<void *>(live.begin(), live.end()).size(), 250u);
        for (void *object : live) {
            umf_magazine_push(m, 3, {object, nullptr});
        }
        EXPECT_EQ(umf_magazines_live(m), 0u);
    }
    EXPECT_GE(umf_magazines_cached(m, 3), 250u) << "all of a round stays";
    size_t before = refills + flushes;
    std::vector<void *> live;
    for (int i = 0; i < 250; i++) {
        live.push_back(umf_magazine_pop_stateless(m, 3));
    }
    for (void *object : live) {
        umf_magazine_push(m, 3, {object, nullptr});
    }
    EXPECT_EQ(refills + flushes, before);
}

TEST_F(Magazines, AStackThatIsOnlyFilledStaysSmall) {
    create();
    for (int round = 0; round < 4; round++) {
        std::vector<void *> live(250);
        std::thread([&] {
            for (void *&object : live) {
                object = umf_magazine_pop_stateless(m, 3);
            }
        }).join();
        for (void *object : live) {
            umf_magazine_push(m, 3, {object, nullptr});
        }
    }
    EXPECT_LE(umf_magazines_cached(m, 3), 128u);
}

// Where threads wait for each other they exchange more at a time.
TEST_F(Magazines, AStackGrowsFurtherWhereThreadsMeet) {
    create(2);
    umf_magazine_push(m, 1, {umf_magazine_pop_stateless(m, 1), nullptr});
    EXPECT_EQ(capacity_of(m, 1), 4u);
    std::vector<void *> live;
    auto turn = [&] {
        for (int i = 0; i < 100; i++) {
            live.push_back(umf_magazine_pop_stateless(m, 1));
        }
        for (; !live.empty(); live.pop_back()) {
            umf_magazine_push(m, 1, {live.back(), nullptr});
        }
    };
    turn();
    EXPECT_EQ(capacity_of(m, 1), 4u) << "alone";
    for (size_t wanted : {8, 16, 32, 32}) {
        umf_magazine_of(m, 1)->user.is_contended = true;
        turn();
        EXPECT_EQ(capacity_of(m, 1), wanted);
    }
    turn();
    EXPECT_EQ(capacity_of(m, 1), 32u);
    umf_magazines_trim(m);
    EXPECT_EQ(umf_magazines_live(m), 0u);
}

TEST_F(Magazines, WhatLiesUnusedInADepotGoesBackToThePool) {
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create(8);
    std::vector<void *> live(2000);
    for (void *&object : live) {
        object = umf_magazine_pop_stateless(m, 2);
    }
    for (void *object : live) {
        umf_magazine_push(m, 2, {object, nullptr});
    }
    size_t full = umf_magazines_cached(m, 2);
    EXPECT_GE(full, 8u * 32);
    umf_magazines_decay_now(m);
    EXPECT_EQ(umf_magazines_cached(m, 2), full) << "it has just come";
    // A small need of two threads: the depot passes it on, and most of it is never touched.
    OtherThread other;
    for (int round = 0; round < 20; round++) {
        std::vector<void *> some(40);
        other([&] {
            for (void *&object : some) {
                object = umf_magazine_pop_stateless(m, 2);
            }
        });
        for (void *object : some) {
            umf_magazine_push(m, 2, {object, nullptr});
        }
    }
    EXPECT_GE(umf_magazines_cached(m, 2), full - 64);
    umf_magazines_decay_now(m);
    EXPECT_LE(umf_magazines_cached(m, 2), 2 * 64u + 40) << "two stacks, and the requested objects";
    EXPECT_GE(umf_magazines_cached(m, 2), 40u);
    EXPECT_EQ(umf_magazines_live(m), 0u);
}

// So that no caller waits long.
TEST_F(Magazines, LargeObjectsGoBackInPortions) {
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create(8);
    set_large(m, 1, 2 << 20);
    std::vector<void *> live(28);
    for (void *&object : live) {
        object = umf_magazine_pop_stateless(m, 1);
    }
    for (void *object : live) {
        umf_magazine_push(m, 1, {object, nullptr});
    }
    EXPECT_EQ(umf_magazines_cached(m, 1), 28u);
    umf_magazines_decay_now(m);
    EXPECT_EQ(umf_magazines_cached(m, 1), 28u) << "they have just come";
    for (size_t left = 28 - 4; left > 0;) {
        left -= 4;
        umf_magazines_decay_now(m);
        EXPECT_EQ(umf_magazines_cached(m, 1), left) << "8 MiB at a time, and a stack at first";
    }
}

TEST_F(Magazines, AfterAPortionTheLookGoesOn) {
    static std::vector<bool> looks;
    DecayPeriod endless(DecayPeriod::ENDLESS);
    looks.clear();
    create(8);
    set_large(m, 1, 2 << 20);
    set_look(m, [](void *, bool is_new) {
        looks.push_back(is_new);
        return false;
    });
    std::vector<void *> live(16);
    for (void *&object : live) {
        object = umf_magazine_pop_stateless(m, 1);
    }
    for (void *object : live) {
        umf_magazine_push(m, 1, {object, nullptr});
    }
    for (int i = 0; i < 6; i++) {
        umf_magazines_decay_now(m);
    }
    EXPECT_EQ(umf_magazines_cached(m, 1), 0u);
    EXPECT_EQ(looks, (std::vector<bool>{true, true, false, false, false, true}))
        << "12 idle ones in portions of 4, and then nothing";
}

TEST_F(Magazines, WhatThreadsDoNotUseGoesBackToThePool) {
    NEEDS_FENCES();
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create();
    OtherThread other;
    auto use = [&](uint32_t bin) {
        umf_magazine_push(m, bin, {umf_magazine_pop_stateless(m, bin), nullptr});
    };
    other([&] { use(0); });
    use(1);
    use(3);
    const size_t of_other = umf_magazines_cached(m, 0), unused = umf_magazines_cached(m, 1);
    umf_magazines_decay_now(m);
    EXPECT_EQ(umf_magazines_cached(m, 0), of_other) << "it has just come";
    EXPECT_EQ(umf_magazines_cached(m, 1), unused);
    umf_magazine_push(
        m, 3, {umf_magazine_pop_stateless(m, 3), 0}); // a hit, after which the stack is as before
    void *one = umf_magazine_pop_stateless(m, 3);
    umf_magazines_decay_now(m);
    EXPECT_EQ(umf_magazines_cached(m, 0), 0u) << "the thread had no miss";
    EXPECT_EQ(umf_magazines_cached(m, 1), 0u);
    EXPECT_GT(umf_magazines_cached(m, 3), 0u) << "it is in use";
    umf_magazine_push(m, 3, {one, nullptr});
    other([&] { use(0); });
    EXPECT_EQ(umf_magazines_live(m), 0u);
}

TEST_F(Magazines, ALookKeepsErrno) {
    DecayPeriod none(DecayPeriod::NONE);
    create(2);
    set_look(m, [](void *, bool) {
        errno = ENOMEM;
        return false;
    });
    std::vector<void *> live(20);
    errno = 4711;
    for (void *&object : live) {
        object = umf_magazine_pop_stateless(m, 0);
    }
    for (void *object : live) {
        umf_magazine_push(m, 0, {object, nullptr});
    }
    umf_magazines_decay_now(m);
    EXPECT_EQ(errno, 4711);
}

TEST_F(Magazines, LargeObjectsMakeRoomForOtherSizes) {
    constexpr uint32_t NONE = UINT32_MAX;
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create(8);
    set_large(m, 2, 1 << 20);
    set_large(m, 3, 1 << 20);
    for (uint32_t bin : {1u, 2u, 3u}) {
        std::vector<void *> live(600);
        for (void *&object : live) {
            object = umf_magazine_pop_stateless(m, bin);
        }
        for (void *object : live) {
            umf_magazine_push(m, bin, {object, nullptr});
        }
    }
    size_t small = umf_magazines_cached(m, 1), all = umf_magazines_cached(m, 2),
           others = umf_magazines_cached(m, 3);
    ASSERT_GT(all, 64u) << "some wait between threads";
    EXPECT_FALSE(umf_magazines_release_large(m, NONE, size_t{1200} << 20)) << "it is less";
    EXPECT_TRUE(umf_magazines_release_large(m, 3, 64 << 20));
    EXPECT_GE(umf_magazines_cached(m, 2) + 96 + 64, all) << "half more than 64 MiB, and a stack";
    while (umf_magazines_release_large(m, 3, 64 << 20)) {
    }
    EXPECT_LT(umf_magazines_cached(m, 2), 64u);
    umf_magazines_release_large(m, 3, 0);
    EXPECT_EQ(umf_magazines_cached(m, 2), 0u);
    EXPECT_EQ(umf_magazines_cached(m, 3), others) << "they have the requested size";
    EXPECT_FALSE(umf_magazines_release_large(m, 3, 0)) << "nothing else is left";
    EXPECT_TRUE(umf_magazines_release_large(m, NONE, 0));
    EXPECT_EQ(umf_magazines_cached(m, 3), 0u);
    EXPECT_EQ(umf_magazines_cached(m, 1), small);
    EXPECT_EQ(umf_magazines_live(m), 0u);
}

// Every miss checks whether a pass is due; a scan continues where the last one stopped.
TEST_F(Magazines, MissesLookFromTimeToTime) {
    static std::vector<bool> looks;
    static bool is_more;
    DecayPeriod none(DecayPeriod::NONE);
    looks.clear();
    is_more = false;
    create(2);
    set_look(m, [](void *, bool is_new) {
        looks.push_back(is_new);
        return is_more;
    });
    std::vector<void *> live{umf_magazine_pop_stateless(m, 0)};
    EXPECT_TRUE(looks.empty()) << "nothing can be old";
    for (int i = 0; i < 3; i++) {
        live.push_back(umf_magazine_pop_stateless(m, 0));
    }
    EXPECT_TRUE(looks.empty()) << "no miss";
    is_more = true;
    live.push_back(umf_magazine_pop_stateless(m, 0));
    EXPECT_EQ(looks, std::vector<bool>{true});
    is_more = false;
    for (int i = 0; i < 4; i++) {
        live.push_back(umf_magazine_pop_stateless(m, 0));
    }
    EXPECT_EQ(looks, (std::vector<bool>{true, false}));
    for (int i = 0; i < 4; i++) {
        live.push_back(umf_magazine_pop_stateless(m, 0));
    }
    EXPECT_EQ(looks, (std::vector<bool>{true, false, true}));
    for (void *object : live) {
        umf_magazine_push(m, 0, {object, nullptr});
    }
    EXPECT_GT(looks.size(), 3u) << "so does a stack that is full";
    for (int i = 0; i < 100; i++) {
        umf_magazine_push(m, 0, {umf_magazine_pop_stateless(m, 0), nullptr});
    }
    size_t before = looks.size();
    for (int i = 0; i < 100; i++) {
        umf_magazine_push(m, 0, {umf_magazine_pop_stateless(m, 0), nullptr});
    }
    EXPECT_EQ(looks.size(), before) << "hits do not";
}

TEST_F(Magazines, ALookEveryTwoSeconds) {
    static size_t looks;
    looks = 0;
    create();
    set_look(m, [](void *, bool) {
        looks++;
        return false;
    });
    EXPECT_EQ(umf_decay_period, 2000000000u);
    DecayPeriod endless(DecayPeriod::ENDLESS);
    std::vector<void *> live(1000);
    for (void *&object : live) {
        object = umf_magazine_pop_stateless(m, 0);
    }
    for (void *object : live) {
        umf_magazine_push(m, 0, {object, nullptr});
    }
    EXPECT_EQ(looks, 0u);
}

TEST_F(Magazines, ADepotPassesBatchesBetweenThreads) {
    create(2);
    std::vector<void *> live;
    for (int i = 0; i < 12; i++) {
        live.push_back(umf_magazine_pop_stateless(m, 0));
    }
    std::thread([&] {
        for (void *object : live) {
            umf_magazine_push(m, 0,
                              {object, 0}); // 12 into a stack of 8: a batch of 4 goes to the depot
        }
        EXPECT_EQ(flushes, 0u);
        for (int i = 0; i < 4; i++) {
            umf_magazine_pop_stateless(m, 0);
        }
    }).join();
    size_t before = refills;
    for (int i = 0; i < 8; i++) {
        EXPECT_NE(umf_magazine_pop_stateless(m, 0), nullptr);
    }
    EXPECT_EQ(refills, before) << "the depot served";
    umf_magazines_flush(m);
    EXPECT_EQ(umf_magazines_cached(m, 0), 0u);
}

// The room of one depot for this bin is 64 objects. All that waits in several is found again.
TEST_F(Magazines, EachThreadHasADepot) {
    if (std::thread::hardware_concurrency() < 2) {
        GTEST_SKIP() << "one CPU: a bin has one depot";
    }
    create(1);
    constexpr size_t THREADS = 2, EACH = 60;
    std::vector<void *> objects(THREADS * EACH);
    for (void *&object : objects) {
        object = umf_magazine_pop_stateless(m, 0);
    }
    const size_t before = refills;
    std::vector<std::unique_ptr<OtherThread>> others;
    for (size_t t = 0; t < THREADS; t++) {
        others.push_back(std::make_unique<OtherThread>());
        (*others[t])([&] {
            for (size_t i = 0; i < EACH; i++) {
                umf_magazine_push(m, 0, {objects[t * EACH + i], nullptr});
            }
        });
    }
    others.clear();
    EXPECT_EQ(flushes, 0u) << "one depot would not hold them";
    EXPECT_EQ(umf_magazines_live(m), 0u);
    for (void *&object : objects) {
        object = umf_magazine_pop_stateless(m, 0);
    }
    EXPECT_EQ(refills, before) << "the depots served";
    for (void *object : objects) {
        umf_magazine_push(m, 0, {object, nullptr});
    }
    umf_magazines_flush(m);
    EXPECT_EQ(umf_magazines_cached(m, 0), 0u);
    EXPECT_TRUE(out[0].empty());
}

// Else each would leave its objects in a depot that no thread after it has.
TEST_F(Magazines, AThreadHasTheDepotOfTheOneThatEnded) {
    create(2);
    size_t before = 0;
    for (size_t round = 0; round < 20; round++) {
        std::thread([&] {
            std::vector<void *> own;
            for (size_t i = 0; i < 40; i++) {
                own.push_back(umf_magazine_pop_stateless(m, 0));
            }
            for (void *object : own) {
                umf_magazine_push(m, 0, {object, nullptr});
            }
        }).join();
        before = round == 0 ? refills : before;
    }
    EXPECT_EQ(refills, before);
    umf_magazines_flush(m);
    EXPECT_EQ(umf_magazines_cached(m, 0), 0u);
}

TEST_F(Magazines, NoMemoryInThePool) {
    create();
    limit = 2;
    EXPECT_NE(umf_magazine_pop_stateless(m, 0), nullptr);
    EXPECT_NE(umf_magazine_pop_stateless(m, 0), nullptr);
    EXPECT_EQ(umf_magazine_pop_stateless(m, 0), nullptr);
    EXPECT_EQ(umf_magazines_live(m), 2u);
}

// Also a thread that has given many.
TEST_F(Magazines, WithoutMemoryOthersDepotsServe) {
    create(8);
    limit = 100;
    std::vector<void *> objects(limit);
    for (void *&object : objects) {
        object = umf_magazine_pop_stateless(m, 0);
    }
    constexpr size_t GIVEN = 60;
    for (size_t i = 0; i < GIVEN; i++) {
        umf_magazine_push(m, 0, {objects[i], nullptr});
    }
    const size_t own = 8; // its stack
    std::thread([&] {
        for (size_t i = 0; i < GIVEN - own; i++) {
            objects[i] = umf_magazine_pop_stateless(m, 0);
        }
        for (size_t i = 0; i < GIVEN - own; i++) {
            umf_magazine_push(m, 0, {objects[i], nullptr});
        }
    }).join();
    for (size_t i = 0; i < GIVEN; i++) {
        EXPECT_NE(umf_magazine_pop_stateless(m, 0), nullptr) << i;
    }
    EXPECT_EQ(umf_magazine_pop_stateless(m, 0), nullptr);
}

TEST_F(Magazines, NoMemoryForStacks) {
    create();
    umf_os_set_fault([](const char *) { return 12; });
    std::thread([&] {
        void *p = umf_magazine_pop_stateless(m, 0);
        EXPECT_NE(p, nullptr) << "served without a stack";
        EXPECT_EQ(last_asked, 1u);
        umf_magazine_push(m, 0, {p, nullptr});
    }).join();
    umf_os_set_fault(nullptr);
    EXPECT_TRUE(out[0].empty());
    EXPECT_EQ(umf_magazines_live(m), 0u);
}

TEST_F(Magazines, NothingIsLeft) {
    create();
    umf_magazine_push(m, 0, {umf_magazine_pop_stateless(m, 0), nullptr});
    destroy_magazines(m);
    out[0].clear();
    size_t used = umf_meta_used();
    for (int i = 0; i < 10; i++) {
        create(4);
        for (uint32_t bin = 0; bin < 3; bin++) {
            std::vector<void *> live;
            for (int k = 0; k < 100; k++) {
                live.push_back(umf_magazine_pop_stateless(m, bin));
            }
            for (void *p : live) {
                umf_magazine_push(m, bin, {p, nullptr});
            }
        }
        destroy_magazines(m);
        m = nullptr;
        for (auto &set : out) {
            set.clear();
        }
        EXPECT_EQ(umf_meta_used(), used);
    }
}

TEST_F(Magazines, ManyThreads) {
    create(3);
    std::atomic<void *> shared[16] = {};
    run_threads<unsigned>(6, [&](unsigned t) {
        std::mt19937 random(t);
        for (size_t i = 0; i < scaled(20000); i++) {
            void *object = random() % 3 ? umf_magazine_pop_stateless(m, 0) : nullptr;
            object = shared[random() % 16].exchange(object);
            if (object) {
                umf_magazine_push(m, 0, {object, nullptr});
            }
        }
    });
    size_t left = 0;
    for (auto &object : shared) {
        left += object != nullptr;
    }
    EXPECT_EQ(umf_magazines_live(m), left);
    for (auto &object : shared) {
        if (object) {
            umf_magazine_push(m, 0, {object, nullptr});
        }
    }
    umf_magazines_flush(m);
    EXPECT_TRUE(out[0].empty());
    EXPECT_EQ(umf_magazines_live(m), 0u);
}

TEST(Magic, TellsMultiples) {
    std::mt19937_64 random(3);
    for (size_t size : {8, 16, 24, 48, 64, 96, 768, 1536, 4096, 24576, 32768, 49152}) {
        uint64_t magic = umf_magic(size);
        for (uint64_t n = 0; n < 3 * size; n++) {
            ASSERT_EQ(umf_magic_divides(magic, n) != 0, n % size == 0) << n << " by " << size;
        }
        for (int i = 0; i < 2000; i++) {
            uint64_t n = random() >> 33;
            ASSERT_EQ(umf_magic_divides(magic, n) != 0, n % size == 0) << n << " by " << size;
            ASSERT_TRUE(umf_magic_divides(magic, n / size * size));
        }
    }
}

} // namespace
