/*
 * The inside of a range: best fit with boundary links.
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
 * A region ends in a segment of kind UMF_RANGE_END, which covers no bytes (its `size` is the size
 * of the region) and is never free. It stops coalescing at the region's end, and the sorted table
 * of regions points to it.
 *
 * Every segment of a bin above that of `size + alignment` fits, so these bins are not searched. In
 * the bins below, a few segments are tried. All segments are searched before an alloc fails, so a
 * request fails only if no segment fits.
 */
#ifndef UMF_SRC_DS_RANGE_OWN_H
#define UMF_SRC_DS_RANGE_OWN_H

#include <assert.h>

#include "ds/range.h"

#define UMF_RANGE_STEPS 3 /* log2 of the bins per doubling */
#define UMF_RANGE_BINS ((64 - UMF_RANGE_STEPS + 1) << UMF_RANGE_STEPS)
#define UMF_RANGE_WORDS ((UMF_RANGE_BINS + 63) / 64)

/* UNUSED: it describes nothing. */
typedef enum umf_range_kind_t {
    UMF_RANGE_UNUSED,
    UMF_RANGE_FREE,
    UMF_RANGE_USED,
    UMF_RANGE_END
} umf_range_kind_t;

/* State of a free segment's pages. */
typedef enum umf_range_age_t {
    UMF_RANGE_FRESH, /* dirty: some of it may have been used a moment ago */
    UMF_RANGE_AGED,  /* dirty: most of it was free at the last decay pass */
    UMF_RANGE_CLEAN, /* purged */
    UMF_RANGE_NEW,   /* as it was added: likely to have no pages, because it was never used */
} umf_range_age_t;

#define UMF_RANGE_CLAIMED 2u /* bit of a generation: there is a valid lease */

typedef struct umf_range_node_t {
    uintptr_t base;
    size_t size;
    struct umf_range_node_t *prev, *next;         /* in the region; NULL at its two ends */
    struct umf_range_node_t *bin_prev, *bin_next; /* free segments; used segments with a lease */
    struct umf_range_node_t
        *chain;          /* used segments of one hash slot; unused segments of the slab */
    uint32_t generation; /* a number above UMF_RANGE_CLAIMED and UMF_RANGE_RESERVED. Sync: atomic */
    uint16_t bin;        /* of a free segment */
    uint8_t kind;        /* umf_range_kind_t */
    uint8_t age;         /* umf_range_age_t, of a free segment */
} umf_range_node_t;
_Static_assert(sizeof(umf_range_node_t) == 64, "the metadata of a block");

struct umf_range_t {
    umf_range_node_t *unused;
    size_t unused_count;
    struct umf_range_slab_t *slabs;

    umf_range_node_t **hash;
    size_t hash_size; /* power of two */
    size_t used_count;
    umf_range_node_t *claimed; /* used segments with a lease */

    umf_range_node_t **regions; /* their end segments, sorted by address */
    size_t region_count, region_room;

    size_t used_bytes, total_bytes;
    size_t free_region_bytes; /* of regions that are wholly free */

    uint64_t summary;                 /* which words of the bitmap are not 0 */
    uint64_t bitmap[UMF_RANGE_WORDS]; /* which bins are not empty */
    umf_range_node_t *bins[UMF_RANGE_BINS];
};

/* --- range.c ---------------------------------------------------------------------------------- */

/* Makes unused segments. */
bool umf_range_slab_add(umf_range_t *range);
/* Changes the size of the table. It does not fail: without memory the table only becomes slower. */
UMF_COLD void umf_range_used_rehash(umf_range_t *range, size_t size);
/* The index of the first region that ends above `addr`. */
size_t umf_range_region_above(const umf_range_t *range, uintptr_t addr);

/* --- unused segments -------------------------------------------------------------------------- */

static inline void umf_range_segment_delete(umf_range_t *range, umf_range_node_t *segment) {
    segment->kind = UMF_RANGE_UNUSED;
    segment->chain = range->unused;
    range->unused = segment;
    range->unused_count++;
}

/* Makes sure that the next `count` (at most 2) calls of umf_range_segment_new succeed, so that no
 * change has to be undone. */
static inline bool umf_range_segment_reserve(umf_range_t *range, size_t count) {
    return umf_likely(range->unused_count >= count) || umf_range_slab_add(range);
}

