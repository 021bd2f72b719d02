#include "base/magazine.h"

#include <errno.h>
#include <string.h>

#include "base/meta.h"
#include "base/os.h"
#include "base/sum.h"

/* Batches of one bin on their way between threads. There are more of them where threads meet: each
 * thread begins with one of its own choice. What is looked at on the way to another lies apart. */
struct umf_depot_t {
    _Atomic(umf_depot_t *) next; /* of the same bin. Set once */
    _Alignas(64) umf_lock_t lock;
    _Atomic size_t count; /* objects. Sync: lock, as the rest; a hint for who does not hold it */
    size_t fewest;        /* there have been since the last look: so many nobody needed */
    void *objects[];
};

static umf_magazines_t *magazines_of(umf_local_owner_t *owner) {
    return UMF_CONTAINER_OF(owner, umf_magazines_t, owner);
}

#define FIRST_CAPACITY 64u /* of a stack that may grow */

#define DEPOT_STACKS 8u /* of contended capacity; a depot has room for them at least */
#define DEPOTS_MAX 8u   /* of a bin */

static size_t depot_capacity(const umf_magazines_t *m, uint32_t bin) {
    size_t batches = m->depot_batches * (m->capacity[bin].usual / 2u);
    size_t stacks = (size_t)DEPOT_STACKS * m->capacity[bin].contended;
    return batches > stacks ? batches : stacks;
}

static size_t depot_bytes(const umf_magazines_t *m, uint32_t bin) {
    return sizeof(umf_depot_t) + depot_capacity(m, bin) * sizeof(void *);
}

/* --- depot --- */

static umf_depot_t *depot_first(const umf_magazines_t *m, uint32_t bin) {
    return atomic_load_explicit(&m->depots[bin], memory_order_acquire);
}

static umf_depot_t *depot_next(const umf_depot_t *depot) {
    return atomic_load_explicit(&depot->next, memory_order_acquire);
}

/* All from `home` on, in a circle; NULL at the end. */
static umf_depot_t *depot_after(const umf_magazines_t *m, uint32_t bin, const umf_depot_t *depot,
                                const umf_depot_t *home) {
    umf_depot_t *next = depot_next(depot);
    next = next ? next : depot_first(m, bin);
    return next == home ? NULL : next;
}

/* Where a thread with this magazine begins. NULL: there is none at all. */
static umf_depot_t *depot_home(const umf_magazines_t *m, uint32_t bin, const umf_magazine_t *mag) {
    umf_depot_t *home = depot_first(m, bin);
    size_t count = 0;
    for (const umf_depot_t *depot = home; depot; depot = depot_next(depot)) {
        count++;
    }
    if (count > 1) {
        size_t steps = (umf_sum_mix((uintptr_t)mag) >> 32) % count;
        for (; steps; steps--) {
            home = depot_next(home);
        }
    }
    return home;
}

static size_t depot_count(const umf_depot_t *depot) {
    return atomic_load_explicit(&depot->count, memory_order_relaxed);
}

static void depot_set_count(umf_depot_t *depot, size_t count) {
    atomic_store_explicit(&depot->count, count, memory_order_relaxed);
}

