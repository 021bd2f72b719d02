/* umfctl leaks: what lives, by the place that allocated it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"
#include "report.h"
#include "umfctl.h"

#define GROUPS_SHOWN 50

/* What lives of one pool and stack. */
typedef struct group_t {
    uint32_t object, stack;
    uint64_t bytes, count;
    int64_t oldest, newest;
} group_t;

typedef struct leaks_t {
    umf_reader_t *reader;
    group_t *groups;
    size_t count, room;
    int64_t now;
} leaks_t;

/* --- what lives ------------------------------------------------------------------------------- */

static bool keep(leaks_t *leaks, const umf_reader_live_t *live) {
    if (leaks->count == leaks->room) {
        leaks->room = leaks->room ? 2 * leaks->room : 1024;
        group_t *more = realloc(leaks->groups, leaks->room * sizeof(*more));
        leaks->groups = more ? more : leaks->groups;
        if (!more) {
            return false;
        }
    }
    leaks->groups[leaks->count++] =
        (group_t){live->object, live->stack, live->size, 1, live->ns, live->ns};
    return true;
}

/* A pool that was destroyed has freed all that lived in it. */
static bool is_gone(const leaks_t *leaks, uint32_t object) {
    return umf_reader_object(leaks->reader, object)->flags & UMF_RECORD_OBJECT_IS_GONE;
}

static bool keep_table(leaks_t *leaks) {
    size_t count;
    const umf_reader_live_t *live = umf_reader_live(leaks->reader, &count);
    for (size_t i = 0; i < count; i++) {
        if (!is_gone(leaks, live[i].object) && !keep(leaks, &live[i])) {
            return false;
        }
    }
    return true;
}

static bool keep_replayed(leaks_t *leaks, const umf_reader_replay_t *replay) {
    const umf_reader_live_t *live;
    for (size_t at = 0; (live = umf_reader_replay_next(replay, &at)) != NULL;) {
        if (!is_gone(leaks, live->object) && !keep(leaks, live)) {
            return false;
        }
    }
    return true;
}

static bool replay_all(leaks_t *leaks, umf_reader_error_t *error) {
    umf_reader_replay_t *replay = umf_reader_replay_begin(leaks->reader, error);
    bool is_done = replay && umf_reader_replay_run(replay, INT64_MAX, error);
    if (is_done && !keep_replayed(leaks, replay)) {
        snprintf(error->text, sizeof(error->text), "%s: there is no memory for what lives",
                 umf_reader_info(leaks->reader)->name);
        is_done = false;
    }
    umf_reader_replay_free(replay);
    return is_done;
}

/* --- groups ----------------------------------------------------------------------------------- */

