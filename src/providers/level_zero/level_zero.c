/*
 * Level Zero provider: memory of the host, of a device, or shared by both, in one context; each
 * allocation is one call of the driver.
 */
#include "base/log.h"
#include "base/meta.h"
#include "providers/level_zero/copy.h"
#include "providers/level_zero/ipc.h"
#include "providers/level_zero/machine.h"
#include "providers/level_zero/params.h"
#include "providers/level_zero/resident.h"
#include "providers/level_zero/wait.h"
#include "providers/shared/kind.h"
#include "providers/shared/name.h"

/* --- the driver's calls ----------------------------------------------------------------------- */

static ze_result_t ze_call_alloc_host(const umf_ze_provider_t *ze, size_t size, size_t alignment,
                                      void **ptr) {
    ze_host_mem_alloc_desc_t host = {
        .stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC,
        .pNext = &umf_ze_relaxed,
    };
    return umf_ze.zeMemAllocHost(ze->memory.context, &host, size, alignment, ptr);
}

static ze_result_t ze_call_alloc_device(const umf_ze_provider_t *ze, size_t size, size_t alignment,
                                        void **ptr) {
    ze_external_memory_export_desc_t exported = {
        .stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC,
        .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF,
    };
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    ze_device_mem_alloc_desc_t device = {
        .stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
        .ordinal = ze->ordinal,
    };
    if (size > ze->max_alloc_size) {
        device.pNext = &umf_ze_relaxed;
    }
    if (ze->memory.memory_type == UMF_MEMORY_TYPE_SHARED) {
        return umf_ze.zeMemAllocShared(ze->memory.context, &device, &host, size, alignment,
                                       ze->memory.device, ptr);
    }
    if (__atomic_load_n(&ze->exports, __ATOMIC_RELAXED)) {
        exported.pNext = device.pNext;
        device.pNext = &exported;
    }
    return umf_ze.zeMemAllocDevice(ze->memory.context, &device, size, alignment, ze->memory.device,
                                   ptr);
}

static ze_result_t ze_call_free(const umf_ze_provider_t *ze, void *ptr) {
    if (!ze->free_policy) {
        return umf_ze.zeMemFree(ze->memory.context, ptr);
    }
    ze_memory_free_ext_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
        .freePolicy = ze->free_policy,
    };
    return umf_ze.zeMemFreeExt(ze->memory.context, &desc, ptr);
}

