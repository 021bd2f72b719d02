/*
 * The jemalloc pool.
 *
 * It has three layers. Magazines (cache/magazine.h) serve objects of up to 128 KiB without entering
 * anything else. Below them, jemalloc cuts slabs into objects of up to 14 KiB, in arenas of this
 * pool. Larger objects are segments of the page cache (pools/jemalloc/pages.h), which also supplies
 * jemalloc's slabs. If jemalloc has no arena left for a pool, every object comes from the page
 * cache.
 *
 * jemalloc calls the pool through extent hooks. A hook must not enter jemalloc again, not even
 * through another pool: the allocation would come from jemalloc's own memory instead of the arena.
 * Therefore hooks only take pages that are available and put them back. The provider, which may
 * stand on another pool of this kind, is called outside of jemalloc.
 *
 * jemalloc never merges extents of this pool: it would do so across arenas and provider spans,
 * which corrupts its heap. It returns every free extent at once, and the pages coalesce in the page
 * cache.
 *
 * Each page has a record of where objects start and which of them users own
 * (pools/shared/starts.h). All other pointers (interior, foreign or freed ones) are refused before
 * jemalloc sees them.
 */
#include <umf/pools/pool_jemalloc.h>

#include <jemalloc/jemalloc.h>
#include <string.h>

#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "cache/magazine.h"
#include "core/content.h"
#include "core/reclaim.h"
#include "ctl/params.h"
#include "pools/jemalloc/arenas.h"
#include "pools/jemalloc/pages.h"
#include "pools/jemalloc/pages_walk.h"
#include "pools/jemalloc/sizes.h"
#include "pools/shared/kind.h"
#include "pools/shared/settings.h"

#define JEMALLOC_ARENAS_MAX UMF_JEMALLOC_ARENAS_MAX

#define BATCH 64 /* objects that are moved at once, through an array on the stack */
/* Objects that come from jemalloc and go back there cost more than in other pools: more wait in
 * between. They go back before the pool grows. */
#define DEPOT_BATCHES (4 * UMF_MAGAZINE_DEPOT_BATCHES)
#define BIN_LARGEST UMF_JEMALLOC_BIN_LARGEST
_Static_assert(UMF_PAGE_SIZE == UMF_STARTS_PAGE, "a record is for a page");

/* Slabs of jemalloc have one page for most sizes; its record of a slab has 152 bytes. Of larger
 * slabs there are fewer. */
#if UMF_JEMALLOC_LG_PAGE == 12
#define SLAB_SIZES ",slab_sizes:1-512:4"
#else
#define SLAB_SIZES ""
#endif

/*
 * Decay 0: free extents come back at once. No tcache: the magazines take its place. No retain:
 * jemalloc then calls hooks without holding its locks. No huge pages: they would cost one 2 MiB
 * page per arena.
 */
extern const char *umf_je_malloc_conf;
const char *umf_je_malloc_conf = "narenas:1,tcache:false,retain:false,dirty_decay_ms:0,"
                                 "muzzy_decay_ms:0,oversize_threshold:0,thp:never,"
                                 "background_thread:false,percpu_arena:disabled" SLAB_SIZES;

#define UMF_PARAMS umf_jemalloc_pool_params
#define UMF_PARAMS_TABLE "pools/jemalloc/jemalloc_params.def"
typedef struct umf_jemalloc_pool_params_t {
#include "ctl/params_members.h"
} umf_jemalloc_pool_params_t;
#include "ctl/params_define.h"

/* The record of a page (pages.h). Its member `own` is the number of pages of the block without bin
 * that starts here; 0: none does. */
typedef umf_starts_t page_t;

typedef struct jemalloc_pool_t {
    umf_magazines_t magazines;
    umf_tracked_provider_t *tracked;
    umf_content_t content;
    umf_pages_t pages;
    extent_hooks_t hooks;
    bool is_closing;           /* the spans are about to go: hooks put nothing back */
    _Atomic size_t flushed_at; /* spans that the pool had when its caches were last flushed */
    umf_lock_t lock;
    umf_arenas_t arenas;
    char name[UMF_NAME_MAX];
} jemalloc_pool_t;

