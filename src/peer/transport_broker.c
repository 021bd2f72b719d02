/*
 * The producer's broker sends the descriptor. It needs no permission towards the producer, and
 * works wherever its socket can be reached, across namespaces.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "peer/broker_own.h"
#include "peer/process.h"
#include "system/os.h"

/* The pause between two tries doubles each time. */
#define ASK_PAUSE_MIN 1000000L
#define ASK_PAUSE_MAX 32000000L

/* --- the exchange --- */

/* An impostor has another user or another pid. One with the same user and pid could read our memory
 * through the kernel anyway. ENOKEY: the user's number is that of this process, and stands for all
 * users without one here. */
static int ask_check_peer(int connection, const umf_fd_ticket_t *ticket) {
    umf_process_t self;
    uint32_t uid, pid;
    int error = umf_socket_peer(connection, &uid, &pid);
    if (error != 0) {
        return error;
    }
    umf_process_self(&self);
    if (!umf_broker_admits(uid)) {
        return uid == umf_os_user() ? ENOKEY : EKEYREJECTED;
    }
    bool is_visible = ticket->pid_ns != 0 && ticket->pid_ns == self.pid_ns;
    return !is_visible || pid == ticket->pid ? 0 : EKEYREJECTED;
}

static int ask_send(int connection, const umf_fd_ticket_t *ticket) {
    umf_broker_request_t request = {
        .magic = UMF_BROKER_MAGIC,
        .version = UMF_BROKER_VERSION,
        .export_id = ticket->export_id,
        .dev = ticket->dev,
        .ino = ticket->ino,
    };
    memcpy(request.secret, ticket->secret, sizeof(request.secret));
    int error = umf_socket_send(connection, &request, sizeof(request), -1);
    /* EPIPE after a refusal: the connection is closed, but the answer can still be read. */
    return error == EPIPE ? 0 : error;
}

static int ask_receive(int connection, uint64_t deadline, umf_broker_reply_t *reply, size_t *got,
                       int *passed) {
    int error = EAGAIN;
    while (error == EAGAIN) {
        error = umf_socket_wait(connection, deadline);
        if (error == 0) {
            error = umf_socket_receive(connection, reply, sizeof(*reply), got, passed);
        }
    }
    if (error == ECONNRESET) {
        /* The error is reported first; data that was sent before it can still be read. */
        error = umf_socket_receive(connection, reply, sizeof(*reply), got, passed);
        error = error == EAGAIN ? ECONNRESET : error;
    }
    return error;
}

static int reply_read(const umf_broker_reply_t *reply, size_t got, int passed) {
    if (got == 0) {
        return ECONNRESET;
    }
    if (got != sizeof(*reply) || reply->magic != UMF_BROKER_MAGIC ||
        reply->version != UMF_BROKER_VERSION || reply->reserved != 0) {
        return EPROTO;
    }
    switch (reply->status) {
    case UMF_BROKER_GIVEN:
        return passed == -1 ? EPROTO : 0;
    case UMF_BROKER_DENIED:
        return EKEYREJECTED;
    case UMF_BROKER_GONE:
        return ESTALE;
    default:
        return EPROTO;
    }
}

int umf_broker_ask(int connection, const umf_fd_ticket_t *ticket, uint64_t deadline, int *fd) {
    umf_broker_reply_t reply;
    size_t got;
    int passed = -1;
    int error = ask_check_peer(connection, ticket);
    if (error == 0) {
        error = ask_send(connection, ticket);
    }
    if (error == 0) {
        error = ask_receive(connection, deadline, &reply, &got, &passed);
    }
    if (error == 0) {
        error = reply_read(&reply, got, passed);
    }
    if (error == 0) {
        *fd = passed;
    } else if (passed != -1) {
        umf_os_close(passed);
    }
    return error;
}

/* --- connecting --- */

static int broker_connect(const umf_socket_address_t *address, int *connection) {
    int made;
    int error = umf_socket_open(&made);
    if (error != 0) {
        return error;
    }
    error = umf_socket_connect(made, address);
    if (error == 0) {
        *connection = made;
        return 0;
    }
    umf_os_close(made);
    /* These values concern the socket's file, not the descriptor: they are translated. */
    return error == ENOENT                     ? ECONNREFUSED
           : error == EACCES || error == EPERM ? EKEYREJECTED
                                               : error;
}

static int broker_try(const umf_socket_address_t *address, const umf_fd_ticket_t *ticket,
                      uint64_t deadline, int *fd) {
    int connection;
    int error = broker_connect(address, &connection);
    if (error == 0) {
        error = umf_broker_ask(connection, ticket, deadline, fd);
        umf_os_close(connection);
    }
    return error;
}

/* When very many connections come at once, the broker closes the one that has waited longest, and
 * its queue may be full. So the request is tried again. */
static int broker_redeem(const umf_fd_ticket_t *ticket, int *fd) {
    umf_socket_address_t address;
    if (ticket->address_kind == UMF_BROKER_NOWHERE) {
        return ENOTCONN;
    }
    int error = umf_broker_address((umf_broker_address_kind_t)ticket->address_kind, ticket->broker,
                                   &address);
    if (error != 0) {
        return error;
    }
    uint64_t deadline = umf_socket_now() + (uint64_t)umf_broker_get_timeout();
    struct timespec pause = {.tv_nsec = ASK_PAUSE_MIN};
    while ((error = broker_try(&address, ticket, deadline, fd)) == EAGAIN || error == ECONNRESET) {
        if (umf_socket_now() >= deadline) {
            return ETIMEDOUT;
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec *= pause.tv_nsec < ASK_PAUSE_MAX ? 2 : 1;
    }
    return error;
}

const umf_transport_t umf_transport_broker = {
    .name = "broker",
    .what = "the producer's broker",
    .redeem = broker_redeem,
    .copies = true,
};
