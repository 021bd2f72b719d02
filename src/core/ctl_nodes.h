/*
 * The nodes "umf.pool" and "umf.provider": a pool by its handle or name, a provider by its handle,
 * and the stored defaults of both.
 */
#ifndef UMF_SRC_CORE_CTL_NODES_H
#define UMF_SRC_CORE_CTL_NODES_H

#include <stdarg.h>

#include <umf/memory_pool.h>
#include <umf/memory_provider.h>

#include "system/common.h"

/* Registers both nodes and prepares the list of names. Call it before umf_ctl_init. */
void umf_ctl_nodes_init(void);

/* Parts of core/pool.c and core/provider.c that the nodes call: the object's own `ext_ctl`
 * (INVALID_CTL_PATH if it has none), and the count for "stats.alloc_count". */
umf_result_t umf_pool_ctl(umf_memory_pool_handle_t pool, umf_ctl_query_source_t source,
                          const char *path, void *arg, size_t size, umf_ctl_query_type_t type,
                          va_list args);
umf_result_t umf_provider_ctl(umf_memory_provider_handle_t provider, umf_ctl_query_source_t source,
                              const char *path, void *arg, size_t size, umf_ctl_query_type_t type,
                              va_list args);
size_t umf_pool_alloc_count(umf_memory_pool_handle_t pool);
size_t umf_pool_thread_cache(umf_memory_pool_handle_t pool);

#endif
