/* Pieces and their extents: groups of threads, new extents, pages that come back. */
#include <errno.h>

#include "base/aligned_map.h"
#include "base/meta.h"
#include "base/thread_slot.h"
#include "providers/os/extent_own.h"
#include "system/os.h"

#define HUGE_FROM 4u /* more extents than this request huge pages */
#define EMPTY_MAX 4u
/* The size of a group. The map entries of a group fill one cache line, or two for single pages;
 * CPUs fetch lines in pairs. */
#define GROUP_SMALL ((size_t)64 << 10)
#define GROUP_LARGE ((size_t)512 << 10)

/* --- pages of an extent --- */

static void *take_pages_locked(umf_os_extents_t *extents, umf_os_extent_t *extent,
                               umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    extents->empty -= umf_os_extent_is_empty(extents, extent);
    umf_os_pages_flip(&extent->used, run);
    extents->free -= run.count;
    extent->free -= run.count;
    if (!extent->free) {
        umf_list_remove(&extent->link);
    }
    return (void *)(extent->base + run.at * extents->page_size);
}

static void *find_piece_locked(umf_os_extents_t *extents, umf_os_run_t run, uint32_t step) {
    uint32_t pages = umf_os_pages_of(extents, UMF_OS_EXTENT_SIZE), tries = 0;
    umf_assert_locked(&extents->lock);
    for (umf_list_t *link = extents->roomy.next; link != &extents->roomy && tries < UMF_OS_TRIES;
         link = link->next, tries++) {
        umf_os_extent_t *extent = UMF_CONTAINER_OF(link, umf_os_extent_t, link);
        if (extent->free >= run.count &&
            umf_os_pages_find(&extent->used, false, pages, step, &run)) {
            return take_pages_locked(extents, extent, run);
        }
    }
    return NULL;
}

/* --- groups: pieces of one thread --- */

/* Pages of a group for pieces of this size. */
static uint32_t group_pages(const umf_os_extents_t *extents, umf_os_run_t run) {
    bool is_small = run.count < umf_os_pages_of(extents, GROUP_SMALL);
    return umf_os_pages_of(extents, is_small ? GROUP_SMALL : GROUP_LARGE);
}

/* The entry for the calling thread's group. */
static uintptr_t *group_of_locked(umf_os_extents_t *extents, umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    bool is_large = run.count >= umf_os_pages_of(extents, GROUP_SMALL);
    return &extents->groups[is_large][umf_thread_slot_number() % UMF_OS_GROUPS];
}

static void *find_in_group_locked(umf_os_extents_t *extents, uintptr_t group, umf_os_run_t run,
                                  uint32_t step) {
    umf_os_extent_t *extent = umf_os_extent_at_locked(extents, group);
    if (!extent) {
        return NULL;
    }
    uint32_t first = umf_os_pages_of(extents, group - extent->base),
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
    uint32_t pages = umf_os_pages_of(extents, UMF_OS_EXTENT_SIZE), tries = 0;
    uint32_t next = step > group.count ? step : group.count;
    umf_assert_locked(&extents->lock);
    for (umf_list_t *link = extents->roomy.next; link != &extents->roomy && tries < UMF_OS_TRIES;
         link = link->next, tries++) {
        umf_os_extent_t *extent = UMF_CONTAINER_OF(link, umf_os_extent_t, link);
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
    size_t pages = extents->all.count * umf_os_pages_of(extents, UMF_OS_EXTENT_SIZE);
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

static umf_os_extent_t *extent_make(const umf_os_extents_t *extents) {
    umf_os_extent_t *extent = umf_meta_alloc(sizeof(*extent));
    void *base;
    if (!extent) {
        return NULL;
    }
    if (umf_os_map_aligned_plain(UMF_OS_EXTENT_SIZE, UMF_OS_EXTENT_SIZE, extents->protection,
                                 &base) != 0) {
        umf_meta_free(extent, sizeof(*extent));
        return NULL;
    }
    umf_list_init(&extent->link);
    umf_list_init(&extent->dirty_link);
    umf_os_pages_init(&extent->used);
    umf_os_pages_init(&extent->gone);
    umf_os_pages_init(&extent->dirty);
    extent->base = (uintptr_t)base;
    extent->free = umf_os_pages_of(extents, UMF_OS_EXTENT_SIZE);
    return extent;
}

static void extent_free(umf_os_extent_t *extent) {
    umf_os_extents_unmap(extent->base, UMF_OS_EXTENT_SIZE);
    umf_meta_free(extent, sizeof(*extent));
}

static void ask_for_huge_pages(uint64_t key, void *value, void *arg) {
    (void)key, (void)arg;
    umf_os_advise_huge_pages((void *)((umf_os_extent_t *)value)->base, UMF_OS_EXTENT_SIZE);
}

static bool extent_add_locked(umf_os_extents_t *extents, umf_os_extent_t *extent) {
    umf_assert_locked(&extents->lock);
    if (!umf_hash_put(&extents->all, extent->base, extent)) {
        return false;
    }
    umf_list_add(&extents->roomy, &extent->link);
    extents->empty++;
    extents->free += extent->free;
    extents->low = extent->base < extents->low ? extent->base : extents->low;
    uintptr_t end = extent->base + UMF_OS_EXTENT_SIZE;
    extents->high = end > extents->high ? end : extents->high;
    /* The first extents use small pages: one touched byte must not cost 2 MiB. */
    if (extents->huge) {
        umf_os_advise_huge_pages((void *)extent->base, UMF_OS_EXTENT_SIZE);
    } else if (extents->all.count > HUGE_FROM) {
        extents->huge = true;
        umf_hash_each(&extents->all, ask_for_huge_pages, NULL);
    } else {
        umf_os_advise_small_pages((void *)extent->base, UMF_OS_EXTENT_SIZE);
    }
    return true;
}

/* Takes a piece from a new extent. The extent is made without the lock; it is dropped if another
 * thread has made room meanwhile. */
static void *piece_alloc_new(umf_os_extents_t *extents, umf_os_run_t run, uint32_t step) {
    umf_os_extent_t *extent = extent_make(extents);
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

__attribute__((noinline)) int umf_os_piece_alloc(umf_os_extents_t *extents, umf_os_run_t run,
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

/* --- pages that come back --- */

/* Takes an extent without pieces out of the table if it has no free pages or enough others are
 * empty. true: the caller frees it. */
static bool withdraw_if_empty_locked(umf_os_extents_t *extents, umf_os_extent_t *extent) {
    umf_assert_locked(&extents->lock);
    if (!umf_os_extent_is_empty(extents, extent)) {
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

void umf_os_extent_retire_pages(umf_os_extents_t *extents, umf_os_extent_t *extent,
                                umf_os_run_t run) {
    umf_lock(&extents->lock);
    umf_os_pages_flip(&extent->gone, run);
    extent->gone_count += run.count;
    bool is_withdrawn = withdraw_if_empty_locked(extents, extent);
    umf_unlock(&extents->lock);
    if (is_withdrawn) {
        extent_free(extent);
    }
}

static bool give_pages_locked(umf_os_extents_t *extents, umf_os_extent_t *extent,
                              umf_os_run_t run) {
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
void umf_os_extent_give_pages(umf_os_extents_t *extents, umf_os_extent_t *extent,
                              umf_os_run_t run) {
    umf_lock(&extents->lock);
    bool is_withdrawn = give_pages_locked(extents, extent, run);
    umf_unlock(&extents->lock);
    if (is_withdrawn) {
        extent_free(extent);
    }
}
