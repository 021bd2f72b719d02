/* Queues: allocation. */
#include <umf/queue.h>

#include "base/log.h"
#include "ext/queue/stream_caches.h"
#include "object/recorded.h"

/* From this size on the memory matters more than the time: blocks that others have freed are used
 * before the pool grows. */
#define LARGE ((size_t)1 << 20)
/* A large block may be larger than requested by as many classes: by an eighth. */
#define LARGE_CLASSES 2u

/* What an allocation requests. */
typedef struct request_t {
    size_t size;
    size_t alignment;
    uint32_t size_class, last; /* the classes of blocks that fit */
    umf_queue_t queue;
} request_t;

static umf_stream_cache_block_t *take_own(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                                          const request_t *request) {
    if (umf_stream_cache_is_waiting(cache)) {
        umf_stream_caches_update(caches, false);
    }
    umf_lock(&cache->lock);
    umf_stream_cache_block_t *block = umf_stream_cache_take_locked(
        cache, request->size_class, request->last, request->alignment, false);
    umf_unlock(&cache->lock);
    return block;
}

/* Takes the record of a block out of the cache that has it. */
static void disown(umf_stream_cache_t *cache, umf_stream_cache_block_t *block) {
    umf_lock(&cache->lock);
    umf_stream_cache_remove_locked(cache, block);
    umf_unlock(&cache->lock);
}

/* Has the cache free blocks of such sizes? A hint. */
static bool has_some(umf_stream_cache_t *cache, const request_t *request) {
    bool has = false;
    umf_lock(&cache->lock);
    for (uint32_t size_class = request->size_class; size_class <= request->last && !has;
         size_class++) {
        has =
            size_class < UMF_STREAM_CACHE_CLASSES && umf_stream_cache_has_filled(cache, size_class);
    }
    umf_unlock(&cache->lock);
    return has;
}

static umf_stream_cache_block_t *take_completed_of(umf_stream_cache_t *cache,
                                                   const request_t *request) {
    umf_stream_cache_update(cache, false);
    umf_lock(&cache->lock);
    umf_stream_cache_block_t *block = umf_stream_cache_take_locked(
        cache, request->size_class, request->last, request->alignment, true);
    if (block) {
        umf_stream_cache_remove_locked(cache, block);
    }
    umf_unlock(&cache->lock);
    return block;
}

/* Blocks freed on other queues, whose work has completed. */
static umf_stream_cache_block_t *take_completed(umf_stream_caches_t *caches,
                                                const umf_stream_cache_t *own,
                                                const request_t *request) {
    umf_stream_cache_block_t *block = NULL;
    UMF_STREAM_CACHES_EACH(caches, cache) {
        if (!block && cache != own && has_some(cache, request)) {
            block = take_completed_of(cache, request);
        }
    }
    return block;
}

/* Blocks freed on other queues; this queue waits for them on the device. */
static umf_stream_cache_block_t *
take_behind(umf_stream_caches_t *caches, const umf_stream_cache_t *own, const request_t *request) {
    umf_stream_cache_block_t *block = NULL;
    UMF_STREAM_CACHES_EACH(caches, cache) {
        if (!block && cache != own && has_some(cache, request)) {
            block = umf_stream_cache_take_behind(cache, request->queue, request->size_class,
                                                 request->last, request->alignment);
            if (block) {
                disown(cache, block);
            }
        }
    }
    return block;
}

static void *pool_malloc(umf_memory_pool_handle_t pool, size_t size, size_t alignment) {
    return alignment ? umfPoolAlignedMalloc(pool, size, alignment) : umfPoolMalloc(pool, size);
}

static umf_stream_cache_block_t *take_new(umf_stream_caches_t *caches, const request_t *request) {
    void *ptr = pool_malloc(caches->pool, request->size, request->alignment);
    if (!ptr) {
        return NULL;
    }
    umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
    umf_stream_cache_block_t *block =
        umf_stream_caches_record(caches, ptr, span, request->size_class, request->size);
    if (!block) {
        umf_pool_free_at(caches->pool, ptr);
    }
    return block;
}

