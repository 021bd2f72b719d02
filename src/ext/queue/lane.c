/* Lanes: the blocks of one queue. */
#include "ext/queue/lane.h"

#include "base/meta.h"

void umf_lane_init(umf_lane_t *lane, umf_memory_pool_handle_t pool) {
    umf_lock_init(&lane->lock, UMF_RANK_LANE);
    lane->pool = pool;
    umf_list_init(&lane->oldest);
    umf_list_init(&lane->waiting);
    umf_list_init(&lane->uses);
    for (uint32_t class = 0; class < UMF_LANE_CLASSES; class ++) {
        umf_list_init(&lane->bins[class]);
    }
}

static void uses_delete(umf_lane_block_t *block) {
    for (umf_lane_use_t *use = block->uses, *next; use; use = next) {
        next = use->next;
        atomic_fetch_sub_explicit(&use->lane->pins, 1, memory_order_relaxed);
        umf_meta_free(use, sizeof(*use));
    }
    block->uses = NULL;
}

void umf_lane_block_delete(umf_lane_block_t *block) {
    uses_delete(block);
    umf_meta_free(block, sizeof(*block));
}

static void delete_one(uint64_t key, void *block, void *arg) {
    (void)key, (void)arg;
    umf_lane_block_delete(block);
}

void umf_lane_fini(umf_lane_t *lane) {
    umf_hash_each(&lane->blocks, delete_one, NULL);
    umf_hash_fini(&lane->blocks);
    umf_lock_destroy(&lane->lock);
}

bool umf_lane_add_locked(umf_lane_t *lane, umf_lane_block_t *block) {
    umf_assert_locked(&lane->lock);
    bool is_put = umf_hash_put(&lane->blocks, block->addr, block);
    lane->bytes += is_put ? block->size : 0;
    return is_put;
}

void umf_lane_remove_locked(umf_lane_t *lane, umf_lane_block_t *block) {
    umf_assert_locked(&lane->lock);
    umf_hash_remove(&lane->blocks, block->addr);
    lane->bytes -= block->size;
}

bool umf_lane_adopt(umf_lane_t *lane, umf_lane_block_t *block) {
    umf_lock(&lane->lock);
    bool is_put = umf_lane_add_locked(lane, block);
    umf_unlock(&lane->lock);
    return is_put;
}

/* --- freed blocks --- */

void umf_lane_leave_locked(umf_lane_t *lane, umf_lane_block_t *block) {
    umf_assert_locked(&lane->lock);
    block->state = UMF_LANE_LEAVING;
    block->freed = ++lane->freed;
    lane->free_bytes += block->size;
    umf_list_init(&block->bin);
    umf_list_add_tail(&lane->oldest, &block->age);
}

void umf_lane_wait_locked(umf_lane_t *lane, umf_lane_block_t *block, size_t uses) {
    umf_assert_locked(&lane->lock);
    block->state = UMF_LANE_WAITING;
    block->lane = lane;
    atomic_store_explicit(&block->uses_left, uses, memory_order_relaxed);
    lane->free_bytes += block->size;
    lane->waiting_bytes += block->size;
    umf_list_init(&block->bin);
    umf_list_add_tail(&lane->waiting, &block->age);
}

/* The oldest is the first whose work has completed. */
static umf_lane_block_t *oldest_locked(umf_lane_t *lane, uint32_t class) {
    return umf_list_is_empty(&lane->bins[class])
               ? NULL
               : UMF_CONTAINER_OF(lane->bins[class].prev, umf_lane_block_t, bin);
}

umf_lane_block_t *umf_lane_take_locked(umf_lane_t *lane, uint32_t class, uint32_t last,
                                       size_t alignment, bool is_completed) {
    uint64_t completed = atomic_load_explicit(&lane->completed, memory_order_relaxed);
    umf_assert_locked(&lane->lock);
    for (; class <= last && class < UMF_LANE_CLASSES; class ++) {
        umf_lane_block_t *block =
            is_completed ? oldest_locked(lane, class) : umf_lane_newest_locked(lane, class);
        if (block && (!is_completed || block->freed <= completed) &&
            (alignment == 0 || block->addr % alignment == 0)) {
            umf_lane_pull_locked(lane, block);
            return block;
        }
    }
    return NULL;
}

/* --- blocks that other queues use, too --- */

void umf_lane_await(umf_lane_block_t *block) {
    for (umf_lane_use_t *use = block->uses, *next; use; use = next) {
        umf_lane_t *lane = use->lane;
        next = use->next; /* once the last use is listed the block may go */
        umf_lock(&lane->lock);
        use->freed = ++lane->freed;
        umf_list_add_tail(&lane->uses, &use->link);
        umf_unlock(&lane->lock);
    }
}

bool umf_lane_is_waiting(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    bool is_waiting = !umf_list_is_empty(&lane->waiting);
    umf_unlock(&lane->lock);
    return is_waiting;
}

