/* PyTorch's snapshot of memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "own.h"
#include "pickle.h"

#define ENTRIES_MOST 1000000u
#define BATCH 1000u /* items that a reader of the pickle has on its stack at once */

/* The words of the format. */
enum {
    ACTION,
    ACTIVE_ALLOCATED,
    ACTIVE_SIZE,
    ADDR,
    ADDRESS,
    ALLOC,
    ALLOCATED_SIZE,
    ALLOCATOR_SETTINGS,
    BLOCKS,
    DEVICE,
    DEVICE_FREE,
    DEVICE_TRACES,
    EXTERNAL_ANNOTATIONS,
    FILENAME,
    FRAMES,
    FREE_COMPLETED,
    FREE_REQUESTED,
    INACTIVE,
    IS_EXPANDABLE,
    LARGE,
    LINE,
    NAME,
    OOM,
    REQUESTED_SIZE,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_TYPE,
    SEGMENT_UNMAP,
    SEGMENTS,
    SIZE,
    STATE,
    STREAM,
    TIME_US,
    TOTAL_SIZE,
    WORDS
};

static const char *const words[WORDS] = {"action",
                                         "active_allocated",
                                         "active_size",
                                         "addr",
                                         "address",
                                         "alloc",
                                         "allocated_size",
                                         "allocator_settings",
                                         "blocks",
                                         "device",
                                         "device_free",
                                         "device_traces",
                                         "external_annotations",
                                         "filename",
                                         "frames",
                                         "free_completed",
                                         "free_requested",
                                         "inactive",
                                         "is_expandable",
                                         "large",
                                         "line",
                                         "name",
                                         "oom",
                                         "requested_size",
                                         "segment_alloc",
                                         "segment_free",
                                         "segment_map",
                                         "segment_type",
                                         "segment_unmap",
                                         "segments",
                                         "size",
                                         "state",
                                         "stream",
                                         "time_us",
                                         "total_size"};

typedef struct pytorch_t {
    umf_reader_t *reader;
    umf_reader_replay_t *replay;
    pickle_t pickle;
    bool has_word[WORDS];      /* it was written already, and is kept under its number */
    bool *has_stack;           /* likewise, under WORDS and its number */
    umf_reader_live_t *blocks; /* live allocations, by address */
    size_t block_count, next_block;
} pytorch_t;

/* --- pieces ----------------------------------------------------------------------------------- */

static void word(pytorch_t *pytorch, uint32_t number) {
    if (pytorch->has_word[number]) {
        pickle_give(&pytorch->pickle, number);
    } else {
        pickle_text(&pytorch->pickle, words[number]);
        pickle_keep(&pytorch->pickle, number);
        pytorch->has_word[number] = true;
    }
}

static void number_member(pytorch_t *pytorch, uint32_t name, uint64_t number) {
    word(pytorch, name);
    pickle_int(&pytorch->pickle, number);
}

static void word_member(pytorch_t *pytorch, uint32_t name, uint32_t text) {
    word(pytorch, name);
    word(pytorch, text);
}

static void frame(pytorch_t *pytorch, const umf_reader_frame_t *at) {
    char text[512];
    pickle_dict(&pytorch->pickle);
    pickle_open(&pytorch->pickle);
    word(pytorch, FILENAME);
    pickle_text(&pytorch->pickle, at->source ? at->source : at->module);
    number_member(pytorch, LINE, at->line);
    word(pytorch, NAME);
    pickle_text(&pytorch->pickle,
                at->function ? at->function : umf_reader_frame_text(at, text, sizeof(text)));
    pickle_close_dict(&pytorch->pickle);
}

