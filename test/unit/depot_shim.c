#include "depot_shim.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "cache/depot.h"

shim_depots_t *shim_depots_create(size_t capacity, uint32_t limit) {
    umf_depots_t *depots = umf_depots_create(capacity);
    if (depots) {
        depots->limit = limit;
    }
    return depots;
}

void shim_depots_destroy(shim_depots_t *depots) {
    umf_depots_destroy(depots);
}

static void objects_of(void **objects, umf_item_t *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        objects[i] = items[i].object;
    }
    free(items);
}

size_t shim_depots_take(shim_depots_t *depots, shim_thread_t *thread, void **objects, size_t n) {
    umf_item_t *items = calloc(n, sizeof(*items));
    umf_depot_user_t user = {thread->needed, thread->is_contended};
    size_t taken =
        umf_depots_take(depots, thread->number, thread->is_known ? &user : NULL, items, n);
    thread->is_contended = user.is_contended;
    objects_of(objects, items, taken);
    return taken;
}

bool shim_depots_give(shim_depots_t *depots, shim_thread_t *thread, void *const *objects,
                      size_t n) {
    umf_item_t *items = calloc(n, sizeof(*items));
    for (size_t i = 0; i < n; i++) {
        items[i].object = objects[i];
    }
    umf_depot_user_t user = {thread->needed, thread->is_contended};
    bool is_given =
        umf_depots_give(depots, thread->number, thread->is_known ? &user : NULL, items, n);
    thread->is_contended = user.is_contended;
    thread->needed = user.needed;
    free(items);
    return is_given;
}

/* The lock is a depot's first member. */
void shim_depots_lock(shim_depots_t *depots, uint32_t index, bool is_locked) {
    umf_lock_t *lock = (umf_lock_t *)atomic_load(&depots->at[index]);
    if (is_locked) {
        umf_lock(lock);
    } else {
        umf_unlock(lock);
    }
}

bool shim_depots_is_awaited(const shim_depots_t *depots, uint32_t index) {
    const umf_lock_t *lock = (const umf_lock_t *)atomic_load(&depots->at[index]);
    return __atomic_load_n(&lock->state, __ATOMIC_RELAXED) == UMF_LOCK_AWAITED;
}

size_t shim_depots_count(const shim_depots_t *depots) {
    return umf_depots_count(depots);
}

size_t shim_depots_count_idle(shim_depots_t *depots) {
    return umf_depots_count_idle(depots);
}

size_t shim_depots_take_idle(shim_depots_t *depots, void **objects, size_t n) {
    umf_item_t *items = calloc(n, sizeof(*items));
    size_t taken = umf_depots_take_idle(depots, items, n);
    objects_of(objects, items, taken);
    return taken;
}

void shim_depots_trim(shim_depots_t *depots) {
    umf_depots_trim(depots);
}

size_t shim_depots_resident(shim_depots_t *depots, uint32_t index, size_t page_size) {
    /* A large depot is a mapping of its own. */
    size_t page = page_size, count = 0, pages = depots->capacity * sizeof(umf_item_t) / page;
    unsigned char *state = calloc(pages, 1);
    if (mincore(atomic_load(&depots->at[index]), pages * page, state) != 0) {
        abort();
    }
    for (size_t i = 0; i < pages; i++) {
        count += state[i] & 1;
    }
    free(state);
    return count * page;
}
