/* Visits of segments: sizes, lists, free ones that are taken, and the check of all structures. */
#include "ds/range_own.h"

typedef umf_range_node_t segment_t;

static bool is_reserved(const segment_t *segment) {
    return __atomic_load_n(&segment->generation, __ATOMIC_RELAXED) & UMF_RANGE_RESERVED;
}

size_t umf_range_used_size(const umf_range_t *range, uintptr_t base) {
    const segment_t *segment = umf_range_used_find(range, base);
    return segment && !is_reserved(segment) ? segment->size : 0;
}

static umf_range_use_t use_of(const segment_t *segment) {
    return segment->kind == UMF_RANGE_FREE ? UMF_RANGE_IS_FREE
           : is_reserved(segment)          ? UMF_RANGE_IS_RESERVED
                                           : UMF_RANGE_IS_USED;
}

/* The segment after which umf_range_pieces begins. NULL: there is none. */
static const segment_t *piece_above(const umf_range_t *range, uintptr_t region, uintptr_t below) {
    if (below) {
        return umf_range_used_find(range, below);
    }
    size_t at = umf_range_region_above(range, region);
    bool is_known = at < range->region_count && umf_range_region_base(range->regions[at]) == region;
    return is_known ? range->regions[at] : NULL;
}

size_t umf_range_pieces(const umf_range_t *range, uintptr_t region, uintptr_t below,
                        umf_range_piece_t *pieces, size_t n, bool *is_last) {
    const segment_t *segment = piece_above(range, region, below);
    *is_last = segment && !segment->prev;
    size_t count = 0;
    while (segment && segment->prev && count < n) {
        segment = segment->prev;
        pieces[count++] = (umf_range_piece_t){segment->base, segment->size, use_of(segment)};
        *is_last = !segment->prev;
    }
    return count;
}

size_t umf_range_free_regions(const umf_range_t *range,
                              void (*visit)(uintptr_t base, size_t size, void *arg), void *arg) {
    size_t count = 0;
    for (size_t i = 0; i < range->region_count; i++) {
        const segment_t *segment = umf_range_region_free_segment(range->regions[i]);
        if (segment) {
            count++;
            if (visit) {
                visit(segment->base, segment->size, arg);
            }
        }
    }
    return count;
}

void umf_range_free_segments(const umf_range_t *range,
                             void (*visit)(uintptr_t base, size_t size, void *arg), void *arg) {
    for (unsigned bin = umf_range_bin_next(range, 0); bin < UMF_RANGE_BINS;
         bin = umf_range_bin_next(range, bin + 1)) {
        for (const segment_t *segment = range->bins[bin]; segment; segment = segment->bin_next) {
            visit(segment->base, segment->size, arg);
        }
    }
}

/* --- free segments that are taken ------------------------------------------------------------- */

/* Selects the free segments that are taken. */
typedef bool (*segment_choice_t)(segment_t *segment);

static bool segment_is_any(segment_t *segment) {
    (void)segment;
    return true;
}

static bool segment_is_dirty(segment_t *segment) {
    return segment->age == UMF_RANGE_FRESH || segment->age == UMF_RANGE_AGED;
}

/* Aged by an earlier pass. A fresh segment is aged now. */
static bool segment_is_idle(segment_t *segment) {
    bool is_idle = segment->age == UMF_RANGE_AGED;
    segment->age = segment->age == UMF_RANGE_CLEAN ? UMF_RANGE_CLEAN : UMF_RANGE_AGED;
    return is_idle;
}

static size_t region_take(umf_range_t *range, const segment_t *end, uintptr_t *cursor, size_t min,
                          segment_choice_t choice, umf_range_segment_t *segments, size_t n) {
    size_t count = 0;
    for (segment_t *segment = end->prev; segment && count < n; segment = segment->prev) {
        if (segment->kind == UMF_RANGE_FREE && segment->base < *cursor && segment->size >= min &&
            choice(segment)) {
            umf_range_bin_remove(range, segment);
            range->free_region_bytes -= umf_range_is_region(segment) ? segment->size : 0;
            umf_range_used_add(range, segment);
            range->used_bytes += segment->size;
            segments[count++] = (umf_range_segment_t){segment->base, segment->size};
        }
    }
    /* The next call continues below the last segment taken, or below this region. */
    *cursor = count == n ? segments[n - 1].base : umf_range_region_base(end);
    return count;
}

