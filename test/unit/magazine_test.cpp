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
#include "magazine_shim.h"

extern "C" {
#include "base/meta.h"
#include "system/os.h"
}

namespace {

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
    shim_magazines_t *m = nullptr;
    const uint16_t capacity[4] = {8, 4, 64, 256}, contended[4] = {8, 32, 64, 256};

    void create(uint32_t depot_batches = 0) {
        m = shim_magazines_create(this, refill, flush, capacity, contended, 4, depot_batches);
        ASSERT_NE(m, nullptr);
    }
    void TearDown() override {
        umf_os_set_fault(nullptr);
        if (m) {
            shim_magazines_destroy(m);
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
        live.push_back(shim_pop(m, 0));
        ASSERT_NE(live.back(), nullptr);
    }
    EXPECT_EQ(last_asked, 4u);
    EXPECT_EQ(refills, 3u);
    EXPECT_EQ(shim_live(m), 9u);
    EXPECT_EQ(shim_cached(m, 0), 3u);
    EXPECT_EQ(shim_cached(m, 1), 0u);
    EXPECT_EQ(std::set<void *>(live.begin(), live.end()).size(), 9u);
    for (void *object : live) {
        shim_push(m, 0, object);
    }
    EXPECT_EQ(flushes, 1u);
    EXPECT_EQ(shim_live(m), 0u);
    EXPECT_LE(shim_cached(m, 0), 8u);
}

// The provider's operation frees into the stack that is being refilled.
TEST_F(Magazines, ObjectsThatARefillFreesAreKept) {
    create();
    std::vector<void *> live;
    for (int i = 0; i < 4; i++) { // all of the first refill
        live.push_back(shim_pop(m, 0));
    }
    inside_refill = [&] {
        for (void *object : live) {
            shim_push(m, 0, object);
        }
        live.clear();
    };
    void *object = shim_pop(m, 0);
    EXPECT_EQ(refills, 2u);
    EXPECT_EQ(shim_live(m), 1u);
    shim_trim(m);
    EXPECT_EQ(out[0], std::set<void *>{object}) << "a freed object is neither free nor cached";
    shim_push(m, 0, object);
}

// The pool gives back to its provider, whose operation frees and allocates: in the stack that is
// being flushed. `leave` makes the flush.
static void push_during_a_flush(shim_magazines_t *m, std::function<void()> &inside_flush,
                                const std::set<void *> &out, const std::function<void()> &leave) {
    std::vector<void *> live, more;
    for (int i = 0; i < 16; i++) {
        (i % 2 ? live : more).push_back(shim_pop(m, 0));
    }
    for (void *object : live) { // fills the stack
        shim_push(m, 0, object);
    }
    bool is_inside = false;
    inside_flush = [&] {
        if (is_inside) {
            return;
        }
        is_inside = true;
        for (void *object : more) {
            shim_push(m, 0, object);
        }
        void *object = shim_pop(m, 0);
        shim_push(m, 0, object);
    };
    leave();
    inside_flush = nullptr;
    shim_trim(m);
    EXPECT_TRUE(out.empty()) << out.size() << " freed objects are neither free nor cached";
}

TEST_F(Magazines, ObjectsThatAFlushOfHalfFreesAreKept) {
    create();
    void *others[4]; // all of a refill
    for (void *&object : others) {
        object = shim_pop(m, 0);
    }
    push_during_a_flush(m, inside_flush, out[0], [&] {
        for (void *object : others) {
            shim_push(m, 0, object);
        }
    });
}

TEST_F(Magazines, ObjectsThatAFlushOfAllFreesAreKept) {
    create();
    push_during_a_flush(m, inside_flush, out[0], [&] { shim_flush(m); });
}

// --- the bound of what threads cache

TEST_F(Magazines, StacksOfAllThreadsShareOneBound) {
    create(2);
    const size_t object = 64, bound = (8 + 4 + 16) * object;
    shim_set_bytes_max(m, bound);
    auto use = [&](uint32_t bin) { shim_push(m, bin, shim_pop(m, bin)); };
    use(0);
    EXPECT_EQ(shim_bytes(m), 8 * object);
    use(1);
    EXPECT_EQ(shim_bytes(m), (8 + 4) * object);
    use(2); // would have 64
    EXPECT_EQ(shim_capacity(m, 2), 16u) << "the largest half of halves that fits";
    EXPECT_EQ(shim_bytes(m), bound);
    OtherThread other;
    other([&] {
        use(0); // without a stack
        EXPECT_EQ(shim_bytes(m), bound);
        EXPECT_EQ(shim_cached(m, 3), 0u);
        use(3);
    });
    EXPECT_EQ(shim_bytes(m), bound);
    EXPECT_EQ(shim_live(m), 0u);
}

TEST_F(Magazines, AStackAtTheBoundDoesNotGrow) {
    create();
    shim_set_bytes_max(m, 6 * 64);
    std::vector<void *> live(64);
    for (int round = 0; round < 10; round++) {
        for (void *&ptr : live) {
            ptr = shim_pop(m, 1);
        }
        shim_meet_others(m, 1);
        for (void *ptr : live) {
            shim_push(m, 1, ptr);
        }
    }
    EXPECT_EQ(shim_capacity(m, 1), 4u);
    shim_set_bytes_max(m, SIZE_MAX);
    shim_meet_others(m, 1);
    for (void *&ptr : live) {
        ptr = shim_pop(m, 1);
    }
    EXPECT_GT(shim_capacity(m, 1), 4u);
    for (void *ptr : live) {
        shim_push(m, 1, ptr);
    }
}

TEST_F(Magazines, NoStacksAtAll) {
    create(2);
    shim_set_bytes_max(m, 0);
    std::vector<void *> live(100);
    for (void *&ptr : live) {
        ptr = shim_pop(m, 2);
        ASSERT_NE(ptr, nullptr);
    }
    for (void *ptr : live) {
        shim_push(m, 2, ptr);
    }
    EXPECT_EQ(shim_bytes(m), 0u);
    EXPECT_EQ(shim_live(m), 0u);
}

TEST_F(Magazines, ThreadsThatEndOrStopGiveUpTheirShareOfTheBound) {
    NEEDS_FENCES();
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create();
    auto use = [&](uint32_t bin) { shim_push(m, bin, shim_pop(m, bin)); };
    std::thread([&] { use(0); }).join();
    EXPECT_EQ(shim_bytes(m), 0u) << "it has ended";
    OtherThread other;
    other([&] { use(0); });
    EXPECT_EQ(shim_bytes(m), 8 * 64u);
    shim_look(m);
    shim_look(m);
    EXPECT_EQ(shim_bytes(m), 0u) << "it had no miss";
    use(0);
    use(1);
    for (int i = 0; i < 3; i++) { // found unused and emptied, found empty, freed
        shim_look(m);
        void *some[8];
        for (void *&ptr : some) { // misses
            ptr = shim_pop(m, 0);
        }
        for (void *ptr : some) {
            shim_push(m, 0, ptr);
        }
    }
    EXPECT_EQ(shim_bytes(m), 8 * 64u) << "the stack of the other size is empty for long";
    shim_trim(m);
}

TEST_F(Magazines, ThreadsNeverExceedTheBound) {
    create(2);
    const size_t bound = 20 * 64;
    shim_set_bytes_max(m, bound);
    run_threads<uint32_t>(4, [&](uint32_t number) {
        for (uint32_t i = 0; i < 2000; i++) {
            const uint32_t bin = (i + number) % 4;
            void *a = shim_pop(m, bin), *b = shim_pop(m, bin);
            shim_push(m, bin, a);
            shim_push(m, bin, b);
            EXPECT_LE(shim_bytes(m), bound);
        }
    });
    EXPECT_EQ(shim_bytes(m), 0u);
}

TEST_F(Magazines, LastInFirstOut) {
    create();
    void *a = shim_pop(m, 2), *b = shim_pop(m, 2);
    shim_push(m, 2, a);
    shim_push(m, 2, b);
    EXPECT_EQ(shim_pop(m, 2), b);
    EXPECT_EQ(shim_pop(m, 2), a);
    EXPECT_EQ(refills, 1u);
    shim_push(m, 2, a);
    shim_push(m, 2, b);
}

TEST_F(Magazines, TheOlderHalfGoesFirst) {
    create();
    std::vector<void *> live;
    for (int i = 0; i < 12; i++) {
        live.push_back(shim_pop(m, 0));
    }
    shim_flush(m);
    for (size_t i = 0; i < 9; i++) {
        shim_push(m, 0, live[i]);
    }
    EXPECT_EQ(out[0].count(live[0]), 0u) << "back in the pool";
    EXPECT_EQ(out[0].count(live[8]), 1u) << "kept";
    for (size_t i = 9; i < 12; i++) {
        shim_push(m, 0, live[i]);
    }
}

TEST_F(Magazines, FlushGivesEverythingBack) {
    create();
    for (uint32_t bin = 0; bin < 3; bin++) {
        shim_push(m, bin, shim_pop(m, bin));
    }
    EXPECT_FALSE(out[0].empty());
    shim_flush(m);
    EXPECT_TRUE(out[0].empty() && out[1].empty() && out[2].empty());
    EXPECT_EQ(shim_cached(m, 0), 0u);
}

TEST_F(Magazines, AThreadsEndGivesItsStacksBack) {
    create();
    void *kept = nullptr;
    std::thread([&] {
        kept = shim_pop(m, 0);
        shim_push(m, 0, shim_pop(m, 0));
        shim_push(m, 1, shim_pop(m, 1));
    }).join();
    EXPECT_EQ(out[0].size(), 1u);
    EXPECT_TRUE(out[1].empty());
    EXPECT_EQ(shim_live(m), 1u);
    shim_push(m, 0, kept);
}

/* Each thread counts for itself what it got from the pool and gave back. */
TEST_F(Magazines, LiveIsWhatAllThreadsHave) {
    create();
    std::vector<void *> objects;
    std::promise<void> popped, counted;
    std::thread other([&] {
        for (int i = 0; i < 100; i++) {
            objects.push_back(shim_pop(m, 0));
        }
        popped.set_value();
        counted.get_future().wait();
    });
    popped.get_future().wait();
    EXPECT_EQ(shim_live(m), 100u);
    for (; objects.size() > 30; objects.pop_back()) {
        shim_push(m, 0, objects.back());
    }
    EXPECT_EQ(shim_live(m), 30u);
    counted.set_value();
    other.join();
    EXPECT_EQ(shim_live(m), 30u) << "the thread has ended";
    for (void *object : objects) {
        shim_push(m, 0, object);
    }
    EXPECT_EQ(shim_live(m), 0u);
}

TEST_F(Magazines, ATrimTakesTheStacksOfOtherThreads) {
    NEEDS_FENCES();
    create();
    OtherThread other;
    void *kept = nullptr;
    other([&] {
        kept = shim_pop(m, 0);
        shim_push(m, 1, shim_pop(m, 1));
    });
    EXPECT_EQ(shim_cached(m, 0), 3u);
    shim_trim(m);
    EXPECT_EQ(shim_cached(m, 0), 0u);
    EXPECT_TRUE(out[1].empty());
    EXPECT_EQ(shim_live(m), 1u);
    other([&] {
        shim_push(m, 0, kept);
        shim_push(m, 1, shim_pop(m, 1));
    });
    EXPECT_EQ(shim_live(m), 0u);
    EXPECT_EQ(shim_cached(m, 0), 1u) << "it has a stack again";
}

// A thread that trims meets threads between any two of their instructions.
TEST_F(Magazines, TrimsBesideThreadsThatHit) {
    create(3);
    std::atomic<int> running{4};
    run_threads<unsigned>(5, [&](unsigned t) {
        while (t == 4 && running) {
            shim_trim(m);
        }
        std::mt19937 random(t);
        std::vector<void *> live;
        for (size_t i = 0; t < 4 && i < scaled(400000); i++) {
            if (live.size() < 6 && (live.empty() || random() % 2)) {
                live.push_back(shim_pop(m, t % 2));
            } else {
                shim_push(m, t % 2, live.back());
                live.pop_back();
            }
        }
        for (void *object : live) {
            shim_push(m, t % 2, object);
        }
        running -= t < 4;
    });
    EXPECT_EQ(shim_live(m), 0u);
    shim_trim(m);
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
        void *p = shim_pop(m, 0);
        shim_push(m, 0, p);
        shim_push(m, 1, shim_pop(m, 1));
        step = 1;
        while (step != 2) {
            std::this_thread::yield();
        }
        std::vector<void *> live;
        for (int i = 0; i < 5; i++) { // one more than it holds: a miss
            live.push_back(shim_pop(m, 0));
        }
        after_miss = flushes;
        for (void *q : live) {
            shim_push(m, 0, q);
        }
        step = 3;
        while (step != 4) {
            std::this_thread::yield();
        }
    });
    while (step != 1) {
        std::this_thread::yield();
    }
    shim_trim(m);
    EXPECT_EQ(shim_cached(m, 0), 4u) << "not ours to touch";
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
                live.push_back(shim_pop(m, 3));
            }
            for (void *object : live) {
                shim_push(m, 3, object);
            }
        }
        EXPECT_EQ(shim_capacity(m, 3), 256u);
        shim_magazines_destroy(m);
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
            live.push_back(shim_pop(m, 3));
        }
        EXPECT_EQ(std::set<void *>(live.begin(), live.end()).size(), 250u);
        for (void *object : live) {
            shim_push(m, 3, object);
        }
        EXPECT_EQ(shim_live(m), 0u);
    }
    EXPECT_GE(shim_cached(m, 3), 250u) << "all of a round stays";
    size_t before = refills + flushes;
    std::vector<void *> live;
    for (int i = 0; i < 250; i++) {
        live.push_back(shim_pop(m, 3));
    }
    for (void *object : live) {
        shim_push(m, 3, object);
    }
    EXPECT_EQ(refills + flushes, before);
}

