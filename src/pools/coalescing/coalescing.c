/*
 * The coalescing pool: best fit with splitting and immediate coalescing (ds/range.h) over large
 * spans of the provider. All bookkeeping is out of line.
 *
 * Threads that contend go to different shards (pools/coalescing/shards.h). A request that does not
 * fit in the thread's own shard is tried in the others, then the pool grows by a span
 * (pools/coalescing/request.h).
 *
 * There are no magazines in front: a block in a thread's stack neither coalesces nor serves another
 * size, which is the purpose of this pool. A block that a thread frees and allocates again is still
 * served without a lock (pools/coalescing/reuse.h). A thread that frees many small blocks does keep
 * them in magazines (pools/coalescing/kept.h): they join as soon as a larger request needs it.
 *
 * A span is taken out of the range before it goes to the provider, and is added after it came from
 * there. The provider is called without a lock.
 */

#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing/arena/arena.h"
#include "pools/coalescing/release.h"
#include "pools/coalescing/request.h"
#include "pools/shared/block_ops.h"
#include "pools/shared/kind.h"

#define PAGE_MAX (SIZE_MAX / 16)

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_shard_t shard_t;

UMF_BLOCK_ERRORS(coalescing)

void *umf_coalescing_fail(umf_result_t result) {
    return coalescing_fail(result);
}

umf_result_t umf_coalescing_last_error(void *pool) {
    return coalescing_last_allocation_error(pool);
}

static UMF_COLD umf_result_t refuse(const void *pool, const void *ptr) {
    return umf_block_refuse(((const coalescing_pool_t *)pool)->params.name, ptr);
}

/* --- allocation ------------------------------------------------------------------------------- */

/* By value: a request in memory would give its caller, which is hot, a stack frame to protect. */
static __attribute__((noinline)) void *alloc_locked(coalescing_pool_t *pool, size_t size,
                                                    size_t alignment) {
    const umf_coalescing_request_t request = {.size = size, .alignment = alignment};
    void *ptr = NULL;
    umf_coalescing_thread_t *thread = umf_coalescing_thread(pool);
    if (umf_unlikely(thread->has_kept) && size > UMF_KEPT_SIZE_MAX) {
        umf_coalescing_reuse_join(pool, thread);
    }
    shard_t *shard = umf_coalescing_shard_lock(pool, thread);
    umf_result_t result = umf_coalescing_take_and_unlock(pool, shard, &request, &ptr);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        return ptr;
    }
    return result == UMF_RESULT_ERROR_OUT_OF_RESOURCES ? umf_coalescing_serve(pool, shard, &request)
                                                       : coalescing_fail(result);
}

