/* The header, and the sections that are tables: nothing of them is believed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "own.h"

static const struct {
    const char *name;
    uint32_t item_size;
    uint64_t most; /* items that numbers elsewhere in the file can mean */
} kinds[UMF_RECORD_SECTIONS] = {
    [UMF_RECORD_OBJECTS] = {"objects", sizeof(umf_record_object_t), 1u << 24},
    [UMF_RECORD_TEXTS] = {"texts", 1, 1u << 30},
    [UMF_RECORD_MODULES] = {"modules", sizeof(umf_record_module_t), 1u << 20},
    [UMF_RECORD_STACKS] = {"stacks", sizeof(uint64_t), 1u << 24},
    [UMF_RECORD_LIVE] = {"live", sizeof(umf_record_event_t), UINT64_MAX},
    [UMF_RECORD_BLOCKS] = {"blocks", sizeof(umf_record_block_t), UINT64_MAX},
    [UMF_RECORD_SPANS] = {"spans", sizeof(umf_record_span_t), UINT64_MAX},
    [UMF_RECORD_RUNS] = {"runs", sizeof(umf_record_run_t), UINT32_MAX},
};

/* --- the header ------------------------------------------------------------------------------- */

static bool check_kind(const umf_reader_t *reader, umf_reader_error_t *error) {
    const umf_record_header_t *header = &reader->header;
    if (memcmp(header->magic, UMF_RECORD_MAGIC, sizeof(header->magic)) != 0) {
        return reader_fail(error, "%s: not a recording: it does not begin with UMFREC",
                           reader->name);
    } else if (reader->source.size < sizeof(*header)) {
        return reader_fail(error, "%s: its header is cut off: it has %" PRIu64 " bytes, not %zu",
                           reader->name, reader->source.size, sizeof(*header));
    } else if (header->version != UMF_RECORD_VERSION) {
        return reader_fail(error, "%s: it has version %" PRIu32 " of the format, this reads %u",
                           reader->name, header->version, UMF_RECORD_VERSION);
    } else if (header->kind != UMF_RECORD_FILE_RECORDING &&
               header->kind != UMF_RECORD_FILE_SNAPSHOT) {
        return reader_fail(error, "%s: neither a recording nor a snapshot: its kind is %" PRIu32,
                           reader->name, header->kind);
    }
    return true;
}

static bool check_section(umf_reader_t *reader, int kind, umf_reader_error_t *error) {
    const umf_record_section_t *section = &reader->header.sections[kind];
    if (section->offset == 0) {
        return true;
    } else if (section->item_size != kinds[kind].item_size) {
        return reader_fail(error, "%s: section %s has items of %" PRIu32 " bytes, not of %" PRIu32,
                           reader->name, kinds[kind].name, section->item_size,
                           kinds[kind].item_size);
    } else if (section->offset % 64 != 0 || section->offset < sizeof(reader->header)) {
        return reader_fail(error,
                           "%s: section %s begins at %" PRIu64
                           ", which is no multiple of 64 after the header",
                           reader->name, kinds[kind].name, section->offset);
    }
    if (section->offset > reader->source.size ||
        section->capacity > (reader->source.size - section->offset) / section->item_size) {
        reader_note(reader,
                    "section %s, %" PRIu64 " items at %" PRIu64
                    ", ends after the end of the file at %" PRIu64,
                    kinds[kind].name, section->capacity, section->offset, reader->source.size);
    }
    return true;
}

uint64_t reader_capacity(const umf_reader_t *reader, umf_record_section_kind_t kind) {
    const umf_record_section_t *section = &reader->header.sections[kind];
    if (section->offset == 0 || section->offset > reader->source.size) {
        return 0;
    }
    uint64_t fit = (reader->source.size - section->offset) / kinds[kind].item_size;
    fit = fit < kinds[kind].most ? fit : kinds[kind].most;
    return section->capacity < fit ? section->capacity : fit;
}

