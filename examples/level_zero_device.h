/*
 * The start of every program that uses Level Zero: a driver, a device, a context, and a list whose
 * commands have ended when they return. Nothing here is about libumf.
 */
#ifndef LEVEL_ZERO_DEVICE_H
#define LEVEL_ZERO_DEVICE_H

#include <stdio.h>

#include <level_zero/ze_api.h>

typedef struct gpu_t {
    ze_device_handle_t device;
    ze_context_handle_t context;
    ze_command_list_handle_t list;
} gpu_t;

#define TRY_ZE(call)                                                                               \
    do {                                                                                           \
        ze_result_t ze_result = (call);                                                            \
        if (ze_result != ZE_RESULT_SUCCESS) {                                                      \
            fprintf(stderr, "%s failed: 0x%x\n", #call, (unsigned)ze_result);                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* The first device of the first driver; 77 if there is none. */
static inline int gpu_open(gpu_t *gpu) {
    ze_driver_handle_t driver;
    uint32_t drivers = 1, devices = 1;
    if (zeInit(0) != ZE_RESULT_SUCCESS || zeDriverGet(&drivers, &driver) != ZE_RESULT_SUCCESS ||
        drivers == 0 || zeDeviceGet(driver, &devices, &gpu->device) != ZE_RESULT_SUCCESS ||
        devices == 0) {
        fprintf(stderr, "there is no device with a Level Zero driver\n");
        return 77;
    }
    ze_context_desc_t context = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    TRY_ZE(zeContextCreate(driver, &context, &gpu->context));
    ze_command_queue_desc_t queue = {
        .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
        .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
    };
    TRY_ZE(zeCommandListCreateImmediate(gpu->context, gpu->device, &queue, &gpu->list));
    return 0;
}

/* Called after everything in the context is destroyed. */
static inline int gpu_close(const gpu_t *gpu) {
    TRY_ZE(zeCommandListDestroy(gpu->list));
    TRY_ZE(zeContextDestroy(gpu->context));
    return 0;
}

#endif
