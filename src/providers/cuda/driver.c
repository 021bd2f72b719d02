/* The CUDA driver: its functions and its errors. */
#include "providers/cuda/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/dl.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/message_buffer.h"
#include "providers/gpu/library.h"
#include "system/common.h"

typedef struct cuda_symbol_t {
    const char *function;
    int version;
    const char *symbol;
    bool optional;
    size_t offset;
} cuda_symbol_t;

static const cuda_symbol_t cuda_symbols[] = {
#define UMF_CUDA(function, version, symbol, optional)                                              \
    {#function, version, symbol, optional, offsetof(umf_cuda_driver_t, function)},
#include "providers/cuda/driver.def"
#undef UMF_CUDA
};

static pthread_once_t cuda_once = PTHREAD_ONCE_INIT;
/* One table for the default stream of the process, one for that of the thread. Immutable after
 * cuda_load, as all variables below. */
static umf_cuda_driver_t cuda_driver, cuda_driver_per_thread;
static unsigned cuda_forks; /* number of forks when the driver was loaded */

__thread int32_t umf_cuda_native;

static void *cuda_resolve(void *library, PFN_cuGetProcAddress_v11030 get,
                          const cuda_symbol_t *symbol) {
    void *address = NULL;
    if (get &&
        get(symbol->function, &address, symbol->version, CU_GET_PROC_ADDRESS_DEFAULT) ==
            CUDA_SUCCESS &&
        address) {
        return address;
    }
    return umf_dl_symbol(library, symbol->symbol);
}

/* The form of a function for the default stream of the thread, which exists since 7.0. NULL: it has
 * no such form. */
static void *cuda_resolve_per_thread(void *library, PFN_cuGetProcAddress_v11030 get,
                                     const cuda_symbol_t *symbol) {
    void *address = NULL;
    int version = symbol->version < 7000 ? 7000 : symbol->version;
    char name[64];
    if (get && get(symbol->function, &address, version,
                   CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == CUDA_SUCCESS) {
        return address;
    }
    snprintf(name, sizeof(name), "%s_ptsz", symbol->symbol);
    return umf_dl_symbol(library, name);
}

static const char *cuda_fill(void *library) {
    void *found = umf_dl_symbol(library, "cuGetProcAddress");
    PFN_cuGetProcAddress_v11030 get;
    memcpy(&get, &found, sizeof(get));
    for (size_t i = 0; i < UMF_COUNT_OF(cuda_symbols); i++) {
        void *address = cuda_resolve(library, get, &cuda_symbols[i]);
        if (!address && !cuda_symbols[i].optional) {
            return cuda_symbols[i].function;
        }
        memcpy((char *)&cuda_driver + cuda_symbols[i].offset, &address, sizeof(address));
        void *own = cuda_resolve_per_thread(library, get, &cuda_symbols[i]);
        address = own ? own : address;
        memcpy((char *)&cuda_driver_per_thread + cuda_symbols[i].offset, &address, sizeof(address));
    }
    return NULL;
}

static umf_gpu_library_t cuda_library = {
    .what = "CUDA driver",
    .name = "libcuda.so.1",
    .install = "install the NVIDIA driver",
    .update = "install a newer NVIDIA driver",
    .fill = cuda_fill,
};

static _Atomic bool cuda_is_loaded; /* cuda_load has found it */

static void cuda_load(void) {
    umf_gpu_library_load(&cuda_library);
    cuda_forks = umf_fork_count();
    atomic_store_explicit(&cuda_is_loaded, cuda_library.is_there, memory_order_release);
}

const umf_cuda_driver_t *umf_cuda_driver(char *why, size_t why_size) {
    pthread_once(&cuda_once, cuda_load);
    return umf_gpu_library_is_there(&cuda_library, why, why_size) ? &cuda_driver : NULL;
}

/* Asked again only when a library has been loaded since. */
static UMF_COLD const umf_cuda_driver_t *cuda_look_for_loaded(uint64_t generation) {
    static _Atomic uint64_t without; /* the generation at which it was not loaded */
    if (atomic_load_explicit(&without, memory_order_relaxed) == generation) {
        return NULL;
    }
    void *library = umf_dl_open(cuda_library.name, true, NULL, 0);
    if (!library) {
        atomic_store_explicit(&without, generation, memory_order_relaxed);
        return NULL;
    }
    umf_dl_close(library);
    return umf_cuda_driver(NULL, 0);
}

const umf_cuda_driver_t *umf_cuda_driver_if_loaded(void) {
    return umf_likely(atomic_load_explicit(&cuda_is_loaded, memory_order_acquire))
               ? &cuda_driver
               : cuda_look_for_loaded(umf_dl_generation());
}

const umf_cuda_driver_t *umf_cuda_driver_per_thread(void) {
    return &cuda_driver_per_thread;
}

/* --- errors ----------------------------------------------------------------------------------- */

static const char *cuda_text(CUresult result) {
    const char *name = NULL, *description = NULL;
    cuda_driver.cuGetErrorName(result, &name);
    cuda_driver.cuGetErrorString(result, &description);
    char *line = umf_message_buffer(UMF_MESSAGE_BUFFER_NATIVE);
    if (!line) {
        return name ? name : "unknown error";
    }
    snprintf(line, UMF_MESSAGE_BUFFER_SIZE, "%s - %s", name ? name : "unknown error",
             description ? description : "no description");
    return line;
}

static umf_result_t cuda_map(CUresult result) {
    switch (result) {
    case CUDA_SUCCESS:
        return UMF_RESULT_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    case CUDA_ERROR_DEINITIALIZED:
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    default:
        return UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
    }
}

static bool cuda_is_gone(CUresult result) {
    return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* The remedy of an error, where the driver's text has none. */
static const char *cuda_hint(CUresult result) {
    if (result == CUDA_ERROR_NOT_INITIALIZED && umf_fork_count() != cuda_forks) {
        return "; CUDA cannot be used in a process forked after it was initialised: fork first, or "
               "start the child with exec";
    }
    return "";
}

void umf_cuda_tell(CUresult result, const char *what) {
    umf_log_level_t level = cuda_is_gone(result) ? UMF_LOG_LEVEL_DEBUG : UMF_LOG_LEVEL_ERROR;
    umf_log_write(level, 0, "umf_cuda_result", "%s failed: %s%s", what, cuda_text(result),
                  cuda_hint(result));
}

umf_result_t umf_cuda_result(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        umf_cuda_native = (int32_t)result;
        umf_cuda_tell(result, what);
    }
    return cuda_map(result);
}

umf_result_t umf_cuda_given_back(CUresult result, const char *what) {
    umf_result_t logged = umf_cuda_result(result, what);
    return cuda_is_gone(result) ? UMF_RESULT_SUCCESS : logged;
}

umf_result_t umf_cuda_op_native_error(void *provider, const char **message, int32_t *code) {
    (void)provider;
    if (!umf_native_has_places(message, code)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *message = umf_cuda_driver(NULL, 0) ? cuda_text((CUresult)umf_cuda_native) : "no CUDA driver";
    *code = umf_cuda_native;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_cuda_op_cache_line_size(void *provider, size_t *size) {
    (void)provider;
    *size = UMF_CUDA_CACHE_LINE_SIZE;
    return UMF_RESULT_SUCCESS;
}

/* --- probe ------------------------------------------------------------------------------------ */

umf_result_t umf_cuda_probe(char *why, size_t why_size) {
    const umf_cuda_driver_t *driver = umf_cuda_driver(why, why_size);
    if (!driver) {
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    int count = 0;
    CUresult result = driver->cuInit ? driver->cuInit(0) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && driver->cuDeviceGetCount) {
        result = driver->cuDeviceGetCount(&count);
    }
    if (result != CUDA_SUCCESS) {
        snprintf(why, why_size, "the CUDA driver does not start: %s", cuda_text(result));
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    if (count == 0) {
        snprintf(why, why_size, "the CUDA driver finds no GPU");
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    return UMF_RESULT_SUCCESS;
}
