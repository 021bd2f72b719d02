/*
 * Spans: one per allocation a pool obtained from its provider, and one per opened IPC mapping.
 *
 * Descriptors are type-stable: a descriptor is reused only as another span's, never unmapped. A
 * reader that found one through the map and has no other hold on it checks the map's entry again
 * afterwards.
 */
#ifndef UMF_SRC_TRACK_SPAN_H
#define UMF_SRC_TRACK_SPAN_H

#include <stdatomic.h>

#include "base/thread_slot.h"
#include "track/map.h"
#include "track/map_run.h"

#define UMF_TRACK_MAX_DEPTH 8

typedef enum umf_span_kind_t {
    UMF_SPAN_POOL =
        1, /* the set is a view's (core/tracked_provider.h), the cookie its pool's: a slab, ... */
    UMF_SPAN_IMPORT = 2, /* the cookie is a mapping (ipc/mapping.h) */
    UMF_SPAN_RESTS = 3,  /* no address leads to it; the pool keeps its memory for another time */
} umf_span_kind_t;

/* A cache line: there may be millions. */
typedef struct umf_span_t {
    uintptr_t base;
    size_t size;
    struct umf_span_set_t *set;
    void *cookie;           /* by kind */
    _Atomic(void *) export; /* ipc/export.c; Sync: atomic, published once, taken by remove */
    union {
        uint64_t id;              /* unique in the process, larger than that of `outer` */
        struct umf_span_t *spare; /* the next descriptor without a span */
    };
    uint32_t outer;       /* span that contains this one, 0 if none */
    uint32_t prev, next;  /* in its set; Sync: the set's lock */
    _Atomic uint8_t kind; /* 0: not in use. Who withdraws the span takes it */
    uint8_t depth;        /* 1 for a span without outer */
    uint16_t class_offset;
} umf_span_t;

_Static_assert(sizeof(umf_span_t) == 64, "a descriptor is a cache line");

/* So many descriptors a set keeps for its next spans; the rest is for all. */
#define UMF_SPAN_SPARE_MAX 16u

/* The spans of one owner. */
typedef struct umf_span_set_t {
    umf_map_t *map;
    uint32_t pool;     /* pool index for the entries, 0 for none */
    uint32_t first;    /* Sync: lock, as all that follows */
    umf_span_t *spare; /* a few descriptors without a span */
    size_t spare_count;
    size_t count;
    umf_lock_t lock;
} umf_span_set_t;

/* All descriptors, in one range of addresses that is reserved at start and made usable as it fills.
 */
extern UMF_HIDDEN umf_span_t *umf_span_table;

/* The descriptor with this index; index 0 is never used. Hot. */
static inline umf_span_t *umf_span_at(uint32_t index) {
    return &umf_span_table[index];
}

static inline uint32_t umf_span_index(const umf_span_t *span) {
    return (uint32_t)(span - umf_span_table);
}

static inline umf_map_entry_t umf_span_map_entry(const umf_span_set_t *set,
                                                 const umf_span_t *span) {
    return umf_map_entry_make(span->class_offset, set->pool, (size_t)(span - umf_span_table));
}

void umf_span_global_init(void); /* once */

void umf_span_set_init(umf_span_set_t *set, umf_map_t *map, uint32_t pool);
void umf_span_set_fini(umf_span_set_t *set); /* of an empty set */

/* Withdraws every span of the set; `drop` sees each before its descriptor goes, without locks held.
 */
void umf_span_set_drain(umf_span_set_t *set, void (*drop)(umf_span_t *span, void *arg), void *arg);

/* The innermost span that contains `addr`, NULL if none. `entry` (may be NULL) gets its entry. */
static inline umf_span_t *umf_span_find(const umf_map_t *map, uintptr_t addr,
                                        umf_map_entry_t *entry) {
    umf_map_entry_t w = umf_map_find(map, addr);
    if (umf_unlikely(!w)) {
        return NULL;
    }
    if (entry) {
        *entry = w;
    }
    return umf_span_at(umf_map_entry_span(w));
}

static inline uint8_t umf_span_kind(const umf_span_t *span) {
    return atomic_load_explicit(&span->kind, memory_order_acquire);
}

/* Whether that is the address of a descriptor, in use or not, which may then be looked at. */
bool umf_span_is_one(const void *ptr);

