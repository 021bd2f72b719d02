/*
 * The requested sizes of pieces that are larger because they are whole pages. An entry exists only
 * where the two differ, so most pieces need none. The caller locks.
 */
#ifndef UMF_SRC_PROVIDERS_SHARED_REQUESTED_H
#define UMF_SRC_PROVIDERS_SHARED_REQUESTED_H

#include "ds/hash.h"

/* The value is stored plus one: a part of a split allocation may hold none of the requested bytes,
 * and 0 means no entry. */
static inline size_t umf_requested(const umf_hash_t *hash, uintptr_t base, size_t piece) {
    void *stored = umf_hash_get(hash, base);
    return stored ? (uintptr_t)stored - 1 : piece;
}

/* The caller has reserved room by umf_hash_reserve. */
static inline void umf_requested_set(umf_hash_t *hash, uintptr_t base, size_t piece,
                                     size_t requested) {
    if (requested == piece) {
        umf_hash_remove(hash, base);
    } else {
        umf_hash_put(hash, base, (void *)(uintptr_t)(requested + 1));
    }
}

/* Divides the requested size between two parts; the sum stays the same. Needs room for two. */
static inline void umf_requested_split(umf_hash_t *hash, uintptr_t base, size_t piece,
                                       size_t first) {
    size_t requested = umf_requested(hash, base, piece);
    size_t low = requested < first ? requested : first;
    umf_requested_set(hash, base, first, low);
    umf_requested_set(hash, base + first, piece - first, requested - low);
}

/* Needs room for one entry. */
static inline void umf_requested_merge(umf_hash_t *hash, uintptr_t low, size_t low_piece,
                                       uintptr_t high, size_t high_piece) {
    size_t requested = umf_requested(hash, low, low_piece) + umf_requested(hash, high, high_piece);
    umf_hash_remove(hash, high);
    umf_requested_set(hash, low, low_piece + high_piece, requested);
}

/* Whether `size` is the requested or the rounded size of the piece. */
static inline bool umf_requested_matches(const umf_hash_t *hash, size_t page_size, uintptr_t base,
                                         size_t piece, size_t size) {
    size_t rounded;
    return size == piece || size == umf_requested(hash, base, piece) ||
           (umf_round_up(size, page_size, &rounded) && rounded == piece);
}

#endif
