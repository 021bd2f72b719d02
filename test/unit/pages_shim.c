#include "pages_shim.h"

#include "base/meta.h"
#include "pools/jemalloc/pages_shards.h"

struct shim_pages_t {
    umf_pages_t pages;
    umf_tracked_provider_t *tracked;
};

shim_pages_t *shim_pages_create(umf_memory_provider_handle_t provider, size_t granule) {
    shim_pages_t *shim = umf_meta_alloc(sizeof(*shim));
    if (!shim || umf_tracked_acquire(provider, &shim->tracked) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    umf_pages_init(&shim->pages, shim->tracked, granule, sizeof(uint64_t), NULL);
    return shim;
}

umf_result_t shim_pages_destroy(shim_pages_t *shim) {
    umf_result_t result = umf_pages_fini(&shim->pages);
    umf_tracked_release(shim->tracked);
    umf_meta_free(shim, sizeof(*shim));
    return result;
}

void *shim_take(shim_pages_t *shim, size_t size, size_t alignment) {
    return umf_pages_take(&shim->pages, size, alignment);
}

void *shim_alloc(shim_pages_t *shim, size_t size, size_t alignment) {
    return umf_pages_alloc(&shim->pages, size, alignment);
}

umf_result_t shim_grow(shim_pages_t *shim, size_t size, size_t alignment) {
    return umf_pages_grow(&shim->pages, size, alignment);
}

void shim_put(shim_pages_t *shim, void *ptr, size_t size) {
    umf_pages_put(&shim->pages, ptr, size);
}

umf_result_t shim_split(shim_pages_t *shim, void *ptr, size_t total, size_t first) {
    return umf_pages_split(&shim->pages, ptr, total, first);
}

void shim_settle(shim_pages_t *shim) {
    umf_pages_settle(&shim->pages);
}

void shim_trim(shim_pages_t *shim) {
    umf_pages_trim(&shim->pages);
}

bool shim_decay(shim_pages_t *shim) {
    return umf_pages_decay(&shim->pages, true);
}

size_t shim_total(shim_pages_t *shim) {
    return umf_pages_total(&shim->pages);
}

size_t shim_used(shim_pages_t *shim) {
    return umf_pages_used(&shim->pages);
}

size_t shim_shards(shim_pages_t *shim) {
    return umf_pages_shard_count(&shim->pages);
}

size_t shim_shard_of(shim_pages_t *shim, const void *ptr) {
    size_t index = 0;
    while (shim->pages.shards[index] != umf_pages_shard_of(&shim->pages, ptr)) {
        index++;
    }
    return index;
}

void shim_hold(shim_pages_t *shim) {
    umf_lock(&shim->pages.first.lock);
    __atomic_store_n(&shim->pages.first.is_taking, true, __ATOMIC_RELAXED);
}

void shim_let_go(shim_pages_t *shim) {
    __atomic_store_n(&shim->pages.first.is_taking, false, __ATOMIC_RELAXED);
    umf_unlock(&shim->pages.first.lock);
}

bool shim_is_awaited(shim_pages_t *shim) {
    return __atomic_load_n(&shim->pages.first.lock.state, __ATOMIC_RELAXED) == UMF_LOCK_AWAITED;
}

uint64_t *shim_record(shim_pages_t *shim, const void *ptr) {
    const umf_pages_span_t *span = umf_pages_find(&shim->pages, ptr);
    size_t page = span ? ((uintptr_t)ptr - span->base) >> UMF_PAGE_SHIFT : 0;
    return span ? (uint64_t *)(uintptr_t)span->records + page : NULL;
}
