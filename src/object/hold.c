#include "object/hold.h"

#include "base/log.h"
#include "object/content.h"
#include "object/object.h"
#include "system/keep_errno.h"

/* Guards all holds, and the members of pools that belong to them. */
UMF_LOCK_STATIC(hold_lock, UMF_RANK_VIEW);

/* The number of holds by span, so that a free in another span needs no lock. User pools may split
 * spans, so this is not used for them. Sync: atomic; written under the lock */
#define HOLD_SPANS 4096
static _Atomic uint32_t hold_spans[HOLD_SPANS];

#define PASS_ON(pool, function) UMF_PASS_ON(pool, UMF_LAYER_HOLD, function)

/* --- the treap of a pool --- */

static bool hold_is_before(const umf_hold_t *a, uintptr_t addr, const umf_hold_t *b) {
    return a->addr != addr ? a->addr < addr : (uintptr_t)a < (uintptr_t)b;
}

/* A hash of the hold's address serves as the random priority of the treap. */
static uint64_t hold_priority(const umf_hold_t *hold) {
    return ((uintptr_t)hold >> 4) * 0x9e3779b97f4a7c15u;
}

static void hold_insert_locked(umf_hold_t **link, umf_hold_t *hold) {
    umf_assert_locked(&hold_lock);
    while (*link && hold_priority(*link) >= hold_priority(hold)) {
        link = hold_is_before(*link, hold->addr, hold) ? &(*link)->high : &(*link)->low;
    }
    umf_hold_t *rest = *link, **low = &hold->low, **high = &hold->high;
    *link = hold;
    while (rest) {
        if (hold_is_before(rest, hold->addr, hold)) {
            *low = rest;
            low = &rest->high;
            rest = rest->high;
        } else {
            *high = rest;
            high = &rest->low;
            rest = rest->low;
        }
    }
    *low = *high = NULL;
}

static void hold_remove_locked(umf_hold_t **link, umf_hold_t *hold) {
    umf_assert_locked(&hold_lock);
    while (*link != hold) {
        link = hold_is_before(*link, hold->addr, hold) ? &(*link)->high : &(*link)->low;
    }
    umf_hold_t *low = hold->low, *high = hold->high;
    while (low && high) {
        bool is_low = hold_priority(low) >= hold_priority(high);
        umf_hold_t **next = is_low ? &low->high : &high->low;
        *link = is_low ? low : high;
        *(is_low ? &low : &high) = *next;
        link = next;
    }
    *link = low ? low : high;
}

/* The first hold at `addr` or above that follows `after` (may be NULL). */
static umf_hold_t *hold_at_locked(const umf_memory_pool_handle_t pool, uintptr_t addr,
                                  const umf_hold_t *after) {
    umf_hold_t *found = NULL;
    umf_assert_locked(&hold_lock);
    for (umf_hold_t *hold = pool->holds; hold;) {
        bool is_before = hold_is_before(hold, addr, after) || hold == after;
        found = is_before ? found : hold;
        hold = is_before ? hold->high : hold->low;
    }
    return found;
}

/* The next hold in [`addr`, `addr` + `size`) that follows `after` (may be NULL). */
static umf_hold_t *hold_next_locked(const umf_memory_pool_handle_t pool, uintptr_t addr,
                                    size_t size, const umf_hold_t *after) {
    umf_hold_t *hold = hold_at_locked(pool, after ? after->addr : addr, after);
    return hold && hold->addr - addr < size ? hold : NULL;
}

/* --- freeing in a pool with holds --- */

static bool hold_may_be_in(const umf_memory_pool_handle_t pool, umf_map_entry_t entry) {
    return !pool->fast || atomic_load_explicit(&hold_spans[umf_map_entry_span(entry) % HOLD_SPANS],
                                               memory_order_acquire) != 0;
}

/* The size of an object. User pools may not report it: then only the address is held. */
static umf_result_t hold_size_of(umf_memory_pool_handle_t pool, const void *ptr, size_t *size) {
    *size = 0;
    umf_result_t result = pool->ops.malloc_usable_size(pool->self, ptr, size);
    if (!pool->fast && (result != UMF_RESULT_SUCCESS || *size == 0)) {
        *size = 1;
        return UMF_RESULT_SUCCESS;
    }
    return result;
}

/* Is anything held at or above `addr` in its span? The answer is no for most objects, and saves the
 * question for their size. */
static bool hold_may_be_at(umf_memory_pool_handle_t pool, uintptr_t addr, umf_map_entry_t entry) {
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    umf_lock(&hold_lock);
    bool may_be = hold_next_locked(pool, addr, span->base + span->size - addr, NULL) != NULL;
    umf_unlock(&hold_lock);
    return may_be;
}

typedef enum hold_state_t { HOLD_NONE, HOLD_ASIDE, HOLD_WAS_ASIDE } hold_state_t;

