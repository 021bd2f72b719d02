/* umfctl trace: a recording as text, and for other viewers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "record.h"
#include "report.h"
#include "umfctl.h"

#define SITES_SHOWN 8
#define MARKS_SHOWN 20

typedef struct mark_t {
    int64_t ns;
    uint64_t text, live;
} mark_t;

typedef struct trace_t {
    umf_reader_t *reader;
    umf_reader_replay_t *replay;
    bool *is_created; /* by number of the object: its creation is in the recording */
    mark_t *marks;
    size_t mark_count, mark_room;
    umf_reader_event_t provider_refusal; /* the last before the pool's refusal that we explain */
    umf_reader_event_t last_provider_refusal;
} trace_t;

/* --- events ----------------------------------------------------------------------------------- */

static bool keep_mark(trace_t *trace, const umf_reader_event_t *event) {
    if (trace->mark_count == trace->mark_room) {
        trace->mark_room = trace->mark_room ? 2 * trace->mark_room : 64;
        mark_t *more = realloc(trace->marks, trace->mark_room * sizeof(*more));
        trace->marks = more ? more : trace->marks;
        if (!more) {
            return false;
        }
    }
    uint64_t live = umf_reader_replay_total(trace->replay)->use.bytes;
    trace->marks[trace->mark_count++] = (mark_t){event->ns, event->address, live};
    return true;
}

static bool see(trace_t *trace, const umf_reader_event_t *event) {
    if (event->kind == UMF_RECORD_PROVIDER_REFUSED) {
        trace->last_provider_refusal = *event;
    } else if (event->kind == UMF_RECORD_REFUSED) {
        trace->provider_refusal = trace->last_provider_refusal;
        trace->last_provider_refusal.size = 0;
    }
    trace->is_created[event->object] |= event->kind == UMF_RECORD_CREATE;
    bool is_kept = event->kind != UMF_RECORD_MARK || keep_mark(trace, event);
    return is_kept && umf_reader_replay_apply(trace->replay, event, NULL);
}

static bool see_all(trace_t *trace, umf_reader_error_t *error) {
    umf_reader_cursor_t *cursor = umf_reader_iterate(trace->reader, error);
    umf_reader_event_t event;
    bool is_seen = cursor != NULL;
    while (is_seen && umf_reader_next(cursor, &event)) {
        is_seen = see(trace, &event);
        if (!is_seen) {
            snprintf(error->text, sizeof(error->text),
                     "%s: there is no memory for the live allocations",
                     umf_reader_info(trace->reader)->name);
        }
    }
    umf_reader_cursor_free(cursor);
    return is_seen;
}

static bool has_older(const umf_reader_t *reader) {
    return umf_reader_info(reader)->flags & UMF_RECORD_HAS_OLDER && !umf_reader_has_times(reader);
}

/* --- pools ------------------------------------------------------------------------------------ */

/* UMF_RECORD_UNKNOWN: not known. */
typedef struct figures_t {
    uint64_t peak, live, live_count, held, allocs, frees, refused;
} figures_t;

static figures_t figures_of(trace_t *trace, uint32_t number) {
    const umf_record_object_t *object = umf_reader_object(trace->reader, number);
    const umf_reader_object_use_t *use = umf_reader_replay_object(trace->replay, number);
    if (umf_reader_info(trace->reader)->kind == UMF_RECORD_FILE_SNAPSHOT) {
        bool is_counted = object->allocs != 0;
        return (figures_t){object->peak,
                           object->live,
                           object->live_count,
                           object->held,
                           is_counted ? object->allocs : UMF_RECORD_UNKNOWN,
                           is_counted ? object->frees : UMF_RECORD_UNKNOWN,
                           UMF_RECORD_UNKNOWN};
    }
    /* An older pool has memory whose events are not in the recording. */
    bool is_known = trace->is_created[number] || has_older(trace->reader) || use->pages.is_known;
    uint64_t held = is_known ? use->held : UMF_RECORD_UNKNOWN;
    return (figures_t){use->own_peak, use->use.bytes, use->use.count, held,
                       use->allocs,   use->frees,     use->refused};
}

static report_value_t value(report_unit_t unit, uint64_t number) {
    return (report_value_t){.unit = unit, .number = number};
}

static report_value_t text_value(const char *text) {
    return (report_value_t){.unit = REPORT_TEXT, .text = text};
}

static const char *bytes_cell(uint64_t bytes, char *text, size_t size) {
    if (bytes == UMF_RECORD_UNKNOWN) {
        snprintf(text, size, "-");
        return text;
    }
    return report_bytes_text(bytes, text, size);
}

