#include "peer/attach_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/lock.h"
#include "base/log.h"
#include "peer/thread.h"
#include "system/os.h"
#include "system/socket.h"

#define ATTACH_BACKLOG 16

/* In ms: without free descriptors nobody is accepted for so long. */
#define ATTACH_PAUSE 50

UMF_LOCK_STATIC(attach_lock, UMF_RANK_BROKER);

static const umf_attach_socket_ops_t
    *attach_ops; /* Sync: attach_lock, and the thread, as the next two */
static pthread_t attach_thread;
static bool attach_has_thread;
static uint32_t attach_owner;         /* pid to which these belong. Sync: attach_lock */
static _Atomic uint32_t attach_opens; /* pid of the process in which it is open; 0: none */
static atomic_bool attach_stops;

/* Descriptors are opened and closed under this lock, so that a forked child knows exactly which are
 * open. The thread alone changes the clients; others close the listener. */
UMF_LOCK_STATIC(attach_fds_lock, UMF_RANK_EXPORTED);
static int attach_fd = -1;                     /* Sync: attach_fds_lock for writers */
static uint64_t attach_ino;                    /* tells whether `attach_fd` is still ours */
static int attach_clients[UMF_ATTACH_CLIENTS]; /* -1: free; all 0 before the first start */

/* --- descriptors --- */

/* The program may have closed it, and opened something else under the same number. */
static bool fd_is_ours(int fd, uint64_t ours) {
    uint64_t dev, ino = ours, size;
    return fd != -1 && umf_os_file_id(fd, &dev, &ino, &size) != EBADF && ino == ours;
}

static void listener_close(void) {
    umf_lock(&attach_fds_lock);
    if (fd_is_ours(attach_fd, attach_ino)) {
        umf_os_close(attach_fd);
    }
    attach_fd = -1;
    umf_unlock(&attach_fds_lock);
}

static void client_close(unsigned client) {
    umf_lock(&attach_fds_lock);
    umf_os_close(attach_clients[client]);
    attach_clients[client] = -1;
    umf_unlock(&attach_fds_lock);
    attach_ops->leaves(client);
}

/* UMF_ATTACH_CLIENTS: there is no room. */
static unsigned client_free(void) {
    unsigned client = 0;
    while (client < UMF_ATTACH_CLIENTS && attach_clients[client] != -1) {
        client++;
    }
    return client;
}

static bool admits(int connection) {
    uint32_t uid, pid;
    return umf_socket_peer(connection, &uid, &pid) == 0 && (uid == umf_os_user() || uid == 0);
}

/* 0, or the errno value of accept. */
static int client_accept(void) {
    unsigned client = client_free();
    int connection = -1;
    umf_lock(&attach_fds_lock);
    int error = umf_socket_accept(attach_fd, &connection);
    if (error == 0 && client < UMF_ATTACH_CLIENTS) {
        attach_clients[client] = connection;
    }
    umf_unlock(&attach_fds_lock);
    if (error != 0) {
        return error;
    }
    if (client == UMF_ATTACH_CLIENTS) {
        attach_ops->refuse(connection, true);
        umf_os_close(connection);
    } else if (!admits(connection)) {
        attach_ops->refuse(connection, false);
        client_close(client);
    }
    return 0;
}

static void clients_close(void) {
    for (unsigned i = 0; i < UMF_ATTACH_CLIENTS; i++) {
        if (attach_clients[i] != -1) {
            client_close(i);
        }
    }
}

/* --- the thread --- */

typedef struct attach_turn_t {
    struct pollfd polled[1 + UMF_ATTACH_CLIENTS]; /* the listener is first */
    uint64_t pause_end;                           /* nobody is accepted before this time */
} attach_turn_t;

static int turn_wait(attach_turn_t *turn) {
    uint64_t now = umf_socket_now();
    bool is_paused = now < turn->pause_end;
    turn->polled[0] = (struct pollfd){.fd = attach_fd, .events = is_paused ? 0 : POLLIN};
    for (unsigned i = 0; i < UMF_ATTACH_CLIENTS; i++) {
        turn->polled[1 + i] = (struct pollfd){.fd = attach_clients[i], .events = POLLIN};
    }
    return poll(turn->polled, 1 + UMF_ATTACH_CLIENTS, is_paused ? ATTACH_PAUSE : UMF_PEER_TICK);
}

/* false: the socket can accept no more connections. */
static bool turn_accept(attach_turn_t *turn) {
    int error = fd_is_ours(attach_fd, attach_ino) ? client_accept() : EBADF;
    if (error == EBADF || error == EINVAL) {
        return false;
    }
    if (error != 0 && error != EAGAIN && error != ECONNABORTED) {
        turn->pause_end = umf_socket_now() + ATTACH_PAUSE;
    }
    return true;
}

static void turn_serve(const attach_turn_t *turn) {
    for (unsigned i = 0; i < UMF_ATTACH_CLIENTS && !umf_attach_socket_is_closing(); i++) {
        if (turn->polled[1 + i].revents && attach_clients[i] != -1 &&
            !attach_ops->serve(i, attach_clients[i])) {
            client_close(i);
        }
    }
}

/* Serves until it is stopped or the program has closed the socket. true: the program has ended but
 * for this thread. */
static bool attach_serve(void) {
    attach_turn_t turn = {.pause_end = 0};
    while (!umf_attach_socket_is_closing()) {
        int events = turn_wait(&turn);
        if (events == 0 && umf_os_is_last_thread()) {
            return true;
        }
        if (events > 0) {
            turn_serve(&turn);
        }
        if (events > 0 && turn.polled[0].revents && !umf_attach_socket_is_closing() &&
            !turn_accept(&turn)) {
            return false;
        }
    }
    return false;
}

