// The software CUDA driver; fake_cuda.h says what it does. Every function takes one lock.

#include "fake_cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "../driver.h"

// The driver's own types, which its header leaves open.
struct CUctx_st {
    int device;
    bool primary;
    int references;
    CUstream_st *null_stream;
    CUresult broken;                                     // sticky
    std::map<std::thread::id, CUstream_st *> per_thread; // default streams
};

namespace {

using driver::any_overlaps;
using driver::holding;
using driver::is_run;
using driver::kept;
using driver::make_file;
using driver::map_file;
using driver::reserve;
using driver::round_up;
using driver::unmap_reserved;

struct Work {
    std::function<bool()> run; // false: it waits for something
    uintptr_t reads = 0, writes = 0;
    size_t size = 0;
};

} // namespace

struct CUevent_st {
    CUctx_st *context;
    bool recorded; // at least once
    long pending;  // records that have not been reached
};

// What a capture recorded; as an executable graph it is the same.
struct CUgraph_st {
    std::vector<Work> work;
};

struct CUgraphExec_st {
    std::vector<Work> work;
};

struct CUstream_st {
    CUctx_st *context;
    std::deque<Work> queue;
    CUgraph_st *capture = nullptr;
    bool is_blocking = true; // with the default stream
    bool is_broken = false;  // the capture
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id capturer{};
    unsigned long long id = 0; // never the same for two; 0: nobody has asked for it

    void add(Work work) {
        if (capture) {
            capture->work.push_back(std::move(work));
        } else {
            queue.push_back(std::move(work));
        }
    }
};

namespace {

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

struct IpcHandle { // fits into CUipcMemHandle
    uint64_t magic;
    int32_t pid, fd, device, unused;
    uint64_t size;
};
constexpr size_t page = 4096;
constexpr uint64_t ipc_magic = 0x756d662066616b65;
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle), "an IPC handle has 64 bytes");

struct FabricHandle { // fits into CUmemFabricHandle
    uint64_t magic;
    int32_t pid, fd;
};
constexpr uint64_t fabric_magic = 0x756d666661627269;
static_assert(sizeof(FabricHandle) <= sizeof(CUmemFabricHandle), "a fabric handle has 64 bytes");

struct State {
    fake_cuda_t control{};
    bool initialised = false;
    pid_t pid = 0;
    std::map<uintptr_t, Memory> memory;
    std::map<uintptr_t, Reservation> reservations;
    std::map<uintptr_t, Mapping> mappings;
    std::set<Physical *> physicals;
    std::set<CUctx_st *> contexts;
    std::set<CUstream_st *> streams;
    std::set<CUevent_st *> events;
    std::set<CUgraph_st *> graphs;
    std::set<CUgraphExec_st *> executables;
    CUctx_st *primary[FAKE_CUDA_DEVICES] = {};
    unsigned long long ids = 0;
};

std::recursive_mutex lock;
State *state;
thread_local std::vector<CUctx_st *> stack;
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

State *fresh() {
    State *made = kept(new State);
    made->control.devices = 2;
    made->control.granularity = size_t{2} << 20;
    made->control.fail_function = FAKE_CUDA_ANY;
    made->control.host_node = -1;
    made->control.keeps_memory = getenv("UMF_FAKE_CUDA_KEEPS_MEMORY") != nullptr;
    std::fill_n(made->control.device_memory, FAKE_CUDA_DEVICES, size_t{1} << 30);
    return made;
}

State &get() {
    if (!state) {
        state = fresh();
    }
    return *state;
}

// What every call begins with: it is counted, and may have to fail.
CUresult enter(int function) {
    fake_cuda_t &control = get().control;
    control.calls[function]++;
    if (control.gone) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    if (get().initialised && getpid() != get().pid && function != FAKE_cuGetErrorName &&
        function != FAKE_cuGetErrorString) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    // The exchange of the mode fails only where nothing else works either, or where a test names
    // it.
    bool may_fail =
        control.fail_function == function || (control.fail_function == FAKE_CUDA_ANY &&
                                              function != FAKE_cuThreadExchangeStreamCaptureMode);
    if (may_fail && driver::has_to_fail(control)) {
        return static_cast<CUresult>(control.fail_with);
    }
    return CUDA_SUCCESS;
}

#define ENTER(function)                                                                            \
    std::lock_guard<std::recursive_mutex> guard(lock);                                             \
    if (CUresult entered = enter(function)) {                                                      \
        return entered;                                                                            \
    }

#define ENTER_STARTED(function)                                                                    \
    ENTER(function)                                                                                \
    if (!get().initialised) {                                                                      \
        return CUDA_ERROR_NOT_INITIALIZED;                                                         \
    }

CUctx_st *current() {
    return stack.empty() ? nullptr : stack.back();
}

