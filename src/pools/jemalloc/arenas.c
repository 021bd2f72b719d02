/* Arenas of jemalloc. */
#include "pools/jemalloc/arenas.h"

#include "base/log.h"
#include "base/meta.h"
#include "pools/jemalloc/sizes.h"

#define SPARE_ARENAS_MAX 64

void umf_arenas_init(umf_arenas_t *arenas, umf_lock_t *lock, extent_hooks_t *hooks,
                     const char *pool_name, uint32_t max) {
    *arenas = (umf_arenas_t){.lock = lock, .hooks = hooks, .pool_name = pool_name, .max = max};
}

static void *hook_alloc_none(extent_hooks_t *hooks, void *new_addr, size_t size, size_t alignment,
                             bool *zero, bool *commit, unsigned arena) {
    (void)hooks, (void)new_addr, (void)size, (void)alignment, (void)zero, (void)commit, (void)arena;
    return NULL;
}

static int arena_ctl(umf_mib_t mib, unsigned index, void *new_value, size_t size) {
    mib.ids[1] = index;
    return umf_je_mallctlbymib(mib.ids, mib.length, NULL, NULL, new_value, size);
}

/*
 * Emptied arenas of destroyed pools. Some are kept for the next pools, because making an arena
 * costs many page faults, and to destroy one jemalloc visits all arenas: a pool that is used once
 * takes 95,000 instructions without spare arenas, and 64,000 with them.
 */
static struct {
    unsigned index[SPARE_ARENAS_MAX]; /* Sync: spare_lock */
    uint32_t count;                   /* Sync: spare_lock */
} spare;
UMF_LOCK_STATIC(spare_lock, UMF_RANK_ARENA);

static bool spare_get(unsigned *index) {
    umf_lock(&spare_lock);
    bool is_found = spare.count > 0;
    if (is_found) {
        *index = spare.index[--spare.count];
    }
    umf_unlock(&spare_lock);
    return is_found;
}

static bool spare_put(unsigned index) {
    umf_lock(&spare_lock);
    bool has_room = spare.count < SPARE_ARENAS_MAX;
    if (has_room) {
        spare.index[spare.count++] = index;
    }
    umf_unlock(&spare_lock);
    return has_room;
}

static int arena_set_hooks(unsigned index, extent_hooks_t *hooks) {
    return arena_ctl(umf_jemalloc_sizes.arena_hooks, index, (void *)&hooks, sizeof(hooks));
}

/* Removes everything of the pool from the arena. false: jemalloc may still use the pool's hooks. */
static bool arena_retire(unsigned index) {
    static extent_hooks_t no_hooks = {.alloc = hook_alloc_none};
    int error = arena_ctl(umf_jemalloc_sizes.arena_reset, index, NULL, 0);
    if (!error) {
        error = arena_ctl(umf_jemalloc_sizes.arena_purge, index, NULL, 0);
    }
    if (!error) {
        error = arena_set_hooks(index, &no_hooks);
    }
    if (error || !spare_put(index)) {
        error = arena_ctl(umf_jemalloc_sizes.arena_destroy, index, NULL, 0);
    }
    if (error) {
        UMF_LOG_ERROR("jemalloc does not give up arena %u (error %d)", index, error);
    }
    return error == 0;
}

static bool arena_create(unsigned *index) {
    size_t size = sizeof(*index);
    umf_mib_t create = umf_jemalloc_sizes.arenas_create;
    int error = umf_je_mallctlbymib(create.ids, create.length, index, &size, NULL, 0);
    if (error) {
        UMF_LOG_ERROR("jemalloc cannot make an arena (error %d). It has %d for the whole process, "
                      "each jemalloc pool in use takes one or more: destroy unused pools",
                      error, UMF_JEMALLOC_ARENAS_MAX - 1);
    }
    return error == 0;
}

/* The arena is made without hooks and gets them afterwards, so that jemalloc's own data never lies
 * in provider memory. */
