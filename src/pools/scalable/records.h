/*
 * The record of a span: where objects start in it, and which of them users own.
 *
 * If two threads free one block at once, the second may look at the record after the first has
 * given the span back. So the memory of a record stays mapped.
 */
#ifndef UMF_SRC_POOLS_SCALABLE_RECORDS_H
#define UMF_SRC_POOLS_SCALABLE_RECORDS_H

#include "pools/scalable/sizes.h"
#include "pools/shared/starts.h"
#include "system/atomic.h"
#include "track/span.h"

/* A page. All its objects have one size, because oneTBB's slabs are larger. */
typedef umf_starts_t umf_scalable_page_t;

/* The span points to it. It has a record for each page, counted from the start of the span. A
 * direct block has one for all of it. */
typedef struct umf_scalable_record_t {
    size_t size;           /* of this record in bytes */
    _Atomic(size_t) made;  /* pages with states */
    _Atomic(bool) is_lost; /* the span is unused, but the provider has refused it */
    uint8_t page_shift;    /* UMF_STARTS_PAGE_SHIFT or UMF_SCALABLE_DIRECT_SHIFT */
    uint8_t direct;        /* the state of a direct block */
    umf_scalable_page_t pages[];
} umf_scalable_record_t;

#define UMF_SCALABLE_DIRECT_SHIFT 63 /* every address of the span has page 0 */

/* State of a direct block. All of them share these records: to which of them a span points is the
 * state of its block. No object starts in page 1, which is that of an address below the span: if
 * its descriptor was reused since a thread found it. Immutable after init. */
typedef union umf_scalable_direct_t {
    umf_scalable_record_t record;
    char with_pages[sizeof(umf_scalable_record_t) + 2 * sizeof(umf_scalable_page_t)];
} umf_scalable_direct_t;
extern umf_scalable_direct_t umf_scalable_direct_live, umf_scalable_direct_freed;
extern umf_scalable_direct_t umf_scalable_direct_lost; /* freed, but the provider has refused it */

void umf_scalable_records_init(void);

/* NULL: out of memory. */
umf_scalable_record_t *umf_scalable_record_make(size_t span_size);
/* The span at `base` is gone. The records of direct blocks stay. `index`: of its page records. */
void umf_scalable_record_put(umf_scalable_record_t *record, uintptr_t base, uint32_t index);

static inline umf_scalable_record_t *umf_scalable_record_of(const umf_span_t *span) {
    return (umf_scalable_record_t *)__atomic_load_n(&span->cookie, __ATOMIC_RELAXED);
}

static inline bool umf_scalable_is_direct(const umf_span_t *span) {
    return umf_scalable_record_of(span)->page_shift == UMF_SCALABLE_DIRECT_SHIFT;
}

/* false: the block of the span is not `from`. */
bool umf_scalable_direct_change(umf_span_t *span, umf_scalable_direct_t *from,
                                umf_scalable_direct_t *to);

static inline umf_scalable_page_t *umf_scalable_page_of(const umf_span_t *span, const void *ptr) {
    umf_scalable_record_t *record = umf_scalable_record_of(span);
    return &record->pages[((uintptr_t)ptr - span->base) >> record->page_shift];
}

/* Objects start at offsets in pages that are counted from the start of the span. */
static inline size_t umf_scalable_offset_of(const umf_span_t *span, const void *ptr) {
    return ((uintptr_t)ptr - span->base) % UMF_STARTS_PAGE;
}

/* The state of the object at `ptr`. NULL: no object can start there. In a direct block, one may be
 * found at the start of every page, so the caller looks at the address. */
static inline uint8_t *umf_scalable_state_of(const umf_scalable_page_t *page,
                                             const umf_span_t *span, const void *ptr) {
    return umf_starts_find(page, &umf_scalable_sizes.starts, umf_scalable_offset_of(span, ptr));
}

static inline uint32_t umf_scalable_page_bin(const umf_scalable_page_t *page) {
    return __atomic_load_n(&page->kind, __ATOMIC_RELAXED) - 1u;
}

#endif
