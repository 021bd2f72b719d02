/*
 * Store: the file of one provider, mapped from its start as far as it is used, and divided.
 *
 * Addresses are taken before they are needed, in windows (window.h) of 1 GiB and then twice the
 * size of the one before, and the file is mapped into them step by step. So all growth of one
 * window is one piece of memory: free neighbours are joined and split parts merged across steps,
 * and a large allocation uses the free end of what is there. A request that does not fit into the
 * rest of a window gets a new one; nothing spans two windows. The alternative, one mapping for each
 * step, would leave gaps between them.
 *
 * Before a byte is mapped it has space on the disk, also if it lies in a hole of a longer file: a
 * full disk is an error of the allocation and never a signal at some later write. Steps double with
 * the file, up to 64 MiB; where the disk has no room for a step, exactly what is needed is tried.
 * The file is never made shorter, so what others keep in it or have open of it stays.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_PROVIDERS_FILE_STORE_H
#define UMF_SRC_PROVIDERS_FILE_STORE_H

#include <umf/memory_provider.h>

#include "providers/file/path.h"
#include "providers/file/window.h"
#include "providers/shared/carve.h"

typedef struct umf_file_store_t {
    umf_carve_t carve;                 /* first, see carve_ops.h */
    umf_lock_t lock;                   /* UMF_RANK_GROW: one thread makes the file grow */
    struct umf_file_window_t *windows; /* newest first. Sync: carve.lock, changed with both */
    uint64_t end;                      /* of what is mapped, in the file. Sync: lock */
    umf_window_file_t file;            /* Immutable after init, as all below */
    uint64_t dev, ino;
    char path[UMF_PATH_ROOM]; /* absolute if the memory is shared */
} umf_file_store_t;

/* INVALID_ARGUMENT: the file cannot be opened, or is no file; UNKNOWN: it cannot be given its first
 * size; OUT_OF_HOST_MEMORY. */
umf_result_t umf_file_store_init(umf_file_store_t *store, const char *path, unsigned protection,
                                 umf_memory_visibility_t visibility);
/* Unmaps everything. The file stays. */
void umf_file_store_fini(umf_file_store_t *store);

/* As umf_carve_alloc, but growing: UNKNOWN instead of OUT_OF_RESOURCES. */
umf_result_t umf_file_store_alloc(umf_file_store_t *store, size_t size, size_t alignment,
                                  void **ptr);

/* Drops the content of whole pages; their space stays. 0 or an errno value: EINVAL if it is not all
 * memory of this store. */
int umf_file_store_purge(umf_file_store_t *store, void *ptr, size_t size);

/* Where in the file memory lies; false if it is not all of this store. */
bool umf_file_store_locate(umf_file_store_t *store, const void *ptr, size_t size, uint64_t *offset);

#endif
