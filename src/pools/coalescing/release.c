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
    umf_coalescing_reclaim_locked(shard); /* a withheld block keeps its span from being free */
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
    int saved_errno = errno;
    umf_result_t result = umf_tracked_free(pool->tracked, span);
    errno = saved_errno;
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
    umf_withheld_part_t part;
    umf_withheld_begin(&pool->withheld, &part);
    umf_provider_free_batch(pool->tracked, true);
    for (size_t i = 1; shard && release_from(pool, shard, &bytes); i++) {
        shard = umf_coalescing_shard(pool, i);
    }
    umf_provider_free_batch(pool->tracked, false);
    umf_withheld_end(&part);
}

static void count_free_spans(const shard_t *shard, size_t *bytes) {
    *bytes += umf_range_free_region_bytes(shard->range);
}

void umf_coalescing_release_surplus(coalescing_pool_t *pool, shard_t *shard, uintptr_t base) {
    if (umf_coalescing_count(pool, count_free_spans) <= pool->params.retain) {
        return;
    }
    umf_withheld_part_t part;
    umf_withheld_begin(&pool->withheld, &part);
    umf_lock(&shard->lock);
    /* Fails if another thread has allocated from the span meanwhile: then it stays. */
    umf_result_t result = umf_range_remove(shard->range, base);
    umf_unlock(&shard->lock);
    if (result == UMF_RESULT_SUCCESS) {
        span_return(pool, shard, base);
    }
    umf_withheld_end(&part);
}

/* --- purging free segments -------------------------------------------------------------------- */

bool umf_coalescing_is_isolated_locked(shard_t *shard, const void *ptr) {
    umf_assert_locked(&shard->lock);
    for (size_t i = 0; i < shard->isolated_count; i++) {
        if (shard->isolated[i].base == (uintptr_t)ptr) {
            return true;
        }
    }
    return false;
}

static void reintegrate_locked(shard_t *shard) {
    umf_assert_locked(&shard->lock);
    for (size_t i = 0; i < shard->isolated_count; i++) {
        umf_range_free(shard->range, shard->isolated[i].base, 0, NULL);
    }
    shard->isolated_count = 0;
}

bool umf_coalescing_inherit_locked(shard_t *shard) {
    bool inherits = shard->isolated_count && shard->isolated_since != umf_fork_count();
    if (inherits) {
        reintegrate_locked(shard);
    }
    return inherits;
}

/* Isolates the next free segments, from high addresses to low, so that no thread allocates them
 * while they are purged without the lock. Only one thread at a time gets any. */
static size_t isolate(coalescing_pool_t *pool, shard_t *shard, uintptr_t *cursor) {
    size_t count = 0;
    umf_lock(&shard->lock);
    umf_coalescing_inherit_locked(shard);
    if (shard->isolated_count == 0) {
        count = umf_range_take_free(shard->range, cursor, pool->page, shard->isolated,
                                    UMF_COALESCING_PURGE_BATCH);
        shard->isolated_count = count;
        shard->isolated_since = umf_fork_count();
    }
    umf_unlock(&shard->lock);
    return count;
}

static void reintegrate(shard_t *shard) {
    umf_lock(&shard->lock);
    reintegrate_locked(shard);
    umf_unlock(&shard->lock);
}

/* Purges the whole pages of a segment. false: the provider cannot purge. */
static bool purge_segment(coalescing_pool_t *pool, const umf_range_segment_t *segment) {
    uintptr_t end = segment->base + segment->size;
    uintptr_t rest = segment->base % pool->page;
    uintptr_t first = segment->base + (rest ? pool->page - rest : 0);
    end -= end % pool->page;
    if (first >= end) {
        return true;
    }
    umf_result_t result = umfMemoryProviderPurgeForce(pool->tracked, (void *)first, end - first);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        result = umfMemoryProviderPurgeLazy(pool->tracked, (void *)first, end - first);
    }
    return result != UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Purges the next free segments of a shard. false: there are no more, or the provider cannot purge,
 * which `can` tells. */
static bool purge_next(coalescing_pool_t *pool, shard_t *shard, uintptr_t *cursor, bool *can) {
    umf_withheld_part_t part;
    umf_withheld_begin(&pool->withheld, &part);
    size_t count = isolate(pool, shard, cursor);
    for (size_t i = 0; *can && i < count; i++) {
        /* Without the lock: no other thread changes `isolated` while it is not empty. */
        *can = purge_segment(pool, &shard->isolated[i]);
    }
    if (count) {
        reintegrate(shard);
    }
    umf_withheld_end(&part);
    return count && *can;
}

/* Purges all free segments of a shard. false: the provider cannot purge. */
static bool purge_shard(coalescing_pool_t *pool, shard_t *shard) {
    uintptr_t cursor = UINTPTR_MAX;
    bool can = true;
    while (purge_next(pool, shard, &cursor, &can)) {
    }
    return can;
}

static void purge(coalescing_pool_t *pool) {
    shard_t *shard = umf_coalescing_shard(pool, 0);
    for (size_t i = 1; shard && purge_shard(pool, shard); i++) {
        shard = umf_coalescing_shard(pool, i);
    }
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

/* Spans are released twice. A span that became wholly free while one of its segments was isolated
 * was not seen as such, so `retain` was not applied to it; the second release does that. */
umf_result_t umf_coalescing_trim(void *self, size_t keep) {
    coalescing_pool_t *pool = self;
    umf_coalescing_reclaim(pool);
    release_above(pool, keep);
    if (keep != SIZE_MAX) {
        purge(pool);
        release_above(pool, keep < pool->params.retain ? keep : pool->params.retain);
        drop_bookkeeping(pool);
    }
    return UMF_RESULT_SUCCESS;
}
