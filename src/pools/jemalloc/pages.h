/*
 * Page cache: spans from a provider, divided into pieces of whole pages for an allocator above.
 *
 * The cache never touches the memory it divides. Beside each span it keeps a table with a record
 * per page, for the owner's own use, found from any address of the span.
 *
 * Spans are divided among shards with a lock each (pools/jemalloc/pages_shards.h), one at first. A
 * piece goes back to the shard it came from. A thread takes from its own shard, else from others
 * where nobody is just then: only if there is nothing either does its shard get a span more.
 *
 * `take`, `put` and `split` never call the provider and hold one short lock, so they may run below
 * an allocator that must not be re-entered. `alloc`, `grow`, `settle`, `decay` and `trim` call the
 * provider, with no lock isolated.
 */
#ifndef UMF_SRC_POOLS_JEMALLOC_PAGES_H
#define UMF_SRC_POOLS_JEMALLOC_PAGES_H

#include "base/lock.h"
#include "core/tracked_provider.h"
#include "ds/list.h"
#include "ds/range.h"

/* What is divided is counted in these, whatever the machine's pages: the provider gives whole ones
 * of its own, and only such are purged. */
#define UMF_PAGE_SHIFT 12
#define UMF_PAGE_SIZE ((size_t)1 << UMF_PAGE_SHIFT)

typedef struct umf_pages_shard_t umf_pages_shard_t;

/* What hangs on a span (its cookie). */
typedef struct umf_pages_span_t {
    umf_list_t link;    /* all spans of the shard. Sync: the shard's lock */
    umf_list_t surplus; /* spans to give back. Sync: the shard's lock */
    umf_span_t *span;   /* this and the rest: Immutable once pieces of it are handed out */
    umf_pages_shard_t *shard;
    uintptr_t base;
    size_t size;
    _Atomic size_t own;          /* the owner's, as the records; zero at first */
    _Alignas(64) char records[]; /* one per page; zeroed at first */
} umf_pages_span_t;

#define UMF_PAGES_SHARDS_MAX 16

struct umf_pages_shard_t {
    umf_lock_t lock;
    bool is_taking;     /* who holds the lock takes from its own shard. Sync: atomic, with lock */
    uint32_t elsewhere; /* how often others served its threads since it grew last. Sync: atomic */
    umf_range_t *range; /* NULL before the first span. Sync: lock, as the rest */
    umf_list_t spans, surplus;
    umf_pages_span_t *reserve; /* was wholly free when last looked at, and is kept */
    uintptr_t decay_cursor;    /* where the next decay pass begins */
};

typedef struct umf_pages_t {
    umf_tracked_provider_t *tracked;
    size_t granule;   /* the provider's smallest page, at least UMF_PAGE_SIZE */
    size_t alignment; /* what spans are aligned to; a power of two */
    size_t record_size;
    void (*drop)(umf_pages_span_t *span); /* this and the above: Immutable after init */
    _Atomic int purge_mode;
    _Atomic bool has_surplus;
    _Atomic bool is_full;         /* the provider had no more when it was asked last */
    _Atomic uint32_t purging;     /* purges that hold free pieces just now */
    _Atomic uint32_t waiting;     /* allocations that wait for them */
    _Atomic uint32_t decay_shard; /* where the next decay pass begins */
    _Atomic uint32_t shard_count;
    umf_pages_shard_t *shards[UMF_PAGES_SHARDS_MAX]; /* Published by shard_count */
    umf_pages_shard_t first;
} umf_pages_t;

/* Takes no memory. `granule`: the provider's smallest page. `drop` is called before the records of
 * a span are freed, without locks isolated; may be NULL. */
void umf_pages_init(umf_pages_t *pages, umf_tracked_provider_t *tracked, size_t granule,
                    size_t record_size, void (*drop)(umf_pages_span_t *span));
/* Gives every span back, whatever is in use. The provider's first error. */
umf_result_t umf_pages_fini(umf_pages_t *pages);

/* A piece from what is at hand; NULL if nothing fits. Sizes are multiples of the page, alignments
 * powers of two. */
void *umf_pages_take(umf_pages_t *pages, size_t size, size_t alignment);
/* Up to `n` of one size, aligned to a page; returns how many. */
size_t umf_pages_take_many(umf_pages_t *pages, size_t size, void **pieces, size_t n);
/* The same, growing if need be; NULL when the provider has no more. */
void *umf_pages_alloc(umf_pages_t *pages, size_t size, size_t alignment);
/* Makes room for one piece of this kind. */
umf_result_t umf_pages_grow(umf_pages_t *pages, size_t size, size_t alignment);

/* Gives a piece back. Whole spans that fall free go to the provider at the next `settle`. */
void umf_pages_put(umf_pages_t *pages, void *ptr, size_t size);
void umf_pages_put_many(umf_pages_t *pages, size_t size, void *const *pieces, size_t n);
/* Makes two pieces of one. */
umf_result_t umf_pages_split(umf_pages_t *pages, void *ptr, size_t total, size_t first);

void umf_pages_settle_slow(umf_pages_t *pages);
static inline void umf_pages_settle(umf_pages_t *pages) {
    if (umf_unlikely(atomic_load_explicit(&pages->has_surplus, memory_order_relaxed))) {
        umf_pages_settle_slow(pages);
    }
}

/* A decay pass (cache/decay.h): lets the provider drop the content of what has been free for a
 * while. true: there may be more. */
bool umf_pages_decay(umf_pages_t *pages);
/* Gives back all wholly free spans and lets the provider drop the content of the free pieces. */
void umf_pages_trim(umf_pages_t *pages);

/* The cache's span around `ptr`, also where a span of somebody else lies inside it; NULL if none.
 */
umf_pages_span_t *umf_pages_find(const umf_pages_t *pages, const void *ptr);

/* Bytes isolated from the provider, and those in use. */
size_t umf_pages_total(umf_pages_t *pages);
size_t umf_pages_used(umf_pages_t *pages);

#endif
