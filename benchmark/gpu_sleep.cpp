// Suspend and resume of a pool, compared with the naive way and with the bare driver.
#include "gpu.h"

#include <umf.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/suspend.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include <sys/mman.h>

namespace gpu {
namespace {

constexpr size_t MiB = size_t{1} << 20, GiB = size_t{1} << 30;

// Seconds for all of the memory.
struct Way {
    double sleep = 0, wake = 0;
};

struct Case {
    size_t block, count;
    size_t bytes() const {
        return block * count;
    }
};

void print_way(const std::string &name, const Case &of, const Way &way) {
    const double gb = static_cast<double>(of.bytes()) / 1e9;
    printf("  %-28s %10.1f ms %8.1f GB/s %10.1f ms %8.1f GB/s\n", name.c_str(), way.sleep * 1e3,
           gb / way.sleep, way.wake * 1e3, gb / way.wake);
}

// --- the bare driver -----------------------------------------------------------------------------

// Blocks of virtual memory side by side, one handle each.
class Blocks {
    const Case of;
    CUdeviceptr base = 0;
    std::vector<CUmemGenericAllocationHandle> handles;

  public:
    explicit Blocks(const Case &wanted) : of(wanted), handles(wanted.count) {
        GPU_CALL(cuMemAddressReserve(&base, of.bytes(), 0, 0, 0));
        make(true);
        GPU_CALL(cuMemsetD8(base, 1, of.bytes()));
        GPU_CALL(cuCtxSynchronize());
    }
    ~Blocks() {
        drop(true);
        GPU_CALL(cuMemAddressFree(base, of.bytes()));
    }
    Blocks(const Blocks &) = delete;
    Blocks &operator=(const Blocks &) = delete;

