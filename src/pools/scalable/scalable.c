/*
 * The scalable pool.
 *
 * Magazines (cache/magazine.h) serve objects of up to 128 KiB, and larger ones of the usual sizes
 * up to 1 MiB, without entering anything else. Their sizes are the size classes of oneTBB.
 * Everything else comes from a memory pool of oneTBB (tbb.h), which takes its memory from the
 * provider through two hooks (below.c). Blocks so large that oneTBB would pass each request on to
 * the provider do not go through it (blocks.c).
 *
 * oneTBB trusts every pointer that it is given. Therefore each span has a record of where objects
 * start and which of them users own (records.h). All other pointers (interior, foreign or freed
 * ones) are refused before oneTBB sees them.
 */
#include <umf/pools/pool_scalable.h>

#include <pthread.h>
#include <string.h>

#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "ctl/params.h"
#include "pools/scalable/scalable.h"
#include "pools/scalable/walk.h"
#include "pools/shared/block_ops.h"
#include "pools/shared/kind.h"

/* Sizes that are rounded up to a granularity of up to this limit cannot overflow. */
#define GRANULARITY_LIMIT (SIZE_MAX / 4)

#define ALIGNMENT_IN_BINS 1024 /* blocks with a larger alignment have no bin */

#define UMF_PARAMS umf_scalable_pool_params
#define UMF_PARAMS_TABLE "pools/scalable/scalable_params.def"
typedef struct umf_scalable_pool_params_t {
#include "ctl/params_members.h"
} umf_scalable_pool_params_t;
#include "ctl/params_define.h"

__thread umf_scalable_thread_t umf_scalable_thread;

/* --- between magazines and oneTBB --- */

static size_t scalable_refill(void *arg, uint32_t bin, umf_item_t *items, size_t n) {
    umf_scalable_pool_t *pool = arg;
    umf_scalable_fail();
    /* Comes before oneTBB is entered: oneTBB may call the hook for memory, and the hook cannot
     * release anything because it must not enter oneTBB again. */
    umf_magazines_release_large(&pool->magazines, bin, UMF_MAGAZINE_WAITING_MAX);
    return umf_scalable_take(pool, bin, umf_scalable_sizes.size[bin], 0, items, n);
}

/* All states are cleared before the first object is released: a span, and its states, may go as
 * soon as its last object is released. */
static void scalable_flush(void *arg, uint32_t bin, umf_item_t *items, size_t n) {
    umf_scalable_give(arg, bin, items, umf_scalable_unmark(arg, items, n));
}

static void scalable_thread_begins(void *arg) {
    (void)arg;
    umf_tbb_thread_begins();
}

static bool scalable_decay(void *arg, bool is_new) {
    umf_scalable_pool_t *pool = arg;
    if (is_new) {
        umf_scalable_below_decay(pool);
        umf_provider_drop_reusable(pool->tracked, true);
    }
    return false;
}

static const umf_magazine_ops_t scalable_magazine_ops = {
    .refill = scalable_refill,
    .flush = scalable_flush,
    .decay_pass = scalable_decay,
    .thread_begins = scalable_thread_begins,
    .page_magic = umf_scalable_sizes.starts.magic,
};

/* --- free: hot --- */

static UMF_COLD umf_result_t refuse(const void *pool, const void *ptr) {
    return umf_block_refuse(((const umf_scalable_pool_t *)pool)->name, ptr);
}

static UMF_COLD umf_result_t free_slow(umf_scalable_pool_t *pool, uint32_t bin, void *ptr,
                                       uint8_t *state) {
    if (umf_state(state) != UMF_STATE_LIVE) {
        return refuse(pool, ptr);
    }
    umf_state_set(state, UMF_STATE_FREE);
    umf_magazine_push_slow(&pool->magazines, bin, (umf_item_t){ptr, state});
    return UMF_RESULT_SUCCESS;
}

static UMF_COLD umf_result_t block_free(umf_scalable_pool_t *pool, umf_span_t *span, void *ptr,
                                        uint8_t *state) {
    return umf_scalable_block_free(pool, span, ptr, state) ? UMF_RESULT_SUCCESS : refuse(pool, ptr);
}

