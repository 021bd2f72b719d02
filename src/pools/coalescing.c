/*
 * The coalescing pool: best fit with splitting and immediate coalescing (ds/range.h) over large
 * spans of the provider. All bookkeeping is out of line.
 *
 * There are no magazines in front: a block that waits in a thread's stack neither coalesces nor
 * serves another size, which is what this pool is for. But a thread that gets the very block back
 * that it has just freed is likely to go on like that. Such a block is parked when it is freed the
 * next time (ds/range.h): it waits for its thread, which takes it again without the lock. All
 * parked blocks are reclaimed before a request is said not to fit, before spans are given back and
 * before anything is counted, so nobody can tell them from free ones; and a second free of one is
 * refused as any other. Nothing is parked where free spans are not all kept.
 *
 * A span is withdrawn from the range before it goes to the provider, and added after it came from
 * there; the provider is called without the lock.
 */
#include <umf/pools/pool_coalescing.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <umf/plugin.h>
#include <umf/result.h>

#include "base/local.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "core/content.h"
#include "ctl/field.h"
#include "ds/range.h"

#define COALESCING_NAME "coalescing"
#define DEFAULT_GRANULE ((size_t)512)
#define DEFAULT_SPAN_SIZE ((size_t)2 << 20)
#define GRANULE_MIN ((size_t)8)
#define GRANULE_MAX ((size_t)1 << 30)
#define GROWTH_PARTS 16              /* a new span has this part of what is held ... */
#define GROWTH_MAX ((size_t)1 << 30) /* ... up to this */

#define SPAN_PAGES 8 /* where whole pages for one block were a waste */
#define PAGE_MAX (SIZE_MAX / 16)
#define PURGE_BATCH 16
#define HOT_BLOCKS 8 /* per thread */

struct umf_coalescing_pool_params_t {
    size_t granule;   /* 0: chosen when the pool is made */
    size_t span_size; /* 0: the same */
    size_t retain;
    char name[UMF_NAME_MAX];
};

/* A block that a thread has freed, or has got back since. */
typedef struct hot_block_t {
    uintptr_t base; /* 0: none */
    size_t size;
    umf_range_ticket_t ticket; /* no claim: it was free when last seen */
    bool is_parked;            /* by this thread; others may have reclaimed it */
    bool is_recent;            /* used again since it was last up for replacement */
} hot_block_t;

typedef struct hot_blocks_t {
    umf_local_t head;
    uint32_t last; /* used */
    uint32_t next; /* to be replaced */
    hot_block_t blocks[HOT_BLOCKS];
} hot_blocks_t;
_Static_assert(sizeof(hot_blocks_t) <= UMF_LOCAL_EMPTY_SIZE, "the empty block is too small");

typedef struct coalescing_pool_t {
    struct umf_coalescing_pool_params_t params; /* Immutable once sealed */
    bool sealed;                                /* settings can no longer change */
    umf_view_t *view;
    umf_content_t content;
    size_t page;           /* the provider's smallest. Immutable */
    umf_local_owner_t hot; /* hot_blocks_t of each thread */
    umf_lock_t lock;
    umf_range_t *range; /* Sync: lock */
    size_t live;        /* blocks, and those that are parked. Sync: lock */
    /* Free pieces that a trim has in hand: used for the range, nobody's block. Sync: lock */
    umf_range_piece_t held[PURGE_BATCH];
    size_t held_count;
    unsigned held_since; /* umf_fork_count: in a child of fork the trim is gone */
} coalescing_pool_t;

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

/* --- blocks that go and come again and again ----------------------------------------------------
 */

static hot_blocks_t *hot_blocks(const coalescing_pool_t *pool) {
    return (hot_blocks_t *)umf_local_get(pool->hot.index);
}

static hot_block_t *hot_find(hot_blocks_t *hot, uintptr_t base) {
    for (uint32_t i = 0; i < HOT_BLOCKS; i++) {
        if (hot->blocks[i].base == base) {
            return &hot->blocks[i];
        }
    }
    return NULL;
}

static inline void *hot_try_take(hot_block_t *block, size_t size) {
    if (!block->is_parked || block->size != size) {
        return NULL;
    }
    block->is_parked = false;
    block->is_recent = true;
    return umf_likely(umf_range_unpark(&block->ticket)) ? (void *)block->base : NULL;
}

