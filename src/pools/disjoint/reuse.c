#include "pools/disjoint/reuse.h"

#include "system/annotate.h"

typedef umf_disjoint_pool_t disjoint_pool_t;

typedef struct thread_t {
    umf_thread_slot_t head;
    uint32_t taken; /* how often this thread took slabs of others */
    /* By bin. Only the owner puts slabs in; any thread takes them. */
    _Atomic(umf_slab_t *) slabs[];
} thread_t;

_Static_assert(UMF_DISJOINT_MAX_BINS <= 64, "the hint has a bit for each bin");
_Static_assert(sizeof(thread_t) + UMF_DISJOINT_MAX_BINS * sizeof(umf_slab_t *) <=
                   UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block is too small");

/* Every so many calls a thread does not look for slabs of others, so that it allocates: otherwise
 * threads that need more slabs than there are would take them from each other endlessly. */
#define TAKEN_MAX 8u

static thread_t *thread_of(const disjoint_pool_t *pool) {
    return (thread_t *)umf_thread_slot_get(
        atomic_load_explicit(&pool->threads_index, memory_order_relaxed));
}

static umf_slab_t *peek(thread_t *thread, uint32_t index) {
    return atomic_load_explicit(&thread->slabs[index], memory_order_relaxed);
}

/* Takes `slab`, which was peeked. false: another thread took it first. */
static bool take(thread_t *thread, uint32_t index, umf_slab_t *slab) {
    return atomic_compare_exchange_strong_explicit(&thread->slabs[index], &slab, NULL,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* --- all threads --- */

typedef struct search_t {
    uint32_t index;
    const thread_t *except;
    umf_slab_t *found;
    size_t count;
} search_t;

static void take_first(umf_thread_slot_t *block, void *arg) {
    search_t *search = arg;
    thread_t *thread = (thread_t *)block;
    umf_slab_t *slab =
        search->found || thread == search->except ? NULL : peek(thread, search->index);
    if (slab && take(thread, search->index, slab)) {
        search->found = slab;
    }
}

static bool is_open(disjoint_pool_t *pool) {
    return atomic_load_explicit(&pool->threads_index, memory_order_acquire) != 0;
}

static void each_thread(disjoint_pool_t *pool, void (*visit)(umf_thread_slot_t *block, void *arg),
                        search_t *search) {
    if (is_open(pool)) {
        umf_thread_slot_each(&pool->threads, visit, search);
    }
}

static umf_slab_t *take_except(disjoint_pool_t *pool, uint32_t index, const thread_t *except) {
    search_t search = {.index = index, .except = except};
    each_thread(pool, take_first, &search);
    return search.found;
}

/* The hint keeps a pool that grows from a walk over all threads at each miss. */
static void offer(disjoint_pool_t *pool, uint32_t index) {
    uint64_t bit = UINT64_C(1) << index;
    if (umf_unlikely(!(atomic_load_explicit(&pool->offered, memory_order_relaxed) & bit))) {
        atomic_fetch_or_explicit(&pool->offered, bit, memory_order_relaxed);
    }
}

static UMF_COLD umf_slab_t *take_any(disjoint_pool_t *pool, uint32_t index) {
    uint64_t bit = UINT64_C(1) << index;
    thread_t *own = thread_of(pool);
    if (!(atomic_load_explicit(&pool->offered, memory_order_relaxed) & bit) ||
        (own->head.owner && ++own->taken % TAKEN_MAX == 0)) {
        return NULL;
    }
    /* Cleared before the walk, so that an offer during the walk is kept. */
    atomic_fetch_and_explicit(&pool->offered, ~bit, memory_order_relaxed);
    umf_slab_t *slab = take_except(pool, index, NULL);
    if (slab) {
        offer(pool, index); /* there may be more */
    }
    return slab;
}

static void count_one(umf_thread_slot_t *block, void *arg) {
    search_t *search = arg;
    search->count += peek((thread_t *)block, search->index) != NULL;
}

size_t umf_disjoint_reserved(disjoint_pool_t *pool, uint32_t index) {
    search_t search = {.index = index};
    each_thread(pool, count_one, &search);
    return search.count;
}

/* --- slabs and their bins --- */

size_t umf_disjoint_reserved_of(disjoint_pool_t *pool, const umf_bin_t *bin) {
    bool matters = bin->index < pool->reserved_bins && umf_bin_empty_count(bin) < bin->max_kept;
    return matters ? umf_disjoint_reserved(pool, bin->index) : 0;
}

/* Returns a claimed slab to its bin. */
static void put_claimed(disjoint_pool_t *pool, umf_slab_t *slab) {
    umf_item_t item = {.object = slab};
    umf_bin_put_claimed(slab->bin, &item, 1, umf_disjoint_reserved_of(pool, slab->bin));
}

static void thread_exit(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    disjoint_pool_t *pool = UMF_CONTAINER_OF(owner, disjoint_pool_t, threads);
    thread_t *thread = (thread_t *)block;
    for (uint32_t i = 0; i < pool->reserved_bins; i++) {
        umf_slab_t *slab = peek(thread, i);
        if (slab && take(thread, i, slab)) {
            put_claimed(pool, slab);
        }
    }
}

UMF_LOCK_STATIC(open_lock, UMF_RANK_BIN);

static void open_locked(disjoint_pool_t *pool) {
    size_t bytes = sizeof(thread_t) + pool->reserved_bins * sizeof(umf_slab_t *);
    umf_assert_locked(&open_lock);
    if (!is_open(pool) &&
        umf_thread_slot_owner_init(&pool->threads, 0, bytes, thread_exit) == UMF_RESULT_SUCCESS) {
        atomic_store_explicit(&pool->threads_index, pool->threads.index, memory_order_release);
    }
}

/* Makes the slots of the calling thread. NULL: there is no memory for them. */
static UMF_COLD thread_t *thread_make(disjoint_pool_t *pool) {
    umf_lock(&open_lock);
    open_locked(pool);
    umf_unlock(&open_lock);
    return is_open(pool) ? (thread_t *)umf_thread_slot_make(&pool->threads) : NULL;
}

void umf_disjoint_reuse_fini(disjoint_pool_t *pool) {
    if (is_open(pool)) {
        umf_thread_slot_owner_fini(&pool->threads);
        atomic_store_explicit(&pool->threads_index, 0, memory_order_relaxed);
    }
}

/* false: the slot is occupied, or there is no memory for slots. */
static bool put(disjoint_pool_t *pool, umf_slab_t *slab) {
    uint32_t index = slab->bin->index;
    thread_t *thread = thread_of(pool);
    if (umf_unlikely(!thread->head.owner)) {
        thread = thread_make(pool);
    }
    if (!thread || peek(thread, index)) {
        return false;
    }
    atomic_store_explicit(&thread->slabs[index], slab, memory_order_release);
    offer(pool, index);
    return true;
}

void *umf_disjoint_take_reserved(disjoint_pool_t *pool, uint32_t index) {
    thread_t *thread = thread_of(pool);
    umf_slab_t *slab = peek(thread, index);
    if (umf_likely(slab != NULL) && umf_likely(take(thread, index, slab))) {
        return umf_slab_unclaim(slab);
    }
    umf_bin_t *bin = umf_disjoint_bin(pool, index);
    if (bin && umf_bin_is_busy(bin)) {
        slab = umf_magazine_pop_stateless(&pool->magazines, index);
    } else {
        slab = bin && umf_bin_empty_count(bin) == 0 ? take_any(pool, index) : NULL;
    }
    return slab ? umf_slab_unclaim(slab) : NULL;
}

static __attribute__((noinline)) void free_claimed(disjoint_pool_t *pool, umf_slab_t *slab) {
    if (umf_bin_is_busy(slab->bin)) {
        umf_magazine_push(&pool->magazines, slab->bin->index, (umf_item_t){.object = slab});
    } else {
        put_claimed(pool, slab);
        umf_magazines_decay(&pool->magazines);
    }
}

void umf_disjoint_reserve(disjoint_pool_t *pool, umf_slab_t *slab) {
    const umf_bin_t *bin = slab->bin;
    UMF_POISON((void *)umf_slab_base(slab), bin->size);
    bool has_room = umf_bin_empty_count(bin) < bin->max_kept;
    if (umf_unlikely(!has_room) || umf_unlikely(!put(pool, slab))) {
        free_claimed(pool, slab);
    }
}

bool umf_disjoint_settle_reserved(disjoint_pool_t *pool) {
    const thread_t *own = thread_of(pool);
    bool was_any = false;
    for (uint32_t i = 0; i < pool->reserved_bins; i++) {
        umf_slab_t *slab;
        for (size_t n = umf_disjoint_reserved(pool, i);
             n && (slab = take_except(pool, i, own)) != NULL; n--) {
            put_claimed(pool, slab);
            was_any = true;
        }
    }
    return was_any;
}

void umf_disjoint_trim_reserved(disjoint_pool_t *pool, const umf_bin_t *bin, size_t *keep) {
    thread_t *own = thread_of(pool);
    umf_slab_t *slab = umf_disjoint_can_reserve(pool, bin) ? peek(own, bin->index) : NULL;
    if (slab && *keep > 0) {
        *keep -= *keep < bin->slab_size ? *keep : bin->slab_size;
    } else if (slab && take(own, bin->index, slab)) {
        put_claimed(pool, slab);
    }
}
