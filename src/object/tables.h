/* Checks and copies the operations tables that callers give. */
#ifndef UMF_SRC_OBJECT_TABLES_H
#define UMF_SRC_OBJECT_TABLES_H

#include <umf/memory_pool_ops.h>
#include <umf/memory_provider_ops.h>

/* Copies a table to `*to`, which is zeroed, in the layout of the current version. NOT_SUPPORTED:
 * the version is unknown. INVALID_ARGUMENT: an operation is missing; the log names it. */
umf_result_t umf_provider_ops_copy(umf_memory_provider_ops_t *to,
                                   const umf_memory_provider_ops_t *from);
umf_result_t umf_pool_ops_copy(umf_memory_pool_ops_t *to, const umf_memory_pool_ops_t *from);

#endif
