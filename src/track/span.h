/*
 * Spans: one for each allocation that a pool obtained from its provider, and one for each opened
 * IPC mapping.
 *
 * Descriptors are type-stable: a descriptor is reused only for another span, and never unmapped. A
 * reader that found a descriptor through the map, and does not keep its span alive by other means,
 * checks the map entry again after it has read the descriptor.
 */
#ifndef UMF_SRC_TRACK_SPAN_H
#define UMF_SRC_TRACK_SPAN_H

#include "base/thread_slot.h"
#include "system/atomic.h"
#include "track/map.h"
#include "track/map_run.h"
#include "track/use.h"

#define UMF_TRACK_MAX_DEPTH 8

typedef enum umf_span_kind_t {
    /* The set belongs to a tracked provider (object/provider/tracked_provider.h). The cookie
     * belongs to its pool, for example a slab. */
    UMF_SPAN_POOL = 1,
    UMF_SPAN_IMPORT = 2,  /* the cookie is a mapping (ipc/mapping.h) */
    UMF_SPAN_DORMANT = 3, /* dormant: not in the map; the pool keeps the memory for reuse */
} umf_span_kind_t;

/* One cache line, because there may be millions. */
typedef struct umf_span_t {
    uintptr_t base;
    size_t size;
    struct umf_span_set_t *set;
    void *cookie;             /* by kind */
    _Atomic(void *) exported; /* ipc/export.c; Sync: atomic, published once, taken by remove */
    union {
        uint64_t id;              /* unique in the process, larger than that of `outer` */
        struct umf_span_t *spare; /* the next descriptor without a span */
    };
    uint32_t outer;        /* index of the span around this one, 0: none */
    uint32_t prev, next;   /* in its set; Sync: the set's lock */
    _Atomic(uint8_t) kind; /* 0: not in use. A thread withdraws the span by setting it to 0 */
    uint8_t depth;         /* of nesting; 1 for a span without outer */
    uint16_t class_offset;
} umf_span_t;

_Static_assert(sizeof(umf_span_t) == 64, "a descriptor is a cache line");

/* The most unused descriptors that a set keeps for its next spans. Others go to the common list. */
#define UMF_SPAN_SPARE_MAX 16u

/* The spans of one owner. */
typedef struct umf_span_set_t {
    umf_map_t *map;
    const void *source; /* whose memory it is: a source gives no memory inside of its own. NULL: it
                           is not known. Immutable */
    uint32_t pool;      /* pool index for the map entries, 0 for none */
    uint32_t first;     /* Sync: lock, as all that follows */
    umf_span_t *spare;  /* unused descriptors */
    size_t spare_count;
    size_t count;
    umf_lock_t lock;
} umf_span_set_t;

/* All descriptors, in one range of addresses. It is reserved at start and made usable as it fills.
 */
extern UMF_HIDDEN umf_span_t *umf_span_table;
/* The highest index so far. Sync: the lock of the common list; atomic, relaxed for readers */
extern UMF_HIDDEN uint32_t umf_span_made;

/* The descriptor with this index; index 0 is never used. Hot. */
static inline umf_span_t *umf_span_at(uint32_t index) {
    return &umf_span_table[index];
}

static inline uint32_t umf_span_index(const umf_span_t *span) {
    return (uint32_t)(span - umf_span_table);
}

/* Atomic, because the descriptor may be in use for another span by now: a thread that looks an
 * address up does not keep the span alive. */
static inline umf_span_set_t *umf_span_set_of(const umf_span_t *span) {
    return __atomic_load_n(&span->set, __ATOMIC_RELAXED);
}

static inline umf_map_entry_t umf_span_map_entry(const umf_span_set_t *set,
                                                 const umf_span_t *span) {
    return umf_map_entry_make(span->class_offset, set->pool, (size_t)(span - umf_span_table));
}

void umf_span_global_init(void); /* once */

void umf_span_set_init(umf_span_set_t *set, umf_map_t *map, uint32_t pool);
void umf_span_set_fini(umf_span_set_t *set); /* the set must be empty */

/* Has the source of the set given any of this range before? The span may be in the set, or in
 * another one that holds the first or the last byte. */
UMF_COLD bool umf_span_is_given(umf_span_set_t *set, uintptr_t base, size_t size);

/* Withdraws every span of the set. `drop` is called with each before its descriptor is released,
 * with no lock held. */
void umf_span_set_drain(umf_span_set_t *set, void (*drop)(umf_span_t *span, void *arg), void *arg);

