/* Address maps: the live parts of a pool's spans, at several times or in a snapshot. */
#include <string.h>

#include "parts.h"

#define SPAN_UNKNOWN 0x100u /* its blocks are not known; next to umf_record_span_flag_t */
#define SPAN_SEEN 0x200u    /* no span: where allocations were seen */

/* --- out of events ---------------------------------------------------------------------------- */

/* Pools with the most memory have maps. */
void picture_maps_prepare(picture_t *picture) {
    for (uint32_t i = 0; i < picture->pool_count && picture->map_count < PICTURE_MAPS; i++) {
        picture_object_t *object = &picture->objects[picture->pools[i]];
        object->map =
            object->ranges.count > 0 ? picture_map_make(picture, picture->pools[i]) : NULL;
        if (object->map) {
            picture->maps[picture->map_count++] = object->map;
        }
    }
}

void picture_maps_change(picture_t *picture, const umf_reader_live_t *what, bool is_more) {
    picture_object_t *object = &picture->objects[what->object];
    const picture_range_t *range =
        object->map ? picture_ranges_find(&object->ranges, what->address) : NULL;
    if (range) {
        picture_cells_add(object->map, range, what->address, what->size, is_more);
    }
}

void picture_maps_event(picture_t *picture, const umf_reader_event_t *event) {
    if (event->kind == UMF_RECORD_SUSPEND || event->kind == UMF_RECORD_RESUME) {
        picture->objects[event->object].is_suspended = event->kind == UMF_RECORD_SUSPEND;
    }
    if (event->kind == UMF_RECORD_PROVIDER_ALLOC || event->kind == UMF_RECORD_PROVIDER_FREE) {
        picture_range_t *range =
            picture_ranges_find(&picture->objects[event->object].ranges, event->address);
        if (range && range->is_span) {
            bool is_more = event->kind == UMF_RECORD_PROVIDER_ALLOC;
            range->held += is_more ? event->size : -event->size;
        }
    }
}

static bool is_there(const picture_range_t *range) {
    return !range->is_span || range->held > 0;
}

/* The most adjacent bytes of a range in cells that are empty. `covered` goes from range to range.
 * */
static uint64_t longest_of(const picture_range_t *range, const picture_map_t *map,
                           uint64_t *covered) {
    uint64_t most = 0, piece = 0;
    for (uint32_t i = 0; i < range->cells; i++) {
        uint64_t bytes = range->size - i * map->cell;
        *covered += map->full[range->first + i];
        bool is_empty = *covered == 0 && map->part[range->first + i] == 0;
        piece = is_empty ? piece + (bytes < map->cell ? bytes : map->cell) : 0;
        most = piece > most ? piece : most;
    }
    return most;
}

/* Of all spans that are there; false: none is known. */
static bool longest(const picture_ranges_t *ranges, const picture_map_t *map, uint64_t *most) {
    uint64_t covered = 0;
    bool is_known = false;
    *most = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        const picture_range_t *range = &ranges->list[i];
        uint64_t piece = longest_of(range, map, &covered);
        if (range->is_span && range->held > 0 && range->cells > 0) {
            is_known = true;
            *most = piece > *most ? piece : *most;
        }
    }
    return is_known;
}

static const char *who_is_there(picture_t *picture, const picture_ranges_t *ranges) {
    char *text = picture_take(picture, PICTURE_SPANS + 1, 1);
    size_t size = 0;
    for (size_t i = 0; text && i < ranges->count; i++) {
        if (ranges->list[i].cells > 0) {
            text[size++] = is_there(&ranges->list[i]) ? '1' : '0';
        }
    }
    return text;
}

static uint64_t held_now(const picture_ranges_t *ranges) {
    uint64_t held = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        held += ranges->list[i].is_span ? ranges->list[i].held : ranges->list[i].size;
    }
    return held;
}

static void take_frame(picture_t *picture, picture_map_t *map, int64_t t) {
    const size_t room = sizeof(map->frames) / sizeof(map->frames[0]);
    picture_object_t *object = &picture->objects[map->object];
    if (map->frame_count == room) {
        return;
    }
    picture_frame_t *frame = &map->frames[map->frame_count++];
    frame->t = t;
    frame->live = picture_cells_levels(picture, map);
    frame->there = who_is_there(picture, &object->ranges);
    frame->held = held_now(&object->ranges);
    frame->live_bytes = object->live;
    frame->is_suspended = object->is_suspended;
    frame->knows_largest = longest(&object->ranges, map, &frame->largest);
}

