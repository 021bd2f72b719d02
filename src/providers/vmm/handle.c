/* The description of an allocation of a vmm provider, as bytes. */
#include "providers/vmm/handle.h"

#include <string.h>

#include "base/log.h"
#include "providers/vmm/vmm.h"
#include "system/checksum.h"
#include "system/os.h"

#define HANDLE_MAGIC UINT32_C(0x56464D55) /* "UMFV" */
#define HANDLE_VERSION 4

umf_result_t umf_vmm_check_share(const umf_vmm_t *vmm) {
    if (vmm->ops->export_fd || vmm->ops->export_token) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("%s", vmm->ops->private_text);
    return vmm->ops->private_result;
}

umf_result_t umf_vmm_handle_size(void *provider, size_t *size) {
    umf_result_t result = umf_vmm_check_share(provider);
    if (result == UMF_RESULT_SUCCESS) {
        *size = sizeof(umf_vmm_handle_t);
    }
    return result;
}

void umf_vmm_handle_write(const umf_vmm_t *vmm, umf_vmm_handle_t *handle, void *data) {
    handle->magic = HANDLE_MAGIC;
    handle->version = HANDLE_VERSION;
    handle->kind |= vmm->ops->kind;
    handle->check = umf_sum_of_fields(handle, sizeof(*handle), &handle->check);
    memcpy(data, handle, sizeof(*handle));
}

/* Pages travel as descriptors, not as tokens. */
static bool handle_is_ours(const umf_vmm_t *vmm, umf_vmm_handle_t *handle) {
    unsigned paged = vmm->ops->export_fd ? UMF_VMM_PAGED : 0;
    return handle->magic == HANDLE_MAGIC && handle->version == HANDLE_VERSION &&
           (handle->kind & ~paged) == vmm->ops->kind &&
           handle->check == umf_sum_of_fields(handle, sizeof(*handle), &handle->check);
}

static bool handle_place_is_valid(const umf_vmm_handle_t *handle) {
    uint64_t mask = handle->granule - 1, unit = umf_vmm_handle_unit(handle) - 1;
    uint64_t end;
    return umf_is_pow2(handle->granule) && handle->granule >= umf_os_page_size() &&
           (handle->piece_size & mask) == 0 && ((handle->offset | handle->size) & unit) == 0 &&
           handle->size != 0 && handle->piece_size <= PTRDIFF_MAX &&
           !__builtin_add_overflow(handle->offset, handle->size, &end) && end <= handle->piece_size;
}

/* A boardless description names no process, because any machine may read it. */
static bool handle_is_boardless(const umf_vmm_handle_t *handle) {
    static const umf_fd_ticket_t none;
    return memcmp(&handle->piece, &none, sizeof(none)) == 0 &&
           memcmp(&handle->board, &none, sizeof(none)) == 0 && handle->word == 0 &&
           handle->maker != 0 && handle->generation != 0 && handle->piece_id != 0;
}

/* The descriptors of piece and board belong to one process. */
static bool handle_board_is_valid(const umf_vmm_handle_t *handle) {
    return handle->word != 0 && handle->word < UMF_VMM_BOARD_WORDS && handle->generation != 0 &&
           handle->piece_id != 0 && handle->maker == 0 && handle->piece.pid == handle->board.pid &&
           handle->piece.start_time == handle->board.start_time &&
           handle->piece.boot_id == handle->board.boot_id &&
           handle->piece.pid_ns == handle->board.pid_ns;
}

umf_result_t umf_vmm_handle_read(const umf_vmm_t *vmm, const void *data, umf_vmm_handle_t *handle) {
    umf_result_t result = umf_vmm_check_share(vmm);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    memcpy(handle, data, sizeof(*handle));
    if (!handle_is_ours(vmm, handle)) {
        UMF_LOG_ERROR("this is not a description of memory by a provider of this kind, it is of "
                      "another version, or it is damaged");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    bool is_complete =
        vmm->ops->is_boardless ? handle_is_boardless(handle) : handle_board_is_valid(handle);
    if (!handle_place_is_valid(handle) || !is_complete) {
        UMF_LOG_ERROR("a description of %llu bytes at %llu of %llu (word %u) cannot be right",
                      (unsigned long long)handle->size, (unsigned long long)handle->offset,
                      (unsigned long long)handle->piece_size, handle->word);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}
