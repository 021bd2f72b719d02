/* The public calls that use the calling thread's cache and nothing else. */
#include <umf/memory_pool_ext.h>

#include "core/pool_cached.h"
#include "core/pool_calls.h"

UMF_API_EXT_1 void *umfPoolTryMalloc(umf_memory_pool_handle_t hPool, size_t size) {
    void *ptr;
    return umf_likely(hPool != NULL) && umf_pool_malloc_cached(hPool, size, &ptr) ? ptr : NULL;
}

static __attribute__((noinline)) bool try_free_unpaged(umf_memory_pool_handle_t pool, void *ptr,
                                                       uint64_t rotated) {
    umf_map_entry_t entry = umf_map_entry_unrotate(rotated);
    if (umf_unlikely(umf_map_entry_pool(entry) != pool->index)) {
        return false;
    }
    size_t magazine = umf_map_entry_class_offset(entry);
    return magazine == 0 ? UMF_POOL_CALL(pool, try_free)(pool->self, ptr, entry)
                         : !UMF_IS_ASAN && umf_pool_free_in_slab(ptr, entry, magazine);
}

UMF_INLINE bool try_free(umf_memory_pool_handle_t pool, void *ptr) {
    umf_map_entry_t entry;
    if (umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry))) {
        return false;
    }
    uint64_t rotated = umf_map_entry_rotate(entry);
    return umf_likely((uint32_t)rotated == pool->paged_key)
               ? !UMF_IS_ASAN && (umf_pool_free_in_page(ptr, (uint16_t)rotated) ||
                                  umf_magazine_try_free_remote(
                                      ptr, umf_page_record_at((uintptr_t)ptr), (uint16_t)rotated))
               : try_free_unpaged(pool, ptr, rotated);
}

/* The next free is the tick: it is made where the library may call anything. */
static UMF_COLD bool leave_tick(void) {
    umf_thread_slot_tls.frees_left = 1;
    return false;
}

UMF_API_EXT_1 bool umfPoolTryFree(umf_memory_pool_handle_t hPool, void *ptr) {
    if (umf_pool_is_tick()) {
        return leave_tick();
    }
    return umf_likely(hPool != NULL) && try_free(hPool, ptr);
}

/* --- the current pool of a thread --- */

static umf_result_t usable_size_of_none(umf_memory_pool_handle_t pool, const void *ptr,
                                        size_t *size) {
    (void)pool, (void)ptr, (void)size;
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

const struct umf_memory_pool_t umf_pool_none = {
    .index = UINT32_MAX,
    .paged_key = UINT32_MAX,
    .calls[0] = {.try_free = umf_pool_try_free_none},
    .usable_size = usable_size_of_none,
};

UMF_API_EXT_1_3 void umfCurrentPoolSet(umf_memory_pool_handle_t hPool) {
    umf_thread_slot_tls.current =
        hPool ? hPool : (umf_memory_pool_handle_t)(uintptr_t)&umf_pool_none;
}

UMF_API_EXT_1_3 void *umfCurrentPoolMalloc(size_t size, void *(*otherwise)(size_t size)) {
    void *ptr;
    return umf_likely(umf_pool_malloc_cached(umf_thread_slot_tls.current, size, &ptr))
               ? ptr
               : otherwise(size);
}

static UMF_COLD void tick_otherwise(void *ptr, void (*otherwise)(void *ptr)) {
    (void)leave_tick();
    if (ptr) {
        otherwise(ptr);
    }
}

/* NULL comes here, too: no record leads to it. */
static __attribute__((noinline)) void free_by_map(void *ptr, void (*otherwise)(void *ptr)) {
    if (ptr && !try_free(umf_thread_slot_tls.current, ptr)) {
        otherwise(ptr);
    }
}

/* The page is of another thread, or of another pool, or the object cannot be freed here. */
static __attribute__((noinline)) void free_elsewhere(void *ptr, void (*otherwise)(void *ptr),
                                                     const umf_page_record_t *page) {
    uint32_t index = umf_pool_small_index(umf_thread_slot_tls.current);
    uint16_t key = __atomic_load_n(&page->pool, __ATOMIC_RELAXED);
    if (!index || umf_page_key_pool(key) != index) {
        free_by_map(ptr, otherwise);
    } else if (!umf_magazine_try_free_remote(ptr, page, index)) {
        otherwise(ptr);
    }
}

/* A record of the pool agrees with the map, which is not read then. All calls are the last thing
 * that it does, so it needs no stack frame. */
UMF_API_EXT_1_3 void umfCurrentPoolFree(void *ptr, void (*otherwise)(void *ptr)) {
    umf_page_record_t *page;
    if (umf_pool_is_tick()) {
        tick_otherwise(ptr, otherwise);
    } else if (UMF_IS_ASAN || umf_unlikely(!umf_page_record_find((uintptr_t)ptr, &page))) {
        free_by_map(ptr, otherwise);
    } else if (umf_unlikely(!umf_pool_free_by_record(
                   ptr, page, umf_pool_small_index(umf_thread_slot_tls.current)))) {
        free_elsewhere(ptr, otherwise, page);
    }
}
