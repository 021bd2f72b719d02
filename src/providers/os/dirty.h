/*
 * Dirty mappings: what pools have freed and may want again, with its content. The owner locks.
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
    umf_os_mapping_t front; /* the latest; `base` is 0 if it was taken */
    umf_list_t others;      /* the latest first */
    umf_hash_t at;          /* of these, by address */
    size_t bytes;           /* of all */
} umf_os_dirty_t;

void umf_os_dirty_init(umf_os_dirty_t *dirty);
/* None may be left. */
void umf_os_dirty_fini(umf_os_dirty_t *dirty);

bool umf_os_dirty_has(const umf_os_dirty_t *dirty, uintptr_t base);

/* false: no memory, or it is there already. */
bool umf_os_dirty_put(umf_os_dirty_t *dirty, umf_os_mapping_t mapping);
/* One of that size. false: there is none. */
bool umf_os_dirty_take(umf_os_dirty_t *dirty, size_t size, size_t alignment, uintptr_t *base);

/* NULL: there is none. */
const umf_os_mapping_t *umf_os_dirty_oldest(const umf_os_dirty_t *dirty);
umf_os_mapping_t umf_os_dirty_take_oldest(umf_os_dirty_t *dirty);

#endif
