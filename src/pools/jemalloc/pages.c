#include "pools/jemalloc/pages_shards.h"

#include <assert.h>

#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"

#define SPAN_MIN ((size_t)2 << 20)
#define SPAN_MAX ((size_t)64 << 20)
/* A larger span is not kept. */
#define KEPT_MAX SPAN_MAX
/* After other shards have served a shard's threads so often, the shard gets another span. */
#define ELSEWHERE_MAX 32

typedef umf_pages_shard_t shard_t;

static umf_purge_part_t *part_at(void *pages, uint32_t index) {
    return index < umf_pages_shard_count(pages) ? &((umf_pages_t *)pages)->shards[index]->part
                                                : NULL;
}

static void fell_free(void *pages, umf_purge_part_t *part, uintptr_t base);

void umf_pages_init(umf_pages_t *pages, umf_tracked_provider_t *tracked, size_t granule,
                    size_t record_size, void (*drop)(umf_pages_span_t *span)) {
    pages->tracked = tracked;
    pages->granule = granule > UMF_PAGE_SIZE ? granule : UMF_PAGE_SIZE;
    pages->alignment = umf_is_pow2(pages->granule) ? pages->granule : UMF_PAGE_SIZE;
    pages->record_size = record_size;
    pages->drop = drop;
    umf_purge_init(&pages->purge, tracked, pages->granule);
    pages->purge.pool = pages;
    pages->purge.part = part_at;
    pages->purge.fell_free = fell_free;
    pages->purge.withheld = &pages->withheld;
    pages->withheld = (umf_withheld_t){0};
    atomic_init(&pages->is_full, false);
    atomic_init(&pages->kept, 0);
    atomic_init(&pages->keep, 0);
    atomic_init(&pages->given, 0);
    atomic_init(&pages->has_surplus, false);
    umf_pages_shards_init(pages);
}

umf_pages_span_t *umf_pages_find(const umf_pages_t *pages, const void *ptr) {
    const umf_span_set_t *own = umf_tracked_spans(pages->tracked);
    const umf_span_t *span = umf_span_find(own->map, (uintptr_t)ptr, NULL);
    /* Another provider may have divided a segment of this cache: its spans lie inside of the
     * cache's. */
    while (span && span->set != own) {
        span = span->outer ? umf_span_at(span->outer) : NULL;
    }
    return span ? span->cookie : NULL;
}

/* --- spans: from the provider --- */

static size_t span_bytes(const umf_pages_t *pages, size_t size) {
    size_t records;
    if (!umf_mul((size >> UMF_PAGE_SHIFT) + 1, pages->record_size, &records) ||
        !umf_add(records, sizeof(umf_pages_span_t), &records)) {
        return 0;
    }
    return records;
}

/* --- how much is in use --- */

/* Bytes of the spans that are not wholly free. */
static size_t in_use_locked(const shard_t *shard) {
    return shard->range
               ? umf_range_total_bytes(shard->range) - umf_range_free_region_bytes(shard->range)
               : 0;
}

/* `more`: bytes that are free, but will be, or were just now, in use. */
static void note_peak_locked(shard_t *shard, size_t more) {
    size_t bytes = in_use_locked(shard) + more;
    shard->peak = bytes > shard->peak ? bytes : shard->peak;
}

/* What a shard may have: a sixteenth more than was in use before. */
static size_t most_locked(const shard_t *shard) {
    size_t peak = shard->peak > shard->last_peak ? shard->peak : shard->last_peak;
    return peak + peak / 16;
}

static size_t shard_most(shard_t *shard) {
    umf_lock(&shard->lock);
    size_t most = most_locked(shard);
    umf_unlock(&shard->lock);
    return most;
}

static umf_result_t span_publish_locked(shard_t *shard, umf_pages_span_t *span) {
    umf_assert_locked(&shard->lock);
    if (!shard->range) {
        shard->range = umf_range_create();
    }
    umf_result_t result = shard->range ? umf_range_add(shard->range, span->base, span->size)
                                       : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (result == UMF_RESULT_SUCCESS) {
        umf_list_add(&shard->spans, &span->link);
        note_peak_locked(shard, span->size);
    }
    return result;
}

