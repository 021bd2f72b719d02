#include "object/provider/tracked_range.h"

#include "object/event.h"
#include "object/group.h"
#include "object/object.h"
#include "object/provider/memory_watch.h"
#include "object/provider/provider_own.h"

umf_tracked_ops_t umf_tracked_ops(const umf_tracked_provider_t *tracked) {
    return (umf_tracked_ops_t){tracked->ext, tracked->self};
}

bool umf_tracked_has_ranges(const umf_tracked_provider_t *tracked) {
    const umf_memory_provider_ext_ops_t *ext = tracked->ext;
    return ext->range_reserve && ext->range_release && ext->page_create && ext->page_destroy &&
           ext->page_map && ext->page_unmap && !ext->mark_all == !ext->mark_all_wait;
}

static void count_unbacked(umf_tracked_provider_t *tracked, size_t more, size_t less) {
    atomic_fetch_add_explicit(&tracked->unbacked, more - less, memory_order_relaxed);
}

static umf_result_t failed(umf_tracked_provider_t *tracked, umf_result_t result) {
    umf_provider_failed(tracked);
    return result;
}

bool umf_tracked_is_recorded(void) {
    return umf_event_is_enabled();
}

void umf_tracked_page_event(const umf_tracked_provider_t *tracked, umf_record_event_kind_t kind,
                            uint64_t address, uint64_t size) {
    UMF_EVENT(.kind = kind, .pool = umf_tracked_pool(tracked), .address = address, .size = size);
}

umf_result_t umf_tracked_range_reserve(umf_tracked_provider_t *tracked, size_t *size,
                                       size_t *granularity, void **base) {
    umf_result_t result = tracked->ext->range_reserve(tracked->self, size, granularity, base);
    if (result != UMF_RESULT_SUCCESS) {
        return failed(tracked, result);
    }
    count_unbacked(tracked, *size, 0);
    result = umf_span_add(&tracked->spans, (uintptr_t)*base, *size, UMF_SPAN_POOL, NULL, 0, NULL);
    if (result != UMF_RESULT_SUCCESS) {
        count_unbacked(tracked, 0, *size);
        tracked->ext->range_release(tracked->self, *base, *size);
    }
    return result;
}

umf_result_t umf_tracked_range_release(umf_tracked_provider_t *tracked, void *base) {
    umf_span_t *span = umf_tracked_find(tracked, base);
    size_t size = span ? span->size : 0;
    if (!span || umf_span_withdraw(&tracked->spans, span, (uintptr_t)base) != UMF_RESULT_SUCCESS) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_core_export_ends(span, tracked->root);
    count_unbacked(tracked, 0, size);
    umf_span_release(&tracked->spans, span);
    umf_result_t result = tracked->ext->range_release(tracked->self, base, size);
    return result == UMF_RESULT_SUCCESS ? result : failed(tracked, result);
}

umf_result_t umf_tracked_page_create(umf_tracked_provider_t *tracked, umf_vm_page_t *page) {
    umf_pool_group_handle_t group = umf_group_of(tracked);
    if (group && !umf_group_take(group, page->size)) {
        umf_tracked_refuse(page->size, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = tracked->ext->page_create(tracked->self, page);
    if (result == UMF_RESULT_SUCCESS) {
        count_unbacked(tracked, 0, page->size);
        umf_tracked_page_event(tracked, UMF_RECORD_PAGE_CREATE, 0, page->size);
        return result;
    }
    return umf_tracked_alloc_failed(tracked, page->size, result);
}

void umf_tracked_page_forget(umf_tracked_provider_t *tracked, size_t size) {
    umf_tracked_page_event(tracked, UMF_RECORD_PAGE_DESTROY, 0, size);
    count_unbacked(tracked, size, 0);
    if (umf_group_of(tracked)) {
        umf_group_give(umf_group_of(tracked), size);
    }
}

umf_result_t umf_tracked_page_destroy(umf_tracked_provider_t *tracked, const umf_vm_page_t *page) {
    umf_result_t result = tracked->ext->page_destroy(tracked->self, page);
    umf_tracked_page_forget(tracked, page->size);
    return result == UMF_RESULT_SUCCESS ? result : failed(tracked, result);
}

bool umf_tracked_is_watched(const umf_tracked_provider_t *tracked) {
    return umf_memory_watch_of(tracked) != NULL;
}

umf_result_t umf_tracked_page_mapped(const umf_tracked_provider_t *tracked,
                                     const umf_memory_run_t *run) {
    umf_result_t result = umf_memory_watch_run_mapped(tracked, run);
    if (result != UMF_RESULT_SUCCESS) {
        umf_tracked_refuse(run->size, result);
    }
    return result;
}

void umf_tracked_page_unmapping(const umf_tracked_provider_t *tracked,
                                const umf_memory_run_t *run) {
    umf_memory_watch_run_unmapping(tracked, run);
}

uint64_t umf_tracked_page_generation(void) {
    static _Atomic uint64_t last;
    return UINT64_C(1) << 63 | (atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1);
}

void umf_tracked_page_freed(umf_tracked_provider_t *tracked, const void *ptr) {
    umf_memory_pool_handle_t pool = umf_tracked_pool(tracked);
    if (pool && umf_pool_is_suspended(pool)) {
        umf_layers_freed(pool, ptr);
    }
}

umf_result_t umf_tracked_page_map(umf_tracked_provider_t *tracked, void *ptr,
                                  const umf_vm_page_t *pages, size_t count) {
    umf_result_t result = tracked->ext->page_map(tracked->self, ptr, pages, count);
    uintptr_t at = (uintptr_t)ptr;
    if (result != UMF_RESULT_SUCCESS) {
        return umf_tracked_alloc_failed(tracked, 0, result);
    }
    for (size_t i = 0; i < count; i++) {
        umf_tracked_page_event(tracked, UMF_RECORD_PROVIDER_ALLOC, at, pages[i].size);
        at += pages[i].size;
    }
    return result;
}

umf_result_t umf_tracked_page_unmap(umf_tracked_provider_t *tracked, void *ptr, size_t size) {
    umf_result_t result = tracked->ext->page_unmap(tracked->self, ptr, size);
    return result == UMF_RESULT_SUCCESS ? result : failed(tracked, result);
}
