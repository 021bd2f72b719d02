/* umfctl top where there is no terminal, and umfctl metrics. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plain.h"
#include "report.h"
#include "start.h"
#include "top.h"
#include "umfctl.h"

static int failed(const char *text) {
    return print_message("%s", text);
}

/* --- for people and programs ------------------------------------------------------------------ */

static report_value_t figure(uint64_t number) {
    return (report_value_t){.unit = REPORT_BYTES, .number = number};
}

/* Unknown figures are null. */
static void row_members(const top_t *top, const top_row_t *row) {
    const umf_record_object_t *object = &row->object;
    char label[96], name[sizeof(object->name) + 1] = {0}, type[sizeof(row->kind) + 1];
    memcpy(name, object->name, sizeof(object->name));
    snprintf(type, sizeof(type), "%.*s", (int)sizeof(row->kind), row->kind);
    bool is_pool = object->kind == UMF_RECORD_OBJECT_POOL;
    report_member_t members[] = {
        {"pid", figure(top->targets[row->process].pid)},
        {"process", {.unit = REPORT_TEXT, .text = top->with[row->process].name}},
        {"label", {.unit = REPORT_TEXT, .text = top_label(top, row, label, sizeof(label))}},
        {"kind", {.unit = REPORT_TEXT, .text = is_pool ? "pool" : "provider"}},
        {"name", {.unit = REPORT_TEXT, .text = name}},
        {"number", figure(row->number)},
        {"parent", figure(object->parent)},
        {"live", figure(object->live)},
        {"live_count", figure(object->live_count)},
        {"held", figure(object->held)},
        {"peak", figure(object->peak)},
        {"away", figure(object->away)},
        {"cached", figure(top_cached(object))},
        {"type", {.unit = REPORT_TEXT, .text = type}},
        {"spare", figure(row->has_pages ? row->spare : UMF_RECORD_UNKNOWN)},
        {"stale", figure(row->has_pages ? row->stale : UMF_RECORD_UNKNOWN)},
        {"moved", figure(row->has_pages ? row->moved : UMF_RECORD_UNKNOWN)},
        {"refusals", figure(row->refusals)},
    };
    report_item(members, sizeof(members) / sizeof(members[0]));
}

static void process_show(const top_t *top, uint32_t process) {
    char title[128], line[TOP_LINE], live[16], held[16], text[256];
    top_sum_t sum = top_sum(top, process);
    snprintf(title, sizeof(title), "%u %s: %zu pool%s, %s live of %s held",
             top->targets[process].pid, top->with[process].name, sum.pools,
             sum.pools == 1 ? "" : "s", top_bytes(sum.live, live, sizeof(live)),
             top_bytes(sum.held, held, sizeof(held)));
    if (!report_is_json()) {
        report_section("objects", title, 0);
    }
    report_line(top_head);
    for (size_t i = 0; i < top->count; i++) {
        if (top->rows[i].process == process) {
            top_line(top, &top->rows[i], line);
            report_line(line);
            if (top_pages(&top->rows[i], line)) {
                report_line(line);
            }
            row_members(top, &top->rows[i]);
        }
    }
    if (top->with[process].is_viewed) {
        report_paragraph(top_view_text(top, process, text, sizeof(text)), 2);
    }
}

static void show(const top_t *top) {
    if (report_is_json()) {
        report_list("objects", "");
    }
    for (unsigned i = 0; i < top->target_count; i++) {
        if (top_is_open(top, i) && (top->pid || top_sum(top, i).pools > 0)) {
            process_show(top, i);
        }
    }
}

static void pause_for(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    fflush(stdout);
    nanosleep(&time, NULL);
}

/* JSON is one document, so it has one sample. */
static int show_often(top_t *top, double interval, unsigned times) {
    bool is_left = true;
    for (unsigned i = 0; i < times && is_left; i++) {
        if (i > 0) {
            pause_for(interval);
            is_left = top_sample(top);
        }
        if (is_left && (i + 1 == times || !report_is_json())) {
            show(top);
        }
    }
    if (is_left && top->note[0]) {
        print_message("%s", top->note);
    }
    return is_left ? 0 : failed(top->note[0] ? top->note : "no process is left");
}

