/*
 * Slabs: provider memory cut into equal chunks, with all bookkeeping outside of it.
 *
 * A bin serves chunks of one size from slabs. A slab is one provider allocation, a descriptor and a
 * bitmap of free chunks. The slab's span points to the descriptor, so the one lookup that finds the
 * pool of a pointer also finds its slab. A bin keeps wholly free slabs up to a limit and returns
 * the others at once. In the slabs that stay, free pages that were not used for a while are purged
 * (cache/decay.h).
 *
 * If magazines are in front of a bin, each chunk has a state (cache/magazine.h). It is a byte,
 * because writing a bit would need a locked instruction at every hit.
 */
#ifndef UMF_SRC_POOLS_DISJOINT_SLAB_H
#define UMF_SRC_POOLS_DISJOINT_SLAB_H

#include "cache/magazine.h"
#include "ds/list.h"
#include "ds/quota.h"
#include "object/provider/tracked_provider.h"

/* What all bins of one pool have in common. */
typedef struct umf_slab_owner_t {
    umf_tracked_provider_t *tracked;
    umf_quota_t *limits;      /* on bytes of empty slabs of several pools; NULL: none */
    umf_magazines_t *waiting; /* magazines for free slabs of busy bins; NULL: no bin becomes busy */
    bool count_slabs;         /* the slab counters below are maintained */
    bool count_chunks;        /* the chunk counters too */
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
    uint16_t class_offset; /* for the map entries of its slabs */
    size_t max_kept;       /* most empty slabs that are kept */
    size_t stride;         /* of states (cache/magazine.h); 0: there are none */
    size_t front;          /* bytes in front of a descriptor, see umf_slab_t */
    umf_lock_t lock;       /* guards all that follows, and the slabs */
    umf_list_t partial;    /* slabs with free and used chunks */
    umf_list_t idle;       /* the same; their free pages are about to be purged */
    umf_list_t empty;      /* slabs without used chunks */
    umf_list_t full;       /* slabs without free chunks */
    size_t empty_count;    /* Sync: lock, atomic for umf_bin_empty_count */
    size_t slabs;          /* in all four lists */
    size_t returned;       /* slabs returned other than by trim, since the last trim */
    bool is_busy;          /* `returned` is large. Sync: lock, atomic for umf_bin_is_busy */
    size_t used;           /* chunks in use, those in magazines too */
    umf_bin_counters_t counters;
    umf_list_t spare;     /* descriptors without slab, of a bin of single chunks, newest first */
    uint32_t spare_count; /* Sync: lock, as `spare` */
} umf_bin_t;

typedef struct umf_slab_t {
    umf_list_t link;
    umf_bin_t *bin;
    uint32_t span;      /* index. Immutable from the moment the slab has memory */
    uint32_t free : 30; /* chunks. Sync: bin lock, as all that follows */
    bool dirty : 1;     /* a chunk was freed since the free pages were purged */
    bool aged : 1;      /* dirty and not full at the last decay pass */
    uint32_t *offsets;  /* from a chunk to its over-aligned allocation; NULL: there was none */
    uint8_t states[];   /* of chunks, if the bin has them. The bitmap lies in front of the slab */
} umf_slab_t;

_Static_assert(offsetof(umf_slab_t, states) == UMF_MAGAZINE_STATES, "where the core looks");

/* There may be millions: with 64 bits of bitmap a slab fits into 48 bytes. */
_Static_assert(sizeof(umf_slab_t) == 40, "a descriptor grew");

/* The state of a chunk. The bin must have states. */
static inline uint8_t *umf_slab_state(umf_slab_t *slab, size_t chunk) {
    return umf_magazine_state(slab, chunk * slab->bin->stride);
}

/* 64 bits of the bitmap: a bit is set if its chunk is free. */
static inline uint64_t *umf_slab_bits(umf_slab_t *slab, size_t entry) {
    return (uint64_t *)slab - 1 - entry;
}

/* The start of the slab's memory. */
static inline uintptr_t umf_slab_base(const umf_slab_t *slab) {
    return umf_span_at(slab->span)->base;
}

/* `class_offset` and `stride`: 0 if no magazines are in front of the bin. NULL when out of memory.
 */
