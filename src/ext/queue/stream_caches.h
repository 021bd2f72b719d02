/*
 * Stream caches of a pool, one for each queue. A pool gets them with its first call that names a
 * queue; one without pays nothing.
 *
 * Each block that was allocated or freed on a queue has a record in one cache. The caches are a
 * layer of their pool (object/layer.h): umfFree of a block ends its record, and finds that it was
 * freed before.
 */
#ifndef UMF_SRC_EXT_QUEUE_STREAM_CACHES_H
#define UMF_SRC_EXT_QUEUE_STREAM_CACHES_H

#include "cache/decay.h"
#include "ext/queue/stream_cache.h"
#include "system/atomic.h"

/* A number for each hash of an address: how many records have it. */
#define UMF_STREAM_CACHES_HINTS 4096u
/* Of the caches that a thread has used last. */
#define UMF_STREAM_CACHES_ENTRIES 8u

typedef struct umf_stream_caches_t {
    umf_memory_pool_handle_t pool; /* Immutable */
    /* Each object is an allocation of the provider, so an IPC handle of it is no pin. Immutable */
    bool each_from_provider;
    umf_thread_slot_owner_t cached; /* umf_stream_caches_entries_t by thread */
    umf_decay_t decay;
    umf_lock_t lock;                     /* held to add a cache, and where records.c says so */
    _Atomic(umf_stream_cache_t *) first; /* caches are never removed */
    _Atomic(uint32_t) hints[UMF_STREAM_CACHES_HINTS];
} umf_stream_caches_t;

typedef struct umf_stream_caches_entry_t {
    umf_stream_cache_t *cache;
    umf_queue_t queue;
    unsigned generation;
} umf_stream_caches_entry_t;

typedef struct umf_stream_caches_entries_t {
    umf_thread_slot_t head;
    umf_stream_caches_entry_t of[UMF_STREAM_CACHES_ENTRIES];
} umf_stream_caches_entries_t;

_Static_assert(sizeof(umf_stream_caches_entries_t) <= UMF_THREAD_SLOT_EMPTY_SIZE,
               "the empty block has it");

/* Of a pool without stream caches. */
void umf_stream_caches_delete(umf_stream_caches_t *caches);

/* NULL: the pool has none yet. Hot. */
static inline umf_stream_caches_t *umf_stream_caches_of(umf_memory_pool_handle_t pool) {
    return (umf_stream_caches_t *)atomic_load_explicit(&pool->stream_caches, memory_order_acquire);
}

/* The operations of a pool that orders queues itself. NULL: stream caches do. */
static inline const umf_pool_queue_ops_t *umf_queued_of(umf_memory_pool_handle_t pool) {
    return pool->fast && pool->tracked ? pool->fast->queued : NULL;
}

/* The calling thread's entry for a queue. Hot. */
static inline const umf_stream_caches_entry_t *
umf_stream_caches_entry(const umf_stream_caches_t *caches, umf_queue_t queue) {
    const umf_stream_caches_entries_t *entries =
        (const umf_stream_caches_entries_t *)umf_thread_slot_get(caches->cached.index);
    uintptr_t at = (uintptr_t)queue;
    return &entries->of[(at >> 4 ^ at >> 9 ^ at) % UMF_STREAM_CACHES_ENTRIES];
}

/* May the entry be that of the queue? If so, its generation decides, under its lock. Hot. */
static inline bool umf_stream_caches_is_entry(const umf_stream_caches_entry_t *cached,
                                              umf_queue_t queue) {
    return cached->cache && cached->queue == queue;
}

/* The caches of a pool, made at the first call. NOT_SUPPORTED, without a message: its provider has
 * no queues, or it does not track its memory. */
umf_result_t umf_stream_caches_get(umf_memory_pool_handle_t pool, umf_stream_caches_t **caches);
/* The cache of a queue, made at its first use; the driver returns the id of the queue, and whether
 * it is captured. Errors are logged. */
umf_result_t umf_stream_caches_find(umf_stream_caches_t *caches, umf_queue_t queue,
                                    umf_stream_cache_t **cache, bool *is_captured);
/* The same for a block that is freed or used on the queue. The driver is queried only if the thread
 * has not used the queue since its cache was opened: an end of the queue closes the cache. */
umf_result_t umf_stream_caches_find_known(umf_stream_caches_t *caches, umf_queue_t queue,
                                          umf_stream_cache_t **cache);

/* Logs that the pool has no queues. Returns NOT_SUPPORTED. */
umf_result_t umf_stream_caches_refuse(umf_memory_pool_handle_t pool, umf_queue_t queue);

/* While a queue of the pool is captured its provider must not wait for the device, whether
 * the program has announced the capture or not: between the two no provider does. */
typedef struct umf_stream_caches_captured_t {
    umf_queue_t queue;
    bool is_announced;
} umf_stream_caches_captured_t;
umf_stream_caches_captured_t umf_stream_caches_announce(umf_stream_caches_t *caches,
                                                        umf_queue_t queue, bool is_captured);
void umf_stream_caches_renounce(const umf_stream_caches_captured_t *captured);

/* --- records of blocks: records.c --- */

/* What umfUseOn and umfFreeOn do with a block that is in use. The record is made if there is none.
 * `entry`: the map entry of the block. Errors are logged: it is no object of the pool, or was freed
 * before. */
umf_result_t umf_stream_caches_use(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                                   void *ptr, umf_map_entry_t entry);
umf_result_t umf_stream_caches_free(umf_stream_caches_t *caches, umf_stream_cache_t *cache,
                                    void *ptr, umf_map_entry_t entry);
/* A new record, of a block in the span, in no cache. NULL: no memory. */
umf_stream_cache_block_t *umf_stream_caches_record(umf_stream_caches_t *caches, void *ptr,
                                                   umf_span_t *span, uint32_t size_class,
                                                   size_t size);
/* Ends a record that is in no cache. */
void umf_stream_caches_forget(umf_stream_caches_t *caches, umf_stream_cache_block_t *block);
/* Functions of the layer (object/layer.h): the record of the block ends. Refused, which is logged:
 * it was freed before on a queue. */
umf_result_t umf_stream_caches_free_at(void *self, void *ptr, umf_map_entry_t entry);
bool umf_stream_caches_try_free(void *self, void *ptr, umf_map_entry_t entry);
void *umf_stream_caches_realloc(umf_memory_pool_handle_t pool, void *ptr, size_t size);

/* --- memory that waits: waiting.c --- */

/* Looks how far all queues are; `waits`: until they have completed. */
void umf_stream_caches_update(umf_stream_caches_t *caches, bool waits);
/* Returns completed blocks of at least `size` bytes to the pool. true: there was one. */
bool umf_stream_caches_give_back(umf_stream_caches_t *caches, size_t size);
/* Bytes that were freed and wait. */
size_t umf_stream_caches_pending(umf_stream_caches_t *caches);
/* Are there some? */
bool umf_stream_caches_are_pending(umf_stream_caches_t *caches);

/* Functions of the layer. */
bool umf_stream_caches_gives_back(umf_memory_pool_handle_t pool, bool waits);
void umf_stream_caches_tick(umf_memory_pool_handle_t pool);
void umf_stream_caches_close(umf_memory_pool_handle_t pool);
void umf_stream_caches_end(umf_memory_pool_handle_t pool);

#define UMF_STREAM_CACHES_EACH(caches, cache)                                                      \
    for (umf_stream_cache_t *cache = atomic_load_explicit(&(caches)->first, memory_order_acquire); \
         cache; cache = atomic_load_explicit(&cache->next, memory_order_acquire))

#endif
