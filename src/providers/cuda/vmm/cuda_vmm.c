/* Cuda_vmm provider: virtual memory of the CUDA driver. See vmm/vmm.h. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "providers/cuda/copy.h"
#include "providers/cuda/vmm/cuda_vmm_own.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"

/* --- creation --------------------------------------------------------------------------------- */

/* The name of a required function that the driver lacks. NULL: it has all. */
static const char *driver_lacks(const umf_cuda_driver_t *driver) {
#define NEEDS(function)                                                                            \
    if (!driver->function) {                                                                       \
        return #function;                                                                          \
    }
    NEEDS(cuDeviceGetAttribute)
    NEEDS(cuMemAddressReserve)
    NEEDS(cuMemAddressFree)
    NEEDS(cuMemCreate)
    NEEDS(cuMemRelease)
    NEEDS(cuMemMap)
    NEEDS(cuMemUnmap)
    NEEDS(cuMemSetAccess)
    NEEDS(cuMemcpyAsync)
    NEEDS(cuMemsetD8Async)
    NEEDS(cuStreamCreate)
    NEEDS(cuStreamDestroy)
    NEEDS(cuStreamSynchronize)
    NEEDS(cuEventSynchronize)
    NEEDS(cuCtxSynchronize)
#undef NEEDS
    return NULL;
}

static const umf_cuda_driver_t *cuda_vmm_driver(char *why, size_t why_size) {
    const umf_cuda_driver_t *driver = umf_cuda_driver(why, why_size);
    const char *function = driver ? driver_lacks(driver) : NULL;
    if (function) {
        snprintf(why, why_size,
                 "this CUDA driver is too old for virtual memory, it has no %s: install a newer "
                 "one, or use the provider \"cuda\"",
                 function);
        return NULL;
    }
    return driver;
}

