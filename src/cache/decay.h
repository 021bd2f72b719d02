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

#include "system/atomic.h"
#include "system/common.h"

typedef struct umf_decay_t {
    _Atomic(uint64_t) next; /* when the next pass is due, in nanoseconds; 0: the clock is not set */
} umf_decay_t;

/* The period in nanoseconds: 2 s. Objects of a thread, their slab and memory that the provider
 * keeps decay one after the other, within five periods. Tests make it shorter. */
extern _Atomic(uint64_t) umf_decay_period;

/* How many bytes a decay pass releases in the calling thread: few in a thread of the program, which
 * must not stop for long; in the background thread many, and twice as many as the pass before while
 * there is more. */
size_t umf_decay_bytes(void);

/* A coarse clock in nanoseconds, also for memory that decays without passes. */
uint64_t umf_decay_now(void);

/* true: a decay pass is due, and the caller must make it. */
bool umf_decay_is_due(umf_decay_t *decay);
/* The last decay pass did not finish: the next one, and the next tick, are due soon. */
void umf_decay_go_on(umf_decay_t *decay);

/* Ticks check every pool for a pass that is due, several times in a period. */

/* true: the caller must make a tick. */
bool umf_decay_is_tick_due(void);
/* Something did not finish that each tick continues. */
void umf_decay_tick_soon(void);
/* The time until the next tick, in nanoseconds. */
uint64_t umf_decay_tick_wait(void);

/* Whether the background thread runs. While it does, passes and ticks are its own, so that threads
 * of the program do not stop for them; unless it is late. In a child of fork it does not run. */
void umf_decay_set_thread(bool is_running);
/* Does the calling thread leave such work to it? */
bool umf_decay_has_thread(void);

#endif
