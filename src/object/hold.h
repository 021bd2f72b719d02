/*
 * Holds: addresses whose objects must not be handed out again.
 *
 * While an address is held, a free of its object only sets the object aside. The end of its last
 * hold gives the object back to its pool. A pool without holds pays nothing: the first hold
 * replaces its free functions and takes the span off the hot path, which reads the map entry only.
 * Objects of a pool that gets each of them from its provider are not held, because a freed object
 * belongs to the provider.
 */
#ifndef UMF_SRC_OBJECT_HOLD_H
#define UMF_SRC_OBJECT_HOLD_H

#include <umf/memory_pool.h>

#include "track/span.h"

/* The holder owns its memory. Zeroed: nothing is held. */
typedef struct umf_hold_t {
    struct umf_hold_t *low, *high; /* a treap, by address. Sync: the lock of hold.c, as all here */
    umf_memory_pool_handle_t pool; /* NULL: the pool is gone, or nothing is held */
    uintptr_t addr;
    uintptr_t aside; /* the freed object that this hold, and maybe others, keeps; 0: none */
    size_t aside_size;
    uint32_t span; /* index */
} umf_hold_t;

/* Holds an address of a live object in a span of kind UMF_SPAN_POOL of the map of the process.
 * INVALID_ARGUMENT, with a message: the object is set aside. */
umf_result_t umf_hold_begin(umf_hold_t *hold, umf_span_t *span, const void *ptr);
/* INVALID_ARGUMENT, with a message: the object at the address is set aside. */
umf_result_t umf_hold_check(umf_memory_pool_handle_t pool, const void *ptr);
/* Ends a hold. It may call the pool, so no lock may be held. */
void umf_hold_end(umf_hold_t *hold);

/* The pool is about to be destroyed: objects that are set aside go back to it, and its holds end.
 */
void umf_hold_drop(umf_memory_pool_handle_t pool);

/* Watched pools: each free of an object goes through these two, which end in what they replace. The
 * same for a span whose frees the core would serve itself. */
typedef umf_result_t (*umf_hold_free_t)(void *pool, void *ptr, umf_map_entry_t entry);
typedef bool (*umf_hold_try_free_t)(void *pool, void *ptr, umf_map_entry_t entry);
void umf_hold_watch(umf_memory_pool_handle_t pool, umf_hold_free_t free_at,
                    umf_hold_try_free_t try_free);
void umf_hold_watch_span(umf_span_t *span);

/* Recorded pools: frees go through object/recorded.h first. */
void umf_hold_record(umf_memory_pool_handle_t pool, bool is_recorded);

/* umfPoolRealloc of an object that is held. The object stays in place with its full size, or it is
 * copied and set aside. false: it is not held. */
bool umf_hold_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size, void **moved);

#endif