/* In the place of NULL at `at`; what is there in the end, NULL if there is no memory. */
static umf_depot_t *depot_make(umf_magazines_t *m, uint32_t bin, _Atomic(umf_depot_t *) *at) {
    umf_depot_t *depot = umf_meta_alloc(depot_bytes(m, bin));
    if (!depot) {
        return NULL;
    }
    umf_lock_init(&depot->lock, UMF_RANK_DEPOT);
    umf_depot_t *other = NULL;
    if (!atomic_compare_exchange_strong_explicit(at, &other, depot, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        umf_lock_destroy(&depot->lock);
        umf_meta_free(depot, depot_bytes(m, bin));
        return other;
    }
    return depot;
}

/* One more, if they are not enough yet; else where the calling thread waits. */
static umf_depot_t *depot_one_more(umf_magazines_t *m, uint32_t bin, umf_depot_t *wait) {
    size_t cpus = umf_os_cpu_count(), count = 1;
    umf_depot_t *last = depot_first(m, bin), *next;
    while ((next = depot_next(last)) != NULL) {
        last = next;
        count++;
    }
    next = count < cpus && count < DEPOTS_MAX ? depot_make(m, bin, &last->next) : NULL;
    return next ? next : wait;
}

static size_t depot_take_locked(umf_depot_t *depot, void **objects, size_t n) {
    umf_assert_locked(&depot->lock);
    size_t count = depot_count(depot), taken = count < n ? count : n;
    count -= taken;
    depot_set_count(depot, count);
    depot->fewest = count < depot->fewest ? count : depot->fewest;
    memcpy(objects, &depot->objects[count], taken * sizeof(void *));
    return taken;
}

/* `mag`: of the calling thread, which learns whether it met others; NULL: none. */
static void note_met(umf_magazine_t *mag) {
    if (mag) {
        mag->wants_more |= UMF_MAGAZINE_MET_OTHERS;
    }
}

static size_t depot_take(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, void **objects,
                         size_t n) {
    umf_depot_t *busy = NULL;
    size_t taken = 0;
    umf_depot_t *home = depot_home(m, bin, mag);
    for (umf_depot_t *depot = home; depot && !taken; depot = depot_after(m, bin, depot, home)) {
        if (depot_count(depot) == 0) {
            continue;
        }
        if (umf_trylock(&depot->lock)) {
            taken = depot_take_locked(depot, objects, n);
            umf_unlock(&depot->lock);
        } else if (!busy) {
            busy = depot;
        }
    }
    if (!taken && busy) {
        note_met(mag);
        umf_lock(&busy->lock);
        taken = depot_take_locked(busy, objects, n);
        umf_unlock(&busy->lock);
    }
    return taken;
}

/* In a place of the thread's own: all threads miss, and would meet in a common one. */
static void count_out(umf_magazines_t *m, int64_t n) {
    umf_cache_t *cache = (umf_cache_t *)umf_local_get(m->owner.index);
    if (cache->head.owner) {
        __atomic_store_n(&cache->out, cache->out + n, __ATOMIC_RELAXED);
    } else {
        atomic_fetch_add_explicit(&m->out, n, memory_order_relaxed);
    }
}

static void pool_flush(umf_magazines_t *m, uint32_t bin, void **objects, size_t n) {
    m->ops->flush(m->pool, bin, objects, n);
    count_out(m, -(int64_t)n);
}

/* All or nothing. */
static bool depot_give_locked(const umf_magazines_t *m, uint32_t bin, umf_depot_t *depot,
                              void **objects, size_t n) {
    umf_assert_locked(&depot->lock);
    size_t count = depot_count(depot);
    bool fits = count + n <= depot_capacity(m, bin);
    if (fits) {
        memcpy(&depot->objects[count], objects, n * sizeof(void *));
        depot_set_count(depot, count + n);
    }
    return fits;
}

static bool depot_give(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, void **objects,
                       size_t n) {
    umf_depot_t *busy = NULL, *home = depot_home(m, bin, mag);
    bool is_given = false;
    if (!home && (m->depot_batches == 0 || !(home = depot_make(m, bin, &m->depots[bin])))) {
        return false;
    }
    for (umf_depot_t *depot = home; depot && !is_given; depot = depot_after(m, bin, depot, home)) {
        if (depot_count(depot) + n > depot_capacity(m, bin)) {
            continue;
        }
        if (umf_trylock(&depot->lock)) {
            is_given = depot_give_locked(m, bin, depot, objects, n);
            umf_unlock(&depot->lock);
        } else if (!busy) {
            busy = depot;
        }
    }
    if (!is_given && busy) {
        note_met(mag);
        busy = depot_one_more(m, bin, busy);
        umf_lock(&busy->lock);
        is_given = depot_give_locked(m, bin, busy, objects, n);
        umf_unlock(&busy->lock);
    }
    return is_given;
}

/* Up to `n` objects go back to the pool. */
static void depot_flush(umf_magazines_t *m, uint32_t bin, size_t n) {
    void *objects[64];
    size_t taken = 1;
    for (; n && taken; n -= taken) {
        size_t wish = n < UMF_COUNT_OF(objects) ? n : UMF_COUNT_OF(objects);
        taken = depot_take(m, bin, NULL, objects, wish);
        if (taken) {
            pool_flush(m, bin, objects, taken);
        }
    }
}

/* How many objects nobody has needed since it was asked last. */
static size_t depot_count_idle(umf_depot_t *depot) {
    umf_lock(&depot->lock);
    size_t idle = depot->fewest;
    depot->fewest = depot_count(depot);
    umf_unlock(&depot->lock);
    return idle;
}

static void depots_decay(umf_magazines_t *m) {
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        for (umf_depot_t *depot = depot_first(m, bin); depot; depot = depot_next(depot)) {
            depot_flush(m, bin, depot_count_idle(depot));
        }
    }
}

