/*
 * The memspaces that describe this machine. Each is created on first use from the table of nodes,
 * and published once: if several threads create one at the same time, the first wins.
 */
#include <stdatomic.h>

#include "base/log.h"
#include "numa/memspace.h"
#include "numa/memtarget.h"
#include "topology/topology.h"

static _Atomic(umf_memspace_handle_t) predefined[UMF_MEMSPACE_KIND_COUNT]; /* Sync: atomic */

static const char *const predefined_lacks[] = {
    [UMF_MEMSPACE_HOST_ALL] = "this process may use none of the machine's NUMA nodes",
    [UMF_MEMSPACE_HIGHEST_CAPACITY] = "this process may use none of the machine's NUMA nodes",
    [UMF_MEMSPACE_HIGHEST_BANDWIDTH] =
        "the firmware reports no bandwidth of NUMA nodes (ACPI HMAT)",
    [UMF_MEMSPACE_LOWEST_LATENCY] = "the firmware reports no latency of NUMA nodes (ACPI HMAT)",
};

static bool predefined_takes(umf_memspace_kind_t kind, const umf_topology_node_t *node) {
    unsigned best = kind == UMF_MEMSPACE_HIGHEST_BANDWIDTH ? UMF_TOPOLOGY_BANDWIDTH
                    : kind == UMF_MEMSPACE_LOWEST_LATENCY  ? UMF_TOPOLOGY_LATENCY
                                                           : 0;
    return node->is_allowed && (node->best & best) == best;
}

/* Sorts the largest node first; nodes of equal size keep their order. */
static void predefined_sort(umf_memspace_handle_t memspace, const umf_topology_t *topology) {
    for (size_t i = 1; i < memspace->count; i++) {
        umf_memtarget_handle_t target = memspace->targets[i];
        size_t capacity = umf_topology_find(topology, target->id)->capacity;
        size_t at = i;
        while (at > 0 &&
               umf_topology_find(topology, memspace->targets[at - 1]->id)->capacity < capacity) {
            memspace->targets[at] = memspace->targets[at - 1];
            at--;
        }
        memspace->targets[at] = target;
    }
}

static umf_memspace_handle_t predefined_make(umf_memspace_kind_t kind) {
    const umf_topology_t *topology;
    umf_memspace_handle_t made;
    if (umf_topology_get(&topology) != UMF_RESULT_SUCCESS ||
        umf_memspace_create(kind, topology->count, &made) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    for (size_t i = 0; i < topology->count; i++) {
        if (predefined_takes(kind, &topology->nodes[i]) &&
            umf_memspace_append(made, topology->nodes[i].id) != UMF_RESULT_SUCCESS) {
            umf_memspace_destroy(made);
            return NULL;
        }
    }
    if (made->count == 0) {
        UMF_LOG_WARN("no such memspace on this machine: %s", predefined_lacks[kind]);
        umf_memspace_destroy(made);
        return NULL;
    }
    if (kind == UMF_MEMSPACE_HIGHEST_CAPACITY) {
        predefined_sort(made, topology);
    }
    return made;
}

static umf_const_memspace_handle_t predefined_get(umf_memspace_kind_t kind) {
    umf_memspace_handle_t known = atomic_load_explicit(&predefined[kind], memory_order_acquire);
    if (!known) {
        umf_memspace_handle_t made = predefined_make(kind);
        if (!made || atomic_compare_exchange_strong(&predefined[kind], &known, made)) {
            return made;
        }
        umf_memspace_destroy(made);
    }
    return known;
}

UMF_API_1_0 umf_const_memspace_handle_t umfMemspaceHostAllGet(void) {
    return predefined_get(UMF_MEMSPACE_HOST_ALL);
}

UMF_API_1_0 umf_const_memspace_handle_t umfMemspaceHighestCapacityGet(void) {
    return predefined_get(UMF_MEMSPACE_HIGHEST_CAPACITY);
}

UMF_API_1_0 umf_const_memspace_handle_t umfMemspaceHighestBandwidthGet(void) {
    return predefined_get(UMF_MEMSPACE_HIGHEST_BANDWIDTH);
}

UMF_API_1_0 umf_const_memspace_handle_t umfMemspaceLowestLatencyGet(void) {
    return predefined_get(UMF_MEMSPACE_LOWEST_LATENCY);
}

void umf_memspace_teardown(void) {
    for (size_t kind = 0; kind < UMF_MEMSPACE_KIND_COUNT; kind++) {
        umf_memspace_destroy(atomic_exchange(&predefined[kind], NULL));
    }
}
