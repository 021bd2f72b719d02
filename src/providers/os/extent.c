#include "providers/os/extent.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/aligned_map.h"
#include "base/meta.h"
#include "base/native.h"
#include "base/thread_slot.h"
#include "providers/os/pages.h"
#include "system/os.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif

#define EXTENT_SIZE ((size_t)2 << 20)
#define PIECE_MAX ((size_t)256 << 10)
/* A piece that fills whole leaves of the pointer map is aligned to such a leaf. */
#define PIECE_ALIGN_MAX ((size_t)64 << 10)
#define GUARDED_MAX ((size_t)64 << 10)
#define HUGE_FROM 4u /* more extents than this request huge pages */
/* The first mappings, one for each CPU: the threads of a pool take from as many parts of it, and
 * seldom use all of the first one. */
#define SMALL_MAPPED_MIN 2u
#define SMALL_MAPPED_MAX 16u
#define EMPTY_MAX 4u
/* The size of a group. The map entries of a group fill one cache line, or two for single pages;
 * CPUs fetch lines in pairs. */
#define GROUP_SMALL ((size_t)64 << 10)
#define GROUP_LARGE ((size_t)512 << 10)
#define TRIES 8u /* a search visits at most so many extents */
/* Bytes that may be dirty beyond the peak of live bytes. */
#define DIRTY_MIN ((size_t)64 << 20)
#define WAIT_SIZE_MAX ((size_t)8 << 20) /* of a mapping */
/* Bytes of clear mappings. */
#define CLEAR_MAX ((size_t)16 << 20)
/* A free that leaves memory dirty evicts one extent or mapping in return, and one to shrink the
 * rest if they are no larger. */
#define EVICT_BYTES (EXTENT_SIZE + 1)

typedef struct os_extent_t {
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
} os_extent_t;

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

static uint32_t pages_of(const umf_os_extents_t *extents, size_t size) {
    return (uint32_t)(size / extents->page_size);
}

static umf_os_run_t run_of(const umf_os_extents_t *extents, const os_extent_t *extent,
                           uintptr_t base, size_t size) {
    return (umf_os_run_t){pages_of(extents, base - extent->base), pages_of(extents, size)};
}

static bool is_empty(const umf_os_extents_t *extents, const os_extent_t *extent) {
    return extent->free + extent->gone_count == pages_of(extents, EXTENT_SIZE);
}

static int unmap_range(uintptr_t base, size_t size) {
    int error = umf_os_unmap((void *)base, size);
    if (!error) {
        umf_os_map_freed((void *)base, size);
    }
    return error;
}

