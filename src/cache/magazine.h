/*
 * Magazines: small stacks of free objects per thread, pool and bin, in front of a pool's own
 * structures.
 *
 * A hit is a pop or a push on the calling thread's own stack: no lock, no shared counter. A miss
 * moves a batch of half a stack between the thread and the pool (`refill`, `flush`). If the pool
 * has depots, batches move between threads through them (cache/depot.h); a thread gets back
 * what it gave there, which is still in its CPU's cache. A stack that alternates between full and
 * empty, or whose thread contends for the depots, grows up to the limit of the pool. The stacks of
 * a thread are flushed when it ends. Misses also drive the decay of the pool (cache/decay.h):
 * objects that the depots did not need between two decay passes go back, and so do the stacks of
 * threads that had no miss in between, and those that a thread with misses did not use.
 *
 * In pools with page records each page has an owner. What another thread frees there goes to the
 * owner's depot, through a remote stack (cache/magazine_remote.c).
 *
 * The design follows J. Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001.
 */
#ifndef UMF_SRC_CACHE_MAGAZINE_H
#define UMF_SRC_CACHE_MAGAZINE_H

#include "base/thread_slot.h"
#include "cache/decay.h"
#include "cache/depot.h"
#include "system/annotate.h"
#include "system/atomic.h"
#include "track/page.h"

typedef struct umf_magazine_t {
    umf_item_t *top; /* Sync: atomic, relaxed: only its thread writes, counts read it */
    umf_item_t *limit;
    umf_item_t *base;
    /* Sync: atomic. Its thread writes it; umf_magazines_check may set it to 0 */
    uint64_t magic; /* for checked pushes: umf_magic() of the distance between two states; 0: no
                     * checked pushes, or no stack */
    uint64_t mask;  /* address & mask is the offset from the first object of the slab */
    umf_depot_user_t user;
    bool was_refilled; /* since it was last full */
    uint16_t seen;     /* objects at the thread's last look at what it does not use */
} umf_magazine_t;

typedef struct umf_cache_t {
    umf_thread_slot_t head;
    uint32_t epoch;      /* the last trim that this thread has followed */
    uint32_t number;     /* the thread's number, which chooses its own depot; 0: none yet */
    uint16_t key;        /* of page records whose owner is the thread, or UMF_PAGE_KEY_NONE */
    uint32_t pass;       /* the last decay pass before a miss. Sync: atomic, relaxed, as `out` */
    int64_t out;         /* as in umf_magazines_t. Sync: atomic, relaxed: only its thread writes */
    umf_magazine_t none; /* never has a stack: an offset of 0 leads here and always misses */
    /* By bin. In a pool with page records those of remote objects follow, by bin as well. */
    umf_magazine_t bins[];
} umf_cache_t;

/* The empty block of base/thread_slot.h stands for the cache of a thread that has none: each of its
 * stacks is empty and full at once, so every access misses. It must be as large as a cache. */
