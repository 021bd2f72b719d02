#include "reclaim/reclaim.h"

#include <umf/reclaim.h>

#include "base/lock.h"
#include "base/meta.h"
#include "base/thread_slot.h"
#include "cache/decay.h"
#include "object/group.h"
#include "object/object.h"
#include "object/provider/provider_own.h"
#include "reclaim/pressure.h"
#include "system/pause.h"

#define SIZE_LIMIT ((size_t)1 << 57)
#define ATTEMPTS 8 /* rounds of callbacks for one request; umf/reclaim.h says so */

/*
 * Threads that visit pools of others. A visitor counts itself at the pool's index and then looks
 * whether the pool is open; the thread that ends a pool closes it and then waits until no visitor
 * is counted. So a pool is not destroyed under a visitor, no visit fails, and no thread takes a
 * lock. The words are not in the pools, whose memory may be freed while a word is read.
 *
 * A word has the number of forks above its count, as in track/use.h: a child of fork has none of
 * the visitors of its parent.
 */
#define VISITS_OPEN ((uint64_t)1 << 31) /* the pool may be visited */
#define VISITS_COUNT (VISITS_OPEN - 1)
#define VISITS_FORKS_AT 32

static _Atomic uint64_t visits[(size_t)1 << UMF_MAP_ENTRY_POOL_BITS]; /* by index of the pool */

/* The value of the word in this process. */
static uint64_t visits_now(uint64_t seen) {
    uint64_t forks = (uint64_t)umf_fork_count() << VISITS_FORKS_AT;
    return seen >= forks ? seen : forks | (seen & VISITS_OPEN);
}

/* Returns the word before the change. */
static uint64_t visits_change(uint32_t index, uint64_t clear, uint64_t set, uint64_t add) {
    uint64_t seen = atomic_load(&visits[index]);
    while (!atomic_compare_exchange_weak(&visits[index], &seen,
                                         ((visits_now(seen) & ~clear) | set) + add)) {
    }
    return seen;
}

/* `forks`: of the moment of visit_begin. A visit that began in the parent is not counted here. */
static void visit_end(uint32_t index, unsigned forks) {
    if (forks == umf_fork_count()) {
        atomic_fetch_sub(&visits[index], 1);
    }
}

/* The pool with this index, which stays alive until visit_end, and is not being suspended. NULL:
 * there is none, or it may not be visited; visit_end is due all the same. */
static umf_memory_pool_handle_t visit_begin(uint32_t index, bool suspended_too) {
    bool is_open = visits_change(index, 0, 0, 1) & VISITS_OPEN;
    umf_memory_pool_handle_t pool = is_open ? atomic_load(&umf_pool_table[index]) : NULL;
    return pool && (suspended_too || !umf_pool_is_suspended(pool)) ? pool : NULL;
}

void umf_reclaim_begin(umf_memory_pool_handle_t pool) {
    visits_change(pool->index, 0, VISITS_OPEN, 0);
}

void umf_reclaim_end(umf_memory_pool_handle_t pool) {
    visits_change(pool->index, VISITS_OPEN, 0, 0);
    umf_reclaim_leave(pool);
}

void umf_reclaim_leave(umf_memory_pool_handle_t pool) {
    const _Atomic uint64_t *word = &visits[pool->index];
    for (unsigned round = 0; visits_now(atomic_load(word)) & VISITS_COUNT; round++) {
        umf_pause(round);
    }
}

/* Calls `one` for every pool that is not ending, and as a rule not suspended, until it returns
 * false.
 */
static void each_pool(bool suspended_too, bool (*one)(umf_memory_pool_handle_t pool, void *arg),
                      void *arg) {
    bool goes_on = true;
    for (uint32_t i = 1; goes_on && i <= umf_pool_highest_index(); i++) {
        if (!atomic_load(&umf_pool_table[i])) {
            continue; /* an index that is free costs one load */
        }
        unsigned forks = umf_fork_count();
        umf_memory_pool_handle_t pool = visit_begin(i, suspended_too);
        goes_on = !pool || one(pool, arg);
        visit_end(i, forks);
    }
}

void umf_reclaim_each(bool (*one)(umf_memory_pool_handle_t pool, void *arg), void *arg) {
    each_pool(true, one, arg);
}

