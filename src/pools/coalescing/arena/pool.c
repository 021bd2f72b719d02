/* The tables of an arena: blocks, queues, trims, its life. */
#include <umf/capture.h>
#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing/arena/arena.h"
#include "pools/shared/block_ops.h"
#include "pools/shared/kind.h"

/* Arenas have the variable of the other coalescing pools: thread-local memory is scarce. */
static UMF_COLD void *arena_fail(umf_result_t result) {
    return umf_coalescing_fail(result);
}

static umf_result_t arena_last_allocation_error(void *self) {
    return umf_coalescing_last_error(self);
}

static UMF_COLD umf_result_t refuse(const void *self, const void *ptr) {
    return umf_block_refuse(((const umf_arena_t *)self)->params.name, ptr);
}

/* --- allocation ------------------------------------------------------------------------------- */

static void *arena_malloc(void *self, size_t size) {
    umf_arena_request_t request = {0};
    return umf_arena_alloc(self, size, &request);
}

static void *arena_aligned_malloc(void *self, size_t size, size_t alignment) {
    umf_arena_request_t request = {.alignment = alignment};
    return umf_arena_alloc(self, size, &request);
}

/* --- free ------------------------------------------------------------------------------------- */

static umf_segment_t *block_locked(const umf_arena_t *arena, const void *ptr) {
    return ptr ? umf_hash_get(&arena->blocks, (uintptr_t)ptr) : NULL;
}

/* The host has waited for all that use the block, if `queue` is none. */
static umf_result_t put(umf_arena_t *arena, const void *ptr, unsigned queue, bool is_captured) {
    uintptr_t end = 0;
    umf_lock(&arena->lock);
    umf_segment_t *block = block_locked(arena, ptr);
    if (umf_unlikely(block && block->export_id)) {
        block = umf_arena_unshare_locked(arena, block);
    }
    if (umf_likely(block != NULL)) {
        uint64_t count = ++arena->clock;
        end = arena->claimed ? umf_segment_end(block) : 0;
        if (umf_unlikely(block->uses.exact)) {
            umf_arena_unname_locked(arena, block);
        }
        if (queue == UMF_USES_DEVICE && !block->is_last) {
            block->uses = (umf_uses_t){0};
        }
        block->is_last = false;
        if (is_captured) {
            umf_arena_fix_locked(arena, block->base, block->size);
        }
        umf_uses_add(&block->uses, queue, count);
        umf_uses_stamp(&block->uses, count);
        unsigned at = 0, each;
        for (uint64_t same; umf_uses_next(&block->uses, &at, &each, &same);) {
            arena->queues[each].freed = count;
        }
        umf_arena_free_locked(arena, block);
    }
    umf_unlock(&arena->lock);
    if (umf_unlikely(end != 0)) {
        umf_arena_pieces_tell(arena, (uintptr_t)ptr, end);
    }
    return umf_likely(block != NULL) ? UMF_RESULT_SUCCESS : refuse(arena, ptr);
}

static umf_result_t arena_free(void *self, void *ptr) {
    return ptr ? put(self, ptr, UMF_USES_DEVICE, false) : UMF_RESULT_SUCCESS;
}

static umf_result_t arena_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    (void)entry;
    return put(self, ptr, UMF_USES_DEVICE, false);
}

/* --- sizes, and content ----------------------------------------------------------------------- */

static umf_block_room_t usable_size(void *self, const void *ptr, umf_map_entry_t entry) {
    umf_arena_t *arena = self;
    (void)entry;
    umf_lock(&arena->lock);
    const umf_segment_t *block = block_locked(arena, ptr);
    size_t size = block ? block->size : 0;
    umf_unlock(&arena->lock);
    return (umf_block_room_t){.size = size};
}

