#include "providers/os/dirty.h"

#include "base/meta.h"

/* A search visits at most so many mappings, so that its cost is bounded. */
#define TRIES 8u

typedef struct other_t {
    umf_list_t link;
    umf_os_mapping_t mapping;
} other_t;

void umf_os_dirty_init(umf_os_dirty_t *dirty) {
    *dirty = (umf_os_dirty_t){.bytes = 0};
    umf_list_init(&dirty->others);
}

void umf_os_dirty_fini(umf_os_dirty_t *dirty) {
    umf_hash_fini(&dirty->at);
}

bool umf_os_dirty_has(const umf_os_dirty_t *dirty, uintptr_t base) {
    return dirty->bytes && (dirty->front.base == base || umf_hash_get(&dirty->at, base) != NULL);
}

/* Moves the front mapping to the others, to make room for a newer one. */
static bool front_join(umf_os_dirty_t *dirty) {
    other_t *other = umf_meta_alloc(sizeof(*other));
    if (!other) {
        return false;
    }
    other->mapping = dirty->front;
    if (!umf_hash_put(&dirty->at, other->mapping.base, other)) {
        umf_meta_free(other, sizeof(*other));
        return false;
    }
    umf_list_add(&dirty->others, &other->link);
    return true;
}

bool umf_os_dirty_put(umf_os_dirty_t *dirty, umf_os_mapping_t mapping) {
    if (umf_os_dirty_has(dirty, mapping.base) || (dirty->front.base && !front_join(dirty))) {
        return false;
    }
    dirty->front = mapping;
    dirty->bytes += mapping.size;
    return true;
}

static umf_os_mapping_t take_front(umf_os_dirty_t *dirty) {
    umf_os_mapping_t mapping = dirty->front;
    dirty->front.base = 0;
    dirty->bytes -= mapping.size;
    return mapping;
}

static umf_os_mapping_t take_other(umf_os_dirty_t *dirty, other_t *other) {
    umf_os_mapping_t mapping = other->mapping;
    dirty->bytes -= mapping.size;
    umf_hash_remove(&dirty->at, mapping.base);
    umf_list_remove(&other->link);
    umf_meta_free(other, sizeof(*other));
    return mapping;
}

static bool fits(const umf_os_mapping_t *mapping, size_t size, size_t alignment) {
    return mapping->size == size && (!alignment || mapping->base % alignment == 0);
}

bool umf_os_dirty_take(umf_os_dirty_t *dirty, size_t size, size_t alignment, uintptr_t *base) {
    /* The front needs neither hash nor list: a pool that frees and allocates one
     * size stays here. */
    if (dirty->front.base && fits(&dirty->front, size, alignment)) {
        *base = take_front(dirty).base;
        return true;
    }
    uint32_t tries = 0;
    for (umf_list_t *link = dirty->others.next; link != &dirty->others && tries < TRIES;
         link = link->next, tries++) {
        other_t *other = UMF_CONTAINER_OF(link, other_t, link);
        if (fits(&other->mapping, size, alignment)) {
            *base = take_other(dirty, other).base;
            return true;
        }
    }
    return false;
}

static other_t *oldest_other(const umf_os_dirty_t *dirty) {
    return umf_list_is_empty(&dirty->others) ? NULL
                                             : UMF_CONTAINER_OF(dirty->others.prev, other_t, link);
}

const umf_os_mapping_t *umf_os_dirty_oldest(const umf_os_dirty_t *dirty) {
    const other_t *other = oldest_other(dirty);
    const umf_os_mapping_t *front = dirty->front.base ? &dirty->front : NULL;
    /* The front is newer than all others. */
    return other ? &other->mapping : front;
}

umf_os_mapping_t umf_os_dirty_take_oldest(umf_os_dirty_t *dirty) {
    other_t *other = oldest_other(dirty);
    return other ? take_other(dirty, other) : take_front(dirty);
}
