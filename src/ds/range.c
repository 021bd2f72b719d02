/* Regions, and the memory of the bookkeeping. */
#include "base/meta.h"
#include "ds/range_own.h"

#define RANGE_FIRST_SLAB 1024
#define RANGE_LARGEST_SLAB 65536
#define RANGE_FIRST_HASH 16

typedef umf_range_node_t segment_t;

typedef struct umf_range_slab_t {
    struct umf_range_slab_t *next;
    size_t size;
    bool has_lease; /* found by umf_range_keep_lease since the last trim */
    segment_t segments[];
} umf_range_slab_t;

const uint32_t umf_range_view[5] = {
    offsetof(umf_range_t, used_bytes), offsetof(umf_range_t, claimed),  offsetof(segment_t, size),
    offsetof(segment_t, bin_next),     offsetof(segment_t, generation),
};

/* --- the memory of the bookkeeping -------------------------------------------------------------
 */

static size_t slab_count(const umf_range_slab_t *slab) {
    return (slab->size - sizeof(*slab)) / sizeof(segment_t);
}

bool umf_range_slab_add(umf_range_t *range) {
    size_t size = range->slabs ? range->slabs->size * 2 : RANGE_FIRST_SLAB;
    if (size > RANGE_LARGEST_SLAB) {
        size = RANGE_LARGEST_SLAB;
    }
    umf_range_slab_t *slab = umf_meta_alloc(size);
    if (!slab) {
        return false;
    }
    slab->size = size;
    slab->next = range->slabs;
    range->slabs = slab;
    for (size_t i = 0; i < slab_count(slab); i++) {
        umf_range_segment_delete(range, &slab->segments[i]);
    }
    return true;
}

/* Changes the size of the table. It does not fail: without memory the table only becomes slower. */
UMF_COLD void umf_range_used_rehash(umf_range_t *range, size_t size) {
    segment_t **hash = umf_meta_alloc(size * sizeof(*hash));
    if (!hash) {
        return;
    }
    for (size_t i = 0; i < range->hash_size; i++) {
        for (segment_t *segment = range->hash[i], *next; segment; segment = next) {
            next = segment->chain;
            segment_t **slot = umf_range_used_slot(hash, size, segment->base);
            segment->chain = *slot;
            *slot = segment;
        }
    }
    umf_meta_free(range->hash, range->hash_size * sizeof(*hash));
    range->hash = hash;
    range->hash_size = size;
}

umf_range_t *umf_range_create(void) {
    umf_range_t *range = umf_meta_alloc(sizeof(*range));
    if (!range) {
        return NULL;
    }
    range->hash = umf_meta_alloc(RANGE_FIRST_HASH * sizeof(*range->hash));
    range->hash_size = RANGE_FIRST_HASH;
    if (!range->hash) {
        umf_meta_free(range, sizeof(*range));
        return NULL;
    }
    return range;
}

void umf_range_destroy(umf_range_t *range) {
    for (umf_range_slab_t *slab = range->slabs, *next; slab; slab = next) {
        next = slab->next;
        umf_meta_free(slab, slab->size);
    }
    umf_meta_free(range->hash, range->hash_size * sizeof(*range->hash));
    umf_meta_free(range->regions, range->region_room * sizeof(*range->regions));
    umf_meta_free(range, sizeof(*range));
}

void umf_range_keep_lease(umf_range_t *range, const uint32_t *generation) {
    uintptr_t at = (uintptr_t)generation;
    for (umf_range_slab_t *slab = range->slabs; slab; slab = slab->next) {
        slab->has_lease |= at - (uintptr_t)slab < slab->size;
    }
}

static bool slab_is_unused(const umf_range_slab_t *slab) {
    bool is_unused = slab->size == RANGE_LARGEST_SLAB && !slab->has_lease;
    for (size_t i = 0; is_unused && i < slab_count(slab); i++) {
        is_unused = slab->segments[i].kind == UMF_RANGE_UNUSED;
    }
    return is_unused;
}

static void slab_keep(umf_range_t *range, umf_range_slab_t *slab) {
    slab->has_lease = false;
    for (size_t i = 0; i < slab_count(slab); i++) {
        if (slab->segments[i].kind == UMF_RANGE_UNUSED) {
            umf_range_segment_delete(range, &slab->segments[i]);
        }
    }
}

/* Only the largest slabs go: smaller blocks of the arena stay with the process anyway. */
void umf_range_trim(umf_range_t *range) {
    range->unused = NULL;
    range->unused_count = 0;
    for (umf_range_slab_t **at = &range->slabs, *slab; (slab = *at) != NULL;) {
        if (slab_is_unused(slab)) {
            *at = slab->next;
            umf_meta_free(slab, slab->size);
        } else {
            slab_keep(range, slab);
            at = &slab->next;
        }
    }
    size_t size = RANGE_FIRST_HASH;
    while (size < range->used_count) {
        size *= 2;
    }
    if (size < range->hash_size) {
        umf_range_used_rehash(range, size);
    }
}

