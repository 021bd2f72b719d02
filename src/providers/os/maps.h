/*
 * A set of mappings that were freed and wait for an allocation of their size. The owner of the
 * object locks.
 */
#ifndef UMF_SRC_PROVIDERS_OS_MAPS_H
#define UMF_SRC_PROVIDERS_OS_MAPS_H

#include "ds/hash.h"
#include "ds/list.h"
#include "system/common.h"

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

/* Moves the front mapping to the others. false: no memory for bookkeeping. */
bool umf_os_maps_join(umf_os_maps_t *maps);
bool umf_os_maps_take_other(umf_os_maps_t *maps, size_t size, size_t alignment, uintptr_t *base);

UMF_INLINE bool umf_os_maps_has(const umf_os_maps_t *maps, uintptr_t base) {
    return maps->bytes && (maps->front.base == base || umf_hash_get(&maps->at, base) != NULL);
}

/* false: no memory for bookkeeping, or a mapping at this address is in the set already. */
UMF_INLINE bool umf_os_maps_put(umf_os_maps_t *maps, uintptr_t base, size_t size, uint64_t since) {
    if (umf_os_maps_has(maps, base) || (maps->front.base && !umf_os_maps_join(maps))) {
        return false;
    }
    maps->front = (umf_os_mapping_t){base, size, since};
    maps->bytes += size;
    return true;
}

UMF_INLINE bool umf_os_mapping_fits(const umf_os_mapping_t *mapping, size_t size,
                                    size_t alignment) {
    return mapping->size == size && (!alignment || mapping->base % alignment == 0);
}

/* Takes a mapping of exactly `size` bytes. false: there is none. The front needs neither hash nor
 * list: who frees and allocates one size stays here. */
UMF_INLINE bool umf_os_maps_take(umf_os_maps_t *maps, size_t size, size_t alignment,
                                 uintptr_t *base) {
    if (!maps->front.base || !umf_os_mapping_fits(&maps->front, size, alignment)) {
        return maps->at.count && umf_os_maps_take_other(maps, size, alignment, base);
    }
    *base = maps->front.base;
    maps->front.base = 0;
    maps->bytes -= size;
    return true;
}

/* NULL: the set is empty. */
const umf_os_mapping_t *umf_os_maps_oldest(const umf_os_maps_t *maps);
umf_os_mapping_t umf_os_maps_take_oldest(umf_os_maps_t *maps);

#endif
