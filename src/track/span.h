/*
 * Spans: one per allocation a pool obtained from its provider, and one per opened IPC mapping.
 *
 * Descriptors are type-stable: a descriptor is reused only as another span's, never unmapped. A
 * reader that found one through the map and has no other hold on it checks the map's word again
 * afterwards.
 */
#ifndef UMF_SRC_TRACK_SPAN_H
#define UMF_SRC_TRACK_SPAN_H

#include <stdatomic.h>

#include "ds/map.h"

#define UMF_TRACK_MAX_DEPTH 8

typedef enum umf_span_kind_t {
    UMF_SPAN_POOL = 1,   /* owner is a view (core/view.h) */
    UMF_SPAN_IMPORT = 2, /* owner is an import entry (ipc/import.h) */
} umf_span_kind_t;

/* 72 bytes. */
typedef struct umf_span_t {
    uintptr_t base;
    size_t size;
    void *owner;            /* by kind */
    void *cookie;           /* the owner's own: a slab, ... */
    _Atomic(void *) export; /* ipc/export.c; Sync: atomic, published once, taken by remove */
    uint64_t id;            /* unique in the process, growing */
    uint32_t outer;         /* span that contains this one, 0 if none */
    uint32_t prev, next;    /* spans of one owner; Sync: the owner's set lock */
    uint32_t index;         /* of this descriptor */
    uint32_t pool;          /* pool index in the words, 0 for none */
    uint8_t kind;           /* 0: not in use. Sync: the map's shards */
    uint8_t depth;          /* 1 for a span without outer */
    uint16_t hint;
} umf_span_t;

/* The spans of one owner. */
typedef struct umf_span_set_t {
    umf_map_t *map;
    uint32_t pool;  /* pool index for the words, 0 for none */
    uint32_t first; /* Sync: lock */
    size_t count;   /* Sync: lock */
    umf_lock_t lock;
} umf_span_set_t;

/* All descriptors, in one range of addresses that is reserved at start and made usable as it fills.
 */
extern umf_span_t *umf_span_table;

/* The descriptor with this index; index 0 is never used. Hot. */
static inline umf_span_t *umf_span_at(uint32_t index) {
    return &umf_span_table[index];
}

void umf_span_global_init(void); /* once */

void umf_span_set_init(umf_span_set_t *set, umf_map_t *map, uint32_t pool);
void umf_span_set_fini(umf_span_set_t *set); /* of an empty set */

/* Withdraws every span of the set; `drop` sees each before its descriptor goes, without locks held.
 */
void umf_span_set_drain(umf_span_set_t *set, void (*drop)(umf_span_t *span, void *arg), void *arg);

/*
 * Records [base, base + size). INVALID_ARGUMENT: size 0, or it begins inside another span and ends
 * outside (or holds one); OUT_OF_RESOURCES: nested deeper than UMF_TRACK_MAX_DEPTH;
 * OUT_OF_HOST_MEMORY.
 */
umf_result_t umf_span_add(umf_span_set_t *set, uintptr_t base, size_t size, umf_span_kind_t kind,
                          void *owner, void *cookie, uint16_t hint, umf_span_t **span);

/* The innermost span that contains `addr`, NULL if none. `word` (may be NULL) gets its word. */
umf_span_t *umf_span_find(const umf_map_t *map, uintptr_t addr, umf_word_t *word);

/* Withdraws the span that began at `base` when it was found, from the map and its set. The
 * descriptor stays valid until `umf_span_release` or `umf_span_restore` (a free that failed).
 * INVALID_ARGUMENT if another thread withdrew it first. */
umf_result_t umf_span_withdraw(umf_span_set_t *set, umf_span_t *span, uintptr_t base);
void umf_span_release(umf_span_t *span);
umf_result_t umf_span_restore(umf_span_set_t *set, umf_span_t *span);

/* Split and merge of spans of one set. INVALID_ARGUMENT as the contract lists. `split` keeps the
 * low part in `span`; the high part is a new span. */
umf_result_t umf_span_split(umf_span_set_t *set, umf_span_t *span, size_t first);
umf_result_t umf_span_merge(umf_span_set_t *set, umf_span_t *low, umf_span_t *high);

/* Visits every span of the set; the set's lock is held. */
void umf_span_each(umf_span_set_t *set, void (*visit)(umf_span_t *span, void *arg), void *arg);

#endif
