#include <stdio.h>
#include <stdlib.h>

#include "groups.h"

/* --- live allocations ------------------------------------------------------------------------- */

static bool keep(groups_t *groups, const umf_reader_live_t *live) {
    if (groups->count == groups->room) {
        groups->room = groups->room ? 2 * groups->room : 1024;
        group_t *more = realloc(groups->items, groups->room * sizeof(*more));
        groups->items = more ? more : groups->items;
        if (!more) {
            return false;
        }
    }
    groups->items[groups->count++] =
        (group_t){live->object, live->stack, live->size, 1, live->ns, live->ns};
    return true;
}

/* A pool that was destroyed has freed all that lived in it. */
static bool is_gone(const umf_reader_t *reader, uint32_t object) {
    return umf_reader_object(reader, object)->flags & UMF_RECORD_OBJECT_IS_GONE;
}

static bool each_in_table(const umf_reader_t *reader, groups_t *groups) {
    size_t count;
    const umf_reader_live_t *live = umf_reader_live(reader, &count);
    for (size_t i = 0; i < count; i++) {
        if (!is_gone(reader, live[i].object) && !keep(groups, &live[i])) {
            return false;
        }
    }
    return true;
}

static bool each_replayed(const umf_reader_replay_t *replay, const umf_reader_t *reader,
                          groups_t *groups) {
    const umf_reader_live_t *live;
    for (size_t at = 0; (live = umf_reader_replay_next(replay, &at)) != NULL;) {
        if (!is_gone(reader, live->object) && !keep(groups, live)) {
            return false;
        }
    }
    return true;
}

static bool keep_each(groups_t *groups, const umf_reader_t *reader, umf_reader_error_t *error) {
    const umf_reader_info_t *info = umf_reader_info(reader);
    snprintf(error->text, sizeof(error->text), "%s: there is no memory for the live allocations",
             info->name);
    if (info->flags & UMF_RECORD_HAS_LIVE) {
        return each_in_table(reader, groups);
    }
    umf_reader_replay_t *replay = umf_reader_replay_begin(reader, error);
    bool is_done = replay && umf_reader_replay_run(replay, INT64_MAX, error) &&
                   each_replayed(replay, reader, groups);
    umf_reader_replay_free(replay);
    return is_done;
}

/* --- groups ----------------------------------------------------------------------------------- */

int groups_by_place(const void *left, const void *right) {
    const group_t *a = left, *b = right;
    if (a->object != b->object) {
        return a->object < b->object ? -1 : 1;
    }
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static void add_group(group_t *to, const group_t *from) {
    to->bytes += from->bytes;
    to->count += from->count;
    to->oldest = from->oldest < to->oldest ? from->oldest : to->oldest;
    to->newest = from->newest > to->newest ? from->newest : to->newest;
}

bool groups_load(groups_t *groups, const umf_reader_t *reader, umf_reader_error_t *error) {
    *groups = (groups_t){0};
    if (!keep_each(groups, reader, error)) {
        return false;
    } else if (groups->count == 0) {
        return true;
    }
    size_t kept = 0;
    qsort(groups->items, groups->count, sizeof(*groups->items), groups_by_place);
    for (size_t i = 1; i < groups->count; i++) {
        if (groups_by_place(&groups->items[kept], &groups->items[i]) == 0) {
            add_group(&groups->items[kept], &groups->items[i]);
        } else {
            groups->items[++kept] = groups->items[i];
        }
    }
    groups->count = kept + 1;
    return true;
}
