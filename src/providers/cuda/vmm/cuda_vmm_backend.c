/* Cuda_vmm: the back end, addresses and physical memory for vmm/vmm.h. */
#include "providers/cuda/copy.h"
#include "providers/cuda/mark.h"
#include "providers/cuda/vmm/cuda_vmm_own.h"

#include <string.h>

#include "base/log.h"
#include "system/os.h"

/* Runs a call that gives something back. Virtual memory outlives contexts, so the call is made even
 * if the provider's context cannot be entered. */
#define GIVE_BACK(cuda, result, call)                                                              \
    do {                                                                                           \
        umf_cuda_scope_t scope_;                                                                   \
        umf_cuda_enter(&(cuda)->context, &scope_);                                                 \
        result = umf_cuda_leave(&scope_, (cuda)->context.driver->call);                            \
    } while (0)

static umf_result_t cuda_vmm_reserve(void *backend, size_t size, size_t alignment,
                                     uintptr_t *base) {
    const umf_cuda_vmm_t *cuda = backend;
    CUdeviceptr address = 0;
    CUresult result;
    UMF_CUDA_CALL(&cuda->context, result, cuMemAddressReserve(&address, size, alignment, 0, 0));
    if (result == CUDA_SUCCESS) {
        *base = (uintptr_t)address;
    }
    return umf_cuda_result(result, "reserving addresses");
}

static umf_result_t cuda_vmm_unreserve(void *backend, uintptr_t base, size_t size) {
    const umf_cuda_vmm_t *cuda = backend;
    CUresult result;
    GIVE_BACK(cuda, result, cuMemAddressFree((CUdeviceptr)base, size));
    return umf_cuda_given_back(result, "giving back addresses");
}

/* Creates physical memory. RDMA access for other devices on the bus is optional: if creation fails
 * with it, it is tried without. More of the same would not help when memory is short. */
static CUresult cuda_vmm_create_at(const umf_cuda_vmm_t *cuda, CUmemAllocationProp properties,
                                   size_t size, CUmemGenericAllocationHandle *handle) {
    CUresult result;
    UMF_CUDA_CALL(&cuda->context, result, cuMemCreate(handle, size, &properties, 0));
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
        properties.allocFlags.gpuDirectRDMACapable) {
        properties.allocFlags.gpuDirectRDMACapable = 0;
        UMF_CUDA_CALL(&cuda->context, result, cuMemCreate(handle, size, &properties, 0));
    }
    return result;
}

static umf_result_t cuda_vmm_create(void *backend, size_t size, umf_physical_t *physical) {
    const umf_cuda_vmm_t *cuda = backend;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cuda_vmm_create_at(cuda, cuda->properties, size, &handle);
    if (result == CUDA_SUCCESS) {
        *physical = handle;
    }
    return umf_cuda_result(result, "making physical memory");
}

static umf_result_t cuda_vmm_destroy(void *backend, umf_physical_t physical) {
    const umf_cuda_vmm_t *cuda = backend;
    CUresult result;
    GIVE_BACK(cuda, result, cuMemRelease((CUmemGenericAllocationHandle)physical));
    return umf_cuda_given_back(result, "giving back physical memory");
}

static umf_result_t cuda_vmm_map(void *backend, uintptr_t base, size_t size,
                                 umf_physical_t physical) {
    const umf_cuda_vmm_t *cuda = backend;
    CUresult result;
    UMF_CUDA_CALL(&cuda->context, result,
                  cuMemMap((CUdeviceptr)base, size, 0, (CUmemGenericAllocationHandle)physical, 0));
    return umf_cuda_result(result, "mapping memory");
}

static umf_result_t cuda_vmm_allow(void *backend, uintptr_t base, size_t size) {
    const umf_cuda_vmm_t *cuda = backend;
    CUresult result;
    UMF_CUDA_CALL(
        &cuda->context, result,
        cuMemSetAccess((CUdeviceptr)base, size, cuda->access, cuda->context.access_count));
    return umf_cuda_result(result, "letting devices at memory");
}

static umf_result_t cuda_vmm_allow_read(void *backend, uintptr_t base, size_t size) {
    const umf_cuda_vmm_t *cuda = backend;
    CUmemAccessDesc access[UMF_COUNT_OF(cuda->access)];
    CUresult result;
    for (uint32_t i = 0; i < cuda->context.access_count; i++) {
        access[i] = cuda->access[i];
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    }
    UMF_CUDA_CALL(&cuda->context, result,
                  cuMemSetAccess((CUdeviceptr)base, size, access, cuda->context.access_count));
    return umf_cuda_result(result, "letting devices read memory");
}

