/* Reuse slots of a coalescing pool: what is done under a lock. */
#include "pools/coalescing/release.h"

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_shard_t shard_t;
typedef umf_coalescing_reuse_slot_t reuse_slot_t;
typedef umf_coalescing_reuse_slots_t reuse_slots_t;

void umf_coalescing_reuse_forget_locked(shard_t *shard, reuse_slot_t *block) {
    umf_assert_locked(&shard->lock);
    /* A block that is still withheld counts as live: the end of its lease frees it. */
    if (block->lease.generation) {
        shard->live -= umf_range_lease_end(shard->range, &block->lease);
    }
    umf_coalescing_reuse_set_lease(block, (umf_range_lease_t){0});
    block->base = 0;
    block->size = 0;
    block->is_withheld = false;
    block->is_recent = false;
}

static UMF_COLD void reuse_forget(coalescing_pool_t *pool, reuse_slot_t *block) {
    shard_t *shard = umf_coalescing_shard(pool, block->shard);
    umf_lock(&shard->lock);
    umf_coalescing_reuse_forget_locked(shard, block);
    umf_unlock(&shard->lock);
}

/* Second chance: a slot that was used since the last round is spared once. */
static reuse_slot_t *reuse_replace(reuse_slots_t *slots) {
    for (;;) {
        reuse_slot_t *next = &slots->blocks[slots->next++ % UMF_COALESCING_REUSE_SLOTS];
        if (!next->is_recent) {
            return next;
        }
        next->is_recent = false;
    }
}

reuse_slot_t *umf_coalescing_reuse_room(coalescing_pool_t *pool, const shard_t *shard,
                                        reuse_slot_t *found) {
    /* A pool that gives free spans back must see every free: a withheld block would keep its span
     * in use. */
    if (pool->params.retain != SIZE_MAX) {
        return NULL;
    }
    reuse_slots_t *slots = umf_coalescing_reuse_slots(pool);
    if (umf_unlikely(!slots->head.owner)) {
        slots = (reuse_slots_t *)umf_thread_slot_make(&pool->slots);
    }
    reuse_slot_t *room = found;
    if (!room && umf_likely(slots != NULL)) {
        room = reuse_replace(slots);
    }
    /* The old block's lease ends under the lock of its own shard. If that is `shard`, the caller is
     * about to lock it and ends the lease itself (umf_coalescing_reuse_note_locked). */
    if (room && umf_unlikely(room->lease.generation && room->shard != shard->index)) {
        reuse_forget(pool, room);
    }
    return room;
}

static void reuse_mark(shard_t *shard, reuse_slot_t *block) {
    umf_lock(&shard->lock);
    umf_coalescing_reuse_set_lease(block, umf_range_lease(shard->range, block->base));
    umf_unlock(&shard->lock);
    block->shard = shard->index;
    block->is_withheld = false;
    block->is_recent = true;
}

void umf_coalescing_reuse_note(coalescing_pool_t *pool, shard_t *shard, uintptr_t base,
                               size_t size) {
    reuse_slot_t *block = umf_coalescing_reuse_find(umf_coalescing_reuse_slots(pool), base);
    /* Most blocks are not recorded. Only an equal size is reuse: the same address with another size
     * is a new division of the memory. */
    if (umf_unlikely(block != NULL) && block->size == size) {
        reuse_mark(shard, block);
    }
}

static void keep_leases(umf_thread_slot_t *head, void *range) {
    for (uint32_t i = 0; i < UMF_COALESCING_REUSE_SLOTS; i++) {
        uint32_t *const *generation = &((reuse_slots_t *)head)->blocks[i].lease.generation;
        umf_range_keep_lease(range, __atomic_load_n(generation, __ATOMIC_RELAXED));
    }
}

void umf_coalescing_reuse_keep_leases(coalescing_pool_t *pool, shard_t *shard) {
    umf_assert_locked(&shard->lock);
    umf_thread_slot_each(&pool->slots, keep_leases, shard->range);
}

static void reuse_thread_exit(umf_thread_slot_owner_t *owner, umf_thread_slot_t *head) {
    coalescing_pool_t *pool = UMF_CONTAINER_OF(owner, coalescing_pool_t, slots);
    for (uint32_t i = 0; i < UMF_COALESCING_REUSE_SLOTS; i++) {
        reuse_slot_t *block = &((reuse_slots_t *)head)->blocks[i];
        if (block->lease.generation) {
            reuse_forget(pool, block);
        }
    }
    umf_coalescing_shard_leave(pool, (reuse_slots_t *)head);
}

umf_result_t umf_coalescing_reuse_init(coalescing_pool_t *pool) {
    return umf_thread_slot_owner_init(&pool->slots, umf_tracked_magazine_index(pool->tracked),
                                      sizeof(reuse_slots_t), reuse_thread_exit);
}

bool umf_coalescing_reclaim_locked(shard_t *shard) {
    umf_assert_locked(&shard->lock);
    size_t count = umf_range_reclaim(shard->range);
    shard->live -= count;
    return umf_purge_inherit_locked(&shard->part) || count > 0;
}
