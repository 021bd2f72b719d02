/* The object of the scalable pool, for the pool's own files. */
#ifndef UMF_SRC_POOLS_SCALABLE_SCALABLE_H
#define UMF_SRC_POOLS_SCALABLE_SCALABLE_H

#include <umf/result.h>

#include "base/log.h"
#include "base/stripes.h"
#include "cache/magazine.h"
#include "cache/transit.h"
#include "object/provider/tracked_provider.h"
#include "pools/scalable/records.h"
#include "pools/scalable/sizes.h"
#include "pools/scalable/tbb.h"
#include "pools/shared/short_result.h"
#include "system/atomic.h"

typedef struct umf_scalable_pool_t {
    umf_magazines_t magazines;
    const umf_tbb_t *tbb;
    /* oneTBB's pool, and umf_fork_count() when it was made. Used between umf_tbb_enter and leave,
     * changed while all are stopped */
    _Atomic(void *) below;
    _Atomic(unsigned) forks;
    umf_tracked_provider_t *tracked;
    /* Objects and blocks of oneTBB that this pool and its users have. Sync: as `below`. Memory that
     * goes in is released and memory that comes out is acquired: oneTBB keeps that order inside,
     * but a tool cannot see it. */
    umf_stripes_t out;
    _Atomic(size_t) direct_count;  /* live direct blocks */
    _Atomic(bool) has_written;     /* the CPU can write to the provider's memory, as was tried */
    _Atomic(bool) has_taken;       /* oneTBB was called for memory since the last decay pass */
    _Atomic(bool) has_given;       /* oneTBB got memory back since it was last trimmed */
    _Atomic(const void *) trimmer; /* the thread that trims: the hook gives it no memory. Cleared
                                      before it leaves oneTBB */
    umf_transit_t transit; /* memory that the trimmer has taken, or on its way out of oneTBB */
    /* Threads in a hook of oneTBB. oneTBB holds locks, so such a thread must not enter it again:
     * it gets no memory, and what it frees is deferred. */
    umf_transit_t in_hook;
    _Atomic(void *) deferred; /* freed objects, linked through their first bytes */
    umf_lock_t lock;          /* of the records */
    umf_tbb_policy_t policy;  /* Immutable after create, as the next */
    size_t granularity;       /* of requests to the provider; oneTBB has a smaller one */
    char name[UMF_NAME_MAX];
} umf_scalable_pool_t;

/* State of a thread. Libraries have little room for thread-local memory. */
typedef struct umf_scalable_thread_t {
    /* It is set to UNKNOWN before a call of oneTBB that may fail. The hook changes
     * it if there is no memory. */
    umf_short_result_t last_error;
    bool takes_slabs; /* it takes objects from slabs */
} umf_scalable_thread_t;
extern __thread umf_scalable_thread_t umf_scalable_thread;

static inline void *umf_scalable_fail(void) {
    umf_scalable_thread.last_error = UMF_SHORT_RESULT_UNKNOWN;
    return NULL;
}

static inline void *umf_scalable_refuse_memory(void) {
    umf_scalable_thread.last_error = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    return NULL;
}

static inline bool umf_scalable_keeps_all(const umf_scalable_pool_t *pool) {
    return pool->policy.flags & UMF_TBB_KEEP_ALL_MEMORY;
}

/* --- records.c --- */

/* The index for page records. Spans that are not whole pages of the address space have none. */
static inline uint32_t umf_scalable_index_of(const umf_scalable_pool_t *pool, uintptr_t base,
                                             size_t size) {
    return (base | size) % UMF_STARTS_PAGE == 0
               ? umf_starts_index(umf_tracked_magazine_index(pool->tracked))
               : 0;
}

/* Gives states to objects that came from oneTBB. Returns how many of the first ones have states;
 * for the next one there is no memory. */
size_t umf_scalable_mark(umf_scalable_pool_t *pool, uint32_t bin, umf_item_t *items, size_t n);
/* Clears the states of objects. Objects that were handed out move to the front; returns how many.
 * The others were freed twice at the same moment, which is logged. */
size_t umf_scalable_unmark(umf_scalable_pool_t *pool, umf_item_t *items, size_t n);

/* --- spans.c: memory of the provider --- */

/* A size for the provider. The limits of sizes and granularities exclude an overflow. */
size_t umf_scalable_in_granules(const umf_scalable_pool_t *pool, size_t size);
/* `record` may be NULL: there is no memory for it. `tries_write`: the CPU must be able to write.
 * NULL: there is no memory, and the thread's last error says so, or the CPU cannot write. */
void *umf_scalable_span_take(umf_scalable_pool_t *pool, size_t size, umf_scalable_record_t *record,
                             bool tries_write);
/* Returns a span that is unused for the first time. A failure is logged, and the span is lost. */
umf_result_t umf_scalable_span_give(umf_scalable_pool_t *pool, umf_span_t *span);
/* Offers lost spans to the provider again until it refuses one. */
void umf_scalable_spans_give_lost(umf_scalable_pool_t *pool);
/* Offers each span once, and withdraws the page records of the rest. */
void umf_scalable_spans_give_all(umf_scalable_pool_t *pool);

/* --- below.c: oneTBB's pool --- */

/* Makes it. On failure there is nothing to destroy. */
umf_result_t umf_scalable_below_build(umf_scalable_pool_t *pool, size_t granularity,
                                      bool keeps_all);
/* Takes up to `n` objects with states of their own. Alignment 0: none is needed. Returns how many;
 * if there are less, the thread's last error is the reason. */
size_t umf_scalable_take(umf_scalable_pool_t *pool, uint32_t bin, size_t size, size_t alignment,
                         umf_item_t *items, size_t n);
/* Returns objects without states. */
void umf_scalable_give(umf_scalable_pool_t *pool, uint32_t bin, const umf_item_t *items, size_t n);
void umf_scalable_below_destroy(umf_scalable_pool_t *pool);
/* Gives back what oneTBB does not need. `is_last`: for a request that fails otherwise. oneTBB has
 * emptied its caches for it, so a pool in use has no more. */
void umf_scalable_below_trim(umf_scalable_pool_t *pool, bool is_last);
void umf_scalable_below_decay(umf_scalable_pool_t *pool);
/* Makes an attempt to get memory; if it fails, again after memory was reclaimed. */
bool umf_scalable_try(umf_scalable_pool_t *pool, bool (*attempt)(void *pool, void *request),
                      void *request);
/* The room of an object of oneTBB. */
size_t umf_scalable_below_size(const umf_scalable_pool_t *pool, const void *ptr);

/* --- blocks.c: blocks without bin --- */

UMF_COLD void *umf_scalable_block_alloc(umf_scalable_pool_t *pool, size_t size, size_t alignment);
/* `state` describes the block, not the span: if another thread frees the block as well, the
 * span may be gone. false: it is not live. */
bool umf_scalable_block_free(umf_scalable_pool_t *pool, umf_span_t *span, void *ptr,
                             uint8_t *state);

#endif
