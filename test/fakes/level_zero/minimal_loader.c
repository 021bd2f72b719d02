/*
 * A Level Zero loader with nothing but the functions of required.def, for UMF_ZE_LOADER_LIB_NAME;
 * compiled with WITHOUT_<function> it lacks that one. Any handle will do, memory of all types is
 * plain memory of the host, and nothing can be shared.
 */
#include <stdlib.h>
#include <string.h>

#include <level_zero/ze_api.h>

static ze_result_t minimal_alloc(size_t size, size_t alignment, void **ptr) {
    return posix_memalign(ptr, alignment < 4096 ? 4096 : alignment, size)
               ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
               : ZE_RESULT_SUCCESS;
}

#ifndef WITHOUT_zeMemAllocHost
ze_result_t zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *wanted,
                           size_t size, size_t alignment, void **ptr) {
    (void)context, (void)wanted;
    return minimal_alloc(size, alignment, ptr);
}
#endif

#ifndef WITHOUT_zeMemAllocDevice
ze_result_t zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *wanted,
                             size_t size, size_t alignment, ze_device_handle_t device, void **ptr) {
    (void)context, (void)wanted, (void)device;
    return minimal_alloc(size, alignment, ptr);
}
#endif

#ifndef WITHOUT_zeMemAllocShared
ze_result_t zeMemAllocShared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *wanted,
                             const ze_host_mem_alloc_desc_t *wanted_on_host, size_t size,
                             size_t alignment, ze_device_handle_t device, void **ptr) {
    (void)context, (void)wanted, (void)wanted_on_host, (void)device;
    return minimal_alloc(size, alignment, ptr);
}
#endif

#ifndef WITHOUT_zeMemFree
ze_result_t zeMemFree(ze_context_handle_t context, void *ptr) {
    (void)context;
    free(ptr);
    return ZE_RESULT_SUCCESS;
}
#endif

#ifndef WITHOUT_zeMemGetIpcHandle
ze_result_t zeMemGetIpcHandle(ze_context_handle_t context, const void *ptr,
                              ze_ipc_mem_handle_t *handle) {
    (void)context, (void)ptr, (void)handle;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}
#endif

#ifndef WITHOUT_zeMemOpenIpcHandle
ze_result_t zeMemOpenIpcHandle(ze_context_handle_t context, ze_device_handle_t device,
                               ze_ipc_mem_handle_t handle, ze_ipc_memory_flags_t flags,
                               void **ptr) {
    (void)context, (void)device, (void)handle, (void)flags, (void)ptr;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}
#endif

#ifndef WITHOUT_zeMemCloseIpcHandle
ze_result_t zeMemCloseIpcHandle(ze_context_handle_t context, const void *ptr) {
    (void)context, (void)ptr;
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}
#endif

#ifndef WITHOUT_zeContextMakeMemoryResident
ze_result_t zeContextMakeMemoryResident(ze_context_handle_t context, ze_device_handle_t device,
                                        void *ptr, size_t size) {
    (void)context, (void)device, (void)ptr, (void)size;
    return ZE_RESULT_SUCCESS;
}
#endif

#ifndef WITHOUT_zeContextEvictMemory
ze_result_t zeContextEvictMemory(ze_context_handle_t context, ze_device_handle_t device, void *ptr,
                                 size_t size) {
    (void)context, (void)device, (void)ptr, (void)size;
    return ZE_RESULT_SUCCESS;
}
#endif

#ifndef WITHOUT_zeDeviceGetProperties
ze_result_t zeDeviceGetProperties(ze_device_handle_t device, ze_device_properties_t *properties) {
    (void)device;
    properties->type = ZE_DEVICE_TYPE_GPU;
    properties->maxMemAllocSize = (uint64_t)1 << 32;
    return ZE_RESULT_SUCCESS;
}
#endif

#ifndef WITHOUT_zeMemGetAllocProperties
ze_result_t zeMemGetAllocProperties(ze_context_handle_t context, const void *ptr,
                                    ze_memory_allocation_properties_t *properties,
                                    ze_device_handle_t *device) {
    (void)context, (void)ptr, (void)device;
    properties->type = ZE_MEMORY_TYPE_HOST;
    properties->id = 1;
    properties->pageSize = 4096;
    return ZE_RESULT_SUCCESS;
}
#endif
