/* Tracked: the way from a handle to the provider, and from memory to the pool that has it. */
#include "core/tracked.h"

#include "core/object.h"

void *umf_provider_self(umf_memory_provider_handle_t provider,
                        const umf_memory_provider_ops_t *ops) {
    return provider->kind && provider->kind->ops == ops ? provider->self : NULL;
}

static bool span_is_of(const umf_span_t *span, umf_memory_provider_handle_t provider,
                       uintptr_t base) {
    return umf_span_kind(span) == UMF_SPAN_POOL && span->base == base &&
           umf_view_of(span)->root == provider->root;
}

/* Out to the spans around: another pool may stand on the memory. */
static bool is_tracked_locked(umf_memory_provider_handle_t provider, uintptr_t base) {
    umf_word_t word = umf_map_find_locked(&umf_map_global, base);
    uint32_t index = word ? umf_word_span(word) : 0;
    while (index && !span_is_of(umf_span_at(index), provider, base)) {
        index = umf_span_at(index)->outer;
    }
    return index != 0;
}

/* A view waits for this lock when its spans are withdrawn, before it goes (umf_map_settle). */
bool umf_provider_is_tracked(umf_memory_provider_handle_t provider, const void *ptr) {
    uintptr_t base = (uintptr_t)ptr;
    umf_lock_t *shard = umf_map_lock(&umf_map_global, base, 1);
    bool is_tracked = is_tracked_locked(provider, base);
    umf_map_unlock(&umf_map_global, shard);
    return is_tracked;
}
