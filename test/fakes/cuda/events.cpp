// Events of the software CUDA driver, and waits for whole contexts.

#include "state.h"

using namespace fake;

extern "C" {

CUresult fake_cuEventCreate(CUevent *event, unsigned) {
    ENTER_CONTEXT(FAKE_cuEventCreate)
    *event = driver::kept(new CUevent_st{context, {}, {}, nullptr, {}});
    get().events.insert(*event);
    get().control.objects++;
    return CUDA_SUCCESS;
}

// The handle itself stays allocated, so that its use is noticed.
CUresult fake_cuEventDestroy(CUevent event) {
    ENTER_STARTED(FAKE_cuEventDestroy)
    if (!get().events.erase(event)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    get().control.objects--;
    return CUDA_SUCCESS;
}

CUresult fake_cuEventRecord(CUevent event, CUstream handle) {
    ENTER_CONTEXT(FAKE_cuEventRecord)
    Stream *stream = stream_of(handle, context);
    if (!stream || !get().events.count(event) || event->context != stream->context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    MEET(meet_on(stream))
    event->capture = stream->capture;
    event->front = stream->front;
    if (!stream->capture) {
        add(stream, Work{"cuEventRecord", {}, {}});
        event->points = {last_of(stream)};
        event->clock = get().oracle.point(stream->lane);
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxRecordEvent(CUcontext context, CUevent event) {
    ENTER_STARTED(FAKE_cuCtxRecordEvent)
    if (!get().contexts.count(context) || !get().events.count(event) || event->context != context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    MEET(meet_all_captures(context))
    event->capture = nullptr;
    event->points = points_of(context);
    event->clock = clock_of(context);
    return CUDA_SUCCESS;
}

// Without threads of streams, each query lets them do one more piece of their work.
CUresult fake_cuEventQuery(CUevent event) {
    ENTER_STARTED(FAKE_cuEventQuery)
    MEET(meet_captures())
    if (!get().events.count(event)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->capture) {
        event->capture->is_broken = true;
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (!have_passed(event->points)) {
        run_a_little(event->context);
        return CUDA_ERROR_NOT_READY;
    }
    get().oracle.host_knows(event->clock);
    return event->context->broken;
}

CUresult fake_cuEventSynchronize(CUevent event) {
    ENTER_STARTED(FAKE_cuEventSynchronize)
    MEET(meet_captures())
    if (!get().events.count(event)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->capture) {
        event->capture->is_broken = true;
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    oracle::Clock clock = event->clock;
    Points points = event->points;
    wait_for(points);
    get().oracle.host_knows(clock);
    return event->context->broken;
}

CUresult fake_cuCtxSynchronize(void) {
    ENTER_CONTEXT(FAKE_cuCtxSynchronize)
    MEET(meet_all_captures(context))
    oracle::Clock clock = clock_of(context);
    wait_for(points_of(context));
    get().oracle.host_knows(clock);
    return context->broken;
}

CUresult fake_cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
    ENTER_CONTEXT(FAKE_cuLaunchHostFunc)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    if (!stream->capture) {
        MEET(meet_captures())
    }
    MEET(meet_on(stream))
    add(stream, Work{"cuLaunchHostFunc", {}, [function, data] { function(data); }, true});
    return CUDA_SUCCESS;
}

} // extern "C"
