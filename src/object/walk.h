/*
 * Walks: the blocks of a span, as its pool reports them (`walk` of umf_pool_fast_ops_t). A
 * snapshot (record/) makes them while other threads allocate and free.
 */
#ifndef UMF_SRC_OBJECT_WALK_H
#define UMF_SRC_OBJECT_WALK_H

#include <stdbool.h>

#include <umf/record_format.h>

#include "system/common.h"

/* Blocks of one size and state that lie side by side become one run. */
typedef struct umf_walk_t {
    void (*report)(struct umf_walk_t *walk, const umf_record_run_t *run);
    umf_record_run_t last; /* not reported yet; count 0: there is none */
    /* The pool has live blocks of unknown size. */
    bool is_partial;
} umf_walk_t;

/* Ends a span. */
static inline void umf_walk_end(umf_walk_t *walk) {
    if (walk->last.count) {
        walk->report(walk, &walk->last);
        walk->last.count = 0;
    }
}

static inline bool umf_walk_joins(umf_record_run_t *last, uintptr_t base, size_t size,
                                  uint32_t count) {
    if (last->base + last->size * last->count == base) {
        last->count += count;
        return true;
    }
    if (base + size * count == last->base) {
        last->base = base;
        last->count += count;
        return true;
    }
    return false;
}

/* Reports `count` adjacent blocks. A span is reported in the order of ascending addresses, or of
 * descending ones. */
static inline void umf_walk_add(umf_walk_t *walk, uintptr_t base, size_t size, uint32_t count,
                                umf_record_state_t state) {
    umf_record_run_t *last = &walk->last;
    if (last->count && last->size == size && last->state == (uint32_t)state &&
        last->count <= UINT32_MAX - count && umf_walk_joins(last, base, size, count)) {
        return;
    }
    umf_walk_end(walk);
    *last =
        (umf_record_run_t){.base = base, .size = size, .count = count, .state = (uint32_t)state};
}

#endif
