/* The object of the coalescing pool and its shards, for the pool's own files. */
#ifndef UMF_SRC_POOLS_COALESCING_COALESCING_H
#define UMF_SRC_POOLS_COALESCING_COALESCING_H

#include <umf/plugin.h>
#include <umf/pools/pool_coalescing.h>

#include "base/lock.h"
#include "base/thread_slot.h"
#include "cache/decay.h"
#include "cache/transit.h"
#include "ctl/params.h"
#include "ds/range.h"
#include "object/content.h"
#include "pools/shared/purge.h"

#define UMF_COALESCING_SHARDS_MAX 16

#define UMF_PARAMS umf_coalescing_pool_params
#define UMF_PARAMS_TABLE "pools/coalescing/coalescing_params.def"
typedef struct umf_coalescing_pool_params_t {
#include "ctl/params_members.h"
} umf_coalescing_pool_params_t;
UMF_PARAMS_DECLARE(umf_coalescing_pool_params)

/* Spans that share a lock. A block goes back into the shard from which it was cut. */
typedef struct umf_coalescing_shard_t {
    umf_range_t *range; /* Immutable. What it points to: Sync: lock */
    uint32_t index;     /* Immutable. The cookie of its spans */
    uint32_t threads;   /* that allocate here, of those that have contended. Sync: atomic */
    _Alignas(UMF_CACHE_ISOLATION)
        umf_lock_t lock; /* isolated from words that others read without it */
    size_t live;         /* blocks in use, and reserved ones. Sync: lock */
    umf_purge_part_t part;
} umf_coalescing_shard_t;

typedef struct umf_coalescing_pool_t {
    umf_coalescing_pool_params_t params; /* first, as fields require. Immutable once sealed */
    bool sealed;                         /* settings can no longer change */
    umf_tracked_provider_t *tracked;
    umf_content_t content;
    umf_transit_t transit; /* isolated segments, and spans on their way */
    umf_purge_t purge;
    umf_decay_t decay;
    size_t page;                        /* the provider's smallest page. Immutable */
    umf_thread_slot_owner_t slots;      /* umf_coalescing_thread_t of each thread */
    struct umf_coalescing_kept_t *kept; /* NULL: not yet. Sync: atomic, set once */
    /* At first there is one; NULL follows the last. Each is set once. Sync: atomic */
    umf_coalescing_shard_t *shards[UMF_COALESCING_SHARDS_MAX + 1];
} umf_coalescing_pool_t;

/* coalescing.c: the thread's last error. fail returns NULL. */
void *umf_coalescing_fail(umf_result_t result);
umf_result_t umf_coalescing_last_error(void *pool);

/* walk.c */
struct umf_walk_t;
void umf_coalescing_walk(void *pool, const umf_span_t *span, struct umf_walk_t *walk);

/* settings.c */
void umf_coalescing_choose_granule(umf_coalescing_pool_params_t *params,
                                   umf_tracked_provider_t *tracked);
/* Derives from the provider the values that the parameters leave open; `tracked` and `page` must be
 * set. */
void umf_coalescing_choose_defaults(umf_coalescing_pool_t *pool);
umf_result_t umf_coalescing_ctl(void *pool, umf_ctl_query_source_t source, const char *name,
                                void *arg, size_t size, umf_ctl_query_type_t type, va_list args);

#endif
