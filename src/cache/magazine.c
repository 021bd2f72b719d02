#include "cache/magazine.h"

#include <errno.h>
#include <string.h>

#include "base/meta.h"

static umf_magazines_t *magazines_of(umf_thread_slot_owner_t *owner) {
    return UMF_CONTAINER_OF(owner, umf_magazines_t, owner);
}

/* The first capacity of a stack that may grow: the states of one batch fill a cache line, which no
 * other thread shares. */
#define FIRST_CAPACITY 128u

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

/* --- depots --- */

static umf_depots_t *depots_of(const umf_magazines_t *m, uint32_t bin) {
    return atomic_load_explicit(&m->depots[bin], memory_order_acquire);
}

static bool is_large(const umf_magazines_t *m, uint32_t bin) {
    return m->capacity[bin].is_large;
}

static size_t waiting(const umf_magazines_t *m, uint32_t bin) {
    const umf_depots_t *depots = depots_of(m, bin);
    return depots ? umf_depots_count(depots) : 0;
}

/* NULL: the pool has no depots, or there is no memory. */
static umf_depots_t *depots_made(umf_magazines_t *m, uint32_t bin) {
    umf_depots_t *depots = depots_of(m, bin), *other = NULL;
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

/* The calling thread's cache, which other threads do not take until it is unpinned. NULL: it has
 * none. */
static umf_cache_t *cache_pin(const umf_magazines_t *m) {
    return (umf_cache_t *)umf_thread_slot_pin(&m->owner);
}

static void cache_unpin(umf_cache_t *cache) {
    if (cache) {
        umf_thread_slot_unpin(&cache->head);
    }
}

static uint32_t thread_number(const umf_magazines_t *m) {
    umf_thread_slot_enter();
    uint32_t number = ((const umf_cache_t *)umf_thread_slot_get(m->owner.index))->number;
    umf_thread_slot_leave();
    return number;
}

/* `mag`: the calling thread's magazine, NULL if it has none. */
static size_t depot_take(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, umf_item_t *items,
                         size_t n) {
    umf_depots_t *depots = depots_of(m, bin);
    return depots ? umf_depots_take(depots, thread_number(m), mag ? &mag->user : NULL, items, n)
                  : 0;
}

static bool depot_give(umf_magazines_t *m, uint32_t bin, uint32_t number, umf_magazine_t *mag,
                       umf_item_t *items, size_t n) {
    umf_depots_t *depots = depots_made(m, bin);
    return depots && umf_depots_give(depots, number, mag ? &mag->user : NULL, items, n);
}

/* Counts in the thread's own cache, because a shared counter would be contended by all misses. A
 * thread without a cache uses the shared one. */
static void count_out(umf_magazines_t *m, int64_t n) {
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
    count_out(m, -(int64_t)n);
}

/* Flushes up to `n` objects from the depots to the pool. Returns how many. */
static size_t depots_flush(umf_magazines_t *m, uint32_t bin, size_t n, bool only_idle) {
    umf_item_t items[64];
    size_t flushed = 0, taken = 1;
    for (; flushed < n && taken; flushed += taken) {
        size_t request = n - flushed < UMF_COUNT_OF(items) ? n - flushed : UMF_COUNT_OF(items);
        taken = only_idle ? umf_depots_take_idle(depots_of(m, bin), items, request)
                          : depot_take(m, bin, NULL, items, request);
        if (taken) {
            pool_flush(m, bin, items, taken);
        }
    }
    return flushed;
}

static void age(umf_magazines_t *m, bool is_new);

#define DECAY_LEAST ((size_t)4 << 10) /* a smaller object takes as long to flush */

/* true: some objects are left for the next pass, so that no caller waits long. */
static bool depots_decay(umf_magazines_t *m, bool is_new) {
    size_t left = umf_decay_bytes();
    bool goes_on = false;
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        size_t size = larger(m->capacity[bin].size, DECAY_LEAST);
        umf_depots_t *depots = depots_of(m, bin);
        /* A continued pass goes on with the objects that the new pass found idle: a second count
         * would let objects decay that were idle for a moment only. */
        if (depots && (!is_new || umf_depots_count_idle(depots))) {
            size_t limit = left / size + (left % size != 0);
            size_t flushed = depots_flush(m, bin, limit, true);
            left -= flushed < limit ? flushed * size : left;
            goes_on |= flushed == limit;
        }
    }
    return goes_on;
}

