#include "ext/vault/device.h"

#include <string.h>

#include <umf/text.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "system/os.h"

static const umf_memory_provider_ext_ops_t *ext_of(const umf_vault_device_t *device) {
    return device->provider->ext;
}
static void *self_of(const umf_vault_device_t *device) {
    return device->provider->self;
}

/* --- devices ---------------------------------------------------------------------------------- */

void umf_vault_device_text(const unsigned char id[UMF_VAULT_DEVICE_SIZE],
                           char text[UMF_VAULT_DEVICE_TEXT]) {
    int at = snprintf(text, UMF_VAULT_DEVICE_TEXT, "GPU");
    for (int i = 0; i < UMF_VAULT_DEVICE_SIZE; i++) {
        bool begins = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(text + at, UMF_VAULT_DEVICE_TEXT - (size_t)at, "%s%02x", begins ? "-" : "",
                       id[i]);
    }
}

static umf_result_t text_make(const char *text, const unsigned char id[UMF_VAULT_DEVICE_SIZE],
                              char *made, size_t size) {
    char uuid[UMF_VAULT_DEVICE_TEXT] = "";
    bool is_named = strstr(text, "device=") || strstr(text, "uuid=");
    umf_vault_device_text(id, uuid);
    int length = snprintf(made, size, "%s%cshare=fd%s%s", text, strchr(text, ':') ? ',' : ':',
                          is_named ? "" : ",uuid=", is_named ? "" : uuid);
    if (length < 0 || (size_t)length >= size) {
        UMF_LOG_ERROR("'%.200s': the text of a provider for devices has at most %zu bytes", text,
                      size - sizeof(uuid) - 16);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t device_open(umf_vault_device_t *device) {
    umf_result_t result = umfMemoryProviderCreateFromText(device->text, &device->provider);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    unsigned char own[UMF_VAULT_DEVICE_SIZE];
    if (!ext_of(device)->vm_device || !ext_of(device)->range_reserve) {
        UMF_LOG_ERROR("'%s' maps no memory of other processes: cuda_vmm does", device->text);
        result = UMF_RESULT_ERROR_NOT_SUPPORTED;
    } else {
        result = ext_of(device)->vm_device(self_of(device), own, &device->number);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umfMemoryProviderDestroy(device->provider);
    }
    return result;
}

static umf_vault_device_t *device_find_locked(umf_vault_handle_t vault,
                                              const umf_vault_device_t *like) {
    umf_vault_device_t *device = vault->devices;
    while (device && (memcmp(device->id, like->id, sizeof(like->id)) != 0 ||
                      strcmp(device->text, like->text) != 0)) {
        device = device->next;
    }
    return device;
}

umf_result_t umf_vault_device_get(umf_vault_handle_t vault, const char *text,
                                  const unsigned char id[UMF_VAULT_DEVICE_SIZE],
                                  umf_vault_device_t **device) {
    umf_vault_device_t *made = umf_meta_alloc(sizeof(*made));
    if (!made) {
        UMF_LOG_ERROR("no memory for a device");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    memcpy(made->id, id, sizeof(made->id));
    umf_result_t result = text_make(text, id, made->text, sizeof(made->text));
    umf_lock(&vault->lock);
    umf_vault_device_t *found = result ? NULL : device_find_locked(vault, made);
    umf_unlock(&vault->lock);
    if (result == UMF_RESULT_SUCCESS && !found) {
        result = device_open(made);
    }
    if (result == UMF_RESULT_SUCCESS && !found) { /* two threads may have one each */
        umf_lock(&vault->lock);
        made->next = vault->devices;
        vault->devices = found = made;
        umf_unlock(&vault->lock);
    } else {
        umf_meta_free(made, sizeof(*made));
    }
    *device = found;
    return result;
}

void umf_vault_devices_end(umf_vault_handle_t vault) {
    while (vault->devices) {
        umf_vault_device_t *device = vault->devices;
        vault->devices = device->next;
        umfMemoryProviderDestroy(device->provider);
        umf_meta_free(device, sizeof(*device));
    }
}

umf_result_t umf_vault_device_clear(umf_memory_provider_handle_t provider, void *memory,
                                    size_t size) {
    const umf_memory_provider_ext_ops_t *ext = provider->ext;
    void *queue;
    umf_result_t result = ext->queue_create(provider->self, &queue);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = ext->fill(provider->self, queue, memory, 0, size);
    umf_result_t waited = ext->queue_wait(provider->self, queue);
    ext->queue_destroy(provider->self, queue);
    return result ? result : waited;
}

umf_result_t umf_vault_device_give(umf_memory_provider_handle_t provider, void *base, int *fd) {
    const umf_memory_provider_ext_ops_t *ext = provider->ext;
    size_t allocations = 1, size;
    int is_claimed = 0;
    umf_result_t result = ext->vm_claim(provider->self, &base, &allocations, 1, &is_claimed);
    if (result != UMF_RESULT_SUCCESS || !is_claimed) {
        return result ? result : UMF_RESULT_ERROR_UNKNOWN;
    }
    result = ext->vm_give(provider->self, base, fd, &size);
    if (result == UMF_RESULT_SUCCESS) {
        result = ext->vm_detach(provider->self, &base, 1);
    }
    umf_result_t released = ext->vm_release(provider->self, &base, 1);
    return result ? result : released;
}

umf_result_t umf_vault_settle(umf_memory_provider_handle_t provider) {
    return provider->ext->settle ? provider->ext->settle(provider->self) : UMF_RESULT_SUCCESS;
}

umf_result_t umf_vault_devices_settle(umf_vault_handle_t vault) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (const umf_vault_device_t *device = vault->devices; device && result == UMF_RESULT_SUCCESS;
         device = device->next) {
        result = umf_vault_settle(device->provider);
    }
    return result;
}

void umf_vault_range_end(umf_vault_range_t *range) {
    if (range->device) {
        ext_of(range->device)->vm_drop(self_of(range->device), range->base, range->size);
    } else if (range->size) {
        umf_os_unmap(range->base, range->size);
    }
}

/* --- parts ------------------------------------------------------------------------------------ */

static bool is_of_device(const umf_vault_slab_t *slab) {
    return slab->kind != UMF_VAULT_KIND_HOST;
}

static umf_result_t part_find(umf_vault_view_handle_t view, const char *text,
                              const umf_vault_slab_t *slab, umf_vault_part_t **part) {
    umf_vault_part_t *found = view->parts;
    while (found && memcmp(found->device->id, slab->device, sizeof(slab->device)) != 0) {
        found = found->next;
    }
    if (found) {
        *part = found;
        return UMF_RESULT_SUCCESS;
    }
    char name[UMF_VAULT_DEVICE_TEXT];
    umf_vault_device_text(slab->device, name);
    if (!text) {
        return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                        "generation %llu of vault %s has memory of %s: attach it with `devices`, "
                        "such as \"cuda_vmm\"",
                        (unsigned long long)view->generation, view->vault->link.name, name);
    }
    umf_vault_device_t *device;
    umf_result_t result = umf_vault_device_get(view->vault, text, slab->device, &device);
    if (result != UMF_RESULT_SUCCESS) {
        umf_reason_t reason = umfLastReason();
        return UMF_FAIL(reason, result,
                        "generation %llu of vault %s has memory of %s, which this process cannot "
                        "map",
                        (unsigned long long)view->generation, view->vault->link.name, name);
    }
    found = umf_meta_alloc(sizeof(*found));
    if (!found) {
        UMF_LOG_ERROR("no memory for the slabs of a device");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *found = (umf_vault_part_t){.device = device, .next = view->parts};
    view->parts = found;
    *part = found;
    return UMF_RESULT_SUCCESS;
}

/* Places of the slabs in their part: shared ones first. Without a base: the size only. */
static umf_result_t part_arrange(umf_vault_view_handle_t view, umf_vault_part_t *part) {
    const umf_table_t *table = &view->table;
    size_t at = 0;
    for (int shared = 1; shared >= 0; shared--) {
        for (uint32_t i = 0; i < table->head->slabs; i++) {
            const umf_vault_slab_t *slab = &table->slabs[i];
            if (view->places[i].part != part ||
                (slab->role == UMF_VAULT_CLASS_SHARED) != (shared != 0)) {
                continue;
            }
            if (slab->size > (uint64_t)1 << 47 || at > (size_t)1 << 47) {
                return umf_vault_view_broken(
                    view, "its slabs are larger than the addresses of a process");
            }
            view->bases[i] = part->base ? (char *)part->base + at : NULL;
            at += (size_t)slab->size;
        }
    }
    part->size = part->base ? part->size : at;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t part_reserve(umf_vault_view_handle_t view, umf_vault_part_t *part) {
    size_t granularity, needed;
    umf_result_t result = part_arrange(view, part);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    needed = part->size;
    result = ext_of(part->device)
                 ->range_reserve(self_of(part->device), &part->size, &granularity, &part->base);
    if (result != UMF_RESULT_SUCCESS) {
        part->base = NULL;
        return result;
    }
    return part->size == needed ? part_arrange(view, part)
                                : umf_vault_view_broken(view, "a slab of a device is no multiple "
                                                              "of its granularity");
}

umf_result_t umf_vault_parts_reserve(umf_vault_view_handle_t view, const char *text) {
    uint32_t count = view->table.head->slabs;
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        const umf_vault_slab_t *slab = &view->table.slabs[i];
        if (!is_of_device(slab)) {
            continue;
        }
        if (!view->places) {
            view->places = umf_meta_alloc(count * sizeof(*view->places));
            if (!view->places) {
                UMF_LOG_ERROR("no memory for the slabs of a device");
                return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
            }
            for (uint32_t n = 0; n < count; n++) {
                view->places[n].fd = -1;
            }
        }
        result = part_find(view, text, slab, &view->places[i].part);
    }
    for (umf_vault_part_t *part = view->parts; part && result == UMF_RESULT_SUCCESS;
         part = part->next) {
        result = part_reserve(view, part);
    }
    return result;
}

/* --- mapping ---------------------------------------------------------------------------------- */

/* The result of memory that differs from the table. */
static umf_result_t shown(umf_vault_view_handle_t view, umf_result_t result) {
    return result == UMF_RESULT_ERROR_INVALID_ARGUMENT
               ? umf_vault_view_broken(view, "a slab is no memory of its device, or of another "
                                             "size than its table says")
               : result;
}

static umf_result_t page_make(umf_vault_view_handle_t view, uint32_t i) {
    umf_vault_place_t *place = &view->places[i];
    const umf_vault_device_t *device = place->part->device;
    umf_vm_page_t page = {.size = (size_t)view->table.slabs[i].size};
    umf_result_t result = ext_of(device)->page_create(self_of(device), &page);
    if (result == UMF_RESULT_SUCCESS) {
        result = ext_of(device)->page_map(self_of(device), view->bases[i], &page, 1);
        if (result == UMF_RESULT_SUCCESS) {
            place->page = page;
        } else {
            ext_of(device)->page_destroy(self_of(device), &page);
        }
    }
    return result;
}

/* Work on a queue of its own, and the wait for it: a copy, or zeroes without a source. */
static umf_result_t write_at(const umf_vault_device_t *device, void *to, const void *from,
                             size_t size) {
    const umf_memory_provider_ext_ops_t *ext = ext_of(device);
    void *self = self_of(device), *queue;
    umf_result_t result = ext->queue_create(self, &queue);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = from ? ext->copy(self, queue, to, from, size) : ext->fill(self, queue, to, 0, size);
    umf_result_t waited = ext->queue_wait(self, queue);
    ext->queue_destroy(self, queue);
    return result ? result : waited;
}

/* A copy of a slab: the memory itself is mapped for its time. */
static umf_result_t copy_private(umf_vault_view_handle_t view, uint32_t i) {
    umf_vault_place_t *place = &view->places[i];
    const umf_vault_device_t *device = place->part->device;
    const umf_memory_provider_ext_ops_t *ext = ext_of(device);
    size_t size = (size_t)view->table.slabs[i].size, reserved = size, granularity;
    void *from;
    umf_result_t result = ext->range_reserve(self_of(device), &reserved, &granularity, &from);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    result = shown(view, ext->vm_show(self_of(device), from, &place->fd, &size, 1, device->id));
    if (result == UMF_RESULT_SUCCESS) {
        result = place->page.size ? UMF_RESULT_SUCCESS : page_make(view, i);
        result = result ? result : write_at(device, view->bases[i], from, size);
        ext->vm_hide(self_of(device), from, size);
    }
    ext->range_release(self_of(device), from, reserved);
    return result;
}

static void place_close(umf_vault_place_t *place) {
    if (place->fd != -1) {
        umf_os_close(place->fd);
        place->fd = -1;
    }
}

umf_result_t umf_vault_part_take(umf_vault_view_handle_t view, uint32_t i, int fd) {
    view->places[i].fd = fd;
    if (view->table.slabs[i].role == UMF_VAULT_CLASS_SHARED) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = copy_private(view, i);
    place_close(&view->places[i]);
    return result;
}

umf_result_t umf_vault_part_zero(umf_vault_view_handle_t view, uint32_t i) {
    umf_result_t result = page_make(view, i);
    return result ? result
                  : write_at(view->places[i].part->device, view->bases[i], NULL,
                             (size_t)view->table.slabs[i].size);
}

/* Adjacent slabs from `first` on, in one call: most of the time is taken by giving access. */
static umf_result_t run_show(umf_vault_view_handle_t view, uint32_t *first) {
    int fds[UMF_VAULT_FDS_MAX];
    size_t sizes[UMF_VAULT_FDS_MAX];
    uint32_t indices[UMF_VAULT_FDS_MAX], count = 0, i = *first;
    const umf_vault_part_t *part = view->places[i].part;
    char *end = view->bases[i];
    for (; i < view->table.head->slabs && count < UMF_VAULT_FDS_MAX; i++) {
        const umf_vault_place_t *place = &view->places[i];
        if (place->part != part || view->table.slabs[i].role != UMF_VAULT_CLASS_SHARED) {
            continue;
        }
        if (place->fd == -1 || view->bases[i] != end) {
            break;
        }
        fds[count] = place->fd;
        sizes[count] = (size_t)view->table.slabs[i].size;
        indices[count] = i;
        end += sizes[count++];
    }
    umf_result_t result = shown(view, ext_of(part->device)
                                          ->vm_show(self_of(part->device), view->bases[*first], fds,
                                                    sizes, count, part->device->id));
    umf_os_close_many(fds, count);
    for (uint32_t n = 0; n < count; n++) {
        view->places[indices[n]].fd = -1;
        view->places[indices[n]].is_shown = result == UMF_RESULT_SUCCESS;
    }
    return result;
}

umf_result_t umf_vault_parts_show(umf_vault_view_handle_t view) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    uint32_t count = view->places ? view->table.head->slabs : 0;
    for (uint32_t i = 0; i < count && result == UMF_RESULT_SUCCESS; i++) {
        if (view->places[i].fd != -1) {
            result = run_show(view, &i);
        }
    }
    return result;
}

umf_result_t umf_vault_parts_settle(umf_vault_view_handle_t view,
                                    const umf_suspend_params_t *params) {
    bool is_named = params && (params->num_queues || params->num_events);
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (const umf_vault_part_t *part = view->parts; part && result == UMF_RESULT_SUCCESS;
         part = part->next) {
        result = is_named ? ext_of(part->device)
                                ->wait(self_of(part->device), params->queues, params->num_queues,
                                       params->events, params->num_events)
                          : umf_vault_settle(part->device->provider);
    }
    return result;
}

static bool is_shown_of(umf_vault_view_handle_t view, uint32_t i, const umf_vault_part_t *part) {
    return view->places[i].part == part && view->places[i].is_shown;
}

/* Unmaps the shown slabs of a part, as many slabs in a call as are side by side. */
static umf_result_t part_hide(umf_vault_view_handle_t view, const umf_vault_part_t *part) {
    umf_result_t first = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0, count = view->table.head->slabs; i < count; i++) {
        if (!is_shown_of(view, i, part)) {
            continue;
        }
        char *begin = view->bases[i], *end = begin;
        uint32_t last = i;
        for (uint32_t n = i; n < count; n++) {
            if (is_shown_of(view, n, part) && view->bases[n] != end) {
                break;
            }
            if (is_shown_of(view, n, part)) {
                end += view->table.slabs[n].size;
                last = n;
            }
        }
        umf_result_t result =
            ext_of(part->device)->vm_hide(self_of(part->device), begin, (size_t)(end - begin));
        first = first ? first : result;
        for (; i < last + 1 && result == UMF_RESULT_SUCCESS; i++) {
            view->places[i].is_shown = view->places[i].is_shown && view->places[i].part != part;
        }
        i = last;
    }
    return first;
}

