/* The inside of slabs and bins, shared by their files. */
#ifndef UMF_SRC_POOLS_DISJOINT_SLAB_OWN_H
#define UMF_SRC_POOLS_DISJOINT_SLAB_OWN_H

#include "pools/disjoint/slab.h"

#define UMF_SLAB_MAX_CHUNKS (UINT32_MAX >> 2) /* a slab has no more; the rest of it is not used */

static inline size_t umf_slab_bitmap_words(uint32_t chunks) {
    return (chunks + 63) / 64;
}

static inline void umf_slab_set_free(umf_slab_t *slab, uint32_t chunks) {
    slab->free = chunks & UMF_SLAB_MAX_CHUNKS;
}

/* The slab of the bin that contains `chunk`. NULL: there is none. */
static inline umf_slab_t *umf_slab_of(const umf_bin_t *bin, void *chunk) {
    umf_span_t *span = umf_tracked_find(bin->owner->tracked, chunk);
    umf_slab_t *slab = span ? (umf_slab_t *)span->cookie : NULL;
    return slab && slab->bin == bin ? slab : NULL;
}

static inline void umf_bin_set_empty_count_locked(umf_bin_t *bin, size_t count) {
    __atomic_store_n(&bin->empty_count, count, __ATOMIC_RELAXED);
}

static inline void umf_bin_set_busy_locked(umf_bin_t *bin, bool is_busy) {
    __atomic_store_n(&bin->is_busy, is_busy, __ATOMIC_RELAXED);
}

static inline void umf_slab_move_locked(umf_slab_t *slab, umf_list_t *list) {
    umf_list_remove(&slab->link);
    umf_list_add(list, &slab->link);
}

static inline void umf_slab_move_last_locked(umf_slab_t *slab, umf_list_t *list) {
    umf_list_remove(&slab->link);
    umf_list_add_tail(list, &slab->link);
}

static inline void umf_slab_leave_empty_locked(umf_bin_t *bin, umf_slab_t *slab) {
    umf_list_remove(&slab->link);
    umf_bin_set_empty_count_locked(bin, bin->empty_count - 1);
    umf_quota_release(bin->owner->limits, bin->slab_size);
}

/* --- slab.c --- */

void umf_bin_count_slabs_locked(umf_bin_t *bin);
/* Frees a chunk. A slab that becomes empty is kept or goes to `leaving`. */
void umf_slab_put_locked(umf_bin_t *bin, umf_slab_t *slab, uint32_t chunk, umf_list_t *leaving);

/* --- slab_memory.c --- */

/* Takes memory from the provider. No lock is held. NULL: umf_tracked_refusal has the reason. */
umf_slab_t *umf_slab_create(umf_bin_t *bin);
/* Gives the first of these empty slabs back. If the provider refuses, the slab stays with the bin,
 * unless its span could not be recorded again either. */
void umf_slab_destroy_first(umf_bin_t *bin, umf_list_t *slabs);
/* The first descriptor of a list. NULL: there is none. */
umf_slab_t *umf_slab_descriptor_of_locked(umf_list_t *list);
void umf_slab_descriptor_free(const umf_bin_t *bin, umf_slab_t *slab);

/* Inline, because the list is usually empty. */
static inline void umf_slabs_destroy(umf_bin_t *bin, umf_list_t *slabs) {
    while (umf_unlikely(!umf_list_is_empty(slabs))) {
        umf_slab_destroy_first(bin, slabs);
    }
}

#endif
