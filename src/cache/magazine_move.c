/*
 * Objects move between the stack of a thread, the depots and the pool.
 *
 * A thread passes objects on to a depot as long as it has room, and a thread that needs objects
 * takes them from there. The pool is the last step in both directions.
 */
#include <string.h>

#include "cache/magazine_own.h"

#define DEPOT_STACKS 8u /* a depot has room for at least this many stacks of contended capacity */

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t large_objects(size_t size) {
    size_t objects = UMF_MAGAZINE_LARGE_DEPOT_BYTES / size;
    return objects < UMF_MAGAZINE_LARGE_DEPOT_OBJECTS ? objects : UMF_MAGAZINE_LARGE_DEPOT_OBJECTS;
}

static size_t depot_capacity(const umf_magazines_t *m, uint32_t bin) {
    const umf_magazine_capacity_t *capacity = &m->capacity[bin];
    size_t batches = m->depot_batches * (capacity->usual / 2u);
    size_t stacks = (size_t)DEPOT_STACKS * capacity->contended;
    size_t large = capacity->is_large ? large_objects(capacity->size) : 0;
    return larger(large, larger(batches, stacks));
}

/* NULL: the pool has no depots, or there is no memory. */
static umf_depots_t *depots_made(umf_magazines_t *m, uint32_t bin) {
    umf_depots_t *depots = umf_magazine_depots(m, bin), *other = NULL;
    if (depots || m->depot_batches == 0) {
        return depots;
    }
    depots = umf_depots_create(depot_capacity(m, bin));
    atomic_store_explicit(&m->has_depots, true, memory_order_relaxed); /* before it is published */
    if (depots &&
        !atomic_compare_exchange_strong_explicit(&m->depots[bin], &other, depots,
                                                 memory_order_acq_rel, memory_order_acquire)) {
        umf_depots_destroy(depots);
        return other;
    }
    return depots;
}

static uint32_t thread_number(const umf_magazines_t *m) {
    umf_thread_slot_enter();
    uint32_t number = ((const umf_cache_t *)umf_thread_slot_get(m->owner.index))->number;
    umf_thread_slot_leave();
    return number;
}

/* `mag`: the calling thread's magazine, NULL if it has none. */
size_t umf_magazine_depot_take(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag,
                               umf_item_t *items, size_t n) {
    umf_depots_t *depots = umf_magazine_depots(m, bin);
    return depots ? umf_depots_take(depots, thread_number(m), mag ? &mag->user : NULL, items, n)
                  : 0;
}

bool umf_magazine_depot_give(umf_magazines_t *m, uint32_t bin, uint32_t number, umf_magazine_t *mag,
                             umf_item_t *items, size_t n) {
    umf_depots_t *depots = depots_made(m, bin);
    return depots && umf_depots_give(depots, number, mag ? &mag->user : NULL, items, n);
}

/* `number`: that of the owner of their pages. */
static bool depot_return(umf_magazines_t *m, uint32_t bin, uint32_t number, const umf_item_t *items,
                         size_t n) {
    umf_depots_t *depots = depots_made(m, bin);
    return depots && umf_depots_return(depots, number, items, n);
}

/* Counts in the thread's own cache, because a shared counter would be contended by all misses. A
 * thread without a cache uses the shared one. */
void umf_magazine_count_out(umf_magazines_t *m, int64_t n) {
    umf_thread_slot_enter();
    umf_cache_t *cache = (umf_cache_t *)umf_thread_slot_get(m->owner.index);
    bool is_own = cache->head.owner != NULL;
    if (is_own) {
        __atomic_store_n(&cache->out, cache->out + n, __ATOMIC_RELAXED);
    }
    umf_thread_slot_leave();
    if (!is_own) {
        atomic_fetch_add_explicit(&m->out, n, memory_order_relaxed);
    }
}

static void pool_flush(umf_magazines_t *m, uint32_t bin, umf_item_t *items, size_t n) {
    m->ops->flush(m->pool, bin, items, n);
    umf_magazine_count_out(m, -(int64_t)n);
}