umf_result_t umf_vault_parts_hide(umf_vault_view_handle_t view) {
    umf_result_t first = UMF_RESULT_SUCCESS;
    uint32_t count = view->places ? view->table.head->slabs : 0;
    for (uint32_t i = 0; i < count; i++) { /* a change that failed has not shown them */
        place_close(&view->places[i]);
    }
    for (const umf_vault_part_t *part = view->parts; part; part = part->next) {
        umf_result_t result = part_hide(view, part);
        first = first ? first : result;
    }
    return first;
}

static void page_end(umf_vault_view_handle_t view, uint32_t i) {
    umf_vault_place_t *place = &view->places[i];
    const umf_vault_device_t *device = place->part ? place->part->device : NULL;
    place_close(place);
    if (place->page.size && ext_of(device)->page_unmap(self_of(device), view->bases[i],
                                                       place->page.size) == UMF_RESULT_SUCCESS) {
        ext_of(device)->page_destroy(self_of(device), &place->page);
    }
}

void umf_vault_parts_end(umf_vault_view_handle_t view) {
    uint32_t count = view->places ? view->table.head->slabs : 0;
    umf_vault_parts_hide(view);
    for (uint32_t i = 0; i < count; i++) {
        page_end(view, i);
    }
    while (view->parts) {
        umf_vault_part_t *part = view->parts;
        view->parts = part->next;
        if (part->base) {
            ext_of(part->device)->range_release(self_of(part->device), part->base, part->size);
        }
        umf_meta_free(part, sizeof(*part));
    }
    umf_meta_free(view->places, count * sizeof(*view->places));
    view->places = NULL;
}
