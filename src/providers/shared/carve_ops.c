/* The operations of a provider over a carve. */
#include "providers/shared/carve_ops.h"

umf_result_t umf_carve_op_page_size(void *provider, size_t size, size_t *page_size) {
    (void)size;
    *page_size = ((const umf_carve_t *)provider)->page_size;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_carve_op_min_page_size(void *provider, const void *ptr, size_t *page_size) {
    (void)ptr;
    return umf_carve_op_page_size(provider, 0, page_size);
}

umf_result_t umf_carve_op_cache_line_size(void *provider, size_t *size) {
    (void)provider;
    *size = 64;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_carve_op_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                              void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    (void)source;
    return umf_stats_ctl(&((umf_carve_t *)provider)->stats, name, arg, size, type, args);
}
