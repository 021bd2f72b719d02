/* Many signals, for threads that wait. */
#ifndef UMF_TEST_FAKES_STORM_H
#define UMF_TEST_FAKES_STORM_H

#include <atomic>
#include <vector>

#include <pthread.h>
#include <signal.h>

#include <gtest/gtest.h>

#include "fakes/waiting_provider.h"

inline std::atomic<long> signals{0}; // that were handled in this process

// The handler stays: signals may be delivered late.
inline void count_signals() {
    struct sigaction action = {};
    action.sa_handler = [](int) { signals++; }; // without SA_RESTART: system calls end with EINTR
    ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
    signals = 0;
}

// Sends many signals to the threads, which stay where they are. The process is the test's own.
inline void storm(const std::vector<pthread_t> &threads) {
    count_signals();
    for (int i = 0; i < 300; i++) {
        for (pthread_t each : threads) {
            EXPECT_EQ(pthread_kill(each, SIGUSR1), 0);
        }
        nap();
    }
    wait_until([] { return signals > 0; });
}

#endif
