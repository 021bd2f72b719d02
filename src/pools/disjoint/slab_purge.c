/* Free memory of bins goes back: trims, purges of free pages, decay passes. */
#include "base/meta.h"
#include "pools/disjoint/slab_own.h"

void umf_bin_trim(umf_bin_t *bin, size_t *keep) {
    umf_list_t leaving, staying;
    umf_list_init(&leaving);
    umf_list_init(&staying);
    umf_lock(&bin->lock);
    bin->returned = 0; /* a trim resets the counter of the bin */
    umf_bin_set_busy_locked(bin, false);
    while (!umf_list_is_empty(&bin->empty)) {
        umf_slab_t *slab = UMF_CONTAINER_OF(bin->empty.next, umf_slab_t, link);
        if (*keep > 0) {
            *keep -= *keep < bin->slab_size ? *keep : bin->slab_size;
            umf_slab_move_locked(slab, &staying);
        } else {
            umf_slab_leave_empty_locked(bin, slab);
            umf_list_add(&leaving, &slab->link);
            bin->slabs--;
        }
    }
    while (!umf_list_is_empty(&staying)) {
        umf_slab_move_locked(UMF_CONTAINER_OF(staying.next, umf_slab_t, link), &bin->empty);
    }
    umf_bin_count_slabs_locked(bin);
    umf_unlock(&bin->lock);
    umf_slabs_destroy(bin, &leaving);
}

/* Purges the whole pages inside the run of chunks [first, last]. */
static umf_result_t purge_run(const umf_slab_t *slab, uint32_t first, uint32_t last,
                              size_t page_size) {
    const umf_bin_t *bin = slab->bin;
    uintptr_t begin = umf_slab_base(slab) + first * bin->size;
    uintptr_t end = umf_align_down(umf_slab_base(slab) + (last + 1) * bin->size, page_size);
    begin = umf_align_up(begin, page_size);
    if (begin >= end) {
        return UMF_RESULT_SUCCESS;
    }
    return umfMemoryProviderPurgeForce(bin->owner->tracked, (void *)begin, end - begin);
}

static umf_result_t purge_runs(const umf_slab_t *slab, const uint64_t *free_bits,
                               size_t page_size) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0; i < slab->bin->chunks && result == UMF_RESULT_SUCCESS; i++) {
        uint32_t first = i;
        while (i < slab->bin->chunks && free_bits[i / 64] >> i % 64 & 1) {
            i++;
        }
        if (i > first) {
            result = purge_run(slab, first, i - 1, page_size);
        }
    }
    return result;
}

/* Lists as idle the partial slabs whose free pages are to be purged: all dirty ones, or those that
 * the last decay pass has aged. The other dirty ones are aged now. */
static void find_idle_locked(umf_bin_t *bin, bool only_aged) {
    for (umf_list_t *link = bin->partial.next, *next; link != &bin->partial; link = next) {
        umf_slab_t *slab = UMF_CONTAINER_OF(link, umf_slab_t, link);
        next = link->next;
        if (slab->dirty && (slab->aged || !only_aged)) {
            umf_slab_move_last_locked(slab, &bin->idle);
        } else {
            slab->aged = slab->dirty;
        }
    }
}

/* Takes all free chunks of the next idle slab, so that no thread is given one while its pages are
 * purged without the lock. */
static umf_slab_t *purge_begin_locked(umf_bin_t *bin, uint64_t *free_bits) {
    if (umf_list_is_empty(&bin->idle)) {
        return NULL;
    }
    umf_slab_t *slab = UMF_CONTAINER_OF(bin->idle.next, umf_slab_t, link);
    for (size_t w = 0; w < umf_slab_bitmap_words(bin->chunks); w++) {
        free_bits[w] = *umf_slab_bits(slab, w);
        *umf_slab_bits(slab, w) = 0;
    }
    bin->used += slab->free;
    slab->free = 0;
    slab->dirty = slab->aged = false;
    umf_slab_move_locked(slab, &bin->full);
    return slab;
}

