/*
 * Suspend and resume of pools: one transaction over any number of pools.
 *
 * A suspend claims all pools, plans each (which pieces can be detached; the provider isolates
 * these from others), saves their content, and only then detaches memory. A resume creates all
 * memory, maps it, and restores the content. A step that fails undoes the steps before it. What
 * cannot be undone stays for the next call: every step passes over pieces that are already in the
 * requested state.
 */
#include "ext/suspend/suspend.h"

#include "base/log.h"
#include "base/meta.h"
#include "ext/staging/pinned.h"
#include "ext/staging/undone.h"
#include "ext/suspend/plan.h"
#include "ext/suspend/suspendable.h"
#include "object/event.h"

/* The pools of one call. */
typedef struct claimed_t {
    umf_suspendable_t **list;
    size_t count;
    const umf_suspend_params_t *params;
    umf_suspend_report_t report;
} claimed_t;

/* --- claiming, notifying, waiting ------------------------------------------------------------- */

static bool claimed_have(const claimed_t *all, const umf_suspendable_t *suspendable) {
    for (size_t i = 0; i < all->count; i++) {
        if (all->list[i] == suspendable) {
            return true;
        }
    }
    return false;
}

/* Moves a pool from state `from` to `to`. A pool that is in the end state already is left out. */
static umf_result_t claim_locked(claimed_t *all, umf_suspendable_t *suspendable,
                                 umf_suspend_state_t from, umf_suspend_state_t to,
                                 umf_suspend_state_t end) {
    if (suspendable->state == end || (suspendable->state == to && claimed_have(all, suspendable))) {
        return UMF_RESULT_SUCCESS;
    }
    if (suspendable->state != from) {
        UMF_LOG_ERROR("pool %p is being suspended or resumed by another call",
                      (void *)suspendable->pool);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (to == UMF_SUSPEND_STATE_SUSPENDING && suspendable->watch.forbids > 0) {
        UMF_LOG_ERROR("pool %p must not be suspended: umfPoolForbidSuspend was called %zu times "
                      "more than umfPoolAllowSuspend",
                      (void *)suspendable->pool, suspendable->watch.forbids);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    suspendable->state = to;
    all->list[all->count++] = suspendable;
    return UMF_RESULT_SUCCESS;
}

static void unclaim(claimed_t *all, umf_suspend_state_t state) {
    for (size_t i = 0; i < all->count; i++) {
        umf_suspendable_set_state(all->list[i], state);
    }
}

static umf_result_t claim(claimed_t *all, umf_memory_pool_handle_t *pools, size_t num,
                          umf_suspend_state_t from, umf_suspend_state_t to,
                          umf_suspend_state_t end) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < num && result == UMF_RESULT_SUCCESS; i++) {
        umf_suspendable_t *suspendable = NULL;
        result = umf_suspendable_get(pools[i], &suspendable);
        if (result == UMF_RESULT_SUCCESS) {
            umf_lock(umf_suspend_lock);
            result = claim_locked(all, suspendable, from, to, end);
            umf_unlock(umf_suspend_lock);
        }
    }
    if (result != UMF_RESULT_SUCCESS) {
        unclaim(all, from);
    }
    return result;
}

