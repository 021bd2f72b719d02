/* Parameters of the cuda_vmm provider: what their table does not say. */
#include "providers/cuda/vmm/cuda_vmm_params.h"

#include <string.h>

#include "base/log.h"

static const umf_field_word_t params_shares[] = {
    {"none", UMF_CUDA_VMM_SHARE_NONE},
    {"fd", UMF_CUDA_VMM_SHARE_FD},
    {"fabric", UMF_CUDA_VMM_SHARE_FABRIC},
    {"fabric_anywhere", UMF_CUDA_VMM_SHARE_FABRIC_ANYWHERE},
    {NULL, 0},
};

static const umf_field_word_t params_free_policies[] = {
    {"wait", UMF_CUDA_VMM_FREE_POLICY_WAIT},
    {"immediate", UMF_CUDA_VMM_FREE_POLICY_IMMEDIATE},
    {NULL, 0},
};

static umf_result_t params_set_peers(umf_cuda_vmm_params_t *params, const int *devices,
                                     size_t count) {
    if ((count && !devices) || count > UMF_CUDA_VMM_PEERS) {
        UMF_LOG_ERROR("the devices are NULL, or there are more than %d", UMF_CUDA_VMM_PEERS);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    for (size_t i = 0; i < count; i++) {
        if (devices[i] < 0) {
            UMF_LOG_ERROR("device %d is negative", devices[i]);
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        params->peers[i] = devices[i];
    }
    params->peer_count = count;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t params_parse_peers(void *object, const void *value) {
    unsigned numbers[UMF_CUDA_VMM_PEERS];
    int peers[UMF_CUDA_VMM_PEERS];
    size_t count;
    if (!umf_params_parse_numbers(value, "+", numbers, UMF_CUDA_VMM_PEERS, &count) || count == 0) {
        UMF_LOG_ERROR("peers are up to %d numbers joined by '+', such as 1+2", UMF_CUDA_VMM_PEERS);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memcpy(peers, numbers, sizeof(peers));
    return params_set_peers(object, peers, count);
}

#include "ctl/params_define.h"

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsCreate(
    int device, umf_cuda_vmm_memory_provider_params_handle_t *hParams) {
    void *made;
    umf_result_t result = umf_params_create(&umf_cuda_vmm_params_kind, &made);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_params_set(&umf_cuda_vmm_params_kind, made, "device", &device, __func__);
    }
    return umf_params_give(&umf_cuda_vmm_params_kind, made, result, hParams, __func__);
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetContext(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, void *hContext) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind.handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->context = hContext;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetPeers(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, const int *devices, size_t count) {
    return umf_handle_check(hParams, &umf_cuda_vmm_params_kind.handle, __func__)
               ? params_set_peers(hParams, devices, count)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
