#include "pools/scalable/records.h"

#include "base/log.h"
#include "base/meta.h"
#include "pools/scalable/scalable.h"

umf_scalable_direct_t umf_scalable_direct_live, umf_scalable_direct_freed, umf_scalable_direct_lost;

/* The page leads to the state of the block, as the pages of other records do. */
static void direct_init(umf_scalable_record_t *record, uint8_t state) {
    record->page_shift = UMF_SCALABLE_DIRECT_SHIFT;
    record->direct = state;
    record->pages[0] =
        (umf_scalable_page_t){.states = &record->direct, .kind = UMF_SCALABLE_BIN_NONE + 1};
}

void umf_scalable_records_init(void) {
    direct_init(&umf_scalable_direct_live.record, UMF_STATE_LIVE);
    direct_init(&umf_scalable_direct_freed.record, UMF_STATE_NONE);
    direct_init(&umf_scalable_direct_lost.record, UMF_STATE_NONE);
}

umf_scalable_record_t *umf_scalable_record_make(size_t span_size) {
    size_t pages = (span_size >> UMF_STARTS_PAGE_SHIFT) + 1;
    size_t size = sizeof(umf_scalable_record_t) + pages * sizeof(umf_scalable_page_t);
    umf_scalable_record_t *record = umf_meta_alloc_lasting(size);
    if (record) {
        record->size = size;
        record->page_shift = UMF_STARTS_PAGE_SHIFT;
    }
    return record;
}

void umf_scalable_record_put(umf_scalable_record_t *record, uintptr_t base, uint32_t index) {
    if (record->page_shift != UMF_SCALABLE_DIRECT_SHIFT) {
        umf_starts_drop(record->pages, atomic_load_explicit(&record->made, memory_order_relaxed),
                        base, index);
        umf_meta_free_lasting(record, record->size);
    }
}

bool umf_scalable_direct_change(umf_span_t *span, umf_scalable_direct_t *from,
                                umf_scalable_direct_t *to) {
    void *record = from;
    return __atomic_compare_exchange_n(&span->cookie, &record, to, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

static bool span_holds(const umf_span_t *span, const void *ptr) {
    return span && (uintptr_t)ptr - span->base < span->size;
}

/* The acquire pairs with the release in `unmark`: accesses of the last owner of the memory happened
 * before. */
size_t umf_scalable_mark(umf_scalable_pool_t *pool, uint32_t bin, umf_item_t *items, size_t n) {
    const umf_span_t *span = NULL;
    umf_starts_pool_t starts = {.sizes = &umf_scalable_sizes.starts,
                                .lock = &pool->lock,
                                .bins = UMF_SCALABLE_BINS,
                                .owner = umf_magazines_owner(&pool->magazines)};
    for (size_t i = 0; i < n; i++) {
        const void *object = items[i].object;
        if (!span_holds(span, object)) {
            span = umf_tracked_find(pool->tracked, object);
            starts.index = umf_scalable_index_of(pool, span->base, span->size);
        }
        items[i].state = umf_starts_make(&starts, umf_scalable_page_of(span, object), bin + 1,
                                         (uintptr_t)object, umf_scalable_offset_of(span, object),
                                         &umf_scalable_record_of(span)->made);
        if (!items[i].state) {
            return i;
        }
        __atomic_exchange_n(items[i].state, UMF_STATE_FREE, __ATOMIC_ACQUIRE);
    }
    return n;
}

/* false: the object is not handed out. Of two frees at the same moment this is the second. */
static bool unmark(const umf_span_t *span, const void *object) {
    uint8_t *state = umf_scalable_state_of(umf_scalable_page_of(span, object), span, object);
    return state && __atomic_exchange_n(state, UMF_STATE_NONE, __ATOMIC_RELEASE) != UMF_STATE_NONE;
}

size_t umf_scalable_unmark(umf_scalable_pool_t *pool, umf_item_t *items, size_t n) {
    const umf_span_t *span = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        void *object = items[i].object;
        if (!span_holds(span, object)) {
            span = umf_tracked_find(pool->tracked, object);
        }
        if (span && unmark(span, object)) {
            items[kept++] = items[i];
        } else {
            UMF_LOG_ERROR("pool %s: %p was freed twice", pool->name, object);
        }
    }
    return kept;
}
