/*
 * Segments: what an area of addresses is divided into, in the order of the addresses. Free segments
 * are in a tree by size, then by address. Neighbours of one kind join if they are free, or have no
 * page. The caller locks.
 */
#ifndef UMF_SRC_POOLS_COALESCING_ARENA_SEGMENTS_H
#define UMF_SRC_POOLS_COALESCING_ARENA_SEGMENTS_H

#include <stddef.h>

#include "pools/coalescing/arena/uses.h"

typedef enum umf_segment_kind_t {
    UMF_SEGMENT_NONE,  /* no page is mapped there; one may be */
    UMF_SEGMENT_FREE,  /* on mapped pages */
    UMF_SEGMENT_LIVE,  /* a block, on mapped pages */
    UMF_SEGMENT_STALE, /* the page is elsewhere, the old mapping is still there */
    UMF_SEGMENT_BUSY,  /* in the hands of the thread with the driver lock */
} umf_segment_kind_t;

typedef struct umf_segment_t {
    uintptr_t base;
    size_t size;
    umf_uses_t uses; /* of a live one the queues that use it, of a free one those that may still */
    struct umf_segment_t *prev, *next;
    struct umf_segment_t *left, *right; /* of the tree of free ones */
    uint64_t export_id; /* of a live one: the number of its descriptions (share.c); 0: none */
    uint32_t priority;
    uint8_t kind;
    uint8_t was;  /* of a busy one: its kind before */
    bool is_last; /* of a live one: its queues have used it for the last time */
} umf_segment_t;

typedef struct umf_segments_t {
    umf_segment_t *first, *last;
    umf_segment_t *tree;
    umf_segment_t *spare; /* unused, by `next` */
    size_t spare_count;
    size_t promised; /* spare ones that the thread with the driver lock needs later */
    size_t free_count;
    uint32_t seed;
} umf_segments_t;

/* One segment without pages. false: no memory. */
bool umf_segments_init(umf_segments_t *segments, uintptr_t base, size_t size);
void umf_segments_fini(umf_segments_t *segments);
/* Makes sure that so many cuts cannot fail. false: no memory. */
bool umf_segments_reserve(umf_segments_t *segments, size_t cuts);

/* Makes a part of a segment one of its own, which is the same object. */
void umf_segment_cut(umf_segments_t *segments, umf_segment_t *segment, uintptr_t base, size_t size);
void umf_segment_set(umf_segments_t *segments, umf_segment_t *segment, umf_segment_kind_t kind);
/* Joins it with its neighbours if they are of its kind, and that is FREE or NONE. Returns what
 * holds it then. */
umf_segment_t *umf_segment_join(umf_segments_t *segments, umf_segment_t *segment);
/* A segment that is not free takes its next neighbour over, of whatever kind but FREE. */
void umf_segment_absorb(umf_segments_t *segments, umf_segment_t *segment);

/* Of the tree; NULL: there is none. The smallest with as many bytes; the next larger one; the
 * largest; the next smaller one. */
umf_segment_t *umf_segments_fit(const umf_segments_t *segments, size_t size);
umf_segment_t *umf_segments_above(const umf_segments_t *segments, const umf_segment_t *segment);
umf_segment_t *umf_segments_largest(const umf_segments_t *segments);
umf_segment_t *umf_segments_below(const umf_segments_t *segments, const umf_segment_t *segment);

static inline uintptr_t umf_segment_end(const umf_segment_t *segment) {
    return segment->base + segment->size;
}

#endif
