/*
 * Vmm: pieces whose physical memory is detached and attached again. The caller claims the pieces
 * first. A claimed piece stays listed and nothing is allocated in it, so its address leads to it
 * without a lock held.
 */
#include "base/log.h"
#include "base/meta.h"
#include "providers/vmm/own.h"

/* --- finding and claiming --------------------------------------------------------------------- */

umf_result_t umf_vmm_run(void *provider, const void *ptr, umf_vm_piece_t *piece, uint64_t *handle,
                         uint64_t *generation) {
    umf_vmm_t *vmm = provider;
    umf_result_t result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    umf_lock(&vmm->carve.lock);
    const umf_vmm_piece_t *found = umf_vmm_piece_locked(vmm, (uintptr_t)ptr);
    if (found) {
        *piece = (umf_vm_piece_t){.base = (void *)found->base,
                                  .size = found->size,
                                  .allocations = found->allocations,
                                  .attached = found->state == UMF_VMM_ATTACHED};
        *handle = vmm->ops->is_device && piece->attached ? found->physical : 0;
        *generation = found->generation;
        result = UMF_RESULT_SUCCESS;
    }
    umf_unlock(&vmm->carve.lock);
    if (result != UMF_RESULT_SUCCESS && umf_vmm_is_in_range(vmm, ptr)) {
        UMF_LOG_ERROR("%p is memory of an arena, which manages its pieces itself", ptr);
        result = UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return result;
}

umf_result_t umf_vmm_find(void *provider, const void *ptr, umf_vm_piece_t *piece) {
    uint64_t handle, generation;
    return umf_vmm_run(provider, ptr, piece, &handle, &generation);
}

/* Isolates the free segments of a claimed piece from allocation. false: no memory for some. */
static bool vmm_isolate_free_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    umf_range_segment_t taken[64];
    uintptr_t cursor = UINTPTR_MAX;
    bool is_done = true;
    size_t n;
    while (is_done && (n = umf_range_take_region(vmm->carve.range, piece->base, &cursor, taken,
                                                 UMF_COUNT_OF(taken)))) {
        for (size_t i = 0; i < n; i++) {
            is_done = is_done && umf_vmm_isolate_locked(piece, taken[i].base, taken[i].size);
            if (!is_done) {
                umf_range_free(vmm->carve.range, taken[i].base, taken[i].size, NULL);
            }
        }
    }
    return is_done;
}

static umf_vmm_piece_t *vmm_at_locked(umf_vmm_t *vmm, const void *base) {
    umf_vmm_piece_t *piece = umf_vmm_piece_locked(vmm, (uintptr_t)base);
    return piece && piece->base == (uintptr_t)base ? piece : NULL;
}

static bool vmm_claim_locked(umf_vmm_t *vmm, const void *base, size_t allocations) {
    umf_vmm_piece_t *piece = vmm_at_locked(vmm, base);
    /* Another number of allocations: one belongs to another pool, which keeps the
     * piece attached. */
    if (!piece || piece->is_claimed || piece->state != UMF_VMM_ATTACHED ||
        piece->allocations != allocations) {
        return false;
    }
    piece->is_claimed = true;
    return true;
}

/* Ends a claim. Returns the piece if it has no allocations: it is then retired, and the caller
 * releases it. */
static umf_vmm_piece_t *vmm_release_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    umf_assert_locked(&vmm->carve.lock);
    piece->is_claimed = false;
    if (piece->allocations == 0) {
        umf_vmm_retire_locked(vmm, piece);
        return piece;
    }
    /* A piece without physical memory keeps its segments isolated: nothing may be
     * allocated there. */
    if (piece->state == UMF_VMM_ATTACHED) {
        umf_vmm_take_back_locked(vmm, piece);
    }
    return NULL;
}

umf_result_t umf_vmm_claim(void *provider, void *const *pieces, const size_t *allocations,
                           size_t count, int *claimed) {
    umf_vmm_t *vmm = provider;
    bool is_done = true;
    umf_lock(&vmm->carve.lock);
    for (size_t i = 0; i < count; i++) {
        claimed[i] = is_done && vmm_claim_locked(vmm, pieces[i], allocations[i]);
        is_done =
            is_done && (!claimed[i] || vmm_isolate_free_locked(vmm, vmm_at_locked(vmm, pieces[i])));
    }
    for (size_t i = 0; i < count && !is_done; i++) {
        if (claimed[i]) {
            vmm_release_locked(vmm, vmm_at_locked(vmm, pieces[i]));
        }
    }
    umf_unlock(&vmm->carve.lock);
    if (!is_done) {
        UMF_LOG_ERROR("no memory for bookkeeping of %zu pieces", count);
    }
    return is_done ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* NULL: no claimed piece begins there. */
static umf_vmm_piece_t *vmm_claimed(umf_vmm_t *vmm, const void *base) {
    umf_lock(&vmm->carve.lock);
    umf_vmm_piece_t *piece = vmm_at_locked(vmm, base);
    bool is_claimed = piece && piece->is_claimed;
    umf_unlock(&vmm->carve.lock);
    if (!is_claimed) {
        UMF_LOG_ERROR("%p is not the start of a piece that was claimed", base);
    }
    return is_claimed ? piece : NULL;
}

static bool vmm_are_claimed(umf_vmm_t *vmm, void *const *pieces, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!vmm_claimed(vmm, pieces[i])) {
            return false;
        }
    }
    return true;
}

