/*
 * Reuse slots: large blocks that wait for the thread that freed them.
 *
 * A thread has a few slots in each pool. What it frees may wait in one and is taken from there
 * again without a lock and without a shared counter. Unlike a magazine's, a slot's object is not
 * the thread's alone: whoever finds none at hand takes it from there, so memory is taken from the
 * provider only when nothing is withheld anywhere. An ending thread leaves its objects to the pool.
 *
 * An object is any word but 0; what it means, and what a slot is for, is the pool's business.
 */
#ifndef UMF_SRC_CACHE_REUSE_SLOTS_H
#define UMF_SRC_CACHE_REUSE_SLOTS_H

#include <stdatomic.h>

#include "base/thread_slot.h"

typedef struct umf_reuse_slots_t {
    _Atomic uint32_t index; /* the owner's; 0: nobody has withheld anything so far */
    uint32_t count;         /* Immutable after init, as the next two */
    void *pool;
    void (*leave)(void *pool, uintptr_t object); /* of an ending thread */
    _Atomic uint64_t used; /* a bit for each slot: any thread may have something there; a hint */
    umf_thread_slot_owner_t owner; /* Sync: made under a lock, before the index */
} umf_reuse_slots_t;

typedef struct umf_thread_reuse_slots_t {
    umf_thread_slot_t head;
    uint32_t taken; /* from other threads */
    /* Put by its thread, taken by any. */
    _Atomic uintptr_t objects[];
} umf_thread_reuse_slots_t;

#define UMF_REUSE_SLOTS_MAX 64
_Static_assert(sizeof(umf_thread_reuse_slots_t) + UMF_REUSE_SLOTS_MAX * sizeof(uintptr_t) <=
                   UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block is too small");

/* Costs nothing until something is withheld. */
void umf_reuse_slots_init(umf_reuse_slots_t *slots, uint32_t count, void *pool,
                          void (*leave)(void *pool, uintptr_t object));
/* Drops what is withheld. It is waited for threads that are ending; then none calls `leave`. */
void umf_reuse_slots_fini(umf_reuse_slots_t *slots);

/* Slots for blocks of more than `least` bytes, a power of two: one for each half of a doubling. */
static inline uint32_t umf_reuse_slot_of(size_t bytes, size_t least) {
    uint32_t bit = 63u - (uint32_t)__builtin_clzll(bytes - 1);
    uint32_t half = (uint32_t)((bytes - 1) >> (bit - 1)) & 1;
    return 2 * (bit - (uint32_t)__builtin_ctzll(least)) + half;
}

/* From any thread, for those who find nothing at hand; 0 if there is none. May miss what is
 * withheld at this moment, and leaves it every UMF_REUSE_SLOTS_TAKEN_MAX times: where there are
 * fewer objects than threads that need one all the time, they would take them from each other for
 * ever. */
#define UMF_REUSE_SLOTS_TAKEN_MAX 8u
uintptr_t umf_reuse_slots_take_any(umf_reuse_slots_t *slots, uint32_t slot);
/* The same, but misses nothing; and not what the calling thread has withheld. */
uintptr_t umf_reuse_slots_take_each(umf_reuse_slots_t *slots, uint32_t slot);
uintptr_t umf_reuse_slots_take_others(umf_reuse_slots_t *slots, uint32_t slot);
/* Leaves to the pool what all threads have withheld. false: that is nothing. */
bool umf_reuse_slots_release(umf_reuse_slots_t *slots);
/* How many threads have something there. */
size_t umf_reuse_slots_count(umf_reuse_slots_t *slots, uint32_t slot);

bool umf_reuse_slots_put_first(umf_reuse_slots_t *slots, uint32_t slot, uintptr_t object);
void umf_reuse_slots_set_used(umf_reuse_slots_t *slots, uint32_t slot);

static inline umf_thread_reuse_slots_t *umf_thread_reuse_slots(const umf_reuse_slots_t *slots) {
    return (umf_thread_reuse_slots_t *)umf_thread_slot_get(
        atomic_load_explicit(&slots->index, memory_order_relaxed));
}

/* What the calling thread has there; it may be gone a moment later. */
static inline uintptr_t umf_reuse_slots_peek(const umf_reuse_slots_t *slots, uint32_t slot) {
    return atomic_load_explicit(&umf_thread_reuse_slots(slots)->objects[slot],
                                memory_order_relaxed);
}

/* `object`, which the calling thread has seen there; false: another was faster. Hot. */
static inline bool umf_reuse_slots_take(const umf_reuse_slots_t *slots, uint32_t slot,
                                        uintptr_t object) {
    return atomic_compare_exchange_strong_explicit(&umf_thread_reuse_slots(slots)->objects[slot],
                                                   &object, 0, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* false: something is there, or there is no memory for slots. Hot. */
static inline bool umf_reuse_slots_put(umf_reuse_slots_t *slots, uint32_t slot, uintptr_t object) {
    umf_thread_reuse_slots_t *own = umf_thread_reuse_slots(slots);
    if (umf_unlikely(!own->head.owner)) {
        return umf_reuse_slots_put_first(slots, slot, object);
    }
    if (atomic_load_explicit(&own->objects[slot], memory_order_relaxed)) {
        return false;
    }
    atomic_store_explicit(&own->objects[slot], object, memory_order_release);
    if (umf_unlikely(!(atomic_load_explicit(&slots->used, memory_order_relaxed) >> slot & 1))) {
        umf_reuse_slots_set_used(slots, slot);
    }
    return true;
}

#endif
