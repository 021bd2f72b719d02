/* Interfaces between the files of the cuda_vmm provider. */
#ifndef UMF_SRC_PROVIDERS_CUDA_VMM_CUDA_VMM_OWN_H
#define UMF_SRC_PROVIDERS_CUDA_VMM_CUDA_VMM_OWN_H

#include "providers/cuda/vmm/cuda_vmm_params.h"
#include "providers/cuda/wait.h"
#include "providers/vmm/ops.h"

typedef struct umf_cuda_vmm_t {
    union {
        umf_vmm_t vmm;
        umf_cuda_context_t context; /* in the head of vmm */
    };
    umf_cuda_vmm_share_t share; /* Immutable after create, as all members without a note */
    umf_cuda_vmm_free_policy_t free_policy;
    CUmemAllocationProp properties;
    CUmemAccessDesc access[UMF_CUDA_VMM_PEERS + 2];
    char name[UMF_NAME_MAX];
} umf_cuda_vmm_t;
UMF_VMM_FIRST(umf_cuda_vmm_t);
UMF_VMM_HEAD_FITS(umf_cuda_context_t);
UMF_CUDA_CONTEXT_FIRST(umf_cuda_vmm_t);

/* cuda_vmm_backend.c */

/* The back end for that way of sharing, or for none. */
const umf_vmm_backend_t *umf_cuda_vmm_choose_backend(umf_cuda_vmm_share_t share);
CUmemAllocationHandleType umf_cuda_vmm_handle_type(umf_cuda_vmm_share_t share);
/* Whether memory can be shared in the way that the parameters request. Logs if not. */
umf_result_t umf_cuda_vmm_try_share(umf_cuda_vmm_t *cuda, size_t granularity);

/* Operation vm_device of umf_memory_provider_ext_ops_t. */
umf_result_t umf_cuda_vmm_device(void *provider, unsigned char id[16], int *number);

/* cuda_vmm_peer.c: operations of umf_memory_provider_ext_ops_t */
umf_result_t umf_cuda_vmm_host_node(void *provider, unsigned *node);
umf_result_t umf_cuda_vmm_peer_alloc(void *provider, int device, size_t size, void **ptr);
umf_result_t umf_cuda_vmm_peer_free(void *provider, void *ptr, size_t size);

#endif
