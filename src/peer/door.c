#include "peer/door.h"

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

#define DOOR_BACKLOG 16

/* In ms: without free descriptors nobody is accepted for so long. */
#define DOOR_PAUSE 50

UMF_LOCK_STATIC(door_lock, UMF_RANK_BROKER);

static const umf_door_ops_t *door_ops; /* Sync: door_lock, and the thread, as the next two */
static pthread_t door_thread;
static bool door_has_thread;
static uint32_t door_owner;         /* pid to which these belong. Sync: door_lock */
static _Atomic uint32_t door_opens; /* pid of the process in which it is open; 0: none */
static atomic_bool door_stops;

/* Descriptors are opened and closed under this lock, so that a forked child knows exactly which are
 * open. The thread alone changes the guests; others close the listener. */
UMF_LOCK_STATIC(door_fds_lock, UMF_RANK_EXPORTED);
static int door_fd = -1;                 /* Sync: door_fds_lock for writers */
static uint64_t door_ino;                /* tells whether `door_fd` is still ours */
static int door_guests[UMF_DOOR_GUESTS]; /* -1: free; all 0 before the first start */

/* --- descriptors --- */

/* The program may have closed it, and opened something else under the same number. */
static bool fd_is_ours(int fd, uint64_t ours) {
    uint64_t dev, ino = ours, size;
    return fd != -1 && umf_os_file_id(fd, &dev, &ino, &size) != EBADF && ino == ours;
}

static void listener_close(void) {
    umf_lock(&door_fds_lock);
    if (fd_is_ours(door_fd, door_ino)) {
        umf_os_close(door_fd);
    }
    door_fd = -1;
    umf_unlock(&door_fds_lock);
}

static void guest_close(unsigned guest) {
    umf_lock(&door_fds_lock);
    umf_os_close(door_guests[guest]);
    door_guests[guest] = -1;
    umf_unlock(&door_fds_lock);
    door_ops->leaves(guest);
}

/* UMF_DOOR_GUESTS: there is no room. */
static unsigned guest_free(void) {
    unsigned guest = 0;
    while (guest < UMF_DOOR_GUESTS && door_guests[guest] != -1) {
        guest++;
    }
    return guest;
}

static bool admits(int connection) {
    uint32_t uid, pid;
    return umf_socket_peer(connection, &uid, &pid) == 0 && (uid == umf_os_user() || uid == 0);
}

/* 0, or the errno value of accept. */
static int guest_accept(void) {
    unsigned guest = guest_free();
    int connection = -1;
    umf_lock(&door_fds_lock);
    int error = umf_socket_accept(door_fd, &connection);
    if (error == 0 && guest < UMF_DOOR_GUESTS) {
        door_guests[guest] = connection;
    }
    umf_unlock(&door_fds_lock);
    if (error != 0) {
        return error;
    }
    if (guest == UMF_DOOR_GUESTS) {
        door_ops->refuse(connection, true);
        umf_os_close(connection);
    } else if (!admits(connection)) {
        door_ops->refuse(connection, false);
        guest_close(guest);
    }
    return 0;
}

static void guests_close(void) {
    for (unsigned i = 0; i < UMF_DOOR_GUESTS; i++) {
        if (door_guests[i] != -1) {
            guest_close(i);
        }
    }
}

/* --- the thread --- */

typedef struct door_turn_t {
    struct pollfd polled[1 + UMF_DOOR_GUESTS]; /* the listener is first */
    uint64_t pause_end;                        /* nobody is accepted before this time */
} door_turn_t;

static int turn_wait(door_turn_t *turn) {
    uint64_t now = umf_socket_now();
    bool is_paused = now < turn->pause_end;
    turn->polled[0] = (struct pollfd){.fd = door_fd, .events = is_paused ? 0 : POLLIN};
    for (unsigned i = 0; i < UMF_DOOR_GUESTS; i++) {
        turn->polled[1 + i] = (struct pollfd){.fd = door_guests[i], .events = POLLIN};
    }
    return poll(turn->polled, 1 + UMF_DOOR_GUESTS, is_paused ? DOOR_PAUSE : UMF_PEER_TICK);
}

/* false: the socket can accept no more connections. */
static bool turn_accept(door_turn_t *turn) {
    int error = fd_is_ours(door_fd, door_ino) ? guest_accept() : EBADF;
    if (error == EBADF || error == EINVAL) {
        return false;
    }
    if (error != 0 && error != EAGAIN && error != ECONNABORTED) {
        turn->pause_end = umf_socket_now() + DOOR_PAUSE;
    }
    return true;
}

static void turn_serve(const door_turn_t *turn) {
    for (unsigned i = 0; i < UMF_DOOR_GUESTS && !umf_door_is_closing(); i++) {
        if (turn->polled[1 + i].revents && door_guests[i] != -1 &&
            !door_ops->serve(i, door_guests[i])) {
            guest_close(i);
        }
    }
}

/* Serves until it is stopped or the program has closed the socket. true: the program has ended but
 * for this thread. */
static bool door_serve(void) {
    door_turn_t turn = {.pause_end = 0};
    while (!umf_door_is_closing()) {
        int events = turn_wait(&turn);
        if (events == 0 && umf_os_is_last_thread()) {
            return true;
        }
        if (events > 0) {
            turn_serve(&turn);
        }
        if (events > 0 && turn.polled[0].revents && !umf_door_is_closing() && !turn_accept(&turn)) {
            return false;
        }
    }
    return false;
}

