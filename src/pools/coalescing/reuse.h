/*
 * The reuse slot of a thread in a coalescing pool: one block that it frees and allocates again and
 * again.
 *
 * A thread that allocates the very block that it has just freed is likely to repeat this. The next
 * free of such a block reserves it (ds/range.h), and its thread takes it back without the lock.
 * All reserved blocks are reclaimed before a request fails, before spans are given back and before
 * anything is counted, so they look like free blocks to users. A second free of a reserved
 * block is refused like any other. Nothing is reserved if the pool does not keep all free spans
 * (`retain`).
 *
 * Without it a large pair would take 541 instructions (111) and 65 ns (17). With eight slots for
 * each thread every other free would take a tenth longer.
 */
#ifndef UMF_SRC_POOLS_COALESCING_REUSE_H
#define UMF_SRC_POOLS_COALESCING_REUSE_H

#include "pools/coalescing/coalescing.h"

/* State of a thread in a pool. */
typedef struct umf_coalescing_thread_t {
    umf_thread_slot_t head;
    uint32_t shard;     /* where the thread allocates */
    uint32_t elsewhere; /* how often another thread's shard had room */
    bool is_contended;  /* it found a lock taken, and has not got a span for that yet */
    bool is_of_shard;   /* counted in the shard's `threads` */
    /* The reuse slot: the block that the thread has freed last, and may have allocated again. */
    bool is_reserved; /* this thread reserved it; others may have reclaimed it since */
    uintptr_t base;   /* 0: none */
    size_t size;
    /* generation 0: no lease, the block was free when last seen. Sync: the generation is written
     * atomically, because a trim reads it */
    umf_range_lease_t lease;
    uint32_t lease_shard; /* the shard that gave it */
} umf_coalescing_thread_t;
_Static_assert(sizeof(umf_coalescing_thread_t) <= UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block is too small");

/* Makes the pool's thread slots. umf_thread_slot_owner_fini undoes it. */
umf_result_t umf_coalescing_reuse_init(umf_coalescing_pool_t *pool);

/* The calling thread, which is about to free a block to `shard`, if its slot may record that. NULL:
 * nothing is to be reserved. */
umf_coalescing_thread_t *umf_coalescing_reuse_room(umf_coalescing_pool_t *pool,
                                                   const umf_coalescing_shard_t *shard);
/* Records a freed block in the slot that _room returned: its thread may allocate it again. */
void umf_coalescing_reuse_note_locked(umf_coalescing_shard_t *shard,
                                      umf_coalescing_thread_t *thread, uintptr_t base, size_t size);
/* The calling thread has taken a block of this shard. If it freed the same block recently, the
 * block gets a lease. */
void umf_coalescing_reuse_note(umf_coalescing_pool_t *pool, umf_coalescing_shard_t *shard,
                               uintptr_t base, size_t size);

/* Frees the blocks of this shard that any thread reserves, and blocks that a trim of the parent
 * process has isolated. false: there was nothing. */
bool umf_coalescing_reclaim_locked(umf_coalescing_shard_t *shard);

/* Tells the range, under its lock, which leases threads hold. */
void umf_coalescing_reuse_keep_leases(umf_coalescing_pool_t *pool, umf_coalescing_shard_t *shard);

static inline umf_coalescing_thread_t *umf_coalescing_thread(const umf_coalescing_pool_t *pool) {
    return (umf_coalescing_thread_t *)umf_thread_slot_get(pool->slots.index);
}

/* Takes the reserved block, if it has exactly this size. Hot. */
static inline void *umf_coalescing_reuse_take(const umf_coalescing_pool_t *pool, size_t size) {
    umf_coalescing_thread_t *thread = umf_coalescing_thread(pool);
    if (!thread->is_reserved || thread->size != size) {
        return NULL;
    }
    thread->is_reserved = false;
    /* Fails if another thread has reclaimed the block: the lease shows it. */
    return umf_likely(umf_range_take_back(&thread->lease)) ? (void *)thread->base : NULL;
}

/* Reserves the block. false: it must be freed under the lock. Hot. */
static inline bool umf_coalescing_reuse_put(const umf_coalescing_pool_t *pool, const void *ptr) {
    umf_coalescing_thread_t *thread = umf_coalescing_thread(pool);
    if (thread->base != (uintptr_t)ptr || !thread->lease.generation ||
        !umf_range_reserve(&thread->lease)) {
        return false;
    }
    thread->is_reserved = true;
    return true;
}

#endif
