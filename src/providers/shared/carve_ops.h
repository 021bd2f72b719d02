/*
 * The operations that providers over a carve (fixed, file, devdax) have in common. The state of
 * such a provider begins with its carve; the operations cast to it.
 */
#ifndef UMF_SRC_PROVIDERS_SHARED_CARVE_OPS_H
#define UMF_SRC_PROVIDERS_SHARED_CARVE_OPS_H

#include <umf/plugin.h>

#include "providers/shared/carve.h"

#define UMF_CARVE_FIRST(type, carve)                                                               \
    _Static_assert(offsetof(type, carve) == 0, "the operations of carve take a provider for it")

umf_result_t umf_carve_op_page_size(void *provider, size_t size, size_t *page_size);
umf_result_t umf_carve_op_min_page_size(void *provider, const void *ptr, size_t *page_size);
umf_result_t umf_carve_op_cache_line_size(void *provider, size_t *size);
umf_result_t umf_carve_op_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                              void *arg, size_t size, umf_ctl_query_type_t type, va_list args);

/* Members of umf_memory_provider_ops_t. */
#define UMF_CARVE_OPS                                                                              \
    .free = umf_carve_free, .get_recommended_page_size = umf_carve_op_page_size,                   \
    .get_min_page_size = umf_carve_op_min_page_size,                                               \
    .get_cache_line_size = umf_carve_op_cache_line_size, .ext_allocation_merge = umf_carve_merge,  \
    .ext_allocation_split = umf_carve_split, .ext_ctl = umf_carve_op_ctl

#endif
