/*
 * A trace of Perfetto: a counter for each pool, marks and refusals, and heap profiles, which are
 * the allocations by stack at several moments. The pool is the outermost frame of a stack.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "folded.h"
#include "own.h"
#include "protobuf.h"

#define MOMENTS 2000u      /* of counters */
#define PROFILE_EVERY 100u /* moments */
#define LABEL 96

/* Numbers of the members in the messages. */
enum {
    TRACE_PACKET = 1,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10,
    PACKET_EVENT = 11,
    PACKET_INTERNED = 12,
    PACKET_FLAGS = 13,
    PACKET_PROFILE = 37,
    PACKET_TRACK = 60,
    INTERNED_FUNCTIONS = 5,
    INTERNED_FRAMES = 6,
    INTERNED_STACKS = 7,
    INTERNED_PATHS = 17,
    INTERNED_MAPPINGS = 19,
    ID = 1, /* of all that is interned */
    STRING_BYTES = 2,
    FRAME_FUNCTION = 2,
    FRAME_MAPPING = 3,
    FRAME_ADDRESS = 4,
    STACK_FRAMES = 2,
    MAPPING_PATH = 7,
    PROFILE_PROCESS = 5,
    PROFILE_INDEX = 7,
    PROCESS_PID = 1,
    PROCESS_SAMPLES = 2,
    PROCESS_TIMESTAMP = 9,
    PROCESS_HEAP = 11,
    SAMPLE_STACK = 1,
    SAMPLE_ALLOCATED = 2,
    SAMPLE_FREED = 3,
    SAMPLE_ALLOCATIONS = 5,
    SAMPLE_FREES = 6,
    TRACK_ID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_PARENT = 5,
    TRACK_COUNTER = 8,
    TRACK_PROCESS_PID = 1,
    TRACK_PROCESS_NAME = 6,
    COUNTER_UNIT = 3,
    EVENT_TYPE = 9,
    EVENT_TRACK = 11,
    EVENT_NAME = 23,
    EVENT_VALUE = 30,
};

enum {
    SEQUENCE = 1,
    STATE_CLEARED = 1, /* of PACKET_FLAGS */
    STATE_NEEDED = 2,
    TYPE_INSTANT = 3,
    TYPE_COUNTER = 4,
    UNIT_BYTES = 3,
    PROCESS_TRACK = 1, /* further tracks: by the number of the pool and the counter */
};

/* Counters of a pool. Those of pages have a track in recordings of arenas. */
typedef enum counter_t { LIVE, HELD, RESERVED, SPARE, STALE, DONATED, COUNTERS } counter_t;

static const char *const counter_names[COUNTERS] = {
    "live", "held", "reserved pages", "spare pages", "stale addresses", "donated pages"};

typedef struct perfetto_t {
    umf_reader_t *reader;
    FILE *out;
    umf_reader_replay_t *replay;
    folded_t folded;
    uint64_t *last; /* by number of a pool and counter: as written */
    message_t packet, part, inner, trace;
    uint64_t profiles;
    bool has_failed;
} perfetto_t;

/* --- packets ---------------------------------------------------------------------------------- */

static uint64_t time_of(const perfetto_t *perfetto, int64_t ns) {
    int64_t first = perfetto->reader->info.first_ns;
    return ns > first ? (uint64_t)ns - (uint64_t)first : 0;
}

static void write_packet(perfetto_t *perfetto, unsigned flags) {
    put_varint(&perfetto->packet, PACKET_SEQUENCE, SEQUENCE);
    put_varint(&perfetto->packet, PACKET_FLAGS, flags);
    put_message(&perfetto->trace, TRACE_PACKET, &perfetto->packet);
    perfetto->has_failed |= perfetto->trace.has_failed || perfetto->inner.has_failed;
    if (!perfetto->has_failed) {
        fwrite(perfetto->trace.bytes, 1, perfetto->trace.size, perfetto->out);
    }
    perfetto->trace.size = 0;
}

/* --- names of stacks -------------------------------------------------------------------------- */

