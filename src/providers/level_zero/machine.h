/*
 * The devices of this machine that have a Level Zero driver, found by number, and questions about
 * them. A device is named by a driver and a number. Devices of two drivers share no context, so
 * numbers count within one driver, in its order. Devices that are no GPUs count only on request.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_MACHINE_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_MACHINE_H

#include "providers/gpu/gpu.h"
#include "providers/level_zero/driver.h"

/* The state of a Level Zero provider begins with it, so the operations named umf_ze_op_* serve both
 * kinds. Immutable after create. */
typedef struct umf_ze_memory_t {
    ze_context_handle_t context;
    ze_device_handle_t device; /* NULL for memory of the host */
    umf_usm_memory_type_t memory_type;
    bool owns_context;
    size_t cache_line_size;
} umf_ze_memory_t;

#define UMF_ZE_MEMORY_FIRST(type)                                                                  \
    _Static_assert(offsetof(type, memory) == 0, "the operations take a provider for its memory")

typedef struct umf_ze_location_t {
    ze_driver_handle_t owner;
    ze_device_handle_t device;
} umf_ze_location_t;

#define UMF_ZE_DEVICES_MAX 64

/* Allows allocations above the limit of the device. */
extern const ze_relaxed_allocation_limits_exp_desc_t umf_ze_relaxed;

typedef struct umf_ze_devices_list_t {
    ze_device_handle_t list[UMF_ZE_DEVICES_MAX];
    uint32_t count;
} umf_ze_devices_list_t;

/* Zeroed, it means the first GPU. */
typedef struct umf_ze_request_t {
    bool names_driver; /* false: the first driver with a device that counts */
    bool any_type;     /* devices that are no GPUs count, too */
    unsigned driver;   /* number in the loader's order */
    unsigned device;   /* number among the driver's devices that count */
} umf_ze_request_t;

/*
 * Finds the requested device. INVALID_ARGUMENT: there is no such driver, or it has fewer devices
 * that count; DEPENDENCY_UNAVAILABLE: there is no driver, no driver has a device that counts, or
 * the loader lacks the functions; other results are the driver's.
 */
umf_result_t umf_ze_find_device(const umf_ze_request_t *request, umf_ze_location_t *location);

/* Finds the device with that number of the driver `owner`, so that both can share a context.
 * Results as above. */
umf_result_t umf_ze_find_beside(ze_driver_handle_t owner, bool any_type, unsigned number,
                                ze_device_handle_t *device);

/* The driver of a device or sub-device. NULL: no driver lists it, or the loader lacks the
 * functions. */
ze_result_t umf_ze_owner(ze_device_handle_t device, ze_driver_handle_t *owner);

/* All devices of a driver. */
ze_result_t umf_ze_list_devices(ze_driver_handle_t owner, umf_ze_devices_list_t *devices);

/* Makes a context on a driver. */
umf_result_t umf_ze_make_context(ze_driver_handle_t owner, ze_context_handle_t *context);

/* The cache line size of the device (NULL: of any) by the driver's extension; 128 without that. */
umf_result_t umf_ze_cache_line_size(ze_device_handle_t device, size_t *size);

/* The operations get_allocation_properties, get_allocation_properties_size, get_cache_line_size. */
umf_result_t umf_ze_op_property(void *provider, const void *ptr, umf_memory_property_id_t id,
                                void *value);
umf_result_t umf_ze_op_property_size(void *provider, umf_memory_property_id_t id, size_t *size);
umf_result_t umf_ze_op_cache_line_size(void *provider, size_t *size);

/* Whether there is a loader, a driver and a GPU; for a descriptor's probe. */
umf_result_t umf_ze_probe(char *why, size_t why_size);

/* Members of umf_memory_provider_ops_t. */
#define UMF_ZE_OPS                                                                                 \
    .get_last_native_error = umf_ze_native_error,                                                  \
    .ext_get_allocation_properties = umf_ze_op_property,                                           \
    .ext_get_allocation_properties_size = umf_ze_op_property_size,                                 \
    .get_cache_line_size = umf_ze_op_cache_line_size

#endif
