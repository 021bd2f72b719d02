/* Trims, ticks and waits of an arena. */
#include "cache/decay.h"
#include "pools/coalescing/arena/arena.h"

/* Bytes that are free or stale, and in use by work; `all` gets its queues. */
static size_t pending_locked(const umf_arena_t *arena, umf_uses_t *all) {
    size_t bytes = 0;
    for (const umf_arena_stale_t *at = arena->stale; at; at = at->next) {
        if (!umf_arena_is_idle_locked(arena, &at->segment->uses)) {
            bytes += at->segment->size;
            umf_uses_merge(all, &at->segment->uses);
        }
    }
    for (size_t i = 0; i < UMF_ARENA_AREAS; i++) {
        const umf_segments_t *area = &arena->areas[i];
        for (umf_segment_t *at = umf_segments_largest(area); at;
             at = umf_segments_below(area, at)) {
            if (!umf_arena_is_idle_locked(arena, &at->uses)) {
                bytes += at->size;
                umf_uses_merge(all, &at->uses);
            }
        }
    }
    return bytes;
}

size_t umf_arena_pending(void *self, bool waits) {
    umf_arena_t *arena = self;
    umf_uses_t all = {0}, left = {0};
    if (umf_arena_is_inside(arena)) {
        return 0;
    }
    umf_arena_driver_lock(arena);
    umf_arena_settle(arena, waits);
    umf_lock(&arena->lock);
    pending_locked(arena, &all);
    umf_unlock(&arena->lock);
    umf_arena_look(arena, &all, true, waits);
    umf_lock(&arena->lock);
    size_t bytes = pending_locked(arena, &left);
    umf_unlock(&arena->lock);
    umf_arena_driver_unlock(arena);
    return bytes;
}

umf_result_t umf_arena_trim(void *self, size_t keep) {
    umf_arena_t *arena = self;
    umf_transit_part_t part;
    if (umf_arena_is_inside(arena)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_transit_begin(&arena->transit, &part);
    umf_arena_driver_lock(arena);
    umf_arena_release(arena, keep);
    umf_arena_driver_unlock(arena);
    umf_transit_end(&part);
    return UMF_RESULT_SUCCESS;
}

static bool has_stale(umf_arena_t *arena) {
    umf_lock(&arena->lock);
    bool is_any = arena->stale != NULL;
    umf_unlock(&arena->lock);
    return is_any;
}

/* One mapping at a time, so that no request is kept from the driver for long. */
void umf_arena_tick(void *self) {
    umf_arena_t *arena = self;
    bool goes_on = has_stale(arena);
    while (goes_on && umf_arena_driver_try_lock(arena)) {
        goes_on = umf_arena_settle_one(arena, false) && has_stale(arena);
        umf_arena_driver_unlock(arena);
    }
    if (goes_on) {
        umf_decay_tick_soon(); /* another thread has the lock */
    }
}