/* --- regions ---------------------------------------------------------------------------------- */

/* The index of the first region that ends above `addr`. */
size_t umf_range_region_above(const umf_range_t *range, uintptr_t addr) {
    size_t low = 0, high = range->region_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (range->regions[middle]->base > addr) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool region_reserve(umf_range_t *range) {
    if (range->region_count < range->region_room) {
        return true;
    }
    size_t room = range->region_room ? range->region_room * 2 : 4;
    segment_t **regions = umf_meta_alloc(room * sizeof(*regions));
    if (!regions) {
        return false;
    }
    for (size_t i = 0; i < range->region_count; i++) {
        regions[i] = range->regions[i];
    }
    umf_meta_free(range->regions, range->region_room * sizeof(*regions));
    range->regions = regions;
    range->region_room = room;
    return true;
}

umf_result_t umf_range_add(umf_range_t *range, uintptr_t base, size_t size) {
    uintptr_t end;
    if (size == 0 || __builtin_add_overflow(base, size, &end)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t at = umf_range_region_above(range, base);
    if (at < range->region_count && umf_range_region_base(range->regions[at]) < end) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!region_reserve(range) || !umf_range_segment_reserve(range, 2)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    segment_t *segment = umf_range_segment_new(range, base, size, UMF_RANGE_FREE);
    segment_t *last = umf_range_segment_new(range, end, size, UMF_RANGE_END);
    segment->age = UMF_RANGE_NEW;
    umf_range_segment_link(segment, last);
    umf_range_bin_add(range, segment);
    for (size_t i = range->region_count++; i > at; i--) {
        range->regions[i] = range->regions[i - 1];
    }
    range->regions[at] = last;
    range->total_bytes += size;
    range->free_region_bytes += size;
    return UMF_RESULT_SUCCESS;
}

/* The end segment of the region that ends at `end`, NULL if there is none. */
static segment_t *region_end(const umf_range_t *range, uintptr_t end) {
    size_t at = end ? umf_range_region_above(range, end - 1) : range->region_count;
    return at < range->region_count && range->regions[at]->base == end ? range->regions[at] : NULL;
}

size_t umf_range_free_tail(const umf_range_t *range, uintptr_t end) {
    const segment_t *last = region_end(range, end);
    return last && last->prev->kind == UMF_RANGE_FREE ? last->prev->size : 0;
}

umf_result_t umf_range_grow(umf_range_t *range, uintptr_t end, size_t more) {
    size_t at = end ? umf_range_region_above(range, end - 1) : range->region_count;
    uintptr_t new_end;
    if (at == range->region_count || range->regions[at]->base != end || more == 0 ||
        __builtin_add_overflow(end, more, &new_end) ||
        (at + 1 < range->region_count && umf_range_region_base(range->regions[at + 1]) < new_end)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *last = range->regions[at];
    segment_t *segment = last->prev;
    if (segment->kind == UMF_RANGE_FREE) {
        umf_range_bin_remove(range, segment);
        segment->size += more;
    } else {
        if (!umf_range_segment_reserve(range, 1)) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        segment_t *added = umf_range_segment_new(range, end, more, UMF_RANGE_FREE);
        umf_range_segment_link(segment, added);
        umf_range_segment_link(added, last);
        segment = added;
    }
    umf_range_bin_add(range, segment);
    range->free_region_bytes += umf_range_is_region(segment) ? more : 0;
    last->base = new_end;
    last->size += more;
    range->total_bytes += more;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_range_remove(umf_range_t *range, uintptr_t base) {
    size_t at = umf_range_region_above(range, base);
    if (at == range->region_count || umf_range_region_base(range->regions[at]) != base) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    segment_t *last = range->regions[at];
    segment_t *segment = umf_range_region_free_segment(last);
    if (!segment) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_range_bin_remove(range, segment);
    range->total_bytes -= last->size;
    range->free_region_bytes -= last->size;
    umf_range_segment_delete(range, segment);
    umf_range_segment_delete(range, last);
    range->region_count--;
    for (size_t i = at; i < range->region_count; i++) {
        range->regions[i] = range->regions[i + 1];
    }
    return UMF_RESULT_SUCCESS;
}

/* --- counts ----------------------------------------------------------------------------------- */

size_t umf_range_used_bytes(const umf_range_t *range) {
    return range->used_bytes;
}

size_t umf_range_total_bytes(const umf_range_t *range) {
    return range->total_bytes;
}

size_t umf_range_free_region_bytes(const umf_range_t *range) {
    return range->free_region_bytes;
}

size_t umf_range_region_count(const umf_range_t *range) {
    return range->region_count;
}
