/*
 * Import: shared memory of other OS providers (or of this one), opened from descriptions.
 *
 * A producer's file is opened once, and its header mapped once, for all allocations of it that are
 * open. Thread-safe.
 */
#ifndef UMF_SRC_PROVIDERS_OS_IMPORT_H
#define UMF_SRC_PROVIDERS_OS_IMPORT_H

#include "base/lock.h"
#include "ds/hash.h"
#include "peer/board.h"
#include "providers/os/handle.h"

typedef struct umf_os_import_t {
    umf_lock_t *lock;            /* the provider's */
    umf_board_sources_t sources; /* headers of files with open allocations */
    umf_hash_t opened;           /* by address. Sync: lock */
    size_t page_size;            /* Immutable after create */
} umf_os_import_t;

void umf_os_import_init(umf_os_import_t *import, umf_lock_t *lock);
/* Open allocations stay mapped. */
void umf_os_import_fini(umf_os_import_t *import);

/*
 * Maps the allocation that `data` describes. INVALID_ARGUMENT: the description is damaged, the
 * allocation is freed, or the producer has ended or is out of reach; UNKNOWN: no object of that
 * name; OUT_OF_HOST_MEMORY: no descriptor or memory for bookkeeping; MEMORY_PROVIDER_SPECIFIC: it
 * cannot be mapped; NOT_SUPPORTED as in umf_ticket_redeem.
 */
umf_result_t umf_os_import_open(umf_os_import_t *import, const void *data, void **ptr);

/* Unmaps an open allocation. 0, or EINVAL for any other address or size. */
int umf_os_import_close(umf_os_import_t *import, void *ptr, size_t size);

/* INVALID_ARGUMENT unless `data` describes an allocation of `size` bytes, see ipc_check in
 * umf/plugin.h. */
umf_result_t umf_os_import_check(const umf_os_import_t *import, const void *data, size_t size);

/* The slot of the allocation that `data` describes, see ipc_watch in umf/plugin.h. */
umf_result_t umf_os_import_watch(umf_os_import_t *import, const void *data, const uint64_t **word,
                                 uint64_t *expected);

#endif