// Also for calls that need a living context.
CUresult in_context(CUctx_st **context) {
    *context = current();
    if (!*context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!get().contexts.count(*context)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return (*context)->broken;
}

#define ENTER_CONTEXT(function)                                                                    \
    ENTER_STARTED(function)                                                                        \
    CUctx_st *context;                                                                             \
    if (CUresult entered = in_context(&context)) {                                                 \
        return entered;                                                                            \
    }

bool is_device(int device) {
    return device >= 0 && device < get().control.devices;
}

bool take(int device, size_t size) {
    return driver::take_of_device(get().control, device, size);
}

void give(int device, size_t size) {
    get().control.used[device] -= size;
}

// --- queued work ---------------------------------------------------------------------------------

void note_removal(uintptr_t base, size_t size) {
    if (driver::is_used_by_queued_work(get().streams, base, size)) {
        get().control.unordered_unmaps++;
    }
}

// All of [base, base + size) is mapped and the device may access it so, or it is no memory of the
// driver at all: plain memory of the host.
bool is_reachable(uintptr_t base, size_t size, int device, unsigned wanted) {
    State &s = get();
    auto memory = holding(s.memory, base, 1);
    if (memory != s.memory.end()) {
        return base + size <= memory->first + memory->second.size;
    }
    if (!any_overlaps(s.reservations, base, size)) {
        return true;
    }
    while (size > 0) {
        auto mapping = holding(s.mappings, base, 1);
        if (mapping == s.mappings.end() || !mapping->second.permits(device, wanted)) {
            return false;
        }
        size_t part = std::min(size, mapping->first + mapping->second.size - base);
        base += part;
        size -= part;
    }
    return true;
}

bool run_one(CUstream_st *stream) {
    if (stream->queue.empty() || !stream->queue.front().run()) {
        return false;
    }
    stream->queue.pop_front();
    return true;
}

void run_all(CUctx_st *context) {
    driver::run_until_idle(get().streams, [=](CUstream_st *stream) {
        return stream->context == context && run_one(stream);
    });
}

void run_stream(CUstream_st *stream) {
    while (!stream->queue.empty()) {
        if (!run_one(stream)) {
            size_t before = stream->queue.size();
            run_all(stream->context);
            if (stream->queue.size() == before) {
                return; // waits for another context's event
            }
        }
    }
}

CUstream_st *stream_of_thread(CUctx_st *context) {
    CUstream_st *&mine = context->per_thread[std::this_thread::get_id()];
    if (!mine) {
        mine = kept(new CUstream_st{context, {}, nullptr});
        get().streams.insert(mine);
    }
    return mine;
}

CUstream_st *stream_of(CUstream stream, CUctx_st *context) {
    if (stream == CU_STREAM_PER_THREAD) {
        return stream_of_thread(context);
    }
    return stream && stream != CU_STREAM_LEGACY ? stream : context->null_stream;
}

// --- captures ------------------------------------------------------------------------------------

// Ends the captures that are chosen; they are noticed when they are to end.
template <typename F> CUresult break_captures(F &&is_met, CUresult result) {
    bool met = false;
    for (CUstream_st *stream : get().streams) {
        if (stream->capture && is_met(*stream)) {
            stream->is_broken = true;
            met = true;
        }
    }
    return met ? result : CUDA_SUCCESS;
}

// A call that allocates, frees, pins, synchronises or asks. The documentation of
// cuThreadExchangeStreamCaptureMode says which captures are in its way.
CUresult meet_captures() {
    return break_captures(
        [](const CUstream_st &stream) {
            bool is_own = stream.capturer == std::this_thread::get_id();
            return thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                   (is_own ? stream.mode != CU_STREAM_CAPTURE_MODE_RELAXED
                           : stream.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                 thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
        },
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

#define MEET_CAPTURES()                                                                            \
    if (CUresult met = meet_captures()) {                                                          \
        return met;                                                                                \
    }

// What synchronises a context ends all captures in it, whatever the modes are.
CUresult meet_all_captures(CUctx_st *context) {
    return break_captures([=](const CUstream_st &stream) { return stream.context == context; },
                          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

bool is_in_the_way_of_default(const CUstream_st &stream, CUctx_st *context) {
    return stream.context == context && stream.is_blocking;
}

// Work on a stream: on the default one it depends on all blocking ones.
CUresult meet_on(CUstream_st *stream) {
    if (stream == stream->context->null_stream) {
        return break_captures(
            [=](const CUstream_st &each) {
                return is_in_the_way_of_default(each, stream->context);
            },
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    return stream->capture && stream->is_broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                : CUDA_SUCCESS;
}

#define MEET_ON(stream)                                                                            \
    if (CUresult met = meet_on(stream)) {                                                          \
        return met;                                                                                \
    }

// What the real driver does not survive.
CUresult dead() {
    get().control.dead_uses++;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult illegal(CUctx_st *context) {
    get().control.illegal_accesses++;
    context->broken = CUDA_ERROR_ILLEGAL_ADDRESS;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

#if defined(__SANITIZE_ADDRESS__)
#define WITHOUT_ASAN __attribute__((no_sanitize("address"), noinline))
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITHOUT_ASAN __attribute__((no_sanitize("address"), noinline))
#endif
#endif

// Memory of a device is nothing AddressSanitizer has a say in: pools poison parts of theirs.
#ifdef WITHOUT_ASAN
// Volatile, or it would become a call of the checked memmove.
WITHOUT_ASAN void device_copy(void *dst, const void *src, size_t size) {
    auto to = reinterpret_cast<uintptr_t>(dst), from = reinterpret_cast<uintptr_t>(src);
    size_t at = 0;
    for (; (to | from) % 8 == 0 && at + 8 <= size; at += 8) {
        *reinterpret_cast<volatile uint64_t *>(to + at) =
            *reinterpret_cast<const volatile uint64_t *>(from + at);
    }
    for (; at < size; at++) {
        *reinterpret_cast<volatile char *>(to + at) =
            *reinterpret_cast<const volatile char *>(from + at);
    }
}
WITHOUT_ASAN void device_fill(void *dst, int value, size_t size) {
    for (size_t at = 0; at < size; at++) {
        static_cast<volatile char *>(dst)[at] = static_cast<char>(value);
    }
}
#else
void device_copy(void *dst, const void *src, size_t size) {
    memmove(dst, src, size);
}
void device_fill(void *dst, int value, size_t size) {
    memset(dst, value, size);
}
#endif

CUresult copy_now(CUctx_st *context, uintptr_t to, uintptr_t from, size_t size) {
    if (!is_reachable(to, size, context->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ||
        !is_reachable(from, size, context->device, CU_MEM_ACCESS_FLAGS_PROT_READ)) {
        return illegal(context);
    }
    device_copy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), size);
    return CUDA_SUCCESS;
}

CUresult set_now(CUctx_st *context, uintptr_t to, unsigned char value, size_t size) {
    if (!is_reachable(to, size, context->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return illegal(context);
    }
    device_fill(reinterpret_cast<void *>(to), value, size);
    return CUDA_SUCCESS;
}

} // namespace

extern "C" {

fake_cuda_t *fake_cuda(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return &get().control;
}

void fake_cuda_reset(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    state = fresh();
    stack.clear();
}

// --- start, errors, devices ----------------------------------------------------------------------

CUresult fake_cuInit(unsigned flags) {
    ENTER(FAKE_cuInit)
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (get().control.devices == 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    if (!get().initialised) {
        get().initialised = true;
        get().pid = getpid();
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuDriverGetVersion(int *version) {
    ENTER(FAKE_cuDriverGetVersion)
    *version = 13000;
    return CUDA_SUCCESS;
}

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

// Texts are there whatever the state of the driver.
CUresult fake_cuGetErrorName(CUresult error, const char **text) {
    for (const auto &each : errors) {
        if (each.code == error) {
            *text = each.name;
            return CUDA_SUCCESS;
        }
    }
    *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_cuGetErrorString(CUresult error, const char **text) {
    for (const auto &each : errors) {
        if (each.code == error) {
            *text = each.text;
            return CUDA_SUCCESS;
        }
    }
    *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_cuDeviceGetCount(int *count) {
    ENTER_STARTED(FAKE_cuDeviceGetCount)
    *count = get().control.devices;
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER_STARTED(FAKE_cuDeviceGet)
    if (!is_device(ordinal)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    ENTER_STARTED(FAKE_cuDeviceTotalMem)
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *bytes = get().control.device_memory[device];
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    ENTER_STARTED(FAKE_cuDeviceGetAttribute)
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        *value = 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        *value = !get().control.lacks_managed;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = get().control.host_node;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        *value = get().control.has_rdma;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        *value = get().control.fabric != FAKE_CUDA_FABRIC_NONE;
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return CUDA_SUCCESS;
    }
}

CUresult fake_cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
    ENTER_STARTED(FAKE_cuDeviceGetPCIBusId)
    if (!is_device(device) || !get().control.bus_id[0]) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    snprintf(id, static_cast<size_t>(length), "%s", get().control.bus_id);
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER_STARTED(FAKE_cuDeviceCanAccessPeer)
    if (!is_device(device) || !is_device(peer)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *can = device != peer && !get().control.lacks_peers;
    return CUDA_SUCCESS;
}

// --- contexts ------------------------------------------------------------------------------------

static CUctx_st *make_context(int device, bool primary) {
    CUctx_st *context = kept(new CUctx_st{device, primary, 1, nullptr, CUDA_SUCCESS, {}});
    context->null_stream = kept(new CUstream_st{context, {}, nullptr});
    get().streams.insert(context->null_stream);
    get().contexts.insert(context);
    get().control.contexts++;
    return context;
}

// A primary context that was reset begins anew.
static void revive(CUctx_st *context) {
    if (get().contexts.insert(context).second) {
        context->null_stream = kept(new CUstream_st{context, {}, nullptr});
        context->per_thread.clear();
        context->broken = CUDA_SUCCESS;
        get().streams.insert(context->null_stream);
        get().control.contexts++;
    }
}

static void uncount(const Memory &memory) {
    switch (memory.kind) {
    case DEVICE:
    case MANAGED:
        give(memory.device, memory.size);
        break;
    case PINNED:
        get().control.pinned -= memory.size;
        break;
    case REGISTERED:
        get().control.registered -= memory.size;
        break;
    case IMPORTED:
        break;
    }
}

// Memory of a context goes with it; the objects stay as dead handles.
static void end_context(CUctx_st *context) {
    State &s = get();
    for (auto at = s.memory.begin(); at != s.memory.end();) {
        Memory &memory = at->second;
        if (memory.context != context) {
            ++at;
            continue;
        }
        uncount(memory);
        if (memory.kind != REGISTERED) {
            munmap(reinterpret_cast<void *>(at->first), memory.size);
        }
        if (memory.fd >= 0) {
            close(memory.fd);
        }
        s.control.objects--;
        at = s.memory.erase(at);
    }
    for (auto at = s.streams.begin(); at != s.streams.end();) {
        at = (*at)->context == context ? s.streams.erase(at) : std::next(at);
    }
    s.contexts.erase(context);
    s.control.contexts--;
}

CUresult fake_cuCtxCreate(CUcontext *context, unsigned, CUdevice device) {
    ENTER_STARTED(FAKE_cuCtxCreate)
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *context = make_context(device, false);
    stack.push_back(*context);
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxDestroy(CUcontext context) {
    ENTER_STARTED(FAKE_cuCtxDestroy)
    if (!get().contexts.count(context) || context->primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (current() == context) {
        stack.pop_back();
    }
    end_context(context);
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxPushCurrent(CUcontext context) {
    ENTER_STARTED(FAKE_cuCtxPushCurrent)
    if (!get().contexts.count(context)) {
        return dead();
    }
    stack.push_back(context);
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxPopCurrent(CUcontext *context) {
    ENTER_STARTED(FAKE_cuCtxPopCurrent)
    if (stack.empty()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (context) {
        *context = stack.back();
    }
    stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxGetCurrent(CUcontext *context) {
    ENTER_STARTED(FAKE_cuCtxGetCurrent)
    *context = current();
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxSetCurrent(CUcontext context) {
    ENTER_STARTED(FAKE_cuCtxSetCurrent)
    if (context && !get().contexts.count(context)) {
        return dead();
    }
    if (!stack.empty()) {
        stack.pop_back();
    }
    if (context) {
        stack.push_back(context);
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxGetDevice(CUdevice *device) {
    ENTER_STARTED(FAKE_cuCtxGetDevice)
    if (!current()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *device = current()->device;
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxSynchronize(void) {
    ENTER_CONTEXT(FAKE_cuCtxSynchronize)
    if (CUresult met = meet_all_captures(context)) {
        return met;
    }
    run_all(context);
    return context->broken;
}

CUresult fake_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER_STARTED(FAKE_cuDevicePrimaryCtxRetain)
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    CUctx_st *&primary = get().primary[device];
    if (primary) {
        primary->references++;
        revive(primary);
    } else {
        primary = make_context(device, true);
    }
    *context = primary;
    return CUDA_SUCCESS;
}

// What was in it is gone. It stays retained, and its handle is used again.
CUresult fake_cuDevicePrimaryCtxReset(CUdevice device) {
    ENTER_STARTED(FAKE_cuDevicePrimaryCtxReset)
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (get().contexts.count(get().primary[device])) {
        end_context(get().primary[device]);
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER_STARTED(FAKE_cuDevicePrimaryCtxRelease)
    if (!is_device(device) || !get().primary[device]) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUctx_st *&primary = get().primary[device];
    if (--primary->references == 0) {
        if (get().contexts.count(primary)) {
            end_context(primary);
        }
        primary = nullptr;
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER_STARTED(FAKE_cuDevicePrimaryCtxGetState)
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *flags = 0;
    *active = get().contexts.count(get().primary[device]) != 0;
    return CUDA_SUCCESS;
}

// --- memory --------------------------------------------------------------------------------------

static CUresult add_memory(CUctx_st *context, size_t size, Kind kind, uintptr_t *address) {
    State &s = get();
    if (size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size > size_t{1} << 46) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t rounded = round_up(size + s.control.misalign, page);
    bool on_device = kind == DEVICE || kind == MANAGED;
    if (on_device && !take(context->device, rounded)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int fd = make_file("fake_cuda", rounded);
    char *base = map_file(fd, rounded);
    if (!base) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!on_device) {
        s.control.pinned += rounded;
    }
    *address = reinterpret_cast<uintptr_t>(base) + s.control.misalign;
    s.memory[*address] = Memory{rounded, kind, context, context->device, fd, ++s.ids};
    s.control.objects++;
    return CUDA_SUCCESS;
}

static CUresult remove_memory(uintptr_t address, std::set<Kind> kinds) {
    State &s = get();
    auto at = s.memory.find(address);
    if (at == s.memory.end() || !kinds.count(at->second.kind)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Memory memory = at->second;
    // As the real one, it waits for the work that uses the memory.
    run_all(memory.context);
    uncount(memory);
    if (memory.kind != REGISTERED) {
        munmap(reinterpret_cast<void *>(address & ~uintptr_t{4095}), memory.size);
    }
    if (memory.fd >= 0) {
        close(memory.fd);
    }
    s.memory.erase(at);
    s.control.objects--;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemAlloc(CUdeviceptr *address, size_t size) {
    ENTER_CONTEXT(FAKE_cuMemAlloc)
    MEET_CAPTURES()
    uintptr_t made;
    CUresult result = add_memory(context, size, DEVICE, &made);
    if (result == CUDA_SUCCESS) {
        *address = made;
    }
    return result;
}

CUresult fake_cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    ENTER_CONTEXT(FAKE_cuMemAllocManaged)
    MEET_CAPTURES()
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uintptr_t made;
    CUresult result = add_memory(context, size, MANAGED, &made);
    if (result == CUDA_SUCCESS) {
        *address = made;
    }
    return result;
}

CUresult fake_cuMemFree(CUdeviceptr address) {
    ENTER_CONTEXT(FAKE_cuMemFree)
    MEET_CAPTURES()
    return remove_memory(address, {DEVICE, MANAGED});
}

CUresult fake_cuMemHostAlloc(void **address, size_t size, unsigned) {
    ENTER_CONTEXT(FAKE_cuMemHostAlloc)
    MEET_CAPTURES()
    uintptr_t made;
    CUresult result = add_memory(context, size, PINNED, &made);
    if (result == CUDA_SUCCESS) {
        *address = reinterpret_cast<void *>(made);
    }
    return result;
}

CUresult fake_cuMemFreeHost(void *address) {
    ENTER_CONTEXT(FAKE_cuMemFreeHost)
    MEET_CAPTURES()
    return remove_memory(reinterpret_cast<uintptr_t>(address), {PINNED});
}

CUresult fake_cuMemHostRegister(void *address, size_t size, unsigned) {
    ENTER_CONTEXT(FAKE_cuMemHostRegister)
    MEET_CAPTURES()
    State &s = get();
    uintptr_t base = reinterpret_cast<uintptr_t>(address);
    if (!address || size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (any_overlaps(s.memory, base, size)) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    s.memory[base] = Memory{size, REGISTERED, context, context->device, -1, ++s.ids};
    s.control.registered += size;
    s.control.objects++;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemHostUnregister(void *address) {
    ENTER_CONTEXT(FAKE_cuMemHostUnregister)
    MEET_CAPTURES()
    return remove_memory(reinterpret_cast<uintptr_t>(address), {REGISTERED});
}

CUresult fake_cuMemGetInfo(size_t *free, size_t *total) {
    ENTER_CONTEXT(FAKE_cuMemGetInfo)
    const fake_cuda_t &control = get().control;
    *total = control.device_memory[context->device];
    *free = *total - control.used[context->device];
    return CUDA_SUCCESS;
}

CUresult fake_cuPointerGetAttribute(void *value, CUpointer_attribute attribute,
                                    CUdeviceptr address) {
    ENTER_STARTED(FAKE_cuPointerGetAttribute)
    State &s = get();
    auto memory = holding(s.memory, address, 1);
    auto mapping = holding(s.mappings, address, 1);
    bool known = memory != s.memory.end();
    if (!known && mapping == s.mappings.end()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool of_host = known ? memory->second.kind == PINNED || memory->second.kind == REGISTERED
                         : mapping->second.physical->device < 0;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned *>(value) = of_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(value) =
            known ? memory->second.device : mapping->second.physical->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *static_cast<unsigned long long *>(value) = known ? memory->second.id : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<unsigned *>(value) = known && memory->second.kind == MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<CUcontext *>(value) = known ? memory->second.context : nullptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr *>(value) = known ? memory->first : mapping->first;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<size_t *>(value) = known ? memory->second.size : mapping->second.size;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

// --- virtual memory ------------------------------------------------------------------------------

static bool is_granular(size_t size) {
    return size > 0 && size % get().control.granularity == 0;
}

CUresult fake_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *wanted,
                                            CUmemAllocationGranularity_flags) {
    ENTER_STARTED(FAKE_cuMemGetAllocationGranularity)
    (void)wanted; // the real one does not look at the device either
    *granularity = get().control.granularity;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment,
                                  CUdeviceptr wish, unsigned long long flags) {
    ENTER_STARTED(FAKE_cuMemAddressReserve)
    State &s = get();
    size_t unit = std::max(alignment, s.control.granularity);
    if (!is_granular(size) || flags != 0 || (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    (void)wish;
    char *made = reserve(size, unit);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uintptr_t base = reinterpret_cast<uintptr_t>(made);
    s.reservations[base] = {size};
    s.control.objects++;
    *address = base;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemAddressFree(CUdeviceptr address, size_t size) {
    ENTER_STARTED(FAKE_cuMemAddressFree)
    State &s = get();
    auto at = s.reservations.find(address);
    if (at == s.reservations.end() || at->second.size != size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (any_overlaps(s.mappings, address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    munmap(reinterpret_cast<void *>(address), size);
    s.reservations.erase(at);
    s.control.objects--;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                          const CUmemAllocationProp *wanted, unsigned long long flags) {
    ENTER_STARTED(FAKE_cuMemCreate)
    bool of_host = wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    int device = of_host ? -1 : wanted->location.id;
    if (!is_granular(size) || flags != 0 || wanted->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!of_host && !is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    bool rdma = wanted->allocFlags.gpuDirectRDMACapable;
    if (rdma && (of_host || !get().control.has_rdma || get().control.refuses_rdma)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    bool fabric = wanted->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC;
    if (fabric && get().control.fabric != FAKE_CUDA_FABRIC_PERMITTED) {
        return get().control.fabric == FAKE_CUDA_FABRIC_NONE ? CUDA_ERROR_NOT_SUPPORTED
                                                             : CUDA_ERROR_NOT_PERMITTED;
    }
    if (!of_host && !take(device, size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int fd = make_file("fake_cuda_physical", size);
    if (fd < 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool exportable = wanted->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    Physical *made = new Physical{size, device, fd, 1, exportable, fabric, false};
    get().physicals.insert(made);
    get().control.objects++;
    get().control.rdma_made += rdma;
    *handle = reinterpret_cast<CUmemGenericAllocationHandle>(made);
    return CUDA_SUCCESS;
}

static void drop(Physical *physical) {
    if (--physical->references > 0) {
        return;
    }
    if (physical->device >= 0 && !get().control.keeps_memory) {
        give(physical->device, physical->size);
    }
    close(physical->fd);
    get().physicals.erase(physical);
    delete physical;
}

static Physical *physical_of(CUmemGenericAllocationHandle handle) {
    Physical *physical = reinterpret_cast<Physical *>(handle);
    return get().physicals.count(physical) && !physical->released ? physical : nullptr;
}

CUresult fake_cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER_STARTED(FAKE_cuMemRelease)
    Physical *physical = physical_of(handle);
    if (!physical) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    physical->released = true;
    drop(physical);
    get().control.objects--;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
    ENTER_STARTED(FAKE_cuMemMap)
    State &s = get();
    Physical *physical = physical_of(handle);
    if (!physical || offset != 0 || flags != 0 || !is_granular(size) ||
        address % s.control.granularity != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size != physical->size) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (holding(s.reservations, address, size) == s.reservations.end() ||
        any_overlaps(s.mappings, address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mmap(reinterpret_cast<void *>(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED,
             physical->fd, 0) == MAP_FAILED) {
        return CUDA_ERROR_MAP_FAILED;
    }
    physical->references++;
    s.mappings[address] = Mapping{size, physical, {}};
    s.control.objects++;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemUnmap(CUdeviceptr address, size_t size) {
    ENTER_STARTED(FAKE_cuMemUnmap)
    State &s = get();
    if (size == 0 || !is_run(s.mappings, address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    note_removal(address, size);
    unmap_reserved(address, size);
    for (uintptr_t end = address + size; address < end;) {
        auto at = s.mappings.find(address);
        address += at->second.size;
        drop(at->second.physical);
        s.mappings.erase(at);
        s.control.objects--;
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *list,
                             size_t count) {
    ENTER_STARTED(FAKE_cuMemSetAccess)
    State &s = get();
    if (!list || count == 0 || !is_run(s.mappings, address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (list[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            !is_device(list[i].location.id)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
    }
    mprotect(reinterpret_cast<void *>(address), size, PROT_READ | PROT_WRITE);
    for (uintptr_t end = address + size; address < end;) {
        Mapping &mapping = s.mappings[address];
        for (size_t i = 0; i < count; i++) {
            mapping.access[{list[i].location.type, list[i].location.id}] = list[i].flags;
        }
        address += mapping.size;
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type,
                                           unsigned long long flags) {
    ENTER_STARTED(FAKE_cuMemExportToShareableHandle)
    Physical *physical = physical_of(handle);
    if (physical && flags == 0 && physical->fabric && type == CU_MEM_HANDLE_TYPE_FABRIC) {
        FabricHandle made{fabric_magic, getpid(), physical->fd};
        memset(out, 0, sizeof(CUmemFabricHandle));
        memcpy(out, &made, sizeof(made));
        return CUDA_SUCCESS;
    }
    if (!physical || flags != 0 || !physical->exportable ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int copy = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *static_cast<int *>(out) = copy;
    return CUDA_SUCCESS;
}

static int open_of(int pid, int fd) {
    std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
    return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

CUresult fake_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                             CUmemAllocationHandleType type) {
    ENTER_STARTED(FAKE_cuMemImportFromShareableHandle)
    struct stat status;
    int copy = -1;
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        copy = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(os_handle)), F_DUPFD_CLOEXEC, 0);
    } else if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        FabricHandle wanted;
        memcpy(&wanted, os_handle, sizeof(wanted));
        if (wanted.magic == fabric_magic) {
            copy = open_of(wanted.pid, wanted.fd);
        }
    }
    if (copy < 0 || fstat(copy, &status) != 0 || status.st_size == 0) {
        if (copy >= 0) {
            close(copy);
        }
        return CUDA_ERROR_INVALID_VALUE;
    }
    // The exporter pays for the memory.
    Physical *made =
        new Physical{static_cast<size_t>(status.st_size), -1, copy, 1, false, false, false};
    get().physicals.insert(made);
    get().control.objects++;
    *handle = reinterpret_cast<CUmemGenericAllocationHandle>(made);
    return CUDA_SUCCESS;
}

// --- IPC -----------------------------------------------------------------------------------------

CUresult fake_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    ENTER_STARTED(FAKE_cuIpcGetMemHandle)
    auto at = get().memory.find(address);
    if (at == get().memory.end() || at->second.kind != DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    IpcHandle made{ipc_magic, getpid(), at->second.fd, at->second.device, 0, at->second.size};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &made, sizeof(made));
    return CUDA_SUCCESS;
}

CUresult fake_cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    ENTER_CONTEXT(FAKE_cuIpcOpenMemHandle)
    MEET_CAPTURES()
    IpcHandle wanted;
    memcpy(&wanted, &handle, sizeof(wanted));
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || wanted.magic != ipc_magic ||
        !is_device(wanted.device)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (wanted.pid == getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    int fd = open_of(wanted.pid, wanted.fd);
    char *base = map_file(fd, wanted.size);
    if (!base) {
        if (fd >= 0) {
            close(fd);
        }
        return CUDA_ERROR_MAP_FAILED;
    }
    *address = reinterpret_cast<uintptr_t>(base);
    get().memory[*address] = Memory{wanted.size, IMPORTED, context, wanted.device, fd, ++get().ids};
    get().control.objects++;
    return CUDA_SUCCESS;
}

CUresult fake_cuIpcCloseMemHandle(CUdeviceptr address) {
    ENTER_CONTEXT(FAKE_cuIpcCloseMemHandle)
    MEET_CAPTURES()
    return remove_memory(address, {IMPORTED});
}

// --- streams and events --------------------------------------------------------------------------

CUresult fake_cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER_CONTEXT(FAKE_cuStreamCreate)
    MEET_CAPTURES()
    *stream = kept(new CUstream_st{context, {}, nullptr});
    (*stream)->is_blocking = !(flags & CU_STREAM_NON_BLOCKING);
    get().streams.insert(*stream);
    get().control.objects++;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamDestroy(CUstream stream) {
    ENTER_STARTED(FAKE_cuStreamDestroy)
    MEET_CAPTURES()
    if (!get().streams.count(stream)) {
        return dead();
    }
    run_stream(stream);
    get().streams.erase(stream);
    get().control.objects--;
    delete stream;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamSynchronize(CUstream stream) {
    ENTER_CONTEXT(FAKE_cuStreamSynchronize)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream)) {
        return dead();
    }
    if (stream->capture) {
        stream->is_broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    MEET_ON(stream)
    MEET_CAPTURES()
    run_stream(stream);
    return stream->context->broken;
}

CUresult fake_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    ENTER_CONTEXT(FAKE_cuStreamIsCapturing)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream)) {
        return dead();
    }
    for (CUstream_st *each : get().streams) {
        if (stream == stream->context->null_stream && each->capture &&
            is_in_the_way_of_default(*each, stream->context)) {
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; // no capture ends by that
        }
    }
    *status = !stream->capture    ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->is_broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamGetId(CUstream stream, unsigned long long *id) {
    ENTER_CONTEXT(FAKE_cuStreamGetId)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream)) {
        return dead();
    }
    stream->id = stream->id ? stream->id : ++get().ids;
    *id = stream->id;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamGetCtx(CUstream stream, CUcontext *of) {
    ENTER_CONTEXT(FAKE_cuStreamGetCtx)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream)) {
        return dead();
    }
    *of = stream->context;
    return CUDA_SUCCESS;
}

CUresult fake_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTER_STARTED(FAKE_cuThreadExchangeStreamCaptureMode)
    std::swap(thread_mode, *mode);
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    ENTER_CONTEXT(FAKE_cuStreamWaitEvent)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream) || !get().events.count(event)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    stream->add({[event] { return !get().events.count(event) || event->pending == 0; }});
    return CUDA_SUCCESS;
}

CUresult fake_cuEventCreate(CUevent *event, unsigned) {
    ENTER_CONTEXT(FAKE_cuEventCreate)
    *event = kept(new CUevent_st{context, false, 0});
    get().events.insert(*event);
    get().control.objects++;
    return CUDA_SUCCESS;
}

// The handle itself stays allocated: queued work may still name it.
CUresult fake_cuEventDestroy(CUevent event) {
    ENTER_STARTED(FAKE_cuEventDestroy)
    if (!get().events.erase(event)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    get().control.objects--;
    return CUDA_SUCCESS;
}

CUresult fake_cuEventRecord(CUevent event, CUstream stream) {
    ENTER_CONTEXT(FAKE_cuEventRecord)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream) || !get().events.count(event) ||
        event->context != stream->context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    event->recorded = true;
    event->pending++;
    stream->add({[event] {
        event->pending--;
        return true;
    }});
    return CUDA_SUCCESS;
}

// Each query lets the streams do one more piece of their work.
CUresult fake_cuEventQuery(CUevent event) {
    ENTER_STARTED(FAKE_cuEventQuery)
    MEET_CAPTURES()
    if (!get().events.count(event)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (event->pending > 0) {
        for (CUstream_st *stream : get().streams) {
            if (stream->context == event->context) {
                run_one(stream);
            }
        }
        return CUDA_ERROR_NOT_READY;
    }
    return event->context->broken;
}

CUresult fake_cuEventSynchronize(CUevent event) {
    ENTER_STARTED(FAKE_cuEventSynchronize)
    MEET_CAPTURES()
    if (!get().events.count(event)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    run_all(event->context);
    return event->context->broken;
}

CUresult fake_cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    ENTER_CONTEXT(FAKE_cuLaunchHostFunc)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream)) {
        return dead();
    }
    if (!stream->capture) {
        MEET_CAPTURES()
    }
    MEET_ON(stream)
    stream->add({[function, data] {
        function(data);
        return true;
    }});
    return CUDA_SUCCESS;
}

// --- copies --------------------------------------------------------------------------------------

CUresult fake_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    ENTER_CONTEXT(FAKE_cuMemcpyAsync)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream)) {
        return dead();
    }
    MEET_ON(stream)
    stream->add({[=] {
                     copy_now(stream->context, to, from, size);
                     return true;
                 },
                 static_cast<uintptr_t>(from), static_cast<uintptr_t>(to), size});
    return CUDA_SUCCESS;
}

// As one piece of work that reads and writes all rows and what is between them.
CUresult fake_cuMemcpy2DAsync(const CUDA_MEMCPY2D *rows, CUstream stream) {
    ENTER_CONTEXT(FAKE_cuMemcpy2DAsync)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream)) {
        return dead();
    }
    if (!rows || rows->srcMemoryType != CU_MEMORYTYPE_UNIFIED ||
        rows->dstMemoryType != CU_MEMORYTYPE_UNIFIED || rows->srcPitch < rows->WidthInBytes ||
        rows->dstPitch < rows->WidthInBytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    MEET_ON(stream)
    CUDA_MEMCPY2D all = *rows;
    size_t size = std::max(all.srcPitch, all.dstPitch) * (all.Height - 1) + all.WidthInBytes;
    stream->add({[=] {
                     for (size_t i = 0; i < all.Height; i++) {
                         copy_now(stream->context, all.dstDevice + i * all.dstPitch,
                                  all.srcDevice + i * all.srcPitch, all.WidthInBytes);
                     }
                     return true;
                 },
                 static_cast<uintptr_t>(all.srcDevice), static_cast<uintptr_t>(all.dstDevice),
                 size});
    return CUDA_SUCCESS;
}

CUresult fake_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream stream) {
    ENTER_CONTEXT(FAKE_cuMemsetD8Async)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream)) {
        return dead();
    }
    MEET_ON(stream)
    stream->add({[=] {
                     set_now(stream->context, to, value, size);
                     return true;
                 },
                 0, static_cast<uintptr_t>(to), size});
    return CUDA_SUCCESS;
}

// Those of the default stream wait for all others.
CUresult fake_cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
    ENTER_CONTEXT(FAKE_cuMemcpyHtoD)
    MEET_CAPTURES()
    MEET_ON(context->null_stream)
    run_all(context);
    return copy_now(context, to, reinterpret_cast<uintptr_t>(from), size);
}

CUresult fake_cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
    ENTER_CONTEXT(FAKE_cuMemcpyDtoH)
    MEET_CAPTURES()
    MEET_ON(context->null_stream)
    run_all(context);
    return copy_now(context, reinterpret_cast<uintptr_t>(to), from, size);
}

CUresult fake_cuMemsetD8(CUdeviceptr to, unsigned char value, size_t size) {
    ENTER_CONTEXT(FAKE_cuMemsetD8)
    MEET_CAPTURES()
    MEET_ON(context->null_stream)
    run_all(context);
    return set_now(context, to, value, size);
}

// --- graphs: captured copies and fills -----------------------------------------------------------

CUresult fake_cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    ENTER_CONTEXT(FAKE_cuStreamBeginCapture)
    if (!get().streams.count(stream) || stream->capture) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    stream->capture = kept(new CUgraph_st);
    stream->mode = mode;
    stream->capturer = std::this_thread::get_id();
    stream->is_broken = false;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    ENTER_CONTEXT(FAKE_cuStreamEndCapture)
    if (!get().streams.count(stream) || !stream->capture) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        stream->capturer != std::this_thread::get_id()) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    *graph = stream->is_broken ? nullptr : stream->capture;
    stream->capture = nullptr;
    if (stream->is_broken) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    get().graphs.insert(*graph);
    get().control.objects++;
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long) {
    ENTER_STARTED(FAKE_cuGraphInstantiateWithFlags)
    if (!get().graphs.count(graph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *made = kept(new CUgraphExec_st{graph->work});
    get().executables.insert(*made);
    get().control.objects++;
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    ENTER_CONTEXT(FAKE_cuGraphLaunch)
    stream = stream_of(stream, context);
    if (!get().streams.count(stream) || !get().executables.count(graph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (const Work &work : graph->work) {
        stream->add(work);
    }
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

CUresult fake_cuGraphExecDestroy(CUgraphExec graph) {
    ENTER_STARTED(FAKE_cuGraphExecDestroy)
    if (!get().executables.erase(graph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    get().control.objects--;
    return CUDA_SUCCESS;
}

// --- the forms for the default stream of the thread ----------------------------------------------

static CUstream_st *of_thread(CUstream stream) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    get().control.per_thread_calls++;
    if (stream || !get().contexts.count(current())) {
        return stream;
    }
    return stream_of_thread(current());
}

CUresult fake_cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    return fake_cuMemcpyAsync(to, from, size, of_thread(stream));
}

CUresult fake_cuMemcpy2DAsync_ptsz(const CUDA_MEMCPY2D *rows, CUstream stream) {
    return fake_cuMemcpy2DAsync(rows, of_thread(stream));
}

CUresult fake_cuMemsetD8Async_ptsz(CUdeviceptr to, unsigned char value, size_t size,
                                   CUstream stream) {
    return fake_cuMemsetD8Async(to, value, size, of_thread(stream));
}

CUresult fake_cuStreamSynchronize_ptsz(CUstream stream) {
    return fake_cuStreamSynchronize(of_thread(stream));
}

CUresult fake_cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
    return fake_cuStreamWaitEvent(of_thread(stream), event, flags);
}

CUresult fake_cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status) {
    return fake_cuStreamIsCapturing(of_thread(stream), status);
}

CUresult fake_cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return fake_cuEventRecord(event, of_thread(stream));
}

// --- symbols -------------------------------------------------------------------------------------

static bool is_hidden(const char *function) {
    const char *list = getenv("UMF_FAKE_CUDA_HIDE");
    for (size_t length = strlen(function); list && *list;) {
        size_t word = strcspn(list, ",");
        if (word == length && strncmp(list, function, length) == 0) {
            return true;
        }
        list += word + (list[word] == ',');
    }
    return false;
}

// Forms for the default stream of the thread.
#define PER_THREAD(FUNCTION)                                                                       \
    FUNCTION(cuMemcpyAsync)                                                                        \
    FUNCTION(cuMemcpy2DAsync)                                                                      \
    FUNCTION(cuMemsetD8Async)                                                                      \
    FUNCTION(cuStreamSynchronize)                                                                  \
    FUNCTION(cuStreamWaitEvent)                                                                    \
    FUNCTION(cuStreamIsCapturing)                                                                  \
    FUNCTION(cuEventRecord)

static const struct {
    const char *name;
    int version;
    bool per_thread;
    void *address;
} functions[] = {
#define FUNCTION(function)                                                                         \
    {#function, 7000, true, reinterpret_cast<void *>(&fake_##function##_ptsz)},
    PER_THREAD(FUNCTION)
#undef FUNCTION
#define UMF_CUDA(function, version, symbol, optional)                                              \
    {#function, version, false, reinterpret_cast<void *>(&fake_##function)},
#include "../../../src/providers/cuda/driver.def"
#include "extra.def"
#undef UMF_CUDA
};

CUresult fake_cuGetProcAddress(const char *symbol, void **address, int version, cuuint64_t flags) {
    bool wants_per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    for (const auto &each : functions) {
        if (strcmp(each.name, symbol) == 0 && each.version <= version &&
            (!each.per_thread || wants_per_thread) && !is_hidden(symbol)) {
            *address = each.address;
            return CUDA_SUCCESS;
        }
    }
    *address = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}

// The symbols are looked up, never linked: each lookup asks anew whether it is hidden. A function
// of another type than the list says does not get past the compiler.
#define SYMBOL(symbol, resolver)                                                                   \
    __asm__(".globl " symbol "\n.type " symbol ", @gnu_indirect_function\n.set " symbol            \
            ", " resolver);
#define UMF_CUDA(function, version, symbol, optional)                                              \
    static_assert(sizeof(PFN_##function##_v##version(&fake_##function)), #function);               \
    __attribute__((used)) void *resolve_##function(void) {                                         \
        return is_hidden(#function) ? nullptr : reinterpret_cast<void *>(&fake_##function);        \
    }                                                                                              \
    SYMBOL(symbol, "resolve_" #function)
#include "../../../src/providers/cuda/driver.def"
#include "extra.def"
UMF_CUDA(cuGetProcAddress, 11030, "cuGetProcAddress", true)
#undef UMF_CUDA
#define FUNCTION(function)                                                                         \
    __attribute__((used)) void *resolve_##function##_ptsz(void) {                                  \
        return is_hidden(#function) ? nullptr : reinterpret_cast<void *>(&fake_##function##_ptsz); \
    }                                                                                              \
    SYMBOL(#function "_ptsz", "resolve_" #function "_ptsz")
PER_THREAD(FUNCTION)
#undef FUNCTION

} // extern "C"
