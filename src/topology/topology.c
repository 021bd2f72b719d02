/*
 * The table of NUMA nodes.
 *
 * It is read with the lock held, although that runs code of hwloc. So it happens once, and a fork
 * in another thread waits for it. Otherwise a child could find hwloc's own locks held by a thread
 * that does not exist in it.
 */
#include "topology/topology.h"

#include <stdatomic.h>

#include "base/lock.h"
#include "base/meta.h"

UMF_LOCK_STATIC(topology_lock, UMF_RANK_TOPOLOGY);
static _Atomic(umf_topology_t *) topology_known; /* Sync: topology_lock for writers */

static size_t topology_bytes(size_t count) {
    return sizeof(umf_topology_t) + count * sizeof(umf_topology_node_t);
}

umf_topology_t *umf_topology_alloc(size_t count) {
    umf_topology_t *topology = umf_meta_alloc(topology_bytes(count));
    if (topology) {
        topology->count = count;
        topology->nodes = (umf_topology_node_t *)(topology + 1);
    }
    return topology;
}

void umf_topology_free(umf_topology_t *topology) {
    if (topology) {
        umf_meta_free(topology, topology_bytes(topology->count));
    }
}

static umf_result_t topology_read_locked(umf_topology_t **topology) {
    umf_assert_locked(&topology_lock);
    *topology = atomic_load_explicit(&topology_known, memory_order_relaxed);
    if (*topology) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = umf_topology_read(UMF_HWLOC_LIBRARY, topology);
    if (result == UMF_RESULT_SUCCESS) {
        atomic_store_explicit(&topology_known, *topology, memory_order_release);
    }
    return result;
}

umf_result_t umf_topology_get(const umf_topology_t **topology) {
    umf_topology_t *known = atomic_load_explicit(&topology_known, memory_order_acquire);
    if (!known) {
        umf_lock(&topology_lock);
        umf_result_t result = topology_read_locked(&known);
        umf_unlock(&topology_lock);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    *topology = known;
    return UMF_RESULT_SUCCESS;
}

const umf_topology_node_t *umf_topology_find(const umf_topology_t *topology, unsigned id) {
    size_t low = 0, high = topology->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (topology->nodes[middle].id == id) {
            return &topology->nodes[middle];
        }
        if (topology->nodes[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

void umf_topology_teardown(void) {
    umf_lock(&topology_lock);
    umf_topology_t *known = atomic_exchange(&topology_known, NULL);
    umf_unlock(&topology_lock);
    umf_topology_free(known);
}