UMF_COLD void umf_magazines_decay_now(umf_magazines_t *m) {
    int saved_errno = errno; /* the caller may be malloc or free, which must not change it */
    bool is_new = !atomic_exchange_explicit(&m->decay_goes_on, false, memory_order_relaxed);
    age(m, is_new);
    bool goes_on = depots_decay(m, is_new);
    if (m->ops->decay_pass && m->ops->decay_pass(m->pool, is_new)) {
        goes_on = true;
    }
    if (goes_on) {
        atomic_store_explicit(&m->decay_goes_on, true, memory_order_relaxed);
        umf_decay_go_on(&m->decay);
    }
    errno = saved_errno;
}

/* --- between a thread and the pool --- */

static size_t pool_refill(umf_magazines_t *m, uint32_t bin, umf_item_t *items, size_t n) {
    size_t got = m->ops->refill ? m->ops->refill(m->pool, bin, items, n) : 0;
    count_out(m, (int64_t)got);
    return got;
}

/* Objects that leave a thread go to a depot, or to the pool if the depots are full. */
static void pass_on(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, umf_item_t *items,
                    size_t n) {
    if (!depot_give(m, bin, thread_number(m), mag, items, n)) {
        pool_flush(m, bin, items, n);
    }
}

/* --- stacks --- */

static size_t magazine_capacity(const umf_magazine_t *mag) {
    return (size_t)(mag->limit - mag->base);
}

/* `top` is NULL while `base` changes, and stays so where fork left the thread behind just then:
 * such a stack counts as empty, and is not freed. */
static size_t magazine_count(const umf_magazine_t *mag) {
    return mag->top ? (size_t)(mag->top - mag->base) : 0;
}

static void magazine_set_top(umf_magazine_t *mag, umf_item_t *top) {
    __atomic_store_n(&mag->top, top, __ATOMIC_RELEASE);
}

/* Other threads may be counting. They count nothing while `top` is NULL, so it is NULL while `base`
 * changes. */
static void magazine_set_stack(umf_magazine_t *mag, umf_item_t *stack, size_t count,
                               size_t capacity) {
    magazine_set_top(mag, NULL);
    __atomic_store_n(&mag->base, stack, __ATOMIC_RELAXED);
    mag->limit = stack ? stack + capacity : NULL;
    magazine_set_top(mag, stack ? stack + count : NULL);
}

static size_t stack_bytes(size_t capacity) {
    return umf_meta_isolated_size(capacity * sizeof(umf_item_t));
}

/* The magic of the distance between two states. An address between two objects may lead to a state
 * between theirs; that is never LIVE, so the push is refused. */
static uint64_t states_magic(const umf_magazine_slab_t *slab, size_t batch) {
    if (!slab->magic) {
        return 0;
    }
    size_t stride = umf_magazine_state_stride(slab->size, batch);
    return stride > 1 ? umf_magic(slab->size / stride) : slab->magic;
}

