#include "cache/depot.h"

#include <string.h>

#include "base/lock.h"
#include "base/meta.h"
#include "system/os.h"

/* If other threads have drained its depot, a thread allocates as many new objects as it gave.
 * Otherwise threads that need more objects than there are would take them from each other: each
 * would have neighbours of the others' objects, whose states share cache lines. A thread that only
 * takes has no such credit. */
#define GIVEN_MAX 16384

struct umf_depot_t {
    umf_lock_t lock;
    _Atomic size_t count; /* objects. Sync: lock, as the rest; without the lock it is a hint */
    size_t fewest;        /* smallest count since the last decay pass: so many were not needed */
    size_t idle;          /* objects that the last decay pass found idle and that still are */
    umf_item_t items[];
};

static size_t depot_bytes(const umf_depots_t *depots) {
    return umf_meta_isolated_size(sizeof(umf_depot_t) + depots->capacity * sizeof(umf_item_t));
}

/* NULL: no thread has given to it. */
static umf_depot_t *depot_at(const umf_depots_t *depots, uint32_t index) {
    return atomic_load_explicit(&depots->at[index], memory_order_acquire);
}

static size_t depot_count(const umf_depot_t *depot) {
    return depot ? atomic_load_explicit(&depot->count, memory_order_relaxed) : 0;
}

static void depot_set_count(umf_depot_t *depot, size_t count) {
    atomic_store_explicit(&depot->count, count, memory_order_relaxed);
}

/* --- life --- */

umf_depots_t *umf_depots_create(size_t capacity) {
    umf_depots_t *depots = umf_meta_alloc(sizeof(*depots));
    if (depots) {
        size_t cpus = umf_os_cpu_count();
        depots->capacity = (uint32_t)capacity;
        depots->limit = cpus < UMF_DEPOTS_MAX ? (uint32_t)cpus : UMF_DEPOTS_MAX;
    }
    return depots;
}

void umf_depots_destroy(umf_depots_t *depots) {
    if (!depots) {
        return;
    }
    for (uint32_t i = 0; i < depots->limit; i++) {
        umf_depot_t *depot = depot_at(depots, i);
        if (depot) {
            umf_lock_destroy(&depot->lock);
            umf_meta_free(depot, depot_bytes(depots));
        }
    }
    umf_meta_free(depots, sizeof(*depots));
}

/* The depot at `index`, made if it is not there. NULL: there is no memory. */
static umf_depot_t *depot_made(umf_depots_t *depots, uint32_t index) {
    umf_depot_t *depot = depot_at(depots, index), *other = NULL;
    if (depot || !(depot = umf_meta_alloc(depot_bytes(depots)))) {
        return depot;
    }
    umf_lock_init(&depot->lock, UMF_RANK_DEPOT);
    if (!atomic_compare_exchange_strong_explicit(&depots->at[index], &other, depot,
                                                 memory_order_acq_rel, memory_order_acquire)) {
        umf_lock_destroy(&depot->lock);
        umf_meta_free(depot, depot_bytes(depots));
        return other;
    }
    return depot;
}

/* --- which one --- */

static uint32_t own_depot(const umf_depots_t *depots, uint32_t number) {
    return number % depots->limit;
}

static uint32_t depot_next(const umf_depots_t *depots, uint32_t index) {
    return index + 1 < depots->limit ? index + 1 : 0;
}

static void note_contention(umf_depot_thread_t *thread) {
    if (thread) {
        thread->is_contended = true;
    }
}

/* Locks the thread's own depot. The wait is short. In another depot are other threads' objects. */
static void lock_own(umf_depot_t *depot, umf_depot_thread_t *thread) {
    if (!umf_trylock(&depot->lock)) {
        note_contention(thread);
        umf_lock(&depot->lock);
    }
}

/* --- taking --- */

static size_t take_locked(umf_depot_t *depot, umf_item_t *items, size_t n) {
    umf_assert_locked(&depot->lock);
    size_t count = depot_count(depot), taken = count < n ? count : n;
    count -= taken;
    depot_set_count(depot, count);
    depot->fewest = count < depot->fewest ? count : depot->fewest;
    memcpy(items, &depot->items[count], taken * sizeof(*items));
    return taken;
}

/* The thread's own depot is empty: true if it has the credit to allocate instead of taking. */
static bool deserves_new(umf_depot_thread_t *thread, size_t n) {
    bool deserves = thread && thread->given >= n;
    if (deserves) {
        thread->given = (uint16_t)(thread->given - n);
    }
    return deserves;
}

/* The depot to ask after the thread's own. A consumer returns to the depot where it last found
 * objects, because each depot that it tries costs a cache miss. */
static uint32_t after_own(const umf_depots_t *depots, const umf_depot_thread_t *thread,
                          uint32_t own) {
    uint32_t found = thread ? thread->found : 0;
    return found ? found - 1 : depot_next(depots, own);
}

/* Takes from one depot without waiting for its lock. `locked` keeps the first one that was
 * locked. */
static size_t take_from(umf_depot_t *depot, umf_depot_t **locked, umf_item_t *items, size_t n) {
    if (!umf_trylock(&depot->lock)) {
        *locked = *locked ? *locked : depot;
        return 0;
    }
    size_t taken = take_locked(depot, items, n);
    umf_unlock(&depot->lock);
    return taken;
}

