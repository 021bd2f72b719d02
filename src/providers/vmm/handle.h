/*
 * Vmm_handle: the bytes that describe an allocation of a vmm provider to other processes.
 */
#ifndef UMF_SRC_PROVIDERS_VMM_HANDLE_H
#define UMF_SRC_PROVIDERS_VMM_HANDLE_H

#include "peer/transport.h"
#include "providers/vmm/share.h"

/* The file is sparse: pages without used words take no memory. */
#define UMF_VMM_BOARD_SIZE ((size_t)1 << 20)
#define UMF_VMM_BOARD_WORDS ((uint32_t)(UMF_VMM_BOARD_SIZE / sizeof(uint64_t)))

/* Fixed width, nothing is padding: two descriptions of one allocation are equal byte for byte. */
typedef struct umf_vmm_handle_t {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;                /* that of the back end, and UMF_VMM_PAGED */
    uint64_t check;               /* sum of all other fields */
    umf_fd_ticket_t piece, board; /* with a token both name the board; boardless: zero */
    uint64_t piece_size;
    uint64_t offset, size; /* of the allocation, in the piece */
    uint64_t granule;      /* the producer's granularity */
    uint64_t generation;   /* the word holds this value while the description is valid */
    uint32_t word;         /* boardless: 0 */
    uint32_t maker;        /* boardless: a random number of the provider; else 0 */
    unsigned char token[UMF_VMM_TOKEN_SIZE];
    uint64_t
        piece_id; /* identifies the physical memory among all that the board describes; not 0 */
} umf_vmm_handle_t;

_Static_assert(sizeof(umf_vmm_handle_t) == 16 + 2 * 96 + UMF_VMM_TOKEN_SIZE + 6 * 8 + 8,
               "handles travel");

/* Memory in pages (paged.h): `piece` names the manifest, and the piece is all of the pages. */
#define UMF_VMM_PAGED 0x8000u

static inline bool umf_vmm_handle_is_paged(const umf_vmm_handle_t *handle) {
    return handle->kind & UMF_VMM_PAGED;
}

/* The unit of the described size: a block on pages has its exact size. */
static inline size_t umf_vmm_handle_unit(const umf_vmm_handle_t *handle) {
    return umf_vmm_handle_is_paged(handle) ? 1 : (size_t)handle->granule;
}

/* Writes a description into a caller's buffer; magic, version, kind and sum are set here. */
void umf_vmm_handle_write(const umf_vmm_t *vmm, umf_vmm_handle_t *handle, void *data);

/* Copies a description and checks that its fields fit together. INVALID_ARGUMENT: it is damaged,
 * impossible, or of another kind of provider. */
umf_result_t umf_vmm_handle_read(const umf_vmm_t *vmm, const void *data, umf_vmm_handle_t *handle);

#endif
