/*
 * The proxy pool: every allocation is an allocation of the provider. Its span is the only record.
 *
 * Over a provider that counts what pools keep (`reuse_count`), a pool that frees often keeps
 * dormant spans of up to 256 KiB in magazines, one bin for each number of pages. Threads then avoid
 * everything that they share on the way to the provider and back.
 */
#include <umf/pools/pool_proxy.h>

#include "base/log.h"
#include "base/meta.h"
#include "cache/magazine.h"
#include "cache/transit.h"
#include "object/walk.h"
#include "pools/shared/block_ops.h"
#include "pools/shared/kind.h"
#include "reclaim/reclaim.h"

#define PROXY_PAGE ((size_t)4096)
#define PROXY_BINS 64u  /* a bin is the pages of a span, less one */
#define PROXY_OFTEN 64u /* after so many frees the magazines are made */

typedef struct proxy_dormant_t {
    umf_magazines_t magazines; /* of dormant spans */
    umf_magazine_capacity_t capacity[PROXY_BINS];
} proxy_dormant_t;

typedef struct proxy_pool_t {
    umf_tracked_provider_t *tracked;
    bool may_be_dormant;                /* Immutable after create */
    _Atomic uint32_t frees;             /* counted up to PROXY_OFTEN */
    _Atomic(proxy_dormant_t *) dormant; /* made after PROXY_OFTEN frees; NULL: not yet */
    umf_transit_t transit;              /* dormant spans on their way to the provider */
} proxy_pool_t;

UMF_BLOCK_ERRORS(proxy)

/* --- dormant spans --- */

static proxy_dormant_t *dormant_of(const proxy_pool_t *pool) {
    return atomic_load_explicit(&pool->dormant, memory_order_acquire);
}

/* PROXY_BINS or more: a span of this size does not become dormant. */
static size_t bin_of(size_t size) {
    return (size - 1) / PROXY_PAGE;
}

static void dormant_flush(void *object, uint32_t bin, umf_item_t *spans, size_t n) {
    (void)bin;
    proxy_pool_t *pool = object;
    umf_transit_part_t part;
    umf_transit_begin(&pool->transit, &part);
    for (size_t i = 0; i < n; i++) {
        umf_tracked_free_dormant(pool->tracked, spans[i].object);
    }
    umf_transit_end(&part);
}

static bool dormant_decay(void *pool, bool is_new) {
    if (is_new) {
        umf_provider_drop_reusable(((proxy_pool_t *)pool)->tracked, true);
    }
    return false;
}

/* No refill: new spans come from the provider (alloc_anew). */
static const umf_magazine_ops_t dormant_ops = {.flush = dormant_flush, .decay_pass = dormant_decay};

static UMF_COLD void dormant_make(proxy_pool_t *pool) {
    proxy_dormant_t *dormant = umf_meta_alloc(sizeof(*dormant));
    if (!dormant) {
        return;
    }
    for (uint32_t bin = 0; bin < PROXY_BINS; bin++) {
        dormant->capacity[bin] = umf_magazine_capacity_large((bin + 1) * PROXY_PAGE);
    }
    if (umf_magazines_init(&dormant->magazines, umf_tracked_magazine_index(pool->tracked), pool,
                           &dormant_ops, dormant->capacity, PROXY_BINS,
                           UMF_MAGAZINE_DEPOT_BATCHES) != UMF_RESULT_SUCCESS) {
        umf_meta_free(dormant, sizeof(*dormant));
        return;
    }
    atomic_store_explicit(&pool->dormant, dormant, memory_order_release);
}

/* The magazines cost memory, so a pool that seldom frees does not get any. */
static void count_free(proxy_pool_t *pool) {
    if (atomic_load_explicit(&pool->frees, memory_order_relaxed) < PROXY_OFTEN &&
        atomic_fetch_add_explicit(&pool->frees, 1, memory_order_relaxed) == PROXY_OFTEN - 1) {
        dormant_make(pool);
    }
}

/* Takes a dormant span of this size. NULL: there is none, or it could not be recorded again. */
static void *wake(proxy_pool_t *pool, proxy_dormant_t *dormant, size_t size) {
    umf_span_t *span = umf_magazine_pop_stateless(&dormant->magazines, bin_of(size));
    if (umf_unlikely(span && !umf_tracked_wake(pool->tracked, span, size))) {
        umf_tracked_free_dormant(pool->tracked, span);
        span = NULL;
    }
    return span ? (void *)span->base : NULL;
}

/* --- life --- */

