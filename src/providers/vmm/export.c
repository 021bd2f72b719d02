/* Vmm: handles of allocations for other processes. share.c has the state that they refer to. */
#include "providers/vmm/own.h"

#include <string.h>

#include "base/log.h"
#include "system/os.h"

/* The piece of an allocation. NULL if there is no allocation of that size. */
static umf_vmm_piece_t *vmm_allocated_locked(umf_vmm_t *vmm, uintptr_t base, size_t size,
                                             umf_vmm_location_t *location) {
    size_t used = umf_range_used_size(vmm->carve.range, base);
    umf_vmm_piece_t *piece = umf_vmm_piece_locked(vmm, base);
    size_t rounded;
    if (used == 0 || !umf_round_up(size, vmm->carve.page_size, &rounded) || rounded != used ||
        umf_vmm_is_isolated_locked(piece, base)) {
        return NULL;
    }
    *location = (umf_vmm_location_t){
        .base = base, .size = used, .offset = base - piece->base, .piece_size = piece->size};
    return piece;
}

static umf_result_t vmm_export_token(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    unsigned char token[UMF_VMM_TOKEN_SIZE];
    umf_result_t result = vmm->ops->export_token(vmm, piece->physical, token);
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&vmm->carve.lock);
        memcpy(piece->share.token, token, sizeof(token));
        piece->share.has_token = true;
        umf_unlock(&vmm->carve.lock);
    }
    return result;
}

/* Exports a piece; the back end is called once for each. The caller shares an allocation, which
 * keeps the piece alive meanwhile. */
static umf_result_t vmm_export(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    int fd;
    if (vmm->ops->export_token) {
        return vmm_export_token(vmm, piece);
    }
    umf_result_t result = vmm->ops->export_fd(vmm, piece->physical, &fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&vmm->carve.lock);
    /* Another thread may have stored a descriptor meanwhile; then this one is closed. */
    bool has_one = piece->share.descriptor.is_kept;
    if (!has_one) {
        result = umf_vmm_share_take_locked(&piece->share, fd);
    }
    umf_unlock(&vmm->carve.lock);
    if (has_one) {
        umf_os_close(fd);
    }
    return result;
}

umf_result_t umf_vmm_get_handle(void *provider, const void *ptr, size_t size, void *data) {
    umf_vmm_t *vmm = provider;
    umf_vmm_location_t location;
    umf_result_t result = umf_vmm_check_share(vmm);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&vmm->carve.lock);
    umf_vmm_piece_t *piece = vmm_allocated_locked(vmm, (uintptr_t)ptr, size, &location);
    bool is_attached = piece && piece->state == UMF_VMM_ATTACHED;
    bool is_exported = is_attached && (piece->share.descriptor.is_kept || piece->share.has_token);
    umf_unlock(&vmm->carve.lock);
    if (!piece && umf_vmm_is_in_range(vmm, ptr)) {
        UMF_LOG_ERROR("%p is memory of an arena, whose pages move: share memory of a pool without "
                      "arena",
                      ptr);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!piece) {
        UMF_LOG_ERROR("%p is not an allocation of %zu bytes of this provider", ptr, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!is_attached) {
        UMF_LOG_ERROR("%p cannot be shared while its pool is suspended: resume it first", ptr);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    /* A boardless description names no descriptor of this process. */
    if (!vmm->ops->is_boardless) {
        umf_ticket_prepare();
    }
    result = is_exported ? UMF_RESULT_SUCCESS : vmm_export(vmm, piece);
    if (result == UMF_RESULT_SUCCESS) {
        umf_lock(&vmm->carve.lock);
        result = umf_vmm_share_describe_locked(vmm, &piece->share, &location, data);
        umf_unlock(&vmm->carve.lock);
    }
    return result;
}
