/*
 * Range: best fit with boundary links.
 *
 * Segments of a region are linked in address order, so free finds its neighbours without searching.
 * Free segments are listed in bins by size, eight bins for each power of two (the segments of a bin
 * differ by less than 12.5 %), and a two-level bitmap leads to the next bin that is not empty. Used
 * segments are found by a hash of their start.
 *
 * Used segments with a lease are in a list of their own, through the links that free segments have
 * in their bins. The generation of a leased segment changes without the lock. The thread that
 * changes it to an unclaimed value has the segment to itself. The number in a generation outlives
 * the segment, so that old leases stay void.
 *
 * A region ends in a segment of kind RANGE_END, which covers no bytes (its `size` is the size of
 * the region) and is never free. It stops coalescing at the region's end, and the sorted table of
 * regions points to it.
 *
 * Every segment of a bin above that of `size + alignment` fits, so these bins are not searched. In
 * the bins below, a few segments are tried. All segments are searched before an alloc fails, so a
 * request fails only if no segment fits.
 */
#include "ds/range.h"

#include <assert.h>

#include "base/meta.h"

#define RANGE_STEPS 3 /* log2 of the bins per doubling */
#define RANGE_BINS ((64 - RANGE_STEPS + 1) << RANGE_STEPS)
#define RANGE_WORDS ((RANGE_BINS + 63) / 64)
#define RANGE_DEPTH 8 /* segments that are tried in one bin */

#define RANGE_FIRST_SLAB 1024
#define RANGE_LARGEST_SLAB 65536
#define RANGE_FIRST_HASH 16

/* UNUSED: it describes nothing. */
typedef enum range_kind_t { RANGE_UNUSED, RANGE_FREE, RANGE_USED, RANGE_END } range_kind_t;

/* State of a free segment's pages. */
typedef enum range_age_t {
    RANGE_FRESH, /* dirty: some of it may have been used a moment ago */
    RANGE_AGED,  /* dirty: most of it was free at the last decay pass */
    RANGE_CLEAN, /* purged */
    RANGE_NEW,   /* as it was added: likely to have no pages, because it was never used */
} range_age_t;

typedef struct segment_t {
    uintptr_t base;
    size_t size;
    struct segment_t *prev, *next;         /* in the region; NULL at its two ends */
    struct segment_t *bin_prev, *bin_next; /* free segments; used segments with a lease */
    struct segment_t *chain; /* used segments of one hash slot; unused segments of the slab */
    uint32_t generation;     /* a number above CLAIMED and UMF_RANGE_RESERVED. Sync: atomic */
    uint16_t bin;            /* of a free segment */
    uint8_t kind;            /* range_kind_t */
    uint8_t age;             /* range_age_t, of a free segment */
} segment_t;
_Static_assert(sizeof(segment_t) == 64, "the metadata of a block");

#define CLAIMED 2u /* bit of a generation: there is a valid lease */

typedef struct range_slab_t {
    struct range_slab_t *next;
    size_t size;
    bool has_lease; /* found by umf_range_keep_lease since the last trim */
    segment_t segments[];
} range_slab_t;

struct umf_range_t {
    segment_t *unused;
    size_t unused_count;
    range_slab_t *slabs;

    segment_t **hash;
    size_t hash_size; /* power of two */
    size_t used_count;
    segment_t *claimed; /* used segments with a lease */

    segment_t **regions; /* their end segments, sorted by address */
    size_t region_count, region_room;

    size_t used_bytes, total_bytes;
    size_t free_region_bytes; /* of regions that are wholly free */

    uint64_t summary;             /* which words of the bitmap are not 0 */
    uint64_t bitmap[RANGE_WORDS]; /* which bins are not empty */
    segment_t *bins[RANGE_BINS];
};

const uint32_t umf_range_view[5] = {
    offsetof(umf_range_t, used_bytes), offsetof(umf_range_t, claimed),  offsetof(segment_t, size),
    offsetof(segment_t, bin_next),     offsetof(segment_t, generation),
};

