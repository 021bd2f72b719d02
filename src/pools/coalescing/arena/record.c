/* Sums of an arena's pages for recordings (umf/record_format.h). Other files emit the events of
 * each page. */
#include <string.h>

#include "pools/coalescing/arena/arena.h"

static umf_arena_sums_t sums_locked(const umf_arena_t *arena) {
    return (umf_arena_sums_t){.held = arena->held,
                              .spare = arena->spare_bytes,
                              .stale = arena->stale_bytes,
                              .donated = arena->donated};
}

static void emit(const umf_arena_t *arena, const umf_arena_sums_t *sums) {
    umf_tracked_page_event(arena->tracked, UMF_RECORD_PAGES, sums->held, sums->spare);
    umf_tracked_page_event(arena->tracked, UMF_RECORD_PAGES_MOVED, sums->stale, sums->donated);
}

/* Sums change with the driver lock only: those of a later change are emitted later. */
void umf_arena_record_sums(umf_arena_t *arena) {
    if (umf_likely(!umf_tracked_is_recorded())) {
        return;
    }
    umf_lock(&arena->lock);
    umf_arena_sums_t sums = sums_locked(arena);
    bool has_changed = memcmp(&sums, &arena->recorded, sizeof(sums)) != 0;
    arena->recorded = sums;
    umf_unlock(&arena->lock);
    if (has_changed) {
        emit(arena, &sums);
    }
}

/* Under the lock, as a thread with the driver lock may be about to change them. */
void umf_arena_recorded(void *self) {
    umf_arena_t *arena = self;
    umf_lock(&arena->lock);
    arena->recorded = sums_locked(arena);
    emit(arena, &arena->recorded);
    umf_unlock(&arena->lock);
}
