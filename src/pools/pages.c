#include "pools/pages.h"

#include <assert.h>
#include <time.h>

#include <umf/result.h>

#include "base/decay.h"
#include "base/log.h"
#include "base/meta.h"

#define SPAN_MIN ((size_t)2 << 20)
#define SPAN_MAX ((size_t)64 << 20)
/* A span larger than this is not kept when it falls free. */
#define RESERVE_MAX SPAN_MAX
/* Free pieces are withheld from allocation while they are purged: this many at a time. */
#define PURGE_BATCH 32
/* How often, and how many nanoseconds apart, an allocation that finds no memory looks again while a
 * purge withholds some. */
#define PURGE_WAITS 2000
#define PURGE_WAIT_NS 50000

enum { PURGE_FORCE, PURGE_LAZY, PURGE_NONE };

void umf_pages_init(umf_pages_t *pages, umf_view_t *view, size_t granule, size_t record_size) {
    pages->view = view;
    pages->granule = granule > UMF_PAGE_SIZE ? granule : UMF_PAGE_SIZE;
    pages->alignment = umf_is_pow2(pages->granule) ? pages->granule : UMF_PAGE_SIZE;
    pages->record_size = record_size;
    pages->range = NULL;
    pages->reserve = NULL;
    atomic_init(&pages->purge_mode, PURGE_FORCE);
    pages->purging = pages->waiting = 0;
    pages->decay_cursor = UINTPTR_MAX;
    atomic_init(&pages->has_surplus, false);
    umf_list_init(&pages->spans);
    umf_list_init(&pages->surplus);
    umf_lock_init(&pages->lock, UMF_RANK_PAGES);
}

