/*
 * Where objects start: a record for each page of memory that another allocator divides into
 * objects.
 *
 * The objects that start in a page have one size, so one distance: the record tells the first one's
 * place, and leads to a byte of state for each (cache/magazine.h). What has no state there was
 * never handed out. States are made when the first object of the page appears, and stay for its
 * next objects until the page goes.
 */
#ifndef UMF_SRC_POOLS_SHARED_STARTS_H
#define UMF_SRC_POOLS_SHARED_STARTS_H

#include "base/lock.h"
#include "cache/magazine.h"

#define UMF_STARTS_PAGE_SHIFT 12
#define UMF_STARTS_PAGE ((size_t)1 << UMF_STARTS_PAGE_SHIFT)
#define UMF_STARTS_KINDS (UMF_MAGAZINE_MAX_BINS + 2)

/* The sizes of a pool's objects, by kind: bin + 1. Kind 0: nothing starts. */
typedef struct umf_starts_sizes_t {
    uint64_t magic[UMF_STARTS_KINDS]; /* of what is below */
    uint32_t step[UMF_STARTS_KINDS];  /* the distance of objects, where one page has several */
} umf_starts_sizes_t;

typedef struct umf_starts_t {
    uint8_t *states; /* Sync: the lock given to make, atomic for readers, as `bias` and `kind` */
    uint32_t own;    /* the pool's own use */
    uint16_t bias;   /* from where an object could have started before the page to the page */
    uint8_t kind;    /* of the objects; holds while one of them is out of the allocator below */
    uint8_t lines;   /* of states */
} umf_starts_t;

_Static_assert(sizeof(umf_starts_t) == 16, "one per page");

void umf_starts_set_size(umf_starts_sizes_t *sizes, uint32_t kind, size_t size);

/* The state of the object that starts `offset` bytes into the page, NULL if none may. Hot. */
static inline uint8_t *umf_starts_find(const umf_starts_t *page, const umf_starts_sizes_t *sizes,
                                       size_t offset) {
    uint64_t magic = sizes->magic[__atomic_load_n(&page->kind, __ATOMIC_RELAXED)];
    size_t distance = offset + __atomic_load_n(&page->bias, __ATOMIC_RELAXED);
    umf_wide_t product = (umf_wide_t)distance * magic;
    return umf_likely((uint64_t)product < magic)
               ? __atomic_load_n(&page->states, __ATOMIC_RELAXED) + (size_t)(product >> 64)
               : NULL;
}

/* The same for an object that the allocator below has just handed out; NULL without memory.
 * `made`: counts pages with states. */
uint8_t *umf_starts_make(umf_starts_t *page, const umf_starts_sizes_t *sizes, uint32_t kind,
                         size_t offset, umf_lock_t *lock, _Atomic size_t *made);

/* Frees the states of pages, of which `made` have any. */
void umf_starts_drop(umf_starts_t *pages, size_t made);

#endif
