/* What the files of mapping share. */
#ifndef UMF_SRC_IPC_MAPPING_OWN_H
#define UMF_SRC_IPC_MAPPING_OWN_H

#include <stdatomic.h>

#include "ipc/ipc.h"
#include "ipc/mapping.h"
#include "ipc/wire.h"

typedef enum umf_mapping_phase_t {
    UMF_MAPPING_NEW, /* 0: a fresh one is */
    UMF_MAPPING_OPENING,
    UMF_MAPPING_OPEN,
    UMF_MAPPING_RETIRED,
    UMF_MAPPING_CLOSED,
} umf_mapping_phase_t;

#define UMF_MAPPING_FIXED_WORDS (UMF_WIRE_FIXED / sizeof(uint64_t))

struct umf_mapping_t {
    _Atomic uint64_t state; /* Sync: atomic */

    /* What a guess is compared by: the first bytes of the handle, in its own byte order. Sync:
     * atomic; changed only while not live */
    _Atomic(umf_mapping_owner_t *) owner;
    _Atomic uint64_t fixed[UMF_MAPPING_FIXED_WORDS];

    /* Immutable from OPENING on (base, span, is_own and watch: from OPEN on) until the last user is
     * gone:
     */
    umf_memory_provider_handle_t provider;
    umf_wire_t wire;
    void *data; /* the provider's part of the handle */
    char *base;
    umf_span_t *span; /* NULL if it is opened in place */
    bool is_own;
    umf_ipc_watch_t watch;

    /* Sync: lock */
    umf_mapping_phase_t phase;
    uint32_t opener;       /* the process that made it OPENING */
    uint64_t opens_before; /* the count of opens when it became OPEN */
    struct umf_mapping_waiter_t *waiters;
    umf_list_t siblings; /* of its owner; later of those to close, then of spare ones */
    umf_list_t order;    /* of OPEN ones */
    umf_list_t own;      /* of those opened in place */
    umf_mapping_t *same; /* next one with the same key in the table */
};

static inline umf_mapping_owner_t *umf_mapping_owner(const umf_mapping_t *mapping) {
    return atomic_load_explicit(&mapping->owner, memory_order_acquire);
}

/* Never 0: the provider is to get a pointer even if it has nothing to say. */
static inline size_t umf_mapping_data_bytes(size_t data_size) {
    return data_size + 1;
}

/* mapping_provider.c */

/* Of a handle's header, and whether all bytes of the handle are there. */
umf_result_t umf_mapping_check_header(umf_mapping_owner_t *owner, const void *header, size_t size,
                                      umf_wire_t *wire);

/*
 * What the provider is given: it may write there. And it believes lengths that it finds there, up
 * to the longest that may come (`umf_mapping_check_header`); zeros follow, so that it reads nothing
 * else if such a length is a lie. Clearing that much costs more than what is checked, so an owner
 * keeps the last copy, with zeros again where something was written.
 */
typedef struct umf_mapping_copy_t {
    size_t size; /* of data */
    size_t used; /* what follows is zero */
    _Alignas(16) unsigned char data[];
} umf_mapping_copy_t;

umf_result_t umf_mapping_make_copy(const umf_mapping_t *mapping, umf_mapping_copy_t **out);
/* What the provider has written there is overwritten. */
void umf_mapping_fill_copy(const umf_mapping_t *mapping, umf_mapping_copy_t *copy);
/* Back to the owner. */
void umf_mapping_put_copy(umf_mapping_owner_t *owner, umf_mapping_copy_t *copy);
/* May be NULL. */
void umf_mapping_free_copy(umf_mapping_copy_t *copy);

/* Made on another machine or in another boot, which is the provider's business. */
bool umf_mapping_is_of_elsewhere(const umf_mapping_t *mapping);

/* The provider opens it, after the handle and its producer have been checked. */
umf_result_t umf_mapping_ask_provider(umf_mapping_t *mapping, umf_mapping_copy_t *copy,
                                      void **base);

#endif
