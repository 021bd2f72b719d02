/* Lanes: the queues of a pool. */
#include "ext/queue/lanes.h"

#include <umf/capture.h>

#include "base/log.h"
#include "base/meta.h"

/* --- the lanes of a pool --- */

static bool has_queues(umf_memory_pool_handle_t pool) {
    const umf_memory_provider_ext_ops_t *ext = pool->provider->ext;
    return pool->tracked && ext->queue_mark && ext->mark_wait;
}

umf_result_t umf_lanes_refuse(umf_memory_pool_handle_t pool, umf_queue_t queue) {
    UMF_LOG_ERROR("pool %p cannot use queue %p: its provider has no queues, or the pool does not "
                  "track its memory",
                  (void *)pool, queue);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Nobody else may mark the queues of a thread that has ended. */
static void thread_ends(umf_thread_slot_owner_t *owner, umf_thread_slot_t *cache) {
    umf_lanes_t *lanes = UMF_CONTAINER_OF(owner, umf_lanes_t, cached);
    (void)cache;
    UMF_LANES_EACH(lanes, lane) {
        umf_lock(&lane->lock);
        bool is_own = lane->thread != 0 && lane->thread == umf_thread_slot_number();
        umf_unlock(&lane->lock);
        if (is_own) {
            umf_lane_end(lane, false);
        }
    }
}

static umf_result_t lanes_make(umf_memory_pool_handle_t pool, umf_lanes_t **out) {
    umf_lanes_t *lanes = umf_meta_alloc(sizeof(*lanes));
    if (!lanes) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    lanes->pool = pool;
    lanes->each_from_provider = pool->fast && pool->fast->each_from_provider;
    umf_result_t result =
        umf_thread_slot_owner_init(&lanes->cached, 0, sizeof(umf_lanes_cache_t), thread_ends);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("no index for the queues of pool %p is left", (void *)pool);
        umf_meta_free(lanes, sizeof(*lanes));
        return result;
    }
    umf_lock_init(&lanes->lock, UMF_RANK_LANES);
    *out = lanes;
    return UMF_RESULT_SUCCESS;
}

void umf_lanes_delete(umf_lanes_t *lanes) {
    umf_thread_slot_owner_fini(&lanes->cached);
    umf_lock_destroy(&lanes->lock);
    umf_meta_free(lanes, sizeof(*lanes));
}

static const umf_layer_t queue_layer = {
    .rank = UMF_LAYER_QUEUE,
    .calls = {.free_at = umf_lanes_free_at,
              .try_free = umf_lanes_try_free,
              .realloc = umf_lanes_realloc},
    .gives_back = umf_lanes_gives_back,
    .ticks = umf_lanes_tick,
    .closes = umf_lanes_close,
    .ends = umf_lanes_end,
};

UMF_LOCK_STATIC(make_lock, UMF_RANK_LANES);

