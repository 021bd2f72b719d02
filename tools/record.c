#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "progress.h"
#include "record.h"
#include "report.h"
#include "umfctl.h"

int record_failed(const umf_reader_error_t *error) {
    return print_message("%s", error->text);
}

/* --- source lines ----------------------------------------------------------------------------- */

void record_lines_begin(umf_reader_t *reader) {
    static bool is_said;
    const char *servers = getenv("DEBUGINFOD_URLS");
    if (umfctl_words.debuginfod && !(servers && *servers) && !is_said) {
        print_message("--debuginfod: no server is named; set DEBUGINFOD_URLS");
        is_said = true;
    }
    if (umfctl_words.debuginfod) {
        umf_reader_use_servers(reader);
    }
}

void record_close(umf_reader_t *reader) {
    static bool is_said;
    if (reader && umf_reader_lines_are_missing(reader) && !is_said) {
        print_message("stacks are without source lines and inlined functions: libdw.so.1 is not "
                      "installed (package libdw1, elfutils-libs)");
        is_said = true;
    }
    umf_reader_close(reader);
}

/* --- a part of a file ------------------------------------------------------------------------- */

static bool find_time(const umf_reader_t *reader, const char *word, int64_t *ns,
                      umf_reader_error_t *error) {
    char *end;
    double seconds = word ? strtod(word, &end) : 0;
    if (!word) {
        return true;
    } else if (*word >= '0' && *word <= '9' && *end == '\0' && seconds < 1e9) {
        *ns = (int64_t)(seconds * 1e9);
        return true;
    }
    return umf_reader_find_mark(reader, word, ns, error);
}

static umf_reader_t *select_part(umf_reader_t *reader, const char *from, const char *to) {
    umf_reader_error_t error;
    if (reader) {
        record_lines_begin(reader);
    }
    if (reader && !umfctl_words.events) { /* whose output comes meanwhile */
        umf_reader_set_progress(reader, progress_show);
    }
    umf_reader_part_t part = {INT64_MIN, INT64_MAX, umfctl_words.pool};
    bool has_part = from || to || part.pool;
    if (reader && has_part &&
        !(find_time(reader, from, &part.from, &error) && find_time(reader, to, &part.to, &error) &&
          umf_reader_select(reader, &part, &error))) {
        record_failed(&error);
        umf_reader_close(reader);
        return NULL;
    }
    return reader;
}

umf_reader_t *record_select(umf_reader_t *reader) {
    return select_part(reader, umfctl_words.from, umfctl_words.to);
}

umf_reader_t *record_open_part(const char *path, const char *from, const char *to) {
    umf_reader_error_t error;
    umf_reader_t *reader = umf_reader_open(path, &error);
    if (!reader) {
        record_failed(&error);
    }
    return select_part(reader, from, to);
}

umf_reader_t *record_open(const char *path) {
    return record_open_part(path, umfctl_words.from, umfctl_words.to);
}

/* --- numbers ---------------------------------------------------------------------------------- */

const char *record_number(uint64_t number, char *text, size_t size) {
    if (number < 10000000) {
        snprintf(text, size, "%" PRIu64, number);
    } else {
        snprintf(text, size, "%.1f M", (double)number / 1e6);
    }
    return text;
}

const char *record_allocations(uint64_t count, char *text, size_t size) {
    snprintf(text, size, "%" PRIu64 " allocation%s", count, count == 1 ? "" : "s");
    return text;
}

/* --- the file --------------------------------------------------------------------------------- */

static void describe_time(const umf_reader_info_t *info) {
    report_row(
        &(report_row_t){.name = "began", .value = {.unit = REPORT_DATE, .number = info->realtime}});
    if (info->kind == UMF_RECORD_FILE_RECORDING) {
        report_time("last event", info->last_ns);
        bool has_ended = info->flags & UMF_RECORD_HAS_ENDED;
        report_text("ended",
                    has_ended ? "in an orderly way" : "no: the process still records, or died");
    }
}

