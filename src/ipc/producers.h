/*
 * Producers: the processes whose memory was opened. Remembering one makes the question whether it
 * still runs one system call, and keeps a descriptor of it at hand.
 *
 * Thread-safe. Producers that have ended are dropped when a new one is added. Of those that run,
 * the last used ones are kept.
 */
#ifndef UMF_SRC_IPC_PRODUCERS_H
#define UMF_SRC_IPC_PRODUCERS_H

#include "peer/process.h"

#define UMF_PRODUCERS 8 /* a limit, because each costs a descriptor */

typedef struct umf_producer_t umf_producer_t;

/* Zeroed, it is empty. */
typedef struct umf_producers_t {
    umf_producer_t *last_used[UMF_PRODUCERS]; /* last used first. Sync: the lock of producers.c */
} umf_producers_t;

/* Checks a process as umf_process_meet. `*out` gets a reference to its entry, which the caller
 * puts; NULL if nothing needs to be known. */
umf_result_t umf_producers_check(umf_producers_t *producers, const umf_process_t *process,
                                 umf_producer_t **out);

/* Adds a producer to the list. No effect if it is there, or for NULL. */
void umf_producers_remember(umf_producers_t *producers, umf_producer_t *producer);

/* No other thread may use the list. */
void umf_producers_fini(umf_producers_t *producers);

/* The descriptor of the process, which the entry owns; none for NULL. */
umf_kept_fd_t umf_producer_file(const umf_producer_t *producer);
/* NULL is ignored. */
void umf_producer_put(umf_producer_t *producer);

#endif
