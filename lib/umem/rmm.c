/*
 * rmm.h: memory of the current device. Options say whether each block is one of the driver's or of
 * the device's pool, which contexts of kind Cuda share. The log is text, made as it grows.
 */
#include "umem/own.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <umem/rmm.h>
#include <umf/copy.h>
#include <umf/cuda_device.h>
#include <umf/experimental/ctl.h>
#include <umf/experimental/memory_properties.h>

typedef struct event_t {
    const char *name;
    void *ptr;
    size_t size;
    cudaStream_t stream;
    const char *file;
    unsigned line;
} event_t;

static _Atomic bool is_pooled, is_logged; /* the options */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char *log_text; /* Sync: log_lock, as the members below */
static size_t log_length, log_room;

/* --- log -------------------------------------------------------------------------------------- */

static void log_write_locked(const char *text, size_t length) {
    if (log_length + length > log_room) {
        size_t room = 2 * (log_length + length);
        char *larger = realloc(log_text, room);
        if (!larger) {
            return; /* the log has a gap */
        }
        log_text = larger;
        log_room = room;
    }
    memcpy(log_text + log_length, text, length);
    log_length += length;
}

static void log_event(const event_t *event) {
    static const char head[] = "Event,Address,Bytes,Stream,Time,File,Line\n";
    char text[1024];
    struct timespec now;
    if (!atomic_load(&is_logged)) {
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(text, sizeof(text), "%s,%p,%zu,%p,%lld.%09ld,%.512s,%u\n", event->name,
                          event->ptr, event->size, (void *)event->stream, (long long)now.tv_sec,
                          now.tv_nsec, event->file ? event->file : "", event->line);
    pthread_mutex_lock(&log_lock);
    if (log_length == 0) {
        log_write_locked(head, sizeof(head) - 1);
    }
    log_write_locked(text, (size_t)length);
    pthread_mutex_unlock(&log_lock);
}

size_t rmmLogSize(void) {
    pthread_mutex_lock(&log_lock);
    size_t size = log_length;
    pthread_mutex_unlock(&log_lock);
    return size;
}

rmmError_t rmmGetLog(char *buffer, size_t buffer_size) {
    if (!buffer) {
        return RMM_ERROR_INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&log_lock);
    size_t length = log_length < buffer_size ? log_length : buffer_size;
    if (length > 0) {
        memcpy(buffer, log_text, length);
    }
    pthread_mutex_unlock(&log_lock);
    if (length < buffer_size) {
        buffer[length] = 0;
    }
    return RMM_SUCCESS;
}

rmmError_t rmmWriteLog(const char *filename) {
    UMEM_KEEP_ERRNO;
    if (!filename) {
        return RMM_ERROR_INVALID_ARGUMENT;
    }
    FILE *file = fopen(filename, "w");
    if (!file) {
        return RMM_ERROR_IO;
    }
    pthread_mutex_lock(&log_lock);
    bool done = fwrite(log_text ? log_text : "", 1, log_length, file) == log_length;
    pthread_mutex_unlock(&log_lock);
    return fclose(file) == 0 && done ? RMM_SUCCESS : RMM_ERROR_IO;
}

static void log_clear(void) {
    pthread_mutex_lock(&log_lock);
    free(log_text);
    log_text = NULL;
    log_length = log_room = 0;
    pthread_mutex_unlock(&log_lock);
}

/* --- options ---------------------------------------------------------------------------------- */

/* The driver aligns its allocations to no more than its own unit. */
umf_memory_pool_handle_t umem_rmm_pool(int device, size_t alignment, umem_why_t *why) {
    bool is_from_pool = atomic_load(&is_pooled) || alignment > UMEM_FUNDAMENTAL_CUDA_ALIGN;
    return is_from_pool ? umem_pool_of_device(device, why) : umem_pool_of_driver(device, why);
}

/* Which error it is that there is no pool, or that it gives no memory. */
static rmmError_t error_of(umf_memory_pool_handle_t pool) {
    return pool && umfPoolGetLastAllocationError(pool) == UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
               ? RMM_ERROR_OUT_OF_MEMORY
               : RMM_ERROR_CUDA_ERROR;
}

/* The pool caches freed memory. */
static rmmError_t pool_prepare(size_t size) {
    umem_why_t why;
    umf_memory_pool_handle_t pool = umem_pool_of_device(umem_current_device(), &why);
    void *first = pool && size > 0 ? umfPoolMalloc(pool, size) : NULL;
    if (!pool || (size > 0 && !first)) {
        return error_of(pool);
    }
    umfPoolFree(pool, first);
    return RMM_SUCCESS;
}

rmmError_t rmmInitialize(rmmOptions_t *options) {
    UMEM_KEEP_ERRNO;
    if (!options) {
        return RMM_SUCCESS;
    }
    bool wants_pool = options->allocation_mode == PoolAllocation;
    if (!wants_pool && options->allocation_mode != CudaDefaultAllocation) {
        return RMM_ERROR_INVALID_ARGUMENT;
    }
    rmmError_t result = wants_pool ? pool_prepare(options->initial_pool_size) : RMM_SUCCESS;
    if (result == RMM_SUCCESS) {
        atomic_store(&is_pooled, wants_pool);
        atomic_store(&is_logged, options->enable_logging);
    }
    return result;
}

rmmError_t rmmFinalize(void) {
    UMEM_KEEP_ERRNO;
    atomic_store(&is_pooled, false);
    atomic_store(&is_logged, false);
    umem_pools_trim();
    log_clear();
    return RMM_SUCCESS;
}

/* --- memory ----------------------------------------------------------------------------------- */

static rmmError_t take(void **ptr, size_t size) {
    umem_why_t why;
    umf_memory_pool_handle_t pool = umem_rmm_pool(umem_current_device(), 1, &why);
    void *made = pool ? umfPoolMalloc(pool, size) : NULL;
    if (!made) {
        return error_of(pool);
    }
    *ptr = made;
    return RMM_SUCCESS;
}

rmmError_t rmmAlloc(void **ptr, size_t size, cudaStream_t stream, const char *file, unsigned line) {
    UMEM_KEEP_ERRNO;
    if (!ptr) {
        return RMM_ERROR_INVALID_ARGUMENT;
    }
    void *made = NULL;
    rmmError_t result = size > 0 ? take(&made, size) : RMM_SUCCESS;
    if (result == RMM_SUCCESS) {
        *ptr = made;
        log_event(&(event_t){"Alloc", made, size, stream, file, line});
    }
    return result;
}

rmmError_t rmmFree(void *ptr, cudaStream_t stream, const char *file, unsigned line) {
    UMEM_KEEP_ERRNO;
    if (ptr && umfFree(ptr) != UMF_RESULT_SUCCESS) {
        return RMM_ERROR_INVALID_ARGUMENT;
    }
    log_event(&(event_t){"Free", ptr, 0, stream, file, line});
    return RMM_SUCCESS;
}

/* Bytes of a block, as its pool reports them: at least as many as were requested. Of a block that
 * is an allocation of the driver: the size of that. 0: it is no block. */
static size_t block_size(void *ptr) {
    umf_memory_pool_handle_t pool;
    umf_memory_properties_handle_t properties;
    size_t size = 0;
    if (umfPoolByPtr(ptr, &pool) != UMF_RESULT_SUCCESS) {
        return 0;
    }
    umfPoolMallocUsableSize(pool, ptr, &size);
    if (size == 0 && umfGetMemoryPropertiesHandle(ptr, &properties) == UMF_RESULT_SUCCESS) {
        umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_BASE_SIZE, &size, sizeof(size));
    }
    return size;
}

