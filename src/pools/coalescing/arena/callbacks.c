/*
 * Callbacks of an arena's memory (umf/registration.h). Each page at its place is a run. It is
 * reported before the block there is used; at its old place it is taken back before it is mapped
 * elsewhere, although the old mapping stays until queued work has completed: a record made there
 * would reach the block that the page serves next.
 */
#include "base/thread_slot.h"
#include "pools/coalescing/arena/arena.h"

bool umf_arena_is_inside(const umf_arena_t *arena) {
    return atomic_load(&arena->inside) == umf_thread_slot_number();
}

static umf_memory_run_t run_of(const umf_arena_t *arena, const umf_arena_page_t *page,
                               uintptr_t at) {
    return (umf_memory_run_t){.base = (void *)at,
                              .size = page->memory.size,
                              .handle = arena->provider.ext->dmabuf ? page->memory.id : 0,
                              .generation = page->generation};
}

umf_result_t umf_arena_tell_mapped(umf_arena_t *arena, const umf_arena_page_t *page) {
    if (!umf_tracked_is_watched(arena->tracked)) {
        return UMF_RESULT_SUCCESS;
    }
    const umf_memory_run_t run = run_of(arena, page, page->home);
    atomic_store(&arena->inside, umf_thread_slot_number());
    umf_result_t result = umf_tracked_page_mapped(arena->tracked, &run);
    atomic_store(&arena->inside, 0);
    return result;
}

void umf_arena_tell_unmapping(umf_arena_t *arena, const umf_arena_page_t *page, uintptr_t at) {
    if (umf_tracked_is_watched(arena->tracked)) {
        const umf_memory_run_t run = run_of(arena, page, at);
        atomic_store(&arena->inside, umf_thread_slot_number());
        umf_tracked_page_unmapping(arena->tracked, &run);
        atomic_store(&arena->inside, 0);
    }
}

void umf_arena_tell_stale(umf_arena_t *arena, umf_arena_stale_t *stale) {
    uintptr_t at = stale->segment->base;
    for (size_t i = 0; i < stale->count && !stale->is_told; i++) {
        umf_arena_tell_unmapping(arena, stale->pages[i], at);
        at += stale->pages[i]->memory.size;
    }
    stale->is_told = true;
}

/* The list changes with the driver lock only. */
void umf_arena_tell_left(umf_arena_t *arena) {
    bool is_watched = umf_tracked_is_watched(arena->tracked);
    for (umf_arena_stale_t *at = arena->stale; at && is_watched; at = at->next) {
        umf_arena_tell_stale(arena, at);
    }
}

/* A page. */
typedef struct visit_t {
    const umf_arena_t *arena;
    umf_part_visit_t visit;
    void *arg;
} visit_t;

static void visit_slot(uint64_t slot, void *value, void *arg) {
    const visit_t *call = arg;
    const umf_arena_page_t *page = value;
    if (page->home / call->arena->unit == slot) {
        call->visit(page->home, page->memory.size, call->arg);
    }
}

void umf_arena_each_page(void *self, umf_part_visit_t visit, void *arg) {
    umf_arena_t *arena = self;
    visit_t call = {arena, visit, arg};
    umf_lock(&arena->lock);
    umf_hash_each(&arena->slots, visit_slot, &call);
    umf_unlock(&arena->lock);
}

static void tell_slot(uint64_t slot, void *value, void *arg) {
    umf_arena_t *arena = arg;
    const umf_arena_page_t *page = value;
    if (page->home / arena->unit == slot) {
        umf_arena_tell_unmapping(arena, page, page->home);
    }
}

void umf_arena_tell_all(umf_arena_t *arena) {
    umf_arena_tell_left(arena);
    umf_hash_each(&arena->slots, tell_slot, arena);
}
