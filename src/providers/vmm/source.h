/*
 * Vmm_source: the board of another process, which tells whether its descriptions still hold.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_SOURCE_H
#define UMF_SRC_PROVIDERS_VMM_SOURCE_H

#include "providers/vmm/handle.h"

/* Mapped as long as anything of that producer is open. */
typedef struct umf_vmm_source_t {
    struct umf_vmm_source_t *next; /* Sync: the provider's lock, as `refs` */
    size_t refs;
    uint64_t dev, ino; /* Immutable after create, as all below */
    const uint64_t *words;
} umf_vmm_source_t;

/* The board that a ticket names, with one use more. Results of umf_ticket_redeem; INVALID_ARGUMENT
 * too if it is no board. */
umf_result_t umf_vmm_source_get(umf_vmm_t *vmm, const umf_fd_ticket_t *ticket,
                                umf_vmm_source_t **result);
/* One use more of one that is in use. */
void umf_vmm_source_hold(umf_vmm_t *vmm, umf_vmm_source_t *source);
void umf_vmm_source_put(umf_vmm_t *vmm, umf_vmm_source_t *source);

/* NULL if it is not known. */
umf_vmm_source_t *umf_vmm_source_find_locked(const umf_vmm_t *vmm, const umf_fd_ticket_t *ticket);

/* INVALID_ARGUMENT, and a message: what is described is no longer there. */
umf_result_t umf_vmm_source_check(const umf_vmm_source_t *source, const umf_vmm_handle_t *handle);

#endif
