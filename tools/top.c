#include "top.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "plain.h"
#include "start.h"
#include "umfctl.h"

/* How long a process may take: one that was named, and those that were found, all together. */
#define NAMED_MS 15000
#define VIEW_MS 5000
#define FOUND_MS 1000
#define LIST_MS 2000

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
            *row = (top_row_t){
                .process = process, .number = i, .object = *object, .refusals = UMF_RECORD_UNKNOWN};
            growth_set(top, row, seconds, from);
        }
    }
}

static void view_copy(top_row_t *row, const umf_view_row_t *from) {
    memcpy(row->kind, from->kind, sizeof(row->kind));
    row->has_pages = from->has_pages;
    row->spare = from->spare;
    row->stale = from->stale;
    row->moved = from->moved;
    row->refusals = from->refusals;
}

static void view_rows(top_t *top, uint32_t process, const umf_view_rows_t *rows, double seconds,
                      size_t *from) {
    for (uint32_t i = 0; i < rows->count; i++) {
        bool is_gone = rows->rows[i].object.flags & UMF_RECORD_OBJECT_IS_GONE;
        top_row_t *row = is_gone ? NULL : row_add(top);
        if (row) {
            *row = (top_row_t){.process = process, .number = i + 1, .object = rows->rows[i].object};
            view_copy(row, &rows->rows[i]);
            growth_set(top, row, seconds, from);
        }
    }
}

/* Figures that a process with an attach socket does not send. */
static void view_complete(top_t *top, uint32_t process, const umf_view_rows_t *rows) {
    for (size_t i = 0; i < top->count; i++) {
        top_row_t *row = &top->rows[i];
        for (uint32_t at = 0; row->process == process && at < rows->count; at++) {
            if (rows->rows[at].object.kind == row->object.kind &&
                top_is_same(&rows->rows[at].object, &row->object)) {
                view_copy(row, &rows->rows[at]);
            }
        }
    }
}

static void note_set(top_t *top, const char *text) {
    snprintf(top->note, sizeof(top->note), "%s", text);
}

/* Another process may have got the number meanwhile: its name is read again. */
static void view_take(top_t *top, uint32_t process, double seconds, size_t *from) {
    static umf_view_rows_t rows;
    uint32_t pid = top->targets[process].pid;
    bool is_read = umf_view_end(&top->with[process].view, pid, &rows);
    top->with[process].has_view = false;
    if (!top->with[process].is_viewed) {
        if (is_read) {
            view_complete(top, process, &rows);
        }
    } else if (is_read) {
        view_rows(top, process, &rows, seconds, from);
        if (rows.is_cut || rows.is_out) {
            snprintf(top->note, sizeof(top->note), "process %u has more than could be read%s", pid,
                     rows.is_out ? " in time" : "");
        }
    } else {
        note_set(top, rows.error);
        top->with[process].is_viewed = false;
    }
}

static void answer_take(top_t *top, uint32_t process, double seconds, size_t *from) {
    attach_t *target = &top->targets[process];
    umf_reader_t *reader = attach_snapshot_take(target);
    top->with[process].is_asked = false;
    if (reader) {
        process_rows(top, process, reader, seconds, from);
        umf_reader_close(reader);
    } else {
        note_set(top, target->error);
        attach_close(target);
    }
}

/* Requests are sent to all processes, and then waited for together, so one without an answer does
 * not delay the others. */
static void all_ask(top_t *top, unsigned ms) {
    for (uint32_t i = 0; i < top->target_count; i++) {
        attach_t *target = &top->targets[i];
        if (top_is_open(top, i)) {
            top->with[i].view = umf_view_begin(target->pid, ms < VIEW_MS ? ms : VIEW_MS);
            top->with[i].has_view = true;
        }
        if (!top->with[i].is_viewed && target->fd != -1 && !top->with[i].is_asked) {
            top->with[i].is_asked = attach_snapshot_ask(target, UMF_ATTACH_FIGURES);
            if (!top->with[i].is_asked) {
                note_set(top, target->error);
                attach_close(target);
            }
        }
    }
}

