/*
 * Reclaim: before a request fails, unused memory is made available to it.
 *
 * This is the one way of all pools when they run out of memory. Memory that is cheapest to
 * rebuild is released first: free memory of the pool itself, for any thread and of any size; of
 * other pools on the same provider; caches of the provider; free memory of other pools of the same
 * group (object/group.h); memory that the program releases in a callback (reclaim/pressure.h).
 */
#ifndef UMF_SRC_RECLAIM_RECLAIM_H
#define UMF_SRC_RECLAIM_RECLAIM_H

#include <umf/memory_pool.h>
#include <umf/reclaim.h>

#include "cache/transit.h"
#include "object/provider/tracked_provider.h"

/* A request that has failed. */
typedef struct umf_shortage_t {
    umf_tracked_provider_t *tracked; /* of the pool */
    umf_transit_t *transit;          /* of the pool */
    void *pool;
    /* Gives back to the provider all that the pool keeps free. */
    void (*give_back)(void *pool);
    /* Makes the request again. true: it is served. */
    bool (*attempt)(void *pool, void *request);
    void *request;
} umf_shortage_t;

/* Makes memory available and repeats the request until it is served. false: the provider refuses
 * it although nothing is left to give back, or it has refused it for another reason than a lack of
 * memory (umf_tracked_is_shortage): then the request is not made again. Call it with no lock held.
 * If the same thread reclaims already, a request of a callback is served from what its own pool
 * keeps, and one of an operation of a user's provider is not served. */
UMF_COLD bool umf_reclaim(const umf_shortage_t *shortage);

/*
 * Ticks. Memory decays also in pools without calls, and in programs whose calls all hit the
 * thread cache: each thread ticks at every few thousandth free, and the background thread if there
 * is one. Several times in a period one of the ticks checks for every pool whether its decay pass
 * is due.
 */
UMF_COLD void umf_reclaim_tick(void);

/* Other threads may reclaim memory of the pool between begin and end, but not while it is
 * suspended. End waits for those that do, and so does leave, for a pool that has been marked as
 * suspended. Call them with no lock held. */
void umf_reclaim_begin(umf_memory_pool_handle_t pool);
void umf_reclaim_end(umf_memory_pool_handle_t pool);
void umf_reclaim_leave(umf_memory_pool_handle_t pool);

/* Visits every pool that is not ending, also those that are suspended, until `one` returns false.
 */
void umf_reclaim_each(bool (*one)(umf_memory_pool_handle_t pool, void *arg), void *arg);

/* Visits the pool with this index. false: there is none, or it is ending. For visits that must be
 * short: the end of the pool waits for them. */
bool umf_reclaim_one(uint32_t index, void (*one)(umf_memory_pool_handle_t pool, void *arg),
                     void *arg);

/* The pools of the group give back what they keep free. */
void umf_reclaim_group(umf_pool_group_handle_t group);

#endif
