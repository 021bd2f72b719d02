/*
 * Page cache: spans of a provider, divided into segments of whole pages for an allocator above.
 *
 * The cache never touches the memory that it divides. For each span it keeps a table with a record
 * per page, for the owner's use. Any address of the span leads to it.
 *
 * Spans belong to shards with a lock each (pools/jemalloc/pages_shards.h); at first there is one. A
 * segment goes back to the shard it came from. A thread takes from its own shard, else from other
 * shards whose lock is free. Only if these have nothing either does its shard get another span.
 *
 * A span that becomes wholly free goes back, but for the last one of each shard and for as many
 * bytes as were taken from the provider soon after they had been given back. These wait for a decay
 * pass.
 *
 * `take`, `put`, `split` and `extend` never call the provider and hold one lock for a short time,
 * so they may run below an allocator that must not be re-entered. `alloc`, `grow`, `settle`,
 * `decay` and `trim` call the provider, with no lock held.
 */
#ifndef UMF_SRC_POOLS_JEMALLOC_PAGES_H
#define UMF_SRC_POOLS_JEMALLOC_PAGES_H

#include "base/lock.h"
#include "cache/transit.h"
#include "ds/list.h"
#include "ds/range.h"
#include "object/provider/tracked_provider.h"
#include "pools/shared/purge.h"
#include "system/atomic.h"

/* The unit of the cache, whatever the pages of the machine are. The provider supplies whole pages
 * of its own, and only such pages are purged. */
#define UMF_PAGE_SHIFT 12
#define UMF_PAGE_SIZE ((size_t)1 << UMF_PAGE_SHIFT)

typedef struct umf_pages_shard_t umf_pages_shard_t;

/* The record of a span, to which its cookie points. */
typedef struct umf_pages_span_t {
    umf_list_t link;  /* all spans of the shard. Sync: the shard's lock */
    umf_list_t idle;  /* spans that are kept, or that are to be given back. Sync: as link */
    bool is_kept;     /* Sync: as link */
    umf_span_t *span; /* Immutable, as the rest, once segments of it are handed out */
    umf_pages_shard_t *shard;
    uintptr_t base;
    size_t size;
    _Atomic(size_t) own;         /* for the owner's use, as the records; 0 at first */
    _Alignas(64) char records[]; /* one per page, zeroed at first */
} umf_pages_span_t;

#define UMF_PAGES_SHARDS_MAX 16

struct umf_pages_shard_t {
    umf_lock_t lock;
    bool is_taking;     /* the lock holder takes from its own shard. Sync: atomic, with lock */
    uint32_t elsewhere; /* how often other shards served its threads since it last grew. Sync:
                           atomic */
    umf_range_t *range; /* NULL before the first span. Sync: lock, as the rest */
    umf_list_t spans;
    /* Of the spans that fell wholly free; some may be in use again. */
    umf_list_t kept, surplus; /* the last one was the last to fall free */
    size_t kept_bytes;
    size_t peak, last_peak; /* most bytes of spans in use, in this and the last decay period */
    int64_t counted;        /* Sync: atomic */
    umf_purge_part_t part;
};

typedef struct umf_pages_t umf_pages_t;

/* The pool's functions for its own part of a span's record. No lock is held. */
typedef struct umf_pages_ops_t {
    /* Before the memory goes to the provider, which may refuse it. */
    void (*leave)(const umf_pages_t *pages, umf_pages_span_t *span);
    /* Before the record is freed. */
    void (*drop)(const umf_pages_t *pages, umf_pages_span_t *span);
} umf_pages_ops_t;

