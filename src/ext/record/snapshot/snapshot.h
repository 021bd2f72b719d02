/*
 * Snapshots: a file (umf/record_format.h) of what there is at one moment.
 *
 * All spans of a snapshot lived at one moment, because spans freed before the listing of their runs
 * are dropped. Blocks allocated or freed while the snapshot was taken may be missing. Runs are
 * consistent for each slab, or for some hundred blocks. Nobody waits for more than that: no lock is
 * held for longer, a pool is visited for some spans at a time, and a span is used while it is
 * divided (track/use.h).
 */
#ifndef UMF_SRC_EXT_RECORD_SNAPSHOT_SNAPSHOT_H
#define UMF_SRC_EXT_RECORD_SNAPSHOT_SNAPSHOT_H

#include <stdbool.h>

#include "system/common.h"

typedef enum umf_snapshot_what_t {
    UMF_SNAPSHOT_FIGURES, /* objects only */
    UMF_SNAPSHOT_ALL,
} umf_snapshot_what_t;

/* Writes a snapshot to the beginning of an empty file. 0 or an errno value; ECANCELED: `is_enough`,
 * which is called now and then, has returned true. NULL: it is never enough. */
int umf_snapshot_write(int fd, umf_snapshot_what_t what, bool (*is_enough)(void));

#endif
