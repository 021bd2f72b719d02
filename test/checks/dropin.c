/*
 * A program of the UMF C API alone, as its users have them: nothing here is an extension of ours.
 * It brings a provider whose table is of version 1.0 and ends where that version ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/providers/provider_os_memory.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static umf_result_t heap_initialize(const void *params, void **provider) {
    *provider = (void *)params;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t heap_finalize(void *provider) {
    (void)provider;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t heap_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    (void)provider;
    *ptr = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    return *ptr && alignment <= 4096 ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static umf_result_t heap_free(void *provider, void *ptr, size_t size) {
    (void)provider, (void)size;
    free(ptr);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t heap_error(void *provider, const char **message, int32_t *error) {
    (void)provider;
    *message = "";
    *error = 0;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t heap_recommended(void *provider, size_t size, size_t *page_size) {
    (void)provider, (void)size;
    *page_size = 4096;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t heap_min(void *provider, const void *ptr, size_t *page_size) {
    (void)provider, (void)ptr;
    *page_size = 4096;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t heap_name(void *provider, const char **name) {
    (void)provider;
    *name = "heap";
    return UMF_RESULT_SUCCESS;
}

static umf_memory_provider_handle_t create_heap(void) {
    umf_memory_provider_ops_t full;
    memset(&full, 0xff, sizeof(full)); /* what version 1.0 does not have is never to be read */
    size_t known = offsetof(umf_memory_provider_ops_t, ext_get_allocation_properties);
    memset(&full, 0, known);
    full.version = UMF_MAKE_VERSION(1, 0);
    full.initialize = heap_initialize;
    full.finalize = heap_finalize;
    full.alloc = heap_alloc;
    full.free = heap_free;
    full.get_last_native_error = heap_error;
    full.get_recommended_page_size = heap_recommended;
    full.get_min_page_size = heap_min;
    full.get_name = heap_name;
    umf_memory_provider_ops_t *table = malloc(known);
    CHECK(table);
    memcpy(table, &full, known);
    umf_memory_provider_handle_t provider;
    CHECK(umfMemoryProviderCreate(table, NULL, &provider) == UMF_RESULT_SUCCESS);
    free(table);
    return provider;
}

static umf_memory_provider_handle_t create_os(void) {
    umf_os_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    CHECK(umfOsMemoryProviderParamsCreate(&params) == UMF_RESULT_SUCCESS);
    CHECK(umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider) ==
          UMF_RESULT_SUCCESS);
    CHECK(umfOsMemoryProviderParamsDestroy(params) == UMF_RESULT_SUCCESS);
    return provider;
}

static void use(umf_memory_provider_handle_t provider) {
    umf_memory_pool_handle_t pool, found = NULL;
    CHECK(umfPoolCreate(umfDisjointPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                        &pool) == UMF_RESULT_SUCCESS);
    char *text = umfPoolMalloc(pool, 100);
    CHECK(text);
    strcpy(text, "hello");
    CHECK(umfPoolByPtr(text + 50, &found) == UMF_RESULT_SUCCESS && found == pool);

    size_t count = 0;
    CHECK(umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), pool) ==
          UMF_RESULT_SUCCESS);
    CHECK(count == 1);

    umf_memory_properties_handle_t properties;
    umf_memory_provider_handle_t owner = NULL;
    CHECK(umfGetMemoryPropertiesHandle(text, &properties) == UMF_RESULT_SUCCESS);
    CHECK(umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_PROVIDER_HANDLE, &owner,
                               sizeof(owner)) == UMF_RESULT_SUCCESS);
    CHECK(owner == provider);

    CHECK(umfFree(text) == UMF_RESULT_SUCCESS);
    CHECK(umfPoolTrimMemory(pool, 0) == UMF_RESULT_SUCCESS);
    CHECK(umfPoolDestroy(pool) == UMF_RESULT_SUCCESS);
}

int main(void) {
    size_t line = 0;
    umf_memory_provider_handle_t heap = create_heap();
    CHECK(umfMemoryProviderGetCacheLineSize(heap, &line) == UMF_RESULT_SUCCESS && line == 64);
    use(heap);
    use(create_os());
    return 0;
}
