/* The peer's side, in the thread: parts of transfers, and deadlines. connection.c has the
 * connections to owners. */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/remote/own.h"
#include "system/os.h"

#define PART_MAX ((size_t)8 << 20)
#define CANCEL_MS 30 /* so long no data comes until a canceled get ends its connection */

/* --- parts ------------------------------------------------------------------------------------ */

static umf_result_t result_of(remote_answer_t answer) {
    switch (answer) {
    case REMOTE_FINE:
        return UMF_RESULT_SUCCESS;
    case REMOTE_STALE:
    case REMOTE_DENIED:
    case REMOTE_BEYOND:
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    case REMOTE_WITHOUT_UCX:
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    default:
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
}

/* The first failure of an operation is its result. */
static void op_fail(umf_remote_op_handle_t op, remote_answer_t answer, umf_result_t result) {
    if (!op->has_failed) {
        op->has_failed = true;
        op->answer = answer;
        op->result = result;
    }
}

static unsigned slot_bit(uint64_t number) {
    return 1u << number % REMOTE_SLOTS;
}

/* A number for a part, and the slot with it. 0: all slots are taken. */
static uint64_t number_take(umf_remote_handle_t remote, remote_connection_t *connection,
                            bool needs_slot) {
    uint64_t number = ++remote->next * REMOTE_SLOTS;
    if (!needs_slot || !connection->endpoint.is_local) {
        return number;
    }
    for (unsigned i = 0; i < REMOTE_SLOTS; i++) {
        if (!(connection->slots & slot_bit(number + i))) {
            connection->slots |= slot_bit(number + i);
            return number + i;
        }
    }
    return 0;
}

/* Its operation does not wait for it any more. */
static void part_leave(remote_part_t *part) {
    if (part->op) {
        part->op->parts--;
        part->op->renewals -= part->is_renewal;
        part->op = NULL;
    }
}

static void part_end(remote_part_t *part) {
    part_leave(part);
    part->connection->in_flight -= part->size;
    part->connection->parts--;
    part->connection->progress = umf_remote_now();
    if (!part->is_renewal) {
        part->connection->slots &= ~slot_bit(part->number);
    }
    umf_list_remove(&part->link);
    umf_meta_free(part, sizeof(*part));
}

static void part_answered(remote_part_t *part, remote_answer_t answer) {
    if (part->op && answer == REMOTE_STALE) {
        part->op->memory->must_renew = true;
    }
    if (part->op && answer != REMOTE_FINE) {
        op_fail(part->op, answer, result_of(answer));
    }
    part->is_answered = true;
    if (!part->is_active) {
        part_end(part);
    }
}

static void part_lost(remote_part_t *part) {
    if (part->op) {
        op_fail(part->op, REMOTE_GONE, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        part->op->is_late = part->connection->is_late;
    }
}

static remote_part_t *part_find(umf_remote_handle_t remote, const remote_message_t *message,
                                const remote_data_t *data) {
    for (umf_list_t *at = remote->parts.next; at != &remote->parts; at = at->next) {
        remote_part_t *part = UMF_CONTAINER_OF(at, remote_part_t, link);
        if (part->number == message->number && !part->is_answered &&
            part->connection->session == message->session &&
            umf_remote_is_by(&part->connection->endpoint, data)) {
            return part;
        }
    }
    return NULL;
}

static bool part_begin(umf_remote_handle_t remote, umf_remote_op_handle_t op, remote_kind_t kind,
                       size_t size) {
    umf_remote_memory_handle_t memory = op->memory;
    uint64_t number = number_take(remote, memory->connection, kind != REMOTE_RENEW);
    if (!number) {
        return false; /* the end of another part has room for it */
    }
    remote_part_t *part = umf_meta_alloc(sizeof(*part));
    if (!part) {
        memory->connection->slots &= ~(kind != REMOTE_RENEW ? slot_bit(number) : 0);
        op_fail(op, REMOTE_FINE, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        return false;
    }
    *part = (remote_part_t){.op = op,
                            .connection = memory->connection,
                            .number = number,
                            .offset = op->begun,
                            .size = size,
                            .is_renewal = kind == REMOTE_RENEW};
    if (part->connection->parts == 0) { /* a renewal has no bytes */
        part->connection->progress = umf_remote_now();
    }
    umf_list_add_tail(&remote->parts, &part->link);
    part->connection->in_flight += size;
    part->connection->parts++;
    op->parts++;
    op->begun += size;
    op->renewals += part->is_renewal;
    remote_message_t request = {.kind = (uint16_t)kind,
                                .number = part->number,
                                .session = part->connection->session,
                                .export_number = memory->export_number,
                                .generation = memory->generation,
                                .offset = op->offset + part->offset,
                                .length = size};
    memcpy(request.id, memory->secret, REMOTE_ID);
    umf_remote_send(&part->connection->endpoint, &request, NULL, 0, NULL, NULL);
    return true;
}

/* --- connections ------------------------------------------------------------------------------ */

void umf_remote_connection_break(umf_remote_handle_t remote, remote_connection_t *connection,
                                 remote_answer_t answer) {
    connection->state = REMOTE_BROKEN;
    connection->answer = answer;
    umf_remote_link_close(&connection->endpoint);
    for (umf_list_t *at = remote->parts.next, *next; at != &remote->parts; at = next) {
        remote_part_t *part = UMF_CONTAINER_OF(at, remote_part_t, link);
        next = at->next;
        if (part->connection != connection) {
            continue;
        }
        part_lost(part);
        part->is_answered = true;
        if (!part->is_active) { /* else with the worker */
            part_end(part);
        }
    }
}

static bool is_used(umf_remote_handle_t remote, const remote_connection_t *connection) {
    for (umf_list_t *at = remote->parts.next; at != &remote->parts; at = at->next) {
        if (UMF_CONTAINER_OF(at, remote_part_t, link)->connection == connection) {
            return true;
        }
    }
    return false;
}

/* --- messages --------------------------------------------------------------------------------- */

static void data_received(umf_remote_handle_t remote, void *arg, umf_ucs_status_t status) {
    remote_part_t *part = arg;
    (void)remote;
    if (status != UMF_UCS_OK) {
        part_lost(part);
    }
    part_end(part);
}

static umf_ucs_status_t take_data(remote_part_t *part, const remote_message_t *message,
                                  const remote_data_t *data) {
    if (!part->op || message->answer != REMOTE_FINE || data->length != part->size ||
        part->op->task != REMOTE_TASK_GET || part->is_renewal) {
        part_answered(part, message->answer ? (remote_answer_t)message->answer : REMOTE_FAILED);
        return UMF_UCS_OK;
    }
    part->is_answered = true;
    part->is_active = true;
    return umf_remote_receive(&part->connection->endpoint, data, part->op->data + part->offset,
                              data_received, part);
}

static void pushed(umf_remote_handle_t remote, void *arg, umf_ucs_status_t status) {
    remote_part_t *part = arg;
    (void)remote;
    part->is_active = false;
    if (status != UMF_UCS_OK && !part->is_answered) {
        part_lost(part);
        part->is_answered = true;
    }
    if (part->is_answered) {
        part_end(part);
    }
}

static void push(remote_part_t *part, const remote_message_t *message) {
    if (!part->op || message->answer != REMOTE_FINE || part->op->task != REMOTE_TASK_PUT ||
        part->is_active) {
        part_answered(part, message->answer ? (remote_answer_t)message->answer : REMOTE_FAILED);
        return;
    }
    remote_message_t sends = {.kind = REMOTE_PUSH,
                              .number = part->number,
                              .session = part->connection->session,
                              .length = part->size};
    part->is_active = true;
    umf_remote_send(&part->connection->endpoint, &sends, part->op->data + part->offset, part->size,
                    pushed, part);
}

static void renewed(remote_part_t *part, const remote_message_t *message) {
    if (part->op && message->answer == REMOTE_FINE && part->is_renewal) {
        umf_remote_memory_handle_t memory = part->op->memory;
        memory->generation = message->generation;
        memory->must_renew = false;
        atomic_store(&memory->size, (size_t)message->length);
    }
    part_answered(part, (remote_answer_t)message->answer);
}

umf_ucs_status_t umf_remote_peer_gets(umf_remote_handle_t remote, const remote_message_t *message,
                                      const remote_data_t *data) {
    if (message->kind == REMOTE_CHALLENGE || message->kind == REMOTE_WELCOME) {
        umf_remote_connection_gets(remote, message, data);
        return UMF_UCS_OK;
    }
    remote_part_t *part = part_find(remote, message, data);
    if (!part) {
        return UMF_UCS_OK;
    }
    if (message->kind == REMOTE_DATA) {
        return take_data(part, message, data);
    }
    if (message->kind == REMOTE_GO) {
        push(part, message);
    } else if (message->kind == REMOTE_DONE) {
        part_answered(part, (remote_answer_t)message->answer);
    } else if (message->kind == REMOTE_RENEWED) {
        renewed(part, message);
    }
    return UMF_UCS_OK;
}

/* --- operations ------------------------------------------------------------------------------- */

static void op_finish(umf_remote_op_handle_t op) {
    umf_remote_handle_t remote = op->memory->remote;
    if (!op->has_failed && op->begun < op->size) {
        op_fail(op, REMOTE_CANCELED, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    }
    umf_list_remove(&op->link);
    atomic_store_explicit(&op->is_done, true, memory_order_release);
    umf_event_count_advance(&remote->changes);
}

static void op_close(umf_remote_handle_t remote, umf_remote_op_handle_t op) {
    (void)remote;
    if (op->memory->connection) {
        op->memory->connection->memories--;
        op->memory->connection = NULL;
    }
    op_finish(op);
}

/* Why there is no connection. */
static remote_answer_t unreached(umf_remote_memory_handle_t memory) {
    const remote_handle_bytes_t *handle = &memory->handle;
    if (memory->remote->context && handle->address_length) {
        return REMOTE_GONE;
    }
    return handle->boot == umf_os_boot_id() ? REMOTE_UNREACHED : REMOTE_WITHOUT_UCX;
}

/* An owner that has ended, or that does not answer in time, is not asked again. */
static void op_broken(umf_remote_op_handle_t op) {
    const remote_connection_t *connection = op->memory->connection;
    if (connection) {
        op->is_late = connection->is_late;
        op_fail(op, connection->answer, result_of(connection->answer));
    } else {
        remote_answer_t answer = unreached(op->memory);
        op_fail(op, answer, result_of(answer));
    }
    if (op->parts == 0) {
        op_finish(op);
    }
}

static void op_connect(umf_remote_handle_t remote, umf_remote_memory_handle_t memory) {
    memory->connection = umf_remote_connection_find(remote, &memory->handle);
    if (!memory->connection && !remote->is_ending) {
        memory->connection = umf_remote_connection_make(remote, memory);
    }
    if (memory->connection) {
        memory->connection->memories++;
    }
}

static void op_parts(umf_remote_handle_t remote, umf_remote_op_handle_t op) {
    remote_connection_t *connection = op->memory->connection;
    remote_kind_t kind = op->task == REMOTE_TASK_GET ? REMOTE_GET : REMOTE_PUT;
    while (op->begun < op->size && !op->has_failed && !atomic_load(&op->is_canceled)) {
        size_t left = op->size - op->begun, size = left < PART_MAX ? left : PART_MAX;
        size = size < connection->limit ? size : connection->limit;
        size = connection->endpoint.is_local && size > REMOTE_SLOT ? REMOTE_SLOT : size;
        if (connection->in_flight + size > connection->limit ||
            connection->parts >= connection->parts_limit || !part_begin(remote, op, kind, size)) {
            return;
        }
    }
}

/* Data that has begun to arrive goes into the memory of the caller until UCX is done with it: when
 * no more of it comes, only the end of the connection ends that. */
static void active_end(umf_remote_handle_t remote, umf_remote_op_handle_t op, uint64_t now) {
    remote_connection_t *connection = op->memory->connection;
    op->canceled = op->canceled ? op->canceled : now;
    uint64_t last = connection->worker.active;
    last = last > op->canceled ? last : op->canceled;
    remote->is_hurried = true;
    if (now >= last + CANCEL_MS) {
        umf_remote_connection_break(remote, connection, REMOTE_GONE);
        umf_remote_worker_end(&connection->worker);
    }
}

/* A canceled get or open does not wait for the owner. A put does, which the owner may still write.
 * false: it goes on. */
static bool op_cancel(umf_remote_handle_t remote, umf_remote_op_handle_t op, uint64_t now) {
    bool is_over = op->task == REMOTE_TASK_GET && op->begun == op->size && op->parts == 0;
    if (!atomic_load(&op->is_canceled) || op->task == REMOTE_TASK_PUT || is_over) {
        return false;
    }
    op_fail(op, REMOTE_CANCELED, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    for (umf_list_t *at = remote->parts.next; at != &remote->parts; at = at->next) {
        remote_part_t *part = UMF_CONTAINER_OF(at, remote_part_t, link);
        if (part->op == op && !part->is_active) {
            part_leave(part);
        }
    }
    if (op->parts) {
        active_end(remote, op, now);
    }
    if (op->parts == 0) {
        op_finish(op);
    }
    return true;
}

static void op_advance(umf_remote_handle_t remote, umf_remote_op_handle_t op, uint64_t now) {
    umf_remote_memory_handle_t memory = op->memory;
    if (op->task == REMOTE_TASK_CLOSE) {
        op_close(remote, op);
        return;
    }
    if (op_cancel(remote, op, now)) {
        return;
    }
    if (op->task == REMOTE_TASK_OPEN && !memory->connection) {
        op_connect(remote, memory);
    }
    if (!memory->connection || memory->connection->state == REMOTE_BROKEN) {
        op_broken(op);
        return;
    }
    if (memory->connection->state != REMOTE_READY) {
        return;
    }
    if (memory->must_renew && op->begun == 0 && !op->has_failed) {
        if (op->renewals == 0) {
            part_begin(remote, op, REMOTE_RENEW, 0);
        }
        return;
    }
    op_parts(remote, op);
    if (op->parts == 0 &&
        (op->begun == op->size || op->has_failed || atomic_load(&op->is_canceled))) {
        op_finish(op);
    }
}

/* The owner's UCX asks for an endpoint when it is greeted, and UCX here queues the answer: version
 * 1.13 ends a process that closes meanwhile. */
static bool is_greeting(const remote_connection_t *connection) {
    return connection->state == REMOTE_CONNECTING && connection->has_greeted &&
           !connection->endpoint.is_local;
}

static void connection_advance(umf_remote_handle_t remote, remote_connection_t *connection,
                               uint64_t now) {
    bool waits = connection->state == REMOTE_CONNECTING || is_used(remote, connection);
    if (connection->state != REMOTE_BROKEN && connection->endpoint.has_failed) {
        if (umf_remote_connect_by_ucx(remote, connection)) {
            return;
        }
        UMF_LOG_INFO("a connection has ended: %s",
                     connection->endpoint.is_local
                         ? "the socket is closed"
                         : remote->ucx.ucs_status_string(connection->endpoint.status));
        umf_remote_connection_break(remote, connection, REMOTE_GONE);
    } else if (connection->state != REMOTE_BROKEN && waits &&
               now >= connection->progress + remote->deadline) {
        connection->is_late = true;
        umf_remote_connection_break(remote, connection, REMOTE_GONE);
    }
    umf_remote_connection_greet(connection);
    if (connection->state == REMOTE_BROKEN) { /* here, since UCX may call connection_break */
        umf_remote_worker_end(&connection->worker);
    }
    if (connection->memories == 0 && !is_used(remote, connection) && !is_greeting(connection)) {
        umf_remote_connection_end(connection);
    }
}

void umf_remote_peer_advance(umf_remote_handle_t remote, uint64_t now) {
    for (umf_list_t *at = remote->connections.next, *next; at != &remote->connections; at = next) {
        next = at->next;
        connection_advance(remote, UMF_CONTAINER_OF(at, remote_connection_t, link), now);
    }
    remote->is_hurried = false;
    for (umf_list_t *at = remote->ops.next, *next; at != &remote->ops; at = next) {
        next = at->next;
        op_advance(remote, UMF_CONTAINER_OF(at, struct umf_remote_op_t, link), now);
    }
}

bool umf_remote_peer_is_idle(umf_remote_handle_t remote) {
    return umf_list_is_empty(&remote->parts) && umf_list_is_empty(&remote->ops);
}

void umf_remote_peer_end(umf_remote_handle_t remote) {
    for (umf_list_t *at = remote->connections.next; at != &remote->connections; at = at->next) {
        umf_remote_connection_break(remote, UMF_CONTAINER_OF(at, remote_connection_t, link),
                                    REMOTE_GONE);
    }
}
