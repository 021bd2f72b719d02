/*
 * Parts of a coalescing pool.
 *
 * A pool begins with one part, where every thread allocates. Threads that meet at its lock go
 * apart: to a part where nobody is, else to a new one, at most one for each CPU, else to where
 * fewer are. A thread that often finds the lock taken although nobody else allocates there, because
 * others free its blocks, goes on to a part where nobody is, too. As soon as there are several
 * parts a thread begins where the fewest are.
 *
 * A block goes back into the part it came from, which its span tells. Who holds the lock of a part
 * does not wait for that of another.
 */
#ifndef UMF_SRC_POOLS_COALESCING_PARTS_H
#define UMF_SRC_POOLS_COALESCING_PARTS_H

#include "core/view.h"
#include "pools/coalescing/hot.h"

/* Makes the first part. */
umf_result_t umf_coalescing_parts_init(umf_coalescing_pool_t *pool);
void umf_coalescing_parts_fini(umf_coalescing_pool_t *pool);

/* The part where the calling thread, which is in none so far, is from now on. */
UMF_COLD umf_coalescing_part_t *umf_coalescing_part_enter(umf_coalescing_pool_t *pool);
/* The calling thread's part, whose lock was taken, or another that is its part from then on;
 * locked. */
UMF_COLD umf_coalescing_part_t *umf_coalescing_part_meet(umf_coalescing_pool_t *pool,
                                                         umf_coalescing_part_t *own);
/* The calling thread has found room in this part: it stays if nobody else is there. If others are,
 * it will meet them sooner or later: now and then this counts as having met. */
void umf_coalescing_part_found(umf_coalescing_pool_t *pool, umf_coalescing_part_t *part);
/* The calling thread has met another at the lock of a part that is not its own. */
void umf_coalescing_part_note_met(const umf_coalescing_pool_t *pool);
/* Has it met any since this was last asked? */
bool umf_coalescing_part_has_met(const umf_coalescing_pool_t *pool);
/* The thread of these blocks ends. */
void umf_coalescing_part_leave(umf_coalescing_pool_t *pool, umf_coalescing_hot_blocks_t *hot);

/* Asks every part under its lock; `count` changes the total, which is 0 at first. */
size_t umf_coalescing_count(umf_coalescing_pool_t *pool,
                            void (*count)(const umf_coalescing_part_t *part, size_t *total));

/* Makes free what is parked, of all parts: comes before what counts free memory. */
void umf_coalescing_reclaim(umf_coalescing_pool_t *pool);

static inline umf_coalescing_part_t *umf_coalescing_part(const umf_coalescing_pool_t *pool,
                                                         size_t index) {
    return __atomic_load_n(&pool->parts[index], __ATOMIC_ACQUIRE);
}

/* The part after this one; the first after the last. */
static inline umf_coalescing_part_t *umf_coalescing_part_next(const umf_coalescing_pool_t *pool,
                                                              const umf_coalescing_part_t *part) {
    umf_coalescing_part_t *next = umf_coalescing_part(pool, part->index + 1);
    return next ? next : umf_coalescing_part(pool, 0);
}

static inline umf_coalescing_part_t *umf_coalescing_part_lock(umf_coalescing_pool_t *pool) {
    const umf_coalescing_hot_blocks_t *hot = umf_coalescing_hot_blocks(pool);
    umf_coalescing_part_t *own = umf_coalescing_part(pool, hot->part);
    if (umf_unlikely(umf_coalescing_part(pool, 1) != NULL) && umf_unlikely(!hot->is_of_part)) {
        own = umf_coalescing_part_enter(pool);
    }
    return umf_likely(umf_trylock(&own->lock)) ? own : umf_coalescing_part_meet(pool, own);
}

/* The span, which is wholly free, is this part's from now on. */
static inline void umf_coalescing_part_own(const umf_coalescing_part_t *part, umf_span_t *span) {
    __atomic_store_n(&span->cookie, (void *)(uintptr_t)part->index, __ATOMIC_RELAXED);
}

/*
 * The part to ask for a block at `ptr`, whose word is `word` or, if that is 0, not looked up yet.
 * For a wrong pointer it is any part, which does not know the block: by then the span may be
 * somebody else's.
 */
static inline umf_coalescing_part_t *umf_coalescing_part_of(const umf_coalescing_pool_t *pool,
                                                            const void *ptr, umf_word_t word) {
    umf_coalescing_part_t *first = umf_coalescing_part(pool, 0);
    if (umf_likely(!umf_coalescing_part(pool, 1))) {
        return first;
    }
    const umf_span_t *span =
        word ? umf_span_at(umf_word_span(word)) : umf_view_find(pool->view, ptr);
    uintptr_t index = span ? (uintptr_t)__atomic_load_n(&span->cookie, __ATOMIC_RELAXED) : 0;
    umf_coalescing_part_t *part =
        index < UMF_COALESCING_PARTS_MAX ? umf_coalescing_part(pool, index) : NULL;
    return part ? part : first;
}

#endif
