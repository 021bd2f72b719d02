/* The thread of a context, which alone calls UCX; endpoints, and messages on them. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/remote/own.h"
#include "system/os.h"

#define TICK 2000 /* ms: so often it checks whether the program has ended but for this thread */

uint64_t umf_remote_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void umf_remote_wake(umf_remote_handle_t remote) {
    if (umf_kept_fd_is_open(&remote->wakes[1])) {
        ssize_t written = write(remote->wakes[1].number, "", 1);
        (void)written; /* a full pipe wakes, too */
    }
}

/* --- endpoints -------------------------------------------------------------------------------- */

static void link_failed(void *arg, void *endpoint, umf_ucs_status_t status) {
    remote_link_t *link = arg;
    (void)endpoint;
    link->has_failed = true;
    link->status = status;
}

bool umf_remote_link_open(umf_remote_handle_t remote, remote_link_t *link, const void *address) {
    umf_ucx_endpoint_params_t params = {
        .mask = UMF_UCX_ENDPOINT_ADDRESS | UMF_UCX_ENDPOINT_ERROR_MODE | UMF_UCX_ENDPOINT_FAILED,
        .address = address,
        .error_mode = UMF_UCX_ERROR_MODE_PEER,
        .failed = link_failed,
        .failed_arg = link,
    };
    *link = (remote_link_t){.remote = remote};
    umf_ucs_status_t status = remote->ucx.ucp_ep_create(remote->worker, &params, &link->endpoint);
    if (status != UMF_UCS_OK) {
        UMF_LOG_ERROR("no connection to another process: %s",
                      remote->ucx.ucs_status_string(status));
        link->endpoint = NULL;
    }
    return status == UMF_UCS_OK;
}

void umf_remote_link_close(remote_link_t *link) {
    umf_ucx_request_params_t params = {.mask = UMF_UCX_REQUEST_FLAGS, .flags = UMF_UCX_CLOSE_FORCE};
    if (link->is_local) {
        umf_remote_local_close(link);
        return;
    }
    if (!link->endpoint) {
        return;
    }
    const umf_ucx_t *ucx = &link->remote->ucx;
    umf_ucx_request_t request = ucx->ucp_ep_close_nbx(link->endpoint, &params);
    if (umf_ucx_is_request(request)) {
        ucx->ucp_request_free(request);
    }
    link->endpoint = NULL;
}

/* --- messages --------------------------------------------------------------------------------- */

/* A message on its way, or data that is received. */
typedef struct transit_t {
    umf_remote_handle_t remote;
    remote_sent_t call;
    void *arg;
    remote_message_t message;
} transit_t;

static void transit_end(transit_t *transit, umf_ucs_status_t status) {
    if (transit->call) {
        transit->call(transit->remote, transit->arg, status);
    }
    umf_meta_free(transit, sizeof(*transit));
}

static void transit_sent(void *request, umf_ucs_status_t status, void *arg) {
    transit_t *transit = arg;
    transit->remote->ucx.ucp_request_free(request);
    transit_end(transit, status);
}

static void transit_received(void *request, umf_ucs_status_t status, size_t length, void *arg) {
    (void)length;
    transit_sent(request, status, arg);
}

static transit_t *transit_make(umf_remote_handle_t remote, remote_sent_t call, void *arg) {
    transit_t *transit = umf_meta_alloc(sizeof(*transit));
    if (!transit) {
        UMF_LOG_ERROR("no memory for a message");
        return NULL;
    }
    *transit = (transit_t){.remote = remote, .call = call, .arg = arg};
    return transit;
}

