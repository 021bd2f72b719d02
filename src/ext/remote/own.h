/*
 * The inside of remote memory, shared by its files.
 *
 * A context has one thread, which alone calls UCX after the start (loop.c). Callers give it
 * commands and wait. Peer and owner speak messages of one form: see message_t below and the two
 * files peer.c and owner.c. A transfer is cut into parts; each part is one request of the peer.
 */
#ifndef UMF_SRC_EXT_REMOTE_OWN_H
#define UMF_SRC_EXT_REMOTE_OWN_H

#include <poll.h>
#include <pthread.h>

#include <umf/remote.h>

#include "base/event_count.h"
#include "base/kept_fd.h"
#include "base/lock.h"
#include "ds/list.h"
#include "ext/remote/auth.h"
#include "ext/remote/ucx.h"
#include "object/object.h"
#include "object/pin.h"
#include "system/atomic.h"

#define REMOTE_ID 16           /* bytes of random numbers that cannot be guessed */
#define REMOTE_ADDRESS_MAX 768 /* bytes of an address of UCX */

/* --- messages --------------------------------------------------------------------------------- */

typedef enum remote_kind_t {
    REMOTE_HELLO = 1, /* peer: its address is the data */
    REMOTE_CHALLENGE, /* owner: proves that it has the key, and requests the same */
    REMOTE_PROVE,     /* peer */
    REMOTE_WELCOME,   /* owner: the session begins */
    REMOTE_RENEW,     /* peer: which generation and size has the export? */
    REMOTE_RENEWED,   /* owner */
    REMOTE_GET,       /* peer */
    REMOTE_DATA,      /* owner: with the data */
    REMOTE_PUT,       /* peer: may it send? */
    REMOTE_GO,        /* owner */
    REMOTE_PUSH,      /* peer: with the data */
    REMOTE_DONE,      /* owner */
    REMOTE_BYE,       /* peer: it closes the connection */
} remote_kind_t;

typedef enum remote_answer_t {
    REMOTE_FINE,
    REMOTE_STALE,  /* withdrawn, freed, suspended, or of another generation or owner */
    REMOTE_DENIED, /* secret, key or rights */
    REMOTE_BEYOND, /* the range */
    REMOTE_BUSY,   /* more in flight than is allowed */
    REMOTE_FAILED, /* the owner could not receive */
    /* These do not travel: */
    REMOTE_GONE,        /* the connection has ended */
    REMOTE_CANCELED,    /* by the caller */
    REMOTE_UNREACHED,   /* by shared memory, and there is no UCX */
    REMOTE_WITHOUT_UCX, /* it is on another machine */
} remote_answer_t;

#define REMOTE_MAGIC 0x524d4655u /* UMFR */
#define REMOTE_VERSION 1u

/* Travels between processes, of one byte order. */
typedef struct remote_message_t {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t number;  /* of the part, or of the connection; the peer's choice. Of parts that
                         travel through a window: modulo REMOTE_SLOTS the slot */
    uint64_t session; /* 0: none yet */
    uint64_t export_number;
    uint64_t generation;
    uint64_t offset;
    uint64_t length;
    uint32_t answer;
    uint32_t rights;
    unsigned char
        id[REMOTE_ID]; /* the export's secret; HELLO: the owner's id; CHALLENGE: its nonce */
    unsigned char nonce[REMOTE_ID]; /* HELLO: of the peer */
    unsigned char proof[UMF_REMOTE_PROOF];
} remote_message_t;
_Static_assert(sizeof(remote_message_t) == 128, "messages travel");

/* A handle, as it travels. The address follows. */
typedef struct remote_handle_bytes_t {
    uint32_t magic;
    uint16_t version;
    uint16_t length; /* of all */
    uint64_t check;  /* sum of all other bytes */
    uint64_t boot;   /* of the owner's machine */
    unsigned char owner[REMOTE_ID];
    uint64_t export_number;
    uint64_t generation;
    unsigned char secret[REMOTE_ID];
    uint64_t size;
    uint32_t rights;
    uint32_t address_length;
} remote_handle_bytes_t;

