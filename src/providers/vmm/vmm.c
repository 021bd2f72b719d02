/*
 * Vmm: pieces of virtual memory and the allocations cut out of them. No lock is held across the
 * back end. That is safe because a piece is listed after it is complete and unlisted before it is
 * released.
 */
#include "providers/vmm/own.h"
#include "providers/vmm/paged.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/native.h"
#include "providers/shared/requested.h"
#include "system/os.h"

umf_result_t umf_vmm_init(umf_vmm_t *vmm, const umf_vmm_backend_t *ops, size_t granularity,
                          size_t piece_size) {
    vmm->ops = ops;
    if (!umf_round_up(piece_size ? piece_size : 1, granularity, &vmm->piece_size)) {
        UMF_LOG_ERROR("a piece size of %zu bytes is too large", piece_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_vmm_imports_init(vmm);
    return umf_carve_init(&vmm->carve, granularity);
}

/* --- the list of pieces ----------------------------------------------------------------------- */

/* Index of the first piece that begins above `addr`. */
static size_t vmm_above_locked(const umf_vmm_t *vmm, uintptr_t addr) {
    size_t low = 0, high = vmm->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (vmm->pieces[middle]->base > addr) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool vmm_has_locked(const umf_vmm_t *vmm, size_t at, uintptr_t addr) {
    return at < vmm->piece_count && addr - vmm->pieces[at]->base < vmm->pieces[at]->size;
}

/* Most callers go through many pieces in the order of their addresses. */
umf_vmm_piece_t *umf_vmm_piece_locked(umf_vmm_t *vmm, uintptr_t addr) {
    umf_assert_locked(&vmm->carve.lock);
    size_t at = vmm->found;
    if (!vmm_has_locked(vmm, at, addr) && !vmm_has_locked(vmm, ++at, addr)) {
        at = vmm_above_locked(vmm, addr) - 1;
    }
    if (!vmm_has_locked(vmm, at, addr)) {
        return NULL;
    }
    vmm->found = at;
    return vmm->pieces[at];
}

bool umf_vmm_grow(void **array, size_t *room, size_t item_size) {
    size_t more = *room ? *room * 2 : 8;
    void *made = umf_meta_alloc(more * item_size);
    if (!made) {
        return false;
    }
    if (*room) {
        memcpy(made, *array, *room * item_size);
        umf_meta_free(*array, *room * item_size);
    }
    *array = made;
    *room = more;
    return true;
}

static bool vmm_list_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    if (vmm->piece_count == vmm->piece_room &&
        !umf_vmm_grow((void **)&vmm->pieces, &vmm->piece_room, sizeof(*vmm->pieces))) {
        return false;
    }
    size_t at = vmm_above_locked(vmm, piece->base);
    memmove(&vmm->pieces[at + 1], &vmm->pieces[at], (vmm->piece_count - at) * sizeof(*vmm->pieces));
    vmm->pieces[at] = piece;
    vmm->piece_count++;
    vmm->reserved += piece->size;
    vmm->resident += piece->size;
    return true;
}

static void vmm_unlist_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    size_t at = vmm_above_locked(vmm, piece->base) - 1;
    vmm->piece_count--;
    memmove(&vmm->pieces[at], &vmm->pieces[at + 1], (vmm->piece_count - at) * sizeof(*vmm->pieces));
    vmm->reserved -= piece->size;
    vmm->resident -= piece->state == UMF_VMM_DETACHED ? 0 : piece->size;
}

static void vmm_piece_destroy(umf_vmm_piece_t *piece) {
    umf_meta_free(piece->isolated, piece->isolated_room * sizeof(*piece->isolated));
    umf_meta_free(piece, sizeof(*piece));
}

/* --- creating and releasing pieces ------------------------------------------------------------ */

umf_result_t umf_vmm_allow(umf_vmm_t *vmm, uintptr_t base, size_t size) {
    return vmm->ops->allow ? vmm->ops->allow(vmm, base, size) : UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_map(umf_vmm_t *vmm, uintptr_t base, size_t size, umf_physical_t physical,
                         bool *is_mapped) {
    umf_result_t result = vmm->ops->map(vmm, base, size, physical);
    *is_mapped = result == UMF_RESULT_SUCCESS;
    return result == UMF_RESULT_SUCCESS ? umf_vmm_allow(vmm, base, size) : result;
}

/* Addresses that are still mapped must not be reserved by others. */
umf_result_t umf_vmm_unmap(umf_vmm_t *vmm, uintptr_t base, size_t size, bool is_mapped) {
    umf_result_t result = is_mapped && !vmm->ops->unreserve_unmaps
                              ? vmm->ops->unmap(vmm, base, size)
                              : UMF_RESULT_SUCCESS;
    return result == UMF_RESULT_SUCCESS ? vmm->ops->unreserve(vmm, base, size) : result;
}

uint64_t umf_vmm_generation_next(void) {
    static _Atomic uint64_t generation;
    return atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed) + 1;
}

static umf_result_t vmm_piece_make(umf_vmm_t *vmm, size_t size, size_t alignment,
                                   umf_vmm_piece_t **made) {
    umf_vmm_piece_t *piece = umf_meta_alloc(sizeof(*piece));
    if (!piece) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    piece->size = size;
    umf_list_init(&piece->share.exports);
    umf_result_t result = vmm->ops->reserve(vmm, size, alignment, &piece->base);
    if (result != UMF_RESULT_SUCCESS) {
        goto free_piece;
    }
    result = vmm->ops->create(vmm, size, &piece->physical);
    if (result != UMF_RESULT_SUCCESS) {
        goto unreserve;
    }
    piece->generation = umf_vmm_generation_next();
    bool is_mapped;
    result = umf_vmm_map(vmm, piece->base, size, piece->physical, &is_mapped);
    if (result != UMF_RESULT_SUCCESS) {
        piece->state = is_mapped ? UMF_VMM_MAPPED : UMF_VMM_CREATED;
        umf_vmm_piece_unmake(vmm, piece);
        return result;
    }
    *made = piece;
    return UMF_RESULT_SUCCESS;

unreserve:
    vmm->ops->unreserve(vmm, piece->base, size);
free_piece:
    vmm_piece_destroy(piece);
    return result;
}

void umf_vmm_unshare(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    umf_lock(&vmm->carve.lock);
    umf_vmm_share_drop_piece_locked(&vmm->share, &piece->share);
    umf_unlock(&vmm->carve.lock);
}

umf_result_t umf_vmm_piece_unmake(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    umf_vmm_unshare(vmm, piece);
    umf_result_t unmapped =
        piece->is_given ? UMF_RESULT_SUCCESS
                        : umf_vmm_unmap(vmm, piece->base, piece->size, umf_vmm_is_mapped(piece));
    umf_result_t destroyed = piece->state == UMF_VMM_DETACHED
                                 ? UMF_RESULT_SUCCESS
                                 : vmm->ops->destroy(vmm, piece->physical);
    vmm_piece_destroy(piece);
    return unmapped ? unmapped : destroyed;
}

static bool vmm_has_mapped(const umf_vmm_t *vmm) {
    bool has_mapped = vmm->retired || vmm->pending;
    for (size_t i = 0; i < vmm->piece_count && !has_mapped; i++) {
        has_mapped = umf_vmm_is_mapped(vmm->pieces[i]);
    }
    return has_mapped;
}

/* If waiting is not possible, all pieces stay mapped: queued work may use them. Then they leak. */
static void vmm_unmake_left(umf_vmm_t *vmm) {
    if (vmm_has_mapped(vmm) && umf_vmm_settle(vmm) != UMF_RESULT_SUCCESS) {
        UMF_LOG_WARN("memory of a provider that is destroyed stays with the process, because work "
                     "that may use it could not be waited for");
        return;
    }
    umf_vmm_unmake_pending(vmm);
    for (size_t i = 0; i < vmm->piece_count; i++) {
        umf_vmm_piece_unmake(vmm, vmm->pieces[i]);
    }
}

void umf_vmm_fini(umf_vmm_t *vmm) {
    vmm_unmake_left(vmm);
    umf_vmm_ranges_fini(vmm);
    umf_vmm_paged_fini(vmm);
    umf_vmm_share_fini(vmm);
    umf_vmm_imports_fini(vmm);
    umf_meta_free(vmm->pieces, vmm->piece_room * sizeof(*vmm->pieces));
    umf_carve_fini(&vmm->carve);
}

/* --- allocations ------------------------------------------------------------------------------ */

/* An allocation, without its address. */
typedef struct vmm_request_t {
    size_t requested;
    size_t size; /* `requested` rounded up to the granularity */
    size_t alignment;
} vmm_request_t;

static umf_result_t vmm_cut_locked(umf_vmm_t *vmm, const vmm_request_t *request, uintptr_t *base) {
    umf_result_t result = umf_carve_alloc_locked(&vmm->carve, request->requested, request->size,
                                                 request->alignment, base);
    if (result == UMF_RESULT_SUCCESS) {
        umf_vmm_piece_locked(vmm, *base)->allocations++;
    }
    return result;
}

/* Lists a new piece and cuts the allocation that it was made for. Both happen under one lock, so no
 * other thread can take that room. */
static umf_result_t vmm_add(umf_vmm_t *vmm, umf_vmm_piece_t *piece, const vmm_request_t *request,
                            uintptr_t *base) {
    umf_lock(&vmm->carve.lock);
    umf_result_t result = umf_range_add(vmm->carve.range, piece->base, piece->size);
    if (result == UMF_RESULT_SUCCESS) {
        if (vmm_list_locked(vmm, piece)) {
            result = vmm_cut_locked(vmm, request, base);
            if (result != UMF_RESULT_SUCCESS) {
                vmm_unlist_locked(vmm, piece);
            }
        } else {
            result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        if (result != UMF_RESULT_SUCCESS) {
            umf_range_remove(vmm->carve.range, piece->base);
        }
    }
    umf_unlock(&vmm->carve.lock);
    return result;
}

static bool vmm_is_shortage(umf_vmm_t *vmm, umf_result_t result) {
    return umf_result_is_shortage(result) ||
           (vmm->ops->is_shortage && vmm->ops->is_shortage(vmm, result));
}

/* Allocates at the start of a new piece. A large allocation fills the piece. */
static umf_result_t vmm_alloc_in_new_piece(umf_vmm_t *vmm, const vmm_request_t *request,
                                           uintptr_t *base) {
    umf_vmm_piece_t *piece;
    size_t piece_size = request->size > vmm->piece_size ? request->size : vmm->piece_size;
    /* Retired pieces hold physical memory that the new one may need. */
    size_t left;
    umf_vmm_give_back(vmm);
    umf_result_t result = vmm_piece_make(vmm, piece_size, request->alignment, &piece);
    if (result != UMF_RESULT_SUCCESS && vmm_is_shortage(vmm, result) && umf_vmm_has_pending(vmm)) {
        umf_vmm_free_pending(vmm, true, &left);
        result = vmm_piece_make(vmm, piece_size, request->alignment, &piece);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = vmm_add(vmm, piece, request, base);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        umf_vmm_piece_unmake(vmm, piece);
    }
    return result;
}

umf_result_t umf_vmm_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    umf_vmm_t *vmm = provider;
    size_t page_size = vmm->carve.page_size;
    vmm_request_t request = {.requested = size,
                             .alignment = alignment > page_size ? alignment : page_size};
    umf_result_t result = umf_carve_check(&vmm->carve, size, alignment, &request.size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    uintptr_t base;
    umf_lock(&vmm->carve.lock);
    result = vmm_cut_locked(vmm, &request, &base);
    umf_unlock(&vmm->carve.lock);
    /* No piece has room. Any other failure would happen in a new piece, too. */
    if (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
        result = vmm_alloc_in_new_piece(vmm, &request, &base);
    } else if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("no memory for bookkeeping");
    }
    if (result == UMF_RESULT_SUCCESS) {
        umf_stats_add(&vmm->carve.stats, size);
        *ptr = (void *)base;
    }
    return result;
}

bool umf_vmm_isolate_locked(umf_vmm_piece_t *piece, uintptr_t base, size_t size) {
    if (piece->isolated_count == piece->isolated_room &&
        !umf_vmm_grow((void **)&piece->isolated, &piece->isolated_room, sizeof(*piece->isolated))) {
        return false;
    }
    piece->isolated[piece->isolated_count++] = (umf_range_segment_t){base, size};
    return true;
}

void umf_vmm_take_back_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    for (size_t i = 0; i < piece->isolated_count; i++) {
        umf_range_free(vmm->carve.range, piece->isolated[i].base, piece->isolated[i].size, NULL);
    }
    piece->isolated_count = 0;
}

