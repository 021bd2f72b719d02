/* The exported descriptors, and the answer to a request. */
#include <errno.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "ds/hash.h"
#include "peer/broker_own.h"
#include "peer/process.h"
#include "system/os.h"

_Static_assert(sizeof(umf_broker_request_t) == 48, "requests travel between processes");
_Static_assert(sizeof(umf_broker_reply_t) == 16, "replies travel between processes");

typedef struct broker_export_t {
    int fd;
    umf_os_identity_t file; /* of the descriptor's file when the ticket was made */
    uint64_t secret[2];     /* gives access to this export, and to no other */
} broker_export_t;

#define FRESH_SECRETS 16 /* secrets taken from the system by one call */

UMF_LOCK_STATIC(table_lock, UMF_RANK_EXPORTED);

/* Sync: table_lock */
static struct {
    uint32_t pid; /* the process that owns the table; 0: none */
    umf_broker_address_kind_t address_kind;
    umf_broker_id_t id;
    uint64_t fresh[FRESH_SECRETS][2];
    size_t fresh_count;
    uint64_t last_export; /* numbers are never reused */
    umf_hash_t exports;
} table;

/* --- exports --- */

static void export_forget(uint64_t id, void *value, void *arg) {
    (void)id, (void)arg;
    umf_meta_free(value, sizeof(broker_export_t));
}

static int table_begin_locked(uint32_t pid) {
    umf_broker_id_t id;
    int error = umf_os_random(&id, sizeof(id));
    if (error != 0) {
        return error;
    }
    umf_hash_each(&table.exports, export_forget, NULL);
    umf_hash_fini(&table.exports);
    table.exports = (umf_hash_t){0};
    table.address_kind = UMF_BROKER_NOWHERE;
    table.id = id;
    table.fresh_count = 0; /* a parent's secrets */
    table.pid = pid;
    return 0;
}

int umf_broker_table_begin(uint32_t pid, umf_broker_id_t *id) {
    umf_lock(&table_lock);
    int error = table.pid == pid ? 0 : table_begin_locked(pid);
    if (error == 0) {
        *id = table.id;
    }
    umf_unlock(&table_lock);
    return error;
}

void umf_broker_table_open(umf_broker_address_kind_t address_kind) {
    umf_lock(&table_lock);
    table.address_kind = address_kind;
    umf_unlock(&table_lock);
}

/* Whether the ticket names this broker. One that a parent made names another. */
static bool table_knows_locked(const umf_fd_ticket_t *ticket) {
    return ticket->export_id != 0 &&
           memcmp(ticket->broker, table.id.word, sizeof(table.id.word)) == 0;
}

static bool secret_take_locked(uint64_t secret[2]) {
    if (table.fresh_count == 0) {
        int error = umf_os_random(table.fresh, sizeof(table.fresh));
        if (error != 0) {
            umf_log_write(UMF_LOG_LEVEL_WARNING, error, __func__, "the system has no random bits");
            return false;
        }
        table.fresh_count = FRESH_SECRETS;
    }
    memcpy(secret, table.fresh[--table.fresh_count], sizeof(table.fresh[0]));
    return true;
}

static bool table_add_locked(umf_fd_ticket_t *ticket) {
    broker_export_t *export = umf_meta_alloc(sizeof(*export));
    if (!export || !secret_take_locked(export->secret) ||
        !umf_hash_put(&table.exports, table.last_export + 1, export)) {
        umf_meta_free(export, sizeof(*export));
        UMF_LOG_WARN("descriptor %d cannot be offered to other processes", ticket->fd);
        return false;
    }
    export->fd = ticket->fd;
    export->file =
        (umf_os_identity_t){.dev = ticket->dev, .ino = ticket->ino, .born = ticket->born};
    ticket->export_id = ++table.last_export;
    ticket->address_kind = (uint16_t)table.address_kind;
    memcpy(ticket->broker, table.id.word, sizeof(ticket->broker));
    memcpy(ticket->secret, export->secret, sizeof(ticket->secret));
    return true;
}

bool umf_broker_export(umf_fd_ticket_t *ticket) {
    umf_lock(&table_lock);
    bool is_open = table.address_kind != UMF_BROKER_NOWHERE && table.pid == umf_process_pid() &&
                   ticket->pid == table.pid;
    bool is_there = is_open && (table_knows_locked(ticket) || table_add_locked(ticket));
    umf_unlock(&table_lock);
    return is_there;
}

void umf_broker_drop(const umf_fd_ticket_t *ticket) {
    if (ticket->export_id == 0) {
        return;
    }
    umf_lock(&table_lock);
    broker_export_t *export =
        table_knows_locked(ticket) ? umf_hash_remove(&table.exports, ticket->export_id) : NULL;
    umf_unlock(&table_lock);
    umf_meta_free(export, sizeof(*export));
}

/* --- answers --- */

/* Takes the same time wherever the secrets differ, so that the time reveals nothing about them. */
static bool secrets_match(const uint64_t a[2], const uint64_t b[2]) {
    return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
}

/* The program may have closed the descriptor without our knowledge, so the file is
 * compared, too. */
static bool export_is_open(const broker_export_t *export) {
    umf_os_identity_t now;
    return umf_os_identity(export->fd, &now) == 0 && umf_os_is_identity(&now, &export->file);
}

static umf_broker_status_t table_find_locked(const umf_broker_request_t *request, int *fd) {
    const broker_export_t *export =
        request->export_id ? umf_hash_get(&table.exports, request->export_id) : NULL;
    if (export && !secrets_match(request->secret, export->secret)) {
        return UMF_BROKER_DENIED;
    }
    if (!export || export->file.dev != request->dev || export->file.ino != request->ino ||
        !export_is_open(export)) {
        return UMF_BROKER_GONE;
    }
    *fd = export->fd;
    return UMF_BROKER_GIVEN;
}

/* Never waits: without room for the answer the consumer gets none. */
static void broker_reply(int connection, umf_broker_status_t status, int fd) {
    umf_broker_reply_t reply = {
        .magic = UMF_BROKER_MAGIC,
        .version = UMF_BROKER_VERSION,
        .status = (uint32_t)status,
    };
    int error = umf_socket_send(connection, &reply, sizeof(reply), fd);
    if (error != 0) {
        UMF_LOG_DEBUG("an answer could not be sent (errno %d)", error);
    }
}

/* The lock keeps the descriptor open until it is sent. */
static void broker_answer(int connection, const umf_broker_request_t *request) {
    int fd = -1;
    umf_lock(&table_lock);
    umf_broker_status_t status = table_find_locked(request, &fd);
    broker_reply(connection, status, fd);
    umf_unlock(&table_lock);
    if (status != UMF_BROKER_GIVEN) {
        UMF_LOG_INFO("a process requested export %llu %s", (unsigned long long)request->export_id,
                     status == UMF_BROKER_GONE ? "which is not there (any more)"
                                               : "without knowing the secret");
    }
}

void umf_broker_deny(int connection) {
    broker_reply(connection, UMF_BROKER_DENIED, -1);
}

bool umf_broker_serve(int connection) {
    umf_broker_request_t request;
    size_t got;
    int error = umf_socket_receive(connection, &request, sizeof(request), &got, NULL);
    if (error == EAGAIN) {
        return false;
    }
    /* A request in another format gets no answer. */
    if (error == 0 && got == sizeof(request) && request.magic == UMF_BROKER_MAGIC &&
        request.version == UMF_BROKER_VERSION) {
        broker_answer(connection, &request);
    }
    return true;
}
