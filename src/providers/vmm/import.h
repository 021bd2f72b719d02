/*
 * Vmm_import: memory of other processes that a vmm provider has opened, see share.h.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_IMPORT_H
#define UMF_SRC_PROVIDERS_VMM_IMPORT_H

#include "ds/hash.h"
#include "providers/vmm/share.h"

/* The imports of one provider. Sync: its lock. */
typedef struct umf_vmm_imports_t {
    umf_hash_t opened; /* open blocks by address */
    umf_hash_t pieces; /* mappings of their pieces, by the sum of their keys */
    umf_board_sources_t boards;
} umf_vmm_imports_t;

void umf_vmm_imports_init(umf_vmm_t *vmm);
/* Open blocks stay mapped. */
void umf_vmm_imports_fini(umf_vmm_t *vmm);

/* Operations of the provider. */
umf_result_t umf_vmm_open_handle(void *provider, void *data, void **ptr);
umf_result_t umf_vmm_close_handle(void *provider, void *ptr, size_t size);
umf_result_t umf_vmm_check_handle(void *provider, const void *data, size_t size);
umf_result_t umf_vmm_watch_handle(void *provider, const void *data, const uint64_t **word,
                                  uint64_t *expected);

#endif