static void attach_end_locked(void);

static void attach_end(void) {
    umf_lock(&attach_lock);
    attach_end_locked();
    umf_unlock(&attach_lock);
}

static void (*const attach_is_last)(void) = attach_end;

static void *attach_run(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "umf-attach");
    umf_os_own_thread_begins();
    bool is_last = attach_serve();
    umf_os_own_thread_ends();
    clients_close();
    atomic_store_explicit(&attach_opens, 0, memory_order_release);
    if (is_last) {
        umf_peer_thread_leave(&attach_is_last);
    }
    return NULL;
}

/* --- open and close --- */

/* Called in a forked child. The thread does not exist here, and the sockets are the parent's, which
 * would seem to be alive while the child keeps them open. */
static void attach_forget_parent(void) {
    if (attach_owner == 0 || attach_owner == (uint32_t)umf_os_pid()) {
        return;
    }
    for (unsigned i = 0; i < UMF_ATTACH_CLIENTS; i++) {
        if (attach_clients[i] != -1) {
            umf_os_close(attach_clients[i]);
            attach_clients[i] = -1;
        }
    }
    if (fd_is_ours(attach_fd, attach_ino)) {
        umf_os_close(attach_fd);
    }
    attach_fd = -1;
    attach_has_thread = false;
    attach_owner = 0;
    atomic_store(&attach_opens, 0);
}

static void attach_watch_forks(void) {
    static bool is_done;
    if (!is_done) {
        is_done = pthread_atfork(NULL, NULL, attach_forget_parent) == 0;
    }
}

/* The number of the namespace is in the name: those who share a network may not share numbers of
 * processes. */
static int attach_address(uint32_t pid, umf_socket_address_t *address) {
    char name[64];
    struct stat space;
    if (stat("/proc/self/ns/pid", &space) != 0) {
        return errno;
    }
    snprintf(name, sizeof(name), "umf-attach-%llu-%u", (unsigned long long)space.st_ino, pid);
    return umf_socket_abstract(name, address);
}

static int listen_at(int fd, const umf_socket_address_t *address) {
    uint64_t dev, size;
    int error = umf_os_file_id(fd, &dev, &attach_ino, &size);
    if (error == 0) {
        error = umf_socket_bind(fd, address);
    }
    return error != 0 ? error : umf_socket_listen(fd, ATTACH_BACKLOG);
}

static int listener_open(uint32_t pid) {
    umf_socket_address_t address;
    int fd = -1;
    int error = attach_address(pid, &address);
    if (error == 0) {
        error = umf_socket_open(&fd);
    }
    if (error != 0) {
        return error;
    }
    umf_lock(&attach_fds_lock);
    error = listen_at(fd, &address);
    if (error == 0) {
        attach_fd = fd;
    } else {
        umf_os_close(fd);
    }
    umf_unlock(&attach_fds_lock);
    return error;
}

/* Waits for a thread that was told to end, or that has ended by itself. */
static void attach_end_locked(void) {
    umf_assert_locked(&attach_lock);
    if (!attach_has_thread) {
        return;
    }
    if (!pthread_equal(attach_thread, pthread_self())) {
        pthread_join(attach_thread, NULL);
    }
    attach_has_thread = false;
    listener_close();
}

static int attach_open_locked(uint32_t pid, const umf_attach_socket_ops_t *ops) {
    attach_forget_parent();
    attach_end_locked();
    for (unsigned i = 0; i < UMF_ATTACH_CLIENTS; i++) {
        attach_clients[i] = -1;
    }
    int error = listener_open(pid);
    if (error != 0) {
        return error;
    }
    attach_watch_forks();
    attach_ops = ops;
    attach_owner = pid;
    atomic_store_explicit(&attach_stops, false, memory_order_release);
    atomic_store_explicit(&attach_opens, pid, memory_order_release);
    error = umf_peer_thread_start(&attach_thread, attach_run);
    if (error != 0) {
        atomic_store_explicit(&attach_opens, 0, memory_order_release);
        listener_close();
        return error;
    }
    attach_has_thread = true;
    return 0;
}

bool umf_attach_socket_is_open(void) {
    return atomic_load_explicit(&attach_opens, memory_order_acquire) == (uint32_t)umf_os_pid();
}

bool umf_attach_socket_is_closing(void) {
    return atomic_load_explicit(&attach_stops, memory_order_acquire);
}

int umf_attach_socket_open(const umf_attach_socket_ops_t *ops) {
    int error = 0;
    if (!umf_trylock(&attach_lock)) {
        return EBUSY;
    }
    if (!umf_attach_socket_is_open()) {
        error = attach_open_locked((uint32_t)umf_os_pid(), ops);
    }
    umf_unlock(&attach_lock);
    if (error != 0) {
        umf_log_write(UMF_LOG_LEVEL_DEBUG, error, __func__,
                      "other programs cannot look at this process");
    }
    return error;
}

/* A socket that is shut down wakes the thread. */
void umf_attach_socket_close(void) {
    umf_lock(&attach_lock);
    if (attach_has_thread && attach_owner == (uint32_t)umf_os_pid()) {
        atomic_store_explicit(&attach_stops, true, memory_order_release);
        umf_lock(&attach_fds_lock);
        if (fd_is_ours(attach_fd, attach_ino)) {
            umf_socket_shutdown(attach_fd);
        }
        umf_unlock(&attach_fds_lock);
        attach_end_locked();
    }
    umf_unlock(&attach_lock);
}