/* Notifies the watchers of all pools before the first pool changes. */
static umf_result_t notify_suspend(const claimed_t *all) {
    for (size_t i = 0; i < all->count; i++) {
        umf_result_t result = umf_watch_notify_suspend(&all->list[i]->watch, all->list[i]->pool);
        if (result != UMF_RESULT_SUCCESS) {
            for (size_t notified = 0; notified < i; notified++) {
                umf_watch_notify_resume(&all->list[notified]->watch, all->list[notified]->pool);
            }
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

static const umf_suspend_params_t params_default = UMF_SUSPEND_PARAMS_INIT;

static umf_result_t wait_for(const claimed_t *all, const umf_suspend_params_t *params) {
    for (size_t i = 0; i < all->count; i++) {
        umf_memory_provider_handle_t provider = umf_suspendable_provider(all->list[i]);
        if (i > 0 && provider == umf_suspendable_provider(all->list[i - 1])) {
            continue; /* waited for */
        }
        umf_result_t result = provider->ext->wait(
            provider->self, params->queues, params->num_queues, params->events, params->num_events);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

/* Waits for copies that an earlier call could not wait for (ext/staging/undone.h). Until that
 * succeeds the memory of the pool must not go. */
static umf_result_t suspendable_settle(const umf_suspendable_t *suspendable) {
    umf_result_t result = umf_undone_settle(umf_suspendable_provider(suspendable)->root);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("pool %p keeps its memory, because copies of its content could not be waited "
                      "for: suspend or resume it again later",
                      (void *)suspendable->pool);
    }
    return result;
}

static umf_result_t settle_all(const claimed_t *all) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        result = suspendable_settle(all->list[i]);
    }
    return result;
}

/* Waits before a resume. No work can use memory that is detached. So only the named queues and
 * events are waited for, and the copies of a call that failed. */
static umf_result_t wait_before_resume(const claimed_t *all) {
    const umf_suspend_params_t *named = all->params;
    umf_result_t result = settle_all(all);
    return result == UMF_RESULT_SUCCESS && (named->num_queues || named->num_events)
               ? wait_for(all, named)
               : result;
}

/* --- the transactions ------------------------------------------------------------------------- */

/* Creates the memory of all pools. After a failure some exists, which take_back releases. */
static umf_result_t make_memory(claimed_t *all) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    size_t created = 0, missing = 0;
    while (created < all->count && result == UMF_RESULT_SUCCESS) {
        result = umf_suspendable_create(all->list[created], &missing);
        created += result == UMF_RESULT_SUCCESS;
    }
    if (result != UMF_RESULT_SUCCESS) {
        for (size_t i = created + 1; i < all->count; i++) {
            missing += all->list[i]->bytes;
        }
        all->report.missing = missing;
        UMF_LOG_ERROR("%zu bytes of memory are missing; the pools stay suspended", missing);
    }
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        result = umf_suspendable_attach(all->list[i]);
    }
    return result;
}

/* Releases the memory that a failed resume has created. */
static void take_back(claimed_t *all) {
    for (size_t i = 0; i < all->count; i++) {
        if (suspendable_settle(all->list[i]) == UMF_RESULT_SUCCESS &&
            umf_suspendable_detach(all->list[i]) != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("pool %p stays suspended, but not all of its memory could be given back; "
                          "the next resume uses that",
                          (void *)all->list[i]->pool);
        }
        umf_suspendable_set_state(all->list[i], UMF_SUSPEND_STATE_SUSPENDED);
    }
}

/* Restores pieces of a pool that were detached before a failure: all, some or none of its pieces.
 */
static umf_result_t suspendable_restore(umf_suspendable_t *suspendable) {
    size_t missing;
    if (umf_plan_away(suspendable) == 0) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = umf_suspendable_create(suspendable, &missing);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_suspendable_attach(suspendable);
    }
    return result == UMF_RESULT_SUCCESS ? umf_suspendable_load(suspendable) : result;
}

/* Ends the suspension of a pool that has its memory again. */
static void suspendable_end(umf_suspendable_t *suspendable) {
    umf_plan_forget(suspendable);
    umf_suspendable_open_pool(suspendable);
}

/* Undoes a failed suspend. `is_notified`: callbacks have run for the loss of the memory. */
static void suspend_undo(claimed_t *all, bool is_notified) {
    for (size_t i = 0; i < all->count; i++) {
        umf_suspendable_t *suspendable = all->list[i];
        if (suspendable_restore(suspendable) == UMF_RESULT_SUCCESS) {
            if (is_notified) {
                umf_suspendable_notify_mapped(suspendable);
            }
            suspendable_end(suspendable);
            umf_watch_notify_resume(&suspendable->watch, suspendable->pool);
            umf_suspendable_set_state(suspendable, UMF_SUSPEND_STATE_RESIDENT);
        } else {
            UMF_LOG_ERROR("pool %p stays suspended, its content is kept: resume it when there is "
                          "memory for it",
                          (void *)suspendable->pool);
            umf_suspendable_set_state(suspendable, UMF_SUSPEND_STATE_SUSPENDED);
        }
    }
}

