#include "proxy/arena.h"

#include <stdatomic.h>
#include <stdint.h>

#define ARENA_SIZE ((size_t)4 << 20)
#define ARENA_ALIGNMENT ((size_t)16)

/* Precedes each block. */
typedef struct arena_head_t {
    size_t size;
} arena_head_t;

static _Alignas(ARENA_ALIGNMENT) char arena[ARENA_SIZE];
static atomic_size_t arena_used;

/* The place of a block that follows `used` bytes. false: it does not fit. */
static bool arena_place(size_t used, size_t size, size_t alignment, size_t *begin, size_t *end) {
    uintptr_t base = (uintptr_t)arena;
    if (size > ARENA_SIZE || alignment > ARENA_SIZE) {
        return false;
    }
    *begin = ((base + used + sizeof(arena_head_t) + alignment - 1) & ~(alignment - 1)) - base;
    *end = *begin + (size ? size : 1);
    return *end <= ARENA_SIZE;
}

void *umf_proxy_arena_alloc(size_t size, size_t alignment) {
    size_t used = atomic_load_explicit(&arena_used, memory_order_relaxed);
    size_t begin, end;
    alignment = alignment < ARENA_ALIGNMENT ? ARENA_ALIGNMENT : alignment;
    do {
        if (!arena_place(used, size, alignment, &begin, &end)) {
            return NULL;
        }
    } while (!atomic_compare_exchange_weak_explicit(&arena_used, &used, end, memory_order_relaxed,
                                                    memory_order_relaxed));
    ((arena_head_t *)(void *)(arena + begin))[-1].size = size;
    return arena + begin;
}

bool umf_proxy_arena_has(const void *ptr) {
    return (uintptr_t)ptr - (uintptr_t)arena < ARENA_SIZE;
}

size_t umf_proxy_arena_size(const void *ptr) {
    return ((const arena_head_t *)ptr)[-1].size;
}
