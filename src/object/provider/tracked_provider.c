/* Tracked providers: their life, their spans, and the last refusal. See tracked_provider.h. */
#include "object/provider/tracked_provider.h"

#include "base/meta.h"
#include "base/native.h"
#include "object/event.h"
#include "object/group.h"
#include "object/listener.h"
#include "object/provider/memory_watch.h"
#include "object/provider/provider_own.h"
#include "object/provider/provider_query.h"
#include "object/refusal.h"
#include "system/keep_errno.h"
#include "system/os.h"

umf_result_t umf_tracked_create(umf_memory_provider_handle_t provider, uint32_t pool_index,
                                umf_tracked_provider_t **out) {
    umf_tracked_provider_t *tracked = umf_meta_alloc(sizeof(*tracked));
    if (!tracked) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = umf_handle_begin(tracked, &umf_handle_tracked);
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(tracked, sizeof(*tracked));
        return result;
    }
    tracked->ops = provider->ops;
    tracked->self = provider->self;
    tracked->ext = provider->ext;
    tracked->kind = provider->kind;
    tracked->root = provider->root;
    tracked->is_tracked = true;
    tracked->is_direct = true;
    tracked->pool_alloc =
        tracked->ext->reuse_alloc ? tracked->ext->reuse_alloc : tracked->ops.alloc;
    tracked->pool_free = tracked->ext->reuse_free ? tracked->ext->reuse_free : tracked->ops.free;
    umf_span_set_init(&tracked->spans, &umf_map_global, pool_index);
    tracked->spans.source = provider->root;
    *out = tracked;
    return UMF_RESULT_SUCCESS;
}

static void drop_export(umf_span_t *span, void *tracked) {
    umf_core_export_ends(span, ((umf_tracked_provider_t *)tracked)->root);
}

void umf_tracked_destroy(umf_tracked_provider_t *tracked) {
    umf_span_set_drain(&tracked->spans, drop_export, tracked);
    umf_tracked_settle(); /* another thread may still read a span's set, which is in this object */
    umf_span_set_fini(&tracked->spans);
    umf_memory_watch_drop(tracked);
    umf_handle_end(tracked, &umf_handle_tracked, __func__);
    umf_meta_free(tracked, sizeof(*tracked));
}

/* It is in the group of the outer one. */
static void link_inner(umf_tracked_provider_t *outer, umf_tracked_provider_t *inner) {
    inner->outer = outer;
    umf_lock(&outer->spans.lock);
    atomic_init(&inner->group, umf_group_of(outer));
    atomic_init(&inner->watch, umf_memory_watch_of(outer));
    inner->next = outer->inner;
    outer->inner = inner;
    umf_unlock(&outer->spans.lock);
}

static void unlink_inner(umf_tracked_provider_t *outer, umf_tracked_provider_t *inner) {
    umf_lock(&outer->spans.lock);
    umf_tracked_provider_t **link = &outer->inner;
    while (*link != inner) {
        link = &(*link)->next;
    }
    *link = inner->next;
    umf_unlock(&outer->spans.lock);
}

/* For an in-tree pool that a user pool calls: its spans have the index of the user pool. */
static umf_result_t tracked_create_inner(umf_tracked_provider_t *outer,
                                         umf_tracked_provider_t **out) {
    umf_result_t result = umf_tracked_create(outer, outer->spans.pool, out);
    if (result == UMF_RESULT_SUCCESS) {
        (*out)->is_direct = false;
        link_inner(outer, *out);
    }
    return result;
}

/* For a pool that is not tracked: only the pool itself looks its pointers up. */
static umf_result_t tracked_create_private(umf_memory_provider_handle_t provider,
                                           umf_tracked_provider_t **out) {
    umf_map_t *map = umf_meta_alloc(sizeof(*map));
    if (!map) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = umf_map_init(map);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_tracked_create(provider, 0, out);
        if (result == UMF_RESULT_SUCCESS) {
            (*out)->private_map = map;
            (*out)->spans.map = map;
            return UMF_RESULT_SUCCESS;
        }
        umf_map_fini(map);
    }
    umf_meta_free(map, sizeof(*map));
    return result;
}

umf_result_t umf_tracked_acquire(umf_memory_provider_handle_t provider,
                                 umf_tracked_provider_t **out) {
    if (!provider->is_tracked) {
        return tracked_create_private(provider, out);
    }
    if (!provider->is_direct) {
        return tracked_create_inner(provider, out);
    }
    *out = provider;
    return UMF_RESULT_SUCCESS;
}

void umf_tracked_release(umf_tracked_provider_t *tracked) {
    umf_map_t *map = tracked->private_map;
    if (map) {
        umf_tracked_destroy(tracked);
        umf_map_fini(map);
        umf_meta_free(map, sizeof(*map));
    } else if (!tracked->is_direct) {
        unlink_inner(tracked->outer, tracked);
        umf_tracked_destroy(tracked);
    }
}

umf_result_t umf_provider_can_split(umf_memory_provider_handle_t provider, size_t page_size) {
    if (!provider->ops.ext_allocation_split) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (provider->kind) { /* a registered kind has only operations that it supports */
        return UMF_RESULT_SUCCESS;
    }
    void *nowhere = (void *)(uintptr_t)page_size;
    return provider->ops.ext_allocation_split(provider->self, nowhere, 2 * page_size, page_size);
}