static inline umf_result_t free_in(umf_scalable_pool_t *pool, void *ptr, umf_span_t *span) {
    const umf_scalable_page_t *page = umf_scalable_page_of(span, ptr);
    uint8_t *state = umf_scalable_state_of(page, span, ptr);
    if (umf_unlikely(!state)) {
        return refuse(pool, ptr);
    }
    uint32_t bin = umf_scalable_page_bin(page);
    if (umf_unlikely(bin == UMF_SCALABLE_BIN_NONE)) {
        return block_free(pool, span, ptr, state);
    }
    return umf_likely(umf_magazine_try_free(&pool->magazines, umf_magazine_offset(bin), ptr, state))
               ? UMF_RESULT_SUCCESS
               : free_slow(pool, bin, ptr, state);
}

static umf_result_t scalable_free_at(void *arg, void *ptr, umf_map_entry_t entry) {
    umf_scalable_pool_t *pool = arg;
    if (umf_map_entry_class(entry) < 0 && umf_page_has_owner((uintptr_t)ptr) &&
        umf_magazine_free_remote(&pool->magazines, ptr)) {
        return UMF_RESULT_SUCCESS;
    }
    return free_in(pool, ptr, umf_span_at(umf_map_entry_span(entry)));
}

UMF_INLINE umf_result_t scalable_free(void *arg, void *ptr) {
    umf_scalable_pool_t *pool = arg;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    umf_span_t *span = umf_tracked_find(pool->tracked, ptr);
    return span ? free_in(pool, ptr, span) : refuse(pool, ptr);
}

/* --- allocate --- */

/* Hot. */
static void *scalable_malloc(void *arg, size_t size) {
    umf_scalable_pool_t *pool = arg;
    if (umf_unlikely(size > UMF_SCALABLE_SMALL_LARGEST)) {
        uint32_t bin = size > UMF_SCALABLE_BIN_LARGEST ? umf_scalable_block_bin(size)
                                                       : umf_scalable_large_bin_of(size);
        return umf_unlikely(bin == UMF_SCALABLE_BIN_NONE) ? umf_scalable_block_alloc(pool, size, 0)
                                                          : umf_magazine_pop(&pool->magazines, bin);
    }
    return umf_magazine_pop(&pool->magazines, umf_scalable_bin_of(size));
}

/* In oneTBB's slabs an object is aligned to the largest power of two that divides its size. oneTBB
 * does not promise that, so it is checked. */
static void *aligned_from_bin(umf_scalable_pool_t *pool, size_t size, size_t alignment) {
    uint32_t bin = umf_scalable_bin_of(size);
    while (bin < UMF_SCALABLE_BINS_SMALL && umf_scalable_sizes.size[bin] & (alignment - 1)) {
        bin++;
    }
    if (bin == UMF_SCALABLE_BINS_SMALL) {
        return umf_scalable_block_alloc(pool, size, alignment);
    }
    void *ptr = umf_magazine_pop(&pool->magazines, bin);
    if (umf_unlikely((uintptr_t)ptr & (alignment - 1))) {
        free_in(pool, ptr, umf_tracked_find(pool->tracked, ptr));
        return umf_scalable_block_alloc(pool, size, alignment);
    }
    return ptr;
}

static void *scalable_aligned_malloc(void *arg, size_t size, size_t alignment) {
    umf_scalable_pool_t *pool = arg;
    if (alignment == 0) {
        return scalable_malloc(pool, size);
    }
    if (!umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("pool %s: alignment %zu is not a power of two", pool->name, alignment);
        return umf_scalable_fail();
    }
    return size > UMF_SCALABLE_SMALL_LARGEST || alignment > ALIGNMENT_IN_BINS
               ? umf_scalable_block_alloc(pool, size, alignment)
               : aligned_from_bin(pool, size, alignment);
}

static bool is_start(const umf_span_t *span, const void *ptr) {
    return !umf_scalable_is_direct(span) || (uintptr_t)ptr == span->base;
}

