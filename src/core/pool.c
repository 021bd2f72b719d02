#include <string.h>

#include <umf/memory_pool_ext.h>
#include <umf/result.h>

#include "base/log.h"
#include "base/meta.h"
#include "cache/magazine.h"
#include "core/ctl_nodes.h"
#include "core/registry.h"
#include "ctl/ctl.h"
#include "object/group.h"
#include "object/listener.h"
#include "object/names.h"
#include "object/object.h"
#include "object/recorded.h"
#include "object/tables.h"
#include "reclaim/pressure.h"
#include "reclaim/reclaim.h"
#include "system/annotate.h"
#include "system/keep_errno.h"

const umf_handle_kind_t umf_handle_pool = {"a pool"};

static UMF_COLD umf_result_t null_argument(const char *name) {
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

/* --- counting for pools that do not count themselves --- */

typedef struct pool_counter_t {
    umf_thread_slot_t head;
    int64_t count; /* Sync: atomic, relaxed: only its thread writes */
} pool_counter_t;

/* Does nothing for pools that count themselves. */
static UMF_COLD void count_slow(umf_memory_pool_handle_t pool, int64_t change) {
    if (pool->fast) {
        return;
    }
    pool_counter_t *counter = (pool_counter_t *)umf_thread_slot_make(&pool->counters);
    if (counter) {
        __atomic_store_n(&counter->count, counter->count + change, __ATOMIC_RELAXED);
    } else { /* no memory for a counter, or the thread is ending */
        atomic_fetch_add_explicit(&pool->retired_count, change, memory_order_relaxed);
    }
}

/* false: the caller must use count_slow. Hot. */
static inline bool try_count(umf_memory_pool_handle_t pool, int64_t change) {
    pool_counter_t *counter = (pool_counter_t *)umf_thread_slot_get_low(pool->counter_index);
    if (umf_unlikely(!counter->head.owner)) {
        return false;
    }
    __atomic_store_n(&counter->count, counter->count + change, __ATOMIC_RELAXED);
    return true;
}

static void count(umf_memory_pool_handle_t pool, int64_t change) {
    if (umf_unlikely(!try_count(pool, change))) {
        count_slow(pool, change);
    }
}

static void counter_retire(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    umf_memory_pool_handle_t pool = UMF_CONTAINER_OF(owner, struct umf_memory_pool_t, counters);
    atomic_fetch_add_explicit(&pool->retired_count, ((pool_counter_t *)block)->count,
                              memory_order_relaxed);
}

static void counter_sum(umf_thread_slot_t *block, void *sum) {
    *(int64_t *)sum += __atomic_load_n(&((pool_counter_t *)block)->count, __ATOMIC_RELAXED);
}

size_t umf_pool_alloc_count(umf_memory_pool_handle_t pool) {
    size_t aside = atomic_load_explicit(&pool->aside, memory_order_relaxed), count;
    if (pool->fast) {
        count = pool->fast->alloc_count(pool->self);
    } else {
        int64_t sum = atomic_load_explicit(&pool->retired_count, memory_order_relaxed);
        umf_thread_slot_each(&pool->counters, counter_sum, &sum);
        count = sum > 0 ? (size_t)sum : 0;
    }
    return count > aside ? count - aside : 0;
}

size_t umf_pool_thread_cache(umf_memory_pool_handle_t pool) {
    return pool->fast && pool->fast->thread_cache ? pool->fast->thread_cache(pool->self) : 0;
}

/* --- functions of a pool that the hot functions below call ---
 *
 * In-tree pools count and check on their own. Calls of a user pool are counted here. */

/* Operations never change. The atomic load makes compilers load the function first, which saves a
 * move in the calls below. */
#define OP(pool, operation) __atomic_load_n(&(pool)->ops.operation, __ATOMIC_RELAXED)
/* Calls enter here. Layers come and go, so the load is atomic; it costs no more than a plain one.
 */
#define CALL(pool, function) __atomic_load_n(&(pool)->calls[0].function, __ATOMIC_RELAXED)
#define FREE_AT(pool, ptr, entry) CALL(pool, free_at)((pool)->free_self, (ptr), (entry))

static void *malloc_by_pool(umf_memory_pool_handle_t pool, size_t size) {
    return OP(pool, malloc)(pool->self, size);
}

static void *aligned_malloc_by_pool(umf_memory_pool_handle_t pool, size_t size, size_t alignment) {
    return OP(pool, aligned_malloc)(pool->self, size, alignment);
}

static void *calloc_by_pool(umf_memory_pool_handle_t pool, size_t num, size_t size) {
    return OP(pool, calloc)(pool->self, num, size);
}

static void *realloc_by_pool(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    return OP(pool, realloc)(pool->self, ptr, size);
}

static umf_result_t last_error_by_pool(umf_memory_pool_handle_t pool) {
    return OP(pool, get_last_allocation_error)(pool->self);
}

/* A function of its own that returns its caller's result, so that the caller needs no stack frame
 * to keep it. */
static UMF_COLD void *count_malloc_slow(umf_memory_pool_handle_t pool, void *ptr) {
    count_slow(pool, 1);
    return ptr;
}

static inline void *counted(umf_memory_pool_handle_t pool, void *ptr) {
    return !ptr || umf_likely(try_count(pool, 1)) ? ptr : count_malloc_slow(pool, ptr);
}

static void *malloc_counted(umf_memory_pool_handle_t pool, size_t size) {
    return counted(pool, malloc_by_pool(pool, size));
}

static void *aligned_malloc_counted(umf_memory_pool_handle_t pool, size_t size, size_t alignment) {
    return counted(pool, aligned_malloc_by_pool(pool, size, alignment));
}

static void *calloc_counted(umf_memory_pool_handle_t pool, size_t num, size_t size) {
    return counted(pool, calloc_by_pool(pool, num, size));
}

static void *realloc_counted(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    void *moved = realloc_by_pool(pool, ptr, size);
    if (!ptr && moved) {
        count(pool, 1);
    } else if (ptr && !moved && size == 0) {
        count(pool, -1);
    }
    return moved;
}

static UMF_COLD umf_result_t count_free_slow(umf_memory_pool_handle_t pool) {
    count_slow(pool, -1);
    return UMF_RESULT_SUCCESS;
}

/* `ptr` must not be NULL. The entry is not used. */
static umf_result_t free_counted(void *handle, void *ptr, umf_map_entry_t entry) {
    umf_memory_pool_handle_t pool = handle;
    (void)entry;
    umf_result_t result = pool->ops.free(pool->self, ptr);
    return result != UMF_RESULT_SUCCESS || umf_likely(try_count(pool, -1)) ? result
                                                                           : count_free_slow(pool);
}

static __attribute__((noinline)) umf_result_t usable_size_by_pool(umf_memory_pool_handle_t pool,
                                                                  const void *ptr, size_t *size) {
    return pool->ops.malloc_usable_size(pool->self, ptr, size);
}

/* If a chunk of an aligned slab starts at `ptr`, the map entry gives its size. In all other cases
 * the pool has the size. Hot. */
static umf_result_t usable_size_by_class_offset(umf_memory_pool_handle_t pool, const void *ptr,
                                                size_t *size) {
    umf_map_entry_t entry;
    if (umf_unlikely(!size) || umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry)) ||
        umf_unlikely(umf_map_entry_pool(entry) != pool->index)) {
        return usable_size_by_pool(pool, ptr, size);
    }
    const umf_magazine_slab_t *slab =
        umf_magazine_slab_at(pool->slabs, umf_map_entry_class_offset(entry));
    if (umf_unlikely(!umf_magazine_slab_starts(slab, (uintptr_t)ptr, size))) {
        return usable_size_by_pool(pool, ptr, size);
    }
    return UMF_RESULT_SUCCESS;
}

