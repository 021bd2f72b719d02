/*
 * Shards of a coalescing pool.
 *
 * A pool begins with one shard, where every thread allocates. A thread that contends for its lock
 * migrates: to a shard without threads, else to a new shard (at most one for each CPU), else to a
 * shard with fewer threads. As soon as there are several shards, a new thread starts in the one
 * with the fewest threads.
 *
 * A block goes back into the shard it came from, which its span records. A thread that holds the
 * lock of a shard does not wait for the lock of another.
 */
#ifndef UMF_SRC_POOLS_COALESCING_SHARDS_H
#define UMF_SRC_POOLS_COALESCING_SHARDS_H

#include "object/provider/tracked_provider.h"
#include "pools/coalescing/reuse.h"

/* Makes the first shard. */
umf_result_t umf_coalescing_shards_init(umf_coalescing_pool_t *pool);
void umf_coalescing_shards_fini(umf_coalescing_pool_t *pool);

/* For purges of all shards. */
umf_purge_part_t *umf_coalescing_shard_part(void *pool, uint32_t index);

/* Chooses a shard for the calling thread, which has none so far. */
UMF_COLD umf_coalescing_shard_t *umf_coalescing_shard_enter(umf_coalescing_pool_t *pool);
/* The calling thread found the lock of its shard `own` taken. Returns that shard, or another one
 * that is the thread's shard from now on; locked. */
UMF_COLD umf_coalescing_shard_t *umf_coalescing_shard_contended(umf_coalescing_pool_t *pool,
                                                                umf_coalescing_shard_t *own);
/* The calling thread has found room in this shard of others. If no thread allocates there, it
 * migrates to it. Otherwise it will contend there sooner or later: every so often this counts as a
 * contention. */
void umf_coalescing_shard_found(umf_coalescing_pool_t *pool, umf_coalescing_shard_t *shard);
/* The calling thread has found the lock of another thread's shard taken. */
void umf_coalescing_shard_note_contention(const umf_coalescing_pool_t *pool);
/* Has the calling thread contended since the last call? */
bool umf_coalescing_shard_is_contended(const umf_coalescing_pool_t *pool);
/* The thread ends: it is no longer counted in its shard. */
void umf_coalescing_shard_leave(umf_coalescing_pool_t *pool, umf_coalescing_thread_t *thread);

/* Calls `count` for every shard under its lock. `count` changes the total, which is 0 at first. */
size_t umf_coalescing_count(umf_coalescing_pool_t *pool,
                            void (*count)(const umf_coalescing_shard_t *shard, size_t *total));

/* Bytes of all spans. */
size_t umf_coalescing_bytes(umf_coalescing_pool_t *pool);
size_t umf_coalescing_shards(const umf_coalescing_pool_t *pool);

/* Frees the reserved blocks of all shards. Call it before free memory is counted. */
void umf_coalescing_reclaim(umf_coalescing_pool_t *pool);

static inline umf_coalescing_shard_t *umf_coalescing_shard(const umf_coalescing_pool_t *pool,
                                                           size_t index) {
    return __atomic_load_n(&pool->shards[index], __ATOMIC_ACQUIRE);
}

/* The shard after this one. The first follows the last. */
static inline umf_coalescing_shard_t *
umf_coalescing_shard_next(const umf_coalescing_pool_t *pool, const umf_coalescing_shard_t *shard) {
    umf_coalescing_shard_t *next = umf_coalescing_shard(pool, shard->index + 1);
    return next ? next : umf_coalescing_shard(pool, 0);
}

/* The shard of the calling thread, locked. */
static inline umf_coalescing_shard_t *
umf_coalescing_shard_lock(umf_coalescing_pool_t *pool, const umf_coalescing_thread_t *thread) {
    umf_coalescing_shard_t *own = umf_coalescing_shard(pool, thread->shard);
    if (umf_unlikely(umf_coalescing_shard(pool, 1) != NULL) && umf_unlikely(!thread->is_of_shard)) {
        own = umf_coalescing_shard_enter(pool);
    }
    return umf_likely(umf_trylock(&own->lock)) ? own : umf_coalescing_shard_contended(pool, own);
}

/* The span, which is wholly free, belongs to this shard from now on. */
static inline void umf_coalescing_shard_own(const umf_coalescing_shard_t *shard, umf_span_t *span) {
    __atomic_store_n(&span->cookie, (void *)(uintptr_t)shard->index, __ATOMIC_RELAXED);
}

/*
 * The shard of the block at `ptr`. `entry` is its map entry, or 0 if it is not looked up yet. For a
 * wrong pointer it is any shard, which does not have the block: the span may belong to another pool
 * by now.
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
