/* Files for other viewers: of any file that can be read, a whole document. */
#include "fuzz/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader/export.h"

typedef bool export_t(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);

static void check(umf_reader_t *reader, export_t *write, const char *begin, const char *end) {
    umf_reader_error_t error;
    char *text = NULL;
    size_t size = 0, length = strlen(end);
    FILE *out = open_memstream(&text, &size);
    FUZZ_CHECK(out && write(reader, out, &error) && fclose(out) == 0);
    FUZZ_CHECK(size > length && memcmp(text, begin, strlen(begin)) == 0);
    FUZZ_CHECK(memcmp(text + size - length, end, length) == 0);
    free(text);
}

/* A format without a frame: it may be empty. */
static void check_any(umf_reader_t *reader, export_t *write) {
    umf_reader_error_t error;
    FILE *out = fopen("/dev/null", "we");
    FUZZ_CHECK(out && write(reader, out, &error) && fclose(out) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    umf_reader_t *reader = umf_reader_open_bytes(data, size, "input", NULL);
    if (reader) {
        check(reader, umf_reader_export_chrome, "{", "]}\n");
        check(reader, umf_reader_export_pytorch, "\x80\x02}", "u.");
        check(reader, umf_reader_export_speedscope, "{", "]}\n");
        check_any(reader, umf_reader_export_collapsed);
        check_any(reader, umf_reader_export_pprof);
        check_any(reader, umf_reader_export_perfetto);
        umf_reader_close(reader);
    }
    return 0;
}
