/* Memory policies: how a provider that is created from a memspace places its memory. */
#include "numa/mempolicy.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "system/common.h"

const umf_handle_kind_t umf_handle_mempolicy = {"a memory policy"};

static const char *const mempolicy_names[] = {
    [UMF_MEMPOLICY_INTERLEAVE] = "interleave",
    [UMF_MEMPOLICY_BIND] = "bind",
    [UMF_MEMPOLICY_PREFERRED] = "preferred",
    [UMF_MEMPOLICY_SPLIT] = "split",
};

UMF_API_1_0 umf_result_t umfMempolicyCreate(umf_mempolicy_membind_t bind,
                                            umf_mempolicy_handle_t *hPolicy) {
    if (!hPolicy) {
        UMF_LOG_ERROR("no place for the policy (hPolicy is NULL)");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if ((unsigned)bind >= UMF_COUNT_OF(mempolicy_names)) {
        UMF_LOG_ERROR("memory policy %d does not exist", (int)bind);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_mempolicy_handle_t policy = umf_handle_new(sizeof(*policy), &umf_handle_mempolicy);
    if (!policy) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    policy->bind = bind;
    *hPolicy = policy;
    return UMF_RESULT_SUCCESS;
}

static void mempolicy_drop_partitions(umf_mempolicy_handle_t policy) {
    umf_meta_free(policy->partitions, policy->partition_count * sizeof(*policy->partitions));
    policy->partitions = NULL;
    policy->partition_count = 0;
}

UMF_API_1_0 umf_result_t umfMempolicyDestroy(umf_mempolicy_handle_t hPolicy) {
    if (!hPolicy) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_handle_end(hPolicy, &umf_handle_mempolicy, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    mempolicy_drop_partitions(hPolicy);
    umf_meta_free(hPolicy, sizeof(*hPolicy));
    return UMF_RESULT_SUCCESS;
}

/* A setting belongs to one kind of policy. Logs if `policy` is another kind. */
static bool mempolicy_is(umf_const_mempolicy_handle_t policy, umf_mempolicy_membind_t bind,
                         const char *function) {
    if (!umf_handle_check(policy, &umf_handle_mempolicy, function)) {
        return false;
    }
    if (policy->bind != bind) {
        UMF_LOG_ERROR("this setting is for memory policy \"%s\", not for \"%s\"",
                      mempolicy_names[bind], mempolicy_names[policy->bind]);
        return false;
    }
    return true;
}

UMF_API_1_0 umf_result_t umfMempolicySetInterleavePartSize(umf_mempolicy_handle_t hPolicy,
                                                           size_t partSize) {
    if (!mempolicy_is(hPolicy, UMF_MEMPOLICY_INTERLEAVE, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    hPolicy->part_size = partSize;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfMempolicySetCustomSplitPartitions(
    umf_mempolicy_handle_t hPolicy, umf_mempolicy_split_partition_t *partList, size_t partListLen) {
    if (!mempolicy_is(hPolicy, UMF_MEMPOLICY_SPLIT, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!partList && partListLen != 0) {
        UMF_LOG_ERROR("a list of %zu partitions is NULL", partListLen);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_mempolicy_split_partition_t *copy = NULL;
    if (partListLen != 0) {
        size_t bytes;
        copy = umf_mul(partListLen, sizeof(*copy), &bytes) ? umf_meta_alloc(bytes) : NULL;
        if (!copy) {
            UMF_LOG_ERROR("no memory for %zu partitions", partListLen);
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        memcpy(copy, partList, bytes);
    }
    mempolicy_drop_partitions(hPolicy);
    hPolicy->partitions = copy;
    hPolicy->partition_count = partListLen;
    return UMF_RESULT_SUCCESS;
}
