/*
 * Lane: the blocks allocated and freed on one queue, in one pool.
 *
 * A block that is freed on a queue stays allocated in its pool. It waits in a bin of the lane, by
 * its class of sizes, and the next allocation of that class on the queue takes it: a list under the
 * lane's lock, no call of a driver.
 *
 * Frees are counted. A mark of the provider (umf/plugin.h) stands behind all frees up to its count.
 * It is made when another queue or the host requests the memory; when it has completed, these
 * blocks are unused.
 */
#ifndef UMF_SRC_EXT_QUEUE_LANE_H
#define UMF_SRC_EXT_QUEUE_LANE_H

#include <umf/queue.h>

#include "base/event_count.h"
#include "ds/hash.h"
#include "ds/list.h"
#include "object/object.h"

typedef struct umf_lane_t umf_lane_t;

/* --- classes of sizes: sixteen for each power of two --- */

#define UMF_LANE_STEPS 16u
#define UMF_LANE_CLASS_FIRST (5 * UMF_LANE_STEPS)
#define UMF_LANE_CLASSES (42 * UMF_LANE_STEPS) /* up to 128 TiB */
#define UMF_LANE_SIZE_MIN ((size_t)64)

/* The smallest class whose blocks have `size` bytes; UMF_LANE_CLASSES or more: there is none. Hot.
 */
UMF_INLINE uint32_t umf_lane_class(size_t size) {
    uint64_t last = size <= UMF_LANE_SIZE_MIN ? UMF_LANE_SIZE_MIN - 1 : size - 1;
    uint32_t top = 63 - (uint32_t)__builtin_clzll(last);
    uint32_t step = (uint32_t)(last >> (top - 4)) & (UMF_LANE_STEPS - 1);
    return top * UMF_LANE_STEPS + step - UMF_LANE_CLASS_FIRST - (UMF_LANE_STEPS - 1);
}

static inline size_t umf_lane_class_size(uint32_t class) {
    uint32_t at = class + UMF_LANE_CLASS_FIRST + (UMF_LANE_STEPS - 1);
    return (size_t)(UMF_LANE_STEPS + 1 + at % UMF_LANE_STEPS) << (at / UMF_LANE_STEPS - 4);
}

/* --- blocks --- */

typedef enum umf_lane_state_t {
    UMF_LANE_USED,
    UMF_LANE_FREE,    /* in its bin */
    UMF_LANE_WAITING, /* freed, but queues of umfUseOn have not completed */
    UMF_LANE_LEAVING, /* freed, in no bin: it is not handed out again here */
} umf_lane_state_t;

typedef struct umf_lane_block_t umf_lane_block_t;

/* Another queue that uses a block. */
typedef struct umf_lane_use_t {
    umf_lane_t *lane; /* Immutable, as the next */
    umf_lane_block_t *block;
    umf_list_t link;             /* of the lane's uses, once the block is freed. Sync: its lock */
    uint64_t freed;              /* the count of that lane's frees at the block's free. Likewise */
    struct umf_lane_use_t *next; /* of the block */
} umf_lane_use_t;

/* Sync: the lock of the lane that has it. */
struct umf_lane_block_t {
    umf_list_t bin;
    umf_list_t age; /* of all that are free, or of all that wait */
    uintptr_t addr;
    uint64_t freed; /* the count of the lane's frees at its own */
    size_t size;    /* the size of the class, or that of the pool's block */
    uint32_t class;
    umf_lane_state_t state;
    bool is_leaving; /* after it has waited */
    umf_lane_use_t *uses;
    umf_lane_t *lane;         /* in which it waits */
    _Atomic size_t uses_left; /* the uses that it waits for */
};

/* --- lanes --- */

#define UMF_LANE_MARKS 8

typedef struct umf_lane_mark_t {
    void *mark;
    uint64_t freed; /* it stands behind as many frees */
} umf_lane_mark_t;

