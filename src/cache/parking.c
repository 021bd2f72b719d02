#include "cache/parking.h"

#include <assert.h>

static umf_parking_t *parking_of(umf_local_owner_t *owner) {
    return UMF_CONTAINER_OF(owner, umf_parking_t, owner);
}

static uintptr_t take_out(umf_parked_t *parked, uint32_t place) {
    return atomic_load_explicit(&parked->objects[place], memory_order_relaxed)
               ? atomic_exchange_explicit(&parked->objects[place], 0, memory_order_acquire)
               : 0;
}

static void thread_exit(umf_local_owner_t *owner, umf_local_t *block) {
    umf_parking_t *parking = parking_of(owner);
    for (uint32_t place = 0; place < parking->places; place++) {
        uintptr_t object = take_out((umf_parked_t *)block, place);
        if (object) {
            parking->leave(parking->pool, object);
        }
    }
}

void umf_parking_init(umf_parking_t *parking, uint32_t places, void *pool,
                      void (*leave)(void *pool, uintptr_t object)) {
    assert(places <= UMF_PARKING_MAX_PLACES);
    atomic_init(&parking->index, 0);
    atomic_init(&parking->used, 0);
    parking->places = places;
    parking->pool = pool;
    parking->leave = leave;
}

static bool is_open(umf_parking_t *parking) {
    return atomic_load_explicit(&parking->index, memory_order_acquire) != 0;
}

void umf_parking_fini(umf_parking_t *parking) {
    if (is_open(parking)) {
        umf_local_owner_fini(&parking->owner);
        atomic_store_explicit(&parking->index, 0, memory_order_relaxed);
    }
}

/* --- the first time --- */

UMF_LOCK_STATIC(open_lock, UMF_RANK_BIN);

static void open_locked(umf_parking_t *parking) {
    umf_assert_locked(&open_lock);
    size_t bytes = sizeof(umf_parked_t) + parking->places * sizeof(uintptr_t);
    if (!is_open(parking) &&
        umf_local_owner_init(&parking->owner, 0, bytes, thread_exit) == UMF_RESULT_SUCCESS) {
        atomic_store_explicit(&parking->index, parking->owner.index, memory_order_release);
    }
}

UMF_COLD bool umf_parking_put_first(umf_parking_t *parking, uint32_t place, uintptr_t object) {
    if (!is_open(parking)) {
        umf_lock(&open_lock);
        open_locked(parking);
        umf_unlock(&open_lock);
    }
    return is_open(parking) && umf_local_make(&parking->owner) &&
           umf_parking_put(parking, place, object);
}

UMF_COLD void umf_parking_set_used(umf_parking_t *parking, uint32_t place) {
    atomic_fetch_or_explicit(&parking->used, UINT64_C(1) << place, memory_order_relaxed);
}

/* --- all threads --- */

typedef struct search_t {
    uint32_t place;
    const umf_parked_t *except;
    uintptr_t found;
} search_t;

static void take_first(umf_local_t *block, void *arg) {
    search_t *search = arg;
    if (!search->found && (const umf_parked_t *)block != search->except) {
        search->found = take_out((umf_parked_t *)block, search->place);
    }
}

static uintptr_t take_except(umf_parking_t *parking, uint32_t place, const umf_parked_t *except) {
    search_t search = {.place = place, .except = except};
    if (is_open(parking)) {
        umf_local_each(&parking->owner, take_first, &search);
    }
    return search.found;
}

uintptr_t umf_parking_take_each(umf_parking_t *parking, uint32_t place) {
    return take_except(parking, place, NULL);
}

UMF_COLD uintptr_t umf_parking_take_any(umf_parking_t *parking, uint32_t place) {
    uint64_t bit = UINT64_C(1) << place;
    umf_parked_t *own = umf_parked(parking);
    if (!(atomic_load_explicit(&parking->used, memory_order_relaxed) & bit) ||
        (own->head.owner && ++own->taken % UMF_PARKING_TAKEN_MAX == 0)) {
        return 0;
    }
    atomic_fetch_and_explicit(&parking->used, ~bit, memory_order_relaxed);
    uintptr_t object = umf_parking_take_each(parking, place);
    if (object) {
        umf_parking_set_used(parking, place); /* there may be more */
    }
    return object;
}

uintptr_t umf_parking_take_others(umf_parking_t *parking, uint32_t place) {
    return take_except(parking, place, umf_parked(parking));
}

static void count_one(umf_local_t *block, void *arg) {
    search_t *search = arg;
    search->found += atomic_load_explicit(&((umf_parked_t *)block)->objects[search->place],
                                          memory_order_relaxed) != 0;
}

size_t umf_parking_count(umf_parking_t *parking, uint32_t place) {
    search_t search = {.place = place};
    if (is_open(parking)) {
        umf_local_each(&parking->owner, count_one, &search);
    }
    return search.found;
}

UMF_COLD bool umf_parking_release(umf_parking_t *parking) {
    bool has_any = false;
    for (uint32_t place = 0; place < parking->places; place++) {
        uintptr_t object;
        for (size_t n = umf_parking_count(parking, place);
             n && (object = umf_parking_take_each(parking, place)) != 0; n--) {
            parking->leave(parking->pool, object);
            has_any = true;
        }
    }
    return has_any;
}
