/* The owner's side: sessions of peers, and requests, of which each is checked. publish.c has the
 * published ranges. */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/remote/own.h"
#include "system/checksum.h"
#include "system/os.h"

#define SESSIONS_MAX 256 /* at a time */
#define UNPROVEN_MAX 16  /* of these, without a proof of the key */
#define PROOF_MS 5000    /* so long a peer may take for it */
#define SLOW_MAX 16      /* deadlines that a transfer may take if others of its session end */

/* --- transfers -------------------------------------------------------------------------------- */

static void transfer_end(umf_remote_handle_t remote, remote_transfer_t *transfer) {
    if (transfer->session) {
        transfer->session->in_flight -= transfer->size;
        transfer->session->progress = umf_remote_now();
        transfer->session->transfers--;
    }
    umf_list_remove(&transfer->link);
    umf_use_end(transfer->span);
    umf_lock(&remote->lock);
    transfer->published->under_way--;
    umf_unlock(&remote->lock);
    umf_event_count_advance(&remote->changes);
    umf_meta_free(transfer, sizeof(*transfer));
}

/* The export that a request names. NULL: `answer` says why not. */
static umf_remote_export_handle_t export_find_locked(umf_remote_handle_t remote,
                                                     const remote_message_t *request,
                                                     remote_answer_t *answer) {
    umf_assert_locked(&remote->lock);
    *answer = REMOTE_STALE;
    for (umf_list_t *at = remote->exports.next; at != &remote->exports; at = at->next) {
        umf_remote_export_handle_t published =
            UMF_CONTAINER_OF(at, struct umf_remote_export_t, link);
        if (published->number != request->export_number || published->is_closing) {
            continue;
        }
        if (!umf_remote_is_equal(published->secret, request->id, REMOTE_ID)) {
            *answer = REMOTE_DENIED;
            return NULL;
        }
        *answer = REMOTE_FINE;
        return published;
    }
    return NULL;
}

static remote_answer_t range_check(umf_remote_export_handle_t published,
                                   const remote_message_t *request, unsigned right) {
    if (!(published->rights & right)) {
        return REMOTE_DENIED;
    }
    if (request->generation != published->generation) {
        return REMOTE_STALE;
    }
    return request->offset > published->size || request->length > published->size - request->offset
               ? REMOTE_BEYOND
               : REMOTE_FINE;
}

/* The span of an export that still has its memory, in use until umf_use_end. NULL: it is freed, or
 * away, or about to be. */
static umf_span_t *span_use(umf_remote_export_handle_t published) {
    umf_span_t *span = umf_remote_span_use(published);
    if (span && umf_remote_physical_of(span, (uintptr_t)published->base) != published->physical) {
        umf_use_end(umf_span_index(span));
        span = NULL;
    }
    return span;
}

/* Begins a transfer: the memory is in use, has the generation that the peer names, and stays. */
static remote_answer_t transfer_begin(umf_remote_handle_t remote, remote_session_t *session,
                                      const remote_message_t *request, unsigned right,
                                      remote_transfer_t **out) {
    remote_answer_t answer;
    if (request->length > remote->limit - session->in_flight ||
        session->transfers >= remote->requests_limit) {
        return REMOTE_BUSY;
    }
    umf_lock(&remote->lock);
    umf_remote_export_handle_t published = export_find_locked(remote, request, &answer);
    answer = published ? range_check(published, request, right) : answer;
    if (answer == REMOTE_FINE) {
        published->under_way++;
    }
    umf_unlock(&remote->lock);
    if (answer != REMOTE_FINE) {
        return answer;
    }
    umf_span_t *span = span_use(published);
    bool is_there = span != NULL;
    remote_transfer_t *made = is_there ? umf_meta_alloc(sizeof(*made)) : NULL;
    if (!made) {
        if (span) {
            umf_use_end(umf_span_index(span));
        }
        umf_lock(&remote->lock);
        published->under_way--;
        umf_unlock(&remote->lock);
        umf_event_count_advance(&remote->changes);
        return is_there ? REMOTE_BUSY : REMOTE_STALE;
    }
    *made = (remote_transfer_t){.session = session,
                                .published = published,
                                .span = umf_span_index(span),
                                .number = request->number,
                                .base = published->base + request->offset,
                                .size = request->length,
                                .deadline = umf_remote_now() + remote->deadline};
    session->in_flight += made->size;
    session->transfers++;
    umf_list_add(&remote->transfers, &made->link);
    *out = made;
    return REMOTE_FINE;
}

