/* DMA buffers of memory of the CUDA driver, and descriptors that the driver makes. */
#include "base/log.h"
#include "base/native.h"
#include "providers/cuda/copy.h"
#include "system/os.h"

umf_result_t umf_cuda_own_descriptor(int made, int *fd) {
    int error = umf_os_dup(made, fd);
    umf_os_close(made);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "no descriptor to share memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

/* Logs if not SUCCESS. */
static umf_result_t dmabuf_check(const umf_cuda_context_t *context) {
    const umf_cuda_driver_t *driver = context->driver;
    int can = 0;
    if (context->memory_type != UMF_MEMORY_TYPE_DEVICE) {
        UMF_LOG_ERROR("the driver makes DMA buffers of memory of a device only");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!driver->cuMemGetHandleForAddressRange || !driver->cuDeviceGetAttribute) {
        UMF_LOG_ERROR("this CUDA driver is too old for DMA buffers, it has no "
                      "cuMemGetHandleForAddressRange: install version 11.7 or later");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result = umf_cuda_result(
        driver->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, context->device),
        "asking the device for DMA buffers");
    if (result == UMF_RESULT_SUCCESS && !can) {
        UMF_LOG_ERROR("device %d has no DMA buffers: they need the open kernel modules of the "
                      "driver",
                      context->device);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return result;
}

umf_result_t umf_cuda_op_dmabuf(void *provider, const void *ptr, size_t begin, size_t size, int *fd,
                                size_t *offset) {
    const umf_cuda_context_t *context = provider;
    umf_result_t result = dmabuf_check(context);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    /* The driver takes whole pages of the host. */
    size_t page = umf_os_page_size();
    uintptr_t first = (uintptr_t)ptr + begin, base = first & ~(uintptr_t)(page - 1);
    size_t length;
    if (!umf_round_up(first - base + size, page, &length)) {
        UMF_LOG_ERROR("%zu bytes are too many", size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    int made = -1;
    CUresult called;
    UMF_CUDA_CALL(context, called,
                  cuMemGetHandleForAddressRange(&made, (CUdeviceptr)base, length,
                                                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    result = umf_cuda_result(called, "making a DMA buffer");
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_cuda_own_descriptor(made, fd);
    }
    if (result == UMF_RESULT_SUCCESS) {
        *offset = first - base;
    }
    return result;
}
