/* umfctl trace --html, --chrome and others: a recording or snapshot as a file for other viewers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "picture/picture.h"
#include "plain.h"
#include "reader/export.h"
#include "record.h"
#include "report.h"
#include "umfctl.h"

typedef bool export_t(umf_reader_t *reader, FILE *out, umf_reader_error_t *error);

/* An export of a recording, for record_write. */
typedef struct exported_t {
    umf_reader_t *reader;
    export_t *write;
} exported_t;

static bool export_write(void *arg, FILE *out, umf_reader_error_t *error) {
    const exported_t *exported = arg;
    return exported->write(exported->reader, out, error);
}

static bool put(void *arg, const char *bytes, size_t size) {
    return fwrite(bytes, 1, size, arg) == size;
}

static bool export_html(umf_reader_t *reader, FILE *out, umf_reader_error_t *error) {
    return umf_picture_write(reader, put, out, error);
}

/* A further format is a row here. */
static const struct {
    const char *name;
    const char *const *path;
    export_t *write;
} exports[] = {
    {"html", &umfctl_words.html, export_html},
    {"chrome", &umfctl_words.chrome, umf_reader_export_chrome},
    {"pytorch", &umfctl_words.pytorch, umf_reader_export_pytorch},
    {"collapsed", &umfctl_words.collapsed, umf_reader_export_collapsed},
    {"speedscope", &umfctl_words.speedscope, umf_reader_export_speedscope},
    {"perfetto", &umfctl_words.perfetto, umf_reader_export_perfetto},
    {"pprof", &umfctl_words.pprof, umf_reader_export_pprof},
};

#define EXPORTS (sizeof(exports) / sizeof(exports[0]))

/* A recording cannot be made again. */
static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int cannot_write(const char *path, const char *why) {
    return print_message("%s cannot be written: %s", path, why);
}

/* A file that is not whole does not stay. */
static int write_into(record_write_t *write, void *arg, FILE *file, const char *path) {
    umf_reader_error_t error;
    struct stat state;
    bool is_regular = fstat(fileno(file), &state) == 0 && S_ISREG(state.st_mode);
    errno = 0;
    bool is_whole = write(arg, file, &error);
    int reason = errno;
    bool has_error = ferror(file) != 0;
    if (fclose(file) != 0 && is_whole) {
        is_whole = false;
        has_error = true;
        reason = errno;
    }
    if (is_whole) {
        return 0;
    }
    if (is_regular) {
        unlink(path);
    }
    return cannot_write(path, has_error && reason ? strerror(reason) : error.text);
}

int record_write(const char *path, record_write_t *write, void *arg) {
    for (size_t i = 0; i < umfctl_words.operand_count; i++) {
        if (is_same_file(umfctl_words.operands[i], path)) {
            return cannot_write(path, "it is the recording");
        }
    }
    FILE *file = fopen(path, "we");
    return file ? write_into(write, arg, file, path) : cannot_write(path, strerror(errno));
}

static int write_file(umf_reader_t *reader, size_t which) {
    const char *path = *exports[which].path;
    int status = record_write(path, export_write, &(exported_t){reader, exports[which].write});
    if (status == 0) {
        report_text(exports[which].name, path);
    }
    return status;
}

bool trace_has_exports(void) {
    for (size_t i = 0; i < EXPORTS; i++) {
        if (*exports[i].path) {
            return true;
        }
    }
    return false;
}

int trace_export(umf_reader_t *reader) {
    int status = 0;
    report_section("written", "Written", 12);
    for (size_t i = 0; i < EXPORTS; i++) {
        if (*exports[i].path && write_file(reader, i) != 0) {
            status = 1;
        }
    }
    return status;
}
