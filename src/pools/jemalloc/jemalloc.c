/*
 * The jemalloc pool.
 *
 * It has three layers. Magazines (cache/magazine.h) serve objects of up to 128 KiB without entering
 * anything else. Below them, jemalloc cuts slabs into objects of up to 14 KiB, in arenas of this
 * pool. Larger objects are segments of the page cache (pools/jemalloc/pages.h), which also supplies
 * jemalloc's slabs. If jemalloc has no arena left for a pool, every object comes from the page
 * cache.
 *
 * jemalloc calls the pool through extent hooks. A hook must not enter jemalloc again, not even
 * through another pool: the allocation would come from jemalloc's own memory instead of the arena.
 * Therefore hooks only take pages that are available and put them back. The provider, which may
 * stand on another pool of this kind, is called outside of jemalloc.
 *
 * jemalloc never merges extents of this pool: it would do so across arenas and provider spans,
 * which corrupts its heap. It returns every free extent at once, and the pages coalesce in the page
 * cache.
 *
 * Each page has a record of where objects start and which of them users own
 * (pools/shared/starts.h). All other pointers (interior, foreign or freed ones) are refused before
 * jemalloc sees them.
 */
#include <umf/pools/pool_jemalloc.h>

#include <string.h>

#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/thread_slot.h"
#include "ctl/params.h"
#include "pools/jemalloc/jemalloc.h"
#include "pools/jemalloc/pages_walk.h"
#include "pools/shared/block_ops.h"
#include "pools/shared/kind.h"

/* Objects that come from jemalloc and go back there cost more than in other pools: more wait in
 * between. They go back before the pool grows. */
#define DEPOT_BATCHES (4 * UMF_MAGAZINE_DEPOT_BATCHES)
#define BIN_LARGEST UMF_JEMALLOC_BIN_LARGEST

/* Slabs of jemalloc have one page for most sizes; its record of a slab has 152 bytes. Of larger
 * slabs there are fewer. */
#if UMF_JEMALLOC_LG_PAGE == 12
#define SLAB_SIZES ",slab_sizes:1-512:4"
#else
#define SLAB_SIZES ""
#endif

/*
 * Decay 0: free extents come back at once. No tcache: the magazines take its place. No retain:
 * jemalloc then calls hooks without holding its locks. No huge pages: they would cost one 2 MiB
 * page per arena.
 */
extern const char *umf_je_malloc_conf;
const char *umf_je_malloc_conf = "narenas:1,tcache:false,retain:false,dirty_decay_ms:0,"
                                 "muzzy_decay_ms:0,oversize_threshold:0,thp:never,"
                                 "background_thread:false,percpu_arena:disabled" SLAB_SIZES;

#define UMF_PARAMS umf_jemalloc_pool_params
#define UMF_PARAMS_TABLE "pools/jemalloc/jemalloc_params.def"
typedef struct umf_jemalloc_pool_params_t {
#include "ctl/params_members.h"
} umf_jemalloc_pool_params_t;
#include "ctl/params_define.h"

UMF_BLOCK_ERRORS(jemalloc)

void *umf_jemalloc_fail(umf_result_t result) {
    return jemalloc_fail(result);
}

/* --- hooks: called by jemalloc without its locks, except while a pool is closing --- */

static umf_jemalloc_pool_t *pool_of_hooks(extent_hooks_t *hooks) {
    return UMF_CONTAINER_OF(hooks, umf_jemalloc_pool_t, hooks);
}

static void *hook_alloc(extent_hooks_t *hooks, void *new_addr, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
    (void)arena;
    if (new_addr || *zero) { /* the page cache can give neither a fixed address nor zeros */
        return NULL;
    }
    void *ptr = umf_pages_take(&pool_of_hooks(hooks)->pages, size, alignment);
    if (!ptr) {
        umf_thread_slot_tls.is_short = true;
        return NULL;
    }
    *commit = true;
    return ptr;
}

