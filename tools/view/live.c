/*
 * Live bytes, by the structures of each kind of pool. What changes meanwhile is a little wrong, as
 * in a snapshot; what cannot be is not believed.
 */
#include <stdlib.h>
#include <string.h>

#include "view/own.h"

#define CHUNKS_MAX (1u << 20) /* of a slab */
#define CLAIMED_MAX 65536u    /* segments that may be reserved */
#define RECORDS_AT_ONCE 1024u

static bool add_live(view_t *view, const view_pool_t *pool, uint64_t bytes, uint64_t count) {
    umf_record_object_t *object = view_object(view, pool->row);
    view_sum(&object->live, bytes);
    view_sum(&object->live_count, count);
    return true;
}

static bool is_in(uint32_t offset, uint32_t size, uint32_t of) {
    return of <= STRUCT_MAX && size <= of && offset <= of - size;
}

/* --- slabs ------------------------------------------------------------------------------------ */

typedef struct slab_t {
    uint64_t at, offsets, chunk, stride;
    uint32_t chunks;
} slab_t;

static bool slab_read(view_t *view, const umf_view_slab_t *is, const view_span_t *span,
                      slab_t *slab) {
    if (!is_in(is->bin, 8, is->size) || !is_in(is->span, 4, is->size) ||
        !is_in(is->offsets, 8, is->size) || !is_in(is->chunks, 4, is->bin_size) ||
        !is_in(is->chunk, 8, is->bin_size) || !is_in(is->stride, 8, is->bin_size) ||
        !view_struct(view, span->cookie, is->size) ||
        view_number(view->bytes, is->span, 4) != span->index) {
        return false;
    }
    uint64_t bin = view_number(view->bytes, is->bin, 8);
    *slab = (slab_t){.at = span->cookie, .offsets = view_number(view->bytes, is->offsets, 8)};
    if (!view_struct(view, bin, is->bin_size)) {
        return false;
    }
    slab->chunks = (uint32_t)view_number(view->bytes, is->chunks, 4);
    slab->chunk = view_number(view->bytes, is->chunk, 8);
    slab->stride = view_number(view->bytes, is->stride, 8);
    return slab->chunks > 0 && slab->chunks <= CHUNKS_MAX && slab->chunk > 0 &&
           slab->chunk <= span->bytes / slab->chunks && slab->stride <= 64;
}

/* `words` are in front of the slab, the first one last; `states` and `offsets` are as the slab has
 * them. */
static uint64_t chunks_live(const slab_t *slab, const uint64_t *words, size_t word_count,
                            const unsigned char *states, const uint32_t *offsets, uint32_t live) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < slab->chunks; i++) {
        bool is_used = !(words[word_count - 1 - i / 64] >> i % 64 & 1);
        count += is_used &&
                 (slab->stride == 0 || (offsets && offsets[i]) || states[i * slab->stride] == live);
    }
    return count;
}

static bool live_slab(view_t *view, const view_pool_t *pool, const view_span_t *span) {
    const umf_view_slab_t *is = &pool->kind->kind.slab;
    slab_t slab;
    if (span->cookie == 0) {
        return add_live(view, pool, span->bytes, 1);
    }
    if (!slab_read(view, is, span, &slab)) {
        return false;
    }
    size_t words = (slab.chunks + 63) / 64, states = slab.chunks * slab.stride;
    size_t size = words * 8 + is->size + states;
    unsigned char *bytes = malloc(size + 1);
    uint32_t *offsets = slab.offsets && slab.stride ? malloc(slab.chunks * sizeof(*offsets)) : NULL;
    bool is_read = bytes && umf_view_get(view->source, slab.at - words * 8, bytes, size) &&
                   (!offsets || umf_view_get(view->source, slab.offsets, offsets,
                                             slab.chunks * sizeof(*offsets)));
    if (is_read) {
        uint64_t count = chunks_live(&slab, (const uint64_t *)(const void *)bytes, words,
                                     bytes + words * 8 + is->size, offsets, is->live);
        add_live(view, pool, count * slab.chunk, count);
    }
    free(offsets);
    free(bytes);
    return is_read;
}

/* --- pages ------------------------------------------------------------------------------------ */

static bool pages_are_right(const umf_view_pages_t *is) {
    return is->record_size > 0 && is->record_size <= 64 && is_in(is->states, 8, is->record_size) &&
           is_in(is->bias, 2, is->record_size) && is_in(is->kind, 1, is->record_size) &&
           (is->own == UMF_VIEW_NONE || is_in(is->own, 4, is->record_size)) &&
           is->records <= STRUCT_MAX &&
           (is->shift == UMF_VIEW_NONE || (is->shift <= STRUCT_MAX && is->direct <= STRUCT_MAX));
}

/* The live objects that start in a page. false: they are not known. */
static bool objects_live(view_t *view, const view_pool_t *pool, const unsigned char *record) {
    const umf_view_pages_t *is = &pool->kind->kind.pages;
    unsigned char states[PAGE];
    uint32_t kind = record[is->kind], bias = (uint32_t)view_number(record, is->bias, 2);
    uint64_t at = view_number(record, is->states, 8), count = 0;
    bool has_size = kind <= is->kinds;
    uint32_t step = kind < 256 ? pool->kind->steps[has_size ? kind : is->kinds] : 0;
    if (kind == 0 || at == 0) {
        return true;
    }
    uint32_t first = step && bias ? step - bias : 0;
    if (step == 0 || bias >= step) {
        return false;
    }
    uint32_t starts = first < PAGE ? (PAGE - 1 - first) / step + 1 : 0;
    if (starts > 0 && !umf_view_get(view->source, at + (first + bias) / step, states, starts)) {
        return false;
    }
    for (uint32_t i = 0; i < starts; i++) {
        count += states[i] == is->live;
    }
    return has_size ? add_live(view, pool, count * pool->kind->sizes[kind - 1], count) : count == 0;
}

