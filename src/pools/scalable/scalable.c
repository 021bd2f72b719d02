/*
 * The scalable pool.
 *
 * Magazines (cache/magazine.h) serve objects of up to 128 KiB without entering anything else. Their
 * sizes are the size classes of oneTBB. Everything else comes from a memory pool of oneTBB
 * (pools/scalable/tbb.h),
 * which takes its memory from the provider through two hooks. Blocks so large that oneTBB would
 * pass each request on to the provider do not go through it: they are direct blocks, each a span.
 *
 * oneTBB trusts every pointer that it is given. Therefore each span has a record of where objects
 * start and which of them users own (pools/shared/starts.h). All other pointers (interior, foreign
 * or freed ones) are refused before oneTBB sees them.
 *
 * oneTBB has no call to empty the caches of one pool. But it empties them before it gives up when
 * the provider refuses memory. So trim asks oneTBB for more than any machine has, and the hook
 * refuses that. If nothing is in use, a fresh pool of oneTBB replaces the old one instead, which is
 * destroyed with all that it keeps.
 */
#include <umf/pools/pool_scalable.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "cache/magazine.h"
#include "cache/withheld.h"
#include "core/reclaim.h"
#include "ctl/params.h"
#include "pools/scalable/purge.h"
#include "pools/scalable/tbb.h"
#include "pools/scalable/walk.h"
#include "pools/shared/kind.h"
#include "pools/shared/settings.h"
#include "pools/shared/starts.h"
#include "system/os.h"

/* Sizes and alignments up to these limits cannot overflow when oneTBB adds to them and rounds up.
 * Larger granularities are refused when a pool is created, larger requests when they are made. */
#define GRANULARITY_LIMIT (SIZE_MAX / 4)
#define SIZE_LIMIT ((size_t)1 << 57)
#define SIZE_IMPOSSIBLE (SIZE_MAX >> 8)

#define GRANULE_SHIFT 4 /* sizes up to BIN_SMALL_LARGEST are multiples of 16 */
#define GRANULE ((size_t)1 << GRANULE_SHIFT)

#define BIN_SMALL_LARGEST UMF_SCALABLE_SMALL_LARGEST
/* A thread caches about so many bytes of each size, but at least so many objects. */
#define BIN_BYTES ((size_t)64 << 10)
#define BIN_OBJECTS_MIN 16
#define ALIGNMENT_IN_BINS 1024 /* blocks with a larger alignment have no bin */

#define BIN_LARGEST ((size_t)128 << 10)

/* oneTBB keeps no free blocks of this size or more, header included. */
#define DIRECT_SMALLEST ((size_t)64 << 20)

static const uint16_t small_sizes[] = {16,   32,   48,   64,   80,
                                       96,   112,  128,  160,  192,
                                       224,  256,  320,  384,  448,
                                       512,  640,  768,  896,  1024,
                                       1792, 2688, 4032, 5376, BIN_SMALL_LARGEST};
#define BINS_SMALL UMF_COUNT_OF(small_sizes)

/* Larger objects come in steps of 8 KiB, which include oneTBB's header. */
#define LARGE_STEP_SHIFT 13
#define LARGE_HEADER ((size_t)256)
#define LARGE_STEPS 17 /* 17 steps have room for BIN_LARGEST */
#define BINS (BINS_SMALL + LARGE_STEPS - 1)
_Static_assert(BINS <= UMF_MAGAZINE_MAX_BINS, "too many bins");
#define BIN_NONE BINS /* blocks that are larger than all bins */

#define UMF_PARAMS umf_scalable_pool_params
#define UMF_PARAMS_TABLE "pools/scalable/scalable_params.def"
typedef struct umf_scalable_pool_params_t {
#include "ctl/params_members.h"
} umf_scalable_pool_params_t;
#include "ctl/params_define.h"

/* The record of a page. All its objects have one size, because oneTBB's slabs are larger. */
typedef umf_starts_t page_t;

/*
 * The record of a span, which points to it. It has a record for each page, counted from the start
 * of the span. A direct block has one for all of it.
 *
 * If two threads free one block at once, the second may look at the record after the first has
 * given the span back. So the memory of the record stays mapped.
 */
typedef struct record_t {
    size_t size;          /* of this record in bytes */
    _Atomic size_t made;  /* pages with states */
    _Atomic bool is_lost; /* nobody uses the span, but the provider has refused it */
    uint8_t page_shift;   /* UMF_STARTS_PAGE_SHIFT or DIRECT_SHIFT */
    uint8_t direct;       /* the state of a direct block */
    page_t pages[];
} record_t;

#define DIRECT_SHIFT 63 /* every address of the span has page 0 */

/* What a direct block is. All of them share these records: to which of them a span points is the
 * state of its block. No object starts in page 1, which is that of an address below the span: if
 * its descriptor was reused since a thread found it. Immutable after tables_init */
typedef union direct_record_t {
    record_t record;
    char with_pages[sizeof(record_t) + 2 * sizeof(page_t)];
} direct_record_t;
static direct_record_t direct_live, direct_freed;
static direct_record_t direct_lost; /* freed, but the provider has refused it */