umf_result_t umf_vmm_release(void *provider, void *const *pieces, size_t count) {
    umf_vmm_t *vmm = provider;
    if (!vmm_are_claimed(vmm, pieces, count)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t first = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < count; i++) {
        umf_lock(&vmm->carve.lock);
        umf_vmm_piece_t *retired = vmm_release_locked(vmm, vmm_at_locked(vmm, pieces[i]));
        umf_unlock(&vmm->carve.lock);
        umf_result_t result = retired ? umf_vmm_let_go(vmm, retired) : UMF_RESULT_SUCCESS;
        first = first ? first : result;
    }
    return first;
}

/* --- detaching -------------------------------------------------------------------------------- */

static void vmm_set_state(umf_vmm_t *vmm, umf_vmm_piece_t *piece, umf_vmm_state_t state) {
    umf_lock(&vmm->carve.lock);
    if (piece->state == UMF_VMM_DETACHED) {
        vmm->resident += piece->size;
    }
    if (state == UMF_VMM_DETACHED) {
        vmm->resident -= piece->size;
    }
    piece->state = state;
    umf_unlock(&vmm->carve.lock);
}

static void vmm_set_states(umf_vmm_t *vmm, void *const *pieces, size_t count, umf_vmm_state_t from,
                           umf_vmm_state_t to) {
    for (size_t i = 0; i < count; i++) {
        umf_vmm_piece_t *piece = vmm_claimed(vmm, pieces[i]);
        if (piece->state == from) {
            vmm_set_state(vmm, piece, to);
        }
    }
}

/* The number of pieces at the front of the list that are adjacent and in one of two states, so that
 * one call of the back end serves them. 0 if the first is in neither state. */
static size_t vmm_run_length(umf_vmm_t *vmm, void *const *pieces, size_t count,
                             umf_vmm_state_t state, umf_vmm_state_t or_state, size_t *size) {
    size_t n = 0;
    *size = 0;
    while (n < count && (uintptr_t)pieces[n] == (uintptr_t)pieces[0] + *size &&
           !(n > 0 && vmm->ops->unmaps_one)) {
        const umf_vmm_piece_t *piece = vmm_claimed(vmm, pieces[n]);
        if (piece->state != state && piece->state != or_state) {
            break;
        }
        *size += piece->size;
        n++;
    }
    return n;
}

/* Unmaps the pieces in state MAPPED or `also`. */
static umf_result_t vmm_unmap(umf_vmm_t *vmm, void *const *pieces, size_t count,
                              umf_vmm_state_t also) {
    for (size_t i = 0, n; i < count; i += n ? n : 1) {
        size_t size;
        n = vmm_run_length(vmm, &pieces[i], count - i, UMF_VMM_MAPPED, also, &size);
        umf_result_t result =
            n ? vmm->ops->unmap(vmm, (uintptr_t)pieces[i], size) : UMF_RESULT_SUCCESS;
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        vmm_set_states(vmm, &pieces[i], n, UMF_VMM_MAPPED, UMF_VMM_CREATED);
        vmm_set_states(vmm, &pieces[i], n, also, UMF_VMM_CREATED);
    }
    return UMF_RESULT_SUCCESS;
}

