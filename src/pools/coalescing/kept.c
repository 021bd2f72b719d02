/* Blocks that threads of a coalescing pool keep: functions under a lock. */
#include "base/meta.h"
#include "pools/coalescing/shards.h"

typedef umf_coalescing_shard_t shard_t;
typedef umf_kept_block_t block_t;

umf_kept_t *umf_kept_create(void) {
    umf_kept_t *kept = umf_meta_alloc(sizeof(*kept));
    for (size_t i = 0; kept && i < UMF_COUNT_OF(kept->top); i++) {
        kept->top[i] = UMF_KEPT_END;
    }
    return kept;
}

void umf_kept_destroy(umf_kept_t *kept) {
    umf_meta_free(kept, sizeof(*kept));
}

static uint32_t hold_of(const block_t *block) {
    return __atomic_load_n(&block->hold, __ATOMIC_ACQUIRE);
}

static uint8_t shard_of(const block_t *block) {
    return __atomic_load_n(&block->shard, __ATOMIC_RELAXED);
}

/* A place in the set without block. NULL: there is none. */
static block_t *unused_place(block_t *set) {
    for (block_t *block = set; block < set + UMF_KEPT_WAYS; block++) {
        if (block->next == UMF_KEPT_IN_NO_STACK && hold_of(block) == UMF_RANGE_HOLD_NONE) {
            return block;
        }
    }
    return NULL;
}

/* That of a used block of this shard, which leaves. NULL: all are kept blocks, or of other shards.
 */
static block_t *make_place_locked(umf_kept_t *kept, block_t *set, const shard_t *shard) {
    for (unsigned i = 0; i < UMF_KEPT_WAYS; i++) {
        block_t *block = set + kept->turn++ % UMF_KEPT_WAYS;
        if (block->next == UMF_KEPT_IN_NO_STACK && shard_of(block) == shard->index) {
            umf_range_hold_end(shard->range, block->base, &block->hold);
            return block;
        }
    }
    return NULL;
}

static block_t *place_locked(umf_kept_t *kept, uintptr_t base, const shard_t *shard, size_t most) {
    block_t *set = umf_kept_set_of(kept, base);
    for (block_t *block = set; block < set + UMF_KEPT_WAYS; block++) {
        if (block->base == base) {
            return block;
        }
    }
    block_t *place = unused_place(set);
    /* No block leaves for one that is not kept: `size` 0 becomes the largest. */
    bool is_wanted = !place && umf_range_used_size(shard->range, base) - 1 < most;
    return is_wanted ? make_place_locked(kept, set, shard) : place;
}

bool umf_kept_add_locked(umf_kept_t *kept, shard_t *shard, uintptr_t ptr, size_t most,
                         unsigned granule_log) {
    umf_assert_locked(&shard->lock);
    block_t *block = place_locked(kept, ptr, shard, most);
    /* A hold that still has a block has this one, which is kept: the free is a second one. */
    if (!block || hold_of(block) != UMF_RANGE_HOLD_NONE) {
        return false;
    }
    /* A block that was reclaimed is still in the stack of its old size. */
    bool is_stacked = block->next != UMF_KEPT_IN_NO_STACK;
    size_t old = (size_t)block->granules << granule_log;
    block->base = ptr;
    __atomic_store_n(&block->shard, (uint8_t)shard->index, __ATOMIC_RELAXED);
    size_t size = umf_range_hold(shard->range, ptr, is_stacked ? old : 1, is_stacked ? old : most,
                                 &block->hold);
    if (!size) {
        return false;
    }
    kept->untaken++;
    umf_kept_note_put(kept, shard->index);
    if (!is_stacked) {
        block->granules = (uint8_t)(size >> granule_log);
        umf_kept_push(kept, block);
    }
    return true;
}

size_t umf_kept_reclaim_locked(umf_kept_t *kept, shard_t *shard) {
    umf_assert_locked(&shard->lock);
    size_t count = 0;
    uint32_t puts = __atomic_load_n(&kept->puts[shard->index], __ATOMIC_ACQUIRE);
    if (puts == kept->seen[shard->index]) {
        return 0;
    }
    kept->seen[shard->index] = puts;
    for (block_t *block = kept->blocks; block < kept->blocks + UMF_KEPT_BLOCKS; block++) {
        count += hold_of(block) == UMF_RANGE_HOLD_RESERVED && shard_of(block) == shard->index &&
                 umf_range_hold_reclaim(shard->range, block->base, &block->hold);
    }
    return count;
}

static void leave(umf_coalescing_pool_t *pool, block_t *block) {
    shard_t *shard = umf_coalescing_shard(pool, shard_of(block));
    umf_lock(&shard->lock);
    shard->live -= umf_range_hold_end(shard->range, block->base, &block->hold);
    umf_unlock(&shard->lock);
}

void umf_kept_leave(umf_kept_t *kept, umf_coalescing_pool_t *pool) {
    for (block_t *block = kept->blocks; block < kept->blocks + UMF_KEPT_BLOCKS; block++) {
        if (hold_of(block) != UMF_RANGE_HOLD_NONE) {
            leave(pool, block);
        }
    }
}