    CUdeviceptr at(size_t index) const {
        return base + index * of.block;
    }
    void map_one(size_t index) {
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        GPU_CALL(cuMemCreate(&handles[index], of.block, &properties, 0));
        GPU_CALL(cuMemMap(at(index), of.block, 0, handles[index], 0));
    }
    void allow(CUdeviceptr start, size_t size) {
        CUmemAccessDesc access = {};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        GPU_CALL(cuMemSetAccess(start, size, &access, 1));
    }
    void make_one(size_t index) {
        map_one(index);
        allow(at(index), of.block);
    }
    void drop_one(size_t index) {
        GPU_CALL(cuMemUnmap(at(index), of.block));
        GPU_CALL(cuMemRelease(handles[index]));
    }
    // `at_once`: one call unmaps all blocks, and one gives the device access.
    void make(bool at_once) {
        for (size_t i = 0; i < of.count; i++) {
            at_once ? map_one(i) : make_one(i);
        }
        if (at_once) {
            allow(base, of.bytes());
        }
    }
    void drop(bool at_once) {
        if (at_once) {
            GPU_CALL(cuMemUnmap(base, of.bytes()));
        }
        for (size_t i = 0; i < of.count; i++) {
            if (at_once) {
                GPU_CALL(cuMemRelease(handles[i]));
            } else {
                drop_one(i);
            }
        }
    }
};

Way measure_unmap(Blocks &blocks, bool at_once) {
    Way best = {1e9, 1e9};
    for (int i = 0; i < 3; i++) {
        const Stopwatch sleep;
        blocks.drop(at_once);
        best.sleep = std::min(best.sleep, sleep.seconds());
        const Stopwatch wake;
        blocks.make(at_once);
        best.wake = std::min(best.wake, wake.seconds());
    }
    return best;
}

// Copies of all blocks to and from one pinned buffer, queued at once.
Way measure_copy(const Blocks &blocks, const Case &of) {
    void *buffer = nullptr;
    CUstream stream;
    GPU_CALL(cuMemHostAlloc(&buffer, of.block, 0));
    GPU_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr host = reinterpret_cast<CUdeviceptr>(buffer);
    auto copy = [&](bool to_host) {
        const Stopwatch watch;
        for (size_t i = 0; i < of.count; i++) {
            GPU_CALL(cuMemcpyAsync(to_host ? host : blocks.at(i), to_host ? blocks.at(i) : host,
                                   of.block, stream));
        }
        GPU_CALL(cuStreamSynchronize(stream));
        return watch.seconds();
    };
    Way best = {1e9, 1e9};
    for (int i = 0; i < 3; i++) {
        best.sleep = std::min(best.sleep, copy(true));
        best.wake = std::min(best.wake, copy(false));
    }
    GPU_CALL(cuStreamDestroy(stream));
    GPU_CALL(cuMemFreeHost(buffer));
    return best;
}

// A new pinned buffer and a blocking copy for each block. An eighth is measured, the rest
// estimated.
Way measure_naive(Blocks &blocks, const Case &of) {
    const size_t count = std::max<size_t>(1, of.count / 8);
    std::vector<void *> buffers(count);
    Way way;
    const Stopwatch sleep;
    for (size_t i = 0; i < count; i++) {
        GPU_CALL(cuMemHostAlloc(&buffers[i], of.block, 0));
        GPU_CALL(cuMemcpyDtoH(buffers[i], blocks.at(i), of.block));
        blocks.drop_one(i);
    }
    way.sleep = sleep.seconds();
    const Stopwatch wake;
    for (size_t i = 0; i < count; i++) {
        blocks.make_one(i);
        GPU_CALL(cuMemcpyHtoD(blocks.at(i), buffers[i], of.block));
        GPU_CALL(cuMemFreeHost(buffers[i]));
    }
    way.wake = wake.seconds();
    const double rest = static_cast<double>(of.count) / static_cast<double>(count);
    return {way.sleep * rest, way.wake * rest};
}

// Raw copies to the second device and back. 0: no second device can be reached.
Way measure_peer(const Case &of) {
    int devices = 0, can = 0;
    GPU_CALL(cuDeviceGetCount(&devices));
    if (devices < 2 || driver.cuDeviceCanAccessPeer(&can, 0, 1) != CUDA_SUCCESS || !can) {
        return {};
    }
    CUcontext other;
    CUdeviceptr here, there;
    CUstream stream;
    GPU_CALL(cuDevicePrimaryCtxRetain(&other, 1));
    GPU_CALL(cuMemAlloc(&here, of.block));
    GPU_CALL(cuCtxSetCurrent(other));
    GPU_CALL(cuMemAlloc(&there, of.block));
    GPU_CALL(cuCtxSetCurrent(context()));
    if (driver.cuCtxEnablePeerAccess) {
        driver.cuCtxEnablePeerAccess(other, 0); // without it, copies go through the host
    }
    GPU_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    auto copy = [&](CUdeviceptr to, CUdeviceptr from) {
        GPU_CALL(cuMemcpyAsync(to, from, of.block, stream)); // the first makes the way
        GPU_CALL(cuStreamSynchronize(stream));
        const Stopwatch watch;
        for (size_t i = 0; i < of.count; i++) {
            GPU_CALL(cuMemcpyAsync(to, from, of.block, stream));
        }
        GPU_CALL(cuStreamSynchronize(stream));
        return watch.seconds();
    };
    const Way way = {copy(there, here), copy(here, there)};
    GPU_CALL(cuStreamDestroy(stream));
    GPU_CALL(cuMemFree(here));
    GPU_CALL(cuCtxSetCurrent(other));
    GPU_CALL(cuMemFree(there));
    GPU_CALL(cuCtxSetCurrent(context()));
    GPU_CALL(cuDevicePrimaryCtxRelease(1));
    return way;
}

// Available bytes of the host. 0: unknown.
size_t available_bytes() {
    std::ifstream info("/proc/meminfo");
    std::string name;
    for (size_t kib = 0; info >> name; info.ignore(100, '\n')) {
        if (name == "MemAvailable:" && info >> kib) {
            return kib << 10;
        }
    }
    return 0;
}

// A virtual machine gets its memory from its host at the first touch, and its devices reach a page
// after the first pinning. Both are slow once and do not depend on the library. So all memory that
// may be used is touched and pinned before anything is measured.
void warm_host(size_t wanted) {
    const size_t bytes = std::min(4 * wanted, available_bytes() / 10 * 9);
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        printf("  the host has no %s bytes to be warmed\n", text(bytes).c_str());
        return;
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    const size_t count = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    const Stopwatch watch;
    for (size_t i = 0; i < count; i++) {
        threads.emplace_back([=] {
            const size_t part = bytes / count;
            for (size_t at = i * part; at < (i + 1) * part; at += 4096) {
                static_cast<volatile char *>(memory)[at] = 0;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    size_t pinned = 0;
    while (pinned + GiB <= bytes &&
           driver.cuMemHostRegister(static_cast<char *>(memory) + pinned, GiB, 0) == CUDA_SUCCESS) {
        pinned += GiB;
    }
    printf("  (%.1f GiB of the host touched and %.1f GiB pinned before: %.2f s)\n",
           static_cast<double>(bytes) / GiB, static_cast<double>(pinned) / GiB, watch.seconds());
    for (size_t at = 0; at < pinned; at += GiB) {
        GPU_CALL(cuMemHostUnregister(static_cast<char *>(memory) + at));
    }
    munmap(memory, bytes);
}

// --- the library ---------------------------------------------------------------------------------

// The driver clears released memory in the background, and a new allocation of it has to wait for
// that. The pause gives the driver that time, as a pool that stays suspended does.
void let_driver_clean() {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
}

class Sleeper {
    const Case of;
    umf_memory_pool_handle_t pool = nullptr;
    std::vector<void *> blocks;

    // The first and the last byte of each block.
    bool is_as_it_was(bool is_zero) const {
        for (size_t i = 0; i < blocks.size(); i++) {
            const unsigned char want = is_zero ? 0 : static_cast<unsigned char>(1 + i % 250);
            unsigned char got[2] = {};
            const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(blocks[i]);
            GPU_CALL(cuMemcpyDtoH(&got[0], at, 1));
            GPU_CALL(cuMemcpyDtoH(&got[1], at + of.block - 1, 1));
            if (got[0] != want || got[1] != want) {
                return false;
            }
        }
        return true;
    }

  public:
    explicit Sleeper(const Case &wanted) : of(wanted) {
        umf_cuda_vmm_memory_provider_params_handle_t params = nullptr;
        umf_memory_provider_handle_t provider = nullptr;
        umfCUDAVmmMemoryProviderParamsCreate(0, &params);
        umfCUDAVmmMemoryProviderParamsSetPieceSize(params, of.block);
        if (umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, &provider) ==
            UMF_RESULT_SUCCESS) {
            umfPoolCreate(umfProxyPoolOps(), provider, nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                          &pool);
        }
        umfCUDAVmmMemoryProviderParamsDestroy(params);
        while (pool && blocks.size() < of.count) {
            void *ptr = umfPoolMalloc(pool, of.block);
            if (!ptr) {
                break;
            }
            blocks.push_back(ptr);
        }
    }
    ~Sleeper() {
        for (void *ptr : blocks) {
            umfFree(ptr);
        }
        if (pool) {
            umfPoolDestroy(pool);
        }
    }
    Sleeper(const Sleeper &) = delete;
    Sleeper &operator=(const Sleeper &) = delete;

    bool is_whole() const {
        return blocks.size() == of.count;
    }
    void fill() {
        for (size_t i = 0; i < blocks.size(); i++) {
            GPU_CALL(cuMemsetD8(reinterpret_cast<CUdeviceptr>(blocks[i]),
                                static_cast<unsigned char>(1 + i % 250), of.block));
        }
        GPU_CALL(cuCtxSynchronize());
    }
    bool set(umf_suspend_keep_t keep) {
        umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
        policy.keep = keep;
        policy.folder = options.folder.c_str();
        policy.device = 1;
        return umfPoolSetSuspendPolicy(pool, &policy) == UMF_RESULT_SUCCESS;
    }
    // Both 0 if something failed.
    Way cycle(umf_suspend_keep_t keep) {
        Way way;
        const Stopwatch sleep;
        if (umfPoolsSuspend(&pool, 1, nullptr, nullptr) != UMF_RESULT_SUCCESS) {
            return {};
        }
        way.sleep = sleep.seconds();
        let_driver_clean();
        const Stopwatch wake;
        if (umfPoolsResume(&pool, 1, nullptr, nullptr) != UMF_RESULT_SUCCESS) {
            return {};
        }
        way.wake = wake.seconds();
        if (keep != UMF_SUSPEND_DISCARD && !is_as_it_was(keep == UMF_SUSPEND_ZERO)) {
            printf("  the content is NOT what it was\n");
            exit(1);
        }
        return way;
    }
};

const struct {
    umf_suspend_keep_t keep;
    const char *name;
} policies[] = {
    {UMF_SUSPEND_KEEP_PINNED, "pinned"}, {UMF_SUSPEND_KEEP_HOST, "host"},
    {UMF_SUSPEND_KEEP_FILE, "file"},     {UMF_SUSPEND_KEEP_PEER, "peer"},
    {UMF_SUSPEND_ZERO, "zero"},          {UMF_SUSPEND_DISCARD, "discard"},
};

struct Raw {
    Way copy, unmap, naive, peer;
};

// The median of both in turn, because the driver's time to release memory varies.
double discard_ratio(Sleeper &sleeper, const Case &of) {
    std::vector<double> raw, ours;
    Blocks blocks(of);
    for (int i = 0; i < 9; i++) {
        const Stopwatch sleep;
        blocks.drop(true);
        raw.push_back(sleep.seconds());
        let_driver_clean();
        blocks.make(true);
        ours.push_back(sleeper.cycle(UMF_SUSPEND_DISCARD).sleep);
    }
    std::sort(raw.begin(), raw.end());
    std::sort(ours.begin(), ours.end());
    return ours[ours.size() / 2] / raw[raw.size() / 2];
}

void print_targets(umf_suspend_keep_t keep, const Case &of, const Raw &raw, const Way &first,
                   const Way &steady) {
    const bool is_small = of.block < 64 * MiB;
    const std::string rest = is_small ? ", unmap, release" : "";
    const Way floor = {raw.copy.sleep + (is_small ? raw.unmap.sleep : 0),
                       raw.copy.wake + (is_small ? raw.unmap.wake : 0)};
    switch (keep) {
    case UMF_SUSPEND_KEEP_PINNED:
        print_target("pinned, first sleep: times as fast as the naive way",
                     raw.naive.sleep / first.sleep, 8, true);
        // Small blocks: unmapping and making them takes as long as copying.
        print_target("pinned, steady sleep / raw copy" + rest, floor.sleep / steady.sleep, 0.9,
                     true);
        print_target("pinned, steady wake / raw copy" + rest, floor.wake / steady.wake, 0.9, true);
        if (is_small) {
            print_target("pinned, steady sleep of 2 MiB blocks / raw copy" + rest,
                         floor.sleep / steady.sleep, 0.95, true);
        }
        break;
    case UMF_SUSPEND_KEEP_HOST:
        print_target("host, first sleep / raw copy" + rest, floor.sleep / first.sleep, 0.5, true);
        print_target("host, steady sleep / raw copy" + rest, floor.sleep / steady.sleep, 0.85,
                     true);
        print_target("host, steady wake / raw copy" + rest, floor.wake / steady.wake, 0.85, true);
        break;
    case UMF_SUSPEND_KEEP_PEER:
        if (raw.peer.sleep > 0 && is_small) {
            print_target("peer, steady sleep of 2 MiB blocks / raw peer copy" + rest,
                         (raw.peer.sleep + raw.unmap.sleep) / steady.sleep, 0.95, true);
        } else if (raw.peer.sleep > 0) {
            print_target("peer, steady sleep / raw peer copy", raw.peer.sleep / steady.sleep, 0.78,
                         true);
        }
        break;
    default:
        break;
    }
}

void run_policy(Sleeper &sleeper, const Case &of, umf_suspend_keep_t keep, const std::string &name,
                const Raw &raw) {
    if (!sleeper.set(keep)) {
        printf("  %-28s not here\n", name.c_str());
        return;
    }
    umfSuspendTrim();
    sleeper.fill();
    const Way first = sleeper.cycle(keep);
    Way steady = {1e9, 1e9};
    for (int i = 0; i < (options.quick ? 1 : 3); i++) {
        const Way way = sleeper.cycle(keep);
        steady.sleep = std::min(steady.sleep, way.sleep);
        steady.wake = std::min(steady.wake, way.wake);
    }
    if (first.sleep <= 0 || steady.sleep <= 0) {
        printf("  %-28s failed\n", name.c_str());
        return;
    }
    print_way(name + ", first", of, first);
    print_way(name + ", steady", of, steady);
    print_targets(keep, of, raw, first, steady);
    if (keep == UMF_SUSPEND_DISCARD && of.bytes() + of.block < free_bytes()) {
        print_target("discard, sleep / unmap and release", discard_ratio(sleeper, of), 1.15);
    }
}

bool wants(const std::string &policy) {
    return options.keep.empty() || options.keep == policy;
}

// Content of the others goes through memory of the host.
bool is_peer_only() {
    return options.keep == "peer";
}

Raw measure_raw(const Case &of) {
    Raw raw;
    Blocks blocks(of);
    if (!is_peer_only()) {
        raw.copy = measure_copy(blocks, of);
        print_way("raw pinned copy", of, raw.copy);
    }
    raw.unmap = measure_unmap(blocks, false);
    print_way("raw unmap + release, make", of, raw.unmap);
    const Way at_once = measure_unmap(blocks, true);
    print_way("the same, in one call", of, at_once);
    raw.unmap.sleep = std::min(raw.unmap.sleep, at_once.sleep);
    if (!is_peer_only()) {
        raw.naive = measure_naive(blocks, of);
        print_way("naive", of, raw.naive);
    }
    return raw;
}

void run_case(const Case &of) {
    printf("\nSleep and wake of %s in blocks of %s\n  %-28s %13s %13s %13s %13s\n",
           text(of.bytes()).c_str(), text(of.block).c_str(), "", "sleep", "", "wake", "");
    if (of.bytes() + of.block > free_bytes()) {
        printf("  the device has no room for it\n");
        return;
    }
    Raw raw = measure_raw(of);
    if (wants("peer")) {
        raw.peer = measure_peer(of);
    }
    if (raw.peer.sleep > 0) {
        print_way("raw peer copy", of, raw.peer);
    }
    Sleeper sleeper(of);
    if (!sleeper.is_whole()) {
        printf("  the pool did not get its memory\n");
        return;
    }
    for (auto &[keep, name] : policies) {
        if (wants(name)) {
            run_policy(sleeper, of, keep, name, raw);
        }
    }
    umfSuspendTrim();
}

} // namespace

void run_sleep(double gib) {
    const size_t bytes = std::max(static_cast<size_t>(gib * static_cast<double>(GiB)), 8 * MiB);
    if (!is_peer_only()) {
        warm_host(bytes);
    }
    const size_t large = std::min(GiB, bytes / 4 / (2 * MiB) * (2 * MiB));
    for (size_t block : {large, 2 * MiB}) {
        run_case({block, bytes / block});
    }
}

} // namespace gpu
