/* The life of a pool, its name and its tag. */
#include <umf/memory_pool_ext.h>
#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "cache/magazine.h"
#include "core/ctl_nodes.h"
#include "core/pool_calls.h"
#include "core/registry.h"
#include "ctl/ctl.h"
#include "object/event.h"
#include "object/group.h"
#include "object/listener.h"
#include "object/names.h"
#include "object/object.h"
#include "object/tables.h"
#include "reclaim/pressure.h"
#include "reclaim/reclaim.h"
#include "system/annotate.h"

const umf_handle_kind_t umf_handle_pool = {"a pool"};

umf_result_t umf_pool_null_argument(const char *name) {
    UMF_LOG_ERROR("%s is NULL", name);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

uint32_t umf_pool_highest_index(void) {
    return atomic_load_explicit(&umf_pool_highest, memory_order_acquire);
}

void umf_core_teardown(void) {
    umf_pressure_teardown();
    uint32_t last = umf_pool_highest_index();
    for (uint32_t i = 1; i <= last; i++) {
        atomic_store_explicit(&umf_pool_table[i], NULL, memory_order_release);
    }
}

static void list_pool(umf_memory_pool_handle_t pool) {
    uint32_t highest = atomic_load_explicit(&umf_pool_highest, memory_order_relaxed);
    while (highest < pool->index &&
           !atomic_compare_exchange_weak_explicit(&umf_pool_highest, &highest, pool->index,
                                                  memory_order_release, memory_order_relaxed)) {
    }
    atomic_store_explicit(&umf_pool_table[pool->index], pool, memory_order_release);
}

static const umf_small_sizes_t no_small_sizes;

/* No other thread has the pool yet. */
static void set_calls(umf_memory_pool_handle_t pool, const umf_layer_calls_t *calls) {
    for (size_t rank = 0; rank < UMF_COUNT_OF(pool->calls); rank++) {
        pool->calls[rank] = *calls;
    }
}

umf_result_t umf_pool_ctl(umf_memory_pool_handle_t pool, umf_ctl_query_source_t source,
                          const char *path, void *arg, size_t size, umf_ctl_query_type_t type,
                          va_list args) {
    if (!pool->ops.ext_ctl) {
        return UMF_RESULT_ERROR_INVALID_CTL_PATH;
    }
    return pool->ops.ext_ctl(pool->self, source, path, arg, size, type, args);
}

static umf_result_t pool_ctl_list(umf_memory_pool_handle_t pool, umf_ctl_query_source_t source,
                                  const char *path, void *arg, size_t size,
                                  umf_ctl_query_type_t type, ...) {
    va_list args;
    va_start(args, type);
    umf_result_t result = umf_pool_ctl(pool, source, path, arg, size, type, args);
    va_end(args);
    return result;
}

static umf_result_t write_default(void *object, umf_ctl_query_source_t source, const char *path,
                                  void *arg, size_t size) {
    return pool_ctl_list(object, source, path, arg, size, CTL_QUERY_WRITE);
}

static bool zeroes_on_free(umf_memory_pool_handle_t pool) {
    return pool->fast && pool->fast->zeroes_on_free && pool->fast->zeroes_on_free(pool->self);
}

/* A device may not be called at any moment of a free, as in a capture. */
static umf_result_t check_zeroes_on_free(umf_memory_pool_handle_t pool) {
    const umf_memory_provider_ext_ops_t *ext = pool->provider->ext;
    if (!zeroes_on_free(pool) || (pool->tracked && !ext->queue_mark)) {
        return UMF_RESULT_SUCCESS;
    }
    UMF_LOG_ERROR("zero_on_free needs %s",
                  pool->tracked
                      ? "memory of the host, and the provider has queues of a device: use "
                        "one of the kinds os, linux_vmm, file or fixed"
                      : "a pool that tracks its memory: create it without "
                        "UMF_POOL_CREATE_FLAG_DISABLE_TRACKING");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Initializes a pool and applies its settings. If a later step fails, an in-tree pool is finalized;
 * a user pool cleans up itself, as the interface requires. */
static umf_result_t pool_start(umf_memory_pool_handle_t pool, const void *params,
                               const char **name) {
    umf_memory_provider_handle_t provider = pool->tracked ? pool->tracked : pool->provider;
    umf_result_t result = pool->ops.initialize(provider, params, &pool->self);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = pool->ops.get_name(pool->self, name);
    if (result == UMF_RESULT_SUCCESS) {
        if (*name) {
            umf_ctl_defaults_apply(&umf_ctl_pool_defaults, *name, write_default, pool);
        }
        result = pool_ctl_list(pool, CTL_QUERY_PROGRAMMATIC, "post_initialize", NULL, 0,
                               CTL_QUERY_RUNNABLE);
        if (result == UMF_RESULT_ERROR_INVALID_CTL_PATH) {
            result = UMF_RESULT_SUCCESS;
        }
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = check_zeroes_on_free(pool);
    }
    if (result != UMF_RESULT_SUCCESS && pool->fast) {
        pool->ops.finalize(pool->self);
    }
    return result;
}

/* Lets the core serve what it can without entering an in-tree pool. The core makes no annotations
 * for sanitizers. */
static void serve_by_core(umf_memory_pool_handle_t pool, umf_layer_calls_t *calls) {
    const umf_pool_fast_ops_t *fast = pool->fast;
    const umf_small_sizes_t *small = fast->small ? fast->small(pool->self) : NULL;
    if (small && pool->index < UMF_THREAD_SLOT_COUNT_MIN) {
        pool->small = small;
        pool->small_end = UMF_SMALL_MAX + 1;
        pool->small_index = pool->index;
    }
    pool->paged_key = umf_map_paged_key(pool->index);
    if (fast->try_free) {
        calls->try_free = fast->try_free;
    }
    if (fast->slabs) {
        pool->slabs = fast->slabs(pool->self);
        pool->usable_size = umf_pool_usable_size_by_class_offset;
    }
}

static umf_result_t pool_prepare(umf_memory_pool_handle_t pool) {
    umf_result_t result = umf_handle_begin(pool, &umf_handle_pool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = umf_thread_slot_index_get(&pool->index);
    if (result != UMF_RESULT_SUCCESS) {
        goto handle;
    }
    if (!(pool->flags & UMF_POOL_CREATE_FLAG_DISABLE_TRACKING)) {
        result = umf_tracked_create(pool->provider, pool->index, &pool->tracked);
        if (result != UMF_RESULT_SUCCESS) {
            goto index;
        }
        pool->tracked->is_direct = pool->fast != NULL;
    }
    if (!pool->fast) {
        /* The counters have an index of their own. A free by map entry must find no magazines under
         * the index of the pool. */
        result = umf_thread_slot_owner_init(&pool->counters, 0, sizeof(umf_pool_counter_t),
                                            umf_pool_counter_retire);
        if (result != UMF_RESULT_SUCCESS) {
            goto tracked;
        }
        uint32_t index = pool->counters.index;
        pool->counter_index = index < UMF_THREAD_SLOT_COUNT_MIN ? index : 0;
    }
    atomic_fetch_add_explicit(&pool->provider->root->pools, 1, memory_order_relaxed);
    return UMF_RESULT_SUCCESS;

tracked:
    if (pool->tracked) {
        umf_tracked_destroy(pool->tracked);
    }
index:
    umf_thread_slot_index_put(pool->index);
handle:
    umf_handle_end(pool, &umf_handle_pool, __func__);
    return result;
}

static void pool_free(umf_memory_pool_handle_t pool) {
    umf_registry_pool_unuse(pool->kind);
    umf_meta_free(pool, sizeof(*pool));
}

static UMF_COLD void *destroyed(umf_memory_pool_handle_t pool, const char *function) {
    umf_handle_refuse(pool, umf_handle_pool.name, function);
    return NULL;
}

static void *malloc_of_destroyed(umf_memory_pool_handle_t pool, size_t size) {
    (void)size;
    return destroyed(pool, "umfPoolMalloc");
}

static void *aligned_malloc_of_destroyed(umf_memory_pool_handle_t pool, size_t size,
                                         size_t alignment) {
    (void)size, (void)alignment;
    return destroyed(pool, "umfPoolAlignedMalloc");
}

static void *calloc_of_destroyed(umf_memory_pool_handle_t pool, size_t num, size_t size) {
    (void)num, (void)size;
    return destroyed(pool, "umfPoolCalloc");
}

static void *realloc_of_destroyed(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    (void)ptr, (void)size;
    return destroyed(pool, "umfPoolRealloc");
}

static umf_result_t free_of_destroyed(void *pool, void *ptr) {
    (void)ptr;
    destroyed(pool, "umfPoolFree");
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t usable_size_of_destroyed(umf_memory_pool_handle_t pool, const void *ptr,
                                             size_t *size) {
    (void)ptr, (void)size;
    destroyed(pool, "umfPoolMallocUsableSize");
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* Allocations and frees do not look the handle up, so the object refuses them, as long as it stays.
 * No map entry has its index, and it leads to no magazine. */
static void pool_retire(umf_memory_pool_handle_t pool) {
    umf_registry_pool_unuse(pool->kind);
    *pool = (struct umf_memory_pool_t){
        .small = &no_small_sizes,
        .index = UINT32_MAX,
        .paged_key = UINT32_MAX,
        .self = pool,
        .calls[0] = {.malloc = malloc_of_destroyed,
                     .aligned_malloc = aligned_malloc_of_destroyed,
                     .calloc = calloc_of_destroyed,
                     .realloc = realloc_of_destroyed,
                     .try_free = umf_pool_try_free_none},
        .ops.free = free_of_destroyed,
        .usable_size = usable_size_of_destroyed,
    };
    umf_meta_free_late(pool, sizeof(*pool));
}

/* Ends a pool whose handle is no longer valid. */
static void pool_dispose(umf_memory_pool_handle_t pool) {
    if (pool->tracked) {
        if (umf_group_of(pool->tracked)) {
            umf_group_leave(pool->tracked);
        }
        umf_tracked_destroy(pool->tracked);
    }
    atomic_store_explicit(&umf_pool_table[pool->index], NULL, memory_order_release);
    if (!pool->fast) {
        umf_thread_slot_owner_fini(&pool->counters);
    }
    umf_thread_slot_index_put(pool->index);
    atomic_fetch_sub_explicit(&pool->provider->root->pools, 1, memory_order_release);
    pool_retire(pool);
}

static umf_result_t check_create(const umf_memory_pool_ops_t *ops,
                                 umf_memory_provider_handle_t provider,
                                 umf_pool_create_flags_t flags, umf_memory_pool_handle_t *out) {
    const umf_pool_create_flags_t known =
        UMF_POOL_CREATE_FLAG_OWN_PROVIDER | UMF_POOL_CREATE_FLAG_DISABLE_TRACKING;
    if (!ops || !out) {
        return umf_pool_null_argument(ops ? "hPool" : "ops");
    }
    if (!umf_provider_check(provider, "umfPoolCreate")) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (flags & ~known) {
        UMF_LOG_ERROR("unknown flags 0x%x", flags & ~known);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_is_started()) {
        UMF_LOG_ERROR("the library has been torn down; call umfInit first");
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfPoolCreate(const umf_memory_pool_ops_t *ops,
                                       umf_memory_provider_handle_t provider, const void *params,
                                       umf_pool_create_flags_t flags,
                                       umf_memory_pool_handle_t *hPool) {
    umf_result_t result = check_create(ops, provider, flags, hPool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_memory_pool_handle_t pool = umf_meta_alloc(sizeof(*pool));
    if (!pool) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    pool->small = &no_small_sizes;
    pool->fast = umf_registry_pool_fast_ops(ops);
    pool->kind = pool->fast ? NULL : umf_registry_pool_use(ops);
    umf_layer_calls_t calls = pool->fast ? umf_pool_calls : umf_pool_calls_counted;
    set_calls(pool, &calls);
    pool->free_self = pool;
    pool->usable_size = umf_pool_usable_size;
    pool->provider = provider;
    pool->birth = umf_birth_next();
    pool->flags = flags;
    if (pool->fast) {
        const umf_pool_variant_t *variant =
            pool->fast->variant ? pool->fast->variant(params) : NULL;
        pool->fast = variant ? variant->fast : pool->fast;
        pool->ops = variant ? *variant->ops : *ops; /* complete, and of the current version */
    } else {
        result = umf_pool_ops_copy(&pool->ops, ops);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = pool_prepare(pool);
    }
    if (result != UMF_RESULT_SUCCESS) {
        pool_free(pool);
        return result;
    }
    /* Listed before it starts, so that pointers that `initialize` allocates can be looked up. */
    list_pool(pool);
    const char *name = NULL;
    result = pool_start(pool, params, &name);
    if (result != UMF_RESULT_SUCCESS) {
        umf_handle_end(pool, &umf_handle_pool, __func__);
        pool_dispose(pool);
        return result;
    }
    if (pool->fast && pool->tracked) {
        calls.free_at = pool->fast->free_at;
        pool->free_self = pool->self;
        if (!UMF_IS_ASAN) { /* under ASan every call enters the pool, which makes the annotations */
            serve_by_core(pool, &calls);
        }
        set_calls(pool, &calls);
    }
    if (zeroes_on_free(pool)) {
        umf_layer_push(pool, &umf_layer_zero);
    }
    if (name) {
        umf_names_add(name, pool);
    }
    umf_reclaim_begin(pool);
    UMF_EVENT(.kind = UMF_RECORD_CREATE, .pool = pool);
    umf_core_pool_begins(pool);
    *hPool = pool;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfPoolDestroy(umf_memory_pool_handle_t hPool) {
    if (!hPool) {
        return umf_pool_null_argument("pool");
    }
    if (!umf_is_started()) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    if (!umf_handle_end(hPool, &umf_handle_pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_reclaim_end(hPool);
    UMF_EVENT(.kind = UMF_RECORD_DESTROY, .pool = hPool);
    /* First the pool can no longer be found by name, then its pinned objects go back to it. */
    umf_names_remove(hPool);
    umf_pin_drop(hPool);
    umf_provider_free_batch(hPool->provider, true);
    umf_layers_close(hPool);
    umf_result_t result = hPool->ops.finalize(hPool->self);
    umf_provider_free_batch(hPool->provider, false);
    umf_layers_end(hPool);
    umf_core_pool_ends(hPool);
    size_t left = hPool->tracked ? umf_tracked_span_count(hPool->tracked) : 0;
    if (left) {
        UMF_LOG_WARN("%zu provider allocations of the destroyed pool %p were not given back", left,
                     (void *)hPool);
    }
    umf_provider_drop_reusable(hPool->provider, false);
    umf_memory_provider_handle_t owned =
        hPool->flags & UMF_POOL_CREATE_FLAG_OWN_PROVIDER ? hPool->provider : NULL;
    pool_dispose(hPool);
    umf_result_t owned_result = umfMemoryProviderDestroy(owned);
    return result != UMF_RESULT_SUCCESS ? result : owned_result;
}

UMF_API_1_0 umf_result_t umfPoolGetName(umf_memory_pool_handle_t pool, const char **name) {
    if (!umf_pool_check(pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!name) {
        return umf_pool_null_argument("name");
    }
    return pool->ops.get_name(pool->self, name);
}

UMF_API_1_0 umf_result_t umfPoolSetTag(umf_memory_pool_handle_t hPool, void *tag, void **oldTag) {
    if (!umf_pool_check(hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    void *old = atomic_exchange(&hPool->tag, tag);
    if (oldTag) {
        *oldTag = old;
    }
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfPoolGetTag(umf_memory_pool_handle_t hPool, void **tag) {
    if (!umf_pool_check(hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!tag) {
        return umf_pool_null_argument("tag");
    }
    *tag = atomic_load(&hPool->tag);
    return UMF_RESULT_SUCCESS;
}
