/* What spans of the page cache are divided into. */
#ifndef UMF_SRC_POOLS_JEMALLOC_PAGES_WALK_H
#define UMF_SRC_POOLS_JEMALLOC_PAGES_WALK_H

#include "object/walk.h"
#include "pools/jemalloc/pages.h"

/* `lock`: of the records, which are umf_starts_t. */
void umf_pages_walk(umf_pages_t *pages, umf_lock_t *lock, const umf_span_t *span, umf_walk_t *walk);

#endif
