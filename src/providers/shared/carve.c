/* Allocations cut out of a range: the rules that several providers share. */
#include "providers/shared/carve.h"

#include "base/log.h"
#include "providers/shared/requested.h"

umf_result_t umf_carve_init(umf_carve_t *carve, size_t page_size) {
    *carve = (umf_carve_t){.range = umf_range_create(), .page_size = page_size};
    if (!carve->range) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_lock_init(&carve->lock, UMF_RANK_PROVIDER);
    return UMF_RESULT_SUCCESS;
}

void umf_carve_fini(umf_carve_t *carve) {
    umf_lock_destroy(&carve->lock);
    umf_hash_fini(&carve->requested);
    umf_range_destroy(carve->range);
}

umf_result_t umf_carve_add(umf_carve_t *carve, uintptr_t base, size_t size) {
    umf_lock(&carve->lock);
    umf_result_t result = umf_range_add(carve->range, base, size);
    umf_unlock(&carve->lock);
    return result;
}

umf_result_t umf_carve_grow(umf_carve_t *carve, uintptr_t end, size_t more) {
    umf_lock(&carve->lock);
    umf_result_t result = umf_range_grow(carve->range, end, more);
    umf_unlock(&carve->lock);
    return result;
}

size_t umf_carve_free_tail(umf_carve_t *carve, uintptr_t end) {
    umf_lock(&carve->lock);
    size_t size = umf_range_free_tail(carve->range, end);
    umf_unlock(&carve->lock);
    return size;
}

size_t umf_carve_size(umf_carve_t *carve, const void *ptr) {
    umf_lock(&carve->lock);
    size_t size = umf_range_used_size(carve->range, (uintptr_t)ptr);
    umf_unlock(&carve->lock);
    return size;
}

/* --- operations ------------------------------------------------------------------------------- */

umf_result_t umf_carve_alloc_locked(umf_carve_t *carve, size_t size, size_t rounded,
                                    size_t alignment, uintptr_t *base) {
    umf_assert_locked(&carve->lock);
    /* Room for the requested size comes first, so that nothing can fail after the
     * range is changed. */
    if (size != rounded && !umf_hash_reserve(&carve->requested, 1)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = umf_range_alloc(carve->range, rounded, alignment, base);
    if (result == UMF_RESULT_SUCCESS) {
        umf_requested_set(&carve->requested, *base, rounded, size);
    }
    return result;
}

umf_result_t umf_carve_check(const umf_carve_t *carve, size_t size, size_t alignment,
                             size_t *rounded) {
    if (size == 0 || !umf_round_up(size, carve->page_size, rounded)) {
        UMF_LOG_ERROR(
            "cannot allocate %zu bytes: the size must be above 0 and, rounded up to pages "
            "of %zu bytes, fit the address space",
            size, carve->page_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (alignment != 0 && !umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("alignment %zu is not 0 or a power of two", alignment);
        return UMF_RESULT_ERROR_INVALID_ALIGNMENT;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_carve_alloc(umf_carve_t *carve, size_t size, size_t alignment, void **ptr) {
    size_t rounded;
    umf_result_t result = umf_carve_check(carve, size, alignment, &rounded);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    uintptr_t base;
    umf_lock(&carve->lock);
    result = umf_carve_alloc_locked(carve, size, rounded, alignment ? alignment : carve->page_size,
                                    &base);
    umf_unlock(&carve->lock);
    if (result == UMF_RESULT_SUCCESS) {
        umf_stats_add(&carve->stats, size);
        *ptr = (void *)base;
    }
    return result;
}

static umf_result_t carve_free_locked(umf_carve_t *carve, uintptr_t base, size_t size,
                                      size_t *requested) {
    umf_assert_locked(&carve->lock);
    size_t piece = umf_range_used_size(carve->range, base);
    /* Size 0: the caller has no size; any other size must match. */
    if (piece == 0 || (size != 0 && !umf_requested_matches(&carve->requested, carve->page_size,
                                                           base, piece, size))) {
        UMF_LOG_ERROR("%p is not an allocation of %zu bytes of this provider (0: any size)",
                      (void *)base, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *requested = umf_requested(&carve->requested, base, piece);
    umf_hash_remove(&carve->requested, base);
    return umf_range_free(carve->range, base, piece, NULL);
}

umf_result_t umf_carve_free(void *provider, void *ptr, size_t size) {
    umf_carve_t *carve = provider;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    size_t requested;
    umf_lock(&carve->lock);
    umf_result_t result = carve_free_locked(carve, (uintptr_t)ptr, size, &requested);
    umf_unlock(&carve->lock);
    if (result == UMF_RESULT_SUCCESS) {
        umf_stats_sub(&carve->stats, requested);
    }
    return result;
}

umf_result_t umf_carve_split_locked(umf_carve_t *carve, uintptr_t base, size_t total,
                                    size_t first) {
    umf_assert_locked(&carve->lock);
    size_t piece = umf_range_used_size(carve->range, base);
    if (piece == 0 ||
        !umf_requested_matches(&carve->requested, carve->page_size, base, piece, total) ||
        first == 0 || first >= total) {
        UMF_LOG_ERROR("%p is not an allocation of %zu bytes that can be split after %zu bytes",
                      (void *)base, total, first);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    /* Each part may need an entry: room for both first, so that the split cannot fail half done. */
    if (!umf_hash_reserve(&carve->requested, 2)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = umf_range_split(carve->range, base, piece, first);
    if (result == UMF_RESULT_SUCCESS) {
        umf_requested_split(&carve->requested, base, piece, first);
    }
    return result;
}

umf_result_t umf_carve_split(void *provider, void *ptr, size_t total, size_t first) {
    umf_carve_t *carve = provider;
    umf_lock(&carve->lock);
    umf_result_t result = umf_carve_split_locked(carve, (uintptr_t)ptr, total, first);
    umf_unlock(&carve->lock);
    return result;
}

umf_result_t umf_carve_merge_locked(umf_carve_t *carve, uintptr_t low, uintptr_t high,
                                    size_t total) {
    umf_assert_locked(&carve->lock);
    size_t low_size = umf_range_used_size(carve->range, low);
    size_t high_size = umf_range_used_size(carve->range, high);
    /* The caller may name the whole pages or the size that was requested once. */
    size_t whole = low_size + high_size;
    size_t rounded;
    bool size_matches =
        total == whole || (umf_round_up(total, carve->page_size, &rounded) && rounded == whole);
    if (low_size == 0 || high_size == 0 || !size_matches) {
        UMF_LOG_ERROR("%p and %p are not allocations of together %zu bytes", (void *)low,
                      (void *)high, total);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_hash_reserve(&carve->requested, 1)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = umf_range_merge(carve->range, low, high, whole);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("allocations %p and %p are not adjacent", (void *)low, (void *)high);
        return result;
    }
    umf_requested_merge(&carve->requested, low, low_size, high, high_size);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_carve_merge(void *provider, void *low, void *high, size_t total) {
    umf_carve_t *carve = provider;
    umf_lock(&carve->lock);
    umf_result_t result = umf_carve_merge_locked(carve, (uintptr_t)low, (uintptr_t)high, total);
    umf_unlock(&carve->lock);
    return result;
}
