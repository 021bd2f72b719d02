/*
 * Waiting for all work that was queued on a device, where the driver can.
 *
 * The specification has no such wait. A program waits for queues, immediate lists, fences and
 * events one by one, and only the program has all of them. Barriers order the work of one queue.
 * zeMemFreeExt waits for the memory that it frees, which is never virtual memory. zeVirtualMemUnmap
 * and zePhysicalMemDestroy do not wait. But Intel's drivers have zeDeviceSynchronize among their
 * extension functions: it returns when all submissions in all queues of the device have ended.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_WAIT_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_WAIT_H

#include "providers/level_zero/machine.h"

typedef struct umf_ze_wait_t {
    ze_result_t(ZE_APICALL *synchronize)(ze_device_handle_t device); /* NULL: it cannot wait */
    uint32_t count;
    ze_device_handle_t devices[UMF_ZE_DEVICES_MAX]; /* the driver's own handles */
} umf_ze_wait_t;

/* Prepares waits for work on memory of `device`: work of that device, and of the devices of its
 * driver that reach it. Fails only if a call of the driver does; a driver that cannot wait is no
 * failure. */
umf_result_t umf_ze_wait_init(ze_device_handle_t device, umf_ze_wait_t *wait);

ze_result_t umf_ze_wait_all(const umf_ze_wait_t *wait);

/* Waits for command queues and events. NOT_SUPPORTED: the loader has no functions for that. */
umf_result_t umf_ze_wait_for(void *const *queues, size_t num_queues, void *const *events,
                             size_t num_events);

#endif
