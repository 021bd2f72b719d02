/* What happened at one moment: marks, trims, suspends, and the refusals with who had the memory. */
#include <stdlib.h>
#include <string.h>

#include "parts.h"

static const char *const kinds[UMF_READER_KIND_LAST + 1] = {
    [UMF_RECORD_REFUSED] = "refused", [UMF_RECORD_PROVIDER_REFUSED] = "provider_refused",
    [UMF_RECORD_TRIM] = "trim",       [UMF_RECORD_SUSPEND] = "suspend",
    [UMF_RECORD_RESUME] = "resume",   [UMF_RECORD_MARK] = "mark"};

void picture_moments_prepare(picture_t *picture) {
    picture->marks = picture_take(picture, PICTURE_MARKS * UMF_RECORD_MARK, sizeof(picture_mark_t));
}

/* Suspends keep their resumes, so of these the first stay; of others one of so many. */
static bool is_kept(picture_t *picture, umf_record_event_kind_t kind) {
    uint64_t step = (picture->kinds[kind] + PICTURE_MARKS - 1) / PICTURE_MARKS;
    uint64_t index = picture->seen[kind]++;
    if (kind == UMF_RECORD_SUSPEND || kind == UMF_RECORD_RESUME) {
        return index < PICTURE_MARKS;
    }
    return index % step == 0;
}

static void keep(picture_t *picture, const umf_reader_event_t *event) {
    if (kinds[event->kind] && is_kept(picture, event->kind)) {
        picture->marks[picture->mark_count++] = (picture_mark_t){
            event->ns - picture->origin, event->kind, event->object, event->size, event->address};
    }
}

/* --- refusals --------------------------------------------------------------------------------- */

/* Puts an index into a short list of the largest. */
static void insert(uint32_t *indices, uint64_t *values, size_t room, uint32_t index,
                   uint64_t value) {
    size_t at = room;
    while (at > 0 && values[at - 1] < value) {
        at--;
    }
    if (at < room) {
        memmove(&values[at + 1], &values[at], (room - at - 1) * sizeof(*values));
        memmove(&indices[at + 1], &indices[at], (room - at - 1) * sizeof(*indices));
        values[at] = value;
        indices[at] = index;
    }
}

static void holders(picture_t *picture, picture_refusal_t *refusal) {
    for (uint32_t i = 1; i < picture->info->object_count; i++) {
        insert(refusal->pools, refusal->pool_live, 3, i, picture->objects[i].live);
    }
    for (uint32_t i = 0; i < picture->site_count; i++) {
        insert(refusal->sites, refusal->site_bytes, 5, i, picture->sites[i].bytes);
    }
    for (int i = 0; i < 3; i++) {
        refusal->pool_held[i] = picture->objects[refusal->pools[i]].held;
    }
}

static int by_address(const void *a, const void *b) {
    const umf_reader_live_t *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

/* Live allocations of a pool, by address. */
static umf_reader_live_t *sorted(picture_t *picture, umf_reader_replay_t *replay, uint32_t object,
                                 size_t *count) {
    const umf_reader_live_t *live;
    size_t position = 0, total = umf_reader_replay_object(replay, object)->use.count;
    umf_reader_live_t *list = malloc((total + 1) * sizeof(*list));
    *count = 0;
    while (list && (live = umf_reader_replay_next(replay, &position))) {
        if (live->object == object && *count < total) {
            list[(*count)++] = *live;
        }
    }
    picture->has_failed |= !list;
    if (list) {
        qsort(list, *count, sizeof(*list), by_address);
    }
    return list;
}

/* The largest piece of spans in which nothing lives. `list` is sorted. */
static uint64_t largest_gap(const picture_ranges_t *ranges, const umf_reader_live_t *list,
                            size_t count) {
    uint64_t most = 0;
    size_t at = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        const picture_range_t *range = &ranges->list[i];
        uint64_t free = range->base, end = range->base + range->size;
        for (; at < count && list[at].address < end; at++) {
            uint64_t gap = list[at].address > free ? list[at].address - free : 0;
            most = range->held > 0 && gap > most ? gap : most;
            free =
                list[at].address + list[at].size > free ? list[at].address + list[at].size : free;
        }
        most = range->held > 0 && end > free && end - free > most ? end - free : most;
    }
    return most;
}

/* Known if all spans are. */
static void look_for_gap(picture_t *picture, umf_reader_replay_t *replay,
                         picture_refusal_t *refusal) {
    const picture_ranges_t *ranges = &picture->objects[refusal->object].ranges;
    size_t count;
    for (size_t i = 0; i < ranges->count; i++) {
        if (!ranges->list[i].is_span) {
            return;
        }
    }
    if (ranges->left > 0 || ranges->count == 0) {
        return;
    }
    umf_reader_live_t *list = sorted(picture, replay, refusal->object, &count);
    if (list) {
        refusal->largest = largest_gap(ranges, list, count);
        refusal->knows_largest = true;
    }
    free(list);
}