/* Counts room for `n` more objects in stacks. false: the bound of the pool is reached. */
static bool reserve(umf_magazines_t *m, uint32_t bin, size_t n) {
    size_t bytes = n * m->capacity[bin].size, reserved = umf_magazines_bytes(m);
    do {
        if (reserved > m->bytes_max || bytes > m->bytes_max - reserved) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&m->bytes, &reserved, reserved + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void unreserve(umf_magazines_t *m, uint32_t bin, size_t n) {
    atomic_fetch_sub_explicit(&m->bytes, n * m->capacity[bin].size, memory_order_relaxed);
}

/* NULL: the bound of the pool is reached, or there is no memory. */
static umf_item_t *stack_make(umf_magazines_t *m, uint32_t bin, size_t capacity, size_t reserved) {
    if (!reserve(m, bin, capacity - reserved)) {
        return NULL;
    }
    umf_item_t *stack = umf_meta_alloc(stack_bytes(capacity));
    if (!stack) {
        unreserve(m, bin, capacity - reserved);
    }
    return stack;
}

/* Only the thread itself may switch checks on: a push that saw the magic change from 0 would take a
 * wrong state. From its own to 0 is harmless, because the push is refused. */
static uint64_t checked_magic(const umf_magazines_t *m, uint32_t bin) {
    if (m->page_magic) {
        return m->page_magic[bin + 1];
    }
    return m->slabs ? states_magic(&m->slabs[bin + 1], m->capacity[bin].usual / 2) : 0;
}

static void magazine_set_checks(const umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    bool may = !atomic_load_explicit(&m->is_unchecked, memory_order_relaxed);
    uint64_t magic = may ? checked_magic(m, bin) : 0;
    __atomic_store_n(&mag->magic, magic, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_seq_cst); /* as in umf_magazines_check */
    if (atomic_load_explicit(&m->is_unchecked, memory_order_relaxed)) {
        __atomic_store_n(&mag->magic, 0, __ATOMIC_RELAXED);
    }
}

static bool magazine_make_stack(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    size_t usual = m->capacity[bin].usual,
           capacity = usual < FIRST_CAPACITY ? usual : FIRST_CAPACITY;
    umf_item_t *stack = stack_make(m, bin, capacity, 0);
    while (!stack && capacity >= 4) {
        capacity /= 2;
        stack = stack_make(m, bin, capacity, 0);
    }
    if (!stack) {
        return false;
    }
    mag->mask = m->slabs ? m->slabs[bin + 1].mask : 0;
    magazine_set_checks(m, bin, mag);
    magazine_set_stack(mag, stack, 0, capacity);
    return true;
}

static void magazine_free_stack(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    umf_item_t *stack = mag->top ? mag->base : NULL;
    size_t capacity = magazine_capacity(mag);
    if (!stack) {
        return;
    }
    magazine_set_stack(mag, NULL, 0, 0);
    umf_meta_free(stack, stack_bytes(capacity));
    unreserve(m, bin, capacity);
}

/* false: the stack stays as it is. */
static bool magazine_grow(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    size_t old = magazine_capacity(mag), count = magazine_count(mag);
    size_t most = mag->user.is_contended ? m->capacity[bin].contended : m->capacity[bin].usual;
    size_t capacity = 2 * old < most ? 2 * old : most;
    /* A stack grows only if its capacity costs exchanges: it alternates between empty and full, or
     * the depots are contended. A thread that only frees needs no larger stack. */
    if (!(mag->was_refilled || mag->user.is_contended) || capacity <= old) {
        return false;
    }
    umf_item_t *stack = stack_make(m, bin, capacity, old);
    if (!stack) {
        return false;
    }
    umf_item_t *small = mag->base;
    memcpy(stack, small, count * sizeof(umf_item_t));
    magazine_set_stack(mag, stack, count, capacity);
    umf_meta_free(small, stack_bytes(old));
    mag->was_refilled = mag->user.is_contended = false;
    return true;
}

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
    held_stack_t stack = {mag->base, magazine_count(mag), magazine_capacity(mag)};
    magazine_set_stack(mag, NULL, 0, 0);
    return stack;
}

static void magazine_empty(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag);

/* `count`: the objects that the stack has now. */
static void stack_put_back(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag,
                           const held_stack_t *stack, size_t count) {
    if (umf_unlikely(mag->base != NULL)) {
        magazine_empty(m, bin, mag);
        magazine_free_stack(m, bin, mag);
    }
    magazine_set_stack(mag, stack->items, count, stack->capacity);
}

/* Gives the older half away. The recently freed objects stay: they are still in the CPU's cache. */
static void magazine_halve(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    held_stack_t stack = stack_take(mag);
    size_t batch = stack.capacity / 2, rest = stack.count - batch;
    mag->was_refilled = mag->user.is_contended = false;
    pass_on(m, bin, mag, stack.items, batch);
    memmove(stack.items, stack.items + batch, rest * sizeof(umf_item_t));
    stack_put_back(m, bin, mag, &stack, rest);
}

/* --- caches --- */

static void magazine_empty(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    if (magazine_count(mag)) {
        held_stack_t stack = stack_take(mag);
        pool_flush(m, bin, stack.items, stack.count);
        stack_put_back(m, bin, mag, &stack, 0);
    }
}

static void cache_empty(umf_magazines_t *m, umf_cache_t *cache) {
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        magazine_empty(m, bin, &cache->bins[bin]);
    }
}