/* A parked block of just this size. Hot. */
static inline void *hot_take(const coalescing_pool_t *pool, size_t size) {
    hot_blocks_t *hot = hot_blocks(pool);
    void *ptr = hot_try_take(&hot->blocks[hot->last], size);
    for (uint32_t i = 0; !ptr && i < HOT_BLOCKS; i++) {
        ptr = hot_try_take(&hot->blocks[i], size);
        if (ptr) {
            hot->last = i;
        }
    }
    return ptr;
}

/* false: the block goes the usual way. Hot. */
static inline bool hot_put(const coalescing_pool_t *pool, void *ptr) {
    hot_blocks_t *hot = hot_blocks(pool);
    hot_block_t *block = &hot->blocks[hot->last];
    if (umf_unlikely(block->base != (uintptr_t)ptr)) {
        block = hot_find(hot, (uintptr_t)ptr);
        if (!block) {
            return false;
        }
        hot->last = (uint32_t)(block - hot->blocks);
    }
    if (!block->ticket.claim || !umf_range_park(&block->ticket)) {
        return false;
    }
    block->is_parked = true;
    return true;
}

static void hot_forget_locked(coalescing_pool_t *pool, hot_block_t *block) {
    umf_assert_locked(&pool->lock);
    if (block->ticket.claim) {
        pool->live -= umf_range_ticket_end(pool->range, &block->ticket);
    }
    *block = (hot_block_t){0};
}

/* A block was freed that may come back: takes the place of one that was not used lately. */
static void hot_note_locked(coalescing_pool_t *pool, hot_blocks_t *hot, uintptr_t base,
                            size_t size) {
    umf_assert_locked(&pool->lock);
    hot_block_t *block = hot_find(hot, base);
    while (!block) {
        hot_block_t *next = &hot->blocks[hot->next++ % HOT_BLOCKS];
        block = next->is_recent ? NULL : next;
        next->is_recent = false;
    }
    hot_forget_locked(pool, block);
    block->base = base;
    block->size = size;
}

/* A block was taken: the same that this thread has freed lately is worth a ticket. */
static void hot_meet_locked(coalescing_pool_t *pool, uintptr_t base, size_t size) {
    umf_assert_locked(&pool->lock);
    hot_block_t *block = hot_find(hot_blocks(pool), base);
    if (block && block->size == size) {
        block->ticket = umf_range_ticket(pool->range, base);
        block->is_parked = false;
        block->is_recent = true;
    }
}

static void hot_thread_exit(umf_local_owner_t *owner, umf_local_t *head) {
    coalescing_pool_t *pool = UMF_CONTAINER_OF(owner, coalescing_pool_t, hot);
    umf_lock(&pool->lock);
    for (uint32_t i = 0; i < HOT_BLOCKS; i++) {
        hot_forget_locked(pool, &((hot_blocks_t *)head)->blocks[i]);
    }
    umf_unlock(&pool->lock);
}

/* The calling thread's; NULL if nothing is to be parked. */
static hot_blocks_t *hot_blocks_made(coalescing_pool_t *pool) {
    if (pool->params.retain != SIZE_MAX) {
        return NULL;
    }
    hot_blocks_t *hot = hot_blocks(pool);
    return umf_likely(hot->head.owner != NULL) ? hot : (hot_blocks_t *)umf_local_make(&pool->hot);
}

/* From all threads. Was there any? */
static bool reclaim_locked(coalescing_pool_t *pool) {
    umf_assert_locked(&pool->lock);
    size_t count = umf_range_reclaim(pool->range);
    pool->live -= count;
    return count > 0;
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
    reclaim_locked(pool);
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
        count = umf_range_take_free(pool->range, cursor, pool->page, pool->held, PURGE_BATCH);
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
    if (umf_unlikely(result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) && reclaim_locked(pool)) {
        result = take_locked(pool, request, ptr);
    }
    if (umf_likely(result == UMF_RESULT_SUCCESS)) {
        hot_meet_locked(pool, (uintptr_t)*ptr, request->size);
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
    void *ptr = alignment == pool->params.granule ? hot_take(pool, request.size) : NULL;
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
    hot_blocks_t *hot = hot_blocks_made(pool);
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
            hot_note_locked(pool, hot, (uintptr_t)ptr, freed.size);
        }
    }
    umf_unlock(&pool->lock);
    if (umf_unlikely(is_surplus)) {
        span_return(pool, freed.free_base, freed.free_size);
    }
    return umf_likely(result == UMF_RESULT_SUCCESS) ? result : refuse(pool, ptr);
}

