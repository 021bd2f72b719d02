/* Purging what a pool of oneTBB has free and keeps. */
#ifndef UMF_SRC_POOLS_SCALABLE_PURGE_H
#define UMF_SRC_POOLS_SCALABLE_PURGE_H

#include "core/tracked_provider.h"
#include "pools/scalable/tbb.h"

/* The largest object that oneTBB has in slabs. */
#define UMF_SCALABLE_SMALL_LARGEST 8128

typedef struct umf_scalable_purge_t {
    const umf_tbb_t *tbb;
    void *below; /* oneTBB's pool */
    umf_tracked_provider_t *tracked;
} umf_scalable_purge_t;

/* The caller is the only one who gets memory out of the pool, and is refused new memory. */
void umf_scalable_purge(const umf_scalable_purge_t *pool);

#endif