bool umf_reclaim_one(uint32_t index, void (*one)(umf_memory_pool_handle_t pool, void *arg),
                     void *arg) {
    unsigned forks = umf_fork_count();
    umf_memory_pool_handle_t pool = visit_begin(index, true);
    if (pool) {
        one(pool, arg);
    }
    visit_end(index, forks);
    return pool != NULL;
}

/* --- ticks --- */

static bool tick_one(umf_memory_pool_handle_t pool, void *arg) {
    (void)arg;
    if (pool->fast && pool->fast->tick) {
        pool->fast->tick(pool->self);
    }
    umf_layers_tick(pool);
    umf_provider_free_pending(pool->provider, false);
    umf_provider_drop_reusable(pool->provider, true);
    return true;
}

void umf_reclaim_tick(void) {
    umf_thread_slot_tls.frees_left = UMF_THREAD_SLOT_TICK_FREES;
    if (!umf_thread_slot_tls.is_reclaiming && umf_decay_is_tick_due()) {
        umf_thread_slot_tls.is_reclaiming = true;
        each_pool(false, tick_one, NULL);
        umf_meta_trim();
        umf_thread_slot_tls.is_reclaiming = false;
    }
}

/* --- trims of many pools --- */

typedef struct sweep_t {
    umf_memory_provider_handle_t root; /* pools on this provider; NULL: on any */
    umf_pool_group_handle_t group;     /* pools of this group; NULL: all */
    uint32_t except;                   /* index of a pool that is left out; 0: none */
    bool counts;                       /* count released bytes, and end when they are enough */
    bool is_any;                       /* there was a pool */
    bool waits;                        /* for device work that uses freed memory */
    size_t request, given;
} sweep_t;

static bool is_meant(const sweep_t *sweep, umf_memory_pool_handle_t pool) {
    return pool->index != sweep->except && (!sweep->root || pool->provider->root == sweep->root) &&
           (!sweep->group || (pool->tracked && umf_group_of(pool->tracked) == sweep->group));
}

static size_t bytes_of(const sweep_t *sweep, umf_memory_pool_handle_t pool) {
    return sweep->counts && pool->tracked ? umf_tracked_bytes(pool->tracked) : 0;
}

/* Ignore the result of the trim: proxy returns NOT_SUPPORTED, but releases memory. */
static bool sweep_one(umf_memory_pool_handle_t pool, void *arg) {
    sweep_t *sweep = arg;
    if (is_meant(sweep, pool)) {
        size_t before = bytes_of(sweep, pool);
        umf_pool_trim(pool, 0, sweep->waits);
        size_t after = bytes_of(sweep, pool);
        sweep->given += before > after ? before - after : 0;
        sweep->is_any = true;
        if (!sweep->root) {
            umf_provider_drop_reusable(pool->provider, false);
        }
    }
    return !sweep->counts || sweep->given < sweep->request;
}

/* true: there was a pool. */
static bool sweep_pools(sweep_t sweep) {
    each_pool(false, sweep_one, &sweep);
    return sweep.is_any;
}

void umf_reclaim_group(umf_pool_group_handle_t group) {
    sweep_pools((sweep_t){.group = group});
}

UMF_API_EXT_1_3 umf_result_t umfReclaim(umf_memory_provider_handle_t provider, size_t bytes,
                                        size_t *given) {
    if (provider) {
        CHECK_PROVIDER(provider);
    }
    sweep_t sweep = {.root = provider ? provider->root : NULL, .counts = true, .request = bytes};
    each_pool(false, sweep_one, &sweep);
    if (provider) {
        umf_provider_drop_reusable(provider, false);
    }
    umf_meta_trim();
    if (given) {
        *given = sweep.given;
    }
    return UMF_RESULT_SUCCESS;
}

/* --- a request that has failed --- */

typedef enum outcome_t {
    SHORT, /* more free memory may help */
    SERVED,
    REFUSED, /* for another reason than a lack of memory: the request is not made again */
} outcome_t;

static outcome_t attempt(const umf_shortage_t *shortage) {
    return shortage->attempt(shortage->pool, shortage->request) ? SERVED
           : umf_tracked_is_shortage()                          ? SHORT
                                                                : REFUSED;
}

