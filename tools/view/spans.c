/* The spans of all pools: bytes held, and bytes live in them. */
#include <stdlib.h>

#include "view/own.h"

#define SPANS_MAX (1u << 26)
#define CHUNK 262144u /* bytes of spans that are read at once */

enum { SPAN_POOL = 1, SPAN_DORMANT = 3 };

static int compare(const void *a, const void *b) {
    const view_set_t *left = a, *right = b;
    return (left->address > right->address) - (left->address < right->address);
}

static const view_set_t *set_find(const view_t *view, uint64_t address) {
    view_set_t key = {.address = address};
    return bsearch(&key, view->sets, view->set_count, sizeof(key), compare);
}

/* By row: pools are in the order of their rows. */
static view_pool_t *pool_of(view_t *view, uint32_t row) {
    size_t low = 0, high = view->pool_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (view->pools[middle].row < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return &view->pools[low];
}

void view_held(view_t *view, uint32_t row, uint64_t bytes) {
    umf_record_object_t *object = view_object(view, row);
    view_sum(&object->held, bytes);
    if (object->parent) {
        view_sum(&view_object(view, object->parent - 1)->held, bytes);
    }
}

static bool has_sums(const view_pool_t *pool) {
    return pool->kind && pool->kind->kind.how == UMF_VIEW_SUMS;
}

static void span_see(view_t *view, uint32_t index, const unsigned char *bytes) {
    const umf_view_t *table = &view->table;
    uint8_t kind = bytes[table->span_kind];
    const view_set_t *set = kind == SPAN_POOL || kind == SPAN_DORMANT
                                ? set_find(view, view_number(bytes, table->span_set, 8))
                                : NULL;
    if (!set) {
        return;
    }
    view_span_t span = {
        .index = index,
        .bytes = view_number(bytes, table->span_bytes, 8),
        .cookie = view_number(bytes, table->span_cookie, 8),
    };
    view_pool_t *pool = pool_of(view, set->row);
    if (set->is_inner || !has_sums(pool)) {
        view_held(view, set->row, span.bytes);
    }
    if (pool->is_known && kind == SPAN_POOL) {
        pool->is_known = !set->is_inner && view_live(view, pool, &span);
    }
}

/* false: not all could be read. */
static bool spans_read(view_t *view, unsigned char *chunk) {
    uint32_t made = 0, each = CHUNK / view->table.span_size;
    uint64_t spans = 0;
    if (!umf_view_get(view->source, (uintptr_t)view->table.span_made, &made, 4) ||
        !umf_view_get(view->source, (uintptr_t)view->table.spans, &spans, 8)) {
        return false;
    }
    made = made < SPANS_MAX ? made : SPANS_MAX - 1;
    for (uint32_t first = 1; first <= made; first += each) {
        uint32_t count = made - first + 1 < each ? made - first + 1 : each;
        uint64_t at = spans + (uint64_t)first * view->table.span_size;
        if (!umf_view_get(view->source, at, chunk, (size_t)count * view->table.span_size)) {
            return false;
        }
        for (uint32_t i = 0; i < count; i++) {
            span_see(view, first + i, chunk + (size_t)i * view->table.span_size);
        }
    }
    return true;
}

/* Sums begin with 0 where spans are recorded. */
static void figures_begin(view_t *view) {
    for (size_t i = 0; i < view->set_count; i++) {
        umf_record_object_t *object = view_object(view, view->sets[i].row);
        object->held = object->live = object->live_count = 0;
        if (object->parent) {
            view_object(view, object->parent - 1)->held = 0;
        }
    }
}

static void figures_end(view_t *view, bool is_whole) {
    is_whole &= !umf_view_is_out(view->source);
    for (uint32_t i = view->first; i < view->rows->count && !is_whole; i++) {
        view_object(view, i)->held = UMF_RECORD_UNKNOWN;
    }
    for (size_t i = 0; i < view->pool_count; i++) {
        view_pool_t *pool = &view->pools[i];
        umf_record_object_t *object = view_object(view, pool->row);
        if (!pool->is_known || !is_whole) {
            object->live = object->live_count = UMF_RECORD_UNKNOWN;
        }
    }
}

void view_spans(view_t *view) {
    unsigned char *chunk = malloc(CHUNK);
    qsort(view->sets, view->set_count, sizeof(view->sets[0]), compare);
    figures_begin(view);
    bool is_whole = chunk && spans_read(view, chunk);
    for (size_t i = 0; i < view->pool_count && is_whole; i++) {
        view_pool_t *pool = &view->pools[i];
        if (pool->is_known && pool->kind->kind.how == UMF_VIEW_SHARDS) {
            pool->is_known = view_live_shards(view, pool);
        }
        if (has_sums(pool) && !view_sums(view, pool)) {
            pool->is_known = false;
            view_object(view, pool->row)->held = UMF_RECORD_UNKNOWN;
        }
    }
    figures_end(view, is_whole);
    free(chunk);
}
