/* Views whose memory goes away, comes back, or becomes that of another generation, at the same
 * addresses. */
#include "base/last_error.h"
#include "base/log.h"
#include "ext/vault/device.h"
#include "ext/vault/view/map.h"

umf_result_t umf_vault_view_reads(umf_vault_view_handle_t view) {
    if (view->is_suspended) {
        UMF_LOG_ERROR("the view of generation %llu of vault %s is suspended: resume it",
                      (unsigned long long)view->generation, view->vault->link.name);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vault_slab_reads(umf_vault_view_handle_t view, uint32_t slab) {
    if (view->bases[slab]) {
        return UMF_RESULT_SUCCESS;
    }
    return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                    "memory of devices is not mapped in the view of generation %llu of vault %s, "
                    "which was attached with \"none\"",
                    (unsigned long long)view->generation, view->vault->link.name);
}

/* Shared slabs lose their pages; the addresses stay reserved. */
static umf_result_t view_hide(umf_vault_view_handle_t view) {
    umf_result_t hidden = umf_vault_parts_hide(view);
    umf_result_t of_host = umf_vault_view_hide(view);
    return hidden ? hidden : of_host;
}

/* Maps a generation over the view. After a failure in the middle the view is suspended. */
static umf_result_t view_change(umf_vault_view_handle_t view, uint64_t generation, bool is_resume) {
    umf_vault_change_t change = {
        .like = &view->table, .nonce = view->nonce, .is_resume = is_resume};
    view->change = &change;
    umf_result_t result = umf_vault_attach_over(view, generation);
    view->change = NULL;
    if (result == UMF_RESULT_SUCCESS) {
        view->is_suspended = false;
    } else if (change.has_begun) {
        view_hide(view);
        view->is_suspended = true;
    }
    return result;
}

static bool params_check(const umf_suspend_params_t *params) {
    bool is_valid = !params || (params->struct_size >= sizeof(*params) &&
                                (params->queues || params->num_queues == 0) &&
                                (params->events || params->num_events == 0));
    if (!is_valid) {
        UMF_LOG_ERROR("an array that is NULL, or a struct_size that is too small");
    }
    return is_valid;
}

UMF_API_EXT_1_3 umf_result_t umfVaultSuspend(umf_vault_view_handle_t hView,
                                             const umf_suspend_params_t *params) {
    if (!umf_vault_view_check(hView, __func__) || !params_check(params)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (hView->is_suspended) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = umf_vault_parts_settle(hView, params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    hView->is_suspended = true;
    umf_vault_mark(hView->vault, hView->generation, "suspended");
    return view_hide(hView);
}

UMF_API_EXT_1_3 umf_result_t umfVaultResume(umf_vault_view_handle_t hView) {
    if (!umf_vault_view_check(hView, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!hView->is_suspended) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = view_change(hView, hView->generation, true);
    if (result == UMF_RESULT_SUCCESS) {
        umf_vault_mark(hView->vault, hView->generation, "resumed");
    }
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfVaultMove(umf_vault_view_handle_t hView, uint64_t generation,
                                          const umf_suspend_params_t *params) {
    if (!umf_vault_view_check(hView, __func__) || !params_check(params)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    /* Of a suspended view, too: queued work may use its private memory, which gets new content. */
    umf_result_t result = umf_vault_parts_settle(hView, params);
    if (result == UMF_RESULT_SUCCESS) {
        result = view_change(hView, generation, false);
    }
    if (result == UMF_RESULT_SUCCESS) {
        umf_vault_mark(hView->vault, hView->generation, "moved to");
    }
    return result;
}