static void put_string(perfetto_t *perfetto, unsigned member, uint64_t id, const char *text) {
    put_varint(&perfetto->inner, ID, id);
    put_text(&perfetto->inner, STRING_BYTES, text);
    put_message(&perfetto->part, member, &perfetto->inner);
}

static void put_frame(perfetto_t *perfetto, uint64_t id) {
    put_varint(&perfetto->inner, ID, id);
    put_varint(&perfetto->inner, FRAME_FUNCTION, id);
    put_varint(&perfetto->inner, FRAME_MAPPING, 1);
    put_varint(&perfetto->inner, FRAME_ADDRESS, id); /* frames without one are left out */
    put_message(&perfetto->part, INTERNED_FRAMES, &perfetto->inner);
}

static void put_stack(perfetto_t *perfetto, uint64_t id, const folded_stack_t *stack) {
    put_varint(&perfetto->inner, ID, id);
    for (size_t i = stack->begin; i < stack->end; i++) {
        put_varint(&perfetto->inner, STACK_FRAMES, (uint64_t)perfetto->folded.frames[i] + 1);
    }
    put_message(&perfetto->part, INTERNED_STACKS, &perfetto->inner);
}

static void write_names(perfetto_t *perfetto) {
    put_string(perfetto, INTERNED_PATHS, 1, "recording");
    put_varint(&perfetto->inner, ID, 1);
    put_varint(&perfetto->inner, MAPPING_PATH, 1);
    put_message(&perfetto->part, INTERNED_MAPPINGS, &perfetto->inner);
    for (size_t i = 0; i < perfetto->folded.name_count; i++) {
        put_string(perfetto, INTERNED_FUNCTIONS, i + 1, perfetto->folded.names[i]);
        put_frame(perfetto, i + 1);
    }
    for (size_t i = 0; i < perfetto->folded.stack_count; i++) {
        put_stack(perfetto, i + 1, &perfetto->folded.stacks[i]);
    }
    put_message(&perfetto->packet, PACKET_INTERNED, &perfetto->part);
    write_packet(perfetto, STATE_CLEARED);
}

/* --- tracks ----------------------------------------------------------------------------------- */

static bool is_shown(const perfetto_t *perfetto, uint32_t number) {
    return umf_reader_object(perfetto->reader, number)->kind == UMF_RECORD_OBJECT_POOL &&
           !umf_reader_is_left_out(perfetto->reader, number);
}

static uint64_t track_of(uint32_t pool, counter_t counter) {
    return PROCESS_TRACK + 1 + COUNTERS * (uint64_t)pool + counter;
}

static void write_counter_track(perfetto_t *perfetto, uint32_t pool, counter_t counter) {
    char label[LABEL], name[LABEL + 20];
    umf_reader_label(perfetto->reader, pool, label, sizeof(label));
    snprintf(name, sizeof(name), "%s %s", label, counter_names[counter]);
    put_varint(&perfetto->part, TRACK_ID, track_of(pool, counter));
    put_varint(&perfetto->part, TRACK_PARENT, PROCESS_TRACK);
    put_text(&perfetto->part, TRACK_NAME, name);
    put_varint(&perfetto->inner, COUNTER_UNIT, UNIT_BYTES);
    put_message(&perfetto->part, TRACK_COUNTER, &perfetto->inner);
    put_message(&perfetto->packet, PACKET_TRACK, &perfetto->part);
    write_packet(perfetto, STATE_NEEDED);
}

static void write_tracks(perfetto_t *perfetto) {
    const umf_reader_info_t *info = &perfetto->reader->info;
    put_varint(&perfetto->part, TRACK_ID, PROCESS_TRACK);
    put_varint(&perfetto->inner, TRACK_PROCESS_PID, info->pid);
    put_text(&perfetto->inner, TRACK_PROCESS_NAME, info->name);
    put_message(&perfetto->part, TRACK_PROCESS, &perfetto->inner);
    put_message(&perfetto->packet, PACKET_TRACK, &perfetto->part);
    write_packet(perfetto, STATE_NEEDED);
    for (uint32_t i = 1; i < info->object_count; i++) {
        if (is_shown(perfetto, i)) {
            write_counter_track(perfetto, i, LIVE);
            write_counter_track(perfetto, i, HELD);
        }
    }
}