static umf_result_t span_publish(umf_pages_span_t *span) {
    umf_lock(&span->shard->lock);
    umf_result_t result = span_publish_locked(span->shard, span);
    umf_unlock(&span->shard->lock);
    return result;
}

/* Subtracts at most `bytes`. Returns how many. */
static size_t take_up_to(_Atomic size_t *from, size_t bytes) {
    size_t old = atomic_load_explicit(from, memory_order_relaxed), taken;
    do {
        taken = bytes < old ? bytes : old;
    } while (!atomic_compare_exchange_weak_explicit(from, &old, old - taken, memory_order_relaxed,
                                                    memory_order_relaxed));
    return taken;
}

/* What was given back too early is kept the next time. */
static void regain(umf_pages_t *pages, size_t bytes) {
    if (atomic_load_explicit(&pages->given, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&pages->keep, take_up_to(&pages->given, bytes),
                                  memory_order_relaxed);
    }
}

static void set_full(umf_pages_t *pages, bool is_full) {
    atomic_store_explicit(&pages->is_full, is_full, memory_order_relaxed);
}

/* Adds the provider's new span to the thread's shard. A misaligned one is refused. */
static umf_result_t span_adopt(umf_pages_t *pages, umf_pages_span_t *span, void *base,
                               size_t size) {
    span->span = umf_tracked_find(pages->tracked, base);
    span->shard = umf_pages_shard_own(pages);
    span->base = (uintptr_t)base;
    span->size = umf_align_down(size, UMF_PAGE_SIZE);
    umf_list_init(&span->idle);
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ALIGNMENT;
    if ((uintptr_t)base % UMF_PAGE_SIZE == 0) {
        result = span_publish(span);
    } else {
        UMF_LOG_ERROR("the provider answered a request aligned to %zu with %p: a page cache needs "
                      "memory aligned to pages",
                      pages->alignment, base);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_tracked_free(pages->tracked, span->span);
    }
    return result;
}

static umf_result_t span_make(umf_pages_t *pages, size_t size, size_t alignment) {
    size_t bytes = span_bytes(pages, size);
    umf_pages_span_t *span = bytes ? umf_meta_alloc_lasting(bytes) : NULL;
    if (!span) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    void *base = NULL;
    umf_result_t result = umf_tracked_alloc(pages->tracked, size, alignment, 0, span, &base);
    if (result == UMF_RESULT_SUCCESS) {
        set_full(pages, false);
        regain(pages, size);
        result = span_adopt(pages, span, base, size);
    }
    /* If the provider does not take its memory back, the span stays and still points to the record.
     */
    if (result != UMF_RESULT_SUCCESS && !umf_tracked_find(pages->tracked, base)) {
        umf_meta_free_lasting(span, bytes);
    }
    return result;
}

static umf_result_t span_create(umf_pages_t *pages, size_t size, size_t alignment) {
    umf_withheld_part_t part;
    umf_withheld_begin(&pages->withheld, &part);
    umf_result_t result = span_make(pages, size, alignment);
    umf_withheld_end(&part);
    return result;
}

/* --- spans: back to the provider --- */

static void span_forget(umf_pages_t *pages, umf_pages_span_t *span) {
    if (pages->drop) {
        pages->drop(span);
    }
    umf_meta_free_lasting(span, span_bytes(pages, span->size));
}

static umf_result_t span_destroy(umf_pages_t *pages, umf_pages_span_t *span) {
    umf_result_t result = umf_tracked_free(pages->tracked, span->span);
    if (result == UMF_RESULT_SUCCESS) {
        set_full(pages, false);
        span_forget(pages, span);
    } else {
        UMF_LOG_ERROR("the provider refused to take back %zu bytes at %p: %s", span->size,
                      (void *)span->base, umfResultName(result));
    }
    return result;
}