static remote_message_t reply_to(const remote_message_t *request, remote_kind_t kind,
                                 remote_answer_t answer) {
    return (remote_message_t){.kind = (uint16_t)kind,
                              .number = request->number,
                              .session = request->session,
                              .length = request->length,
                              .answer = (uint32_t)answer};
}

static void answer_with(remote_session_t *session, const remote_message_t *reply) {
    umf_remote_send(&session->endpoint, reply, NULL, 0, NULL, NULL);
}

static void data_sent(umf_remote_handle_t remote, void *arg, umf_ucs_status_t status) {
    (void)status; /* the peer finds out by itself */
    transfer_end(remote, arg);
}

static void serve_get(umf_remote_handle_t remote, remote_session_t *session,
                      const remote_message_t *request) {
    remote_transfer_t *transfer = NULL;
    remote_message_t reply = reply_to(
        request, REMOTE_DATA, transfer_begin(remote, session, request, UMF_REMOTE_GET, &transfer));
    if (!transfer) {
        answer_with(session, &reply);
        return;
    }
    transfer->is_active = true;
    umf_remote_send(&session->endpoint, &reply, transfer->base, transfer->size, data_sent,
                    transfer);
}

/* A peer announces data; it may send them when the place is reserved. */
static void serve_put(umf_remote_handle_t remote, remote_session_t *session,
                      const remote_message_t *request) {
    remote_transfer_t *transfer = NULL;
    remote_answer_t answer = transfer_begin(remote, session, request, UMF_REMOTE_PUT, &transfer);
    remote_message_t reply = reply_to(request, REMOTE_GO, answer);
    answer_with(session, &reply);
}

static remote_transfer_t *transfer_find(umf_remote_handle_t remote, const remote_session_t *session,
                                        uint64_t number) {
    for (umf_list_t *at = remote->transfers.next; at != &remote->transfers; at = at->next) {
        remote_transfer_t *transfer = UMF_CONTAINER_OF(at, remote_transfer_t, link);
        if (transfer->session == session && transfer->number == number && !transfer->is_active) {
            return transfer;
        }
    }
    return NULL;
}

/* The answer comes last: a peer that has it, and tells the owner, finds the transfer ended. */
static void push_received(umf_remote_handle_t remote, void *arg, umf_ucs_status_t status) {
    remote_transfer_t *transfer = arg;
    remote_session_t *session = transfer->session;
    remote_message_t reply = {.kind = REMOTE_DONE,
                              .number = transfer->number,
                              .session = session ? session->id : 0,
                              .length = transfer->size,
                              .answer = status == UMF_UCS_OK ? REMOTE_FINE : REMOTE_FAILED};
    transfer_end(remote, transfer);
    if (session) {
        answer_with(session, &reply);
    }
}

static umf_ucs_status_t serve_push(umf_remote_handle_t remote, remote_session_t *session,
                                   const remote_message_t *request, const remote_data_t *data) {
    remote_transfer_t *transfer = transfer_find(remote, session, request->number);
    if (!transfer || transfer->size != data->length) {
        remote_message_t reply = reply_to(request, REMOTE_DONE, REMOTE_STALE);
        answer_with(session, &reply);
        return UMF_UCS_OK;
    }
    transfer->is_active = true;
    return umf_remote_receive(&session->endpoint, data, transfer->base, push_received, transfer);
}

