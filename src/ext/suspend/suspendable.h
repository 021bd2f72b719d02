/*
 * The state of a pool that may be suspended. It exists from the pool's first policy or
 * suspend until the pool is destroyed.
 */
#ifndef UMF_SRC_EXT_SUSPEND_SUSPENDABLE_H
#define UMF_SRC_EXT_SUSPEND_SUSPENDABLE_H

#include <string.h>

#include "base/lock.h"
#include "ext/suspend/store.h"
#include "ext/suspend/watch.h"
#include "object/object.h"
#include "system/atomic.h"

typedef struct umf_suspend_piece_t {
    char *base;
    size_t size;
    size_t content; /* bytes allocated in the piece: its parts */
    size_t parts;   /* number of parts that lie in this piece or in one before it */
    bool is_away;   /* it was detached when the state was last set */
    bool gone;      /* its last allocation was freed while suspended: it is no longer ours */
} umf_suspend_piece_t;

typedef struct umf_suspendable_t {
    umf_memory_pool_handle_t pool; /* Immutable */
    umf_suspend_policy_t policy;   /* Sync: umf_suspend_lock, as the next two */
    char *folder;                  /* a copy of the policy's */
    size_t away, kept; /* bytes of the pool in detached pieces; bytes with content in a store */
    _Atomic(umf_suspend_state_t) state; /* Sync: umf_suspend_lock; a hint if read without it */
    umf_watch_t watch;                  /* see watch.h */
    /*
     * The plan (plan.h), while the pool is not resident. It belongs to the call that suspends or
     * resumes; while the pool is suspended, to the holder of umf_suspend_lock.
     */
    umf_suspend_piece_t *pieces; /* by address; claimed at the provider */
    void **bases;                /* of pieces, for the provider's operations */
    umf_store_part_t *parts;     /* the allocated memory of the pieces: only its content is kept */
    size_t count, part_count, room;
    size_t bytes;      /* of all pieces */
    size_t part_bytes; /* of all parts */
    umf_store_t *store;
} umf_suspendable_t;

/* Guards the states of all pools. */
extern umf_lock_t *const umf_suspend_lock;

static inline umf_memory_provider_handle_t
umf_suspendable_provider(const umf_suspendable_t *suspendable) {
    return suspendable->pool->provider;
}

/* The operations on pieces (umf/plugin.h) and what they are called with: the provider's, or those
 * of a pool that places pages itself. */
typedef struct umf_suspend_vm_t {
    const umf_memory_provider_ext_ops_t *ext;
    void *self;
} umf_suspend_vm_t;

static inline const umf_pool_pieces_ops_t *
umf_suspendable_own_pieces(const umf_suspendable_t *suspendable) {
    return suspendable->pool->fast ? suspendable->pool->fast->pieces : NULL;
}

static inline umf_suspend_vm_t umf_suspendable_vm(const umf_suspendable_t *suspendable) {
    const umf_pool_pieces_ops_t *own = umf_suspendable_own_pieces(suspendable);
    const umf_memory_provider_handle_t provider = umf_suspendable_provider(suspendable);
    return own ? (umf_suspend_vm_t){own->vm, suspendable->pool->self}
               : (umf_suspend_vm_t){provider->ext, provider->self};
}

/* Bytes that a pool loses with a detached piece: of an arena, which counts pages, all of
 * it. */
static inline size_t umf_suspendable_piece_bytes(const umf_suspendable_t *suspendable,
                                                 const umf_suspend_piece_t *piece) {
    return umf_suspendable_own_pieces(suspendable) ? piece->size : piece->content;
}

/* Bytes of a text with its NUL, for its allocation and its free; 0 for NULL. */
static inline size_t umf_suspendable_text_bytes(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

/* The suspendable state of a pool. NULL: it has none yet. */
umf_suspendable_t *umf_suspendable_of(umf_memory_pool_handle_t pool);
/* The suspendable state of a pool, created on first use. NOT_SUPPORTED: the pool cannot be
 * suspended. */
umf_result_t umf_suspendable_get(umf_memory_pool_handle_t pool, umf_suspendable_t **out);
/* Destroys the object when the pool is destroyed, after its memory is back at the provider. */
void umf_suspendable_drop(umf_memory_pool_handle_t pool);

/* Ends a call: sets the state and the numbers that belong to it. Takes the lock. */
void umf_suspendable_set_state(umf_suspendable_t *suspendable, umf_suspend_state_t state);
/* Called when the last allocation of the piece at `base` was freed. true: it was a piece of a
 * suspended pool, and the caller releases it. Takes the lock. */
bool umf_suspendable_piece_gone(umf_suspendable_t *suspendable, const void *base);
/* Called when a closed pool has given an allocation back to the provider. If that was the last one
 * of a detached piece, the piece and its addresses are released. */
void umf_suspendable_freed(umf_memory_pool_handle_t pool, const void *ptr);

/* Between close and open, all functions of the pool that allocate refuse. */
void umf_suspendable_close_pool(umf_suspendable_t *suspendable);
void umf_suspendable_open_pool(umf_suspendable_t *suspendable);

/* --- steps of a suspend and a resume of one pool: pool_steps.c --- */

/* Copies the content of the pieces into a store, as the policy says. */
umf_result_t umf_suspendable_save(umf_suspendable_t *suspendable);
/* Restores the content of attached pieces, from the store or as zeros. */
umf_result_t umf_suspendable_load(umf_suspendable_t *suspendable);
/* Creates the memory of detached pieces. `missing`: after a failure, bytes that were not there. */
umf_result_t umf_suspendable_create(umf_suspendable_t *suspendable, size_t *missing);
umf_result_t umf_suspendable_attach(umf_suspendable_t *suspendable);
umf_result_t umf_suspendable_detach(umf_suspendable_t *suspendable);
/* Calls the callbacks of umf/registration.h: the memory of the pool is about to be unmapped. */
void umf_suspendable_notify_unmapping(const umf_suspendable_t *suspendable);
/* The same: it is mapped again. A refusal is undone, and returned. */
umf_result_t umf_suspendable_notify_mapped(const umf_suspendable_t *suspendable);

#endif
