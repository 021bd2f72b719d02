/*
 * The objects behind the public handles. Only core, ipc, suspend, movement, queue, record and umf.c
 * look inside.
 */
#ifndef UMF_SRC_OBJECT_OBJECT_H
#define UMF_SRC_OBJECT_OBJECT_H

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>
#include <umf/plugin.h>
#include <umf/reclaim.h>

#include "base/handle.h"
#include "cache/magazine.h"
#include "object/layer.h"
#include "object/listener.h"
#include "object/names.h"
#include "object/pin.h"
#include "object/provider/tracked_provider.h"
#include "system/atomic.h"

/* A number for a new pool or provider. With its handle it names the object: the next one may have
 * the same handle. Never 0. */
uint32_t umf_birth_next(void);

typedef struct umf_memory_watch_t umf_memory_watch_t;

/* A provider, or a pool's tracked provider, which has the same operations on the same provider and
 * records its allocations. */
struct umf_memory_provider_t {
    umf_memory_provider_ops_t ops; /* of the current version. Immutable after create */
    void *self;
    const umf_memory_provider_ext_ops_t *ext;     /* never NULL, but its operations may be */
    const umf_memory_provider_descriptor_t *kind; /* NULL: the kind is not registered */
    umf_memory_provider_handle_t
        root; /* the user's handle; this object itself if it is not a tracked provider */
    _Atomic(size_t) pools;           /* number of pools over it; counted in the root */
    uint32_t birth;                  /* umf_birth_next; of a root. Immutable after create */
    char name[UMF_NAMES_LENGTH + 1]; /* of the root, for object/view.c; "": it is not valid */
    /* ext/movement/memory_kind.c and queue.c, in the root: */
    _Atomic(int) memory_kind; /* kind of its memory; 0: not queried yet */
    _Atomic(void *)
        queues[24]; /* made by queue_create, kept for the next copy. Taken by exchange */
    /* Only for tracked providers: */
    bool is_tracked;
    bool is_direct; /* an in-tree pool records in it; else it records in one of its own, see
                       umf_tracked_acquire */
    /* The operations that an in-tree pool calls: those for reuse if the provider has them. */
    umf_result_t (*pool_alloc)(void *self, size_t size, size_t alignment, void **ptr);
    umf_result_t (*pool_free)(void *self, void *ptr, size_t size);
    umf_map_t *private_map;        /* NULL: the spans are in the map of the process */
    umf_tracked_provider_t *inner; /* those that record for this one. Sync: the lock of `spans` */
    umf_tracked_provider_t *next;  /* of the same outer one */
    umf_tracked_provider_t *outer; /* NULL: none. Immutable */
    _Atomic(umf_pool_group_handle_t) group; /* reclaim/group.c; NULL: none */
    _Atomic(umf_memory_watch_t *) watch;    /* object/provider/memory_watch.c; NULL: none */
    _Atomic(size_t) unbacked;               /* bytes of ranges (tracked_range.c) without pages */
    _Atomic(uint64_t) refusals;             /* requests that failed; counted for object/view.c */
    umf_span_set_t spans;
};

/* The tracked provider of a span of kind UMF_SPAN_POOL. */
static inline umf_tracked_provider_t *umf_tracked_of(const umf_span_t *span) {
    return UMF_CONTAINER_OF(umf_span_set_of(span), umf_tracked_provider_t, spans);
}

struct umf_memory_pool_t {
    /* Hot: */
    const umf_small_sizes_t *small; /* never NULL */
    size_t small_end;               /* the first size that is not in `small`; 0: it has none */
    /* Index of the thread slots where umfPoolMalloc finds the magazines; 0: it calls the pool.
     * Sync: atomic, relaxed; object/layer.c replaces it */
    uint32_t small_index;
    uint32_t index;                   /* in umf_pool_table */
    uint32_t paged_key;               /* of the map entries of its spans with page records */
    const umf_magazine_slab_t *slabs; /* by class offset, for pools with `fast->slabs` */
    void *self;
    void *free_self; /* the first argument of free_at */
    umf_result_t (*usable_size)(umf_memory_pool_handle_t pool, const void *ptr, size_t *size);
    /* By rank: the functions that a call meets from there on. [0] is the entrance, the last row is
     * the pool's own. Sync: atomic, relaxed; object/layer.c replaces them */
    umf_layer_calls_t calls[UMF_LAYERS + 1];
    const umf_layer_t *layers[UMF_LAYERS]; /* by rank. Sync: atomic; object/layer.c */
    uint32_t counter_index;    /* index of `counters`; 0: there are none, or it is too high */
    umf_memory_pool_ops_t ops; /* Immutable after create */

