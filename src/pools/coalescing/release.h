/* What a coalescing pool does not need goes back to the provider. */
#ifndef UMF_SRC_POOLS_COALESCING_RELEASE_H
#define UMF_SRC_POOLS_COALESCING_RELEASE_H

#include "pools/coalescing/shards.h"

/* One of the wholly free spans of a shard. */
typedef struct umf_coalescing_choice_t {
    size_t limit;
    uintptr_t base;
    size_t size; /* 0: none yet */
} umf_coalescing_choice_t;

/* Gives up to `bytes` of wholly free spans back, in large steps; until the provider refuses. */
UMF_COLD void umf_coalescing_release(umf_coalescing_pool_t *pool, size_t bytes);
/* A span has become wholly free: may it be kept? */
UMF_COLD void umf_coalescing_release_surplus(umf_coalescing_pool_t *pool,
                                             umf_coalescing_shard_t *shard, uintptr_t base);

/* A trim has the free piece at `ptr` in hand. */
bool umf_coalescing_is_isolated_locked(umf_coalescing_shard_t *shard, const void *ptr);
/* Is any piece in hand, so that memory may be free in a moment? */
bool umf_coalescing_is_trim_at_work(umf_coalescing_pool_t *pool);

/* An operation of pools. */
umf_result_t umf_coalescing_trim(void *pool, size_t keep);

#endif
