/* How a coalescing pool gives memory back: wholly free spans are returned, the pages of free
 * segments in other spans are purged. */
#include "pools/coalescing/release.h"

#include <errno.h>

#include <umf/result.h>

#include "base/log.h"

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_shard_t shard_t;
typedef umf_coalescing_choice_t choice_t;

/* --- giving spans back ------------------------------------------------------------------------ */

static void choose_largest(uintptr_t base, size_t size, void *arg) {
    choice_t *choice = arg;
    if (size <= choice->limit && size > choice->size) {
        choice->base = base;
        choice->size = size;
    }
}

/* Takes the largest wholly free span of up to `limit` bytes out of the shard. false: there is
 * none. */
static bool span_withdraw(shard_t *shard, size_t limit, choice_t *choice) {
    *choice = (choice_t){.limit = limit};
    umf_lock(&shard->lock);
    umf_coalescing_reclaim_locked(shard); /* a reserved block keeps its span from being free */
    umf_range_free_regions(shard->range, choose_largest, choice);
    if (choice->size) {
        umf_range_remove(shard->range, choice->base);
    }
    umf_unlock(&shard->lock);
    return choice->size > 0;
}

static umf_result_t span_return(coalescing_pool_t *pool, shard_t *shard, uintptr_t base) {
    umf_span_t *span = umf_tracked_find(pool->tracked, (void *)base);
    if (!span) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    size_t size = span->size;
    umf_result_t result = umf_tracked_free(pool->tracked, span);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("pool %s: the provider does not take back %zu bytes at %p (%s); the pool "
                      "goes on using them",
                      pool->params.name, size, (void *)base, umfResultName(result));
        umf_lock(&shard->lock);
        /* If this fails the memory is not used, but the end of the pool offers it again. */
        umf_range_add(shard->range, base, size);
        umf_unlock(&shard->lock);
    }
    return result;
}

/* false: the provider refuses to take a span back. */
static bool release_from(coalescing_pool_t *pool, shard_t *shard, size_t *bytes) {
    choice_t choice;
    while (span_withdraw(shard, *bytes, &choice)) {
        if (span_return(pool, shard, choice.base) != UMF_RESULT_SUCCESS) {
            return false;
        }
        *bytes -= choice.size;
    }
    return true;
}

void umf_coalescing_release(coalescing_pool_t *pool, size_t bytes) {
    shard_t *shard = umf_coalescing_shard(pool, 0);
    umf_transit_part_t part;
    umf_transit_begin(&pool->transit, &part);
    umf_provider_free_batch(pool->tracked, true);
    for (size_t i = 1; shard && release_from(pool, shard, &bytes); i++) {
        shard = umf_coalescing_shard(pool, i);
    }
    umf_provider_free_batch(pool->tracked, false);
    umf_transit_end(&part);
}

static void count_free_spans(const shard_t *shard, size_t *bytes) {
    *bytes += umf_range_free_region_bytes(shard->range);
}

void umf_coalescing_release_surplus(coalescing_pool_t *pool, shard_t *shard, uintptr_t base) {
    if (umf_coalescing_count(pool, count_free_spans) <= pool->params.retain) {
        return;
    }
    umf_transit_part_t part;
    umf_transit_begin(&pool->transit, &part);
    umf_lock(&shard->lock);
    /* Fails if another thread has allocated from the span meanwhile: then it stays. */
    umf_result_t result = umf_range_remove(shard->range, base);
    umf_unlock(&shard->lock);
    if (result == UMF_RESULT_SUCCESS) {
        span_return(pool, shard, base);
    }
    umf_transit_end(&part);
}

/* --- both ------------------------------------------------------------------------------------- */

static void release_above(coalescing_pool_t *pool, size_t keep) {
    size_t bytes = umf_coalescing_count(pool, count_free_spans);
    if (bytes > keep) {
        umf_coalescing_release(pool, bytes - keep);
    }
}

static void drop_bookkeeping(coalescing_pool_t *pool) {
    shard_t *shard;
    for (size_t i = 0; (shard = umf_coalescing_shard(pool, i)); i++) {
        umf_lock(&shard->lock);
        umf_coalescing_reuse_keep_leases(pool, shard);
        umf_range_trim(shard->range);
        umf_unlock(&shard->lock);
    }
}

/* A span that became wholly free while one of its segments was isolated was not seen as such. */
static void release_surplus(coalescing_pool_t *pool) {
    if (pool->params.retain != SIZE_MAX) {
        release_above(pool, pool->params.retain);
    }
}

void umf_coalescing_decay_now(coalescing_pool_t *pool) {
    int saved_errno = errno; /* the caller may be malloc or free, which must not change it */
    umf_coalescing_kept_decay(pool);
    umf_coalescing_reclaim(pool);
    if (umf_purge_decay(&pool->purge)) {
        umf_decay_go_on(&pool->decay);
    } else {
        drop_bookkeeping(pool);
    }
    release_surplus(pool);
    errno = saved_errno;
}

/* The second release applies `retain` to spans that became wholly free during the purge. */
umf_result_t umf_coalescing_trim(void *self, size_t keep) {
    coalescing_pool_t *pool = self;
    umf_coalescing_kept_free(pool, true);
    umf_coalescing_reclaim(pool);
    release_above(pool, keep);
    if (keep != SIZE_MAX) {
        umf_purge_all(&pool->purge);
        release_above(pool, keep < pool->params.retain ? keep : pool->params.retain);
        drop_bookkeeping(pool);
    }
    return UMF_RESULT_SUCCESS;
}
