/* The object of the disjoint pool, for the pool's own files. */
#ifndef UMF_SRC_POOLS_DISJOINT_DISJOINT_H
#define UMF_SRC_POOLS_DISJOINT_DISJOINT_H

#include <umf/plugin.h>
#include <umf/pools/pool_disjoint.h>

#include "cache/transit.h"
#include "ctl/params.h"
#include "pools/disjoint/layout.h"
#include "pools/disjoint/slab.h"

struct umf_disjoint_pool_shared_limits_t {
    umf_quota_t limits; /* first: pools refer to the handle by this address */
};

#define UMF_PARAMS umf_disjoint_pool_params
#define UMF_PARAMS_TABLE "pools/disjoint/disjoint_params.def"
typedef struct umf_disjoint_pool_params_t {
#include "ctl/params_members.h"
#include "system/atomic.h"
    bool min_bucket_set; /* false: min_bucket_size follows the provider's cache line */
    umf_quota_t *limits;
} umf_disjoint_pool_params_t;
UMF_PARAMS_DECLARE(umf_disjoint_pool_params)

typedef struct umf_disjoint_pool_t {
    umf_disjoint_pool_params_t params; /* first: its fields are the pool's. Immutable once sealed */
    const umf_disjoint_layout_t *layout;
    umf_magazines_t magazines;       /* of the cached bins */
    uint32_t reserved_bins;          /* the bins below have reuse slots (reuse.h) */
    _Atomic(uint32_t) threads_index; /* that of `threads`; 0: nothing has been reserved so far */
    _Atomic(uint64_t) offered; /* a hint, one bit for each bin: a thread may reserve a slab of it */
    umf_thread_slot_owner_t threads;                 /* Sync: made under a lock, before the index */
    _Atomic(umf_bin_t *) bin[UMF_DISJOINT_MAX_BINS]; /* made at first use */
    umf_slab_owner_t slabs;
    umf_transit_t transit;
    size_t page_size;
    _Atomic(bool) cannot_purge; /* the provider said so at a decay pass */
    bool sealed;                /* created: parameters cannot change any more */
    _Atomic(bool) has_bins;     /* one was made */
    _Atomic(size_t) direct;     /* live allocations that are provider allocations */
} umf_disjoint_pool_t;

/* Sets the last error of the calling thread. */
void umf_disjoint_fail(umf_result_t result);

/* bins.c */
/* Derives everything from the parameters. Called again after each change of them, while nothing is
 * allocated. */
umf_result_t umf_disjoint_lay_out(umf_disjoint_pool_t *pool);

/* Takes chunks or slabs from a bin. */
typedef size_t (*umf_disjoint_take_from_t)(umf_bin_t *bin, umf_item_t *items, size_t n);
/* Takes up to `n` items, made if there are none. 0: the last error is set. */
size_t umf_disjoint_take(umf_disjoint_pool_t *pool, uint32_t index, umf_disjoint_take_from_t from,
                         umf_item_t *items, size_t n);
/* Releases memory until `attempt` succeeds. false: there is no memory. */
UMF_COLD bool umf_disjoint_reclaim(umf_disjoint_pool_t *pool,
                                   bool (*attempt)(void *pool, void *request), void *request);
/* Releases free slabs of all threads and sizes, except `keep` bytes, and purges the others. */
void umf_disjoint_trim(umf_disjoint_pool_t *pool, size_t keep);
/* NULL: no chunk of this bin was ever requested. */
static inline umf_bin_t *umf_disjoint_bin(umf_disjoint_pool_t *pool, uint32_t index) {
    return atomic_load_explicit(&pool->bin[index], memory_order_acquire);
}
/* Returns the slabs in magazines, and those that other threads reserve, to their bins, which then
 * keep as many as the capacity allows. false: there were none. */
bool umf_disjoint_settle(umf_disjoint_pool_t *pool);
/* Chunks of a bin that users own. */
size_t umf_disjoint_used_chunks(umf_disjoint_pool_t *pool, uint32_t index);

/* walk.c */
struct umf_walk_t;
void umf_disjoint_walk(void *pool, const umf_span_t *span, struct umf_walk_t *walk);
extern const umf_view_kind_t umf_disjoint_view;

/* settings.c */
/* true: the parameters are a live handle, and so are the shared limits that they name. */
bool umf_disjoint_params_check(const void *params);
umf_result_t umf_disjoint_ctl(void *pool, umf_ctl_query_source_t source, const char *name,
                              void *arg, size_t size, umf_ctl_query_type_t type, va_list args);
void umf_disjoint_log_summary(umf_disjoint_pool_t *pool);

#endif
