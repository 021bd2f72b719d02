/*
 * oneTBB's pool: the hooks that it calls, memory taken from it and returned, and its
 * trim.
 *
 * oneTBB has no call to empty the caches of one pool. But it empties them before it gives up when
 * the provider refuses memory. So trim requests more from oneTBB than any machine has, and the hook
 * refuses that. If nothing is in use, a fresh pool of oneTBB replaces the old one instead, which is
 * destroyed with all that it keeps.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>

#include "base/log.h"
#include "pools/scalable/purge.h"
#include "pools/scalable/scalable.h"
#include "reclaim/reclaim.h"

#define SIZE_IMPOSSIBLE (SIZE_MAX >> 8)

/* --- hooks: called by oneTBB, with its locks --- */

static bool is_in_hook(const umf_scalable_pool_t *pool) {
    return umf_transit_is_inside(&pool->in_hook);
}

static int hook_free(intptr_t id, void *ptr, size_t size) {
    (void)size;
    umf_scalable_pool_t *pool = (umf_scalable_pool_t *)id;
    umf_transit_part_t part;
    /* Pairs with the release in umf_scalable_give: all users of the span are done with it. */
    atomic_load_explicit(umf_stripes_own(&pool->out), memory_order_acquire);
    umf_transit_begin(&pool->in_hook, &part);
    umf_span_t *span = umf_tracked_find(pool->tracked, ptr);
    bool is_given = span && umf_scalable_span_give(pool, span) == UMF_RESULT_SUCCESS;
    umf_transit_end(&part);
    return is_given ? 0 : -1;
}

/* oneTBB uses a region for slabs up to its end, but of a region for larger objects only as much as
 * it has requested, often little more than 1 MiB. So these become multiples of the granularity only
 * where that adds little. */
static size_t region_size(const umf_scalable_pool_t *pool, size_t size) {
    size_t whole = umf_scalable_in_granules(pool, size);
    return umf_scalable_thread.takes_slabs || whole - size <= size / 4 ? whole : size;
}

static void *region_take(umf_scalable_pool_t *pool, size_t size) {
    umf_transit_part_t part;
    umf_transit_begin(&pool->in_hook, &part);
    void *region = umf_scalable_span_take(pool, size, umf_scalable_record_make(size), true);
    umf_transit_end(&part);
    return region;
}

/* An identity of the calling thread. */
static const void *this_thread(void) {
    return &umf_scalable_thread;
}

static void *hook_alloc(intptr_t id, size_t *size) {
    umf_scalable_pool_t *pool = (umf_scalable_pool_t *)id;
    /* The trimmer requests memory only so that oneTBB empties its caches. */
    if (atomic_load_explicit(&pool->trimmer, memory_order_relaxed) == this_thread()) {
        return NULL;
    }
    /* oneTBB calls again after it has emptied its caches, which does not help here. */
    if (!umf_tracked_is_shortage()) {
        return NULL;
    }
    size_t least = *size;
    *size = region_size(pool, least);
    void *ptr = region_take(pool, *size);
    /* Between smaller regions a provider of limited size may have gaps smaller than a granule. */
    if (!ptr && *size > least && *size / 2 <= least && umf_tracked_is_shortage()) {
        *size = least;
        ptr = region_take(pool, least);
    }
    return ptr;
}

/* --- its life --- */

/* The calling thread is inside oneTBB. */
static inline void *below_of(const umf_scalable_pool_t *pool) {
    return atomic_load_explicit(&pool->below, memory_order_relaxed);
}

static UMF_COLD void log_lost(const umf_scalable_pool_t *pool) {
    UMF_LOG_ERROR(
        "pool %s: other threads were inside a scalable pool when this process was forked, "
        "and oneTBB stays locked: use another kind of pool in the child, or fork while no "
        "other thread is in an operation of a provider",
        pool->name);
}