TEST_F(Magazines, AStackThatIsOnlyFilledStaysSmall) {
    create();
    for (int round = 0; round < 4; round++) {
        std::vector<void *> live(250);
        std::thread([&] {
            for (void *&object : live) {
                object = shim_pop(m, 3);
            }
        }).join();
        for (void *object : live) {
            shim_push(m, 3, object);
        }
    }
    EXPECT_LE(shim_cached(m, 3), 128u);
}

// Where threads wait for each other they exchange more at a time.
TEST_F(Magazines, AStackGrowsFurtherWhereThreadsMeet) {
    create(2);
    shim_push(m, 1, shim_pop(m, 1));
    EXPECT_EQ(shim_capacity(m, 1), 4u);
    std::vector<void *> live;
    auto turn = [&] {
        for (int i = 0; i < 100; i++) {
            live.push_back(shim_pop(m, 1));
        }
        for (; !live.empty(); live.pop_back()) {
            shim_push(m, 1, live.back());
        }
    };
    turn();
    EXPECT_EQ(shim_capacity(m, 1), 4u) << "alone";
    for (size_t wanted : {8, 16, 32, 32}) {
        shim_meet_others(m, 1);
        turn();
        EXPECT_EQ(shim_capacity(m, 1), wanted);
    }
    turn();
    EXPECT_EQ(shim_capacity(m, 1), 32u);
    shim_trim(m);
    EXPECT_EQ(shim_live(m), 0u);
}

