// Copies, fills and kernels of the software CUDA driver.

#include "state.h"

#include <cstring>

using namespace fake;

namespace fake {

static CUresult illegal(CUctx_st *context) {
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

#ifndef WITHOUT_ASAN
#define WITHOUT_ASAN
#else
#define UMF_FAKE_CUDA_CHECKED
#endif

// Memory of a device is nothing AddressSanitizer has a say in: pools poison parts of theirs.
#ifdef UMF_FAKE_CUDA_CHECKED
// Volatile, or it would become a call of the checked memmove.
WITHOUT_ASAN static void device_copy(void *dst, const void *src, size_t size) {
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
WITHOUT_ASAN static void device_fill(void *dst, int value, size_t size) {
    for (size_t at = 0; at < size; at++) {
        static_cast<volatile char *>(dst)[at] = static_cast<char>(value);
    }
}
#else
static void device_copy(void *dst, const void *src, size_t size) {
    memmove(dst, src, size);
}
static void device_fill(void *dst, int value, size_t size) {
    memset(dst, value, size);
}
#endif

WITHOUT_ASAN static void device_fill_words(volatile uint32_t *to, uint32_t value, size_t words) {
    for (size_t i = 0; i < words; i++) {
        to[i] = value;
    }
}

WITHOUT_ASAN static uint32_t device_differing(const volatile uint32_t *from, uint32_t value,
                                              size_t words) {
    uint32_t count = 0;
    for (size_t i = 0; i < words; i++) {
        count += from[i] != value;
    }
    return count;
}

// Memory of another device to whose context this one has no access: the driver copies it by way of
// the host.
static bool is_staged(const CUctx_st *context, uintptr_t at) {
    auto found = driver::holding(get().memory, at, 1);
    if (found == get().memory.end() || found->second.kind != DEVICE) {
        return false;
    }
    const Memory &memory = found->second;
    return memory.device != context->device && !context->peers.count(memory.context);
}

static CUresult copy_now(CUctx_st *context, uintptr_t to, uintptr_t from, size_t size) {
    if (!is_reachable(to, size, context->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ||
        !is_reachable(from, size, context->device, CU_MEM_ACCESS_FLAGS_PROT_READ)) {
        return illegal(context);
    }
    get().control.staged_copies += is_staged(context, to) || is_staged(context, from);
    device_copy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), size);
    return CUDA_SUCCESS;
}

static CUresult set_now(CUctx_st *context, uintptr_t to, unsigned char value, size_t size) {
    if (!is_reachable(to, size, context->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return illegal(context);
    }
    device_fill(reinterpret_cast<void *>(to), value, size);
    return CUDA_SUCCESS;
}

} // namespace fake

// The kernels of test/fakes/cuda/kernels.h.
struct CUfunc_st {
    const char *name;
    Work (*work)(CUctx_st *context, void **arguments);
};

namespace fake {

template <typename T> static T argument(void **arguments, size_t i) {
    T value;
    memcpy(&value, arguments[i], sizeof(value));
    return value;
}

static Work fill_words(CUctx_st *context, void **arguments) {
    auto at = argument<uint64_t>(arguments, 0);
    auto words = argument<uint64_t>(arguments, 1);
    auto value = argument<uint32_t>(arguments, 2);
    return {
        "umf_test_fill", {{at, 4 * words, true}}, [=] {
            if (!is_reachable(at, 4 * words, context->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
                illegal(context);
                return;
            }
            device_fill_words(reinterpret_cast<uint32_t *>(at), value, words);
        }};
}

static Work check_words(CUctx_st *context, void **arguments) {
    auto at = argument<uint64_t>(arguments, 0);
    auto words = argument<uint64_t>(arguments, 1);
    auto value = argument<uint32_t>(arguments, 2);
    auto bad = argument<uint64_t>(arguments, 3);
    return {"umf_test_check", {{at, 4 * words, false}, {bad, 4, true}}, [=] {
                if (!is_reachable(at, 4 * words, context->device, CU_MEM_ACCESS_FLAGS_PROT_READ)) {
                    illegal(context);
                    return;
                }
                *reinterpret_cast<uint32_t *>(bad) +=
                    device_differing(reinterpret_cast<const uint32_t *>(at), value, words);
            }};
}

static CUfunc_st known_kernels[] = {{"umf_test_fill", fill_words}, {"umf_test_check", check_words}};

} // namespace fake

extern "C" {

// --- copies --------------------------------------------------------------------------------------

static uintptr_t address_of(const void *ptr) {
    return reinterpret_cast<uintptr_t>(ptr);
}

static Work copy_work(const char *name, CUctx_st *context, uintptr_t to, uintptr_t from,
                      size_t size) {
    return {
        name, {{from, size, false}, {to, size, true}}, [=] { copy_now(context, to, from, size); }};
}

static Work set_work(const char *name, CUctx_st *context, uintptr_t to, unsigned char value,
                     size_t size) {
    return {name, {{to, size, true}}, [=] { set_now(context, to, value, size); }};
}

CUresult fake_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream handle) {
    ENTER_CONTEXT(FAKE_cuMemcpyAsync)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    MEET(meet_on(stream))
    add(stream, copy_work("cuMemcpyAsync", stream->context, to, from, size));
    return CUDA_SUCCESS;
}

CUresult fake_cuMemcpy2DAsync(const CUDA_MEMCPY2D *rows, CUstream handle) {
    ENTER_CONTEXT(FAKE_cuMemcpy2DAsync)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    if (!rows || rows->srcMemoryType != CU_MEMORYTYPE_UNIFIED ||
        rows->dstMemoryType != CU_MEMORYTYPE_UNIFIED || rows->srcPitch < rows->WidthInBytes ||
        rows->dstPitch < rows->WidthInBytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    MEET(meet_on(stream))
    CUDA_MEMCPY2D all = *rows;
    Work work{"cuMemcpy2DAsync", {}};
    for (size_t i = 0; i < all.Height; i++) {
        work.uses.push_back({all.srcDevice + i * all.srcPitch, all.WidthInBytes, false});
        work.uses.push_back({all.dstDevice + i * all.dstPitch, all.WidthInBytes, true});
    }
    work.run = [=] {
        for (size_t i = 0; i < all.Height; i++) {
            copy_now(stream->context, all.dstDevice + i * all.dstPitch,
                     all.srcDevice + i * all.srcPitch, all.WidthInBytes);
        }
    };
    add(stream, std::move(work));
    return CUDA_SUCCESS;
}

CUresult fake_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream handle) {
    ENTER_CONTEXT(FAKE_cuMemsetD8Async)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    MEET(meet_on(stream))
    add(stream, set_work("cuMemsetD8Async", stream->context, to, value, size));
    return CUDA_SUCCESS;
}

// Pages move, bytes do not change: it conflicts with no other work.
CUresult fake_cuMemPrefetchAsync(CUdeviceptr at, size_t size, CUdevice device, CUstream handle) {
    ENTER_CONTEXT(FAKE_cuMemPrefetchAsync)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    auto found = driver::holding(get().memory, at, size);
    if (size == 0 || found == get().memory.end() || found->second.kind != MANAGED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (device != CU_DEVICE_CPU && (device < 0 || device >= get().control.devices)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    MEET(meet_on(stream))
    add(stream, {"cuMemPrefetchAsync", {}, [=] { get().control.prefetched = device; }});
    return CUDA_SUCCESS;
}

// On the default stream, and the host waits for it.
static CUresult do_now(CUctx_st *context, Work work) {
    Stream *stream = context->null_stream;
    MEET(meet_captures())
    MEET(meet_on(stream))
    add(stream, std::move(work));
    oracle::Clock clock = get().oracle.point(stream->lane);
    wait_for({last_of(stream)});
    get().oracle.host_knows(clock);
    return context->broken;
}

CUresult fake_cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
    ENTER_CONTEXT(FAKE_cuMemcpyHtoD)
    return do_now(context, copy_work("cuMemcpyHtoD", context, to, address_of(from), size));
}

CUresult fake_cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
    ENTER_CONTEXT(FAKE_cuMemcpyDtoH)
    return do_now(context, copy_work("cuMemcpyDtoH", context, address_of(to), from, size));
}

CUresult fake_cuMemsetD8(CUdeviceptr to, unsigned char value, size_t size) {
    ENTER_CONTEXT(FAKE_cuMemsetD8)
    return do_now(context, set_work("cuMemsetD8", context, to, value, size));
}

// --- kernels -------------------------------------------------------------------------------------

CUresult fake_cuModuleLoadData(CUmodule *module, const void *) {
    ENTER_CONTEXT(FAKE_cuModuleLoadData)
    *module = reinterpret_cast<CUmodule>(context);
    return CUDA_SUCCESS;
}

CUresult fake_cuModuleUnload(CUmodule) {
    ENTER_CONTEXT(FAKE_cuModuleUnload)
    return CUDA_SUCCESS;
}

CUresult fake_cuModuleGetFunction(CUfunction *found, CUmodule, const char *name) {
    ENTER_CONTEXT(FAKE_cuModuleGetFunction)
    for (CUfunc_st &each : known_kernels) {
        if (strcmp(each.name, name) == 0) {
            *found = &each;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult fake_cuLaunchKernel(CUfunction kernel, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, unsigned, CUstream handle, void **arguments, void **) {
    ENTER_CONTEXT(FAKE_cuLaunchKernel)
    Stream *stream = stream_of(handle, context);
    if (!stream) {
        return dead();
    }
    MEET(meet_on(stream))
    add(stream, kernel->work(stream->context, arguments));
    return CUDA_SUCCESS;
}

CUresult fake_cuda_launch(const char *name, const fake_cuda_use_t *uses, size_t count,
                          CUstream handle) {
    std::unique_lock<std::recursive_mutex> guard(lock);
    Stream *stream = stream_of(handle, current());
    if (!stream) {
        return dead();
    }
    MEET(meet_on(stream))
    Work work{name, {}};
    for (size_t i = 0; i < count; i++) {
        work.uses.push_back({address_of(uses[i].ptr), uses[i].size, uses[i].writes != 0});
    }
    work.run = [context = stream->context, all = work.uses] {
        for (const oracle::Use &use : all) {
            if (!is_reachable(use.at, use.size, context->device,
                              use.writes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                         : CU_MEM_ACCESS_FLAGS_PROT_READ)) {
                illegal(context);
            }
        }
    };
    add(stream, std::move(work));
    return CUDA_SUCCESS;
}

} // extern "C"