/* Flushes up to `n` objects from the depots to the pool. Returns how many. */
size_t umf_magazine_depots_flush(umf_magazines_t *m, uint32_t bin, size_t n, bool only_idle) {
    umf_item_t items[64];
    size_t flushed = 0, taken = 1;
    for (; flushed < n && taken; flushed += taken) {
        size_t request = n - flushed < UMF_COUNT_OF(items) ? n - flushed : UMF_COUNT_OF(items);
        taken = only_idle ? umf_depots_take_idle(umf_magazine_depots(m, bin), items, request)
                          : umf_magazine_depot_take(m, bin, NULL, items, request);
        if (taken) {
            pool_flush(m, bin, items, taken);
        }
    }
    return flushed;
}

/* --- between a thread and the pool --- */

size_t umf_magazine_pool_refill(umf_magazines_t *m, uint32_t bin, umf_item_t *items, size_t n) {
    size_t got = m->ops->refill ? m->ops->refill(m->pool, bin, items, n) : 0;
    umf_magazine_count_out(m, (int64_t)got);
    return got;
}

/* Objects that leave a thread go to a depot, or to the pool if the depots are full. */
void umf_magazine_pass_on(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, umf_item_t *items,
                          size_t n) {
    if (!umf_magazine_depot_give(m, bin, thread_number(m), mag, items, n)) {
        pool_flush(m, bin, items, n);
    }
}

/* --- stacks --- */

/*
 * A stack whose objects are on their way between the thread and the pool is taken out of its
 * magazine meanwhile. The pool may run code of the user, an operation of a provider or a callback
 * before a request fails, which allocates and frees in this very magazine: it makes a stack of its
 * own then.
 */
typedef struct held_stack_t {
    umf_item_t *items;
    size_t count, capacity;
} held_stack_t;

static held_stack_t stack_take(umf_magazine_t *mag) {
    held_stack_t stack = {mag->base, umf_magazine_count(mag), umf_magazine_room(mag)};
    umf_magazine_set_stack(mag, NULL, 0, 0);
    return stack;
}

/* `count`: the objects that the stack has now. */
static void stack_put_back(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag,
                           const held_stack_t *stack, size_t count) {
    if (umf_unlikely(mag->base != NULL)) {
        umf_magazine_empty(m, bin, mag);
        umf_magazine_free_stack(m, bin, mag);
    }
    umf_magazine_set_stack(mag, stack->items, count, stack->capacity);
}

/* Gives the older half away. The recently freed objects stay: they are still in the CPU's cache. */
void umf_magazine_halve(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    held_stack_t stack = stack_take(mag);
    size_t batch = stack.capacity / 2, rest = stack.count - batch;
    mag->was_refilled = mag->user.is_contended = false;
    umf_magazine_pass_on(m, bin, mag, stack.items, batch);
    memmove(stack.items, stack.items + batch, rest * sizeof(umf_item_t));
    stack_put_back(m, bin, mag, &stack, rest);
}

void umf_magazine_empty(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    if (umf_magazine_count(mag)) {
        held_stack_t stack = stack_take(mag);
        pool_flush(m, bin, stack.items, stack.count);
        stack_put_back(m, bin, mag, &stack, 0);
    }
}

void umf_magazine_send(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    if (!umf_magazine_count(mag)) {
        return;
    }
    held_stack_t stack = stack_take(mag);
    umf_item_t *items = stack.items;
    for (size_t left = stack.count, n; left > 0; left -= n, items += n) {
        uint32_t owner;
        n = umf_magazine_group(m, items, left, &owner);
        if (!owner || !depot_return(m, bin, owner - 1, items, n)) {
            pool_flush(m, bin, items, n);
        }
    }
    stack_put_back(m, bin, mag, &stack, 0);
}

/* Refills an empty stack. */
size_t umf_magazine_refill(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, size_t batch) {
    held_stack_t stack = stack_take(mag);
    size_t got = umf_magazine_pool_refill(m, bin, stack.items, batch);
    stack_put_back(m, bin, mag, &stack, 0);
    return got;
}
