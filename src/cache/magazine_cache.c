/* The caches of threads: made at the first miss, aged by decay passes, emptied at the end. */
#include "cache/magazine_own.h"

static umf_magazines_t *magazines_of(umf_thread_slot_owner_t *owner) {
    return UMF_CONTAINER_OF(owner, umf_magazines_t, owner);
}

static void cache_empty(umf_magazines_t *m, umf_cache_t *cache) {
    for (uint32_t i = 0; i < m->stacks; i++) {
        umf_magazine_empty(m, umf_magazine_bin(m, i), &cache->bins[i]);
    }
}

void umf_magazine_free_stacks(umf_magazines_t *m, umf_cache_t *cache) {
    for (uint32_t i = 0; i < m->stacks; i++) {
        umf_magazine_free_stack(m, umf_magazine_bin(m, i), &cache->bins[i]);
    }
}

/* The thread ends: its objects go to the depots as far as these have room, else to the pool. Kept
 * ones go to the pool, because no thread takes them from the depots. */
static void magazine_hand_over(umf_magazines_t *m, uint32_t bin, uint32_t number,
                               umf_magazine_t *mag) {
    size_t count = umf_magazine_count(mag);
    if (count && !m->capacity[bin].is_kept &&
        umf_magazine_depot_give(m, bin, number, NULL, mag->base, count)) {
        umf_magazine_set_top(mag, mag->base);
    }
    umf_magazine_empty(m, bin, mag);
    umf_magazine_free_stack(m, bin, mag);
}

static void cache_hand_over(umf_magazines_t *m, umf_cache_t *cache) {
    for (uint32_t i = 0; i < m->stacks; i++) {
        if (i >= m->bins) {
            umf_magazine_send(m, umf_magazine_bin(m, i), &cache->bins[i]);
        }
        if (cache->bins[i].base) {
            magazine_hand_over(m, umf_magazine_bin(m, i), cache->number, &cache->bins[i]);
        }
    }
}

/* The lowest number that no thread has, so that a thread gets the objects that an earlier one left
 * in its depot. */
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

void umf_magazine_thread_exit(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    umf_magazines_t *m = magazines_of(owner);
    cache_hand_over(m, (umf_cache_t *)block);
    umf_magazine_count_out(m,
                           __atomic_exchange_n(&((umf_cache_t *)block)->out, 0, __ATOMIC_RELAXED));
    number_put(m, ((umf_cache_t *)block)->number);
}

/* Another thread takes the cache: its objects go to the pool. */
void umf_magazine_cache_taken(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    umf_magazines_t *m = magazines_of(owner);
    cache_empty(m, (umf_cache_t *)block);
    umf_magazine_free_stacks(m, (umf_cache_t *)block);
    umf_magazine_count_out(m,
                           __atomic_exchange_n(&((umf_cache_t *)block)->out, 0, __ATOMIC_RELAXED));
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
    for (uint32_t i = 0; i < m->stacks; i++) {
        uint32_t bin = umf_magazine_bin(m, i);
        umf_magazine_t *mag = &cache->bins[i];
        size_t count = umf_magazine_count(mag);
        if (count == 0 && mag->seen == 0) {
            umf_magazine_free_stack(m, bin, mag);
        } else if (count == mag->seen) {
            umf_magazine_empty(m, bin, mag);
        }
        mag->seen = (uint16_t)umf_magazine_count(mag);
    }
}

static bool has_no_miss_since(const umf_thread_slot_t *block, void *pass) {
    return __atomic_load_n(&((const umf_cache_t *)block)->pass, __ATOMIC_RELAXED) !=
           *(const uint32_t *)pass;
}

void umf_magazines_age(umf_magazines_t *m) {
    uint32_t pass = atomic_fetch_add_explicit(&m->passes, 1, memory_order_relaxed);
    umf_thread_slot_take_from_others(&m->owner, has_no_miss_since, umf_magazine_cache_taken, &pass);
    umf_cache_t *cache = umf_magazine_cache_pin(m);
    if (cache) {
        cache_age(m, cache);
    }
    umf_magazine_cache_unpin(cache);
}

static UMF_COLD umf_cache_t *cache_make(umf_magazines_t *m) {
    umf_cache_t *cache = NULL;
    /* Another thread may take a new cache at once. */
    while (!cache && umf_thread_slot_make(&m->owner)) {
        cache = umf_magazine_cache_pin(m);
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
    cache->key = umf_magazine_key(m, cache->number);
    return cache;
}

/* The calling thread's cache, pinned, after the thread has flushed for any trim since its last
 * miss. NULL: out of memory, or the thread is ending. */
umf_cache_t *umf_magazine_cache_ready(umf_magazines_t *m) {
    umf_cache_t *cache = umf_magazine_cache_pin(m);
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
