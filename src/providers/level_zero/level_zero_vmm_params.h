/* Parameters of the level_zero_vmm provider. */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_LEVEL_ZERO_VMM_PARAMS_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_LEVEL_ZERO_VMM_PARAMS_H

#include <umf/providers/provider_level_zero_vmm.h>

#include "ctl/params.h"
#include "providers/level_zero/machine.h"
#include "system/common.h"

#define UMF_PARAMS umf_ze_vmm_params
#define UMF_PARAMS_TABLE "providers/level_zero/level_zero_vmm_params.def"
typedef struct umf_level_zero_vmm_memory_provider_params_t {
    ze_context_handle_t context; /* NULL: the provider makes one for the device of `request` */
    ze_device_handle_t device;
    umf_ze_request_t request;
#include "ctl/params_members.h"
} umf_ze_vmm_params_t;
UMF_PARAMS_DECLARE(umf_ze_vmm_params)

#endif
