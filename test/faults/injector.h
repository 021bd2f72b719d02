/*
 * What can fail: each function of a software driver, each call of the system that the library makes
 * (system/os.h has the hook), each allocation of metadata and each start of a thread. An injector
 * counts the calls by name, and makes the n-th of one name fail, once or from then on.
 */
#ifndef UMF_TEST_FAULTS_INJECTOR_H
#define UMF_TEST_FAULTS_INJECTOR_H

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include <pthread.h>

#if UMF_WITH_CUDA
#include "gpu/gpu.h"
#endif
#if UMF_WITH_LEVEL_ZERO
#include "level_zero/level_zero.h"
#endif

extern "C" {
#include "system/os.h"
}

namespace faults {

using Counts = std::map<std::string, long>;

struct Fault {
    std::string call;
    long n = 1;
    bool stays = false; // all after it fail, too
};

// --- the system ----------------------------------------------------------------------------------

inline Counts system_counts;
inline std::atomic<bool> is_counting;
inline Fault system_fault;
inline std::atomic<long> system_left; // 0: nothing fails

// Threads of brokers call the system at any time: only calls of the test's own thread count.
inline bool is_main() {
    static const pthread_t first = pthread_self();
    return pthread_equal(first, pthread_self());
}

inline int hook(const char *call) {
    if (!is_main()) {
        return 0;
    }
    if (is_counting) {
        system_counts[call]++;
    }
    if (system_left == 0 || system_fault.call != call) {
        return 0;
    }
    if (system_left > 1) {
        system_left--;
        return 0;
    }
    system_left = system_fault.stays ? 1 : 0;
    return ENOMEM;
}

// --- drivers -------------------------------------------------------------------------------------

#if UMF_WITH_CUDA
inline const char *const cuda_names[] = {
#define UMF_CUDA(function, version, symbol, optional) #function,
#include "../../src/providers/cuda/driver.def"
#include "../fakes/cuda/extra.def"
#undef UMF_CUDA
};
#endif

#if UMF_WITH_LEVEL_ZERO
inline const char *const ze_names[] = {
#define FAKE_ZE(function, table, member) #function,
#include "fakes/level_zero/functions.def"
#undef FAKE_ZE
};
#endif

template <typename Control, size_t N>
void count_driver(const Control *control, const char *const (&names)[N], Counts *counts) {
    for (size_t i = 0; i < N; i++) {
        if (control->calls[i]) {
            (*counts)[names[i]] = control->calls[i];
        }
    }
}

// false: the driver has no such function.
template <typename Control, size_t N>
bool arm_driver(Control *control, const char *const (&names)[N], const Fault &fault, int result) {
    for (size_t i = 0; i < N; i++) {
        if (fault.call == names[i]) {
            control->fail_on = fault.stays;
            fail_call(control, static_cast<int>(i), result, fault.n);
            return true;
        }
    }
    return false;
}

// Calls that give something back. What they refuse may stay; and what runs before them in one
// operation of the library, without which they are not made.
inline bool gives_back(const std::string &call) {
    static const std::set<std::string> all = {"unmap",
                                              "close",
                                              "punch",
                                              "advise",
                                              "truncate",
                                              "shm_unlink",
                                              "unlink",
                                              "cuMemFree",
                                              "cuMemFreeHost",
                                              "cuMemRelease",
                                              "cuMemUnmap",
                                              "cuMemAddressFree",
                                              "cuStreamDestroy",
                                              "cuEventDestroy",
                                              "cuMemHostUnregister",
                                              "cuIpcCloseMemHandle",
                                              "cuDevicePrimaryCtxRelease",
                                              "cuCtxGetCurrent",
                                              "cuCtxPushCurrent",
                                              "cuCtxPopCurrent",
                                              "cuPointerGetAttribute",
                                              "cuThreadExchangeStreamCaptureMode",
                                              "zeMemFree",
                                              "zeMemCloseIpcHandle",
                                              "zeMemPutIpcHandle",
                                              "zeContextDestroy",
                                              "zeContextEvictMemory",
                                              "zeCommandListDestroy",
                                              "zeEventDestroy",
                                              "zeEventPoolDestroy",
                                              "zeVirtualMemFree",
                                              "zeVirtualMemUnmap",
                                              "zePhysicalMemDestroy",
                                              "zeCommandQueueDestroy",
                                              "zeFenceDestroy"};
    return all.count(call) != 0;
}

} // namespace faults

#endif
