/*
 * Decay: memory that has been free for a while goes back to the system.
 *
 * A pool makes a decay pass over what it holds at most once in a period. The first thread that
 * takes a slow path after the period makes it, or the thread that ticks for all pools
 * (reclaim/reclaim.h). Memory that is free at
 * two passes in a row has decayed: it was free for one to two periods.
 */
#ifndef UMF_SRC_CACHE_DECAY_H
#define UMF_SRC_CACHE_DECAY_H

#include "system/common.h"

/* A decay pass ends after this many bytes, so that no caller waits long. The next one follows
 * soon. */
#define UMF_DECAY_BYTES ((size_t)64 << 20)

typedef struct umf_decay_t {
    _Atomic uint64_t next; /* when the next pass is due, in nanoseconds; 0: the clock is not set */
} umf_decay_t;

/* The period in nanoseconds: 2 s. What a thread keeps, the slab it lies in and what the provider
 * keeps decay one after the other, within five periods. Tests make it shorter. */
extern _Atomic uint64_t umf_decay_period;

/* The time between two ticks, in nanoseconds. */
uint64_t umf_decay_tick_period(void);

/* A coarse clock in nanoseconds, also for memory that decays without passes. */
uint64_t umf_decay_now(void);

/* true: a decay pass is due, and the caller must make it. */
bool umf_decay_is_due(umf_decay_t *decay);
/* true: it is time to ask every pool whether its pass is due, several times in a period. */
bool umf_decay_is_tick_due(umf_decay_t *decay);
/* The last decay pass did not finish: the next one is due soon. */
void umf_decay_go_on(umf_decay_t *decay);

#endif
