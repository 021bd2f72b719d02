#include "provider_shim.h"

#include "object/object.h"

umf_result_t shim_view_acquire(umf_memory_provider_handle_t provider,
                               umf_memory_provider_handle_t *view) {
    return umf_tracked_acquire(provider, view);
}

void shim_view_release(umf_memory_provider_handle_t view) {
    umf_tracked_release(view);
}

umf_result_t shim_view_create(umf_memory_provider_handle_t provider,
                              umf_memory_provider_handle_t *view) {
    return umf_tracked_create(provider, 0, view);
}

void shim_view_destroy(umf_memory_provider_handle_t view) {
    umf_tracked_destroy(view);
}

bool shim_view_is_global(umf_memory_provider_handle_t view) {
    return umf_tracked_spans(view)->map == &umf_map_global;
}

umf_result_t shim_view_alloc(umf_memory_provider_handle_t view, size_t size, size_t alignment,
                             uint16_t hint, void *cookie, void **ptr) {
    return umf_tracked_alloc(view, size, alignment, hint, cookie, ptr);
}

umf_result_t shim_view_free(umf_memory_provider_handle_t view, umf_span_t *span) {
    return umf_tracked_free(view, span);
}

umf_span_t *shim_view_find(umf_memory_provider_handle_t view, const void *ptr) {
    return umf_tracked_find(view, ptr);
}

size_t shim_view_count(umf_memory_provider_handle_t view) {
    return umf_tracked_span_count(view);
}

static bool count_one(umf_span_t *span, void *count) {
    (void)span;
    ++*(size_t *)count;
    return true;
}

size_t shim_view_visit(umf_memory_provider_handle_t view) {
    size_t count = 0;
    umf_tracked_each_span(view, count_one, &count);
    return count;
}

void *shim_span_cookie(const umf_span_t *span) {
    return span->cookie;
}

void *shim_span_base(const umf_span_t *span) {
    return (void *)span->base;
}
