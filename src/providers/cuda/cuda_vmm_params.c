/* Parameters of the cuda_vmm provider: the public functions, and the same settings as text. */
#include "providers/cuda/cuda_vmm_params.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ctl/field.h"
#include "providers/shared/name.h"

const char umf_cuda_vmm_default_name[] = "CUDA_VMM";
const umf_handle_kind_t umf_cuda_vmm_params_kind = {
    "an object of umfCUDAVmmMemoryProviderParamsCreate"};

static umf_result_t params_refuse(const char *why) {
    UMF_LOG_ERROR("%s", why);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsCreate(
    int device, umf_cuda_vmm_memory_provider_params_handle_t *hParams) {
    if (!hParams || device < 0) {
        return params_refuse(hParams ? "the device is negative" : "hParams is NULL");
    }
    umf_cuda_vmm_params_t *params = umf_params_new(sizeof(*params), &umf_cuda_vmm_params_kind);
    if (!params) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    params->device = device;
    params->host_node = -1;
    params->gpudirect_rdma = true;
    umf_name_copy(params->name, umf_cuda_vmm_default_name);
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t
umfCUDAVmmMemoryProviderParamsDestroy(umf_cuda_vmm_memory_provider_params_handle_t hParams) {
    return umf_params_delete(hParams, sizeof(*hParams), &umf_cuda_vmm_params_kind, __func__);
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetContext(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, void *hContext) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->context = hContext;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetHostNode(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, int node) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->host_node = node < 0 ? -1 : node;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetPeers(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, const int *devices, size_t count) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if ((count && !devices) || count > UMF_CUDA_VMM_PEERS) {
        return params_refuse("the devices are NULL, or there are more than 64");
    }
    for (size_t i = 0; i < count; i++) {
        if (devices[i] < 0) {
            return params_refuse("the number of a device is negative");
        }
    }
    if (count) {
        memcpy(hParams->peers, devices, count * sizeof(*devices));
    }
    hParams->peer_count = count;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetShare(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, umf_cuda_vmm_share_t share) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (share < UMF_CUDA_VMM_SHARE_NONE || share > UMF_CUDA_VMM_SHARE_FABRIC_ANYWHERE) {
        return params_refuse("the way to share is no umf_cuda_vmm_share_t");
    }
    hParams->share = share;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetFreePolicy(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, umf_cuda_vmm_free_policy_t policy) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (policy < UMF_CUDA_VMM_FREE_POLICY_WAIT || policy > UMF_CUDA_VMM_FREE_POLICY_IMMEDIATE) {
        return params_refuse("the free policy is no umf_cuda_vmm_free_policy_t");
    }
    hParams->free_policy = policy;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetPieceSize(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, size_t size) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (size == 0) {
        return params_refuse("a piece of 0 bytes");
    }
    hParams->piece_size = size;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetGPUDirectRDMA(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, int capable) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->gpudirect_rdma = capable != 0;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetPerThreadStream(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, int per_thread) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->per_thread_stream = per_thread != 0;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfCUDAVmmMemoryProviderParamsSetName(
    umf_cuda_vmm_memory_provider_params_handle_t hParams, const char *name) {
    if (!umf_handle_check(hParams, &umf_cuda_vmm_params_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!name) {
        return params_refuse("the name is NULL");
    }
    umf_name_copy(hParams->name, name);
    return UMF_RESULT_SUCCESS;
}

/* --- text ------------------------------------------------------------------------------------- */

static umf_result_t field_set_device(void *object, const void *value) {
    int device = *(const int *)value;
    if (device < 0) {
        return params_refuse("the device is negative");
    }
    ((umf_cuda_vmm_params_t *)object)->device = device;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t field_set_host_node(void *object, const void *value) {
    return umfCUDAVmmMemoryProviderParamsSetHostNode(object, *(const int *)value);
}

/* Numbers joined by '+'. */
static umf_result_t field_set_peers(void *object, const void *value) {
    const char *at = value;
    int peers[UMF_CUDA_VMM_PEERS];
    size_t count = 0;
    while (count < UMF_CUDA_VMM_PEERS) {
        char *end;
        long number = strtol(at, &end, 10);
        if (end == at || number < 0 || number > INT32_MAX || (*end && *end != '+')) {
            return params_refuse("peers are numbers joined by '+', such as 1+2");
        }
        peers[count++] = (int)number;
        if (!*end) {
            return umfCUDAVmmMemoryProviderParamsSetPeers(object, peers, count);
        }
        at = end + 1;
    }
    return params_refuse("more than 64 peers");
}

static umf_result_t field_set_share(void *object, const void *value) {
    return umfCUDAVmmMemoryProviderParamsSetShare(object, *(const umf_cuda_vmm_share_t *)value);
}

static umf_result_t field_set_free_policy(void *object, const void *value) {
    return umfCUDAVmmMemoryProviderParamsSetFreePolicy(object,
                                                       *(const umf_cuda_vmm_free_policy_t *)value);
}

static umf_result_t field_set_piece_size(void *object, const void *value) {
    return umfCUDAVmmMemoryProviderParamsSetPieceSize(object, *(const size_t *)value);
}

static umf_result_t field_set_gpudirect_rdma(void *object, const void *value) {
    return umfCUDAVmmMemoryProviderParamsSetGPUDirectRDMA(object, *(const bool *)value);
}

static umf_result_t field_set_per_thread_stream(void *object, const void *value) {
    return umfCUDAVmmMemoryProviderParamsSetPerThreadStream(object, *(const bool *)value);
}

static umf_result_t field_set_name(void *object, const void *value) {
    return umfCUDAVmmMemoryProviderParamsSetName(object, value);
}

static const umf_field_word_t share_words[] = {
    {"none", UMF_CUDA_VMM_SHARE_NONE},
    {"fd", UMF_CUDA_VMM_SHARE_FD},
    {"fabric", UMF_CUDA_VMM_SHARE_FABRIC},
    {"fabric_anywhere", UMF_CUDA_VMM_SHARE_FABRIC_ANYWHERE},
    {NULL, 0},
};

static const umf_field_word_t free_policy_words[] = {
    {"wait", UMF_CUDA_VMM_FREE_POLICY_WAIT},
    {"immediate", UMF_CUDA_VMM_FREE_POLICY_IMMEDIATE},
    {NULL, 0},
};

static const umf_field_t cuda_vmm_field_list[] = {
    {.path = "params.device",
     .type = UMF_FIELD_INT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_device,
     .help = "number of the GPU; default 0"},
    {.path = "params.host_node",
     .type = UMF_FIELD_INT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_host_node,
     .help = "NUMA node of the host to take memory from; default -1: memory of the device"},
    {.path = "params.peers",
     .type = UMF_FIELD_TEXT,
     .access = UMF_FIELD_CREATE,
     .set = field_set_peers,
     .help = "other GPUs that may access the memory, joined by '+', such as 1+2; default none"},
    {.path = "params.share",
     .type = UMF_FIELD_ENUM,
     .access = UMF_FIELD_CREATE,
     .words = share_words,
     .set = field_set_share,
     .help = "how other processes can get at the memory; default none"},
    {.path = "params.free_policy",
     .type = UMF_FIELD_ENUM,
     .access = UMF_FIELD_CREATE,
     .words = free_policy_words,
     .set = field_set_free_policy,
     .help = "whether memory is given back after queued work (wait) or at once; default wait"},
    {.path = "params.piece_size",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_CREATE,
     .set = field_set_piece_size,
     .help = "smallest piece of memory that comes and goes, in bytes; default: the granularity"},
    {.path = "params.gpudirect_rdma",
     .type = UMF_FIELD_BOOL,
     .access = UMF_FIELD_CREATE,
     .set = field_set_gpudirect_rdma,
     .help = "network cards can reach the memory, if the device has that; default true"},
    {.path = "params.per_thread_stream",
     .type = UMF_FIELD_BOOL,
     .access = UMF_FIELD_CREATE,
     .set = field_set_per_thread_stream,
     .help = "the default stream is that of the calling thread; default false"},
    {.path = "params.name",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = field_set_name,
     .help = "name of the provider; default CUDA_VMM"},
};
static const umf_fields_t cuda_vmm_fields = UMF_FIELDS(cuda_vmm_field_list);

static umf_result_t params_create(void **params) {
    umf_cuda_vmm_params_t *made;
    umf_result_t result = umfCUDAVmmMemoryProviderParamsCreate(0, &made);
    if (result == UMF_RESULT_SUCCESS) {
        *params = made;
    }
    return result;
}

void umf_cuda_vmm_params_destroy(void *params) {
    umfCUDAVmmMemoryProviderParamsDestroy(params);
}

umf_result_t umf_cuda_vmm_params_from_text(const char *text, void **params) {
    return umf_params_from_text(&cuda_vmm_fields, params_create, umf_cuda_vmm_params_destroy, text,
                                params);
}
