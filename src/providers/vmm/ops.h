/*
 * Vmm_ops: the operations that the vmm providers have in common. The state of such a provider
 * begins with its umf_vmm_t; the operations cast to it.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_OPS_H
#define UMF_SRC_PROVIDERS_VMM_OPS_H

#include "providers/vmm/paged.h"
#include "providers/vmm/vmm.h"

#define UMF_VMM_FIRST(type)                                                                        \
    _Static_assert(offsetof(type, vmm) == 0, "the operations of vmm take a provider for it")
#define UMF_VMM_HEAD_FITS(type)                                                                    \
    _Static_assert(sizeof(type) <= sizeof(((umf_vmm_t *)0)->head), "fits")

umf_result_t umf_vmm_op_page_size(void *provider, size_t size, size_t *page_size);
umf_result_t umf_vmm_op_min_page_size(void *provider, const void *ptr, size_t *page_size);
umf_result_t umf_vmm_op_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                            void *arg, size_t size, umf_ctl_query_type_t type, va_list args);

/* Members of umf_memory_provider_ops_t. */
#define UMF_VMM_OPS                                                                                \
    .alloc = umf_vmm_alloc, .free = umf_vmm_free,                                                  \
    .get_recommended_page_size = umf_vmm_op_page_size,                                             \
    .get_min_page_size = umf_vmm_op_min_page_size, .ext_allocation_merge = umf_vmm_merge,          \
    .ext_allocation_split = umf_vmm_split, .ext_get_ipc_handle_size = umf_vmm_handle_size,         \
    .ext_get_ipc_handle = umf_vmm_get_handle, .ext_put_ipc_handle = umf_vmm_put_handle,            \
    .ext_open_ipc_handle = umf_vmm_open_handle, .ext_close_ipc_handle = umf_vmm_close_handle,      \
    .ext_ctl = umf_vmm_op_ctl

/* Members of umf_memory_provider_ext_ops_t. */
#define UMF_VMM_EXT_OPS                                                                            \
    .ipc_watch = umf_vmm_watch_handle, .ipc_check = umf_vmm_check_handle, .vm_find = umf_vmm_find, \
    .vm_detach = umf_vmm_detach, .vm_create = umf_vmm_create, .vm_attach = umf_vmm_attach,         \
    .vm_claim = umf_vmm_claim, .vm_release = umf_vmm_release, .free_batch = umf_vmm_free_batch,    \
    .free_pending = umf_vmm_free_pending, .vm_run = umf_vmm_run

/* The same for back ends that map memory at two addresses. */
#define UMF_VMM_RANGE_OPS                                                                          \
    .range_reserve = umf_vmm_range_reserve, .range_release = umf_vmm_range_release,                \
    .page_create = umf_vmm_page_create, .page_destroy = umf_vmm_page_destroy,                      \
    .page_map = umf_vmm_page_map, .page_unmap = umf_vmm_page_unmap,                                \
    .range_get_ipc_handle = umf_vmm_range_get_handle,                                              \
    .range_end_ipc_handle = umf_vmm_range_end_handle
#define UMF_VMM_MARK_OPS .mark_all = umf_vmm_mark_all, .mark_all_wait = umf_vmm_mark_all_wait

#endif
