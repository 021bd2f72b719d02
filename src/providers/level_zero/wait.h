/*
 * Waiting for all work that was queued on a device, where the driver can.
 *
 * The specification knows no such wait. Queues, immediate lists, fences and events are waited for
 * one by one, and only the program knows them; barriers order what is in one queue; zeMemFreeExt
 * waits for the memory that it frees, which is never virtual memory; zeVirtualMemUnmap and
 * zePhysicalMemDestroy wait for nothing. But Intel's drivers have zeDeviceSynchronize among their
 * extension functions: it returns when all submissions in all queues of the device are done.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_WAIT_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_WAIT_H

#include "providers/level_zero/machine.h"

typedef struct umf_ze_wait_t {
    ze_result_t(ZE_APICALL *synchronize)(ze_device_handle_t device); /* NULL: it cannot wait */
    uint32_t count;
    ze_device_handle_t devices[UMF_ZE_DEVICES_MAX]; /* as the driver knows them */
} umf_ze_wait_t;

/* For work on memory of `device`: by itself, and by those devices of its driver that reach it.
 * Fails only as the driver does; that it cannot wait is no failure. */
umf_result_t umf_ze_wait_init(const umf_ze_driver_t *driver, ze_device_handle_t device,
                              umf_ze_wait_t *wait);

ze_result_t umf_ze_wait_all(const umf_ze_wait_t *wait);

#endif
