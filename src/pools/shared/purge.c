#include "pools/shared/purge.h"

#include <umf/result.h>

#include "base/meta.h"
#include "cache/decay.h"

enum { PURGE_FORCE, PURGE_LAZY, PURGE_NONE };

void umf_purge_init(umf_purge_t *purge, umf_tracked_provider_t *tracked, size_t page) {
    *purge = (umf_purge_t){.tracked = tracked, .page = page, .mode = PURGE_FORCE};
}

static int purge_mode(const umf_purge_t *purge) {
    return atomic_load_explicit(&purge->mode, memory_order_relaxed);
}

static umf_result_t purge_by(const umf_purge_t *purge, int mode, void *ptr, size_t size) {
    return mode == PURGE_FORCE ? umfMemoryProviderPurgeForce(purge->tracked, ptr, size)
                               : umfMemoryProviderPurgeLazy(purge->tracked, ptr, size);
}

umf_result_t umf_purge(umf_purge_t *purge, uintptr_t base, size_t size) {
    uintptr_t first = base + purge->page - 1, end = base + size;
    first -= first % purge->page;
    end -= end % purge->page;
    int mode = purge_mode(purge);
    umf_result_t result = UMF_RESULT_SUCCESS;
    while (first < end && mode != PURGE_NONE &&
           (result = purge_by(purge, mode, (void *)first, end - first)) ==
               UMF_RESULT_ERROR_NOT_SUPPORTED) {
        atomic_store_explicit(&purge->mode, ++mode, memory_order_relaxed);
    }
    return result;
}

/* --- isolated segments --- */

#define ISOLATED_MAX 32

typedef struct isolated_t {
    umf_list_t link;
    unsigned forks;  /* umf_fork_count() when they were isolated */
    uint32_t purged; /* bits of the segments that need no further purge */
    size_t count;
    umf_range_segment_t segments[ISOLATED_MAX];
} isolated_t;

/* umf_range_take_free, umf_range_take_idle or take_large. */
typedef size_t (*choice_t)(umf_range_t *range, uintptr_t *cursor, size_t min,
                           umf_range_segment_t *segments, size_t n);

static isolated_t *isolated_at(umf_list_t *link) {
    return UMF_CONTAINER_OF(link, isolated_t, link);
}

static isolated_t *isolate_locked(umf_purge_part_t *part, choice_t choice, uintptr_t *cursor) {
    umf_assert_locked(part->lock);
    isolated_t *isolated = *part->range ? umf_meta_alloc(sizeof(*isolated)) : NULL;
    if (!isolated) {
        return NULL;
    }
    isolated->forks = umf_fork_count();
    isolated->count =
        choice(*part->range, cursor, part->purge->page, isolated->segments, ISOLATED_MAX);
    if (!isolated->count) {
        umf_meta_free(isolated, sizeof(*isolated));
        return NULL;
    }
    umf_list_add(&part->isolated, &isolated->link);
    return isolated;
}

/* Isolates the next free segments, from high addresses to low. NULL: `choice` finds no more, or
 * there is no memory to list them. */
static isolated_t *isolate(umf_purge_part_t *part, choice_t choice, uintptr_t *cursor) {
    umf_lock(part->lock);
    isolated_t *isolated = isolate_locked(part, choice, cursor);
    umf_unlock(part->lock);
    return isolated;
}

static void isolated_end(isolated_t *isolated) {
    umf_list_remove(&isolated->link);
    umf_meta_free(isolated, sizeof(*isolated));
}

static void put_back_locked(umf_purge_part_t *part, const umf_range_segment_t *segment,
                            bool is_clean) {
    const umf_purge_t *purge = part->purge;
    umf_range_freed_t freed;
    umf_result_t result =
        is_clean ? umf_range_free_clean(*part->range, segment->base, segment->size, &freed)
                 : umf_range_free(*part->range, segment->base, segment->size, &freed);
    if (result == UMF_RESULT_SUCCESS && freed.whole_region && purge->fell_free) {
        purge->fell_free(purge->pool, part, freed.free_base);
    }
}

static void reintegrate_locked(umf_purge_part_t *part, isolated_t *isolated) {
    umf_assert_locked(part->lock);
    for (size_t i = 0; i < isolated->count; i++) {
        put_back_locked(part, &isolated->segments[i], isolated->purged >> i & 1);
    }
    isolated_end(isolated);
}

bool umf_purge_inherit_locked(umf_purge_part_t *part) {
    bool inherits = false;
    for (umf_list_t *link = part->isolated.next, *next; link != &part->isolated; link = next) {
        next = link->next;
        if (isolated_at(link)->forks != umf_fork_count()) {
            isolated_at(link)->purged = 0;
            reintegrate_locked(part, isolated_at(link));
            inherits = true;
        }
    }
    return inherits;
}

/* Are they still listed? Not if a child of fork, which called fork while it purged, has inherited
 * them. */
static bool is_listed_locked(const umf_purge_part_t *part, const isolated_t *isolated,
                             unsigned forks) {
    const umf_list_t *link = part->isolated.next;
    while (link != &part->isolated && link != &isolated->link) {
        link = link->next;
    }
    return link != &part->isolated && isolated->forks == forks;
}

static bool isolated_contains(const isolated_t *isolated, uintptr_t base) {
    for (size_t i = 0; i < isolated->count; i++) {
        if (isolated->segments[i].base == base) {
            return true;
        }
    }
    return false;
}

