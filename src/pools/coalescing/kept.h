/*
 * Small blocks that a thread of a coalescing pool keeps.
 *
 * The reuse slot (reuse.h) serves a thread that allocates again what it freed last. A thread that
 * frees many small blocks keeps them: such a block stays reserved by a hold (ds/range.h), and the
 * thread's next request of its size takes it without the lock. To everybody else kept blocks are
 * free, as reserved ones are: they are reclaimed before a request fails, before spans are given
 * back and before anything is counted, and coalesce then. Blocks that other threads allocate and
 * this one frees are kept, too.
 *
 * The blocks of a thread are in a table of sets: the hash of the address chooses the set, and a set
 * is one cache line. A block stays in the table while a user has it, so that the next free finds
 * it. It leaves the table when another block needs the place, or when another thread frees it.
 */
#ifndef UMF_SRC_POOLS_COALESCING_KEPT_H
#define UMF_SRC_POOLS_COALESCING_KEPT_H

#include "pools/coalescing/coalescing.h"

#define UMF_KEPT_SIZE_MAX ((size_t)4096) /* larger blocks are not kept */
#define UMF_KEPT_CLASSES 64              /* nor those of more granules */
#define UMF_KEPT_WAYS 4
#define UMF_KEPT_SETS_LOG 10
#define UMF_KEPT_SETS (1u << UMF_KEPT_SETS_LOG)
#define UMF_KEPT_BLOCKS (UMF_KEPT_SETS * UMF_KEPT_WAYS)

/* A thread that has freed so many small blocks under the lock gets a table. */
#define UMF_KEPT_FREES 256u
/* A thread that has kept so many further blocks and takes none, because it frees what others
 * allocate, keeps only one of UMF_KEPT_SELDOM. */
#define UMF_KEPT_UNTAKEN 1024u
#define UMF_KEPT_SELDOM 64u

/* Values of `next` and `top` that are no block; a block is its number + 1. */
#define UMF_KEPT_IN_NO_STACK 0u
#define UMF_KEPT_END UINT16_MAX
_Static_assert(UMF_KEPT_BLOCKS < UMF_KEPT_END, "a block has a number");

/* Only the thread writes. Another thread reads base and shard of a block whose hold reserves it. */
typedef struct umf_kept_block_t {
    uintptr_t base;   /* 0: no block was here so far. Sync: the lock of the shard */
    uint32_t hold;    /* Sync: atomic, see ds/range.h */
    uint16_t next;    /* in the stack of the block's size */
    uint8_t granules; /* of the block */
    uint8_t shard;    /* Sync: atomic, relaxed; written before the hold */
} umf_kept_block_t;
_Static_assert(UMF_KEPT_WAYS * sizeof(umf_kept_block_t) == 64, "a set is one cache line");

typedef struct umf_kept_t {
    uint16_t top[UMF_KEPT_CLASSES + 1]; /* of the stack of each size */
    uint32_t untaken;                   /* blocks added since one was taken */
    uint8_t turn;                       /* which block of a full set makes room */
    /* By shard: how many blocks the thread has kept so far, and the value at the last reclaim: if
     * both are equal there is nothing to reclaim. */
    uint32_t puts[UMF_COALESCING_SHARDS_MAX]; /* Sync: atomic, only the thread writes */
    uint32_t seen[UMF_COALESCING_SHARDS_MAX]; /* Sync: THREAD_SLOT lock */
    _Alignas(64) umf_kept_block_t blocks[UMF_KEPT_BLOCKS]; /* sets of UMF_KEPT_WAYS */
} umf_kept_t;

/* NULL when out of memory. */
UMF_COLD umf_kept_t *umf_kept_create(void);
void umf_kept_destroy(umf_kept_t *kept); /* NULL: does nothing */

/* Does the thread take what it keeps? If not it keeps few. */
static inline bool umf_kept_may_add(umf_kept_t *kept) {
    return umf_likely(kept->untaken < UMF_KEPT_UNTAKEN) || ++kept->untaken % UMF_KEPT_SELDOM == 0;
}

/* Keeps the block at `ptr` instead of a free, if it is small and used, and there is room. false: it
 * is to be freed, nothing has changed. */
bool umf_kept_add_locked(umf_kept_t *kept, umf_coalescing_shard_t *shard, uintptr_t ptr,
                         size_t most, unsigned granule_log);
/* Frees the blocks of this shard that are kept now. Returns how many. */
size_t umf_kept_reclaim_locked(umf_kept_t *kept, umf_coalescing_shard_t *shard);
/* Frees all blocks of the calling thread. */
void umf_kept_leave(umf_kept_t *kept, umf_coalescing_pool_t *pool);

/* The set of a block that starts at `base`. */
static inline umf_kept_block_t *umf_kept_set_of(umf_kept_t *kept, uintptr_t base) {
    uint64_t hash = (uint64_t)base * UINT64_C(0x9E3779B97F4A7C15);
    return &kept->blocks[(hash >> (64 - UMF_KEPT_SETS_LOG)) * UMF_KEPT_WAYS];
}

static inline void umf_kept_push(umf_kept_t *kept, umf_kept_block_t *block) {
    uint16_t *top = &kept->top[block->granules];
    block->next = *top;
    *top = (uint16_t)(block - kept->blocks + 1);
}

/* The count is written last: who sees it sees the block. */
static inline void umf_kept_note_put(umf_kept_t *kept, unsigned shard) {
    __atomic_store_n(&kept->puts[shard], kept->puts[shard] + 1, __ATOMIC_RELEASE);
}

/* A kept block of this size. NULL: there is none. Hot. */
static inline void *umf_kept_take(umf_kept_t *kept, size_t granules) {
    uint16_t *top = &kept->top[granules];
    while (*top != UMF_KEPT_END) {
        umf_kept_block_t *block = &kept->blocks[*top - 1u];
        *top = block->next;
        block->next = UMF_KEPT_IN_NO_STACK;
        if (umf_likely(umf_range_hold_take(&block->hold))) {
            kept->untaken = 0;
            return (void *)block->base;
        }
        /* It was reclaimed meanwhile. */
    }
    return NULL;
}

/* Keeps a block that is in the table and used. false: it is not. Hot. */
static inline bool umf_kept_put(umf_kept_t *kept, uintptr_t ptr) {
    umf_kept_block_t *block = umf_kept_set_of(kept, ptr);
    for (const umf_kept_block_t *end = block + UMF_KEPT_WAYS; block->base != ptr;) {
        if (++block == end) {
            return false;
        }
    }
    if (umf_unlikely(!umf_range_hold_reserve(&block->hold))) {
        return false;
    }
    umf_kept_note_put(kept, __atomic_load_n(&block->shard, __ATOMIC_RELAXED));
    umf_kept_push(kept, block);
    return true;
}

#endif
