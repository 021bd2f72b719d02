/*
 * Sharing the memory of the vmm providers, the consumer's side: open blocks.
 *
 * A piece is imported and mapped whole, once, for all of its open blocks. The close of the last
 * block unmaps it. A block is open once in a mapping. If its place is taken, the piece is mapped
 * again: stale descriptions may overlap newer ones, and a consumer that opens one description twice
 * closes it twice.
 */
#include "providers/vmm/import.h"

#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "peer/process.h"
#include "providers/shared/table.h"
#include "providers/vmm/handle.h"
#include "providers/vmm/own.h"
#include "system/checksum.h"
#include "system/os.h"

/*
 * The identity of the physical memory that a description names. Board and id suffice for an honest
 * producer. The other fields keep a producer that lies about the id from reaching a mapping other
 * than its own. Nothing is padding.
 */
typedef struct piece_key_t {
    uint64_t board_dev, board_ino;
    uint64_t id;
    uint64_t dev, ino, fd;
    uint64_t size;
    unsigned char token[UMF_VMM_TOKEN_SIZE];
} piece_key_t;

typedef struct block_t {
    size_t offset, size;
} block_t;

/* A mapping of a piece. Mappings whose keys have the same sum form a chain. */
typedef struct import_t {
    struct import_t *next; /* Sync: the provider's lock, also for the blocks */
    block_t *blocks;       /* the open ones: they ascend, and none overlaps another */
    size_t block_count, block_room;
    piece_key_t key; /* Immutable after creation, as all members below */
    umf_board_source_t *source;
    uintptr_t base;
    size_t size;
    umf_physical_t physical;
    bool holds_physical;
} import_t;

typedef struct opened_t {
    import_t *import;
    size_t size, granule; /* of the allocation */
} opened_t;

/* --- pieces ----------------------------------------------------------------------------------- */