umf_bin_t *umf_bin_create(const umf_slab_owner_t *owner, uint32_t index, size_t size,
                          size_t slab_size, uint16_t class_offset, size_t stride, size_t max_kept);
/* Gives every slab back to the provider, with or without used chunks, and frees the descriptors. */
void umf_bin_destroy(umf_bin_t *bin);

/* Takes up to `n` chunks; 0: there is no memory. A new slab is made only if no chunk is free. */
size_t umf_bin_take(umf_bin_t *bin, umf_item_t *chunks, size_t n);

/* Frees chunks by their starts. A chunk that is not in use is logged and ignored. */
void umf_bin_put(umf_bin_t *bin, const umf_item_t *chunks, size_t n);

/* The number of the chunk that contains an address of the slab, and its start. */
uint32_t umf_slab_chunk_of(const umf_slab_t *slab, uintptr_t addr, uintptr_t *start);

/* Frees a chunk by the user's pointer: the start of the chunk, or start plus recorded offset.
 * INVALID_ARGUMENT if it is another pointer, or if the chunk is not in use. */
umf_result_t umf_slab_put_ptr(umf_slab_t *slab, uintptr_t ptr);
/* Bytes from the user's pointer to the end of its chunk. INVALID_ARGUMENT in the same cases. */
umf_result_t umf_slab_usable_size(umf_slab_t *slab, uintptr_t ptr, size_t *size);

/*
 * Slabs of a single chunk may be reserved (reuse.h) or lie in magazines. Such a slab is
 * claimed: the bin counts its chunk as used, but a second free of it or a question for its size
 * finds it free. The next four functions need no lock.
 */

/* Claims the chunk, so that the caller can reserve it. false: it is free or claimed already. */
static inline bool umf_slab_claim(umf_slab_t *slab) {
    return !(__atomic_fetch_or(umf_slab_bits(slab, 0), 1, __ATOMIC_ACQ_REL) & 1);
}

/* Hands a claimed chunk out again. */
static inline void *umf_slab_unclaim(umf_slab_t *slab) {
    __atomic_store_n(umf_slab_bits(slab, 0), 0, __ATOMIC_RELEASE);
    return (void *)umf_slab_base(slab);
}

/* Empty slabs that the bin keeps, not counting reserved ones. */
static inline size_t umf_bin_empty_count(const umf_bin_t *bin) {
    return __atomic_load_n(&bin->empty_count, __ATOMIC_RELAXED);
}

/* A bin of single chunks is busy if it has returned this many slabs since it was trimmed. Its free
 * slabs then go to magazines instead. */
#define UMF_BIN_BUSY 64
static inline bool umf_bin_is_busy(const umf_bin_t *bin) {
    return __atomic_load_n(&bin->is_busy, __ATOMIC_RELAXED);
}

/* Takes up to `n` slabs with their chunks claimed, under the same rules as umf_bin_take. */
size_t umf_bin_take_claimed(umf_bin_t *bin, umf_item_t *slabs, size_t n);
/* Frees claimed chunks. `reserved` further slabs count towards the number that the bin may keep. */
void umf_bin_put_claimed(umf_bin_t *bin, const umf_item_t *slabs, size_t n, size_t reserved);

/* Records that the user's pointer to a used chunk is `ptr`. The start of the chunk is then not a
 * live object. */
umf_result_t umf_slab_set_offset(umf_slab_t *slab, uintptr_t ptr);

/* Gives empty slabs back. While `*keep` is above 0 it keeps slabs and lowers `*keep` by their
 * sizes. */
void umf_bin_trim(umf_bin_t *bin, size_t *keep);
/* Purges the whole free pages in slabs that are partly in use. false: the provider cannot purge. */
bool umf_bin_purge(umf_bin_t *bin, size_t page_size);
/* A decay pass (cache/decay.h): purges the free pages of partly used and of empty slabs that were
 * aged already. Each slab lowers `*left` by its size; the pass ends at 0. A pass that is not new
 * continues with slabs that the last one left. false: the provider cannot purge. */
bool umf_bin_decay(umf_bin_t *bin, size_t page_size, bool is_new, size_t *left);

#endif
