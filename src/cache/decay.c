#include "cache/decay.h"

#include <stdatomic.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)

#define TICKS 2 /* in a period */

/* The time between decay passes while there is more to give back. */
#define SOON (SECOND / 20)

_Atomic uint64_t umf_decay_period = 2 * SECOND;

uint64_t umf_decay_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static bool is_due(umf_decay_t *decay, uint64_t period) {
    uint64_t next = atomic_load_explicit(&decay->next, memory_order_acquire);
    uint64_t now = umf_decay_now(); /* after `next`, which is then at most a period ahead */
    /* One thread wins the exchange and makes the pass. The first question only starts the clock:
     * a new pool has nothing that could have decayed. */
    bool is_over = now >= next || next - now > period; /* the period was longer when it was set */
    return is_over &&
           atomic_compare_exchange_strong_explicit(&decay->next, &next, now + period,
                                                   memory_order_relaxed, memory_order_relaxed) &&
           next != 0;
}

static uint64_t period(void) {
    return atomic_load_explicit(&umf_decay_period, memory_order_relaxed);
}

bool umf_decay_is_due(umf_decay_t *decay) {
    return is_due(decay, period());
}

uint64_t umf_decay_tick_period(void) {
    return period() / TICKS;
}

bool umf_decay_is_tick_due(umf_decay_t *decay) {
    return is_due(decay, umf_decay_tick_period());
}

void umf_decay_go_on(umf_decay_t *decay) {
    atomic_store_explicit(&decay->next, umf_decay_now() + (period() < SOON ? period() : SOON),
                          memory_order_relaxed);
}