static void cache_free_stacks(umf_magazines_t *m, umf_cache_t *cache) {
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        magazine_free_stack(m, bin, &cache->bins[bin]);
    }
}

/* The thread ends: its objects go to the depots as far as these have room, else to the pool. Kept
 * ones go to the pool, because no thread takes them from the depots. */
static void magazine_hand_over(umf_magazines_t *m, uint32_t bin, uint32_t number,
                               umf_magazine_t *mag) {
    size_t count = magazine_count(mag);
    if (count && !m->capacity[bin].is_kept && depot_give(m, bin, number, NULL, mag->base, count)) {
        magazine_set_top(mag, mag->base);
    }
    magazine_empty(m, bin, mag);
    magazine_free_stack(m, bin, mag);
}

static void cache_hand_over(umf_magazines_t *m, umf_cache_t *cache) {
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        if (cache->bins[bin].base) {
            magazine_hand_over(m, bin, cache->number, &cache->bins[bin]);
        }
    }
}

/* The lowest number that no thread has, so that a thread finds what one before it left in its
 * depot.
 */
static uint32_t number_take(umf_magazines_t *m) {
    uint32_t used = atomic_load_explicit(&m->numbers, memory_order_relaxed);
    while (~used &&
           !atomic_compare_exchange_weak_explicit(&m->numbers, &used, used | (used + 1),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return ~used ? (uint32_t)__builtin_ctz(~used) + 1
                 : UMF_DEPOTS_MAX + 1 +
                       atomic_fetch_add_explicit(&m->more_numbers, 1, memory_order_relaxed);
}

static void number_put(umf_magazines_t *m, uint32_t number) {
    if (number && number <= UMF_DEPOTS_MAX) {
        atomic_fetch_and_explicit(&m->numbers, ~(UINT32_C(1) << (number - 1)),
                                  memory_order_relaxed);
    }
}

static void thread_exit(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    umf_magazines_t *m = magazines_of(owner);
    cache_hand_over(m, (umf_cache_t *)block);
    count_out(m, __atomic_exchange_n(&((umf_cache_t *)block)->out, 0, __ATOMIC_RELAXED));
    number_put(m, ((umf_cache_t *)block)->number);
}

/* Another thread takes the cache: its objects go to the pool. */
static void cache_taken(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    umf_magazines_t *m = magazines_of(owner);
    cache_empty(m, (umf_cache_t *)block);
    cache_free_stacks(m, (umf_cache_t *)block);
    count_out(m, __atomic_exchange_n(&((umf_cache_t *)block)->out, 0, __ATOMIC_RELAXED));
    number_put(m, ((umf_cache_t *)block)->number);
}

/* false: the cache has it already. */
static bool cache_set_pass(umf_magazines_t *m, umf_cache_t *cache) {
    uint32_t pass = atomic_load_explicit(&m->passes, memory_order_relaxed);
    bool is_new = cache->pass != pass;
    __atomic_store_n(&cache->pass, pass, __ATOMIC_RELAXED);
    return is_new;
}

/* Once after each decay pass: flushes the stacks that have as many objects as after the one before,
 * and frees those that are still empty. */
static void cache_age(umf_magazines_t *m, umf_cache_t *cache) {
    if (umf_likely(!cache_set_pass(m, cache))) {
        return;
    }
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        umf_magazine_t *mag = &cache->bins[bin];
        size_t count = magazine_count(mag);
        if (count == 0 && mag->seen == 0) {
            magazine_free_stack(m, bin, mag);
        } else if (count == mag->seen) {
            magazine_empty(m, bin, mag);
        }
        mag->seen = (uint16_t)magazine_count(mag);
    }
}

static bool has_no_miss_since(const umf_thread_slot_t *block, void *pass) {
    return __atomic_load_n(&((const umf_cache_t *)block)->pass, __ATOMIC_RELAXED) !=
           *(const uint32_t *)pass;
}

/* What threads have not used since the last pass goes to the pool. */
static void age(umf_magazines_t *m, bool is_new) {
    if (!is_new) {
        return;
    }
    uint32_t pass = atomic_fetch_add_explicit(&m->passes, 1, memory_order_relaxed);
    umf_thread_slot_take_from_others(&m->owner, has_no_miss_since, cache_taken, &pass);
    umf_cache_t *cache = cache_pin(m);
    if (cache) {
        cache_age(m, cache);
    }
    cache_unpin(cache);
}

static UMF_COLD umf_cache_t *cache_make(umf_magazines_t *m) {
    umf_cache_t *cache = NULL;
    /* Another thread may take a new cache at once. */
    while (!cache && umf_thread_slot_make(&m->owner)) {
        cache = cache_pin(m);
    }
    if (!cache) {
        return NULL;
    }
    if (cache->number) { /* another thread had hidden it for a moment */
        return cache;
    }
    if (m->ops->thread_begins) {
        m->ops->thread_begins(m->pool);
    }
    cache->epoch = atomic_load_explicit(&m->epoch, memory_order_relaxed);
    cache_set_pass(m, cache);
    cache->number = number_take(m);
    return cache;
}

/* The calling thread's cache, pinned, after the thread has flushed for any trim since its last
 * miss. NULL: out of memory, or the thread is ending. */
static umf_cache_t *cache_ready(umf_magazines_t *m) {
    umf_cache_t *cache = cache_pin(m);
    uint32_t epoch = atomic_load_explicit(&m->epoch, memory_order_relaxed);
    if (!cache) {
        return cache_make(m);
    }
    if (cache->epoch != epoch) {
        cache->epoch = epoch;
        cache_empty(m, cache);
    }
    cache_age(m, cache);
    return cache;
}

/* NULL: there is no memory for its stack. */
static umf_magazine_t *magazine_ready(umf_magazines_t *m, umf_cache_t *cache, uint32_t bin) {
    umf_magazine_t *mag = cache ? &cache->bins[bin] : NULL;
    if (mag && mag->base && (m->slabs || m->page_magic) && !umf_magazine_magic(mag)) {
        magazine_set_checks(m, bin, mag);
    }
    return mag && (mag->base || magazine_make_stack(m, bin, mag)) ? mag : NULL;
}

/* A pool refills in order of growing addresses, but a stack serves the last item first. The
 * reversed stack serves growing addresses, which suits programs that walk their objects in the
 * order in which they allocated them. */
static void reverse(umf_item_t *items, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        umf_item_t item = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = item;
    }
}