#define UMF_MAGAZINE_MAX_BINS 64
_Static_assert(sizeof(umf_cache_t) + UMF_MAGAZINE_MAX_BINS * sizeof(umf_magazine_t) <=
                   UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block is too small");

typedef struct umf_magazine_ops_t {
    /* Hands out 1 to `n` objects of `bin` and returns how many. 0: there is no memory, and the
     * pool's last error is set. It must not take new memory from the provider for more than one
     * object. NULL: the pool makes new objects itself when a pop returns NULL. */
    size_t (*refill)(void *pool, uint32_t bin, umf_item_t *items, size_t n);
    void (*flush)(void *pool, uint32_t bin, umf_item_t *items, size_t n);
    /* The calling thread begins to use the pool. It may call `flush` when it ends, even if it has
     * never called `refill` because all its objects came from other threads. May be NULL. */
    void (*thread_begins)(void *pool);
    /* Makes a decay pass: releases decayed memory. Called once in a period, and again soon
     * while it returns true. `is_new`: a period has passed; else the call continues the last pass.
     * Called with no lock held, by any thread that uses the pool, rarely by two at once. May be
     * NULL. */
    bool (*decay_pass)(void *pool, bool is_new);
    const uint64_t *page_magic; /* by bin + 1, of pages with records (track/page.h); NULL: none */
} umf_magazine_ops_t;

/* The slabs that checked pushes of a bin need: their size is a power of two, and they are aligned
 * to it. */
typedef struct umf_magazine_slab_t {
    uint64_t magic; /* umf_magic() of the objects' size; 0: no checked pushes */
    uint64_t mask;  /* size of a slab - 1 */
    uint64_t size;  /* of an object */
} umf_magazine_slab_t;

/* The most objects that a stack may have; 2 to 65,535. */
typedef struct umf_magazine_capacity_t {
    uint16_t usual;
    uint16_t contended; /* for a thread that contends for the depots: it goes there less often */
    bool is_large;      /* an object is expensive to get */
    bool is_kept;       /* objects come by umf_magazine_keep: they never go to the depots */
    uint32_t size;      /* of an object, in bytes */
} umf_magazine_capacity_t;

typedef struct umf_magazines_t {
    umf_thread_slot_owner_t owner;
    void *pool;
    const umf_magazine_ops_t *ops;
    uint32_t bins;
    uint32_t stacks; /* of a cache: `bins`, and a remote one for each of the first bins */
    uint32_t depot_batches;
    const umf_magazine_slab_t *slabs; /* by bin + 1, set after init. NULL: none; without page
                                       * records there are no checked pushes then */
    _Atomic(uint32_t) epoch;          /* raised by trim: every thread flushes at its next miss */
    _Atomic(int64_t) out; /* objects refilled minus objects flushed by threads without a cache; the
                           * others count in their caches */
    _Atomic(uint32_t) numbers;      /* bit n is set if a thread's cache has the number n + 1 */
    _Atomic(uint32_t) more_numbers; /* given beyond those */
    _Atomic(bool) is_unchecked;     /* umf_magazines_check */
    size_t bytes_max;      /* of `bytes`. Set after init, UMF_MAGAZINE_BYTES_MAX until then */
    _Atomic(size_t) bytes; /* that the stacks of all threads have room for, in objects */
    umf_decay_t decay;
    _Atomic(uint32_t) passes;                              /* decay passes so far */
    _Atomic(bool) decay_goes_on;                           /* the last decay pass did not finish */
    _Atomic(bool) has_depots;                              /* one was made */
    const umf_magazine_capacity_t *capacity;               /* by bin. Immutable after init */
    _Atomic(umf_depots_t *) depots[UMF_MAGAZINE_MAX_BINS]; /* made when a stack is full */
} umf_magazines_t;

/* `index`: the index of the pool's thread slots, see umf_thread_slot_owner_init. `capacity`, by
 * bin, must outlive the magazines. `depot_batches`: how many batches of half a usual stack a depot
 * holds, 0 for no depots. */
umf_result_t umf_magazines_init(umf_magazines_t *m, uint32_t index, void *pool,
                                const umf_magazine_ops_t *ops,
                                const umf_magazine_capacity_t *capacity, uint32_t bins,
                                uint32_t depot_batches);

/* The usual capacity: about `bytes` of each size per thread, but at least `objects_min` objects. It
 * grows to 1 MiB of one size for threads that contend. */
#define UMF_MAGAZINE_OBJECTS_MAX 1024
#define UMF_MAGAZINE_CONTENDED_BYTES ((size_t)1 << 20)
#define UMF_MAGAZINE_DEPOT_BATCHES 32
umf_magazine_capacity_t umf_magazine_capacity(size_t bytes, size_t size, uint16_t objects_min);
/* The capacity for large objects, which are expensive to get: about 256 KiB of one size per thread,
 * but at least two objects, and depots of 128 MiB each. */
#define UMF_MAGAZINE_LARGE_BYTES ((size_t)256 << 10)
#define UMF_MAGAZINE_LARGE_DEPOT_BYTES ((size_t)128 << 20)
#define UMF_MAGAZINE_LARGE_DEPOT_OBJECTS 4096
umf_magazine_capacity_t umf_magazine_capacity_large(size_t size);

/* Whether stacks take checked pushes, as at the start. Without them umf_magazine_push_checked
 * always returns false from now on; with them it may succeed again after a thread's next miss. Two
 * threads must not call it at once. */
void umf_magazines_check(umf_magazines_t *m, bool may);

/* The calling thread as an owner of pages: 1 to UMF_DEPOTS_MAX; as few share one as share a depot.
 * 0: it owns none. */
uint32_t umf_magazines_owner(const umf_magazines_t *m);

/* Drops all stacks. The objects in them are left to the pool, which is about to return all its
 * memory. */
void umf_magazines_fini(umf_magazines_t *m);

/* Flushes the calling thread's stacks and the depots. */
void umf_magazines_flush(umf_magazines_t *m);
/* The same for the stacks of all threads. A thread that is using its stacks at this moment flushes
 * them at its next miss. false: there is such a thread, or one that hands them over as it ends. */
bool umf_magazines_trim(umf_magazines_t *m);

void umf_magazines_decay_now(umf_magazines_t *m);
/* Makes a decay pass if one is due. For slow paths of a pool that do not go through a magazine.
 * Call it with no lock held. */
static inline void umf_magazines_decay(umf_magazines_t *m) {
    if (umf_unlikely(umf_decay_is_due(&m->decay))) {
        umf_magazines_decay_now(m);
    }
}

/* The room of the stacks of all threads, in bytes of objects. A stack that would bring it
 * above `bytes_max` is made smaller, or not at all: its thread goes to the depots then. */
#define UMF_MAGAZINE_BYTES_MAX ((size_t)128 << 20)
static inline size_t umf_magazines_bytes(const umf_magazines_t *m) {
    return atomic_load_explicit(&m->bytes, memory_order_relaxed);
}

/* Objects that users own: exact while no thread is allocating or freeing. */
size_t umf_magazines_live(umf_magazines_t *m);
/* The same less the objects that were kept (umf_magazine_keep) and are not popped again. */
int64_t umf_magazines_balance(umf_magazines_t *m);
/* The same plus those in stacks and depots: what `refill` handed out and `flush` did not get
 * back. */
int64_t umf_magazines_out(umf_magazines_t *m);
/* Free objects of a bin in stacks and depots. */
size_t umf_magazines_cached(umf_magazines_t *m, uint32_t bin);

/* If the depots of large objects hold `most` bytes or more, flushes them and the calling thread's
 * stacks of these bins, except the bin `except`; with a `most` above 0 not much more than half as
 * much again in one call. A pool calls it before it calls the provider, so that
 * the caches of different sizes do not add up. false: there was nothing, or less. The bins of large
 * objects are the last ones of a pool. */
#define UMF_MAGAZINE_WAITING_MAX ((size_t)64 << 20)
#define UMF_MAGAZINE_EXCEPT_NONE UINT32_MAX
bool umf_magazines_release_large(umf_magazines_t *m, uint32_t except, size_t most);

/* Frees an object with a page record whose page another thread owns. It goes to that thread, so
 * that each one allocates in pages of its own. false: nothing has changed, and it is to be freed
 * like any other, or refused. */
bool umf_magazine_free_remote(umf_magazines_t *m, void *object);
/* The same for the pool with this index and the record of the object's page, if the calling thread
 * has room for it. */
bool umf_magazine_try_free_remote(void *object, const umf_page_record_t *page, uint32_t pool);

void *umf_magazine_pop_slow(umf_magazines_t *m, uint32_t bin);
void umf_magazine_push_slow(umf_magazines_t *m, uint32_t bin, umf_item_t item);

/*
 * States. Each object has one byte of state, which every hit writes. It is LIVE from the moment a
 * user gets the object until the first free, and not LIVE wherever a free object is kept. A second
 * free is therefore found, no matter which thread made the first one and when. No two threads write
 * the same state, because an object belongs to one thread at a time. Exception: if two threads free
 * the same object at the same moment, both frees may pass.
 */
enum {
    UMF_STATE_NONE = 0,    /* no object starts there, or the pool's own structures have it */
    UMF_STATE_FREE = 1,    /* for pools that distinguish it from NONE */
    UMF_STATE_LIVE = 0xA5, /* unlikely to be found by chance where there is no state */
};

/* Plain accesses: only the owner of the object reads or writes its state, or a caller that makes an
 * error. */
static inline uint8_t umf_state(const uint8_t *state) {
    return *state;
}

static inline void umf_state_set(uint8_t *state, uint8_t value) {
    *state = value;
}

/* The distance between the states of neighbours. It gives the states of a batch a cache line of
 * their own, because the first objects that a thread gets are neighbours. */
static inline size_t umf_magazine_state_stride(size_t size, size_t batch) {
    size_t stride = 1;
    while (stride * batch < 64 && size % (2 * stride) == 0) {
        stride *= 2;
    }
    return stride;
}

/* The offset of the states of a slab's chunks in its descriptor. */
#define UMF_MAGAZINE_STATES 40

static inline uint8_t *umf_magazine_state(void *slab, size_t chunk) {
    return (uint8_t *)slab + UMF_MAGAZINE_STATES + chunk;
}

/* Stacks are touched between umf_thread_slot_enter and umf_thread_slot_leave, or while their cache
 * is pinned, because other threads may take the cache (umf_thread_slot_take_from_others). */
static inline umf_magazine_t *umf_magazine_of(const umf_magazines_t *m, size_t bin) {
    return &((umf_cache_t *)umf_thread_slot_get(m->owner.index))->bins[bin];
}

/* A bin as a class offset (track/map.h), which is also in the table of small sizes. It is the
 * offset in bytes of the bin's slab in the pool's table. Twice that is the offset of the bin's
 * magazine from `none` of a cache. It is a multiple of 4. */
static inline uint16_t umf_magazine_offset(size_t bin) {
    return (uint16_t)((bin + 1) * sizeof(umf_magazine_slab_t));
}
_Static_assert(sizeof(umf_magazine_slab_t) % 8 == 0 && /* unlike UMF_MAP_ENTRY_PAGED */
                   sizeof(umf_magazine_t) == 2 * sizeof(umf_magazine_slab_t) &&
                   (UMF_MAGAZINE_MAX_BINS + 1) * sizeof(umf_magazine_slab_t) <= UINT16_MAX,
               "offsets of magazines are class offsets");

static inline uint32_t umf_magazine_bin_at(size_t offset) {
    return (uint32_t)(offset / sizeof(umf_magazine_slab_t)) - 1;
}

/* The empty assembly keeps one address in a register. Without it compilers compute one for each
 * member. */
static inline umf_magazine_t *umf_magazine_at(umf_thread_slot_t *cache, size_t offset) {
    umf_magazine_t *mag = (umf_magazine_t *)((char *)&((umf_cache_t *)cache)->none + 2 * offset);
    __asm__("" : "+r"(mag));
    return mag;
}

/* Only the owner writes `top`, other threads may read it. One instruction does it; no compiler
 * makes one instruction of an atomic load and store. */
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

/* false: the magazine is empty, or has no stack. Hot. */
static inline bool umf_magazine_try_pop_item(umf_magazine_t *mag, umf_item_t *item) {
    umf_item_t *top = mag->top;
    if (umf_unlikely(top == mag->base)) {
        return false;
    }
    umf_magazine_move_top(mag, -1);
    *item = top[-1]; /* the last access: the compiler may reuse the register of `mag` */
    return true;
}

/* The same for objects with states; the object becomes LIVE. Hot. */
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
    umf_thread_slot_enter();
    bool is_got = umf_magazine_try_pop(umf_magazine_of(m, bin), &object);
    umf_thread_slot_leave();
    return umf_likely(is_got) ? object : umf_magazine_pop_slow(m, (uint32_t)bin);
}

