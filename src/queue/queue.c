/* Queues: the public functions. */
#include <umf/queue.h>

#include <time.h>

#include "base/log.h"
#include "base/meta.h"
#include "core/reclaim.h"
#include "queue/lanes.h"
#include "system/pause.h"

/* From this size on the memory matters more than the time: what others have freed is used before
 * the pool grows. */
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

static umf_lane_block_t *take_passed_of(umf_lane_t *lane, const want_t *want) {
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

/* What was freed on other queues and whose work has passed. */
static umf_lane_block_t *take_passed(umf_lanes_t *lanes, const umf_lane_t *own,
                                     const want_t *want) {
    umf_lane_block_t *block = NULL;
    UMF_LANES_EACH(lanes, lane) {
        if (!block && lane != own && has_some(lane, want)) {
            block = take_passed_of(lane, want);
        }
    }
    return block;
}

/* What was freed on other queues, which the own one then waits for. */
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
    umf_lane_block_t *block = ptr ? umf_lanes_record(lanes, ptr, want->class, want->size) : NULL;
    if (ptr && !block) {
        umf_pool_free_at(lanes->pool, ptr);
    }
    return block;
}

/* Large blocks of any lane whose work has passed go back to the pool, where they merge. */
static void merge_passed(umf_lanes_t *lanes) {
    umf_lanes_update(lanes, false);
    umf_lanes_give_back(lanes, LARGE);
}

/* Would the pool grow although more than a quarter of what is in use was freed, and only work of
 * the device keeps it? What the pool has free itself is what no lane has, if it is used on queues
 * only. */
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
    merge_passed(lanes);
    umf_lane_block_t *block = take_behind(lanes, own, want);
    if (!block && must_wait(lanes, want)) {
        umf_lanes_update(lanes, true);
        umf_lanes_give_back(lanes, LARGE);
    }
    return block ? block : take_new(lanes, want);
}

/* The pool has asked everybody (core/reclaim.h), unless it is of a user's kind. */
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
    umf_lane_block_t *block = take_passed(lanes, own, want);
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

