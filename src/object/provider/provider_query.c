/* Provider queries: from a handle to the provider, and from memory to its pool. */
#include "object/provider/provider_query.h"

#include "object/object.h"
#include "system/pause.h"

void *umf_provider_self(umf_memory_provider_handle_t provider,
                        const umf_memory_provider_ops_t *ops) {
    return umf_provider_check(provider, __func__) && provider->kind && provider->kind->ops == ops
               ? provider->self
               : NULL;
}

static bool span_is_of(const umf_span_t *span, umf_memory_provider_handle_t provider,
                       uintptr_t base) {
    return umf_span_kind(span) == UMF_SPAN_POOL && span->base == base &&
           umf_tracked_of(span)->root == provider->root;
}

/* Walks from the innermost span outwards, because another pool may stand on the memory. */
static bool is_tracked(umf_memory_provider_handle_t provider, uintptr_t base) {
    umf_map_entry_t word = umf_map_find(&umf_map_global, base);
    uint32_t index = word ? umf_map_entry_span(word) : 0;
    while (index && !span_is_of(umf_span_at(index), provider, base)) {
        index = umf_span_at(index)->outer;
    }
    return index != 0;
}

/* How many threads read tracked providers of others: a count, with the fork count above it. After a
 * fork the count starts from 0, because the readers do not exist in the child. */
static _Atomic uint64_t readers;

static uint64_t no_readers(void) {
    return (uint64_t)umf_fork_count() << 32;
}

static void read_begin(void) {
    uint64_t seen = atomic_load(&readers), none = no_readers();
    while (!atomic_compare_exchange_weak(&readers, &seen, (seen < none ? none : seen) + 1)) {
    }
}

bool umf_provider_is_tracked(umf_memory_provider_handle_t provider, const void *ptr) {
    read_begin();
    atomic_thread_fence(memory_order_seq_cst);
    bool result = is_tracked(provider, (uintptr_t)ptr);
    atomic_fetch_sub(&readers, 1);
    return result;
}

void umf_tracked_settle(void) {
    atomic_thread_fence(memory_order_seq_cst);
    for (unsigned round = 0; atomic_load(&readers) > no_readers(); round++) {
        umf_pause(round);
    }
}
