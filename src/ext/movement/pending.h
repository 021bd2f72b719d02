/*
 * Pending: copies that were put on a queue of the caller. The spans that they use stay in use until
 * the queue has passed. A thread that needs such a span waits for it.
 */
#ifndef UMF_SRC_EXT_MOVEMENT_PENDING_H
#define UMF_SRC_EXT_MOVEMENT_PENDING_H

#include "ext/movement/memory_kind.h"

/* Marks the queue, whose work `mover` does. The spans of the operands stay in use; the operands
 * give them up. Where the provider cannot mark a queue, and if `waits`, it is waited for; a
 * captured queue never is. Returns the error of that. */
umf_result_t umf_pending_add(const umf_operand_t *mover, void *queue, umf_operand_t *operands,
                             size_t count, bool waits);

/* Ends completed copies; waits for those that use `span`. */
void umf_pending_settle(uint32_t span);
/* Waits for the work of a provider, which is about to be destroyed. */
void umf_pending_drop(umf_memory_provider_handle_t provider);

#endif