static inline void *alloc(coalescing_pool_t *pool, size_t size, size_t alignment) {
    size_t bytes;
    if (umf_unlikely(!umf_add(size ? size : 1, pool->params.granule - 1, &bytes))) {
        return coalescing_fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    bytes = umf_align_down(bytes, pool->params.granule);
    /* A reserved block is known to be aligned to the granule only. */
    void *ptr = alignment == pool->params.granule ? umf_coalescing_reuse_take(pool, bytes) : NULL;
    return ptr ? ptr : alloc_locked(pool, bytes, alignment);
}

static void *coalescing_malloc(void *self, size_t size) {
    coalescing_pool_t *pool = self;
    return alloc(pool, size, pool->params.granule);
}

static void *coalescing_aligned_malloc(void *self, size_t size, size_t alignment) {
    coalescing_pool_t *pool = self;
    if (alignment != 0 && !umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("pool %s: alignment %zu is not a power of two", pool->params.name, alignment);
        return coalescing_fail(UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    }
    return alloc(pool, size, alignment > pool->params.granule ? alignment : pool->params.granule);
}

static inline bool is_isolated(const shard_t *shard, const void *ptr) {
    return umf_unlikely(!umf_list_is_empty(&shard->part.isolated)) &&
           umf_purge_has_isolated(&shard->part, (uintptr_t)ptr);
}

/* --- free ------------------------------------------------------------------------------------- */

/* Frees the block and unlocks. `thread`: which may record it; NULL: none. `is_tried`: it could not
 * keep it. */
UMF_INLINE umf_result_t put_and_unlock(coalescing_pool_t *pool, shard_t *shard,
                                       umf_coalescing_thread_t *thread, void *ptr, bool is_tried) {
    umf_range_freed_t freed;
    /* For the range an isolated segment is used, but no user owns it: its free is an error. */
    umf_result_t result = umf_unlikely(is_isolated(shard, ptr))
                              ? UMF_RESULT_ERROR_INVALID_ARGUMENT
                              : umf_range_free(shard->range, (uintptr_t)ptr, 0, &freed);
    bool is_whole = false;
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        shard->live--;
        is_whole = freed.whole_region && pool->params.retain != SIZE_MAX;
        if (umf_likely(thread != NULL)) {
            umf_coalescing_reuse_note_locked(shard, thread, (uintptr_t)ptr, freed.size);
            umf_coalescing_reuse_note_not_kept(thread, freed.size, is_tried);
        }
    }
    umf_unlock(&shard->lock);
    if (umf_unlikely(is_whole)) {
        umf_coalescing_release_surplus(pool, shard, freed.free_base);
    }
    return umf_likely(result == UMF_RESULT_SUCCESS) ? result : refuse(pool, ptr);
}

static __attribute__((noinline)) umf_result_t put_locked(coalescing_pool_t *pool, void *ptr,
                                                         umf_map_entry_t entry) {
    shard_t *shard = umf_coalescing_shard_of(pool, ptr, entry);
    umf_coalescing_thread_t *thread = umf_coalescing_reuse_room(pool, shard);
    umf_lock(&shard->lock);
    return put_and_unlock(pool, shard, thread, ptr, false);
}

static __attribute__((noinline)) umf_result_t
put_not_kept(coalescing_pool_t *pool, shard_t *shard, umf_coalescing_thread_t *thread, void *ptr) {
    return put_and_unlock(pool, shard, thread, ptr, true);
}

/* The same, if the thread may keep the block. A block of a shard that others use is not kept: the
 * thread would contend for it again at each free, and never come to a shard of its own. Nor is one
 * during a final retry, which would not find it. */
static __attribute__((noinline)) umf_result_t keep_locked(coalescing_pool_t *pool, void *ptr,
                                                          umf_map_entry_t entry) {
    shard_t *shard = umf_coalescing_shard_of(pool, ptr, entry);
    umf_coalescing_thread_t *thread = umf_coalescing_reuse_room(pool, shard);
    if (umf_unlikely(!umf_trylock(&shard->lock))) {
        umf_coalescing_shard_note_contention(pool);
        return put_locked(pool, ptr, entry);
    }
    if (umf_likely(thread != NULL) && !is_isolated(shard, ptr) &&
        !umf_transit_has_retry(&pool->transit) &&
        umf_likely(umf_coalescing_reuse_keep_locked(pool, shard, thread, (uintptr_t)ptr))) {
        umf_unlock(&shard->lock);
        return UMF_RESULT_SUCCESS;
    }
    return put_not_kept(pool, shard, thread, ptr);
}

/* `entry`: the map entry of `ptr`, or 0 if it is not looked up. */
static inline umf_result_t put(coalescing_pool_t *pool, void *ptr, umf_map_entry_t entry) {
    if (umf_likely(umf_coalescing_reuse_put(pool, ptr))) {
        return UMF_RESULT_SUCCESS;
    }
    return umf_coalescing_reuse_may_keep(pool) ? keep_locked(pool, ptr, entry)
                                               : put_locked(pool, ptr, entry);
}

static umf_result_t coalescing_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    return put(self, ptr, entry);
}

