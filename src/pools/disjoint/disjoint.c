/*
 * The disjoint pool: slabs of equal chunks, all metadata outside of the memory that is served.
 *
 * Sizes map to bins, two for each power of two. Small bins have a magazine per thread in front
 * (cache/magazine.h). The slabs of larger bins are single chunks; each thread may reserve one
 * empty slab of each such bin (reuse.h). With trace or checking on there is neither, so that every
 * count and every error is exact. Sizes above the poolable limit are provider allocations of their
 * own.
 *
 * Slabs beyond the capacity go back to the provider. If the provider would keep them for reuse
 * (reuse_free) and a bin returns many, the round trip is saved: free slabs of such a busy bin go to
 * magazines, too, and to their depots. They decay there. They go back to the provider before the
 * pool allocates from it while many bytes of other sizes are cached, and whenever the provider has
 * no memory.
 */
#include "pools/disjoint/reuse.h"

#include "base/log.h"
#include "base/meta.h"
#include "pools/shared/block_ops.h"
#include "pools/shared/kind.h"
#include "system/annotate.h"
#include "system/os.h"

typedef umf_disjoint_pool_t disjoint_pool_t;

UMF_BLOCK_ERRORS(disjoint)

void umf_disjoint_fail(umf_result_t result) {
    disjoint_fail(result);
}

static size_t bin_of(const disjoint_pool_t *pool, size_t size) {
    return umf_disjoint_bin_of(pool->layout, size);
}

static bool is_poolable(const disjoint_pool_t *pool, size_t size) {
    return size <= pool->params.max_poolable_size && size <= UMF_DISJOINT_MAX_BIN_SIZE;
}

/* --- allocation --- */

typedef struct direct_t {
    size_t size, alignment;
    umf_result_t result;
    void *ptr;
} direct_t;

static bool try_direct(void *self, void *request) {
    disjoint_pool_t *pool = self;
    direct_t *direct = request;
    direct->result = umf_tracked_alloc(pool->slabs.tracked, direct->size, direct->alignment, 0,
                                       NULL, &direct->ptr);
    return direct->result == UMF_RESULT_SUCCESS;
}

static void *alloc_direct(disjoint_pool_t *pool, size_t size, size_t alignment) {
    direct_t direct = {.size = size, .alignment = alignment};
    umf_magazines_release_large(&pool->magazines, UMF_MAGAZINE_EXCEPT_NONE,
                                UMF_MAGAZINE_WAITING_MAX);
    if (umf_unlikely(!try_direct(pool, &direct)) &&
        !umf_disjoint_reclaim(pool, try_direct, &direct)) {
        return disjoint_fail(direct.result);
    }
    if (direct.ptr) {
        atomic_fetch_add_explicit(&pool->direct, 1, memory_order_relaxed);
    }
    return direct.ptr;
}

static void *alloc_chunk(disjoint_pool_t *pool, size_t size) {
    uint32_t index = (uint32_t)bin_of(pool, size);
    if (index < pool->layout->cached_bins) {
        return umf_magazine_pop(&pool->magazines, index);
    }
    void *chunk = index < pool->reserved_bins ? umf_disjoint_take_reserved(pool, index) : NULL;
    umf_item_t item;
    return chunk || umf_unlikely(!umf_disjoint_take(pool, index, umf_bin_take, &item, 1))
               ? chunk
               : item.object;
}

static void trace(const disjoint_pool_t *pool, const char *what, const void *ptr, size_t size) {
    if (pool->params.pool_trace >= 3) {
        UMF_LOG_DEBUG("%s: %s %p, %zu bytes", pool->params.name, what, ptr, size);
    }
}

