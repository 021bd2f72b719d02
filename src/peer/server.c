#include "peer/server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "base/log.h"
#include "system/os.h"
#include "system/socket.h"

/* Threads have a stack of the usual size, because callbacks of the program run in some, and at
 * least so much if the program has made that small. */
#define STACK_LEAST ((size_t)256 << 10)

/* In ms: without an event it checks so often whether the program has ended but for it. */
#define TICK 2000

/* In ms: after accept failed without free descriptors, it pauses for so long. */
#define PAUSE 50

static umf_peer_server_t *servers; /* Immutable after load */

/* --- descriptors --- */

static int listener_open(umf_peer_server_t *server) {
    int fd;
    umf_lock(&server->fds_lock);
    int error = umf_socket_open(&fd);
    if (error == 0) {
        error = umf_kept_fd_take(&server->listener, fd);
    }
    umf_unlock(&server->fds_lock);
    return error;
}

static void listener_close(umf_peer_server_t *server) {
    umf_lock(&server->fds_lock);
    umf_kept_fd_close(&server->listener);
    umf_unlock(&server->fds_lock);
}

static void connection_close(umf_peer_server_t *server, unsigned slot) {
    umf_lock(&server->fds_lock);
    umf_kept_fd_close(&server->connections[slot]);
    umf_unlock(&server->fds_lock);
}

/* --- connections --- */

static void connection_end(umf_peer_server_t *server, unsigned slot) {
    connection_close(server, slot);
    if (server->ops->leaves) {
        server->ops->leaves(slot);
    }
}

/* A free slot. The last one, for one that is refused, if there is none. */
static unsigned slot_get(const umf_peer_server_t *server) {
    unsigned slot = 0;
    while (slot < server->ops->connections && server->connections[slot].is_kept) {
        slot++;
    }
    return slot;
}

/* Ends the connection that has waited longest, whose process may connect again, and returns its
 * slot. */
static unsigned slot_clear(umf_peer_server_t *server) {
    unsigned oldest = 0;
    for (unsigned i = 1; i < server->ops->connections; i++) {
        oldest = server->deadlines[i] < server->deadlines[oldest] ? i : oldest;
    }
    connection_end(server, oldest);
    return oldest;
}

static void connection_move(umf_peer_server_t *server, unsigned from, unsigned to) {
    umf_lock(&server->fds_lock);
    server->connections[to] = server->connections[from];
    server->connections[from].is_kept = false;
    umf_unlock(&server->fds_lock);
}

/* 0, or the errno value of accept. Nobody loses a slot to a process that may not come in. */
static int connection_accept(umf_peer_server_t *server) {
    const umf_peer_server_ops_t *ops = server->ops;
    unsigned slot = slot_get(server);
    int connection;
    umf_lock(&server->fds_lock);
    int error = umf_socket_accept(server->listener.number, &connection);
    if (error == 0) {
        error = umf_kept_fd_take(&server->connections[slot], connection);
    }
    umf_unlock(&server->fds_lock);
    if (error != 0) {
        return error;
    }
    bool is_full = slot == ops->connections && !ops->time_limit;
    if (is_full || !ops->admits(connection)) {
        ops->refuse(connection, is_full);
        connection_close(server, slot);
        return 0;
    }
    if (slot == ops->connections) {
        slot = slot_clear(server);
        connection_move(server, ops->connections, slot);
    }
    server->deadlines[slot] =
        ops->time_limit ? umf_socket_now() + (uint64_t)ops->time_limit() : UINT64_MAX;
    return 0;
}

/* --- the thread --- */

typedef struct turn_t {
    struct pollfd polled[1 + UMF_PEER_CONNECTIONS]; /* the listener is first */
    uint64_t pause_end;                             /* no connection is accepted before this time */
} turn_t;

static struct pollfd polled(const umf_kept_fd_t *kept, short events) {
    return (struct pollfd){.fd = kept->is_kept ? kept->number : -1, .events = events};
}

static int turn_wait(umf_peer_server_t *server, turn_t *turn) {
    uint64_t now = umf_socket_now(), end = now + TICK;
    bool is_paused = now < turn->pause_end;
    turn->polled[0] = polled(&server->listener, is_paused ? 0 : POLLIN);
    end = is_paused && turn->pause_end < end ? turn->pause_end : end;
    for (unsigned i = 0; i < server->ops->connections; i++) {
        turn->polled[1 + i] = polled(&server->connections[i], POLLIN);
        if (server->connections[i].is_kept && server->deadlines[i] < end) {
            end = server->deadlines[i];
        }
    }
    return poll(turn->polled, 1 + server->ops->connections, end > now ? (int)(end - now) : 0);
}

