/*
 * Uses: spans whose memory is being copied. A span that was withdrawn is given back to its provider
 * only when nobody uses it.
 *
 * Spans are counted by a hash of their index. Two that share a count are waited for together.
 */
#ifndef UMF_SRC_TRACK_USE_H
#define UMF_SRC_TRACK_USE_H

#include <stdatomic.h>

#include "base/lock.h"

#define UMF_USE_COUNTS 4096u

/* Each count has the number of forks above it: a child does not have the threads that were copying.
 */
extern UMF_HIDDEN _Atomic uint64_t umf_use_counts[UMF_USE_COUNTS];

/* Has anything ever been used? Programs that never copy pay for one load. */
extern UMF_HIDDEN _Atomic bool umf_use_has_begun;

/* Neighbours in the table of spans do not share a cache line. */
static inline _Atomic uint64_t *umf_use_count(uint32_t span) {
    return &umf_use_counts[(span << 4 | (span >> 8 & 15)) % UMF_USE_COUNTS];
}

/* The caller checks afterwards that the span is still live. Sequentially consistent, as the claim
 * of a span: of the two threads one sees the other. */
static inline void umf_use_begin(uint32_t span) {
    if (umf_unlikely(!atomic_load(&umf_use_has_begun))) {
        atomic_store(&umf_use_has_begun, true);
    }
    _Atomic uint64_t *count = umf_use_count(span);
    uint64_t none = (uint64_t)umf_fork_count() << 32, seen = atomic_load(count);
    while (!atomic_compare_exchange_weak(count, &seen, (seen < none ? none : seen) + 1)) {
    }
}

static inline void umf_use_end(uint32_t span) {
    atomic_fetch_sub_explicit(umf_use_count(span), 1, memory_order_release);
}

static inline bool umf_is_used(uint32_t span) {
    uint64_t count = atomic_load(umf_use_count(span));
    return umf_unlikely((uint32_t)count != 0) && count >> 32 == umf_fork_count();
}

/* Waits until a span that is no longer live is unused. No lock may be held. */
UMF_COLD void umf_use_wait_slow(uint32_t span);

/* Must it be asked whether a span is used? */
static inline bool umf_use_is_possible(void) {
    return umf_unlikely(atomic_load(&umf_use_has_begun));
}

static inline void umf_use_wait(uint32_t span) {
    if (umf_use_is_possible() && umf_is_used(span)) {
        umf_use_wait_slow(span);
    }
}

/* Ends uses whose work has been queued and is done; called by those who wait for a span. Set once,
 * before anything is used. */
extern void (*umf_use_settle)(uint32_t span);

#endif