/* --- objects ---------------------------------------------------------------------------------- */

/* A worker of UCX: of those who connect, or of one connection. The thread's. */
typedef struct remote_worker_t {
    umf_list_t link; /* of all */
    umf_remote_handle_t remote;
    void *worker; /* NULL: none, or it has ended */
    int efd;
    umf_list_t transits; /* messages and data that UCX has not ended */
    uint64_t active;     /* ms: when UCX last had something to do */
    size_t address_length;
    unsigned char address[REMOTE_ADDRESS_MAX];
} remote_worker_t;

/* The way to another process: an endpoint of UCX, or a socket and a window. The thread's. */
typedef struct remote_link_t {
    umf_remote_handle_t remote;
    remote_worker_t *worker; /* NULL: local */
    void *endpoint;          /* NULL: closed, or local */
    bool has_failed;
    umf_ucs_status_t status; /* of the failure */
    size_t queued;           /* messages that are not sent */
    bool is_local;           /* The rest is for local ones */
    umf_list_t local;        /* of all that are open */
    umf_kept_fd_t socket;
    char *window;     /* NULL: none yet */
    umf_list_t queue; /* messages that the socket had no room for */
} remote_link_t;

#define REMOTE_QUEUE_MAX 65536u /* messages that the other process does not take */

/* A window: shared memory of both sides, in slots. */
#define REMOTE_SLOTS 4u
#define REMOTE_SLOT ((size_t)1 << 20)
#define REMOTE_LOCALS_MAX 320u      /* local links of a context */
#define REMOTE_CONNECTIONS_MAX 256u /* that it makes by UCX */

struct umf_remote_export_t {
    umf_list_t link; /* Sync: the context's lock, as all without a note */
    umf_remote_handle_t remote;
    umf_pin_t pin; /* Immutable after publish, as those up to `secret` */
    char *base;
    size_t size;
    unsigned rights;
    uint64_t number;
    uint64_t span_id;
    unsigned char secret[REMOTE_ID];
    uint64_t generation; /* of the export; a new one for each physical memory */
    uint64_t physical;   /* generation of the memory that it is of */
    bool is_closing;
    size_t under_way; /* transfers */
};

/* A peer, at the owner. The thread's, as all below. */
typedef struct remote_session_t {
    umf_list_t link;
    remote_link_t endpoint;
    uint64_t id;
    uint64_t connection; /* the peer's number of it */
    bool has_greeted;
    bool is_proven;
    bool has_left;
    uint64_t proof_deadline;
    unsigned char nonce[REMOTE_ID], peer_nonce[REMOTE_ID];
    size_t in_flight;  /* bytes */
    uint64_t progress; /* when a transfer has ended last */
    size_t transfers;
} remote_session_t;

/* A part of a transfer, at the owner: memory of an export that is in use. */
typedef struct remote_transfer_t {
    umf_list_t link;
    remote_session_t *session; /* NULL: it has ended */
    umf_remote_export_handle_t published;
    uint32_t span; /* in use */
    uint64_t number;
    char *base;
    size_t size;
    uint64_t deadline;
    bool is_active; /* UCX uses the memory */
} remote_transfer_t;

typedef enum remote_state_t { REMOTE_CONNECTING, REMOTE_READY, REMOTE_BROKEN } remote_state_t;

/* An owner, at the peer. */
typedef struct remote_connection_t {
    umf_list_t link;
    remote_link_t endpoint;
    remote_worker_t worker; /* of UCX; none for a local one */
    remote_state_t state;
    uint64_t number;
    uint64_t session;
    uint64_t progress;      /* when something last arrived that was waited for */
    remote_answer_t answer; /* why it is broken */
    bool is_late;           /* it was closed because the deadline has passed */
    bool is_linked;         /* UCX has connected */
    bool has_greeted;
    bool is_proven;          /* the owner has the key */
    size_t memories;         /* that are open */
    size_t in_flight, limit; /* bytes */
    size_t parts, parts_limit;
    unsigned slots; /* that are taken, as bits. Of local ones */
    unsigned char nonce[REMOTE_ID], owner[REMOTE_ID];
    size_t address_length;                     /* 0: the owner has no UCX */
    unsigned char address[REMOTE_ADDRESS_MAX]; /* of the owner, of UCX */
} remote_connection_t;