/* Whether addresses may lead to it. */
static inline bool umf_span_is_live(const umf_span_t *span) {
    uint8_t kind = umf_span_kind(span);
    return kind == UMF_SPAN_POOL || kind == UMF_SPAN_IMPORT;
}

/* The rare parts of what follows. */
UMF_COLD umf_span_t *umf_span_take_slow(void);
UMF_COLD umf_result_t umf_span_publish_slow(umf_span_set_t *set, umf_span_t *span,
                                            umf_span_kind_t kind);
UMF_COLD void umf_span_erase_slow(umf_span_set_t *set, umf_span_t *span);
UMF_COLD void umf_span_release_slow(umf_span_t *span);

/* Larger than all there are. */
UMF_COLD uint64_t umf_span_largest_id(void);

/* So many at once a thread takes for itself, but the first. */
#define UMF_SPAN_IDS 64u

static inline uint64_t umf_span_new_id(void) {
    umf_thread_slot_tls_t *tls = &umf_thread_slot_tls;
    return umf_likely(tls->next_id % UMF_SPAN_IDS != 0) ? tls->next_id++ : umf_span_largest_id();
}

/* A descriptor that nobody else has; NULL without memory. */
static inline umf_span_t *umf_span_take_locked(umf_span_set_t *set) {
    umf_assert_locked(&set->lock);
    umf_span_t *span = set->spare;
    if (umf_unlikely(!span)) {
        return umf_span_take_slow();
    }
    set->spare = span->spare;
    set->spare_count--;
    return span;
}

static inline void umf_span_link_locked(umf_span_set_t *set, umf_span_t *span) {
    uint32_t index = umf_span_index(span), next = set->first;
    umf_assert_locked(&set->lock);
    span->prev = 0;
    span->next = next;
    if (next) {
        umf_span_at(next)->prev = index;
    }
    set->first = index;
    set->count++;
}

/* The usual way: memory within one GiB, not inside of another span, whose tables the map has. */
UMF_INLINE bool umf_span_publish_near(umf_span_set_t *set, umf_span_t *span, uintptr_t base,
                                      size_t size, umf_span_kind_t kind) {
    if (umf_unlikely(!umf_map_is_near(base, size))) {
        return false;
    }
    span->outer = 0;
    span->depth = 1;
    atomic_store_explicit(&span->kind, (uint8_t)kind, memory_order_release);
    bool is_done = umf_map_insert_near(set->map, base, size, umf_span_map_entry(set, span));
    if (umf_unlikely(!is_done)) {
        atomic_store_explicit(&span->kind, 0, memory_order_relaxed);
    }
    return is_done;
}

/*
 * Records [base, base + size). INVALID_ARGUMENT: size 0, or it begins inside another span and ends
 * outside (or holds one); OUT_OF_RESOURCES: nested deeper than UMF_TRACK_MAX_DEPTH;
 * OUT_OF_HOST_MEMORY.
 */
