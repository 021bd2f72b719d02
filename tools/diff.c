/* umfctl diff: what grew and shrank between two files, by pool and by place. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "groups.h"
#include "plain.h"
#include "record.h"
#include "report.h"
#include "umfctl.h"

#define SHOWN 20

/* Live allocations under a name, in both files. Names stand for pools and places, because numbers
 * and addresses differ between two files. */
typedef struct entry_t {
    char *name; /* lines: the pool, and the frames */
    uint64_t bytes[2], count[2];
} entry_t;

typedef struct list_t {
    entry_t *entries;
    size_t count, room;
} list_t;

typedef struct diff_t {
    umf_reader_t *readers[2];
    list_t pools, places;
} diff_t;

/* --- lists ------------------------------------------------------------------------------------ */

static bool keep(list_t *list, const char *name, size_t side, uint64_t bytes, uint64_t count) {
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        entry_t *more = realloc(list->entries, list->room * sizeof(*more));
        list->entries = more ? more : list->entries;
        if (!more) {
            return false;
        }
    }
    entry_t *entry = &list->entries[list->count];
    *entry = (entry_t){.name = strdup(name)};
    entry->bytes[side] = bytes;
    entry->count[side] = count;
    list->count += entry->name != NULL;
    return entry->name != NULL;
}

static int by_name(const void *left, const void *right) {
    return strcmp(((const entry_t *)left)->name, ((const entry_t *)right)->name);
}

static uint64_t change_of(const entry_t *entry) {
    return entry->bytes[1] > entry->bytes[0] ? entry->bytes[1] - entry->bytes[0]
                                             : entry->bytes[0] - entry->bytes[1];
}

static int by_change(const void *left, const void *right) {
    uint64_t a = change_of(left), b = change_of(right);
    return a != b ? (a > b ? -1 : 1) : by_name(left, right);
}

/* One entry for each name, the largest change first. */
static void join(list_t *list) {
    size_t kept = 0;
    if (list->count == 0) {
        return;
    }
    qsort(list->entries, list->count, sizeof(*list->entries), by_name);
    for (size_t i = 1; i < list->count; i++) {
        entry_t *last = &list->entries[kept], *entry = &list->entries[i];
        if (strcmp(last->name, entry->name) != 0) {
            list->entries[++kept] = *entry;
            continue;
        }
        for (size_t side = 0; side < 2; side++) {
            last->bytes[side] += entry->bytes[side];
            last->count[side] += entry->count[side];
        }
        free(entry->name);
    }
    list->count = kept + 1;
    qsort(list->entries, list->count, sizeof(*list->entries), by_change);
}

static void free_list(list_t *list) {
    for (size_t i = 0; i < list->count; i++) {
        free(list->entries[i].name);
    }
    free(list->entries);
}

/* --- content of a file ------------------------------------------------------------------------ */

/* Offsets in functions change when the program is built anew; its functions do so less often. */
static void strip_offsets(char *text) {
    for (char *at = text; (at = strstr(at, "+0x")) != NULL;) {
        size_t length = 3 + strspn(at + 3, "0123456789abcdef");
        if (at[length] == ' ') {
            memmove(at, at + length, strlen(at + length) + 1);
        } else {
            at += length;
        }
    }
}

/* Likewise lines: " at file.c:12" in front of the module. */
static void strip_lines(char *text) {
    for (char *at = text; (at = strstr(at, " at ")) != NULL;) {
        size_t length = 4 + strcspn(at + 4, " \n"), digits = length;
        while (digits > 4 && at[digits - 1] >= '0' && at[digits - 1] <= '9') {
            digits--;
        }
        bool is_line = digits < length && at[digits - 1] == ':' && at[length] == ' ';
        if (is_line) {
            memmove(at, at + length, strlen(at + length) + 1);
        } else {
            at += 4;
        }
    }
}

static bool take_place(diff_t *diff, size_t side, const group_t *group) {
    char stack[RECORD_STACK], name[RECORD_STACK + RECORD_LABEL];
    umf_reader_t *reader = diff->readers[side];
    record_stack(reader, group->stack, stack, sizeof(stack));
    strip_offsets(stack);
    strip_lines(stack);
    snprintf(name, sizeof(name), "%s\n%s", umf_reader_object(reader, group->object)->name, stack);
    return keep(&diff->places, name, side, group->bytes, group->count);
}

