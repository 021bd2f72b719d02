/* The devices of this machine that have a Level Zero driver. */
#include "providers/level_zero/machine.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "system/common.h"

#define DRIVERS_MAX 16
#define EXTENSIONS_MAX 4096
#define CACHE_LINE_SIZE_DEFAULT 128

/* Since Level Zero 1.12. The headers of older loaders lack it, but their drivers may have it. */
#define CACHE_LINE_EXTENSION "ZE_extension_device_cache_line_size"
#define CACHE_LINE_STRUCTURE 0x20028

typedef struct cache_line_t {
    ze_structure_type_t stype;
    void *pNext;
    size_t cacheLineSize;
} cache_line_t;

const ze_relaxed_allocation_limits_exp_desc_t umf_ze_relaxed = {
    .stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
    .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE,
};

typedef struct drivers_t {
    ze_driver_handle_t list[DRIVERS_MAX];
    uint32_t count;
} drivers_t;

static ze_result_t list_drivers(drivers_t *drivers) {
    drivers->count = 0;
    ze_result_t result = umf_ze.zeDriverGet(&drivers->count, NULL);
    if (result != ZE_RESULT_SUCCESS || drivers->count == 0) {
        return result;
    }
    drivers->count = drivers->count < DRIVERS_MAX ? drivers->count : DRIVERS_MAX;
    return umf_ze.zeDriverGet(&drivers->count, drivers->list);
}

ze_result_t umf_ze_list_devices(ze_driver_handle_t owner, umf_ze_devices_list_t *devices) {
    devices->count = 0;
    ze_result_t result = umf_ze.zeDeviceGet(owner, &devices->count, NULL);
    if (result != ZE_RESULT_SUCCESS || devices->count == 0) {
        return result;
    }
    devices->count = devices->count < UMF_ZE_DEVICES_MAX ? devices->count : UMF_ZE_DEVICES_MAX;
    return umf_ze.zeDeviceGet(owner, &devices->count, devices->list);
}

/* --- by number -------------------------------------------------------------------------------- */

static bool can_find(void) {
    return umf_ze.zeInit && umf_ze.zeDriverGet && umf_ze.zeDeviceGet;
}

static ze_result_t device_counts(ze_device_handle_t device, bool any_type, bool *counts) {
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    ze_result_t result =
        any_type ? ZE_RESULT_SUCCESS : umf_ze.zeDeviceGetProperties(device, &properties);
    *counts = any_type || (result == ZE_RESULT_SUCCESS && properties.type == ZE_DEVICE_TYPE_GPU);
    return result;
}

/* Keeps the devices that count; `*seen` grows by all devices. */
static ze_result_t list_counted(ze_driver_handle_t owner, bool any_type,
                                umf_ze_devices_list_t *devices, unsigned *seen) {
    umf_ze_devices_list_t all;
    devices->count = 0;
    ze_result_t result = umf_ze_list_devices(owner, &all);
    if (result != ZE_RESULT_SUCCESS) {
        return result;
    }
    *seen += all.count;
    for (uint32_t i = 0; i < all.count && result == ZE_RESULT_SUCCESS; i++) {
        bool counts;
        result = device_counts(all.list[i], any_type, &counts);
        if (counts) {
            devices->list[devices->count++] = all.list[i];
        }
    }
    return result;
}

typedef struct search_t {
    umf_ze_location_t location; /* device NULL: not found */
    unsigned drivers;
    unsigned seen;    /* devices visited */
    unsigned counted; /* devices that count in the requested driver */
} search_t;

static ze_result_t search_owner(ze_driver_handle_t owner, const umf_ze_request_t *request,
                                search_t *search) {
    umf_ze_devices_list_t devices;
    ze_result_t result = list_counted(owner, request->any_type, &devices, &search->seen);
    if (result != ZE_RESULT_SUCCESS) {
        return result;
    }
    search->counted = devices.count;
    if (request->device < devices.count) {
        search->location = (umf_ze_location_t){owner, devices.list[request->device]};
    }
    return ZE_RESULT_SUCCESS;
}