static bool operand_pid(uint32_t *pid) {
    const char *word = umfctl_words.operand_count ? umfctl_words.operands[0] : NULL;
    *pid = word ? attach_pid(word) : 0;
    if (word && *pid == 0) {
        print_message("'%s' is not the number of a process", word);
        return false;
    }
    return true;
}

/* Until it ends, or `times` samples with anything in them. */
static int program_show(top_t *top, double interval, unsigned times) {
    for (unsigned shown = 0; start_runs() && (times == 0 || shown < times);) {
        top_sample(top);
        if (top->count > 0) {
            show(top);
            shown++;
        }
        pause_for(top->count > 0 ? interval : 0.02);
    }
    return start_wait();
}

static int program_top(top_t *top, double interval, unsigned times, bool is_screen) {
    top_init(top, 0);
    if (!start_program(umfctl_words.program, NULL, is_screen ? START_ASIDE : START_TO_ERROR)) {
        return 127;
    }
    int status = is_screen ? top_screen(top, interval) : 0;
    int own = is_screen ? start_wait() : program_show(top, interval, times);
    top_end(top);
    return own ? own : status;
}

int umfctl_top(void) {
    static top_t top;
    uint32_t pid;
    double interval = umfctl_words.interval > 0 ? umfctl_words.interval : 1;
    unsigned times = umfctl_words.times;
    bool is_screen =
        isatty(STDOUT_FILENO) && isatty(STDIN_FILENO) && times == 0 && !umfctl_words.json;
    if (!operand_pid(&pid)) {
        return 2;
    }
    if (is_screen && !top_has_screen()) {
        print_message("built without ncurses, or TERM is not known: here is one sample");
        is_screen = false;
    }
    int status = 0;
    if (umfctl_words.program) {
        return program_top(&top, interval, times, is_screen);
    }
    if (!top_begin(&top, pid)) {
        status = failed(top.note);
    } else if (is_screen) {
        status = top_screen(&top, interval);
    } else {
        status = show_often(&top, interval, times ? times : 1);
    }
    top_end(&top);
    return status;
}

/* --- metrics ---------------------------------------------------------------------------------- */

static void label_write(const char *text, size_t most) {
    char copy[64], shown[64];
    snprintf(copy, sizeof(copy), "%.*s", (int)most, text);
    for (const char *c = plain_copy(shown, sizeof(shown), copy); *c; c++) {
        printf("%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
    }
}

typedef struct metric_t {
    const char *name, *help;
    uint64_t (*value)(const top_row_t *row);
    bool is_counter;
} metric_t;

static uint64_t live(const top_row_t *row) {
    return row->object.live;
}
static uint64_t live_count(const top_row_t *row) {
    return row->object.live_count;
}
static uint64_t held(const top_row_t *row) {
    return row->object.held;
}
static uint64_t peak(const top_row_t *row) {
    return row->object.peak;
}
static uint64_t cached(const top_row_t *row) {
    return top_cached(&row->object);
}
static uint64_t away(const top_row_t *row) {
    return row->object.away;
}
static uint64_t spare(const top_row_t *row) {
    return row->has_pages ? row->spare : UMF_RECORD_UNKNOWN;
}
static uint64_t stale(const top_row_t *row) {
    return row->has_pages ? row->stale : UMF_RECORD_UNKNOWN;
}
static uint64_t moved(const top_row_t *row) {
    return row->has_pages ? row->moved : UMF_RECORD_UNKNOWN;
}
static uint64_t refusals(const top_row_t *row) {
    return row->refusals;
}

static const metric_t metrics[] = {
    {"umf_live_bytes", "Bytes that the program has allocated from a pool.", live, false},
    {"umf_live_allocations", "Allocations that the program has from a pool.", live_count, false},
    {"umf_held_bytes", "Bytes that a pool has from its provider, or a provider gave out.", held,
     false},
    {"umf_peak_bytes", "The most bytes that were held so far.", peak, false},
    {"umf_cached_bytes", "Bytes that a pool holds and the program does not use.", cached, false},
    {"umf_away_bytes", "Bytes without physical memory, because the pool is suspended.", away,
     false},
    {"umf_spare_bytes", "Bytes of the pages of an arena that are mapped nowhere.", spare, false},
    {"umf_stale_bytes", "Bytes of addresses of an arena whose page is mapped elsewhere, too.",
     stale, false},
    {"umf_moved_bytes", "Bytes of pages of an arena that were mapped elsewhere.", moved, true},
    {"umf_refusals",
     "Requests of a pool that its provider or its group refused, also if they were served after "
     "memory was reclaimed.",
     refusals, true},
};

/* The order of labels. Rows with the same labels are one sample, which has their sum. */
static const top_t *of_rows;

/* As they are written: two names of another process may be written alike. */
static int names_compare(const umf_record_object_t *a, const umf_record_object_t *b) {
    char name[sizeof(a->name) + 1], left[sizeof(name)], right[sizeof(name)];
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(a->name), a->name);
    plain_copy(left, sizeof(left), name);
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(b->name), b->name);
    return strcmp(left, plain_copy(right, sizeof(right), name));
}