static void *hand_out(const umf_item_t *item) {
    if (item->state) {
        umf_state_set(item->state, UMF_STATE_LIVE);
    }
    return item->object;
}

/* Serves a thread that has no stack. */
static void *pop_single(umf_magazines_t *m, uint32_t bin) {
    umf_item_t item;
    bool is_got = depot_take(m, bin, NULL, &item, 1) || pool_refill(m, bin, &item, 1);
    return is_got ? hand_out(&item) : NULL;
}

/* Refills an empty stack. */
static size_t stack_refill(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, size_t batch) {
    held_stack_t stack = stack_take(mag);
    size_t got = pool_refill(m, bin, stack.items, batch);
    stack_put_back(m, bin, mag, &stack, 0);
    return got;
}

/* A larger object is for any thread: a new one costs more than one that another CPU
 * has used. */
#define KEPT_MOST ((size_t)16 << 10)

static void count_needed(const umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, size_t got) {
    size_t needed = m->capacity[bin].size > KEPT_MOST ? 0 : mag->user.needed + got;
    mag->user.needed = (uint16_t)(needed < UINT16_MAX ? needed : UINT16_MAX);
}

static void *pop_with(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    if (magazine_count(mag)) { /* another thread had hidden the cache when the caller looked */
        magazine_set_top(mag, mag->top - 1);
        return hand_out(mag->top);
    }
    if (mag->user.is_contended) { /* a larger stack comes to the depots less often */
        magazine_grow(m, bin, mag);
    }
    size_t batch = magazine_capacity(mag) / 2;
    size_t got = depot_take(m, bin, mag, mag->base, batch);
    if (!got) {
        got = stack_refill(m, bin, mag, batch);
        reverse(mag->base, got);
    }
    if (!got) {
        return NULL;
    }
    void *object = hand_out(&mag->base[got - 1]);
    count_needed(m, bin, mag, got);
    mag->was_refilled = true;
    magazine_set_top(mag, mag->base + got - 1);
    return object;
}

