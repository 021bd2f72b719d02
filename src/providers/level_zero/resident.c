/* Residency: the live allocations of a provider, and the devices on which they are resident. */
#include "providers/level_zero/resident.h"

#include <string.h>

#include <umf/providers/provider_level_zero.h>

#include "base/log.h"
#include "base/meta.h"
#include "object/provider/provider_query.h"
#include "providers/level_zero/params.h"
#include "providers/shared/table.h"
#include "system/os.h"

/* --- sets of devices -------------------------------------------------------------------------- */

static size_t devices_bytes(uint32_t count) {
    return sizeof(umf_ze_devices_t) + count * sizeof(ze_device_handle_t);
}

/* Makes a set with room for `count` devices and copies as many of the list as fit. */
static umf_ze_devices_t *devices_make(uint32_t count, const ze_device_handle_t *list,
                                      uint32_t listed) {
    umf_ze_devices_t *devices = umf_meta_alloc(devices_bytes(count));
    if (!devices) {
        UMF_LOG_ERROR("no memory for a list of %u devices", count);
        return NULL;
    }
    uint32_t copied = listed < count ? listed : count;
    devices->refs = 1;
    devices->count = count;
    if (copied) {
        memcpy(devices->list, list, copied * sizeof(*list));
    }
    return devices;
}

static umf_ze_devices_t *devices_get(umf_ze_provider_t *ze) {
    umf_lock(&ze->lock);
    umf_ze_devices_t *devices = ze->resident;
    devices->refs++;
    umf_unlock(&ze->lock);
    return devices;
}

static void devices_put(umf_ze_provider_t *ze, umf_ze_devices_t *devices) {
    umf_lock(&ze->lock);
    bool is_last = --devices->refs == 0;
    umf_unlock(&ze->lock);
    if (is_last) {
        umf_meta_free(devices, devices_bytes(devices->count));
    }
}

