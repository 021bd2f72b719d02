/*
 * Shards of a page cache.
 *
 * A cache begins with one shard. When threads meet there, that is when one that wants to take finds
 * the lock isolated by another that does, their number doubles, up to one for each CPU. Threads are
 * numbered as they come and belong to the shard of their number, so those that begin together are
 * apart at once; who meets another where there are enough shards moves on to the next. Who finds
 * the lock isolated by a thread that gives something back, or takes from here because its own shard
 * has nothing, waits.
 *
 * Who holds the lock of a shard does not take that of another.
 */
#ifndef UMF_SRC_POOLS_JEMALLOC_PAGES_SHARDS_H
#define UMF_SRC_POOLS_JEMALLOC_PAGES_SHARDS_H

#include "pools/jemalloc/pages.h"

/* Makes the first shard; needs no memory. */
void umf_pages_shards_init(umf_pages_t *pages);
/* The spans are gone. */
void umf_pages_shards_fini(umf_pages_t *pages);

/* The shard of the calling thread, locked, to take from. */
umf_pages_shard_t *umf_pages_shard_lock(umf_pages_t *pages);
umf_pages_shard_t *umf_pages_shard_own(const umf_pages_t *pages);

static inline uint32_t umf_pages_shard_count(const umf_pages_t *pages) {
    return atomic_load_explicit(&pages->shard_count, memory_order_acquire);
}

/* The shard that a piece belongs to. */
static inline umf_pages_shard_t *umf_pages_shard_of(umf_pages_t *pages, const void *ptr) {
    return umf_likely(umf_pages_shard_count(pages) == 1) ? &pages->first
                                                         : umf_pages_find(pages, ptr)->shard;
}

#endif