static void settle_locked(umf_lane_t *lane, umf_lane_block_t *block) {
    umf_lane_pull_locked(lane, block);
    lane->waiting_bytes -= block->size;
    uses_delete(block);
    if (block->is_leaving) {
        umf_lane_leave_locked(lane, block);
    } else {
        umf_lane_push_locked(lane, block);
    }
}

/* Takes the uses out of the lane that have completed. Those that were the last of their block go
 * into the list. */
static void uses_pass(umf_lane_t *lane, umf_list_t *last) {
    uint64_t completed = atomic_load_explicit(&lane->completed, memory_order_acquire);
    umf_lock(&lane->lock);
    for (umf_list_t *at = lane->uses.next, *next; at != &lane->uses; at = next) {
        umf_lane_use_t *use = UMF_CONTAINER_OF(at, umf_lane_use_t, link);
        next = at->next;
        if (use->freed > completed) {
            break; /* so have all behind it */
        }
        umf_list_remove(at);
        if (atomic_fetch_sub(&use->block->uses_left, 1) == 1) {
            umf_list_add_tail(last, at);
        }
    }
    umf_unlock(&lane->lock);
}

void umf_lane_settle(umf_lane_t *lane) {
    umf_list_t last;
    umf_list_init(&last);
    uses_pass(lane, &last);
    while (!umf_list_is_empty(&last)) {
        umf_lane_block_t *block = UMF_CONTAINER_OF(last.next, umf_lane_use_t, link)->block;
        umf_lane_t *home = block->lane;
        umf_list_remove(last.next);
        umf_lock(&home->lock);
        settle_locked(home, block);
        umf_unlock(&home->lock);
    }
}

void umf_lane_settle_all(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    while (!umf_list_is_empty(&lane->waiting)) {
        settle_locked(lane, UMF_CONTAINER_OF(lane->waiting.next, umf_lane_block_t, age));
    }
    umf_unlock(&lane->lock);
}

/* --- back to the pool --- */

static void collect_locked(umf_lane_t *lane, umf_lane_block_t *block, umf_list_t *completed) {
    umf_lane_pull_locked(lane, block);
    umf_lane_remove_locked(lane, block);
    umf_list_add_tail(completed, &block->age);
}

void umf_lane_collect(umf_lane_t *lane, uint64_t freed, umf_list_t *completed) {
    uint64_t now = atomic_load_explicit(&lane->completed, memory_order_acquire);
    uint64_t limit = freed < now ? freed : now;
    umf_lock(&lane->lock);
    while (!umf_list_is_empty(&lane->oldest)) {
        umf_lane_block_t *block = UMF_CONTAINER_OF(lane->oldest.next, umf_lane_block_t, age);
        if (block->freed > limit) {
            break;
        }
        collect_locked(lane, block, completed);
    }
    umf_unlock(&lane->lock);
}

/* The next class from this one on that has something in its bin; UMF_LANE_CLASSES: none has. */
static uint32_t next_filled_locked(const umf_lane_t *lane, uint32_t class) {
    while (class < UMF_LANE_CLASSES && !umf_lane_has_filled(lane, class)) {
        bool is_word_empty = lane->filled[class / 64] >> class % 64 == 0;
        class += is_word_empty ? 64 - class % 64 : 1;
    }
    return class < UMF_LANE_CLASSES ? class : UMF_LANE_CLASSES;
}

void umf_lane_collect_large(umf_lane_t *lane, size_t size, umf_list_t *completed) {
    uint64_t now = atomic_load_explicit(&lane->completed, memory_order_acquire);
    umf_lock(&lane->lock);
    for (uint32_t class = umf_lane_class(size);
         (class = next_filled_locked(lane, class)) < UMF_LANE_CLASSES; class ++) {
        umf_lane_block_t *block;
        while ((block = oldest_locked(lane, class)) && block->freed <= now) {
            collect_locked(lane, block, completed);
        }
    }
    umf_unlock(&lane->lock);
}

size_t umf_lane_pending(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    size_t bytes = lane->waiting_bytes;
    uint64_t completed = atomic_load_explicit(&lane->completed, memory_order_relaxed);
    for (umf_list_t *at = lane->oldest.prev; at != &lane->oldest; at = at->prev) {
        const umf_lane_block_t *block = UMF_CONTAINER_OF(at, umf_lane_block_t, age);
        if (block->freed <= completed) {
            break;
        }
        bytes += block->size;
    }
    umf_unlock(&lane->lock);
    return bytes;
}

bool umf_lane_is_pending(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    uint64_t completed = atomic_load_explicit(&lane->completed, memory_order_relaxed);
    bool is_pending =
        lane->waiting_bytes ||
        (!umf_list_is_empty(&lane->oldest) &&
         UMF_CONTAINER_OF(lane->oldest.prev, umf_lane_block_t, age)->freed > completed);
    umf_unlock(&lane->lock);
    return is_pending;
}

void umf_lane_lock_both(umf_lane_t *a, umf_lane_t *b) {
    bool is_before = a->lock.order < b->lock.order;
    umf_lock(is_before ? &a->lock : &b->lock);
    umf_lock(is_before ? &b->lock : &a->lock);
}
