/*
 * A counter in stripes, for what many threads count at the same time: each thread changes a cache
 * line that it rarely shares. Only the sum has a meaning.
 *
 * Under the thread sanitizer there is one stripe. It orders what threads do before and after they
 * count, for tools that cannot see what else orders it.
 */
#ifndef UMF_SRC_BASE_STRIPES_H
#define UMF_SRC_BASE_STRIPES_H

#include "base/thread_slot.h"
#include "system/annotate.h"
#include "system/atomic.h"

#ifndef UMF_STRIPES /* umf-bench-lines defines it: it is compiled as for the sanitizer */
#define UMF_STRIPES (UMF_IS_TSAN ? 1u : 32u)
#endif

typedef struct umf_stripe_t {
    _Alignas(UMF_CACHE_ISOLATION) _Atomic(int64_t) count;
} umf_stripe_t;

typedef struct umf_stripes_t {
    umf_stripe_t at[UMF_STRIPES];
} umf_stripes_t;

/* The stripe of the calling thread: always the same one. Other threads may have it, too. */
static inline _Atomic(int64_t) *umf_stripes_own(umf_stripes_t *stripes) {
    return &stripes->at[umf_thread_slot_number() % UMF_STRIPES].count;
}

/* While threads count, the sum may be a value that the counter never had. */
static inline int64_t umf_stripes_sum(const umf_stripes_t *stripes) {
    int64_t sum = 0;
    for (size_t i = 0; i < UMF_STRIPES; i++) {
        sum += atomic_load_explicit(&stripes->at[i].count, memory_order_relaxed);
    }
    return sum;
}

#endif
