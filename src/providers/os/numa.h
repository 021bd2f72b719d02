/* NUMA placement of the OS provider's memory. */
#ifndef UMF_SRC_PROVIDERS_OS_NUMA_H
#define UMF_SRC_PROVIDERS_OS_NUMA_H

#include "providers/os/params.h"

typedef struct umf_os_numa_t {
    umf_numa_mode_t mode; /* Immutable after create, as all but `allocated` */
    size_t page_size;
    unsigned *nodes;
    unsigned node_count;
    size_t part_size; /* INTERLEAVE: whole pages; 0: the kernel's page by page */
    umf_numa_split_partition_t *partitions;
    unsigned partition_count;
    uint64_t weight_sum;
    size_t allocated; /* bytes so far, INTERLEAVE. Sync: atomic, relaxed */
    /* umf_os_mbind, or what a test puts here to see the calls. */
    int (*mbind)(void *base, size_t size, int mode, const unsigned long *mask, unsigned long bits);
} umf_os_numa_t;

/* Checks and copies what the parameters say. INVALID_ARGUMENT, OUT_OF_HOST_MEMORY. */
umf_result_t umf_os_numa_init(umf_os_numa_t *numa, const umf_os_params_t *params, size_t page_size);
void umf_os_numa_fini(umf_os_numa_t *numa);

/* Sets the policy of fresh memory: `requested` bytes in `size` bytes of whole pages. 0 or an errno
 * value; a kernel without NUMA is no error. */
int umf_os_numa_place(umf_os_numa_t *numa, void *base, size_t size, size_t requested);

#endif
