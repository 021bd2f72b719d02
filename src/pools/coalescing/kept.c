/* Small blocks that threads of a coalescing pool keep. */
#include "pools/coalescing/kept.h"

#include "base/meta.h"
#include "pools/coalescing/shards.h"
#include "system/pause.h"

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_shard_t shard_t;
typedef umf_coalescing_kept_t kept_t;

#define FREED_AT_ONCE 64u /* under one lock */

/* For a thread that uses its stacks: it does so for some instructions, but may lose its CPU. */
#define IN_USE_PAUSES 10000u

/* Frees the first blocks, as far as they are of one shard. Returns how many. */
static size_t free_run(coalescing_pool_t *pool, const umf_item_t *blocks, size_t n) {
    shard_t *shard = umf_coalescing_shard_of(pool, blocks[0].object, 0);
    size_t i = 0;
    umf_lock(&shard->lock);
    do {
        umf_range_take_kept((uint32_t *)(void *)blocks[i].state);
        umf_range_free(shard->range, (uintptr_t)blocks[i].object, 0, NULL);
        shard->live--;
    } while (++i < n && i < FREED_AT_ONCE &&
             umf_coalescing_shard_of(pool, blocks[i].object, 0) == shard);
    umf_unlock(&shard->lock);
    return i;
}

static void kept_flush(void *object, uint32_t bin, umf_item_t *blocks, size_t n) {
    (void)bin;
    coalescing_pool_t *pool = object;
    umf_transit_part_t part;
    umf_transit_begin(&pool->transit, &part);
    for (size_t done = 0; done < n;) {
        done += free_run(pool, blocks + done, n - done);
    }
    umf_transit_end(&part);
}

/* No refill: new blocks come from the shards. */
static const umf_magazine_ops_t kept_ops = {.flush = kept_flush};

static uint32_t kept_bins(const kept_t *kept) {
    size_t bins = UMF_KEPT_SIZE_MAX >> kept->granule;
    return bins < UMF_MAGAZINE_MAX_BINS ? (uint32_t)bins : UMF_MAGAZINE_MAX_BINS;
}

static void kept_destroy(kept_t *kept) {
    umf_magazines_fini(&kept->magazines);
    umf_meta_free(kept, sizeof(*kept));
}

/* NULL: out of memory, or no block is that small. */
static kept_t *kept_create(coalescing_pool_t *pool) {
    kept_t *kept = umf_meta_alloc(sizeof(*kept));
    if (!kept) {
        return NULL;
    }
    kept->granule = (unsigned)__builtin_ctzll(pool->params.granule);
    uint32_t bins = kept_bins(kept);
    kept->most = (size_t)bins << kept->granule;
    for (uint32_t bin = 0; bin < bins; bin++) {
        kept->capacity[bin] =
            umf_magazine_capacity(UMF_KEPT_BYTES, (bin + 1) * pool->params.granule, 2);
        kept->capacity[bin].is_kept = true;
    }
    if (umf_magazines_init(&kept->magazines, 0, pool, &kept_ops, kept->capacity, bins, 0) !=
        UMF_RESULT_SUCCESS) {
        umf_meta_free(kept, sizeof(*kept));
        return NULL;
    }
    return kept;
}

static kept_t *kept_made(coalescing_pool_t *pool) {
    kept_t *kept = umf_coalescing_kept(pool), *other = NULL;
    if (kept) {
        return kept;
    }
    kept = kept_create(pool);
    if (kept && !__atomic_compare_exchange_n(&pool->kept, &other, kept, false, __ATOMIC_ACQ_REL,
                                             __ATOMIC_ACQUIRE)) {
        kept_destroy(kept);
        return other;
    }
    return kept;
}

void umf_coalescing_kept_make_room(coalescing_pool_t *pool, size_t size) {
    kept_t *kept = kept_made(pool);
    if (kept && size <= kept->most) {
        umf_magazine_make_room(&kept->magazines, umf_coalescing_kept_bin(kept, size));
    }
}

void umf_coalescing_kept_fini(coalescing_pool_t *pool) {
    if (pool->kept) {
        kept_destroy(pool->kept);
    }
}

umf_coalescing_kept_count_t umf_coalescing_kept_count(const coalescing_pool_t *pool) {
    umf_coalescing_kept_count_t sum = {0};
    kept_t *kept = umf_coalescing_kept(pool);
    for (uint32_t bin = 0; kept && bin < kept->magazines.bins; bin++) {
        size_t blocks = umf_magazines_cached(&kept->magazines, bin);
        sum.blocks += blocks;
        sum.bytes += blocks * kept->capacity[bin].size;
    }
    return sum;
}

static bool has_any(const kept_t *kept) {
    return kept && umf_magazines_bytes(&kept->magazines);
}

bool umf_coalescing_kept_free(coalescing_pool_t *pool, bool is_all) {
    kept_t *kept = umf_coalescing_kept(pool);
    if (!has_any(kept)) {
        return false;
    }
    if (is_all) {
        umf_magazines_trim(&kept->magazines);
    } else {
        umf_magazines_flush(&kept->magazines);
    }
    return true;
}

void umf_coalescing_kept_free_wait(coalescing_pool_t *pool) {
    kept_t *kept = umf_coalescing_kept(pool);
    for (unsigned round = 0;
         has_any(kept) && !umf_magazines_trim(&kept->magazines) && round < IN_USE_PAUSES; round++) {
        umf_pause(round);
    }
}

void umf_coalescing_kept_decay(coalescing_pool_t *pool) {
    kept_t *kept = umf_coalescing_kept(pool);
    if (kept) {
        umf_magazines_decay(&kept->magazines);
    }
}
