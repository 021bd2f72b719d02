/* The devices of the CUDA driver (umf/cuda_device.h). */
#include <umf/cuda_device.h>

#include <stdatomic.h>

#include "base/log.h"
#include "providers/cuda/context.h"

/* Devices whose primary context MakeCurrent has retained. Those above 63 are retained each time. */
static _Atomic uint64_t device_retained;

/* The driver, started, with a device of that number. */
static umf_result_t device_driver(int device, const void *output, const umf_cuda_driver_t **driver,
                                  int *count) {
    char why[256];
    if (!output) {
        UMF_LOG_ERROR("the output is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_cuda_probe(why, sizeof(why));
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("%s", why);
        return result;
    }
    *driver = umf_cuda_driver(NULL, 0);
    if (!(*driver)->cuDeviceGetCount || !(*driver)->cuDevicePrimaryCtxRetain ||
        !(*driver)->cuDevicePrimaryCtxRelease) {
        UMF_LOG_ERROR("this CUDA driver is too old to name devices: install a newer one");
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    result = umf_cuda_result((*driver)->cuDeviceGetCount(count), "counting the devices");
    if (result == UMF_RESULT_SUCCESS && (device < 0 || device >= *count)) {
        UMF_LOG_ERROR("there is no device %d among the %d of this machine", device, *count);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfCUDADeviceCount(int *count) {
    const umf_cuda_driver_t *driver;
    int found;
    umf_result_t result = device_driver(0, count, &driver, &found);
    if (result == UMF_RESULT_SUCCESS) {
        *count = found;
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfCUDADeviceCurrent(int *device) {
    const umf_cuda_driver_t *driver;
    int count;
    CUdevice found = -1;
    CUcontext context = NULL;
    umf_result_t result = device_driver(0, device, &driver, &count);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    CUresult got = driver->cuCtxGetCurrent(&context);
    if (got == CUDA_SUCCESS && context) {
        got = driver->cuCtxGetDevice(&found);
    }
    if (got == CUDA_SUCCESS) {
        *device = found;
    }
    return umf_cuda_result(got, "asking for the current device");
}

static bool device_is_retained(int device) {
    uint64_t bit = device < 64 ? UINT64_C(1) << device : 0;
    return (atomic_fetch_or(&device_retained, bit) & bit) != 0;
}

UMF_API_EXT_1_3 umf_result_t umfCUDADeviceMakeCurrent(int device) {
    const umf_cuda_driver_t *driver;
    int count;
    CUcontext context;
    umf_result_t result = device_driver(device, &device, &driver, &count);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    CUresult made = umf_cuda_primary_retain(driver, device, &context);
    if (made == CUDA_SUCCESS) {
        made = driver->cuCtxSetCurrent(context);
        if (device_is_retained(device)) {
            umf_cuda_primary_release(driver, device);
        }
    }
    return umf_cuda_result(made, "making a device current");
}

UMF_API_EXT_1_3 umf_result_t umfCUDADeviceReaches(int device, int peer, bool *reaches) {
    const umf_cuda_driver_t *driver;
    int count, can = device == peer;
    umf_result_t result = device_driver(device, reaches, &driver, &count);
    if (result == UMF_RESULT_SUCCESS) {
        result = device_driver(peer, reaches, &driver, &count);
    }
    if (result == UMF_RESULT_SUCCESS && !can && driver->cuDeviceCanAccessPeer) {
        result = umf_cuda_result(driver->cuDeviceCanAccessPeer(&can, device, peer),
                                 "asking whether a device reaches another");
    }
    if (result == UMF_RESULT_SUCCESS) {
        *reaches = can != 0;
    }
    return result;
}

/* Memory is counted in a context, for which the primary one is retained. */
static CUresult device_count_memory(const umf_cuda_driver_t *driver, int device, size_t *left,
                                    size_t *total) {
    umf_cuda_context_t context = {.driver = driver, .device = device};
    if (!driver->cuMemGetInfo) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = umf_cuda_primary_retain(driver, device, &context.handle);
    if (result == CUDA_SUCCESS) {
        UMF_CUDA_CALL(&context, result, cuMemGetInfo(left, total));
        umf_cuda_primary_release(driver, device);
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfCUDADeviceMemory(int device, size_t *left, size_t *total) {
    const umf_cuda_driver_t *driver;
    int count;
    size_t found_left = 0, found_total = 0;
    umf_result_t result = device_driver(device, left && total ? left : NULL, &driver, &count);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    CUresult got = device_count_memory(driver, device, &found_left, &found_total);
    if (got == CUDA_SUCCESS) {
        *left = found_left;
        *total = found_total;
    }
    return umf_cuda_result(got, "asking for the memory of a device");
}

UMF_API_EXT_1_3 umf_result_t umfCUDADeviceHasManagedMemory(int device, bool *has) {
    const umf_cuda_driver_t *driver;
    int count, managed = 0;
    umf_result_t result = device_driver(device, has, &driver, &count);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    CUresult got = CUDA_SUCCESS;
    if (driver->cuDeviceGetAttribute) {
        got = driver->cuDeviceGetAttribute(&managed, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device);
    }
    if (got == CUDA_SUCCESS) {
        *has = managed != 0;
    }
    return umf_cuda_result(got, "asking whether a device has managed memory");
}

/* The context of managed memory. NULL: the memory is not managed. */
static CUcontext managed_context(const umf_cuda_driver_t *driver, CUdeviceptr address) {
    unsigned is_managed = 0;
    CUcontext context = NULL;
    if (!driver->cuPointerGetAttribute ||
        driver->cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) !=
            CUDA_SUCCESS ||
        !is_managed ||
        driver->cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address) !=
            CUDA_SUCCESS) {
        return NULL;
    }
    return context;
}

UMF_API_EXT_1_3 umf_result_t umfCUDAPrefetch(const void *ptr, size_t size, int device,
                                             void *stream) {
    const umf_cuda_driver_t *driver;
    int count = 0;
    umf_result_t result = device_driver(device == -1 ? 0 : device, &count, &driver, &count);
    if (result != UMF_RESULT_SUCCESS || size == 0) {
        return result;
    }
    if (!driver->cuMemPrefetchAsync) {
        UMF_LOG_ERROR("this CUDA driver is too old to prefetch memory: install a newer one");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_cuda_context_t context = {.driver = driver,
                                  .handle = managed_context(driver, (CUdeviceptr)(uintptr_t)ptr)};
    if (!context.handle) {
        UMF_LOG_ERROR("%p is not managed memory: allocate it from a provider with the memory type "
                      "'shared' (managed)",
                      ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    CUresult moved;
    UMF_CUDA_CALL(&context, moved,
                  cuMemPrefetchAsync((CUdeviceptr)(uintptr_t)ptr, size,
                                     device == -1 ? CU_DEVICE_CPU : device, stream));
    return umf_cuda_result(moved, "prefetching memory");
}
