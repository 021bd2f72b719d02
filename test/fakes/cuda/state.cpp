// The software CUDA driver; fake_cuda.h says what it does. Every function takes one lock.

#include "state.h"

#include <cstdlib>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace fake {

std::recursive_mutex lock;
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static State *state;

// The library calls the driver at the end of a thread, too, when destructors have run.
std::vector<CUctx_st *> &stack() {
    static thread_local std::vector<CUctx_st *> *mine;
    if (!mine) {
        mine = driver::kept(new std::vector<CUctx_st *>);
    }
    return *mine;
}

static State *fresh() {
    State *made = driver::kept(new State);
    const char *late = getenv("UMF_FAKE_CUDA_LATE");
    made->control.devices = 2;
    made->control.granularity = size_t{2} << 20;
    made->control.fail_function = FAKE_CUDA_ANY;
    made->control.host_node = -1;
    made->control.keeps_memory = getenv("UMF_FAKE_CUDA_KEEPS_MEMORY") != nullptr;
    made->control.late = late ? strtoul(late, nullptr, 10) : 0;
    std::fill_n(made->control.device_memory, FAKE_CUDA_DEVICES, size_t{1} << 30);
    return made;
}

// A thread of a stream may hold the lock at the fork, and is not there in the child.
static void before_fork() {
    lock.lock();
}

static void after_fork() {
    lock.unlock();
}

static void in_child() {
    new (&lock) std::recursive_mutex;
}

State &get() {
    if (!state) {
        state = fresh();
        pthread_atfork(before_fork, after_fork, in_child);
    }
    return *state;
}

CUctx_st *current() {
    return stack().empty() ? nullptr : stack().back();
}

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

CUresult dead() {
    get().control.dead_uses++;
    return CUDA_ERROR_INVALID_HANDLE;
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

bool is_reachable(uintptr_t base, size_t size, int device, unsigned wanted) {
    State &s = get();
    auto memory = driver::holding(s.memory, base, 1);
    if (memory != s.memory.end()) {
        return base + size <= memory->first + memory->second.size;
    }
    if (!driver::any_overlaps(s.reservations, base, size)) {
        return true;
    }
    while (size > 0) {
        auto mapping = driver::holding(s.mappings, base, 1);
        if (mapping == s.mappings.end() || !mapping->second.permits(device, wanted)) {
            return false;
        }
        size_t part = std::min(size, mapping->first + mapping->second.size - base);
        base += part;
        size -= part;
    }
    return true;
}

int open_of(int pid, int fd) {
    std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
    return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

} // namespace fake

using namespace fake;

extern "C" {

fake_cuda_t *fake_cuda(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return &get().control;
}

void fake_cuda_reset(void) {
    std::unique_lock<std::recursive_mutex> guard(lock);
    end_threads(guard);
    state = fresh();
    stack().clear();
}

// --- the oracle ----------------------------------------------------------------------------------

const char *fake_cuda_faults(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    get().faults.clear();
    for (const std::string &fault : get().oracle.faults()) {
        get().faults += fault + "\n";
    }
    return get().faults.c_str();
}

static Stream *find(CUstream stream) {
    bool is_default = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    return is_default && !current() ? nullptr : stream_of(stream, current());
}

void oracle_handed_out(const void *ptr, size_t size, CUstream stream) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    Stream *to = find(stream);
    if (!to) {
        get().oracle.fault("memory is handed out to a stream that was destroyed");
        return;
    }
    uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    get().oracle.hand_out(at, size, clock_of(to), "stream " + std::to_string(to->id));
    if (to->capture) {
        std::vector<oracle::Owner> made = get().oracle.owners({{at, size, true}});
        std::vector<oracle::Owner> &owners = to->capture->graph->owners;
        owners.insert(owners.end(), made.begin(), made.end());
    }
}

void oracle_handed_out_to_all(const void *ptr, size_t size) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    get().oracle.hand_out(reinterpret_cast<uintptr_t>(ptr), size, get().oracle.of_host(),
                          "the host");
}

void oracle_given_back(const void *ptr, size_t size) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    get().oracle.give_back(reinterpret_cast<uintptr_t>(ptr), size);
}

void oracle_takes_away(int yes) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    get().oracle.takes_away(yes != 0);
}

} // extern "C"
