/*
 * Suspend and resume of pools: one transaction over any number of them.
 *
 * Suspend: claim all pools, plan each (which pieces can go), keep their content, and only then let
 * memory go. Resume: make all memory, map it, bring the content back. A step that fails undoes what
 * was done before it, in the opposite order.
 */
#include "suspend/suspend.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "suspend/pinned.h"
#include "suspend/store.h"
#include "suspend/watch.h"

typedef struct sleep_piece_t {
    char *base;
    size_t size;
    size_t parts;      /* of the list of parts: those up to this one lie in this piece or before */
    _Atomic bool gone; /* freed while suspended */
} sleep_piece_t;

/* Hangs on a pool from its first policy or suspend on, until it is destroyed. */
typedef struct sleep_t {
    umf_memory_pool_handle_t pool; /* Immutable */
    umf_suspend_policy_t policy;
    char *folder;              /* of the policy; a copy */
    umf_suspend_state_t state; /* Sync: sleep_lock */
    umf_watch_t watch;         /* see watch.h */
    /* While it is not resident: */
    sleep_piece_t *pieces;   /* by address */
    void **bases;            /* of pieces, for the provider's operations */
    umf_store_part_t *parts; /* what is allocated in the pieces: only that is kept */
    size_t count, part_count, room;
    size_t bytes;      /* of all pieces */
    size_t part_bytes; /* of all parts */
    umf_store_t *store;
    umf_memory_pool_ops_t awake; /* the pool's operations */
} sleep_t;

UMF_LOCK_STATIC(sleep_lock, UMF_RANK_SUSPEND);

/* One call's pools. */
typedef struct sleepers_t {
    sleep_t **list;
    size_t count;
    const umf_suspend_params_t *params;
    umf_suspend_report_t report;
} sleepers_t;

/* --- what can be suspended -------------------------------------------------------------------- */

static umf_memory_provider_handle_t sleep_provider(const sleep_t *sleep) {
    return sleep->pool->provider;
}

static bool ext_has_vm(const umf_memory_provider_ext_ops_t *ext) {
    return ext->vm_find && ext->vm_detach && ext->vm_create && ext->vm_attach && ext->vm_discard &&
           ext->wait;
}

