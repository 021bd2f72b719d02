/*
 * A user-defined provider: a table of functions (file_provider.h) is all it takes, and every pool
 * works on top of it.
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/pools/pool_disjoint.h>

#include "file_provider.h"

int main(void) {
    file_params_t params = {.directory = "/tmp"};
    umf_memory_provider_handle_t provider;
    umf_result_t result = umfMemoryProviderCreate(&file_provider_ops, &params, &provider);
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "no provider: %s\n", umfResultText(result));
        return 1;
    }

    /* OWN_PROVIDER: destroying the pool destroys the provider, too. */
    umf_memory_pool_handle_t pool;
    result = umfPoolCreate(umfDisjointPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                           &pool);
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "no pool: %s\n", umfResultText(result));
        umfMemoryProviderDestroy(provider);
        return 1;
    }

    /* A thousand allocations; each keeps its content. */
    enum { COUNT = 1000 };
    char *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        size_t size = 1 + (size_t)i * 7;
        blocks[i] = umfPoolMalloc(pool, size);
        if (!blocks[i]) {
            fprintf(stderr, "no memory for %zu bytes\n", size);
            return 1;
        }
        memset(blocks[i], i & 0xff, size);
    }
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        size_t last = (size_t)i * 7;
        wrong += blocks[i][0] != (char)(i & 0xff) || blocks[i][last] != (char)(i & 0xff);
        wrong += umfFree(blocks[i]) != UMF_RESULT_SUCCESS;
    }
    printf("%d allocations out of a file in %s, %d of them wrong\n", COUNT, params.directory,
           wrong);

    umfPoolDestroy(pool);
    return wrong != 0;
}
