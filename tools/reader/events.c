/* Blocks of events: copied as they were at one moment, then merged by time. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "own.h"

#define HEAD offsetof(umf_record_block_t, events)

/* --- blocks ----------------------------------------------------------------------------------- */

typedef struct loading_t {
    umf_reader_t *reader;
    umf_record_block_t *head; /* only the part in front of the events */
    size_t room;
} loading_t;

/* The file may end in the middle of a block. */
static uint64_t blocks_of(const umf_reader_t *reader) {
    const umf_record_section_t *section = &reader->header.sections[UMF_RECORD_BLOCKS];
    uint64_t whole = reader_capacity(reader, UMF_RECORD_BLOCKS);
    return section->offset && whole < section->capacity ? whole + 1 : whole;
}

static uint64_t offset_of(const umf_reader_t *reader, uint64_t place) {
    return reader->header.sections[UMF_RECORD_BLOCKS].offset + place * sizeof(umf_record_block_t);
}

/* The first place from `place` on that is not in a hole of the file. */
static uint64_t next_used(const umf_reader_t *reader, uint64_t place) {
    uint64_t data = reader_next_data(&reader->source, offset_of(reader, place));
    return data > offset_of(reader, place)
               ? (data - offset_of(reader, 0)) / sizeof(umf_record_block_t)
               : place;
}

static uint32_t events_that_fit(const umf_reader_t *reader, uint32_t count, uint64_t place) {
    uint64_t begin = offset_of(reader, place) + HEAD;
    uint64_t room = begin < reader->source.size
                        ? (reader->source.size - begin) / sizeof(umf_record_event_t)
                        : 0;
    count = count < UMF_RECORD_BLOCK_EVENTS ? count : UMF_RECORD_BLOCK_EVENTS;
    return room < count ? (uint32_t)room : count;
}

static bool make_room(loading_t *loading) {
    umf_reader_t *reader = loading->reader;
    if (reader->block_count < loading->room) {
        return true;
    }
    loading->room = loading->room ? 2 * loading->room : 64;
    reader_block_t *more = realloc(reader->blocks, loading->room * sizeof(*more));
    reader->blocks = more ? more : reader->blocks;
    return more != NULL;
}

/* Adds the block at `place` to the list, if it has events. */
static bool list_block(loading_t *loading, uint64_t place) {
    umf_reader_t *reader = loading->reader;
    umf_record_block_t *head = loading->head;
    reader_read(&reader->source, offset_of(reader, place), head, HEAD);
    uint32_t count = head->number ? events_that_fit(reader, head->count, place) : 0;
    if (count == 0) {
        return true;
    } else if (!make_room(loading)) {
        return false;
    }
    reader->blocks[reader->block_count++] =
        (reader_block_t){head->number, place, head->thread, count, NULL};
    reader->info.event_count += count;
    return true;
}

static bool list_blocks(loading_t *loading, umf_reader_error_t *error) {
    umf_reader_t *reader = loading->reader;
    uint64_t end = blocks_of(reader);
    for (uint64_t place = 0; place < end; place++) {
        place = next_used(reader, place);
        if (place < end && !list_block(loading, place)) {
            return reader_fail(error, "%s: there is no memory for a list of %" PRIu64 " blocks",
                               reader->name, end);
        }
    }
    return true;
}

/* Copies the events, unless the writer has begun the block anew in the meantime. */
static bool copy_events(loading_t *loading, reader_block_t *block, umf_record_event_t *to) {
    umf_reader_t *reader = loading->reader;
    uint64_t offset = offset_of(reader, block->place);
    reader_read(&reader->source, offset + HEAD, to, block->count * sizeof(*to));
    reader_read(&reader->source, offset, loading->head, HEAD);
    block->events = to;
    return loading->head->number == block->number;
}

static void copy_blocks(loading_t *loading) {
    umf_reader_t *reader = loading->reader;
    umf_record_event_t *to = reader->events;
    size_t kept = 0;
    for (size_t i = 0; i < reader->block_count; i++) {
        reader_block_t block = reader->blocks[i];
        if (copy_events(loading, &block, to)) {
            to += block.count;
            reader->blocks[kept++] = block;
        } else {
            reader->info.event_count -= block.count;
            reader->info.dropped += block.count;
        }
    }
    if (kept < reader->block_count) {
        reader_note(reader, "%zu blocks were overwritten while they were read",
                    reader->block_count - kept);
    }
    reader->block_count = kept;
}