/* The same for objects without states. */
static inline void *umf_magazine_pop_stateless(umf_magazines_t *m, size_t bin) {
    umf_item_t item;
    umf_thread_slot_enter();
    bool is_got = umf_magazine_try_pop_item(umf_magazine_of(m, bin), &item);
    umf_thread_slot_leave();
    return umf_likely(is_got) ? item.object : umf_magazine_pop_slow(m, (uint32_t)bin);
}

/* false: the magazine is full, or has no stack. Hot. */
static inline bool umf_magazine_try_push_item(umf_magazine_t *mag, umf_item_t item) {
    umf_item_t *top = mag->top;
    if (umf_unlikely(top == mag->limit)) {
        return false;
    }
    *top = item;
    umf_magazine_move_top(mag, 1);
    return true;
}

/* The same for a live object. false also if the object is not live; nothing has changed then.
 * Hot. */
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

/* The size of the object that may start at `addr`. false: none may, or the bin has no checked
 * pushes. Hot. */
static inline bool umf_magazine_slab_starts(const umf_magazine_slab_t *slab, uintptr_t addr,
                                            size_t *size) {
    uint64_t product = (addr & slab->mask) * slab->magic; /* umf_magic_divides */
    /* Keeps the compiler from loading `magic` twice: the comparison reads it from memory. */
    __asm__("" : "+r"(slab));
    if (umf_unlikely(product >= slab->magic)) {
        return false;
    }
    *size = slab->size;
    return true;
}

