/* One Level Zero provider, as its files see it. */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_PROVIDER_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_PROVIDER_H

#include <umf/memory_provider_gpu.h>

#include "base/event_count.h"
#include "base/lock.h"
#include "ctl/field.h"
#include "ds/hash.h"
#include "providers/level_zero/driver.h"

/* A set of devices that never changes; a new one takes its place. */
typedef struct umf_ze_devices_t {
    size_t refs; /* Sync: the provider's lock */
    uint32_t count;
    ze_device_handle_t list[];
} umf_ze_devices_t;

/* Whose an exported descriptor is, see level_zero_ipc.c. */
typedef enum umf_ze_export_owner_t {
    UMF_ZE_EXPORT_OF_NOBODY_YET,
    UMF_ZE_EXPORT_OF_CALLER,
    UMF_ZE_EXPORT_OF_DRIVER,
} umf_ze_export_owner_t;

typedef struct umf_ze_provider_t {
    const umf_ze_driver_t *driver; /* Immutable after create, as all without a note */
    ze_context_handle_t context;
    ze_device_handle_t device; /* NULL for memory of the host */
    umf_usm_memory_type_t memory_type;
    uint32_t ordinal;
    ze_driver_memory_free_policy_ext_flags_t free_policy; /* 0: zeMemFree */
    uint64_t max_alloc_size;                              /* beyond it limits are relaxed */
    size_t min_page_size, cache_line_size;
    bool owns_context;
    char name[UMF_NAME_MAX];
    int exports;                /* params.use_import_export_for_IPC. Sync: atomic, relaxed */
    int export_owner;           /* umf_ze_export_owner_t. Sync: atomic, relaxed */
    umf_stats_t stats;          /* requested sizes */
    umf_lock_t lock;            /* UMF_RANK_PROVIDER */
    umf_hash_t allocs;          /* by address, see level_zero_resident.c. Sync: lock */
    umf_hash_t opened;          /* what close may close, by address. Sync: lock */
    umf_ze_devices_t *resident; /* Sync: lock */
    const void *visited;        /* by a change of residency: not to be freed now. Sync: lock */
    int changer;                /* process of that change, 0: none. Sync: lock */
    umf_event_count_t turn;     /* of changes, and of frees that wait for one */
} umf_ze_provider_t;

#endif