/* Frees the tail of a block in place. */
static bool shrink(void *self, void *ptr, void *note, size_t old, size_t size) {
    umf_arena_t *arena = self;
    size_t keep = size <= old ? umf_align_up(size, arena->params.granule) : SIZE_MAX;
    (void)note;
    if (keep >= old) {
        return keep == old;
    }
    umf_segments_t *area = umf_arena_area(arena, (uintptr_t)ptr);
    umf_lock(&arena->lock);
    umf_segment_t *block = block_locked(arena, ptr);
    if (block && block->export_id) {
        block = umf_arena_unshare_locked(arena, block);
    }
    bool is_cut = block && umf_segments_reserve(area, 1);
    if (is_cut) {
        umf_segment_cut(area, block, block->base, keep);
        umf_segment_t *tail = block->next;
        umf_arena_pieces_count_locked(arena, block->base, umf_segment_end(tail), false);
        umf_arena_pieces_count_locked(arena, block->base, umf_segment_end(block), true);
        arena->live -= tail->size;
        umf_uses_add(&tail->uses, UMF_USES_DEVICE, ++arena->clock);
        umf_uses_stamp(&tail->uses, arena->clock);
        arena->queues[UMF_USES_DEVICE].freed = arena->clock;
        umf_segment_set(area, tail, UMF_SEGMENT_FREE);
        umf_segment_join(area, tail);
    }
    umf_unlock(&arena->lock);
    return is_cut;
}

static umf_content_t *content(void *self) {
    return &((umf_arena_t *)self)->content;
}

static const umf_block_ops_t arena_blocks = {
    .malloc = arena_malloc,
    .free = arena_free,
    .usable = usable_size,
    .fits = shrink,
    .refuse = refuse,
    .fail = arena_fail,
    .content = content,
};

UMF_BLOCK_OPS(arena)

/* --- queues ----------------------------------------------------------------------------------- */

static bool has_queues(void *self) {
    const umf_tracked_ops_t *provider = &((umf_arena_t *)self)->provider;
    return provider->ext->queue_mark && provider->ext->mark_wait;
}

static void *arena_malloc_on(void *self, size_t size, size_t alignment, void *queue) {
    umf_arena_t *arena = self;
    umf_arena_request_t request = {.alignment = alignment};
    umf_result_t result = umf_arena_queue(arena, queue, &request.queue, &request.is_captured);
    if (result != UMF_RESULT_SUCCESS) {
        return arena_fail(result);
    }
    /* A provider must not wait for the device now. */
    bool is_announced = request.is_captured && umfCaptureBegins(queue) == UMF_RESULT_SUCCESS;
    void *ptr = umf_arena_alloc(arena, size, &request);
    if (is_announced) {
        umfCaptureEnds(queue);
    }
    umf_arena_unpin(arena, request.queue);
    return ptr;
}

static void mark_of_thread(umf_arena_t *arena, unsigned index) {
    umf_uses_t uses = {0};
    umf_lock(&arena->lock);
    bool is_of_thread = arena->queues[index].thread != 0;
    umf_uses_add(&uses, index, arena->queues[index].freed);
    umf_unlock(&arena->lock);
    if (is_of_thread) { /* no other thread can mark it later */
        umf_arena_driver_lock(arena);
        umf_arena_look(arena, &uses, true, false);
        umf_arena_driver_unlock(arena);
    }
}

static umf_result_t arena_free_on(void *self, void *ptr, void *queue) {
    umf_arena_t *arena = self;
    unsigned index;
    bool is_captured;
    umf_result_t result = umf_arena_queue(arena, queue, &index, &is_captured);
    if (result == UMF_RESULT_SUCCESS) {
        result = put(arena, ptr, index, is_captured);
        mark_of_thread(arena, index);
        umf_arena_unpin(arena, index);
    }
    return result;
}

/* `is_last`: until its free nothing else uses the block. */
static umf_result_t use_on(umf_arena_t *arena, const void *ptr, void *queue, bool is_last) {
    unsigned index;
    bool is_captured;
    umf_result_t result = umf_arena_queue(arena, queue, &index, &is_captured);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&arena->lock);
    umf_segment_t *block = block_locked(arena, ptr);
    if (block) {
        umf_arena_name_locked(arena, block, index);
        /* Another queue gets the number only when the work queued until now has completed. */
        arena->queues[index].freed = ++arena->clock;
        block->is_last |= is_last;
        if (is_captured) {
            umf_arena_fix_locked(arena, block->base, block->size);
        }
    }
    umf_unlock(&arena->lock);
    umf_arena_unpin(arena, index);
    return block ? result : refuse(arena, ptr);
}