static rmmError_t copy_block(void *to, const void *from, size_t size, cudaStream_t stream) {
    umf_memory_pool_handle_t pool;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.queue = stream ? (void *)stream : (void *)(uintptr_t)1; /* CU_STREAM_LEGACY */
    umf_result_t result = umfPoolByPtr(to, &pool);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfPoolGetMemoryProvider(pool, &params.provider);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umfCopy(to, from, size, &params);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umem_stream_wait(params.queue, params.provider);
    }
    return result == UMF_RESULT_SUCCESS ? RMM_SUCCESS : RMM_ERROR_CUDA_ERROR;
}

/* A block of another size with the content of the old one, which stays if there is an error. */
static rmmError_t move(void **ptr, size_t new_size, cudaStream_t stream) {
    size_t old_size = block_size(*ptr);
    void *made;
    if (old_size == 0) {
        return RMM_ERROR_INVALID_ARGUMENT;
    }
    rmmError_t result = take(&made, new_size);
    if (result != RMM_SUCCESS) {
        return result;
    }
    result = copy_block(made, *ptr, old_size < new_size ? old_size : new_size, stream);
    umfFree(result == RMM_SUCCESS ? *ptr : made);
    *ptr = result == RMM_SUCCESS ? made : *ptr;
    return result;
}