TEST_F(Magazines, WhatLiesUnusedInADepotGoesBackToThePool) {
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create(8);
    std::vector<void *> live(2000);
    for (void *&object : live) {
        object = shim_pop(m, 2);
    }
    for (void *object : live) {
        shim_push(m, 2, object);
    }
    size_t full = shim_cached(m, 2);
    EXPECT_GE(full, 8u * 32);
    shim_look(m);
    EXPECT_EQ(shim_cached(m, 2), full) << "it has just come";
    // A small need of two threads: the depot passes it on, and most of it is never touched.
    OtherThread other;
    for (int round = 0; round < 20; round++) {
        std::vector<void *> some(40);
        other([&] {
            for (void *&object : some) {
                object = shim_pop(m, 2);
            }
        });
        for (void *object : some) {
            shim_push(m, 2, object);
        }
    }
    EXPECT_GE(shim_cached(m, 2), full - 64);
    shim_look(m);
    EXPECT_LE(shim_cached(m, 2), 2 * 64u + 40) << "two stacks, and the requested objects";
    EXPECT_GE(shim_cached(m, 2), 40u);
    EXPECT_EQ(shim_live(m), 0u);
}

// So that no caller waits long.
TEST_F(Magazines, LargeObjectsGoBackInPortions) {
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create(8);
    shim_set_large(m, 1, 2 << 20);
    std::vector<void *> live(28);
    for (void *&object : live) {
        object = shim_pop(m, 1);
    }
    for (void *object : live) {
        shim_push(m, 1, object);
    }
    EXPECT_EQ(shim_cached(m, 1), 28u);
    shim_look(m);
    EXPECT_EQ(shim_cached(m, 1), 28u) << "they have just come";
    for (size_t left = 28 - 4; left > 0;) {
        left -= 4;
        shim_look(m);
        EXPECT_EQ(shim_cached(m, 1), left) << "8 MiB at a time, and a stack at first";
    }
}

