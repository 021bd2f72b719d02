/*
 * Vmm_ops: the operations that the vmm providers have in common. The state of such a provider
 * begins with its umf_vmm_t; the operations cast to it.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_OPS_H
#define UMF_SRC_PROVIDERS_VMM_OPS_H

#include "providers/vmm/vmm.h"

#define UMF_VMM_FIRST(type)                                                                        \
    _Static_assert(offsetof(type, vmm) == 0, "the operations of vmm take a provider for it")

umf_result_t umf_vmm_op_alloc(void *provider, size_t size, size_t alignment, void **ptr);
umf_result_t umf_vmm_op_free(void *provider, void *ptr, size_t size);
umf_result_t umf_vmm_op_free_batch(void *provider, int begins);
umf_result_t umf_vmm_op_free_pending(void *provider, int may_block, size_t *left);
umf_result_t umf_vmm_op_page_size(void *provider, size_t size, size_t *page_size);
umf_result_t umf_vmm_op_min_page_size(void *provider, const void *ptr, size_t *page_size);
umf_result_t umf_vmm_op_merge(void *provider, void *low, void *high, size_t total);
umf_result_t umf_vmm_op_split(void *provider, void *ptr, size_t total, size_t first);
umf_result_t umf_vmm_op_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                            void *arg, size_t size, umf_ctl_query_type_t type, va_list args);

/* Sharing. A back end without it answers with its private_result. */
umf_result_t umf_vmm_op_ipc_size(void *provider, size_t *size);
umf_result_t umf_vmm_op_ipc_get(void *provider, const void *ptr, size_t size, void *data);
umf_result_t umf_vmm_op_ipc_put(void *provider, void *data);
umf_result_t umf_vmm_op_ipc_open(void *provider, void *data, void **ptr);
umf_result_t umf_vmm_op_ipc_close(void *provider, void *ptr, size_t size);
umf_result_t umf_vmm_op_ipc_check(void *provider, const void *data, size_t size);
umf_result_t umf_vmm_op_ipc_watch(void *provider, const void *data, const uint64_t **word,
                                  uint64_t *expected);

umf_result_t umf_vmm_op_find(void *provider, const void *ptr, umf_vm_piece_t *piece);
umf_result_t umf_vmm_op_detach(void *provider, void *const *pieces, size_t count);
umf_result_t umf_vmm_op_create(void *provider, void *const *pieces, size_t count, size_t *missing);
umf_result_t umf_vmm_op_attach(void *provider, void *const *pieces, size_t count);
umf_result_t umf_vmm_op_claim(void *provider, void *const *pieces, const size_t *allocations,
                              size_t count, int *claimed);
umf_result_t umf_vmm_op_release(void *provider, void *const *pieces, size_t count);

/* Members of umf_memory_provider_ops_t. */
#define UMF_VMM_OPS                                                                                \
    .alloc = umf_vmm_op_alloc, .free = umf_vmm_op_free,                                            \
    .get_recommended_page_size = umf_vmm_op_page_size,                                             \
    .get_min_page_size = umf_vmm_op_min_page_size, .ext_allocation_merge = umf_vmm_op_merge,       \
    .ext_allocation_split = umf_vmm_op_split, .ext_get_ipc_handle_size = umf_vmm_op_ipc_size,      \
    .ext_get_ipc_handle = umf_vmm_op_ipc_get, .ext_put_ipc_handle = umf_vmm_op_ipc_put,            \
    .ext_open_ipc_handle = umf_vmm_op_ipc_open, .ext_close_ipc_handle = umf_vmm_op_ipc_close,      \
    .ext_ctl = umf_vmm_op_ctl

/* Members of umf_memory_provider_ext_ops_t. */
#define UMF_VMM_EXT_OPS                                                                            \
    .ipc_watch = umf_vmm_op_ipc_watch, .ipc_check = umf_vmm_op_ipc_check,                          \
    .vm_find = umf_vmm_op_find, .vm_detach = umf_vmm_op_detach, .vm_create = umf_vmm_op_create,    \
    .vm_attach = umf_vmm_op_attach, .vm_claim = umf_vmm_op_claim,                                  \
    .vm_release = umf_vmm_op_release, .free_batch = umf_vmm_op_free_batch,                         \
    .free_pending = umf_vmm_op_free_pending

#endif