struct umf_pages_t {
    umf_tracked_provider_t *tracked;
    size_t granule;   /* the provider's smallest page, at least UMF_PAGE_SIZE */
    size_t alignment; /* what spans are aligned to; a power of two */
    size_t record_size;
    const umf_pages_ops_t *ops; /* NULL: none. Immutable after init, as all above */
    umf_purge_t purge;
    /* Bytes of spans, of all shards: a thread may free blocks of another shard. */
    _Atomic(size_t) kept;  /* in the lists of that name */
    _Atomic(size_t) keep;  /* to be kept, beside the last of each shard */
    _Atomic(size_t) given; /* given back since the last decay pass */
    _Atomic(bool) has_surplus;
    _Atomic(bool) is_full; /* the provider had no memory at the last call */
    umf_transit_t transit; /* isolated segments, and spans on their way */
    _Atomic(uint32_t) shard_count;
    umf_pages_shard_t *shards[UMF_PAGES_SHARDS_MAX]; /* Published by shard_count */
    umf_pages_shard_t first;
};

/* Allocates nothing. `granule`: the provider's smallest page. `ops` may be NULL. */
void umf_pages_init(umf_pages_t *pages, umf_tracked_provider_t *tracked, size_t granule,
                    size_t record_size, const umf_pages_ops_t *ops);
/* Gives every span back, also those with segments in use. Returns the provider's first error. */
umf_result_t umf_pages_fini(umf_pages_t *pages);

/* Takes a segment of the memory that the cache has; NULL: nothing fits. Sizes are multiples of the
 * page, alignments powers of two. */
void *umf_pages_take(umf_pages_t *pages, size_t size, size_t alignment);
/* Takes up to `n` segments of one size, aligned to a page. Returns how many. */
size_t umf_pages_take_many(umf_pages_t *pages, size_t size, void **segments, size_t n);
/* Takes a segment, and grows if none fits. NULL: the provider has no more memory. */
void *umf_pages_alloc(umf_pages_t *pages, size_t size, size_t alignment);
/* Makes room for one segment of this size and alignment. Before it fails it makes a final retry
 * (cache/transit.h). */
umf_result_t umf_pages_grow(umf_pages_t *pages, size_t size, size_t alignment);

/* Frees a segment. Spans that become wholly free go to the provider at the next `settle`, or when a
 * decay pass finds them idle. */
void umf_pages_put(umf_pages_t *pages, void *ptr, size_t size);
void umf_pages_put_many(umf_pages_t *pages, size_t size, void *const *segments, size_t n);
/* Splits a segment in two. */
umf_result_t umf_pages_split(umf_pages_t *pages, void *ptr, size_t total, size_t first);
/* Enlarges a segment in place. OUT_OF_RESOURCES: what follows it is in use. */
umf_result_t umf_pages_extend(umf_pages_t *pages, void *ptr, size_t old, size_t size);

void umf_pages_settle_slow(umf_pages_t *pages);
static inline void umf_pages_settle(umf_pages_t *pages) {
    if (umf_unlikely(atomic_load_explicit(&pages->has_surplus, memory_order_relaxed))) {
        umf_pages_settle_slow(pages);
    }
}

/* A decay pass (cache/decay.h): purges segments that have been free for a while; wholly free spans
 * go to the provider. `is_new`: a period has passed. true: there may be more. */
bool umf_pages_decay(umf_pages_t *pages, bool is_new);
/* Gives back all wholly free spans and purges the free segments in the others. */
void umf_pages_trim(umf_pages_t *pages);

/* The cache's span around `ptr`, even if a span of another owner inside of it contains `ptr`. NULL:
 * there is none. */
umf_pages_span_t *umf_pages_find(const umf_pages_t *pages, const void *ptr);

/* Bytes held from the provider, and those of them that are in use. */
size_t umf_pages_total(umf_pages_t *pages);
size_t umf_pages_used(umf_pages_t *pages);

/* A count for the owner's use, of segments in use. Each shard has one: one word for all threads
 * would be the slowest part of a large allocation. */
void umf_pages_count(umf_pages_t *pages, const void *segment, int change);
int64_t umf_pages_counted(const umf_pages_t *pages);

#endif
