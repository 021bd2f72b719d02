/*
 * Stream cache: the blocks allocated and freed on one queue, in one pool.
 *
 * A block that is freed on a queue stays allocated in its pool. It waits in a bin of the cache, by
 * its class of sizes, and the next allocation of that class on the queue takes it: a list under the
 * cache's lock, no call of a driver.
 *
 * Frees are counted. A mark of the provider (umf/plugin.h) stands behind all frees up to its count.
 * It is made when another queue or the host requests the memory; when it has completed, these
 * blocks are unused.
 */
#ifndef UMF_SRC_EXT_QUEUE_STREAM_CACHE_H
#define UMF_SRC_EXT_QUEUE_STREAM_CACHE_H

#include <umf/queue.h>

#include "base/event_count.h"
#include "ds/hash.h"
#include "ds/list.h"
#include "object/object.h"
#include "system/atomic.h"

typedef struct umf_stream_cache_t umf_stream_cache_t;

/* --- classes of sizes: sixteen for each power of two --- */

#define UMF_STREAM_CACHE_STEPS 16u
#define UMF_STREAM_CACHE_CLASS_FIRST (5 * UMF_STREAM_CACHE_STEPS)
#define UMF_STREAM_CACHE_CLASSES (42 * UMF_STREAM_CACHE_STEPS) /* up to 128 TiB */
#define UMF_STREAM_CACHE_SIZE_MIN ((size_t)64)

/* The smallest class whose blocks have `size` bytes; UMF_STREAM_CACHE_CLASSES or more: there is
 * none. Hot.
 */
UMF_INLINE uint32_t umf_stream_cache_class(size_t size) {
    uint64_t last = size <= UMF_STREAM_CACHE_SIZE_MIN ? UMF_STREAM_CACHE_SIZE_MIN - 1 : size - 1;
    uint32_t top = 63 - (uint32_t)__builtin_clzll(last);
    uint32_t step = (uint32_t)(last >> (top - 4)) & (UMF_STREAM_CACHE_STEPS - 1);
    return top * UMF_STREAM_CACHE_STEPS + step - UMF_STREAM_CACHE_CLASS_FIRST -
           (UMF_STREAM_CACHE_STEPS - 1);
}

static inline size_t umf_stream_cache_class_size(uint32_t size_class) {
    uint32_t at = size_class + UMF_STREAM_CACHE_CLASS_FIRST + (UMF_STREAM_CACHE_STEPS - 1);
    return (size_t)(UMF_STREAM_CACHE_STEPS + 1 + at % UMF_STREAM_CACHE_STEPS)
           << (at / UMF_STREAM_CACHE_STEPS - 4);
}

/* --- blocks --- */

typedef enum umf_stream_cache_state_t {
    UMF_STREAM_CACHE_USED,
    UMF_STREAM_CACHE_FREE,    /* in its bin */
    UMF_STREAM_CACHE_WAITING, /* freed, but queues of umfUseOn have not completed */
    UMF_STREAM_CACHE_LEAVING, /* freed, in no bin: it is not handed out again here */
} umf_stream_cache_state_t;

typedef struct umf_stream_cache_block_t umf_stream_cache_block_t;

/* Another queue that uses a block. */
typedef struct umf_stream_cache_use_t {
    umf_stream_cache_t *cache; /* Immutable, as the next */
    umf_stream_cache_block_t *block;
    umf_list_t link; /* of the cache's uses, once the block is freed. Sync: its lock */
    uint64_t freed;  /* the count of that cache's frees at the block's free. Likewise */
    struct umf_stream_cache_use_t *next; /* of the block */
} umf_stream_cache_use_t;

/* Sync: the lock of the cache that has it. */
struct umf_stream_cache_block_t {
    umf_list_t bin;
    umf_list_t age; /* of all that are free, or of all that wait */
    uintptr_t addr;
    uint64_t freed; /* the count of the cache's frees at its own */
    size_t size;    /* the size of the class, or that of the pool's block */
    uint32_t size_class;
    umf_stream_cache_state_t state;
    bool is_leaving; /* after it has waited */
    umf_stream_cache_use_t *uses;
    umf_stream_cache_t *cache; /* in which it waits */
    _Atomic(size_t) uses_left; /* the uses that it waits for */
};

/* --- caches --- */

#define UMF_STREAM_CACHE_MARKS 8

typedef struct umf_stream_cache_mark_t {
    void *mark;
    uint64_t freed; /* it stands behind as many frees */
} umf_stream_cache_mark_t;