static umf_result_t proxy_initialize(umf_memory_provider_handle_t provider, const void *params,
                                     void **out) {
    (void)params;
    proxy_pool_t *pool = umf_meta_alloc(sizeof(*pool));
    if (!pool) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = umf_tracked_acquire(provider, &pool->tracked);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(pool, sizeof(*pool));
        return result;
    }
    pool->may_be_dormant = umf_tracked_can_be_dormant(pool->tracked);
    *out = pool;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t free_any(umf_tracked_provider_t *tracked, umf_span_t *span) {
    return umf_span_is_live(span) ? umf_tracked_free(tracked, span)
                                  : umf_tracked_free_dormant(tracked, span);
}

static umf_result_t proxy_finalize(void *object) {
    proxy_pool_t *pool = object;
    proxy_dormant_t *dormant = dormant_of(pool);
    if (dormant) {
        umf_magazines_fini(&dormant->magazines);
        umf_meta_free(dormant, sizeof(*dormant));
    }
    for (;;) {
        umf_span_t *span = NULL;
        umf_tracked_each_span(pool->tracked, umf_tracked_find_any, &span);
        if (!span || free_any(pool->tracked, span) != UMF_RESULT_SUCCESS) {
            break;
        }
    }
    umf_tracked_release(pool->tracked);
    umf_meta_free(pool, sizeof(*pool));
    return UMF_RESULT_SUCCESS;
}

/* --- allocation --- */

typedef struct proxy_request_t {
    size_t size, alignment;
    void *ptr;
} proxy_request_t;

static inline void *alloc_once(const proxy_pool_t *pool, size_t size, size_t alignment) {
    void *ptr = NULL;
    umf_result_t result = umf_tracked_alloc(pool->tracked, size, alignment, 0, NULL, &ptr);
    proxy_last_error = umf_likely(result == UMF_RESULT_SUCCESS) ? 0 : umf_result_shorten(result);
    return ptr;
}

static bool attempt(void *pool, void *requested) {
    proxy_request_t *request = requested;
    request->ptr = alloc_once(pool, request->size, request->alignment);
    return proxy_last_error == UMF_RESULT_SUCCESS;
}

static void give_back(void *pool) {
    proxy_dormant_t *dormant = dormant_of(pool);
    if (dormant) {
        umf_magazines_trim(&dormant->magazines);
    }
}

static UMF_COLD void *alloc_or_reclaim(proxy_pool_t *pool, size_t size, size_t alignment) {
    proxy_request_t request = {.size = size, .alignment = alignment};
    umf_shortage_t shortage = {
        .tracked = pool->tracked,
        .transit = &pool->transit,
        .pool = pool,
        .give_back = give_back,
        .attempt = attempt,
        .request = &request,
    };
    bool is_served = umf_reclaim(&shortage);
    umf_tracked_forget_refusal();
    return is_served ? request.ptr : NULL;
}

/* Not inline, because its stack frame would be that of every allocation. */
static __attribute__((noinline)) void *alloc_anew(proxy_pool_t *pool, size_t size,
                                                  size_t alignment) {
    void *ptr = alloc_once(pool, size, alignment);
    return umf_likely(proxy_last_error == UMF_RESULT_SUCCESS)
               ? ptr
               : alloc_or_reclaim(pool, size, alignment);
}

static __attribute__((noinline)) void *alloc_dormant(proxy_pool_t *pool, size_t size,
                                                     size_t alignment) {
    proxy_dormant_t *dormant = dormant_of(pool);
    bool is_aligned = !alignment || PROXY_PAGE % alignment == 0;
    void *ptr = is_aligned ? wake(pool, dormant, size) : NULL;
    if (umf_unlikely(!ptr)) {
        /* Dormant spans of other sizes must not add up. */
        umf_magazines_release_large(&dormant->magazines, (uint32_t)bin_of(size),
                                    UMF_MAGAZINE_WAITING_MAX);
        return alloc_anew(pool, size, alignment);
    }
    proxy_last_error = UMF_RESULT_SUCCESS;
    return ptr;
}

UMF_INLINE void *proxy_alloc(proxy_pool_t *pool, size_t size, size_t alignment) {
    return bin_of(size) < PROXY_BINS && dormant_of(pool) ? alloc_dormant(pool, size, alignment)
                                                         : alloc_anew(pool, size, alignment);
}

static void *proxy_malloc(void *pool, size_t size) {
    return proxy_alloc(pool, size, 0);
}

