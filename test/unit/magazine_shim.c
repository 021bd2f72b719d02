#include "magazine_shim.h"

#include <stdlib.h>

#include "cache/magazine.h"

struct shim_magazines_t {
    umf_magazines_t m;
    umf_magazine_ops_t ops;
    umf_magazine_capacity_t capacity[UMF_MAGAZINE_MAX_BINS];
    void *pool;
    shim_refill_t refill;
    shim_flush_t flush;
    shim_look_t look;
};

static size_t refill(void *pool, uint32_t bin, umf_item_t *items, size_t n) {
    shim_magazines_t *m = pool;
    void **objects = malloc(n * sizeof(*objects));
    size_t got = m->refill(m->pool, bin, objects, n);
    for (size_t i = 0; i < got; i++) {
        items[i] = (umf_item_t){.object = objects[i]};
    }
    free(objects);
    return got;
}

static void flush(void *pool, uint32_t bin, umf_item_t *items, size_t n) {
    shim_magazines_t *m = pool;
    m->flush(m->pool, bin, NULL, 0); /* the test may free here, before the items are read */
    void **objects = malloc(n * sizeof(*objects));
    for (size_t i = 0; i < n; i++) {
        objects[i] = items[i].object;
    }
    m->flush(m->pool, bin, objects, n);
    free(objects);
}

shim_magazines_t *shim_magazines_create(void *pool, shim_refill_t user_refill,
                                        shim_flush_t user_flush, const uint16_t *capacity,
                                        const uint16_t *contended, uint32_t bins,
                                        uint32_t depot_batches) {
    shim_magazines_t *m = calloc(1, sizeof(*m));
    m->pool = pool;
    m->refill = user_refill;
    m->flush = user_flush;
    m->ops.refill = user_refill ? refill : NULL;
    m->ops.flush = flush;
    for (uint32_t bin = 0; bin < bins; bin++) {
        m->capacity[bin] = (umf_magazine_capacity_t){
            .usual = capacity[bin], .contended = contended[bin], .size = 64};
    }
    if (umf_magazines_init(&m->m, 0, m, &m->ops, m->capacity, bins, depot_batches) !=
        UMF_RESULT_SUCCESS) {
        free(m);
        return NULL;
    }
    return m;
}

static bool user_look(void *pool, bool is_new) {
    shim_magazines_t *m = pool;
    return m->look(m->pool, is_new);
}

void shim_set_look(shim_magazines_t *m, shim_look_t look) {
    m->look = look;
    m->ops.decay_pass = look ? user_look : NULL;
}

void shim_set_large(shim_magazines_t *m, uint32_t bin, uint32_t bytes) {
    m->capacity[bin].is_large = true;
    m->capacity[bin].size = bytes;
}

bool shim_release_large(shim_magazines_t *m, uint32_t except, size_t most) {
    return umf_magazines_release_large(&m->m, except, most);
}

void shim_set_bytes_max(shim_magazines_t *m, size_t bytes) {
    m->m.bytes_max = bytes;
}

size_t shim_bytes(shim_magazines_t *m) {
    return umf_magazines_bytes(&m->m);
}

void shim_magazines_destroy(shim_magazines_t *m) {
    umf_magazines_fini(&m->m);
    free(m);
}

void *shim_pop(shim_magazines_t *m, uint32_t bin) {
    return umf_magazine_pop_stateless(&m->m, bin);
}
void shim_push(shim_magazines_t *m, uint32_t bin, void *object) {
    umf_magazine_push(&m->m, bin, (umf_item_t){.object = object});
}
void shim_meet_others(shim_magazines_t *m, uint32_t bin) {
    umf_magazine_of(&m->m, bin)->user.is_contended = true;
}
size_t shim_capacity(shim_magazines_t *m, uint32_t bin) {
    const umf_magazine_t *mag = umf_magazine_of(&m->m, bin);
    return (size_t)(mag->limit - mag->base);
}
void shim_look(shim_magazines_t *m) {
    umf_magazines_decay_now(&m->m);
}
void shim_flush(shim_magazines_t *m) {
    umf_magazines_flush(&m->m);
}
void shim_trim(shim_magazines_t *m) {
    umf_magazines_trim(&m->m);
}
size_t shim_live(shim_magazines_t *m) {
    return umf_magazines_live(&m->m);
}
size_t shim_cached(shim_magazines_t *m, uint32_t bin) {
    return umf_magazines_cached(&m->m, bin);
}
uint64_t shim_magic(size_t size) {
    return umf_magic(size);
}
int shim_magic_divides(uint64_t magic, uint64_t n) {
    return umf_magic_divides(magic, n);
}
