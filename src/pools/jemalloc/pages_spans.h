/*
 * Spans of a page cache: how they come from the provider, which of them are kept while they are
 * wholly free, and how they go back.
 */
#ifndef UMF_SRC_POOLS_JEMALLOC_PAGES_SPANS_H
#define UMF_SRC_POOLS_JEMALLOC_PAGES_SPANS_H

#include "pools/jemalloc/pages_shards.h"
#include "system/atomic.h"

#define UMF_PAGES_SPAN_MAX ((size_t)64 << 20) /* larger ones are for one request, and not kept */

void umf_pages_spans_init(umf_pages_t *pages);
/* Gives every span back, also those with segments in use. Returns the provider's first error. */
umf_result_t umf_pages_spans_fini(umf_pages_t *pages);

/* Makes a span for the calling thread's shard. */
umf_result_t umf_pages_span_create(umf_pages_t *pages, size_t size, size_t alignment);

/* The span at `base` fell wholly free: it is kept, or is to be given back. */
void umf_pages_span_freed_locked(umf_pages_t *pages, umf_pages_shard_t *shard, uintptr_t base);
/* The same for a span that was purged: it is to be given back. `pages` is an umf_pages_t. */
void umf_pages_span_purged_locked(void *pages, umf_purge_part_t *part, uintptr_t base);

/* Gives all wholly free spans back, and keeps none until some were taken again too soon. */
void umf_pages_spans_release(umf_pages_t *pages);

/* How many free bytes should stay if `used` bytes are in use. */
size_t umf_pages_spans_keep(const umf_pages_t *pages, size_t used);

void umf_pages_spans_begin_period(umf_pages_t *pages);
/* A decay pass that releases a span lowers the cache limit. Begin returns the argument of
 * end. */
size_t umf_pages_spans_begin_pass(const umf_pages_t *pages);
void umf_pages_spans_end_pass(umf_pages_t *pages, size_t before);

/* The provider has no memory, or has some again. */
static inline void umf_pages_set_full(umf_pages_t *pages, bool is_full) {
    atomic_store_explicit(&pages->is_full, is_full, memory_order_relaxed);
}

#endif