UMF_COLD void umf_magazines_look_now(umf_magazines_t *m) {
    int saved_errno = errno;
    bool is_new = !atomic_exchange_explicit(&m->look_goes_on, false, memory_order_relaxed);
    if (is_new) {
        depots_decay(m);
    }
    if (m->ops->look && m->ops->look(m->pool, is_new)) {
        atomic_store_explicit(&m->look_goes_on, true, memory_order_relaxed);
        umf_decay_go_on(&m->decay);
    }
    errno = saved_errno;
}

/* --- between a thread and the pool --- */

static size_t pool_refill(umf_magazines_t *m, uint32_t bin, void **objects, size_t n) {
    size_t got = m->ops->refill(m->pool, bin, objects, n);
    count_out(m, (int64_t)got);
    return got;
}

/* Objects on their way from a thread, to others if they have room. */
static void pass_on(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, void **objects,
                    size_t n) {
    if (!depot_give(m, bin, mag, objects, n)) {
        pool_flush(m, bin, objects, n);
    }
}

/* --- stacks --- */

static size_t magazine_capacity(const umf_magazine_t *mag) {
    return (size_t)(mag->limit - mag->base);
}

static size_t magazine_count(const umf_magazine_t *mag) {
    return (size_t)(mag->top - mag->base);
}

static void magazine_set_top(umf_magazine_t *mag, void **top) {
    __atomic_store_n(&mag->top, top, __ATOMIC_RELEASE);
}

/* Other threads may be counting: without a top there is nothing to count. */
static void magazine_set_stack(umf_magazine_t *mag, void **stack, size_t count, size_t capacity) {
    magazine_set_top(mag, NULL);
    __atomic_store_n(&mag->base, stack, __ATOMIC_RELAXED);
    mag->limit = stack ? stack + capacity : NULL;
    magazine_set_top(mag, stack ? stack + count : NULL);
}

static size_t stack_bytes(size_t capacity) {
    return umf_meta_apart(capacity * sizeof(void *));
}

static bool magazine_make_stack(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    size_t usual = m->capacity[bin].usual,
           capacity = usual < FIRST_CAPACITY ? usual : FIRST_CAPACITY;
    void **stack = umf_meta_alloc(stack_bytes(capacity));
    if (!stack) {
        return false;
    }
    mag->magic = m->slabs ? m->slabs[bin + 1].magic : 0;
    mag->mask = m->slabs ? m->slabs[bin + 1].mask : 0;
    magazine_set_stack(mag, stack, 0, capacity);
    return true;
}

static void magazine_free_stack(umf_magazine_t *mag) {
    void **stack = mag->base;
    size_t capacity = magazine_capacity(mag);
    magazine_set_stack(mag, NULL, 0, 0);
    mag->magic = 0;
    umf_meta_free(stack, stack_bytes(capacity));
}

/* false: it stays as it is. */
static bool magazine_grow(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    size_t old = magazine_capacity(mag), count = magazine_count(mag);
    size_t most = mag->wants_more & UMF_MAGAZINE_MET_OTHERS ? m->capacity[bin].contended
                                                            : m->capacity[bin].usual;
    size_t capacity = 2 * old < most ? 2 * old : most;
    if (!mag->wants_more || capacity <= old) {
        return false;
    }
    void **stack = umf_meta_alloc(stack_bytes(capacity));
    if (!stack) {
        return false;
    }
    void **small = mag->base;
    memcpy(stack, small, count * sizeof(void *));
    magazine_set_stack(mag, stack, count, capacity);
    umf_meta_free(small, stack_bytes(old));
    mag->wants_more = 0;
    return true;
}

/* The older half goes, the recently freed stay. */
static void magazine_halve(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    size_t batch = magazine_capacity(mag) / 2;
    size_t rest = magazine_count(mag) - batch;
    mag->wants_more = 0;
    pass_on(m, bin, mag, mag->base, batch);
    memmove(mag->base, mag->base + batch, rest * sizeof(void *));
    magazine_set_top(mag, mag->base + rest);
}

