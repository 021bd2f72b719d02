/* The text of UMF_PROXY. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/options.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int condition) {
    if (!condition) {
        abort();
    }
}

/* A part lies in the text. */
static void check_part(umf_proxy_part_t part, const char *text, size_t length) {
    char shown[16];
    if (part.start) {
        size_t at = (size_t)(part.start - text);
        check(at <= length && part.length <= length - at);
        check(strlen(umf_proxy_part_show(part, shown, sizeof(shown))) < sizeof(shown));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    umf_proxy_options_t options;
    char *text = malloc(size + 1);
    if (!text) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    size_t length = strlen(text);
    umf_proxy_options_parse(text, &options);
    check(options.pages <= UMF_PROXY_PAGES_SHARED_SHM);
    check(options.unknown_count <= length);
    check((options.unknown.start != NULL) == (options.unknown_count != 0));
    check_part(options.unknown, text, length);
    check_part(options.no_number, text, length);
    free(text);
    return 0;
}
