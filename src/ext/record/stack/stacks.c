/*
 * Stacks, each once. A stack that is known is found without a lock; stacks are never changed.
 */
#include <string.h>

#include "ext/record/recording.h"

/* Two sums side by side, because each step waits for the multiplication of the last one. */
static uint64_t hash_of(const uint64_t *frames, unsigned count) {
    uint64_t even = count, odd = 0;
    for (unsigned i = 0; i + 1 < count; i += 2) {
        even = (even ^ frames[i]) * UINT64_C(0x9E3779B97F4A7C15);
        odd = (odd ^ frames[i + 1]) * UINT64_C(0xC2B2AE3D27D4EB4F);
        even ^= even >> 29;
        odd ^= odd >> 31;
    }
    return umf_record_hash(even ^ odd << 1 ^ frames[count - 1]);
}

static bool is_at(const umf_recording_t *r, uint32_t index, const uint64_t *frames,
                  unsigned count) {
    const uint64_t *stack = r->stacks + index;
    return stack[0] == count && memcmp(stack + 1, frames, count * sizeof(*frames)) == 0;
}

/* The entry with the stack, or the free one where it belongs; NULL: none in reach. */
static _Atomic uint64_t *find(umf_recording_t *r, uint64_t hash, const uint64_t *frames,
                              unsigned count) {
    enum { REACH = 64 };
    for (uint64_t i = 0; i < REACH; i++) {
        _Atomic uint64_t *entry = &r->stack_hash[(hash + i) & r->stack_mask];
        uint64_t found = atomic_load_explicit(entry, memory_order_acquire);
        if (found == 0 || (found >> 32 == hash >> 32 && is_at(r, (uint32_t)found, frames, count))) {
            return entry;
        }
    }
    return NULL;
}

static uint32_t add_locked(umf_recording_t *r, uint64_t hash, const uint64_t *frames,
                           unsigned count) {
    _Atomic uint64_t *entry = find(r, hash, frames, count);
    uint32_t known = entry ? (uint32_t)atomic_load(entry) : 0;
    if (known != 0) {
        return known; /* another thread was faster */
    }
    uint64_t index = umf_record_item(r, UMF_RECORD_STACKS, count + 1u);
    if (index == UINT64_MAX) {
        return 0;
    }
    r->stacks[index] = count;
    memcpy(r->stacks + index + 1, frames, count * sizeof(*frames));
    umf_record_item_done(r, UMF_RECORD_STACKS, count + 1u);
    if (entry) {
        atomic_store_explicit(entry, hash >> 32 << 32 | index, memory_order_release);
    }
    return (uint32_t)index;
}

uint32_t umf_record_stack(umf_recording_t *r, const uint64_t *frames, unsigned count) {
    uint64_t hash = hash_of(frames, count);
    _Atomic uint64_t *entry = find(r, hash, frames, count);
    uint32_t index = entry ? (uint32_t)atomic_load_explicit(entry, memory_order_acquire) : 0;
    if (umf_likely(index != 0)) {
        return index;
    }
    umf_record_spin(&r->stack_lock);
    index = add_locked(r, hash, frames, count);
    umf_record_unspin(&r->stack_lock);
    return index;
}
