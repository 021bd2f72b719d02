/*
 * Memory in transit: free, but neither where a request searches nor at the provider. A purge, a
 * trim and a drain have some, and so does a span on its way from the provider to the pool or back.
 *
 * A thread has memory in transit between begin and end only. A request that is about to fail makes
 * its final retry between retry and again: it begins when no memory is in transit, one request at a
 * time, and is repeated if some was in transit meanwhile. So a request fails only if it has
 * searched all free memory.
 *
 *     umf_transit_part_t part;
 *     umf_transit_retry(&pool->transit, &part);
 *     do {
 *         ptr = take_or_grow(pool);
 *     } while (umf_transit_again(&part, ptr != NULL));
 *
 * No thread waits for itself: between begin and end, or retry and again, it may begin and retry
 * once more (a provider's operation may allocate from the pool that called it).
 *
 * All waits are bounded: the other thread may be in an operation of a user's provider, which may
 * wait for the very thread that waits here. A retry waits about ten seconds in all. A begin gives
 * way to retries for about five milliseconds, so retries without an end do not stop the trims. Call
 * none of these functions with a lock held.
 *
 * In a child of fork only memory of the forking thread itself is in transit.
 */
#ifndef UMF_SRC_CACHE_TRANSIT_H
#define UMF_SRC_CACHE_TRANSIT_H

#include "system/common.h"

#define UMF_TRANSIT_COUNT_MASK UINT64_C(0xffff)

/* One for each pool; zero at first. A word is a generation, the number of forks before this process
 * and a count of threads. The generation changes whenever a thread is done. Sync: atomic */
typedef struct umf_transit_t {
    uint64_t at_work;  /* threads with memory in transit */
    uint64_t retrying; /* threads in their final retry: at most one, unless a wait was too long */
} umf_transit_t;

/* The part of one thread, on its stack between begin and end, or retry and again. */
typedef struct umf_transit_part_t {
    umf_transit_t *transit;
    struct umf_transit_part_t *outer; /* the thread's part that began before this one */
    uint64_t seen;                    /* `at_work` when the retry began */
    unsigned forks;                   /* umf_fork_count() at the beginning */
    unsigned round;                   /* pauses and retries so far */
    bool is_counted;                  /* false: inside of an outer part in the same memory */
} umf_transit_part_t;

/* The calling thread has memory in transit from now on. */
void umf_transit_begin(umf_transit_t *transit, umf_transit_part_t *part);
/* All of it is free again, or back at the provider, where every request finds it. */
void umf_transit_end(umf_transit_part_t *part);

/* Is the calling thread between begin and end, or retry and again? */
bool umf_transit_is_inside(const umf_transit_t *transit);

/* Is there a thread between retry and again? For code that would hide free memory from its search.
 * In a child of fork it may be true for one of the parent. Hot. */
static inline bool umf_transit_has_retry(const umf_transit_t *transit) {
    return umf_unlikely(__atomic_load_n(&transit->retrying, __ATOMIC_RELAXED) &
                        UMF_TRANSIT_COUNT_MASK);
}

/* Waits until no memory is in transit. The caller then searches; `again` must follow. */
UMF_COLD void umf_transit_retry(umf_transit_t *transit, umf_transit_part_t *part);
/* true: memory was in transit during the retry, and has been released: search again. false: the
 * retry is over. `is_served`: the request has its memory. */
UMF_COLD bool umf_transit_again(umf_transit_part_t *part, bool is_served);

#endif
