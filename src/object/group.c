#include "object/group.h"

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

void umf_group_join(umf_tracked_provider_t *tracked, umf_pool_group_handle_t group) {
    umf_quota_add(&group->quota, set_group(tracked, group));
    raise_peak(group);
    atomic_fetch_add_explicit(&group->pools, 1, memory_order_relaxed);
}

void umf_group_leave(umf_tracked_provider_t *tracked) {
    umf_pool_group_handle_t group = umf_group_of(tracked);
    umf_group_give(group, set_group(tracked, NULL));
    atomic_fetch_sub_explicit(&group->pools, 1, memory_order_relaxed);
}

size_t umf_group_get(const struct umf_pool_group_t *group, umf_group_value_t value) {
    const _Atomic size_t *values[] = {
        [UMF_GROUP_LIMIT] = &group->quota.max,
        [UMF_GROUP_HELD] = &group->quota.used,
        [UMF_GROUP_PEAK] = &group->peak,
    };
    return atomic_load_explicit(values[value], memory_order_relaxed);
}

size_t umf_group_value(const struct umf_memory_pool_t *pool, umf_group_value_t value) {
    umf_pool_group_handle_t group = pool->tracked ? umf_group_of(pool->tracked) : NULL;
    return group ? umf_group_get(group, value) : 0;
}
