/*
 * Opened: what a provider has mapped of memory that other processes described by locators. Only
 * what is here can be unmapped by closing.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_PROVIDERS_FILE_OPENED_H
#define UMF_SRC_PROVIDERS_FILE_OPENED_H

#include "base/lock.h"
#include "ds/hash.h"
#include "providers/file/locator.h"
#include "providers/file/window.h"

typedef struct umf_opened_t {
    umf_lock_t lock;  /* UMF_RANK_PROVIDER */
    umf_hash_t table; /* by address. Sync: lock */
} umf_opened_t;

void umf_opened_init(umf_opened_t *opened);
/* What is still open stays mapped. */
void umf_opened_fini(umf_opened_t *opened);

/* Maps what is described out of a file that is known to be the right one and long enough. 0 or an
 * errno value. */
int umf_opened_map(umf_opened_t *opened, const umf_locator_t *locator,
                   const umf_window_file_t *file, void **ptr);

/* Unmaps what was opened, and nothing else: 0, or EINVAL for any other address or size. */
int umf_opened_unmap(umf_opened_t *opened, void *ptr, size_t size);

#endif