void picture_maps_frame(picture_t *picture, int64_t t) {
    for (uint32_t i = 0; i < picture->map_count; i++) {
        take_frame(picture, picture->maps[i], t);
    }
}

void picture_maps_before(picture_t *picture, int64_t t) {
    for (; picture->next_frame <= PICTURE_FRAMES; picture->next_frame++) {
        int64_t due = (int64_t)((double)picture->length / PICTURE_FRAMES * picture->next_frame);
        if (due >= t) {
            return;
        }
        picture_maps_frame(picture, due);
    }
}

/* --- out of a snapshot ------------------------------------------------------------------------ */

/* Bytes of a run inside its span. */
static uint64_t run_bytes(const picture_range_t *range, const umf_record_run_t *run) {
    if (run->base < range->base || run->base - range->base >= range->size) {
        return 0;
    }
    uint64_t room = range->size - (run->base - range->base);
    bool is_more = run->count > 0 && run->size > room / run->count;
    return is_more ? room : run->size * run->count;
}

/* Fills the cells with the memory in one state; returns its bytes. */
static uint64_t fill(picture_t *picture, picture_map_t *map, umf_record_state_t state) {
    picture_ranges_t *ranges = &picture->objects[map->object].ranges;
    size_t span_count, run_count;
    const umf_record_span_t *spans = umf_reader_spans(picture->reader, &span_count);
    const umf_record_run_t *runs = umf_reader_runs(picture->reader, &run_count);
    uint64_t bytes = 0;
    picture_cells_clear(map);
    for (size_t i = 0; i < span_count; i++) {
        const picture_range_t *range =
            spans[i].object == map->object ? picture_ranges_find(ranges, spans[i].base) : NULL;
        for (uint32_t run = 0; range && run < spans[i].run_count; run++) {
            const umf_record_run_t *at = &runs[spans[i].first_run + run];
            if (at->state == state) {
                uint64_t part = run_bytes(range, at);
                bytes += part;
                if (part > 0) {
                    picture_cells_add(map, range, at->base, part, true);
                }
            }
        }
    }
    return bytes;
}

/* The largest free piece of a span: of free runs side by side. */
static uint64_t largest_of(const picture_range_t *range, const umf_record_run_t *runs,
                           uint32_t count) {
    uint64_t most = 0, piece = 0, end = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = run_bytes(range, &runs[i]);
        bool is_free = runs[i].state == UMF_RECORD_STATE_FREE;
        piece = is_free ? bytes + (runs[i].base == end ? piece : 0) : 0;
        end = runs[i].base + bytes;
        most = piece > most ? piece : most;
    }
    return most;
}

static void see_span(picture_t *picture, const umf_record_span_t *span) {
    picture_ranges_add(picture, &picture->objects[span->object].ranges,
                       (picture_range_t){.base = span->base,
                                         .size = span->size,
                                         .held = span->size,
                                         .flags = span->flags,
                                         .is_span = true});
}

/* A span without runs, or with one of unknown state. */
static bool is_unknown(const umf_record_span_t *span, const umf_record_run_t *runs) {
    for (uint32_t i = 0; i < span->run_count; i++) {
        if (runs[span->first_run + i].state != UMF_RECORD_STATE_UNKNOWN) {
            return false;
        }
    }
    return true;
}

static void look_at_spans(picture_t *picture, picture_map_t *map, picture_frame_t *frame) {
    picture_ranges_t *ranges = &picture->objects[map->object].ranges;
    size_t span_count, run_count;
    const umf_record_span_t *spans = umf_reader_spans(picture->reader, &span_count);
    const umf_record_run_t *runs = umf_reader_runs(picture->reader, &run_count);
    for (size_t i = 0; i < span_count; i++) {
        picture_range_t *range =
            spans[i].object == map->object ? picture_ranges_find(ranges, spans[i].base) : NULL;
        if (range && is_unknown(&spans[i], runs)) {
            range->flags |= SPAN_UNKNOWN;
            frame->unknown_bytes += spans[i].run_count == 0 ? spans[i].size : 0;
        } else if (range) {
            uint64_t piece = largest_of(range, &runs[spans[i].first_run], spans[i].run_count);
            frame->largest = piece > frame->largest ? piece : frame->largest;
            frame->knows_largest = true;
        }
    }
}

