/*
 * Magazines: small stacks of free objects per thread, pool and bin, in front of a pool's own
 * structures.
 *
 * A hit is a pop or a push on the calling thread's own stack: no lock, no shared counter. Misses
 * move batches of half a stack between the thread and the pool (`refill`, `flush`), or, where the
 * pool asks for depots, between threads by way of them (cache/depot.h): what a thread gives there
 * it gets back, still near its CPU. A stack that is now full and now empty, or whose thread finds
 * others at the depots, grows, up to what the pool allows. A thread's stacks are flushed when it
 * ends. Misses are also where the pool gets to look for what has decayed (cache/decay.h); what the
 * depots did not need between two decay passes goes back.
 *
 * The design follows J. Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001.
 */
#ifndef UMF_SRC_CACHE_MAGAZINE_H
#define UMF_SRC_CACHE_MAGAZINE_H

#include <stdatomic.h>

#include "base/thread_slot.h"
#include "cache/decay.h"
#include "cache/depot.h"
#include "system/annotate.h"

typedef struct umf_magazine_t {
    umf_item_t *top; /* Sync: atomic, relaxed: only its thread writes, statistics read */
    umf_item_t *limit;
    umf_item_t *base;
    uint64_t magic; /* for checked pushes: umf_magic() of what lies between two states; 0: none, or
                     * no stack */
    uint64_t mask;  /* of an address: its distance from the first object of its slab */
    umf_depot_thread_t depots;
    bool was_refilled; /* since it was full last */
} umf_magazine_t;

typedef struct umf_cache_t {
    umf_thread_slot_t head;
    uint32_t epoch;      /* of the last trim this thread has followed */
    uint32_t number;     /* of the thread: where it begins to look for a depot */
    int64_t out;         /* as below. Sync: atomic, relaxed: only its thread writes */
    umf_magazine_t none; /* never has a stack: what leads here is not served */
    umf_magazine_t bins[];
} umf_cache_t;

/* The empty block of base/thread_slot.h must cover a cache: all its stacks are empty and full at
 * once. */