void umf_remote_send(remote_link_t *link, const remote_message_t *message, const void *data,
                     size_t length, remote_sent_t sent, void *arg) {
    umf_remote_handle_t remote = link->remote;
    if (link->is_local) {
        umf_remote_local_send(link, message, data, length, sent, arg);
        return;
    }
    transit_t *transit = link->endpoint ? transit_make(remote, sent, arg) : NULL;
    if (!transit) {
        if (sent) {
            sent(remote, arg, UMF_UCS_CONNECTION_RESET);
        }
        return;
    }
    transit->message = *message;
    transit->message.magic = REMOTE_MAGIC;
    transit->message.version = REMOTE_VERSION;
    umf_ucx_request_params_t params = {.mask = UMF_UCX_REQUEST_CALL | UMF_UCX_REQUEST_ARG,
                                       .call.sent = transit_sent,
                                       .arg = transit};
    umf_ucx_request_t request =
        remote->ucx.ucp_am_send_nbx(link->endpoint, 1, &transit->message, sizeof(*message),
                                    length ? data : NULL, length, &params);
    if (!umf_ucx_is_request(request)) {
        transit_end(transit, umf_ucx_status(request));
    }
}

umf_ucs_status_t umf_remote_receive(umf_remote_handle_t remote, const remote_data_t *from, void *to,
                                    remote_sent_t received, void *arg) {
    transit_t *transit = from->is_rendezvous ? transit_make(remote, received, arg) : NULL;
    if (!from->is_rendezvous) {
        memcpy(to, from->data, from->length);
        received(remote, arg, UMF_UCS_OK);
        return UMF_UCS_OK;
    }
    if (!transit) {
        received(remote, arg, UMF_UCS_CONNECTION_RESET);
        return UMF_UCS_OK;
    }
    umf_ucx_request_params_t params = {.mask = UMF_UCX_REQUEST_CALL | UMF_UCX_REQUEST_ARG,
                                       .call.received = transit_received,
                                       .arg = transit};
    umf_ucx_request_t request =
        remote->ucx.ucp_am_recv_data_nbx(remote->worker, from->data, to, from->length, &params);
    if (!umf_ucx_is_request(request)) {
        transit_end(transit, umf_ucx_status(request));
    }
    return UMF_UCS_INPROGRESS; /* the description is UCX's own again */
}

umf_ucs_status_t umf_remote_deliver(umf_remote_handle_t remote, const remote_message_t *message,
                                    const remote_data_t *data) {
    if (message->magic != REMOTE_MAGIC || message->version != REMOTE_VERSION) {
        return UMF_UCS_OK;
    }
    switch (message->kind) {
    case REMOTE_HELLO:
    case REMOTE_PROVE:
    case REMOTE_RENEW:
    case REMOTE_GET:
    case REMOTE_PUT:
    case REMOTE_PUSH:
    case REMOTE_BYE:
        return umf_remote_owner_gets(remote, message, data);
    default:
        return umf_remote_peer_gets(remote, message, data);
    }
}

