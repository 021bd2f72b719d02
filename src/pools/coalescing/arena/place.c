/* Places of an arena: where a block goes, and the pages that it lacks there. */
#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing/arena/arena.h"

/* So many of the largest free segments are tried as a part of a place. */
#define TRIED 16u

typedef struct place_t {
    umf_segments_t *area;
    umf_segment_t *first; /* holds the first address */
    uintptr_t base;
    size_t size;
    size_t lack; /* bytes of pages */
    size_t segments;
} place_t;

/* The pages that a place lacks, [base, base + size). false: it is none. */
static bool measure(const umf_arena_t *arena, umf_segment_t *first, uintptr_t base, size_t size,
                    const umf_arena_request_t *request, place_t *place) {
    uintptr_t end = base + size;
    uintptr_t low = umf_align_down(base, arena->unit), high = umf_align_up(end, arena->unit);
    *place = (place_t){.first = first, .base = base, .size = size};
    for (const umf_segment_t *at = first; at && at->base < end; at = at->next) {
        uintptr_t from = at->base > low ? at->base : low;
        uintptr_t to = umf_segment_end(at) < high ? umf_segment_end(at) : high;
        if ((at->kind != UMF_SEGMENT_FREE && at->kind != UMF_SEGMENT_NONE) ||
            !umf_arena_may_use_locked(arena, &at->uses, request)) {
            return false;
        }
        place->lack += at->kind == UMF_SEGMENT_NONE ? to - from : 0;
        place->segments++;
        if (umf_segment_end(at) >= end) {
            return true;
        }
    }
    return false; /* the area ends */
}

/* A search for a place. */
typedef struct search_t {
    const umf_arena_t *arena;
    const umf_arena_request_t *request;
    size_t size; /* and the most that the alignment may need */
} search_t;

static void consider(const search_t *search, umf_segment_t *first, uintptr_t base, place_t *best) {
    place_t place;
    if (measure(search->arena, first, base, search->size, search->request, &place) &&
        (!best->first || place.lack < best->lack)) {
        place.area = best->area;
        *best = place;
    }
}

/* The place that ends with the segment. */
static void consider_below(const search_t *search, umf_segment_t *last, place_t *best) {
    umf_segment_t *first = last;
    size_t size = search->size;
    uintptr_t end = umf_segment_end(last);
    while (end - first->base < size && first->prev &&
           (first->prev->kind == UMF_SEGMENT_FREE || first->prev->kind == UMF_SEGMENT_NONE)) {
        first = first->prev;
    }
    if (end - first->base >= size) {
        consider(search, first, end - size, best);
    }
}

static void consider_tail(const search_t *search, const umf_segments_t *area, place_t *best) {
    umf_segment_t *last = area->last;
    if (last->kind == UMF_SEGMENT_NONE) {
        if (last->prev && last->prev->kind == UMF_SEGMENT_FREE) {
            consider(search, last->prev, last->prev->base, best);
        }
        consider(search, last, last->base, best);
    }
}

/* Addresses without a page, wherever: none are left behind the last block. */
static void consider_holes(const search_t *search, const umf_segments_t *area, place_t *best) {
    for (umf_segment_t *at = area->first; at && !best->first; at = at->next) {
        if (at->kind == UMF_SEGMENT_NONE) {
            consider(search, at, at->base, best);
        }
    }
}

static bool find_locked(umf_arena_t *arena, const umf_arena_request_t *request, place_t *best) {
    umf_segments_t *area =
        &arena->areas[request->size < UMF_ARENA_SMALL ? UMF_ARENA_LITTLE : UMF_ARENA_LARGE];
    size_t size = request->size, unaligned = 0, tried = 0;
    if (request->alignment > arena->params.granule) {
        unaligned = request->alignment - arena->params.granule;
    }
    *best = (place_t){.area = area};
    if (!umf_add(size, unaligned, &size)) {
        return false;
    }
    const search_t search = {arena, request, size};
    for (umf_segment_t *at = request->at_tail ? NULL : umf_segments_largest(area);
         at && tried < TRIED; at = umf_segments_below(area, at), tried++) {
        consider(&search, at, at->base, best);
        consider_below(&search, at, best);
    }
    consider_tail(&search, area, best);
    if (!best->first && !request->at_tail) {
        consider_holes(&search, area, best);
    }
    return best->first != NULL;
}

