/* The thread of the broker: start, stop, fork, and the order in which it serves connections. */
#include "peer/broker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "base/log.h"
#include "peer/broker_own.h"
#include "peer/process.h"
#include "peer/thread.h"
#include "system/os.h"

/* In ms: without free descriptors it accepts nobody for so long. */
#define BROKER_PAUSE 50

UMF_LOCK_STATIC(broker_lock, UMF_RANK_BROKER);

static umf_broker_listener_t broker_listener = {.fd = -1}; /* Sync: broker_lock, and the thread */
static pthread_t broker_thread;                            /* Sync: broker_lock */
static bool broker_has_thread;                             /* Sync: broker_lock */
static uint32_t broker_owner;        /* pid to which these three belong. Sync: broker_lock */
static _Atomic uint32_t broker_runs; /* pid of the process in which it serves; 0: none */
static atomic_bool broker_stops;

/* --- connections --- */

typedef struct broker_connection_t {
    int fd;
    uint64_t deadline;
} broker_connection_t;

/* Sync: connections_lock for writers; the thread is the only one. Descriptors are opened and closed
 * under it, so that a forked child knows exactly which are open. */
UMF_LOCK_STATIC(connections_lock, UMF_RANK_EXPORTED);
static broker_connection_t connections[UMF_BROKER_CONNECTIONS];
static size_t connection_count;

static void connection_close(size_t at) {
    umf_lock(&connections_lock);
    int fd = connections[at].fd;
    for (size_t i = at + 1; i < connection_count; i++) {
        connections[i - 1] = connections[i]; /* keeps the order of the deadlines */
    }
    connection_count--;
    umf_os_close(fd);
    umf_unlock(&connections_lock);
}

/* 0, or the errno value of accept. */
static int connection_accept(void) {
    if (connection_count == UMF_BROKER_CONNECTIONS) {
        /* Closes the connection that has waited longest; that process may connect again. */
        connection_close(0);
    }
    umf_lock(&connections_lock);
    broker_connection_t *made = &connections[connection_count];
    int error = umf_socket_accept(broker_listener.fd, &made->fd);
    if (error == 0) {
        connection_count++;
    }
    umf_unlock(&connections_lock);
    if (error != 0) {
        return error;
    }
    made->deadline = umf_socket_now() + (uint64_t)umf_broker_get_timeout();
    uint32_t uid, pid;
    if (umf_socket_peer(made->fd, &uid, &pid) != 0 || !umf_broker_admits(uid)) {
        umf_broker_deny(made->fd);
        connection_close(connection_count - 1);
    } else if (umf_broker_serve(made->fd)) {
        connection_close(connection_count - 1);
    }
    return 0;
}

static void connections_serve(const struct pollfd *polled, size_t count) {
    uint64_t now = umf_socket_now();
    for (size_t i = count; i-- > 0;) {
        bool is_done = polled[i].revents != 0 && umf_broker_serve(connections[i].fd);
        if (is_done || now >= connections[i].deadline) {
            connection_close(i);
        }
    }
}

static void connections_close(void) {
    while (connection_count > 0) {
        connection_close(connection_count - 1);
    }
}

/* --- the thread --- */

typedef struct broker_turn_t {
    struct pollfd polled[1 + UMF_BROKER_CONNECTIONS]; /* the listener is first */
    size_t count;                                     /* connections */
    uint64_t pause_end;                               /* nobody is accepted before this time */
} broker_turn_t;

static int turn_timeout(const broker_turn_t *turn, uint64_t now) {
    uint64_t end = now + UMF_PEER_TICK;
    if (turn->count > 0 && connections[0].deadline < end) {
        end = connections[0].deadline;
    }
    if (turn->pause_end > now && turn->pause_end < end) {
        end = turn->pause_end;
    }
    return end > now ? (int)(end - now) : 0;
}