/* --- caches --- */

static void cache_empty(umf_magazines_t *m, umf_cache_t *cache, bool to_depots) {
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        umf_magazine_t *mag = &cache->bins[bin];
        size_t count = magazine_count(mag);
        if (count) {
            magazine_set_top(mag, mag->base);
            if (!to_depots || !depot_give(m, bin, NULL, mag->base, count)) {
                pool_flush(m, bin, mag->base, count);
            }
        }
    }
}

static void cache_free_stacks(umf_magazines_t *m, umf_cache_t *cache) {
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        magazine_free_stack(&cache->bins[bin]);
    }
}

static void thread_exit(umf_local_owner_t *owner, umf_local_t *block) {
    umf_magazines_t *m = magazines_of(owner);
    cache_empty(m, (umf_cache_t *)block, true);
    cache_free_stacks(m, (umf_cache_t *)block);
    count_out(m, __atomic_exchange_n(&((umf_cache_t *)block)->out, 0, __ATOMIC_RELAXED));
}

/* The calling thread's magazine with its stack, NULL when out of memory or when the thread is
 * ending. Follows a trim. */
static umf_magazine_t *magazine_ready(umf_magazines_t *m, uint32_t bin) {
    umf_cache_t *cache = (umf_cache_t *)umf_local_get(m->owner.index);
    uint32_t epoch = atomic_load_explicit(&m->epoch, memory_order_relaxed);
    if (!cache->head.owner) {
        cache = (umf_cache_t *)umf_local_make(&m->owner);
        if (!cache) {
            return NULL;
        }
        if (m->ops->thread_begins) {
            m->ops->thread_begins(m->pool);
        }
        cache->epoch = epoch;
    }
    if (cache->epoch != epoch) {
        cache->epoch = epoch;
        cache_empty(m, cache, false);
    }
    umf_magazine_t *mag = &cache->bins[bin];
    return mag->base || magazine_make_stack(m, bin, mag) ? mag : NULL;
}

/* The pool hands out by growing address, a stack begins with the last: programs that run through
 * what they allocated in a row do it upwards. */
static void reverse(void **objects, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        void *object = objects[i];
        objects[i] = objects[n - 1 - i];
        objects[n - 1 - i] = object;
    }
}

UMF_COLD void *umf_magazine_pop_slow(umf_magazines_t *m, uint32_t bin) {
    umf_magazine_t *mag = magazine_ready(m, bin);
    void *object = NULL;
    if (!mag) {
        return depot_take(m, bin, NULL, &object, 1) || pool_refill(m, bin, &object, 1) ? object
                                                                                       : NULL;
    }
    if (mag->wants_more & UMF_MAGAZINE_MET_OTHERS) {
        magazine_grow(m, bin, mag);
    }
    size_t batch = magazine_capacity(mag) / 2;
    size_t got = depot_take(m, bin, mag, mag->base, batch);
    if (!got) {
        got = pool_refill(m, bin, mag->base, batch);
        reverse(mag->base, got);
    }
    if (!got) {
        return NULL;
    }
    object = mag->base[got - 1];
    mag->wants_more |= UMF_MAGAZINE_REFILLED;
    magazine_set_top(mag, mag->base + got - 1);
    umf_magazines_look(m);
    return object;
}

UMF_COLD void umf_magazine_push_slow(umf_magazines_t *m, uint32_t bin, void *object) {
    umf_magazine_t *mag = magazine_ready(m, bin);
    if (!mag) {
        pass_on(m, bin, NULL, &object, 1);
        return;
    }
    if (mag->top == mag->limit) {
        if (!magazine_grow(m, bin, mag)) {
            magazine_halve(m, bin, mag);
        }
    }
    *mag->top = object;
    magazine_set_top(mag, mag->top + 1);
    umf_magazines_look(m);
}

/* --- whole sets --- */

static uint16_t objects_in(size_t bytes, size_t size, uint16_t least) {
    size_t objects = bytes / size;
    return objects < least                      ? least
           : objects > UMF_MAGAZINE_OBJECTS_MAX ? UMF_MAGAZINE_OBJECTS_MAX
                                                : (uint16_t)objects;
}

