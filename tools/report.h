/*
 * The output of umfctl. A report is sections of rows. Each row is given once and rendered as a line
 * for a reader or as a member of a JSON document.
 *
 * Text from the machine (names of devices, messages of the library) may contain anything: control
 * characters are replaced, and JSON is always UTF-8.
 */
#ifndef UMFCTL_REPORT_H
#define UMFCTL_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum report_state_t {
    REPORT_FACT,    /* neither good nor bad */
    REPORT_OK,      /* works */
    REPORT_ABSENT,  /* missing, which may be fine */
    REPORT_SKIPPED, /* not tried */
    REPORT_WARNING, /* may become a problem */
    REPORT_FAILED,
} report_state_t;

typedef enum report_unit_t {
    REPORT_NOTHING, /* the row has no value */
    REPORT_TEXT,
    REPORT_NUMBER,
    REPORT_BYTES, /* a number that is shown as KiB, MiB, ... */
    REPORT_RATE,  /* bytes in a second */
    REPORT_LINES, /* text; in JSON an array of its lines */
    REPORT_TIME,  /* nanoseconds that are shown as ms, s, min */
    REPORT_DATE,  /* nanoseconds since 1970 that are shown as a date in UTC */
} report_unit_t;

/* A number that means "no limit"; null in JSON. */
#define REPORT_UNLIMITED UINT64_MAX

typedef struct report_value_t {
    report_unit_t unit;
    uint64_t number;
    const char *text;
} report_value_t;

typedef struct report_row_t {
    const char *name; /* unique in its section */
    report_state_t state;
    report_value_t value;
    const char *note; /* meaning of the row, or the reason; NULL: none */
} report_row_t;

/* Begins a report on stdout. `command` is umfctl's first argument. */
void report_begin(const char *command, bool json);

/* `name` is the section's key in JSON, `title` its heading; names are padded to `width` columns. */
void report_section(const char *name, const char *title, unsigned width);
/* A section that is an array in JSON. It has lines, and items by report_item. */
void report_list(const char *name, const char *title);
void report_row(const report_row_t *row);
void report_text(const char *name, const char *text);
void report_number(const char *name, uint64_t number);
void report_bytes(const char *name, uint64_t bytes);
void report_time(const char *name, int64_t ns);

/* A line of a table, at most 80 columns, for people only: in JSON there are rows or members
 * instead. */
void report_line(const char *text);

/* A paragraph for people only, in lines of 80 columns that begin at column `indent`. */
void report_paragraph(const char *text, unsigned indent);

typedef struct report_member_t {
    const char *name;
    report_value_t value;
} report_member_t;

/* An object of a list, for programs only. */
void report_item(const report_member_t *members, size_t count);
/* The members of a section, for programs only. */
void report_members(const report_member_t *members, size_t count);

/* A time as people see it, such as "1.500 ms"; returns `text`. */
const char *report_time_text(int64_t ns, char *text, size_t size);

/* A number of bytes as people see it, such as "1.5 MiB"; returns `text`. */
const char *report_bytes_text(uint64_t bytes, char *text, size_t size);

bool report_is_json(void);

/* Ends the document. Returns 0, or -1 with a message if not everything could be written. */
int report_end(void);

#endif /* UMFCTL_REPORT_H */
