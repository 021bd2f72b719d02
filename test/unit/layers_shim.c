#include "layers_shim.h"

#include <string.h>

#include <umf/memory_pool_ext.h>

#include "object/object.h"

static char trace[128];

static void note(char letter) {
    size_t length = strlen(trace);
    if (length + 1 < sizeof(trace)) {
        trace[length] = letter;
        trace[length + 1] = '\0';
    }
}

#define FAKE(which, letter)                                                                        \
    static void *malloc_##which(umf_memory_pool_handle_t pool, size_t size) {                      \
        note(letter);                                                                              \
        return UMF_PASS_ON(pool, which, malloc)(pool, size);                                       \
    }                                                                                              \
    static void *aligned_malloc_##which(umf_memory_pool_handle_t pool, size_t size, size_t at) {   \
        note(letter);                                                                              \
        return UMF_PASS_ON(pool, which, aligned_malloc)(pool, size, at);                           \
    }                                                                                              \
    static void *calloc_##which(umf_memory_pool_handle_t pool, size_t num, size_t size) {          \
        note(letter);                                                                              \
        return UMF_PASS_ON(pool, which, calloc)(pool, num, size);                                  \
    }                                                                                              \
    static void *realloc_##which(umf_memory_pool_handle_t pool, void *ptr, size_t size) {          \
        note(letter);                                                                              \
        return UMF_PASS_ON(pool, which, realloc)(pool, ptr, size);                                 \
    }                                                                                              \
    static umf_result_t free_at_##which(void *self, void *ptr, umf_map_entry_t entry) {            \
        note(letter);                                                                              \
        return UMF_PASS_ON(umf_layer_pool(entry), which, free_at)(self, ptr, entry);               \
    }                                                                                              \
    static bool try_free_##which(void *self, void *ptr, umf_map_entry_t entry) {                   \
        note(letter);                                                                              \
        return UMF_PASS_ON(umf_layer_pool(entry), which, try_free)(self, ptr, entry);              \
    }                                                                                              \
    static umf_result_t last_error_##which(umf_memory_pool_handle_t pool) {                        \
        note(letter);                                                                              \
        return UMF_PASS_ON(pool, which, last_error)(pool);                                         \
    }                                                                                              \
    static const umf_layer_t fake_##which = {                                                      \
        .rank = (which),                                                                           \
        .sees_malloc = true,                                                                       \
        .sees_free = true,                                                                         \
        .calls = {.malloc = malloc_##which,                                                        \
                  .aligned_malloc = aligned_malloc_##which,                                        \
                  .calloc = calloc_##which,                                                        \
                  .realloc = realloc_##which,                                                      \
                  .free_at = free_at_##which,                                                      \
                  .try_free = try_free_##which,                                                    \
                  .last_error = last_error_##which},                                               \
    }

FAKE(UMF_LAYER_RECORD, 'R');
FAKE(UMF_LAYER_QUEUE, 'Q');
FAKE(UMF_LAYER_PIN, 'H');
FAKE(UMF_LAYER_ZERO, 'Z');
FAKE(UMF_LAYER_SUSPEND, 'S');

static const umf_layer_t *const fakes[] = {&fake_UMF_LAYER_RECORD, &fake_UMF_LAYER_QUEUE,
                                           &fake_UMF_LAYER_PIN, &fake_UMF_LAYER_ZERO,
                                           &fake_UMF_LAYER_SUSPEND};

_Static_assert(UMF_LAYERS == SHIM_LAYERS && UMF_COUNT_OF(fakes) == SHIM_LAYERS, "one each");

void shim_push(umf_memory_pool_handle_t pool, int rank) {
    umf_layer_push(pool, fakes[rank]);
}

void shim_remove(umf_memory_pool_handle_t pool, int rank) {
    umf_layer_remove(pool, (umf_layer_rank_t)rank);
}

static void *got(void *ptr) {
    note('/');
    return ptr;
}

const char *shim_trace(umf_memory_pool_handle_t pool) {
    void *other = umfPoolMalloc(pool, 64);
    umf_map_entry_t entry = umf_map_find(&umf_map_global, (uintptr_t)other);
    trace[0] = '\0';
    void *one = got(umfPoolMalloc(pool, 64)), *two = got(umfPoolAlignedMalloc(pool, 64, 64));
    void *calloced = got(umfPoolCalloc(pool, 1, 64)), *moved = got(umfPoolRealloc(pool, NULL, 64));
    umfFree(one);
    note('/');
    umfPoolFree(pool, two);
    note('/');
    bool is_freed = pool->calls[0].try_free(pool->free_self, other, entry);
    note('/');
    umfPoolGetLastAllocationError(pool);
    size_t length = strlen(trace);
    void *left[] = {is_freed ? NULL : other, calloced, moved};
    for (size_t i = 0; i < UMF_COUNT_OF(left); i++) {
        umfPoolFree(pool, left[i]);
    }
    trace[length] = '\0';
    return trace;
}
