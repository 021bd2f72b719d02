/*
 * Link: a connection to the daemon of vaults. Its socket is the lease of all that the client holds.
 *
 * A request that gets no answer for a while is sent again: the daemon may have been killed after it
 * had read it. One thread at a time has the link; others wait for its lock.
 */
#ifndef UMF_SRC_EXT_VAULT_LINK_H
#define UMF_SRC_EXT_VAULT_LINK_H

#include "base/event_count.h"
#include "base/kept_fd.h"
#include "ext/vault/protocol.h"
#include "system/common.h"

/* One thread at a time, also across a request, which a lock may not be held for. Zeroed: free. */
typedef struct umf_link_lock_t {
    uint32_t is_taken; /* Sync: atomic */
    umf_event_count_t ended;
} umf_link_lock_t;

void umf_link_lock_take(umf_link_lock_t *lock);
void umf_link_lock_end(umf_link_lock_t *lock);

typedef struct umf_link_t {
    char folder[UMF_VAULT_PLACE_SIZE]; /* Immutable after open, as all up to `keep` */
    char name[UMF_VAULT_PLACE_SIZE];   /* "": for requests about the service */
    bool starts;
    uint64_t timeout_ms, limit;
    uint32_t keep;
    umf_kept_fd_t socket; /* Sync: the lock, as all below; the list of links for a fork. Of a vault
                             in a folder: the file that is locked while a draft is written */
    uint64_t sequence;
    uint64_t nonce; /* of the content that the daemon had; 0: none was seen */
    unsigned epoch; /* changes when leases were lost */
    unsigned forks; /* of the process that has it */
    /* It is about to be closed: when a request has had no answer in time, further ones are sent and
     * not waited for. */
    bool is_closing, is_late;
    umf_link_lock_t lock;
    /* Called in a child of fork, without locks. NULL: none */
    void (*in_child)(struct umf_link_t *link);
    struct umf_link_t *prev, *next; /* of all. Sync: lock of the list */
} umf_link_t;

/* A request and its answer. */
typedef struct umf_link_call_t {
    umf_vault_message_t message; /* op and words are set; then the answer */
    const void *body;            /* of the request */
    uint32_t body_size;
    const int *pass;
    unsigned passes;
    void *answer; /* room for UMF_VAULT_BODY_MAX bytes, or NULL */
    int *passed;  /* room for UMF_VAULT_FDS_MAX descriptors, or NULL */
    unsigned passed_count;
    uint64_t timeout_ms; /* 0: that of the link */
    bool is_wait;        /* no answer in time is no failure of the daemon */
    bool is_bound;       /* it makes no sense on another connection */
    bool is_ending;      /* the answer is the end of the connection */
} umf_link_call_t;

/* Connects; starts the daemon if `starts`. The members up to `keep` are set. Logs failures. */
umf_result_t umf_link_open(umf_link_t *link);
void umf_link_close(umf_link_t *link);
/* A link without a service, for a vault in a folder. */
void umf_link_open_plain(umf_link_t *link);
/* The descriptor that it has is closed in a child of fork. After a failure, an errno value, `fd` is
 * closed. */
int umf_link_keep(umf_link_t *link, int fd);
void umf_link_forget(umf_link_t *link);
/* false: it is that of the parent process. */
bool umf_link_is_ours(const umf_link_t *link);

/*
 * One request. SUCCESS: there is an answer, whatever it says. A connection that was lost is made
 * again, once. OUT_OF_RESOURCES: no answer in time; not logged if `is_wait`.
 */
umf_result_t umf_link_call(umf_link_t *link, umf_link_call_t *call);

/* The result that stands for an answer, logged with its cause; `what` names the vault, generation
 * or slab. */
umf_result_t umf_link_result(const umf_link_t *link, const umf_vault_message_t *answer,
                             const char *what);

void umf_link_nap(unsigned ms);

/* Starts the daemon of a folder. Logs failures. start.c */
umf_result_t umf_vault_start(const char *folder);

#endif