static umf_result_t arena_use_on(void *self, const void *ptr, void *queue) {
    return use_on(self, ptr, queue, false);
}

static umf_result_t arena_last_use_on(void *self, void *ptr, void *queue) {
    return use_on(self, ptr, queue, true);
}

static void arena_queue_ends(void *self, void *queue) {
    umf_arena_t *arena = self;
    bool is_inside = umf_arena_is_inside(arena); /* then this thread has the driver lock */
    if (!is_inside) {
        umf_arena_driver_lock(arena);
    }
    for (unsigned i = 1; i < UMF_USES_QUEUES; i++) {
        umf_lock(&arena->lock);
        const umf_arena_queue_t *at = &arena->queues[i];
        bool is_it = at->state == UMF_ARENA_QUEUE_OPEN && at->handle == queue &&
                     (at->thread == 0 || at->thread == umf_thread_slot_number());
        umf_unlock(&arena->lock);
        if (is_it) {
            umf_arena_queue_ends(arena, i);
        }
    }
    if (!is_inside) {
        umf_arena_driver_unlock(arena);
    }
}

static umf_result_t arena_check_queue(void *self, void *queue) {
    unsigned index;
    bool is_captured;
    umf_result_t result = umf_arena_queue(self, queue, &index, &is_captured);
    if (result == UMF_RESULT_SUCCESS) {
        umf_arena_unpin(self, index);
    }
    return result;
}

static const umf_pool_queue_ops_t arena_queue_ops = {
    .check = arena_check_queue,
    .has_queues = has_queues,
    .malloc_on = arena_malloc_on,
    .free_on = arena_free_on,
    .use_on = arena_use_on,
    .last_use_on = arena_last_use_on,
    .queue_ends = arena_queue_ends,
    .pending = umf_arena_pending,
};

static size_t arena_alloc_count(void *self) {
    umf_arena_t *arena = self;
    umf_lock(&arena->lock);
    size_t count = arena->blocks.count;
    umf_unlock(&arena->lock);
    return count;
}

/* --- life ------------------------------------------------------------------------------------- */

