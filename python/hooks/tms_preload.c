/* Hook mode "preload": cudaMalloc and cudaFree of the program come here first. */
#include <dlfcn.h>

#include "cuda.h"
#include "saver.h"

#define EXPORTED __attribute__((visibility("default")))

/* cudaError_t, as the runtime counts it. */
enum { RUNTIME_NO_MEMORY = 2, RUNTIME_MISSING = 35 };

static void *next(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

EXPORTED int cudaMalloc(void **ptr, size_t size) {
    if (ptr && size > 0 && saver_config()->is_interesting && cuda()) {
        void *made = saver_malloc(size, cuda_current_device());
        if (made) {
            *ptr = made;
        }
        return made ? 0 : RUNTIME_NO_MEMORY;
    }
    int (*forward)(void **, size_t);
    *(void **)&forward = next("cudaMalloc");
    return forward ? forward(ptr, size) : RUNTIME_MISSING;
}

EXPORTED int cudaFree(void *ptr) {
    if (ptr && saver_free(ptr)) {
        return 0;
    }
    int (*forward)(void *);
    *(void **)&forward = next("cudaFree");
    return forward ? forward(ptr) : RUNTIME_MISSING;
}
