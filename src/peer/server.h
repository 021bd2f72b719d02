/*
 * Servers: threads of the library that answer other processes through a socket. The program must
 * not notice them: all signals are blocked in them, because they belong to the application; a
 * program whose other threads have ended ends, too; it may close descriptors of others;
 * and a child of fork keeps none of its parent's.
 */
#ifndef UMF_SRC_PEER_SERVER_H
#define UMF_SRC_PEER_SERVER_H

#include <pthread.h>

#include "base/event_count.h"
#include "base/kept_fd.h"
#include "base/lock.h"
#include "system/atomic.h"

#define UMF_PEER_CONNECTIONS 32u

/* All are called by the server's thread without a lock, except `listen` and `unlisten`. */
typedef struct umf_peer_server_ops_t {
    const char *thread;   /* its name */
    const char *closed;   /* warns that the program has closed the socket. NULL: no warning */
    unsigned connections; /* at a time; at most UMF_PEER_CONNECTIONS */
    /* Binds a socket and listens. 0 or an errno value. */
    int (*listen)(int fd);
    /* The socket, which listens, is about to be shut down. May be NULL. */
    void (*unlisten)(void);
    /* Whether the process at the other end may come in. */
    bool (*admits)(int connection);
    /* Tells a process why it may not come in. */
    void (*refuse)(int connection, bool is_full);
    /* Something may have arrived: reads one message and answers. `slot`: of the connection, below
     * `connections`. false: the connection is to be closed. */
    bool (*serve)(unsigned slot, int connection);
    /* The connection is closed now. May be NULL. */
    void (*leaves)(unsigned slot);
    /* How long a connection may stay, in ms. If there are too many, the one that has waited longest
     * is closed for the new one. NULL: for as long as it likes; one too many is refused. */
    int (*time_limit)(void);
} umf_peer_server_ops_t;

typedef struct umf_peer_server_t {
    const umf_peer_server_ops_t *ops; /* Immutable */
    umf_lock_t lock;                  /* start and stop; free while one waits for the thread */
    pthread_t thread;                 /* Sync: lock, as all up to `joined` */
    uint64_t number;                  /* of the thread */
    bool has_thread;                  /* there is one, or it has ended and was not joined */
    bool is_shut;                     /* it ends for good */
    bool is_joined;                   /* a thread waits for its end */
    uint32_t owner;                   /* pid to which these belong */
    umf_event_count_t joined;         /* no thread is there any more */
    _Atomic(uint32_t) runs;           /* pid of the process in which it serves; 0: none */
    _Atomic(bool) stops;              /* Written under `lock` */
    /* Descriptors are opened and closed under this lock, so that a forked child has exactly the
     * list of open ones. The thread alone changes the connections; others close the listener. */
    umf_lock_t fds_lock;
    umf_kept_fd_t listener;
    /* The last slot is for one that is refused. */
    umf_kept_fd_t connections[UMF_PEER_CONNECTIONS + 1];
    uint64_t deadlines[UMF_PEER_CONNECTIONS + 1];
    struct umf_peer_server_t *next; /* of all. Immutable after load */
} umf_peer_server_t;

/* Defines a server. */
#define UMF_PEER_SERVER(name, table)                                                               \
    static umf_peer_server_t name = {.ops = (table),                                               \
                                     .lock = {.rank = UMF_RANK_BROKER},                            \
                                     .fds_lock = {.rank = UMF_RANK_EXPORTED}};                     \
    __attribute__((constructor)) static void name##_register(void) {                               \
        umf_peer_server_register(&name);                                                           \
    }

void umf_peer_server_register(umf_peer_server_t *server);

/* Starts it unless it runs. `pid`: of this process. 0 or an errno value. EBUSY: it is being
 * stopped, and `may_wait` is false or the caller is its thread. It creates a thread, so it must not
 * be called in an allocation or a free, which the C library may make with locks of its own. */
int umf_peer_server_start(umf_peer_server_t *server, uint32_t pid, bool may_wait);

/* Does it serve, in the process with this number? */
bool umf_peer_server_runs(const umf_peer_server_t *server, uint32_t pid);

/* Stops it and waits for the thread. Called by that thread (a callback of the program), it does not
 * wait: the thread ends when it has answered, unless the server is started again before. */
void umf_peer_server_stop(umf_peer_server_t *server);

/* Is it about to be stopped? What takes long shall end then. */
static inline bool umf_peer_server_is_stopping(const umf_peer_server_t *server) {
    return atomic_load_explicit(&server->stops, memory_order_acquire);
}

#endif
