/*
 * Stream caches: the records of blocks. A block has one record at most, in one cache. A record is
 * made, or moves to another cache, or gets a use, under the lock of the list of caches; that its
 * block is freed on its own queue, or ends, needs only the lock of its cache.
 */
#include "base/log.h"
#include "base/meta.h"
#include "ext/queue/stream_caches.h"

#define PASS_ON(pool, function) UMF_PASS_ON(pool, UMF_LAYER_QUEUE, function)

/* --- the layer: frees and resizes without a queue --- */

static _Atomic uint32_t *hint_of(umf_stream_caches_t *caches, uintptr_t addr) {
    return &caches->hints[(addr * UINT64_C(0x9E3779B97F4A7C15)) >> 52];
}

/* Can the address have a record? The answer is no for most blocks that never saw a queue. */
static bool may_have_record(umf_stream_caches_t *caches, const void *ptr) {
    return atomic_load_explicit(hint_of(caches, (uintptr_t)ptr), memory_order_acquire) != 0;
}

/* The cache that has the record of a block, with its lock held. NULL: none has. */
static umf_stream_cache_t *lock_home(umf_stream_caches_t *caches, const void *ptr,
                                     umf_stream_cache_block_t **block) {
    *block = NULL;
    if (!may_have_record(caches, ptr)) {
        return NULL;
    }
    UMF_STREAM_CACHES_EACH(caches, cache) {
        umf_lock(&cache->lock);
        *block = umf_stream_cache_find_locked(cache, ptr);
        if (*block) {
            return cache;
        }
        umf_unlock(&cache->lock);
    }
    return NULL;
}

/* Ends the record of a block in use, if there is one. false: the block was freed before; logged. */
static bool end_record(umf_stream_caches_t *caches, const void *ptr) {
    umf_stream_cache_block_t *block;
    umf_stream_cache_t *home = lock_home(caches, ptr, &block);
    if (!home) {
        return true;
    }
    bool is_used = block->state == UMF_STREAM_CACHE_USED;
    umf_queue_t queue = home->queue;
    if (is_used) {
        umf_stream_cache_remove_locked(home, block);
    }
    umf_unlock(&home->lock);
    if (is_used) {
        umf_stream_caches_forget(caches, block);
    } else {
        UMF_LOG_ERROR("%p was freed before, on queue %p", ptr, queue);
    }
    return is_used;
}

umf_result_t umf_stream_caches_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    umf_memory_pool_handle_t pool = umf_layer_pool(entry);
    return end_record(umf_stream_caches_of(pool), ptr) ? PASS_ON(pool, free_at)(self, ptr, entry)
                                                       : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

bool umf_stream_caches_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    umf_memory_pool_handle_t pool = umf_layer_pool(entry);
    return !may_have_record(umf_stream_caches_of(pool), ptr) &&
           PASS_ON(pool, try_free)(self, ptr, entry);
}

void *umf_stream_caches_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    if (ptr && size == 0) {
        umfPoolFree(pool, ptr);
        return NULL;
    }
    bool is_offered = ptr && !(pool->fast && pool->fast->no_realloc);
    if (is_offered && !end_record(umf_stream_caches_of(pool), ptr)) {
        return NULL;
    }
    return PASS_ON(pool, realloc)(pool, ptr, size);
}

/* --- records --- */

umf_stream_cache_block_t *umf_stream_caches_record(umf_stream_caches_t *caches, void *ptr,
                                                   umf_span_t *span, uint32_t size_class,
                                                   size_t size) {
    umf_stream_cache_block_t *block = umf_meta_alloc(sizeof(*block));
    if (!block) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return NULL;
    }
    block->addr = (uintptr_t)ptr;
    block->size_class = size_class;
    block->size = size;
    atomic_fetch_add_explicit(hint_of(caches, block->addr), 1, memory_order_release);
    umf_layer_see_span(span);
    return block;
}

void umf_stream_caches_forget(umf_stream_caches_t *caches, umf_stream_cache_block_t *block) {
    atomic_fetch_sub_explicit(hint_of(caches, block->addr), 1, memory_order_release);
    umf_stream_cache_block_delete(block);
}

/* The largest class whose blocks `size` bytes can serve; UMF_STREAM_CACHE_CLASSES: none. */
static uint32_t class_within(size_t size) {
    uint32_t size_class = umf_stream_cache_class(size ? size : 1);
    if (size_class >= UMF_STREAM_CACHE_CLASSES || size < UMF_STREAM_CACHE_SIZE_MIN) {
        return UMF_STREAM_CACHE_CLASSES;
    }
    return umf_stream_cache_class_size(size_class) > size ? size_class - 1 : size_class;
}

