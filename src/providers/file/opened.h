/*
 * Opened: the memory of other processes that a provider has mapped, described by locators. A close
 * can unmap only mappings in this table.
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
/* Open memory stays mapped. */
void umf_opened_fini(umf_opened_t *opened);

/* Maps the described memory of a file that was checked: it is the right one and long enough.
 * Returns 0 or an errno value. */
int umf_opened_map(umf_opened_t *opened, const umf_locator_t *locator,
                   const umf_window_file_t *file, void **ptr);

/* Unmaps open memory. 0, or EINVAL for any other address or size. */
int umf_opened_unmap(umf_opened_t *opened, void *ptr, size_t size);

#endif