/* Returns how many connections can be read now, or -1. */
static int answers_wait(const top_t *top, struct pollfd *waits, unsigned *count, double seconds) {
    *count = 0;
    for (uint32_t i = 0; i < top->target_count; i++) {
        if (top->targets[i].fd != -1 && top->with[i].is_asked) {
            waits[i] = (struct pollfd){.fd = top->targets[i].fd, .events = POLLIN};
            *count += 1;
        } else {
            waits[i] = (struct pollfd){.fd = -1};
        }
    }
    return *count == 0 ? 0
                       : poll(waits, top->target_count, seconds > 0 ? (int)(seconds * 1000) : 0);
}

static void all_take(top_t *top, double end, double seconds, size_t *from) {
    struct pollfd waits[TOP_PROCESSES];
    unsigned left = 1;
    while (left > 0) {
        double rest = end - now();
        int ready = answers_wait(top, waits, &left, rest);
        for (uint32_t i = 0; i < top->target_count && ready > 0; i++) {
            if (waits[i].fd != -1 && waits[i].revents) {
                answer_take(top, i, seconds, from);
            }
        }
        if (rest <= 0 && left > 0 && ready <= 0) {
            snprintf(top->note, sizeof(top->note),
                     top->pid ? "process %u does not answer; is it stopped?"
                              : "%u processes do not answer in time",
                     top->pid ? top->pid : left);
            return;
        }
    }
}

static bool is_known(const top_t *top, uint32_t pid) {
    bool is = false;
    for (unsigned i = 0; i < top->target_count; i++) {
        is |= top->targets[i].pid == pid && top_is_open(top, i);
    }
    return is;
}

/* A process of no attach socket is looked at all the same. */
static void target_add(top_t *top, uint32_t pid) {
    unsigned at = 0;
    if (top->is_started && !start_is_below(pid)) {
        return;
    }
    char name[32];
    while (at < top->target_count && top_is_open(top, at)) {
        at++;
    }
    if (at == TOP_PROCESSES || is_known(top, pid)) {
        return;
    }
    attach_t *target = &top->targets[at];
    bool is_open = top->pid ? attach_open(target, pid) : attach_open_soon(target, pid);
    top->with[at] = (top_target_t){.is_viewed = !is_open && target->may_view};
    if (!is_open && !target->may_view) {
        note_set(top, target->error);
    }
    plain_copy(top->with[at].name, sizeof(top->with[at].name),
               attach_name(pid, name, sizeof(name)));
    top->target_count += at == top->target_count;
}

/* It has an attach socket by now. */
static void view_give_up(top_t *top, uint32_t pid) {
    for (unsigned i = 0; i < top->target_count; i++) {
        top->with[i].is_viewed &= top->targets[i].pid != pid;
    }
}

/* Processes of other users get no request: each would refuse. All processes are looked through now
 * and then, for those without an attach socket. */
static void targets_find(top_t *top) {
    static uint32_t pids[8192];
    char note[sizeof(top->note)];
    memcpy(note, top->note, sizeof(note));
    unsigned count = attach_list(pids, 4096);
    for (unsigned i = 0; i < count; i++) {
        view_give_up(top, pids[i]);
        target_add(top, pids[i]);
    }
    count = top->samples % 8 == 0 && !top->is_started ? (unsigned)umf_view_list(pids, 8192, LIST_MS)
                                                      : 0;
    for (unsigned i = 0; i < count; i++) {
        target_add(top, pids[i]);
    }
    memcpy(top->note, note, sizeof(note));
}

static unsigned targets_open(const top_t *top) {
    unsigned count = 0;
    for (unsigned i = 0; i < top->target_count; i++) {
        count += top_is_open(top, i);
    }
    return count;
}