static hold_state_t hold_set_aside(umf_memory_pool_handle_t pool, uintptr_t addr, size_t size) {
    hold_state_t state = HOLD_NONE;
    umf_lock(&hold_lock);
    for (umf_hold_t *hold = NULL; (hold = hold_next_locked(pool, addr, size, hold)) != NULL;) {
        /* All holds of an object are marked together, so the first one shows an earlier free. */
        if (hold->aside == addr && state == HOLD_NONE) {
            state = HOLD_WAS_ASIDE;
            break;
        }
        hold->aside = addr;
        hold->aside_size = size;
        state = HOLD_ASIDE;
    }
    if (state == HOLD_ASIDE) {
        atomic_fetch_add_explicit(&pool->aside, 1, memory_order_relaxed);
    }
    umf_unlock(&hold_lock);
    return state;
}

static UMF_COLD umf_result_t hold_free_in_span(umf_memory_pool_handle_t pool, void *ptr,
                                               umf_map_entry_t entry) {
    UMF_KEEP_ERRNO;
    size_t size;
    if (!hold_may_be_at(pool, (uintptr_t)ptr, entry)) {
        return PASS_ON(pool, free_at)(pool->free_self, ptr, entry);
    }
    umf_result_t result = hold_size_of(pool, ptr, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result; /* no object: the pool has logged it */
    }
    switch (hold_set_aside(pool, (uintptr_t)ptr, size)) {
    case HOLD_ASIDE:
        return UMF_RESULT_SUCCESS;
    case HOLD_WAS_ASIDE:
        UMF_LOG_ERROR("%p was freed before and waits for umfPutIPCHandle of its handle", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    default:
        return PASS_ON(pool, free_at)(pool->free_self, ptr, entry);
    }
}

static umf_result_t hold_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    umf_memory_pool_handle_t pool = umf_layer_pool(entry);
    return umf_likely(!hold_may_be_in(pool, entry)) ? PASS_ON(pool, free_at)(self, ptr, entry)
                                                    : hold_free_in_span(pool, ptr, entry);
}

static bool hold_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    umf_memory_pool_handle_t pool = umf_layer_pool(entry);
    return !hold_may_be_in(pool, entry) && PASS_ON(pool, try_free)(self, ptr, entry);
}

/* --- holds --- */

static const umf_layer_t hold_layer;

static void hold_link_locked(umf_memory_pool_handle_t pool, umf_hold_t *hold) {
    bool is_first = !pool->holds;
    atomic_fetch_add_explicit(&hold_spans[hold->span % HOLD_SPANS], 1, memory_order_release);
    hold->pool = pool;
    hold_insert_locked(&pool->holds, hold);
    if (is_first) {
        umf_layer_push(pool, &hold_layer);
    }
}

static void hold_unlink_locked(umf_memory_pool_handle_t pool, umf_hold_t *hold) {
    hold_remove_locked(&pool->holds, hold);
    __atomic_store_n(&hold->pool, NULL, __ATOMIC_RELAXED);
    atomic_fetch_sub_explicit(&hold_spans[hold->span % HOLD_SPANS], 1, memory_order_release);
    if (!pool->holds) {
        umf_layer_remove(pool, UMF_LAYER_HOLD);
    }
}

/* Does an object that is set aside contain `addr`? Its holds record its place, so it is enough to
 * check the nearest holds. */
static bool hold_is_aside_locked(const umf_memory_pool_handle_t pool, uintptr_t addr) {
    const umf_hold_t *below = NULL;
    for (const umf_hold_t *hold = pool->holds; hold;) {
        bool is_below = hold->addr <= addr;
        below = is_below ? hold : below;
        hold = is_below ? hold->high : hold->low;
    }
    const umf_hold_t *above = hold_at_locked(pool, addr, NULL);
    return (below && below->aside && addr - below->aside < below->aside_size) ||
           (above && above->aside && addr - above->aside < above->aside_size);
}