/* A plain load where that saves an instruction: another thread may only set it to 0. */
static inline uint64_t umf_magazine_magic(const umf_magazine_t *mag) {
    return UMF_IS_TSAN ? __atomic_load_n(&mag->magic, __ATOMIC_RELAXED) : mag->magic;
}

/* Pushes `object` if it is the start of a live object of the bin. false: it is not, or no stack has
 * room, or the bin has no checked pushes. `slab`: the descriptor that the span points to. Hot. */
static inline bool umf_magazine_push_checked(umf_magazine_t *mag, void *object, void *slab) {
    umf_wide_t product = (umf_wide_t)((uintptr_t)object & mag->mask) *
                         umf_magazine_magic(mag); /* umf_magic_divides */
    __asm__("" : "+m"(mag->magic)); /* as above: the comparison reads it from memory */
    return umf_likely((uint64_t)product < umf_magazine_magic(mag)) &&
           umf_magazine_try_push(mag, object, umf_magazine_state(slab, (size_t)(product >> 64)));
}

/* The same by the states of a page and the distance from the object of its first state. The states
 * are loaded last, which saves registers. Hot. */
static inline bool umf_magazine_push_paged(umf_magazine_t *mag, void *object,
                                           uint8_t *const *states, size_t distance) {
    umf_wide_t product = (umf_wide_t)distance * umf_magazine_magic(mag); /* umf_magic_divides */
    __asm__("" : "+m"(mag->magic));                                      /* as above */
    return umf_likely((uint64_t)product < umf_magazine_magic(mag)) &&
           umf_magazine_try_push(
               mag, object,
               (UMF_IS_TSAN ? __atomic_load_n(states, __ATOMIC_RELAXED) : *states) +
                   (size_t)(product >> 64));
}

