/* The inside of magazines, shared by their files. */
#ifndef UMF_SRC_CACHE_MAGAZINE_OWN_H
#define UMF_SRC_CACHE_MAGAZINE_OWN_H

#include "cache/magazine.h"

static inline size_t umf_magazine_room(const umf_magazine_t *mag) {
    return (size_t)(mag->limit - mag->base);
}

/* `top` is NULL while `base` changes, and stays so where fork left the thread behind just then:
 * such a stack counts as empty, and is not freed. */
static inline size_t umf_magazine_count(const umf_magazine_t *mag) {
    return mag->top ? (size_t)(mag->top - mag->base) : 0;
}

static inline void umf_magazine_set_top(umf_magazine_t *mag, umf_item_t *top) {
    __atomic_store_n(&mag->top, top, __ATOMIC_RELEASE);
}

/* The bin of a stack of a cache. */
static inline uint32_t umf_magazine_bin(const umf_magazines_t *m, uint32_t stack) {
    return stack < m->bins ? stack : stack - m->bins;
}

static inline umf_depots_t *umf_magazine_depots(const umf_magazines_t *m, uint32_t bin) {
    return atomic_load_explicit(&m->depots[bin], memory_order_acquire);
}

/* The calling thread's cache, which other threads do not take until it is unpinned. NULL: it has
 * none. */
static inline umf_cache_t *umf_magazine_cache_pin(const umf_magazines_t *m) {
    return (umf_cache_t *)umf_thread_slot_pin(&m->owner);
}

static inline void umf_magazine_cache_unpin(umf_cache_t *cache) {
    if (cache) {
        umf_thread_slot_unpin(&cache->head);
    }
}

/* --- magazine_stack.c: the memory of stacks --- */

/* `count` of its `capacity` items are objects. `stack`: NULL for none. */
void umf_magazine_set_stack(umf_magazine_t *mag, umf_item_t *stack, size_t count, size_t capacity);
/* Allows checked pushes, if the pool does. */
void umf_magazine_set_checks(const umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag);
/* false: the bound of the pool is reached, or there is no memory. */
bool umf_magazine_make_stack(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag);
void umf_magazine_free_stack(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag);
/* false: the stack stays as it is. */
bool umf_magazine_grow(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag);

/* --- magazine_move.c: objects between a stack, the depots and the pool --- */

/* Takes up to `n` objects from the depots. `mag`: the calling thread's magazine, NULL if it has
 * none. */
size_t umf_magazine_depot_take(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag,
                               umf_item_t *items, size_t n);
/* false: the depots have no room. `number`: that of the thread. */
bool umf_magazine_depot_give(umf_magazines_t *m, uint32_t bin, uint32_t number, umf_magazine_t *mag,
                             umf_item_t *items, size_t n);
/* Flushes up to `n` objects from the depots to the pool. Returns how many. */
size_t umf_magazine_depots_flush(umf_magazines_t *m, uint32_t bin, size_t n, bool only_idle);
/* Counts `n` more objects as handed out by the pool. */
void umf_magazine_count_out(umf_magazines_t *m, int64_t n);
size_t umf_magazine_pool_refill(umf_magazines_t *m, uint32_t bin, umf_item_t *items, size_t n);
/* Objects that leave a thread go to a depot, or to the pool if the depots are full. */
void umf_magazine_pass_on(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, umf_item_t *items,
                          size_t n);
/* Refills an empty stack from the pool. Returns the number of objects, which are not counted in
 * `top` yet. */
size_t umf_magazine_refill(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, size_t batch);
/* Gives the older half away. */
void umf_magazine_halve(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag);
/* Flushes the stack to the pool. */
void umf_magazine_empty(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag);

/* Gives the objects of a remote stack to the depots of their owners, or to the pool. */
void umf_magazine_send(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag);

/* --- magazine_remote.c: pages and their owners --- */

/* The key of page records whose owner is the thread with this number, or UMF_PAGE_KEY_NONE. */
uint16_t umf_magazine_key(const umf_magazines_t *m, uint32_t number);
/* Makes the calling thread the owner of the pages of these objects. */
void umf_magazine_adopt(const umf_magazines_t *m, const umf_item_t *items, size_t n);
/* Moves the objects whose page has the same owner as that of the first one to the front. Returns
 * how many they are. `owner` 0: it has none. */
size_t umf_magazine_group(const umf_magazines_t *m, umf_item_t *items, size_t n, uint32_t *owner);

/* --- magazine_cache.c: caches of threads --- */

/* The calling thread's cache, pinned, after the thread has flushed for any trim since its last
 * miss. NULL: out of memory, or the thread is ending. */
umf_cache_t *umf_magazine_cache_ready(umf_magazines_t *m);
void umf_magazine_free_stacks(umf_magazines_t *m, umf_cache_t *cache);
/* The thread ends. */
void umf_magazine_thread_exit(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block);
/* Another thread takes the cache: its objects go to the pool. */
void umf_magazine_cache_taken(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block);
/* Flushes the stacks that threads have not used since the last pass. */
void umf_magazines_age(umf_magazines_t *m);

#endif
