/*
 * Carve: what providers share that cut page-sized allocations out of a larger range they have
 * (fixed, file, devdax). The rules of alignment, rounding, free, split and merge stand here once.
 *
 * Thread-safe. Sizes given by callers may be those they asked for or those rounded up to pages.
 */
#ifndef UMF_SRC_PROVIDERS_CARVE_H
#define UMF_SRC_PROVIDERS_CARVE_H

#include "base/lock.h"
#include "ctl/field.h"
#include "ds/hash.h"
#include "ds/range.h"

typedef struct umf_carve_t {
    umf_lock_t lock; /* UMF_RANK_PROVIDER */
    umf_range_t *range;
    /* Requested sizes of the allocations that were rounded up. Sync: lock */
    umf_hash_t requested;
    umf_stats_t stats; /* requested sizes */
    size_t page_size;  /* Immutable after init */
} umf_carve_t;

umf_result_t umf_carve_init(umf_carve_t *carve, size_t page_size);
void umf_carve_fini(umf_carve_t *carve);

/* More room. Results as umf_range_add. */
umf_result_t umf_carve_add(umf_carve_t *carve, uintptr_t base, size_t size);

/*
 * INVALID_ARGUMENT: size 0, or its rounding overflows; INVALID_ALIGNMENT: not 0 (a page) or a power
 * of two; OUT_OF_RESOURCES: no room; OUT_OF_HOST_MEMORY: no memory for bookkeeping.
 */
umf_result_t umf_carve_alloc(umf_carve_t *carve, size_t size, size_t alignment, void **ptr);

/* INVALID_ARGUMENT: not the start of an allocation, or the size is neither 0 nor its own. NULL is
 * ignored. */
umf_result_t umf_carve_free(umf_carve_t *carve, void *ptr, size_t size);

/* INVALID_ARGUMENT: not such an allocation, or not adjacent ones. */
umf_result_t umf_carve_split(umf_carve_t *carve, void *ptr, size_t total, size_t first);
umf_result_t umf_carve_merge(umf_carve_t *carve, void *low, void *high, size_t total);

#endif