static umf_result_t coalescing_free(void *self, void *ptr) {
    return ptr ? put(self, ptr, 0) : UMF_RESULT_SUCCESS;
}

/* --- sizes, and content ----------------------------------------------------------------------- */

static umf_block_room_t usable_size(void *self, const void *ptr, umf_map_entry_t entry) {
    coalescing_pool_t *pool = self;
    shard_t *shard = umf_coalescing_shard_of(pool, ptr, entry);
    umf_lock(&shard->lock);
    size_t size = is_isolated(shard, ptr) ? 0 : umf_range_used_size(shard->range, (uintptr_t)ptr);
    umf_unlock(&shard->lock);
    return (umf_block_room_t){.size = size};
}

/* Frees the tail of a block in place. false: the block is too small, or there is no memory to
 * record the split. */
static bool shrink(coalescing_pool_t *pool, void *ptr, size_t old, size_t size) {
    size_t keep = umf_align_up(size, pool->params.granule);
    if (keep >= old) {
        return keep == old;
    }
    shard_t *shard = umf_coalescing_shard_of(pool, ptr, 0);
    umf_lock(&shard->lock);
    bool is_split = umf_range_split(shard->range, (uintptr_t)ptr, old, keep) == UMF_RESULT_SUCCESS;
    if (is_split) {
        umf_range_free(shard->range, (uintptr_t)ptr + keep, old - keep, NULL);
    }
    umf_unlock(&shard->lock);
    return is_split;
}

static bool fits(void *pool, void *ptr, void *note, size_t old, size_t size) {
    (void)note;
    return size <= old && shrink(pool, ptr, old, size);
}

static umf_content_t *content(void *pool) {
    return &((coalescing_pool_t *)pool)->content;
}

static const umf_block_ops_t coalescing_blocks = {
    .malloc = coalescing_malloc,
    .free = coalescing_free,
    .usable = usable_size,
    .fits = fits,
    .refuse = refuse,
    .fail = coalescing_fail,
    .content = content,
};

UMF_BLOCK_OPS(coalescing)

/* --- life ------------------------------------------------------------------------------------- */

