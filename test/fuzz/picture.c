/* The picture of any file (tools/picture): it is written or refused, and nothing in it ends the
 * data. */
#include <stdlib.h>
#include <string.h>

#include "../../tools/picture/picture.h"
#include "fuzz/support.h"

#define MOST ((size_t)4 << 20)

typedef struct page_t {
    char *bytes;
    size_t size;
} page_t;

static bool keep(void *arg, const char *bytes, size_t size) {
    page_t *page = arg;
    FUZZ_CHECK(page->size + size < MOST);
    memcpy(page->bytes + page->size, bytes, size);
    page->size += size;
    page->bytes[page->size] = '\0';
    return true;
}

static void check(const page_t *page) {
    const char *data = strstr(page->bytes, "id=\"data\">");
    FUZZ_CHECK(data && strlen(page->bytes) == page->size);
    const char *end = strchr(data, '<');
    FUZZ_CHECK(end && strncmp(end, "</script>\n<script>\n", 19) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    umf_reader_error_t error;
    umf_reader_t *reader = umf_reader_open_bytes(data, size, "fuzzed", &error);
    page_t page = {.bytes = malloc(MOST)};
    if (reader && page.bytes && umf_picture_write(reader, keep, &page, &error)) {
        check(&page);
    }
    free(page.bytes);
    umf_reader_close(reader);
    return 0;
}
