/* Misses: a pop from an empty stack, a push on a full one. */
#include "cache/magazine_own.h"

/* NULL: there is no memory for its stack. */
static umf_magazine_t *magazine_ready(umf_magazines_t *m, umf_cache_t *cache, uint32_t bin) {
    umf_magazine_t *mag = cache ? &cache->bins[bin] : NULL;
    if (mag && mag->base && (m->slabs || m->ops->page_magic) && !umf_magazine_magic(mag)) {
        umf_magazine_set_checks(m, bin, mag);
    }
    return mag && (mag->base || umf_magazine_make_stack(m, bin, mag)) ? mag : NULL;
}

/* A pool refills in order of growing addresses, but a stack serves the last item first. The
 * reversed stack serves growing addresses, which suits programs that walk their objects in the
 * order in which they allocated them. */
static void reverse(umf_item_t *items, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        umf_item_t item = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = item;
    }
}

static void *hand_out(const umf_item_t *item) {
    if (item->state) {
        umf_state_set(item->state, UMF_STATE_LIVE);
    }
    return item->object;
}

/* Serves a thread that has no stack. */
static void *pop_single(umf_magazines_t *m, uint32_t bin) {
    umf_item_t item;
    bool is_got = umf_magazine_depot_take(m, bin, NULL, &item, 1) ||
                  umf_magazine_pool_refill(m, bin, &item, 1);
    return is_got ? hand_out(&item) : NULL;
}

/* A larger object is for any thread: a new one costs more than one that another CPU
 * has used. */
#define KEPT_MOST ((size_t)16 << 10)

static void count_needed(const umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, size_t got) {
    size_t needed = m->capacity[bin].size > KEPT_MOST ? 0 : mag->user.needed + got;
    mag->user.needed = (uint16_t)(needed < UINT16_MAX ? needed : UINT16_MAX);
}

static void *pop_with(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag) {
    if (umf_magazine_count(mag)) { /* another thread had hidden the cache when the caller looked */
        umf_magazine_set_top(mag, mag->top - 1);
        return hand_out(mag->top);
    }
    if (mag->user.is_contended) { /* a larger stack comes to the depots less often */
        umf_magazine_grow(m, bin, mag);
    }
    size_t batch = umf_magazine_room(mag) / 2;
    size_t got = umf_magazine_depot_take(m, bin, mag, mag->base, batch);
    if (got && mag->user.took_from_others) {
        umf_magazine_adopt(m, mag->base, got);
    }
    if (!got) {
        got = umf_magazine_refill(m, bin, mag, batch);
        reverse(mag->base, got);
    }
    if (!got) {
        return NULL;
    }
    void *object = hand_out(&mag->base[got - 1]);
    count_needed(m, bin, mag, got);
    mag->was_refilled = true;
    umf_magazine_set_top(mag, mag->base + got - 1);
    return object;
}

UMF_COLD void *umf_magazine_pop_slow(umf_magazines_t *m, uint32_t bin) {
    umf_cache_t *cache = umf_magazine_cache_ready(m);
    umf_magazine_t *mag = magazine_ready(m, cache, bin);
    void *object = mag ? pop_with(m, bin, mag) : pop_single(m, bin);
    umf_magazine_cache_unpin(cache);
    umf_magazines_decay(m);
    return object;
}

static void push_with(umf_magazines_t *m, uint32_t bin, umf_magazine_t *mag, umf_item_t item) {
    if (mag->top == mag->limit && !umf_magazine_grow(m, bin, mag)) {
        umf_magazine_halve(m, bin, mag);
    }
    *mag->top = item;
    umf_magazine_set_top(mag, mag->top + 1);
}

UMF_COLD void umf_magazine_push_slow(umf_magazines_t *m, uint32_t bin, umf_item_t item) {
    umf_cache_t *cache = umf_magazine_cache_ready(m);
    umf_magazine_t *mag = magazine_ready(m, cache, bin);
    if (mag) {
        push_with(m, bin, mag, item);
    } else {
        umf_magazine_pass_on(m, bin, NULL, &item, 1);
    }
    umf_magazine_cache_unpin(cache);
    umf_magazines_decay(m);
}

/* The cache with room for a kept object in this bin, pinned. NULL: it has none. Half of the bound
 * stays for bins that need their stacks more. */
static umf_cache_t *cache_with_room(umf_magazines_t *m, uint32_t bin) {
    if (umf_magazines_bytes(m) > m->bytes_max / 2) {
        return NULL;
    }
    umf_cache_t *cache = umf_magazine_cache_ready(m);
    umf_magazine_t *mag = magazine_ready(m, cache, bin);
    if (mag && (mag->top != mag->limit || umf_magazine_grow(m, bin, mag))) {
        return cache;
    }
    umf_magazine_cache_unpin(cache);
    return NULL;
}

UMF_COLD bool umf_magazine_keep_slow(umf_magazines_t *m, uint32_t bin, umf_item_t item) {
    umf_cache_t *cache = cache_with_room(m, bin);
    if (cache) {
        umf_magazine_t *mag = &cache->bins[bin];
        *mag->top = item;
        umf_magazine_set_top(mag, mag->top + 1);
    }
    umf_magazine_cache_unpin(cache);
    return cache != NULL;
}

UMF_COLD void umf_magazine_make_room(umf_magazines_t *m, uint32_t bin) {
    umf_magazine_cache_unpin(cache_with_room(m, bin));
}
