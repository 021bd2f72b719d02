/*
 * Creates the object of a text: umf_docs_try provider|pool <text>. Without arguments it only
 * starts the library, which reads the environment. A kind or a NUMA node that this machine cannot
 * offer is no mistake in the text.
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/text.h>

static umf_result_t try_provider(const char *text) {
    umf_memory_provider_handle_t provider;
    umf_result_t result = umfMemoryProviderCreateFromText(text, &provider);
    return result == UMF_RESULT_SUCCESS ? umfMemoryProviderDestroy(provider) : result;
}

static umf_result_t try_pool(const char *text) {
    umf_memory_pool_handle_t pool;
    umf_result_t result = umfPoolCreateFromText(text, &pool);
    return result == UMF_RESULT_SUCCESS ? umfPoolDestroy(pool) : result;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return umfInit() == UMF_RESULT_SUCCESS ? 0 : 1;
    }
    umf_result_t result = strcmp(argv[1], "pool") == 0 ? try_pool(argv[2]) : try_provider(argv[2]);
    switch (result) {
    case UMF_RESULT_SUCCESS:
        return 0;
    case UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE:
    case UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC:
        return 0;
    default:
        printf("\"%s\": %s\n", argv[2], umfTextError());
        return strstr(umfTextError(), "was built without") ||
                       strstr(umfTextError(), "is not allowed to this process; it can use")
                   ? 0
                   : 1;
    }
}
