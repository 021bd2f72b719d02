/* Two ways to render a report: text of 80 columns, and JSON. */
#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plain.h"
#include "reader/json.h"
#include "report.h"

#define COLUMNS 80
#define INDENT 4 /* in front of names: two spaces, the mark, a space */

static const struct {
    const char *word; /* in JSON */
    const char *mark;
    const char *plain_mark;
    const char *color;
} states[] = {
    [REPORT_FACT] = {NULL, " ", " ", ""},
    [REPORT_OK] = {"ok", "✓", "+", "\033[32m"},
    [REPORT_ABSENT] = {"absent", "·", "-", "\033[2m"},
    [REPORT_SKIPPED] = {"skipped", "·", "-", "\033[2m"},
    [REPORT_WARNING] = {"warning", "!", "!", "\033[33m"},
    [REPORT_FAILED] = {"failed", "✗", "x", "\033[1;31m"},
};

static struct {
    bool json;
    bool color;
    bool utf8;
    bool in_section;
    bool section_is_empty;
    bool is_list;
    unsigned width;
} report;

/* --- pieces ----------------------------------------------------------------------------------- */

static void json_string(const char *text) {
    umf_reader_json_string(stdout, text, '\0');
}

static void json_lines(const char *text) {
    putchar('[');
    for (const char *line = text; *line;) {
        fputs(line == text ? "" : ", ", stdout);
        umf_reader_json_string(stdout, line, '\n');
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    putchar(']');
}

static void json_value(const report_value_t *value) {
    if (value->unit == REPORT_TEXT) {
        json_string(value->text);
    } else if (value->unit == REPORT_LINES) {
        json_lines(value->text);
    } else if (value->unit == REPORT_TIME) {
        printf("%" PRId64, (int64_t)value->number);
    } else if (value->number == REPORT_UNLIMITED) {
        fputs("null", stdout);
    } else {
        printf("%" PRIu64, value->number);
    }
}

/* Prints one character for a reader. Returns its number of bytes in the text. */
static size_t plain_char(const char *text) {
    char shown[4];
    size_t length;
    fwrite(shown, 1, plain_next(text, shown, &length), stdout);
    return length;
}

static unsigned plain_text(const char *text) {
    unsigned columns = 0;
    while (*text) {
        text += plain_char(text);
        columns++;
    }
    return columns;
}

static void spaces(unsigned count) {
    printf("%*s", (int)count, "");
}

static unsigned word_columns(const char *text) {
    unsigned columns = 0;
    for (; *text && *text != ' '; columns++) {
        uint32_t code;
        size_t length = umf_reader_character(text, &code);
        text += length ? length : 1;
    }
    return columns;
}

/* Prints text that begins at column `at`; further lines begin at the same column. */
static void wrapped(const char *text, unsigned at) {
    unsigned column = at;
    while (*text) {
        unsigned columns = word_columns(text);
        if (column > at && column + 1 + columns > COLUMNS) {
            putchar('\n');
            spaces(at);
            column = at;
        } else if (column > at) {
            putchar(' ');
            column++;
        }
        while (*text && *text != ' ') {
            text += plain_char(text);
        }
        while (*text == ' ') {
            text++;
        }
        column += columns;
    }
}

static void in_color(const char *color, const char *text) {
    fputs(report.color ? color : "", stdout);
    plain_text(text);
    fputs(report.color && *color ? "\033[0m" : "", stdout);
}

const char *report_bytes_text(uint64_t bytes, char *text, size_t size) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    double value = (double)bytes;
    for (; value >= 1024 && unit < 4; unit++) {
        value /= 1024;
    }
    bool whole = value == (double)(uint64_t)value || value >= 100;
    snprintf(text, size, "%.*f %s", whole ? 0 : 1, value, units[unit]);
    return text;
}

