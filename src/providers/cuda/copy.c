/* Copying and filling memory on CUDA streams. */
#include "providers/cuda/copy.h"

#include "base/log.h"

static bool can_copy(const umf_cuda_driver_t *driver) {
    return driver->cuStreamCreate && driver->cuStreamDestroy && driver->cuStreamSynchronize &&
           driver->cuMemcpyAsync && driver->cuMemsetD8Async;
}

umf_result_t umf_cuda_queue_create(const umf_cuda_driver_t *driver,
                                   const umf_cuda_context_t *context, void **queue) {
    if (!can_copy(driver)) {
        UMF_LOG_ERROR("this CUDA driver is too old to copy memory for the provider");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    CUstream stream = NULL;
    CUresult result;
    UMF_CUDA_CALL(driver, context, result, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (result == CUDA_SUCCESS) {
        *queue = stream;
    }
    return umf_cuda_result(driver, result, "making a stream");
}

umf_result_t umf_cuda_queue_destroy(const umf_cuda_driver_t *driver,
                                    const umf_cuda_context_t *context, void *queue) {
    CUresult result;
    UMF_CUDA_CALL(driver, context, result, cuStreamDestroy(queue));
    return umf_cuda_given_back(driver, result, "destroying a stream");
}

umf_result_t umf_cuda_queue_wait(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                 void *queue) {
    CUresult result;
    UMF_CUDA_CALL(driver, context, result, cuStreamSynchronize(queue));
    return umf_cuda_result(driver, result, "waiting for a stream");
}

umf_result_t umf_cuda_copy(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                           void *queue, void *dst, const void *src, size_t size) {
    CUresult result;
    UMF_CUDA_CALL(
        driver, context, result,
        cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, size, queue));
    return umf_cuda_result(driver, result, "copying memory");
}

umf_result_t umf_cuda_fill(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                           void *queue, void *dst, uint8_t value, size_t size) {
    CUresult result;
    UMF_CUDA_CALL(driver, context, result,
                  cuMemsetD8Async((CUdeviceptr)(uintptr_t)dst, value, size, queue));
    return umf_cuda_result(driver, result, "filling memory");
}
