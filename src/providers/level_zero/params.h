/* Parameters of the Level Zero provider. */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_PARAMS_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_PARAMS_H

#include <umf/plugin.h>
#include <umf/providers/provider_level_zero.h>

#include "ctl/params.h"
#include "providers/level_zero/machine.h"
#include "system/common.h"

/* Resident devices that a text can name. */
#define UMF_ZE_NUMBERS_MAX 64

/* A text has numbers where a program has handles; the provider makes its own context then. */
typedef struct umf_ze_numbers_t {
    bool are_meant;
    umf_ze_wish_t device;
    unsigned resident[UMF_ZE_NUMBERS_MAX];
    uint32_t resident_count;
} umf_ze_numbers_t;

typedef struct umf_level_zero_memory_provider_params_t {
    ze_context_handle_t context;
    ze_device_handle_t device;
    umf_usm_memory_type_t memory_type;
    const ze_device_handle_t *resident; /* the caller's, read when a provider is created */
    uint32_t resident_count;
    umf_level_zero_memory_provider_free_policy_t free_policy;
    uint32_t ordinal;
    char name[UMF_NAME_MAX];
    umf_ze_numbers_t numbers;
} umf_ze_params_t;

extern const umf_handle_kind_t umf_ze_params_kind;

extern const char umf_ze_default_name[];

/* Whether no device is there twice. */
bool umf_ze_devices_are_distinct(const ze_device_handle_t *devices, uint32_t count);

umf_result_t umf_ze_params_from_text(const char *text, void **params);
void umf_ze_params_destroy(void *params);

#endif
