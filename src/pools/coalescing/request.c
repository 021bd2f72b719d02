#include "pools/coalescing/request.h"

#include "base/log.h"
#include "pools/coalescing/release.h"
#include "reclaim/reclaim.h"

/* A new span has 1 / GROWTH_PARTS of the pool's memory, up to GROWTH_MAX. */
#define GROWTH_PARTS 16
#define GROWTH_MAX ((size_t)1 << 30)

#define SPAN_SHARD_SMALL 8 /* a request is small up to 1/8 of a span */
#define WELL_USED_PARTS 3  /* a pool is well used if 1/3 of its memory is in use */

#define SPAN_PAGES 8 /* size of a span if whole pages for one block would be wasteful */

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_shard_t shard_t;
typedef umf_coalescing_request_t request_t;

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
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
        if (umf_coalescing_take_and_unlock(pool, shard, request, ptr) == UMF_RESULT_SUCCESS) {
            umf_coalescing_shard_found(pool, shard);
            return true;
        }
    }
    return are_asked;
}

/* The same from the own shard, and then, unless `is_apart`, from the others, after kept blocks were
 * freed. NULL: nothing fits, or no thread keeps anything. */
static void *take_joined(coalescing_pool_t *pool, shard_t *own, const request_t *request,
                         bool may_block, bool is_apart) {
    void *ptr = NULL;
    if (!umf_coalescing_kept_free(pool, !is_apart)) {
        return NULL;
    }
    umf_lock(&own->lock);
    umf_coalescing_take_and_unlock(pool, own, request, &ptr);
    if (!ptr && !is_apart) {
        take_elsewhere(pool, own, request, may_block, &ptr);
    }
    return ptr;
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
    umf_coalescing_take_locked(own, request, &ptr);
    for (shard_t *shard = umf_coalescing_shard_next(pool, own); shard != own && !ptr;
         shard = umf_coalescing_shard_next(pool, shard)) {
        if (umf_trylock(&shard->lock)) {
            if (move_span_locked(pool, shard, own, request)) {
                umf_coalescing_take_locked(own, request, &ptr);
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
        result = umf_coalescing_take_locked(shard, request, ptr);
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
        if (umf_coalescing_take_locked(pool->shards[i], request, ptr) == UMF_RESULT_SUCCESS) {
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
    umf_coalescing_kept_free_wait(pool);
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

UMF_COLD void *umf_coalescing_serve(coalescing_pool_t *pool, shard_t *shard,
                                    const request_t *request) {
    size_t least;
    if (!umf_round_up(request->size, pool->page, &least)) {
        return umf_coalescing_fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
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
    bool is_apart = !may_block && umf_coalescing_shard_is_contended(pool) && is_well_used(pool);
    bool are_asked = !is_apart && take_elsewhere(pool, shard, request, may_block, &ptr);
    if (ptr) {
        return ptr;
    }
    ptr = take_joined(pool, shard, request, may_block, is_apart);
    if (ptr) {
        return ptr;
    }
    last_t last = {.request = request, .shard = shard, .least = least};
    last.result = take_new(pool, shard, request, least, are_asked, &last.ptr);
    return last.ptr || reclaim(pool, &last) ? last.ptr : umf_coalescing_fail(last.result);
}
