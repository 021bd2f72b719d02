/* Sharing the memory of the vmm providers: descriptions, the board, and opening. */
#include "providers/vmm_share.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/os.h"
#include "base/sum.h"
#include "ipc/process.h"
#include "providers/vmm.h"

#define HANDLE_MAGIC UINT32_C(0x56464D55) /* "UMFV" */
#define HANDLE_VERSION 2

/* A word takes 8 bytes of memory only when its page is used. */
#define BOARD_SIZE ((size_t)1 << 20)
#define BOARD_WORDS ((uint32_t)(BOARD_SIZE / sizeof(uint64_t)))

/* Fixed width, nothing is padding: two descriptions of one allocation are equal byte for byte. */
typedef struct share_handle_t {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;                /* of the back end */
    uint64_t check;               /* sum of all other fields */
    umf_fd_ticket_t piece, board; /* with a token: the board twice */
    uint64_t piece_size;
    uint64_t offset, size; /* of the allocation, in the piece */
    uint64_t granule;      /* the producer's granularity */
    uint64_t generation;   /* what the word holds as long as this is true */
    uint32_t word;
    uint32_t reserved; /* 0 */
    unsigned char token[UMF_VMM_TOKEN_SIZE];
} share_handle_t;

_Static_assert(sizeof(share_handle_t) == 16 + 2 * 88 + UMF_VMM_TOKEN_SIZE + 5 * 8 + 8,
               "handles travel");

typedef struct share_export_t {
    umf_list_t siblings; /* of one piece */
    uintptr_t base;
    uint64_t generation;
    uint32_t word;
} share_export_t;

/* The board of a producer, mapped as long as anything of that producer is open. */
typedef struct umf_vmm_source_t {
    struct umf_vmm_source_t *next; /* Sync: the provider's lock, as `refs` */
    size_t refs;
    uint64_t dev, ino; /* Immutable after create, as all below */
    const uint64_t *words;
} source_t;

typedef struct share_opened_t {
    source_t *source;
    uintptr_t piece;
    size_t piece_size;
    size_t size, granule; /* of the allocation */
    umf_physical_t physical;
    bool holds_physical;
} opened_t;

/* --- the bytes -------------------------------------------------------------------------------- */

/* Of all fields, with `check` taken as 0. */
static uint64_t handle_sum(const share_handle_t *handle) {
    share_handle_t copy = *handle;
    copy.check = 0;
    return umf_sum(&copy, sizeof(copy));
}

size_t umf_vmm_handle_size(void) {
    return sizeof(share_handle_t);
}

static bool handle_is_ours(const share_handle_t *handle, uint16_t kind) {
    return handle->magic == HANDLE_MAGIC && handle->version == HANDLE_VERSION &&
           handle->kind == kind && handle->check == handle_sum(handle);
}

static bool handle_place_is_valid(const share_handle_t *handle) {
    uint64_t mask = handle->granule - 1;
    uint64_t end;
    return umf_is_pow2(handle->granule) && handle->granule >= umf_os_page_size() &&
           ((handle->piece_size | handle->offset | handle->size) & mask) == 0 &&
           handle->size != 0 && handle->piece_size <= PTRDIFF_MAX &&
           !__builtin_add_overflow(handle->offset, handle->size, &end) && end <= handle->piece_size;
}

/* Both descriptors are of one process. */
static bool handle_board_is_valid(const share_handle_t *handle) {
    return handle->word != 0 && handle->word < BOARD_WORDS && handle->generation != 0 &&
           handle->reserved == 0 && handle->piece.pid == handle->board.pid &&
           handle->piece.start_time == handle->board.start_time &&
           handle->piece.boot_id == handle->board.boot_id &&
           handle->piece.pid_ns == handle->board.pid_ns;
}

