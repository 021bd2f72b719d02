/*
 * Locks with ranks, and fork.
 *
 * A thread takes a lock only while every lock that it holds has a lower rank; debug builds assert
 * it. No lock is held across a driver call or a user callback.
 *
 * The fork handlers have a list of all locks. Before a fork they take all locks in rank order,
 * after it they release them in parent and child. So the child finds no lock held by a thread that
 * does not exist in it, and no structure half changed. Locks of one rank are taken in the order of
 * their initialisation.
 *
 * A free lock costs one atomic instruction to take and one to release, inline, because the tracking
 * of one allocation takes several locks. A thread that finds it held spins for a moment, then
 * sleeps in the kernel.
 */
#ifndef UMF_SRC_BASE_LOCK_H
#define UMF_SRC_BASE_LOCK_H

#include <stdbool.h>

#include "system/common.h"

typedef enum umf_lock_rank_t {
    UMF_RANK_INIT,       /* umf.c: start and stop of the library */
    UMF_RANK_TOPOLOGY,   /* topology/topology.c: reading the machine, which allocates */
    UMF_RANK_BROKER,     /* peer/server.c: start and stop of a thread, which allocates */
    UMF_RANK_BACKGROUND, /* reclaim/reclaim_thread.c: start and stop of its thread, which allocates
                          */
    UMF_RANK_RECORDER,   /* record/: start and stop of recordings */
    UMF_RANK_REGISTRY,   /* kinds of providers and pools */
    UMF_RANK_CTL,        /* stored defaults */
    UMF_RANK_POOLS,      /* list of pools by name */
    UMF_RANK_SUSPEND,    /* suspend: states of pools, retained pinned memory */
    UMF_RANK_VAULTS,     /* ext/vault: connections, views */
    UMF_RANK_REMOTE,     /* ext/remote: commands and published ranges of a context */
    UMF_RANK_IMPORT,     /* ipc/import.c: cache of opened handles */
    UMF_RANK_EXPORT,     /* ipc/export.c */
    UMF_RANK_STREAM_CACHES, /* queue/: the list of the stream caches of one pool */
    UMF_RANK_STREAM_CACHE,  /* queue/: blocks allocated and freed on one queue */
    UMF_RANK_DEPOT,         /* cache/depot.c */
    UMF_RANK_BIN,           /* pools: the slabs of one size */
    UMF_RANK_ARENA,         /* pools: arenas, or records, of one pool */
    UMF_RANK_JEMALLOC,      /* the rank of jemalloc's own locks; ours do not use it */
    UMF_RANK_PAGES,         /* pools: page cache below an allocator */
    UMF_RANK_LIMITS,        /* shared limits; reclaim/pressure.c */
    UMF_RANK_GROW,          /* providers: growth of one file */
    UMF_RANK_PROVIDER,      /* state of one provider */
    UMF_RANK_VIEW,          /* spans of one pool */
    UMF_RANK_LAYER,         /* object/layer.c: layers of pools */
    UMF_RANK_MAP_NEST,      /* pointer map: spans inside of others */
    UMF_RANK_MAP,           /* pointer map: lists */
    UMF_RANK_MAP_ROOT,      /* pointer map: tables of 1 GiB */
    UMF_RANK_SPANS,         /* span descriptors */
    UMF_RANK_RECORD,        /* record/: tables of a recording; taken at an event */
    UMF_RANK_THREAD_SLOT,   /* table of per-thread blocks */
    UMF_RANK_EXPORTED,      /* peer/: exported descriptors, connections */
    UMF_RANK_HANDLES,       /* base/handle.c: live handles */
    UMF_RANK_META,          /* metadata arena */
    UMF_RANK_LOG,           /* logger */
    UMF_RANK_COUNT
} umf_lock_rank_t;

typedef enum umf_lock_state_t {
    UMF_LOCK_FREE,
    UMF_LOCK_HELD,
    UMF_LOCK_AWAITED, /* held, and a thread may sleep until it is released */
} umf_lock_state_t;

