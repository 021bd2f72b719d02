/*
 * Memory that lived before a recording began. It is found by a snapshot that was taken just after
 * the beginning: a block of it lived before if the first event of its pool and address is no
 * allocation. Such blocks are added to the file as events of the first moment.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "live_table.h"
#include "own.h"

#define BLOCKS_MOST (UINT64_C(1) << 24) /* of the program that are added */

typedef struct older_t {
    const umf_reader_t *recording, *snapshot;
    uint32_t *numbers;          /* of objects in the recording, by those in the snapshot; 0: none */
    live_table_t blocks, spans; /* `site` is 0 when the first event was seen */
    umf_reader_error_t *error;
} older_t;

/* --- what the snapshot has -------------------------------------------------------------------- */

static bool is_same(const umf_record_object_t *a, const umf_record_object_t *b) {
    return a->kind == b->kind && a->birth == b->birth && a->birth != 0 && a->handle == b->handle;
}

/* Objects of both ascend by creation, more or less. */
static void match(older_t *older) {
    uint32_t count = older->recording->info.object_count, at = 1;
    for (uint32_t i = 1; i < older->snapshot->info.object_count; i++) {
        for (uint32_t tried = 1; tried < count; tried++) {
            uint32_t candidate = 1 + (at + tried - 2) % (count - 1);
            if (is_same(&older->snapshot->objects[i], &older->recording->objects[candidate])) {
                older->numbers[i] = candidate;
                at = candidate + 1;
                break;
            }
        }
    }
}

static bool add(live_table_t *table, uint64_t address, uint64_t size, uint32_t object) {
    umf_reader_live_t what = {
        .address = address, .size = size, .object = object, .site = UINT32_MAX};
    return address == 0 || size == 0 || live_table_find(table, address, object) ||
           live_table_add(table, &what);
}

/* A run outside its span is left out. */
static bool add_run(older_t *older, const umf_record_span_t *span, const umf_record_run_t *run,
                    uint32_t object) {
    uint64_t room = run->base >= span->base ? span->size - (run->base - span->base) : 0;
    bool is_inside = run->size > 0 && run->base - span->base <= span->size &&
                     run->count <= room / run->size && run->state == UMF_RECORD_STATE_LIVE;
    for (uint32_t i = 0; is_inside && i < run->count; i++) {
        if (older->blocks.count >= BLOCKS_MOST ||
            !add(&older->blocks, run->base + i * run->size, run->size, object)) {
            return false;
        }
    }
    return true;
}

static bool take_snapshot(older_t *older) {
    size_t spans, runs;
    const umf_record_span_t *span = umf_reader_spans(older->snapshot, &spans);
    const umf_record_run_t *run = umf_reader_runs(older->snapshot, &runs);
    bool is_taken = true;
    for (size_t i = 0; is_taken && i < spans; i++) {
        uint32_t object = older->numbers[span[i].object];
        if (object == 0 || (span[i].flags & UMF_RECORD_SPAN_IS_IMPORT)) {
            continue;
        }
        is_taken = add(&older->spans, span[i].base, span[i].size, object);
        for (uint32_t j = 0; is_taken && j < span[i].run_count; j++) {
            is_taken = add_run(older, &span[i], &run[span[i].first_run + j], object);
        }
    }
    return is_taken ||
           reader_fail(older->error, "%s: there are too many live blocks for a list of them",
                       older->recording->name);
}

/* --- what the events say ---------------------------------------------------------------------- */

static void see(const live_table_t *table, const umf_reader_event_t *event, bool is_allocation) {
    umf_reader_live_t *what = live_table_find(table, event->address, event->object);
    if (what && what->site != 0) {
        what->site = 0;
        what->size = is_allocation ? 0 : what->size; /* it came later */
    }
}

static bool see_events(older_t *older) {
    umf_reader_cursor_t *cursor = umf_reader_iterate(older->recording, older->error);
    umf_reader_event_t event;
    while (cursor && umf_reader_next(cursor, &event)) {
        if (event.kind == UMF_RECORD_ALLOC || event.kind == UMF_RECORD_FREE) {
            see(&older->blocks, &event, event.kind == UMF_RECORD_ALLOC);
        } else if (event.kind == UMF_RECORD_PROVIDER_ALLOC ||
                   event.kind == UMF_RECORD_PROVIDER_FREE) {
            see(&older->spans, &event, event.kind == UMF_RECORD_PROVIDER_ALLOC);
        }
    }
    umf_reader_cursor_free(cursor);
    return cursor != NULL;
}

/* --- the file --------------------------------------------------------------------------------- */

typedef struct writing_t {
    int fd;
    umf_record_header_t header;
    umf_record_block_t *block;
    uint64_t added; /* blocks of events */
    bool has_failed;
} writing_t;

static void write_at(writing_t *writing, const void *from, size_t size, uint64_t offset) {
    for (size_t done = 0; done < size && !writing->has_failed;) {
        ssize_t put =
            pwrite(writing->fd, (const char *)from + done, size - done, (off_t)(offset + done));
        writing->has_failed = put < 0 && errno != EINTR;
        done += put > 0 ? (size_t)put : 0;
    }
}

