/*
 * Opening: the first open of a handle. The thread that finds no mapping in the table enters one in
 * the phase OPENING and calls the provider without the lock; threads with the same handle wait for
 * its outcome. See mapping.c for the phases.
 */
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "ipc/mapping_own.h"
#include "object/event.h"
#include "peer/process.h"

/* A thread that waits for the outcome of an OPENING mapping; on its stack. */
typedef struct umf_mapping_waiter_t {
    struct umf_mapping_waiter_t *next;
    bool done;           /* Sync: lock */
    umf_result_t result; /* Sync: lock */
} umf_mapping_waiter_t;

/* A new mapping with a checked copy of the handle. The handle is copied first, because the caller's
 * bytes may change at any time.
 */
static umf_result_t mapping_prepare(umf_mapping_owner_t *owner, const void *handle, size_t size,
                                    umf_mapping_t **out) {
    unsigned char header[UMF_WIRE_HEADER];
    memcpy(header, handle, sizeof(header));
    umf_wire_t wire;
    umf_result_t result = umf_mapping_check_header(owner, header, size, &wire);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_mapping_t *mapping = umf_mapping_alloc(wire.data_size);
    if (mapping == NULL) {
        UMF_LOG_ERROR("no memory to open an IPC handle");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    atomic_store_explicit(&mapping->owner, owner, memory_order_release);
    mapping->provider = owner->provider;
    mapping->wire = wire;
    umf_mapping_set_fixed(mapping, header);
    memcpy(mapping->data, (const char *)handle + UMF_WIRE_HEADER, wire.data_size);
    result = umf_wire_check_data(&wire, mapping->data);
    if (result != UMF_RESULT_SUCCESS) {
        umf_mapping_free(mapping);
        return result;
    }
    *out = mapping;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_mapping_wait_locked(umf_mapping_t *mapping) {
    umf_assert_locked(&umf_mappings.lock);
    umf_mapping_waiter_t waiter = {.next = mapping->waiters};
    umf_mapping_waiter_t *self = &waiter;
    /* gcc takes the stored address for dangling. The thread that sets `done` removes it first. */
    __asm__("" : "+r"(self));
    mapping->waiters = self;
    while (!waiter.done) {
        uint32_t seen = umf_event_count_read(&umf_mappings.outcomes);
        umf_unlock(&umf_mappings.lock);
        umf_event_count_wait(&umf_mappings.outcomes, seen);
        umf_lock(&umf_mappings.lock);
    }
    return waiter.result;
}

void umf_mapping_abandon_locked(umf_mapping_t *mapping) {
    umf_mapping_remove_locked(mapping);
    umf_list_remove(&mapping->siblings);
    umf_mappings.count--;
}

static umf_result_t mapping_refuse(const umf_mapping_t *mine, const char *why) {
    UMF_LOG_ERROR("the IPC handle for %llu bytes at 0x%llx of process %u is not valid: %s",
                  (unsigned long long)mine->wire.size, (unsigned long long)mine->wire.base,
                  mine->wire.pid, why);
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/*
 * Adds a user to an OPEN mapping, unless the two handles differ. Then one of them is stale or
 * forged. A provider with a watch refuses a stale handle by itself, so it is called anew, and the
 * mapping is retired before: a forged handle that was opened before must not keep out a genuine
 * one. Without a watch the number of the export alone decides.
 */
static umf_result_t mapping_join_locked(umf_mapping_t *mapping, const umf_mapping_t *mine,
                                        umf_list_t *closing) {
    /* Export ids only grow: the newer handle proves that the memory of the older one was freed. */
    if (mine->wire.export_id > mapping->wire.export_id) {
        umf_mapping_retire_locked(mapping, closing);
        return UMF_RESULT_SUCCESS;
    }
    if (mapping->watch.word && !umf_mapping_is_same(mapping, mine)) {
        umf_mapping_retire_locked(mapping, closing);
        return UMF_RESULT_SUCCESS;
    }
    if (mine->wire.export_id < mapping->wire.export_id) {
        return mapping_refuse(mine, "a newer one was opened before, so that memory was freed");
    }
    if (!umf_mapping_is_same(mapping, mine)) {
        return mapping_refuse(mine, "it contradicts one that was opened before");
    }
    if (!umf_ipc_is_alive(mapping->watch)) {
        umf_mapping_retire_locked(mapping, closing);
        return mapping_refuse(mine, "the producer has freed that memory");
    }
    umf_mapping_use_locked(mapping);
    umf_list_remove(&mapping->order);
    umf_list_add_tail(&umf_mappings.order, &mapping->order);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t mapping_begin_locked(umf_mapping_t *mine, umf_list_t *closing) {
    mine->opener = umf_process_pid();
    if (!umf_mapping_insert_locked(mine)) {
        UMF_LOG_ERROR("no memory to remember one more opened IPC handle");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_mapping_evict_locked(closing);
    umf_mappings.misses++;
    mine->phase = UMF_MAPPING_OPENING;
    umf_list_add_tail(&umf_mapping_owner(mine)->mappings, &mine->siblings);
    umf_mappings.count++;
    return UMF_RESULT_SUCCESS;
}

/* The open mapping for the handle in `mine`, with one more user; or `mine` itself, OPENING. */
static umf_result_t mapping_enter(umf_mapping_t *mine, umf_mapping_t **out) {
    umf_list_t closing;
    umf_list_init(&closing);
    umf_result_t result = UMF_RESULT_SUCCESS;
    umf_mapping_t *mapping;
    umf_lock(&umf_mappings.lock);
    while ((mapping = umf_mapping_find_locked(mine)) != NULL && result == UMF_RESULT_SUCCESS) {
        if (mapping->phase == UMF_MAPPING_OPEN) {
            result = mapping_join_locked(mapping, mine, &closing);
            /* It was retired if it was stale; then the loop looks for another one. */
            if (mapping->phase == UMF_MAPPING_OPEN) {
                break;
            }
        } else if (mapping->opener != umf_process_pid()) {
            /* Inherited through a fork: no thread finishes this open. */
            umf_mapping_abandon_locked(mapping);
        } else {
            /* Compared before the wait, after which the mapping may be freed. */
            bool is_equal = umf_mapping_is_same(mapping, mine);
            umf_result_t outcome = umf_mapping_wait_locked(mapping);
            result = is_equal ? outcome : UMF_RESULT_SUCCESS;
        }
    }
    if (mapping == NULL && result == UMF_RESULT_SUCCESS) {
        mapping = mine;
        result = mapping_begin_locked(mine, &closing);
    }
    umf_unlock(&umf_mappings.lock);
    umf_mapping_close_all(&closing);
    if (result == UMF_RESULT_SUCCESS) {
        *out = mapping;
    }
    return result;
}

/* Whether the provider opened the original memory itself, at its own address in this process. */
static bool mapping_is_in_place(const umf_mapping_t *mapping) {
    umf_process_t self;
    umf_process_self(&self);
    return mapping->wire.base == (uintptr_t)mapping->base && mapping->wire.pid == self.pid &&
           mapping->wire.start_time == self.start_time && mapping->wire.boot_id == self.boot_id;
}

/* Whether the provider returned memory of a pool of this process, whose record must not change. */
static bool mapping_is_of_pool(const umf_mapping_t *mapping) {
    const umf_span_t *span = umf_span_find(&umf_map_global, (uintptr_t)mapping->base, NULL);
    return span && umf_span_kind(span) == UMF_SPAN_POOL && span->base == (uintptr_t)mapping->base;
}

static umf_result_t mapping_record(umf_mapping_t *mapping) {
    if (!umf_ipc_is_alive(mapping->watch)) {
        return mapping_refuse(mapping, "the producer has freed that memory");
    }
    /* A word can be watched on the producer's machine only, so the handle lies about
     * the machine. */
    if (mapping->watch.word && umf_mapping_is_of_elsewhere(mapping)) {
        return mapping_refuse(mapping, "it names another machine, but its memory is on this one");
    }
    if (mapping_is_in_place(mapping)) {
        umf_lock(&umf_mappings.lock);
        mapping->is_own = true;
        umf_list_add(&umf_mappings.own, &mapping->own);
        umf_unlock(&umf_mappings.lock);
        return UMF_RESULT_SUCCESS;
    }
    if (mapping_is_of_pool(mapping)) {
        return mapping_refuse(mapping, "it names memory of this process by a false address");
    }
    umf_result_t result =
        umf_span_add(&umf_mappings.spans, (uintptr_t)mapping->base, mapping->wire.size,
                     UMF_SPAN_IMPORT, mapping, 0, &mapping->span);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("the mapping of %llu bytes at %p cannot be recorded",
                      (unsigned long long)mapping->wire.size, (void *)mapping->base);
        return result;
    }
    UMF_EVENT(.kind = UMF_RECORD_OPEN, .provider = mapping->provider,
              .address = (uintptr_t)mapping->base, .size = mapping->wire.size);
    return UMF_RESULT_SUCCESS;
}

static void mapping_fill_copy(const umf_mapping_t *mapping, void *copy) {
    memcpy(copy, mapping->data, mapping->wire.data_size);
}

static umf_result_t mapping_map_with(umf_mapping_t *mapping, void *copy) {
    mapping_fill_copy(mapping, copy);
    void *base = NULL;
    umf_result_t result = umf_mapping_ask_provider(mapping, copy, &base);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (base == NULL || (uintptr_t)base > UINTPTR_MAX - mapping->wire.size) {
        UMF_LOG_ERROR("the provider opened an IPC handle at %p, where %llu bytes cannot be", base,
                      (unsigned long long)mapping->wire.size);
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    mapping->base = base;
    mapping_fill_copy(mapping, copy); /* the provider may have written to it */
    mapping->watch = umf_ipc_watch(mapping->provider, copy);
    result = mapping_record(mapping);
    if (result != UMF_RESULT_SUCCESS) {
        umfMemoryProviderCloseIPCHandle(mapping->provider, base, mapping->wire.size);
    }
    return result;
}

/* Maps an OPENING mapping and records it, or leaves nothing behind. */
static umf_result_t mapping_map(umf_mapping_t *mapping) {
    size_t size;
    umf_result_t result = umf_mapping_copy_size(mapping, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    void *copy = umf_meta_alloc(size);
    if (copy == NULL) {
        UMF_LOG_ERROR("no memory for %zu bytes of provider data", size);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    result = mapping_map_with(mapping, copy);
    umf_meta_free(copy, size);
    return result;
}

static void mapping_tell_waiters_locked(umf_mapping_t *mapping, umf_result_t result) {
    umf_assert_locked(&umf_mappings.lock);
    for (umf_mapping_waiter_t *waiter = mapping->waiters, *next; waiter; waiter = next) {
        /* The waiter is on its thread's stack: it is gone once `done` is set and the
         * lock is free. */
        next = waiter->next;
        waiter->result = result;
        waiter->done = true;
    }
    mapping->waiters = NULL;
}

/* Ends OPENING: the mapping is OPEN with one user, or out of the table and freed. */
static umf_result_t mapping_finish(umf_mapping_t *mapping, umf_result_t result) {
    umf_lock(&umf_mappings.lock);
    if (result == UMF_RESULT_SUCCESS) {
        mapping->phase = UMF_MAPPING_OPEN;
        umf_list_add_tail(&umf_mappings.order, &mapping->order);
        umf_mapping_first_use_locked(mapping);
    } else {
        umf_mapping_abandon_locked(mapping);
    }
    mapping_tell_waiters_locked(mapping, result);
    umf_unlock(&umf_mappings.lock);
    umf_event_count_advance(&umf_mappings.outcomes);
    if (result != UMF_RESULT_SUCCESS) {
        umf_mapping_free(mapping);
    }
    return result;
}

umf_result_t umf_mapping_open(umf_mapping_owner_t *owner, const void *handle, size_t size,
                              void **ptr) {
    umf_mapping_t *mine, *mapping = NULL;
    umf_result_t result = mapping_prepare(owner, handle, size, &mine);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    uint64_t offset = mine->wire.offset;
    result = mapping_enter(mine, &mapping);
    if (result != UMF_RESULT_SUCCESS || mapping != mine) {
        umf_mapping_free(mine);
    } else {
        result = mapping_finish(mine, mapping_map(mine));
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *ptr = mapping->base + offset;
    umf_mapping_remember(owner, mapping);
    return UMF_RESULT_SUCCESS;
}
