/* The inside of snapshots, for their files. */
#ifndef UMF_SRC_EXT_RECORD_SNAPSHOT_SNAPSHOT_OWN_H
#define UMF_SRC_EXT_RECORD_SNAPSHOT_SNAPSHOT_OWN_H

#include <errno.h>

#include <umf/record_format.h>

#include "ds/hash.h"
#include "ext/record/items.h"
#include "ext/record/snapshot/snapshot.h"
#include "object/object.h"
#include "object/walk.h"

typedef struct umf_snapshot_object_t {
    umf_record_object_t item; /* first */
    uint32_t index;           /* of a pool, in umf_pool_table */
    bool is_visited;          /* it exists; its figures are set */
    bool is_known;            /* a pool: all of its live blocks have a known size */
    size_t first, count;      /* its spans in `order` */
} umf_snapshot_object_t;

typedef struct umf_snapshot_seen_t {
    umf_span_seen_t span;
    uint32_t index;  /* of the descriptor */
    uint32_t object; /* 0: none of them */
} umf_snapshot_seen_t;

typedef struct umf_snapshot_t {
    umf_snapshot_what_t what;
    bool (*is_enough)(void); /* may be NULL */
    int error;               /* 0, or why it is given up */
    umf_items_t objects;     /* umf_snapshot_object_t; item 0 is not used */
    umf_hash_t numbers;      /* of objects by handle, and of pools by their sets of spans */
    umf_items_t seen;        /* umf_snapshot_seen_t */
    umf_items_t order;       /* uint32_t: those of `seen` by object */
    umf_items_t spans, runs;
    /* Of the recording, if one with `leaks` runs: */
    bool has_live;
    umf_record_header_t recording;
    umf_items_t texts, modules, stacks, live;
} umf_snapshot_t;

/* Without `memory` the snapshot is given up. */
static inline void umf_snapshot_need(umf_snapshot_t *snapshot, const void *memory) {
    snapshot->error = memory ? snapshot->error : ENOMEM;
}

static inline umf_snapshot_object_t *umf_snapshot_object(const umf_snapshot_t *snapshot,
                                                         size_t number) {
    return (umf_snapshot_object_t *)umf_items_at(&snapshot->objects, number);
}

/* snapshot_recording.c: live allocations, with the objects that they name. */
void umf_snapshot_recording(umf_snapshot_t *snapshot);

/* snapshot_objects.c: all pools, and the providers below them. */
void umf_snapshot_objects(umf_snapshot_t *snapshot);
/* 0: it is none of them. */
uint32_t umf_snapshot_number(const umf_snapshot_t *snapshot, const void *handle);

/* snapshot_spans.c: their spans and runs, and the figures that follow from them. */
void umf_snapshot_spans(umf_snapshot_t *snapshot);

#endif
