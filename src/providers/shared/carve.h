/*
 * Carve: the common part of providers that cut page-sized allocations out of a larger range (fixed,
 * file, devdax, and the vmm providers). The rules of alignment, rounding, free, split and merge
 * stand here once.
 *
 * Thread-safe. A caller may name the size that it requested, or that size rounded up to pages.
 */
#ifndef UMF_SRC_PROVIDERS_SHARED_CARVE_H
#define UMF_SRC_PROVIDERS_SHARED_CARVE_H

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

/* Adds a range. Results as umf_range_add. */
umf_result_t umf_carve_add(umf_carve_t *carve, uintptr_t base, size_t size);

/* Extends the range that ends at `end`, so that allocations can span both parts. Results as
 * umf_range_grow. */
umf_result_t umf_carve_grow(umf_carve_t *carve, uintptr_t end, size_t more);
/* Free bytes directly below `end`, the end of a range. */
size_t umf_carve_free_tail(umf_carve_t *carve, uintptr_t end);

/* Size of the allocation that starts at `ptr`, in whole pages; a part of a split allocation has its
 * exact size. 0: there is none. */
size_t umf_carve_size(umf_carve_t *carve, const void *ptr);

/*
 * INVALID_ARGUMENT: size 0, or its rounding overflows; INVALID_ALIGNMENT: not 0 (a page) or a power
 * of two; OUT_OF_RESOURCES: no room; OUT_OF_HOST_MEMORY: no memory for bookkeeping.
 */
umf_result_t umf_carve_alloc(umf_carve_t *carve, size_t size, size_t alignment, void **ptr);

/* Operations of a provider, whose state begins with its carve (carve_ops.h). */

/* INVALID_ARGUMENT: not the start of an allocation, or the size is neither 0 nor its own. NULL is
 * ignored. */
umf_result_t umf_carve_free(void *provider, void *ptr, size_t size);

/* INVALID_ARGUMENT: not an allocation of that size, or not adjacent ones. */
umf_result_t umf_carve_split(void *provider, void *ptr, size_t total, size_t first);
umf_result_t umf_carve_merge(void *provider, void *low, void *high, size_t total);

/* Parts of these, for who keeps more about the allocations under the same lock. `rounded` gets
 * whole pages; `alignment` is at least a page. */
umf_result_t umf_carve_check(const umf_carve_t *carve, size_t size, size_t alignment,
                             size_t *rounded);
umf_result_t umf_carve_alloc_locked(umf_carve_t *carve, size_t size, size_t rounded,
                                    size_t alignment, uintptr_t *base);
umf_result_t umf_carve_split_locked(umf_carve_t *carve, uintptr_t base, size_t total, size_t first);
umf_result_t umf_carve_merge_locked(umf_carve_t *carve, uintptr_t low, uintptr_t high,
                                    size_t total);

#endif
