/* GPU: common parts of the providers over GPU drivers. */
#include "providers/gpu/gpu.h"

#include <string.h>

#include "base/log.h"

const umf_field_word_t umf_gpu_memory_types[] = {
    {"host", UMF_MEMORY_TYPE_HOST},
    {"device", UMF_MEMORY_TYPE_DEVICE},
    {"shared", UMF_MEMORY_TYPE_SHARED},
    {NULL, 0},
};

umf_result_t umf_gpu_property_size(size_t device_size, umf_memory_property_id_t id, size_t *size) {
    switch (id) {
    case UMF_MEMORY_PROPERTY_POINTER_TYPE:
        *size = sizeof(umf_usm_memory_type_t);
        return UMF_RESULT_SUCCESS;
    case UMF_MEMORY_PROPERTY_CONTEXT:
        *size = sizeof(void *);
        return UMF_RESULT_SUCCESS;
    case UMF_MEMORY_PROPERTY_DEVICE:
        *size = device_size;
        return UMF_RESULT_SUCCESS;
    case UMF_MEMORY_PROPERTY_RDMA_CAPABLE:
        return UMF_RESULT_ERROR_NOT_SUPPORTED; /* only a driver with the query answers it */
    default:
        UMF_LOG_ERROR("memory of a GPU has no property %d", (int)id);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
}

umf_result_t umf_gpu_property(const umf_gpu_memory_t *memory, umf_memory_property_id_t id,
                              void *value) {
    size_t size = 0;
    umf_result_t result = umf_gpu_property_size(memory->device_size, id, &size);
    if (result == UMF_RESULT_SUCCESS) {
        const void *from = id == UMF_MEMORY_PROPERTY_POINTER_TYPE ? (const void *)&memory->type
                           : id == UMF_MEMORY_PROPERTY_CONTEXT    ? (const void *)&memory->context
                                                                  : memory->device;
        memcpy(value, from, size);
    }
    return result;
}
