// Streams of the software CUDA driver.

#include "state.h"

#include <algorithm>
#include <condition_variable>
#include <random>

#include <unistd.h>

using namespace fake;

namespace fake {

// Work was done, or can be done. Threads may outlive the objects of the program.
static std::condition_variable_any &changed = *new std::condition_variable_any;

static bool is_late() {
    return get().control.late != 0;
}

// --- order ---------------------------------------------------------------------------------------

Point last_of(const Stream *stream) {
    return {const_cast<Stream *>(stream), stream->queued};
}

static bool has_completed(const Point &point) {
    return point.stream->done >= point.number || point.stream->is_dropped;
}

bool have_passed(const Points &points) {
    return std::all_of(points.begin(), points.end(), has_completed);
}

Points points_of(const CUctx_st *context) {
    Points points;
    for (const Stream *stream : get().streams) {
        if (stream->context == context) {
            points.push_back(last_of(stream));
        }
    }
    return points;
}

// The default stream of a context waits for its blocking streams, and they for it.
static std::vector<Stream *> joined_by(const Stream *stream) {
    std::vector<Stream *> list;
    Stream *null_stream = stream->context->null_stream;
    if (stream != null_stream && stream->is_blocking) {
        list.push_back(null_stream);
    }
    for (Stream *each : get().streams) {
        if (stream == null_stream && each != stream && each->context == stream->context &&
            each->is_blocking) {
            list.push_back(each);
        }
    }
    return list;
}

oracle::Clock clock_of(Stream *stream) {
    oracle::Clock clock = get().oracle.point(stream->lane);
    for (const Stream *each : joined_by(stream)) {
        clock.join(get().oracle.point(each->lane));
    }
    return clock;
}

oracle::Clock clock_of(const CUctx_st *context) {
    oracle::Clock clock;
    for (const Stream *stream : get().streams) {
        if (stream->context == context) {
            clock.join(get().oracle.point(stream->lane));
        }
    }
    return clock;
}

// --- streams -------------------------------------------------------------------------------------

// Whoever waits for a context waits for its destroyed streams, too.
static void forget_destroyed() {
    std::vector<Stream *> &all = get().streams;
    all.erase(std::remove_if(all.begin(), all.end(),
                             [](const Stream *stream) {
                                 return stream->is_destroyed && stream->queue.empty() &&
                                        get().oracle.is_idle(stream->lane);
                             }),
              all.end());
}

Stream *make_stream(CUctx_st *context, bool is_blocking) {
    forget_destroyed();
    Stream *made = driver::kept(new Stream{});
    made->context = context;
    made->id = ++get().ids;
    made->lane = get().oracle.add_lane("stream " + std::to_string(made->id));
    made->is_blocking = is_blocking;
    get().streams.push_back(made);
    return made;
}

void retire(Stream *stream) {
    stream->is_destroyed = true;
    get().oracle.drop_lane(stream->lane);
    changed.notify_all();
}

void drop(Stream *stream) {
    stream->is_dropped = true;
    stream->queue.clear();
    get().oracle.host_knows(get().oracle.point(stream->lane));
    leave_capture(stream);
    retire(stream);
}

Stream *stream_of_thread(CUctx_st *context) {
    Stream *&mine = context->per_thread[std::this_thread::get_id()];
    if (!mine) {
        mine = make_stream(context, true);
    }
    return mine;
}

Stream *stream_of(CUstream handle, CUctx_st *context) {
    if (handle == CU_STREAM_PER_THREAD) {
        return stream_of_thread(context);
    }
    if (!handle || handle == CU_STREAM_LEGACY) {
        return context->null_stream;
    }
    return get().handles.count(handle) ? handle->stream : nullptr;
}

// --- work ----------------------------------------------------------------------------------------

static bool is_ready(const Stream *stream) {
    return !stream->queue.empty() && have_passed(stream->queue.front().after);
}

static void run_front(Stream *stream, std::unique_lock<std::recursive_mutex> *guard) {
    Work work = std::move(stream->queue.front().work);
    bool is_outside = guard && work.is_of_host;
    if (is_outside) {
        guard->unlock();
    }
    if (work.run) {
        work.run();
    }
    if (is_outside) {
        guard->lock();
    }
    if (!stream->is_dropped) {
        stream->queue.pop_front();
        stream->done++;
    }
    changed.notify_all();
}

// Most work begins at once, some is late, and now and then some is very late.
static void dawdle(std::minstd_rand &random) {
    unsigned chance = random() % 64;
    if (chance < 16) {
        std::this_thread::sleep_for(std::chrono::microseconds(chance == 0 ? 400 : 20));
    }
}

static bool is_at_end(const Stream *stream) {
    return stream->is_dropped || (stream->is_destroyed && stream->queue.empty());
}

// The thread of a stream.
static void serve(Stream *stream, State *own, unsigned seed) {
    std::minstd_rand random(seed);
    std::unique_lock<std::recursive_mutex> guard(lock);
    for (;;) {
        changed.wait(guard, [=] { return is_at_end(stream) || is_ready(stream); });
        if (is_at_end(stream)) {
            break;
        }
        guard.unlock();
        dawdle(random);
        guard.lock();
        if (!is_at_end(stream)) {
            run_front(stream, &guard);
        }
    }
    own->threads--;
    changed.notify_all();
}

static void start(Stream *stream) {
    if (is_late() && !stream->has_thread) {
        stream->has_thread = true;
        get().threads++;
        unsigned seed = static_cast<unsigned>(get().control.late * 7919 + stream->id);
        std::thread(serve, stream, &get(), seed).detach();
    }
}

void end_threads(std::unique_lock<std::recursive_mutex> &guard) {
    State &s = get();
    if (s.initialised && s.pid != getpid()) {
        return; // a fork left them behind
    }
    for (Stream *stream : s.streams) {
        stream->is_dropped = true;
        stream->queue.clear();
    }
    changed.notify_all();
    changed.wait(guard, [&] { return s.threads == 0; });
}

void queue(Stream *stream, Work work, Points after) {
    stream->queue.push_back({std::move(work), std::move(after)});
    stream->queued++;
    start(stream);
    changed.notify_all();
}

void add(Stream *stream, Work work, Points after) {
    if (stream->capture) {
        capture_work(stream, std::move(work));
        return;
    }
    for (const Stream *each : joined_by(stream)) {
        after.push_back(last_of(each));
    }
    get().oracle.order(stream->lane, clock_of(stream));
    get().oracle.queue(stream->lane, work.name, work.uses);
    queue(stream, std::move(work), std::move(after));
}

// --- who runs it ---------------------------------------------------------------------------------

static bool run_one(Stream *stream) {
    if (!is_ready(stream)) {
        return false;
    }
    run_front(stream, nullptr);
    return true;
}

void run_a_little(const CUctx_st *context) {
    std::vector<Stream *> all = get().streams;
    for (Stream *stream : all) {
        if (!is_late() && stream->context == context) {
            run_one(stream);
        }
    }
}

void wait_for(const Points &points) {
    if (is_late()) {
        std::unique_lock<std::recursive_mutex> guard(lock, std::adopt_lock);
        changed.wait(guard, [&] { return have_passed(points); });
        guard.release();
        return;
    }
    for (bool moved = true; moved && !have_passed(points);) {
        moved = false;
        std::vector<Stream *> all = get().streams;
        for (Stream *stream : all) {
            while (!have_passed(points) && run_one(stream)) {
                moved = true;
            }
        }
    }
}

} // namespace fake

