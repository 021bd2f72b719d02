/* The way through all events, and the memory of a picture. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

void *picture_take(picture_t *picture, size_t count, size_t size) {
    const size_t head = sizeof(max_align_t) > sizeof(void *) ? sizeof(max_align_t) : sizeof(void *);
    if (size > 0 && count > (SIZE_MAX - head) / size) {
        picture->has_failed = true;
        return NULL;
    }
    char *memory = calloc(1, head + count * size);
    if (!memory) {
        picture->has_failed = true;
        return NULL;
    }
    memcpy(memory, &picture->memory, sizeof(void *));
    picture->memory = memory;
    return memory + head;
}

void picture_free_all(picture_t *picture) {
    while (picture->memory) {
        void *next;
        memcpy(&next, picture->memory, sizeof(next));
        free(picture->memory);
        picture->memory = next;
    }
}

static picture_site_t *site_at(picture_t *picture, const umf_reader_live_t *what) {
    while (what->site >= picture->site_room) {
        uint32_t room = picture->site_room ? 2 * picture->site_room : 1024;
        picture_site_t *sites = picture_take(picture, room, sizeof(*sites));
        if (!sites) {
            return NULL;
        }
        if (picture->site_count > 0) {
            memcpy(sites, picture->sites, picture->site_count * sizeof(*sites));
        }
        picture->sites = sites;
        picture->site_room = room;
    }
    picture_site_t *site = &picture->sites[what->site];
    site->object = what->object;
    site->stack = what->stack;
    picture->site_count = what->site < picture->site_count ? picture->site_count : what->site + 1;
    return site;
}

static void change(picture_t *picture, const picture_visitor_t *visitor,
                   const umf_reader_live_t *what, bool is_more) {
    picture_site_t *site = site_at(picture, what);
    if (!site) {
        return;
    }
    uint64_t size = is_more ? what->size : -what->size, one = is_more ? 1 : UINT64_MAX;
    site->bytes += size;
    site->count += one;
    site->peak_bytes = site->bytes > site->peak_bytes ? site->bytes : site->peak_bytes;
    site->peak_count = site->count > site->peak_count ? site->count : site->peak_count;
    picture->site_now[0][site->slot] += size;
    picture->site_now[1][site->slot] += one;
    if (visitor->changed) {
        visitor->changed(picture, what, is_more);
    }
}

/* A snapshot has the bytes of pools; providers in it have the same bytes, and would count twice. */
static picture_object_t now(picture_t *picture, umf_reader_replay_t *replay, uint32_t number) {
    const umf_reader_object_use_t *use = umf_reader_replay_object(replay, number);
    const umf_record_object_t *listed = umf_reader_object(picture->reader, number);
    bool is_pool = listed->kind == UMF_RECORD_OBJECT_POOL;
    if (picture->info->kind != UMF_RECORD_FILE_SNAPSHOT) {
        return (picture_object_t){.live = use->use.bytes,
                                  .held = is_pool ? use->held : use->use.bytes};
    }
    bool has_live = is_pool && listed->live != UMF_RECORD_UNKNOWN;
    bool has_held = is_pool && listed->held != UMF_RECORD_UNKNOWN;
    return (picture_object_t){.live = has_live ? listed->live : use->use.bytes,
                              .held = has_held ? listed->held : 0};
}

static void object_is(picture_t *picture, umf_reader_replay_t *replay, uint32_t number) {
    const picture_object_t is = now(picture, replay, number);
    picture_object_t *object = &picture->objects[number];
    uint64_t held = is.held;
    picture->pool_now[0][object->slot] += is.live - object->live;
    picture->pool_now[1][object->slot] += held - object->held;
    picture->live += is.live - object->live;
    object->live = is.live;
    object->held = held;
    object->peak_live = object->live > object->peak_live ? object->live : object->peak_live;
    object->peak_held = held > object->peak_held ? held : object->peak_held;
}

static void apply(picture_t *picture, const picture_visitor_t *visitor, umf_reader_replay_t *replay,
                  const umf_reader_event_t *event) {
    umf_reader_change_t what = {.kind = UMF_READER_NO_CHANGE};
    if (!umf_reader_replay_apply(replay, event, &what)) {
        picture->has_failed = true;
        return;
    }
    if (what.replaced.size > 0) {
        change(picture, visitor, &what.replaced, false);
        object_is(picture, replay, what.replaced.object);
    }
    if (what.kind == UMF_READER_ALLOCATED || what.kind == UMF_READER_RESTORED) {
        change(picture, visitor, &what.what, true);
        object_is(picture, replay, what.what.object);
    } else if (what.kind == UMF_READER_FREED) {
        change(picture, visitor, &what.what, false);
        object_is(picture, replay, what.what.object);
    }
    object_is(picture, replay, event->object);
}

/* Allocations that were live from the beginning on. */
static void begin(picture_t *picture, const picture_visitor_t *visitor,
                  umf_reader_replay_t *replay) {
    const umf_reader_live_t *live;
    size_t position = 0;
    memset(picture->pool_now, 0, sizeof(picture->pool_now));
    memset(picture->site_now, 0, sizeof(picture->site_now));
    picture->live = 0;
    for (uint32_t i = 0; i < picture->site_count; i++) {
        picture->sites[i].bytes = picture->sites[i].count = 0;
    }
    for (uint32_t i = 0; i < picture->info->object_count; i++) {
        picture->objects[i].live = picture->objects[i].held = 0;
    }
    while ((live = umf_reader_replay_next(replay, &position))) {
        change(picture, visitor, live, true);
    }
    for (uint32_t i = 0; i < picture->info->object_count; i++) {
        object_is(picture, replay, i);
    }
}

static bool events(picture_t *picture, const picture_visitor_t *visitor,
                   umf_reader_replay_t *replay) {
    umf_reader_cursor_t *cursor = umf_reader_iterate(picture->reader, picture->error);
    umf_reader_event_t event;
    if (!cursor) {
        return false;
    }
    while (!picture->has_failed && umf_reader_next(cursor, &event)) {
        if (visitor->before) {
            visitor->before(picture, &event);
        }
        apply(picture, visitor, replay, &event);
        if (visitor->after) {
            visitor->after(picture, replay, &event);
        }
    }
    umf_reader_cursor_free(cursor);
    return true;
}

bool picture_visit(picture_t *picture, const picture_visitor_t *visitor) {
    umf_reader_replay_t *replay = umf_reader_replay_begin(picture->reader, picture->error);
    if (!replay) {
        return false;
    }
    begin(picture, visitor, replay);
    bool is_good = events(picture, visitor, replay);
    if (is_good && visitor->end) {
        visitor->end(picture, replay);
    }
    umf_reader_replay_free(replay);
    return is_good;
}
