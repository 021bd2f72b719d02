/* Queues: free, use, the end of a queue, trims and waits. */
#include <umf/queue.h>

#include <time.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/queue/stream_caches.h"
#include "object/recorded.h"
#include "reclaim/reclaim.h"
#include "system/pause.h"

/* --- free --- */

/* NULL: no pool has the block, which is logged. */
static umf_memory_pool_handle_t find_pool(const void *ptr, umf_map_entry_t entry) {
    umf_memory_pool_handle_t pool = umf_layer_pool(entry);
    if (!pool) {
        UMF_LOG_ERROR("no pool has %p: it is foreign, already freed, or of an untracked pool", ptr);
    }
    return pool;
}

/* The caches of a block's pool and the cache of the queue. The result NOT_SUPPORTED with the queue
 * NULL: the pool has no queues. */
static umf_result_t find_all(umf_memory_pool_handle_t pool, umf_queue_t queue,
                             umf_stream_caches_t **caches, umf_stream_cache_t **cache) {
    umf_result_t result = umf_stream_caches_get(pool, caches);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return queue ? umf_stream_caches_refuse(pool, queue) : result;
    }
    return result == UMF_RESULT_SUCCESS ? umf_stream_caches_find_known(*caches, queue, cache)
                                        : result;
}

/* A free that is recorded. */
typedef struct free_call_t {
    umf_stream_caches_t *caches;
    umf_stream_cache_t *cache;
    umf_map_entry_t entry;
} free_call_t;

static umf_result_t free_recorded(umf_memory_pool_handle_t pool, void *ptr, const void *arg) {
    const free_call_t *call = arg;
    (void)pool;
    return umf_stream_caches_free(call->caches, call->cache, ptr, call->entry);
}

/* --- pools that order queues themselves --- */

/* Has such a pool queues? If not, NULL is one. `result`: of a call that names another one. */
static bool is_plain(umf_memory_pool_handle_t pool, umf_queue_t queue, umf_result_t *result) {
    bool has_queues = umf_queued_of(pool)->has_queues(pool->self);
    *result = !has_queues && queue ? umf_stream_caches_refuse(pool, queue)
                                   : UMF_RESULT_ERROR_NOT_SUPPORTED;
    return !has_queues;
}

/* With IPC handles out the free may be deferred: the block keeps the queue until then. */
static umf_result_t free_on(umf_memory_pool_handle_t pool, void *ptr, const void *arg) {
    umf_queue_t queue = *(umf_queue_t const *)arg;
    if (umf_likely(!__atomic_load_n(&pool->pins, __ATOMIC_RELAXED))) {
        return umf_queued_of(pool)->free_on(pool->self, ptr, queue);
    }
    umf_result_t result = umf_queued_of(pool)->last_use_on(pool->self, ptr, queue);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_map_entry_t entry = umf_map_find(&umf_map_global, (uintptr_t)ptr);
    return UMF_PASS_ON(pool, UMF_LAYER_QUEUE, free_at)(pool->free_self, ptr, entry);
}

static umf_result_t free_queued(umf_memory_pool_handle_t pool, void *ptr, umf_queue_t queue) {
    umf_result_t result;
    if (is_plain(pool, queue, &result)) {
        return queue ? result : umfFree(ptr);
    }
    return umf_is_recorded(pool) ? umf_recorded_free(pool, ptr, queue, free_on, &queue)
                                 : free_on(pool, ptr, &queue);
}

static umf_result_t use_queued(umf_memory_pool_handle_t pool, const void *ptr, umf_queue_t queue) {
    umf_result_t result;
    if (is_plain(pool, queue, &result)) {
        return queue ? result : UMF_RESULT_SUCCESS;
    }
    return umf_queued_of(pool)->use_on(pool->self, ptr, queue);
}

/* --- all pools --- */

