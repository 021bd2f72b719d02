/* Memory that others register: the runs of a range, and its DMA buffers. */
#include <umf/registration.h>

#include "base/log.h"
#include "object/provider/memory_watch.h"
#include "reclaim/reclaim.h"

/* The span with the physical memory of an address: the one around all others. NULL, with a message:
 * the address is not known. */
static const umf_span_t *outermost(uintptr_t address) {
    const umf_span_t *span = umf_span_find(&umf_map_global, address, NULL);
    if (!span) {
        UMF_LOG_ERROR("no pool and no opened IPC handle has %p", (void *)address);
        return NULL;
    }
    while (span->outer) {
        span = umf_span_at(span->outer);
    }
    return span;
}

/* NULL: the memory was opened through IPC. */
static const umf_tracked_provider_t *tracked_of(const umf_span_t *span) {
    return umf_span_kind(span) == UMF_SPAN_POOL ? umf_tracked_of(span) : NULL;
}

/* The run that holds an address. */
static umf_result_t find_run(uintptr_t address, umf_memory_run_t *run) {
    const umf_span_t *span = outermost(address);
    if (!span) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    const umf_tracked_provider_t *tracked = tracked_of(span);
    if (tracked) {
        return umf_memory_run_at(tracked, address, span, run);
    }
    *run =
        (umf_memory_run_t){.base = (void *)span->base, .size = span->size, .generation = span->id};
    return UMF_RESULT_SUCCESS;
}

/* Is it a range that a caller may name? */
static bool is_range(const void *ptr, size_t size) {
    return ptr && size > 0 && size - 1 <= UINTPTR_MAX - (uintptr_t)ptr;
}

static umf_result_t list_runs(uintptr_t first, size_t size, umf_memory_run_t *runs, size_t room,
                              size_t *count) {
    uintptr_t last = first + (size - 1);
    for (uintptr_t at = first; *count == 0 || at - first <= last - first;) {
        umf_memory_run_t run;
        umf_result_t result = find_run(at, &run);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        if (*count < room) {
            runs[*count] = run;
        }
        (*count)++;
        uintptr_t end = (uintptr_t)run.base + run.size;
        if (end <= at || end > last) {
            break;
        }
        at = end;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfGetRuns(const void *ptr, size_t size, umf_memory_run_t *runs,
                                        size_t *count) {
    if (!is_range(ptr, size) || !count || (!runs && *count > 0)) {
        UMF_LOG_ERROR("umfGetRuns needs a range, a count, and room for as many runs");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_is_started()) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    size_t room = *count, found = 0;
    umf_result_t result = list_runs((uintptr_t)ptr, size, runs, room, &found);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *count = found;
    if (runs && found > room) {
        UMF_LOG_ERROR("the range has %zu runs, there is room for %zu", found, room);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

/* Is the whole range memory of this provider? Logs if not. */
static bool is_of_one(const umf_tracked_provider_t *tracked, uintptr_t first, size_t size) {
    uintptr_t last = first + (size - 1);
    for (uintptr_t at = first;;) {
        const umf_span_t *span = outermost(at);
        if (!span) {
            return false;
        }
        const umf_tracked_provider_t *here = tracked_of(span);
        if (!here || here->root != tracked->root) {
            UMF_LOG_ERROR("%p and %p are memory of two providers", (void *)first, (void *)at);
            return false;
        }
        if (last - span->base < span->size) {
            return true;
        }
        at = span->base + span->size;
    }
}

UMF_API_EXT_1_3 umf_result_t umfGetDmabuf(const void *ptr, size_t size, umf_dmabuf_t *dmabuf) {
    if (!is_range(ptr, size) || !dmabuf || dmabuf->struct_size < sizeof(*dmabuf)) {
        UMF_LOG_ERROR("umfGetDmabuf needs a range, and a structure with its size");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_is_started()) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    const umf_span_t *span = outermost((uintptr_t)ptr);
    if (!span) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    const umf_tracked_provider_t *tracked = tracked_of(span);
    if (!tracked || !tracked->ext->dmabuf) {
        UMF_LOG_ERROR("the provider of %p makes no DMA buffers: cuda, cuda_vmm and level_zero do, "
                      "of memory of a device",
                      ptr);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (!is_of_one(tracked, (uintptr_t)ptr, size)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_memory_pool_handle_t pool = atomic_load(&umf_pool_table[tracked->spans.pool]);
    if (pool && pool->fast && pool->fast->share) { /* the holder of the buffer can access them */
        pool->fast->share(pool->self, ptr, size);
    }
    int fd = -1;
    size_t offset = 0;
    umf_result_t result = tracked->ext->dmabuf(tracked->self, (void *)span->base,
                                               (uintptr_t)ptr - span->base, size, &fd, &offset);
    if (result != UMF_RESULT_SUCCESS) {
        umf_provider_failed(tracked->root);
        return result;
    }
    dmabuf->fd = fd;
    dmabuf->offset = offset;
    dmabuf->length = size;
    return UMF_RESULT_SUCCESS;
}

/* --- callbacks -------------------------------------------------------------------------------- */

static umf_result_t check_callbacks(umf_memory_pool_handle_t pool,
                                    const umf_memory_callbacks_t *callbacks, const char *function) {
    if (!umf_pool_check(pool, function)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!callbacks || callbacks->struct_size < sizeof(*callbacks) ||
        (!callbacks->mapped && !callbacks->unmapping)) {
        UMF_LOG_ERROR("%s needs a structure with its size and a function", function);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!pool->tracked) {
        UMF_LOG_ERROR("pool %p was created without tracking, so its memory is not known",
                      (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfPoolAddMemoryCallback(umf_memory_pool_handle_t pool,
                                                      const umf_memory_callbacks_t *callbacks) {
    umf_result_t result = check_callbacks(pool, callbacks, __func__);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (umf_pool_is_suspended(pool)) {
        UMF_LOG_ERROR("pool %p is suspended: resume it first", (void *)pool);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_reclaim_end(pool); /* other threads do not release memory of the pool meanwhile */
    result = umf_memory_watch_add(pool, callbacks);
    umf_reclaim_begin(pool);
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfPoolRemoveMemoryCallback(umf_memory_pool_handle_t pool,
                                                         const umf_memory_callbacks_t *callbacks) {
    umf_result_t result = check_callbacks(pool, callbacks, __func__);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_reclaim_end(pool);
    bool is_removed = umf_memory_watch_remove(pool, callbacks);
    umf_reclaim_begin(pool);
    if (!is_removed) {
        UMF_LOG_ERROR("the callbacks were not added to pool %p", (void *)pool);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}