struct umf_remote_memory_t {
    umf_list_t link;            /* Sync: lock of the context */
    umf_remote_handle_t remote; /* Immutable, as those up to `secret` */
    uint64_t export_number;
    unsigned char secret[REMOTE_ID];
    _Atomic(size_t) size;
    uint64_t generation; /* the thread's, as the next two */
    bool must_renew;
    remote_connection_t *connection;
    remote_handle_bytes_t handle; /* Immutable */
    unsigned char address[REMOTE_ADDRESS_MAX];
};

typedef enum remote_task_t {
    REMOTE_TASK_OPEN,
    REMOTE_TASK_CLOSE,
    REMOTE_TASK_GET,
    REMOTE_TASK_PUT,
} remote_task_t;

struct umf_remote_op_t {
    umf_list_t link; /* Sync: the context's lock while it is a command; then the thread's */
    umf_remote_memory_handle_t memory;
    remote_task_t task;
    size_t offset;
    char *data;
    size_t size;
    size_t begun;        /* bytes of parts that were begun. The thread's, as all up to `result` */
    size_t parts;        /* that are not done */
    size_t renewals;     /* parts of kind RENEW among them */
    bool has_failed;     /* no further part begins */
    umf_result_t result; /* Sync: `is_done` */
    remote_answer_t answer;
    bool is_late;      /* the deadline has passed */
    uint64_t canceled; /* ms: when the thread began to wait for its active parts. The thread's */
    _Atomic(bool) is_canceled;
    _Atomic(bool) is_done;
};

/* One request of a peer. */
typedef struct remote_part_t {
    umf_list_t link;
    umf_remote_op_handle_t op; /* NULL: it was canceled, and does not wait for this part */
    remote_connection_t *connection;
    uint64_t number;
    size_t offset, size; /* in the op */
    bool is_renewal;
    bool is_active;   /* UCX uses the memory of the caller */
    bool is_answered; /* it ends when it is not active */
} remote_part_t;

struct umf_remote_t {
    umf_list_t all; /* of the process. Sync: its lock */
    umf_lock_t lock;
    umf_event_count_t changes; /* an op is done, a transfer has ended, or the thread */
    umf_list_t commands;       /* Sync: lock */
    bool is_over;              /* no command is taken any more. Sync: lock */
    umf_list_t exports;        /* Sync: lock */
    umf_list_t memories;       /* opened ranges. Sync: lock */
    umf_ucx_t ucx;             /* Immutable, as those without a note */
    bool is_local;             /* peers of this machine come by a socket */
    umf_kept_fd_t listener;    /* local.c. The thread's, as the next two */
    uint64_t accept_after;     /* ms: not before, since descriptors were used up */
    umf_list_t locals;
    void *context; /* of UCX. NULL: none. The thread's after the start, as the next three */
    remote_worker_t server; /* for those who connect */
    umf_list_t workers;
    unsigned workers_count;
    umf_kept_fd_t page; /* page.c. Sync: lock, as the next two */
    char devices[64];
    size_t peers;           /* sessions */
    umf_kept_fd_t wakes[2]; /* a pipe: it is read by the thread, and written to wake it */
    bool is_deaf;           /* the program has closed it. The thread's */
    unsigned forks;
    uint64_t deadline;            /* in ms */
    size_t limit, requests_limit; /* of a connection: bytes, and transfers */
    bool has_key;
    umf_remote_key_t key;
    unsigned char id[REMOTE_ID];
    pthread_t thread;
    _Atomic(bool) stops;
    bool is_hurried; /* the thread waits for the end of a canceled operation. The thread's */
    bool is_ending;  /* no session and no connection begins any more. The thread's, as all below */
    uint64_t next;   /* numbers of parts, connections */
    umf_list_t ops, parts, connections, sessions, transfers;
};