static bool arena_make(umf_arenas_t *arenas, unsigned *index) {
    if (!spare_get(index) && !arena_create(index)) {
        return false;
    }
    int error = arena_set_hooks(*index, arenas->hooks);
    if (error) {
        UMF_LOG_ERROR("pool %s: jemalloc refused the hooks of arena %u (error %d)",
                      arenas->pool_name, *index, error);
        arena_retire(*index);
    }
    return error == 0;
}

/* Adds an arena to the pool. NULL: the pool has as many as it may have, or there is no memory for
 * the list. */
static umf_arena_t *arena_list_locked(umf_arenas_t *arenas, unsigned index) {
    umf_assert_locked(arenas->lock);
    uint32_t count = atomic_load_explicit(&arenas->count, memory_order_relaxed);
    if (!arenas->list) {
        arenas->list = umf_meta_alloc(arenas->max * sizeof(umf_arena_t));
    }
    if (!arenas->list || count == arenas->max) {
        return NULL;
    }
    umf_arena_t *arena = &arenas->list[count];
    arena->index = index;
    atomic_init(&arena->is_busy, true);
    atomic_store_explicit(&arenas->count, count + 1, memory_order_release);
    return arena;
}

static UMF_COLD umf_arena_t *arena_add(umf_arenas_t *arenas) {
    unsigned index;
    if (!arena_make(arenas, &index)) {
        return NULL;
    }
    umf_lock(arenas->lock);
    umf_arena_t *arena = arena_list_locked(arenas, index);
    umf_unlock(arenas->lock);
    if (!arena) {
        arena_retire(index);
    }
    return arena;
}

umf_arena_t *umf_arenas_get(umf_arenas_t *arenas) {
    uint32_t count = atomic_load_explicit(&arenas->count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        umf_arena_t *arena = &arenas->list[i];
        if (!atomic_load_explicit(&arena->is_busy, memory_order_relaxed) &&
            !atomic_exchange_explicit(&arena->is_busy, true, memory_order_relaxed)) {
            return arena;
        }
    }
    umf_arena_t *arena = count < arenas->max ? arena_add(arenas) : NULL;
    if (!arena) {
        /* Other threads may have added arenas meanwhile, up to the limit. */
        count = atomic_load_explicit(&arenas->count, memory_order_acquire);
        arena = count ? &arenas->list[count - 1] : NULL;
    }
    return arena;
}

#if UMF_JEMALLOC_HAS_BATCHES

/* Of jemalloc's own, made known by a patch (cmake/jemalloc). */
size_t umf_je_arena_batch_alloc(unsigned index, size_t size, void **objects, size_t n);
void umf_je_arena_batch_dalloc(size_t size, void *const *objects, size_t n);

size_t umf_arena_take(const umf_arena_t *arena, size_t size, void **objects, size_t n) {
    return umf_je_arena_batch_alloc(arena->index, size, objects, n);
}

void umf_arenas_give(size_t size, void *const *objects, size_t n) {
    umf_je_arena_batch_dalloc(size, objects, n);
}

#else

/* MALLOCX_ARENA without its overflow for the upper half of the indices. */
static int arena_flag(unsigned index) {
    return (int)((index + 1) << 20);
}

size_t umf_arena_take(const umf_arena_t *arena, size_t size, void **objects, size_t n) {
    int flags = arena_flag(arena->index) | MALLOCX_TCACHE_NONE;
    size_t got = 0;
    while (got < n && (objects[got] = umf_je_mallocx(size, flags)) != NULL) {
        got++;
    }
    return got;
}

void umf_arenas_give(size_t size, void *const *objects, size_t n) {
    for (size_t i = 0; i < n; i++) {
        umf_je_sdallocx(objects[i], size, MALLOCX_TCACHE_NONE);
    }
}

#endif

void umf_arenas_purge(umf_arenas_t *arenas) {
    uint32_t count = atomic_load_explicit(&arenas->count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        arena_ctl(umf_jemalloc_sizes.arena_purge, arenas->list[i].index, NULL, 0);
    }
}

bool umf_arenas_fini(umf_arenas_t *arenas) {
    bool all = true;
    uint32_t count = atomic_load_explicit(&arenas->count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        all = arena_retire(arenas->list[i].index) && all;
    }
    umf_meta_free(arenas->list, arenas->max * sizeof(umf_arena_t));
    return all;
}
