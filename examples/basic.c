/*
 * The basics: a provider hands out coarse memory, a pool on top of it serves small allocations, and
 * a pointer alone is enough to find its pool and to free it.
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/providers/provider_os_memory.h>

/* Every function returns a result; `umfResultText` puts it in words. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "%s failed: %s\n", #call, umfResultText(result));                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(void) {
    /* A provider of memory from the operating system. The parameters may be destroyed once it
     * exists. */
    umf_os_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    TRY(umfOsMemoryProviderParamsCreate(&params));
    TRY(umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider));
    TRY(umfOsMemoryProviderParamsDestroy(params));

    /* It can be used directly: it gives whole pages, and a free names the size again. */
    void *pages;
    size_t page_size;
    TRY(umfMemoryProviderGetMinPageSize(provider, NULL, &page_size));
    TRY(umfMemoryProviderAlloc(provider, 4 * page_size, 0, &pages));
    memset(pages, 1, 4 * page_size);
    printf("provider: 4 pages of %zu bytes at %p\n", page_size, pages);
    TRY(umfMemoryProviderFree(provider, pages, 4 * page_size));

    /* A pool divides such memory. NULL means default parameters, 0 no flags. */
    umf_memory_pool_handle_t pool;
    TRY(umfPoolCreate(umfDisjointPoolOps(), provider, NULL, 0, &pool));

    char *text = umfPoolMalloc(pool, 100);
    if (!text) {
        fprintf(stderr, "no memory: %s\n", umfResultText(umfPoolGetLastAllocationError(pool)));
        return 1;
    }
    strcpy(text, "hello from a pool");
    printf("pool: \"%s\" at %p\n", text, (void *)text);

    /* A pointer, also one into the middle, leads to its pool and to the provider of that. */
    umf_memory_pool_handle_t found_pool;
    umf_memory_provider_handle_t found_provider;
    const char *pool_name, *provider_name;
    TRY(umfPoolByPtr(text + 6, &found_pool));
    TRY(umfPoolGetMemoryProvider(found_pool, &found_provider));
    TRY(umfPoolGetName(found_pool, &pool_name));
    TRY(umfMemoryProviderGetName(found_provider, &provider_name));
    printf("%p belongs to a pool \"%s\" over a provider \"%s\"\n", (void *)text, pool_name,
           provider_name);
    if (found_pool != pool || found_provider != provider) {
        fprintf(stderr, "that is not where it came from\n");
        return 1;
    }

    /* Freeing needs no pool handle. A pointer of no pool is refused; nothing crashes. */
    TRY(umfFree(text));
    int on_the_stack = 0;
    printf("freeing a stack address: %s\n", umfResultText(umfFree(&on_the_stack)));

    /* Destroy from top to bottom: the pool before its provider. */
    TRY(umfPoolDestroy(pool));
    TRY(umfMemoryProviderDestroy(provider));
    return 0;
}
