/* Lanes: memory that waits for queues, and functions of their layer (object/layer.h). */
#include "base/log.h"
#include "base/meta.h"
#include "ext/queue/lanes.h"

void umf_lanes_update(umf_lanes_t *lanes, bool waits) {
    UMF_LANES_EACH(lanes, lane) {
        umf_lane_update(lane, waits);
    }
    UMF_LANES_EACH(lanes, lane) {
        umf_lane_settle(lane);
    }
}

static void give(umf_lanes_t *lanes, umf_list_t *completed) {
    umf_provider_free_batch(lanes->pool->provider, true);
    while (!umf_list_is_empty(completed)) {
        umf_lane_block_t *block = UMF_CONTAINER_OF(completed->next, umf_lane_block_t, age);
        void *ptr = (void *)block->addr;
        umf_list_remove(&block->age);
        umf_lanes_forget(lanes, block);
        umf_pool_free_at(lanes->pool, ptr);
    }
    umf_provider_free_batch(lanes->pool->provider, false);
}

/* Returns completed blocks of a lane, of its frees up to `freed`, to the pool. */
static void give_back_of(umf_lanes_t *lanes, umf_lane_t *lane, uint64_t freed) {
    umf_list_t completed;
    umf_list_init(&completed);
    umf_lane_collect(lane, freed, &completed);
    give(lanes, &completed);
}

bool umf_lanes_give_back(umf_lanes_t *lanes, size_t size) {
    umf_list_t completed;
    umf_list_init(&completed);
    UMF_LANES_EACH(lanes, lane) {
        if (size) {
            umf_lane_collect_large(lane, size, &completed);
        } else {
            umf_lane_collect(lane, UINT64_MAX, &completed);
        }
    }
    bool is_any = !umf_list_is_empty(&completed);
    give(lanes, &completed);
    return is_any;
}

bool umf_lanes_are_pending(umf_lanes_t *lanes) {
    bool are_pending = false;
    UMF_LANES_EACH(lanes, lane) {
        are_pending = are_pending || umf_lane_is_pending(lane);
    }
    return are_pending;
}

size_t umf_lanes_pending(umf_lanes_t *lanes) {
    size_t bytes = 0;
    UMF_LANES_EACH(lanes, lane) {
        bytes += umf_lane_pending(lane);
    }
    return bytes;
}

/* --- the layer --- */

bool umf_lanes_gives_back(umf_memory_pool_handle_t pool, bool waits) {
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

/* Blocks that were free at the last pass, too, or were meant by a trim, or of a queue that has
 * ended. */
static void lane_tick(umf_lanes_t *lanes, umf_lane_t *lane, bool is_pass) {
    umf_lane_update(lane, false);
    umf_lane_settle(lane);
    umf_lock(&lane->lock);
    uint64_t until = is_pass && lane->aged > lane->trimmed ? lane->aged : lane->trimmed;
    until = lane->kind == UMF_LANE_OPEN ? until : UINT64_MAX;
    lane->aged = is_pass ? lane->freed : lane->aged;
    umf_unlock(&lane->lock);
    give_back_of(lanes, lane, until);
}

void umf_lanes_tick(umf_memory_pool_handle_t pool) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    if (lanes) {
        bool is_pass = umf_decay_is_due(&lanes->decay);
        UMF_LANES_EACH(lanes, lane) {
            lane_tick(lanes, lane, is_pass);
        }
    }
}

/* Blocks freed in a capture are released without waiting: the caller launches no graph any more. */
static void lane_close(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    atomic_store(&lane->completed, lane->freed);
    umf_unlock(&lane->lock);
}

/* Blocks that wait for other queues have been used on their own one: together they count as a free,
 * so that its work is waited for, too. */
static void count_waiting(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    lane->freed += !umf_list_is_empty(&lane->waiting);
    umf_unlock(&lane->lock);
}

static void close_all(umf_lanes_t *lanes) {
    size_t bytes = 0;
    UMF_LANES_EACH(lanes, lane) {
        bytes += umf_lane_has_failed(lane) ? umf_lane_pending(lane) : 0;
        lane_close(lane);
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
static bool wait_unasked(umf_lanes_t *lanes) {
    umf_memory_provider_handle_t provider = lanes->pool->provider;
    bool have_completed = true;
    UMF_LANES_EACH(lanes, lane) {
        have_completed = umf_lane_drain(lane) && have_completed;
    }
    return have_completed ||
           (provider->ext->settle && provider->ext->settle(provider->self) == UMF_RESULT_SUCCESS);
}

void umf_lanes_close(umf_memory_pool_handle_t pool) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    if (!lanes) {
        return;
    }
    UMF_LANES_EACH(lanes, lane) {
        count_waiting(lane);
    }
    if (!wait_unasked(lanes)) {
        umf_lanes_update(lanes, true); /* the queues must still exist */
    }
    UMF_LANES_EACH(lanes, lane) {
        umf_lane_settle_all(lane);
    }
    close_all(lanes);
    umf_lanes_give_back(lanes, 0);
}

void umf_lanes_end(umf_memory_pool_handle_t pool) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    if (!lanes) {
        return;
    }
    umf_thread_slot_owner_close(&lanes->cached); /* threads that end look at the lanes */
    atomic_store(&pool->lanes, NULL);
    UMF_LANES_EACH(lanes, lane) {
        umf_lane_fini(lane);
    }
    /* Now that no block names a lane any more. */
    for (umf_lane_t *lane = atomic_load(&lanes->first), *next; lane; lane = next) {
        next = atomic_load(&lane->next);
        umf_meta_free(lane, sizeof(*lane));
    }
    umf_lanes_delete(lanes);
}
