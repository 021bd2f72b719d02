/*
 * How much work a test does. The usual run makes a tenth of the random and repeated rounds, and
 * leaves out of ThreadSanitizer what one thread does for long. UMF_TEST_SCALE=100, or
 * scripts/test.sh --long: all of it.
 */
#ifndef UMF_TEST_FAKES_SCALE_H
#define UMF_TEST_FAKES_SCALE_H

#include <cstddef>
#include <cstdlib>

#if defined(__SANITIZE_THREAD__)
#define UMF_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UMF_TEST_TSAN 1
#endif
#endif
#ifndef UMF_TEST_TSAN
#define UMF_TEST_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define UMF_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UMF_TEST_ASAN 1
#endif
#endif
#ifndef UMF_TEST_ASAN
#define UMF_TEST_ASAN 0
#endif

#if UMF_TEST_TSAN
// Memory that crosses a GiB holds all shards of the pointer map, and a fork holds every lock: more
// than its deadlock detector can follow. The order of locks is checked by ourselves (base/lock.h).
extern "C" inline __attribute__((used)) const char *__tsan_default_options() {
    return "detect_deadlocks=0:die_after_fork=0";
}
#endif

// Percent of all rounds.
inline size_t scale() {
    const char *percent = std::getenv("UMF_TEST_SCALE");
    return percent ? std::strtoul(percent, nullptr, 10) : 10;
}

inline bool does_all() {
    return scale() >= 100;
}

inline size_t scaled(size_t rounds) {
    size_t result = rounds * scale() / 100;
    return result ? result : 1;
}

// First in a long test in which no two threads meet: the other builds run it.
#define ONE_THREAD_ONLY()                                                                          \
    if (UMF_TEST_TSAN && !does_all()) {                                                            \
        GTEST_SKIP() << "one thread only: nothing for ThreadSanitizer";                            \
    }

#endif
