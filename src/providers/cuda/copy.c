/* Copying and filling memory on CUDA streams. */
#include "providers/cuda/copy.h"

#include "base/log.h"
#include "base/thread_slot.h"

static bool can_copy(const umf_cuda_driver_t *driver) {
    return driver->cuStreamCreate && driver->cuStreamDestroy && driver->cuStreamSynchronize &&
           driver->cuMemcpyAsync && driver->cuMemsetD8Async;
}

umf_result_t umf_cuda_op_queue_create(void *provider, void **queue) {
    const umf_cuda_context_t *context = provider;
    if (!can_copy(context->driver)) {
        UMF_LOG_ERROR("this CUDA driver is too old to copy memory for the provider");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    CUstream stream = NULL;
    CUresult result;
    UMF_CUDA_CALL(context, result, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (result == CUDA_SUCCESS) {
        *queue = stream;
    }
    return umf_cuda_result(result, "making a stream");
}

/* The driver destroys a stream at once and goes on with its work, on memory that is about to go. */
umf_result_t umf_cuda_op_queue_destroy(void *provider, void *queue) {
    const umf_cuda_context_t *context = provider;
    umf_cuda_scope_t scope;
    CUresult result = umf_cuda_enter(context, &scope);
    if (result == CUDA_SUCCESS) {
        /* The error of its work belongs to who waited for it. */
        context->driver->cuStreamSynchronize(queue);
        result = umf_cuda_leave(&scope, context->driver->cuStreamDestroy(queue));
    }
    return umf_cuda_given_back(result, "destroying a stream");
}

umf_result_t umf_cuda_op_queue_wait(void *provider, void *queue) {
    return umf_cuda_op_wait_for(provider, &queue, 1, NULL, 0);
}

umf_result_t umf_cuda_op_copy(void *provider, void *queue, void *dst, const void *src,
                              size_t size) {
    const umf_cuda_context_t *context = provider;
    CUresult result;
    UMF_CUDA_CALL(
        context, result,
        cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, size, queue));
    return umf_cuda_result(result, "copying memory");
}

#define ROWS_PITCH_MAX ((size_t)INT32_MAX) /* of all devices so far */

umf_result_t umf_cuda_op_copy_rows(void *provider, void *queue, void *dst, size_t dst_pitch,
                                   const void *src, size_t src_pitch, size_t size, size_t count) {
    const umf_cuda_context_t *context = provider;
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = (CUdeviceptr)(uintptr_t)src,
                                .srcPitch = src_pitch,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = (CUdeviceptr)(uintptr_t)dst,
                                .dstPitch = dst_pitch,
                                .WidthInBytes = size,
                                .Height = count};
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (context->driver->cuMemcpy2DAsync && src_pitch <= ROWS_PITCH_MAX &&
        dst_pitch <= ROWS_PITCH_MAX) {
        UMF_CUDA_CALL(context, result, cuMemcpy2DAsync(&rows, queue));
    }
    return result == CUDA_ERROR_INVALID_VALUE ? UMF_RESULT_ERROR_NOT_SUPPORTED
                                              : umf_cuda_result(result, "copying rows");
}

umf_result_t umf_cuda_op_fill(void *provider, void *queue, void *dst, uint8_t value, size_t size) {
    const umf_cuda_context_t *context = provider;
    CUresult result;
    UMF_CUDA_CALL(context, result,
                  cuMemsetD8Async((CUdeviceptr)(uintptr_t)dst, value, size, queue));
    return umf_cuda_result(result, "filling memory");
}

static bool can_pin(const umf_cuda_driver_t *driver) {
    return driver->cuMemHostRegister && driver->cuMemHostUnregister;
}

/* Memory that is mapped read-only, such as a sealed file, is refused without the flag. */
static CUresult pin(const umf_cuda_driver_t *driver, void *ptr, size_t size) {
    CUresult result = driver->cuMemHostRegister(ptr, size, 0);
    bool may_be_read_only =
        result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_OPERATING_SYSTEM;
    return may_be_read_only ? driver->cuMemHostRegister(ptr, size, CU_MEMHOSTREGISTER_READ_ONLY)
                            : result;
}

umf_result_t umf_cuda_op_host_pin(void *provider, void *ptr, size_t size) {
    const umf_cuda_context_t *context = provider;
    umf_cuda_scope_t scope;
    CUresult result = CUDA_SUCCESS;
    if (can_pin(context->driver)) {
        result = umf_cuda_enter(context, &scope);
        if (result == CUDA_SUCCESS) {
            result = umf_cuda_leave(&scope, pin(context->driver, ptr, size));
        }
    }
    return umf_cuda_result(result, "pinning host memory");
}