static int by_thread_and_number(const void *left, const void *right) {
    const reader_block_t *a = left, *b = right;
    if (a->thread != b->thread) {
        return a->thread < b->thread ? -1 : 1;
    } else if (a->number != b->number) {
        return a->number < b->number ? -1 : 1;
    }
    return a->place < b->place ? -1 : 1;
}

/* From now on blocks have the index of their thread. */
static bool list_threads(umf_reader_t *reader, umf_reader_error_t *error) {
    size_t blocks = reader->block_count;
    if (blocks) {
        qsort(reader->blocks, blocks, sizeof(*reader->blocks), by_thread_and_number);
    }
    reader->threads = reader_memory(reader, blocks, sizeof(*reader->threads), error);
    reader->thread_blocks =
        reader->threads ? reader_memory(reader, blocks + 1, sizeof(size_t), error) : NULL;
    if (!reader->thread_blocks) {
        return false;
    }
    uint32_t count = 0;
    for (size_t i = 0; i < blocks; i++) {
        uint32_t thread = reader->blocks[i].thread;
        if (count == 0 || reader->threads[count - 1] != thread) {
            reader->threads[count] = thread;
            reader->thread_blocks[count++] = i;
        }
        reader->blocks[i].thread = count - 1;
    }
    reader->thread_blocks[count] = blocks;
    reader->info.thread_count = count;
    return true;
}

static void find_times(umf_reader_t *reader) {
    for (size_t i = 0; i < reader->block_count; i++) {
        const reader_block_t *block = &reader->blocks[i];
        reader->info.older_count += umf_reader_is_older(reader, block->thread) ? block->count : 0;
        int64_t first = umf_reader_ns(reader, block->events[0].ticks);
        int64_t last = umf_reader_ns(reader, block->events[block->count - 1].ticks);
        umf_reader_info_t *info = &reader->info;
        info->first_ns = i == 0 || first < info->first_ns ? first : info->first_ns;
        info->last_ns = i == 0 || last > info->last_ns ? last : info->last_ns;
    }
    if (reader->info.last_ns < reader->info.first_ns) {
        reader->info.last_ns = reader->info.first_ns;
    }
}

bool reader_load_blocks(umf_reader_t *reader, umf_reader_error_t *error) {
    loading_t loading = {reader, reader_memory(reader, 1, sizeof(umf_record_block_t), error), 0};
    bool is_listed = loading.head && list_blocks(&loading, error);
    reader->events = is_listed ? reader_memory(reader, reader->info.event_count,
                                               sizeof(umf_record_event_t), error)
                               : NULL;
    if (reader->events) {
        copy_blocks(&loading);
    }
    free(loading.head);
    if (!reader->events || !list_threads(reader, error)) {
        return false;
    }
    find_times(reader);
    return true;
}

uint32_t umf_reader_thread(const umf_reader_t *reader, uint32_t index) {
    return index < reader->info.thread_count ? reader->threads[index] : 0;
}

bool umf_reader_is_older(const umf_reader_t *reader, uint32_t thread) {
    return umf_reader_thread(reader, thread) == UMF_RECORD_THREAD_OLDER;
}

/* --- by time ---------------------------------------------------------------------------------- */

/* Where a thread is: its next event, the end of the block, and the next block. */
typedef struct place_t {
    uint64_t ticks;
    const umf_record_event_t *next, *end;
    size_t block;
    uint32_t thread;
} place_t;

/* A heap of the threads that have more events, the one with the earliest in front. */
struct umf_reader_cursor_t {
    const umf_reader_t *reader;
    int64_t now;
    uint64_t done;
    size_t count;
    place_t heap[];
};

static bool is_before(const place_t *a, const place_t *b) {
    return a->ticks != b->ticks ? a->ticks < b->ticks : a->thread < b->thread;
}

static void sift_down(umf_reader_cursor_t *cursor, size_t at) {
    place_t moved = cursor->heap[at];
    for (size_t child; (child = 2 * at + 1) < cursor->count; at = child) {
        if (child + 1 < cursor->count &&
            is_before(&cursor->heap[child + 1], &cursor->heap[child])) {
            child++;
        }
        if (!is_before(&cursor->heap[child], &moved)) {
            break;
        }
        cursor->heap[at] = cursor->heap[child];
    }
    cursor->heap[at] = moved;
}

