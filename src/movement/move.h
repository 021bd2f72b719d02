/*
 * Move: one call of umf/copy.h. It begins with the checks of the parameters, is told each piece of
 * work in order, and ends with what belongs behind the work.
 */
#ifndef UMF_SRC_MOVEMENT_MOVE_H
#define UMF_SRC_MOVEMENT_MOVE_H

#include "movement/route.h"

typedef struct umf_move_t {
    const umf_copy_params_t *params; /* never NULL */
    size_t done;                     /* bytes that are right */
    /* The queue in use, of `queue_side`; NULL: none is. */
    const umf_side_t *queue_side;
    void *queue;
    bool is_joined; /* the events were waited for */
} umf_move_t;

/* Checks the parameters. */
umf_result_t umf_move_begin(umf_move_t *move, const umf_copy_params_t *params);

/* A part of two sides. */
typedef struct umf_piece_t {
    uintptr_t to, from;
    size_t size;
} umf_piece_t;

/* One piece of work. The sides are checked and must live until the end. */
umf_result_t umf_move_copy(umf_move_t *move, const umf_side_t *to, const umf_side_t *from,
                           umf_piece_t piece);
/* The sides are the extents of the rows. */
umf_result_t umf_move_rows(umf_move_t *move, const umf_side_t *to, const umf_side_t *from,
                           const umf_copy_rows_t *rows);
umf_result_t umf_move_fill(umf_move_t *move, const umf_side_t *to, const void *pattern,
                           size_t pattern_size);

/* Waits for the work, or records the caller's event behind it. Returns `result`, or the error of
 * the work. */
umf_result_t umf_move_end(umf_move_t *move, umf_result_t result);

#endif