static piece_key_t key_of(const umf_vmm_handle_t *handle) {
    piece_key_t key = {
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

static uint64_t key_sum(const piece_key_t *key) {
    uint64_t sum = umf_sum(key, sizeof(*key));
    return sum ? sum : 1;
}

/* Index of the first block that begins above `offset`. */
static size_t block_above(const import_t *import, size_t offset) {
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

static bool block_is_free(const import_t *import, size_t offset, size_t size) {
    size_t at = block_above(import, offset);
    const block_t *below = at > 0 ? &import->blocks[at - 1] : NULL;
    return (!below || below->offset + below->size <= offset) &&
           (at == import->block_count || offset + size <= import->blocks[at].offset);
}

static bool block_add(import_t *import, size_t offset, size_t size) {
    if (import->block_count == import->block_room &&
        !umf_vmm_grow((void **)&import->blocks, &import->block_room, sizeof(*import->blocks))) {
        return false;
    }
    size_t at = block_above(import, offset);
    memmove(&import->blocks[at + 1], &import->blocks[at],
            (import->block_count - at) * sizeof(*import->blocks));
    import->blocks[at] = (block_t){offset, size};
    import->block_count++;
    return true;
}

static void block_remove(import_t *import, size_t offset) {
    size_t at = block_above(import, offset) - 1;
    import->block_count--;
    memmove(&import->blocks[at], &import->blocks[at + 1],
            (import->block_count - at) * sizeof(*import->blocks));
}

/* A mapping of the piece in which the block is not open. NULL: there is none. */
static import_t *import_find_locked(umf_vmm_t *vmm, const piece_key_t *key, size_t offset,
                                    size_t size) {
    umf_assert_locked(&vmm->carve.lock);
    import_t *import = umf_hash_get(&vmm->imports.pieces, key_sum(key));
    while (import &&
           (memcmp(&import->key, key, sizeof(*key)) != 0 || !block_is_free(import, offset, size))) {
        import = import->next;
    }
    return import;
}

static bool import_link_locked(umf_vmm_t *vmm, import_t *import) {
    uint64_t sum = key_sum(&import->key);
    import->next = umf_hash_get(&vmm->imports.pieces, sum);
    return umf_hash_put(&vmm->imports.pieces, sum, import);
}

static void import_unlink_locked(umf_vmm_t *vmm, import_t *import) {
    uint64_t sum = key_sum(&import->key);
    import_t *first = umf_hash_get(&vmm->imports.pieces, sum);
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

/* --- mapping pieces --------------------------------------------------------------------------- */

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
static umf_result_t import_map(umf_vmm_t *vmm, const umf_vmm_handle_t *handle, import_t *import) {
    umf_physical_t physical;
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
static umf_result_t import_unmap(umf_vmm_t *vmm, const import_t *import) {
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

static void import_free(umf_vmm_t *vmm, import_t *import) {
    if (import->source) {
        umf_board_put(&vmm->imports.boards, import->source);
    }
    umf_meta_free(import->blocks, import->block_room * sizeof(*import->blocks));
    umf_meta_free(import, sizeof(*import));
}

static umf_result_t import_make(umf_vmm_t *vmm, const umf_vmm_handle_t *handle,
                                umf_board_source_t *source, import_t **made) {
    import_t *import = umf_meta_alloc(sizeof(*import));
    if (!import) {
        UMF_LOG_ERROR("no memory to open shared memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *import =
        (import_t){.key = key_of(handle), .source = source, .size = (size_t)handle->piece_size};
    if (source) {
        umf_board_hold(&vmm->imports.boards, source);
    }
    umf_result_t result = import_map(vmm, handle, import);
    if (result != UMF_RESULT_SUCCESS) {
        import_free(vmm, import);
        return result;
    }
    *made = import;
    return UMF_RESULT_SUCCESS;
}

/* --- opening ---------------------------------------------------------------------------------- */

static bool open_at_locked(umf_vmm_t *vmm, import_t *import, size_t offset, opened_t *opened) {
    if (!block_add(import, offset, opened->size)) {
        return false;
    }
    if (!umf_hash_put(&vmm->imports.opened, import->base + offset, opened)) {
        block_remove(import, offset);
        return false;
    }
    opened->import = import;
    return true;
}

/* Opens the block in a new mapping, which becomes known. */
static bool open_first_locked(umf_vmm_t *vmm, import_t *import, size_t offset, opened_t *opened) {
    if (!import_link_locked(vmm, import)) {
        return false;
    }
    bool is_open = open_at_locked(vmm, import, offset, opened);
    if (!is_open) {
        import_unlink_locked(vmm, import);
    }
    return is_open;
}

/* Opens the block in a known mapping, else in `made`. `opened->import` stays NULL if there is
 * neither. */
static umf_result_t open_join(umf_vmm_t *vmm, const umf_vmm_handle_t *handle, import_t *made,
                              opened_t *opened, uintptr_t *address) {
    piece_key_t key = key_of(handle);
    size_t offset = (size_t)handle->offset;
    umf_lock(&vmm->carve.lock);
    import_t *known = import_find_locked(vmm, &key, offset, opened->size);
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
    umf_result_t result = import_make(vmm, handle, source, &made);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = open_join(vmm, handle, made, opened, address);
    if (opened->import != made) {
        import_unmap(vmm, made);
        import_free(vmm, made);
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
    *opened = (opened_t){.size = (size_t)handle->size, .granule = (size_t)handle->granule};
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
        block_remove(opened->import, (uintptr_t)ptr - opened->import->base);
        *is_last = opened->import->block_count == 0;
        if (*is_last) {
            import_unlink_locked(vmm, opened->import);
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
        result = result == UMF_RESULT_SUCCESS ? import_unmap(vmm, opened->import) : result;
        if (result != UMF_RESULT_SUCCESS && opened_put_back(vmm, ptr, opened)) {
            return result;
        }
        import_free(vmm, opened->import);
    }
    umf_meta_free(opened, sizeof(*opened));
    return result;
}

umf_result_t umf_vmm_check_handle(void *provider, const void *data, size_t size) {
    umf_vmm_t *vmm = provider;
    umf_vmm_handle_t handle;
    umf_result_t result = umf_vmm_handle_read(vmm, data, &handle);
    if (result == UMF_RESULT_SUCCESS &&
        !is_size(size, (size_t)handle.granule, (size_t)handle.size)) {
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
        import_free(arg, import);
    }
}

void umf_vmm_imports_fini(umf_vmm_t *vmm) {
    umf_table_fini(&vmm->imports.opened, sizeof(opened_t));
    umf_hash_each(&vmm->imports.pieces, imports_forget, vmm);
    umf_hash_fini(&vmm->imports.pieces);
}
