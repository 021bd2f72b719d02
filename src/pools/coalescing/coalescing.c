/*
 * The coalescing pool: best fit with splitting and immediate coalescing (ds/range.h) over large
 * spans of the provider. All bookkeeping is out of line.
 *
 * Threads that contend go to different shards (pools/coalescing/shards.h). A request that does not
 * fit in the thread's own shard is tried in every other shard before the provider is called. For a
 * small request, a span that another shard does not use moves to the thread's shard as a whole, so
 * that each thread comes to have what it needs in its own shard. Small requests do not wait for the
 * locks of other shards. If these are taken, or if the thread has contended and a good part of the
 * pool's memory is in use, the pool grows by one span of the smallest size instead.
 *
 * There are no magazines in front: a block in a thread's stack neither coalesces nor serves another
 * size, which is the purpose of this pool. A block that a thread frees and allocates again is still
 * served without a lock (pools/coalescing/reuse.h).
 *
 * A span is taken out of the range before it goes to the provider, and is added after it came from
 * there. The provider is called without a lock.
 */

#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing/arena/arena.h"
#include "pools/coalescing/release.h"
#include "pools/shared/block_ops.h"
#include "pools/shared/kind.h"
#include "reclaim/reclaim.h"

/* A new span has 1 / GROWTH_PARTS of the pool's memory, up to GROWTH_MAX. */
#define GROWTH_PARTS 16
#define GROWTH_MAX ((size_t)1 << 30)

#define SPAN_SHARD_SMALL 8 /* a request is small up to 1/8 of a span */
#define WELL_USED_PARTS 3  /* a pool is well used if 1/3 of its memory is in use */

#define SPAN_PAGES 8 /* size of a span if whole pages for one block would be wasteful */
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

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static UMF_COLD umf_result_t refuse(const void *pool, const void *ptr) {
    return umf_block_refuse(((const coalescing_pool_t *)pool)->params.name, ptr);
}

/* --- allocation ------------------------------------------------------------------------------- */

/* A request, rounded to the granule. */
typedef struct request_t {
    size_t size;
    size_t alignment;
} request_t;

static umf_result_t take_locked(shard_t *shard, const request_t *request, void **ptr) {
    umf_assert_locked(&shard->lock);
    uintptr_t base;
    umf_result_t result = umf_range_alloc(shard->range, request->size, request->alignment, &base);
    if (result == UMF_RESULT_SUCCESS) {
        shard->live++;
        *ptr = (void *)base;
    }
    return result;
}

UMF_INLINE umf_result_t take_and_unlock(coalescing_pool_t *pool, shard_t *shard,
                                        const request_t *request, void **ptr) {
    umf_result_t result = take_locked(shard, request, ptr);
    /* Reserved blocks count as free: before the shard reports that nothing fits, they are. */
    if (umf_unlikely(result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) &&
        umf_coalescing_reclaim_locked(shard)) {
        result = take_locked(shard, request, ptr);
    }
    umf_unlock(&shard->lock);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        umf_coalescing_reuse_note(pool, shard, (uintptr_t)*ptr, request->size);
    }
    return result;
}

/* Takes from another shard than `own`. false: some shards were not tried because their locks were
 * taken. */
static bool take_elsewhere(coalescing_pool_t *pool, const shard_t *own, const request_t *request,
                           bool may_block, void **ptr) {
    bool are_asked = true;
    for (shard_t *shard = umf_coalescing_shard_next(pool, own); shard != own;
         shard = umf_coalescing_shard_next(pool, shard)) {
        if (may_block) {
            umf_lock(&shard->lock);
        } else if (!umf_trylock(&shard->lock)) {
            umf_coalescing_shard_note_contention(pool);
            are_asked = false;
            continue;
        }
        if (take_and_unlock(pool, shard, request, ptr) == UMF_RESULT_SUCCESS) {
            umf_coalescing_shard_found(pool, shard);
            return true;
        }
    }
    return are_asked;
}

static void choose_smallest_with_room(uintptr_t base, size_t size, void *arg) {
    umf_coalescing_choice_t *choice = arg;
    if (size >= choice->limit && (!choice->size || size < choice->size)) {
        choice->base = base;
        choice->size = size;
    }
}