static void frames_member(pytorch_t *pytorch, uint32_t stack) {
    const uint64_t *frames = NULL;
    word(pytorch, FRAMES);
    if (pytorch->has_stack[stack]) {
        pickle_give(&pytorch->pickle, WORDS + stack);
        return;
    }
    size_t count = umf_reader_caller_stack(pytorch->reader, stack, &frames);
    pickle_list(&pytorch->pickle);
    pickle_keep(&pytorch->pickle, WORDS + stack);
    pickle_open(&pytorch->pickle);
    for (size_t i = 0; i < count; i++) {
        const umf_reader_frame_t *all;
        size_t inlined = umf_reader_resolve_all(pytorch->reader, frames[i], &all);
        for (size_t j = 0; j < inlined; j++) {
            frame(pytorch, &all[j]);
        }
    }
    pickle_close_list(&pytorch->pickle);
    pytorch->has_stack[stack] = true;
}

/* A list that is being written: how many items it has. */
typedef struct list_t {
    uint64_t count;
} list_t;

static list_t open_list(pytorch_t *pytorch) {
    pickle_list(&pytorch->pickle);
    pickle_open(&pytorch->pickle);
    return (list_t){0};
}

/* In front of each item. */
static void next_item(pytorch_t *pytorch, list_t *list) {
    if (list->count++ % BATCH == BATCH - 1) {
        pickle_close_list(&pytorch->pickle);
        pickle_open(&pytorch->pickle);
    }
}

/* Since 1970, as PyTorch's are. */
static uint64_t time_of(const pytorch_t *pytorch, int64_t ns) {
    uint64_t since = ns > 0 ? (uint64_t)ns : 0;
    return (pytorch->reader->info.realtime / 2 + since / 2) / 500;
}

/* --- segments --------------------------------------------------------------------------------- */

static int by_address(const void *left, const void *right) {
    const umf_reader_live_t *a = left, *b = right;
    if (a->address != b->address) {
        return a->address < b->address ? -1 : 1;
    }
    return a->size < b->size ? -1 : a->size > b->size;
}

typedef const umf_reader_live_t *next_t(const umf_reader_replay_t *replay, size_t *position);

/* A copy by address; NULL: `error` says why. */
static umf_reader_live_t *sorted(const pytorch_t *pytorch, next_t *next, size_t *count,
                                 umf_reader_error_t *error) {
    const umf_reader_live_t *live;
    size_t at = 0;
    *count = 0;
    while ((live = next(pytorch->replay, &at)) != NULL) {
        ++*count;
    }
    umf_reader_live_t *copy = reader_memory(pytorch->reader, *count, sizeof(*copy), error);
    at = 0;
    for (size_t i = 0; copy && (live = next(pytorch->replay, &at)) != NULL; i++) {
        copy[i] = *live;
    }
    if (copy && *count) {
        qsort(copy, *count, sizeof(*copy), by_address);
    }
    return copy;
}

static void block(pytorch_t *pytorch, list_t *list, uint64_t address, uint64_t size, uint32_t state,
                  uint32_t stack) {
    next_item(pytorch, list);
    pickle_dict(&pytorch->pickle);
    pickle_open(&pytorch->pickle);
    number_member(pytorch, ADDRESS, address);
    number_member(pytorch, SIZE, size);
    number_member(pytorch, REQUESTED_SIZE, size);
    word_member(pytorch, STATE, state);
    frames_member(pytorch, stack);
    pickle_close_dict(&pytorch->pickle);
}

/* Live blocks of a segment, and the free ones in between. Returns the live bytes. */
static uint64_t blocks(pytorch_t *pytorch, uint64_t begin, uint64_t end) {
    uint64_t at = begin, live = 0;
    list_t list = open_list(pytorch);
    for (; pytorch->next_block < pytorch->block_count; pytorch->next_block++) {
        const umf_reader_live_t *next = &pytorch->blocks[pytorch->next_block];
        if (next->address >= end) {
            break;
        } else if (next->address < at || next->size > end - next->address) {
            continue; /* of a pool inside of another one's memory, or damaged */
        } else if (next->address > at) {
            block(pytorch, &list, at, next->address - at, INACTIVE, 0);
        }
        block(pytorch, &list, next->address, next->size, ACTIVE_ALLOCATED, next->stack);
        at = next->address + next->size;
        live += next->size;
    }
    if (at < end) {
        block(pytorch, &list, at, end - at, INACTIVE, 0);
    }
    pickle_close_list(&pytorch->pickle);
    return live;
}