/* --- unused segments ----------------------------------------------------------------------------
 */

static size_t slab_count(const range_slab_t *slab) {
    return (slab->size - sizeof(*slab)) / sizeof(segment_t);
}

static void segment_delete(umf_range_t *range, segment_t *segment) {
    segment->kind = RANGE_UNUSED;
    segment->chain = range->unused;
    range->unused = segment;
    range->unused_count++;
}

static bool slab_add(umf_range_t *range) {
    size_t size = range->slabs ? range->slabs->size * 2 : RANGE_FIRST_SLAB;
    if (size > RANGE_LARGEST_SLAB) {
        size = RANGE_LARGEST_SLAB;
    }
    range_slab_t *slab = umf_meta_alloc(size);
    if (!slab) {
        return false;
    }
    slab->size = size;
    slab->next = range->slabs;
    range->slabs = slab;
    for (size_t i = 0; i < slab_count(slab); i++) {
        segment_delete(range, &slab->segments[i]);
    }
    return true;
}

/* Makes sure that the next `count` (at most 2) calls of segment_new succeed, so that no change has
 * to be undone. */
static bool segment_reserve(umf_range_t *range, size_t count) {
    return umf_likely(range->unused_count >= count) || slab_add(range);
}

static segment_t *segment_new(umf_range_t *range, uintptr_t base, size_t size, range_kind_t kind) {
    segment_t *segment = range->unused;
    assert(segment);
    range->unused = segment->chain;
    range->unused_count--;
    segment->base = base;
    segment->size = size;
    segment->prev = segment->next = NULL;
    segment->kind = (uint8_t)kind;
    segment->age = RANGE_FRESH;
    return segment;
}

static void segment_link(segment_t *prev, segment_t *next) {
    if (prev) {
        prev->next = next;
    }
    if (next) {
        next->prev = prev;
    }
}

/* --- bins of free segments ----------------------------------------------------------------------
 */

/* Sizes below 8 have a bin each. For larger ones the bin is the exponent and the next three bits.
 */
static unsigned bin_of(size_t size) {
    if (size < (1u << RANGE_STEPS)) {
        return (unsigned)size;
    }
    unsigned exponent = 63 - (unsigned)__builtin_clzll(size);
    unsigned step = (unsigned)(size >> (exponent - RANGE_STEPS)) & ((1u << RANGE_STEPS) - 1);
    return ((exponent - RANGE_STEPS + 1) << RANGE_STEPS) + step;
}

static inline void bin_add(umf_range_t *range, segment_t *segment) {
    unsigned bin = bin_of(segment->size);
    segment->bin = (uint16_t)bin;
    segment->bin_prev = NULL;
    segment->bin_next = range->bins[bin];
    if (segment->bin_next) {
        segment->bin_next->bin_prev = segment;
    }
    range->bins[bin] = segment;
    range->bitmap[bin / 64] |= UINT64_C(1) << (bin % 64);
    range->summary |= UINT64_C(1) << (bin / 64);
}

static inline void bin_remove(umf_range_t *range, segment_t *segment) {
    if (segment->bin_next) {
        segment->bin_next->bin_prev = segment->bin_prev;
    }
    if (segment->bin_prev) {
        segment->bin_prev->bin_next = segment->bin_next;
        return;
    }
    unsigned bin = segment->bin;
    range->bins[bin] = segment->bin_next;
    if (!segment->bin_next) {
        range->bitmap[bin / 64] &= ~(UINT64_C(1) << (bin % 64));
        if (!range->bitmap[bin / 64]) {
            range->summary &= ~(UINT64_C(1) << (bin / 64));
        }
    }
}

