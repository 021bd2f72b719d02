/* When the attach socket is open, and its messages. */
#include "record/attach.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/dl.h"
#include "base/log.h"
#include "core/listener.h"
#include "core/object.h"
#include "peer/server.h"
#include "record/attach_own.h"
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
        [UMF_ATTACH_DENIED] = "the process belongs to another user",
        [UMF_ATTACH_FULL] = "as many programs as can look at the process do so already",
        [UMF_ATTACH_UNKNOWN] = "the request is none that this version of the library knows",
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
    umf_attach_answer_t answer = answer_make(request.kind);
    umf_attach_serve(client, &request, &answer);
    return answer_send(connection, &answer);
}

static void refuse_new(int connection, bool is_full) {
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

static bool admits(uint32_t uid) {
    return uid == umf_os_user() || uid == 0;
}

/* It is not the broker's thread: a snapshot takes up to a second, and those who share memory do not
 * wait for that. */
static const umf_peer_server_ops_t attach_ops = {
    .thread = "umf-attach",
    .connections = UMF_ATTACH_CLIENTS,
    .listen = attach_listen,
    .admits = admits,
    .refuse = refuse_new,
    .serve = serve,
    .leaves = umf_attach_forget,
};

UMF_PEER_SERVER(attach, &attach_ops)

bool umf_attach_is_closing(void) {
    return umf_peer_server_is_stopping(&attach);
}

/* A free may call it, whatever the thread is doing: it never waits for a lock. */
static int attach_open(uint32_t pid) {
    int error = umf_peer_server_start(&attach, pid, false);
    if (error != 0 && error != EBUSY) {
        umf_log_write(UMF_LOG_LEVEL_DEBUG, error, __func__,
                      "other programs cannot look at this process");
    }
    return error;
}

/* --- when --- */

typedef enum attach_may_t { MAY_UNSET, MAY, MAY_NOT } attach_may_t;

static _Atomic int attach_may;        /* attach_may_t */
static _Atomic uint32_t attach_tried; /* pid of the process in which it was tried last */

static bool may_open(void) {
    int may = atomic_load(&attach_may);
    return may == MAY || (may == MAY_UNSET && !umf_os_has_filter());
}

/* Tried once in each process, because what stops it usually stays. */
static UMF_COLD void try_open(uint32_t pid) {
    if (atomic_exchange(&attach_tried, pid) != pid && may_open() && attach_open(pid) == EBUSY) {
        atomic_store(&attach_tried, 0);
    }
}

static bool was_tried(void) {
    return atomic_load_explicit(&attach_tried, memory_order_relaxed) == (uint32_t)umf_os_pid();
}

static void open_once(void) {
    if (umf_unlikely(!was_tried())) {
        try_open((uint32_t)umf_os_pid());
    }
}

/* Does this library serve the program's malloc? */
static bool is_malloc(void) {
    static _Atomic int known; /* 0: not known yet; else 1 plus the answer */
    int is = atomic_load_explicit(&known, memory_order_relaxed);
    if (is == 0) {
        is = 1 + umf_dl_is_from("malloc_usable_size", "libumf_proxy.so");
        atomic_store_explicit(&known, is, memory_order_relaxed);
    }
    return is == 2;
}

static void pool_begins(umf_memory_pool_handle_t pool) {
    (void)pool;
    if (umf_unlikely(!was_tried()) && !is_malloc()) {
        open_once();
    }
}

/* A child of fork that goes on with its parent's pools is found when it has freed often. */
static void frees_often(void) {
    open_once();
}

void umf_attach_set(bool may) {
    atomic_store(&attach_may, may ? MAY : MAY_NOT);
    atomic_store(&attach_tried, 0);
    if (!may) {
        umf_peer_server_stop(&attach);
    } else if (umf_pool_highest_index() > 0) {
        open_once();
    }
}

bool umf_attach_get(void) {
    return may_open();
}

void umf_attach_init(void) {
    static umf_listener_t listener = {.pool_begins = pool_begins, .frees_often = frees_often};
    umf_core_listen(&listener);
}

void umf_attach_stop(void) {
    umf_peer_server_stop(&attach);
    atomic_store(&attach_tried, 0);
}
