/*
 * Macros for the tables of a kind of pool. They name all functions of a kind at once, if these are
 * called <kind>_<operation>.
 */
#ifndef UMF_SRC_POOLS_SHARED_KIND_H
#define UMF_SRC_POOLS_SHARED_KIND_H

#include <umf/plugin.h>

/* The members of umf_memory_pool_ops_t that every kind implements. */
#define UMF_POOL_OPS(kind)                                                                         \
    .version = UMF_POOL_OPS_VERSION_CURRENT, .initialize = kind##_initialize,                      \
    .finalize = kind##_finalize, .malloc = kind##_malloc, .calloc = kind##_calloc,                 \
    .realloc = kind##_realloc, .aligned_malloc = kind##_aligned_malloc,                            \
    .malloc_usable_size = kind##_usable_size, .free = kind##_free,                                 \
    .get_last_allocation_error = kind##_last_allocation_error

/* The descriptor of a kind for the registry, see pools.def. The arguments after the kind
 * are further members. */
#define UMF_POOL_DESCRIPTOR(kind, ...)                                                             \
    extern const umf_memory_pool_descriptor_t umf_##kind##_pool_descriptor;                        \
    const umf_memory_pool_descriptor_t umf_##kind##_pool_descriptor = {                            \
        .struct_size = sizeof(umf_memory_pool_descriptor_t),                                       \
        .name = #kind,                                                                             \
        __VA_ARGS__,                                                                               \
    }

#endif
