/* Parameters of the CUDA provider. */
#ifndef UMF_SRC_PROVIDERS_CUDA_PARAMS_H
#define UMF_SRC_PROVIDERS_CUDA_PARAMS_H

#include <umf/plugin.h>
#include <umf/providers/provider_cuda.h>

#include "ctl/params.h"
#include "system/common.h"

#define UMF_PARAMS umf_cuda_params
#define UMF_PARAMS_TABLE "providers/cuda/cuda_params.def"
typedef struct umf_cuda_memory_provider_params_t {
    void *context;       /* CUcontext */
    bool context_is_set; /* by the user; if not, NULL means the device's primary context */
#include "ctl/params_members.h"
} umf_cuda_params_t;
UMF_PARAMS_DECLARE(umf_cuda_params)

#endif
