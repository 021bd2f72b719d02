#include "slab_shim.h"

#include "system/annotate.h"

#include <stdlib.h>

#include "pools/disjoint/slab.h"

struct shim_bin_t {
    umf_slab_owner_t owner;
    umf_quota_t limits;
    umf_bin_t *bin;
};

shim_bin_t *shim_bin_create(umf_memory_provider_handle_t provider, size_t size, size_t slab_size,
                            size_t max_kept, size_t limit) {
    shim_bin_t *bin = calloc(1, sizeof(*bin));
    if (umf_tracked_acquire(provider, &bin->owner.tracked) != UMF_RESULT_SUCCESS) {
        free(bin);
        return NULL;
    }
    bin->limits.max = limit;
    bin->owner.limits = limit == SIZE_MAX ? NULL : &bin->limits;
    bin->bin = umf_bin_create(&bin->owner, 0, size, slab_size, 0, 0, max_kept);
    return bin;
}

void shim_bin_destroy(shim_bin_t *bin) {
    umf_bin_destroy(bin->bin);
    umf_tracked_release(bin->owner.tracked);
    free(bin);
}

size_t shim_take(shim_bin_t *bin, void **chunks, size_t n) {
    umf_item_t *items = calloc(n + 1, sizeof(*items));
    size_t taken = umf_bin_take(bin->bin, items, n);
    for (size_t i = 0; i < taken; i++) {
        chunks[i] = items[i].object;
        UMF_UNPOISON(chunks[i], bin->bin->size);
    }
    free(items);
    return taken;
}

void shim_put(shim_bin_t *bin, void **chunks, size_t n) {
    umf_item_t *items = calloc(n + 1, sizeof(*items));
    for (size_t i = 0; i < n; i++) {
        items[i].object = chunks[i];
    }
    umf_bin_put(bin->bin, items, n);
    free(items);
}

static umf_slab_t *slab_of(shim_bin_t *bin, void *ptr) {
    return umf_tracked_find(bin->owner.tracked, ptr)->cookie;
}

umf_result_t shim_put_ptr(shim_bin_t *bin, void *chunk, void *ptr) {
    return umf_slab_put_ptr(slab_of(bin, chunk), (uintptr_t)ptr);
}

umf_result_t shim_usable_size(shim_bin_t *bin, void *chunk, void *ptr, size_t *size) {
    return umf_slab_usable_size(slab_of(bin, chunk), (uintptr_t)ptr, size);
}

umf_result_t shim_set_offset(shim_bin_t *bin, void *ptr) {
    return umf_slab_set_offset(slab_of(bin, ptr), (uintptr_t)ptr);
}

size_t shim_trim(shim_bin_t *bin, size_t keep) {
    umf_bin_trim(bin->bin, &keep);
    return keep;
}

bool shim_purge(shim_bin_t *bin, size_t page_size) {
    return umf_bin_purge(bin->bin, page_size);
}

bool shim_decay(shim_bin_t *bin, size_t page_size, bool is_new, size_t *left) {
    return umf_bin_decay(bin->bin, page_size, is_new, left);
}

size_t shim_slabs(shim_bin_t *bin) {
    return bin->bin->slabs;
}
size_t shim_used(shim_bin_t *bin) {
    return bin->bin->used;
}
size_t shim_empty(shim_bin_t *bin) {
    return bin->bin->empty_count;
}
size_t shim_kept(shim_bin_t *bin) {
    return bin->limits.used;
}
