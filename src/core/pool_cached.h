/* The hot paths of the calls that allocate and free: the calling thread's magazines. */
#ifndef UMF_SRC_CORE_POOL_CACHED_H
#define UMF_SRC_CORE_POOL_CACHED_H

#include "cache/magazine.h"
#include "object/object.h"
#include "system/annotate.h"
#include "track/page.h"

/* Calls enter here. Layers come and go, so the load is atomic; it costs no more than a plain one.
 */
#define UMF_POOL_CALL(pool, function) __atomic_load_n(&(pool)->calls[0].function, __ATOMIC_RELAXED)

/* The index of the pool, or 0: it has no small sizes, or a layer sees its requests. */
static inline uint32_t umf_pool_small_index(umf_memory_pool_handle_t pool) {
    return __atomic_load_n(&pool->small_index, __ATOMIC_RELAXED);
}

/* Serves a small size from the calling thread's magazine. false: it is no small size, or the thread
 * has no magazine, or that is empty. Hot. */
static inline bool umf_pool_malloc_cached(umf_memory_pool_handle_t pool, size_t size, void **ptr) {
    if (umf_unlikely(size >= pool->small_end)) {
        return false;
    }
    umf_thread_slot_enter();
    umf_thread_slot_t *cache = umf_thread_slot_get_low(umf_pool_small_index(pool));
    bool is_got = umf_magazine_try_pop(umf_magazine_at(cache, pool->small->magazine[size]), ptr);
    umf_thread_slot_leave();
    return is_got;
}

/* The common case: a live object, and room in the calling thread's stack. If the pool leaves the
 * check to the core, the entry's class offset selects the magazine, and its span leads to the
 * states. */
UMF_INLINE bool umf_pool_free_in_slab(void *ptr, umf_map_entry_t entry, size_t magazine) {
    umf_thread_slot_enter();
    umf_thread_slot_t *cache = umf_thread_slot_get_low(umf_map_entry_pool(entry));
    bool is_done = umf_magazine_push_checked(umf_magazine_at(cache, magazine), ptr,
                                             umf_span_at(umf_map_entry_span(entry))->cookie);
    umf_thread_slot_leave();
    return is_done;
}

/* `index`: of a pool, or 0, for which the result is false. */
UMF_INLINE bool umf_pool_free_by_record(void *ptr, const umf_page_record_t *page, uint32_t index) {
    umf_thread_slot_enter();
    umf_thread_slot_t *cache = umf_thread_slot_get_low(index);
    bool is_done =
        umf_likely(UMF_PAGE_LOAD(page, pool) == ((const umf_cache_t *)cache)->key) &&
        umf_magazine_push_page(umf_magazine_at(cache, UMF_PAGE_LOAD(page, magazine)), ptr, page);
    umf_thread_slot_leave();
    return is_done;
}

/* The same where page records lead to magazine and states, and the calling thread owns the page.
 * Pools with records have low indices. */
UMF_INLINE bool umf_pool_free_in_page(void *ptr, uint32_t pool) {
    return umf_pool_free_by_record(ptr, umf_page_record_at((uintptr_t)ptr), pool);
}

/* Every few thousandth free is a tick. These end in the call that they are made from, so that it
 * needs no stack frame. */
static inline bool umf_pool_is_tick(void) {
    return umf_unlikely(--umf_thread_slot_tls.frees_left == 0);
}

#endif