TEST_F(Magazines, AfterAPortionTheLookGoesOn) {
    static std::vector<bool> looks;
    DecayPeriod endless(DecayPeriod::ENDLESS);
    looks.clear();
    create(8);
    shim_set_large(m, 1, 2 << 20);
    shim_set_look(m, [](void *, bool is_new) {
        looks.push_back(is_new);
        return false;
    });
    std::vector<void *> live(16);
    for (void *&object : live) {
        object = shim_pop(m, 1);
    }
    for (void *object : live) {
        shim_push(m, 1, object);
    }
    for (int i = 0; i < 6; i++) {
        shim_look(m);
    }
    EXPECT_EQ(shim_cached(m, 1), 0u);
    EXPECT_EQ(looks, (std::vector<bool>{true, true, false, false, false, true}))
        << "12 idle ones in portions of 4, and then nothing";
}

TEST_F(Magazines, WhatThreadsDoNotUseGoesBackToThePool) {
    NEEDS_FENCES();
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create();
    OtherThread other;
    auto use = [&](uint32_t bin) { shim_push(m, bin, shim_pop(m, bin)); };
    other([&] { use(0); });
    use(1);
    use(3);
    const size_t of_other = shim_cached(m, 0), unused = shim_cached(m, 1);
    shim_look(m);
    EXPECT_EQ(shim_cached(m, 0), of_other) << "it has just come";
    EXPECT_EQ(shim_cached(m, 1), unused);
    shim_push(m, 3, shim_pop(m, 3)); // a hit, after which the stack is as before
    void *one = shim_pop(m, 3);
    shim_look(m);
    EXPECT_EQ(shim_cached(m, 0), 0u) << "the thread had no miss";
    EXPECT_EQ(shim_cached(m, 1), 0u);
    EXPECT_GT(shim_cached(m, 3), 0u) << "it is in use";
    shim_push(m, 3, one);
    other([&] { use(0); });
    EXPECT_EQ(shim_live(m), 0u);
}

