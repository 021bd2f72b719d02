/* The owner's side: published ranges, sessions of peers, and requests, of which each is checked. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/remote/own.h"
#include "object/provider/memory_watch.h"
#include "system/checksum.h"
#include "system/os.h"

#define SESSIONS_MAX 256 /* at a time */
#define UNPROVEN_MAX 16  /* of these, without a proof of the key */
#define PROOF_MS 5000    /* so long a peer may take for it */

/* --- published ranges ------------------------------------------------------------------------- */

static const umf_handle_kind_t export_handle = {"a range of umfRemotePublish"};

/* Generations and numbers of exports are never used twice in a process. */
static uint64_t number_next(void) {
    static _Atomic uint64_t number;
    return atomic_fetch_add_explicit(&number, 1, memory_order_relaxed) + 1;
}

/* The physical memory of a used span. 0: it has none now. */
static uint64_t physical_of(const umf_span_t *span, uintptr_t address) {
    umf_memory_run_t run;
    umf_memory_pool_handle_t pool =
        atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire);
    if (!pool || umf_pool_is_suspended(pool)) {
        return 0;
    }
    while (span->outer) {
        span = umf_span_at(span->outer);
    }
    if (umf_span_kind(span) != UMF_SPAN_POOL ||
        umf_memory_run_at(umf_tracked_of(span), address, span, &run) != UMF_RESULT_SUCCESS) {
        return 0;
    }
    return run.generation;
}

/* The span of an export, in use until umf_use_end. NULL: the memory was freed. */
static umf_span_t *span_use(umf_remote_export_handle_t published) {
    umf_span_t *span = umf_span_use(&umf_map_global, (uintptr_t)published->base);
    if (span && (span->id != published->span_id ||
                 (size_t)((uintptr_t)published->base - span->base) > span->size ||
                 published->size > span->size - ((uintptr_t)published->base - span->base))) {
        umf_use_end(umf_span_index(span));
        span = NULL;
    }
    return span;
}

