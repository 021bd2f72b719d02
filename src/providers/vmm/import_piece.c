/* Pieces of other processes: their mappings, and the blocks that are open in them. */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "providers/vmm/import_own.h"
#include "providers/vmm/paged.h"
#include "system/checksum.h"
#include "system/os.h"

umf_vmm_piece_key_t umf_vmm_piece_key(const umf_vmm_handle_t *handle) {
    umf_vmm_piece_key_t key = {
        .board_dev = handle->board.dev,
        .board_ino = handle->board.ino,
        .id = handle->piece_id,
        .dev = handle->piece.dev,
        .ino = handle->piece.ino,
        .fd = (uint64_t)handle->piece.fd,
        .size = handle->piece_size,
    };
    memcpy(key.token, handle->token, sizeof(key.token));
    return key;
}

static uint64_t key_sum(const umf_vmm_piece_key_t *key) {
    uint64_t sum = umf_sum(key, sizeof(*key));
    return sum ? sum : 1;
}

/* Index of the first block that begins above `offset`. */
static size_t block_above(const umf_vmm_import_t *import, size_t offset) {
    size_t low = 0, high = import->block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (import->blocks[middle].offset > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool block_is_free(const umf_vmm_import_t *import, size_t offset, size_t size) {
    size_t at = block_above(import, offset);
    const umf_vmm_block_t *below = at > 0 ? &import->blocks[at - 1] : NULL;
    return (!below || below->offset + below->size <= offset) &&
           (at == import->block_count || offset + size <= import->blocks[at].offset);
}

bool umf_vmm_block_add(umf_vmm_import_t *import, size_t offset, size_t size) {
    if (import->block_count == import->block_room &&
        !umf_vmm_grow((void **)&import->blocks, &import->block_room, sizeof(*import->blocks))) {
        return false;
    }
    size_t at = block_above(import, offset);
    memmove(&import->blocks[at + 1], &import->blocks[at],
            (import->block_count - at) * sizeof(*import->blocks));
    import->blocks[at] = (umf_vmm_block_t){offset, size};
    import->block_count++;
    return true;
}

void umf_vmm_block_remove(umf_vmm_import_t *import, size_t offset) {
    size_t at = block_above(import, offset) - 1;
    import->block_count--;
    memmove(&import->blocks[at], &import->blocks[at + 1],
            (import->block_count - at) * sizeof(*import->blocks));
}

/* A mapping of the piece in which the block is not open. NULL: there is none. */
umf_vmm_import_t *umf_vmm_import_find_locked(umf_vmm_t *vmm, const umf_vmm_piece_key_t *key,
                                             size_t offset, size_t size) {
    umf_assert_locked(&vmm->carve.lock);
    umf_vmm_import_t *import = umf_hash_get(&vmm->imports.pieces, key_sum(key));
    while (import &&
           (memcmp(&import->key, key, sizeof(*key)) != 0 || !block_is_free(import, offset, size))) {
        import = import->next;
    }
    return import;
}

bool umf_vmm_import_link_locked(umf_vmm_t *vmm, umf_vmm_import_t *import) {
    uint64_t sum = key_sum(&import->key);
    import->next = umf_hash_get(&vmm->imports.pieces, sum);
    return umf_hash_put(&vmm->imports.pieces, sum, import);
}

void umf_vmm_import_unlink_locked(umf_vmm_t *vmm, umf_vmm_import_t *import) {
    uint64_t sum = key_sum(&import->key);
    umf_vmm_import_t *first = umf_hash_get(&vmm->imports.pieces, sum);
    if (first == import && import->next) {
        /* The key has a slot already, so this needs no memory and cannot fail. */
        umf_hash_put(&vmm->imports.pieces, sum, import->next);
    } else if (first == import) {
        umf_hash_remove(&vmm->imports.pieces, sum);
    } else {
        while (first->next != import) {
            first = first->next;
        }
        first->next = import->next;
    }
}

/* --- mapping ---------------------------------------------------------------------------------- */

/* open_import for a back end that has tokens. */
static umf_result_t open_import_token(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                                      const umf_board_source_t *source, umf_physical_t *physical) {
    umf_physical_t made;
    umf_result_t result =
        vmm->ops->import_token(vmm, handle->token, (size_t)handle->piece_size, &made);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result =
        source ? umf_board_check(source, handle->word, handle->generation) : UMF_RESULT_SUCCESS;
    if (result != UMF_RESULT_SUCCESS) {
        vmm->ops->destroy(vmm, made);
        return result;
    }
    *physical = made;
    return UMF_RESULT_SUCCESS;
}

/* Imports the physical memory of the piece. The board is checked after the descriptor was received,
 * because a descriptor closed before that may be another one by now. */
static umf_result_t open_import(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                                const umf_board_source_t *source, umf_physical_t *physical) {
    int fd;
    if (vmm->ops->import_token) {
        return open_import_token(vmm, handle, source, physical);
    }
    umf_result_t result = vmm->ops->is_device ? umf_ticket_redeem_copy(&handle->piece, &fd)
                                              : umf_ticket_redeem(&handle->piece, &fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_board_check(source, handle->word, handle->generation);
    if (result == UMF_RESULT_SUCCESS) {
        result = vmm->ops->import(vmm, fd, (size_t)handle->piece_size, physical);
    }
    umf_os_close(fd);
    return result;
}

/* The mapping keeps the physical memory alive, so the handle to it is released at once. If that
 * fails, the handle is released with the mapping. */
static umf_result_t import_map(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                               umf_vmm_import_t *import) {
    umf_physical_t physical;
    if (umf_vmm_handle_is_paged(handle)) {
        return umf_vmm_map_pages(vmm, handle, import->source, &import->base);
    }
    umf_result_t result = open_import(vmm, handle, import->source, &physical);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = vmm->ops->reserve(vmm, import->size, vmm->carve.page_size, &import->base);
    if (result == UMF_RESULT_SUCCESS) {
        bool is_mapped;
        result = umf_vmm_map(vmm, import->base, import->size, physical, &is_mapped);
        if (result != UMF_RESULT_SUCCESS) {
            umf_vmm_unmap(vmm, import->base, import->size, is_mapped);
        }
    }
    umf_result_t released = vmm->ops->destroy(vmm, physical);
    import->physical = physical;
    import->holds_physical = released != UMF_RESULT_SUCCESS;
    return result;
}

/* After a failure the piece stays mapped. */
umf_result_t umf_vmm_import_unmap(umf_vmm_t *vmm, const umf_vmm_import_t *import) {
    bool is_one_call = vmm->ops->unreserve_unmaps;
    umf_result_t result = is_one_call ? vmm->ops->unreserve(vmm, import->base, import->size)
                                      : vmm->ops->unmap(vmm, import->base, import->size);
    if (result == UMF_RESULT_SUCCESS) {
        if (import->holds_physical) {
            vmm->ops->destroy(vmm, import->physical);
        }
        if (!is_one_call) {
            vmm->ops->unreserve(vmm, import->base, import->size);
        }
    }
    return result;
}

void umf_vmm_import_free(umf_vmm_t *vmm, umf_vmm_import_t *import) {
    if (import->source) {
        umf_board_put(&vmm->imports.boards, import->source);
    }
    umf_meta_free(import->blocks, import->block_room * sizeof(*import->blocks));
    umf_meta_free(import, sizeof(*import));
}

umf_result_t umf_vmm_import_make(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                                 umf_board_source_t *source, umf_vmm_import_t **made) {
    umf_vmm_import_t *import = umf_meta_alloc(sizeof(*import));
    if (!import) {
        UMF_LOG_ERROR("no memory to open shared memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *import = (umf_vmm_import_t){
        .key = umf_vmm_piece_key(handle), .source = source, .size = (size_t)handle->piece_size};
    if (source) {
        umf_board_hold(&vmm->imports.boards, source);
    }
    umf_result_t result = import_map(vmm, handle, import);
    if (result != UMF_RESULT_SUCCESS) {
        umf_vmm_import_free(vmm, import);
        return result;
    }
    *made = import;
    return UMF_RESULT_SUCCESS;
}
