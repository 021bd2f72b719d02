// Shared by the parts of umf-bench-gpu: the driver, results with targets, time.
#ifndef UMF_BENCHMARK_GPU_H
#define UMF_BENCHMARK_GPU_H

#include <cuda.h>
#include <cudaTypedefs.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

// The driver's functions: name, version of its form, symbol. It can do without the second list.
#define GPU_DRIVER_FUNCTIONS(X)                                                                    \
    X(cuInit, 2000, "cuInit")                                                                      \
    X(cuGetErrorName, 6000, "cuGetErrorName")                                                      \
    X(cuDeviceGetCount, 2000, "cuDeviceGetCount")                                                  \
    X(cuDeviceCanAccessPeer, 4000, "cuDeviceCanAccessPeer")                                        \
    X(cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain")                                  \
    X(cuDevicePrimaryCtxRelease, 11000, "cuDevicePrimaryCtxRelease_v2")                            \
    X(cuCtxSetCurrent, 4000, "cuCtxSetCurrent")                                                    \
    X(cuCtxSynchronize, 2000, "cuCtxSynchronize")                                                  \
    X(cuMemGetInfo, 3020, "cuMemGetInfo_v2")                                                       \
    X(cuMemAlloc, 3020, "cuMemAlloc_v2")                                                           \
    X(cuMemFree, 3020, "cuMemFree_v2")                                                             \
    X(cuMemHostAlloc, 2020, "cuMemHostAlloc")                                                      \
    X(cuMemHostRegister, 6050, "cuMemHostRegister_v2")                                             \
    X(cuMemHostUnregister, 4000, "cuMemHostUnregister")                                            \
    X(cuMemFreeHost, 2000, "cuMemFreeHost")                                                        \
    X(cuMemcpyHtoD, 3020, "cuMemcpyHtoD_v2")                                                       \
    X(cuMemcpyDtoH, 3020, "cuMemcpyDtoH_v2")                                                       \
    X(cuMemcpyAsync, 4000, "cuMemcpyAsync")                                                        \
    X(cuMemsetD8, 3020, "cuMemsetD8_v2")                                                           \
    X(cuStreamCreate, 2000, "cuStreamCreate")                                                      \
    X(cuStreamDestroy, 4000, "cuStreamDestroy_v2")                                                 \
    X(cuStreamSynchronize, 2000, "cuStreamSynchronize")                                            \
    X(cuMemAddressReserve, 10020, "cuMemAddressReserve")                                           \
    X(cuMemAddressFree, 10020, "cuMemAddressFree")                                                 \
    X(cuMemCreate, 10020, "cuMemCreate")                                                           \
    X(cuMemRelease, 10020, "cuMemRelease")                                                         \
    X(cuMemMap, 10020, "cuMemMap")                                                                 \
    X(cuMemUnmap, 10020, "cuMemUnmap")                                                             \
    X(cuMemSetAccess, 10020, "cuMemSetAccess")

#define GPU_DRIVER_OPTIONAL(X)                                                                     \
    X(cuCtxEnablePeerAccess, 4000, "cuCtxEnablePeerAccess")                                        \
    X(cuMemAllocAsync, 11020, "cuMemAllocAsync")                                                   \
    X(cuMemFreeAsync, 11020, "cuMemFreeAsync")                                                     \
    X(cuDeviceGetDefaultMemPool, 11020, "cuDeviceGetDefaultMemPool")                               \
    X(cuMemPoolSetAttribute, 11020, "cuMemPoolSetAttribute")                                       \
    X(cuMemPoolTrimTo, 11020, "cuMemPoolTrimTo")                                                   \
    X(cuMemsetD8Async, 3020, "cuMemsetD8Async")                                                    \
    X(cuIpcGetMemHandle, 4010, "cuIpcGetMemHandle")                                                \
    X(cuIpcOpenMemHandle, 11000, "cuIpcOpenMemHandle_v2")                                          \
    X(cuIpcCloseMemHandle, 4010, "cuIpcCloseMemHandle")

namespace gpu {

struct Driver {
#define X(function, version, symbol) PFN_##function##_v##version function;
    GPU_DRIVER_FUNCTIONS(X)
    GPU_DRIVER_OPTIONAL(X)
#undef X
};
extern Driver driver;

struct Options {
    std::vector<double> sleep_gib = {8};
    std::string driver = "libcuda.so.1";
    std::string folder = "/dev/shm";
    std::string filter;              // "pair", "queue", "copy", "ipc" or "sleep"; empty: all
    std::string keep;                // a policy of sleep; empty: all
    std::string torch;               // figures of torch_peer.py, a file; empty: none
    std::vector<std::string> replay; // recorded sequences, files: nothing else runs
    std::string over = "cuda_vmm";   // the provider that serves them
    std::string course; // gets what pools hold in the course of a sequence; empty: nothing
    bool quick = false;
};
extern Options options;

// Ends the program if the driver call failed.
void check(CUresult result, const char *what);
#define GPU_CALL(call) gpu::check(gpu::driver.call, #call)

CUcontext context();      // of device 0
size_t free_bytes();      // of device 0
std::string text(size_t); // "512", "64K", "1G"

// What allocates and frees one block.
struct Subject {
    virtual ~Subject() = default;
    virtual bool pair(size_t size, CUstream stream) = 0;
};
// The stream ordered allocator, set to keep its memory. NULL: the driver has none.
std::unique_ptr<Subject> make_async();
// Nanoseconds per pair and thread, 0 if one failed: the best of the rounds.
double time_pairs(Subject &subject, size_t size, unsigned threads);
// What torch_peer.py has measured: by size and number of threads.
std::map<std::pair<size_t, unsigned>, double> read_torch();

class Stopwatch {
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
};

// Prints whether value <= bound (or >= with at_least), and counts missed bounds.
void print_target(const std::string &what, double value, double bound, bool at_least = false);
int missed_targets();

void run_pairs();
void run_queues();
void run_copies();
void run_ipc();
void run_sleep(double gib);
bool run_replay(const std::string &path, const std::string &over); // false: it failed
int produce(const std::string &text, size_t size);                 // the other process of run_ipc

} // namespace gpu

#endif