static umf_block_room_t usable_size(void *self, const void *ptr, umf_map_entry_t entry) {
    umf_scalable_pool_t *pool = self;
    const umf_span_t *span = umf_block_span(pool->tracked, ptr, entry);
    const uint8_t *state =
        span ? umf_scalable_state_of(umf_scalable_page_of(span, ptr), span, ptr) : NULL;
    if (!state || umf_state(state) != UMF_STATE_LIVE || !is_start(span, ptr)) {
        return (umf_block_room_t){0};
    }
    size_t size = umf_scalable_is_direct(span) ? span->size : umf_scalable_below_size(pool, ptr);
    return (umf_block_room_t){.size = size};
}

static bool fits(void *pool, void *ptr, void *note, size_t old, size_t size) {
    (void)pool, (void)ptr, (void)note;
    return size <= old && size > old / 2;
}

/* All failures are UNKNOWN but a lack of memory. */
static UMF_COLD void *fail(umf_result_t result) {
    umf_tell_refused("scalable", result);
    umf_scalable_thread.last_error = result ? UMF_SHORT_RESULT_UNKNOWN : UMF_RESULT_SUCCESS;
    return NULL;
}

static const umf_block_ops_t scalable_blocks = {
    .malloc = scalable_malloc,
    .free = scalable_free,
    .usable = usable_size,
    .fits = fits,
    .refuse = refuse,
    .fail = fail,
};

UMF_BLOCK_OPS(scalable)

/* --- create and destroy --- */

static void tables_init(void) {
    umf_scalable_sizes_init();
    umf_scalable_records_init();
}

static umf_result_t pool_build(umf_scalable_pool_t *pool, const umf_scalable_pool_params_t *params,
                               umf_memory_provider_handle_t provider) {
    size_t page;
    if (umf_provider_page_size(provider, &page) != UMF_RESULT_SUCCESS) {
        page = params->granularity;
    }
    pool->granularity = params->granularity;
    memcpy(pool->name, params->name, sizeof(pool->name));
    umf_result_t result = umf_tbb_load(&pool->tbb);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_tracked_acquire(provider, &pool->tracked);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_scalable_below_build(pool, page < pool->granularity ? page : pool->granularity,
                                      params->keep_all_memory);
    if (result != UMF_RESULT_SUCCESS) {
        goto tracked;
    }
    result = umf_magazines_init(&pool->magazines, umf_tracked_magazine_index(pool->tracked), pool,
                                &scalable_magazine_ops, umf_scalable_sizes.capacity,
                                UMF_SCALABLE_BINS, UMF_MAGAZINE_DEPOT_BATCHES);
    if (result != UMF_RESULT_SUCCESS) {
        goto below;
    }
    pool->magazines.bytes_max = params->thread_cache;
    umf_lock_init(&pool->lock, UMF_RANK_ARENA);
    return UMF_RESULT_SUCCESS;

below:
    umf_scalable_below_destroy(pool);
tracked:
    umf_tracked_release(pool->tracked);
    return result;
}

/* Nothing is taken from the provider before the first allocation. */
static umf_result_t scalable_initialize(umf_memory_provider_handle_t provider, const void *params,
                                        void **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const umf_scalable_pool_params_t *request =
        umf_params_or_defaults(&umf_scalable_pool_params_kind, params, "umfPoolCreate");
    if (!request) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!provider || !out) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (request->granularity > GRANULARITY_LIMIT) {
        UMF_LOG_ERROR("granularity %zu is more than any provider has", request->granularity);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    pthread_once(&once, tables_init);
    umf_scalable_pool_t *pool = umf_meta_alloc(sizeof(*pool));
    if (!pool) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = pool_build(pool, request, provider);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(pool, sizeof(*pool));
        return result;
    }
    *out = pool;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t scalable_finalize(void *arg) {
    umf_scalable_pool_t *pool = arg;
    umf_magazines_fini(&pool->magazines); /* waits for ending threads */
    umf_scalable_below_destroy(pool);
    umf_scalable_spans_give_all(pool);
    bool has_left = umf_tracked_span_count(pool->tracked) > 0;
    umf_tracked_release(pool->tracked);
    umf_lock_destroy(&pool->lock);
    umf_meta_free(pool, sizeof(*pool));
    return has_left ? UMF_RESULT_ERROR_UNKNOWN : UMF_RESULT_SUCCESS;
}

/* --- trim --- */