static void door_end_locked(void);

static void door_end(void) {
    umf_lock(&door_lock);
    door_end_locked();
    umf_unlock(&door_lock);
}

static void (*const door_is_last)(void) = door_end;

static void *door_run(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "umf-door");
    umf_os_own_thread_begins();
    bool is_last = door_serve();
    umf_os_own_thread_ends();
    guests_close();
    atomic_store_explicit(&door_opens, 0, memory_order_release);
    if (is_last) {
        umf_peer_thread_leave(&door_is_last);
    }
    return NULL;
}

/* --- open and close --- */

/* Called in a forked child. The thread does not exist here, and the sockets are the parent's, which
 * would seem to be alive while the child keeps them open. */
static void door_forget_parent(void) {
    if (door_owner == 0 || door_owner == (uint32_t)umf_os_pid()) {
        return;
    }
    for (unsigned i = 0; i < UMF_DOOR_GUESTS; i++) {
        if (door_guests[i] != -1) {
            umf_os_close(door_guests[i]);
            door_guests[i] = -1;
        }
    }
    if (fd_is_ours(door_fd, door_ino)) {
        umf_os_close(door_fd);
    }
    door_fd = -1;
    door_has_thread = false;
    door_owner = 0;
    atomic_store(&door_opens, 0);
}

static void door_watch_forks(void) {
    static bool is_done;
    if (!is_done) {
        is_done = pthread_atfork(NULL, NULL, door_forget_parent) == 0;
    }
}

/* The number of the namespace is in the name: those who share a network may not share numbers of
 * processes. */
static int door_address(uint32_t pid, umf_socket_address_t *address) {
    char name[64];
    struct stat space;
    if (stat("/proc/self/ns/pid", &space) != 0) {
        return errno;
    }
    snprintf(name, sizeof(name), "umf-door-%llu-%u", (unsigned long long)space.st_ino, pid);
    return umf_socket_abstract(name, address);
}

static int listen_at(int fd, const umf_socket_address_t *address) {
    uint64_t dev, size;
    int error = umf_os_file_id(fd, &dev, &door_ino, &size);
    if (error == 0) {
        error = umf_socket_bind(fd, address);
    }
    return error != 0 ? error : umf_socket_listen(fd, DOOR_BACKLOG);
}

static int listener_open(uint32_t pid) {
    umf_socket_address_t address;
    int fd = -1;
    int error = door_address(pid, &address);
    if (error == 0) {
        error = umf_socket_open(&fd);
    }
    if (error != 0) {
        return error;
    }
    umf_lock(&door_fds_lock);
    error = listen_at(fd, &address);
    if (error == 0) {
        door_fd = fd;
    } else {
        umf_os_close(fd);
    }
    umf_unlock(&door_fds_lock);
    return error;
}

/* Waits for a thread that was told to end, or that has ended by itself. */
static void door_end_locked(void) {
    umf_assert_locked(&door_lock);
    if (!door_has_thread) {
        return;
    }
    if (!pthread_equal(door_thread, pthread_self())) {
        pthread_join(door_thread, NULL);
    }
    door_has_thread = false;
    listener_close();
}

static int door_open_locked(uint32_t pid, const umf_door_ops_t *ops) {
    door_forget_parent();
    door_end_locked();
    for (unsigned i = 0; i < UMF_DOOR_GUESTS; i++) {
        door_guests[i] = -1;
    }
    int error = listener_open(pid);
    if (error != 0) {
        return error;
    }
    door_watch_forks();
    door_ops = ops;
    door_owner = pid;
    atomic_store_explicit(&door_stops, false, memory_order_release);
    atomic_store_explicit(&door_opens, pid, memory_order_release);
    error = umf_peer_thread_start(&door_thread, door_run);
    if (error != 0) {
        atomic_store_explicit(&door_opens, 0, memory_order_release);
        listener_close();
        return error;
    }
    door_has_thread = true;
    return 0;
}

bool umf_door_is_open(void) {
    return atomic_load_explicit(&door_opens, memory_order_acquire) == (uint32_t)umf_os_pid();
}

bool umf_door_is_closing(void) {
    return atomic_load_explicit(&door_stops, memory_order_acquire);
}

int umf_door_open(const umf_door_ops_t *ops) {
    int error = 0;
    if (!umf_trylock(&door_lock)) {
        return EBUSY;
    }
    if (!umf_door_is_open()) {
        error = door_open_locked((uint32_t)umf_os_pid(), ops);
    }
    umf_unlock(&door_lock);
    if (error != 0) {
        umf_log_write(UMF_LOG_LEVEL_DEBUG, error, __func__,
                      "other programs cannot look at this process");
    }
    return error;
}

/* A socket that is shut down wakes the thread. */
void umf_door_close(void) {
    umf_lock(&door_lock);
    if (door_has_thread && door_owner == (uint32_t)umf_os_pid()) {
        atomic_store_explicit(&door_stops, true, memory_order_release);
        umf_lock(&door_fds_lock);
        if (fd_is_ours(door_fd, door_ino)) {
            umf_socket_shutdown(door_fd);
        }
        umf_unlock(&door_fds_lock);
        door_end_locked();
    }
    umf_unlock(&door_lock);
}
