/* Cuda_vmm provider: virtual memory by way of the CUDA driver. See vmm.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "ctl/field.h"
#include "ds/hash.h"
#include "providers/cuda/copy.h"
#include "providers/cuda/cuda_vmm_params.h"
#include "providers/cuda/wait.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"
#include "providers/vmm/ops.h"
#include "system/os.h"

typedef struct cuda_vmm_t {
    umf_vmm_t vmm;
    const umf_cuda_driver_t *driver; /* Immutable after create, as all without a note */
    umf_cuda_context_t context;
    umf_cuda_vmm_share_t share;
    umf_cuda_vmm_free_policy_t free_policy;
    bool is_of_host;
    CUmemAllocationProp properties;
    CUmemAccessDesc access[UMF_CUDA_VMM_PEERS + 2];
    size_t access_count;
    char name[UMF_NAME_MAX];
    umf_lock_t lock;  /* UMF_RANK_PROVIDER */
    umf_hash_t peers; /* handles of peer_alloc by address. Sync: lock */
} cuda_vmm_t;
UMF_VMM_FIRST(cuda_vmm_t);

static umf_result_t cuda_vmm_result(const cuda_vmm_t *cuda, CUresult result, const char *what) {
    return umf_cuda_result(cuda->driver, result, what);
}

static umf_result_t cuda_vmm_given_back(const cuda_vmm_t *cuda, CUresult result, const char *what) {
    return umf_cuda_given_back(cuda->driver, result, what);
}

/* Runs one call of the driver in the provider's context. */
#define IN_CONTEXT(cuda, result, call) UMF_CUDA_CALL((cuda)->driver, &(cuda)->context, result, call)

/* The same for what gives something back: virtual memory outlives contexts, so it is done also
 * where the provider's cannot be entered. */
#define GIVE_BACK(cuda, result, call)                                                              \
    do {                                                                                           \
        umf_cuda_scope_t scope_;                                                                   \
        umf_cuda_enter((cuda)->driver, &(cuda)->context, &scope_);                                 \
        result = umf_cuda_leave((cuda)->driver, &scope_, (cuda)->driver->call);                    \
    } while (0)

/* --- back end --------------------------------------------------------------------------------- */

static umf_result_t cuda_vmm_reserve(void *backend, size_t size, size_t alignment,
                                     uintptr_t *base) {
    const cuda_vmm_t *cuda = backend;
    CUdeviceptr address = 0;
    CUresult result;
    IN_CONTEXT(cuda, result, cuMemAddressReserve(&address, size, alignment, 0, 0));
    if (result == CUDA_SUCCESS) {
        *base = (uintptr_t)address;
    }
    return cuda_vmm_result(cuda, result, "reserving addresses");
}

static umf_result_t cuda_vmm_unreserve(void *backend, uintptr_t base, size_t size) {
    const cuda_vmm_t *cuda = backend;
    CUresult result;
    GIVE_BACK(cuda, result, cuMemAddressFree((CUdeviceptr)base, size));
    return cuda_vmm_given_back(cuda, result, "giving back addresses");
}

/* Memory that other devices on the bus reach is not worth a failure: where it is refused for that,
 * it is made without. */
static CUresult cuda_vmm_create_at(const cuda_vmm_t *cuda, CUmemAllocationProp properties,
                                   size_t size, CUmemGenericAllocationHandle *handle) {
    CUresult result;
    IN_CONTEXT(cuda, result, cuMemCreate(handle, size, &properties, 0));
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
        properties.allocFlags.gpuDirectRDMACapable) {
        properties.allocFlags.gpuDirectRDMACapable = 0;
        IN_CONTEXT(cuda, result, cuMemCreate(handle, size, &properties, 0));
    }
    return result;
}

static umf_result_t cuda_vmm_create(void *backend, size_t size, umf_physical_t *physical) {
    const cuda_vmm_t *cuda = backend;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cuda_vmm_create_at(cuda, cuda->properties, size, &handle);
    if (result == CUDA_SUCCESS) {
        *physical = handle;
    }
    return cuda_vmm_result(cuda, result, "making physical memory");
}

