#include "top.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char top_head[] =
    "  POOL OR PROVIDER            LIVE     HELD     PEAK     AWAY  BLOCKS   GROWTH/s";

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* --- samples ---------------------------------------------------------------------------------- */

static top_row_t *row_add(top_t *top) {
    if (top->count % 256 == 0) {
        top_row_t *more = realloc(top->rows, (top->count + 256) * sizeof(*more));
        if (!more) {
            return NULL;
        }
        top->rows = more;
    }
    return &top->rows[top->count++];
}

/* Rows come in the order of processes and numbers, so the one before is seldom far. */
static const top_row_t *row_before(const top_t *top, const top_row_t *row, size_t *from) {
    for (size_t i = 0; i < top->before_count; i++) {
        size_t at = (*from + i) % top->before_count;
        const top_row_t *old = &top->before[at];
        if (old->process == row->process && top_is_same(&old->object, &row->object)) {
            *from = at + 1;
            return old;
        }
    }
    return NULL;
}

static void growth_set(const top_t *top, top_row_t *row, double seconds, size_t *from) {
    const top_row_t *old = row_before(top, row, from);
    row->has_growth = old && seconds > 0 && row->object.live != UMF_RECORD_UNKNOWN &&
                      old->object.live != UMF_RECORD_UNKNOWN;
    if (row->has_growth) {
        row->growth = ((double)row->object.live - (double)old->object.live) / seconds;
    }
}

static void process_rows(top_t *top, uint32_t process, const umf_reader_t *reader, double seconds,
                         size_t *from) {
    uint32_t count = umf_reader_info(reader)->object_count;
    for (uint32_t i = 1; i < count; i++) {
        const umf_record_object_t *object = umf_reader_object(reader, i);
        bool is_shown = object->kind && !(object->flags & UMF_RECORD_OBJECT_IS_GONE);
        top_row_t *row = is_shown ? row_add(top) : NULL;
        if (row) {
            *row = (top_row_t){.process = process, .number = i, .object = *object};
            growth_set(top, row, seconds, from);
        }
    }
}

static void process_sample(top_t *top, uint32_t process, double seconds, size_t *from) {
    attach_t *target = &top->targets[process];
    umf_reader_t *reader = target->fd != -1 ? attach_snapshot(target, UMF_ATTACH_FIGURES) : NULL;
    if (reader) {
        process_rows(top, process, reader, seconds, from);
        umf_reader_close(reader);
    } else if (target->fd != -1) {
        snprintf(top->note, sizeof(top->note), "%s", target->error);
        attach_close(target);
    }
}

static bool is_known(const top_t *top, uint32_t pid) {
    bool is = false;
    for (unsigned i = 0; i < top->target_count; i++) {
        is |= top->targets[i].pid == pid && top->targets[i].fd != -1;
    }
    return is;
}

static void target_add(top_t *top, uint32_t pid) {
    unsigned at = 0;
    while (at < top->target_count && top->targets[at].fd != -1) {
        at++;
    }
    if (at == TOP_PROCESSES || is_known(top, pid)) {
        return;
    }
    if (!attach_open(&top->targets[at], pid)) {
        snprintf(top->note, sizeof(top->note), "%s", top->targets[at].error);
    }
    attach_name(pid, top->names[at], sizeof(top->names[at]));
    top->target_count += at == top->target_count;
}

/* Those of other users are not asked: each would only say no. */
static void targets_find(top_t *top) {
    uint32_t pids[1024];
    unsigned count = attach_list(pids, 1024);
    char note[sizeof(top->note)];
    memcpy(note, top->note, sizeof(note));
    for (unsigned i = 0; i < count; i++) {
        target_add(top, pids[i]);
    }
    memcpy(top->note, note, sizeof(note));
}

static unsigned targets_open(const top_t *top) {
    unsigned count = 0;
    for (unsigned i = 0; i < top->target_count; i++) {
        count += top->targets[i].fd != -1;
    }
    return count;
}

bool top_sample(top_t *top) {
    size_t from = 0;
    if (top->pid == 0) {
        targets_find(top);
    }
    free(top->before);
    top->before = top->rows;
    top->before_count = top->count;
    top->rows = NULL;
    top->count = 0;
    double time = now(), seconds = top->time > 0 ? time - top->time : 0;
    top->time = time;
    for (uint32_t i = 0; i < top->target_count; i++) {
        process_sample(top, i, seconds, &from);
    }
    top_sort(top);
    return targets_open(top) > 0;
}

bool top_begin(top_t *top, uint32_t pid) {
    *top = (top_t){.pid = pid};
    for (unsigned i = 0; i < TOP_PROCESSES; i++) {
        top->targets[i].fd = -1;
    }
    if (pid != 0) {
        target_add(top, pid);
    }
    if (top_sample(top)) {
        return true;
    }
    if (!top->note[0]) {
        snprintf(top->note, sizeof(top->note), "no process of this user has pools of libumf");
    }
    return false;
}

