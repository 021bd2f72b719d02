/*
 * The reuse slot of a thread in a coalescing pool: one block that it frees and allocates again and
 * again. Of small blocks a thread may keep many (kept.h).
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

#include "pools/coalescing/kept.h"

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
    uint32_t small_frees; /* of small blocks that were not kept */
    uint8_t again;        /* how often the thread kept and took `base`, and nothing else */
    bool has_kept;        /* blocks since it last freed all that it keeps */
    bool has_taken;       /* one of them */
    bool is_full;         /* keeping one failed or was of no use, and the thread took none since */
} umf_coalescing_thread_t;
_Static_assert(sizeof(umf_coalescing_thread_t) <= UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block is too small");

/* Makes the pool's thread slots. umf_thread_slot_owner_fini undoes it. */
umf_result_t umf_coalescing_reuse_init(umf_coalescing_pool_t *pool);

/* Prepares the thread's slot for a free to `shard`. Returns the thread; NULL: it has no slot. */
UMF_COLD umf_coalescing_thread_t *umf_coalescing_reuse_prepare(umf_coalescing_pool_t *pool,
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

/* The calling thread has taken a block that it keeps. If it has done this with the same block and
 * no other one before, the block gets a lease. */
UMF_COLD void umf_coalescing_reuse_again(umf_coalescing_pool_t *pool,
                                         umf_coalescing_thread_t *thread);

/* Frees all blocks that the calling thread keeps. */
UMF_COLD void umf_coalescing_reuse_join(umf_coalescing_pool_t *pool,
                                        umf_coalescing_thread_t *thread);

/* Tells the range, under its lock, which leases threads hold. */
void umf_coalescing_reuse_keep_leases(umf_coalescing_pool_t *pool, umf_coalescing_shard_t *shard);

static inline umf_coalescing_thread_t *umf_coalescing_thread(const umf_coalescing_pool_t *pool) {
    return (umf_coalescing_thread_t *)umf_thread_slot_get(pool->slots.index);
}

/* The calling thread, which is about to free a block to `shard`, if its slot may record that. NULL:
 * nothing is to be reserved or kept. */
static inline umf_coalescing_thread_t *
umf_coalescing_reuse_room(umf_coalescing_pool_t *pool, const umf_coalescing_shard_t *shard) {
    /* A pool that gives free spans back must see every free: a reserved block would keep its span
     * in use. */
    if (umf_unlikely(pool->params.retain != SIZE_MAX)) {
        return NULL;
    }
    umf_coalescing_thread_t *thread = umf_coalescing_thread(pool);
    bool is_ready = umf_likely(thread->head.owner != NULL) && !thread->lease.generation &&
                    umf_likely(thread->small_frees < UMF_KEPT_FREES);
    return umf_likely(is_ready) ? thread : umf_coalescing_reuse_prepare(pool, shard);
}

static inline void umf_coalescing_reuse_record(umf_coalescing_thread_t *thread, uintptr_t base,
                                               size_t size) {
    thread->again = thread->base == base ? thread->again : 0;
    thread->base = base;
    thread->size = size;
}

/* Takes the reserved block, or a kept one, if there is one of exactly this size. Hot. */
static inline void *umf_coalescing_reuse_take(umf_coalescing_pool_t *pool, size_t size) {
    umf_coalescing_thread_t *thread = umf_coalescing_thread(pool);
    if (!thread->is_reserved || thread->size != size) {
        void *ptr =
            thread->has_kept ? umf_coalescing_kept_take(umf_coalescing_kept(pool), size) : NULL;
        if (ptr) {
            thread->has_taken = true;
            thread->is_full = false;
            if (umf_unlikely(thread->base == (uintptr_t)ptr)) {
                umf_coalescing_reuse_again(pool, thread);
            }
        }
        return ptr;
    }
    thread->is_reserved = false;
    /* Fails if another thread has reclaimed the block: the lease shows it. */
    return umf_likely(umf_range_take_back(&thread->lease)) ? (void *)thread->base : NULL;
}

/* A block of this size was freed, and not kept. */
static inline void umf_coalescing_reuse_note_not_kept(umf_coalescing_thread_t *thread, size_t size,
                                                      bool is_tried) {
    if (size <= UMF_KEPT_SIZE_MAX) {
        thread->small_frees++;
        thread->is_full |= is_tried;
    }
}

/* May the calling thread keep a block that it frees? Hot. */
static inline bool umf_coalescing_reuse_may_keep(const umf_coalescing_pool_t *pool) {
    return umf_coalescing_kept(pool) && !umf_coalescing_thread(pool)->is_full;
}

/* Keeps the block, if it is small and the thread has room. false: it must be freed. Hot. */
static inline bool umf_coalescing_reuse_keep_locked(const umf_coalescing_pool_t *pool,
                                                    umf_coalescing_shard_t *shard,
                                                    umf_coalescing_thread_t *thread,
                                                    uintptr_t base) {
    size_t size = umf_coalescing_kept_put_locked(umf_coalescing_kept(pool), shard, base);
    if (umf_unlikely(size == 0)) {
        return false;
    }
    if (umf_unlikely(thread->lease.generation != NULL)) {
        umf_coalescing_reuse_note_locked(shard, thread, base, size);
    } else {
        umf_coalescing_reuse_record(thread, base, size);
    }
    thread->has_kept = true;
    return true;
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
