/* Blocks and their groups: allocations and pools. */
#include "block.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_cuda_vmm.h>
#include <umf/result.h>
#include <umf/suspend.h>

enum { MAX_DEVICES = 64 };

bool fail(failure_t *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return false;
}

static const char *reason(umf_result_t result) {
    umf_memory_provider_handle_t provider;
    const char *text = NULL;
    int32_t code;
    if (result == UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC &&
        umfGetLastFailedMemoryProvider(&provider) == UMF_RESULT_SUCCESS && provider &&
        umfMemoryProviderGetLastNativeError(provider, &text, &code) == UMF_RESULT_SUCCESS && text) {
        return text;
    }
    return umfResultText(result);
}

/* --- providers -------------------------------------------------------------------------------- */

static umf_result_t provider_make(int device, umf_memory_provider_handle_t *provider) {
    umf_cuda_vmm_memory_provider_params_handle_t params;
    umf_result_t result = umfCUDAVmmMemoryProviderParamsCreate(device, &params);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfMemoryProviderCreate(umfCUDAVmmMemoryProviderOps(), params, provider);
        umfCUDAVmmMemoryProviderParamsDestroy(params);
    }
    return result;
}

/* One for each device, made when it is first used and kept until the process ends. */
static umf_result_t provider_of(int device, umf_memory_provider_handle_t *provider) {
    static umf_memory_provider_handle_t providers[MAX_DEVICES];
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    if (device < 0 || device >= MAX_DEVICES) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&mutex);
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (!providers[device]) {
        result = provider_make(device, &providers[device]);
    }
    *provider = providers[device];
    pthread_mutex_unlock(&mutex);
    return result;
}

size_t block_granularity(int device) {
    umf_memory_provider_handle_t provider;
    size_t size = 0;
    return provider_of(device, &provider) == UMF_RESULT_SUCCESS &&
                   umfMemoryProviderGetMinPageSize(provider, NULL, &size) == UMF_RESULT_SUCCESS
               ? size
               : 0;
}

/* --- groups and blocks ------------------------------------------------------------------------ */

static umf_result_t group_make(group_t *group, int device) {
    umf_memory_provider_handle_t provider;
    umf_result_t result = provider_of(device, &provider);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_memory_pool_handle_t pool;
    result = umfPoolCreate(umfProxyPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_NONE, &pool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    policy.keep = UMF_SUSPEND_DISCARD; /* backups keep the content */
    result = umfPoolSetSuspendPolicy(pool, &policy);
    if (result != UMF_RESULT_SUCCESS) {
        umfPoolDestroy(pool);
        return result;
    }
    *group = (group_t){.pool = pool, .device = device};
    return UMF_RESULT_SUCCESS;
}

bool group_create(group_t *group, int device, failure_t *error) {
    error->result = group_make(group, device);
    return error->result == UMF_RESULT_SUCCESS ||
           fail(error, "there is no pool on device %d: %s", device, reason(error->result));
}

void group_destroy(group_t *group) {
    umfPoolDestroy(group->pool);
}

bool block_create(block_t *block, group_t *group, size_t size, failure_t *error) {
    void *ptr = umfPoolMalloc(group->pool, size);
    if (!ptr) {
        error->result = umfPoolGetLastAllocationError(group->pool);
        return fail(error, "%zu bytes of device %d cannot be allocated: %s", size, group->device,
                    reason(error->result));
    }
    *block = (block_t){.group = group, .ptr = ptr, .size = size};
    return true;
}

void block_destroy(block_t *block) {
    umfPoolFree(block->group->pool, block->ptr);
}

/* --- sleep and wake --------------------------------------------------------------------------- */

/* The pools of those groups that are not in the state; NULL if there is no memory for the list. */
static umf_memory_pool_handle_t *pools_of(group_t **groups, size_t count, bool is_asleep,
                                          size_t *found) {
    umf_memory_pool_handle_t *pools = malloc((count + 1) * sizeof(*pools));
    *found = 0;
    for (size_t i = 0; pools && i < count; i++) {
        if (groups[i]->is_asleep != is_asleep) {
            pools[(*found)++] = groups[i]->pool;
        }
    }
    return pools;
}

/* State of the library: memory that it could not bring back stays suspended. */
static bool is_suspended(const group_t *group) {
    umf_residency_t now = UMF_RESIDENCY_INIT;
    return umfPoolGetResidency(group->pool, &now) == UMF_RESULT_SUCCESS &&
           now.state != UMF_SUSPEND_STATE_RESIDENT;
}

static bool groups_move(group_t **groups, size_t count, bool is_asleep, failure_t *error) {
    size_t found;
    umf_memory_pool_handle_t *pools = pools_of(groups, count, is_asleep, &found);
    if (!pools) {
        error->result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        return fail(error, "no memory for a list of %zu pools", count);
    }
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (found > 0) {
        result = is_asleep ? umfPoolsSuspend(pools, found, NULL, &report)
                           : umfPoolsResume(pools, found, NULL, &report);
    }
    free(pools);
    error->result = result;
    error->missing = report.missing;
    if (result != UMF_RESULT_SUCCESS) {
        for (size_t i = 0; i < count; i++) {
            groups[i]->is_asleep = is_suspended(groups[i]);
        }
        return is_asleep ? fail(error, "memory cannot be given back: %s", reason(result))
                         : fail(error, "no memory to come back to: %s", reason(result));
    }
    for (size_t i = 0; i < count; i++) {
        groups[i]->is_asleep = is_asleep;
    }
    return true;
}

bool groups_sleep(group_t **groups, size_t count, failure_t *error) {
    return groups_move(groups, count, true, error);
}

bool groups_wake(group_t **groups, size_t count, failure_t *error) {
    return groups_move(groups, count, false, error);
}
