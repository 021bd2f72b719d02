/*
 * What an in-tree pool sees of the core: its tracked provider, and the functions that it may offer
 * beyond the public operations table.
 *
 * A tracked provider is the provider handle that a pool receives: the operations of the provider,
 * and a set of spans. Allocations through it are recorded, so that one lookup leads from a pointer
 * to its span. The pool may attach its own data to the span (a slab, for example).
 */
#ifndef UMF_SRC_OBJECT_PROVIDER_TRACKED_PROVIDER_H
#define UMF_SRC_OBJECT_PROVIDER_TRACKED_PROVIDER_H

#include <umf/memory_pool_ops.h>
#include <umf/memory_provider.h>
#include <umf/plugin.h>
#include <umf/view_format.h>

#include "track/span.h"

struct umf_walk_t;

typedef struct umf_memory_provider_t umf_tracked_provider_t;

/*
 * The tracked provider for the handle that `initialize` got:
 * - the handle itself if it is the tracked provider that umfPoolCreate made for this pool;
 * - a new tracked provider with a private map for a plain provider (tracking is disabled, or the
 * table is used without umfPoolCreate);
 * - a new tracked provider on the map of the process if the handle is the tracked provider of a
 * user pool, which calls this table: pointers lead to the user pool, and neither pool sees the
 * spans of the other.
 */
umf_result_t umf_tracked_acquire(umf_memory_provider_handle_t provider,
                                 umf_tracked_provider_t **tracked);
/* Releases what acquire returned. */
void umf_tracked_release(umf_tracked_provider_t *tracked);

/*
 * NOT_SUPPORTED: the provider cannot split its allocations. A user's table may have the operation
 * and still refuse, so it is tried on an address that is not an allocation, which the interface
 * allows.
 */
umf_result_t umf_provider_can_split(umf_memory_provider_handle_t provider, size_t page_size);

/* The provider's smallest page. If the provider succeeds and writes 0 or nothing, it is the
 * system's page. The error is the provider's; `size` is not valid then. */
umf_result_t umf_provider_page_size(umf_memory_provider_handle_t provider, size_t *size);

const umf_span_set_t *umf_tracked_spans(const umf_tracked_provider_t *tracked);
/* The index of thread slots under which the core expects the magazines of the pool that uses the
 * tracked provider; 0: it expects none. */
uint32_t umf_tracked_magazine_index(const umf_tracked_provider_t *tracked);

/*
 * Allocates memory of any content from the provider and records the span. `class_offset` selects
 * the magazine for the objects in the memory (umf_magazine_offset). It is dropped if the memory is
 * not aligned to its size; UMF_MAP_ENTRY_PAGED, if there is no memory for page records. `alignment`
 * is 0 or a power of two; the memory is aligned to 8 bytes at least. On failure nothing is
 * allocated, and the refusal is noted.
 *
 * A provider of the user is not believed: NULL for any size but 0 is OUT_OF_HOST_MEMORY, memory
 * that is not aligned is INVALID_ALIGNMENT, and memory that overlaps recorded memory is
 * INVALID_ARGUMENT. What overlaps memory that the provider has given before is not given back,
 * because it is in use.
 */
umf_result_t umf_tracked_alloc(umf_tracked_provider_t *tracked, size_t size, size_t alignment,
                               uint16_t class_offset, void *cookie, void **ptr);
