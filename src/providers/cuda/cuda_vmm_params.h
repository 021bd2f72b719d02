/* Parameters of the cuda_vmm provider. */
#ifndef UMF_SRC_PROVIDERS_CUDA_CUDA_VMM_PARAMS_H
#define UMF_SRC_PROVIDERS_CUDA_CUDA_VMM_PARAMS_H

#include <umf/providers/provider_cuda_vmm.h>

#include "ctl/params.h"
#include "system/common.h"

#define UMF_CUDA_VMM_PEERS 64

typedef struct umf_cuda_vmm_memory_provider_params_t {
    int device;
    void *context; /* CUcontext; NULL: the primary one */
    int host_node; /* -1: memory of the device */
    int peers[UMF_CUDA_VMM_PEERS];
    size_t peer_count;
    umf_cuda_vmm_share_t share;
    umf_cuda_vmm_free_policy_t free_policy;
    size_t piece_size;
    bool gpudirect_rdma;    /* where the device has it */
    bool per_thread_stream; /* the default stream is that of the calling thread */
    char name[UMF_NAME_MAX];
} umf_cuda_vmm_params_t;

extern const umf_handle_kind_t umf_cuda_vmm_params_kind;

extern const char umf_cuda_vmm_default_name[];

umf_result_t umf_cuda_vmm_params_from_text(const char *text, void **params);
void umf_cuda_vmm_params_destroy(void *params);

#endif
