/* Spans behind plain functions: their header is C11 with atomics. Each set has a map of its own. */
#ifndef UMF_TEST_UNIT_SPAN_SHIM_H
#define UMF_TEST_UNIT_SPAN_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shim_map_t shim_map_t;
typedef struct shim_set_t shim_set_t;
typedef struct umf_span_t umf_span_t;

shim_map_t *shim_map_create(bool global);
void shim_map_destroy(shim_map_t *map);
/* Holds the locks of all pages but those that share one with the page of `a` or `b`. */
void shim_map_lock_others(shim_map_t *map, uintptr_t a, uintptr_t b);
void shim_map_unlock_others(shim_map_t *map, uintptr_t a, uintptr_t b);
shim_set_t *shim_set_create(shim_map_t *map, uint32_t pool);
void shim_set_destroy(shim_set_t *set);
size_t shim_set_count(shim_set_t *set);
/* Counts by visiting. */
size_t shim_set_visit(shim_set_t *set);
size_t shim_set_drain(shim_set_t *set);

umf_result_t shim_add(shim_set_t *set, uintptr_t base, size_t size, void *cookie,
                      uint16_t class_offset, umf_span_t **span);
/* The state of a thread just before it inserts the span into the map. NULL: out of memory.
 */
umf_span_t *shim_add_unpublished(shim_set_t *set, uintptr_t base, size_t size);
umf_span_t *shim_find(shim_map_t *map, uintptr_t addr);
uint32_t shim_find_pool(shim_map_t *map, uintptr_t addr);
uint32_t shim_find_class_offset(shim_map_t *map, uintptr_t addr);
umf_result_t shim_withdraw(shim_set_t *set, umf_span_t *span, uintptr_t base);
void shim_release(umf_span_t *span);
umf_result_t shim_restore(shim_set_t *set, umf_span_t *span);
umf_result_t shim_rest(shim_set_t *set, umf_span_t *span);
bool shim_wake(shim_set_t *set, umf_span_t *span, size_t size);
void shim_end_rest(umf_span_t *span);
void shim_drop_class_offset(umf_span_t *span);
bool shim_is_live(const umf_span_t *span);
umf_result_t shim_split(shim_set_t *set, umf_span_t *span, size_t first);
umf_result_t shim_merge(shim_set_t *set, umf_span_t *low, umf_span_t *high);

uintptr_t shim_base(const umf_span_t *span);
size_t shim_size(const umf_span_t *span);
uint64_t shim_id(const umf_span_t *span);
unsigned shim_depth(const umf_span_t *span);
unsigned shim_kind(const umf_span_t *span);
void *shim_cookie(const umf_span_t *span);
void *shim_owner(const umf_span_t *span);

#ifdef __cplusplus
}
#endif

#endif
