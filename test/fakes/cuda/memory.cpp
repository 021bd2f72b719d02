// Memory of a context of the software CUDA driver: of a device, pinned, managed, of other
// processes.

#include "state.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

using namespace fake;

constexpr size_t page = 4096;

struct IpcHandle { // fits into CUipcMemHandle
    uint64_t magic;
    int32_t pid, fd, device, unused;
    uint64_t size;
};
constexpr uint64_t ipc_magic = 0x756d662066616b65;
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle), "an IPC handle has 64 bytes");

namespace fake {

void uncount(const Memory &memory) {
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

} // namespace fake

extern "C" {

// --- memory --------------------------------------------------------------------------------------

static CUresult add_memory(CUctx_st *context, size_t size, Kind kind, uintptr_t *address) {
    State &s = get();
    if (size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (size > size_t{1} << 46) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t rounded = driver::round_up(size + s.control.misalign, page);
    bool on_device = kind == DEVICE || kind == MANAGED;
    if (on_device && !take(context->device, rounded)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int fd = driver::make_file("fake_cuda", rounded);
    char *base = driver::map_file(fd, rounded);
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

// As the real driver, it waits for the work that uses the memory.
static CUresult remove_memory(uintptr_t address, std::set<Kind> kinds) {
    State &s = get();
    auto at = s.memory.find(address);
    if (at == s.memory.end() || !kinds.count(at->second.kind)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Memory memory = at->second;
    s.memory.erase(at);
    wait_for(points_of(memory.context));
    s.oracle.forget(address, memory.size);
    uncount(memory);
    if (memory.kind != REGISTERED) {
        munmap(reinterpret_cast<void *>(address & ~uintptr_t{4095}), memory.size);
    }
    if (memory.fd >= 0) {
        close(memory.fd);
    }
    s.control.objects--;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemAlloc(CUdeviceptr *address, size_t size) {
    ENTER_CONTEXT(FAKE_cuMemAlloc)
    MEET(meet_captures())
    uintptr_t made;
    CUresult result = add_memory(context, size, DEVICE, &made);
    if (result == CUDA_SUCCESS) {
        *address = made;
    }
    return result;
}

CUresult fake_cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    ENTER_CONTEXT(FAKE_cuMemAllocManaged)
    MEET(meet_captures())
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
    MEET(meet_captures())
    return remove_memory(address, {DEVICE, MANAGED});
}

CUresult fake_cuMemHostAlloc(void **address, size_t size, unsigned) {
    ENTER_CONTEXT(FAKE_cuMemHostAlloc)
    MEET(meet_captures())
    uintptr_t made;
    CUresult result = add_memory(context, size, PINNED, &made);
    if (result == CUDA_SUCCESS) {
        *address = reinterpret_cast<void *>(made);
    }
    return result;
}

CUresult fake_cuMemFreeHost(void *address) {
    ENTER_CONTEXT(FAKE_cuMemFreeHost)
    MEET(meet_captures())
    return remove_memory(reinterpret_cast<uintptr_t>(address), {PINNED});
}

// Whether all of it is mapped writable.
static bool is_writable(uintptr_t base, size_t size) {
    uintptr_t at = base;
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (maps && at < base + size && fgets(line, sizeof(line), maps)) {
        uintptr_t begin, end;
        char access[5];
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, access) == 3 &&
            begin <= at && at < end) {
            if (access[1] != 'w') {
                break;
            }
            at = end;
        }
    }
    if (maps) {
        fclose(maps);
    }
    return at >= base + size;
}

CUresult fake_cuMemHostRegister(void *address, size_t size, unsigned flags) {
    ENTER_CONTEXT(FAKE_cuMemHostRegister)
    MEET(meet_captures())
    State &s = get();
    uintptr_t base = reinterpret_cast<uintptr_t>(address);
    if (!address || size == 0 ||
        (!(flags & CU_MEMHOSTREGISTER_READ_ONLY) && !is_writable(base, size))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (driver::any_overlaps(s.memory, base, size)) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    s.memory[base] = Memory{size, REGISTERED, context, context->device, -1, ++s.ids};
    s.control.registered += size;
    s.control.objects++;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemHostUnregister(void *address) {
    ENTER_CONTEXT(FAKE_cuMemHostUnregister)
    MEET(meet_captures())
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
    auto memory = driver::holding(s.memory, address, 1);
    auto mapping = driver::holding(s.mappings, address, 1);
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
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *static_cast<unsigned *>(value) =
            s.control.has_rdma && !of_host && (known || mapping->second.physical->rdma);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<size_t *>(value) = known ? memory->second.size : mapping->second.size;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
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
    MEET(meet_captures())
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
    char *base = driver::map_file(fd, wanted.size);
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
    MEET(meet_captures())
    return remove_memory(address, {IMPORTED});
}

} // extern "C"
