#include "pools/disjoint/layout.h"

#include "base/meta.h"

#define MAX_CACHED_SIZE ((size_t)32 * 1024) /* larger chunks are not worth caching per thread */
/* A thread caches so many bytes of each size, but at least so many chunks. */
#define CACHED_BYTES ((size_t)64 * 1024)
#define CACHED_CHUNKS_MIN 4
/* Larger slabs are not reserved. */
#define MAX_RESERVED_SIZE ((size_t)2 << 20)

typedef umf_disjoint_layout_t layout_t;

static size_t class_max(uint32_t class) {
    uint32_t bit = class / 2;
    size_t low = (size_t)1 << bit, half = low / 2;
    return low + (class % 2 ? 2 * half : half);
}

static void add_bin(layout_t *layout, size_t size) {
    size = umf_align_up(size, layout->request.min_bucket_size);
    if (size < UMF_DISJOINT_MAX_BIN_SIZE &&
        (layout->bins == 0 || size > layout->sizes[layout->bins - 1])) {
        layout->sizes[layout->bins++] = size;
    }
}

static void make_sizes(layout_t *layout) {
    size_t start = layout->request.min_bucket_size;
    start = start < 8 ? 8 : start > UMF_DISJOINT_MAX_BIN_SIZE ? UMF_DISJOINT_MAX_BIN_SIZE : start;
    for (size_t size = start; size < UMF_DISJOINT_MAX_BIN_SIZE; size *= 2) {
        add_bin(layout, size);
        add_bin(layout, size + size / 2);
    }
    layout->sizes[layout->bins++] = UMF_DISJOINT_MAX_BIN_SIZE;
    uint32_t bin = 0;
    for (uint32_t class = 2; class_max(class) <= UMF_DISJOINT_MAX_BIN_SIZE; class ++) {
        while (layout->sizes[bin] < class_max(class)) {
            bin++;
        }
        layout->bin_by_class[class] = (uint8_t)bin;
    }
}

/* A slab of a single chunk is not cached, because that would hide the slab from its limits. Slabs
 * of more than 4 GiB are not cached either, because umf_magic_divides cannot check frees in them.
 */
static bool is_cached(const layout_t *layout, size_t size) {
    return !layout->request.is_exact && layout->request.slab_min_size <= UINT32_MAX &&
           size <= MAX_CACHED_SIZE && umf_disjoint_is_chunked(layout, size) &&
           size <= layout->request.max_poolable_size;
}

static void choose_cached(layout_t *layout) {
    uint32_t bin = 0;
    for (; bin < layout->bins && is_cached(layout, layout->sizes[bin]); bin++) {
        layout->capacity[bin] =
            umf_magazine_capacity(CACHED_BYTES, layout->sizes[bin], CACHED_CHUNKS_MIN);
        layout->slabs[bin + 1] = (umf_magazine_slab_t){
            .magic = umf_magic(umf_disjoint_stride(layout->sizes[bin])),
            .mask = layout->request.slab_min_size - 1,
            .size = layout->sizes[bin],
        };
    }
    layout->cached_bins = bin;
    layout->cached_max = bin ? layout->sizes[bin - 1] : 0;
}

static bool may_be_reserved(const layout_t *layout, size_t size) {
    return !layout->request.is_exact && layout->request.slab_min_size <= MAX_RESERVED_SIZE &&
           size <= MAX_RESERVED_SIZE;
}

static void choose_reserved(layout_t *layout) {
    uint32_t bin = 0;
    for (; bin < layout->bins && may_be_reserved(layout, layout->sizes[bin]); bin++) {
        if (bin >= layout->cached_bins) {
            layout->capacity[bin] = umf_magazine_capacity_large(layout->sizes[bin]);
        }
    }
    layout->reserved_bins = bin;
}

/* Objects of smaller bins are not aligned to 8 bytes, which the core's callers expect. */
static void make_small_table(layout_t *layout) {
    if (layout->request.min_bucket_size < 8 || layout->cached_max < UMF_SMALL_MAX) {
        return;
    }
    size_t bin = 0;
    for (size_t size = 1; size <= UMF_SMALL_MAX; size++) {
        bin += layout->sizes[bin] < size;
        layout->small.magazine[size] = umf_magazine_offset(bin);
    }
}

/* `layout` must be zeroed. */
static void layout_make(layout_t *layout, const umf_disjoint_request_t *request) {
    layout->request = *request;
    make_sizes(layout);
    choose_cached(layout);
    choose_reserved(layout);
    make_small_table(layout);
}

/* --- the shared layout --- */

/* To make a layout takes 17,700 instructions, five times as many as all else of a pool. */
static layout_t shared; /* Sync: shared_lock; Immutable once it has bins */
UMF_LOCK_STATIC(shared_lock, UMF_RANK_BIN);

static bool is_same(const umf_disjoint_request_t *a, const umf_disjoint_request_t *b) {
    return a->min_bucket_size == b->min_bucket_size && a->slab_min_size == b->slab_min_size &&
           a->max_poolable_size == b->max_poolable_size && a->is_exact == b->is_exact;
}

const layout_t *umf_disjoint_layout_get(const umf_disjoint_request_t *request) {
    umf_lock(&shared_lock);
    if (shared.bins == 0) {
        layout_make(&shared, request);
    }
    bool is_shared = is_same(&shared.request, request);
    umf_unlock(&shared_lock);
    if (is_shared) {
        return &shared;
    }
    layout_t *layout = umf_meta_alloc(sizeof(*layout));
    if (layout) {
        layout_make(layout, request);
    }
    return layout;
}

void umf_disjoint_layout_put(const layout_t *layout) {
    if (layout != &shared) {
        umf_meta_free((layout_t *)(uintptr_t)layout, sizeof(*layout));
    }
}