rmmError_t rmmRealloc(void **ptr, size_t new_size, cudaStream_t stream, const char *file,
                      unsigned line) {
    UMEM_KEEP_ERRNO;
    if (!ptr) {
        return RMM_ERROR_INVALID_ARGUMENT;
    }
    if (!*ptr) {
        return rmmAlloc(ptr, new_size, stream, file, line);
    }
    if (new_size == 0) {
        rmmError_t freed = rmmFree(*ptr, stream, file, line);
        *ptr = freed == RMM_SUCCESS ? NULL : *ptr;
        return freed;
    }
    rmmError_t result = move(ptr, new_size, stream);
    if (result == RMM_SUCCESS) {
        log_event(&(event_t){"Realloc", *ptr, new_size, stream, file, line});
    }
    return result;
}

rmmError_t rmmGetAllocationOffset(offset_t *offset, void *ptr, cudaStream_t stream) {
    UMEM_KEEP_ERRNO;
    (void)stream;
    umf_memory_properties_handle_t properties;
    uintptr_t base;
    if (!offset || umfGetMemoryPropertiesHandle(ptr, &properties) != UMF_RESULT_SUCCESS ||
        umfGetMemoryProperty(properties, UMF_MEMORY_PROPERTY_BASE_ADDRESS, &base, sizeof(base)) !=
            UMF_RESULT_SUCCESS) {
        return RMM_ERROR_INVALID_ARGUMENT;
    }
    *offset = (offset_t)((uintptr_t)ptr - base);
    return RMM_SUCCESS;
}

/* Room in the pool counts as free. */
static size_t kept_by_pool(int device) {
    umem_why_t why;
    size_t used = 0, reserved = 0;
    umf_memory_pool_handle_t pool =
        atomic_load(&is_pooled) ? umem_pool_of_device(device, &why) : NULL;
    if (!pool ||
        umfCtlGet("umf.pool.by_handle.{}.stats.reserved_memory", &reserved, sizeof(reserved),
                  pool) != UMF_RESULT_SUCCESS ||
        umfCtlGet("umf.pool.by_handle.{}.stats.used_memory", &used, sizeof(used), pool) !=
            UMF_RESULT_SUCCESS) {
        return 0;
    }
    return reserved - used;
}

rmmError_t rmmGetInfo(size_t *freeSize, size_t *totalSize, cudaStream_t stream) {
    UMEM_KEEP_ERRNO;
    (void)stream;
    size_t left, total;
    int device = umem_current_device();
    if (!freeSize || !totalSize) {
        return RMM_ERROR_INVALID_ARGUMENT;
    }
    if (umfCUDADeviceMemory(device, &left, &total) != UMF_RESULT_SUCCESS) {
        return RMM_ERROR_CUDA_ERROR;
    }
    *freeSize = left + kept_by_pool(device);
    *totalSize = total;
    return RMM_SUCCESS;
}

/* --- words ------------------------------------------------------------------------------------ */

const char *rmmGetErrorString(rmmError_t error) {
    static const char *const names[N_RMM_ERROR] = {
        [RMM_SUCCESS] = "RMM_SUCCESS",
        [RMM_ERROR_CUDA_ERROR] = "RMM_ERROR_CUDA_ERROR",
        [RMM_ERROR_INVALID_ARGUMENT] = "RMM_ERROR_INVALID_ARGUMENT",
        [RMM_ERROR_NOT_INITIALIZED] = "RMM_ERROR_NOT_INITIALIZED",
        [RMM_ERROR_OUT_OF_MEMORY] = "RMM_ERROR_OUT_OF_MEMORY",
        [RMM_ERROR_UNKNOWN] = "RMM_ERROR_UNKNOWN",
        [RMM_ERROR_IO] = "RMM_ERROR_IO",
    };
    return (unsigned)error < N_RMM_ERROR ? names[error] : names[RMM_ERROR_UNKNOWN];
}
