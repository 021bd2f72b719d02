/* Tracked: the way from a handle to the provider, and from memory to the pool that has it. */
#include "core/tracked.h"

#include "core/object.h"

void *umf_provider_self(umf_memory_provider_handle_t provider,
                        const umf_memory_provider_ops_t *ops) {
    return provider->kind && provider->kind->ops == ops ? provider->self : NULL;
}

static bool span_is_of(const umf_span_t *span, umf_memory_provider_handle_t provider,
                       const void *ptr) {
    return span->kind == UMF_SPAN_POOL && span->base == (uintptr_t)ptr &&
           ((const umf_view_t *)span->owner)->root == provider->root;
}

bool umf_provider_is_tracked(umf_memory_provider_handle_t provider, const void *ptr) {
    umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
    while (span && !span_is_of(span, provider, ptr)) {
        span = span->outer ? umf_span_at(span->outer) : NULL; /* a pool stands on the memory */
    }
    return span != NULL;
}
