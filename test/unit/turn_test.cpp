// Waiting until another thread is done.
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "base/turn.h"
}

namespace {

TEST(Turn, DoesNotWaitForWhatHasHappened) {
    umf_turn_t turn = {};
    uint32_t seen = umf_turn_look(&turn);
    umf_turn_next(&turn);
    EXPECT_NE(umf_turn_look(&turn), seen);
    umf_turn_wait(&turn, seen); // would never return otherwise
}

TEST(Turn, WakesAllWhoWait) {
    umf_turn_t turn = {};
    std::atomic<int> waiting{0};
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
        threads.emplace_back([&] {
            uint32_t seen = umf_turn_look(&turn);
            waiting++;
            while (umf_turn_look(&turn) == seen) {
                umf_turn_wait(&turn, seen);
            }
            EXPECT_TRUE(done);
        });
    }
    while (waiting < 8) {
        std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
    umf_turn_next(&turn);
    for (std::thread &thread : threads) {
        thread.join();
    }
}

TEST(Turn, HandsOver) {
    umf_turn_t turn = {};
    std::atomic<uint32_t> next{0};
    auto play = [&](uint32_t parity) {
        for (uint32_t i = parity; i < 2000; i += 2) {
            for (;;) {
                uint32_t seen = umf_turn_look(&turn);
                if (next == i) {
                    break;
                }
                umf_turn_wait(&turn, seen);
            }
            next = i + 1;
            umf_turn_next(&turn);
        }
    };
    std::thread even(play, 0), odd(play, 1);
    even.join();
    odd.join();
    EXPECT_EQ(next, 2000u);
}

} // namespace