static umf_result_t refuse_aside(const void *ptr) {
    UMF_LOG_ERROR("%p was freed before and waits for umfPutIPCHandle of its handle", ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

umf_result_t umf_hold_check(umf_memory_pool_handle_t pool, const void *ptr) {
    if (!__atomic_load_n(&pool->holds, __ATOMIC_RELAXED)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_lock(&hold_lock);
    bool is_aside = hold_is_aside_locked(pool, (uintptr_t)ptr);
    umf_unlock(&hold_lock);
    return is_aside ? refuse_aside(ptr) : UMF_RESULT_SUCCESS;
}

umf_result_t umf_hold_begin(umf_hold_t *hold, umf_span_t *span, const void *ptr) {
    umf_memory_pool_handle_t pool =
        atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire);
    *hold = (umf_hold_t){.addr = (uintptr_t)ptr, .span = umf_span_index(span)};
    /* An object that is an allocation of the provider is never handed out again by the pool. */
    if (!pool || (pool->fast && pool->fast->each_from_provider)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_lock(&hold_lock);
    bool is_aside = hold_is_aside_locked(pool, hold->addr);
    if (!is_aside) {
        hold_link_locked(pool, hold);
        umf_layer_see_span(span);
    }
    umf_unlock(&hold_lock);
    return is_aside ? refuse_aside(ptr) : UMF_RESULT_SUCCESS;
}

/* The free goes through all layers but the record, where it was recorded when the object was set
 * aside: a thread may have freed the object on a queue as well meanwhile, which that layer refuses.
 */
static void hold_give_back(umf_memory_pool_handle_t pool, uintptr_t addr) {
    umf_map_entry_t entry = umf_map_find(&umf_map_global, addr);
    if (umf_map_entry_pool(entry) == pool->index) { /* the pool still has the span */
        UMF_PASS_ON(pool, UMF_LAYER_RECORD, free_at)(pool->free_self, (void *)addr, entry);
    }
}

/* Unlinks the hold. Returns the object that only this hold kept aside; 0: none. */
static uintptr_t hold_end_locked(umf_memory_pool_handle_t pool, umf_hold_t *hold) {
    uintptr_t aside = hold->aside;
    hold_unlink_locked(pool, hold);
    if (!aside || hold_next_locked(pool, aside, hold->aside_size, NULL)) {
        return 0;
    }
    atomic_fetch_sub_explicit(&pool->aside, 1, memory_order_relaxed);
    return aside;
}

void umf_hold_end(umf_hold_t *hold) {
    if (!__atomic_load_n(&hold->pool, __ATOMIC_RELAXED)) {
        return; /* it was never linked, or its pool has ended */
    }
    umf_lock(&hold_lock);
    umf_memory_pool_handle_t pool = hold->pool;
    uintptr_t aside = pool ? hold_end_locked(pool, hold) : 0;
    umf_unlock(&hold_lock);
    if (aside) {
        hold_give_back(pool, aside);
    }
}

void umf_hold_drop(umf_memory_pool_handle_t pool) {
    /* One hold at a time, because the pool is called without the lock. */
    for (bool goes_on = true; goes_on;) {
        umf_lock(&hold_lock);
        umf_hold_t *hold = pool->holds;
        uintptr_t aside = hold ? hold_end_locked(pool, hold) : 0;
        umf_unlock(&hold_lock);
        goes_on = hold != NULL;
        if (aside) {
            hold_give_back(pool, aside);
        }
    }
}

/* --- realloc --- */

static bool hold_has(umf_memory_pool_handle_t pool, const void *ptr, size_t *size) {
    umf_map_entry_t entry = umf_map_find(&umf_map_global, (uintptr_t)ptr);
    if (umf_map_entry_pool(entry) != pool->index || !hold_may_be_in(pool, entry) ||
        !hold_may_be_at(pool, (uintptr_t)ptr, entry) ||
        hold_size_of(pool, ptr, size) != UMF_RESULT_SUCCESS) {
        return false;
    }
    umf_lock(&hold_lock);
    bool has = hold_next_locked(pool, (uintptr_t)ptr, *size, NULL) != NULL;
    umf_unlock(&hold_lock);
    return has;
}

static umf_result_t hold_copy(umf_memory_pool_handle_t pool, void *to, const void *from,
                              size_t size) {
    umf_content_t content;
    umf_content_init(&content, pool->tracked);
    return umf_content_copy(&content, to, from, size);
}

static void *hold_move(umf_memory_pool_handle_t pool, void *ptr, size_t room, size_t size) {
    void *moved = umfPoolMalloc(pool, size);
    if (!moved) {
        return NULL;
    }
    if (hold_copy(pool, moved, ptr, room) != UMF_RESULT_SUCCESS) {
        umfPoolFree(pool, moved);
        return NULL;
    }
    umfPoolFree(pool, ptr);
    return moved;
}

/* The object stays in place with its full size, or it is copied and set aside. */
static void *hold_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    bool is_offered = size == 0 || !(pool->fast && pool->fast->no_realloc);
    size_t room;
    if (!ptr || !is_offered || !hold_has(pool, ptr, &room)) {
        return PASS_ON(pool, realloc)(pool, ptr, size);
    }
    if (size == 0) {
        umfPoolFree(pool, ptr);
        return NULL;
    }
    return size <= room ? ptr : hold_move(pool, ptr, room, size);
}

static const umf_layer_t hold_layer = {
    .rank = UMF_LAYER_HOLD,
    .calls = {.free_at = hold_free_at, .try_free = hold_try_free, .realloc = hold_realloc},
};
