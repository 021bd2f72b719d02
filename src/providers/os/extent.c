/* The private memory of one OS provider: allocations, frees, and clear mappings. */
#include <errno.h>
#include <sys/mman.h>

#include "base/aligned_map.h"
#include "base/meta.h"
#include "base/native.h"
#include "providers/os/extent_own.h"
#include "system/os.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif

#define GUARDED_MAX ((size_t)64 << 10)
/* Bytes of clear mappings. */
#define CLEAR_MAX ((size_t)16 << 20)

int umf_os_extents_unmap(uintptr_t base, size_t size) {
    int error = umf_os_unmap((void *)base, size);
    if (!error) {
        umf_os_map_freed((void *)base, size);
    }
    return error;
}

void umf_os_extents_init(umf_os_extents_t *extents, size_t page_size, int protection) {
    *extents = (umf_os_extents_t){.page_size = page_size, .protection = protection};
    extents->has_guards = umf_os_knows_advice(MADV_GUARD_INSTALL);
    extents->low = UINTPTR_MAX;
    umf_list_init(&extents->roomy);
    umf_list_init(&extents->dirty);
    umf_os_maps_init(&extents->dirty_maps);
    umf_os_maps_init(&extents->clear_maps);
    umf_lock_init(&extents->lock, UMF_RANK_PROVIDER);
}

static void extent_fini(uint64_t key, void *value, void *arg) {
    umf_os_extent_t *extent = value;
    (void)key;
    if (umf_os_extent_is_empty(arg, extent)) {
        umf_os_extents_unmap(extent->base, UMF_OS_EXTENT_SIZE);
    }
    umf_meta_free(extent, sizeof(*extent));
}

void umf_os_extents_fini(umf_os_extents_t *extents) {
    umf_os_extents_drop(extents);
    umf_os_maps_fini(&extents->dirty_maps);
    umf_os_maps_fini(&extents->clear_maps);
    umf_hash_each(&extents->all, extent_fini, extents);
    umf_hash_fini(&extents->all);
    umf_lock_destroy(&extents->lock);
}

/* Drops the content of mapped memory and restores the protection, which its user may have changed.
 * MADV_DONTNEED refuses locked memory, which is mapped anew instead. */
