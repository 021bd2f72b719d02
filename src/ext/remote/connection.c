/* Connections of the peer's side: from the greeting to the welcome. */
#include <string.h>

#include "base/meta.h"
#include "ext/remote/own.h"
#include "system/os.h"

/* The owner may not notice by itself that an endpoint is closed. */
void umf_remote_connection_end(remote_connection_t *connection) {
    if (connection->state == REMOTE_READY) {
        remote_message_t bye = {.kind = REMOTE_BYE, .session = connection->session};
        umf_remote_send(&connection->endpoint, &bye, NULL, 0, NULL, NULL);
    }
    umf_list_remove(&connection->link);
    umf_remote_link_close(&connection->endpoint);
    umf_remote_worker_end(&connection->worker);
    umf_meta_free(connection, sizeof(*connection));
}

remote_connection_t *umf_remote_connection_find(umf_remote_handle_t remote,
                                                const remote_handle_bytes_t *handle) {
    for (umf_list_t *at = remote->connections.next; at != &remote->connections; at = at->next) {
        remote_connection_t *connection = UMF_CONTAINER_OF(at, remote_connection_t, link);
        if (connection->state != REMOTE_BROKEN &&
            memcmp(connection->owner, handle->owner, REMOTE_ID) == 0) {
            return connection;
        }
    }
    return NULL;
}

static void greet(remote_connection_t *connection) {
    connection->has_greeted = true;
    remote_message_t hello = {.kind = REMOTE_HELLO, .number = connection->number};
    bool is_local = connection->endpoint.is_local; /* else the owner needs the address */
    memcpy(hello.id, connection->owner, REMOTE_ID);
    memcpy(hello.nonce, connection->nonce, REMOTE_ID);
    umf_remote_send(&connection->endpoint, &hello, is_local ? NULL : connection->worker.address,
                    is_local ? 0 : connection->worker.address_length, NULL, NULL);
}

static void linked(umf_remote_handle_t remote, void *arg, umf_ucs_status_t status) {
    remote_connection_t *connection = arg;
    (void)remote;
    connection->is_linked = status == UMF_UCS_OK; /* else the link has failed */
}

/* The greeting waits until UCX has a way in both directions. Before, UCX would ask the owner for an
 * endpoint, and the owner's UCX queue the answer: an assertion of version 1.13 ends a process that
 * closes, or whose peer ends, while such an answer is queued. */
static void link_await(remote_connection_t *connection) {
    connection->progress = umf_remote_now();
    connection->is_linked = connection->endpoint.is_local;
    if (!connection->is_linked) {
        umf_remote_link_flush(&connection->endpoint, linked, connection);
    }
}

void umf_remote_connection_greet(remote_connection_t *connection) {
    if (connection->state == REMOTE_CONNECTING && connection->is_linked &&
        !connection->has_greeted) {
        greet(connection);
    }
}

/* false: UCX refuses the address, or a worker. */
static bool open_by_ucx(umf_remote_handle_t remote, remote_connection_t *connection) {
    if (!remote->context || !connection->address_length ||
        !umf_remote_worker_make(remote, &connection->worker)) {
        return false;
    }
    if (!umf_remote_link_open(&connection->worker, &connection->endpoint, connection->address)) {
        umf_remote_worker_end(&connection->worker);
        return false;
    }
    return true;
}

/* NULL: no memory, or no way to the owner. */
remote_connection_t *umf_remote_connection_make(umf_remote_handle_t remote,
                                                umf_remote_memory_handle_t memory) {
    remote_connection_t *made = umf_meta_alloc(sizeof(*made));
    if (!made) {
        return NULL;
    }
    memcpy(made->owner, memory->handle.owner, REMOTE_ID);
    memcpy(made->address, memory->address, sizeof(made->address));
    made->address_length = memory->handle.address_length;
    if (umf_os_random(&made->number, sizeof(made->number)) != 0 ||
        umf_os_random(made->nonce, REMOTE_ID) != 0 ||
        (!umf_remote_local_connect(remote, &made->endpoint, &memory->handle) &&
         !open_by_ucx(remote, made))) {
        umf_meta_free(made, sizeof(*made));
        return NULL;
    }
    made->state = REMOTE_CONNECTING;
    umf_list_add(&remote->connections, &made->link);
    link_await(made);
    umf_remote_connection_greet(made);
    return made;
}

