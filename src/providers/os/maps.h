/*
 * A set of mappings that were freed and wait for an allocation of their size. The owner of the
 * object locks.
 */
#ifndef UMF_SRC_PROVIDERS_OS_MAPS_H
#define UMF_SRC_PROVIDERS_OS_MAPS_H

#include "ds/hash.h"
#include "ds/list.h"

typedef struct umf_os_mapping_t {
    uintptr_t base;
    size_t size;
    uint64_t since; /* umf_decay_now */
} umf_os_mapping_t;

typedef struct umf_os_maps_t {
    umf_os_mapping_t front; /* the newest mapping; `base` is 0 after it was taken */
    umf_list_t others;      /* the older ones, newest first */
    umf_hash_t at;          /* `others` by address */
    size_t bytes;           /* of `front` and `others` */
} umf_os_maps_t;

void umf_os_maps_init(umf_os_maps_t *maps);
/* The caller has taken all mappings. */
void umf_os_maps_fini(umf_os_maps_t *maps);

bool umf_os_maps_has(const umf_os_maps_t *maps, uintptr_t base);

/* false: no memory for bookkeeping, or a mapping at this address is in the set already. */
bool umf_os_maps_put(umf_os_maps_t *maps, umf_os_mapping_t mapping);
/* Takes a mapping of exactly `size` bytes. false: there is none. */
bool umf_os_maps_take(umf_os_maps_t *maps, size_t size, size_t alignment, uintptr_t *base);

/* NULL: the set is empty. */
const umf_os_mapping_t *umf_os_maps_oldest(const umf_os_maps_t *maps);
umf_os_mapping_t umf_os_maps_take_oldest(umf_os_maps_t *maps);

#endif