/* Everything of a segment but its blocks, which stand between these two. */
static void begin_segment(pytorch_t *pytorch, uint64_t address, uint64_t size, uint32_t stack,
                          bool is_expandable) {
    pickle_dict(&pytorch->pickle);
    pickle_open(&pytorch->pickle);
    number_member(pytorch, DEVICE, 0);
    number_member(pytorch, ADDRESS, address);
    number_member(pytorch, TOTAL_SIZE, size);
    number_member(pytorch, STREAM, 0);
    word_member(pytorch, SEGMENT_TYPE, LARGE);
    word(pytorch, IS_EXPANDABLE);
    pickle_bool(&pytorch->pickle, is_expandable);
    frames_member(pytorch, stack);
    word(pytorch, BLOCKS);
}

static void end_segment(pytorch_t *pytorch, uint64_t live) {
    number_member(pytorch, ALLOCATED_SIZE, live);
    number_member(pytorch, ACTIVE_SIZE, live);
    number_member(pytorch, REQUESTED_SIZE, live);
    pickle_close_dict(&pytorch->pickle);
}

static void segment(pytorch_t *pytorch, uint64_t address, uint64_t size, uint32_t stack,
                    bool is_expandable) {
    begin_segment(pytorch, address, size, stack, is_expandable);
    end_segment(pytorch, blocks(pytorch, address, address + size));
}

/* Live memory without a known segment gets one of its own. */
static void blocks_in_front(pytorch_t *pytorch, list_t *list, uint64_t end) {
    while (pytorch->next_block < pytorch->block_count &&
           pytorch->blocks[pytorch->next_block].address < end) {
        const umf_reader_live_t *next = &pytorch->blocks[pytorch->next_block];
        if (next->size && next->size <= end - next->address) {
            next_item(pytorch, list);
            segment(pytorch, next->address, next->size, next->stack, false);
        } else {
            pytorch->next_block++;
        }
    }
}

/* Its spans are pages, which are mapped one by one. */
static bool is_arena(const pytorch_t *pytorch, uint32_t object) {
    const umf_reader_pages_t *pages = &umf_reader_replay_object(pytorch->replay, object)->pages;
    return pages->is_known || pages->created > 0;
}

/* Spans that overlap the one before are of a damaged file, or of providers over others. */
static bool is_behind(const umf_reader_live_t *span, uint64_t last) {
    return span->address >= last && span->size <= UINT64_MAX - span->address;
}

/* The end of a segment. Pages side by side are one, as blocks lie across them. */
static uint64_t end_of_segment(const pytorch_t *pytorch, const umf_reader_live_t *spans,
                               size_t count, size_t *used) {
    uint64_t end = spans[0].address + spans[0].size;
    *used = 1;
    while (is_arena(pytorch, spans[0].object) && *used < count && spans[*used].address == end &&
           spans[*used].object == spans[0].object && is_behind(&spans[*used], end)) {
        end += spans[(*used)++].size;
    }
    return end;
}

static bool recorded_segments(pytorch_t *pytorch, list_t *list, umf_reader_error_t *error) {
    size_t count, used;
    umf_reader_live_t *spans = sorted(pytorch, umf_reader_replay_next_provided, &count, error);
    uint64_t last = 0;
    for (size_t i = 0; spans && i < count; i += used) {
        const umf_reader_live_t *first = &spans[i];
        used = 1;
        if (is_behind(first, last)) {
            last = end_of_segment(pytorch, first, count - i, &used);
            blocks_in_front(pytorch, list, first->address);
            next_item(pytorch, list);
            segment(pytorch, first->address, last - first->address, first->stack,
                    is_arena(pytorch, first->object));
        }
    }
    blocks_in_front(pytorch, list, UINT64_MAX);
    free(spans);
    return spans != NULL;
}

