/*
 * Uses: the queues whose work may still use memory, and the count that each has to reach.
 *
 * All frees of an arena have one count, its clock. A queue has come as far as a count if all work
 * that was put on it before that free has completed. Queue 0 is not one of the program: it stands
 * for frees that name no queue, after which the host has waited. Such memory may be used again at
 * once, but its old addresses are unmapped after all work of the device only. The last one stands
 * for queues that have no number any more, and has come as far as all work of the device.
 */
#ifndef UMF_SRC_POOLS_COALESCING_ARENA_USES_H
#define UMF_SRC_POOLS_COALESCING_ARENA_USES_H

#include <stdbool.h>
#include <stdint.h>

#define UMF_USES_QUEUES 64u
#define UMF_USES_EXACT 4u
#define UMF_USES_DEVICE 0u
#define UMF_USES_REST (UMF_USES_QUEUES - 1)

/* Queues beyond the first few share one count, the highest. Zeroed: none. */
typedef struct umf_uses_t {
    uint64_t count[UMF_USES_EXACT];
    uint8_t queue[UMF_USES_EXACT];
    uint8_t exact;
    uint64_t others; /* a bit for each queue */
    uint64_t others_count;
} umf_uses_t;

static inline void umf_uses_raise(uint64_t *count, uint64_t to) {
    *count = *count < to ? to : *count;
}

static inline void umf_uses_add(umf_uses_t *uses, unsigned queue, uint64_t count) {
    for (unsigned i = 0; i < uses->exact; i++) {
        if (uses->queue[i] == queue) {
            umf_uses_raise(&uses->count[i], count);
            return;
        }
    }
    if (uses->exact < UMF_USES_EXACT) {
        uses->queue[uses->exact] = (uint8_t)queue;
        uses->count[uses->exact++] = count;
        return;
    }
    uses->others |= UINT64_C(1) << queue;
    umf_uses_raise(&uses->others_count, count);
}

/* Visits all: begins with `*at` 0. false: there are no more. */
static inline bool umf_uses_next(const umf_uses_t *uses, unsigned *at, unsigned *queue,
                                 uint64_t *count) {
    if (*at < uses->exact) {
        *queue = uses->queue[*at];
        *count = uses->count[(*at)++];
        return true;
    }
    unsigned from = *at - uses->exact;
    uint64_t left = from < UMF_USES_QUEUES ? uses->others >> from : 0;
    if (!left) {
        return false;
    }
    *queue = from + (unsigned)__builtin_ctzll(left);
    *count = uses->others_count;
    *at = uses->exact + *queue + 1;
    return true;
}

static inline bool umf_uses_has(const umf_uses_t *uses, unsigned queue) {
    unsigned at = 0, each;
    for (uint64_t count; umf_uses_next(uses, &at, &each, &count);) {
        if (each == queue) {
            return true;
        }
    }
    return false;
}

static inline void umf_uses_merge(umf_uses_t *uses, const umf_uses_t *other) {
    unsigned at = 0, queue;
    for (uint64_t count; umf_uses_next(other, &at, &queue, &count);) {
        umf_uses_add(uses, queue, count);
    }
}

/* Uses of a queue become those of UMF_USES_REST. */
static inline void umf_uses_rename(umf_uses_t *uses, unsigned queue) {
    umf_uses_t old = *uses;
    unsigned at = 0, each;
    *uses = (umf_uses_t){0};
    for (uint64_t count; umf_uses_next(&old, &at, &each, &count);) {
        umf_uses_add(uses, each == queue ? UMF_USES_REST : each, count);
    }
}

/* The memory is freed: all that use it have to come as far as `count`. */
static inline void umf_uses_stamp(umf_uses_t *uses, uint64_t count) {
    for (unsigned i = 0; i < uses->exact; i++) {
        uses->count[i] = count;
    }
    uses->others_count = count;
}

#endif