umf_result_t umf_lanes_get(umf_memory_pool_handle_t pool, umf_lanes_t **lanes) {
    umf_lanes_t *made = NULL;
    *lanes = umf_lanes_of(pool);
    if (*lanes) {
        return UMF_RESULT_SUCCESS;
    }
    if (!has_queues(pool)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result = lanes_make(pool, &made);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&make_lock);
    *lanes = umf_lanes_of(pool);
    if (!*lanes) {
        *lanes = made;
        atomic_store_explicit(&pool->lanes, made, memory_order_release);
        umf_layer_push(pool, &queue_layer);
        made = NULL;
    }
    umf_unlock(&make_lock);
    if (made) {
        umf_lanes_delete(made);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- one lane --- */

/* Properties of a queue, from its provider. */
typedef struct queue_facts_t {
    umf_queue_t queue;
    uint64_t id;
    bool is_of_thread, is_captured;
} queue_facts_t;

static umf_result_t query(umf_lanes_t *lanes, umf_queue_t queue, queue_facts_t *facts) {
    umf_memory_provider_handle_t provider = lanes->pool->provider;
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
static bool is_of_locked(const umf_lane_t *lane, const queue_facts_t *facts) {
    bool is_it = lane->id && facts->id ? lane->id == facts->id : lane->queue == facts->queue;
    return is_it && lane->thread == thread_of(facts);
}

static bool is_open_as(umf_lane_t *lane, const queue_facts_t *facts, bool *is_it) {
    umf_lock(&lane->lock);
    bool is_open = lane->kind == UMF_LANE_OPEN && lane->queue == facts->queue;
    *is_it = lane->kind == UMF_LANE_OPEN && is_of_locked(lane, facts);
    umf_unlock(&lane->lock);
    return is_open;
}

/* A queue that a pool met first while it was captured has no id before. */
static void lane_learn(umf_lane_t *lane, const queue_facts_t *facts) {
    umf_lock(&lane->lock);
    lane->id = lane->id ? lane->id : facts->id;
    umf_unlock(&lane->lock);
}

/* A lane whose handle now belongs to another queue has lost its own. */
static void lose_others(umf_lanes_t *lanes, const queue_facts_t *facts) {
    bool is_it;
    UMF_LANES_EACH(lanes, lane) {
        if (is_open_as(lane, facts, &is_it) && !is_it && lane->thread == 0) {
            umf_lane_end(lane, false);
        }
    }
}

static umf_lane_t *lane_by_id_locked(umf_lanes_t *lanes, const queue_facts_t *facts) {
    bool is_it;
    umf_assert_locked(&lanes->lock);
    UMF_LANES_EACH(lanes, lane) {
        is_open_as(lane, facts, &is_it);
        if (is_it) {
            return lane;
        }
    }
    return NULL;
}

/* A lane whose queue has ended and that has nothing any more serves another one. */
static bool lane_is_spare_locked(umf_lane_t *lane) {
    return lane->kind != UMF_LANE_OPEN && lane->blocks.count == 0 && lane->mark_count == 0 &&
           atomic_load(&lane->pins) == 0;
}

static void lane_open_locked(umf_lane_t *lane, const queue_facts_t *facts) {
    lane->generation++;
    lane->kind = UMF_LANE_OPEN;
    lane->queue = facts->queue;
    lane->id = facts->id;
    lane->thread = thread_of(facts);
    atomic_store(&lane->completed, lane->freed);
}

static umf_lane_t *lane_reuse_locked(umf_lanes_t *lanes, const queue_facts_t *facts) {
    umf_assert_locked(&lanes->lock);
    UMF_LANES_EACH(lanes, lane) {
        if (!umf_lane_try_hold(lane)) {
            continue;
        }
        umf_lock(&lane->lock);
        bool is_spare = lane_is_spare_locked(lane);
        if (is_spare) {
            lane_open_locked(lane, facts);
        }
        umf_unlock(&lane->lock);
        umf_lane_release(lane);
        if (is_spare) {
            return lane;
        }
    }
    return NULL;
}

static void lane_list_locked(umf_lanes_t *lanes, umf_lane_t *lane) {
    _Atomic(umf_lane_t *) *end = &lanes->first;
    umf_assert_locked(&lanes->lock);
    while (atomic_load_explicit(end, memory_order_relaxed)) {
        end = &atomic_load_explicit(end, memory_order_relaxed)->next;
    }
    atomic_store_explicit(end, lane, memory_order_release);
}

static umf_lane_t *lane_make_locked(umf_lanes_t *lanes, const queue_facts_t *facts) {
    umf_lane_t *lane = umf_meta_alloc(sizeof(*lane));
    if (!lane) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return NULL;
    }
    umf_lane_init(lane, lanes->pool);
    umf_lock(&lane->lock);
    lane_open_locked(lane, facts);
    umf_unlock(&lane->lock);
    lane_list_locked(lanes, lane);
    return lane;
}

static void lane_remember(umf_lanes_t *lanes, umf_queue_t queue, umf_lane_t *lane) {
    umf_lanes_cache_t *cache = (umf_lanes_cache_t *)umf_thread_slot_make(&lanes->cached);
    if (!cache) { /* no memory, or the thread is ending */
        return;
    }
    umf_lanes_cached_t *entry = (umf_lanes_cached_t *)umf_lanes_cached(lanes, queue);
    umf_lock(&lane->lock);
    *entry = (umf_lanes_cached_t){lane, queue, lane->generation};
    umf_unlock(&lane->lock);
}

umf_result_t umf_lanes_find(umf_lanes_t *lanes, umf_queue_t queue, umf_lane_t **lane,
                            bool *is_captured) {
    queue_facts_t facts;
    umf_result_t result = query(lanes, queue, &facts);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    lose_others(lanes, &facts);
    umf_lock(&lanes->lock);
    umf_lane_t *found = lane_by_id_locked(lanes, &facts);
    found = found ? found : lane_reuse_locked(lanes, &facts);
    found = found ? found : lane_make_locked(lanes, &facts);
    umf_unlock(&lanes->lock);
    if (!found) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    lane_learn(found, &facts);
    lane_remember(lanes, queue, found);
    *lane = found;
    *is_captured = facts.is_captured;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_lanes_find_known(umf_lanes_t *lanes, umf_queue_t queue, umf_lane_t **lane) {
    const umf_lanes_cached_t *cached = umf_lanes_cached(lanes, queue);
    bool is_captured;
    if (umf_lanes_is_cached(cached, queue)) {
        umf_lock(&cached->lane->lock);
        bool is_same = cached->lane->generation == cached->generation;
        umf_unlock(&cached->lane->lock);
        if (is_same) {
            *lane = cached->lane;
            return UMF_RESULT_SUCCESS;
        }
    }
    return umf_lanes_find(lanes, queue, lane, &is_captured);
}

static bool may_ask(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    bool may = lane->kind == UMF_LANE_OPEN && lane->bytes && lane->thread == 0;
    umf_unlock(&lane->lock);
    return may;
}

/* Other threads may destroy a queue that is not held. */
static bool is_captured_lane(umf_lanes_t *lanes, umf_lane_t *lane, umf_queue_t *queue) {
    queue_facts_t facts = {0};
    if (!may_ask(lane) || !umf_lane_hold(lane)) {
        return false;
    }
    *queue = lane->queue;
    bool is_captured = query(lanes, lane->queue, &facts) == UMF_RESULT_SUCCESS && facts.is_captured;
    umf_lane_release(lane);
    return is_captured;
}

/* A queue of a lane that has blocks and that is captured now. false: there is none. */
static bool find_captured(umf_lanes_t *lanes, umf_queue_t *queue) {
    umf_queue_t each;
    UMF_LANES_EACH(lanes, lane) {
        if (is_captured_lane(lanes, lane, &each)) {
            *queue = each;
            return true;
        }
    }
    return false;
}

/* --- captures --- */

umf_lanes_captured_t umf_lanes_announce(umf_lanes_t *lanes, umf_queue_t queue, bool is_captured) {
    umf_lanes_captured_t captured = {.queue = queue};
    captured.is_announced = (is_captured || find_captured(lanes, &captured.queue)) &&
                            umfCaptureBegins(captured.queue) == UMF_RESULT_SUCCESS;
    return captured;
}

void umf_lanes_renounce(const umf_lanes_captured_t *captured) {
    if (captured->is_announced) {
        umfCaptureEnds(captured->queue);
    }
}
