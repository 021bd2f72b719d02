#include "cache/reuse_slots.h"

#include <assert.h>

static umf_reuse_slots_t *slots_of(umf_thread_slot_owner_t *owner) {
    return UMF_CONTAINER_OF(owner, umf_reuse_slots_t, owner);
}

static uintptr_t take_out(umf_thread_reuse_slots_t *own, uint32_t slot) {
    return atomic_load_explicit(&own->objects[slot], memory_order_relaxed)
               ? atomic_exchange_explicit(&own->objects[slot], 0, memory_order_acquire)
               : 0;
}

static void thread_exit(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    umf_reuse_slots_t *slots = slots_of(owner);
    for (uint32_t slot = 0; slot < slots->count; slot++) {
        uintptr_t object = take_out((umf_thread_reuse_slots_t *)block, slot);
        if (object) {
            slots->leave(slots->pool, object);
        }
    }
}

void umf_reuse_slots_init(umf_reuse_slots_t *slots, uint32_t count, void *pool,
                          void (*leave)(void *pool, uintptr_t object)) {
    assert(count <= UMF_REUSE_SLOTS_MAX);
    atomic_init(&slots->index, 0);
    atomic_init(&slots->used, 0);
    slots->count = count;
    slots->pool = pool;
    slots->leave = leave;
}

static bool is_open(umf_reuse_slots_t *slots) {
    return atomic_load_explicit(&slots->index, memory_order_acquire) != 0;
}

void umf_reuse_slots_fini(umf_reuse_slots_t *slots) {
    if (is_open(slots)) {
        umf_thread_slot_owner_fini(&slots->owner);
        atomic_store_explicit(&slots->index, 0, memory_order_relaxed);
    }
}

/* --- the first put --- */

UMF_LOCK_STATIC(open_lock, UMF_RANK_BIN);

static void open_locked(umf_reuse_slots_t *slots) {
    umf_assert_locked(&open_lock);
    size_t bytes = sizeof(umf_thread_reuse_slots_t) + slots->count * sizeof(uintptr_t);
    if (!is_open(slots) &&
        umf_thread_slot_owner_init(&slots->owner, 0, bytes, thread_exit) == UMF_RESULT_SUCCESS) {
        atomic_store_explicit(&slots->index, slots->owner.index, memory_order_release);
    }
}

UMF_COLD bool umf_reuse_slots_put_first(umf_reuse_slots_t *slots, uint32_t slot, uintptr_t object) {
    if (!is_open(slots)) {
        umf_lock(&open_lock);
        open_locked(slots);
        umf_unlock(&open_lock);
    }
    return is_open(slots) && umf_thread_slot_make(&slots->owner) &&
           umf_reuse_slots_put(slots, slot, object);
}

UMF_COLD void umf_reuse_slots_set_used(umf_reuse_slots_t *slots, uint32_t slot) {
    atomic_fetch_or_explicit(&slots->used, UINT64_C(1) << slot, memory_order_relaxed);
}

/* --- all threads --- */

typedef struct search_t {
    uint32_t slot;
    const umf_thread_reuse_slots_t *except;
    uintptr_t found;
} search_t;

static void take_first(umf_thread_slot_t *block, void *arg) {
    search_t *search = arg;
    if (!search->found && (const umf_thread_reuse_slots_t *)block != search->except) {
        search->found = take_out((umf_thread_reuse_slots_t *)block, search->slot);
    }
}

static uintptr_t take_except(umf_reuse_slots_t *slots, uint32_t slot,
                             const umf_thread_reuse_slots_t *except) {
    search_t search = {.slot = slot, .except = except};
    if (is_open(slots)) {
        umf_thread_slot_each(&slots->owner, take_first, &search);
    }
    return search.found;
}

uintptr_t umf_reuse_slots_take_each(umf_reuse_slots_t *slots, uint32_t slot) {
    return take_except(slots, slot, NULL);
}

UMF_COLD uintptr_t umf_reuse_slots_take_any(umf_reuse_slots_t *slots, uint32_t slot) {
    uint64_t bit = UINT64_C(1) << slot;
    umf_thread_reuse_slots_t *own = umf_thread_reuse_slots(slots);
    /* The hint keeps a pool whose slots are empty from walking over all threads at each miss. */
    if (!(atomic_load_explicit(&slots->used, memory_order_relaxed) & bit) ||
        (own->head.owner && ++own->taken % UMF_REUSE_SLOTS_TAKEN_MAX == 0)) {
        return 0;
    }
    /* Cleared before the search, so that a put during the search sets it again. */
    atomic_fetch_and_explicit(&slots->used, ~bit, memory_order_relaxed);
    uintptr_t object = umf_reuse_slots_take_each(slots, slot);
    if (object) {
        umf_reuse_slots_set_used(slots, slot); /* there may be more */
    }
    return object;
}

uintptr_t umf_reuse_slots_take_others(umf_reuse_slots_t *slots, uint32_t slot) {
    return take_except(slots, slot, umf_thread_reuse_slots(slots));
}

static void count_one(umf_thread_slot_t *block, void *arg) {
    search_t *search = arg;
    search->found +=
        atomic_load_explicit(&((umf_thread_reuse_slots_t *)block)->objects[search->slot],
                             memory_order_relaxed) != 0;
}

size_t umf_reuse_slots_count(umf_reuse_slots_t *slots, uint32_t slot) {
    search_t search = {.slot = slot};
    if (is_open(slots)) {
        umf_thread_slot_each(&slots->owner, count_one, &search);
    }
    return search.found;
}
