/* Chrome's trace event format. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "json.h"
#include "own.h"

#define POINTS 4000 /* of a counter: intervals of which each has the highest and the last value */
#define SLEEP_TID                                                                                  \
    1u /* rows of suspended pools: this and the number of the pool, below all threads */
#define LABEL 80

/* The counter of a pool, and its values that were not written yet. */
typedef struct counter_t {
    bool is_pending;
    int64_t interval;
    int64_t highest_ns, last_ns;
    uint64_t highest, highest_held, last, last_held;
    int64_t suspended_since; /* INT64_MIN: awake */
    uint64_t away;
} counter_t;

typedef struct chrome_t {
    umf_reader_t *reader;
    umf_reader_replay_t *replay;
    FILE *out;
    counter_t *counters;  /* by object */
    int64_t begin, width; /* of an interval */
    bool has_events;
} chrome_t;

/* --- events ----------------------------------------------------------------------------------- */

static void begin_event(chrome_t *chrome, const char *phase, const char *name, int64_t ns) {
    uint64_t at = ns > chrome->begin ? (uint64_t)ns - (uint64_t)chrome->begin : 0;
    fprintf(chrome->out, "%s\n{\"ph\":\"%s\",\"pid\":%" PRIu32 ",\"ts\":%" PRIu64 ".%03u,\"name\":",
            chrome->has_events ? "," : "", phase, chrome->reader->info.pid, at / 1000,
            (unsigned)(at % 1000));
    umf_reader_json_string(chrome->out, name, '\0');
    chrome->has_events = true;
}

static void name_thread(chrome_t *chrome, uint32_t tid, const char *name) {
    begin_event(chrome, "M", "thread_name", chrome->begin);
    fprintf(chrome->out, ",\"tid\":%" PRIu32 ",\"args\":{\"name\":", tid);
    umf_reader_json_string(chrome->out, name, '\0');
    fputs("}}", chrome->out);
}

static void name_rows(chrome_t *chrome) {
    char text[LABEL];
    begin_event(chrome, "M", "process_name", chrome->begin);
    fputs(",\"tid\":0,\"args\":{\"name\":", chrome->out);
    umf_reader_json_string(chrome->out, chrome->reader->name, '\0');
    fputs("}}", chrome->out);
    for (uint32_t i = 0; i < chrome->reader->info.thread_count; i++) {
        snprintf(text, sizeof(text), "thread %" PRIu32, chrome->reader->threads[i]);
        name_thread(chrome, chrome->reader->threads[i], text);
    }
}

/* --- counters --------------------------------------------------------------------------------- */

static void write_point(chrome_t *chrome, uint32_t object, int64_t ns, uint64_t live,
                        uint64_t held) {
    char label[LABEL];
    begin_event(chrome, "C", umf_reader_label(chrome->reader, object, label, sizeof(label)), ns);
    fprintf(chrome->out, ",\"tid\":0,\"args\":{\"live\":%" PRIu64 ",\"free\":%" PRIu64 "}}", live,
            held > live ? held - live : 0);
}

static void flush_counter(chrome_t *chrome, uint32_t object) {
    counter_t *counter = &chrome->counters[object];
    if (counter->is_pending && counter->highest_ns != counter->last_ns) {
        write_point(chrome, object, counter->highest_ns, counter->highest, counter->highest_held);
    }
    if (counter->is_pending) {
        write_point(chrome, object, counter->last_ns, counter->last, counter->last_held);
    }
    counter->is_pending = false;
}

static void count(chrome_t *chrome, uint32_t object, int64_t ns) {
    counter_t *counter = &chrome->counters[object];
    const umf_reader_object_use_t *use = umf_reader_replay_object(chrome->replay, object);
    int64_t interval =
        (int64_t)(((uint64_t)ns - (uint64_t)chrome->begin) / (uint64_t)chrome->width);
    if (counter->is_pending && counter->interval != interval) {
        flush_counter(chrome, object);
    }
    if (!counter->is_pending || use->use.bytes > counter->highest) {
        counter->highest_ns = ns;
        counter->highest = use->use.bytes;
        counter->highest_held = use->held;
    }
    counter->interval = interval;
    counter->is_pending = true;
    counter->last_ns = ns;
    counter->last = use->use.bytes;
    counter->last_held = use->held;
}

/* --- instants and suspends -----------------------------------------------------------------------
 */

static void write_instant(chrome_t *chrome, const umf_reader_event_t *event, const char *name) {
    begin_event(chrome, "i", name, event->ns);
    fprintf(chrome->out, ",\"tid\":%" PRIu32 ",\"s\":\"p\"",
            umf_reader_thread(chrome->reader, event->thread));
    if (event->kind != UMF_RECORD_MARK) {
        fprintf(chrome->out, ",\"args\":{\"size\":%" PRIu64 ",\"held\":%" PRIu64 "}", event->size,
                event->address);
    }
    putc('}', chrome->out);
}

