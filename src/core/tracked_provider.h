/*
 * What an in-tree pool sees of the core: its tracked provider, and what it offers beyond the
 * contract's table.
 *
 * A tracked provider is the provider handle a pool receives: the provider's operations plus the set
 * of spans to record in. Allocations through a tracked provider are recorded, so that a pointer
 * leads to its span with one lookup, and the pool may hang its own data (a slab) on the span.
 */
#ifndef UMF_SRC_CORE_TRACKED_PROVIDER_H
#define UMF_SRC_CORE_TRACKED_PROVIDER_H

#include <umf/memory_pool_ops.h>
#include <umf/memory_provider.h>

#include "track/span.h"

typedef struct umf_memory_provider_t umf_tracked_provider_t;

/*
 * The tracked provider behind the handle given to `initialize`:
 * - the handle itself if it is the tracked provider that umfPoolCreate made for this pool;
 * - a new tracked provider with a private map for a plain provider (tracking disabled, or the table
 * is used without umfPoolCreate);
 * - a new tracked provider on the map of the process if the handle is the tracked provider of a
 * user's pool, which calls our table: pointers lead to the user's pool, and nobody meets the spans
 * of anybody else.
 */
umf_result_t umf_tracked_acquire(umf_memory_provider_handle_t provider,
                                 umf_tracked_provider_t **tracked);
/* Undoes acquire. */
void umf_tracked_release(umf_tracked_provider_t *tracked);

/*
 * NOT_SUPPORTED if the provider cannot split its allocations. A table of the user's may have the
 * operation and still refuse: it is tried on an address that is not an allocation (the contract).
 */
umf_result_t umf_provider_can_split(umf_memory_provider_handle_t provider, size_t page_size);

/* The provider's smallest page. One that says success and 0, or writes nothing, means the system's.
 * On failure, which is the provider's, `size` is not to be used. */
umf_result_t umf_provider_page_size(umf_memory_provider_handle_t provider, size_t *size);

const umf_span_set_t *umf_tracked_spans(const umf_tracked_provider_t *tracked);
/* Where the core looks for the magazines of the pool that uses the tracked provider; 0: nowhere. */
uint32_t umf_tracked_magazine_index(const umf_tracked_provider_t *tracked);

/* Allocates memory of any content from the provider and records the span. `class_offset` tells the
 * core in which magazine what lies in the memory belongs (umf_magazine_offset); it is dropped where
 * the memory is not aligned to its size. On failure nothing is held. */
umf_result_t umf_tracked_alloc(umf_tracked_provider_t *tracked, size_t size, size_t alignment,
                               uint16_t class_offset, void *cookie, void **ptr);
/* Withdraws the span and frees it at the provider; if the provider fails the span is restored and
 * the provider's error returned. */
umf_result_t umf_tracked_free(umf_tracked_provider_t *tracked, umf_span_t *span);
/* The same for what is freed in use, not to have less: it may soon be wanted again. */
umf_result_t umf_tracked_free_for_reuse(umf_tracked_provider_t *tracked, umf_span_t *span);
/* Does the provider keep some of that? */
bool umf_tracked_can_reuse(const umf_tracked_provider_t *tracked);
/*
 * For pools whose every allocation is one of the provider's and who keep what was freed: then the
 * span rests. Nothing leads to it, the provider counts it as free, and waking it costs no lock if
 * it is whole pages.
 */
bool umf_tracked_can_be_dormant(const umf_tracked_provider_t *tracked);
/* As umf_tracked_free, for memory of any content. */
umf_result_t umf_tracked_make_dormant(umf_tracked_provider_t *tracked, umf_span_t *span);
/* As umf_tracked_alloc of `size` at the place of a span that rests, of which it takes no more pages
 * than before. false: no memory, the span rests. */
bool umf_tracked_wake(umf_tracked_provider_t *tracked, umf_span_t *span, size_t size);
/* A span that rests goes back to the provider. */
umf_result_t umf_tracked_free_dormant(umf_tracked_provider_t *tracked, umf_span_t *span);

/* The provider gives back what it keeps of that: all, or what nobody has wanted for a while. */
void umf_provider_drop_reusable(umf_memory_provider_handle_t provider, bool only_decayed);

/* Around frees that belong together, so that the provider pays once what giving back costs once. */
void umf_provider_free_batch(umf_memory_provider_handle_t provider, bool begins);

/* The tracked provider's own span that contains `ptr`; NULL if it belongs to nobody or to somebody
 * else. */
umf_span_t *umf_tracked_find(const umf_tracked_provider_t *tracked, const void *ptr);
/* The same, and the span's entry. */
umf_span_t *umf_tracked_find_entry(const umf_tracked_provider_t *tracked, const void *ptr,
                                   umf_map_entry_t *entry);

/* Provider allocations, those that rest too, and a visit to each under the tracked provider's lock,
 * until `visit` is false. */
size_t umf_tracked_span_count(umf_tracked_provider_t *tracked);
size_t umf_tracked_bytes(umf_tracked_provider_t *tracked);
void umf_tracked_each_span(umf_tracked_provider_t *tracked,
                           bool (*visit)(umf_span_t *span, void *arg), void *arg);
/* A visit: the first there is, to the `umf_span_t *` that `found` points to. */
bool umf_tracked_find_any(umf_span_t *span, void *found);

/* What in-tree pools offer beyond their ops table. */
typedef struct umf_pool_fast_ops_t {
    /* Frees `ptr`, whose leaf entry (of this pool) the caller already looked up. */
    umf_result_t (*free_at)(void *pool, void *ptr, umf_map_entry_t entry);
    /* The same if the calling thread's magazine has room, without taking a lock; for words without
     * class_offset. NULL: never. */
    bool (*try_free)(void *pool, void *ptr, umf_map_entry_t entry);
    /* Live allocations, for stats.alloc_count. */
    size_t (*alloc_count)(void *pool);
    /* Sizes whose magazines, under umf_tracked_magazine_index(), the core may pop without asking.
     * NULL, or the answer NULL: none. Asked once, after the pool's settings were applied. */
    const struct umf_small_sizes_t *(*small)(void *pool);
    /* What the class_offsets of its entries lead to (umf_magazine_slab_at); asked once, as the
     * last. NULL: it gives no class_offsets. */
    const struct umf_magazine_slab_t *(*slabs)(void *pool);
    /* The pool keeps data of its own inside the memory it divides. */
    bool data_inside;
    /* Each object is an allocation of the provider: the pool never hands one out again. */
    bool each_from_provider;
    /* Its realloc is NOT_SUPPORTED, but for a size of 0. */
    bool no_realloc;
} umf_pool_fast_ops_t;

#endif
