/* Queues: allocation. */
#include <umf/queue.h>

#include "base/log.h"
#include "ext/queue/lanes.h"
#include "object/recorded.h"

/* From this size on the memory matters more than the time: blocks that others have freed are used
 * before the pool grows. */
#define LARGE ((size_t)1 << 20)
/* A large block may be larger than wanted by as many classes: by an eighth. */
#define LARGE_CLASSES 2u

/* What an allocation wants. */
typedef struct want_t {
    size_t size;
    size_t alignment;
    uint32_t class, last; /* the classes of blocks that fit */
    umf_queue_t queue;
} want_t;

static umf_lane_block_t *take_own(umf_lanes_t *lanes, umf_lane_t *lane, const want_t *want) {
    if (umf_lane_is_waiting(lane)) {
        umf_lanes_update(lanes, false);
    }
    umf_lock(&lane->lock);
    umf_lane_block_t *block =
        umf_lane_take_locked(lane, want->class, want->last, want->alignment, false);
    umf_unlock(&lane->lock);
    return block;
}

/* Takes the record of a block out of the lane that has it. */
static void disown(umf_lane_t *lane, umf_lane_block_t *block) {
    umf_lock(&lane->lock);
    umf_lane_remove_locked(lane, block);
    umf_unlock(&lane->lock);
}

/* Has the lane free blocks of such sizes? A hint. */
static bool has_some(umf_lane_t *lane, const want_t *want) {
    bool has = false;
    umf_lock(&lane->lock);
    for (uint32_t class = want->class; class <= want->last && !has; class ++) {
        has = class < UMF_LANE_CLASSES && umf_lane_has_filled(lane, class);
    }
    umf_unlock(&lane->lock);
    return has;
}

static umf_lane_block_t *take_completed_of(umf_lane_t *lane, const want_t *want) {
    umf_lane_update(lane, false);
    umf_lock(&lane->lock);
    umf_lane_block_t *block =
        umf_lane_take_locked(lane, want->class, want->last, want->alignment, true);
    if (block) {
        umf_lane_remove_locked(lane, block);
    }
    umf_unlock(&lane->lock);
    return block;
}

/* Blocks freed on other queues, whose work has completed. */
static umf_lane_block_t *take_completed(umf_lanes_t *lanes, const umf_lane_t *own,
                                        const want_t *want) {
    umf_lane_block_t *block = NULL;
    UMF_LANES_EACH(lanes, lane) {
        if (!block && lane != own && has_some(lane, want)) {
            block = take_completed_of(lane, want);
        }
    }
    return block;
}

/* Blocks freed on other queues; this queue waits for them on the device. */
static umf_lane_block_t *take_behind(umf_lanes_t *lanes, const umf_lane_t *own,
                                     const want_t *want) {
    umf_lane_block_t *block = NULL;
    UMF_LANES_EACH(lanes, lane) {
        if (!block && lane != own && has_some(lane, want)) {
            block =
                umf_lane_take_behind(lane, want->queue, want->class, want->last, want->alignment);
            if (block) {
                disown(lane, block);
            }
        }
    }
    return block;
}

static void *pool_malloc(umf_memory_pool_handle_t pool, size_t size, size_t alignment) {
    return alignment ? umfPoolAlignedMalloc(pool, size, alignment) : umfPoolMalloc(pool, size);
}

static umf_lane_block_t *take_new(umf_lanes_t *lanes, const want_t *want) {
    void *ptr = pool_malloc(lanes->pool, want->size, want->alignment);
    if (!ptr) {
        return NULL;
    }
    umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
    umf_lane_block_t *block = umf_lanes_record(lanes, ptr, span, want->class, want->size);
    if (!block) {
        umf_pool_free_at(lanes->pool, ptr);
    }
    return block;
}

/* Large blocks of any lane whose work has completed go back to the pool, where they merge. */
static void merge_completed(umf_lanes_t *lanes) {
    umf_lanes_update(lanes, false);
    umf_lanes_give_back(lanes, LARGE);
}

/* Would the pool grow although more than a quarter of the bytes in use was freed, and only device
 * work keeps them? Free bytes of the pool = held bytes minus bytes of all lanes (exact if the pool
 * is used on queues only). */
static bool must_wait(umf_lanes_t *lanes, const want_t *want) {
    size_t bytes = 0, free_bytes = 0, held = umf_tracked_bytes(lanes->pool->tracked);
    UMF_LANES_EACH(lanes, lane) {
        umf_lock(&lane->lock);
        bytes += lane->bytes;
        free_bytes += lane->free_bytes;
        umf_unlock(&lane->lock);
    }
    return free_bytes > (bytes - free_bytes) / 4 && held < bytes + want->size;
}

static umf_lane_block_t *take_large(umf_lanes_t *lanes, const umf_lane_t *own, const want_t *want) {
    merge_completed(lanes);
    umf_lane_block_t *block = take_behind(lanes, own, want);
    if (!block && must_wait(lanes, want)) {
        umf_lanes_update(lanes, true);
        umf_lanes_give_back(lanes, LARGE);
    }
    return block ? block : take_new(lanes, want);
}

/* In-tree pools have reclaimed already (reclaim/reclaim.h); user pools have not. */
static umf_lane_block_t *take_last(umf_lanes_t *lanes, const umf_lane_t *own, const want_t *want) {
    umf_lane_block_t *block = take_behind(lanes, own, want);
    if (!block && !lanes->pool->fast) {
        umf_lanes_update(lanes, true);
        block = umf_lanes_give_back(lanes, 0) ? take_new(lanes, want) : NULL;
    }
    return block;
}

