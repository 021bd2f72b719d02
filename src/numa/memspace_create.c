/* Providers and pools from memspaces, made through the public functions. */
#include <limits.h>

#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/providers/provider_os_memory.h>

#include "base/log.h"
#include "base/meta.h"
#include "numa/mempolicy.h"
#include "numa/memspace.h"
#include "numa/memtarget.h"

_Static_assert(sizeof(umf_mempolicy_split_partition_t) == sizeof(umf_numa_split_partition_t) &&
                   offsetof(umf_mempolicy_split_partition_t, weight) ==
                       offsetof(umf_numa_split_partition_t, weight) &&
                   offsetof(umf_mempolicy_split_partition_t, target) ==
                       offsetof(umf_numa_split_partition_t, target),
               "partitions of a policy are handed to the OS provider as they are");

static const umf_numa_mode_t create_modes[] = {
    [UMF_MEMPOLICY_INTERLEAVE] = UMF_NUMA_MODE_INTERLEAVE,
    [UMF_MEMPOLICY_BIND] = UMF_NUMA_MODE_BIND,
    [UMF_MEMPOLICY_PREFERRED] = UMF_NUMA_MODE_PREFERRED,
    [UMF_MEMPOLICY_SPLIT] = UMF_NUMA_MODE_SPLIT,
};

/* A policy may be NULL. */
static bool create_can_start(umf_const_memspace_handle_t memspace,
                             umf_const_mempolicy_handle_t policy, const void *place,
                             const char *function) {
    if (!umf_handle_check(memspace, &umf_handle_memspace, function) ||
        (policy && !umf_handle_check(policy, &umf_handle_mempolicy, function))) {
        return false;
    }
    if (memspace->count == 0 || !place) {
        UMF_LOG_ERROR("%s", !place ? "no place for the new handle (it is NULL)"
                                   : "the memspace has no targets");
        return false;
    }
    return true;
}

static umf_result_t create_set_nodes(umf_os_memory_provider_params_handle_t params,
                                     umf_const_memspace_handle_t memspace) {
    size_t count = memspace->kind == UMF_MEMSPACE_HIGHEST_CAPACITY ? 1 : memspace->count;
    if (count > UINT_MAX) {
        UMF_LOG_ERROR("%zu targets are more than a provider can have", count);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    unsigned *nodes = umf_meta_alloc(count * sizeof(*nodes));
    if (!nodes) {
        UMF_LOG_ERROR("no memory for a list of %zu nodes", count);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        nodes[i] = memspace->targets[i]->id;
    }
    umf_result_t result = umfOsMemoryProviderParamsSetNumaList(params, nodes, (unsigned)count);
    umf_meta_free(nodes, count * sizeof(*nodes));
    return result;
}

static umf_result_t create_set_policy(umf_os_memory_provider_params_handle_t params,
                                      umf_const_mempolicy_handle_t policy) {
    if (policy->partition_count > UINT_MAX) {
        UMF_LOG_ERROR("%zu partitions are more than a provider can have", policy->partition_count);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umfOsMemoryProviderParamsSetNumaMode(params, create_modes[policy->bind]);
    umfOsMemoryProviderParamsSetPartSize(params, policy->part_size);
    return umfOsMemoryProviderParamsSetPartitions(params,
                                                  (umf_numa_split_partition_t *)policy->partitions,
                                                  (unsigned)policy->partition_count);
}

/* HostAll without a policy sets nothing: that is the provider's default. */
static umf_result_t create_set_placement(umf_os_memory_provider_params_handle_t params,
                                         umf_const_memspace_handle_t memspace,
                                         umf_const_mempolicy_handle_t policy) {
    if (!policy && memspace->kind == UMF_MEMSPACE_HOST_ALL) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = create_set_nodes(params, memspace);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    return policy ? create_set_policy(params, policy)
                  : umfOsMemoryProviderParamsSetNumaMode(params, UMF_NUMA_MODE_BIND);
}

UMF_API_1_0 umf_result_t umfMemoryProviderCreateFromMemspace(
    umf_const_memspace_handle_t hMemspace, umf_const_mempolicy_handle_t hPolicy,
    umf_memory_provider_handle_t *hProvider) {
    umf_os_memory_provider_params_handle_t params;
    if (!create_can_start(hMemspace, hPolicy, hProvider, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umfOsMemoryProviderParamsCreate(&params);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = create_set_placement(params, hMemspace, hPolicy);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, hProvider);
    }
    umfOsMemoryProviderParamsDestroy(params);
    return result;
}

UMF_API_1_0 umf_result_t umfPoolCreateFromMemspace(umf_const_memspace_handle_t hMemspace,
                                                   umf_const_mempolicy_handle_t hPolicy,
                                                   umf_memory_pool_handle_t *hPool) {
    umf_memory_provider_handle_t provider;
    if (!create_can_start(hMemspace, hPolicy, hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umfMemoryProviderCreateFromMemspace(hMemspace, hPolicy, &provider);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    /* jemalloc, if it was built, and built for the page size of this machine. */
    const umf_memory_pool_ops_t *ops = umfJemallocPoolOps();
    result = ops ? umfPoolCreate(ops, provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER, hPool)
                 : UMF_RESULT_ERROR_NOT_SUPPORTED;
    if (result == UMF_RESULT_ERROR_NOT_SUPPORTED) {
        result = umfPoolCreate(umfDisjointPoolOps(), provider, NULL,
                               UMF_POOL_CREATE_FLAG_OWN_PROVIDER, hPool);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umfMemoryProviderDestroy(provider);
    }
    return result;
}
