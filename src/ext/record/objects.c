/*
 * Numbers of pools, providers and queues. An object gets its number at its creation, or at its
 * first event if it is older than the recording, and keeps it until another object has its handle.
 */
#include <string.h>

#include "base/log.h"
#include "ext/record/recording.h"
#include "object/object.h"

#define PROVIDERS 32768u /* entries, as file.c makes them */
#define IGNORED UMF_RECORD_NUMBER_IGNORED

static const char *provider_name(umf_memory_provider_handle_t provider) {
    const char *name = NULL;
    umf_result_t result = provider->ops.get_name(provider->self, &name);
    return result == UMF_RESULT_SUCCESS && name ? name : "";
}

static const char *pool_name(umf_memory_pool_handle_t pool) {
    const char *name = NULL;
    umf_result_t result = pool->ops.get_name(pool->self, &name);
    return result == UMF_RESULT_SUCCESS && name ? name : "";
}

static uint32_t number_locked(umf_recording_t *r, const umf_record_object_t *object) {
    umf_assert_locked(umf_record_lock());
    uint64_t number = umf_record_item(r, UMF_RECORD_OBJECTS, 1);
    if (number == UINT64_MAX) {
        if (!r->is_out_of_objects) {
            UMF_LOG_WARN("the recording has no room for another pool or provider: events of those "
                         "created from now on name none");
        }
        r->is_out_of_objects = true;
        return 0;
    }
    r->objects[number] = *object;
    umf_record_item_done(r, UMF_RECORD_OBJECTS, 1);
    return (uint32_t)number;
}

static umf_record_object_t describe(umf_record_object_kind_t kind, const void *handle,
                                    uint32_t birth, uint32_t parent, const char *name) {
    umf_record_object_t object = {
        .kind = kind, .parent = parent, .birth = birth, .handle = (uintptr_t)handle};
    object.live = object.live_count = object.held = object.peak = object.away = UMF_RECORD_UNKNOWN;
    strncpy(object.name, name, sizeof(object.name) - 1);
    return object;
}

static void end(umf_recording_t *r, uint32_t number) {
    if (number != 0 && number != IGNORED) {
        __atomic_fetch_or(&r->objects[number].flags, UMF_RECORD_OBJECT_IS_GONE, __ATOMIC_RELAXED);
    }
}

/* --- providers --- */

/* The entry of the handle, or a free one for it; NULL: there is none. */
static umf_record_handle_t *entry_of(umf_recording_t *r, const void *handle) {
    uint64_t hash = umf_record_hash((uintptr_t)handle >> 4);
    for (uint64_t i = 0; i < PROVIDERS; i++) {
        umf_record_handle_t *entry = &r->providers[(hash + i) % PROVIDERS];
        const void *found = atomic_load_explicit(&entry->handle, memory_order_acquire);
        if (found == handle || !found) {
            return entry;
        }
    }
    return NULL;
}

static uint32_t provider_add(umf_recording_t *r, umf_memory_provider_handle_t provider,
                             bool is_new) {
    umf_record_object_t object =
        describe(UMF_RECORD_OBJECT_PROVIDER, provider, provider->birth, 0, provider_name(provider));
    umf_lock(umf_record_lock());
    umf_record_handle_t *entry = entry_of(r, provider);
    uint32_t number = entry ? entry->number : 0;
    if (entry && (is_new || !entry->handle)) {
        number = number_locked(r, &object);
        atomic_store_explicit(&entry->number, number, memory_order_relaxed);
        atomic_store_explicit(&entry->handle, provider, memory_order_release);
    }
    umf_unlock(umf_record_lock());
    return number;
}

static uint32_t provider_number(umf_recording_t *r, umf_memory_provider_handle_t provider,
                                bool is_new) {
    umf_record_handle_t *entry = provider ? entry_of(r, provider) : NULL;
    if (!entry) {
        return 0;
    }
    return atomic_load_explicit(&entry->handle, memory_order_acquire) && !is_new
               ? atomic_load_explicit(&entry->number, memory_order_relaxed)
               : provider_add(r, provider, is_new);
}

/* --- pools --- */

static uint32_t pool_add(umf_recording_t *r, umf_memory_pool_handle_t pool, bool is_new) {
    uint32_t parent = provider_number(r, pool->provider->root, false);
    umf_record_object_t object =
        describe(UMF_RECORD_OBJECT_POOL, pool, pool->birth, parent, pool_name(pool));
    umf_lock(umf_record_lock());
    uint32_t number = r->pool_numbers[pool->index];
    if (is_new || number == 0) {
        number = number_locked(r, &object);
        atomic_store_explicit(&r->pool_numbers[pool->index], number, memory_order_relaxed);
    }
    umf_unlock(umf_record_lock());
    return number;
}

static uint32_t pool_number(umf_recording_t *r, umf_memory_pool_handle_t pool, bool is_new) {
    uint32_t number = atomic_load_explicit(&r->pool_numbers[pool->index], memory_order_relaxed);
    if (umf_likely(number != 0 && !is_new)) {
        return number;
    }
    if (r->has_filter) {
        atomic_store_explicit(&r->pool_numbers[pool->index], IGNORED, memory_order_relaxed);
        return IGNORED;
    }
    return pool_add(r, pool, is_new);
}

void umf_record_object_is_requested(umf_recording_t *r, umf_memory_pool_handle_t pool) {
    pool_add(r, pool, false);
}

uint32_t umf_record_object(umf_recording_t *r, const umf_event_t *event) {
    bool is_new = event->kind == UMF_RECORD_CREATE;
    uint32_t number = 0;
    if (event->pool) {
        number = pool_number(r, event->pool, is_new);
    } else if (event->provider) {
        number = r->has_filter ? IGNORED : provider_number(r, event->provider, is_new);
    }
    if (umf_unlikely(event->kind == UMF_RECORD_DESTROY)) {
        end(r, number);
    }
    return number;
}

/* --- queues --- */

static uint8_t queue_find(umf_recording_t *r, const void *queue) {
    for (uint32_t i = 0; i < UMF_RECORD_QUEUES; i++) {
        const void *none = NULL;
        if (atomic_load_explicit(&r->queues[i], memory_order_relaxed) == queue ||
            atomic_compare_exchange_strong(&r->queues[i], &none, queue) || none == queue) {
            return (uint8_t)(i + 1);
        }
    }
    return UMF_RECORD_QUEUES + 1;
}

uint8_t umf_record_queue(umf_recording_t *r, umf_record_thread_t *thread, const void *queue) {
    if (thread->queue != queue) {
        thread->queue_number = queue_find(r, queue);
        thread->queue = queue;
    }
    return thread->queue_number;
}
