/* The sleep object of a pool that may be suspended, and the operations of a suspended pool. */
#include "ext/suspend/sleep.h"

#include "base/log.h"
#include "base/meta.h"
#include "ext/suspend/plan.h"
#include "reclaim/reclaim.h"

UMF_LOCK_STATIC(sleep_lock, UMF_RANK_SUSPEND);
umf_lock_t *const umf_sleep_lock = &sleep_lock;

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

umf_sleep_t *umf_sleep_of(umf_memory_pool_handle_t pool) {
    return atomic_load_explicit(&pool->sleep, memory_order_acquire);
}

umf_result_t umf_sleep_get(umf_memory_pool_handle_t pool, umf_sleep_t **out) {
    umf_result_t result = pool_check(pool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_sleep_t *found = umf_sleep_of(pool);
    if (!found) {
        umf_sleep_t *made = umf_meta_alloc(sizeof(*made));
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

void umf_sleep_drop(umf_memory_pool_handle_t pool) {
    umf_sleep_t *sleep = umf_sleep_of(pool);
    if (sleep) {
        if (umf_sleep_own_pieces(sleep)) {
            sleep->count = 0; /* they have ended with the pool */
        }
        umf_plan_forget(sleep);
        umf_watch_fini(&sleep->watch);
        umf_meta_free(sleep->folder, umf_sleep_text_bytes(sleep->folder));
        umf_meta_free(sleep, sizeof(*sleep));
        atomic_store(&pool->sleep, NULL);
    }
}

void umf_sleep_set_state(umf_sleep_t *sleep, umf_suspend_state_t state) {
    size_t away = umf_plan_away(sleep);
    size_t kept = sleep->store ? umf_plan_content(sleep) : 0;
    umf_lock(&sleep_lock);
    sleep->state = state;
    sleep->away = away;
    sleep->kept = kept;
    umf_unlock(&sleep_lock);
}

static bool piece_gone_locked(umf_sleep_t *sleep, const void *base) {
    umf_assert_locked(&sleep_lock);
    umf_sleep_piece_t *piece =
        sleep->state == UMF_SUSPEND_STATE_SUSPENDED ? umf_plan_find(sleep, (uintptr_t)base) : NULL;
    if (!piece || piece->gone) {
        return false;
    }
    piece->gone = true;
    sleep->away -= piece->is_away ? umf_sleep_piece_bytes(sleep, piece) : 0;
    sleep->kept -= sleep->store ? piece->content : 0;
    return true;
}

bool umf_sleep_piece_gone(umf_sleep_t *sleep, const void *base) {
    umf_lock(&sleep_lock);
    bool is_gone = piece_gone_locked(sleep, base);
    umf_unlock(&sleep_lock);
    return is_gone;
}

/* --- a closed pool ---------------------------------------------------------------------------- */

static void *asleep_malloc(umf_memory_pool_handle_t pool, size_t size) {
    (void)pool, (void)size;
    return NULL;
}

static void *asleep_calloc(umf_memory_pool_handle_t pool, size_t num, size_t size) {
    (void)pool, (void)num, (void)size;
    return NULL;
}

static void *asleep_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    (void)pool, (void)ptr, (void)size;
    return NULL;
}

static umf_result_t asleep_last_error(umf_memory_pool_handle_t pool) {
    (void)pool;
    return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

static const umf_layer_t asleep_layer = {
    .rank = UMF_LAYER_SUSPEND,
    .sees_malloc = true,
    .calls = {.malloc = asleep_malloc,
              .aligned_malloc = asleep_calloc,
              .calloc = asleep_calloc,
              .realloc = asleep_realloc,
              .last_error = asleep_last_error},
    .freed = umf_sleep_freed,
};

void umf_sleep_close_pool(umf_sleep_t *sleep) {
    umf_layer_push(sleep->pool, &asleep_layer);
    umf_reclaim_leave(sleep->pool); /* visits that began before */
}

void umf_sleep_open_pool(umf_sleep_t *sleep) {
    umf_layer_remove(sleep->pool, UMF_LAYER_SUSPEND);
}