static void frame_of_snapshot(picture_t *picture, picture_map_t *map) {
    picture_frame_t *frame = &map->frames[map->frame_count++];
    frame->live_bytes = fill(picture, map, UMF_RECORD_STATE_LIVE);
    frame->live = picture_cells_levels(picture, map);
    frame->cached_bytes = fill(picture, map, UMF_RECORD_STATE_CACHED);
    frame->cached = picture_cells_levels(picture, map);
    frame->unknown_bytes = fill(picture, map, UMF_RECORD_STATE_UNKNOWN);
    frame->unknown = picture_cells_levels(picture, map);
    frame->held = held_now(&picture->objects[map->object].ranges);
    frame->is_exact = true;
    look_at_spans(picture, map, frame);
}

void picture_maps_snapshot(picture_t *picture) {
    size_t count;
    const umf_record_span_t *spans = umf_reader_spans(picture->reader, &count);
    for (size_t i = 0; i < count; i++) {
        see_span(picture, &spans[i]);
    }
    picture_maps_prepare(picture);
    for (uint32_t i = 0; i < picture->map_count; i++) {
        frame_of_snapshot(picture, picture->maps[i]);
    }
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void write_frame(picture_out_t *out, const picture_frame_t *frame) {
    picture_open(out, '{');
    picture_key(out, "t");
    picture_number(out, frame->t);
    picture_key(out, "live");
    picture_text(out, frame->live ? frame->live : "");
    picture_key(out, "cached");
    picture_text(out, frame->cached ? frame->cached : "");
    picture_key(out, "unknown");
    picture_text(out, frame->unknown ? frame->unknown : "");
    if (frame->there) {
        picture_key(out, "there");
        picture_text(out, frame->there);
    }
    picture_member(out, "held", frame->held);
    picture_member(out, "asleep", frame->is_suspended);
    picture_member(out, "live_bytes", frame->live_bytes);
    picture_member(out, "cached_bytes", frame->cached_bytes);
    picture_member(out, "unknown_bytes", frame->unknown_bytes);
    picture_member(out, "largest_at_least", !frame->is_exact);
    if (frame->knows_largest) {
        picture_member(out, "largest", frame->largest);
    } else {
        picture_key(out, "largest");
        picture_null(out);
    }
    picture_close(out, '}');
}

static void write_spans(picture_out_t *out, const picture_ranges_t *ranges) {
    picture_key(out, "spans");
    picture_open(out, '[');
    for (size_t i = 0; i < ranges->count; i++) {
        const picture_range_t *range = &ranges->list[i];
        if (range->cells > 0) {
            picture_open(out, '[');
            picture_hex(out, range->base);
            picture_number(out, (int64_t)(range->size & INT64_MAX));
            picture_number(out, range->flags | (range->is_span ? 0 : SPAN_SEEN));
            picture_number(out, range->cells);
            picture_close(out, ']');
        }
    }
    picture_close(out, ']');
}

static void write_map(picture_t *picture, const picture_map_t *map) {
    picture_out_t *out = picture->out;
    const picture_ranges_t *ranges = &picture->objects[map->object].ranges;
    picture_open(out, '{');
    picture_key(out, "object");
    picture_number(out, picture_name(picture, map->object));
    picture_member(out, "cell", map->cell);
    picture_member(out, "knows_cache", picture->info->kind == UMF_RECORD_FILE_SNAPSHOT);
    picture_member(out, "spans_left", ranges->left);
    picture_member(out, "bytes_left", ranges->left_bytes);
    write_spans(out, ranges);
    picture_key(out, "frames");
    picture_open(out, '[');
    for (size_t i = 0; i < map->frame_count; i++) {
        write_frame(out, &map->frames[i]);
    }
    picture_close(out, ']');
    picture_close(out, '}');
}

void picture_maps_write(picture_t *picture) {
    picture_key(picture->out, "maps");
    picture_open(picture->out, '[');
    for (uint32_t i = 0; i < picture->map_count; i++) {
        if (picture->maps[i]->frame_count > 0) {
            write_map(picture, picture->maps[i]);
        }
    }
    picture_close(picture->out, ']');
}
