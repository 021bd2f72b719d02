#include "span_shim.h"

#include <stdlib.h>

#include "track/span.h"

struct shim_map_t {
    umf_map_t own;
    umf_map_t *map;
};

struct shim_set_t {
    umf_span_set_t set;
};

shim_map_t *shim_map_create(bool global) {
    shim_map_t *map = calloc(1, sizeof(*map));
    map->map = global ? &umf_map_global : &map->own;
    if (!global && umf_map_init(&map->own) != UMF_RESULT_SUCCESS) {
        free(map);
        return NULL;
    }
    return map;
}

void shim_map_destroy(shim_map_t *map) {
    if (map->map == &map->own) {
        umf_map_fini(&map->own);
    }
    free(map);
}

static bool is_shard_of(const umf_map_t *map, uint32_t i, uintptr_t a, uintptr_t b) {
    return &map->shards[i] == umf_map_shard_of(map, a) ||
           &map->shards[i] == umf_map_shard_of(map, b);
}

void shim_map_lock_others(shim_map_t *map, uintptr_t a, uintptr_t b) {
    for (uint32_t i = 0; i <= map->map->shard_mask; i++) {
        if (!is_shard_of(map->map, i, a, b)) {
            umf_lock(&map->map->shards[i].lock);
        }
    }
}

void shim_map_unlock_others(shim_map_t *map, uintptr_t a, uintptr_t b) {
    for (uint32_t i = map->map->shard_mask + 1; i-- > 0;) {
        if (!is_shard_of(map->map, i, a, b)) {
            umf_unlock(&map->map->shards[i].lock);
        }
    }
}

shim_set_t *shim_set_create(shim_map_t *map, uint32_t pool) {
    shim_set_t *set = calloc(1, sizeof(*set));
    umf_span_set_init(&set->set, map->map, pool);
    return set;
}

void shim_set_destroy(shim_set_t *set) {
    umf_span_set_fini(&set->set);
    free(set);
}

size_t shim_set_count(shim_set_t *set) {
    return set->set.count;
}

static void count_one(umf_span_t *span, void *count) {
    (void)span;
    ++*(size_t *)count;
}

static bool visit_one(umf_span_t *span, void *count) {
    count_one(span, count);
    return true;
}

size_t shim_set_visit(shim_set_t *set) {
    size_t count = 0;
    umf_span_each(&set->set, visit_one, &count);
    return count;
}

size_t shim_set_drain(shim_set_t *set) {
    size_t count = 0;
    umf_span_set_drain(&set->set, count_one, &count);
    return count;
}

umf_result_t shim_add(shim_set_t *set, uintptr_t base, size_t size, void *cookie,
                      uint16_t class_offset, umf_span_t **span) {
    return umf_span_add(&set->set, base, size, UMF_SPAN_POOL, cookie, class_offset, span);
}

umf_span_t *shim_add_unpublished(shim_set_t *set, uintptr_t base, size_t size) {
    const uintptr_t elsewhere = base + ((uintptr_t)1 << 40); /* not there, for it makes tables */
    umf_span_t *span = NULL;
    if (shim_add(set, elsewhere, 1, NULL, 0, &span) == UMF_RESULT_SUCCESS) {
        umf_map_remove(set->set.map, elsewhere, 1, umf_span_map_entry(&set->set, span), 0);
        span->base = base;
        span->size = size;
    }
    return span;
}

umf_span_t *shim_find(shim_map_t *map, uintptr_t addr) {
    return umf_span_find(map->map, addr, NULL);
}

uint32_t shim_find_pool(shim_map_t *map, uintptr_t addr) {
    umf_map_entry_t word = 0;
    umf_span_find(map->map, addr, &word);
    return umf_map_entry_pool(word);
}

uint32_t shim_find_class_offset(shim_map_t *map, uintptr_t addr) {
    umf_map_entry_t word = 0;
    umf_span_find(map->map, addr, &word);
    return (uint32_t)umf_map_entry_class_offset(word);
}

umf_result_t shim_withdraw(shim_set_t *set, umf_span_t *span, uintptr_t base) {
    return umf_span_withdraw(&set->set, span, base);
}

void shim_release(umf_span_t *span) {
    umf_span_release(span->set, span);
}

umf_result_t shim_restore(shim_set_t *set, umf_span_t *span) {
    return umf_span_restore(&set->set, span);
}

umf_result_t shim_rest(shim_set_t *set, umf_span_t *span) {
    umf_result_t result = umf_span_withdraw(&set->set, span, span->base);
    if (result == UMF_RESULT_SUCCESS) {
        umf_span_begin_dormancy(span);
    }
    return result;
}

bool shim_wake(shim_set_t *set, umf_span_t *span, size_t size) {
    return umf_span_wake(&set->set, span, size);
}

void shim_end_rest(umf_span_t *span) {
    umf_span_end_dormancy(span);
}

void shim_drop_class_offset(umf_span_t *span) {
    umf_span_drop_class_offset(span);
}

bool shim_is_live(const umf_span_t *span) {
    return umf_span_is_live(span);
}

umf_result_t shim_split(shim_set_t *set, umf_span_t *span, size_t first) {
    return umf_span_split(&set->set, span, first);
}

umf_result_t shim_merge(shim_set_t *set, umf_span_t *low, umf_span_t *high) {
    return umf_span_merge(&set->set, low, high);
}

uintptr_t shim_base(const umf_span_t *span) {
    return span->base;
}
size_t shim_size(const umf_span_t *span) {
    return span->size;
}
uint64_t shim_id(const umf_span_t *span) {
    return span->id;
}
unsigned shim_depth(const umf_span_t *span) {
    return span->depth;
}
unsigned shim_kind(const umf_span_t *span) {
    return umf_span_kind(span);
}
void *shim_cookie(const umf_span_t *span) {
    return span->cookie;
}
void *shim_owner(const umf_span_t *span) {
    return UMF_CONTAINER_OF(span->set, shim_set_t, set);
}