void top_end(top_t *top) {
    for (unsigned i = 0; i < top->target_count; i++) {
        attach_close(&top->targets[i]);
    }
    free(top->rows);
    free(top->before);
}

/* --- order ------------------------------------------------------------------------------------ */

static top_key_t sort_key;

static double known(uint64_t number) {
    return number == UMF_RECORD_UNKNOWN ? -1 : (double)number;
}

static double value_of(const top_row_t *row) {
    switch (sort_key) {
    case TOP_LIVE:
        return known(row->object.live);
    case TOP_PEAK:
        return known(row->object.peak);
    case TOP_AWAY:
        return known(row->object.away);
    case TOP_GROWTH:
        return row->has_growth ? row->growth : -INFINITY;
    default:
        return known(row->object.held);
    }
}

/* The same object keeps its place among equals. */
static int compare(const void *left, const void *right) {
    const top_row_t *a = left, *b = right;
    int order = a->process < b->process ? -1 : a->process > b->process;
    if (order == 0 && sort_key == TOP_NAME) {
        order = strncmp(a->object.name, b->object.name, sizeof(a->object.name));
    } else if (order == 0) {
        double first = value_of(a), second = value_of(b);
        order = (first < second) - (first > second);
    }
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

void top_sort(top_t *top) {
    sort_key = top->key;
    if (top->count > 0) {
        qsort(top->rows, top->count, sizeof(*top->rows), compare);
    }
}

/* --- words ------------------------------------------------------------------------------------ */

/* Seven columns at most. */
const char *top_bytes(uint64_t bytes, char *text, size_t size) {
    static const char units[] = "BKMGTP";
    unsigned unit = 0;
    double value = (double)bytes;
    for (; value >= 1024 && unit < 5; unit++) {
        value /= 1024;
    }
    if (bytes == UMF_RECORD_UNKNOWN) {
        snprintf(text, size, "-");
    } else {
        snprintf(text, size, "%.*f%c", unit == 0 || value >= 100 ? 0 : 1, value, units[unit]);
    }
    return text;
}

static const char *growth_text(const top_row_t *row, char *text, size_t size) {
    char bytes[16];
    if (!row->has_growth) {
        snprintf(text, size, "-");
    } else {
        double growth = row->growth;
        const char *sign = growth > 0 ? "+" : growth < 0 ? "-" : "";
        top_bytes((uint64_t)fabs(growth), bytes, sizeof(bytes));
        snprintf(text, size, "%s%s", sign, bytes);
    }
    return text;
}

static const char *count_text(uint64_t count, char *text, size_t size) {
    if (count == UMF_RECORD_UNKNOWN) {
        snprintf(text, size, "-");
    } else if (count < 1000000) {
        snprintf(text, size, "%" PRIu64, count);
    } else {
        snprintf(text, size, "%.1fM", (double)count / 1e6);
    }
    return text;
}

/* The name is the other process's, for a terminal. */
const char *top_label(const top_t *top, const top_row_t *row, char *text, size_t size) {
    char name[sizeof(row->object.name) + 1];
    (void)top;
    memcpy(name, row->object.name, sizeof(row->object.name));
    name[sizeof(row->object.name)] = '\0';
    for (char *c = name; *c; c++) {
        *c = (unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f ? '?' : *c;
    }
    snprintf(text, size, "%s #%u", name[0] ? name : "nameless", row->number);
    return text;
}

void top_line(const top_t *top, const top_row_t *row, char line[TOP_LINE]) {
    char label[64], live[16], held[16], peak[16], away[16], count[16], growth[24];
    bool is_pool = row->object.kind == UMF_RECORD_OBJECT_POOL;
    snprintf(line, TOP_LINE, "%s%-*.*s %8.8s %8.8s %8.8s %8.8s %7.7s %10.10s",
             is_pool ? "  " : "    ", is_pool ? 23 : 21, is_pool ? 23 : 21,
             top_label(top, row, label, sizeof(label)),
             top_bytes(row->object.live, live, sizeof(live)),
             top_bytes(row->object.held, held, sizeof(held)),
             top_bytes(row->object.peak, peak, sizeof(peak)),
             row->object.away ? top_bytes(row->object.away, away, sizeof(away)) : "",
             count_text(row->object.live_count, count, sizeof(count)),
             growth_text(row, growth, sizeof(growth)));
}

top_sum_t top_sum(const top_t *top, uint32_t process) {
    top_sum_t sum = {0};
    for (size_t i = 0; i < top->count; i++) {
        const umf_record_object_t *object = &top->rows[i].object;
        if (top->rows[i].process == process && object->kind == UMF_RECORD_OBJECT_POOL) {
            sum.pools++;
            sum.live += object->live == UMF_RECORD_UNKNOWN ? 0 : object->live;
            sum.held += object->held == UMF_RECORD_UNKNOWN ? 0 : object->held;
            sum.away += object->away;
        }
    }
    return sum;
}
