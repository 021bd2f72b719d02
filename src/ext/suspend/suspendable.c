/* The state of a pool that may be suspended, and the operations of a suspended pool. */
#include "ext/suspend/suspendable.h"

#include "base/log.h"
#include "base/meta.h"
#include "ext/suspend/plan.h"
#include "reclaim/reclaim.h"

UMF_LOCK_STATIC(suspendable_lock, UMF_RANK_SUSPEND);
umf_lock_t *const umf_suspend_lock = &suspendable_lock;

/* --- start and end ---------------------------------------------------------------------------- */

static bool ext_has_vm(const umf_memory_provider_ext_ops_t *ext) {
    return ext->vm_find && ext->vm_detach && ext->vm_create && ext->vm_attach && ext->wait;
}

/* Without a claim, a suspend would detach memory of other pools, too. */
static bool ext_can_claim(const umf_memory_provider_ext_ops_t *ext) {
    return ext->vm_claim && ext->vm_release;
}

static umf_result_t pool_check(umf_memory_pool_handle_t pool) {
    if (!pool->tracked) {
        UMF_LOG_ERROR("pool %p does not track its memory, so it cannot be suspended", (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!ext_has_vm(pool->provider->ext)) {
        UMF_LOG_ERROR("the provider of pool %p has no virtual memory: use linux_vmm, cuda_vmm or "
                      "level_zero_vmm",
                      (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!ext_can_claim(pool->provider->ext)) {
        UMF_LOG_ERROR("the provider of pool %p cannot claim its memory: it lacks vm_claim or "
                      "vm_release (umf/plugin.h)",
                      (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (pool->fast ? pool->fast->data_inside : pool->kind && pool->kind->touches_memory) {
        UMF_LOG_ERROR("pool %p keeps its own data in its memory, or writes to freed memory, so it "
                      "cannot be suspended",
                      (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return UMF_RESULT_SUCCESS;
}

umf_suspendable_t *umf_suspendable_of(umf_memory_pool_handle_t pool) {
    return atomic_load_explicit(&pool->suspendable, memory_order_acquire);
}

umf_result_t umf_suspendable_get(umf_memory_pool_handle_t pool, umf_suspendable_t **out) {
    umf_result_t result = pool_check(pool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_suspendable_t *found = umf_suspendable_of(pool);
    if (!found) {
        umf_suspendable_t *made = umf_meta_alloc(sizeof(*made));
        if (!made) {
            UMF_LOG_ERROR("no memory for bookkeeping");
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        made->pool = pool;
        made->policy = (umf_suspend_policy_t)UMF_SUSPEND_POLICY_INIT;
        void *none = NULL;
        if (atomic_compare_exchange_strong(&pool->suspendable, &none, made)) {
            found = made;
        } else {
            umf_meta_free(made, sizeof(*made));
            found = none;
        }
    }
    *out = found;
    return UMF_RESULT_SUCCESS;
}

void umf_suspendable_drop(umf_memory_pool_handle_t pool) {
    umf_suspendable_t *suspendable = umf_suspendable_of(pool);
    if (suspendable) {
        if (umf_suspendable_own_pieces(suspendable)) {
            suspendable->count = 0; /* they have ended with the pool */
        }
        umf_plan_forget(suspendable);
        umf_watch_fini(&suspendable->watch);
        umf_meta_free(suspendable->folder, umf_suspendable_text_bytes(suspendable->folder));
        umf_meta_free(suspendable, sizeof(*suspendable));
        atomic_store(&pool->suspendable, NULL);
    }
}

void umf_suspendable_set_state(umf_suspendable_t *suspendable, umf_suspend_state_t state) {
    size_t away = umf_plan_away(suspendable);
    size_t kept = suspendable->store ? umf_plan_content(suspendable) : 0;
    umf_lock(&suspendable_lock);
    suspendable->state = state;
    suspendable->away = away;
    suspendable->kept = kept;
    umf_unlock(&suspendable_lock);
}

static bool piece_gone_locked(umf_suspendable_t *suspendable, const void *base) {
    umf_assert_locked(&suspendable_lock);
    umf_suspend_piece_t *piece = suspendable->state == UMF_SUSPEND_STATE_SUSPENDED
                                     ? umf_plan_find(suspendable, (uintptr_t)base)
                                     : NULL;
    if (!piece || piece->gone) {
        return false;
    }
    piece->gone = true;
    suspendable->away -= piece->is_away ? umf_suspendable_piece_bytes(suspendable, piece) : 0;
    suspendable->kept -= suspendable->store ? piece->content : 0;
    return true;
}

bool umf_suspendable_piece_gone(umf_suspendable_t *suspendable, const void *base) {
    umf_lock(&suspendable_lock);
    bool is_gone = piece_gone_locked(suspendable, base);
    umf_unlock(&suspendable_lock);
    return is_gone;
}

/* --- a closed pool ---------------------------------------------------------------------------- */

static void *suspended_malloc(umf_memory_pool_handle_t pool, size_t size) {
    (void)pool, (void)size;
    return NULL;
}

static void *suspended_calloc(umf_memory_pool_handle_t pool, size_t num, size_t size) {
    (void)pool, (void)num, (void)size;
    return NULL;
}

static void *suspended_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    (void)pool, (void)ptr, (void)size;
    return NULL;
}

static umf_result_t suspended_last_error(umf_memory_pool_handle_t pool) {
    (void)pool;
    return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

static const umf_layer_t suspended_layer = {
    .rank = UMF_LAYER_SUSPEND,
    .sees_malloc = true,
    .calls = {.malloc = suspended_malloc,
              .aligned_malloc = suspended_calloc,
              .calloc = suspended_calloc,
              .realloc = suspended_realloc,
              .last_error = suspended_last_error},
    .freed = umf_suspendable_freed,
};

void umf_suspendable_close_pool(umf_suspendable_t *suspendable) {
    umf_layer_push(suspendable->pool, &suspended_layer);
    umf_reclaim_leave(suspendable->pool); /* visits that began before */
}

void umf_suspendable_open_pool(umf_suspendable_t *suspendable) {
    umf_layer_remove(suspendable->pool, UMF_LAYER_SUSPEND);
}
