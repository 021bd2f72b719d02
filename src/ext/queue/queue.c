/* Queues: free, use, the end of a queue, trims and waits. */
#include <umf/queue.h>

#include <time.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/queue/lanes.h"
#include "object/recorded.h"
#include "reclaim/reclaim.h"
#include "system/pause.h"

/* --- free --- */

/* The pool of a block, its lanes and the lane of the queue. The result NOT_SUPPORTED with the queue
 * NULL: the pool knows no queues. */
static umf_result_t find_all(const void *ptr, umf_queue_t queue, umf_lanes_t **lanes,
                             umf_lane_t **lane) {
    umf_memory_pool_handle_t pool;
    if (umfPoolByPtr(ptr, &pool) != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("no pool knows %p: it is foreign, already freed, or of an untracked pool",
                      ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_lanes_get(pool, lanes);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return queue ? umf_lanes_refuse(pool, queue) : result;
    }
    bool is_captured;
    return result == UMF_RESULT_SUCCESS ? umf_lanes_find(*lanes, queue, lane, &is_captured)
                                        : result;
}

static umf_result_t recorded_free(umf_memory_pool_handle_t pool, void *ptr, const void *queue);

static UMF_COLD umf_result_t free_slow(void *ptr, umf_queue_t queue) {
    umf_lanes_t *lanes;
    umf_lane_t *lane;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = find_all(ptr, queue, &lanes, &lane);
    if (result != UMF_RESULT_SUCCESS) {
        return result == UMF_RESULT_ERROR_NOT_SUPPORTED && !queue ? umfFree(ptr) : result;
    }
    if (umf_is_recorded(lanes->pool) && !umf_recorded_is_inside(lanes->pool)) {
        return umf_recorded_free(lanes->pool, ptr, queue, recorded_free, queue);
    }
    return umf_lanes_free(lanes, lane, ptr);
}

static umf_result_t recorded_free(umf_memory_pool_handle_t pool, void *ptr, const void *queue) {
    (void)pool;
    return free_slow(ptr, (umf_queue_t)(uintptr_t)queue);
}

/* Frees a block that was allocated on the same queue and is used there only. Hot. */
UMF_INLINE bool free_cached(const umf_lanes_cached_t *cached, const void *ptr) {
    umf_lane_t *lane = cached->lane;
    umf_lock(&lane->lock);
    umf_lane_block_t *block =
        umf_likely(lane->generation == cached->generation) ? umf_lane_find_locked(lane, ptr) : NULL;
    bool is_simple =
        block && block->state == UMF_LANE_USED && !block->uses && block->class < UMF_LANE_CLASSES;
    if (umf_likely(is_simple)) {
        umf_lane_push_locked(lane, block);
    }
    umf_unlock(&lane->lock);
    return is_simple;
}

static inline bool may_be_exported(const umf_lanes_t *lanes, umf_map_entry_t entry) {
    if (!lanes->each_from_provider) {
        return umf_unlikely(__atomic_load_n(&lanes->pool->holds, __ATOMIC_RELAXED) != NULL);
    }
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    return atomic_load_explicit(&span->export, memory_order_relaxed) != NULL;
}

UMF_API_EXT_1 umf_result_t umfFreeOn(void *ptr, umf_queue_t queue) {
    umf_map_entry_t entry;
    if (umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry))) {
        return free_slow(ptr, queue);
    }
    umf_memory_pool_handle_t pool =
        atomic_load_explicit(&umf_pool_table[umf_map_entry_pool(entry)], memory_order_acquire);
    if (umf_likely(pool != NULL) && umf_is_recorded(pool)) {
        return free_slow(ptr, queue);
    }
    umf_lanes_t *lanes = umf_likely(pool != NULL) ? umf_lanes_of(pool) : NULL;
    if (umf_likely(lanes != NULL) && !may_be_exported(lanes, entry)) {
        const umf_lanes_cached_t *cached = umf_lanes_cached(lanes, queue);
        if (umf_likely(umf_lanes_is_cached(cached, queue)) && free_cached(cached, ptr)) {
            return UMF_RESULT_SUCCESS;
        }
    }
    return free_slow(ptr, queue);
}