static UMF_COLD void *malloc_slow(disjoint_pool_t *pool, size_t size) {
    if (size == 0) {
        umf_last_error_set("a disjoint pool refuses 0 bytes");
        return disjoint_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    void *ptr = is_poolable(pool, size) ? alloc_chunk(pool, size) : alloc_direct(pool, size, 0);
    UMF_UNPOISON(ptr, ptr ? size : 0);
    trace(pool, "alloc", ptr, size);
    return ptr;
}

static void *disjoint_malloc(void *self, size_t size) {
    disjoint_pool_t *pool = self;
    if (umf_unlikely(size - 1 >= pool->layout->cached_max)) {
        return malloc_slow(pool, size);
    }
    void *ptr = umf_magazine_pop(&pool->magazines, bin_of(pool, size));
    UMF_UNPOISON(ptr, ptr ? size : 0);
    return ptr;
}

static umf_slab_t *slab_of(const disjoint_pool_t *pool, const void *ptr) {
    umf_span_t *span = umf_tracked_find(pool->slabs.tracked, ptr);
    return span ? span->cookie : NULL;
}

static umf_result_t put_chunk(disjoint_pool_t *pool, umf_slab_t *slab, void *ptr);

/* The first aligned address in a chunk that has room for it. Its offset is recorded. */
static void *align_chunk(disjoint_pool_t *pool, void *chunk, size_t alignment) {
    uintptr_t ptr = umf_align_up((uintptr_t)chunk, alignment);
    umf_slab_t *slab = slab_of(pool, chunk);
    if (ptr != (uintptr_t)chunk && umf_slab_set_offset(slab, ptr) != UMF_RESULT_SUCCESS) {
        put_chunk(pool, slab, chunk);
        return disjoint_fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    return (void *)ptr;
}

static void *aligned_with_room(disjoint_pool_t *pool, size_t size, size_t alignment) {
    size_t needed;
    if (!umf_add(size, alignment - 1, &needed) || !is_poolable(pool, needed)) {
        return alloc_direct(pool, size, alignment);
    }
    void *chunk = alloc_chunk(pool, needed);
    return chunk ? align_chunk(pool, chunk, alignment) : NULL;
}

/* Chunks whose size is a multiple of the alignment are aligned if their slab is. A slab is aligned
 * to the provider's pages, but this is checked. */
static void *aligned_in_page(disjoint_pool_t *pool, size_t size, size_t alignment) {
    size_t needed;
    if (!umf_round_up(size, alignment, &needed) || !is_poolable(pool, needed)) {
        return alloc_direct(pool, size, alignment);
    }
    void *chunk = alloc_chunk(pool, needed);
    if (chunk && (uintptr_t)chunk % alignment != 0) {
        put_chunk(pool, slab_of(pool, chunk), chunk);
        return aligned_with_room(pool, size, alignment);
    }
    return chunk;
}

static void *disjoint_aligned_malloc(void *self, size_t size, size_t alignment) {
    disjoint_pool_t *pool = self;
    if (alignment <= 1) {
        return disjoint_malloc(pool, size);
    }
    if (size == 0 || !umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("cannot allocate %zu bytes at a multiple of %zu: %s", size, alignment,
                      size ? "the alignment must be a power of two" : "the size is 0");
        return disjoint_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    void *ptr = alignment <= pool->page_size ? aligned_in_page(pool, size, alignment)
                                             : aligned_with_room(pool, size, alignment);
    UMF_UNPOISON(ptr, ptr ? size : 0);
    trace(pool, "aligned alloc", ptr, size);
    return ptr;
}

/* --- free --- */

static UMF_COLD umf_result_t not_an_allocation(const disjoint_pool_t *pool, const void *ptr) {
    return umf_block_refuse(pool->params.name, ptr);
}

/* Not inline, because its stack frame would be that of every free. */
static __attribute__((noinline)) umf_result_t put_ptr(disjoint_pool_t *pool, umf_slab_t *slab,
                                                      void *ptr) {
    umf_result_t result = umf_slab_put_ptr(slab, (uintptr_t)ptr);
    umf_magazines_decay(&pool->magazines);
    return result == UMF_RESULT_SUCCESS ? result : not_an_allocation(pool, ptr);
}

/* Frees a chunk that goes to no magazine. */
static umf_result_t put_chunk(disjoint_pool_t *pool, umf_slab_t *slab, void *ptr) {
    /* A slab with recorded offsets needs the lock to resolve the user's pointer. */
    if (umf_disjoint_can_reserve(pool, slab->bin) && !slab->offsets) {
        if (umf_slab_base(slab) != (uintptr_t)ptr || !umf_slab_claim(slab)) {
            return not_an_allocation(pool, ptr);
        }
        umf_disjoint_reserve(pool, slab);
        return UMF_RESULT_SUCCESS;
    }
    return put_ptr(pool, slab, ptr);
}

static __attribute__((noinline)) umf_result_t free_direct(disjoint_pool_t *pool, umf_span_t *span,
                                                          void *ptr) {
    if (span->base != (uintptr_t)ptr) {
        return not_an_allocation(pool, ptr);
    }
    umf_result_t result = umf_tracked_free_for_reuse(pool->slabs.tracked, span);
    if (result == UMF_RESULT_SUCCESS) {
        atomic_fetch_sub_explicit(&pool->direct, 1, memory_order_relaxed);
    }
    umf_magazines_decay(&pool->magazines);
    return result;
}

/* The state of a chunk that goes through a magazine. NULL: the chunk does not, or `ptr` is not the
 * start of a chunk. */
static uint8_t *cached_state_of(const disjoint_pool_t *pool, const umf_span_t *span,
                                const void *ptr) {
    umf_slab_t *slab = span->cookie;
    if (!slab || slab->bin->index >= pool->layout->cached_bins) {
        return NULL;
    }
    umf_wide_t product = (umf_wide_t)((uintptr_t)ptr - span->base) * slab->bin->magic;
    return (uint64_t)product < slab->bin->magic ? umf_slab_state(slab, (size_t)(product >> 64))
                                                : NULL;
}

/* Frees everything that goes to no magazine, among it over-aligned allocations of cached bins:
 * their pointer is not the start of the chunk, and the chunk's state is not LIVE. */
static __attribute__((noinline)) umf_result_t put_unusual(disjoint_pool_t *pool, umf_span_t *span,
                                                          void *ptr) {
    trace(pool, "free", ptr, 0);
    return span->cookie ? put_chunk(pool, span->cookie, ptr) : free_direct(pool, span, ptr);
}

/*
 * Frees blocks that the core could not push itself. The core has tried the calling thread's
 * magazine if the slab is aligned. An address inside a chunk is refused.
 */
static inline umf_result_t free_in(disjoint_pool_t *pool, void *ptr, umf_span_t *span) {
    uint8_t *state = cached_state_of(pool, span, ptr);
    if (umf_unlikely(!state)) {
        return put_unusual(pool, span, ptr);
    }
    if (umf_unlikely(umf_state(state) != UMF_STATE_LIVE)) {
        return not_an_allocation(pool, ptr);
    }
    const umf_bin_t *bin = ((umf_slab_t *)span->cookie)->bin;
    UMF_POISON(ptr, bin->size);
    umf_state_set(state, UMF_STATE_FREE);
    umf_magazine_push(&pool->magazines, bin->index, (umf_item_t){ptr, state});
    return UMF_RESULT_SUCCESS;
}

static umf_result_t disjoint_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    return free_in(self, ptr, umf_span_at(umf_map_entry_span(entry)));
}

static bool disjoint_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    disjoint_pool_t *pool = self;
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    uint8_t *state = cached_state_of(pool, span, ptr);
    return state && umf_magazine_try_free(
                        &pool->magazines,
                        umf_magazine_offset(((umf_slab_t *)span->cookie)->bin->index), ptr, state);
}

static umf_result_t disjoint_free(void *self, void *ptr) {
    disjoint_pool_t *pool = self;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    umf_span_t *span = umf_tracked_find(pool->slabs.tracked, ptr);
    return span ? free_in(pool, ptr, span) : not_an_allocation(pool, ptr);
}

static UMF_COLD umf_result_t usable_size_slow(const disjoint_pool_t *pool, const umf_span_t *span,
                                              const void *ptr, size_t *size) {
    umf_slab_t *slab = span->cookie;
    if (slab) {
        if (umf_slab_usable_size(slab, (uintptr_t)ptr, size) != UMF_RESULT_SUCCESS) {
            return not_an_allocation(pool, ptr);
        }
        *size -= slab->bin->size - pool->layout->sizes[slab->bin->index];
        return UMF_RESULT_SUCCESS;
    }
    if (span->base != (uintptr_t)ptr) {
        return not_an_allocation(pool, ptr);
    }
    *size = span->size;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t usable_size(disjoint_pool_t *pool, const umf_span_t *span, const void *ptr,
                                size_t *size) {
    if (umf_unlikely(!span)) {
        return not_an_allocation(pool, ptr);
    }
    const uint8_t *state = cached_state_of(pool, span, ptr);
    if (umf_unlikely(!state)) {
        return usable_size_slow(pool, span, ptr, size);
    }
    if (umf_unlikely(umf_state(state) != UMF_STATE_LIVE)) {
        return not_an_allocation(pool, ptr);
    }
    *size = pool->layout->sizes[((umf_slab_t *)span->cookie)->bin->index];
    return UMF_RESULT_SUCCESS;
}

static umf_result_t disjoint_usable_size_at(void *self, const void *ptr, umf_map_entry_t entry,
                                            size_t *size) {
    return usable_size(self, umf_span_at(umf_map_entry_span(entry)), ptr, size);
}

static umf_result_t disjoint_usable_size(void *self, const void *ptr, size_t *size) {
    if (!size) {
        UMF_LOG_ERROR("size is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!ptr) {
        *size = 0;
        return UMF_RESULT_SUCCESS;
    }
    const disjoint_pool_t *pool = self;
    umf_result_t result = usable_size(self, umf_tracked_find(pool->slabs.tracked, ptr), ptr, size);
    if (result == UMF_RESULT_SUCCESS) {
        UMF_UNPOISON(ptr, *size); /* all of it may be used now */
    }
    return result;
}

/* --- counts --- */

static umf_result_t disjoint_trim(void *self, size_t keep) {
    umf_disjoint_trim(self, keep);
    return UMF_RESULT_SUCCESS;
}

static size_t disjoint_alloc_count(void *self) {
    disjoint_pool_t *pool = self;
    size_t count = atomic_load_explicit(&pool->direct, memory_order_relaxed);
    for (uint32_t i = 0; i < pool->layout->bins; i++) {
        count += umf_disjoint_used_chunks(pool, i);
    }
    return count;
}

/* --- life --- */

static umf_result_t choose_defaults(disjoint_pool_t *pool) {
    umf_tracked_provider_t *tracked = pool->slabs.tracked;
    if (umf_provider_page_size(tracked, &pool->page_size) != UMF_RESULT_SUCCESS ||
        !umf_is_pow2(pool->page_size)) {
        pool->page_size = umf_os_page_size();
    }
    size_t line;
    if (!pool->params.min_bucket_set &&
        umfMemoryProviderGetCacheLineSize(tracked, &line) == UMF_RESULT_SUCCESS &&
        umf_is_pow2(line) && line <= umf_os_page_size()) { /* a larger one is no cache line */
        pool->params.min_bucket_size = line;
    }
    return umf_disjoint_lay_out(pool);
}

static umf_result_t disjoint_initialize(umf_memory_provider_handle_t provider, const void *params,
                                        void **out) {
    if (params && !umf_disjoint_params_check(params)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    disjoint_pool_t *pool = umf_meta_alloc(sizeof(*pool));
    if (!pool) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    pool->params =
        params ? *(const umf_disjoint_pool_params_t *)params : umf_disjoint_pool_params_defaults;
    pool->slabs.limits = pool->params.limits;
    umf_result_t result = umf_tracked_acquire(provider, &pool->slabs.tracked);
    if (result == UMF_RESULT_SUCCESS) {
        result = choose_defaults(pool);
        if (result == UMF_RESULT_SUCCESS) {
            *out = pool;
            return result;
        }
        umf_disjoint_layout_put(pool->layout);
        umf_tracked_release(pool->slabs.tracked);
    }
    umf_meta_free(pool, sizeof(*pool));
    return result;
}

static bool find_direct(umf_span_t *span, void *arg) {
    if (!span->cookie) {
        *(umf_span_t **)arg = span;
    }
    return span->cookie != NULL;
}

/* Frees the provider allocations that users have not freed. */
static void free_direct_left(disjoint_pool_t *pool) {
    for (;;) {
        umf_span_t *span = NULL;
        umf_tracked_each_span(pool->slabs.tracked, find_direct, &span);
        if (!span || umf_tracked_free(pool->slabs.tracked, span) != UMF_RESULT_SUCCESS) {
            return;
        }
    }
}

static umf_result_t disjoint_finalize(void *self) {
    disjoint_pool_t *pool = self;
    umf_disjoint_log_summary(pool);
    umf_magazines_fini(&pool->magazines);
    umf_disjoint_reuse_fini(pool);
    bool has_bins = atomic_load_explicit(&pool->has_bins, memory_order_relaxed);
    for (uint32_t i = 0, bins = has_bins ? pool->layout->bins : 0; i < bins; i++) {
        umf_bin_t *bin = umf_disjoint_bin(pool, i);
        if (bin) {
            umf_bin_destroy(bin);
        }
    }
    free_direct_left(pool);
    umf_disjoint_layout_put(pool->layout);
    umf_tracked_release(pool->slabs.tracked);
    umf_meta_free(pool, sizeof(*pool));
    return UMF_RESULT_SUCCESS;
}

UMF_BLOCK_NOT_OFFERED(disjoint)

UMF_POOL_GET_NAME(disjoint, umf_disjoint_pool_t, params.name, umf_disjoint_pool_params)

static const umf_memory_pool_ops_t disjoint_ops = {
    UMF_POOL_OPS(disjoint),
    .get_name = disjoint_get_name,
    .ext_ctl = umf_disjoint_ctl,
    .ext_trim_memory = disjoint_trim,
};

UMF_API_1_0 const umf_memory_pool_ops_t *umfDisjointPoolOps(void) {
    return &disjoint_ops;
}

UMF_BLOCK_MAGAZINES(disjoint, disjoint_pool_t)

static const umf_small_sizes_t *disjoint_small(void *self) {
    return &((disjoint_pool_t *)self)->layout->small;
}

static const umf_magazine_slab_t *disjoint_slabs(void *self) {
    return ((disjoint_pool_t *)self)->layout->slabs;
}

static void disjoint_set_served_inline(void *self, bool may) {
    umf_magazines_check(&((disjoint_pool_t *)self)->magazines, may);
}

static bool disjoint_zeroes_on_free(void *self) {
    return ((disjoint_pool_t *)self)->params.zero_on_free;
}

const umf_pool_fast_ops_t umf_disjoint_pool_fast_ops = {
    .free_at = disjoint_free_at,
    .try_free = disjoint_try_free,
    .usable_size_at = disjoint_usable_size_at,
    .zeroes_on_free = disjoint_zeroes_on_free,
    .alloc_count = disjoint_alloc_count,
    .tick = disjoint_tick,
    .thread_cache = disjoint_thread_cache,
    .small = disjoint_small,
    .slabs = disjoint_slabs,
    .set_served_inline = disjoint_set_served_inline,
    .walk = umf_disjoint_walk,
    .view = &umf_disjoint_view,
    .no_realloc = true,
};

UMF_POOL_DESCRIPTOR(disjoint, .ops = &disjoint_ops,
                    .params_from_text = umf_disjoint_pool_params_from_text,
                    .params_destroy = umf_disjoint_pool_params_destroy);
