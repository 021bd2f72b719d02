#include "map_shim.h"

#include <stdlib.h>

#include "track/map_run.h"

struct shim_map_t {
    umf_map_t map;
};

shim_map_t *shim_map_create(bool is_reserved) {
    shim_map_t *map = calloc(1, sizeof(*map));
    if (map && umf_map_init(&map->map) != UMF_RESULT_SUCCESS) {
        free(map);
        return NULL;
    }
    if (map && is_reserved) {
        umf_map_reserve(&map->map);
    }
    return map;
}

bool shim_map_is_reserved(const shim_map_t *map) {
    return map->map.flat != NULL;
}

void shim_map_destroy(shim_map_t *map) {
    umf_map_fini(&map->map);
    free(map);
}

uint64_t shim_word(uint32_t class_offset, uint32_t pool, uint32_t span) {
    return umf_map_entry_make((uint16_t)class_offset, pool, span);
}
uint32_t shim_word_class_offset(uint64_t word) {
    return (uint32_t)umf_map_entry_class_offset(word);
}
uint32_t shim_word_pool(uint64_t word) {
    return umf_map_entry_pool(word);
}
uint32_t shim_word_span(uint64_t word) {
    return umf_map_entry_span(word);
}

/* Some words leave out the short way that spans try first. */
static bool is_near(uintptr_t base, size_t size, uint64_t word) {
    return umf_map_entry_span(word) % 2 && umf_map_is_near(base, size);
}

umf_result_t shim_map_insert(shim_map_t *map, uintptr_t base, size_t size, uint64_t under,
                             uint64_t word) {
    return !under && is_near(base, size, word) && umf_map_insert_near(&map->map, base, size, word)
               ? UMF_RESULT_SUCCESS
               : umf_map_insert(&map->map, base, size, under, word);
}

void shim_map_remove(shim_map_t *map, uintptr_t base, size_t size, uint64_t word, uint64_t under) {
    if (!is_near(base, size, word) || !umf_map_remove_near(&map->map, base, size, word, under)) {
        umf_map_remove(&map->map, base, size, word, under);
    }
}

bool shim_map_insert_near(shim_map_t *map, uintptr_t base, size_t size, uint64_t word) {
    return umf_map_insert_near(&map->map, base, size, word);
}

bool shim_map_remove_near(shim_map_t *map, uintptr_t base, size_t size, uint64_t word) {
    return umf_map_remove_near(&map->map, base, size, word, UMF_MAP_ENTRY_EMPTY);
}

void shim_map_rename(shim_map_t *map, uintptr_t base, size_t size, uint64_t word, uint64_t to) {
    umf_map_rename(&map->map, base, size, word, to);
}

umf_result_t shim_map_split(shim_map_t *map, uintptr_t base, size_t size, size_t first,
                            uint64_t low, uint64_t high, uint64_t under) {
    return umf_map_split(&map->map, base, size, first, low, high, under);
}

bool shim_map_is_uniform(shim_map_t *map, uintptr_t base, size_t size, uint64_t word) {
    return umf_map_is_uniform(&map->map, base, size, word);
}

uint64_t shim_map_find(shim_map_t *map, uintptr_t addr) {
    return umf_map_find(&map->map, addr);
}

bool shim_map_is_fast(shim_map_t *map, uintptr_t addr) {
    umf_map_entry_t word;
    return umf_map_find_fast(&map->map, addr, &word) && word != 0;
}