/* Returns oneTBB's error, 0 for none. */
static int below_create(umf_scalable_pool_t *pool, void **below) {
    if (umf_tbb_is_lost) {
        return -1;
    }
    umf_tbb_enter();
    umf_tracked_forget_refusal();
    int error = pool->tbb->pool_create((intptr_t)pool, &pool->policy, below);
    umf_tbb_leave();
    return error;
}

umf_result_t umf_scalable_below_build(umf_scalable_pool_t *pool, size_t granularity,
                                      bool keeps_all) {
    pool->policy = (umf_tbb_policy_t){
        .alloc = hook_alloc,
        .free = hook_free,
        .granularity = granularity,
        .version = UMF_TBB_POLICY_VERSION,
        .flags = keeps_all ? UMF_TBB_KEEP_ALL_MEMORY : 0,
    };
    void *below = NULL;
    atomic_init(&pool->forks, umf_fork_count());
    int error = below_create(pool, &below);
    atomic_init(&pool->below, below);
    if (error && umf_tbb_is_lost) {
        log_lost(pool);
    } else if (error) {
        UMF_LOG_ERROR("pool %s: oneTBB cannot set up a memory pool (error %d). Each takes one of "
                      "the 1024 thread-specific keys of the process, so there can be about 1000: "
                      "destroy unused pools",
                      pool->name, error);
    }
    return error ? UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC : UMF_RESULT_SUCCESS;
}

/* --- out of it and into it --- */

/* Many threads set it: only the first one writes. */
static void set_flag(_Atomic bool *flag) {
    if (!atomic_load_explicit(flag, memory_order_relaxed)) {
        atomic_store_explicit(flag, true, memory_order_relaxed);
    }
}

typedef struct take_t {
    size_t size, alignment;
    umf_item_t *items;
    size_t n, got;
} take_t;

static void *take_one(const umf_scalable_pool_t *pool, const take_t *take) {
    void *below = below_of(pool);
    return take->alignment ? pool->tbb->pool_aligned_malloc(below, take->size, take->alignment)
                           : pool->tbb->pool_malloc(below, take->size);
}

/* Takes up to `n` objects. false: there is none. */
static bool take(void *self, void *request) {
    umf_scalable_pool_t *pool = self;
    take_t *take = request;
    /* The provider of another pool may take from this one. */
    bool took_slabs = umf_scalable_thread.takes_slabs;
    umf_scalable_thread.takes_slabs = take->size <= UMF_SCALABLE_SMALL_LARGEST;
    set_flag(&pool->has_taken);
    umf_tbb_enter();
    for (take->got = 0; take->got < take->n; take->got++) {
        if ((take->items[take->got].object = take_one(pool, take)) == NULL) {
            break;
        }
    }
    atomic_fetch_add_explicit(umf_stripes_own(&pool->out), (int64_t)take->got,
                              memory_order_acquire);
    umf_tbb_leave();
    umf_scalable_thread.takes_slabs = took_slabs;
    return take->got > 0;
}

static void give_deferred(umf_scalable_pool_t *pool);

size_t umf_scalable_take(umf_scalable_pool_t *pool, uint32_t bin, size_t size, size_t alignment,
                         umf_item_t *items, size_t n) {
    if (umf_unlikely(is_in_hook(pool))) {
        umf_scalable_refuse_memory();
        return 0;
    }
    if (umf_unlikely(umf_tbb_is_lost)) {
        log_lost(pool);
        umf_scalable_refuse_memory();
        return 0;
    }
    take_t request = {.size = size, .alignment = alignment, .items = items, .n = n};
    umf_scalable_try(pool, take, &request);
    give_deferred(pool);
    size_t marked = umf_scalable_mark(pool, bin, items, request.got);
    if (umf_unlikely(marked < request.got)) {
        umf_scalable_give(pool, bin, items + marked, request.got - marked);
        umf_scalable_refuse_memory();
    }
    return marked;
}

