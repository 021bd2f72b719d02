/* NUMA placement of the OS provider's memory. */
#ifndef UMF_SRC_PROVIDERS_OS_NUMA_H
#define UMF_SRC_PROVIDERS_OS_NUMA_H

#include "providers/os/params.h"

typedef struct umf_os_numa_t {
    umf_numa_mode_t mode; /* Immutable after create, as all members but `allocated` */
    size_t page_size;
    unsigned *nodes;
    unsigned node_count;
    size_t part_size; /* INTERLEAVE: bytes, whole pages; 0: the kernel interleaves single pages */
    umf_numa_split_partition_t *partitions;
    unsigned partition_count;
    uint64_t weight_sum;
    size_t allocated; /* INTERLEAVE: bytes placed so far. Sync: atomic, relaxed */
    /* umf_os_mbind; a test replaces it to record the calls. */
    int (*mbind)(void *base, size_t size, int mode, const unsigned long *mask, unsigned long bits);
} umf_os_numa_t;

/* Checks and copies the parameters. INVALID_ARGUMENT, OUT_OF_HOST_MEMORY. */
umf_result_t umf_os_numa_init(umf_os_numa_t *numa, const umf_os_params_t *params, size_t page_size);
/* Are its nodes there? INVALID_ARGUMENT, logged with those that are. */
umf_result_t umf_os_numa_check(const umf_os_numa_t *numa);
void umf_os_numa_fini(umf_os_numa_t *numa);

/* Sets the policy of memory that was not touched yet: `requested` bytes in `size` bytes of whole
 * pages. Returns 0 or an errno value; a kernel without NUMA is no error. */
int umf_os_numa_place(umf_os_numa_t *numa, void *base, size_t size, size_t requested);

#endif
