/* Purges the free memory that a pool of oneTBB keeps. */
#ifndef UMF_SRC_POOLS_SCALABLE_PURGE_H
#define UMF_SRC_POOLS_SCALABLE_PURGE_H

#include "object/provider/tracked_provider.h"
#include "pools/scalable/sizes.h"
#include "pools/scalable/tbb.h"

typedef struct umf_scalable_purge_t {
    const umf_tbb_t *tbb;
    void *below; /* oneTBB's pool */
    umf_tracked_provider_t *tracked;
} umf_scalable_purge_t;

/* Purges what it can. The caller must be the trimmer: the provider's hook refuses it memory, so
 * that it gets free memory only. */
void umf_scalable_purge(const umf_scalable_purge_t *pool);

#endif