/* A snapshot has the bytes in use of a pool, also without a list of its blocks. */
static bool take_pool(diff_t *diff, size_t side, uint32_t number, group_t sum) {
    const umf_record_object_t *object = umf_reader_object(diff->readers[side], number);
    bool is_snapshot = umf_reader_info(diff->readers[side])->kind == UMF_RECORD_FILE_SNAPSHOT;
    if (is_snapshot && object->live != UMF_RECORD_UNKNOWN) {
        sum.bytes = object->live;
    }
    if (is_snapshot && object->live_count != UMF_RECORD_UNKNOWN) {
        sum.count = object->live_count;
    }
    return object->kind != UMF_RECORD_OBJECT_POOL ||
           umf_reader_is_left_out(diff->readers[side], number) ||
           keep(&diff->pools, object->name, side, sum.bytes, sum.count);
}

static bool take_groups(diff_t *diff, size_t side, const groups_t *groups) {
    const umf_reader_info_t *info = umf_reader_info(diff->readers[side]);
    size_t at = 0;
    for (uint32_t number = 0; number < info->object_count; number++) {
        group_t sum = {0};
        for (; at < groups->count && groups->items[at].object == number; at++) {
            sum.bytes += groups->items[at].bytes;
            sum.count += groups->items[at].count;
            if (!take_place(diff, side, &groups->items[at])) {
                return false;
            }
        }
        if (!take_pool(diff, side, number, sum)) {
            return false;
        }
    }
    return true;
}

/* Of one file the state at --from, and that at --to. Of two files both end at --to. */
static umf_reader_t *open_side(size_t side) {
    bool is_one = umfctl_words.operand_count == 1;
    return record_open_part(umfctl_words.operands[is_one ? 0 : side], NULL,
                            is_one && side == 0 ? umfctl_words.from : umfctl_words.to);
}

static int take(diff_t *diff, size_t side) {
    umf_reader_error_t error;
    groups_t groups;
    diff->readers[side] = open_side(side);
    if (!diff->readers[side]) {
        return 1;
    }
    bool is_taken = groups_load(&groups, diff->readers[side], &error);
    if (is_taken && !take_groups(diff, side, &groups)) {
        snprintf(error.text, sizeof(error.text), "there is no memory to compare");
        is_taken = false;
    }
    free(groups.items);
    return is_taken ? 0 : record_failed(&error);
}

/* Has the file a list of live allocations? A snapshot has one only while a recording with leaks
 * runs.
 */
static bool has_places(const diff_t *diff, size_t side) {
    const umf_reader_info_t *info = umf_reader_info(diff->readers[side]);
    return info->kind == UMF_RECORD_FILE_RECORDING || (info->flags & UMF_RECORD_HAS_LIVE);
}

/* Returns the exit status. */
static int check_alike(const diff_t *diff) {
    bool has[] = {has_places(diff, 0), has_places(diff, 1)};
    if (has[0] == has[1]) {
        return 0;
    }
    return print_message("%s lists live allocations, and %s, a snapshot without a recording with "
                         "leaks, does not: compare two files of one kind",
                         umf_reader_info(diff->readers[has[0] ? 0 : 1])->name,
                         umf_reader_info(diff->readers[has[0] ? 1 : 0])->name);
}

/* --- output ----------------------------------------------------------------------------------- */

static const char *change_text(uint64_t from, uint64_t to, char *text, size_t size) {
    char bytes[32];
    uint64_t change = to > from ? to - from : from - to;
    snprintf(text, size, "%s%s",
             to > from   ? "+"
             : to < from ? "-"
                         : "",
             report_bytes_text(change, bytes, sizeof(bytes)));
    return text;
}

static void entry_as_lines(const entry_t *entry, const char *stack) {
    char change[40], before[32], after[32], line[256];
    int name = (int)strcspn(entry->name, "\n");
    snprintf(line, sizeof(line), "    %12s  %.*s: %s in %" PRIu64 ", then %s in %" PRIu64,
             change_text(entry->bytes[0], entry->bytes[1], change, sizeof(change)),
             name < 20 ? name : 20, entry->name,
             report_bytes_text(entry->bytes[0], before, sizeof(before)), entry->count[0],
             report_bytes_text(entry->bytes[1], after, sizeof(after)), entry->count[1]);
    line[80] = '\0';
    report_line(line);
    record_print_lines(stack);
}

static void entry_as_members(const entry_t *entry, const char *stack) {
    char pool[RECORD_LABEL];
    snprintf(pool, sizeof(pool), "%.*s", (int)strcspn(entry->name, "\n"), entry->name);
    const report_member_t members[] = {
        {"pool", {.unit = REPORT_TEXT, .text = pool}},
        {"bytes_before", {.unit = REPORT_BYTES, .number = entry->bytes[0]}},
        {"bytes_after", {.unit = REPORT_BYTES, .number = entry->bytes[1]}},
        {"count_before", {.unit = REPORT_NUMBER, .number = entry->count[0]}},
        {"count_after", {.unit = REPORT_NUMBER, .number = entry->count[1]}},
        {"stack", {.unit = REPORT_LINES, .text = stack}},
    };
    report_item(members, sizeof(members) / sizeof(members[0]));
}