static void warn(const char *name, uint64_t number, const char *note) {
    if (number) {
        report_row(&(report_row_t){.name = name,
                                   .state = REPORT_WARNING,
                                   .value = {.unit = REPORT_NUMBER, .number = number},
                                   .note = note});
    }
}

static void describe_limits(const umf_reader_info_t *info) {
    if (info->rate > 1) {
        warn("rate", info->rate, "one allocation of so many was recorded; figures are of these");
    }
    if (info->min_size > 0) {
        report_bytes("from size", info->min_size);
    }
    if (info->max_size > 0 && info->max_size < UINT64_MAX) {
        report_bytes("up to size", info->max_size);
    }
    warn("lost events", info->dropped,
         "the oldest, as the file was full: their allocations are known only if they are live at "
         "the end; record into a larger file, or larger sizes only");
    warn("lost lives", info->live_dropped,
         "allocations without room in the live table: leaks may be missing");
}

static void describe_part(const umf_reader_info_t *info) {
    if (info->from_ns != INT64_MIN) {
        report_time("from", info->from_ns);
    }
    if (info->to_ns != INT64_MAX) {
        report_time("to", info->to_ns);
    }
    if (umfctl_words.pool) {
        report_text("pool", umfctl_words.pool);
    }
}

void record_describe(const umf_reader_t *reader, const char *name, const char *title) {
    const umf_reader_info_t *info = umf_reader_info(reader);
    bool is_snapshot = info->kind == UMF_RECORD_FILE_SNAPSHOT;
    char text[64];
    report_section(name, title, 12);
    report_text("file", info->name);
    report_text("kind", is_snapshot ? "snapshot" : "recording");
    report_number("process", info->pid);
    describe_time(info);
    if (!is_snapshot) {
        report_number("events", info->event_count - info->older_count);
        report_number("threads", info->thread_count - (info->older_count > 0));
    }
    describe_limits(info);
    describe_part(info);
    const char *note;
    for (size_t i = 0; (note = umf_reader_note(reader, i)) != NULL; i++) {
        snprintf(text, sizeof(text), "note %zu", i + 1);
        report_row(&(report_row_t){.name = text, .state = REPORT_WARNING, .note = note});
    }
}

/* --- stacks ----------------------------------------------------------------------------------- */

/* In a line of its own, if there is room for it. Returns the length of the text. */
static size_t add_frame(const umf_reader_frame_t *frame, char *text, size_t length, size_t size) {
    char line[512];
    umf_reader_frame_text(frame, line, sizeof(line));
    for (char *c = line; (c = strchr(c, '\n')) != NULL;) {
        *c = '?';
    }
    if (strlen(line) + 2 > size - length) {
        return length;
    }
    return length +
           (size_t)snprintf(text + length, size - length, "%s%s", length ? "\n" : "", line);
}

const char *record_stack(umf_reader_t *reader, uint32_t stack, char *text, size_t size) {
    const uint64_t *frames = NULL;
    size_t count = umf_reader_caller_stack(reader, stack, &frames), length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const umf_reader_frame_t *all;
        size_t inlined = umf_reader_resolve_all(reader, frames[i], &all);
        for (size_t j = 0; j < inlined; j++) {
            length = add_frame(&all[j], text, length, size);
        }
    }
    return text;
}

void record_print_lines(const char *lines) {
    for (const char *line = lines; *line;) {
        size_t length = strcspn(line, "\n");
        char shown[81];
        snprintf(shown, sizeof(shown), "      %.*s", length < 74 ? (int)length : 74, line);
        report_line(shown);
        line += length + (line[length] != '\0');
    }
}

void record_print_stack(umf_reader_t *reader, uint32_t stack) {
    char text[RECORD_STACK];
    if (!report_is_json()) {
        record_print_lines(record_stack(reader, stack, text, sizeof(text)));
    }
}

const char *record_place(umf_reader_t *reader, uint32_t stack, char *text, size_t size) {
    char all[RECORD_STACK];
    record_stack(reader, stack, all, sizeof(all));
    all[strcspn(all, "\n")] = '\0';
    snprintf(text, size, "%s", all[0] ? all : "a place that was not recorded (no stack)");
    return text;
}