bool top_sample(top_t *top) {
    size_t from = 0;
    if (top->pid == 0) {
        targets_find(top);
    }
    top->samples++;
    free(top->before);
    top->before = top->rows;
    top->before_count = top->count;
    top->rows = NULL;
    top->count = 0;
    double time = now(), seconds = top->time > 0 ? time - top->time : 0;
    unsigned ms = top->pid ? NAMED_MS : FOUND_MS;
    top->time = time;
    all_ask(top, ms);
    all_take(top, time + ms / 1e3, seconds, &from);
    for (uint32_t i = 0; i < top->target_count; i++) {
        if (top->with[i].has_view) {
            view_take(top, i, seconds, &from);
        }
    }
    top_sort(top);
    return top->is_started ? start_runs() : targets_open(top) > 0;
}

void top_init(top_t *top, uint32_t pid) {
    *top = (top_t){.pid = pid, .is_started = umfctl_words.program != NULL};
    for (unsigned i = 0; i < TOP_PROCESSES; i++) {
        top->targets[i].fd = -1;
    }
}

bool top_begin(top_t *top, uint32_t pid) {
    top_init(top, pid);
    if (pid != 0) {
        target_add(top, pid);
    }
    bool is_left = top_sample(top);
    if (is_left && (top->count > 0 || (pid != 0 && !top->note[0]))) {
        return true;
    }
    if (!top->note[0]) {
        note_set(top, "no process of this user has pools of libumf");
    }
    return false;
}

const char *top_view_text(const top_t *top, uint32_t process, char *text, size_t size) {
    snprintf(text, size,
             "Process %u has no attach socket: this is read from its memory. Blocks, stacks, "
             "recordings, "
             "trim and suspend need one: 'umfctl top -- PROGRAM', or UMF_RECORD_ATTACH=yes.",
             top->targets[process].pid);
    return text;
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
    char name[sizeof(row->object.name) + 1], shown[sizeof(name)], kind[sizeof(row->kind) + 1];
    (void)top;
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(row->object.name), row->object.name);
    plain_copy(shown, sizeof(shown), name[0] ? name : "nameless");
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(row->kind), row->kind);
    plain_copy(kind, sizeof(kind), name);
    bool has_kind = kind[0] && strcasecmp(kind, shown) != 0;
    snprintf(text, size, "%s%s%s #%u", shown, has_kind ? " " : "", has_kind ? kind : "",
             row->number);
    return text;
}

uint64_t top_cached(const umf_record_object_t *object) {
    return object->kind == UMF_RECORD_OBJECT_POOL && object->held != UMF_RECORD_UNKNOWN &&
                   object->live <= object->held
               ? object->held - object->live
               : UMF_RECORD_UNKNOWN;
}

static void sum_add(uint64_t *sum, uint64_t more) {
    *sum =
        more == UMF_RECORD_UNKNOWN || *sum == UMF_RECORD_UNKNOWN ? UMF_RECORD_UNKNOWN : *sum + more;
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

bool top_pages(const top_row_t *row, char line[TOP_LINE]) {
    char spare[16], stale[16], moved[16];
    if (row->has_pages) {
        snprintf(line, TOP_LINE, "    pages: %.12s spare, %.12s stale, %.12s moved so far",
                 top_bytes(row->spare, spare, sizeof(spare)),
                 top_bytes(row->stale, stale, sizeof(stale)),
                 top_bytes(row->moved, moved, sizeof(moved)));
    }
    return row->has_pages;
}

top_sum_t top_sum(const top_t *top, uint32_t process) {
    top_sum_t sum = {0};
    for (size_t i = 0; i < top->count; i++) {
        const umf_record_object_t *object = &top->rows[i].object;
        if (top->rows[i].process == process && object->kind == UMF_RECORD_OBJECT_POOL) {
            sum.pools++;
            sum_add(&sum.live, object->live);
            sum_add(&sum.held, object->held);
            sum.away += object->away == UMF_RECORD_UNKNOWN ? 0 : object->away;
        }
    }
    return sum;
}