/* --- loop.c ----------------------------------------------------------------------------------- */

int umf_remote_start(umf_remote_handle_t remote);
/* Ends the thread and waits for it. */
void umf_remote_stop(umf_remote_handle_t remote);
void umf_remote_wake(umf_remote_handle_t remote);
uint64_t umf_remote_now(void); /* ms */
/* Looks for a change for a moment, before the caller sleeps. true: there was one. */
bool umf_remote_spin(umf_event_count_t *changes, uint32_t seen);

/* Of the thread: */
/* A message that a link has brought. */
typedef struct remote_data_t {
    void *data;
    size_t length;
    bool is_rendezvous;
    const remote_link_t *by;       /* the local link that it came by. NULL: by UCX */
    const remote_worker_t *worker; /* that received it, by UCX */
    const void *reply;             /* the endpoint that it came by; NULL: not known */
} remote_data_t;
/* A message of one process does not count where another one is expected. */
static inline bool umf_remote_is_by(const remote_link_t *link, const remote_data_t *data) {
    return link->is_local ? data->by == link : !data->by && data->worker == link->worker;
}
umf_ucs_status_t umf_remote_deliver(umf_remote_handle_t remote, const remote_message_t *message,
                                    const remote_data_t *data);

/* --- worker.c: UCX. Of the thread --------------------------------------------------------------
 */

/* false: UCX refuses, or there are too many. Logs. */
bool umf_remote_worker_make(umf_remote_handle_t remote, remote_worker_t *worker);
/* UCX uses no memory of its messages any more; these end. Not to be called by UCX. */
void umf_remote_worker_end(remote_worker_t *worker);
void umf_remote_workers_end(umf_remote_handle_t remote);
/* Lets each take so many steps, as long as there is something to do. Returns how many were. */
unsigned umf_remote_workers_progress(umf_remote_handle_t remote, int times);
/* Fills the descriptors to poll, at most REMOTE_CONNECTIONS_MAX + 1. Returns their number. */
unsigned umf_remote_workers_fill(umf_remote_handle_t remote, struct pollfd *polled,
                                 bool *may_sleep);

bool umf_remote_link_open(remote_worker_t *worker, remote_link_t *link, const void *address);
/* By force: its transfers end soon, canceled. */
void umf_remote_link_close(remote_link_t *link);
/* `sent` is called with `arg` when the data is no longer in use, now or later, once. */
typedef void (*remote_sent_t)(umf_remote_handle_t remote, void *arg, umf_ucs_status_t status);
void umf_remote_send(remote_link_t *link, const remote_message_t *message, const void *data,
                     size_t length, remote_sent_t sent, void *arg);
/* Calls `flushed` when a link of UCX is connected and has sent all, or has failed; now or later. */
void umf_remote_link_flush(remote_link_t *link, remote_sent_t flushed, void *arg);
/* Receives the data of a message into memory, with the same `sent`. */
umf_ucs_status_t umf_remote_receive(remote_link_t *link, const remote_data_t *from, void *to,
                                    remote_sent_t received, void *arg);

/* --- local.c: links to processes of this machine, without UCX. Of the thread, but for listen ---
 */

/* Before the thread starts. Without it peers come by UCX. */
void umf_remote_local_listen(umf_remote_handle_t remote);
/* false: the owner is not on this machine, or out of reach, or of another user. */
bool umf_remote_local_connect(umf_remote_handle_t remote, remote_link_t *link,
                              const remote_handle_bytes_t *handle);
void umf_remote_local_close(remote_link_t *link);
void umf_remote_local_send(remote_link_t *link, const remote_message_t *message, const void *data,
                           size_t length, remote_sent_t sent, void *arg);
/* As send, with a new window for the other side. */
void umf_remote_local_welcome(remote_link_t *link, const remote_message_t *message);
/* Fills the descriptors to poll, at most REMOTE_LOCALS_MAX + 1. Returns their number. */
unsigned umf_remote_local_fill(umf_remote_handle_t remote, struct pollfd *polled,
                               remote_link_t **links);
