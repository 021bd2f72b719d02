/*
 * Purging free memory: on a trim all of it, at a decay pass memory that was unused for a while.
 *
 * A pool has one or more parts, ranges with a lock each. Free segments of a range are isolated
 * while they are purged without the lock: for the range they are used, so no thread allocates them,
 * and the pool counts as one with memory in transit (cache/transit.h). The isolated segments of a
 * part are listed, because in a child of fork the thread that would put them back may not exist.
 */
#ifndef UMF_SRC_POOLS_SHARED_PURGE_H
#define UMF_SRC_POOLS_SHARED_PURGE_H

#include "base/lock.h"
#include "cache/transit.h"
#include "ds/list.h"
#include "ds/range.h"
#include "object/provider/tracked_provider.h"
#include "system/atomic.h"

typedef struct umf_purge_part_t umf_purge_part_t;

typedef struct umf_purge_t {
    umf_tracked_provider_t *tracked;
    size_t page; /* the provider's smallest page; only whole pages are purged. Immutable, as above
                    and the next four, which only pools with parts set */
    void *pool;
    umf_purge_part_t *(*part)(void *pool, uint32_t index); /* NULL: there are no more */
    /* A region became wholly free because a segment was put back. Called with the lock. May be
     * NULL. */
    void (*fell_free)(void *pool, umf_purge_part_t *part, uintptr_t base);
    umf_transit_t *transit;
    _Atomic(int) mode; /* the operations that the provider does not support are not called again */
    _Atomic(uint32_t) decay_part; /* where the next decay pass begins */
} umf_purge_t;

struct umf_purge_part_t {
    umf_purge_t *purge; /* Immutable, as the next two */
    umf_lock_t *lock;
    umf_range_t **range;    /* it has NULL before there is memory. Sync: lock, as the rest */
    umf_list_t isolated;    /* free segments that are being purged: no user owns them */
    uintptr_t decay_cursor; /* where the next decay pass begins */
};

void umf_purge_init(umf_purge_t *purge, umf_tracked_provider_t *tracked, size_t page);
/* Purges the whole pages. NOT_SUPPORTED: the provider cannot purge in any way. Otherwise the
 * provider's result; a range without a whole page is SUCCESS. */
umf_result_t umf_purge(umf_purge_t *purge, uintptr_t base, size_t size);

void umf_purge_part_init(umf_purge_part_t *part, umf_purge_t *purge, umf_lock_t *lock,
                         umf_range_t **range);
/* Drops state that a child of fork has not inherited. */
void umf_purge_part_fini(umf_purge_part_t *part);

/* Purges all free segments of all parts. */
void umf_purge_all(umf_purge_t *purge);
/* Before a pool takes `bytes` from its provider because nothing fits: purges as many bytes of large
 * free segments, so that resident memory grows only by used memory. */
void umf_purge_before_growth(umf_purge_t *purge, size_t bytes);
/* A decay pass (cache/decay.h): purges segments that have been free for a while. true: there may be
 * more. */
bool umf_purge_decay(umf_purge_t *purge);

/* With the lock of the part. */

/* In a child of fork: frees what threads of the parent were purging. false: nothing. */
bool umf_purge_inherit_locked(umf_purge_part_t *part);
/* Is the segment at `base` isolated? */
bool umf_purge_has_isolated(const umf_purge_part_t *part, uintptr_t base);
size_t umf_purge_isolated_bytes(const umf_purge_part_t *part);

#endif
