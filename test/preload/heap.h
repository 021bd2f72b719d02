/* Queries of these tests on the heap of the proxy library. */
#ifndef UMF_TEST_PRELOAD_HEAP_H
#define UMF_TEST_PRELOAD_HEAP_H

#include <stdlib.h>
#include <string.h>

#include <malloc.h>

#include <umf.h>
#include <umf/experimental/ctl.h>

/* Is the proxy library the program's malloc? Only it may be called with the probe: other libraries
 * crash. */
static inline bool heap_is_ours() {
    umf_memory_pool_handle_t pool;
    void *ptr = calloc(1, 100000);
    bool is_ours = umfPoolByPtr(ptr, &pool) == UMF_RESULT_SUCCESS &&
                   malloc_usable_size(reinterpret_cast<void *>(1)) == 0xDEADBEEF;
    free(ptr);
    return is_ours;
}

static inline umf_memory_pool_handle_t pool_of(const void *ptr) {
    umf_memory_pool_handle_t pool = NULL;
    return umfPoolByPtr(ptr, &pool) == UMF_RESULT_SUCCESS ? pool : NULL;
}

static inline umf_memory_pool_handle_t heap() {
    void *ptr = calloc(1, 100000);
    umf_memory_pool_handle_t pool = pool_of(ptr);
    free(ptr);
    return pool;
}

/* Live objects of the heap. */
static inline size_t heap_count() {
    size_t count = 0;
    umfCtlGet("umf.pool.by_handle.{}.stats.alloc_count", &count, sizeof(count), heap());
    return count;
}

static inline bool is_option(const char *option) {
    const char *options = getenv("UMF_PROXY");
    return options && strstr(options, option);
}

/* Requests of this size and larger are the heap's. */
static inline size_t threshold() {
    const char *options = getenv("UMF_PROXY");
    const char *part = options ? strstr(options, "size.threshold=") : NULL;
    return part ? strtoul(part + strlen("size.threshold="), NULL, 10) : 0;
}

#endif
