/* Reports of an arena: its segments, counters and settings. */
#include "pools/shared/settings.h"
#include "pools/coalescing/arena/arena.h"
#include "pools/shared/walk.h"

/* --- walks ------------------------------------------------------------------------------------ */

/* Segments that are reported under one lock. */
#define WALK_STEPS 1024u

/* From the address on. Returns the next one; 0: there is none. */
static uintptr_t walk_some_locked(const umf_segments_t *area, uintptr_t from, umf_walk_t *walk) {
    const umf_segment_t *at = area->first;
    while (at && umf_segment_end(at) <= from) {
        at = at->next;
    }
    for (unsigned i = 0; at && i < WALK_STEPS; i++, at = at->next) {
        if (at->kind == UMF_SEGMENT_LIVE || at->kind == UMF_SEGMENT_FREE) {
            umf_walk_add(walk, at->base, at->size, 1,
                         at->kind == UMF_SEGMENT_LIVE ? UMF_RECORD_STATE_LIVE
                                                      : UMF_RECORD_STATE_FREE);
        }
        from = umf_segment_end(at);
    }
    return at ? from : 0;
}

void umf_arena_walk(void *self, const umf_span_t *span, umf_walk_t *walk) {
    umf_arena_t *arena = self;
    (void)span;
    for (size_t i = 0; i < UMF_ARENA_AREAS; i++) {
        uintptr_t from = 1;
        while (from) {
            umf_lock(&arena->lock);
            from = walk_some_locked(&arena->areas[i], from, walk);
            umf_unlock(&arena->lock);
        }
    }
}

/* --- settings --------------------------------------------------------------------------------- */

static size_t read_locked(umf_arena_t *arena, const size_t *member) {
    umf_lock(&arena->lock);
    size_t value = *member;
    umf_unlock(&arena->lock);
    return value;
}

static size_t largest_free(umf_arena_t *arena) {
    umf_lock(&arena->lock);
    const umf_segment_t *largest = umf_segments_largest(&arena->areas[UMF_ARENA_LARGE]);
    size_t size = largest ? largest->size : 0;
    umf_unlock(&arena->lock);
    return size;
}

#define COUNTER(member) read_locked(object, &((umf_arena_t *)object)->member)

UMF_FIELD_GETTER(get_used_memory, size_t, COUNTER(live))
UMF_FIELD_GETTER(get_used_peak, size_t, COUNTER(live_peak))
UMF_FIELD_GETTER(get_reserved_memory, size_t, COUNTER(held))
UMF_FIELD_GETTER(get_reserved_peak, size_t, COUNTER(held_peak))
UMF_FIELD_GETTER(get_spare, size_t, COUNTER(spare_bytes))
UMF_FIELD_GETTER(get_stale, size_t, COUNTER(stale_bytes))
UMF_FIELD_GETTER(get_donated, size_t, COUNTER(donated))
UMF_FIELD_GETTER(get_largest_free, size_t, largest_free(object))

static umf_result_t run_post_initialize(void *object) {
    ((umf_arena_t *)object)->sealed = true;
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t field_list[] = {
    {.path = "stats.used_memory", UMF_FIELD_COUNTER(get_used_memory)},
    {.path = "stats.used_peak", UMF_FIELD_COUNTER(get_used_peak)},
    {.path = "stats.reserved_memory", UMF_FIELD_COUNTER(get_reserved_memory)},
    {.path = "stats.reserved_peak", UMF_FIELD_COUNTER(get_reserved_peak)},
    {.path = "stats.spare_memory", UMF_FIELD_COUNTER(get_spare)},
    {.path = "stats.stale_memory", UMF_FIELD_COUNTER(get_stale)},
    {.path = "stats.donated_memory", UMF_FIELD_COUNTER(get_donated)},
    {.path = "stats.largest_free", UMF_FIELD_COUNTER(get_largest_free)},
    {.path = "post_initialize", .access = UMF_FIELD_RUN, .run = run_post_initialize},
};
static const umf_fields_t fields = UMF_FIELDS(field_list);

/* The range is made with the arena, so its parameters are those of the creation. */
umf_result_t umf_arena_ctl(void *self, umf_ctl_query_source_t source, const char *name, void *arg,
                           size_t size, umf_ctl_query_type_t type, va_list args) {
    return umf_pool_params_ctl(self, !((umf_arena_t *)self)->sealed, &fields,
                               &umf_coalescing_pool_params_kind, source, name, arg, size, type,
                               args);
}
