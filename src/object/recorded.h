/*
 * Recorded pools: a layer (object/layer.h) emits events for their allocations and frees
 * (object/event.h). core/pool.c and queue/ call the functions here for calls that enter elsewhere.
 */
#ifndef UMF_SRC_OBJECT_RECORDED_H
#define UMF_SRC_OBJECT_RECORDED_H

#include "object/event.h"
#include "object/object.h"

/* Nested calls emit no events: a pool may allocate and free itself.
 * Returns the argument of leave. */
uint32_t umf_recorded_enter(umf_memory_pool_handle_t pool);
void umf_recorded_leave(uint32_t before);
/* Is the thread in such a call of this pool? */
bool umf_recorded_is_inside(umf_memory_pool_handle_t pool);

static inline bool umf_is_recorded(umf_memory_pool_handle_t pool) {
    return umf_unlikely(__atomic_load_n(&pool->layers[UMF_LAYER_RECORD], __ATOMIC_RELAXED) != NULL);
}

/* Tells what came of a request. `ptr`: NULL if it was refused. Returns it. */
UMF_COLD void *umf_recorded_allocated(umf_memory_pool_handle_t pool, void *ptr, size_t size,
                                      const void *queue);

/* Emits the event of a free, frees, and emits another if that is refused. `arg`: for `free`. */
typedef umf_result_t (*umf_recorded_free_t)(umf_memory_pool_handle_t pool, void *ptr,
                                            const void *arg);
UMF_COLD umf_result_t umf_recorded_free(umf_memory_pool_handle_t pool, void *ptr, const void *queue,
                                        umf_recorded_free_t free, const void *arg);

#endif