umf_result_t umf_provider_page_size(umf_memory_provider_handle_t provider, size_t *size) {
    *size = 0;
    umf_result_t result = umfMemoryProviderGetMinPageSize(provider, NULL, size);
    if (*size == 0) {
        *size = umf_os_page_size();
    }
    return result;
}

const umf_span_set_t *umf_tracked_spans(const umf_tracked_provider_t *tracked) {
    return &tracked->spans;
}

uint32_t umf_tracked_magazine_index(const umf_tracked_provider_t *tracked) {
    return tracked->is_direct ? tracked->spans.pool : 0;
}

static inline umf_span_t *own_span(const umf_tracked_provider_t *tracked, umf_map_entry_t entry) {
    umf_span_t *span = umf_span_at(umf_map_entry_span(entry));
    return umf_likely(entry != 0) && umf_likely(umf_span_set_of(span) == &tracked->spans) ? span
                                                                                          : NULL;
}

/* For addresses that the fast walk does not find. A function of its own, so that the fast one needs
 * no stack frame. */
static __attribute__((noinline)) umf_span_t *
tracked_find_slow(const umf_tracked_provider_t *tracked, const void *ptr) {
    return own_span(tracked, umf_map_find(tracked->spans.map, (uintptr_t)ptr));
}

umf_span_t *umf_tracked_find(const umf_tracked_provider_t *tracked, const void *ptr) {
    umf_map_entry_t entry;
    return umf_likely(umf_map_find_fast(tracked->spans.map, (uintptr_t)ptr, &entry)) &&
                   umf_likely(entry != 0)
               ? own_span(tracked, entry)
               : tracked_find_slow(tracked, ptr);
}

size_t umf_tracked_span_count(umf_tracked_provider_t *tracked) {
    umf_lock(&tracked->spans.lock);
    size_t count = tracked->spans.count;
    umf_unlock(&tracked->spans.lock);
    return count;
}

static bool add_bytes(umf_span_t *span, void *bytes) {
    *(size_t *)bytes += __atomic_load_n(&span->size, __ATOMIC_RELAXED);
    return true;
}

size_t umf_tracked_bytes(umf_tracked_provider_t *tracked) {
    size_t bytes = 0;
    umf_tracked_each_span(tracked, add_bytes, &bytes);
    size_t unbacked = atomic_load_explicit(&tracked->unbacked, memory_order_relaxed);
    return bytes > unbacked ? bytes - unbacked : 0;
}

void umf_tracked_each_span(umf_tracked_provider_t *tracked,
                           bool (*visit)(umf_span_t *span, void *arg), void *arg) {
    umf_span_each(&tracked->spans, visit, arg);
}

bool umf_tracked_find_any(umf_span_t *span, void *found) {
    *(umf_span_t **)found = span;
    return false;
}

/* --- refusals --- */

#define REFUSED_MAX (((size_t)1 << 58) - 1)
#define REFUSED_UNKNOWN 31u

/* In one word, because thread-local memory is scarce. */
typedef struct refusal_t {
    uint64_t size : 58;    /* REFUSED_MAX stands for anything above */
    uint64_t result : 5;   /* REFUSED_UNKNOWN stands for results that are none of the library's */
    uint64_t is_final : 1; /* more memory does not help */
} refusal_t;
static __thread refusal_t refusal;

void umf_tracked_forget_refusal(void) {
    refusal = (refusal_t){0};
    umf_thread_slot_tls.is_refused = false;
}

static void refuse(size_t size, umf_result_t result, bool is_shortage) {
    refusal.size = size < REFUSED_MAX ? size & REFUSED_MAX : REFUSED_MAX;
    refusal.result = (unsigned)result < REFUSED_UNKNOWN ? (unsigned)result & 31u : REFUSED_UNKNOWN;
    refusal.is_final = !is_shortage;
}

void umf_tracked_refuse(size_t size, umf_result_t result) {
    refuse(size, result, umf_result_is_shortage(result));
}

size_t umf_tracked_refused(void) {
    return refusal.size;
}

umf_result_t umf_tracked_refusal(void) {
    return refusal.result == REFUSED_UNKNOWN ? UMF_RESULT_ERROR_UNKNOWN
           : refusal.result                  ? (umf_result_t)refusal.result
                                             : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

bool umf_tracked_is_shortage(void) {
    return !refusal.is_final;
}

/* Only the provider can interpret its native errors. */
static bool is_shortage(const umf_tracked_provider_t *tracked, umf_result_t result) {
    return umf_result_is_shortage(result) ||
           (tracked->ext->is_shortage && tracked->ext->is_shortage(tracked->self, result));
}

UMF_COLD umf_result_t umf_tracked_alloc_failed(umf_tracked_provider_t *tracked, size_t size,
                                               umf_result_t result) {
    refuse(size, result, is_shortage(tracked, result));
    if (umf_group_of(tracked)) {
        umf_group_give(umf_group_of(tracked), size);
    }
    umf_provider_failed(tracked);
    umf_refusal_by_provider(tracked, size, result);
    UMF_EVENT(.kind = UMF_RECORD_PROVIDER_REFUSED, .pool = umf_tracked_pool(tracked), .size = size);
    return result;
}

void umf_tracked_tell_withdrawn(const umf_tracked_provider_t *tracked, umf_span_t *span) {
    UMF_KEEP_ERRNO;
    if (atomic_load_explicit(&span->exported, memory_order_relaxed)) {
        umf_core_export_ends(span, tracked->root);
    }
    if (umf_memory_watch_of(tracked)) {
        umf_memory_watch_unmapping(tracked, (void *)span->base, span->size, span->id);
    }
}
