/*
 * Transfer: bytes between memory of a device and a file, through pinned memory, by several threads.
 * The file may be a memory file. Nothing is mapped, so its pages need not be pinned, and another
 * process cannot end this one by cutting it.
 */
#ifndef UMF_SRC_EXT_VAULT_TRANSFER_H
#define UMF_SRC_EXT_VAULT_TRANSFER_H

#include "object/object.h"

typedef struct umf_transfer_t {
    umf_memory_provider_handle_t provider;
    char *memory; /* of its device */
    size_t size;
    int fd; /* -1: none, for the sum alone */
    uint64_t offset;
    bool is_to_device;
    bool has_sum;
    uint64_t sum; /* [out] as umf_table_slab_sum */
    int error;    /* [out] of the system, for the file. 0: none */
} umf_transfer_t;

/* The host waits. What was read from a file is what is summed and copied. */
umf_result_t umf_transfer_run(umf_transfer_t *transfer);

#endif
