/*
 * Slabs: equal chunks cut out of provider memory, with all bookkeeping outside of it.
 *
 * Where magazines are in front of a bin, each chunk has a state (magazine.h): a byte, because a bit
 * could not be written without a locked instruction at every hit.
 *
 * A bin serves chunks of one size from slabs; a slab is one provider allocation, a descriptor and a
 * bitmap of free chunks. The descriptor hangs on the slab's span, so a pointer leads to its slab
 * with the one lookup that finds its pool. Wholly free slabs are kept up to a limit, the rest goes
 * back at once. Of what stays, free pages that were not used for a while are purged
 * (cache/decay.h).
 */
#ifndef UMF_SRC_POOLS_DISJOINT_SLAB_H
#define UMF_SRC_POOLS_DISJOINT_SLAB_H

#include <stdatomic.h>

#include "cache/magazine.h"
#include "core/tracked_provider.h"
#include "ds/list.h"

/* Kept empty slabs of all pools that share the limit, in bytes. */
typedef struct umf_slab_limits_t {
    size_t max;
    _Atomic size_t kept;
} umf_slab_limits_t;

/* What all bins of one pool have in common. */
typedef struct umf_slab_owner_t {
    umf_tracked_provider_t *tracked;
    umf_slab_limits_t *limits; /* NULL: none */
    umf_magazines_t *waiting;  /* where slabs of busy bins wait, by bin; NULL: none ever is busy */
    bool count_slabs;          /* the slab counters below are kept */
    bool count_chunks;         /* the chunk counters too */
} umf_slab_owner_t;

typedef struct umf_bin_counters_t {
    size_t alloc_num, alloc_pool_num, free_num;
    size_t slabs_in_use, slabs_in_pool, max_slabs_in_use, max_slabs_in_pool;
} umf_bin_counters_t;

typedef struct umf_bin_t {
    const umf_slab_owner_t *owner;
    uint32_t index;        /* in its pool. Immutable, as all up to the lock */
    uint32_t chunks;       /* per slab */
    size_t size;           /* of a chunk */
    uint64_t magic;        /* umf_magic() of it */
    size_t slab_size;      /* of a provider request */
    uint16_t class_offset; /* for the words of its slabs */
    size_t max_kept;       /* empty slabs */
    size_t stride;         /* of states (magazine.h); 0: there are none */
    size_t front;          /* bytes in front of a descriptor */
    umf_lock_t lock;       /* guards all that follows, and the slabs */
    umf_list_t partial;    /* slabs with free and used chunks */
    umf_list_t idle;       /* the same; their free pages are about to be purged */
    umf_list_t empty;      /* slabs without used chunks */
    umf_list_t full;       /* slabs without free chunks */
    size_t empty_count;    /* Sync: lock, atomic for umf_bin_empty_count */
    size_t slabs;          /* all */
    size_t returned;       /* slabs the provider got back in use, since the last trim */
    bool is_busy;          /* they are many. Sync: lock, atomic for umf_bin_is_busy */
    size_t used;           /* chunks */
    umf_bin_counters_t counters;
} umf_bin_t;

typedef struct umf_slab_t {
    umf_list_t link;
    umf_bin_t *bin;
    uint32_t span;      /* index. Immutable from the moment the slab has memory */
    uint32_t free : 30; /* chunks. Sync: bin lock, as all that follows */
    bool dirty : 1;     /* a chunk was freed since the free pages were purged */
    bool met : 1;       /* a decay pass has seen it dirty, and not full */
    uint32_t *offsets;  /* of over-aligned allocations from their chunks; NULL: there was none */
    uint8_t states[]; /* of chunks (magazine.h), if the bin has them. Words of bits lie in front */
} umf_slab_t;

_Static_assert(offsetof(umf_slab_t, states) == UMF_MAGAZINE_STATES, "where the core looks");

/* There may be millions: with one entry of bits a slab fits into 48 bytes. */
_Static_assert(sizeof(umf_slab_t) == 40, "a descriptor grew");

/* Of a bin that has states. */
static inline uint8_t *umf_slab_state(umf_slab_t *slab, size_t chunk) {
    return umf_magazine_state(slab, chunk * slab->bin->stride);
}

/* The bits of 64 chunks, set where one is free. */
static inline uint64_t *umf_slab_bits(umf_slab_t *slab, size_t entry) {
    return (uint64_t *)slab - 1 - entry;
}

