/*
 * Depots: where threads exchange batches of free objects of one bin.
 *
 * Each thread that gives objects has a depot of its own, up to one depot for each CPU. A thread
 * uses the depots of others only while its own is empty or full. It therefore gets back
 * what it gave, which is still in its CPU's cache.
 *
 * From the depot of another, a thread takes only objects that its owner is not about to need: those
 * beyond the count that the owner took, from here or the pool, before it gave. Otherwise threads
 * that allocate and free in turn would pass the same objects around, and would then write the
 * states of objects that lie side by side, in the same cache line: 16 threads with 1,000 objects
 * each took 90 ns instead of 12 for a pair.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_CACHE_DEPOT_H
#define UMF_SRC_CACHE_DEPOT_H

#include "system/atomic.h"
#include "system/common.h"

#define UMF_DEPOTS_MAX 32u

/*
 * A free object. `state` is the byte that records whether a user owns the object. It lies in the
 * pool's bookkeeping, away from the object's memory. NULL: the pool keeps no states.
 */
typedef struct umf_item_t {
    void *object;
    uint8_t *state;
} umf_item_t;

typedef struct umf_depot_t umf_depot_t;

/* A thread, as far as the depots of one bin are concerned. */
typedef struct umf_depot_user_t {
    uint16_t needed;       /* objects that it took, from here or the pool, and has not given yet */
    bool is_contended;     /* it found a depot locked. Set here, cleared by who looks at it */
    bool took_from_others; /* the objects that it took last were in another thread's depot */
} umf_depot_user_t;

typedef struct umf_depots_t {
    uint32_t capacity;                         /* objects per depot. Immutable, as the next */
    uint32_t limit;                            /* most depots that are made */
    _Atomic(umf_depot_t *) at[UMF_DEPOTS_MAX]; /* by the threads' numbers; each is set once */
} umf_depots_t;

/* The depot of a thread with this number, below UMF_DEPOTS_MAX. */
uint32_t umf_depots_index(uint32_t number);

/* NULL when out of memory. */
umf_depots_t *umf_depots_create(size_t capacity);
/* Drops the objects in the depots: they belong to the pool. NULL: does nothing. */
void umf_depots_destroy(umf_depots_t *depots);

/* `number`: the calling thread's number. `user`: NULL where a call is made for all
 * threads, or by a thread that has no cache. */

/* Takes up to `n` objects. 0: there are none, or `user` is not NULL and they are
 * left to others. */
size_t umf_depots_take(umf_depots_t *depots, uint32_t number, umf_depot_user_t *user,
                       umf_item_t *items, size_t n);
/* Gives all `n` objects. false: no depot has room, and none was given. */
bool umf_depots_give(umf_depots_t *depots, uint32_t number, umf_depot_user_t *user,
                     const umf_item_t *items, size_t n);
/* Gives all `n` objects, which other threads have freed, to the thread with this number: they lie
 * in pages that it owns. The other threads leave so many to it, half of them after the next count
 * of idle ones. If the thread's depot is full, another one gets them. false: as above. */
bool umf_depots_return(umf_depots_t *depots, uint32_t number, const umf_item_t *items, size_t n);

/* Returns memory that empty depots have used for objects to the system. */
void umf_depots_trim(umf_depots_t *depots);

/* Objects in all depots. */
size_t umf_depots_count(const umf_depots_t *depots);
/* Objects that no thread has needed since the last call: they are idle. */
size_t umf_depots_count_idle(umf_depots_t *depots);
/* Takes up to `n` of the objects that the last count found idle and that still are; 0: there are
 * no more. */
size_t umf_depots_take_idle(umf_depots_t *depots, umf_item_t *items, size_t n);

#endif