static void wake(chrome_t *chrome, uint32_t object, int64_t ns) {
    counter_t *counter = &chrome->counters[object];
    char label[LABEL], name[LABEL + 16];
    if (counter->suspended_since == INT64_MIN) {
        return;
    }
    umf_reader_label(chrome->reader, object, label, sizeof(label));
    snprintf(name, sizeof(name), "sleep of %s", label);
    name_thread(chrome, SLEEP_TID + object, name);
    begin_event(chrome, "X", name, counter->suspended_since);
    uint64_t length = (uint64_t)ns - (uint64_t)counter->suspended_since;
    fprintf(chrome->out,
            ",\"tid\":%" PRIu32 ",\"dur\":%" PRIu64 ".%03u,\"args\":{\"away\":%" PRIu64 "}}",
            SLEEP_TID + object, length / 1000, (unsigned)(length % 1000), counter->away);
    counter->suspended_since = INT64_MIN;
}

static void write_event(chrome_t *chrome, const umf_reader_event_t *event) {
    char label[LABEL], name[LABEL + 32];
    switch (event->kind) {
    case UMF_RECORD_MARK:
        write_instant(chrome, event, umf_reader_text(chrome->reader, event->address));
        break;
    case UMF_RECORD_REFUSED:
        umf_reader_label(chrome->reader, event->object, label, sizeof(label));
        snprintf(name, sizeof(name), "out of memory: %s", label);
        write_instant(chrome, event, name);
        break;
    case UMF_RECORD_SUSPEND:
        wake(chrome, event->object, event->ns);
        chrome->counters[event->object].suspended_since = event->ns;
        chrome->counters[event->object].away = event->size;
        break;
    case UMF_RECORD_RESUME:
        wake(chrome, event->object, event->ns);
        break;
    default:
        if (umf_reader_object(chrome->reader, event->object)->kind == UMF_RECORD_OBJECT_POOL) {
            count(chrome, event->object, event->ns);
        }
    }
}

/* --- the file --------------------------------------------------------------------------------- */

static bool write_events(chrome_t *chrome, umf_reader_error_t *error) {
    umf_reader_cursor_t *cursor = umf_reader_iterate(chrome->reader, error);
    umf_reader_event_t event;
    bool is_done = cursor != NULL;
    while (is_done && umf_reader_next(cursor, &event)) {
        is_done = umf_reader_replay_apply(chrome->replay, &event, NULL) ||
                  reader_fail(error, "%s: there is no memory for the live allocations",
                              chrome->reader->name);
        if (is_done) {
            write_event(chrome, &event);
        }
    }
    umf_reader_cursor_free(cursor);
    return is_done;
}

static bool write_file(chrome_t *chrome, umf_reader_error_t *error) {
    const umf_reader_info_t *info = &chrome->reader->info;
    fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"file\":", chrome->out);
    umf_reader_json_string(chrome->out, info->name, '\0');
    fprintf(chrome->out, ",\"dropped\":%" PRIu64 "},\"traceEvents\":[", info->dropped);
    name_rows(chrome);
    if (!write_events(chrome, error)) {
        return false;
    }
    for (uint32_t i = 0; i < info->object_count; i++) {
        flush_counter(chrome, i);
        wake(chrome, i, info->last_ns);
    }
    fputs("\n]}\n", chrome->out);
    return (fflush(chrome->out) == 0 && !ferror(chrome->out)) ||
           reader_fail(error, "the trace could not be written: %s", strerror(errno));
}

bool umf_reader_export_chrome(umf_reader_t *reader, FILE *out, umf_reader_error_t *error) {
    const umf_reader_info_t *info = &reader->info;
    chrome_t chrome = {.reader = reader, .out = out, .begin = info->first_ns};
    chrome.width = (int64_t)(((uint64_t)info->last_ns - (uint64_t)info->first_ns) / POINTS) + 1;
    chrome.counters = reader_memory(reader, info->object_count, sizeof(counter_t), error);
    chrome.replay = chrome.counters ? umf_reader_replay_begin(reader, error) : NULL;
    for (uint32_t i = 0; chrome.counters && i < info->object_count; i++) {
        chrome.counters[i].suspended_since = INT64_MIN;
    }
    bool is_written = chrome.replay && write_file(&chrome, error);
    umf_reader_replay_free(chrome.replay);
    free(chrome.counters);
    return is_written;
}
