/* Queues of providers for copies: the caller's, or one of ours that is kept for the next copy. */
#ifndef UMF_SRC_MOVEMENT_QUEUE_H
#define UMF_SRC_MOVEMENT_QUEUE_H

#include "movement/place.h"

/* Takes a kept queue of the side's provider, or makes one. */
umf_result_t umf_queue_take(const umf_side_t *side, void **queue);
/* Keeps it, or destroys it. Its work is done. */
void umf_queue_put(const umf_side_t *side, void *queue);
/* Runs `work` with a queue of the side and waits for what it queued. Returns the first error. */
umf_result_t umf_queue_run(const umf_side_t *side,
                           umf_result_t (*work)(const umf_side_t *side, void *queue, void *arg),
                           void *arg);
/* Destroys the queues that a provider keeps. */
void umf_queue_drop(umf_memory_provider_handle_t provider);

#endif
