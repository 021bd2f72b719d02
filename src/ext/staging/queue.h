/* Queues of providers for copies: the caller's, or one of ours that is kept for the next copy. */
#ifndef UMF_SRC_EXT_STAGING_QUEUE_H
#define UMF_SRC_EXT_STAGING_QUEUE_H

#include "ext/staging/undone.h"

/* Waits until a queue is done, twice if the first wait fails. false: work on it may still go on, so
 * memory that it uses must stay. */
bool umf_queue_drain(const umf_operand_t *operand, void *queue, umf_result_t *result);
/* Takes a kept queue of the operand's provider, or makes one. Fails while earlier work on the
 * provider's queues cannot be waited for (undone.h). */
umf_result_t umf_queue_take(const umf_operand_t *operand, void **queue);
/* Keeps it, or destroys it. Its work is done. */
void umf_queue_put(const umf_operand_t *operand, void *queue);
/* Waits for its work and puts the queue. Where waiting fails the queue is undone (undone.h), and a
 * user of `memory` (NULL: none). */
void umf_queue_end(const umf_operand_t *operand, void *queue, umf_undone_memory_t *memory,
                   umf_result_t *result);
/* Runs `work` with a queue of the operand and waits for what it queued. Returns the first error.
 * `memory`: of the library, that the work uses (NULL: none). */
umf_result_t umf_queue_run(const umf_operand_t *operand,
                           umf_result_t (*work)(const umf_operand_t *operand, void *queue,
                                                void *arg),
                           void *arg, umf_undone_memory_t *memory);
/* Destroys the queues that a provider keeps. */
void umf_queue_drop(umf_memory_provider_handle_t provider);

#endif
