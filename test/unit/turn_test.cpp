// Waiting until another thread is done.
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "base/event_count.h"
}

namespace {

TEST(Turn, DoesNotWaitForWhatHasHappened) {
    umf_event_count_t turn = {};
    uint32_t seen = umf_event_count_read(&turn);
    umf_event_count_advance(&turn);
    EXPECT_NE(umf_event_count_read(&turn), seen);
    umf_event_count_wait(&turn, seen); // would never return otherwise
}

TEST(Turn, WakesAllWhoWait) {
    umf_event_count_t turn = {};
    std::atomic<int> waiting{0};
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
        threads.emplace_back([&] {
            uint32_t seen = umf_event_count_read(&turn);
            waiting++;
            while (umf_event_count_read(&turn) == seen) {
                umf_event_count_wait(&turn, seen);
            }
            EXPECT_TRUE(done);
        });
    }
    while (waiting < 8) {
        std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
    umf_event_count_advance(&turn);
    for (std::thread &thread : threads) {
        thread.join();
    }
}

TEST(Turn, HandsOver) {
    umf_event_count_t turn = {};
    std::atomic<uint32_t> next{0};
    auto play = [&](uint32_t parity) {
        for (uint32_t i = parity; i < 2000; i += 2) {
            for (;;) {
                uint32_t seen = umf_event_count_read(&turn);
                if (next == i) {
                    break;
                }
                umf_event_count_wait(&turn, seen);
            }
            next = i + 1;
            umf_event_count_advance(&turn);
        }
    };
    std::thread even(play, 0), odd(play, 1);
    even.join();
    odd.join();
    EXPECT_EQ(next, 2000u);
}

} // namespace