static void *malloc_on(umf_lanes_t *lanes, const want_t *want) {
    umf_lane_t *lane;
    if (umf_lanes_find(lanes, want->queue, &lane) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    umf_lane_block_t *block = take_own(lanes, lane, want);
    if (block) {
        return (void *)block->addr;
    }
    block = take_elsewhere(lanes, lane, want);
    return block ? adopt(lanes, lane, block) : NULL;
}

static bool is_asleep(umf_memory_pool_handle_t pool) {
    return atomic_load_explicit(&pool->is_asleep, memory_order_relaxed);
}

static want_t want_of(size_t size, size_t alignment, umf_queue_t queue) {
    uint32_t class = umf_lane_class(size);
    want_t want = {.size = umf_lane_class_size(class), alignment, class, class, queue};
    want.last += want.size >= LARGE ? LARGE_CLASSES : 0;
    return want;
}

static umf_result_t refuse_queue(umf_memory_pool_handle_t pool, umf_queue_t queue) {
    UMF_LOG_ERROR("pool %p cannot use queue %p: its provider has no queues, or the pool does not "
                  "track its memory",
                  (void *)pool, queue);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static UMF_COLD void *malloc_slow(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                                  umf_queue_t queue) {
    umf_lanes_t *lanes;
    if (!umf_pool_check(pool, "umfPoolMallocOn")) {
        return NULL;
    }
    umf_result_t result = umf_lanes_get(pool, &lanes);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED && queue) {
        refuse_queue(pool, queue);
        return NULL;
    }
    bool is_plain = result == UMF_RESULT_ERROR_NOT_SUPPORTED || size == 0 ||
                    umf_lane_class(size) >= UMF_LANE_CLASSES ||
                    (alignment && !umf_is_pow2(alignment)) || is_asleep(pool);
    if (is_plain) {
        return pool_malloc(pool, size, alignment);
    }
    want_t want = want_of(size, alignment, queue);
    return result == UMF_RESULT_SUCCESS ? malloc_on(lanes, &want) : NULL;
}

/* Takes what the queue itself has freed. Hot. */
static inline void *malloc_cached(const umf_lanes_cached_t *cached, uint32_t class,
                                  size_t alignment) {
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

UMF_API_EXT_1 void *umfPoolMallocOn(umf_memory_pool_handle_t pool, size_t size, size_t alignment,
                                    umf_queue_t queue) {
    umf_lanes_t *lanes = umf_likely(pool != NULL) ? umf_lanes_of(pool) : NULL;
    if (umf_likely(lanes != NULL) && !is_asleep(pool)) {
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

/* --- free --- */

/* The block's uses on other queues count as frees there. Returns whether there are some. */
static bool begin_uses(umf_lane_block_t *block, const umf_lane_t *own) {
    for (umf_lane_use_t *use = block->uses; use; use = use->next) {
        if (use->lane == own) { /* which the block's own place in the lane stands for */
            use->freed = 0;
            continue;
        }
        umf_lock(&use->lane->lock);
        use->freed = ++use->lane->freed;
        umf_unlock(&use->lane->lock);
    }
    return block->uses != NULL;
}

/* Frees a block in a lane that has its record, and that nobody else frees. */
static umf_result_t free_in(umf_lanes_t *lanes, umf_lane_t *lane, umf_lane_block_t *block) {
    block->is_leaving =
        block->class >= UMF_LANE_CLASSES || umf_lanes_is_exported(lanes, (void *)block->addr);
    bool waits = begin_uses(block, lane);
    umf_lock(&lane->lock);
    bool is_put = umf_lane_add_locked(lane, block);
    if (is_put && waits) {
        umf_lane_wait_locked(lane, block);
    } else if (is_put && block->is_leaving) {
        umf_lane_leave_locked(lane, block);
    } else if (is_put) {
        umf_lane_push_locked(lane, block);
    }
    umf_unlock(&lane->lock);
    if (!is_put) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

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
        return queue ? refuse_queue(pool, queue) : result;
    }
    return result == UMF_RESULT_SUCCESS ? umf_lanes_find(*lanes, queue, lane) : result;
}

static UMF_COLD umf_result_t free_slow(void *ptr, umf_queue_t queue) {
    umf_lanes_t *lanes;
    umf_lane_t *lane;
    umf_lane_block_t *block;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = find_all(ptr, queue, &lanes, &lane);
    if (result != UMF_RESULT_SUCCESS) {
        return result == UMF_RESULT_ERROR_NOT_SUPPORTED && !queue ? umfFree(ptr) : result;
    }
    result = umf_lanes_take(lanes, ptr, &block);
    return result == UMF_RESULT_SUCCESS ? free_in(lanes, lane, block) : result;
}

/* Frees a block that was allocated on the same queue and is used there only. Hot. */
static inline bool free_cached(const umf_lanes_cached_t *cached, const void *ptr) {
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

static void add_use(umf_lane_block_t *block, umf_lane_t *lane, umf_lane_use_t *use) {
    atomic_fetch_add_explicit(&lane->pins, 1, memory_order_relaxed);
    *use = (umf_lane_use_t){.lane = lane, .next = block->uses};
    block->uses = use;
}

static bool is_named(const umf_lane_block_t *block, const umf_lane_t *lane) {
    const umf_lane_use_t *use = block->uses;
    while (use && use->lane != lane) {
        use = use->next;
    }
    return use != NULL;
}

UMF_API_EXT_1 umf_result_t umfUseOn(const void *ptr, umf_queue_t queue) {
    umf_lanes_t *lanes;
    umf_lane_t *lane;
    umf_lane_block_t *block;
    umf_result_t result = find_all(ptr, queue, &lanes, &lane);
    if (result != UMF_RESULT_SUCCESS) {
        return result == UMF_RESULT_ERROR_NOT_SUPPORTED && !queue ? UMF_RESULT_SUCCESS : result;
    }
    umf_lane_use_t *use = umf_meta_alloc(sizeof(*use));
    if (!use) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = umf_lanes_take(lanes, (void *)(uintptr_t)ptr, &block);
    bool is_new = result == UMF_RESULT_SUCCESS && !is_named(block, lane);
    if (is_new) {
        add_use(block, lane, use);
    } else {
        umf_meta_free(use, sizeof(*use));
    }
    if (result == UMF_RESULT_SUCCESS && !umf_lane_adopt(lane, block)) {
        umf_lanes_forget(lanes, block);
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return result;
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

static umf_result_t trim_lane(umf_memory_pool_handle_t pool, umf_queue_t queue) {
    umf_lanes_t *lanes;
    umf_lane_t *lane;
    umf_result_t result = umf_lanes_get(pool, &lanes);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return queue ? refuse_queue(pool, queue) : UMF_RESULT_SUCCESS;
    }
    result = result == UMF_RESULT_SUCCESS ? umf_lanes_find(lanes, queue, &lane) : result;
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&lane->lock);
        lane->trimmed = lane->freed;
        umf_unlock(&lane->lock);
    }
    return result;
}

UMF_API_EXT_1 umf_result_t umfPoolTrimOn(umf_memory_pool_handle_t pool, size_t keep,
                                         umf_queue_t queue) {
    if (!umf_pool_check(pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = trim_lane(pool, queue);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_pool_trim(pool, keep, false);
        umf_provider_drop_reusable(pool->provider, false);
    }
    return result;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* What still waits after a look, or after all that can be waited for has been. */
static size_t look(umf_memory_pool_handle_t pool, bool waits) {
    umf_lanes_t *lanes = umf_lanes_of(pool);
    const umf_memory_provider_ext_ops_t *ext = pool->provider->ext;
    size_t left = 0, bytes = 0; /* of the provider, of the pool */
    if (lanes) {
        umf_lanes_update(lanes, waits);
        umf_lanes_update(lanes, waits); /* what waited for other queues */
        bytes = umf_lanes_pending(lanes);
    }
    if (ext->free_pending) {
        ext->free_pending(pool->provider->self, waits, &left);
    }
    return bytes + left;
}

UMF_API_EXT_1 umf_result_t umfPoolWaitPending(umf_memory_pool_handle_t pool, uint64_t timeout_ns,
                                              size_t *bytes) {
    if (!umf_pool_check(pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    bool waits = timeout_ns == UINT64_MAX;
    uint64_t begin = waits ? 0 : now_ns();
    size_t left = look(pool, waits);
    for (unsigned round = 0; left && !waits && now_ns() - begin < timeout_ns; round++) {
        umf_pause(round);
        left = look(pool, false);
    }
    if (bytes) {
        *bytes = left;
    }
    return left ? UMF_RESULT_ERROR_OUT_OF_RESOURCES : UMF_RESULT_SUCCESS;
}
