/*
 * Sharing the memory of the vmm providers, the consumer's side: open blocks.
 *
 * A piece is imported and mapped whole, once, for all of its open blocks. The close of the last
 * block unmaps it. A block is open once in a mapping. If its place is taken, the piece is mapped
 * again: stale descriptions may overlap newer ones, and a consumer that opens one description twice
 * closes it twice.
 */
#include <sys/mman.h>

#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "peer/process.h"
#include "providers/shared/table.h"
#include "providers/vmm/import_own.h"
#include "system/os.h"

typedef umf_vmm_import_t import_t;

typedef struct opened_t {
    import_t *import;
    size_t size, granule; /* of the allocation */
} opened_t;

/* --- boards ----------------------------------------------------------------------------------- */

static umf_result_t board_open(umf_board_source_t *source, const umf_fd_ticket_t *ticket,
                               const void *description) {
    (void)description;
    int fd;
    uint64_t dev, ino, size;
    void *words = NULL;
    umf_result_t result = umf_ticket_redeem(ticket, &fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    int error = umf_os_file_id(fd, &dev, &ino, &size);
    if (!error && (size != UMF_VMM_BOARD_SIZE || umf_memory_file_check(fd) != 0)) {
        UMF_LOG_ERROR("descriptor %d of process %u does not match the description", ticket->fd,
                      ticket->pid);
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    } else if (!error) {
        error = umf_os_map(&words, UMF_VMM_BOARD_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "opening the file that shows which descriptions are valid failed");
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_os_close(fd);
    source->words = words;
    source->size = UMF_VMM_BOARD_SIZE;
    return result;
}

void umf_vmm_imports_init(umf_vmm_t *vmm) {
    static const umf_board_ops_t ops = {
        .source_size = sizeof(umf_board_source_t),
        .open = board_open,
    };
    vmm->imports.boards = (umf_board_sources_t){.lock = &vmm->carve.lock, .ops = &ops};
}

/* --- opening ---------------------------------------------------------------------------------- */

static bool open_at_locked(umf_vmm_t *vmm, import_t *import, size_t offset, opened_t *opened) {
    if (!umf_vmm_block_add(import, offset, opened->size)) {
        return false;
    }
    if (!umf_hash_put(&vmm->imports.opened, import->base + offset, opened)) {
        umf_vmm_block_remove(import, offset);
        return false;
    }
    opened->import = import;
    return true;
}

/* Opens the block in a new mapping, which becomes known. */
static bool open_first_locked(umf_vmm_t *vmm, import_t *import, size_t offset, opened_t *opened) {
    if (!umf_vmm_import_link_locked(vmm, import)) {
        return false;
    }
    bool is_open = open_at_locked(vmm, import, offset, opened);
    if (!is_open) {
        umf_vmm_import_unlink_locked(vmm, import);
    }
    return is_open;
}

/* Opens the block in a known mapping, else in `made`. `opened->import` stays NULL if there is
 * neither. */
static umf_result_t open_join(umf_vmm_t *vmm, const umf_vmm_handle_t *handle, import_t *made,
                              opened_t *opened, uintptr_t *address) {
    umf_vmm_piece_key_t key = umf_vmm_piece_key(handle);
    size_t offset = (size_t)handle->offset;
    umf_lock(&vmm->carve.lock);
    import_t *known = umf_vmm_import_find_locked(vmm, &key, offset, opened->size);
    bool is_done = known  ? open_at_locked(vmm, known, offset, opened)
                   : made ? open_first_locked(vmm, made, offset, opened)
                          : true;
    if (opened->import) {
        *address = opened->import->base + offset;
    }
    umf_unlock(&vmm->carve.lock);
    if (!is_done) {
        UMF_LOG_ERROR("no memory to open shared memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

/* If two threads map one piece at the same time, the second one unmaps its mapping. */
static umf_result_t open_new(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                             umf_board_source_t *source, opened_t *opened, uintptr_t *address) {
    import_t *made;
    umf_result_t result = umf_vmm_import_make(vmm, handle, source, &made);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = open_join(vmm, handle, made, opened, address);
    if (opened->import != made) {
        umf_vmm_import_unmap(vmm, made);
        umf_vmm_import_free(vmm, made);
    }
    return result;
}

static umf_result_t open_from(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                              umf_board_source_t *source, void **ptr) {
    opened_t *opened = umf_meta_alloc(sizeof(*opened));
    if (!opened) {
        UMF_LOG_ERROR("no memory to open shared memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *opened = (opened_t){.size = (size_t)handle->size, .granule = umf_vmm_handle_unit(handle)};
    uintptr_t address;
    umf_result_t result = open_join(vmm, handle, NULL, opened, &address);
    if (result == UMF_RESULT_SUCCESS && !opened->import) {
        result = open_new(vmm, handle, source, opened, &address);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(opened, sizeof(*opened));
        return result;
    }
    *ptr = (void *)address;
    return UMF_RESULT_SUCCESS;
}

/* Checks the board first: the descriptor of a stale description may be closed already. A block of a
 * piece that is already mapped opens without a message to the producer, so the board alone shows
 * whether the description is valid. */
static umf_result_t open_watched(umf_vmm_t *vmm, const umf_vmm_handle_t *handle, void **ptr) {
    umf_board_source_t *source;
    umf_process_t producer = umf_ticket_producer(&handle->board);
    umf_result_t result = umf_board_get(&vmm->imports.boards, &handle->board, NULL, &source);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_board_check(source, handle->word, handle->generation);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_process_check(&producer);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = open_from(vmm, handle, source, ptr);
    }
    umf_board_put(&vmm->imports.boards, source);
    return result;
}

umf_result_t umf_vmm_open_handle(void *provider, void *data, void **ptr) {
    umf_vmm_t *vmm = provider;
    umf_vmm_handle_t handle;
    umf_result_t result = umf_vmm_handle_read(vmm, data, &handle);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (handle.piece_size % vmm->carve.page_size != 0) {
        UMF_LOG_ERROR("%llu bytes cannot be mapped here, in units of %zu",
                      (unsigned long long)handle.piece_size, vmm->carve.page_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return vmm->ops->is_boardless ? open_from(vmm, &handle, NULL, ptr)
                                  : open_watched(vmm, &handle, ptr);
}

/* --- open blocks ------------------------------------------------------------------------------ */

static bool is_size(size_t size, size_t granule, size_t whole) {
    size_t rounded;
    return umf_round_up(size, granule, &rounded) && rounded == whole;
}

/* Takes the block out of the table, so that only one of two concurrent closes continues, and out of
 * its mapping. `*is_last`: no block is open in the mapping, and none will be. */
static opened_t *opened_withdraw(umf_vmm_t *vmm, const void *ptr, size_t size, bool *is_last) {
    umf_lock(&vmm->carve.lock);
    opened_t *opened = umf_hash_get(&vmm->imports.opened, (uintptr_t)ptr);
    if (opened && is_size(size, opened->granule, opened->size)) {
        umf_hash_remove(&vmm->imports.opened, (uintptr_t)ptr);
        umf_vmm_block_remove(opened->import, (uintptr_t)ptr - opened->import->base);
        *is_last = opened->import->block_count == 0;
        if (*is_last) {
            umf_vmm_import_unlink_locked(vmm, opened->import);
        }
    } else {
        opened = NULL;
    }
    umf_unlock(&vmm->carve.lock);
    return opened;
}

static bool opened_put_back(umf_vmm_t *vmm, const void *ptr, opened_t *opened) {
    umf_lock(&vmm->carve.lock);
    bool is_done =
        open_first_locked(vmm, opened->import, (uintptr_t)ptr - opened->import->base, opened);
    umf_unlock(&vmm->carve.lock);
    return is_done;
}

umf_result_t umf_vmm_close_handle(void *provider, void *ptr, size_t size) {
    umf_vmm_t *vmm = provider;
    bool is_last = false;
    umf_result_t result = umf_vmm_check_share(vmm);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    opened_t *opened = opened_withdraw(vmm, ptr, size, &is_last);
    if (!opened) {
        UMF_LOG_ERROR("%zu bytes at %p were not opened by this provider", size, ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (is_last) {
        result = umf_vmm_settle(vmm);
        result = result == UMF_RESULT_SUCCESS ? umf_vmm_import_unmap(vmm, opened->import) : result;
        if (result != UMF_RESULT_SUCCESS && opened_put_back(vmm, ptr, opened)) {
            return result;
        }
        umf_vmm_import_free(vmm, opened->import);
    }
    umf_meta_free(opened, sizeof(*opened));
    return result;
}

umf_result_t umf_vmm_check_handle(void *provider, const void *data, size_t size) {
    umf_vmm_t *vmm = provider;
    umf_vmm_handle_t handle;
    umf_result_t result = umf_vmm_handle_read(vmm, data, &handle);
    if (result == UMF_RESULT_SUCCESS &&
        !is_size(size, umf_vmm_handle_unit(&handle), (size_t)handle.size)) {
        UMF_LOG_ERROR("%zu bytes are to be opened, but %llu were described", size,
                      (unsigned long long)handle.size);
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

umf_result_t umf_vmm_watch_handle(void *provider, const void *data, const uint64_t **word,
                                  uint64_t *expected) {
    umf_vmm_t *vmm = provider;
    umf_vmm_handle_t handle;
    umf_result_t result = umf_vmm_handle_read(vmm, data, &handle);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (vmm->ops->is_boardless) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    *expected = handle.generation;
    return umf_board_watch(&vmm->imports.boards, &handle.board, handle.word, word);
}

static void imports_forget(uint64_t sum, void *value, void *arg) {
    (void)sum;
    for (import_t *import = value, *next; import; import = next) {
        next = import->next;
        umf_vmm_import_free(arg, import);
    }
}

void umf_vmm_imports_fini(umf_vmm_t *vmm) {
    umf_table_fini(&vmm->imports.opened, sizeof(opened_t));
    umf_hash_each(&vmm->imports.pieces, imports_forget, vmm);
    umf_hash_fini(&vmm->imports.pieces);
}
