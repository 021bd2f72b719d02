/* The section of live allocations: a table with holes, in a file with holes. */
#include <stdlib.h>

#include "live_table.h"
#include "own.h"

#define CHUNK 2048u /* items that are read at once */

typedef struct loading_t {
    umf_reader_t *reader;
    size_t room;
} loading_t;

static bool make_room(loading_t *loading) {
    umf_reader_t *reader = loading->reader;
    if (reader->live_count < loading->room) {
        return true;
    }
    loading->room = loading->room ? 2 * loading->room : 1024;
    umf_reader_live_t *more = realloc(reader->live, loading->room * sizeof(*more));
    reader->live = more ? more : reader->live;
    return more != NULL;
}

static bool keep(loading_t *loading, const umf_record_event_t *item) {
    umf_reader_t *reader = loading->reader;
    if (item->address == 0 || UMF_RECORD_EVENT_KIND(item->what) != UMF_RECORD_ALLOC) {
        return true;
    } else if (!make_room(loading)) {
        return false;
    }
    reader->live[reader->live_count++] =
        (umf_reader_live_t){.address = item->address,
                            .size = item->size,
                            .ns = umf_reader_ns(reader, item->ticks),
                            .object = reader_object_of(reader, item->what),
                            .stack = reader_stack_of(reader, item->what),
                            .thread = UINT32_MAX,
                            .site = UINT32_MAX};
    return true;
}

static bool keep_chunk(loading_t *loading, uint64_t offset, uint64_t end,
                       umf_record_event_t *chunk) {
    size_t count =
        end - offset < CHUNK * sizeof(*chunk) ? (size_t)(end - offset) / sizeof(*chunk) : CHUNK;
    reader_read(&loading->reader->source, offset, chunk, count * sizeof(*chunk));
    for (size_t i = 0; i < count; i++) {
        if (!keep(loading, &chunk[i])) {
            return false;
        }
    }
    return true;
}

static bool keep_all(loading_t *loading, umf_record_event_t *chunk) {
    umf_reader_t *reader = loading->reader;
    uint64_t begin = reader->header.sections[UMF_RECORD_LIVE].offset;
    uint64_t end = begin + reader_capacity(reader, UMF_RECORD_LIVE) * sizeof(*chunk);
    for (uint64_t at = begin; at < end; at += CHUNK * sizeof(*chunk)) {
        uint64_t data = reader_next_data(&reader->source, at);
        at = data > at ? data - (data - begin) % sizeof(*chunk) : at;
        if (at < end && !keep_chunk(loading, at, end, chunk)) {
            return false;
        }
    }
    return true;
}

/* While a writer moves an item it is there twice. */
static bool drop_repeated(umf_reader_t *reader) {
    live_table_t table;
    size_t kept = 0;
    bool is_done = live_table_init(&table);
    for (size_t i = 0; is_done && i < reader->live_count; i++) {
        const umf_reader_live_t *live = &reader->live[i];
        if (!live_table_find(&table, live->address, live->object)) {
            is_done = live_table_add(&table, live);
            reader->live[kept++] = *live;
        }
    }
    reader->live_count = is_done ? kept : reader->live_count;
    live_table_free(&table);
    return is_done;
}

bool reader_load_live(umf_reader_t *reader, umf_reader_error_t *error) {
    loading_t loading = {reader, 0};
    umf_record_event_t *chunk = reader_memory(reader, CHUNK, sizeof(*chunk), error);
    if (!chunk) {
        return false;
    }
    bool has_ended = reader->info.flags & UMF_RECORD_HAS_ENDED;
    bool is_kept = keep_all(&loading, chunk) && (has_ended || drop_repeated(reader));
    free(chunk);
    return is_kept || reader_fail(error, "%s: there is no memory for a table of %zu allocations",
                                  reader->name, reader->live_count);
}

const umf_reader_live_t *umf_reader_live(const umf_reader_t *reader, size_t *count) {
    *count = reader->live_count;
    return reader->live;
}
