/*
 * Sharing memory of a Level Zero provider: by handles of the driver, or by exported and imported
 * descriptors (params.use_import_export_for_IPC). In both cases a descriptor is passed, and a
 * ticket says where to get it.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_IPC_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_IPC_H

#include "providers/level_zero/provider.h"

/* The same for every allocation. */
size_t umf_ze_ipc_size(void);

/* As the operations of umf_memory_provider_ops_t and its extension. */
umf_result_t umf_ze_ipc_get(umf_ze_provider_t *ze, const void *ptr, size_t size, void *data);
umf_result_t umf_ze_ipc_put(umf_ze_provider_t *ze, const void *data);
umf_result_t umf_ze_ipc_check(const void *data, size_t size);
umf_result_t umf_ze_ipc_open(umf_ze_provider_t *ze, const void *data, void **ptr);
umf_result_t umf_ze_ipc_close(umf_ze_provider_t *ze, void *ptr);

#endif
