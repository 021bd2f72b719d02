/* The devices of this machine that have a Level Zero driver. */
#include "providers/level_zero_machine.h"

#include <stdio.h>
#include <string.h>

#include "base/common.h"
#include "base/log.h"
#include "base/meta.h"

#define DRIVERS_MAX 16
#define DEVICES_MAX 64
#define EXTENSIONS_MAX 4096
#define CACHE_LINE_SIZE_DEFAULT 128

/* Level Zero 1.12: the headers of older loaders are without it, their drivers need not be. */
#define CACHE_LINE_EXTENSION "ZE_extension_device_cache_line_size"
#define CACHE_LINE_STRUCTURE 0x20028

typedef struct cache_line_t {
    ze_structure_type_t stype;
    void *pNext;
    size_t cacheLineSize;
} cache_line_t;

typedef struct drivers_t {
    ze_driver_handle_t list[DRIVERS_MAX];
    uint32_t count;
} drivers_t;

typedef struct devices_t {
    ze_device_handle_t list[DEVICES_MAX];
    uint32_t count;
} devices_t;

static ze_result_t list_drivers(const umf_ze_driver_t *driver, drivers_t *drivers) {
    drivers->count = 0;
    ze_result_t result = driver->zeDriverGet(&drivers->count, NULL);
    if (result != ZE_RESULT_SUCCESS || drivers->count == 0) {
        return result;
    }
    drivers->count = drivers->count < DRIVERS_MAX ? drivers->count : DRIVERS_MAX;
    return driver->zeDriverGet(&drivers->count, drivers->list);
}

static ze_result_t list_devices(const umf_ze_driver_t *driver, ze_driver_handle_t owner,
                                devices_t *devices) {
    devices->count = 0;
    ze_result_t result = driver->zeDeviceGet(owner, &devices->count, NULL);
    if (result != ZE_RESULT_SUCCESS || devices->count == 0) {
        return result;
    }
    devices->count = devices->count < DEVICES_MAX ? devices->count : DEVICES_MAX;
    return driver->zeDeviceGet(owner, &devices->count, devices->list);
}

/* --- by number -------------------------------------------------------------------------------- */

/* The search over all drivers. `place->device` stays NULL if there is no such number; `*total` is
 * how many devices were seen. */
static ze_result_t find_number(const umf_ze_driver_t *driver, unsigned number,
                               umf_ze_place_t *place, unsigned *total) {
    drivers_t drivers;
    *place = (umf_ze_place_t){NULL, NULL};
    *total = 0;
    ze_result_t result = driver->zeInit(0);
    if (result == ZE_RESULT_SUCCESS) {
        result = list_drivers(driver, &drivers);
    }
    for (uint32_t i = 0; result == ZE_RESULT_SUCCESS && i < drivers.count; i++) {
        devices_t devices;
        result = list_devices(driver, drivers.list[i], &devices);
        if (result == ZE_RESULT_SUCCESS && number - *total < devices.count) {
            *place = (umf_ze_place_t){drivers.list[i], devices.list[number - *total]};
            return result;
        }
        *total += devices.count;
    }
    return result;
}

static bool can_find(const umf_ze_driver_t *driver) {
    return driver->zeInit && driver->zeDriverGet && driver->zeDeviceGet;
}