/* Moves a wholly free span with room from one shard to another. false: there is none. */
static bool move_span_locked(coalescing_pool_t *pool, shard_t *from, shard_t *to,
                             const request_t *request) {
    umf_assert_locked(&from->lock);
    umf_assert_locked(&to->lock);
    /* Room for the request at any alignment of the span. */
    umf_coalescing_choice_t choice = {.limit = request->size + request->alignment};
    if (umf_range_free_region_bytes(from->range) < choice.limit) {
        return false;
    }
    umf_range_free_regions(from->range, choose_smallest_with_room, &choice);
    umf_span_t *span = choice.size ? umf_tracked_find(pool->tracked, (void *)choice.base) : NULL;
    if (!span || umf_range_add(to->range, choice.base, choice.size) != UMF_RESULT_SUCCESS) {
        return false;
    }
    umf_range_remove(from->range, choice.base);
    umf_coalescing_shard_own(to, span);
    return true;
}

/*
 * Serves a small request from a span that its shard does not use. NULL: there is none.
 *
 * The own shard is tried again first: another thread may have freed something since. A needless
 * move would leave a wholly free span that is not checked against `retain`.
 */
static void *take_moved(coalescing_pool_t *pool, shard_t *own, const request_t *request) {
    void *ptr = NULL;
    umf_lock(&own->lock);
    take_locked(own, request, &ptr);
    for (shard_t *shard = umf_coalescing_shard_next(pool, own); shard != own && !ptr;
         shard = umf_coalescing_shard_next(pool, shard)) {
        if (umf_trylock(&shard->lock)) {
            if (move_span_locked(pool, shard, own, request)) {
                take_locked(own, request, &ptr);
            }
            umf_unlock(&shard->lock);
        }
    }
    umf_unlock(&own->lock);
    return ptr;
}

/* Allocates an aligned span of `size` bytes. If the provider cannot align beyond its pages, the
 * span is so much larger that an aligned block of `size` bytes fits, and `size` is what it has. */
static umf_result_t span_alloc(coalescing_pool_t *pool, const shard_t *shard, size_t *size,
                               size_t alignment, void **base) {
    void *cookie = (void *)(uintptr_t)shard->index;
    umf_result_t result = umf_tracked_alloc(pool->tracked, *size, alignment, 0, cookie, base);
    size_t padded;
    if (!umf_tracked_cannot_align(result) || alignment <= pool->page ||
        !umf_add(*size, alignment - 1, &padded) || !umf_round_up(padded, pool->page, &padded)) {
        return result;
    }
    result = umf_tracked_alloc(pool->tracked, padded, 0, 0, cookie, base);
    if (result == UMF_RESULT_SUCCESS) {
        *size = padded;
    }
    return result;
}

/* Serves the request from a new span of `size` bytes. */
static umf_result_t span_add(coalescing_pool_t *pool, shard_t *shard, size_t size,
                             const request_t *request, void **ptr) {
    void *base = NULL;
    umf_result_t result = span_alloc(pool, shard, &size, request->alignment, &base);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&shard->lock);
    result = umf_range_add(shard->range, (uintptr_t)base, size);
    bool is_added = result == UMF_RESULT_SUCCESS;
    if (is_added) {
        result = take_locked(shard, request, ptr);
    }
    umf_unlock(&shard->lock);
    if (!is_added) {
        umf_tracked_free(pool->tracked, umf_tracked_find(pool->tracked, base));
    } else if (pool->params.retain != SIZE_MAX) {
        /* Another thread may have freed a block meanwhile that served the request, so the new span
         * may be wholly free. */
        umf_coalescing_release_surplus(pool, shard, (uintptr_t)base);
    }
    return result;
}

static umf_result_t grow(coalescing_pool_t *pool, shard_t *shard, size_t size,
                         const request_t *request, void **ptr) {
    umf_transit_part_t part;
    umf_transit_begin(&pool->transit, &part);
    umf_result_t result = span_add(pool, shard, size, request, ptr);
    umf_transit_end(&part);
    return result;
}

