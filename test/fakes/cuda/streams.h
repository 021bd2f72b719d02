/*
 * Streams of the software CUDA driver: queued work, who runs it and when, captures of it, and what
 * the oracle is notified.
 */
#ifndef UMF_TEST_FAKES_CUDA_STREAMS_H
#define UMF_TEST_FAKES_CUDA_STREAMS_H

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cuda.h>

#include "../oracle.h"

namespace fake {

struct Stream;
struct Capture;

// All that was queued on a stream until then.
struct Point {
    Stream *stream;
    uint64_t number;
};

using Points = std::vector<Point>;

// A piece of work of a stream, and its bytes.
struct Work {
    std::string name;
    oracle::Uses uses;
    std::function<void()> run{};
    bool is_of_host = false; // may take locks of the program, so it runs without the driver's
};

struct Queued {
    Work work;
    Points after; // besides its predecessors in its stream
};

// A piece of captured work, and the pieces it comes after.
struct Node {
    Work work;
    std::vector<size_t> after;
    size_t branch; // the how-manieth stream of the capture
};

// Streams are never freed, so what names one that has ended stays valid.
struct Stream {
    CUctx_st *context;
    unsigned long long id;
    size_t lane; // for the oracle
    bool is_blocking = true;
    bool is_destroyed = false;
    bool is_dropped = false; // with its context
    bool has_thread = false;
    std::deque<Queued> queue;
    uint64_t queued = 0, done = 0;

    Capture *capture = nullptr;
    size_t branch = 0;
    std::vector<size_t> front; // nodes that the next one comes after
};

struct Capture {
    CUgraph_st *graph;
    Stream *origin;
    std::vector<Stream *> streams;
    bool is_broken = false;
    bool is_ended = false;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id capturer{};
};

} // namespace fake

// A handle; the driver uses it again when its stream was destroyed.
struct CUstream_st {
    fake::Stream *stream;
};

struct CUevent_st {
    CUctx_st *context;
    fake::Points points;
    oracle::Clock clock;
    fake::Capture *capture; // in which it was recorded; NULL: in none
    std::vector<size_t> front;
};

struct CUgraph_st {
    std::vector<fake::Node> nodes;
    size_t branches;
    std::vector<oracle::Owner> owners; // of the bytes, during the capture
};

struct CUgraphExec_st {
    CUgraph_st graph;
    std::vector<size_t> lanes; // of its branches but the first
    fake::Points last;         // launch, which the next one comes after
    oracle::Clock clock;
};

namespace fake {

Stream *make_stream(CUctx_st *context, bool is_blocking);
// Nothing more is queued there. Work that is there is still done.
void retire(Stream *stream);
// Nothing more is done there, either.
void drop(Stream *stream);
Stream *stream_of_thread(CUctx_st *context);
// NULL: the stream was destroyed.
Stream *stream_of(CUstream handle, CUctx_st *context);

// Work that is queued on a stream, or captured there; it also comes after the given points.
void add(Stream *stream, Work work, Points after = {});
void queue(Stream *stream, Work work, Points after);
void capture_work(Stream *stream, Work work);
Point last_of(const Stream *stream);
Points points_of(const CUctx_st *context);
// Behind all work of a stream and what work that is queued there now would come after, and behind
// all of a context.
oracle::Clock clock_of(Stream *stream);
oracle::Clock clock_of(const CUctx_st *context);

// Until these have passed.
void wait_for(const Points &points);
bool have_passed(const Points &points);
// Without threads of streams: one piece more of each one's work.
void run_a_little(const CUctx_st *context);
// Waits until streams have no threads; the state they belong to ends.
void end_threads(std::unique_lock<std::recursive_mutex> &guard);

// --- captures ------------------------------------------------------------------------------------

// A call that allocates, frees, pins, synchronises or queries; a call that synchronises a context;
// work on a stream. They end the captures that they are in the way of, and fail then.
CUresult meet_captures();
CUresult meet_all_captures(const CUctx_st *context);
CUresult meet_on(Stream *stream);
// Whether a stream of the context is captured that its default stream would wait for.
bool is_default_blocked(const CUctx_st *context);
// A stream waits for an event of a capture, or waits while it is captured.
CUresult wait_in_capture(Stream *stream, const CUevent_st *event);
void leave_capture(Stream *stream);

#define MEET(what)                                                                                 \
    if (CUresult met = what) {                                                                     \
        return met;                                                                                \
    }

} // namespace fake

#endif
