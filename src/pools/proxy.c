/* The proxy pool: every allocation is one of the provider's. Its span is all there is to know of
 * it. */
#include <umf/plugin.h>
#include <umf/pools/pool_proxy.h>

#include "base/log.h"
#include "core/view.h"

static __thread umf_result_t last_error;

/* A proxy pool has no state of its own: `pool` is the view. */
static umf_result_t proxy_initialize(umf_memory_provider_handle_t provider, const void *params,
                                     void **pool) {
    (void)params;
    return umf_view_acquire(provider, (umf_view_t **)pool);
}

static umf_result_t proxy_finalize(void *pool) {
    for (;;) {
        umf_span_t *span = NULL;
        umf_view_each_span(pool, umf_view_find_any, &span);
        if (!span || umf_view_free(pool, span) != UMF_RESULT_SUCCESS) {
            break;
        }
    }
    umf_view_release(pool);
    return UMF_RESULT_SUCCESS;
}

static void *proxy_aligned_malloc(void *pool, size_t size, size_t alignment) {
    void *ptr = NULL;
    last_error = umf_view_alloc(pool, size, alignment, 0, NULL, &ptr);
    return ptr;
}

static void *proxy_malloc(void *pool, size_t size) {
    return proxy_aligned_malloc(pool, size, 0);
}

static void *proxy_calloc(void *pool, size_t num, size_t size) {
    (void)pool, (void)num, (void)size;
    last_error = UMF_RESULT_ERROR_NOT_SUPPORTED;
    return NULL;
}

static void *proxy_realloc(void *pool, void *ptr, size_t size) {
    (void)pool, (void)ptr, (void)size;
    last_error = UMF_RESULT_ERROR_NOT_SUPPORTED;
    return NULL;
}

static umf_result_t proxy_usable_size(void *pool, const void *ptr, size_t *size) {
    (void)pool, (void)ptr;
    if (!size) {
        UMF_LOG_ERROR("size is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = 0;
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t free_span(umf_view_t *view, umf_span_t *span, void *ptr) {
    if (!span || span->base != (uintptr_t)ptr) {
        UMF_LOG_ERROR("%p is not the start of a live allocation of this pool", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_view_free_for_reuse(view, span);
}

static umf_result_t proxy_free_at(void *pool, void *ptr, umf_word_t word) {
    return free_span(pool, umf_span_at(umf_word_span(word)), ptr);
}

static umf_result_t proxy_free(void *pool, void *ptr) {
    if (!ptr) {
        return umfMemoryProviderFree(pool, NULL, 0);
    }
    return free_span(pool, umf_view_find(pool, ptr), ptr);
}

static umf_result_t proxy_last_error(void *pool) {
    (void)pool;
    return last_error;
}

static umf_result_t proxy_get_name(void *pool, const char **name) {
    (void)pool;
    if (!name) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *name = "proxy";
    return UMF_RESULT_SUCCESS;
}

static size_t proxy_alloc_count(void *pool) {
    return umf_view_span_count(pool);
}

static const umf_memory_pool_ops_t proxy_ops = {
    .version = UMF_POOL_OPS_VERSION_CURRENT,
    .initialize = proxy_initialize,
    .finalize = proxy_finalize,
    .malloc = proxy_malloc,
    .calloc = proxy_calloc,
    .realloc = proxy_realloc,
    .aligned_malloc = proxy_aligned_malloc,
    .malloc_usable_size = proxy_usable_size,
    .free = proxy_free,
    .get_last_allocation_error = proxy_last_error,
    .get_name = proxy_get_name,
};

UMF_API_1_0 const umf_memory_pool_ops_t *umfProxyPoolOps(void) {
    return &proxy_ops;
}

const umf_pool_fast_ops_t umf_proxy_pool_fast_ops = {
    .free_at = proxy_free_at,
    .alloc_count = proxy_alloc_count,
};

const umf_memory_pool_descriptor_t umf_proxy_pool_descriptor = {
    .struct_size = sizeof(umf_memory_pool_descriptor_t),
    .name = "proxy",
    .ops = &proxy_ops,
};