static void refuse(picture_t *picture, umf_reader_replay_t *replay,
                   const umf_reader_event_t *event) {
    const umf_reader_object_use_t *use = umf_reader_replay_object(replay, event->object);
    picture_refusal_t *refusal = &picture->refusals[picture->refusal_count++];
    *refusal = (picture_refusal_t){.t = event->ns - picture->origin,
                                   .is_pool = event->kind == UMF_RECORD_REFUSED,
                                   .object = event->object,
                                   .requested = event->size,
                                   .held = event->address,
                                   .live = use->use.bytes,
                                   .count = use->use.count,
                                   .total = picture->live};
    holders(picture, refusal);
    if (refusal->is_pool) {
        look_for_gap(picture, replay, refusal);
    }
    picture_moment(picture, refusal->t);
}

void picture_moment(picture_t *picture, int64_t t) {
    picture_timeline_set(picture);
    picture_maps_frame(picture, t);
}

static bool is_refusal(const picture_t *picture, const umf_reader_event_t *event) {
    return event->kind == UMF_RECORD_REFUSED ||
           (event->kind == UMF_RECORD_PROVIDER_REFUSED &&
            umf_reader_object(picture->reader, event->object)->kind == UMF_RECORD_OBJECT_PROVIDER);
}

void picture_moments_event(picture_t *picture, umf_reader_replay_t *replay,
                           const umf_reader_event_t *event) {
    keep(picture, event);
    if (is_refusal(picture, event)) {
        uint64_t index = picture->refused_seen++;
        if (index < PICTURE_FIRST || index + PICTURE_LAST >= picture->refused) {
            refuse(picture, replay, event);
        }
    }
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void write_mark(picture_t *picture, const picture_mark_t *mark) {
    picture_out_t *out = picture->out;
    bool is_mark = mark->kind == UMF_RECORD_MARK;
    picture_open(out, '{');
    picture_key(out, "t");
    picture_number(out, mark->t);
    picture_key(out, "kind");
    picture_text(out, kinds[mark->kind]);
    picture_key(out, "object");
    picture_number(out, picture_name(picture, mark->object));
    picture_member(out, "size", mark->size);
    if (mark->kind == UMF_RECORD_TRIM) {
        picture_member(out, "held", mark->address);
    }
    if (is_mark) {
        picture_key(out, "text");
        picture_text(out, umf_reader_text(picture->reader, mark->address));
    }
    picture_close(out, '}');
}

static void write_holders(picture_t *picture, const picture_refusal_t *refusal) {
    picture_out_t *out = picture->out;
    picture_key(out, "pools");
    picture_open(out, '[');
    for (int i = 0; i < 3 && refusal->pool_live[i] > 0; i++) {
        picture_open(out, '[');
        picture_number(out, picture_name(picture, refusal->pools[i]));
        picture_number(out, (int64_t)refusal->pool_live[i]);
        picture_number(out, (int64_t)refusal->pool_held[i]);
        picture_close(out, ']');
    }
    picture_close(out, ']');
    picture_key(out, "sites");
    picture_open(out, '[');
    for (int i = 0; i < 5 && refusal->site_bytes[i] > 0; i++) {
        const picture_site_t *site = &picture->sites[refusal->sites[i]];
        picture_open(out, '[');
        picture_number(out, picture_name(picture, site->object));
        picture_number(out, picture_stack(picture, site->stack));
        picture_number(out, (int64_t)refusal->site_bytes[i]);
        picture_close(out, ']');
    }
    picture_close(out, ']');
}

static void write_refusal(picture_t *picture, const picture_refusal_t *refusal) {
    picture_out_t *out = picture->out;
    picture_open(out, '{');
    picture_key(out, "t");
    picture_number(out, refusal->t);
    picture_key(out, "by");
    picture_text(out, refusal->is_pool ? "pool" : "provider");
    picture_key(out, "object");
    picture_number(out, picture_name(picture, refusal->object));
    picture_member(out, "wanted", refusal->requested);
    picture_member(out, "held", refusal->held);
    picture_member(out, "live", refusal->live);
    picture_member(out, "count", refusal->count);
    picture_member(out, "total", refusal->total);
    picture_key(out, "largest");
    if (refusal->knows_largest) {
        picture_number(out, (int64_t)refusal->largest);
    } else {
        picture_null(out);
    }
    write_holders(picture, refusal);
    picture_close(out, '}');
}

void picture_moments_write(picture_t *picture) {
    picture_out_t *out = picture->out;
    uint64_t seen = 0;
    picture_key(out, "marks");
    picture_open(out, '[');
    for (size_t i = 0; i < picture->mark_count; i++) {
        write_mark(picture, &picture->marks[i]);
    }
    picture_close(out, ']');
    for (size_t i = 0; i <= UMF_READER_KIND_LAST; i++) {
        seen += picture->seen[i];
    }
    picture_member(out, "marks_left", seen - picture->mark_count);
    picture_key(out, "refusals");
    picture_open(out, '[');
    for (size_t i = 0; i < picture->refusal_count; i++) {
        write_refusal(picture, &picture->refusals[i]);
    }
    picture_close(out, ']');
    picture_member(out, "refusals_left", picture->refused - picture->refusal_count);
}
