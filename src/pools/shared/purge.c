#include "pools/shared/purge.h"

#include <umf/result.h>

#include "base/lock.h"
#include "base/meta.h"

enum { PURGE_FORCE, PURGE_LAZY, PURGE_NONE };

void umf_purge_init(umf_purge_t *purge, umf_tracked_provider_t *tracked, size_t page) {
    *purge = (umf_purge_t){.tracked = tracked, .page = page, .mode = PURGE_FORCE};
}

static int purge_mode(const umf_purge_t *purge) {
    return atomic_load_explicit(&purge->mode, memory_order_relaxed);
}

bool umf_purge_is_possible(const umf_purge_t *purge) {
    return purge_mode(purge) != PURGE_NONE;
}

static umf_result_t purge_by(const umf_purge_t *purge, int mode, void *ptr, size_t size) {
    return mode == PURGE_FORCE ? umfMemoryProviderPurgeForce(purge->tracked, ptr, size)
                               : umfMemoryProviderPurgeLazy(purge->tracked, ptr, size);
}

bool umf_purge(umf_purge_t *purge, uintptr_t base, size_t size) {
    uintptr_t first = base + purge->page - 1, end = base + size;
    first -= first % purge->page;
    end -= end % purge->page;
    int mode = purge_mode(purge);
    while (first < end && mode != PURGE_NONE &&
           purge_by(purge, mode, (void *)first, end - first) == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        atomic_store_explicit(&purge->mode, ++mode, memory_order_relaxed);
    }
    return mode != PURGE_NONE;
}

umf_isolated_t *umf_isolate(umf_list_t *list, umf_range_t *range, umf_isolate_choice_t choice,
                            uintptr_t *cursor, size_t min) {
    umf_isolated_t *isolated = umf_meta_alloc(sizeof(*isolated));
    if (!isolated) {
        return NULL;
    }
    isolated->forks = umf_fork_count();
    isolated->count = choice(range, cursor, min, isolated->segments, UMF_ISOLATED_MAX);
    if (!isolated->count) {
        umf_meta_free(isolated, sizeof(*isolated));
        return NULL;
    }
    umf_list_add(list, &isolated->link);
    return isolated;
}

static umf_isolated_t *isolated_at(umf_list_t *link) {
    return UMF_CONTAINER_OF(link, umf_isolated_t, link);
}

umf_isolated_t *umf_isolated_inherit(const umf_list_t *list) {
    umf_list_t *link = list->next;
    while (link != list && isolated_at(link)->forks == umf_fork_count()) {
        link = link->next;
    }
    return link != list ? isolated_at(link) : NULL;
}

bool umf_isolated_is_listed(const umf_list_t *list, const umf_isolated_t *isolated,
                            unsigned forks) {
    const umf_list_t *link = list->next;
    while (link != list && link != &isolated->link) {
        link = link->next;
    }
    return link != list && isolated->forks == forks;
}

static bool isolated_contains(const umf_isolated_t *isolated, uintptr_t base) {
    for (size_t i = 0; i < isolated->count; i++) {
        if (isolated->segments[i].base == base) {
            return true;
        }
    }
    return false;
}

bool umf_isolated_has(const umf_list_t *list, uintptr_t base) {
    for (umf_list_t *link = list->next; link != list; link = link->next) {
        if (isolated_contains(isolated_at(link), base)) {
            return true;
        }
    }
    return false;
}

size_t umf_isolated_bytes(const umf_list_t *list) {
    size_t bytes = 0;
    for (umf_list_t *link = list->next; link != list; link = link->next) {
        for (size_t i = 0; i < isolated_at(link)->count; i++) {
            bytes += isolated_at(link)->segments[i].size;
        }
    }
    return bytes;
}

void umf_isolated_end(umf_isolated_t *isolated) {
    umf_list_remove(&isolated->link);
    umf_meta_free(isolated, sizeof(*isolated));
}

void umf_isolated_fini(umf_list_t *list) {
    while (!umf_list_is_empty(list)) {
        umf_isolated_end(isolated_at(list->next));
    }
}