/* An owner that does not take a process at its socket, as for lack of descriptors, may by UCX. */
bool umf_remote_connect_by_ucx(umf_remote_handle_t remote, remote_connection_t *connection) {
    if (!connection->endpoint.is_local || connection->state != REMOTE_CONNECTING) {
        return false;
    }
    umf_remote_local_close(&connection->endpoint);
    if (!open_by_ucx(remote, connection)) {
        return false;
    }
    connection->is_proven = false;
    connection->has_greeted = false;
    link_await(connection);
    return true;
}

static remote_connection_t *connection_of(umf_remote_handle_t remote,
                                          const remote_message_t *message,
                                          const remote_data_t *data) {
    for (umf_list_t *at = remote->connections.next; at != &remote->connections; at = at->next) {
        remote_connection_t *connection = UMF_CONTAINER_OF(at, remote_connection_t, link);
        if (connection->number == message->number && connection->state == REMOTE_CONNECTING &&
            umf_remote_is_by(&connection->endpoint, data)) {
            return connection;
        }
    }
    return NULL;
}

static bool prove_as(umf_remote_handle_t remote, const remote_connection_t *connection,
                     const remote_message_t *challenge, char side, unsigned char *proof) {
    unsigned char data[1 + 3 * REMOTE_ID + sizeof(challenge->session)];
    data[0] = (unsigned char)side;
    memcpy(data + 1, connection->nonce, REMOTE_ID);
    memcpy(data + 1 + REMOTE_ID, challenge->id, REMOTE_ID);
    memcpy(data + 1 + 2 * REMOTE_ID, connection->owner, REMOTE_ID);
    memcpy(data + 1 + 3 * REMOTE_ID, &challenge->session, sizeof(challenge->session));
    return umf_remote_prove(&remote->key, data, sizeof(data), proof);
}

static void challenged(umf_remote_handle_t remote, remote_connection_t *connection,
                       const remote_message_t *challenge) {
    remote_message_t reply = {
        .kind = REMOTE_PROVE, .number = connection->number, .session = challenge->session};
    unsigned char proof[UMF_REMOTE_PROOF];
    if (!remote->has_key || !prove_as(remote, connection, challenge, 'o', proof) ||
        !umf_remote_is_equal(proof, challenge->proof, UMF_REMOTE_PROOF) ||
        !prove_as(remote, connection, challenge, 'p', reply.proof)) {
        umf_remote_connection_break(remote, connection, REMOTE_DENIED);
        return;
    }
    connection->is_proven = true;
    umf_remote_send(&connection->endpoint, &reply, NULL, 0, NULL, NULL);
}

static void welcomed(umf_remote_handle_t remote, remote_connection_t *connection,
                     const remote_message_t *message) {
    if (message->answer != REMOTE_FINE || (remote->has_key && !connection->is_proven)) {
        umf_remote_connection_break(remote, connection,
                                    message->answer == REMOTE_STALE ? REMOTE_STALE : REMOTE_DENIED);
        return;
    }
    if (message->length == 0 || message->offset == 0 ||
        (connection->endpoint.is_local && !connection->endpoint.window)) {
        /* Parts of 0 bytes, or none at a time, would not end. */
        umf_remote_connection_break(remote, connection, REMOTE_FAILED);
        return;
    }
    connection->state = REMOTE_READY;
    connection->session = message->session;
    connection->limit = message->length < remote->limit ? (size_t)message->length : remote->limit;
    connection->parts_limit =
        message->offset < remote->requests_limit ? (size_t)message->offset : remote->requests_limit;
    connection->progress = umf_remote_now();
}

void umf_remote_connection_gets(umf_remote_handle_t remote, const remote_message_t *message,
                                const remote_data_t *data) {
    remote_connection_t *connection = connection_of(remote, message, data);
    if (connection && message->kind == REMOTE_CHALLENGE) {
        challenged(remote, connection, message);
    } else if (connection) {
        welcomed(remote, connection, message);
    }
}
