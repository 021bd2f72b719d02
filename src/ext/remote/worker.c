/*
 * Workers of UCX, endpoints, and messages on them. Of the thread.
 *
 * A context has one worker for those who connect to it, and one for each connection that it makes
 * itself. UCX pairs the endpoints of two workers by counting them, so one attempt to connect that
 * only one side has seen leaves later ones without a pair: each side then receives through an
 * endpoint that it did not make, and its own request does not end when it closes its own endpoint.
 * A worker that connects once has no such past. Its end also ends what UCX did with memory,
 * whatever UCX thinks of it.
 */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/remote/own.h"

#define WORKERS_MAX (1u + REMOTE_CONNECTIONS_MAX)

/* A message on its way, or data that is received. */
typedef struct transit_t {
    umf_list_t link; /* of its worker */
    umf_remote_handle_t remote;
    remote_link_t *by; /* that sends it. NULL: it is closed, or none */
    remote_sent_t call;
    void *arg;
    remote_message_t message;
} transit_t;

/* --- workers ---------------------------------------------------------------------------------- */

static umf_ucs_status_t arrived(void *arg, const void *header, size_t header_length, void *data,
                                size_t length, const umf_ucx_message_t *about);

static umf_ucs_status_t address_take(remote_worker_t *worker) {
    const umf_ucx_t *ucx = &worker->remote->ucx;
    void *address = NULL;
    size_t length = 0;
    umf_ucs_status_t status = ucx->ucp_worker_get_address(worker->worker, &address, &length);
    if (status != UMF_UCS_OK) {
        return status;
    }
    if (length <= REMOTE_ADDRESS_MAX) {
        memcpy(worker->address, address, length);
        worker->address_length = length;
    } else {
        UMF_LOG_ERROR("the address has %zu bytes: name fewer devices", length);
        status = UMF_UCS_NO_RESOURCE;
    }
    ucx->ucp_worker_release_address(worker->worker, address);
    return status;
}

bool umf_remote_worker_make(umf_remote_handle_t remote, remote_worker_t *worker) {
    const umf_ucx_t *ucx = &remote->ucx;
    umf_ucx_worker_params_t params = {.mask = UMF_UCX_WORKER_THREAD_MODE,
                                      .thread_mode = UMF_UCX_THREAD_SINGLE};
    umf_ucx_handler_params_t handler = {
        .mask = UMF_UCX_HANDLER_ID | UMF_UCX_HANDLER_CALL | UMF_UCX_HANDLER_ARG,
        .id = 1,
        .call = arrived,
        .arg = worker,
    };
    *worker = (remote_worker_t){.remote = remote};
    umf_list_init(&worker->transits);
    umf_ucs_status_t status =
        remote->workers_count < WORKERS_MAX
            ? ucx->ucp_worker_create(remote->context, &params, &worker->worker)
            : UMF_UCS_NO_RESOURCE;
    if (status != UMF_UCS_OK) {
        UMF_LOG_ERROR("no worker of UCX, of which a context has %u at most: %s", WORKERS_MAX,
                      ucx->ucs_status_string(status));
        worker->worker = NULL;
        return false;
    }
    umf_list_add(&remote->workers, &worker->link);
    remote->workers_count++;
    status = ucx->ucp_worker_get_efd(worker->worker, &worker->efd);
    status = status == UMF_UCS_OK ? ucx->ucp_worker_set_am_recv_handler(worker->worker, &handler)
                                  : status;
    status = status == UMF_UCS_OK ? address_take(worker) : status;
    if (status != UMF_UCS_OK) {
        UMF_LOG_ERROR("UCX refuses a worker: %s", ucx->ucs_status_string(status));
        umf_remote_worker_end(worker);
    }
    return status == UMF_UCS_OK;
}

static void transit_end(transit_t *transit, umf_ucs_status_t status);

/* What UCX has not ended by then ends here: the memory is no longer in use. */
void umf_remote_worker_end(remote_worker_t *worker) {
    if (!worker->worker) {
        return;
    }
    const umf_ucx_t *ucx = &worker->remote->ucx;
    for (int i = 0; i < 1000 && ucx->ucp_worker_progress(worker->worker); i++) {
    }
    ucx->ucp_worker_destroy(worker->worker);
    worker->worker = NULL;
    umf_list_remove(&worker->link);
    worker->remote->workers_count--;
    while (!umf_list_is_empty(&worker->transits)) {
        transit_end(UMF_CONTAINER_OF(worker->transits.next, transit_t, link),
                    UMF_UCS_CONNECTION_RESET);
    }
}

