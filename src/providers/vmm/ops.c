/* Vmm_ops: the operations of a provider of virtual memory. */
#include "providers/vmm/ops.h"

umf_result_t umf_vmm_op_page_size(void *provider, size_t size, size_t *page_size) {
    (void)size;
    *page_size = ((umf_vmm_t *)provider)->carve.page_size;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_op_min_page_size(void *provider, const void *ptr, size_t *page_size) {
    (void)ptr;
    *page_size = ((umf_vmm_t *)provider)->carve.page_size;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_op_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                            void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    (void)source;
    return umf_stats_ctl(&((umf_vmm_t *)provider)->carve.stats, name, arg, size, type, args);
}
