/*
 * Bins of a disjoint pool: the slabs of each size with the magazines in front, and the ways by
 * which free slabs leave them: decay, trim and reclaim.
 */
#include "pools/disjoint/reuse.h"

#include "base/log.h"
#include "pools/shared/block_ops.h"
#include "reclaim/reclaim.h"

typedef umf_disjoint_pool_t disjoint_pool_t;

/* --- layout --- */

static const umf_magazine_ops_t magazine_ops;

/* Nothing is reserved under a shared limit, which is exact, or if nothing shall be kept. */
static uint32_t reserved_bins_of(const disjoint_pool_t *pool) {
    bool may_reserve = !pool->params.limits && pool->params.capacity > 0;
    return may_reserve ? pool->layout->reserved_bins : 0;
}

static bool may_be_busy(const disjoint_pool_t *pool) {
    return umf_tracked_can_reuse(pool->slabs.tracked) && reserved_bins_of(pool) > 0;
}

umf_result_t umf_disjoint_lay_out(disjoint_pool_t *pool) {
    umf_disjoint_request_t request = {
        .min_bucket_size = pool->params.min_bucket_size,
        .slab_min_size = pool->params.slab_min_size,
        .max_poolable_size = pool->params.max_poolable_size,
        .is_exact = pool->params.pool_trace > 0 || pool->params.check,
    };
    const umf_disjoint_layout_t *layout = umf_disjoint_layout_get(&request);
    if (!layout) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (pool->layout) { /* a parameter has changed: everything is made again */
        umf_magazines_fini(&pool->magazines);
        umf_disjoint_reuse_fini(pool);
        umf_disjoint_layout_put(pool->layout);
    }
    pool->layout = layout;
    pool->slabs.count_slabs = pool->params.pool_trace >= 1;
    pool->slabs.count_chunks = pool->params.pool_trace >= 2;
    pool->slabs.waiting = may_be_busy(pool) ? &pool->magazines : NULL;
    pool->reserved_bins = reserved_bins_of(pool);
    umf_result_t result = umf_magazines_init(
        &pool->magazines, umf_tracked_magazine_index(pool->slabs.tracked), pool, &magazine_ops,
        layout->capacity, pool->slabs.waiting ? layout->reserved_bins : layout->cached_bins,
        UMF_MAGAZINE_DEPOT_BATCHES);
    pool->magazines.slabs = layout->slabs;
    pool->magazines.bytes_max = pool->params.thread_cache;
    return result;
}

/* --- bins --- */

static umf_bin_t *bin_make(disjoint_pool_t *pool, uint32_t index) {
    size_t max_kept = umf_disjoint_is_chunked(pool->layout, pool->layout->sizes[index])
                          ? 1
                          : pool->params.capacity;
    bool is_cached = index < pool->layout->cached_bins;
    uint16_t class_offset = is_cached ? umf_magazine_offset(index) : 0;
    size_t stride = is_cached ? umf_disjoint_state_stride(pool->layout, index) : 0;
    umf_bin_t *bin =
        umf_bin_create(&pool->slabs, index, umf_disjoint_stride(pool->layout->sizes[index]),
                       pool->params.slab_min_size, class_offset, stride, max_kept);
    umf_bin_t *other = NULL;
    atomic_store_explicit(&pool->has_bins, true, memory_order_relaxed); /* before it is published */
    if (bin && !atomic_compare_exchange_strong_explicit(
                   &pool->bin[index], &other, bin, memory_order_acq_rel, memory_order_acquire)) {
        umf_bin_destroy(bin);
        return other;
    }
    return bin;
}

static umf_bin_t *bin_get(disjoint_pool_t *pool, uint32_t index) {
    umf_bin_t *bin = umf_disjoint_bin(pool, index);
    return bin ? bin : bin_make(pool, index);
}

typedef struct take_t {
    umf_bin_t *bin;
    umf_disjoint_take_from_t from;
    umf_item_t *items;
} take_t;

/* One item, because other threads are short of memory, too. */
static bool take_one(void *pool, void *request) {
    const take_t *take = request;
    (void)pool;
    return take->from(take->bin, take->items, 1) != 0;
}

static void give_back(void *pool);

UMF_COLD bool umf_disjoint_reclaim(disjoint_pool_t *pool,
                                   bool (*attempt)(void *pool, void *request), void *request) {
    umf_shortage_t shortage = {
        .tracked = pool->slabs.tracked,
        .transit = &pool->transit,
        .pool = pool,
        .give_back = give_back,
        .attempt = attempt,
        .request = request,
    };
    return umf_reclaim(&shortage);
}

/* A function of its own, so that no other one has its stack frame. */
static UMF_COLD size_t take_or_reclaim(disjoint_pool_t *pool, umf_bin_t *bin,
                                       umf_disjoint_take_from_t from, umf_item_t *items) {
    take_t request = {.bin = bin, .from = from, .items = items};
    return umf_disjoint_reclaim(pool, take_one, &request);
}

