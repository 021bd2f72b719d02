/* How a coalescing pool gives free memory back to the provider. */
#ifndef UMF_SRC_POOLS_COALESCING_RELEASE_H
#define UMF_SRC_POOLS_COALESCING_RELEASE_H

#include "pools/coalescing/shards.h"

/* The best of the wholly free spans of a shard. */
typedef struct umf_coalescing_choice_t {
    size_t limit; /* on the size: at least or at most, as the chooser defines */
    uintptr_t base;
    size_t size; /* 0: none yet */
} umf_coalescing_choice_t;

/* Gives up to `bytes` of wholly free spans back, the largest first. Ends early if the provider
 * refuses one. */
UMF_COLD void umf_coalescing_release(umf_coalescing_pool_t *pool, size_t bytes);
/* The span at `base` has become wholly free: gives it back if more than `retain` bytes are free. */
UMF_COLD void umf_coalescing_release_surplus(umf_coalescing_pool_t *pool,
                                             umf_coalescing_shard_t *shard, uintptr_t base);

/* Makes a decay pass if one is due (cache/decay.h): purges the pages of segments that were free for
 * a while. Call it with no lock held. */
UMF_COLD void umf_coalescing_decay_now(umf_coalescing_pool_t *pool);
static inline void umf_coalescing_decay(umf_coalescing_pool_t *pool) {
    if (umf_unlikely(umf_decay_is_due(&pool->decay))) {
        umf_coalescing_decay_now(pool);
    }
}

/* ext_trim_memory of the pool. */
umf_result_t umf_coalescing_trim(void *pool, size_t keep);

#endif
