/*
 * Pins: addresses whose objects must not be handed out again.
 *
 * While an address is pinned, a free of its object is deferred. The end of its last
 * pin gives the object back to its pool. A pool without pins pays nothing: the first pin
 * pushes a layer (object/layer.h) and takes the span off the hot path, which reads the map entry
 * only. Objects of a pool that gets each of them from its provider are not pinned, because a freed
 * object belongs to the provider.
 */
#ifndef UMF_SRC_OBJECT_PIN_H
#define UMF_SRC_OBJECT_PIN_H

#include <umf/memory_pool.h>

#include "track/span.h"

/* The caller owns its memory. Zeroed: nothing is pinned. */
typedef struct umf_pin_t {
    struct umf_pin_t *low, *high;  /* a treap, by address. Sync: the lock of pin.c, as all here */
    umf_memory_pool_handle_t pool; /* NULL: the pool is gone, or nothing is pinned */
    uintptr_t addr;
    uintptr_t deferred; /* the freed object that this pin, and maybe others, keeps; 0: none */
    size_t deferred_size;
    uint32_t span; /* index */
} umf_pin_t;

/* Pins an address of a live object in a span of kind UMF_SPAN_POOL of the map of the process.
 * INVALID_ARGUMENT, with a message: the free of the object is deferred. */
umf_result_t umf_pin_begin(umf_pin_t *pin, umf_span_t *span, const void *ptr);
/* INVALID_ARGUMENT, with a message: the free of the object at the address is deferred. */
umf_result_t umf_pin_check(umf_memory_pool_handle_t pool, const void *ptr);
/* Ends a pin. It may call the pool, so no lock may be held. */
void umf_pin_end(umf_pin_t *pin);

/* The pool is about to be destroyed: deferred frees happen, and its pins end.
 */
void umf_pin_drop(umf_memory_pool_handle_t pool);

#endif
