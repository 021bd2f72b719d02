/*
 * Move: one call of umf/copy.h. It begins with the checks of the parameters, receives each piece of
 * work in order, and ends with the events after the work.
 */
#ifndef UMF_SRC_EXT_MOVEMENT_MOVE_H
#define UMF_SRC_EXT_MOVEMENT_MOVE_H

#include "ext/movement/route.h"

typedef struct umf_move_t {
    const umf_copy_params_t *params; /* never NULL */
    size_t done;                     /* bytes that are right */
    /* Whose the caller's queue and events are; NULL: there are none. */
    const umf_operand_t *server;
    umf_operand_t helper; /* for params->provider */
    bool is_waited;       /* the caller's events, and if the host waited his queue, have passed */
    /* The queue in use, whose work `queue_operand` does; NULL: none is. */
    const umf_operand_t *queue_operand;
    void *queue;
    bool is_callers; /* it is params->queue */
} umf_move_t;

/* Checks the parameters. */
umf_result_t umf_move_begin(umf_move_t *move, const umf_copy_params_t *params);

/* Finds out whose the caller's queue and events are, and whether that provider has the operations
 * for them. Before any work. */
umf_result_t umf_move_serve(umf_move_t *move, const umf_operand_t *operands, size_t count);
/* There are neither queue nor events. */
bool umf_move_is_plain(const umf_move_t *move);

/* For the work itself. Makes sure that `queue` is one on which the operand's provider works. */
umf_result_t umf_move_queue(umf_move_t *move, const umf_operand_t *operand);
/* Is the caller's queue being captured? Then it cannot be waited for. Otherwise the call may
 * have waited for its work. */
bool umf_move_is_captured(const umf_move_t *move);
/* The host waits: for the work so far, and for work that the caller queued and named. */
umf_result_t umf_move_wait(umf_move_t *move);

/* One piece of work. The operands are checked and must live until the end. */
umf_result_t umf_move_copy(umf_move_t *move, const umf_operand_t *to, const umf_operand_t *from,
                           umf_piece_t piece);
/* The operands are the extents of the rows. */
umf_result_t umf_move_rows(umf_move_t *move, const umf_operand_t *to, const umf_operand_t *from,
                           const umf_copy_rows_t *rows);
umf_result_t umf_move_fill(umf_move_t *move, const umf_operand_t *to, const void *pattern,
                           size_t pattern_size);

/* Records the caller's event behind the work. Waits for the work, if it is not on a queue of the
 * caller, and ends the uses of the operands. Returns `result`, or the error of the work. */
umf_result_t umf_move_end(umf_move_t *move, umf_result_t result, umf_operand_t *operands,
                          size_t count);

#endif
