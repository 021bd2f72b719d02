/*
 * Vmm_import: what a vmm provider has opened of other processes, see vmm_share.h.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_IMPORT_H
#define UMF_SRC_PROVIDERS_VMM_IMPORT_H

#include "ds/hash.h"
#include "providers/vmm/share.h"

/* Of one provider. Sync: its lock. A zeroed one has nothing open. */
typedef struct umf_vmm_imports_t {
    umf_hash_t opened; /* blocks by address */
    umf_hash_t pieces; /* mappings of the pieces that they lie in */
    struct umf_vmm_source_t *sources;
} umf_vmm_imports_t;

/* The bodies of the provider's operations. */
umf_result_t umf_vmm_open_handle(umf_vmm_t *vmm, const void *data, void **ptr);
umf_result_t umf_vmm_close_handle(umf_vmm_t *vmm, void *ptr, size_t size);
umf_result_t umf_vmm_check_handle(umf_vmm_t *vmm, const void *data, size_t size);
umf_result_t umf_vmm_watch_handle(umf_vmm_t *vmm, const void *data, const uint64_t **word,
                                  uint64_t *expected);

/* What was opened stays mapped. */
void umf_vmm_imports_fini(umf_vmm_t *vmm);

#endif
