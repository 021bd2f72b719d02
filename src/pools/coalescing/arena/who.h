/*
 * Who: the queues whose work may still use memory, and how far each has to come.
 *
 * All frees of an arena have one count, its clock. A queue has come as far as a count if all work
 * that was put on it before that free has completed. Queue 0 is not one of the program: it stands
 * for frees that name no queue, after which the host has waited. Such memory may be used again at
 * once, but its old addresses are unmapped after all work of the device only.
 */
#ifndef UMF_SRC_POOLS_COALESCING_ARENA_WHO_H
#define UMF_SRC_POOLS_COALESCING_ARENA_WHO_H

#include <stdbool.h>
#include <stdint.h>

#define UMF_WHO_QUEUES 64u
#define UMF_WHO_EXACT 4u
#define UMF_WHO_DEVICE 0u

/* Queues beyond the first few share one count, the highest. Zeroed: none. */
typedef struct umf_who_t {
    uint64_t count[UMF_WHO_EXACT];
    uint8_t queue[UMF_WHO_EXACT];
    uint8_t exact;
    uint64_t others; /* a bit for each queue */
    uint64_t others_count;
} umf_who_t;

static inline void umf_who_raise(uint64_t *count, uint64_t to) {
    *count = *count < to ? to : *count;
}

static inline void umf_who_add(umf_who_t *who, unsigned queue, uint64_t count) {
    for (unsigned i = 0; i < who->exact; i++) {
        if (who->queue[i] == queue) {
            umf_who_raise(&who->count[i], count);
            return;
        }
    }
    if (who->exact < UMF_WHO_EXACT) {
        who->queue[who->exact] = (uint8_t)queue;
        who->count[who->exact++] = count;
        return;
    }
    who->others |= UINT64_C(1) << queue;
    umf_who_raise(&who->others_count, count);
}

/* Visits all: begins with `*at` 0. false: there are no more. */
static inline bool umf_who_next(const umf_who_t *who, unsigned *at, unsigned *queue,
                                uint64_t *count) {
    if (*at < who->exact) {
        *queue = who->queue[*at];
        *count = who->count[(*at)++];
        return true;
    }
    unsigned from = *at - who->exact;
    uint64_t left = from < UMF_WHO_QUEUES ? who->others >> from : 0;
    if (!left) {
        return false;
    }
    *queue = from + (unsigned)__builtin_ctzll(left);
    *count = who->others_count;
    *at = who->exact + *queue + 1;
    return true;
}

static inline void umf_who_merge(umf_who_t *who, const umf_who_t *other) {
    unsigned at = 0, queue;
    for (uint64_t count; umf_who_next(other, &at, &queue, &count);) {
        umf_who_add(who, queue, count);
    }
}

/* The memory is freed: all that use it have to come as far as `count`. */
static inline void umf_who_stamp(umf_who_t *who, uint64_t count) {
    for (unsigned i = 0; i < who->exact; i++) {
        who->count[i] = count;
    }
    who->others_count = count;
}

#endif
