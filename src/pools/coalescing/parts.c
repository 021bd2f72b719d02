/* Parts of a coalescing pool: how they come and go. */
#include "pools/coalescing/parts.h"

#include "base/meta.h"
#include "system/os.h"

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_part_t part_t;
typedef umf_coalescing_hot_blocks_t hot_blocks_t;

#define PART_ELSEWHERE_MAX 32 /* so often a thread lives on others' parts before it meets them */
#define PART_MET_MAX 16       /* so often a thread waits for those who free its blocks */

static part_t *part_create(uint32_t index) {
    part_t *part = umf_meta_alloc(sizeof(*part));
    if (!part) {
        return NULL;
    }
    part->range = umf_range_create();
    if (!part->range) {
        umf_meta_free(part, sizeof(*part));
        return NULL;
    }
    part->index = index;
    umf_lock_init(&part->lock, UMF_RANK_PAGES);
    return part;
}

static void part_destroy(part_t *part) {
    umf_lock_destroy(&part->lock);
    umf_range_destroy(part->range);
    umf_meta_free(part, sizeof(*part));
}

umf_result_t umf_coalescing_parts_init(coalescing_pool_t *pool) {
    pool->parts[0] = part_create(0);
    return pool->parts[0] ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

void umf_coalescing_parts_fini(coalescing_pool_t *pool) {
    for (size_t i = 0; pool->parts[i]; i++) {
        part_destroy(pool->parts[i]);
    }
}

/* A new one, locked. NULL: there are enough, there is no memory, or another thread was faster. */
static part_t *part_add_locked(coalescing_pool_t *pool) {
    size_t cpus = umf_os_cpu_count();
    size_t limit = cpus < UMF_COALESCING_PARTS_MAX ? cpus : UMF_COALESCING_PARTS_MAX;
    uint32_t index = 1;
    while (umf_coalescing_part(pool, index)) {
        index++;
    }
    part_t *part = index < limit ? part_create(index) : NULL;
    if (!part) {
        return NULL;
    }
    umf_lock(&part->lock);
    part_t *expected = NULL;
    if (!__atomic_compare_exchange_n(&pool->parts[index], &expected, part, false, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED)) {
        umf_unlock(&part->lock);
        part_destroy(part);
        return NULL;
    }
    return part;
}

static uint32_t threads_of(const part_t *part) {
    return __atomic_load_n(&part->threads, __ATOMIC_RELAXED);
}

/* Already counted there. */
static void settle(const part_t *part, hot_blocks_t *hot) {
    hot->part = part->index;
    hot->met = 0;
    hot->is_of_part = true;
}

static void join(part_t *part, hot_blocks_t *hot) {
    __atomic_fetch_add(&part->threads, 1, __ATOMIC_RELAXED);
    settle(part, hot);
}

void umf_coalescing_part_leave(coalescing_pool_t *pool, hot_blocks_t *hot) {
    if (hot->is_of_part) {
        __atomic_fetch_sub(&umf_coalescing_part(pool, hot->part)->threads, 1, __ATOMIC_RELAXED);
        hot->is_of_part = false;
    }
}

/* The first of the parts with the fewest threads; counts one more. */
static part_t *part_count_in(coalescing_pool_t *pool) {
    part_t *best;
    uint32_t least;
    do {
        best = umf_coalescing_part(pool, 0);
        least = threads_of(best);
        part_t *part;
        for (size_t i = 1; least && (part = umf_coalescing_part(pool, i)); i++) {
            if (threads_of(part) < least) {
                best = part;
                least = threads_of(part);
            }
        }
    } while (!__atomic_compare_exchange_n(&best->threads, &least, least + 1, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return best;
}

part_t *umf_coalescing_part_enter(coalescing_pool_t *pool) {
    hot_blocks_t *hot = (hot_blocks_t *)umf_local_make(&pool->hot);
    if (hot && !hot->is_of_part) {
        settle(part_count_in(pool), hot);
    }
    return umf_coalescing_part(pool, hot ? hot->part : 0);
}

/* The part with the fewest threads, of those after `own`. NULL if that is not less crowded. */
static part_t *part_with_room(coalescing_pool_t *pool, const part_t *own) {
    part_t *best = NULL;
    uint32_t least = threads_of(own) > 1 ? threads_of(own) - 1 : 1;
    for (part_t *part = umf_coalescing_part_next(pool, own); part != own && least;
         part = umf_coalescing_part_next(pool, part)) {
        if (threads_of(part) < least) {
            best = part;
            least = threads_of(part);
        }
    }
    return best;
}

/* Locked; NULL if it is best to stay. */
static part_t *other_part(coalescing_pool_t *pool, const part_t *own) {
    part_t *part = part_with_room(pool, own);
    if (!part || threads_of(part)) {
        part_t *added = part_add_locked(pool);
        if (added) {
            return added;
        }
    }
    return part && umf_trylock(&part->lock) ? part : NULL;
}

part_t *umf_coalescing_part_meet(coalescing_pool_t *pool, part_t *own) {
    /* Before anything is locked: may allocate, and come back here if we are malloc. */
    hot_blocks_t *hot = (hot_blocks_t *)umf_local_make(&pool->hot);
    part_t *part = NULL;
    if (hot) {
        if (!hot->is_of_part) {
            join(own, hot);
        }
        hot->has_met = true;
        bool is_tired = ++hot->met % PART_MET_MAX == 0;
        part = threads_of(own) > 1 || is_tired ? other_part(pool, own) : NULL;
    }
    if (!part) {
        umf_lock(&own->lock);
        return own;
    }
    umf_coalescing_part_leave(pool, hot);
    join(part, hot);
    return part;
}

void umf_coalescing_part_found(coalescing_pool_t *pool, part_t *part) {
    hot_blocks_t *hot = umf_coalescing_hot_blocks(pool);
    if (!hot->head.owner) {
        return;
    }
    if (threads_of(part)) {
        hot->has_met = hot->has_met || ++hot->elsewhere % PART_ELSEWHERE_MAX == 0;
    } else {
        umf_coalescing_part_leave(pool, hot);
        join(part, hot);
    }
}

void umf_coalescing_part_note_met(const coalescing_pool_t *pool) {
    hot_blocks_t *hot = umf_coalescing_hot_blocks(pool);
    if (hot->head.owner) {
        hot->has_met = true;
    }
}

bool umf_coalescing_part_has_met(const coalescing_pool_t *pool) {
    hot_blocks_t *hot = umf_coalescing_hot_blocks(pool);
    bool has_met = hot->has_met;
    if (has_met) {
        hot->has_met = false;
    }
    return has_met;
}

size_t umf_coalescing_count(coalescing_pool_t *pool,
                            void (*count)(const part_t *part, size_t *total)) {
    size_t total = 0;
    part_t *part;
    for (size_t i = 0; (part = umf_coalescing_part(pool, i)); i++) {
        umf_lock(&part->lock);
        count(part, &total);
        umf_unlock(&part->lock);
    }
    return total;
}

void umf_coalescing_reclaim(coalescing_pool_t *pool) {
    part_t *part;
    for (size_t i = 0; (part = umf_coalescing_part(pool, i)); i++) {
        umf_lock(&part->lock);
        umf_coalescing_reclaim_locked(part);
        umf_unlock(&part->lock);
    }
}
