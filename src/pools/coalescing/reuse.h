/*
 * Blocks that go and come again and again.
 *
 * A thread that gets the very block back that it has just freed is likely to go on like that. Such
 * a block is withheld when it is freed the next time (ds/range.h): it waits for its thread, which
 * takes it again without the lock. All withheld blocks are reclaimed before a request is said not
 * to fit, before spans are given back and before anything is counted, so nobody can tell them from
 * free ones; and a second free of one is refused as any other. Nothing is withheld where free spans
 * are not all kept.
 */
#ifndef UMF_SRC_POOLS_COALESCING_REUSE_H
#define UMF_SRC_POOLS_COALESCING_REUSE_H

#include "pools/coalescing/coalescing.h"

#define UMF_COALESCING_REUSE_SLOTS 8 /* per thread */

/* A block that a thread has freed, or has got back since. */
typedef struct umf_coalescing_reuse_slot_t {
    uintptr_t base; /* 0: none */
    size_t size;
    umf_range_lease_t lease; /* no generation: it was free when last seen */
    uint32_t shard;          /* that gave the lease */
    bool is_withheld;        /* by this thread; others may have reclaimed it */
    bool is_recent;          /* used again since it was last up for replacement */
} umf_coalescing_reuse_slot_t;

typedef struct umf_coalescing_reuse_slots_t {
    umf_thread_slot_t head;
    uint32_t last;        /* used */
    uint32_t next;        /* to be replaced */
    uint32_t shard;       /* where the thread allocates */
    uint32_t contentions; /* how often the lock of that was taken */
    uint32_t elsewhere;   /* how often others' shards had room */
    bool is_contended;    /* another thread at a lock; it has got no span for that yet */
    bool is_of_shard;     /* counted in the shard's `threads` */
    bool has_others;      /* besides the last one, that may be withheld */
    umf_coalescing_reuse_slot_t blocks[UMF_COALESCING_REUSE_SLOTS];
} umf_coalescing_reuse_slots_t;
_Static_assert(sizeof(umf_coalescing_reuse_slots_t) <= UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block is too small");

/* The pool's blocks of threads. Undone by umf_thread_slot_owner_fini. */
umf_result_t umf_coalescing_reuse_init(umf_coalescing_pool_t *pool);

/* Where a block that the calling thread is about to free to `shard` may be noted: `found`, or if
 * that is NULL in the place of one that was not used lately. NULL if nothing is to be withheld. */
umf_coalescing_reuse_slot_t *umf_coalescing_reuse_room(umf_coalescing_pool_t *pool,
                                                       const umf_coalescing_shard_t *shard,
                                                       umf_coalescing_reuse_slot_t *found);
/* Gives its lease back, which is of this shard. */
void umf_coalescing_reuse_forget_locked(umf_coalescing_shard_t *shard,
                                        umf_coalescing_reuse_slot_t *block);
/* The calling thread has taken a block of this shard: one that it has freed lately is worth a
 * lease. */
void umf_coalescing_reuse_note(umf_coalescing_pool_t *pool, umf_coalescing_shard_t *shard,
                               uintptr_t base, size_t size);

/* Makes free what is withheld of this shard, by all threads. Was there any? */
bool umf_coalescing_reclaim_locked(umf_coalescing_shard_t *shard);

/* A block was freed, and may come back. */
static inline void umf_coalescing_reuse_note_locked(umf_coalescing_shard_t *shard,
                                                    umf_coalescing_reuse_slot_t *room,
                                                    uintptr_t base, size_t size) {
    if (room->lease.generation) {
        umf_coalescing_reuse_forget_locked(shard, room);
    }
    *room = (umf_coalescing_reuse_slot_t){.base = base, .size = size};
}

static inline umf_coalescing_reuse_slots_t *
umf_coalescing_reuse_slots(const umf_coalescing_pool_t *pool) {
    return (umf_coalescing_reuse_slots_t *)umf_thread_slot_get(pool->slots.index);
}

/* NULL: there is none. */
static inline umf_coalescing_reuse_slot_t *
umf_coalescing_reuse_find(umf_coalescing_reuse_slots_t *slots, uintptr_t base) {
    for (uint32_t i = 0; i < UMF_COALESCING_REUSE_SLOTS; i++) {
        if (slots->blocks[i].base == base) {
            return &slots->blocks[i];
        }
    }
    return NULL;
}

static inline void *umf_coalescing_reuse_try_take(umf_coalescing_reuse_slot_t *block, size_t size) {
    if (!block->is_withheld || block->size != size) {
        return NULL;
    }
    block->is_withheld = false;
    block->is_recent = true;
    return umf_likely(umf_range_take_back(&block->lease)) ? (void *)block->base : NULL;
}

/* A withheld block of just this size. Hot. */
static inline void *umf_coalescing_reuse_take(const umf_coalescing_pool_t *pool, size_t size) {
    umf_coalescing_reuse_slots_t *slots = umf_coalescing_reuse_slots(pool);
    void *ptr = umf_coalescing_reuse_try_take(&slots->blocks[slots->last], size);
    if (umf_likely(ptr != NULL) || !slots->has_others) {
        return ptr;
    }
    slots->has_others = false;
    for (uint32_t i = 0; !ptr && i < UMF_COALESCING_REUSE_SLOTS; i++) {
        slots->has_others |= slots->blocks[i].is_withheld;
        ptr = umf_coalescing_reuse_try_take(&slots->blocks[i], size);
        if (ptr) {
            slots->last = i;
        }
    }
    return ptr;
}

/* false: the block goes the usual way. `found` is the place where it is noted, or NULL. Hot. */
static inline bool umf_coalescing_reuse_put(const umf_coalescing_pool_t *pool, const void *ptr,
                                            umf_coalescing_reuse_slot_t **found) {
    umf_coalescing_reuse_slots_t *slots = umf_coalescing_reuse_slots(pool);
    umf_coalescing_reuse_slot_t *block = &slots->blocks[slots->last];
    if (umf_unlikely(block->base != (uintptr_t)ptr)) {
        block = umf_coalescing_reuse_find(slots, (uintptr_t)ptr);
        if (!block) {
            *found = NULL;
            return false;
        }
        slots->last = (uint32_t)(block - slots->blocks);
        slots->has_others = true;
    }
    *found = block;
    if (!block->lease.generation || !umf_range_withhold(&block->lease)) {
        return false;
    }
    block->is_withheld = true;
    return true;
}

#endif
