/* Lanes: the queues that a pool knows, and the records of its blocks. */
#include "queue/lanes.h"

#include "base/log.h"
#include "base/meta.h"

/* --- watched frees --- */

static _Atomic uint32_t *hint_of(umf_lanes_t *lanes, uintptr_t addr) {
    return &lanes->hints[(addr * UINT64_C(0x9E3779B97F4A7C15)) >> 52];
}

/* Can the address have a record? The answer is no for most blocks that never saw a queue. */
static bool may_have_record(umf_lanes_t *lanes, const void *ptr) {
    return atomic_load_explicit(hint_of(lanes, (uintptr_t)ptr), memory_order_acquire) != 0;
}

/* Takes the record of a block in use out of its lane. `found` is NULL if there is none. false: the
 * block was freed before; logged. */
static bool take_out_locked(umf_lane_t *lane, const void *ptr, umf_lane_block_t **found) {
    umf_lane_block_t *block = umf_lane_find_locked(lane, ptr);
    if (block && block->state != UMF_LANE_USED) {
        return false;
    }
    *found = block;
    if (block) {
        umf_lane_remove_locked(lane, block);
    }
    return true;
}

static bool take_out(umf_lanes_t *lanes, const void *ptr, umf_lane_block_t **found) {
    *found = NULL;
    if (!may_have_record(lanes, ptr)) {
        return true;
    }
    UMF_LANES_EACH(lanes, lane) {
        umf_lock(&lane->lock);
        bool is_used = take_out_locked(lane, ptr, found);
        umf_queue_t queue = lane->queue;
        umf_unlock(&lane->lock);
        if (!is_used) {
            UMF_LOG_ERROR("%p was freed before, on queue %p", ptr, queue);
            return false;
        }
        if (*found) {
            return true;
        }
    }
    return true;
}

static umf_lanes_t *lanes_of_entry(umf_map_entry_t entry) {
    return umf_lanes_of(
        atomic_load_explicit(&umf_pool_table[umf_map_entry_pool(entry)], memory_order_acquire));
}

static umf_result_t watched_free(void *self, void *ptr, umf_map_entry_t entry) {
    umf_lanes_t *lanes = lanes_of_entry(entry);
    umf_lane_block_t *block;
    if (!take_out(lanes, ptr, &block)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (block) {
        umf_lanes_forget(lanes, block);
    }
    return lanes->free_below(self, ptr, entry);
}

static bool watched_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    umf_lanes_t *lanes = lanes_of_entry(entry);
    return !may_have_record(lanes, ptr) && lanes->try_free_below(self, ptr, entry);
}

static bool resizes(umf_memory_pool_handle_t pool, const void *ptr) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    umf_lane_block_t *block = NULL;
    bool may = !lanes || take_out(lanes, ptr, &block);
    if (block) {
        umf_lanes_forget(lanes, block);
    }
    return may;
}

/* --- records --- */

umf_lane_block_t *umf_lanes_record(umf_lanes_t *lanes, void *ptr, uint32_t class, size_t size) {
    umf_lane_block_t *block = umf_meta_alloc(sizeof(*block));
    umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
    if (!block || !span) {
        umf_meta_free(block, sizeof(*block));
        UMF_LOG_ERROR("no memory for bookkeeping");
        return NULL;
    }
    block->addr = (uintptr_t)ptr;
    block->class = class;
    block->size = size;
    atomic_fetch_add_explicit(hint_of(lanes, block->addr), 1, memory_order_release);
    umf_hold_watch_span(span);
    return block;
}

void umf_lanes_forget(umf_lanes_t *lanes, umf_lane_block_t *block) {
    atomic_fetch_sub_explicit(hint_of(lanes, block->addr), 1, memory_order_release);
    umf_lane_block_delete(block);
}

/* The largest class whose blocks `size` bytes can serve; UMF_LANE_CLASSES: none. */
static uint32_t class_within(size_t size) {
    uint32_t class = umf_lane_class(size ? size : 1);
    if (class >= UMF_LANE_CLASSES || size < UMF_LANE_SIZE_MIN) {
        return UMF_LANE_CLASSES;
    }
    return umf_lane_class_size(class) > size ? class - 1 : class;
}

