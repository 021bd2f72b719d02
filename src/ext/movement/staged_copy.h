/*
 * Copies of ranges through staging buffers: no provider can copy both operands; or one operand is
 * pageable memory of the host, and several threads with pinned memory are faster than the
 * provider's own copy.
 */
#ifndef UMF_SRC_EXT_MOVEMENT_STAGED_COPY_H
#define UMF_SRC_EXT_MOVEMENT_STAGED_COPY_H

#include "ext/movement/move.h"

/* Is it faster than the copy of `own`? */
bool umf_staged_copy_pays(const umf_operand_t *own, const umf_operand_t *other, size_t size);

/* The host waits for the work. `move->done` grows by the bytes from the start that are right. */
umf_result_t umf_staged_copy(umf_move_t *move, const umf_operand_t *to, const umf_operand_t *from,
                             umf_piece_t piece);

#endif