/*
 * The size of the next span. `least` is the request in whole pages.
 *
 * Large blocks often come in series of one size, so a span is a multiple of the request and little
 * of it remains unused. If the provider's pages are so large that whole pages for one block would
 * be wasteful, the span has at least SPAN_PAGES pages.
 */
static size_t span_size_for(coalescing_pool_t *pool, const request_t *request, size_t least) {
    size_t growth = umf_coalescing_bytes(pool) / GROWTH_PARTS;
    growth = growth < GROWTH_MAX ? growth : GROWTH_MAX;
    bool is_wasteful = least - request->size > request->size / GROWTH_PARTS;
    growth = is_wasteful ? larger(growth, SPAN_PAGES * pool->page) : growth;
    size_t series = growth - growth % request->size;
    size_t size = larger(larger(series, least), pool->params.span_size);
    return umf_round_up(size, pool->page, &size) ? size : least;
}

static void count_used(const shard_t *shard, size_t *bytes) {
    *bytes += umf_range_used_bytes(shard->range);
}

/* Would a new span have room for many such requests? */
static bool is_small(const coalescing_pool_t *pool, const request_t *request) {
    size_t limit = pool->params.span_size / SPAN_SHARD_SMALL;
    return request->size <= limit && request->alignment <= limit;
}

/* A good part of the pool's memory is in use, or the pool has not even a span for each shard: it
 * may grow although other shards have room. */
static bool is_well_used(coalescing_pool_t *pool) {
    size_t total = umf_coalescing_bytes(pool);
    return total < umf_coalescing_shards(pool) * pool->params.span_size ||
           umf_coalescing_count(pool, count_used) >= total / WELL_USED_PARTS;
}

/* Serves the request from a new span. `are_asked`: no shard had room. Then wholly free spans, which
 * are too small, are given back in exchange. If shards were not tried, they may still have room, so
 * the pool grows by the smallest span only. */
static umf_result_t take_new(coalescing_pool_t *pool, shard_t *shard, const request_t *request,
                             size_t least, bool are_asked, void **ptr) {
    size_t size = pool->params.span_size;
    if (!are_asked && umf_round_up(size, pool->page, &size)) {
        return grow(pool, shard, size, request, ptr);
    }
    size = span_size_for(pool, request, least);
    umf_coalescing_release(pool, size);
    return grow(pool, shard, size, request, ptr);
}

/* Takes from the first `count` shards, all of which are locked. NULL: the request fits in none. */
static shard_t *take_of_locked(coalescing_pool_t *pool, size_t count, const request_t *request,
                               void **ptr) {
    for (size_t i = 0; i < count; i++) {
        if (take_locked(pool->shards[i], request, ptr) == UMF_RESULT_SUCCESS) {
            return pool->shards[i];
        }
    }
    return NULL;
}

/* Takes from any shard. All locks are held at once, so that no free memory is missed because it
 * moves to a shard that was tried before. */
static void *take_anywhere(coalescing_pool_t *pool, const request_t *request) {
    void *ptr = NULL;
    size_t count = 0;
    for (shard_t *shard; (shard = umf_coalescing_shard(pool, count)); count++) {
        umf_lock(&shard->lock);
        umf_coalescing_reclaim_locked(shard);
    }
    shard_t *found = take_of_locked(pool, count, request, &ptr);
    while (count-- > 0) {
        umf_unlock(&umf_coalescing_shard(pool, count)->lock);
    }
    if (found) {
        umf_coalescing_reuse_note(pool, found, (uintptr_t)ptr, request->size);
    }
    return ptr;
}

/* A request that fails otherwise. */
typedef struct last_t {
    const request_t *request;
    shard_t *shard;
    size_t least; /* the smallest span that serves it */
    umf_result_t result;
    void *ptr;
} last_t;

static bool take_last(void *self, void *request) {
    coalescing_pool_t *pool = self;
    last_t *last = request;
    last->ptr = take_anywhere(pool, last->request);
    if (!last->ptr) {
        last->result = grow(pool, last->shard, last->least, last->request, &last->ptr);
    }
    return last->ptr != NULL;
}