/* The size of an object. A pool that gets each from its provider reports none: it is the span.
 */
static umf_result_t size_of(umf_stream_caches_t *caches, const void *ptr, umf_map_entry_t entry,
                            size_t *size) {
    if (!caches->each_from_provider) {
        return umf_pool_usable_size_at(caches->pool, ptr, entry, size);
    }
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    if (span->base != (uintptr_t)ptr) {
        UMF_LOG_ERROR("%p is no object of pool %p", ptr, (void *)caches->pool);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = span->size;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t out_of_memory(void) {
    UMF_LOG_ERROR("no memory for bookkeeping");
    return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* The record of a block that was allocated without a queue. */
static umf_result_t make_record(umf_stream_caches_t *caches, void *ptr, umf_map_entry_t entry,
                                umf_stream_cache_block_t **block) {
    size_t size = 0;
    umf_result_t result = size_of(caches, ptr, entry, &size);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_pin_check(caches->pool, ptr); /* the pool takes it for allocated */
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result; /* no object: logged */
    }
    umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    *block = umf_stream_caches_record(caches, ptr, span, class_within(size), size);
    return *block ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* --- use and free, of blocks that may have no record --- */

static bool has_record(umf_stream_caches_t *caches, const void *ptr) {
    umf_stream_cache_block_t *block;
    umf_stream_cache_t *home = lock_home(caches, ptr, &block);
    if (home) {
        umf_unlock(&home->lock);
    }
    return home != NULL;
}

/* Adds a new record to the cache, or forgets it: another thread may have made one meanwhile. */
static umf_result_t record_publish(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                                   umf_stream_cache_block_t *made) {
    umf_lock(&caches->lock);
    bool is_first = !has_record(caches, (void *)made->addr);
    bool is_put = is_first && umf_stream_cache_adopt(cache, made);
    umf_unlock(&caches->lock);
    if (!is_put) {
        umf_stream_caches_forget(caches, made);
    }
    return is_put || !is_first ? UMF_RESULT_SUCCESS : out_of_memory();
}

/* Makes a record in the cache if the block has none. The pool returns the size of the block, so
 * no lock is held. */
static umf_result_t record_ensure(umf_stream_caches_t *caches, umf_stream_cache_t *cache, void *ptr,
                                  umf_map_entry_t entry) {
    umf_stream_cache_block_t *made;
    if (has_record(caches, ptr)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = make_record(caches, ptr, entry, &made);
    return result == UMF_RESULT_SUCCESS ? record_publish(caches, cache, made) : result;
}

/* Of a block in use, which is locked. Otherwise NULL; `queue`: on which it was freed. */
static umf_stream_cache_t *lock_used(umf_stream_caches_t *caches, const void *ptr,
                                     umf_stream_cache_block_t **block, umf_queue_t *queue) {
    umf_stream_cache_t *home = lock_home(caches, ptr, block);
    *queue = home ? home->queue : NULL;
    if (home && (*block)->state != UMF_STREAM_CACHE_USED) {
        umf_unlock(&home->lock);
        home = NULL;
    }
    return home;
}

static umf_result_t refuse(const void *ptr, umf_queue_t queue) {
    UMF_LOG_ERROR("%p was freed before, on queue %p", ptr, queue);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static bool is_named(const umf_stream_cache_block_t *block, const umf_stream_cache_t *cache) {
    const umf_stream_cache_use_t *use = block->uses;
    while (use && use->cache != cache) {
        use = use->next;
    }
    return use != NULL;
}

/* Takes `use` over unless the block names the cache already. */
static void add_use(umf_stream_cache_block_t *block, umf_stream_cache_t *cache,
                    umf_stream_cache_use_t **use) {
    if (is_named(block, cache)) {
        return;
    }
    atomic_fetch_add_explicit(&cache->pins, 1, memory_order_relaxed);
    **use = (umf_stream_cache_use_t){.cache = cache, .block = block, .next = block->uses};
    block->uses = *use;
    *use = NULL;
}

umf_result_t umf_stream_caches_use(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                                   void *ptr, umf_map_entry_t entry) {
    umf_stream_cache_block_t *block;
    umf_queue_t queue;
    umf_stream_cache_use_t *use = umf_meta_alloc(sizeof(*use));
    umf_result_t result = use ? record_ensure(caches, cache, ptr, entry) : out_of_memory();
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&caches->lock);
        umf_stream_cache_t *home = lock_used(caches, ptr, &block, &queue);
        if (home) {
            add_use(block, cache, &use);
            umf_unlock(&home->lock);
        }
        umf_unlock(&caches->lock);
        result = home ? UMF_RESULT_SUCCESS : refuse(ptr, queue);
    }
    umf_meta_free(use, sizeof(*use));
    return result;
}

/* Removes the use of the cache itself: the block's place in the cache stands for it. Returns
 * the count of the others. */
static size_t others_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block) {
    size_t others = 0;
    umf_assert_locked(&cache->lock);
    for (umf_stream_cache_use_t **link = &block->uses, *use; (use = *link) != NULL;) {
        if (use->cache != cache) {
            others++;
            link = &use->next;
            continue;
        }
        *link = use->next;
        atomic_fetch_sub_explicit(&cache->pins, 1, memory_order_relaxed);
        umf_meta_free(use, sizeof(*use));
    }
    return others;
}

/* Does an IPC handle of the block exist, so that it must not be handed out again? */
static bool is_exported(const umf_stream_caches_t *caches, umf_map_entry_t entry) {
    if (!caches->each_from_provider) {
        return __atomic_load_n(&caches->pool->pins, __ATOMIC_RELAXED) != NULL;
    }
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    return atomic_load_explicit(&span->exported, memory_order_acquire) != NULL;
}

/* Returns how many other caches the block waits for. */
static size_t free_locked(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                          umf_stream_cache_block_t *block, umf_map_entry_t entry) {
    size_t others = others_locked(cache, block);
    block->is_leaving = block->size_class >= UMF_STREAM_CACHE_CLASSES || is_exported(caches, entry);
    if (others) {
        umf_stream_cache_wait_locked(cache, block, others);
    } else if (block->is_leaving) {
        umf_stream_cache_leave_locked(cache, block);
    } else {
        umf_stream_cache_push_locked(cache, block);
    }
    return others;
}

/* Moves the record of a block in use from the cache `home`, whose lock is held, to the cache, whose
 * lock is held instead. On failure none is held, and nothing has changed. */
static umf_result_t move_locked(umf_stream_cache_t *home, umf_stream_cache_t *cache,
                                const void *ptr, umf_stream_cache_block_t **block) {
    if (home == cache) {
        return UMF_RESULT_SUCCESS;
    }
    umf_unlock(&home->lock);
    umf_stream_cache_lock_both(home, cache);
    *block = umf_stream_cache_find_locked(home, ptr); /* another thread may have freed it */
    bool is_used = *block && (*block)->state == UMF_STREAM_CACHE_USED;
    bool is_put = is_used && umf_stream_cache_add_locked(cache, *block);
    if (is_put) {
        umf_stream_cache_remove_locked(home, *block);
    } else {
        umf_unlock(&cache->lock);
    }
    umf_unlock(&home->lock);
    return is_put    ? UMF_RESULT_SUCCESS
           : is_used ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                     : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* The lock of the list of caches is held, so that no other thread moves the record or adds a use.
 * `is_absent`: there is none. */
static umf_result_t free_on_locked(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                                   const void *ptr, umf_map_entry_t entry, umf_queue_t *queue,
                                   bool *is_absent) {
    umf_stream_cache_block_t *block;
    umf_assert_locked(&caches->lock);
    umf_stream_cache_t *home = lock_used(caches, ptr, &block, queue);
    *is_absent = block == NULL;
    umf_result_t result =
        home ? move_locked(home, cache, ptr, &block) : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    if (result == UMF_RESULT_SUCCESS) {
        size_t others = free_locked(caches, cache, block, entry);
        umf_unlock(&cache->lock);
        if (others) {
            umf_stream_cache_await(block);
        }
    }
    return result;
}

static umf_result_t free_on(umf_stream_caches_t *caches, umf_stream_cache_t *cache, const void *ptr,
                            umf_map_entry_t entry, umf_queue_t *queue, bool *is_absent) {
    umf_lock(&caches->lock);
    umf_result_t result = free_on_locked(caches, cache, ptr, entry, queue, is_absent);
    umf_unlock(&caches->lock);
    return result;
}

umf_result_t umf_stream_caches_free(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                                    void *ptr, umf_map_entry_t entry) {
    umf_queue_t queue;
    bool is_absent;
    umf_result_t result = free_on(caches, cache, ptr, entry, &queue, &is_absent);
    if (is_absent) {
        umf_result_t ensured = record_ensure(caches, cache, ptr, entry);
        if (ensured != UMF_RESULT_SUCCESS) {
            return ensured;
        }
        result = free_on(caches, cache, ptr, entry, &queue, &is_absent);
    }
    return result == UMF_RESULT_ERROR_INVALID_ARGUMENT     ? refuse(ptr, queue)
           : result == UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY ? out_of_memory()
                                                           : result;
}
