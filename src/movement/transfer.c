/* Copies along each route. */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "movement/move.h"
#include "movement/queue.h"

/* The largest piece that goes through the host at once. */
#define STAGE_SIZE ((size_t)1 << 20)

/* --- copies ------------------------------------------------------------------------------------
 */

static umf_result_t copy_by_cpu(umf_move_t *move, umf_piece_t piece) {
    umf_result_t result = umf_move_wait(move);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        memmove((void *)piece.to, (const void *)piece.from, piece.size);
    }
    return result;
}

static umf_result_t queue_copy(const umf_side_t *own, void *queue, umf_piece_t piece) {
    return umf_move_failed(own, own->ext->copy(own->self, queue, (void *)piece.to,
                                               (const void *)piece.from, piece.size));
}

static umf_result_t copy_by(umf_move_t *move, const umf_side_t *own, umf_piece_t piece) {
    umf_result_t result = umf_move_queue(move, own);
    return result == UMF_RESULT_SUCCESS ? queue_copy(own, move->queue, piece) : result;
}

static umf_result_t copy_now(const umf_side_t *own, void *queue, umf_piece_t piece) {
    umf_result_t result = queue_copy(own, queue, piece);
    umf_result_t waited = own->ext->queue_wait(own->self, queue);
    return umf_move_failed(own, result ? result : waited);
}

static umf_result_t copy_staged_through(umf_move_t *move, const umf_side_t *to,
                                        const umf_side_t *from, umf_piece_t piece,
                                        void *const queues[2], uintptr_t buffer, size_t room) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t at = 0; at < piece.size && result == UMF_RESULT_SUCCESS;) {
        size_t size = piece.size - at < room ? piece.size - at : room;
        result = copy_now(from, queues[1], (umf_piece_t){buffer, piece.from + at, size});
        if (result == UMF_RESULT_SUCCESS) {
            result = copy_now(to, queues[0], (umf_piece_t){piece.to + at, buffer, size});
        }
        at += size;
        move->done += result == UMF_RESULT_SUCCESS ? size : 0;
    }
    return result;
}

static umf_result_t copy_staged(umf_move_t *move, const umf_side_t *to, const umf_side_t *from,
                                umf_piece_t piece) {
    void *queues[2];
    size_t room = piece.size < STAGE_SIZE ? piece.size : STAGE_SIZE;
    umf_result_t result = umf_move_wait(move);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    void *buffer = umf_meta_alloc(room);
    if (!buffer) {
        UMF_LOG_ERROR("no %zu bytes of host memory between the two sides of a copy", room);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = umf_move_failed(to, umf_queue_take(to, &queues[0]));
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_move_failed(from, umf_queue_take(from, &queues[1]));
        if (result == UMF_RESULT_SUCCESS) {
            result = copy_staged_through(move, to, from, piece, queues, (uintptr_t)buffer, room);
            umf_queue_put(from, queues[1]);
        }
        umf_queue_put(to, queues[0]);
    }
    umf_meta_free(buffer, room);
    return result;
}

static UMF_COLD umf_result_t no_route(const umf_side_t *to, const umf_side_t *from) {
    const umf_side_t *side = umf_side_has_copy(to) ? from : to;
    UMF_LOG_ERROR("there is no way from %p to %p: the CPU does not reach the %s, and nobody has "
                  "operations to copy it and queues (umf/plugin.h)",
                  (void *)from->addr, (void *)to->addr, side->name);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static bool overlap(umf_piece_t piece) {
    return piece.to - piece.from < piece.size || piece.from - piece.to < piece.size;
}

static UMF_COLD umf_result_t overlaps(umf_piece_t piece) {
    UMF_LOG_ERROR("the destination %p and the source %p overlap in their %zu bytes, which the "
                  "provider of this memory cannot copy",
                  (void *)piece.to, (void *)piece.from, piece.size);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t copy_by_route(umf_move_t *move, const umf_side_t *to, const umf_side_t *from,
                                  umf_piece_t piece, umf_route_t route) {
    switch (route) {
    case UMF_ROUTE_CPU:
        return copy_by_cpu(move, piece);
    case UMF_ROUTE_TO:
        return copy_by(move, to, piece);
    case UMF_ROUTE_FROM:
        return copy_by(move, from, piece);
    case UMF_ROUTE_STAGED:
        return copy_staged(move, to, from, piece);
    default:
        return no_route(to, from);
    }
}

umf_result_t umf_move_copy(umf_move_t *move, const umf_side_t *to, const umf_side_t *from,
                           umf_piece_t piece) {
    umf_route_t route = umf_route_choose(to, from, move->params->queue != NULL);
    if (umf_unlikely(route != UMF_ROUTE_CPU && overlap(piece))) {
        return piece.to == piece.from ? UMF_RESULT_SUCCESS : overlaps(piece);
    }
    size_t done = move->done;
    umf_result_t result = copy_by_route(move, to, from, piece, route);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        move->done = done + piece.size;
    }
    return result;
}

/* --- rows ---- */

static umf_result_t rows_by(umf_move_t *move, const umf_side_t *own, const umf_copy_rows_t *rows) {
    if (!own->ext->copy_rows) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result = umf_move_queue(move, own);
    return result ? result
                  : own->ext->copy_rows(own->self, move->queue, rows->to, rows->to_pitch,
                                        rows->from, rows->from_pitch, rows->size, rows->count);
}

umf_result_t umf_move_rows(umf_move_t *move, const umf_side_t *to, const umf_side_t *from,
                           const umf_copy_rows_t *rows) {
    umf_route_t route = umf_route_choose(to, from, move->params->queue != NULL);
    umf_result_t result = UMF_RESULT_ERROR_NOT_SUPPORTED;
    if (route == UMF_ROUTE_TO || route == UMF_ROUTE_FROM) {
        result = rows_by(move, route == UMF_ROUTE_TO ? to : from, rows);
        move->done = result == UMF_RESULT_SUCCESS ? rows->size * rows->count : 0;
    }
    if (result != UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return umf_move_failed(route == UMF_ROUTE_TO ? to : from, result);
    }
    umf_piece_t piece = {.to = to->addr, .from = from->addr, .size = rows->size};
    result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < rows->count && result == UMF_RESULT_SUCCESS; i++) {
        result = umf_move_copy(move, to, from, piece);
        piece.to += rows->to_pitch;
        piece.from += rows->from_pitch;
    }
    return result;
}