/* `entry`: the map entry of `ptr`; 0: the fast walk did not find it. */
static UMF_COLD umf_result_t free_slow(void *ptr, umf_map_entry_t entry, umf_queue_t queue) {
    free_call_t call;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    call.entry = entry ? entry : umf_map_find_slow(&umf_map_global, (uintptr_t)ptr);
    umf_memory_pool_handle_t pool = find_pool(ptr, call.entry);
    if (!pool) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (umf_queued_of(pool)) {
        return free_queued(pool, ptr, queue);
    }
    umf_result_t result = find_all(pool, queue, &call.caches, &call.cache);
    if (result != UMF_RESULT_SUCCESS) {
        return result == UMF_RESULT_ERROR_NOT_SUPPORTED && !queue ? umfFree(ptr) : result;
    }
    return umf_is_recorded(pool) ? umf_recorded_free(pool, ptr, queue, free_recorded, &call)
                                 : free_recorded(pool, ptr, &call);
}

/* Frees a block that was allocated on the same queue and is used there only. Hot. */
UMF_INLINE bool free_cached(const umf_stream_caches_entry_t *cached, const void *ptr) {
    umf_stream_cache_t *cache = cached->cache;
    umf_lock(&cache->lock);
    umf_stream_cache_block_t *block = umf_likely(cache->generation == cached->generation)
                                          ? umf_stream_cache_find_locked(cache, ptr)
                                          : NULL;
    bool is_simple = block && block->state == UMF_STREAM_CACHE_USED && !block->uses &&
                     block->size_class < UMF_STREAM_CACHE_CLASSES;
    if (umf_likely(is_simple)) {
        umf_stream_cache_push_locked(cache, block);
    }
    umf_unlock(&cache->lock);
    return is_simple;
}

static inline bool may_be_exported(const umf_stream_caches_t *caches, umf_map_entry_t entry) {
    if (!caches->each_from_provider) {
        return umf_unlikely(__atomic_load_n(&caches->pool->pins, __ATOMIC_RELAXED) != NULL);
    }
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    return atomic_load_explicit(&span->exported, memory_order_relaxed) != NULL;
}

UMF_API_EXT_1_3 umf_result_t umfFreeOn(void *ptr, umf_queue_t queue) {
    umf_map_entry_t entry;
    if (umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry))) {
        return free_slow(ptr, 0, queue);
    }
    umf_memory_pool_handle_t pool = umf_layer_pool(entry);
    if (umf_likely(pool != NULL) && umf_is_recorded(pool)) {
        return free_slow(ptr, entry, queue);
    }
    umf_stream_caches_t *caches = umf_likely(pool != NULL) ? umf_stream_caches_of(pool) : NULL;
    if (umf_likely(caches != NULL) && !may_be_exported(caches, entry)) {
        const umf_stream_caches_entry_t *cached = umf_stream_caches_entry(caches, queue);
        if (umf_likely(umf_stream_caches_is_entry(cached, queue)) && free_cached(cached, ptr)) {
            return UMF_RESULT_SUCCESS;
        }
    }
    return free_slow(ptr, entry, queue);
}

/* --- use --- */

UMF_API_EXT_1_3 umf_result_t umfUseOn(const void *ptr, umf_queue_t queue) {
    umf_stream_caches_t *caches;
    umf_stream_cache_t *cache;
    /* Not the fast walk: the compiler inlines that in umfFreeOn if nothing else here calls it. */
    umf_map_entry_t entry = umf_map_find_slow(&umf_map_global, (uintptr_t)ptr);
    umf_memory_pool_handle_t pool = find_pool(ptr, entry);
    if (!pool) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (umf_queued_of(pool)) {
        return use_queued(pool, ptr, queue);
    }
    umf_result_t result = find_all(pool, queue, &caches, &cache);
    if (result != UMF_RESULT_SUCCESS) {
        return result == UMF_RESULT_ERROR_NOT_SUPPORTED && !queue ? UMF_RESULT_SUCCESS : result;
    }
    return umf_stream_caches_use(caches, cache, (void *)(uintptr_t)ptr, entry);
}

/* --- the end of a queue --- */

static bool end_in_pool(umf_memory_pool_handle_t pool, void *queue) {
    umf_stream_caches_t *caches = umf_stream_caches_of(pool);
    if (umf_queued_of(pool)) {
        umf_queued_of(pool)->queue_ends(pool->self, queue);
    }
    if (caches) {
        UMF_STREAM_CACHES_EACH(caches, cache) {
            umf_lock(&cache->lock);
            bool is_it = cache->kind == UMF_STREAM_CACHE_OPEN && cache->queue == queue &&
                         (cache->thread == 0 || cache->thread == umf_thread_slot_number());
            umf_unlock(&cache->lock);
            if (is_it) {
                umf_stream_cache_end(cache, true);
            }
        }
    }
    return true;
}

