/* The object of the jemalloc pool, for the pool's own files. */
#ifndef UMF_SRC_POOLS_JEMALLOC_JEMALLOC_H
#define UMF_SRC_POOLS_JEMALLOC_JEMALLOC_H

#include <jemalloc/jemalloc.h>

#include <umf/result.h>

#include "base/log.h"
#include "cache/magazine.h"
#include "object/content.h"
#include "pools/jemalloc/arenas.h"
#include "pools/jemalloc/pages.h"
#include "pools/jemalloc/sizes.h"
#include "pools/shared/starts.h"
#include "system/atomic.h"

/* The record of a page (pages.h). Its member `own` is the number of pages of the block without bin
 * that starts here; 0: none does. */
typedef umf_starts_t umf_jemalloc_page_t;
_Static_assert(UMF_PAGE_SIZE == UMF_STARTS_PAGE, "a record is for a page");

typedef struct umf_jemalloc_pool_t {
    umf_magazines_t magazines;
    umf_tracked_provider_t *tracked;
    umf_content_t content;
    umf_pages_t pages;
    extent_hooks_t hooks;
    bool is_closing;            /* the spans are about to go: hooks put nothing back */
    _Atomic(size_t) flushed_at; /* spans that the pool had when its caches were last flushed */
    umf_lock_t lock;
    umf_starts_pool_t starts; /* Immutable */
    umf_arenas_t arenas;
    char name[UMF_NAME_MAX];
} umf_jemalloc_pool_t;

void *umf_jemalloc_fail(umf_result_t result);

/* --- records --- */

static inline umf_jemalloc_page_t *umf_jemalloc_page_of(const umf_pages_span_t *span,
                                                        size_t offset) {
    return (umf_jemalloc_page_t *)(uintptr_t)span->records + (offset >> UMF_PAGE_SHIFT);
}

/* The state of the object that starts at `offset`. NULL: no object of a bin can start there. */
static inline uint8_t *umf_jemalloc_state_of(const umf_jemalloc_page_t *page, size_t offset) {
    return umf_starts_find(page, &umf_jemalloc_sizes.starts, offset % UMF_PAGE_SIZE);
}

static inline uint32_t umf_jemalloc_page_kind(const umf_jemalloc_page_t *page) {
    return __atomic_load_n(&page->kind, __ATOMIC_RELAXED);
}

static inline uint32_t umf_jemalloc_block_pages(const umf_jemalloc_page_t *page) {
    return __atomic_load_n(&page->own, __ATOMIC_ACQUIRE);
}

/* --- fill.c: between magazines and jemalloc or the page cache --- */

/* Operations of the magazines. */
size_t umf_jemalloc_refill(void *pool, uint32_t bin, umf_item_t *items, size_t n);
void umf_jemalloc_flush(void *pool, uint32_t bin, umf_item_t *items, size_t n);

/* Comes before a call of the provider for this bin, or EXCEPT_NONE: free objects go
 * back to the page cache. */
void umf_jemalloc_release_some(umf_jemalloc_pool_t *pool, uint32_t bin);
/* Makes attempts to get memory after the provider had none. */
UMF_COLD bool umf_jemalloc_reclaim(umf_jemalloc_pool_t *pool,
                                   bool (*attempt)(void *pool, void *request), void *request);

/* --- blocks.c: blocks without bin --- */

void *umf_jemalloc_block_alloc(umf_jemalloc_pool_t *pool, size_t size, size_t alignment);
/* false: no block starts at `ptr`, or it was freed. */
bool umf_jemalloc_block_free(umf_jemalloc_pool_t *pool, void *ptr, umf_jemalloc_page_t *page);
/* Adds the free pages behind a block. false: the block stays as it is. */
bool umf_jemalloc_block_grow(umf_jemalloc_pool_t *pool, void *ptr, umf_jemalloc_page_t *page,
                             size_t old, size_t size);
/* Frees the tail of a block in place. false: the block stays as it is. */
bool umf_jemalloc_block_shrink(umf_jemalloc_pool_t *pool, void *ptr, umf_jemalloc_page_t *page,
                               size_t old, size_t size);

#endif
