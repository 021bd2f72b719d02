/* Segments: alloc, free, split, merge, extend, and leases. */
#include "ds/range_own.h"

#define RANGE_DEPTH 8 /* segments that are tried in one bin */

typedef umf_range_node_t segment_t;

/* --- used segments with leases -----------------------------------------------------------------
 */

static void claimed_link(umf_range_t *range, segment_t *segment) {
    segment->bin_prev = NULL;
    segment->bin_next = range->claimed;
    if (segment->bin_next) {
        segment->bin_next->bin_prev = segment;
    }
    range->claimed = segment;
}

static void claimed_unlink(umf_range_t *range, segment_t *segment) {
    *(segment->bin_prev ? &segment->bin_prev->bin_next : &range->claimed) = segment->bin_next;
    if (segment->bin_next) {
        segment->bin_next->bin_prev = segment->bin_prev;
    }
}

/* Ends the lease if the segment still has exactly this generation. false: it has another by now. */
static bool generation_end(umf_range_t *range, segment_t *segment, uint32_t generation) {
    uint32_t none = (generation | UMF_RANGE_CLAIMED | UMF_RANGE_RESERVED) + 1;
    if (!__atomic_compare_exchange_n(&segment->generation, &generation, none, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        return false;
    }
    claimed_unlink(range, segment);
    return true;
}

/* Makes the lease void if there is one. false: the segment is reserved. The loop ends because only
 * the holder of the lease changes the generation without the lock, and it only reserves or takes
 * back. */
static bool generation_void(umf_range_t *range, segment_t *segment) {
    for (;;) {
        uint32_t generation = __atomic_load_n(&segment->generation, __ATOMIC_RELAXED);
        if (umf_unlikely(generation & UMF_RANGE_RESERVED)) {
            return false;
        }
        if (umf_likely(!(generation & UMF_RANGE_CLAIMED))) {
            return true;
        }
        if (generation_end(range, segment, generation)) {
            return true;
        }
    }
}

/* Finds a used segment and removes it from the table. `size` 0: any size. NULL: there is no such
 * segment, or it is reserved. */
static segment_t *used_take(umf_range_t *range, uintptr_t base, size_t size) {
    segment_t **slot = umf_range_used_slot(range->hash, range->hash_size, base);
    while (*slot && (*slot)->base != base) {
        slot = &(*slot)->chain;
    }
    segment_t *segment = *slot;
    if (!segment || (size && size != segment->size) || !generation_void(range, segment)) {
        return NULL;
    }
    *slot = segment->chain;
    range->used_count--;
    return segment;
}

/* --- alloc ------------------------------------------------------------------------------------ */

/* Bytes before the first multiple of `alignment`. SIZE_MAX: `size` bytes do not fit after it. */
static size_t segment_gap(const segment_t *segment, size_t size, size_t alignment) {
    size_t rest = umf_likely(umf_is_pow2(alignment)) ? segment->base & (alignment - 1)
                                                     : segment->base % alignment;
    size_t gap = rest ? alignment - rest : 0;
    return segment->size >= size && segment->size - size >= gap ? gap : SIZE_MAX;
}

/* The smallest of the first `depth` segments of a bin in which the request fits. */
static segment_t *bin_best(const umf_range_t *range, unsigned bin, size_t depth, size_t size,
                           size_t alignment) {
    segment_t *best = NULL;
    for (segment_t *segment = range->bins[bin]; segment && depth;
         segment = segment->bin_next, depth--) {
        if ((!best || segment->size < best->size) &&
            segment_gap(segment, size, alignment) != SIZE_MAX) {
            best = segment;
            if (segment->size == size) {
                break;
            }
        }
    }
    return best;
}

static UMF_COLD segment_t *range_search_all(const umf_range_t *range, size_t size,
                                            size_t alignment) {
    for (unsigned bin = umf_range_bin_next(range, umf_range_bin_of(size)); bin < UMF_RANGE_BINS;
         bin = umf_range_bin_next(range, bin + 1)) {
        segment_t *segment = bin_best(range, bin, SIZE_MAX, size, alignment);
        if (segment) {
            return segment;
        }
    }
    return NULL;
}

static segment_t *range_search(const umf_range_t *range, size_t size, size_t alignment) {
    unsigned bin = umf_range_bin_of(size);
    /* From `sure_bin` on every segment fits, so the first one is taken unseen. */
    size_t sure;
    unsigned sure_bin =
        umf_add(size, alignment - 1, &sure) ? umf_range_bin_of(sure) + 1 : UMF_RANGE_BINS;
    for (bin = umf_range_bin_next(range, bin); bin < sure_bin && bin < UMF_RANGE_BINS;
         bin = umf_range_bin_next(range, bin + 1)) {
        segment_t *segment = bin_best(range, bin, RANGE_DEPTH, size, alignment);
        if (segment) {
            return segment;
        }
    }
    return bin < UMF_RANGE_BINS ? range->bins[bin] : range_search_all(range, size, alignment);
}

/* Cuts `segment` to its first `size` bytes. The rest becomes a free segment. */
static void segment_cut(umf_range_t *range, segment_t *segment, size_t size) {
    segment_t *rest =
        umf_range_segment_new(range, segment->base + size, segment->size - size, UMF_RANGE_FREE);
    umf_range_segment_link(rest, segment->next);
    umf_range_segment_link(segment, rest);
    segment->size = size;
    rest->age = segment->age;
    umf_range_bin_add(range, rest);
}

umf_result_t umf_range_alloc(umf_range_t *range, size_t size, size_t alignment, uintptr_t *base) {
    if (size == 0 || alignment == 0) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *segment = range_search(range, size, alignment);
    if (!segment) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (!umf_range_segment_reserve(range, 2)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_range_bin_remove(range, segment);
    range->free_region_bytes -= umf_range_is_region(segment) ? segment->size : 0;
    size_t gap = segment_gap(segment, size, alignment);
    if (gap) {
        segment_t *front = umf_range_segment_new(range, segment->base, gap, UMF_RANGE_FREE);
        umf_range_segment_link(segment->prev, front);
        umf_range_segment_link(front, segment);
        segment->base += gap;
        segment->size -= gap;
        front->age = segment->age;
        umf_range_bin_add(range, front);
    }
    if (segment->size > size) {
        segment_cut(range, segment, size);
    }
    umf_range_used_add(range, segment);
    range->used_bytes += size;
    *base = segment->base;
    return UMF_RESULT_SUCCESS;
}

/* --- free, split, merge ----------------------------------------------------------------------- */

static uint8_t age_once_used(const segment_t *segment) {
    return segment->age == UMF_RANGE_NEW ? (uint8_t)UMF_RANGE_FRESH : segment->age;
}

/* If the ages differ, part of the result was free before, and the larger part decides. A clean one
 * counts as aged, because the result may be dirty. */
static uint8_t age_together(const segment_t *low, const segment_t *high) {
    uint8_t low_age = age_once_used(low), high_age = age_once_used(high);
    uint8_t larger =
        low->size > high->size || (low->size == high->size && low_age == UMF_RANGE_FRESH)
            ? low_age
            : high_age;
    return low_age == high_age || larger == UMF_RANGE_FRESH ? larger : (uint8_t)UMF_RANGE_AGED;
}

/* Merges two neighbours into the low one. */
static void segment_absorb(umf_range_t *range, segment_t *low, segment_t *high) {
    assert(low->next == high && high->prev == low && low->base + low->size == high->base);
    low->age = age_together(low, high);
    low->size += high->size;
    umf_range_segment_link(low, high->next);
    umf_range_segment_delete(range, high);
}

/* Frees a segment that is no longer in the table of used ones, and merges it with free neighbours.
 * `freed` may be NULL. */
static void segment_free(umf_range_t *range, segment_t *segment, umf_range_age_t age,
                         umf_range_freed_t *freed) {
    size_t size = segment->size;
    range->used_bytes -= size;
    segment->kind = UMF_RANGE_FREE;
    segment->age = (uint8_t)age;
    if (segment->next->kind == UMF_RANGE_FREE) {
        umf_range_bin_remove(range, segment->next);
        segment_absorb(range, segment, segment->next);
    }
    if (segment->prev && segment->prev->kind == UMF_RANGE_FREE) {
        segment = segment->prev;
        umf_range_bin_remove(range, segment);
        segment_absorb(range, segment, segment->next);
    }
    umf_range_bin_add(range, segment);
    bool whole_region = umf_range_is_region(segment);
    range->free_region_bytes += whole_region ? segment->size : 0;
    if (freed) {
        *freed = (umf_range_freed_t){.size = size,
                                     .free_base = segment->base,
                                     .free_size = segment->size,
                                     .whole_region = whole_region};
    }
}

static umf_result_t range_free(umf_range_t *range, uintptr_t base, size_t size, umf_range_age_t age,
                               umf_range_freed_t *freed) {
    segment_t *segment = used_take(range, base, size);
    if (!segment) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_free(range, segment, age, freed);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_free(umf_range_t *range, uintptr_t base, size_t size,
                            umf_range_freed_t *freed) {
    return range_free(range, base, size, UMF_RANGE_FRESH, freed);
}

umf_result_t umf_range_free_clean(umf_range_t *range, uintptr_t base, size_t size,
                                  umf_range_freed_t *freed) {
    return range_free(range, base, size, UMF_RANGE_CLEAN, freed);
}

umf_result_t umf_range_split(umf_range_t *range, uintptr_t base, size_t total, size_t first) {
    segment_t *segment = umf_range_used_find(range, base);
    if (!segment || segment->size != total || first == 0 || first >= total) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_range_segment_reserve(range, 1)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!generation_void(range, segment)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *high = umf_range_segment_new(range, base + first, total - first, UMF_RANGE_USED);
    umf_range_segment_link(high, segment->next);
    umf_range_segment_link(segment, high);
    segment->size = first;
    umf_range_used_add(range, high);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_merge(umf_range_t *range, uintptr_t low, uintptr_t high, size_t total) {
    segment_t *first = umf_range_used_find(range, low);
    if (!first || first->next->base != high || first->next->kind != UMF_RANGE_USED ||
        first->size + first->next->size != total || !generation_void(range, first) ||
        !used_take(range, high, 0)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_absorb(range, first, first->next);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_extend(umf_range_t *range, uintptr_t base, size_t old, size_t size) {
    segment_t *segment = umf_range_used_find(range, base);
    if (!segment || segment->size != old || size <= old) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *next = segment->next;
    if (next->kind != UMF_RANGE_FREE || next->size < size - old) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (!umf_range_segment_reserve(range, 1)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!generation_void(range, segment)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_range_bin_remove(range, next);
    if (next->size > size - old) {
        segment_cut(range, next, size - old);
    }
    segment_absorb(range, segment, next);
    range->used_bytes += size - old;
    return UMF_RESULT_SUCCESS;
}

/* --- leases ----------------------------------------------------------------------------------- */

umf_range_lease_t umf_range_lease(umf_range_t *range, uintptr_t base) {
    segment_t *segment = umf_range_used_find(range, base);
    if (!segment || !generation_void(range, segment)) {
        return (umf_range_lease_t){0};
    }
    uint32_t generation =
        __atomic_load_n(&segment->generation, __ATOMIC_RELAXED) | UMF_RANGE_CLAIMED;
    __atomic_store_n(&segment->generation, generation, __ATOMIC_RELAXED);
    claimed_link(range, segment);
    return (umf_range_lease_t){&segment->generation, generation};
}

/* Frees the reserved segment if it still has this generation: its thread may have taken it back. */
static bool reserved_free(umf_range_t *range, segment_t *segment, uint32_t generation) {
    if (!generation_end(range, segment, generation)) {
        return false;
    }
    segment_free(range, used_take(range, segment->base, 0), UMF_RANGE_FRESH, NULL);
    return true;
}

bool umf_range_lease_end(umf_range_t *range, const umf_range_lease_t *lease) {
    segment_t *segment = UMF_CONTAINER_OF(lease->generation, segment_t, generation);
    /* The lease ends from one of its two states: used, or reserved. */
    return !generation_end(range, segment, lease->number) &&
           reserved_free(range, segment, lease->number | UMF_RANGE_RESERVED);
}

size_t umf_range_reclaim(umf_range_t *range) {
    size_t count = 0;
    for (segment_t *segment = range->claimed, *next; segment; segment = next) {
        next = segment->bin_next;
        uint32_t generation = __atomic_load_n(&segment->generation, __ATOMIC_RELAXED);
        count += (generation & UMF_RANGE_RESERVED) && reserved_free(range, segment, generation);
    }
    return count;
}

/* --- kept segments ---------------------------------------------------------------------------- */

umf_range_kept_t umf_range_keep(umf_range_t *range, uintptr_t base, size_t most) {
    segment_t *segment = umf_range_used_find(range, base);
    if (!segment || segment->size > most) {
        return (umf_range_kept_t){0};
    }
    uint32_t generation = __atomic_load_n(&segment->generation, __ATOMIC_RELAXED);
    if (umf_unlikely(generation & (UMF_RANGE_CLAIMED | UMF_RANGE_RESERVED))) {
        if (!generation_void(range, segment)) {
            return (umf_range_kept_t){0};
        }
        generation = __atomic_load_n(&segment->generation, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&segment->generation, generation | UMF_RANGE_RESERVED, __ATOMIC_RELAXED);
    return (umf_range_kept_t){&segment->generation, segment->size};
}
