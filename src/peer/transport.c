/* The table of transports, and the checks before and after one is used. */
#include "peer/transport.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "peer/broker.h"
#include "peer/process.h"
#include "system/os.h"

enum { TRANSPORT_SELF, TRANSPORT_PROC, TRANSPORT_PIDFD, TRANSPORT_BROKER };

static const umf_transport_t *const transports[] = {
    [TRANSPORT_SELF] = &umf_transport_self,
    [TRANSPORT_PROC] = &umf_transport_proc,
    [TRANSPORT_PIDFD] = &umf_transport_pidfd,
    [TRANSPORT_BROKER] = &umf_transport_broker,
};
#define TRANSPORTS UMF_COUNT_OF(transports)

/* --- the setting ------------------------------------------------------------------------------ */

/* Four bits for each transport: its place in the table plus one. 0 ends the list. */
#define ORDER_BITS 4
_Static_assert(TRANSPORTS < 1 << ORDER_BITS && TRANSPORTS < 32 / ORDER_BITS, "fit into the order");
#define ORDER(a, b, c, d)                                                                          \
    (((uint32_t)(a) + 1) | ((uint32_t)(b) + 1) << ORDER_BITS |                                     \
     ((uint32_t)(c) + 1) << 2 * ORDER_BITS | ((uint32_t)(d) + 1) << 3 * ORDER_BITS)

/*
 * The order unless a setting names another. The broker is last, because it needs an answer of
 * another process. Both `pidfd` and `proc` reach into the producer: `pidfd` is faster, `proc` needs
 * less permission. `proc` comes first where the system restricts attaching: there a refusal may
 * appear in the administrator's records, or a filter may even end the process. It also comes first
 * after the first refusal.
 */
#define ORDER_FAST ORDER(TRANSPORT_SELF, TRANSPORT_PIDFD, TRANSPORT_PROC, TRANSPORT_BROKER)
#define ORDER_MODEST ORDER(TRANSPORT_SELF, TRANSPORT_PROC, TRANSPORT_PIDFD, TRANSPORT_BROKER)

static _Atomic uint32_t transport_order;         /* 0: no setting. Sync: atomic, relaxed */
static _Atomic uint32_t transport_default_order; /* 0: not known yet. Sync: atomic, relaxed */

static uint32_t order_by_default(void) {
    uint32_t order = atomic_load_explicit(&transport_default_order, memory_order_relaxed);
    if (umf_unlikely(order == 0)) {
        order = umf_os_may_attach() ? ORDER_FAST : ORDER_MODEST;
        atomic_store_explicit(&transport_default_order, order, memory_order_relaxed);
    }
    return order;
}

static uint32_t order_now(void) {
    uint32_t order = atomic_load_explicit(&transport_order, memory_order_relaxed);
    return order ? order : order_by_default();
}

static void order_note_refusal(const umf_transport_t *transport, int error) {
    if (transport == &umf_transport_pidfd && (error == EPERM || error == EACCES)) {
        atomic_store_explicit(&transport_default_order, ORDER_MODEST, memory_order_relaxed);
    }
}

/* Writes the names of an order, "self,proc". false: they do not fit. */
static bool order_write(uint32_t order, char *words, size_t size) {
    size_t length = 0;
    for (; order != 0; order >>= ORDER_BITS) {
        const char *name = transports[(order & 15) - 1]->name;
        size_t bytes = strlen(name) + 1;
        if (bytes > size - length) {
            return false;
        }
        memcpy(words + length, name, bytes);
        length += bytes;
        words[length - 1] = ',';
    }
    if (length == 0) {
        return false;
    }
    words[length - 1] = '\0';
    return true;
}

/* The place of a transport plus one. 0: there is none of that name. */
static uint32_t order_find(const char *name, size_t length) {
    for (uint32_t i = 0; i < TRANSPORTS; i++) {
        if (strlen(transports[i]->name) == length &&
            memcmp(transports[i]->name, name, length) == 0) {
            return i + 1;
        }
    }
    return 0;
}

static bool order_has(uint32_t order, uint32_t entry) {
    while (order != 0 && (order & 15) != entry) {
        order >>= ORDER_BITS;
    }
    return order != 0;
}