typedef enum umf_lane_kind_t {
    UMF_LANE_OPEN,
    UMF_LANE_ENDED, /* its queue was named by umfQueueEnds: its last mark stands behind all */
    UMF_LANE_LOST,  /* its queue was destroyed, or fails: only a wait for all queues helps */
} umf_lane_kind_t;

struct umf_lane_t {
    umf_lock_t lock;
    unsigned generation; /* one more when its queue ends. Sync: lock, as all without a note */
    umf_lane_kind_t kind;
    uint64_t freed;    /* the count of frees */
    umf_hash_t blocks; /* by address */
    umf_list_t bins[UMF_LANE_CLASSES];
    uint64_t filled[UMF_LANE_CLASSES / 64 + 1]; /* bit by class: there is something in its bin */
    umf_list_t oldest;                          /* free and leaving blocks, oldest free first */
    umf_list_t waiting;                         /* blocks that wait for other lanes */
    umf_list_t uses;               /* of freed blocks that wait for this lane, by their `freed` */
    size_t bytes;                  /* of all blocks */
    size_t free_bytes;             /* of those that were freed */
    size_t waiting_bytes;          /* of those that wait for other lanes */
    uint64_t aged;                 /* the count of frees at the last decay pass */
    uint64_t trimmed;              /* frees up to this one go back to the pool */
    umf_memory_pool_handle_t pool; /* Immutable */
    umf_queue_t queue;             /* Sync: written with polling lock and lock, as the next two */
    uint64_t id;
    uint64_t thread;            /* the only thread that may mark it; 0: any */
    _Atomic uint64_t completed; /* frees up to this one have completed */
    _Atomic unsigned pins;      /* uses that name the lane */
    _Atomic unsigned poller; /* the thread with the polling lock has the marks; see lane_mark.c */
    umf_lane_mark_t marks[UMF_LANE_MARKS + 1]; /* oldest first; one is the last of a queue that
                                                  ends. Sync: polling lock, as the next three */
    bool is_captured;                          /* by the last try to mark it */
    unsigned mark_count;
    unsigned awaited; /* a thread waits for the oldest: umf_fork_count() + 1; 0: none does */
    umf_event_count_t passes;   /* advanced when that thread has the polling lock again */
    _Atomic(umf_lane_t *) next; /* of the pool */
};

void umf_lane_init(umf_lane_t *lane, umf_memory_pool_handle_t pool);
/* Frees the lane's own memory, and the records of its blocks. */
void umf_lane_fini(umf_lane_t *lane);

static inline bool umf_lane_has_filled(const umf_lane_t *lane, uint32_t class) {
    return lane->filled[class / 64] >> class % 64 & 1;
}

/* --- blocks of a lane (the lock is held) --- */

UMF_INLINE umf_lane_block_t *umf_lane_find_locked(umf_lane_t *lane, const void *ptr) {
    umf_assert_locked(&lane->lock);
    return umf_hash_get(&lane->blocks, (uintptr_t)ptr);
}

/* A used block becomes free. Hot. */
UMF_INLINE void umf_lane_push_locked(umf_lane_t *lane, umf_lane_block_t *block) {
    uint32_t class = block->class;
    umf_assert_locked(&lane->lock);
    block->state = UMF_LANE_FREE;
    block->freed = ++lane->freed;
    lane->free_bytes += block->size;
    lane->filled[class / 64] |= (uint64_t)1 << class % 64;
    umf_list_add(&lane->bins[class], &block->bin);
    umf_list_add_tail(&lane->oldest, &block->age);
}

/* A freed block is used again, or leaves the lane. Hot. */
UMF_INLINE void umf_lane_pull_locked(umf_lane_t *lane, umf_lane_block_t *block) {
    uint32_t class = block->class;
    umf_assert_locked(&lane->lock);
    block->state = UMF_LANE_USED;
    lane->free_bytes -= block->size;
    umf_list_remove(&block->bin);
    umf_list_remove(&block->age);
    if (class < UMF_LANE_CLASSES && umf_list_is_empty(&lane->bins[class])) {
        lane->filled[class / 64] &= ~((uint64_t)1 << class % 64);
    }
}