typedef enum umf_stream_cache_kind_t {
    UMF_STREAM_CACHE_OPEN,
    UMF_STREAM_CACHE_ENDED, /* its queue was named by umfQueueEnds: its last mark stands behind all
                             */
    UMF_STREAM_CACHE_LOST, /* its queue was destroyed, or fails: only a wait for all queues helps */
} umf_stream_cache_kind_t;

struct umf_stream_cache_t {
    umf_lock_t lock;
    unsigned generation; /* one more when its queue ends. Sync: lock, as all without a note */
    umf_stream_cache_kind_t kind;
    uint64_t freed;    /* the count of frees */
    umf_hash_t blocks; /* by address */
    umf_list_t bins[UMF_STREAM_CACHE_CLASSES];
    uint64_t
        filled[UMF_STREAM_CACHE_CLASSES / 64 + 1]; /* bit by class: there is something in its bin */
    umf_list_t oldest;                             /* free and leaving blocks, oldest free first */
    umf_list_t waiting;                            /* blocks that wait for other caches */
    umf_list_t uses;               /* of freed blocks that wait for this cache, by their `freed` */
    size_t bytes;                  /* of all blocks */
    size_t free_bytes;             /* of those that were freed */
    size_t waiting_bytes;          /* of those that wait for other caches */
    uint64_t aged;                 /* the count of frees at the last decay pass */
    uint64_t trimmed;              /* frees up to this one go back to the pool */
    umf_memory_pool_handle_t pool; /* Immutable */
    umf_queue_t queue;             /* Sync: written with polling lock and lock, as the next two */
    uint64_t id;
    uint64_t thread;             /* the only thread that may mark it; 0: any */
    _Atomic(uint64_t) completed; /* frees up to this one have completed */
    _Atomic(unsigned) pins;      /* uses that name the cache */
    _Atomic(unsigned)
        poller; /* the thread with the polling lock has the marks; see stream_cache_mark.c */
    umf_stream_cache_mark_t
        marks[UMF_STREAM_CACHE_MARKS + 1]; /* oldest first; one is the last of a queue that
                              ends. Sync: polling lock, as the next three */
    bool is_captured;                      /* by the last try to mark it */
    unsigned mark_count;
    unsigned awaited; /* a thread waits for the oldest: umf_fork_count() + 1; 0: none does */
    umf_event_count_t passes;           /* advanced when that thread has the polling lock again */
    _Atomic(umf_stream_cache_t *) next; /* of the pool */
};

void umf_stream_cache_init(umf_stream_cache_t *cache, umf_memory_pool_handle_t pool);
/* Frees the cache's own memory, and the records of its blocks. */
void umf_stream_cache_fini(umf_stream_cache_t *cache);

static inline bool umf_stream_cache_has_filled(const umf_stream_cache_t *cache,
                                               uint32_t size_class) {
    return cache->filled[size_class / 64] >> size_class % 64 & 1;
}

/* --- blocks of a cache (the lock is held) --- */

UMF_INLINE umf_stream_cache_block_t *umf_stream_cache_find_locked(umf_stream_cache_t *cache,
                                                                  const void *ptr) {
    umf_assert_locked(&cache->lock);
    return (umf_stream_cache_block_t *)umf_hash_get(&cache->blocks, (uintptr_t)ptr);
}

/* A used block becomes free. Hot. */
UMF_INLINE void umf_stream_cache_push_locked(umf_stream_cache_t *cache,
                                             umf_stream_cache_block_t *block) {
    uint32_t size_class = block->size_class;
    umf_assert_locked(&cache->lock);
    block->state = UMF_STREAM_CACHE_FREE;
    block->freed = ++cache->freed;
    cache->free_bytes += block->size;
    cache->filled[size_class / 64] |= (uint64_t)1 << size_class % 64;
    umf_list_add(&cache->bins[size_class], &block->bin);
    umf_list_add_tail(&cache->oldest, &block->age);
}

/* A freed block is used again, or leaves the cache. Hot. */
UMF_INLINE void umf_stream_cache_pull_locked(umf_stream_cache_t *cache,
                                             umf_stream_cache_block_t *block) {
    uint32_t size_class = block->size_class;
    umf_assert_locked(&cache->lock);
    block->state = UMF_STREAM_CACHE_USED;
    cache->free_bytes -= block->size;
    umf_list_remove(&block->bin);
    umf_list_remove(&block->age);
    if (size_class < UMF_STREAM_CACHE_CLASSES && umf_list_is_empty(&cache->bins[size_class])) {
        cache->filled[size_class / 64] &= ~((uint64_t)1 << size_class % 64);
    }
}