UMF_COLD void *umf_magazine_pop_slow(umf_magazines_t *m, uint32_t bin) {
    umf_cache_t *cache = cache_ready(m);
    umf_magazine_t *mag = magazine_ready(m, cache, bin);
    void *object = mag ? pop_with(m, bin, mag) : pop_single(m, bin);
    cache_unpin(cache);
    umf_magazines_decay(m);
    return object;
}

static void push_with(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, umf_item_t item) {
    if (mag->top == mag->limit && !magazine_grow(m, bin, mag)) {
        magazine_halve(m, bin, mag);
    }
    *mag->top = item;
    magazine_set_top(mag, mag->top + 1);
}

UMF_COLD void umf_magazine_push_slow(umf_magazines_t *m, uint32_t bin, umf_item_t item) {
    umf_cache_t *cache = cache_ready(m);
    umf_magazine_t *mag = magazine_ready(m, cache, bin);
    if (mag) {
        push_with(m, bin, mag, item);
    } else {
        pass_on(m, bin, NULL, &item, 1);
    }
    cache_unpin(cache);
    umf_magazines_decay(m);
}

/* Half of the bound stays for bins that need their stacks more. */
UMF_COLD bool umf_magazine_keep_slow(umf_magazines_t *m, uint32_t bin, void *object) {
    if (umf_magazines_bytes(m) > m->bytes_max / 2) {
        return false;
    }
    umf_cache_t *cache = cache_ready(m);
    umf_magazine_t *mag = magazine_ready(m, cache, bin);
    bool has_room = mag && mag->top != mag->limit;
    if (has_room) {
        *mag->top = (umf_item_t){.object = object};
        magazine_set_top(mag, mag->top + 1);
    }
    cache_unpin(cache);
    return has_room;
}

/* --- whole sets --- */

static uint16_t objects_in(size_t bytes, size_t size, uint16_t least) {
    size_t objects = bytes / size;
    return objects < least                      ? least
           : objects > UMF_MAGAZINE_OBJECTS_MAX ? UMF_MAGAZINE_OBJECTS_MAX
                                                : (uint16_t)objects;
}