static int by_place(const void *left, const void *right) {
    const group_t *a = left, *b = right;
    if (a->object != b->object) {
        return a->object < b->object ? -1 : 1;
    }
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static int by_age(const void *left, const void *right) {
    const group_t *a = left, *b = right;
    if (a->oldest != b->oldest) {
        return a->oldest < b->oldest ? -1 : 1;
    }
    return by_place(left, right);
}

static int by_size(const void *left, const void *right) {
    const group_t *a = left, *b = right;
    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    return by_age(left, right);
}

static void add_group(group_t *to, const group_t *from) {
    to->bytes += from->bytes;
    to->count += from->count;
    to->oldest = from->oldest < to->oldest ? from->oldest : to->oldest;
    to->newest = from->newest > to->newest ? from->newest : to->newest;
}

static void make_groups(leaks_t *leaks) {
    if (leaks->count == 0) {
        return;
    }
    size_t kept = 0;
    qsort(leaks->groups, leaks->count, sizeof(*leaks->groups), by_place);
    for (size_t i = 1; i < leaks->count; i++) {
        if (by_place(&leaks->groups[kept], &leaks->groups[i]) == 0) {
            add_group(&leaks->groups[kept], &leaks->groups[i]);
        } else {
            leaks->groups[++kept] = leaks->groups[i];
        }
    }
    leaks->count = kept + 1;
    qsort(leaks->groups, leaks->count, sizeof(*leaks->groups),
          umfctl_words.largest ? by_size : by_age);
}

/* --- output ----------------------------------------------------------------------------------- */

static void group_as_members(const leaks_t *leaks, const group_t *group, size_t index) {
    char name[32], label[RECORD_LABEL], stack[RECORD_STACK];
    const report_member_t members[] = {
        {"bytes", {.unit = REPORT_BYTES, .number = group->bytes}},
        {"count", {.unit = REPORT_NUMBER, .number = group->count}},
        {"oldest_age_ns",
         {.unit = REPORT_NUMBER, .number = (uint64_t)(leaks->now - group->oldest)}},
        {"newest_age_ns",
         {.unit = REPORT_NUMBER, .number = (uint64_t)(leaks->now - group->newest)}},
        {"pool",
         {.unit = REPORT_TEXT,
          .text = umf_reader_label(leaks->reader, group->object, label, sizeof(label))}},
        {"stack",
         {.unit = REPORT_LINES,
          .text = record_stack(leaks->reader, group->stack, stack, sizeof(stack))}},
    };
    snprintf(name, sizeof(name), "%zu", index + 1);
    report_members(name, members, sizeof(members) / sizeof(members[0]));
}

static void group_as_lines(const leaks_t *leaks, const group_t *group) {
    char line[256], bytes[32], count[32], label[RECORD_LABEL], oldest[32], newest[64] = "";
    if (group->newest != group->oldest) {
        char age[32];
        snprintf(newest, sizeof(newest), " to %s",
                 record_time(leaks->now - group->newest, age, sizeof(age)));
    }
    snprintf(line, sizeof(line), "    %10s  %s, %.20s, %s%s old",
             report_bytes_text(group->bytes, bytes, sizeof(bytes)),
             record_allocations(group->count, count, sizeof(count)),
             umf_reader_label(leaks->reader, group->object, label, sizeof(label)),
             record_time(leaks->now - group->oldest, oldest, sizeof(oldest)), newest);
    line[80] = '\0';
    report_line(line);
    record_print_stack(leaks->reader, group->stack);
}

static void show_groups(const leaks_t *leaks) {
    bool all = report_is_json() || leaks->count <= GROUPS_SHOWN;
    report_section("leaks",
                   umfctl_words.largest ? "What lives, the largest first"
                                        : "What lives, the oldest first",
                   12);
    for (size_t i = 0; i < (all ? leaks->count : GROUPS_SHOWN); i++) {
        if (report_is_json()) {
            group_as_members(leaks, &leaks->groups[i], i);
        } else {
            group_as_lines(leaks, &leaks->groups[i]);
        }
    }
    if (!all) {
        char line[80];
        snprintf(line, sizeof(line), "    and %zu other places; --json has all",
                 leaks->count - GROUPS_SHOWN);
        report_line(line);
    }
}

static void show_total(const leaks_t *leaks, bool is_replayed) {
    const umf_reader_info_t *info = umf_reader_info(leaks->reader);
    uint64_t bytes = 0, count = 0;
    for (size_t i = 0; i < leaks->count; i++) {
        bytes += leaks->groups[i].bytes;
        count += leaks->groups[i].count;
    }
    report_section("total", "In total", 12);
    report_row(
        &(report_row_t){.name = "lives",
                        .state = count ? REPORT_WARNING : REPORT_OK,
                        .value = {.unit = REPORT_BYTES, .number = bytes},
                        .note = count && info->kind == UMF_RECORD_FILE_RECORDING &&
                                        !(info->flags & UMF_RECORD_HAS_ENDED)
                                    ? "the recording has not ended: some of it may be freed yet"
                                    : NULL});
    report_number("allocations", count);
    if (is_replayed && info->kind == UMF_RECORD_FILE_SNAPSHOT) {
        report_text("source", "the snapshot does not say what lives: it was taken without a "
                              "recording with leaks");
    } else if (is_replayed && info->dropped) {
        report_row(&(report_row_t){
            .name = "source",
            .state = REPORT_WARNING,
            .value = {.unit = REPORT_TEXT, .text = "the events"},
            .note = "the oldest of them are lost, and what was allocated then is missing here; "
                    "record with leaks to know all"});
    } else {
        report_text("source", is_replayed ? "the events" : "the table of what lives");
    }
}

static void find_now(leaks_t *leaks) {
    leaks->now = umf_reader_info(leaks->reader)->last_ns;
    for (size_t i = 0; i < leaks->count; i++) {
        leaks->now = leaks->groups[i].newest > leaks->now ? leaks->groups[i].newest : leaks->now;
    }
}

static int show(leaks_t *leaks) {
    umf_reader_error_t error = {"there is no memory for what lives"};
    bool has_table = umf_reader_info(leaks->reader)->flags & UMF_RECORD_HAS_LIVE;
    if (has_table ? !keep_table(leaks) : !replay_all(leaks, &error)) {
        return record_failed(&error);
    }
    make_groups(leaks);
    find_now(leaks);
    record_describe(leaks->reader, "file", "File");
    show_total(leaks, !has_table);
    show_groups(leaks);
    return umfctl_words.fail && leaks->count > 0;
}

int umfctl_leaks(void) {
    leaks_t leaks = {.reader = record_open(umfctl_words.operands[0])};
    if (!leaks.reader) {
        return 1;
    }
    int status = show(&leaks);
    umf_reader_close(leaks.reader);
    free(leaks.groups);
    return status;
}
