/*
 * Marks of lanes: how far a queue is. One thread at a time has the polling lock, and the marks. It
 * calls the provider without a lock, and releases the polling lock before it waits for a mark, so
 * that no other thread waits for that queue.
 */
#include "ext/queue/lane.h"
#include "system/pause.h"

/* --- polling locks; those of the parent of a forked process have no thread any more --- */

static unsigned poller_mine(void) {
    return umf_fork_count() + 1;
}

static void marks_shift(umf_lane_t *lane) {
    lane->mark_count--;
    for (unsigned i = 0; i < lane->mark_count; i++) {
        lane->marks[i] = lane->marks[i + 1];
    }
}

static bool polling_try_lock(umf_lane_t *lane) {
    unsigned mine = poller_mine(), now = atomic_load(&lane->poller);
    if (now == mine || !atomic_compare_exchange_strong(&lane->poller, &now, mine)) {
        return false;
    }
    if (now != 0) {
        /* The thread did not come along, and may have ended marks that are still listed. Those are
         * left as they are; the next one stands behind all frees. */
        lane->mark_count = 0;
    } else if (lane->awaited && lane->awaited != mine) {
        marks_shift(lane); /* likewise */
    }
    lane->awaited = lane->awaited == mine ? mine : 0;
    return true;
}

static void polling_lock(umf_lane_t *lane) {
    for (unsigned round = 0; !polling_try_lock(lane); round++) {
        umf_pause(round);
    }
}

static void polling_unlock(umf_lane_t *lane) {
    atomic_store(&lane->poller, 0);
}

/* --- marks --- */

static uint64_t freed_of(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    uint64_t freed = lane->freed;
    umf_unlock(&lane->lock);
    return freed;
}

static void pass(umf_lane_t *lane, uint64_t freed) {
    if (atomic_load_explicit(&lane->completed, memory_order_relaxed) < freed) {
        atomic_store_explicit(&lane->completed, freed, memory_order_release);
    }
}

/* Asks for the oldest mark. true: it has completed, and is ended. */
static bool ask_oldest(umf_lane_t *lane) {
    umf_memory_provider_handle_t provider = lane->pool->provider;
    if (!provider->ext->mark_wait(provider->self, lane->marks[0].mark, false)) {
        return false;
    }
    pass(lane, lane->marks[0].freed);
    marks_shift(lane);
    return true;
}

/* Ends the marks that have completed, oldest first. One that a thread waits for is that thread's.
 */
static void poll(umf_lane_t *lane) {
    while (lane->mark_count && !lane->awaited && ask_oldest(lane)) {
    }
}

/* Waits for the oldest mark, without the polling lock. false: the provider cannot wait. */
static bool await_as_owner(umf_lane_t *lane) {
    umf_memory_provider_handle_t provider = lane->pool->provider;
    umf_lane_mark_t oldest = lane->marks[0];
    unsigned mine = lane->awaited = poller_mine();
    polling_unlock(lane);
    bool has_completed = provider->ext->mark_wait(provider->self, oldest.mark, true);
    polling_lock(lane);
    if (lane->awaited == mine) { /* else this is a child of fork, which has dropped the mark */
        lane->awaited = 0;
        if (has_completed) {
            pass(lane, oldest.freed);
            marks_shift(lane);
        }
    }
    umf_event_count_advance(&lane->passes);
    return has_completed;
}

/* The same where another thread waits for it already. */
static void await_other(umf_lane_t *lane) {
    uint32_t seen = umf_event_count_read(&lane->passes);
    polling_unlock(lane);
    umf_event_count_wait(&lane->passes, seen);
    polling_lock(lane);
}

