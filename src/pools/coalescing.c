/*
 * The coalescing pool: best fit with splitting and immediate coalescing (ds/range.h) over large
 * spans of the provider. All bookkeeping is out of line.
 *
 * There are no magazines in front: a block that waits in a thread's stack neither coalesces nor
 * serves another size, which is what this pool is for. What a thread frees and gets again is served
 * without the lock all the same (pools/coalescing_hot.h).
 *
 * A span is withdrawn from the range before it goes to the provider, and added after it came from
 * there; the provider is called without the lock.
 */
#include <errno.h>
#include <sched.h>

#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "pools/coalescing_hot.h"

#define GROWTH_PARTS 16              /* a new span has this part of what is held ... */
#define GROWTH_MAX ((size_t)1 << 30) /* ... up to this */

#define SPAN_PAGES 8 /* where whole pages for one block were a waste */
#define PAGE_MAX (SIZE_MAX / 16)

typedef umf_coalescing_pool_t coalescing_pool_t;

static __thread umf_result_t coalescing_last_error;

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static UMF_COLD void *fail(umf_result_t result) {
    coalescing_last_error = result;
    return NULL;
}

static UMF_COLD umf_result_t refuse(const coalescing_pool_t *pool, const void *ptr) {
    UMF_LOG_ERROR("pool %s: %p is not the start of a live allocation: it is inside one, was freed "
                  "already, or was never allocated",
                  pool->params.name, ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* --- giving spans back ------------------------------------------------------------------------ */

typedef struct choice_t {
    size_t limit;
    uintptr_t base;
    size_t size; /* 0: none yet */
} choice_t;

static void choose_largest(uintptr_t base, size_t size, void *arg) {
    choice_t *choice = arg;
    if (size <= choice->limit && size > choice->size) {
        choice->base = base;
        choice->size = size;
    }
}

/* Takes the largest wholly free span of up to `limit` bytes out of the pool. */
static bool span_withdraw(coalescing_pool_t *pool, size_t limit, choice_t *choice) {
    *choice = (choice_t){.limit = limit};
    umf_lock(&pool->lock);
    umf_coalescing_reclaim_locked(pool);
    umf_range_free_spans(pool->range, choose_largest, choice);
    if (choice->size) {
        umf_range_remove(pool->range, choice->base);
    }
    umf_unlock(&pool->lock);
    return choice->size > 0;
}

static umf_result_t span_return(coalescing_pool_t *pool, uintptr_t base, size_t size) {
    umf_span_t *span = umf_view_find(pool->view, (void *)base);
    if (!span) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    int saved_errno = errno;
    umf_result_t result = umf_view_free(pool->view, span);
    errno = saved_errno;
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR(
            "pool %s: the provider does not take back %zu bytes at %p (%s); the pool goes "
            "on using them",
            pool->params.name, size, (void *)base, umfResultName(result));
        umf_lock(&pool->lock);
        umf_range_add(pool->range, base,
                      size); /* the end of the pool offers it again in any case */
        umf_unlock(&pool->lock);
    }
    return result;
}

/* Gives up to `bytes` of wholly free spans back, in large steps; until the provider refuses. */
static UMF_COLD void release(coalescing_pool_t *pool, size_t bytes) {
    choice_t choice;
    while (span_withdraw(pool, bytes, &choice) &&
           span_return(pool, choice.base, choice.size) == UMF_RESULT_SUCCESS) {
        bytes -= choice.size;
    }
}

/* --- dropping the content of free pieces ------------------------------------------------------ */

static bool is_held_locked(coalescing_pool_t *pool, const void *ptr) {
    umf_assert_locked(&pool->lock);
    for (size_t i = 0; i < pool->held_count; i++) {
        if (pool->held[i].base == (uintptr_t)ptr) {
            return true;
        }
    }
    return false;
}

static void unhold_locked(coalescing_pool_t *pool) {
    umf_assert_locked(&pool->lock);
    for (size_t i = 0; i < pool->held_count; i++) {
        umf_range_free(pool->range, pool->held[i].base, 0, NULL);
    }
    pool->held_count = 0;
}

/* The next free pieces from high addresses to low; one thread at a time gets any. */
static size_t hold(coalescing_pool_t *pool, uintptr_t *cursor) {
    size_t count = 0;
    umf_lock(&pool->lock);
    if (pool->held_count && pool->held_since != umf_fork_count()) {
        unhold_locked(pool);
    }
    if (pool->held_count == 0) {
        count = umf_range_take_free(pool->range, cursor, pool->page, pool->held,
                                    UMF_COALESCING_PURGE_BATCH);
        pool->held_count = count;
        pool->held_since = umf_fork_count();
    }
    umf_unlock(&pool->lock);
    return count;
}

static void unhold(coalescing_pool_t *pool) {
    umf_lock(&pool->lock);
    unhold_locked(pool);
    umf_unlock(&pool->lock);
}

static bool is_trim_at_work(coalescing_pool_t *pool) {
    umf_lock(&pool->lock);
    bool is_at_work = pool->held_count && pool->held_since == umf_fork_count();
    umf_unlock(&pool->lock);
    return is_at_work;
}

/* false: the provider cannot. */
static bool purge_piece(coalescing_pool_t *pool, const umf_range_piece_t *piece) {
    uintptr_t end = piece->base + piece->size;
    uintptr_t rest = piece->base % pool->page;
    uintptr_t first = piece->base + (rest ? pool->page - rest : 0);
    end -= end % pool->page;
    if (first >= end) {
        return true;
    }
    umf_result_t result = umfMemoryProviderPurgeForce(pool->view, (void *)first, end - first);
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        result = umfMemoryProviderPurgeLazy(pool->view, (void *)first, end - first);
    }
    return result != UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static void purge(coalescing_pool_t *pool) {
    uintptr_t cursor = UINTPTR_MAX;
    bool can = true;
    for (size_t count; can && (count = hold(pool, &cursor)) > 0;) {
        for (size_t i = 0; can && i < count; i++) {
            can = purge_piece(pool, &pool->held[i]); /* nobody else changes them now */
        }
        unhold(pool);
    }
}

/* --- allocation ------------------------------------------------------------------------------- */

/* What is asked for, rounded. */
typedef struct request_t {
    size_t size;
    size_t alignment;
} request_t;

static umf_result_t take_locked(coalescing_pool_t *pool, const request_t *request, void **ptr) {
    umf_assert_locked(&pool->lock);
    uintptr_t base;
    umf_result_t result = umf_range_alloc(pool->range, request->size, request->alignment, &base);
    if (result == UMF_RESULT_SUCCESS) {
        pool->live++;
        *ptr = (void *)base;
    }
    return result;
}

static umf_result_t take(coalescing_pool_t *pool, const request_t *request, void **ptr) {
    umf_lock(&pool->lock);
    umf_result_t result = take_locked(pool, request, ptr);
    if (umf_unlikely(result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) &&
        umf_coalescing_reclaim_locked(pool)) {
        result = take_locked(pool, request, ptr);
    }
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        umf_coalescing_hot_meet_locked(pool, (uintptr_t)*ptr, request->size);
    }
    umf_unlock(&pool->lock);
    return result;
}

