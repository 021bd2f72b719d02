/* The inside of vmm, shared by the allocations (vmm.c) and by pieces without physical memory
 * (pieces.c). */
#ifndef UMF_SRC_PROVIDERS_VMM_OWN_H
#define UMF_SRC_PROVIDERS_VMM_OWN_H

#include "providers/vmm/vmm.h"

typedef enum umf_vmm_state_t {
    UMF_VMM_ATTACHED,
    UMF_VMM_MAPPED,   /* mapped, access not certain: the back end failed in between */
    UMF_VMM_CREATED,  /* has physical memory that is not mapped */
    UMF_VMM_DETACHED, /* has no physical memory */
} umf_vmm_state_t;

/* Sync: the lock of its vmm, except for immutable members. Only the thread that has claimed a piece
 * changes its state. */
struct umf_vmm_piece_t {
    uintptr_t base; /* Immutable */
    size_t size;    /* Immutable */
    umf_physical_t physical;
    uint64_t generation; /* number of its physical memory */
    umf_vmm_state_t state;
    bool is_claimed; /* the piece stays listed, even when its last allocation is freed */
    bool is_given;   /* its addresses belong to the caller of umf_vmm_take */
    size_t allocations;
    /* Free segments of a piece that is claimed or has no physical memory. They are taken out of the
     * range, so that nothing is allocated there. */
    umf_range_segment_t *isolated;
    size_t isolated_count, isolated_room;
    umf_vmm_piece_share_t share;
    umf_vmm_piece_t *next; /* in the list of retired pieces */
};

static inline bool umf_vmm_is_mapped(const umf_vmm_piece_t *piece) {
    return piece->state == UMF_VMM_ATTACHED || piece->state == UMF_VMM_MAPPED;
}

/* A number for new physical memory, never given twice in the process. */
uint64_t umf_vmm_generation_next(void);

/* The piece that holds the address; NULL if none does. */
umf_vmm_piece_t *umf_vmm_piece_locked(umf_vmm_t *vmm, uintptr_t addr);

/* false: no memory. */
bool umf_vmm_isolate_locked(umf_vmm_piece_t *piece, uintptr_t base, size_t size);
/* An isolated segment counts as used in the range, but it is free: a second free must not find it.
 */
bool umf_vmm_is_isolated_locked(const umf_vmm_piece_t *piece, uintptr_t base);
void umf_vmm_take_back_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece);

/* Takes a piece without allocations out of all lists, together with its isolated segments. */
void umf_vmm_retire_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece);
/* Releases everything of a piece that is not listed: mapping, physical memory, addresses. It
 * continues after a failure, to release what it can, and returns the first failure. */
umf_result_t umf_vmm_piece_unmake(umf_vmm_t *vmm, umf_vmm_piece_t *piece);

/* --- pending.c --- */

/* Waits until no queued work can use memory that is to be unmapped. A failure: waiting is not
 * possible now. */
umf_result_t umf_vmm_settle(umf_vmm_t *vmm);
/* Releases a piece as soon as no queued work can use it, now or later. A later
 * failure is logged. */
umf_result_t umf_vmm_let_go(umf_vmm_t *vmm, umf_vmm_piece_t *piece);
/* Releases retired pieces whose work has ended; others wait behind a mark. Called before new
 * physical memory is created. Returns the first failure. */
umf_result_t umf_vmm_give_back(umf_vmm_t *vmm);
/* Are there pieces that wait? */
bool umf_vmm_has_pending(umf_vmm_t *vmm);
/* Releases all of them, after a wait for all work. */
void umf_vmm_unmake_pending(umf_vmm_t *vmm);

/* Called before physical memory is released: voids all descriptions of the piece and closes its
 * descriptor, which would keep the memory. */
void umf_vmm_unshare(umf_vmm_t *vmm, umf_vmm_piece_t *piece);
/* Gives access to adjacent mappings. */
umf_result_t umf_vmm_allow(umf_vmm_t *vmm, uintptr_t base, size_t size);

/* --- ranges.c --- */

/* Tries once more to release memory that the driver has refused. */
void umf_vmm_ranges_fini(umf_vmm_t *vmm);

/* Replaces an array by a larger copy in the metadata arena. false: no memory. */
bool umf_vmm_grow(void **array, size_t *room, size_t item_size);

#endif