/* Free memory that does not fit is returned to the provider, where it can be joined. */
static void give_back(void *pool) {
    umf_coalescing_release(pool, SIZE_MAX);
}

static UMF_COLD bool reclaim(coalescing_pool_t *pool, last_t *last) {
    umf_shortage_t shortage = {
        .tracked = pool->tracked,
        .transit = &pool->transit,
        .pool = pool,
        .give_back = give_back,
        .attempt = take_last,
        .request = last,
    };
    return umf_reclaim(&shortage);
}

static UMF_COLD void *alloc_slow(coalescing_pool_t *pool, shard_t *shard,
                                 const request_t *request) {
    size_t least;
    if (!umf_round_up(request->size, pool->page, &least)) {
        return coalescing_fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    umf_coalescing_decay(pool);
    umf_tracked_forget_refusal();
    /* A large request waits for the other shards, because a span for it alone is expensive. A small
     * one does not: a span serves many. */
    bool may_block = !is_small(pool, request);
    void *ptr = may_block ? NULL : take_moved(pool, shard, request);
    if (ptr) {
        return ptr;
    }
    bool is_contended = !may_block && umf_coalescing_shard_is_contended(pool);
    bool are_asked = !(is_contended && is_well_used(pool)) &&
                     take_elsewhere(pool, shard, request, may_block, &ptr);
    if (ptr) {
        return ptr;
    }
    last_t last = {.request = request, .shard = shard, .least = least};
    last.result = take_new(pool, shard, request, least, are_asked, &last.ptr);
    return last.ptr || reclaim(pool, &last) ? last.ptr : coalescing_fail(last.result);
}

/* By value: a request in memory would give its caller, which is hot, a stack frame to protect. */
static __attribute__((noinline)) void *alloc_locked(coalescing_pool_t *pool, size_t size,
                                                    size_t alignment) {
    const request_t request = {.size = size, .alignment = alignment};
    void *ptr = NULL;
    shard_t *shard = umf_coalescing_shard_lock(pool);
    umf_result_t result = take_and_unlock(pool, shard, &request, &ptr);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        return ptr;
    }
    return result == UMF_RESULT_ERROR_OUT_OF_RESOURCES ? alloc_slow(pool, shard, &request)
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

static __attribute__((noinline)) umf_result_t put_locked(coalescing_pool_t *pool, void *ptr,
                                                         umf_map_entry_t entry) {
    shard_t *shard = umf_coalescing_shard_of(pool, ptr, entry);
    umf_coalescing_thread_t *thread = umf_coalescing_reuse_room(pool, shard);
    umf_range_freed_t freed;
    umf_lock(&shard->lock);
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
        }
    }
    umf_unlock(&shard->lock);
    if (umf_unlikely(is_whole)) {
        umf_coalescing_release_surplus(pool, shard, freed.free_base);
    }
    return umf_likely(result == UMF_RESULT_SUCCESS) ? result : refuse(pool, ptr);
}

/* `entry`: the map entry of `ptr`, or 0 if it is not looked up. */
static inline umf_result_t put(coalescing_pool_t *pool, void *ptr, umf_map_entry_t entry) {
    return umf_likely(umf_coalescing_reuse_put(pool, ptr)) ? UMF_RESULT_SUCCESS
                                                           : put_locked(pool, ptr, entry);
}

static umf_result_t coalescing_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    return put(self, ptr, entry);
}

static umf_result_t coalescing_free(void *self, void *ptr) {
    return ptr ? put(self, ptr, 0) : UMF_RESULT_SUCCESS;
}

/* --- sizes, and content ----------------------------------------------------------------------- */

/* The size of the live allocation that starts at `ptr`; 0: none does. `entry`: as in `put`. */
static size_t usable_size(void *self, const void *ptr, umf_map_entry_t entry, void **note) {
    coalescing_pool_t *pool = self;
    (void)note;
    shard_t *shard = umf_coalescing_shard_of(pool, ptr, entry);
    umf_lock(&shard->lock);
    size_t size = is_isolated(shard, ptr) ? 0 : umf_range_used_size(shard->range, (uintptr_t)ptr);
    umf_unlock(&shard->lock);
    return size;
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
    return umf_coalescing_count(self, count_live);
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
