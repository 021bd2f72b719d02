/*
 * Sharing memory of a Level Zero provider: by handles of the driver, or by exported and imported
 * descriptors (params.use_import_export_for_IPC). In both cases a descriptor is passed, and a
 * ticket says where to get it.
 */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_IPC_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_IPC_H

#include "providers/level_zero/provider.h"

/* The operations of umf_memory_provider_ops_t and its extension. */
umf_result_t umf_ze_get_ipc_handle_size(void *provider, size_t *size);
umf_result_t umf_ze_get_ipc_handle(void *provider, const void *ptr, size_t size, void *data);
umf_result_t umf_ze_put_ipc_handle(void *provider, void *data);
umf_result_t umf_ze_ipc_check(void *provider, const void *data, size_t size);
umf_result_t umf_ze_open_ipc_handle(void *provider, void *data, void **ptr);
umf_result_t umf_ze_dmabuf(void *provider, const void *ptr, size_t begin, size_t size, int *fd,
                           size_t *offset);
umf_result_t umf_ze_close_ipc_handle(void *provider, void *ptr, size_t size);

#endif
