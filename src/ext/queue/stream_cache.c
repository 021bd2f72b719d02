/* Stream caches: the blocks of one queue. */
#include "ext/queue/stream_cache.h"

#include "base/meta.h"

void umf_stream_cache_init(umf_stream_cache_t *cache, umf_memory_pool_handle_t pool) {
    umf_lock_init(&cache->lock, UMF_RANK_STREAM_CACHE);
    cache->pool = pool;
    umf_list_init(&cache->oldest);
    umf_list_init(&cache->waiting);
    umf_list_init(&cache->uses);
    for (uint32_t size_class = 0; size_class < UMF_STREAM_CACHE_CLASSES; size_class++) {
        umf_list_init(&cache->bins[size_class]);
    }
}

static void uses_delete(umf_stream_cache_block_t *block) {
    for (umf_stream_cache_use_t *use = block->uses, *next; use; use = next) {
        next = use->next;
        atomic_fetch_sub_explicit(&use->cache->pins, 1, memory_order_relaxed);
        umf_meta_free(use, sizeof(*use));
    }
    block->uses = NULL;
}

void umf_stream_cache_block_delete(umf_stream_cache_block_t *block) {
    uses_delete(block);
    umf_meta_free(block, sizeof(*block));
}

static void delete_one(uint64_t key, void *block, void *arg) {
    (void)key, (void)arg;
    umf_stream_cache_block_delete(block);
}

void umf_stream_cache_fini(umf_stream_cache_t *cache) {
    umf_hash_each(&cache->blocks, delete_one, NULL);
    umf_hash_fini(&cache->blocks);
    umf_lock_destroy(&cache->lock);
}

bool umf_stream_cache_add_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block) {
    umf_assert_locked(&cache->lock);
    bool is_put = umf_hash_put(&cache->blocks, block->addr, block);
    cache->bytes += is_put ? block->size : 0;
    return is_put;
}

void umf_stream_cache_remove_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block) {
    umf_assert_locked(&cache->lock);
    umf_hash_remove(&cache->blocks, block->addr);
    cache->bytes -= block->size;
}

bool umf_stream_cache_adopt(umf_stream_cache_t *cache, umf_stream_cache_block_t *block) {
    umf_lock(&cache->lock);
    bool is_put = umf_stream_cache_add_locked(cache, block);
    umf_unlock(&cache->lock);
    return is_put;
}

/* --- freed blocks --- */

void umf_stream_cache_leave_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block) {
    umf_assert_locked(&cache->lock);
    block->state = UMF_STREAM_CACHE_LEAVING;
    block->freed = ++cache->freed;
    cache->free_bytes += block->size;
    umf_list_init(&block->bin);
    umf_list_add_tail(&cache->oldest, &block->age);
}

void umf_stream_cache_wait_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block,
                                  size_t uses) {
    umf_assert_locked(&cache->lock);
    block->state = UMF_STREAM_CACHE_WAITING;
    block->cache = cache;
    atomic_store_explicit(&block->uses_left, uses, memory_order_relaxed);
    cache->free_bytes += block->size;
    cache->waiting_bytes += block->size;
    umf_list_init(&block->bin);
    umf_list_add_tail(&cache->waiting, &block->age);
}

/* The oldest is the first whose work has completed. */
static umf_stream_cache_block_t *oldest_locked(umf_stream_cache_t *cache, uint32_t size_class) {
    return umf_list_is_empty(&cache->bins[size_class])
               ? NULL
               : UMF_CONTAINER_OF(cache->bins[size_class].prev, umf_stream_cache_block_t, bin);
}

umf_stream_cache_block_t *umf_stream_cache_take_locked(umf_stream_cache_t *cache,
                                                       uint32_t size_class, uint32_t last,
                                                       size_t alignment, bool is_completed) {
    uint64_t completed = atomic_load_explicit(&cache->completed, memory_order_relaxed);
    umf_assert_locked(&cache->lock);
    for (; size_class <= last && size_class < UMF_STREAM_CACHE_CLASSES; size_class++) {
        umf_stream_cache_block_t *block = is_completed
                                              ? oldest_locked(cache, size_class)
                                              : umf_stream_cache_newest_locked(cache, size_class);
        if (block && (!is_completed || block->freed <= completed) &&
            (alignment == 0 || block->addr % alignment == 0)) {
            umf_stream_cache_pull_locked(cache, block);
            return block;
        }
    }
    return NULL;
}

/* --- blocks that other queues use, too --- */

void umf_stream_cache_await(umf_stream_cache_block_t *block) {
    for (umf_stream_cache_use_t *use = block->uses, *next; use; use = next) {
        umf_stream_cache_t *cache = use->cache;
        next = use->next; /* once the last use is listed the block may go */
        umf_lock(&cache->lock);
        use->freed = ++cache->freed;
        umf_list_add_tail(&cache->uses, &use->link);
        umf_unlock(&cache->lock);
    }
}

bool umf_stream_cache_is_waiting(umf_stream_cache_t *cache) {
    umf_lock(&cache->lock);
    bool is_waiting = !umf_list_is_empty(&cache->waiting);
    umf_unlock(&cache->lock);
    return is_waiting;
}

static void settle_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block) {
    umf_stream_cache_pull_locked(cache, block);
    cache->waiting_bytes -= block->size;
    uses_delete(block);
    if (block->is_leaving) {
        umf_stream_cache_leave_locked(cache, block);
    } else {
        umf_stream_cache_push_locked(cache, block);
    }
}

