/* What slabs are divided into. */
#include "object/walk.h"

#include "pools/disjoint/disjoint.h"
#include "system/annotate.h"

#define PORTION 4096 /* chunks that are looked at with the lock held; a multiple of 64 */

/* Owners of chunks write their states meanwhile. */
UMF_WITHOUT_TSAN static bool is_live(const uint8_t *state) {
    return *(const volatile uint8_t *)state == UMF_STATE_LIVE;
}

/* The chunk is not free for its bin. One that a thread or a depot keeps is not LIVE, as is one that
 * was over-aligned, whose offset is recorded. */
static umf_record_state_t used_state_locked(umf_slab_t *slab, size_t chunk) {
    bool is_users = slab->bin->stride == 0 || (slab->offsets && slab->offsets[chunk]) ||
                    is_live(umf_slab_state(slab, chunk));
    return is_users ? UMF_RECORD_STATE_LIVE : UMF_RECORD_STATE_CACHED;
}

/* A slab of one chunk may be claimed: its bit is set, but the bin counts the chunk as used. */
static umf_record_state_t chunk_state_locked(umf_slab_t *slab, size_t chunk, uint64_t bits) {
    if (!(bits >> chunk % 64 & 1)) {
        return used_state_locked(slab, chunk);
    }
    return slab->free ? UMF_RECORD_STATE_FREE : UMF_RECORD_STATE_CACHED;
}

static void walk_portion_locked(umf_slab_t *slab, uintptr_t base, size_t first, size_t end,
                                umf_walk_t *walk) {
    size_t size = slab->bin->size;
    for (size_t i = first; i < end;) {
        uint64_t bits = __atomic_load_n(umf_slab_bits(slab, i / 64), __ATOMIC_RELAXED);
        size_t last = i + 64 < end ? i + 64 : end;
        if (bits == UINT64_MAX && slab->free) {
            umf_walk_add(walk, base + i * size, size, (uint32_t)(last - i), UMF_RECORD_STATE_FREE);
            i = last;
        }
        for (; i < last; i++) {
            umf_walk_add(walk, base + i * size, size, 1, chunk_state_locked(slab, i, bits));
        }
    }
}

void umf_disjoint_walk(void *self, const umf_span_t *span, umf_walk_t *walk) {
    umf_slab_t *slab = span->cookie;
    (void)self;
    if (!slab) {
        umf_walk_add(walk, span->base, span->size, 1, UMF_RECORD_STATE_LIVE);
        return;
    }
    umf_bin_t *bin = slab->bin;
    for (size_t first = 0; first < bin->chunks; first += PORTION) {
        size_t end = first + PORTION < bin->chunks ? first + PORTION : bin->chunks;
        umf_lock(&bin->lock);
        walk_portion_locked(slab, span->base, first, end, walk);
        umf_unlock(&bin->lock);
    }
}

/* The same for readers outside of the process. */
const umf_view_kind_t umf_disjoint_view = {
    .name = "disjoint",
    .how = UMF_VIEW_SLABS,
    .slab =
        {
            .size = sizeof(umf_slab_t),
            .bin = offsetof(umf_slab_t, bin),
            .span = offsetof(umf_slab_t, span),
            .offsets = offsetof(umf_slab_t, offsets),
            .bin_size = sizeof(umf_bin_t),
            .chunks = offsetof(umf_bin_t, chunks),
            .chunk = offsetof(umf_bin_t, size),
            .stride = offsetof(umf_bin_t, stride),
            .live = UMF_STATE_LIVE,
        },
};
