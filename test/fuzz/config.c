/*
 * UMF_CONF, and a file with the same syntax: an input that begins with '@' is the text of a file
 * (without the '@'), any other that of the variable. Then pools and a provider are created that
 * read the defaults it has stored.
 */
#include "fuzz/support.h"

#include <stdio.h>
#include <string.h>

#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_os_memory.h>

#include "ctl/config.h"

#define CONFIG_FILE "fuzz.conf"

static void apply_file(const char *text, size_t length) {
    FILE *file = fopen(CONFIG_FILE, "wb");
    FUZZ_CHECK(file && fwrite(text, 1, length, file) == length);
    fclose(file);
    umf_config_apply_file(CONFIG_FILE);
}

static void create_pools(umf_memory_provider_handle_t provider) {
    const umf_memory_pool_ops_t *kinds[] = {umfDisjointPoolOps(), umfProxyPoolOps()};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        umf_memory_pool_handle_t pool = NULL;
        FUZZ_CHECK(umfPoolCreate(kinds[i], provider, NULL, 0, &pool) == UMF_RESULT_SUCCESS);
        fuzz_use_pool(pool);
        FUZZ_CHECK(umfPoolTrimMemory(pool, 0) != UMF_RESULT_ERROR_UNKNOWN);
        FUZZ_CHECK(umfPoolDestroy(pool) == UMF_RESULT_SUCCESS);
    }
}

static void create_os_provider(void) {
    umf_os_memory_provider_params_handle_t params = NULL;
    umf_memory_provider_handle_t provider = NULL;
    FUZZ_CHECK(umfOsMemoryProviderParamsCreate(&params) == UMF_RESULT_SUCCESS);
    FUZZ_CHECK(umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider) ==
               UMF_RESULT_SUCCESS);
    umfOsMemoryProviderParamsDestroy(params);
    FUZZ_CHECK(umfMemoryProviderDestroy(provider) == UMF_RESULT_SUCCESS);
}

static void run(char *text, size_t length) {
    if (length > 0 && *text == '@') {
        apply_file(text + 1, length - 1);
    } else {
        umf_config_apply("fuzz", text, strlen(text));
    }
    umf_memory_provider_handle_t provider = fuzz_provider();
    create_pools(provider);
    FUZZ_CHECK(umfMemoryProviderDestroy(provider) == UMF_RESULT_SUCCESS);
    create_os_provider();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_run(data, size, run);
    return 0;
}