umf_magazine_capacity_t umf_magazine_capacity(size_t bytes, size_t size, uint16_t objects_min) {
    uint16_t usual = objects_in(bytes, size, objects_min);
    return (umf_magazine_capacity_t){
        .usual = usual,
        .contended = objects_in(UMF_MAGAZINE_CONTENDED_BYTES, size, usual),
    };
}

static uint16_t two_or_more(uint16_t n) {
    return n < 2 ? 2 : n;
}

umf_result_t umf_magazines_init(umf_magazines_t *m, uint32_t index, void *pool,
                                const umf_magazine_ops_t *ops,
                                const umf_magazine_capacity_t *capacity, uint32_t bins,
                                uint32_t depot_batches) {
    m->pool = pool;
    m->ops = ops;
    m->bins = bins;
    m->depot_batches = depot_batches;
    atomic_init(&m->epoch, 0);
    atomic_init(&m->out, 0);
    atomic_init(&m->decay.next, 0);
    atomic_init(&m->look_goes_on, false);
    for (uint32_t bin = 0; bin < bins; bin++) {
        m->capacity[bin] = (umf_magazine_capacity_t){
            .usual = two_or_more(capacity[bin].usual),
            .contended = two_or_more(capacity[bin].contended),
        };
        atomic_init(&m->depots[bin], NULL);
    }
    return umf_local_owner_init(&m->owner, index,
                                sizeof(umf_cache_t) + bins * sizeof(umf_magazine_t), thread_exit);
}

static void free_stacks(umf_local_t *block, void *m) {
    cache_free_stacks(m, (umf_cache_t *)block);
}

void umf_magazines_fini(umf_magazines_t *m) {
    umf_local_owner_close(&m->owner);
    umf_local_each(&m->owner, free_stacks, m);
    umf_local_owner_fini(&m->owner);
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        for (umf_depot_t *depot = depot_first(m, bin), *next; depot; depot = next) {
            next = depot_next(depot);
            umf_lock_destroy(&depot->lock);
            umf_meta_free(depot, depot_bytes(m, bin));
        }
    }
}

static void depots_flush(umf_magazines_t *m) {
    for (uint32_t bin = 0; bin < m->bins; bin++) {
        depot_flush(m, bin, SIZE_MAX);
    }
}

void umf_magazines_flush(umf_magazines_t *m) {
    umf_cache_t *cache = (umf_cache_t *)umf_local_get(m->owner.index);
    if (cache->head.owner) {
        cache_empty(m, cache, false);
    }
    depots_flush(m);
}

void umf_magazines_trim(umf_magazines_t *m) {
    atomic_fetch_add_explicit(&m->epoch, 1, memory_order_relaxed);
    umf_magazines_flush(m);
}

typedef struct cached_count_t {
    uint32_t first, last; /* bins */
    size_t count;
    int64_t out; /* of threads that have a cache */
} cached_count_t;

/* Of another thread's magazine. It may get another stack between the two loads. */
static size_t count_from_outside(umf_magazine_t *mag) {
    void **top = __atomic_load_n(&mag->top, __ATOMIC_ACQUIRE);
    void **base = __atomic_load_n(&mag->base, __ATOMIC_RELAXED);
    size_t count = ((uintptr_t)top - (uintptr_t)base) / sizeof(void *);
    return top && base && count <= UINT16_MAX ? count : 0;
}

static void count_cached(umf_local_t *block, void *arg) {
    cached_count_t *sum = arg;
    sum->out += __atomic_load_n(&((umf_cache_t *)block)->out, __ATOMIC_RELAXED);
    for (uint32_t bin = sum->first; bin <= sum->last; bin++) {
        sum->count += count_from_outside(&((umf_cache_t *)block)->bins[bin]);
    }
}

static cached_count_t cached_in(umf_magazines_t *m, uint32_t first, uint32_t last) {
    cached_count_t sum = {.first = first, .last = last};
    umf_local_each(&m->owner, count_cached, &sum);
    for (uint32_t bin = first; bin <= last; bin++) {
        for (umf_depot_t *depot = depot_first(m, bin); depot; depot = depot_next(depot)) {
            sum.count += depot_count(depot);
        }
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

size_t umf_magazines_live(umf_magazines_t *m) {
    cached_count_t cached = cached_in(m, 0, m->bins - 1);
    int64_t live = out_of(m, &cached) - (int64_t)cached.count;
    return live > 0 ? (size_t)live : 0;
}
