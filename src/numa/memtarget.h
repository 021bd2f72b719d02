/* One NUMA node as the member of a memspace. */
#ifndef UMF_SRC_NUMA_MEMTARGET_H
#define UMF_SRC_NUMA_MEMTARGET_H

#include <umf/experimental/memtarget.h>

#include "base/handle.h"

extern const umf_handle_kind_t umf_handle_memtarget;

struct umf_memtarget_t {
    unsigned id; /* Immutable */
};

/* NULL: no memory, logged. */
umf_memtarget_handle_t umf_memtarget_create(unsigned id);
void umf_memtarget_destroy(umf_memtarget_handle_t target);

#endif