static void number_cell(uint64_t number, char *text, size_t size) {
    if (number == UMF_RECORD_UNKNOWN) {
        snprintf(text, size, "-");
    } else {
        record_number(number, text, size);
    }
}

static void pool_as_line(const trace_t *trace, uint32_t number, const figures_t *figures) {
    char label[RECORD_LABEL], cells[6][32], line[256];
    bytes_cell(figures->peak, cells[0], sizeof(cells[0]));
    bytes_cell(figures->live, cells[1], sizeof(cells[1]));
    bytes_cell(figures->held, cells[2], sizeof(cells[2]));
    number_cell(figures->live_count, cells[3], sizeof(cells[3]));
    number_cell(figures->allocs, cells[4], sizeof(cells[4]));
    number_cell(figures->frees, cells[5], sizeof(cells[5]));
    snprintf(line, sizeof(line), "    %-18.18s %10s %10s %10s %7s %7s %7s",
             umf_reader_label(trace->reader, number, label, sizeof(label)), cells[0], cells[1],
             cells[2], cells[3], cells[4], cells[5]);
    report_line(line);
}

static void pool_as_members(const trace_t *trace, uint32_t number, const figures_t *figures) {
    char label[RECORD_LABEL], provider[RECORD_LABEL];
    const umf_record_object_t *object = umf_reader_object(trace->reader, number);
    const report_member_t members[] = {
        {"label", text_value(umf_reader_label(trace->reader, number, label, sizeof(label)))},
        {"name", text_value(object->name)},
        {"number", value(REPORT_NUMBER, number)},
        {"provider",
         text_value(umf_reader_label(trace->reader, object->parent, provider, sizeof(provider)))},
        {"peak", value(REPORT_BYTES, figures->peak)},
        {"live", value(REPORT_BYTES, figures->live)},
        {"live_count", value(REPORT_NUMBER, figures->live_count)},
        {"held", value(REPORT_BYTES, figures->held)},
        {"allocs", value(REPORT_NUMBER, figures->allocs)},
        {"frees", value(REPORT_NUMBER, figures->frees)},
        {"refused", value(REPORT_NUMBER, figures->refused)},
    };
    report_item(members, sizeof(members) / sizeof(members[0]));
}

static void show_pools(trace_t *trace) {
    report_list("pools", "Pools");
    bool is_first = true;
    for (uint32_t i = 1; i < umf_reader_info(trace->reader)->object_count; i++) {
        if (umf_reader_object(trace->reader, i)->kind != UMF_RECORD_OBJECT_POOL ||
            umf_reader_is_left_out(trace->reader, i)) {
            continue;
        }
        if (is_first) {
            report_line("    name                     peak       live       held    live  "
                        "allocs   frees");
        }
        is_first = false;
        figures_t figures = figures_of(trace, i);
        pool_as_line(trace, i, &figures);
        pool_as_members(trace, i, &figures);
    }
}

/* --- places ----------------------------------------------------------------------------------- */

typedef uint64_t bytes_of_t(const umf_reader_use_t *use);

static uint64_t peak_bytes(const umf_reader_use_t *use) {
    return use->peak_bytes;
}

static uint64_t refused_bytes(const umf_reader_use_t *use) {
    return use->refused_bytes;
}

/* The sites with the most bytes, in order; returns how many. */
static size_t largest_sites(trace_t *trace, bytes_of_t *bytes_of, umf_reader_site_t *largest) {
    size_t count = 0;
    const umf_reader_site_t *site;
    for (uint32_t i = 0; (site = umf_reader_replay_site(trace->replay, i)) != NULL; i++) {
        uint64_t bytes = bytes_of(&site->use);
        size_t at = count;
        for (; at > 0 && bytes_of(&largest[at - 1].use) < bytes; at--) {
            if (at < SITES_SHOWN) {
                largest[at] = largest[at - 1];
            }
        }
        if (at < SITES_SHOWN && bytes > 0) {
            largest[at] = *site;
            count += count < SITES_SHOWN;
        }
    }
    return count;
}

