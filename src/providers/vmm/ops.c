/* Vmm_ops: the operations of a provider of virtual memory. */
#include "providers/vmm/ops.h"

#include "base/log.h"

umf_result_t umf_vmm_op_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    return umf_vmm_alloc(provider, size, alignment, ptr);
}

umf_result_t umf_vmm_op_free(void *provider, void *ptr, size_t size) {
    return umf_vmm_free(provider, ptr, size);
}

umf_result_t umf_vmm_op_free_batch(void *provider, int begins) {
    return umf_vmm_free_batch(provider, begins != 0);
}

umf_result_t umf_vmm_op_free_pending(void *provider, int may_block, size_t *left) {
    return umf_vmm_free_pending(provider, may_block != 0, left);
}

umf_result_t umf_vmm_op_page_size(void *provider, size_t size, size_t *page_size) {
    (void)size;
    *page_size = ((umf_vmm_t *)provider)->granularity;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_op_min_page_size(void *provider, const void *ptr, size_t *page_size) {
    (void)ptr;
    *page_size = ((umf_vmm_t *)provider)->granularity;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_op_merge(void *provider, void *low, void *high, size_t total) {
    return umf_vmm_merge(provider, low, high, total);
}

umf_result_t umf_vmm_op_split(void *provider, void *ptr, size_t total, size_t first) {
    return umf_vmm_split(provider, ptr, total, first);
}

umf_result_t umf_vmm_op_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                            void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    (void)source;
    return umf_stats_ctl(&((umf_vmm_t *)provider)->stats, name, arg, size, type, args);
}

/* --- sharing ---------------------------------------------------------------------------------- */

static umf_result_t check_share(const umf_vmm_t *vmm) {
    if (vmm->ops->export || vmm->ops->export_token) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("%s", vmm->ops->private_text);
    return vmm->ops->private_result;
}

umf_result_t umf_vmm_op_ipc_size(void *provider, size_t *size) {
    umf_result_t result = check_share(provider);
    if (result == UMF_RESULT_SUCCESS) {
        *size = umf_vmm_handle_size();
    }
    return result;
}

umf_result_t umf_vmm_op_ipc_get(void *provider, const void *ptr, size_t size, void *data) {
    umf_result_t result = check_share(provider);
    return result ? result : umf_vmm_get_handle(provider, ptr, size, data);
}

umf_result_t umf_vmm_op_ipc_put(void *provider, void *data) {
    umf_result_t result = check_share(provider);
    return result ? result : umf_vmm_put_handle(provider, data);
}

umf_result_t umf_vmm_op_ipc_open(void *provider, void *data, void **ptr) {
    umf_result_t result = check_share(provider);
    return result ? result : umf_vmm_open_handle(provider, data, ptr);
}

umf_result_t umf_vmm_op_ipc_close(void *provider, void *ptr, size_t size) {
    umf_result_t result = check_share(provider);
    return result ? result : umf_vmm_close_handle(provider, ptr, size);
}

umf_result_t umf_vmm_op_ipc_check(void *provider, const void *data, size_t size) {
    umf_result_t result = check_share(provider);
    return result ? result : umf_vmm_check_handle(provider, data, size);
}

umf_result_t umf_vmm_op_ipc_watch(void *provider, const void *data, const uint64_t **word,
                                  uint64_t *expected) {
    return umf_vmm_watch_handle(provider, data, word, expected);
}

/* --- detaching and attaching physical memory -------------------------------------------------- */

umf_result_t umf_vmm_op_find(void *provider, const void *ptr, umf_vm_piece_t *piece) {
    return umf_vmm_find(provider, ptr, piece);
}

umf_result_t umf_vmm_op_detach(void *provider, void *const *pieces, size_t count) {
    return umf_vmm_detach(provider, pieces, count);
}

umf_result_t umf_vmm_op_create(void *provider, void *const *pieces, size_t count, size_t *missing) {
    return umf_vmm_create(provider, pieces, count, missing);
}

umf_result_t umf_vmm_op_attach(void *provider, void *const *pieces, size_t count) {
    return umf_vmm_attach(provider, pieces, count);
}

umf_result_t umf_vmm_op_claim(void *provider, void *const *pieces, const size_t *allocations,
                              size_t count, int *claimed) {
    return umf_vmm_claim(provider, pieces, allocations, count, claimed);
}

umf_result_t umf_vmm_op_release(void *provider, void *const *pieces, size_t count) {
    return umf_vmm_release(provider, pieces, count);
}
