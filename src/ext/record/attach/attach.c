/* When the attach socket is open, and its messages. */
#include "ext/record/attach/attach.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/log.h"
#include "ext/record/attach/attach_own.h"
#include "object/listener.h"
#include "object/object.h"
#include "peer/server.h"
#include "system/os.h"
#include "system/socket.h"

_Static_assert(sizeof(umf_attach_request_t) == 64, "requests travel between processes");
_Static_assert(sizeof(umf_attach_reply_t) == 256, "replies travel between processes");

/* --- messages --- */

void umf_attach_fail(umf_attach_answer_t *answer, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(answer->reply.text, sizeof(answer->reply.text), format, args);
    va_end(args);
    answer->reply.status = UMF_ATTACH_FAILED;
}

void umf_attach_refuse(umf_attach_answer_t *answer, umf_attach_status_t why) {
    static const char *const texts[] = {
        [UMF_ATTACH_DENIED] = "the process answers only those who may ptrace it: its own user, in "
                              "its namespaces, and root",
        [UMF_ATTACH_FULL] = "as many programs as can look at the process do so already",
        [UMF_ATTACH_UNKNOWN] = "this version of the library has no such request",
    };
    umf_attach_fail(answer, "%s", texts[why]);
    answer->reply.status = (uint32_t)why;
}

static umf_attach_answer_t answer_make(uint32_t kind) {
    return (umf_attach_answer_t){
        .reply =
            {
                .magic = UMF_ATTACH_MAGIC,
                .version = UMF_ATTACH_VERSION,
                .status = UMF_ATTACH_DONE,
                .kind = kind,
            },
        .fd = -1,
    };
}

/* Never waits: a client that does not read gets no answer, and has to go. */
static bool answer_send(int connection, const umf_attach_answer_t *answer) {
    int error = umf_socket_send(connection, &answer->reply, sizeof(answer->reply), answer->fd);
    if (answer->fd != -1) {
        umf_os_close(answer->fd);
    }
    return error == 0;
}

static void refuse(int connection, umf_attach_status_t why) {
    umf_attach_answer_t answer = answer_make(0);
    umf_attach_refuse(&answer, why);
    answer_send(connection, &answer);
}

static bool is_request(const umf_attach_request_t *request, size_t got) {
    return got == sizeof(*request) && request->magic == UMF_ATTACH_MAGIC &&
           request->version == UMF_ATTACH_VERSION;
}

/* Users and rights of the process and the inspector may have changed since the accept. */
static bool serve(unsigned client, int connection) {
    umf_attach_request_t request;
    size_t got = 0;
    int error = umf_socket_receive(connection, &request, sizeof(request), &got, NULL);
    if (error == EAGAIN) {
        return true;
    }
    if (error != 0 || got == 0) {
        return false;
    }
    if (!is_request(&request, got)) {
        refuse(connection, UMF_ATTACH_UNKNOWN);
        return false;
    }
    if (!umf_attach_admits(connection)) {
        refuse(connection, UMF_ATTACH_DENIED);
        return false;
    }
    umf_attach_answer_t answer = answer_make(request.kind);
    umf_attach_serve(client, &request, &answer);
    return answer_send(connection, &answer);
}

/* A request that has come already is read, because the answer is lost with a connection that is
 * closed with something unread. */
static void refuse_new(int connection, bool is_full) {
    umf_attach_request_t request;
    size_t got;
    umf_socket_receive(connection, &request, sizeof(request), &got, NULL);
    refuse(connection, is_full ? UMF_ATTACH_FULL : UMF_ATTACH_DENIED);
}

/* --- the socket --- */

#define ATTACH_BACKLOG 16

/* The number of the namespace is in the name: those who share a network may not share numbers of
 * processes. */
static int attach_listen(int fd) {
    umf_socket_address_t address;
    char name[64];
    struct stat space;
    if (stat("/proc/self/ns/pid", &space) != 0) {
        return errno;
    }
    snprintf(name, sizeof(name), "umf-attach-%llu-%d", (unsigned long long)space.st_ino,
             umf_os_pid());
    int error = umf_socket_abstract(name, &address);
    if (error == 0) {
        error = umf_socket_bind(fd, &address);
    }
    return error != 0 ? error : umf_socket_listen(fd, ATTACH_BACKLOG);
}

/* It is not the broker's thread: a snapshot takes up to a second, and those who share memory do not
 * wait for that. */
static const umf_peer_server_ops_t attach_ops = {
    .thread = "umf-attach",
    .connections = UMF_ATTACH_CLIENTS,
    .listen = attach_listen,
    .admits = umf_attach_admits,
    .refuse = refuse_new,
    .serve = serve,
    .leaves = umf_attach_forget,
};

UMF_PEER_SERVER(attach, &attach_ops)

bool umf_attach_is_closing(void) {
    return umf_peer_server_is_stopping(&attach);
}

/* --- when --- */

static atomic_bool attach_may;        /* it was requested */
static _Atomic uint32_t attach_tried; /* pid of the process in which it was tried last */

static umf_result_t attach_open(uint32_t pid) {
    const char *why = umf_attach_forbidden();
    int error = why ? EPERM : umf_peer_server_start(&attach, pid, false);
    atomic_store(&attach_tried, pid);
    if (error == 0 || error == EBUSY) { /* the stop starts it again if it is requested by then */
        return UMF_RESULT_SUCCESS;
    }
    if (why) {
        UMF_LOG_WARN("no program can look at this process, as umf.record.attach requests: %s", why);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_log_write(UMF_LOG_LEVEL_WARNING, error, __func__,
                  "no program can look at this process, as umf.record.attach requests%s",
                  error == EADDRINUSE ? ": another program has taken the name of its socket" : "");
    return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

/* Tried once in each process, because what stops it usually stays. */
static UMF_COLD void open_once(void) {
    uint32_t pid = (uint32_t)umf_os_pid();
    if (atomic_exchange(&attach_tried, pid) != pid) {
        attach_open(pid);
    }
}

static void pool_begins(umf_memory_pool_handle_t pool) {
    (void)pool;
    if (umf_unlikely(atomic_load_explicit(&attach_may, memory_order_relaxed))) {
        open_once();
    }
}

umf_result_t umf_attach_set(bool may) {
    atomic_store(&attach_may, may);
    if (!may) {
        umf_peer_server_stop(&attach);
        atomic_store(&attach_tried, 0);
    }
    /* Read again: a callback in the thread may have turned it on during the wait. */
    return umf_is_started() && atomic_load(&attach_may) ? attach_open((uint32_t)umf_os_pid())
                                                        : UMF_RESULT_SUCCESS;
}

bool umf_attach_get(void) {
    uint32_t pid = (uint32_t)umf_os_pid();
    return atomic_load(&attach_may) &&
           (atomic_load(&attach_tried) != pid || umf_peer_server_runs(&attach, pid));
}

void umf_attach_init(void) {
    static umf_listener_t listener = {.pool_begins = pool_begins};
    umf_core_listen(&listener);
}

void umf_attach_stop(void) {
    umf_peer_server_stop(&attach);
    atomic_store(&attach_tried, 0);
}
