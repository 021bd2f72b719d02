/* Stream caches: memory that waits for queues, and functions of their layer (object/layer.h). */
#include "base/log.h"
#include "base/meta.h"
#include "ext/queue/stream_caches.h"

void umf_stream_caches_update(umf_stream_caches_t *caches, bool waits) {
    UMF_STREAM_CACHES_EACH(caches, cache) {
        umf_stream_cache_update(cache, waits);
    }
    UMF_STREAM_CACHES_EACH(caches, cache) {
        umf_stream_cache_settle(cache);
    }
}

static void give(umf_stream_caches_t *caches, umf_list_t *completed) {
    umf_provider_free_batch(caches->pool->provider, true);
    while (!umf_list_is_empty(completed)) {
        umf_stream_cache_block_t *block =
            UMF_CONTAINER_OF(completed->next, umf_stream_cache_block_t, age);
        void *ptr = (void *)block->addr;
        umf_list_remove(&block->age);
        umf_stream_caches_forget(caches, block);
        umf_pool_free_at(caches->pool, ptr);
    }
    umf_provider_free_batch(caches->pool->provider, false);
}

/* Returns completed blocks of a cache, of its frees up to `freed`, to the pool. */
static void give_back_of(umf_stream_caches_t *caches, umf_stream_cache_t *cache, uint64_t freed) {
    umf_list_t completed;
    umf_list_init(&completed);
    umf_stream_cache_collect(cache, freed, &completed);
    give(caches, &completed);
}

bool umf_stream_caches_give_back(umf_stream_caches_t *caches, size_t size) {
    umf_list_t completed;
    umf_list_init(&completed);
    UMF_STREAM_CACHES_EACH(caches, cache) {
        if (size) {
            umf_stream_cache_collect_large(cache, size, &completed);
        } else {
            umf_stream_cache_collect(cache, UINT64_MAX, &completed);
        }
    }
    bool is_any = !umf_list_is_empty(&completed);
    give(caches, &completed);
    return is_any;
}

bool umf_stream_caches_are_pending(umf_stream_caches_t *caches) {
    bool are_pending = false;
    UMF_STREAM_CACHES_EACH(caches, cache) {
        are_pending = are_pending || umf_stream_cache_is_pending(cache);
    }
    return are_pending;
}

size_t umf_stream_caches_pending(umf_stream_caches_t *caches) {
    size_t bytes = 0;
    UMF_STREAM_CACHES_EACH(caches, cache) {
        bytes += umf_stream_cache_pending(cache);
    }
    return bytes;
}

/* --- the layer --- */

bool umf_stream_caches_gives_back(umf_memory_pool_handle_t pool, bool waits) {
    umf_stream_caches_t *caches = umf_stream_caches_of(pool);
    if (!caches) {
        return false;
    }
    umf_stream_caches_update(caches, waits);
    if (waits) { /* what waited for other queues is free on its own only now */
        umf_stream_caches_update(caches, true);
    }
    return umf_stream_caches_give_back(caches, 0);
}

/* Blocks that were free at the last pass, too, or were meant by a trim, or of a queue that has
 * ended. */
static void cache_tick(umf_stream_caches_t *caches, umf_stream_cache_t *cache, bool is_pass) {
    umf_stream_cache_update(cache, false);
    umf_stream_cache_settle(cache);
    umf_lock(&cache->lock);
    uint64_t until = is_pass && cache->aged > cache->trimmed ? cache->aged : cache->trimmed;
    until = cache->kind == UMF_STREAM_CACHE_OPEN ? until : UINT64_MAX;
    cache->aged = is_pass ? cache->freed : cache->aged;
    umf_unlock(&cache->lock);
    give_back_of(caches, cache, until);
}

void umf_stream_caches_tick(umf_memory_pool_handle_t pool) {
    umf_stream_caches_t *caches = umf_stream_caches_of(pool);
    if (caches) {
        bool is_pass = umf_decay_is_due(&caches->decay);
        UMF_STREAM_CACHES_EACH(caches, cache) {
            cache_tick(caches, cache, is_pass);
        }
    }
}

/* Blocks freed in a capture are released without waiting: the caller launches no graph any more. */
static void cache_close(umf_stream_cache_t *cache) {
    umf_lock(&cache->lock);
    atomic_store(&cache->completed, cache->freed);
    umf_unlock(&cache->lock);
}

/* Blocks that wait for other queues have been used on their own one: together they count as a free,
 * so that its work is waited for, too. */
static void count_waiting(umf_stream_cache_t *cache) {
    umf_lock(&cache->lock);
    cache->freed += !umf_list_is_empty(&cache->waiting);
    umf_unlock(&cache->lock);
}

static void close_all(umf_stream_caches_t *caches) {
    size_t bytes = 0;
    UMF_STREAM_CACHES_EACH(caches, cache) {
        bytes += umf_stream_cache_has_failed(cache) ? umf_stream_cache_pending(cache) : 0;
        cache_close(cache);
    }
    if (bytes) {
        UMF_LOG_ERROR("a pool ends with %zu bytes whose work on queues may still run, as all waits "
                      "for it have failed: the provider has them again",
                      bytes);
    }
}

/* Waits for all blocks that were freed. Programs destroy their queues before their pools, and a
 * driver may crash when it is queried about a queue that is gone: so the whole device is waited
 * for, unless the recorded marks cover all frees. false: that is not possible, as in a capture. */
static bool wait_unasked(umf_stream_caches_t *caches) {
    umf_memory_provider_handle_t provider = caches->pool->provider;
    bool have_completed = true;
    UMF_STREAM_CACHES_EACH(caches, cache) {
        have_completed = umf_stream_cache_drain(cache) && have_completed;
    }
    return have_completed ||
           (provider->ext->settle && provider->ext->settle(provider->self) == UMF_RESULT_SUCCESS);
}

void umf_stream_caches_close(umf_memory_pool_handle_t pool) {
    umf_stream_caches_t *caches = umf_stream_caches_of(pool);
    if (!caches) {
        return;
    }
    UMF_STREAM_CACHES_EACH(caches, cache) {
        count_waiting(cache);
    }
    if (!wait_unasked(caches)) {
        umf_stream_caches_update(caches, true); /* the queues must still exist */
    }
    UMF_STREAM_CACHES_EACH(caches, cache) {
        umf_stream_cache_settle_all(cache);
    }
    close_all(caches);
    umf_stream_caches_give_back(caches, 0);
}

void umf_stream_caches_end(umf_memory_pool_handle_t pool) {
    umf_stream_caches_t *caches = umf_stream_caches_of(pool);
    if (!caches) {
        return;
    }
    umf_thread_slot_owner_close(&caches->cached); /* threads that end look at the caches */
    atomic_store(&pool->stream_caches, NULL);
    UMF_STREAM_CACHES_EACH(caches, cache) {
        umf_stream_cache_fini(cache);
    }
    /* Now that no block names a cache any more. */
    for (umf_stream_cache_t *cache = atomic_load(&caches->first), *next; cache; cache = next) {
        next = atomic_load(&cache->next);
        umf_meta_free(cache, sizeof(*cache));
    }
    umf_stream_caches_delete(caches);
}