/* false: the connection has ended, or the program has closed it. */
static bool connection_serve(umf_peer_server_t *server, unsigned slot) {
    const umf_kept_fd_t *connection = &server->connections[slot];
    return umf_kept_fd_is_open(connection) && server->ops->serve(slot, connection->number);
}

static void turn_serve(umf_peer_server_t *server, const turn_t *turn, bool is_any) {
    uint64_t now = umf_socket_now();
    for (unsigned i = 0; i < server->ops->connections && !umf_peer_server_is_stopping(server);
         i++) {
        if (server->connections[i].is_kept &&
            ((is_any && turn->polled[1 + i].revents && !connection_serve(server, i)) ||
             now >= server->deadlines[i])) {
            connection_end(server, i);
        }
    }
}

/* false: the socket can accept no more connections. */
static bool turn_accept(umf_peer_server_t *server, turn_t *turn) {
    int error = umf_kept_fd_is_open(&server->listener) ? connection_accept(server) : EBADF;
    if (error == EBADF || error == EINVAL) {
        return false;
    }
    if (error != 0 && error != EAGAIN && error != ECONNABORTED) {
        turn->pause_end = umf_socket_now() + PAUSE;
    }
    return true;
}

typedef enum server_end_t {
    END_STOPPED,
    END_CLOSED, /* the program has closed the socket */
    END_LAST,   /* the program has ended but for this thread */
} server_end_t;

static server_end_t server_serve(umf_peer_server_t *server) {
    turn_t turn = {.pause_end = 0};
    while (!umf_peer_server_is_stopping(server)) {
        int events = turn_wait(server, &turn);
        if (events == 0 && umf_os_is_last_thread()) {
            return END_LAST;
        }
        turn_serve(server, &turn, events > 0);
        if (events > 0 && turn.polled[0].revents && !umf_peer_server_is_stopping(server) &&
            !turn_accept(server, &turn)) {
            if (server->ops->closed) {
                UMF_LOG_WARN("%s", server->ops->closed);
            }
            return END_CLOSED;
        }
    }
    return END_STOPPED;
}

/* The thread ends, and no start takes that back. A socket that is shut down wakes the thread. */
static void shut_locked(umf_peer_server_t *server) {
    umf_assert_locked(&server->lock);
    if (server->is_shut) {
        return;
    }
    server->is_shut = true;
    atomic_store_explicit(&server->stops, true, memory_order_release);
    if (server->ops->unlisten) {
        server->ops->unlisten();
    }
    umf_lock(&server->fds_lock);
    if (umf_kept_fd_is_open(&server->listener)) {
        umf_socket_shutdown(server->listener.number);
    }
    umf_unlock(&server->fds_lock);
}

/* false: the stop has been taken back. */
static bool end_begins(umf_peer_server_t *server, server_end_t end) {
    umf_lock(&server->lock);
    bool ends = end != END_STOPPED || umf_peer_server_is_stopping(server);
    if (ends) {
        shut_locked(server);
    }
    umf_unlock(&server->lock);
    return ends;
}

/* Waits for the thread, which has been stopped or has ended by itself. The lock is free meanwhile,
 * because callbacks of the program run in the thread, and may start or stop the server. */
static void thread_join_locked(umf_peer_server_t *server) {
    umf_assert_locked(&server->lock);
    uint64_t number = server->number;
    if (server->has_thread && !server->is_joined) {
        pthread_t thread = server->thread;
        server->is_joined = true;
        umf_unlock(&server->lock);
        pthread_join(thread, NULL);
        umf_lock(&server->lock);
        server->is_joined = server->has_thread = false;
        listener_close(server);
        umf_event_count_advance(&server->joined);
    }
    while (server->has_thread && server->number == number) {
        uint32_t seen = umf_event_count_read(&server->joined);
        umf_unlock(&server->lock);
        umf_event_count_wait(&server->joined, seen);
        umf_lock(&server->lock);
    }
}

static void *be_last(void *arg) {
    umf_peer_server_t *server = arg;
    sigset_t none;
    umf_lock(&server->lock);
    thread_join_locked(server);
    umf_unlock(&server->lock);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    return NULL;
}

/* The last thread of a program runs its exit handlers. The calling thread ends now and leaves that
 * to one with the usual signals. */
static void leave(umf_peer_server_t *server) {
    pthread_t last;
    if (pthread_create(&last, NULL, be_last, server) == 0) {
        pthread_detach(last);
    }
}