umf_magazine_capacity_t umf_magazine_capacity(size_t bytes, size_t size, uint16_t objects_min) {
    uint16_t usual = objects_in(bytes, size, objects_min < 2 ? 2 : objects_min);
    return (umf_magazine_capacity_t){
        .usual = usual,
        .contended = objects_in(UMF_MAGAZINE_CONTENDED_BYTES, size, usual),
        .size = (uint32_t)size,
    };
}

umf_magazine_capacity_t umf_magazine_capacity_large(size_t size) {
    umf_magazine_capacity_t capacity = umf_magazine_capacity(UMF_MAGAZINE_LARGE_BYTES, size, 2);
    capacity.is_large = true;
    return capacity;
}

umf_result_t umf_magazines_init(umf_magazines_t *m, uint32_t index, void *pool,
                                const umf_magazine_ops_t *ops,
                                const umf_magazine_capacity_t *capacity, uint32_t bins,
                                uint32_t depot_batches) {
    m->pool = pool;
    m->ops = ops;
    m->capacity = capacity;
    m->bins = bins;
    m->depot_batches = depot_batches;
    atomic_init(&m->epoch, 0);
    atomic_init(&m->out, 0);
    atomic_init(&m->numbers, 0);
    atomic_init(&m->more_numbers, 0);
    atomic_init(&m->bytes, 0);
    atomic_init(&m->is_unchecked, false);
    m->bytes_max = UMF_MAGAZINE_BYTES_MAX;
    atomic_init(&m->decay.next, 0);
    atomic_init(&m->decay_goes_on, false);
    atomic_init(&m->passes, 0);
    atomic_init(&m->has_depots, false);
    memset((void *)m->depots, 0, bins * sizeof(m->depots[0])); /* compilers store atomics singly */
    return umf_thread_slot_owner_init(
        &m->owner, index, sizeof(umf_cache_t) + bins * sizeof(umf_magazine_t), thread_exit);
}

static void uncheck(umf_thread_slot_t *block, void *magazines) {
    umf_magazines_t *m = magazines;
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        __atomic_store_n(&((umf_cache_t *)block)->bins[bin].magic, 0, __ATOMIC_RELAXED);
    }
}

void umf_magazines_check(umf_magazines_t *m, bool may) {
    atomic_store_explicit(&m->is_unchecked, !may, memory_order_relaxed);
    if (!may) {
        atomic_thread_fence(memory_order_seq_cst); /* as in magazine_set_checks */
        umf_thread_slot_each(&m->owner, uncheck, m);
    }
}

static void free_stacks(umf_thread_slot_t *block, void *m) {
    cache_free_stacks(m, (umf_cache_t *)block);
}

void umf_magazines_fini(umf_magazines_t *m) {
    umf_thread_slot_owner_close(&m->owner);
    umf_thread_slot_each(&m->owner, free_stacks, m);
    umf_thread_slot_owner_fini(&m->owner);
    bool has_depots = atomic_load_explicit(&m->has_depots, memory_order_relaxed);
    for (uint32_t bin = 0, bins = has_depots ? m->bins : 0; bin < bins; bin++) {
        umf_depots_t *depots = depots_of(m, bin);
        if (depots) {
            umf_depots_destroy(depots);
        }
    }
}

/* Flushes the thread's stack, and up to `most` objects from the depots. Returns how many. */
static size_t flush_bin(umf_magazines_t *m, uint32_t bin, umf_cache_t *cache, size_t most) {
    size_t own = cache ? magazine_count(&cache->bins[bin]) : 0;
    if (cache) {
        magazine_empty(m, bin, &cache->bins[bin]);
    }
    return own + depots_flush(m, bin, most, false);
}

void umf_magazines_flush(umf_magazines_t *m) {
    umf_cache_t *cache = cache_pin(m);
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        flush_bin(m, bin, cache, SIZE_MAX);
    }
    cache_unpin(cache);
}

static bool any_cache(const umf_thread_slot_t *block, void *arg) {
    (void)block, (void)arg;
    return true;
}