static void cuda_vmm_describe(umf_cuda_vmm_t *cuda, const umf_cuda_vmm_params_t *requested) {
    CUmemAllocationProp *properties = &cuda->properties;
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location =
        (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = requested->device};
    properties->requestedHandleTypes = umf_cuda_vmm_handle_type(requested->share);
    cuda->access[cuda->context.access_count++] = (CUmemAccessDesc){
        .location = properties->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (size_t i = 0; i < requested->peer_count; i++) {
        cuda->access[cuda->context.access_count++] = (CUmemAccessDesc){
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = requested->peers[i]},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
    if (cuda->context.memory_type == UMF_MEMORY_TYPE_HOST) {
        properties->location =
            (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = requested->host_node};
        cuda->access[cuda->context.access_count++] = (CUmemAccessDesc){
            .location = properties->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
}

static umf_result_t cuda_vmm_check_device(const umf_cuda_vmm_t *cuda) {
    int can = 0;
    umf_result_t result = umf_cuda_result(
        cuda->context.driver->cuDeviceGetAttribute(
            &can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, cuda->context.device),
        "asking the device for virtual memory");
    if (result == UMF_RESULT_SUCCESS && !can) {
        UMF_LOG_ERROR("device %d has no virtual memory: use the provider \"cuda\"",
                      cuda->context.device);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return result;
}

/* A device that cannot answer counts as one without RDMA. */
static void cuda_vmm_ask_rdma(umf_cuda_vmm_t *cuda) {
    int can = 0;
    CUresult result = cuda->context.driver->cuDeviceGetAttribute(
        &can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, cuda->context.device);
    cuda->properties.allocFlags.gpuDirectRDMACapable = result == CUDA_SUCCESS && can;
}

static umf_result_t cuda_vmm_start(umf_cuda_vmm_t *cuda, const umf_cuda_vmm_params_t *requested) {
    umf_result_t result =
        umf_cuda_context_take(&cuda->context, requested->context, requested->device);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    size_t granularity = 0;
    result = cuda_vmm_check_device(cuda);
    if (result == UMF_RESULT_SUCCESS) {
        if (requested->gpudirect_rdma && cuda->context.memory_type == UMF_MEMORY_TYPE_DEVICE) {
            cuda_vmm_ask_rdma(cuda);
        }
        result = umf_cuda_result(
            cuda->context.driver->cuMemGetAllocationGranularity(
                &granularity, &cuda->properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            "asking for the allocation granularity");
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_cuda_vmm_try_share(cuda, granularity);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_vmm_init(&cuda->vmm, umf_cuda_vmm_choose_backend(cuda->share), granularity,
                              requested->piece_size);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_cuda_context_drop(&cuda->context);
    }
    return result;
}

/* 32 digits, as nvidia-smi prints them: "GPU-" in front, or not, and hyphens between. */
static bool uuid_parse(const char *text, unsigned char id[16]) {
    unsigned digits = 0;
    text += strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0 ? 4 : 0;
    for (; *text; text++) {
        const char *all = "0123456789abcdef", *digit = strchr(all, tolower((unsigned char)*text));
        if (*text == '-') {
            continue;
        }
        if (!digit || digits == 32) {
            return false;
        }
        id[digits / 2] = (unsigned char)(id[digits / 2] << 4 | (digit - all));
        digits++;
    }
    return digits == 32;
}

static umf_result_t device_by_uuid(const umf_cuda_driver_t *driver, const char *text, int *device) {
    unsigned char id[16] = {0};
    int count = 0;
    CUuuid uuid;
    if (!uuid_parse(text, id)) {
        UMF_LOG_ERROR("'%s' is no UUID of a GPU: nvidia-smi -L prints them", text);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!driver->cuInit || !driver->cuDeviceGetCount || !driver->cuDeviceGetUuid) {
        UMF_LOG_ERROR("this CUDA driver is too old to find a device by its UUID: use its number");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    CUresult result = driver->cuInit(0);
    result = result == CUDA_SUCCESS ? driver->cuDeviceGetCount(&count) : result;
    for (int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = driver->cuDeviceGetUuid(&uuid, i);
        if (result == CUDA_SUCCESS && memcmp(&uuid, id, sizeof(id)) == 0) {
            *device = i;
            return UMF_RESULT_SUCCESS;
        }
    }
    if (result != CUDA_SUCCESS) {
        return umf_cuda_result(result, "looking for a device");
    }
    return UMF_FAIL(UMF_REASON_ABSENT, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                    "no device of the %d of this process is %s; CUDA_VISIBLE_DEVICES may hide it",
                    count, text);
}

static umf_result_t cuda_vmm_init(umf_cuda_vmm_t *cuda, const umf_cuda_vmm_params_t *given) {
    if (!umf_handle_check(given, &umf_cuda_vmm_params_kind.handle, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_cuda_vmm_params_t chosen = *given;
    const umf_cuda_vmm_params_t *requested = &chosen;
    char why[256];
    const umf_cuda_driver_t *driver = cuda_vmm_driver(why, sizeof(why));
    if (!driver) {
        UMF_LOG_ERROR("%s", why);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    umf_result_t result =
        chosen.uuid[0] ? device_by_uuid(driver, chosen.uuid, &chosen.device) : UMF_RESULT_SUCCESS;
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    cuda->context.driver = requested->per_thread_stream ? umf_cuda_driver_per_thread() : driver;
    cuda->share = requested->share;
    cuda->free_policy = requested->free_policy;
    cuda->context.memory_type =
        requested->host_node >= 0 ? UMF_MEMORY_TYPE_HOST : UMF_MEMORY_TYPE_DEVICE;
    cuda->context.access = cuda->access;
    umf_name_copy(cuda->name, requested->name);
    cuda_vmm_describe(cuda, requested);
    return cuda_vmm_start(cuda, requested);
}

UMF_PROVIDER_INITIALIZE(cuda_vmm, umf_cuda_vmm_t)

static umf_result_t cuda_vmm_finalize(void *provider) {
    umf_cuda_vmm_t *cuda = provider;
    umf_vmm_fini(&cuda->vmm);
    umf_cuda_context_drop(&cuda->context);
    umf_meta_free(cuda, sizeof(*cuda));
    return UMF_RESULT_SUCCESS;
}

/* --- operations ------------------------------------------------------------------------------- */

UMF_PROVIDER_GET_NAME(cuda_vmm, umf_cuda_vmm_t, umf_cuda_vmm_params)

static const umf_memory_provider_ops_t cuda_vmm_ops = {
    UMF_PROVIDER_OPS(cuda_vmm),
    UMF_VMM_OPS,
    .get_name = cuda_vmm_get_name,
    UMF_CUDA_OPS,
};

static const umf_memory_provider_ext_ops_t cuda_vmm_ext_ops = {
    .struct_size = sizeof(cuda_vmm_ext_ops),
    UMF_VMM_EXT_OPS,
    UMF_VMM_RANGE_OPS,
    UMF_VMM_MARK_OPS,
    .ipc_flags = UMF_IPC_FLAG_REPEATABLE | UMF_IPC_FLAG_ANY_MACHINE,
    UMF_CUDA_EXT_OPS,
    .host_node = umf_cuda_vmm_host_node,
    .peer_alloc = umf_cuda_vmm_peer_alloc,
    .peer_free = umf_cuda_vmm_peer_free,
    .vm_give = umf_vmm_give,
    .vm_take = umf_vmm_take,
    .vm_device = umf_cuda_vmm_device,
    .vm_show = umf_vmm_show,
    .vm_hide = umf_vmm_hide,
    .vm_share = umf_vmm_share,
    .vm_drop = umf_vmm_drop,
};

UMF_API_EXT_1 const umf_memory_provider_ops_t *umfCUDAVmmMemoryProviderOps(void) {
    return &cuda_vmm_ops;
}

static umf_result_t cuda_vmm_probe(char *why, size_t why_size) {
    return cuda_vmm_driver(why, why_size) ? umf_cuda_probe(why, why_size)
                                          : UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
}

UMF_PROVIDER_DESCRIPTOR(cuda_vmm, umf_cuda_vmm_params, .ops = &cuda_vmm_ops,
                        .ext = &cuda_vmm_ext_ops, .probe = cuda_vmm_probe);
