#include "pools/jemalloc/pages_spans.h"

#include <assert.h>

#include <umf/result.h>

#define SPAN_MIN ((size_t)2 << 20)
/* After other shards have served a shard's threads so often, the shard gets another span. */
#define ELSEWHERE_MAX 32
#define PLENTY 4 /* a quarter of the used bytes */

typedef umf_pages_shard_t shard_t;

static umf_purge_part_t *part_at(void *pages, uint32_t index) {
    return index < umf_pages_shard_count(pages) ? &((umf_pages_t *)pages)->shards[index]->part
                                                : NULL;
}

void umf_pages_init(umf_pages_t *pages, umf_tracked_provider_t *tracked, size_t granule,
                    size_t record_size, const umf_pages_ops_t *ops) {
    pages->tracked = tracked;
    pages->granule = granule > UMF_PAGE_SIZE ? granule : UMF_PAGE_SIZE;
    pages->alignment = umf_is_pow2(pages->granule) ? pages->granule : UMF_PAGE_SIZE;
    pages->record_size = record_size;
    pages->ops = ops;
    umf_purge_init(&pages->purge, tracked, pages->granule);
    pages->purge.pool = pages;
    pages->purge.part = part_at;
    pages->purge.fell_free = umf_pages_span_purged_locked;
    pages->purge.transit = &pages->transit;
    pages->transit = (umf_transit_t){0};
    umf_pages_spans_init(pages);
    umf_pages_shards_init(pages);
}

umf_pages_span_t *umf_pages_find(const umf_pages_t *pages, const void *ptr) {
    const umf_span_set_t *own = umf_tracked_spans(pages->tracked);
    const umf_span_t *span = umf_span_find(own->map, (uintptr_t)ptr, NULL);
    /* Another provider may have divided a segment of this cache: its spans lie inside of the
     * cache's. */
    while (span && umf_span_set_of(span) != own) {
        span = span->outer ? umf_span_at(span->outer) : NULL;
    }
    return span ? span->cookie : NULL;
}

umf_result_t umf_pages_fini(umf_pages_t *pages) {
    umf_result_t result = umf_pages_spans_fini(pages);
    umf_pages_shards_fini(pages);
    return result;
}

/* --- taking segments --- */

static void *take_locked(shard_t *shard, size_t size, size_t alignment) {
    umf_assert_locked(&shard->lock);
    assert(size && size % UMF_PAGE_SIZE == 0 && umf_is_pow2(alignment));
    uintptr_t base = 0;
    alignment = alignment > UMF_PAGE_SIZE ? alignment : UMF_PAGE_SIZE;
    bool is_found =
        shard->range && umf_range_alloc(shard->range, size, alignment, &base) == UMF_RESULT_SUCCESS;
    return is_found ? (void *)base : NULL;
}

/* Takes up to `n` segments and unlocks the shard. */
static size_t take_and_unlock(shard_t *shard, size_t size, size_t alignment, void **segments,
                              size_t n) {
    size_t taken = 0;
    while (taken < n && (segments[taken] = take_locked(shard, size, alignment)) != NULL) {
        taken++;
    }
    __atomic_store_n(&shard->is_taking, false, __ATOMIC_RELAXED);
    umf_unlock(&shard->lock);
    return taken;
}

/* Takes from any shard. `waits`: waits for locks, else skips shards whose lock is taken. */
static UMF_COLD size_t take_anywhere(umf_pages_t *pages, size_t size, size_t alignment,
                                     void **segments, size_t n, bool waits) {
    size_t taken = 0;
    for (uint32_t i = 0; i < umf_pages_shard_count(pages) && !taken; i++) {
        shard_t *shard = pages->shards[i];
        if (waits) {
            umf_lock(&shard->lock);
        } else if (!umf_trylock(&shard->lock)) {
            continue;
        }
        taken = take_and_unlock(shard, size, alignment, segments, n);
    }
    return taken;
}

/* Do the shards have much more than is in use? */
static bool has_plenty(umf_pages_t *pages) {
    size_t total = umf_pages_total(pages), used = umf_pages_used(pages);
    return total > used + used / PLENTY + SPAN_MIN;
}

/* Takes from other shards. While the provider has memory, another span is better than waiting for
 * other shards' locks, and better than depending on their memory all the time; unless they have
 * plenty, because threads that come and go use one shard after the other. 0: the shard should get
 * another span. */
static UMF_COLD size_t take_elsewhere(umf_pages_t *pages, size_t size, size_t alignment,
                                      void **segments, size_t n) {
    bool waits = atomic_load_explicit(&pages->is_full, memory_order_relaxed);
    uint32_t *times = &umf_pages_shard_own(pages)->elsewhere;
    bool is_dependent = __atomic_fetch_add(times, 1, __ATOMIC_RELAXED) >= ELSEWHERE_MAX;
    if (is_dependent && !waits) {
        if (!has_plenty(pages)) {
            return 0;
        }
        __atomic_store_n(times, 0, __ATOMIC_RELAXED);
        waits = true;
    }
    return take_anywhere(pages, size, alignment, segments, n, waits);
}