/* The first bin from `bin` on that is not empty; RANGE_BINS: there is none. */
static unsigned bin_next(const umf_range_t *range, unsigned bin) {
    if (bin >= RANGE_BINS) {
        return RANGE_BINS;
    }
    uint64_t word = range->bitmap[bin / 64] >> (bin % 64);
    if (word) {
        return bin + (unsigned)__builtin_ctzll(word);
    }
    unsigned i = bin / 64 + 1;
    uint64_t words = i < RANGE_WORDS ? range->summary >> i : 0;
    if (!words) {
        return RANGE_BINS;
    }
    i += (unsigned)__builtin_ctzll(words);
    return i * 64 + (unsigned)__builtin_ctzll(range->bitmap[i]);
}

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

static bool is_reserved(const segment_t *segment) {
    return __atomic_load_n(&segment->generation, __ATOMIC_RELAXED) & UMF_RANGE_RESERVED;
}

/* Ends the lease if the segment still has exactly this generation. false: it has another by now. */
static bool generation_end(umf_range_t *range, segment_t *segment, uint32_t generation) {
    uint32_t none = (generation | CLAIMED | UMF_RANGE_RESERVED) + 1;
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
        if (umf_likely(!(generation & CLAIMED))) {
            return true;
        }
        if (generation & UMF_RANGE_RESERVED) {
            return false;
        }
        if (generation_end(range, segment, generation)) {
            return true;
        }
    }
}

/* --- used segments by their start ---------------------------------------------------------------
 */

static segment_t **used_slot(segment_t **hash, size_t size, uintptr_t base) {
    uint64_t key = (uint64_t)base * UINT64_C(0x9E3779B97F4A7C15);
    return &hash[(key ^ (key >> 32)) & (size - 1)];
}

static segment_t *used_find(const umf_range_t *range, uintptr_t base) {
    segment_t *segment = *used_slot(range->hash, range->hash_size, base);
    while (segment && segment->base != base) {
        segment = segment->chain;
    }
    return segment;
}

/* Changes the size of the table. It does not fail: without memory the table only becomes slower. */
static UMF_COLD void used_rehash(umf_range_t *range, size_t size) {
    segment_t **hash = umf_meta_alloc(size * sizeof(*hash));
    if (!hash) {
        return;
    }
    for (size_t i = 0; i < range->hash_size; i++) {
        for (segment_t *segment = range->hash[i], *next; segment; segment = next) {
            next = segment->chain;
            segment_t **slot = used_slot(hash, size, segment->base);
            segment->chain = *slot;
            *slot = segment;
        }
    }
    umf_meta_free(range->hash, range->hash_size * sizeof(*hash));
    range->hash = hash;
    range->hash_size = size;
}

static void used_add(umf_range_t *range, segment_t *segment) {
    if (umf_unlikely(range->used_count >= range->hash_size)) {
        used_rehash(range, range->hash_size * 2);
    }
    segment_t **slot = used_slot(range->hash, range->hash_size, segment->base);
    segment->kind = RANGE_USED;
    segment->chain = *slot;
    *slot = segment;
    range->used_count++;
}

/* Finds a used segment and removes it from the table. `size` 0: any size. NULL: there is no such
 * segment, or it is reserved. */
