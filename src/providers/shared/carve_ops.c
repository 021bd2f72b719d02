/* The operations of a provider over a carve. */
#include "providers/shared/carve_ops.h"

umf_result_t umf_carve_op_free(void *provider, void *ptr, size_t size) {
    return umf_carve_free(provider, ptr, size);
}

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

umf_result_t umf_carve_op_merge(void *provider, void *low, void *high, size_t total) {
    return umf_carve_merge(provider, low, high, total);
}

umf_result_t umf_carve_op_split(void *provider, void *ptr, size_t total, size_t first) {
    return umf_carve_split(provider, ptr, total, first);
}

umf_result_t umf_carve_op_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                              void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    (void)source;
    return umf_stats_ctl(&((umf_carve_t *)provider)->stats, name, arg, size, type, args);
}
