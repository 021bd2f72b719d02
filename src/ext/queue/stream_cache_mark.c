/*
 * Marks of caches: how far a queue is. One thread at a time has the polling lock, and the marks. It
 * calls the provider without a lock, and releases the polling lock before it waits for a mark, so
 * that no other thread waits for that queue.
 */
#include "ext/queue/stream_cache.h"
#include "system/pause.h"

/* --- polling locks; those of the parent of a forked process have no thread any more --- */

static unsigned poller_mine(void) {
    return umf_fork_count() + 1;
}

static void marks_shift(umf_stream_cache_t *cache) {
    cache->mark_count--;
    for (unsigned i = 0; i < cache->mark_count; i++) {
        cache->marks[i] = cache->marks[i + 1];
    }
}

static bool polling_try_lock(umf_stream_cache_t *cache) {
    unsigned mine = poller_mine(), now = atomic_load(&cache->poller);
    if (now == mine || !atomic_compare_exchange_strong(&cache->poller, &now, mine)) {
        return false;
    }
    if (now != 0) {
        /* The thread did not come along, and may have ended marks that are still listed. Those are
         * left as they are; the next one stands behind all frees. */
        cache->mark_count = 0;
    } else if (cache->awaited && cache->awaited != mine) {
        marks_shift(cache); /* likewise */
    }
    cache->awaited = cache->awaited == mine ? mine : 0;
    return true;
}

static void polling_lock(umf_stream_cache_t *cache) {
    for (unsigned round = 0; !polling_try_lock(cache); round++) {
        umf_pause(round);
    }
}

static void polling_unlock(umf_stream_cache_t *cache) {
    atomic_store(&cache->poller, 0);
}

/* --- marks --- */

static uint64_t freed_of(umf_stream_cache_t *cache) {
    umf_lock(&cache->lock);
    uint64_t freed = cache->freed;
    umf_unlock(&cache->lock);
    return freed;
}

static void pass(umf_stream_cache_t *cache, uint64_t freed) {
    if (atomic_load_explicit(&cache->completed, memory_order_relaxed) < freed) {
        atomic_store_explicit(&cache->completed, freed, memory_order_release);
    }
}

/* Asks for the oldest mark. true: it has completed, and is ended. */
static bool ask_oldest(umf_stream_cache_t *cache) {
    umf_memory_provider_handle_t provider = cache->pool->provider;
    if (!provider->ext->mark_wait(provider->self, cache->marks[0].mark, false)) {
        return false;
    }
    pass(cache, cache->marks[0].freed);
    marks_shift(cache);
    return true;
}

/* Ends the marks that have completed, oldest first. One that a thread waits for is that thread's.
 */
static void poll(umf_stream_cache_t *cache) {
    while (cache->mark_count && !cache->awaited && ask_oldest(cache)) {
    }
}

/* Waits for the oldest mark, without the polling lock. false: the provider cannot wait. */
static bool await_as_owner(umf_stream_cache_t *cache) {
    umf_memory_provider_handle_t provider = cache->pool->provider;
    umf_stream_cache_mark_t oldest = cache->marks[0];
    unsigned mine = cache->awaited = poller_mine();
    polling_unlock(cache);
    bool has_completed = provider->ext->mark_wait(provider->self, oldest.mark, true);
    polling_lock(cache);
    if (cache->awaited == mine) { /* else this is a child of fork, which has dropped the mark */
        cache->awaited = 0;
        if (has_completed) {
            pass(cache, oldest.freed);
            marks_shift(cache);
        }
    }
    umf_event_count_advance(&cache->passes);
    return has_completed;
}

/* The same where another thread waits for it already. */
static void await_other(umf_stream_cache_t *cache) {
    uint32_t seen = umf_event_count_read(&cache->passes);
    polling_unlock(cache);
    umf_event_count_wait(&cache->passes, seen);
    polling_lock(cache);
}

static bool await_oldest(umf_stream_cache_t *cache) {
    if (cache->awaited) {
        await_other(cache);
        return true;
    }
    return await_as_owner(cache);
}

