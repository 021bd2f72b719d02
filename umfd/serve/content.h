/* Common parts of requests of clients: the content of the state, and the request itself. */
#ifndef UMFD_SERVE_CONTENT_H
#define UMFD_SERVE_CONTENT_H

#include "serve/serve.h"

/* A request, with everything it needs. */
typedef struct umfd_context_t {
    umfd_t *daemon;
    umfd_state_t *state;
    umfd_request_t *request;
    umfd_reply_t *reply;
    umfd_lease_t *lease;
    uint64_t *words; /* of the answer */
} umfd_context_t;

typedef umf_vault_answer_t umfd_handler_t(const umfd_context_t *c);

/* UMFD_VAULTS: none. */
uint32_t umfd_vault_find(const umfd_state_t *state, const char *name);
uint32_t umfd_vault_make(umfd_state_t *state, const umfd_lease_t *lease);
/* The vault of the client. UMFD_VAULTS: none, or it has no name yet. */
uint32_t umfd_vault_of(const umfd_context_t *c);

umfd_phase_t umfd_phase_of(const umfd_state_t *state, uint32_t i);
/* UMFD_GENERATIONS: none. */
uint32_t umfd_generation_find(const umfd_state_t *state, uint32_t vault, uint64_t number);
uint32_t umfd_draft_find(const umfd_state_t *state, uint32_t vault);

/* Ends unused generations. Their slabs are closed later. A vault without any is
 * free. */
void umfd_sweep(umfd_t *daemon, uint32_t place);

uint64_t umfd_bytes_of(const umfd_state_t *state, uint32_t vault);

/* Keeps a slab for a generation, sealed if it is of the host: slabs.c */
umf_vault_answer_t umfd_slab_add(const umfd_context_t *c, uint32_t generation, uint32_t ordinal,
                                 const umf_vault_slab_t *requested, int fd, uint64_t *serial);
/* Keeps new memory of an evicted slab. */
umf_vault_answer_t umfd_slab_again(const umfd_context_t *c, uint32_t place, int fd);
/* A free record for a slab of a vault, zeroed, if its limit and the limits of the daemon have room
 * for it. */
umf_vault_answer_t umfd_slab_room(const umfd_context_t *c, uint32_t vault, uint64_t size,
                                  umfd_slab_t **slab);
/* A descriptor that can be that of a device. */
umf_vault_answer_t umfd_device_keep(int fd, int *kept);
/* Keeps a descriptor for a record that is filled, and makes it valid. The descriptor is the
 * daemon's, or closed. */
umf_vault_answer_t umfd_slab_keep(const umfd_context_t *c, umfd_slab_t *slab, int kept);

/* claims.c */
uint32_t umfd_claims_of(const umfd_state_t *state, uint32_t vault);
void umfd_claims_drop(umfd_state_t *state, uint32_t vault);
/* Whether the client may have memory of a claim mapped. */
bool umfd_claims_have(const umfd_state_t *state, uint32_t lease);
void umfd_claims_left(umfd_state_t *state, uint32_t lease);
umfd_handler_t umfd_claim, umfd_note, umfd_unclaim, umfd_forget, umfd_claims;

/* Requests that change nothing, or only attached views of the client: read.c */
umfd_handler_t umfd_attach, umfd_slabs, umfd_detach, umfd_stat, umfd_list, umfd_wait;

/* Copies of the host: copies.c */
umfd_handler_t umfd_fill, umfd_filled, umfd_evict, umfd_sum;

#endif
