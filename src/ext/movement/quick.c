#include "ext/movement/quick.h"

#include <string.h>

#include "ext/movement/memory_kind.h"

typedef struct quick_t {
    uintptr_t addr;
    umf_map_entry_t entry;
    uint32_t span; /* 0: untracked memory */
} quick_t;

/* false: it is no case for the quick way. */
static inline bool look(quick_t *operand, uintptr_t addr, size_t size) {
    operand->addr = addr;
    operand->entry = umf_map_find(&umf_map_global, addr);
    operand->span = umf_map_entry_span(operand->entry);
    return operand->entry != 0 || umf_operand_is_plain(addr, size);
}

/* Is it memory of a resident pool that the CPU reaches? Asked while the span is in use. */
static inline bool is_ready(const quick_t *operand, size_t size) {
    const umf_span_t *span = umf_span_at(operand->span);
    if (operand->entry == 0) {
        return true;
    }
    bool is_ours = atomic_load(&span->kind) == UMF_SPAN_POOL && /* seq_cst: see umf_use_both */
                   umf_map_find(&umf_map_global, operand->addr) == operand->entry &&
                   span->set->pool != 0;
    if (umf_unlikely(!is_ours)) {
        return false;
    }
    umf_memory_pool_handle_t pool =
        atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire);
    int memory_kind =
        atomic_load_explicit(&umf_tracked_of(span)->root->memory_kind, memory_order_relaxed);
    size_t room = __atomic_load_n(&span->size, __ATOMIC_RELAXED),
           offset = operand->addr - span->base;
    return (memory_kind == UMF_PLACE_HOST || memory_kind == UMF_PLACE_PINNED) && size <= room &&
           offset <= room - size && pool && !umf_pool_is_suspended(pool);
}

static bool copy_used(const quick_t *to, const quick_t *from, size_t size) {
    _Atomic uint64_t *word = umf_use_both(to->span, from->span);
    if (umf_unlikely(!word)) {
        return false;
    }
    bool is_quick = is_ready(to, size) && is_ready(from, size);
    if (umf_likely(is_quick)) {
        memmove((void *)to->addr, (const void *)from->addr, size);
    }
    umf_use_both_end(word);
    return is_quick;
}

bool umf_quick_copy(void *to, const void *from, size_t size) {
    quick_t target, source;
    if (!look(&target, (uintptr_t)to, size) || !look(&source, (uintptr_t)from, size)) {
        return false;
    }
    if (target.entry == 0 && source.entry == 0) {
        memmove(to, from, size);
        return true;
    }
    return copy_used(&target, &source, size);
}