size_t umf_disjoint_take(disjoint_pool_t *pool, uint32_t index, umf_disjoint_take_from_t from,
                         umf_item_t *items, size_t n) {
    umf_bin_t *bin = bin_get(pool, index);
    size_t got = bin ? from(bin, items, n) : 0;
    if (umf_unlikely(!got) && bin) {
        got = take_or_reclaim(pool, bin, from, items);
    }
    if (!got) {
        umf_disjoint_fail(bin ? umf_tracked_refusal() : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    }
    return got;
}

/* The magazines of these bins hold claimed slabs, the magazines of the others hold chunks. */
static bool holds_slabs(const disjoint_pool_t *pool, uint32_t index) {
    return index >= pool->layout->cached_bins;
}

static size_t refill(void *self, uint32_t index, umf_item_t *items, size_t n) {
    umf_disjoint_take_from_t from = holds_slabs(self, index) ? umf_bin_take_claimed : umf_bin_take;
    return umf_disjoint_take(self, index, from, items, n);
}

static void flush(void *self, uint32_t index, umf_item_t *items, size_t n) {
    umf_bin_t *bin = umf_disjoint_bin(self, index);
    if (holds_slabs(self, index)) {
        umf_bin_put_claimed(bin, items, n, umf_disjoint_reserved_of(self, bin));
    } else {
        umf_bin_put(bin, items, n);
    }
}

bool umf_disjoint_settle(disjoint_pool_t *pool) {
    bool was_any = umf_magazines_release_large(&pool->magazines, UMF_MAGAZINE_EXCEPT_NONE, 0);
    return umf_disjoint_settle_reserved(pool) || was_any;
}

/* --- decay --- */

/* Slabs that other threads reserve go to their bins, because they decay there. A thread that still
 * needs its slab gets it from the bin. */
static bool decay_pass(disjoint_pool_t *pool, bool is_new) {
    bool can_purge = !atomic_load_explicit(&pool->cannot_purge, memory_order_relaxed);
    size_t left = umf_decay_bytes();
    if (can_purge && is_new) { /* without purge there is no gain in taking slabs from threads */
        umf_disjoint_settle_reserved(pool);
    }
    if (is_new) {
        umf_provider_drop_reusable(pool->slabs.tracked, true);
    }
    for (uint32_t i = 0; i < pool->layout->bins && can_purge; i++) {
        umf_bin_t *bin = umf_disjoint_bin(pool, i);
        can_purge = !bin || umf_bin_decay(bin, pool->page_size, is_new, &left);
    }
    if (!can_purge) {
        atomic_store_explicit(&pool->cannot_purge, true, memory_order_relaxed);
    }
    return can_purge && left == 0;
}

static bool decay(void *self, bool is_new) {
    disjoint_pool_t *pool = self;
    umf_transit_part_t part;
    umf_transit_begin(&pool->transit, &part);
    bool goes_on = decay_pass(pool, is_new);
    umf_transit_end(&part);
    return goes_on;
}

static const umf_magazine_ops_t magazine_ops = {
    .refill = refill, .flush = flush, .decay_pass = decay};

/* --- trim and counts --- */

static void purge(disjoint_pool_t *pool) {
    for (uint32_t i = 0; i < pool->layout->bins; i++) {
        umf_bin_t *bin = umf_disjoint_bin(pool, i);
        if (bin && bin->chunks > 1 && !umf_bin_purge(bin, pool->page_size)) {
            return;
        }
    }
}

/* Gives free slabs of all threads and sizes to the provider, except `keep` bytes. */
static void give_back_except(disjoint_pool_t *pool, size_t keep) {
    umf_magazines_trim(&pool->magazines);
    umf_disjoint_settle(pool);
    for (uint32_t i = 0; i < pool->layout->bins; i++) {
        umf_bin_t *bin = umf_disjoint_bin(pool, i);
        if (bin) {
            umf_disjoint_trim_reserved(pool, bin, &keep);
            umf_bin_trim(bin, &keep);
        }
    }
}

static void give_back(void *self) {
    disjoint_pool_t *pool = self;
    umf_transit_part_t part;
    umf_transit_begin(&pool->transit, &part);
    give_back_except(pool, 0);
    umf_transit_end(&part);
}

void umf_disjoint_trim(disjoint_pool_t *pool, size_t keep) {
    umf_transit_part_t part;
    umf_transit_begin(&pool->transit, &part);
    give_back_except(pool, keep);
    purge(pool);
    umf_transit_end(&part);
}

size_t umf_disjoint_used_chunks(disjoint_pool_t *pool, uint32_t index) {
    umf_bin_t *bin = umf_disjoint_bin(pool, index);
    if (!bin) {
        return 0;
    }
    size_t cached =
        index < pool->magazines.bins ? umf_magazines_cached(&pool->magazines, index) : 0;
    cached += umf_disjoint_can_reserve(pool, bin) ? umf_disjoint_reserved(pool, index) : 0;
    umf_lock(&bin->lock);
    size_t used = bin->used;
    umf_unlock(&bin->lock);
    return used > cached ? used - cached : 0;
}
