#include "pools/scalable/walk.h"

/* oneTBB's own memory, and memory that it keeps free: its bounds are unknown. */
static void gap_report(uintptr_t *end, uintptr_t next, umf_walk_t *walk) {
    if (next > *end) {
        umf_walk_add(walk, *end, next - *end, 1, UMF_RECORD_STATE_UNKNOWN);
        *end = next;
    }
}

/* A block without bin has a size that must not be queried: the block may be
 * freed meanwhile. */
static void block_see(const umf_starts_seen_t *seen, umf_walk_t *walk) {
    walk->is_partial |= seen->count > 0 && seen->states[0] == UMF_STATE_LIVE;
}

static void objects_tell(const umf_starts_seen_t *seen, uintptr_t page, size_t size, uintptr_t *end,
                         umf_walk_t *walk) {
    for (size_t i = 0; i < seen->count; i++) {
        uintptr_t object = page + seen->first + i * seen->step;
        if (seen->states[i] != UMF_STATE_NONE && object >= *end) {
            gap_report(end, object, walk);
            umf_walk_add(walk, object, size, 1,
                         seen->states[i] == UMF_STATE_LIVE ? UMF_RECORD_STATE_LIVE
                                                           : UMF_RECORD_STATE_CACHED);
            *end = object + size;
        }
    }
}

void umf_scalable_walk(const umf_scalable_walk_t *walked, const umf_span_t *span,
                       umf_walk_t *walk) {
    uintptr_t end = span->base;
    umf_starts_seen_t seen;
    for (size_t page = 0; page << UMF_STARTS_PAGE_SHIFT < span->size; page++) {
        umf_starts_see(&walked->pages[page], walked->starts, walked->lock, &seen);
        if (seen.kind > walked->bins) {
            block_see(&seen, walk);
        } else if (seen.kind) {
            objects_tell(&seen, span->base + (page << UMF_STARTS_PAGE_SHIFT),
                         walked->size[seen.kind - 1], &end, walk);
        }
    }
    gap_report(&end, span->base + span->size, walk);
}
