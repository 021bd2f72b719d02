/* The map and the spans behind plain functions: their headers are C11 with atomics. */
#ifndef UMF_TEST_UNIT_MAP_SHIM_H
#define UMF_TEST_UNIT_MAP_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shim_map_t shim_map_t;

shim_map_t *shim_map_create(bool is_reserved); /* a private one; with a flat table? */
bool shim_map_is_reserved(const shim_map_t *map);
void shim_map_destroy(shim_map_t *map);

uint64_t shim_word(uint32_t class_offset, uint32_t pool, uint32_t span);
uint32_t shim_word_class_offset(uint64_t word);
uint32_t shim_word_pool(uint64_t word);
uint32_t shim_word_span(uint64_t word);

umf_result_t shim_map_insert(shim_map_t *map, uintptr_t base, size_t size, uint64_t under,
                             uint64_t word);
void shim_map_remove(shim_map_t *map, uintptr_t base, size_t size, uint64_t word, uint64_t under);
void shim_map_rename(shim_map_t *map, uintptr_t base, size_t size, uint64_t word, uint64_t to);
umf_result_t shim_map_split(shim_map_t *map, uintptr_t base, size_t size, size_t first,
                            uint64_t low, uint64_t high, uint64_t under);
/* The short way; false if it is not so simple. */
bool shim_map_insert_near(shim_map_t *map, uintptr_t base, size_t size, uint64_t word);
bool shim_map_remove_near(shim_map_t *map, uintptr_t base, size_t size, uint64_t word);
bool shim_map_is_uniform(shim_map_t *map, uintptr_t base, size_t size, uint64_t word);
uint64_t shim_map_find(shim_map_t *map, uintptr_t addr);
bool shim_map_is_fast(shim_map_t *map, uintptr_t addr); /* does the short walk find something? */

#ifdef __cplusplus
}
#endif

#endif