/* Both clocks were read twice; a second reading that is close to the first says nothing. */
static void set_clock(umf_reader_t *reader) {
    const umf_record_header_t *header = &reader->header;
    uint64_t ns = header->ns[1] - header->ns[0], ticks = header->ticks[1] - header->ticks[0];
    bool is_late = header->ns[1] > header->ns[0] && header->ticks[1] > header->ticks[0];
    if (is_late && ns >= 1000000) {
        reader->ns_per_tick = (double)ns / (double)ticks;
    } else if (header->ticks_per_second) {
        reader->ns_per_tick = 1e9 / (double)header->ticks_per_second;
    } else {
        reader->ns_per_tick = 1;
        reader_note(reader, "it has no rate of its clock; 1 GHz is assumed");
    }
}

int64_t umf_reader_ns(const umf_reader_t *reader, uint64_t ticks) {
    const double most = (double)(INT64_C(1) << 62);
    double ns = (double)(int64_t)(ticks - reader->header.ticks[0]) * reader->ns_per_tick;
    return (int64_t)(ns > most ? most : ns < -most ? -most : ns);
}

bool reader_check_header(umf_reader_t *reader, umf_reader_error_t *error) {
    umf_record_header_t *header = &reader->header;
    reader_read(&reader->source, 0, header, sizeof(*header));
    if (!check_kind(reader, error)) {
        return false;
    }
    for (int kind = 0; kind < UMF_RECORD_SECTIONS; kind++) {
        if (!check_section(reader, kind, error)) {
            return false;
        }
    }
    if (header->file_size > reader->source.size) {
        reader_note(reader, "the file is cut off: it has %" PRIu64 " of %" PRIu64 " bytes",
                    reader->source.size, header->file_size);
    }
    umf_reader_info_t *info = &reader->info;
    info->kind = (umf_record_file_kind_t)header->kind;
    info->flags = header->flags;
    info->pid = header->pid;
    info->realtime = header->realtime;
    info->dropped = header->dropped;
    info->live_dropped = header->live_dropped;
    info->ended_count = header->ended_count;
    info->ended_bytes = header->ended_bytes;
    info->rate = header->rate ? header->rate : 1;
    info->min_size = header->min_size;
    info->max_size = header->max_size;
    set_clock(reader);
    return true;
}

/* --- tables ----------------------------------------------------------------------------------- */

/* A copy of a section and `more` bytes of zeroes. */
static void *load(umf_reader_t *reader, umf_record_section_kind_t kind, size_t more,
                  uint64_t *count, umf_reader_error_t *error) {
    const umf_record_section_t *section = &reader->header.sections[kind];
    uint64_t capacity = reader_capacity(reader, kind);
    *count = section->count < capacity ? section->count : capacity;
    if (section->offset && section->count > section->capacity) {
        reader_note(reader, "section %s is full: some of what came later is missing in it",
                    kinds[kind].name);
    }
    size_t bytes = (size_t)*count * kinds[kind].item_size;
    void *items = reader_memory(reader, bytes + more, 1, error);
    if (items) {
        reader_read(&reader->source, section->offset, items, bytes);
    }
    return items;
}

static bool load_objects(umf_reader_t *reader, umf_reader_error_t *error) {
    uint64_t count;
    reader->objects = load(reader, UMF_RECORD_OBJECTS, sizeof(umf_record_object_t), &count, error);
    if (!reader->objects) {
        return false;
    }
    /* Item 0 stands for none. */
    memset(reader->objects, 0, sizeof(*reader->objects));
    reader->info.object_count = count ? (uint32_t)count : 1;
    for (uint32_t i = 0; i < reader->info.object_count; i++) {
        umf_record_object_t *object = &reader->objects[i];
        object->name[sizeof(object->name) - 1] = '\0';
        object->parent = object->parent < count ? object->parent : 0;
        if (object->kind > UMF_RECORD_OBJECT_PROVIDER) {
            reader_note(reader, "object %" PRIu32 " is of the unknown kind %" PRIu32, i,
                        object->kind);
            object->kind = 0;
        }
    }
    return true;
}

