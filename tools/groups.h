/* Live allocations at the end of a recording, or in a snapshot, by pool and stack. */
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

/* Orders by pool and stack. */
int groups_by_place(const void *left, const void *right);

#endif
