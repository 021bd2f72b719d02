#include "cache/depot.h"

#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "base/meta.h"
#include "system/os.h"

struct umf_depot_t {
    umf_lock_t lock;
    _Atomic size_t count;    /* objects. Sync: lock, as the rest; without the lock it is a hint */
    size_t fewest;           /* smallest count since the last decay pass: so many were not needed */
    size_t idle;             /* objects that the last decay pass found idle and that still are */
    _Atomic size_t kept;     /* so many are for its owner. Sync: as `count` */
    _Atomic size_t returned; /* so many came back to its owner, which has not taken them. Sync: as
                              * `count` */
    size_t most;             /* largest count since its pages were dropped */
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

static size_t depot_kept(const umf_depot_t *depot) {
    return depot ? atomic_load_explicit(&depot->kept, memory_order_relaxed) : 0;
}

static void depot_set_kept(umf_depot_t *depot, size_t kept) {
    atomic_store_explicit(&depot->kept, kept, memory_order_relaxed);
}

static size_t depot_returned(const umf_depot_t *depot) {
    return depot ? atomic_load_explicit(&depot->returned, memory_order_relaxed) : 0;
}

static void depot_set_returned(umf_depot_t *depot, size_t returned) {
    atomic_store_explicit(&depot->returned, returned, memory_order_relaxed);
}

static size_t less(size_t a, size_t b) {
    return a > b ? a - b : 0;
}

/* Objects that others may take. `user`: as for umf_depots_take. */
static size_t depot_surplus(const umf_depot_t *depot, const umf_depot_user_t *user) {
    size_t count = depot_count(depot);
    size_t kept = depot_kept(depot), returned = depot_returned(depot);
    return user ? less(count, kept > returned ? kept : returned) : count;
}

/* --- life --- */

static uint32_t depots_limit(void) {
    size_t cpus = umf_os_cpu_count();
    return cpus < UMF_DEPOTS_MAX ? (uint32_t)cpus : UMF_DEPOTS_MAX;
}

umf_depots_t *umf_depots_create(size_t capacity) {
    umf_depots_t *depots = umf_meta_alloc(sizeof(*depots));
    if (depots) {
        depots->capacity = (uint32_t)capacity;
        depots->limit = depots_limit();
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

/* With one depot for all, 16 threads would move 2 to 42 cache lines for each object of a batch, by
 * size and pool (umf-bench-lines). With their own they move none. */
static uint32_t own_depot(const umf_depots_t *depots, uint32_t number) {
    return number % depots->limit;
}

uint32_t umf_depots_index(uint32_t number) {
    return number % depots_limit();
}

static uint32_t depot_next(const umf_depots_t *depots, uint32_t index) {
    return index + 1 < depots->limit ? index + 1 : 0;
}

static void note_contention(umf_depot_user_t *user) {
    if (user) {
        user->is_contended = true;
    }
}

/* Locks the thread's own depot. The wait is short. In another depot are other threads' objects. */
static void lock_own(umf_depot_t *depot, umf_depot_user_t *user) {
    if (!umf_trylock(&depot->lock)) {
        note_contention(user);
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
    if (depot_returned(depot) > count) { /* a trim, or a decay pass, takes these, too */
        depot_set_returned(depot, count);
    }
    return taken;
}

static size_t take_surplus(umf_depot_t *depot, const umf_depot_user_t *user, umf_item_t *items,
                           size_t n) {
    size_t surplus = depot_surplus(depot, user);
    return take_locked(depot, items, n < surplus ? n : surplus);
}

/* Takes from one depot without waiting for its lock. `locked` keeps the first one that was
 * locked. */
static size_t take_from(umf_depot_t *depot, const umf_depot_user_t *user, umf_depot_t **locked,
                        umf_item_t *items, size_t n) {
    if (!umf_trylock(&depot->lock)) {
        *locked = *locked ? *locked : depot;
        return 0;
    }
    size_t taken = take_surplus(depot, user, items, n);
    umf_unlock(&depot->lock);
    return taken;
}

static size_t take_own(umf_depot_t *depot, umf_depot_user_t *user, umf_item_t *items, size_t n) {
    lock_own(depot, user);
    size_t returned = depot_returned(depot), taken = take_locked(depot, items, n);
    depot_set_returned(depot, less(returned, taken));
    umf_unlock(&depot->lock);
    return taken;
}

size_t umf_depots_take(umf_depots_t *depots, uint32_t number, umf_depot_user_t *user,
                       umf_item_t *items, size_t n) {
    uint32_t own = own_depot(depots, number);
    umf_depot_t *locked = NULL;
    size_t taken =
        depot_count(depot_at(depots, own)) ? take_own(depot_at(depots, own), user, items, n) : 0;
    if (user) {
        user->took_from_others = !taken;
    }
    for (uint32_t at = depot_next(depots, own); at != own && !taken; at = depot_next(depots, at)) {
        umf_depot_t *depot = depot_at(depots, at);
        taken = depot_surplus(depot, user) ? take_from(depot, user, &locked, items, n) : 0;
    }
    if (locked) {
        note_contention(user);
    }
    /* A wait is cheaper than a refill from the pool, which would also add objects to the cache. */
    if (!taken && locked) {
        umf_lock(&locked->lock);
        taken = take_surplus(locked, user, items, n);
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
        depot->most = count + n > depot->most ? count + n : depot->most;
    }
    return fits;
}

/* The owner gives `n`. Who gives more than it took, as a thread that frees what another allocates,
 * needs so much less. */
static void note_need(const umf_depots_t *depots, umf_depot_t *depot, umf_depot_user_t *user,
                      size_t n) {
    size_t needed = user->needed < depots->capacity ? user->needed : depots->capacity;
    size_t kept = needed ? depot_kept(depot) : less(depot_kept(depot), n);
    depot_set_kept(depot, needed > kept ? needed : kept);
    user->needed = (uint16_t)less(needed, n);
}

/* `is_return`: others leave these objects to the owner. If they took them they would share its
 * pages, and each free of one of them would come back here. */
static bool give_own(umf_depots_t *depots, uint32_t own, umf_depot_user_t *user,
                     const umf_item_t *items, size_t n, bool is_return) {
    umf_depot_t *depot = depot_made(depots, own);
    if (!depot || depot_count(depot) + n > depots->capacity) {
        return false;
    }
    lock_own(depot, user);
    bool is_given = give_locked(depots, depot, items, n);
    if (user) {
        note_need(depots, depot, user, n);
    }
    if (is_return && is_given) {
        depot_set_returned(depot, depot_returned(depot) + n);
    }
    umf_unlock(&depot->lock);
    return is_given;
}

/* Gives to any depot but the thread's own, which is full. */
static bool give_others(umf_depots_t *depots, uint32_t own, umf_depot_user_t *user,
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
        note_contention(user);
    }
    /* A wait is cheaper than a flush to the pool, which takes the pool's own locks. */
    if (!is_given && locked) {
        umf_lock(&locked->lock);
        is_given = give_locked(depots, locked, items, n);
        umf_unlock(&locked->lock);
    }
    return is_given;
}

bool umf_depots_give(umf_depots_t *depots, uint32_t number, umf_depot_user_t *user,
                     const umf_item_t *items, size_t n) {
    uint32_t own = own_depot(depots, number);
    return give_own(depots, own, user, items, n, false) || give_others(depots, own, user, items, n);
}

bool umf_depots_return(umf_depots_t *depots, uint32_t number, const umf_item_t *items, size_t n) {
    uint32_t own = own_depot(depots, number);
    return give_own(depots, own, NULL, items, n, true) || give_others(depots, own, NULL, items, n);
}

/* --- trim --- */

/* Lets the system have the pages of an empty depot that have had objects, but not the first one. */
static void drop_pages_locked(umf_depot_t *depot) {
    size_t page = umf_os_page_size();
    uintptr_t first = umf_align_up((uintptr_t)depot->items, page);
    uintptr_t end = umf_align_down((uintptr_t)&depot->items[depot->most], page);
    umf_assert_locked(&depot->lock);
    if (first < end) {
        umf_os_advise((void *)first, end - first, MADV_DONTNEED);
    }
    depot->most = 0;
}

void umf_depots_trim(umf_depots_t *depots) {
    for (uint32_t i = 0; i < depots->limit; i++) {
        umf_depot_t *depot = depot_at(depots, i);
        if (!depot) {
            continue;
        }
        umf_lock(&depot->lock);
        if (!depot_count(depot)) {
            drop_pages_locked(depot);
        }
        umf_unlock(&depot->lock);
    }
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
        depot_set_kept(depot, depot_kept(depot) / 2);
        depot_set_returned(depot, depot_returned(depot) / 2);
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