    const umf_pool_fast_ops_t *fast;          /* NULL: a user pool */
    const umf_memory_pool_descriptor_t *kind; /* of a user pool; NULL: the kind is not registered */
    umf_tracked_provider_t *tracked;          /* NULL: tracking is disabled */
    umf_memory_provider_handle_t provider;
    umf_pool_create_flags_t flags;
    _Atomic(void *) tag;
    _Atomic(void *) ipc_handler; /* ipc/import.c; Sync: atomic, published once */
    _Atomic(void *) suspendable; /* ext/suspend/suspendable.c; Sync: atomic, published once */
    uint32_t birth;              /* umf_birth_next. Immutable after create */

    /* object/pin.c: */
    umf_pin_t *pins;               /* Sync: its lock; a hint if read without it */
    _Atomic(size_t) deferred;      /* objects whose free is deferred */
    _Atomic(void *) stream_caches; /* ext/queue/stream_caches.c; Sync: atomic, published once */

    umf_named_t named;                /* object/names.c */
    umf_thread_slot_owner_t counters; /* pools without `fast` */
    _Atomic(int64_t) retired_count;   /* sum of the counters of ended threads */
};

/* The kinds of their handles. The handle of a tracked provider is valid wherever the memory of its
 * provider is read or changed. */
extern const umf_handle_kind_t umf_handle_provider, umf_handle_tracked, umf_handle_pool;

/* Checks a handle. Every public function calls it, except those that allocate and free. `function`
 * is its name. false: the handle is wrong; this is logged, and the result must be
 * INVALID_ARGUMENT. */
static inline bool umf_pool_check(const struct umf_memory_pool_t *pool, const char *function) {
    return umf_handle_check(pool, &umf_handle_pool, function);
}
bool umf_provider_check(const struct umf_memory_provider_t *provider, const char *function);

/* Pools by index; slot 0 stays NULL. */
extern UMF_HIDDEN _Atomic(umf_memory_pool_handle_t)
    umf_pool_table[(size_t)1 << UMF_MAP_ENTRY_POOL_BITS];
/* The highest index of all pools that ever existed. It and the table are in object/view.c. */
extern UMF_HIDDEN _Atomic(uint32_t) umf_pool_highest;
uint32_t umf_pool_highest_index(void);

/* The pool's layer of this rank. NULL: it has none. */
static inline const umf_layer_t *umf_layer_of(umf_memory_pool_handle_t pool,
                                              umf_layer_rank_t rank) {
    return __atomic_load_n(&pool->layers[rank], __ATOMIC_SEQ_CST);
}

/* May its memory be away? */
static inline bool umf_pool_is_suspended(umf_memory_pool_handle_t pool) {
    return umf_layer_of(pool, UMF_LAYER_SUSPEND) != NULL;
}

/* The pool whose layer is called with a map entry. */
static inline umf_memory_pool_handle_t umf_layer_pool(umf_map_entry_t entry) {
    return atomic_load_explicit(&umf_pool_table[umf_map_entry_pool(entry)], memory_order_acquire);
}

/* The usable size of the live object at `ptr`, whose map entry belongs to this pool. */
static inline umf_result_t umf_pool_usable_size_at(umf_memory_pool_handle_t pool, const void *ptr,
                                                   umf_map_entry_t entry, size_t *size) {
    return pool->fast && pool->fast->usable_size_at
               ? pool->fast->usable_size_at(pool->self, ptr, entry, size)
               : pool->ops.malloc_usable_size(pool->self, ptr, size);
}

/* Frees an object of the pool which its user has freed already. */
umf_result_t umf_pool_free_at(umf_memory_pool_handle_t pool, void *ptr);

/* As umfPoolTrimMemory, without the provider's caches. `waits`: for device work that uses
 * freed memory. */
umf_result_t umf_pool_trim(umf_memory_pool_handle_t pool, size_t keep, bool waits);

/* No pointer leads to a pool any more: code that runs after the teardown gets an error instead of a
 * crash. */
void umf_core_teardown(void);

/* How often the library was started; 0: it is not. umf.c counts. */
extern _Atomic(unsigned) umf_started;
static inline bool umf_is_started(void) {
    return atomic_load_explicit(&umf_started, memory_order_acquire) != 0;
}

/* Records the provider whose operation failed, for umfGetLastFailedMemoryProvider. */
void umf_provider_failed(umf_memory_provider_handle_t provider);

umf_result_t umf_tracked_create(umf_memory_provider_handle_t provider, uint32_t pool_index,
                                umf_tracked_provider_t **tracked);
/* Withdraws the remaining spans and frees the tracked provider. */
void umf_tracked_destroy(umf_tracked_provider_t *tracked);

#endif
