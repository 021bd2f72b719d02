/* A plugin as it should be: a provider and a pool named "plugged". */
#include <stdlib.h>
#include <string.h>

#include <umf/plugin.h>

static int self;

static umf_result_t provider_initialize(const void *params, void **provider) {
    (void)params;
    *provider = &self;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t finalize(void *object) {
    (void)object;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t provider_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    (void)provider, (void)alignment;
    *ptr = malloc(size);
    return *ptr ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static umf_result_t provider_free(void *provider, void *ptr, size_t size) {
    (void)provider, (void)size;
    free(ptr);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t provider_error(void *provider, const char **message, int32_t *error) {
    (void)provider, (void)message, (void)error;
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t provider_page(void *provider, size_t size, size_t *page) {
    (void)provider, (void)size;
    *page = 4096;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t provider_min_page(void *provider, const void *ptr, size_t *page) {
    return provider_page(provider, ptr != NULL, page);
}

static umf_result_t provider_line(void *provider, size_t *size) {
    (void)provider;
    *size = 64;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t name(void *object, const char **out) {
    (void)object;
    *out = "plugged";
    return UMF_RESULT_SUCCESS;
}

static const umf_memory_provider_ops_t provider_ops = {
    .version = UMF_PROVIDER_OPS_VERSION_CURRENT,
    .initialize = provider_initialize,
    .finalize = finalize,
    .alloc = provider_alloc,
    .free = provider_free,
    .get_last_native_error = provider_error,
    .get_recommended_page_size = provider_page,
    .get_min_page_size = provider_min_page,
    .get_name = name,
    .get_cache_line_size = provider_line,
};

/* The pool hands its provider's memory through. */
static umf_result_t pool_initialize(umf_memory_provider_handle_t provider, const void *params,
                                    void **pool) {
    (void)params;
    *pool = provider;
    return UMF_RESULT_SUCCESS;
}

static void *pool_aligned_malloc(void *pool, size_t size, size_t alignment) {
    void *ptr = NULL;
    return umfMemoryProviderAlloc(pool, size, alignment, &ptr) == UMF_RESULT_SUCCESS ? ptr : NULL;
}

static void *pool_malloc(void *pool, size_t size) {
    return pool_aligned_malloc(pool, size, 0);
}

static void *pool_calloc(void *pool, size_t count, size_t size) {
    (void)pool, (void)count, (void)size;
    return NULL;
}

static void *pool_realloc(void *pool, void *ptr, size_t size) {
    (void)pool, (void)ptr, (void)size;
    return NULL;
}

static umf_result_t pool_usable_size(void *pool, const void *ptr, size_t *size) {
    (void)pool, (void)ptr, (void)size;
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t pool_free(void *pool, void *ptr) {
    return ptr ? umfMemoryProviderFree(pool, ptr, 0) : UMF_RESULT_SUCCESS;
}

static umf_result_t pool_last_error(void *pool) {
    (void)pool;
    return UMF_RESULT_SUCCESS;
}

static const umf_memory_pool_ops_t pool_ops = {
    .version = UMF_POOL_OPS_VERSION_CURRENT,
    .initialize = pool_initialize,
    .finalize = finalize,
    .malloc = pool_malloc,
    .calloc = pool_calloc,
    .realloc = pool_realloc,
    .aligned_malloc = pool_aligned_malloc,
    .malloc_usable_size = pool_usable_size,
    .free = pool_free,
    .get_last_allocation_error = pool_last_error,
    .get_name = name,
};

static umf_result_t probe(char *why, size_t why_size) {
    strncpy(why, "only for tests", why_size);
    return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
}

static const umf_memory_provider_descriptor_t provider = {
    .struct_size = sizeof(provider), .name = "plugged", .ops = &provider_ops, .probe = probe};
static const umf_memory_provider_descriptor_t *const providers[] = {&provider};

static const umf_memory_pool_descriptor_t pool = {
    .struct_size = sizeof(pool), .name = "plugged", .ops = &pool_ops};
static const umf_memory_pool_descriptor_t *const pools[] = {&pool};

const umf_plugin_t umf_plugin = {.struct_size = sizeof(umf_plugin),
                                 .abi = UMF_PLUGIN_ABI,
                                 .providers = providers,
                                 .num_providers = 1,
                                 .pools = pools,
                                 .num_pools = 1};
