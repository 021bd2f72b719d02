/* Waiting for all work that was queued on a device. */
#include "providers/level_zero/wait.h"

#include <string.h>

#include "base/log.h"

#define WAIT_FUNCTION "zeDeviceSynchronize"
#define LOADER_HANDLE_DEVICE 1 /* zel_handle_type_t */

/* The function belongs to the driver, so it takes the driver's handles. With several drivers the
 * loader's handles differ from them. */
static bool wait_add(ze_device_handle_t device, umf_ze_wait_t *wait) {
    void *native = NULL;
    if (wait->count == UMF_ZE_DEVICES_MAX ||
        umf_ze.zelLoaderTranslateHandle(LOADER_HANDLE_DEVICE, device, &native) !=
            ZE_RESULT_SUCCESS) {
        return false;
    }
    wait->devices[wait->count++] = native;
    return true;
}

static ze_result_t wait_add_peers(const umf_ze_devices_list_t *devices, ze_device_handle_t device,
                                  umf_ze_wait_t *wait, bool *is_complete) {
    ze_result_t result = ZE_RESULT_SUCCESS;
    for (uint32_t i = 0; i < devices->count && result == ZE_RESULT_SUCCESS; i++) {
        ze_bool_t can = 0;
        if (devices->list[i] != device && umf_ze.zeDeviceCanAccessPeer) {
            result = umf_ze.zeDeviceCanAccessPeer(devices->list[i], device, &can);
        }
        if (result == ZE_RESULT_SUCCESS && can) {
            *is_complete = wait_add(devices->list[i], wait) && *is_complete;
        }
    }
    return result;
}

/* Looks for the function; `*function` stays NULL if the driver does not have it. */
static ze_result_t wait_find(ze_driver_handle_t owner, void **function) {
    ze_result_t result = umf_ze.zeDriverGetExtensionFunctionAddress(owner, WAIT_FUNCTION, function);
    bool is_none = result == ZE_RESULT_ERROR_INVALID_ARGUMENT ||
                   result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE ||
                   result == ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    if (result != ZE_RESULT_SUCCESS) {
        *function = NULL;
    }
    return is_none ? ZE_RESULT_SUCCESS : result;
}

static ze_result_t wait_start(ze_device_handle_t device, umf_ze_wait_t *wait) {
    void *function = NULL;
    ze_driver_handle_t owner;
    umf_ze_devices_list_t devices;
    ze_result_t result = umf_ze_owner(device, &owner);
    if (result != ZE_RESULT_SUCCESS || !owner) {
        return result;
    }
    result = wait_find(owner, &function);
    if (result == ZE_RESULT_SUCCESS && function) {
        result = umf_ze_list_devices(owner, &devices);
    }
    bool is_complete = function && wait_add(device, wait);
    if (result == ZE_RESULT_SUCCESS && is_complete) {
        result = wait_add_peers(&devices, device, wait, &is_complete);
    }
    if (result == ZE_RESULT_SUCCESS && is_complete) {
        memcpy(&wait->synchronize, &function, sizeof(function));
    }
    return result;
}

umf_result_t umf_ze_wait_init(ze_device_handle_t device, umf_ze_wait_t *wait) {
    *wait = (umf_ze_wait_t){.count = 0};
    ze_result_t result = ZE_RESULT_SUCCESS;
    if (umf_ze.zeDriverGetExtensionFunctionAddress && umf_ze.zelLoaderTranslateHandle) {
        result = wait_start(device, wait);
    }
    if (result == ZE_RESULT_SUCCESS && !wait->synchronize) {
        UMF_LOG_DEBUG(
            "this Level Zero driver cannot wait for a whole device (it has no " WAIT_FUNCTION
            "): memory that is freed must be used by no queued work");
    }
    return umf_ze_result(result, "asking how to wait for a device");
}

ze_result_t umf_ze_wait_all(const umf_ze_wait_t *wait) {
    ze_result_t result = ZE_RESULT_SUCCESS;
    for (uint32_t i = 0; i < wait->count && wait->synchronize && result == ZE_RESULT_SUCCESS; i++) {
        result = wait->synchronize(wait->devices[i]);
    }
    return result;
}

umf_result_t umf_ze_wait_for(void *const *queues, size_t num_queues, void *const *events,
                             size_t num_events) {
    ze_result_t result = ZE_RESULT_SUCCESS;
    if ((num_queues && !umf_ze.zeCommandQueueSynchronize) ||
        (num_events && !umf_ze.zeEventHostSynchronize)) {
        UMF_LOG_ERROR("this Level Zero loader cannot wait for queues or events");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    for (size_t i = 0; i < num_queues && result == ZE_RESULT_SUCCESS; i++) {
        result = umf_ze.zeCommandQueueSynchronize(queues[i], UINT64_MAX);
    }
    for (size_t i = 0; i < num_events && result == ZE_RESULT_SUCCESS; i++) {
        result = umf_ze.zeEventHostSynchronize(events[i], UINT64_MAX);
    }
    return umf_ze_result(result, "waiting for queued work");
}