static umf_result_t handle_read(const umf_vmm_t *vmm, const void *data, share_handle_t *handle) {
    memcpy(handle, data, sizeof(*handle));
    if (!handle_is_ours(handle, vmm->ops->kind)) {
        UMF_LOG_ERROR("this is not a description of memory by a provider of this kind, it is of "
                      "another version, or it is damaged");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!handle_place_is_valid(handle) || !handle_board_is_valid(handle)) {
        UMF_LOG_ERROR("a description of %llu bytes at %llu of %llu (word %u) cannot be right",
                      (unsigned long long)handle->size, (unsigned long long)handle->offset,
                      (unsigned long long)handle->piece_size, handle->word);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* --- the board -------------------------------------------------------------------------------- */

static bool board_is_mine(const umf_vmm_share_t *share) {
    return share->words && share->board.pid == umf_process_pid();
}

static umf_result_t board_fail(int error, const char *what) {
    umf_log_write(UMF_LOG_LEVEL_ERROR, error, "umf_vmm_get_handle",
                  "%s the file that tells which descriptions still hold failed", what);
    return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* Who maps it can rely on its length. And from now on nobody else writes there; before Linux 5.1
 * those could who may open it. */
static int board_seal(int fd) {
    int error = umf_os_add_seals(fd, UMF_OS_SEALS | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
    return error == EINVAL ? umf_os_add_seals(fd, UMF_OS_SEALS | F_SEAL_GROW) : error;
}

static umf_result_t board_make(umf_vmm_share_t *share) {
    int fd;
    void *words = NULL;
    int error = umf_os_memfd("umf_board", false, &fd);
    if (error) {
        return board_fail(error, "making");
    }
    umf_result_t result;
    error = umf_os_truncate(fd, BOARD_SIZE);
    if (!error) {
        error = umf_os_map(&words, BOARD_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (error) {
        result = board_fail(error, "mapping");
        goto close_file;
    }
    error = board_seal(fd);
    if (error) {
        result = board_fail(error, "sealing");
        goto unmap;
    }
    result = umf_ticket_make(fd, &share->board);
    if (result != UMF_RESULT_SUCCESS) {
        goto unmap;
    }
    share->words = words;
    share->words_used = 0;
    share->cursor = 0;
    return UMF_RESULT_SUCCESS;

unmap:
    umf_os_unmap(words, BOARD_SIZE);
close_file:
    umf_os_close(fd);
    return result;
}

static void board_destroy(umf_vmm_share_t *share) {
    if (share->words) {
        umf_os_unmap(share->words, BOARD_SIZE);
        umf_ticket_drop(&share->board);
        umf_os_close(share->board.fd);
        share->words = NULL;
    }
}

static void export_forget(uint64_t address, void *value, void *arg) {
    (void)address, (void)arg;
    share_export_t *export = value;
    umf_list_remove(&export->siblings);
    umf_meta_free(export, sizeof(*export));
}

/* A child of a fork finds the board of its parent, whose words are the parent's. */
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

/* A word that is free, 0 if none is. */
static uint32_t board_take_word(umf_vmm_share_t *share) {
    if (share->words_used == BOARD_WORDS - 1) {
        return 0;
    }
    do {
        share->cursor = share->cursor + 1 < BOARD_WORDS ? share->cursor + 1 : 1;
    } while (__atomic_load_n(&share->words[share->cursor], __ATOMIC_RELAXED) != 0);
    share->words_used++;
    return share->cursor;
}

/* --- the producer's side ---------------------------------------------------------------------- */

static umf_result_t export_make_locked(umf_vmm_share_t *share, umf_vmm_piece_share_t *piece,
                                       uintptr_t base, share_export_t **made) {
    uint32_t word = board_take_word(share);
    if (word == 0) {
        UMF_LOG_ERROR("%u allocations are shared already: share larger ones", share->words_used);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    share_export_t *export = umf_meta_alloc(sizeof(*export));
    if (!export || !umf_hash_put(&share->exports, base, export)) {
        UMF_LOG_ERROR("no memory to share %p", (void *)base);
        umf_meta_free(export, sizeof(*export));
        share->words_used--;
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    export->base = base;
    export->generation = ++share->generation;
    export->word = word;
    umf_list_add(&piece->exports, &export->siblings);
    __atomic_store_n(&share->words[word], export->generation, __ATOMIC_RELEASE);
    *made = export;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_share_take_locked(umf_vmm_piece_share_t *piece, int fd) {
    umf_result_t result = umf_ticket_make(fd, &piece->ticket);
    piece->has_descriptor = piece->has_descriptor || result == UMF_RESULT_SUCCESS;
    return result;
}

umf_result_t umf_vmm_share_describe_locked(umf_vmm_t *vmm, umf_vmm_piece_share_t *piece,
                                           const umf_vmm_place_t *place, void *data) {
    umf_vmm_share_t *share = &vmm->share;
    umf_result_t result = board_settle_locked(share);
    if (result == UMF_RESULT_SUCCESS && piece->has_descriptor &&
        piece->ticket.pid != share->board.pid) {
        result = umf_vmm_share_take_locked(piece, piece->ticket.fd);
    }
    share_export_t *export = umf_hash_get(&share->exports, place->base);
    if (result == UMF_RESULT_SUCCESS && !export) {
        result = export_make_locked(share, piece, place->base, &export);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (piece->has_descriptor) {
        umf_ticket_publish(&piece->ticket);
    }
    umf_ticket_publish(&share->board);
    share_handle_t handle = {
        .magic = HANDLE_MAGIC,
        .version = HANDLE_VERSION,
        .kind = vmm->ops->kind,
        .piece = piece->has_descriptor ? piece->ticket : share->board,
        .board = share->board,
        .piece_size = place->piece_size,
        .offset = place->offset,
        .size = place->size,
        .granule = vmm->granularity,
        .generation = export->generation,
        .word = export->word,
    };
    memcpy(handle.token, piece->token, sizeof(handle.token));
    handle.check = handle_sum(&handle);
    memcpy(data, &handle, sizeof(handle));
    return UMF_RESULT_SUCCESS;
}

static void export_drop_locked(umf_vmm_share_t *share, share_export_t *export) {
    if (board_is_mine(share)) {
        __atomic_store_n(&share->words[export->word], 0, __ATOMIC_RELEASE);
        share->words_used--;
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
    if (piece->has_descriptor) {
        umf_ticket_drop(&piece->ticket);
        umf_os_close(piece->ticket.fd);
        piece->has_descriptor = false;
    }
    piece->has_token = false;
    memset(piece->token, 0, sizeof(piece->token));
}

umf_result_t umf_vmm_put_handle(umf_vmm_t *vmm, const void *data) {
    share_handle_t handle;
    umf_result_t result = handle_read(vmm, data, &handle);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&vmm->lock);
    bool is_mine = board_is_mine(&vmm->share) &&
                   memcmp(&handle.board, &vmm->share.board, sizeof(handle.board)) == 0;
    umf_unlock(&vmm->lock);
    if (!is_mine) {
        UMF_LOG_ERROR("this description was made by another provider or process (%u)",
                      handle.board.pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* --- boards of others ------------------------------------------------------------------------- */

static umf_result_t source_map(const umf_fd_ticket_t *ticket, int fd, const uint64_t **words) {
    uint64_t dev, ino, size;
    void *made = NULL;
    int error = umf_os_file_id(fd, &dev, &ino, &size);
    if (!error && (size != BOARD_SIZE || umf_os_check_seals(fd) != 0)) {
        UMF_LOG_ERROR("descriptor %d of process %u is not what the description says", ticket->fd,
                      ticket->pid);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!error) {
        error = umf_os_map(&made, BOARD_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    }
    if (error) {
        return board_fail(error, "opening");
    }
    *words = made;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t source_create(const umf_fd_ticket_t *ticket, source_t **result) {
    source_t *source = umf_meta_alloc(sizeof(*source));
    if (!source) {
        UMF_LOG_ERROR("no memory to open shared memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *source = (source_t){.refs = 1, .dev = ticket->dev, .ino = ticket->ino};
    int fd;
    umf_result_t made = umf_ticket_redeem(ticket, &fd);
    if (made == UMF_RESULT_SUCCESS) {
        made = source_map(ticket, fd, &source->words);
        umf_os_close(fd);
    }
    if (made != UMF_RESULT_SUCCESS) {
        umf_meta_free(source, sizeof(*source));
        return made;
    }
    *result = source;
    return UMF_RESULT_SUCCESS;
}

static void source_destroy(source_t *source) {
    umf_os_unmap((void *)(uintptr_t)source->words, BOARD_SIZE);
    umf_meta_free(source, sizeof(*source));
}

/* While a file is mapped its identity is not given to another one. */
static source_t *source_find_locked(const umf_vmm_share_t *share, const umf_fd_ticket_t *ticket) {
    source_t *source = share->sources;
    while (source && (source->dev != ticket->dev || source->ino != ticket->ino)) {
        source = source->next;
    }
    return source;
}

/* The known source, or `made`, which becomes known. NULL if there is neither. */
static source_t *source_join(umf_vmm_t *vmm, const umf_fd_ticket_t *ticket, source_t *made) {
    umf_lock(&vmm->lock);
    source_t *source = source_find_locked(&vmm->share, ticket);
    if (source) {
        source->refs++;
    } else if (made) {
        made->next = vmm->share.sources;
        vmm->share.sources = made;
        source = made;
    }
    umf_unlock(&vmm->lock);
    return source;
}

static umf_result_t source_get(umf_vmm_t *vmm, const umf_fd_ticket_t *ticket, source_t **result) {
    source_t *source = source_join(vmm, ticket, NULL);
    if (!source) {
        source_t *made;
        umf_result_t created = source_create(ticket, &made);
        if (created != UMF_RESULT_SUCCESS) {
            return created;
        }
        source = source_join(vmm, ticket, made);
        if (source != made) {
            source_destroy(made);
        }
    }
    *result = source;
    return UMF_RESULT_SUCCESS;
}

static void source_put(umf_vmm_t *vmm, source_t *source) {
    umf_lock(&vmm->lock);
    bool is_last = --source->refs == 0;
    if (is_last) {
        source_t **link = &vmm->share.sources;
        while (*link != source) {
            link = &(*link)->next;
        }
        *link = source->next;
    }
    umf_unlock(&vmm->lock);
    if (is_last) {
        source_destroy(source);
    }
}

static umf_result_t source_check(const source_t *source, const share_handle_t *handle) {
    uint64_t now = __atomic_load_n(&source->words[handle->word], __ATOMIC_ACQUIRE);
    if (now != handle->generation) {
        UMF_LOG_ERROR("the producer has freed the memory that was described, or suspended its pool "
                      "since: ask it for a new handle");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* As open_import. */
static umf_result_t open_import_token(umf_vmm_t *vmm, const share_handle_t *handle,
                                      const source_t *source, umf_physical_t *physical) {
    umf_physical_t made;
    umf_result_t result =
        vmm->ops->import_token(vmm->backend, handle->token, (size_t)handle->piece_size, &made);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = source_check(source, handle);
    if (result != UMF_RESULT_SUCCESS) {
        vmm->ops->destroy(vmm->backend, made);
        return result;
    }
    *physical = made;
    return UMF_RESULT_SUCCESS;
}

/* The physical memory of the piece. Only what was looked at after the descriptor was had is
 * certain. */
static umf_result_t open_import(umf_vmm_t *vmm, const share_handle_t *handle,
                                const source_t *source, umf_physical_t *physical) {
    int fd;
    if (vmm->ops->import_token) {
        return open_import_token(vmm, handle, source, physical);
    }
    umf_result_t result = vmm->ops->is_device ? umf_ticket_redeem_copy(&handle->piece, &fd)
                                              : umf_ticket_redeem(&handle->piece, &fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = source_check(source, handle);
    if (result == UMF_RESULT_SUCCESS) {
        result = vmm->ops->import(vmm->backend, fd, (size_t)handle->piece_size, physical);
    }
    umf_os_close(fd);
    return result;
}

/* The mapping keeps the physical memory, so that the handle to it can go at once; if the system
 * does not take it, it goes with the mapping. */
static umf_result_t open_map(umf_vmm_t *vmm, const share_handle_t *handle, opened_t *opened) {
    size_t size = opened->piece_size;
    umf_physical_t physical;
    umf_result_t result = open_import(vmm, handle, opened->source, &physical);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    uintptr_t made;
    result = vmm->ops->reserve(vmm->backend, size, vmm->granularity, &made);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_vmm_map(vmm, made, size, physical);
        if (result != UMF_RESULT_SUCCESS) {
            vmm->ops->unreserve(vmm->backend, made, size);
        }
    }
    umf_result_t released = vmm->ops->destroy(vmm->backend, physical);
    if (result == UMF_RESULT_SUCCESS) {
        opened->piece = made;
        opened->physical = physical;
        opened->holds_physical = released != UMF_RESULT_SUCCESS;
    }
    return result;
}

/* A failure leaves it mapped. */
static umf_result_t open_unmap(umf_vmm_t *vmm, const opened_t *opened) {
    umf_result_t result = vmm->ops->unmap(vmm->backend, opened->piece, opened->piece_size);
    if (result == UMF_RESULT_SUCCESS) {
        if (opened->holds_physical) {
            vmm->ops->destroy(vmm->backend, opened->physical);
        }
        vmm->ops->unreserve(vmm->backend, opened->piece, opened->piece_size);
    }
    return result;
}

static bool opened_remember(umf_vmm_t *vmm, uintptr_t address, opened_t *opened) {
    umf_lock(&vmm->lock);
    bool is_done = umf_hash_put(&vmm->share.opened, address, opened);
    umf_unlock(&vmm->lock);
    return is_done;
}

static umf_result_t open_from(umf_vmm_t *vmm, const share_handle_t *handle, source_t *source,
                              void **ptr) {
    opened_t *opened = umf_meta_alloc(sizeof(*opened));
    if (!opened) {
        UMF_LOG_ERROR("no memory to open shared memory");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *opened = (opened_t){
        .source = source,
        .piece_size = (size_t)handle->piece_size,
        .size = (size_t)handle->size,
        .granule = (size_t)handle->granule,
    };
    umf_result_t result = open_map(vmm, handle, opened);
    if (result != UMF_RESULT_SUCCESS) {
        goto free_opened;
    }
    uintptr_t address = opened->piece + (size_t)handle->offset;
    if (!opened_remember(vmm, address, opened)) {
        UMF_LOG_ERROR("no memory to open shared memory");
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        goto unmap;
    }
    *ptr = (void *)address;
    return UMF_RESULT_SUCCESS;

unmap:
    open_unmap(vmm, opened);
free_opened:
    umf_meta_free(opened, sizeof(*opened));
    return result;
}

umf_result_t umf_vmm_open_handle(umf_vmm_t *vmm, const void *data, void **ptr) {
    share_handle_t handle;
    source_t *source;
    umf_result_t result = handle_read(vmm, data, &handle);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (handle.piece_size % vmm->granularity != 0) {
        UMF_LOG_ERROR("%llu bytes cannot be mapped here, in units of %zu",
                      (unsigned long long)handle.piece_size, vmm->granularity);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    result = source_get(vmm, &handle.board, &source);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = source_check(source, &handle); /* first: its descriptor may be closed already */
    if (result == UMF_RESULT_SUCCESS) {
        result = open_from(vmm, &handle, source, ptr);
    }
    if (result != UMF_RESULT_SUCCESS) {
        source_put(vmm, source);
    }
    return result;
}

/* --- what is open ----------------------------------------------------------------------------- */

static bool is_size(size_t size, size_t granule, size_t whole) {
    size_t rounded;
    return umf_round_up(size, granule, &rounded) && rounded == whole;
}

/* Takes the mapping out of the table, so that only one of two concurrent closes goes on. */
static opened_t *opened_withdraw(umf_vmm_t *vmm, const void *ptr, size_t size) {
    umf_lock(&vmm->lock);
    opened_t *opened = umf_hash_get(&vmm->share.opened, (uintptr_t)ptr);
    if (opened && is_size(size, opened->granule, opened->size)) {
        umf_hash_remove(&vmm->share.opened, (uintptr_t)ptr);
    } else {
        opened = NULL;
    }
    umf_unlock(&vmm->lock);
    return opened;
}

umf_result_t umf_vmm_close_handle(umf_vmm_t *vmm, void *ptr, size_t size) {
    opened_t *opened = opened_withdraw(vmm, ptr, size);
    if (!opened) {
        UMF_LOG_ERROR("%zu bytes at %p were not opened by this provider", size, ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = open_unmap(vmm, opened);
    if (result != UMF_RESULT_SUCCESS && opened_remember(vmm, (uintptr_t)ptr, opened)) {
        return result;
    }
    source_put(vmm, opened->source);
    umf_meta_free(opened, sizeof(*opened));
    return result;
}

umf_result_t umf_vmm_check_handle(umf_vmm_t *vmm, const void *data, size_t size) {
    share_handle_t handle;
    umf_result_t result = handle_read(vmm, data, &handle);
    if (result == UMF_RESULT_SUCCESS &&
        !is_size(size, (size_t)handle.granule, (size_t)handle.size)) {
        UMF_LOG_ERROR("%zu bytes are to be opened, but %llu were described", size,
                      (unsigned long long)handle.size);
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

umf_result_t umf_vmm_watch_handle(umf_vmm_t *vmm, const void *data, const uint64_t **word,
                                  uint64_t *expected) {
    share_handle_t handle;
    umf_result_t result = handle_read(vmm, data, &handle);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&vmm->lock);
    const source_t *source = source_find_locked(&vmm->share, &handle.board);
    umf_unlock(&vmm->lock);
    if (!source) {
        UMF_LOG_ERROR("nothing of the producer that was described is open");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *word = &source->words[handle.word];
    *expected = handle.generation;
    return UMF_RESULT_SUCCESS;
}

static void opened_forget(uint64_t address, void *value, void *arg) {
    (void)address, (void)arg;
    umf_meta_free(value, sizeof(opened_t));
}

void umf_vmm_share_fini(umf_vmm_t *vmm) {
    umf_vmm_share_t *share = &vmm->share;
    umf_hash_fini(&share->exports);
    board_destroy(share);
    umf_hash_each(&share->opened, opened_forget, NULL);
    umf_hash_fini(&share->opened);
    for (source_t *source = share->sources, *next; source; source = next) {
        next = source->next;
        source_destroy(source);
    }
}
