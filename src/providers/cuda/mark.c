/* Marks of whole contexts. */
#include "providers/cuda/mark.h"

#include "base/meta.h"
#include "providers/gpu/capture.h"

typedef struct mark_event_t {
    CUevent event; /* NULL: there is none */
    CUdevice device;
    bool is_retained; /* the primary context of the device, until the mark ends */
} mark_event_t;

typedef struct mark_t {
    size_t count;
    mark_event_t events[]; /* of the provider's context, then of the devices with access */
} mark_t;

static size_t mark_bytes(size_t count) {
    return sizeof(mark_t) + count * sizeof(mark_event_t);
}

static bool can_mark(const umf_cuda_driver_t *driver) {
    return driver->cuCtxRecordEvent && driver->cuEventCreate && driver->cuEventQuery &&
           driver->cuEventSynchronize && driver->cuEventDestroy;
}

/* In the current context, which is `context`. */
static CUresult record_current(const umf_cuda_driver_t *driver, CUcontext context,
                               mark_event_t *made) {
    CUevent event;
    if (umf_cuda_is_captured(driver, CU_STREAM_LEGACY)) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    CUresult result = driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = driver->cuCtxRecordEvent(context, event);
    if (result == CUDA_SUCCESS) {
        made->event = event;
    } else {
        driver->cuEventDestroy(event);
    }
    return result;
}

static CUresult record(const umf_cuda_context_t *context, mark_event_t *made) {
    umf_cuda_scope_t scope;
    CUresult result = umf_cuda_enter(context, &scope);
    return result == CUDA_SUCCESS
               ? umf_cuda_leave(&scope, record_current(context->driver, context->handle, made))
               : result;
}

/* A primary context stays retained until the mark ends, so that its event does. */
static CUresult record_primary(const umf_cuda_driver_t *driver, CUdevice device, CUcontext but,
                               mark_event_t *made) {
    umf_cuda_context_t primary = {.driver = driver, .device = device};
    if (!umf_cuda_primary_use(driver, device, &primary.handle)) {
        return CUDA_SUCCESS;
    }
    CUresult result = primary.handle == but ? CUDA_SUCCESS : record(&primary, made);
    made->device = device;
    made->is_retained = made->event != NULL;
    if (!made->is_retained) {
        umf_cuda_primary_release(driver, device);
    }
    return result;
}

static CUresult record_places(const umf_cuda_context_t *context, mark_t *mark) {
    CUcontext own = context->handle;
    CUresult result = record(context, &mark->events[0]);
    for (size_t i = 0; i < context->access_count && !umf_cuda_is_of_capture(result); i++) {
        const CUmemLocation *at = &context->access[i].location;
        if (at->type == CU_MEM_LOCATION_TYPE_DEVICE) {
            CUresult next = record_primary(context->driver, at->id, own, &mark->events[1 + i]);
            result = result == CUDA_SUCCESS || umf_cuda_is_of_capture(next) ? next : result;
        }
    }
    return result;
}

static void end(const umf_cuda_driver_t *driver, mark_t *mark, bool is_alive) {
    for (size_t i = 0; i < mark->count; i++) {
        mark_event_t *each = &mark->events[i];
        if (each->event && (is_alive || each->is_retained)) {
            driver->cuEventDestroy(each->event);
        }
        if (each->is_retained) {
            umf_cuda_primary_release(driver, each->device);
        }
    }
    umf_meta_free(mark, mark_bytes(mark->count));
}

/* The caller waits for work that cannot be marked for another reason than a capture: a wait detects
 * a context that has ended. */
static umf_result_t mark_result(CUresult result) {
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        UMF_LOG_DEBUG("queued work is not marked, because that would end the capture of a blocking "
                      "stream");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (umf_cuda_is_of_capture(result)) {
        umf_cuda_result(result, "marking queued work while a stream is captured without "
                                "umfCaptureBegins");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return result == CUDA_SUCCESS ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_NOT_SUPPORTED;
}

umf_result_t umf_cuda_mark_all(const umf_cuda_context_t *context, void **mark) {
    const void *queue;
    if (!can_mark(context->driver)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    mark_t *made = umf_meta_alloc(mark_bytes(1 + context->access_count));
    if (!made) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    made->count = 1 + context->access_count;
    if (!umf_capture_enter_wait(&queue)) {
        UMF_LOG_DEBUG("queued work is not marked, because that would end the capture of queue %p",
                      queue);
        end(context->driver, made, true);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_result_t result = mark_result(record_places(context, made));
    umf_capture_leave_wait();
    if (result == UMF_RESULT_SUCCESS) {
        *mark = made;
    } else {
        end(context->driver, made, true);
    }
    return result;
}

static bool has_completed(const umf_cuda_driver_t *driver, const mark_t *mark, bool waits) {
    for (size_t i = 0; i < mark->count; i++) {
        CUevent event = mark->events[i].event;
        if (event && !umf_cuda_runs_nothing(umf_cuda_ask_event(driver, event, waits))) {
            return false;
        }
    }
    return true;
}

/* A mark has completed, too, if its context has ended or work on it failed. One that cannot be
 * queried has not, and one whose context cannot be entered. */
bool umf_cuda_mark_completed(void *provider, void *mark, bool waits) {
    const umf_cuda_context_t *context = provider;
    umf_cuda_scope_t scope;
    CUresult entered = umf_cuda_enter(context, &scope);
    bool is_alive = !umf_cuda_has_ended(entered), may_ask = entered == CUDA_SUCCESS || waits;
    bool passed = !is_alive || (may_ask && has_completed(context->driver, mark, waits));
    if (passed) {
        end(context->driver, mark, is_alive);
    }
    if (entered == CUDA_SUCCESS) {
        umf_cuda_leave(&scope, CUDA_SUCCESS);
    }
    return passed;
}