/* Blocks of one size and state are one block here. Returns the bytes that live. */
static uint64_t run_block(pytorch_t *pytorch, list_t *list, const umf_record_run_t *run) {
    bool is_live = run->state == UMF_RECORD_STATE_LIVE;
    bool fits = run->count == 0 || run->size <= INT64_MAX / run->count;
    uint64_t size = fits ? run->size * run->count : run->size;
    block(pytorch, list, run->base, size, is_live ? ACTIVE_ALLOCATED : INACTIVE, 0);
    return is_live ? size : 0;
}

static void snapshot_segment(pytorch_t *pytorch, const umf_record_span_t *span) {
    uint64_t live = 0;
    begin_segment(pytorch, span->base, span->size, 0, false);
    list_t list = open_list(pytorch);
    for (uint32_t i = 0; i < span->run_count; i++) {
        live += run_block(pytorch, &list, &pytorch->reader->runs[span->first_run + i]);
    }
    pickle_close_list(&pytorch->pickle);
    end_segment(pytorch, live);
}

static bool segments(pytorch_t *pytorch, umf_reader_error_t *error) {
    bool is_snapshot = pytorch->reader->info.kind == UMF_RECORD_FILE_SNAPSHOT;
    list_t list = open_list(pytorch);
    bool is_written = true;
    if (!is_snapshot) {
        is_written = recorded_segments(pytorch, &list, error);
    }
    for (size_t i = 0; is_snapshot && i < pytorch->reader->span_count; i++) {
        next_item(pytorch, &list);
        snapshot_segment(pytorch, &pytorch->reader->spans[i]);
    }
    pickle_close_list(&pytorch->pickle);
    return is_written;
}

/* --- events ----------------------------------------------------------------------------------- */

static void entry(pytorch_t *pytorch, const umf_reader_event_t *event, uint32_t action,
                  const umf_reader_live_t *what) {
    bool is_refusal = action == OOM;
    pickle_dict(&pytorch->pickle);
    pickle_open(&pytorch->pickle);
    word_member(pytorch, ACTION, action);
    number_member(pytorch, is_refusal ? DEVICE_FREE : ADDR, is_refusal ? 0 : what->address);
    number_member(pytorch, SIZE, what->size);
    number_member(pytorch, STREAM, event->queue);
    number_member(pytorch, TIME_US, time_of(pytorch, event->ns));
    frames_member(pytorch, event->stack);
    pickle_close_dict(&pytorch->pickle);
}

/* The actions that an event is; returns how many. */
static size_t actions_of(const pytorch_t *pytorch, const umf_reader_event_t *event,
                         const umf_reader_change_t *change, uint32_t actions[2]) {
    bool is_paged = is_arena(pytorch, event->object);
    size_t count = 0;
    if (change->kind == UMF_READER_ALLOCATED || change->kind == UMF_READER_RESTORED) {
        actions[count++] = ALLOC;
    } else if (change->kind == UMF_READER_FREED) {
        actions[count++] = FREE_REQUESTED;
        actions[count++] = FREE_COMPLETED;
    } else if (event->kind == UMF_RECORD_PROVIDER_ALLOC) {
        actions[count++] = is_paged ? SEGMENT_MAP : SEGMENT_ALLOC;
    } else if (event->kind == UMF_RECORD_PROVIDER_FREE) {
        actions[count++] = is_paged ? SEGMENT_UNMAP : SEGMENT_FREE;
    } else if (event->kind == UMF_RECORD_REFUSED) {
        actions[count++] = OOM;
    }
    return count;
}