umf_result_t umf_ze_resident_init(umf_ze_provider_t *ze, const ze_device_handle_t *devices,
                                  uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (!devices[i]) {
            UMF_LOG_ERROR("resident device %u of %u is NULL", i, count);
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
    }
    if (!umf_ze_devices_are_distinct(devices, count)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    ze->resident = devices_make(count, devices, count);
    return ze->resident ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

void umf_ze_resident_fini(umf_ze_provider_t *ze) {
    devices_put(ze, ze->resident);
    umf_hash_fini(&ze->allocs);
}

ze_result_t umf_ze_resident_make(umf_ze_provider_t *ze, void *ptr, size_t size) {
    umf_ze_devices_t *devices = devices_get(ze);
    ze_result_t result = ZE_RESULT_SUCCESS;
    for (uint32_t i = 0; result == ZE_RESULT_SUCCESS && i < devices->count; i++) {
        result =
            umf_ze.zeContextMakeMemoryResident(ze->memory.context, devices->list[i], ptr, size);
    }
    devices_put(ze, devices);
    return result;
}

/* --- live allocations ------------------------------------------------------------------------- */

/* The entry of an allocation: a size of 0 must not be NULL. */
static void *alloc_entry(size_t size) {
    return (void *)(uintptr_t)(size + 1);
}

static size_t alloc_size(const void *entry) {
    return (uintptr_t)entry - 1;
}

bool umf_ze_alloc_add(umf_ze_provider_t *ze, const void *ptr, size_t size) {
    return umf_table_put(&ze->lock, &ze->allocs, ptr, alloc_entry(size));
}

bool umf_ze_alloc_is_listed(umf_ze_provider_t *ze, const void *ptr) {
    umf_lock(&ze->lock);
    bool is_listed = umf_hash_get(&ze->allocs, (uintptr_t)ptr) != NULL;
    umf_unlock(&ze->lock);
    return is_listed;
}

/* Waits until no change runs, with the lock held on return. A change inherited through a fork does
 * not count: the thread that made it does not exist here. */
static void change_wait_locked(umf_ze_provider_t *ze) {
    while (ze->changer == umf_os_pid()) {
        uint32_t seen = umf_event_count_read(&ze->turn);
        umf_unlock(&ze->lock);
        umf_event_count_wait(&ze->turn, seen);
        umf_lock(&ze->lock);
    }
}

bool umf_ze_alloc_remove(umf_ze_provider_t *ze, const void *ptr, size_t *size) {
    umf_lock(&ze->lock);
    change_wait_locked(ze);
    const void *entry = umf_hash_remove(&ze->allocs, (uintptr_t)ptr);
    umf_unlock(&ze->lock);
    if (entry) {
        *size = alloc_size(entry);
    }
    return entry != NULL;
}

/* --- changes ---------------------------------------------------------------------------------- */

typedef struct due_t {
    void *ptr;
    size_t size;
} due_t;

typedef struct change_t {
    umf_memory_provider_handle_t provider;
    umf_ze_provider_t *ze;
    ze_device_handle_t device;
    bool is_adding;
    due_t *due; /* all allocations when the set changed */
    size_t count, room;
} change_t;

/* Changes run one at a time, and nothing is freed meanwhile. */
static void change_begin(umf_ze_provider_t *ze) {
    umf_lock(&ze->lock);
    change_wait_locked(ze);
    ze->changer = umf_os_pid();
    umf_unlock(&ze->lock);
}

static void change_end(umf_ze_provider_t *ze) {
    umf_lock(&ze->lock);
    ze->changer = 0;
    umf_unlock(&ze->lock);
    umf_event_count_advance(&ze->turn);
}

/* Makes the new set, with the device or without it. Only this change can replace the
 * current set. */
static umf_result_t change_make_set(const change_t *change, umf_ze_devices_t **made) {
    const umf_ze_devices_t *now = change->ze->resident;
    uint32_t at = 0;
    while (at < now->count && now->list[at] != change->device) {
        at++;
    }
    if (change->is_adding == (at < now->count)) {
        UMF_LOG_ERROR("device %p is %s the devices on which memory is resident",
                      (void *)change->device, change->is_adding ? "already among" : "not among");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    uint32_t count = change->is_adding ? now->count + 1 : now->count - 1;
    umf_ze_devices_t *next = devices_make(count, now->list, now->count);
    if (!next) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (change->is_adding) {
        next->list[at] = change->device;
    } else if (at < count) {
        next->list[at] = now->list[count];
    }
    *made = next;
    return UMF_RESULT_SUCCESS;
}

static void change_note(uint64_t address, void *entry, void *arg) {
    change_t *change = arg;
    change->due[change->count++] = (due_t){(void *)(uintptr_t)address, alloc_size(entry)};
}

/* Publishes the new set and notes all live allocations. */
static umf_result_t change_publish_locked(change_t *change, umf_ze_devices_t *next) {
    umf_ze_provider_t *ze = change->ze;
    change->room = ze->allocs.count;
    change->due = umf_meta_alloc(change->room * sizeof(*change->due));
    if (change->room && !change->due) {
        UMF_LOG_ERROR("no memory to visit %zu allocations", change->room);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_hash_each(&ze->allocs, change_note, change);
    ze->resident = next;
    return UMF_RESULT_SUCCESS;
}

static ze_result_t visit(const change_t *change, const due_t *due) {
    ze_context_handle_t context = change->ze->memory.context;
    if (!umf_provider_is_tracked(change->provider, due->ptr)) {
        return ZE_RESULT_SUCCESS;
    }
    return change->is_adding
               ? umf_ze.zeContextMakeMemoryResident(context, change->device, due->ptr, due->size)
               : umf_ze.zeContextEvictMemory(context, change->device, due->ptr, due->size);
}

/* Visits all due allocations. A failure does not stop it, so that as many as possible follow the
 * new set. */
static umf_result_t change_visit_all(const change_t *change) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < change->count; i++) {
        ze_result_t one = visit(change, &change->due[i]);
        if (one != ZE_RESULT_SUCCESS) {
            umf_ze_result(one, change->is_adding ? "making memory resident" : "evicting memory");
            result = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;
        }
    }
    return result;
}

static umf_result_t change_run(change_t *change) {
    umf_ze_provider_t *ze = change->ze;
    umf_ze_devices_t *next, *old = ze->resident;
    umf_result_t result = change_make_set(change, &next);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_lock(&ze->lock);
    result = change_publish_locked(change, next);
    umf_unlock(&ze->lock);
    devices_put(ze, result == UMF_RESULT_SUCCESS ? old : next);
    if (result == UMF_RESULT_SUCCESS) {
        result = change_visit_all(change);
    }
    umf_meta_free(change->due, change->room * sizeof(*change->due));
    return result;
}

UMF_API_1_1 umf_result_t umfLevelZeroMemoryProviderResidentDeviceChange(
    umf_memory_provider_handle_t provider, ze_device_handle_t device, bool is_adding) {
    if (!provider || !device) {
        UMF_LOG_ERROR("provider or device are NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_ze_provider_t *ze = umf_provider_self(provider, umfLevelZeroMemoryProviderOps());
    if (!ze) {
        UMF_LOG_ERROR("provider %p is not one of Level Zero", (void *)provider);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    change_t change = {.provider = provider, .ze = ze, .device = device, .is_adding = is_adding};
    change_begin(ze);
    umf_result_t result = change_run(&change);
    change_end(ze);
    return result;
}