/* Releases the physical memory that is not mapped. A piece keeps its memory if that fails. */
static umf_result_t vmm_destroy(umf_vmm_t *vmm, void *const *pieces, size_t count) {
    for (size_t i = 0; i < count; i++) {
        umf_vmm_piece_t *piece = vmm_claimed(vmm, pieces[i]);
        if (piece->state != UMF_VMM_CREATED) {
            continue;
        }
        /* A descriptor for other processes would keep the physical memory resident. */
        umf_vmm_unshare(vmm, piece);
        umf_result_t result = vmm->ops->destroy(vmm, piece->physical);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        vmm_set_state(vmm, piece, UMF_VMM_DETACHED);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t vmm_take_away(umf_vmm_t *vmm, void *const *pieces, size_t count,
                                  umf_vmm_state_t also) {
    if (!vmm_are_claimed(vmm, pieces, count)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = vmm_unmap(vmm, pieces, count, also);
    return result == UMF_RESULT_SUCCESS ? vmm_destroy(vmm, pieces, count) : result;
}

umf_result_t umf_vmm_detach(void *provider, void *const *pieces, size_t count) {
    return vmm_take_away(provider, pieces, count, UMF_VMM_ATTACHED);
}

/* --- attaching -------------------------------------------------------------------------------- */

/* Bytes of physical memory that the pieces lack. */
static size_t vmm_missing(umf_vmm_t *vmm, void *const *pieces, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const umf_vmm_piece_t *piece = vmm_claimed(vmm, pieces[i]);
        bytes += piece->state == UMF_VMM_DETACHED ? piece->size : 0;
    }
    return bytes;
}

static void vmm_set_created(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    umf_lock(&vmm->carve.lock);
    piece->generation = umf_vmm_generation_next();
    umf_unlock(&vmm->carve.lock);
    vmm_set_state(vmm, piece, UMF_VMM_CREATED);
}

umf_result_t umf_vmm_create(void *provider, void *const *pieces, size_t count, size_t *missing) {
    umf_vmm_t *vmm = provider;
    if (!vmm_are_claimed(vmm, pieces, count)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    /* Retired pieces may hold the very memory that is needed now. */
    size_t left;
    umf_vmm_free_pending(vmm, true, &left);
    for (size_t i = 0; i < count; i++) {
        umf_vmm_piece_t *piece = vmm_claimed(vmm, pieces[i]);
        if (piece->state != UMF_VMM_DETACHED) {
            continue;
        }
        umf_result_t result = vmm->ops->create(vmm, piece->size, &piece->physical);
        if (result != UMF_RESULT_SUCCESS) {
            *missing = vmm_missing(vmm, pieces, count);
            /* All or nothing. If the release fails, too, the next call uses that memory. */
            vmm_take_away(vmm, pieces, count, UMF_VMM_MAPPED);
            return result;
        }
        vmm_set_created(vmm, piece);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t vmm_map_all(umf_vmm_t *vmm, void *const *pieces, size_t count) {
    for (size_t i = 0; i < count; i++) {
        umf_vmm_piece_t *piece = vmm_claimed(vmm, pieces[i]);
        if (piece->state != UMF_VMM_CREATED) {
            continue;
        }
        umf_result_t result = vmm->ops->map(vmm, piece->base, piece->size, piece->physical);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        vmm_set_state(vmm, piece, UMF_VMM_MAPPED);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t vmm_allow_all(umf_vmm_t *vmm, void *const *pieces, size_t count) {
    for (size_t i = 0, n; i < count; i += n ? n : 1) {
        size_t size;
        /* Granting access is the costly call on GPUs, so one call serves a whole run. */
        n = vmm_run_length(vmm, &pieces[i], count - i, UMF_VMM_MAPPED, UMF_VMM_MAPPED, &size);
        umf_result_t result =
            n ? umf_vmm_allow(vmm, (uintptr_t)pieces[i], size) : UMF_RESULT_SUCCESS;
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_attach(void *provider, void *const *pieces, size_t count) {
    umf_vmm_t *vmm = provider;
    if (!vmm_are_claimed(vmm, pieces, count)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (vmm_missing(vmm, pieces, count) > 0) {
        UMF_LOG_ERROR("pieces from %p on cannot be attached: they have no memory", pieces[0]);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = vmm_map_all(vmm, pieces, count);
    if (result == UMF_RESULT_SUCCESS) {
        result = vmm_allow_all(vmm, pieces, count);
    }
    if (result == UMF_RESULT_SUCCESS) {
        vmm_set_states(vmm, pieces, count, UMF_VMM_MAPPED, UMF_VMM_ATTACHED);
    } else {
        /* Whatever stays mapped is used by the next call. */
        vmm_unmap(vmm, pieces, count, UMF_VMM_MAPPED);
    }
    return result;
}

/* --- giving and taking ------------------------------------------------------------------------ */

umf_result_t umf_vmm_give(void *provider, const void *ptr, int *fd, size_t *size) {
    umf_vmm_t *vmm = provider;
    umf_vmm_piece_t *piece = vmm_claimed(vmm, ptr);
    if (!piece || piece->state != UMF_VMM_ATTACHED) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = vmm->ops->export_fd(vmm, piece->physical, fd);
    if (result == UMF_RESULT_SUCCESS) {
        *size = piece->size;
    }
    return result;
}

/* The memory is the piece's again, as that of umf_vmm_create. */
static umf_result_t vmm_take_writable(umf_vmm_t *vmm, umf_vmm_piece_t *piece, int fd) {
    umf_result_t result = vmm->ops->import(vmm, fd, piece->size, &piece->physical);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    vmm_set_state(vmm, piece, UMF_VMM_CREATED);
    void *base = (void *)piece->base;
    result = umf_vmm_attach(vmm, &base, 1);
    if (result != UMF_RESULT_SUCCESS) {
        vmm_destroy(vmm, &base, 1);
    }
    return result;
}

umf_result_t umf_vmm_take(void *provider, void *base, int fd, size_t size, int is_writable) {
    umf_vmm_t *vmm = provider;
    umf_vmm_piece_t *piece = vmm_claimed(vmm, base);
    if (!piece || piece->state != UMF_VMM_DETACHED || piece->size != size || piece->is_given) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (is_writable) {
        return vmm_take_writable(vmm, piece, fd);
    }
    umf_result_t result = vmm->ops->show ? vmm->ops->show(vmm, piece->base, piece->size, fd)
                                         : umf_vmm_show(vmm, base, &fd, &size, 1, NULL);
    piece->is_given = result == UMF_RESULT_SUCCESS;
    return result;
}
