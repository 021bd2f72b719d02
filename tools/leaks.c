/* umfctl leaks: live allocations, by the place that made them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "groups.h"
#include "record.h"
#include "report.h"
#include "suppress.h"
#include "umfctl.h"

#define GROUPS_SHOWN 50

typedef struct leaks_t {
    umf_reader_t *reader;
    groups_t groups;
    groups_t ended;      /* of destroyed pools */
    group_t ended_total; /* with those without a stack */
    uint64_t ended_lost; /* allocations without a stack */
    group_t suppressed;  /* sum of the groups that were left out */
    int64_t now;
} leaks_t;

/* --- order ------------------------------------------------------------------------------------ */

static int by_age(const void *left, const void *right) {
    const group_t *a = left, *b = right;
    if (a->oldest != b->oldest) {
        return a->oldest < b->oldest ? -1 : 1;
    }
    return groups_by_place(left, right);
}

static int by_size(const void *left, const void *right) {
    const group_t *a = left, *b = right;
    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    return by_age(left, right);
}

/* --- output ----------------------------------------------------------------------------------- */

static void group_as_members(const leaks_t *leaks, const group_t *group) {
    char label[RECORD_LABEL], stack[RECORD_STACK];
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
    report_item(members, sizeof(members) / sizeof(members[0]));
}

static void group_as_lines(const leaks_t *leaks, const group_t *group) {
    char line[256], bytes[32], count[32], label[RECORD_LABEL], oldest[32], newest[64] = "";
    if (group->newest != group->oldest) {
        char age[32];
        snprintf(newest, sizeof(newest), " to %s",
                 report_time_text(leaks->now - group->newest, age, sizeof(age)));
    }
    snprintf(line, sizeof(line), "    %10s  %s, %.20s, %s%s old",
             report_bytes_text(group->bytes, bytes, sizeof(bytes)),
             record_allocations(group->count, count, sizeof(count)),
             umf_reader_label(leaks->reader, group->object, label, sizeof(label)),
             report_time_text(leaks->now - group->oldest, oldest, sizeof(oldest)), newest);
    line[80] = '\0';
    report_line(line);
    record_print_stack(leaks->reader, group->stack);
}

static void show_groups(const leaks_t *leaks) {
    bool all = report_is_json() || leaks->groups.count <= GROUPS_SHOWN;
    report_list("leaks", umfctl_words.largest ? "Live allocations, the largest first"
                                              : "Live allocations, the oldest first");
    for (size_t i = 0; i < (all ? leaks->groups.count : GROUPS_SHOWN); i++) {
        if (report_is_json()) {
            group_as_members(leaks, &leaks->groups.items[i]);
        } else {
            group_as_lines(leaks, &leaks->groups.items[i]);
        }
    }
    if (!all) {
        char line[80];
        snprintf(line, sizeof(line), "    and %zu other places; --json has all",
                 leaks->groups.count - GROUPS_SHOWN);
        report_line(line);
    }
}

static const char *pool_text(const leaks_t *leaks, const group_t *group, char *text) {
    return umf_reader_label(leaks->reader, group->object, text, RECORD_LABEL);
}

static void ended_as_members(const leaks_t *leaks, const group_t *group) {
    char label[RECORD_LABEL], stack[RECORD_STACK];
    const report_member_t members[] = {
        {"bytes", {.unit = REPORT_BYTES, .number = group->bytes}},
        {"count", {.unit = REPORT_NUMBER, .number = group->count}},
        {"pool", {.unit = REPORT_TEXT, .text = pool_text(leaks, group, label)}},
        {"stack",
         {.unit = REPORT_LINES,
          .text = record_stack(leaks->reader, group->stack, stack, sizeof(stack))}},
    };
    report_item(members, sizeof(members) / sizeof(members[0]));
}

static void ended_as_lines(const leaks_t *leaks, const group_t *group) {
    char line[256], bytes[32], count[32], label[RECORD_LABEL];
    snprintf(line, sizeof(line), "    %10s  %s, when pool %.24s was destroyed",
             report_bytes_text(group->bytes, bytes, sizeof(bytes)),
             record_allocations(group->count, count, sizeof(count)),
             pool_text(leaks, group, label));
    line[80] = '\0';
    report_line(line);
    record_print_stack(leaks->reader, group->stack);
}

