/* Whole sets of magazines, in all bins and of all threads. */
#include <errno.h>
#include <string.h>

#include "cache/magazine_own.h"

/* --- capacities, and life --- */

static uint16_t objects_in(size_t bytes, size_t size, uint16_t least) {
    size_t objects = bytes / size;
    return objects < least                      ? least
           : objects > UMF_MAGAZINE_OBJECTS_MAX ? UMF_MAGAZINE_OBJECTS_MAX
                                                : (uint16_t)objects;
}

umf_magazine_capacity_t umf_magazine_capacity(size_t bytes, size_t size, uint16_t objects_min) {
    uint16_t usual = objects_in(bytes, size, objects_min < 2 ? 2 : objects_min);
    return (umf_magazine_capacity_t){
        .usual = usual,
        .contended = objects_in(UMF_MAGAZINE_CONTENDED_BYTES, size, usual),
        .size = (uint32_t)size,
    };
}

umf_magazine_capacity_t umf_magazine_capacity_large(size_t size) {
    umf_magazine_capacity_t capacity = umf_magazine_capacity(UMF_MAGAZINE_LARGE_BYTES, size, 2);
    capacity.is_large = true;
    return capacity;
}

/* Objects up to this size have remote stacks. More sizes cost memory in each thread. */
#define REMOTE_MAX 16384u

static uint32_t remote_bins(const umf_magazine_capacity_t *capacity, uint32_t bins) {
    uint32_t small = 0;
    while (small < bins && capacity[small].size <= REMOTE_MAX) {
        small++;
    }
    return small;
}

umf_result_t umf_magazines_init(umf_magazines_t *m, uint32_t index, void *pool,
                                const umf_magazine_ops_t *ops,
                                const umf_magazine_capacity_t *capacity, uint32_t bins,
                                uint32_t depot_batches) {
    m->pool = pool;
    m->ops = ops;
    m->capacity = capacity;
    m->bins = bins;
    m->stacks = bins + (ops->page_magic ? remote_bins(capacity, bins) : 0);
    m->depot_batches = depot_batches;
    atomic_init(&m->epoch, 0);
    atomic_init(&m->out, 0);
    atomic_init(&m->numbers, 0);
    atomic_init(&m->more_numbers, 0);
    atomic_init(&m->bytes, 0);
    atomic_init(&m->is_unchecked, false);
    m->bytes_max = UMF_MAGAZINE_BYTES_MAX;
    atomic_init(&m->decay.next, 0);
    atomic_init(&m->decay_goes_on, false);
    atomic_init(&m->passes, 0);
    atomic_init(&m->has_depots, false);
    memset((void *)m->depots, 0, bins * sizeof(m->depots[0])); /* compilers store atomics singly */
    return umf_thread_slot_owner_init(&m->owner, index,
                                      sizeof(umf_cache_t) + m->stacks * sizeof(umf_magazine_t),
                                      umf_magazine_thread_exit);
}

static void uncheck(umf_thread_slot_t *block, void *magazines) {
    umf_magazines_t *m = magazines;
    for (uint32_t i = 0; i < m->stacks; i++) {
        __atomic_store_n(&((umf_cache_t *)block)->bins[i].magic, 0, __ATOMIC_RELAXED);
    }
}

void umf_magazines_check(umf_magazines_t *m, bool may) {
    atomic_store_explicit(&m->is_unchecked, !may, memory_order_relaxed);
    if (!may) {
        atomic_thread_fence(memory_order_seq_cst); /* as in umf_magazine_set_checks */
        umf_thread_slot_each(&m->owner, uncheck, m);
    }
}

static void free_stacks(umf_thread_slot_t *block, void *m) {
    umf_magazine_free_stacks(m, (umf_cache_t *)block);
}