static int turn_wait(broker_turn_t *turn) {
    uint64_t now = umf_socket_now();
    turn->count = connection_count;
    turn->polled[0] = (struct pollfd){
        .fd = broker_listener.fd,
        .events = now < turn->pause_end ? 0 : POLLIN,
    };
    for (size_t i = 0; i < turn->count; i++) {
        turn->polled[1 + i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
    }
    return poll(turn->polled, 1 + turn->count, turn_timeout(turn, now));
}

/* false: the socket can accept no more connections. */
static bool turn_accept(broker_turn_t *turn) {
    int error = umf_broker_owns(&broker_listener) ? connection_accept() : EBADF;
    if (error == EBADF || error == EINVAL) {
        return false;
    }
    if (error != 0 && error != EAGAIN && error != ECONNABORTED) {
        turn->pause_end = umf_socket_now() + BROKER_PAUSE;
    }
    return true;
}

/* Serves until it is stopped or the program has closed the socket. true: the program has ended but
 * for this thread. */
static bool broker_serve(void) {
    broker_turn_t turn = {.pause_end = 0};
    while (!atomic_load_explicit(&broker_stops, memory_order_acquire)) {
        int events = turn_wait(&turn);
        if (atomic_load_explicit(&broker_stops, memory_order_acquire)) {
            return false;
        }
        if (events == 0 && umf_os_is_last_thread()) {
            return true;
        }
        connections_serve(turn.polled + 1, events >= 0 ? turn.count : 0);
        if (events > 0 && turn.polled[0].revents && !turn_accept(&turn)) {
            UMF_LOG_WARN("the program has closed the socket by which other processes get memory; "
                         "the next export makes another");
            return false;
        }
    }
    return false;
}

static void broker_end_locked(void);

static void broker_end(void) {
    umf_lock(&broker_lock);
    broker_end_locked();
    umf_unlock(&broker_lock);
}

static void (*const broker_is_last)(void) = broker_end;

static void *broker_run(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "umf-broker");
    umf_os_own_thread_begins();
    bool is_last = broker_serve();
    umf_os_own_thread_ends();
    connections_close();
    atomic_store_explicit(&broker_runs, 0, memory_order_release);
    if (is_last) {
        umf_peer_thread_leave(&broker_is_last);
    }
    return NULL;
}

/* --- start and stop --- */

/* Called in a forked child. The thread does not exist here. Its sockets belong to the parent, which
 * would seem to be alive while the child keeps them open. */
static void broker_forget_parent(void) {
    if (broker_owner == 0 || broker_owner == (uint32_t)umf_os_pid()) {
        return;
    }
    connections_close();
    if (broker_listener.fd != -1 && umf_broker_owns(&broker_listener)) {
        umf_os_close(broker_listener.fd);
    }
    broker_listener.fd = -1;
    broker_has_thread = false;
    broker_owner = 0;
    atomic_store(&broker_runs, 0);
}

static void broker_watch_forks(void) {
    static bool is_done;
    if (!is_done) {
        is_done = pthread_atfork(NULL, NULL, broker_forget_parent) == 0;
    }
}

/* Waits for a thread that was told to end, or that has ended by itself. */
static void broker_end_locked(void) {
    umf_assert_locked(&broker_lock);
    if (!broker_has_thread) {
        return;
    }
    if (!pthread_equal(broker_thread, pthread_self())) {
        pthread_join(broker_thread, NULL);
    }
    broker_has_thread = false;
    if (umf_broker_owns(&broker_listener)) {
        umf_os_close(broker_listener.fd);
    }
    broker_listener.fd = -1;
}

static int broker_start_locked(uint32_t pid) {
    umf_broker_id_t id;
    broker_forget_parent();
    broker_end_locked();
    int error = umf_broker_table_begin(pid, &id);
    if (error == 0) {
        error = umf_broker_listen(&id, &broker_listener);
    }
    if (error != 0) {
        return error;
    }
    broker_watch_forks();
    broker_owner = pid;
    atomic_store_explicit(&broker_stops, false, memory_order_release);
    atomic_store_explicit(&broker_runs, pid, memory_order_release);
    error = umf_peer_thread_start(&broker_thread, broker_run);
    if (error != 0) {
        atomic_store_explicit(&broker_runs, 0, memory_order_release);
        umf_broker_unlisten(&broker_listener);
        umf_os_close(broker_listener.fd);
        broker_listener.fd = -1;
        return error;
    }
    broker_has_thread = true;
    umf_broker_table_open(broker_listener.place);
    return 0;
}

bool umf_broker_start(void) {
    uint32_t pid = umf_process_pid();
    if (atomic_load_explicit(&broker_runs, memory_order_acquire) == pid) {
        return true;
    }
    umf_lock(&broker_lock);
    int error = 0;
    if (atomic_load_explicit(&broker_runs, memory_order_acquire) != pid) {
        error = broker_start_locked(pid);
    }
    umf_unlock(&broker_lock);
    if (error != 0) {
        umf_log_write(UMF_LOG_LEVEL_WARNING, error, __func__,
                      "no broker was started; other processes need permission to reach into this "
                      "one (docs: sharing memory)");
    }
    return error == 0;
}

void umf_broker_stop(void) {
    umf_lock(&broker_lock);
    if (broker_has_thread && broker_owner == (uint32_t)umf_os_pid()) {
        umf_broker_table_open(UMF_BROKER_NOWHERE);
        atomic_store_explicit(&broker_stops, true, memory_order_release);
        umf_broker_unlisten(&broker_listener);
        broker_end_locked();
    }
    umf_unlock(&broker_lock);
}