static inline umf_result_t put(coalescing_pool_t *pool, void *ptr) {
    return umf_likely(hot_put(pool, ptr)) ? UMF_RESULT_SUCCESS : put_locked(pool, ptr);
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

static const struct umf_coalescing_pool_params_t default_params = {.retain = SIZE_MAX,
                                                                   .name = COALESCING_NAME};

static size_t default_granule(umf_view_t *view) {
    size_t line;
    bool is_known =
        umfMemoryProviderGetCacheLineSize(view, &line) == UMF_RESULT_SUCCESS && umf_is_pow2(line);
    return is_known && line > DEFAULT_GRANULE && line <= GRANULE_MAX ? line : DEFAULT_GRANULE;
}

static void choose_defaults(coalescing_pool_t *pool) {
    if (!pool->params.granule) {
        pool->params.granule = default_granule(pool->view);
    }
    if (!pool->params.span_size) {
        pool->params.span_size = larger(pool->page, DEFAULT_SPAN_SIZE);
    }
}

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
    choose_defaults(pool);
    result = umf_local_owner_init(&pool->hot, umf_view_magazine_index(pool->view),
                                  sizeof(hot_blocks_t), hot_thread_exit);
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
    pool->params = params ? *(const struct umf_coalescing_pool_params_t *)params : default_params;
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

static umf_result_t coalescing_get_name(void *self, const char **name) {
    if (!name) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *name = self ? ((coalescing_pool_t *)self)->params.name : COALESCING_NAME;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t coalescing_trim(void *self, size_t keep) {
    coalescing_pool_t *pool = self;
    umf_lock(&pool->lock);
    reclaim_locked(pool);
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
    reclaim_locked(pool);
    size_t live = pool->live;
    umf_unlock(&pool->lock);
    return live;
}

/* --- parameters ------------------------------------------------------------------------------- */

static umf_result_t null_argument(const char *what) {
    UMF_LOG_ERROR("%s is NULL", what);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsCreate(umf_coalescing_pool_params_handle_t *hParams) {
    if (!hParams) {
        return null_argument("hParams");
    }
    umf_coalescing_pool_params_handle_t params = umf_meta_alloc(sizeof(*params));
    if (!params) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *params = default_params;
    *hParams = params;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsDestroy(umf_coalescing_pool_params_handle_t hParams) {
    umf_meta_free(hParams, sizeof(*hParams));
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsSetGranule(umf_coalescing_pool_params_handle_t hParams, size_t granule) {
    if (!hParams) {
        return null_argument("hParams");
    }
    if (granule != 0 && (!umf_is_pow2(granule) || granule < GRANULE_MIN || granule > GRANULE_MAX)) {
        UMF_LOG_ERROR("granule %zu is not a power of two from %zu to %zu", granule, GRANULE_MIN,
                      GRANULE_MAX);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hParams->granule = granule;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsSetSpanSize(umf_coalescing_pool_params_handle_t hParams, size_t spanSize) {
    if (!hParams) {
        return null_argument("hParams");
    }
    hParams->span_size = spanSize;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsSetRetain(umf_coalescing_pool_params_handle_t hParams, size_t retain) {
    if (!hParams) {
        return null_argument("hParams");
    }
    hParams->retain = retain;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t
umfCoalescingPoolParamsSetName(umf_coalescing_pool_params_handle_t hParams, const char *name) {
    if (!hParams || !name) {
        return null_argument(hParams ? "name" : "hParams");
    }
    snprintf(hParams->name, sizeof(hParams->name), "%s", name);
    return UMF_RESULT_SUCCESS;
}

/* --- fields: parameters. The object is parameters, which is also how a pool begins. ------------
 */

#define PARAM(function, member)                                                                    \
    static umf_result_t get_##member(void *object, size_t index, void *value, size_t size) {       \
        (void)index, (void)size;                                                                   \
        *(size_t *)value = ((struct umf_coalescing_pool_params_t *)object)->member;                \
        return UMF_RESULT_SUCCESS;                                                                 \
    }                                                                                              \
    static umf_result_t set_##member(void *object, const void *value) {                            \
        return function(object, *(const size_t *)value);                                           \
    }

PARAM(umfCoalescingPoolParamsSetGranule, granule)
PARAM(umfCoalescingPoolParamsSetSpanSize, span_size)
PARAM(umfCoalescingPoolParamsSetRetain, retain)

static umf_result_t set_name(void *object, const void *value) {
    return umfCoalescingPoolParamsSetName(object, value);
}

/* --- fields: counters. The object is the pool. -------------------------------------------------
 */

static size_t count_used_memory(const coalescing_pool_t *pool) {
    size_t bytes = umf_range_used_bytes(pool->range);
    for (size_t i = 0; i < pool->held_count; i++) {
        bytes -= pool->held[i].size;
    }
    return bytes;
}

static size_t count_reserved_memory(const coalescing_pool_t *pool) {
    return umf_range_total_bytes(pool->range);
}

static size_t count_spans(const coalescing_pool_t *pool) {
    return umf_range_span_count(pool->range);
}

static void note_larger(uintptr_t base, size_t size, void *largest) {
    (void)base;
    if (size > *(size_t *)largest) {
        *(size_t *)largest = size;
    }
}

static size_t count_largest_free(const coalescing_pool_t *pool) {
    size_t largest = 0;
    umf_range_free_pieces(pool->range, note_larger, &largest);
    return largest;
}

#define COUNTER(member)                                                                            \
    static umf_result_t get_##member(void *object, size_t index, void *value, size_t size) {       \
        (void)index, (void)size;                                                                   \
        coalescing_pool_t *pool = object;                                                          \
        umf_lock(&pool->lock);                                                                     \
        reclaim_locked(pool);                                                                      \
        *(size_t *)value = count_##member(pool);                                                   \
        umf_unlock(&pool->lock);                                                                   \
        return UMF_RESULT_SUCCESS;                                                                 \
    }

COUNTER(used_memory)
COUNTER(reserved_memory)
COUNTER(spans)
COUNTER(largest_free)

static umf_result_t run_post_initialize(void *object) {
    ((coalescing_pool_t *)object)->sealed = true;
    return UMF_RESULT_SUCCESS;
}

#define PARAM_FIELD(name, member, text)                                                            \
    {                                                                                              \
        .path = "params." name, .type = UMF_FIELD_SIZE,                                            \
        .access = UMF_FIELD_READ | UMF_FIELD_CREATE, .get = get_##member, .set = set_##member,     \
        .help = text                                                                               \
    }

static const umf_field_t field_list[] = {
    PARAM_FIELD("granule", granule,
                "sizes and addresses are multiples of it, bytes, a power of two (512, or the "
                "provider's cache line if larger)"),
    PARAM_FIELD("span_size", span_size,
                "smallest request to the provider, bytes (2M, or its page if larger)"),
    PARAM_FIELD("retain", retain, "wholly free spans that are kept, bytes (all)"),
    {.path = "params.name",
     .type = UMF_FIELD_STRING,
     .access = UMF_FIELD_CREATE,
     .set = set_name,
     .help = "name of the pool, up to 63 characters (coalescing)"},
    {.path = "stats.used_memory",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_used_memory},
    {.path = "stats.reserved_memory",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_reserved_memory},
    {.path = "stats.spans", .type = UMF_FIELD_SIZE, .access = UMF_FIELD_READ, .get = get_spans},
    {.path = "stats.largest_free",
     .type = UMF_FIELD_SIZE,
     .access = UMF_FIELD_READ,
     .get = get_largest_free},
    {.path = "post_initialize", .access = UMF_FIELD_RUN, .run = run_post_initialize},
};
static const umf_fields_t fields = UMF_FIELDS(field_list);

static umf_result_t coalescing_ctl(void *self, umf_ctl_query_source_t source, const char *name,
                                   void *arg, size_t size, umf_ctl_query_type_t type,
                                   va_list args) {
    coalescing_pool_t *pool = self;
    umf_result_t result =
        umf_field_ctl(pool, !pool->sealed, &fields, source, name, arg, size, type, args);
    choose_defaults(pool);
    return result;
}

static umf_result_t params_create(void **params) {
    return umfCoalescingPoolParamsCreate((umf_coalescing_pool_params_handle_t *)params);
}

static void params_destroy(void *params) {
    umfCoalescingPoolParamsDestroy(params);
}

static umf_result_t params_from_text(const char *text, void **params) {
    return umf_params_from_text(&fields, params_create, params_destroy, text, params);
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
    .get_name = coalescing_get_name,
    .ext_ctl = coalescing_ctl,
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
    .params_from_text = params_from_text,
    .params_destroy = params_destroy,
};