UMF_INLINE umf_result_t umf_span_add(umf_span_set_t *set, uintptr_t base, size_t size,
                                     umf_span_kind_t kind, void *cookie, uint16_t class_offset,
                                     umf_span_t **out) {
    umf_lock(&set->lock);
    umf_span_t *span = umf_span_take_locked(set);
    if (umf_unlikely(!span)) {
        umf_unlock(&set->lock);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    __atomic_store_n(&span->base, base, __ATOMIC_RELAXED); /* read by who comes too late */
    __atomic_store_n(&span->set, set, __ATOMIC_RELAXED);
    span->size = size;
    span->cookie = cookie;
    span->class_offset = class_offset;
    span->id = umf_span_new_id();
    atomic_store_explicit(&span->export, NULL, memory_order_relaxed);
    umf_span_link_locked(set, span);
    umf_unlock(&set->lock);
    if (umf_unlikely(!umf_span_publish_near(set, span, base, size, kind))) {
        umf_result_t result = umf_span_publish_slow(set, span, kind);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    if (out) {
        *out = span;
    }
    return UMF_RESULT_SUCCESS;
}

static inline void umf_span_unlink_locked(umf_span_set_t *set, umf_span_t *span) {
    umf_span_t *all = umf_span_table;
    uint32_t prev = span->prev, next = span->next;
    umf_assert_locked(&set->lock);
    if (prev) {
        all[prev].next = next;
    } else {
        set->first = next;
    }
    if (next) {
        all[next].prev = prev;
    }
    set->count--;
}

static inline bool umf_span_is_at(const umf_span_set_t *set, const umf_span_t *span,
                                  uintptr_t base) {
    return __atomic_load_n(&span->base, __ATOMIC_RELAXED) == base &&
           __atomic_load_n(&span->set, __ATOMIC_RELAXED) == set;
}

/* The span that began at `base` when it was found: of those who would withdraw it, one may. */
static inline bool umf_span_claim(const umf_span_set_t *set, umf_span_t *span, uintptr_t base) {
    uint8_t kind = umf_span_kind(span), taken = kind;
    if (umf_unlikely(kind == 0 || kind == UMF_SPAN_RESTS || !umf_span_is_at(set, span, base)) ||
        !atomic_compare_exchange_strong_explicit(&span->kind, &taken, 0, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
        return false;
    }
    bool is_it = umf_span_is_at(set, span, base);
    if (umf_unlikely(!is_it)) {
        atomic_store_explicit(&span->kind, kind, memory_order_release); /* another by now */
    }
    return is_it;
}

/* From the map, after it was claimed. */
UMF_INLINE void umf_span_erase(umf_span_set_t *set, umf_span_t *span) {
    uintptr_t base = span->base;
    size_t size = span->size;
    if (umf_unlikely(!umf_map_is_near(base, size) || span->outer ||
                     !umf_map_remove_near(set->map, base, size, umf_span_map_entry(set, span),
                                          UMF_MAP_ENTRY_EMPTY))) {
        umf_span_erase_slow(set, span);
    }
}

/* Withdraws the span that began at `base` when it was found. The descriptor stays in its set, where
 * nobody visits it, until `umf_span_release` or `umf_span_restore` (a free that failed).
 * INVALID_ARGUMENT if another thread withdrew it first. */
UMF_INLINE umf_result_t umf_span_withdraw(umf_span_set_t *set, umf_span_t *span, uintptr_t base) {
    if (umf_unlikely(!umf_span_claim(set, span, base))) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_span_erase(set, span);
    return UMF_RESULT_SUCCESS;
}

/* A span that is withdrawn may rest, for `wake`; visitors see it. */
static inline void umf_span_begin_dormancy(umf_span_t *span) {
    atomic_store_explicit(&span->kind, UMF_SPAN_RESTS, memory_order_release);
}
static inline void umf_span_end_dormancy(umf_span_t *span) {
    atomic_store_explicit(&span->kind, 0, memory_order_relaxed);
}

/* A span that rests is another one from now on, at the same place. false: no memory, it rests. */
UMF_COLD bool umf_span_wake_slow(umf_span_set_t *set, umf_span_t *span);
UMF_INLINE bool umf_span_wake(umf_span_set_t *set, umf_span_t *span, size_t size) {
    __atomic_store_n(&span->size, size, __ATOMIC_RELAXED); /* visited in the set meanwhile */
    span->id = umf_span_new_id();
    return umf_likely(umf_span_publish_near(set, span, span->base, size, UMF_SPAN_POOL)) ||
           umf_span_wake_slow(set, span);
}

static inline void umf_span_put_locked(umf_span_set_t *set, umf_span_t *span) {
    umf_assert_locked(&set->lock);
    if (umf_unlikely(set->spare_count >= UMF_SPAN_SPARE_MAX)) {
        umf_span_release_slow(span);
        return;
    }
    span->spare = set->spare;
    set->spare = span;
    set->spare_count++;
}

UMF_INLINE void umf_span_release(umf_span_set_t *set, umf_span_t *span) {
    umf_lock(&set->lock);
    umf_span_unlink_locked(set, span);
    umf_span_put_locked(set, span);
    umf_unlock(&set->lock);
}

umf_result_t umf_span_restore(umf_span_set_t *set, umf_span_t *span);

/* From now on entries of a live span have no class_offset. Not by two threads at once. */
void umf_span_drop_class_offset(umf_span_t *span);

/* Split and merge of spans of one set. INVALID_ARGUMENT as the contract lists. `split` keeps the
 * low part in `span`; the high part is a new span. */
umf_result_t umf_span_split(umf_span_set_t *set, umf_span_t *span, size_t first);
umf_result_t umf_span_merge(umf_span_set_t *set, umf_span_t *low, umf_span_t *high);

/* Visits the spans of the set that are live or rest, until `visit` is false; the set's lock is
 * held.
 */
void umf_span_each(umf_span_set_t *set, bool (*visit)(umf_span_t *span, void *arg), void *arg);

#endif