void umf_vmm_retire_locked(umf_vmm_t *vmm, umf_vmm_piece_t *piece) {
    umf_assert_locked(&vmm->carve.lock);
    umf_vmm_take_back_locked(vmm, piece);
    umf_range_remove(vmm->carve.range, piece->base);
    vmm_unlist_locked(vmm, piece);
}

bool umf_vmm_is_isolated_locked(const umf_vmm_piece_t *piece, uintptr_t base) {
    for (size_t i = 0; i < piece->isolated_count; i++) {
        if (piece->isolated[i].base == base) {
            return true;
        }
    }
    return false;
}

/* Size of the allocation at `base` if `size` is its requested or its rounded size, otherwise 0. */
static size_t vmm_used_locked(umf_vmm_t *vmm, uintptr_t base, size_t size) {
    umf_assert_locked(&vmm->carve.lock);
    size_t used = umf_range_used_size(vmm->carve.range, base);
    return used && !umf_vmm_is_isolated_locked(umf_vmm_piece_locked(vmm, base), base) &&
                   umf_requested_matches(&vmm->carve.requested, vmm->carve.page_size, base, used,
                                         size)
               ? used
               : 0;
}

/* `*requested` gets the size that was requested, `*retired` the piece if this was its last
 * allocation. */
static umf_result_t vmm_free_locked(umf_vmm_t *vmm, uintptr_t base, size_t size, size_t *requested,
                                    umf_vmm_piece_t **retired) {
    size_t used =
        vmm_used_locked(vmm, base, size ? size : umf_range_used_size(vmm->carve.range, base));
    if (used == 0) {
        UMF_LOG_ERROR("%p is not an allocation of %zu bytes of this provider (0: any size)",
                      (void *)base, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_vmm_piece_t *piece = umf_vmm_piece_locked(vmm, base);
    *requested = umf_requested(&vmm->carve.requested, base, used);
    /* The memory must not be allocated again while the piece is claimed or detached. The last
     * allocation of an unclaimed piece needs no isolation: the piece is retired. */
    if (piece->is_claimed || (piece->state != UMF_VMM_ATTACHED && piece->allocations > 1)) {
        if (!umf_vmm_isolate_locked(piece, base, used)) {
            UMF_LOG_ERROR("no memory for bookkeeping");
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
    } else {
        umf_range_free(vmm->carve.range, base, 0, NULL);
    }
    piece->allocations--;
    if (piece->allocations == 0 && !piece->is_claimed) {
        umf_vmm_retire_locked(vmm, piece);
        *retired = piece;
    }
    umf_hash_remove(&vmm->carve.requested, base);
    umf_vmm_share_drop_locked(&vmm->share, base);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_free(void *provider, void *ptr, size_t size) {
    umf_vmm_t *vmm = provider;
    umf_vmm_piece_t *retired = NULL;
    size_t requested;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    umf_lock(&vmm->carve.lock);
    umf_result_t result = vmm_free_locked(vmm, (uintptr_t)ptr, size, &requested, &retired);
    umf_unlock(&vmm->carve.lock);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_stats_sub(&vmm->carve.stats, requested);
    if (retired) {
        umf_vmm_let_go(vmm, retired);
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vmm_free_batch(void *provider, int begins) {
    umf_vmm_t *vmm = provider;
    umf_lock(&vmm->carve.lock);
    vmm->batches = begins ? vmm->batches + 1 : vmm->batches - 1;
    bool is_over = vmm->batches == 0;
    umf_unlock(&vmm->carve.lock);
    return is_over ? umf_vmm_give_back(vmm) : UMF_RESULT_SUCCESS;
}

static umf_result_t vmm_split_locked(umf_vmm_t *vmm, uintptr_t base, size_t total, size_t first) {
    if (vmm_used_locked(vmm, base, total) == 0 || first % vmm->carve.page_size != 0) {
        UMF_LOG_ERROR("%p is not an allocation of %zu bytes that can be split after %zu bytes",
                      (void *)base, total, first);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_carve_split_locked(&vmm->carve, base, total, first);
    if (result == UMF_RESULT_SUCCESS) {
        umf_vmm_share_drop_locked(&vmm->share, base);
        umf_vmm_piece_locked(vmm, base)->allocations++;
    }
    return result;
}

umf_result_t umf_vmm_split(void *provider, void *ptr, size_t total, size_t first) {
    umf_vmm_t *vmm = provider;
    umf_lock(&vmm->carve.lock);
    umf_result_t result = vmm_split_locked(vmm, (uintptr_t)ptr, total, first);
    umf_unlock(&vmm->carve.lock);
    return result;
}

static umf_result_t vmm_merge_locked(umf_vmm_t *vmm, uintptr_t low, uintptr_t high, size_t total) {
    if (!vmm_used_locked(vmm, low, umf_range_used_size(vmm->carve.range, low)) ||
        !vmm_used_locked(vmm, high, umf_range_used_size(vmm->carve.range, high))) {
        UMF_LOG_ERROR("%p and %p are not allocations of together %zu bytes", (void *)low,
                      (void *)high, total);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_carve_merge_locked(&vmm->carve, low, high, total);
    if (result == UMF_RESULT_SUCCESS) {
        umf_vmm_share_drop_locked(&vmm->share, low);
        umf_vmm_share_drop_locked(&vmm->share, high);
        umf_vmm_piece_locked(vmm, low)->allocations--;
    }
    return result;
}

umf_result_t umf_vmm_merge(void *provider, void *low, void *high, size_t total) {
    umf_vmm_t *vmm = provider;
    umf_lock(&vmm->carve.lock);
    umf_result_t result = vmm_merge_locked(vmm, (uintptr_t)low, (uintptr_t)high, total);
    umf_unlock(&vmm->carve.lock);
    return result;
}
