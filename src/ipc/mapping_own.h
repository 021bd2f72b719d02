/* The inside of mapping, shared by its files. */
#ifndef UMF_SRC_IPC_MAPPING_OWN_H
#define UMF_SRC_IPC_MAPPING_OWN_H

#include <string.h>

#include "base/event_count.h"
#include "ds/hash.h"
#include "ipc/ipc.h"
#include "ipc/mapping.h"
#include "ipc/wire.h"
#include "system/atomic.h"

typedef enum umf_mapping_phase_t {
    UMF_MAPPING_NEW, /* 0: zeroed memory is new */
    UMF_MAPPING_OPENING,
    UMF_MAPPING_OPEN,
    UMF_MAPPING_RETIRED,
    UMF_MAPPING_CLOSED,
} umf_mapping_phase_t;

#define UMF_MAPPING_FIXED_WORDS (UMF_WIRE_FIXED / sizeof(uint64_t))

struct umf_mapping_t {
    _Atomic(uint64_t) state; /* Sync: atomic */

    /* A guess is compared by its owner and by the fixed bytes of the handle, in the handle's byte
     * order. Sync: atomic; changed only while not live */
    _Atomic(umf_mapping_owner_t *) owner;
    _Atomic(uint64_t) fixed[UMF_MAPPING_FIXED_WORDS];

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
    umf_list_t order;    /* in umf_mappings.order while OPEN */
    umf_list_t own;      /* in umf_mappings.own if opened in place */
    umf_mapping_t *same; /* next one with the same key in the table */
};

static inline umf_mapping_owner_t *umf_mapping_owner(const umf_mapping_t *mapping) {
    return atomic_load_explicit(&mapping->owner, memory_order_acquire);
}

/* Whether the fixed bytes of the header are equal; offset and data are compared elsewhere. */
static inline bool umf_mapping_is_fixed(const umf_mapping_t *mapping, const void *fixed) {
    uint64_t difference = 0;
    for (size_t i = 0; i < UMF_MAPPING_FIXED_WORDS; i++) {
        uint64_t word;
        memcpy(&word, (const char *)fixed + i * sizeof(word), sizeof(word));
        difference |= word ^ atomic_load_explicit(&mapping->fixed[i], memory_order_acquire);
    }
    return difference == 0;
}

/* Never 0: the provider gets a pointer even if its handles have no data. */
static inline size_t umf_mapping_data_bytes(size_t data_size) {
    return data_size + 1;
}

/* mapping.c */

extern struct umf_mappings_t {
    umf_lock_t lock;
    umf_event_count_t outcomes; /* advances when an open ends */
    umf_hash_t table;           /* Sync: lock */
    umf_list_t order;           /* OPEN mappings, last opened last. Sync: lock */
    umf_list_t spare;           /* unused descriptors. Sync: lock */
    umf_list_t own;             /* opened in place, not closed yet. Sync: lock */
    size_t count;               /* mappings not closed yet, OPENING included. Sync: lock */
    size_t limit;               /* 0: none. Immutable after init */
    uint64_t misses;            /* Sync: lock */
    uint64_t evictions;         /* Sync: lock */
    umf_span_set_t spans;       /* of all mappings */
} umf_mappings;

/* Adds a user to a mapping that is known to be OPEN. */
void umf_mapping_use_locked(umf_mapping_t *mapping);
/* Gives a mapping that becomes OPEN its first user. */
void umf_mapping_first_use_locked(umf_mapping_t *mapping);
/* Takes an OPEN mapping out of the table for good; its last user closes it. Without users it is
 * added to `closing`. */
void umf_mapping_retire_locked(umf_mapping_t *mapping, umf_list_t *closing);
/* Evicts mappings, least recently opened first, until one more fits. Mappings in use stay. */
void umf_mapping_evict_locked(umf_list_t *closing);
/* Closes the mappings of the list. Calls providers: no lock may be held. */
void umf_mapping_close_all(umf_list_t *closing);
/* Lets umf_mapping_open_again find the mapping, if there is no limit. */
void umf_mapping_remember(const umf_mapping_owner_t *owner, umf_mapping_t *mapping);

/* mapping_open.c */

/* Waits for the outcome of another thread's open. The mapping may be freed when this returns. */
umf_result_t umf_mapping_wait_locked(umf_mapping_t *mapping);
/* Removes an OPENING mapping. In a forked child the thread that was opening it does not exist. */
void umf_mapping_abandon_locked(umf_mapping_t *mapping);

/* mapping_table.c */

/* A descriptor with room for the data of a handle. NULL: no memory. */
umf_mapping_t *umf_mapping_alloc(size_t data_size);
/* Frees the data. The descriptor becomes a spare one: a guess may still read it. */
void umf_mapping_free(umf_mapping_t *mapping);
void umf_mapping_set_fixed(umf_mapping_t *mapping, const void *fixed);
/* Whether two handles are equal but for the offset. */
bool umf_mapping_is_same(const umf_mapping_t *a, const umf_mapping_t *b);
/* The mapping in the table of the same owner, producer and base address. NULL: none. */
umf_mapping_t *umf_mapping_find_locked(const umf_mapping_t *like);
/* false: no memory. */
bool umf_mapping_insert_locked(umf_mapping_t *mapping);
void umf_mapping_remove_locked(umf_mapping_t *mapping);

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
