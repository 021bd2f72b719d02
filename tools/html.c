/* umfctl trace --html: the picture of a recording or a snapshot, as one file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "picture/picture.h"
#include "record.h"
#include "report.h"
#include "umfctl.h"

static bool put(void *arg, const char *bytes, size_t size) {
    return fwrite(bytes, 1, size, arg) == size;
}

/* What is recorded cannot be made again. */
static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int cannot_write(const char *path, const char *why) {
    fprintf(stderr, "umfctl: %s cannot be written: %s\n", path, why);
    return 1;
}

static int write_into(umf_reader_t *reader, FILE *file, const char *path) {
    umf_reader_error_t error;
    struct stat state;
    bool is_regular = fstat(fileno(file), &state) == 0 && S_ISREG(state.st_mode);
    errno = 0;
    bool is_whole = umf_picture_write(reader, put, file, &error);
    int reason = errno;
    if (fclose(file) != 0 && is_whole) {
        is_whole = false;
        reason = errno;
    }
    if (is_whole) {
        return 0;
    }
    if (is_regular) {
        unlink(path);
    }
    return cannot_write(path, reason ? strerror(reason) : error.text);
}

int trace_html(umf_reader_t *reader, const char *path) {
    if (is_same_file(umfctl_words.operands[0], path)) {
        return cannot_write(path, "it is the recording");
    }
    FILE *file = fopen(path, "we");
    if (!file) {
        return cannot_write(path, strerror(errno));
    }
    int status = write_into(reader, file, path);
    if (status == 0) {
        report_section("picture", "Picture", 18);
        report_text("page", path);
    }
    return status;
}
