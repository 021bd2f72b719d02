#include "movement/quick.h"

#include <string.h>

#include "movement/place.h"

/* A side that the CPU may copy: `used` is the span that it uses, or 0. The span `held` is in use
 * already. */
static inline bool side_begin(uintptr_t addr, size_t size, uint32_t held, uint32_t *used) {
    umf_map_entry_t entry = umf_map_find(&umf_map_global, addr);
    uint32_t index = umf_map_entry_span(entry);
    *used = 0;
    if (entry == 0) {
        return umf_side_is_plain(addr, size);
    }
    const umf_span_t *span = umf_span_at(index);
    if (index != held) {
        umf_use_begin(index);
        *used = index;
    }
    bool is_ours = atomic_load(&span->kind) == UMF_SPAN_POOL && /* seq_cst: see umf_use_begin */
                   umf_map_find(&umf_map_global, addr) == entry && span->set->pool != 0;
    if (umf_unlikely(!is_ours)) {
        return false;
    }
    umf_memory_pool_handle_t pool =
        atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire);
    int place = atomic_load_explicit(&umf_tracked_of(span)->root->place, memory_order_relaxed);
    size_t room = __atomic_load_n(&span->size, __ATOMIC_RELAXED), offset = addr - span->base;
    return (place == UMF_PLACE_HOST || place == UMF_PLACE_PINNED) && size <= room &&
           offset <= room - size && pool && !atomic_load(&pool->is_asleep);
}

static inline void side_end(uint32_t used) {
    if (used) {
        umf_use_end(used);
    }
}

bool umf_quick_copy(void *to, const void *from, size_t size) {
    uint32_t to_used, from_used = 0;
    bool is_quick = side_begin((uintptr_t)to, size, 0, &to_used) &&
                    side_begin((uintptr_t)from, size, to_used, &from_used);
    if (umf_likely(is_quick)) {
        memmove(to, from, size);
    }
    side_end(to_used);
    side_end(from_used);
    return is_quick;
}
