/*
 * Parts of a page cache.
 *
 * A cache begins with one part. When threads meet there, that is when one that wants to take finds
 * the lock held by another that does, their number doubles, up to one for each CPU. Threads are
 * numbered as they come and belong to the part of their number, so those that begin together are
 * apart at once; who meets another where there are enough parts moves on to the next. Who finds the
 * lock held by a thread that gives something back, or takes from here because its own part has
 * nothing, waits.
 *
 * Who holds the lock of a part does not take that of another.
 */
#ifndef UMF_SRC_POOLS_JEMALLOC_PAGES_PARTS_H
#define UMF_SRC_POOLS_JEMALLOC_PAGES_PARTS_H

#include "pools/jemalloc/pages.h"

/* Makes the first part; needs no memory. */
void umf_pages_parts_init(umf_pages_t *pages);
/* The spans are gone. */
void umf_pages_parts_fini(umf_pages_t *pages);

/* The part of the calling thread, locked, to take from. */
umf_pages_part_t *umf_pages_part_lock(umf_pages_t *pages);
umf_pages_part_t *umf_pages_part_own(const umf_pages_t *pages);

static inline uint32_t umf_pages_part_count(const umf_pages_t *pages) {
    return atomic_load_explicit(&pages->part_count, memory_order_acquire);
}

/* The part that a piece belongs to. */
static inline umf_pages_part_t *umf_pages_part_of(umf_pages_t *pages, const void *ptr) {
    return umf_likely(umf_pages_part_count(pages) == 1) ? &pages->first
                                                        : umf_pages_find(pages, ptr)->part;
}

#endif