/* Large blocks of any cache whose work has completed go back to the pool, where they merge. */
static void merge_completed(umf_stream_caches_t *caches) {
    umf_stream_caches_update(caches, false);
    umf_stream_caches_give_back(caches, LARGE);
}

/* Would the pool grow although more than a quarter of the bytes in use was freed, and only device
 * work keeps them? Free bytes of the pool = held bytes minus bytes of all caches (exact if the pool
 * is used on queues only). */
static bool must_wait(umf_stream_caches_t *caches, const request_t *request) {
    size_t bytes = 0, free_bytes = 0, held = umf_tracked_bytes(caches->pool->tracked);
    UMF_STREAM_CACHES_EACH(caches, cache) {
        umf_lock(&cache->lock);
        bytes += cache->bytes;
        free_bytes += cache->free_bytes;
        umf_unlock(&cache->lock);
    }
    return free_bytes > (bytes - free_bytes) / 4 && held < bytes + request->size;
}

static umf_stream_cache_block_t *
take_large(umf_stream_caches_t *caches, const umf_stream_cache_t *own, const request_t *request) {
    merge_completed(caches);
    umf_stream_cache_block_t *block = take_behind(caches, own, request);
    if (!block && must_wait(caches, request)) {
        umf_stream_caches_update(caches, true);
        umf_stream_caches_give_back(caches, LARGE);
    }
    return block ? block : take_new(caches, request);
}

/* In-tree pools have reclaimed already (reclaim/reclaim.h); user pools have not. */
static umf_stream_cache_block_t *
take_last(umf_stream_caches_t *caches, const umf_stream_cache_t *own, const request_t *request) {
    umf_stream_cache_block_t *block = take_behind(caches, own, request);
    if (!block && !caches->pool->fast) {
        umf_stream_caches_update(caches, true);
        block = umf_stream_caches_give_back(caches, 0) ? take_new(caches, request) : NULL;
    }
    return block;
}

/* The record is in no cache. */
static umf_stream_cache_block_t *take_elsewhere(umf_stream_caches_t *caches,
                                                const umf_stream_cache_t *own,
                                                const request_t *request) {
    umf_stream_cache_block_t *block = take_completed(caches, own, request);
    if (!block) {
        block =
            request->size >= LARGE ? take_large(caches, own, request) : take_new(caches, request);
    }
    return block ? block : take_last(caches, own, request);
}

static void *adopt(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                   umf_stream_cache_block_t *block) {
    void *ptr = (void *)block->addr;
    if (!umf_stream_cache_adopt(cache, block)) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        umf_stream_caches_forget(caches, block);
        umf_pool_free_at(caches->pool, ptr);
        return NULL;
    }
    return ptr;
}

static void *malloc_elsewhere(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                              const request_t *request, bool is_captured) {
    umf_stream_caches_captured_t captured =
        umf_stream_caches_announce(caches, request->queue, is_captured);
    umf_stream_cache_block_t *block = take_elsewhere(caches, cache, request);
    umf_stream_caches_renounce(&captured);
    return block ? adopt(caches, cache, block) : NULL;
}

static void *malloc_on(umf_stream_caches_t *caches, const request_t *request) {
    umf_stream_cache_t *cache;
    bool is_captured;
    if (umf_stream_caches_find(caches, request->queue, &cache, &is_captured) !=
        UMF_RESULT_SUCCESS) {
        return NULL;
    }
    umf_stream_cache_block_t *block = take_own(caches, cache, request);
    return block ? (void *)block->addr : malloc_elsewhere(caches, cache, request, is_captured);
}

