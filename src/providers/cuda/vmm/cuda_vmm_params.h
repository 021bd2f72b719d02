/* Parameters of the cuda_vmm provider. */
#ifndef UMF_SRC_PROVIDERS_CUDA_VMM_CUDA_VMM_PARAMS_H
#define UMF_SRC_PROVIDERS_CUDA_VMM_CUDA_VMM_PARAMS_H

#include <umf/providers/provider_cuda_vmm.h>

#include "ctl/params.h"
#include "system/common.h"

#define UMF_CUDA_VMM_PEERS 64

#define UMF_PARAMS umf_cuda_vmm_params
#define UMF_PARAMS_TABLE "providers/cuda/vmm/cuda_vmm_params.def"
typedef struct umf_cuda_vmm_memory_provider_params_t {
    void *context; /* CUcontext; NULL: the primary one */
    int peers[UMF_CUDA_VMM_PEERS];
    size_t peer_count;
#include "ctl/params_members.h"
} umf_cuda_vmm_params_t;
UMF_PARAMS_DECLARE(umf_cuda_vmm_params)

#endif
