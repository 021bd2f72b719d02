/* Memory watches: see memory_watch.h. */
#include "object/provider/memory_watch.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"

struct umf_memory_watch_t {
    umf_memory_pool_handle_t pool; /* Immutable */
    umf_memory_callbacks_t *list;  /* Sync: changed while no other thread uses the pool */
    size_t count, room;
};

/* --- runs ------------------------------------------------------------------------------------- */

/* The physical memory at an address. `run` has the span, which stays if the provider's memory has
 * no pieces. */
static umf_result_t run_find(const umf_tracked_provider_t *tracked, uintptr_t address,
                             umf_memory_run_t *run) {
    umf_vm_piece_t piece;
    const umf_memory_pool_handle_t pool =
        atomic_load_explicit(&umf_pool_table[tracked->spans.pool], memory_order_acquire);
    const umf_pool_pieces_ops_t *own = pool && pool->fast ? pool->fast->pieces : NULL;
    const umf_memory_provider_ext_ops_t *ext = own ? own->vm : tracked->ext;
    if (!ext->vm_find) {
        return UMF_RESULT_SUCCESS;
    }
    if (!ext->vm_run) {
        UMF_LOG_ERROR("the provider of %p has no operation vm_run (umf/plugin.h), so its physical "
                      "memory is not known",
                      (void *)address);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result = ext->vm_run(own ? pool->self : tracked->self, (void *)address, &piece,
                                      &run->handle, &run->generation);
    if (result == UMF_RESULT_SUCCESS && !piece.attached) {
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    if (result == UMF_RESULT_SUCCESS) {
        run->base = piece.base;
        run->size = piece.size;
    }
    return result;
}

umf_result_t umf_memory_run_at(const umf_tracked_provider_t *tracked, uintptr_t address,
                               const umf_span_t *span, umf_memory_run_t *run) {
    *run =
        (umf_memory_run_t){.base = (void *)span->base, .size = span->size, .generation = span->id};
    umf_result_t result = run_find(tracked, address, run);
    if (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES) {
        UMF_LOG_ERROR("%p has no physical memory: its pool is suspended", (void *)address);
    }
    return result;
}

/* The part of a run that callbacks receive: memory of the pool only. */
static umf_result_t part_of(const umf_tracked_provider_t *tracked, void *base, size_t size,
                            uint64_t id, umf_memory_run_t *run) {
    *run = (umf_memory_run_t){.generation = id};
    umf_result_t result = run_find(tracked, (uintptr_t)base, run);
    run->base = base;
    run->size = size;
    return result;
}

/* --- calls ------------------------------------------------------------------------------------ */

static void call_unmapping(const umf_memory_watch_t *watch, size_t count,
                           const umf_memory_run_t *run) {
    for (size_t i = count; i-- > 0;) {
        if (watch->list[i].unmapping) {
            watch->list[i].unmapping(watch->list[i].arg, watch->pool, run);
        }
    }
}

static umf_result_t call_mapped(const umf_memory_watch_t *watch, size_t first,
                                const umf_memory_run_t *run) {
    for (size_t i = first; i < watch->count; i++) {
        const umf_memory_callbacks_t *callbacks = &watch->list[i];
        umf_result_t result = callbacks->mapped
                                  ? callbacks->mapped(callbacks->arg, watch->pool, run)
                                  : UMF_RESULT_SUCCESS;
        if (result != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("a callback refuses %zu bytes at %p of pool %p: result %d", run->size,
                          run->base, (void *)watch->pool, (int)result);
            call_unmapping(watch, i, run);
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

static uint64_t id_at(const umf_tracked_provider_t *tracked, const void *base) {
    const umf_span_t *span = umf_tracked_find(tracked, base);
    return span ? span->id : 0;
}

umf_result_t umf_memory_watch_mapped(const umf_tracked_provider_t *tracked, void *base,
                                     size_t size) {
    umf_memory_run_t run;
    umf_result_t result = part_of(tracked, base, size, id_at(tracked, base), &run);
    return result == UMF_RESULT_SUCCESS ? call_mapped(umf_memory_watch_of(tracked), 0, &run)
                                        : result;
}

void umf_memory_watch_unmapping(const umf_tracked_provider_t *tracked, void *base, size_t size,
                                uint64_t id) {
    const umf_memory_watch_t *watch = umf_memory_watch_of(tracked);
    umf_memory_run_t run;
    if (part_of(tracked, base, size, id, &run) == UMF_RESULT_SUCCESS) {
        call_unmapping(watch, watch->count, &run);
    }
}

/* --- adding and removing ---------------------------------------------------------------------- */

/* Memory that the pool has when a callback is added. */
typedef struct range_t {
    const umf_tracked_provider_t *tracked;
    uintptr_t base;
    size_t size;
    uint64_t id;
} range_t;

typedef struct ranges_t {
    const umf_tracked_provider_t *tracked; /* whose spans are listed now */
    range_t *list;
    size_t count, room;
} ranges_t;

static bool range_list(umf_span_t *span, void *arg) {
    ranges_t *ranges = arg;
    if (umf_span_is_live(span) && ranges->count < ranges->room) {
        ranges->list[ranges->count++] =
            (range_t){ranges->tracked, span->base, span->size, span->id};
    }
    return true;
}

/* The spans of the tracked provider of the pool and of those inside. No other thread uses the pool.
 * false: no memory. */
static bool ranges_make(ranges_t *ranges, umf_tracked_provider_t *outer) {
    ranges->room = umf_tracked_span_count(outer);
    for (umf_tracked_provider_t *inner = outer->inner; inner; inner = inner->next) {
        ranges->room += umf_tracked_span_count(inner);
    }
    ranges->list = ranges->room ? umf_meta_alloc(ranges->room * sizeof(*ranges->list)) : NULL;
    if (ranges->room && !ranges->list) {
        return false;
    }
    ranges->tracked = outer;
    umf_tracked_each_span(outer, range_list, ranges);
    for (umf_tracked_provider_t *inner = outer->inner; inner; inner = inner->next) {
        ranges->tracked = inner;
        umf_tracked_each_span(inner, range_list, ranges);
    }
    return true;
}

static umf_result_t range_run(const range_t *range, umf_memory_run_t *run) {
    return part_of(range->tracked, (void *)range->base, range->size, range->id, run);
}

/* Calls `mapped` of the callback that was added last. A refusal is undone. */
static umf_result_t map_all(const umf_memory_watch_t *watch, const ranges_t *ranges) {
    const umf_memory_callbacks_t *last = &watch->list[watch->count - 1];
    umf_memory_run_t run;
    for (size_t i = 0; i < ranges->count; i++) {
        umf_result_t result = range_run(&ranges->list[i], &run);
        if (result == UMF_RESULT_SUCCESS) {
            result = call_mapped(watch, watch->count - 1, &run);
        }
        for (; result != UMF_RESULT_SUCCESS && i-- > 0;) {
            if (last->unmapping && range_run(&ranges->list[i], &run) == UMF_RESULT_SUCCESS) {
                last->unmapping(last->arg, watch->pool, &run);
            }
        }
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

/* The watch of a pool, made at first use. NULL: no memory. */
static umf_memory_watch_t *watch_get(umf_memory_pool_handle_t pool) {
    umf_tracked_provider_t *tracked = pool->tracked;
    umf_memory_watch_t *watch = umf_memory_watch_of(tracked);
    if (watch) {
        return watch;
    }
    watch = umf_meta_alloc(sizeof(*watch));
    if (!watch) {
        return NULL;
    }
    watch->pool = pool;
    umf_lock(&tracked->spans.lock);
    atomic_store_explicit(&tracked->watch, watch, memory_order_release);
    for (umf_tracked_provider_t *inner = tracked->inner; inner; inner = inner->next) {
        atomic_store_explicit(&inner->watch, watch, memory_order_release);
    }
    umf_unlock(&tracked->spans.lock);
    return watch;
}

umf_result_t umf_memory_watch_add(umf_memory_pool_handle_t pool,
                                  const umf_memory_callbacks_t *callbacks) {
    umf_memory_watch_t *watch = watch_get(pool);
    ranges_t ranges = {0};
    if (!watch || !umf_meta_grow(&watch->list, watch->count, &watch->room, sizeof(*watch->list)) ||
        !ranges_make(&ranges, pool->tracked)) {
        UMF_LOG_ERROR("no memory for a callback");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    watch->list[watch->count++] = *callbacks;
    umf_result_t result = map_all(watch, &ranges);
    watch->count -= result != UMF_RESULT_SUCCESS;
    umf_meta_free(ranges.list, ranges.room * sizeof(*ranges.list));
    return result;
}

static bool is_same(const umf_memory_callbacks_t *left, const umf_memory_callbacks_t *right) {
    return left->mapped == right->mapped && left->unmapping == right->unmapping &&
           left->arg == right->arg;
}

bool umf_memory_watch_remove(umf_memory_pool_handle_t pool,
                             const umf_memory_callbacks_t *callbacks) {
    umf_memory_watch_t *watch = umf_memory_watch_of(pool->tracked);
    for (size_t i = watch ? watch->count : 0; i-- > 0;) {
        if (is_same(&watch->list[i], callbacks)) {
            watch->count--;
            memmove(&watch->list[i], &watch->list[i + 1],
                    (watch->count - i) * sizeof(*watch->list));
            return true;
        }
    }
    return false;
}

void umf_memory_watch_drop(umf_tracked_provider_t *tracked) {
    umf_memory_watch_t *watch = umf_memory_watch_of(tracked);
    if (watch && watch->pool->tracked == tracked) {
        umf_meta_free(watch->list, watch->room * sizeof(*watch->list));
        umf_meta_free(watch, sizeof(*watch));
    }
}