void umf_remote_workers_end(umf_remote_handle_t remote) {
    while (!umf_list_is_empty(&remote->workers)) {
        umf_remote_worker_end(UMF_CONTAINER_OF(remote->workers.next, remote_worker_t, link));
    }
}

unsigned umf_remote_workers_progress(umf_remote_handle_t remote, int times) {
    unsigned all = 0;
    for (umf_list_t *at = remote->workers.next; at != &remote->workers; at = at->next) {
        remote_worker_t *worker = UMF_CONTAINER_OF(at, remote_worker_t, link);
        unsigned before = all, some = 1;
        for (int i = 0; i < times && some; i++) {
            some = remote->ucx.ucp_worker_progress(worker->worker);
            all += some;
        }
        worker->active = all == before ? worker->active : umf_remote_now();
    }
    return all;
}

unsigned umf_remote_workers_fill(umf_remote_handle_t remote, struct pollfd *polled,
                                 bool *may_sleep) {
    unsigned count = 0;
    for (umf_list_t *at = remote->workers.next; at != &remote->workers; at = at->next) {
        remote_worker_t *worker = UMF_CONTAINER_OF(at, remote_worker_t, link);
        *may_sleep = remote->ucx.ucp_worker_arm(worker->worker) == UMF_UCS_OK && *may_sleep;
        polled[count++] = (struct pollfd){.fd = worker->efd, .events = POLLIN};
    }
    return count;
}

/* --- endpoints -------------------------------------------------------------------------------- */

static void link_failed(void *arg, void *endpoint, umf_ucs_status_t status) {
    remote_link_t *link = arg;
    (void)endpoint;
    link->has_failed = true;
    link->status = status;
}

bool umf_remote_link_open(remote_worker_t *worker, remote_link_t *link, const void *address) {
    umf_remote_handle_t remote = worker->remote;
    umf_ucx_endpoint_params_t params = {
        .mask = UMF_UCX_ENDPOINT_ADDRESS | UMF_UCX_ENDPOINT_ERROR_MODE | UMF_UCX_ENDPOINT_FAILED,
        .address = address,
        .error_mode = UMF_UCX_ERROR_MODE_PEER,
        .failed = link_failed,
        .failed_arg = link,
    };
    *link = (remote_link_t){.remote = remote, .worker = worker};
    umf_ucs_status_t status = remote->ucx.ucp_ep_create(worker->worker, &params, &link->endpoint);
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
    umf_list_t *transits = &link->worker->transits;
    for (umf_list_t *at = transits->next; at != transits; at = at->next) {
        transit_t *transit = UMF_CONTAINER_OF(at, transit_t, link);
        transit->by = transit->by == link ? NULL : transit->by;
    }
    const umf_ucx_t *ucx = &link->remote->ucx;
    umf_ucx_request_t request = ucx->ucp_ep_close_nbx(link->endpoint, &params);
    if (umf_ucx_is_request(request)) {
        ucx->ucp_request_free(request);
    }
    link->endpoint = NULL;
}

/* --- messages --------------------------------------------------------------------------------- */

