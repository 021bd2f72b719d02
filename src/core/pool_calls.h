/*
 * The calls of a pool without layers, and its counters, as core/pool_life.c gives them to a new
 * pool.
 */
#ifndef UMF_SRC_CORE_POOL_CALLS_H
#define UMF_SRC_CORE_POOL_CALLS_H

#include "base/thread_slot.h"
#include "object/layer.h"

/* Of in-tree pools, and of those whose allocations the core counts. */
extern UMF_HIDDEN const umf_layer_calls_t umf_pool_calls, umf_pool_calls_counted;
bool umf_pool_try_free_none(void *pool, void *ptr, umf_map_entry_t entry);
umf_result_t umf_pool_usable_size(umf_memory_pool_handle_t pool, const void *ptr, size_t *size);
umf_result_t umf_pool_usable_size_by_class_offset(umf_memory_pool_handle_t pool, const void *ptr,
                                                  size_t *size);

/* A thread's count of the allocations of a pool that does not count itself. */
typedef struct umf_pool_counter_t {
    umf_thread_slot_t head;
    int64_t count; /* Sync: atomic, relaxed: only its thread writes */
} umf_pool_counter_t;

void umf_pool_counter_retire(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block);

/* Logs that the argument is NULL. INVALID_ARGUMENT. */
UMF_COLD umf_result_t umf_pool_null_argument(const char *name);

#endif
