/*
 * Range: divides address (or offset) ranges into segments, best fit with immediate coalescing, all
 * bookkeeping out of line. It never touches the memory it divides.
 *
 * A range set holds any number of regions (contiguous ranges given to it); segments never cross
 * regions. Each segment is free or used; used segments can be split and merged. Not thread-safe:
 * the caller locks.
 *
 * Cost: O(1) for free, split and merge; alloc searches at most a few segments of the exact size
 * bin, then takes the first of the next non-empty bin (bitmap index).
 */
#ifndef UMF_SRC_DS_RANGE_H
#define UMF_SRC_DS_RANGE_H

#include "system/common.h"

typedef struct umf_range_t umf_range_t;

/* NULL when out of memory. */
umf_range_t *umf_range_create(void);
/* Frees the bookkeeping of all segments; the memory is the caller's business. */
void umf_range_destroy(umf_range_t *range);

/* Gives a region to the set, free. INVALID_ARGUMENT if it overlaps or is empty, OUT_OF_HOST_MEMORY.
 */
umf_result_t umf_range_add(umf_range_t *range, uintptr_t base, size_t size);
/* Enlarges the region that ends at `end` (file providers grow). */
umf_result_t umf_range_grow(umf_range_t *range, uintptr_t end, size_t more);
/* Free bytes directly below `end`, the end of a region; 0 also if no region ends there. */
size_t umf_range_free_tail(const umf_range_t *range, uintptr_t end);
/* Takes a wholly free region back. INVALID_ARGUMENT if it is unknown or any of it is used. */
umf_result_t umf_range_remove(umf_range_t *range, uintptr_t base);

/* A used segment of exactly `size` bytes at a multiple of `alignment` (any value above 0).
 * OUT_OF_RESOURCES if no segment fits, OUT_OF_HOST_MEMORY if bookkeeping has no memory.
 * An empty region is served upwards from its start. */
umf_result_t umf_range_alloc(umf_range_t *range, size_t size, size_t alignment, uintptr_t *base);

/* What a successful free tells, so that the caller can give whole regions back. */
typedef struct umf_range_freed_t {
    size_t size;         /* that was freed */
    uintptr_t free_base; /* the free segment that now holds the freed one */
    size_t free_size;
    bool whole_region; /* the region is wholly free now */
} umf_range_freed_t;

/* `size` is the segment's size, or 0 for unknown. INVALID_ARGUMENT if `base` is not the start of a
 * used segment or the size differs. `freed` may be NULL. */
umf_result_t umf_range_free(umf_range_t *range, uintptr_t base, size_t size,
                            umf_range_freed_t *freed);
/* The same for a segment that has no content the caller would keep or give back. */
umf_result_t umf_range_free_clean(umf_range_t *range, uintptr_t base, size_t size,
                                  umf_range_freed_t *freed);

/* A used segment at `base` of `total` bytes becomes two; two adjacent used segments of one region
 * become one. */
umf_result_t umf_range_split(umf_range_t *range, uintptr_t base, size_t total, size_t first);
umf_result_t umf_range_merge(umf_range_t *range, uintptr_t low, uintptr_t high, size_t total);

/*
 * Withholding. Whoever holds the lease of a used segment may withhold it, which gives it back for
 * the time being, and take it again; both without the caller's lock and by any thread. A withheld
 * segment is nobody's: it cannot be freed, split or merged, and has no size, until it is taken back
 * or reclaimed. A lease is void as soon as its segment is freed, split or merged.
 */
typedef struct umf_range_lease_t {
    uint32_t *generation; /* of the segment. Sync: atomic */
    uint32_t number;      /* what it says while the segment is used and this lease is good */
} umf_range_lease_t;

#define UMF_RANGE_WITHHELD 1u

/* Of the used segment at `base`, makes an earlier one void; no generation if there is no such
 * segment. */
umf_range_lease_t umf_range_lease(umf_range_t *range, uintptr_t base);
/* Makes a lease void and frees its segment if that is withheld. Was it? */
bool umf_range_lease_end(umf_range_t *range, const umf_range_lease_t *lease);
/* Frees all withheld segments; how many. */
size_t umf_range_reclaim(umf_range_t *range);

/* Hot. false: the lease is void, or the segment is withheld already. */
static inline bool umf_range_withhold(const umf_range_lease_t *lease) {
    uint32_t expected = lease->number;
    return __atomic_compare_exchange_n(lease->generation, &expected, expected | UMF_RANGE_WITHHELD,
                                       false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Hot. false: the segment is not withheld any more. */
static inline bool umf_range_take_back(const umf_range_lease_t *lease) {
    uint32_t expected = lease->number | UMF_RANGE_WITHHELD;
    return __atomic_compare_exchange_n(lease->generation, &expected, lease->number, false,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Size of the used segment that starts at `base`, 0 if there is none. */
size_t umf_range_used_size(const umf_range_t *range, uintptr_t base);

/* Visits wholly free regions; `visit` may not change the set. Returns how many there are. */
size_t umf_range_free_regions(const umf_range_t *range,
                              void (*visit)(uintptr_t base, size_t size, void *arg), void *arg);
/* Visits all free segments in no particular order. */
void umf_range_free_segments(const umf_range_t *range,
                             void (*visit)(uintptr_t base, size_t size, void *arg), void *arg);

typedef struct umf_range_segment_t {
    uintptr_t base;
    size_t size;
} umf_range_segment_t;

/* Makes up to `n` free segments of at least `min` bytes used and tells which, from high addresses
 * to low.
 * `*cursor` is UINTPTR_MAX at first and moves along; 0 segments: there are no more. Needs no
 * memory.
 */
size_t umf_range_take_free(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_segment_t *segments, size_t n);
/* The same for those that are not clean and were aged free before, in an earlier run of this
 * function over all segments. A free segment that is cut or merged stays aged. */
size_t umf_range_take_idle(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_segment_t *segments, size_t n);

size_t umf_range_used_bytes(const umf_range_t *range);
size_t umf_range_total_bytes(const umf_range_t *range);
/* Bytes of the regions that are wholly free. */
size_t umf_range_free_region_bytes(const umf_range_t *range);
size_t umf_range_region_count(const umf_range_t *range);

/* For tests and debugging: walks everything and compares all views of it. */
bool umf_range_is_valid(const umf_range_t *range);

#endif
