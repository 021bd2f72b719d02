/*
 * Native errors: a result says what to do, the provider's own error says why.
 *
 * UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC means that the provider has a native error: an errno, a
 * CUresult. umfMemoryProviderGetLastNativeError gives it, for the last failure in this thread.
 */
#include <stdint.h>
#include <stdio.h>

#include <umf.h>
#include <umf/providers/provider_file_memory.h>

#include "file_provider.h"

/* A provider of this program, in a folder that does not exist. */
static umf_result_t own_provider(void) {
    file_params_t params = {.directory = "/no/such/folder"};
    umf_memory_provider_handle_t provider;
    umf_result_t result = umfMemoryProviderCreate(&file_provider_ops, &params, &provider);
    printf("a provider in %s: %s\n", params.directory, umfResultText(result));
    return result; /* there is no provider: create functions report by result and log */
}

/* A provider whose system call fails later: more memory than addresses. */
static int late_failure(void) {
    umf_memory_provider_handle_t provider;
    file_params_t params = {.directory = "/tmp"};
    const char *message = "";
    int32_t error = 0;
    void *ptr = NULL;
    if (umfMemoryProviderCreate(&file_provider_ops, &params, &provider) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    umf_result_t result = umfMemoryProviderAlloc(provider, (size_t)1 << 60, 0, &ptr);
    printf("2^60 bytes of it: %s\n", umfResultText(result));
    if (result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC) {
        umfMemoryProviderGetLastNativeError(provider, &message, &error);
        printf("its own error: %d, %s\n", (int)error, message);
    }
    umfMemoryProviderDestroy(provider);
    return result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC && error != 0 ? 0 : 1;
}

int main(void) {
    return own_provider() == UMF_RESULT_SUCCESS ? 1 : late_failure();
}