/* Tells the generation of now. A new one begins where the memory is another. */
static void serve_renew(umf_remote_handle_t remote, remote_session_t *session,
                        const remote_message_t *request) {
    remote_answer_t answer;
    remote_message_t reply = reply_to(request, REMOTE_RENEWED, REMOTE_STALE);
    umf_lock(&remote->lock);
    umf_remote_export_handle_t published = export_find_locked(remote, request, &answer);
    if (published) {
        published->under_way++; /* it stays while the lock is not held */
    }
    umf_unlock(&remote->lock);
    umf_span_t *span = published ? umf_remote_span_use(published) : NULL;
    uint64_t physical = span ? umf_remote_physical_of(span, (uintptr_t)published->base) : 0;
    if (span) {
        umf_use_end(umf_span_index(span));
    }
    umf_lock(&remote->lock);
    if (published && physical) {
        if (physical != published->physical) {
            published->physical = physical;
            published->generation = umf_remote_number_next();
        }
        reply.generation = published->generation;
        reply.length = published->size;
        reply.rights = published->rights;
        answer = REMOTE_FINE;
    }
    reply.answer = published && !physical ? REMOTE_STALE : (uint32_t)answer;
    if (published) {
        published->under_way--;
    }
    umf_unlock(&remote->lock);
    umf_event_count_advance(&remote->changes);
    answer_with(session, &reply);
}

/* --- sessions --------------------------------------------------------------------------------- */

static remote_session_t *session_find(umf_remote_handle_t remote, uint64_t id) {
    for (umf_list_t *at = remote->sessions.next; at != &remote->sessions; at = at->next) {
        remote_session_t *session = UMF_CONTAINER_OF(at, remote_session_t, link);
        if (session->id == id) {
            return session;
        }
    }
    return NULL;
}

/* Puts for which no data came end; what UCX uses ends soon by itself. */
static void session_end(umf_remote_handle_t remote, remote_session_t *session) {
    umf_list_remove(&session->link);
    umf_remote_page_peers(remote, -1);
    umf_remote_link_close(&session->endpoint);
    for (umf_list_t *at = remote->transfers.next, *next; at != &remote->transfers; at = next) {
        remote_transfer_t *transfer = UMF_CONTAINER_OF(at, remote_transfer_t, link);
        next = at->next;
        if (transfer->session != session) {
            continue;
        }
        transfer->session = NULL;
        if (!transfer->is_active) {
            transfer_end(remote, transfer);
            next = remote->transfers.next;
        }
    }
    umf_meta_free(session, sizeof(*session));
}

/* Sessions that are not about to end: all, or those without a proof. */
static size_t count_sessions(umf_remote_handle_t remote, bool is_unproven) {
    size_t count = 0;
    for (umf_list_t *at = remote->sessions.next; at != &remote->sessions; at = at->next) {
        const remote_session_t *session = UMF_CONTAINER_OF(at, remote_session_t, link);
        count += !session->has_left && (!is_unproven || !session->is_proven);
    }
    return count;
}

/* The oldest session without a transfer makes room: its peer may be gone without a word. */
static void make_room(umf_remote_handle_t remote) {
    for (umf_list_t *at = remote->sessions.prev;
         count_sessions(remote, false) >= SESSIONS_MAX && at != &remote->sessions; at = at->prev) {
        remote_session_t *session = UMF_CONTAINER_OF(at, remote_session_t, link);
        session->has_left = session->has_left || session->in_flight == 0;
    }
}

/* What both sides prove: this exchange, and which side it is. */
static bool prove_as(umf_remote_handle_t remote, const remote_session_t *session, char side,
                     unsigned char *proof) {
    unsigned char data[1 + 3 * REMOTE_ID + sizeof(session->id)];
    data[0] = (unsigned char)side;
    memcpy(data + 1, session->peer_nonce, REMOTE_ID);
    memcpy(data + 1 + REMOTE_ID, session->nonce, REMOTE_ID);
    memcpy(data + 1 + 2 * REMOTE_ID, remote->id, REMOTE_ID);
    memcpy(data + 1 + 3 * REMOTE_ID, &session->id, sizeof(session->id));
    return umf_remote_prove(&remote->key, data, sizeof(data), proof);
}