static void show_site(trace_t *trace, const umf_reader_site_t *site) {
    char label[RECORD_LABEL], bytes[32], count[32], line[256], stack[RECORD_STACK];
    umf_reader_label(trace->reader, site->object, label, sizeof(label));
    snprintf(line, sizeof(line), "    %10s  %.30s, %.34s",
             report_bytes_text(site->use.peak_bytes, bytes, sizeof(bytes)), label,
             record_allocations(site->use.peak_count, count, sizeof(count)));
    report_line(line);
    record_print_stack(trace->reader, site->stack);
    record_stack(trace->reader, site->stack, stack, sizeof(stack));
    const report_member_t members[] = {
        {"bytes", value(REPORT_BYTES, site->use.peak_bytes)},
        {"count", value(REPORT_NUMBER, site->use.peak_count)},
        {"pool", text_value(label)},
        {"stack", {.unit = REPORT_LINES, .text = stack}},
    };
    report_item(members, sizeof(members) / sizeof(members[0]));
}

static void show_peak(trace_t *trace) {
    const umf_reader_total_t *total = umf_reader_replay_total(trace->replay);
    umf_reader_site_t largest[SITES_SHOWN];
    char title[128], bytes[32], when[32];
    size_t count = largest_sites(trace, peak_bytes, largest);
    if (umf_reader_info(trace->reader)->kind == UMF_RECORD_FILE_SNAPSHOT) {
        return;
    }
    snprintf(title, sizeof(title), "The highest point: %s at %s",
             report_bytes_text(total->use.peak_bytes, bytes, sizeof(bytes)),
             report_time_text(total->peak_ns, when, sizeof(when)));
    report_list("peak", title);
    for (size_t i = 0; i < count; i++) {
        show_site(trace, &largest[i]);
    }
}

/* --- the refusal ------------------------------------------------------------------------------ */

static size_t add(char *text, size_t length, size_t size, const char *more) {
    snprintf(text + length, size - length, "%s", more);
    return length + strlen(text + length);
}

static size_t say_what(const trace_t *trace, const umf_reader_event_t *event, char *text,
                       size_t size) {
    char label[RECORD_LABEL], when[32], bytes[32];
    snprintf(text, size, "At %s thread %" PRIu32 " requested %s from %s and got none.",
             report_time_text(event->ns, when, sizeof(when)),
             umf_reader_thread(trace->reader, event->thread),
             report_bytes_text(event->size, bytes, sizeof(bytes)),
             umf_reader_label(trace->reader, event->object, label, sizeof(label)));
    return strlen(text);
}

static size_t say_why(trace_t *trace, const umf_reader_event_t *event, char *text, size_t length,
                      size_t size) {
    char more[512], held[32], used[32], requested[32], label[RECORD_LABEL];
    uint64_t live = umf_reader_replay_object(trace->replay, event->object)->use.refused_bytes;
    const umf_record_object_t *pool = umf_reader_object(trace->reader, event->object);
    snprintf(more, sizeof(more), " The pool held %s, of which %s were in use.",
             report_bytes_text(event->address, held, sizeof(held)),
             report_bytes_text(live, used, sizeof(used)));
    length = add(text, length, size, more);
    if (event->address > live && event->address - live >= event->size) {
        snprintf(more, sizeof(more), " So %s were free, but not in one piece: it is fragmented.",
                 report_bytes_text(event->address - live, held, sizeof(held)));
        length = add(text, length, size, more);
    }
    if (trace->provider_refusal.size) {
        snprintf(more, sizeof(more), " Just before, its provider %s had refused %s.",
                 umf_reader_label(trace->reader, pool->parent, label, sizeof(label)),
                 report_bytes_text(trace->provider_refusal.size, requested, sizeof(requested)));
        length = add(text, length, size, more);
    }
    return length;
}

static size_t say_who(trace_t *trace, char *text, size_t length, size_t size) {
    umf_reader_site_t largest[SITES_SHOWN];
    char more[512], bytes[32], count[32], place[256], label[RECORD_LABEL];
    if (largest_sites(trace, refused_bytes, largest) == 0) {
        return length;
    }
    snprintf(more, sizeof(more), " The most, %s in %s of %s, was from %s.",
             report_bytes_text(largest->use.refused_bytes, bytes, sizeof(bytes)),
             record_allocations(largest->use.refused_count, count, sizeof(count)),
             umf_reader_label(trace->reader, largest->object, label, sizeof(label)),
             record_place(trace->reader, largest->stack, place, sizeof(place)));
    return add(text, length, size, more);
}