static void write_count(perfetto_t *perfetto, int64_t ns, uint32_t pool, counter_t counter,
                        uint64_t bytes) {
    uint64_t *last = &perfetto->last[COUNTERS * (size_t)pool + counter];
    if (*last == bytes) {
        return;
    }
    if (counter > HELD && *last == UINT64_MAX) {
        write_counter_track(perfetto, pool, counter);
    }
    *last = bytes;
    put_varint(&perfetto->packet, PACKET_TIMESTAMP, time_of(perfetto, ns));
    put_varint(&perfetto->part, EVENT_TYPE, TYPE_COUNTER);
    put_varint(&perfetto->part, EVENT_TRACK, track_of(pool, counter));
    put_varint(&perfetto->part, EVENT_VALUE, bytes);
    put_message(&perfetto->packet, PACKET_EVENT, &perfetto->part);
    write_packet(perfetto, STATE_NEEDED);
}

static void write_counts(perfetto_t *perfetto, int64_t ns) {
    for (uint32_t i = 1; i < perfetto->reader->info.object_count; i++) {
        const umf_reader_object_use_t *use = umf_reader_replay_object(perfetto->replay, i);
        if (is_shown(perfetto, i)) {
            write_count(perfetto, ns, i, LIVE, use->use.bytes);
            write_count(perfetto, ns, i, HELD, use->held);
        }
        if (is_shown(perfetto, i) && use->pages.is_known) {
            write_count(perfetto, ns, i, RESERVED, use->pages.reserved);
            write_count(perfetto, ns, i, SPARE, use->pages.spare);
            write_count(perfetto, ns, i, STALE, use->pages.stale);
            write_count(perfetto, ns, i, DONATED, use->pages.donated);
        }
    }
}

/* --- heap profiles ---------------------------------------------------------------------------- */

/* What lived before the recording counts as allocated, too. */
static void put_sample(perfetto_t *perfetto, uint64_t stack, const umf_reader_site_t *site) {
    uint64_t bytes = site->alloc_bytes, count = site->allocs;
    bytes = bytes > site->use.bytes ? bytes : site->use.bytes;
    count = count > site->use.count ? count : site->use.count;
    put_varint(&perfetto->inner, SAMPLE_STACK, stack);
    put_varint(&perfetto->inner, SAMPLE_ALLOCATED, bytes);
    put_varint(&perfetto->inner, SAMPLE_FREED, bytes - site->use.bytes);
    put_varint(&perfetto->inner, SAMPLE_ALLOCATIONS, count);
    put_varint(&perfetto->inner, SAMPLE_FREES, count - site->use.count);
    put_message(&perfetto->part, PROCESS_SAMPLES, &perfetto->inner);
}

static void write_profile(perfetto_t *perfetto, int64_t ns) {
    const umf_reader_site_t *site;
    message_t profile = {0};
    put_varint(&perfetto->part, PROCESS_PID, perfetto->reader->info.pid);
    put_varint(&perfetto->part, PROCESS_TIMESTAMP, time_of(perfetto, ns));
    put_text(&perfetto->part, PROCESS_HEAP, "libumf");
    for (uint32_t i = 0; i < perfetto->folded.stack_count &&
                         (site = umf_reader_replay_site(perfetto->replay, i)) != NULL;
         i++) {
        put_sample(perfetto, (uint64_t)i + 1, site);
    }
    put_message(&profile, PROFILE_PROCESS, &perfetto->part);
    put_varint(&profile, PROFILE_INDEX, perfetto->profiles++);
    put_varint(&perfetto->packet, PACKET_TIMESTAMP, time_of(perfetto, ns));
    put_message(&perfetto->packet, PACKET_PROFILE, &profile);
    write_packet(perfetto, STATE_NEEDED);
    free(profile.bytes);
}

