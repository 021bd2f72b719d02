/* Live allocations at the end of a recording, or in a snapshot, and those of destroyed pools, by
 * pool and stack. */
#ifndef UMFCTL_GROUPS_H
#define UMFCTL_GROUPS_H

#include "reader/reader.h"

typedef struct group_t {
    uint32_t object, stack;
    uint64_t bytes, count;
    int64_t oldest, newest; /* times of allocation */
} group_t;

typedef struct groups_t {
    group_t *items; /* to be freed; ordered by pool and stack */
    size_t count, room;
} groups_t;

/*
 * Live allocations of pools that exist: by the live table, else by replay. False:
 * `error` says why; `groups` is to be freed then, too.
 */
bool groups_load(groups_t *groups, const umf_reader_t *reader, umf_reader_error_t *error);

/*
 * Allocations that lived when their pool was destroyed, in a recording. `lost`: the sum of those
 * whose stack is not known. False: as above.
 */
bool groups_load_ended(groups_t *groups, group_t *lost, const umf_reader_t *reader,
                       umf_reader_error_t *error);

/* False: events or items that the answer needs are lost, or the file never had them. */
bool groups_are_complete(const umf_reader_t *reader);

/* Orders by pool and stack. */
int groups_by_place(const void *left, const void *right);

#endif