/* Allocates memory and makes it resident. After a failure nothing stays allocated. */
static ze_result_t ze_call_alloc(umf_ze_provider_t *ze, size_t size, size_t alignment, void **ptr) {
    void *made = NULL;
    ze_result_t result = ze->memory.memory_type == UMF_MEMORY_TYPE_HOST
                             ? ze_call_alloc_host(ze, size, alignment, &made)
                             : ze_call_alloc_device(ze, size, alignment, &made);
    if (result != ZE_RESULT_SUCCESS) {
        return result;
    }
    result = umf_ze_resident_make(ze, made, size);
    if (result != ZE_RESULT_SUCCESS) {
        ze_call_free(ze, made);
        return result;
    }
    *ptr = made;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ze_call_page_size(const umf_ze_provider_t *ze, const void *ptr, size_t *size) {
    ze_memory_allocation_properties_t properties = {
        .stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES,
    };
    ze_result_t result = umf_ze.zeMemGetAllocProperties(ze->memory.context, ptr, &properties, NULL);
    if (result == ZE_RESULT_SUCCESS) {
        *size = (size_t)properties.pageSize;
    }
    return result;
}

/* --- creation --------------------------------------------------------------------------------- */

static umf_result_t ze_refuse(const char *why) {
    UMF_LOG_ERROR("%s", why);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* Parameters from text have no context and no device yet. */
static umf_result_t ze_check_handles(const umf_ze_params_t *params) {
    if (params->numbers.are_meant) {
        return UMF_RESULT_SUCCESS;
    }
    if (!params->context) {
        return ze_refuse("there is no context: set it with "
                         "umfLevelZeroMemoryProviderParamsSetContext");
    }
    if (params->memory_type == UMF_MEMORY_TYPE_HOST && params->device) {
        return ze_refuse("memory of the host belongs to no device: set the device to NULL, or "
                         "another memory type");
    }
    if (params->memory_type != UMF_MEMORY_TYPE_HOST && !params->device) {
        return ze_refuse("there is no device: set it with "
                         "umfLevelZeroMemoryProviderParamsSetDevice, or the memory type to host");
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t ze_check_params(const umf_ze_params_t *params) {
    if (!umf_handle_check(params, &umf_ze_params_kind.handle, "umfMemoryProviderCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = ze_check_handles(params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (params->memory_type <= UMF_MEMORY_TYPE_UNKNOWN ||
        params->memory_type > UMF_MEMORY_TYPE_SHARED) {
        UMF_LOG_ERROR("memory type %d is none of host, device and shared: set it with "
                      "umfLevelZeroMemoryProviderParamsSetMemoryType",
                      (int)params->memory_type);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if ((unsigned)params->free_policy > UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFER_FREE) {
        UMF_LOG_ERROR("free policy %d is none of umf_level_zero_memory_provider_free_policy_t",
                      (int)params->free_policy);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t ze_set_free_policy(umf_ze_provider_t *ze, const umf_ze_params_t *params) {
    static const ze_driver_memory_free_policy_ext_flags_t flags[] = {
        [UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFAULT] = 0,
        [UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_BLOCKING_FREE] =
            ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE,
        [UMF_LEVEL_ZERO_MEMORY_PROVIDER_FREE_POLICY_DEFER_FREE] =
            ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE,
    };
    ze->free_policy = flags[params->free_policy];
    if (ze->free_policy && !umf_ze.zeMemFreeExt) {
        UMF_LOG_ERROR("this Level Zero loader has no function zeMemFreeExt, which free policies "
                      "need: install a newer one, or use the default policy");
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t ze_use_handles(umf_ze_provider_t *ze, const umf_ze_params_t *params) {
    ze->memory.context = params->context;
    ze->memory.device = params->device;
    return umf_ze_resident_init(ze, params->resident, params->resident_count);
}

/* Looks for devices of the same driver, because only they can share the context. */
static umf_result_t ze_find_resident(const umf_ze_numbers_t *numbers, ze_driver_handle_t owner,
                                     ze_device_handle_t *devices) {
    for (uint32_t i = 0; i < numbers->resident_count; i++) {
        umf_result_t result =
            umf_ze_find_beside(owner, numbers->device.any_type, numbers->resident[i], &devices[i]);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t ze_use_numbers(umf_ze_provider_t *ze, const umf_ze_numbers_t *numbers) {
    umf_ze_location_t location;
    ze_device_handle_t resident[UMF_ZE_NUMBERS_MAX];
    umf_result_t result = umf_ze_find_device(&numbers->device, &location);
    if (result == UMF_RESULT_SUCCESS) {
        result = ze_find_resident(numbers, location.owner, resident);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_ze_make_context(location.owner, &ze->memory.context);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    ze->memory.owns_context = true;
    ze->memory.device = ze->memory.memory_type == UMF_MEMORY_TYPE_HOST ? NULL : location.device;
    return umf_ze_resident_init(ze, resident, numbers->resident_count);
}

static umf_result_t ze_read_limit(umf_ze_provider_t *ze) {
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    if (!ze->memory.device) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result =
        umf_ze_result(umf_ze.zeDeviceGetProperties(ze->memory.device, &properties),
                      "asking for the properties of the device");
    ze->max_alloc_size = properties.maxMemAllocSize;
    return result;
}

/* The driver reports the page size of an allocation only, so one is made for the query. */
static umf_result_t ze_read_page_size(umf_ze_provider_t *ze) {
    void *probe;
    ze_result_t result = ze_call_alloc(ze, 1, 0, &probe);
    if (result != ZE_RESULT_SUCCESS) {
        return umf_ze_result(result, "allocating one byte to read its page size");
    }
    result = ze_call_page_size(ze, probe, &ze->min_page_size);
    ze_result_t freed = ze_call_free(ze, probe);
    return umf_ze_result(result != ZE_RESULT_SUCCESS ? result : freed, "asking for the page size");
}

/* Makes a working provider from its parameters. ze_finalize undoes it. */
static umf_result_t ze_start(umf_ze_provider_t *ze, const umf_ze_params_t *params) {
    umf_result_t result = ze_set_free_policy(ze, params);
    if (result == UMF_RESULT_SUCCESS) {
        result = params->numbers.are_meant ? ze_use_numbers(ze, &params->numbers)
                                           : ze_use_handles(ze, params);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = ze_read_limit(ze);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_ze_cache_line_size(ze->memory.device, &ze->memory.cache_line_size);
    }
    return result == UMF_RESULT_SUCCESS ? ze_read_page_size(ze) : result;
}

static umf_result_t ze_fini(umf_ze_provider_t *ze) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (ze->resident) {
        umf_ze_resident_fini(ze);
    }
    if (ze->memory.owns_context) {
        result = umf_ze_given_back(umf_ze.zeContextDestroy(ze->memory.context),
                                   "destroying the context");
    }
    umf_hash_fini(&ze->opened);
    umf_lock_destroy(&ze->lock);
    return result;
}

static umf_result_t ze_finalize(void *provider) {
    umf_result_t result = ze_fini(provider);
    umf_meta_free(provider, sizeof(umf_ze_provider_t));
    return result;
}

static umf_result_t ze_init(umf_ze_provider_t *ze, const umf_ze_params_t *requested) {
    umf_result_t result = ze_check_params(requested);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    char why[512];
    if (!umf_ze_is_there(why, sizeof(why))) {
        UMF_LOG_ERROR("%s", why);
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    ze->memory.memory_type = requested->memory_type;
    ze->ordinal = requested->device_ordinal;
    umf_name_copy(ze->name, requested->name);
    umf_lock_init(&ze->lock, UMF_RANK_PROVIDER);
    result = ze_start(ze, requested);
    if (result != UMF_RESULT_SUCCESS) {
        ze_fini(ze);
    }
    return result;
}

UMF_PROVIDER_INITIALIZE(ze, umf_ze_provider_t)

/* --- allocation ------------------------------------------------------------------------------- */

static umf_result_t ze_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    umf_ze_provider_t *ze = provider;
    void *made = NULL;
    if (alignment && !umf_is_pow2(alignment)) {
        UMF_LOG_ERROR("alignment %zu is not a power of two", alignment);
        return UMF_RESULT_ERROR_INVALID_ALIGNMENT;
    }
    umf_result_t result =
        umf_ze_result(ze_call_alloc(ze, size, alignment, &made), "allocating memory");
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (!umf_ze_alloc_add(ze, made, size)) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        ze_call_free(ze, made);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_stats_add(&ze->stats, size);
    *ptr = made;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t ze_free(void *provider, void *ptr, size_t size) {
    umf_ze_provider_t *ze = provider;
    (void)size;
    if (!ptr) {
        return UMF_RESULT_SUCCESS;
    }
    size_t requested;
    if (!umf_ze_alloc_remove(ze, ptr, &requested)) {
        UMF_LOG_ERROR("%p is not an allocation of this provider, or freed already", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_ze_given_back(ze_call_free(ze, ptr), "freeing memory");
    if (result != UMF_RESULT_SUCCESS) {
        umf_ze_alloc_add(ze, ptr, requested);
        return result;
    }
    umf_stats_sub(&ze->stats, requested);
    return UMF_RESULT_SUCCESS;
}

/* --- questions -------------------------------------------------------------------------------- */

static umf_result_t ze_get_min_page_size(void *provider, const void *ptr, size_t *page_size) {
    const umf_ze_provider_t *ze = provider;
    size_t size = ze->min_page_size;
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (ptr) {
        result = umf_ze_result(ze_call_page_size(ze, ptr, &size), "asking for a page size");
    }
    if (result == UMF_RESULT_SUCCESS && ptr && size == 0) {
        UMF_LOG_ERROR("Level Zero has no memory at %p", ptr);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (result == UMF_RESULT_SUCCESS) {
        *page_size = size;
    }
    return result;
}

static umf_result_t ze_get_recommended_page_size(void *provider, size_t size, size_t *page_size) {
    (void)size;
    *page_size = ((umf_ze_provider_t *)provider)->min_page_size;
    return UMF_RESULT_SUCCESS;
}

UMF_PROVIDER_GET_NAME(ze, umf_ze_provider_t, umf_ze_params)

/* --- settings --------------------------------------------------------------------------------- */

UMF_FIELD_GETTER(ze_ctl_get_exports, int,
                 __atomic_load_n(&((umf_ze_provider_t *)object)->exports, __ATOMIC_RELAXED))

static umf_result_t ze_ctl_set_exports(void *object, const void *value) {
    __atomic_store_n(&((umf_ze_provider_t *)object)->exports, *(const int *)value,
                     __ATOMIC_RELAXED);
    return UMF_RESULT_SUCCESS;
}

static const umf_field_t ze_ctl_field_list[] = {
    {.path = "params.use_import_export_for_IPC",
     UMF_FIELD_SETTING(INT, ze_ctl_get_exports, ze_ctl_set_exports),
     .help = "1: memory allocated from now on is shared by exporting and importing it, not by IPC "
             "handles of the driver; default: 0"},
};
static const umf_fields_t ze_ctl_fields = UMF_FIELDS(ze_ctl_field_list);

static umf_result_t ze_ctl(void *provider, umf_ctl_query_source_t source, const char *name,
                           void *arg, size_t size, umf_ctl_query_type_t type, va_list args) {
    umf_ze_provider_t *ze = provider;
    return umf_fields_or_stats_ctl(ze, &ze_ctl_fields, &ze->stats, source, name, arg, size, type,
                                   args);
}

/* --- data ------------------------------------------------------------------------------------- */

static umf_result_t ze_wait(void *provider, void *const *queues, size_t num_queues,
                            void *const *events, size_t num_events) {
    (void)provider;
    if (!num_queues && !num_events) {
        UMF_LOG_ERROR("a Level Zero provider waits for queues and events that are named only");
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    return umf_ze_wait_for(queues, num_queues, events, num_events);
}

/* --- tables ----------------------------------------------------------------------------------- */

static const umf_memory_provider_ops_t ze_ops = {
    UMF_PROVIDER_OPS(ze),
    .alloc = ze_alloc,
    .free = ze_free,
    .get_recommended_page_size = ze_get_recommended_page_size,
    .get_min_page_size = ze_get_min_page_size,
    .get_name = ze_get_name,
    UMF_IPC_OPS(umf_ze),
    .ext_ctl = ze_ctl,
    UMF_ZE_OPS,
};

static const umf_memory_provider_ext_ops_t ze_ext_ops = {
    .struct_size = sizeof(ze_ext_ops),
    .is_shortage = umf_ze_is_shortage,
    .ipc_check = umf_ze_ipc_check,
    UMF_ZE_QUEUE_OPS,
    .wait = ze_wait,
    .dmabuf = umf_ze_dmabuf,
};

UMF_API_1_0 const umf_memory_provider_ops_t *umfLevelZeroMemoryProviderOps(void) {
    return &ze_ops;
}

UMF_PROVIDER_DESCRIPTOR(level_zero, umf_ze_params, .ops = &ze_ops, .ext = &ze_ext_ops,
                        .probe = umf_ze_probe);