/* --- use --- */

UMF_API_EXT_1 umf_result_t umfUseOn(const void *ptr, umf_queue_t queue) {
    umf_lanes_t *lanes;
    umf_lane_t *lane;
    umf_result_t result = find_all(ptr, queue, &lanes, &lane);
    if (result != UMF_RESULT_SUCCESS) {
        return result == UMF_RESULT_ERROR_NOT_SUPPORTED && !queue ? UMF_RESULT_SUCCESS : result;
    }
    return umf_lanes_use(lanes, lane, (void *)(uintptr_t)ptr);
}

/* --- the end of a queue --- */

static bool end_in_pool(umf_memory_pool_handle_t pool, void *queue) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    if (lanes) {
        UMF_LANES_EACH(lanes, lane) {
            umf_lock(&lane->lock);
            bool is_it = lane->kind == UMF_LANE_OPEN && lane->queue == queue &&
                         (lane->thread == 0 || lane->thread == umf_thread_slot_number());
            umf_unlock(&lane->lock);
            if (is_it) {
                umf_lane_end(lane, true);
            }
        }
    }
    return true;
}

UMF_API_EXT_1 umf_result_t umfQueueEnds(umf_queue_t queue) {
    umf_reclaim_each(end_in_pool, queue);
    return UMF_RESULT_SUCCESS;
}

/* --- trims and waits --- */

static umf_result_t trim_pool(umf_memory_pool_handle_t pool, size_t keep) {
    umf_result_t result = umf_pool_trim(pool, keep, false);
    umf_provider_drop_reusable(pool->provider, false);
    return result;
}

static umf_result_t trim_on(umf_lanes_t *lanes, size_t keep, umf_queue_t queue) {
    umf_lane_t *lane;
    bool is_captured;
    umf_result_t result = umf_lanes_find(lanes, queue, &lane, &is_captured);
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&lane->lock);
        lane->trimmed = lane->freed;
        umf_unlock(&lane->lock);
        umf_lanes_captured_t captured = umf_lanes_announce(lanes, queue, is_captured);
        result = trim_pool(lanes->pool, keep);
        umf_lanes_renounce(&captured);
    }
    return result;
}

UMF_API_EXT_1 umf_result_t umfPoolTrimOn(umf_memory_pool_handle_t pool, size_t keep,
                                         umf_queue_t queue) {
    umf_lanes_t *lanes;
    if (!umf_pool_check(pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_lanes_get(pool, &lanes);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED && queue) {
        return umf_lanes_refuse(pool, queue);
    }
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return trim_pool(pool, keep);
    }
    return result == UMF_RESULT_SUCCESS ? trim_on(lanes, keep, queue) : result;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Looks how far all queues are, or waits for all that can be waited for. Does something still wait?
 * `in_provider`: bytes of that. */
static bool look(umf_memory_pool_handle_t pool, bool waits, size_t *in_provider) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    const umf_memory_provider_ext_ops_t *ext = pool->provider->ext;
    *in_provider = 0;
    if (lanes) {
        umf_lanes_update(lanes, waits);
        umf_lanes_update(lanes, waits); /* what waited for other queues */
    }
    if (ext->free_pending) {
        ext->free_pending(pool->provider->self, waits, in_provider);
    }
    return *in_provider || (lanes && umf_lanes_are_pending(lanes));
}

static size_t bytes_in_lanes(umf_memory_pool_handle_t pool) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    return lanes ? umf_lanes_pending(lanes) : 0;
}

UMF_API_EXT_1 umf_result_t umfPoolWaitPending(umf_memory_pool_handle_t pool, uint64_t timeout_ns,
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
        *bytes = is_any ? in_provider + bytes_in_lanes(pool) : 0;
    }
    return is_any ? UMF_RESULT_ERROR_OUT_OF_RESOURCES : UMF_RESULT_SUCCESS;
}
