/* Creation text (umf/text.h): a line is the text of a pool, or of a provider if it has no "over".
 */
#include "fuzz/support.h"

#include <string.h>

#include <umf/text.h>

static void check_message(umf_result_t result) {
    const char *message = umfTextError();
    FUZZ_CHECK((result == UMF_RESULT_SUCCESS) == (*message == '\0'));
    for (; *message; message++) { /* letters of other alphabets stay (base/plain_text.h) */
        FUZZ_CHECK((unsigned char)*message >= ' ' && *message != 0x7f);
    }
}

static void create_pool(const char *text) {
    umf_memory_pool_handle_t pool = NULL;
    umf_result_t result = umfPoolCreateFromText(text, &pool);
    check_message(result);
    FUZZ_CHECK((result == UMF_RESULT_SUCCESS) == (pool != NULL));
    if (pool) {
        const char *name = NULL;
        FUZZ_CHECK(umfPoolGetName(pool, &name) == UMF_RESULT_SUCCESS && strlen(name) < 64);
        fuzz_use_pool(pool);
        FUZZ_CHECK(umfPoolDestroy(pool) == UMF_RESULT_SUCCESS);
    }
}

static void create_provider(const char *text) {
    umf_memory_provider_handle_t provider = NULL;
    umf_result_t result = umfMemoryProviderCreateFromText(text, &provider);
    check_message(result);
    FUZZ_CHECK((result == UMF_RESULT_SUCCESS) == (provider != NULL));
    if (provider) {
        void *memory = NULL;
        if (umfMemoryProviderAlloc(provider, 8192, 0, &memory) == UMF_RESULT_SUCCESS) {
            FUZZ_CHECK(umfMemoryProviderFree(provider, memory, 8192) == UMF_RESULT_SUCCESS);
        }
        FUZZ_CHECK(umfMemoryProviderDestroy(provider) == UMF_RESULT_SUCCESS);
    }
}

static void run(char *text, size_t length) {
    (void)length;
    for (char *line; (line = fuzz_line(&text)) != NULL;) {
        if (strstr(line, "over")) {
            create_pool(line);
        }
        create_provider(line);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_run(data, size, run);
    return 0;
}
