/*
 * Depots: where threads exchange batches of free objects of one bin.
 *
 * Each thread that gives objects has a depot of its own, up to one depot for each CPU. A thread
 * uses the depots of others only while its own is empty or full. It therefore gets back
 * what it gave, which is still in its CPU's cache, and shares with other threads only while there
 * are too few objects for all.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_CACHE_DEPOT_H
#define UMF_SRC_CACHE_DEPOT_H

#include <stdatomic.h>

#include "system/common.h"

#define UMF_DEPOTS_MAX 32u

/*
 * A free object. `state` is the byte that tells whether a user owns the object. It lies in the
 * pool's bookkeeping, away from the object's memory. NULL: the pool keeps no states.
 */
typedef struct umf_item_t {
    void *object;
    uint8_t *state;
} umf_item_t;

typedef struct umf_depot_t umf_depot_t;

typedef struct umf_depots_t {
    uint32_t capacity;                         /* objects per depot. Immutable, as the next */
    uint32_t limit;                            /* most depots that are made */
    _Atomic(umf_depot_t *) at[UMF_DEPOTS_MAX]; /* by the threads' numbers; each is set once */
} umf_depots_t;

/* NULL when out of memory. */
umf_depots_t *umf_depots_create(size_t capacity);
/* Drops the objects in the depots: they belong to the pool. NULL: does nothing. */
void umf_depots_destroy(umf_depots_t *depots);

/* `number`: the calling thread's number. `is_contended` is set if it finds a depot locked; may be
 * NULL. */

/* Takes up to `n` objects. 0: there are none. */
size_t umf_depots_take(umf_depots_t *depots, uint32_t number, bool *is_contended, umf_item_t *items,
                       size_t n);
/* Gives all `n` objects. false: no depot has room, and none was given. */
bool umf_depots_give(umf_depots_t *depots, uint32_t number, bool *is_contended,
                     const umf_item_t *items, size_t n);

/* Objects in all depots. */
size_t umf_depots_count(const umf_depots_t *depots);
/* Objects that no thread has needed since the last call: they are idle. */
size_t umf_depots_count_idle(umf_depots_t *depots);
/* Takes up to `n` of the objects that the last count found idle and that still are; 0: there are
 * no more. */
size_t umf_depots_take_idle(umf_depots_t *depots, umf_item_t *items, size_t n);

#endif