static umf_result_t areas_init(umf_arena_t *arena) {
    size_t unit = arena->unit;
    size_t little = umf_align_down(arena->size / 16, unit), large = arena->size - little;
    uintptr_t base = (uintptr_t)arena->base;
    arena->small_base = base + large;
    bool is_made = little >= unit &&
                   umf_segments_init(&arena->areas[UMF_ARENA_LARGE], base, large) &&
                   umf_segments_init(&arena->areas[UMF_ARENA_LITTLE], arena->small_base, little);
    if (!is_made) {
        UMF_LOG_ERROR("an arena of %zu bytes of addresses with pages of %zu bytes cannot be made: "
                      "set a larger arena_size",
                      arena->size, unit);
    }
    return is_made ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* Pages are multiples of the provider's, and addresses of the unit. */
static umf_result_t range_init(umf_arena_t *arena) {
    size_t granularity, size = arena->params.arena_size, unit = arena->params.arena_page;
    umf_result_t result =
        umf_tracked_range_reserve(arena->tracked, &size, &granularity, &arena->base);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    arena->unit = unit > granularity ? unit : granularity;
    arena->size = umf_align_down(size, arena->unit);
    return areas_init(arena);
}

static void arena_dispose(umf_arena_t *arena) {
    umf_meta_free(arena->pieces, arena->piece_room * sizeof(*arena->pieces));
    umf_arena_queues_free(arena);
    umf_segments_fini(&arena->areas[UMF_ARENA_LARGE]);
    umf_segments_fini(&arena->areas[UMF_ARENA_LITTLE]);
    umf_hash_fini(&arena->blocks);
    umf_hash_fini(&arena->slots);
    umf_lock_destroy(&arena->lock);
    umf_tracked_release(arena->tracked);
    umf_meta_free(arena, sizeof(*arena));
}

static umf_result_t arena_build(umf_arena_t *arena) {
    if (!umf_tracked_has_ranges(arena->tracked)) {
        UMF_LOG_ERROR("an arena needs a provider whose pages can be mapped anywhere, as cuda_vmm "
                      "and linux_vmm: use one of these, or arena=no");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    arena->provider = umf_tracked_ops(arena->tracked);
    umf_coalescing_choose_granule(&arena->params, arena->tracked);
    umf_content_init(&arena->content, arena->tracked);
    return range_init(arena);
}

static umf_result_t arena_initialize(umf_memory_provider_handle_t provider, const void *params,
                                     void **out) {
    if (!provider || !out) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_arena_t *arena = umf_meta_alloc(sizeof(*arena));
    if (!arena) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    arena->params = *(const umf_coalescing_pool_params_t *)params;
    umf_result_t result = umf_tracked_acquire(provider, &arena->tracked);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(arena, sizeof(*arena));
        return result;
    }
    umf_lock_init(&arena->lock, UMF_RANK_ARENA);
    arena->stale_end = &arena->stale;
    arena->queues[UMF_USES_DEVICE].state = UMF_ARENA_QUEUE_OPEN;
    result = arena_build(arena);
    if (result != UMF_RESULT_SUCCESS) {
        if (arena->base) {
            umf_tracked_range_release(arena->tracked, arena->base);
        }
        arena_dispose(arena);
        return result;
    }
    *out = arena;
    return UMF_RESULT_SUCCESS;
}

/* Work that cannot be waited for, as of a capture, may use the memory: then it stays mapped. */
static bool is_at_rest(umf_arena_t *arena) {
    umf_uses_t device = {0};
    umf_lock(&arena->lock);
    umf_uses_add(&device, UMF_USES_DEVICE, ++arena->clock);
    arena->queues[UMF_USES_DEVICE].freed = arena->clock;
    umf_unlock(&arena->lock);
    umf_arena_look(arena, &device, true, true);
    umf_lock(&arena->lock);
    bool is_idle = umf_arena_is_idle_locked(arena, &device);
    for (unsigned i = 0; i < UMF_USES_QUEUES && is_idle; i++) {
        arena->queues[i].passed = UINT64_MAX;
    }
    umf_unlock(&arena->lock);
    return is_idle;
}

static umf_result_t arena_finalize(void *self) {
    umf_arena_t *arena = self;
    umf_result_t result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    umf_arena_driver_lock(arena);
    umf_arena_unshare(arena, (uintptr_t)arena->base, arena->size);
    if (is_at_rest(arena)) {
        umf_arena_queues_fini(arena);
        umf_arena_tell_all(arena);
        umf_arena_pieces_fini(arena);
        result = umf_arena_unmap_all(arena);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_tracked_range_release(arena->tracked, arena->base);
    } else {
        UMF_LOG_WARN("memory of an arena that is destroyed stays with the process, because work "
                     "that may use it could not be waited for, or it could not be unmapped");
    }
    arena_dispose(arena);
    return result;
}

/* --- tables ----------------------------------------------------------------------------------- */

UMF_POOL_GET_NAME(arena, umf_arena_t, params.name, umf_coalescing_pool_params)

static const umf_memory_pool_ops_t arena_ops = {
    UMF_POOL_OPS(arena),
    .get_name = arena_get_name,
    .ext_ctl = umf_arena_ctl,
    .ext_trim_memory = umf_arena_trim,
};

static const umf_view_kind_t arena_view = {
    .name = "coalescing",
    .how = UMF_VIEW_SUMS,
    .sums =
        {
            .held = offsetof(umf_arena_t, held),
            .live = offsetof(umf_arena_t, live),
            .blocks = offsetof(umf_arena_t, blocks.count),
            .spare = offsetof(umf_arena_t, spare_bytes),
            .stale = offsetof(umf_arena_t, stale_bytes),
            .moved = offsetof(umf_arena_t, donated),
        },
};

static const umf_pool_fast_ops_t arena_fast_ops = {
    .queued = &arena_queue_ops,
    .share = umf_arena_share,
    .get_handle = umf_arena_get_handle,
    .pieces = &umf_arena_pieces,
    .free_at = arena_free_at,
    .usable_size_at = arena_usable_size_at,
    .tick = umf_arena_tick,
    .recorded = umf_arena_recorded,
    .alloc_count = arena_alloc_count,
    .walk = umf_arena_walk,
    .view = &arena_view,
};

const umf_pool_variant_t umf_arena_variant = {&arena_ops, &arena_fast_ops};
