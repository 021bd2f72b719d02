/* Parameters of the level_zero_vmm provider. */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_LEVEL_ZERO_VMM_PARAMS_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_LEVEL_ZERO_VMM_PARAMS_H

#include <umf/providers/provider_level_zero_vmm.h>

#include "ctl/params.h"
#include "providers/level_zero/machine.h"
#include "system/common.h"

typedef struct umf_level_zero_vmm_memory_provider_params_t {
    ze_context_handle_t context; /* NULL: the provider makes one, for the device of `wish` */
    ze_device_handle_t device;
    umf_ze_wish_t wish;
    umf_level_zero_vmm_free_policy_t free_policy;
    size_t piece_size;
    char name[UMF_NAME_MAX];
} umf_ze_vmm_params_t;

extern const umf_handle_kind_t umf_ze_vmm_params_kind;

extern const char umf_ze_vmm_default_name[];

umf_result_t umf_ze_vmm_params_from_text(const char *text, void **params);
void umf_ze_vmm_params_destroy(void *params);

#endif
