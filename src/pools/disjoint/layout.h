/*
 * The layout of a disjoint pool: all that follows from its parameters. Most pools of a process have
 * the same parameters, so pools share the first layout that is made.
 */
#ifndef UMF_SRC_POOLS_DISJOINT_LAYOUT_H
#define UMF_SRC_POOLS_DISJOINT_LAYOUT_H

#include "cache/magazine.h"

#define UMF_DISJOINT_MAX_BIN_SIZE ((size_t)1 << 31)
#define UMF_DISJOINT_MAX_BINS 60

/* The parameters that determine a layout. */
typedef struct umf_disjoint_request_t {
    size_t min_bucket_size, slab_min_size, max_poolable_size;
    bool is_exact; /* every count and every error must be exact: no magazines */
} umf_disjoint_request_t;

/* Immutable once made. */
typedef struct umf_disjoint_layout_t {
    umf_disjoint_request_t request;
    umf_small_sizes_t small;
    size_t cached_max;         /* sizes up to this one go through the magazines; 0: none */
    uint8_t bin_by_class[128]; /* umf_disjoint_class(size) -> bin */
    uint32_t cached_bins;      /* bins below it are cached: chunks go through magazines */
    uint32_t reserved_bins;    /* the bins between have single chunks that may be reserved */
    uint32_t bins;
    size_t sizes[UMF_DISJOINT_MAX_BINS];
    umf_magazine_slab_t slabs[UMF_DISJOINT_MAX_BINS + 1];    /* of the cached bins, by bin + 1 */
    umf_magazine_capacity_t capacity[UMF_DISJOINT_MAX_BINS]; /* of the cached and reserved bins */
} umf_disjoint_layout_t;

/* NULL when out of memory. */
const umf_disjoint_layout_t *umf_disjoint_layout_get(const umf_disjoint_request_t *request);
/* Releases what get returned. NULL: does nothing. */
void umf_disjoint_layout_put(const umf_disjoint_layout_t *layout);

/* The distance of two chunks. It is a multiple of 8, so that every address is, even if the size is
 * not. */
static inline size_t umf_disjoint_stride(size_t size) {
    return umf_align_up(size, 8);
}

static inline size_t umf_disjoint_state_stride(const umf_disjoint_layout_t *layout, uint32_t bin) {
    return umf_magazine_state_stride(layout->sizes[bin], layout->capacity[bin].usual / 2u);
}

/* Does a slab have several chunks of this size? A slab of a single chunk is handled as a whole. */
static inline bool umf_disjoint_is_chunked(const umf_disjoint_layout_t *layout, size_t size) {
    return size <= layout->request.slab_min_size / 2;
}

/* A class is half of a power of two: the highest bit of size - 1 and the bit below it. */
static inline uint32_t umf_disjoint_class(size_t size) {
    size_t n = (size - 1) | 2;
    uint32_t bit = 63u - (uint32_t)__builtin_clzll(n);
    return 2 * bit + ((uint32_t)(n >> (bit - 1)) & 1);
}

static inline size_t umf_disjoint_bin_of(const umf_disjoint_layout_t *layout, size_t size) {
    return layout->bin_by_class[umf_disjoint_class(size)];
}

#endif
