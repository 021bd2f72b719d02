/*
 * A request, and its way if it does not fit in the shard of its thread.
 *
 * It is tried in every other shard before the provider is called. For a small request, a span that
 * another shard does not use moves to the thread's shard as a whole, where later requests of the
 * thread fit, too. Small requests do not wait for the locks of other shards. If
 * these are taken, or if the thread has contended and a good part of the pool's memory is in use,
 * the pool grows by one span of the smallest size instead.
 */
#ifndef UMF_SRC_POOLS_COALESCING_REQUEST_H
#define UMF_SRC_POOLS_COALESCING_REQUEST_H

#include "pools/coalescing/shards.h"

/* A request, rounded to the granule. */
typedef struct umf_coalescing_request_t {
    size_t size;
    size_t alignment;
} umf_coalescing_request_t;

static inline umf_result_t umf_coalescing_take_locked(umf_coalescing_shard_t *shard,
                                                      const umf_coalescing_request_t *request,
                                                      void **ptr) {
    umf_assert_locked(&shard->lock);
    uintptr_t base;
    umf_result_t result = umf_range_alloc(shard->range, request->size, request->alignment, &base);
    if (result == UMF_RESULT_SUCCESS) {
        shard->live++;
        *ptr = (void *)base;
    }
    return result;
}

UMF_INLINE umf_result_t umf_coalescing_take_and_unlock(umf_coalescing_pool_t *pool,
                                                       umf_coalescing_shard_t *shard,
                                                       const umf_coalescing_request_t *request,
                                                       void **ptr) {
    umf_result_t result = umf_coalescing_take_locked(shard, request, ptr);
    /* Reserved blocks count as free: before the shard reports that nothing fits, they are. */
    if (umf_unlikely(result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) &&
        umf_coalescing_reclaim_locked(shard)) {
        result = umf_coalescing_take_locked(shard, request, ptr);
    }
    umf_unlock(&shard->lock);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        umf_coalescing_reuse_note(pool, shard, (uintptr_t)*ptr, request->size);
    }
    return result;
}

/* Serves a request that did not fit in the thread's own `shard`. NULL: the thread's last error is
 * set. */
UMF_COLD void *umf_coalescing_serve(umf_coalescing_pool_t *pool, umf_coalescing_shard_t *shard,
                                    const umf_coalescing_request_t *request);

#endif
