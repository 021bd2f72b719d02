/*
 * Parking: large blocks that wait for the thread that freed them.
 *
 * A thread has a few places in each pool. What it frees may wait in one and is taken from there
 * again without a lock and without a shared counter. Unlike a magazine's, a place's object is not
 * the thread's alone: whoever finds none at hand takes it from there, so memory is taken from the
 * provider only when nothing is parked anywhere. An ending thread leaves its objects to the pool.
 *
 * An object is any word but 0; what it means, and what a place is for, is the pool's business.
 */
#ifndef UMF_SRC_CACHE_PARKING_H
#define UMF_SRC_CACHE_PARKING_H

#include <stdatomic.h>

#include "base/local.h"

typedef struct umf_parking_t {
    _Atomic uint32_t index; /* the owner's; 0: nobody has parked anything so far */
    uint32_t places;        /* Immutable after init, as the next two */
    void *pool;
    void (*leave)(void *pool, uintptr_t object); /* of an ending thread */
    _Atomic uint64_t used;   /* a bit for each place: any thread may have something there; a hint */
    umf_local_owner_t owner; /* Sync: made under a lock, before the index */
} umf_parking_t;

typedef struct umf_parked_t {
    umf_local_t head;
    uint32_t taken; /* from other threads */
    /* Put by its thread, taken by any. */
    _Atomic uintptr_t objects[];
} umf_parked_t;

#define UMF_PARKING_MAX_PLACES 64
_Static_assert(sizeof(umf_parked_t) + UMF_PARKING_MAX_PLACES * sizeof(uintptr_t) <=
                   UMF_LOCAL_EMPTY_SIZE,
               "the empty block is too small");

/* Costs nothing until something is parked. */
void umf_parking_init(umf_parking_t *parking, uint32_t places, void *pool,
                      void (*leave)(void *pool, uintptr_t object));
/* Drops what is parked. It is waited for threads that are ending; then none calls `leave`. */
void umf_parking_fini(umf_parking_t *parking);

/* Places for blocks of more than `least` bytes, a power of two: one for each half of a doubling. */
static inline uint32_t umf_parking_place_of(size_t bytes, size_t least) {
    uint32_t bit = 63u - (uint32_t)__builtin_clzll(bytes - 1);
    uint32_t half = (uint32_t)((bytes - 1) >> (bit - 1)) & 1;
    return 2 * (bit - (uint32_t)__builtin_ctzll(least)) + half;
}

/* From any thread, for those who find nothing at hand; 0 if there is none. May miss what is parked
 * at this moment, and leaves it every UMF_PARKING_TAKEN_MAX times: where there are fewer objects
 * than threads that need one all the time, they would take them from each other for ever. */
#define UMF_PARKING_TAKEN_MAX 8u
uintptr_t umf_parking_take_any(umf_parking_t *parking, uint32_t place);
/* The same, but misses nothing; and not what the calling thread has parked. */
uintptr_t umf_parking_take_each(umf_parking_t *parking, uint32_t place);
uintptr_t umf_parking_take_others(umf_parking_t *parking, uint32_t place);
/* Leaves to the pool what all threads have parked. false: that is nothing. */
bool umf_parking_release(umf_parking_t *parking);
/* How many threads have something there. */
size_t umf_parking_count(umf_parking_t *parking, uint32_t place);

bool umf_parking_put_first(umf_parking_t *parking, uint32_t place, uintptr_t object);
void umf_parking_set_used(umf_parking_t *parking, uint32_t place);

static inline umf_parked_t *umf_parked(const umf_parking_t *parking) {
    return (umf_parked_t *)umf_local_get(
        atomic_load_explicit(&parking->index, memory_order_relaxed));
}

/* What the calling thread has there; it may be gone a moment later. */
static inline uintptr_t umf_parking_peek(const umf_parking_t *parking, uint32_t place) {
    return atomic_load_explicit(&umf_parked(parking)->objects[place], memory_order_relaxed);
}

/* `object`, which the calling thread has seen there; false: another was faster. Hot. */
static inline bool umf_parking_take(const umf_parking_t *parking, uint32_t place,
                                    uintptr_t object) {
    return atomic_compare_exchange_strong_explicit(&umf_parked(parking)->objects[place], &object, 0,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* false: something is there, or there is no memory for places. Hot. */
static inline bool umf_parking_put(umf_parking_t *parking, uint32_t place, uintptr_t object) {
    umf_parked_t *parked = umf_parked(parking);
    if (umf_unlikely(!parked->head.owner)) {
        return umf_parking_put_first(parking, place, object);
    }
    if (atomic_load_explicit(&parked->objects[place], memory_order_relaxed)) {
        return false;
    }
    atomic_store_explicit(&parked->objects[place], object, memory_order_release);
    if (umf_unlikely(!(atomic_load_explicit(&parking->used, memory_order_relaxed) >> place & 1))) {
        umf_parking_set_used(parking, place);
    }
    return true;
}

#endif