static void *proxy_aligned_malloc(void *pool, size_t size, size_t alignment) {
    if (alignment && !umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("alignment %zu is not a power of two", alignment);
        return proxy_fail(UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    return proxy_alloc(pool, size, alignment);
}

static umf_result_t proxy_usable_size(void *pool, const void *ptr, size_t *size) {
    (void)pool, (void)ptr;
    if (!size) {
        UMF_LOG_ERROR("size is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = 0;
    UMF_LOG_DEBUG("a proxy pool does not record the sizes of its allocations");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static __attribute__((noinline)) umf_result_t free_to_dormant(proxy_pool_t *pool, umf_span_t *span,
                                                              size_t bin) {
    umf_result_t result = umf_tracked_make_dormant(pool->tracked, span);
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        umf_magazine_push(&dormant_of(pool)->magazines, bin, (umf_item_t){.object = span});
    }
    return result;
}

static UMF_COLD umf_result_t not_live(const void *ptr) {
    UMF_LOG_ERROR("%p is not the start of a live allocation of this pool", ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_INLINE umf_result_t free_span(proxy_pool_t *pool, umf_span_t *span, void *ptr) {
    if (umf_unlikely(span->base != (uintptr_t)ptr)) {
        return not_live(ptr);
    }
    size_t bin = bin_of(span->size);
    if (pool->may_be_dormant && bin < PROXY_BINS) {
        if (dormant_of(pool)) {
            return free_to_dormant(pool, span, bin);
        }
        count_free(pool);
    }
    return umf_tracked_free_for_reuse(pool->tracked, span);
}

static umf_result_t proxy_free_at(void *pool, void *ptr, umf_map_entry_t entry) {
    return free_span(pool, umf_span_at(umf_map_entry_span(entry)), ptr);
}

static umf_result_t proxy_free(void *object, void *ptr) {
    proxy_pool_t *pool = object;
    if (!ptr) {
        return umfMemoryProviderFree(pool->tracked, NULL, 0);
    }
    umf_span_t *span = umf_tracked_find(pool->tracked, ptr);
    return span ? free_span(pool, span, ptr) : not_live(ptr);
}

UMF_BLOCK_NOT_OFFERED(proxy)

static umf_result_t proxy_get_name(void *pool, const char **name) {
    (void)pool;
    if (!name) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *name = "proxy";
    return UMF_RESULT_SUCCESS;
}

/* The interface says that a proxy pool cannot trim, and programs may rely on that answer. */
static umf_result_t proxy_trim(void *object, size_t keep) {
    (void)keep;
    give_back(object);
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static size_t proxy_alloc_count(void *object) {
    const proxy_pool_t *pool = object;
    proxy_dormant_t *dormant = dormant_of(pool);
    size_t all = umf_tracked_span_count(pool->tracked), sleeping = 0;
    for (uint32_t bin = 0; dormant && bin < PROXY_BINS; bin++) {
        sleeping += umf_magazines_cached(&dormant->magazines, bin);
    }
    return sleeping < all ? all - sleeping : 0;
}

static size_t proxy_thread_cache(void *object) {
    const proxy_dormant_t *dormant = dormant_of(object);
    return dormant ? umf_magazines_bytes(&dormant->magazines) : 0;
}

static const umf_memory_pool_ops_t proxy_ops = {
    UMF_POOL_OPS(proxy),
    .get_name = proxy_get_name,
    .ext_trim_memory = proxy_trim,
};

UMF_API_1_0 const umf_memory_pool_ops_t *umfProxyPoolOps(void) {
    return &proxy_ops;
}

static void proxy_walk(void *pool, const umf_span_t *span, umf_walk_t *walk) {
    (void)pool;
    umf_walk_add(walk, span->base, span->size, 1, UMF_RECORD_STATE_LIVE);
}

static void proxy_tick(void *pool) {
    proxy_dormant_t *dormant = dormant_of(pool);
    if (dormant) {
        umf_magazines_decay(&dormant->magazines);
    }
}

static const umf_view_kind_t proxy_view = {.name = "proxy", .how = UMF_VIEW_BLOCKS};

const umf_pool_fast_ops_t umf_proxy_pool_fast_ops = {
    .free_at = proxy_free_at,
    .alloc_count = proxy_alloc_count,
    .tick = proxy_tick,
    .thread_cache = proxy_thread_cache,
    .walk = proxy_walk,
    .view = &proxy_view,
    .each_from_provider = true,
    .no_realloc = true,
};

UMF_POOL_DESCRIPTOR(proxy, .ops = &proxy_ops);
