/*
 * Marks of lanes: how far a queue is. One thread at a time has the turn, and the marks; it calls
 * the provider without a lock.
 */
#include "queue/lane.h"
#include "system/pause.h"

/* --- turns; those of the parent of a forked process have no thread any more --- */

static bool turn_try(umf_lane_t *lane) {
    unsigned mine = umf_fork_count() + 1, now = atomic_load(&lane->turn);
    if (now == mine || !atomic_compare_exchange_strong(&lane->turn, &now, mine)) {
        return false;
    }
    if (now != 0) {
        /* The thread did not come along, and may have ended marks that are still listed. Those are
         * left as they are; the next one stands behind all frees. */
        lane->mark_count = 0;
    }
    return true;
}

static void turn_wait(umf_lane_t *lane) {
    for (unsigned round = 0; !turn_try(lane); round++) {
        umf_pause(round);
    }
}

static void turn_end(umf_lane_t *lane) {
    atomic_store(&lane->turn, 0);
}

/* --- marks --- */

static uint64_t freed_of(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    uint64_t freed = lane->freed;
    umf_unlock(&lane->lock);
    return freed;
}

static void pass(umf_lane_t *lane, uint64_t freed) {
    if (atomic_load_explicit(&lane->passed, memory_order_relaxed) < freed) {
        atomic_store_explicit(&lane->passed, freed, memory_order_release);
    }
}

/* Ends the marks that have passed, oldest first. */
static void poll(umf_lane_t *lane, bool waits) {
    umf_memory_provider_handle_t provider = lane->pool->provider;
    while (lane->mark_count &&
           provider->ext->mark_wait(provider->self, lane->marks[0].mark, waits)) {
        pass(lane, lane->marks[0].freed);
        lane->mark_count--;
        for (unsigned i = 0; i < lane->mark_count; i++) {
            lane->marks[i] = lane->marks[i + 1];
        }
    }
}

