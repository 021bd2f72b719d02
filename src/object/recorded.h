/*
 * Recorded pools: their allocations and frees go through the functions here, which tell of them
 * (object/event.h). core/pool.c, object/hold.c and queue/ install and call them.
 */
#ifndef UMF_SRC_OBJECT_RECORDED_H
#define UMF_SRC_OBJECT_RECORDED_H

#include "object/event.h"
#include "object/object.h"

/* What a pool does inside of a call that is told of is not: it may allocate and free itself.
 * Returns what leave needs. */
uint32_t umf_recorded_enter(umf_memory_pool_handle_t pool);
void umf_recorded_leave(uint32_t before);
/* Is the thread in such a call of this pool? */
bool umf_recorded_is_inside(umf_memory_pool_handle_t pool);

static inline bool umf_is_recorded(umf_memory_pool_handle_t pool) {
    return umf_unlikely(atomic_load_explicit(&pool->is_recorded, memory_order_relaxed));
}

/* Tells what came of a request. `ptr`: NULL if it was refused. Returns it. */
UMF_COLD void *umf_recorded_allocated(umf_memory_pool_handle_t pool, void *ptr, size_t size,
                                      const void *queue);

/* Tells of a free, makes it, and tells if it is refused. `arg`: for `free`. */
typedef umf_result_t (*umf_recorded_free_t)(umf_memory_pool_handle_t pool, void *ptr,
                                            const void *arg);
UMF_COLD umf_result_t umf_recorded_free(umf_memory_pool_handle_t pool, void *ptr, const void *queue,
                                        umf_recorded_free_t free, const void *arg);

/* free_at of recorded pools, which ends in the pool's free_unrecorded, and try_free, which never
 * frees: its caller goes on to free_at. */
umf_result_t umf_recorded_free_at(void *self, void *ptr, umf_map_entry_t entry);
bool umf_recorded_try_free(void *self, void *ptr, umf_map_entry_t entry);

#endif
