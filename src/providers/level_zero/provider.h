/* The state of a Level Zero provider, for its files. */
#ifndef UMF_SRC_PROVIDERS_LEVEL_ZERO_PROVIDER_H
#define UMF_SRC_PROVIDERS_LEVEL_ZERO_PROVIDER_H

#include <umf/memory_provider_gpu.h>

#include "base/event_count.h"
#include "base/lock.h"
#include "ctl/field.h"
#include "ds/hash.h"
#include "providers/level_zero/machine.h"

/* An immutable set of devices. A change replaces it by a new one. */
typedef struct umf_ze_devices_t {
    size_t refs; /* Sync: the provider's lock */
    uint32_t count;
    ze_device_handle_t list[];
} umf_ze_devices_t;

/* Who owns an exported descriptor, see ipc.c. */
typedef enum umf_ze_export_owner_t {
    UMF_ZE_EXPORT_OF_NOBODY_YET,
    UMF_ZE_EXPORT_OF_CALLER,
    UMF_ZE_EXPORT_OF_DRIVER,
} umf_ze_export_owner_t;

typedef struct umf_ze_provider_t {
    umf_ze_memory_t memory; /* Immutable after create, as all members without a note */
    uint32_t ordinal;
    ze_driver_memory_free_policy_ext_flags_t free_policy; /* 0: zeMemFree */
    uint64_t max_alloc_size;                              /* larger requests relax the limits */
    size_t min_page_size;
    char name[UMF_NAME_MAX];
    int exports;                /* params.use_import_export_for_IPC. Sync: atomic, relaxed */
    int export_owner;           /* umf_ze_export_owner_t. Sync: atomic, relaxed */
    umf_stats_t stats;          /* requested sizes */
    umf_lock_t lock;            /* UMF_RANK_PROVIDER */
    umf_hash_t allocs;          /* live allocations by address, see resident.c. Sync: lock */
    umf_hash_t opened;          /* opened memory by address. Sync: lock */
    umf_ze_devices_t *resident; /* Sync: lock */
    int changer;                /* pid of a change of residency, 0: none. Sync: lock */
    umf_event_count_t turn;     /* changes and frees wait on it for the end of a change */
} umf_ze_provider_t;
UMF_ZE_MEMORY_FIRST(umf_ze_provider_t);

#endif