/* What the loader answers when it has found no driver at all. */
static bool is_no_driver(ze_result_t result) {
    return result == ZE_RESULT_ERROR_UNINITIALIZED || result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

static const char no_driver[] =
    "the Level Zero loader finds no device: install the driver of the GPU (for Intel: "
    "intel-level-zero-gpu) and see that this user may open /dev/dri/renderD*";

umf_result_t umf_ze_find_device(const umf_ze_driver_t *driver, unsigned number,
                                umf_ze_place_t *place) {
    if (!can_find(driver)) {
        UMF_LOG_ERROR("this Level Zero loader cannot list devices (zeInit, zeDriverGet, "
                      "zeDeviceGet): give the provider a context and a device");
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    unsigned total;
    umf_ze_place_t found;
    ze_result_t result = find_number(driver, number, &found, &total);
    if (is_no_driver(result) || (result == ZE_RESULT_SUCCESS && !found.device && total == 0)) {
        UMF_LOG_ERROR("%s", no_driver);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    if (result == ZE_RESULT_SUCCESS && !found.device) {
        UMF_LOG_ERROR("there is no device %u among the %u of this machine", number, total);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (result == ZE_RESULT_SUCCESS) {
        *place = found;
    }
    return umf_ze_result(result, "listing the devices");
}

umf_result_t umf_ze_make_context(const umf_ze_driver_t *driver, ze_driver_handle_t owner,
                                 ze_context_handle_t *context) {
    if (!driver->zeContextCreate || !driver->zeContextDestroy) {
        UMF_LOG_ERROR("this Level Zero loader cannot make a context (zeContextCreate, "
                      "zeContextDestroy): give the provider one");
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    const ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    return umf_ze_result(driver->zeContextCreate(owner, &desc, context), "making a context");
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

static ze_result_t has_extension(const umf_ze_driver_t *driver, ze_driver_handle_t owner,
                                 bool *has) {
    uint32_t count = 0;
    *has = false;
    ze_result_t result = driver->zeDriverGetExtensionProperties(owner, &count, NULL);
    if (result != ZE_RESULT_SUCCESS || count == 0) {
        return result;
    }
    count = count < EXTENSIONS_MAX ? count : EXTENSIONS_MAX;
    uint32_t room = count;
    ze_driver_extension_properties_t *list = umf_meta_alloc(room * sizeof(*list));
    if (!list) {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = driver->zeDriverGetExtensionProperties(owner, &count, list);
    *has = result == ZE_RESULT_SUCCESS && names_extension(list, count < room ? count : room);
    umf_meta_free(list, room * sizeof(*list));
    return result;
}

static bool lists_device(const devices_t *devices, ze_device_handle_t device) {
    for (uint32_t i = 0; i < devices->count; i++) {
        if (devices->list[i] == device) {
            return true;
        }
    }
    return false;
}

/* A device that says it has no such thing leaves `size` as it is. */
static ze_result_t ask_device(const umf_ze_driver_t *driver, ze_device_handle_t device,
                              size_t *size) {
    cache_line_t line = {.stype = (ze_structure_type_t)CACHE_LINE_STRUCTURE};
    ze_device_cache_properties_t properties = {
        .stype = ZE_STRUCTURE_TYPE_DEVICE_CACHE_PROPERTIES,
        .pNext = &line,
    };
    uint32_t count = 1;
    ze_result_t result = driver->zeDeviceGetCacheProperties(device, &count, &properties);
    if (result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE ||
        result == ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION) {
        return ZE_RESULT_SUCCESS;
    }
    if (result == ZE_RESULT_SUCCESS && umf_is_pow2(line.cacheLineSize)) {
        *size = line.cacheLineSize;
    }
    return result;
}

static ze_result_t ask_driver(const umf_ze_driver_t *driver, ze_driver_handle_t owner,
                              ze_device_handle_t device, size_t *size, bool *is_done) {
    bool has;
    devices_t devices;
    ze_result_t result = has_extension(driver, owner, &has);
    if (result != ZE_RESULT_SUCCESS || !has) {
        return result;
    }
    result = list_devices(driver, owner, &devices);
    if (result != ZE_RESULT_SUCCESS || devices.count == 0 ||
        (device && !lists_device(&devices, device))) {
        return result;
    }
    *is_done = true;
    return ask_device(driver, device ? device : devices.list[0], size);
}

umf_result_t umf_ze_cache_line_size(const umf_ze_driver_t *driver, ze_device_handle_t device,
                                    size_t *size) {
    drivers_t drivers;
    size_t found = CACHE_LINE_SIZE_DEFAULT;
    ze_result_t result = ZE_RESULT_SUCCESS;
    if (driver->zeDriverGet && driver->zeDriverGetExtensionProperties && driver->zeDeviceGet &&
        driver->zeDeviceGetCacheProperties) {
        bool is_done = false;
        result = list_drivers(driver, &drivers);
        for (uint32_t i = 0; result == ZE_RESULT_SUCCESS && !is_done && i < drivers.count; i++) {
            result = ask_driver(driver, drivers.list[i], device, &found, &is_done);
        }
    }
    if (result == ZE_RESULT_SUCCESS) {
        *size = found;
    }
    return umf_ze_result(result, "asking for the cache line size");
}

/* --- probe ------------------------------------------------------------------------------------ */

umf_result_t umf_ze_probe(char *why, size_t why_size) {
    const umf_ze_driver_t *driver = umf_ze_driver(why, why_size);
    if (!driver) {
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    unsigned total = 0;
    umf_ze_place_t place = {NULL, NULL};
    ze_result_t result = ZE_RESULT_ERROR_UNINITIALIZED;
    if (can_find(driver)) {
        result = find_number(driver, 0, &place, &total);
    }
    if (!is_no_driver(result) && result != ZE_RESULT_SUCCESS) {
        snprintf(why, why_size, "the Level Zero driver does not start (error 0x%x)",
                 (unsigned)result);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    if (!place.device) {
        snprintf(why, why_size, "%s", no_driver);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    return UMF_RESULT_SUCCESS;
}
