/* The objects of a snapshot. */
#include <string.h>

#include <umf/suspend.h>

#include "core/ctl_nodes.h"
#include "ext/record/snapshot/snapshot_own.h"
#include "reclaim/reclaim.h"

uint32_t umf_snapshot_number(const umf_snapshot_t *snapshot, const void *handle) {
    return (uint32_t)(uintptr_t)umf_hash_get(&snapshot->numbers, (uintptr_t)handle);
}

static bool is_numbered(umf_snapshot_t *snapshot, const void *handle, uint32_t number) {
    bool is_done = umf_hash_put(&snapshot->numbers, (uintptr_t)handle, (void *)(uintptr_t)number);
    snapshot->error = is_done ? snapshot->error : ENOMEM;
    return is_done;
}

static void set_name(umf_record_object_t *item, const char *name) {
    strncpy(item->name, name ? name : "", sizeof(item->name) - 1);
}

/* The number that the recording has given it, if it is in one, or a new one. 0: no memory. */
static uint32_t number_get(umf_snapshot_t *snapshot, const void *handle, uint32_t birth,
                           umf_record_object_kind_t kind) {
    uint32_t number = umf_snapshot_number(snapshot, handle);
    const umf_record_object_t *item = &umf_snapshot_object(snapshot, number)->item;
    if (number && item->kind == (uint32_t)kind && item->birth == birth) {
        return number;
    }
    number = (uint32_t)snapshot->objects.count;
    umf_snapshot_need(snapshot, umf_items_add(&snapshot->objects));
    return snapshot->error == 0 && is_numbered(snapshot, handle, number) ? number : 0;
}

/* NULL: no memory. */
static umf_snapshot_object_t *object_add(umf_snapshot_t *snapshot, const void *handle,
                                         uint32_t birth, umf_record_object_kind_t kind,
                                         uint32_t *number) {
    *number = number_get(snapshot, handle, birth, kind);
    umf_snapshot_object_t *object = *number ? umf_snapshot_object(snapshot, *number) : NULL;
    if (!object) {
        return NULL;
    }
    object->is_visited = true;
    object->item = (umf_record_object_t){
        .kind = (uint32_t)kind,
        .birth = birth,
        .handle = (uintptr_t)handle,
        .live = UMF_RECORD_UNKNOWN,
        .live_count = UMF_RECORD_UNKNOWN,
        .held = UMF_RECORD_UNKNOWN,
        .peak = UMF_RECORD_UNKNOWN,
    };
    return object;
}

/* --- providers --- */

static uint64_t provider_counter(umf_memory_provider_handle_t provider, const char *path, ...) {
    size_t value = 0;
    va_list args;
    va_start(args, path);
    umf_result_t result = provider->ops.ext_ctl
                              ? provider->ops.ext_ctl(provider->self, CTL_QUERY_PROGRAMMATIC, path,
                                                      &value, sizeof(value), CTL_QUERY_READ, args)
                              : UMF_RESULT_ERROR_NOT_SUPPORTED;
    va_end(args);
    return result == UMF_RESULT_SUCCESS ? value : UMF_RECORD_UNKNOWN;
}

/* A pool of the provider is being visited, so the provider stays. Of tables of users
 * only the name is called: the contract allows no other operation at any time. */
static uint32_t provider_add(umf_snapshot_t *snapshot, umf_memory_provider_handle_t provider) {
    uint32_t number = umf_snapshot_number(snapshot, provider);
    const char *name = NULL;
    if (number && umf_snapshot_object(snapshot, number)->is_visited) {
        return number;
    }
    umf_snapshot_object_t *object =
        object_add(snapshot, provider, provider->birth, UMF_RECORD_OBJECT_PROVIDER, &number);
    if (!object) {
        return 0;
    }
    if (provider->ops.get_name(provider->self, &name) == UMF_RESULT_SUCCESS) {
        set_name(&object->item, name);
    }
    if (provider->kind) {
        object->item.held = provider_counter(provider, "stats.allocated_memory");
        object->item.peak = provider_counter(provider, "stats.peak_memory");
    }
    return number;
}

/* --- pools --- */

static void pool_away(umf_memory_pool_handle_t pool, umf_record_object_t *item) {
    umf_residency_t residency = UMF_RESIDENCY_INIT;
    if (umf_pool_is_suspended(pool) &&
        umfPoolGetResidency(pool, &residency) == UMF_RESULT_SUCCESS &&
        residency.state != UMF_SUSPEND_STATE_RESIDENT) {
        item->flags |= UMF_RECORD_OBJECT_IS_ASLEEP;
        item->away = residency.reserved - residency.resident;
    }
}

/* The sets of the in-tree pools that a user pool calls count as its own. */
static void pool_sets(umf_snapshot_t *snapshot, umf_memory_pool_handle_t pool, uint32_t number) {
    umf_tracked_provider_t *tracked = pool->tracked;
    is_numbered(snapshot, &tracked->spans, number);
    umf_lock(&tracked->spans.lock);
    for (umf_tracked_provider_t *inner = tracked->inner; inner; inner = inner->next) {
        is_numbered(snapshot, &inner->spans, number);
    }
    umf_unlock(&tracked->spans.lock);
}

static bool pool_add(umf_memory_pool_handle_t pool, void *arg) {
    umf_snapshot_t *snapshot = arg;
    uint32_t parent = provider_add(snapshot, pool->provider->root);
    uint32_t number;
    umf_snapshot_object_t *object =
        object_add(snapshot, pool, pool->birth, UMF_RECORD_OBJECT_POOL, &number);
    const char *name = NULL;
    if (!object) {
        return false;
    }
    if (pool->ops.get_name(pool->self, &name) == UMF_RESULT_SUCCESS) {
        set_name(&object->item, name);
    }
    object->index = pool->index;
    object->item.parent = parent;
    object->item.live_count = umf_pool_alloc_count(pool);
    pool_away(pool, &object->item);
    if (pool->tracked) {
        object->item.held = 0;
        object->item.live = 0;
        object->is_known = pool->fast && pool->fast->walk;
        pool_sets(snapshot, pool, number);
    }
    return snapshot->error == 0;
}

void umf_snapshot_objects(umf_snapshot_t *snapshot) {
    umf_snapshot_need(snapshot, umf_items_add(&snapshot->objects));
    if (snapshot->error == 0 && snapshot->what == UMF_SNAPSHOT_ALL) {
        umf_snapshot_recording(snapshot);
    }
    if (snapshot->error == 0) {
        umf_reclaim_each(pool_add, snapshot);
    }
}