/* The block that was freed last. NULL: the bin is empty. Hot. */
UMF_INLINE umf_lane_block_t *umf_lane_newest_locked(umf_lane_t *lane, uint32_t class) {
    umf_assert_locked(&lane->lock);
    return umf_list_is_empty(&lane->bins[class])
               ? NULL
               : UMF_CONTAINER_OF(lane->bins[class].next, umf_lane_block_t, bin);
}

/* Makes the block one of the lane. false: no memory. */
bool umf_lane_add_locked(umf_lane_t *lane, umf_lane_block_t *block);
void umf_lane_remove_locked(umf_lane_t *lane, umf_lane_block_t *block);

/* A free block of one of the classes [class, last] that fits the alignment; `is_completed`: whose
 * work has completed. It is used then. NULL: there is none. */
umf_lane_block_t *umf_lane_take_locked(umf_lane_t *lane, uint32_t class, uint32_t last,
                                       size_t alignment, bool is_completed);
/* As push, of a block that is not handed out again. */
void umf_lane_leave_locked(umf_lane_t *lane, umf_lane_block_t *block);
/* As push, of a block that waits for its uses, which umf_lane_await lists afterwards. */
void umf_lane_wait_locked(umf_lane_t *lane, umf_lane_block_t *block, size_t uses);

/* --- blocks of a lane (no lock is held) --- */

/* As umf_lane_add_locked. */
bool umf_lane_adopt(umf_lane_t *lane, umf_lane_block_t *block);
/* Are there blocks that wait for other queues? */
bool umf_lane_is_waiting(umf_lane_t *lane);
/* The uses of a block that waits count as frees in their lanes. */
void umf_lane_await(umf_lane_block_t *block);
/* Blocks of any lane go into their bins that have waited for this one last, as far as it has
 * completed.
 */
void umf_lane_settle(umf_lane_t *lane);
/* All blocks of the lane that wait go into their bins. No other thread uses the pool. */
void umf_lane_settle_all(umf_lane_t *lane);
/* Takes the oldest freed blocks out of the lane whose work has completed, of the frees up to
 * `freed`. They go into the list, by `age`. */
void umf_lane_collect(umf_lane_t *lane, uint64_t freed, umf_list_t *completed);
/* The same of all frees, for blocks of at least `size` bytes that may be handed out again. */
void umf_lane_collect_large(umf_lane_t *lane, size_t size, umf_list_t *completed);
/* Bytes that were freed and wait. */
size_t umf_lane_pending(umf_lane_t *lane);
/* Are there some? */
bool umf_lane_is_pending(umf_lane_t *lane);
/* The two locks, in the order of their ranks. */
void umf_lane_lock_both(umf_lane_t *a, umf_lane_t *b);
/* Forgets a block that is in no lane. */
void umf_lane_block_delete(umf_lane_block_t *block);

/* --- marks: lane_mark.c (no lock is held) --- */

/* Looks how far the queue is. `waits`: until all frees so far have completed. A captured queue
 * never passes. */
void umf_lane_update(umf_lane_t *lane, bool waits);
/* Waits for recorded marks only; does not query the driver. true: all frees are complete. */
bool umf_lane_drain(umf_lane_t *lane);
/* After a wait: there are frees whose work may still run, as the wait has failed. No other thread
 * uses the pool. */
bool umf_lane_has_failed(umf_lane_t *lane);
/* Makes `follower` wait on the device, then takes a block still in use.
 * NULL: there is none, or that is not possible. */
umf_lane_block_t *umf_lane_take_behind(umf_lane_t *lane, umf_queue_t follower, uint32_t class,
                                       uint32_t last, size_t alignment);
/* The queue does not end until umf_lane_release. false: it has ended. */
bool umf_lane_hold(umf_lane_t *lane);
/* The same of a lane in any state. false: another thread has it. */
bool umf_lane_try_hold(umf_lane_t *lane);
void umf_lane_release(umf_lane_t *lane);
/* Its queue ends (`is_known`), or has ended. */
void umf_lane_end(umf_lane_t *lane, bool is_known);

#endif
