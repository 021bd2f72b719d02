// Memory in transit, and the final retry of a request that is about to fail.
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
#include "cache/transit.h"
}

namespace {

// Forks are counted.
class TransitFork : public testing::Test {
  protected:
    void SetUp() override {
        umf_fork_register_inner();
        umf_fork_register_outer();
    }
};

// A pool of blocks without a lock: who takes one finds it as long as there is one.
struct Blocks {
    umf_transit_t transit = {};
    std::atomic<int> free{0};

    bool take() {
        int seen = free;
        while (seen > 0 && !free.compare_exchange_weak(seen, seen - 1)) {
        }
        return seen > 0;
    }
    // Takes all out of circulation and puts them back.
    void trim() {
        umf_transit_part_t part;
        umf_transit_begin(&transit, &part);
        int isolated = free.exchange(0);
        std::this_thread::yield();
        free += isolated;
        umf_transit_end(&part);
    }
    bool take_last() {
        umf_transit_part_t part;
        umf_transit_retry(&transit, &part);
        bool is_served;
        do {
            is_served = take();
        } while (umf_transit_again(&part, is_served));
        return is_served;
    }
};

TEST(Transit, LooksOnceIfNothingIsInTransit) {
    umf_transit_t transit = {};
    umf_transit_part_t part;
    umf_transit_retry(&transit, &part);
    EXPECT_FALSE(umf_transit_again(&part, false));
    umf_transit_retry(&transit, &part);
    EXPECT_FALSE(umf_transit_again(&part, true));
}

TEST(Transit, NoRequestFailsBesideTrims) {
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

TEST(Transit, ChangesDuringTheLookAreSeen) {
    Blocks blocks;
    umf_transit_part_t part;
    umf_transit_retry(&blocks.transit, &part);
    std::thread([&] { blocks.trim(); }).join(); // gives way for a moment only
    EXPECT_TRUE(umf_transit_again(&part, false));
    EXPECT_FALSE(umf_transit_again(&part, false));
    umf_transit_retry(&blocks.transit, &part);
    std::thread([&] { blocks.trim(); }).join();
    EXPECT_FALSE(umf_transit_again(&part, true));
}

TEST(Transit, OneRequestLooksAtATime) {
    umf_transit_t transit = {};
    std::atomic<int> inside{0}, most{0};
    run_threads(4, [&](int) {
        for (size_t i = 0; i < scaled(2000); i++) {
            umf_transit_part_t part;
            umf_transit_retry(&transit, &part);
            int now = ++inside, seen = most;
            while (now > seen && !most.compare_exchange_weak(seen, now)) {
            }
            inside--;
            EXPECT_FALSE(umf_transit_again(&part, false));
        }
    });
    EXPECT_EQ(most, 1);
}

TEST(Transit, NobodyWaitsForItself) {
    umf_transit_t transit = {}, other = {};
    umf_transit_part_t outer, middle, inner;
    umf_transit_begin(&transit, &outer);
    umf_transit_begin(&other, &middle);
    umf_transit_retry(&transit, &inner);
    EXPECT_EQ(inner.round, 0u);
    EXPECT_FALSE(umf_transit_again(&inner, false));
    umf_transit_begin(&transit, &inner);
    umf_transit_end(&inner);
    umf_transit_end(&middle);
    umf_transit_end(&outer);

    umf_transit_retry(&transit, &outer);
    umf_transit_begin(&transit, &middle);
    umf_transit_retry(&transit, &inner);
    EXPECT_FALSE(umf_transit_again(&inner, false));
    umf_transit_end(&middle);
    EXPECT_FALSE(umf_transit_again(&outer, false)) << "its own memory in transit is no change";
    EXPECT_EQ(outer.round, 1u);
}

// Its own memory is no reason to wait, that of another pool is.
TEST(Transit, InsideOfOneMemoryAnotherIsWaitedFor) {
    umf_transit_t transit = {};
    Blocks below;
    below.free = 1;
    umf_transit_part_t part;
    umf_transit_begin(&transit, &part);
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
    umf_transit_end(&part);
}

TEST_F(TransitFork, ChildOfForkDoesNotWaitForThreadsOfItsParent) {
    umf_transit_t transit = {};
    std::promise<void> is_in_transit, ends;
    std::thread other([&] {
        umf_transit_part_t part;
        umf_transit_begin(&transit, &part);
        is_in_transit.set_value();
        ends.get_future().wait();
        umf_transit_end(&part);
    });
    is_in_transit.get_future().wait();
    EXPECT_TRUE(in_child(
        [&] {
            umf_transit_part_t part;
            umf_transit_retry(&transit, &part);
            return part.round == 0 && !umf_transit_again(&part, false);
        },
        fork_at_rest));
    ends.set_value();
    other.join();
}

TEST_F(TransitFork, ForkInsideLeavesNoCountBehind) {
    umf_transit_t transit = {};
    umf_transit_part_t outer;
    umf_transit_begin(&transit, &outer);
    EXPECT_TRUE(in_child([&] {
        umf_transit_part_t part;
        std::thread([&] { // another thread of the child has memory in transit, the forking one ends
            umf_transit_begin(&transit, &part);
            umf_transit_end(&part);
        })
            .join();
        umf_transit_end(&outer);
        umf_transit_retry(&transit, &part);
        return part.round == 0 && !umf_transit_again(&part, false);
    }));
    umf_transit_end(&outer);
    umf_transit_part_t part;
    umf_transit_retry(&transit, &part);
    EXPECT_EQ(part.round, 0u);
    EXPECT_FALSE(umf_transit_again(&part, false));
}

} // namespace
