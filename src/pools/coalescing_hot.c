/* Blocks that go and come again and again: what is done under the lock. */
#include "pools/coalescing_hot.h"

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_hot_block_t hot_block_t;
typedef umf_coalescing_hot_blocks_t hot_blocks_t;

static void hot_forget_locked(coalescing_pool_t *pool, hot_block_t *block) {
    umf_assert_locked(&pool->lock);
    if (block->ticket.claim) {
        pool->live -= umf_range_ticket_end(pool->range, &block->ticket);
    }
    *block = (hot_block_t){0};
}

void umf_coalescing_hot_note_locked(coalescing_pool_t *pool, hot_blocks_t *hot, uintptr_t base,
                                    size_t size) {
    umf_assert_locked(&pool->lock);
    hot_block_t *block = umf_coalescing_hot_find(hot, base);
    while (!block) {
        hot_block_t *next = &hot->blocks[hot->next++ % UMF_COALESCING_HOT_BLOCKS];
        block = next->is_recent ? NULL : next;
        next->is_recent = false;
    }
    hot_forget_locked(pool, block);
    block->base = base;
    block->size = size;
}

void umf_coalescing_hot_meet_locked(coalescing_pool_t *pool, uintptr_t base, size_t size) {
    umf_assert_locked(&pool->lock);
    hot_block_t *block = umf_coalescing_hot_find(umf_coalescing_hot_blocks(pool), base);
    if (block && block->size == size) {
        block->ticket = umf_range_ticket(pool->range, base);
        block->is_parked = false;
        block->is_recent = true;
    }
}

static void hot_thread_exit(umf_local_owner_t *owner, umf_local_t *head) {
    coalescing_pool_t *pool = UMF_CONTAINER_OF(owner, coalescing_pool_t, hot);
    umf_lock(&pool->lock);
    for (uint32_t i = 0; i < UMF_COALESCING_HOT_BLOCKS; i++) {
        hot_forget_locked(pool, &((hot_blocks_t *)head)->blocks[i]);
    }
    umf_unlock(&pool->lock);
}

umf_result_t umf_coalescing_hot_init(coalescing_pool_t *pool) {
    return umf_local_owner_init(&pool->hot, umf_view_magazine_index(pool->view),
                                sizeof(hot_blocks_t), hot_thread_exit);
}

hot_blocks_t *umf_coalescing_hot_blocks_made(coalescing_pool_t *pool) {
    if (pool->params.retain != SIZE_MAX) {
        return NULL;
    }
    hot_blocks_t *hot = umf_coalescing_hot_blocks(pool);
    return umf_likely(hot->head.owner != NULL) ? hot : (hot_blocks_t *)umf_local_make(&pool->hot);
}

bool umf_coalescing_reclaim_locked(coalescing_pool_t *pool) {
    umf_assert_locked(&pool->lock);
    size_t count = umf_range_reclaim(pool->range);
    pool->live -= count;
    return count > 0;
}