/* Applies an event, and writes its actions but the first `skip` of all; without a list none. */
static bool apply(pytorch_t *pytorch, const umf_reader_event_t *event, list_t *list, uint64_t skip,
                  uint64_t *count) {
    umf_reader_change_t change = {.kind = UMF_READER_NO_CHANGE};
    umf_reader_live_t what = {.address = event->address, .size = event->size};
    uint32_t actions[2];
    if (!umf_reader_replay_apply(pytorch->replay, event, &change)) {
        return false;
    }
    size_t action_count = actions_of(pytorch, event, &change, actions);
    for (size_t i = 0; i < action_count; i++) {
        if (++*count > skip && list) {
            next_item(pytorch, list);
            entry(pytorch, event, actions[i],
                  change.kind == UMF_READER_NO_CHANGE ? &what : &change.what);
        }
    }
    return true;
}

static bool replay(pytorch_t *pytorch, list_t *list, uint64_t skip, uint64_t *count,
                   umf_reader_error_t *error) {
    umf_reader_replay_free(pytorch->replay);
    pytorch->replay = umf_reader_replay_begin(pytorch->reader, error);
    umf_reader_cursor_t *cursor =
        pytorch->replay ? umf_reader_iterate(pytorch->reader, error) : NULL;
    umf_reader_event_t event;
    bool is_done = cursor != NULL;
    *count = 0;
    while (is_done && umf_reader_next(cursor, &event)) {
        is_done = apply(pytorch, &event, list, skip, count) ||
                  reader_fail(error, "%s: there is no memory for the live allocations",
                              pytorch->reader->name);
    }
    umf_reader_cursor_free(cursor);
    return is_done;
}

/* --- the file --------------------------------------------------------------------------------- */

static bool device_traces(pytorch_t *pytorch, uint64_t skip, umf_reader_error_t *error) {
    uint64_t count;
    list_t devices = open_list(pytorch);
    next_item(pytorch, &devices);
    list_t list = open_list(pytorch);
    bool is_written = replay(pytorch, &list, skip, &count, error);
    pickle_close_list(&pytorch->pickle);
    pickle_close_list(&pytorch->pickle);
    return is_written;
}

static bool write_members(pytorch_t *pytorch, umf_reader_error_t *error) {
    uint64_t count;
    if (!replay(pytorch, NULL, 0, &count, error)) {
        return false;
    }
    pytorch->blocks = sorted(pytorch, umf_reader_replay_next, &pytorch->block_count, error);
    word(pytorch, SEGMENTS);
    if (!pytorch->blocks || !segments(pytorch, error)) {
        return false;
    }
    word(pytorch, DEVICE_TRACES);
    if (!device_traces(pytorch, count > ENTRIES_MOST ? count - ENTRIES_MOST : 0, error)) {
        return false;
    }
    word(pytorch, ALLOCATOR_SETTINGS);
    pickle_dict(&pytorch->pickle);
    word(pytorch, EXTERNAL_ANNOTATIONS);
    pickle_list(&pytorch->pickle);
    return true;
}

static bool write_file(pytorch_t *pytorch, FILE *out, umf_reader_error_t *error) {
    pickle_begin(&pytorch->pickle, out);
    pickle_dict(&pytorch->pickle);
    pickle_open(&pytorch->pickle);
    if (!write_members(pytorch, error)) {
        return false;
    }
    pickle_close_dict(&pytorch->pickle);
    pickle_end(&pytorch->pickle);
    return (fflush(out) == 0 && !ferror(out)) ||
           reader_fail(error, "the snapshot could not be written: %s", strerror(errno));
}

bool umf_reader_export_pytorch(umf_reader_t *reader, FILE *out, umf_reader_error_t *error) {
    pytorch_t pytorch = {.reader = reader};
    pytorch.has_stack = reader_memory(reader, reader->info.stack_count, sizeof(bool), error);
    bool is_written = pytorch.has_stack && write_file(&pytorch, out, error);
    umf_reader_replay_free(pytorch.replay);
    free(pytorch.has_stack);
    free(pytorch.blocks);
    return is_written;
}