static __thread struct {
    uint32_t last_error : 31; /* a umf_result_t */
    uint32_t is_short : 1;    /* a hook found no pages: the page cache must grow */
} jemalloc_thread;

static void *fail(umf_result_t result) {
    jemalloc_thread.last_error = (uint32_t)result & INT32_MAX;
    umf_tell_refused("jemalloc", result);
    return NULL;
}

/* --- records --- */

static inline page_t *page_of(const umf_pages_span_t *span, size_t offset) {
    return (page_t *)(uintptr_t)span->records + (offset >> UMF_PAGE_SHIFT);
}

/* The state of the object that starts at `offset`. NULL: no object of a bin can start there. */
static inline uint8_t *state_of(const page_t *page, size_t offset) {
    return umf_starts_find(page, &umf_jemalloc_sizes.starts, offset % UMF_PAGE_SIZE);
}

static inline uint32_t page_kind(const page_t *page) {
    return __atomic_load_n(&page->kind, __ATOMIC_RELAXED);
}

static inline uint32_t block_pages(const page_t *page) {
    return __atomic_load_n(&page->own, __ATOMIC_ACQUIRE);
}

static void states_drop(umf_pages_span_t *span) {
    umf_starts_drop(page_of(span, 0), atomic_load_explicit(&span->own, memory_order_relaxed));
}

/* Gives states to objects that came from below. Returns how many of the first ones have states; for
 * the next one there is no memory. */
static size_t mark(jemalloc_pool_t *pool, uint32_t bin, umf_item_t *items, size_t n) {
    umf_pages_span_t *span = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!span || (uintptr_t)items[i].object - span->base >= span->size) {
            span = umf_pages_find(&pool->pages, items[i].object);
        }
        size_t offset = (uintptr_t)items[i].object - span->base;
        items[i].state = umf_starts_make(page_of(span, offset), &umf_jemalloc_sizes.starts, bin + 1,
                                         offset % UMF_PAGE_SIZE, &pool->lock, &span->own);
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
    uint8_t *state = state_of(page_of(span, offset), offset);
    return state && __atomic_exchange_n(state, UMF_STATE_NONE, __ATOMIC_RELAXED) != UMF_STATE_NONE;
}

/* --- hooks: called by jemalloc without its locks, except while a pool is closing --- */

static jemalloc_pool_t *pool_of_hooks(extent_hooks_t *hooks) {
    return UMF_CONTAINER_OF(hooks, jemalloc_pool_t, hooks);
}

static void *hook_alloc(extent_hooks_t *hooks, void *new_addr, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
    (void)arena;
    if (new_addr || *zero) { /* the page cache can give neither a fixed address nor zeros */
        return NULL;
    }
    void *ptr = umf_pages_take(&pool_of_hooks(hooks)->pages, size, alignment);
    if (!ptr) {
        jemalloc_thread.is_short = true;
        return NULL;
    }
    *commit = true;
    return ptr;
}

static void hook_destroy(extent_hooks_t *hooks, void *ptr, size_t size, bool committed,
                         unsigned arena) {
    (void)committed, (void)arena;
    jemalloc_pool_t *pool = pool_of_hooks(hooks);
    if (!pool->is_closing) {
        umf_pages_put(&pool->pages, ptr, size);
    }
}

static bool hook_dalloc(extent_hooks_t *hooks, void *ptr, size_t size, bool committed,
                        unsigned arena) {
    hook_destroy(hooks, ptr, size, committed, arena);
    return false;
}

static bool hook_split(extent_hooks_t *hooks, void *ptr, size_t size, size_t size_a, size_t size_b,
                       bool committed, unsigned arena) {
    (void)size_b, (void)committed, (void)arena;
    return umf_pages_split(&pool_of_hooks(hooks)->pages, ptr, size, size_a) != UMF_RESULT_SUCCESS;
}

/* jemalloc takes absent hooks as refused: commit, decommit, purge and merge. */
static const extent_hooks_t jemalloc_hooks = {
    .alloc = hook_alloc,
    .dalloc = hook_dalloc,
    .destroy = hook_destroy,
    .split = hook_split,
};

/* --- blocks --- */

