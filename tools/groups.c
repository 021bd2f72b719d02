#include <stdio.h>
#include <stdlib.h>

#include "groups.h"

/* --- live allocations ------------------------------------------------------------------------- */

static bool keep_group(groups_t *groups, const group_t *group) {
    if (groups->count == groups->room) {
        groups->room = groups->room ? 2 * groups->room : 1024;
        group_t *more = realloc(groups->items, groups->room * sizeof(*more));
        groups->items = more ? more : groups->items;
        if (!more) {
            return false;
        }
    }
    groups->items[groups->count++] = *group;
    return true;
}

static bool keep(groups_t *groups, const umf_reader_live_t *live) {
    group_t group = {live->object, live->stack, live->size, 1, live->ns, live->ns};
    return keep_group(groups, &group);
}

/* A pool that was destroyed has freed all that lived in it. In a part the replay decides. */
static bool is_gone(const umf_reader_t *reader, uint32_t object) {
    return !umf_reader_has_times(reader) &&
           umf_reader_object(reader, object)->flags & UMF_RECORD_OBJECT_IS_GONE;
}

static bool each_in_table(const umf_reader_t *reader, groups_t *groups, bool of_gone) {
    size_t count;
    const umf_reader_live_t *live = umf_reader_live(reader, &count);
    for (size_t i = 0; i < count; i++) {
        if (is_gone(reader, live[i].object) == of_gone &&
            !umf_reader_is_left_out(reader, live[i].object) && !keep(groups, &live[i])) {
            return false;
        }
    }
    return true;
}

static bool each_replayed(const umf_reader_replay_t *replay, const umf_reader_t *reader,
                          groups_t *groups) {
    const umf_reader_live_t *live;
    for (size_t at = 0; (live = umf_reader_replay_next(replay, &at)) != NULL;) {
        bool counts = !is_gone(reader, live->object) && !umf_reader_is_older(reader, live->thread);
        if (counts && !keep(groups, live)) {
            return false;
        }
    }
    return true;
}

static bool has_table(const umf_reader_t *reader) {
    return (umf_reader_info(reader)->flags & UMF_RECORD_HAS_LIVE) && !umf_reader_has_times(reader);
}

static bool keep_each(groups_t *groups, const umf_reader_t *reader, umf_reader_error_t *error) {
    const umf_reader_info_t *info = umf_reader_info(reader);
    snprintf(error->text, sizeof(error->text), "%s: there is no memory for the live allocations",
             info->name);
    if (has_table(reader)) {
        return each_in_table(reader, groups, false);
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

static void join(groups_t *groups) {
    size_t kept = 0;
    if (groups->count == 0) {
        return;
    }
    qsort(groups->items, groups->count, sizeof(*groups->items), groups_by_place);
    for (size_t i = 1; i < groups->count; i++) {
        if (groups_by_place(&groups->items[kept], &groups->items[i]) == 0) {
            add_group(&groups->items[kept], &groups->items[i]);
        } else {
            groups->items[++kept] = groups->items[i];
        }
    }
    groups->count = kept + 1;
}

bool groups_load(groups_t *groups, const umf_reader_t *reader, umf_reader_error_t *error) {
    *groups = (groups_t){0};
    bool is_kept = keep_each(groups, reader, error);
    if (is_kept) {
        join(groups);
    }
    return is_kept;
}

/* --- allocations of destroyed pools ----------------------------------------------------------- */

static bool each_ended(umf_reader_replay_t *replay, groups_t *groups) {
    const umf_reader_site_t *site;
    for (uint32_t i = 0; (site = umf_reader_replay_site(replay, i)) != NULL; i++) {
        group_t group = {site->object, site->stack, site->ended_bytes, site->ended_count, 0, 0};
        if (site->ended_count && !keep_group(groups, &group)) {
            return false;
        }
    }
    return true;
}

/* All events lead to all allocations. With lost events the table has the rest of them. */
bool groups_load_ended(groups_t *groups, group_t *lost, const umf_reader_t *reader,
                       umf_reader_error_t *error) {
    const umf_reader_info_t *info = umf_reader_info(reader);
    bool is_done = true;
    *groups = (groups_t){0};
    *lost = (group_t){0};
    snprintf(error->text, sizeof(error->text), "%s: there is no memory for the live allocations",
             info->name);
    if (info->kind != UMF_RECORD_FILE_RECORDING) {
        return true;
    }
    if (info->dropped && has_table(reader)) {
        lost->bytes = info->ended_bytes;
        lost->count = info->ended_count;
        is_done = each_in_table(reader, groups, true);
    } else {
        umf_reader_replay_t *replay = umf_reader_replay_begin(reader, error);
        is_done =
            replay && umf_reader_replay_run(replay, INT64_MAX, error) && each_ended(replay, groups);
        umf_reader_replay_free(replay);
    }
    if (is_done) {
        join(groups);
    }
    return is_done;
}

bool groups_are_complete(const umf_reader_t *reader) {
    const umf_reader_info_t *info = umf_reader_info(reader);
    if (has_table(reader)) {
        return info->live_dropped == 0;
    }
    return info->kind == UMF_RECORD_FILE_RECORDING && info->dropped == 0;
}