static umf_result_t cuda_vmm_destroy(void *backend, umf_physical_t physical) {
    const cuda_vmm_t *cuda = backend;
    CUresult result;
    GIVE_BACK(cuda, result, cuMemRelease((CUmemGenericAllocationHandle)physical));
    return cuda_vmm_given_back(cuda, result, "giving back physical memory");
}

static CUresult cuda_vmm_map_for(const cuda_vmm_t *cuda, uintptr_t base, size_t size,
                                 CUmemGenericAllocationHandle handle, const CUmemAccessDesc *access,
                                 size_t count) {
    CUresult result = cuda->driver->cuMemMap((CUdeviceptr)base, size, 0, handle, 0);
    if (result == CUDA_SUCCESS) {
        result = cuda->driver->cuMemSetAccess((CUdeviceptr)base, size, access, count);
        if (result != CUDA_SUCCESS) {
            cuda->driver->cuMemUnmap((CUdeviceptr)base, size);
        }
    }
    return result;
}

static umf_result_t cuda_vmm_map(void *backend, uintptr_t base, size_t size,
                                 umf_physical_t physical) {
    const cuda_vmm_t *cuda = backend;
    CUresult result;
    IN_CONTEXT(cuda, result,
               cuMemMap((CUdeviceptr)base, size, 0, (CUmemGenericAllocationHandle)physical, 0));
    return cuda_vmm_result(cuda, result, "mapping memory");
}

static umf_result_t cuda_vmm_allow(void *backend, uintptr_t base, size_t size) {
    const cuda_vmm_t *cuda = backend;
    CUresult result;
    IN_CONTEXT(cuda, result,
               cuMemSetAccess((CUdeviceptr)base, size, cuda->access, cuda->access_count));
    return cuda_vmm_result(cuda, result, "letting devices at memory");
}

static umf_result_t cuda_vmm_unmap(void *backend, uintptr_t base, size_t size) {
    const cuda_vmm_t *cuda = backend;
    CUresult result;
    GIVE_BACK(cuda, result, cuMemUnmap((CUdeviceptr)base, size));
    return cuda_vmm_given_back(cuda, result, "unmapping memory");
}

static umf_cuda_places_t cuda_vmm_places(const cuda_vmm_t *cuda) {
    return (umf_cuda_places_t){&cuda->context, cuda->access, cuda->access_count};
}

static umf_result_t cuda_vmm_settle(void *backend) {
    const cuda_vmm_t *cuda = backend;
    const umf_cuda_places_t places = cuda_vmm_places(cuda);
    return cuda->free_policy == UMF_CUDA_VMM_FREE_POLICY_IMMEDIATE
               ? UMF_RESULT_SUCCESS
               : umf_cuda_settle(cuda->driver, &places);
}

