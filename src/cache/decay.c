#include "cache/decay.h"

#include <stdatomic.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)

/* The time between decay passes while there is more to give back. */
#define SOON (SECOND / 20)

_Atomic uint64_t umf_decay_period = 5 * SECOND;

uint64_t umf_decay_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

bool umf_decay_is_due(umf_decay_t *decay) {
    uint64_t now = umf_decay_now();
    uint64_t next = atomic_load_explicit(&decay->next, memory_order_relaxed);
    uint64_t period = atomic_load_explicit(&umf_decay_period, memory_order_relaxed);
    /* One thread wins the exchange and makes the pass. The first question only starts the clock:
     * a new pool has nothing that could have decayed. */
    return now >= next &&
           atomic_compare_exchange_strong_explicit(&decay->next, &next, now + period,
                                                   memory_order_relaxed, memory_order_relaxed) &&
           next != 0;
}

void umf_decay_go_on(umf_decay_t *decay) {
    uint64_t period = atomic_load_explicit(&umf_decay_period, memory_order_relaxed);
    atomic_store_explicit(&decay->next, umf_decay_now() + (period < SOON ? period : SOON),
                          memory_order_relaxed);
}