static void unkeep_locked(umf_pages_t *pages, umf_pages_span_t *span) {
    if (span->is_kept) {
        span->is_kept = false;
        span->shard->kept_bytes -= span->size;
        atomic_fetch_sub_explicit(&pages->kept, span->size, memory_order_relaxed);
        umf_list_remove(&span->idle);
    }
}

static void surplus_add_locked(umf_pages_t *pages, umf_pages_span_t *span) {
    umf_assert_locked(&span->shard->lock);
    unkeep_locked(pages, span);
    if (umf_list_is_empty(&span->idle)) {
        umf_list_add_tail(&span->shard->surplus, &span->idle);
        atomic_store_explicit(&pages->has_surplus, true, memory_order_relaxed);
    }
}

/* Takes the next surplus span that is still wholly free out of the shard. NULL: there is none. */
static umf_pages_span_t *surplus_take(umf_pages_t *pages, shard_t *shard) {
    umf_pages_span_t *taken = NULL;
    umf_lock(&shard->lock);
    while (!taken && !umf_list_is_empty(&shard->surplus)) {
        umf_pages_span_t *span = UMF_CONTAINER_OF(shard->surplus.next, umf_pages_span_t, idle);
        umf_list_remove(&span->idle);
        if (umf_range_remove(shard->range, span->base) == UMF_RESULT_SUCCESS) {
            umf_list_remove(&span->link);
            atomic_fetch_add_explicit(&pages->given, span->size, memory_order_relaxed);
            taken = span;
        }
    }
    umf_unlock(&shard->lock);
    return taken;
}

static size_t surplus_release_shard(umf_pages_t *pages, shard_t *shard) {
    size_t count = 0;
    umf_pages_span_t *span;
    while ((span = surplus_take(pages, shard)) != NULL) {
        if (span_destroy(pages, span) == UMF_RESULT_SUCCESS) {
            count++;
        } else if (span_publish(span) != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("%zu bytes at %p are lost: no memory to record them", span->size,
                          (void *)span->base);
        }
    }
    return count;
}

/* Returns how many spans the provider took back. Spans that it refuses stay in use. */
static size_t surplus_release(umf_pages_t *pages) {
    size_t count = 0;
    umf_withheld_part_t part;
    umf_withheld_begin(&pages->withheld, &part);
    /* Cleared before the shards are visited: a thread that adds surplus to a visited shard sets it
     * again. */
    atomic_store_explicit(&pages->has_surplus, false, memory_order_relaxed);
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        count += surplus_release_shard(pages, pages->shards[i]);
    }
    umf_withheld_end(&part);
    return count;
}

void umf_pages_settle_slow(umf_pages_t *pages) {
    surplus_release(pages);
}

static size_t release_all_free(umf_pages_t *pages) {
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        shard_t *shard = pages->shards[i];
        umf_lock(&shard->lock);
        for (umf_list_t *link = shard->spans.next; link != &shard->spans; link = link->next) {
            surplus_add_locked(pages, UMF_CONTAINER_OF(link, umf_pages_span_t, link));
        }
        umf_unlock(&shard->lock);
    }
    atomic_store_explicit(&pages->keep, 0, memory_order_relaxed);
    size_t count = surplus_release(pages);
    atomic_store_explicit(&pages->given, 0, memory_order_relaxed);
    return count;
}

/* Gives all spans of a shard back. Returns the provider's first error. */
static umf_result_t shard_empty(umf_pages_t *pages, shard_t *shard) {
    umf_result_t first = UMF_RESULT_SUCCESS;
    while (!umf_list_is_empty(&shard->spans)) {
        umf_pages_span_t *span = UMF_CONTAINER_OF(shard->spans.next, umf_pages_span_t, link);
        umf_list_remove(&span->link);
        umf_result_t result = span_destroy(pages, span);
        if (result != UMF_RESULT_SUCCESS) {
            span_forget(pages, span);
            first = first == UMF_RESULT_SUCCESS ? result : first;
        }
    }
    return first;
}