/* A queue that cannot be marked for another reason than memory is no longer a queue. */
static bool is_lost_by(umf_result_t result) {
    return result != UMF_RESULT_SUCCESS && result != UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY &&
           result != UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

static void cache_close(umf_stream_cache_t *cache, umf_stream_cache_kind_t kind) {
    umf_lock(&cache->lock);
    cache->kind = kind;
    cache->generation++;
    umf_unlock(&cache->lock);
}

static bool may_mark(const umf_stream_cache_t *cache) {
    return cache->kind == UMF_STREAM_CACHE_OPEN && cache->mark_count < UMF_STREAM_CACHE_MARKS &&
           (cache->thread == 0 || cache->thread == umf_thread_slot_number());
}

static void mark_behind(umf_stream_cache_t *cache, uint64_t freed) {
    umf_memory_provider_handle_t provider = cache->pool->provider;
    void *made = NULL;
    umf_result_t result = provider->ext->queue_mark(provider->self, cache->queue, &made);
    cache->is_captured = result == UMF_RESULT_SUCCESS && !made;
    if (result == UMF_RESULT_SUCCESS && made) {
        cache->marks[cache->mark_count++] = (umf_stream_cache_mark_t){made, freed};
    } else if (is_lost_by(result)) {
        cache_close(cache, UMF_STREAM_CACHE_LOST);
    }
}

static uint64_t marked_of(const umf_stream_cache_t *cache) {
    return cache->mark_count ? cache->marks[cache->mark_count - 1].freed
                             : atomic_load_explicit(&cache->completed, memory_order_relaxed);
}

/* Makes a mark behind all frees so far, if the last one is not. */
static void mark(umf_stream_cache_t *cache) {
    uint64_t freed = freed_of(cache);
    if (marked_of(cache) < freed && may_mark(cache)) {
        mark_behind(cache, freed);
    }
}

/* The queues of others that have no handle any more have completed when all have. Without the
 * polling lock, because it may take as long as any work. */
static void wait_for_all(umf_stream_cache_t *cache) {
    umf_memory_provider_handle_t provider = cache->pool->provider;
    uint64_t freed = freed_of(cache);
    polling_unlock(cache);
    bool have_completed = provider->ext->wait && provider->ext->wait(provider->self, NULL, 0, NULL,
                                                                     0) == UMF_RESULT_SUCCESS;
    polling_lock(cache);
    if (have_completed) {
        pass(cache, freed);
    }
}

static bool is_unmarkable(const umf_stream_cache_t *cache) {
    return cache->kind == UMF_STREAM_CACHE_LOST ||
           (cache->thread && cache->thread != umf_thread_slot_number());
}

static bool has_completed(const umf_stream_cache_t *cache, uint64_t freed) {
    return atomic_load_explicit(&cache->completed, memory_order_relaxed) >= freed;
}

/* Marks the queue and looks how far it is; twice, because there may have been no room for a mark.
 */
static void look(umf_stream_cache_t *cache) {
    for (int i = 0; i < 2; i++) {
        mark(cache);
        poll(cache);
    }
    if (cache->kind == UMF_STREAM_CACHE_ENDED && cache->mark_count == 0) {
        pass(cache, freed_of(cache));
    }
}

static void update(umf_stream_cache_t *cache, bool waits) {
    uint64_t requested = freed_of(cache);
    bool goes_on = waits;
    look(cache);
    while (goes_on && !has_completed(cache, requested) && cache->mark_count) {
        goes_on = await_oldest(cache);
        look(cache);
    }
    if (waits && is_unmarkable(cache) && !has_completed(cache, requested)) {
        wait_for_all(cache);
    }
}

static bool is_behind(umf_stream_cache_t *cache) {
    return atomic_load_explicit(&cache->completed, memory_order_acquire) < freed_of(cache);
}

void umf_stream_cache_update(umf_stream_cache_t *cache, bool waits) {
    if (!is_behind(cache)) {
        return;
    }
    if (waits) {
        polling_lock(cache);
    } else if (!polling_try_lock(cache)) {
        return;
    }
    update(cache, waits);
    polling_unlock(cache);
}

bool umf_stream_cache_drain(umf_stream_cache_t *cache) {
    polling_lock(cache);
    poll(cache);
    while (cache->mark_count && await_oldest(cache)) {
    }
    polling_unlock(cache);
    return !is_behind(cache);
}

bool umf_stream_cache_has_failed(umf_stream_cache_t *cache) {
    return is_behind(cache) && !cache->is_captured;
}

bool umf_stream_cache_poll_lock(umf_stream_cache_t *cache) {
    polling_lock(cache);
    bool is_open = cache->kind == UMF_STREAM_CACHE_OPEN;
    if (!is_open) {
        polling_unlock(cache);
    }
    return is_open;
}

bool umf_stream_cache_poll_try_lock(umf_stream_cache_t *cache) {
    return polling_try_lock(cache);
}

void umf_stream_cache_poll_unlock(umf_stream_cache_t *cache) {
    polling_unlock(cache);
}

/* Makes the last mark of the queue, for which there always is room. Blocks that wait for other
 * queues, and those that name this one as another queue, count as a free. false: it could not be
 * made. */
static bool mark_last(umf_stream_cache_t *cache) {
    umf_lock(&cache->lock);
    cache->freed += !umf_list_is_empty(&cache->waiting) || atomic_load(&cache->pins) != 0;
    uint64_t freed = cache->freed;
    umf_unlock(&cache->lock);
    if (marked_of(cache) < freed) {
        mark_behind(cache, freed);
    }
    return marked_of(cache) >= freed;
}

void umf_stream_cache_end(umf_stream_cache_t *cache, bool is_known) {
    polling_lock(cache);
    if (cache->kind == UMF_STREAM_CACHE_OPEN) {
        bool is_marked = is_known && mark_last(cache);
        if (cache->kind == UMF_STREAM_CACHE_OPEN) { /* the mark may have failed */
            cache_close(cache, is_marked ? UMF_STREAM_CACHE_ENDED : UMF_STREAM_CACHE_LOST);
        }
    }
    polling_unlock(cache);
}

/* --- waiting on the device --- */

/* A mark behind that many frees that no thread waits for, as such a mark ends at any moment. NULL:
 * there is none. */
static const umf_stream_cache_mark_t *mark_to_follow(umf_stream_cache_t *cache, uint64_t freed) {
    for (unsigned i = cache->awaited != 0; i < cache->mark_count; i++) {
        if (cache->marks[i].freed >= freed) {
            return &cache->marks[i];
        }
    }
    if (!has_completed(cache, freed) && may_mark(cache)) {
        unsigned before = cache->mark_count;
        mark_behind(cache, freed_of(cache));
        return cache->mark_count > before ? &cache->marks[before] : NULL;
    }
    return NULL;
}

static bool follow(umf_stream_cache_t *cache, umf_queue_t follower, uint64_t freed) {
    umf_memory_provider_handle_t provider = cache->pool->provider;
    const umf_stream_cache_mark_t *mark = mark_to_follow(cache, freed);
    return mark ? provider->ext->queue_follow(provider->self, follower, mark->mark) ==
                      UMF_RESULT_SUCCESS
                : has_completed(cache, freed);
}

umf_stream_cache_block_t *umf_stream_cache_take_behind(umf_stream_cache_t *cache,
                                                       umf_queue_t follower, uint32_t size_class,
                                                       uint32_t last, size_t alignment) {
    if (!cache->pool->provider->ext->queue_follow || !polling_try_lock(cache)) {
        return NULL;
    }
    umf_lock(&cache->lock);
    umf_stream_cache_block_t *block =
        umf_stream_cache_take_locked(cache, size_class, last, alignment, false);
    umf_unlock(&cache->lock);
    if (block && !follow(cache, follower, block->freed)) {
        umf_lock(&cache->lock);
        umf_stream_cache_push_locked(cache, block);
        umf_unlock(&cache->lock);
        block = NULL;
    }
    polling_unlock(cache);
    return block;
}
