/* Dirty: a set of ranges of offsets, sorted and apart from each other. Not thread-safe. */
#ifndef UMF_SRC_EXT_MOVEMENT_DIRTY_H
#define UMF_SRC_EXT_MOVEMENT_DIRTY_H

#include "system/common.h"

typedef struct umf_dirty_range_t {
    size_t begin, end;
} umf_dirty_range_t;

/* Zeroed, it is empty. */
typedef struct umf_dirty_t {
    umf_dirty_range_t *ranges;
    size_t count, room;
} umf_dirty_t;

/* Adds [begin, end); ranges that touch become one. false: no memory, nothing has changed. */
bool umf_dirty_add(umf_dirty_t *dirty, size_t begin, size_t end);
/* Removes [begin, end). false: no memory, nothing has changed. */
bool umf_dirty_remove(umf_dirty_t *dirty, size_t begin, size_t end);
void umf_dirty_fini(umf_dirty_t *dirty);

#endif
