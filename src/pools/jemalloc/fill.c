/* What moves between magazines and jemalloc or the page cache, and its records. */
#include "pools/jemalloc/jemalloc.h"

#include "base/thread_slot.h"
#include "reclaim/reclaim.h"

#define BATCH 64 /* objects that are moved at once, through an array on the stack */

/* --- records --- */

/* Gives states to objects that came from below. Returns how many of the first ones have states; for
 * the next one there is no memory. */
static size_t mark(umf_jemalloc_pool_t *pool, uint32_t bin, umf_item_t *items, size_t n) {
    umf_pages_span_t *span = NULL;
    umf_starts_pool_t starts = pool->starts;
    starts.owner = umf_magazines_owner(&pool->magazines);
    for (size_t i = 0; i < n; i++) {
        if (!span || (uintptr_t)items[i].object - span->base >= span->size) {
            span = umf_pages_find(&pool->pages, items[i].object);
        }
        size_t offset = (uintptr_t)items[i].object - span->base;
        items[i].state =
            umf_starts_make(&starts, umf_jemalloc_page_of(span, offset), bin + 1,
                            (uintptr_t)items[i].object, offset % UMF_PAGE_SIZE, &span->own);
        if (!items[i].state) {
            return i;
        }
        umf_state_set(items[i].state, UMF_STATE_FREE);
    }
    return n;
}

/* false: the object is not handed out. Of two frees at the same moment this is the second. */
static bool unmark(const umf_pages_span_t *span, void *object) {
    size_t offset = (uintptr_t)object - span->base;
    uint8_t *state = umf_jemalloc_state_of(umf_jemalloc_page_of(span, offset), offset);
    return state && __atomic_exchange_n(state, UMF_STATE_NONE, __ATOMIC_RELAXED) != UMF_STATE_NONE;
}

/* Clears the states of objects. Objects that were handed out move to the front; returns how many.
 * The others were freed twice at the same moment. */
static size_t unmark_all(umf_jemalloc_pool_t *pool, umf_item_t *items, size_t n) {
    const umf_pages_span_t *span = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        void *object = items[i].object;
        if (!span || (uintptr_t)object - span->base >= span->size) {
            span = umf_pages_find(&pool->pages, object);
        }
        if (span && unmark(span, object)) {
            items[kept++] = items[i];
        } else {
            UMF_LOG_ERROR("pool %s: %p was freed twice", pool->name, object);
        }
    }
    return kept;
}

/* --- release --- */

static void release_batch(umf_jemalloc_pool_t *pool, uint32_t bin, void *const *objects, size_t n) {
    if (bin < umf_jemalloc_sizes.slab_bins) {
        umf_arenas_give(umf_jemalloc_sizes.size[bin], objects, n);
    } else {
        umf_pages_put_many(&pool->pages, umf_jemalloc_sizes.size[bin], objects, n);
    }
}

static void release_all(umf_jemalloc_pool_t *pool, uint32_t bin, const umf_item_t *items,
                        size_t n) {
    void *objects[BATCH];
    for (size_t done = 0, count; done < n; done += count) {
        for (count = 0; count < BATCH && done + count < n; count++) {
            objects[count] = items[done + count].object;
        }
        release_batch(pool, bin, objects, count);
    }
}

/* All states are cleared before the first object is released: a span, and its states, may go as
 * soon as its last object is released. */
void umf_jemalloc_flush(void *self, uint32_t bin, umf_item_t *items, size_t n) {
    umf_jemalloc_pool_t *pool = self;
    if (bin < umf_jemalloc_sizes.object_bins) { /* blocks have no states */
        n = unmark_all(pool, items, n);
    }
    release_all(pool, bin, items, n);
    umf_pages_settle(&pool->pages);
}

/* --- refill --- */

typedef struct refill_t {
    uint32_t bin;
    umf_item_t *items;
    size_t n, got;
    bool lacks_arena;
} refill_t;

/*
 * In a thread whose exit handlers are running, jemalloc's among them, a jemalloc without our
 * batches ignores the arena and allocates from its own memory. Such a thread is treated as if there
 * were no arena.
 */
static bool arena_is_ignored(umf_jemalloc_pool_t *pool, uint32_t bin, void *const *objects,
                             size_t n) {
    bool is_ignored = n && umf_pages_find(&pool->pages, objects[0]) == NULL;
    if (is_ignored) {
        umf_arenas_give(umf_jemalloc_sizes.size[bin], objects, n);
    }
    return is_ignored;
}

static size_t refill_from(umf_jemalloc_pool_t *pool, const umf_arena_t *arena, refill_t *refill) {
    void *objects[BATCH];
    size_t size = umf_jemalloc_sizes.size[refill->bin], got = 0, request, taken;
    do {
        request = refill->n - got < BATCH ? refill->n - got : BATCH;
        taken = umf_arena_take(arena, size, objects, request);
        refill->lacks_arena = arena_is_ignored(pool, refill->bin, objects, taken);
        if (refill->lacks_arena) {
            break;
        }
        for (size_t i = 0; i < taken; i++) {
            refill->items[got++].object = objects[i];
        }
    } while (taken == request && got < refill->n);
    return got;
}

