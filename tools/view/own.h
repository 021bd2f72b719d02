/* The inside of views, for their files. */
#ifndef UMFCTL_VIEW_OWN_H
#define UMFCTL_VIEW_OWN_H

#include <umf/view_format.h>

#include "view/view.h"

#define PAGE 4096u
#define STRUCT_MAX 65536u /* no structure is larger */
#define BYTES_MAX ((uint64_t)1 << 52)

/* A kind of pool. */
typedef struct view_kind_t {
    uint64_t address; /* 0: none, the rest is zero */
    umf_view_kind_t kind;
    uint32_t sizes[256], steps[256]; /* of UMF_VIEW_PAGES */
} view_kind_t;

/* A set of spans. */
typedef struct view_set_t {
    uint64_t address;
    uint32_t row;
    bool is_inner; /* of another pool that the pool calls */
} view_set_t;

/* A pool with its row. */
typedef struct view_pool_t {
    uint32_t row, index;
    uint64_t self;
    view_kind_t *kind;
    bool is_known; /* its live bytes follow from the data read so far */
} view_pool_t;

#define VIEW_KINDS 16

typedef struct view_t {
    umf_view_source_t *source;
    umf_view_rows_t *rows;
    umf_view_t table;
    umf_view_range_t range;
    uint32_t first; /* row of this table */
    view_kind_t kinds[VIEW_KINDS];
    view_pool_t pools[UMF_VIEW_ROWS];
    size_t pool_count;
    view_set_t sets[2 * UMF_VIEW_ROWS];
    size_t set_count;
    unsigned char *bytes; /* STRUCT_MAX, for one structure at a time */
} view_t;

typedef struct view_span_t {
    uint32_t index;
    uint64_t bytes, cookie;
} view_span_t;

/* Numbers out of a structure that was read; the offset was checked with the table. */
uint64_t view_number(const unsigned char *bytes, uint32_t offset, size_t size);
/* Reads a structure of that size into `bytes`. */
bool view_struct(view_t *view, uint64_t at, uint32_t size);

/* spans.c: what pools hold, by their spans. */
void view_spans(view_t *view);
/* Adds to the bytes held by a pool and its provider. */
void view_held(view_t *view, uint32_t row, uint64_t bytes);

/* live.c: adds the live bytes of a span to the row. false: they are not known. */
bool view_live(view_t *view, const view_pool_t *pool, const view_span_t *span);
/* Of pools with shards, once for all spans. */
bool view_live_shards(view_t *view, const view_pool_t *pool);
/* Of pools with sums, whose spans do not say what they hold. */
bool view_sums(view_t *view, const view_pool_t *pool);

static inline umf_record_object_t *view_object(view_t *view, uint32_t row) {
    return &view->rows->rows[row].object;
}

/* Nothing grows beyond what can be. */
static inline void view_sum(uint64_t *sum, uint64_t more) {
    *sum = *sum <= BYTES_MAX && more <= BYTES_MAX ? *sum + more : BYTES_MAX;
}

#endif