static umf_result_t publish_check(const umf_span_t *span, const void *ptr, size_t size) {
    size_t offset = (uintptr_t)ptr - span->base;
    if (umf_span_kind(span) != UMF_SPAN_POOL || size > span->size - offset) {
        UMF_LOG_ERROR("%zu bytes at %p are not in one block of a pool", size, ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!physical_of(span, (uintptr_t)ptr)) {
        UMF_LOG_ERROR("%p has no memory now: resume its pool first", ptr);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (umf_os_probe_read((void *)((uintptr_t)ptr & ~(uintptr_t)7)) == EFAULT) {
        UMF_LOG_ERROR("the CPU cannot access %p: memory of a device is not served", ptr);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t publish_fill(umf_remote_export_handle_t made, umf_span_t *span) {
    umf_result_t result = publish_check(span, made->base, made->size);
    if (result == UMF_RESULT_SUCCESS && umf_os_random(made->secret, REMOTE_ID) != 0) {
        UMF_LOG_ERROR("the system gives no random numbers");
        result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_pin_begin(&made->pin, span, made->base);
    }
    made->span_id = span->id;
    made->physical = physical_of(span, (uintptr_t)made->base);
    made->number = number_next();
    made->generation = number_next();
    return result;
}

UMF_API_EXT_1 umf_result_t umfRemotePublish(umf_remote_handle_t remote, void *ptr, size_t size,
                                            unsigned rights,
                                            umf_remote_export_handle_t *published) {
    if (!umf_remote_check(remote, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!ptr || !size || !published || !rights || rights > (UMF_REMOTE_GET | UMF_REMOTE_PUT)) {
        UMF_LOG_ERROR("umfRemotePublish needs a range, rights of umf_remote_rights_t, and a place "
                      "for the handle");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_span_t *span = umf_span_use(&umf_map_global, (uintptr_t)ptr);
    if (!span) {
        UMF_LOG_ERROR("no pool has %p", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_remote_export_handle_t made = umf_handle_new(sizeof(*made), &export_handle);
    umf_result_t result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (made) {
        made->remote = remote;
        made->base = ptr;
        made->size = size;
        made->rights = rights;
        result = publish_fill(made, span);
    }
    umf_use_end(umf_span_index(span));
    if (result != UMF_RESULT_SUCCESS) {
        umf_handle_delete(made, sizeof(*made), &export_handle, __func__);
        return result;
    }
    umf_lock(&remote->lock);
    umf_list_add(&remote->exports, &made->link);
    umf_remote_page_write_locked(remote);
    umf_unlock(&remote->lock);
    *published = made;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfRemoteGetHandle(umf_remote_export_handle_t published, void *bytes,
                                              size_t *size) {
    if (!umf_handle_check(published, &export_handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_remote_handle_t remote = published->remote;
    size_t length = sizeof(remote_handle_bytes_t) + remote->address_length;
    if (!size || (!bytes && *size > 0) || (bytes && *size < length)) {
        UMF_LOG_ERROR("the handle has %zu bytes", length);
        if (size) {
            *size = length;
        }
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = length;
    if (!bytes) {
        return UMF_RESULT_SUCCESS;
    }
    unsigned char made[sizeof(remote_handle_bytes_t) + REMOTE_ADDRESS_MAX];
    umf_lock(&remote->lock);
    remote_handle_bytes_t head = {.magic = REMOTE_MAGIC,
                                  .version = REMOTE_VERSION,
                                  .length = (uint16_t)length,
                                  .boot = umf_os_boot_id(),
                                  .export = published->number,
                                  .generation = published->generation,
                                  .size = published->size,
                                  .rights = published->rights,
                                  .address_length = (uint32_t)remote->address_length};
    umf_unlock(&remote->lock);
    memcpy(head.owner, remote->id, REMOTE_ID);
    memcpy(head.secret, published->secret, REMOTE_ID);
    memcpy(made, &head, sizeof(head));
    memcpy(made + sizeof(head), remote->address, remote->address_length);
    head.check = umf_sum(made, length);
    memcpy(made, &head, sizeof(head));
    memcpy(bytes, made, length);
    return UMF_RESULT_SUCCESS;
}

/* Waits for transfers. The thread closes the connections of those that take too long. */
static void export_settle(umf_remote_handle_t remote, umf_remote_export_handle_t published) {
    for (;;) {
        uint32_t seen = umf_event_count_read(&remote->changes);
        umf_lock(&remote->lock);
        published->is_closing = true;
        size_t under_way = published->under_way;
        umf_unlock(&remote->lock);
        if (!under_way) {
            return;
        }
        umf_event_count_wait_for(&remote->changes, seen, 50u * 1000 * 1000);
    }
}

UMF_API_EXT_1 umf_result_t umfRemoteWithdraw(umf_remote_export_handle_t published) {
    if (!umf_handle_end(published, &export_handle, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_remote_handle_t remote = published->remote;
    bool is_ours = remote->forks == umf_fork_count();
    if (is_ours) {
        export_settle(remote, published);
        umf_lock(&remote->lock);
        umf_list_remove(&published->link);
        umf_remote_page_write_locked(remote);
        umf_unlock(&remote->lock);
    }
    umf_pin_end(&published->pin);
    umf_meta_free(published, sizeof(*published));
    return UMF_RESULT_SUCCESS;
}

void umf_remote_withdraw_all(umf_remote_handle_t remote) {
    while (!umf_list_is_empty(&remote->exports)) {
        umf_remote_export_handle_t published =
            UMF_CONTAINER_OF(remote->exports.next, struct umf_remote_export_t, link);
        umf_list_remove(&published->link);
        if (umf_handle_end(published, &export_handle, __func__)) {
            umf_pin_end(&published->pin);
            umf_meta_free(published, sizeof(*published));
        }
    }
}

/* --- transfers -------------------------------------------------------------------------------- */

static void transfer_end(umf_remote_handle_t remote, remote_transfer_t *transfer) {
    if (transfer->session) {
        transfer->session->in_flight -= transfer->size;
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
                                                     const remote_message_t *asked,
                                                     remote_answer_t *answer) {
    umf_assert_locked(&remote->lock);
    *answer = REMOTE_STALE;
    for (umf_list_t *at = remote->exports.next; at != &remote->exports; at = at->next) {
        umf_remote_export_handle_t published =
            UMF_CONTAINER_OF(at, struct umf_remote_export_t, link);
        if (published->number != asked->export || published->is_closing) {
            continue;
        }
        if (!umf_remote_is_equal(published->secret, asked->id, REMOTE_ID)) {
            *answer = REMOTE_DENIED;
            return NULL;
        }
        *answer = REMOTE_FINE;
        return published;
    }
    return NULL;
}

static remote_answer_t range_check(umf_remote_export_handle_t published,
                                   const remote_message_t *asked, unsigned right) {
    if (!(published->rights & right)) {
        return REMOTE_DENIED;
    }
    if (asked->generation != published->generation) {
        return REMOTE_STALE;
    }
    return asked->offset > published->size || asked->length > published->size - asked->offset
               ? REMOTE_BEYOND
               : REMOTE_FINE;
}

/* Begins a transfer: the memory is in use, has the generation that the peer names, and stays. */
static remote_answer_t transfer_begin(umf_remote_handle_t remote, remote_session_t *session,
                                      const remote_message_t *asked, unsigned right,
                                      remote_transfer_t **out) {
    remote_answer_t answer;
    if (asked->length > remote->limit - session->in_flight) {
        return REMOTE_BUSY;
    }
    umf_lock(&remote->lock);
    umf_remote_export_handle_t published = export_find_locked(remote, asked, &answer);
    answer = published ? range_check(published, asked, right) : answer;
    if (answer == REMOTE_FINE) {
        published->under_way++;
    }
    umf_unlock(&remote->lock);
    if (answer != REMOTE_FINE) {
        return answer;
    }
    umf_span_t *span = span_use(published);
    bool is_there = span && physical_of(span, (uintptr_t)published->base) == published->physical;
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
                                .number = asked->number,
                                .base = published->base + asked->offset,
                                .size = asked->length,
                                .deadline = umf_remote_now() + remote->deadline};
    session->in_flight += made->size;
    umf_list_add(&remote->transfers, &made->link);
    *out = made;
    return REMOTE_FINE;
}

static remote_message_t reply_to(const remote_message_t *asked, remote_kind_t kind,
                                 remote_answer_t answer) {
    return (remote_message_t){.kind = (uint16_t)kind,
                              .number = asked->number,
                              .session = asked->session,
                              .length = asked->length,
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
                      const remote_message_t *asked) {
    remote_transfer_t *transfer = NULL;
    remote_message_t reply = reply_to(
        asked, REMOTE_DATA, transfer_begin(remote, session, asked, UMF_REMOTE_GET, &transfer));
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
                      const remote_message_t *asked) {
    remote_transfer_t *transfer = NULL;
    remote_answer_t answer = transfer_begin(remote, session, asked, UMF_REMOTE_PUT, &transfer);
    remote_message_t reply = reply_to(asked, REMOTE_GO, answer);
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

static void push_received(umf_remote_handle_t remote, void *arg, umf_ucs_status_t status) {
    remote_transfer_t *transfer = arg;
    if (transfer->session) {
        remote_message_t reply = {.kind = REMOTE_DONE,
                                  .number = transfer->number,
                                  .session = transfer->session->id,
                                  .length = transfer->size,
                                  .answer = status == UMF_UCS_OK ? REMOTE_FINE : REMOTE_FAILED};
        answer_with(transfer->session, &reply);
    }
    transfer_end(remote, transfer);
}

static umf_ucs_status_t serve_push(umf_remote_handle_t remote, remote_session_t *session,
                                   const remote_message_t *asked, const remote_data_t *data) {
    remote_transfer_t *transfer = transfer_find(remote, session, asked->number);
    if (!transfer || transfer->size != data->length) {
        remote_message_t reply = reply_to(asked, REMOTE_DONE, REMOTE_STALE);
        answer_with(session, &reply);
        return UMF_UCS_OK;
    }
    transfer->is_active = true;
    return umf_remote_receive(remote, data, transfer->base, push_received, transfer);
}

/* Tells the generation of now. A new one begins where the memory is another. */
static void serve_renew(umf_remote_handle_t remote, remote_session_t *session,
                        const remote_message_t *asked) {
    remote_answer_t answer;
    remote_message_t reply = reply_to(asked, REMOTE_RENEWED, REMOTE_STALE);
    umf_lock(&remote->lock);
    umf_remote_export_handle_t published = export_find_locked(remote, asked, &answer);
    if (published) {
        published->under_way++; /* it stays while the lock is not held */
    }
    umf_unlock(&remote->lock);
    umf_span_t *span = published ? span_use(published) : NULL;
    uint64_t physical = span ? physical_of(span, (uintptr_t)published->base) : 0;
    if (span) {
        umf_use_end(umf_span_index(span));
    }
    umf_lock(&remote->lock);
    if (published && physical) {
        if (physical != published->physical) {
            published->physical = physical;
            published->generation = number_next();
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
                              .answer = (uint32_t)answer};
    answer_with(session, &reply);
}

static void challenge(umf_remote_handle_t remote, remote_session_t *session) {
    remote_message_t asks = {
        .kind = REMOTE_CHALLENGE, .number = session->connection, .session = session->id};
    memcpy(asks.id, session->nonce, REMOTE_ID);
    session->proof_deadline = umf_remote_now() + PROOF_MS;
    if (prove_as(remote, session, 'o', asks.proof)) {
        answer_with(session, &asks);
    }
}

static void serve_hello(umf_remote_handle_t remote, const remote_message_t *asked,
                        const remote_data_t *data) {
    make_room(remote);
    bool is_full = count_sessions(remote, false) >= SESSIONS_MAX ||
                   (remote->has_key && count_sessions(remote, true) >= UNPROVEN_MAX);
    if (data->is_rendezvous || data->length == 0 || data->length > REMOTE_ADDRESS_MAX || is_full) {
        return;
    }
    unsigned char address[REMOTE_ADDRESS_MAX] = {0};
    remote_session_t *session = umf_meta_alloc(sizeof(*session));
    if (!session || umf_os_random(&session->id, sizeof(session->id)) != 0 ||
        umf_os_random(session->nonce, REMOTE_ID) != 0) {
        umf_meta_free(session, sizeof(*session));
        return;
    }
    memcpy(address, data->data, data->length);
    session->id |= 1; /* 0 is none */
    session->connection = asked->number;
    session->is_proven = !remote->has_key;
    memcpy(session->peer_nonce, asked->nonce, REMOTE_ID);
    if (!umf_remote_link_open(remote, &session->endpoint, address)) {
        umf_meta_free(session, sizeof(*session));
        return;
    }
    umf_list_add(&remote->sessions, &session->link);
    umf_remote_page_peers(remote, 1);
    if (!umf_remote_is_equal(asked->id, remote->id, REMOTE_ID)) {
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
                        const remote_message_t *asked) {
    unsigned char proof[UMF_REMOTE_PROOF];
    bool is_right = remote->has_key && prove_as(remote, session, 'p', proof) &&
                    umf_remote_is_equal(proof, asked->proof, UMF_REMOTE_PROOF);
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
    if (!session || session->has_left) {
        return UMF_UCS_OK;
    }
    if (message->kind == REMOTE_PROVE && !session->is_proven) {
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

static bool has_late_transfer(umf_remote_handle_t remote, const remote_session_t *session,
                              uint64_t now) {
    for (umf_list_t *at = remote->transfers.next; at != &remote->transfers; at = at->next) {
        const remote_transfer_t *transfer = UMF_CONTAINER_OF(at, remote_transfer_t, link);
        if (transfer->session == session && now >= transfer->deadline) {
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
