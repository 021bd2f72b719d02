/*
 * Holds: addresses whose objects must not be handed out again.
 *
 * While an address is held, a free of its object only sets the object aside. The end of its last
 * hold gives the object back to its pool. A pool without holds pays nothing: the first hold
 * pushes a layer (object/layer.h) and takes the span off the hot path, which reads the map entry
 * only. Objects of a pool that gets each of them from its provider are not held, because a freed
 * object belongs to the provider.
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

#endif
