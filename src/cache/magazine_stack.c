/* The memory of stacks: its bound in bytes, growth, and whether they take checked pushes. */
#include <string.h>

#include "base/meta.h"
#include "cache/magazine_own.h"

/* The first capacity of a stack that may grow: the states of one batch fill a cache line, which no
 * other thread shares. */
#define FIRST_CAPACITY 128u

/* Other threads may be counting. They count nothing while `top` is NULL, so it is NULL while `base`
 * changes. */
void umf_magazine_set_stack(umf_magazine_t *mag, umf_item_t *stack, size_t count, size_t capacity) {
    umf_magazine_set_top(mag, NULL);
    __atomic_store_n(&mag->base, stack, __ATOMIC_RELAXED);
    mag->limit = stack ? stack + capacity : NULL;
    umf_magazine_set_top(mag, stack ? stack + count : NULL);
}

static size_t stack_bytes(size_t capacity) {
    return umf_meta_isolated_size(capacity * sizeof(umf_item_t));
}

/* The magic of the distance between two states. An address between two objects may lead to a state
 * between theirs; that is never LIVE, so the push is refused. */
static uint64_t states_magic(const umf_magazine_slab_t *slab, size_t batch) {
    if (!slab->magic) {
        return 0;
    }
    size_t stride = umf_magazine_state_stride(slab->size, batch);
    return stride > 1 ? umf_magic(slab->size / stride) : slab->magic;
}

/* Counts room for `n` more objects in stacks. false: the bound of the pool is reached. */
static bool reserve(umf_magazines_t *m, uint32_t bin, size_t n) {
    size_t bytes = n * m->capacity[bin].size, reserved = umf_magazines_bytes(m);
    do {
        if (reserved > m->bytes_max || bytes > m->bytes_max - reserved) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&m->bytes, &reserved, reserved + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void unreserve(umf_magazines_t *m, uint32_t bin, size_t n) {
    atomic_fetch_sub_explicit(&m->bytes, n * m->capacity[bin].size, memory_order_relaxed);
}

/* NULL: the bound of the pool is reached, or there is no memory. */
static umf_item_t *stack_make(umf_magazines_t *m, uint32_t bin, size_t capacity, size_t reserved) {
    if (!reserve(m, bin, capacity - reserved)) {
        return NULL;
    }
    umf_item_t *stack = umf_meta_alloc(stack_bytes(capacity));
    if (!stack) {
        unreserve(m, bin, capacity - reserved);
    }
    return stack;
}

/* Only the thread itself may switch checks on: a push that saw the magic change from 0 would take a
 * wrong state. From its own to 0 is harmless, because the push is refused. */
static uint64_t checked_magic(const umf_magazines_t *m, uint32_t bin) {
    if (m->ops->page_magic) {
        return m->ops->page_magic[bin + 1];
    }
    return m->slabs ? states_magic(&m->slabs[bin + 1], m->capacity[bin].usual / 2) : 0;
}

void umf_magazine_set_checks(const umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    bool may = !atomic_load_explicit(&m->is_unchecked, memory_order_relaxed);
    uint64_t magic = may ? checked_magic(m, bin) : 0;
    __atomic_store_n(&mag->magic, magic, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_seq_cst); /* as in umf_magazines_check */
    if (atomic_load_explicit(&m->is_unchecked, memory_order_relaxed)) {
        __atomic_store_n(&mag->magic, 0, __ATOMIC_RELAXED);
    }
}

bool umf_magazine_make_stack(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    size_t usual = m->capacity[bin].usual,
           capacity = usual < FIRST_CAPACITY ? usual : FIRST_CAPACITY;
    umf_item_t *stack = stack_make(m, bin, capacity, 0);
    while (!stack && capacity >= 4) {
        capacity /= 2;
        stack = stack_make(m, bin, capacity, 0);
    }
    if (!stack) {
        return false;
    }
    mag->mask = m->slabs ? m->slabs[bin + 1].mask : 0;
    umf_magazine_set_checks(m, bin, mag);
    umf_magazine_set_stack(mag, stack, 0, capacity);
    return true;
}

void umf_magazine_free_stack(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    umf_item_t *stack = mag->top ? mag->base : NULL;
    size_t capacity = umf_magazine_room(mag);
    if (!stack) {
        return;
    }
    umf_magazine_set_stack(mag, NULL, 0, 0);
    umf_meta_free(stack, stack_bytes(capacity));
    unreserve(m, bin, capacity);
}

/* false: the stack stays as it is. */
bool umf_magazine_grow(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    size_t old = umf_magazine_room(mag), count = umf_magazine_count(mag);
    size_t most = mag->user.is_contended ? m->capacity[bin].contended : m->capacity[bin].usual;
    size_t capacity = 2 * old < most ? 2 * old : most;
    /* A stack grows only if its capacity costs exchanges: it alternates between empty and full, or
     * the depots are contended. A thread that only frees needs no larger stack. */
    if (!(mag->was_refilled || mag->user.is_contended) || capacity <= old) {
        return false;
    }
    umf_item_t *stack = stack_make(m, bin, capacity, old);
    if (!stack) {
        return false;
    }
    umf_item_t *small = mag->base;
    memcpy(stack, small, count * sizeof(umf_item_t));
    umf_magazine_set_stack(mag, stack, count, capacity);
    umf_meta_free(small, stack_bytes(old));
    mag->was_refilled = mag->user.is_contended = false;
    return true;
}
