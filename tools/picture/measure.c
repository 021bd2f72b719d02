/* The first way through the events: which pools and places are the largest, and the addresses of
 * memory.
 */
#include <stdlib.h>

#include "parts.h"

static void see(picture_t *picture, const umf_reader_live_t *what, bool is_more) {
    if (is_more && picture->info->kind == UMF_RECORD_FILE_RECORDING) {
        picture_ranges_see(picture, &picture->objects[what->object].ranges, what->address,
                           what->size);
    }
}

/* Before the first allocation in it. */
static void before(picture_t *picture, const umf_reader_event_t *event) {
    picture_object_t *object = &picture->objects[event->object];
    picture->kinds[event->kind]++;
    object->has_pages |= event->kind >= UMF_RECORD_PAGE_CREATE;
    object->has_sums |= event->kind == UMF_RECORD_PAGES;
    if (event->kind == UMF_RECORD_PROVIDER_ALLOC &&
        umf_reader_object(picture->reader, event->object)->kind == UMF_RECORD_OBJECT_POOL) {
        picture_ranges_add(picture, &object->ranges,
                           (picture_range_t){.base = event->address,
                                             .size = event->size,
                                             .is_span = true,
                                             .joins = object->has_pages});
    }
    picture->refused +=
        event->kind == UMF_RECORD_REFUSED ||
        (event->kind == UMF_RECORD_PROVIDER_REFUSED &&
         umf_reader_object(picture->reader, event->object)->kind == UMF_RECORD_OBJECT_PROVIDER);
}

static void end(picture_t *picture, umf_reader_replay_t *replay) {
    picture->total = *umf_reader_replay_total(replay);
}

typedef struct rank_t {
    uint64_t value;
    uint32_t index;
} rank_t;

/* The largest first, of equal ones the first. */
static int compare(const void *a, const void *b) {
    const rank_t *x = a, *y = b;
    if (x->value != y->value) {
        return x->value < y->value ? 1 : -1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

static void choose_pools(picture_t *picture) {
    uint32_t count = picture->info->object_count;
    rank_t *ranks = picture_take(picture, count, sizeof(*ranks));
    for (uint32_t i = 0; ranks && i < count; i++) {
        const picture_object_t *object = &picture->objects[i];
        ranks[i].value =
            object->peak_live > object->peak_held ? object->peak_live : object->peak_held;
        ranks[i].index = i;
    }
    if (!ranks) {
        return;
    }
    qsort(ranks, count, sizeof(*ranks), compare);
    for (uint32_t i = 0; i < count && i < PICTURE_POOLS && ranks[i].value > 0; i++) {
        picture->pools[picture->pool_count++] = ranks[i].index;
    }
    for (uint32_t i = 0; i < count; i++) {
        picture->objects[ranks[i].index].slot = i < picture->pool_count ? i : picture->pool_count;
    }
}

/* Gives slots to sites in the order of `ranks` until `most` have one. */
static void give_slots(picture_t *picture, const rank_t *ranks, uint32_t most) {
    for (uint32_t i = 0; i < picture->site_count && picture->slot_count < most; i++) {
        picture_site_t *site = &picture->sites[ranks[i].index];
        if (site->slot == UINT32_MAX && ranks[i].value > 0) {
            site->slot = picture->slot_count;
            picture->site_of[picture->slot_count++] = ranks[i].index;
        }
    }
}

static void choose_sites(picture_t *picture) {
    uint32_t count = picture->site_count;
    rank_t *ranks = picture_take(picture, count, sizeof(*ranks));
    if (!ranks) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        picture->sites[i].slot = UINT32_MAX;
        ranks[i] = (rank_t){picture->sites[i].peak_bytes, i};
    }
    qsort(ranks, count, sizeof(*ranks), compare);
    give_slots(picture, ranks, PICTURE_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        ranks[i] = (rank_t){picture->sites[i].peak_count, i};
    }
    qsort(ranks, count, sizeof(*ranks), compare);
    give_slots(picture, ranks, PICTURE_SITES);
    for (uint32_t i = 0; i < count; i++) {
        picture_site_t *site = &picture->sites[i];
        site->slot = site->slot == UINT32_MAX ? picture->slot_count : site->slot;
    }
}

bool picture_measure(picture_t *picture) {
    const picture_visitor_t visitor = {.before = before, .changed = see, .end = end};
    if (!picture_visit(picture, &visitor)) {
        return false;
    }
    choose_pools(picture);
    choose_sites(picture);
    return true;
}
