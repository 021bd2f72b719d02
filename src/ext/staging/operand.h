/*
 * Operand of a copy, source or destination. ext/movement/memory_kind.h fills it.
 */
#ifndef UMF_SRC_EXT_STAGING_OPERAND_H
#define UMF_SRC_EXT_STAGING_OPERAND_H

#include <umf/copy.h>

#include "object/foreign.h"
#include "object/object.h"

/* One operand of a copy. */
typedef struct umf_operand_t {
    const char *name; /* "destination", "source": for messages */
    uintptr_t addr;
    size_t size;
    umf_place_kind_t kind;
    umf_place_source_t source;
    uint32_t span;                            /* index, in use until umf_operand_release; 0: none */
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
} umf_operand_t;

/* A part of two operands. */
typedef struct umf_piece_t {
    uintptr_t to, from;
    size_t size;
} umf_piece_t;

/* An operand that only names a provider. */
static inline void umf_operand_of_provider(umf_operand_t *operand,
                                           umf_memory_provider_handle_t provider) {
    umf_memory_provider_handle_t root = provider->root;
    operand->source = UMF_PLACE_FROM_NOBODY;
    operand->kind = UMF_PLACE_UNKNOWN;
    operand->span = 0;
    operand->addr = 0;
    operand->provider = root;
    operand->ext = root->ext;
    operand->self = root->self;
}

/* Ends the use of its span. A zeroed operand has none. */
static inline void umf_operand_release(umf_operand_t *operand) {
    if (operand->span) {
        umf_use_end(operand->span);
        operand->span = 0;
    }
}

/* Can the CPU do it? */
static inline bool umf_operand_is_of_host(const umf_operand_t *operand) {
    return operand->kind == UMF_PLACE_HOST || operand->kind == UMF_PLACE_PINNED;
}

/* Does the operand's provider copy? */
static inline bool umf_operand_has_copy(const umf_operand_t *operand) {
    const umf_memory_provider_ext_ops_t *ext = operand->ext;
    return ext->copy && ext->queue_create && ext->queue_destroy && ext->queue_wait;
}

/* Records the provider whose operation failed. Returns `result`. */
static inline umf_result_t umf_operand_failed(const umf_operand_t *operand, umf_result_t result) {
    if (umf_unlikely(result != UMF_RESULT_SUCCESS) && operand->provider) {
        umf_provider_failed(operand->provider);
    }
    return result;
}

#endif
