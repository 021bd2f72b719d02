/*
 * Remote memory: handles, and messages of peers and owners, over an UCX of this file that sends and
 * receives at once. Whatever arrives, an owner sends and writes bytes of the published range only,
 * a peer writes into its buffer only, and nothing is left in use.
 *
 * Input: the first letter is 'h' for a handle, whose bytes are changed; any other begins messages
 * of 8 bytes each: the kind, the place in the message (in words of 4 bytes), two numbers for the
 * session and the length of the data, and 4 bytes that are added to a good message bit by bit.
 */
#include "fuzz/support.h"

#include <string.h>

#include <umf/remote.h>
#include <umf/text.h>

#include "ext/remote/own.h"
#include "object/provider/memory_watch.h"
#include "system/checksum.h"
#include "system/common.h"

#define BLOCK ((size_t)16384)
#define FIRST ((size_t)4096) /* the published part of the block */
#define SIZE ((size_t)8192)
#define CANARY 0x5a

static umf_memory_pool_handle_t pool;
static char *block;
static struct umf_remote_t remote;
static char buffer[3 * 64];

/* --- an UCX ----------------------------------------------------------------------------------- */

static umf_ucs_status_t fake_ep_create(void *worker, const umf_ucx_endpoint_params_t *params,
                                       void **endpoint) {
    (void)worker, (void)params;
    *endpoint = &remote;
    return UMF_UCS_OK;
}

static umf_ucx_request_t fake_ep_close(void *endpoint, const umf_ucx_request_params_t *params) {
    (void)endpoint, (void)params;
    return NULL;
}

static umf_ucx_request_t fake_send(void *endpoint, unsigned id, const void *header,
                                   size_t header_length, const void *data, size_t length,
                                   const umf_ucx_request_params_t *params) {
    (void)endpoint, (void)id, (void)params;
    const remote_message_t *message = header;
    FUZZ_CHECK(header_length == sizeof(*message));
    if (message->kind == REMOTE_DATA && length) {
        const char *first = block + FIRST, *begin = data;
        FUZZ_CHECK(begin >= first && begin <= first + SIZE &&
                   length <= (size_t)(first + SIZE - begin));
        FUZZ_CHECK(message->answer == REMOTE_FINE);
    }
    return NULL;
}

static umf_ucx_request_t fake_receive(void *worker, void *description, void *data, size_t length,
                                      const umf_ucx_request_params_t *params) {
    (void)worker, (void)params;
    memcpy(data, description, length);
    return NULL;
}

static const char *fake_text(umf_ucs_status_t status) {
    (void)status;
    return "an error";
}

/* A worker that UCX does not have. */
static void worker_init(remote_worker_t *worker) {
    *worker = (remote_worker_t){.remote = &remote};
    umf_list_init(&worker->transits);
}

static void remote_init(void) {
    memset(&remote, 0, sizeof(remote));
    umf_lock_init(&remote.lock, UMF_RANK_REMOTE);
    umf_list_t *lists[] = {
        &remote.commands,    &remote.exports,  &remote.ops,       &remote.parts,  &remote.all,
        &remote.connections, &remote.sessions, &remote.transfers, &remote.locals, &remote.workers};
    for (size_t i = 0; i < UMF_COUNT_OF(lists); i++) {
        umf_list_init(lists[i]);
    }
    worker_init(&remote.server);
    remote.ucx = (umf_ucx_t){.ucp_ep_create = fake_ep_create,
                             .ucp_ep_close_nbx = fake_ep_close,
                             .ucp_am_send_nbx = fake_send,
                             .ucp_am_recv_data_nbx = fake_receive,
                             .ucs_status_string = fake_text};
    remote.deadline = 10000;
    remote.limit = 1 << 20;
    remote.requests_limit = 8;
}

/* --- a published range, a session and an operation -------------------------------------------- */

static struct umf_remote_export_t published;

static void owner_init(void) {
    if (!pool) {
        FUZZ_CHECK(umfPoolCreateFromText("proxy over os", &pool) == UMF_RESULT_SUCCESS);
        block = umfPoolMalloc(pool, BLOCK);
        FUZZ_CHECK(block);
    }
    memset(block, CANARY, BLOCK);
    const umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)block, NULL);
    published = (struct umf_remote_export_t){.remote = &remote,
                                             .base = block + FIRST,
                                             .size = SIZE,
                                             .rights = UMF_REMOTE_GET | UMF_REMOTE_PUT,
                                             .number = 1,
                                             .generation = 2,
                                             .span_id = span->id,
                                             .physical = span->id};
    memset(published.secret, 's', REMOTE_ID);
    umf_list_add(&remote.exports, &published.link);
}

static uint64_t session_of(unsigned number) {
    for (umf_list_t *at = remote.sessions.next; at != &remote.sessions; at = at->next) {
        if (number-- == 0) {
            return UMF_CONTAINER_OF(at, remote_session_t, link)->id;
        }
    }
    return number;
}

static struct umf_remote_memory_t memory;
static struct umf_remote_op_t ops[2];
static remote_connection_t connection;