/* Releases about so many bytes of large objects. false: there were none. */
static bool release_large(umf_magazines_t *m, uint32_t except, size_t left) {
    bool was_any = false;
    umf_cache_t *cache = cache_pin(m);
    for (uint32_t bin = m->bins; left && bin-- > 0 && is_large(m, bin);) {
        size_t size = m->capacity[bin].size;
        size_t most = left / size + (left % size != 0);
        size_t flushed = bin == except ? 0 : flush_bin(m, bin, cache, most);
        was_any |= flushed != 0;
        left -= flushed < most ? flushed * size : left;
    }
    cache_unpin(cache);
    return was_any;
}

bool umf_magazines_release_large(umf_magazines_t *m, uint32_t except, size_t most) {
    size_t bytes = 0;
    for (uint32_t bin = m->bins; bin-- > 0 && is_large(m, bin);) {
        bytes += bin == except ? 0 : waiting(m, bin) * m->capacity[bin].size;
    }
    /* Below `most`, a flush costs more than it saves: the objects are likely to be needed again.
     * After a burst of frees there is far more, and one miss must not pay for all of it. */
    return bytes >= most && release_large(m, except, most ? most + most / 2 : SIZE_MAX);
}

void umf_magazines_trim(umf_magazines_t *m) {
    umf_thread_slot_take_from_others(&m->owner, any_cache, cache_taken, NULL);
    /* For those that are in use just now. */
    atomic_fetch_add_explicit(&m->epoch, 1, memory_order_relaxed);
    umf_magazines_flush(m);
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        umf_depots_t *depots = depots_of(m, bin);
        if (depots) {
            umf_depots_trim(depots);
        }
    }
}

typedef struct cached_count_t {
    uint32_t first, last; /* bins */
    size_t count;
    int64_t out; /* sum over the threads that have a cache */
} cached_count_t;

/* Counts another thread's magazine. If that changes its stack between the two loads, the
 * difference is meaningless: an impossible count is taken as 0. */
static size_t count_from_outside(umf_magazine_t *mag) {
    umf_item_t *top = __atomic_load_n(&mag->top, __ATOMIC_ACQUIRE);
    umf_item_t *base = __atomic_load_n(&mag->base, __ATOMIC_RELAXED);
    size_t count = ((uintptr_t)top - (uintptr_t)base) / sizeof(umf_item_t);
    return top && base && count <= UINT16_MAX ? count : 0;
}

static void count_cached(umf_thread_slot_t *block, void *arg) {
    cached_count_t *sum = arg;
    sum->out += __atomic_load_n(&((umf_cache_t *)block)->out, __ATOMIC_RELAXED);
    for (uint32_t bin = sum->first; bin <= sum->last; bin++) {
        sum->count += count_from_outside(&((umf_cache_t *)block)->bins[bin]);
    }
}

static cached_count_t cached_in(umf_magazines_t *m, uint32_t first, uint32_t last) {
    cached_count_t sum = {.first = first, .last = last};
    umf_thread_slot_each(&m->owner, count_cached, &sum);
    for (uint32_t bin = first; bin <= last; bin++) {
        sum.count += waiting(m, bin);
    }
    return sum;
}

size_t umf_magazines_cached(umf_magazines_t *m, uint32_t bin) {
    return cached_in(m, bin, bin).count;
}

static int64_t out_of(umf_magazines_t *m, const cached_count_t *cached) {
    return atomic_load_explicit(&m->out, memory_order_relaxed) + cached->out;
}

int64_t umf_magazines_out(umf_magazines_t *m) {
    cached_count_t cached = cached_in(m, 0, 0);
    return out_of(m, &cached);
}

int64_t umf_magazines_balance(umf_magazines_t *m) {
    cached_count_t cached = cached_in(m, 0, m->bins - 1);
    return out_of(m, &cached) - (int64_t)cached.count;
}

size_t umf_magazines_live(umf_magazines_t *m) {
    int64_t live = umf_magazines_balance(m);
    return live > 0 ? (size_t)live : 0;
}