static size_t range_take(umf_range_t *range, uintptr_t *cursor, size_t min, segment_choice_t choice,
                         umf_range_segment_t *segments, size_t n) {
    size_t count = 0;
    size_t at = *cursor ? umf_range_region_above(range, *cursor - 1) + 1 : 0;
    for (at = at < range->region_count ? at : range->region_count; at > 0 && count < n; at--) {
        if (umf_range_region_base(range->regions[at - 1]) < *cursor) {
            count += region_take(range, range->regions[at - 1], cursor, min, choice,
                                 &segments[count], n - count);
        }
    }
    return count;
}

size_t umf_range_take_free(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_segment_t *segments, size_t n) {
    return range_take(range, cursor, min, segment_is_any, segments, n);
}

size_t umf_range_take_dirty(umf_range_t *range, uintptr_t *cursor, size_t min,
                            umf_range_segment_t *segments, size_t n) {
    return range_take(range, cursor, min, segment_is_dirty, segments, n);
}

size_t umf_range_take_region(umf_range_t *range, uintptr_t base, uintptr_t *cursor,
                             umf_range_segment_t *segments, size_t n) {
    size_t at = umf_range_region_above(range, base);
    bool is_known = at < range->region_count && umf_range_region_base(range->regions[at]) == base;
    return is_known && *cursor > base
               ? region_take(range, range->regions[at], cursor, 1, segment_is_any, segments, n)
               : 0;
}

size_t umf_range_take_idle(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_segment_t *segments, size_t n) {
    return range_take(range, cursor, min, segment_is_idle, segments, n);
}

/* --- the check -------------------------------------------------------------------------------- */

typedef struct range_tally_t {
    size_t used, used_bytes, total_bytes, free_region_bytes, free;
} range_tally_t;

static bool region_is_valid(const umf_range_t *range, const segment_t *end, range_tally_t *tally) {
    uintptr_t expected = end->base;
    for (const segment_t *segment = end->prev; segment; segment = segment->prev) {
        bool is_free = segment->kind == UMF_RANGE_FREE;
        bool linked = segment->next && segment->next->prev == segment;
        if (!linked || segment->size == 0 || segment->base + segment->size != expected ||
            (is_free && segment->next->kind == UMF_RANGE_FREE) ||
            (!is_free && umf_range_used_find(range, segment->base) != segment)) {
            return false;
        }
        expected = segment->base;
        tally->free += is_free;
        tally->used += !is_free;
        tally->used_bytes += is_free ? 0 : segment->size;
    }
    tally->total_bytes += end->size;
    tally->free_region_bytes += umf_range_region_free_segment(end) ? end->size : 0;
    return expected == umf_range_region_base(end);
}

static void tally_bin_segment(uintptr_t base, size_t size, void *arg) {
    (void)base;
    (void)size;
    ((range_tally_t *)arg)->free--;
}

bool umf_range_is_valid(const umf_range_t *range) {
    range_tally_t tally = {0};
    for (size_t i = 0; i < range->region_count; i++) {
        if ((i > 0 && range->regions[i - 1]->base > umf_range_region_base(range->regions[i])) ||
            !region_is_valid(range, range->regions[i], &tally)) {
            return false;
        }
    }
    umf_range_free_segments(range, tally_bin_segment, &tally);
    return tally.free == 0 && tally.used == range->used_count &&
           tally.used_bytes == range->used_bytes && tally.total_bytes == range->total_bytes &&
           tally.free_region_bytes == range->free_region_bytes;
}
