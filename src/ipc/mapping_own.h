/* The inside of mapping, shared by its files. */
#ifndef UMF_SRC_IPC_MAPPING_OWN_H
#define UMF_SRC_IPC_MAPPING_OWN_H

#include <stdatomic.h>

#include "ipc/ipc.h"
#include "ipc/mapping.h"
#include "ipc/wire.h"

typedef enum umf_mapping_phase_t {
    UMF_MAPPING_NEW, /* 0: zeroed memory is new */
    UMF_MAPPING_OPENING,
    UMF_MAPPING_OPEN,
    UMF_MAPPING_RETIRED,
    UMF_MAPPING_CLOSED,
} umf_mapping_phase_t;

#define UMF_MAPPING_FIXED_WORDS (UMF_WIRE_FIXED / sizeof(uint64_t))

struct umf_mapping_t {
    _Atomic uint64_t state; /* Sync: atomic */

    /* A guess is compared by its owner and by the fixed bytes of the handle, in the handle's byte
     * order. Sync: atomic; changed only while not live */
    _Atomic(umf_mapping_owner_t *) owner;
    _Atomic uint64_t fixed[UMF_MAPPING_FIXED_WORDS];

    /* Immutable from OPENING on (base, span, is_own and watch: from OPEN on) until the last user is
     * removed:
     */
    umf_memory_provider_handle_t provider;
    umf_wire_t wire;
    void *data; /* the provider's part of the handle */
    char *base;
    umf_span_t *span; /* NULL: opened in place */
    bool is_own;
    umf_ipc_watch_t watch;

    /* Sync: lock */
    umf_mapping_phase_t phase;
    uint32_t opener;       /* pid of the process whose thread opens it */
    uint64_t opens_before; /* the count of opens when it became OPEN */
    struct umf_mapping_waiter_t *waiters;
    umf_list_t siblings; /* in the list of its owner, of mappings to close, or of spare ones */
    umf_list_t order;    /* in mapping_order while OPEN */
    umf_list_t own;      /* in mapping_own if opened in place */
    umf_mapping_t *same; /* next one with the same key in the table */
};

static inline umf_mapping_owner_t *umf_mapping_owner(const umf_mapping_t *mapping) {
    return atomic_load_explicit(&mapping->owner, memory_order_acquire);
}

/* Never 0: the provider gets a pointer even if its handles have no data. */
static inline size_t umf_mapping_data_bytes(size_t data_size) {
    return data_size + 1;
}

/* mapping_provider.c */

/* Checks a handle's header, and whether all bytes of the handle are there. */
umf_result_t umf_mapping_check_header(umf_mapping_owner_t *owner, const void *header, size_t size,
                                      umf_wire_t *wire);

/* Bytes of a copy of a handle's data for the provider, which may write to it. A provider believes
 * the lengths that it finds in the data, up to the longest that is allowed
 * (`umf_mapping_check_header`). So zeros follow the data, and a false length leads to nothing
 * else. */
umf_result_t umf_mapping_copy_size(const umf_mapping_t *mapping, size_t *size);

/* Whether the handle was made on another machine or in another boot. Whether that is allowed
 * depends on the provider. */
bool umf_mapping_is_of_elsewhere(const umf_mapping_t *mapping);

/* Checks the handle and its producer, then lets the provider open it. */
umf_result_t umf_mapping_ask_provider(umf_mapping_t *mapping, void *copy, void **base);

#endif
