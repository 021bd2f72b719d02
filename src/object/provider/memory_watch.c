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

static umf_memory_pool_handle_t pool_of(const umf_tracked_provider_t *tracked) {
    return atomic_load_explicit(&umf_pool_table[tracked->spans.pool], memory_order_acquire);
}

/* Of a pool that places pages itself. NULL: pieces are the provider's. */
static const umf_pool_pieces_ops_t *own_pieces(const umf_tracked_provider_t *tracked) {
    const umf_memory_pool_handle_t pool = pool_of(tracked);
    return pool && pool->fast ? pool->fast->pieces : NULL;
}

/* The physical memory at an address. `run` has the span, which stays if the provider's memory has
 * no pieces. */
static umf_result_t run_find(const umf_tracked_provider_t *tracked, uintptr_t address,
                             umf_memory_run_t *run) {
    umf_vm_piece_t piece;
    const umf_pool_pieces_ops_t *own = own_pieces(tracked);
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
    umf_result_t result = ext->vm_run(own ? pool_of(tracked)->self : tracked->self, (void *)address,
                                      &piece, &run->handle, &run->generation);
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
    uintptr_t end = (uintptr_t)run->base + run->size;
    /* A page that ends in the range: the next one is another run. */
    bool is_first =
        own_pieces(tracked) && result == UMF_RESULT_SUCCESS && end - (uintptr_t)base < size;
    run->base = base;
    run->size = is_first ? end - (uintptr_t)base : size;
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

umf_result_t umf_memory_watch_run_mapped(const umf_tracked_provider_t *tracked,
                                         const umf_memory_run_t *run) {
    return call_mapped(umf_memory_watch_of(tracked), 0, run);
}

void umf_memory_watch_run_unmapping(const umf_tracked_provider_t *tracked,
                                    const umf_memory_run_t *run) {
    const umf_memory_watch_t *watch = umf_memory_watch_of(tracked);
    call_unmapping(watch, watch->count, run);
}

/* The part of a range that begins at `*base`, which becomes its end, is one run. */
static umf_result_t next_part(const umf_tracked_provider_t *tracked, char **base, const char *end,
                              uint64_t id, umf_memory_run_t *run) {
    umf_result_t result = part_of(tracked, *base, (size_t)(end - *base), id, run);
    *base = (char *)run->base + run->size;
    return result;
}

umf_result_t umf_memory_watch_mapped(const umf_tracked_provider_t *tracked, void *base,
                                     size_t size) {
    char *at = base, *end = at + size;
    uint64_t id = id_at(tracked, base);
    umf_result_t result = UMF_RESULT_SUCCESS;
    while (at < end && result == UMF_RESULT_SUCCESS) {
        umf_memory_run_t run;
        char *from = at;
        result = next_part(tracked, &at, end, id, &run);
        result = result ? result : umf_memory_watch_run_mapped(tracked, &run);
        if (result != UMF_RESULT_SUCCESS && from != (char *)base) {
            umf_memory_watch_unmapping(tracked, base, (size_t)(from - (char *)base), id);
        }
    }
    return result;
}

void umf_memory_watch_unmapping(const umf_tracked_provider_t *tracked, void *base, size_t size,
                                uint64_t id) {
    for (char *at = base, *end = at + size; at < end;) {
        umf_memory_run_t run;
        if (next_part(tracked, &at, end, id, &run) == UMF_RESULT_SUCCESS) {
            umf_memory_watch_run_unmapping(tracked, &run);
        }
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

static bool page_list(uintptr_t base, size_t size, void *arg) {
    ranges_t *ranges = arg;
    if (ranges->count < ranges->room) {
        ranges->list[ranges->count] = (range_t){ranges->tracked, base, size, 0};
    }
    ranges->count++;
    return true;
}

/* The pages of a pool that places them itself. */
static bool pages_make(ranges_t *ranges, const umf_tracked_provider_t *tracked,
                       const umf_pool_pieces_ops_t *own, void *pool) {
    ranges->tracked = tracked;
    own->each_page(pool, page_list, ranges);
    ranges->room = ranges->count;
    ranges->count = 0;
    ranges->list = ranges->room ? umf_meta_alloc(ranges->room * sizeof(*ranges->list)) : NULL;
    if (ranges->list) {
        own->each_page(pool, page_list, ranges);
    }
    return ranges->list || !ranges->room;
}

/* The spans of the tracked provider of the pool and of those inside. No other thread uses the pool.
 * false: no memory. */
static bool ranges_make(ranges_t *ranges, umf_tracked_provider_t *outer) {
    const umf_pool_pieces_ops_t *own = own_pieces(outer);
    if (own) {
        return pages_make(ranges, outer, own, pool_of(outer)->self);
    }
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
