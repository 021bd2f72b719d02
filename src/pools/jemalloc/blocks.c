/* Blocks that no bin serves: segments of the page cache, which counts them. */
#include "pools/jemalloc/jemalloc.h"

static void block_set_pages(umf_jemalloc_page_t *page, size_t bytes) {
    __atomic_store_n(&page->own, (uint32_t)(bytes >> UMF_PAGE_SHIFT), __ATOMIC_RELEASE);
}

static void *block_init(umf_jemalloc_pool_t *pool, void *ptr, size_t bytes) {
    const umf_pages_span_t *span = umf_pages_find(&pool->pages, ptr);
    block_set_pages(umf_jemalloc_page_of(span, (uintptr_t)ptr - span->base), bytes);
    return ptr;
}

/* The thread keeps a few free blocks of the usual sizes. Such a block has no state, and its page
 * record has no size, like that of a free segment. Blocks do not go to the depots, where they would
 * not merge with their neighbours. */
static void block_release(umf_jemalloc_pool_t *pool, void *ptr, size_t bytes) {
    uint32_t bin = umf_jemalloc_block_bin(bytes);
    if (bin && umf_magazine_keep(&pool->magazines, bin, (umf_item_t){.object = ptr})) {
        return;
    }
    umf_pages_count(&pool->pages, ptr, -1);
    umf_pages_put(&pool->pages, ptr, bytes);
    umf_pages_settle(&pool->pages);
    umf_magazines_decay(&pool->magazines);
}

typedef struct request_t {
    size_t bytes, alignment;
    void *ptr;
} request_t;

static bool take_block(void *self, void *request) {
    request_t *block = request;
    if (block->bytes >> UMF_PAGE_SHIFT > UINT32_MAX) { /* more than the record of a page can hold */
        umf_tracked_refuse(block->bytes, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        return false;
    }
    block->ptr =
        umf_pages_alloc(&((umf_jemalloc_pool_t *)self)->pages, block->bytes, block->alignment);
    return block->ptr != NULL;
}

static UMF_COLD void *block_alloc_slow(umf_jemalloc_pool_t *pool, size_t bytes, size_t alignment) {
    request_t block = {.bytes = bytes, .alignment = alignment};
    umf_tracked_forget_refusal();
    umf_jemalloc_release_some(pool, UMF_MAGAZINE_EXCEPT_NONE);
    return take_block(pool, &block) || umf_jemalloc_reclaim(pool, take_block, &block) ? block.ptr
                                                                                      : NULL;
}

void *umf_jemalloc_block_alloc(umf_jemalloc_pool_t *pool, size_t size, size_t alignment) {
    size_t bytes;
    void *ptr;
    if (!umf_round_up(size ? size : 1, UMF_PAGE_SIZE, &bytes)) {
        return umf_jemalloc_fail(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    uint32_t bin = alignment <= UMF_PAGE_SIZE ? umf_jemalloc_block_bin(bytes) : 0;
    if (bin && (ptr = umf_magazine_pop_kept(&pool->magazines, bin).object) != NULL) {
        return block_init(pool, ptr, bytes);
    }
    ptr = umf_pages_take(&pool->pages, bytes, alignment);
    if (!ptr && !(ptr = block_alloc_slow(pool, bytes, alignment))) {
        return umf_jemalloc_fail(umf_tracked_refusal());
    }
    umf_pages_count(&pool->pages, ptr, 1);
    return block_init(pool, ptr, bytes);
}

/* If several threads free the same block, the exchange lets one pass. */
bool umf_jemalloc_block_free(umf_jemalloc_pool_t *pool, void *ptr, umf_jemalloc_page_t *page) {
    uint32_t pages = 0;
    if ((uintptr_t)ptr % UMF_PAGE_SIZE == 0) {
        pages = __atomic_exchange_n(&page->own, 0, __ATOMIC_ACQ_REL);
    }
    if (pages) {
        block_release(pool, ptr, (size_t)pages << UMF_PAGE_SHIFT);
    }
    return pages > 0;
}

bool umf_jemalloc_block_grow(umf_jemalloc_pool_t *pool, void *ptr, umf_jemalloc_page_t *page,
                             size_t old, size_t size) {
    size_t bytes;
    if (!umf_round_up(size, UMF_PAGE_SIZE, &bytes) || bytes >> UMF_PAGE_SHIFT > UINT32_MAX ||
        umf_pages_extend(&pool->pages, ptr, old, bytes) != UMF_RESULT_SUCCESS) {
        return false;
    }
    block_set_pages(page, bytes);
    return true;
}

bool umf_jemalloc_block_shrink(umf_jemalloc_pool_t *pool, void *ptr, umf_jemalloc_page_t *page,
                               size_t old, size_t size) {
    size_t bytes = umf_align_up(size, UMF_PAGE_SIZE);
    if (umf_pages_split(&pool->pages, ptr, old, bytes) != UMF_RESULT_SUCCESS) {
        return false;
    }
    block_set_pages(page, bytes);
    umf_pages_put(&pool->pages, (char *)ptr + bytes, old - bytes);
    return true;
}
