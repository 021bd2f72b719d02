#include "pools/jemalloc/pages_walk.h"

#include "pools/jemalloc/sizes.h"
#include "pools/shared/walk.h"

typedef struct pages_walk_t {
    const umf_span_t *span;
    const umf_starts_t *records;
    umf_lock_t *lock; /* of the records */
} pages_walk_t;

/* An object that is FREE lies in a stack or a depot; one without a state was never handed out by
 * jemalloc, or is free again. */
static umf_record_state_t object_state(uint8_t state) {
    return state == UMF_STATE_LIVE   ? UMF_RECORD_STATE_LIVE
           : state == UMF_STATE_FREE ? UMF_RECORD_STATE_CACHED
                                     : UMF_RECORD_STATE_FREE;
}

/* The pages may belong to another slab by now: an object that overlaps a reported one
 * is left out. */
static void objects_tell(const umf_starts_seen_t *seen, uintptr_t page, uintptr_t *end,
                         umf_walk_t *walk) {
    size_t size = umf_jemalloc_sizes.size[seen->kind - 1];
    for (size_t i = seen->count; i-- > 0;) {
        uintptr_t object = page + seen->first + i * seen->step;
        if (object + size <= *end) {
            umf_walk_add(walk, object, size, 1, object_state(seen->states[i]));
            *end = object;
        }
    }
}

static void page_see(const pages_walk_t *walked, size_t page, umf_starts_seen_t *seen) {
    umf_starts_see(&walked->records[page], &umf_jemalloc_sizes.starts, walked->lock, seen);
}

static bool has_states(const umf_starts_seen_t *seen) {
    bool has_any = false;
    for (size_t i = 0; seen->kind && i < seen->count && !has_any; i++) {
        has_any = seen->states[i] != UMF_STATE_NONE;
    }
    return has_any;
}

/* A page has the kind of an earlier slab until one of its objects is handed out. So the kind of the
 * slab is that of a page with states. 0: nothing of the slab is handed out, or it is a block on its
 * way between the page cache and a user. */
static uint32_t slab_kind(const pages_walk_t *walked, size_t first, size_t pages) {
    umf_starts_seen_t seen;
    for (size_t i = 0; i < pages; i++) {
        page_see(walked, first + i, &seen);
        if (has_states(&seen)) {
            return seen.kind;
        }
    }
    return 0;
}

static void slab_tell(const pages_walk_t *walked, const umf_range_piece_t *piece, uint32_t kind,
                      umf_walk_t *walk) {
    size_t first = (piece->base - walked->span->base) >> UMF_PAGE_SHIFT;
    uintptr_t end = piece->base + piece->size;
    umf_starts_seen_t seen;
    for (size_t i = piece->size >> UMF_PAGE_SHIFT; i-- > 0;) {
        page_see(walked, first + i, &seen);
        if (seen.kind == kind) {
            objects_tell(&seen, piece->base + (i << UMF_PAGE_SHIFT), &end, walk);
        }
    }
}

static void used_tell(const umf_range_piece_t *piece, umf_walk_t *walk, void *arg) {
    const pages_walk_t *walked = arg;
    size_t first = (piece->base - walked->span->base) >> UMF_PAGE_SHIFT;
    if (__atomic_load_n(&walked->records[first].own, __ATOMIC_ACQUIRE)) {
        umf_walk_live(piece, walk, NULL);
        return;
    }
    uint32_t kind = slab_kind(walked, first, piece->size >> UMF_PAGE_SHIFT);
    if (kind) {
        slab_tell(walked, piece, kind, walk);
    } else {
        umf_walk_add(walk, piece->base, piece->size, 1, UMF_RECORD_STATE_CACHED);
    }
}

/* A span that no shard has is wholly free, and on its way to or from the provider. */
void umf_pages_walk(umf_pages_t *pages, umf_lock_t *lock, const umf_span_t *span,
                    umf_walk_t *walk) {
    umf_pages_span_t *record = span->cookie;
    pages_walk_t walked = {span, (const umf_starts_t *)(uintptr_t)record->records, lock};
    uint32_t count = atomic_load_explicit(&pages->shard_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        umf_pages_shard_t *shard = pages->shards[i];
        umf_walk_range_t divided = {
            .part = &shard->part,
            .used = used_tell,
            .arg = &walked,
        };
        if (umf_walk_range(&divided, span->base, walk)) {
            return;
        }
    }
    umf_walk_add(walk, span->base, span->size, 1, UMF_RECORD_STATE_FREE);
}