void umf_magazines_fini(umf_magazines_t *m) {
    umf_thread_slot_owner_close(&m->owner);
    umf_thread_slot_each(&m->owner, free_stacks, m);
    umf_thread_slot_owner_fini(&m->owner);
    bool has_depots = atomic_load_explicit(&m->has_depots, memory_order_relaxed);
    for (uint32_t bin = 0, bins = has_depots ? m->bins : 0; bin < bins; bin++) {
        umf_depots_t *depots = umf_magazine_depots(m, bin);
        if (depots) {
            umf_depots_destroy(depots);
        }
    }
}

/* --- flushes --- */

/* Flushes the thread's stacks, and up to `most` objects from the depots. Returns how many. */
static size_t flush_bin(umf_magazines_t *m, uint32_t bin, umf_cache_t *cache, size_t most) {
    size_t own = 0;
    for (uint32_t i = bin; cache && i < m->stacks; i += m->bins) {
        own += umf_magazine_count(&cache->bins[i]);
        umf_magazine_empty(m, bin, &cache->bins[i]);
    }
    return own + umf_magazine_depots_flush(m, bin, most, false);
}

void umf_magazines_flush(umf_magazines_t *m) {
    umf_cache_t *cache = umf_magazine_cache_pin(m);
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        flush_bin(m, bin, cache, SIZE_MAX);
    }
    umf_magazine_cache_unpin(cache);
}

static bool any_cache(const umf_thread_slot_t *block, void *arg) {
    (void)block, (void)arg;
    return true;
}

static bool is_large(const umf_magazines_t *m, uint32_t bin) {
    return m->capacity[bin].is_large;
}

static size_t waiting(const umf_magazines_t *m, uint32_t bin) {
    const umf_depots_t *depots = umf_magazine_depots(m, bin);
    return depots ? umf_depots_count(depots) : 0;
}

/* Releases about so many bytes of large objects. false: there were none. */
static bool release_large(umf_magazines_t *m, uint32_t except, size_t left) {
    bool was_any = false;
    umf_cache_t *cache = umf_magazine_cache_pin(m);
    for (uint32_t bin = m->bins; left && bin-- > 0 && is_large(m, bin);) {
        size_t size = m->capacity[bin].size;
        size_t most = left / size + (left % size != 0);
        size_t flushed = bin == except ? 0 : flush_bin(m, bin, cache, most);
        was_any |= flushed != 0;
        left -= flushed < most ? flushed * size : left;
    }
    umf_magazine_cache_unpin(cache);
    return was_any;
}

bool umf_magazines_release_large(umf_magazines_t *m, uint32_t except, size_t most) {
    size_t bytes = 0;
    /* For blocks without a bin, each of which asks: without depots nothing is there. */
    if (most && !atomic_load_explicit(&m->has_depots, memory_order_relaxed)) {
        return false;
    }
    for (uint32_t bin = m->bins; bin-- > 0 && is_large(m, bin);) {
        bytes += bin == except ? 0 : waiting(m, bin) * m->capacity[bin].size;
    }
    /* Below `most`, a flush costs more than it saves: the objects are likely to be needed again.
     * After a burst of frees there is far more, and one miss must not pay for all of it. */
    return bytes >= most && release_large(m, except, most ? most + most / 2 : SIZE_MAX);
}

bool umf_magazines_trim(umf_magazines_t *m) {
    bool is_all =
        umf_thread_slot_take_from_others(&m->owner, any_cache, umf_magazine_cache_taken, NULL);
    /* For those that are in use just now. */
    atomic_fetch_add_explicit(&m->epoch, 1, memory_order_relaxed);
    umf_magazines_flush(m);
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        umf_depots_t *depots = umf_magazine_depots(m, bin);
        if (depots) {
            umf_depots_trim(depots);
        }
    }
    return is_all;
}

/* --- decay --- */

#define DECAY_LEAST ((size_t)4 << 10) /* a smaller object takes as long to flush */

