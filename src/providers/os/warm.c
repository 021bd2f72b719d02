#include "providers/os/warm.h"

#include "base/meta.h"

#define TRIES 8u /* mappings looked at for one of a size */

typedef struct other_t {
    umf_list_t link;
    umf_os_mapping_t mapping;
} other_t;

void umf_os_warm_init(umf_os_warm_t *warm) {
    *warm = (umf_os_warm_t){.bytes = 0};
    umf_list_init(&warm->others);
}

void umf_os_warm_fini(umf_os_warm_t *warm) {
    umf_hash_fini(&warm->at);
}

bool umf_os_warm_has(const umf_os_warm_t *warm, uintptr_t base) {
    return warm->bytes && (warm->front.base == base || umf_hash_get(&warm->at, base) != NULL);
}

/* The front makes room for a later one. */
static bool front_join(umf_os_warm_t *warm) {
    other_t *other = umf_meta_alloc(sizeof(*other));
    if (!other) {
        return false;
    }
    other->mapping = warm->front;
    if (!umf_hash_put(&warm->at, other->mapping.base, other)) {
        umf_meta_free(other, sizeof(*other));
        return false;
    }
    umf_list_add(&warm->others, &other->link);
    return true;
}

bool umf_os_warm_put(umf_os_warm_t *warm, umf_os_mapping_t mapping) {
    if (umf_os_warm_has(warm, mapping.base) || (warm->front.base && !front_join(warm))) {
        return false;
    }
    warm->front = mapping;
    warm->bytes += mapping.size;
    return true;
}

static umf_os_mapping_t take_front(umf_os_warm_t *warm) {
    umf_os_mapping_t mapping = warm->front;
    warm->front.base = 0;
    warm->bytes -= mapping.size;
    return mapping;
}

static umf_os_mapping_t take_other(umf_os_warm_t *warm, other_t *other) {
    umf_os_mapping_t mapping = other->mapping;
    warm->bytes -= mapping.size;
    umf_hash_remove(&warm->at, mapping.base);
    umf_list_remove(&other->link);
    umf_meta_free(other, sizeof(*other));
    return mapping;
}

static bool fits(const umf_os_mapping_t *mapping, size_t size, size_t alignment) {
    return mapping->size == size && (!alignment || mapping->base % alignment == 0);
}

bool umf_os_warm_take(umf_os_warm_t *warm, size_t size, size_t alignment, uintptr_t *base) {
    if (warm->front.base && fits(&warm->front, size, alignment)) {
        *base = take_front(warm).base;
        return true;
    }
    uint32_t tries = 0;
    for (umf_list_t *link = warm->others.next; link != &warm->others && tries < TRIES;
         link = link->next, tries++) {
        other_t *other = UMF_CONTAINER_OF(link, other_t, link);
        if (fits(&other->mapping, size, alignment)) {
            *base = take_other(warm, other).base;
            return true;
        }
    }
    return false;
}

static other_t *oldest_other(const umf_os_warm_t *warm) {
    return umf_list_is_empty(&warm->others) ? NULL
                                            : UMF_CONTAINER_OF(warm->others.prev, other_t, link);
}

const umf_os_mapping_t *umf_os_warm_oldest(const umf_os_warm_t *warm) {
    const other_t *other = oldest_other(warm);
    const umf_os_mapping_t *front = warm->front.base ? &warm->front : NULL;
    return other ? &other->mapping : front;
}

umf_os_mapping_t umf_os_warm_take_oldest(umf_os_warm_t *warm) {
    other_t *other = oldest_other(warm);
    return other ? take_other(warm, other) : take_front(warm);
}
