/*
 * Depots: where free objects of one bin wait in batches, on their way between threads.
 *
 * There are more of them where threads meet, up to eight, and one for each CPU. A thread begins
 * with one of its own choice and goes on to the others while that is empty, full or locked. Where
 * depots are `owned` each thread has its own from the start, as far as there are CPUs: it gets back
 * what it gave and what is still near its CPU, and shares with others only while there are too few
 * objects for all.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_BASE_DEPOT_H
#define UMF_SRC_BASE_DEPOT_H

#include <stdatomic.h>

#include "base/common.h"

#define UMF_DEPOTS_MAX 32u       /* that are owned */
#define UMF_DEPOTS_SHARED_MAX 8u /* others */

typedef struct umf_depot_t umf_depot_t;

typedef struct umf_depots_t {
    uint32_t capacity; /* objects, of each depot. Immutable, as the next two */
    uint32_t limit;    /* so many depots at most */
    bool is_owned;
    _Atomic uint32_t count;
    _Atomic(umf_depot_t *) at[UMF_DEPOTS_MAX]; /* each is set once */
} umf_depots_t;

/* What depots know of one thread. */
typedef struct umf_depot_thread_t {
    uint16_t given; /* objects, up to a limit, for which it may have others made */
    bool has_met;   /* it had to wait for another thread */
} umf_depot_thread_t;

/* NULL when out of memory. */
umf_depots_t *umf_depots_create(size_t capacity, bool is_owned);
/* The objects in it are forgotten. NULL: nothing. */
void umf_depots_destroy(umf_depots_t *depots);

/* `number`: of the calling thread; `thread`: NULL if it has none of its own. */

/* Up to `n` objects; 0 also where the thread should rather have a new one. */
size_t umf_depots_take(umf_depots_t *depots, uint32_t number, umf_depot_thread_t *thread,
                       void **objects, size_t n);
/* All or nothing. */
bool umf_depots_give(umf_depots_t *depots, uint32_t number, umf_depot_thread_t *thread,
                     void *const *objects, size_t n);

/* Objects that wait. */
size_t umf_depots_count(const umf_depots_t *depots);
/* Objects that nobody has needed since it was asked last: they are idle. */
size_t umf_depots_count_idle(umf_depots_t *depots);
/* Up to `n` of those that are idle; 0: there are no more. */
size_t umf_depots_take_idle(umf_depots_t *depots, void **objects, size_t n);

#endif
