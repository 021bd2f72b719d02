#include "object/recorded.h"

#include "base/thread_slot.h"
#include "object/hold.h"
#include "track/map.h"

uint32_t umf_recorded_enter(umf_memory_pool_handle_t pool) {
    uint32_t before = umf_thread_slot_tls.recorded_pool;
    umf_thread_slot_tls.recorded_pool = pool->index;
    return before;
}

void umf_recorded_leave(uint32_t before) {
    umf_thread_slot_tls.recorded_pool = before;
}

bool umf_recorded_is_inside(umf_memory_pool_handle_t pool) {
    return umf_thread_slot_tls.recorded_pool == pool->index;
}

static void tell(umf_memory_pool_handle_t pool, umf_record_event_kind_t kind, uintptr_t address,
                 size_t size, const void *queue) {
    UMF_EVENT(.kind = kind, .pool = pool, .address = address, .size = size, .queue = queue);
}

/* --- allocation --- */

void *umf_recorded_allocated(umf_memory_pool_handle_t pool, void *ptr, size_t size,
                             const void *queue) {
    if (ptr) {
        tell(pool, UMF_RECORD_ALLOC, (uintptr_t)ptr, size, queue);
    } else if (size > 0) {
        size_t held = pool->tracked ? umf_tracked_bytes(pool->tracked) : 0;
        tell(pool, UMF_RECORD_REFUSED, held, size, queue);
    }
    return ptr;
}

/* Makes a call of the pool and tells what it returns, unless the thread is in one already. */
#define RECORDED(pool, size, call)                                                                 \
    if (umf_recorded_is_inside(pool)) {                                                            \
        return umf_pool_calls_of(pool)->call;                                                      \
    }                                                                                              \
    uint32_t before = umf_recorded_enter(pool);                                                    \
    void *ptr = umf_pool_calls_of(pool)->call;                                                     \
    umf_recorded_leave(before);                                                                    \
    return umf_recorded_allocated((pool), ptr, (size), NULL)

static void *recorded_malloc(umf_memory_pool_handle_t pool, size_t size) {
    RECORDED(pool, size, malloc(pool, size));
}

static void *recorded_aligned_malloc(umf_memory_pool_handle_t pool, size_t size, size_t alignment) {
    RECORDED(pool, size, aligned_malloc(pool, size, alignment));
}

static void *recorded_calloc(umf_memory_pool_handle_t pool, size_t num, size_t size) {
    size_t bytes;
    if (!umf_mul(num, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    RECORDED(pool, bytes, calloc(pool, num, size));
}

/* A free and an allocation, of which the free is taken back if the allocation fails. */
static void *recorded_realloc(umf_memory_pool_handle_t pool, void *old, size_t size) {
    if (umf_recorded_is_inside(pool)) {
        return umf_pool_calls_of(pool)->realloc(pool, old, size);
    }
    if (old) {
        tell(pool, UMF_RECORD_FREE, (uintptr_t)old, 0, NULL);
    }
    uint32_t before = umf_recorded_enter(pool);
    void *ptr = umf_pool_calls_of(pool)->realloc(pool, old, size);
    umf_recorded_leave(before);
    if (!ptr && old && size > 0) {
        tell(pool, UMF_RECORD_FREE_REFUSED, (uintptr_t)old, 0, NULL);
    }
    return umf_recorded_allocated(pool, ptr, size, NULL);
}

static const umf_pool_calls_t recorded_calls = {
    .malloc = recorded_malloc,
    .aligned_malloc = recorded_aligned_malloc,
    .calloc = recorded_calloc,
    .realloc = recorded_realloc,
};

/* --- free --- */

umf_result_t umf_recorded_free(umf_memory_pool_handle_t pool, void *ptr, const void *queue,
                               umf_recorded_free_t free, const void *arg) {
    if (umf_recorded_is_inside(pool)) {
        return free(pool, ptr, arg);
    }
    tell(pool, UMF_RECORD_FREE, (uintptr_t)ptr, 0, queue);
    uint32_t before = umf_recorded_enter(pool);
    umf_result_t result = free(pool, ptr, arg);
    umf_recorded_leave(before);
    if (result != UMF_RESULT_SUCCESS) {
        tell(pool, UMF_RECORD_FREE_REFUSED, (uintptr_t)ptr, 0, queue);
    }
    return result;
}

static umf_memory_pool_handle_t pool_of(umf_map_entry_t entry) {
    return atomic_load_explicit(&umf_pool_table[umf_map_entry_pool(entry)], memory_order_acquire);
}

static umf_result_t free_at(umf_memory_pool_handle_t pool, void *ptr, const void *entry) {
    return __atomic_load_n(&pool->free_unrecorded,
                           __ATOMIC_RELAXED)(pool->free_self, ptr, *(const umf_map_entry_t *)entry);
}

umf_result_t umf_recorded_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    (void)self; /* the pool's free_self */
    return umf_recorded_free(pool_of(entry), ptr, NULL, free_at, &entry);
}

bool umf_recorded_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    (void)self, (void)ptr, (void)entry;
    return false;
}

/* --- begin and end --- */

static void calls_set(umf_memory_pool_handle_t pool, const umf_pool_calls_t *calls) {
    __atomic_store_n(&pool->calls.malloc, calls->malloc, __ATOMIC_RELEASE);
    __atomic_store_n(&pool->calls.aligned_malloc, calls->aligned_malloc, __ATOMIC_RELEASE);
    __atomic_store_n(&pool->calls.calloc, calls->calloc, __ATOMIC_RELEASE);
    __atomic_store_n(&pool->calls.realloc, calls->realloc, __ATOMIC_RELEASE);
}

static void set_served_inline(umf_memory_pool_handle_t pool, bool may) {
    if (pool->fast && pool->fast->set_served_inline) {
        pool->fast->set_served_inline(pool->self, may);
    }
}

void umf_recorded_begin(umf_memory_pool_handle_t pool) {
    if (!umf_is_recorded(pool)) {
        umf_hold_record(pool, true);
        calls_set(pool, &recorded_calls);
        umf_pool_small_close(pool);
        set_served_inline(pool, false);
    }
}

void umf_recorded_end(umf_memory_pool_handle_t pool) {
    if (umf_is_recorded(pool)) {
        set_served_inline(pool, true);
        umf_pool_small_open(pool);
        calls_set(pool, umf_pool_calls_of(pool));
        umf_hold_record(pool, false);
    }
}
