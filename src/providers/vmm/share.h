/*
 * Vmm_share: memory of the vmm providers in other processes.
 *
 * What travels is a descriptor of the piece's physical memory and the place of the allocation in
 * it. Descriptors of device memory all name one device file and numbers are used again, so a
 * descriptor alone does not tell whether the memory behind it is still the one described. Therefore
 * each provider that shares has a *board*: a file of words, one for each described allocation. The
 * word holds the description's generation until the allocation is freed, changes its extent, or its
 * piece loses its physical memory; only then is the descriptor closed. Who opens a description has
 * the descriptor first and looks at the word after that.
 *
 * A back end may have tokens instead, bytes that name physical memory wherever they are; the board
 * remains a file. Boardless ones do without: their descriptions can be opened on other machines,
 * and nothing tells whether they still hold.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_SHARE_H
#define UMF_SRC_PROVIDERS_VMM_SHARE_H

#include "ds/hash.h"
#include "ds/list.h"
#include "peer/transport.h"

typedef struct umf_vmm_t umf_vmm_t;

#define UMF_VMM_TOKEN_SIZE 64

/* Of one provider. Sync: its lock. A zeroed one shares nothing yet. */
typedef struct umf_vmm_share_t {
    umf_hash_t exports; /* described allocations by address */
    uint64_t *words;    /* the board; NULL: none. Word 0 is not used */
    umf_fd_ticket_t board;
    uint32_t maker; /* see umf_vmm_handle_t; 0: none yet */
    uint32_t words_used, cursor;
    uint64_t generation; /* the last one given */
} umf_vmm_share_t;

/* Of one piece. Sync: the lock of its provider. */
typedef struct umf_vmm_piece_share_t {
    umf_list_t exports; /* of its allocations */
    umf_fd_ticket_t ticket;
    unsigned char token[UMF_VMM_TOKEN_SIZE];
    bool has_descriptor, has_token; /* one of them once it was exported */
    uint64_t id;                    /* of its physical memory, 0: not described yet */
} umf_vmm_piece_share_t;

/* Where a described allocation lies. */
typedef struct umf_vmm_place_t {
    uintptr_t base;
    size_t size;
    size_t offset; /* in its piece */
    size_t piece_size;
} umf_vmm_place_t;

size_t umf_vmm_handle_size(void);

/*
 * Describes an allocation of a piece that has a descriptor. OUT_OF_HOST_MEMORY, or OUT_OF_RESOURCES
 * if too many are described.
 */
umf_result_t umf_vmm_share_describe_locked(umf_vmm_t *vmm, umf_vmm_piece_share_t *piece,
                                           const umf_vmm_place_t *place, void *data);

/* Gives a piece a descriptor, which it then owns. */
umf_result_t umf_vmm_share_take_locked(umf_vmm_piece_share_t *piece, int fd);

/* The allocation at `base` is freed or changes its extent: its descriptions are void. */
void umf_vmm_share_drop_locked(umf_vmm_share_t *share, uintptr_t base);
/* The same for all allocations of a piece; then its descriptor is closed. */
void umf_vmm_share_drop_piece_locked(umf_vmm_share_t *share, umf_vmm_piece_share_t *piece);

/* Everything goes. */
void umf_vmm_share_fini(umf_vmm_t *vmm);

/* The body of the provider's operation; umf_vmm_get_handle is in vmm.h, the others are in
 * vmm_import.h. */
umf_result_t umf_vmm_put_handle(umf_vmm_t *vmm, const void *data);

#endif