typedef struct scalable_pool_t {
    umf_magazines_t magazines;
    const umf_tbb_t *tbb;
    _Atomic(void *) below; /* oneTBB's pool. Used between umf_tbb_enter and leave, changed while all
                              are stopped */
    umf_tracked_provider_t *tracked;
    /* Objects and blocks that oneTBB has handed out. Sync: as `below`. Memory that goes in is
     * released and memory that comes out is acquired: oneTBB keeps that order inside, but neither
     * the language nor a tool can see it. */
    _Atomic int64_t out_count;
    _Atomic size_t direct_count;   /* live direct blocks */
    _Atomic bool has_written;      /* the CPU can write to the provider's memory, as was tried */
    _Atomic uint32_t takes;        /* how often oneTBB was asked for memory */
    _Atomic uint32_t takes_seen;   /* at the last decay pass */
    _Atomic bool has_given;        /* oneTBB got memory back since it was last trimmed */
    _Atomic(const void *) trimmer; /* the thread that trims: the hook gives it no memory. Cleared
                                      before it leaves oneTBB */
    umf_withheld_t withheld; /* what the trimmer has taken, and memory on its way out of oneTBB */
    umf_lock_t lock;         /* of the records */
    umf_tbb_policy_t policy; /* Immutable after create, as the next */
    size_t granularity;      /* of requests to the provider; oneTBB knows a smaller one */
    char name[UMF_NAME_MAX];
} scalable_pool_t;

static struct {
    umf_magazine_capacity_t capacity[BINS];
    uint32_t size[BINS];
    uint8_t of_size[BIN_SMALL_LARGEST / GRANULE + 1]; /* small bin by granules */
    umf_small_sizes_t small;
    umf_starts_sizes_t starts; /* by bin + 1 */
} bins;                        /* Immutable after tables_init */

/* What a thread has, in one word: libraries have little room for thread-local memory. */
static __thread struct {
    /* An umf_result_t. It is set to UNKNOWN before a call of oneTBB that may fail. The hook changes
     * it if there is no memory. */
    uint32_t last_error : 31;
    uint32_t takes_slabs : 1; /* it takes objects from slabs */
} of_thread;

/* An identity of the calling thread. */
static const void *this_thread(void) {
    return &of_thread;
}

static void *fail(void) {
    of_thread.last_error = UMF_RESULT_ERROR_UNKNOWN;
    return NULL;
}

/* --- sizes --- */

static void bins_init(void) {
    uint8_t bin = 0;
    for (size_t i = 0; i < UMF_COUNT_OF(bins.of_size); i++) {
        bin = (uint8_t)(bin + (small_sizes[bin] < i * GRANULE));
        bins.of_size[i] = bin;
    }
    for (size_t i = 1; i < UMF_COUNT_OF(bins.small.magazine); i++) {
        bins.small.magazine[i] = umf_magazine_offset(bins.of_size[(i + GRANULE - 1) / GRANULE]);
    }
    for (size_t i = 0; i < BINS_SMALL; i++) {
        bins.size[i] = small_sizes[i];
        bins.capacity[i] = umf_magazine_capacity(BIN_BYTES, small_sizes[i], BIN_OBJECTS_MIN);
    }
    for (size_t steps = 2; steps <= LARGE_STEPS; steps++) {
        size_t size = (steps << LARGE_STEP_SHIFT) - LARGE_HEADER;
        bins.size[BINS_SMALL + steps - 2] = (uint32_t)size;
        bins.capacity[BINS_SMALL + steps - 2] = umf_magazine_capacity_large(size);
    }
    for (uint32_t i = 0; i <= BINS; i++) {
        umf_starts_set_size(&bins.starts, i + 1, i < BINS ? bins.size[i] : BIN_LARGEST);
    }
}

/* The bin of a size up to BIN_SMALL_LARGEST. */
static inline uint32_t bin_of(size_t size) {
    return bins.of_size[(size + GRANULE - 1) >> GRANULE_SHIFT];
}

/* The bin of a larger size up to BIN_LARGEST. */
static inline uint32_t large_bin_of(size_t size) {
    size_t step = (size_t)1 << LARGE_STEP_SHIFT;
    return (uint32_t)(BINS_SMALL + ((size + LARGE_HEADER + step - 1) >> LARGE_STEP_SHIFT) - 2);
}

/* --- records --- */

/* The page leads to the state of the block, as the pages of other records do. */
static void direct_init(record_t *record, uint8_t state) {
    record->page_shift = DIRECT_SHIFT;
    record->direct = state;
    record->pages[0] = (page_t){.states = &record->direct, .kind = BIN_NONE + 1};
}

static void tables_init(void) {
    bins_init();
    direct_init(&direct_live.record, UMF_STATE_LIVE);
    direct_init(&direct_freed.record, UMF_STATE_NONE);
    direct_init(&direct_lost.record, UMF_STATE_NONE);
}

static record_t *record_make(size_t span_size) {
    size_t pages = (span_size >> UMF_STARTS_PAGE_SHIFT) + 1;
    size_t size = sizeof(record_t) + pages * sizeof(page_t);
    record_t *record = umf_meta_alloc_lasting(size);
    if (record) {
        record->size = size;
        record->page_shift = UMF_STARTS_PAGE_SHIFT;
    }
    return record;
}

static inline record_t *record_of(const umf_span_t *span) {
    return __atomic_load_n(&span->cookie, __ATOMIC_RELAXED);
}

static inline bool is_direct(const umf_span_t *span) {
    return record_of(span)->page_shift == DIRECT_SHIFT;
}