extern "C" {

// --- streams -------------------------------------------------------------------------------------

CUresult fake_cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER_CONTEXT(FAKE_cuStreamCreate)
    MEET(meet_captures())
    State &s = get();
    if (s.free_handles.empty()) {
        s.free_handles.push_back(driver::kept(new CUstream_st{nullptr}));
    }
    *stream = s.free_handles.back();
    s.free_handles.pop_back();
    (*stream)->stream = make_stream(context, !(flags & CU_STREAM_NON_BLOCKING));
    s.handles.insert(*stream);
    s.control.objects++;
    return CUDA_SUCCESS;
}

// Returns at once; queued work is still done.
CUresult fake_cuStreamDestroy(CUstream stream) {
    ENTER_STARTED(FAKE_cuStreamDestroy)
    MEET(meet_captures())
    State &s = get();
    if (!s.handles.erase(stream)) {
        return dead();
    }
    leave_capture(stream->stream);
    retire(stream->stream);
    s.free_handles.push_back(stream);
    s.control.objects--;
    return CUDA_SUCCESS;
}

// To wait for a stream, or to query its state, its flags or its number, ends a capture of it in
// every mode.
static bool ends_capture(Stream *stream) {
    if (stream->capture) {
        stream->capture->is_broken = true;
    }
    return stream->capture != nullptr;
}

CUresult fake_cuStreamSynchronize(CUstream handle) {
    ENTER_CONTEXT(FAKE_cuStreamSynchronize)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    if (ends_capture(stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    MEET(meet_on(stream))
    MEET(meet_captures())
    oracle::Clock clock = get().oracle.point(stream->lane);
    CUctx_st *of_stream = stream->context;
    wait_for({last_of(stream)});
    get().oracle.host_knows(clock);
    return of_stream->broken;
}

CUresult fake_cuStreamQuery(CUstream handle) {
    ENTER_CONTEXT(FAKE_cuStreamQuery)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    if (ends_capture(stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    MEET(meet_on(stream))
    MEET(meet_captures())
    if (!have_passed({last_of(stream)})) {
        run_a_little(stream->context);
        return CUDA_ERROR_NOT_READY;
    }
    get().oracle.host_knows(get().oracle.point(stream->lane));
    return stream->context->broken;
}

CUresult fake_cuStreamGetFlags(CUstream handle, unsigned *flags) {
    ENTER_CONTEXT(FAKE_cuStreamGetFlags)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    if (ends_capture(stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    *flags = stream->is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamGetId(CUstream handle, unsigned long long *id) {
    ENTER_CONTEXT(FAKE_cuStreamGetId)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    if (ends_capture(stream)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    *id = stream->id;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamGetCtx(CUstream handle, CUcontext *of) {
    ENTER_CONTEXT(FAKE_cuStreamGetCtx)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    *of = stream->context;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
    ENTER_CONTEXT(FAKE_cuStreamWaitEvent)
    Stream *stream = stream_of(handle, context);
    if (!stream || !get().events.count(event)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (stream->capture || event->capture) {
        return wait_in_capture(stream, event);
    }
    MEET(meet_on(stream))
    get().oracle.order(stream->lane, event->clock);
    add(stream, Work{"cuStreamWaitEvent", {}, {}}, event->points);
    return CUDA_SUCCESS;
}

} // extern "C"
