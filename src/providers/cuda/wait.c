/* Waiting for work that others queued. */
#include "providers/cuda/wait.h"

#include "providers/gpu/capture.h"

/* The default stream answers IMPLICIT while a blocking stream of its context is captured. */
CUresult umf_cuda_ask_capture(const umf_cuda_driver_t *driver, CUstream stream, bool *is_captured) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result =
        driver->cuStreamIsCapturing ? driver->cuStreamIsCapturing(stream, &status) : CUDA_SUCCESS;
    *is_captured = umf_cuda_is_of_capture(result) || status != CU_STREAM_CAPTURE_STATUS_NONE;
    return *is_captured ? CUDA_SUCCESS : result;
}

bool umf_cuda_is_captured(const umf_cuda_driver_t *driver, CUstream stream) {
    bool is_captured;
    umf_cuda_ask_capture(driver, stream, &is_captured);
    return is_captured;
}

/* --- whole contexts --------------------------------------------------------------------------- */

/* Waits for the current context. */
static CUresult wait_current(const umf_cuda_driver_t *driver) {
    return umf_cuda_is_captured(driver, CU_STREAM_LEGACY) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                          : driver->cuCtxSynchronize();
}

static CUresult wait_context(const umf_cuda_context_t *context) {
    umf_cuda_scope_t scope;
    CUresult result = umf_cuda_enter(context, &scope);
    return result == CUDA_SUCCESS ? umf_cuda_leave(&scope, wait_current(context->driver)) : result;
}

static bool can_find_primary(const umf_cuda_driver_t *driver) {
    return driver->cuDevicePrimaryCtxGetState && driver->cuDevicePrimaryCtxRetain &&
           driver->cuDevicePrimaryCtxRelease;
}

bool umf_cuda_primary_use(const umf_cuda_driver_t *driver, CUdevice device, CUcontext *context) {
    unsigned flags;
    int is_active = 0;
    return can_find_primary(driver) &&
           driver->cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS &&
           is_active && umf_cuda_primary_retain(driver, device, context) == CUDA_SUCCESS;
}

/* Waits for a primary context, which is retained meanwhile so that it cannot end. */
static CUresult wait_primary(const umf_cuda_driver_t *driver, CUdevice device, CUcontext but) {
    umf_cuda_context_t primary = {.driver = driver, .device = device};
    if (!umf_cuda_primary_use(driver, device, &primary.handle)) {
        return CUDA_SUCCESS;
    }
    CUresult result = primary.handle == but ? CUDA_SUCCESS : wait_context(&primary);
    umf_cuda_primary_release(driver, device);
    return result;
}

/* The more serious result. A capture is the most serious: some work was not waited for. */
static CUresult graver(CUresult first, CUresult next) {
    return first == CUDA_SUCCESS || umf_cuda_is_of_capture(next) ? next : first;
}

static CUresult wait_places(const umf_cuda_context_t *context) {
    CUcontext own = context->handle;
    CUresult result = wait_context(context);
    for (size_t i = 0; i < context->access_count && !umf_cuda_is_of_capture(result); i++) {
        const CUmemLocation *at = &context->access[i].location;
        if (at->type == CU_MEM_LOCATION_TYPE_DEVICE) {
            result = graver(result, wait_primary(context->driver, at->id, own));
        }
    }
    return result;
}

static void tell_capture(umf_log_level_t level, const char *which, const void *queue) {
    umf_log_write(level, 0, __func__,
                  "the device is not waited for, because that would end the capture of %s %p: name "
                  "queues or events, or end the capture first",
                  which, queue);
}

/* Waits, and logs captures. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: a capture, already logged. */
static CUresult wait_unlogged(const umf_cuda_context_t *context, umf_log_level_t level) {
    const void *queue;
    if (!umf_capture_enter_wait(&queue)) {
        tell_capture(level, "queue", queue);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    CUresult result = wait_places(context);
    umf_capture_leave_wait();
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        tell_capture(level, "a blocking stream of context", context->handle);
    } else if (umf_cuda_is_of_capture(result)) {
        umf_cuda_result(result, "waiting for queued work while a stream is captured without "
                                "umfCaptureBegins");
    }
    return umf_cuda_is_of_capture(result) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

static umf_result_t wait_all(const umf_cuda_context_t *context) {
    CUresult result = wait_unlogged(context, UMF_LOG_LEVEL_ERROR);
    return umf_cuda_is_of_capture(result) ? UMF_RESULT_ERROR_OUT_OF_RESOURCES
                                          : umf_cuda_result(result, "waiting for queued work");
}

/* Twice if the first wait fails: it may return the error of earlier work. */
umf_result_t umf_cuda_op_settle(void *provider) {
    CUresult result = wait_unlogged(provider, UMF_LOG_LEVEL_DEBUG);
    if (!umf_cuda_runs_nothing(result) && !umf_cuda_is_of_capture(result)) {
        result = wait_unlogged(provider, UMF_LOG_LEVEL_DEBUG);
    }
    if (umf_cuda_is_of_capture(result)) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_result_t logged = umf_cuda_result(result, "waiting for queued work");
    return umf_cuda_runs_nothing(result) ? UMF_RESULT_SUCCESS : logged;
}

CUresult umf_cuda_ask_event(const umf_cuda_driver_t *driver, CUevent event, bool waits) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (int i = 0; i < 2 && result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY; i++) {
        result = waits ? driver->cuEventSynchronize(event) : driver->cuEventQuery(event);
    }
    return result;
}

/* --- streams and events ----------------------------------------------------------------------- */

static CUresult wait_each(const umf_cuda_driver_t *driver, void *const *queues, size_t num_queues,
                          void *const *events, size_t num_events) {
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < num_queues && result == CUDA_SUCCESS; i++) {
        result = driver->cuStreamSynchronize(queues[i]);
    }
    for (size_t i = 0; i < num_events && result == CUDA_SUCCESS; i++) {
        result = driver->cuEventSynchronize(events[i]);
    }
    return result;
}

/* The first queue that is captured. Checked before any wait, because a wait would end
 * the capture. */
static size_t find_captured(const umf_cuda_driver_t *driver, void *const *queues, size_t count) {
    size_t at = 0;
    while (at < count && !umf_cuda_is_captured(driver, queues[at])) {
        at++;
    }
    return at;
}

umf_result_t umf_cuda_op_wait_for(void *provider, void *const *queues, size_t num_queues,
                                  void *const *events, size_t num_events) {
    const umf_cuda_context_t *context = provider;
    umf_cuda_scope_t scope;
    size_t captured = num_queues;
    CUresult result = umf_cuda_enter(context, &scope);
    if (result == CUDA_SUCCESS) {
        captured = find_captured(context->driver, queues, num_queues);
        result = captured < num_queues
                     ? CUDA_SUCCESS
                     : wait_each(context->driver, queues, num_queues, events, num_events);
        result = umf_cuda_leave(&scope, result);
    }
    if (captured < num_queues) {
        UMF_LOG_ERROR("queue %p is captured, so it cannot be waited for: end the capture first",
                      queues[captured]);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return umf_cuda_result(result, "waiting for queued work");
}

umf_result_t umf_cuda_op_wait(void *provider, void *const *queues, size_t num_queues,
                              void *const *events, size_t num_events) {
    return num_queues || num_events
               ? umf_cuda_op_wait_for(provider, queues, num_queues, events, num_events)
               : wait_all(provider);
}
