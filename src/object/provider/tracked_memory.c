/*
 * Memory of a provider: alloc, free, split and merge. Operations through a tracked provider are
 * recorded as spans, see tracked_provider.h.
 */
#include "object/provider/tracked_provider.h"

#include "object/event.h"
#include "object/group.h"
#include "object/listener.h"
#include "object/provider/memory_watch.h"
#include "object/provider/provider_own.h"
#include "object/provider/tracked_range.h"
#include "object/refusal.h"
#include "system/keep_errno.h"
#include "track/page.h"

/* The class offset, or 0 if the core cannot use it: the core finds magazines by low indices only,
 * and computes offsets in slabs from the address alone. Page records need memory. */
static uint16_t usable_class_offset(const umf_tracked_provider_t *tracked, uint16_t class_offset,
                                    const void *memory, size_t size) {
    if (class_offset == UMF_MAP_ENTRY_PAGED) {
        uint32_t index = umf_tracked_magazine_index(tracked);
        return index && index < UMF_THREAD_SLOT_COUNT_MIN &&
                       umf_page_records_make((uintptr_t)memory, size)
                   ? class_offset
                   : 0;
    }
    bool is_aligned = umf_is_pow2(size) && ((uintptr_t)memory & (size - 1)) == 0;
    return is_aligned && tracked->spans.pool < UMF_THREAD_SLOT_COUNT_MIN ? class_offset : 0;
}

/* Counts bytes that the group of the pool is about to hold. false: it is full. */
static UMF_COLD bool count(umf_tracked_provider_t *tracked, size_t size) {
    bool has_room = umf_group_take(umf_group_of(tracked), size);
    if (!has_room) {
        umf_tracked_refuse(size, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        umf_refusal_by_group(tracked, size);
    }
    return has_room;
}

static UMF_COLD void uncount(umf_tracked_provider_t *tracked, size_t size) {
    if (umf_group_of(tracked)) {
        umf_group_give(umf_group_of(tracked), size);
    }
}

typedef umf_result_t (*alloc_op_t)(void *self, size_t size, size_t alignment, void **ptr);
typedef umf_result_t (*free_op_t)(void *self, void *ptr, size_t size);

#define LEAST_ALIGNMENT ((size_t)8) /* memory_pool.h promises it */

/* `alignment`: 0 or a power of two. */
static inline bool is_aligned(const void *memory, size_t alignment) {
    size_t rest = alignment - (alignment != 0);
    return ((uintptr_t)memory & (rest | (LEAST_ALIGNMENT - 1))) == 0;
}

/* Gives memory back that the pool cannot use, unless the provider has given it before: then it is
 * in use. */
static void give_up(umf_tracked_provider_t *tracked, void *memory, size_t size) {
    if (!umf_span_is_given(&tracked->spans, (uintptr_t)memory, size)) {
        tracked->ops.free(tracked->self, memory, size);
    }
}

static umf_result_t misaligned(umf_tracked_provider_t *tracked, size_t size, size_t alignment,
                               void *memory) {
    UMF_LOG_ERROR("provider %p answers a request of %zu bytes aligned to %zu with %p: it must "
                  "align, or refuse with UMF_RESULT_ERROR_INVALID_ALIGNMENT",
                  (void *)tracked->root, size, alignment, memory);
    give_up(tracked, memory, size);
    return UMF_RESULT_ERROR_INVALID_ALIGNMENT;
}

/* Memory that a pool cannot hand out: NULL, or misaligned. A provider that was free to choose the
 * alignment is called again, once. */
static UMF_COLD umf_result_t alloc_again(umf_tracked_provider_t *tracked, alloc_op_t alloc,
                                         size_t size, size_t alignment, void **memory) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (*memory && alignment < LEAST_ALIGNMENT) {
        give_up(tracked, *memory, size);
        alignment = LEAST_ALIGNMENT;
        *memory = NULL;
        result = alloc(tracked->self, size, alignment, memory);
    }
    if (result == UMF_RESULT_SUCCESS && !*memory) {
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    } else if (result == UMF_RESULT_SUCCESS && !is_aligned(*memory, alignment)) {
        result = misaligned(tracked, size, alignment, *memory);
    }
    return result == UMF_RESULT_SUCCESS ? result : umf_tracked_alloc_failed(tracked, size, result);
}