/* Memory that other pools of the same provider keep. */
static bool trim_same_provider(const umf_shortage_t *shortage) {
    const umf_tracked_provider_t *tracked = shortage->tracked;
    return sweep_pools(
        (sweep_t){.root = tracked->root, .except = tracked->spans.pool, .waits = true});
}

/* Memory that the provider caches. */
static bool drop_reusable(const umf_shortage_t *shortage) {
    umf_memory_provider_handle_t root = shortage->tracked->root;
    umf_provider_drop_reusable(root, false);
    return root->ext->reuse_drop != NULL;
}

/* Memory that the pools of the same group keep. */
static bool trim_same_group(const umf_shortage_t *shortage) {
    const umf_tracked_provider_t *tracked = shortage->tracked;
    umf_pool_group_handle_t group = umf_group_of(tracked);
    return group &&
           sweep_pools((sweep_t){.group = group, .except = tracked->spans.pool, .waits = true});
}

/* Memory that the pool itself keeps. The request is repeated until no memory was in transit
 * meanwhile. */
static outcome_t reclaim_own(const umf_shortage_t *shortage) {
    umf_transit_part_t part;
    outcome_t outcome;
    umf_transit_retry(shortage->transit, &part);
    do {
        shortage->give_back(shortage->pool);
        outcome = attempt(shortage);
    } while (umf_transit_again(&part, outcome != SHORT));
    return outcome;
}

/* Blocks freed on queues: first those whose work has completed, then, after a wait, the others. */
static outcome_t reclaim_queued(const umf_shortage_t *shortage) {
    umf_memory_pool_handle_t pool = atomic_load(&umf_pool_table[shortage->tracked->spans.pool]);
    outcome_t outcome = SHORT;
    for (int waits = 0; pool && outcome == SHORT && waits <= 1; waits++) {
        if (umf_layers_give_back(pool, waits)) {
            outcome = attempt(shortage);
        }
    }
    return outcome;
}

typedef bool (*release_t)(const umf_shortage_t *shortage);

static outcome_t reclaim_all(const umf_shortage_t *shortage) {
    static const release_t elsewhere[] = {trim_same_provider, drop_reusable, trim_same_group};
    outcome_t outcome = reclaim_queued(shortage);
    if (outcome == SHORT) {
        outcome = reclaim_own(shortage);
    }
    for (size_t i = 0; i < UMF_COUNT_OF(elsewhere) && outcome == SHORT; i++) {
        if (elsewhere[i](shortage)) {
            outcome = attempt(shortage);
        }
    }
    return outcome;
}

static bool ask_program(const umf_shortage_t *shortage, unsigned attempt) {
    umf_memory_pool_handle_t pool = atomic_load(&umf_pool_table[shortage->tracked->spans.pool]);
    return umf_pressure_tell(pool, umf_tracked_refused(), attempt);
}

/* More than any process has addresses for: nothing that is given back helps. */
static bool is_absurd(void) {
    return umf_tracked_refused() > SIZE_LIMIT;
}

/* A request of a callback is served from what its pool keeps free. In this thread another one is
 * waiting for the callback. */
static bool reclaim_nested(const umf_shortage_t *shortage) {
    bool is_served = false;
    if (umf_pressure_is_telling() && !umf_thread_slot_tls.is_nested) {
        umf_thread_slot_tls.is_nested = true;
        is_served = reclaim_own(shortage) == SERVED;
        umf_thread_slot_tls.is_nested = false;
    }
    return is_served;
}

bool umf_reclaim(const umf_shortage_t *shortage) {
    if (is_absurd() || !umf_tracked_is_shortage()) {
        return false;
    }
    if (umf_thread_slot_tls.is_reclaiming) {
        return reclaim_nested(shortage);
    }
    umf_thread_slot_tls.is_reclaiming = true;
    outcome_t outcome = reclaim_all(shortage);
    for (unsigned i = 0; outcome == SHORT && i < ATTEMPTS && ask_program(shortage, i); i++) {
        outcome = reclaim_all(shortage);
    }
    umf_thread_slot_tls.is_reclaiming = false;
    if (outcome == SERVED) {
        umf_thread_slot_tls.is_refused = false;
    }
    return outcome == SERVED;
}