static segment_t *used_take(umf_range_t *range, uintptr_t base, size_t size) {
    segment_t **slot = used_slot(range->hash, range->hash_size, base);
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

/* --- regions ------------------------------------------------------------------------------------
 */

/* The index of the first region that ends above `addr`. */
static size_t region_above(const umf_range_t *range, uintptr_t addr) {
    size_t low = 0, high = range->region_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (range->regions[middle]->base > addr) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static uintptr_t region_base(const segment_t *end) {
    return end->base - end->size;
}

static bool region_reserve(umf_range_t *range) {
    if (range->region_count < range->region_room) {
        return true;
    }
    size_t room = range->region_room ? range->region_room * 2 : 4;
    segment_t **regions = umf_meta_alloc(room * sizeof(*regions));
    if (!regions) {
        return false;
    }
    for (size_t i = 0; i < range->region_count; i++) {
        regions[i] = range->regions[i];
    }
    umf_meta_free(range->regions, range->region_room * sizeof(*regions));
    range->regions = regions;
    range->region_room = room;
    return true;
}

/* Does the segment cover its whole region? */
static bool is_region(const segment_t *segment) {
    return !segment->prev && segment->next->kind == RANGE_END;
}

/* The only segment of a wholly free region. NULL: some of the region is used. */
static segment_t *region_free_segment(const segment_t *end) {
    segment_t *segment = end->prev;
    return segment->kind == RANGE_FREE && !segment->prev ? segment : NULL;
}

umf_range_t *umf_range_create(void) {
    umf_range_t *range = umf_meta_alloc(sizeof(*range));
    if (!range) {
        return NULL;
    }
    range->hash = umf_meta_alloc(RANGE_FIRST_HASH * sizeof(*range->hash));
    range->hash_size = RANGE_FIRST_HASH;
    if (!range->hash) {
        umf_meta_free(range, sizeof(*range));
        return NULL;
    }
    return range;
}

void umf_range_destroy(umf_range_t *range) {
    for (range_slab_t *slab = range->slabs, *next; slab; slab = next) {
        next = slab->next;
        umf_meta_free(slab, slab->size);
    }
    umf_meta_free(range->hash, range->hash_size * sizeof(*range->hash));
    umf_meta_free(range->regions, range->region_room * sizeof(*range->regions));
    umf_meta_free(range, sizeof(*range));
}

/* --- unused bookkeeping -------------------------------------------------------------------------
 */

void umf_range_keep_lease(umf_range_t *range, const uint32_t *generation) {
    uintptr_t at = (uintptr_t)generation;
    for (range_slab_t *slab = range->slabs; slab; slab = slab->next) {
        slab->has_lease |= at - (uintptr_t)slab < slab->size;
    }
}

static bool slab_is_unused(const range_slab_t *slab) {
    bool is_unused = slab->size == RANGE_LARGEST_SLAB && !slab->has_lease;
    for (size_t i = 0; is_unused && i < slab_count(slab); i++) {
        is_unused = slab->segments[i].kind == RANGE_UNUSED;
    }
    return is_unused;
}

static void slab_keep(umf_range_t *range, range_slab_t *slab) {
    slab->has_lease = false;
    for (size_t i = 0; i < slab_count(slab); i++) {
        if (slab->segments[i].kind == RANGE_UNUSED) {
            segment_delete(range, &slab->segments[i]);
        }
    }
}

/* Only the largest slabs go: smaller blocks of the arena stay with the process anyway. */
void umf_range_trim(umf_range_t *range) {
    range->unused = NULL;
    range->unused_count = 0;
    for (range_slab_t **at = &range->slabs, *slab; (slab = *at) != NULL;) {
        if (slab_is_unused(slab)) {
            *at = slab->next;
            umf_meta_free(slab, slab->size);
        } else {
            slab_keep(range, slab);
            at = &slab->next;
        }
    }
    size_t size = RANGE_FIRST_HASH;
    while (size < range->used_count) {
        size *= 2;
    }
    if (size < range->hash_size) {
        used_rehash(range, size);
    }
}

/* --- regions and segments -----------------------------------------------------------------------
 */

umf_result_t umf_range_add(umf_range_t *range, uintptr_t base, size_t size) {
    uintptr_t end;
    if (size == 0 || __builtin_add_overflow(base, size, &end)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t at = region_above(range, base);
    if (at < range->region_count && region_base(range->regions[at]) < end) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!region_reserve(range) || !segment_reserve(range, 2)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    segment_t *segment = segment_new(range, base, size, RANGE_FREE);
    segment_t *last = segment_new(range, end, size, RANGE_END);
    segment->age = RANGE_NEW;
    segment_link(segment, last);
    bin_add(range, segment);
    for (size_t i = range->region_count++; i > at; i--) {
        range->regions[i] = range->regions[i - 1];
    }
    range->regions[at] = last;
    range->total_bytes += size;
    range->free_region_bytes += size;
    return UMF_RESULT_SUCCESS;
}

/* The end segment of the region that ends at `end`, NULL if there is none. */
static segment_t *region_end(const umf_range_t *range, uintptr_t end) {
    size_t at = end ? region_above(range, end - 1) : range->region_count;
    return at < range->region_count && range->regions[at]->base == end ? range->regions[at] : NULL;
}

size_t umf_range_free_tail(const umf_range_t *range, uintptr_t end) {
    const segment_t *last = region_end(range, end);
    return last && last->prev->kind == RANGE_FREE ? last->prev->size : 0;
}

umf_result_t umf_range_grow(umf_range_t *range, uintptr_t end, size_t more) {
    size_t at = end ? region_above(range, end - 1) : range->region_count;
    uintptr_t new_end;
    if (at == range->region_count || range->regions[at]->base != end || more == 0 ||
        __builtin_add_overflow(end, more, &new_end) ||
        (at + 1 < range->region_count && region_base(range->regions[at + 1]) < new_end)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *last = range->regions[at];
    segment_t *segment = last->prev;
    if (segment->kind == RANGE_FREE) {
        bin_remove(range, segment);
        segment->size += more;
    } else {
        if (!segment_reserve(range, 1)) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        segment_t *added = segment_new(range, end, more, RANGE_FREE);
        segment_link(segment, added);
        segment_link(added, last);
        segment = added;
    }
    bin_add(range, segment);
    range->free_region_bytes += is_region(segment) ? more : 0;
    last->base = new_end;
    last->size += more;
    range->total_bytes += more;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_remove(umf_range_t *range, uintptr_t base) {
    size_t at = region_above(range, base);
    if (at == range->region_count || region_base(range->regions[at]) != base) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *last = range->regions[at];
    segment_t *segment = region_free_segment(last);
    if (!segment) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    bin_remove(range, segment);
    range->total_bytes -= last->size;
    range->free_region_bytes -= last->size;
    segment_delete(range, segment);
    segment_delete(range, last);
    range->region_count--;
    for (size_t i = at; i < range->region_count; i++) {
        range->regions[i] = range->regions[i + 1];
    }
    return UMF_RESULT_SUCCESS;
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
    for (unsigned bin = bin_next(range, bin_of(size)); bin < RANGE_BINS;
         bin = bin_next(range, bin + 1)) {
        segment_t *segment = bin_best(range, bin, SIZE_MAX, size, alignment);
        if (segment) {
            return segment;
        }
    }
    return NULL;
}

static segment_t *range_search(const umf_range_t *range, size_t size, size_t alignment) {
    unsigned bin = bin_of(size);
    /* From `sure_bin` on every segment fits, so the first one is taken unseen. */
    size_t sure;
    unsigned sure_bin = umf_add(size, alignment - 1, &sure) ? bin_of(sure) + 1 : RANGE_BINS;
    for (bin = bin_next(range, bin); bin < sure_bin && bin < RANGE_BINS;
         bin = bin_next(range, bin + 1)) {
        segment_t *segment = bin_best(range, bin, RANGE_DEPTH, size, alignment);
        if (segment) {
            return segment;
        }
    }
    return bin < RANGE_BINS ? range->bins[bin] : range_search_all(range, size, alignment);
}

/* Cuts `segment` to its first `size` bytes. The rest becomes a free segment. */
static void segment_cut(umf_range_t *range, segment_t *segment, size_t size) {
    segment_t *rest = segment_new(range, segment->base + size, segment->size - size, RANGE_FREE);
    segment_link(rest, segment->next);
    segment_link(segment, rest);
    segment->size = size;
    rest->age = segment->age;
    bin_add(range, rest);
}

umf_result_t umf_range_alloc(umf_range_t *range, size_t size, size_t alignment, uintptr_t *base) {
    if (size == 0 || alignment == 0) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *segment = range_search(range, size, alignment);
    if (!segment) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (!segment_reserve(range, 2)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    bin_remove(range, segment);
    range->free_region_bytes -= is_region(segment) ? segment->size : 0;
    size_t gap = segment_gap(segment, size, alignment);
    if (gap) {
        segment_t *front = segment_new(range, segment->base, gap, RANGE_FREE);
        segment_link(segment->prev, front);
        segment_link(front, segment);
        segment->base += gap;
        segment->size -= gap;
        front->age = segment->age;
        bin_add(range, front);
    }
    if (segment->size > size) {
        segment_cut(range, segment, size);
    }
    used_add(range, segment);
    range->used_bytes += size;
    *base = segment->base;
    return UMF_RESULT_SUCCESS;
}

/* --- free, split, merge ----------------------------------------------------------------------- */

static uint8_t age_once_used(const segment_t *segment) {
    return segment->age == RANGE_NEW ? (uint8_t)RANGE_FRESH : segment->age;
}

/* If the ages differ, part of the result was free before, and the larger part decides. A clean one
 * counts as aged, because the result may be dirty. */
static uint8_t age_together(const segment_t *low, const segment_t *high) {
    uint8_t low_age = age_once_used(low), high_age = age_once_used(high);
    uint8_t larger = low->size > high->size || (low->size == high->size && low_age == RANGE_FRESH)
                         ? low_age
                         : high_age;
    return low_age == high_age || larger == RANGE_FRESH ? larger : (uint8_t)RANGE_AGED;
}

/* Merges two neighbours into the low one. */
static void segment_absorb(umf_range_t *range, segment_t *low, segment_t *high) {
    assert(low->next == high && high->prev == low && low->base + low->size == high->base);
    low->age = age_together(low, high);
    low->size += high->size;
    segment_link(low, high->next);
    segment_delete(range, high);
}

/* Frees a segment that is no longer in the table of used ones, and merges it with free neighbours.
 * `freed` may be NULL. */
static void segment_free(umf_range_t *range, segment_t *segment, range_age_t age,
                         umf_range_freed_t *freed) {
    size_t size = segment->size;
    range->used_bytes -= size;
    segment->kind = RANGE_FREE;
    segment->age = (uint8_t)age;
    if (segment->next->kind == RANGE_FREE) {
        bin_remove(range, segment->next);
        segment_absorb(range, segment, segment->next);
    }
    if (segment->prev && segment->prev->kind == RANGE_FREE) {
        segment = segment->prev;
        bin_remove(range, segment);
        segment_absorb(range, segment, segment->next);
    }
    bin_add(range, segment);
    bool whole_region = is_region(segment);
    range->free_region_bytes += whole_region ? segment->size : 0;
    if (freed) {
        *freed = (umf_range_freed_t){.size = size,
                                     .free_base = segment->base,
                                     .free_size = segment->size,
                                     .whole_region = whole_region};
    }
}

static umf_result_t range_free(umf_range_t *range, uintptr_t base, size_t size, range_age_t age,
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
    return range_free(range, base, size, RANGE_FRESH, freed);
}

umf_result_t umf_range_free_clean(umf_range_t *range, uintptr_t base, size_t size,
                                  umf_range_freed_t *freed) {
    return range_free(range, base, size, RANGE_CLEAN, freed);
}

umf_result_t umf_range_split(umf_range_t *range, uintptr_t base, size_t total, size_t first) {
    segment_t *segment = used_find(range, base);
    if (!segment || segment->size != total || first == 0 || first >= total) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!segment_reserve(range, 1)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!generation_void(range, segment)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *high = segment_new(range, base + first, total - first, RANGE_USED);
    segment_link(high, segment->next);
    segment_link(segment, high);
    segment->size = first;
    used_add(range, high);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_merge(umf_range_t *range, uintptr_t low, uintptr_t high, size_t total) {
    segment_t *first = used_find(range, low);
    if (!first || first->next->base != high || first->next->kind != RANGE_USED ||
        first->size + first->next->size != total || !generation_void(range, first) ||
        !used_take(range, high, 0)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_absorb(range, first, first->next);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_extend(umf_range_t *range, uintptr_t base, size_t old, size_t size) {
    segment_t *segment = used_find(range, base);
    if (!segment || segment->size != old || size <= old) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *next = segment->next;
    if (next->kind != RANGE_FREE || next->size < size - old) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (!segment_reserve(range, 1)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!generation_void(range, segment)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    bin_remove(range, next);
    if (next->size > size - old) {
        segment_cut(range, next, size - old);
    }
    segment_absorb(range, segment, next);
    range->used_bytes += size - old;
    return UMF_RESULT_SUCCESS;
}

/* --- leases ----------------------------------------------------------------------------------- */

umf_range_lease_t umf_range_lease(umf_range_t *range, uintptr_t base) {
    segment_t *segment = used_find(range, base);
    if (!segment || !generation_void(range, segment)) {
        return (umf_range_lease_t){0};
    }
    uint32_t generation = __atomic_load_n(&segment->generation, __ATOMIC_RELAXED) | CLAIMED;
    __atomic_store_n(&segment->generation, generation, __ATOMIC_RELAXED);
    claimed_link(range, segment);
    return (umf_range_lease_t){&segment->generation, generation};
}

/* Frees the reserved segment if it still has this generation: its thread may have taken it back. */
static bool reserved_free(umf_range_t *range, segment_t *segment, uint32_t generation) {
    if (!generation_end(range, segment, generation)) {
        return false;
    }
    segment_free(range, used_take(range, segment->base, 0), RANGE_FRESH, NULL);
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

/* --- counts and visits ------------------------------------------------------------------------ */

size_t umf_range_used_size(const umf_range_t *range, uintptr_t base) {
    const segment_t *segment = used_find(range, base);
    return segment && !is_reserved(segment) ? segment->size : 0;
}

static umf_range_use_t use_of(const segment_t *segment) {
    return segment->kind == RANGE_FREE ? UMF_RANGE_IS_FREE
           : is_reserved(segment)      ? UMF_RANGE_IS_RESERVED
                                       : UMF_RANGE_IS_USED;
}

/* The segment after which umf_range_pieces begins. NULL: there is none. */
static const segment_t *piece_above(const umf_range_t *range, uintptr_t region, uintptr_t below) {
    if (below) {
        return used_find(range, below);
    }
    size_t at = region_above(range, region);
    bool is_known = at < range->region_count && region_base(range->regions[at]) == region;
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
        const segment_t *segment = region_free_segment(range->regions[i]);
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
    for (unsigned bin = bin_next(range, 0); bin < RANGE_BINS; bin = bin_next(range, bin + 1)) {
        for (const segment_t *segment = range->bins[bin]; segment; segment = segment->bin_next) {
            visit(segment->base, segment->size, arg);
        }
    }
}

/* Selects the free segments that are taken. */
typedef bool (*segment_choice_t)(segment_t *segment);

static bool segment_is_any(segment_t *segment) {
    (void)segment;
    return true;
}

static bool segment_is_dirty(segment_t *segment) {
    return segment->age == RANGE_FRESH || segment->age == RANGE_AGED;
}

/* Aged by an earlier pass. A fresh segment is aged now. */
static bool segment_is_idle(segment_t *segment) {
    bool is_idle = segment->age == RANGE_AGED;
    segment->age = segment->age == RANGE_CLEAN ? RANGE_CLEAN : RANGE_AGED;
    return is_idle;
}

static size_t region_take(umf_range_t *range, const segment_t *end, uintptr_t *cursor, size_t min,
                          segment_choice_t choice, umf_range_segment_t *segments, size_t n) {
    size_t count = 0;
    for (segment_t *segment = end->prev; segment && count < n; segment = segment->prev) {
        if (segment->kind == RANGE_FREE && segment->base < *cursor && segment->size >= min &&
            choice(segment)) {
            bin_remove(range, segment);
            range->free_region_bytes -= is_region(segment) ? segment->size : 0;
            used_add(range, segment);
            range->used_bytes += segment->size;
            segments[count++] = (umf_range_segment_t){segment->base, segment->size};
        }
    }
    /* The next call continues below the last segment taken, or below this region. */
    *cursor = count == n ? segments[n - 1].base : region_base(end);
    return count;
}

static size_t range_take(umf_range_t *range, uintptr_t *cursor, size_t min, segment_choice_t choice,
                         umf_range_segment_t *segments, size_t n) {
    size_t count = 0;
    size_t at = *cursor ? region_above(range, *cursor - 1) + 1 : 0;
    for (at = at < range->region_count ? at : range->region_count; at > 0 && count < n; at--) {
        if (region_base(range->regions[at - 1]) < *cursor) {
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
    size_t at = region_above(range, base);
    bool is_known = at < range->region_count && region_base(range->regions[at]) == base;
    return is_known && *cursor > base
               ? region_take(range, range->regions[at], cursor, 1, segment_is_any, segments, n)
               : 0;
}

size_t umf_range_take_idle(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_segment_t *segments, size_t n) {
    return range_take(range, cursor, min, segment_is_idle, segments, n);
}

size_t umf_range_used_bytes(const umf_range_t *range) {
    return range->used_bytes;
}

size_t umf_range_total_bytes(const umf_range_t *range) {
    return range->total_bytes;
}

size_t umf_range_free_region_bytes(const umf_range_t *range) {
    return range->free_region_bytes;
}

size_t umf_range_region_count(const umf_range_t *range) {
    return range->region_count;
}

typedef struct range_tally_t {
    size_t used, used_bytes, total_bytes, free_region_bytes, free;
} range_tally_t;

static bool region_is_valid(const umf_range_t *range, const segment_t *end, range_tally_t *tally) {
    uintptr_t expected = end->base;
    for (const segment_t *segment = end->prev; segment; segment = segment->prev) {
        bool is_free = segment->kind == RANGE_FREE;
        bool linked = segment->next && segment->next->prev == segment;
        if (!linked || segment->size == 0 || segment->base + segment->size != expected ||
            (is_free && segment->next->kind == RANGE_FREE) ||
            (!is_free && used_find(range, segment->base) != segment)) {
            return false;
        }
        expected = segment->base;
        tally->free += is_free;
        tally->used += !is_free;
        tally->used_bytes += is_free ? 0 : segment->size;
    }
    tally->total_bytes += end->size;
    tally->free_region_bytes += region_free_segment(end) ? end->size : 0;
    return expected == region_base(end);
}

static void tally_bin_segment(uintptr_t base, size_t size, void *arg) {
    (void)base;
    (void)size;
    ((range_tally_t *)arg)->free--;
}

bool umf_range_is_valid(const umf_range_t *range) {
    range_tally_t tally = {0};
    for (size_t i = 0; i < range->region_count; i++) {
        if ((i > 0 && range->regions[i - 1]->base > region_base(range->regions[i])) ||
            !region_is_valid(range, range->regions[i], &tally)) {
            return false;
        }
    }
    umf_range_free_segments(range, tally_bin_segment, &tally);
    return tally.free == 0 && tally.used == range->used_count &&
           tally.used_bytes == range->used_bytes && tally.total_bytes == range->total_bytes &&
           tally.free_region_bytes == range->free_region_bytes;
}
