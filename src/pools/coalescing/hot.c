/* Blocks that go and come again and again: what is done under a lock. */
#include "pools/coalescing/parts.h"

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_part_t part_t;
typedef umf_coalescing_hot_block_t hot_block_t;
typedef umf_coalescing_hot_blocks_t hot_blocks_t;

void umf_coalescing_hot_forget_locked(part_t *part, hot_block_t *block) {
    umf_assert_locked(&part->lock);
    if (block->ticket.claim) {
        part->live -= umf_range_ticket_end(part->range, &block->ticket);
    }
    *block = (hot_block_t){0};
}

static UMF_COLD void hot_forget(coalescing_pool_t *pool, hot_block_t *block) {
    part_t *part = umf_coalescing_part(pool, block->part);
    umf_lock(&part->lock);
    umf_coalescing_hot_forget_locked(part, block);
    umf_unlock(&part->lock);
}

static hot_block_t *hot_replace(hot_blocks_t *hot) {
    for (;;) {
        hot_block_t *next = &hot->blocks[hot->next++ % UMF_COALESCING_HOT_BLOCKS];
        if (!next->is_recent) {
            return next;
        }
        next->is_recent = false;
    }
}

hot_block_t *umf_coalescing_hot_room(coalescing_pool_t *pool, const part_t *part,
                                     hot_block_t *found) {
    if (pool->params.retain != SIZE_MAX) {
        return NULL;
    }
    hot_blocks_t *hot = umf_coalescing_hot_blocks(pool);
    if (umf_unlikely(!hot->head.owner)) {
        hot = (hot_blocks_t *)umf_local_make(&pool->hot);
    }
    hot_block_t *room = found;
    if (!room && umf_likely(hot != NULL)) {
        room = hot_replace(hot);
    }
    if (room && umf_unlikely(room->ticket.claim && room->part != part->index)) {
        hot_forget(pool, room);
    }
    return room;
}

static void hot_mark(part_t *part, hot_block_t *block) {
    umf_lock(&part->lock);
    block->ticket = umf_range_ticket(part->range, block->base);
    umf_unlock(&part->lock);
    block->part = part->index;
    block->is_parked = false;
    block->is_recent = true;
}

void umf_coalescing_hot_meet(coalescing_pool_t *pool, part_t *part, uintptr_t base, size_t size) {
    hot_block_t *block = umf_coalescing_hot_find(umf_coalescing_hot_blocks(pool), base);
    if (umf_unlikely(block != NULL) && block->size == size) {
        hot_mark(part, block);
    }
}

static void hot_thread_exit(umf_local_owner_t *owner, umf_local_t *head) {
    coalescing_pool_t *pool = UMF_CONTAINER_OF(owner, coalescing_pool_t, hot);
    for (uint32_t i = 0; i < UMF_COALESCING_HOT_BLOCKS; i++) {
        hot_block_t *block = &((hot_blocks_t *)head)->blocks[i];
        if (block->ticket.claim) {
            hot_forget(pool, block);
        }
    }
    umf_coalescing_part_leave(pool, (hot_blocks_t *)head);
}

umf_result_t umf_coalescing_hot_init(coalescing_pool_t *pool) {
    return umf_local_owner_init(&pool->hot, umf_view_magazine_index(pool->view),
                                sizeof(hot_blocks_t), hot_thread_exit);
}

bool umf_coalescing_reclaim_locked(part_t *part) {
    umf_assert_locked(&part->lock);
    size_t count = umf_range_reclaim(part->range);
    part->live -= count;
    return count > 0;
}