TEST_F(Magazines, ALookKeepsErrno) {
    DecayPeriod none(DecayPeriod::NONE);
    create(2);
    shim_set_look(m, [](void *, bool) {
        errno = ENOMEM;
        return false;
    });
    std::vector<void *> live(20);
    errno = 4711;
    for (void *&object : live) {
        object = shim_pop(m, 0);
    }
    for (void *object : live) {
        shim_push(m, 0, object);
    }
    shim_look(m);
    EXPECT_EQ(errno, 4711);
}

TEST_F(Magazines, LargeObjectsMakeRoomForOtherSizes) {
    constexpr uint32_t NONE = UINT32_MAX;
    DecayPeriod endless(DecayPeriod::ENDLESS);
    create(8);
    shim_set_large(m, 2, 1 << 20);
    shim_set_large(m, 3, 1 << 20);
    for (uint32_t bin : {1u, 2u, 3u}) {
        std::vector<void *> live(600);
        for (void *&object : live) {
            object = shim_pop(m, bin);
        }
        for (void *object : live) {
            shim_push(m, bin, object);
        }
    }
    size_t small = shim_cached(m, 1), all = shim_cached(m, 2), others = shim_cached(m, 3);
    ASSERT_GT(all, 64u) << "some wait between threads";
    EXPECT_FALSE(shim_release_large(m, NONE, size_t{1200} << 20)) << "it is less";
    EXPECT_TRUE(shim_release_large(m, 3, 64 << 20));
    EXPECT_GE(shim_cached(m, 2) + 96 + 64, all) << "half more than 64 MiB, and a stack";
    while (shim_release_large(m, 3, 64 << 20)) {
    }
    EXPECT_LT(shim_cached(m, 2), 64u);
    shim_release_large(m, 3, 0);
    EXPECT_EQ(shim_cached(m, 2), 0u);
    EXPECT_EQ(shim_cached(m, 3), others) << "they have the requested size";
    EXPECT_FALSE(shim_release_large(m, 3, 0)) << "nothing else is left";
    EXPECT_TRUE(shim_release_large(m, NONE, 0));
    EXPECT_EQ(shim_cached(m, 3), 0u);
    EXPECT_EQ(shim_cached(m, 1), small);
    EXPECT_EQ(shim_live(m), 0u);
}

