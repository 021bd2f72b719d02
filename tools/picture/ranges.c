/* Ranges of addresses of a pool, sorted and apart from each other. */
#include <string.h>

#include "parts.h"

#define NEAR ((uint64_t)2 << 20) /* allocations so near belong together */

/* The index of the first range that ends after `address`. */
static size_t first_behind(const picture_ranges_t *ranges, uint64_t address) {
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const picture_range_t *range = &ranges->list[middle];
        if (range->base + range->size <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool contains(const picture_range_t *range, uint64_t address) {
    return address >= range->base && address - range->base < range->size;
}

picture_range_t *picture_ranges_find(picture_ranges_t *ranges, uint64_t address) {
    if (ranges->last < ranges->count && contains(&ranges->list[ranges->last], address)) {
        return &ranges->list[ranges->last];
    }
    size_t at = first_behind(ranges, address);
    if (at == ranges->count || !contains(&ranges->list[at], address)) {
        return NULL;
    }
    ranges->last = at;
    return &ranges->list[at];
}

static bool has_room(picture_t *picture, picture_ranges_t *ranges) {
    if (ranges->count < ranges->room) {
        return true;
    }
    size_t room = ranges->room ? 2 * ranges->room : 64;
    picture_range_t *list =
        room <= PICTURE_RANGES ? picture_take(picture, room, sizeof(*list)) : NULL;
    if (!list) {
        return false;
    }
    if (ranges->count > 0) {
        memcpy(list, ranges->list, ranges->count * sizeof(*list));
    }
    ranges->list = list;
    ranges->room = room;
    return true;
}

static uint64_t end_of(const picture_range_t *range) {
    return range->base + range->size;
}

/* Does it cover the address, or end there and join what begins there? */
static bool reaches(const picture_range_t *range, uint64_t address, bool joins) {
    return address < end_of(range) || (joins && address == end_of(range));
}

/* Makes one of a range and those after it that it reaches. */
static void merge(picture_ranges_t *ranges, size_t at, bool joins) {
    picture_range_t *range = &ranges->list[at];
    size_t next = at + 1;
    while (next < ranges->count && reaches(range, ranges->list[next].base, joins)) {
        uint64_t end = end_of(&ranges->list[next]);
        range->size = end > end_of(range) ? end - range->base : range->size;
        range->is_span &= ranges->list[next].is_span;
        next++;
    }
    memmove(&ranges->list[at + 1], &ranges->list[next],
            (ranges->count - next) * sizeof(*ranges->list));
    ranges->count -= next - at - 1;
}

/* The end of the addresses is no address. */
static picture_range_t within_addresses(picture_range_t range) {
    uint64_t most = UINT64_MAX - range.base;
    range.size = range.size > most ? most : range.size;
    return range;
}

void picture_ranges_add(picture_t *picture, picture_ranges_t *ranges, picture_range_t range) {
    range = within_addresses(range);
    if (range.size == 0) {
        return;
    }
    size_t at = first_behind(ranges, range.base);
    if (at > 0 && reaches(&ranges->list[at - 1], range.base, range.joins)) {
        at--;
    }
    if (at < ranges->count && reaches(&range, ranges->list[at].base, range.joins)) {
        picture_range_t *old = &ranges->list[at];
        uint64_t end = end_of(old) > end_of(&range) ? end_of(old) : end_of(&range);
        old->base = old->base < range.base ? old->base : range.base;
        old->size = end - old->base;
        old->is_span &= range.is_span;
        merge(ranges, at, range.joins);
    } else if (has_room(picture, ranges)) {
        memmove(&ranges->list[at + 1], &ranges->list[at],
                (ranges->count - at) * sizeof(*ranges->list));
        ranges->list[at] = range;
        ranges->count++;
    } else {
        ranges->left++;
        ranges->left_bytes += range.size;
    }
}

void picture_ranges_see(picture_t *picture, picture_ranges_t *ranges, uint64_t address,
                        uint64_t size) {
    picture_range_t seen = within_addresses((picture_range_t){.base = address, .size = size});
    if (picture_ranges_find(ranges, address)) {
        return;
    }
    size_t at = first_behind(ranges, address);
    if (at > 0 && !ranges->list[at - 1].is_span && address - end_of(&ranges->list[at - 1]) < NEAR) {
        seen.base = end_of(&ranges->list[at - 1]) - 1;
        seen.size += address - seen.base;
    } else if (at < ranges->count && !ranges->list[at].is_span &&
               ranges->list[at].base > end_of(&seen) &&
               ranges->list[at].base - end_of(&seen) < NEAR) {
        seen.size = ranges->list[at].base - seen.base + 1;
    }
    picture_ranges_add(picture, ranges, seen);
}
