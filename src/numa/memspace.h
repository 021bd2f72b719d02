/* Lists of memory targets. */
#ifndef UMF_SRC_NUMA_MEMSPACE_H
#define UMF_SRC_NUMA_MEMSPACE_H

#include <umf/experimental/memspace.h>

#include "base/handle.h"

extern const umf_handle_kind_t umf_handle_memspace;

typedef enum umf_memspace_kind_t {
    UMF_MEMSPACE_ORDINARY, /* the user's. 0, so that zeroed memory has this kind */
    UMF_MEMSPACE_HOST_ALL,
    UMF_MEMSPACE_HIGHEST_CAPACITY,
    UMF_MEMSPACE_HIGHEST_BANDWIDTH,
    UMF_MEMSPACE_LOWEST_LATENCY,
    UMF_MEMSPACE_KIND_COUNT
} umf_memspace_kind_t;

struct umf_memspace_t {
    umf_memspace_kind_t kind;        /* Immutable after create */
    size_t count;                    /* targets */
    size_t room;                     /* places in the array */
    umf_memtarget_handle_t *targets; /* each an allocation of its own: its handle never changes */
};

/* OUT_OF_HOST_MEMORY, logged. */
umf_result_t umf_memspace_create(umf_memspace_kind_t kind, size_t room,
                                 umf_memspace_handle_t *memspace);
/* Destroys predefined memspaces, too. NULL is ignored. */
void umf_memspace_destroy(umf_memspace_handle_t memspace);
/* Adds a target without a check for duplicates. OUT_OF_HOST_MEMORY, logged. */
umf_result_t umf_memspace_append(umf_memspace_handle_t memspace, unsigned id);

/* Releases the predefined memspaces. */
void umf_memspace_teardown(void);

#endif
