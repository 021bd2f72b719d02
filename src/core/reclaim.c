#include "core/reclaim.h"

#include "base/lock.h"
#include "base/thread_slot.h"
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

static bool is_of_parent(const visitor_t *visitor) {
    return atomic_load_explicit(&visitor->forks, memory_order_relaxed) != umf_fork_count();
}

/* NULL: many threads reclaim at this moment. */
static visitor_t *visitor_take(void) {
    for (visitor_t *visitor = visitors; visitor < visitors + VISITORS; visitor++) {
        if (!atomic_exchange(&visitor->is_taken, true) || is_of_parent(visitor)) {
            atomic_store(&visitor->forks, umf_fork_count());
            return visitor;
        }
    }
    return NULL;
}

static void visitor_leave(visitor_t *visitor) {
    atomic_store(&visitor->at, NULL);
    atomic_store(&visitor->is_taken, false);
}

/* The pool with this index, which stays alive until the visitor goes on. NULL: there is none. */
static umf_memory_pool_handle_t visit(visitor_t *visitor, uint32_t index) {
    umf_memory_pool_handle_t pool = atomic_load(&umf_pool_table[index]);
    atomic_store(&visitor->at, pool);
    /* The memory of a destroyed pool can be read. If the table still has the pool after the read,
     * it was not destroyed before. */
    return pool && !atomic_load(&pool->is_ending) && atomic_load(&umf_pool_table[index]) == pool
               ? pool
               : NULL;
}

void umf_reclaim_pool_ends(umf_memory_pool_handle_t pool) {
    atomic_store(&pool->is_ending, true);
    for (visitor_t *visitor = visitors; visitor < visitors + VISITORS; visitor++) {
        for (unsigned round = 0; atomic_load(&visitor->at) == pool && !is_of_parent(visitor);
             round++) {
            umf_pause(round);
        }
    }
}

/* What the pools of the same provider keep. A pool that is suspended refuses. */
static bool trim_others(const umf_shortage_t *shortage) {
    umf_memory_provider_handle_t root = shortage->tracked->root;
    visitor_t *visitor = visitor_take();
    bool is_any = false;
    for (uint32_t i = 1; visitor && i <= umf_pool_highest_index(); i++) {
        umf_memory_pool_handle_t pool = visit(visitor, i);
        if (pool && pool->provider->root == root && pool->tracked != shortage->tracked) {
            is_any |= umf_pool_trim(pool, 0) == UMF_RESULT_SUCCESS;
        }
    }
    if (visitor) {
        visitor_leave(visitor);
    }
    return is_any;
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