/* The record is in no lane. */
static umf_lane_block_t *take_elsewhere(umf_lanes_t *lanes, const umf_lane_t *own,
                                        const want_t *want) {
    umf_lane_block_t *block = take_completed(lanes, own, want);
    if (!block) {
        block = want->size >= LARGE ? take_large(lanes, own, want) : take_new(lanes, want);
    }
    return block ? block : take_last(lanes, own, want);
}

static void *adopt(umf_lanes_t *lanes, umf_lane_t *lane, umf_lane_block_t *block) {
    void *ptr = (void *)block->addr;
    if (!umf_lane_adopt(lane, block)) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        umf_lanes_forget(lanes, block);
        umf_pool_free_at(lanes->pool, ptr);
        return NULL;
    }
    return ptr;
}

static void *malloc_elsewhere(umf_lanes_t *lanes, umf_lane_t *lane, const want_t *want,
                              bool is_captured) {
    umf_lanes_captured_t captured = umf_lanes_announce(lanes, want->queue, is_captured);
    umf_lane_block_t *block = take_elsewhere(lanes, lane, want);
    umf_lanes_renounce(&captured);
    return block ? adopt(lanes, lane, block) : NULL;
}

static void *malloc_on(umf_lanes_t *lanes, const want_t *want) {
    umf_lane_t *lane;
    bool is_captured;
    if (umf_lanes_find(lanes, want->queue, &lane, &is_captured) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    umf_lane_block_t *block = take_own(lanes, lane, want);
    return block ? (void *)block->addr : malloc_elsewhere(lanes, lane, want, is_captured);
}

static want_t want_of(size_t size, size_t alignment, umf_queue_t queue) {
    uint32_t class = umf_lane_class(size);
    want_t want = {.size = umf_lane_class_size(class), alignment, class, class, queue};
    want.last += want.size >= LARGE ? LARGE_CLASSES : 0;
    return want;
}

static void *malloc_queued(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                           umf_queue_t queue) {
    const umf_pool_queue_ops_t *queued = umf_queued_of(pool);
    if (queued->has_queues(pool->self) && !umf_pool_is_asleep(pool)) {
        return queued->malloc_on(pool->self, size, alignment, queue);
    }
    if (queue && !umf_pool_is_asleep(pool)) {
        umf_lanes_refuse(pool, queue);
        return NULL;
    }
    return pool_malloc(pool, size, alignment);
}

static UMF_COLD void *malloc_slow(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                                  umf_queue_t queue) {
    umf_lanes_t *lanes;
    if (!umf_pool_check(pool, "umfPoolMallocOn")) {
        return NULL;
    }
    if (umf_queued_of(pool)) {
        return malloc_queued(pool, size, alignment, queue);
    }
    umf_result_t result = umf_lanes_get(pool, &lanes);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED && queue) {
        umf_lanes_refuse(pool, queue);
        return NULL;
    }
    bool is_plain = result == UMF_RESULT_ERROR_NOT_SUPPORTED || size == 0 ||
                    umf_lane_class(size) >= UMF_LANE_CLASSES ||
                    (alignment && !umf_is_pow2(alignment)) || umf_pool_is_asleep(pool);
    if (is_plain) {
        return pool_malloc(pool, size, alignment);
    }
    want_t want = want_of(size, alignment, queue);
    return result == UMF_RESULT_SUCCESS ? malloc_on(lanes, &want) : NULL;
}

/* Takes a block that was freed on the queue itself. Hot. */
UMF_INLINE void *malloc_cached(const umf_lanes_cached_t *cached, uint32_t class, size_t alignment) {
    umf_lane_t *lane = cached->lane;
    void *ptr = NULL;
    umf_lock(&lane->lock);
    umf_lane_block_t *block = umf_likely(lane->generation == cached->generation)
                                  ? umf_lane_newest_locked(lane, class)
                                  : NULL;
    uintptr_t low = alignment ? alignment - 1 : 0;
    if (umf_likely(block != NULL) && ((block->addr | alignment) & low) == 0) { /* a power of two */
        umf_lane_pull_locked(lane, block);
        ptr = (void *)block->addr;
    }
    umf_unlock(&lane->lock);
    return ptr;
}

static UMF_COLD void *recorded_malloc(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                                      umf_queue_t queue) {
    uint32_t before = umf_recorded_enter(pool);
    void *ptr = malloc_slow(pool, size, alignment, queue);
    umf_recorded_leave(before);
    return umf_recorded_allocated(pool, ptr, size, queue);
}

UMF_API_EXT_1 void *umfPoolMallocOn(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                                    umf_queue_t queue) {
    if (umf_likely(pool != NULL) && umf_is_recorded(pool)) {
        return recorded_malloc(pool, size, alignment, queue);
    }
    umf_lanes_t *lanes = umf_likely(pool != NULL) ? umf_lanes_of(pool) : NULL;
    if (umf_likely(lanes != NULL) && !umf_pool_is_asleep(pool)) {
        const umf_lanes_cached_t *cached = umf_lanes_cached(lanes, queue);
        uint32_t class = umf_lane_class(size);
        if (umf_likely(umf_lanes_is_cached(cached, queue)) && class < UMF_LANE_CLASSES) {
            void *ptr = malloc_cached(cached, class, alignment);
            if (umf_likely(ptr != NULL)) {
                return ptr;
            }
        }
    }
    return malloc_slow(pool, size, alignment, queue);
}
