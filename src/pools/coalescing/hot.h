/*
 * Blocks that go and come again and again.
 *
 * A thread that gets the very block back that it has just freed is likely to go on like that. Such
 * a block is parked when it is freed the next time (ds/range.h): it waits for its thread, which
 * takes it again without the lock. All parked blocks are reclaimed before a request is said not to
 * fit, before spans are given back and before anything is counted, so nobody can tell them from
 * free ones; and a second free of one is refused as any other. Nothing is parked where free spans
 * are not all kept.
 */
#ifndef UMF_SRC_POOLS_COALESCING_HOT_H
#define UMF_SRC_POOLS_COALESCING_HOT_H

#include "pools/coalescing/coalescing.h"

#define UMF_COALESCING_HOT_BLOCKS 8 /* per thread */

/* A block that a thread has freed, or has got back since. */
typedef struct umf_coalescing_hot_block_t {
    uintptr_t base; /* 0: none */
    size_t size;
    umf_range_ticket_t ticket; /* no claim: it was free when last seen */
    uint32_t part;             /* that gave the ticket */
    bool is_parked;            /* by this thread; others may have reclaimed it */
    bool is_recent;            /* used again since it was last up for replacement */
} umf_coalescing_hot_block_t;

typedef struct umf_coalescing_hot_blocks_t {
    umf_local_t head;
    uint32_t last;      /* used */
    uint32_t next;      /* to be replaced */
    uint32_t part;      /* where the thread allocates */
    uint32_t met;       /* how often the lock of that was taken */
    uint32_t elsewhere; /* how often others' parts had room */
    bool has_met;       /* another thread at a lock; it has got no span for that yet */
    bool is_of_part;    /* counted in the part's `threads` */
    bool has_others;    /* besides the last one, that may be parked */
    umf_coalescing_hot_block_t blocks[UMF_COALESCING_HOT_BLOCKS];
} umf_coalescing_hot_blocks_t;
_Static_assert(sizeof(umf_coalescing_hot_blocks_t) <= UMF_LOCAL_EMPTY_SIZE,
               "the empty block is too small");

/* The pool's blocks of threads. Undone by umf_local_owner_fini. */
umf_result_t umf_coalescing_hot_init(umf_coalescing_pool_t *pool);

/* Where a block that the calling thread is about to free to `part` may be noted: `found`, or if
 * that is NULL in the place of one that was not used lately. NULL if nothing is to be parked. */
umf_coalescing_hot_block_t *umf_coalescing_hot_room(umf_coalescing_pool_t *pool,
                                                    const umf_coalescing_part_t *part,
                                                    umf_coalescing_hot_block_t *found);
/* Gives its ticket back, which is of this part. */
void umf_coalescing_hot_forget_locked(umf_coalescing_part_t *part,
                                      umf_coalescing_hot_block_t *block);
/* The calling thread has taken a block of this part: one that it has freed lately is worth a
 * ticket. */
void umf_coalescing_hot_meet(umf_coalescing_pool_t *pool, umf_coalescing_part_t *part,
                             uintptr_t base, size_t size);

/* Makes free what is parked of this part, by all threads. Was there any? */
bool umf_coalescing_reclaim_locked(umf_coalescing_part_t *part);

/* A block was freed, and may come back. */
static inline void umf_coalescing_hot_note_locked(umf_coalescing_part_t *part,
                                                  umf_coalescing_hot_block_t *room, uintptr_t base,
                                                  size_t size) {
    if (room->ticket.claim) {
        umf_coalescing_hot_forget_locked(part, room);
    }
    *room = (umf_coalescing_hot_block_t){.base = base, .size = size};
}

static inline umf_coalescing_hot_blocks_t *
umf_coalescing_hot_blocks(const umf_coalescing_pool_t *pool) {
    return (umf_coalescing_hot_blocks_t *)umf_local_get(pool->hot.index);
}

/* NULL: there is none. */
static inline umf_coalescing_hot_block_t *umf_coalescing_hot_find(umf_coalescing_hot_blocks_t *hot,
                                                                  uintptr_t base) {
    for (uint32_t i = 0; i < UMF_COALESCING_HOT_BLOCKS; i++) {
        if (hot->blocks[i].base == base) {
            return &hot->blocks[i];
        }
    }
    return NULL;
}

static inline void *umf_coalescing_hot_try_take(umf_coalescing_hot_block_t *block, size_t size) {
    if (!block->is_parked || block->size != size) {
        return NULL;
    }
    block->is_parked = false;
    block->is_recent = true;
    return umf_likely(umf_range_unpark(&block->ticket)) ? (void *)block->base : NULL;
}

/* A parked block of just this size. Hot. */
static inline void *umf_coalescing_hot_take(const umf_coalescing_pool_t *pool, size_t size) {
    umf_coalescing_hot_blocks_t *hot = umf_coalescing_hot_blocks(pool);
    void *ptr = umf_coalescing_hot_try_take(&hot->blocks[hot->last], size);
    if (umf_likely(ptr != NULL) || !hot->has_others) {
        return ptr;
    }
    hot->has_others = false;
    for (uint32_t i = 0; !ptr && i < UMF_COALESCING_HOT_BLOCKS; i++) {
        hot->has_others |= hot->blocks[i].is_parked;
        ptr = umf_coalescing_hot_try_take(&hot->blocks[i], size);
        if (ptr) {
            hot->last = i;
        }
    }
    return ptr;
}

/* false: the block goes the usual way. `found` is the place where it is noted, or NULL. Hot. */
static inline bool umf_coalescing_hot_put(const umf_coalescing_pool_t *pool, const void *ptr,
                                          umf_coalescing_hot_block_t **found) {
    umf_coalescing_hot_blocks_t *hot = umf_coalescing_hot_blocks(pool);
    umf_coalescing_hot_block_t *block = &hot->blocks[hot->last];
    if (umf_unlikely(block->base != (uintptr_t)ptr)) {
        block = umf_coalescing_hot_find(hot, (uintptr_t)ptr);
        if (!block) {
            *found = NULL;
            return false;
        }
        hot->last = (uint32_t)(block - hot->blocks);
        hot->has_others = true;
    }
    *found = block;
    if (!block->ticket.claim || !umf_range_park(&block->ticket)) {
        return false;
    }
    block->is_parked = true;
    return true;
}

#endif
