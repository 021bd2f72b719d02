/* Pages of arenas over time: their sums at the end of each bin of the timeline. */
#include "parts.h"

static const char *const rows[PICTURE_SUMS] = {"reserved", "spare", "stale", "donated"};

/* Of the pools with the most memory those that are arenas. */
void picture_pages_prepare(picture_t *picture) {
    for (uint32_t i = 0; i < picture->pool_count && picture->arena_count < PICTURE_ARENAS; i++) {
        const picture_object_t *object = &picture->objects[picture->pools[i]];
        uint64_t *bins =
            object->has_sums
                ? picture_take(picture, (size_t)PICTURE_SUMS * PICTURE_BINS, sizeof(*bins))
                : NULL;
        if (bins) {
            picture->arenas[picture->arena_count++] =
                (picture_arena_t){.object = picture->pools[i], .slot = i, .bins = bins};
        }
    }
}

void picture_pages_event(picture_t *picture, umf_reader_replay_t *replay,
                         const umf_reader_event_t *event) {
    for (uint32_t i = 0; i < picture->arena_count; i++) {
        picture_arena_t *arena = &picture->arenas[i];
        if (arena->object == event->object) {
            const umf_reader_pages_t *pages =
                &umf_reader_replay_object(replay, event->object)->pages;
            const uint64_t now[PICTURE_SUMS] = {pages->reserved, pages->spare, pages->stale,
                                                pages->donated};
            for (uint32_t row = 0; row < PICTURE_SUMS; row++) {
                arena->now[row] = now[row];
            }
        }
    }
}

void picture_pages_set(picture_t *picture, uint32_t bin) {
    for (uint32_t i = 0; i < picture->arena_count; i++) {
        const picture_arena_t *arena = &picture->arenas[i];
        for (uint32_t row = 0; row < PICTURE_SUMS; row++) {
            arena->bins[(size_t)row * PICTURE_BINS + bin] = arena->now[row];
        }
    }
}

void picture_pages_write(picture_t *picture) {
    picture_out_t *out = picture->out;
    picture_key(out, "arenas");
    picture_open(out, '[');
    for (uint32_t i = 0; i < picture->arena_count; i++) {
        const picture_arena_t *arena = &picture->arenas[i];
        picture_open(out, '{');
        picture_member(out, "pool", arena->slot);
        for (uint32_t row = 0; row < PICTURE_SUMS; row++) {
            picture_key(out, rows[row]);
            picture_series(out, &arena->bins[(size_t)row * PICTURE_BINS], PICTURE_BINS);
        }
        picture_close(out, '}');
    }
    picture_close(out, ']');
}
