#include "ext/record/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define ESTIMATE_NS 100000u

static bool has_counter(void) {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8); /* invariant TSC */
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

static uint64_t estimate(const umf_record_clock_t *clock) {
    uint64_t ticks[2], ns[2];
    umf_record_now(clock, &ticks[0], &ns[0]);
    do {
        umf_record_now(clock, &ticks[1], &ns[1]);
    } while (ns[1] - ns[0] < ESTIMATE_NS);
    double rate = (double)(ticks[1] - ticks[0]) * 1e9 / (double)(ns[1] - ns[0]);
    return rate < 1 ? 1 : (uint64_t)rate;
}

void umf_record_clock_init(umf_record_clock_t *clock) {
    clock->has_counter = has_counter();
    clock->ticks_per_second = clock->has_counter ? estimate(clock) : 1000000000u;
}
