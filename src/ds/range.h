/*
 * Range: divides ranges of addresses (or offsets) into segments, by best fit with immediate
 * coalescing. All bookkeeping is out of line: it never touches the memory that it divides.
 *
 * A range set has any number of regions, which are contiguous ranges given to it. Segments never
 * cross regions. Each segment is free or used; used segments can be split and merged. Not
 * thread-safe: the caller locks.
 *
 * Cost: free, split and merge are O(1). Alloc searches at most a few segments of the bin of that
 * size, then takes the first segment of the next non-empty bin, which a bitmap finds.
 */
#ifndef UMF_SRC_DS_RANGE_H
#define UMF_SRC_DS_RANGE_H

#include "system/common.h"

typedef struct umf_range_t umf_range_t;

/* Offsets for outside readers, in the order of umf_view_range_t (umf/view_format.h). */
extern UMF_HIDDEN const uint32_t umf_range_view[5];

/* NULL when out of memory. */
umf_range_t *umf_range_create(void);
/* Frees the bookkeeping of all segments. The memory itself belongs to the caller. */
void umf_range_destroy(umf_range_t *range);

/* Adds a region, which is free. INVALID_ARGUMENT: it is empty or overlaps another one.
 * OUT_OF_HOST_MEMORY. */
umf_result_t umf_range_add(umf_range_t *range, uintptr_t base, size_t size);
/* Enlarges the region that ends at `end` (file providers grow). */
umf_result_t umf_range_grow(umf_range_t *range, uintptr_t end, size_t more);
/* Free bytes directly below `end`, the end of a region. 0 also if no region ends there. */
size_t umf_range_free_tail(const umf_range_t *range, uintptr_t end);
/* Removes a wholly free region. INVALID_ARGUMENT: it is unknown or some of it is used. */
umf_result_t umf_range_remove(umf_range_t *range, uintptr_t base);

/* Makes a used segment of exactly `size` bytes at a multiple of `alignment` (any value above 0).
 * OUT_OF_RESOURCES: no segment fits. OUT_OF_HOST_MEMORY: there is no memory for bookkeeping.
 * A wholly free region is served upwards from its start. */
umf_result_t umf_range_alloc(umf_range_t *range, size_t size, size_t alignment, uintptr_t *base);

/* The result of a successful free, so that the caller can give whole regions back. */
typedef struct umf_range_freed_t {
    size_t size;         /* of the segment that was freed */
    uintptr_t free_base; /* the free segment that now contains it */
    size_t free_size;
    bool whole_region; /* the region is wholly free now */
} umf_range_freed_t;

/* Frees a segment. `size` is its size, or 0 for unknown. INVALID_ARGUMENT: `base` is not the start
 * of a used segment, or the size differs. `freed` may be NULL. */
umf_result_t umf_range_free(umf_range_t *range, uintptr_t base, size_t size,
                            umf_range_freed_t *freed);
/* The same for a purged segment: it has no pages that a later purge would drop. */
umf_result_t umf_range_free_clean(umf_range_t *range, uintptr_t base, size_t size,
                                  umf_range_freed_t *freed);

/* Split: the used segment of `total` bytes at `base` becomes two. Merge: two adjacent used segments
 * of one region become one. */
umf_result_t umf_range_split(umf_range_t *range, uintptr_t base, size_t total, size_t first);
umf_result_t umf_range_merge(umf_range_t *range, uintptr_t low, uintptr_t high, size_t total);
/* Enlarges the used segment of `old` bytes at `base` to `size` bytes. OUT_OF_RESOURCES: the free
 * bytes behind it are too few. */
umf_result_t umf_range_extend(umf_range_t *range, uintptr_t base, size_t old, size_t size);

/*
 * Reserving. The lease of a used segment is permission to reserve the segment, which is a free
 * that can be undone, and to take it back. Any thread may do both, without the caller's lock. A
 * reserved segment belongs to no user: until it is taken back or reclaimed it has no size and
 * cannot be freed, split or merged. A lease becomes void when its segment is freed, split or
 * merged.
 */
typedef struct umf_range_lease_t {
    uint32_t *generation; /* of the segment. Sync: atomic */
    uint32_t number;      /* its value while the segment is used and this lease is valid */
} umf_range_lease_t;

#define UMF_RANGE_RESERVED 1u

/* A new lease of the used segment at `base`, which makes an earlier one void. There is no such
 * segment if the lease has no generation. */
umf_range_lease_t umf_range_lease(umf_range_t *range, uintptr_t base);
/* Makes a lease void. If its segment is reserved, frees the segment and returns true. */
bool umf_range_lease_end(umf_range_t *range, const umf_range_lease_t *lease);
/* Frees all reserved segments and returns how many there were. */
size_t umf_range_reclaim(umf_range_t *range);

