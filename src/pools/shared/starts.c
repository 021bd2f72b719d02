#include "pools/shared/starts.h"

#include "base/meta.h"
#include "system/annotate.h"

void umf_starts_set_size(umf_starts_sizes_t *sizes, uint32_t kind, size_t size) {
    sizes->step[kind] = (uint32_t)(size <= UMF_STARTS_PAGE ? size : 2 * UMF_STARTS_PAGE);
    sizes->magic[kind] = umf_magic(sizes->step[kind]);
}

static uint16_t bias_for(uint32_t step, size_t offset) {
    size_t first = offset % step;
    return (uint16_t)(first ? step - first : 0);
}

static size_t pairs_for(uint32_t step, size_t bias) {
    size_t states = (UMF_STARTS_PAGE - 1 + bias) / step + 1;
    return (states + UMF_CACHE_ISOLATION - 1) / UMF_CACHE_ISOLATION;
}

static void publish(const umf_starts_pool_t *pool, const umf_starts_t *page, uint32_t kind,
                    uintptr_t addr) {
    if (pool->index) {
        umf_page_record_t record = {
            .states = page->states,
            .pool = umf_page_key(pool->index, pool->owner),
            .magazine = kind <= pool->bins ? umf_magazine_offset(kind - 1) : 0,
            .origin = (uint32_t)(addr & ~(uintptr_t)(UMF_PAGE_RECORD_BYTES - 1)) - page->bias,
        };
        umf_page_publish(addr, &record);
    }
}

static bool has_room_locked(umf_starts_t *page, size_t pairs, uint32_t index, uintptr_t addr) {
    if (page->pairs >= pairs) {
        return true;
    }
    uint8_t *states = umf_meta_alloc(pairs * UMF_CACHE_ISOLATION), *old = page->states;
    if (states) {
        /* All old states are NONE: objects of another kind had them, and these are gone. */
        __atomic_store_n(&page->states, states, __ATOMIC_RELAXED);
        if (page->pairs) {
            umf_page_withdraw(addr, index, old);
            umf_meta_free(old, (size_t)page->pairs * UMF_CACHE_ISOLATION);
        }
        page->pairs = (uint8_t)pairs;
    }
    return states != NULL;
}

/* Makes or changes the record of a page. If it held objects of another kind, these are gone, and
 * their states are NONE. */
static UMF_COLD uint8_t *make_slow(const umf_starts_pool_t *pool, umf_starts_t *page, uint32_t kind,
                                   uintptr_t addr, size_t offset, _Atomic size_t *made) {
    const umf_starts_sizes_t *sizes = pool->sizes;
    uint16_t bias = bias_for(sizes->step[kind], offset);
    umf_lock(pool->lock);
    bool is_first = page->pairs == 0;
    bool has_room = has_room_locked(page, pairs_for(sizes->step[kind], bias), pool->index, addr);
    if (has_room) {
        __atomic_store_n(&page->bias, bias, __ATOMIC_RELAXED);
        publish(pool, page, kind, addr); /* who sees the kind sees this record */
        __atomic_store_n(&page->kind, (uint8_t)kind, __ATOMIC_RELEASE);
        atomic_fetch_add_explicit(made, is_first, memory_order_relaxed);
    }
    umf_unlock(pool->lock);
    return has_room ? umf_starts_find(page, sizes, offset) : NULL;
}

/* For a page that has states for objects of this kind already. NULL: they start elsewhere. */
static uint8_t *find_again(const umf_starts_pool_t *pool, umf_starts_t *page, uint32_t kind,
                           uintptr_t addr, size_t offset) {
    uint32_t step = pool->sizes->step[kind];
    if (step > UMF_STARTS_PAGE && page->bias != bias_for(step, offset)) {
        /* No other object starts in the page, so no other thread changes its record. */
        __atomic_store_n(&page->bias, bias_for(step, offset), __ATOMIC_RELAXED);
        publish(pool, page, kind, addr);
    } else if (pool->index) {
        umf_page_adopt(addr, pool->index, pool->owner);
    }
    return umf_starts_find(page, pool->sizes, offset);
}

uint8_t *umf_starts_make(const umf_starts_pool_t *pool, umf_starts_t *page, uint32_t kind,
                         uintptr_t addr, size_t offset, _Atomic size_t *made) {
    uint8_t *state = __atomic_load_n(&page->kind, __ATOMIC_ACQUIRE) == kind
                         ? find_again(pool, page, kind, addr, offset)
                         : NULL;
    return state ? state : make_slow(pool, page, kind, addr, offset, made);
}

/* Owners of objects write their states meanwhile. */
UMF_WITHOUT_TSAN static void states_copy(uint8_t *to, const uint8_t *from, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = ((const volatile uint8_t *)from)[i];
    }
}

static void see_locked(const umf_starts_t *page, const umf_starts_sizes_t *sizes,
                       umf_starts_seen_t *seen) {
    size_t bias = __atomic_load_n(&page->bias, __ATOMIC_RELAXED);
    seen->kind = page->kind;
    seen->step = sizes->step[page->kind];
    seen->first = bias ? seen->step - bias : 0;
    seen->count =
        seen->first < UMF_STARTS_PAGE ? (UMF_STARTS_PAGE - 1 - seen->first) / seen->step + 1 : 0;
    states_copy(seen->states, page->states + (seen->first + bias) / seen->step, seen->count);
}

/* The lock keeps the states, which are replaced when the page gets objects of another size. */
void umf_starts_see(const umf_starts_t *page, const umf_starts_sizes_t *sizes, umf_lock_t *lock,
                    umf_starts_seen_t *seen) {
    seen->kind = 0;
    if (__atomic_load_n(&page->kind, __ATOMIC_RELAXED) == 0) {
        return;
    }
    umf_lock(lock);
    see_locked(page, sizes, seen);
    umf_unlock(lock);
}

void umf_starts_withdraw(const umf_starts_t *pages, size_t made, uintptr_t base, uint32_t index) {
    for (const umf_starts_t *page = pages; made > 0; page++, base += UMF_STARTS_PAGE) {
        if (page->pairs) {
            umf_page_withdraw(base, index, page->states);
            made--;
        }
    }
}

/* `states` stays: who has read the kind before reads a freed block, which stays mapped. */
void umf_starts_drop(umf_starts_t *pages, size_t made, uintptr_t base, uint32_t index) {
    for (umf_starts_t *page = pages; made > 0; page++, base += UMF_STARTS_PAGE) {
        if (page->pairs) {
            umf_page_withdraw(base, index, page->states);
            __atomic_store_n(&page->kind, 0, __ATOMIC_RELAXED);
            umf_meta_free(page->states, (size_t)page->pairs * UMF_CACHE_ISOLATION);
            page->pairs = 0;
            made--;
        }
    }
}
