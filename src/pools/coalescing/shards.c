/* Shards of a coalescing pool: how they are made, and how threads choose theirs. */
#include "pools/coalescing/shards.h"

#include "base/meta.h"
#include "system/os.h"

typedef umf_coalescing_pool_t coalescing_pool_t;
typedef umf_coalescing_shard_t shard_t;
typedef umf_coalescing_thread_t thread_t;

/* So many allocations from other threads' shards count as one contention. */
#define SHARD_ELSEWHERE_MAX 32

static shard_t *shard_create(coalescing_pool_t *pool, uint32_t index) {
    shard_t *shard = umf_meta_alloc(sizeof(*shard));
    if (!shard) {
        return NULL;
    }
    shard->range = umf_range_create();
    if (!shard->range) {
        umf_meta_free(shard, sizeof(*shard));
        return NULL;
    }
    shard->index = index;
    umf_lock_init(&shard->lock, UMF_RANK_PAGES);
    umf_purge_part_init(&shard->part, &pool->purge, &shard->lock, &shard->range);
    return shard;
}

static void shard_destroy(shard_t *shard) {
    umf_purge_part_fini(&shard->part);
    umf_lock_destroy(&shard->lock);
    umf_range_destroy(shard->range);
    umf_meta_free(shard, sizeof(*shard));
}

