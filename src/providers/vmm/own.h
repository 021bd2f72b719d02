/* The inside of vmm: what allocations (vmm.c) and memory that goes and comes (vmm_pieces.c) share.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_OWN_H
#define UMF_SRC_PROVIDERS_VMM_OWN_H

#include "providers/vmm/vmm.h"

typedef enum umf_vmm_state_t {
    UMF_VMM_ATTACHED,
    UMF_VMM_MAPPED,   /* perhaps without access: the back end failed in between */
    UMF_VMM_CREATED,  /* physical memory, not mapped */
    UMF_VMM_DETACHED, /* no physical memory */
} umf_vmm_state_t;

/* Sync: the lock of its vmm, except what is immutable. Whoever has claimed it, and nobody else,
 * changes its state. */
struct umf_vmm_piece_t {
    uintptr_t base; /* Immutable */
    size_t size;    /* Immutable */
    umf_physical_t physical;
    umf_vmm_state_t state;
    bool is_claimed; /* stays, whatever is freed */
    size_t allocations;
    /* What is free in a piece that is claimed or has no memory is kept out of the range, so that
     * nothing is allocated there. */
    umf_range_segment_t *withheld;
    size_t withheld_count, withheld_room;
    umf_vmm_piece_share_t share;
    umf_vmm_piece_t *next; /* of those that are retired */
};

static inline bool umf_vmm_is_mapped(const umf_vmm_piece_t *piece) {
    return piece->state == UMF_VMM_ATTACHED || piece->state == UMF_VMM_MAPPED;
}

/* The piece that holds the address; NULL if none does. */
umf_vmm_piece_t *umf_vmm_piece_locked(umf_vmm_t *vmm, uintptr_t addr);

/* false: no memory. */
bool umf_vmm_withhold_locked(umf_vmm_piece_t *piece, uintptr_t base, size_t size);
void umf_vmm_take_back_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece);

/* Waits until no queued work can use memory that is to be unmapped; a failure: it cannot wait. */
umf_result_t umf_vmm_settle(umf_vmm_t *vmm);

/* Takes a piece without allocations out of all lists; what was withheld in it goes with it. */
void umf_vmm_retire_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece);
/* Of a piece that is not listed. Goes on after a failure: what can go goes. The first failure is
 * returned. */
umf_result_t umf_vmm_piece_unmake(umf_vmm_t *vmm, umf_vmm_piece_t *piece);

/* The same once no work can use the piece any more, which may be later: then the failure is told.
 */
umf_result_t umf_vmm_let_go(umf_vmm_t *vmm, umf_vmm_piece_t *piece);
/* What had to wait goes, if it can now: before more memory is made. The first failure is told. */
umf_result_t umf_vmm_give_back(umf_vmm_t *vmm);

/* Before its physical memory goes: nobody may have it from now on, or keep it by a descriptor. */
void umf_vmm_unshare(umf_vmm_t *vmm, umf_vmm_piece_t *piece);
/* Makes adjacent mappings ready for access. */
umf_result_t umf_vmm_allow(umf_vmm_t *vmm, uintptr_t base, size_t size);

/* A larger copy of an array out of the metadata arena. false: no memory. */
bool umf_vmm_grow(void **array, size_t *room, size_t item_size);

#endif
