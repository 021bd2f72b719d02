/*
 * Place: what a range of addresses is, and who can copy it.
 */
#ifndef UMF_SRC_MOVEMENT_PLACE_H
#define UMF_SRC_MOVEMENT_PLACE_H

#include <umf/copy.h>

#include "core/foreign.h"
#include "core/object.h"

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

/* Finds out what [addr, addr + size) is, which is about to be written or read. `word` is the
 * caller's word for unknown memory; `helper` (may be NULL) is the provider that copies it then.
 * Cannot fail: what nobody knows is memory of the host. */
void umf_side_find(umf_side_t *side, const void *addr, size_t size, bool is_written,
                   umf_place_kind_t word, umf_memory_provider_handle_t helper);

/* A side that only names a provider. */
void umf_side_of_provider(umf_side_t *side, umf_memory_provider_handle_t provider);

/* Ends the use of its span. A zeroed side has none. */
static inline void umf_side_release(umf_side_t *side) {
    if (side->span) {
        umf_use_end(side->span);
        side->span = 0;
    }
}

/* Checks that the range lies in its allocation and is not suspended. Logs what is wrong. */
umf_result_t umf_side_check(const umf_side_t *side);

/* Is it memory of the host that needs no question: the caller's stack, the heap or the
 * program's variables? For addresses
 * that are not in the map. */
bool umf_side_is_plain(uintptr_t addr, size_t size);

/* Can the CPU do it? */
static inline bool umf_side_is_of_host(const umf_side_t *side) {
    return side->kind == UMF_PLACE_HOST || side->kind == UMF_PLACE_PINNED;
}

/* Does the side's provider copy? */
static inline bool umf_side_has_copy(const umf_side_t *side) {
    const umf_memory_provider_ext_ops_t *ext = side->ext;
    return ext->copy && ext->queue_create && ext->queue_destroy && ext->queue_wait;
}

/* Does one `copy` take the memory of both? */
bool umf_side_is_same_domain(const umf_side_t *a, const umf_side_t *b);

#endif