static umf_result_t scalable_trim(void *arg, size_t keep) {
    (void)keep;
    umf_scalable_pool_t *pool = arg;
    if (umf_scalable_keeps_all(pool)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_magazines_trim(&pool->magazines);
    umf_scalable_below_trim(pool, false);
    return UMF_RESULT_SUCCESS;
}

/* --- the rest of the table --- */

static umf_result_t scalable_last_allocation_error(void *arg) {
    (void)arg;
    return umf_result_lengthen(umf_scalable_thread.last_error);
}

UMF_POOL_GET_NAME(scalable, umf_scalable_pool_t, name, umf_scalable_pool_params)

static size_t scalable_alloc_count(void *arg) {
    umf_scalable_pool_t *pool = arg;
    int64_t blocks = umf_stripes_sum(&pool->out) - umf_magazines_out(&pool->magazines);
    return umf_magazines_live(&pool->magazines) + (blocks > 0 ? (size_t)blocks : 0) +
           atomic_load_explicit(&pool->direct_count, memory_order_relaxed);
}

UMF_BLOCK_MAGAZINES(scalable, umf_scalable_pool_t)

static void scalable_set_served_inline(void *self, bool may) {
    umf_magazines_check(&((umf_scalable_pool_t *)self)->magazines, may);
}

static const umf_memory_pool_ops_t scalable_ops = {
    UMF_POOL_OPS(scalable),
    .get_name = scalable_get_name,
    .ext_trim_memory = scalable_trim,
};

static const umf_small_sizes_t *scalable_small(void *arg) {
    (void)arg;
    return &umf_scalable_sizes.small;
}

extern const umf_pool_fast_ops_t umf_scalable_pool_fast_ops;
static void scalable_walk(void *self, const umf_span_t *span, umf_walk_t *walk) {
    if (umf_scalable_is_direct(span)) {
        umf_walk_add(walk, span->base, span->size, 1,
                     umf_state(&umf_scalable_record_of(span)->direct) == UMF_STATE_LIVE
                         ? UMF_RECORD_STATE_LIVE
                         : UMF_RECORD_STATE_FREE);
        return;
    }
    umf_scalable_walk_t walked = {
        .pages = umf_scalable_record_of(span)->pages,
        .starts = &umf_scalable_sizes.starts,
        .size = umf_scalable_sizes.size,
        .bins = UMF_SCALABLE_BINS,
        .lock = &((umf_scalable_pool_t *)self)->lock,
    };
    umf_scalable_walk(&walked, span, walk);
}

static const umf_view_kind_t scalable_view = {
    .name = "scalable",
    .how = UMF_VIEW_PAGES,
    .pages =
        {
            UMF_STARTS_VIEW(umf_scalable_sizes),
            .records = offsetof(umf_scalable_record_t, pages),
            .shift = offsetof(umf_scalable_record_t, page_shift),
            .direct = offsetof(umf_scalable_record_t, direct),
            .own = UMF_VIEW_NONE,
            .kinds = UMF_SCALABLE_BINS,
        },
};

const umf_pool_fast_ops_t umf_scalable_pool_fast_ops = {
    .free_at = scalable_free_at,
    .usable_size_at = scalable_usable_size_at,
    .alloc_count = scalable_alloc_count,
    .tick = scalable_tick,
    .thread_cache = scalable_thread_cache,
    .small = scalable_small,
    .set_served_inline = scalable_set_served_inline,
    .walk = scalable_walk,
    .view = &scalable_view,
    .data_inside = true,
};

UMF_API_1_0 const umf_memory_pool_ops_t *umfScalablePoolOps(void) {
    return &scalable_ops;
}

/* Unlike the destroy functions of other kinds, it refuses NULL. */
UMF_API_1_0 umf_result_t umfScalablePoolParamsDestroy(umf_scalable_pool_params_handle_t hParams) {
    return umf_handle_check(hParams, &umf_scalable_pool_params_kind.handle, __func__)
               ? umf_params_destroy(&umf_scalable_pool_params_kind, hParams, __func__)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_POOL_DESCRIPTOR(scalable, .ops = &scalable_ops,
                    .params_from_text = umf_scalable_pool_params_from_text,
                    .params_destroy = umf_scalable_pool_params_destroy, .probe = umf_tbb_probe);
