/*
 * Holds: addresses whose objects must not be handed out again.
 *
 * While somebody holds an address, the free of its object only sets the object aside; the last of
 * its holds to end gives it back to its pool. A pool without holds knows nothing of that: with the
 * first one its functions that free are replaced, and the span leaves the hot path, which looks at
 * the entry of the map alone. Objects of a pool that gets each from its provider are not held: what
 * was freed is the provider's, who tells it.
 */
#ifndef UMF_SRC_CORE_HOLD_H
#define UMF_SRC_CORE_HOLD_H

#include <umf/memory_pool.h>

#include "track/span.h"

/* Its memory is the holder's. Zeroed: nothing is held. */
typedef struct umf_hold_t {
    struct umf_hold_t *low, *high; /* a treap, by address. Sync: the lock of hold.c, as all here */
    umf_memory_pool_handle_t pool; /* NULL: the pool is gone, or nothing is held */
    uintptr_t addr;
    uintptr_t aside; /* the freed object that waits for this hold and maybe others; 0: none */
    size_t aside_size;
    uint32_t span; /* index */
} umf_hold_t;

/* Holds an address of a live object in a span of kind UMF_SPAN_POOL of the process's map.
 * INVALID_ARGUMENT, with a message, if the object is set aside. */
umf_result_t umf_hold_begin(umf_hold_t *hold, umf_span_t *span, const void *ptr);
/* May call the pool: no lock may be held. */
void umf_hold_end(umf_hold_t *hold);

/* The pool is going away: objects that are set aside go back to it, and holds hold nothing. */
void umf_hold_drop(umf_memory_pool_handle_t pool);

/* umfPoolRealloc of an object that is held: it stays where it is, with all of its room, or is
 * copied and set aside. false: it is not held. */
bool umf_hold_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size, void **moved);

#endif