static bool load_spans(umf_reader_t *reader, umf_reader_error_t *error) {
    uint64_t spans, runs, bad = 0;
    reader->spans = load(reader, UMF_RECORD_SPANS, 0, &spans, error);
    reader->runs = reader->spans ? load(reader, UMF_RECORD_RUNS, 0, &runs, error) : NULL;
    if (!reader->runs) {
        return false;
    }
    for (uint64_t i = 0; i < spans; i++) {
        umf_record_span_t *span = &reader->spans[i];
        span->object = span->object < reader->info.object_count ? span->object : 0;
        if (span->first_run > runs || span->run_count > runs - span->first_run) {
            span->first_run = span->run_count = 0;
            bad++;
        }
        if (span->size > UINT64_MAX - span->base) {
            span->size = UINT64_MAX - span->base;
        }
    }
    if (bad) {
        reader_note(reader, "%" PRIu64 " spans have runs after the last of %" PRIu64, bad, runs);
    }
    reader->span_count = (size_t)spans;
    reader->run_count = (size_t)runs;
    return true;
}

bool reader_load_tables(umf_reader_t *reader, umf_reader_error_t *error) {
    uint64_t modules;
    reader->texts = load(reader, UMF_RECORD_TEXTS, 1, &reader->text_bytes, error);
    reader->modules = reader->texts ? load(reader, UMF_RECORD_MODULES, 0, &modules, error) : NULL;
    if (!reader->modules) {
        return false;
    }
    reader->info.module_count = (uint32_t)modules;
    return load_objects(reader, error) && load_spans(reader, error);
}

bool reader_load_stacks(umf_reader_t *reader, umf_reader_error_t *error) {
    uint64_t count;
    reader->info.stack_count = 1;
    reader->stack_items = load(reader, UMF_RECORD_STACKS, 0, &count, error);
    reader->stack_starts =
        reader->stack_items ? reader_memory(reader, count / 2 + 1, sizeof(uint32_t), error) : NULL;
    reader->stack_of_item =
        reader->stack_starts ? reader_memory(reader, count, sizeof(uint32_t), error) : NULL;
    if (!reader->stack_of_item) {
        return false;
    }
    reader->stack_item_count = count;
    /* Item 0 is no stack; zeroes are of stacks that are about to be written. */
    for (uint64_t at = 1; at < count; at++) {
        uint64_t frames = reader->stack_items[at];
        if (frames > UMF_RECORD_FRAMES || frames >= count - at) {
            reader_note(reader,
                        "the stack at item %" PRIu64 " of %" PRIu64 " has %" PRIu64
                        " frames; stacks from there on are left out",
                        at, count, frames);
            break;
        } else if (frames) {
            reader->stack_of_item[at] = reader->info.stack_count;
            reader->stack_starts[reader->info.stack_count++] = (uint32_t)at;
            at += frames;
        }
    }
    return true;
}

/* --- queries of others ------------------------------------------------------------------------ */

const umf_reader_info_t *umf_reader_info(const umf_reader_t *reader) {
    return &reader->info;
}

const umf_record_object_t *umf_reader_object(const umf_reader_t *reader, uint32_t number) {
    return &reader->objects[number < reader->info.object_count ? number : 0];
}

const char *umf_reader_label(const umf_reader_t *reader, uint32_t number, char *text, size_t size) {
    const umf_record_object_t *object = umf_reader_object(reader, number);
    snprintf(text, size, object->kind ? "%s #%" PRIu32 : "?", object->name, number);
    return text;
}

const char *umf_reader_text(const umf_reader_t *reader, uint64_t offset) {
    return offset < reader->text_bytes ? reader->texts + offset : "";
}

const umf_record_span_t *umf_reader_spans(const umf_reader_t *reader, size_t *count) {
    *count = reader->span_count;
    return reader->spans;
}

const umf_record_run_t *umf_reader_runs(const umf_reader_t *reader, size_t *count) {
    *count = reader->run_count;
    return reader->runs;
}

size_t umf_reader_stack(const umf_reader_t *reader, uint32_t stack, const uint64_t **frames) {
    if (stack == 0 || stack >= reader->info.stack_count) {
        return 0;
    }
    const uint64_t *items = &reader->stack_items[reader->stack_starts[stack]];
    *frames = items + 1;
    return (size_t)items[0];
}

uint32_t reader_object_of(const umf_reader_t *reader, uint64_t what) {
    uint32_t object = UMF_RECORD_EVENT_OBJECT(what);
    return object < reader->info.object_count ? object : 0;
}

uint32_t reader_stack_of(const umf_reader_t *reader, uint64_t what) {
    uint32_t item = UMF_RECORD_EVENT_STACK(what);
    return item < reader->stack_item_count ? reader->stack_of_item[item] : 0;
}
