/* Threads that do the same, all of which have ended when the test goes on. */
#ifndef UMF_TEST_FAKES_THREADS_H
#define UMF_TEST_FAKES_THREADS_H

#include <cstddef>
#include <thread>
#include <vector>

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

#endif
