/*
 * The settings of a suspend before there is one: how content is kept, who forbids it, and who is
 * notified.
 */
#include <string.h>

#include <umf/suspend.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/suspend/suspendable.h"

/* --- how content is kept ---------------------------------------------------------------------- */

static umf_result_t policy_check(umf_memory_pool_handle_t pool,
                                 const umf_suspend_policy_t *policy) {
    if (!umf_pool_check(pool, "umfPoolSetSuspendPolicy")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!policy || policy->struct_size < sizeof(*policy)) {
        UMF_LOG_ERROR("policy is NULL, or its struct_size is too small");
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

static umf_result_t policy_set_locked(umf_suspendable_t *suspendable,
                                      const umf_suspend_policy_t *policy, char *folder) {
    umf_assert_locked(umf_suspend_lock);
    if (suspendable->state != UMF_SUSPEND_STATE_RESIDENT) {
        UMF_LOG_ERROR("the pool is suspended: its content is kept in the old way");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_meta_free(suspendable->folder, umf_suspendable_text_bytes(suspendable->folder));
    suspendable->folder = folder;
    suspendable->policy = *policy;
    suspendable->policy.folder = folder;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfPoolSetSuspendPolicy(umf_memory_pool_handle_t pool,
                                                   const umf_suspend_policy_t *policy) {
    umf_suspendable_t *suspendable;
    umf_result_t result = policy_check(pool, policy);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_suspendable_get(pool, &suspendable);
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
        folder = umf_meta_alloc(umf_suspendable_text_bytes(policy->folder));
        if (!folder) {
            UMF_LOG_ERROR("no memory for the name of a folder");
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        memcpy(folder, policy->folder, umf_suspendable_text_bytes(policy->folder));
    }
    umf_lock(umf_suspend_lock);
    result = policy_set_locked(suspendable, policy, folder);
    umf_unlock(umf_suspend_lock);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(folder, umf_suspendable_text_bytes(folder));
    }
    return result;
}

/* --- watchers, and calls that forbid ---------------------------------------------------------- */

/* Takes the lock if the pool is resident, else fails. */
static umf_result_t watch_lock(umf_memory_pool_handle_t pool, umf_suspendable_t **suspendable,
                               const char *function) {
    if (!umf_pool_check(pool, function)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_suspendable_get(pool, suspendable);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(umf_suspend_lock);
    if ((*suspendable)->state != UMF_SUSPEND_STATE_RESIDENT) {
        umf_unlock(umf_suspend_lock);
        UMF_LOG_ERROR("pool %p is not resident", (void *)pool);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfPoolForbidSuspend(umf_memory_pool_handle_t pool) {
    umf_suspendable_t *suspendable;
    umf_result_t result = watch_lock(pool, &suspendable, __func__);
    if (result == UMF_RESULT_SUCCESS) {
        suspendable->watch.forbids++;
        umf_unlock(umf_suspend_lock);
    }
    return result;
}

UMF_API_EXT_1 umf_result_t umfPoolAllowSuspend(umf_memory_pool_handle_t pool) {
    umf_suspendable_t *suspendable;
    umf_result_t result = watch_lock(pool, &suspendable, __func__);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    bool was_forbidden = suspendable->watch.forbids > 0;
    suspendable->watch.forbids -= was_forbidden;
    umf_unlock(umf_suspend_lock);
    if (!was_forbidden) {
        UMF_LOG_ERROR("suspending pool %p was not forbidden", (void *)pool);
    }
    return was_forbidden ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_EXT_1 umf_result_t umfPoolAddSuspendCallback(umf_memory_pool_handle_t pool,
                                                     umf_suspend_callback_t callback, void *arg) {
    umf_suspendable_t *suspendable;
    if (!callback) {
        UMF_LOG_ERROR("callback is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = watch_lock(pool, &suspendable, __func__);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    bool is_added = umf_watch_add(&suspendable->watch, callback, arg);
    umf_unlock(umf_suspend_lock);
    if (!is_added) {
        UMF_LOG_ERROR("no memory for a callback");
    }
    return is_added ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

UMF_API_EXT_1 umf_result_t umfPoolRemoveSuspendCallback(umf_memory_pool_handle_t pool,
                                                        umf_suspend_callback_t callback,
                                                        void *arg) {
    umf_suspendable_t *suspendable;
    umf_result_t result = watch_lock(pool, &suspendable, __func__);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    bool is_removed = umf_watch_remove(&suspendable->watch, callback, arg);
    umf_unlock(umf_suspend_lock);
    if (!is_removed) {
        UMF_LOG_ERROR("pool %p has no such callback", (void *)pool);
    }
    return is_removed ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}
