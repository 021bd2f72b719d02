/* The public calls of a pool: allocate, free, trim. */
#include <umf/memory_pool_ext.h>
#include <umf/result.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "core/pool_cached.h"
#include "core/pool_calls.h"
#include "object/object.h"
#include "object/recorded.h"
#include "reclaim/reclaim.h"
#include "system/annotate.h"
#include "system/keep_errno.h"

/* --- counting for pools that do not count themselves --- */

/* Does nothing for pools that count themselves. */
static UMF_COLD void count_slow(umf_memory_pool_handle_t pool, int64_t change) {
    if (pool->fast) {
        return;
    }
    umf_pool_counter_t *counter = (umf_pool_counter_t *)umf_thread_slot_make(&pool->counters);
    if (counter) {
        __atomic_store_n(&counter->count, counter->count + change, __ATOMIC_RELAXED);
    } else { /* no memory for a counter, or the thread is ending */
        atomic_fetch_add_explicit(&pool->retired_count, change, memory_order_relaxed);
    }
}

/* false: the caller must use count_slow. Hot. */
static inline bool try_count(umf_memory_pool_handle_t pool, int64_t change) {
    umf_pool_counter_t *counter =
        (umf_pool_counter_t *)umf_thread_slot_get_low(pool->counter_index);
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

void umf_pool_counter_retire(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    umf_memory_pool_handle_t pool = UMF_CONTAINER_OF(owner, struct umf_memory_pool_t, counters);
    atomic_fetch_add_explicit(&pool->retired_count, ((umf_pool_counter_t *)block)->count,
                              memory_order_relaxed);
}

static void counter_sum(umf_thread_slot_t *block, void *sum) {
    *(int64_t *)sum += __atomic_load_n(&((umf_pool_counter_t *)block)->count, __ATOMIC_RELAXED);
}

size_t umf_pool_alloc_count(umf_memory_pool_handle_t pool) {
    size_t deferred = atomic_load_explicit(&pool->deferred, memory_order_relaxed), count;
    if (pool->fast) {
        count = pool->fast->alloc_count(pool->self);
    } else {
        int64_t sum = atomic_load_explicit(&pool->retired_count, memory_order_relaxed);
        umf_thread_slot_each(&pool->counters, counter_sum, &sum);
        count = sum > 0 ? (size_t)sum : 0;
    }
    return count > deferred ? count - deferred : 0;
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
#define FREE_AT(pool, ptr, entry) UMF_POOL_CALL(pool, free_at)((pool)->free_self, (ptr), (entry))

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

/* If a provider refused memory, its reason stays the last error of the thread. */
static UMF_COLD void *refused_by_user_pool(umf_memory_pool_handle_t pool) {
    if (!umf_thread_slot_tls.is_refused) {
        const char *name = NULL;
        (void)pool->ops.get_name(pool->self, &name);
        umf_last_error_set("pool %s returns no memory: %s", name ? name : "without a name",
                           umfResultText(pool->ops.get_last_allocation_error(pool->self)));
    }
    umf_thread_slot_tls.is_refused = false;
    return NULL;
}

static inline void *counted(umf_memory_pool_handle_t pool, void *ptr) {
    if (umf_unlikely(!ptr)) {
        return refused_by_user_pool(pool);
    }
    return umf_likely(try_count(pool, 1)) ? ptr : count_malloc_slow(pool, ptr);
}

/* A pool that helps itself after a refusal leaves the mark of it. */
static inline void begin_counted(void) {
    umf_thread_slot_tls.is_refused = false;
}

static void *malloc_counted(umf_memory_pool_handle_t pool, size_t size) {
    begin_counted();
    return counted(pool, malloc_by_pool(pool, size));
}

static void *aligned_malloc_counted(umf_memory_pool_handle_t pool, size_t size, size_t alignment) {
    begin_counted();
    return counted(pool, aligned_malloc_by_pool(pool, size, alignment));
}

static void *calloc_counted(umf_memory_pool_handle_t pool, size_t num, size_t size) {
    begin_counted();
    return counted(pool, calloc_by_pool(pool, num, size));
}

static void *realloc_counted(umf_memory_pool_handle_t pool, void *ptr, size_t size) {
    begin_counted();
    void *moved = realloc_by_pool(pool, ptr, size);
    if (!ptr) {
        return counted(pool, moved);
    }
    if (!moved && size == 0) {
        count(pool, -1);
    } else if (!moved) {
        return refused_by_user_pool(pool);
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

__attribute__((noinline)) umf_result_t umf_pool_usable_size(umf_memory_pool_handle_t pool,
                                                            const void *ptr, size_t *size) {
    return pool->ops.malloc_usable_size(pool->self, ptr, size);
}

/* If a chunk of an aligned slab starts at `ptr`, the map entry gives its size. In all other cases
 * the pool has the size. Hot. */
umf_result_t umf_pool_usable_size_by_class_offset(umf_memory_pool_handle_t pool, const void *ptr,
                                                  size_t *size) {
    umf_map_entry_t entry;
    if (umf_unlikely(!size) || umf_unlikely(!umf_map_find_global((uintptr_t)ptr, &entry)) ||
        umf_unlikely(umf_map_entry_pool(entry) != pool->index)) {
        return umf_pool_usable_size(pool, ptr, size);
    }
    const umf_magazine_slab_t *slab =
        umf_magazine_slab_at(pool->slabs, umf_map_entry_class_offset(entry));
    if (umf_unlikely(!umf_magazine_slab_starts(slab, (uintptr_t)ptr, size))) {
        return umf_pool_usable_size(pool, ptr, size);
    }
    return UMF_RESULT_SUCCESS;
}

bool umf_pool_try_free_none(void *pool, void *ptr, umf_map_entry_t entry) {
    (void)pool, (void)ptr, (void)entry;
    return false;
}

const umf_layer_calls_t umf_pool_calls = {
    .malloc = malloc_by_pool,
    .aligned_malloc = aligned_malloc_by_pool,
    .calloc = calloc_by_pool,
    .realloc = realloc_by_pool,
    .free_at = free_counted,
    .try_free = umf_pool_try_free_none,
    .last_error = last_error_by_pool,
};
const umf_layer_calls_t umf_pool_calls_counted = {
    .malloc = malloc_counted,
    .aligned_malloc = aligned_malloc_counted,
    .calloc = calloc_counted,
    .realloc = realloc_counted,
    .free_at = free_counted,
    .try_free = umf_pool_try_free_none,
    .last_error = last_error_by_pool,
};

/* --- allocation: hot --- */

static UMF_COLD void *no_pool(const char *function) {
    umf_log_error(function, "the pool is NULL: its creation has failed, or was left out");
    return NULL;
}

UMF_API_1_0 void *umfPoolMalloc(umf_memory_pool_handle_t hPool, size_t size) {
    void *ptr;
    if (umf_unlikely(!hPool)) {
        return no_pool(__func__);
    }
    return umf_likely(umf_pool_malloc_cached(hPool, size, &ptr))
               ? ptr
               : UMF_POOL_CALL(hPool, malloc)(hPool, size);
}

UMF_API_1_0 void *umfPoolAlignedMalloc(umf_memory_pool_handle_t hPool, size_t size,
                                       size_t alignment) {
    if (umf_unlikely(!hPool)) {
        return no_pool(__func__);
    }
    return UMF_POOL_CALL(hPool, aligned_malloc)(hPool, size, alignment);
}

UMF_API_1_0 void *umfPoolCalloc(umf_memory_pool_handle_t hPool, size_t num, size_t size) {
    if (umf_unlikely(!hPool)) {
        return no_pool(__func__);
    }
    return UMF_POOL_CALL(hPool, calloc)(hPool, num, size);
}

UMF_API_1_0 void *umfPoolRealloc(umf_memory_pool_handle_t hPool, void *ptr, size_t size) {
    if (umf_unlikely(!hPool)) {
        return no_pool(__func__);
    }
    return UMF_POOL_CALL(hPool, realloc)(hPool, ptr, size);
}

static umf_memory_pool_handle_t pool_of_entry(umf_map_entry_t entry) {
    return atomic_load_explicit(&umf_pool_table[umf_map_entry_pool(entry)], memory_order_acquire);
}

static UMF_COLD umf_result_t free_foreign(umf_memory_pool_handle_t pool, void *ptr) {
    if (!ptr) {
        return pool->ops.free(pool->self, NULL);
    }
    umf_memory_pool_handle_t owner = pool_of_entry(umf_map_find(&umf_map_global, (uintptr_t)ptr));
    if (owner) {
        UMF_LOG_ERROR("%p does not belong to pool %p (%s) but to pool %p (%s)", ptr, (void *)pool,
                      pool->named.name, (void *)owner, owner->named.name);
    } else {
        UMF_LOG_ERROR("%p does not belong to pool %p (%s) but to none: it is foreign, was freed "
                      "already, or is inside of a block",
                      ptr, (void *)pool, pool->named.name);
    }
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static UMF_COLD umf_result_t free_unknown(void *ptr) {
    UMF_LOG_ERROR("no pool has %p: it is NULL, foreign, already freed, or of an untracked pool",
                  ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

UMF_INLINE bool free_cached(void *ptr, umf_map_entry_t entry) {
    int64_t magazine = umf_map_entry_class(entry);
    if (UMF_IS_ASAN) {
        return false; /* the pool annotates */
    }
    if (umf_likely(magazine > 0)) {
        return umf_pool_free_in_slab(ptr, entry, (size_t)magazine);
    }
    return magazine < 0 && umf_pool_free_in_page(
                               ptr, umf_map_entry_pool(entry)); /* 0: the pool checks the pointer */
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

UMF_API_1_0 umf_result_t umfPoolFree(umf_memory_pool_handle_t hPool, void *ptr) {
    if (umf_unlikely(!hPool)) {
        return umf_pool_null_argument("pool");
    }
    umf_map_entry_t entry;
    if (umf_pool_is_tick()) {
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

UMF_API_1_0 umf_result_t umfFree(void *ptr) {
    umf_map_entry_t entry;
    if (umf_pool_is_tick()) {
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
        return umf_pool_null_argument("pool");
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
    return umf_likely(hPool != NULL) ? hPool->usable_size(hPool, ptr, size)
                                     : umf_pool_null_argument("pool");
}

UMF_API_1_0 umf_result_t umfPoolGetLastAllocationError(umf_memory_pool_handle_t hPool) {
    if (!umf_pool_check(hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_POOL_CALL(hPool, last_error)(hPool);
}

UMF_API_1_0 umf_result_t umfPoolGetMemoryProvider(umf_memory_pool_handle_t hPool,
                                                  umf_memory_provider_handle_t *hProvider) {
    if (!umf_pool_check(hPool, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!hProvider) {
        return umf_pool_null_argument("hProvider");
    }
    *hProvider = hPool->provider;
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
