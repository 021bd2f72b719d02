/* Memory policies: how a provider that is created from a memspace places its memory. */
#ifndef UMF_SRC_NUMA_MEMPOLICY_H
#define UMF_SRC_NUMA_MEMPOLICY_H

#include <umf/experimental/mempolicy.h>

#include "base/handle.h"

extern const umf_handle_kind_t umf_handle_mempolicy;

struct umf_mempolicy_t {
    umf_mempolicy_membind_t bind;                /* Immutable after create */
    size_t part_size;                            /* INTERLEAVE */
    umf_mempolicy_split_partition_t *partitions; /* SPLIT; NULL: none */
    size_t partition_count;
};

#endif