static void welcome(remote_session_t *session, remote_answer_t answer) {
    remote_message_t reply = {.kind = REMOTE_WELCOME,
                              .number = session->connection,
                              .session = session->id,
                              .length = session->endpoint.remote->limit,
                              .offset = session->endpoint.remote->requests_limit,
                              .answer = (uint32_t)answer};
    if (session->endpoint.is_local && answer == REMOTE_FINE) {
        umf_remote_local_welcome(&session->endpoint, &reply);
    } else {
        answer_with(session, &reply);
    }
}

static void challenge(umf_remote_handle_t remote, remote_session_t *session) {
    remote_message_t challenge = {
        .kind = REMOTE_CHALLENGE, .number = session->connection, .session = session->id};
    memcpy(challenge.id, session->nonce, REMOTE_ID);
    session->proof_deadline = umf_remote_now() + PROOF_MS;
    if (prove_as(remote, session, 'o', challenge.proof)) {
        answer_with(session, &challenge);
    }
}

static bool is_full(umf_remote_handle_t remote) {
    make_room(remote);
    return remote->is_ending || count_sessions(remote, false) >= SESSIONS_MAX ||
           (remote->has_key && count_sessions(remote, true) >= UNPROVEN_MAX);
}

static remote_session_t *session_make(void) {
    remote_session_t *session = umf_meta_alloc(sizeof(*session));
    if (!session || umf_os_random(&session->id, sizeof(session->id)) != 0 ||
        umf_os_random(session->nonce, REMOTE_ID) != 0) {
        umf_meta_free(session, sizeof(*session));
        return NULL;
    }
    session->id |= 1; /* 0 is none */
    session->proof_deadline = umf_remote_now() + PROOF_MS;
    return session;
}

static void session_begin(umf_remote_handle_t remote, remote_session_t *session) {
    umf_list_add(&remote->sessions, &session->link);
    umf_remote_page_peers(remote, 1);
}

remote_link_t *umf_remote_owner_accepts(umf_remote_handle_t remote) {
    remote_session_t *session = is_full(remote) ? NULL : session_make();
    if (!session) {
        return NULL;
    }
    session->endpoint.remote = remote;
    session_begin(remote, session);
    return &session->endpoint;
}

/* A process that connects by UCX sends its address. NULL: it is refused. */
static remote_session_t *session_by_ucx(umf_remote_handle_t remote, const remote_data_t *data) {
    unsigned char address[REMOTE_ADDRESS_MAX] = {0};
    if (data->worker != &remote->server || data->is_rendezvous || data->length == 0 ||
        data->length > REMOTE_ADDRESS_MAX || is_full(remote)) {
        return NULL;
    }
    remote_session_t *session = session_make();
    memcpy(address, data->data, data->length);
    if (session && !umf_remote_link_open(&remote->server, &session->endpoint, address)) {
        umf_meta_free(session, sizeof(*session));
        session = NULL;
    }
    if (session) {
        session_begin(remote, session);
    }
    return session;
}

/* NULL: the link is that of a connection to an owner, which sends no greeting. */
static remote_session_t *session_by_link(umf_remote_handle_t remote, const remote_link_t *by) {
    for (umf_list_t *at = remote->sessions.next; at != &remote->sessions; at = at->next) {
        remote_session_t *session = UMF_CONTAINER_OF(at, remote_session_t, link);
        if (&session->endpoint == by) {
            return session;
        }
    }
    return NULL;
}

static void serve_hello(umf_remote_handle_t remote, const remote_message_t *request,
                        const remote_data_t *data) {
    remote_session_t *session =
        data->by ? session_by_link(remote, data->by) : session_by_ucx(remote, data);
    if (!session || session->has_greeted) {
        return;
    }
    session->has_greeted = true;
    session->connection = request->number;
    session->is_proven = !remote->has_key;
    memcpy(session->peer_nonce, request->nonce, REMOTE_ID);
    if (!umf_remote_is_equal(request->id, remote->id, REMOTE_ID)) {
        session->is_proven = false;
        session->proof_deadline = umf_remote_now() + PROOF_MS;
        welcome(session, REMOTE_STALE); /* the peer looks for a process that has ended */
    } else if (remote->has_key) {
        challenge(remote, session);
    } else {
        welcome(session, REMOTE_FINE);
    }
}