static void enter_block(const umf_reader_t *reader, place_t *place, size_t index) {
    const reader_block_t *block = &reader->blocks[index];
    *place = (place_t){block->events[0].ticks, block->events, block->events + block->count, index,
                       block->thread};
}

umf_reader_cursor_t *umf_reader_iterate(const umf_reader_t *reader, umf_reader_error_t *error) {
    size_t count = reader->info.thread_count;
    umf_reader_cursor_t *cursor =
        reader_memory(reader, 1, sizeof(*cursor) + count * sizeof(place_t), error);
    if (!cursor) {
        return NULL;
    }
    cursor->reader = reader;
    cursor->now = reader->info.first_ns;
    cursor->count = count;
    for (size_t i = 0; i < count; i++) {
        enter_block(reader, &cursor->heap[i], reader->thread_blocks[i]);
    }
    for (size_t i = count / 2; i-- > 0;) {
        sift_down(cursor, i);
    }
    return cursor;
}

#define PROGRESS_EVERY 65536u

static void report_progress(const umf_reader_cursor_t *cursor, uint64_t done) {
    const umf_reader_t *reader = cursor->reader;
    if (reader->progress && reader->info.event_count > PROGRESS_EVERY) {
        reader->progress(done, reader->info.event_count);
    }
}

void umf_reader_cursor_free(umf_reader_cursor_t *cursor) {
    if (cursor) {
        report_progress(cursor, cursor->reader->info.event_count);
    }
    free(cursor);
}

void umf_reader_set_progress(umf_reader_t *reader,
                             void (*progress)(uint64_t done, uint64_t total)) {
    reader->progress = progress;
}

/* The thread in front goes one event on. */
static void advance(umf_reader_cursor_t *cursor) {
    place_t *place = &cursor->heap[0];
    place->next++;
    if (place->next < place->end) {
        place->ticks = place->next->ticks;
    } else if (place->block + 1 < cursor->reader->thread_blocks[place->thread + 1]) {
        enter_block(cursor->reader, place, place->block + 1);
    } else {
        *place = cursor->heap[--cursor->count];
    }
    sift_down(cursor, 0);
}

static bool is_selected(const umf_reader_t *reader, const umf_record_event_t *event) {
    int64_t ns = umf_reader_ns(reader, event->ticks);
    return ns >= reader->info.from_ns && ns <= reader->info.to_ns &&
           !umf_reader_is_left_out(reader, reader_object_of(reader, event->what));
}

static int64_t time_of(umf_reader_cursor_t *cursor, uint64_t ticks) {
    int64_t ns = umf_reader_ns(cursor->reader, ticks);
    int64_t last = cursor->reader->info.last_ns;
    ns = ns < last ? ns : last;
    return cursor->now = ns > cursor->now ? ns : cursor->now;
}

bool umf_reader_next(umf_reader_cursor_t *cursor, umf_reader_event_t *event) {
    while (cursor->count) {
        const place_t *place = &cursor->heap[0];
        const umf_record_event_t *from = place->next;
        uint32_t kind = UMF_RECORD_EVENT_KIND(from->what);
        bool is_known = kind >= UMF_RECORD_ALLOC && kind <= UMF_READER_KIND_LAST &&
                        is_selected(cursor->reader, from);
        if (is_known) {
            *event = (umf_reader_event_t){.ns = time_of(cursor, from->ticks),
                                          .address = from->address,
                                          .size = from->size,
                                          .kind = (umf_record_event_kind_t)kind,
                                          .object = reader_object_of(cursor->reader, from->what),
                                          .stack = reader_stack_of(cursor->reader, from->what),
                                          .thread = place->thread,
                                          .queue = UMF_RECORD_EVENT_QUEUE(from->what),
                                          .is_older =
                                              umf_reader_is_older(cursor->reader, place->thread)};
        }
        advance(cursor);
        if (++cursor->done % PROGRESS_EVERY == 0) {
            report_progress(cursor, cursor->done);
        }
        if (is_known) {
            return true;
        }
    }
    return false;
}
