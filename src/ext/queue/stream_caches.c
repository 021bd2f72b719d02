/* Stream caches of a pool, one for each queue. */
#include "ext/queue/stream_caches.h"

#include <umf/capture.h>

#include "base/log.h"
#include "base/meta.h"

/* --- the caches of a pool --- */

static bool has_queues(umf_memory_pool_handle_t pool) {
    const umf_memory_provider_ext_ops_t *ext = pool->provider->ext;
    return pool->tracked && ext->queue_mark && ext->mark_wait;
}

umf_result_t umf_stream_caches_refuse(umf_memory_pool_handle_t pool, umf_queue_t queue) {
    UMF_LOG_ERROR("pool %p cannot use queue %p: its provider has no queues, or the pool does not "
                  "track its memory",
                  (void *)pool, queue);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Nobody else may mark the queues of a thread that has ended. */
static void thread_ends(umf_thread_slot_owner_t *owner, umf_thread_slot_t *entries) {
    umf_stream_caches_t *caches = UMF_CONTAINER_OF(owner, umf_stream_caches_t, cached);
    (void)entries;
    UMF_STREAM_CACHES_EACH(caches, cache) {
        umf_lock(&cache->lock);
        bool is_own = cache->thread != 0 && cache->thread == umf_thread_slot_number();
        umf_unlock(&cache->lock);
        if (is_own) {
            umf_stream_cache_end(cache, false);
        }
    }
}

static umf_result_t caches_make(umf_memory_pool_handle_t pool, umf_stream_caches_t **out) {
    umf_stream_caches_t *caches = umf_meta_alloc(sizeof(*caches));
    if (!caches) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    caches->pool = pool;
    caches->each_from_provider = pool->fast && pool->fast->each_from_provider;
    umf_result_t result = umf_thread_slot_owner_init(
        &caches->cached, 0, sizeof(umf_stream_caches_entries_t), thread_ends);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("no index for the queues of pool %p is left", (void *)pool);
        umf_meta_free(caches, sizeof(*caches));
        return result;
    }
    umf_lock_init(&caches->lock, UMF_RANK_STREAM_CACHES);
    *out = caches;
    return UMF_RESULT_SUCCESS;
}

void umf_stream_caches_delete(umf_stream_caches_t *caches) {
    umf_thread_slot_owner_fini(&caches->cached);
    umf_lock_destroy(&caches->lock);
    umf_meta_free(caches, sizeof(*caches));
}

static const umf_layer_t queue_layer = {
    .rank = UMF_LAYER_QUEUE,
    .calls = {.free_at = umf_stream_caches_free_at,
              .try_free = umf_stream_caches_try_free,
              .realloc = umf_stream_caches_realloc},
    .gives_back = umf_stream_caches_gives_back,
    .ticks = umf_stream_caches_tick,
    .closes = umf_stream_caches_close,
    .ends = umf_stream_caches_end,
};

UMF_LOCK_STATIC(make_lock, UMF_RANK_STREAM_CACHES);

