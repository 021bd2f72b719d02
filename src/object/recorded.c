#include "object/recorded.h"

#include "base/thread_slot.h"
#include "track/map.h"

#define PASS_ON(pool, function) UMF_PASS_ON(pool, UMF_LAYER_RECORD, function)

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

static void emit(umf_memory_pool_handle_t pool, umf_record_event_kind_t kind, uintptr_t address,
                 size_t size, const void *queue) {
    UMF_EVENT(.kind = kind, .pool = pool, .address = address, .size = size, .queue = queue);
}

/* --- allocation --- */

void *umf_recorded_allocated(umf_memory_pool_handle_t pool, void *ptr, size_t size,
                             const void *queue) {
    if (ptr) {
        emit(pool, UMF_RECORD_ALLOC, (uintptr_t)ptr, size, queue);
    } else if (size > 0) {
        size_t held = pool->tracked ? umf_tracked_bytes(pool->tracked) : 0;
        emit(pool, UMF_RECORD_REFUSED, held, size, queue);
    }
    return ptr;
}

/* Makes a call of the pool and emits its result, unless the thread is in one already. */
#define RECORDED(pool, size, call)                                                                 \
    if (umf_recorded_is_inside(pool)) {                                                            \
        return call;                                                                               \
    }                                                                                              \
    uint32_t before = umf_recorded_enter(pool);                                                    \
    void *ptr = call;                                                                              \
    umf_recorded_leave(before);                                                                    \
    return umf_recorded_allocated((pool), ptr, (size), NULL)

static void *recorded_malloc(umf_memory_pool_handle_t pool, size_t size) {
    RECORDED(pool, size, PASS_ON(pool, malloc)(pool, size));
}

static void *recorded_aligned_malloc(umf_memory_pool_handle_t pool, size_t size, size_t alignment) {
    RECORDED(pool, size, PASS_ON(pool, aligned_malloc)(pool, size, alignment));
}

static void *recorded_calloc(umf_memory_pool_handle_t pool, size_t num, size_t size) {
    size_t bytes;
    if (!umf_mul(num, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    RECORDED(pool, bytes, PASS_ON(pool, calloc)(pool, num, size));
}

/* A free and an allocation, of which the free is taken back if the allocation fails. */
static void *recorded_realloc(umf_memory_pool_handle_t pool, void *old, size_t size) {
    if (umf_recorded_is_inside(pool)) {
        return PASS_ON(pool, realloc)(pool, old, size);
    }
    if (old) {
        emit(pool, UMF_RECORD_FREE, (uintptr_t)old, 0, NULL);
    }
    uint32_t before = umf_recorded_enter(pool);
    void *ptr = PASS_ON(pool, realloc)(pool, old, size);
    umf_recorded_leave(before);
    if (!ptr && old && size > 0) {
        emit(pool, UMF_RECORD_FREE_REFUSED, (uintptr_t)old, 0, NULL);
    }
    return umf_recorded_allocated(pool, ptr, size, NULL);
}

/* --- free --- */

umf_result_t umf_recorded_free(umf_memory_pool_handle_t pool, void *ptr, const void *queue,
                               umf_recorded_free_t free, const void *arg) {
    if (umf_recorded_is_inside(pool)) {
        return free(pool, ptr, arg);
    }
    emit(pool, UMF_RECORD_FREE, (uintptr_t)ptr, 0, queue);
    uint32_t before = umf_recorded_enter(pool);
    umf_result_t result = free(pool, ptr, arg);
    umf_recorded_leave(before);
    if (result != UMF_RESULT_SUCCESS) {
        emit(pool, UMF_RECORD_FREE_REFUSED, (uintptr_t)ptr, 0, queue);
    }
    return result;
}

static umf_result_t pass_on(umf_memory_pool_handle_t pool, void *ptr, const void *entry) {
    return PASS_ON(pool, free_at)(pool->free_self, ptr, *(const umf_map_entry_t *)entry);
}

static umf_result_t recorded_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    (void)self; /* the pool's free_self */
    return umf_recorded_free(umf_layer_pool(entry), ptr, NULL, pass_on, &entry);
}

/* Its caller goes on to free_at. */
static bool recorded_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    (void)self, (void)ptr, (void)entry;
    return false;
}

/* --- begin and end --- */

static const umf_layer_t record_layer = {
    .rank = UMF_LAYER_RECORD,
    .sees_malloc = true,
    .sees_free = true,
    .calls = {.malloc = recorded_malloc,
              .aligned_malloc = recorded_aligned_malloc,
              .calloc = recorded_calloc,
              .realloc = recorded_realloc,
              .free_at = recorded_free_at,
              .try_free = recorded_try_free},
};

void umf_recorded_begin(umf_memory_pool_handle_t pool) {
    if (!umf_is_recorded(pool)) {
        umf_layer_push(pool, &record_layer);
    }
}

void umf_recorded_end(umf_memory_pool_handle_t pool) {
    if (umf_is_recorded(pool)) {
        umf_layer_remove(pool, UMF_LAYER_RECORD);
    }
}