// Every miss checks whether a pass is due; a scan continues where the last one stopped.
TEST_F(Magazines, MissesLookFromTimeToTime) {
    static std::vector<bool> looks;
    static bool is_more;
    DecayPeriod none(DecayPeriod::NONE);
    looks.clear();
    is_more = false;
    create(2);
    shim_set_look(m, [](void *, bool is_new) {
        looks.push_back(is_new);
        return is_more;
    });
    std::vector<void *> live{shim_pop(m, 0)};
    EXPECT_TRUE(looks.empty()) << "nothing can be old";
    for (int i = 0; i < 3; i++) {
        live.push_back(shim_pop(m, 0));
    }
    EXPECT_TRUE(looks.empty()) << "no miss";
    is_more = true;
    live.push_back(shim_pop(m, 0));
    EXPECT_EQ(looks, std::vector<bool>{true});
    is_more = false;
    for (int i = 0; i < 4; i++) {
        live.push_back(shim_pop(m, 0));
    }
    EXPECT_EQ(looks, (std::vector<bool>{true, false}));
    for (int i = 0; i < 4; i++) {
        live.push_back(shim_pop(m, 0));
    }
    EXPECT_EQ(looks, (std::vector<bool>{true, false, true}));
    for (void *object : live) {
        shim_push(m, 0, object);
    }
    EXPECT_GT(looks.size(), 3u) << "so does a stack that is full";
    for (int i = 0; i < 100; i++) {
        shim_push(m, 0, shim_pop(m, 0));
    }
    size_t before = looks.size();
    for (int i = 0; i < 100; i++) {
        shim_push(m, 0, shim_pop(m, 0));
    }
    EXPECT_EQ(looks.size(), before) << "hits do not";
}

TEST_F(Magazines, ALookEveryTwoSeconds) {
    static size_t looks;
    looks = 0;
    create();
    shim_set_look(m, [](void *, bool) {
        looks++;
        return false;
    });
    EXPECT_EQ(umf_decay_period, 2000000000u);
    DecayPeriod endless(DecayPeriod::ENDLESS);
    std::vector<void *> live(1000);
    for (void *&object : live) {
        object = shim_pop(m, 0);
    }
    for (void *object : live) {
        shim_push(m, 0, object);
    }
    EXPECT_EQ(looks, 0u);
}

TEST_F(Magazines, ADepotPassesBatchesBetweenThreads) {
    create(2);
    std::vector<void *> live;
    for (int i = 0; i < 12; i++) {
        live.push_back(shim_pop(m, 0));
    }
    std::thread([&] {
        for (void *object : live) {
            shim_push(m, 0, object); // 12 into a stack of 8: a batch of 4 goes to the depot
        }
        EXPECT_EQ(flushes, 0u);
        for (int i = 0; i < 4; i++) {
            shim_pop(m, 0);
        }
    }).join();
    size_t before = refills;
    for (int i = 0; i < 8; i++) {
        EXPECT_NE(shim_pop(m, 0), nullptr);
    }
    EXPECT_EQ(refills, before) << "the depot served";
    shim_flush(m);
    EXPECT_EQ(shim_cached(m, 0), 0u);
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
        object = shim_pop(m, 0);
    }
    const size_t before = refills;
    std::vector<std::unique_ptr<OtherThread>> others;
    for (size_t t = 0; t < THREADS; t++) {
        others.push_back(std::make_unique<OtherThread>());
        (*others[t])([&] {
            for (size_t i = 0; i < EACH; i++) {
                shim_push(m, 0, objects[t * EACH + i]);
            }
        });
    }
    others.clear();
    EXPECT_EQ(flushes, 0u) << "one depot would not hold them";
    EXPECT_EQ(shim_live(m), 0u);
    for (void *&object : objects) {
        object = shim_pop(m, 0);
    }
    EXPECT_EQ(refills, before) << "the depots served";
    for (void *object : objects) {
        shim_push(m, 0, object);
    }
    shim_flush(m);
    EXPECT_EQ(shim_cached(m, 0), 0u);
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
                own.push_back(shim_pop(m, 0));
            }
            for (void *object : own) {
                shim_push(m, 0, object);
            }
        }).join();
        before = round == 0 ? refills : before;
    }
    EXPECT_EQ(refills, before);
    shim_flush(m);
    EXPECT_EQ(shim_cached(m, 0), 0u);
}

