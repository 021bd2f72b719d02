/* The sizes of the objects that the magazines of a scalable pool serve: size classes of oneTBB. */
#ifndef UMF_SRC_POOLS_SCALABLE_SIZES_H
#define UMF_SRC_POOLS_SCALABLE_SIZES_H

#include "cache/magazine.h"
#include "pools/shared/starts.h"

#define UMF_SCALABLE_GRANULE_SHIFT                                                                 \
    4 /* sizes up to UMF_SCALABLE_SMALL_LARGEST are multiples of 16 */
#define UMF_SCALABLE_GRANULE ((size_t)1 << UMF_SCALABLE_GRANULE_SHIFT)

#define UMF_SCALABLE_SMALL_LARGEST 8128 /* the largest object that oneTBB cuts from a slab */
#define UMF_SCALABLE_BINS_SMALL 25
#define UMF_SCALABLE_BIN_LARGEST ((size_t)128 << 10)

/* Larger objects come in steps of 8 KiB, which include oneTBB's header. */
#define UMF_SCALABLE_STEP_SHIFT 13
#define UMF_SCALABLE_STEPS 17 /* 17 steps have room for UMF_SCALABLE_BIN_LARGEST */
#define UMF_SCALABLE_HEADER ((size_t)256)

/* Of blocks above UMF_SCALABLE_BIN_LARGEST, only those of the usual sizes have bins: four for each
 * power of two. */
#define UMF_SCALABLE_BLOCK_LARGEST ((size_t)1 << 20)
#define UMF_SCALABLE_BLOCK_BINS 12

#define UMF_SCALABLE_BINS_OBJECTS (UMF_SCALABLE_BINS_SMALL + UMF_SCALABLE_STEPS - 1)
#define UMF_SCALABLE_BINS (UMF_SCALABLE_BINS_OBJECTS + UMF_SCALABLE_BLOCK_BINS)
_Static_assert(UMF_SCALABLE_BINS <= UMF_MAGAZINE_MAX_BINS, "too many bins");
#define UMF_SCALABLE_BIN_NONE UMF_SCALABLE_BINS /* blocks without bin */

typedef struct umf_scalable_sizes_t {
    umf_magazine_capacity_t capacity[UMF_SCALABLE_BINS];
    uint32_t size[UMF_SCALABLE_BINS];
    uint8_t of_size[UMF_SCALABLE_SMALL_LARGEST / UMF_SCALABLE_GRANULE + 1];        /* by granules */
    uint8_t of_block[(UMF_SCALABLE_BLOCK_LARGEST >> UMF_SCALABLE_STEP_SHIFT) + 2]; /* by steps */
    umf_small_sizes_t small;
    umf_starts_sizes_t starts; /* by bin + 1 */
} umf_scalable_sizes_t;

extern umf_scalable_sizes_t umf_scalable_sizes; /* Immutable after init */

void umf_scalable_sizes_init(void);

/* The bin of a size up to UMF_SCALABLE_SMALL_LARGEST. */
static inline uint32_t umf_scalable_bin_of(size_t size) {
    return umf_scalable_sizes
        .of_size[(size + UMF_SCALABLE_GRANULE - 1) >> UMF_SCALABLE_GRANULE_SHIFT];
}

static inline size_t umf_scalable_steps(size_t size) {
    size_t step = (size_t)1 << UMF_SCALABLE_STEP_SHIFT;
    return (size + UMF_SCALABLE_HEADER + step - 1) >> UMF_SCALABLE_STEP_SHIFT;
}

/* The bin of a larger size up to UMF_SCALABLE_BIN_LARGEST. */
static inline uint32_t umf_scalable_large_bin_of(size_t size) {
    return (uint32_t)(UMF_SCALABLE_BINS_SMALL + umf_scalable_steps(size) - 2);
}

/* The bin of a block of a size above that; UMF_SCALABLE_BIN_NONE. */
static inline uint32_t umf_scalable_block_bin(size_t size) {
    return umf_likely(size <= UMF_SCALABLE_BLOCK_LARGEST)
               ? umf_scalable_sizes.of_block[umf_scalable_steps(size)]
               : UMF_SCALABLE_BIN_NONE;
}

#endif
