/* Mappings of pieces of other processes, between the files of import. */
#ifndef UMF_SRC_PROVIDERS_VMM_IMPORT_OWN_H
#define UMF_SRC_PROVIDERS_VMM_IMPORT_OWN_H

#include "providers/vmm/handle.h"
#include "providers/vmm/import.h"
#include "providers/vmm/own.h"

/*
 * The identity of the physical memory that a description names. Board and id suffice for an honest
 * producer. The other fields keep a producer that lies about the id from reaching a mapping other
 * than its own. Nothing is padding.
 */
typedef struct umf_vmm_piece_key_t {
    uint64_t board_dev, board_ino;
    uint64_t id;
    uint64_t dev, ino, fd;
    uint64_t size;
    unsigned char token[UMF_VMM_TOKEN_SIZE];
} umf_vmm_piece_key_t;

typedef struct umf_vmm_block_t {
    size_t offset, size;
} umf_vmm_block_t;

/* A mapping of a piece. Mappings whose keys have the same sum form a chain. */
typedef struct umf_vmm_import_t {
    struct umf_vmm_import_t *next; /* Sync: the provider's lock, also for the blocks */
    umf_vmm_block_t *blocks;       /* the open ones: they ascend, and none overlaps another */
    size_t block_count, block_room;
    umf_vmm_piece_key_t key; /* Immutable after creation, as all members below */
    umf_board_source_t *source;
    uintptr_t base;
    size_t size;
    umf_physical_t physical;
    bool holds_physical;
} umf_vmm_import_t;

umf_vmm_piece_key_t umf_vmm_piece_key(const umf_vmm_handle_t *handle);

/* A block that is open in the mapping. false: no memory. */
bool umf_vmm_block_add(umf_vmm_import_t *import, size_t offset, size_t size);
void umf_vmm_block_remove(umf_vmm_import_t *import, size_t offset);

/* A mapping of the piece in which the block is not open. NULL: there is none. */
umf_vmm_import_t *umf_vmm_import_find_locked(umf_vmm_t *vmm, const umf_vmm_piece_key_t *key,
                                             size_t offset, size_t size);
bool umf_vmm_import_link_locked(umf_vmm_t *vmm, umf_vmm_import_t *import);
void umf_vmm_import_unlink_locked(umf_vmm_t *vmm, umf_vmm_import_t *import);

/* Maps the piece. */
umf_result_t umf_vmm_import_make(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                                 umf_board_source_t *source, umf_vmm_import_t **made);
/* After a failure the piece stays mapped. */
umf_result_t umf_vmm_import_unmap(umf_vmm_t *vmm, const umf_vmm_import_t *import);
void umf_vmm_import_free(umf_vmm_t *vmm, umf_vmm_import_t *import);

#endif
