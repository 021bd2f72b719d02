/* Descriptors of slabs, and their memory from the provider. */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "pools/disjoint/slab_own.h"
#include "system/annotate.h"

#define SPARE_MAX 1024u /* descriptors of a bin that wait for new slabs */

/* A thread writes to the bitmap of a reserved slab without a lock, so the slab of a single chunk
 * has a cache line of its own. */
static size_t slab_bytes(const umf_bin_t *bin) {
    size_t bytes = bin->front + sizeof(umf_slab_t) + bin->chunks * bin->stride;
    return bin->chunks > 1 ? bytes : umf_meta_isolated_size(bytes);
}

static void *slab_block(const umf_bin_t *bin, umf_slab_t *slab) {
    return (char *)slab - bin->front;
}

/* --- descriptors --- */

static void set_all(umf_slab_t *slab, uint32_t chunks) {
    for (size_t w = 0; w < umf_slab_bitmap_words(chunks); w++) {
        *umf_slab_bits(slab, w) = UINT64_MAX;
    }
    if (chunks % 64) {
        *umf_slab_bits(slab, chunks / 64) = (1ull << chunks % 64) - 1;
    }
}

/* The first descriptor of a list. NULL: there is none. */
umf_slab_t *umf_slab_descriptor_of_locked(umf_list_t *list) {
    if (umf_list_is_empty(list)) {
        return NULL;
    }
    umf_slab_t *slab = UMF_CONTAINER_OF(list->next, umf_slab_t, link);
    umf_list_remove(&slab->link);
    return slab;
}

static umf_slab_t *descriptor_make(umf_bin_t *bin) {
    char *block = umf_meta_alloc(slab_bytes(bin));
    umf_slab_t *slab = block ? (umf_slab_t *)(block + bin->front) : NULL;
    if (slab) {
        slab->bin = bin;
    }
    return slab;
}

static umf_slab_t *descriptor_take(umf_bin_t *bin) {
    umf_slab_t *slab = NULL;
    if (bin->chunks == 1) {
        umf_lock(&bin->lock);
        slab = umf_slab_descriptor_of_locked(&bin->spare);
        bin->spare_count -= slab != NULL;
        umf_unlock(&bin->lock);
    }
    return slab ? slab : descriptor_make(bin);
}

void umf_slab_descriptor_free(const umf_bin_t *bin, umf_slab_t *slab) {
    umf_meta_free(slab->offsets, bin->chunks * sizeof(uint32_t));
    umf_meta_free(slab_block(bin, slab), slab_bytes(bin));
}

/* Keeps the descriptor. Returns one that is to be freed, the oldest; NULL: none. */
static umf_slab_t *descriptor_keep(umf_bin_t *bin, umf_slab_t *slab) {
    umf_slab_t *oldest = NULL;
    umf_lock(&bin->lock);
    if (bin->spare_count == SPARE_MAX) {
        oldest = UMF_CONTAINER_OF(bin->spare.prev, umf_slab_t, link);
        umf_list_remove(&oldest->link);
    } else {
        bin->spare_count++;
    }
    umf_list_add(&bin->spare, &slab->link);
    umf_unlock(&bin->lock);
    return oldest;
}

/* If two threads free one large block at once, the second may look at the descriptor after the
 * first has given the slab back. It must find the chunk free, so the bin keeps the descriptor for a
 * while. */
static void descriptor_put(umf_bin_t *bin, umf_slab_t *slab) {
    if (bin->chunks > 1) {
        umf_slab_descriptor_free(bin, slab);
        return;
    }
    umf_meta_free(slab->offsets, sizeof(uint32_t));
    slab->offsets = NULL;
    slab->dirty = slab->aged = false;
    memset(slab->states, UMF_STATE_NONE, bin->stride);
    slab = descriptor_keep(bin, slab);
    if (slab) {
        umf_slab_descriptor_free(bin, slab);
    }
}

/* --- slabs --- */

/* Takes memory from the provider. No lock is held. NULL: umf_tracked_refusal has the reason. */
umf_slab_t *umf_slab_create(umf_bin_t *bin) {
    umf_tracked_forget_refusal();
    /* Free slabs of other sizes go back first, so that the caches of all sizes do not add up. */
    if (bin->owner->waiting) {
        umf_magazines_release_large(bin->owner->waiting, bin->index, UMF_MAGAZINE_WAITING_MAX);
    }
    umf_slab_t *slab = descriptor_take(bin);
    if (!slab) {
        return NULL;
    }
    umf_slab_set_free(slab, bin->chunks);
    set_all(slab, bin->chunks);
    void *memory = NULL;
    if (umf_tracked_alloc(bin->owner->tracked, bin->slab_size, 0, bin->class_offset, slab,
                          &memory) != UMF_RESULT_SUCCESS) {
        descriptor_put(bin, slab);
        return NULL;
    }
    slab->span = umf_span_index(umf_tracked_find(bin->owner->tracked, memory));
    umf_list_init(&slab->link);
    UMF_POISON(memory, bin->slab_size);
    return slab;
}

/* Gives an empty, unlinked slab back. If the provider refuses, the slab stays with the bin, unless
 * its span could not be recorded again either. */
static void slab_destroy(umf_bin_t *bin, umf_slab_t *slab) {
    void *base = (void *)umf_slab_base(slab);
    UMF_UNPOISON(base, bin->slab_size);
    umf_result_t result = umf_tracked_free_for_reuse(bin->owner->tracked, umf_span_at(slab->span));
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("the provider did not take back the slab %p of %zu bytes: result %d", base,
                      bin->slab_size, (int)result);
    }
    if (result == UMF_RESULT_SUCCESS || umf_slab_of(bin, base) != slab) {
        descriptor_put(bin, slab);
        return;
    }
    umf_lock(&bin->lock);
    umf_list_add_tail(&bin->empty, &slab->link);
    /* Even beyond the limit: the provider has refused the slab, so it has to stay. */
    umf_quota_add(bin->owner->limits, bin->slab_size);
    umf_bin_set_empty_count_locked(bin, bin->empty_count + 1);
    bin->slabs++;
    umf_unlock(&bin->lock);
}

void umf_slab_destroy_first(umf_bin_t *bin, umf_list_t *slabs) {
    umf_slab_t *slab = UMF_CONTAINER_OF(slabs->next, umf_slab_t, link);
    umf_list_remove(&slab->link);
    slab_destroy(bin, slab);
}
