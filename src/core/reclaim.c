#include "core/reclaim.h"

#include "base/lock.h"
#include "base/thread_slot.h"
#include "cache/decay.h"
#include "core/object.h"
#include "system/pause.h"

/*
 * Threads that visit pools of others. A visitor announces the pool and then looks whether it is
 * ending; the thread that ends a pool says so and then waits for its visitors. So a pool is not
 * destroyed under a visitor, and nobody takes a lock.
 */
#define VISITORS 8

typedef struct visitor_t {
    _Atomic bool is_taken;
    _Atomic unsigned forks; /* in a child of fork the visitors of the parent do not exist */
    _Atomic(umf_memory_pool_handle_t) at;
} visitor_t;

static visitor_t visitors[VISITORS];
static _Atomic unsigned visitor_count; /* a hint: 0 means that there are none */

static bool is_of_parent(const visitor_t *visitor) {
    return atomic_load_explicit(&visitor->forks, memory_order_relaxed) != umf_fork_count();
}

/* NULL: many threads reclaim at this moment. */
static visitor_t *visitor_take(void) {
    for (visitor_t *visitor = visitors; visitor < visitors + VISITORS; visitor++) {
        if (!atomic_exchange(&visitor->is_taken, true) || is_of_parent(visitor)) {
            atomic_store(&visitor->forks, umf_fork_count());
            atomic_fetch_add(&visitor_count, 1);
            return visitor;
        }
    }
    return NULL;
}

static void visitor_leave(visitor_t *visitor) {
    atomic_store(&visitor->at, NULL);
    atomic_store(&visitor->is_taken, false);
    atomic_fetch_sub(&visitor_count, 1);
}

/* By index: whether the pool may be visited. Not in the pool, whose memory may be freed while it is
 * read. */
static _Atomic bool is_open[(size_t)1 << UMF_MAP_ENTRY_POOL_BITS];

/* The pool with this index, which stays alive and awake until the visitor goes on. NULL: there is
 * none. */
static umf_memory_pool_handle_t visit(visitor_t *visitor, uint32_t index) {
    umf_memory_pool_handle_t pool = atomic_load(&umf_pool_table[index]);
    atomic_store(&visitor->at, pool);
    bool is_alive =
        pool && atomic_load(&is_open[index]) && atomic_load(&umf_pool_table[index]) == pool;
    return is_alive && !atomic_load(&pool->is_asleep) ? pool : NULL;
}

void umf_reclaim_begin(umf_memory_pool_handle_t pool) {
    atomic_store_explicit(&is_open[pool->index], true, memory_order_release);
}

void umf_reclaim_end(umf_memory_pool_handle_t pool) {
    atomic_store(&is_open[pool->index], false);
    umf_reclaim_leave(pool);
}

void umf_reclaim_leave(umf_memory_pool_handle_t pool) {
    if (umf_likely(atomic_load(&visitor_count) == 0)) {
        return;
    }
    for (visitor_t *visitor = visitors; visitor < visitors + VISITORS; visitor++) {
        for (unsigned round = 0; atomic_load(&visitor->at) == pool && !is_of_parent(visitor);
             round++) {
            umf_pause(round);
        }
    }
}

/* Calls `one` for every pool that is neither ending nor asleep. */
static void each_pool(void (*one)(umf_memory_pool_handle_t pool, void *arg), void *arg) {
    visitor_t *visitor = visitor_take();
    for (uint32_t i = 1; visitor && i <= umf_pool_highest_index(); i++) {
        umf_memory_pool_handle_t pool = visit(visitor, i);
        if (pool) {
            one(pool, arg);
        }
    }
    if (visitor) {
        visitor_leave(visitor);
    }
}

/* --- ticks --- */

static void tick_one(umf_memory_pool_handle_t pool, void *arg) {
    (void)arg;
    if (pool->fast && pool->fast->tick) {
        pool->fast->tick(pool->self);
    }
}

void umf_reclaim_tick(void) {
    static umf_decay_t clock;
    umf_thread_slot_tls.frees_left = UMF_THREAD_SLOT_TICK_FREES;
    if (!umf_thread_slot_tls.is_reclaiming && umf_decay_is_tick_due(&clock)) {
        umf_thread_slot_tls.is_reclaiming = true;
        each_pool(tick_one, NULL);
        umf_thread_slot_tls.is_reclaiming = false;
    }
}

/* --- a request that has failed --- */

typedef struct trim_t {
    const umf_shortage_t *shortage;
    bool is_any;
} trim_t;

static void trim_one(umf_memory_pool_handle_t pool, void *arg) {
    trim_t *trim = arg;
    const umf_tracked_provider_t *own = trim->shortage->tracked;
    if (pool->provider->root == own->root && pool->tracked != own) {
        trim->is_any |= umf_pool_trim(pool, 0) == UMF_RESULT_SUCCESS;
    }
}

/* What the pools of the same provider keep. */
static bool trim_others(const umf_shortage_t *shortage) {
    trim_t trim = {.shortage = shortage};
    each_pool(trim_one, &trim);
    return trim.is_any;
}

/* What the provider caches. */
static bool drop_reusable(const umf_shortage_t *shortage) {
    umf_memory_provider_handle_t root = shortage->tracked->root;
    umf_provider_drop_reusable(root, false);
    return root->ext->reuse_drop != NULL;
}

/* What the pool itself keeps. The request is repeated until nothing was out of sight meanwhile. */
static bool reclaim_own(const umf_shortage_t *shortage) {
    umf_withheld_part_t part;
    bool is_served;
    umf_withheld_look(shortage->withheld, &part);
    do {
        shortage->give_back(shortage->pool);
        is_served = shortage->attempt(shortage->pool, shortage->request);
    } while (umf_withheld_again(&part, is_served));
    return is_served;
}

typedef bool (*release_t)(const umf_shortage_t *shortage);

bool umf_reclaim(const umf_shortage_t *shortage) {
    static const release_t elsewhere[] = {trim_others, drop_reusable};
    if (umf_thread_slot_tls.is_reclaiming) {
        return false;
    }
    umf_thread_slot_tls.is_reclaiming = true;
    bool is_served = reclaim_own(shortage);
    for (size_t i = 0; i < UMF_COUNT_OF(elsewhere) && !is_served; i++) {
        is_served = elsewhere[i](shortage) && shortage->attempt(shortage->pool, shortage->request);
    }
    umf_thread_slot_tls.is_reclaiming = false;
    return is_served;
}
