/* Hook mode "torch": functions for torch.cuda.memory.CUDAPluggableAllocator. */
#include <sys/types.h>

#include "cuda.h"
#include "saver.h"

#define EXPORTED __attribute__((visibility("default")))

static void *ordinary_malloc(size_t size, int device) {
    CUdeviceptr made = 0;
    if (cuda_enter(device) != CUDA_SUCCESS) {
        return NULL;
    }
    CUresult result = cuda()->alloc(&made, size);
    cuda_leave();
    return result == CUDA_SUCCESS ? (void *)(uintptr_t)made : NULL;
}

static void ordinary_free(void *ptr, int device) {
    if (cuda_enter(device) == CUDA_SUCCESS) {
        cuda()->free((CUdeviceptr)(uintptr_t)ptr);
        cuda_leave();
    }
}

EXPORTED void *tms_torch_malloc(ssize_t size, int device, void *stream) {
    (void)stream;
    if (size <= 0 || !cuda()) {
        return NULL;
    }
    return saver_config()->is_interesting ? saver_malloc((size_t)size, device)
                                          : ordinary_malloc((size_t)size, device);
}

EXPORTED void tms_torch_free(void *ptr, ssize_t size, int device, void *stream) {
    (void)size;
    (void)stream;
    if (ptr && !saver_free(ptr)) {
        ordinary_free(ptr, device);
    }
}