static umf_result_t pool_check(umf_memory_pool_handle_t pool) {
    if (!pool->view) {
        UMF_LOG_ERROR("pool %p does not track its memory, so it cannot be suspended", (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!ext_has_vm(pool->provider->ext)) {
        UMF_LOG_ERROR("the provider of pool %p has no virtual memory: use linux_vmm, cuda_vmm or "
                      "level_zero_vmm",
                      (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (pool->fast && pool->fast->data_inside) {
        UMF_LOG_ERROR("pool %p keeps its own data in its memory, so it cannot be suspended",
                      (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return UMF_RESULT_SUCCESS;
}

static sleep_t *sleep_of(umf_memory_pool_handle_t pool) {
    return atomic_load_explicit(&pool->sleep, memory_order_acquire);
}

static umf_result_t sleep_get(umf_memory_pool_handle_t pool, sleep_t **out) {
    umf_result_t result = pool_check(pool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    sleep_t *found = sleep_of(pool);
    if (!found) {
        sleep_t *made = umf_meta_alloc(sizeof(*made));
        if (!made) {
            UMF_LOG_ERROR("no memory for bookkeeping");
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        made->pool = pool;
        made->policy = (umf_suspend_policy_t)UMF_SUSPEND_POLICY_INIT;
        void *none = NULL;
        if (atomic_compare_exchange_strong(&pool->sleep, &none, made)) {
            found = made;
        } else {
            umf_meta_free(made, sizeof(*made));
            found = none;
        }
    }
    *out = found;
    return UMF_RESULT_SUCCESS;
}

/* --- policy ----------------------------------------------------------------------------------- */

static umf_result_t policy_check(umf_memory_pool_handle_t pool,
                                 const umf_suspend_policy_t *policy) {
    if (!pool || !policy || policy->struct_size < sizeof(*policy)) {
        UMF_LOG_ERROR("pool or policy is NULL, or its struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (policy->keep < UMF_SUSPEND_KEEP_PINNED || policy->keep > UMF_SUSPEND_DISCARD) {
        UMF_LOG_ERROR("%d is no umf_suspend_keep_t", (int)policy->keep);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (policy->keep == UMF_SUSPEND_KEEP_FILE && (!policy->folder || !*policy->folder)) {
        UMF_LOG_ERROR("content is to be kept in a file, but no folder is given");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (policy->keep == UMF_SUSPEND_KEEP_PEER && policy->device < 0) {
        UMF_LOG_ERROR("content is to be kept on another device, but none is given");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static size_t text_bytes(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

static umf_result_t policy_set_locked(sleep_t *sleep, const umf_suspend_policy_t *policy,
                                      char *folder) {
    umf_assert_locked(&sleep_lock);
    if (sleep->state != UMF_SUSPEND_STATE_RESIDENT) {
        UMF_LOG_ERROR("the pool is suspended: its content is kept in the old way");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_meta_free(sleep->folder, text_bytes(sleep->folder));
    sleep->folder = folder;
    sleep->policy = *policy;
    sleep->policy.folder = folder;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfPoolSetSuspendPolicy(umf_memory_pool_handle_t pool,
                                                   const umf_suspend_policy_t *policy) {
    sleep_t *sleep;
    umf_result_t result = policy_check(pool, policy);
    if (result == UMF_RESULT_SUCCESS) {
        result = sleep_get(pool, &sleep);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!umf_store_can(pool->provider, policy->keep) ||
        (policy->keep == UMF_SUSPEND_KEEP_PEER &&
         !umf_store_reaches(pool->provider, policy->device))) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    char *folder = NULL;
    if (policy->keep == UMF_SUSPEND_KEEP_FILE) {
        folder = umf_meta_alloc(text_bytes(policy->folder));
        if (!folder) {
            UMF_LOG_ERROR("no memory for the name of a folder");
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        memcpy(folder, policy->folder, text_bytes(policy->folder));
    }
    umf_lock(&sleep_lock);
    result = policy_set_locked(sleep, policy, folder);
    umf_unlock(&sleep_lock);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(folder, text_bytes(folder));
    }
    return result;
}

/* --- who has addresses of it ------------------------------------------------------------------ */

/* Locks, if the pool is resident. */
static umf_result_t watch_lock(umf_memory_pool_handle_t pool, sleep_t **sleep) {
    if (!pool) {
        UMF_LOG_ERROR("pool is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = sleep_get(pool, sleep);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&sleep_lock);
    if ((*sleep)->state != UMF_SUSPEND_STATE_RESIDENT) {
        umf_unlock(&sleep_lock);
        UMF_LOG_ERROR("pool %p is not resident", (void *)pool);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfPoolForbidSuspend(umf_memory_pool_handle_t pool) {
    sleep_t *sleep;
    umf_result_t result = watch_lock(pool, &sleep);
    if (result == UMF_RESULT_SUCCESS) {
        sleep->watch.forbids++;
        umf_unlock(&sleep_lock);
    }
    return result;
}

UMF_API_EXT_1 umf_result_t umfPoolAllowSuspend(umf_memory_pool_handle_t pool) {
    sleep_t *sleep;
    umf_result_t result = watch_lock(pool, &sleep);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    bool was_forbidden = sleep->watch.forbids > 0;
    sleep->watch.forbids -= was_forbidden;
    umf_unlock(&sleep_lock);
    if (!was_forbidden) {
        UMF_LOG_ERROR("suspending pool %p was not forbidden", (void *)pool);
    }
    return was_forbidden ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1 umf_result_t umfPoolAddSuspendCallback(umf_memory_pool_handle_t pool,
                                                     umf_suspend_callback_t callback, void *arg) {
    sleep_t *sleep;
    if (!callback) {
        UMF_LOG_ERROR("callback is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = watch_lock(pool, &sleep);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    bool is_added = umf_watch_add(&sleep->watch, callback, arg);
    umf_unlock(&sleep_lock);
    if (!is_added) {
        UMF_LOG_ERROR("no memory for a callback");
    }
    return is_added ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

UMF_API_EXT_1 umf_result_t umfPoolRemoveSuspendCallback(umf_memory_pool_handle_t pool,
                                                        umf_suspend_callback_t callback,
                                                        void *arg) {
    sleep_t *sleep;
    umf_result_t result = watch_lock(pool, &sleep);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    bool is_removed = umf_watch_remove(&sleep->watch, callback, arg);
    umf_unlock(&sleep_lock);
    if (!is_removed) {
        UMF_LOG_ERROR("pool %p has no such callback", (void *)pool);
    }
    return is_removed ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* Before anything is done to any of them. */
static umf_result_t tell_suspend(const sleepers_t *all) {
    for (size_t i = 0; i < all->count; i++) {
        umf_result_t result = umf_watch_tell_suspend(&all->list[i]->watch, all->list[i]->pool);
        if (result != UMF_RESULT_SUCCESS) {
            for (size_t told = 0; told < i; told++) {
                umf_watch_tell_resume(&all->list[told]->watch, all->list[told]->pool);
            }
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

/* --- a suspended pool ------------------------------------------------------------------------- */

static void *asleep_malloc(void *pool, size_t size) {
    (void)pool, (void)size;
    return NULL;
}

static void *asleep_calloc(void *pool, size_t num, size_t size) {
    (void)pool, (void)num, (void)size;
    return NULL;
}

static void *asleep_realloc(void *pool, void *ptr, size_t size) {
    (void)pool, (void)ptr, (void)size;
    return NULL;
}

static umf_result_t asleep_last_error(void *pool) {
    (void)pool;
    return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

/* Other threads may be calling: each operation is replaced at once. */
#define OPS_SET(pool, operation, function)                                                         \
    __atomic_store_n(&(pool)->ops.operation, (function), __ATOMIC_RELEASE)

static void sleep_close_pool(sleep_t *sleep) {
    umf_memory_pool_handle_t pool = sleep->pool;
    sleep->awake = pool->ops;
    umf_pool_small_close(pool);
    OPS_SET(pool, get_last_allocation_error, asleep_last_error);
    OPS_SET(pool, malloc, asleep_malloc);
    OPS_SET(pool, calloc, asleep_calloc);
    OPS_SET(pool, realloc, asleep_realloc);
    OPS_SET(pool, aligned_malloc, asleep_calloc);
}

static void sleep_open_pool(sleep_t *sleep) {
    umf_memory_pool_handle_t pool = sleep->pool;
    OPS_SET(pool, malloc, sleep->awake.malloc);
    OPS_SET(pool, calloc, sleep->awake.calloc);
    OPS_SET(pool, realloc, sleep->awake.realloc);
    OPS_SET(pool, aligned_malloc, sleep->awake.aligned_malloc);
    OPS_SET(pool, get_last_allocation_error, sleep->awake.get_last_allocation_error);
    umf_pool_small_open(pool);
}

static void sleep_forget_pieces(sleep_t *sleep) {
    umf_store_destroy(sleep->store);
    umf_meta_free(sleep->pieces, sleep->room * sizeof(*sleep->pieces));
    umf_meta_free(sleep->bases, sleep->room * sizeof(*sleep->bases));
    umf_meta_free(sleep->parts, sleep->room * sizeof(*sleep->parts));
    sleep->store = NULL;
    sleep->pieces = NULL;
    sleep->bases = NULL;
    sleep->parts = NULL;
    sleep->count = sleep->part_count = sleep->room = sleep->bytes = sleep->part_bytes = 0;
}

static void sleep_set_state(sleep_t *sleep, umf_suspend_state_t state) {
    umf_lock(&sleep_lock);
    sleep->state = state;
    umf_unlock(&sleep_lock);
}

/* Which piece of a suspended pool holds the address; NULL if none does. */
static sleep_piece_t *sleep_find(const sleep_t *sleep, uintptr_t addr) {
    size_t low = 0, high = sleep->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const sleep_piece_t *piece = &sleep->pieces[middle];
        if (addr < (uintptr_t)piece->base) {
            high = middle;
        } else if (addr - (uintptr_t)piece->base >= piece->size) {
            low = middle + 1;
        } else {
            return &sleep->pieces[middle];
        }
    }
    return NULL;
}

/*
 * An allocation of the pool went back to the provider. If it was the last of its piece the piece is
 * gone, and another may have its addresses already: one that is attached.
 */
void umf_suspend_freed(umf_memory_pool_handle_t pool, const void *ptr) {
    sleep_t *sleep = sleep_of(pool);
    if (!sleep || sleep->count == 0) {
        return;
    }
    umf_memory_provider_handle_t provider = sleep_provider(sleep);
    sleep_piece_t *piece = sleep_find(sleep, (uintptr_t)ptr);
    umf_vm_piece_t now;
    if (piece && (provider->ext->vm_find(provider->self, piece->base, &now) != UMF_RESULT_SUCCESS ||
                  now.attached || now.base != piece->base)) {
        piece->gone = true;
    }
}

void umf_suspend_drop_pool(umf_memory_pool_handle_t pool) {
    sleep_t *sleep = sleep_of(pool);
    if (sleep) {
        sleep_forget_pieces(sleep);
        umf_watch_fini(&sleep->watch);
        umf_meta_free(sleep->folder, text_bytes(sleep->folder));
        umf_meta_free(sleep, sizeof(*sleep));
        atomic_store(&pool->sleep, NULL);
    }
}

/* --- claiming --------------------------------------------------------------------------------- */

static bool sleepers_have(const sleepers_t *all, const sleep_t *sleep) {
    for (size_t i = 0; i < all->count; i++) {
        if (all->list[i] == sleep) {
            return true;
        }
    }
    return false;
}

/* Pools that are in `from` go over to `to`; those that are in the end state already stay out. */
static umf_result_t claim_locked(sleepers_t *all, sleep_t *sleep, umf_suspend_state_t from,
                                 umf_suspend_state_t to, umf_suspend_state_t end) {
    if (sleepers_have(all, sleep) || sleep->state == end) {
        return UMF_RESULT_SUCCESS;
    }
    if (sleep->state != from) {
        UMF_LOG_ERROR("pool %p is being suspended or resumed by another call", (void *)sleep->pool);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (to == UMF_SUSPEND_STATE_SUSPENDING && sleep->watch.forbids > 0) {
        UMF_LOG_ERROR("pool %p must not be suspended: umfPoolForbidSuspend was called %zu times "
                      "more than umfPoolAllowSuspend",
                      (void *)sleep->pool, sleep->watch.forbids);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    sleep->state = to;
    all->list[all->count++] = sleep;
    return UMF_RESULT_SUCCESS;
}

static void unclaim(sleepers_t *all, umf_suspend_state_t state) {
    for (size_t i = 0; i < all->count; i++) {
        sleep_set_state(all->list[i], state);
    }
}

static umf_result_t claim(sleepers_t *all, umf_memory_pool_handle_t *pools, size_t num,
                          umf_suspend_state_t from, umf_suspend_state_t to,
                          umf_suspend_state_t end) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < num && result == UMF_RESULT_SUCCESS; i++) {
        sleep_t *sleep = NULL;
        result = sleep_get(pools[i], &sleep);
        if (result == UMF_RESULT_SUCCESS) {
            umf_lock(&sleep_lock);
            result = claim_locked(all, sleep, from, to, end);
            umf_unlock(&sleep_lock);
        }
    }
    if (result != UMF_RESULT_SUCCESS) {
        unclaim(all, from);
    }
    return result;
}

static umf_result_t wait_for_work(const sleepers_t *all) {
    const umf_suspend_params_t *params = all->params;
    for (size_t i = 0; i < all->count; i++) {
        umf_memory_provider_handle_t provider = sleep_provider(all->list[i]);
        umf_result_t result = provider->ext->wait(
            provider->self, params->queues, params->num_queues, params->events, params->num_events);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

/* --- planning: which pieces go ---------------------------------------------------------------- */

typedef struct plan_span_t {
    uintptr_t base;
    size_t size;
} plan_span_t;

typedef struct plan_t {
    sleep_t *sleep;
    plan_span_t *spans;
    size_t count, room;
    size_t exported;
    bool overflow; /* more spans came while they were counted */
} plan_t;

static void plan_visit(umf_span_t *span, void *arg) {
    plan_t *plan = arg;
    if (plan->count == plan->room) {
        plan->overflow = true;
        return;
    }
    if (atomic_load(&span->export)) {
        plan->exported += span->size;
    }
    plan->spans[plan->count++] = (plan_span_t){span->base, span->size};
}

static int plan_compare(const void *a, const void *b) {
    uintptr_t left = ((const plan_span_t *)a)->base, right = ((const plan_span_t *)b)->base;
    return (left > right) - (left < right);
}

/* Adds a span to the parts; one that touches the last is joined to it. */
static void plan_part(sleep_t *sleep, const plan_span_t *span, bool is_first) {
    umf_store_part_t *last = sleep->part_count ? &sleep->parts[sleep->part_count - 1] : NULL;
    if (!is_first && last->base + last->size == (char *)span->base) {
        last->size += span->size;
    } else {
        sleep->parts[sleep->part_count++] = (umf_store_part_t){
            .base = (char *)span->base, .size = span->size, .offset = sleep->part_bytes};
    }
    sleep->part_bytes += span->size;
}

/* Adds a piece if all of its allocations are the pool's: the `count` spans. */
static void plan_piece(sleep_t *sleep, const umf_vm_piece_t *piece, const plan_span_t *spans,
                       size_t count, umf_suspend_report_t *report) {
    if (!piece->attached) {
        return;
    }
    if (piece->allocations != count) {
        report->shared += piece->size;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        plan_part(sleep, &spans[i], i == 0);
    }
    sleep_piece_t *added = &sleep->pieces[sleep->count];
    added->base = piece->base;
    added->size = piece->size;
    added->parts = sleep->part_count;
    sleep->bases[sleep->count++] = piece->base;
    sleep->bytes += piece->size;
}

static umf_result_t plan_pieces(plan_t *plan, umf_suspend_report_t *report) {
    sleep_t *sleep = plan->sleep;
    umf_memory_provider_handle_t provider = sleep_provider(sleep);
    umf_vm_piece_t piece = {0};
    size_t seen = 0;
    for (size_t i = 0; i < plan->count; i++) {
        if (seen > 0 && plan->spans[i].base - (uintptr_t)piece.base < piece.size) {
            seen++;
            continue;
        }
        if (seen > 0) {
            plan_piece(sleep, &piece, &plan->spans[i - seen], seen, report);
        }
        umf_result_t result =
            provider->ext->vm_find(provider->self, (void *)plan->spans[i].base, &piece);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        seen = 1;
    }
    if (seen > 0) {
        plan_piece(sleep, &piece, &plan->spans[plan->count - seen], seen, report);
    }
    return UMF_RESULT_SUCCESS;
}

/* Handles given out describe memory that is about to go. */
static void plan_drop_exports(const plan_t *plan) {
    for (size_t i = 0; i < plan->count; i++) {
        umf_span_t *span = umf_view_find(plan->sleep->pool->view, (void *)plan->spans[i].base);
        if (span) {
            umf_core_export_drop(span, sleep_provider(plan->sleep));
        }
    }
}

static umf_result_t plan_room(sleep_t *sleep, size_t room) {
    sleep->room = room;
    sleep->pieces = umf_meta_alloc(room * sizeof(*sleep->pieces));
    sleep->bases = umf_meta_alloc(room * sizeof(*sleep->bases));
    sleep->parts = umf_meta_alloc(room * sizeof(*sleep->parts));
    return sleep->pieces && sleep->bases && sleep->parts ? UMF_RESULT_SUCCESS
                                                         : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static umf_result_t sleep_plan(sleep_t *sleep, umf_suspend_report_t *report) {
    size_t room = umf_view_span_count(sleep->pool->view);
    if (room == 0) {
        return UMF_RESULT_SUCCESS;
    }
    plan_t plan = {
        .sleep = sleep, .room = room, .spans = umf_meta_alloc(room * sizeof(plan_span_t))};
    umf_result_t result = plan.spans ? plan_room(sleep, room) : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (result == UMF_RESULT_SUCCESS) {
        umf_view_each_span(sleep->pool->view, plan_visit, &plan);
        if (plan.overflow) {
            UMF_LOG_ERROR("pool %p is used while it is being suspended", (void *)sleep->pool);
            result = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
        }
    }
    if (result == UMF_RESULT_SUCCESS) {
        qsort(plan.spans, plan.count, sizeof(*plan.spans), plan_compare);
        result = plan_pieces(&plan, report);
        plan_drop_exports(&plan);
    }
    report->exported += plan.exported;
    umf_meta_free(plan.spans, room * sizeof(*plan.spans));
    return result;
}

/* --- keeping and bringing back ---------------------------------------------------------------- */

static bool is_kept(const sleep_t *sleep) {
    return sleep->policy.keep != UMF_SUSPEND_ZERO && sleep->policy.keep != UMF_SUSPEND_DISCARD;
}

static umf_result_t sleep_save(sleep_t *sleep) {
    if (sleep->count == 0 || !is_kept(sleep)) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_store_can(sleep_provider(sleep), sleep->policy.keep)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result =
        umf_store_create(sleep_provider(sleep), &sleep->policy, sleep->part_bytes, &sleep->store);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_store_save(sleep->store, sleep->parts, sleep->part_count);
    }
    return result;
}

static umf_result_t sleep_zero(sleep_t *sleep) {
    umf_memory_provider_handle_t provider = sleep_provider(sleep);
    void *queue;
    umf_result_t result = provider->ext->queue_create(provider->self, &queue);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    for (size_t i = 0; i < sleep->part_count && result == UMF_RESULT_SUCCESS; i++) {
        result = provider->ext->fill(provider->self, queue, sleep->parts[i].base, 0,
                                     sleep->parts[i].size);
    }
    umf_result_t waited = provider->ext->queue_wait(provider->self, queue);
    provider->ext->queue_destroy(provider->self, queue);
    return result != UMF_RESULT_SUCCESS ? result : waited;
}

static umf_result_t sleep_load(sleep_t *sleep) {
    if (sleep->count == 0 || sleep->policy.keep == UMF_SUSPEND_DISCARD) {
        return UMF_RESULT_SUCCESS;
    }
    return sleep->policy.keep == UMF_SUSPEND_ZERO
               ? sleep_zero(sleep)
               : umf_store_load(sleep->store, sleep->parts, sleep->part_count);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Pieces that were freed meanwhile are no longer ours. */
static void sleep_prune(sleep_t *sleep) {
    size_t pieces = 0, parts = 0, first = 0;
    for (size_t i = 0; i < sleep->count; i++) {
        sleep_piece_t *piece = &sleep->pieces[i];
        size_t end = piece->parts;
        if (piece->gone) {
            sleep->bytes -= piece->size;
        } else {
            memmove(&sleep->parts[parts], &sleep->parts[first],
                    (end - first) * sizeof(*sleep->parts));
            parts += end - first;
            sleep->bases[pieces] = piece->base;
            sleep->pieces[pieces].base = piece->base;
            sleep->pieces[pieces].size = piece->size;
            sleep->pieces[pieces].parts = parts;
            sleep->pieces[pieces].gone = false;
            pieces++;
        }
        first = end;
    }
    sleep->count = pieces;
    sleep->part_count = parts;
}

static umf_result_t sleep_create(sleep_t *sleep, size_t *missing) {
    umf_memory_provider_handle_t provider = sleep_provider(sleep);
    return sleep->count
               ? provider->ext->vm_create(provider->self, sleep->bases, sleep->count, missing)
               : UMF_RESULT_SUCCESS;
}

static umf_result_t sleep_attach(sleep_t *sleep) {
    umf_memory_provider_handle_t provider = sleep_provider(sleep);
    return sleep->count ? provider->ext->vm_attach(provider->self, sleep->bases, sleep->count)
                        : UMF_RESULT_SUCCESS;
}

static void sleep_discard(sleep_t *sleep) {
    umf_memory_provider_handle_t provider = sleep_provider(sleep);
    if (sleep->count) {
        provider->ext->vm_discard(provider->self, sleep->bases, sleep->count);
    }
}

static umf_result_t sleep_detach(sleep_t *sleep) {
    umf_memory_provider_handle_t provider = sleep_provider(sleep);
    return sleep->count ? provider->ext->vm_detach(provider->self, sleep->bases, sleep->count)
                        : UMF_RESULT_SUCCESS;
}

/* Bytes whose content is in the store and still wanted. */
static size_t sleep_kept(const sleep_t *sleep) {
    size_t bytes = 0, part = 0;
    for (size_t i = 0; i < sleep->count; i++) {
        for (; part < sleep->pieces[i].parts; part++) {
            bytes += sleep->pieces[i].gone ? 0 : sleep->parts[part].size;
        }
    }
    return bytes;
}

/* --- the transactions ------------------------------------------------------------------------- */

/* All memory for all pools, or for none. */
static umf_result_t make_memory(sleepers_t *all) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    size_t created = 0, attached = 0, missing = 0;
    while (created < all->count && result == UMF_RESULT_SUCCESS) {
        result = sleep_create(all->list[created], &missing);
        created += result == UMF_RESULT_SUCCESS;
    }
    if (result != UMF_RESULT_SUCCESS) {
        for (size_t i = created + 1; i < all->count; i++) {
            missing += all->list[i]->bytes;
        }
        all->report.missing = missing;
        UMF_LOG_ERROR("%zu bytes of memory are missing; the pools stay suspended", missing);
    }
    while (attached < created && result == UMF_RESULT_SUCCESS) {
        result = sleep_attach(all->list[attached]);
        attached += result == UMF_RESULT_SUCCESS;
    }
    if (result != UMF_RESULT_SUCCESS) {
        for (size_t i = 0; i < created; i++) {
            if (i < attached) {
                sleep_detach(all->list[i]);
            } else {
                sleep_discard(all->list[i]);
            }
        }
    }
    return result;
}

/* Brings back what went of a pool before something failed: all, some or nothing of it. */
static umf_result_t sleep_restore(sleep_t *sleep) {
    umf_memory_provider_handle_t provider = sleep_provider(sleep);
    umf_result_t result = UMF_RESULT_SUCCESS;
    bool went = false;
    for (size_t i = 0; i < sleep->count && result == UMF_RESULT_SUCCESS; i++) {
        umf_vm_piece_t piece;
        size_t missing;
        result = provider->ext->vm_find(provider->self, sleep->bases[i], &piece);
        if (result == UMF_RESULT_SUCCESS && !piece.attached) {
            went = true;
            result = provider->ext->vm_create(provider->self, &sleep->bases[i], 1, &missing);
            if (result == UMF_RESULT_SUCCESS) {
                result = provider->ext->vm_attach(provider->self, &sleep->bases[i], 1);
            }
        }
    }
    return went && result == UMF_RESULT_SUCCESS ? sleep_load(sleep) : result;
}

/* A failed suspend: everything is as it was before. */
static void suspend_undo(sleepers_t *all) {
    for (size_t i = 0; i < all->count; i++) {
        sleep_t *sleep = all->list[i];
        if (sleep_restore(sleep) == UMF_RESULT_SUCCESS) {
            sleep_open_pool(sleep);
            sleep_forget_pieces(sleep);
            umf_watch_tell_resume(&sleep->watch, sleep->pool);
            sleep_set_state(sleep, UMF_SUSPEND_STATE_RESIDENT);
        } else {
            UMF_LOG_ERROR("pool %p stays suspended, its content is kept", (void *)sleep->pool);
            sleep_set_state(sleep, UMF_SUSPEND_STATE_SUSPENDED);
        }
    }
}

static umf_result_t suspend_all(sleepers_t *all) {
    umf_result_t result = tell_suspend(all);
    if (result != UMF_RESULT_SUCCESS) {
        unclaim(all, UMF_SUSPEND_STATE_RESIDENT);
        return result;
    }
    for (size_t i = 0; i < all->count; i++) {
        sleep_close_pool(all->list[i]);
    }
    result = wait_for_work(all);
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        result = sleep_plan(all->list[i], &all->report);
    }
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        result = sleep_save(all->list[i]);
    }
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        result = sleep_detach(all->list[i]);
    }
    if (result != UMF_RESULT_SUCCESS) {
        suspend_undo(all);
        return result;
    }
    for (size_t i = 0; i < all->count; i++) {
        all->report.bytes += all->list[i]->bytes;
        all->report.kept += all->list[i]->store ? sleep_kept(all->list[i]) : 0;
        sleep_set_state(all->list[i], UMF_SUSPEND_STATE_SUSPENDED);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t resume_all(sleepers_t *all) {
    for (size_t i = 0; i < all->count; i++) {
        sleep_prune(all->list[i]);
    }
    umf_result_t result = wait_for_work(all);
    if (result == UMF_RESULT_SUCCESS) {
        result = make_memory(all);
    }
    if (result != UMF_RESULT_SUCCESS) {
        unclaim(all, UMF_SUSPEND_STATE_SUSPENDED);
        return result;
    }
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        result = sleep_load(all->list[i]);
    }
    if (result != UMF_RESULT_SUCCESS) {
        for (size_t i = 0; i < all->count; i++) {
            sleep_detach(all->list[i]);
        }
        unclaim(all, UMF_SUSPEND_STATE_SUSPENDED);
        return result;
    }
    for (size_t i = 0; i < all->count; i++) {
        sleep_t *sleep = all->list[i];
        all->report.bytes += sleep->bytes;
        all->report.kept += sleep->store ? sleep_kept(sleep) : 0;
        sleep_open_pool(sleep);
        sleep_forget_pieces(sleep);
    }
    for (size_t i = 0; i < all->count; i++) {
        umf_watch_tell_resume(&all->list[i]->watch, all->list[i]->pool);
        sleep_set_state(all->list[i], UMF_SUSPEND_STATE_RESIDENT);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- entrances -------------------------------------------------------------------------------- */

static const umf_suspend_params_t params_default = UMF_SUSPEND_PARAMS_INIT;

static umf_result_t check_call(umf_memory_pool_handle_t *pools, size_t num,
                               const umf_suspend_params_t *params,
                               const umf_suspend_report_t *report) {
    bool is_valid = pools && num > 0 &&
                    (!params || (params->struct_size >= sizeof(*params) &&
                                 (params->queues || params->num_queues == 0) &&
                                 (params->events || params->num_events == 0))) &&
                    (!report || report->struct_size >= sizeof(*report));
    for (size_t i = 0; is_valid && i < num; i++) {
        is_valid = pools[i] != NULL;
    }
    if (!is_valid) {
        UMF_LOG_ERROR("no pools, a pool or an array that is NULL, or a struct_size that is too "
                      "small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t run(bool is_resume, umf_memory_pool_handle_t *pools, size_t num,
                        const umf_suspend_params_t *params, umf_suspend_report_t *report) {
    size_t bytes;
    if (!umf_mul(num, sizeof(sleep_t *), &bytes)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    sleepers_t all = {.list = umf_meta_alloc(bytes),
                      .params = params ? params : &params_default,
                      .report = UMF_SUSPEND_REPORT_INIT};
    if (!all.list) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result;
    if (is_resume) {
        result = claim(&all, pools, num, UMF_SUSPEND_STATE_SUSPENDED, UMF_SUSPEND_STATE_RESUMING,
                       UMF_SUSPEND_STATE_RESIDENT);
    } else {
        result = claim(&all, pools, num, UMF_SUSPEND_STATE_RESIDENT, UMF_SUSPEND_STATE_SUSPENDING,
                       UMF_SUSPEND_STATE_SUSPENDED);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = is_resume ? resume_all(&all) : suspend_all(&all);
    }
    if (report) {
        all.report.struct_size = report->struct_size;
        *report = all.report;
    }
    umf_meta_free(all.list, bytes);
    return result;
}

UMF_API_EXT_1 umf_result_t umfPoolsSuspend(umf_memory_pool_handle_t *pools, size_t num,
                                           const umf_suspend_params_t *params,
                                           umf_suspend_report_t *report) {
    umf_result_t result = check_call(pools, num, params, report);
    return result == UMF_RESULT_SUCCESS ? run(false, pools, num, params, report) : result;
}

UMF_API_EXT_1 umf_result_t umfPoolsResume(umf_memory_pool_handle_t *pools, size_t num,
                                          const umf_suspend_params_t *params,
                                          umf_suspend_report_t *report) {
    umf_result_t result = check_call(pools, num, params, report);
    return result == UMF_RESULT_SUCCESS ? run(true, pools, num, params, report) : result;
}

UMF_API_EXT_1 umf_result_t umfPoolGetResidency(umf_memory_pool_handle_t pool,
                                               umf_residency_t *residency) {
    if (!pool || !residency || residency->struct_size < sizeof(*residency)) {
        UMF_LOG_ERROR("pool or residency is NULL, or its struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!pool->view) {
        UMF_LOG_ERROR("pool %p does not track its memory", (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_residency_t now = {.struct_size = residency->struct_size};
    now.reserved = umf_view_bytes(pool->view);
    now.resident = now.reserved;
    sleep_t *sleep = sleep_of(pool);
    if (sleep) {
        umf_lock(&sleep_lock);
        now.state = sleep->state;
        umf_unlock(&sleep_lock);
    }
    if (sleep && now.state == UMF_SUSPEND_STATE_SUSPENDED) {
        size_t away = sleep_kept(sleep), kept = sleep->store ? away : 0;
        now.resident -= away < now.resident ? away : now.resident;
        now.pinned = sleep->policy.keep == UMF_SUSPEND_KEEP_PINNED ? kept : 0;
        now.host = sleep->policy.keep == UMF_SUSPEND_KEEP_HOST ? kept : 0;
        now.file = sleep->policy.keep == UMF_SUSPEND_KEEP_FILE ? kept : 0;
        now.peer = sleep->policy.keep == UMF_SUSPEND_KEEP_PEER ? kept : 0;
    }
    *residency = now;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfSuspendTrim(void) {
    umf_pinned_trim(NULL);
    return UMF_RESULT_SUCCESS;
}

void umf_suspend_init(void) {
    umf_core_freed_asleep = umf_suspend_freed;
    umf_core_sleep_drop = umf_suspend_drop_pool;
    umf_core_provider_ends = umf_pinned_trim;
}