/* Is it the answer of a provider that cannot align so far? A larger request may then do. */
static inline bool umf_tracked_cannot_align(umf_result_t result) {
    return result == UMF_RESULT_ERROR_INVALID_ALIGNMENT ||
           result == UMF_RESULT_ERROR_NOT_SUPPORTED || result == UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/*
 * The last refusal of the calling thread: by a provider, by a group (object/group.h), or by a pool
 * that does not even call its provider. A request that can fail without a refusal forgets the one
 * before first.
 */
void umf_tracked_forget_refusal(void);
/* Notes one. For pools that do not call their provider. */
void umf_tracked_refuse(size_t size, umf_result_t result);
/* Bytes; 0: no refusal. More than a limit of 2^57 stands for anything above. */
size_t umf_tracked_refused(void);
/* The result of the refusal; OUT_OF_HOST_MEMORY if there is none: a lack of metadata. */
umf_result_t umf_tracked_refusal(void);
/* Can more free memory change the answer? Also true if there was no refusal. Where it is false, a
 * request is not made again. */
bool umf_tracked_is_shortage(void);
/* Withdraws the span and frees its memory at the provider. If the provider fails, the span is
 * restored and the result is the provider's error. */
umf_result_t umf_tracked_free(umf_tracked_provider_t *tracked, umf_span_t *span);
/* The same for a free in normal use: the provider may cache the memory, because it may soon be
 * needed again. A pool that is trimmed calls umf_tracked_free instead. */
umf_result_t umf_tracked_free_for_reuse(umf_tracked_provider_t *tracked, umf_span_t *span);
/* Does the provider cache memory that is freed for reuse? */
bool umf_tracked_can_reuse(const umf_tracked_provider_t *tracked);
/*
 * Dormant spans, for pools that keep freed allocations of the provider. A dormant span is not in
 * the map, and the provider counts its memory as free. Waking it takes no lock if it is whole
 * pages.
 */
bool umf_tracked_can_be_dormant(const umf_tracked_provider_t *tracked);
/* As umf_tracked_free, but the span becomes dormant. */
umf_result_t umf_tracked_make_dormant(umf_tracked_provider_t *tracked, umf_span_t *span);
/* As umf_tracked_alloc of `size` in the memory of a dormant span, which must have as many pages.
 * false: no memory for the record, the span stays dormant. */
bool umf_tracked_wake(umf_tracked_provider_t *tracked, umf_span_t *span, size_t size);
/* Frees a dormant span at the provider. */
umf_result_t umf_tracked_free_dormant(umf_tracked_provider_t *tracked, umf_span_t *span);

/* The provider releases the memory that it caches for reuse: all, or only decayed memory. */
void umf_provider_drop_reusable(umf_memory_provider_handle_t provider, bool only_decayed);

/* The provider gives back what it has kept because work of a device used it. */
void umf_provider_free_pending(umf_memory_provider_handle_t provider, bool waits);

/* Surrounds frees that belong together, so that the provider pays a common cost only once. */
void umf_provider_free_batch(umf_memory_provider_handle_t provider, bool begins);

/* The span of this tracked provider that contains `ptr`. NULL: there is none, or the innermost span
 * belongs to another one. */
umf_span_t *umf_tracked_find(const umf_tracked_provider_t *tracked, const void *ptr);

/* The number and the bytes of the provider allocations, dormant ones included. `each` visits them
 * under the lock of the tracked provider until `visit` returns false. */
size_t umf_tracked_span_count(umf_tracked_provider_t *tracked);
size_t umf_tracked_bytes(umf_tracked_provider_t *tracked);
void umf_tracked_each_span(umf_tracked_provider_t *tracked,
                           bool (*visit)(umf_span_t *span, void *arg), void *arg);
/* A visitor that stores the first span in the `umf_span_t *` to which `found` points. */
bool umf_tracked_find_any(umf_span_t *span, void *found);

/* Tables of a pool that are not those of its kind. */
typedef struct umf_pool_variant_t {
    const umf_memory_pool_ops_t *ops;
    const struct umf_pool_fast_ops_t *fast;
} umf_pool_variant_t;

/* Of a pool that orders queues itself (umf/queue.h): its blocks have no records in stream caches.
 */
typedef struct umf_pool_queue_ops_t {
    /* false: the provider has no queues, and only NULL is one. Constant after initialize. */
    bool (*has_queues)(void *pool);
    /* The error of a queue that the provider refuses. */
    umf_result_t (*check)(void *pool, void *queue);
    void *(*malloc_on)(void *pool, size_t size, size_t alignment, void *queue);
    umf_result_t (*free_on)(void *pool, void *ptr, void *queue);
    umf_result_t (*use_on)(void *pool, const void *ptr, void *queue);
    /* As a free on a queue, but the block lives on until the next free, which names no queue. */
    umf_result_t (*last_use_on)(void *pool, void *ptr, void *queue);
    /* The queue is about to be destroyed. One that the pool has not met is ignored. */
    void (*queue_ends)(void *pool, void *queue);
    /* Bytes of freed memory that queued work still uses, after a look at the queues, or a wait. */
    size_t (*pending)(void *pool, bool waits);
} umf_pool_queue_ops_t;

typedef bool (*umf_part_visit_t)(uintptr_t base, size_t size, void *arg);

/* Of a pool that places pages itself (object/provider/tracked_range.h): pieces of its own. */
typedef struct umf_pool_pieces_ops_t {
    /* vm_find to vm_release, and vm_run (umf/plugin.h), of the pool. */
    const umf_memory_provider_ext_ops_t *vm;
    /* Divides the pool's memory into pieces, after a wait for all work. `*parts`: how many parts
     * `each_part` visits. Nothing is allocated meanwhile. */
    umf_result_t (*make)(void *pool, size_t *parts);
    /* Visits the kept parts of each piece, until `visit` returns false. No part is in two pieces.
     */
    void (*each_part)(void *pool, umf_part_visit_t visit, void *arg);
    /* Visits all pages that have addresses. No other thread uses the pool. */
    void (*each_page)(void *pool, umf_part_visit_t visit, void *arg);
} umf_pool_pieces_ops_t;

/* The memory that a description of a pool's block names. */
typedef struct umf_pool_export_t {
    uintptr_t base;
    size_t size;
    uint64_t id; /* a number for a new description, which becomes that of the block's */
} umf_pool_export_t;

/* The functions that in-tree pools offer beyond their operations table. */
typedef struct umf_pool_fast_ops_t {
    /* The tables of a pool with these parameters, before it is initialized. NULL, or the result
     * NULL: the kind's own. */
    const umf_pool_variant_t *(*variant)(const void *params);
    /* NULL: stream caches (ext/queue) order queues. */
    const umf_pool_queue_ops_t *queued;
    /* Frees `ptr`. The caller has looked up its map entry, which belongs to this pool. */
    umf_result_t (*free_at)(void *pool, void *ptr, umf_map_entry_t entry);
    /* The same without a lock, if the calling thread's magazine has room. For map entries without
     * class offset. NULL: never possible. */
    bool (*try_free)(void *pool, void *ptr, umf_map_entry_t entry);
    /* The usable size of the live object at `ptr`, whose map entry the caller has looked up. An
     * error, with a message: no live object begins there. NULL: call malloc_usable_size. */
    umf_result_t (*usable_size_at)(void *pool, const void *ptr, umf_map_entry_t entry,
                                   size_t *size);
    /* Makes a decay pass if one is due. Any thread may call it. NULL: nothing decays. */
    void (*tick)(void *pool);
    /* A recording of the pool has begun: emits events (object/event.h) of its state. NULL: none. */
    void (*recorded)(void *pool);
    /* Live allocations, for stats.alloc_count. */
    size_t (*alloc_count)(void *pool);
    /* Bytes of free objects that threads have room for, for stats.thread_cache. NULL: none. */
    size_t (*thread_cache)(void *pool);
    /* The sizes whose magazines, under umf_tracked_magazine_index(), the core may pop itself. NULL,
     * or the result NULL: none. Called once, after the pool's settings were applied. */
    const struct umf_small_sizes_t *(*small)(void *pool);
    /* The table that class offsets of map entries index (umf_magazine_slab_at). Called once, after
     * the pool's settings were applied. NULL: the pool gives no class offsets. */
    const struct umf_magazine_slab_t *(*slabs)(void *pool);
    /* Whether the core may serve frees from the magazines itself. Where it may not each free goes
     * through free_at, from the return on. Two threads must not call it at once. NULL: the pool
     * gives no class offsets. */
    void (*set_served_inline)(void *pool, bool may);
    /* Reports the blocks of a span. The caller uses the span (umf_span_use), so that it stays
     * whole. No lock is held for more than some thousand blocks at a time. NULL: the pool cannot
     * list them. */
    void (*walk)(void *pool, const umf_span_t *span, struct umf_walk_t *walk);
    /* Others can reach the pages under a range of live memory: from now on they stay where they
     * are, or are released. NULL: the pool moves none. */
    void (*share)(void *pool, const void *ptr, size_t size);
    /* Describes the block that holds `ptr` for other processes. The description is valid until the
     * block is freed or shrinks, or its memory goes. NULL: the provider describes spans. */
    umf_result_t (*get_handle)(void *pool, const void *ptr, void *data, umf_pool_export_t *made);
    /* NULL: pieces are the provider's. */
    const umf_pool_pieces_ops_t *pieces;
    /* Is memory overwritten when it is freed? Constant after initialize. NULL: no. */
    bool (*zeroes_on_free)(void *pool);
    /* The kind as outside readers see it (object/view.c). */
    const umf_view_kind_t *view;
    /* The pool keeps data of its own inside the memory that it divides. */
    bool data_inside;
    /* Each object is an allocation of the provider: the pool never hands an object out again. */
    bool each_from_provider;
    /* Its realloc is NOT_SUPPORTED, except for a size of 0. */
    bool no_realloc;
} umf_pool_fast_ops_t;

#endif