umf_result_t umf_transport_set_order(const char *words) {
    uint32_t order = 0;
    unsigned shift = 0;
    for (const char *at = words; at; shift += ORDER_BITS) {
        size_t length = strcspn(at, ",");
        uint32_t entry = order_find(at, length);
        if (entry == 0 || order_has(order, entry)) {
            UMF_LOG_ERROR("\"%.80s\" is not a list of ways for memory to other processes: \"%.*s\" "
                          "is %s; there are self, proc, pidfd and broker",
                          words, length < 32 ? (int)length : 32, at,
                          entry == 0 ? "unknown" : "there twice");
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        order |= entry << shift;
        at = at[length] ? at + length + 1 : NULL;
    }
    atomic_store_explicit(&transport_order, order, memory_order_relaxed);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_transport_get_order(char *words, size_t size) {
    char text[64];
    uint32_t order = order_now();
    if (!order_write(order, text, sizeof(text)) || strlen(text) >= size) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memcpy(words, text, strlen(text) + 1);
    return UMF_RESULT_SUCCESS;
}

/* --- tickets ---------------------------------------------------------------------------------- */

_Static_assert(sizeof(umf_fd_ticket_t) == 96, "tickets travel between processes");

umf_result_t umf_ticket_make(int fd, umf_fd_ticket_t *ticket) {
    umf_process_t self;
    umf_os_identity_t file;
    umf_process_self(&self);
    int error = umf_os_identity(fd, &file);
    if (error) {
        errno = error;
        UMF_LOG_PERROR("asking for the identity of descriptor %d failed", fd);
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    *ticket = (umf_fd_ticket_t){
        .boot_id = self.boot_id,
        .start_time = self.start_time,
        .dev = file.dev,
        .ino = file.ino,
        .born = file.born,
        .pid = self.pid,
        .pid_ns = self.pid_ns,
        .fd = fd,
        .version = UMF_TICKET_VERSION,
    };
    return UMF_RESULT_SUCCESS;
}

/* An order without the broker needs none. */
void umf_ticket_prepare(void) {
    uint32_t order = atomic_load_explicit(&transport_order, memory_order_relaxed);
    if (order == 0 || order_has(order, TRANSPORT_BROKER + 1)) {
        umf_broker_start();
    }
}

void umf_ticket_publish(umf_fd_ticket_t *ticket) {
    umf_broker_export(ticket);
}

void umf_ticket_drop(const umf_fd_ticket_t *ticket) {
    umf_broker_drop(ticket);
}

int umf_ticket_check_file(const umf_fd_ticket_t *ticket, int fd) {
    umf_os_identity_t requested = {.dev = ticket->dev, .ino = ticket->ino, .born = ticket->born};
    umf_os_identity_t now;
    int error = umf_os_identity(fd, &now);
    if (error) {
        return error;
    }
    return umf_os_is_identity(&now, &requested) ? 0 : ESTALE;
}

static bool ticket_is_possible(const umf_fd_ticket_t *ticket) {
    bool has_broker = ticket->address_kind != UMF_BROKER_NOWHERE;
    return ticket->fd >= 0 && ticket->pid != 0 && ticket->pid <= INT32_MAX &&
           ticket->version == UMF_TICKET_VERSION && ticket->address_kind <= UMF_BROKER_FOLDER &&
           has_broker == (ticket->export_id != 0);
}

umf_process_t umf_ticket_producer(const umf_fd_ticket_t *ticket) {
    return (umf_process_t){
        .boot_id = ticket->boot_id,
        .start_time = ticket->start_time,
        .pid = ticket->pid,
        .pid_ns = ticket->pid_ns,
    };
}

static umf_result_t ticket_check(const umf_fd_ticket_t *ticket) {
    if (!ticket_is_possible(ticket)) {
        UMF_LOG_ERROR("descriptor %d of process %u (version %u, broker %u, export %llu) cannot "
                      "exist: the handle is damaged, or from another version of the library",
                      ticket->fd, ticket->pid, ticket->version, ticket->address_kind,
                      (unsigned long long)ticket->export_id);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_process_t producer = umf_ticket_producer(ticket);
    return umf_process_check(&producer);
}

/* --- redeeming -------------------------------------------------------------------------------- */

/* Tries one transport and checks the identity of the descriptor. */
static int transport_try(const umf_transport_t *transport, const umf_fd_ticket_t *ticket, int *fd) {
    umf_process_t self;
    umf_process_self(&self);
    if (transport->by_pid && ticket->pid_ns != self.pid_ns) {
        return EXDEV;
    }
    int got;
    int error = transport->redeem(ticket, &got);
    if (error) {
        order_note_refusal(transport, error);
        return error;
    }
    error = umf_ticket_check_file(ticket, got);
    if (error) {
        umf_os_close(got);
        return error;
    }
    *fd = got;
    return 0;
}

/* The meaning of each errno value for a user, and what to do. */
static const struct {
    int error;
    const char *text;
} transport_hints[] = {
    {EPERM, "permission towards the producer is missing (same user? the producer may allow it with "
            "prctl(PR_SET_PTRACER, ...), see also kernel.yama.ptrace_scope)"},
    {EACCES, "permission towards the producer is missing (same user? see also "
             "kernel.yama.ptrace_scope)"},
    {EMFILE, "no descriptor is left (ulimit -n)"},
    {ENFILE, "no descriptor is left in the system"},
    {ESTALE, "the producer has closed the descriptor, its provider is destroyed"},
    {EBADF, "the producer has closed the descriptor, its provider is destroyed"},
    {ENOENT,
     "the producer has closed the descriptor, its provider is destroyed, or /proc hides the "
     "producer (hidepid)"},
    {ESRCH, "the producer has ended"},
    {EXDEV, "the producer's process id holds in another pid namespace (container)"},
    {ENOTCONN,
     "the producer has no broker (left out of its umf.ipc.transports, or not started: see "
     "its log)"},
    {EDESTADDRREQ, "the producer's broker listens in a folder; set umf.ipc.socket_dir "
                   "(UMF_IPC_SOCKET_DIR) to the same folder here"},
    {ECONNREFUSED,
     "no process listens: the producer has ended, or it is in another network namespace, "
     "or in another folder (umf.ipc.socket_dir helps between containers)"},
    {EKEYREJECTED, "the broker serves its own user and root, and processes with its secret (see "
                   "umf.ipc.any_user)"},
    {ENOKEY, "in this user namespace all users without a number look like this process's own, so "
             "the broker's user cannot be told: give the namespace a map of users (uid_map), or "
             "set umf.ipc.any_user=yes here, and the secret of the handle decides alone"},
    {ETIMEDOUT, "the producer did not answer in time: is it stopped? (umf.ipc.timeout)"},
    {EPROTO, "what came back is not an answer of a broker of this version"},
};

static const char *transport_hint(int error) {
    for (size_t i = 0; i < UMF_COUNT_OF(transport_hints); i++) {
        if (transport_hints[i].error == error) {
            return transport_hints[i].text;
        }
    }
    return "unexpected";
}

/* `errors` has one value for each transport; 0: it was not tried. */
static void transport_report(umf_log_level_t level, const umf_fd_ticket_t *ticket, uint32_t order,
                             const int errors[TRANSPORTS]) {
    for (; order != 0; order >>= ORDER_BITS) {
        uint32_t i = (order & 15) - 1;
        if (errors[i]) {
            umf_log_write(level, errors[i], "umf_ticket_redeem",
                          "getting descriptor %d of process %u by way of \"%s\" (%s) failed: %s",
                          ticket->fd, ticket->pid, transports[i]->name, transports[i]->what,
                          transport_hint(errors[i]));
        }
    }
}

static umf_result_t transport_result(const int errors[TRANSPORTS]) {
    bool supported = false;
    for (size_t i = 0; i < TRANSPORTS; i++) {
        if (errors[i] == EMFILE || errors[i] == ENFILE || errors[i] == ENOMEM) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        supported = supported || (errors[i] && errors[i] != ENOSYS && errors[i] != ENOTCONN);
    }
    return supported ? UMF_RESULT_ERROR_INVALID_ARGUMENT : UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t transport_fail(const umf_fd_ticket_t *ticket, uint32_t order,
                                   const int errors[TRANSPORTS]) {
    umf_result_t result = transport_result(errors);
    transport_report(UMF_LOG_LEVEL_ERROR, ticket, order, errors);
    char words[64] = "";
    order_write(order, words, sizeof(words));
    UMF_LOG_ERROR("descriptor %d of process %u cannot be had in any way that applies of \"%s\" "
                  "(umf.ipc.transports)",
                  ticket->fd, ticket->pid, words);
    return result;
}

static umf_result_t ticket_redeem(const umf_fd_ticket_t *ticket, bool copy_only, int *fd) {
    umf_result_t result = ticket_check(ticket);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    int errors[TRANSPORTS] = {0};
    const uint32_t order = order_now();
    for (uint32_t rest = order; rest != 0; rest >>= ORDER_BITS) {
        uint32_t i = (rest & 15) - 1;
        const umf_transport_t *transport = transports[i];
        if ((transport->applies && !transport->applies(ticket)) ||
            (copy_only && !transport->copies)) {
            continue;
        }
        errors[i] = transport_try(transport, ticket, fd);
        if (errors[i] == 0) {
            transport_report(UMF_LOG_LEVEL_DEBUG, ticket, order, errors);
            return UMF_RESULT_SUCCESS;
        }
    }
    return transport_fail(ticket, order, errors);
}

umf_result_t umf_ticket_redeem(const umf_fd_ticket_t *ticket, int *fd) {
    return ticket_redeem(ticket, false, fd);
}

umf_result_t umf_ticket_redeem_copy(const umf_fd_ticket_t *ticket, int *fd) {
    return ticket_redeem(ticket, true, fd);
}
