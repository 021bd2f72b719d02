/* Functions for cupy.cuda.memory.CFunctionAllocator, which names no stream, so a free waits for
 * all. */
#include <stdint.h>

#include <umf.h>

#include "cuda.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void *umf_cupy_malloc(void *pool, size_t size, int device);
EXPORTED void *umf_cupy_malloc(void *pool, size_t size, int device) {
    (void)device; /* that of the pool */
    return umfPoolMalloc(pool, size ? size : 1);
}

EXPORTED void umf_cupy_free(void *pool, void *ptr, int device);
EXPORTED void umf_cupy_free(void *pool, void *ptr, int device) {
    (void)pool;
    if (ptr) {
        cuda_drain(device);
        umfFree(ptr);
    }
}

/* For who calls from Python: umf.numba, umf.torch. */
EXPORTED int umf_cuda_drain(int device);
EXPORTED int umf_cuda_drain(int device) {
    return (int)cuda_drain(device);
}

EXPORTED int umf_cuda_memory(int device, size_t *available, size_t *total);
EXPORTED int umf_cuda_memory(int device, size_t *available, size_t *total) {
    CUresult result = cuda_enter(device);
    if (result == CUDA_SUCCESS) {
        result = cuda()->memory(available, total);
        cuda_leave();
    }
    return (int)result;
}

/* Whether kernels of a device read and write virtual memory, wherever it is. */
EXPORTED int umf_cuda_reaches(int device, void *ptr);
EXPORTED int umf_cuda_reaches(int device, void *ptr) {
    CUmemLocation from = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = 0;
    return cuda() && cuda()->access(&flags, &from, (CUdeviceptr)(uintptr_t)ptr) == CUDA_SUCCESS &&
           flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* Orders work queued on `later` from now on after the work on `first`. Returns a CUresult.
 */
EXPORTED int umf_cuda_order(int device, void *first, void *later);
EXPORTED int umf_cuda_order(int device, void *first, void *later) {
    CUevent event;
    CUresult result = cuda_enter(device);
    if (result != CUDA_SUCCESS) {
        return (int)result;
    }
    result = cuda()->event_create(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) {
        result = cuda()->event_record(event, first);
        if (result == CUDA_SUCCESS) {
            result = cuda()->stream_wait(later, event, 0);
        }
        cuda()->event_destroy(event);
    }
    cuda_leave();
    return (int)result;
}
