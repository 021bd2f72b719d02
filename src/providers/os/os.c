/*
 * OS provider: memory of the operating system. Private memory is anonymous and lies in extents
 * (extent.h); with a NUMA policy each allocation is a mapping of its own. Shared memory lies in a
 * file of the provider (export.h), and other processes can open it (import.h).
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/aligned_map.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/meta.h"
#include "providers/os/export.h"
#include "providers/os/extent.h"
#include "providers/os/handle.h"
#include "providers/os/import.h"
#include "providers/os/numa.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"
#include "providers/shared/protection.h"
#include "system/os.h"

typedef struct os_provider_t {
    umf_stats_t stats;
    umf_os_numa_t numa;
    size_t page_size; /* Immutable after create, as all members without a note */
    int protection;   /* as mmap has it */
    bool is_shared;
    bool has_extents; /* private memory without a policy for each allocation */
    char name[UMF_NAME_MAX];
    umf_os_extents_t extents; /* used with has_extents */
    umf_lock_t lock;          /* UMF_RANK_PROVIDER; used when shared */
    umf_os_export_t export;   /* Sync: lock */
    umf_os_import_t import;   /* Sync: lock */
} os_provider_t;

UMF_PROVIDER_NATIVE(os, {UMF_OS_RESULT_SUCCESS, "success"},
                    {UMF_OS_RESULT_ERROR_ALLOC_FAILED, "memory allocation failed"},
                    {UMF_OS_RESULT_ERROR_ADDRESS_NOT_ALIGNED, "allocated address is not aligned"},
                    {UMF_OS_RESULT_ERROR_BIND_FAILED, "binding memory to NUMA node failed"},
                    {UMF_OS_RESULT_ERROR_FREE_FAILED, "memory deallocation failed"},
                    {UMF_OS_RESULT_ERROR_PURGE_LAZY_FAILED, "lazy purging failed"},
                    {UMF_OS_RESULT_ERROR_PURGE_FORCE_FAILED, "force purging failed"},
                    {UMF_OS_RESULT_ERROR_TOPO_DISCOVERY_FAILED, "HWLOC topology discovery failed"})

umf_result_t umf_os_native_fail(int32_t code, int errnum) {
    return umf_native_fail(&os_native, code, errnum);
}

/* --- creation --------------------------------------------------------------------------------- */

static bool os_shm_name_is_valid(const char *name) {
    if (name && (strlen(name) > UMF_OS_SHM_NAME_MAX || strchr(name, '/'))) {
        UMF_LOG_ERROR("\"%s\" cannot name shared memory: it contains '/' or is longer than %d "
                      "characters",
                      name, UMF_OS_SHM_NAME_MAX);
        return false;
    }
    return true;
}

static bool os_params_go_together(const umf_os_params_t *params) {
    if (params->shm_name && *params->shm_name && params->visibility != UMF_MEM_MAP_SHARED) {
        UMF_LOG_ERROR("\"%s\" cannot name private memory: use visibility UMF_MEM_MAP_SHARED",
                      params->shm_name);
        return false;
    }
    if (params->partitions_len && params->numa_mode != UMF_NUMA_MODE_SPLIT) {
        UMF_LOG_ERROR("%u partitions are given, which only UMF_NUMA_MODE_SPLIT has",
                      params->partitions_len);
        return false;
    }
    if (params->part_size && params->numa_mode != UMF_NUMA_MODE_INTERLEAVE) {
        UMF_LOG_ERROR("a part size of %zu is given, which only UMF_NUMA_MODE_INTERLEAVE has",
                      params->part_size);
        return false;
    }
    return true;
}