static void *server_run(void *arg) {
    umf_peer_server_t *server = arg;
    server_end_t end;
    pthread_setname_np(pthread_self(), server->ops->thread);
    umf_os_own_thread_begins();
    do {
        end = server_serve(server);
    } while (!end_begins(server, end));
    umf_os_own_thread_ends();
    for (unsigned i = 0; i < server->ops->connections; i++) {
        if (server->connections[i].is_kept) {
            connection_end(server, i);
        }
    }
    atomic_store_explicit(&server->runs, 0, memory_order_release);
    if (end == END_LAST) {
        leave(server);
    }
    return NULL;
}

/* --- start and stop --- */

void umf_peer_server_register(umf_peer_server_t *server) {
    umf_lock_register(&server->lock);
    umf_lock_register(&server->fds_lock);
    server->next = servers;
    servers = server;
}

/* Called in a forked child. The thread does not exist here, and the sockets are the parent's, which
 * would seem to be alive while the child keeps them open. */
static void server_forget_parent(umf_peer_server_t *server) {
    if (server->owner == 0 || server->owner == (uint32_t)umf_os_pid()) {
        return;
    }
    for (unsigned i = 0; i <= UMF_PEER_CONNECTIONS; i++) {
        if (server->connections[i].is_kept) {
            connection_close(server, i);
        }
    }
    listener_close(server);
    server->has_thread = server->is_joined = false;
    server->owner = 0;
    atomic_store(&server->runs, 0);
}

static void forget_parent(void) {
    for (umf_peer_server_t *server = servers; server; server = server->next) {
        server_forget_parent(server);
    }
}

static void watch_forks(void) {
    static atomic_bool is_done;
    if (!atomic_exchange(&is_done, true) && pthread_atfork(NULL, NULL, forget_parent) != 0) {
        atomic_store(&is_done, false);
    }
}

static int attributes_make(pthread_attr_t *attributes) {
    size_t size = 0;
    int error = pthread_getattr_default_np(attributes);
    if (error == 0 && pthread_attr_getstacksize(attributes, &size) == 0 && size < STACK_LEAST) {
        pthread_attr_setstacksize(attributes, STACK_LEAST);
    }
    return error;
}

/* 0 or an errno value. */
static int thread_start(umf_peer_server_t *server) {
    pthread_attr_t attributes;
    sigset_t all, before;
    int error = attributes_make(&attributes);
    if (error != 0) {
        return error;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&server->thread, &attributes, server_run, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* The socket listens already. */
static int server_run_locked(umf_peer_server_t *server, uint32_t pid) {
    atomic_store_explicit(&server->stops, false, memory_order_release);
    atomic_store_explicit(&server->runs, pid, memory_order_release);
    server->is_shut = false;
    server->number++;
    int error = thread_start(server);
    server->has_thread = error == 0;
    if (error != 0) {
        atomic_store_explicit(&server->runs, 0, memory_order_release);
        if (server->ops->unlisten) {
            server->ops->unlisten();
        }
    }
    return error;
}

static int server_begin_locked(umf_peer_server_t *server, uint32_t pid) {
    watch_forks();
    server->owner = pid;
    int error = listener_open(server);
    if (error != 0) {
        return error;
    }
    error = server->ops->listen(server->listener.number);
    if (error == 0) {
        error = server_run_locked(server, pid);
    }
    if (error != 0) {
        listener_close(server);
    }
    return error;
}

bool umf_peer_server_runs(const umf_peer_server_t *server, uint32_t pid) {
    return atomic_load_explicit(&server->runs, memory_order_acquire) == pid;
}

static int server_start_locked(umf_peer_server_t *server, uint32_t pid, bool may_wait) {
    umf_assert_locked(&server->lock);
    server_forget_parent(server);
    while (server->has_thread) {
        bool runs = umf_peer_server_runs(server, pid);
        if (runs && !server->is_shut) {
            atomic_store_explicit(&server->stops, false, memory_order_release);
            return 0;
        }
        if (runs && (!may_wait || pthread_equal(server->thread, pthread_self()))) {
            return EBUSY;
        }
        thread_join_locked(server);
    }
    return server_begin_locked(server, pid);
}

int umf_peer_server_start(umf_peer_server_t *server, uint32_t pid, bool may_wait) {
    if (umf_peer_server_runs(server, pid) && !umf_peer_server_is_stopping(server)) {
        return 0;
    }
    umf_lock(&server->lock);
    int error = server_start_locked(server, pid, may_wait);
    umf_unlock(&server->lock);
    return error;
}

void umf_peer_server_stop(umf_peer_server_t *server) {
    umf_lock(&server->lock);
    if (server->has_thread && server->owner == (uint32_t)umf_os_pid()) {
        if (pthread_equal(server->thread, pthread_self())) {
            atomic_store_explicit(&server->stops, true, memory_order_release);
        } else {
            shut_locked(server);
            thread_join_locked(server);
        }
    }
    umf_unlock(&server->lock);
}
