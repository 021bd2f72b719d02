/*
 * Counters: bytes that a pool and its provider hold, read while the program runs.
 *
 * A path names a counter. "{}" in it stands for an argument, here the handle. The pool keeps more
 * than the program uses: the difference is free memory that its next allocations take.
 */
#include <stdio.h>
#include <stdlib.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/text.h>

static size_t counter(const char *path, void *handle) {
    size_t value = 0;
    umf_result_t result = umfCtlGet(path, &value, sizeof(value), handle);
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "%s: %s\n", path, umfResultText(result));
        exit(1);
    }
    return value;
}

static size_t print(const char *when, umf_memory_pool_handle_t pool) {
    umf_memory_provider_handle_t provider;
    umfPoolGetMemoryProvider(pool, &provider);
    size_t used = counter("umf.pool.by_handle.{}.stats.used_memory", pool);
    printf("%-14s blocks %4zu  used %8zu  held %8zu  of the provider %8zu, at most %8zu\n", when,
           counter("umf.pool.by_handle.{}.stats.alloc_count", pool), used,
           counter("umf.pool.by_handle.{}.stats.reserved_memory", pool),
           counter("umf.provider.by_handle.{}.stats.allocated_memory", provider),
           counter("umf.provider.by_handle.{}.stats.peak_memory", provider));
    return used;
}

int main(void) {
    enum { COUNT = 1000, SIZE = 3000 };
    umf_memory_pool_handle_t pool;
    void *blocks[COUNT];
    if (umfPoolCreateFromText("disjoint over os", &pool) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    print("at first", pool);
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = umfPoolMalloc(pool, SIZE);
    }
    size_t used = print("allocated", pool);
    for (int i = 0; i < COUNT; i++) {
        umfFree(blocks[i]);
    }
    size_t left = print("freed", pool);
    umfPoolTrimMemory(pool, 0);
    print("trimmed", pool);
    umfPoolDestroy(pool);
    return used >= (size_t)COUNT * SIZE && left == 0 ? 0 : 1;
}
