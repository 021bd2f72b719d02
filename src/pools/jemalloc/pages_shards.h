/*
 * Shards of a page cache.
 *
 * A cache begins with one shard. Two threads contend if one takes and finds the lock held
 * by another that takes from its own shard. The number of shards then doubles, up to one for each
 * CPU. Threads are numbered as they come and belong to the shard of their number, so threads that
 * start together are in different shards at once. If there are enough shards already, a thread that
 * contends migrates to the next shard. A thread only waits if the holder of the lock gives memory
 * back, or takes from this shard because its own has nothing.
 *
 * A thread that holds the lock of a shard does not take the lock of another.
 */
#ifndef UMF_SRC_POOLS_JEMALLOC_PAGES_SHARDS_H
#define UMF_SRC_POOLS_JEMALLOC_PAGES_SHARDS_H

#include "pools/jemalloc/pages.h"
#include "system/atomic.h"

/* Makes the first shard. Allocates nothing. */
void umf_pages_shards_init(umf_pages_t *pages);
/* Frees the shards. Their spans must be gone. */
void umf_pages_shards_fini(umf_pages_t *pages);

/* The shard of the calling thread, locked, to take from it. */
umf_pages_shard_t *umf_pages_shard_lock(umf_pages_t *pages);
/* The same, without its lock. */
umf_pages_shard_t *umf_pages_shard_own(const umf_pages_t *pages);

static inline uint32_t umf_pages_shard_count(const umf_pages_t *pages) {
    return atomic_load_explicit(&pages->shard_count, memory_order_acquire);
}

/* The shard that a segment belongs to. */
static inline umf_pages_shard_t *umf_pages_shard_of(umf_pages_t *pages, const void *ptr) {
    return umf_likely(umf_pages_shard_count(pages) == 1) ? &pages->first
                                                         : umf_pages_find(pages, ptr)->shard;
}

#endif