/* The size of an object. A pool that gets each from its provider does not tell it: it is the span.
 */
static umf_result_t size_of(umf_lanes_t *lanes, const void *ptr, size_t *size) {
    if (!lanes->each_from_provider) {
        return umfPoolMallocUsableSize(lanes->pool, ptr, size);
    }
    const umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
    if (!span || span->base != (uintptr_t)ptr) {
        UMF_LOG_ERROR("%p is no object of pool %p", ptr, (void *)lanes->pool);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = span->size;
    return UMF_RESULT_SUCCESS;
}

/* The record of a block that was allocated without a queue. */
static umf_result_t make_record(umf_lanes_t *lanes, void *ptr, umf_lane_block_t **block) {
    size_t size = 0;
    umf_result_t result = size_of(lanes, ptr, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result; /* no object: the pool has logged it */
    }
    *block = umf_lanes_record(lanes, ptr, class_within(size), size);
    return *block ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

umf_result_t umf_lanes_take(umf_lanes_t *lanes, void *ptr, umf_lane_block_t **block) {
    if (!take_out(lanes, ptr, block)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return *block ? UMF_RESULT_SUCCESS : make_record(lanes, ptr, block);
}

bool umf_lanes_is_exported(const umf_lanes_t *lanes, const void *ptr) {
    if (!lanes->each_from_provider) {
        return __atomic_load_n(&lanes->pool->holds, __ATOMIC_RELAXED) != NULL;
    }
    umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
    return span && atomic_load_explicit(&span->export, memory_order_acquire);
}

/* --- the lanes of a pool --- */

static bool has_queues(umf_memory_pool_handle_t pool) {
    const umf_memory_provider_ext_ops_t *ext = pool->provider->ext;
    return pool->tracked && ext->queue_mark && ext->mark_wait;
}

static umf_result_t lanes_make(umf_memory_pool_handle_t pool, umf_lanes_t **out) {
    umf_lanes_t *lanes = umf_meta_alloc(sizeof(*lanes));
    if (!lanes) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    lanes->pool = pool;
    lanes->each_from_provider = pool->fast && pool->fast->each_from_provider;
    lanes->free_below = pool->free_unheld;
    lanes->try_free_below = pool->try_free_unheld;
    umf_result_t result =
        umf_thread_slot_owner_init(&lanes->cached, 0, sizeof(umf_lanes_cache_t), NULL);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("no index for the queues of pool %p is left", (void *)pool);
        umf_meta_free(lanes, sizeof(*lanes));
        return result;
    }
    umf_lock_init(&lanes->lock, UMF_RANK_LANES);
    *out = lanes;
    return UMF_RESULT_SUCCESS;
}

static void lanes_delete(umf_lanes_t *lanes) {
    umf_thread_slot_owner_fini(&lanes->cached);
    umf_lock_destroy(&lanes->lock);
    umf_meta_free(lanes, sizeof(*lanes));
}

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
        umf_hold_watch(pool, watched_free, watched_try_free);
        made = NULL;
    }
    umf_unlock(&make_lock);
    if (made) {
        lanes_delete(made);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- one lane --- */

static umf_result_t ask_id(umf_lanes_t *lanes, umf_queue_t queue, uint64_t *id,
                           bool *is_of_thread) {
    umf_memory_provider_handle_t provider = lanes->pool->provider;
    int of_thread = 0;
    *id = (uintptr_t)queue + 1;
    umf_result_t result = provider->ext->queue_id
                              ? provider->ext->queue_id(provider->self, queue, id, &of_thread)
                              : UMF_RESULT_SUCCESS;
    *is_of_thread = of_thread != 0;
    return result;
}

static bool is_open_as(umf_lane_t *lane, umf_queue_t queue, uint64_t id, bool *is_it) {
    umf_lock(&lane->lock);
    bool is_open = lane->kind == UMF_LANE_OPEN && lane->queue == queue;
    *is_it = lane->kind == UMF_LANE_OPEN && lane->id == id;
    umf_unlock(&lane->lock);
    return is_open;
}

/* A lane whose handle now belongs to another queue has lost its own. */
static void lose_others(umf_lanes_t *lanes, umf_queue_t queue, uint64_t id) {
    bool is_it;
    UMF_LANES_EACH(lanes, lane) {
        if (is_open_as(lane, queue, id, &is_it) && !is_it && lane->thread == 0) {
            umf_lane_end(lane, false);
        }
    }
}

static umf_lane_t *lane_by_id_locked(umf_lanes_t *lanes, umf_queue_t queue, uint64_t id) {
    bool is_it;
    umf_assert_locked(&lanes->lock);
    UMF_LANES_EACH(lanes, lane) {
        is_open_as(lane, queue, id, &is_it);
        if (is_it) {
            return lane;
        }
    }
    return NULL;
}

/* A lane whose queue has ended and that has nothing any more serves another one. */
static bool lane_is_spare_locked(umf_lane_t *lane) {
    return lane->kind != UMF_LANE_OPEN && lane->blocks.count == 0 && lane->mark_count == 0 &&
           atomic_load(&lane->pins) == 0 && atomic_load(&lane->turn) == 0;
}

static void lane_open_locked(umf_lane_t *lane, umf_queue_t queue, uint64_t id, bool is_of_thread) {
    lane->generation++;
    lane->kind = UMF_LANE_OPEN;
    lane->queue = queue;
    lane->id = id;
    lane->thread = is_of_thread ? (uint16_t)umf_thread_slot_number() : 0;
    atomic_store(&lane->passed, lane->freed);
}

static umf_lane_t *lane_reuse_locked(umf_lanes_t *lanes, umf_queue_t queue, uint64_t id,
                                     bool is_of_thread) {
    umf_assert_locked(&lanes->lock);
    UMF_LANES_EACH(lanes, lane) {
        umf_lock(&lane->lock);
        bool is_spare = lane_is_spare_locked(lane);
        if (is_spare) {
            lane_open_locked(lane, queue, id, is_of_thread);
        }
        umf_unlock(&lane->lock);
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

static umf_lane_t *lane_make_locked(umf_lanes_t *lanes, umf_queue_t queue, uint64_t id,
                                    bool is_of_thread) {
    umf_lane_t *lane = umf_meta_alloc(sizeof(*lane));
    if (!lane) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return NULL;
    }
    umf_lane_init(lane, lanes->pool);
    umf_lock(&lane->lock);
    lane_open_locked(lane, queue, id, is_of_thread);
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

umf_result_t umf_lanes_find(umf_lanes_t *lanes, umf_queue_t queue, umf_lane_t **lane) {
    uint64_t id;
    bool is_of_thread;
    umf_result_t result = ask_id(lanes, queue, &id, &is_of_thread);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    lose_others(lanes, queue, id);
    umf_lock(&lanes->lock);
    umf_lane_t *found = lane_by_id_locked(lanes, queue, id);
    found = found ? found : lane_reuse_locked(lanes, queue, id, is_of_thread);
    found = found ? found : lane_make_locked(lanes, queue, id, is_of_thread);
    umf_unlock(&lanes->lock);
    if (!found) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    lane_remember(lanes, queue, found);
    *lane = found;
    return UMF_RESULT_SUCCESS;
}

/* --- memory that waits --- */

void umf_lanes_update(umf_lanes_t *lanes, bool waits) {
    UMF_LANES_EACH(lanes, lane) {
        umf_lane_update(lane, waits);
    }
    UMF_LANES_EACH(lanes, lane) {
        umf_lane_settle(lane);
    }
}

static void give(umf_lanes_t *lanes, umf_list_t *passed) {
    umf_provider_free_batch(lanes->pool->provider, true);
    while (!umf_list_is_empty(passed)) {
        umf_lane_block_t *block = UMF_CONTAINER_OF(passed->next, umf_lane_block_t, age);
        void *ptr = (void *)block->addr;
        umf_list_remove(&block->age);
        umf_lanes_forget(lanes, block);
        umf_pool_free_at(lanes->pool, ptr);
    }
    umf_provider_free_batch(lanes->pool->provider, false);
}

void umf_lanes_give_back_of(umf_lanes_t *lanes, umf_lane_t *lane, uint64_t freed) {
    umf_list_t passed;
    umf_list_init(&passed);
    umf_lane_collect(lane, freed, 0, &passed);
    give(lanes, &passed);
}

bool umf_lanes_give_back(umf_lanes_t *lanes, size_t size) {
    umf_list_t passed;
    umf_list_init(&passed);
    UMF_LANES_EACH(lanes, lane) {
        umf_lane_collect(lane, UINT64_MAX, size, &passed);
    }
    bool is_any = !umf_list_is_empty(&passed);
    give(lanes, &passed);
    return is_any;
}

size_t umf_lanes_pending(umf_lanes_t *lanes) {
    size_t bytes = 0;
    UMF_LANES_EACH(lanes, lane) {
        bytes += umf_lane_pending(lane);
    }
    return bytes;
}

/* --- what the core tells --- */

static bool gives_back(umf_memory_pool_handle_t pool, bool waits) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    if (!lanes) {
        return false;
    }
    umf_lanes_update(lanes, waits);
    if (waits) { /* what waited for other queues is free on its own only now */
        umf_lanes_update(lanes, true);
    }
    return umf_lanes_give_back(lanes, 0);
}

/* What was free at the last pass, too, or what a trim meant, or of a queue that has ended. */
static void lane_tick(umf_lanes_t *lanes, umf_lane_t *lane, bool is_pass) {
    umf_lane_update(lane, false);
    umf_lane_settle(lane);
    umf_lock(&lane->lock);
    uint64_t until = is_pass && lane->aged > lane->trimmed ? lane->aged : lane->trimmed;
    until = lane->kind == UMF_LANE_OPEN ? until : UINT64_MAX;
    lane->aged = is_pass ? lane->freed : lane->aged;
    umf_unlock(&lane->lock);
    umf_lanes_give_back_of(lanes, lane, until);
}

static void ticks(umf_memory_pool_handle_t pool) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    if (lanes) {
        bool is_pass = umf_decay_is_due(&lanes->decay);
        UMF_LANES_EACH(lanes, lane) {
            lane_tick(lanes, lane, is_pass);
        }
    }
}

/* What is captured is given back unasked: its work runs when a graph does, which the caller no
 * longer launches. */
static void lane_close(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    atomic_store(&lane->passed, lane->freed);
    umf_unlock(&lane->lock);
}

static void pool_closes(umf_memory_pool_handle_t pool) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    for (int i = 0; lanes && i < 2; i++) { /* in the second round what waited for other queues */
        umf_lanes_update(lanes, true);
        UMF_LANES_EACH(lanes, lane) {
            lane_close(lane);
        }
    }
    if (lanes) {
        UMF_LANES_EACH(lanes, lane) {
            umf_lane_settle(lane);
        }
        UMF_LANES_EACH(lanes, lane) {
            lane_close(lane);
        }
        umf_lanes_give_back(lanes, 0);
    }
}

static void pool_ends(umf_memory_pool_handle_t pool) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    if (!lanes) {
        return;
    }
    atomic_store(&pool->lanes, NULL);
    for (umf_lane_t *lane = atomic_load(&lanes->first), *next; lane; lane = next) {
        next = atomic_load(&lane->next);
        umf_lane_fini(lane);
        umf_meta_free(lane, sizeof(*lane));
    }
    lanes_delete(lanes);
}

void umf_lanes_init(void) {
    static umf_listener_t listener = {.pool_closes = pool_closes,
                                      .pool_ends = pool_ends,
                                      .gives_back = gives_back,
                                      .ticks = ticks,
                                      .resizes = resizes};
    umf_core_listen(&listener);
}