/* Takes the uses out of the cache that have completed. Those that were the last of their block go
 * into the list. */
static void uses_pass(umf_stream_cache_t *cache, umf_list_t *last) {
    uint64_t completed = atomic_load_explicit(&cache->completed, memory_order_acquire);
    umf_lock(&cache->lock);
    for (umf_list_t *at = cache->uses.next, *next; at != &cache->uses; at = next) {
        umf_stream_cache_use_t *use = UMF_CONTAINER_OF(at, umf_stream_cache_use_t, link);
        next = at->next;
        if (use->freed > completed) {
            break; /* so have all behind it */
        }
        umf_list_remove(at);
        if (atomic_fetch_sub(&use->block->uses_left, 1) == 1) {
            umf_list_add_tail(last, at);
        }
    }
    umf_unlock(&cache->lock);
}

void umf_stream_cache_settle(umf_stream_cache_t *cache) {
    umf_list_t last;
    umf_list_init(&last);
    uses_pass(cache, &last);
    while (!umf_list_is_empty(&last)) {
        umf_stream_cache_block_t *block =
            UMF_CONTAINER_OF(last.next, umf_stream_cache_use_t, link)->block;
        umf_stream_cache_t *home = block->cache;
        umf_list_remove(last.next);
        umf_lock(&home->lock);
        settle_locked(home, block);
        umf_unlock(&home->lock);
    }
}

void umf_stream_cache_settle_all(umf_stream_cache_t *cache) {
    umf_lock(&cache->lock);
    while (!umf_list_is_empty(&cache->waiting)) {
        settle_locked(cache, UMF_CONTAINER_OF(cache->waiting.next, umf_stream_cache_block_t, age));
    }
    umf_unlock(&cache->lock);
}

/* --- back to the pool --- */

static void collect_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block,
                           umf_list_t *completed) {
    umf_stream_cache_pull_locked(cache, block);
    umf_stream_cache_remove_locked(cache, block);
    umf_list_add_tail(completed, &block->age);
}

void umf_stream_cache_collect(umf_stream_cache_t *cache, uint64_t freed, umf_list_t *completed) {
    uint64_t now = atomic_load_explicit(&cache->completed, memory_order_acquire);
    uint64_t limit = freed < now ? freed : now;
    umf_lock(&cache->lock);
    while (!umf_list_is_empty(&cache->oldest)) {
        umf_stream_cache_block_t *block =
            UMF_CONTAINER_OF(cache->oldest.next, umf_stream_cache_block_t, age);
        if (block->freed > limit) {
            break;
        }
        collect_locked(cache, block, completed);
    }
    umf_unlock(&cache->lock);
}

/* The next class from this one on that has something in its bin; UMF_STREAM_CACHE_CLASSES: none
 * has. */
static uint32_t next_filled_locked(const umf_stream_cache_t *cache, uint32_t size_class) {
    while (size_class < UMF_STREAM_CACHE_CLASSES &&
           !umf_stream_cache_has_filled(cache, size_class)) {
        bool is_word_empty = cache->filled[size_class / 64] >> size_class % 64 == 0;
        size_class += is_word_empty ? 64 - size_class % 64 : 1;
    }
    return size_class < UMF_STREAM_CACHE_CLASSES ? size_class : UMF_STREAM_CACHE_CLASSES;
}

void umf_stream_cache_collect_large(umf_stream_cache_t *cache, size_t size, umf_list_t *completed) {
    uint64_t now = atomic_load_explicit(&cache->completed, memory_order_acquire);
    umf_lock(&cache->lock);
    for (uint32_t size_class = umf_stream_cache_class(size);
         (size_class = next_filled_locked(cache, size_class)) < UMF_STREAM_CACHE_CLASSES;
         size_class++) {
        umf_stream_cache_block_t *block;
        while ((block = oldest_locked(cache, size_class)) && block->freed <= now) {
            collect_locked(cache, block, completed);
        }
    }
    umf_unlock(&cache->lock);
}

size_t umf_stream_cache_pending(umf_stream_cache_t *cache) {
    umf_lock(&cache->lock);
    size_t bytes = cache->waiting_bytes;
    uint64_t completed = atomic_load_explicit(&cache->completed, memory_order_relaxed);
    for (umf_list_t *at = cache->oldest.prev; at != &cache->oldest; at = at->prev) {
        const umf_stream_cache_block_t *block = UMF_CONTAINER_OF(at, umf_stream_cache_block_t, age);
        if (block->freed <= completed) {
            break;
        }
        bytes += block->size;
    }
    umf_unlock(&cache->lock);
    return bytes;
}

bool umf_stream_cache_is_pending(umf_stream_cache_t *cache) {
    umf_lock(&cache->lock);
    uint64_t completed = atomic_load_explicit(&cache->completed, memory_order_relaxed);
    bool is_pending =
        cache->waiting_bytes ||
        (!umf_list_is_empty(&cache->oldest) &&
         UMF_CONTAINER_OF(cache->oldest.prev, umf_stream_cache_block_t, age)->freed > completed);
    umf_unlock(&cache->lock);
    return is_pending;
}

void umf_stream_cache_lock_both(umf_stream_cache_t *a, umf_stream_cache_t *b) {
    bool is_before = a->lock.order < b->lock.order;
    umf_lock(is_before ? &a->lock : &b->lock);
    umf_lock(is_before ? &b->lock : &a->lock);
}
