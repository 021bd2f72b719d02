/*
 * Reuse slots: large free blocks that are withheld for the thread that freed them.
 *
 * A thread has a few slots in each pool. A block that it frees may go into one, and the thread
 * takes it back without a lock and without a shared counter. Unlike the objects of a magazine, the
 * object of a slot is not private: another thread that has no free block takes it. The pool
 * therefore asks the provider for memory only when no slot of any thread has a block. A thread that
 * ends leaves its objects to the pool.
 *
 * An object is any value but 0. The pool defines what it means and what each slot is for.
 */
#ifndef UMF_SRC_CACHE_REUSE_SLOTS_H
#define UMF_SRC_CACHE_REUSE_SLOTS_H

#include <stdatomic.h>

#include "base/thread_slot.h"

typedef struct umf_reuse_slots_t {
    _Atomic uint32_t index; /* the owner's; 0: no thread has withheld anything so far */
    uint32_t count;         /* slots per thread. Immutable after init, as the next two */
    void *pool;
    void (*leave)(void *pool, uintptr_t object); /* takes an object of an ending thread */
    _Atomic uint64_t used; /* a hint, one bit for each slot: some thread may have an object there */
    umf_thread_slot_owner_t owner; /* Sync: made under a lock, before the index */
} umf_reuse_slots_t;

typedef struct umf_thread_reuse_slots_t {
    umf_thread_slot_t head;
    uint32_t taken; /* how often this thread asked for objects of others */
    /* Only the owner puts objects in; any thread takes them. */
    _Atomic uintptr_t objects[];
} umf_thread_reuse_slots_t;

#define UMF_REUSE_SLOTS_MAX 64
_Static_assert(sizeof(umf_thread_reuse_slots_t) + UMF_REUSE_SLOTS_MAX * sizeof(uintptr_t) <=
                   UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block is too small");

/* Allocates nothing until the first object is put. */
void umf_reuse_slots_init(umf_reuse_slots_t *slots, uint32_t count, void *pool,
                          void (*leave)(void *pool, uintptr_t object));
/* Drops what is withheld. Waits for threads that are ending; after it no thread calls `leave`. */
void umf_reuse_slots_fini(umf_reuse_slots_t *slots);

/* Takes an object of any thread. 0: there is none. It may miss an object that is put at the same
 * time. Every UMF_REUSE_SLOTS_TAKEN_MAX-th call of a thread finds nothing on purpose, so that the
 * caller allocates: otherwise threads that need more objects than there are would take them from
 * each other endlessly. */
#define UMF_REUSE_SLOTS_TAKEN_MAX 8u
uintptr_t umf_reuse_slots_take_any(umf_reuse_slots_t *slots, uint32_t slot);
/* The same, but searches the slots of every thread and never declines. */
uintptr_t umf_reuse_slots_take_each(umf_reuse_slots_t *slots, uint32_t slot);
/* The same, except for the calling thread's own object. */
uintptr_t umf_reuse_slots_take_others(umf_reuse_slots_t *slots, uint32_t slot);
/* How many threads have an object in this slot. */
size_t umf_reuse_slots_count(umf_reuse_slots_t *slots, uint32_t slot);

bool umf_reuse_slots_put_first(umf_reuse_slots_t *slots, uint32_t slot, uintptr_t object);
void umf_reuse_slots_set_used(umf_reuse_slots_t *slots, uint32_t slot);

static inline umf_thread_reuse_slots_t *umf_thread_reuse_slots(const umf_reuse_slots_t *slots) {
    return (umf_thread_reuse_slots_t *)umf_thread_slot_get(
        atomic_load_explicit(&slots->index, memory_order_relaxed));
}

/* The calling thread's object in this slot. Another thread may take it at any time. */
static inline uintptr_t umf_reuse_slots_peek(const umf_reuse_slots_t *slots, uint32_t slot) {
    return atomic_load_explicit(&umf_thread_reuse_slots(slots)->objects[slot],
                                memory_order_relaxed);
}

/* Takes `object`, which the calling thread has peeked. false: another thread took it first. Hot. */
static inline bool umf_reuse_slots_take(const umf_reuse_slots_t *slots, uint32_t slot,
                                        uintptr_t object) {
    return atomic_compare_exchange_strong_explicit(&umf_thread_reuse_slots(slots)->objects[slot],
                                                   &object, 0, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* false: the slot is occupied, or there is no memory for slots. Hot. */
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