static bool find_used(umf_span_t *span, void *found) {
    bool is_used = umf_is_used(umf_span_index(span));
    if (is_used) {
        *(uint32_t *)found = umf_span_index(span);
    }
    return !is_used;
}

/* Waits for copies from and to the pool (umf/copy.h). No new ones begin, because it is closed. */
static void wait_for_copies(umf_memory_pool_handle_t pool) {
    for (uint32_t used = 1; used;) {
        used = 0;
        umf_tracked_each_span(pool->tracked, find_used, &used);
        umf_use_wait(used);
    }
}

static umf_result_t suspend_all(claimed_t *all) {
    umf_result_t result = notify_suspend(all);
    if (result != UMF_RESULT_SUCCESS) {
        unclaim(all, UMF_SUSPEND_STATE_RESIDENT);
        return result;
    }
    for (size_t i = 0; i < all->count; i++) {
        umf_suspendable_close_pool(all->list[i]);
        wait_for_copies(all->list[i]->pool);
    }
    result = wait_for(all, all->params);
    if (result == UMF_RESULT_SUCCESS) {
        result = settle_all(all);
    }
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        umf_layers_give_back(all->list[i]->pool, true);
        umf_provider_free_pending(all->list[i]->pool->provider, true);
        result = umf_plan_make(all->list[i], &all->report);
    }
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        result = umf_suspendable_save(all->list[i]);
    }
    size_t notified = 0;
    for (; notified < all->count && result == UMF_RESULT_SUCCESS; notified++) {
        umf_suspendable_notify_unmapping(all->list[notified]);
    }
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        result = umf_suspendable_detach(all->list[i]);
    }
    if (result != UMF_RESULT_SUCCESS) {
        suspend_undo(all, notified > 0);
        return result;
    }
    for (size_t i = 0; i < all->count; i++) {
        all->report.bytes += all->list[i]->bytes;
        all->report.kept += all->list[i]->store ? umf_plan_content(all->list[i]) : 0;
        umf_suspendable_set_state(all->list[i], UMF_SUSPEND_STATE_SUSPENDED);
        UMF_EVENT(.kind = UMF_RECORD_SUSPEND, .pool = all->list[i]->pool,
                  .size = all->list[i]->bytes);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t resume_all(claimed_t *all) {
    for (size_t i = 0; i < all->count; i++) {
        umf_plan_prune(all->list[i]);
    }
    umf_result_t result = wait_before_resume(all);
    if (result == UMF_RESULT_SUCCESS) {
        result = make_memory(all);
    }
    for (size_t i = 0; i < all->count && result == UMF_RESULT_SUCCESS; i++) {
        result = umf_suspendable_load(all->list[i]);
    }
    size_t notified = 0;
    while (notified < all->count && result == UMF_RESULT_SUCCESS) {
        result = umf_suspendable_notify_mapped(all->list[notified]);
        notified += result == UMF_RESULT_SUCCESS;
    }
    if (result != UMF_RESULT_SUCCESS) {
        while (notified-- > 0) {
            umf_suspendable_notify_unmapping(all->list[notified]);
        }
        take_back(all);
        return result;
    }
    for (size_t i = 0; i < all->count; i++) {
        umf_suspendable_t *suspendable = all->list[i];
        all->report.bytes += suspendable->bytes;
        all->report.kept += suspendable->store ? umf_plan_content(suspendable) : 0;
        UMF_EVENT(.kind = UMF_RECORD_RESUME, .pool = suspendable->pool, .size = suspendable->bytes);
        suspendable_end(suspendable);
    }
    for (size_t i = 0; i < all->count; i++) {
        umf_watch_notify_resume(&all->list[i]->watch, all->list[i]->pool);
        umf_suspendable_set_state(all->list[i], UMF_SUSPEND_STATE_RESIDENT);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- entrances -------------------------------------------------------------------------------- */

umf_result_t umf_suspend_check(umf_memory_pool_handle_t *pools, size_t num,
                               const umf_suspend_params_t *params,
                               const umf_suspend_report_t *report, const char *function) {
    bool is_valid = pools && num > 0 &&
                    (!params || (params->struct_size >= sizeof(*params) &&
                                 (params->queues || params->num_queues == 0) &&
                                 (params->events || params->num_events == 0))) &&
                    (!report || report->struct_size >= sizeof(*report));
    if (!is_valid) {
        UMF_LOG_ERROR("no pools, an array that is NULL, or a struct_size that is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    for (size_t i = 0; i < num; i++) {
        if (!umf_pool_check(pools[i], function)) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t run(bool is_resume, umf_memory_pool_handle_t *pools, size_t num,
                        const umf_suspend_params_t *params, umf_suspend_report_t *report) {
    size_t bytes;
    if (!umf_mul(num, sizeof(umf_suspendable_t *), &bytes)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    claimed_t all = {.list = umf_meta_alloc(bytes),
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
    umf_result_t result = umf_suspend_check(pools, num, params, report, __func__);
    return result == UMF_RESULT_SUCCESS ? run(false, pools, num, params, report) : result;
}

UMF_API_EXT_1 umf_result_t umfPoolsResume(umf_memory_pool_handle_t *pools, size_t num,
                                          const umf_suspend_params_t *params,
                                          umf_suspend_report_t *report) {
    umf_result_t result = umf_suspend_check(pools, num, params, report, __func__);
    return result == UMF_RESULT_SUCCESS ? run(true, pools, num, params, report) : result;
}

static void residency_of_suspended(umf_suspendable_t *suspendable, umf_residency_t *now) {
    umf_lock(umf_suspend_lock);
    umf_suspend_keep_t keep = suspendable->policy.keep;
    size_t away = suspendable->away, kept = suspendable->kept;
    now->state = suspendable->state;
    umf_unlock(umf_suspend_lock);
    now->resident -= away < now->resident ? away : now->resident;
    now->pinned = keep == UMF_SUSPEND_KEEP_PINNED ? kept : 0;
    now->host = keep == UMF_SUSPEND_KEEP_HOST ? kept : 0;
    now->file = keep == UMF_SUSPEND_KEEP_FILE ? kept : 0;
    now->peer = keep == UMF_SUSPEND_KEEP_PEER ? kept : 0;
}

UMF_API_EXT_1 umf_result_t umfPoolGetResidency(umf_memory_pool_handle_t pool,
                                               umf_residency_t *residency) {
    if (!umf_pool_check(pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!residency || residency->struct_size < sizeof(*residency)) {
        UMF_LOG_ERROR("residency is NULL, or its struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!pool->tracked) {
        UMF_LOG_ERROR("pool %p does not track its memory", (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_residency_t now = {.struct_size = residency->struct_size};
    umf_suspendable_t *suspendable = umf_suspendable_of(pool);
    now.reserved = umf_tracked_bytes(pool->tracked);
    now.resident = now.reserved;
    if (suspendable) {
        residency_of_suspended(suspendable, &now);
    }
    *residency = now;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfSuspendTrim(void) {
    umf_pinned_trim();
    return UMF_RESULT_SUCCESS;
}

/* --- functions for the core --------------------------------------------------------------------
 */

void umf_suspendable_freed(umf_memory_pool_handle_t pool, const void *ptr) {
    umf_suspendable_t *suspendable = umf_suspendable_of(pool);
    if (!suspendable || suspendable->state != UMF_SUSPEND_STATE_SUSPENDED) {
        return;
    }
    umf_suspend_vm_t vm = umf_suspendable_vm(suspendable);
    umf_vm_piece_t piece;
    if (vm.ext->vm_find(vm.self, ptr, &piece) == UMF_RESULT_SUCCESS && piece.allocations == 0 &&
        umf_suspendable_piece_gone(suspendable, piece.base)) {
        vm.ext->vm_release(vm.self, &piece.base, 1);
    }
}

void umf_suspend_init(void) {
    static umf_listener_t listener = {.pool_ends = umf_suspendable_drop,
                                      .provider_ends = umf_pinned_drop,
                                      .ticks = umf_pinned_ticks};
    umf_core_listen(&listener);
}