/* Serves the polled descriptors. */
void umf_remote_local_serve(umf_remote_handle_t remote, const struct pollfd *polled,
                            remote_link_t *const *links, unsigned count);

/* --- owner.c, peer.c: messages and deadlines ----------------------------------------------------
 */

umf_ucs_status_t umf_remote_owner_gets(umf_remote_handle_t remote, const remote_message_t *message,
                                       const remote_data_t *data);
/* The link of a new session, for a process that has connected. NULL: there are too many. */
remote_link_t *umf_remote_owner_accepts(umf_remote_handle_t remote);
void umf_remote_owner_advance(umf_remote_handle_t remote, uint64_t now);
bool umf_remote_owner_is_idle(umf_remote_handle_t remote);
void umf_remote_owner_end(umf_remote_handle_t remote);
/* After the thread has ended. */
void umf_remote_withdraw_all(umf_remote_handle_t remote);
/* Generations and numbers of exports are never used twice in a process. */
uint64_t umf_remote_number_next(void);
/* The physical memory of a used span. 0: it has none now. */
uint64_t umf_remote_physical_of(const umf_span_t *span, uintptr_t address);
/* The span of an export, in use until umf_use_end. NULL: the memory was freed. */
umf_span_t *umf_remote_span_use(umf_remote_export_handle_t published);

umf_ucs_status_t umf_remote_peer_gets(umf_remote_handle_t remote, const remote_message_t *message,
                                      const remote_data_t *data);
void umf_remote_peer_advance(umf_remote_handle_t remote, uint64_t now);
bool umf_remote_peer_is_idle(umf_remote_handle_t remote);
void umf_remote_peer_end(umf_remote_handle_t remote);

/* --- connection.c ------------------------------------------------------------------------------
 */

remote_connection_t *umf_remote_connection_find(umf_remote_handle_t remote,
                                                const remote_handle_bytes_t *handle);
/* NULL: no memory, or no way to the owner. */
remote_connection_t *umf_remote_connection_make(umf_remote_handle_t remote,
                                                umf_remote_memory_handle_t memory);
/* An owner that does not take a process at its socket, as for lack of descriptors, may by UCX. */
bool umf_remote_connect_by_ucx(umf_remote_handle_t remote, remote_connection_t *connection);
/* Sends the greeting as soon as it can travel. */
void umf_remote_connection_greet(remote_connection_t *connection);
/* A challenge, or a welcome. */
void umf_remote_connection_gets(umf_remote_handle_t remote, const remote_message_t *message,
                                const remote_data_t *data);
/* Not to be called by UCX. */
void umf_remote_connection_end(remote_connection_t *connection);
/* Of peer.c: its parts fail. */
void umf_remote_connection_break(umf_remote_handle_t remote, remote_connection_t *connection,
                                 remote_answer_t answer);

/* --- page.c: the report for other processes ----------------------------------------------------
 */

/* Before the thread starts. Without it the context works, and is not listed. */
void umf_remote_page_open(umf_remote_handle_t remote, const char *devices);
void umf_remote_page_write_locked(umf_remote_handle_t remote);
/* Of the thread: a session more, or one less. */
void umf_remote_page_peers(umf_remote_handle_t remote, int change);

/* --- remote.c --------------------------------------------------------------------------------- */

/* Is it a context of this process? Logs if not. */
bool umf_remote_check(umf_remote_handle_t remote, const char *function);
/* Is the context of this process, and not of a parent? Logs if not. */
bool umf_remote_is_of_this_process(umf_remote_handle_t remote, const char *function);
/* All contexts end: the library is torn down. */
void umf_remote_teardown(void);

/* --- memory.c --------------------------------------------------------------------------------- */

/* Reads the bytes of a handle. false: they are none. `address` has REMOTE_ADDRESS_MAX bytes. */
bool umf_remote_handle_read(const void *bytes, size_t size, remote_handle_bytes_t *handle,
                            unsigned char *address);
/* The context ends, and its open ranges with it. */
void umf_remote_memories_end(umf_remote_handle_t remote);

#endif
