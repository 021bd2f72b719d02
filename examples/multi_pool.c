/*
 * Several pools, each for its own purpose, and one way to free: the pointer finds its pool.
 *
 * Here small objects come from a disjoint pool, buffers from a jemalloc pool, and the largest ones
 * straight from the system through a proxy pool. Pools are cheap; keep one per purpose, per size
 * range, per NUMA node or per device.
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_os_memory.h>

enum { SMALL, MEDIUM, LARGE, POOLS };

static size_t limit_of[POOLS] = {1024, 256 * 1024, SIZE_MAX};

static umf_memory_pool_handle_t pools[POOLS];

static void *allocate(size_t size) {
    int kind = SMALL;
    while (size > limit_of[kind]) {
        kind++;
    }
    return umfPoolMalloc(pools[kind], size);
}

static int create_pools(umf_memory_provider_handle_t provider) {
    /* A table is NULL when this build of the library does not have the pool. */
    const umf_memory_pool_ops_t *ops[POOLS] = {
        umfDisjointPoolOps(),
        umfJemallocPoolOps() ? umfJemallocPoolOps() : umfDisjointPoolOps(),
        umfProxyPoolOps(),
    };
    static const char *const tags[POOLS] = {"small", "medium", "large"};
    for (int i = 0; i < POOLS; i++) {
        if (umfPoolCreate(ops[i], provider, NULL, 0, &pools[i]) != UMF_RESULT_SUCCESS) {
            fprintf(stderr, "cannot create pool %d\n", i);
            return -1;
        }
        /* A tag is any pointer. The pool returns it, so every pointer of the pool leads to it. */
        umfPoolSetTag(pools[i], (void *)tags[i], NULL);
    }
    return 0;
}

int main(void) {
    umf_os_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    if (umfOsMemoryProviderParamsCreate(&params) != UMF_RESULT_SUCCESS ||
        umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider) !=
            UMF_RESULT_SUCCESS) {
        fprintf(stderr, "cannot create the provider\n");
        return 1;
    }
    umfOsMemoryProviderParamsDestroy(params);
    if (create_pools(provider) != 0) {
        return 1;
    }

    static const size_t sizes[] = {24, 1000, 5000, 200000, 3000000};
    int wrong = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *ptr = allocate(sizes[i]);
        umf_memory_pool_handle_t pool;
        void *tag;
        if (!ptr || umfPoolByPtr(ptr, &pool) != UMF_RESULT_SUCCESS ||
            umfPoolGetTag(pool, &tag) != UMF_RESULT_SUCCESS) {
            fprintf(stderr, "cannot allocate %zu bytes\n", sizes[i]);
            return 1;
        }
        memset(ptr, 0x5a, sizes[i]);
        printf("%8zu bytes at %p from the %s pool\n", sizes[i], ptr, (const char *)tag);
        wrong += umfFree(ptr) != UMF_RESULT_SUCCESS;
    }

    for (int i = 0; i < POOLS; i++) {
        wrong += umfPoolDestroy(pools[i]) != UMF_RESULT_SUCCESS;
    }
    umfMemoryProviderDestroy(provider);
    return wrong != 0;
}
