#include "core/group.h"

#include "base/log.h"
#include "core/reclaim.h"
#include "ds/quota.h"

static const umf_handle_kind_t group_kind = {"an object of umfPoolGroupCreate"};

struct umf_pool_group_t {
    umf_quota_t quota;
    _Atomic size_t peak;
    _Atomic size_t pools;
};

/* --- counting --------------------------------------------------------------------------------- */

static void raise_peak(umf_pool_group_handle_t group) {
    size_t held = atomic_load_explicit(&group->quota.used, memory_order_relaxed);
    size_t peak = atomic_load_explicit(&group->peak, memory_order_relaxed);
    while (peak < held &&
           !atomic_compare_exchange_weak_explicit(&group->peak, &peak, held, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

bool umf_group_take(umf_pool_group_handle_t group, size_t size) {
    bool is_taken = umf_quota_reserve(&group->quota, size);
    if (is_taken) {
        raise_peak(group);
    }
    return is_taken;
}

void umf_group_give(umf_pool_group_handle_t group, size_t size) {
    umf_quota_release(&group->quota, size);
}

void umf_group_resize(umf_pool_group_handle_t group, size_t old, size_t size) {
    umf_quota_add(&group->quota, size);
    umf_quota_release(&group->quota, old);
}

/* --- membership ------------------------------------------------------------------------------- */

/* Sets the group of the tracked provider, and of those that record for it. Returns their bytes. */
static size_t set_group(umf_tracked_provider_t *tracked, umf_pool_group_handle_t group) {
    size_t bytes = umf_tracked_bytes(tracked);
    umf_lock(&tracked->spans.lock);
    atomic_store_explicit(&tracked->group, group, memory_order_relaxed);
    umf_tracked_provider_t *first = tracked->inner;
    umf_unlock(&tracked->spans.lock);
    for (umf_tracked_provider_t *inner = first; inner; inner = inner->next) {
        bytes += set_group(inner, group);
    }
    return bytes;
}

void umf_group_leave(umf_tracked_provider_t *tracked) {
    umf_pool_group_handle_t group = umf_group_of(tracked);
    umf_group_give(group, set_group(tracked, NULL));
    atomic_fetch_sub_explicit(&group->pools, 1, memory_order_relaxed);
}

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

UMF_API_EXT_1 umf_result_t umfPoolGroupAdd(umf_pool_group_handle_t group,
                                           umf_memory_pool_handle_t pool) {
    umf_result_t result = check_add(group, pool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_reclaim_end(pool);
    umf_quota_add(&group->quota, set_group(pool->tracked, group));
    umf_reclaim_begin(pool);
    raise_peak(group);
    atomic_fetch_add_explicit(&group->pools, 1, memory_order_relaxed);
    return UMF_RESULT_SUCCESS;
}

UMF_API_EXT_1 umf_result_t umfPoolGroupRemove(umf_pool_group_handle_t group,
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

/* --- groups ----------------------------------------------------------------------------------- */

UMF_API_EXT_1 umf_result_t umfPoolGroupCreate(size_t limit, umf_pool_group_handle_t *group) {
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

UMF_API_EXT_1 umf_result_t umfPoolGroupDestroy(umf_pool_group_handle_t group) {
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

UMF_API_EXT_1 umf_result_t umfPoolGroupSetLimit(umf_pool_group_handle_t group, size_t limit) {
    if (!umf_handle_check(group, &group_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    atomic_store_explicit(&group->quota.max, limit, memory_order_relaxed);
    if (atomic_load_explicit(&group->quota.used, memory_order_relaxed) > limit) {
        umf_reclaim_group(group);
    }
    return UMF_RESULT_SUCCESS;
}

static size_t value_of(const struct umf_pool_group_t *group, umf_group_value_t value) {
    const _Atomic size_t *values[] = {
        [UMF_GROUP_LIMIT] = &group->quota.max,
        [UMF_GROUP_HELD] = &group->quota.used,
        [UMF_GROUP_PEAK] = &group->peak,
    };
    return atomic_load_explicit(values[value], memory_order_relaxed);
}

size_t umf_group_value(const struct umf_memory_pool_t *pool, umf_group_value_t value) {
    umf_pool_group_handle_t group = pool->tracked ? umf_group_of(pool->tracked) : NULL;
    return group ? value_of(group, value) : 0;
}

UMF_API_EXT_1 umf_result_t umfPoolGroupGetStats(umf_pool_group_handle_t group,
                                                umf_pool_group_stats_t *stats) {
    if (!umf_handle_check(group, &group_kind, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!stats || stats->struct_size < sizeof(*stats)) {
        UMF_LOG_ERROR("stats is %s", stats ? "smaller than umf_pool_group_stats_t" : "NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    stats->limit = value_of(group, UMF_GROUP_LIMIT);
    stats->held = value_of(group, UMF_GROUP_HELD);
    stats->peak = value_of(group, UMF_GROUP_PEAK);
    stats->pools = atomic_load_explicit(&group->pools, memory_order_relaxed);
    return UMF_RESULT_SUCCESS;
}