/* `size` bytes that start aligned; a provider that cannot align so far gives more. */
static umf_result_t span_alloc(coalescing_pool_t *pool, size_t *size, size_t alignment,
                               void **base) {
    umf_result_t result = umf_view_alloc(pool->view, *size, alignment, 0, NULL, base);
    size_t padded;
    if ((result != UMF_RESULT_ERROR_INVALID_ALIGNMENT && result != UMF_RESULT_ERROR_NOT_SUPPORTED &&
         result != UMF_RESULT_ERROR_INVALID_ARGUMENT) ||
        !umf_add(*size, alignment - 1, &padded) || !umf_round_up(padded, pool->page, &padded)) {
        return result;
    }
    result = umf_view_alloc(pool->view, padded, 0, 0, NULL, base);
    if (result == UMF_RESULT_SUCCESS) {
        *size = padded;
    }
    return result;
}

/* Serves the request from a new span of `size` bytes. */
static umf_result_t grow(coalescing_pool_t *pool, size_t size, const request_t *request,
                         void **ptr) {
    void *base = NULL;
    umf_result_t result = span_alloc(pool, &size, request->alignment, &base);
    if (result != UMF_RESULT_SUCCESS || !base) {
        return result != UMF_RESULT_SUCCESS ? result : UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_lock(&pool->lock);
    result = umf_range_add(pool->range, (uintptr_t)base, size);
    bool is_added = result == UMF_RESULT_SUCCESS;
    if (is_added) {
        result = take_locked(pool, request, ptr);
    }
    umf_unlock(&pool->lock);
    if (!is_added) {
        umf_view_free(pool->view, umf_view_find(pool->view, base));
    }
    return result;
}

/*
 * `least` is the request in whole pages. Large blocks often come in series of one size: a span has
 * room for a number of them and little rest, also where the provider's pages are large.
 */
static size_t span_size_for(coalescing_pool_t *pool, const request_t *request, size_t least) {
    umf_lock(&pool->lock);
    size_t growth = umf_range_total_bytes(pool->range) / GROWTH_PARTS;
    umf_unlock(&pool->lock);
    growth = growth < GROWTH_MAX ? growth : GROWTH_MAX;
    bool is_wasteful = least - request->size > request->size / GROWTH_PARTS;
    growth = is_wasteful ? larger(growth, SPAN_PAGES * pool->page) : growth;
    size_t series = growth - growth % request->size;
    size_t size = larger(larger(series, least), pool->params.span_size);
    return umf_round_up(size, pool->page, &size) ? size : least;
}

static UMF_COLD void *alloc_slow(coalescing_pool_t *pool, const request_t *request) {
    size_t least;
    if (!umf_round_up(request->size, pool->page, &least)) {
        return fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    void *ptr = NULL;
    size_t size = span_size_for(pool, request, least);
    release(pool, size);
    umf_result_t result = grow(pool, size, request, &ptr);
    if (result != UMF_RESULT_SUCCESS) {
        release(pool, SIZE_MAX);
        /* Others may have freed something meanwhile. */
        if (take(pool, request, &ptr) != UMF_RESULT_SUCCESS) {
            result = grow(pool, least, request, &ptr);
        }
    }
    while (!ptr && is_trim_at_work(pool) && take(pool, request, &ptr) != UMF_RESULT_SUCCESS) {
        sched_yield();
    }
    return ptr ? ptr : fail(result);
}

static __attribute__((noinline)) void *alloc_locked(coalescing_pool_t *pool,
                                                    const request_t *request) {
    void *ptr = NULL;
    umf_result_t result = take(pool, request, &ptr);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        return ptr;
    }
    return result == UMF_RESULT_ERROR_OUT_OF_RESOURCES ? alloc_slow(pool, request) : fail(result);
}

static inline void *alloc(coalescing_pool_t *pool, size_t size, size_t alignment) {
    request_t request = {.alignment = alignment};
    if (umf_unlikely(!umf_add(size ? size : 1, pool->params.granule - 1, &request.size))) {
        return fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    request.size = umf_align_down(request.size, pool->params.granule);
    void *ptr =
        alignment == pool->params.granule ? umf_coalescing_hot_take(pool, request.size) : NULL;
    return ptr ? ptr : alloc_locked(pool, &request);
}

static void *coalescing_malloc(void *self, size_t size) {
    coalescing_pool_t *pool = self;
    return alloc(pool, size, pool->params.granule);
}

static void *coalescing_aligned_malloc(void *self, size_t size, size_t alignment) {
    coalescing_pool_t *pool = self;
    if (alignment != 0 && !umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("pool %s: alignment %zu is not a power of two", pool->params.name, alignment);
        return fail(UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    }
    return alloc(pool, size, alignment > pool->params.granule ? alignment : pool->params.granule);
}

/* --- free ------------------------------------------------------------------------------------- */

static __attribute__((noinline)) umf_result_t put_locked(coalescing_pool_t *pool, void *ptr) {
    umf_coalescing_hot_blocks_t *hot = umf_coalescing_hot_blocks_made(pool);
    umf_range_freed_t freed;
    umf_lock(&pool->lock);
    umf_result_t result = umf_unlikely(pool->held_count) && is_held_locked(pool, ptr)
                              ? UMF_RESULT_ERROR_INVALID_ARGUMENT
                              : umf_range_free(pool->range, (uintptr_t)ptr, 0, &freed);
    bool is_surplus = false;
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        pool->live--;
        is_surplus =
            freed.whole_span && umf_range_free_span_bytes(pool->range) > pool->params.retain;
        if (umf_unlikely(is_surplus)) {
            umf_range_remove(pool->range, freed.free_base);
        } else if (umf_likely(hot != NULL)) {
            umf_coalescing_hot_note_locked(pool, hot, (uintptr_t)ptr, freed.size);
        }
    }
    umf_unlock(&pool->lock);
    if (umf_unlikely(is_surplus)) {
        span_return(pool, freed.free_base, freed.free_size);
    }
    return umf_likely(result == UMF_RESULT_SUCCESS) ? result : refuse(pool, ptr);
}

static inline umf_result_t put(coalescing_pool_t *pool, void *ptr) {
    return umf_likely(umf_coalescing_hot_put(pool, ptr)) ? UMF_RESULT_SUCCESS
                                                         : put_locked(pool, ptr);
}

static umf_result_t coalescing_free_at(void *self, void *ptr, umf_word_t word) {
    (void)word;
    return put(self, ptr);
}

static umf_result_t coalescing_free(void *self, void *ptr) {
    return ptr ? put(self, ptr) : UMF_RESULT_SUCCESS;
}

/* --- sizes, and content ----------------------------------------------------------------------- */

/* 0: no live allocation starts there. */
static size_t usable_size(coalescing_pool_t *pool, const void *ptr) {
    umf_lock(&pool->lock);
    size_t size = is_held_locked(pool, ptr) ? 0 : umf_range_used_size(pool->range, (uintptr_t)ptr);
    umf_unlock(&pool->lock);
    return size;
}

static umf_result_t coalescing_usable_size(void *self, const void *ptr, size_t *size) {
    if (!size) {
        UMF_LOG_ERROR("size is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t room = ptr ? usable_size(self, ptr) : 0;
    if (ptr && !room) {
        return refuse(self, ptr);
    }
    *size = room;
    return UMF_RESULT_SUCCESS;
}

static void *coalescing_calloc(void *self, size_t num, size_t size) {
    coalescing_pool_t *pool = self;
    size_t bytes;
    if (!umf_mul(num, size, &bytes)) {
        return fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    void *ptr = coalescing_malloc(pool, bytes);
    if (!ptr) {
        return NULL;
    }
    umf_result_t result = umf_content_zero(&pool->content, ptr, bytes);
    if (result != UMF_RESULT_SUCCESS) {
        put(pool, ptr);
        return fail(result);
    }
    return ptr;
}

/* Frees the tail of a block. false: there is none, or no memory to tell it apart. */
static bool shrink(coalescing_pool_t *pool, void *ptr, size_t old, size_t size) {
    size_t keep = umf_align_up(size, pool->params.granule);
    if (keep >= old) {
        return keep == old;
    }
    umf_lock(&pool->lock);
    bool is_split = umf_range_split(pool->range, (uintptr_t)ptr, old, keep) == UMF_RESULT_SUCCESS;
    if (is_split) {
        umf_range_free(pool->range, (uintptr_t)ptr + keep, old - keep, NULL);
    }
    umf_unlock(&pool->lock);
    return is_split;
}

static void *move(coalescing_pool_t *pool, void *ptr, size_t old, size_t size) {
    void *moved = coalescing_malloc(pool, size);
    if (!moved) {
        return NULL;
    }
    umf_result_t result = umf_content_copy(&pool->content, moved, ptr, old < size ? old : size);
    put(pool, result == UMF_RESULT_SUCCESS ? ptr : moved);
    return result == UMF_RESULT_SUCCESS ? moved : fail(result);
}

static void *coalescing_realloc(void *self, void *ptr, size_t size) {
    coalescing_pool_t *pool = self;
    if (!ptr) {
        return coalescing_malloc(pool, size);
    }
    if (size == 0) {
        umf_result_t result = put(pool, ptr);
        return result == UMF_RESULT_SUCCESS ? NULL : fail(result);
    }
    size_t old = usable_size(pool, ptr);
    if (!old) {
        return fail(refuse(pool, ptr));
    }
    return size <= old && shrink(pool, ptr, old, size) ? ptr : move(pool, ptr, old, size);
}

/* --- life ------------------------------------------------------------------------------------- */

static umf_result_t read_page(coalescing_pool_t *pool) {
    umf_result_t result = umfMemoryProviderGetMinPageSize(pool->view, NULL, &pool->page);
    if (result != UMF_RESULT_SUCCESS || pool->page == 0 || pool->page > PAGE_MAX) {
        UMF_LOG_ERROR("the provider does not tell its smallest page: %s", umfResultName(result));
        return result != UMF_RESULT_SUCCESS ? result : UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t pool_build(coalescing_pool_t *pool, umf_memory_provider_handle_t provider) {
    umf_result_t result = umf_view_acquire(provider, &pool->view);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = read_page(pool);
    if (result != UMF_RESULT_SUCCESS) {
        goto view;
    }
    pool->range = umf_range_create();
    if (!pool->range) {
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        goto view;
    }
    umf_coalescing_choose_defaults(pool);
    result = umf_coalescing_hot_init(pool);
    if (result != UMF_RESULT_SUCCESS) {
        goto range;
    }
    umf_content_init(&pool->content, pool->view);
    umf_lock_init(&pool->lock, UMF_RANK_PAGES);
    return UMF_RESULT_SUCCESS;

range:
    umf_range_destroy(pool->range);
view:
    umf_view_release(pool->view);
    return result;
}

/* Nothing is taken from the provider before the first allocation. */
static umf_result_t coalescing_initialize(umf_memory_provider_handle_t provider, const void *params,
                                          void **out) {
    if (!provider || !out) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    coalescing_pool_t *pool = umf_meta_alloc(sizeof(*pool));
    if (!pool) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    pool->params =
        params ? *(const umf_coalescing_pool_params_t *)params : umf_coalescing_default_params;
    umf_result_t result = pool_build(pool, provider);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(pool, sizeof(*pool));
        return result;
    }
    *out = pool;
    return UMF_RESULT_SUCCESS;
}

static void note_any(umf_span_t *span, void *found) {
    *(umf_span_t **)found = span;
}

/* Whatever is in use; the provider's first error. */
static umf_result_t spans_free(coalescing_pool_t *pool) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (umf_span_t *span; result == UMF_RESULT_SUCCESS;) {
        span = NULL;
        umf_view_each_span(pool->view, note_any, &span);
        if (!span) {
            break;
        }
        result = umf_view_free(pool->view, span);
    }
    return result;
}

static umf_result_t coalescing_finalize(void *self) {
    coalescing_pool_t *pool = self;
    umf_local_owner_fini(&pool->hot);
    umf_content_fini(&pool->content);
    umf_result_t result = spans_free(pool);
    umf_range_destroy(pool->range);
    umf_lock_destroy(&pool->lock);
    umf_view_release(pool->view);
    umf_meta_free(pool, sizeof(*pool));
    return result;
}

/* --- the rest of the table -------------------------------------------------------------------- */

static umf_result_t coalescing_last_allocation_error(void *self) {
    (void)self;
    return coalescing_last_error;
}

static umf_result_t coalescing_trim(void *self, size_t keep) {
    coalescing_pool_t *pool = self;
    umf_lock(&pool->lock);
    umf_coalescing_reclaim_locked(pool);
    size_t bytes = umf_range_free_span_bytes(pool->range);
    umf_unlock(&pool->lock);
    if (bytes > keep) {
        release(pool, bytes - keep);
    }
    if (keep != SIZE_MAX) {
        purge(pool);
    }
    return UMF_RESULT_SUCCESS;
}

static size_t coalescing_alloc_count(void *self) {
    coalescing_pool_t *pool = self;
    umf_lock(&pool->lock);
    umf_coalescing_reclaim_locked(pool);
    size_t live = pool->live;
    umf_unlock(&pool->lock);
    return live;
}

/* --- tables ----------------------------------------------------------------------------------- */

static const umf_memory_pool_ops_t coalescing_ops = {
    .version = UMF_POOL_OPS_VERSION_CURRENT,
    .initialize = coalescing_initialize,
    .finalize = coalescing_finalize,
    .malloc = coalescing_malloc,
    .calloc = coalescing_calloc,
    .realloc = coalescing_realloc,
    .aligned_malloc = coalescing_aligned_malloc,
    .malloc_usable_size = coalescing_usable_size,
    .free = coalescing_free,
    .get_last_allocation_error = coalescing_last_allocation_error,
    .get_name = umf_coalescing_get_name,
    .ext_ctl = umf_coalescing_ctl,
    .ext_trim_memory = coalescing_trim,
};

UMF_API_EXT_1 const umf_memory_pool_ops_t *umfCoalescingPoolOps(void) {
    return &coalescing_ops;
}

extern const umf_pool_fast_ops_t umf_coalescing_pool_fast_ops;
const umf_pool_fast_ops_t umf_coalescing_pool_fast_ops = {
    .free_at = coalescing_free_at,
    .alloc_count = coalescing_alloc_count,
};

extern const umf_memory_pool_descriptor_t umf_coalescing_pool_descriptor;
const umf_memory_pool_descriptor_t umf_coalescing_pool_descriptor = {
    .struct_size = sizeof(umf_coalescing_pool_descriptor),
    .name = "coalescing",
    .ops = &coalescing_ops,
    .params_from_text = umf_coalescing_params_from_text,
    .params_destroy = umf_coalescing_params_destroy,
};