static inline umf_range_node_t *umf_range_segment_new(umf_range_t *range, uintptr_t base,
                                                      size_t size, umf_range_kind_t kind) {
    umf_range_node_t *segment = range->unused;
    assert(segment);
    range->unused = segment->chain;
    range->unused_count--;
    segment->base = base;
    segment->size = size;
    segment->prev = segment->next = NULL;
    segment->kind = (uint8_t)kind;
    segment->age = UMF_RANGE_FRESH;
    return segment;
}

static inline void umf_range_segment_link(umf_range_node_t *prev, umf_range_node_t *next) {
    if (prev) {
        prev->next = next;
    }
    if (next) {
        next->prev = prev;
    }
}

/* --- bins of free segments -------------------------------------------------------------------- */

/* Sizes below 8 have a bin each. For larger ones the bin is the exponent and the next three bits.
 */
static inline unsigned umf_range_bin_of(size_t size) {
    if (size < (1u << UMF_RANGE_STEPS)) {
        return (unsigned)size;
    }
    unsigned exponent = 63 - (unsigned)__builtin_clzll(size);
    unsigned step =
        (unsigned)(size >> (exponent - UMF_RANGE_STEPS)) & ((1u << UMF_RANGE_STEPS) - 1);
    return ((exponent - UMF_RANGE_STEPS + 1) << UMF_RANGE_STEPS) + step;
}

static inline void umf_range_bin_add(umf_range_t *range, umf_range_node_t *segment) {
    unsigned bin = umf_range_bin_of(segment->size);
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

static inline void umf_range_bin_remove(umf_range_t *range, umf_range_node_t *segment) {
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

/* The first bin from `bin` on that is not empty; UMF_RANGE_BINS: there is none. */
static inline unsigned umf_range_bin_next(const umf_range_t *range, unsigned bin) {
    if (bin >= UMF_RANGE_BINS) {
        return UMF_RANGE_BINS;
    }
    uint64_t word = range->bitmap[bin / 64] >> (bin % 64);
    if (word) {
        return bin + (unsigned)__builtin_ctzll(word);
    }
    unsigned i = bin / 64 + 1;
    uint64_t words = i < UMF_RANGE_WORDS ? range->summary >> i : 0;
    if (!words) {
        return UMF_RANGE_BINS;
    }
    i += (unsigned)__builtin_ctzll(words);
    return i * 64 + (unsigned)__builtin_ctzll(range->bitmap[i]);
}

/* --- used segments by their start ------------------------------------------------------------- */

static inline umf_range_node_t **umf_range_used_slot(umf_range_node_t **hash, size_t size,
                                                     uintptr_t base) {
    uint64_t key = (uint64_t)base * UINT64_C(0x9E3779B97F4A7C15);
    return &hash[(key ^ (key >> 32)) & (size - 1)];
}

static inline umf_range_node_t *umf_range_used_find(const umf_range_t *range, uintptr_t base) {
    umf_range_node_t *segment = *umf_range_used_slot(range->hash, range->hash_size, base);
    while (segment && segment->base != base) {
        segment = segment->chain;
    }
    return segment;
}

static inline void umf_range_used_add(umf_range_t *range, umf_range_node_t *segment) {
    if (umf_unlikely(range->used_count >= range->hash_size)) {
        umf_range_used_rehash(range, range->hash_size * 2);
    }
    umf_range_node_t **slot = umf_range_used_slot(range->hash, range->hash_size, segment->base);
    segment->kind = UMF_RANGE_USED;
    segment->chain = *slot;
    *slot = segment;
    range->used_count++;
}

/* --- regions ---------------------------------------------------------------------------------- */

static inline uintptr_t umf_range_region_base(const umf_range_node_t *end) {
    return end->base - end->size;
}

/* Does the segment cover its whole region? */
static inline bool umf_range_is_region(const umf_range_node_t *segment) {
    return !segment->prev && segment->next->kind == UMF_RANGE_END;
}

/* The only segment of a wholly free region. NULL: some of the region is used. */
static inline umf_range_node_t *umf_range_region_free_segment(const umf_range_node_t *end) {
    umf_range_node_t *segment = end->prev;
    return segment->kind == UMF_RANGE_FREE && !segment->prev ? segment : NULL;
}

#endif