static umf_ucs_status_t arrived(void *arg, const void *header, size_t header_length, void *data,
                                size_t length, const umf_ucx_message_t *about) {
    remote_message_t message;
    if (header_length != sizeof(message)) {
        return UMF_UCS_OK;
    }
    memcpy(&message, header, sizeof(message));
    remote_data_t from = {.data = data,
                          .length = length,
                          .is_rendezvous = about->attributes & UMF_UCX_MESSAGE_RENDEZVOUS};
    return umf_remote_deliver(arg, &message, &from);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void take_commands(umf_remote_handle_t remote) {
    umf_lock(&remote->lock);
    while (!umf_list_is_empty(&remote->commands)) {
        umf_list_t *command = remote->commands.next;
        umf_list_remove(command);
        umf_list_add_tail(&remote->ops, command);
    }
    umf_unlock(&remote->lock);
}

static bool is_idle(umf_remote_handle_t remote) {
    return umf_remote_owner_is_idle(remote) && umf_remote_peer_is_idle(remote);
}

/* How long the thread may sleep without an event. Without its pipe no call wakes it, and while the
 * listener is left out no peer. */
static int sleep_for(umf_remote_handle_t remote) {
    uint64_t step = remote->deadline / 8;
    bool is_woken = !remote->is_deaf && umf_remote_now() >= remote->accept_after;
    return is_idle(remote) && is_woken ? TICK : step < 1 ? 1 : step < 50 ? (int)step : 50;
}

/* The end of the pipe that the thread reads; -1 if the program has closed it. */
static int wake_read(umf_remote_handle_t remote) {
    if (!remote->is_deaf && !umf_kept_fd_is_open(&remote->wakes[0])) {
        umf_kept_fd_check(&remote->wakes[0], "the pipe that wakes the thread of a context");
        remote->is_deaf = true; /* once in the log */
    }
    return remote->is_deaf ? -1 : remote->wakes[0].number;
}

static void advance(umf_remote_handle_t remote) {
    uint64_t now = umf_remote_now();
    take_commands(remote);
    umf_remote_peer_advance(remote, now);
    umf_remote_owner_advance(remote, now);
}

static void wait_for_event(umf_remote_handle_t remote) {
    struct pollfd polled[2 + 1 + REMOTE_LOCALS_MAX] = {{.fd = remote->efd, .events = POLLIN},
                                                       {.fd = wake_read(remote), .events = POLLIN}};
    remote_link_t *links[1 + REMOTE_LOCALS_MAX];
    char bytes[64];
    unsigned locals = umf_remote_local_fill(remote, polled + 2, links);
    bool may_sleep = remote->ucx.ucp_worker_arm(remote->worker) == UMF_UCS_OK;
    if (poll(polled, 2 + locals, may_sleep ? sleep_for(remote) : 0) <= 0) {
        return;
    }
    if (polled[1].revents) {
        ssize_t got = wake_read(remote) != -1 ? read(polled[1].fd, bytes, sizeof(bytes)) : 0;
        (void)got; /* it does not block, and may have been read */
    }
    umf_remote_local_serve(remote, polled + 2, links, locals);
}

/* Closes all, and waits for what UCX still does with memory: at most the deadline. */
static void drain(umf_remote_handle_t remote) {
    uint64_t end = umf_remote_now() + remote->deadline;
    umf_remote_peer_end(remote);
    umf_remote_owner_end(remote);
    while (!is_idle(remote) && umf_remote_now() < end) {
        if (!remote->ucx.ucp_worker_progress(remote->worker)) {
            advance(remote);
        }
    }
    for (int i = 0; i < 1000 && remote->ucx.ucp_worker_progress(remote->worker); i++) {
    }
}

static void *run(void *arg) {
    umf_remote_handle_t remote = arg;
    umf_os_own_thread_begins();
    while (!atomic_load_explicit(&remote->stops, memory_order_acquire) &&
           !umf_os_is_last_thread()) {
        for (int i = 0; i < 64 && remote->ucx.ucp_worker_progress(remote->worker); i++) {
        }
        advance(remote);
        wait_for_event(remote);
    }
    umf_lock(&remote->lock);
    remote->is_over = true;
    umf_unlock(&remote->lock);
    take_commands(remote);
    drain(remote);
    umf_event_count_advance(&remote->changes);
    umf_os_own_thread_ends();
    return NULL;
}

int umf_remote_start(umf_remote_handle_t remote) {
    umf_ucx_handler_params_t handler = {
        .mask = UMF_UCX_HANDLER_ID | UMF_UCX_HANDLER_CALL | UMF_UCX_HANDLER_ARG,
        .id = 1,
        .call = arrived,
        .arg = remote,
    };
    if (remote->ucx.ucp_worker_set_am_recv_handler(remote->worker, &handler) != UMF_UCS_OK) {
        return EINVAL;
    }
    sigset_t all, before;
    sigfillset(&all); /* signals belong to the program */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&remote->thread, NULL, run, remote);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void umf_remote_stop(umf_remote_handle_t remote) {
    atomic_store_explicit(&remote->stops, true, memory_order_release);
    umf_remote_wake(remote);
    pthread_join(remote->thread, NULL);
}
