#include "movement/move.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "movement/queue.h"

static const umf_copy_params_t default_params = UMF_COPY_PARAMS_INIT;

/* The largest piece that goes through the host at once. */
#define STAGE_SIZE ((size_t)1 << 20)

umf_result_t umf_move_begin(umf_move_t *move, const umf_copy_params_t *params) {
    *move = (umf_move_t){.params = params ? params : &default_params};
    if (umf_likely(!params)) {
        return UMF_RESULT_SUCCESS;
    }
    bool is_valid = params->struct_size >= sizeof(*params) &&
                    (params->wait_events || params->num_wait_events == 0) &&
                    params->to_kind <= UMF_PLACE_SHARED && params->from_kind <= UMF_PLACE_SHARED;
    if (!is_valid) {
        UMF_LOG_ERROR("params is not valid: its struct_size is too small, wait_events is NULL but "
                      "not num_wait_events 0, or to_kind or from_kind is none of "
                      "umf_place_kind_t");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (params->provider && !umf_provider_check(params->provider, "umfCopy")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* --- queues and events -------------------------------------------------------------------------
 */

static UMF_COLD umf_result_t lacks(const umf_side_t *side, const char *operation) {
    UMF_LOG_ERROR("the provider of the %s %p has no operation %s (umf/plugin.h), which the queue "
                  "or the events in params need",
                  side->name, (void *)side->addr, operation);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t failed(const umf_side_t *side, umf_result_t result) {
    if (result != UMF_RESULT_SUCCESS && side->provider) {
        umf_provider_failed(side->provider);
    }
    return result;
}

/* Waits until the queue in use is done. A queue of ours is given back. */
static umf_result_t queue_finish(umf_move_t *move) {
    const umf_side_t *side = move->queue_side;
    if (!side) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = failed(side, side->ext->queue_wait(side->self, move->queue));
    if (!move->params->queue) {
        umf_queue_put(side, move->queue);
    }
    move->queue_side = NULL;
    move->queue = NULL;
    return result;
}

/* Work that is queued on `side` from now on waits for the caller's events. */
static umf_result_t join(umf_move_t *move, const umf_side_t *side) {
    const umf_copy_params_t *params = move->params;
    if (umf_likely(params->num_wait_events == 0) || move->is_joined) {
        return UMF_RESULT_SUCCESS;
    }
    if (!side->ext->queue_join) {
        return lacks(side, "queue_join");
    }
    return failed(side, side->ext->queue_join(side->self, move->queue, params->wait_events,
                                              params->num_wait_events));
}

static bool is_same_mover(const umf_side_t *a, const umf_side_t *b) {
    return a == b || (a->ext == b->ext && a->self == b->self) || umf_side_is_same_domain(a, b);
}

/* Makes sure that a queue of the side's provider is in use. Work of another provider is done
 * first. */
static umf_result_t queue_use(umf_move_t *move, const umf_side_t *side) {
    if (move->queue_side && (move->params->queue || is_same_mover(move->queue_side, side))) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = queue_finish(move);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    move->queue = move->params->queue;
    if (!move->queue) {
        result = failed(side, umf_queue_take(side, &move->queue));
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    move->queue_side = side;
    result = join(move, side);
    move->is_joined |= result == UMF_RESULT_SUCCESS && move->params->queue;
    return result;
}

/* Before the CPU works, on data of two sides: what the caller queued and named has passed. */
static umf_result_t wait_for_callers(umf_move_t *move, const umf_side_t *to,
                                     const umf_side_t *from) {
    const umf_copy_params_t *params = move->params;
    umf_result_t result = queue_finish(move);
    if (umf_likely(!params->queue && params->num_wait_events == 0) ||
        result != UMF_RESULT_SUCCESS || move->is_joined) {
        return result;
    }
    const umf_side_t *side = to->ext->queue_wait ? to : from;
    bool has_events = params->num_wait_events > 0;
    if ((params->queue && !side->ext->queue_wait) || (has_events && !side->ext->wait)) {
        return lacks(side, has_events && !side->ext->wait ? "wait" : "queue_wait");
    }
    if (params->queue) {
        result = side->ext->queue_wait(side->self, params->queue);
    }
    if (has_events && result == UMF_RESULT_SUCCESS) {
        result = side->ext->wait(side->self, NULL, 0, params->wait_events, params->num_wait_events);
    }
    failed(side, result);
    move->is_joined = result == UMF_RESULT_SUCCESS && !params->queue;
    return result;
}

/* --- copies ------------------------------------------------------------------------------------
 */

static umf_result_t copy_by_cpu(umf_move_t *move, const umf_side_t *to, const umf_side_t *from,
                                umf_piece_t piece) {
    umf_result_t result = wait_for_callers(move, to, from);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        memmove((void *)piece.to, (const void *)piece.from, piece.size);
    }
    return result;
}

static umf_result_t queue_copy(const umf_side_t *own, void *queue, umf_piece_t piece) {
    return failed(own, own->ext->copy(own->self, queue, (void *)piece.to, (const void *)piece.from,
                                      piece.size));
}

static umf_result_t copy_by(umf_move_t *move, const umf_side_t *own, umf_piece_t piece) {
    umf_result_t result = queue_use(move, own);
    return result == UMF_RESULT_SUCCESS ? queue_copy(own, move->queue, piece) : result;
}

static umf_result_t copy_now(const umf_side_t *own, void *queue, umf_piece_t piece) {
    umf_result_t result = queue_copy(own, queue, piece);
    umf_result_t waited = own->ext->queue_wait(own->self, queue);
    return failed(own, result ? result : waited);
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
    umf_result_t result = wait_for_callers(move, from, to);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    void *buffer = umf_meta_alloc(room);
    if (!buffer) {
        UMF_LOG_ERROR("no %zu bytes of host memory between the two sides of a copy", room);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = failed(to, umf_queue_take(to, &queues[0]));
    if (result == UMF_RESULT_SUCCESS) {
        result = failed(from, umf_queue_take(from, &queues[1]));
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
        return copy_by_cpu(move, to, from, piece);
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
    umf_result_t result = queue_use(move, own);
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
        return failed(route == UMF_ROUTE_TO ? to : from, result);
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

/* --- fills -------------------------------------------------------------------------------------
 */

static void fill_by_hand(char *to, size_t size, const void *pattern, size_t pattern_size) {
    if (pattern_size == 1) {
        memset(to, *(const unsigned char *)pattern, size);
        return;
    }
    size_t have = pattern_size < size ? pattern_size : size;
    memcpy(to, pattern, have);
    while (have < size) { /* what is there doubles */
        size_t more = have < size - have ? have : size - have;
        memcpy(to + have, to, more);
        have += more;
    }
}

/* Is the pattern one byte again and again? */
static bool is_one_byte(const void *pattern, size_t pattern_size) {
    const char *bytes = pattern;
    return pattern_size == 1 || memcmp(bytes, bytes + 1, pattern_size - 1) == 0;
}

/* A pattern that the provider does not offer: some of it is made on the host and copied, again and
 * again. */
static umf_result_t fill_by_copies(umf_move_t *move, const umf_side_t *to, const void *pattern,
                                   size_t pattern_size) {
    size_t whole = STAGE_SIZE / pattern_size * pattern_size;
    size_t room = whole ? whole : pattern_size;
    room = to->size < room ? to->size : room;
    void *buffer = umf_meta_alloc(room);
    if (!buffer) {
        UMF_LOG_ERROR("no %zu bytes of host memory for a pattern", room);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    fill_by_hand(buffer, room, pattern, pattern_size);
    umf_result_t result = queue_use(move, to);
    for (size_t at = 0; at < to->size && result == UMF_RESULT_SUCCESS; at += room) {
        size_t size = to->size - at < room ? to->size - at : room;
        result = to->ext->copy(to->self, move->queue, (void *)(to->addr + at), buffer, size);
    }
    if (move->queue_side) { /* the buffer must live until then */
        umf_result_t waited = to->ext->queue_wait(to->self, move->queue);
        result = result ? result : waited;
    }
    umf_meta_free(buffer, room);
    return failed(to, result);
}

static umf_result_t fill_by_provider(umf_move_t *move, const umf_side_t *to, const void *pattern,
                                     size_t pattern_size) {
    if (!to->ext->fill || !is_one_byte(pattern, pattern_size)) {
        return fill_by_copies(move, to, pattern, pattern_size);
    }
    umf_result_t result = queue_use(move, to);
    if (result == UMF_RESULT_SUCCESS) {
        result = failed(to, to->ext->fill(to->self, move->queue, (void *)to->addr,
                                          *(const uint8_t *)pattern, to->size));
    }
    return result;
}

static UMF_COLD umf_result_t no_way_to_fill(const umf_side_t *to) {
    UMF_LOG_ERROR("%p cannot be filled: the CPU does not reach it, and its provider has no "
                  "operations to copy and queues (umf/plugin.h)",
                  (void *)to->addr);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

umf_result_t umf_move_fill(umf_move_t *move, const umf_side_t *to, const void *pattern,
                           size_t pattern_size) {
    bool has_copy = umf_side_has_copy(to);
    bool is_for_cpu = umf_side_is_of_host(to) && !(move->params->queue && has_copy);
    if (!is_for_cpu && !has_copy && to->kind == UMF_PLACE_DEVICE) {
        return no_way_to_fill(to);
    }
    umf_result_t result;
    if (is_for_cpu || !has_copy) {
        result = wait_for_callers(move, to, to);
        if (result == UMF_RESULT_SUCCESS) {
            fill_by_hand((char *)to->addr, to->size, pattern, pattern_size);
        }
    } else {
        result = fill_by_provider(move, to, pattern, pattern_size);
    }
    move->done += result == UMF_RESULT_SUCCESS ? to->size : 0;
    return result;
}

/* --- the end -----------------------------------------------------------------------------------
 */

/* Records the caller's event behind the work. Where the CPU worked on no queue, there is no place
 * for it. */
static umf_result_t record(umf_move_t *move) {
    const umf_side_t *side = move->queue_side;
    if (!side) {
        UMF_LOG_ERROR("the event cannot be recorded: the CPU did the work, and no provider with "
                      "queues takes part in it");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return side->ext->event_record
               ? failed(side, side->ext->event_record(side->self, move->params->event, move->queue))
               : lacks(side, "event_record");
}

umf_result_t umf_move_end(umf_move_t *move, umf_result_t result) {
    if (move->params->event && result == UMF_RESULT_SUCCESS) {
        result = record(move);
    }
    if (move->queue_side && !move->params->queue) {
        umf_result_t waited = queue_finish(move);
        result = result ? result : waited;
    }
    if (move->params->done) {
        *move->params->done = move->done;
    }
    return result;
}
