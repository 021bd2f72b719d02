/*
 * Groups: pools that share one limit on the bytes that they hold from their providers
 * (umf/reclaim.h). The memory is counted where a pool takes it from its provider and gives it back
 * (object/provider/tracked_provider.c); dormant spans count as held.
 */
#ifndef UMF_SRC_OBJECT_GROUP_H
#define UMF_SRC_OBJECT_GROUP_H

#include <umf/reclaim.h>

#include "ds/quota.h"
#include "object/object.h"
#include "system/atomic.h"

struct umf_pool_group_t {
    umf_quota_t quota;
    _Atomic(size_t) peak;
    _Atomic(size_t) pools;
};

/* NULL: the pool is in none. */
static inline umf_pool_group_handle_t umf_group_of(const umf_tracked_provider_t *tracked) {
    return atomic_load_explicit(&tracked->group, memory_order_relaxed);
}

/* Counts bytes that a pool is about to take. false: they would exceed the limit. */
UMF_COLD bool umf_group_take(umf_pool_group_handle_t group, size_t size);
/* Bytes that a pool has given back, or did not get. */
UMF_COLD void umf_group_give(umf_pool_group_handle_t group, size_t size);
/* A span that counts has another size now. */
UMF_COLD void umf_group_resize(umf_pool_group_handle_t group, size_t old, size_t size);

/* Counts the pool with this tracked provider, which is in no group, and the bytes that it holds. */
void umf_group_join(umf_tracked_provider_t *tracked, umf_pool_group_handle_t group);
/* The pool with this tracked provider, which is in a group, is no longer. */
void umf_group_leave(umf_tracked_provider_t *tracked);

typedef enum umf_group_value_t {
    UMF_GROUP_LIMIT,
    UMF_GROUP_HELD,
    UMF_GROUP_PEAK,
} umf_group_value_t;
size_t umf_group_get(const struct umf_pool_group_t *group, umf_group_value_t value);
/* 0: the pool is in no group. */
size_t umf_group_value(const struct umf_memory_pool_t *pool, umf_group_value_t value);

#endif