static int labels_compare(const void *left, const void *right) {
    const top_row_t *a = *(const top_row_t *const *)left, *b = *(const top_row_t *const *)right;
    int order = strcmp(of_rows->with[a->process].name, of_rows->with[b->process].name);
    order = order ? order : (a->object.kind > b->object.kind) - (a->object.kind < b->object.kind);
    order = order ? order : names_compare(&a->object, &b->object);
    if (order == 0 && umfctl_words.each) {
        order = (a->process > b->process) - (a->process < b->process);
        order = order ? order : (a->number > b->number) - (a->number < b->number);
    }
    return order;
}

static void sample_write(const top_t *top, const metric_t *metric, const top_row_t *row,
                         uint64_t value) {
    const umf_record_object_t *object = &row->object;
    printf("%s%s{process=\"", metric->name, metric->is_counter ? "_total" : "");
    label_write(top->with[row->process].name, sizeof(top->with[0].name));
    printf("\",kind=\"%s\",name=\"", object->kind == UMF_RECORD_OBJECT_POOL ? "pool" : "provider");
    label_write(object->name, sizeof(object->name));
    if (umfctl_words.each) {
        printf("\",pid=\"%u\",number=\"%u", top->targets[row->process].pid, row->number);
    }
    printf("\"} %" PRIu64 "\n", value);
}

static void samples_write(const top_t *top, const metric_t *metric, const top_row_t **rows) {
    for (size_t i = 0, next; i < top->count; i = next) {
        uint64_t sum = UMF_RECORD_UNKNOWN;
        for (next = i; next < top->count && labels_compare(&rows[i], &rows[next]) == 0; next++) {
            uint64_t value = metric->value(rows[next]);
            if (value != UMF_RECORD_UNKNOWN) {
                sum = value + (sum == UMF_RECORD_UNKNOWN ? 0 : sum);
            }
        }
        if (sum != UMF_RECORD_UNKNOWN) {
            sample_write(top, metric, rows[i], sum);
        }
    }
}

/* As OpenMetrics has it, which Prometheus' older format reads as well. */
static bool metrics_write(const top_t *top) {
    const top_row_t **rows = calloc(top->count + 1, sizeof(*rows));
    if (!rows) {
        return false;
    }
    for (size_t i = 0; i < top->count; i++) {
        rows[i] = &top->rows[i];
    }
    of_rows = top;
    qsort(rows, top->count, sizeof(*rows), labels_compare);
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        const metric_t *metric = &metrics[i];
        printf("# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
               metric->is_counter ? "counter" : "gauge");
        samples_write(top, metric, rows);
    }
    printf("# EOF\n");
    free(rows);
    return true;
}

int umfctl_metrics(void) {
    static top_t top;
    uint32_t pid;
    if (!operand_pid(&pid)) {
        return 2;
    }
    bool is_open = top_begin(&top, pid);
    if (is_open && report_is_json()) {
        show(&top);
    } else if (is_open) {
        is_open = metrics_write(&top);
        if (!is_open) {
            print_message("there is no memory for the samples");
        } else if (top.note[0]) {
            print_message("%s", top.note);
        }
    } else {
        failed(top.note);
    }
    top_end(&top);
    return is_open ? 0 : 1;
}
