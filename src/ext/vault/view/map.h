/*
 * Map: memory of a view in this process. A slab of the host is mapped where nothing is, one behind
 * the other if that is free; view->bases has the places, NULL for what is not mapped.
 */
#ifndef UMF_SRC_EXT_VAULT_VIEW_MAP_H
#define UMF_SRC_EXT_VAULT_VIEW_MAP_H

#include "ext/vault/vault.h"

/* Looks for addresses that have room for all slabs of the host. */
umf_result_t umf_vault_view_reserve(umf_vault_view_handle_t view);
/* Shared slabs lose their pages; their addresses stay taken. */
umf_result_t umf_vault_view_hide(umf_vault_view_handle_t view);
/* Unmaps all slabs of the host. */
void umf_vault_view_unmap(umf_vault_view_handle_t view);

#endif