umf_pages_span_t *umf_pages_find(const umf_pages_t *pages, const void *ptr) {
    const umf_span_set_t *own = umf_view_spans(pages->view);
    const umf_span_t *span = umf_span_find(own->map, (uintptr_t)ptr, NULL);
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

static umf_result_t span_publish_locked(umf_pages_t *pages, umf_pages_span_t *span) {
    umf_assert_locked(&pages->lock);
    if (!pages->range) {
        pages->range = umf_range_create();
    }
    umf_result_t result = pages->range ? umf_range_add(pages->range, span->base, span->size)
                                       : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (result == UMF_RESULT_SUCCESS) {
        umf_list_add(&pages->spans, &span->link);
    }
    return result;
}

static umf_result_t span_publish(umf_pages_t *pages, umf_pages_span_t *span) {
    umf_lock(&pages->lock);
    umf_result_t result = span_publish_locked(pages, span);
    umf_unlock(&pages->lock);
    return result;
}

/* Takes the new span of the provider into the cache; a misplaced one is refused. */
static umf_result_t span_adopt(umf_pages_t *pages, umf_pages_span_t *span, void *base,
                               size_t size) {
    span->span = umf_view_find(pages->view, base);
    span->base = (uintptr_t)base;
    span->size = umf_align_down(size, UMF_PAGE_SIZE);
    umf_list_init(&span->surplus);
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ALIGNMENT;
    if ((uintptr_t)base % UMF_PAGE_SIZE == 0) {
        result = span_publish(pages, span);
    } else {
        UMF_LOG_ERROR("the provider answered a request aligned to %zu with %p: a page cache needs "
                      "memory aligned to pages",
                      pages->alignment, base);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_view_free(pages->view, span->span);
    }
    return result;
}

static umf_result_t span_create(umf_pages_t *pages, size_t size, size_t alignment) {
    size_t bytes = span_bytes(pages, size);
    umf_pages_span_t *span = bytes ? umf_meta_alloc(bytes) : NULL;
    if (!span) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    void *base = NULL;
    umf_result_t result = umf_view_alloc(pages->view, size, alignment, 0, span, &base);
    if (result == UMF_RESULT_SUCCESS) {
        result = span_adopt(pages, span, base, size);
    }
    /* A provider that does not take its memory back leaves a record that points here. */
    if (result != UMF_RESULT_SUCCESS && !umf_view_find(pages->view, base)) {
        umf_meta_free(span, bytes);
    }
    return result;
}

/* --- spans: back to the provider --- */

static umf_result_t span_destroy(umf_pages_t *pages, umf_pages_span_t *span) {
    umf_result_t result = umf_view_free(pages->view, span->span);
    if (result == UMF_RESULT_SUCCESS) {
        umf_meta_free(span, span_bytes(pages, span->size));
    } else {
        UMF_LOG_ERROR("the provider refused to take back %zu bytes at %p: %s", span->size,
                      (void *)span->base, umfResultName(result));
    }
    return result;
}

static void surplus_add_locked(umf_pages_t *pages, umf_pages_span_t *span) {
    umf_assert_locked(&pages->lock);
    if (umf_list_is_empty(&span->surplus)) {
        umf_list_add_tail(&pages->surplus, &span->surplus);
        atomic_store_explicit(&pages->has_surplus, true, memory_order_relaxed);
    }
}

/* The next surplus span that is still wholly free, taken out of the cache; NULL at the end. */
static umf_pages_span_t *surplus_take(umf_pages_t *pages) {
    umf_pages_span_t *taken = NULL;
    umf_lock(&pages->lock);
    while (!taken && !umf_list_is_empty(&pages->surplus)) {
        umf_pages_span_t *span = UMF_CONTAINER_OF(pages->surplus.next, umf_pages_span_t, surplus);
        umf_list_remove(&span->surplus);
        if (umf_range_remove(pages->range, span->base) == UMF_RESULT_SUCCESS) {
            umf_list_remove(&span->link);
            taken = span;
        }
    }
    if (!taken) {
        atomic_store_explicit(&pages->has_surplus, false, memory_order_relaxed);
    }
    if (taken && pages->reserve == taken) {
        pages->reserve = NULL;
    }
    umf_unlock(&pages->lock);
    return taken;
}

/* How many spans the provider took back. What it refuses is used on. */
static size_t surplus_release(umf_pages_t *pages) {
    size_t count = 0;
    umf_pages_span_t *span;
    while ((span = surplus_take(pages)) != NULL) {
        if (span_destroy(pages, span) == UMF_RESULT_SUCCESS) {
            count++;
        } else if (span_publish(pages, span) != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("%zu bytes at %p are lost: no memory to record them", span->size,
                          (void *)span->base);
        }
    }
    return count;
}

void umf_pages_settle_slow(umf_pages_t *pages) {
    surplus_release(pages);
}

static size_t release_all_free(umf_pages_t *pages) {
    umf_lock(&pages->lock);
    for (umf_list_t *link = pages->spans.next; link != &pages->spans; link = link->next) {
        surplus_add_locked(pages, UMF_CONTAINER_OF(link, umf_pages_span_t, link));
    }
    umf_unlock(&pages->lock);
    return surplus_release(pages);
}

umf_result_t umf_pages_fini(umf_pages_t *pages) {
    umf_result_t first = UMF_RESULT_SUCCESS;
    while (!umf_list_is_empty(&pages->spans)) {
        umf_pages_span_t *span = UMF_CONTAINER_OF(pages->spans.next, umf_pages_span_t, link);
        umf_list_remove(&span->link);
        size_t bytes = span_bytes(pages, span->size);
        umf_result_t result = span_destroy(pages, span);
        if (result != UMF_RESULT_SUCCESS) {
            umf_meta_free(span, bytes);
            first = first == UMF_RESULT_SUCCESS ? result : first;
        }
    }
    if (pages->range) {
        umf_range_destroy(pages->range);
    }
    umf_lock_destroy(&pages->lock);
    return first;
}

/* --- taking pieces --- */

static void *take_locked(umf_pages_t *pages, size_t size, size_t alignment) {
    umf_assert_locked(&pages->lock);
    assert(size && size % UMF_PAGE_SIZE == 0 && umf_is_pow2(alignment));
    uintptr_t base = 0;
    alignment = alignment > UMF_PAGE_SIZE ? alignment : UMF_PAGE_SIZE;
    bool is_found =
        pages->range && umf_range_alloc(pages->range, size, alignment, &base) == UMF_RESULT_SUCCESS;
    return is_found ? (void *)base : NULL;
}

void *umf_pages_take(umf_pages_t *pages, size_t size, size_t alignment) {
    umf_lock(&pages->lock);
    void *ptr = take_locked(pages, size, alignment);
    umf_unlock(&pages->lock);
    return ptr;
}

size_t umf_pages_take_many(umf_pages_t *pages, size_t size, void **pieces, size_t n) {
    size_t taken = 0;
    umf_lock(&pages->lock);
    while (taken < n && (pieces[taken] = take_locked(pages, size, UMF_PAGE_SIZE)) != NULL) {
        taken++;
    }
    umf_unlock(&pages->lock);
    return taken;
}

/* The last try: another thread may have brought memory, or a purge may hold some and return it
 * soon. */
static UMF_COLD void *take_late(umf_pages_t *pages, size_t size, size_t alignment) {
    umf_lock(&pages->lock);
    pages->waiting++;
    void *ptr = take_locked(pages, size, alignment);
    for (int i = 0; i < PURGE_WAITS && !ptr && pages->purging; i++) {
        umf_unlock(&pages->lock);
        nanosleep(&(struct timespec){.tv_nsec = PURGE_WAIT_NS}, NULL);
        umf_lock(&pages->lock);
        ptr = take_locked(pages, size, alignment);
    }
    pages->waiting--;
    umf_unlock(&pages->lock);
    return ptr;
}

/* --- growing --- */

/* What is asked of the provider when it has plenty: in proportion to what is held. */
static size_t span_wish(umf_pages_t *pages, size_t need) {
    size_t wish = umf_align_down(umf_pages_total(pages) / 2, SPAN_MIN);
    wish = wish < SPAN_MIN ? SPAN_MIN : wish > SPAN_MAX ? SPAN_MAX : wish;
    return wish > need && umf_round_up(wish, pages->granule, &wish) ? wish : need;
}

/* Asks for less and less, down to what is needed. */
static umf_result_t grow_down_to(umf_pages_t *pages, size_t need, size_t alignment) {
    for (size_t size = span_wish(pages, need);;) {
        umf_result_t result = span_create(pages, size, alignment);
        if (result == UMF_RESULT_SUCCESS || size == need) {
            return result;
        }
        if (!umf_round_up(size / 4, pages->granule, &size) || size < need) {
            size = need;
        }
    }
}

/* A provider that cannot align as wanted is asked for so much that an aligned piece is in it. */
static umf_result_t grow_aligned(umf_pages_t *pages, size_t need, size_t alignment) {
    umf_result_t result = grow_down_to(pages, need, alignment);
    if (result == UMF_RESULT_SUCCESS || alignment == pages->alignment ||
        !umf_add(need, alignment, &need)) {
        return result;
    }
    return span_create(pages, need, pages->alignment);
}

umf_result_t umf_pages_grow(umf_pages_t *pages, size_t size, size_t alignment) {
    size_t need;
    if (!umf_round_up(size, pages->granule, &need)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (alignment < pages->alignment) {
        alignment = pages->alignment;
    }
    umf_result_t result = grow_aligned(pages, need, alignment);
    if (result != UMF_RESULT_SUCCESS && release_all_free(pages)) {
        result = grow_aligned(pages, need, alignment);
    }
    void *ptr = result != UMF_RESULT_SUCCESS ? take_late(pages, size, alignment) : NULL;
    if (ptr) {
        umf_pages_put(pages, ptr, size);
        result = UMF_RESULT_SUCCESS;
    }
    return result;
}

void *umf_pages_alloc(umf_pages_t *pages, size_t size, size_t alignment) {
    void *ptr;
    while ((ptr = umf_pages_take(pages, size, alignment)) == NULL &&
           umf_pages_grow(pages, size, alignment) == UMF_RESULT_SUCCESS) {
    }
    return ptr;
}

/* --- putting them back --- */

/* One wholly free span is kept; others, and the one it replaces, are surplus. */
static void span_fell_free_locked(umf_pages_t *pages, uintptr_t base) {
    umf_assert_locked(&pages->lock);
    umf_pages_span_t *span = umf_pages_find(pages, (void *)base);
    if (!span || span == pages->reserve) {
        return;
    }
    if (span->size <= RESERVE_MAX) {
        umf_pages_span_t *old = pages->reserve;
        pages->reserve = span;
        span = old;
    }
    if (span) {
        surplus_add_locked(pages, span);
    }
}

static void put_locked(umf_pages_t *pages, uintptr_t base, size_t size, bool is_clean) {
    umf_range_freed_t freed;
    umf_result_t result = is_clean ? umf_range_free_clean(pages->range, base, size, &freed)
                                   : umf_range_free(pages->range, base, size, &freed);
    if (result == UMF_RESULT_SUCCESS && freed.whole_span) {
        span_fell_free_locked(pages, freed.free_base);
    }
    assert(result == UMF_RESULT_SUCCESS);
}

void umf_pages_put(umf_pages_t *pages, void *ptr, size_t size) {
    umf_lock(&pages->lock);
    put_locked(pages, (uintptr_t)ptr, size, false);
    umf_unlock(&pages->lock);
}

void umf_pages_put_many(umf_pages_t *pages, size_t size, void *const *pieces, size_t n) {
    umf_lock(&pages->lock);
    for (size_t i = 0; i < n; i++) {
        put_locked(pages, (uintptr_t)pieces[i], size, false);
    }
    umf_unlock(&pages->lock);
}

umf_result_t umf_pages_split(umf_pages_t *pages, void *ptr, size_t total, size_t first) {
    umf_lock(&pages->lock);
    umf_result_t result = umf_range_split(pages->range, (uintptr_t)ptr, total, first);
    umf_unlock(&pages->lock);
    return result;
}

/* --- decay and trim --- */

/* false: the provider does not purge in any way. */
static bool piece_purge(umf_pages_t *pages, const umf_range_piece_t *piece) {
    uintptr_t begin = piece->base + (pages->granule - 1);
    begin -= begin % pages->granule;
    uintptr_t end = piece->base + piece->size;
    end -= end % pages->granule;
    if (begin >= end) {
        return true;
    }
    for (;;) {
        int mode = atomic_load_explicit(&pages->purge_mode, memory_order_relaxed);
        if (mode == PURGE_NONE) {
            return false;
        }
        umf_result_t result =
            mode == PURGE_FORCE
                ? umfMemoryProviderPurgeForce(pages->view, (void *)begin, end - begin)
                : umfMemoryProviderPurgeLazy(pages->view, (void *)begin, end - begin);
        if (result != UMF_RESULT_ERROR_NOT_SUPPORTED) {
            return true;
        }
        atomic_store_explicit(&pages->purge_mode, mode + 1, memory_order_relaxed);
    }
}

typedef size_t (*pages_choice_t)(umf_range_t *range, uintptr_t *cursor, size_t min,
                                 umf_range_piece_t *pieces, size_t n);

/* None while an allocation waits for what a purge holds. */
static size_t purge_begin(umf_pages_t *pages, pages_choice_t choice, uintptr_t *cursor,
                          umf_range_piece_t *pieces) {
    size_t count = 0;
    umf_lock(&pages->lock);
    if (pages->range && !pages->waiting) {
        count = choice(pages->range, cursor, pages->granule, pieces, PURGE_BATCH);
    }
    pages->purging += count != 0;
    umf_unlock(&pages->lock);
    return count;
}

static void purge_end(umf_pages_t *pages, const umf_range_piece_t *pieces, size_t count) {
    umf_lock(&pages->lock);
    for (size_t i = 0; i < count; i++) {
        put_locked(pages, pieces[i].base, pieces[i].size, true);
    }
    pages->purging--;
    umf_unlock(&pages->lock);
}

/* Up to `bytes`, and what makes up a batch. true: there may be more. */
static bool purge_pieces(umf_pages_t *pages, pages_choice_t choice, uintptr_t *cursor,
                         size_t bytes) {
    umf_range_piece_t pieces[PURGE_BATCH];
    bool purges = atomic_load_explicit(&pages->purge_mode, memory_order_relaxed) != PURGE_NONE;
    size_t count = 0, done = 0;
    while (purges && done < bytes && (count = purge_begin(pages, choice, cursor, pieces)) != 0) {
        for (size_t i = 0; i < count && purges; i++) {
            purges = piece_purge(pages, &pieces[i]);
            done += pieces[i].size;
        }
        purge_end(pages, pieces, count);
    }
    return purges && count != 0;
}

bool umf_pages_decay(umf_pages_t *pages) {
    bool goes_on = purge_pieces(pages, umf_range_take_idle, &pages->decay_cursor, UMF_DECAY_BYTES);
    if (!goes_on) {
        umf_lock(&pages->lock);
        pages->decay_cursor = UINTPTR_MAX;
        umf_unlock(&pages->lock);
    }
    return goes_on;
}

void umf_pages_trim(umf_pages_t *pages) {
    release_all_free(pages);
    uintptr_t cursor = UINTPTR_MAX;
    purge_pieces(pages, umf_range_take_free, &cursor, SIZE_MAX);
    umf_pages_settle(pages);
}

/* --- what there is --- */

size_t umf_pages_total(umf_pages_t *pages) {
    umf_lock(&pages->lock);
    size_t total = pages->range ? umf_range_total_bytes(pages->range) : 0;
    umf_unlock(&pages->lock);
    return total;
}

size_t umf_pages_used(umf_pages_t *pages) {
    umf_lock(&pages->lock);
    size_t used = pages->range ? umf_range_used_bytes(pages->range) : 0;
    umf_unlock(&pages->lock);
    return used;
}
