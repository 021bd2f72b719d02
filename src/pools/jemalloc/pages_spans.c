#include "pools/jemalloc/pages_spans.h"

#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"

typedef umf_pages_shard_t shard_t;

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

/* The limit of a shard: a sixteenth more than was in use before. */
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

size_t umf_pages_spans_keep(const umf_pages_t *pages, size_t used) {
    size_t keep = atomic_load_explicit(&pages->keep, memory_order_relaxed), most = 0;
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        most += shard_most(pages->shards[i]);
    }
    size_t room = most > used ? most - used : 0;
    return keep < room ? keep : room;
}

void umf_pages_spans_begin_period(umf_pages_t *pages) {
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        shard_t *shard = pages->shards[i];
        umf_lock(&shard->lock);
        shard->last_peak = shard->peak;
        shard->peak = in_use_locked(shard);
        umf_unlock(&shard->lock);
    }
}

/* --- from the provider --- */

static size_t span_bytes(const umf_pages_t *pages, size_t size) {
    size_t records;
    if (!umf_mul((size >> UMF_PAGE_SHIFT) + 1, pages->record_size, &records) ||
        !umf_add(records, sizeof(umf_pages_span_t), &records)) {
        return 0;
    }
    return records;
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

/* Spans that were released too early are kept the next time. */
static void regain(umf_pages_t *pages, size_t bytes) {
    if (atomic_load_explicit(&pages->given, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&pages->keep, take_up_to(&pages->given, bytes),
                                  memory_order_relaxed);
    }
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
        umf_tracked_refuse(size, result);
        umf_tracked_free(pages->tracked, span->span);
    }
    return result;
}

static umf_result_t span_make(umf_pages_t *pages, size_t size, size_t alignment) {
    size_t bytes = span_bytes(pages, size);
    umf_pages_span_t *span = bytes ? umf_meta_alloc_lasting(bytes) : NULL;
    if (!span) {
        umf_tracked_refuse(size, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    void *base = NULL;
    umf_result_t result =
        umf_tracked_alloc(pages->tracked, size, alignment, UMF_MAP_ENTRY_PAGED, span, &base);
    if (result == UMF_RESULT_SUCCESS) {
        umf_pages_set_full(pages, false);
        regain(pages, size);
        result = span_adopt(pages, span, base, size);
    }
    /* If the provider does not take its memory back, the span stays and still points to the record.
     */
    if (result != UMF_RESULT_SUCCESS && !(base && umf_tracked_find(pages->tracked, base))) {
        umf_meta_free_lasting(span, bytes);
    }
    return result;
}

umf_result_t umf_pages_span_create(umf_pages_t *pages, size_t size, size_t alignment) {
    umf_transit_part_t part;
    umf_transit_begin(&pages->transit, &part);
    umf_result_t result = span_make(pages, size, alignment);
    umf_transit_end(&part);
    return result;
}

/* --- kept, or surplus --- */

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

void umf_pages_span_purged_locked(void *pool, umf_purge_part_t *part, uintptr_t base) {
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
void umf_pages_span_freed_locked(umf_pages_t *pages, shard_t *shard, uintptr_t base) {
    umf_assert_locked(&shard->lock);
    umf_pages_span_t *span = umf_pages_find(pages, (void *)base);
    note_peak_locked(shard, span ? span->size : 0);
    if (span && span->is_kept) {
        umf_list_remove(&span->idle);
        umf_list_add_tail(&shard->kept, &span->idle);
    } else if (span && umf_list_is_empty(&span->idle) && span->size <= UMF_PAGES_SPAN_MAX) {
        keep_locked(pages, shard, span);
    } else if (span) {
        surplus_add_locked(pages, span);
    }
}

/* --- back to the provider --- */

static void span_forget(umf_pages_t *pages, umf_pages_span_t *span) {
    if (pages->ops) {
        pages->ops->drop(pages, span);
    }
    umf_meta_free_lasting(span, span_bytes(pages, span->size));
}

static umf_result_t span_destroy(umf_pages_t *pages, umf_pages_span_t *span) {
    if (pages->ops) {
        pages->ops->leave(pages, span);
    }
    umf_result_t result = umf_tracked_free(pages->tracked, span->span);
    if (result == UMF_RESULT_SUCCESS) {
        umf_pages_set_full(pages, false);
        span_forget(pages, span);
    } else {
        UMF_LOG_ERROR("the provider refused to take back %zu bytes at %p: %s", span->size,
                      (void *)span->base, umfResultName(result));
    }
    return result;
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

/* Spans that the provider refuses stay in use. */
static void surplus_release(umf_pages_t *pages, shard_t *shard) {
    umf_pages_span_t *span;
    while ((span = surplus_take(pages, shard)) != NULL) {
        if (span_destroy(pages, span) != UMF_RESULT_SUCCESS &&
            span_publish(span) != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("%zu bytes at %p are lost: no memory to record them", span->size,
                          (void *)span->base);
        }
    }
}

void umf_pages_settle_slow(umf_pages_t *pages) {
    umf_transit_part_t part;
    umf_transit_begin(&pages->transit, &part);
    /* Cleared before the shards are visited: a thread that adds surplus to a visited shard sets it
     * again. */
    atomic_store_explicit(&pages->has_surplus, false, memory_order_relaxed);
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        surplus_release(pages, pages->shards[i]);
    }
    umf_transit_end(&part);
}

void umf_pages_spans_release(umf_pages_t *pages) {
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        shard_t *shard = pages->shards[i];
        umf_lock(&shard->lock);
        for (umf_list_t *link = shard->spans.next; link != &shard->spans; link = link->next) {
            surplus_add_locked(pages, UMF_CONTAINER_OF(link, umf_pages_span_t, link));
        }
        umf_unlock(&shard->lock);
    }
    atomic_store_explicit(&pages->keep, 0, memory_order_relaxed);
    umf_pages_settle_slow(pages);
    atomic_store_explicit(&pages->given, 0, memory_order_relaxed);
}

size_t umf_pages_spans_begin_pass(const umf_pages_t *pages) {
    return atomic_load_explicit(&pages->given, memory_order_relaxed);
}

void umf_pages_spans_end_pass(umf_pages_t *pages, size_t before) {
    size_t given = atomic_exchange_explicit(&pages->given, 0, memory_order_relaxed);
    take_up_to(&pages->keep, given > before ? given - before : 0);
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

/* --- life --- */

void umf_pages_spans_init(umf_pages_t *pages) {
    atomic_init(&pages->is_full, false);
    atomic_init(&pages->kept, 0);
    atomic_init(&pages->keep, 0);
    atomic_init(&pages->given, 0);
    atomic_init(&pages->has_surplus, false);
}

umf_result_t umf_pages_spans_fini(umf_pages_t *pages) {
    umf_result_t first = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0; i < umf_pages_shard_count(pages); i++) {
        umf_result_t result = shard_empty(pages, pages->shards[i]);
        first = first == UMF_RESULT_SUCCESS ? result : first;
    }
    return first;
}
