/*
 * Event count: waiting until another thread has finished a provider call.
 *
 * No lock may be held across such a call, and a condition variable does not survive a fork. An
 * event count is a counter: read it before you check the condition, then wait until it differs. A
 * fork cannot break it: a child may inherit a count of waiters that do not exist in it, which costs
 * it one needless system call.
 */
#ifndef UMF_SRC_BASE_EVENT_COUNT_H
#define UMF_SRC_BASE_EVENT_COUNT_H

#include "system/common.h"

typedef struct umf_event_count_t {
    uint32_t count;   /* Sync: atomic, as waiters */
    uint32_t waiters; /* threads that sleep or are about to */
} umf_event_count_t;

static inline uint32_t umf_event_count_read(umf_event_count_t *turn) {
    return __atomic_load_n(&turn->count, __ATOMIC_ACQUIRE);
}

/* Sleeps until the count is no longer `seen`; may return early. */
void umf_event_count_wait(umf_event_count_t *turn, uint32_t seen);
/* The same for `nanoseconds` at most. */
void umf_event_count_wait_for(umf_event_count_t *turn, uint32_t seen, uint64_t nanoseconds);

/* Wakes all waiters. Call it after the change they wait for is visible. */
void umf_event_count_advance(umf_event_count_t *turn);

#endif