umf_result_t umf_pages_fini(umf_pages_t *pages) {
    umf_result_t first = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        umf_result_t result = shard_empty(pages, pages->shards[i]);
        first = first == UMF_RESULT_SUCCESS ? result : first;
    }
    umf_pages_shards_fini(pages);
    return first;
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

/* Takes from other shards. While the provider has memory, another span is better than waiting for
 * other shards' locks, and better than depending on their memory all the time. 0: the shard should
 * get another span. */
static UMF_COLD size_t take_elsewhere(umf_pages_t *pages, size_t size, size_t alignment,
                                      void **segments, size_t n) {
    bool waits = atomic_load_explicit(&pages->is_full, memory_order_relaxed);
    uint32_t *times = &umf_pages_shard_own(pages)->elsewhere;
    bool is_dependent = __atomic_fetch_add(times, 1, __ATOMIC_RELAXED) >= ELSEWHERE_MAX;
    return is_dependent && !waits ? 0 : take_anywhere(pages, size, alignment, segments, n, waits);
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
    request = request < SPAN_MIN ? SPAN_MIN : request > SPAN_MAX ? SPAN_MAX : request;
    return request > need && umf_round_up(request, pages->granule, &request) ? request : need;
}

/* Purges free memory, so that what is resident grows only by what is used. What is to be kept stays
 * as long as all is little more than what was in use before. */
static void purge_before_growth(umf_pages_t *pages, size_t size) {
    size_t total = umf_pages_total(pages), used = umf_pages_used(pages);
    size_t most = sum_shards(pages, shard_most);
    size_t room = most > used + size ? most - used - size : 0;
    size_t keep = atomic_load_explicit(&pages->keep, memory_order_relaxed);
    size_t least = used + (keep < room ? keep : room);
    if (total > least) {
        umf_purge_before_growth(&pages->purge, size < total - least ? size : total - least);
    }
}

/* Requests less and less memory, down to what is needed. */
static umf_result_t grow_down_to(umf_pages_t *pages, size_t need, size_t alignment) {
    size_t size = span_request(pages, need);
    purge_before_growth(pages, size);
    for (;;) {
        umf_result_t result = span_create(pages, size, alignment);
        if (result == UMF_RESULT_SUCCESS || size == need) {
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
    if (result == UMF_RESULT_SUCCESS || alignment == pages->alignment ||
        !umf_add(need, alignment, &need)) {
        return result;
    }
    return span_create(pages, need, pages->alignment);
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
        set_full(pages, true);
        umf_pages_put(pages, ptr, size);
    }
    return has;
}

/* The last look: the provider may be able to serve the request once it has the free spans back. */
static UMF_COLD umf_result_t grow_last(umf_pages_t *pages, size_t size, size_t need,
                                       size_t alignment) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    umf_withheld_part_t part;
    umf_withheld_look(&pages->withheld, &part);
    inherit(pages);
    do {
        if (has_room(pages, size, alignment)) {
            result = UMF_RESULT_SUCCESS;
        } else {
            release_all_free(pages);
            result = grow_aligned(pages, need, alignment);
        }
    } while (umf_withheld_again(&part, result == UMF_RESULT_SUCCESS));
    return result;
}