static void show_refusal(trace_t *trace) {
    const umf_reader_total_t *total = umf_reader_replay_total(trace->replay);
    char text[2048], label[RECORD_LABEL], stack[RECORD_STACK];
    if (total->refused == 0) {
        return;
    }
    size_t length = say_what(trace, &total->refusal, text, sizeof(text));
    length = say_why(trace, &total->refusal, text, length, sizeof(text));
    say_who(trace, text, length, sizeof(text));
    report_section("refusal", total->refused > 1 ? "Out of memory, the last time" : "Out of memory",
                   0);
    report_paragraph(text, 4);
    record_print_stack(trace->reader, total->refusal.stack);
    record_stack(trace->reader, total->refusal.stack, stack, sizeof(stack));
    const report_member_t members[] = {
        {"text", text_value(text)},
        {"ns", value(REPORT_NUMBER, (uint64_t)(total->refusal.ns > 0 ? total->refusal.ns : 0))},
        {"pool",
         text_value(umf_reader_label(trace->reader, total->refusal.object, label, sizeof(label)))},
        {"size", value(REPORT_BYTES, total->refusal.size)},
        {"held", value(REPORT_BYTES, total->refusal.address)},
        {"times", value(REPORT_NUMBER, total->refused)},
        {"stack", {.unit = REPORT_LINES, .text = stack}},
    };
    report_members(members, sizeof(members) / sizeof(members[0]));
}

/* --- the rest --------------------------------------------------------------------------------- */

static void show_frees(const trace_t *trace) {
    const umf_reader_total_t *total = umf_reader_replay_total(trace->replay);
    if (total->bad_frees + total->unknown_frees == 0) {
        return;
    }
    report_section("frees", "Frees", 18);
    if (total->bad_frees) {
        report_row(&(report_row_t){.name = "refused",
                                   .state = REPORT_FAILED,
                                   .value = value(REPORT_NUMBER, total->bad_frees),
                                   .note = "of memory that was free already, or is none of the "
                                           "pool's; --events shows where"});
    }
    if (total->unknown_frees) {
        report_row(&(report_row_t){.name = "of older memory",
                                   .value = value(REPORT_NUMBER, total->unknown_frees),
                                   .note = "allocated before the first event"});
    }
}

static void show_mark(const trace_t *trace, size_t index) {
    const mark_t *mark = &trace->marks[index];
    char when[32], bytes[32], line[512];
    const char *text = umf_reader_text(trace->reader, mark->text);
    snprintf(line, sizeof(line), "    %12s %10s  %.50s",
             report_time_text(mark->ns, when, sizeof(when)),
             report_bytes_text(mark->live, bytes, sizeof(bytes)), text);
    report_line(line);
    const report_member_t members[] = {
        {"text", text_value(text)},
        {"ns", value(REPORT_NUMBER, (uint64_t)(mark->ns > 0 ? mark->ns : 0))},
        {"live", value(REPORT_BYTES, mark->live)},
    };
    report_item(members, sizeof(members) / sizeof(members[0]));
}

static void show_marks(const trace_t *trace) {
    if (trace->mark_count == 0) {
        return;
    }
    size_t first =
        trace->mark_count > MARKS_SHOWN && !report_is_json() ? trace->mark_count - MARKS_SHOWN : 0;
    char title[64] = "Marks, and what lived then";
    if (first) {
        snprintf(title, sizeof(title), "Marks, the last %d of %zu, and what lived then",
                 MARKS_SHOWN, trace->mark_count);
    }
    report_list("marks", title);
    for (size_t i = first; i < trace->mark_count; i++) {
        show_mark(trace, i);
    }
}

static int summary(trace_t *trace) {
    umf_reader_error_t error;
    uint32_t objects = umf_reader_info(trace->reader)->object_count;
    trace->is_created = calloc(objects ? objects : 1, sizeof(*trace->is_created));
    if (!trace->is_created) {
        return print_message("there is no memory for %" PRIu32 " objects", objects);
    }
    trace->replay = umf_reader_replay_begin(trace->reader, &error);
    if (!trace->replay || !see_all(trace, &error)) {
        return record_failed(&error);
    }
    record_describe(trace->reader, "file", "Recording");
    show_pools(trace);
    trace_show_pages(trace->reader, trace->replay);
    show_peak(trace);
    show_refusal(trace);
    show_frees(trace);
    show_marks(trace);
    return 0;
}

/* --- every event ------------------------------------------------------------------------------ */

