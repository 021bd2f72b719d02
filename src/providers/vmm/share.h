/*
 * Vmm_share: memory of the vmm providers in other processes.
 *
 * A description carries a descriptor of the piece's physical memory and the offset of the
 * allocation in it. The descriptor alone does not prove that the memory behind it is still the one
 * described: all descriptors of device memory name one device file, and their numbers are reused.
 * Therefore each provider that shares memory has a board (peer/board.h) in a file of its own. The
 * word of an allocation is cleared when the allocation is freed or changes its extent, or when its
 * piece loses its physical memory; only then is the descriptor closed. A consumer receives the
 * descriptor first and checks the word afterwards.
 *
 * A back end may use tokens instead of descriptors: bytes that name physical memory on every
 * machine. It has a board all the same. A boardless back end has none: its descriptions can be
 * opened on other machines, and nothing shows whether they are still valid.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_SHARE_H
#define UMF_SRC_PROVIDERS_VMM_SHARE_H

#include "base/kept_fd.h"
#include "ds/hash.h"
#include "ds/list.h"
#include "peer/board.h"

typedef struct umf_vmm_t umf_vmm_t;

#define UMF_VMM_TOKEN_SIZE 64

/* The shared state of one provider. Sync: its lock. Zeroed, it shares nothing yet. */
typedef struct umf_vmm_share_t {
    umf_hash_t exports;     /* described allocations by address */
    umf_hash_t paged;       /* described blocks on pages by address (paged.c) */
    umf_board_t board;      /* its generations also number pieces */
    umf_fd_ticket_t ticket; /* of the board, as `file` */
    umf_kept_fd_t file;
    uint32_t maker; /* see umf_vmm_handle_t; 0: none yet */
} umf_vmm_share_t;

/* The shared state of one piece. Sync: the lock of its provider. */
typedef struct umf_vmm_piece_share_t {
    umf_list_t exports; /* exports of its allocations */
    umf_fd_ticket_t ticket;
    umf_kept_fd_t descriptor; /* kept while there is a descriptor */
    unsigned char token[UMF_VMM_TOKEN_SIZE];
    bool has_token; /* after the first export there is a token or a descriptor */
    uint64_t id;    /* identifies its physical memory; 0: not described yet */
} umf_vmm_piece_share_t;

/* Where a described allocation lies. */
typedef struct umf_vmm_location_t {
    uintptr_t base;
    size_t size;
    size_t offset; /* in its piece */
    size_t piece_size;
    bool is_paged; /* the piece is many pages */
} umf_vmm_location_t;

/* The result of all sharing operations of a back end without sharing. Logs if not SUCCESS. */
umf_result_t umf_vmm_check_share(const umf_vmm_t *vmm);

/*
 * Describes an allocation of a piece that has a descriptor. OUT_OF_HOST_MEMORY, or OUT_OF_RESOURCES
 * if too many are described.
 */
umf_result_t umf_vmm_share_describe_locked(umf_vmm_t *vmm, umf_vmm_piece_share_t *piece,
                                           const umf_vmm_location_t *location, void *data);

/* Stores a descriptor in a piece, which owns it then, also after a failure. */
umf_result_t umf_vmm_share_take_locked(umf_vmm_piece_share_t *piece, int fd);

/* Voids the descriptions of the allocation at `base`, which is freed or changes its extent. */
void umf_vmm_share_drop_locked(umf_vmm_share_t *share, uintptr_t base);
/* Voids the descriptions of all allocations of a piece, then closes its descriptor. */
void umf_vmm_share_drop_piece_locked(umf_vmm_share_t *share, umf_vmm_piece_share_t *piece);

/* Voids all descriptions and closes all descriptors. */
void umf_vmm_share_fini(umf_vmm_t *vmm);

/* Operations of the provider. umf_vmm_get_handle is in vmm.h, the others are in import.h. */
umf_result_t umf_vmm_handle_size(void *provider, size_t *size);
umf_result_t umf_vmm_put_handle(void *provider, void *data);

#endif
