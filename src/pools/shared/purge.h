/*
 * Purging what is free.
 *
 * The free segments of a range are isolated while they are purged without the lock: for the range
 * they are used, so no thread allocates them. The isolated segments of a shard are listed, because
 * in a child of fork the thread that would put them back may not exist.
 */
#ifndef UMF_SRC_POOLS_SHARED_PURGE_H
#define UMF_SRC_POOLS_SHARED_PURGE_H

#include <stdatomic.h>

#include "core/tracked_provider.h"
#include "ds/list.h"
#include "ds/range.h"

/* How the provider of a pool purges. */
typedef struct umf_purge_t {
    umf_tracked_provider_t *tracked;
    size_t
        page; /* the provider's smallest page; only whole pages are purged. Immutable, as above */
    _Atomic int mode; /* the operations that it does not support are not asked for again */
} umf_purge_t;

void umf_purge_init(umf_purge_t *purge, umf_tracked_provider_t *tracked, size_t page);
/* false: the provider cannot purge in any way. */
bool umf_purge(umf_purge_t *purge, uintptr_t base, size_t size);
bool umf_purge_is_possible(const umf_purge_t *purge);

#define UMF_ISOLATED_MAX 32

typedef struct umf_isolated_t {
    umf_list_t link;
    unsigned forks; /* umf_fork_count() when they were isolated */
    size_t count;
    umf_range_segment_t segments[UMF_ISOLATED_MAX];
} umf_isolated_t;

/* umf_range_take_free or umf_range_take_idle. */
typedef size_t (*umf_isolate_choice_t)(umf_range_t *range, uintptr_t *cursor, size_t min,
                                       umf_range_segment_t *segments, size_t n);

/* All of these are called with the lock of the range and the list. */

/* Isolates free segments. NULL: `choice` finds no more, or there is no memory to list them. */
umf_isolated_t *umf_isolate(umf_list_t *list, umf_range_t *range, umf_isolate_choice_t choice,
                            uintptr_t *cursor, size_t min);
/* Those of a thread of the parent process. NULL: there are none. */
umf_isolated_t *umf_isolated_inherit(const umf_list_t *list);
/* Are they still listed? Not if a child of fork, which called fork while it purged, has inherited
 * them. `forks`: their member. */
bool umf_isolated_is_listed(const umf_list_t *list, const umf_isolated_t *isolated, unsigned forks);
/* Is the segment at `base` isolated? */
bool umf_isolated_has(const umf_list_t *list, uintptr_t base);
size_t umf_isolated_bytes(const umf_list_t *list);
/* They are free again for the range. */
void umf_isolated_end(umf_isolated_t *isolated);
/* The range is about to go: forgets what a child of fork has not inherited. */
void umf_isolated_fini(umf_list_t *list);

#endif
