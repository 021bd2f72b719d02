// Instructions of N and of 2N repetitions, in one dump of callgrind each. UMF_BENCH_CALLGRIND is
// defined where valgrind's headers are there.
#ifndef UMF_BENCH_CALLGRIND_H
#define UMF_BENCH_CALLGRIND_H

#include <cstdint>

#if __has_include(<valgrind/callgrind.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <valgrind/callgrind.h>
#pragma GCC diagnostic pop
#define UMF_BENCH_CALLGRIND 1

namespace bench {

template <class F> void dump_counts(uint64_t n, F run) {
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    run(n);
    CALLGRIND_DUMP_STATS;
    run(2 * n);
    CALLGRIND_DUMP_STATS;
    CALLGRIND_STOP_INSTRUMENTATION;
}

} // namespace bench

#endif

#endif
