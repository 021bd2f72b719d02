/* Common parts of the providers over GPU drivers: properties of memory, and memory
 * types in text. */
#ifndef UMF_SRC_PROVIDERS_GPU_GPU_H
#define UMF_SRC_PROVIDERS_GPU_GPU_H

#include <umf/base.h>
#include <umf/memory_provider_gpu.h>

#include "ctl/field.h"

/* Memory of one context. `device` points to the driver's handle, of `device_size` bytes. */
typedef struct umf_gpu_memory_t {
    umf_usm_memory_type_t type;
    void *context;
    const void *device;
    size_t device_size;
} umf_gpu_memory_t;

/* The value of a property, and its size. INVALID_ARGUMENT for others. */
umf_result_t umf_gpu_property(const umf_gpu_memory_t *memory, umf_memory_property_id_t id,
                              void *value);
umf_result_t umf_gpu_property_size(size_t device_size, umf_memory_property_id_t id, size_t *size);

/* host, device, shared. */
extern const umf_field_word_t umf_gpu_memory_types[];

#endif