/* --- create --- */

static const umf_small_sizes_t no_small_sizes;

static bool try_free_none(void *pool, void *ptr, umf_map_entry_t entry) {
    (void)pool, (void)ptr, (void)entry;
    return false;
}

/* The calls of a pool without layers. */
static const umf_layer_calls_t calls_by_pool = {
    .malloc = malloc_by_pool,
    .aligned_malloc = aligned_malloc_by_pool,
    .calloc = calloc_by_pool,
    .realloc = realloc_by_pool,
    .free_at = free_counted,
    .try_free = try_free_none,
    .last_error = last_error_by_pool,
};
static const umf_layer_calls_t calls_counted = {
    .malloc = malloc_counted,
    .aligned_malloc = aligned_malloc_counted,
    .calloc = calloc_counted,
    .realloc = realloc_counted,
    .free_at = free_counted,
    .try_free = try_free_none,
    .last_error = last_error_by_pool,
};

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
        pool->small_max = UMF_SMALL_MAX;
        pool->small_index = pool->index;
    }
    if (fast->try_free) {
        calls->try_free = fast->try_free;
    }
    if (fast->slabs) {
        pool->slabs = fast->slabs(pool->self);
        pool->usable_size = usable_size_by_class_offset;
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
        result =
            umf_thread_slot_owner_init(&pool->counters, 0, sizeof(pool_counter_t), counter_retire);
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
        .self = pool,
        .calls[0] = {.malloc = malloc_of_destroyed,
                     .aligned_malloc = aligned_malloc_of_destroyed,
                     .calloc = calloc_of_destroyed,
                     .realloc = realloc_of_destroyed,
                     .try_free = try_free_none},
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
        return null_argument(ops ? "hPool" : "ops");
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
    umf_layer_calls_t calls = pool->fast ? calls_by_pool : calls_counted;
    set_calls(pool, &calls);
    pool->free_self = pool;
    pool->usable_size = usable_size_by_pool;
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
        return null_argument("pool");
    }
    if (!umf_is_started()) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    if (!umf_handle_end(hPool, &umf_handle_pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_reclaim_end(hPool);
    UMF_EVENT(.kind = UMF_RECORD_DESTROY, .pool = hPool);
    /* First the pool can no longer be found by name, then its held objects go back to it. */
    umf_names_remove(hPool);
    umf_hold_drop(hPool);
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

/* --- allocation: hot --- */

/* Serves a small size from the calling thread's magazine. false: it is no small size, or the thread
 * has no magazine, or that is empty. Hot. */
static inline bool malloc_cached(umf_memory_pool_handle_t pool, size_t size, void **ptr) {
    if (umf_unlikely(size > pool->small_max)) {
        return false;
    }
    umf_thread_slot_enter();
    umf_thread_slot_t *cache =
        umf_thread_slot_get_low(__atomic_load_n(&pool->small_index, __ATOMIC_RELAXED));
    bool is_got = umf_magazine_try_pop(umf_magazine_at(cache, pool->small->magazine[size]), ptr);
    umf_thread_slot_leave();
    return is_got;
}

UMF_API_1_0 void *umfPoolMalloc(umf_memory_pool_handle_t hPool, size_t size) {
    void *ptr;
    if (umf_unlikely(!hPool)) {
        return NULL;
    }
    return umf_likely(malloc_cached(hPool, size, &ptr)) ? ptr : CALL(hPool, malloc)(hPool, size);
}

UMF_API_EXT_1 void *umfPoolTryMalloc(umf_memory_pool_handle_t hPool, size_t size) {
    void *ptr;
    return umf_likely(hPool != NULL) && malloc_cached(hPool, size, &ptr) ? ptr : NULL;
}

UMF_API_1_0 void *umfPoolAlignedMalloc(umf_memory_pool_handle_t hPool, size_t size,
                                       size_t alignment) {
    if (umf_unlikely(!hPool)) {
        return NULL;
    }
    return CALL(hPool, aligned_malloc)(hPool, size, alignment);
}

UMF_API_1_0 void *umfPoolCalloc(umf_memory_pool_handle_t hPool, size_t num, size_t size) {
    if (umf_unlikely(!hPool)) {
        return NULL;
    }
    return CALL(hPool, calloc)(hPool, num, size);
}

UMF_API_1_0 void *umfPoolRealloc(umf_memory_pool_handle_t hPool, void *ptr, size_t size) {
    if (umf_unlikely(!hPool)) {
        return NULL;
    }
    return CALL(hPool, realloc)(hPool, ptr, size);
}

static umf_memory_pool_handle_t pool_of_entry(umf_map_entry_t entry) {
    return atomic_load_explicit(&umf_pool_table[umf_map_entry_pool(entry)], memory_order_acquire);
}

static UMF_COLD umf_result_t free_foreign(umf_memory_pool_handle_t pool, void *ptr) {
    if (!ptr) {
        return pool->ops.free(pool->self, NULL);
    }
    umf_memory_pool_handle_t owner = pool_of_entry(umf_map_find(&umf_map_global, (uintptr_t)ptr));
    UMF_LOG_ERROR("%p does not belong to pool %p but to %s %p", ptr, (void *)pool,
                  owner ? "pool" : "none:", (void *)owner);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static UMF_COLD umf_result_t free_unknown(void *ptr) {
    UMF_LOG_ERROR("no pool has %p: it is NULL, foreign, already freed, or of an untracked pool",
                  ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* The common case: a live object, and room in the calling thread's stack. If the pool leaves the
 * check to the core, the entry's class offset selects the magazine, and its span leads to the
 * states. */
static inline bool free_cached(void *ptr, umf_map_entry_t entry) {
    size_t magazine = umf_map_entry_class_offset(entry);
    if (UMF_IS_ASAN || magazine == 0) {
        return false; /* the pool annotates, or it must check the pointer itself */
    }
    umf_thread_slot_enter();
    umf_thread_slot_t *cache = umf_thread_slot_get_low(umf_map_entry_pool(entry));
    bool is_done = umf_magazine_push_checked(umf_magazine_at(cache, magazine), ptr,
                                             umf_span_at(umf_map_entry_span(entry))->cookie);
    umf_thread_slot_leave();
    return is_done;
}

/* Frees addresses that the fast walk does not find. `pool`: the pool that must own the pointer,
 * NULL for any. The order of the arguments saves umfFree a move. */
static __attribute__((noinline)) umf_result_t free_slow(void *ptr, umf_memory_pool_handle_t pool) {
    umf_map_entry_t entry = umf_map_find(&umf_map_global, (uintptr_t)ptr);
    umf_memory_pool_handle_t owner = pool_of_entry(entry);
    if (umf_unlikely(!owner)) {
        return pool ? free_foreign(pool, ptr) : free_unknown(ptr);
    }
    if (umf_unlikely(pool && pool != owner)) {
        return free_foreign(pool, ptr);
    }
    return FREE_AT(owner, ptr, entry);
}

static umf_result_t free_unlisted(umf_memory_pool_handle_t pool, void *ptr, const void *arg) {
    (void)arg;
    return pool->fast || !ptr ? pool->ops.free(pool->self, ptr) : free_counted(pool, ptr, 0);
}

/* Frees a pointer that the map does not show as the pool's. A user pool, or a pool without
 * tracking, may still accept it. */
static __attribute__((noinline)) umf_result_t free_by_pool(umf_memory_pool_handle_t pool,
                                                           void *ptr) {
    if (pool->fast && pool->tracked) {
        return free_slow(ptr, pool);
    }
    return ptr && umf_is_recorded(pool) ? umf_recorded_free(pool, ptr, NULL, free_unlisted, NULL)
                                        : free_unlisted(pool, ptr, NULL);
}

/* Every few thousandth free is a tick. These end in the call that they are made from, so that it
 * needs no stack frame. */
static inline bool is_tick(void) {
    return umf_unlikely(--umf_thread_slot_tls.frees_left == 0);
}

static UMF_COLD void tick(void) {
    UMF_KEEP_ERRNO;
    umf_reclaim_tick();
}

static UMF_COLD umf_result_t tick_and_free(void *ptr) {
    tick();
    return umfFree(ptr);
}

static UMF_COLD umf_result_t tick_and_pool_free(umf_memory_pool_handle_t pool, void *ptr) {
    tick();
    return umfPoolFree(pool, ptr);
}

static UMF_COLD bool tick_and_try_free(umf_memory_pool_handle_t pool, void *ptr) {
    tick();
    return umfPoolTryFree(pool, ptr);
}

UMF_API_1_0 umf_result_t umfPoolFree(umf_memory_pool_handle_t hPool, void *ptr) {
    if (umf_unlikely(!hPool)) {
        return null_argument("pool");
    }
    umf_map_entry_t entry;
    if (is_tick()) {
        return tick_and_pool_free(hPool, ptr);
    }
    if (umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry)) ||
        umf_unlikely(umf_map_entry_pool(entry) != hPool->index)) {
        return free_by_pool(hPool, ptr);
    }
    if (umf_likely(free_cached(ptr, entry))) {
        return UMF_RESULT_SUCCESS;
    }
    return FREE_AT(hPool, ptr, entry);
}

UMF_API_EXT_1 bool umfPoolTryFree(umf_memory_pool_handle_t hPool, void *ptr) {
    umf_map_entry_t entry;
    if (is_tick()) {
        return tick_and_try_free(hPool, ptr);
    }
    if (umf_unlikely(!hPool) || umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry)) ||
        umf_unlikely(umf_map_entry_pool(entry) != hPool->index)) {
        return false;
    }
    return umf_map_entry_class_offset(entry) ? free_cached(ptr, entry)
                                             : CALL(hPool, try_free)(hPool->self, ptr, entry);
}

UMF_API_1_0 umf_result_t umfFree(void *ptr) {
    umf_map_entry_t entry;
    if (is_tick()) {
        return tick_and_free(ptr);
    }
    if (umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry))) {
        return free_slow(ptr, NULL);
    }
    if (umf_likely(free_cached(ptr, entry))) {
        return UMF_RESULT_SUCCESS;
    }
    umf_memory_pool_handle_t owner = pool_of_entry(entry);
    return umf_likely(owner != NULL) ? FREE_AT(owner, ptr, entry) : free_slow(ptr, NULL);
}

