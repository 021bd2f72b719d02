/*
 * Arenas: the arenas of jemalloc that a pool uses. A thread refills from an arena from which no
 * other thread refills, if there are enough, so that threads do not contend for jemalloc's locks.
 * An arena is made without hooks and gets those of the pool afterwards. Arenas of destroyed pools
 * are kept for the next pools.
 */
#ifndef UMF_SRC_POOLS_JEMALLOC_ARENAS_H
#define UMF_SRC_POOLS_JEMALLOC_ARENAS_H

#include <jemalloc/jemalloc.h>

#include "base/lock.h"
#include "system/atomic.h"

typedef struct umf_arena_t {
    unsigned index;        /* jemalloc's. Immutable once counted */
    _Atomic(bool) is_busy; /* a hint: some thread is refilling from it */
} umf_arena_t;

typedef struct umf_arenas_t {
    umf_lock_t *lock; /* UMF_RANK_ARENA. Immutable after init, as the next */
    extent_hooks_t *hooks;
    const char *pool_name;
    uint32_t max;
    umf_arena_t *list;       /* room for `max`. Sync: lock, published by count */
    _Atomic(uint32_t) count; /* Sync: lock for writers */
} umf_arenas_t;

/* Takes nothing from jemalloc before the first `get`. The arguments must outlive the arenas. */
void umf_arenas_init(umf_arenas_t *arenas, umf_lock_t *lock, extent_hooks_t *hooks,
                     const char *pool_name, uint32_t max);
/* Removes everything of the pool from the arenas. false: jemalloc may still use the hooks. */
bool umf_arenas_fini(umf_arenas_t *arenas);

/* An idle arena, else a new one, else any. NULL: there is none. */
umf_arena_t *umf_arenas_get(umf_arenas_t *arenas);

static inline void umf_arena_put(umf_arena_t *arena) {
    atomic_store_explicit(&arena->is_busy, false, memory_order_relaxed);
}

/* Takes up to `n` objects of a slab's size. Returns how many; fewer than `n`: there is no memory.
 */
size_t umf_arena_take(const umf_arena_t *arena, size_t size, void **objects, size_t n);
/* Frees objects of one slab's size, of any arenas. */
void umf_arenas_give(size_t size, void *const *objects, size_t n);

/* Gives back the free memory of the arenas. */
void umf_arenas_purge(umf_arenas_t *arenas);

#endif
