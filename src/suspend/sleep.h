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
    size_t parts;      /* of the list of parts: those up to this one lie in this piece or before */
    _Atomic bool gone; /* freed while suspended */
} umf_sleep_piece_t;

typedef struct umf_sleep_t {
    umf_memory_pool_handle_t pool; /* Immutable */
    umf_suspend_policy_t policy;
    char *folder;              /* of the policy; a copy */
    umf_suspend_state_t state; /* Sync: umf_sleep_lock */
    umf_watch_t watch;         /* see watch.h */
    /* While it is not resident (plan.h): */
    umf_sleep_piece_t *pieces; /* by address */
    void **bases;              /* of pieces, for the provider's operations */
    umf_store_part_t *parts;   /* what is allocated in the pieces: only that is kept */
    size_t count, part_count, room;
    size_t bytes;      /* of all pieces */
    size_t part_bytes; /* of all parts */
    umf_store_t *store;
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

/* Takes the lock. */
void umf_sleep_set_state(umf_sleep_t *sleep, umf_suspend_state_t state);

/* From closing to opening, all operations of the pool that allocate refuse. */
void umf_sleep_close_pool(umf_sleep_t *sleep);
void umf_sleep_open_pool(umf_sleep_t *sleep);

#endif
