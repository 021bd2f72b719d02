#include <errno.h>

#include <umf/experimental/memory_properties.h>
#include <umf/memory_provider_gpu.h>

#include "base/log.h"
#include "object/object.h"
#include "system/os.h"

/* A properties handle is the span itself. */
static umf_span_t *span_of(umf_memory_properties_handle_t handle) {
    umf_span_t *span = (umf_span_t *)handle;
    return umf_span_is_one(span) && umf_span_is_live(span) ? span : NULL;
}

static umf_memory_provider_handle_t provider_of(const umf_span_t *span) {
    if (umf_span_kind(span) == UMF_SPAN_IMPORT) {
        return umf_core_import_provider(span);
    }
    return umf_tracked_of(span)->root;
}

static UMF_COLD umf_result_t no_handle(void) {
    UMF_LOG_ERROR("props_handle is NULL");
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* For pointers that the fast walk does not find, and unknown ones. */
static UMF_COLD umf_result_t get_handle_slow(const void *ptr,
                                             umf_memory_properties_handle_t *props_handle) {
    umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
    if (!span) {
        UMF_LOG_ERROR("no pool and no opened IPC handle has %p", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *props_handle = (umf_memory_properties_handle_t)span;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_1 umf_result_t
umfGetMemoryPropertiesHandle(const void *ptr, umf_memory_properties_handle_t *props_handle) {
    if (umf_unlikely(!props_handle)) {
        return no_handle();
    }
    if (umf_unlikely(!umf_is_started())) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_map_entry_t entry;
    if (umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry) || !entry)) {
        return get_handle_slow(ptr, props_handle);
    }
    *props_handle = (umf_memory_properties_handle_t)umf_span_at(umf_map_entry_span(entry));
    return UMF_RESULT_SUCCESS;
}

/* The size of a property that the library has itself; 0: the provider is queried. */
static size_t own_size(umf_memory_property_id_t id) {
    switch (id) {
    case UMF_MEMORY_PROPERTY_PROVIDER_HANDLE:
        return sizeof(umf_memory_provider_handle_t);
    case UMF_MEMORY_PROPERTY_POOL_HANDLE:
        return sizeof(umf_memory_pool_handle_t);
    case UMF_MEMORY_PROPERTY_BASE_ADDRESS:
        return sizeof(uintptr_t);
    case UMF_MEMORY_PROPERTY_BASE_SIZE:
        return sizeof(size_t);
    case UMF_MEMORY_PROPERTY_BUFFER_ID:
        return sizeof(uint64_t);
    case UMF_MEMORY_PROPERTY_POINTER_TYPE:
        return sizeof(umf_usm_memory_type_t);
    case UMF_MEMORY_PROPERTY_RDMA_CAPABLE:
        return sizeof(int);
    default:
        return 0;
    }
}

static umf_result_t provider_property_size(umf_memory_provider_handle_t provider,
                                           umf_memory_property_id_t id, size_t *size) {
    if (!provider || !provider->ops.ext_get_allocation_properties_size) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result =
        provider->ops.ext_get_allocation_properties_size(provider->self, id, size);
    if (result != UMF_RESULT_SUCCESS) {
        umf_provider_failed(provider);
    }
    return result;
}

UMF_API_1_1 umf_result_t umfGetMemoryPropertySize(umf_memory_properties_handle_t props_handle,
                                                  umf_memory_property_id_t memory_property_id,
                                                  size_t *size) {
    umf_span_t *span = span_of(props_handle);
    if (!span || !size || memory_property_id == UMF_MEMORY_PROPERTY_INVALID) {
        UMF_LOG_ERROR("%s",
                      !span ? "the handle is not one of memory properties, or its memory was freed"
                      : !size ? "size is NULL"
                              : "the property id is UMF_MEMORY_PROPERTY_INVALID");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t own = own_size(memory_property_id);
    if (!own) {
        return provider_property_size(provider_of(span), memory_property_id, size);
    }
    *size = own;
    return UMF_RESULT_SUCCESS;
}

/* The memory type. Host providers, and providers without property operations, report none. */
static umf_usm_memory_type_t pointer_type(const umf_span_t *span) {
    umf_memory_provider_handle_t provider = provider_of(span);
    umf_usm_memory_type_t type = UMF_MEMORY_TYPE_UNKNOWN;
    if (!provider || !provider->ops.ext_get_allocation_properties ||
        provider->ops.ext_get_allocation_properties(provider->self, (void *)span->base,
                                                    UMF_MEMORY_PROPERTY_POINTER_TYPE,
                                                    &type) != UMF_RESULT_SUCCESS) {
        return UMF_MEMORY_TYPE_UNKNOWN;
    }
    return type;
}

/* The span around all others has the physical memory. */
static umf_result_t rdma_property(const umf_span_t *span, int *value) {
    while (span->outer) {
        span = umf_span_at(span->outer);
    }
    umf_usm_memory_type_t type = pointer_type(span);
    if (type == UMF_MEMORY_TYPE_HOST ||
        (type == UMF_MEMORY_TYPE_UNKNOWN && umf_os_probe_read((void *)span->base) != EFAULT)) {
        *value = 1;
        return UMF_RESULT_SUCCESS;
    }
    size_t size = 0;
    umf_memory_provider_handle_t provider = provider_of(span);
    umf_result_t result = provider_property_size(provider, UMF_MEMORY_PROPERTY_RDMA_CAPABLE, &size);
    if (result == UMF_RESULT_SUCCESS && size == sizeof(*value)) {
        return provider->ops.ext_get_allocation_properties(provider->self, (void *)span->base,
                                                           UMF_MEMORY_PROPERTY_RDMA_CAPABLE, value);
    }
    UMF_LOG_ERROR("the provider of %p does not report whether network cards can access it",
                  (void *)span->base);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t own_property(const umf_span_t *span, umf_memory_property_id_t id, void *value) {
    switch (id) {
    case UMF_MEMORY_PROPERTY_RDMA_CAPABLE:
        return rdma_property(span, value);
    case UMF_MEMORY_PROPERTY_PROVIDER_HANDLE:
        *(umf_memory_provider_handle_t *)value = provider_of(span);
        break;
    case UMF_MEMORY_PROPERTY_POOL_HANDLE:
        *(umf_memory_pool_handle_t *)value =
            span->set->pool
                ? atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire)
                : NULL;
        break;
    case UMF_MEMORY_PROPERTY_BASE_ADDRESS:
        *(uintptr_t *)value = span->base;
        break;
    case UMF_MEMORY_PROPERTY_BASE_SIZE:
        *(size_t *)value = span->size;
        break;
    case UMF_MEMORY_PROPERTY_BUFFER_ID:
        *(uint64_t *)value = span->id;
        break;
    default:
        *(umf_usm_memory_type_t *)value = pointer_type(span);
        break;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_1 umf_result_t umfGetMemoryProperty(umf_memory_properties_handle_t props_handle,
                                              umf_memory_property_id_t memory_property_id,
                                              void *property_value, size_t max_property_size) {
    umf_span_t *span = span_of(props_handle);
    if (!span || !property_value || max_property_size == 0) {
        UMF_LOG_ERROR("%s",
                      !span ? "the handle is not one of memory properties, or its memory was freed"
                            : "property_value is NULL or its size 0");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t size;
    umf_result_t result = umfGetMemoryPropertySize(props_handle, memory_property_id, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (size > max_property_size) {
        UMF_LOG_ERROR("property %d needs %zu bytes, the buffer has %zu", (int)memory_property_id,
                      size, max_property_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (own_size(memory_property_id)) {
        return own_property(span, memory_property_id, property_value);
    }
    umf_memory_provider_handle_t provider = provider_of(span);
    result = provider->ops.ext_get_allocation_properties(provider->self, (void *)span->base,
                                                         memory_property_id, property_value);
    if (result != UMF_RESULT_SUCCESS) {
        umf_provider_failed(provider);
    }
    return result;
}
