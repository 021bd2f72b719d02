/*
 * Pages and their owners, in pools with page records (track/page.h).
 *
 * If each thread kept what it frees, the objects of a page would belong to several threads for
 * good, and these would write the same cache lines: those of neighbours, and those of their states.
 * So a thread keeps only objects of its own pages. The others go to a remote stack, and from there
 * to the depots of the owners.
 *
 * The owner of a page is the thread that has taken objects of it last, from the pool below or from
 * the depot of another thread. Objects of this page that other threads still have follow as they
 * are freed. What came back lies in the owner's depot and is left to it there (umf_depots_return).
 * Owners are numbers, as depots are: a thread may have the number of one that has ended.
 *
 * docs/decisions.md has figures.
 */
#include "cache/magazine_own.h"

static inline uint16_t key_of(const umf_page_record_t *page) {
    return __atomic_load_n(&page->pool, __ATOMIC_RELAXED);
}

uint16_t umf_magazine_key(const umf_magazines_t *m, uint32_t number) {
    bool has_records = m->ops->page_magic && m->owner.index < UMF_THREAD_SLOT_COUNT_MIN;
    return has_records ? umf_page_key(m->owner.index, umf_depots_index(number) + 1)
                       : UMF_PAGE_KEY_NONE;
}

static uint16_t own_key(const umf_magazines_t *m) {
    umf_thread_slot_enter();
    uint16_t key = ((const umf_cache_t *)umf_thread_slot_get(m->owner.index))->key;
    umf_thread_slot_leave();
    return key == UMF_PAGE_KEY_NONE ? 0 : key;
}

uint32_t umf_magazines_owner(const umf_magazines_t *m) {
    return umf_page_key_owner(own_key(m));
}

void umf_magazine_adopt(const umf_magazines_t *m, const umf_item_t *items, size_t n) {
    uint16_t key = own_key(m);
    for (size_t i = 0; key && i < n; i++) {
        umf_page_adopt((uintptr_t)items[i].object, umf_page_key_pool(key), umf_page_key_owner(key));
    }
}

static uint32_t owner_of(const umf_magazines_t *m, const void *object) {
    uint16_t key = key_of(umf_page_record_at((uintptr_t)object));
    return umf_page_key_pool(key) == m->owner.index ? umf_page_key_owner(key) : 0;
}

size_t umf_magazine_group(const umf_magazines_t *m, umf_item_t *items, size_t n, uint32_t *owner) {
    size_t same = 1;
    *owner = owner_of(m, items[0].object);
    for (size_t i = 1; i < n; i++) {
        if (owner_of(m, items[i].object) == *owner) {
            umf_item_t item = items[i];
            items[i] = items[same];
            items[same++] = item;
        }
    }
    return same;
}

static inline bool has_remote(const umf_magazines_t *m, uint32_t bin) {
    return m->bins + bin < m->stacks;
}

/* Does another thread than that with the key `own` own the page? A page without an owner, and a
 * thread without a key, are like all others. */
static inline bool is_remote(uint16_t key, uint16_t own) {
    return own && key != own && umf_page_key_owner(key) &&
           umf_page_key_pool(key) == umf_page_key_pool(own);
}

/* Where the thread puts an object of a page that another thread owns. */
static inline umf_magazine_t *stack_of(const umf_magazines_t *m, umf_thread_slot_t *cache,
                                       const umf_page_record_t *page) {
    size_t offset = UMF_PAGE_LOAD(page, magazine);
    umf_magazine_t *mag = umf_magazine_at(cache, offset);
    return has_remote(m, umf_magazine_bin_at(offset)) ? mag + m->bins : mag;
}

bool umf_magazine_try_free_remote(void *object, const umf_page_record_t *page, uint32_t pool) {
    uint16_t key = key_of(page);
    bool is_done = false;
    umf_thread_slot_enter();
    umf_thread_slot_t *cache = umf_thread_slot_get_low(pool);
    if (is_remote(key, ((const umf_cache_t *)cache)->key)) {
        umf_magazines_t *m = UMF_CONTAINER_OF(cache->owner, umf_magazines_t, owner);
        is_done = umf_magazine_push_page(stack_of(m, cache, page), object, page);
    }
    umf_thread_slot_leave();
    return is_done;
}

static void make_room(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    if (!mag->base) {
        umf_magazine_make_stack(m, bin, mag);
    } else if (!umf_magazine_magic(mag)) {
        umf_magazine_set_checks(m, bin, mag);
    }
    if (mag->top == mag->limit) {
        umf_magazine_send(m, bin, mag);
    }
}

static bool free_slow(umf_magazines_t *m, void *object, const umf_page_record_t *page) {
    umf_cache_t *cache = umf_magazine_cache_ready(m);
    if (!cache) {
        return false;
    }
    uint32_t bin = umf_magazine_bin_at(UMF_PAGE_LOAD(page, magazine));
    bool is_done = false;
    if (has_remote(m, bin)) {
        umf_magazine_t *mag = &cache->bins[m->bins + bin];
        make_room(m, bin, mag);
        is_done = mag->base && umf_magazine_push_page(mag, object, page);
    }
    umf_magazine_cache_unpin(cache);
    umf_magazines_decay(m);
    return is_done;
}

bool umf_magazine_free_remote(umf_magazines_t *m, void *object) {
    const umf_page_record_t *page = umf_page_record_at((uintptr_t)object);
    return is_remote(key_of(page), own_key(m)) &&
           (umf_magazine_try_free_remote(object, page, m->owner.index) ||
            free_slow(m, object, page));
}
