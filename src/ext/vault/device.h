/*
 * Device: memory of GPUs in a vault. The daemon keeps descriptors of the driver; a process that
 * maps them has a provider of the device, which the vault keeps until it is closed.
 *
 * The slabs of a view that are of one device are a *part*: one range of addresses, first the shared
 * slabs, mapped read-only, then pages of this process alone.
 */
#ifndef UMF_SRC_EXT_VAULT_DEVICE_H
#define UMF_SRC_EXT_VAULT_DEVICE_H

#include "ext/vault/vault.h"
#include "object/object.h"

#include <umf/suspend.h>

#define UMF_VAULT_DEVICES "cuda_vmm" /* whose memory can be kept */

struct umf_vault_device_t {
    umf_vault_device_t *next; /* Immutable, as all once it is listed */
    umf_memory_provider_handle_t provider;
    unsigned char id[UMF_VAULT_DEVICE_SIZE];
    int number;
    char text[256]; /* of the provider */
};

struct umf_vault_part_t {
    umf_vault_part_t *next;
    umf_vault_device_t *device;
    void *base;
    size_t size;
};

/* The part of a slab of a device in a view. */
struct umf_vault_place_t {
    umf_vault_part_t *part; /* NULL: it is no memory of a device */
    umf_vm_page_t page;     /* of this process; size 0: none */
    int fd;                 /* to be mapped; -1: none */
    bool is_shown;
};

/* The provider of the device with an id. `text`: as umf_vault_attach_params_t::devices. */
umf_result_t umf_vault_device_get(umf_vault_handle_t vault, const char *text,
                                  const unsigned char id[UMF_VAULT_DEVICE_SIZE],
                                  umf_vault_device_t **device);
void umf_vault_devices_end(umf_vault_handle_t vault);
/* Waits for all work that is queued on the devices. */
umf_result_t umf_vault_devices_settle(umf_vault_handle_t vault);
/* Fills memory of a device with zeros; the host waits. */
umf_result_t umf_vault_device_clear(umf_memory_provider_handle_t provider, void *memory,
                                    size_t size);
/* A descriptor of an allocation that is a piece, which is not mapped here afterwards. */
umf_result_t umf_vault_device_give(umf_memory_provider_handle_t provider, void *base, int *fd);
/* Waits for all queued work of a provider's device. */
umf_result_t umf_vault_settle(umf_memory_provider_handle_t provider);
/* Unmaps memory that was written here; the device is settled before. */
void umf_vault_range_end(umf_vault_range_t *range);
/* "GPU-..." */
#define UMF_VAULT_DEVICE_TEXT 48
void umf_vault_device_text(const unsigned char id[UMF_VAULT_DEVICE_SIZE],
                           char text[UMF_VAULT_DEVICE_TEXT]);

/* Addresses for the slabs of devices. */
umf_result_t umf_vault_parts_reserve(umf_vault_view_handle_t view, const char *text);
/* A slab's descriptor, which becomes the view's. Shared slabs are mapped by the next call. */
umf_result_t umf_vault_part_take(umf_vault_view_handle_t view, uint32_t i, int fd);
umf_result_t umf_vault_parts_show(umf_vault_view_handle_t view);
/* A slab without content. */
umf_result_t umf_vault_part_zero(umf_vault_view_handle_t view, uint32_t i);
/* Waits for the work that is named, or for all that is queued on the devices. */
umf_result_t umf_vault_parts_settle(umf_vault_view_handle_t view,
                                    const umf_suspend_params_t *params);
/* Unmaps shared slabs, and closes descriptors that are not mapped yet; the addresses stay. */
umf_result_t umf_vault_parts_hide(umf_vault_view_handle_t view);
void umf_vault_parts_end(umf_vault_view_handle_t view);

/* The sum of an entry as it is now. */
umf_result_t umf_vault_view_digest(umf_vault_view_handle_t view, uint32_t entry, uint64_t *digest);
/* The sum of memory of a device, as umf_table_digest. */
umf_result_t umf_vault_device_digest(umf_memory_provider_handle_t provider, const void *ptr,
                                     size_t size, uint64_t *digest);

#endif