umf_result_t umf_stream_caches_get(umf_memory_pool_handle_t pool, umf_stream_caches_t **caches) {
    umf_stream_caches_t *made = NULL;
    *caches = umf_stream_caches_of(pool);
    if (*caches) {
        return UMF_RESULT_SUCCESS;
    }
    if (!has_queues(pool)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result = caches_make(pool, &made);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&make_lock);
    *caches = umf_stream_caches_of(pool);
    if (!*caches) {
        *caches = made;
        atomic_store_explicit(&pool->stream_caches, made, memory_order_release);
        umf_layer_push(pool, &queue_layer);
        made = NULL;
    }
    umf_unlock(&make_lock);
    if (made) {
        umf_stream_caches_delete(made);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- one cache --- */

/* Properties of a queue, from its provider. */
typedef struct queue_facts_t {
    umf_queue_t queue;
    uint64_t id;
    bool is_of_thread, is_captured;
} queue_facts_t;

static umf_result_t query(umf_stream_caches_t *caches, umf_queue_t queue, queue_facts_t *facts) {
    umf_memory_provider_handle_t provider = caches->pool->provider;
    int is_of_thread = 0, is_captured = 0;
    uint64_t id = (uintptr_t)queue + 1;
    umf_result_t result =
        provider->ext->queue_id
            ? provider->ext->queue_id(provider->self, queue, &id, &is_of_thread, &is_captured)
            : UMF_RESULT_SUCCESS;
    *facts = (queue_facts_t){queue, id, is_of_thread != 0, is_captured != 0};
    return result;
}

static uint64_t thread_of(const queue_facts_t *facts) {
    return facts->is_of_thread ? umf_thread_slot_number() : 0;
}

/* If an id is unknown, compare handles. */
static bool is_of_locked(const umf_stream_cache_t *cache, const queue_facts_t *facts) {
    bool is_it = cache->id && facts->id ? cache->id == facts->id : cache->queue == facts->queue;
    return is_it && cache->thread == thread_of(facts);
}

static bool is_open_as(umf_stream_cache_t *cache, const queue_facts_t *facts, bool *is_it) {
    umf_lock(&cache->lock);
    bool is_open = cache->kind == UMF_STREAM_CACHE_OPEN && cache->queue == facts->queue;
    *is_it = cache->kind == UMF_STREAM_CACHE_OPEN && is_of_locked(cache, facts);
    umf_unlock(&cache->lock);
    return is_open;
}

/* A queue that a pool met first while it was captured has no id before. */
static void cache_learn(umf_stream_cache_t *cache, const queue_facts_t *facts) {
    umf_lock(&cache->lock);
    cache->id = cache->id ? cache->id : facts->id;
    umf_unlock(&cache->lock);
}

/* A cache whose handle now belongs to another queue has lost its own. */
static void lose_others(umf_stream_caches_t *caches, const queue_facts_t *facts) {
    bool is_it;
    UMF_STREAM_CACHES_EACH(caches, cache) {
        if (is_open_as(cache, facts, &is_it) && !is_it && cache->thread == 0) {
            umf_stream_cache_end(cache, false);
        }
    }
}

static umf_stream_cache_t *cache_by_id_locked(umf_stream_caches_t *caches,
                                              const queue_facts_t *facts) {
    bool is_it;
    umf_assert_locked(&caches->lock);
    UMF_STREAM_CACHES_EACH(caches, cache) {
        is_open_as(cache, facts, &is_it);
        if (is_it) {
            return cache;
        }
    }
    return NULL;
}

/* A cache whose queue has ended and that has nothing any more serves another one. */
static bool cache_is_spare_locked(umf_stream_cache_t *cache) {
    return cache->kind != UMF_STREAM_CACHE_OPEN && cache->blocks.count == 0 &&
           cache->mark_count == 0 && atomic_load(&cache->pins) == 0;
}

static void cache_open_locked(umf_stream_cache_t *cache, const queue_facts_t *facts) {
    cache->generation++;
    cache->kind = UMF_STREAM_CACHE_OPEN;
    cache->queue = facts->queue;
    cache->id = facts->id;
    cache->thread = thread_of(facts);
    atomic_store(&cache->completed, cache->freed);
}

static umf_stream_cache_t *cache_reuse_locked(umf_stream_caches_t *caches,
                                              const queue_facts_t *facts) {
    umf_assert_locked(&caches->lock);
    UMF_STREAM_CACHES_EACH(caches, cache) {
        if (!umf_stream_cache_poll_try_lock(cache)) {
            continue;
        }
        umf_lock(&cache->lock);
        bool is_spare = cache_is_spare_locked(cache);
        if (is_spare) {
            cache_open_locked(cache, facts);
        }
        umf_unlock(&cache->lock);
        umf_stream_cache_poll_unlock(cache);
        if (is_spare) {
            return cache;
        }
    }
    return NULL;
}

static void cache_list_locked(umf_stream_caches_t *caches, umf_stream_cache_t *cache) {
    _Atomic(umf_stream_cache_t *) *end = &caches->first;
    umf_assert_locked(&caches->lock);
    while (atomic_load_explicit(end, memory_order_relaxed)) {
        end = &atomic_load_explicit(end, memory_order_relaxed)->next;
    }
    atomic_store_explicit(end, cache, memory_order_release);
}

static umf_stream_cache_t *cache_make_locked(umf_stream_caches_t *caches,
                                             const queue_facts_t *facts) {
    umf_stream_cache_t *cache = umf_meta_alloc(sizeof(*cache));
    if (!cache) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return NULL;
    }
    umf_stream_cache_init(cache, caches->pool);
    umf_lock(&cache->lock);
    cache_open_locked(cache, facts);
    umf_unlock(&cache->lock);
    cache_list_locked(caches, cache);
    return cache;
}

static void cache_remember(umf_stream_caches_t *caches, umf_queue_t queue,
                           umf_stream_cache_t *cache) {
    umf_stream_caches_entries_t *entries =
        (umf_stream_caches_entries_t *)umf_thread_slot_make(&caches->cached);
    if (!entries) { /* no memory, or the thread is ending */
        return;
    }
    umf_stream_caches_entry_t *entry =
        (umf_stream_caches_entry_t *)umf_stream_caches_entry(caches, queue);
    umf_lock(&cache->lock);
    *entry = (umf_stream_caches_entry_t){cache, queue, cache->generation};
    umf_unlock(&cache->lock);
}

umf_result_t umf_stream_caches_find(umf_stream_caches_t *caches, umf_queue_t queue,
                                    umf_stream_cache_t **cache, bool *is_captured) {
    queue_facts_t facts;
    umf_result_t result = query(caches, queue, &facts);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    lose_others(caches, &facts);
    umf_lock(&caches->lock);
    umf_stream_cache_t *found = cache_by_id_locked(caches, &facts);
    found = found ? found : cache_reuse_locked(caches, &facts);
    found = found ? found : cache_make_locked(caches, &facts);
    umf_unlock(&caches->lock);
    if (!found) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    cache_learn(found, &facts);
    cache_remember(caches, queue, found);
    *cache = found;
    *is_captured = facts.is_captured;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_stream_caches_find_known(umf_stream_caches_t *caches, umf_queue_t queue,
                                          umf_stream_cache_t **cache) {
    const umf_stream_caches_entry_t *cached = umf_stream_caches_entry(caches, queue);
    bool is_captured;
    if (umf_stream_caches_is_entry(cached, queue)) {
        umf_lock(&cached->cache->lock);
        bool is_same = cached->cache->generation == cached->generation;
        umf_unlock(&cached->cache->lock);
        if (is_same) {
            *cache = cached->cache;
            return UMF_RESULT_SUCCESS;
        }
    }
    return umf_stream_caches_find(caches, queue, cache, &is_captured);
}

static bool may_ask(umf_stream_cache_t *cache) {
    umf_lock(&cache->lock);
    bool may = cache->kind == UMF_STREAM_CACHE_OPEN && cache->bytes && cache->thread == 0;
    umf_unlock(&cache->lock);
    return may;
}

/* Other threads may destroy a queue whose polling lock is not held. */
static bool is_captured_cache(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                              umf_queue_t *queue) {
    queue_facts_t facts = {0};
    if (!may_ask(cache) || !umf_stream_cache_poll_lock(cache)) {
        return false;
    }
    *queue = cache->queue;
    bool is_captured =
        query(caches, cache->queue, &facts) == UMF_RESULT_SUCCESS && facts.is_captured;
    umf_stream_cache_poll_unlock(cache);
    return is_captured;
}

/* A queue of a cache that has blocks and that is captured now. false: there is none. */
static bool find_captured(umf_stream_caches_t *caches, umf_queue_t *queue) {
    umf_queue_t each;
    UMF_STREAM_CACHES_EACH(caches, cache) {
        if (is_captured_cache(caches, cache, &each)) {
            *queue = each;
            return true;
        }
    }
    return false;
}

/* --- captures --- */

umf_stream_caches_captured_t umf_stream_caches_announce(umf_stream_caches_t *caches,
                                                        umf_queue_t queue, bool is_captured) {
    umf_stream_caches_captured_t captured = {.queue = queue};
    captured.is_announced = (is_captured || find_captured(caches, &captured.queue)) &&
                            umfCaptureBegins(captured.queue) == UMF_RESULT_SUCCESS;
    return captured;
}

void umf_stream_caches_renounce(const umf_stream_caches_captured_t *captured) {
    if (captured->is_announced) {
        umfCaptureEnds(captured->queue);
    }
}