static size_t take(umf_pages_t *pages, size_t size, size_t alignment, void **segments, size_t n) {
    size_t taken = take_and_unlock(umf_pages_shard_lock(pages), size, alignment, segments, n);
    return taken || umf_pages_shard_count(pages) == 1
               ? taken
               : take_elsewhere(pages, size, alignment, segments, n);
}

void *umf_pages_take(umf_pages_t *pages, size_t size, size_t alignment) {
    void *segment;
    return take(pages, size, alignment, &segment, 1) ? segment : NULL;
}

size_t umf_pages_take_many(umf_pages_t *pages, size_t size, void **segments, size_t n) {
    return take(pages, size, UMF_PAGE_SIZE, segments, n);
}

/* --- growing --- */

static size_t sum_shards(const umf_pages_t *pages, size_t (*bytes)(shard_t *shard)) {
    size_t sum = 0;
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        sum += bytes(pages->shards[i]);
    }
    return sum;
}

static size_t shard_total(shard_t *shard) {
    umf_lock(&shard->lock);
    size_t total = shard->range ? umf_range_total_bytes(shard->range) : 0;
    umf_unlock(&shard->lock);
    return total;
}

/* The size that is requested first: in proportion to the memory of the shard. One of many shards
 * has little memory, so its spans are larger in proportion. */
static size_t span_request(umf_pages_t *pages, size_t need) {
    size_t request = shard_total(umf_pages_shard_own(pages));
    request = umf_align_down(umf_pages_shard_count(pages) == 1 ? request / 4 : request, SPAN_MIN);
    request = request < SPAN_MIN             ? SPAN_MIN
              : request > UMF_PAGES_SPAN_MAX ? UMF_PAGES_SPAN_MAX
                                             : request;
    return request > need && umf_round_up(request, pages->granule, &request) ? request : need;
}

/* Purges free memory, so that resident memory grows only by used memory. Memory to be kept stays
 * as long as the sum is little more than the memory in use before. */
static void purge_before_growth(umf_pages_t *pages, size_t size) {
    size_t total = umf_pages_total(pages), used = umf_pages_used(pages);
    size_t least = used + umf_pages_spans_keep(pages, used + size);
    if (total > least) {
        umf_purge_before_growth(&pages->purge, size < total - least ? size : total - least);
    }
}

/* Requests less and less memory, down to the needed size. */
static umf_result_t grow_down_to(umf_pages_t *pages, size_t need, size_t alignment) {
    size_t size = span_request(pages, need);
    purge_before_growth(pages, size);
    for (;;) {
        umf_result_t result = umf_pages_span_create(pages, size, alignment);
        if (result == UMF_RESULT_SUCCESS || size == need || !umf_tracked_is_shortage()) {
            return result;
        }
        if (!umf_round_up(size / 4, pages->granule, &size) || size < need) {
            size = need;
        }
    }
}

/* If the provider cannot align so far, the request is made so large that an aligned segment fits.
 */
static umf_result_t grow_aligned(umf_pages_t *pages, size_t need, size_t alignment) {
    umf_result_t result = grow_down_to(pages, need, alignment);
    if (!umf_tracked_cannot_align(result) || alignment == pages->alignment ||
        !umf_add(need, alignment, &need)) {
        return result;
    }
    return umf_pages_span_create(pages, need, pages->alignment);
}

/* In a child of fork: frees what threads of the parent were purging. */
static void inherit(umf_pages_t *pages) {
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        shard_t *shard = pages->shards[i];
        umf_lock(&shard->lock);
        umf_purge_inherit_locked(&shard->part);
        umf_unlock(&shard->lock);
    }
}

/* Is there room for a segment in any shard? The threads then wait for each other's shards, because
 * the provider has nothing. */
static bool has_room(umf_pages_t *pages, size_t size, size_t alignment) {
    void *ptr;
    bool has = take_anywhere(pages, size, alignment, &ptr, 1, true) > 0;
    if (has) {
        umf_pages_set_full(pages, true);
        umf_pages_put(pages, ptr, size);
    }
    return has;
}

/* The final retry: the provider may be able to serve the request once it has the free spans back.
 */
static UMF_COLD umf_result_t grow_last(umf_pages_t *pages, size_t size, size_t need,
                                       size_t alignment) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    umf_transit_part_t part;
    umf_transit_retry(&pages->transit, &part);
    inherit(pages);
    do {
        if (has_room(pages, size, alignment)) {
            result = UMF_RESULT_SUCCESS;
        } else {
            umf_pages_spans_release(pages);
            result = grow_aligned(pages, need, alignment);
        }
    } while (umf_transit_again(&part, result == UMF_RESULT_SUCCESS || !umf_tracked_is_shortage()));
    return result;
}

