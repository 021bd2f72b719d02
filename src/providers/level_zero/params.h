/* Parameters of the Level Zero provider. */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_PARAMS_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_PARAMS_H

#include <umf/plugin.h>
#include <umf/providers/provider_level_zero.h>

#include "ctl/params.h"
#include "providers/level_zero/machine.h"
#include "system/common.h"

/* The number of resident devices that a text can name. */
#define UMF_ZE_NUMBERS_MAX 64

/* A text names devices by numbers instead of handles. The provider then makes its own context. */
typedef struct umf_ze_numbers_t {
    bool are_meant;
    umf_ze_request_t device;
    unsigned resident[UMF_ZE_NUMBERS_MAX];
    uint32_t resident_count;
} umf_ze_numbers_t;

#define UMF_PARAMS umf_ze_params
#define UMF_PARAMS_TABLE "providers/level_zero/level_zero_params.def"
typedef struct umf_level_zero_memory_provider_params_t {
    ze_context_handle_t context;
    ze_device_handle_t device;
    const ze_device_handle_t *resident; /* the caller's array, read when a provider is created */
    uint32_t resident_count;
    umf_ze_numbers_t numbers;
#include "ctl/params_members.h"
} umf_ze_params_t;
UMF_PARAMS_DECLARE(umf_ze_params)

/* Whether no device is listed twice. */
bool umf_ze_devices_are_distinct(const ze_device_handle_t *devices, uint32_t count);

#endif
