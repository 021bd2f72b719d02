/*
 * Vmm_source: the board of another process, which tells whether its descriptions are still valid.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_SOURCE_H
#define UMF_SRC_PROVIDERS_VMM_SOURCE_H

#include "providers/vmm/handle.h"

/* A board stays mapped while allocations of its producer are open. */
typedef struct umf_vmm_source_t {
    struct umf_vmm_source_t *next; /* Sync: the provider's lock, also for `refs` */
    size_t refs;
    uint64_t dev, ino; /* Immutable after create, as all members below */
    const uint64_t *words;
} umf_vmm_source_t;

/* The board that a ticket names, with one more use. Results as umf_ticket_redeem; INVALID_ARGUMENT
 * also if the file is not a board. */
umf_result_t umf_vmm_source_get(umf_vmm_t *vmm, const umf_fd_ticket_t *ticket,
                                umf_vmm_source_t **result);
/* Adds a use of a board that is in use. */
void umf_vmm_source_hold(umf_vmm_t *vmm, umf_vmm_source_t *source);
void umf_vmm_source_put(umf_vmm_t *vmm, umf_vmm_source_t *source);

/* NULL: the board is not known. */
umf_vmm_source_t *umf_vmm_source_find_locked(const umf_vmm_t *vmm, const umf_fd_ticket_t *ticket);

/* INVALID_ARGUMENT with a message: the description is stale. */
umf_result_t umf_vmm_source_check(const umf_vmm_source_t *source, const umf_vmm_handle_t *handle);

#endif
