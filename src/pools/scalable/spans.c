/* Spans: the memory of the provider that oneTBB and direct blocks use. */
#include <errno.h>

#include <umf/result.h>

#include "base/log.h"
#include "pools/scalable/scalable.h"
#include "system/os.h"

static void withdraw(umf_scalable_pool_t *pool, const umf_span_t *span) {
    umf_scalable_record_t *record = umf_scalable_record_of(span);
    if (!umf_scalable_is_direct(span)) {
        umf_starts_withdraw(record->pages,
                            atomic_load_explicit(&record->made, memory_order_relaxed), span->base,
                            umf_scalable_index_of(pool, span->base, span->size));
    }
}

/* The provider may hand the same memory out again at once: no page record may then lead to the
 * states of now. */
static umf_result_t span_free(umf_scalable_pool_t *pool, umf_span_t *span) {
    umf_scalable_record_t *record = umf_scalable_record_of(span);
    uintptr_t base = span->base;
    uint32_t index = umf_scalable_index_of(pool, base, span->size);
    withdraw(pool, span);
    umf_result_t result = umf_tracked_free_for_reuse(pool->tracked, span);
    if (result == UMF_RESULT_SUCCESS) {
        umf_scalable_record_put(record, base, index);
    }
    return result;
}

static umf_result_t span_return(umf_scalable_pool_t *pool, umf_span_t *span) {
    umf_result_t result = span_free(pool, span);
    if (result != UMF_RESULT_SUCCESS) {
        if (umf_scalable_is_direct(span)) {
            __atomic_store_n(&span->cookie, &umf_scalable_direct_lost, __ATOMIC_RELEASE);
        } else {
            atomic_store(&umf_scalable_record_of(span)->is_lost, true);
        }
    }
    return result;
}

umf_result_t umf_scalable_span_give(umf_scalable_pool_t *pool, umf_span_t *span) {
    size_t size = span->size;
    void *ptr = (void *)span->base;
    umf_result_t result = span_return(pool, span);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("pool %s: the provider does not take back %zu bytes at %p (%s); they are "
                      "offered to it again on trim and at the end of the pool",
                      pool->name, size, ptr, umfResultName(result));
    }
    return result;
}

/* oneTBB writes its data into the memory and would crash if the CPU cannot. */
static bool is_writable(umf_scalable_pool_t *pool, void *ptr) {
    if (umf_os_probe_write(ptr) != EFAULT) {
        atomic_store_explicit(&pool->has_written, true, memory_order_relaxed);
        return true;
    }
    UMF_LOG_ERROR("pool %s: the CPU cannot write to memory of the provider at %p, and a scalable "
                  "pool keeps its data there; use a disjoint, jemalloc or proxy pool",
                  pool->name, ptr);
    return false;
}

void *umf_scalable_span_take(umf_scalable_pool_t *pool, size_t size, umf_scalable_record_t *record,
                             bool tries_write) {
    void *ptr = NULL;
    if (!record) {
        return umf_scalable_refuse_memory();
    }
    bool is_direct = record->page_shift == UMF_SCALABLE_DIRECT_SHIFT;
    if (umf_tracked_alloc(pool->tracked, size, 0, is_direct ? 0 : UMF_MAP_ENTRY_PAGED, record,
                          &ptr) != UMF_RESULT_SUCCESS) {
        umf_scalable_record_put(record, 0, 0);
        umf_scalable_thread.last_error = umf_result_shorten(umf_tracked_refusal());
        return NULL;
    }
    if (tries_write && !is_writable(pool, ptr)) {
        umf_scalable_span_give(pool, umf_tracked_find(pool->tracked, ptr));
        return NULL;
    }
    return ptr;
}

size_t umf_scalable_in_granules(const umf_scalable_pool_t *pool, size_t size) {
    size_t rest = size % pool->granularity;
    return rest ? size + pool->granularity - rest : size;
}

/* Only one of several trims gets the span. */
static bool note_lost(umf_span_t *span, void *found) {
    bool is_lost = umf_scalable_is_direct(span)
                       ? umf_scalable_direct_change(span, &umf_scalable_direct_lost,
                                                    &umf_scalable_direct_freed)
                       : atomic_exchange(&umf_scalable_record_of(span)->is_lost, false);
    if (is_lost) {
        *(umf_span_t **)found = span;
    }
    return !is_lost;
}

void umf_scalable_spans_give_lost(umf_scalable_pool_t *pool) {
    umf_span_t *span;
    do {
        span = NULL;
        umf_tracked_each_span(pool->tracked, note_lost, &span);
    } while (span && span_return(pool, span) == UMF_RESULT_SUCCESS);
}

static bool is_lost(const umf_span_t *span) {
    const umf_scalable_record_t *record = umf_scalable_record_of(span);
    return umf_scalable_is_direct(span) ? record == &umf_scalable_direct_lost.record
                                        : atomic_load(&record->is_lost);
}

/* All spans are offered to the provider once more. */
static bool forget_lost(umf_span_t *span, void *unused) {
    umf_span_t *found;
    (void)unused;
    (void)note_lost(span, &found);
    return true;
}

static bool note_not_lost(umf_span_t *span, void *found) {
    return is_lost(span) || umf_tracked_find_any(span, found);
}

/* A free in a span that the provider has refused is a free of a pool that is gone. */
static bool withdraw_each(umf_span_t *span, void *pool) {
    withdraw(pool, span);
    return true;
}

void umf_scalable_spans_give_all(umf_scalable_pool_t *pool) {
    umf_span_t *span;
    umf_tracked_each_span(pool->tracked, forget_lost, NULL);
    do {
        span = NULL;
        umf_tracked_each_span(pool->tracked, note_not_lost, &span);
        if (span) {
            (void)span_return(pool, span);
        }
    } while (span);
    umf_tracked_each_span(pool->tracked, withdraw_each, pool);
}