static void serve_proof(umf_remote_handle_t remote, remote_session_t *session,
                        const remote_message_t *request) {
    unsigned char proof[UMF_REMOTE_PROOF];
    bool is_right = remote->has_key && prove_as(remote, session, 'p', proof) &&
                    umf_remote_is_equal(proof, request->proof, UMF_REMOTE_PROOF);
    session->is_proven = session->is_proven || is_right;
    welcome(session, is_right ? REMOTE_FINE : REMOTE_DENIED);
}

umf_ucs_status_t umf_remote_owner_gets(umf_remote_handle_t remote, const remote_message_t *message,
                                       const remote_data_t *data) {
    if (message->kind == REMOTE_HELLO) {
        serve_hello(remote, message, data);
        return UMF_UCS_OK;
    }
    remote_session_t *session = session_find(remote, message->session);
    if (!session || session->has_left || !umf_remote_is_by(&session->endpoint, data)) {
        return UMF_UCS_OK;
    }
    if (message->kind == REMOTE_PROVE && !session->is_proven && session->has_greeted) {
        serve_proof(remote, session, message);
    } else if (!session->is_proven) {
        return UMF_UCS_OK;
    } else if (message->kind == REMOTE_GET) {
        serve_get(remote, session, message);
    } else if (message->kind == REMOTE_PUT) {
        serve_put(remote, session, message);
    } else if (message->kind == REMOTE_PUSH) {
        return serve_push(remote, session, message, data);
    } else if (message->kind == REMOTE_RENEW) {
        serve_renew(remote, session, message);
    } else if (message->kind == REMOTE_BYE) {
        session->has_left = true; /* not ended here, since UCX calls this */
    }
    return UMF_UCS_OK;
}

/* --- steps of the thread ---------------------------------------------------------------------- */

/* Does the program wait for memory of a transfer, to free, suspend or withdraw it? */
static bool is_waited_for(umf_remote_handle_t remote, const remote_transfer_t *transfer) {
    umf_span_t *span = span_use(transfer->published);
    if (span) {
        umf_use_end(umf_span_index(span));
    }
    umf_lock(&remote->lock);
    bool is_closing = transfer->published->is_closing;
    umf_unlock(&remote->lock);
    return is_closing || !span;
}

/* On a slow network the last of many transfers at once takes longer than the deadline, while others
 * end. A peer cannot use that to make the program wait longer. */
static bool is_late(umf_remote_handle_t remote, const remote_transfer_t *transfer, uint64_t now) {
    return now >= transfer->deadline &&
           (now >= transfer->session->progress + remote->deadline ||
            now >= transfer->deadline + (SLOW_MAX - 1) * remote->deadline ||
            is_waited_for(remote, transfer));
}

static bool has_late_transfer(umf_remote_handle_t remote, const remote_session_t *session,
                              uint64_t now) {
    for (umf_list_t *at = remote->transfers.next; at != &remote->transfers; at = at->next) {
        const remote_transfer_t *transfer = UMF_CONTAINER_OF(at, remote_transfer_t, link);
        if (transfer->session == session && is_late(remote, transfer, now)) {
            return true;
        }
    }
    return false;
}

void umf_remote_owner_advance(umf_remote_handle_t remote, uint64_t now) {
    for (umf_list_t *at = remote->sessions.next, *next; at != &remote->sessions; at = next) {
        remote_session_t *session = UMF_CONTAINER_OF(at, remote_session_t, link);
        next = at->next;
        if (session->has_left || session->endpoint.has_failed ||
            has_late_transfer(remote, session, now) ||
            (!session->is_proven && now >= session->proof_deadline)) {
            session_end(remote, session);
        }
    }
}

bool umf_remote_owner_is_idle(umf_remote_handle_t remote) {
    return umf_list_is_empty(&remote->transfers);
}

void umf_remote_owner_end(umf_remote_handle_t remote) {
    while (!umf_list_is_empty(&remote->sessions)) {
        session_end(remote, UMF_CONTAINER_OF(remote->sessions.next, remote_session_t, link));
    }
}
