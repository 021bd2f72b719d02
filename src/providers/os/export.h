/*
 * Export: the shared allocations of an OS provider, and their description for other processes.
 *
 * Thread-safe.
 */
#ifndef UMF_SRC_PROVIDERS_OS_EXPORT_H
#define UMF_SRC_PROVIDERS_OS_EXPORT_H

#include "base/lock.h"
#include "ds/hash.h"
#include "providers/os/share.h"

typedef struct umf_os_export_t {
    umf_lock_t *lock;       /* the provider's */
    umf_os_share_t *shares; /* the one in use first, then inherited ones. Sync: lock */
    umf_hash_t allocations; /* by address. Sync: lock */
    size_t page_size;       /* Immutable after create, as all below */
    unsigned protection;    /* umf_mem_protection_flag_t */
    size_t name_length;
    bool is_limited; /* the memory has its space set aside */
    uint32_t pid;    /* of the process that created it; a forked child has another */
} umf_os_export_t;

/* `name`: of the object, NULL or "" for an anonymous file. Results as umf_os_share_create. */
umf_result_t umf_os_export_init(umf_os_export_t *exports, umf_lock_t *lock, const char *name,
                                unsigned protection);
void umf_os_export_fini(umf_os_export_t *exports);

/* 0 or an errno value. `size` is the requested size. */
int umf_os_export_alloc(umf_os_export_t *exports, size_t size, size_t alignment, void **ptr);
/* 0 or an errno value: EINVAL if there is no such allocation. `*requested` gets the size that the
 * caller of alloc requested. */
int umf_os_export_free(umf_os_export_t *exports, void *ptr, size_t size, size_t *requested);

/* UNKNOWN: not an allocation; INVALID_ARGUMENT: the sizes do not match, or the parts are not
 * adjacent. */
umf_result_t umf_os_export_split(umf_os_export_t *exports, void *ptr, size_t total, size_t first);
umf_result_t umf_os_export_merge(umf_os_export_t *exports, void *low, void *high, size_t total);

/* INVALID_ARGUMENT: not an allocation of that size; OUT_OF_RESOURCES: too many are exported. */
umf_result_t umf_os_export_get_handle(umf_os_export_t *exports, const void *ptr, size_t size,
                                      void *data);
/* INVALID_ARGUMENT unless it is a description made by this provider in this process. */
umf_result_t umf_os_export_put_handle(umf_os_export_t *exports, const void *data);

#endif