static size_t refill_from_arena(umf_jemalloc_pool_t *pool, refill_t *refill) {
    umf_arena_t *arena = umf_arenas_get(&pool->arenas);
    if (!arena) {
        refill->lacks_arena = true;
        return 0;
    }
    size_t got = refill_from(pool, arena, refill);
    umf_arena_put(arena);
    return got;
}

static size_t refill_from_pages(umf_jemalloc_pool_t *pool, const refill_t *refill) {
    void *segments[BATCH];
    size_t got = umf_pages_take_many(&pool->pages, umf_jemalloc_sizes.size[refill->bin], segments,
                                     refill->n < BATCH ? refill->n : BATCH);
    for (size_t i = 0; i < got; i++) {
        refill->items[i].object = segments[i];
    }
    umf_thread_slot_tls.is_short = got == 0;
    return got;
}

/* All that this thread and the depots have goes back, once for each span, because threads that fill
 * and flush their caches in turn would never let the pool grow; else most large ones. */
void umf_jemalloc_release_some(umf_jemalloc_pool_t *pool, uint32_t bin) {
    size_t spans = umf_tracked_span_count(pool->tracked);
    if (atomic_exchange_explicit(&pool->flushed_at, spans, memory_order_relaxed) != spans) {
        umf_magazines_flush(&pool->magazines);
    } else {
        umf_magazines_release_large(&pool->magazines, bin, UMF_MAGAZINE_WAITING_MAX);
    }
}

/* Before a request fails, all free objects go back: each may keep a slab from being free. */
static void give_back(void *pool) {
    umf_magazines_trim(&((umf_jemalloc_pool_t *)pool)->magazines);
}

bool umf_jemalloc_reclaim(umf_jemalloc_pool_t *pool, bool (*attempt)(void *pool, void *request),
                          void *request) {
    umf_shortage_t shortage = {
        .tracked = pool->tracked,
        .transit = &pool->pages.transit,
        .pool = pool,
        .give_back = give_back,
        .attempt = attempt,
        .request = request,
    };
    return umf_reclaim(&shortage);
}

/*
 * If jemalloc has no arena left, each small object gets pages of its own, which is wasteful but
 * works. Such a block is counted as an object when it is handed out, which happens at once, and as
 * a large block when it is freed. It has no state; its page record has its size.
 */
static size_t refill_without_arena(umf_jemalloc_pool_t *pool, uint32_t bin, umf_item_t *items) {
    void *block = umf_jemalloc_block_alloc(pool, umf_jemalloc_sizes.size[bin], UMF_PAGE_SIZE);
    if (!block) {
        return 0;
    }
    umf_pages_count(&pool->pages, block, -1);
    items[0] = (umf_item_t){.object = block};
    return 1;
}

/* true: objects, or `lacks_arena`. */
static bool refill_at_hand(umf_jemalloc_pool_t *pool, refill_t *refill) {
    umf_thread_slot_tls.is_short = false;
    refill->lacks_arena = false;
    refill->got = refill->bin < umf_jemalloc_sizes.slab_bins ? refill_from_arena(pool, refill)
                                                             : refill_from_pages(pool, refill);
    return refill->got || refill->lacks_arena;
}

/* Refills, and grows if there are no pages at hand. false: there is no memory. */
static bool refill_or_grow(void *self, void *request) {
    umf_jemalloc_pool_t *pool = self;
    refill_t *refill = request;
    size_t need = refill->bin < umf_jemalloc_sizes.slab_bins
                      ? umf_jemalloc_sizes.slab_size[refill->bin]
                      : umf_jemalloc_sizes.size[refill->bin];
    bool is_done;
    while (!(is_done = refill_at_hand(pool, refill)) && umf_thread_slot_tls.is_short &&
           umf_pages_grow(&pool->pages, need, UMF_PAGE_SIZE) == UMF_RESULT_SUCCESS) {
    }
    return is_done;
}

/* In order of cost: free memory at hand, caches of this thread and the depots, the provider, all
 * caches. */
static bool refill_below(umf_jemalloc_pool_t *pool, refill_t *refill) {
    if (refill_at_hand(pool, refill)) {
        return true;
    }
    umf_tracked_forget_refusal();
    umf_jemalloc_release_some(pool, refill->bin);
    return refill_or_grow(pool, refill) || umf_jemalloc_reclaim(pool, refill_or_grow, refill);
}

size_t umf_jemalloc_refill(void *self, uint32_t bin, umf_item_t *items, size_t n) {
    umf_jemalloc_pool_t *pool = self;
    refill_t refill = {.bin = bin, .items = items, .n = n};
    if (refill_below(pool, &refill) && refill.lacks_arena) {
        return refill_without_arena(pool, bin, items);
    }
    size_t marked = mark(pool, bin, items, refill.got);
    if (umf_unlikely(marked < refill.got)) {
        release_all(pool, bin, items + marked, refill.got - marked);
    }
    if (!marked) {
        umf_jemalloc_fail(refill.got ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY : umf_tracked_refusal());
    }
    return marked;
}
