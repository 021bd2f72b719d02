/* Lanes: the blocks of one queue. */
#include "queue/lane.h"

#include "base/meta.h"

void umf_lane_init(umf_lane_t *lane, umf_memory_pool_handle_t pool) {
    umf_lock_init(&lane->lock, UMF_RANK_LANE);
    lane->pool = pool;
    umf_list_init(&lane->oldest);
    umf_list_init(&lane->waiting);
    for (uint32_t class = 0; class < UMF_LANE_CLASSES; class ++) {
        umf_list_init(&lane->bins[class]);
    }
}

void umf_lane_block_delete(umf_lane_block_t *block) {
    for (umf_lane_use_t *use = block->uses, *next; use; use = next) {
        next = use->next;
        atomic_fetch_sub_explicit(&use->lane->pins, 1, memory_order_relaxed);
        umf_meta_free(use, sizeof(*use));
    }
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

void umf_lane_wait_locked(umf_lane_t *lane, umf_lane_block_t *block) {
    umf_assert_locked(&lane->lock);
    block->state = UMF_LANE_WAITING;
    lane->free_bytes += block->size;
    umf_list_init(&block->bin);
    umf_list_add_tail(&lane->waiting, &block->age);
}

/* The oldest is the first whose work has passed. */
static umf_lane_block_t *oldest_locked(umf_lane_t *lane, uint32_t class) {
    return umf_list_is_empty(&lane->bins[class])
               ? NULL
               : UMF_CONTAINER_OF(lane->bins[class].prev, umf_lane_block_t, bin);
}

umf_lane_block_t *umf_lane_take_locked(umf_lane_t *lane, uint32_t class, uint32_t last,
                                       size_t alignment, bool is_passed) {
    uint64_t passed = atomic_load_explicit(&lane->passed, memory_order_relaxed);
    umf_assert_locked(&lane->lock);
    for (; class <= last && class < UMF_LANE_CLASSES; class ++) {
        umf_lane_block_t *block =
            is_passed ? oldest_locked(lane, class) : umf_lane_newest_locked(lane, class);
        if (block && (!is_passed || block->freed <= passed) &&
            (alignment == 0 || block->addr % alignment == 0)) {
            umf_lane_pull_locked(lane, block);
            return block;
        }
    }
    return NULL;
}

/* --- blocks that other queues use, too --- */

static bool has_passed(umf_lane_block_t *block) {
    while (block->uses) {
        umf_lane_use_t *use = block->uses;
        if (atomic_load_explicit(&use->lane->passed, memory_order_acquire) < use->freed) {
            return false;
        }
        block->uses = use->next;
        atomic_fetch_sub_explicit(&use->lane->pins, 1, memory_order_relaxed);
        umf_meta_free(use, sizeof(*use));
    }
    return true;
}

bool umf_lane_is_waiting(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    bool is_waiting = !umf_list_is_empty(&lane->waiting);
    umf_unlock(&lane->lock);
    return is_waiting;
}

static void settle_locked(umf_lane_t *lane, umf_lane_block_t *block, bool is_leaving) {
    umf_lane_pull_locked(lane, block);
    if (is_leaving) {
        umf_lane_leave_locked(lane, block);
    } else {
        umf_lane_push_locked(lane, block);
    }
}

void umf_lane_settle(umf_lane_t *lane) {
    umf_lock(&lane->lock);
    for (umf_list_t *at = lane->waiting.next, *next; at != &lane->waiting; at = next) {
        umf_lane_block_t *block = UMF_CONTAINER_OF(at, umf_lane_block_t, age);
        next = at->next;
        if (has_passed(block)) {
            settle_locked(lane, block, block->is_leaving);
        }
    }
    umf_unlock(&lane->lock);
}

/* --- back to the pool --- */

void umf_lane_collect(umf_lane_t *lane, uint64_t freed, size_t size, umf_list_t *passed) {
    uint64_t now = atomic_load_explicit(&lane->passed, memory_order_acquire);
    uint64_t limit = freed < now ? freed : now;
    umf_lock(&lane->lock);
    for (umf_list_t *at = lane->oldest.next, *next; at != &lane->oldest; at = next) {
        umf_lane_block_t *block = UMF_CONTAINER_OF(at, umf_lane_block_t, age);
        next = at->next;
        if (block->freed > limit) {
            break;
        }
        if (block->size >= size) {
            umf_lane_pull_locked(lane, block);
            umf_lane_remove_locked(lane, block);
            umf_list_add_tail(passed, &block->age);
        }
    }
    umf_unlock(&lane->lock);
}

size_t umf_lane_pending(umf_lane_t *lane) {
    size_t bytes = 0;
    umf_lock(&lane->lock);
    uint64_t passed = atomic_load_explicit(&lane->passed, memory_order_relaxed);
    for (umf_list_t *at = lane->oldest.prev; at != &lane->oldest; at = at->prev) {
        const umf_lane_block_t *block = UMF_CONTAINER_OF(at, umf_lane_block_t, age);
        if (block->freed <= passed) {
            break;
        }
        bytes += block->size;
    }
    for (umf_list_t *at = lane->waiting.next; at != &lane->waiting; at = at->next) {
        bytes += UMF_CONTAINER_OF(at, umf_lane_block_t, age)->size;
    }
    umf_unlock(&lane->lock);
    return bytes;
}