static __attribute__((noinline)) umf_result_t by_ptr_slow(const void *ptr,
                                                          umf_memory_pool_handle_t *pool) {
    *pool = pool_of_entry(umf_map_find(&umf_map_global, (uintptr_t)ptr));
    return *pool ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_API_1_0 umf_result_t umfPoolByPtr(const void *ptr, umf_memory_pool_handle_t *pool) {
    if (umf_unlikely(!pool)) {
        return null_argument("pool");
    }
    umf_map_entry_t entry;
    if (umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry))) {
        return by_ptr_slow(ptr, pool);
    }
    umf_memory_pool_handle_t owner = pool_of_entry(entry);
    if (umf_unlikely(!owner)) {
        return by_ptr_slow(ptr, pool);
    }
    *pool = owner;
    return UMF_RESULT_SUCCESS;
}

/* --- the rest --- */

UMF_API_1_0 umf_result_t umfPoolMallocUsableSize(umf_memory_pool_handle_t hPool, const void *ptr,
                                                 size_t *size) {
    return umf_likely(hPool != NULL) ? hPool->usable_size(hPool, ptr, size) : null_argument("pool");
}

UMF_API_1_0 umf_result_t umfPoolGetLastAllocationError(umf_memory_pool_handle_t hPool) {
    if (!umf_pool_check(hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return CALL(hPool, last_error)(hPool);
}

UMF_API_1_0 umf_result_t umfPoolGetMemoryProvider(umf_memory_pool_handle_t hPool,
                                                  umf_memory_provider_handle_t *hProvider) {
    if (!umf_pool_check(hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!hProvider) {
        return null_argument("hProvider");
    }
    *hProvider = hPool->provider;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfPoolGetName(umf_memory_pool_handle_t pool, const char **name) {
    if (!umf_pool_check(pool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!name) {
        return null_argument("name");
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
        return null_argument("tag");
    }
    *tag = atomic_load(&hPool->tag);
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_pool_free_at(umf_memory_pool_handle_t pool, void *ptr) {
    umf_map_entry_t entry = umf_map_find(&umf_map_global, (uintptr_t)ptr);
    if (umf_unlikely(pool_of_entry(entry) != pool)) {
        return free_foreign(pool, ptr); /* another thread has freed it as well */
    }
    uint32_t before = umf_recorded_enter(pool);
    umf_result_t result = FREE_AT(pool, ptr, entry);
    umf_recorded_leave(before);
    return result;
}

static size_t held(umf_memory_pool_handle_t pool) {
    return pool->tracked ? umf_tracked_bytes(pool->tracked) : 0;
}

static void free_pending(umf_memory_pool_handle_t pool, bool waits) {
    if (pool->fast && pool->fast->queued) {
        pool->fast->queued->pending(pool->self, waits);
    }
    umf_provider_free_pending(pool->provider, waits);
}

umf_result_t umf_pool_trim(umf_memory_pool_handle_t pool, size_t keep, bool waits) {
    size_t before = umf_event_is_enabled() ? held(pool) : 0;
    umf_provider_free_batch(pool->provider, true);
    umf_layers_give_back(pool, waits);
    umf_result_t result = pool->ops.ext_trim_memory ? pool->ops.ext_trim_memory(pool->self, keep)
                                                    : UMF_RESULT_ERROR_NOT_SUPPORTED;
    umf_provider_free_batch(pool->provider, false);
    free_pending(pool, waits);
    UMF_EVENT(.kind = UMF_RECORD_TRIM, .pool = pool, .address = before, .size = held(pool));
    return result;
}

UMF_API_1_1 umf_result_t umfPoolTrimMemory(umf_memory_pool_handle_t hPool, size_t minBytesToKeep) {
    if (!umf_pool_check(hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_pool_trim(hPool, minBytesToKeep, false);
    free_pending(hPool, true);
    umf_provider_drop_reusable(hPool->provider, false);
    umf_meta_trim();
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_DEBUG("pool %p answers: %s", (void *)hPool, umfResultText(result));
    }
    return result;
}