static umf_result_t os_check_params(const umf_os_params_t *params) {
    if (!umf_handle_check(params, &umf_os_params_kind.handle, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_access_check(params->protection, params->visibility);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (params->visibility == UMF_MEM_MAP_SHARED && params->numa_mode != UMF_NUMA_MODE_DEFAULT) {
        UMF_LOG_ERROR(
            "shared memory cannot be placed on NUMA nodes: use private memory or NUMA mode "
            "\"default\"");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return os_shm_name_is_valid(params->shm_name) && os_params_go_together(params)
               ? UMF_RESULT_SUCCESS
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t os_initialize_shared(os_provider_t *os, const umf_os_params_t *params) {
    umf_lock_init(&os->lock, UMF_RANK_PROVIDER);
    umf_result_t result =
        umf_os_export_init(&os->export, &os->lock, params->shm_name, params->protection);
    if (result != UMF_RESULT_SUCCESS) {
        umf_lock_destroy(&os->lock);
        return result;
    }
    umf_os_import_init(&os->import, &os->lock);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t os_init(os_provider_t *os, const umf_os_params_t *requested) {
    umf_result_t result = os_check_params(requested);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    os->page_size = umf_os_page_size();
    os->protection = umf_protection_bits(requested->protection);
    os->is_shared = requested->visibility == UMF_MEM_MAP_SHARED;
    umf_name_copy(os->name, requested->name);
    result = umf_os_numa_init(&os->numa, requested, os->page_size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = requested->is_from_text ? umf_os_numa_check(&os->numa) : UMF_RESULT_SUCCESS;
    if (result == UMF_RESULT_SUCCESS && os->is_shared) {
        result = os_initialize_shared(os, requested);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_os_numa_fini(&os->numa);
        return result;
    }
    os->has_extents = !os->is_shared && os->numa.mode == UMF_NUMA_MODE_DEFAULT;
    if (os->has_extents) {
        umf_os_extents_init(&os->extents, os->page_size, os->protection);
    }
    return UMF_RESULT_SUCCESS;
}

UMF_PROVIDER_INITIALIZE(os, os_provider_t)

static umf_result_t os_finalize(void *provider) {
    os_provider_t *os = provider;
    if (os->is_shared) {
        umf_os_import_fini(&os->import);
        umf_os_export_fini(&os->export);
        umf_lock_destroy(&os->lock);
    }
    if (os->has_extents) {
        umf_os_extents_fini(&os->extents);
    }
    umf_os_numa_fini(&os->numa);
    umf_stats_fini(&os->stats);
    umf_meta_free(os, sizeof(*os));
    return UMF_RESULT_SUCCESS;
}

/* --- memory ----------------------------------------------------------------------------------- */

static UMF_COLD umf_result_t os_fail(int32_t code, int error, const char *what, const void *ptr,
                                     size_t size) {
    return umf_native_fail_at(&os_native, "os_provider", code, error, what, ptr, size);
}

static int os_map_private(os_provider_t *os, size_t size, size_t alignment, bool is_any,
                          void **base) {
    if (!os->has_extents) {
        return umf_os_map_aligned(size, alignment, os->protection, base);
    }
    return is_any ? umf_os_extents_alloc_any(&os->extents, size, alignment, base)
                  : umf_os_extents_alloc(&os->extents, size, alignment, base);
}

UMF_INLINE umf_result_t os_alloc_private(os_provider_t *os, size_t size, size_t alignment,
                                         bool is_any, void **ptr) {
    size_t rounded;
    void *base;
    int error = EINVAL;
    if (size != 0) {
        error = umf_round_up(size, os->page_size, &rounded)
                    ? os_map_private(os, rounded, alignment, is_any, &base)
                    : ENOMEM;
    }
    if (error) {
        return os_fail(UMF_OS_RESULT_ERROR_ALLOC_FAILED, error, "mapping", NULL, size);
    }
    error = os->has_extents ? 0 : umf_os_numa_place(&os->numa, base, rounded, size);
    if (error) {
        umf_os_unmap(base, rounded);
        return umf_os_native_fail(UMF_OS_RESULT_ERROR_BIND_FAILED, error);
    }
    *ptr = base;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t os_alloc_shared(os_provider_t *os, size_t size, size_t alignment, void **ptr) {
    int error = umf_os_export_alloc(&os->export, size, alignment, ptr);
    return error ? os_fail(UMF_OS_RESULT_ERROR_ALLOC_FAILED, error, "mapping shared", NULL, size)
                 : UMF_RESULT_SUCCESS;
}

/* `is_any`: the memory may have any content. */
UMF_INLINE umf_result_t alloc_memory(os_provider_t *os, size_t size, size_t alignment, bool is_any,
                                     void **ptr) {
    if (alignment && alignment % os->page_size && os->page_size % alignment) {
        UMF_LOG_ERROR("alignment %zu is neither a multiple nor a divisor of the page size %zu",
                      alignment, os->page_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = os->is_shared ? os_alloc_shared(os, size, alignment, ptr)
                                        : os_alloc_private(os, size, alignment, is_any, ptr);
    if (result == UMF_RESULT_SUCCESS) {
        umf_stats_add(&os->stats, size);
    }
    return result;
}

static umf_result_t os_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    return alloc_memory(provider, size, alignment, false, ptr);
}

static umf_result_t os_reuse_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    return alloc_memory(provider, size, alignment, true, ptr);
}

/* Bytes that stay counted after `size` are freed. The count includes dormant spans of pools, as far
 * as they are not subtracted yet. */
static size_t live_without(const os_provider_t *os, size_t size) {
    size_t live = umf_stats_counted(&os->stats);
    return live > size ? live - size : 0;
}

/* munmap accepts any range, so whatever can be recognised as wrong is refused here. */
UMF_INLINE int os_free_private(os_provider_t *os, void *ptr, size_t size, bool is_kept) {
    if (os->has_extents) {
        return is_kept ? umf_os_extents_keep(&os->extents, ptr, size, live_without(os, size))
                       : umf_os_extents_free(&os->extents, ptr, size);
    }
    if (size == 0) {
        return EINVAL;
    }
    int error = umf_os_unmap(ptr, size);
    if (!error) {
        umf_os_map_freed(ptr, umf_align_up(size, os->page_size));
    }
    return error;
}

/* `is_kept`: the memory may stay dirty for an allocation of any content. */
UMF_INLINE umf_result_t free_memory(os_provider_t *os, void *ptr, size_t size, bool is_kept) {
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    size_t requested = size;
    int error = os->is_shared ? umf_os_export_free(&os->export, ptr, size, &requested)
                              : os_free_private(os, ptr, size, is_kept);
    if (error) {
        return os_fail(UMF_OS_RESULT_ERROR_FREE_FAILED, error, "unmapping", ptr, size);
    }
    umf_stats_sub(&os->stats, requested);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t os_free(void *provider, void *ptr, size_t size) {
    return free_memory(provider, ptr, size, false);
}

static int os_is_shortage(void *provider, umf_result_t result) {
    (void)provider;
    return result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC &&
           os_native.code == UMF_OS_RESULT_ERROR_ALLOC_FAILED &&
           umf_errno_is_shortage(os_native.errnum);
}

static umf_result_t os_reuse_free(void *provider, void *ptr, size_t size) {
    return free_memory(provider, ptr, size, true);
}

static umf_result_t os_reuse_drop(void *provider, int only_decayed) {
    os_provider_t *os = provider;
    if (os->has_extents && only_decayed) {
        umf_os_extents_decay(&os->extents);
    } else if (os->has_extents) {
        umf_os_extents_drop(&os->extents);
    }
    return UMF_RESULT_SUCCESS;
}

static size_t os_kept(os_provider_t *os) {
    return os->has_extents ? umf_os_extents_dirty(&os->extents) : 0;
}

static umf_result_t os_reuse_held(void *provider, size_t *bytes) {
    *bytes = os_kept(provider);
    return UMF_RESULT_SUCCESS;
}

/* Private memory only: other processes see shared memory as freed only when it really is. */
static umf_result_t os_reuse_count(void *provider, size_t size, int is_used) {
    os_provider_t *os = provider;
    if (!os->has_extents) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (is_used) {
        umf_stats_add(&os->stats, size);
    } else if (size) {
        umf_stats_sub_dormant(&os->stats, size);
    }
    return UMF_RESULT_SUCCESS;
}

/* Shared memory is punched out of its file, because other mappings of the file would keep it. Space
 * that was set aside on a file system would be lost with that: others could take it, and the next
 * write would end the process. */
static bool os_can_purge(const os_provider_t *os) {
    return !os->is_shared || !(os->export.is_limited || umf_memory_file_is_limited());
}

static umf_result_t os_purge_lazy(void *provider, void *ptr, size_t size) {
    const os_provider_t *os = provider;
    if (!os_can_purge(os)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    int error = umf_os_advise(ptr, size, os->is_shared ? MADV_REMOVE : MADV_FREE);
    return error
               ? os_fail(UMF_OS_RESULT_ERROR_PURGE_LAZY_FAILED, error, "lazily purging", ptr, size)
               : UMF_RESULT_SUCCESS;
}

static umf_result_t os_purge_force(void *provider, void *ptr, size_t size) {
    const os_provider_t *os = provider;
    if (!os_can_purge(os)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    int error = umf_os_advise(ptr, size, os->is_shared ? MADV_REMOVE : MADV_DONTNEED);
    return error ? os_fail(UMF_OS_RESULT_ERROR_PURGE_FORCE_FAILED, error, "purging", ptr, size)
                 : UMF_RESULT_SUCCESS;
}

/* Private memory needs no bookkeeping for a split: any of its pages can be freed. */
static umf_result_t os_allocation_split(void *provider, void *ptr, size_t total, size_t first) {
    os_provider_t *os = provider;
    if (os->is_shared) {
        return umf_os_export_split(&os->export, ptr, total, first);
    }
    if (first % os->page_size) {
        UMF_LOG_ERROR("the %zu bytes at %p cannot be split after %zu: parts are whole pages of %zu",
                      total, ptr, first, os->page_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t os_allocation_merge(void *provider, void *low, void *high, size_t total) {
    os_provider_t *os = provider;
    return os->is_shared ? umf_os_export_merge(&os->export, low, high, total) : UMF_RESULT_SUCCESS;
}

/* --- facts ------------------------------------------------------------------------------------ */

UMF_PROVIDER_GET_NAME(os, os_provider_t, umf_os_params)

UMF_FIELD_GETTER(os_ctl_get_ipc_enabled, int, ((const os_provider_t *)object)->is_shared)

UMF_FIELD_GETTER(os_ctl_get_kept, size_t, os_kept(object))

static const umf_field_t os_field_list[] = {
    {.path = "params.ipc_enabled",
     .type = UMF_FIELD_INT,
     .access = UMF_FIELD_READ,
     .get = os_ctl_get_ipc_enabled,
     .help = "1 if other processes can open the memory, else 0"},
    {.path = "stats.kept_memory",
     UMF_FIELD_COUNTER(os_ctl_get_kept),
     .help = "bytes that pools have freed and that wait for their next allocation"},
};
static const umf_fields_t os_fields = UMF_FIELDS(os_field_list);

static umf_result_t os_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                           void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    os_provider_t *os = provider;
    return umf_fields_or_stats_ctl(os, &os_fields, &os->stats, source, name, arg, size, type, args);
}

/* --- sharing ---------------------------------------------------------------------------------- */

static umf_result_t os_get_ipc_handle_size(void *provider, size_t *size) {
    const os_provider_t *os = provider;
    if (!umf_access_can_share(os->is_shared)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = UMF_OS_HANDLE_SIZE;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t os_get_ipc_handle(void *provider, const void *ptr, size_t size, void *data) {
    os_provider_t *os = provider;
    return umf_access_can_share(os->is_shared)
               ? umf_os_export_get_handle(&os->export, ptr, size, data)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t os_put_ipc_handle(void *provider, void *data) {
    os_provider_t *os = provider;
    return umf_access_can_share(os->is_shared) ? umf_os_export_put_handle(&os->export, data)
                                               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t os_open_ipc_handle(void *provider, void *data, void **ptr) {
    os_provider_t *os = provider;
    return umf_access_can_share(os->is_shared) ? umf_os_import_open(&os->import, data, ptr)
                                               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t os_close_ipc_handle(void *provider, void *ptr, size_t size) {
    os_provider_t *os = provider;
    if (!umf_access_can_share(os->is_shared)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    int error = umf_os_import_close(&os->import, ptr, size);
    return error ? os_fail(UMF_OS_RESULT_ERROR_FREE_FAILED, error, "closing", ptr, size)
                 : UMF_RESULT_SUCCESS;
}

static umf_result_t os_ipc_watch(void *provider, const void *data, const uint64_t **word,
                                 uint64_t *expected) {
    os_provider_t *os = provider;
    return umf_access_can_share(os->is_shared)
               ? umf_os_import_watch(&os->import, data, word, expected)
               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t os_ipc_check(void *provider, const void *data, size_t size) {
    os_provider_t *os = provider;
    return umf_access_can_share(os->is_shared) ? umf_os_import_check(&os->import, data, size)
                                               : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* --- tables ----------------------------------------------------------------------------------- */

static const umf_memory_provider_ops_t os_ops = {
    UMF_PROVIDER_OPS(os),
    .alloc = os_alloc,
    .free = os_free,
    .get_last_native_error = os_get_last_native_error,
    .get_recommended_page_size = umf_provider_op_page_size,
    .get_min_page_size = umf_provider_op_min_page_size,
    .get_name = os_get_name,
    .ext_purge_lazy = os_purge_lazy,
    .ext_purge_force = os_purge_force,
    .ext_allocation_merge = os_allocation_merge,
    .ext_allocation_split = os_allocation_split,
    UMF_IPC_OPS(os),
    .ext_ctl = os_ctl,
    .get_cache_line_size = umf_provider_op_cache_line_size,
};

static const umf_memory_provider_ext_ops_t os_ext_ops = {
    .struct_size = sizeof(os_ext_ops),
    .is_shortage = os_is_shortage,
    .ipc_flags = UMF_IPC_FLAG_REPEATABLE,
    .ipc_watch = os_ipc_watch,
    .ipc_check = os_ipc_check,
    .reuse_alloc = os_reuse_alloc,
    .reuse_free = os_reuse_free,
    .reuse_drop = os_reuse_drop,
    .reuse_count = os_reuse_count,
    .reuse_held = os_reuse_held,
};

UMF_API_1_0 const umf_memory_provider_ops_t *umfOsMemoryProviderOps(void) {
    return &os_ops;
}

UMF_PROVIDER_DESCRIPTOR(os, umf_os_params, .ops = &os_ops, .ext = &os_ext_ops);