static size_t take_own(umf_depot_t *depot, umf_depot_thread_t *thread, umf_item_t *items,
                       size_t n) {
    lock_own(depot, thread);
    size_t taken = take_locked(depot, items, n);
    umf_unlock(&depot->lock);
    return taken;
}

size_t umf_depots_take(umf_depots_t *depots, uint32_t number, umf_depot_thread_t *thread,
                       umf_item_t *items, size_t n) {
    uint32_t own = own_depot(depots, number);
    umf_depot_t *locked = NULL;
    bool is_empty = depot_count(depot_at(depots, own)) == 0;
    if (is_empty && deserves_new(thread, n)) {
        return 0;
    }
    size_t taken = is_empty ? 0 : take_own(depot_at(depots, own), thread, items, n);
    for (uint32_t i = 0, at = after_own(depots, thread, own); i < depots->limit && !taken;
         i++, at = depot_next(depots, at)) {
        umf_depot_t *depot = depot_at(depots, at);
        taken = depot_count(depot) ? take_from(depot, &locked, items, n) : 0;
        if (taken && thread) {
            thread->found = (uint8_t)(at + 1);
        }
    }
    if (locked) {
        note_contention(thread);
    }
    /* A wait is cheaper than a refill from the pool, which would also add objects to the cache. */
    if (!taken && locked) {
        umf_lock(&locked->lock);
        taken = take_locked(locked, items, n);
        umf_unlock(&locked->lock);
    }
    return taken;
}

/* --- giving --- */

static bool give_locked(const umf_depots_t *depots, umf_depot_t *depot, const umf_item_t *items,
                        size_t n) {
    umf_assert_locked(&depot->lock);
    size_t count = depot_count(depot);
    bool fits = count + n <= depots->capacity;
    if (fits) {
        memcpy(&depot->items[count], items, n * sizeof(*items));
        depot_set_count(depot, count + n);
    }
    return fits;
}

static bool give_own(umf_depots_t *depots, uint32_t own, umf_depot_thread_t *thread,
                     const umf_item_t *items, size_t n) {
    umf_depot_t *depot = depot_made(depots, own);
    if (!depot || depot_count(depot) + n > depots->capacity) {
        return false;
    }
    lock_own(depot, thread);
    bool is_given = give_locked(depots, depot, items, n);
    umf_unlock(&depot->lock);
    return is_given;
}

/* Gives to any depot but the thread's own, which is full. */
static bool give_others(umf_depots_t *depots, uint32_t own, umf_depot_thread_t *thread,
                        const umf_item_t *items, size_t n) {
    umf_depot_t *locked = NULL;
    bool is_given = false;
    for (uint32_t at = depot_next(depots, own); at != own && !is_given;
         at = depot_next(depots, at)) {
        umf_depot_t *depot = depot_at(depots, at);
        if (!depot || depot_count(depot) + n > depots->capacity) {
            continue; /* full, as far as can be seen without the lock */
        }
        if (umf_trylock(&depot->lock)) {
            is_given = give_locked(depots, depot, items, n);
            umf_unlock(&depot->lock);
        } else if (!locked) {
            locked = depot;
        }
    }
    if (locked) {
        note_contention(thread);
    }
    /* A wait is cheaper than a flush to the pool, which takes the pool's own locks. */
    if (!is_given && locked) {
        umf_lock(&locked->lock);
        is_given = give_locked(depots, locked, items, n);
        umf_unlock(&locked->lock);
    }
    return is_given;
}

bool umf_depots_give(umf_depots_t *depots, uint32_t number, umf_depot_thread_t *thread,
                     const umf_item_t *items, size_t n) {
    uint32_t own = own_depot(depots, number);
    bool is_given =
        give_own(depots, own, thread, items, n) || give_others(depots, own, thread, items, n);
    if (is_given && thread) {
        size_t given = thread->given + n;
        thread->given = (uint16_t)(given < GIVEN_MAX ? given : GIVEN_MAX);
    }
    return is_given;
}

/* --- counts --- */

size_t umf_depots_count(const umf_depots_t *depots) {
    size_t count = 0;
    for (uint32_t i = 0; i < depots->limit; i++) {
        count += depot_count(depot_at(depots, i));
    }
    return count;
}

size_t umf_depots_count_idle(umf_depots_t *depots) {
    size_t idle = 0;
    for (uint32_t i = 0; i < depots->limit; i++) {
        umf_depot_t *depot = depot_at(depots, i);
        if (!depot) {
            continue;
        }
        umf_lock(&depot->lock);
        /* The count never fell below `fewest` since the last pass, so that many were not used. */
        depot->idle = depot->fewest;
        depot->fewest = depot_count(depot);
        idle += depot->idle;
        umf_unlock(&depot->lock);
    }
    return idle;
}

size_t umf_depots_take_idle(umf_depots_t *depots, umf_item_t *items, size_t n) {
    size_t taken = 0;
    for (uint32_t i = 0; i < depots->limit && taken < n; i++) {
        umf_depot_t *depot = depot_at(depots, i);
        if (!depot) {
            continue;
        }
        umf_lock(&depot->lock);
        /* What threads have taken since the pass was not idle after all. */
        depot->idle = depot->fewest < depot->idle ? depot->fewest : depot->idle;
        size_t request = depot->idle < n - taken ? depot->idle : n - taken;
        size_t got = take_locked(depot, items + taken, request);
        depot->idle -= got;
        taken += got;
        umf_unlock(&depot->lock);
    }
    return taken;
}