/* Where its memory begins. */
static inline uintptr_t umf_slab_base(const umf_slab_t *slab) {
    return umf_span_at(slab->span)->base;
}

/* `class_offset` and `stride`: 0 if no magazines are in front of the bin. NULL when out of memory.
 */
umf_bin_t *umf_bin_create(const umf_slab_owner_t *owner, uint32_t index, size_t size,
                          size_t slab_size, uint16_t class_offset, size_t stride, size_t max_kept);
/* Frees the descriptors; gives every slab back to the provider, with or without used chunks. */
void umf_bin_destroy(umf_bin_t *bin);

/* Up to `n` chunks, 0 when there is no memory. A new slab is taken only if no chunk is free at all.
 */
size_t umf_bin_take(umf_bin_t *bin, umf_item_t *chunks, size_t n);

/* Chunks given back by their starts. What was not in use is logged and ignored. */
void umf_bin_put(umf_bin_t *bin, const umf_item_t *chunks, size_t n);

/* The chunk that holds an address of the slab: its number, and its start. */
uint32_t umf_slab_chunk_of(const umf_slab_t *slab, uintptr_t addr, uintptr_t *start);

/* One chunk by the pointer its user has: its start, or the offset recorded for it. INVALID_ARGUMENT
 * if the pointer is another one or the chunk is not in use. */
umf_result_t umf_slab_put_ptr(umf_slab_t *slab, uintptr_t ptr);
/* Bytes from such a pointer to the end of its chunk; INVALID_ARGUMENT likewise. */
umf_result_t umf_slab_usable_size(umf_slab_t *slab, uintptr_t ptr, size_t *size);

/*
 * Slabs of a single chunk may be withheld (cache/reuse_slots.h) or lie in magazines. Such a one
 * belongs to nobody: to its bin it is in use, to who frees it again or asks for its size it is
 * free. The next four functions need no lock.
 */

/* Claims the chunk for whoever is to withhold it; false: it is free, or withheld already. */
static inline bool umf_slab_claim(umf_slab_t *slab) {
    return !(__atomic_fetch_or(umf_slab_bits(slab, 0), 1, __ATOMIC_ACQ_REL) & 1);
}

/* Hands a claimed chunk out again. */
static inline void *umf_slab_unclaim(umf_slab_t *slab) {
    __atomic_store_n(umf_slab_bits(slab, 0), 0, __ATOMIC_RELEASE);
    return (void *)umf_slab_base(slab);
}

/* Empty slabs the bin keeps, without those that are withheld. */
static inline size_t umf_bin_empty_count(const umf_bin_t *bin) {
    return __atomic_load_n(&bin->empty_count, __ATOMIC_RELAXED);
}

/* A bin of single chunks that has given so many slabs back since it was trimmed that others should
 * wait in magazines. */
#define UMF_BIN_BUSY 64
static inline bool umf_bin_is_busy(const umf_bin_t *bin) {
    return __atomic_load_n(&bin->is_busy, __ATOMIC_RELAXED);
}

/* Up to `n` slabs with their chunks claimed, as umf_bin_take does it. */
size_t umf_bin_take_claimed(umf_bin_t *bin, umf_item_t *slabs, size_t n);
/* Frees claimed chunks; `withheld` others count as kept. */
void umf_bin_put_claimed(umf_bin_t *bin, const umf_item_t *slabs, size_t n, size_t withheld);

/* Remembers that the user's pointer to a used chunk is `ptr`. Its start is no live object then. */
umf_result_t umf_slab_set_offset(umf_slab_t *slab, uintptr_t ptr);

/* Gives empty slabs back, but keeps some while `*keep` is above 0, and lowers it by their sizes. */
void umf_bin_trim(umf_bin_t *bin, size_t *keep);
/* Drops the content of whole free pages in slabs that stay; false: the provider cannot. */
bool umf_bin_purge(umf_bin_t *bin, size_t page_size);
/* A decay pass (cache/decay.h): the same, also in empty slabs, for those that were met before,
 * until
 * `*left` bytes of slabs are used up. A decay pass that is not new goes on with what the last one
 * has left. */
bool umf_bin_decay(umf_bin_t *bin, size_t page_size, bool is_new, size_t *left);

#endif
