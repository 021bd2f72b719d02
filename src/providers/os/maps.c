#include "providers/os/maps.h"

#include "base/meta.h"

/* A search visits at most so many mappings, so that its cost is bounded. */
#define TRIES 8u

typedef struct other_t {
    umf_list_t link;
    umf_os_mapping_t mapping;
} other_t;

void umf_os_maps_init(umf_os_maps_t *maps) {
    *maps = (umf_os_maps_t){.bytes = 0};
    umf_list_init(&maps->others);
}

void umf_os_maps_fini(umf_os_maps_t *maps) {
    umf_hash_fini(&maps->at);
}

bool umf_os_maps_join(umf_os_maps_t *maps) {
    other_t *other = umf_meta_alloc(sizeof(*other));
    if (!other) {
        return false;
    }
    other->mapping = maps->front;
    if (!umf_hash_put(&maps->at, other->mapping.base, other)) {
        umf_meta_free(other, sizeof(*other));
        return false;
    }
    umf_list_add(&maps->others, &other->link);
    return true;
}

static umf_os_mapping_t take_front(umf_os_maps_t *maps) {
    umf_os_mapping_t mapping = maps->front;
    maps->front.base = 0;
    maps->bytes -= mapping.size;
    return mapping;
}

static umf_os_mapping_t take_other(umf_os_maps_t *maps, other_t *other) {
    umf_os_mapping_t mapping = other->mapping;
    maps->bytes -= mapping.size;
    umf_hash_remove(&maps->at, mapping.base);
    umf_list_remove(&other->link);
    umf_meta_free(other, sizeof(*other));
    return mapping;
}

bool umf_os_maps_take_other(umf_os_maps_t *maps, size_t size, size_t alignment, uintptr_t *base) {
    uint32_t tries = 0;
    for (umf_list_t *link = maps->others.next; link != &maps->others && tries < TRIES;
         link = link->next, tries++) {
        other_t *other = UMF_CONTAINER_OF(link, other_t, link);
        if (umf_os_mapping_fits(&other->mapping, size, alignment)) {
            *base = take_other(maps, other).base;
            return true;
        }
    }
    return false;
}

static other_t *oldest_other(const umf_os_maps_t *maps) {
    return umf_list_is_empty(&maps->others) ? NULL
                                            : UMF_CONTAINER_OF(maps->others.prev, other_t, link);
}

const umf_os_mapping_t *umf_os_maps_oldest(const umf_os_maps_t *maps) {
    const other_t *other = oldest_other(maps);
    const umf_os_mapping_t *front = maps->front.base ? &maps->front : NULL;
    /* The front is newer than all others. */
    return other ? &other->mapping : front;
}

umf_os_mapping_t umf_os_maps_take_oldest(umf_os_maps_t *maps) {
    other_t *other = oldest_other(maps);
    return other ? take_other(maps, other) : take_front(maps);
}
