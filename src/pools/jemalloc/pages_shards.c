/* Shards of a page cache: how they are made, and which one a thread takes from. */
#include "pools/jemalloc/pages_shards.h"

#include "base/meta.h"
#include "base/thread_slot.h"
#include "system/os.h"

typedef umf_pages_shard_t shard_t;

static void shard_init(umf_pages_t *pages, shard_t *shard) {
    shard->is_taking = false;
    shard->elsewhere = 0;
    shard->counted = 0;
    shard->range = NULL;
    umf_list_init(&shard->spans);
    umf_list_init(&shard->kept);
    umf_list_init(&shard->surplus);
    shard->kept_bytes = shard->peak = shard->last_peak = 0;
    umf_lock_init(&shard->lock, UMF_RANK_PAGES);
    umf_purge_part_init(&shard->part, &pages->purge, &shard->lock, &shard->range);
}

void umf_pages_shards_init(umf_pages_t *pages) {
    shard_init(pages, &pages->first);
    pages->shards[0] = &pages->first;
    atomic_init(&pages->shard_count, 1);
}

static void shard_fini(shard_t *shard) {
    umf_purge_part_fini(&shard->part);
    if (shard->range) {
        umf_range_destroy(shard->range);
    }
    umf_lock_destroy(&shard->lock);
}

static size_t shard_bytes(void) {
    return umf_meta_isolated_size(sizeof(shard_t));
}

void umf_pages_shards_fini(umf_pages_t *pages) {
    for (uint32_t i = umf_pages_shard_count(pages); --i;) {
        shard_fini(pages->shards[i]);
        umf_meta_free(pages->shards[i], shard_bytes());
    }
    shard_fini(&pages->first);
}

/* --- growing --- */

static uint32_t shards_limit(void) {
    size_t cpus = umf_os_cpu_count();
    return cpus < UMF_PAGES_SHARDS_MAX ? (uint32_t)cpus : UMF_PAGES_SHARDS_MAX;
}

/* false: there is no memory. */
static bool shard_add_locked(umf_pages_t *pages) {
    umf_assert_locked(&pages->first.lock);
    shard_t *shard = umf_meta_alloc(shard_bytes());
    if (shard) {
        uint32_t count = umf_pages_shard_count(pages);
        shard_init(pages, shard);
        pages->shards[count] = shard;
        atomic_store_explicit(&pages->shard_count, count + 1, memory_order_release);
    }
    return shard != NULL;
}

/* Makes twice as many shards as `count`, unless another thread was faster. false: there are enough,
 * or there is no memory. */
static bool shards_grow(umf_pages_t *pages, uint32_t count) {
    uint32_t limit = shards_limit(), request = 2 * count < limit ? 2 * count : limit;
    bool grows = count < limit;
    if (grows) {
        umf_lock(&pages->first.lock);
        while (grows && umf_pages_shard_count(pages) < request) {
            grows = shard_add_locked(pages);
        }
        umf_unlock(&pages->first.lock);
    }
    return grows;
}

/* --- threads --- */

shard_t *umf_pages_shard_own(const umf_pages_t *pages) {
    return pages->shards[(umf_thread_slot_number() + umf_thread_slot_tls.moves) %
                         umf_pages_shard_count(pages)];
}

/* The calling thread contends with another that takes from the same shard. */
static UMF_COLD shard_t *contend(umf_pages_t *pages) {
    if (!shards_grow(pages, umf_pages_shard_count(pages))) {
        umf_thread_slot_tls.moves++;
    }
    return umf_pages_shard_own(pages);
}

shard_t *umf_pages_shard_lock(umf_pages_t *pages) {
    shard_t *shard = umf_pages_shard_own(pages);
    if (umf_unlikely(!umf_trylock(&shard->lock))) {
        /* A thread that only gives memory back is soon done: no reason to migrate. */
        if (__atomic_load_n(&shard->is_taking, __ATOMIC_RELAXED)) {
            shard = contend(pages);
        }
        umf_lock(&shard->lock);
    }
    __atomic_store_n(&shard->is_taking, true, __ATOMIC_RELAXED);
    return shard;
}
