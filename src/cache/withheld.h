/*
 * Memory that is withheld for a moment: free, but neither where a request looks nor at the
 * provider. A purge, a trim and a drain withhold it, and so does a span on its way from the
 * provider to the pool or back.
 *
 * Whoever withholds memory does so between begin and end. A request that is about to fail looks for
 * the last time between look and again: the look begins when nothing is withheld, one request at a
 * time, and is repeated if anything was withheld meanwhile. So a request fails only if it has seen
 * all free memory.
 *
 *     umf_withheld_part_t part;
 *     umf_withheld_look(&pool->withheld, &part);
 *     do {
 *         ptr = take_or_grow(pool);
 *     } while (umf_withheld_again(&part, ptr != NULL));
 *
 * Nobody waits for itself: a thread that withholds memory, or looks, may begin and look again
 * inside (a provider's operation may allocate from the pool that called it).
 *
 * All waits are bounded, because the thread that is waited for may be in an operation of a user's
 * provider, and this may wait for the very thread that waits here. A look waits about ten seconds
 * in all. A begin gives way to looks for about five milliseconds, so looks without an end do not
 * stop the trims. Call none of these functions with a lock held.
 *
 * In a child of fork only memory of the forking thread itself is withheld.
 */
#ifndef UMF_SRC_CACHE_WITHHELD_H
#define UMF_SRC_CACHE_WITHHELD_H

#include "system/common.h"

/* One for each pool; zero at first. A word is a generation, the number of forks before this process
 * and a count of threads. The generation changes whenever a thread is done. Sync: atomic */
typedef struct umf_withheld_t {
    uint64_t at_work; /* threads that withhold memory */
    uint64_t looking; /* threads in their last look: at most one, unless a wait was too long */
} umf_withheld_t;

/* The part of one thread, on its stack between begin and end, or look and again. */
typedef struct umf_withheld_part_t {
    umf_withheld_t *withheld;
    struct umf_withheld_part_t *outer; /* the thread's part that began before this one */
    uint64_t seen;                     /* `at_work` when the look began */
    unsigned forks;                    /* umf_fork_count() at the beginning */
    unsigned round;                    /* pauses and looks so far */
    bool is_counted;                   /* false: inside of an outer part in the same memory */
} umf_withheld_part_t;

/* The calling thread withholds memory from now on. */
void umf_withheld_begin(umf_withheld_t *withheld, umf_withheld_part_t *part);
/* All of it is free again, or back at the provider, where every request finds it. */
void umf_withheld_end(umf_withheld_part_t *part);

/* Is the calling thread between begin and end, or look and again? */
bool umf_withheld_is_inside(const umf_withheld_t *withheld);

/* Waits until nothing is withheld. The caller then looks for memory; `again` must follow. */
UMF_COLD void umf_withheld_look(umf_withheld_t *withheld, umf_withheld_part_t *part);
/* true: memory was withheld during the look, and it has been released: look again. false: the look
 * is over. `is_served`: the request has its memory. */
UMF_COLD bool umf_withheld_again(umf_withheld_part_t *part, bool is_served);

#endif