static void transit_end(transit_t *transit, umf_ucs_status_t status) {
    umf_list_remove(&transit->link);
    if (transit->by) {
        transit->by->queued--;
    }
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

static transit_t *transit_make(remote_worker_t *worker, remote_sent_t call, void *arg) {
    transit_t *transit = umf_meta_alloc(sizeof(*transit));
    if (!transit) {
        UMF_LOG_ERROR("no memory for a message");
        return NULL;
    }
    *transit = (transit_t){.remote = worker->remote, .call = call, .arg = arg};
    umf_list_add(&worker->transits, &transit->link);
    return transit;
}

void umf_remote_link_flush(remote_link_t *link, remote_sent_t flushed, void *arg) {
    remote_worker_t *worker = link->worker;
    transit_t *transit = transit_make(worker, flushed, arg);
    if (!transit) {
        flushed(link->remote, arg, UMF_UCS_NO_RESOURCE);
        return;
    }
    umf_ucx_request_params_t params = {.mask = UMF_UCX_REQUEST_CALL | UMF_UCX_REQUEST_ARG,
                                       .call.sent = transit_sent,
                                       .arg = transit};
    umf_ucx_request_t request = link->remote->ucx.ucp_ep_flush_nbx(link->endpoint, &params);
    if (!umf_ucx_is_request(request)) {
        transit_end(transit, umf_ucx_status(request));
    }
}

void umf_remote_send(remote_link_t *link, const remote_message_t *message, const void *data,
                     size_t length, remote_sent_t sent, void *arg) {
    umf_remote_handle_t remote = link->remote;
    if (link->is_local) {
        umf_remote_local_send(link, message, data, length, sent, arg);
        return;
    }
    link->has_failed = link->has_failed || link->queued >= REMOTE_QUEUE_MAX;
    bool is_open = link->endpoint && !link->has_failed;
    transit_t *transit = is_open ? transit_make(link->worker, sent, arg) : NULL;
    if (!transit) {
        if (sent) {
            sent(remote, arg, UMF_UCS_CONNECTION_RESET);
        }
        return;
    }
    transit->by = link;
    link->queued++;
    transit->message = *message;
    transit->message.magic = REMOTE_MAGIC;
    transit->message.version = REMOTE_VERSION;
    umf_ucx_request_params_t params = {
        .mask = UMF_UCX_REQUEST_CALL | UMF_UCX_REQUEST_ARG | UMF_UCX_REQUEST_FLAGS,
        /* The receiver of data checks the endpoint. */
        .flags = length && message->kind != REMOTE_HELLO ? UMF_UCX_SEND_REPLY : 0,
        .call.sent = transit_sent,
        .arg = transit,
    };
    umf_ucx_request_t request =
        remote->ucx.ucp_am_send_nbx(link->endpoint, 1, &transit->message, sizeof(*message),
                                    length ? data : NULL, length, &params);
    if (!umf_ucx_is_request(request)) {
        transit_end(transit, umf_ucx_status(request));
    }
}

/* Data that comes by another endpoint than that of the link could not be stopped by its end. */
umf_ucs_status_t umf_remote_receive(remote_link_t *link, const remote_data_t *from, void *to,
                                    remote_sent_t received, void *arg) {
    umf_remote_handle_t remote = link->remote;
    if (!from->is_rendezvous) {
        memcpy(to, from->data, from->length);
        received(remote, arg, UMF_UCS_OK);
        return UMF_UCS_OK;
    }
    bool is_paired = link->endpoint && from->reply == link->endpoint;
    link->has_failed = link->has_failed || !is_paired;
    transit_t *transit = is_paired ? transit_make(link->worker, received, arg) : NULL;
    if (!transit) {
        received(remote, arg, UMF_UCS_CONNECTION_RESET);
        return UMF_UCS_OK;
    }
    umf_ucx_request_params_t params = {.mask = UMF_UCX_REQUEST_CALL | UMF_UCX_REQUEST_ARG,
                                       .call.received = transit_received,
                                       .arg = transit};
    umf_ucx_request_t request = remote->ucx.ucp_am_recv_data_nbx(link->worker->worker, from->data,
                                                                 to, from->length, &params);
    if (!umf_ucx_is_request(request)) {
        transit_end(transit, umf_ucx_status(request));
    }
    return UMF_UCS_INPROGRESS; /* the description is UCX's own again */
}

static umf_ucs_status_t arrived(void *arg, const void *header, size_t header_length, void *data,
                                size_t length, const umf_ucx_message_t *about) {
    remote_worker_t *worker = arg;
    remote_message_t message;
    if (header_length != sizeof(message)) {
        return UMF_UCS_OK;
    }
    memcpy(&message, header, sizeof(message));
    remote_data_t from = {
        .data = data,
        .length = length,
        .is_rendezvous = about->attributes & UMF_UCX_MESSAGE_RENDEZVOUS,
        .worker = worker,
        .reply = about->attributes & UMF_UCX_MESSAGE_REPLY ? about->reply_endpoint : NULL,
    };
    return umf_remote_deliver(worker->remote, &message, &from);
}