umf_result_t umf_cuda_op_host_unpin(void *provider, void *ptr, size_t size) {
    const umf_cuda_context_t *context = provider;
    (void)size;
    CUresult result = CUDA_SUCCESS;
    if (can_pin(context->driver)) {
        UMF_CUDA_CALL(context, result, cuMemHostUnregister(ptr));
    }
    return umf_cuda_given_back(result, "unpinning host memory");
}

umf_result_t umf_cuda_op_copy_domain(void *provider, const void **domain) {
    static const char all = 0;
    (void)provider;
    *domain = &all;
    return UMF_RESULT_SUCCESS;
}

/* --- events ----------------------------------------------------------------------------------- */

umf_result_t umf_cuda_op_queue_join(void *provider, void *queue, void *const *events,
                                    size_t num_events) {
    const umf_cuda_context_t *context = provider;
    if (!context->driver->cuStreamWaitEvent) {
        UMF_LOG_ERROR("this CUDA driver is too old to let a stream wait for events");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_cuda_scope_t scope;
    CUresult result = umf_cuda_enter(context, &scope);
    if (result == CUDA_SUCCESS) {
        for (size_t i = 0; i < num_events && result == CUDA_SUCCESS; i++) {
            result = context->driver->cuStreamWaitEvent(queue, events[i], 0);
        }
        result = umf_cuda_leave(&scope, result);
    }
    return umf_cuda_result(result, "letting a stream wait for an event");
}

umf_result_t umf_cuda_op_event_record(void *provider, void *event, void *queue) {
    const umf_cuda_context_t *context = provider;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (context->driver->cuEventRecord) {
        UMF_CUDA_CALL(context, result, cuEventRecord(event, queue));
    }
    return umf_cuda_result(result, "recording an event");
}

/* The mark of an idle stream. */
static char mark_completed;
#define MARK_COMPLETED ((CUevent)(void *)&mark_completed)

/* The next work of a blocking stream waits for the default stream, and that for all blocking ones:
 * the queue of the stream itself does not show that. */
static bool is_idle(const umf_cuda_driver_t *driver, CUstream stream) {
    unsigned flags = 0;
    return driver->cuStreamQuery && driver->cuStreamGetFlags &&
           driver->cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
           (flags & CU_STREAM_NON_BLOCKING) && driver->cuStreamQuery(stream) == CUDA_SUCCESS;
}

/* No mark, and no failure: the stream is captured, or the default one and a blocking one is. */
static CUresult mark_make(const umf_cuda_driver_t *driver, CUstream stream, CUevent *mark) {
    CUevent made;
    bool is_captured;
    CUresult result = umf_cuda_ask_capture(driver, stream, &is_captured);
    *mark = NULL;
    if (result != CUDA_SUCCESS || is_captured) {
        return result;
    }
    /* An event that is recorded on an idle stream passes only some time later. */
    if (is_idle(driver, stream)) {
        *mark = MARK_COMPLETED;
        return CUDA_SUCCESS;
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

umf_result_t umf_cuda_op_queue_mark(void *provider, void *queue, void **mark) {
    const umf_cuda_context_t *context = provider;
    if (!context->driver->cuEventCreate || !context->driver->cuEventRecord ||
        !context->driver->cuEventQuery || !context->driver->cuEventSynchronize ||
        !context->driver->cuEventDestroy) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_cuda_scope_t scope;
    CUevent made = NULL;
    CUresult result = umf_cuda_enter(context, &scope);
    if (result == CUDA_SUCCESS) {
        result = umf_cuda_leave(&scope, mark_make(context->driver, queue, &made));
    }
    if (result == CUDA_SUCCESS) {
        *mark = made;
    }
    return umf_cuda_result(result, "marking a stream");
}

/* A mark has passed, too, if its context has ended or work on it failed. One that gives another
 * error has not, also if it is waited for, nor one whose context cannot be entered. */
int umf_cuda_op_mark_wait(void *provider, void *mark, int may_block) {
    const umf_cuda_context_t *context = provider;
    umf_cuda_scope_t scope;
    if (mark == MARK_COMPLETED) {
        return 1;
    }
    CUresult entered = umf_cuda_enter(context, &scope), result = CUDA_ERROR_NOT_READY;
    if (umf_cuda_has_ended(entered)) {
        result = entered;
    } else if (may_block || entered == CUDA_SUCCESS) {
        result = umf_cuda_ask_event(context->driver, mark, may_block);
    }
    bool has_completed = umf_cuda_runs_nothing(result);
    if (has_completed) {
        context->driver->cuEventDestroy(mark);
    }
    if (entered == CUDA_SUCCESS) {
        umf_cuda_leave(&scope, CUDA_SUCCESS);
    }
    return has_completed;
}

/* --- queues of pools -------------------------------------------------------------------------- */

/* The default streams are those of the current context. Asking is safe while a stream is captured,
 * so in the provider's context nothing has to be prepared for others. */
static bool is_default(CUstream stream) {
    return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* Properties of a stream, from the driver. */
typedef struct stream_facts_t {
    CUcontext context;
    unsigned long long number; /* drivers before 12.0 have none */
    bool is_captured;
    bool has_number; /* the driver returns it; not while the stream is captured */
} stream_facts_t;

/* A query of its number, flags or state ends a capture of the stream in every mode. So they are
 * queried only if the driver has reported that it is not captured. */
static CUresult query_stream(const umf_cuda_driver_t *driver, CUstream stream,
                             stream_facts_t *facts) {
    CUresult result = CUDA_SUCCESS;
    if (driver->cuStreamGetCtx) {
        result = driver->cuStreamGetCtx(stream, &facts->context);
    }
    if (umf_cuda_is_of_capture(result)) {
        facts->is_captured = true;
        return CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        result = umf_cuda_ask_capture(driver, stream, &facts->is_captured);
    }
    facts->has_number = !driver->cuStreamGetId || !facts->is_captured;
    return result == CUDA_SUCCESS && driver->cuStreamGetId && facts->has_number
               ? driver->cuStreamGetId(stream, &facts->number)
               : result;
}

static CUresult ask_in(const umf_cuda_context_t *context, CUstream stream, stream_facts_t *facts) {
    umf_cuda_scope_t scope;
    CUcontext current;
    if (!is_default(stream) && context->driver->cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
        current == context->handle) {
        return query_stream(context->driver, stream, facts);
    }
    CUresult result = umf_cuda_enter(context, &scope);
    return result == CUDA_SUCCESS
               ? umf_cuda_leave(&scope, query_stream(context->driver, stream, facts))
               : result;
}

/* The number of the driver, with a bit so that it is not 0. */
umf_result_t umf_cuda_op_queue_id(void *provider, void *queue, uint64_t *id, int *is_of_thread,
                                  int *is_captured) {
    const umf_cuda_context_t *context = provider;
    bool is_of_this_thread = queue == CU_STREAM_PER_THREAD ||
                             (!queue && context->driver == umf_cuda_driver_per_thread());
    stream_facts_t facts = {
        .context = context->handle,
        .number = is_of_this_thread ? umf_thread_slot_number() : (uintptr_t)queue,
    };
    CUresult result = ask_in(context, queue, &facts);
    if (result != CUDA_SUCCESS) {
        umf_cuda_result(result, "asking which stream a queue is");
        UMF_LOG_ERROR("queue %p is no stream: it was destroyed, or never made", queue);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (facts.context != context->handle) {
        UMF_LOG_ERROR("queue %p is a stream of context %p, the memory is of context %p: use a "
                      "stream of that one",
                      queue, (void *)facts.context, (void *)context->handle);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *id = facts.has_number ? (uint64_t)facts.number << 1 | 1 : 0;
    *is_of_thread = is_of_this_thread;
    *is_captured = facts.is_captured;
    return UMF_RESULT_SUCCESS;
}

static CUresult follow(const umf_cuda_driver_t *driver, CUstream stream, CUevent mark) {
    bool is_captured;
    CUresult result = umf_cuda_ask_capture(driver, stream, &is_captured);
    if (result != CUDA_SUCCESS || is_captured) {
        return is_captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
    }
    return mark == MARK_COMPLETED ? CUDA_SUCCESS : driver->cuStreamWaitEvent(stream, mark, 0);
}

umf_result_t umf_cuda_op_queue_follow(void *provider, void *queue, void *mark) {
    const umf_cuda_context_t *context = provider;
    umf_cuda_scope_t scope;
    if (!context->driver->cuStreamWaitEvent) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    CUresult result = umf_cuda_enter(context, &scope);
    if (result == CUDA_SUCCESS) {
        result = umf_cuda_leave(&scope, follow(context->driver, queue, mark));
    }
    return umf_cuda_is_of_capture(result)
               ? UMF_RESULT_ERROR_NOT_SUPPORTED
               : umf_cuda_result(result, "letting a stream wait for an event");
}
