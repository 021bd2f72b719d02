/*
 * Shards of a coalescing pool.
 *
 * A pool begins with one shard, where every thread allocates. Threads that meet at its lock go
 * apart: to a shard where nobody is, else to a new one, at most one for each CPU, else to where
 * fewer are. A thread that often finds the lock taken although nobody else allocates there, because
 * others free its blocks, goes on to a shard where nobody is, too. As soon as there are several
 * shards a thread begins where the fewest are.
 *
 * A block goes back into the shard it came from, which its span tells. Who holds the lock of a
 * shard does not wait for that of another.
 */
#ifndef UMF_SRC_POOLS_COALESCING_SHARDS_H
#define UMF_SRC_POOLS_COALESCING_SHARDS_H

#include "core/tracked_provider.h"
#include "pools/coalescing/reuse.h"

/* Makes the first shard. */
umf_result_t umf_coalescing_shards_init(umf_coalescing_pool_t *pool);
void umf_coalescing_shards_fini(umf_coalescing_pool_t *pool);

/* The shard where the calling thread, which is in none so far, is from now on. */
UMF_COLD umf_coalescing_shard_t *umf_coalescing_shard_enter(umf_coalescing_pool_t *pool);
/* The calling thread's shard, whose lock was taken, or another that is its shard from then on;
 * locked. */
UMF_COLD umf_coalescing_shard_t *umf_coalescing_shard_contended(umf_coalescing_pool_t *pool,
                                                                umf_coalescing_shard_t *own);
/* The calling thread has found room in this shard: it stays if nobody else is there. If others are,
 * it will meet them sooner or later: now and then this counts as having met. */
void umf_coalescing_shard_found(umf_coalescing_pool_t *pool, umf_coalescing_shard_t *shard);
/* The calling thread has met another at the lock of a shard that is not its own. */
void umf_coalescing_shard_note_contention(const umf_coalescing_pool_t *pool);
/* Has it met any since this was last asked? */
bool umf_coalescing_shard_is_contended(const umf_coalescing_pool_t *pool);
/* The thread of these blocks ends. */
void umf_coalescing_shard_leave(umf_coalescing_pool_t *pool, umf_coalescing_reuse_slots_t *slots);

/* Asks every shard under its lock; `count` changes the total, which is 0 at first. */
size_t umf_coalescing_count(umf_coalescing_pool_t *pool,
                            void (*count)(const umf_coalescing_shard_t *shard, size_t *total));

/* Makes free what is withheld, of all shards: comes before what counts free memory. */
void umf_coalescing_reclaim(umf_coalescing_pool_t *pool);

static inline umf_coalescing_shard_t *umf_coalescing_shard(const umf_coalescing_pool_t *pool,
                                                           size_t index) {
    return __atomic_load_n(&pool->shards[index], __ATOMIC_ACQUIRE);
}

/* The shard after this one; the first after the last. */
static inline umf_coalescing_shard_t *
umf_coalescing_shard_next(const umf_coalescing_pool_t *pool, const umf_coalescing_shard_t *shard) {
    umf_coalescing_shard_t *next = umf_coalescing_shard(pool, shard->index + 1);
    return next ? next : umf_coalescing_shard(pool, 0);
}

static inline umf_coalescing_shard_t *umf_coalescing_shard_lock(umf_coalescing_pool_t *pool) {
    const umf_coalescing_reuse_slots_t *slots = umf_coalescing_reuse_slots(pool);
    umf_coalescing_shard_t *own = umf_coalescing_shard(pool, slots->shard);
    if (umf_unlikely(umf_coalescing_shard(pool, 1) != NULL) && umf_unlikely(!slots->is_of_shard)) {
        own = umf_coalescing_shard_enter(pool);
    }
    return umf_likely(umf_trylock(&own->lock)) ? own : umf_coalescing_shard_contended(pool, own);
}

/* The span, which is wholly free, is this shard's from now on. */
static inline void umf_coalescing_shard_own(const umf_coalescing_shard_t *shard, umf_span_t *span) {
    __atomic_store_n(&span->cookie, (void *)(uintptr_t)shard->index, __ATOMIC_RELAXED);
}

/*
 * The shard to ask for a block at `ptr`, whose entry is `entry` or, if that is 0, not looked up
 * yet. For a wrong pointer it is any shard, which does not know the block: by then the span may be
 * somebody else's.
 */
static inline umf_coalescing_shard_t *
umf_coalescing_shard_of(const umf_coalescing_pool_t *pool, const void *ptr, umf_map_entry_t entry) {
    umf_coalescing_shard_t *first = umf_coalescing_shard(pool, 0);
    if (umf_likely(!umf_coalescing_shard(pool, 1))) {
        return first;
    }
    const umf_span_t *span =
        entry ? umf_span_at(umf_map_entry_span(entry)) : umf_tracked_find(pool->tracked, ptr);
    uintptr_t index = span ? (uintptr_t)__atomic_load_n(&span->cookie, __ATOMIC_RELAXED) : 0;
    umf_coalescing_shard_t *shard =
        index < UMF_COALESCING_SHARDS_MAX ? umf_coalescing_shard(pool, index) : NULL;
    return shard ? shard : first;
}

#endif