UMF_API_EXT_1_3 umf_result_t umfQueueEnds(umf_queue_t queue) {
    umf_reclaim_each(end_in_pool, queue);
    return UMF_RESULT_SUCCESS;
}

/* --- trims and waits --- */

static umf_result_t trim_pool(umf_memory_pool_handle_t pool, size_t keep) {
    umf_result_t result = umf_pool_trim(pool, keep, false);
    umf_provider_drop_reusable(pool->provider, false);
    return result;
}

static umf_result_t trim_on(umf_stream_caches_t *caches, size_t keep, umf_queue_t queue) {
    umf_stream_cache_t *cache;
    bool is_captured;
    umf_result_t result = umf_stream_caches_find(caches, queue, &cache, &is_captured);
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&cache->lock);
        cache->trimmed = cache->freed;
        umf_unlock(&cache->lock);
        umf_stream_caches_captured_t captured =
            umf_stream_caches_announce(caches, queue, is_captured);
        result = trim_pool(caches->pool, keep);
        umf_stream_caches_renounce(&captured);
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfPoolTrimOn(umf_memory_pool_handle_t pool, size_t keep,
                                           umf_queue_t queue) {
    umf_stream_caches_t *caches;
    if (!umf_pool_check(pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result;
    if (umf_queued_of(pool)) {
        result = is_plain(pool, queue, &result) ? (queue ? result : UMF_RESULT_SUCCESS)
                                                : umf_queued_of(pool)->check(pool->self, queue);
        return result == UMF_RESULT_SUCCESS ? trim_pool(pool, keep) : result;
    }
    result = umf_stream_caches_get(pool, &caches);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED && queue) {
        return umf_stream_caches_refuse(pool, queue);
    }
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return trim_pool(pool, keep);
    }
    return result == UMF_RESULT_SUCCESS ? trim_on(caches, keep, queue) : result;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Polls all queues, or waits for all that can complete. Are blocks still pending?
 * `in_provider`: their bytes. */
static bool look(umf_memory_pool_handle_t pool, bool waits, size_t *in_provider) {
    umf_stream_caches_t *caches = umf_stream_caches_of(pool);
    const umf_memory_provider_ext_ops_t *ext = pool->provider->ext;
    *in_provider = 0;
    if (caches) {
        umf_stream_caches_update(caches, waits);
        umf_stream_caches_update(caches, waits); /* what waited for other queues */
    }
    if (ext->free_pending) {
        ext->free_pending(pool->provider->self, waits, in_provider);
    }
    if (umf_queued_of(pool)) {
        *in_provider += umf_queued_of(pool)->pending(pool->self, waits);
    }
    return *in_provider || (caches && umf_stream_caches_are_pending(caches));
}

static size_t bytes_in_caches(umf_memory_pool_handle_t pool) {
    umf_stream_caches_t *caches = umf_stream_caches_of(pool);
    return caches ? umf_stream_caches_pending(caches) : 0;
}

UMF_API_EXT_1_3 umf_result_t umfPoolWaitPending(umf_memory_pool_handle_t pool, uint64_t timeout_ns,
                                                size_t *bytes) {
    if (!umf_pool_check(pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    bool waits = timeout_ns == UINT64_MAX;
    uint64_t begin = waits ? 0 : now_ns();
    size_t in_provider;
    bool is_any = look(pool, waits, &in_provider);
    for (unsigned round = 0; is_any && !waits && now_ns() - begin < timeout_ns; round++) {
        umf_pause(round);
        is_any = look(pool, false, &in_provider);
    }
    if (bytes) {
        *bytes = is_any ? in_provider + bytes_in_caches(pool) : 0;
    }
    return is_any ? UMF_RESULT_ERROR_OUT_OF_RESOURCES : UMF_RESULT_SUCCESS;
}
