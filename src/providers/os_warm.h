/*
 * Warm mappings: what pools have freed and may want again, with its content. The owner locks.
 */
#ifndef UMF_SRC_PROVIDERS_OS_WARM_H
#define UMF_SRC_PROVIDERS_OS_WARM_H

#include "ds/hash.h"
#include "ds/list.h"

typedef struct umf_os_warm_t {
    umf_list_t all; /* the latest first */
    umf_hash_t at;  /* by address */
    size_t bytes;
} umf_os_warm_t;

void umf_os_warm_init(umf_os_warm_t *warm);
/* None may be left. */
void umf_os_warm_fini(umf_os_warm_t *warm);

bool umf_os_warm_has(const umf_os_warm_t *warm, uintptr_t base);

/* `look`: the number of the last look at what decays. false: no memory, or it is there already. */
bool umf_os_warm_put(umf_os_warm_t *warm, uintptr_t base, size_t size, uint32_t look);
/* One of that size. false: there is none. */
bool umf_os_warm_take(umf_os_warm_t *warm, size_t size, size_t alignment, uintptr_t *base);
/* The oldest, if it came `age` looks ago or before. */
bool umf_os_warm_take_oldest(umf_os_warm_t *warm, uint32_t look, uint32_t age, uintptr_t *base,
                             size_t *size);

#endif
