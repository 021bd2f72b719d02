/*
 * The spans of a pool, cut into cells of one size. A cell gets its bytes at the ends of a block;
 * wholly covered cells in between are counted by their differences, so that a block of any size
 * costs the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

static int larger(const void *a, const void *b) {
    const picture_range_t *x = *(picture_range_t *const *)a, *y = *(picture_range_t *const *)b;
    if (x->size != y->size) {
        return x->size < y->size ? 1 : -1;
    }
    return x->base < y->base ? -1 : x->base > y->base;
}

/* Marks the largest ranges as drawn; says how many. */
static size_t choose(picture_t *picture, picture_ranges_t *ranges) {
    picture_range_t **sorted = picture_take(picture, ranges->count, sizeof(*sorted));
    if (!sorted) {
        return 0;
    }
    for (size_t i = 0; i < ranges->count; i++) {
        sorted[i] = &ranges->list[i];
    }
    qsort(sorted, ranges->count, sizeof(*sorted), larger);
    size_t count = ranges->count < PICTURE_SPANS ? ranges->count : PICTURE_SPANS;
    for (size_t i = 0; i < ranges->count; i++) {
        sorted[i]->cells = i < count;
        ranges->left += i >= count;
        ranges->left_bytes += i >= count ? sorted[i]->size : 0;
    }
    return count;
}

static uint64_t cells_of(const picture_range_t *range, uint64_t cell) {
    return range->cells ? range->size / cell + (range->size % cell != 0) : 0;
}

static uint64_t sum(const picture_ranges_t *ranges, uint64_t cell) {
    uint64_t cells = 0;
    for (size_t i = 0; i < ranges->count && cells <= PICTURE_CELLS; i++) {
        uint64_t more = cells_of(&ranges->list[i], cell);
        cells += more > PICTURE_CELLS ? PICTURE_CELLS + 1 : more;
    }
    return cells;
}

static void number(picture_map_t *map, picture_ranges_t *ranges) {
    for (size_t i = 0; i < ranges->count; i++) {
        ranges->list[i].first = map->cells;
        ranges->list[i].cells = (uint32_t)cells_of(&ranges->list[i], map->cell);
        map->cells += ranges->list[i].cells;
    }
}

picture_map_t *picture_map_make(picture_t *picture, uint32_t object) {
    picture_ranges_t *ranges = &picture->objects[object].ranges;
    picture_map_t *map = picture_take(picture, 1, sizeof(*map));
    if (!map || choose(picture, ranges) == 0) {
        return NULL;
    }
    map->object = object;
    map->cell = 64;
    while (sum(ranges, map->cell) > PICTURE_CELLS) {
        map->cell *= 2;
    }
    number(map, ranges);
    map->part = picture_take(picture, map->cells, sizeof(*map->part));
    map->full = picture_take(picture, map->cells + 1, sizeof(*map->full));
    return map->part && map->full ? map : NULL;
}

void picture_cells_clear(picture_map_t *map) {
    memset(map->part, 0, map->cells * sizeof(*map->part));
    memset(map->full, 0, (map->cells + 1) * sizeof(*map->full));
}

void picture_cells_add(picture_map_t *map, const picture_range_t *range, uint64_t address,
                       uint64_t size, bool is_more) {
    uint64_t from = address - range->base, sign = is_more ? 1 : UINT64_MAX;
    uint64_t to = size < range->size - from ? from + size : range->size;
    if (range->cells == 0 || to == from) {
        return;
    }
    uint64_t first = from / map->cell, last = (to - 1) / map->cell;
    if (first == last) {
        map->part[range->first + first] += sign * (to - from);
        return;
    }
    map->part[range->first + first] += sign * ((first + 1) * map->cell - from);
    map->part[range->first + last] += sign * (to - last * map->cell);
    map->full[range->first + first + 1] += sign;
    map->full[range->first + last] -= sign;
}

/* 0 and 15 are for cells that are empty and full, to the byte. */
static unsigned level(uint64_t used, uint64_t cell) {
    if (used == 0 || used >= cell) {
        return used ? 15 : 0;
    }
    unsigned shade = (unsigned)((double)used / (double)cell * 15 + 0.5);
    return shade < 1 ? 1 : shade > 14 ? 14 : shade;
}

/* A letter and how often it comes; returns the bytes written. */
static size_t put(char *text, unsigned shade, uint32_t count) {
    text[0] = (char)('a' + shade);
    return count > 1 ? 1 + (size_t)sprintf(text + 1, "%u", count) : 1;
}

static size_t levels_of(char *text, const picture_ranges_t *ranges, const picture_map_t *map) {
    uint64_t covered = 0;
    unsigned before = 0;
    uint32_t same = 0;
    size_t size = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        const picture_range_t *range = &ranges->list[i];
        for (uint32_t cell = 0; cell < range->cells; cell++) {
            uint64_t bytes = range->size - cell * map->cell;
            bytes = bytes < map->cell ? bytes : map->cell;
            covered += map->full[range->first + cell];
            unsigned shade = level(map->part[range->first + cell] + covered * map->cell, bytes);
            if (shade != before && same > 0) {
                size += put(text + size, before, same);
                same = 0;
            }
            before = shade;
            same++;
        }
    }
    return size + (same > 0 ? put(text + size, before, same) : 0);
}

const char *picture_cells_levels(picture_t *picture, const picture_map_t *map) {
    const picture_ranges_t *ranges = &picture->objects[map->object].ranges;
    char *text = malloc(2 * (size_t)map->cells + 16);
    size_t size = text ? levels_of(text, ranges, map) : 0;
    char *kept = text ? picture_take(picture, size + 1, 1) : NULL;
    if (kept) {
        memcpy(kept, text, size);
    }
    free(text);
    picture->has_failed |= !kept;
    return kept;
}