static umf_result_t cuda_vmm_export(void *backend, umf_physical_t physical, int *fd) {
    const cuda_vmm_t *cuda = backend;
    int made = -1;
    CUresult result;
    IN_CONTEXT(cuda, result,
               cuMemExportToShareableHandle(&made, (CUmemGenericAllocationHandle)physical,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    umf_result_t outcome = cuda_vmm_result(cuda, result, "exporting physical memory");
    if (outcome != UMF_RESULT_SUCCESS) {
        return outcome;
    }
    /* A copy that a program started by this one does not get: it would keep the memory. */
    int error = umf_os_dup(made, fd);
    umf_os_close(made);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "no descriptor to share memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

/* Whether `size` is right shows when it is mapped. */
static umf_result_t cuda_vmm_import(void *backend, int fd, size_t size, umf_physical_t *physical) {
    const cuda_vmm_t *cuda = backend;
    (void)size;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result;
    IN_CONTEXT(cuda, result,
               cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (result == CUDA_SUCCESS) {
        *physical = handle;
    }
    return cuda_vmm_result(cuda, result, "importing physical memory");
}

_Static_assert(sizeof(CUmemFabricHandle) == UMF_VMM_TOKEN_SIZE, "a token is a fabric handle");

static umf_result_t cuda_vmm_export_fabric(void *backend, umf_physical_t physical,
                                           unsigned char *token) {
    const cuda_vmm_t *cuda = backend;
    CUmemFabricHandle handle;
    CUresult result;
    IN_CONTEXT(cuda, result,
               cuMemExportToShareableHandle(&handle, (CUmemGenericAllocationHandle)physical,
                                            CU_MEM_HANDLE_TYPE_FABRIC, 0));
    if (result == CUDA_SUCCESS) {
        memcpy(token, &handle, sizeof(handle));
    }
    return cuda_vmm_result(cuda, result, "exporting physical memory to the fabric");
}

static umf_result_t cuda_vmm_import_fabric(void *backend, const unsigned char *token, size_t size,
                                           umf_physical_t *physical) {
    const cuda_vmm_t *cuda = backend;
    (void)size;
    CUmemFabricHandle fabric;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result;
    memcpy(&fabric, token, sizeof(fabric));
    IN_CONTEXT(cuda, result,
               cuMemImportFromShareableHandle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC));
    if (result == CUDA_SUCCESS) {
        *physical = handle;
    }
    return cuda_vmm_result(cuda, result, "importing physical memory from the fabric");
}

#define BACKEND_COMMON                                                                             \
    .reserve = cuda_vmm_reserve, .unreserve = cuda_vmm_unreserve, .create = cuda_vmm_create,       \
    .destroy = cuda_vmm_destroy, .map = cuda_vmm_map, .allow = cuda_vmm_allow,                     \
    .unmap = cuda_vmm_unmap, .settle = cuda_vmm_settle, .is_device = true

static const umf_vmm_backend_t cuda_vmm_backend = {
    BACKEND_COMMON,
    .export = cuda_vmm_export,
    .import = cuda_vmm_import,
    .kind = 2,
};

static const umf_vmm_backend_t cuda_vmm_fabric_backend = {
    BACKEND_COMMON,
    .export_token = cuda_vmm_export_fabric,
    .import_token = cuda_vmm_import_fabric,
    .kind = 3,
};

static const umf_vmm_backend_t cuda_vmm_fabric_anywhere_backend = {
    BACKEND_COMMON,
    .export_token = cuda_vmm_export_fabric,
    .import_token = cuda_vmm_import_fabric,
    .is_boardless = true,
    .kind = 5,
};

static const umf_vmm_backend_t cuda_vmm_private_backend = {
    BACKEND_COMMON,
    .private_result = UMF_RESULT_ERROR_INVALID_ARGUMENT,
    .private_text = "the provider does not share its memory: set "
                    "umfCUDAVmmMemoryProviderParamsSetShare",
    .kind = 2,
};

static const umf_vmm_backend_t *cuda_vmm_choose_backend(umf_cuda_vmm_share_t share) {
    switch (share) {
    case UMF_CUDA_VMM_SHARE_FD:
        return &cuda_vmm_backend;
    case UMF_CUDA_VMM_SHARE_FABRIC:
        return &cuda_vmm_fabric_backend;
    case UMF_CUDA_VMM_SHARE_FABRIC_ANYWHERE:
        return &cuda_vmm_fabric_anywhere_backend;
    default:
        return &cuda_vmm_private_backend;
    }
}

/* --- creation --------------------------------------------------------------------------------- */

/* A function without which nothing works, and which the driver does not have; NULL: none. */
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

static CUmemAllocationHandleType cuda_vmm_handle_type(umf_cuda_vmm_share_t share) {
    switch (share) {
    case UMF_CUDA_VMM_SHARE_FD:
        return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    case UMF_CUDA_VMM_SHARE_FABRIC:
    case UMF_CUDA_VMM_SHARE_FABRIC_ANYWHERE:
        return CU_MEM_HANDLE_TYPE_FABRIC;
    default:
        return CU_MEM_HANDLE_TYPE_NONE;
    }
}

static void cuda_vmm_describe(cuda_vmm_t *cuda, const umf_cuda_vmm_params_t *wanted) {
    CUmemAllocationProp *properties = &cuda->properties;
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location =
        (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = wanted->device};
    properties->requestedHandleTypes = cuda_vmm_handle_type(wanted->share);
    cuda->access[cuda->access_count++] = (CUmemAccessDesc){
        .location = properties->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (size_t i = 0; i < wanted->peer_count; i++) {
        cuda->access[cuda->access_count++] = (CUmemAccessDesc){
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = wanted->peers[i]},
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
    if (cuda->is_of_host) {
        properties->location =
            (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = wanted->host_node};
        cuda->access[cuda->access_count++] = (CUmemAccessDesc){
            .location = properties->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
}

static umf_result_t cuda_vmm_check_device(const cuda_vmm_t *cuda) {
    int can = 0;
    umf_result_t result = cuda_vmm_result(
        cuda,
        cuda->driver->cuDeviceGetAttribute(
            &can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, cuda->context.device),
        "asking the device for virtual memory");
    if (result == UMF_RESULT_SUCCESS && !can) {
        UMF_LOG_ERROR("device %d has no virtual memory: use the provider \"cuda\"",
                      cuda->context.device);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return result;
}

/* A device that cannot tell has none. */
static void cuda_vmm_ask_rdma(cuda_vmm_t *cuda) {
    int can = 0;
    CUresult result = cuda->driver->cuDeviceGetAttribute(
        &can, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, cuda->context.device);
    cuda->properties.allocFlags.gpuDirectRDMACapable = result == CUDA_SUCCESS && can;
}

/* Permission shows only when it is tried. */
static umf_result_t cuda_vmm_try_fabric(cuda_vmm_t *cuda, size_t granularity) {
    unsigned char token[UMF_VMM_TOKEN_SIZE];
    CUmemGenericAllocationHandle handle = 0;
    CUresult made = cuda_vmm_create_at(cuda, cuda->properties, granularity, &handle);
    if (made == CUDA_ERROR_OUT_OF_MEMORY) {
        return cuda_vmm_result(cuda, made, "trying fabric handles");
    }
    if (made != CUDA_SUCCESS) {
        cuda_vmm_result(cuda, made, "trying fabric handles");
        UMF_LOG_ERROR("device %d has fabric handles, but this machine or process is not set up for "
                      "them (IMEX channels): share by UMF_CUDA_VMM_SHARE_FD",
                      cuda->context.device);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result = cuda_vmm_export_fabric(cuda, handle, token);
    cuda_vmm_destroy(cuda, handle);
    return result == UMF_RESULT_SUCCESS ? result : UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Whether memory can be shared in the way that is wanted. */
static umf_result_t cuda_vmm_try_share(cuda_vmm_t *cuda, size_t granularity) {
    bool is_fabric = cuda_vmm_handle_type(cuda->share) == CU_MEM_HANDLE_TYPE_FABRIC;
    const umf_cuda_driver_t *driver = cuda->driver;
    int can = 0;
    if (cuda->share == UMF_CUDA_VMM_SHARE_NONE) {
        return UMF_RESULT_SUCCESS;
    }
    if (!driver->cuMemExportToShareableHandle || !driver->cuMemImportFromShareableHandle) {
        UMF_LOG_ERROR("this CUDA driver is too old to share memory, it has no %s",
                      driver->cuMemExportToShareableHandle ? "cuMemImportFromShareableHandle"
                                                           : "cuMemExportToShareableHandle");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    CUresult asked = driver->cuDeviceGetAttribute(
        &can,
        is_fabric ? CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
                  : CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        cuda->context.device);
    if (asked != CUDA_SUCCESS || !can) {
        cuda_vmm_result(cuda, asked, "asking the device how it can share memory");
        UMF_LOG_ERROR("device %d cannot share memory by %s", cuda->context.device,
                      is_fabric ? "fabric handles: use UMF_CUDA_VMM_SHARE_FD" : "descriptors");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return is_fabric ? cuda_vmm_try_fabric(cuda, granularity) : UMF_RESULT_SUCCESS;
}

static umf_result_t cuda_vmm_start(cuda_vmm_t *cuda, const umf_cuda_vmm_params_t *wanted) {
    umf_result_t result =
        umf_cuda_context_take(cuda->driver, wanted->context, wanted->device, &cuda->context);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    size_t granularity = 0;
    result = cuda_vmm_check_device(cuda);
    if (result == UMF_RESULT_SUCCESS) {
        if (wanted->gpudirect_rdma && !cuda->is_of_host) {
            cuda_vmm_ask_rdma(cuda);
        }
        result = cuda_vmm_result(
            cuda,
            cuda->driver->cuMemGetAllocationGranularity(&granularity, &cuda->properties,
                                                        CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            "asking for the allocation granularity");
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = cuda_vmm_try_share(cuda, granularity);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_vmm_init(&cuda->vmm, cuda_vmm_choose_backend(cuda->share), cuda, granularity,
                              wanted->piece_size);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_cuda_context_drop(cuda->driver, &cuda->context);
    }
    return result;
}

static umf_result_t cuda_vmm_initialize(const void *params, void **provider) {
    const umf_cuda_vmm_params_t *wanted = params;
    if (!umf_handle_check(wanted, &umf_cuda_vmm_params_kind.handle, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    char why[256];
    const umf_cuda_driver_t *driver = cuda_vmm_driver(why, sizeof(why));
    if (!driver) {
        UMF_LOG_ERROR("%s", why);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    cuda_vmm_t *cuda = umf_provider_state_new(sizeof(*cuda));
    if (!cuda) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    cuda->driver = wanted->per_thread_stream ? umf_cuda_driver_per_thread() : driver;
    cuda->share = wanted->share;
    cuda->free_policy = wanted->free_policy;
    cuda->is_of_host = wanted->host_node >= 0;
    umf_name_copy(cuda->name, wanted->name);
    cuda_vmm_describe(cuda, wanted);
    umf_result_t result = cuda_vmm_start(cuda, wanted);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(cuda, sizeof(*cuda));
        return result;
    }
    umf_lock_init(&cuda->lock, UMF_RANK_PROVIDER);
    *provider = cuda;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t cuda_vmm_finalize(void *provider) {
    cuda_vmm_t *cuda = provider;
    umf_vmm_fini(&cuda->vmm);
    umf_cuda_context_drop(cuda->driver, &cuda->context);
    umf_lock_destroy(&cuda->lock);
    umf_hash_fini(&cuda->peers);
    umf_meta_free(cuda, sizeof(*cuda));
    return UMF_RESULT_SUCCESS;
}

/* --- operations ------------------------------------------------------------------------------- */

static umf_result_t cuda_vmm_get_last_native_error(void *provider, const char **message,
                                                   int32_t *code) {
    return umf_cuda_native_error(provider ? ((cuda_vmm_t *)provider)->driver : NULL, message, code);
}

static umf_result_t cuda_vmm_get_name(void *provider, const char **name) {
    if (!name) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *name = provider ? ((cuda_vmm_t *)provider)->name : umf_cuda_vmm_params_defaults.name;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t cuda_vmm_get_property(void *provider, const void *ptr,
                                          umf_memory_property_id_t id, void *value) {
    const cuda_vmm_t *cuda = provider;
    (void)ptr;
    return umf_cuda_property(&cuda->context,
                             cuda->is_of_host ? UMF_MEMORY_TYPE_HOST : UMF_MEMORY_TYPE_DEVICE, id,
                             value);
}

/* --- data ------------------------------------------------------------------------------------- */

UMF_CUDA_QUEUE_FUNCTIONS(cuda_vmm, cuda_vmm_t);

static umf_result_t cuda_vmm_wait(void *provider, void *const *queues, size_t num_queues,
                                  void *const *events, size_t num_events) {
    const cuda_vmm_t *cuda = provider;
    if (num_queues || num_events) {
        return umf_cuda_wait_for(cuda->driver, &cuda->context, queues, num_queues, events,
                                 num_events);
    }
    const umf_cuda_places_t places = cuda_vmm_places(cuda);
    return umf_cuda_wait_all(cuda->driver, &places);
}

/* --- pinning, and memory of other devices ----------------------------------------------------- */

static umf_result_t cuda_vmm_host_pin(void *provider, void *ptr, size_t size) {
    const cuda_vmm_t *cuda = provider;
    if (!cuda->driver->cuMemHostRegister || !cuda->driver->cuMemHostUnregister) {
        return UMF_RESULT_SUCCESS; /* copies are slower, nothing else */
    }
    CUresult result;
    IN_CONTEXT(cuda, result, cuMemHostRegister(ptr, size, 0));
    return cuda_vmm_result(cuda, result, "pinning host memory");
}

static umf_result_t cuda_vmm_host_unpin(void *provider, void *ptr, size_t size) {
    const cuda_vmm_t *cuda = provider;
    (void)size;
    if (!cuda->driver->cuMemHostRegister || !cuda->driver->cuMemHostUnregister) {
        return UMF_RESULT_SUCCESS;
    }
    CUresult result;
    IN_CONTEXT(cuda, result, cuMemHostUnregister(ptr));
    return cuda_vmm_given_back(cuda, result, "unpinning host memory");
}

/* For drivers that do not tell: what the system says of the device on the bus; -1: nothing. */
static int cuda_vmm_node_of_bus(const cuda_vmm_t *cuda) {
    char bus[32] = "", path[96], text[16] = "";
    size_t length = 0;
    int fd;
    if (!cuda->driver->cuDeviceGetPCIBusId ||
        cuda->driver->cuDeviceGetPCIBusId(bus, sizeof(bus), cuda->context.device) != CUDA_SUCCESS) {
        return -1;
    }
    for (char *at = bus; *at; at++) {
        *at = (char)(*at >= 'A' && *at <= 'F' ? *at - 'A' + 'a' : *at);
    }
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", bus);
    if (umf_os_open(path, O_RDONLY, 0, &fd)) {
        return -1;
    }
    while (length < sizeof(text) - 1 && umf_os_read_at(fd, &text[length], 1, length) == 0) {
        length++;
    }
    umf_os_close(fd);
    return length == 0 ? -1 : atoi(text);
}

static umf_result_t cuda_vmm_host_node(void *provider, unsigned *node) {
    const cuda_vmm_t *cuda = provider;
    int found = -1;
    CUresult result = cuda->driver->cuDeviceGetAttribute(&found, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                                                         cuda->context.device);
    if (result != CUDA_SUCCESS || found < 0) {
        found = cuda_vmm_node_of_bus(cuda);
    }
    if (found < 0) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    *node = (unsigned)found;
    return UMF_RESULT_SUCCESS;
}

/* Maps `handle` somewhere, for this device and `device`. */
static CUresult cuda_vmm_map_anywhere(const cuda_vmm_t *cuda, CUmemGenericAllocationHandle handle,
                                      size_t size, int device, uintptr_t *base) {
    CUmemAccessDesc access[2] = {cuda->access[0], cuda->access[0]};
    access[1].location.id = device;
    CUdeviceptr address = 0;
    CUresult result = cuda->driver->cuMemAddressReserve(&address, size, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = cuda_vmm_map_for(cuda, (uintptr_t)address, size, handle, access,
                              device == cuda->context.device ? 1 : 2);
    if (result != CUDA_SUCCESS) {
        cuda->driver->cuMemAddressFree(address, size);
        return result;
    }
    *base = (uintptr_t)address;
    return CUDA_SUCCESS;
}

static void cuda_vmm_unmap_anywhere(const cuda_vmm_t *cuda, uintptr_t base, size_t size) {
    cuda->driver->cuMemUnmap((CUdeviceptr)base, size);
    cuda->driver->cuMemAddressFree((CUdeviceptr)base, size);
}

static bool cuda_vmm_remember(cuda_vmm_t *cuda, umf_hash_t *hash, uintptr_t base,
                              CUmemGenericAllocationHandle handle) {
    umf_lock(&cuda->lock);
    bool done = umf_hash_put(hash, base, (void *)(uintptr_t)handle);
    umf_unlock(&cuda->lock);
    return done;
}

static CUmemGenericAllocationHandle cuda_vmm_forget(cuda_vmm_t *cuda, umf_hash_t *hash,
                                                    uintptr_t base) {
    umf_lock(&cuda->lock);
    void *handle = umf_hash_remove(hash, base);
    umf_unlock(&cuda->lock);
    return (CUmemGenericAllocationHandle)(uintptr_t)handle;
}

/* Keeps a mapping of `handle`, or gives the handle back. */
static umf_result_t cuda_vmm_adopt(cuda_vmm_t *cuda, umf_hash_t *hash,
                                   CUmemGenericAllocationHandle handle, size_t size, int device,
                                   uintptr_t *base) {
    umf_cuda_scope_t scope;
    uintptr_t made = 0;
    bool kept = true;
    CUresult result = umf_cuda_enter(cuda->driver, &cuda->context, &scope);
    if (result == CUDA_SUCCESS) {
        result = cuda_vmm_map_anywhere(cuda, handle, size, device, &made);
        if (result == CUDA_SUCCESS) {
            kept = cuda_vmm_remember(cuda, hash, made, handle);
            if (!kept) {
                cuda_vmm_unmap_anywhere(cuda, made, size);
            }
        }
        if (result != CUDA_SUCCESS || !kept) {
            cuda->driver->cuMemRelease(handle);
        }
        result = umf_cuda_leave(cuda->driver, &scope, result);
    }
    if (!kept) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        *base = made;
    }
    return cuda_vmm_result(cuda, result, "mapping memory");
}

static umf_result_t cuda_vmm_abandon(cuda_vmm_t *cuda, umf_hash_t *hash, void *ptr, size_t size) {
    CUmemGenericAllocationHandle handle = cuda_vmm_forget(cuda, hash, (uintptr_t)ptr);
    if (!handle) {
        UMF_LOG_ERROR("%p is not mapped here", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_cuda_scope_t scope;
    umf_cuda_enter(cuda->driver, &cuda->context, &scope); /* as GIVE_BACK */
    cuda_vmm_unmap_anywhere(cuda, (uintptr_t)ptr, size);
    CUresult result = umf_cuda_leave(cuda->driver, &scope, cuda->driver->cuMemRelease(handle));
    return cuda_vmm_given_back(cuda, result, "unmapping memory");
}

static bool cuda_vmm_reaches(const cuda_vmm_t *cuda, int device) {
    int can = 0;
    return device == cuda->context.device ||
           (cuda->driver->cuDeviceCanAccessPeer &&
            cuda->driver->cuDeviceCanAccessPeer(&can, cuda->context.device, device) ==
                CUDA_SUCCESS &&
            can);
}

static umf_result_t cuda_vmm_peer_alloc(void *provider, int device, size_t size, void **ptr) {
    cuda_vmm_t *cuda = provider;
    size_t rounded;
    if (!cuda_vmm_reaches(cuda, device)) {
        UMF_LOG_ERROR("device %d cannot reach device %d", cuda->context.device, device);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!umf_round_up(size, cuda->vmm.granularity, &rounded)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    CUmemAllocationProp properties = cuda->properties;
    properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    properties.allocFlags.gpuDirectRDMACapable = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUresult made;
    IN_CONTEXT(cuda, made, cuMemCreate(&handle, rounded, &properties, 0));
    umf_result_t result = cuda_vmm_result(cuda, made, "making memory on another device");
    uintptr_t base = 0;
    if (result == UMF_RESULT_SUCCESS) {
        result = cuda_vmm_adopt(cuda, &cuda->peers, handle, rounded, device, &base);
    }
    if (result == UMF_RESULT_SUCCESS) {
        *ptr = (void *)base;
    }
    return result;
}

static umf_result_t cuda_vmm_peer_free(void *provider, void *ptr, size_t size) {
    cuda_vmm_t *cuda = provider;
    size_t rounded = 0;
    umf_round_up(size, cuda->vmm.granularity, &rounded);
    return cuda_vmm_abandon(cuda, &cuda->peers, ptr, rounded);
}

/* --- tables ----------------------------------------------------------------------------------- */

static const umf_memory_provider_ops_t cuda_vmm_ops = {
    UMF_PROVIDER_OPS(cuda_vmm),
    UMF_VMM_OPS,
    .get_last_native_error = cuda_vmm_get_last_native_error,
    .get_name = cuda_vmm_get_name,
    .ext_get_allocation_properties = cuda_vmm_get_property,
    .ext_get_allocation_properties_size = umf_cuda_op_property_size,
    .get_cache_line_size = umf_cuda_op_cache_line_size,
};

static const umf_memory_provider_ext_ops_t cuda_vmm_ext_ops = {
    .struct_size = sizeof(cuda_vmm_ext_ops),
    UMF_VMM_EXT_OPS,
    .ipc_flags = UMF_IPC_FLAG_REPEATABLE | UMF_IPC_FLAG_ANY_MACHINE,
    UMF_CUDA_QUEUE_OPS(cuda_vmm),
    .wait = cuda_vmm_wait,
    .host_pin = cuda_vmm_host_pin,
    .host_unpin = cuda_vmm_host_unpin,
    .host_node = cuda_vmm_host_node,
    .peer_alloc = cuda_vmm_peer_alloc,
    .peer_free = cuda_vmm_peer_free,
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