static umf_result_t read_page(coalescing_pool_t *pool) {
    umf_result_t result = umf_provider_page_size(pool->tracked, &pool->page);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("the provider does not report its smallest page: %s", umfResultName(result));
    } else if (pool->page > PAGE_MAX) {
        UMF_LOG_ERROR("the provider's smallest page is %zu bytes", pool->page);
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

static umf_result_t pool_build(coalescing_pool_t *pool, umf_memory_provider_handle_t provider) {
    umf_result_t result = umf_tracked_acquire(provider, &pool->tracked);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = read_page(pool);
    if (result != UMF_RESULT_SUCCESS) {
        goto tracked;
    }
    result = umf_coalescing_shards_init(pool);
    if (result != UMF_RESULT_SUCCESS) {
        goto tracked;
    }
    umf_coalescing_choose_defaults(pool);
    result = umf_coalescing_reuse_init(pool);
    if (result != UMF_RESULT_SUCCESS) {
        goto shards;
    }
    umf_content_init(&pool->content, pool->tracked);
    umf_purge_init(&pool->purge, pool->tracked, pool->page);
    pool->purge.pool = pool;
    pool->purge.part = umf_coalescing_shard_part;
    pool->purge.transit = &pool->transit;
    return UMF_RESULT_SUCCESS;

shards:
    umf_coalescing_shards_fini(pool);
tracked:
    umf_tracked_release(pool->tracked);
    return result;
}

/* Nothing is taken from the provider before the first allocation. */
static umf_result_t coalescing_initialize(umf_memory_provider_handle_t provider, const void *params,
                                          void **out) {
    if (params &&
        !umf_handle_check(params, &umf_coalescing_pool_params_kind.handle, "umfPoolCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!provider || !out) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    coalescing_pool_t *pool = umf_meta_alloc(sizeof(*pool));
    if (!pool) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    pool->params = params ? *(const umf_coalescing_pool_params_t *)params
                          : umf_coalescing_pool_params_defaults;
    umf_result_t result = pool_build(pool, provider);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(pool, sizeof(*pool));
        return result;
    }
    *out = pool;
    return UMF_RESULT_SUCCESS;
}

/* Gives all spans back, also those with blocks in use. Stops at the provider's first error, and
 * returns it. */
static umf_result_t spans_free(coalescing_pool_t *pool) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (umf_span_t *span; result == UMF_RESULT_SUCCESS;) {
        span = NULL;
        umf_tracked_each_span(pool->tracked, umf_tracked_find_any, &span);
        if (!span) {
            break;
        }
        result = umf_tracked_free(pool->tracked, span);
    }
    return result;
}

static umf_result_t coalescing_finalize(void *self) {
    coalescing_pool_t *pool = self;
    umf_coalescing_kept_fini(pool);
    umf_thread_slot_owner_fini(&pool->slots);
    umf_result_t result = spans_free(pool);
    umf_coalescing_shards_fini(pool);
    umf_tracked_release(pool->tracked);
    umf_meta_free(pool, sizeof(*pool));
    return result;
}

/* --- the rest of the table -------------------------------------------------------------------- */

static void count_live(const shard_t *shard, size_t *count) {
    *count += shard->live;
}

static size_t coalescing_alloc_count(void *self) {
    umf_coalescing_reclaim(self);
    size_t live = umf_coalescing_count(self, count_live);
    size_t kept = umf_coalescing_kept_count(self).blocks;
    return live > kept ? live - kept : 0;
}

/* --- tables ----------------------------------------------------------------------------------- */

UMF_POOL_GET_NAME(coalescing, umf_coalescing_pool_t, params.name, umf_coalescing_pool_params)

static void coalescing_tick(void *self) {
    umf_coalescing_decay(self);
}

static const umf_memory_pool_ops_t coalescing_ops = {
    UMF_POOL_OPS(coalescing),
    .get_name = coalescing_get_name,
    .ext_ctl = umf_coalescing_ctl,
    .ext_trim_memory = umf_coalescing_trim,
};

UMF_API_EXT_1 const umf_memory_pool_ops_t *umfCoalescingPoolOps(void) {
    return &coalescing_ops;
}

static const umf_view_kind_t coalescing_view = {
    .name = "coalescing",
    .how = UMF_VIEW_SHARDS,
    .shards =
        {
            .shards = offsetof(umf_coalescing_pool_t, shards),
            .most = UMF_COALESCING_SHARDS_MAX,
            .range = offsetof(shard_t, range),
            .live = offsetof(shard_t, live),
        },
};

/* Wrong parameters are refused by initialize. */
static const umf_pool_variant_t *coalescing_variant(const void *params) {
    const umf_coalescing_pool_params_t *requested = params;
    bool is_arena =
        requested &&
        umf_handle_check(requested, &umf_coalescing_pool_params_kind.handle, "umfPoolCreate") &&
        requested->arena;
    return is_arena ? &umf_arena_variant : NULL;
}

extern const umf_pool_fast_ops_t umf_coalescing_pool_fast_ops;
const umf_pool_fast_ops_t umf_coalescing_pool_fast_ops = {
    .variant = coalescing_variant,
    .free_at = coalescing_free_at,
    .usable_size_at = coalescing_usable_size_at,
    .tick = coalescing_tick,
    .alloc_count = coalescing_alloc_count,
    .walk = umf_coalescing_walk,
    .view = &coalescing_view,
};

UMF_POOL_DESCRIPTOR(coalescing, .ops = &coalescing_ops,
                    .params_from_text = umf_coalescing_pool_params_from_text,
                    .params_destroy = umf_coalescing_pool_params_destroy);
