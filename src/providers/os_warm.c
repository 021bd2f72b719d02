#include "providers/os_warm.h"

#include "base/meta.h"

#define TRIES 8u /* mappings looked at for one of a size */

typedef struct warm_t {
    umf_list_t link;
    uintptr_t base;
    size_t size;
    uint32_t look;
} warm_t;

void umf_os_warm_init(umf_os_warm_t *warm) {
    *warm = (umf_os_warm_t){.bytes = 0};
    umf_list_init(&warm->all);
}

void umf_os_warm_fini(umf_os_warm_t *warm) {
    umf_hash_fini(&warm->at);
}

bool umf_os_warm_has(const umf_os_warm_t *warm, uintptr_t base) {
    return warm->bytes && umf_hash_get(&warm->at, base) != NULL;
}

bool umf_os_warm_put(umf_os_warm_t *warm, uintptr_t base, size_t size, uint32_t look) {
    warm_t *one = umf_os_warm_has(warm, base) ? NULL : umf_meta_alloc(sizeof(*one));
    if (!one) {
        return false;
    }
    *one = (warm_t){.base = base, .size = size, .look = look};
    if (!umf_hash_put(&warm->at, base, one)) {
        umf_meta_free(one, sizeof(*one));
        return false;
    }
    umf_list_add(&warm->all, &one->link);
    warm->bytes += size;
    return true;
}

static void take(umf_os_warm_t *warm, warm_t *one) {
    warm->bytes -= one->size;
    umf_hash_remove(&warm->at, one->base);
    umf_list_remove(&one->link);
    umf_meta_free(one, sizeof(*one));
}

bool umf_os_warm_take(umf_os_warm_t *warm, size_t size, size_t alignment, uintptr_t *base) {
    uint32_t tries = 0;
    for (umf_list_t *link = warm->all.next; link != &warm->all && tries < TRIES;
         link = link->next, tries++) {
        warm_t *one = UMF_CONTAINER_OF(link, warm_t, link);
        if (one->size == size && (!alignment || one->base % alignment == 0)) {
            *base = one->base;
            take(warm, one);
            return true;
        }
    }
    return false;
}

bool umf_os_warm_take_oldest(umf_os_warm_t *warm, uint32_t look, uint32_t age, uintptr_t *base,
                             size_t *size) {
    warm_t *oldest = UMF_CONTAINER_OF(warm->all.prev, warm_t, link);
    if (umf_list_is_empty(&warm->all) || look - oldest->look < age) {
        return false;
    }
    *base = oldest->base;
    *size = oldest->size;
    take(warm, oldest);
    return true;
}