/* Allocations that lived when their pool was destroyed; nothing if there are none. */
static void show_ended(const leaks_t *leaks) {
    bool all = report_is_json() || leaks->ended.count <= GROUPS_SHOWN;
    char line[128];
    if (leaks->ended_total.count == 0) {
        return;
    }
    report_list("destroyed", "Allocations of destroyed pools, the largest first");
    for (size_t i = 0; i < (all ? leaks->ended.count : GROUPS_SHOWN); i++) {
        if (report_is_json()) {
            ended_as_members(leaks, &leaks->ended.items[i]);
        } else {
            ended_as_lines(leaks, &leaks->ended.items[i]);
        }
    }
    if (!all) {
        snprintf(line, sizeof(line), "    and %zu other places; --json has all",
                 leaks->ended.count - GROUPS_SHOWN);
        report_line(line);
    }
    if (leaks->ended_lost) {
        snprintf(line, sizeof(line), "    and %" PRIu64 " allocations without a stack",
                 leaks->ended_lost);
        report_line(line);
    }
}

static void show_ended_total(const leaks_t *leaks) {
    const umf_reader_info_t *info = umf_reader_info(leaks->reader);
    if (info->kind != UMF_RECORD_FILE_RECORDING) {
        return;
    }
    bool is_incomplete = info->dropped && !(info->flags & UMF_RECORD_HAS_LIVE);
    report_row(&(report_row_t){
        .name = "destroyed",
        .state = leaks->ended_total.count && !umfctl_words.allow_destroyed ? REPORT_WARNING
                 : is_incomplete                                           ? REPORT_SKIPPED
                                                                           : REPORT_OK,
        .value = {.unit = REPORT_BYTES, .number = leaks->ended_total.bytes},
        .note = leaks->ended_total.count ? "lived when their pools were destroyed"
                : is_incomplete          ? "at least: the oldest events are lost"
                                         : NULL});
}

static void show_total(const leaks_t *leaks, bool is_replayed) {
    const umf_reader_info_t *info = umf_reader_info(leaks->reader);
    uint64_t bytes = 0, count = 0;
    for (size_t i = 0; i < leaks->groups.count; i++) {
        bytes += leaks->groups.items[i].bytes;
        count += leaks->groups.items[i].count;
    }
    report_section("total", "In total", 12);
    if (is_replayed && info->kind == UMF_RECORD_FILE_SNAPSHOT) {
        report_row(&(report_row_t){.name = "lives",
                                   .state = REPORT_SKIPPED,
                                   .note = "not known: the snapshot was taken without a recording "
                                           "with leaks"});
        return;
    }
    bool may_be_freed =
        info->kind == UMF_RECORD_FILE_RECORDING && !(info->flags & UMF_RECORD_HAS_ENDED);
    report_row(&(report_row_t){
        .name = "lives",
        .state = count ? REPORT_WARNING : REPORT_OK,
        .value = {.unit = REPORT_BYTES, .number = bytes},
        .note = count && may_be_freed ? "the recording has not ended: some of it may be freed yet"
                                      : NULL});
    report_number("allocations", count);
    if (umfctl_words.suppressions) {
        report_row(
            &(report_row_t){.name = "suppressed",
                            .value = {.unit = REPORT_BYTES, .number = leaks->suppressed.bytes},
                            .note = "in places that the suppressions name; they do not count"});
    }
    bool is_incomplete = is_replayed && info->dropped;
    report_row(&(report_row_t){
        .name = "source",
        .state = is_incomplete ? REPORT_WARNING : REPORT_FACT,
        .value = {.unit = REPORT_TEXT, .text = is_replayed ? "the events" : "the live table"},
        .note = is_incomplete
                    ? "the oldest of them are lost, and their allocations are missing here; "
                      "record with leaks for a complete list"
                    : NULL});
    show_ended_total(leaks);
}

/* Missing live allocations are no success. */
static bool is_unknown(const leaks_t *leaks) {
    const umf_reader_info_t *info = umf_reader_info(leaks->reader);
    return info->kind == UMF_RECORD_FILE_SNAPSHOT && !(info->flags & UMF_RECORD_HAS_LIVE);
}

static void find_now(leaks_t *leaks) {
    leaks->now = umf_reader_info(leaks->reader)->last_ns;
    for (size_t i = 0; i < leaks->groups.count; i++) {
        leaks->now =
            leaks->groups.items[i].newest > leaks->now ? leaks->groups.items[i].newest : leaks->now;
    }
}