static bool is_object(const umf_span_t *span, const void *ptr) {
    const uint8_t *state = umf_scalable_state_of(umf_scalable_page_of(span, ptr), span, ptr);
    return state && umf_state(state) != UMF_STATE_NONE;
}

/* oneTBB keeps the data of a thread in memory of the pool, under a thread-specific key. An object
 * of the pool under a key is a user's. PTHREAD_KEYS_MAX: the thread has none. */
static pthread_key_t thread_data_key(const umf_scalable_pool_t *pool) {
    pthread_key_t key = 0;
    for (; key < PTHREAD_KEYS_MAX; key++) {
        const void *data = pthread_getspecific(key);
        const umf_span_t *span = data ? umf_tracked_find(pool->tracked, data) : NULL;
        if (span && !is_object(span, data)) {
            break;
        }
    }
    return key;
}

/* An allocation makes them, even if there is no memory for its object. */
static UMF_COLD bool make_thread_data(const umf_scalable_pool_t *pool) {
    umf_scalable_thread_t saved = umf_scalable_thread; /* a free leaves the last error as it was */
    umf_scalable_thread.takes_slabs = true;
    umf_tracked_forget_refusal();
    void *object = pool->tbb->pool_malloc(below_of(pool), 1);
    umf_scalable_thread = saved;
    return object ? pool->tbb->pool_free(below_of(pool), object)
                  : thread_data_key(pool) < PTHREAD_KEYS_MAX;
}

/*
 * In a child of fork a new thread may get the identity of one that is gone, and oneTBB then takes
 * the slabs of that one for the thread's own. It crashes when such a slab becomes empty, unless the
 * thread has data in the pool. An allocation makes them. Without memory for it, objects stay where
 * they are until the pool is unused and is renewed.
 */
static bool may_free(const umf_scalable_pool_t *pool, uint32_t bin) {
    return umf_likely(atomic_load_explicit(&pool->forks, memory_order_relaxed) ==
                      umf_fork_count()) ||
           bin >= UMF_SCALABLE_BINS_SMALL || make_thread_data(pool);
}

static void give_now(umf_scalable_pool_t *pool, uint32_t bin, const umf_item_t *items, size_t n) {
    int saved_errno = errno;
    set_flag(&pool->has_given);
    umf_tbb_enter();
    atomic_fetch_sub_explicit(umf_stripes_own(&pool->out), (int64_t)n, memory_order_release);
    size_t freed = may_free(pool, bin) ? n : 0;
    for (size_t i = 0; i < freed; i++) {
        pool->tbb->pool_free(below_of(pool), items[i].object);
    }
    umf_tbb_leave();
    errno = saved_errno;
}

static UMF_COLD void defer(umf_scalable_pool_t *pool, const umf_item_t *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        void **object = items[i].object;
        void *next = atomic_load_explicit(&pool->deferred, memory_order_relaxed);
        do {
            *object = next;
        } while (!atomic_compare_exchange_weak_explicit(
            &pool->deferred, &next, object, memory_order_release, memory_order_relaxed));
    }
}

static UMF_COLD void give_deferred_slow(umf_scalable_pool_t *pool) {
    void *object = atomic_exchange_explicit(&pool->deferred, NULL, memory_order_acquire), *next;
    for (; object; object = next) {
        next = *(void **)object;
        give_now(pool, 0, &(umf_item_t){.object = object}, 1);
    }
}

/* By the next call that is in no hook. */
static void give_deferred(umf_scalable_pool_t *pool) {
    if (umf_unlikely(atomic_load_explicit(&pool->deferred, memory_order_relaxed) != NULL)) {
        give_deferred_slow(pool);
    }
}

void umf_scalable_give(umf_scalable_pool_t *pool, uint32_t bin, const umf_item_t *items, size_t n) {
    if (umf_unlikely(umf_tbb_is_lost || is_in_hook(pool))) {
        defer(pool, items, n);
        return;
    }
    give_now(pool, bin, items, n);
    give_deferred(pool);
}

