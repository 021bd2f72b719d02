#include "ext/movement/move.h"

#include "base/log.h"
#include "ext/movement/pending.h"
#include "ext/staging/queue.h"

static const umf_copy_params_t default_params = UMF_COPY_PARAMS_INIT;

static bool params_are_valid(const umf_copy_params_t *params) {
    return params->struct_size >= sizeof(*params) &&
           (params->wait_events || params->num_wait_events == 0) &&
           params->to_kind <= UMF_PLACE_SHARED && params->from_kind <= UMF_PLACE_SHARED;
}

umf_result_t umf_move_begin(umf_move_t *move, const umf_copy_params_t *params) {
    move->params = params ? params : &default_params;
    move->done = 0;
    move->server = move->queue_operand = NULL;
    move->queue = NULL;
    move->is_waited = move->is_callers = false;
    if (umf_likely(!params)) {
        return UMF_RESULT_SUCCESS;
    }
    if (params->struct_size >= sizeof(*params) && params->done) {
        *params->done = 0;
    }
    if (!params_are_valid(params)) {
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

/* --- whose queue and events they are -----------------------------------------------------------
 */

bool umf_move_is_plain(const umf_move_t *move) {
    const umf_copy_params_t *params = move->params;
    return !params->queue && !params->event && params->num_wait_events == 0;
}

/* An operation that the parameters need and the operand's provider lacks; NULL: none. */
static const char *missing_operation(const umf_copy_params_t *params,
                                     const umf_operand_t *operand) {
    const umf_memory_provider_ext_ops_t *ext = operand->ext;
    if (!umf_operand_has_copy(operand)) {
        return "copy";
    }
    if (params->num_wait_events && (!ext->queue_join || !ext->wait)) {
        return ext->wait ? "queue_join" : "wait";
    }
    return params->event && !ext->event_record ? "event_record" : NULL;
}

static const umf_operand_t *find_server(umf_move_t *move, const umf_operand_t *operands,
                                        size_t count) {
    const umf_operand_t *found = NULL;
    if (move->params->provider) {
        move->helper.name = "params->provider";
        umf_operand_of_provider(&move->helper, move->params->provider);
        return &move->helper;
    }
    /* Operands that the CPU can access only if there is no other. */
    for (size_t i = 0; i < count; i++) {
        bool is_better =
            !found || (umf_operand_is_of_host(found) && !umf_operand_is_of_host(&operands[i]));
        if (umf_operand_has_copy(&operands[i]) && is_better) {
            found = &operands[i];
        }
    }
    return found;
}

umf_result_t umf_move_serve(umf_move_t *move, const umf_operand_t *operands, size_t count) {
    if (umf_likely(umf_move_is_plain(move))) {
        return UMF_RESULT_SUCCESS;
    }
    move->server = find_server(move, operands, count);
    if (!move->server) {
        UMF_LOG_ERROR("params has a queue or events, but the memory is of no provider with queues: "
                      "name one in params.provider");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    const char *missing = missing_operation(move->params, move->server);
    if (missing) {
        UMF_LOG_ERROR("the provider of the %s has no operation %s (umf/plugin.h), which the queue "
                      "or the events in params need",
                      move->server->name, missing);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return UMF_RESULT_SUCCESS;
}

static bool is_same_mover(const umf_operand_t *a, const umf_operand_t *b) {
    return a == b || (a->ext == b->ext && a->self == b->self) || umf_operand_is_same_domain(a, b);
}

/* --- queues ------------------------------------------------------------------------------------
 */

/* Waits until the queue in use is done. A queue of ours is given back. */
static umf_result_t queue_finish(umf_move_t *move) {
    const umf_operand_t *operand = move->queue_operand;
    if (!operand) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result;
    if (move->is_callers) {
        umf_queue_drain(operand, move->queue, &result);
    } else {
        umf_queue_end(operand, move->queue, NULL, &result);
    }
    move->queue_operand = NULL;
    return result;
}

/* The host waits for the caller's queue and events. */
static umf_result_t wait_for_callers(umf_move_t *move) {
    const umf_copy_params_t *params = move->params;
    const umf_operand_t *server = move->server;
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (umf_likely(!server) || move->is_waited) {
        return result;
    }
    if (params->queue) {
        result = server->ext->queue_wait(server->self, params->queue);
    }
    if (params->num_wait_events && result == UMF_RESULT_SUCCESS) {
        result =
            server->ext->wait(server->self, NULL, 0, params->wait_events, params->num_wait_events);
    }
    move->is_waited = result == UMF_RESULT_SUCCESS;
    return umf_operand_failed(server, result);
}

bool umf_move_is_captured(const umf_move_t *move) {
    const umf_operand_t *server = move->server;
    const umf_memory_provider_ext_ops_t *ext = server->ext;
    void *mark = NULL;
    if (!ext->queue_mark || !ext->mark_wait ||
        ext->queue_mark(server->self, move->params->queue, &mark) != UMF_RESULT_SUCCESS) {
        return false;
    }
    if (mark) {
        ext->mark_wait(server->self, mark, true);
    }
    return !mark;
}

umf_result_t umf_move_wait(umf_move_t *move) {
    umf_result_t result = queue_finish(move);
    return result == UMF_RESULT_SUCCESS ? wait_for_callers(move) : result;
}

static umf_result_t queue_take_callers(umf_move_t *move, const umf_operand_t *operand) {
    const umf_copy_params_t *params = move->params;
    move->queue = params->queue;
    move->queue_operand = operand;
    move->is_callers = true;
    if (params->num_wait_events == 0 || move->is_waited) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = operand->ext->queue_join(operand->self, params->queue,
                                                   params->wait_events, params->num_wait_events);
    move->is_waited = result == UMF_RESULT_SUCCESS;
    return umf_operand_failed(operand, result);
}

umf_result_t umf_move_queue(umf_move_t *move, const umf_operand_t *operand) {
    if (move->queue_operand && is_same_mover(move->queue_operand, operand)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = queue_finish(move);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (move->params->queue && is_same_mover(move->server, operand)) {
        return queue_take_callers(move, operand);
    }
    result = wait_for_callers(move);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_operand_failed(operand, umf_queue_take(operand, &move->queue));
    }
    if (result == UMF_RESULT_SUCCESS) {
        move->queue_operand = operand;
        move->is_callers = false;
    }
    return result;
}

/* --- the end -----------------------------------------------------------------------------------
 */

/* Records the caller's event behind all work: on the queue in use, if that is the server's, else on
 * one of its queues when the work is done. */
static umf_result_t record(umf_move_t *move) {
    const umf_operand_t *server = move->server;
    void *event = move->params->event, *queue = move->params->queue;
    if (move->queue_operand && is_same_mover(move->queue_operand, server)) {
        return server->ext->event_record(server->self, event, move->queue);
    }
    umf_result_t result = umf_move_wait(move);
    if (queue) {
        return result ? result : server->ext->event_record(server->self, event, queue);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_queue_take(server, &queue);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = server->ext->event_record(server->self, event, queue);
        umf_queue_put(server, queue);
    }
    return result;
}

static bool has_pageable(const umf_operand_t *operands, size_t count) {
    size_t i = 0;
    while (i < count && operands[i].kind != UMF_PLACE_HOST) {
        i++;
    }
    return i < count;
}

/* On a queue of the caller the memory stays in use until the queue has passed. */
static umf_result_t leave_queue(umf_move_t *move, umf_operand_t *operands, size_t count) {
    if (!move->queue_operand || !move->is_callers) {
        return queue_finish(move);
    }
    return umf_operand_failed(move->queue_operand,
                              umf_pending_add(move->queue_operand, move->queue, operands, count,
                                              has_pageable(operands, count)));
}

umf_result_t umf_move_end(umf_move_t *move, umf_result_t result, umf_operand_t *operands,
                          size_t count) {
    if (umf_unlikely(move->params->event != NULL) && result == UMF_RESULT_SUCCESS) {
        result = umf_operand_failed(move->server, record(move));
    }
    umf_result_t left = leave_queue(move, operands, count);
    for (size_t i = 0; i < count; i++) {
        umf_operand_release(&operands[i]);
    }
    if (move->params->done) {
        *move->params->done = move->done;
    }
    return result ? result : left;
}
