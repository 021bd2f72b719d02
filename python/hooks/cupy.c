/* What cupy.cuda.memory.CFunctionAllocator calls: it names no stream, so a free waits for all. */
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

/* For who calls from Python: umf.numba. */
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