TEST_F(Magazines, NoMemoryInThePool) {
    create();
    limit = 2;
    EXPECT_NE(shim_pop(m, 0), nullptr);
    EXPECT_NE(shim_pop(m, 0), nullptr);
    EXPECT_EQ(shim_pop(m, 0), nullptr);
    EXPECT_EQ(shim_live(m), 2u);
}

// Also a thread that has given many.
TEST_F(Magazines, WithoutMemoryOthersDepotsServe) {
    create(8);
    limit = 100;
    std::vector<void *> objects(limit);
    for (void *&object : objects) {
        object = shim_pop(m, 0);
    }
    constexpr size_t GIVEN = 60;
    for (size_t i = 0; i < GIVEN; i++) {
        shim_push(m, 0, objects[i]);
    }
    const size_t own = 8; // its stack
    std::thread([&] {
        for (size_t i = 0; i < GIVEN - own; i++) {
            objects[i] = shim_pop(m, 0);
        }
        for (size_t i = 0; i < GIVEN - own; i++) {
            shim_push(m, 0, objects[i]);
        }
    }).join();
    for (size_t i = 0; i < GIVEN; i++) {
        EXPECT_NE(shim_pop(m, 0), nullptr) << i;
    }
    EXPECT_EQ(shim_pop(m, 0), nullptr);
}

TEST_F(Magazines, NoMemoryForStacks) {
    create();
    umf_os_set_fault([](const char *) { return 12; });
    std::thread([&] {
        void *p = shim_pop(m, 0);
        EXPECT_NE(p, nullptr) << "served without a stack";
        EXPECT_EQ(last_asked, 1u);
        shim_push(m, 0, p);
    }).join();
    umf_os_set_fault(nullptr);
    EXPECT_TRUE(out[0].empty());
    EXPECT_EQ(shim_live(m), 0u);
}

TEST_F(Magazines, NothingIsLeft) {
    create();
    shim_push(m, 0, shim_pop(m, 0));
    shim_magazines_destroy(m);
    out[0].clear();
    size_t used = umf_meta_used();
    for (int i = 0; i < 10; i++) {
        create(4);
        for (uint32_t bin = 0; bin < 3; bin++) {
            std::vector<void *> live;
            for (int k = 0; k < 100; k++) {
                live.push_back(shim_pop(m, bin));
            }
            for (void *p : live) {
                shim_push(m, bin, p);
            }
        }
        shim_magazines_destroy(m);
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
            void *object = random() % 3 ? shim_pop(m, 0) : nullptr;
            object = shared[random() % 16].exchange(object);
            if (object) {
                shim_push(m, 0, object);
            }
        }
    });
    size_t left = 0;
    for (auto &object : shared) {
        left += object != nullptr;
    }
    EXPECT_EQ(shim_live(m), left);
    for (auto &object : shared) {
        if (object) {
            shim_push(m, 0, object);
        }
    }
    shim_flush(m);
    EXPECT_TRUE(out[0].empty());
    EXPECT_EQ(shim_live(m), 0u);
}

TEST(Magic, TellsMultiples) {
    std::mt19937_64 random(3);
    for (size_t size : {8, 16, 24, 48, 64, 96, 768, 1536, 4096, 24576, 32768, 49152}) {
        uint64_t magic = shim_magic(size);
        for (uint64_t n = 0; n < 3 * size; n++) {
            ASSERT_EQ(shim_magic_divides(magic, n) != 0, n % size == 0) << n << " by " << size;
        }
        for (int i = 0; i < 2000; i++) {
            uint64_t n = random() >> 33;
            ASSERT_EQ(shim_magic_divides(magic, n) != 0, n % size == 0) << n << " by " << size;
            ASSERT_TRUE(shim_magic_divides(magic, n / size * size));
        }
    }
}

} // namespace
