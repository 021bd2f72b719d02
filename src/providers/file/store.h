/*
 * Store: the file of one provider, mapped from its start as far as it is used, and divided.
 *
 * Addresses are reserved ahead, in windows (window.h): the first of 1 GiB, each next one twice as
 * large. The file is mapped into them step by step. So all growth inside one window is contiguous:
 * free neighbours are merged across steps, and a large allocation uses the free end of the window.
 * A request that does not fit into the rest of a window gets a new one; no allocation spans two
 * windows. One mapping for each step would leave gaps between the steps.
 *
 * Every byte has space on the disk before it is mapped, also in a hole of a longer file: a full
 * disk fails an allocation and never raises a signal at a later write. Steps double with the file,
 * up to 64 MiB. If the disk has no room for a step, exactly the needed size is tried. The file is
 * never shortened, so content of others and open mappings stay.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_PROVIDERS_FILE_STORE_H
#define UMF_SRC_PROVIDERS_FILE_STORE_H

#include <umf/memory_provider.h>

#include "base/kept_fd.h"
#include "providers/file/path.h"
#include "providers/file/window.h"
#include "providers/shared/carve.h"

typedef struct umf_file_store_t {
    umf_carve_t carve;                 /* first, see carve_ops.h */
    umf_lock_t lock;                   /* UMF_RANK_GROW: one thread at a time grows the file */
    struct umf_file_window_t *windows; /* newest first. Sync: carve.lock, changed with both */
    uint64_t end;                      /* end of the mapped part of the file. Sync: lock */
    umf_kept_fd_t kept;                /* Immutable after init, as all members below */
    umf_window_file_t file;            /* its descriptor is that of `kept` */
    char path[UMF_PATH_ROOM];          /* absolute if the memory is shared */
} umf_file_store_t;

/* INVALID_ARGUMENT: the path cannot be opened, or is no regular file; UNKNOWN: the file cannot get
 * its first size; OUT_OF_HOST_MEMORY. */
umf_result_t umf_file_store_init(umf_file_store_t *store, const char *path, unsigned protection,
                                 umf_memory_visibility_t visibility);
/* Unmaps everything. The file stays. */
void umf_file_store_fini(umf_file_store_t *store);

/* As umf_carve_alloc, but the file grows: UNKNOWN instead of OUT_OF_RESOURCES, and `failed` gets
 * the errno value. It is not changed otherwise. */
umf_result_t umf_file_store_alloc(umf_file_store_t *store, size_t size, size_t alignment,
                                  void **ptr, int *failed);

/* Drops the content of whole pages; their disk space stays. Returns 0 or an errno value: EINVAL
 * unless the whole range is memory of this store. */
int umf_file_store_purge(umf_file_store_t *store, void *ptr, size_t size);

/* The offset of memory in the file. false: the range is not wholly memory of this store. */
bool umf_file_store_locate(umf_file_store_t *store, const void *ptr, size_t size, uint64_t *offset);

#endif
