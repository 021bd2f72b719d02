/*
 * Sleep: what hangs on a pool that may be suspended, from its first policy or suspend on, until it
 * is destroyed.
 */
#ifndef UMF_SRC_SUSPEND_SLEEP_H
#define UMF_SRC_SUSPEND_SLEEP_H

#include <string.h>

#include "base/lock.h"
#include "core/object.h"
#include "suspend/store.h"
#include "suspend/watch.h"

typedef struct umf_sleep_piece_t {
    char *base;
    size_t size;
    size_t content; /* bytes that are allocated in it: its parts */
    size_t parts;   /* of the list of parts: those up to this one lie in this piece or before */
    bool is_away;   /* without memory, when the state was set last */
    bool gone;      /* nothing was left in it while suspended: it is no longer ours */
} umf_sleep_piece_t;

typedef struct umf_sleep_t {
    umf_memory_pool_handle_t pool; /* Immutable */
    umf_suspend_policy_t policy;   /* Sync: umf_sleep_lock, as the next two */
    char *folder;                  /* of the policy; a copy */
    size_t away, kept;             /* bytes allocated without memory; whose content is in a store */
    _Atomic umf_suspend_state_t state; /* Sync: umf_sleep_lock; a hint for who reads without */
    umf_watch_t watch;                 /* see watch.h */
    /*
     * The plan (plan.h), while it is not resident. Of the call that suspends or resumes; while the
     * pool is suspended of whoever has umf_sleep_lock.
     */
    umf_sleep_piece_t *pieces; /* by address; claimed at the provider */
    void **bases;              /* of pieces, for the provider's operations */
    umf_store_part_t *parts;   /* what is allocated in the pieces: only that is kept */
    size_t count, part_count, room;
    size_t bytes;      /* of all pieces */
    size_t part_bytes; /* of all parts */
    umf_store_t *store;
    bool is_unsettled;           /* copies failed: some may be queued still */
    umf_memory_pool_ops_t awake; /* the pool's operations */
} umf_sleep_t;

/* Of the state of all pools. */
extern umf_lock_t *const umf_sleep_lock;

static inline umf_memory_provider_handle_t umf_sleep_provider(const umf_sleep_t *sleep) {
    return sleep->pool->provider;
}

/* With its end, as memory for it is asked for and given back; 0 for NULL. */
static inline size_t umf_sleep_text_bytes(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

/* NULL: it never had one. */
umf_sleep_t *umf_sleep_of(umf_memory_pool_handle_t pool);
/* The pool's, made if absent. NOT_SUPPORTED: the pool cannot be suspended. */
umf_result_t umf_sleep_get(umf_memory_pool_handle_t pool, umf_sleep_t **out);
/* The pool is going away; its memory is back at the provider. */
void umf_sleep_drop(umf_memory_pool_handle_t pool);

/* Ends a call: the state, and the numbers that hold in it. Takes the lock. */
void umf_sleep_set_state(umf_sleep_t *sleep, umf_suspend_state_t state);
/* Nothing is left in the piece that begins there. Was it one of a suspended pool? Then it is the
 * caller's to release. Takes the lock. */
bool umf_sleep_piece_gone(umf_sleep_t *sleep, const void *base);

/* From closing to opening, all operations of the pool that allocate refuse. */
void umf_sleep_close_pool(umf_sleep_t *sleep);
void umf_sleep_open_pool(umf_sleep_t *sleep);

#endif