umf_result_t umf_pages_grow(umf_pages_t *pages, size_t size, size_t alignment) {
    size_t need;
    __atomic_store_n(&umf_pages_shard_own(pages)->elsewhere, 0, __ATOMIC_RELAXED);
    if (!umf_round_up(size, pages->granule, &need)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    size_t aligned = alignment < pages->alignment ? pages->alignment : alignment;
    umf_result_t result = grow_aligned(pages, need, aligned);
    return result == UMF_RESULT_SUCCESS ? result : grow_last(pages, size, need, aligned);
}

void *umf_pages_alloc(umf_pages_t *pages, size_t size, size_t alignment) {
    void *ptr;
    while ((ptr = umf_pages_take(pages, size, alignment)) == NULL &&
           umf_pages_grow(pages, size, alignment) == UMF_RESULT_SUCCESS) {
    }
    return ptr;
}

/* --- freeing segments --- */

/* A span that was purged goes back. */
static void fell_free(void *pool, umf_purge_part_t *part, uintptr_t base) {
    umf_pages_t *pages = pool;
    umf_assert_locked(part->lock);
    umf_pages_span_t *span = umf_pages_find(pages, (void *)base);
    if (span) {
        surplus_add_locked(pages, span);
    }
}

/* A shard keeps its last free span. Besides all shards together keep as many bytes as were taken
 * again soon after they had been given back, but each has little more than was in use before. */
static size_t keep_of_locked(umf_pages_t *pages, const shard_t *shard,
                             const umf_pages_span_t *last) {
    size_t kept = shard->kept_bytes, all = atomic_load_explicit(&pages->keep, memory_order_relaxed);
    size_t others = atomic_load_explicit(&pages->kept, memory_order_relaxed) - kept;
    size_t total = umf_range_total_bytes(shard->range), most = most_locked(shard);
    size_t excess = total > most ? total - most : 0;
    size_t keep = all > others ? all - others : 0, room = kept > excess ? kept - excess : 0;
    keep = keep < room ? keep : room;
    return last->size > keep ? last->size : keep;
}

static void keep_locked(umf_pages_t *pages, shard_t *shard, umf_pages_span_t *last) {
    last->is_kept = true;
    shard->kept_bytes += last->size;
    atomic_fetch_add_explicit(&pages->kept, last->size, memory_order_relaxed);
    umf_list_add_tail(&shard->kept, &last->idle);
    size_t keep = keep_of_locked(pages, shard, last);
    while (shard->kept_bytes > keep) {
        surplus_add_locked(pages, UMF_CONTAINER_OF(shard->kept.next, umf_pages_span_t, idle));
    }
}

/* Spans that are kept, or about to be given back, may have been in use meanwhile. */
static void span_fell_free_locked(umf_pages_t *pages, shard_t *shard, uintptr_t base) {
    umf_assert_locked(&shard->lock);
    umf_pages_span_t *span = umf_pages_find(pages, (void *)base);
    note_peak_locked(shard, span ? span->size : 0);
    if (span && span->is_kept) {
        umf_list_remove(&span->idle);
        umf_list_add_tail(&shard->kept, &span->idle);
    } else if (span && umf_list_is_empty(&span->idle) && span->size <= KEPT_MAX) {
        keep_locked(pages, shard, span);
    } else if (span) {
        surplus_add_locked(pages, span);
    }
}

static void put_locked(umf_pages_t *pages, shard_t *shard, uintptr_t base, size_t size) {
    umf_range_freed_t freed;
    umf_result_t result = umf_range_free(shard->range, base, size, &freed);
    if (result == UMF_RESULT_SUCCESS && freed.whole_region) {
        span_fell_free_locked(pages, shard, freed.free_base);
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

static void begin_period(umf_pages_t *pages) {
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        shard_t *shard = pages->shards[i];
        umf_lock(&shard->lock);
        shard->last_peak = shard->peak;
        shard->peak = in_use_locked(shard);
        umf_unlock(&shard->lock);
    }
}

bool umf_pages_decay(umf_pages_t *pages, bool is_new) {
    if (is_new) {
        begin_period(pages);
    }
    size_t before = atomic_load_explicit(&pages->given, memory_order_relaxed);
    bool goes_on = umf_purge_decay(&pages->purge);
    umf_pages_settle(pages);
    size_t given = atomic_exchange_explicit(&pages->given, 0, memory_order_relaxed);
    take_up_to(&pages->keep, given > before ? given - before : 0);
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
    release_all_free(pages);
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
