#include "object/pin.h"

#include "base/log.h"
#include "object/content.h"
#include "object/object.h"
#include "system/keep_errno.h"

/* Guards all pins, and the members of pools that belong to them. */
UMF_LOCK_STATIC(pin_lock, UMF_RANK_VIEW);

/* The number of pins by span, so that a free in another span needs no lock. User pools may split
 * spans, so this is not used for them. Sync: atomic; written under the lock */
#define PIN_SPANS 4096
static _Atomic uint32_t pin_spans[PIN_SPANS];

#define PASS_ON(pool, function) UMF_PASS_ON(pool, UMF_LAYER_PIN, function)

/* --- the treap of a pool --- */

static bool pin_is_before(const umf_pin_t *a, uintptr_t addr, const umf_pin_t *b) {
    return a->addr != addr ? a->addr < addr : (uintptr_t)a < (uintptr_t)b;
}

/* A hash of the pin's address serves as the random priority of the treap. */
static uint64_t pin_priority(const umf_pin_t *pin) {
    return ((uintptr_t)pin >> 4) * 0x9e3779b97f4a7c15u;
}

static void pin_insert_locked(umf_pin_t **link, umf_pin_t *pin) {
    umf_assert_locked(&pin_lock);
    while (*link && pin_priority(*link) >= pin_priority(pin)) {
        link = pin_is_before(*link, pin->addr, pin) ? &(*link)->high : &(*link)->low;
    }
    umf_pin_t *rest = *link, **low = &pin->low, **high = &pin->high;
    *link = pin;
    while (rest) {
        if (pin_is_before(rest, pin->addr, pin)) {
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

static void pin_remove_locked(umf_pin_t **link, umf_pin_t *pin) {
    umf_assert_locked(&pin_lock);
    while (*link != pin) {
        link = pin_is_before(*link, pin->addr, pin) ? &(*link)->high : &(*link)->low;
    }
    umf_pin_t *low = pin->low, *high = pin->high;
    while (low && high) {
        bool is_low = pin_priority(low) >= pin_priority(high);
        umf_pin_t **next = is_low ? &low->high : &high->low;
        *link = is_low ? low : high;
        *(is_low ? &low : &high) = *next;
        link = next;
    }
    *link = low ? low : high;
}

/* The first pin at `addr` or above that follows `after` (may be NULL). */
static umf_pin_t *pin_at_locked(const umf_memory_pool_handle_t pool, uintptr_t addr,
                                const umf_pin_t *after) {
    umf_pin_t *found = NULL;
    umf_assert_locked(&pin_lock);
    for (umf_pin_t *pin = pool->pins; pin;) {
        bool is_before = pin_is_before(pin, addr, after) || pin == after;
        found = is_before ? found : pin;
        pin = is_before ? pin->high : pin->low;
    }
    return found;
}

/* The next pin in [`addr`, `addr` + `size`) that follows `after` (may be NULL). */
static umf_pin_t *pin_next_locked(const umf_memory_pool_handle_t pool, uintptr_t addr, size_t size,
                                  const umf_pin_t *after) {
    umf_pin_t *pin = pin_at_locked(pool, after ? after->addr : addr, after);
    return pin && pin->addr - addr < size ? pin : NULL;
}

/* --- freeing in a pool with pins --- */

static bool pin_may_be_in(const umf_memory_pool_handle_t pool, umf_map_entry_t entry) {
    return !pool->fast || atomic_load_explicit(&pin_spans[umf_map_entry_span(entry) % PIN_SPANS],
                                               memory_order_acquire) != 0;
}

/* The size of an object. User pools may not report it: then only the address is pinned. */
static umf_result_t pin_size_of(umf_memory_pool_handle_t pool, const void *ptr, size_t *size) {
    *size = 0;
    umf_result_t result = pool->ops.malloc_usable_size(pool->self, ptr, size);
    if (!pool->fast && (result != UMF_RESULT_SUCCESS || *size == 0)) {
        *size = 1;
        return UMF_RESULT_SUCCESS;
    }
    return result;
}

/* Is anything pinned at or above `addr` in its span? The answer is no for most objects, and saves
 * the question for their size. */
static bool pin_may_be_at(umf_memory_pool_handle_t pool, uintptr_t addr, umf_map_entry_t entry) {
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    umf_lock(&pin_lock);
    bool may_be = pin_next_locked(pool, addr, span->base + span->size - addr, NULL) != NULL;
    umf_unlock(&pin_lock);
    return may_be;
}

typedef enum pin_state_t { PIN_NONE, PIN_DEFERRED, PIN_WAS_DEFERRED } pin_state_t;

static pin_state_t pin_defer(umf_memory_pool_handle_t pool, uintptr_t addr, size_t size) {
    pin_state_t state = PIN_NONE;
    umf_lock(&pin_lock);
    for (umf_pin_t *pin = NULL; (pin = pin_next_locked(pool, addr, size, pin)) != NULL;) {
        /* All pins of an object are marked together, so the first one shows an earlier free. */
        if (pin->deferred == addr && state == PIN_NONE) {
            state = PIN_WAS_DEFERRED;
            break;
        }
        pin->deferred = addr;
        pin->deferred_size = size;
        state = PIN_DEFERRED;
    }
    if (state == PIN_DEFERRED) {
        atomic_fetch_add_explicit(&pool->deferred, 1, memory_order_relaxed);
    }
    umf_unlock(&pin_lock);
    return state;
}

static UMF_COLD umf_result_t pin_free_in_span(umf_memory_pool_handle_t pool, void *ptr,
                                              umf_map_entry_t entry) {
    UMF_KEEP_ERRNO;
    size_t size;
    if (!pin_may_be_at(pool, (uintptr_t)ptr, entry)) {
        return PASS_ON(pool, free_at)(pool->free_self, ptr, entry);
    }
    umf_result_t result = pin_size_of(pool, ptr, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result; /* no object: the pool has logged it */
    }
    switch (pin_defer(pool, (uintptr_t)ptr, size)) {
    case PIN_DEFERRED:
        return UMF_RESULT_SUCCESS;
    case PIN_WAS_DEFERRED:
        UMF_LOG_ERROR("%p was freed before and waits for umfPutIPCHandle of its handle", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    default:
        return PASS_ON(pool, free_at)(pool->free_self, ptr, entry);
    }
}

static umf_result_t pin_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    umf_memory_pool_handle_t pool = umf_layer_pool(entry);
    return umf_likely(!pin_may_be_in(pool, entry)) ? PASS_ON(pool, free_at)(self, ptr, entry)
                                                   : pin_free_in_span(pool, ptr, entry);
}

static bool pin_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    umf_memory_pool_handle_t pool = umf_layer_pool(entry);
    return !pin_may_be_in(pool, entry) && PASS_ON(pool, try_free)(self, ptr, entry);
}

/* --- pins --- */

static const umf_layer_t pin_layer;

static void pin_link_locked(umf_memory_pool_handle_t pool, umf_pin_t *pin) {
    bool is_first = !pool->pins;
    atomic_fetch_add_explicit(&pin_spans[pin->span % PIN_SPANS], 1, memory_order_release);
    pin->pool = pool;
    pin_insert_locked(&pool->pins, pin);
    if (is_first) {
        umf_layer_push(pool, &pin_layer);
    }
}

static void pin_unlink_locked(umf_memory_pool_handle_t pool, umf_pin_t *pin) {
    pin_remove_locked(&pool->pins, pin);
    __atomic_store_n(&pin->pool, NULL, __ATOMIC_RELAXED);
    atomic_fetch_sub_explicit(&pin_spans[pin->span % PIN_SPANS], 1, memory_order_release);
    if (!pool->pins) {
        umf_layer_remove(pool, UMF_LAYER_PIN);
    }
}

/* Does an object whose free is deferred contain `addr`? Its pins record its place, so it is enough
 * to check the nearest pins. */
static bool pin_is_deferred_locked(const umf_memory_pool_handle_t pool, uintptr_t addr) {
    const umf_pin_t *below = NULL;
    for (const umf_pin_t *pin = pool->pins; pin;) {
        bool is_below = pin->addr <= addr;
        below = is_below ? pin : below;
        pin = is_below ? pin->high : pin->low;
    }
    const umf_pin_t *above = pin_at_locked(pool, addr, NULL);
    return (below && below->deferred && addr - below->deferred < below->deferred_size) ||
           (above && above->deferred && addr - above->deferred < above->deferred_size);
}

static umf_result_t refuse_deferred(const void *ptr) {
    UMF_LOG_ERROR("%p was freed before and waits for umfPutIPCHandle of its handle", ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

umf_result_t umf_pin_check(umf_memory_pool_handle_t pool, const void *ptr) {
    if (!__atomic_load_n(&pool->pins, __ATOMIC_RELAXED)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_lock(&pin_lock);
    bool is_deferred = pin_is_deferred_locked(pool, (uintptr_t)ptr);
    umf_unlock(&pin_lock);
    return is_deferred ? refuse_deferred(ptr) : UMF_RESULT_SUCCESS;
}

umf_result_t umf_pin_begin(umf_pin_t *pin, umf_span_t *span, const void *ptr) {
    umf_memory_pool_handle_t pool =
        atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire);
    *pin = (umf_pin_t){.addr = (uintptr_t)ptr, .span = umf_span_index(span)};
    /* An object that is an allocation of the provider is never handed out again by the pool. */
    if (!pool || (pool->fast && pool->fast->each_from_provider)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_lock(&pin_lock);
    bool is_deferred = pin_is_deferred_locked(pool, pin->addr);
    if (!is_deferred) {
        pin_link_locked(pool, pin);
        umf_layer_see_span(span);
    }
    umf_unlock(&pin_lock);
    return is_deferred ? refuse_deferred(ptr) : UMF_RESULT_SUCCESS;
}

/* The free goes through all layers but the record, where it was recorded when the free was
 * deferred: a thread may have freed the object on a queue as well meanwhile, which that layer
 * refuses.
 */
static void pin_give_back(umf_memory_pool_handle_t pool, uintptr_t addr) {
    umf_map_entry_t entry = umf_map_find(&umf_map_global, addr);
    if (umf_map_entry_pool(entry) == pool->index) { /* the pool still has the span */
        UMF_PASS_ON(pool, UMF_LAYER_RECORD, free_at)(pool->free_self, (void *)addr, entry);
    }
}

/* Unlinks the pin. Returns the object whose free only this pin deferred; 0: none. */
static uintptr_t pin_end_locked(umf_memory_pool_handle_t pool, umf_pin_t *pin) {
    uintptr_t deferred = pin->deferred;
    pin_unlink_locked(pool, pin);
    if (!deferred || pin_next_locked(pool, deferred, pin->deferred_size, NULL)) {
        return 0;
    }
    atomic_fetch_sub_explicit(&pool->deferred, 1, memory_order_relaxed);
    return deferred;
}

void umf_pin_end(umf_pin_t *pin) {
    if (!__atomic_load_n(&pin->pool, __ATOMIC_RELAXED)) {
        return; /* it was never linked, or its pool has ended */
    }
    umf_lock(&pin_lock);
    umf_memory_pool_handle_t pool = pin->pool;
    uintptr_t deferred = pool ? pin_end_locked(pool, pin) : 0;
    umf_unlock(&pin_lock);
    if (deferred) {
        pin_give_back(pool, deferred);
    }
}

void umf_pin_drop(umf_memory_pool_handle_t pool) {
    /* One pin at a time, because the pool is called without the lock. */
    for (bool goes_on = true; goes_on;) {
        umf_lock(&pin_lock);
        umf_pin_t *pin = pool->pins;
        uintptr_t deferred = pin ? pin_end_locked(pool, pin) : 0;
        umf_unlock(&pin_lock);
        goes_on = pin != NULL;
        if (deferred) {
            pin_give_back(pool, deferred);
        }
    }
}

/* --- realloc --- */

static bool pin_has(umf_memory_pool_handle_t pool, const void *ptr, size_t *size) {
    umf_map_entry_t entry = umf_map_find(&umf_map_global, (uintptr_t)ptr);
    if (umf_map_entry_pool(entry) != pool->index || !pin_may_be_in(pool, entry) ||
        !pin_may_be_at(pool, (uintptr_t)ptr, entry) ||
        pin_size_of(pool, ptr, size) != UMF_RESULT_SUCCESS) {
        return false;
    }
    umf_lock(&pin_lock);
    bool has = pin_next_locked(pool, (uintptr_t)ptr, *size, NULL) != NULL;
    umf_unlock(&pin_lock);
    return has;
}

static umf_result_t pin_copy(umf_memory_pool_handle_t pool, void *to, const void *from,
                             size_t size) {
    umf_content_t content;
    umf_content_init(&content, pool->tracked);
    return umf_content_copy(&content, to, from, size);
}

static void *pin_move(umf_memory_pool_handle_t pool, void *ptr, size_t room, size_t size) {
    void *moved = umfPoolMalloc(pool, size);
    if (!moved) {
        return NULL;
    }
    if (pin_copy(pool, moved, ptr, room) != UMF_RESULT_SUCCESS) {
        umfPoolFree(pool, moved);
        return NULL;
    }
    umfPoolFree(pool, ptr);
    return moved;
}

/* The object stays in place with its full size, or it is copied, and its free deferred. */
static void *pin_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    bool is_offered = size == 0 || !(pool->fast && pool->fast->no_realloc);
    size_t room;
    if (!ptr || !is_offered || !pin_has(pool, ptr, &room)) {
        return PASS_ON(pool, realloc)(pool, ptr, size);
    }
    if (size == 0) {
        umfPoolFree(pool, ptr);
        return NULL;
    }
    return size <= room ? ptr : pin_move(pool, ptr, room, size);
}

static const umf_layer_t pin_layer = {
    .rank = UMF_LAYER_PIN,
    .calls = {.free_at = pin_free_at, .try_free = pin_try_free, .realloc = pin_realloc},
};