typedef struct umf_lock_t {
    uint32_t state; /* umf_lock_state_t. Sync: atomic */
    umf_lock_rank_t rank;
    uint32_t order;                 /* of initialisation, within the process */
    struct umf_lock_t *prev, *next; /* all locks of this rank */
#ifndef NDEBUG
    struct umf_lock_t *below; /* the lock that the holder took before this one. Sync: this lock */
#endif
} umf_lock_t;

/*
 * Initialise once, destroy once; a destroyed lock may be initialised again. Cannot fail.
 *
 * Both may be called with other locks held, with one limit that lets fork make progress: a lock of
 * an outer rank (below JEMALLOC) is not initialised or destroyed while one of an inner rank is
 * held.
 */
void umf_lock_init(umf_lock_t *lock, umf_lock_rank_t rank);
void umf_lock_destroy(umf_lock_t *lock);

/*
 * A lock of static storage that may be taken before any constructor has run; never destroyed:
 * `UMF_LOCK_STATIC(map_lock, UMF_RANK_MAP);`
 */
#define UMF_LOCK_STATIC(name, lock_rank)                                                           \
    static umf_lock_t name;                                                                        \
    __attribute__((constructor)) static void name##_register(void) {                               \
        umf_lock_register(&name);                                                                  \
    }                                                                                              \
    static umf_lock_t name = {.rank = (lock_rank)}

/* Makes a static lock known to the fork handlers. A thread may hold it already. */
void umf_lock_register(umf_lock_t *lock);

/* The bare lock, without a check of the order. These two functions are for a contended lock. */
UMF_COLD void umf_lock_wait(umf_lock_t *lock);
UMF_COLD void umf_lock_wake(umf_lock_t *lock);

static inline bool umf_lock_try_bare(umf_lock_t *lock) {
    uint32_t expected = UMF_LOCK_FREE;
    return __atomic_compare_exchange_n(&lock->state, &expected, UMF_LOCK_HELD, false,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
static inline void umf_lock_take_bare(umf_lock_t *lock) {
    if (umf_unlikely(!umf_lock_try_bare(lock))) {
        umf_lock_wait(lock);
    }
}
static inline void umf_lock_release_bare(umf_lock_t *lock) {
    if (umf_unlikely(__atomic_exchange_n(&lock->state, UMF_LOCK_FREE, __ATOMIC_RELEASE) ==
                     UMF_LOCK_AWAITED)) {
        umf_lock_wake(lock);
    }
}

#ifdef NDEBUG
static inline void umf_lock(umf_lock_t *lock) {
    umf_lock_take_bare(lock);
}
static inline bool umf_trylock(umf_lock_t *lock) {
    return umf_lock_try_bare(lock);
}
static inline void umf_unlock(umf_lock_t *lock) {
    umf_lock_release_bare(lock);
}
static inline void umf_assert_locked(umf_lock_t *lock) {
    (void)lock;
}
#else
void umf_lock(umf_lock_t *lock);
bool umf_trylock(umf_lock_t *lock);
void umf_unlock(umf_lock_t *lock);
void umf_assert_locked(umf_lock_t *lock);
#endif

/*
 * Registers the fork handlers. Inner locks (ranks above JEMALLOC) are registered before an
 * allocator below us registers its own, outer ones after that, because prepare handlers run in the
 * opposite order.
 */
void umf_fork_register_inner(void);
void umf_fork_register_outer(void);

/* Replaces pthread_atfork in the allocator below us (cmake/jemalloc.cmake). Its handlers run
 * between those of our outer and our inner locks, whenever it registers them. */
int umf_fork_below(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* The number of forks between the first process and this one. */
unsigned umf_fork_count(void);
/* The table (base/thread_slot.c) of the only thread that the last fork has left; NULL: there was no
 * fork, or the thread had none. */
const struct umf_thread_slot_table_t *umf_fork_survivor(void);

#endif
