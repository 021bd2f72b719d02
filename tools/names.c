/* umfctl names: names of code into a recording or snapshot, so that it can be read elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plain.h"
#include "record.h"
#include "report.h"
#include "umfctl.h"

bool record_names(int fd, const char *path, umf_reader_names_t *names) {
    umf_reader_error_t error;
    umf_reader_t *reader = umf_reader_open_fd(fd, path, &error);
    if (reader) {
        record_lines_begin(reader);
    }
    bool is_written = reader && umf_reader_names_write(reader, fd, names, &error);
    record_close(reader);
    if (!is_written) {
        record_failed(&error);
    }
    return is_written;
}

bool record_names_of(const char *path, umf_reader_names_t *names) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        print_message("%s: %s", path, strerror(errno));
        return false;
    }
    bool is_written = record_names(fd, path, names);
    close(fd);
    return is_written;
}

int umfctl_names(void) {
    umf_reader_names_t names;
    const char *path = umfctl_words.operands[0];
    if (!record_names_of(path, &names)) {
        return 1;
    }
    uint64_t missing = names.addresses - names.functions;
    report_section("names", "Names", 12);
    report_text("file", path);
    report_number("addresses", names.addresses);
    report_number("functions", names.functions);
    report_number("lines", names.lines);
    report_bytes("added", names.bytes);
    if (missing > 0) {
        report_row(&(report_row_t){
            .name = "no name",
            .state = REPORT_WARNING,
            .value = {.unit = REPORT_NUMBER, .number = missing},
            .note = "addresses whose program or library is not here, is another version or has no "
                    "symbols; the file has the module and the offset",
        });
    }
    return 0;
}
