/*
 * Where objects start: a record for each page of memory that another allocator divides into
 * objects.
 *
 * All objects that start in a page have one size, so their starts have one distance. The record
 * holds the place of the first start, and points to a byte of state for each object
 * (cache/magazine.h). An object without a state was never handed out. The states of a page are made
 * when its first object is handed out, and stay until the page is released.
 */
#ifndef UMF_SRC_POOLS_SHARED_STARTS_H
#define UMF_SRC_POOLS_SHARED_STARTS_H

#include "base/lock.h"
#include "cache/magazine.h"
#include "system/atomic.h"
#include "track/page.h"

#define UMF_STARTS_PAGE_SHIFT 12
#define UMF_STARTS_PAGE ((size_t)1 << UMF_STARTS_PAGE_SHIFT)
#define UMF_STARTS_KINDS (UMF_MAGAZINE_MAX_BINS + 2)

/* The sizes of a pool's objects, by kind. A kind is the bin + 1; kind 0: no object starts. */
typedef struct umf_starts_sizes_t {
    uint64_t magic[UMF_STARTS_KINDS]; /* umf_magic() of the step */
    uint32_t step[UMF_STARTS_KINDS];  /* distance of two starts, if a page can have several */
} umf_starts_sizes_t;

/* The pool of the pages. */
typedef struct umf_starts_pool_t {
    const umf_starts_sizes_t *sizes;
    umf_lock_t *lock;
    uint32_t index; /* for page records (track/page.h); 0: the pages have none */
    uint32_t bins;  /* larger kinds have no magazine */
    uint32_t owner; /* of pages whose objects the calling thread takes; 0: none */
} umf_starts_pool_t;

/* The index for page records of a pool that is in the map of the process under this index. */
static inline uint32_t umf_starts_index(uint32_t index) {
    return index < UMF_THREAD_SLOT_COUNT_MIN ? index : 0;
}

typedef struct umf_starts_t {
    uint8_t *states; /* Sync: the lock given to make, atomic for readers, as `bias` and `kind` */
    uint32_t own;    /* for the pool's own use */
    /* Distance from the last possible start before the page to the page. If only one object can
     * start in the page, its owner changes it, without the lock. */
    uint16_t bias;
    uint8_t kind;  /* of the objects; fixed while the allocator below has one of them out */
    uint8_t pairs; /* of cache lines of states, so that no two pages share one */
} umf_starts_t;

_Static_assert(sizeof(umf_starts_t) == 16, "one per page");

/* Members of umf_view_pages_t (umf/view_format.h), for the tables of a pool. */
#define UMF_STARTS_VIEW(tables)                                                                    \
    .record_size = sizeof(umf_starts_t), .states = offsetof(umf_starts_t, states),                 \
    .bias = offsetof(umf_starts_t, bias), .kind = offsetof(umf_starts_t, kind),                    \
    .live = UMF_STATE_LIVE, .sizes = (tables).size, .steps = (tables).starts.step

void umf_starts_set_size(umf_starts_sizes_t *sizes, uint32_t kind, size_t size);

/* The state of the object that starts `offset` bytes into the page. NULL: no object can start
 * there. Hot. */
static inline uint8_t *umf_starts_find(const umf_starts_t *page, const umf_starts_sizes_t *sizes,
                                       size_t offset) {
    uint64_t magic = sizes->magic[__atomic_load_n(&page->kind, __ATOMIC_RELAXED)];
    size_t distance = offset + __atomic_load_n(&page->bias, __ATOMIC_RELAXED);
    umf_wide_t product = (umf_wide_t)distance * magic;
    return umf_likely((uint64_t)product < magic)
               ? __atomic_load_n(&page->states, __ATOMIC_RELAXED) + (size_t)(product >> 64)
               : NULL;
}

/* The same for an object that the allocator below has just handed out: makes the states if the page
 * has none. `addr`: of the object. NULL: out of memory. `made` counts the pages that have states.
 */
uint8_t *umf_starts_make(const umf_starts_pool_t *pool, umf_starts_t *page, uint32_t kind,
                         uintptr_t addr, size_t offset, _Atomic(size_t) *made);

/* The objects that start in a page, as they are at this moment. */
#define UMF_STARTS_MOST (UMF_STARTS_PAGE / 8)
typedef struct umf_starts_seen_t {
    uint32_t kind; /* 0: none starts; the rest is not set then */
    uint32_t step; /* distance of two starts */
    size_t first;  /* offset of the first start in the page */
    size_t count;
    uint8_t states[UMF_STARTS_MOST];
} umf_starts_seen_t;
void umf_starts_see(const umf_starts_t *page, const umf_starts_sizes_t *sizes, umf_lock_t *lock,
                    umf_starts_seen_t *seen);

/* Withdraws the page records of `pages`, as umf_starts_drop does, and leaves the states. */
void umf_starts_withdraw(const umf_starts_t *pages, size_t made, uintptr_t base, uint32_t index);

/* Frees the states of `pages`, of which `made` have any; the first is that of `base`. No object
 * starts in them then. `index` as in umf_starts_pool_t. */
void umf_starts_drop(umf_starts_t *pages, size_t made, uintptr_t base, uint32_t index);

#endif