static umf_result_t cuda_vmm_unmap(void *backend, uintptr_t base, size_t size) {
    const umf_cuda_vmm_t *cuda = backend;
    CUresult result;
    GIVE_BACK(cuda, result, cuMemUnmap((CUdeviceptr)base, size));
    return umf_cuda_given_back(result, "unmapping memory");
}

static umf_result_t cuda_vmm_memory(void *backend, size_t *bytes) {
    const umf_cuda_vmm_t *cuda = backend;
    size_t left = 0;
    CUresult result;
    if (cuda->context.memory_type == UMF_MEMORY_TYPE_HOST) {
        *bytes = umf_os_memory();
        return UMF_RESULT_SUCCESS;
    }
    if (!cuda->context.driver->cuMemGetInfo) {
        UMF_LOG_ERROR("this CUDA driver does not report the size of memory: set arena_size");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    UMF_CUDA_CALL(&cuda->context, result, cuMemGetInfo(&left, bytes));
    return umf_cuda_result(result, "asking for the memory of the device");
}

static umf_result_t cuda_vmm_settle(void *backend) {
    const umf_cuda_vmm_t *cuda = backend;
    /* With the policy IMMEDIATE the user promises that no work uses freed memory. */
    return cuda->free_policy == UMF_CUDA_VMM_FREE_POLICY_IMMEDIATE ? UMF_RESULT_SUCCESS
                                                                   : umf_cuda_op_settle(backend);
}

static umf_result_t cuda_vmm_mark(void *backend, void **mark) {
    const umf_cuda_vmm_t *cuda = backend;
    return cuda->free_policy == UMF_CUDA_VMM_FREE_POLICY_IMMEDIATE
               ? UMF_RESULT_ERROR_NOT_SUPPORTED
               : umf_cuda_mark_all(&cuda->context, mark);
}

static umf_result_t cuda_vmm_export(void *backend, umf_physical_t physical, int *fd) {
    const umf_cuda_vmm_t *cuda = backend;
    int made = -1;
    CUresult result;
    UMF_CUDA_CALL(&cuda->context, result,
                  cuMemExportToShareableHandle(&made, (CUmemGenericAllocationHandle)physical,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    umf_result_t outcome = umf_cuda_result(result, "exporting physical memory");
    if (outcome != UMF_RESULT_SUCCESS) {
        return outcome;
    }
    return umf_cuda_own_descriptor(made, fd);
}

/* The driver cannot check `size` here; mapping fails if it is wrong. */
static umf_result_t cuda_vmm_import(void *backend, int fd, size_t size, umf_physical_t *physical) {
    const umf_cuda_vmm_t *cuda = backend;
    (void)size;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result;
    UMF_CUDA_CALL(&cuda->context, result,
                  cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (result == CUDA_SUCCESS) {
        *physical = handle;
    }
    return umf_cuda_result(result, "importing physical memory");
}

/* If the driver does not report the device of memory, the access of the device decides. */
static umf_result_t cuda_vmm_check(void *backend, umf_physical_t physical, const unsigned char *id,
                                   int *number) {
    const umf_cuda_vmm_t *cuda = backend;
    const umf_cuda_driver_t *driver = cuda->context.driver;
    CUmemAllocationProp properties = {0};
    CUuuid uuid;
    CUresult result;
    if (!driver->cuMemGetAllocationPropertiesFromHandle || !driver->cuDeviceGetUuid) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_CUDA_CALL(&cuda->context, result,
                  cuMemGetAllocationPropertiesFromHandle(&properties,
                                                         (CUmemGenericAllocationHandle)physical));
    if (result != CUDA_SUCCESS) {
        umf_cuda_tell(result, "asking for the device of memory");
        return UMF_RESULT_SUCCESS;
    }
    bool is_it = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                 (properties.location.id == *number ||
                  (driver->cuDeviceGetUuid(&uuid, properties.location.id) == CUDA_SUCCESS &&
                   memcmp(&uuid, id, sizeof(uuid)) == 0));
    if (!is_it) {
        UMF_LOG_ERROR("memory is of device %d (type %d), not of the one that was said",
                      properties.location.id, (int)properties.location.type);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *number = properties.location.id;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_cuda_vmm_device(void *provider, unsigned char id[16], int *number) {
    const umf_cuda_vmm_t *cuda = provider;
    CUuuid uuid;
    if (cuda->context.memory_type != UMF_MEMORY_TYPE_DEVICE ||
        cuda->share != UMF_CUDA_VMM_SHARE_FD) {
        UMF_LOG_ERROR("only memory of a device with share=fd can be kept; of the host linux_vmm "
                      "has some");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!cuda->context.driver->cuDeviceGetUuid) {
        UMF_LOG_ERROR("this CUDA driver is too old to name a device, it has no cuDeviceGetUuid_v2");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    CUresult result = cuda->context.driver->cuDeviceGetUuid(&uuid, cuda->context.device);
    if (result == CUDA_SUCCESS) {
        memcpy(id, &uuid, sizeof(uuid));
        *number = cuda->context.device;
    }
    return umf_cuda_result(result, "asking for the name of a device");
}

_Static_assert(sizeof(CUmemFabricHandle) == UMF_VMM_TOKEN_SIZE, "a token is a fabric handle");

static umf_result_t cuda_vmm_export_fabric(void *backend, umf_physical_t physical,
                                           unsigned char *token) {
    const umf_cuda_vmm_t *cuda = backend;
    CUmemFabricHandle handle;
    CUresult result;
    UMF_CUDA_CALL(&cuda->context, result,
                  cuMemExportToShareableHandle(&handle, (CUmemGenericAllocationHandle)physical,
                                               CU_MEM_HANDLE_TYPE_FABRIC, 0));
    if (result == CUDA_SUCCESS) {
        memcpy(token, &handle, sizeof(handle));
    }
    return umf_cuda_result(result, "exporting physical memory to the fabric");
}

static umf_result_t cuda_vmm_import_fabric(void *backend, const unsigned char *token, size_t size,
                                           umf_physical_t *physical) {
    const umf_cuda_vmm_t *cuda = backend;
    (void)size;
    CUmemFabricHandle fabric;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result;
    memcpy(&fabric, token, sizeof(fabric));
    UMF_CUDA_CALL(&cuda->context, result,
                  cuMemImportFromShareableHandle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC));
    if (result == CUDA_SUCCESS) {
        *physical = handle;
    }
    return umf_cuda_result(result, "importing physical memory from the fabric");
}

#define BACKEND_COMMON                                                                             \
    .reserve = cuda_vmm_reserve, .unreserve = cuda_vmm_unreserve, .create = cuda_vmm_create,       \
    .destroy = cuda_vmm_destroy, .map = cuda_vmm_map, .allow = cuda_vmm_allow,                     \
    .unmap = cuda_vmm_unmap, .settle = cuda_vmm_settle, .mark = cuda_vmm_mark,                     \
    .mark_completed = umf_cuda_mark_completed, .memory = cuda_vmm_memory, .is_device = true

static const umf_vmm_backend_t cuda_vmm_backend = {
    BACKEND_COMMON,
    .export_fd = cuda_vmm_export,
    .import = cuda_vmm_import,
    .allow_read = cuda_vmm_allow_read,
    .check = cuda_vmm_check,
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

const umf_vmm_backend_t *umf_cuda_vmm_choose_backend(umf_cuda_vmm_share_t share) {
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

CUmemAllocationHandleType umf_cuda_vmm_handle_type(umf_cuda_vmm_share_t share) {
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

/* Tries fabric handles: a device may support them and the process still lack the permission. */
static umf_result_t cuda_vmm_try_fabric(umf_cuda_vmm_t *cuda, size_t granularity) {
    unsigned char token[UMF_VMM_TOKEN_SIZE];
    CUmemGenericAllocationHandle handle = 0;
    CUresult made = cuda_vmm_create_at(cuda, cuda->properties, granularity, &handle);
    /* A lack of memory says nothing about fabric handles. */
    if (made == CUDA_ERROR_OUT_OF_MEMORY) {
        return umf_cuda_result(made, "trying fabric handles");
    }
    if (made != CUDA_SUCCESS) {
        umf_cuda_result(made, "trying fabric handles");
        UMF_LOG_ERROR("device %d has fabric handles, but this machine or process is not set up for "
                      "them (IMEX channels): share by UMF_CUDA_VMM_SHARE_FD",
                      cuda->context.device);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result = cuda_vmm_export_fabric(cuda, handle, token);
    cuda_vmm_destroy(cuda, handle);
    return result == UMF_RESULT_SUCCESS ? result : UMF_RESULT_ERROR_NOT_SUPPORTED;
}

umf_result_t umf_cuda_vmm_try_share(umf_cuda_vmm_t *cuda, size_t granularity) {
    bool is_fabric = umf_cuda_vmm_handle_type(cuda->share) == CU_MEM_HANDLE_TYPE_FABRIC;
    const umf_cuda_driver_t *driver = cuda->context.driver;
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
    CUresult result = driver->cuDeviceGetAttribute(
        &can,
        is_fabric ? CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
                  : CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        cuda->context.device);
    if (result != CUDA_SUCCESS || !can) {
        umf_cuda_result(result, "querying how the device can share memory");
        UMF_LOG_ERROR("device %d cannot share memory by %s", cuda->context.device,
                      is_fabric ? "fabric handles: use UMF_CUDA_VMM_SHARE_FD" : "descriptors");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return is_fabric ? cuda_vmm_try_fabric(cuda, granularity) : UMF_RESULT_SUCCESS;
}