static bool load_ended(leaks_t *leaks, umf_reader_error_t *error) {
    if (!groups_load_ended(&leaks->ended, &leaks->ended_total, leaks->reader, error)) {
        return false;
    }
    leaks->ended_lost = leaks->ended_total.count;
    return true;
}

static void sum_ended(leaks_t *leaks) {
    for (size_t i = 0; i < leaks->ended.count; i++) {
        leaks->ended_total.bytes += leaks->ended.items[i].bytes;
        leaks->ended_total.count += leaks->ended.items[i].count;
    }
    if (leaks->ended.count) {
        qsort(leaks->ended.items, leaks->ended.count, sizeof(group_t), by_size);
    }
}

static bool is_suppressed_frame(const umf_reader_frame_t *frame, const suppress_t *suppress) {
    const char *module = strrchr(frame->module, '/');
    const char *source = frame->source ? strrchr(frame->source, '/') : NULL;
    return (frame->function && suppress_has(suppress, frame->function)) ||
           suppress_has(suppress, module ? module + 1 : frame->module) ||
           (frame->source && suppress_has(suppress, source ? source + 1 : frame->source));
}

static bool is_suppressed(umf_reader_t *reader, uint32_t stack, const suppress_t *suppress) {
    const uint64_t *frames = NULL;
    size_t count = umf_reader_caller_stack(reader, stack, &frames);
    bool is = false;
    for (size_t i = 0; i < count && !is; i++) {
        const umf_reader_frame_t *all;
        size_t inlined = umf_reader_resolve_all(reader, frames[i], &all);
        for (size_t j = 0; j < inlined && !is; j++) {
            is = is_suppressed_frame(&all[j], suppress);
        }
    }
    return is;
}

static void leave_out(leaks_t *leaks, groups_t *groups, const suppress_t *suppress) {
    size_t kept = 0;
    for (size_t i = 0; i < groups->count; i++) {
        if (is_suppressed(leaks->reader, groups->items[i].stack, suppress)) {
            leaks->suppressed.bytes += groups->items[i].bytes;
            leaks->suppressed.count += groups->items[i].count;
        } else {
            groups->items[kept++] = groups->items[i];
        }
    }
    groups->count = kept;
}

static bool suppress_all(leaks_t *leaks) {
    suppress_t suppress;
    bool is_loaded = suppress_load(&suppress, umfctl_words.suppressions);
    if (is_loaded && suppress.count > 0) {
        leave_out(leaks, &leaks->groups, &suppress);
        leave_out(leaks, &leaks->ended, &suppress);
    }
    suppress_free(&suppress);
    return is_loaded;
}

static int status_of(const leaks_t *leaks) {
    bool has_leaks =
        leaks->groups.count > 0 || (leaks->ended_total.count > 0 && !umfctl_words.allow_destroyed);
    return is_unknown(leaks) ||
           (umfctl_words.fail && (has_leaks || !groups_are_complete(leaks->reader)));
}

static int show(leaks_t *leaks) {
    umf_reader_error_t error;
    bool has_table = (umf_reader_info(leaks->reader)->flags & UMF_RECORD_HAS_LIVE) &&
                     !umf_reader_has_times(leaks->reader);
    if (!groups_load(&leaks->groups, leaks->reader, &error) || !load_ended(leaks, &error)) {
        return record_failed(&error);
    }
    if (!suppress_all(leaks)) {
        return 1;
    }
    sum_ended(leaks);
    if (leaks->groups.count) {
        qsort(leaks->groups.items, leaks->groups.count, sizeof(group_t),
              umfctl_words.largest ? by_size : by_age);
    }
    find_now(leaks);
    record_describe(leaks->reader, "file", "File");
    show_total(leaks, !has_table);
    if (!is_unknown(leaks)) {
        show_groups(leaks);
    }
    show_ended(leaks);
    return status_of(leaks);
}

/* A file, or a process if there is no such file. */
static umf_reader_t *open_operand(const char *word) {
    uint32_t pid = attach_pid(word);
    return pid == 0 || access(word, F_OK) == 0 ? record_open(word)
                                               : record_select(attach_live(pid));
}

int umfctl_leaks(void) {
    leaks_t leaks = {.reader = open_operand(umfctl_words.operands[0])};
    if (!leaks.reader) {
        return 1;
    }
    int status = show(&leaks);
    record_close(leaks.reader);
    free(leaks.groups.items);
    free(leaks.ended.items);
    return status;
}