umf_result_t umf_pages_grow(umf_pages_t *pages, size_t size, size_t alignment) {
    size_t need;
    __atomic_store_n(&umf_pages_shard_own(pages)->elsewhere, 0, __ATOMIC_RELAXED);
    umf_tracked_forget_refusal();
    if (!umf_round_up(size, pages->granule, &need)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    size_t aligned = alignment < pages->alignment ? pages->alignment : alignment;
    umf_result_t result = grow_aligned(pages, need, aligned);
    return result == UMF_RESULT_SUCCESS || !umf_tracked_is_shortage()
               ? result
               : grow_last(pages, size, need, aligned);
}

void *umf_pages_alloc(umf_pages_t *pages, size_t size, size_t alignment) {
    void *ptr;
    while ((ptr = umf_pages_take(pages, size, alignment)) == NULL &&
           umf_pages_grow(pages, size, alignment) == UMF_RESULT_SUCCESS) {
    }
    return ptr;
}

/* --- freeing segments --- */

static void put_locked(umf_pages_t *pages, shard_t *shard, uintptr_t base, size_t size) {
    umf_range_freed_t freed;
    umf_result_t result = umf_range_free(shard->range, base, size, &freed);
    if (result == UMF_RESULT_SUCCESS && freed.whole_region) {
        umf_pages_span_freed_locked(pages, shard, freed.free_base);
    }
    assert(result == UMF_RESULT_SUCCESS);
}

void umf_pages_put(umf_pages_t *pages, void *ptr, size_t size) {
    umf_pages_put_many(pages, size, &ptr, 1);
}

void umf_pages_put_many(umf_pages_t *pages, size_t size, void *const *segments, size_t n) {
    for (size_t i = 0; i < n;) {
        shard_t *shard = umf_pages_shard_of(pages, segments[i]);
        umf_lock(&shard->lock);
        do {
            put_locked(pages, shard, (uintptr_t)segments[i++], size);
        } while (i < n && umf_pages_shard_of(pages, segments[i]) == shard);
        umf_unlock(&shard->lock);
    }
}

umf_result_t umf_pages_split(umf_pages_t *pages, void *ptr, size_t total, size_t first) {
    shard_t *shard = umf_pages_shard_of(pages, ptr);
    umf_lock(&shard->lock);
    umf_result_t result = umf_range_split(shard->range, (uintptr_t)ptr, total, first);
    umf_unlock(&shard->lock);
    return result;
}

umf_result_t umf_pages_extend(umf_pages_t *pages, void *ptr, size_t old, size_t size) {
    shard_t *shard = umf_pages_shard_of(pages, ptr);
    umf_lock(&shard->lock);
    umf_result_t result = umf_range_extend(shard->range, (uintptr_t)ptr, old, size);
    umf_unlock(&shard->lock);
    return result;
}

/* --- decay and trim --- */

bool umf_pages_decay(umf_pages_t *pages, bool is_new) {
    if (is_new) {
        umf_pages_spans_begin_period(pages);
    }
    size_t before = umf_pages_spans_begin_pass(pages);
    bool goes_on = umf_purge_decay(&pages->purge);
    umf_pages_settle(pages);
    umf_pages_spans_end_pass(pages, before);
    return goes_on;
}

static void drop_bookkeeping(shard_t *shard) {
    umf_lock(&shard->lock);
    if (shard->range) {
        umf_range_trim(shard->range);
    }
    umf_unlock(&shard->lock);
}

void umf_pages_trim(umf_pages_t *pages) {
    inherit(pages);
    umf_pages_spans_release(pages);
    umf_purge_all(&pages->purge);
    umf_pages_settle(pages);
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        drop_bookkeeping(pages->shards[i]);
    }
}

/* --- counts --- */

size_t umf_pages_total(umf_pages_t *pages) {
    return sum_shards(pages, shard_total);
}

static size_t shard_used(shard_t *shard) {
    umf_lock(&shard->lock);
    size_t used = shard->range ? umf_range_used_bytes(shard->range) : 0;
    umf_unlock(&shard->lock);
    return used;
}

size_t umf_pages_used(umf_pages_t *pages) {
    return sum_shards(pages, shard_used);
}

void umf_pages_count(umf_pages_t *pages, const void *segment, int change) {
    __atomic_fetch_add(&umf_pages_shard_of(pages, segment)->counted, change, __ATOMIC_RELAXED);
}

int64_t umf_pages_counted(const umf_pages_t *pages) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        sum += __atomic_load_n(&pages->shards[i]->counted, __ATOMIC_RELAXED);
    }
    return sum;
}
