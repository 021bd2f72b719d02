/* Dirty memory: pieces and mappings that pools have freed, until they are used again or evicted. */
#include "base/aligned_map.h"
#include "providers/os/extent_own.h"
#include "system/os.h"

/* The first mappings, one for each CPU: the threads of a pool take from as many parts of it, and
 * seldom use all of the first one. */
#define SMALL_MAPPED_MIN 2u
#define SMALL_MAPPED_MAX 16u
/* Bytes that may be dirty beyond the peak of live bytes. */
#define DIRTY_MIN ((size_t)64 << 20)
/* A free that leaves memory dirty evicts one extent or mapping in return, and one to shrink the
 * rest if they are no larger. */
#define EVICT_BYTES (UMF_OS_EXTENT_SIZE + 1)

static void dirty_add_locked(umf_os_extents_t *extents, umf_os_extent_t *extent, umf_os_run_t run) {
    umf_assert_locked(&extents->lock);
    if (!extent->dirty_count) {
        extent->dirty_since = extents->now;
        umf_list_add(&extents->dirty, &extent->dirty_link);
    }
    umf_os_pages_flip(&extent->dirty, run);
    extent->dirty_count += run.count;
    extents->dirty_count += run.count;
}

static void *dirty_remove_locked(umf_os_extents_t *extents, umf_os_extent_t *extent,
                                 umf_os_run_t run) {
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
    uint32_t pages = umf_os_pages_of(extents, UMF_OS_EXTENT_SIZE), tries = 0;
    umf_assert_locked(&extents->lock);
    for (umf_list_t *link = extents->dirty.next; link != &extents->dirty && tries < UMF_OS_TRIES;
         link = link->next, tries++) {
        umf_os_extent_t *extent = UMF_CONTAINER_OF(link, umf_os_extent_t, dirty_link);
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
    if (umf_os_is_piece(extents, size, alignment)) {
        umf_os_run_t run = {0, umf_os_pages_of(extents, size)};
        ptr = find_dirty_locked(extents, run, umf_os_piece_step(extents, size, alignment));
    } else if (umf_os_maps_take(&extents->dirty_maps, size, alignment, &mapping)) {
        ptr = (void *)mapping;
    }
    umf_unlock(&extents->lock);
    return ptr;
}

static size_t small_mapped_most(void) {
    size_t cpus = umf_os_cpu_count();
    size_t count = cpus < SMALL_MAPPED_MIN ? SMALL_MAPPED_MIN : cpus;
    return (count < SMALL_MAPPED_MAX ? count : SMALL_MAPPED_MAX) * UMF_OS_EXTENT_SIZE;
}

/* The first mappings that pools take use small pages: one touched byte must not cost 2 MiB. false:
 * this is not one of them. */
static bool alloc_first(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    size_t most = small_mapped_most();
    umf_lock(&extents->lock);
    bool is_first = size >= UMF_OS_EXTENT_SIZE && size <= most - extents->small_mapped;
    extents->small_mapped += is_first ? size : 0;
    umf_unlock(&extents->lock);
    return is_first && umf_os_map_aligned_plain(size, alignment, extents->protection, ptr) == 0;
}

int umf_os_extents_alloc_any(umf_os_extents_t *extents, size_t size, size_t alignment, void **ptr) {
    void *dirty = size <= UMF_OS_WAIT_SIZE_MAX ? alloc_dirty(extents, size, alignment) : NULL;
    if (!dirty) {
        return alloc_first(extents, size, alignment, ptr)
                   ? 0
                   : umf_os_extents_alloc(extents, size, alignment, ptr);
    }
    *ptr = dirty;
    return 0;
}

static umf_os_extent_t *oldest_locked(umf_os_extents_t *extents) {
    umf_assert_locked(&extents->lock);
    return umf_list_is_empty(&extents->dirty)
               ? NULL
               : UMF_CONTAINER_OF(extents->dirty.prev, umf_os_extent_t, dirty_link);
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
    const umf_os_extent_t *extent = oldest_locked(extents);
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
    umf_os_extent_t *extent; /* NULL: `mapping` is meant */
    umf_os_pages_t pages;
    uint32_t count; /* of the pages */
    umf_os_mapping_t mapping;
} evicted_t;

static size_t evicted_bytes(const umf_os_extents_t *extents, const evicted_t *evicted) {
    return evicted->extent ? evicted->count * extents->page_size : evicted->mapping.size;
}

static void evict_pages_locked(umf_os_extents_t *extents, umf_os_extent_t *extent,
                               evicted_t *evicted) {
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
    umf_os_extent_t *extent = evicted->extent;
    umf_os_run_t run = {0, 0};
    if (!extent) {
        umf_os_extents_unmap(evicted->mapping.base, evicted->mapping.size);
        return;
    }
    while (umf_os_pages_next(&evicted->pages, umf_os_pages_of(extents, UMF_OS_EXTENT_SIZE), &run)) {
        uintptr_t base = extent->base + run.at * extents->page_size;
        size_t size = run.count * extents->page_size;
        /* Pages that cannot be cleared must not be handed out as zero: they become a hole. */
        if (umf_os_extents_clear(base, size, extents->protection) == 0) {
            umf_os_extent_give_pages(extents, extent, run);
        } else {
            umf_os_unmap((void *)base, size);
        }
    }
}

/* Evicts dirty memory until it was `most` bytes: all, or pages that have decayed or are too many
 * next to `live` bytes. true: there may be more. */
bool umf_os_extents_evict(umf_os_extents_t *extents, size_t most, bool all, size_t live) {
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
    if (is_due && umf_os_extents_evict(extents, umf_decay_bytes(), false, 0)) {
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
    umf_transit_retry(&extents->transit, &part); /* waits for evictions of other threads */
    umf_os_extents_evict(extents, SIZE_MAX, true, 0);
    umf_os_extents_shrink_clear(extents, 0);
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
    for (uintptr_t at = umf_align_down(base, UMF_OS_EXTENT_SIZE); at < base + size;
         at += UMF_OS_EXTENT_SIZE) {
        if (umf_os_extent_at_locked(extents, at)) {
            return false;
        }
    }
    return umf_os_maps_put(&extents->dirty_maps, base, size, extents->now);
}

static bool keep_piece_locked(umf_os_extents_t *extents, uintptr_t base, size_t size) {
    umf_os_extent_t *extent = umf_os_extent_at_locked(extents, base);
    if (!extent || base + size > extent->base + UMF_OS_EXTENT_SIZE) {
        return false;
    }
    umf_os_run_t run = umf_os_run_of(extents, extent, base, size);
    /* A double free or a foreign range must not become dirty. umf_os_extents_keep passes it on to
     * umf_os_extents_free_range, which refuses it. */
    bool is_live = umf_os_extent_is_live_locked(extents, extent, run);
    if (is_live) {
        dirty_add_locked(extents, extent, run);
    }
    return is_live;
}

int umf_os_extents_keep(umf_os_extents_t *extents, void *ptr, size_t size, size_t live) {
    uintptr_t base = (uintptr_t)ptr, end = 0;
    bool is_range = umf_os_extents_range_end(extents, base, size, &end) == 0;
    bool is_mapping =
        is_range && end - base > UMF_OS_PIECE_MAX && end - base <= UMF_OS_WAIT_SIZE_MAX;
    if (!is_range || (!is_mapping && size > UMF_OS_PIECE_MAX)) {
        return umf_os_extents_free_range(extents, ptr, size, true);
    }
    uint64_t now = umf_decay_now();
    umf_lock(&extents->lock);
    tick_locked(extents, now);
    bool is_kept = is_mapping ? keep_mapping_locked(extents, base, end - base)
                              : keep_piece_locked(extents, base, end - base);
    bool is_due = is_due_locked(extents, is_too_dirty_locked(extents, live));
    umf_unlock(&extents->lock);
    if (is_due) {
        /* Bounded: no free pays for the whole backlog. */
        umf_os_extents_evict(extents, EVICT_BYTES, false, live);
    }
    return is_kept ? 0 : umf_os_extents_free_range(extents, ptr, size, true);
}