umf_result_t umf_coalescing_shards_init(coalescing_pool_t *pool) {
    pool->shards[0] = shard_create(pool, 0);
    return pool->shards[0] ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

void umf_coalescing_shards_fini(coalescing_pool_t *pool) {
    for (size_t i = 0; pool->shards[i]; i++) {
        shard_destroy(pool->shards[i]);
    }
}

umf_purge_part_t *umf_coalescing_shard_part(void *pool, uint32_t index) {
    shard_t *shard = umf_coalescing_shard(pool, index);
    return shard ? &shard->part : NULL;
}

/* Adds a shard and locks it. NULL: there are enough, there is no memory, or another thread was
 * faster. */
static shard_t *shard_add_locked(coalescing_pool_t *pool) {
    size_t cpus = umf_os_cpu_count();
    size_t limit = cpus < UMF_COALESCING_SHARDS_MAX ? cpus : UMF_COALESCING_SHARDS_MAX;
    uint32_t index = (uint32_t)umf_coalescing_shards(pool);
    shard_t *shard = index < limit ? shard_create(pool, index) : NULL;
    if (!shard) {
        return NULL;
    }
    umf_lock(&shard->lock); /* before it is published: it is then free for the caller */
    shard_t *expected = NULL;
    if (!__atomic_compare_exchange_n(&pool->shards[index], &expected, shard, false,
                                     __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        umf_unlock(&shard->lock);
        shard_destroy(shard);
        return NULL;
    }
    return shard;
}

static uint32_t threads_of(const shard_t *shard) {
    return __atomic_load_n(&shard->threads, __ATOMIC_RELAXED);
}

/* Makes `shard` the thread's shard. The thread is already counted in `threads`. */
static void settle(const shard_t *shard, thread_t *thread) {
    thread->shard = shard->index;
    thread->is_of_shard = true;
}

static void join(shard_t *shard, thread_t *thread) {
    __atomic_fetch_add(&shard->threads, 1, __ATOMIC_RELAXED);
    settle(shard, thread);
}

void umf_coalescing_shard_leave(coalescing_pool_t *pool, thread_t *thread) {
    if (thread->is_of_shard) {
        __atomic_fetch_sub(&umf_coalescing_shard(pool, thread->shard)->threads, 1,
                           __ATOMIC_RELAXED);
        thread->is_of_shard = false;
    }
}

/* Counts the thread in at the first of the shards with the fewest threads. Choosing and counting
 * are one exchange, so that threads that start together spread over the shards. */
static shard_t *shard_count_in(coalescing_pool_t *pool) {
    shard_t *best;
    uint32_t least;
    do {
        best = umf_coalescing_shard(pool, 0);
        least = threads_of(best);
        shard_t *shard;
        for (size_t i = 1; least && (shard = umf_coalescing_shard(pool, i)); i++) {
            if (threads_of(shard) < least) {
                best = shard;
                least = threads_of(shard);
            }
        }
    } while (!__atomic_compare_exchange_n(&best->threads, &least, least + 1, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return best;
}

shard_t *umf_coalescing_shard_enter(coalescing_pool_t *pool) {
    thread_t *thread = (thread_t *)umf_thread_slot_make(&pool->slots);
    if (thread && !thread->is_of_shard) {
        settle(shard_count_in(pool), thread);
    }
    return umf_coalescing_shard(pool, thread ? thread->shard : 0);
}

/* The shard with the fewest threads, not counting the caller. NULL: none has fewer than `own`. */
static shard_t *shard_with_room(coalescing_pool_t *pool, const shard_t *own) {
    shard_t *best = NULL;
    uint32_t least = threads_of(own) > 1 ? threads_of(own) - 1 : 1;
    for (shard_t *shard = umf_coalescing_shard_next(pool, own); shard != own && least;
         shard = umf_coalescing_shard_next(pool, shard)) {
        if (threads_of(shard) < least) {
            best = shard;
            least = threads_of(shard);
        }
    }
    return best;
}

/* The shard to migrate to, locked. NULL: it is best to stay. */
static shard_t *other_shard(coalescing_pool_t *pool, const shard_t *own) {
    shard_t *shard = shard_with_room(pool, own);
    /* A new shard costs a span, so one without threads is better. One with threads is worse. */
    if (!shard || threads_of(shard)) {
        shard_t *added = shard_add_locked(pool);
        if (added) {
            return added;
        }
    }
    return shard && umf_trylock(&shard->lock) ? shard : NULL;
}

shard_t *umf_coalescing_shard_contended(coalescing_pool_t *pool, shard_t *own) {
    /* Comes before any lock is taken: it may allocate, and calls this pool again if the library
     * stands in for malloc. */
    thread_t *thread = (thread_t *)umf_thread_slot_make(&pool->slots);
    shard_t *shard = NULL;
    if (thread) {
        /* In a pool of one shard only threads that contend are counted. */
        if (!thread->is_of_shard) {
            join(own, thread);
        }
        thread->is_contended = true;
        shard = threads_of(own) > 1 ? other_shard(pool, own) : NULL;
    }
    if (!shard) { /* a thread that stays waits for the lock */
        umf_lock(&own->lock);
        return own;
    }
    umf_coalescing_shard_leave(pool, thread);
    join(shard, thread);
    return shard;
}

void umf_coalescing_shard_found(coalescing_pool_t *pool, shard_t *shard) {
    thread_t *thread = umf_coalescing_thread(pool);
    if (!thread->head.owner) {
        return;
    }
    if (threads_of(shard)) {
        /* Others allocate there and will contend sooner or later. */
        thread->is_contended =
            thread->is_contended || ++thread->elsewhere % SHARD_ELSEWHERE_MAX == 0;
    } else {
        umf_coalescing_shard_leave(pool, thread);
        join(shard, thread);
    }
}

void umf_coalescing_shard_note_contention(const coalescing_pool_t *pool) {
    thread_t *thread = umf_coalescing_thread(pool);
    if (thread->head.owner) {
        thread->is_contended = true;
    }
}

bool umf_coalescing_shard_is_contended(const coalescing_pool_t *pool) {
    thread_t *thread = umf_coalescing_thread(pool);
    bool is_contended = thread->is_contended;
    if (is_contended) { /* no write if nothing changes: it may be the shared empty block */
        thread->is_contended = false;
    }
    return is_contended;
}

size_t umf_coalescing_count(coalescing_pool_t *pool,
                            void (*count)(const shard_t *shard, size_t *total)) {
    size_t total = 0;
    shard_t *shard;
    for (size_t i = 0; (shard = umf_coalescing_shard(pool, i)); i++) {
        umf_lock(&shard->lock);
        count(shard, &total);
        umf_unlock(&shard->lock);
    }
    return total;
}

static void count_bytes(const shard_t *shard, size_t *bytes) {
    *bytes += umf_range_total_bytes(shard->range);
}

size_t umf_coalescing_bytes(coalescing_pool_t *pool) {
    return umf_coalescing_count(pool, count_bytes);
}

size_t umf_coalescing_shards(const coalescing_pool_t *pool) {
    size_t shards = 0;
    while (umf_coalescing_shard(pool, shards)) {
        shards++;
    }
    return shards;
}

void umf_coalescing_reclaim(coalescing_pool_t *pool) {
    shard_t *shard;
    for (size_t i = 0; (shard = umf_coalescing_shard(pool, i)); i++) {
        umf_lock(&shard->lock);
        umf_coalescing_reclaim_locked(shard);
        umf_unlock(&shard->lock);
    }
}
