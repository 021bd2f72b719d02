/*
 * Dirty mappings: pools have freed them, and an allocation of any content may reuse them. The owner
 * of the object locks.
 */
#ifndef UMF_SRC_PROVIDERS_OS_DIRTY_H
#define UMF_SRC_PROVIDERS_OS_DIRTY_H

#include "ds/hash.h"
#include "ds/list.h"

typedef struct umf_os_mapping_t {
    uintptr_t base;
    size_t size;
    uint64_t since; /* umf_decay_now */
} umf_os_mapping_t;

typedef struct umf_os_dirty_t {
    umf_os_mapping_t front; /* the newest mapping; `base` is 0 after it was taken */
    umf_list_t others;      /* the older ones, newest first */
    umf_hash_t at;          /* `others` by address */
    size_t bytes;           /* of `front` and `others` */
} umf_os_dirty_t;

void umf_os_dirty_init(umf_os_dirty_t *dirty);
/* The caller has taken all mappings. */
void umf_os_dirty_fini(umf_os_dirty_t *dirty);

bool umf_os_dirty_has(const umf_os_dirty_t *dirty, uintptr_t base);

/* false: no memory for bookkeeping, or a mapping at this address is dirty already. */
bool umf_os_dirty_put(umf_os_dirty_t *dirty, umf_os_mapping_t mapping);
/* Takes a mapping of exactly `size` bytes. false: there is none. */
bool umf_os_dirty_take(umf_os_dirty_t *dirty, size_t size, size_t alignment, uintptr_t *base);

/* NULL: no mapping is dirty. */
const umf_os_mapping_t *umf_os_dirty_oldest(const umf_os_dirty_t *dirty);
umf_os_mapping_t umf_os_dirty_take_oldest(umf_os_dirty_t *dirty);

#endif
