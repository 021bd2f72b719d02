/* The public calls of groups. */
#include "object/group.h"

#include "base/log.h"
#include "reclaim/reclaim.h"

static const umf_handle_kind_t group_kind = {"an object of umfPoolGroupCreate"};

static umf_result_t check_add(umf_pool_group_handle_t group, umf_memory_pool_handle_t pool) {
    if (!umf_handle_check(group, &group_kind, "umfPoolGroupAdd") ||
        !umf_pool_check(pool, "umfPoolGroupAdd")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!pool->tracked) {
        UMF_LOG_ERROR("pool %p was created without tracking, so its memory cannot be counted",
                      (void *)pool);
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (umf_group_of(pool->tracked)) {
        UMF_LOG_ERROR("pool %p is in the group %p: remove it from that first", (void *)pool,
                      (void *)umf_group_of(pool->tracked));
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfPoolGroupAdd(umf_pool_group_handle_t group,
                                             umf_memory_pool_handle_t pool) {
    umf_result_t result = check_add(group, pool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_reclaim_end(pool);
    umf_group_join(pool->tracked, group);
    umf_reclaim_begin(pool);
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfPoolGroupRemove(umf_pool_group_handle_t group,
                                                umf_memory_pool_handle_t pool) {
    if (!umf_handle_check(group, &group_kind, __func__) || !umf_pool_check(pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!pool->tracked || umf_group_of(pool->tracked) != group) {
        UMF_LOG_ERROR("pool %p is not in the group %p", (void *)pool, (void *)group);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_reclaim_end(pool);
    umf_group_leave(pool->tracked);
    umf_reclaim_begin(pool);
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfPoolGroupCreate(size_t limit, umf_pool_group_handle_t *group) {
    if (!group) {
        UMF_LOG_ERROR("group is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_pool_group_handle_t created = umf_handle_new(sizeof(*created), &group_kind);
    if (!created) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    atomic_init(&created->quota.max, limit);
    *group = created;
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfPoolGroupDestroy(umf_pool_group_handle_t group) {
    if (!group) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_handle_check(group, &group_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t pools = atomic_load_explicit(&group->pools, memory_order_relaxed);
    if (pools) {
        UMF_LOG_ERROR("%zu pools are still in the group %p: destroy or remove them first", pools,
                      (void *)group);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_handle_delete(group, sizeof(*group), &group_kind, __func__);
}

UMF_API_EXT_1_3 umf_result_t umfPoolGroupSetLimit(umf_pool_group_handle_t group, size_t limit) {
    if (!umf_handle_check(group, &group_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    atomic_store_explicit(&group->quota.max, limit, memory_order_relaxed);
    if (atomic_load_explicit(&group->quota.used, memory_order_relaxed) > limit) {
        umf_reclaim_group(group);
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1_3 umf_result_t umfPoolGroupGetStats(umf_pool_group_handle_t group,
                                                  umf_pool_group_stats_t *stats) {
    if (!umf_handle_check(group, &group_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!stats || stats->struct_size < sizeof(*stats)) {
        UMF_LOG_ERROR("stats is %s", stats ? "smaller than umf_pool_group_stats_t" : "NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    stats->limit = umf_group_get(group, UMF_GROUP_LIMIT);
    stats->held = umf_group_get(group, UMF_GROUP_HELD);
    stats->peak = umf_group_get(group, UMF_GROUP_PEAK);
    stats->pools = atomic_load_explicit(&group->pools, memory_order_relaxed);
    return UMF_RESULT_SUCCESS;
}
