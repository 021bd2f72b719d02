// Captures of streams, and graphs, of the software CUDA driver.

#include "state.h"

#include <algorithm>

using namespace fake;

namespace fake {

// --- what ends a capture -------------------------------------------------------------------------

// Ends the captures that are chosen; they are noticed when they are to end.
template <typename F> static CUresult break_captures(F &&is_met, CUresult result) {
    bool met = false;
    for (Stream *stream : get().streams) {
        if (stream->capture && is_met(*stream)) {
            stream->capture->is_broken = true;
            met = true;
        }
    }
    return met ? result : CUDA_SUCCESS;
}

// The documentation of cuThreadExchangeStreamCaptureMode says which captures are in the way.
CUresult meet_captures() {
    return break_captures(
        [](const Stream &stream) {
            const Capture &capture = *stream.capture;
            bool is_own = capture.capturer == std::this_thread::get_id();
            return thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                   (is_own ? capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
                           : capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                 thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
        },
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

// Whatever the modes are.
CUresult meet_all_captures(const CUctx_st *context) {
    return break_captures([=](const Stream &stream) { return stream.context == context; },
                          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

static bool is_in_the_way_of_default(const Stream &stream, const CUctx_st *context) {
    return stream.context == context && stream.is_blocking;
}

bool is_default_blocked(const CUctx_st *context) {
    return std::any_of(get().streams.begin(), get().streams.end(), [=](const Stream *each) {
        return each->capture && is_in_the_way_of_default(*each, context);
    });
}

// On the default stream it depends on all blocking ones.
CUresult meet_on(Stream *stream) {
    if (stream == stream->context->null_stream) {
        return break_captures(
            [=](const Stream &each) { return is_in_the_way_of_default(each, stream->context); },
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    return stream->capture && stream->capture->is_broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                         : CUDA_SUCCESS;
}

// --- captures ------------------------------------------------------------------------------------

void capture_work(Stream *stream, Work work) {
    CUgraph_st *graph = stream->capture->graph;
    std::vector<oracle::Owner> now = get().oracle.owners(work.uses);
    graph->owners.insert(graph->owners.end(), now.begin(), now.end());
    graph->nodes.push_back({std::move(work), stream->front, stream->branch});
    stream->front = {graph->nodes.size() - 1};
}

static void join_capture(Stream *stream, Capture *capture) {
    stream->capture = capture;
    stream->branch = capture->graph->branches++;
    stream->front.clear();
    capture->streams.push_back(stream);
}

CUresult wait_in_capture(Stream *stream, const CUevent_st *event) {
    MEET(meet_on(stream))
    if (stream->capture && !event->capture) {
        if (event->points.empty()) {
            return CUDA_SUCCESS; // it was never recorded
        }
        stream->capture->is_broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (event->capture->is_ended) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->capture && stream->capture != event->capture) {
        stream->capture->is_broken = event->capture->is_broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!stream->capture) {
        join_capture(stream, event->capture);
    }
    stream->front.insert(stream->front.end(), event->front.begin(), event->front.end());
    return CUDA_SUCCESS;
}

static void end_capture(Capture *capture) {
    capture->is_ended = true;
    for (Stream *stream : capture->streams) {
        stream->capture = nullptr;
        stream->front.clear();
    }
}

// Its stream is destroyed.
void leave_capture(Stream *stream) {
    if (stream->capture) {
        Capture *capture = stream->capture;
        capture->is_broken = true;
        if (stream == capture->origin) {
            end_capture(capture);
        } else {
            std::vector<Stream *> &all = capture->streams;
            all.erase(std::remove(all.begin(), all.end(), stream), all.end());
            stream->capture = nullptr;
        }
    }
}

// Everything that other streams captured comes before the front of the first one.
static bool is_joined(const Capture &capture) {
    const std::vector<Node> &nodes = capture.graph->nodes;
    std::vector<bool> is_before(nodes.size());
    for (size_t each : capture.origin->front) {
        is_before[each] = true;
    }
    for (size_t i = nodes.size(); i-- > 0;) {
        for (size_t each : nodes[i].after) {
            is_before[each] = is_before[each] || is_before[i];
        }
    }
    return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream *stream) {
        return std::all_of(stream->front.begin(), stream->front.end(),
                           [&](size_t each) { return is_before[each]; });
    });
}

// --- launches -----------------------------------------------------------------------------------

// The first branch is the stream itself; other branches have lanes of their own.
static void tell_oracle(CUgraphExec_st *graph, const Stream *stream) {
    oracle::Oracle &oracle = get().oracle;
    const oracle::Clock start = oracle.point(stream->lane);
    std::vector<oracle::Clock> done;
    for (const Node &node : graph->graph.nodes) {
        size_t lane = node.branch == 0 ? stream->lane : graph->lanes[node.branch - 1];
        oracle.order(lane, start);
        for (size_t each : node.after) {
            oracle.order(lane, done[each]);
        }
        oracle.queue_captured(lane, node.work.name, node.work.uses, graph->graph.owners);
        done.push_back(oracle.point(lane));
    }
    for (const oracle::Clock &each : done) {
        oracle.order(stream->lane, each);
    }
}

// A launch comes after the one before it, on whatever streams.
static void launch(CUgraphExec_st *graph, Stream *stream) {
    get().oracle.order(stream->lane, graph->clock);
    add(stream, Work{"cuGraphLaunch", {}}, graph->last);
    tell_oracle(graph, stream);
    for (const Node &node : graph->graph.nodes) {
        queue(stream, node.work, {});
    }
    graph->last = {last_of(stream)};
    graph->clock = get().oracle.point(stream->lane);
}

} // namespace fake

extern "C" {

CUresult fake_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTER_STARTED(FAKE_cuThreadExchangeStreamCaptureMode)
    std::swap(thread_mode, *mode);
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    ENTER_CONTEXT(FAKE_cuStreamIsCapturing)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    if (stream == stream->context->null_stream && is_default_blocked(stream->context)) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; // no capture ends by that
    }
    *status = !stream->capture             ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->is_broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    ENTER_CONTEXT(FAKE_cuStreamBeginCapture)
    Stream *stream = stream_of(handle, context);
    if (!stream || stream->capture) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream == stream->context->null_stream) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    auto *made = driver::kept(new Capture{driver::kept(new CUgraph_st{{}, 0, {}}), stream, {}});
    made->mode = mode;
    made->capturer = std::this_thread::get_id();
    join_capture(stream, made);
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    ENTER_CONTEXT(FAKE_cuStreamEndCapture)
    Stream *stream = stream_of(handle, context);
    if (!stream || !stream->capture) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Capture *capture = stream->capture;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->capturer != std::this_thread::get_id()) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    if (stream != capture->origin) {
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    bool joined = is_joined(*capture);
    end_capture(capture);
    *graph = nullptr;
    if (capture->is_broken || !joined) {
        return capture->is_broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                  : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    *graph = capture->graph;
    get().graphs.insert(*graph);
    get().control.objects++;
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long) {
    ENTER_STARTED(FAKE_cuGraphInstantiateWithFlags)
    if (!get().graphs.count(graph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *made = driver::kept(new CUgraphExec_st{*graph, {}, {}, {}});
    for (size_t i = 1; i < graph->branches; i++) {
        (*made)->lanes.push_back(
            get().oracle.add_lane("branch " + std::to_string(i) + " of a graph"));
    }
    get().executables.insert(*made);
    get().control.objects++;
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphLaunch(CUgraphExec graph, CUstream handle) {
    ENTER_CONTEXT(FAKE_cuGraphLaunch)
    Stream *stream = stream_of(handle, context);
    if (!stream || !get().executables.count(graph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    MEET(meet_on(stream))
    if (stream->capture) {
        return CUDA_ERROR_NOT_SUPPORTED; // graphs in graphs
    }
    launch(graph, stream);
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphDestroy(CUgraph graph) {
    ENTER_STARTED(FAKE_cuGraphDestroy)
    if (!get().graphs.erase(graph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    get().control.objects--;
    return CUDA_SUCCESS;
}

// Launched work is still done.
CUresult fake_cuGraphExecDestroy(CUgraphExec graph) {
    ENTER_STARTED(FAKE_cuGraphExecDestroy)
    if (!get().executables.erase(graph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t lane : graph->lanes) {
        get().oracle.drop_lane(lane);
    }
    get().control.objects--;
    return CUDA_SUCCESS;
}

} // extern "C"
