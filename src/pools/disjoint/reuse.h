/*
 * Reuse slots of a disjoint pool: slabs of single chunks that are reserved for the thread that
 * freed them.
 *
 * A thread has one slot for each bin of such slabs. A slab in it is claimed (slab.h), and the
 * thread takes it back without a lock and without a shared counter. Unlike the objects of a
 * magazine it is not private: another thread whose bin has no free slab takes it, so the pool calls
 * the provider only when no slot of any thread has one. A thread that ends leaves its slabs to
 * their bins.
 *
 * A reserved slab counts as kept: the slabs that a bin keeps and those that threads reserve share
 * the capacity. Nothing is reserved while the bin alone keeps as many as it may. A single thread
 * therefore sees the capacity that was set. Exception: nothing is counted at the moment a slab is
 * reserved, so while several threads free slabs of one size, each may keep one more.
 *
 * Without slots a large pair would take 582 instructions (211), and move 52 cache lines between 16
 * threads (none).
 */
#ifndef UMF_SRC_POOLS_DISJOINT_REUSE_H
#define UMF_SRC_POOLS_DISJOINT_REUSE_H

#include "pools/disjoint/disjoint.h"

/* Drops reserved slabs. Waits for threads that are ending. */
void umf_disjoint_reuse_fini(umf_disjoint_pool_t *pool);

/* May slabs of the bin be reserved? */
static inline bool umf_disjoint_can_reserve(const umf_disjoint_pool_t *pool, const umf_bin_t *bin) {
    return bin->chunks == 1 && bin->index < pool->reserved_bins;
}

/* Takes a slab that this thread has reserved, or one in a magazine if the bin is busy, or, if the
 * provider would be called otherwise, one that any thread has reserved. Returns its memory; NULL:
 * there is none. */
void *umf_disjoint_take_reserved(umf_disjoint_pool_t *pool, uint32_t index);
/* Frees a claimed slab: reserves it if the capacity allows. */
void umf_disjoint_reserve(umf_disjoint_pool_t *pool, umf_slab_t *slab);

/* How many slabs of the bin threads have reserved. */
size_t umf_disjoint_reserved(umf_disjoint_pool_t *pool, uint32_t index);
/* The same, of those that count towards the capacity of a bin. If the bin alone keeps as many as it
 * may, the number does not matter and is not computed. */
size_t umf_disjoint_reserved_of(umf_disjoint_pool_t *pool, const umf_bin_t *bin);
/* Returns the slabs that other threads reserve to their bins. false: there were none. */
bool umf_disjoint_settle_reserved(umf_disjoint_pool_t *pool);
/* A trim keeps a slab that the calling thread reserves, or returns it to its bin, like any kept
 * slab. */
void umf_disjoint_trim_reserved(umf_disjoint_pool_t *pool, const umf_bin_t *bin, size_t *keep);

#endif