/* After a purge that failed the pages are as dirty as before, unless the provider cannot purge. */
static bool stays_dirty(umf_result_t result) {
    return result != UMF_RESULT_SUCCESS && result != UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Frees the chunks again. The slab goes to the end of the list: its pages are purged, so the others
 * are better to use. */
static void purge_end_locked(umf_bin_t *bin, umf_slab_t *slab, const uint64_t *free_bits,
                             umf_result_t result, umf_list_t *leaving) {
    /* These frees are not a user's: they make nothing dirty, and are not counted. */
    bool dirty = slab->dirty || stays_dirty(result);
    size_t counted = bin->counters.free_num;
    for (uint32_t i = 0; i < bin->chunks; i++) {
        if (free_bits[i / 64] >> i % 64 & 1) {
            umf_slab_put_locked(bin, slab, i, leaving);
        }
    }
    slab->dirty = dirty;
    bin->counters.free_num = counted;
    if (slab->free < bin->chunks) {
        umf_slab_move_last_locked(slab, &bin->partial);
    }
}

/* Purges idle slabs one by one. The lock is released during each purge, which calls the provider.
 */
static umf_result_t purge_idle(umf_bin_t *bin, size_t page_size, size_t *left) {
    size_t bytes = umf_slab_bitmap_words(bin->chunks) * sizeof(uint64_t);
    uint64_t *free_bits = umf_meta_alloc(bytes);
    umf_result_t result = UMF_RESULT_SUCCESS;
    umf_list_t leaving;
    umf_list_init(&leaving);
    umf_lock(&bin->lock);
    umf_slab_t *slab;
    while (free_bits && *left && result == UMF_RESULT_SUCCESS &&
           (slab = purge_begin_locked(bin, free_bits)) != NULL) {
        *left -= *left < bin->slab_size ? *left : bin->slab_size;
        umf_unlock(&bin->lock);
        result = purge_runs(slab, free_bits, page_size);
        umf_lock(&bin->lock);
        purge_end_locked(bin, slab, free_bits, result, &leaving);
    }
    umf_unlock(&bin->lock);
    umf_meta_free(free_bits, bytes);
    umf_slabs_destroy(bin, &leaving);
    return result;
}

bool umf_bin_purge(umf_bin_t *bin, size_t page_size) {
    size_t left = SIZE_MAX;
    umf_lock(&bin->lock);
    find_idle_locked(bin, false);
    umf_unlock(&bin->lock);
    return purge_idle(bin, page_size, &left) != UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Takes aged empty slabs out for purge_empty. The bin still counts them as its own, but hands out
 * nothing of them. The other dirty ones are aged now if `is_new`. */
static void take_idle_empty_locked(umf_bin_t *bin, umf_list_t *taken, bool is_new, size_t *left) {
    for (umf_list_t *link = bin->empty.next, *next; link != &bin->empty; link = next) {
        umf_slab_t *slab = UMF_CONTAINER_OF(link, umf_slab_t, link);
        next = link->next;
        if (slab->dirty && slab->aged && *left) {
            *left -= *left < bin->slab_size ? *left : bin->slab_size;
            slab->dirty = slab->aged = false;
            umf_slab_move_last_locked(slab, taken);
        } else if (is_new) {
            slab->aged = slab->dirty;
        }
    }
}

static umf_result_t purge_empty(umf_bin_t *bin, umf_list_t *taken, size_t page_size) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    while (!umf_list_is_empty(taken)) {
        umf_slab_t *slab = UMF_CONTAINER_OF(taken->next, umf_slab_t, link);
        if (result == UMF_RESULT_SUCCESS) {
            result = purge_run(slab, 0, bin->chunks - 1, page_size);
        }
        umf_lock(&bin->lock);
        slab->dirty |= stays_dirty(result);
        umf_slab_move_last_locked(slab, &bin->empty);
        umf_unlock(&bin->lock);
    }
    return result;
}

bool umf_bin_decay(umf_bin_t *bin, size_t page_size, bool is_new, size_t *left) {
    umf_list_t taken;
    umf_list_init(&taken);
    umf_lock(&bin->lock);
    if (is_new) {
        find_idle_locked(bin, true);
    }
    take_idle_empty_locked(bin, &taken, is_new, left);
    bool has_idle = !umf_list_is_empty(&bin->idle);
    umf_unlock(&bin->lock);
    umf_result_t result = purge_empty(bin, &taken, page_size);
    if (result == UMF_RESULT_SUCCESS && has_idle) {
        result = purge_idle(bin, page_size, left);
    }
    return result != UMF_RESULT_ERROR_NOT_SUPPORTED;
}