/* Whether the loader says that it has found no driver. */
static bool is_no_driver(ze_result_t result) {
    return result == ZE_RESULT_ERROR_UNINITIALIZED || result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static ze_result_t search_machine(const umf_ze_request_t *request, search_t *search) {
    drivers_t drivers;
    *search = (search_t){.location = {NULL, NULL}};
    ze_result_t result = umf_ze.zeInit(0);
    if (result == ZE_RESULT_SUCCESS) {
        result = list_drivers(&drivers);
    }
    if (result != ZE_RESULT_SUCCESS) {
        return is_no_driver(result) ? ZE_RESULT_SUCCESS : result;
    }
    search->drivers = drivers.count;
    if (request->names_driver) {
        return request->driver < drivers.count
                   ? search_owner(drivers.list[request->driver], request, search)
                   : ZE_RESULT_SUCCESS;
    }
    for (uint32_t i = 0; i < drivers.count && search->counted == 0 && result == ZE_RESULT_SUCCESS;
         i++) {
        result = search_owner(drivers.list[i], request, search);
    }
    return result;
}

/* Says why a search without failures has found nothing. */
static umf_result_t explain(const umf_ze_request_t *request, const search_t *search, char *why,
                            size_t why_size) {
    const char *counted = request->any_type ? "devices" : "GPUs";
    if (search->drivers == 0 || (search->seen == 0 && !request->names_driver)) {
        snprintf(why, why_size,
                 "the Level Zero loader finds no device: install the driver of the GPU (for Intel: "
                 "intel-level-zero-gpu) and see that this user may open /dev/dri/renderD*");
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    if (search->counted == 0 && !request->names_driver) {
        snprintf(
            why, why_size,
            "the Level Zero loader finds %u devices and no GPU: install the driver of the GPU, "
            "or set any_device to use other devices",
            search->seen);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    if (request->names_driver && request->driver >= search->drivers) {
        snprintf(why, why_size, "there is no driver %u among the %u of this machine",
                 request->driver, search->drivers);
    } else {
        snprintf(why, why_size,
                 "there is no device %u among the %u %s of its driver: each driver has numbers of "
                 "its own (the setting driver)",
                 request->device, search->counted, counted);
    }
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* Logs the result of a search and converts it. */
static umf_result_t conclude(ze_result_t result, const umf_ze_request_t *request,
                             const search_t *search) {
    if (result != ZE_RESULT_SUCCESS || search->location.device) {
        return umf_ze_result(result, "listing the devices");
    }
    char why[256];
    umf_result_t reason = explain(request, search, why, sizeof(why));
    UMF_LOG_ERROR("%s", why);
    return reason;
}

umf_result_t umf_ze_find_device(const umf_ze_request_t *request, umf_ze_location_t *location) {
    if (!can_find()) {
        UMF_LOG_ERROR("this Level Zero loader cannot list devices (zeInit, zeDriverGet, "
                      "zeDeviceGet): give the provider a context and a device");
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    search_t search;
    ze_result_t found = search_machine(request, &search);
    umf_result_t result = conclude(found, request, &search);
    if (result == UMF_RESULT_SUCCESS) {
        *location = search.location;
    }
    return result;
}

umf_result_t umf_ze_find_beside(ze_driver_handle_t owner, bool any_type, unsigned number,
                                ze_device_handle_t *device) {
    const umf_ze_request_t request = {.names_driver = true, .any_type = any_type, .device = number};
    search_t search = {.drivers = 1};
    ze_result_t found = search_owner(owner, &request, &search);
    umf_result_t result = conclude(found, &request, &search);
    if (result == UMF_RESULT_SUCCESS) {
        *device = search.location.device;
    }
    return result;
}

/* --- by handle -------------------------------------------------------------------------------- */

static bool lists_device(const umf_ze_devices_list_t *devices, ze_device_handle_t device) {
    for (uint32_t i = 0; i < devices->count; i++) {
        if (devices->list[i] == device) {
            return true;
        }
    }
    return false;
}

/* Whether `device` is a sub-device of one of the devices. */
static ze_result_t lists_part(const umf_ze_devices_list_t *devices, ze_device_handle_t device,
                              bool *lists) {
    ze_result_t result = ZE_RESULT_SUCCESS;
    *lists = false;
    for (uint32_t i = 0; i < devices->count && !*lists && result == ZE_RESULT_SUCCESS; i++) {
        umf_ze_devices_list_t parts = {.count = UMF_ZE_DEVICES_MAX};
        result = umf_ze.zeDeviceGetSubDevices(devices->list[i], &parts.count, parts.list);
        *lists = result == ZE_RESULT_SUCCESS && lists_device(&parts, device);
    }
    return result;
}

static ze_result_t owns(ze_driver_handle_t owner, ze_device_handle_t device, bool *does) {
    umf_ze_devices_list_t devices;
    *does = false;
    ze_result_t result = umf_ze_list_devices(owner, &devices);
    if (result != ZE_RESULT_SUCCESS) {
        return result;
    }
    *does = lists_device(&devices, device);
    return *does || !umf_ze.zeDeviceGetSubDevices ? ZE_RESULT_SUCCESS
                                                  : lists_part(&devices, device, does);
}

ze_result_t umf_ze_owner(ze_device_handle_t device, ze_driver_handle_t *owner) {
    drivers_t drivers = {.count = 0};
    *owner = NULL;
    ze_result_t result = can_find() ? list_drivers(&drivers) : ZE_RESULT_SUCCESS;
    for (uint32_t i = 0; i < drivers.count && !*owner && result == ZE_RESULT_SUCCESS; i++) {
        bool is_found;
        result = owns(drivers.list[i], device, &is_found);
        *owner = is_found ? drivers.list[i] : NULL;
    }
    return result;
}

/* --- contexts --------------------------------------------------------------------------------- */

umf_result_t umf_ze_make_context(ze_driver_handle_t owner, ze_context_handle_t *context) {
    if (!umf_ze.zeContextCreate || !umf_ze.zeContextDestroy) {
        UMF_LOG_ERROR("this Level Zero loader cannot make a context (zeContextCreate, "
                      "zeContextDestroy): give the provider one");
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    const ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    return umf_ze_result(umf_ze.zeContextCreate(owner, &desc, context), "making a context");
}

/* --- cache lines ------------------------------------------------------------------------------ */

static bool names_extension(const ze_driver_extension_properties_t *list, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (strncmp(list[i].name, CACHE_LINE_EXTENSION, sizeof(list[i].name)) == 0) {
            return true;
        }
    }
    return false;
}

static ze_result_t has_extension(ze_driver_handle_t owner, bool *has) {
    uint32_t count = 0;
    *has = false;
    ze_result_t result = umf_ze.zeDriverGetExtensionProperties(owner, &count, NULL);
    if (result != ZE_RESULT_SUCCESS || count == 0) {
        return result;
    }
    count = count < EXTENSIONS_MAX ? count : EXTENSIONS_MAX;
    uint32_t room = count;
    ze_driver_extension_properties_t *list = umf_meta_alloc(room * sizeof(*list));
    if (!list) {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = umf_ze.zeDriverGetExtensionProperties(owner, &count, list);
    *has = result == ZE_RESULT_SUCCESS && names_extension(list, count < room ? count : room);
    umf_meta_free(list, room * sizeof(*list));
    return result;
}

/* A device that does not report its cache line leaves `size` unchanged. */
static ze_result_t query_device(ze_device_handle_t device, size_t *size) {
    cache_line_t line = {.stype = (ze_structure_type_t)CACHE_LINE_STRUCTURE};
    ze_device_cache_properties_t properties = {
        .stype = ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES,
        .pNext = &line,
    };
    uint32_t count = 1;
    ze_result_t result = umf_ze.zeDeviceGetCacheProperties(device, &count, &properties);
    if (result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE ||
        result == ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION) {
        return ZE_RESULT_SUCCESS;
    }
    if (result == ZE_RESULT_SUCCESS && umf_is_pow2(line.cacheLineSize)) {
        *size = line.cacheLineSize;
    }
    return result;
}

static ze_result_t ask_driver(ze_driver_handle_t owner, ze_device_handle_t device, size_t *size,
                              bool *is_done) {
    bool has;
    umf_ze_devices_list_t devices;
    ze_result_t result = has_extension(owner, &has);
    if (result != ZE_RESULT_SUCCESS || !has) {
        return result;
    }
    result = umf_ze_list_devices(owner, &devices);
    if (result != ZE_RESULT_SUCCESS || devices.count == 0 ||
        (device && !lists_device(&devices, device))) {
        return result;
    }
    *is_done = true;
    return query_device(device ? device : devices.list[0], size);
}

umf_result_t umf_ze_cache_line_size(ze_device_handle_t device, size_t *size) {
    drivers_t drivers;
    size_t found = CACHE_LINE_SIZE_DEFAULT;
    ze_result_t result = ZE_RESULT_SUCCESS;
    if (umf_ze.zeDriverGet && umf_ze.zeDriverGetExtensionProperties && umf_ze.zeDeviceGet &&
        umf_ze.zeDeviceGetCacheProperties) {
        bool is_done = false;
        result = list_drivers(&drivers);
        for (uint32_t i = 0; result == ZE_RESULT_SUCCESS && !is_done && i < drivers.count; i++) {
            result = ask_driver(drivers.list[i], device, &found, &is_done);
        }
    }
    if (result == ZE_RESULT_SUCCESS) {
        *size = found;
    }
    return umf_ze_result(result, "asking for the cache line size");
}

umf_result_t umf_ze_op_cache_line_size(void *provider, size_t *size) {
    *size = ((umf_ze_memory_t *)provider)->cache_line_size;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_ze_op_property(void *provider, const void *ptr, umf_memory_property_id_t id,
                                void *value) {
    const umf_ze_memory_t *ze = provider;
    (void)ptr;
    const umf_gpu_memory_t memory = {
        .type = ze->memory_type,
        .context = ze->context,
        .device = &ze->device,
        .device_size = sizeof(ze->device),
    };
    return umf_gpu_property(&memory, id, value);
}

umf_result_t umf_ze_op_property_size(void *provider, umf_memory_property_id_t id, size_t *size) {
    (void)provider;
    return umf_gpu_property_size(sizeof(ze_device_handle_t), id, size);
}

/* --- probe ------------------------------------------------------------------------------------ */

umf_result_t umf_ze_probe(char *why, size_t why_size) {
    if (!umf_ze_is_there(why, why_size)) {
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    const umf_ze_request_t any = {.device = 0};
    search_t search = {.drivers = 0};
    ze_result_t result = can_find() ? search_machine(&any, &search) : ZE_RESULT_SUCCESS;
    if (result != ZE_RESULT_SUCCESS) {
        snprintf(why, why_size, "the Level Zero driver does not start (error 0x%x)",
                 (unsigned)result);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    return search.location.device ? UMF_RESULT_SUCCESS : explain(&any, &search, why, why_size);
}
