/*
 * Depots: where free objects of one bin wait in batches, on their way between threads.
 *
 * Each thread that gives has its own, as far as there are CPUs, and goes on to those of others
 * while that is empty, full or locked. So it gets back what it gave, which is still near its CPU,
 * and shares with others only while there are too few objects for all.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_CACHE_DEPOT_H
#define UMF_SRC_CACHE_DEPOT_H

#include <stdatomic.h>

#include "system/common.h"

#define UMF_DEPOTS_MAX 32u

/*
 * A free object. `state` is the byte that tells whether a user has it, beside the objects of the
 * pool and far from their memory; NULL where the pool knows by other means.
 */
typedef struct umf_item_t {
    void *object;
    uint8_t *state;
} umf_item_t;

typedef struct umf_depot_t umf_depot_t;

typedef struct umf_depots_t {
    uint32_t capacity; /* objects, of each depot. Immutable, as the next */
    uint32_t limit;    /* so many depots at most */
    _Atomic uint32_t count;
    _Atomic(umf_depot_t *) at[UMF_DEPOTS_MAX]; /* each is set once */
} umf_depots_t;

/* What depots know of one thread. */
typedef struct umf_depot_thread_t {
    uint16_t given;    /* objects, up to a limit, for which it may have others made */
    uint8_t found;     /* the depot it found some in when its own had none, and 1; 0: none yet */
    bool is_contended; /* it found a depot locked */
} umf_depot_thread_t;

/* NULL when out of memory. */
umf_depots_t *umf_depots_create(size_t capacity);
/* The objects in it are forgotten. NULL: nothing. */
void umf_depots_destroy(umf_depots_t *depots);

/* `number`: of the calling thread; `thread`: NULL if it has none of its own. */

/* Up to `n` objects; 0 also where the thread should rather have a new one. */
size_t umf_depots_take(umf_depots_t *depots, uint32_t number, umf_depot_thread_t *thread,
                       umf_item_t *items, size_t n);
/* All or nothing. */
bool umf_depots_give(umf_depots_t *depots, uint32_t number, umf_depot_thread_t *thread,
                     const umf_item_t *items, size_t n);

/* Objects that wait. */
size_t umf_depots_count(const umf_depots_t *depots);
/* Objects that nobody has needed since it was asked last: they are idle. */
size_t umf_depots_count_idle(umf_depots_t *depots);
/* Up to `n` of those that are idle; 0: there are no more. */
size_t umf_depots_take_idle(umf_depots_t *depots, umf_item_t *items, size_t n);

#endif