/* --- holding a place --- */

/* Segments for the cuts that come after the place is held: the rest of a page beyond it, and the
 * block itself. */
#define PROMISED 4u

/* The segments of the place become BUSY: parts that are free, and whole pages where there are none.
 * `*end` becomes the end of all of them. The first is that of the place, whose lower part is
 * another one then. */
static bool hold_locked(umf_arena_t *arena, const place_t *place, uintptr_t *end) {
    if (!umf_segments_reserve(place->area, place->segments + PROMISED)) {
        return false;
    }
    uintptr_t last = place->base + place->size, at = place->base;
    umf_segment_t *segment = place->first;
    while (at < last) {
        bool is_free = segment->kind == UMF_SEGMENT_FREE;
        uintptr_t from = is_free ? at : umf_align_down(at, arena->unit);
        uintptr_t until = is_free ? last : umf_align_up(last, arena->unit);
        uintptr_t to = umf_segment_end(segment) < until ? umf_segment_end(segment) : until;
        umf_segment_cut(place->area, segment, from, to - from);
        segment->was = segment->kind;
        umf_segment_set(place->area, segment, UMF_SEGMENT_BUSY);
        *end = at = to;
        segment = segment->next;
    }
    return true;
}

/* Everything is as it was before, but for addresses that have become stale. */
static void let_go_locked(umf_segments_t *area, umf_segment_t *first, uintptr_t base,
                          uintptr_t end) {
    while (first->prev && first->prev->base >= base) {
        first = first->prev;
    }
    for (umf_segment_t *at = first; at && at->base < end; at = at->next) {
        umf_segment_set(area, at, (umf_segment_kind_t)at->was);
        at = umf_segment_join(area, at);
    }
}

/* --- filling it --- */

/* A page and the place where it is to be mapped. */
typedef struct step_t {
    uintptr_t at;
    umf_arena_page_t *page;
} step_t;

typedef struct fill_t {
    place_t place;
    umf_segment_t *first;
    uintptr_t end; /* of the busy segments */
    step_t *steps;
    size_t count, room;
    umf_segment_t *segment; /* that is filled, to here */
    uintptr_t filled;
    const umf_segment_t *exhausted; /* no page can be donated to this one */
} fill_t;

/* The bytes that the segment may have beyond its end. */
static size_t room_behind(const umf_segment_t *segment) {
    const umf_segment_t *next = segment->next;
    return next && next->kind == UMF_SEGMENT_NONE ? next->size : 0;
}

/* The largest spare page that fits, or the smallest that fits with the room behind. */
static umf_arena_page_t **choose_spare(umf_arena_t *arena, size_t fit, size_t behind,
                                       const umf_arena_request_t *request) {
    umf_arena_page_t **best = NULL;
    for (umf_arena_page_t **link = &arena->spare; *link; link = &(*link)->next) {
        size_t size = (*link)->memory.size, held = best ? (*best)->memory.size : 0;
        bool fits = size <= fit, best_fits = best && held <= fit;
        bool is_better = fits ? !best_fits || size > held
                              : size <= fit + behind && !best_fits && (!best || size < held);
        if (is_better && umf_arena_may_use_locked(arena, &(*link)->uses, request)) {
            best = link;
        }
    }
    return best;
}

/* The busy segment takes over the rest of a page beyond its end. */
static void extend_locked(fill_t *fill, umf_segment_t *segment, uintptr_t end) {
    uintptr_t had = umf_segment_end(segment);
    umf_segments_t *area = fill->place.area;
    if (end <= had) {
        return;
    }
    umf_segment_cut(area, segment->next, had, end - had);
    umf_segment_absorb(area, segment);
    fill->end = fill->end < end ? end : fill->end;
}

