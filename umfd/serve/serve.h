/*
 * The daemon of vaults: one thread that answers the clients. Its truth is in the state
 * (serve/state.h); here are the descriptors, and pending answers, which clients request again.
 */
#ifndef UMFD_SERVE_SERVE_H
#define UMFD_SERVE_SERVE_H

#include "serve/state.h"

/* -1: none */
typedef struct umfd_t {
    umfd_state_t *state;
    int pair, keeper; /* the socket to the keeper, and its process descriptor */
    int lock, listener, state_fd, program;
    int events; /* of the system, for all sockets */
    int spare;  /* closed for a moment to turn a client away when there is no other descriptor */
    int leases[UMFD_LEASES], slabs[UMFD_SLABS];
    int processes[UMFD_LEASES];  /* of clients with claims */
    uint64_t waits[UMFD_LEASES]; /* the sequence number of a wait; 0: it does not wait */
    uint64_t waits_after[UMFD_LEASES];
    unsigned open, open_limit; /* descriptors */
    unsigned dying;            /* slabs to be closed, when there is nothing else to do */
    uint64_t starts;
    unsigned idle;
} umfd_t;

/* One request of a client, with what came with it. */
typedef struct umfd_request_t {
    uint32_t lease;
    umf_vault_message_t head;
    unsigned char body[UMF_VAULT_BODY_MAX];
    int fds[UMF_VAULT_GIVE_MAX]; /* a descriptor that is taken is replaced by -1 */
    unsigned fd_count;
} umfd_request_t;

/* The answer. Descriptors stay ours. */
typedef struct umfd_reply_t {
    umf_vault_message_t head;
    unsigned char body[UMF_VAULT_BODY_MAX];
    int fds[UMF_VAULT_FDS_MAX];
    unsigned fd_count;
    bool is_later; /* the client waits */
} umfd_reply_t;

/* requests.c */
void umfd_request(umfd_t *daemon, umfd_request_t *request, umfd_reply_t *reply);
/* Ends the client's state: its draft, its views. */
void umfd_lease_left(umfd_t *daemon, uint32_t lease);
/* Ends what a client makes for a generation, if there is something: copies.c */
void umfd_fill_end(umfd_t *daemon, uint32_t generation);
/* Forgets the descriptor of a slab, at the keeper, too: slabs.c */
void umfd_slab_close(umfd_t *daemon, uint32_t place);
/* The rest of it, when its process no longer has memory of claims mapped. */
void umfd_lease_free(umfd_t *daemon, uint32_t lease);
bool umfd_is_empty(const umfd_t *daemon); /* no vault */
/* Fills the answer to a wait. false: there is no such event yet. */
bool umfd_event_after(const umfd_t *daemon, uint32_t lease, uint64_t after,
                      umf_vault_message_t *answer);

/* serve.c */
/* Answers the waits that an event ends. */
void umfd_wake(umfd_t *daemon);
void umfd_count_dying(umfd_t *daemon);

/* keep.c: the keeper has it afterwards, if need be a new one. false: it cannot be kept. */
bool umfd_keep_fd(umfd_t *daemon, uint32_t slot, uint64_t cookie, int fd);
void umfd_forget_fd(umfd_t *daemon, uint32_t slot, uint64_t cookie);
/* process.c */
#define UMFD_EVENT_PROCESS (UMFD_LEASES + 2) /* plus the place of the lease */
/* Has the process of a client, which holds memory of claims. false: no descriptor for it. */
bool umfd_process_open(umfd_t *daemon, uint32_t lease);
void umfd_process_close(umfd_t *daemon, uint32_t lease);
/* An event is sent when the process ends. false: it has ended, or is not known. */
bool umfd_process_watch(umfd_t *daemon, uint32_t lease);
/* Sends it a signal; 0: none. false: it is there and may not be signalled. */
bool umfd_process_signal(umfd_t *daemon, uint32_t lease, int number);

/* Gets everything from the keeper that has started us. */
void umfd_receive_all(umfd_t *daemon, uint64_t *leases, uint64_t *slabs, uint64_t *processes);
/* Reads one message. The keeper has ended: starts another one. */
void umfd_pair_serve(umfd_t *daemon);
/* Both end. */
_Noreturn void umfd_exit(umfd_t *daemon);

#endif
