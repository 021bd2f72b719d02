/*
 * Reuse slots of a coalescing pool: blocks that a thread frees and allocates again and again.
 *
 * A thread that allocates the very block that it has just freed is likely to repeat this. The next
 * free of such a block withholds it (ds/range.h), and its thread takes it back without the lock.
 * All withheld blocks are reclaimed before a request fails, before spans are given back and before
 * anything is counted, so users cannot tell them from free blocks. A second free of a withheld
 * block is refused like any other. Nothing is withheld if the pool does not keep all free spans
 * (`retain`).
 */
#ifndef UMF_SRC_POOLS_COALESCING_REUSE_H
#define UMF_SRC_POOLS_COALESCING_REUSE_H

#include "pools/coalescing/coalescing.h"

#define UMF_COALESCING_REUSE_SLOTS 8 /* per thread */

/* A block that a thread has freed, and may have allocated again since. */
typedef struct umf_coalescing_reuse_slot_t {
    uintptr_t base; /* 0: none */
    size_t size;
    /* generation 0: no lease, the block was free when last seen. Sync: the generation is written
     * atomically, because a trim reads it */
    umf_range_lease_t lease;
    uint32_t shard;   /* the shard that gave the lease */
    bool is_withheld; /* this thread withheld it; others may have reclaimed it since */
    bool is_recent;   /* reused since the search for a slot to replace last passed it */
} umf_coalescing_reuse_slot_t;

typedef struct umf_coalescing_reuse_slots_t {
    umf_thread_slot_t head;
    uint32_t last;        /* slot that was used last */
    uint32_t next;        /* slot to try to replace next */
    uint32_t shard;       /* where the thread allocates */
    uint32_t contentions; /* how often the thread found the lock of that shard taken */
    uint32_t elsewhere;   /* how often another thread's shard had room */
    bool is_contended;    /* it found a lock taken, and has not got a span for that yet */
    bool is_of_shard;     /* counted in the shard's `threads` */
    bool has_others;      /* slots other than `last` may have withheld blocks */
    umf_coalescing_reuse_slot_t blocks[UMF_COALESCING_REUSE_SLOTS];
} umf_coalescing_reuse_slots_t;
_Static_assert(sizeof(umf_coalescing_reuse_slots_t) <= UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block is too small");

/* Makes the pool's thread slots. umf_thread_slot_owner_fini undoes it. */
umf_result_t umf_coalescing_reuse_init(umf_coalescing_pool_t *pool);

/* The slot that shall record a block that the calling thread is about to free to `shard`: `found`,
 * or if that is NULL a slot that was not used recently. NULL: nothing is to be withheld. */
umf_coalescing_reuse_slot_t *umf_coalescing_reuse_room(umf_coalescing_pool_t *pool,
                                                       const umf_coalescing_shard_t *shard,
                                                       umf_coalescing_reuse_slot_t *found);
/* Ends the block's lease, which this shard gave, and empties the slot. */
void umf_coalescing_reuse_forget_locked(umf_coalescing_shard_t *shard,
                                        umf_coalescing_reuse_slot_t *block);
/* The calling thread has taken a block of this shard. If it freed the same block recently, the
 * block gets a lease. */
void umf_coalescing_reuse_note(umf_coalescing_pool_t *pool, umf_coalescing_shard_t *shard,
                               uintptr_t base, size_t size);

/* Frees the blocks of this shard that any thread withholds, and what a trim of the parent process
 * has isolated. false: there was nothing. */
bool umf_coalescing_reclaim_locked(umf_coalescing_shard_t *shard);

static inline void umf_coalescing_reuse_set_lease(umf_coalescing_reuse_slot_t *block,
                                                  umf_range_lease_t lease) {
    __atomic_store_n(&block->lease.generation, lease.generation, __ATOMIC_RELAXED);
    block->lease.number = lease.number;
}

/* Tells the range, under its lock, which leases threads hold. */
void umf_coalescing_reuse_keep_leases(umf_coalescing_pool_t *pool, umf_coalescing_shard_t *shard);

/* Records a freed block in `room`: its thread may allocate it again. */
static inline void umf_coalescing_reuse_note_locked(umf_coalescing_shard_t *shard,
                                                    umf_coalescing_reuse_slot_t *room,
                                                    uintptr_t base, size_t size) {
    if (room->lease.generation) {
        umf_coalescing_reuse_forget_locked(shard, room);
    }
    umf_coalescing_reuse_set_lease(room, (umf_range_lease_t){0});
    room->base = base;
    room->size = size;
    room->is_withheld = false;
    room->is_recent = false;
}

static inline umf_coalescing_reuse_slots_t *
umf_coalescing_reuse_slots(const umf_coalescing_pool_t *pool) {
    return (umf_coalescing_reuse_slots_t *)umf_thread_slot_get(pool->slots.index);
}

/* The slot that records the block at `base`; NULL: there is none. */
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
    /* Fails if another thread has reclaimed the block: the lease tells. */
    return umf_likely(umf_range_take_back(&block->lease)) ? (void *)block->base : NULL;
}

/* Takes a withheld block of exactly this size; NULL: there is none. Hot. */
static inline void *umf_coalescing_reuse_take(const umf_coalescing_pool_t *pool, size_t size) {
    umf_coalescing_reuse_slots_t *slots = umf_coalescing_reuse_slots(pool);
    void *ptr = umf_coalescing_reuse_try_take(&slots->blocks[slots->last], size);
    if (umf_likely(ptr != NULL) || !slots->has_others) {
        return ptr;
    }
    /* The search corrects `has_others`, so that a thread without withheld blocks searches once. */
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

/* Withholds the block. false: it must be freed under the lock; `found` is then the slot that
 * records it, or NULL. Hot. */
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