/* The same for an object of the page. Hot. */
static inline bool umf_magazine_push_page(umf_magazine_t *mag, void *object,
                                          const umf_page_record_t *page) {
    return umf_magazine_push_paged(mag, object, &page->states,
                                   (uint32_t)(uintptr_t)object - UMF_PAGE_LOAD(page, origin));
}

/* A push by an offset. Hot. */
static inline bool umf_magazine_try_free(const umf_magazines_t *m, size_t offset, void *object,
                                         uint8_t *state) {
    umf_thread_slot_enter();
    bool is_done = umf_magazine_try_push(
        umf_magazine_at(umf_thread_slot_get(m->owner.index), offset), object, state);
    umf_thread_slot_leave();
    return is_done;
}

/* Pushes any object, live or not: its state is not checked. Hot. */
static inline void umf_magazine_push(umf_magazines_t *m, size_t bin, umf_item_t item) {
    umf_thread_slot_enter();
    bool is_done = umf_magazine_try_push_item(umf_magazine_of(m, bin), item);
    umf_thread_slot_leave();
    if (umf_unlikely(!is_done)) {
        umf_magazine_push_slow(m, (uint32_t)bin, item);
    }
}

/* --- bins of a pool that makes objects itself, and keeps a few in the stacks of its threads --- */

UMF_COLD bool umf_magazine_keep_slow(umf_magazines_t *m, uint32_t bin, umf_item_t item);
/* Makes or enlarges the calling thread's stack for later keeps, if it is full and of use. */
UMF_COLD void umf_magazine_make_room(umf_magazines_t *m, uint32_t bin);

/* Keeps a free object in the calling thread's stack, if that has room. `state` is the pool's. */
static inline bool umf_magazine_try_keep(umf_magazines_t *m, uint32_t bin, umf_item_t item) {
    umf_thread_slot_enter();
    bool is_done = umf_magazine_try_push_item(umf_magazine_of(m, bin), item);
    umf_thread_slot_leave();
    return is_done;
}

/* The same; makes room where that is possible. false: nothing has changed. */
static inline bool umf_magazine_keep(umf_magazines_t *m, uint32_t bin, umf_item_t item) {
    return umf_likely(umf_magazine_try_keep(m, bin, item)) || umf_magazine_keep_slow(m, bin, item);
}

/* An object that the calling thread has kept. NULL: it has none. */
static inline umf_item_t umf_magazine_pop_kept(umf_magazines_t *m, uint32_t bin) {
    umf_item_t item = {0};
    umf_thread_slot_enter();
    umf_magazine_t *mag = umf_magazine_of(m, bin);
    if (!umf_magazine_try_pop_item(mag, &item) && mag->base) {
        mag->was_refilled = true; /* the thread takes what it keeps */
    }
    umf_thread_slot_leave();
    return item;
}

/* --- small sizes, which the core serves itself --- */

#define UMF_SMALL_MAX 1024

/* By size: umf_magazine_offset() of the bin. 0: the pool must be called. */
typedef struct umf_small_sizes_t {
    uint16_t magazine[UMF_SMALL_MAX + 1];
} umf_small_sizes_t;

#endif
