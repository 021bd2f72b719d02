/* Sharing the memory of the vmm providers, the producer's side: descriptions and the board. */
#include "providers/vmm/share.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "peer/process.h"
#include "providers/vmm/handle.h"
#include "providers/vmm/vmm.h"
#include "system/os.h"

typedef struct share_export_t {
    umf_list_t siblings; /* exports of one piece */
    uintptr_t base;
    uint64_t generation;
    uint32_t word;
} share_export_t;

/* --- the board -------------------------------------------------------------------------------- */

static bool board_is_mine(const umf_vmm_share_t *share) {
    return share->board.words && share->ticket.pid == umf_process_pid();
}

static umf_result_t board_fail(int error, const char *what) {
    umf_log_write(UMF_LOG_LEVEL_ERROR, error, "umf_vmm_get_handle",
                  "%s the file that shows which descriptions are valid failed", what);
    return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* Consumers rely on the length of the board, and only this process may write to it. Before
 * Linux 5.1 a process that can open the file can write to it, too. */
static int board_seal(int fd) {
    int error = umf_memory_file_seal(fd, UMF_OS_SEALS | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
    return error == EINVAL ? umf_memory_file_seal(fd, UMF_OS_SEALS | F_SEAL_GROW) : error;
}

/* The file must have its size when it is mapped, and no other afterwards. */
static umf_result_t board_map(int fd, void **words) {
    int error = umf_os_truncate(fd, UMF_VMM_BOARD_SIZE);
    if (!error) {
        error = umf_os_map(words, UMF_VMM_BOARD_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (error) {
        return board_fail(error, "mapping");
    }
    error = board_seal(fd);
    if (error) {
        umf_os_unmap(*words, UMF_VMM_BOARD_SIZE);
        return board_fail(error, "sealing");
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t board_make(umf_vmm_share_t *share) {
    int fd;
    void *words = NULL;
    int error = umf_memory_file("umf_board", &fd);
    if (!error) {
        error = umf_kept_fd_take(&share->file, fd);
    }
    if (error) {
        return board_fail(error, "making");
    }
    umf_result_t result = board_map(fd, &words);
    if (result != UMF_RESULT_SUCCESS) {
        goto close_file;
    }
    result = umf_ticket_make(fd, &share->ticket);
    if (result != UMF_RESULT_SUCCESS) {
        goto unmap;
    }
    share->board = (umf_board_t){
        .words = words,
        .first = 1,
        .count = UMF_VMM_BOARD_WORDS,
        .generation = share->board.generation,
    };
    return UMF_RESULT_SUCCESS;

unmap:
    umf_os_unmap(words, UMF_VMM_BOARD_SIZE);
close_file:
    umf_kept_fd_close(&share->file);
    return result;
}

static void board_destroy(umf_vmm_share_t *share) {
    if (share->board.words) {
        umf_os_unmap(share->board.words, UMF_VMM_BOARD_SIZE);
        umf_ticket_drop(&share->ticket);
        umf_kept_fd_close(&share->file);
        share->board.words = NULL;
    }
}

static void export_forget(uint64_t address, void *value, void *arg) {
    (void)address, (void)arg;
    share_export_t *export = value;
    umf_list_remove(&export->siblings);
    umf_meta_free(export, sizeof(*export));
}

/* A forked child inherits the board, but its words belong to the parent: the child
 * needs its own. */
static umf_result_t board_settle_locked(umf_vmm_share_t *share) {
    if (board_is_mine(share)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_hash_each(&share->exports, export_forget, NULL);
    umf_hash_fini(&share->exports);
    share->exports = (umf_hash_t){0};
    board_destroy(share);
    return board_make(share);
}

/* --- the producer's side ---------------------------------------------------------------------- */

/* A boardless description has a generation all the same, but no word. */
static umf_result_t export_claim_locked(umf_vmm_share_t *share, share_export_t *export) {
    if (share->board.words) {
        return umf_board_claim(&share->board, &export->word, &export->generation);
    }
    export->generation = ++share->board.generation;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t export_make_locked(umf_vmm_share_t *share, umf_vmm_piece_share_t *piece,
                                       uintptr_t base, share_export_t **made) {
    share_export_t *export = umf_meta_alloc(sizeof(*export));
    if (!export || !umf_hash_put(&share->exports, base, export)) {
        UMF_LOG_ERROR("no memory to share %p", (void *)base);
        umf_meta_free(export, sizeof(*export));
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = export_claim_locked(share, export);
    if (result != UMF_RESULT_SUCCESS) {
        umf_hash_remove(&share->exports, base);
        umf_meta_free(export, sizeof(*export));
        return result;
    }
    export->base = base;
    umf_list_add(&piece->exports, &export->siblings);
    *made = export;
    return UMF_RESULT_SUCCESS;
}

/* A random number, by which a put recognises descriptions of other providers. It has
 * no other use. */
static umf_result_t maker_settle_locked(umf_vmm_share_t *share) {
    int error = share->maker ? 0 : umf_os_random(&share->maker, sizeof(share->maker));
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, "umf_vmm_get_handle", "no random number");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    share->maker |= 1;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_share_take_locked(umf_vmm_piece_share_t *piece, int fd) {
    umf_fd_ticket_t ticket;
    umf_result_t result = umf_ticket_make(fd, &ticket);
    if (result != UMF_RESULT_SUCCESS) {
        umf_os_close(fd);
        return result;
    }
    if (umf_kept_fd_take(&piece->descriptor, fd) != 0) {
        UMF_LOG_ERROR("the descriptor of shared memory cannot be identified");
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    piece->ticket = ticket;
    return UMF_RESULT_SUCCESS;
}

/* No process may get a file that the program has opened under the number of a file of ours. A
 * forked child makes tickets of its own. */
static umf_result_t share_check_files_locked(umf_vmm_share_t *share, umf_vmm_piece_share_t *piece) {
    if ((share->board.words && umf_kept_fd_check(&share->file, "the board of shared memory")) ||
        (piece->descriptor.is_kept &&
         umf_kept_fd_check(&piece->descriptor, "a file of shared memory"))) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    bool is_inherited = piece->descriptor.is_kept && piece->ticket.pid != share->ticket.pid;
    return is_inherited ? umf_ticket_make(piece->descriptor.number, &piece->ticket)
                        : UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_share_describe_locked(umf_vmm_t *vmm, umf_vmm_piece_share_t *piece,
                                           const umf_vmm_location_t *location, void *data) {
    umf_vmm_share_t *share = &vmm->share;
    umf_result_t result =
        vmm->ops->is_boardless ? maker_settle_locked(share) : board_settle_locked(share);
    if (result == UMF_RESULT_SUCCESS) {
        result = share_check_files_locked(share, piece);
    }
    share_export_t *export = umf_hash_get(&share->exports, location->base);
    if (result == UMF_RESULT_SUCCESS && !export) {
        result = export_make_locked(share, piece, location->base, &export);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (piece->id == 0) {
        piece->id = ++share->board.generation;
    }
    if (piece->descriptor.is_kept) {
        umf_ticket_publish(&piece->ticket);
    }
    if (share->board.words) {
        umf_ticket_publish(&share->ticket);
    }
    umf_vmm_handle_t handle = {
        .piece = piece->descriptor.is_kept ? piece->ticket : share->ticket,
        .board = share->ticket,
        .piece_size = location->piece_size,
        .offset = location->offset,
        .size = location->size,
        .granule = vmm->carve.page_size,
        .generation = export->generation,
        .word = export->word,
        .maker = share->maker,
        .piece_id = piece->id,
        .kind = location->is_paged ? UMF_VMM_PAGED : 0,
    };
    memcpy(handle.token, piece->token, sizeof(handle.token));
    umf_vmm_handle_write(vmm, &handle, data);
    return UMF_RESULT_SUCCESS;
}

static void export_drop_locked(umf_vmm_share_t *share, share_export_t *export) {
    if (board_is_mine(share)) {
        umf_board_retire(&share->board, export->word, export->generation);
    }
    umf_list_remove(&export->siblings);
}

void umf_vmm_share_drop_locked(umf_vmm_share_t *share, uintptr_t base) {
    if (share->exports.count == 0) {
        return;
    }
    share_export_t *export = umf_hash_remove(&share->exports, base);
    if (export) {
        export_drop_locked(share, export);
        umf_meta_free(export, sizeof(*export));
    }
}

void umf_vmm_share_drop_piece_locked(umf_vmm_share_t *share, umf_vmm_piece_share_t *piece) {
    while (!umf_list_is_empty(&piece->exports)) {
        share_export_t *export = UMF_CONTAINER_OF(piece->exports.next, share_export_t, siblings);
        umf_vmm_share_drop_locked(share, export->base);
    }
    if (piece->descriptor.is_kept) {
        umf_ticket_drop(&piece->ticket);
        umf_kept_fd_close(&piece->descriptor);
    }
    piece->has_token = false;
    piece->id = 0;
    memset(piece->token, 0, sizeof(piece->token));
}

umf_result_t umf_vmm_put_handle(void *provider, void *data) {
    umf_vmm_t *vmm = provider;
    umf_vmm_handle_t handle;
    umf_result_t result = umf_vmm_handle_read(vmm, data, &handle);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&vmm->carve.lock);
    bool is_mine = (vmm->ops->is_boardless || board_is_mine(&vmm->share)) &&
                   handle.maker == vmm->share.maker &&
                   memcmp(&handle.board, &vmm->share.ticket, sizeof(handle.board)) == 0;
    umf_unlock(&vmm->carve.lock);
    if (!is_mine) {
        UMF_LOG_ERROR("this description was made by another provider or process (%u)",
                      handle.board.pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

void umf_vmm_share_fini(umf_vmm_t *vmm) {
    umf_hash_fini(&vmm->share.exports);
    board_destroy(&vmm->share);
}