static bool live_records(view_t *view, const view_pool_t *pool, const view_span_t *span,
                         unsigned char *records) {
    const umf_view_pages_t *is = &pool->kind->kind.pages;
    uint64_t pages = span->bytes / PAGE, begin = 0;
    for (uint64_t page = 0; page < pages; page++) {
        if (page == 0 || page >= begin + RECORDS_AT_ONCE) {
            begin = page;
            uint64_t count = pages - page < RECORDS_AT_ONCE ? pages - page : RECORDS_AT_ONCE;
            uint64_t at = span->cookie + is->records + page * is->record_size;
            if (!umf_view_get(view->source, at, records, (size_t)count * is->record_size)) {
                return false;
            }
        }
        const unsigned char *record = records + (page - begin) * is->record_size;
        uint64_t own = is->own == UMF_VIEW_NONE ? 0 : view_number(record, is->own, 4);
        if (own > pages - page) {
            return false;
        }
        if (own) {
            add_live(view, pool, own * PAGE, 1);
            page += own - 1;
        } else if (!objects_live(view, pool, record)) {
            return false;
        }
    }
    return true;
}

static bool live_pages(view_t *view, const view_pool_t *pool, const view_span_t *span) {
    const umf_view_pages_t *is = &pool->kind->kind.pages;
    uint8_t shift = 0, state = 0;
    if (!pages_are_right(is)) {
        return false;
    }
    if (is->shift != UMF_VIEW_NONE &&
        (!umf_view_get(view->source, span->cookie + is->shift, &shift, 1) ||
         !umf_view_get(view->source, span->cookie + is->direct, &state, 1))) {
        return false;
    }
    if (shift == 63) {
        return state != is->live || add_live(view, pool, span->bytes, 1);
    }
    unsigned char *records = malloc((size_t)RECORDS_AT_ONCE * is->record_size);
    bool is_done = records && live_records(view, pool, span, records);
    free(records);
    return is_done;
}

bool view_live(view_t *view, const view_pool_t *pool, const view_span_t *span) {
    switch (pool->kind->kind.how) {
    case UMF_VIEW_BLOCKS:
        return add_live(view, pool, span->bytes, 1);
    case UMF_VIEW_SLABS:
        return live_slab(view, pool, span);
    case UMF_VIEW_SHARDS:
    case UMF_VIEW_SUMS:
        return true; /* later, for all spans at once */
    case UMF_VIEW_PAGES:
        return live_pages(view, pool, span);
    default:
        return false;
    }
}

/* --- shards ----------------------------------------------------------------------------------- */

/* Memory that is used but reserved. */
static bool reserved_read(view_t *view, uint64_t segment, uint64_t *bytes, uint64_t *count) {
    const umf_view_range_t *is = &view->range;
    for (uint32_t i = 0; segment != 0; i++) {
        uint64_t size;
        uint32_t generation;
        if (i == CLAIMED_MAX ||
            !umf_view_get(view->source, segment + is->segment_bytes, &size, 8) ||
            !umf_view_get(view->source, segment + is->generation, &generation, 4) ||
            !umf_view_get(view->source, segment + is->segment_next, &segment, 8)) {
            return false;
        }
        if (generation & 1) {
            view_sum(bytes, size);
            *count += 1;
        }
    }
    return true;
}

static bool shard_read(view_t *view, const view_pool_t *pool, uint64_t shard) {
    const umf_view_shards_t *is = &pool->kind->kind.shards;
    uint64_t range, live, used, claimed, transit = 0, count = 0;
    if (!umf_view_get(view->source, shard + is->range, &range, 8) ||
        !umf_view_get(view->source, shard + is->live, &live, 8) ||
        !umf_view_get(view->source, range + view->range.used, &used, 8) ||
        !umf_view_get(view->source, range + view->range.claimed, &claimed, 8) ||
        !reserved_read(view, claimed, &transit, &count)) {
        return false;
    }
    return add_live(view, pool, used > transit ? used - transit : 0,
                    live > count ? live - count : 0);
}

bool view_live_shards(view_t *view, const view_pool_t *pool) {
    const umf_view_shards_t *is = &pool->kind->kind.shards;
    for (uint32_t i = 0; i < is->most && i < 64; i++) {
        uint64_t shard = 0;
        if (!umf_view_get(view->source, pool->self + is->shards + (uint64_t)i * 8, &shard, 8)) {
            return false;
        }
        if (shard == 0) {
            return true;
        }
        if (!shard_read(view, pool, shard)) {
            return false;
        }
    }
    return is->most <= 64;
}

/* --- sums ------------------------------------------------------------------------------------- */

bool view_sums(view_t *view, const view_pool_t *pool) {
    const umf_view_sums_t *is = &pool->kind->kind.sums;
    umf_view_row_t *row = &view->rows->rows[pool->row];
    uint64_t live, blocks, held;
    if (!umf_view_get(view->source, pool->self + is->held, &held, 8) ||
        !umf_view_get(view->source, pool->self + is->live, &live, 8) ||
        !umf_view_get(view->source, pool->self + is->blocks, &blocks, 8) ||
        !umf_view_get(view->source, pool->self + is->spare, &row->spare, 8) ||
        !umf_view_get(view->source, pool->self + is->stale, &row->stale, 8) ||
        !umf_view_get(view->source, pool->self + is->moved, &row->moved, 8)) {
        return false;
    }
    row->has_pages = true;
    view_held(view, pool->row, held);
    return add_live(view, pool, live, blocks);
}
