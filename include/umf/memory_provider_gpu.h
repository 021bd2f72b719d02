/** @file
 * Definitions shared by the providers of GPU memory.
 */
#ifndef UMF_MEMORY_PROVIDER_GPU_H
#define UMF_MEMORY_PROVIDER_GPU_H 1

#include <umf/memory_provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief Kind of memory as GPU drivers see it (USM: unified shared memory).
typedef enum umf_usm_memory_type_t {
    /// Not known to a driver, such as memory of the operating system.
    UMF_MEMORY_TYPE_UNKNOWN = 0,
    /// Memory of the host that devices can access.
    UMF_MEMORY_TYPE_HOST = 1,
    /// Memory of one device.
    UMF_MEMORY_TYPE_DEVICE = 2,
    /// Memory that moves between host and devices.
    UMF_MEMORY_TYPE_SHARED = 3
} umf_usm_memory_type_t;

#ifdef __cplusplus
}
#endif

#endif /* UMF_MEMORY_PROVIDER_GPU_H */