/* At moments of equal distance, and at the highest point. */
static bool write_moments(perfetto_t *perfetto, int64_t peak, umf_reader_error_t *error) {
    const umf_reader_info_t *info = &perfetto->reader->info;
    uint64_t length = (uint64_t)info->last_ns - (uint64_t)info->first_ns;
    bool is_peak_due = true;
    for (uint64_t i = 0; i <= MOMENTS; i++) {
        uint64_t part = length / MOMENTS * i + length % MOMENTS * i / MOMENTS;
        int64_t ns = (int64_t)((uint64_t)info->first_ns + part);
        if (is_peak_due && peak <= ns) {
            if (!umf_reader_replay_run(perfetto->replay, peak, error)) {
                return false;
            }
            write_counts(perfetto, peak);
            write_profile(perfetto, peak);
            is_peak_due = false;
        }
        if (!umf_reader_replay_run(perfetto->replay, ns, error)) {
            return false;
        }
        write_counts(perfetto, ns);
        if (i % PROFILE_EVERY == 0 && ns != peak) {
            write_profile(perfetto, ns);
        }
    }
    return true;
}

/* --- marks and refusals ----------------------------------------------------------------------- */

static void write_instant(perfetto_t *perfetto, const umf_reader_event_t *event) {
    char label[LABEL], name[LABEL + 32];
    bool is_mark = event->kind == UMF_RECORD_MARK;
    umf_reader_label(perfetto->reader, event->object, label, sizeof(label));
    snprintf(name, sizeof(name), "out of memory: %s", label);
    put_varint(&perfetto->packet, PACKET_TIMESTAMP, time_of(perfetto, event->ns));
    put_varint(&perfetto->part, EVENT_TYPE, TYPE_INSTANT);
    put_varint(&perfetto->part, EVENT_TRACK, PROCESS_TRACK);
    put_text(&perfetto->part, EVENT_NAME,
             is_mark ? umf_reader_text(perfetto->reader, event->address) : name);
    put_message(&perfetto->packet, PACKET_EVENT, &perfetto->part);
    write_packet(perfetto, STATE_NEEDED);
}

static bool write_instants(perfetto_t *perfetto, umf_reader_error_t *error) {
    umf_reader_cursor_t *cursor = umf_reader_iterate(perfetto->reader, error);
    umf_reader_event_t event;
    while (cursor && umf_reader_next(cursor, &event)) {
        if (event.kind == UMF_RECORD_MARK || event.kind == UMF_RECORD_REFUSED) {
            write_instant(perfetto, &event);
        }
    }
    umf_reader_cursor_free(cursor);
    return cursor != NULL;
}

/* --- the file --------------------------------------------------------------------------------- */

static bool write_file(perfetto_t *perfetto, umf_reader_error_t *error) {
    write_names(perfetto);
    write_tracks(perfetto);
    if (!write_moments(perfetto, perfetto->folded.peak_ns, error) ||
        !write_instants(perfetto, error)) {
        return false;
    }
    return (!perfetto->has_failed || reader_fail(error, "there is no memory for it")) &&
           ((fflush(perfetto->out) == 0 && !ferror(perfetto->out)) ||
            reader_fail(error, "the trace could not be written: %s", strerror(errno)));
}

bool umf_reader_export_perfetto(umf_reader_t *reader, FILE *out, umf_reader_error_t *error) {
    perfetto_t perfetto = {.reader = reader, .out = out};
    size_t count = reader->info.object_count;
    bool is_written = folded_load(&perfetto.folded, reader, error);
    perfetto.last =
        is_written ? reader_memory(reader, COUNTERS * count, sizeof(uint64_t), error) : NULL;
    perfetto.replay = perfetto.last ? umf_reader_replay_begin(reader, error) : NULL;
    for (size_t i = 0; perfetto.last && i < COUNTERS * count; i++) {
        perfetto.last[i] = UINT64_MAX;
    }
    is_written = perfetto.replay && write_file(&perfetto, error);
    message_t *const messages[] = {&perfetto.packet, &perfetto.part, &perfetto.inner,
                                   &perfetto.trace};
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        free(messages[i]->bytes);
    }
    umf_reader_replay_free(perfetto.replay);
    free(perfetto.last);
    folded_end(&perfetto.folded);
    return is_written;
}