static bool is_changed(const entry_t *entry) {
    return change_of(entry) || entry->count[0] != entry->count[1];
}

static void show_list(const list_t *list, const char *name, const char *title) {
    size_t shown = 0, left = 0;
    report_list(name, title);
    for (size_t i = 0; i < list->count; i++) {
        const entry_t *entry = &list->entries[i];
        const char *stack = entry->name + strcspn(entry->name, "\n");
        stack += *stack != '\0';
        if (!is_changed(entry)) {
            continue;
        } else if (report_is_json()) {
            entry_as_members(entry, stack);
        } else if (shown < SHOWN) {
            entry_as_lines(entry, stack);
            shown++;
        } else {
            left++;
        }
    }
    if (left) {
        char line[80];
        snprintf(line, sizeof(line), "    and %zu others; --json has all", left);
        report_line(line);
    }
}

static void show_total(const list_t *pools) {
    entry_t total = {0};
    char change[40];
    for (size_t i = 0; i < pools->count; i++) {
        for (size_t side = 0; side < 2; side++) {
            total.bytes[side] += pools->entries[i].bytes[side];
            total.count[side] += pools->entries[i].count[side];
        }
    }
    report_section("total", "Live allocations", 12);
    report_bytes("before", total.bytes[0]);
    report_bytes("after", total.bytes[1]);
    report_text("change", change_text(total.bytes[0], total.bytes[1], change, sizeof(change)));
}

/* --- for flame graphs of a difference --------------------------------------------------------- */

/* Pool, outermost function, ..., innermost one; a name may have neither semicolons nor a line's
 * end. */
static void write_folded(const entry_t *entry, FILE *out) {
    char name[RECORD_STACK + RECORD_LABEL];
    snprintf(name, sizeof(name), "%s", entry->name);
    for (char *c = name; (c = strchr(c, ';')) != NULL;) {
        *c = ':';
    }
    char *stack = strchr(name, '\n');
    if (stack) {
        *stack++ = '\0';
    }
    fputs(name[0] ? name : "nameless", out);
    while (stack && *stack) {
        char *last = strrchr(stack, '\n');
        fprintf(out, ";%s", last ? last + 1 : stack);
        *(last ? last : stack) = '\0';
    }
    fprintf(out, " %" PRIu64 " %" PRIu64 "\n", entry->bytes[0], entry->bytes[1]);
}

static bool folded_write(void *arg, FILE *out, umf_reader_error_t *error) {
    const list_t *places = arg;
    for (size_t i = 0; i < places->count; i++) {
        write_folded(&places->entries[i], out);
    }
    snprintf(error->text, sizeof(error->text), "the file could not be written");
    return !ferror(out);
}

static int show_folded(diff_t *diff) {
    const char *path = umfctl_words.collapsed;
    int status = 0;
    if (path && !has_places(diff, 0)) {
        return print_message("%s is not written: the snapshots have no list of live allocations",
                             path);
    } else if (path) {
        status = record_write(path, folded_write, &diff->places);
        report_section("written", "Written", 12);
        report_text("collapsed", status ? "-" : path);
    }
    return status;
}

static int show(diff_t *diff) {
    int status = take(diff, 0);
    status = status ? status : take(diff, 1);
    status = status ? status : check_alike(diff);
    if (status == 0) {
        join(&diff->pools);
        join(&diff->places);
        record_describe(diff->readers[0], "before", "Before");
        record_describe(diff->readers[1], "after", "After");
        show_total(&diff->pools);
        show_list(&diff->pools, "pools", "Pools that changed, the most first");
        if (has_places(diff, 0)) {
            show_list(&diff->places, "places", "Places that changed, the most first");
        } else {
            report_section("not_known", "Places that changed", 12);
            report_row(&(report_row_t){.name = "places",
                                       .state = REPORT_SKIPPED,
                                       .note = "not known: the snapshots were taken without a "
                                               "recording with leaks"});
        }
        status = show_folded(diff);
    }
    return status;
}

int umfctl_diff(void) {
    diff_t diff = {0};
    if (umfctl_words.operand_count + (umfctl_words.from != NULL) != 2) {
        print_message("diff needs another recording or snapshot, or of one file --from");
        return 2;
    }
    int status = show(&diff);
    for (size_t side = 0; side < 2; side++) {
        record_close(diff.readers[side]);
    }
    free_list(&diff.pools);
    free_list(&diff.places);
    return status;
}
