/*
 * CUDA provider: pinned host memory, device memory and managed memory. Each allocation is one call
 * of the driver. Every call runs in the provider's context and restores the caller's.
 */
#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "ctl/field.h"
#include "ds/hash.h"
#include "providers/cuda/copy.h"
#include "providers/cuda/own.h"
#include "providers/cuda/params.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"
#include "providers/shared/table.h"

typedef struct cuda_provider_t {
    umf_cuda_context_t context; /* Immutable after create, as all members without a note */
    unsigned flags;
    size_t min_page_size, recommended_page_size;
    char name[UMF_NAME_MAX];
    umf_stats_t stats; /* requested sizes */
    umf_lock_t lock;   /* UMF_RANK_PROVIDER */
    umf_hash_t sizes;  /* cuda_entry by address. Sync: lock */
} cuda_provider_t;
UMF_CUDA_CONTEXT_FIRST(cuda_provider_t);

/* --- creation --------------------------------------------------------------------------------- */

static umf_result_t cuda_check_params(const umf_cuda_params_t *params) {
    if (!umf_handle_check(params, &umf_cuda_params_kind.handle, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->memory_type <= UMF_MEMORY_TYPE_UNKNOWN ||
        params->memory_type > UMF_MEMORY_TYPE_SHARED) {
        UMF_LOG_ERROR("memory type %d is none of host, device and shared: set it with "
                      "umfCUDAMemoryProviderParamsSetMemoryType",
                      (int)params->memory_type);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->device < 0) {
        UMF_LOG_ERROR("device %d: there is no current context to take it from; set it with "
                      "umfCUDAMemoryProviderParamsSetDevice",
                      params->device);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!params->context && params->context_is_set) {
        UMF_LOG_ERROR("the context is NULL: set one, or none for the primary context of device %d",
                      params->device);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t cuda_read_page_sizes(cuda_provider_t *cuda) {
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->context.device},
    };
    CUresult result = cuda->context.driver->cuMemGetAllocationGranularity(
        &cuda->min_page_size, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS) {
        result = cuda->context.driver->cuMemGetAllocationGranularity(
            &cuda->recommended_page_size, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    }
    return umf_cuda_result(result, "asking for the allocation granularity");
}

static umf_result_t cuda_init(cuda_provider_t *cuda, const umf_cuda_params_t *requested) {
    umf_result_t result = cuda_check_params(requested);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    char why[256];
    const umf_cuda_driver_t *driver = umf_cuda_driver(why, sizeof(why));
    if (!driver) {
        UMF_LOG_ERROR("%s", why);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    cuda->context.driver = driver;
    cuda->context.memory_type = requested->memory_type;
    cuda->flags = requested->alloc_flags;
    umf_name_copy(cuda->name, requested->name);
    result = umf_cuda_context_take(&cuda->context, requested->context, requested->device);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = cuda_read_page_sizes(cuda);
    if (result != UMF_RESULT_SUCCESS) {
        umf_cuda_context_drop(&cuda->context);
        return result;
    }
    umf_lock_init(&cuda->lock, UMF_RANK_PROVIDER);
    return UMF_RESULT_SUCCESS;
}

UMF_PROVIDER_INITIALIZE(cuda, cuda_provider_t)

static umf_result_t cuda_finalize(void *provider) {
    cuda_provider_t *cuda = provider;
    umf_cuda_context_drop(&cuda->context);
    umf_lock_destroy(&cuda->lock);
    umf_hash_fini(&cuda->sizes);
    umf_meta_free(cuda, sizeof(*cuda));
    return UMF_RESULT_SUCCESS;
}

/* --- allocation ------------------------------------------------------------------------------- */

static CUresult cuda_call_alloc(const cuda_provider_t *cuda, size_t size, void **ptr) {
    CUdeviceptr address = 0;
    CUresult result;
    switch (cuda->context.memory_type) {
    case UMF_MEMORY_TYPE_HOST:
        return cuda->context.driver->cuMemHostAlloc(ptr, size, cuda->flags);
    case UMF_MEMORY_TYPE_DEVICE:
        result = cuda->context.driver->cuMemAlloc(&address, size);
        break;
    default:
        result = cuda->context.driver->cuMemAllocManaged(
            &address, size, cuda->flags ? cuda->flags : (unsigned)CU_MEM_ATTACH_GLOBAL);
    }
    if (result == CUDA_SUCCESS) {
        *ptr = (void *)(uintptr_t)address;
    }
    return result;
}

static CUresult cuda_call_free(const cuda_provider_t *cuda, void *ptr) {
    return cuda->context.memory_type == UMF_MEMORY_TYPE_HOST
               ? cuda->context.driver->cuMemFreeHost(ptr)
               : cuda->context.driver->cuMemFree((CUdeviceptr)(uintptr_t)ptr);
}

/* The entry of an allocation: a size of 0 must not be NULL. */
static void *cuda_entry(size_t size) {
    return (void *)(uintptr_t)(size + 1);
}

static umf_result_t cuda_keep(cuda_provider_t *cuda, void *made, size_t size, size_t alignment) {
    if (alignment && (uintptr_t)made % alignment != 0) {
        UMF_LOG_ERROR("the driver gave %p, which is not aligned to %zu", made, alignment);
        return UMF_RESULT_ERROR_INVALID_ALIGNMENT;
    }
    if (!umf_table_put(&cuda->lock, &cuda->sizes, made, cuda_entry(size))) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t cuda_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    cuda_provider_t *cuda = provider;
    if (alignment > cuda->min_page_size) {
        UMF_LOG_ERROR("alignment %zu is above the driver's granularity of %zu", alignment,
                      cuda->min_page_size);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_cuda_scope_t scope;
    void *made = NULL;
    umf_result_t kept = UMF_RESULT_SUCCESS;
    CUresult result = umf_cuda_enter(&cuda->context, &scope);
    if (result == CUDA_SUCCESS) {
        result = cuda_call_alloc(cuda, size, &made);
    }
    if (result == CUDA_SUCCESS) {
        kept = cuda_keep(cuda, made, size, alignment);
    }
    if (kept != UMF_RESULT_SUCCESS) {
        cuda_call_free(cuda, made);
    }
    result = umf_cuda_leave(&scope, result);
    if (result != CUDA_SUCCESS || kept != UMF_RESULT_SUCCESS) {
        return result != CUDA_SUCCESS ? umf_cuda_result(result, "allocating memory") : kept;
    }
    umf_stats_add(&cuda->stats, size);
    *ptr = made;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t cuda_free(void *provider, void *ptr, size_t size) {
    cuda_provider_t *cuda = provider;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    void *entry = umf_table_take(&cuda->lock, &cuda->sizes, ptr);
    if (!entry) {
        UMF_LOG_ERROR("%p is not an allocation of this provider, or freed already", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    (void)size;
    size_t requested = (uintptr_t)entry - 1;
    if (umf_cuda_own_retire(ptr)) {
        umf_stats_sub(&cuda->stats, requested);
        return UMF_RESULT_SUCCESS;
    }
    umf_cuda_scope_t scope;
    CUresult result = umf_cuda_enter(&cuda->context, &scope);
    if (result == CUDA_SUCCESS) {
        result = umf_cuda_leave(&scope, cuda_call_free(cuda, ptr));
    }
    umf_result_t logged = umf_cuda_given_back(result, "freeing memory");
    if (logged != UMF_RESULT_SUCCESS) {
        umf_table_put(&cuda->lock, &cuda->sizes, ptr, entry);
        return logged;
    }
    umf_stats_sub(&cuda->stats, requested);
    return UMF_RESULT_SUCCESS;
}

/* --- facts ------------------------------------------------------------------------------------ */

static umf_result_t cuda_get_min_page_size(void *provider, const void *ptr, size_t *page_size) {
    (void)ptr;
    *page_size = ((cuda_provider_t *)provider)->min_page_size;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t cuda_get_recommended_page_size(void *provider, size_t size, size_t *page_size) {
    (void)size;
    *page_size = ((cuda_provider_t *)provider)->recommended_page_size;
    return UMF_RESULT_SUCCESS;
}

UMF_PROVIDER_GET_NAME(cuda, cuda_provider_t, umf_cuda_params)

static umf_result_t cuda_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                             void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    (void)source;
    return umf_stats_ctl(&((cuda_provider_t *)provider)->stats, name, arg, size, type, args);
}

/* --- IPC: the driver's own handles ------------------------------------------------------------ */

static umf_result_t cuda_get_ipc_handle_size(void *provider, size_t *size) {
    (void)provider;
    *size = sizeof(CUipcMemHandle);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t cuda_get_ipc_handle(void *provider, const void *ptr, size_t size, void *data) {
    const cuda_provider_t *cuda = provider;
    (void)size;
    CUipcMemHandle handle;
    CUresult made;
    UMF_CUDA_CALL(&cuda->context, made, cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)ptr));
    umf_result_t result = umf_cuda_result(made, "getting an IPC handle");
    if (result == UMF_RESULT_SUCCESS) {
        memcpy(data, &handle, sizeof(handle));
        umf_cuda_own_add(&handle, (void *)(uintptr_t)ptr, &cuda->context);
    }
    return result;
}

/* Nothing to release: the driver keeps nothing for a handle. */
static umf_result_t cuda_put_ipc_handle(void *provider, void *data) {
    (void)provider, (void)data;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t cuda_open_ipc_handle(void *provider, void *data, void **ptr) {
    const cuda_provider_t *cuda = provider;
    CUipcMemHandle handle;
    memcpy(&handle, data, sizeof(handle));
    void *own = umf_cuda_own_open(&handle);
    if (own) {
        *ptr = own;
        return UMF_RESULT_SUCCESS;
    }
    CUdeviceptr address = 0;
    CUresult result;
    UMF_CUDA_CALL(&cuda->context, result,
                  cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (result == CUDA_SUCCESS) {
        *ptr = (void *)(uintptr_t)address;
    }
    return umf_cuda_result(result, "opening an IPC handle");
}

/* Frees memory, in its own context, that its producer freed while it was open in this process. */
static umf_result_t cuda_free_late(const umf_cuda_context_t *context, void *ptr) {
    CUresult result;
    UMF_CUDA_CALL(context, result, cuMemFree((CUdeviceptr)(uintptr_t)ptr));
    return umf_cuda_given_back(result, "freeing memory that was shared");
}

static umf_result_t cuda_close_ipc_handle(void *provider, void *ptr, size_t size) {
    const cuda_provider_t *cuda = provider;
    (void)size;
    umf_cuda_context_t freed_in;
    if (umf_cuda_own_close(ptr, &freed_in)) {
        return freed_in.handle ? cuda_free_late(&freed_in, ptr) : UMF_RESULT_SUCCESS;
    }
    CUresult result;
    UMF_CUDA_CALL(&cuda->context, result, cuIpcCloseMemHandle((CUdeviceptr)(uintptr_t)ptr));
    return umf_cuda_given_back(result, "closing an IPC handle");
}

/* Only allocations of this process can be watched. */
static umf_result_t cuda_ipc_watch(void *provider, const void *data, const uint64_t **word,
                                   uint64_t *expected) {
    (void)provider;
    CUipcMemHandle handle;
    memcpy(&handle, data, sizeof(handle));
    const uint64_t *alive = umf_cuda_own_watch(&handle);
    if (!alive) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    *word = alive;
    *expected = 1;
    return UMF_RESULT_SUCCESS;
}

/* --- tables ----------------------------------------------------------------------------------- */

static const umf_memory_provider_ops_t cuda_ops = {
    UMF_PROVIDER_OPS(cuda),
    .alloc = cuda_alloc,
    .free = cuda_free,
    .get_recommended_page_size = cuda_get_recommended_page_size,
    .get_min_page_size = cuda_get_min_page_size,
    .get_name = cuda_get_name,
    UMF_IPC_OPS(cuda),
    .ext_ctl = cuda_ctl,
    UMF_CUDA_OPS,
};

static const umf_memory_provider_ext_ops_t cuda_ext_ops = {
    .struct_size = sizeof(cuda_ext_ops),
    .ipc_watch = cuda_ipc_watch,
    UMF_CUDA_EXT_OPS,
};

UMF_API_1_0 const umf_memory_provider_ops_t *umfCUDAMemoryProviderOps(void) {
    return &cuda_ops;
}

UMF_PROVIDER_DESCRIPTOR(cuda, umf_cuda_params, .ops = &cuda_ops, .ext = &cuda_ext_ops,
                        .probe = umf_cuda_probe);