static void extent_fini(uint64_t key, void *value, void *arg) {
    os_extent_t *extent = value;
    (void)key;
    if (is_empty(arg, extent)) {
        unmap_range(extent->base, EXTENT_SIZE);
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
static int drop_content(uintptr_t base, size_t size, int protection) {
    void *ptr = (void *)base;
    if (umf_os_protect(ptr, size, protection) == 0 &&
        umf_os_advise(ptr, size, MADV_DONTNEED) == 0) {
        return 0;
    }
    return umf_os_map(&ptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* --- pages of an extent --- */

static void *take_pages_locked(umf_os_extents_t *extents, os_extent_t *extent, umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    extents->empty -= is_empty(extents, extent);
    umf_os_pages_flip(&extent->used, run);
    extents->free -= run.count;
    extent->free -= run.count;
    if (!extent->free) {
        umf_list_remove(&extent->link);
    }
    return (void *)(extent->base + run.at * extents->page_size);
}

static void *find_piece_locked(umf_os_extents_t *extents, umf_os_run_t run, uint32_t step) {
    uint32_t pages = pages_of(extents, EXTENT_SIZE), tries = 0;
    umf_assert_locked(&extents->lock);
    for (umf_list_t *link = extents->roomy.next; link != &extents->roomy && tries < TRIES;
         link = link->next, tries++) {
        os_extent_t *extent = UMF_CONTAINER_OF(link, os_extent_t, link);
        if (extent->free >= run.count &&
            umf_os_pages_find(&extent->used, false, pages, step, &run)) {
            return take_pages_locked(extents, extent, run);
        }
    }
    return NULL;
}

static os_extent_t *extent_at_locked(umf_os_extents_t *extents, uintptr_t addr) {
    umf_assert_locked(&extents->lock);
    bool is_near = addr >= extents->low && addr < extents->high;
    return is_near ? umf_hash_get(&extents->all, addr / EXTENT_SIZE * EXTENT_SIZE) : NULL;
}

/* --- groups: pieces of one thread --- */

/* Pages of a group for pieces of this size. */
static uint32_t group_pages(const umf_os_extents_t *extents, umf_os_run_t run) {
    bool is_small = run.count < pages_of(extents, GROUP_SMALL);
    return pages_of(extents, is_small ? GROUP_SMALL : GROUP_LARGE);
}

/* The entry for the calling thread's group. */
static uintptr_t *group_of_locked(umf_os_extents_t *extents, umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    bool is_large = run.count >= pages_of(extents, GROUP_SMALL);
    return &extents->groups[is_large][umf_thread_slot_number() % UMF_OS_GROUPS];
}

static void *find_in_group_locked(umf_os_extents_t *extents, uintptr_t group, umf_os_run_t run,
                                  uint32_t step) {
    os_extent_t *extent = extent_at_locked(extents, group);
    if (!extent) {
        return NULL;
    }
    uint32_t first = pages_of(extents, group - extent->base),
             end = first + group_pages(extents, run);
    for (run.at = (first + step - 1) / step * step; run.at + run.count <= end; run.at += step) {
        if (!umf_os_pages_has_any(&extent->used, run)) {
            return take_pages_locked(extents, extent, run);
        }
    }
    return NULL;
}

/* Takes the first pages of a group that has no pieces. A group may be smaller than `step`. */
static void *find_group_locked(umf_os_extents_t *extents, umf_os_run_t run, uint32_t step) {
    umf_os_run_t group = {0, group_pages(extents, run)};
    uint32_t pages = pages_of(extents, EXTENT_SIZE), tries = 0;
    uint32_t next = step > group.count ? step : group.count;
    umf_assert_locked(&extents->lock);
    for (umf_list_t *link = extents->roomy.next; link != &extents->roomy && tries < TRIES;
         link = link->next, tries++) {
        os_extent_t *extent = UMF_CONTAINER_OF(link, os_extent_t, link);
        for (group.at = 0; group.at < pages; group.at += next) {
            if (extent->free >= group.count && !umf_os_pages_has_any(&extent->used, group)) {
                run.at = group.at;
                return take_pages_locked(extents, extent, run);
            }
        }
    }
    return NULL;
}

/* A thread may get an extent of its own while the extents are few or at least half full. */
static bool may_grow_locked(umf_os_extents_t *extents) {
    size_t pages = extents->all.count * pages_of(extents, EXTENT_SIZE);
    umf_assert_locked(&extents->lock);
    return extents->all.count < HUGE_FROM || 2 * extents->free <= pages;
}

static void *find_own_locked(umf_os_extents_t *extents, umf_os_run_t run, uint32_t step) {
    uintptr_t *group = group_of_locked(extents, run);
    void *piece = *group ? find_in_group_locked(extents, *group, run, step) : NULL;
    if (!piece && (piece = find_group_locked(extents, run, step))) {
        *group = (uintptr_t)piece;
    }
    return piece;
}

/* NULL: there is no room, or the thread should get a new extent. */
static void *find_room_locked(umf_os_extents_t *extents, umf_os_run_t run, uint32_t step) {
    uint32_t thread = (uint32_t)umf_thread_slot_number(); /* that two seem one does no harm */
    extents->is_shared |= extents->last_thread && extents->last_thread != thread;
    extents->last_thread = thread;
    /* A single thread cannot contend with itself, so it fills the extents without gaps. */
    void *piece = extents->is_shared ? find_own_locked(extents, run, step) : NULL;
    return piece || (extents->is_shared && may_grow_locked(extents))
               ? piece
               : find_piece_locked(extents, run, step);
}

/* --- more extents --- */

static os_extent_t *extent_make(const umf_os_extents_t *extents) {
    os_extent_t *extent = umf_meta_alloc(sizeof(*extent));
    void *base;
    if (!extent) {
        return NULL;
    }
    if (umf_os_map_aligned_plain(EXTENT_SIZE, EXTENT_SIZE, extents->protection, &base) != 0) {
        umf_meta_free(extent, sizeof(*extent));
        return NULL;
    }
    umf_list_init(&extent->link);
    umf_list_init(&extent->dirty_link);
    umf_os_pages_init(&extent->used);
    umf_os_pages_init(&extent->gone);
    umf_os_pages_init(&extent->dirty);
    extent->base = (uintptr_t)base;
    extent->free = pages_of(extents, EXTENT_SIZE);
    return extent;
}

static void extent_free(os_extent_t *extent) {
    unmap_range(extent->base, EXTENT_SIZE);
    umf_meta_free(extent, sizeof(*extent));
}

static void ask_for_huge_pages(uint64_t key, void *value, void *arg) {
    (void)key, (void)arg;
    umf_os_advise_huge_pages((void *)((os_extent_t *)value)->base, EXTENT_SIZE);
}

static bool extent_add_locked(umf_os_extents_t *extents, os_extent_t *extent) {
    umf_assert_locked(&extents->lock);
    if (!umf_hash_put(&extents->all, extent->base, extent)) {
        return false;
    }
    umf_list_add(&extents->roomy, &extent->link);
    extents->empty++;
    extents->free += extent->free;
    extents->low = extent->base < extents->low ? extent->base : extents->low;
    uintptr_t end = extent->base + EXTENT_SIZE;
    extents->high = end > extents->high ? end : extents->high;
    /* The first extents use small pages: one touched byte must not cost 2 MiB. */
    if (extents->huge) {
        umf_os_advise_huge_pages((void *)extent->base, EXTENT_SIZE);
    } else if (extents->all.count > HUGE_FROM) {
        extents->huge = true;
        umf_hash_each(&extents->all, ask_for_huge_pages, NULL);
    } else {
        umf_os_advise_small_pages((void *)extent->base, EXTENT_SIZE);
    }
    return true;
}

/* Takes a piece from a new extent. The extent is made without the lock; it is dropped if another
 * thread has made room meanwhile. */
static void *piece_alloc_new(umf_os_extents_t *extents, umf_os_run_t run, uint32_t step) {
    os_extent_t *extent = extent_make(extents);
    if (!extent) {
        return NULL;
    }
    umf_lock(&extents->lock);
    void *piece = find_room_locked(extents, run, step);
    bool is_added = !piece && extent_add_locked(extents, extent);
    if (is_added) {
        piece = take_pages_locked(extents, extent, run);
        *group_of_locked(extents, run) = (uintptr_t)piece;
    }
    umf_unlock(&extents->lock);
    if (!is_added) {
        extent_free(extent);
    }
    return piece;
}

static __attribute__((noinline)) int piece_alloc(umf_os_extents_t *extents, umf_os_run_t run,
                                                 uint32_t step, void **ptr) {
    umf_lock(&extents->lock);
    void *piece = find_room_locked(extents, run, step);
    umf_unlock(&extents->lock);
    /* The last try takes any room: a thread without a group of its own is better than a failure. */
    if (!piece && !(piece = piece_alloc_new(extents, run, step))) {
        umf_lock(&extents->lock);
        piece = find_piece_locked(extents, run, step);
        umf_unlock(&extents->lock);
    }
    *ptr = piece;
    return piece ? 0 : ENOMEM;
}

/* --- clear mappings --- */

static bool can_wait(uintptr_t base, size_t size) {
    return base % EXTENT_SIZE == 0 && size >= EXTENT_SIZE && size <= WAIT_SIZE_MAX;
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
    unmap_range(base, size);
    return false;
}

/* Unmaps the oldest until at most `most` bytes are left. */
static void clear_shrink(umf_os_extents_t *extents, size_t most) {
    umf_lock(&extents->lock);
    while (extents->clear_maps.bytes > most) {
        umf_os_mapping_t mapping = umf_os_maps_take_oldest(&extents->clear_maps);
        umf_unlock(&extents->lock);
        unmap_range(mapping.base, mapping.size);
        umf_lock(&extents->lock);
    }
    umf_unlock(&extents->lock);
}

/* Locked memory, which MADV_DONTNEED refuses, is unmapped. */
static int mapping_free(umf_os_extents_t *extents, uintptr_t base, size_t size) {
    void *ptr = (void *)base;
    if (!can_wait(base, size) || umf_os_protect(ptr, size, PROT_NONE) != 0 ||
        umf_os_advise(ptr, size, MADV_DONTNEED) != 0) {
        return unmap_range(base, size);
    }
    umf_lock(&extents->lock);
    bool is_put = umf_os_maps_put(&extents->clear_maps, base, size, 0);
    bool is_full = extents->clear_maps.bytes > CLEAR_MAX;
    umf_unlock(&extents->lock);
    if (is_full) {
        clear_shrink(extents, CLEAR_MAX);
    }
    return is_put ? 0 : unmap_range(base, size);
}

/* --- allocating --- */

static bool is_piece(const umf_os_extents_t *extents, size_t size, size_t alignment) {
    return size <= PIECE_MAX && pages_of(extents, size) <= UMF_OS_RUN_MAX &&
           pages_of(extents, EXTENT_SIZE) <= UMF_OS_PAGES_MAX &&
           (alignment <= extents->page_size || (umf_is_pow2(alignment) && alignment <= PIECE_MAX));
}

/* Pieces start at multiples of this many pages: of the largest power of two that divides the size,
 * at most a leaf of the map, or of the alignment if that is larger. */
static uint32_t piece_step(const umf_os_extents_t *extents, size_t size, size_t alignment) {
    size_t own = size & (~size + 1);
    own = own < PIECE_ALIGN_MAX ? own : PIECE_ALIGN_MAX;
    return pages_of(extents, own > alignment ? own : alignment);
}

UMF_INLINE int alloc_clear(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    if (is_piece(extents, size, alignment)) {
        umf_os_run_t run = {0, pages_of(extents, size)};
        if (piece_alloc(extents, run, piece_step(extents, size, alignment), ptr) == 0) {
            return 0;
        }
    } else if (can_wait(0, size) && clear_take(extents, size, alignment, ptr)) {
        return 0;
    }
    return umf_os_map_aligned(size, alignment, extents->protection, ptr);
}

/* Takes an extent without pieces out of the table if it has no free pages or enough others are
 * empty. true: the caller frees it. */
static bool withdraw_if_empty_locked(umf_os_extents_t *extents, os_extent_t *extent) {
    umf_assert_locked(&extents->lock);
    if (!is_empty(extents, extent)) {
        return false;
    }
    if (extent->free && extents->empty < EMPTY_MAX) {
        extents->empty++;
        return false;
    }
    umf_list_remove(&extent->link);
    umf_hash_remove(&extents->all, extent->base);
    extents->free -= extent->free;
    return true;
}

static void retire_pages(umf_os_extents_t *extents, os_extent_t *extent, umf_os_run_t run) {
    umf_lock(&extents->lock);
    umf_os_pages_flip(&extent->gone, run);
    extent->gone_count += run.count;
    bool is_withdrawn = withdraw_if_empty_locked(extents, extent);
    umf_unlock(&extents->lock);
    if (is_withdrawn) {
        extent_free(extent);
    }
}

typedef struct request_t {
    umf_os_extents_t *extents;
    umf_os_run_t run;
    uint32_t step;
    os_extent_t *extent; /* NULL: not found yet */
} request_t;

static void find_gone(uint64_t key, void *value, void *arg) {
    request_t *request = arg;
    os_extent_t *extent = value;
    (void)key;
    if (!request->extent && extent->gone_count >= request->run.count &&
        umf_os_pages_find(&extent->gone, true, pages_of(request->extents, EXTENT_SIZE),
                          request->step, &request->run)) {
        request->extent = extent;
        request->extents->empty -= is_empty(request->extents, extent);
        umf_os_pages_flip(&extent->gone, request->run);
        extent->gone_count -= request->run.count;
    }
}

/* Maps the place of freed pieces anew. The last resort, when there are no more addresses. */
static bool alloc_gone(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    request_t request = {extents, {0, pages_of(extents, size)}, 0, NULL};
    if (!is_piece(extents, size, alignment)) {
        return false;
    }
    request.step = piece_step(extents, size, alignment);
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
        retire_pages(extents, request.extent, request.run);
        return false;
    }
    *ptr = base;
    return true;
}

static bool evict(umf_os_extents_t *extents, size_t most, bool all, size_t live);

/* Eviction gives addresses, memory and mappings back. What other threads evict is waited for. */
static UMF_COLD int alloc_last(umf_os_extents_t *extents, size_t size, size_t alignment,
                               void **ptr) {
    umf_transit_part_t part;
    int error;
    umf_transit_retry(&extents->transit, &part);
    do {
        evict(extents, SIZE_MAX, true, 0);
        clear_shrink(extents, 0);
        error = alloc_clear(extents, size, alignment, ptr);
    } while (umf_transit_again(&part, !umf_errno_is_shortage(error)));
    return error && !alloc_gone(extents, size, alignment, ptr) ? error : 0;
}

int umf_os_extents_alloc(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    int error = alloc_clear(extents, size, alignment, ptr);
    return umf_errno_is_shortage(error) ? alloc_last(extents, size, alignment, ptr) : error;
}

/* --- freeing --- */

static bool give_pages_locked(umf_os_extents_t *extents, os_extent_t *extent, umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    if (!extent->free) {
        umf_list_add(&extents->roomy, &extent->link);
    }
    extents->free += run.count;
    extent->free += run.count;
    umf_os_pages_flip(&extent->used, run);
    return withdraw_if_empty_locked(extents, extent);
}

/* Frees clear pages. */
static void give_pages(umf_os_extents_t *extents, os_extent_t *extent, umf_os_run_t run) {
    umf_lock(&extents->lock);
    bool is_withdrawn = give_pages_locked(extents, extent, run);
    umf_unlock(&extents->lock);
    if (is_withdrawn) {
        extent_free(extent);
    }
}

static bool is_live_locked(umf_os_extents_t *extents, const os_extent_t *extent, umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    return umf_os_pages_has_all(&extent->used, run) && !umf_os_pages_has_any(&extent->gone, run) &&
           !umf_os_pages_has_any(&extent->dirty, run);
}

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
static int piece_free(umf_os_extents_t *extents, os_extent_t *extent, uintptr_t base, size_t size,
                      bool is_of_pool) {
    umf_os_run_t run = run_of(extents, extent, base, size);
    /* A use after free of a user's memory should fault. A pool's pieces return to use at once. */
    if (!is_of_pool && forbid_access(extents, base, size) == 0) {
        retire_pages(extents, extent, run);
        return 0;
    }
    if (drop_content(base, size, extents->protection) != 0) {
        return umf_os_unmap((void *)base, size);
    }
    give_pages(extents, extent, run);
    return 0;
}

/* The end of the part that begins at `base` and lies in `extent`, or in no extent. */
static uintptr_t part_end_locked(umf_os_extents_t *extents, const os_extent_t *extent,
                                 uintptr_t base, uintptr_t end) {
    uintptr_t next = base / EXTENT_SIZE * EXTENT_SIZE + EXTENT_SIZE;
    umf_assert_locked(&extents->lock);
    while (!extent && next < end && !extent_at_locked(extents, next)) {
        next += EXTENT_SIZE;
    }
    return next < end ? next : end;
}

/* Frees what lies in one extent, or in none, and begins at `*base`, which becomes its end. */
static int free_part(umf_os_extents_t *extents, uintptr_t *base, uintptr_t end, bool is_of_pool) {
    uintptr_t at = *base;
    os_extent_t *extent = NULL;
    umf_lock(&extents->lock);
    *base = end;
    if (umf_unlikely(at < extents->high && end > extents->low)) {
        extent = extent_at_locked(extents, at);
        *base = part_end_locked(extents, extent, at, end);
    }
    bool is_live = extent ? is_live_locked(extents, extent, run_of(extents, extent, at, *base - at))
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
static int range_end(const umf_os_extents_t *extents, uintptr_t base, size_t size, uintptr_t *end) {
    if (size == 0 || base % extents->page_size ||
        __builtin_add_overflow(base, size + extents->page_size - 1, end)) {
        return EINVAL;
    }
    *end = umf_align_down(*end, extents->page_size);
    return 0;
}

/* A pool's pieces are cleared and become free pages of their extent. */
static int free_range(umf_os_extents_t *extents, void *ptr, size_t size, bool is_of_pool) {
    uintptr_t base = (uintptr_t)ptr, end;
    int error = range_end(extents, base, size, &end);
    while (!error && base < end) {
        error = free_part(extents, &base, end, is_of_pool);
    }
    return error;
}

int umf_os_extents_free(umf_os_extents_t *extents, void *ptr, size_t size) {
    return free_range(extents, ptr, size, false);
}

/* --- dirty memory --- */

static void dirty_add_locked(umf_os_extents_t *extents, os_extent_t *extent, umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    if (!extent->dirty_count) {
        extent->dirty_since = extents->now;
        umf_list_add(&extents->dirty, &extent->dirty_link);
    }
    umf_os_pages_flip(&extent->dirty, run);
    extent->dirty_count += run.count;
    extents->dirty_count += run.count;
}

static void *dirty_remove_locked(umf_os_extents_t *extents, os_extent_t *extent, umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    umf_os_pages_flip(&extent->dirty, run);
    extent->dirty_count -= run.count;
    extents->dirty_count -= run.count;
    if (!extent->dirty_count) {
        umf_list_remove(&extent->dirty_link);
    }
    return (void *)(extent->base + run.at * extents->page_size);
}

static void *find_dirty_locked(umf_os_extents_t *extents, umf_os_run_t run, uint32_t step) {
    uint32_t pages = pages_of(extents, EXTENT_SIZE), tries = 0;
    umf_assert_locked(&extents->lock);
    for (umf_list_t *link = extents->dirty.next; link != &extents->dirty && tries < TRIES;
         link = link->next, tries++) {
        os_extent_t *extent = UMF_CONTAINER_OF(link, os_extent_t, dirty_link);
        if (extent->dirty_count >= run.count &&
            umf_os_pages_find(&extent->dirty, true, pages, step, &run)) {
            return dirty_remove_locked(extents, extent, run);
        }
    }
    return NULL;
}

static void *alloc_dirty(umf_os_extents_t *extents, size_t size, size_t alignment) {
    uintptr_t mapping;
    void *ptr = NULL;
    umf_lock(&extents->lock);
    if (is_piece(extents, size, alignment)) {
        umf_os_run_t run = {0, pages_of(extents, size)};
        ptr = find_dirty_locked(extents, run, piece_step(extents, size, alignment));
    } else if (umf_os_maps_take(&extents->dirty_maps, size, alignment, &mapping)) {
        ptr = (void *)mapping;
    }
    umf_unlock(&extents->lock);
    return ptr;
}

static size_t small_mapped_most(void) {
    size_t cpus = umf_os_cpu_count();
    size_t count = cpus < SMALL_MAPPED_MIN ? SMALL_MAPPED_MIN : cpus;
    return (count < SMALL_MAPPED_MAX ? count : SMALL_MAPPED_MAX) * EXTENT_SIZE;
}

/* The first mappings that pools take use small pages: one touched byte must not cost 2 MiB. false:
 * this is not one of them. */
static bool alloc_first(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    size_t most = small_mapped_most();
    umf_lock(&extents->lock);
    bool is_first = size >= EXTENT_SIZE && size <= most - extents->small_mapped;
    extents->small_mapped += is_first ? size : 0;
    umf_unlock(&extents->lock);
    return is_first && umf_os_map_aligned_plain(size, alignment, extents->protection, ptr) == 0;
}

int umf_os_extents_alloc_any(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    void *dirty = size <= WAIT_SIZE_MAX ? alloc_dirty(extents, size, alignment) : NULL;
    if (!dirty) {
        return alloc_first(extents, size, alignment, ptr)
                   ? 0
                   : umf_os_extents_alloc(extents, size, alignment, ptr);
    }
    *ptr = dirty;
    return 0;
}

static os_extent_t *oldest_locked(umf_os_extents_t *extents) {
    umf_assert_locked(&extents->lock);
    return umf_list_is_empty(&extents->dirty)
               ? NULL
               : UMF_CONTAINER_OF(extents->dirty.prev, os_extent_t, dirty_link);
}

/* Advances the time and, after a decay period, the peaks. */
static void tick_locked(umf_os_extents_t *extents, uint64_t now) {
    umf_assert_locked(&extents->lock);
    /* `now` was read without the lock, so it may be behind. */
    extents->now = now > extents->now ? now : extents->now;
    if (extents->now - extents->period_since >= umf_decay_period) {
        extents->period_since = extents->now;
        extents->last_peak = extents->peak;
        extents->peak = 0;
    }
}

static size_t dirty_bytes_locked(umf_os_extents_t *extents) {
    umf_assert_locked(&extents->lock);
    return extents->dirty_count * extents->page_size + extents->dirty_maps.bytes;
}

static bool is_too_dirty_locked(umf_os_extents_t *extents, size_t live) {
    extents->peak = live > extents->peak ? live : extents->peak;
    size_t peak = extents->peak > extents->last_peak ? extents->peak : extents->last_peak;
    return live + dirty_bytes_locked(extents) > peak + DIRTY_MIN;
}

/* Since when the oldest dirty memory is dirty; UINT64_MAX: there is none. */
static uint64_t dirty_since_locked(umf_os_extents_t *extents) {
    const os_extent_t *extent = oldest_locked(extents);
    const umf_os_mapping_t *mapping = umf_os_maps_oldest(&extents->dirty_maps);
    uint64_t since = extent ? extent->dirty_since : UINT64_MAX;
    return mapping && mapping->since < since ? mapping->since : since;
}

/* Has the oldest dirty memory decayed? Must any be evicted, all is due. */
static bool is_due_locked(umf_os_extents_t *extents, bool must_be) {
    uint64_t since = dirty_since_locked(extents);
    return since != UINT64_MAX && (must_be || extents->now - since >= umf_decay_period);
}

/* Memory on its way out: the dirty pages of an extent, which stay taken until they are clear and so
 * keep the extent; or a mapping. */
typedef struct evicted_t {
    os_extent_t *extent; /* NULL: `mapping` is meant */
    umf_os_pages_t pages;
    uint32_t count; /* of the pages */
    umf_os_mapping_t mapping;
} evicted_t;

static size_t evicted_bytes(const umf_os_extents_t *extents, const evicted_t *evicted) {
    return evicted->extent ? evicted->count * extents->page_size : evicted->mapping.size;
}

static void evict_pages_locked(umf_os_extents_t *extents, os_extent_t *extent, evicted_t *evicted) {
    umf_assert_locked(&extents->lock);
    evicted->extent = extent;
    evicted->pages = extent->dirty;
    evicted->count = extent->dirty_count;
    umf_os_pages_init(&extent->dirty);
    extents->dirty_count -= extent->dirty_count;
    extent->dirty_count = 0;
    umf_list_remove(&extent->dirty_link);
}

/* Withdraws the oldest dirty memory if it is due. */
static bool evict_begin_locked(umf_os_extents_t *extents, bool must_be, evicted_t *evicted) {
    bool is_due = is_due_locked(extents, must_be);
    const umf_os_mapping_t *mapping = umf_os_maps_oldest(&extents->dirty_maps);
    if (!is_due) {
        return false;
    }
    if (mapping && mapping->since == dirty_since_locked(extents)) {
        evicted->extent = NULL;
        evicted->mapping = umf_os_maps_take_oldest(&extents->dirty_maps);
    } else {
        evict_pages_locked(extents, oldest_locked(extents), evicted);
    }
    return true;
}

static void evict_end(umf_os_extents_t *extents, const evicted_t *evicted) {
    os_extent_t *extent = evicted->extent;
    umf_os_run_t run = {0, 0};
    if (!extent) {
        unmap_range(evicted->mapping.base, evicted->mapping.size);
        return;
    }
    while (umf_os_pages_next(&evicted->pages, pages_of(extents, EXTENT_SIZE), &run)) {
        uintptr_t base = extent->base + run.at * extents->page_size;
        size_t size = run.count * extents->page_size;
        /* Pages that cannot be cleared must not be handed out as zero: they become a hole. */
        if (drop_content(base, size, extents->protection) == 0) {
            give_pages(extents, extent, run);
        } else {
            umf_os_unmap((void *)base, size);
        }
    }
}

/* Evicts dirty memory until it was `most` bytes: all, or pages that have decayed or are too many
 * next to `live` bytes. true: there may be more. */
static bool evict(umf_os_extents_t *extents, size_t most, bool all, size_t live) {
    umf_transit_part_t part;
    evicted_t evicted;
    bool goes_on = true;
    umf_transit_begin(&extents->transit, &part);
    umf_lock(&extents->lock);
    while (most && (goes_on = evict_begin_locked(extents, all || is_too_dirty_locked(extents, live),
                                                 &evicted))) {
        extents->evicting++;
        umf_unlock(&extents->lock);
        size_t bytes = evicted_bytes(extents, &evicted);
        most -= bytes < most ? bytes : most;
        evict_end(extents, &evicted);
        umf_lock(&extents->lock);
        extents->evicting--;
    }
    umf_unlock(&extents->lock);
    umf_transit_end(&part);
    return goes_on;
}

void umf_os_extents_decay(umf_os_extents_t *extents) {
    uint64_t now = umf_decay_now();
    umf_lock(&extents->lock);
    tick_locked(extents, now);
    bool is_due = is_due_locked(extents, is_too_dirty_locked(extents, 0));
    umf_unlock(&extents->lock);
    if (is_due && evict(extents, umf_decay_bytes(), false, 0)) {
        umf_decay_tick_soon();
    }
}

/* Pools are often created and destroyed without leaving anything. */
static bool has_nothing(umf_os_extents_t *extents) {
    umf_lock(&extents->lock);
    bool is_any = dirty_bytes_locked(extents) || extents->clear_maps.bytes || extents->evicting;
    umf_unlock(&extents->lock);
    return !is_any;
}

void umf_os_extents_drop(umf_os_extents_t *extents) {
    umf_transit_part_t part;
    if (has_nothing(extents)) {
        return;
    }
    umf_transit_retry(&extents->transit, &part); /* memory that others evict is back after this */
    evict(extents, SIZE_MAX, true, 0);
    clear_shrink(extents, 0);
    umf_transit_again(&part, true);
}

size_t umf_os_extents_dirty(umf_os_extents_t *extents) {
    umf_lock(&extents->lock);
    size_t bytes = dirty_bytes_locked(extents);
    umf_unlock(&extents->lock);
    return bytes;
}

/* Makes a mapping dirty. false: it overlaps an extent, or there is no memory for bookkeeping. */
static bool keep_mapping_locked(umf_os_extents_t *extents, uintptr_t base, size_t size) {
    umf_assert_locked(&extents->lock);
    for (uintptr_t at = umf_align_down(base, EXTENT_SIZE); at < base + size; at += EXTENT_SIZE) {
        if (extent_at_locked(extents, at)) {
            return false;
        }
    }
    return umf_os_maps_put(&extents->dirty_maps, base, size, extents->now);
}

static bool keep_piece_locked(umf_os_extents_t *extents, uintptr_t base, size_t size) {
    os_extent_t *extent = extent_at_locked(extents, base);
    if (!extent || base + size > extent->base + EXTENT_SIZE) {
        return false;
    }
    umf_os_run_t run = run_of(extents, extent, base, size);
    /* A double free or a foreign range must not become dirty: free_range refuses it. */
    bool is_live = is_live_locked(extents, extent, run);
    if (is_live) {
        dirty_add_locked(extents, extent, run);
    }
    return is_live;
}

int umf_os_extents_keep(umf_os_extents_t *extents, void *ptr, size_t size, size_t live) {
    uintptr_t base = (uintptr_t)ptr, end = 0;
    bool is_range = range_end(extents, base, size, &end) == 0;
    bool is_mapping = is_range && end - base > PIECE_MAX && end - base <= WAIT_SIZE_MAX;
    if (!is_range || (!is_mapping && size > PIECE_MAX)) {
        return free_range(extents, ptr, size, true);
    }
    uint64_t now = umf_decay_now();
    umf_lock(&extents->lock);
    tick_locked(extents, now);
    bool is_kept = is_mapping ? keep_mapping_locked(extents, base, end - base)
                              : keep_piece_locked(extents, base, end - base);
    bool is_due = is_due_locked(extents, is_too_dirty_locked(extents, live));
    umf_unlock(&extents->lock);
    if (is_due) {
        evict(extents, EVICT_BYTES, false, live); /* bounded: no free pays for the whole backlog */
    }
    return is_kept ? 0 : free_range(extents, ptr, size, true);
}