static void use_spare_locked(umf_arena_t *arena, fill_t *fill, umf_arena_page_t **link) {
    umf_arena_page_t *page = *link;
    *link = page->next;
    arena->spare_bytes -= page->memory.size;
    fill->steps[fill->count++] = (step_t){fill->filled, page};
    fill->filled += page->memory.size;
    umf_uses_merge(&fill->segment->uses, &page->uses);
    extend_locked(fill, fill->segment, fill->filled);
}

/* The next segment without pages, if the last one is filled. false: all are. */
static bool find_unfilled(fill_t *fill) {
    while (fill->segment && fill->segment->base < fill->end) {
        if (fill->segment->was == UMF_SEGMENT_NONE &&
            fill->filled < umf_segment_end(fill->segment)) {
            fill->filled = fill->filled > fill->segment->base ? fill->filled : fill->segment->base;
            return true;
        }
        fill->segment = fill->segment->next;
    }
    return false;
}

/* Fills with spare pages. Returns 0, or the bytes that a segment lacks: then `*most` are those that
 * it has room for. */
static size_t fill_locked(umf_arena_t *arena, fill_t *fill, const umf_arena_request_t *request,
                          size_t *most) {
    while (find_unfilled(fill)) {
        size_t lack = umf_segment_end(fill->segment) - fill->filled;
        size_t behind = room_behind(fill->segment);
        umf_arena_page_t **link = choose_spare(arena, lack, behind, request);
        if (!link) {
            *most = lack + behind;
            return lack;
        }
        use_spare_locked(arena, fill, link);
    }
    return 0;
}

/* Pages that are made new, before others are donated, for a segment that lacks so many bytes. */
static size_t new_bytes_locked(const umf_arena_t *arena, size_t lack) {
    size_t margin = arena->live_peak / 1000 * arena->params.watermark;
    size_t most = arena->live_peak + margin;
    size_t room = arena->held < most ? umf_align_down(most - arena->held, arena->unit) : 0;
    return lack < room ? lack : room;
}

/* Bytes that a segment lacks and spare pages do not fill. */
typedef struct need_t {
    size_t lack, most; /* bytes; room for pages */
    size_t page;       /* of the next new page; 0: pages were donated */
} need_t;

/* Fills with spare pages, also with those that are donated. false: all is filled. */
static bool need_locked(umf_arena_t *arena, fill_t *fill, const umf_arena_request_t *request,
                        need_t *need) {
    need->lack = fill_locked(arena, fill, request, &need->most);
    if (!need->lack) {
        return false;
    }
    size_t made = new_bytes_locked(arena, need->lack);
    bool has_donors = fill->exhausted != fill->segment && made < need->lack;
    if (has_donors && !umf_arena_donate_locked(arena, need->lack - made, need->most, request)) {
        fill->exhausted = fill->segment;
        has_donors = false;
    }
    need->page = has_donors ? 0 : umf_arena_page_size_locked(arena, need->lack);
    return true;
}

static bool make_page(umf_arena_t *arena, size_t size) {
    return umf_arena_page_make(arena, size) == UMF_RESULT_SUCCESS ||
           (size > arena->unit && umf_arena_page_make(arena, arena->unit) == UMF_RESULT_SUCCESS);
}

/* Has a page for each unfilled part. When no page can be made, more are donated. */
static bool fill_all(umf_arena_t *arena, fill_t *fill, const umf_arena_request_t *request) {
    need_t need;
    for (;;) {
        umf_lock(&arena->lock);
        bool is_unfilled = need_locked(arena, fill, request, &need);
        umf_unlock(&arena->lock);
        if (!is_unfilled) {
            return true;
        }
        if (!need.page || make_page(arena, need.page)) {
            continue;
        }
        umf_lock(&arena->lock);
        size_t donated = umf_arena_donate_locked(arena, need.lack, need.most, request);
        umf_unlock(&arena->lock);
        if (!donated) {
            return false;
        }
    }
}

/* --- mapping --- */

