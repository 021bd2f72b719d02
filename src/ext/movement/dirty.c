#include "ext/movement/dirty.h"

#include <string.h>

#include "base/meta.h"

/* Room for one more range. */
static bool dirty_reserve(umf_dirty_t *dirty) {
    if (dirty->count < dirty->room) {
        return true;
    }
    size_t room = dirty->room ? 2 * dirty->room : 8;
    umf_dirty_range_t *ranges = umf_meta_alloc(room * sizeof(*ranges));
    if (!ranges) {
        return false;
    }
    if (dirty->count) {
        memcpy(ranges, dirty->ranges, dirty->count * sizeof(*ranges));
    }
    umf_dirty_fini(dirty);
    dirty->ranges = ranges;
    dirty->room = room;
    return true;
}

/* The first range that ends at `offset` or above. */
static size_t dirty_find(const umf_dirty_t *dirty, size_t offset) {
    size_t low = 0, high = dirty->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (dirty->ranges[middle].end < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Replaces the ranges from `first` to before `last` by `count` (at most 2) others. */
static void dirty_replace(umf_dirty_t *dirty, size_t first, size_t last,
                          const umf_dirty_range_t *by, size_t count) {
    memmove(&dirty->ranges[first + count], &dirty->ranges[last],
            (dirty->count - last) * sizeof(*dirty->ranges));
    memcpy(&dirty->ranges[first], by, count * sizeof(*by));
    dirty->count = dirty->count - (last - first) + count;
}

bool umf_dirty_add(umf_dirty_t *dirty, size_t begin, size_t end) {
    if (begin == end) {
        return true;
    }
    if (!dirty_reserve(dirty)) {
        return false;
    }
    size_t first = dirty_find(dirty, begin), last = first;
    umf_dirty_range_t all = {.begin = begin, .end = end};
    for (; last < dirty->count && dirty->ranges[last].begin <= end; last++) {
        const umf_dirty_range_t *range = &dirty->ranges[last];
        all.begin = range->begin < all.begin ? range->begin : all.begin;
        all.end = range->end > all.end ? range->end : all.end;
    }
    dirty_replace(dirty, first, last, &all, 1);
    return true;
}

bool umf_dirty_remove(umf_dirty_t *dirty, size_t begin, size_t end) {
    if (begin >= end || dirty->count == 0) {
        return true;
    }
    if (!dirty_reserve(dirty)) {
        return false;
    }
    size_t first = dirty_find(dirty, begin + 1), last = first, rest = 0;
    umf_dirty_range_t left[2];
    for (; last < dirty->count && dirty->ranges[last].begin < end; last++) {
        umf_dirty_range_t range = dirty->ranges[last];
        if (range.begin < begin) {
            left[rest++] = (umf_dirty_range_t){.begin = range.begin, .end = begin};
        }
        if (range.end > end) {
            left[rest++] = (umf_dirty_range_t){.begin = end, .end = range.end};
        }
    }
    dirty_replace(dirty, first, last, left, rest);
    return true;
}

void umf_dirty_fini(umf_dirty_t *dirty) {
    umf_meta_free(dirty->ranges, dirty->room * sizeof(*dirty->ranges));
}
