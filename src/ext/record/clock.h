/*
 * The clock of events: the counter of the CPU where all CPUs count at one constant rate, else
 * CLOCK_MONOTONIC, with which an event takes 58 ns instead of 45.
 */
#ifndef UMF_SRC_EXT_RECORD_CLOCK_H
#define UMF_SRC_EXT_RECORD_CLOCK_H

#include <time.h>

#include "system/common.h"

typedef struct umf_record_clock_t {
    bool has_counter;
    uint64_t ticks_per_second; /* estimated */
} umf_record_clock_t;

/* Takes 0.1 ms. */
void umf_record_clock_init(umf_record_clock_t *clock);

static inline uint64_t umf_record_ns(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t umf_record_ticks(const umf_record_clock_t *clock) {
    if (umf_likely(clock->has_counter)) {
#if defined(__x86_64__)
        return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
#endif
    }
    return umf_record_ns(CLOCK_MONOTONIC);
}

/* One moment by both clocks. */
static inline void umf_record_now(const umf_record_clock_t *clock, uint64_t *ticks, uint64_t *ns) {
    uint64_t before = umf_record_ticks(clock);
    *ns = umf_record_ns(CLOCK_MONOTONIC);
    *ticks = before + (umf_record_ticks(clock) - before) / 2;
}

#endif