static const char *const kind_names[] = {
    [UMF_RECORD_ALLOC] = "alloc",
    [UMF_RECORD_FREE] = "free",
    [UMF_RECORD_FREE_REFUSED] = "free refused",
    [UMF_RECORD_REFUSED] = "out of memory",
    [UMF_RECORD_PROVIDER_ALLOC] = "provider alloc",
    [UMF_RECORD_PROVIDER_FREE] = "provider free",
    [UMF_RECORD_PROVIDER_REFUSED] = "provider refused",
    [UMF_RECORD_TRIM] = "trim",
    [UMF_RECORD_SUSPEND] = "suspend",
    [UMF_RECORD_RESUME] = "resume",
    [UMF_RECORD_OPEN] = "open",
    [UMF_RECORD_CLOSE] = "close",
    [UMF_RECORD_CREATE] = "create",
    [UMF_RECORD_DESTROY] = "destroy",
    [UMF_RECORD_MARK] = "mark",
    [UMF_RECORD_PAGE_CREATE] = "page create",
    [UMF_RECORD_PAGE_DESTROY] = "page destroy",
    [UMF_RECORD_PAGE_DONATE] = "page donate",
    [UMF_RECORD_PAGE_RETIRE] = "page retire",
    [UMF_RECORD_PAGE_UNMAP] = "page unmap",
    [UMF_RECORD_PAGES] = "pages",
    [UMF_RECORD_PAGES_MOVED] = "pages moved",
};

/* The name of its object, or of the mark. */
static const char *subject_of(const trace_t *trace, const umf_reader_event_t *event, char *text,
                              size_t size) {
    return event->kind == UMF_RECORD_MARK
               ? umf_reader_text(trace->reader, event->address)
               : umf_reader_label(trace->reader, event->object, text, size);
}

/* 0: not known. */
static uint32_t thread_of(const trace_t *trace, const umf_reader_event_t *event) {
    return event->is_older ? 0 : umf_reader_thread(trace->reader, event->thread);
}

static const char *kind_of(const umf_reader_event_t *event) {
    return !event->is_older                  ? kind_names[event->kind]
           : event->kind == UMF_RECORD_ALLOC ? "lived before"
                                             : "held before";
}

static void event_as_line(const trace_t *trace, const umf_reader_event_t *event) {
    char line[256], when[32], bytes[32] = "", label[RECORD_LABEL];
    report_time_text(event->ns, when, sizeof(when));
    if (event->size) {
        report_bytes_text(event->size, bytes, sizeof(bytes));
    }
    snprintf(line, sizeof(line), "%12s %8" PRIu32 " %-16s %10s %12" PRIx64 " %.16s", when,
             thread_of(trace, event), kind_of(event), bytes,
             event->kind == UMF_RECORD_MARK ? 0 : event->address,
             subject_of(trace, event, label, sizeof(label)));
    report_line(line);
}

static void event_as_members(const trace_t *trace, const umf_reader_event_t *event) {
    char address[32], label[RECORD_LABEL], stack[RECORD_STACK];
    snprintf(address, sizeof(address), "0x%" PRIx64, event->address);
    record_stack(trace->reader, event->stack, stack, sizeof(stack));
    bool is_mark = event->kind == UMF_RECORD_MARK;
    const report_member_t members[] = {
        {"ns", value(REPORT_NUMBER, (uint64_t)(event->ns > 0 ? event->ns : 0))},
        {"thread", value(REPORT_NUMBER, thread_of(trace, event))},
        {"kind", text_value(kind_of(event))},
        {is_mark ? "text" : "object", text_value(subject_of(trace, event, label, sizeof(label)))},
        {"size", value(REPORT_BYTES, event->size)},
        {"queue", value(REPORT_NUMBER, event->queue)},
        {"stack", {.unit = REPORT_LINES, .text = stack}},
        {"address", text_value(address)},
    };
    report_item(members, sizeof(members) / sizeof(members[0]) - is_mark);
}

static int list_events(const trace_t *trace) {
    umf_reader_error_t error;
    umf_reader_cursor_t *cursor = umf_reader_iterate(trace->reader, &error);
    if (!cursor) {
        return record_failed(&error);
    }
    report_list("events", "Events");
    umf_reader_event_t event;
    while (umf_reader_next(cursor, &event)) {
        if (report_is_json()) {
            event_as_members(trace, &event);
        } else {
            event_as_line(trace, &event);
        }
    }
    umf_reader_cursor_free(cursor);
    return 0;
}

int umfctl_trace(void) {
    trace_t trace = {.reader = record_open(umfctl_words.operands[0])};
    if (!trace.reader) {
        return 1;
    }
    int status = trace_has_exports()   ? trace_export(trace.reader)
                 : umfctl_words.events ? list_events(&trace)
                                       : summary(&trace);
    umf_reader_replay_free(trace.replay);
    record_close(trace.reader);
    free(trace.marks);
    free(trace.is_created);
    return status;
}