bool umf_purge_has_isolated(const umf_purge_part_t *part, uintptr_t base) {
    const umf_list_t *list = &part->isolated;
    for (umf_list_t *link = list->next; link != list; link = link->next) {
        if (isolated_contains(isolated_at(link), base)) {
            return true;
        }
    }
    return false;
}

size_t umf_purge_isolated_bytes(const umf_purge_part_t *part) {
    size_t bytes = 0;
    for (umf_list_t *link = part->isolated.next; link != &part->isolated; link = link->next) {
        for (size_t i = 0; i < isolated_at(link)->count; i++) {
            bytes += isolated_at(link)->segments[i].size;
        }
    }
    return bytes;
}

/* --- parts --- */

void umf_purge_part_init(umf_purge_part_t *part, umf_purge_t *purge, umf_lock_t *lock,
                         umf_range_t **range) {
    part->purge = purge;
    part->lock = lock;
    part->range = range;
    part->decay_cursor = UINTPTR_MAX;
    umf_list_init(&part->isolated);
}

void umf_purge_part_fini(umf_purge_part_t *part) {
    while (!umf_list_is_empty(&part->isolated)) {
        isolated_end(isolated_at(part->isolated.next));
    }
}

/* Where the provider cannot purge at all, it is not called again. */
static bool needs_no_further(umf_result_t result) {
    return result == UMF_RESULT_SUCCESS || result == UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Purges without the lock and lowers `*bytes`, down to 0, then frees the segments. A segment whose
 * purge failed stays dirty. */
static void purge_isolated(umf_purge_part_t *part, isolated_t *isolated, size_t *bytes) {
    unsigned forks = isolated->forks;
    for (size_t i = 0; i < isolated->count; i++) {
        size_t size = isolated->segments[i].size;
        umf_result_t result = umf_purge(part->purge, isolated->segments[i].base, size);
        isolated->purged |= (uint32_t)needs_no_further(result) << i;
        *bytes -= size < *bytes ? size : *bytes;
    }
    umf_lock(part->lock);
    if (is_listed_locked(part, isolated, forks)) {
        reintegrate_locked(part, isolated);
    }
    umf_unlock(part->lock);
}

/* Purges the next free segments. false: there are no more. */
static bool purge_next(umf_purge_part_t *part, choice_t choice, uintptr_t *cursor, size_t *bytes) {
    umf_transit_part_t transit;
    umf_transit_begin(part->purge->transit, &transit);
    isolated_t *isolated = isolate(part, choice, cursor);
    if (isolated) {
        purge_isolated(part, isolated, bytes);
    }
    umf_transit_end(&transit);
    return isolated != NULL;
}

/* Where the provider cannot purge, a pool may still need the list of idle regions. */
static bool is_useful(const umf_purge_t *purge) {
    return purge_mode(purge) != PURGE_NONE || purge->fell_free;
}

/* Purges in batches until `*bytes` is 0. The last batch may go beyond it. true: there may be
 * more. */
static bool part_purge(umf_purge_part_t *part, choice_t choice, uintptr_t *cursor, size_t *bytes) {
    bool goes_on = true;
    while (goes_on && *bytes) {
        goes_on = is_useful(part->purge) && purge_next(part, choice, cursor, bytes);
    }
    return goes_on;
}

void umf_purge_all(umf_purge_t *purge) {
    umf_purge_part_t *part;
    for (uint32_t i = 0; (part = purge->part(purge->pool, i)) != NULL; i++) {
        uintptr_t cursor = UINTPTR_MAX;
        size_t bytes = SIZE_MAX;
        part_purge(part, umf_range_take_free, &cursor, &bytes);
    }
}

/* Smaller segments are not worth a system call, and are likely to be used soon. */
#define LARGE_SEGMENT ((size_t)64 << 10)

static size_t take_large(umf_range_t *range, uintptr_t *cursor, size_t min,
                         umf_range_segment_t *segments, size_t n) {
    return umf_range_take_dirty(range, cursor, min > LARGE_SEGMENT ? min : LARGE_SEGMENT, segments,
                                n);
}

void umf_purge_before_growth(umf_purge_t *purge, size_t bytes) {
    umf_purge_part_t *part;
    for (uint32_t i = 0; bytes && (part = purge->part(purge->pool, i)) != NULL; i++) {
        uintptr_t cursor = UINTPTR_MAX;
        part_purge(part, take_large, &cursor, &bytes);
    }
}

/* true: there may be more in this part. */
static bool part_decay(umf_purge_part_t *part, size_t *bytes) {
    bool goes_on = part_purge(part, umf_range_take_idle, &part->decay_cursor, bytes);
    if (!goes_on) {
        umf_lock(part->lock);
        part->decay_cursor = UINTPTR_MAX;
        umf_unlock(part->lock);
    }
    return goes_on;
}

bool umf_purge_decay(umf_purge_t *purge) {
    uint32_t i = atomic_load_explicit(&purge->decay_part, memory_order_relaxed);
    size_t bytes = umf_decay_bytes();
    umf_purge_part_t *part;
    while ((part = purge->part(purge->pool, i)) != NULL && !part_decay(part, &bytes)) {
        i++;
    }
    atomic_store_explicit(&purge->decay_part, part ? i : 0, memory_order_relaxed);
    return part != NULL;
}
