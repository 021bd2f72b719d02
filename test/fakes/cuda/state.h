/*
 * Shared parts of the software CUDA driver: its objects, its one lock, and what every call
 * begins with.
 */
#ifndef UMF_TEST_FAKES_CUDA_STATE_H
#define UMF_TEST_FAKES_CUDA_STATE_H

#include "fake_cuda.h"

#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "../driver.h"
#include "../oracle.h"
#include "functions.h"
#include "streams.h"

// The driver's own types, which its header leaves open.
struct CUctx_st {
    int device;
    bool primary;
    int references;
    fake::Stream *null_stream;
    CUresult broken;                                      // sticky
    std::map<std::thread::id, fake::Stream *> per_thread; // default streams
    std::set<CUctx_st *> peers;                           // whose memory it may access
};

namespace fake {

enum Kind { DEVICE, PINNED, REGISTERED, MANAGED, IMPORTED };

struct Memory {
    size_t size;
    Kind kind;
    CUctx_st *context;
    int device;
    int fd; // -1: none
    unsigned long long id;
};

struct Physical {
    size_t size;
    int device; // -1: of the host
    int fd;
    long references; // handle counts as one, as does each mapping
    bool exportable, fabric;
    bool released;
    bool rdma;
    uintptr_t name; // for the oracle, from the second mapping at once on; 0: none
    bool has_dmabuf = false;
    int place = -1; // its device, also of imported memory, which this process does not pay for
};

struct Mapping {
    size_t size;
    Physical *physical;
    std::map<std::pair<int, int>, unsigned> access; // of each place (its type, its number)

    bool permits(int device, unsigned wanted) const {
        auto at = access.find({CU_MEM_LOCATION_TYPE_DEVICE, device});
        return at != access.end() && (at->second & wanted) == wanted;
    }
};

struct Reservation {
    size_t size;
};

struct State {
    fake_cuda_t control{};
    bool initialised = false;
    pid_t pid = 0;
    std::map<uintptr_t, Memory> memory;
    std::map<uintptr_t, Reservation> reservations;
    std::map<uintptr_t, Mapping> mappings;
    std::set<Physical *> physicals;
    std::set<CUctx_st *> contexts;
    std::vector<Stream *> streams; // also destroyed ones that have work
    std::set<CUstream_st *> handles;
    std::vector<CUstream_st *> free_handles;
    std::set<CUevent_st *> events;
    std::set<Capture *> captures;
    std::set<CUgraph_st *> graphs;
    std::set<CUgraphExec_st *> executables;
    CUctx_st *primary[FAKE_CUDA_DEVICES] = {};
    unsigned long long ids = 0;
    long threads = 0; // of streams
    oracle::Oracle oracle;
    std::string faults; // the oracle's, as fake_cuda_faults gave them
};

extern std::recursive_mutex lock;
State &get();

// The contexts of the thread.
std::vector<CUctx_st *> &stack();
extern thread_local CUstreamCaptureMode thread_mode;

CUctx_st *current();
// What every call begins with: it is counted, and may have to fail.
CUresult enter(int function);
// Also for calls that need a living context.
CUresult in_context(CUctx_st **context);
// Calls that the real driver does not survive.
CUresult dead();
bool is_device(int device);
bool take(int device, size_t size);
void give(int device, size_t size);
// Memory that goes is used no more.
void uncount(const Memory &memory);

// All of [base, base + size) is mapped and the device may access it so, or it is no memory of the
// driver at all: plain memory of the host.
bool is_reachable(uintptr_t base, size_t size, int device, unsigned wanted);
// A file descriptor of another process.
int open_of(int pid, int fd);

} // namespace fake

#define ENTER(function)                                                                            \
    std::unique_lock<std::recursive_mutex> guard(lock);                                            \
    if (CUresult entered = enter(function)) {                                                      \
        return entered;                                                                            \
    }

#define ENTER_STARTED(function)                                                                    \
    ENTER(function)                                                                                \
    if (!get().initialised) {                                                                      \
        return CUDA_ERROR_NOT_INITIALIZED;                                                         \
    }

#define ENTER_CONTEXT(function)                                                                    \
    ENTER_STARTED(function)                                                                        \
    CUctx_st *context;                                                                             \
    if (CUresult entered = in_context(&context)) {                                                 \
        return entered;                                                                            \
    }

#endif
