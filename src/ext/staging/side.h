/*
 * Side: one operand of a copy, source or destination. ext/movement/place.h fills it.
 */
#ifndef UMF_SRC_EXT_STAGING_SIDE_H
#define UMF_SRC_EXT_STAGING_SIDE_H

#include <umf/copy.h>

#include "object/foreign.h"
#include "object/object.h"

/* One side of a copy. */
typedef struct umf_side_t {
    const char *name; /* "destination", "source": for messages */
    uintptr_t addr;
    size_t size;
    umf_place_kind_t kind;
    umf_place_source_t source;
    uint32_t span;                            /* index, in use until umf_side_release; 0: none */
    bool is_leaving;                          /* the memory is being freed */
    bool is_closed;                           /* it was opened from an IPC handle, and is closed */
    bool is_missing;                          /* the CPU cannot access it so */
    umf_memory_pool_handle_t pool;            /* NULL: none */
    umf_memory_provider_handle_t provider;    /* the root; NULL: none */
    const umf_memory_provider_ext_ops_t *ext; /* never NULL */
    void *self;                               /* of `ext` */
    uintptr_t base;                           /* of the allocation; room 0: unknown */
    size_t room;
    int device;
    umf_foreign_t foreign; /* valid if the source is FROM_DRIVER */
} umf_side_t;

/* A part of two sides. */
typedef struct umf_piece_t {
    uintptr_t to, from;
    size_t size;
} umf_piece_t;

/* A side that only names a provider. */
static inline void umf_side_of_provider(umf_side_t *side, umf_memory_provider_handle_t provider) {
    umf_memory_provider_handle_t root = provider->root;
    side->source = UMF_PLACE_FROM_NOBODY;
    side->kind = UMF_PLACE_UNKNOWN;
    side->span = 0;
    side->addr = 0;
    side->provider = root;
    side->ext = root->ext;
    side->self = root->self;
}

/* Ends the use of its span. A zeroed side has none. */
static inline void umf_side_release(umf_side_t *side) {
    if (side->span) {
        umf_use_end(side->span);
        side->span = 0;
    }
}

/* Can the CPU do it? */
static inline bool umf_side_is_of_host(const umf_side_t *side) {
    return side->kind == UMF_PLACE_HOST || side->kind == UMF_PLACE_PINNED;
}

/* Does the side's provider copy? */
static inline bool umf_side_has_copy(const umf_side_t *side) {
    const umf_memory_provider_ext_ops_t *ext = side->ext;
    return ext->copy && ext->queue_create && ext->queue_destroy && ext->queue_wait;
}

/* Records the provider whose operation failed. Returns `result`. */
static inline umf_result_t umf_side_failed(const umf_side_t *side, umf_result_t result) {
    if (umf_unlikely(result != UMF_RESULT_SUCCESS) && side->provider) {
        umf_provider_failed(side->provider);
    }
    return result;
}

#endif