static uint64_t end_of_blocks(const writing_t *writing) {
    const umf_record_section_t *blocks = &writing->header.sections[UMF_RECORD_BLOCKS];
    return blocks->offset + (blocks->capacity + writing->added) * sizeof(umf_record_block_t);
}

static void write_block(writing_t *writing) {
    if (writing->block->count > 0) {
        writing->block->number = writing->added + 1;
        write_at(writing, writing->block, sizeof(*writing->block), end_of_blocks(writing));
        writing->added++;
        writing->block->count = 0;
    }
}

static void write_table(writing_t *writing, const live_table_t *table,
                        umf_record_event_kind_t kind) {
    umf_record_block_t *block = writing->block;
    for (size_t i = 0; i <= table->mask; i++) {
        const umf_reader_live_t *what = &table->slots[i];
        if (what->address && what->size > 0) {
            block->events[block->count++] =
                (umf_record_event_t){.ticks = block->ticks,
                                     .address = what->address,
                                     .size = what->size,
                                     .what = UMF_RECORD_WHAT(kind, 0, what->object, 0)};
            if (block->count == UMF_RECORD_BLOCK_EVENTS) {
                write_block(writing);
            }
        }
    }
}

/* The header comes last: until then the file is as it was for its readers. */
static bool write_all(const older_t *older, writing_t *writing) {
    umf_record_section_t *blocks = &writing->header.sections[UMF_RECORD_BLOCKS];
    struct stat file;
    bool has_size = fstat(writing->fd, &file) == 0;
    writing->block->thread = UMF_RECORD_THREAD_OLDER;
    writing->block->ticks = writing->header.ticks[0];
    writing->block->ns = writing->header.ns[0];
    write_table(writing, &older->spans, UMF_RECORD_PROVIDER_ALLOC);
    write_table(writing, &older->blocks, UMF_RECORD_ALLOC);
    write_block(writing);
    uint64_t end = end_of_blocks(writing);
    blocks->capacity += writing->added;
    blocks->count += writing->added;
    writing->header.flags |= UMF_RECORD_HAS_OLDER;
    writing->header.file_size = end > writing->header.file_size ? end : writing->header.file_size;
    if (end < writing->header.file_size &&
        ftruncate(writing->fd, (off_t)writing->header.file_size) != 0) {
        writing->has_failed = true;
    }
    write_at(writing, &writing->header, sizeof(writing->header), 0);
    int reason = errno;
    if (writing->has_failed && has_size && ftruncate(writing->fd, file.st_size) == 0) {
        writing->added = 0;
    }
    return !writing->has_failed ||
           reader_fail(older->error, "%s: %s", older->recording->name, strerror(reason));
}

/* The blocks of events can grow only at the end of the file. */
static bool may_grow(const umf_reader_t *recording, int fd) {
    const umf_record_section_t *sections = recording->header.sections;
    const umf_record_section_t *blocks = &sections[UMF_RECORD_BLOCKS];
    struct stat file;
    bool may =
        blocks->offset > 0 && fstat(fd, &file) == 0 && blocks->offset <= (uint64_t)file.st_size &&
        blocks->capacity <= ((uint64_t)file.st_size - blocks->offset) / sizeof(umf_record_block_t);
    for (int i = 0; i < UMF_RECORD_SECTIONS; i++) {
        may = may && sections[i].offset <= sections[UMF_RECORD_BLOCKS].offset;
    }
    return may;
}

static bool check(const older_t *older, int fd) {
    const umf_reader_info_t *info = &older->recording->info;
    if (info->kind != UMF_RECORD_FILE_RECORDING || !may_grow(older->recording, fd) ||
        (info->flags & UMF_RECORD_HAS_OLDER) || older->recording->header.names != 0 ||
        info->pid != older->snapshot->info.pid) {
        return reader_fail(older->error, "%s: no recording of process %" PRIu32 " as it is made",
                           older->recording->name, older->snapshot->info.pid);
    } else if (info->dropped > 0) {
        return reader_fail(older->error,
                           "%s: its oldest events are lost, so memory that lived before it began "
                           "is left out; record into a larger file",
                           older->recording->name);
    }
    return true;
}

bool umf_reader_older_write(const umf_reader_t *recording, const umf_reader_t *snapshot, int fd,
                            uint64_t *bytes, umf_reader_error_t *error) {
    older_t older = {.recording = recording, .snapshot = snapshot, .error = error};
    writing_t writing = {.fd = fd, .header = recording->header};
    bool is_done = check(&older, fd);
    if (is_done) {
        older.numbers =
            reader_memory(recording, snapshot->info.object_count, sizeof(uint32_t), error);
        writing.block = reader_memory(recording, 1, sizeof(*writing.block), error);
        is_done = older.numbers && writing.block &&
                  ((live_table_init(&older.blocks) && live_table_init(&older.spans)) ||
                   reader_fail(error, "%s: there is no memory for live blocks", recording->name));
    }
    if (is_done) {
        match(&older);
        is_done = take_snapshot(&older) && see_events(&older) && write_all(&older, &writing);
    }
    *bytes = is_done ? writing.added * sizeof(umf_record_block_t) : 0;
    live_table_free(&older.blocks);
    live_table_free(&older.spans);
    free(older.numbers);
    free(writing.block);
    return is_done;
}
