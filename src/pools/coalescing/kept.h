/*
 * Small blocks that a thread of a coalescing pool keeps.
 *
 * The reuse slot (reuse.h) serves a thread that allocates again what it freed last. A thread that
 * frees many small blocks keeps them in magazines (cache/magazine.h), and its next request of their
 * size takes one without the lock. A kept block stays in its range as a reserved segment
 * (ds/range.h): whoever frees it again finds that, and to everybody else it is free. Kept blocks
 * are freed, and coalesce, before a larger request of their thread, before the pool grows, before a
 * request fails, with decay, with a trim and with their thread. They do not go to other threads.
 */
#ifndef UMF_SRC_POOLS_COALESCING_KEPT_H
#define UMF_SRC_POOLS_COALESCING_KEPT_H

#include "cache/magazine.h"
#include "pools/coalescing/coalescing.h"

#define UMF_KEPT_SIZE_MAX ((size_t)4096) /* larger blocks are not kept */
#define UMF_KEPT_BYTES ((size_t)1 << 20) /* of each size, for each thread */

/* A thread that has freed so many small blocks without keeping them gets a stack, or a larger one.
 */
#define UMF_KEPT_FREES 64u

typedef struct umf_coalescing_kept_t {
    umf_magazines_t magazines; /* a bin is granules, less one */
    umf_magazine_capacity_t capacity[UMF_MAGAZINE_MAX_BINS];
    size_t most;      /* bytes of a kept block. Immutable, as the next */
    unsigned granule; /* log2 */
} umf_coalescing_kept_t;

/* NULL: there is none yet. */
static inline umf_coalescing_kept_t *umf_coalescing_kept(const umf_coalescing_pool_t *pool) {
    return __atomic_load_n(&pool->kept, __ATOMIC_ACQUIRE);
}

static inline uint32_t umf_coalescing_kept_bin(const umf_coalescing_kept_t *kept, size_t size) {
    return (uint32_t)((size >> kept->granule) - 1);
}

/* Makes room for blocks of this size in the calling thread's stack. Call it with no lock held. */
UMF_COLD void umf_coalescing_kept_make_room(umf_coalescing_pool_t *pool, size_t size);
/* The end of the pool: all its memory goes with it. */
void umf_coalescing_kept_fini(umf_coalescing_pool_t *pool);

/* Frees what the calling thread keeps, and with `is_all` also what other threads keep. false: no
 * thread keeps anything. */
UMF_COLD bool umf_coalescing_kept_free(umf_coalescing_pool_t *pool, bool is_all);
/* Frees what all threads keep, and waits for threads that use their stacks, up to a second. For a
 * final retry (cache/transit.h), during which no thread keeps another block. Call it with no lock
 * held. */
UMF_COLD void umf_coalescing_kept_free_wait(umf_coalescing_pool_t *pool);
void umf_coalescing_kept_decay(umf_coalescing_pool_t *pool);

/* Blocks that all threads keep, and their bytes. */
typedef struct umf_coalescing_kept_count_t {
    size_t blocks, bytes;
} umf_coalescing_kept_count_t;
umf_coalescing_kept_count_t umf_coalescing_kept_count(const umf_coalescing_pool_t *pool);

/* A block that the calling thread keeps. NULL: it has none of this size. Hot. */
static inline void *umf_coalescing_kept_take(umf_coalescing_kept_t *kept, size_t size) {
    if (size > kept->most) {
        return NULL;
    }
    umf_item_t item = umf_magazine_pop_kept(&kept->magazines, umf_coalescing_kept_bin(kept, size));
    if (item.object) {
        umf_range_take_kept((uint32_t *)(void *)item.state);
    }
    return item.object;
}

/* Keeps a block instead of a free, if it is small and used, and there is room. Returns its size; 0:
 * it is to be freed, nothing has changed. Hot. */
static inline size_t umf_coalescing_kept_put_locked(umf_coalescing_kept_t *kept,
                                                    umf_coalescing_shard_t *shard, uintptr_t base) {
    umf_assert_locked(&shard->lock);
    umf_range_kept_t block = umf_range_keep(shard->range, base, kept->most);
    if (umf_unlikely(!block.word)) {
        return 0;
    }
    umf_item_t item = {.object = (void *)base, .state = (uint8_t *)block.word};
    if (umf_unlikely(!umf_magazine_try_keep(&kept->magazines,
                                            umf_coalescing_kept_bin(kept, block.size), item))) {
        umf_range_take_kept(block.word);
        return 0;
    }
    return block.size;
}

#endif
