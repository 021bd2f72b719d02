// How the functions of the software CUDA driver are found, also those for the default stream of the
// thread.

#include "state.h"

#include <cstdlib>
#include <cstring>

using namespace fake;

extern "C" {

// --- the forms for the default stream of the thread ----------------------------------------------

static CUstream of_thread(CUstream stream) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    get().control.per_thread_calls++;
    return stream ? stream : CU_STREAM_PER_THREAD;
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

CUresult fake_cuMemPrefetchAsync_ptsz(CUdeviceptr at, size_t size, CUdevice device,
                                      CUstream stream) {
    return fake_cuMemPrefetchAsync(at, size, device, of_thread(stream));
}

CUresult fake_cuLaunchKernel_ptsz(CUfunction kernel, unsigned grid_x, unsigned grid_y,
                                  unsigned grid_z, unsigned x, unsigned y, unsigned z,
                                  unsigned shared, CUstream stream, void **arguments,
                                  void **extra) {
    return fake_cuLaunchKernel(kernel, grid_x, grid_y, grid_z, x, y, z, shared, of_thread(stream),
                               arguments, extra);
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

CUresult fake_cuStreamQuery_ptsz(CUstream stream) {
    return fake_cuStreamQuery(of_thread(stream));
}

CUresult fake_cuStreamGetFlags_ptsz(CUstream stream, unsigned *flags) {
    return fake_cuStreamGetFlags(of_thread(stream), flags);
}

CUresult fake_cuStreamGetId_ptsz(CUstream stream, unsigned long long *id) {
    return fake_cuStreamGetId(of_thread(stream), id);
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

static const struct {
    const char *name;
    int version;
    bool per_thread;
    void *address;
} functions[] = {
#define FUNCTION(function, version)                                                                \
    {#function, version, true, reinterpret_cast<void *>(&fake_##function##_ptsz)},
    FAKE_CUDA_PER_THREAD(FUNCTION)
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

// The symbols are looked up, never linked: each lookup checks anew whether it is hidden.
#define SYMBOL(symbol, resolver)                                                                   \
    __asm__(".globl " symbol "\n.type " symbol ", @gnu_indirect_function\n.set " symbol            \
            ", " resolver);
#define UMF_CUDA(function, version, symbol, optional)                                              \
    __attribute__((used)) void *resolve_##function(void) {                                         \
        return is_hidden(#function) ? nullptr : reinterpret_cast<void *>(&fake_##function);        \
    }                                                                                              \
    SYMBOL(symbol, "resolve_" #function)
#include "../../../src/providers/cuda/driver.def"
#include "extra.def"
UMF_CUDA(cuGetProcAddress, 11030, "cuGetProcAddress", true)
#undef UMF_CUDA
#define FUNCTION(function, version)                                                                \
    __attribute__((used)) void *resolve_##function##_ptsz(void) {                                  \
        return is_hidden(#function) ? nullptr : reinterpret_cast<void *>(&fake_##function##_ptsz); \
    }                                                                                              \
    SYMBOL(#function "_ptsz", "resolve_" #function "_ptsz")
FAKE_CUDA_PER_THREAD(FUNCTION)
#undef FUNCTION

} // extern "C"