#define UMF_MAGAZINE_MAX_BINS 64
_Static_assert(sizeof(umf_cache_t) + UMF_MAGAZINE_MAX_BINS * sizeof(umf_magazine_t) <=
                   UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block is too small");

typedef struct umf_magazine_ops_t {
    /* Hands out 1 to `n` objects of `bin` and returns how many; 0 when there is no memory (and the
     * pool's last error is set). It must not take new memory from the provider for more than one.
     * NULL: who finds none makes a new one. */
    size_t (*refill)(void *pool, uint32_t bin, umf_item_t *items, size_t n);
    void (*flush)(void *pool, uint32_t bin, umf_item_t *items, size_t n);
    /* The calling thread begins to use the pool: it may call `flush` when it ends, also if all that
     * it gets comes from other threads. May be NULL. */
    void (*thread_begins)(void *pool);
    /* From time to time, and again soon while it returns true: gives back what has decayed.
     * `is_new`: a period has gone by, the last decay pass is not just continued. Called with no
     * lock held, by any thread that uses the pool, rarely by two at once. May be NULL. */
    bool (*look)(void *pool, bool is_new);
} umf_magazine_ops_t;

/* Where the checked pushes of a bin belong: slabs of a power of two, aligned to their size. */
typedef struct umf_magazine_slab_t {
    uint64_t magic; /* of the objects' size; 0: there are no checked pushes */
    uint64_t mask;  /* size of a slab - 1 */
    uint64_t size;  /* of an object */
} umf_magazine_slab_t;

/* So many objects a stack may have at most; 2 to 65,535. */
typedef struct umf_magazine_capacity_t {
    uint16_t usual;
    uint16_t contended; /* of a thread that met others at the depot: it comes less often then */
    uint32_t large;     /* bytes of an object that costs much to get, else 0 */
} umf_magazine_capacity_t;

typedef struct umf_magazines_t {
    umf_thread_slot_owner_t owner;
    void *pool;
    const umf_magazine_ops_t *ops;
    uint32_t bins;
    uint32_t depot_batches;
    const umf_magazine_slab_t *slabs; /* by bin + 1, NULL: no checked pushes. Set after init */
    _Atomic uint32_t epoch;           /* raised by trim: every thread flushes at its next miss */
    _Atomic int64_t out; /* objects handed out by refill minus those flushed, by threads without
                          * a cache: others count in theirs */
    _Atomic uint32_t threads; /* there have been */
    umf_decay_t decay;
    _Atomic bool decay_goes_on;              /* the last decay pass has left something */
    const umf_magazine_capacity_t *capacity; /* by bin. Immutable after init */
    _Atomic(umf_depots_t *) depots[UMF_MAGAZINE_MAX_BINS]; /* made when a stack is full */
} umf_magazines_t;

/* `index`: of the pool's per-thread blocks, see umf_thread_slot_owner_init. `capacity`, by bin,
 * lives longer. `depot_batches`: how many batches of half a usual stack may wait in a depot for
 * another thread, 0 for no depot. */
umf_result_t umf_magazines_init(umf_magazines_t *m, uint32_t index, void *pool,
                                const umf_magazine_ops_t *ops,
                                const umf_magazine_capacity_t *capacity, uint32_t bins,
                                uint32_t depot_batches);

/* What pools ask for: of each size about `bytes` per thread, but so many objects at least; up to
 * 1 MiB of one size where threads meet. */
#define UMF_MAGAZINE_OBJECTS_MAX 1024
#define UMF_MAGAZINE_CONTENDED_BYTES ((size_t)1 << 20)
#define UMF_MAGAZINE_DEPOT_BATCHES 32
umf_magazine_capacity_t umf_magazine_capacity(size_t bytes, size_t size, uint16_t objects_min);
/* For large objects, which cost much to get: about 256 KiB of one size per thread, but two objects,
 * and depots of 128 MiB each. */
#define UMF_MAGAZINE_LARGE_BYTES ((size_t)256 << 10)
#define UMF_MAGAZINE_LARGE_DEPOT_BYTES ((size_t)128 << 20)
#define UMF_MAGAZINE_LARGE_DEPOT_OBJECTS 4096
umf_magazine_capacity_t umf_magazine_capacity_large(size_t size);

/* Drops all stacks; the objects in them are the pool's, which is about to give everything back. */
void umf_magazines_fini(umf_magazines_t *m);

/* Flushes the calling thread's stacks and the depots. */
void umf_magazines_flush(umf_magazines_t *m);
/* The same, and every other thread's at its next miss. */
void umf_magazines_trim(umf_magazines_t *m);

void umf_magazines_decay_now(umf_magazines_t *m);
/* For a pool's own slow paths, which miss no magazine: a decay pass if it is time. With no lock
 * held. */
static inline void umf_magazines_decay(umf_magazines_t *m) {
    if (umf_unlikely(umf_decay_is_due(&m->decay))) {
        umf_magazines_decay_now(m);
    }
}

/* Objects in the hands of users: exact while no thread is allocating or freeing. */
size_t umf_magazines_live(umf_magazines_t *m);
/* The same, and those in stacks and depots: what `refill` handed out and `flush` did not get. */
int64_t umf_magazines_out(umf_magazines_t *m);
/* Objects of a bin that wait in stacks and depots. */
size_t umf_magazines_cached(umf_magazines_t *m, uint32_t bin);

/* Flushes what waits in depots of large objects, and the calling thread's stacks of these bins, but
 * not of the bin `except`, if `most` bytes or more wait: comes before a pool asks for memory, so
 * that sizes do not add up. false: there was nothing, or less. Bins of large objects are a pool's
 * last ones. */
#define UMF_MAGAZINE_WAITING_MAX ((size_t)64 << 20)
#define UMF_MAGAZINE_EXCEPT_NONE UINT32_MAX
bool umf_magazines_release_large(umf_magazines_t *m, uint32_t except, size_t most);

void *umf_magazine_pop_slow(umf_magazines_t *m, uint32_t bin);
void umf_magazine_push_slow(umf_magazines_t *m, uint32_t bin, umf_item_t item);

/*
 * States. A hit writes one byte of the object's own: it is LIVE from the moment a user gets it
 * until the first free, wherever it is otherwise, so that a second free finds out whoever made the
 * first one and however long ago. No two threads write one: an object is one thread's at a time. Of
 * two that free the same object in the same moment both may pass.
 */
enum {
    UMF_STATE_NONE = 0,    /* nothing starts there, or it is in the pool's own structures */
    UMF_STATE_FREE = 1,    /* for pools that tell it from NONE */
    UMF_STATE_LIVE = 0xA5, /* hardly found by chance where no state is */
};

/* Plain: who looks at a state or changes it has the object, or is wrong. */
static inline uint8_t umf_state(const uint8_t *state) {
    return *state;
}

static inline void umf_state_set(uint8_t *state, uint8_t value) {
    *state = value;
}

/* Each so far behind the last one that a batch has a cache line for itself: at first a thread's
 * objects are neighbours. */
static inline size_t umf_magazine_state_stride(size_t size, size_t batch) {
    size_t stride = 1;
    while (stride * batch < 64 && size % (2 * stride) == 0) {
        stride *= 2;
    }
    return stride;
}

/* The states of a slab's chunks lie so far behind the beginning of its descriptor. */
#define UMF_MAGAZINE_STATES 40

static inline uint8_t *umf_magazine_state(void *slab, size_t chunk) {
    return (uint8_t *)slab + UMF_MAGAZINE_STATES + chunk;
}

static inline umf_magazine_t *umf_magazine_of(const umf_magazines_t *m, size_t bin) {
    return &((umf_cache_t *)umf_thread_slot_get(m->owner.index))->bins[bin];
}

/* A bin, as class_offsets (track/map.h) and small sizes tell it: where its slab lies in the pool's
 * table, in bytes, and where its magazine lies behind `none` of a cache, in units of 2. A multiple
 * of 4.
 */
static inline uint16_t umf_magazine_offset(size_t bin) {
    return (uint16_t)((bin + 1) * sizeof(umf_magazine_slab_t));
}
_Static_assert(sizeof(umf_magazine_slab_t) % 4 == 0 &&
                   sizeof(umf_magazine_t) == 2 * sizeof(umf_magazine_slab_t) &&
                   (UMF_MAGAZINE_MAX_BINS + 1) * sizeof(umf_magazine_slab_t) <= UINT16_MAX,
               "offsets of magazines are class_offsets");

/* The empty assembly keeps one address in a register; compilers make one for each member. */
static inline umf_magazine_t *umf_magazine_at(umf_thread_slot_t *cache, size_t offset) {
    umf_magazine_t *mag = (umf_magazine_t *)((char *)&((umf_cache_t *)cache)->none + 2 * offset);
    __asm__("" : "+r"(mag));
    return mag;
}

/* Only its thread writes it, others may read: one instruction, which no compiler makes of an atomic
 * load and store. */
static inline void umf_magazine_move_top(umf_magazine_t *mag, int by) {
#if defined(__x86_64__) && !UMF_IS_TSAN
    __asm__("addq %1, %0"
            : "+m"(mag->top)
            : "er"((ptrdiff_t)by * (ptrdiff_t)sizeof(umf_item_t))
            : "cc");
#else
    __atomic_store_n(&mag->top, mag->top + by, __ATOMIC_RELAXED);
#endif
}

/* false: it is empty, or has no stack. Hot. */
static inline bool umf_magazine_try_pop_item(umf_magazine_t *mag, umf_item_t *item) {
    umf_item_t *top = mag->top;
    if (umf_unlikely(top == mag->base)) {
        return false;
    }
    umf_magazine_move_top(mag, -1);
    *item = top[-1]; /* the last: it may take the place of `mag` */
    return true;
}

/* The same for objects with states, which are live then. Hot. */
static inline bool umf_magazine_try_pop(umf_magazine_t *mag, void **object) {
    umf_item_t item;
    if (umf_unlikely(!umf_magazine_try_pop_item(mag, &item))) {
        return false;
    }
    umf_state_set(item.state, UMF_STATE_LIVE);
    *object = item.object;
    return true;
}

/* An object of `bin`, NULL when the pool has no memory. Hot. */
static inline void *umf_magazine_pop(umf_magazines_t *m, size_t bin) {
    void *object;
    return umf_magazine_try_pop(umf_magazine_of(m, bin), &object)
               ? object
               : umf_magazine_pop_slow(m, (uint32_t)bin);
}

/* The same for objects without states. */
static inline void *umf_magazine_pop_stateless(umf_magazines_t *m, size_t bin) {
    umf_item_t item;
    return umf_magazine_try_pop_item(umf_magazine_of(m, bin), &item)
               ? item.object
               : umf_magazine_pop_slow(m, (uint32_t)bin);
}

/* Onto a magazine at hand; false if it is full or has no stack. Hot. */
static inline bool umf_magazine_try_push_item(umf_magazine_t *mag, umf_item_t item) {
    umf_item_t *top = mag->top;
    if (umf_unlikely(top == mag->limit)) {
        return false;
    }
    *top = item;
    umf_magazine_move_top(mag, 1);
    return true;
}

/* The same for a live object; if it is false it may not be one, and is as it was. Hot. */
static inline bool umf_magazine_try_push(umf_magazine_t *mag, void *object, uint8_t *state) {
    if (umf_unlikely(umf_state(state) != UMF_STATE_LIVE) ||
        umf_unlikely(!umf_magazine_try_push_item(mag, (umf_item_t){object, state}))) {
        return false;
    }
    umf_state_set(state, UMF_STATE_FREE);
    return true;
}

/*
 * n % size == 0, for n below 2^32, is (uint64_t)(n * magic) < magic (D. Lemire, O. Kaser, N. Kurz,
 * "Faster remainder by direct computation", 2019). The upper half of the product is n / size.
 */
__extension__ typedef unsigned __int128 umf_wide_t;

static inline uint64_t umf_magic(size_t size) {
    return UINT64_MAX / size + 1;
}

static inline bool umf_magic_divides(uint64_t magic, uint64_t n) {
    return n * magic < magic;
}

static inline const umf_magazine_slab_t *umf_magazine_slab_at(const umf_magazine_slab_t *slabs,
                                                              size_t offset) {
    return (const umf_magazine_slab_t *)((const char *)slabs + offset);
}

/* The size of the object that may start there. false: none may, or the bin takes no checked pushes.
 * Hot. */
static inline bool umf_magazine_slab_starts(const umf_magazine_slab_t *slab, uintptr_t addr,
                                            size_t *size) {
    uint64_t product = (addr & slab->mask) * slab->magic; /* umf_magic_divides */
    __asm__("" : "+r"(slab));                             /* compared where it is: one load less */
    if (umf_unlikely(product >= slab->magic)) {
        return false;
    }
    *size = slab->size;
    return true;
}

/* If a live object of the bin starts there. false: none does, or there is no stack with room, or
 * the bin takes no checked pushes. `slab`: the descriptor that hangs on the span. Hot. */
static inline bool umf_magazine_push_checked(umf_magazine_t *mag, void *object, void *slab) {
    umf_wide_t product =
        (umf_wide_t)((uintptr_t)object & mag->mask) * mag->magic; /* umf_magic_divides */
    __asm__("" : "+m"(mag->magic)); /* compared where it is: one load less */
    return umf_likely((uint64_t)product < mag->magic) &&
           umf_magazine_try_push(mag, object, umf_magazine_state(slab, (size_t)(product >> 64)));
}

/* Any object, live or not; its state is not looked at. Hot. */
static inline void umf_magazine_push(umf_magazines_t *m, size_t bin, umf_item_t item) {
    if (umf_unlikely(!umf_magazine_try_push_item(umf_magazine_of(m, bin), item))) {
        umf_magazine_push_slow(m, (uint32_t)bin, item);
    }
}

/* --- small sizes, which the core serves itself --- */

#define UMF_SMALL_MAX 1024

/* (size + 7) / 8 -> umf_magazine_offset(), 0: ask the pool. */
typedef struct umf_small_sizes_t {
    uint16_t magazine[UMF_SMALL_MAX / 8 + 1];
} umf_small_sizes_t;

#endif
