// umfCopy between the host and GPUs, and on the host, beside the driver's own copies and memcpy.
#include "gpu.h"

#include <umf.h>
#include <umf/copy.h>
#include <umf/pools/pool_proxy.h>
#include <umf/text.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gpu {
namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB;

// Memory of one kind, from a pool of its own.
struct Memory {
    umf_memory_pool_handle_t pool = nullptr;
    char *ptr = nullptr;
    size_t size;

    Memory(const std::string &text, size_t bytes) : size(bytes) {
        if (umfPoolCreateFromText(("proxy over " + text).c_str(), &pool) == UMF_RESULT_SUCCESS) {
            ptr = static_cast<char *>(umfPoolMalloc(pool, size));
        }
        if (!ptr) {
            printf("  no %zu MiB of %s\n", size / MiB, text.c_str());
        }
    }
    ~Memory() {
        if (ptr) {
            umfPoolFree(pool, ptr);
        }
        if (pool) {
            umfPoolDestroy(pool);
        }
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    CUdeviceptr device() const {
        return reinterpret_cast<CUdeviceptr>(ptr);
    }
};

// The best rate of a few rounds, in GB/s.
double rate(size_t size, const std::function<bool()> &copy) {
    double best = 0;
    for (int round = 0; round < (options.quick ? 3 : 6); round++) {
        Stopwatch watch;
        if (!copy()) {
            return 0;
        }
        best = std::max(best, static_cast<double>(size) / watch.seconds() / 1e9);
    }
    return best;
}

double rate_of_umf(void *to, const void *from, size_t size) {
    return rate(size, [=] { return umfCopy(to, from, size, nullptr) == UMF_RESULT_SUCCESS; });
}

void compare(const char *what, size_t size, double ours, double peer, double bound) {
    printf("  %-44s %6s  %7.2f GB/s, peer %7.2f\n", what, text(size).c_str(), ours, peer);
    print_target(what, peer > 0 ? ours / peer : 0, bound, true);
}

struct Rates {
    double to = 0, from = 0;
};

Rates driver_rates(const Memory &device, void *host, size_t size) {
    return {rate(size,
                 [&] { return driver.cuMemcpyHtoD(device.device(), host, size) == CUDA_SUCCESS; }),
            rate(size,
                 [&] { return driver.cuMemcpyDtoH(host, device.device(), size) == CUDA_SUCCESS; })};
}

void run_pinned(const Memory &device, const Memory &pinned) {
    for (size_t size : {16 * MiB, pinned.size}) {
        const Rates peer = driver_rates(device, pinned.ptr, size);
        compare("pinned to device", size, rate_of_umf(device.ptr, pinned.ptr, size), peer.to, 0.97);
        compare("device to pinned", size, rate_of_umf(pinned.ptr, device.ptr, size), peer.from,
                0.97);
    }
}

void run_pageable(const Memory &device, const Memory &pinned, size_t size) {
    char *plain = static_cast<char *>(malloc(size));
    if (!plain) {
        return;
    }
    memset(plain, 1, size);
    const Rates peer = driver_rates(device, plain, size);
    const Rates best = driver_rates(device, pinned.ptr, std::min(size, pinned.size));
    const double to = rate_of_umf(device.ptr, plain, size),
                 from = rate_of_umf(plain, device.ptr, size);
    compare("pageable to device, of cuMemcpy on pageable", size, to, peer.to, 6);
    compare("device to pageable, of cuMemcpy on pageable", size, from, peer.from, 3);
    compare("pageable to device, of cuMemcpy on pinned", size, to, best.to, 0.9);
    compare("device to pageable, of cuMemcpy on pinned", size, from, best.from, 0.9);
    free(plain);
}

// The peer reads into one pinned buffer and copies from there.
bool read_and_copy(int fd, const Memory &device, char *buffer, size_t size) {
    for (size_t at = 0; at < size; at += 16 * MiB) {
        const size_t part = std::min(16 * MiB, size - at);
        if (pread(fd, buffer, part, static_cast<off_t>(at)) != static_cast<ssize_t>(part) ||
            driver.cuMemcpyHtoD(device.device() + at, buffer, part) != CUDA_SUCCESS) {
            return false;
        }
    }
    return true;
}

void run_file(const Memory &device, const Memory &pinned, size_t size) {
    const int fd = open(options.folder.c_str(), O_TMPFILE | O_RDWR, 0600);
    void *view = fd >= 0 && ftruncate(fd, static_cast<off_t>(size)) == 0
                     ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    if (view != MAP_FAILED) {
        memset(view, 1, size);
        const double peer = rate(size, [&] { return read_and_copy(fd, device, pinned.ptr, size); });
        compare("file in the page cache to device", size, rate_of_umf(device.ptr, view, size), peer,
                1.5);
        munmap(view, size);
    }
    close(fd);
}

void run_peer(const Memory &device, size_t size) {
    int count = 0, can = 0;
    GPU_CALL(cuDeviceGetCount(&count));
    if (count < 2 || driver.cuDeviceCanAccessPeer(&can, 0, 1) != CUDA_SUCCESS || !can) {
        printf("  no second GPU that the first one reaches\n");
        return;
    }
    const Memory other("cuda:device=1,memory_type=device", size);
    CUstream stream = nullptr;
    CUcontext there = nullptr;
    GPU_CALL(cuDevicePrimaryCtxRetain(&there, 1));
    if (driver.cuCtxEnablePeerAccess) {
        driver.cuCtxEnablePeerAccess(there,
                                     0); // without it, the driver's copies go through the host
    }
    GPU_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const double peer = rate(size, [&] {
        return driver.cuMemcpyAsync(other.device(), device.device(), size, stream) ==
                   CUDA_SUCCESS &&
               driver.cuStreamSynchronize(stream) == CUDA_SUCCESS;
    });
    compare("device to device, peer", size, rate_of_umf(other.ptr, device.ptr, size), peer, 0.97);
    GPU_CALL(cuStreamDestroy(stream));
    GPU_CALL(cuDevicePrimaryCtxRelease(1));
}

void run_host(size_t size) {
    char *to = static_cast<char *>(malloc(size)), *from = static_cast<char *>(malloc(size));
    if (to && from) {
        memset(to, 1, size);
        memset(from, 2, size);
        const double peer = rate(size, [=] { return memcpy(to, from, size) != nullptr; });
        compare("host to host, all CPUs", size, rate_of_umf(to, from, size), peer, 5.5);
        const size_t small = 8 * MiB;
        const double one = rate(small, [=] { return memcpy(to, from, small) != nullptr; });
        compare("host to host, one thread", small, rate_of_umf(to, from, small), one, 0.97);
    }
    free(to);
    free(from);
}

// Nanoseconds of one call.
double time_of(const std::function<void()> &call) {
    double best = 1e18;
    const int calls = options.quick ? 2000 : 20000;
    for (int round = 0; round < 5; round++) {
        Stopwatch watch;
        for (int i = 0; i < calls; i++) {
            call();
        }
        best = std::min(best, watch.seconds() * 1e9 / calls);
    }
    return best;
}

void run_small(const Memory &device, const Memory &pinned) {
    static char a[64], b[64];
    const Memory pool("os", 4096);
    char *p = pool.ptr, *q = pool.ptr + 64;
    const double plain = time_of([] { memcpy(a, b, 64); });
    const double ours = time_of([=] { umfCopy(p, q, 64, nullptr); });
    print_target("added to 64 B host to host, ns", ours - plain, 30);
    CUstream stream = nullptr;
    GPU_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const double peer = time_of([&] {
        driver.cuMemcpyAsync(device.device(), reinterpret_cast<CUdeviceptr>(pinned.ptr), 4 * KiB,
                             stream);
        driver.cuStreamSynchronize(stream);
    });
    const double copied = time_of([&] { umfCopy(device.ptr, pinned.ptr, 4 * KiB, nullptr); });
    printf("  4 KiB to a device: %.0f ns, the driver %.0f\n", copied, peer);
    print_target("added to 4 KiB to a device, ns", copied - peer, 300);
    GPU_CALL(cuStreamDestroy(stream));
}

} // namespace

void run_copies() {
    const size_t size = (options.quick ? 256 : 4096) * MiB;
    const Memory device("cuda:memory_type=device", size);
    const Memory pinned("cuda:memory_type=host", std::min(size, 1024 * MiB));
    printf("\ncopies, %s at most\n", text(size).c_str());
    if (!device.ptr || !pinned.ptr) {
        return;
    }
    run_pinned(device, pinned);
    run_pageable(device, pinned, size);
    run_file(device, pinned, std::min(size, 1024 * MiB));
    run_peer(device, std::min(size, 1024 * MiB));
    run_host(size);
    run_small(device, pinned);
}

} // namespace gpu
