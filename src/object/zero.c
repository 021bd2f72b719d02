/* A layer (object/layer.h): memory is overwritten with zeroes when it is freed. */
#include "object/content.h"
#include "object/object.h"
#include "system/keep_errno.h"
#include "track/use.h"

#define PASS_ON(pool, function) UMF_PASS_ON(pool, UMF_LAYER_ZERO, function)

/* The memory of a suspended pool may be away. The span is in use meanwhile, which a suspend waits
 * for; without vm_detach no pool is suspended. */
static umf_result_t zero(umf_memory_pool_handle_t pool, void *ptr, umf_map_entry_t entry) {
    UMF_KEEP_ERRNO;
    uint32_t span = pool->tracked->ext->vm_detach ? umf_map_entry_span(entry) : 0;
    umf_content_t content;
    size_t size;
    umf_result_t result = pool->ops.malloc_usable_size(pool->self, ptr, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result; /* no object: the pool has logged it */
    }
    if (span) {
        umf_use_begin(span);
    }
    if (!umf_pool_is_suspended(pool)) {
        umf_content_init(&content, pool->tracked);
        result = umf_content_zero(&content, ptr, size);
    }
    if (span) {
        umf_use_end(span);
    }
    return result;
}

static umf_result_t zero_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    umf_memory_pool_handle_t pool = umf_layer_pool(entry);
    umf_result_t result = zero(pool, ptr, entry);
    return result == UMF_RESULT_SUCCESS ? PASS_ON(pool, free_at)(self, ptr, entry) : result;
}

/* Its caller goes on to free_at. */
static bool zero_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    (void)self, (void)ptr, (void)entry;
    return false;
}

static void *zero_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    if (ptr && size == 0) {
        umfPoolFree(pool, ptr);
        return NULL;
    }
    return PASS_ON(pool, realloc)(pool, ptr, size);
}

const umf_layer_t umf_layer_zero = {
    .rank = UMF_LAYER_ZERO,
    .sees_free = true,
    .calls = {.free_at = zero_free_at, .try_free = zero_try_free, .realloc = zero_realloc},
};