/* A queue that cannot be marked for another reason than memory is no longer a queue. */
static bool is_lost_by(umf_result_t result) {
    return result != UMF_RESULT_SUCCESS && result != UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY &&
           result != UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

static void lane_close(umf_lane_t *lane, umf_lane_kind_t kind) {
    umf_lock(&lane->lock);
    lane->kind = kind;
    lane->generation++;
    umf_unlock(&lane->lock);
}

static bool may_mark(const umf_lane_t *lane) {
    return lane->kind == UMF_LANE_OPEN && lane->mark_count < UMF_LANE_MARKS &&
           (lane->thread == 0 || lane->thread == umf_thread_slot_number());
}

/* Makes a mark behind all frees so far, if the last one is not. */
static void mark(umf_lane_t *lane) {
    umf_memory_provider_handle_t provider = lane->pool->provider;
    uint64_t freed = freed_of(lane);
    uint64_t marked = lane->mark_count ? lane->marks[lane->mark_count - 1].freed
                                       : atomic_load_explicit(&lane->passed, memory_order_relaxed);
    void *made = NULL;
    if (marked >= freed || !may_mark(lane)) {
        return;
    }
    umf_result_t result = provider->ext->queue_mark(provider->self, lane->queue, &made);
    if (result == UMF_RESULT_SUCCESS && made) { /* NULL: it is captured */
        lane->marks[lane->mark_count++] = (umf_lane_mark_t){made, freed};
    } else if (is_lost_by(result)) {
        lane_close(lane, UMF_LANE_LOST);
    }
}

/* The queues of others that have no handle any more have passed when all have. */
static void wait_for_all(umf_lane_t *lane) {
    umf_memory_provider_handle_t provider = lane->pool->provider;
    uint64_t freed = freed_of(lane);
    if (provider->ext->wait &&
        provider->ext->wait(provider->self, NULL, 0, NULL, 0) == UMF_RESULT_SUCCESS) {
        pass(lane, freed);
    }
}

static bool is_unmarkable(const umf_lane_t *lane) {
    return lane->kind == UMF_LANE_LOST ||
           (lane->thread && lane->thread != umf_thread_slot_number());
}

static void update(umf_lane_t *lane, bool waits) {
    uint64_t wanted = freed_of(lane);
    mark(lane);
    poll(lane, waits);
    mark(lane); /* there may have been no room for a mark */
    poll(lane, waits);
    if (lane->kind == UMF_LANE_ENDED && lane->mark_count == 0) {
        pass(lane, freed_of(lane));
    }
    if (waits && is_unmarkable(lane) && atomic_load(&lane->passed) < wanted) {
        wait_for_all(lane);
    }
}

static bool is_behind(umf_lane_t *lane) {
    return atomic_load_explicit(&lane->passed, memory_order_acquire) < freed_of(lane);
}

void umf_lane_update(umf_lane_t *lane, bool waits) {
    if (!is_behind(lane)) {
        return;
    }
    if (waits) {
        turn_wait(lane);
    } else if (!turn_try(lane)) {
        return;
    }
    update(lane, waits);
    turn_end(lane);
}

bool umf_lane_drain(umf_lane_t *lane) {
    turn_wait(lane);
    poll(lane, true);
    turn_end(lane);
    return !is_behind(lane);
}

bool umf_lane_hold(umf_lane_t *lane) {
    turn_wait(lane);
    bool is_open = lane->kind == UMF_LANE_OPEN;
    if (!is_open) {
        turn_end(lane);
    }
    return is_open;
}

bool umf_lane_try_hold(umf_lane_t *lane) {
    return turn_try(lane);
}

void umf_lane_release(umf_lane_t *lane) {
    turn_end(lane);
}

/* Makes the last mark of the queue. Blocks that wait for other queues, and those that name this one
 * as another queue, count as a free. false: it could not be made. */
static bool mark_last(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    lane->freed += !umf_list_is_empty(&lane->waiting) || atomic_load(&lane->pins) != 0;
    uint64_t freed = lane->freed;
    umf_unlock(&lane->lock);
    mark(lane);
    uint64_t marked =
        lane->mark_count ? lane->marks[lane->mark_count - 1].freed : atomic_load(&lane->passed);
    return marked >= freed;
}

void umf_lane_end(umf_lane_t *lane, bool is_known) {
    turn_wait(lane);
    if (lane->kind == UMF_LANE_OPEN) {
        poll(lane, false);
        if (is_known && lane->mark_count == UMF_LANE_MARKS) {
            poll(lane, true);
        }
        bool is_marked = is_known && mark_last(lane);
        if (lane->kind == UMF_LANE_OPEN) { /* the mark may have failed */
            lane_close(lane, is_marked ? UMF_LANE_ENDED : UMF_LANE_LOST);
        }
    }
    turn_end(lane);
}

/* --- waiting on the device --- */

static bool follow(umf_lane_t *lane, umf_queue_t follower, uint64_t freed) {
    umf_memory_provider_handle_t provider = lane->pool->provider;
    for (unsigned i = 0; i < lane->mark_count; i++) {
        if (lane->marks[i].freed >= freed) {
            return provider->ext->queue_follow(provider->self, follower, lane->marks[i].mark) ==
                   UMF_RESULT_SUCCESS;
        }
    }
    return atomic_load(&lane->passed) >= freed;
}

umf_lane_block_t *umf_lane_take_behind(umf_lane_t *lane, umf_queue_t follower, uint32_t class,
                                       uint32_t last, size_t alignment) {
    if (!lane->pool->provider->ext->queue_follow || !turn_try(lane)) {
        return NULL;
    }
    mark(lane);
    umf_lock(&lane->lock);
    umf_lane_block_t *block = umf_lane_take_locked(lane, class, last, alignment, false);
    umf_unlock(&lane->lock);
    if (block && !follow(lane, follower, block->freed)) {
        umf_lock(&lane->lock);
        umf_lane_push_locked(lane, block);
        umf_unlock(&lane->lock);
        block = NULL;
    }
    turn_end(lane);
    return block;
}
