// Memory that is withheld for a moment, and the last look of a request that is about to fail.
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fakes/child.h"
#include "fakes/fork_at_rest.h"
#include "fakes/scale.h"
#include "fakes/threads.h"

extern "C" {
#include "base/lock.h"
#include "cache/withheld.h"
}

namespace {

// Forks are counted.
class WithheldFork : public testing::Test {
  protected:
    void SetUp() override {
        umf_fork_register_inner();
        umf_fork_register_outer();
    }
};

// A pool of blocks without a lock: who takes one finds it as long as there is one.
struct Blocks {
    umf_withheld_t withheld = {};
    std::atomic<int> free{0};

    bool take() {
        int seen = free;
        while (seen > 0 && !free.compare_exchange_weak(seen, seen - 1)) {
        }
        return seen > 0;
    }
    // Takes all out of circulation and puts them back.
    void trim() {
        umf_withheld_part_t part;
        umf_withheld_begin(&withheld, &part);
        int isolated = free.exchange(0);
        std::this_thread::yield();
        free += isolated;
        umf_withheld_end(&part);
    }
    bool take_last() {
        umf_withheld_part_t part;
        umf_withheld_look(&withheld, &part);
        bool is_served;
        do {
            is_served = take();
        } while (umf_withheld_again(&part, is_served));
        return is_served;
    }
};

TEST(Withheld, LooksOnceIfNothingIsWithheld) {
    umf_withheld_t withheld = {};
    umf_withheld_part_t part;
    umf_withheld_look(&withheld, &part);
    EXPECT_FALSE(umf_withheld_again(&part, false));
    umf_withheld_look(&withheld, &part);
    EXPECT_FALSE(umf_withheld_again(&part, true));
}

TEST(Withheld, NoRequestFailsBesideTrims) {
    Blocks blocks;
    const int takers = 3;
    blocks.free = takers; // each has one at most, so there is always one for each
    std::atomic<bool> is_over{false};
    std::atomic<size_t> failed{0};
    std::vector<std::thread> trimmers;
    for (int i = 0; i < 2; i++) {
        trimmers.emplace_back([&] {
            while (!is_over) {
                blocks.trim();
            }
        });
    }
    run_threads(takers, [&](int) {
        for (size_t i = 0; i < scaled(20000); i++) {
            bool is_served = blocks.take() || blocks.take_last();
            failed += !is_served;
            blocks.free += is_served;
        }
    });
    is_over = true;
    for (std::thread &thread : trimmers) {
        thread.join();
    }
    EXPECT_EQ(failed, 0u);
    EXPECT_EQ(blocks.free, takers);
}

TEST(Withheld, ChangesDuringTheLookAreSeen) {
    Blocks blocks;
    umf_withheld_part_t part;
    umf_withheld_look(&blocks.withheld, &part);
    std::thread([&] { blocks.trim(); }).join(); // gives way for a moment only
    EXPECT_TRUE(umf_withheld_again(&part, false));
    EXPECT_FALSE(umf_withheld_again(&part, false));
    umf_withheld_look(&blocks.withheld, &part);
    std::thread([&] { blocks.trim(); }).join();
    EXPECT_FALSE(umf_withheld_again(&part, true));
}

TEST(Withheld, OneRequestLooksAtATime) {
    umf_withheld_t withheld = {};
    std::atomic<int> inside{0}, most{0};
    run_threads(4, [&](int) {
        for (size_t i = 0; i < scaled(2000); i++) {
            umf_withheld_part_t part;
            umf_withheld_look(&withheld, &part);
            int now = ++inside, seen = most;
            while (now > seen && !most.compare_exchange_weak(seen, now)) {
            }
            inside--;
            EXPECT_FALSE(umf_withheld_again(&part, false));
        }
    });
    EXPECT_EQ(most, 1);
}

TEST(Withheld, NobodyWaitsForItself) {
    umf_withheld_t withheld = {}, other = {};
    umf_withheld_part_t outer, middle, inner;
    umf_withheld_begin(&withheld, &outer);
    umf_withheld_begin(&other, &middle);
    umf_withheld_look(&withheld, &inner);
    EXPECT_EQ(inner.round, 0u);
    EXPECT_FALSE(umf_withheld_again(&inner, false));
    umf_withheld_begin(&withheld, &inner);
    umf_withheld_end(&inner);
    umf_withheld_end(&middle);
    umf_withheld_end(&outer);

    umf_withheld_look(&withheld, &outer);
    umf_withheld_begin(&withheld, &middle);
    umf_withheld_look(&withheld, &inner);
    EXPECT_FALSE(umf_withheld_again(&inner, false));
    umf_withheld_end(&middle);
    EXPECT_FALSE(umf_withheld_again(&outer, false)) << "what it withheld itself is no change";
    EXPECT_EQ(outer.round, 1u);
}

// Its own memory is no reason to wait, that of another pool is.
TEST(Withheld, InsideOfOneMemoryAnotherIsWaitedFor) {
    umf_withheld_t withheld = {};
    Blocks below;
    below.free = 1;
    umf_withheld_part_t part;
    umf_withheld_begin(&withheld, &part);
    std::atomic<bool> is_over{false};
    std::thread trimmer([&] {
        while (!is_over) {
            below.trim();
        }
    });
    for (size_t i = 0; i < scaled(5000); i++) {
        ASSERT_TRUE(below.take() || below.take_last());
        below.free++;
    }
    is_over = true;
    trimmer.join();
    umf_withheld_end(&part);
}

TEST_F(WithheldFork, ChildOfForkDoesNotWaitForThreadsOfItsParent) {
    umf_withheld_t withheld = {};
    std::promise<void> withholds, ends;
    std::thread other([&] {
        umf_withheld_part_t part;
        umf_withheld_begin(&withheld, &part);
        withholds.set_value();
        ends.get_future().wait();
        umf_withheld_end(&part);
    });
    withholds.get_future().wait();
    EXPECT_TRUE(in_child(
        [&] {
            umf_withheld_part_t part;
            umf_withheld_look(&withheld, &part);
            return part.round == 0 && !umf_withheld_again(&part, false);
        },
        fork_at_rest));
    ends.set_value();
    other.join();
}

TEST_F(WithheldFork, ForkInsideLeavesNoCountBehind) {
    umf_withheld_t withheld = {};
    umf_withheld_part_t outer;
    umf_withheld_begin(&withheld, &outer);
    EXPECT_TRUE(in_child([&] {
        umf_withheld_part_t part;
        std::thread([&] { // another thread of the child withholds, the forking one ends
            umf_withheld_begin(&withheld, &part);
            umf_withheld_end(&part);
        })
            .join();
        umf_withheld_end(&outer);
        umf_withheld_look(&withheld, &part);
        return part.round == 0 && !umf_withheld_again(&part, false);
    }));
    umf_withheld_end(&outer);
    umf_withheld_part_t part;
    umf_withheld_look(&withheld, &part);
    EXPECT_EQ(part.round, 0u);
    EXPECT_FALSE(umf_withheld_again(&part, false));
}

} // namespace