static size_t run_of(const fill_t *fill, size_t from) {
    size_t i = from + 1;
    while (i < fill->count &&
           fill->steps[i].at == fill->steps[i - 1].at + fill->steps[i - 1].page->memory.size) {
        i++;
    }
    return i - from;
}

/* Maps runs of pages that lie side by side. Returns the steps that are done. */
static size_t map_all(umf_arena_t *arena, const fill_t *fill, umf_vm_page_t *pages) {
    size_t done = 0;
    for (size_t i = 0; i < fill->count; i++) {
        pages[i] = fill->steps[i].page->memory;
    }
    while (done < fill->count) {
        size_t run = run_of(fill, done);
        if (umf_tracked_page_map(arena->tracked, (void *)fill->steps[done].at, &pages[done], run) !=
            UMF_RESULT_SUCCESS) {
            break;
        }
        done += run;
    }
    return done;
}

/* A step that stays mapped though its place is not used: its addresses are stale, and the page,
 * which nothing uses there, serves elsewhere. false: no memory for that. */
static bool leave_stale_locked(umf_arena_t *arena, const fill_t *fill, const step_t *step) {
    umf_segments_t *area = fill->place.area;
    umf_segment_t *at = fill->first;
    while (at->prev && umf_segment_end(at->prev) > step->at) {
        at = at->prev;
    }
    while (umf_segment_end(at) <= step->at) {
        at = at->next;
    }
    if (!umf_segments_reserve(area, 1) ||
        !umf_arena_stale_add_locked(arena, area, at, step->page)) {
        UMF_LOG_ERROR("a page of %zu bytes at %p is lost: no memory to try again to unmap it",
                      step->page->memory.size, (void *)step->at);
        at->was = UMF_SEGMENT_STALE; /* for good */
        return false;
    }
    umf_segment_cut(area, at, step->at, step->page->memory.size);
    at->uses = (umf_uses_t){0};
    at->was = UMF_SEGMENT_STALE;
    arena->stale_bytes += at->size;
    return true;
}

/* A place whose pages could not be mapped: those that were are unmapped, as nothing has used them
 * there. The pages are spare. */
static void unmap_steps(umf_arena_t *arena, fill_t *fill, size_t done) {
    for (size_t i = 0; i < fill->count; i++) {
        const step_t *step = &fill->steps[i];
        size_t size = step->page->memory.size;
        bool is_mapped = i < done && umf_tracked_page_unmap(arena->tracked, (void *)step->at,
                                                            size) != UMF_RESULT_SUCCESS;
        if (i < done) {
            umf_tracked_page_event(arena->tracked, UMF_RECORD_PROVIDER_FREE, step->at, size);
        }
        umf_lock(&arena->lock);
        bool is_kept = !is_mapped || leave_stale_locked(arena, fill, step);
        /* Shared by a callback, which another one has outvoted: it is mapped nowhere again. */
        step->page->is_doomed = step->page->is_shared;
        if (is_kept && !step->page->is_doomed) {
            step->page->next = arena->spare;
            arena->spare = step->page;
            arena->spare_bytes += size;
        }
        arena->is_lossy |= !is_kept;
        umf_unlock(&arena->lock);
        if (step->page->is_doomed && step->page->mappings == 0) {
            umf_arena_page_unmake(arena, step->page);
        }
    }
}

/* --- the block --- */

/* The busy segments become one block, and free rests beside it. */
static umf_segment_t *finish_locked(umf_arena_t *arena, fill_t *fill,
                                    const umf_arena_request_t *request) {
    umf_segments_t *area = fill->place.area;
    umf_segment_t *whole = fill->first;
    while (umf_segment_end(whole) < fill->end) {
        umf_segment_absorb(area, whole);
    }
    uintptr_t base = umf_align_up(fill->place.base, request->alignment);
    umf_segment_cut(area, whole, base, request->size);
    umf_segment_t *sides[] = {whole->prev, whole->next};
    for (size_t i = 0; i < UMF_COUNT_OF(sides); i++) {
        if (sides[i] && sides[i]->kind == UMF_SEGMENT_BUSY) {
            umf_segment_set(area, sides[i], UMF_SEGMENT_FREE);
            umf_segment_join(area, sides[i]);
        }
    }
    umf_segment_set(area, whole, UMF_SEGMENT_LIVE);
    umf_hash_put(&arena->blocks, base, whole);
    umf_arena_pieces_count_locked(arena, base, base + request->size, true);
    arena->live += request->size;
    return whole;
}