/* Reserves the segment. false: the lease is void, or the segment is reserved already. Hot. */
static inline bool umf_range_reserve(const umf_range_lease_t *lease) {
    uint32_t expected = lease->number;
    return __atomic_compare_exchange_n(lease->generation, &expected, expected | UMF_RANGE_RESERVED,
                                       false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Takes a reserved segment back. false: it was reclaimed meanwhile. Hot. */
static inline bool umf_range_take_back(const umf_range_lease_t *lease) {
    uint32_t expected = lease->number | UMF_RANGE_RESERVED;
    return __atomic_compare_exchange_n(lease->generation, &expected, lease->number, false,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/*
 * Keeping: a reservation without lease, for a caller who takes the segment back, or frees it later.
 * The word is that of the segment, and stays with it as long as the segment is kept or used.
 */

typedef struct umf_range_kept_t {
    uint32_t *word; /* NULL: nothing is kept */
    size_t size;
} umf_range_kept_t;

/* Reserves the used segment at `base`, if it has at most `most` bytes. Its leases are void then. No
 * word: there is no such segment, or it is reserved already; nothing has changed. */
umf_range_kept_t umf_range_keep(umf_range_t *range, uintptr_t base, size_t most);
/* Takes the kept segment back. Needs no lock. Hot. */
static inline void umf_range_take_kept(uint32_t *word) {
    uint32_t generation = __atomic_load_n(word, __ATOMIC_RELAXED);
    __atomic_store_n(word, generation & ~UMF_RANGE_RESERVED, __ATOMIC_RELAXED);
}

/* Size of the used segment that starts at `base`; 0: there is none. */
size_t umf_range_used_size(const umf_range_t *range, uintptr_t base);

typedef enum umf_range_use_t {
    UMF_RANGE_IS_FREE,
    UMF_RANGE_IS_USED,
    UMF_RANGE_IS_RESERVED, /* used, and reserved by the holder of its lease, or kept */
} umf_range_use_t;

typedef struct umf_range_piece_t {
    uintptr_t base;
    size_t size;
    umf_range_use_t use;
} umf_range_piece_t;

/* Writes up to `n` segments of the region that starts at `region`, from high addresses to low:
 * those below the used segment that starts at `below`, or with 0 from the region's end on. Returns
 * how many. `*is_last`: the region begins with them. 0 and not the last: there is no such region or
 * segment. */
size_t umf_range_pieces(const umf_range_t *range, uintptr_t region, uintptr_t below,
                        umf_range_piece_t *pieces, size_t n, bool *is_last);

/* Visits wholly free regions and returns how many there are. `visit` must not change the set. */
size_t umf_range_free_regions(const umf_range_t *range,
                              void (*visit)(uintptr_t base, size_t size, void *arg), void *arg);
/* Visits all free segments in no particular order. */
void umf_range_free_segments(const umf_range_t *range,
                             void (*visit)(uintptr_t base, size_t size, void *arg), void *arg);

typedef struct umf_range_segment_t {
    uintptr_t base;
    size_t size;
} umf_range_segment_t;

/* Takes up to `n` free segments of at least `min` bytes, from high addresses to low: they are used
 * from then on. `*cursor` is UINTPTR_MAX at first and moves down. 0 segments: there are no more.
 * Needs no memory. */
size_t umf_range_take_free(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_segment_t *segments, size_t n);
/* The same for the free segments of one region, of any size. None if no region starts at `base`. */
size_t umf_range_take_region(umf_range_t *range, uintptr_t base, uintptr_t *cursor,
                             umf_range_segment_t *segments, size_t n);
/* The same for dirty segments that were in use since they were added. */
size_t umf_range_take_dirty(umf_range_t *range, uintptr_t *cursor, size_t min,
                            umf_range_segment_t *segments, size_t n);
/* The same for dirty segments that an earlier run of this function over all segments has aged. The
 * run ages the dirty segments that it does not take. A free segment that is cut stays aged; of two
 * that are merged the larger decides. */
size_t umf_range_take_idle(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_segment_t *segments, size_t n);

/* Frees bookkeeping that nothing needs. All leases that their holders may still use must have been
 * passed to `keep_lease` since the caller locked; those of other ranges are ignored. */
void umf_range_keep_lease(umf_range_t *range, const uint32_t *generation);
void umf_range_trim(umf_range_t *range);

size_t umf_range_used_bytes(const umf_range_t *range);
size_t umf_range_total_bytes(const umf_range_t *range);
/* Bytes of the regions that are wholly free. */
size_t umf_range_free_region_bytes(const umf_range_t *range);
size_t umf_range_region_count(const umf_range_t *range);

/* For tests and debugging: checks that all structures agree. */
bool umf_range_is_valid(const umf_range_t *range);

#endif