size_t umf_scalable_below_size(const umf_scalable_pool_t *pool, const void *ptr) {
    return pool->tbb->pool_msize(below_of(pool), (void *)(uintptr_t)ptr);
}

void umf_scalable_below_destroy(umf_scalable_pool_t *pool) {
    if (!umf_tbb_is_lost) {
        umf_tbb_pool_destroy(pool->tbb, below_of(pool));
        return;
    }
    /* oneTBB's pool stays, without memory: the thread must not return its data to it at its end. */
    pthread_key_t key = thread_data_key(pool);
    if (key < PTHREAD_KEYS_MAX) {
        pthread_setspecific(key, NULL);
    }
}

/* --- trim --- */

static bool is_unused(umf_scalable_pool_t *pool) {
    return umf_stripes_sum(&pool->out) == 0;
}

/* Replaces an unused pool of oneTBB by a fresh one and destroys it, which frees all its memory.
 * Several threads may do so at once: each destroys what it has replaced. false: the pool is in use.
 */
static bool renew(umf_scalable_pool_t *pool) {
    void *spare;
    if (!is_unused(pool) || below_create(pool, &spare) != 0) {
        return false;
    }
    bool is_renewed = umf_tbb_stop() && is_unused(pool);
    if (is_renewed) {
        spare = atomic_exchange(&pool->below, spare);
        atomic_store_explicit(&pool->forks, umf_fork_count(), memory_order_relaxed);
    }
    umf_tbb_resume();
    umf_tbb_pool_destroy(pool->tbb, spare);
    return is_renewed;
}

/* Asks for the impossible, so that oneTBB empties its caches. The caller must be the trimmer. */
static void caches_empty(umf_scalable_pool_t *pool) {
    pool->tbb->pool_malloc(below_of(pool), SIZE_IMPOSSIBLE);
}

/* Trims a pool that is in use. A second thread that trims at the same time does nothing. */
static void trim_used(umf_scalable_pool_t *pool) {
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

void umf_scalable_below_trim(umf_scalable_pool_t *pool, bool is_last) {
    umf_transit_part_t part;
    if (umf_tbb_is_lost || is_in_hook(pool) || umf_scalable_keeps_all(pool) ||
        umf_tracked_span_count(pool->tracked) == 0) {
        return;
    }
    give_deferred(pool);
    umf_transit_begin(&pool->transit, &part);
    if (!renew(pool) && !is_last) {
        trim_used(pool);
    }
    umf_scalable_spans_give_lost(pool);
    umf_transit_end(&part);
}

/* oneTBB does not report for how long its memory has been free. So it is trimmed once no thread has
 * allocated from it since the last pass. */
void umf_scalable_below_decay(umf_scalable_pool_t *pool) {
    bool is_idle = !atomic_exchange_explicit(&pool->has_taken, false, memory_order_relaxed);
    if (is_idle && atomic_exchange_explicit(&pool->has_given, false, memory_order_relaxed)) {
        umf_scalable_below_trim(pool, false);
    }
}

/* All free objects go back to oneTBB, which can then cut others from their memory. */
static void give_back_all(void *self) {
    umf_scalable_pool_t *pool = self;
    umf_magazines_trim(&pool->magazines);
    umf_scalable_below_trim(pool, true);
}

bool umf_scalable_try(umf_scalable_pool_t *pool, bool (*attempt)(void *pool, void *request),
                      void *request) {
    umf_shortage_t shortage = {
        .tracked = pool->tracked,
        .transit = &pool->transit,
        .pool = pool,
        .give_back = give_back_all,
        .attempt = attempt,
        .request = request,
    };
    umf_tracked_forget_refusal();
    return umf_likely(attempt(pool, request)) || umf_reclaim(&shortage);
}