int umf_os_extents_clear(uintptr_t base, size_t size, int protection) {
    void *ptr = (void *)base;
    if (umf_os_protect(ptr, size, protection) == 0 &&
        umf_os_advise(ptr, size, MADV_DONTNEED) == 0) {
        return 0;
    }
    return umf_os_map(&ptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* --- clear mappings --- */

static bool can_wait(uintptr_t base, size_t size) {
    return base % UMF_OS_EXTENT_SIZE == 0 && size >= UMF_OS_EXTENT_SIZE &&
           size <= UMF_OS_WAIT_SIZE_MAX;
}

UMF_INLINE bool clear_take(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    uintptr_t base;
    umf_lock(&extents->lock);
    bool is_there = umf_os_maps_take(&extents->clear_maps, size, alignment, &base);
    umf_unlock(&extents->lock);
    if (!is_there) {
        return false;
    }
    *ptr = (void *)base;
    if (umf_os_protect(*ptr, size, extents->protection) == 0) {
        return true;
    }
    umf_os_extents_unmap(base, size);
    return false;
}

/* Unmaps the oldest until at most `most` bytes are left. */
void umf_os_extents_shrink_clear(umf_os_extents_t *extents, size_t most) {
    umf_lock(&extents->lock);
    while (extents->clear_maps.bytes > most) {
        umf_os_mapping_t mapping = umf_os_maps_take_oldest(&extents->clear_maps);
        umf_unlock(&extents->lock);
        umf_os_extents_unmap(mapping.base, mapping.size);
        umf_lock(&extents->lock);
    }
    umf_unlock(&extents->lock);
}

/* Locked memory, which MADV_DONTNEED refuses, is unmapped. */
static int mapping_free(umf_os_extents_t *extents, uintptr_t base, size_t size) {
    void *ptr = (void *)base;
    if (!can_wait(base, size) || umf_os_protect(ptr, size, PROT_NONE) != 0 ||
        umf_os_advise(ptr, size, MADV_DONTNEED) != 0) {
        return umf_os_extents_unmap(base, size);
    }
    umf_lock(&extents->lock);
    bool is_put = umf_os_maps_put(&extents->clear_maps, base, size, 0);
    bool is_full = extents->clear_maps.bytes > CLEAR_MAX;
    umf_unlock(&extents->lock);
    if (is_full) {
        umf_os_extents_shrink_clear(extents, CLEAR_MAX);
    }
    return is_put ? 0 : umf_os_extents_unmap(base, size);
}

/* --- allocating --- */

UMF_INLINE int alloc_clear(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    if (umf_os_is_piece(extents, size, alignment)) {
        umf_os_run_t run = {0, umf_os_pages_of(extents, size)};
        if (umf_os_piece_alloc(extents, run, umf_os_piece_step(extents, size, alignment), ptr) ==
            0) {
            return 0;
        }
    } else if (can_wait(0, size) && clear_take(extents, size, alignment, ptr)) {
        return 0;
    }
    return umf_os_map_aligned(size, alignment, extents->protection, ptr);
}

typedef struct request_t {
    umf_os_extents_t *extents;
    umf_os_run_t run;
    uint32_t step;
    umf_os_extent_t *extent; /* NULL: not found yet */
} request_t;

static void find_gone(uint64_t key, void *value, void *arg) {
    request_t *request = arg;
    umf_os_extent_t *extent = value;
    (void)key;
    if (!request->extent && extent->gone_count >= request->run.count &&
        umf_os_pages_find(&extent->gone, true,
                          umf_os_pages_of(request->extents, UMF_OS_EXTENT_SIZE), request->step,
                          &request->run)) {
        request->extent = extent;
        request->extents->empty -= umf_os_extent_is_empty(request->extents, extent);
        umf_os_pages_flip(&extent->gone, request->run);
        extent->gone_count -= request->run.count;
    }
}

/* Maps the place of freed pieces anew. The last resort, when there are no more addresses. */
static bool alloc_gone(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    request_t request = {extents, {0, umf_os_pages_of(extents, size)}, 0, NULL};
    if (!umf_os_is_piece(extents, size, alignment)) {
        return false;
    }
    request.step = umf_os_piece_step(extents, size, alignment);
    umf_lock(&extents->lock);
    umf_hash_each(&extents->all, find_gone, &request);
    umf_unlock(&extents->lock);
    if (!request.extent) {
        return false;
    }
    void *base = (void *)(request.extent->base + request.run.at * extents->page_size);
    /* While the lock is not held, the pages count as live. A failure retires them again. */
    if (umf_os_map(&base, size, extents->protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0) != 0) {
        umf_os_extent_retire_pages(extents, request.extent, request.run);
        return false;
    }
    *ptr = base;
    return true;
}

/* Eviction gives addresses, memory and mappings back. Waits for evictions of other threads. */
static UMF_COLD int alloc_last(umf_os_extents_t *extents, size_t size, size_t alignment,
                               void **ptr) {
    umf_transit_part_t part;
    int error;
    umf_transit_retry(&extents->transit, &part);
    do {
        umf_os_extents_evict(extents, SIZE_MAX, true, 0);
        umf_os_extents_shrink_clear(extents, 0);
        error = alloc_clear(extents, size, alignment, ptr);
    } while (umf_transit_again(&part, !umf_errno_is_shortage(error)));
    return error && !alloc_gone(extents, size, alignment, ptr) ? error : 0;
}

int umf_os_extents_alloc(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    int error = alloc_clear(extents, size, alignment, ptr);
    return umf_errno_is_shortage(error) ? alloc_last(extents, size, alignment, ptr) : error;
}

/* --- freeing --- */

/* Makes an access fault while the addresses stay with the extent. Guards do not divide the mapping,
 * but they cost one entry for each page, and locked memory cannot have them. */
static int forbid_access(const umf_os_extents_t *extents, uintptr_t base, size_t size) {
    void *ptr = (void *)base;
    if (extents->has_guards && size <= GUARDED_MAX &&
        umf_os_advise(ptr, size, MADV_GUARD_INSTALL) == 0) {
        return 0;
    }
    return umf_os_map(&ptr, size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Frees live pages of one extent. They stay taken until they are without content. Pages that can be
 * neither made inaccessible (a process may have too many mappings) nor cleared are unmapped; that
 * hole is not used again. */
static int piece_free(umf_os_extents_t *extents, umf_os_extent_t *extent, uintptr_t base,
                      size_t size, bool is_of_pool) {
    umf_os_run_t run = umf_os_run_of(extents, extent, base, size);
    /* A use after free of a user's memory should fault. A pool's pieces return to use at once. */
    if (!is_of_pool && forbid_access(extents, base, size) == 0) {
        umf_os_extent_retire_pages(extents, extent, run);
        return 0;
    }
    if (umf_os_extents_clear(base, size, extents->protection) != 0) {
        return umf_os_unmap((void *)base, size);
    }
    umf_os_extent_give_pages(extents, extent, run);
    return 0;
}

/* The end of the part that begins at `base` and lies in `extent`, or in no extent. */
static uintptr_t part_end_locked(umf_os_extents_t *extents, const umf_os_extent_t *extent,
                                 uintptr_t base, uintptr_t end) {
    uintptr_t next = base / UMF_OS_EXTENT_SIZE * UMF_OS_EXTENT_SIZE + UMF_OS_EXTENT_SIZE;
    umf_assert_locked(&extents->lock);
    while (!extent && next < end && !umf_os_extent_at_locked(extents, next)) {
        next += UMF_OS_EXTENT_SIZE;
    }
    return next < end ? next : end;
}

/* Frees what lies in one extent, or in none, and begins at `*base`, which becomes its end. */
static int free_part(umf_os_extents_t *extents, uintptr_t *base, uintptr_t end, bool is_of_pool) {
    uintptr_t at = *base;
    umf_os_extent_t *extent = NULL;
    umf_lock(&extents->lock);
    *base = end;
    if (umf_unlikely(at < extents->high && end > extents->low)) {
        extent = umf_os_extent_at_locked(extents, at);
        *base = part_end_locked(extents, extent, at, end);
    }
    bool is_live = extent ? umf_os_extent_is_live_locked(
                                extents, extent, umf_os_run_of(extents, extent, at, *base - at))
                          : !umf_os_maps_has(&extents->dirty_maps, at) &&
                                !umf_os_maps_has(&extents->clear_maps, at);
    umf_unlock(&extents->lock);
    if (!is_live) {
        return EINVAL;
    }
    return extent ? piece_free(extents, extent, at, *base - at, is_of_pool)
                  : mapping_free(extents, at, *base - at);
}

/* The end of the range in whole pages. EINVAL if it cannot be a range of allocations. */
int umf_os_extents_range_end(const umf_os_extents_t *extents, uintptr_t base, size_t size,
                             uintptr_t *end) {
    if (size == 0 || base % extents->page_size ||
        __builtin_add_overflow(base, size + extents->page_size - 1, end)) {
        return EINVAL;
    }
    *end = umf_align_down(*end, extents->page_size);
    return 0;
}

/* A pool's pieces are cleared and become free pages of their extent. */
int umf_os_extents_free_range(umf_os_extents_t *extents, void *ptr, size_t size, bool is_of_pool) {
    uintptr_t base = (uintptr_t)ptr, end;
    int error = umf_os_extents_range_end(extents, base, size, &end);
    while (!error && base < end) {
        error = free_part(extents, &base, end, is_of_pool);
    }
    return error;
}

int umf_os_extents_free(umf_os_extents_t *extents, void *ptr, size_t size) {
    return umf_os_extents_free_range(extents, ptr, size, false);
}