/* The innermost span that contains `addr`; NULL: none does. `entry` (may be NULL) gets its map
 * entry. */
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

/* Is `ptr` the address of a descriptor, in use or not? Then it may be read. */
bool umf_span_is_one(const void *ptr);

static inline bool umf_span_kind_is_live(uint8_t kind) {
    return (uint8_t)(kind - UMF_SPAN_POOL) <= UMF_SPAN_IMPORT - UMF_SPAN_POOL;
}

/* Is the span in the map? */
static inline bool umf_span_is_live(const umf_span_t *span) {
    return umf_span_kind_is_live(umf_span_kind(span));
}

/* The rare cases of the functions below. */
UMF_COLD umf_span_t *umf_span_take_slow(void);
UMF_COLD umf_result_t umf_span_publish_slow(umf_span_set_t *set, umf_span_t *span,
                                            umf_span_kind_t kind);
UMF_COLD void umf_span_erase_slow(umf_span_set_t *set, umf_span_t *span);
UMF_COLD void umf_span_release_slow(umf_span_t *span);
UMF_COLD void umf_span_wait_unused(const umf_span_t *span);

/* A new id, larger than all others. */
UMF_COLD uint64_t umf_span_largest_id(void);

/* A thread takes this many ids at once; the first of them is the result of umf_span_largest_id. */
#define UMF_SPAN_IDS 64u

static inline uint64_t umf_span_new_id(void) {
    umf_thread_slot_tls_t *tls = &umf_thread_slot_tls;
    return umf_likely(tls->next_id % UMF_SPAN_IDS != 0) ? tls->next_id++ : umf_span_largest_id();
}

/* Takes an unused descriptor. NULL: out of memory. */
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

/* Publishes the usual span: it lies within one GiB and not inside of another span, and the map has
 * its tables. false: it is not such a span; nothing is published. */
UMF_INLINE bool umf_span_publish_near(const umf_span_set_t *set, umf_span_t *span, uintptr_t base,
                                      size_t size, umf_span_kind_t kind, umf_map_entry_t entry) {
    if (umf_unlikely(!umf_map_is_near(base, size))) {
        return false;
    }
    span->outer = 0;
    span->depth = 1;
    atomic_store_explicit(&span->kind, (uint8_t)kind, memory_order_release);
    bool is_done = umf_map_insert_near(set->map, base, size, entry);
    if (umf_unlikely(!is_done)) {
        atomic_store_explicit(&span->kind, 0, memory_order_relaxed);
    }
    return is_done;
}

/* Does the range lie in the address space? */
static inline bool umf_span_fits(uintptr_t base, size_t size) {
    return base < UINTPTR_MAX && (size ? size - 1 : 0) < UINTPTR_MAX - base;
}