static void hook_destroy(extent_hooks_t *hooks, void *ptr, size_t size, bool committed,
                         unsigned arena) {
    (void)committed, (void)arena;
    umf_jemalloc_pool_t *pool = pool_of_hooks(hooks);
    if (!pool->is_closing) {
        umf_pages_put(&pool->pages, ptr, size);
    }
}

static bool hook_dalloc(extent_hooks_t *hooks, void *ptr, size_t size, bool committed,
                        unsigned arena) {
    hook_destroy(hooks, ptr, size, committed, arena);
    return false;
}

static bool hook_split(extent_hooks_t *hooks, void *ptr, size_t size, size_t size_a, size_t size_b,
                       bool committed, unsigned arena) {
    (void)size_b, (void)committed, (void)arena;
    return umf_pages_split(&pool_of_hooks(hooks)->pages, ptr, size, size_a) != UMF_RESULT_SUCCESS;
}

/* jemalloc takes absent hooks as refused: commit, decommit, purge and merge. */
static const extent_hooks_t jemalloc_hooks = {
    .alloc = hook_alloc,
    .dalloc = hook_dalloc,
    .destroy = hook_destroy,
    .split = hook_split,
};

/* --- magazines --- */

/* jemalloc keeps no free extents. So only the page cache decays. */
static bool jemalloc_decay(void *pool, bool is_new) {
    return umf_pages_decay(&((umf_jemalloc_pool_t *)pool)->pages, is_new);
}

static const umf_magazine_ops_t jemalloc_magazine_ops = {
    .refill = umf_jemalloc_refill,
    .flush = umf_jemalloc_flush,
    .decay_pass = jemalloc_decay,
    .page_magic = umf_jemalloc_sizes.starts.magic,
};

/* --- free: hot --- */

static UMF_COLD umf_result_t refuse(const void *pool, const void *ptr) {
    return umf_block_refuse(((const umf_jemalloc_pool_t *)pool)->name, ptr);
}

static __attribute__((noinline)) umf_result_t free_slow(umf_jemalloc_pool_t *pool, void *ptr,
                                                        umf_jemalloc_page_t *page, uint8_t *state) {
    if (!state || umf_state(state) == UMF_STATE_NONE) { /* no object of a bin: perhaps a block */
        return umf_jemalloc_block_free(pool, ptr, page) ? UMF_RESULT_SUCCESS : refuse(pool, ptr);
    }
    if (umf_state(state) != UMF_STATE_LIVE) {
        return refuse(pool, ptr);
    }
    umf_state_set(state, UMF_STATE_FREE);
    umf_magazine_push_slow(&pool->magazines, umf_jemalloc_page_kind(page) - 1,
                           (umf_item_t){ptr, state});
    return UMF_RESULT_SUCCESS;
}

static inline bool try_free_in(const umf_jemalloc_pool_t *pool, void *ptr,
                               const umf_jemalloc_page_t *page, uint8_t *state) {
    return umf_likely(state != NULL) &&
           umf_likely(umf_magazine_try_free(&pool->magazines,
                                            umf_magazine_offset(umf_jemalloc_page_kind(page) - 1),
                                            ptr, state));
}

static inline umf_result_t free_in(umf_jemalloc_pool_t *pool, void *ptr,
                                   const umf_pages_span_t *span, size_t offset) {
    umf_jemalloc_page_t *page = umf_jemalloc_page_of(span, offset);
    uint8_t *state = umf_jemalloc_state_of(page, offset);
    return umf_likely(try_free_in(pool, ptr, page, state)) ? UMF_RESULT_SUCCESS
                                                           : free_slow(pool, ptr, page, state);
}

static umf_result_t jemalloc_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    umf_jemalloc_pool_t *pool = self;
    if (umf_map_entry_class(entry) < 0 && umf_page_has_owner((uintptr_t)ptr) &&
        umf_magazine_free_remote(&pool->magazines, ptr)) {
        return UMF_RESULT_SUCCESS;
    }
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    return free_in(pool, ptr, span->cookie, (uintptr_t)ptr - span->base);
}

static bool jemalloc_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    size_t offset = (uintptr_t)ptr - span->base;
    const umf_jemalloc_page_t *page = umf_jemalloc_page_of(span->cookie, offset);
    return try_free_in(self, ptr, page, umf_jemalloc_state_of(page, offset));
}