static bool await_oldest(umf_lane_t *lane) {
    if (lane->awaited) {
        await_other(lane);
        return true;
    }
    return await_as_owner(lane);
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

static void mark_behind(umf_lane_t *lane, uint64_t freed) {
    umf_memory_provider_handle_t provider = lane->pool->provider;
    void *made = NULL;
    umf_result_t result = provider->ext->queue_mark(provider->self, lane->queue, &made);
    lane->is_captured = result == UMF_RESULT_SUCCESS && !made;
    if (result == UMF_RESULT_SUCCESS && made) {
        lane->marks[lane->mark_count++] = (umf_lane_mark_t){made, freed};
    } else if (is_lost_by(result)) {
        lane_close(lane, UMF_LANE_LOST);
    }
}

static uint64_t marked_of(const umf_lane_t *lane) {
    return lane->mark_count ? lane->marks[lane->mark_count - 1].freed
                            : atomic_load_explicit(&lane->completed, memory_order_relaxed);
}

/* Makes a mark behind all frees so far, if the last one is not. */
static void mark(umf_lane_t *lane) {
    uint64_t freed = freed_of(lane);
    if (marked_of(lane) < freed && may_mark(lane)) {
        mark_behind(lane, freed);
    }
}

/* The queues of others that have no handle any more have completed when all have. Without the
 * polling lock, because it may take as long as any work. */
static void wait_for_all(umf_lane_t *lane) {
    umf_memory_provider_handle_t provider = lane->pool->provider;
    uint64_t freed = freed_of(lane);
    polling_unlock(lane);
    bool have_completed = provider->ext->wait && provider->ext->wait(provider->self, NULL, 0, NULL,
                                                                     0) == UMF_RESULT_SUCCESS;
    polling_lock(lane);
    if (have_completed) {
        pass(lane, freed);
    }
}

static bool is_unmarkable(const umf_lane_t *lane) {
    return lane->kind == UMF_LANE_LOST ||
           (lane->thread && lane->thread != umf_thread_slot_number());
}

static bool has_completed(const umf_lane_t *lane, uint64_t freed) {
    return atomic_load_explicit(&lane->completed, memory_order_relaxed) >= freed;
}

/* Marks the queue and looks how far it is; twice, because there may have been no room for a mark.
 */
static void look(umf_lane_t *lane) {
    for (int i = 0; i < 2; i++) {
        mark(lane);
        poll(lane);
    }
    if (lane->kind == UMF_LANE_ENDED && lane->mark_count == 0) {
        pass(lane, freed_of(lane));
    }
}

static void update(umf_lane_t *lane, bool waits) {
    uint64_t wanted = freed_of(lane);
    bool goes_on = waits;
    look(lane);
    while (goes_on && !has_completed(lane, wanted) && lane->mark_count) {
        goes_on = await_oldest(lane);
        look(lane);
    }
    if (waits && is_unmarkable(lane) && !has_completed(lane, wanted)) {
        wait_for_all(lane);
    }
}

static bool is_behind(umf_lane_t *lane) {
    return atomic_load_explicit(&lane->completed, memory_order_acquire) < freed_of(lane);
}

void umf_lane_update(umf_lane_t *lane, bool waits) {
    if (!is_behind(lane)) {
        return;
    }
    if (waits) {
        polling_lock(lane);
    } else if (!polling_try_lock(lane)) {
        return;
    }
    update(lane, waits);
    polling_unlock(lane);
}

bool umf_lane_drain(umf_lane_t *lane) {
    polling_lock(lane);
    poll(lane);
    while (lane->mark_count && await_oldest(lane)) {
    }
    polling_unlock(lane);
    return !is_behind(lane);
}

bool umf_lane_has_failed(umf_lane_t *lane) {
    return is_behind(lane) && !lane->is_captured;
}

bool umf_lane_hold(umf_lane_t *lane) {
    polling_lock(lane);
    bool is_open = lane->kind == UMF_LANE_OPEN;
    if (!is_open) {
        polling_unlock(lane);
    }
    return is_open;
}

bool umf_lane_try_hold(umf_lane_t *lane) {
    return polling_try_lock(lane);
}

void umf_lane_release(umf_lane_t *lane) {
    polling_unlock(lane);
}

/* Makes the last mark of the queue, for which there always is room. Blocks that wait for other
 * queues, and those that name this one as another queue, count as a free. false: it could not be
 * made. */
static bool mark_last(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    lane->freed += !umf_list_is_empty(&lane->waiting) || atomic_load(&lane->pins) != 0;
    uint64_t freed = lane->freed;
    umf_unlock(&lane->lock);
    if (marked_of(lane) < freed) {
        mark_behind(lane, freed);
    }
    return marked_of(lane) >= freed;
}

void umf_lane_end(umf_lane_t *lane, bool is_known) {
    polling_lock(lane);
    if (lane->kind == UMF_LANE_OPEN) {
        bool is_marked = is_known && mark_last(lane);
        if (lane->kind == UMF_LANE_OPEN) { /* the mark may have failed */
            lane_close(lane, is_marked ? UMF_LANE_ENDED : UMF_LANE_LOST);
        }
    }
    polling_unlock(lane);
}

/* --- waiting on the device --- */

/* A mark behind that many frees that no thread waits for, as such a mark ends at any moment. NULL:
 * there is none. */
static const umf_lane_mark_t *mark_to_follow(umf_lane_t *lane, uint64_t freed) {
    for (unsigned i = lane->awaited != 0; i < lane->mark_count; i++) {
        if (lane->marks[i].freed >= freed) {
            return &lane->marks[i];
        }
    }
    if (!has_completed(lane, freed) && may_mark(lane)) {
        unsigned before = lane->mark_count;
        mark_behind(lane, freed_of(lane));
        return lane->mark_count > before ? &lane->marks[before] : NULL;
    }
    return NULL;
}

static bool follow(umf_lane_t *lane, umf_queue_t follower, uint64_t freed) {
    umf_memory_provider_handle_t provider = lane->pool->provider;
    const umf_lane_mark_t *mark = mark_to_follow(lane, freed);
    return mark ? provider->ext->queue_follow(provider->self, follower, mark->mark) ==
                      UMF_RESULT_SUCCESS
                : has_completed(lane, freed);
}

umf_lane_block_t *umf_lane_take_behind(umf_lane_t *lane, umf_queue_t follower, uint32_t class,
                                       uint32_t last, size_t alignment) {
    if (!lane->pool->provider->ext->queue_follow || !polling_try_lock(lane)) {
        return NULL;
    }
    umf_lock(&lane->lock);
    umf_lane_block_t *block = umf_lane_take_locked(lane, class, last, alignment, false);
    umf_unlock(&lane->lock);
    if (block && !follow(lane, follower, block->freed)) {
        umf_lock(&lane->lock);
        umf_lane_push_locked(lane, block);
        umf_unlock(&lane->lock);
        block = NULL;
    }
    polling_unlock(lane);
    return block;
}
