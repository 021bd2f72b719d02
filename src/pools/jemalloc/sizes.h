/*
 * The sizes of the jemalloc pool: jemalloc's size classes and what follows from them. They are read
 * once in a process.
 */
#ifndef UMF_SRC_POOLS_JEMALLOC_SIZES_H
#define UMF_SRC_POOLS_JEMALLOC_SIZES_H

#include "cache/magazine.h"
#include "pools/jemalloc/pages.h"
#include "pools/shared/starts.h"
#include "system/atomic.h"

#define UMF_JEMALLOC_ARENAS_MAX 4095

#define UMF_JEMALLOC_BIN_LARGEST ((size_t)128 << 10) /* larger ones are blocks (blocks.c) */
/* Free blocks of some sizes up to this one are kept in bins, too. */
#define UMF_JEMALLOC_KEPT_LARGEST ((size_t)1 << 20)
/* Bins of sizes up to this one are found by granules, larger ones by pages. */
#define UMF_JEMALLOC_BIN_FINE ((size_t)32 << 10)
#define UMF_JEMALLOC_BINS_MAX 64

#define UMF_JEMALLOC_GRANULE_SHIFT 4 /* objects start at multiples of 16 */
#define UMF_JEMALLOC_GRANULE ((size_t)1 << UMF_JEMALLOC_GRANULE_SHIFT)

/* The looked-up name of a control of jemalloc. */
typedef struct umf_mib_t {
    size_t ids[4];
    size_t length;
} umf_mib_t;

typedef struct umf_jemalloc_sizes_t {
    _Atomic(unsigned) state; /* once it is SIZES_READY, the rest is Immutable */
    uint32_t bins;
    uint32_t slab_bins;   /* bins below it are jemalloc's */
    uint32_t object_bins; /* bins from it on are of blocks */
    uint32_t size[UMF_JEMALLOC_BINS_MAX];
    uint32_t slab_size[UMF_JEMALLOC_BINS_MAX];
    umf_magazine_capacity_t capacity[UMF_JEMALLOC_BINS_MAX];
    uint8_t of_size[UMF_JEMALLOC_BIN_FINE / UMF_JEMALLOC_GRANULE + 1]; /* bin by granules */
    uint8_t of_pages[UMF_JEMALLOC_BIN_LARGEST / UMF_PAGE_SIZE + 1];    /* by pages */
    uint8_t of_block[UMF_JEMALLOC_KEPT_LARGEST / UMF_PAGE_SIZE + 1];   /* by pages */
    umf_small_sizes_t small;
    umf_starts_sizes_t starts; /* by bin + 1 */
    umf_mib_t arenas_create, arena_hooks, arena_purge, arena_reset, arena_destroy;
    uint32_t default_arenas;
} umf_jemalloc_sizes_t;

extern umf_jemalloc_sizes_t umf_jemalloc_sizes;

/* Tells whether jemalloc can work on this machine. NOT_SUPPORTED: it cannot, `why` gets the reason.
 */
umf_result_t umf_jemalloc_sizes_probe(char *why, size_t why_size);

/* Starts jemalloc for the first pool. Call it before any other use. */
umf_result_t umf_jemalloc_sizes_start(void);

/* The bin of free blocks of exactly this size. 0: blocks of this size have none. */
static inline uint32_t umf_jemalloc_block_bin(size_t bytes) {
    return umf_likely(bytes <= UMF_JEMALLOC_KEPT_LARGEST)
               ? umf_jemalloc_sizes.of_block[bytes >> UMF_PAGE_SHIFT]
               : 0;
}

static inline uint32_t umf_jemalloc_bin_of(size_t size) {
    return umf_likely(size <= UMF_JEMALLOC_BIN_FINE)
               ? umf_jemalloc_sizes
                     .of_size[(size + UMF_JEMALLOC_GRANULE - 1) >> UMF_JEMALLOC_GRANULE_SHIFT]
               : umf_jemalloc_sizes.of_pages[(size + UMF_PAGE_SIZE - 1) >> UMF_PAGE_SHIFT];
}

#endif