/* The block that was freed last. NULL: the bin is empty. Hot. */
UMF_INLINE umf_stream_cache_block_t *umf_stream_cache_newest_locked(umf_stream_cache_t *cache,
                                                                    uint32_t size_class) {
    umf_assert_locked(&cache->lock);
    return umf_list_is_empty(&cache->bins[size_class])
               ? NULL
               : UMF_CONTAINER_OF(cache->bins[size_class].next, umf_stream_cache_block_t, bin);
}

/* Makes the block one of the cache. false: no memory. */
bool umf_stream_cache_add_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block);
void umf_stream_cache_remove_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block);

/* A free block of one of the classes [size_class, last] that fits the alignment; `is_completed`:
 * whose work has completed. It is used then. NULL: there is none. */
umf_stream_cache_block_t *umf_stream_cache_take_locked(umf_stream_cache_t *cache,
                                                       uint32_t size_class, uint32_t last,
                                                       size_t alignment, bool is_completed);
/* As push, of a block that is not handed out again. */
void umf_stream_cache_leave_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block);
/* As push, of a block that waits for its uses, which umf_stream_cache_await lists afterwards. */
void umf_stream_cache_wait_locked(umf_stream_cache_t *cache, umf_stream_cache_block_t *block,
                                  size_t uses);

/* --- blocks of a cache (no lock is held) --- */

/* As umf_stream_cache_add_locked. */
bool umf_stream_cache_adopt(umf_stream_cache_t *cache, umf_stream_cache_block_t *block);
/* Are there blocks that wait for other queues? */
bool umf_stream_cache_is_waiting(umf_stream_cache_t *cache);
/* The uses of a block that waits count as frees in their caches. */
void umf_stream_cache_await(umf_stream_cache_block_t *block);
/* Blocks of any cache go into their bins that have waited for this one last, as far as it has
 * completed.
 */
void umf_stream_cache_settle(umf_stream_cache_t *cache);
/* All blocks of the cache that wait go into their bins. No other thread uses the pool. */
void umf_stream_cache_settle_all(umf_stream_cache_t *cache);
/* Takes the oldest freed blocks out of the cache whose work has completed, of the frees up to
 * `freed`. They go into the list, by `age`. */
void umf_stream_cache_collect(umf_stream_cache_t *cache, uint64_t freed, umf_list_t *completed);
/* The same of all frees, for blocks of at least `size` bytes that may be handed out again. */
void umf_stream_cache_collect_large(umf_stream_cache_t *cache, size_t size, umf_list_t *completed);
/* Bytes that were freed and wait. */
size_t umf_stream_cache_pending(umf_stream_cache_t *cache);
/* Are there some? */
bool umf_stream_cache_is_pending(umf_stream_cache_t *cache);
/* The two locks, in the order of their ranks. */
void umf_stream_cache_lock_both(umf_stream_cache_t *a, umf_stream_cache_t *b);
/* Forgets a block that is in no cache. */
void umf_stream_cache_block_delete(umf_stream_cache_block_t *block);

/* --- marks: stream_cache_mark.c (no lock is held) --- */

/* Looks how far the queue is. `waits`: until all frees so far have completed. A captured queue
 * never passes. */
void umf_stream_cache_update(umf_stream_cache_t *cache, bool waits);
/* Waits for recorded marks only; does not query the driver. true: all frees are complete. */
bool umf_stream_cache_drain(umf_stream_cache_t *cache);
/* After a wait: there are frees whose work may still run, as the wait has failed. No other thread
 * uses the pool. */
bool umf_stream_cache_has_failed(umf_stream_cache_t *cache);
/* Makes `follower` wait on the device, then takes a block still in use.
 * NULL: there is none, or that is not possible. */
umf_stream_cache_block_t *umf_stream_cache_take_behind(umf_stream_cache_t *cache,
                                                       umf_queue_t follower, uint32_t size_class,
                                                       uint32_t last, size_t alignment);
/* The queue does not end until umf_stream_cache_poll_unlock. false: it has ended. */
bool umf_stream_cache_poll_lock(umf_stream_cache_t *cache);
/* The same of a cache in any state. false: another thread has it. */
bool umf_stream_cache_poll_try_lock(umf_stream_cache_t *cache);
void umf_stream_cache_poll_unlock(umf_stream_cache_t *cache);
/* Its queue ends (`is_known`), or has ended. */
void umf_stream_cache_end(umf_stream_cache_t *cache, bool is_known);

#endif