const char *report_time_text(int64_t ns, char *text, size_t size) {
    static const struct {
        double ns;
        const char *name;
    } units[] = {{60e9, "min"}, {1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
    size_t unit = 0;
    double value = (double)ns, most = value < 0 ? -value : value;
    while (unit < 4 && most < units[unit].ns) {
        unit++;
    }
    snprintf(text, size, unit == 4 ? "%.0f %s" : "%.3f %s", value / units[unit].ns,
             units[unit].name);
    return text;
}

static const char *date_text(uint64_t ns, char *text, size_t size) {
    time_t seconds = (time_t)(ns / 1000000000u);
    struct tm parts;
    if (!gmtime_r(&seconds, &parts) || strftime(text, size, "%F %T UTC", &parts) == 0) {
        snprintf(text, size, "an unknown date");
    }
    return text;
}

/* The value as a reader sees it; "" if there is none. */
static const char *value_text(const report_value_t *value, char *text, size_t size) {
    if (value->unit == REPORT_TEXT || value->unit == REPORT_LINES) {
        return value->text;
    }
    if (value->unit == REPORT_NOTHING) {
        return "";
    }
    if (value->unit == REPORT_TIME) {
        return report_time_text((int64_t)value->number, text, size);
    }
    if (value->number == REPORT_UNLIMITED) {
        return "unlimited";
    }
    if (value->unit == REPORT_DATE) {
        return date_text(value->number, text, size);
    }
    if (value->unit == REPORT_RATE) {
        snprintf(text, size, "%.1f GB/s", (double)value->number / 1e9);
        return text;
    }
    if (value->unit == REPORT_BYTES) {
        return report_bytes_text(value->number, text, size);
    }
    snprintf(text, size, "%" PRIu64, value->number);
    return text;
}

/* --- rows ------------------------------------------------------------------------------------- */

static const char *const unit_words[] = {[REPORT_BYTES] = "bytes",
                                         [REPORT_RATE] = "bytes/s",
                                         [REPORT_TIME] = "ns",
                                         [REPORT_DATE] = "ns"};

static void row_as_json(const report_row_t *row) {
    printf("%s\n    ", report.section_is_empty ? "" : ",");
    json_string(row->name);
    fputs(": {", stdout);
    const char *comma = "";
    if (states[row->state].word) {
        printf("\"state\": \"%s\"", states[row->state].word);
        comma = ", ";
    }
    if (row->value.unit != REPORT_NOTHING) {
        printf("%s\"value\": ", comma);
        comma = ", ";
        json_value(&row->value);
    }
    if (unit_words[row->value.unit]) {
        printf(", \"unit\": \"%s\"", unit_words[row->value.unit]);
    }
    if (row->note) {
        printf("%s\"note\": ", comma);
        json_string(row->note);
    }
    putchar('}');
}

static void row_as_text(const report_row_t *row) {
    char number[64];
    const char *value = value_text(&row->value, number, sizeof(number));
    fputs("  ", stdout);
    in_color(states[row->state].color,
             report.utf8 ? states[row->state].mark : states[row->state].plain_mark);
    putchar(' ');
    unsigned columns = plain_text(row->name);
    bool has_text = *value || row->note;
    if (has_text && columns > report.width) {
        putchar('\n');
        spaces(INDENT + report.width + 2);
    } else if (has_text) {
        spaces(report.width - columns + 2);
    }
    wrapped(value, INDENT + report.width + 2);
    if (*value && row->note) {
        putchar('\n');
        spaces(INDENT + report.width + 2);
    }
    if (row->note) {
        wrapped(row->note, INDENT + report.width + 2);
    }
    putchar('\n');
}

void report_row(const report_row_t *row) {
    if (report.json) {
        row_as_json(row);
    } else {
        row_as_text(row);
    }
    report.section_is_empty = false;
    /* A person may be watching, and the next row may take some time. */
    fflush(stdout);
}

void report_text(const char *name, const char *text) {
    report_row(&(report_row_t){.name = name, .value = {.unit = REPORT_TEXT, .text = text}});
}

void report_number(const char *name, uint64_t number) {
    report_row(&(report_row_t){.name = name, .value = {.unit = REPORT_NUMBER, .number = number}});
}

void report_bytes(const char *name, uint64_t bytes) {
    report_row(&(report_row_t){.name = name, .value = {.unit = REPORT_BYTES, .number = bytes}});
}

void report_time(const char *name, int64_t ns) {
    report_row(
        &(report_row_t){.name = name, .value = {.unit = REPORT_TIME, .number = (uint64_t)ns}});
}

void report_line(const char *text) {
    if (!report.json) {
        plain_text(text);
        putchar('\n');
        report.section_is_empty = false;
    }
}

void report_paragraph(const char *text, unsigned indent) {
    if (!report.json) {
        spaces(indent);
        wrapped(text, indent);
        putchar('\n');
        report.section_is_empty = false;
    }
}

void report_item(const report_member_t *members, size_t count) {
    if (!report.json) {
        return;
    }
    printf("%s\n    {", report.section_is_empty ? "" : ",");
    for (size_t i = 0; i < count; i++) {
        printf("%s\"%s\": ", i == 0 ? "" : ", ", members[i].name);
        json_value(&members[i].value);
    }
    putchar('}');
    report.section_is_empty = false;
}

void report_members(const report_member_t *members, size_t count) {
    for (size_t i = 0; report.json && i < count; i++) {
        printf("%s\n    \"%s\": ", report.section_is_empty ? "" : ",", members[i].name);
        json_value(&members[i].value);
        report.section_is_empty = false;
    }
}

bool report_is_json(void) {
    return report.json;
}

/* --- document --------------------------------------------------------------------------------- */

static bool wants_color(void) {
    const char *no_color = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no_color && *no_color) &&
           !(terminal && strcmp(terminal, "dumb") == 0);
}

void report_begin(const char *command, bool json) {
    report.json = json;
    report.color = !json && wants_color();
    report.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    if (json) {
        printf("{\n  \"tool\": \"umfctl\",\n  \"command\": \"%s\",\n  \"version\": \"%s\"", command,
               UMFCTL_VERSION);
    }
}

static void section_end(void) {
    if (!report.in_section) {
        return;
    }
    if (report.json) {
        fputs(report.section_is_empty ? "" : "\n  ", stdout);
        putchar(report.is_list ? ']' : '}');
    } else if (report.section_is_empty) {
        fputs("    none\n", stdout);
    }
    report.in_section = false;
}

static void section_begin(const char *name, const char *title, unsigned width, bool is_list) {
    bool is_first = !report.in_section;
    section_end();
    if (report.json) {
        printf(",\n  \"%s\": %c", name, is_list ? '[' : '{');
    } else {
        fputs(is_first ? "" : "\n", stdout);
        in_color("\033[1m", title);
        putchar('\n');
    }
    report.in_section = true;
    report.section_is_empty = true;
    report.width = width;
    report.is_list = is_list;
}

void report_section(const char *name, const char *title, unsigned width) {
    section_begin(name, title, width, false);
}

void report_list(const char *name, const char *title) {
    section_begin(name, title, 0, true);
}

int report_end(void) {
    section_end();
    if (report.json) {
        fputs("\n}\n", stdout);
    }
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        print_message("the output could not be written%s%s", errno ? ": " : "",
                      errno ? strerror(errno) : "");
        return -1;
    }
    return 0;
}
