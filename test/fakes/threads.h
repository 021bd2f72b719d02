/* Threads that do the same, all of which have ended when the test goes on, and the signals that a
 * thread blocks. */
#ifndef UMF_TEST_FAKES_THREADS_H
#define UMF_TEST_FAKES_THREADS_H

#include <cstddef>
#include <thread>
#include <vector>

#include <signal.h>

// `body` gets the number of its thread, from 0.
template <typename Number = int, typename F> void run_threads(size_t count, const F &body) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; i++) {
        threads.emplace_back([&body, i] { body(static_cast<Number>(i)); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

// The signals that the calling thread blocks: the same before and after a call of the library.
inline std::vector<int> blocked_signals() {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    std::vector<int> blocked;
    for (int signal = 1; signal < NSIG; signal++) {
        if (sigismember(&now, signal) == 1) {
            blocked.push_back(signal);
        }
    }
    return blocked;
}

#endif
