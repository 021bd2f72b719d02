/*
 * Blocks that no bin serves. Most come from oneTBB. Those that are so large that oneTBB would pass
 * each request on to the provider are direct blocks: each is a span.
 */
#include "pools/scalable/scalable.h"
#include "pools/shared/settings.h"

/* Sizes and alignments up to this limit cannot overflow when oneTBB adds to them and rounds up. */
#define SIZE_LIMIT ((size_t)1 << 57)

/* oneTBB keeps no free blocks of this size or more, header included. */
#define DIRECT_SMALLEST ((size_t)64 << 20)

/* --- direct blocks --- */

typedef struct direct_t {
    size_t size;
    void *ptr;
} direct_t;

static bool take_direct(void *self, void *request) {
    umf_scalable_pool_t *pool = self;
    direct_t *direct = request;
    direct->ptr =
        umf_scalable_span_take(pool, direct->size, &umf_scalable_direct_live.record,
                               !atomic_load_explicit(&pool->has_written, memory_order_relaxed));
    return direct->ptr != NULL;
}

static bool has_direct(const umf_scalable_pool_t *pool, size_t size, size_t alignment) {
    return size >= DIRECT_SMALLEST && size >= pool->granularity && alignment == 0 &&
           !umf_scalable_keeps_all(pool);
}

static void *direct_alloc(umf_scalable_pool_t *pool, size_t size) {
    direct_t direct = {.size = umf_scalable_in_granules(pool, size)};
    if (!umf_scalable_try(pool, take_direct, &direct)) {
        return NULL;
    }
    atomic_fetch_add_explicit(&pool->direct_count, 1, memory_order_relaxed);
    return direct.ptr;
}

/* Claims the direct block that begins at `ptr`. If several threads free it, the exchange lets one
 * pass. */
static bool direct_claim(const umf_scalable_pool_t *pool, umf_span_t *span, const void *ptr) {
    const umf_span_set_t *set = umf_tracked_spans(pool->tracked);
    if (!umf_span_is_at(set, span, (uintptr_t)ptr) ||
        !umf_scalable_direct_change(span, &umf_scalable_direct_live, &umf_scalable_direct_freed)) {
        return false;
    }
    bool is_it = umf_span_is_at(set, span, (uintptr_t)ptr);
    if (umf_unlikely(!is_it)) {
        /* The descriptor was reused for another block between the check and the exchange. */
        umf_scalable_direct_change(span, &umf_scalable_direct_freed, &umf_scalable_direct_live);
    }
    return is_it;
}

static void direct_free(umf_scalable_pool_t *pool, umf_span_t *span) {
    atomic_fetch_sub_explicit(&pool->direct_count, 1, memory_order_relaxed);
    umf_scalable_span_give(pool, span);
}

/* --- all blocks --- */

static void *below_alloc(umf_scalable_pool_t *pool, size_t size, size_t alignment) {
    umf_item_t block;
    if (umf_scalable_take(pool, UMF_SCALABLE_BIN_NONE, size, alignment, &block, 1) == 0) {
        return NULL;
    }
    umf_state_set(block.state, UMF_STATE_LIVE);
    return block.object;
}

void *umf_scalable_block_alloc(umf_scalable_pool_t *pool, size_t size, size_t alignment) {
    umf_scalable_fail();
    if (size > SIZE_LIMIT || alignment > SIZE_LIMIT) {
        umf_tell_refused("scalable", umf_result_lengthen(umf_scalable_thread.last_error));
        return NULL;
    }
    umf_magazines_release_large(&pool->magazines, UMF_MAGAZINE_EXCEPT_NONE,
                                UMF_MAGAZINE_WAITING_MAX);
    if (has_direct(pool, size, alignment)) {
        return direct_alloc(pool, size);
    }
    /* A small aligned request takes a large block: a slab's page has objects of one size only. */
    size_t least = UMF_SCALABLE_SMALL_LARGEST + 1;
    return below_alloc(pool, size > least ? size : least, alignment);
}

/* As direct_claim, for a block of oneTBB. */
static bool block_claim(uint8_t *state) {
    uint8_t live = UMF_STATE_LIVE;
    return __atomic_compare_exchange_n(state, &live, UMF_STATE_NONE, false, __ATOMIC_RELEASE,
                                       __ATOMIC_RELAXED);
}

bool umf_scalable_block_free(umf_scalable_pool_t *pool, umf_span_t *span, void *ptr,
                             uint8_t *state) {
    if (state == &umf_scalable_direct_live.record.direct) {
        bool is_mine = direct_claim(pool, span, ptr);
        if (is_mine) {
            direct_free(pool, span);
        }
        return is_mine;
    }
    bool is_mine = block_claim(state);
    if (is_mine) {
        umf_scalable_give(pool, UMF_SCALABLE_BIN_NONE, &(umf_item_t){.object = ptr}, 1);
    }
    return is_mine;
}
