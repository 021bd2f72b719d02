/*
 * Lanes: the queues of a pool. A pool gets them with its first call that names a queue;
 * one without pays nothing.
 *
 * Each block that was allocated or freed on a queue has a record in one lane. The lanes are a layer
 * of their pool (object/layer.h): umfFree of a block ends its record, and finds that it was freed
 * before.
 */
#ifndef UMF_SRC_EXT_QUEUE_LANES_H
#define UMF_SRC_EXT_QUEUE_LANES_H

#include "cache/decay.h"
#include "ext/queue/lane.h"

/* A number for each hash of an address: how many records have it. */
#define UMF_LANES_HINTS 4096u
/* Of the lanes that a thread has used last. */
#define UMF_LANES_CACHED 8u

typedef struct umf_lanes_t {
    umf_memory_pool_handle_t pool; /* Immutable */
    /* Each object is an allocation of the provider, so an IPC handle of it is no hold. Immutable */
    bool each_from_provider;
    umf_thread_slot_owner_t cached; /* umf_lanes_cache_t by thread */
    umf_decay_t decay;
    umf_lock_t lock;             /* held to add a lane, and where records.c says so */
    _Atomic(umf_lane_t *) first; /* lanes are never removed */
    _Atomic uint32_t hints[UMF_LANES_HINTS];
} umf_lanes_t;

typedef struct umf_lanes_cached_t {
    umf_lane_t *lane;
    umf_queue_t queue;
    unsigned generation;
} umf_lanes_cached_t;

typedef struct umf_lanes_cache_t {
    umf_thread_slot_t head;
    umf_lanes_cached_t of[UMF_LANES_CACHED];
} umf_lanes_cache_t;

_Static_assert(sizeof(umf_lanes_cache_t) <= UMF_THREAD_SLOT_EMPTY_SIZE, "the empty block has it");

/* Of a pool without lanes. */
void umf_lanes_delete(umf_lanes_t *lanes);

/* NULL: the pool has none yet. Hot. */
static inline umf_lanes_t *umf_lanes_of(umf_memory_pool_handle_t pool) {
    return atomic_load_explicit(&pool->lanes, memory_order_acquire);
}

/* The operations of a pool that orders queues itself. NULL: lanes do. */
static inline const umf_pool_queue_ops_t *umf_queued_of(umf_memory_pool_handle_t pool) {
    return pool->fast && pool->tracked ? pool->fast->queued : NULL;
}

/* The calling thread's entry for a queue. Hot. */
static inline const umf_lanes_cached_t *umf_lanes_cached(const umf_lanes_t *lanes,
                                                         umf_queue_t queue) {
    const umf_lanes_cache_t *cache =
        (const umf_lanes_cache_t *)umf_thread_slot_get(lanes->cached.index);
    uintptr_t at = (uintptr_t)queue;
    return &cache->of[(at >> 4 ^ at >> 9 ^ at) % UMF_LANES_CACHED];
}

/* May the cached lane be that of the queue? If so, its generation decides, under its lock. Hot. */
static inline bool umf_lanes_is_cached(const umf_lanes_cached_t *cached, umf_queue_t queue) {
    return cached->lane && cached->queue == queue;
}

/* The lanes of a pool, made at the first call. NOT_SUPPORTED, without a message: its provider has
 * no queues, or it does not track its memory. */
umf_result_t umf_lanes_get(umf_memory_pool_handle_t pool, umf_lanes_t **lanes);
/* The lane of a queue, made at its first use; the driver returns the id of the queue, and whether
 * it is captured. Errors are logged. */
umf_result_t umf_lanes_find(umf_lanes_t *lanes, umf_queue_t queue, umf_lane_t **lane,
                            bool *is_captured);
/* The same for a block that is freed or used on the queue. The driver is queried only if the thread
 * has not used the queue since its lane was opened: an end of the queue closes the lane. */
umf_result_t umf_lanes_find_known(umf_lanes_t *lanes, umf_queue_t queue, umf_lane_t **lane);

/* Logs that the pool has no queues. Returns NOT_SUPPORTED. */
umf_result_t umf_lanes_refuse(umf_memory_pool_handle_t pool, umf_queue_t queue);

/* While a queue of the pool is captured its provider must not wait for the device, whether
 * the program has announced the capture or not: between the two no provider does. */
typedef struct umf_lanes_captured_t {
    umf_queue_t queue;
    bool is_announced;
} umf_lanes_captured_t;
umf_lanes_captured_t umf_lanes_announce(umf_lanes_t *lanes, umf_queue_t queue, bool is_captured);
void umf_lanes_renounce(const umf_lanes_captured_t *captured);

/* --- records of blocks: records.c --- */

/* What umfUseOn and umfFreeOn do with a block that is in use. The record is made if there is none.
 * `entry`: the map entry of the block. Errors are logged: it is no object of the pool, or was freed
 * before. */
umf_result_t umf_lanes_use(umf_lanes_t *lanes, umf_lane_t *lane, void *ptr, umf_map_entry_t entry);
umf_result_t umf_lanes_free(umf_lanes_t *lanes, umf_lane_t *lane, void *ptr, umf_map_entry_t entry);
/* A new record, of a block in the span, in no lane. NULL: no memory. */
umf_lane_block_t *umf_lanes_record(umf_lanes_t *lanes, void *ptr, umf_span_t *span, uint32_t class,
                                   size_t size);
/* Ends a record that is in no lane. */
void umf_lanes_forget(umf_lanes_t *lanes, umf_lane_block_t *block);
/* Functions of the layer (object/layer.h): the record of the block ends. Refused, which is logged:
 * it was freed before on a queue. */
umf_result_t umf_lanes_free_at(void *self, void *ptr, umf_map_entry_t entry);
bool umf_lanes_try_free(void *self, void *ptr, umf_map_entry_t entry);
void *umf_lanes_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size);

/* --- memory that waits: waiting.c --- */

/* Looks how far all queues are; `waits`: until they have completed. */
void umf_lanes_update(umf_lanes_t *lanes, bool waits);
/* Returns completed blocks of at least `size` bytes to the pool. true: there was one. */
bool umf_lanes_give_back(umf_lanes_t *lanes, size_t size);
/* Bytes that were freed and wait. */
size_t umf_lanes_pending(umf_lanes_t *lanes);
/* Are there some? */
bool umf_lanes_are_pending(umf_lanes_t *lanes);

/* Functions of the layer. */
bool umf_lanes_gives_back(umf_memory_pool_handle_t pool, bool waits);
void umf_lanes_tick(umf_memory_pool_handle_t pool);
void umf_lanes_close(umf_memory_pool_handle_t pool);
void umf_lanes_end(umf_memory_pool_handle_t pool);

#define UMF_LANES_EACH(lanes, lane)                                                                \
    for (umf_lane_t *lane = atomic_load_explicit(&(lanes)->first, memory_order_acquire); lane;     \
         lane = atomic_load_explicit(&lane->next, memory_order_acquire))

#endif