/* The pages are in their places, and callbacks are called. false: one refuses, and they are not. */
static bool enter_all(umf_arena_t *arena, const fill_t *fill) {
    size_t told = 0;
    umf_lock(&arena->lock);
    for (size_t i = 0; i < fill->count; i++) {
        umf_arena_enter_locked(arena, fill->steps[i].page, fill->steps[i].at);
    }
    umf_unlock(&arena->lock);
    while (told < fill->count &&
           umf_arena_tell_mapped(arena, fill->steps[told].page) == UMF_RESULT_SUCCESS) {
        told++;
    }
    if (told == fill->count) {
        return true;
    }
    while (told-- > 0) {
        umf_arena_tell_unmapping(arena, fill->steps[told].page, fill->steps[told].at);
    }
    umf_lock(&arena->lock);
    for (size_t i = 0; i < fill->count; i++) {
        umf_arena_remove_locked(arena, fill->steps[i].page);
    }
    umf_unlock(&arena->lock);
    return false;
}

static umf_segment_t *fill_and_map(umf_arena_t *arena, fill_t *fill,
                                   const umf_arena_request_t *request) {
    umf_segment_t *block = NULL;
    uintptr_t base = fill->first->base;
    size_t done = 0;
    umf_vm_page_t *pages = umf_meta_alloc(fill->room * sizeof(*pages));
    bool is_filled = pages && fill->steps && fill_all(arena, fill, request);
    umf_arena_tell_left(arena);
    bool is_done =
        is_filled && (done = map_all(arena, fill, pages)) == fill->count && enter_all(arena, fill);
    if (!is_done) {
        unmap_steps(arena, fill, done);
    }
    umf_lock(&arena->lock);
    if (is_done) {
        block = finish_locked(arena, fill, request);
    } else {
        let_go_locked(fill->place.area, fill->first, base, fill->end);
    }
    fill->place.area->promised -= PROMISED;
    umf_unlock(&arena->lock);
    umf_meta_free(pages, fill->room * sizeof(*pages));
    return block;
}

/* Finds a place, and holds it. */
static bool begin(umf_arena_t *arena, fill_t *fill, const umf_arena_request_t *request) {
    umf_lock(&arena->lock);
    size_t used = arena->live + request->size;
    arena->live_peak = arena->live_peak < used ? used : arena->live_peak;
    bool is_found = find_locked(arena, request, &fill->place);
    size_t units = fill->place.lack / arena->unit;
    /* A page is larger than the missing size by less than the largest size. */
    bool is_held = is_found && umf_hash_reserve(&arena->slots, units + UMF_ARENA_PAGE_UNITS) &&
                   umf_hash_reserve(&arena->blocks, 1) &&
                   hold_locked(arena, &fill->place, &fill->end);
    if (is_held) {
        fill->first = fill->segment = fill->place.first;
        fill->place.area->promised += PROMISED;
    }
    umf_unlock(&arena->lock);
    if (!is_found) {
        UMF_LOG_ERROR("an arena has no addresses for %zu bytes: set a larger arena_size",
                      request->size);
    }
    fill->room = units + 8;
    return is_held;
}

umf_segment_t *umf_arena_grow(umf_arena_t *arena, const umf_arena_request_t *request) {
    fill_t fill = {0};
    if (!begin(arena, &fill, request)) {
        return NULL;
    }
    fill.steps = umf_meta_alloc(fill.room * sizeof(*fill.steps));
    umf_segment_t *block = fill_and_map(arena, &fill, request);
    umf_meta_free(fill.steps, fill.room * sizeof(*fill.steps));
    return block;
}
