/* First steps of an application: a pool over memory of the system, and a pointer that leads to it.
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/providers/provider_os_memory.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            fprintf(stderr, "%s failed: %s\n", #call, umfResultText(result));                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(void) {
    umf_os_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t pool, found;
    TRY(umfOsMemoryProviderParamsCreate(&params));
    TRY(umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider));
    TRY(umfOsMemoryProviderParamsDestroy(params));
    TRY(umfPoolCreate(umfDisjointPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                      &pool));

    char *text = umfPoolMalloc(pool, 100);
    if (!text) {
        return 1;
    }
    strcpy(text, "C works");
    TRY(umfPoolByPtr(text, &found));
    if (found != pool) {
        return 1;
    }
    puts(text);
    TRY(umfFree(text));
    TRY(umfPoolDestroy(pool));
    return 0;
}