/* true: some objects are left for the next pass, so that no caller waits long. */
static bool depots_decay(umf_magazines_t *m, bool is_new) {
    size_t left = umf_decay_bytes();
    bool goes_on = false;
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        size_t size = m->capacity[bin].size > DECAY_LEAST ? m->capacity[bin].size : DECAY_LEAST;
        umf_depots_t *depots = umf_magazine_depots(m, bin);
        /* A continued pass goes on with the objects that the new pass found idle: a second count
         * would let objects decay that were idle for a moment only. */
        if (depots && (!is_new || umf_depots_count_idle(depots))) {
            size_t limit = left / size + (left % size != 0);
            size_t flushed = umf_magazine_depots_flush(m, bin, limit, true);
            left -= flushed < limit ? flushed * size : left;
            goes_on |= flushed == limit;
        }
    }
    return goes_on;
}

UMF_COLD void umf_magazines_decay_now(umf_magazines_t *m) {
    int saved_errno = errno; /* the caller may be malloc or free, which must not change it */
    bool is_new = !atomic_exchange_explicit(&m->decay_goes_on, false, memory_order_relaxed);
    if (is_new) {
        umf_magazines_age(m);
    }
    bool goes_on = depots_decay(m, is_new);
    if (m->ops->decay_pass && m->ops->decay_pass(m->pool, is_new)) {
        goes_on = true;
    }
    if (goes_on) {
        atomic_store_explicit(&m->decay_goes_on, true, memory_order_relaxed);
        umf_decay_go_on(&m->decay);
    }
    errno = saved_errno;
}

/* --- counts --- */

typedef struct cached_count_t {
    const umf_magazines_t *m;
    uint32_t first, last; /* bins */
    size_t count;
    int64_t out; /* sum over the threads that have a cache */
} cached_count_t;

/* Counts another thread's magazine. If that changes its stack between the two loads, the
 * difference is meaningless: an impossible count is taken as 0. */
static size_t count_from_outside(umf_magazine_t *mag) {
    umf_item_t *top = __atomic_load_n(&mag->top, __ATOMIC_ACQUIRE);
    umf_item_t *base = __atomic_load_n(&mag->base, __ATOMIC_RELAXED);
    size_t count = ((uintptr_t)top - (uintptr_t)base) / sizeof(umf_item_t);
    return top && base && count <= UINT16_MAX ? count : 0;
}

static void count_cached(umf_thread_slot_t *block, void *arg) {
    cached_count_t *sum = arg;
    sum->out += __atomic_load_n(&((umf_cache_t *)block)->out, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < sum->m->stacks; i++) {
        uint32_t bin = umf_magazine_bin(sum->m, i);
        if (bin >= sum->first && bin <= sum->last) {
            sum->count += count_from_outside(&((umf_cache_t *)block)->bins[i]);
        }
    }
}

static cached_count_t cached_in(umf_magazines_t *m, uint32_t first, uint32_t last) {
    cached_count_t sum = {.m = m, .first = first, .last = last};
    umf_thread_slot_each(&m->owner, count_cached, &sum);
    for (uint32_t bin = first; bin <= last; bin++) {
        sum.count += waiting(m, bin);
    }
    return sum;
}

size_t umf_magazines_cached(umf_magazines_t *m, uint32_t bin) {
    return cached_in(m, bin, bin).count;
}

static int64_t out_of(umf_magazines_t *m, const cached_count_t *cached) {
    return atomic_load_explicit(&m->out, memory_order_relaxed) + cached->out;
}

int64_t umf_magazines_out(umf_magazines_t *m) {
    cached_count_t cached = cached_in(m, 0, 0);
    return out_of(m, &cached);
}

int64_t umf_magazines_balance(umf_magazines_t *m) {
    cached_count_t cached = cached_in(m, 0, m->bins - 1);
    return out_of(m, &cached) - (int64_t)cached.count;
}

size_t umf_magazines_live(umf_magazines_t *m) {
    int64_t live = umf_magazines_balance(m);
    return live > 0 ? (size_t)live : 0;
}