/* false: it is not `from`. */
static bool direct_change(umf_span_t *span, direct_record_t *from, direct_record_t *to) {
    void *record = from;
    return __atomic_compare_exchange_n(&span->cookie, &record, to, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

/* The record of a span that is gone. */
static void record_put(record_t *record) {
    if (record->page_shift != DIRECT_SHIFT) {
        umf_starts_drop(record->pages, atomic_load_explicit(&record->made, memory_order_relaxed));
        umf_meta_free_lasting(record, record->size);
    }
}

static inline page_t *page_of(const umf_span_t *span, const void *ptr) {
    record_t *record = record_of(span);
    return &record->pages[((uintptr_t)ptr - span->base) >> record->page_shift];
}

/* Objects start at offsets in pages that are counted from the start of the span. */
static inline size_t offset_of(const umf_span_t *span, const void *ptr) {
    return ((uintptr_t)ptr - span->base) % UMF_STARTS_PAGE;
}

/* The state of the object at `ptr`. NULL: no object can start there. In a direct block, one may be
 * found at the start of every page, so the caller looks at the address (is_start). */
static inline uint8_t *state_of(const page_t *page, const umf_span_t *span, const void *ptr) {
    return umf_starts_find(page, &bins.starts, offset_of(span, ptr));
}

static bool is_start(const umf_span_t *span, const void *ptr) {
    return !is_direct(span) || (uintptr_t)ptr == span->base;
}

static inline uint32_t page_bin(const page_t *page) {
    return __atomic_load_n(&page->kind, __ATOMIC_RELAXED) - 1u;
}

static inline bool span_holds(const umf_span_t *span, const void *ptr) {
    return span && (uintptr_t)ptr - span->base < span->size;
}

/*
 * Gives states to objects that came from oneTBB. Returns how many of the first ones have states;
 * for the next one there is no memory. The acquire here pairs with the release in `unmark`: what
 * the last owner of the memory did happened before.
 */
static size_t mark(scalable_pool_t *pool, uint32_t bin, umf_item_t *items, size_t n) {
    const umf_span_t *span = NULL;
    for (size_t i = 0; i < n; i++) {
        const void *object = items[i].object;
        if (!span_holds(span, object)) {
            span = umf_tracked_find(pool->tracked, object);
        }
        items[i].state =
            umf_starts_make(page_of(span, object), &bins.starts, bin + 1, offset_of(span, object),
                            &pool->lock, &record_of(span)->made);
        if (!items[i].state) {
            return i;
        }
        __atomic_exchange_n(items[i].state, UMF_STATE_FREE, __ATOMIC_ACQUIRE);
    }
    return n;
}

/* false: the object is not handed out. Of two frees at the same moment this is the second. */
static bool unmark(const umf_span_t *span, const void *object) {
    uint8_t *state = state_of(page_of(span, object), span, object);
    return state && __atomic_exchange_n(state, UMF_STATE_NONE, __ATOMIC_RELEASE) != UMF_STATE_NONE;
}

/* --- hooks: called by oneTBB --- */

static void *refuse_memory(void) {
    of_thread.last_error = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    return NULL;
}

static umf_result_t span_free(scalable_pool_t *pool, umf_span_t *span) {
    record_t *record = record_of(span);
    umf_result_t result = umf_tracked_free_for_reuse(pool->tracked, span);
    if (result == UMF_RESULT_SUCCESS) {
        record_put(record);
    }
    return result;
}

/* The same for a span that nobody uses. */
static umf_result_t span_return(scalable_pool_t *pool, umf_span_t *span) {
    umf_result_t result = span_free(pool, span);
    if (result != UMF_RESULT_SUCCESS) {
        if (is_direct(span)) {
            __atomic_store_n(&span->cookie, &direct_lost, __ATOMIC_RELEASE);
        } else {
            atomic_store(&record_of(span)->is_lost, true);
        }
    }
    return result;
}

/* Returns it for the first time. */
static umf_result_t span_give(scalable_pool_t *pool, umf_span_t *span) {
    size_t size = span->size;
    void *ptr = (void *)span->base;
    umf_result_t result = span_return(pool, span);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("pool %s: the provider does not take back %zu bytes at %p (%s); they are "
                      "offered to it again on trim and at the end of the pool",
                      pool->name, size, ptr, umfResultName(result));
    }
    return result;
}

static int hook_free(intptr_t id, void *ptr, size_t size) {
    (void)size;
    scalable_pool_t *pool = (scalable_pool_t *)id;
    /* Pairs with the release in `give_back`: all users of the span are done with it. */
    atomic_load_explicit(&pool->out_count, memory_order_acquire);
    umf_span_t *span = umf_tracked_find(pool->tracked, ptr);
    return span && span_give(pool, span) == UMF_RESULT_SUCCESS ? 0 : -1;
}

/* oneTBB writes its data into the memory and would crash if the CPU cannot. */
static bool is_writable(scalable_pool_t *pool, void *ptr) {
    if (umf_os_probe_write(ptr) != EFAULT) {
        atomic_store_explicit(&pool->has_written, true, memory_order_relaxed);
        return true;
    }
    UMF_LOG_ERROR("pool %s: the CPU cannot write to memory of the provider at %p, and a scalable "
                  "pool keeps its data there; use a disjoint, jemalloc or proxy pool",
                  pool->name, ptr);
    return false;
}

/* `record` may be NULL: there is no memory for it. `tries_write`: the CPU must be able to write. */
static void *span_take(scalable_pool_t *pool, size_t size, record_t *record, bool tries_write) {
    void *ptr = NULL;
    if (!record) {
        return refuse_memory();
    }
    if (umf_tracked_alloc(pool->tracked, size, 0, 0, record, &ptr) != UMF_RESULT_SUCCESS || !ptr) {
        record_put(record);
        return refuse_memory();
    }
    if (tries_write && !is_writable(pool, ptr)) {
        span_give(pool, umf_tracked_find(pool->tracked, ptr));
        return NULL;
    }
    return ptr;
}

/* The limits of sizes and granularities exclude an overflow. */
static size_t in_granules(const scalable_pool_t *pool, size_t size) {
    size_t rest = size % pool->granularity;
    return rest ? size + pool->granularity - rest : size;
}

/* oneTBB uses a region for slabs up to its end, but of a region for larger objects only as much as
 * it has asked for, often little more than 1 MiB. So these become multiples of the granularity only
 * where that adds little. */
static size_t region_size(const scalable_pool_t *pool, size_t size) {
    size_t whole = in_granules(pool, size);
    return of_thread.takes_slabs || whole - size <= size / 4 ? whole : size;
}

static void *region_take(scalable_pool_t *pool, size_t size) {
    return span_take(pool, size, record_make(size), true);
}

static void *hook_alloc(intptr_t id, size_t *size) {
    scalable_pool_t *pool = (scalable_pool_t *)id;
    /* The trimmer asks for memory only so that oneTBB empties its caches. */
    if (atomic_load_explicit(&pool->trimmer, memory_order_relaxed) == this_thread()) {
        return NULL;
    }
    size_t least = *size;
    *size = region_size(pool, least);
    void *ptr = region_take(pool, *size);
    /* Between smaller regions a provider of limited size may have gaps that are no granule. */
    if (!ptr && *size > least && *size / 2 <= least &&
        of_thread.last_error == UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY) {
        *size = least;
        ptr = region_take(pool, least);
    }
    return ptr;
}

/* Only one of several trims gets the span. */
static bool note_lost(umf_span_t *span, void *found) {
    bool is_lost = is_direct(span) ? direct_change(span, &direct_lost, &direct_freed)
                                   : atomic_exchange(&record_of(span)->is_lost, false);
    if (is_lost) {
        *(umf_span_t **)found = span;
    }
    return !is_lost;
}

/* Offers spans to the provider again until it refuses one. */
static void spans_free(scalable_pool_t *pool, bool (*note)(umf_span_t *, void *)) {
    umf_span_t *span;
    do {
        span = NULL;
        umf_tracked_each_span(pool->tracked, note, &span);
    } while (span && span_return(pool, span) == UMF_RESULT_SUCCESS);
}

/* --- memory out of oneTBB --- */

/* The calling thread is inside oneTBB. */
static inline void *below_of(const scalable_pool_t *pool) {
    return atomic_load_explicit(&pool->below, memory_order_relaxed);
}

/* Returns oneTBB's error, 0 for none. */
static int below_create(scalable_pool_t *pool, void **below) {
    umf_tbb_enter();
    int error = pool->tbb->pool_create((intptr_t)pool, &pool->policy, below);
    umf_tbb_leave();
    return error;
}

static bool is_unused(scalable_pool_t *pool) {
    return atomic_load_explicit(&pool->out_count, memory_order_relaxed) == 0;
}

/* Replaces an unused pool of oneTBB by a fresh one and destroys it, which frees all its memory.
 * Several threads may do so at once: each destroys what it has replaced. false: the pool is in use.
 */
static bool renew(scalable_pool_t *pool) {
    void *spare;
    if (!is_unused(pool) || below_create(pool, &spare) != 0) {
        return false;
    }
    bool is_renewed = umf_tbb_stop() && is_unused(pool);
    if (is_renewed) {
        spare = atomic_exchange(&pool->below, spare);
    }
    umf_tbb_resume();
    umf_tbb_pool_destroy(pool->tbb, spare);
    return is_renewed;
}

/* Asks for the impossible, so that oneTBB empties its caches. The caller must be the trimmer. */
static void caches_empty(scalable_pool_t *pool) {
    pool->tbb->pool_malloc(below_of(pool), SIZE_IMPOSSIBLE);
}

/* Trims a pool that is in use. A second thread that trims at the same time does nothing. */
static void trim_used(scalable_pool_t *pool) {
    const void *none = NULL;
    umf_tbb_enter();
    if (atomic_compare_exchange_strong(&pool->trimmer, &none, this_thread())) {
        caches_empty(pool);
        umf_scalable_purge(&(umf_scalable_purge_t){pool->tbb, below_of(pool), pool->tracked});
        caches_empty(pool);
        atomic_store(&pool->trimmer, NULL);
    }
    umf_tbb_leave();
}

static bool keeps_all(const scalable_pool_t *pool) {
    return pool->policy.flags & UMF_TBB_KEEP_ALL_MEMORY;
}

/* Gives back what oneTBB does not need. `is_last`: for a request that fails otherwise. oneTBB has
 * emptied its caches for it, so a pool in use has no more. */
static void below_trim(scalable_pool_t *pool, bool is_last) {
    umf_withheld_part_t part;
    if (keeps_all(pool) || umf_tracked_span_count(pool->tracked) == 0) {
        return;
    }
    umf_withheld_begin(&pool->withheld, &part);
    if (!renew(pool) && !is_last) {
        trim_used(pool);
    }
    spans_free(pool, note_lost);
    umf_withheld_end(&part);
}

/* --- between magazines and oneTBB --- */

/* What is taken from oneTBB. */
typedef struct take_t {
    size_t size, alignment; /* alignment 0: none is needed */
    umf_item_t *items;
    size_t n, got;
} take_t;

static void *take_one(const scalable_pool_t *pool, const take_t *take) {
    void *below = below_of(pool);
    return take->alignment ? pool->tbb->pool_aligned_malloc(below, take->size, take->alignment)
                           : pool->tbb->pool_malloc(below, take->size);
}

/* Takes up to `n` objects. false: there is none. */
static bool take(void *self, void *request) {
    scalable_pool_t *pool = self;
    take_t *take = request;
    bool took_slabs =
        of_thread.takes_slabs; /* the provider of another pool may take from this one */
    of_thread.takes_slabs = take->size <= BIN_SMALL_LARGEST;
    atomic_fetch_add_explicit(&pool->takes, 1, memory_order_relaxed);
    umf_tbb_enter();
    for (take->got = 0; take->got < take->n; take->got++) {
        if ((take->items[take->got].object = take_one(pool, take)) == NULL) {
            break;
        }
    }
    atomic_fetch_add_explicit(&pool->out_count, (int64_t)take->got, memory_order_acquire);
    umf_tbb_leave();
    of_thread.takes_slabs = took_slabs;
    return take->got > 0;
}

/* All free objects go back to oneTBB, which can then cut others from their memory. */
static void give_back_all(void *self) {
    scalable_pool_t *pool = self;
    umf_magazines_trim(&pool->magazines);
    below_trim(pool, true);
}

static bool try_or_reclaim(scalable_pool_t *pool, bool (*attempt)(void *pool, void *request),
                           void *request) {
    umf_shortage_t shortage = {
        .tracked = pool->tracked,
        .withheld = &pool->withheld,
        .pool = pool,
        .give_back = give_back_all,
        .attempt = attempt,
        .request = request,
    };
    return umf_likely(attempt(pool, request)) || umf_reclaim(&shortage);
}

static void give_back(scalable_pool_t *pool, const umf_item_t *items, size_t n);

static UMF_COLD void no_states(scalable_pool_t *pool, const umf_item_t *items, size_t n) {
    give_back(pool, items, n);
    of_thread.last_error = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static size_t scalable_refill(void *arg, uint32_t bin, umf_item_t *items, size_t n) {
    scalable_pool_t *pool = arg;
    fail();
    /* Comes before oneTBB is entered: oneTBB may ask the hook for memory, and the hook cannot
     * release anything because it must not enter oneTBB again. */
    umf_magazines_release_large(&pool->magazines, bin, UMF_MAGAZINE_WAITING_MAX);
    take_t request = {.size = bins.size[bin], .items = items, .n = n};
    try_or_reclaim(pool, take, &request);
    size_t marked = mark(pool, bin, items, request.got);
    if (umf_unlikely(marked < request.got)) {
        no_states(pool, items + marked, request.got - marked);
    }
    return marked;
}

/* Clears the states of objects. Objects that were handed out move to the front; returns how many.
 * The others were freed twice at the same moment. */
static size_t unmark_all(scalable_pool_t *pool, umf_item_t *items, size_t n) {
    const umf_span_t *span = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        void *object = items[i].object;
        if (!span_holds(span, object)) {
            span = umf_tracked_find(pool->tracked, object);
        }
        if (span && unmark(span, object)) {
            items[kept++] = items[i];
        } else {
            UMF_LOG_ERROR("pool %s: %p was freed twice", pool->name, object);
        }
    }
    return kept;
}

static void give_back(scalable_pool_t *pool, const umf_item_t *items, size_t n) {
    int saved_errno = errno;
    if (!atomic_load_explicit(&pool->has_given, memory_order_relaxed)) {
        atomic_store_explicit(&pool->has_given, true, memory_order_relaxed);
    }
    umf_tbb_enter();
    atomic_fetch_sub_explicit(&pool->out_count, (int64_t)n, memory_order_release);
    for (size_t i = 0; i < n; i++) {
        pool->tbb->pool_free(below_of(pool), items[i].object);
    }
    umf_tbb_leave();
    errno = saved_errno;
}

/* All states are cleared before the first object is released: a span, and its states, may go as
 * soon as its last object is released. */
static void scalable_flush(void *arg, uint32_t bin, umf_item_t *items, size_t n) {
    (void)bin;
    give_back(arg, items, unmark_all(arg, items, n));
}

static void scalable_thread_begins(void *arg) {
    (void)arg;
    umf_tbb_thread_begins();
}

/* oneTBB does not tell for how long its memory has been free. So it is trimmed once no thread has
 * asked it for memory since the last pass. */
static void below_decay(scalable_pool_t *pool) {
    uint32_t takes = atomic_load_explicit(&pool->takes, memory_order_relaxed);
    bool is_idle =
        atomic_exchange_explicit(&pool->takes_seen, takes, memory_order_relaxed) == takes;
    if (is_idle && atomic_exchange_explicit(&pool->has_given, false, memory_order_relaxed)) {
        below_trim(pool, false);
    }
}

static bool scalable_decay(void *arg, bool is_new) {
    scalable_pool_t *pool = arg;
    if (is_new) {
        below_decay(pool);
        umf_provider_drop_reusable(pool->tracked, true);
    }
    return false;
}

static const umf_magazine_ops_t scalable_magazine_ops = {
    .refill = scalable_refill,
    .flush = scalable_flush,
    .decay_pass = scalable_decay,
    .thread_begins = scalable_thread_begins,
};

/* --- direct blocks --- */

typedef struct direct_t {
    size_t size;
    void *ptr;
} direct_t;

static bool take_direct(void *self, void *request) {
    scalable_pool_t *pool = self;
    direct_t *direct = request;
    direct->ptr = span_take(pool, direct->size, &direct_live.record,
                            !atomic_load_explicit(&pool->has_written, memory_order_relaxed));
    return direct->ptr != NULL;
}

static bool has_direct(const scalable_pool_t *pool, size_t size, size_t alignment) {
    return size >= DIRECT_SMALLEST && size >= pool->granularity && alignment == 0 &&
           !keeps_all(pool);
}

static void *direct_alloc(scalable_pool_t *pool, size_t size) {
    direct_t direct = {.size = in_granules(pool, size)};
    if (!try_or_reclaim(pool, take_direct, &direct)) {
        return NULL;
    }
    atomic_fetch_add_explicit(&pool->direct_count, 1, memory_order_relaxed);
    return direct.ptr;
}

/* Claims the direct block that begins at `ptr`. If several threads free it, the exchange lets one
 * pass. */
static bool direct_claim(const scalable_pool_t *pool, umf_span_t *span, const void *ptr) {
    const umf_span_set_t *set = umf_tracked_spans(pool->tracked);
    if (!umf_span_is_at(set, span, (uintptr_t)ptr) ||
        !direct_change(span, &direct_live, &direct_freed)) {
        return false;
    }
    bool is_it = umf_span_is_at(set, span, (uintptr_t)ptr);
    if (umf_unlikely(!is_it)) {
        /* The descriptor was reused for another block between the check and the exchange. */
        direct_change(span, &direct_freed, &direct_live);
    }
    return is_it;
}

static void direct_free(scalable_pool_t *pool, umf_span_t *span) {
    atomic_fetch_sub_explicit(&pool->direct_count, 1, memory_order_relaxed);
    span_give(pool, span);
}

/* --- blocks without bin --- */

/* Marks a block as live. NULL: there is no memory for its state, and the block is freed. */
static void *block_mark(scalable_pool_t *pool, umf_item_t *item) {
    if (umf_unlikely(mark(pool, BIN_NONE, item, 1) == 0)) {
        no_states(pool, item, 1);
        return NULL;
    }
    umf_state_set(item->state, UMF_STATE_LIVE);
    return item->object;
}

static void *block_alloc(scalable_pool_t *pool, size_t size, size_t alignment) {
    umf_item_t block = {0};
    take_t request = {.size = size, .alignment = alignment, .items = &block, .n = 1};
    return try_or_reclaim(pool, take, &request) ? block_mark(pool, &block) : NULL;
}

static UMF_COLD void *large_alloc(scalable_pool_t *pool, size_t size, size_t alignment) {
    fail();
    if (size > SIZE_LIMIT || alignment > SIZE_LIMIT) {
        umf_tell_refused("scalable", (umf_result_t)of_thread.last_error);
        return NULL;
    }
    umf_magazines_release_large(&pool->magazines, UMF_MAGAZINE_EXCEPT_NONE,
                                UMF_MAGAZINE_WAITING_MAX);
    if (has_direct(pool, size, alignment)) {
        return direct_alloc(pool, size);
    }
    /* A small aligned request takes a large block: a slab's page has objects of one size only. */
    return block_alloc(pool, size > BIN_SMALL_LARGEST ? size : BIN_SMALL_LARGEST + 1, alignment);
}

static UMF_COLD umf_result_t refuse(const scalable_pool_t *pool, const void *ptr) {
    UMF_LOG_ERROR("pool %s: %p is not the start of a live allocation: it is inside one, was freed "
                  "already, or was never allocated",
                  pool->name, ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* As direct_claim, for a block of oneTBB. */
static bool block_claim(uint8_t *state) {
    uint8_t live = UMF_STATE_LIVE;
    return __atomic_compare_exchange_n(state, &live, UMF_STATE_NONE, false, __ATOMIC_RELEASE,
                                       __ATOMIC_RELAXED);
}

/* `state` tells what the block is, not the span: if another thread frees the block as well, the
 * span may be gone. */
static __attribute__((noinline)) umf_result_t block_free(scalable_pool_t *pool, umf_span_t *span,
                                                         void *ptr, uint8_t *state) {
    bool is_direct_one = state == &direct_live.record.direct;
    if (umf_unlikely(!(is_direct_one ? direct_claim(pool, span, ptr) : block_claim(state)))) {
        return refuse(pool, ptr);
    }
    if (is_direct_one) {
        direct_free(pool, span);
    } else {
        give_back(pool, &(umf_item_t){.object = ptr}, 1);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- free: hot --- */

static UMF_COLD umf_result_t free_slow(scalable_pool_t *pool, uint32_t bin, void *ptr,
                                       uint8_t *state) {
    if (umf_state(state) != UMF_STATE_LIVE) {
        return refuse(pool, ptr);
    }
    umf_state_set(state, UMF_STATE_FREE);
    umf_magazine_push_slow(&pool->magazines, bin, (umf_item_t){ptr, state});
    return UMF_RESULT_SUCCESS;
}

static inline umf_result_t free_in(scalable_pool_t *pool, void *ptr, umf_span_t *span) {
    const page_t *page = page_of(span, ptr);
    uint8_t *state = state_of(page, span, ptr);
    if (umf_unlikely(!state)) {
        return refuse(pool, ptr);
    }
    uint32_t bin = page_bin(page);
    if (umf_unlikely(bin == BIN_NONE)) {
        return block_free(pool, span, ptr, state);
    }
    return umf_likely(umf_magazine_try_free(&pool->magazines, umf_magazine_offset(bin), ptr, state))
               ? UMF_RESULT_SUCCESS
               : free_slow(pool, bin, ptr, state);
}

static umf_result_t scalable_free_at(void *arg, void *ptr, umf_map_entry_t entry) {
    return free_in(arg, ptr, umf_span_at(umf_map_entry_span(entry)));
}

static umf_result_t scalable_free(void *arg, void *ptr) {
    scalable_pool_t *pool = arg;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    umf_span_t *span = umf_tracked_find(pool->tracked, ptr);
    return span ? free_in(pool, ptr, span) : refuse(pool, ptr);
}

/* --- allocate --- */

/* Hot. */
static void *scalable_malloc(void *arg, size_t size) {
    scalable_pool_t *pool = arg;
    if (umf_unlikely(size > BIN_SMALL_LARGEST)) {
        return size > BIN_LARGEST ? large_alloc(pool, size, 0)
                                  : umf_magazine_pop(&pool->magazines, large_bin_of(size));
    }
    return umf_magazine_pop(&pool->magazines, bin_of(size));
}

/* In oneTBB's slabs an object is aligned to the largest power of two that divides its size. oneTBB
 * does not promise that, so it is checked. */
static void *aligned_from_bin(scalable_pool_t *pool, size_t size, size_t alignment) {
    uint32_t bin = bin_of(size);
    while (bin < BINS_SMALL && small_sizes[bin] & (alignment - 1)) {
        bin++;
    }
    if (bin == BINS_SMALL) {
        return large_alloc(pool, size, alignment);
    }
    void *ptr = umf_magazine_pop(&pool->magazines, bin);
    if (umf_unlikely((uintptr_t)ptr & (alignment - 1))) {
        free_in(pool, ptr, umf_tracked_find(pool->tracked, ptr));
        return large_alloc(pool, size, alignment);
    }
    return ptr;
}

static void *scalable_aligned_malloc(void *arg, size_t size, size_t alignment) {
    scalable_pool_t *pool = arg;
    if (alignment == 0) {
        return scalable_malloc(pool, size);
    }
    if (!umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("pool %s: alignment %zu is not a power of two", pool->name, alignment);
        return fail();
    }
    return size > BIN_SMALL_LARGEST || alignment > ALIGNMENT_IN_BINS
               ? large_alloc(pool, size, alignment)
               : aligned_from_bin(pool, size, alignment);
}

static void *scalable_calloc(void *arg, size_t num, size_t size) {
    size_t bytes;
    if (!umf_mul(num, size, &bytes)) {
        umf_tell_refused("scalable", UMF_RESULT_ERROR_UNKNOWN);
        return fail();
    }
    void *ptr = scalable_malloc(arg, bytes);
    if (ptr) {
        memset(ptr, 0, bytes);
    }
    return ptr;
}

/* The usable size of a live allocation; 0: `ptr` is none. */
static size_t usable_size(scalable_pool_t *pool, const void *ptr) {
    const umf_span_t *span = umf_tracked_find(pool->tracked, ptr);
    const uint8_t *state = span ? state_of(page_of(span, ptr), span, ptr) : NULL;
    if (!state || umf_state(state) != UMF_STATE_LIVE || !is_start(span, ptr)) {
        return 0;
    }
    return is_direct(span) ? span->size
                           : pool->tbb->pool_msize(below_of(pool), (void *)(uintptr_t)ptr);
}

static umf_result_t scalable_usable_size(void *arg, const void *ptr, size_t *size) {
    if (!size) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t room = ptr ? usable_size(arg, ptr) : 0;
    if (ptr && !room) {
        return refuse(arg, ptr);
    }
    *size = room;
    return UMF_RESULT_SUCCESS;
}

static void *scalable_realloc(void *arg, void *ptr, size_t size) {
    scalable_pool_t *pool = arg;
    if (!ptr) {
        return scalable_malloc(pool, size);
    }
    size_t old = usable_size(pool, ptr);
    if (!old) {
        refuse(pool, ptr);
        return fail();
    }
    if (size == 0) {
        of_thread.last_error = scalable_free(pool, ptr);
        return NULL;
    }
    if (size <= old && size > old / 2) {
        return ptr;
    }
    void *moved = scalable_malloc(pool, size);
    if (moved) {
        memcpy(moved, ptr, old < size ? old : size);
        scalable_free(pool, ptr);
    }
    return moved;
}

/* --- create and destroy --- */

static umf_result_t below_build(scalable_pool_t *pool) {
    void *below = NULL;
    int error = below_create(pool, &below);
    atomic_init(&pool->below, below);
    if (error) {
        UMF_LOG_ERROR("pool %s: oneTBB cannot set up a memory pool (error %d). Each takes one of "
                      "the 1024 thread-specific keys of the process, so there can be about 1000: "
                      "destroy unused pools",
                      pool->name, error);
    }
    return error ? UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC : UMF_RESULT_SUCCESS;
}

static umf_result_t pool_build(scalable_pool_t *pool, const umf_scalable_pool_params_t *params,
                               umf_memory_provider_handle_t provider) {
    size_t page;
    if (umf_provider_page_size(provider, &page) != UMF_RESULT_SUCCESS) {
        page = params->granularity;
    }
    pool->granularity = params->granularity;
    pool->policy = (umf_tbb_policy_t){
        .alloc = hook_alloc,
        .free = hook_free,
        .granularity = params->granularity < page ? params->granularity : page,
        .version = UMF_TBB_POLICY_VERSION,
        .flags = params->keep_all_memory ? UMF_TBB_KEEP_ALL_MEMORY : 0,
    };
    memcpy(pool->name, params->name, sizeof(pool->name));
    umf_result_t result = umf_tbb_load(&pool->tbb);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_tracked_acquire(provider, &pool->tracked);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = below_build(pool);
    if (result != UMF_RESULT_SUCCESS) {
        goto tracked;
    }
    result =
        umf_magazines_init(&pool->magazines, umf_tracked_magazine_index(pool->tracked), pool,
                           &scalable_magazine_ops, bins.capacity, BINS, UMF_MAGAZINE_DEPOT_BATCHES);
    if (result != UMF_RESULT_SUCCESS) {
        goto below;
    }
    pool->magazines.bytes_max = params->thread_cache;
    umf_lock_init(&pool->lock, UMF_RANK_ARENA);
    return UMF_RESULT_SUCCESS;

below:
    umf_tbb_pool_destroy(pool->tbb, pool->below);
tracked:
    umf_tracked_release(pool->tracked);
    return result;
}

/* Nothing is taken from the provider before the first allocation. */
static umf_result_t scalable_initialize(umf_memory_provider_handle_t provider, const void *params,
                                        void **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const umf_scalable_pool_params_t *request =
        umf_params_or_defaults(&umf_scalable_pool_params_kind, params, "umfPoolCreate");
    if (!request) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!provider || !out) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (request->granularity > GRANULARITY_LIMIT) {
        UMF_LOG_ERROR("granularity %zu is more than any provider has", request->granularity);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    pthread_once(&once, tables_init);
    scalable_pool_t *pool = umf_meta_alloc(sizeof(*pool));
    if (!pool) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = pool_build(pool, request, provider);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(pool, sizeof(*pool));
        return result;
    }
    *out = pool;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t scalable_finalize(void *arg) {
    scalable_pool_t *pool = arg;
    umf_magazines_fini(&pool->magazines); /* waits for ending threads */
    umf_tbb_pool_destroy(pool->tbb, pool->below);
    spans_free(pool, umf_tracked_find_any);
    bool has_left = umf_tracked_span_count(pool->tracked) > 0;
    umf_tracked_release(pool->tracked);
    umf_lock_destroy(&pool->lock);
    umf_meta_free(pool, sizeof(*pool));
    return has_left ? UMF_RESULT_ERROR_UNKNOWN : UMF_RESULT_SUCCESS;
}

/* --- trim --- */

static umf_result_t scalable_trim(void *arg, size_t keep) {
    (void)keep;
    scalable_pool_t *pool = arg;
    if (keeps_all(pool)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_magazines_trim(&pool->magazines);
    below_trim(pool, false);
    return UMF_RESULT_SUCCESS;
}

/* --- the rest of the table --- */

static umf_result_t scalable_last_allocation_error(void *arg) {
    (void)arg;
    return (umf_result_t)of_thread.last_error;
}

UMF_POOL_GET_NAME(scalable, scalable_pool_t, name, umf_scalable_pool_params)

static size_t scalable_alloc_count(void *arg) {
    scalable_pool_t *pool = arg;
    int64_t blocks = atomic_load_explicit(&pool->out_count, memory_order_relaxed) -
                     umf_magazines_out(&pool->magazines);
    return umf_magazines_live(&pool->magazines) + (blocks > 0 ? (size_t)blocks : 0) +
           atomic_load_explicit(&pool->direct_count, memory_order_relaxed);
}

static size_t scalable_thread_cache(void *arg) {
    return umf_magazines_bytes(&((scalable_pool_t *)arg)->magazines);
}

static const umf_memory_pool_ops_t scalable_ops = {
    UMF_POOL_OPS(scalable),
    .get_name = scalable_get_name,
    .ext_trim_memory = scalable_trim,
};

static const umf_small_sizes_t *scalable_small(void *arg) {
    (void)arg;
    return &bins.small;
}

extern const umf_pool_fast_ops_t umf_scalable_pool_fast_ops;
static void scalable_tick(void *self) {
    umf_magazines_decay(&((scalable_pool_t *)self)->magazines);
}

static void scalable_walk(void *self, const umf_span_t *span, umf_walk_t *walk) {
    if (is_direct(span)) {
        umf_walk_add(walk, span->base, span->size, 1,
                     umf_state(&record_of(span)->direct) == UMF_STATE_LIVE ? UMF_RECORD_STATE_LIVE
                                                                           : UMF_RECORD_STATE_FREE);
        return;
    }
    umf_scalable_walk_t walked = {
        .pages = record_of(span)->pages,
        .starts = &bins.starts,
        .size = bins.size,
        .bins = BINS,
        .lock = &((scalable_pool_t *)self)->lock,
    };
    umf_scalable_walk(&walked, span, walk);
}

const umf_pool_fast_ops_t umf_scalable_pool_fast_ops = {
    .free_at = scalable_free_at,
    .alloc_count = scalable_alloc_count,
    .tick = scalable_tick,
    .thread_cache = scalable_thread_cache,
    .small = scalable_small,
    .walk = scalable_walk,
    .data_inside = true,
};

UMF_API_1_0 const umf_memory_pool_ops_t *umfScalablePoolOps(void) {
    return &scalable_ops;
}

/* Unlike the destroy functions of other kinds, it refuses NULL. */
UMF_API_1_0 umf_result_t umfScalablePoolParamsDestroy(umf_scalable_pool_params_handle_t hParams) {
    return umf_handle_check(hParams, &umf_scalable_pool_params_kind.handle, __func__)
               ? umf_params_destroy(&umf_scalable_pool_params_kind, hParams, __func__)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_POOL_DESCRIPTOR(scalable, .ops = &scalable_ops,
                    .params_from_text = umf_scalable_pool_params_from_text,
                    .params_destroy = umf_scalable_pool_params_destroy, .probe = umf_tbb_probe);