/*
 * Records [base, base + size). INVALID_ARGUMENT: the range does not fit into the address space, or
 * it begins inside another span and ends outside of it, or contains another span, or lies in one of
 * the same source. OUT_OF_RESOURCES: nested deeper than
 * UMF_TRACK_MAX_DEPTH. OUT_OF_HOST_MEMORY.
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
    /* Atomic, because a thread with a stale pointer to the descriptor may read it. */
    __atomic_store_n(&span->base, base, __ATOMIC_RELAXED);
    __atomic_store_n(&span->set, set, __ATOMIC_RELAXED);
    span->size = size;
    span->cookie = cookie;
    span->class_offset = class_offset;
    span->id = umf_span_new_id();
    atomic_store_explicit(&span->exported, NULL, memory_order_relaxed);
    umf_span_link_locked(set, span);
    umf_map_entry_t entry = umf_map_entry_make(class_offset, set->pool, umf_span_index(span));
    umf_unlock(&set->lock);
    if (umf_unlikely(!umf_span_publish_near(set, span, base, size, kind, entry))) {
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

UMF_INLINE void umf_span_unlink_locked(umf_span_set_t *set, umf_span_t *span) {
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

/* Claims the span that began at `base` when it was found. If several threads withdraw it,
 * the exchange lets one pass. */
static inline bool umf_span_claim(const umf_span_set_t *set, umf_span_t *span, uintptr_t base) {
    uint8_t kind = umf_span_kind(span), taken = kind;
    if (umf_unlikely(!umf_span_kind_is_live(kind) || !umf_span_is_at(set, span, base)) ||
        !atomic_compare_exchange_strong_explicit(&span->kind, &taken, 0, memory_order_seq_cst,
                                                 memory_order_relaxed)) {
        return false;
    }
    bool is_it = umf_span_is_at(set, span, base);
    if (umf_unlikely(!is_it)) {
        /* The descriptor was reused for another span between the check and the exchange. */
        atomic_store_explicit(&span->kind, kind, memory_order_release);
    }
    return is_it;
}

/* Removes a claimed span that begins at `base` from the map. */
UMF_INLINE void umf_span_erase(umf_span_set_t *set, umf_span_t *span, uintptr_t base) {
    size_t size = span->size;
    if (umf_unlikely(!umf_map_is_near(base, size) || span->outer ||
                     !umf_map_remove_near(set->map, base, size, umf_span_map_entry(set, span),
                                          UMF_MAP_ENTRY_EMPTY))) {
        umf_span_erase_slow(set, span);
    }
}

/* Withdraws the span that began at `base` when it was found, and waits until no copy uses it. No
 * lock may be held. The descriptor stays in its set, but visitors skip it, until
 * `umf_span_release`, or `umf_span_restore` after a free that failed. INVALID_ARGUMENT: another
 * thread withdrew the span first. */
UMF_INLINE umf_result_t umf_span_withdraw(umf_span_set_t *set, umf_span_t *span, uintptr_t base) {
    if (umf_unlikely(!umf_span_claim(set, span, base))) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_span_erase(set, span, base);
    if (umf_use_is_possible()) {
        umf_span_wait_unused(span);
    }
    return UMF_RESULT_SUCCESS;
}

/* A withdrawn span may become dormant, until `wake` or its end. Visitors see dormant spans. */
static inline void umf_span_begin_dormancy(umf_span_t *span) {
    atomic_store_explicit(&span->kind, UMF_SPAN_DORMANT, memory_order_release);
}
static inline void umf_span_end_dormancy(umf_span_t *span) {
    atomic_store_explicit(&span->kind, 0, memory_order_relaxed);
}

/* A dormant span becomes a new live span at the same place. false: no memory, it stays dormant. */
UMF_COLD bool umf_span_wake_slow(umf_span_set_t *set, umf_span_t *span);
UMF_INLINE bool umf_span_wake(umf_span_set_t *set, umf_span_t *span, size_t size) {
    /* Atomic, because visitors of the set may read it. */
    __atomic_store_n(&span->size, size, __ATOMIC_RELAXED);
    span->id = umf_span_new_id();
    return umf_likely(umf_span_publish_near(set, span, span->base, size, UMF_SPAN_POOL,
                                            umf_span_map_entry(set, span))) ||
           umf_span_wake_slow(set, span);
}

UMF_INLINE void umf_span_put_locked(umf_span_set_t *set, umf_span_t *span) {
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

/* Sets the class offset of a live span's map entries to 0. Two threads must not call it at once. */
void umf_span_drop_class_offset(umf_span_t *span);

/*
 * Uses the innermost span of `addr`: until umf_use_end of its index it is not given back, split or
 * merged. NULL: `addr` is in none; or the map still leads to one that is being withdrawn.
 */
umf_span_t *umf_span_use(const umf_map_t *map, uintptr_t addr);

/* Split and merge of spans of one set. After a split `span` is the low part, and the high part is a
 * new span. INVALID_ARGUMENT: the sizes do not fit, or the spans are not adjacent, not live or not
 * of this set. */
umf_result_t umf_span_split(umf_span_set_t *set, umf_span_t *span, size_t first);
umf_result_t umf_span_merge(umf_span_set_t *set, umf_span_t *low, umf_span_t *high);

/* The content of a descriptor at one moment. */
typedef struct umf_span_seen_t {
    uint8_t kind; /* 0: it was not in use, or it changed meanwhile; the rest is not set then */
    bool is_exported;
    uintptr_t base;
    size_t size;
    const umf_span_set_t *set; /* may be gone by now */
    uint64_t id;
} umf_span_seen_t;

/* The highest index of all descriptors so far. */
uint32_t umf_span_highest(void);
/* Looks at any descriptor from 1 to the highest, without a lock. */
void umf_span_see(uint32_t index, umf_span_seen_t *seen);

/* Visits the live and dormant spans of the set until `visit` returns false. The set's lock is held.
 */
void umf_span_each(umf_span_set_t *set, bool (*visit)(umf_span_t *span, void *arg), void *arg);

#endif
