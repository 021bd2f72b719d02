/*
 * The NUMA nodes of this machine: read once, on first use, and kept as a small table. A forked
 * child keeps its parent's table.
 */
#ifndef UMF_SRC_TOPOLOGY_TOPOLOGY_H
#define UMF_SRC_TOPOLOGY_TOPOLOGY_H

#include "system/common.h"

/* Bits of umf_topology_node_t.best: of the nodes local to the CPUs of some node this one has ... */
#define UMF_TOPOLOGY_BANDWIDTH 1u /* ... the highest bandwidth */
#define UMF_TOPOLOGY_LATENCY 2u   /* ... the lowest latency */

typedef struct umf_topology_node_t {
    unsigned id;     /* the system's number, not the index in the table */
    size_t capacity; /* bytes */
    bool is_allowed; /* the process may use the node */
    unsigned best;
} umf_topology_node_t;

typedef struct umf_topology_t {
    size_t count;
    umf_topology_node_t *nodes; /* by id; each id once */
} umf_topology_t;

/* Valid until the teardown; an error is logged. DEPENDENCY_UNAVAILABLE (no hwloc here),
 * NOT_SUPPORTED (built without), OUT_OF_HOST_MEMORY, UNKNOWN (hwloc fails). A failure is not
 * remembered: the next call tries again. */
umf_result_t umf_topology_get(const umf_topology_t **topology);

/* NULL: there is no such node. */
const umf_topology_node_t *umf_topology_find(const umf_topology_t *topology, unsigned id);

/* Forgets the table. */
void umf_topology_teardown(void);

/* --- for the reader, topology_hwloc.c or topology_none.c --- */

umf_topology_t *umf_topology_alloc(size_t count);
void umf_topology_free(umf_topology_t *topology);

/* Reads the machine through hwloc, the library of that file name. Results as umf_topology_get. */
umf_result_t umf_topology_read(const char *library, umf_topology_t **topology);

#endif
