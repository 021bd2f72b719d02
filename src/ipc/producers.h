/*
 * Producers: the processes that something was opened of, remembered so that asking whether one
 * still runs is one system call, and a descriptor of it is at hand.
 *
 * Thread-safe. Those that have ended are forgotten with the next new one; of the living, those used
 * last are kept.
 */
#ifndef UMF_SRC_IPC_PRODUCERS_H
#define UMF_SRC_IPC_PRODUCERS_H

#include "peer/process.h"

#define UMF_PRODUCERS 8 /* at most; each costs a descriptor */

typedef struct umf_producer_t umf_producer_t;

/* Zeroed: none. */
typedef struct umf_producers_t {
    umf_producer_t *last_used[UMF_PRODUCERS]; /* last first. Sync: the lock of producers.c */
} umf_producers_t;

/* As umf_process_meet. `out` gets what is known of the process, to be put; NULL if there is nothing
 * to know. */
umf_result_t umf_producers_check(umf_producers_t *producers, const umf_process_t *process,
                                 umf_producer_t **out);

/* No effect if it is remembered, or NULL. */
void umf_producers_remember(umf_producers_t *producers, umf_producer_t *producer);

/* No other thread may use them. */
void umf_producers_fini(umf_producers_t *producers);

/* -1 for NULL. */
int umf_producer_pidfd(const umf_producer_t *producer);
/* NULL is ignored. */
void umf_producer_put(umf_producer_t *producer);

#endif
