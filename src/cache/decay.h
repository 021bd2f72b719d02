/*
 * Decay: memory that has been free for a while goes back to the system.
 *
 * A pool looks at what it holds where it is slow anyway, at most once in a period, by whichever
 * thread comes first; no thread is woken for it. What is free at two decay passes has decayed: it
 * was free for one to two periods.
 */
#ifndef UMF_SRC_CACHE_DECAY_H
#define UMF_SRC_CACHE_DECAY_H

#include "system/common.h"

/* After so many bytes a decay pass ends, so that no caller waits long; the next comes soon. */
#define UMF_DECAY_BYTES ((size_t)64 << 20)

typedef struct umf_decay_t {
    _Atomic uint64_t next; /* nanoseconds; 0: nobody has asked yet */
} umf_decay_t;

/* 5 s, in nanoseconds; tests make it shorter. */
extern _Atomic uint64_t umf_decay_period;

/* A clock for what decays without looks: nanoseconds, coarse. */
uint64_t umf_decay_now(void);

/* Is it time for a decay pass? Then it is the caller's to take. */
bool umf_decay_is_due(umf_decay_t *decay);
/* The last decay pass has left something for another. */
void umf_decay_go_on(umf_decay_t *decay);

#endif
