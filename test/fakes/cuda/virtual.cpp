// Virtual memory of the software CUDA driver.

#include "state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace fake;

struct FabricHandle { // fits into CUmemFabricHandle
    uint64_t magic;
    int32_t pid, fd;
};
constexpr uint64_t fabric_magic = 0x756d666661627269;
static_assert(sizeof(FabricHandle) <= sizeof(CUmemFabricHandle), "a fabric handle has 64 bytes");

// Names of the files, with the device: that is how an importer knows them.
static const std::string physical_name = "fake_cuda_physical_";

static int place_of_file(int fd, bool *is_memory) {
    char target[128] = "";
    std::string path = "/proc/self/fd/" + std::to_string(fd);
    *is_memory = readlink(path.c_str(), target, sizeof(target) - 1) > 0;
    size_t at = std::string(target).find(physical_name);
    *is_memory = *is_memory && at != std::string::npos;
    return *is_memory ? atoi(target + at + physical_name.size()) : -1;
}

extern "C" {

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
    char *made = driver::reserve(size, unit);
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
    if (driver::any_overlaps(s.mappings, address, size)) {
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
    int fd = driver::make_file((physical_name + std::to_string(device)).c_str(), size);
    if (fd < 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool exportable = wanted->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    Physical *made = new Physical{size, device, fd, 1, exportable, fabric, false, rdma, 0};
    made->place = device;
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
    if (physical->name) {
        get().oracle.forget(physical->name, physical->size);
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

// Addresses that no program has.
static uintptr_t new_name(size_t size) {
    static uintptr_t next = uintptr_t{1} << 60;
    const uintptr_t name = next;
    next += size;
    return name;
}

// Memory that is mapped twice is one memory, whatever the address.
static void name_mapping(uintptr_t address, Physical *physical) {
    State &s = get();
    if (physical->has_dmabuf) { // its holder would reach what is put there next
        s.oracle.fault("memory of a DMA buffer is mapped at another address");
    }
    for (auto at = s.mappings.begin(); !physical->name && at != s.mappings.end(); ++at) {
        if (at->second.physical == physical && at->first != address) {
            physical->name = new_name(physical->size);
            s.oracle.name_first(at->first, physical->size, physical->name);
        }
    }
    if (physical->name) {
        s.oracle.name(address, physical->size, physical->name);
    }
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
    if (driver::holding(s.reservations, address, size) == s.reservations.end() ||
        driver::any_overlaps(s.mappings, address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mmap(reinterpret_cast<void *>(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED,
             physical->fd, 0) == MAP_FAILED) {
        return CUDA_ERROR_MAP_FAILED;
    }
    physical->references++;
    s.mappings[address] = Mapping{size, physical, {}};
    s.control.objects++;
    if (physical->references > 2 || physical->name) { // the handle has one reference
        name_mapping(address, physical);
    }
    return CUDA_SUCCESS;
}

// Neither call waits for the work that uses the memory. The work may end the program before the
// test requests faults.
static void note_removal(const char *call, uintptr_t base, size_t size) {
    if (!get().oracle.remove(call, base, size)) {
        get().control.unordered_unmaps++;
        fprintf(stderr, "%s\n", get().oracle.faults().back().c_str());
    }
}

CUresult fake_cuMemUnmap(CUdeviceptr address, size_t size) {
    ENTER_STARTED(FAKE_cuMemUnmap)
    State &s = get();
    if (size == 0 || !driver::is_run(s.mappings, address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    note_removal("cuMemUnmap", address, size);
    driver::unmap_reserved(address, size);
    for (uintptr_t end = address + size; address < end;) {
        auto at = s.mappings.find(address);
        if (at->second.physical->name) {
            s.oracle.unname(address, at->second.size);
        }
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
    if (!list || count == 0 || !driver::is_run(s.mappings, address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (list[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            !is_device(list[i].location.id)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            note_removal("cuMemSetAccess", address, size);
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

CUresult fake_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                             CUdeviceptr ptr) {
    ENTER_STARTED(FAKE_cuMemGetAccess)
    State &s = get();
    if (!flags || !location) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto ordinary = driver::holding(s.memory, ptr, 1);
    if (ordinary != s.memory.end() && ordinary->second.kind == DEVICE) {
        *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE; // of any device, as the real driver says
        return CUDA_SUCCESS;
    }
    auto at = s.mappings.upper_bound(ptr);
    if (at == s.mappings.begin()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    --at;
    if (ptr - at->first >= at->second.size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto access = at->second.access.find({location->type, location->id});
    const bool has_access = access != at->second.access.end();
    *flags = has_access ? access->second : unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE};
    return CUDA_SUCCESS;
}

CUresult fake_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                     CUmemGenericAllocationHandle handle) {
    ENTER_STARTED(FAKE_cuMemGetAllocationPropertiesFromHandle)
    Physical *physical = physical_of(handle);
    if (!physical) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *properties = {};
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location.type =
        physical->place < 0 ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
    properties->location.id = std::max(physical->place, 0);
    return CUDA_SUCCESS;
}

// The content of now: a file stands for the buffer, and it is not shared with the memory.
CUresult fake_cuMemGetHandleForAddressRange(void *out, CUdeviceptr address, size_t size,
                                            CUmemRangeHandleType type, unsigned long long flags) {
    ENTER_STARTED(FAKE_cuMemGetHandleForAddressRange)
    State &s = get();
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || size == 0 ||
        address % page != 0 || size % page != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (s.control.lacks_dmabuf) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    auto memory = driver::holding(s.memory, address, size);
    for (uintptr_t at = address, end = address + size;
         memory == s.memory.end() && at < end;) { // all mapped, all of one device
        auto mapping = driver::holding(s.mappings, at, 1);
        if (mapping == s.mappings.end() || mapping->second.physical->device < 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        mapping->second.physical->has_dmabuf = true;
        at = mapping->first + mapping->second.size;
    }
    int fd = driver::make_file("fake_cuda_dmabuf", size);
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    /* Not by pwrite, which sanitizers look at: free memory of a pool is poisoned. */
    if (syscall(SYS_pwrite64, fd, address, size, 0) != static_cast<long>(size)) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *static_cast<int *>(out) = fd;
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
    bool is_memory = false;
    int place = copy < 0 ? -1 : place_of_file(copy, &is_memory);
    if (!is_memory || fstat(copy, &status) != 0 || status.st_size == 0) {
        if (copy >= 0) {
            close(copy);
        }
        return CUDA_ERROR_INVALID_VALUE;
    }
    // The exporter pays for the memory.
    Physical *made = new Physical{
        static_cast<size_t>(status.st_size), -1, copy, 1, false, false, false, false, 0};
    made->place = place;
    get().physicals.insert(made);
    get().control.objects++;
    *handle = reinterpret_cast<CUmemGenericAllocationHandle>(made);
    return CUDA_SUCCESS;
}

} // extern "C"
