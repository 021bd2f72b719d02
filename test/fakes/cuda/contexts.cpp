// Start, errors, devices and contexts of the software CUDA driver.

#include "state.h"

#include <cstdio>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

using namespace fake;

extern "C" {

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
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
        *value = !get().control.lacks_dmabuf;
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

CUresult fake_cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    ENTER_STARTED(FAKE_cuDeviceGetUuid)
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    char name[sizeof(*uuid) + 1];
    snprintf(name, sizeof(name), "software GPU %03d", device + get().control.first_uuid);
    memcpy(uuid, name, sizeof(*uuid));
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
    auto *context = driver::kept(new CUctx_st{device, primary, 1, nullptr, CUDA_SUCCESS, {}, {}});
    context->null_stream = make_stream(context, true);
    get().contexts.insert(context);
    get().control.contexts++;
    return context;
}

// A primary context that was reset begins anew.
static void revive(CUctx_st *context) {
    if (get().contexts.insert(context).second) {
        context->null_stream = make_stream(context, true);
        context->per_thread.clear();
        context->broken = CUDA_SUCCESS;
        get().control.contexts++;
    }
}

static void end_streams(const CUctx_st *context) {
    State &s = get();
    std::vector<Stream *> all = s.streams;
    for (Stream *stream : all) {
        if (stream->context == context) {
            drop(stream);
        }
    }
    for (auto at = s.handles.begin(); at != s.handles.end();) {
        at = (*at)->stream->context == context ? s.handles.erase(at) : std::next(at);
    }
}

// Memory of a context goes with it; the objects stay as dead handles.
static void end_context(CUctx_st *context) {
    State &s = get();
    end_streams(context);
    for (auto at = s.memory.begin(); at != s.memory.end();) {
        Memory &memory = at->second;
        if (memory.context != context) {
            ++at;
            continue;
        }
        uncount(memory);
        s.oracle.forget(at->first, memory.size);
        if (memory.kind != REGISTERED) {
            munmap(reinterpret_cast<void *>(at->first), memory.size);
        }
        if (memory.fd >= 0) {
            close(memory.fd);
        }
        s.control.objects--;
        at = s.memory.erase(at);
    }
    context->peers.clear();
    for (CUctx_st *each : s.contexts) {
        each->peers.erase(context);
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
    stack().push_back(*context);
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxDestroy(CUcontext context) {
    ENTER_STARTED(FAKE_cuCtxDestroy)
    if (!get().contexts.count(context) || context->primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (current() == context) {
        stack().pop_back();
    }
    end_context(context);
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    ENTER_CONTEXT(FAKE_cuCtxEnablePeerAccess)
    MEET(meet_captures())
    if (flags || !get().contexts.count(peer)) {
        return flags ? CUDA_ERROR_INVALID_VALUE : dead();
    }
    if (peer->device == context->device || get().control.lacks_peers) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    return context->peers.insert(peer).second ? CUDA_SUCCESS
                                              : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult fake_cuCtxPushCurrent(CUcontext context) {
    ENTER_STARTED(FAKE_cuCtxPushCurrent)
    if (!get().contexts.count(context)) {
        return dead();
    }
    stack().push_back(context);
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxPopCurrent(CUcontext *context) {
    ENTER_STARTED(FAKE_cuCtxPopCurrent)
    if (stack().empty()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (context) {
        *context = stack().back();
    }
    stack().pop_back();
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
    if (!stack().empty()) {
        stack().pop_back();
    }
    if (context) {
        stack().push_back(context);
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

// Its content is gone. It stays retained, and its handle is used again.
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

} // extern "C"