static void block_set_pages(page_t *page, size_t bytes) {
    __atomic_store_n(&page->own, (uint32_t)(bytes >> UMF_PAGE_SHIFT), __ATOMIC_RELEASE);
}

/* The page cache counts live blocks without bin. */
static void block_init(jemalloc_pool_t *pool, void *ptr, size_t bytes) {
    const umf_pages_span_t *span = umf_pages_find(&pool->pages, ptr);
    block_set_pages(page_of(span, (uintptr_t)ptr - span->base), bytes);
    umf_pages_count(&pool->pages, ptr, 1);
}

static void block_release(jemalloc_pool_t *pool, void *ptr, size_t bytes) {
    umf_pages_count(&pool->pages, ptr, -1);
    umf_pages_put(&pool->pages, ptr, bytes);
    umf_pages_settle(&pool->pages);
}

/* --- between magazines and jemalloc or the page cache --- */

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
static bool arena_is_ignored(jemalloc_pool_t *pool, uint32_t bin, void *const *objects, size_t n) {
    bool is_ignored = n && umf_pages_find(&pool->pages, objects[0]) == NULL;
    if (is_ignored) {
        umf_arenas_give(umf_jemalloc_sizes.size[bin], objects, n);
    }
    return is_ignored;
}

static size_t refill_from(jemalloc_pool_t *pool, const umf_arena_t *arena, refill_t *refill) {
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

static size_t refill_from_arena(jemalloc_pool_t *pool, refill_t *refill) {
    umf_arena_t *arena = umf_arenas_get(&pool->arenas);
    if (!arena) {
        refill->lacks_arena = true;
        return 0;
    }
    size_t got = refill_from(pool, arena, refill);
    umf_arena_put(arena);
    return got;
}

static size_t refill_from_pages(jemalloc_pool_t *pool, const refill_t *refill) {
    void *segments[BATCH];
    size_t got = umf_pages_take_many(&pool->pages, umf_jemalloc_sizes.size[refill->bin], segments,
                                     refill->n < BATCH ? refill->n : BATCH);
    for (size_t i = 0; i < got; i++) {
        refill->items[i].object = segments[i];
    }
    jemalloc_thread.is_short = got == 0;
    return got;
}

/* Before the provider is asked, free objects go back to the page cache: all that this thread and
 * the depots have, once for each span, because threads that fill and flush their caches in turn
 * would never let the pool grow; else most large ones. */
static void release_some(jemalloc_pool_t *pool, uint32_t bin) {
    size_t spans = umf_tracked_span_count(pool->tracked);
    if (atomic_exchange_explicit(&pool->flushed_at, spans, memory_order_relaxed) != spans) {
        umf_magazines_flush(&pool->magazines);
    } else {
        umf_magazines_release_large(&pool->magazines, bin, UMF_MAGAZINE_WAITING_MAX);
    }
}

/* Before a request fails, all free objects go back: each may keep a slab from being free. */
static void give_back(void *pool) {
    umf_magazines_trim(&((jemalloc_pool_t *)pool)->magazines);
}

static UMF_COLD bool reclaim(jemalloc_pool_t *pool, bool (*attempt)(void *pool, void *request),
                             void *request) {
    umf_shortage_t shortage = {
        .tracked = pool->tracked,
        .withheld = &pool->pages.withheld,
        .pool = pool,
        .give_back = give_back,
        .attempt = attempt,
        .request = request,
    };
    return umf_reclaim(&shortage);
}

static void *large_alloc(jemalloc_pool_t *pool, size_t size, size_t alignment);

/*
 * If jemalloc has no arena left, each small object gets pages of its own, which is wasteful but
 * works. Such a block is counted as an object when it is handed out, which happens at once, and as
 * a large block when it is freed. It has no state; its page record has its size.
 */
static size_t refill_without_arena(jemalloc_pool_t *pool, uint32_t bin, umf_item_t *items) {
    void *block = large_alloc(pool, umf_jemalloc_sizes.size[bin], UMF_PAGE_SIZE);
    if (!block) {
        return 0;
    }
    umf_pages_count(&pool->pages, block, -1);
    items[0] = (umf_item_t){.object = block};
    return 1;
}

static void release_all(jemalloc_pool_t *pool, uint32_t bin, const umf_item_t *items, size_t n);

/* true: objects, or `lacks_arena`. */
static bool refill_at_hand(jemalloc_pool_t *pool, refill_t *refill) {
    jemalloc_thread.is_short = false;
    refill->lacks_arena = false;
    refill->got = refill->bin < umf_jemalloc_sizes.slab_bins ? refill_from_arena(pool, refill)
                                                             : refill_from_pages(pool, refill);
    return refill->got || refill->lacks_arena;
}

/* Refills, and grows if there are no pages at hand. false: there is no memory. */
static bool refill_or_grow(void *self, void *request) {
    jemalloc_pool_t *pool = self;
    refill_t *refill = request;
    size_t need = refill->bin < umf_jemalloc_sizes.slab_bins
                      ? umf_jemalloc_sizes.slab_size[refill->bin]
                      : umf_jemalloc_sizes.size[refill->bin];
    bool is_done;
    while (!(is_done = refill_at_hand(pool, refill)) && jemalloc_thread.is_short &&
           umf_pages_grow(&pool->pages, need, UMF_PAGE_SIZE) == UMF_RESULT_SUCCESS) {
    }
    return is_done;
}

/* In order of cost: what is at hand, what this thread and the depots cache, the provider, all
 * caches. */
static bool refill_below(jemalloc_pool_t *pool, refill_t *refill) {
    if (refill_at_hand(pool, refill)) {
        return true;
    }
    release_some(pool, refill->bin);
    return refill_or_grow(pool, refill) || reclaim(pool, refill_or_grow, refill);
}

static size_t jemalloc_refill(void *self, uint32_t bin, umf_item_t *items, size_t n) {
    jemalloc_pool_t *pool = self;
    refill_t refill = {.bin = bin, .items = items, .n = n};
    if (refill_below(pool, &refill) && refill.lacks_arena) {
        return refill_without_arena(pool, bin, items);
    }
    size_t marked = mark(pool, bin, items, refill.got);
    if (umf_unlikely(marked < refill.got)) {
        release_all(pool, bin, items + marked, refill.got - marked);
    }
    if (!marked) {
        jemalloc_thread.last_error = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return marked;
}

/* Clears the states of objects. Objects that were handed out move to the front; returns how many.
 * The others were freed twice at the same moment. */
static size_t unmark_all(jemalloc_pool_t *pool, umf_item_t *items, size_t n) {
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

static void release_batch(jemalloc_pool_t *pool, uint32_t bin, void *const *objects, size_t n) {
    if (bin < umf_jemalloc_sizes.slab_bins) {
        umf_arenas_give(umf_jemalloc_sizes.size[bin], objects, n);
    } else {
        umf_pages_put_many(&pool->pages, umf_jemalloc_sizes.size[bin], objects, n);
    }
}

static void release_all(jemalloc_pool_t *pool, uint32_t bin, const umf_item_t *items, size_t n) {
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
static void jemalloc_flush(void *self, uint32_t bin, umf_item_t *items, size_t n) {
    jemalloc_pool_t *pool = self;
    n = unmark_all(pool, items, n);
    release_all(pool, bin, items, n);
    umf_pages_settle(&pool->pages);
}

/* jemalloc keeps no free extents. So only the page cache decays. */
static bool jemalloc_decay(void *pool, bool is_new) {
    return umf_pages_decay(&((jemalloc_pool_t *)pool)->pages, is_new);
}

static const umf_magazine_ops_t jemalloc_magazine_ops = {
    .refill = jemalloc_refill,
    .flush = jemalloc_flush,
    .decay_pass = jemalloc_decay,
};

/* --- blocks without bin --- */

typedef struct block_t {
    size_t bytes, alignment;
    void *ptr;
} block_t;

static bool block_alloc(void *self, void *request) {
    block_t *block = request;
    block->ptr = umf_pages_alloc(&((jemalloc_pool_t *)self)->pages, block->bytes, block->alignment);
    return block->ptr != NULL;
}

static UMF_COLD void *large_alloc_slow(jemalloc_pool_t *pool, size_t bytes, size_t alignment) {
    block_t block = {.bytes = bytes, .alignment = alignment};
    release_some(pool, UMF_MAGAZINE_EXCEPT_NONE);
    return block_alloc(pool, &block) || reclaim(pool, block_alloc, &block) ? block.ptr : NULL;
}

static __attribute__((noinline)) void *large_alloc(jemalloc_pool_t *pool, size_t size,
                                                   size_t alignment) {
    size_t bytes;
    void *ptr;
    if (!umf_round_up(size ? size : 1, UMF_PAGE_SIZE, &bytes) ||
        bytes >> UMF_PAGE_SHIFT > UINT32_MAX) {
        return fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    ptr = umf_pages_take(&pool->pages, bytes, alignment);
    if (!ptr && !(ptr = large_alloc_slow(pool, bytes, alignment))) {
        return fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    block_init(pool, ptr, bytes);
    return ptr;
}

static UMF_COLD umf_result_t refuse(const jemalloc_pool_t *pool, const void *ptr) {
    UMF_LOG_ERROR("pool %s: %p is not the start of a live allocation: it is inside one, was freed "
                  "already, or was never allocated",
                  pool->name, ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* If several threads free the same block, the exchange lets one pass. */
static __attribute__((noinline)) umf_result_t large_free(jemalloc_pool_t *pool, void *ptr,
                                                         page_t *page) {
    uint32_t pages = 0;
    if ((uintptr_t)ptr % UMF_PAGE_SIZE == 0) {
        pages = __atomic_exchange_n(&page->own, 0, __ATOMIC_ACQ_REL);
    }
    if (pages == 0) {
        return refuse(pool, ptr);
    }
    block_release(pool, ptr, (size_t)pages << UMF_PAGE_SHIFT);
    umf_magazines_decay(&pool->magazines);
    return UMF_RESULT_SUCCESS;
}

/* Adds the free pages behind a block. false: the block stays as it is. */
static bool large_grow(jemalloc_pool_t *pool, void *ptr, page_t *page, size_t old, size_t size) {
    size_t bytes;
    if (!umf_round_up(size, UMF_PAGE_SIZE, &bytes) || bytes >> UMF_PAGE_SHIFT > UINT32_MAX ||
        umf_pages_extend(&pool->pages, ptr, old, bytes) != UMF_RESULT_SUCCESS) {
        return false;
    }
    block_set_pages(page, bytes);
    return true;
}

/* Frees the tail of a block in place. false: the block stays as it is. */
static bool large_shrink(jemalloc_pool_t *pool, void *ptr, page_t *page, size_t old, size_t size) {
    size_t bytes = umf_align_up(size, UMF_PAGE_SIZE);
    if (umf_pages_split(&pool->pages, ptr, old, bytes) != UMF_RESULT_SUCCESS) {
        return false;
    }
    block_set_pages(page, bytes);
    umf_pages_put(&pool->pages, (char *)ptr + bytes, old - bytes);
    return true;
}

/* --- free: hot --- */

static __attribute__((noinline)) umf_result_t free_slow(jemalloc_pool_t *pool, void *ptr,
                                                        page_t *page, uint8_t *state) {
    if (!state || umf_state(state) == UMF_STATE_NONE) { /* no object of a bin: perhaps a block */
        return large_free(pool, ptr, page);
    }
    if (umf_state(state) != UMF_STATE_LIVE) {
        return refuse(pool, ptr);
    }
    umf_state_set(state, UMF_STATE_FREE);
    umf_magazine_push_slow(&pool->magazines, page_kind(page) - 1, (umf_item_t){ptr, state});
    return UMF_RESULT_SUCCESS;
}

static inline bool try_free_in(const jemalloc_pool_t *pool, void *ptr, const page_t *page,
                               uint8_t *state) {
    return umf_likely(state != NULL) &&
           umf_likely(umf_magazine_try_free(&pool->magazines,
                                            umf_magazine_offset(page_kind(page) - 1), ptr, state));
}

static inline umf_result_t free_in(jemalloc_pool_t *pool, void *ptr, const umf_pages_span_t *span,
                                   size_t offset) {
    page_t *page = page_of(span, offset);
    uint8_t *state = state_of(page, offset);
    return umf_likely(try_free_in(pool, ptr, page, state)) ? UMF_RESULT_SUCCESS
                                                           : free_slow(pool, ptr, page, state);
}

static umf_result_t jemalloc_free_at(void *self, void *ptr, umf_map_entry_t entry) {
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    return free_in(self, ptr, span->cookie, (uintptr_t)ptr - span->base);
}

static bool jemalloc_try_free(void *self, void *ptr, umf_map_entry_t entry) {
    const umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    size_t offset = (uintptr_t)ptr - span->base;
    const page_t *page = page_of(span->cookie, offset);
    return try_free_in(self, ptr, page, state_of(page, offset));
}

static umf_result_t jemalloc_free(void *self, void *ptr) {
    jemalloc_pool_t *pool = self;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    const umf_span_t *span = umf_tracked_find(pool->tracked, ptr);
    if (!span) {
        return refuse(pool, ptr);
    }
    return free_in(pool, ptr, span->cookie, (uintptr_t)ptr - span->base);
}

/* --- allocate --- */

/* Hot. */
static void *jemalloc_malloc(void *self, size_t size) {
    jemalloc_pool_t *pool = self;
    if (umf_unlikely(size > BIN_LARGEST)) {
        return large_alloc(pool, size, UMF_PAGE_SIZE);
    }
    return umf_magazine_pop(&pool->magazines, umf_jemalloc_bin_of(size));
}

/* An object is aligned to the largest power of two that divides its size, up to a page. */
static void *jemalloc_aligned_malloc(void *self, size_t size, size_t alignment) {
    jemalloc_pool_t *pool = self;
    if (alignment != 0 && !umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("pool %s: alignment %zu is not a power of two", pool->name, alignment);
        return fail(UMF_RESULT_ERROR_INVALID_ALIGNMENT);
    }
    if (size > BIN_LARGEST || alignment > UMF_PAGE_SIZE) {
        return large_alloc(pool, size, alignment > UMF_PAGE_SIZE ? alignment : UMF_PAGE_SIZE);
    }
    uint32_t bin = umf_jemalloc_bin_of(size);
    while (alignment && umf_jemalloc_sizes.size[bin] & (alignment - 1)) {
        bin++;
    }
    return umf_magazine_pop(&pool->magazines, bin);
}

static void *jemalloc_calloc(void *self, size_t num, size_t size) {
    size_t bytes;
    if (!umf_mul(num, size, &bytes)) {
        return fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    void *ptr = jemalloc_malloc(self, bytes);
    if (!ptr) {
        return NULL;
    }
    umf_result_t result = umf_content_zero(&((jemalloc_pool_t *)self)->content, ptr, bytes);
    if (result != UMF_RESULT_SUCCESS) {
        jemalloc_free(self, ptr);
        return fail(result);
    }
    return ptr;
}

/* The usable size of a live allocation, and the record of the page in which it starts. 0: `ptr` is
 * none. */
static size_t usable_size(jemalloc_pool_t *pool, const void *ptr, page_t **page) {
    const umf_span_t *span = umf_tracked_find(pool->tracked, ptr);
    if (!span) {
        return 0;
    }
    size_t offset = (uintptr_t)ptr - span->base;
    *page = page_of(span->cookie, offset);
    const uint8_t *state = state_of(*page, offset);
    if (state && umf_state(state) == UMF_STATE_LIVE) {
        return umf_jemalloc_sizes.size[page_kind(*page) - 1];
    }
    return offset % UMF_PAGE_SIZE ? 0 : (size_t)block_pages(*page) << UMF_PAGE_SHIFT;
}

static umf_result_t jemalloc_usable_size(void *self, const void *ptr, size_t *size) {
    if (!size) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    page_t *page;
    size_t room = ptr ? usable_size(self, ptr, &page) : 0;
    if (ptr && !room) {
        return refuse(self, ptr);
    }
    *size = room;
    return UMF_RESULT_SUCCESS;
}

/* Can the block stay where it is? */
static bool fits_in_place(jemalloc_pool_t *pool, void *ptr, page_t *page, size_t old, size_t size) {
    if (old <= BIN_LARGEST) { /* an object has one size: it stays unless half would be wasted */
        return size <= old && size > old / 2;
    }
    if (size > old) {
        return large_grow(pool, ptr, page, old, size);
    }
    return size > BIN_LARGEST &&
           (old - size < UMF_PAGE_SIZE || large_shrink(pool, ptr, page, old, size));
}

static void *move(jemalloc_pool_t *pool, void *ptr, size_t old, size_t size) {
    void *moved = jemalloc_malloc(pool, size);
    if (!moved) {
        return NULL;
    }
    umf_result_t result = umf_content_copy(&pool->content, moved, ptr, old < size ? old : size);
    jemalloc_free(pool, result == UMF_RESULT_SUCCESS ? ptr : moved);
    return result == UMF_RESULT_SUCCESS ? moved : fail(result);
}

static void *jemalloc_realloc(void *self, void *ptr, size_t size) {
    if (!ptr) {
        return jemalloc_malloc(self, size);
    }
    if (size == 0) {
        return fail(jemalloc_free(self, ptr));
    }
    page_t *page;
    size_t old = usable_size(self, ptr, &page);
    if (!old) {
        return fail(refuse(self, ptr));
    }
    if (fits_in_place(self, ptr, page, old, size)) {
        return ptr;
    }
    return move(self, ptr, old, size);
}

/* --- create and destroy --- */

/* The public header asks for a provider that can split, although the page cache divides spans
 * without it. */
static umf_result_t check_split(umf_memory_provider_handle_t provider, size_t page) {
    if (umf_provider_can_split(provider, page) != UMF_RESULT_ERROR_NOT_SUPPORTED) {
        return UMF_RESULT_SUCCESS;
    }
    const char *name = NULL;
    umfMemoryProviderGetName(provider, &name);
    UMF_LOG_ERROR(
        "provider %s cannot split allocations, a jemalloc pool needs that; use a disjoint "
        "or proxy pool",
        name ? name : "?");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static umf_result_t check_provider(umf_memory_provider_handle_t provider, size_t *page) {
    umf_result_t result = umf_provider_page_size(provider, page);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("the provider does not tell its smallest page: %s", umfResultName(result));
        return result;
    }
    if (*page > SIZE_MAX / 4) {
        UMF_LOG_ERROR("the provider's smallest page is %zu bytes", *page);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return check_split(provider, *page);
}

static umf_result_t check_params(const umf_jemalloc_pool_params_t *params) {
    if (params->num_arenas > JEMALLOC_ARENAS_MAX) {
        UMF_LOG_ERROR("%zu arenas wanted, jemalloc has at most %d", params->num_arenas,
                      JEMALLOC_ARENAS_MAX);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_jemalloc_sizes_start();
}

static umf_result_t pool_build(jemalloc_pool_t *pool, const umf_jemalloc_pool_params_t *params,
                               umf_memory_provider_handle_t provider, size_t page) {
    umf_result_t result = umf_tracked_acquire(provider, &pool->tracked);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_magazines_init(&pool->magazines, umf_tracked_magazine_index(pool->tracked), pool,
                                &jemalloc_magazine_ops, umf_jemalloc_sizes.capacity,
                                umf_jemalloc_sizes.bins, DEPOT_BATCHES);
    if (result != UMF_RESULT_SUCCESS) {
        umf_tracked_release(pool->tracked);
        return result;
    }
    pool->magazines.bytes_max = params->thread_cache;
    umf_content_init(&pool->content, pool->tracked);
    umf_pages_init(&pool->pages, pool->tracked, page, sizeof(page_t), states_drop);
    umf_lock_init(&pool->lock, UMF_RANK_ARENA);
    pool->hooks = jemalloc_hooks;
    memcpy(pool->name, params->name, sizeof(pool->name));
    umf_arenas_init(&pool->arenas, &pool->lock, &pool->hooks, pool->name,
                    params->num_arenas ? (uint32_t)params->num_arenas
                                       : umf_jemalloc_sizes.default_arenas);
    return UMF_RESULT_SUCCESS;
}

/* Nothing is taken from the provider or from jemalloc before the first allocation. */
static umf_result_t jemalloc_initialize(umf_memory_provider_handle_t provider, const void *params,
                                        void **self) {
    const umf_jemalloc_pool_params_t *request =
        umf_params_or_defaults(&umf_jemalloc_pool_params_kind, params, "umfPoolCreate");
    if (!request) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t page = 0;
    if (!provider || !self) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = check_params(request);
    if (result == UMF_RESULT_SUCCESS) {
        result = check_provider(provider, &page);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    jemalloc_pool_t *pool = umf_meta_alloc(sizeof(*pool));
    if (!pool) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = pool_build(pool, request, provider, page);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(pool, sizeof(*pool));
        return result;
    }
    *self = pool;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t jemalloc_finalize(void *self) {
    jemalloc_pool_t *pool = self;
    umf_magazines_fini(&pool->magazines); /* waits for ending threads */
    pool->is_closing = true;
    bool is_unused = umf_arenas_fini(&pool->arenas);
    umf_result_t result = umf_pages_fini(&pool->pages);
    umf_tracked_release(pool->tracked);
    umf_lock_destroy(&pool->lock);
    if (is_unused) { /* otherwise jemalloc may still call the hooks, which are in the object */
        umf_meta_free(pool, sizeof(*pool));
    }
    return result;
}

/* --- the rest of the table --- */

static umf_result_t jemalloc_last_allocation_error(void *self) {
    (void)self;
    return (umf_result_t)jemalloc_thread.last_error;
}

UMF_POOL_GET_NAME(jemalloc, jemalloc_pool_t, name, umf_jemalloc_pool_params)

static umf_result_t jemalloc_trim(void *self, size_t keep) {
    (void)keep;
    jemalloc_pool_t *pool = self;
    umf_magazines_trim(&pool->magazines);
    umf_arenas_purge(&pool->arenas);
    umf_pages_trim(&pool->pages);
    return UMF_RESULT_SUCCESS;
}

/* Without arenas fewer blocks than none may be counted, see refill_without_arena. */
static size_t jemalloc_alloc_count(void *self) {
    jemalloc_pool_t *pool = self;
    int64_t count = (int64_t)umf_magazines_live(&pool->magazines) + umf_pages_counted(&pool->pages);
    return count > 0 ? (size_t)count : 0;
}

static size_t jemalloc_thread_cache(void *self) {
    return umf_magazines_bytes(&((jemalloc_pool_t *)self)->magazines);
}

static const umf_memory_pool_ops_t jemalloc_ops = {
    UMF_POOL_OPS(jemalloc),
    .get_name = jemalloc_get_name,
    .ext_trim_memory = jemalloc_trim,
};

static const umf_small_sizes_t *jemalloc_small(void *self) {
    (void)self;
    return &umf_jemalloc_sizes.small;
}

extern const umf_pool_fast_ops_t umf_jemalloc_pool_fast_ops;
static void jemalloc_tick(void *self) {
    umf_magazines_decay(&((jemalloc_pool_t *)self)->magazines);
}

static void jemalloc_walk(void *self, const umf_span_t *span, umf_walk_t *walk) {
    jemalloc_pool_t *pool = self;
    umf_pages_walk(&pool->pages, &pool->lock, span, walk);
}

const umf_pool_fast_ops_t umf_jemalloc_pool_fast_ops = {
    .free_at = jemalloc_free_at,
    .try_free = jemalloc_try_free,
    .alloc_count = jemalloc_alloc_count,
    .tick = jemalloc_tick,
    .thread_cache = jemalloc_thread_cache,
    .small = jemalloc_small,
    .walk = jemalloc_walk,
};

UMF_API_1_0 const umf_memory_pool_ops_t *umfJemallocPoolOps(void) {
    return &jemalloc_ops;
}

UMF_POOL_DESCRIPTOR(jemalloc, .ops = &jemalloc_ops,
                    .params_from_text = umf_jemalloc_pool_params_from_text,
                    .params_destroy = umf_jemalloc_pool_params_destroy,
                    .probe = umf_jemalloc_sizes_probe);
