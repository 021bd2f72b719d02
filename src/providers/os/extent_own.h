/* The inside of extents, shared by their files. */
#ifndef UMF_SRC_PROVIDERS_OS_EXTENT_OWN_H
#define UMF_SRC_PROVIDERS_OS_EXTENT_OWN_H

#include "providers/os/extent.h"
#include "providers/os/pages.h"

#define UMF_OS_EXTENT_SIZE ((size_t)2 << 20)
#define UMF_OS_PIECE_MAX ((size_t)256 << 10)
/* A piece that fills whole leaves of the pointer map is aligned to such a leaf. */
#define UMF_OS_PIECE_ALIGN_MAX ((size_t)64 << 10)
#define UMF_OS_TRIES 8u                        /* a search visits at most so many extents */
#define UMF_OS_WAIT_SIZE_MAX ((size_t)8 << 20) /* of a mapping */

typedef struct umf_os_extent_t {
    umf_list_t link;       /* in `roomy`, or unlinked */
    umf_list_t dirty_link; /* in `dirty`, or unlinked */
    uintptr_t base;
    uint32_t free;        /* pages */
    uint32_t gone_count;  /* pages */
    uint32_t dirty_count; /* pages */
    uint64_t dirty_since; /* when its first dirty page was added */
    umf_os_pages_t used;  /* the other pages are free and clear */
    umf_os_pages_t gone;  /* subset of `used`: freed, without access */
    umf_os_pages_t dirty; /* subset of `used`: freed, with content */
} umf_os_extent_t;

static inline uint32_t umf_os_pages_of(const umf_os_extents_t *extents, size_t size) {
    return (uint32_t)(size / extents->page_size);
}

static inline umf_os_run_t umf_os_run_of(const umf_os_extents_t *extents,
                                         const umf_os_extent_t *extent, uintptr_t base,
                                         size_t size) {
    return (umf_os_run_t){umf_os_pages_of(extents, base - extent->base),
                          umf_os_pages_of(extents, size)};
}

static inline bool umf_os_extent_is_empty(const umf_os_extents_t *extents,
                                          const umf_os_extent_t *extent) {
    return extent->free + extent->gone_count == umf_os_pages_of(extents, UMF_OS_EXTENT_SIZE);
}

static inline umf_os_extent_t *umf_os_extent_at_locked(umf_os_extents_t *extents, uintptr_t addr) {
    umf_assert_locked(&extents->lock);
    bool is_near = addr >= extents->low && addr < extents->high;
    uintptr_t base = umf_align_down(addr, UMF_OS_EXTENT_SIZE);
    return is_near ? (umf_os_extent_t *)umf_hash_get(&extents->all, base) : NULL;
}

static inline bool umf_os_extent_is_live_locked(umf_os_extents_t *extents,
                                                const umf_os_extent_t *extent, umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    return umf_os_pages_has_all(&extent->used, run) && !umf_os_pages_has_any(&extent->gone, run) &&
           !umf_os_pages_has_any(&extent->dirty, run);
}

static inline bool umf_os_is_piece(const umf_os_extents_t *extents, size_t size, size_t alignment) {
    return size <= UMF_OS_PIECE_MAX && umf_os_pages_of(extents, size) <= UMF_OS_RUN_MAX &&
           umf_os_pages_of(extents, UMF_OS_EXTENT_SIZE) <= UMF_OS_PAGES_MAX &&
           (alignment <= extents->page_size ||
            (umf_is_pow2(alignment) && alignment <= UMF_OS_PIECE_MAX));
}

/* Pieces start at multiples of this many pages: of the largest power of two that divides the size,
 * at most a leaf of the map, or of the alignment if that is larger. */
static inline uint32_t umf_os_piece_step(const umf_os_extents_t *extents, size_t size,
                                         size_t alignment) {
    size_t own = size & (~size + 1);
    own = own < UMF_OS_PIECE_ALIGN_MAX ? own : UMF_OS_PIECE_ALIGN_MAX;
    return umf_os_pages_of(extents, own > alignment ? own : alignment);
}

/* --- extent.c --------------------------------------------------------------------------------- */

int umf_os_extents_unmap(uintptr_t base, size_t size);
/* Drops the content of mapped memory and restores the protection, which its user may have changed.
 */
int umf_os_extents_clear(uintptr_t base, size_t size, int protection);
/* Unmaps the oldest clear mappings until at most `most` bytes are left. */
void umf_os_extents_shrink_clear(umf_os_extents_t *extents, size_t most);
/* The end of the range in whole pages. EINVAL if it cannot be a range of allocations. */
int umf_os_extents_range_end(const umf_os_extents_t *extents, uintptr_t base, size_t size,
                             uintptr_t *end);
/* A pool's pieces are cleared and become free pages of their extent. */
int umf_os_extents_free_range(umf_os_extents_t *extents, void *ptr, size_t size, bool is_of_pool);

/* --- extent_pieces.c -------------------------------------------------------------------------- */

/* Takes a piece. Returns 0 or an errno value. */
int umf_os_piece_alloc(umf_os_extents_t *extents, umf_os_run_t run, uint32_t step, void **ptr);
/* Frees clear pages. */
void umf_os_extent_give_pages(umf_os_extents_t *extents, umf_os_extent_t *extent, umf_os_run_t run);
/* Pages without access go: their addresses stay with the extent. */
void umf_os_extent_retire_pages(umf_os_extents_t *extents, umf_os_extent_t *extent,
                                umf_os_run_t run);

/* --- extent_dirty.c --------------------------------------------------------------------------- */

/* Evicts dirty memory until it was `most` bytes: all, or pages that have decayed or are too many
 * next to `live` bytes. true: there may be more. */
bool umf_os_extents_evict(umf_os_extents_t *extents, size_t most, bool all, size_t live);

#endif