static void peer_init(void) {
    memset(buffer, CANARY, sizeof(buffer));
    connection = (remote_connection_t){.state = REMOTE_READY,
                                       .number = 5,
                                       .session = 7,
                                       .limit = 1 << 20,
                                       .parts_limit = 8,
                                       .memories = 1};
    worker_init(&connection.worker);
    connection.endpoint =
        (remote_link_t){.remote = &remote, .worker = &connection.worker, .endpoint = &remote};
    umf_list_add(&remote.connections, &connection.link);
    memory = (struct umf_remote_memory_t){.remote = &remote,
                                          .export_number = 1,
                                          .generation = 2,
                                          .connection = &connection,
                                          .size = 64};
    for (size_t i = 0; i < UMF_COUNT_OF(ops); i++) {
        ops[i] = (struct umf_remote_op_t){.memory = &memory,
                                          .task = i ? REMOTE_TASK_PUT : REMOTE_TASK_GET,
                                          .data = buffer + 64,
                                          .size = 64};
        umf_list_add_tail(&remote.ops, &ops[i].link);
    }
    umf_remote_peer_advance(&remote, umf_remote_now()); /* parts 1 and 2 */
}

static void check_canaries(void) {
    for (size_t i = 0; i < BLOCK; i++) {
        FUZZ_CHECK((i >= FIRST && i < FIRST + SIZE) || block[i] == CANARY);
    }
    for (size_t i = 0; i < 64; i++) {
        FUZZ_CHECK(buffer[i] == CANARY && buffer[128 + i] == CANARY);
    }
}

/* --- an input --------------------------------------------------------------------------------- */

static void arrive(const unsigned char *input) {
    static char data[SIZE + 256];
    remote_message_t message = {.magic = REMOTE_MAGIC,
                                .version = REMOTE_VERSION,
                                .kind = (uint16_t)(input[0] % 16),
                                .number = (uint64_t)1 + input[2] % 4,
                                .session = input[2] & 8 ? 7 : session_of(input[2] % 4),
                                .export_number = 1,
                                .generation = 2,
                                .length = 64};
    memset(message.id, 's', REMOTE_ID);
    unsigned char *bytes = (unsigned char *)&message;
    for (size_t i = 0; i < 4; i++) {
        bytes[(input[1] * (size_t)4 + i) % sizeof(message)] ^= input[4 + i];
    }
    if (message.kind == REMOTE_HELLO) {
        memset(message.id, 0, REMOTE_ID); /* the owner's id is 0 here */
    }
    remote_data_t from = {.data = data,
                          .length = input[3] & 128 ? sizeof(data) - input[3] : input[3],
                          .is_rendezvous = input[2] & 64};
    bool is_to_owner = message.kind == REMOTE_HELLO || message.kind == REMOTE_PROVE ||
                       message.kind == REMOTE_RENEW || message.kind == REMOTE_GET ||
                       message.kind == REMOTE_PUT || message.kind == REMOTE_PUSH;
    bool is_by_other = input[2] & 32;
    from.worker = is_to_owner != is_by_other ? &remote.server : &connection.worker;
    from.reply = input[2] & 16 ? NULL : &remote;
    memset(data, input[3], sizeof(data));
    if (is_to_owner) {
        umf_remote_owner_gets(&remote, &message, &from);
    } else {
        umf_remote_peer_gets(&remote, &message, &from);
    }
    check_canaries();
}

static void run_messages(const char *text, size_t length) {
    remote_init();
    owner_init();
    peer_init();
    for (size_t at = 0; at + 8 <= length && at < 512; at += 8) {
        unsigned char input[8];
        memcpy(input, text + at, sizeof(input));
        arrive(input);
        umf_remote_owner_advance(&remote, umf_remote_now());
    }
    memory.connection->memories = 1; /* it is static */
    umf_remote_peer_end(&remote);
    umf_remote_peer_advance(&remote, umf_remote_now());
    umf_remote_owner_end(&remote);
    FUZZ_CHECK(umf_remote_owner_is_idle(&remote) && umf_remote_peer_is_idle(&remote));
    FUZZ_CHECK(published.under_way == 0);
    umf_lock_destroy(&remote.lock);
}

static void run_handle(const char *text, size_t length) {
    unsigned char bytes[UMF_REMOTE_HANDLE_MAX + 64] = {0}, address[REMOTE_ADDRESS_MAX];
    remote_handle_bytes_t handle = {.magic = REMOTE_MAGIC, .version = REMOTE_VERSION};
    size_t size = sizeof(handle) + (length > 0 ? (unsigned char)text[0] * (size_t)4 : 0);
    handle.length = (uint16_t)size;
    handle.address_length = (uint32_t)(size - sizeof(handle));
    memcpy(bytes, &handle, sizeof(handle));
    for (size_t i = 1; i < length && i < sizeof(bytes); i++) {
        bytes[i - 1] ^= (unsigned char)text[i];
    }
    memset(bytes + 8, 0, 8);
    uint64_t sum = umf_sum(bytes, size < sizeof(bytes) ? size : sizeof(bytes));
    memcpy(bytes + 8, &sum, sizeof(sum));
    if (umf_remote_handle_read(bytes, size, &handle, address)) {
        FUZZ_CHECK(handle.address_length <= REMOTE_ADDRESS_MAX &&
                   handle.address_length + sizeof(handle) == size);
    }
}

static void run(char *text, size_t length) {
    if (length > 0 && text[0] == 'h') {
        run_handle(text + 1, length - 1);
    } else if (length > 0) {
        run_messages(text + 1, length - 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_run(data, size, run);
    return 0;
}
