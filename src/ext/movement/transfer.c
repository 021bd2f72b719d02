/* Copies along each route. */
#include "base/log.h"
#include "ext/movement/cpu.h"
#include "ext/movement/move.h"
#include "ext/movement/staged_copy.h"

/* --- copies ------------------------------------------------------------------------------------
 */

static umf_result_t copy_by_cpu(umf_move_t *move, umf_piece_t piece) {
    umf_result_t result = umf_move_wait(move);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        umf_cpu_copy((void *)piece.to, (const void *)piece.from, piece.size);
    }
    return result;
}

static umf_result_t queue_copy(const umf_operand_t *own, void *queue, umf_piece_t piece) {
    return umf_operand_failed(own, own->ext->copy(own->self, queue, (void *)piece.to,
                                                  (const void *)piece.from, piece.size));
}

static umf_result_t copy_by(umf_move_t *move, const umf_operand_t *own, umf_piece_t piece) {
    umf_result_t result = umf_move_queue(move, own);
    return result == UMF_RESULT_SUCCESS ? queue_copy(own, move->queue, piece) : result;
}

static UMF_COLD umf_result_t no_route(const umf_operand_t *to, const umf_operand_t *from) {
    const umf_operand_t *operand = umf_operand_has_copy(to) ? from : to;
    UMF_LOG_ERROR(
        "there is no way from %p to %p: the CPU cannot access the %s, and no provider has "
        "operations to copy it and queues (umf/plugin.h)",
        (void *)from->addr, (void *)to->addr, operand->name);
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

/* A queue that is being captured cannot be waited for, as stages do. */
static bool may_wait(const umf_move_t *move) {
    return !move->params->queue || !umf_move_is_captured(move);
}

static umf_copy_route_t route_of(const umf_move_t *move, const umf_operand_t *to,
                                 const umf_operand_t *from, size_t size) {
    bool has_queue = move->params->queue != NULL;
    umf_copy_route_t route = umf_route_of(to, from, size, has_queue);
    return route != UMF_COPY_ROUTE_STAGED || may_wait(move) ? route
                                                            : umf_route_choose(to, from, has_queue);
}

static umf_result_t copy_by_route(umf_move_t *move, const umf_operand_t *to,
                                  const umf_operand_t *from, umf_piece_t piece,
                                  umf_copy_route_t route) {
    switch (route) {
    case UMF_COPY_ROUTE_CPU:
        return copy_by_cpu(move, piece);
    case UMF_COPY_ROUTE_TO:
        return copy_by(move, to, piece);
    case UMF_COPY_ROUTE_FROM:
        return copy_by(move, from, piece);
    case UMF_COPY_ROUTE_STAGED:
        return umf_staged_copy(move, to, from, piece);
    default:
        return no_route(to, from);
    }
}

umf_result_t umf_move_copy(umf_move_t *move, const umf_operand_t *to, const umf_operand_t *from,
                           umf_piece_t piece) {
    umf_copy_route_t route = route_of(move, to, from, piece.size);
    if (umf_unlikely(route != UMF_COPY_ROUTE_CPU && overlap(piece))) {
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

static umf_result_t rows_by(umf_move_t *move, const umf_operand_t *own,
                            const umf_copy_rows_t *rows) {
    if (!own->ext->copy_rows) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result = umf_move_queue(move, own);
    return result ? result
                  : own->ext->copy_rows(own->self, move->queue, rows->to, rows->to_pitch,
                                        rows->from, rows->from_pitch, rows->size, rows->count);
}

umf_result_t umf_move_rows(umf_move_t *move, const umf_operand_t *to, const umf_operand_t *from,
                           const umf_copy_rows_t *rows) {
    umf_copy_route_t route = umf_route_choose(to, from, move->params->queue != NULL);
    umf_result_t result = UMF_RESULT_ERROR_NOT_SUPPORTED;
    if (route == UMF_COPY_ROUTE_TO || route == UMF_COPY_ROUTE_FROM) {
        result = rows_by(move, route == UMF_COPY_ROUTE_TO ? to : from, rows);
        move->done = result == UMF_RESULT_SUCCESS ? rows->size * rows->count : 0;
    }
    if (result != UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return umf_operand_failed(route == UMF_COPY_ROUTE_TO ? to : from, result);
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
