/* Cuda_vmm: pinning memory of the host, and memory of other devices. */
#include "providers/cuda/copy.h"
#include "providers/cuda/vmm/cuda_vmm_own.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "system/os.h"

/* The node of the device on the bus, from the system, for drivers that do not report it.
 * -1: unknown. */
static int cuda_vmm_node_of_bus(const umf_cuda_vmm_t *cuda) {
    char bus[32] = "", path[96], text[16] = "";
    size_t length = 0;
    int fd;
    if (!cuda->context.driver->cuDeviceGetPCIBusId ||
        cuda->context.driver->cuDeviceGetPCIBusId(bus, sizeof(bus), cuda->context.device) !=
            CUDA_SUCCESS) {
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

umf_result_t umf_cuda_vmm_host_node(void *provider, unsigned *node) {
    const umf_cuda_vmm_t *cuda = provider;
    int found = -1;
    CUresult result = cuda->context.driver->cuDeviceGetAttribute(
        &found, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, cuda->context.device);
    if (result != CUDA_SUCCESS || found < 0) {
        found = cuda_vmm_node_of_bus(cuda);
    }
    if (found < 0) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    *node = (unsigned)found;
    return UMF_RESULT_SUCCESS;
}

static CUresult cuda_vmm_map_for(const umf_cuda_vmm_t *cuda, uintptr_t base, size_t size,
                                 CUmemGenericAllocationHandle handle, const CUmemAccessDesc *access,
                                 size_t count) {
    CUresult result = cuda->context.driver->cuMemMap((CUdeviceptr)base, size, 0, handle, 0);
    if (result == CUDA_SUCCESS) {
        result = cuda->context.driver->cuMemSetAccess((CUdeviceptr)base, size, access, count);
        if (result != CUDA_SUCCESS) {
            cuda->context.driver->cuMemUnmap((CUdeviceptr)base, size);
        }
    }
    return result;
}

/* Maps `handle` at any address, with access for this device and for `device`. */
static CUresult cuda_vmm_map_anywhere(const umf_cuda_vmm_t *cuda,
                                      CUmemGenericAllocationHandle handle, size_t size, int device,
                                      uintptr_t *base) {
    CUmemAccessDesc access[2] = {cuda->access[0], cuda->access[0]};
    access[1].location.id = device;
    CUdeviceptr address = 0;
    CUresult result = cuda->context.driver->cuMemAddressReserve(&address, size, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = cuda_vmm_map_for(cuda, (uintptr_t)address, size, handle, access,
                              device == cuda->context.device ? 1 : 2);
    if (result != CUDA_SUCCESS) {
        cuda->context.driver->cuMemAddressFree(address, size);
        return result;
    }
    *base = (uintptr_t)address;
    return CUDA_SUCCESS;
}

/* Makes memory and maps it. The mapping keeps it, so the handle is released at once. */
static CUresult cuda_vmm_peer_make(const umf_cuda_vmm_t *cuda, int device, size_t size,
                                   uintptr_t *base) {
    CUmemAllocationProp properties = cuda->properties;
    properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    properties.allocFlags.gpuDirectRDMACapable = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cuda->context.driver->cuMemCreate(&handle, size, &properties, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = cuda_vmm_map_anywhere(cuda, handle, size, device, base);
    cuda->context.driver->cuMemRelease(handle);
    return result;
}

static bool cuda_vmm_reaches(const umf_cuda_vmm_t *cuda, int device) {
    int can = 0;
    return device == cuda->context.device ||
           (cuda->context.driver->cuDeviceCanAccessPeer &&
            cuda->context.driver->cuDeviceCanAccessPeer(&can, cuda->context.device, device) ==
                CUDA_SUCCESS &&
            can);
}

umf_result_t umf_cuda_vmm_peer_alloc(void *provider, int device, size_t size, void **ptr) {
    const umf_cuda_vmm_t *cuda = provider;
    size_t rounded;
    if (!cuda_vmm_reaches(cuda, device)) {
        UMF_LOG_ERROR("device %d cannot reach device %d", cuda->context.device, device);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!umf_round_up(size, cuda->vmm.carve.page_size, &rounded)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    uintptr_t base = 0;
    umf_cuda_scope_t scope;
    CUresult made = umf_cuda_enter(&cuda->context, &scope);
    if (made == CUDA_SUCCESS) {
        made = umf_cuda_leave(&scope, cuda_vmm_peer_make(cuda, device, rounded, &base));
    }
    if (made == CUDA_SUCCESS) {
        *ptr = (void *)base;
    }
    return umf_cuda_result(made, "making memory on another device");
}

umf_result_t umf_cuda_vmm_peer_free(void *provider, void *ptr, size_t size) {
    const umf_cuda_vmm_t *cuda = provider;
    CUdeviceptr base = (CUdeviceptr)(uintptr_t)ptr;
    size_t rounded = 0;
    umf_cuda_scope_t scope;
    umf_round_up(size, cuda->vmm.carve.page_size, &rounded);
    /* Virtual memory outlives contexts, so this is done even if the context cannot be entered. */
    umf_cuda_enter(&cuda->context, &scope);
    CUresult result = cuda->context.driver->cuMemUnmap(base, rounded);
    if (result == CUDA_SUCCESS) {
        result = cuda->context.driver->cuMemAddressFree(base, rounded);
    }
    return umf_cuda_given_back(umf_cuda_leave(&scope, result), "unmapping memory");
}