static request_t request_of(size_t size, size_t alignment, umf_queue_t queue) {
    uint32_t size_class = umf_stream_cache_class(size);
    request_t request = {
        .size = umf_stream_cache_class_size(size_class), alignment, size_class, size_class, queue};
    request.last += request.size >= LARGE ? LARGE_CLASSES : 0;
    return request;
}

static void *malloc_queued(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                           umf_queue_t queue) {
    const umf_pool_queue_ops_t *queued = umf_queued_of(pool);
    if (queued->has_queues(pool->self) && !umf_pool_is_suspended(pool)) {
        return queued->malloc_on(pool->self, size, alignment, queue);
    }
    if (queue && !umf_pool_is_suspended(pool)) {
        umf_stream_caches_refuse(pool, queue);
        return NULL;
    }
    return pool_malloc(pool, size, alignment);
}

static UMF_COLD void *malloc_slow(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                                  umf_queue_t queue) {
    umf_stream_caches_t *caches;
    if (!umf_pool_check(pool, "umfPoolMallocOn")) {
        return NULL;
    }
    if (umf_queued_of(pool)) {
        return malloc_queued(pool, size, alignment, queue);
    }
    umf_result_t result = umf_stream_caches_get(pool, &caches);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED && queue) {
        umf_stream_caches_refuse(pool, queue);
        return NULL;
    }
    bool is_plain = result == UMF_RESULT_ERROR_NOT_SUPPORTED || size == 0 ||
                    umf_stream_cache_class(size) >= UMF_STREAM_CACHE_CLASSES ||
                    (alignment && !umf_is_pow2(alignment)) || umf_pool_is_suspended(pool);
    if (is_plain) {
        return pool_malloc(pool, size, alignment);
    }
    request_t request = request_of(size, alignment, queue);
    return result == UMF_RESULT_SUCCESS ? malloc_on(caches, &request) : NULL;
}

/* Takes a block that was freed on the queue itself. Hot. */
UMF_INLINE void *malloc_cached(const umf_stream_caches_entry_t *cached, uint32_t size_class,
                               size_t alignment) {
    umf_stream_cache_t *cache = cached->cache;
    void *ptr = NULL;
    umf_lock(&cache->lock);
    umf_stream_cache_block_t *block = umf_likely(cache->generation == cached->generation)
                                          ? umf_stream_cache_newest_locked(cache, size_class)
                                          : NULL;
    uintptr_t low = alignment ? alignment - 1 : 0;
    if (umf_likely(block != NULL) && ((block->addr | alignment) & low) == 0) { /* a power of two */
        umf_stream_cache_pull_locked(cache, block);
        ptr = (void *)block->addr;
    }
    umf_unlock(&cache->lock);
    return ptr;
}

static UMF_COLD void *recorded_malloc(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                                      umf_queue_t queue) {
    uint32_t before = umf_recorded_enter(pool);
    void *ptr = malloc_slow(pool, size, alignment, queue);
    umf_recorded_leave(before);
    return umf_recorded_allocated(pool, ptr, size, queue);
}

UMF_API_EXT_1_3 void *umfPoolMallocOn(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                                      umf_queue_t queue) {
    if (umf_likely(pool != NULL) && umf_is_recorded(pool)) {
        return recorded_malloc(pool, size, alignment, queue);
    }
    umf_stream_caches_t *caches = umf_likely(pool != NULL) ? umf_stream_caches_of(pool) : NULL;
    if (umf_likely(caches != NULL) && !umf_pool_is_suspended(pool)) {
        const umf_stream_caches_entry_t *cached = umf_stream_caches_entry(caches, queue);
        uint32_t size_class = umf_stream_cache_class(size);
        if (umf_likely(umf_stream_caches_is_entry(cached, queue)) &&
            size_class < UMF_STREAM_CACHE_CLASSES) {
            void *ptr = malloc_cached(cached, size_class, alignment);
            if (umf_likely(ptr != NULL)) {
                return ptr;
            }
        }
    }
    return malloc_slow(pool, size, alignment, queue);
}
