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
    return umf_cuda_wait_for(driver, context, &queue, 1, NULL, 0);
}

umf_result_t umf_cuda_copy(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                           void *queue, void *dst, const void *src, size_t size) {
    CUresult result;
    UMF_CUDA_CALL(
        driver, context, result,
        cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, size, queue));
    return umf_cuda_result(driver, result, "copying memory");
}

#define ROWS_PITCH_MAX ((size_t)INT32_MAX) /* of all devices so far */

umf_result_t umf_cuda_copy_rows(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                void *queue, const CUDA_MEMCPY2D *rows) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (driver->cuMemcpy2DAsync && rows->srcPitch <= ROWS_PITCH_MAX &&
        rows->dstPitch <= ROWS_PITCH_MAX) {
        UMF_CUDA_CALL(driver, context, result, cuMemcpy2DAsync(rows, queue));
    }
    return result == CUDA_ERROR_INVALID_VALUE ? UMF_RESULT_ERROR_NOT_SUPPORTED
                                              : umf_cuda_result(driver, result, "copying rows");
}

umf_result_t umf_cuda_fill(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                           void *queue, void *dst, uint8_t value, size_t size) {
    CUresult result;
    UMF_CUDA_CALL(driver, context, result,
                  cuMemsetD8Async((CUdeviceptr)(uintptr_t)dst, value, size, queue));
    return umf_cuda_result(driver, result, "filling memory");
}

static bool can_pin(const umf_cuda_driver_t *driver) {
    return driver->cuMemHostRegister && driver->cuMemHostUnregister;
}

umf_result_t umf_cuda_host_pin(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                               void *ptr, size_t size) {
    CUresult result = CUDA_SUCCESS;
    if (can_pin(driver)) {
        UMF_CUDA_CALL(driver, context, result, cuMemHostRegister(ptr, size, 0));
    }
    return umf_cuda_result(driver, result, "pinning host memory");
}

umf_result_t umf_cuda_host_unpin(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                 void *ptr) {
    CUresult result = CUDA_SUCCESS;
    if (can_pin(driver)) {
        UMF_CUDA_CALL(driver, context, result, cuMemHostUnregister(ptr));
    }
    return umf_cuda_given_back(driver, result, "unpinning host memory");
}

umf_result_t umf_cuda_op_copy_domain(void *provider, const void **domain) {
    static const char all = 0;
    (void)provider;
    *domain = &all;
    return UMF_RESULT_SUCCESS;
}

/* --- events ----------------------------------------------------------------------------------- */

umf_result_t umf_cuda_queue_join(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                 void *queue, void *const *events, size_t num_events) {
    if (!driver->cuStreamWaitEvent) {
        UMF_LOG_ERROR("this CUDA driver is too old to let a stream wait for events");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_cuda_scope_t scope;
    CUresult result = umf_cuda_enter(driver, context, &scope);
    if (result == CUDA_SUCCESS) {
        for (size_t i = 0; i < num_events && result == CUDA_SUCCESS; i++) {
            result = driver->cuStreamWaitEvent(queue, events[i], 0);
        }
        result = umf_cuda_leave(driver, &scope, result);
    }
    return umf_cuda_result(driver, result, "letting a stream wait for an event");
}

umf_result_t umf_cuda_event_record(const umf_cuda_driver_t *driver,
                                   const umf_cuda_context_t *context, void *event, void *queue) {
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver->cuEventRecord) {
        UMF_CUDA_CALL(driver, context, result, cuEventRecord(event, queue));
    }
    return umf_cuda_result(driver, result, "recording an event");
}

static CUresult mark_make(const umf_cuda_driver_t *driver, CUstream stream, CUevent *mark) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUevent made;
    CUresult result =
        driver->cuStreamIsCapturing ? driver->cuStreamIsCapturing(stream, &status) : CUDA_SUCCESS;
    *mark = NULL;
    if (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return result;
    }
    result = driver->cuEventCreate(&made, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = driver->cuEventRecord(made, stream);
    if (result == CUDA_SUCCESS) {
        *mark = made;
    } else {
        driver->cuEventDestroy(made);
    }
    return result;
}

umf_result_t umf_cuda_queue_mark(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                                 void *queue, void **mark) {
    if (!driver->cuEventCreate || !driver->cuEventRecord || !driver->cuEventQuery ||
        !driver->cuEventSynchronize || !driver->cuEventDestroy) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_cuda_scope_t scope;
    CUevent made = NULL;
    CUresult result = umf_cuda_enter(driver, context, &scope);
    if (result == CUDA_SUCCESS) {
        result = umf_cuda_leave(driver, &scope, mark_make(driver, queue, &made));
    }
    if (result == CUDA_SUCCESS) {
        *mark = made;
    }
    return umf_cuda_result(driver, result, "marking a stream");
}

/* A mark that gives an error has passed: its context has ended, or work on it failed. */
int umf_cuda_mark_wait(const umf_cuda_driver_t *driver, const umf_cuda_context_t *context,
                       void *mark, int may_block) {
    umf_cuda_scope_t scope;
    CUresult entered = umf_cuda_enter(driver, context, &scope), result = entered;
    if (entered == CUDA_SUCCESS) {
        result = may_block ? driver->cuEventSynchronize(mark) : driver->cuEventQuery(mark);
    }
    bool has_passed = result != CUDA_ERROR_NOT_READY;
    if (has_passed) {
        driver->cuEventDestroy(mark);
    }
    if (entered == CUDA_SUCCESS) {
        umf_cuda_leave(driver, &scope, CUDA_SUCCESS);
    }
    return has_passed;
}