/* Memory without a record could never be freed. */
static UMF_COLD umf_result_t record_failed(umf_tracked_provider_t *tracked, void *memory,
                                           size_t size, umf_result_t result) {
    give_up(tracked, memory, size);
    umf_tracked_refuse(size, result);
    uncount(tracked, size);
    return result;
}

/* Tells the callbacks of the pool. Memory that one of them refuses goes back. */
static UMF_COLD umf_result_t tell_mapped(umf_tracked_provider_t *tracked, void *memory,
                                         size_t size);

/* `is_checked`: the pool hands out what it gets. */
UMF_INLINE umf_result_t tracked_alloc(umf_tracked_provider_t *tracked, alloc_op_t alloc,
                                      bool is_checked, size_t size, size_t alignment,
                                      uint16_t class_offset, void *cookie, void **ptr) {
    void *memory = NULL;
    if (umf_unlikely(umf_group_of(tracked) != NULL) && !count(tracked, size)) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = alloc(tracked->self, size, alignment, &memory);
    if (umf_unlikely(result != UMF_RESULT_SUCCESS)) {
        return umf_tracked_alloc_failed(tracked, size, result);
    }
    if (is_checked && (umf_unlikely(!is_aligned(memory, alignment)) || umf_unlikely(!memory)) &&
        size) {
        result = alloc_again(tracked, alloc, size, alignment, &memory);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    /* A provider may return NULL, for example for size 0: there is nothing to record. */
    if (umf_likely(memory != NULL)) {
        result = umf_span_add(
            &tracked->spans, (uintptr_t)memory, size, UMF_SPAN_POOL, cookie,
            class_offset ? usable_class_offset(tracked, class_offset, memory, size) : 0, NULL);
        if (umf_unlikely(result != UMF_RESULT_SUCCESS)) {
            return record_failed(tracked, memory, size, result);
        }
        UMF_EVENT(.kind = UMF_RECORD_PROVIDER_ALLOC, .pool = umf_tracked_pool(tracked),
                  .address = (uintptr_t)memory, .size = size);
        if (umf_unlikely(umf_memory_watch_of(tracked) != NULL)) {
            result = tell_mapped(tracked, memory, size);
            if (result != UMF_RESULT_SUCCESS) {
                return result;
            }
        }
    } else {
        uncount(tracked, size);
    }
    *ptr = memory;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_tracked_alloc(umf_tracked_provider_t *tracked, size_t size, size_t alignment,
                               uint16_t class_offset, void *cookie, void **ptr) {
    return tracked_alloc(tracked, tracked->pool_alloc, true, size, alignment, class_offset, cookie,
                         ptr);
}

/* A suspended pool may have a stored copy of the memory, which is void from now on. Over a provider
 * whose memory cannot be detached no pool is suspended. */
UMF_INLINE void tell_suspended_pool(const umf_tracked_provider_t *tracked, const void *ptr) {
    umf_memory_pool_handle_t pool = tracked->ext->vm_detach ? umf_tracked_pool(tracked) : NULL;
    if (pool && umf_pool_is_suspended(pool)) {
        UMF_KEEP_ERRNO;
        umf_layers_freed(pool, ptr);
    }
}

static UMF_COLD umf_result_t freed_twice(const void *ptr) {
    UMF_LOG_ERROR("%p is being freed by another thread as well", ptr);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* The provider refused the free: the allocation is recorded again, and emits its event again. The
 * free emitted its event before it was tried, because another thread may have the address right
 * after it. */
static UMF_COLD umf_result_t free_failed(umf_tracked_provider_t *tracked, umf_span_t *span,
                                         const void *ptr, size_t size, umf_result_t result) {
    UMF_KEEP_ERRNO;
    umf_provider_failed(tracked);
    umf_tracked_page_event(tracked, UMF_RECORD_PROVIDER_ALLOC, (uintptr_t)ptr, size);
    if (umf_span_restore(&tracked->spans, span) != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("%p could not be freed by its provider and cannot be recorded again", ptr);
    } else if (umf_memory_watch_of(tracked)) {
        umf_memory_watch_mapped(tracked, (void *)(uintptr_t)ptr, size);
    }
    return result;
}

/* Ends the export of a withdrawn span, and tells the callbacks of the pool. */
UMF_INLINE void tell_withdrawn(umf_tracked_provider_t *tracked, umf_span_t *span) {
    uintptr_t exported = (uintptr_t)atomic_load_explicit(&span->exported, memory_order_relaxed);
    if (umf_unlikely((exported | (uintptr_t)umf_memory_watch_of(tracked)) != 0)) {
        umf_tracked_tell_withdrawn(tracked, span);
    }
}

/* The memory of a withdrawn span is at the provider. */
UMF_INLINE void forget(umf_tracked_provider_t *tracked, umf_span_t *span) {
    if (umf_unlikely(umf_group_of(tracked) != NULL)) {
        uncount(tracked, span->size);
    }
    umf_span_release(&tracked->spans, span);
}

/* Withdraws and frees a span. `size` is the size that the provider gets. */
UMF_INLINE umf_result_t tracked_free_sized(umf_tracked_provider_t *tracked, free_op_t free,
                                           umf_span_t *span, void *ptr, size_t size) {
    /* The span leaves the map before the memory is freed: the provider may give the memory to
     * another thread at once, which records it. */
    umf_result_t result = umf_span_withdraw(&tracked->spans, span, (uintptr_t)ptr);
    if (umf_unlikely(result != UMF_RESULT_SUCCESS)) {
        return freed_twice(ptr);
    }
    tell_withdrawn(tracked, span);
    if (umf_event_is_enabled()) { /* an event here would give each free a stack frame to protect */
        umf_tracked_page_event(tracked, UMF_RECORD_PROVIDER_FREE, (uintptr_t)ptr, size);
    }
    int error = errno; /* not UMF_KEEP_ERRNO, which would keep errno through the whole function */
    result = free(tracked->self, ptr, size);
    errno = error;
    if (umf_unlikely(result != UMF_RESULT_SUCCESS)) {
        return free_failed(tracked, span, ptr, size, result);
    }
    forget(tracked, span);
    tell_suspended_pool(tracked, ptr);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t tell_mapped(umf_tracked_provider_t *tracked, void *memory, size_t size) {
    umf_result_t result = umf_memory_watch_mapped(tracked, memory, size);
    umf_span_t *span = result == UMF_RESULT_SUCCESS ? NULL : umf_tracked_find(tracked, memory);
    if (span && umf_span_withdraw(&tracked->spans, span, (uintptr_t)memory) == UMF_RESULT_SUCCESS) {
        umf_tracked_page_event(tracked, UMF_RECORD_PROVIDER_FREE, (uintptr_t)memory, size);
        tracked->ops.free(tracked->self, memory, size);
        forget(tracked, span);
        umf_tracked_refuse(size, result);
    }
    return result;
}

umf_result_t umf_tracked_free(umf_tracked_provider_t *tracked, umf_span_t *span) {
    return tracked_free_sized(tracked, tracked->ops.free, span, (void *)span->base, span->size);
}

umf_result_t umf_tracked_free_for_reuse(umf_tracked_provider_t *tracked, umf_span_t *span) {
    return tracked_free_sized(tracked, tracked->pool_free, span, (void *)span->base, span->size);
}

bool umf_tracked_can_reuse(const umf_tracked_provider_t *tracked) {
    return tracked->ext->reuse_free != NULL;
}

/* Not over providers whose memory can be detached (vm_detach). */
bool umf_tracked_can_be_dormant(const umf_tracked_provider_t *tracked) {
    return tracked->ext->reuse_count && tracked->ext->reuse_free && !tracked->ext->vm_detach &&
           tracked->ext->reuse_count(tracked->self, 0, 0) == UMF_RESULT_SUCCESS;
}

umf_result_t umf_tracked_make_dormant(umf_tracked_provider_t *tracked, umf_span_t *span) {
    uintptr_t base = span->base;
    if (umf_unlikely(umf_span_withdraw(&tracked->spans, span, base) != UMF_RESULT_SUCCESS)) {
        return freed_twice((void *)base);
    }
    tell_withdrawn(tracked, span);
    tracked->ext->reuse_count(tracked->self, span->size, 0);
    umf_span_begin_dormancy(span);
    return UMF_RESULT_SUCCESS;
}

/* A span whose memory a callback refuses is dormant again. */
static UMF_COLD bool wake_told(umf_tracked_provider_t *tracked, umf_span_t *span, size_t size) {
    if (umf_memory_watch_mapped(tracked, (void *)span->base, size) == UMF_RESULT_SUCCESS) {
        return true;
    }
    if (umf_span_withdraw(&tracked->spans, span, span->base) == UMF_RESULT_SUCCESS) {
        tracked->ext->reuse_count(tracked->self, size, 0);
        umf_span_begin_dormancy(span);
    }
    return false;
}

static UMF_COLD bool wake_in_group(umf_tracked_provider_t *tracked, umf_span_t *span, size_t size) {
    size_t old = span->size;
    if (!umf_span_wake(&tracked->spans, span, size)) {
        return false;
    }
    umf_group_resize(umf_group_of(tracked), old, size);
    tracked->ext->reuse_count(tracked->self, size, 1);
    return !umf_memory_watch_of(tracked) || wake_told(tracked, span, size);
}

bool umf_tracked_wake(umf_tracked_provider_t *tracked, umf_span_t *span, size_t size) {
    if (umf_unlikely(umf_group_of(tracked) != NULL)) {
        return wake_in_group(tracked, span, size);
    }
    if (umf_unlikely(!umf_span_wake(&tracked->spans, span, size))) {
        return false;
    }
    tracked->ext->reuse_count(tracked->self, size, 1);
    return umf_likely(!umf_memory_watch_of(tracked)) || wake_told(tracked, span, size);
}

umf_result_t umf_tracked_free_dormant(umf_tracked_provider_t *tracked, umf_span_t *span) {
    UMF_KEEP_ERRNO;
    void *ptr = (void *)span->base;
    umf_span_end_dormancy(span);
    umf_result_t result = tracked->pool_free(tracked->self, ptr, span->size);
    if (result != UMF_RESULT_SUCCESS) {
        umf_provider_failed(tracked);
        umf_span_begin_dormancy(span);
        UMF_LOG_ERROR("%p could not be given back to its provider", ptr);
        return result;
    }
    /* Counted after the free, so that the peak of the provider does not rise. */
    tracked->ext->reuse_count(tracked->self, span->size, 1);
    forget(tracked, span);
    return UMF_RESULT_SUCCESS;
}

void umf_provider_drop_reusable(umf_memory_provider_handle_t provider, bool only_decayed) {
    UMF_KEEP_ERRNO;
    if (provider->ext->reuse_drop &&
        provider->ext->reuse_drop(provider->self, only_decayed) != UMF_RESULT_SUCCESS) {
        umf_provider_failed(provider);
    }
}

void umf_provider_free_pending(umf_memory_provider_handle_t provider, bool waits) {
    size_t left;
    if (provider->ext->free_pending) {
        provider->ext->free_pending(provider->self, waits, &left);
    }
}

void umf_provider_free_batch(umf_memory_provider_handle_t provider, bool begins) {
    if (provider->ext->free_batch &&
        provider->ext->free_batch(provider->self, begins) != UMF_RESULT_SUCCESS) {
        umf_provider_failed(provider);
    }
}

static umf_result_t tracked_free_ptr(umf_tracked_provider_t *tracked, void *ptr, size_t size) {
    UMF_KEEP_ERRNO;
    umf_span_t *span = ptr ? umf_tracked_find(tracked, ptr) : NULL;
    if (span && span->base == (uintptr_t)ptr) {
        return tracked_free_sized(tracked, tracked->ops.free, span, ptr, size ? size : span->size);
    }
    /* Not a recorded allocation: the provider decides what that means. */
    umf_result_t result = tracked->ops.free(tracked->self, ptr, size);
    if (result != UMF_RESULT_SUCCESS) {
        umf_provider_failed(tracked);
    }
    return result;
}

static umf_result_t not_a_span(const char *what, const void *ptr, size_t size) {
    UMF_LOG_ERROR("%s: %p of %zu bytes is not an allocation of this pool's provider", what, ptr,
                  size);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static umf_result_t tracked_split(umf_tracked_provider_t *tracked, void *ptr, size_t total,
                                  size_t first) {
    umf_span_t *span = umf_tracked_find(tracked, ptr);
    if (!span || span->base != (uintptr_t)ptr || span->size != total) {
        return not_a_span("split", ptr, total);
    }
    /* The record comes first, because it can fail without harm, and can be undone. */
    umf_result_t result = umf_span_split(&tracked->spans, span, first);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_core_export_ends(span, tracked->root); /* the export describes both parts */
    result = tracked->ops.ext_allocation_split(tracked->self, ptr, total, first);
    if (result != UMF_RESULT_SUCCESS) {
        umf_provider_failed(tracked);
        umf_span_t *high = umf_tracked_find(tracked, (char *)ptr + first);
        if (!high || umf_span_merge(&tracked->spans, span, high) != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("the record of %p stays split although its provider refused", ptr);
        }
    }
    return result;
}

static umf_result_t tracked_merge(umf_tracked_provider_t *tracked, void *low_ptr, void *high_ptr,
                                  size_t total) {
    umf_span_t *low = umf_tracked_find(tracked, low_ptr),
               *high = umf_tracked_find(tracked, high_ptr);
    if (!low || low->base != (uintptr_t)low_ptr || !high || high->base != (uintptr_t)high_ptr ||
        low == high || low->size + high->size != total) {
        return not_a_span("merge", low_ptr, total);
    }
    size_t first = low->size;
    umf_core_export_ends(low, tracked->root);
    umf_core_export_ends(high, tracked->root);
    umf_result_t result = umf_span_merge(&tracked->spans, low, high);
    if (result != UMF_RESULT_SUCCESS) {
        return not_a_span("merge", high_ptr, total);
    }
    result = tracked->ops.ext_allocation_merge(tracked->self, low_ptr, high_ptr, total);
    if (result != UMF_RESULT_SUCCESS) {
        umf_provider_failed(tracked);
        if (umf_span_split(&tracked->spans, low, first) != UMF_RESULT_SUCCESS) {
            UMF_LOG_ERROR("the record of %p stays merged although its provider refused", low_ptr);
        }
    }
    return result;
}

/* --- memory of any provider --- */

static UMF_COLD umf_result_t recorded_alloc(umf_memory_provider_handle_t provider, size_t size,
                                            size_t alignment, void **ptr) {
    umf_result_t result = provider->ops.alloc(provider->self, size, alignment, ptr);
    bool is_done = result == UMF_RESULT_SUCCESS;
    UMF_EVENT(.kind = is_done ? UMF_RECORD_PROVIDER_ALLOC : UMF_RECORD_PROVIDER_REFUSED,
              .provider = provider, .address = is_done ? (uintptr_t)*ptr : 0, .size = size);
    return answer(provider, result);
}

UMF_API_1_0 umf_result_t umfMemoryProviderAlloc(umf_memory_provider_handle_t hProvider, size_t size,
                                                size_t alignment, void **ptr) {
    CHECK(hProvider != NULL);
    CHECK(ptr != NULL);
    if (hProvider->is_tracked) {
        return tracked_alloc(hProvider, hProvider->ops.alloc, false, size, alignment, 0, NULL, ptr);
    }
    if (umf_event_is_enabled()) {
        return recorded_alloc(hProvider, size, alignment, ptr);
    }
    return answer(hProvider, hProvider->ops.alloc(hProvider->self, size, alignment, ptr));
}

/* As free_failed. INVALID_ARGUMENT: no allocation of this provider, so none stays. */
static UMF_COLD umf_result_t recorded_free(umf_memory_provider_handle_t provider, void *ptr,
                                           size_t size) {
    UMF_EVENT(.kind = UMF_RECORD_PROVIDER_FREE, .provider = provider, .address = (uintptr_t)ptr,
              .size = size);
    umf_result_t result = provider->ops.free(provider->self, ptr, size);
    if (result != UMF_RESULT_SUCCESS && result != UMF_RESULT_ERROR_INVALID_ARGUMENT) {
        UMF_EVENT(.kind = UMF_RECORD_PROVIDER_ALLOC, .provider = provider,
                  .address = (uintptr_t)ptr, .size = size);
    }
    return answer(provider, result);
}

UMF_API_1_0 umf_result_t umfMemoryProviderFree(umf_memory_provider_handle_t hProvider, void *ptr,
                                               size_t size) {
    CHECK(hProvider != NULL);
    if (hProvider->is_tracked) {
        return tracked_free_ptr(hProvider, ptr, size);
    }
    if (umf_event_is_enabled()) {
        return recorded_free(hProvider, ptr, size);
    }
    return answer(hProvider, hProvider->ops.free(hProvider->self, ptr, size));
}

UMF_API_1_0 umf_result_t umfMemoryProviderAllocationSplit(umf_memory_provider_handle_t hProvider,
                                                          void *ptr, size_t totalSize,
                                                          size_t firstSize) {
    UMF_KEEP_ERRNO;
    CHECK_PROVIDER(hProvider);
    CHECK(ptr != NULL);
    CHECK(firstSize > 0 && firstSize < totalSize);
    if (!hProvider->ops.ext_allocation_split) {
        return answer(hProvider, UMF_RESULT_ERROR_NOT_SUPPORTED);
    }
    if (hProvider->is_tracked) {
        return tracked_split(hProvider, ptr, totalSize, firstSize);
    }
    return answer(hProvider,
                  hProvider->ops.ext_allocation_split(hProvider->self, ptr, totalSize, firstSize));
}

UMF_API_1_0 umf_result_t umfMemoryProviderAllocationMerge(umf_memory_provider_handle_t hProvider,
                                                          void *lowPtr, void *highPtr,
                                                          size_t totalSize) {
    UMF_KEEP_ERRNO;
    CHECK_PROVIDER(hProvider);
    CHECK(lowPtr != NULL && highPtr != NULL);
    CHECK(totalSize > 0);
    CHECK((uintptr_t)lowPtr < (uintptr_t)highPtr);
    CHECK((uintptr_t)highPtr - (uintptr_t)lowPtr < totalSize);
    if (!hProvider->ops.ext_allocation_merge) {
        return answer(hProvider, UMF_RESULT_ERROR_NOT_SUPPORTED);
    }
    if (hProvider->is_tracked) {
        return tracked_merge(hProvider, lowPtr, highPtr, totalSize);
    }
    return answer(hProvider,
                  hProvider->ops.ext_allocation_merge(hProvider->self, lowPtr, highPtr, totalSize));
}