static umf_result_t jemalloc_free(void *self, void *ptr) {
    umf_jemalloc_pool_t *pool = self;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    const umf_span_t *span = umf_tracked_find(pool->tracked, ptr);
    if (!span) {
        return refuse(pool, ptr);
    }
    return free_in(pool, ptr, span->cookie, (uintptr_t)ptr - span->base);
}

/* --- allocate --- */

/* Hot. */
static void *jemalloc_malloc(void *self, size_t size) {
    umf_jemalloc_pool_t *pool = self;
    if (umf_unlikely(size > BIN_LARGEST)) {
        return umf_jemalloc_block_alloc(pool, size, UMF_PAGE_SIZE);
    }
    return umf_magazine_pop(&pool->magazines, umf_jemalloc_bin_of(size));
}

/* An object is aligned to the largest power of two that divides its size, up to a page. */
static void *jemalloc_aligned_malloc(void *self, size_t size, size_t alignment) {
    umf_jemalloc_pool_t *pool = self;
    if (alignment != 0 && !umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("pool %s: alignment %zu is not a power of two", pool->name, alignment);
        return umf_jemalloc_fail(UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    }
    if (size > BIN_LARGEST || alignment > UMF_PAGE_SIZE) {
        return umf_jemalloc_block_alloc(pool, size,
                                        alignment > UMF_PAGE_SIZE ? alignment : UMF_PAGE_SIZE);
    }
    uint32_t bin = umf_jemalloc_bin_of(size);
    while (alignment && umf_jemalloc_sizes.size[bin] & (alignment - 1)) {
        bin++;
    }
    return umf_magazine_pop(&pool->magazines, bin);
}

/* The note is the record of the page in which the block starts. */
static umf_block_room_t usable_size(void *self, const void *ptr, umf_map_entry_t entry) {
    const umf_span_t *span = umf_block_span(((umf_jemalloc_pool_t *)self)->tracked, ptr, entry);
    if (!span) {
        return (umf_block_room_t){0};
    }
    size_t offset = (uintptr_t)ptr - span->base;
    umf_jemalloc_page_t *page = umf_jemalloc_page_of(span->cookie, offset);
    const uint8_t *state = umf_jemalloc_state_of(page, offset);
    if (state && umf_state(state) == UMF_STATE_LIVE) {
        return (umf_block_room_t){umf_jemalloc_sizes.size[umf_jemalloc_page_kind(page) - 1], page};
    }
    size_t pages = offset % UMF_PAGE_SIZE ? 0 : umf_jemalloc_block_pages(page);
    return (umf_block_room_t){pages << UMF_PAGE_SHIFT, page};
}

/* Can the block stay where it is? */
static bool fits_in_place(void *pool, void *ptr, void *page, size_t old, size_t size) {
    if (old <= BIN_LARGEST) { /* an object has one size: it stays unless half would be wasted */
        return size <= old && size > old / 2;
    }
    if (size > old) {
        return umf_jemalloc_block_grow(pool, ptr, page, old, size);
    }
    return size > BIN_LARGEST &&
           (old - size < UMF_PAGE_SIZE || umf_jemalloc_block_shrink(pool, ptr, page, old, size));
}

static umf_content_t *content(void *pool) {
    return &((umf_jemalloc_pool_t *)pool)->content;
}

static const umf_block_ops_t jemalloc_blocks = {
    .malloc = jemalloc_malloc,
    .free = jemalloc_free,
    .usable = usable_size,
    .fits = fits_in_place,
    .refuse = refuse,
    .fail = umf_jemalloc_fail,
    .content = content,
};

UMF_BLOCK_OPS(jemalloc)

/* --- create and destroy --- */

static uint32_t index_of(const umf_pages_t *pages) {
    return umf_starts_index(umf_tracked_magazine_index(pages->tracked));
}

/* The provider may hand the same memory out again at once: no page record may then lead to the
 * states of now. Frees in a span that it refuses take the longer way. */
static void states_leave(const umf_pages_t *pages, umf_pages_span_t *span) {
    umf_starts_withdraw(umf_jemalloc_page_of(span, 0),
                        atomic_load_explicit(&span->own, memory_order_relaxed), span->base,
                        index_of(pages));
}

static void states_drop(const umf_pages_t *pages, umf_pages_span_t *span) {
    umf_starts_drop(umf_jemalloc_page_of(span, 0),
                    atomic_load_explicit(&span->own, memory_order_relaxed), span->base,
                    index_of(pages));
}

static const umf_pages_ops_t pages_ops = {states_leave, states_drop};

/* The public header requires a provider that can split, although the page cache divides spans
 * without it. */
static umf_result_t check_split(umf_memory_provider_handle_t provider, size_t page) {
    if (umf_provider_can_split(provider, page) != UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return UMF_RESULT_SUCCESS;
    }
    const char *name = NULL;
    umfMemoryProviderGetName(provider, &name);
    UMF_LOG_ERROR(
        "provider %s cannot split allocations, a jemalloc pool needs that; use a disjoint "
        "or proxy pool",
        name ? name : "?");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t check_provider(umf_memory_provider_handle_t provider, size_t *page) {
    umf_result_t result = umf_provider_page_size(provider, page);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("the provider does not report its smallest page: %s", umfResultName(result));
        return result;
    }
    if (*page > SIZE_MAX / 4) {
        UMF_LOG_ERROR("the provider's smallest page is %zu bytes", *page);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return check_split(provider, *page);
}

static umf_result_t check_params(const umf_jemalloc_pool_params_t *params) {
    if (params->num_arenas > UMF_JEMALLOC_ARENAS_MAX) {
        UMF_LOG_ERROR("%zu arenas wanted, jemalloc has at most %d", params->num_arenas,
                      UMF_JEMALLOC_ARENAS_MAX);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_jemalloc_sizes_start();
}

static umf_result_t pool_build(umf_jemalloc_pool_t *pool, const umf_jemalloc_pool_params_t *params,
                               umf_memory_provider_handle_t provider, size_t page) {
    umf_result_t result = umf_tracked_acquire(provider, &pool->tracked);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_magazines_init(&pool->magazines, umf_tracked_magazine_index(pool->tracked), pool,
                                &jemalloc_magazine_ops, umf_jemalloc_sizes.capacity,
                                umf_jemalloc_sizes.bins, DEPOT_BATCHES);
    if (result != UMF_RESULT_SUCCESS) {
        umf_tracked_release(pool->tracked);
        return result;
    }
    pool->magazines.bytes_max = params->thread_cache;
    umf_content_init(&pool->content, pool->tracked);
    umf_pages_init(&pool->pages, pool->tracked, page, sizeof(umf_jemalloc_page_t), &pages_ops);
    umf_lock_init(&pool->lock, UMF_RANK_ARENA);
    pool->starts = (umf_starts_pool_t){
        .sizes = &umf_jemalloc_sizes.starts,
        .lock = &pool->lock,
        .index = umf_starts_index(umf_tracked_magazine_index(pool->tracked)),
        .bins = umf_jemalloc_sizes.bins,
    };
    pool->hooks = jemalloc_hooks;
    memcpy(pool->name, params->name, sizeof(pool->name));
    umf_arenas_init(&pool->arenas, &pool->lock, &pool->hooks, pool->name,
                    params->num_arenas ? (uint32_t)params->num_arenas
                                       : umf_jemalloc_sizes.default_arenas);
    return UMF_RESULT_SUCCESS;
}

/* Nothing is taken from the provider or from jemalloc before the first allocation. */
static umf_result_t jemalloc_initialize(umf_memory_provider_handle_t provider, const void *params,
                                        void **self) {
    const umf_jemalloc_pool_params_t *request =
        umf_params_or_defaults(&umf_jemalloc_pool_params_kind, params, "umfPoolCreate");
    if (!request) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t page = 0;
    if (!provider || !self) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = check_params(request);
    if (result == UMF_RESULT_SUCCESS) {
        result = check_provider(provider, &page);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_jemalloc_pool_t *pool = umf_meta_alloc(sizeof(*pool));
    if (!pool) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = pool_build(pool, request, provider, page);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(pool, sizeof(*pool));
        return result;
    }
    *self = pool;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t jemalloc_finalize(void *self) {
    umf_jemalloc_pool_t *pool = self;
    umf_magazines_fini(&pool->magazines); /* waits for ending threads */
    pool->is_closing = true;
    bool is_unused = umf_arenas_fini(&pool->arenas);
    umf_result_t result = umf_pages_fini(&pool->pages);
    umf_tracked_release(pool->tracked);
    umf_lock_destroy(&pool->lock);
    if (is_unused) { /* otherwise jemalloc may still call the hooks, which are in the object */
        umf_meta_free(pool, sizeof(*pool));
    }
    return result;
}

/* --- the rest of the table --- */

UMF_POOL_GET_NAME(jemalloc, umf_jemalloc_pool_t, name, umf_jemalloc_pool_params)

static umf_result_t jemalloc_trim(void *self, size_t keep) {
    (void)keep;
    umf_jemalloc_pool_t *pool = self;
    umf_magazines_trim(&pool->magazines);
    umf_arenas_purge(&pool->arenas);
    umf_pages_trim(&pool->pages);
    return UMF_RESULT_SUCCESS;
}

/* Either part may be below 0: a block that was counted as an object is freed as a block, and the
 * other way round (refill_without_arena, block_release). */
static size_t jemalloc_alloc_count(void *self) {
    umf_jemalloc_pool_t *pool = self;
    int64_t count = umf_magazines_balance(&pool->magazines) + umf_pages_counted(&pool->pages);
    return count > 0 ? (size_t)count : 0;
}

UMF_BLOCK_MAGAZINES(jemalloc, umf_jemalloc_pool_t)

static void jemalloc_set_served_inline(void *self, bool may) {
    umf_magazines_check(&((umf_jemalloc_pool_t *)self)->magazines, may);
}

static const umf_memory_pool_ops_t jemalloc_ops = {
    UMF_POOL_OPS(jemalloc),
    .get_name = jemalloc_get_name,
    .ext_trim_memory = jemalloc_trim,
};

static const umf_small_sizes_t *jemalloc_small(void *self) {
    (void)self;
    return &umf_jemalloc_sizes.small;
}

extern const umf_pool_fast_ops_t umf_jemalloc_pool_fast_ops;
static void jemalloc_walk(void *self, const umf_span_t *span, umf_walk_t *walk) {
    umf_jemalloc_pool_t *pool = self;
    umf_pages_walk(&pool->pages, &pool->lock, span, walk);
}

static const umf_view_kind_t jemalloc_view = {
    .name = "jemalloc",
    .how = UMF_VIEW_PAGES,
    .pages =
        {
            UMF_STARTS_VIEW(umf_jemalloc_sizes),
            .records = offsetof(umf_pages_span_t, records),
            .shift = UMF_VIEW_NONE,
            .own = offsetof(umf_starts_t, own),
            .kinds = UMF_JEMALLOC_BINS_MAX,
        },
};

const umf_pool_fast_ops_t umf_jemalloc_pool_fast_ops = {
    .free_at = jemalloc_free_at,
    .usable_size_at = jemalloc_usable_size_at,
    .try_free = jemalloc_try_free,
    .alloc_count = jemalloc_alloc_count,
    .tick = jemalloc_tick,
    .thread_cache = jemalloc_thread_cache,
    .small = jemalloc_small,
    .set_served_inline = jemalloc_set_served_inline,
    .walk = jemalloc_walk,
    .view = &jemalloc_view,
};

UMF_API_1_0 const umf_memory_pool_ops_t *umfJemallocPoolOps(void) {
    return &jemalloc_ops;
}

UMF_POOL_DESCRIPTOR(jemalloc, .ops = &jemalloc_ops,
                    .params_from_text = umf_jemalloc_pool_params_from_text,
                    .params_destroy = umf_jemalloc_pool_params_destroy,
                    .probe = umf_jemalloc_sizes_probe);
