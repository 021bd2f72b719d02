/*
 * The devices of this machine that have a Level Zero driver, found by number, and what can be asked
 * about them. Numbers count the devices of all drivers, in the order the loader tells them.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_MACHINE_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_MACHINE_H

#include "providers/level_zero_driver.h"

typedef struct umf_ze_place_t {
    ze_driver_handle_t owner;
    ze_device_handle_t device;
} umf_ze_place_t;

/*
 * The device with that number. INVALID_ARGUMENT: there are fewer; DEPENDENCY_UNAVAILABLE: there is
 * no driver, or the loader cannot tell; or what the driver answered.
 */
umf_result_t umf_ze_find_device(const umf_ze_driver_t *driver, unsigned number,
                                umf_ze_place_t *place);

/* Makes a context on a driver. */
umf_result_t umf_ze_make_context(const umf_ze_driver_t *driver, ze_driver_handle_t owner,
                                 ze_context_handle_t *context);

/* Cache line size of the device (NULL: of any) by the driver's extension; 128 where there is none.
 */
umf_result_t umf_ze_cache_line_size(const umf_ze_driver_t *driver, ze_device_handle_t device,
                                    size_t *size);

/* Whether there is a loader, a driver and a device; for a descriptor's probe. */
umf_result_t umf_ze_probe(char *why, size_t why_size);

#endif
